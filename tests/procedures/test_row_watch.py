"""Workflows that wait for rows to change, at the master and at workers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base.keys import table_prefix
from kv.base.ops import delete, put
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data, row_watch
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.memory_store import Table
from procedures.engine.registry import Registry
from procedures.engine.row_watch import RowWatch
from procedures.engine.workflow import workflow
from procedures.pools.control import Control
from tests.procedures.lab import TABLE
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])
RUNS: list[str] = []


class TableFeed:
    """A feed of a memory store's table."""

    open = 0

    def __init__(self, table: Table, ranges: Sequence[tuple[bytes, bytes]], above: int) -> None:
        self._table, self._ranges, self.position = table, ranges, above
        TableFeed.open += 1

    async def next(self) -> Any:
        while self._table.clock <= self.position:  # noqa: ASYNC110  the store tells nobody
            await asyncio.sleep(0.01)
        now, rows = self._table.clock, []
        for start, end in self._ranges:
            for key in self._table.keys(start, end):
                if self._table.newest(key) > self.position:
                    row = self._table.read(key, now)
                    value = None if row is None else row.value
                    rows.append((key, value, self._table.newest(key), 0))
        self.position = now
        return SimpleNamespace(rows=rows)

    async def close(self) -> None:
        TableFeed.open -= 1


async def note(ctx: StepContext, what: str) -> str:
    RUNS.append(what)
    return what


@workflow("rows.follow")
async def follow(flow: Flow, count: int) -> list[Any]:
    found: list[Any] = []
    since = None
    for _ in range(count):
        row = await flow.row_changed("test", "rows", "a", since=since)
        since = row.version
        found.append(None if row.value is None else row.value.decode())
        await flow.step(note, str(found[-1]))
    return found


@workflow("rows.first")
async def first(flow: Flow, key: str) -> Any:
    RUNS.append("run")
    which, what = await flow.wait_any(
        flow.row_changed("test", "rows", key),
        flow.row_changed("test", "rows", f"{key} other"),
        flow.signal("stop"),
        timeout_ms=10_000,
    )
    return [which, what.value.decode() if which in (0, 1) else what]


TYPES: list[Any] = [follow, first]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    RUNS.clear()


def in_office(test: Any, remote: bool) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        executor = watching(office, office.executor(Registry() if remote else office.lab.types))
        await office.open(executor)
        if remote:
            office.hire("w1")
            await office.entered("w1")
        await test(office, executor)
        await office.end()
        await office.close(executor)
        await asyncio.sleep(1)
        assert TableFeed.open == 0

    simloop.run(main, 0)


def watching(office: Office, executor: Executor) -> Executor:
    table = office.lab.store.table
    assert executor.rows is not None
    executor._roster.row_watch = RowWatch(
        *(executor.rows, lambda ranges, above: TableFeed(table, ranges, above)),
        *(executor._roster.signal, executor._spawn),
    )
    return executor


def change(office: Office, key: str, value: str | None) -> None:
    table, storage = office.lab.store.table, table_prefix(TABLE) + key.encode()
    table.write([delete(storage) if value is None else put(storage, value.encode())])


async def result(executor: Executor, id: int) -> Any:
    record = await executor.wait(id, 30_000)
    assert record.error is None, record.error
    assert record.ended
    return plain_data.decode(record.result)


@REMOTE
def test_j23_a_row_that_changes_is_waited_for(remote: bool) -> None:
    """A change was missed, or came twice, or another row's woke it."""

    async def test(office: Office, executor: Executor) -> None:
        change(office, "a", "0")
        id = await executor.submit(submission("rows.follow", 4))
        await asyncio.sleep(1)
        for key, value in (("a", "1"), ("b", "x"), ("a", None), ("a", "2"), ("a", "3")):
            change(office, key, value)
            await asyncio.sleep(1)
        assert await result(executor, id) == ["1", None, "2", "3"]
        assert RUNS == ["1", "None", "2", "3"]

    in_office(test, remote)


@REMOTE
def test_j23_nothing_is_missed_between_look_and_wait(remote: bool) -> None:
    """The row changed after it had been looked at and before anybody followed it."""

    async def test(office: Office, executor: Executor) -> None:
        update, hurt = office.lab.store.update, [0]

        async def late(*args: Any, **kw: Any) -> Any:
            if hurt[0] < 3:  # the step has looked, and is about to be stored as one that waits
                hurt[0] += 1
                change(office, "a", f"{hurt[0]}")
            return await update(*args, **kw)

        office.lab.store.update = late
        id = await executor.submit(submission("rows.follow", 1))
        assert await result(executor, id) in (["1"], ["2"], ["3"])

    in_office(test, remote)


@REMOTE
@pytest.mark.parametrize("how", ["row", "other", "signal", "nothing"])
def test_j23_the_first_of_rows_and_signals(how: str, remote: bool) -> None:
    """One of several that are waited for woke nobody, or the others stayed followed."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("rows.first", "k"))
        await asyncio.sleep(1)
        runs = len(RUNS)
        change(office, "unrelated", "x")
        await asyncio.sleep(1)
        assert len(RUNS) == runs
        wanted: list[Any] = [None, None]
        if how == "row":
            change(office, "k", "v")
            wanted = [0, "v"]
        elif how == "other":
            change(office, "k other", "w")
            wanted = [1, "w"]
        elif how == "signal":
            await Control(executor).do("signal", {"id": id, "name": "stop", "payload": 5})
            wanted = [2, 5]
        assert await result(executor, id) == wanted

    in_office(test, remote)


def test_j23_many_wait_for_rows_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them had a feed of its own, or those beyond some number were never woken."""
    monkeypatch.setattr(row_watch, "_RANGES_MAX", 4)

    async def test(office: Office, executor: Executor) -> None:
        ids = [await executor.submit(submission("rows.first", f"k{i}")) for i in range(10)]
        await asyncio.sleep(1)
        assert TableFeed.open == 1
        for i in range(10):
            change(office, f"k{i}", f"v{i}")
        assert [await result(executor, id) for id in ids] == [[0, f"v{i}"] for i in range(10)]

    in_office(test, False)


def test_j23_another_master_follows_it() -> None:
    """After a failover nobody looked at the row any more."""

    async def test(office: Office, executor: Executor) -> None:
        change(office, "a", "0")
        id = await executor.submit(submission("rows.follow", 2))
        await asyncio.sleep(1)
        change(office, "a", "1")
        await asyncio.sleep(1)
        await office.close(executor)
        change(office, "a", "2")
        other = await office.open(watching(office, office.executor(office.lab.types)))
        assert await result(other, id) == ["1", "2"]
        await office.close(other)

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        executor = await office.open(watching(office, office.executor(office.lab.types)))
        await test(office, executor)

    simloop.run(main, 0)
