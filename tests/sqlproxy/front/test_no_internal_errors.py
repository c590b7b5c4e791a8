"""Whatever a function is called with, it answers or raises what a client may see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import pytest

from sqlproxy.front.bound.exprs import TAKEN, Call, Column
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.types import registry as r
from sqlproxy.pg import oids
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.front.test_expressions import ENV
from tests.sqlproxy.front.test_raising import VALUES

_ROWS_MAX: Final = 400
_PARTS: Final = 6
_ANY: Final = {
    **dict.fromkeys((oids.ANYARRAY, oids.ANYCOMPATIBLEARRAY), 1007),
    **dict.fromkeys((oids.ANYELEMENT, oids.ANYNONARRAY), oids.INT4),
    **dict.fromkeys((oids.ANYCOMPATIBLE, oids.ANYCOMPATIBLENONARRAY), oids.INT4),
    oids.ANY: oids.TEXT,
}
_LONG: Final = frozenset(("repeat", "lpad", "rpad", "pg_sleep"))
"""Whose answers may be as large as what they are asked for, or that take their time."""


def _calls() -> Iterator[tuple[str, r.Proc, tuple[int, ...]]]:
    for table in (r.OPERATORS, r.FUNCTIONS):
        for name, procs in table.items():
            for proc in procs:
                if proc.kind not in "of" or proc.returns_set or proc.name in _LONG:
                    continue
                if proc.source in TAKEN:  # they look at what sessions have
                    continue
                args = [_ANY.get(oid, oid) for oid in proc.args]
                for count in range(len(args) - proc.defaults, len(args) + 1):
                    if all(oid in VALUES for oid in args[:count]):
                        shown = ",".join(map(r.format_type, args[:count]))
                        yield f"{name}({shown})", proc, tuple(args[:count])


CALLS: Final = list(_calls())


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_call_ends_in_an_answer_or_an_sqlstate(part: int) -> None:
    """An exception of Python reaches the client as XX000."""
    for shown, proc, types in CALLS[part::_PARTS]:
        args = tuple(Column(oid=oid, index=i, name="") for i, oid in enumerate(types))
        operator = proc.name if proc.kind == "o" else ""
        result = _ANY.get(proc.result, proc.result)
        try:
            fn = compile(Call(oid=result, proc=proc, args=args, operator=operator)).fn
        except SqlError:
            continue
        for row in islice(product(*((*VALUES[oid], None) for oid in types)), _ROWS_MAX):
            state = _called(fn, row)
            assert state != "XX000", (shown, row)


def _called(fn: Any, row: tuple[Any, ...]) -> str:
    """The SQLSTATE; what is none ends the test as it is."""
    try:
        fn(row, ENV)
    except SqlError as error:
        return error.sqlstate
    return "00000"


def test_no_recorded_statement_may_end_in_an_internal_error() -> None:
    """A list of what is answered otherwise on purpose has an internal error in it."""
    folder = Path(__file__).parent.parent
    lists = [folder / "compare" / "differences.json", folder / "analytic" / "differences.json"]
    for path in lists:
        for case, told in json.loads(path.read_text(encoding="utf-8")).items():
            assert "XX000" not in (told if isinstance(told, str) else str(told[0])), case


def test_enough_calls_are_made() -> None:
    """The table of values no longer fits the functions' arguments."""
    assert len(CALLS) > 900
