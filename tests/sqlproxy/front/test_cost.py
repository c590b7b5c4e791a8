"""What one call of a function costs at most, whatever its arguments are: a statement has no break
inside a call that does not take one itself (`sqlproxy.values.breaks`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from itertools import product
from typing import Any, Final

import pytest

from kv.base.limits import SQL_ARRAY_ELEMENTS_MAX
from sqlproxy.front.bound.exprs import TAKEN, Call, Column
from sqlproxy.front.closures.compiling import FIXED, CannotCompile, compile
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.types import comparing, value_texts
from sqlproxy.front.types import registry as r
from sqlproxy.pg import binary, oids, text
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.breaks import no_break, set_breaks
from sqlproxy.values.errors import SqlError
from sqlproxy.values.interval import Interval
from tests.kit.each import each
from tests.sqlproxy.front import test_raising
from tests.sqlproxy.front.test_expressions import ENV

_LARGE: Final = 4_000_000
_S_MAX: Final = 0.2  # between two breaks; a busy machine is given five times that
_LONG_S: Final = 0.25  # then what takes breaks is ended
_WAIT_S: Final = 60.0
_TEXTS: Final = (
    "a" * _LARGE,
    "9" * _LARGE,
    "%_" * 5_000,
    "(a+)+" * 3_000,
    "é\u0301" * (_LARGE // 4),
    "[" * _LARGE,
    "9D." * 100_000,
    "HH24" * 100_000,
    '{"a":' * 100_000,
    "a" * 40 + "!",
    "^(a+)+$",
    "hex",
    "base64",
    "escape",
    ",",
    "g",
    "",
    "%1000000000s",
    "NFKD",
    "\\" * 1_000_000,
    " " * 1_000_000 + "x",  # what looks for an end of many beginnings
    "[1]" * 300_000 + "x",
)
_JSON: Final = (
    "[" * 900 + "1" + "]" * 900,
    "[" + "1," * 500_000 + "1]",
    '{"a":' * 400 + "1" + "}" * 400,
    '"' + "a" * _LARGE + '"',
)
_NUMBERS: Final = tuple(
    Decimal(text)
    for text in (
        *("0", "1.5", "-1.5", "50000", "-50000", "32177", "0.0001", "1e131071"),
        *("9" * 131_072, "0." + "7" * 16_383, "1." + "0" * 16_382 + "1", "131071.7"),
    )
)
VALUES: Final[dict[int, tuple[Any, ...]]] = {
    oids.BOOL: (True,),
    oids.INT2: (0, 32_767, -32_768),
    oids.INT4: (0, 1, 2**31 - 1, -(2**31), 10_000_000),
    oids.INT8: (0, 2**63 - 1, 32_177),
    oids.OID: (1,),
    oids.FLOAT4: (1.5, 3.4e38),
    oids.FLOAT8: (1.5, 1.7e308),
    oids.NUMERIC: _NUMBERS,
    oids.TEXT: _TEXTS,
    oids.VARCHAR: _TEXTS,
    oids.BPCHAR: _TEXTS,
    oids.NAME: ("a",),
    oids.CHAR: ("x",),
    oids.BYTEA: (b"a" * _LARGE, b"\0\\" * (_LARGE // 2), b"%_" * 5_000),
    oids.DATE: (date(2024, 2, 29),),
    oids.TIME: (clock_time(1),),
    oids.TIMESTAMP: (datetime(2024, 2, 29, 1, tzinfo=UTC).replace(tzinfo=None),),
    oids.TIMESTAMPTZ: (datetime(2024, 2, 29, 1, tzinfo=UTC),),
    oids.INTERVAL: (Interval(13, 400, 10**15),),
    oids.JSON: _JSON,
    oids.JSONB: _JSON,
    1009: (["a", "b"] * 250_000, ["a" * 1_000] * 1_000, [str(n) for n in range(100_000)]),
    1007: (list(range(500_000)), [1_000, 1_000, 1_000], [2**31 - 1]),
    1231: ([Decimal(1)] * 100_000,),
    oids.ANYARRAY: (list(range(SQL_ARRAY_ELEMENTS_MAX)), [[1, 2]] * (SQL_ARRAY_ELEMENTS_MAX // 2)),
    oids.ANYELEMENT: (7,),
    oids.ANYNONARRAY: (7,),
}
_CONCRETE: Final = {
    oids.ANYARRAY: 1007,
    oids.ANYELEMENT: oids.INT4,
    oids.ANYNONARRAY: oids.INT4,
    2276: oids.TEXT,
}
VALUES[2276] = _TEXTS
_KNOWN = sorted(
    {  # one of an operator and a function that are computed by the same
        (proc.source, proc.args, proc.name in comparing.OPERATORS): (proc.source, proc.args, proc)
        for table in (r.OPERATORS, r.FUNCTIONS)
        for procs in table.values()
        for proc in procs
        if proc.kind in "of" and not proc.returns_set and all(arg in VALUES for arg in proc.args)
        if proc.source not in TAKEN  # they look at what sessions have
    }.values(),
    key=lambda one: (one[0], one[1]),
)
_LONG_MAX: Final = 120  # calls of one function: the values of three texts are thousands


def _calls(proc: r.Proc) -> list[tuple[Any, ...]]:
    rows = list(product(*(VALUES[oid] for oid in proc.args)))
    return rows[:: max(1, len(rows) // _LONG_MAX)]


def _measured(proc: r.Proc, pipe: Any) -> None:
    """In a process of its own: sends what is called, then how long it held the process at most."""
    concrete = tuple(_CONCRETE.get(oid, oid) for oid in proc.args)
    args = tuple(Column(oid=oid, index=i, name="") for i, oid in enumerate(concrete))
    result = _CONCRETE.get(proc.result, proc.result)
    fn = compile(Call(oid=result, proc=proc, args=args, operator="")).fn
    last = longest = 0.0

    def take() -> None:
        nonlocal last, longest
        now = time.process_time()
        longest, last = max(longest, now - last), now
        if now > began + _LONG_S:  # a statement may be long; it was not stuck
            raise SqlError("57014", "long enough")

    set_breaks(take)
    for row in _calls(proc):
        pipe.send(tuple(str(v[:30] if isinstance(v, str | bytes | list) else v)[:30] for v in row))
        began = last = time.process_time()
        longest = 0.0
        with contextlib.suppress(SqlError, RecursionError):  # a session says 54001 of both
            fn(row, ENV)
        now = time.process_time()
        pipe.send(max(longest, now - last))
    pipe.send(None)


@pytest.mark.slow
@pytest.mark.parametrize("proc", [one[2] for one in _KNOWN], ids=[f"{a}{b}" for a, b, _ in _KNOWN])
def test_a_call_is_short_whatever_its_arguments_are(proc: r.Proc) -> None:
    """One client's expression holds a process that serves others."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_measured, args=(proc, there))
    try:
        concrete = tuple(_CONCRETE.get(oid, oid) for oid in proc.args)
        args = tuple(Column(oid=oid, index=i, name="") for i, oid in enumerate(concrete))
        compile(Call(oid=proc.result, proc=proc, args=args, operator=""))
    except (CannotCompile, SqlError):
        return
    child.start()
    there.close()
    try:
        while True:
            assert here.poll(_WAIT_S), "it started nothing"
            called = here.recv()
            if called is None:
                return
            assert here.poll(_WAIT_S), f"{proc.name}{called} does not end"
            took = here.recv()
            assert took < 5 * _S_MAX, f"{proc.name}{called} took {took:.2f} s"
    finally:
        child.kill()
        child.join()


def test_enough_functions_are_called() -> None:
    """A type lost its values, and with them its functions are called with nothing."""
    called = {source for source, _, _ in _KNOWN}
    left = sorted(set(FUNCTIONS) - called)
    assert len(left) < len(FUNCTIONS) / 4, left


class _Taken(Exception):
    """A break was taken."""


def _take() -> None:
    raise _Taken


_SIZED: Final = [
    proc
    for _, _, proc in _KNOWN
    if proc.strict
    and proc.source in FUNCTIONS
    and not FUNCTIONS[proc.source].nulls
    and proc.name not in comparing.OPERATORS
    and all(arg in test_raising.VALUES for arg in proc.args)
    and any(arg not in FIXED for arg in proc.args)
]


@each("proc", _SIZED, ids=[f"{p.source}{p.args}" for p in _SIZED])
def test_a_function_of_values_of_any_size_takes_a_break(proc: r.Proc) -> None:
    """Thousands of its calls would hold the loop, and the short way of one row would compute it."""
    concrete = tuple(_CONCRETE.get(oid, oid) for oid in proc.args)
    args = tuple(Column(oid=oid, index=i, name="") for i, oid in enumerate(concrete))
    result = _CONCRETE.get(proc.result, proc.result)
    try:
        fn = compile(Call(oid=result, proc=proc, args=args, operator="")).fn
    except (CannotCompile, SqlError):
        return
    set_breaks(_take)
    try:
        with pytest.raises(_Taken):
            fn([test_raising.VALUES[oid][-1] for oid in proc.args], ENV)
    finally:
        set_breaks(no_break)


@pytest.mark.slow
@pytest.mark.parametrize("oid", [1007, 1009, 1231, 1182], ids=["int4", "text", "numeric", "date"])
def test_arrays_come_and_go_with_breaks(oid: int) -> None:
    """An array of two million elements holds the loop while it is read or written."""
    one = {1007: 7, 1009: "a b", 1231: Decimal(7), 1182: date(2024, 2, 29)}[oid]
    many = 20_000
    breaks = 0

    def take() -> None:
        nonlocal breaks
        breaks += 1

    set_breaks(take)
    try:
        pairs: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
            (text.writer(oid, DEFAULT), text.reader(oid, DEFAULT)),
            (binary.writer(oid), binary.reader(oid)),
            (value_texts.writer(oid, DEFAULT), value_texts.reader(oid, DEFAULT)),
        ]
        for write, read in pairs:
            for value in ([one] * many, [[one, None]] * (many // 2)):
                breaks = 0
                made = write(value)
                assert breaks > many // 1_000
                breaks = 0
                assert read(made) == value
                assert breaks > many // 1_000
    finally:
        set_breaks(no_break)
