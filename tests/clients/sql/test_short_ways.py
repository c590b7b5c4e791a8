"""What the short way of one row computes (sqlproxy/session/running/short_requests.py): nothing that
a client can make long. Made from the table of functions, so that a new one is asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import psycopg
import pytest

import kvorum
from sqlproxy.front.closures import compiling
from sqlproxy.front.closures.compiling import FIXED
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.types import registry as r
from sqlproxy.front.types.value_texts import writer
from sqlproxy.pg import oids
from sqlproxy.pg.style import DEFAULT
from sqlproxy.session.running import short_requests
from tests.kit.machine import free_port_base
from tests.sqlproxy.front.test_raising import VALUES

pytestmark = pytest.mark.cluster

_TYPES: Final = [oid for oid in VALUES if oid not in (oids.ANYARRAY, oids.CHAR, oids.NAME)]
_PROCS: Final = {
    (proc.name, proc.args): proc
    for table in (r.OPERATORS, r.FUNCTIONS)
    for procs in table.values()
    for proc in procs
    if proc.kind in "of" and not proc.returns_set and proc.source in FUNCTIONS
    if proc.args and all(arg in _TYPES for arg in proc.args)
}
_TEXTS: Final = {oids.TEXT, oids.VARCHAR, oids.BPCHAR}  # casts among them compute nothing
FORMS: Final = (
    "select {call} from t where id = %s",
    "select id from t where id = %s and ({call}) is not null",
    "update t set n = 1 where id = %s and ({call}) is not null",
    "update t set n = 1 where id = %s returning {call}",
    "delete from t where id = %s and ({call}) is null and n = 7",
)


class _Seen:
    """Statements that the short way answered."""

    def __init__(self) -> None:
        self.answered = 0


@pytest.fixture(scope="module")
def seen() -> Iterator[_Seen]:
    seen, real = _Seen(), short_requests._Run._over

    def over(self: Any, answer: Any) -> None:
        seen.answered += answer is not None
        real(self, answer)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(short_requests._Run, "_over", over)
        yield seen


@pytest.fixture(scope="module")
def link(seen: _Seen, tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection]:
    """A node in this process, and a table with a column of each type."""
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("short") / "data", port=base):
        address = f"host=127.0.0.1 port={base + 3} user=kvorum dbname=postgres"
        with psycopg.connect(address, autocommit=True, prepare_threshold=0) as connection:
            named = {oid: r.format_type(oid) for oid in _TYPES} | {oids.BPCHAR: "bpchar"}
            columns = ", ".join(f"c{oid} {name}" for oid, name in named.items())
            connection.execute(f"create table t (id int primary key, n int, {columns})")
            values = [writer(oid, DEFAULT)(VALUES[oid][-1]) for oid in _TYPES]
            given = ", ".join(["%s"] * len(values))
            connection.execute(f"insert into t values (1, 0, {given})", values)
            yield connection


def _call(proc: r.Proc) -> str:
    columns = [f"c{oid}" for oid in proc.args]
    if proc.kind == "f":
        return f"{proc.name}({', '.join(columns)})"
    return f"{columns[0]} {proc.name} {columns[1]}" if columns[1:] else f"{proc.name} {columns[0]}"


def _bounded(proc: r.Proc) -> bool:
    return proc.source in compiling._SHORT or all(arg in FIXED for arg in proc.args)


def test_the_short_way_is_gone(link: psycopg.Connection, seen: _Seen) -> None:
    """Nothing below would prove anything."""
    for form in FORMS:
        for call in ("c21 - c21", "c25 || c25", "to_char(c1184, 'YYYY')", "c1184::text"):
            seen.answered = 0
            link.execute(form.format(call=call).encode(), (1,))
            assert seen.answered == 1, call


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_nothing_of_any_size_is_computed_on_the_short_way(
    link: psycopg.Connection, seen: _Seen, form: str
) -> None:
    """One statement of one client holds the loop of a node for as long as a function takes."""
    wrong, run = [], 0
    calls = [_call(proc) for proc in _PROCS.values() if not _bounded(proc)]
    names = {oid: "bpchar" if oid == oids.BPCHAR else r.format_type(oid) for oid in _TYPES}
    sized = [oid for oid in _TYPES if oid not in FIXED]
    pairs = [(a, b) for a, b in product(sized, _TYPES) if a != b and not {a, b} <= _TEXTS]
    calls += [f"c{a}::{names[b]}" for a, b in pairs]
    for call in calls:
        seen.answered = 0
        try:
            link.execute(form.format(call=call).encode(), (1,))
            run += 1
        except psycopg.Error:  # not of this value, or not written so
            pass
        if seen.answered:
            wrong.append(call)
    assert not wrong
    assert run > 100
