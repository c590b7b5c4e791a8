"""The short way of one new row to its bytes, against the codec of rows."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from kv.base.errors import TooLarge
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.limits import KEY_BYTES_MAX
from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures.compiling import Compiled
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Column, Table
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.rules import Rules
from sqlproxy.tables.single_row import Single, single_of


def table(key: tuple[str, ...] = ("b", "a")) -> Table:
    columns = [
        Column(0, "a", "int2", nullable=False),
        Column(0, "b", "text", nullable=False),
        Column(0, "c", "numeric(6,2)"),
        Column(0, "d", "int8"),
    ]
    made = Table.declare("default", "t", columns=columns, primary_key=key)
    return replace(made, id=TableId(100))


def writer(of: Table, *, checks: Any = ()) -> TableWriter:
    defaults = {3: lambda row, env: env.nextval("d")}
    required = tuple(at for at, c in enumerate(of.columns) if not c.nullable)
    return TableWriter(of, Rules(of, defaults, (), (), checks, required, lambda at, v: str(v)))


def parameter(number: int) -> Compiled:
    return Compiled(0, -1, lambda row, env: env.params[number])


def constant(value: Any) -> Compiled:
    return Compiled(0, -1, lambda row, env: value, constant=True, value=value)


def env(*params: Any) -> Env:
    numbers = iter(range(500, 600))
    return Env(params=params, nextval=lambda name: next(numbers))


@pytest.mark.parametrize("key", [("b", "a"), ("a",)])
def test_p1_one_row_is_what_the_codec_makes(key: tuple[str, ...]) -> None:
    """Rows that came alone would be unreadable, or elsewhere than those that came with others."""
    of = table(key)
    made = single_of(writer(of), {1: parameter(0), 0: constant(7), 2: parameter(1), 3: None})
    assert made is not None
    for at, (text, amount) in enumerate([("x", Decimal("1.5")), ("", None), ("x\x01y", 3)]):
        row = (7, text, None if amount is None else Decimal(amount), 500)
        expected = codec(of).encode_row(row)
        assert made(env(text, amount)) == (table_prefix(of.id) + expected[0], expected[1]), at


def made_of(of: Table) -> Single:
    made = single_of(writer(of), {0: parameter(0), 1: parameter(1)})
    assert made is not None
    return made


def test_p1_one_row_keeps_nothing_of_the_one_before() -> None:
    """A NULL would have the value of another client's row."""
    made = single_of(writer(table()), {0: constant(1), 1: constant("k"), 2: parameter(0)})
    assert made is not None
    first, then = made(env(5)), made(env(None))
    assert first is not None
    assert then == made(env(None)) != first


def test_p1_one_row_that_is_not_allowed_has_no_bytes() -> None:
    """A NULL, or a number that does not fit, would be in a column that forbids it."""
    made = made_of(table())
    assert made(env(None, "x")) is None
    assert made(env(1, None)) is None
    with pytest.raises(ValueError, match="from -32768 to 32767"):
        made(env(40_000, "x"))
    with pytest.raises(TooLarge):
        made(env(1, "x" * KEY_BYTES_MAX))


def test_p1_rows_with_more_rules_have_no_short_way() -> None:
    """A CHECK would not be asked."""
    of = table()
    given = {0: parameter(0), 1: parameter(1)}
    assert single_of(writer(of, checks=(("c", lambda row, env: False),)), given) is None
    assert single_of(writer(of), given | {0: constant(40_000)}) is None
