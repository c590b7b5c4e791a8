"""sqlproxy.analytic.databases: tenants that have queries at once have memory of their own each."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from kv.base.accounts import USER, Account, Use
from kv.base.limits import (
    SQL_ANALYTIC_DATABASES_MAX,
    SQL_SPILL_FREE_BYTES_MIN,
)
from sqlproxy.analytic.databases import RECENT_S, Database, Databases
from sqlproxy.analytic.engine import Engine
from sqlproxy.analytic.functions import Functions
from sqlproxy.values.errors import DISK_FULL, OUT_OF_MEMORY, SqlError
from sqlproxy.values.memory import Budget, Share, spending

MIB = 1 << 20
MOST = 512 * MIB


def account(name: str) -> Account:
    return Account(USER, name, lambda: 0, shown=True)


class Watch:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def databases(tmp_path: Path, watch: Watch) -> Iterator[Databases]:
    made = Databases(MOST, lambda: tmp_path, watch, lambda: 1 << 30)
    yield made
    made.close()


def limit_of(one: Database) -> int:
    """As DuckDB itself has it."""
    with one.root.cursor() as cursor:
        found = cursor.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = found[0][0].split()
    return int(float(number) * {"MiB": MIB, "GiB": 1 << 30}[unit])


def test_a_fault_of_duckdb_costs_no_other_query_its_database(databases: Databases) -> None:
    """After a fault of its own DuckDB refuses all that is asked of that database: whatever a client
    asked for, nobody's query would run until the process is started anew.
    """
    ann = account("ann")
    one, same = databases.enter(ann), databases.enter(ann)
    assert one is same
    databases.lost(one)
    other = databases.enter(ann)
    assert other is not one
    databases.leave(one)
    one.root.execute("SELECT 1")  # a query is under way in it
    databases.leave(one)
    with pytest.raises(duckdb.Error):
        one.root.execute("SELECT 1")
    careful = databases.enter(ann, careful=True)
    assert careful is not other
    databases.leave(careful)
    with pytest.raises(duckdb.Error):
        careful.root.execute("SELECT 1")
    assert databases.enter(ann) is other


def test_g10_all_memory_is_divided_among_those_that_use_it(
    databases: Databases, watch: Watch
) -> None:
    """One user's queries leave nothing for another's, or a user alone has a part only."""
    ann, bob = account("ann"), account("bob")
    of_bob = databases.enter(bob)
    assert databases.enter(bob) is of_bob
    assert limit_of(of_bob) == MOST
    of_ann = databases.enter(ann)
    assert of_ann is not of_bob
    assert limit_of(of_ann) == limit_of(of_bob) == MOST // 2
    databases.leave(of_ann)
    assert databases.enter(bob) is of_bob
    assert limit_of(of_bob) == MOST // 2, "not changed with each of ann's queries"
    watch.now_s += RECENT_S + 1
    databases.enter(bob)
    assert limit_of(of_bob) == MOST


def test_a_query_that_is_not_let_in_is_not_under_way(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database counted as used for ever: others had less memory until the next start."""
    ann, bob = account("ann"), account("bob")
    databases.enter(bob)

    def fails(_self: Database, _limit: int) -> bool:
        raise duckdb.IOException("the machine says no")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "bound", fails)
        with pytest.raises(duckdb.IOException):
            databases.enter(ann)
    assert databases.enter(ann).queries == 1


def test_two_first_queries_have_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one removed the folder of the first, or could not make its own."""
    home = tmp_path / "home"
    engine = Engine(home)
    clearing, go_on = threading.Event(), threading.Event()
    cleared: list[Path] = []
    real = shutil.rmtree

    def rmtree(path: Path, *, ignore_errors: bool) -> None:
        cleared.append(path)
        clearing.set()
        assert go_on.wait(10)
        real(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: engine.directory)
        assert clearing.wait(10)
        second = threads.submit(lambda: engine.directory)
        while not second.running() and not second.done():
            pass
        go_on.set()
        assert first.result() == second.result() == home
    assert cleared == [home]
    engine.close()


def test_g10_who_cannot_give_memory_up_keeps_it_and_others_have_the_rest(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second user is given what the first one holds: a node has twice its limit."""
    of_bob = databases.enter(account("bob"))
    bound = Database.bound
    monkeypatch.setattr(
        Database, "bound", lambda one, limit: one is not of_bob and bound(one, limit)
    )
    for n in range(SQL_ANALYTIC_DATABASES_MAX - 1):
        found = databases.enter(account(str(n)))
        assert limit_of(found) == MOST // (2 * SQL_ANALYTIC_DATABASES_MAX)
    assert limit_of(of_bob) == MOST


def test_more_tenants_than_databases_share(databases: Databases, watch: Watch) -> None:
    """Each user who ever asked keeps a database, threads and memory."""
    seen = [databases.enter(account(str(n))) for n in range(SQL_ANALYTIC_DATABASES_MAX + 2)]
    assert len({id(one) for one in seen}) == SQL_ANALYTIC_DATABASES_MAX
    for one in seen:
        databases.leave(one)
    more = databases.enter(account("next"))
    assert more in seen
    databases.leave(more)
    watch.now_s += RECENT_S + 1
    alone = databases.enter(account("last"))
    assert limit_of(alone) == MOST


@pytest.mark.slow
async def test_g10_a_sort_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one user sorts takes what all others' writes need, or is answered as an internal error;
    or a user has the same room once more with each file.
    """
    free = [10 << 30]
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=free[0]))
    engine = Engine(tmp_path / "duck", Share(160 * MIB))
    assert engine.spill_room() < free[0] // 4
    assert engine.spill_room(8 << 30) < 18 << 28, "all that it has counts"
    rows = "SELECT i, repeat('x', 100) || i AS s FROM range(2000000) t(i)"
    text = f"SELECT i FROM ({rows}) ORDER BY s"

    async def asked() -> int:
        running = engine.run(text, {}, Functions())
        try:
            return len(await running.next(lambda batch: batch.to_pylist()))
        finally:
            await running.close()

    free[0] = SQL_SPILL_FREE_BYTES_MIN  # none at all, from the first query on
    with pytest.raises(SqlError) as refused:
        await asked()
    assert refused.value.sqlstate == DISK_FULL
    free[0] = 10 << 30
    assert await asked()
    engine.close()


async def test_g10_a_greedy_user_is_refused_and_the_other_is_not(tmp_path: Path) -> None:
    """One user's aggregates, which cannot spill, make another's small one fail with 53200."""
    engine = Engine(tmp_path / "duck", Share(512 * MIB))
    text = "SELECT length(string_agg(repeat('x', 1000) || i, '')) FROM range({}) t(i)"

    async def asked(name: Account, rows: int) -> None:
        budget = Budget(Share(MOST), MOST)
        budget.serve(Use(name))
        with spending(budget):
            running = engine.run(text.format(rows), {}, Functions())
            try:
                while await running.next(lambda batch: batch.to_pylist()):
                    pass
            finally:
                await running.close()

    refused, first = [], asyncio.Event()

    async def greedy() -> None:
        while True:
            try:
                await asked(bob, 120_000)
            except SqlError as error:
                refused.append(error.sqlstate)
                first.set()

    ann, bob = account("ann"), account("bob")
    flood = [asyncio.ensure_future(greedy()) for _ in range(3)]
    await first.wait()
    for _ in range(5):
        await asked(ann, 1_000)
    for one in flood:
        one.cancel()
        with suppress(asyncio.CancelledError):
            await one
    assert set(refused) == {OUT_OF_MEMORY}
    await asked(bob, 1_000)
    engine.close()
