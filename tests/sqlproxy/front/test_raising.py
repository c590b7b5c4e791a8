"""What is said never to raise (`closures.raising`) is called with what it may meet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product
from typing import Any, Final

import pytest

from sqlproxy.front import front
from sqlproxy.front.bound.exprs import Call, Column, Const, conjuncts
from sqlproxy.front.bound.statements import Select
from sqlproxy.front.closures.compiling import CannotCompile, compile
from sqlproxy.front.closures.raising import raises, total
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.types import registry as r
from sqlproxy.pg import oids
from sqlproxy.values.interval import Interval
from tests.kit.each import each
from tests.sqlproxy.front.names import FakeNames
from tests.sqlproxy.front.test_expressions import ENV

_TEXTS: Final = ("", " ", "a", "É\\", "%_", "x'\"", "0", "12", "base64", "\U0001f600" * 3)
_MOMENTS: Final = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
_DECIMALS: Final = tuple(map(Decimal, ("0", "-1.50", "1e30", "1e-30", "NaN", "Infinity")))
VALUES: Final[dict[int, tuple[Any, ...]]] = {
    oids.BOOL: (True, False),
    oids.INT2: (0, -1, 32767, -32768),
    oids.INT4: (0, -1, 2**31 - 1, -(2**31)),
    oids.INT8: (0, -1, 2**63 - 1, -(2**63)),
    oids.OID: (0, 2**32 - 1),
    oids.FLOAT4: (0.0, -0.0, 3.4e38, float("nan"), float("-inf")),
    oids.FLOAT8: (0.0, -0.0, 1.7e308, 5e-324, float("nan"), float("inf")),
    oids.NUMERIC: _DECIMALS,
    oids.TEXT: _TEXTS,
    oids.VARCHAR: _TEXTS,
    oids.BPCHAR: _TEXTS,
    oids.NAME: _TEXTS,
    oids.CHAR: ("", "x"),
    oids.BYTEA: (b"", b"\0\xff"),
    oids.DATE: (date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)),
    oids.TIME: (time(), time(23, 59, 59, 999_999)),
    oids.TIMESTAMP: tuple(one.replace(tzinfo=None) for one in _MOMENTS),
    oids.TIMESTAMPTZ: _MOMENTS,
    oids.INTERVAL: (Interval(0, 0, 0), Interval(-13, 400, 10**15)),
    oids.JSON: ("1", "null", "[1, [2]]", '{"a": {"b": 1}}', '"x"'),
    oids.JSONB: ("1", "null", "[1, [2]]", '{"a": {"b": 1}}', '"x"'),
    1009: ([], ["a", None, "0"], [["a", "1"], ["b", None]], [[["a"]]]),
    1007: ([], [1, None], [[1, 2], [3, 4]], [[[7]]]),
    oids.ANYARRAY: ([], [1, None], [[1, 2], [3, 4]]),
}


class _Empty:
    """A catalog without any rows."""

    moment: Final[object] = None

    def get(self, relation: str, column: str, **where: object) -> Any:
        return None

    def find(self, relation: str, column: str, **where: object) -> list[Any]:
        return []

    def relation(self, name: str) -> int:
        raise AssertionError("a name may be of nothing")

    def rows(self, relation: str) -> None:
        return None

    def fact(self, name: str) -> Any:
        return None


_ENV: Final = replace(ENV, catalog=_Empty())
_KNOWN = sorted(
    {
        (proc.source, proc.args, proc)
        for table in (r.OPERATORS, r.FUNCTIONS)
        for procs in table.values()
        for proc in procs
        if proc.kind in "of" and total(proc) and all(arg in VALUES for arg in proc.args)
    },
    key=lambda one: (one[0], one[1]),
)


@each("proc", [one[2] for one in _KNOWN], ids=[f"{a}{b}" for a, b, _ in _KNOWN])
def test_what_is_said_never_to_raise_does_not(proc: r.Proc) -> None:
    """DuckDB computes it for rows that a guard should have spared, and the statement fails."""
    concrete = tuple(1007 if oid == oids.ANYARRAY else oid for oid in proc.args)
    args = tuple(Column(oid=oid, index=i, name="") for i, oid in enumerate(concrete))
    try:
        fn = compile(Call(oid=proc.result, proc=proc, args=args, operator="")).fn
    except CannotCompile:  # it is refused before any row
        return
    for row in product(*((*VALUES[oid], None) for oid in proc.args)):
        fn(row, _ENV)


@each("said", ["usage", "select, insert", "", "x"])
def test_what_raises_for_what_is_said_alone(said: str) -> None:
    """A condition that fails for some rows is moved to where it is asked of all."""
    readers = {
        (proc.source, proc.args, proc)
        for procs in r.FUNCTIONS.values()
        for proc in procs
        if proc.source in FUNCTIONS and FUNCTIONS[proc.source].reads
    }
    assert len(readers) > 8
    for _, types, proc in readers:
        args = [Column(oid=oid, index=i, name="") for i, oid in enumerate(types[:-1])]
        call = Call(oid=proc.result, proc=proc, args=(*args, Const(oid=oids.TEXT, value=said)))
        fn = compile(call).fn
        for row in product(*((*VALUES[oid], None) for oid in types[:-1])):
            if not raises(call):
                fn(row, _ENV)


def test_enough_is_known_not_to_raise() -> None:
    """A name in the list is of no function, or the list lost its entries."""
    sources = {one[0] for one in _KNOWN}
    every = {
        proc.source
        for table in (r.OPERATORS, r.FUNCTIONS)
        for procs in table.values()
        for proc in procs
    }
    declared = {name for name, function in FUNCTIONS.items() if function.total}
    vectors = {f"{name}_from_0" for name in every}  # of int2vector and oidvector
    assert declared <= every | vectors
    assert len(declared - sources) <= 12, declared - sources  # polymorphic and variadic ones
    assert len(_KNOWN) > 200


@pytest.mark.parametrize(
    ("condition", "risky"),
    [
        ("a = 1", False),
        ("b like 'x%' and b is not null", False),
        ("b like 'x\\'", True),
        ("b like b", True),
        ("10 / a > 1", True),
        ("a + 1 > 1", True),
        ("b::int > 1", True),
        ("a::text = '1'", False),
        ("a::bigint = 1", False),
        ("c::numeric(3) = 1", True),
        ("b::varchar(3) = 'x'", False),
        ("case when a = 1 then b = 'x' end", False),
        ("case when a = 1 then 1 / a = 1 end", True),
        ("exists (select 1 from u)", False),
        ("exists (select 1 from u where 1 / a = 1)", True),
        ("(select max(a) from u) = 1", False),
        ("(select u.a from u) = 1", True),
        ("(select u.a from u limit 1) = 1", False),
        ("b = any(array['x', 'y'])", False),
        ("pg_has_role(a::oid, 'usage, member')", False),
        ("pg_has_role(a::oid, 'drop')", True),
        ("pg_has_role(a::oid, b)", True),
        ("pg_has_role(b::name, 'usage')", True),
        ("has_table_privilege(a::oid, 'select')", False),
        ("has_table_privilege(b, 'select')", True),
        ("has_sequence_privilege(a::oid, 'select')", True),
    ],
)
def test_what_can_raise_is_known(condition: str, risky: bool) -> None:
    """A guard is left out, or a condition that could be moved freely is not."""
    bound = front.bind(front.parse(f"select 1 from t where {condition}"), FakeNames())
    assert isinstance(bound, Select)
    assert any(map(raises, conjuncts(bound.where))) is risky
