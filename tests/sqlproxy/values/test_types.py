"""Types of SQL against what PostgreSQL 15 answered (data/types_pg15.json), and their own rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument
from sqlproxy.values import arrays, jsonb
from sqlproxy.values.interval import Interval
from sqlproxy.values.types import DoesNotFit, assign, canonical, cast, resolve

RECORDED = json.loads((Path(__file__).parent / "data/types_pg15.json").read_text())


def answer(ask: Callable[[], Any]) -> Any:
    """As it was recorded: the value, or `!` and the SQLSTATE (None where we have none)."""
    try:
        return ask()
    except DoesNotFit as error:
        return ["!", error.sqlstate]
    except ValueError:
        return ["!", None]


@pytest.mark.parametrize(("text", "wanted"), RECORDED["jsonb"])
def test_jsonb_is_postgresql_s_text(text: str, wanted: Any) -> None:
    """Two clients that compare jsonb as text must agree on it, whichever server stored it."""
    found = answer(lambda: assign(resolve("jsonb"), text))
    assert found == (wanted if isinstance(wanted, str) else ["!", None])
    if isinstance(wanted, str):
        assert jsonb.canonical(wanted) == wanted, "what is stored stays as it is"


@pytest.mark.parametrize("kind", RECORDED["cast"])
def test_lengths_cut_in_a_cast(kind: str) -> None:
    """An explicit cast cuts without a word, as SQL says."""
    for text, wanted in RECORDED["cast"][kind]:
        assert answer(lambda text=text: cast(resolve(kind), text)) == wanted, text


@pytest.mark.parametrize("kind", RECORDED["assign"])
def test_lengths_are_enforced_by_an_assignment(kind: str) -> None:
    """INSERT refuses what is too long (22001), unless only blanks are cut."""
    for text, wanted in RECORDED["assign"][kind]:
        assert answer(lambda text=text: assign(resolve(kind), text)) == wanted, text


@pytest.mark.parametrize("kind", RECORDED["numeric"])
def test_numerics_are_rounded_to_their_scale(kind: str) -> None:
    """Also to a scale below zero, or above the precision."""
    for text, wanted in RECORDED["numeric"][kind]:
        found = answer(lambda text=text: resolve(kind).to_stored(Decimal(text)))
        assert found == wanted, text


@pytest.mark.parametrize("kind", RECORDED["timestamp"])
def test_times_are_rounded_to_their_digits(kind: str) -> None:
    """Half a unit goes away from the year 2000, where PostgreSQL counts from."""
    for text, wanted in RECORDED["timestamp"][kind]:
        assert assign(resolve(kind), datetime.fromisoformat(text)).isoformat() == wanted


def test_names_of_types_are_folded_to_one() -> None:
    """Two spellings of one type must not be two types."""
    for written, name in (
        ("character varying(5)", "varchar(5)"),
        ("CHARACTER (3)", "char(3)"),
        ("char", "char(1)"),
        ("bpchar", "bpchar"),
        ("int[3][]", "int4[]"),
        ("integer ARRAY", "int4[]"),
        ("timestamp(3) with time zone", "timestamptz(3)"),
        ("float(24)", "float4"),
        ("numeric(5, -2)[]", "numeric(5,-2)[]"),
        ("varchar", "varchar"),
        ("jsonb", "jsonb"),
        ("time without time zone", "time"),
        ("dec(4)", "numeric(4,0)"),
    ):
        assert canonical(written) == name
        assert canonical(name) == name
    for wrong in (
        "varchar(0)",
        "char(10485761)",
        "timestamp(7)",
        "int4(3)",
        "numeric(1,2,3)",
        "text(3)",
        "money",
        "time with time zone",
        "int4[",
        "float(54)",
        "",
    ):
        with pytest.raises(InvalidArgument):
            resolve(wrong)


@given(st.recursive(st.none() | st.integers(-3, 3), lambda inner: st.lists(inner, max_size=3)))
def test_arrays_are_rectangular_or_refused(value: Any) -> None:
    """A ragged array has no place in PostgreSQL's formats: it could never be sent."""
    kind = resolve("int4[]")
    if not isinstance(value, list):
        return
    if problem := arrays.problem(value):
        with pytest.raises(DoesNotFit) as caught:
            assign(kind, value)
        assert (caught.value.sqlstate, caught.value.message) == problem
        return
    found = assign(kind, value)
    assert arrays.nested(arrays.flat(found), arrays.shape(found)) == found
    assert found == value or not arrays.flat(value)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kind.to_stored(value))) == found


def test_arrays_of_intervals_keep_their_shape() -> None:
    """An interval's stored form must not be taken for a dimension."""
    kind = resolve("interval[]")
    value = [[Interval(1, 2, 3), None], [Interval(), Interval(us=-1)]]
    assert assign(kind, value) == value
    assert arrays.shape(kind.to_stored(value)) == (2, 2)


def test_intervals_compare_by_their_length() -> None:
    """`1 mon` = `30 days` in PostgreSQL; a set or a join that told them apart would differ."""
    month, days = Interval(months=1), Interval(days=30)
    assert month == days
    assert hash(month) == hash(days)
    assert not month.same(days)
    assert Interval(days=29) < month <= days < Interval(days=30, us=1)
    with pytest.raises(DoesNotFit, match="interval out of range"):
        assign(resolve("interval"), Interval(months=1 << 31))
