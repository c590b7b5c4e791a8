"""Any value of any type survives its text and its binary form, and garbage is refused politely."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlproxy.pg import binary, oids, text
from sqlproxy.pg.arrays import shape_of
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import SqlError
from sqlproxy.values.interval import Interval

STYLES = [Style(), Style(ZoneInfo("America/New_York")), Style(ZoneInfo("Asia/Kathmandu"))]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
FLOAT4 = st.floats(width=32, allow_nan=False)
# a day of room at both ends, so that no zone moves them out of the calendar
MOMENTS = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))  # noqa: DTZ001
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(1 << 15), (1 << 15) - 1),
    "int4": st.integers(-(1 << 31), (1 << 31) - 1),
    "int8": st.integers(-(1 << 63), (1 << 63) - 1),
    "oid": st.integers(0, (1 << 32) - 1),
    "float4": FLOAT4,
    "float8": st.floats(allow_nan=False),
    "numeric": st.decimals(allow_nan=False, allow_infinity=True)
    .map(
        lambda d: (
            d
            if not d.is_finite()
            else Decimal(format(d, "f"))
            if abs(d.adjusted()) < 300
            else Decimal(1)
        )
    )
    .map(lambda d: d if d else abs(d)),
    "text": TEXTS,
    "varchar": TEXTS,
    "bytea": st.binary(max_size=50),
    "uuid": st.uuids(),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": MOMENTS,
    "timestamptz": MOMENTS.map(lambda d: d.replace(tzinfo=dt.UTC)),
    "interval": st.builds(
        Interval,
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.integers(-(1 << 62), 1 << 62),
    ),
}


def same(left: Any, right: Any) -> bool:
    """Equal, and for intervals and numerics of the same fields and scale."""
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Interval):
        return left.same(right)
    if isinstance(left, Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


@given(st.data())
def test_values_survive_text_and_binary(data: st.DataObject) -> None:
    """A client would read another value than the one that is stored."""
    name = data.draw(st.sampled_from(sorted(VALUES)))
    style = data.draw(st.sampled_from(STYLES))
    value = data.draw(VALUES[name])
    oid = oids.by_name(name)[0].oid
    assert same(text.reader(oid, style)(text.writer(oid, style)(value)), value)
    assert same(binary.reader(oid)(binary.writer(oid)(value)), value)


@given(st.data())
def test_arrays_survive_text_and_binary(data: st.DataObject) -> None:
    """Elements were lost, unquoted, or took NULL for a word."""
    name = data.draw(st.sampled_from(sorted(VALUES)))
    element = st.none() | VALUES[name]
    width = data.draw(st.integers(1, 3))
    value = data.draw(
        st.lists(element, max_size=5)
        | st.lists(st.lists(element, min_size=width, max_size=width), min_size=1, max_size=3)
    )
    oid = oids.by_name(f"{name}[]")[0].oid
    assert same(text.reader(oid)(text.writer(oid)(value)), value)
    assert same(binary.reader(oid)(binary.writer(oid)(value)), value)
    assert len(shape_of(value)) <= 2


@given(st.sampled_from(sorted(oids.TYPES)), st.text(max_size=20))
def test_any_text_is_read_or_refused(oid: int, given_text: str) -> None:
    """A literal crashed a reader: the client would see an internal error."""
    try:
        value = text.reader(oid)(given_text)
    except SqlError:
        return
    text.writer(oid)(value)


@given(st.sampled_from(sorted(oids.TYPES)), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(oid: int, raw: bytes) -> None:
    """Bytes of a parameter crashed a reader, or reserved what they claim to hold."""
    try:
        value = binary.reader(oid)(raw)
    except SqlError:
        return
    if oid not in (oids.CHAR, oids.JSON, oids.JSONB):
        assert isinstance(binary.writer(oid)(value), bytes)


@given(st.integers(0, (1 << 32) - 1))
def test_shortest_float4_is_read_back_and_no_shorter_one_is(bits: int) -> None:
    """float4 showed digits that nobody stored, or lost some."""
    value = struct.unpack(">f", struct.pack(">I", bits))[0]
    if math.isnan(value):
        return
    shown = text.writer(oids.FLOAT4)(value)
    assert text.reader(oids.FLOAT4)(shown) == value
    digits = len(shown.lstrip("-").split("e")[0].replace(".", "").strip("0"))
    assert digits <= 9


def test_claimed_sizes_reserve_nothing() -> None:
    """A few bytes that claim an array of two billion elements took the memory for them."""
    raw = struct.pack(">iiIii", 1, 0, oids.INT4, (1 << 31) - 1, 1)
    with pytest.raises(SqlError, match="insufficient data left in message"):
        binary.reader(oids.by_name("int4[]")[0].oid)(raw)


def test_names_without_a_clock_are_refused_and_with_one_are_days() -> None:
    """`now` and `today` must come from the transaction's time, never from the machine's."""
    with pytest.raises(SqlError, match="invalid input syntax"):
        text.reader(oids.DATE)("today")
    late = dt.datetime(2024, 2, 28, 23, 30, tzinfo=dt.UTC)
    style = Style(ZoneInfo("Europe/Paris"), now=lambda: late)
    assert text.reader(oids.DATE, style)("today") == dt.date(2024, 2, 29)
    assert text.reader(oids.DATE, style)("tomorrow") == dt.date(2024, 3, 1)
    assert text.reader(oids.TIMESTAMPTZ, style)("now") == late
    assert text.reader(oids.TIME, style)("now") == dt.time(0, 30)


def test_infinite_dates_are_refused_by_name() -> None:
    """`infinity` would be stored as something else."""
    for oid in (oids.DATE, oids.TIMESTAMP, oids.TIMESTAMPTZ):
        with pytest.raises(SqlError) as caught:
            text.reader(oid)("infinity")
        assert caught.value.sqlstate == "0A000"


def test_addresses_have_the_binary_form_of_postgresql() -> None:
    """Clients that ask for binary answers read pg_stat_activity.client_addr wrongly."""
    for shown, raw in (
        ("1.2.3.4", "0220000401020304"),
        ("10.0.0.0/8", "020800040a000000"),
        ("fe80::1/64", "03400010fe800000000000000000000000000001"),
    ):
        assert binary.writer(oids.INET)(shown).hex() == raw
        assert binary.reader(oids.INET)(bytes.fromhex(raw)) == shown
    with pytest.raises(SqlError):
        binary.reader(oids.INET)(b"\x02\x20\x00")


def test_types_that_have_no_binary_form_say_so() -> None:
    """PostgreSQL has none either: 42883, by name."""
    with pytest.raises(SqlError) as caught:
        binary.writer(oids.ACLITEM)
    assert caught.value.sqlstate == "42883"
    assert "aclitem" in caught.value.message
    with pytest.raises(SqlError, match="OID 718"):
        text.writer(718)


@pytest.mark.parametrize("name", ["bpchar", "bpchar[]", "char(3)", "varchar", "numeric(12,4)[]"])
def test_canonical_names_come_back(name: str) -> None:
    """A declared column of type bpchar becomes char(1), or nobody can look at the catalog."""
    kind, typmod = oids.by_name(name)
    assert oids.canonical(kind.oid, typmod) == name
