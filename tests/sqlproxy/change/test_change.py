"""Online schema change: states, waits, the fence, and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from kv.base import limits
from kv.base.adapters import LoopTimers
from kv.base.errors import WriteConflict
from kv.base.ids import NodeId
from kv.base.keys import table_prefix
from kv.base.ops import put
from procedures.engine import plain
from procedures.engine.submission import Submission
from procedures.master.partitions import Partitions
from sqlproxy import catalog, ddl, emptying, relations
from sqlproxy.change import registering
from sqlproxy.change.altering import same_form
from sqlproxy.change.fence import NEVER, Fence
from sqlproxy.change.jobs import jobs_of
from sqlproxy.change.states import ChangeServices
from sqlproxy.entries import index_codec
from sqlproxy.fast.access import choose
from sqlproxy.rows import codec
from sqlproxy.schema import DELETE_ONLY, PUBLIC, WRITE_ONLY, Table
from sqlproxy.session.names import Catalogs
from sqlproxy.types import resolve
from tests.procedures.lab import Lab
from tests.procedures.test_procedures_ddl import FakeReplicas, Reader
from tests.sqlproxy.change import model
from tests.support import simloop

NAME = {"namespace": "shop", "name": "t"}
SPEC: dict[str, Any] = {
    **NAME,
    "columns": [
        {"name": "id", "type": "int4", "nullable": False},
        {"name": "a", "type": "int4"},
        {"name": "b", "type": "text"},
    ],
    "primary_key": ["id"],
    "indexes": [{"name": "other", "columns": ["b"]}],
}
UNIQUE = {"name": "u", "columns": ["a"], "unique": True}


class Live:
    """What is stored now, whenever it is asked."""

    def __init__(self, table: Any) -> None:
        self._table = table

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return await Reader(self._table).get(key)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        return await Reader(self._table).scan(start, end, limit=limit)


class World:
    """A lab with the procedures of schema changes, a table with rows, and what was seen of it."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.loop, self.lab, self.replicas = loop, Lab(loop, []), FakeReplicas()
        partitions = Partitions(self.replicas, NodeId(1))
        change = ChangeServices(partitions, lambda _ns, _name: None, LoopTimers(loop))
        ddl.register(self.lab.types, change.ddl)
        emptying.register(self.lab.types, change.ddl)
        registering.register(self.lab.types, change)
        self.seen: list[tuple[float, Table]] = []

    @property
    def reader(self) -> Live:
        return Live(self.lab.store.table)

    async def table(self) -> Table:
        return await catalog.lookup(self.reader, "shop", "t")

    async def call(self, name: str, args: Any) -> tuple[Any, dict[str, Any]]:
        """The result, or None and the error's details; `seen` has every version on the way."""
        async with self.lab.executor() as executor:
            number = await executor.submit(Submission(name, args, "t", f"{self.lab.rng.random()}"))
            watching = asyncio.ensure_future(self._watch())
            record = await executor.wait(number, 60_000)
            await asyncio.sleep(0.05)
            watching.cancel()
        if record.error is not None:
            return None, dict(plain.decode(record.error.details))
        return plain.decode(record.result), {}

    async def _watch(self) -> None:
        while True:
            table = await catalog.find(self.reader, "shop", "t")
            if table is not None and (not self.seen or self.seen[-1][1] != table):
                self.seen.append((self.loop.time(), table))
            await asyncio.sleep(0.01)

    async def rows(self, *found: tuple[int, int | None]) -> None:
        table = await self.table()
        writes = {}
        for number, a in found:
            row = (number, a, f"b{number}")
            key, value = codec(table).encode_row(row)
            writes[table_prefix(table.id) + key] = value
        await self._put(writes)

    async def _put(self, writes: dict[bytes, bytes]) -> None:
        self.lab.store.table.write([put(key, value) for key, value in writes.items()])


def world(test: Callable[[World], Awaitable[None]]) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        it = World(loop)
        await it.call("CreateNamespace", {"namespace": "shop"})
        _, error = await it.call("CreateTable", SPEC)
        assert not error, error
        it.seen.clear()
        await test(it)

    simloop.run(main)


def test_q4_an_index_goes_through_all_states_in_order() -> None:
    """A state that is left out lets a proxy of the version before lose an entry."""

    async def test(it: World) -> None:
        _, error = await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        assert not error, error
        states = [t.index("u").state for _, t in it.seen if t.index("u")]  # type: ignore[union-attr]
        assert states == [DELETE_ONLY, WRITE_ONLY, PUBLIC]
        versions = [t.version for _, t in it.seen]
        assert versions == list(range(versions[0], versions[0] + len(versions)))

    world(test)


def test_q6_between_two_versions_lies_more_than_a_commit_may_take() -> None:
    """A shorter gap lets three versions be in use at once."""

    async def test(it: World) -> None:
        await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        times = [at for at, t in it.seen if t.index("u")]
        gaps = [(b - a) * 1000 for a, b in pairwise(times)]
        assert min(gaps) >= limits.SQL_SETTLE_MS - 50, gaps
        assert limits.SQL_SETTLE_MS > limits.SQL_FENCE_MS + limits.SQL_COMMIT_MS_MAX

    world(test)


def test_q7_only_public_indexes_are_read() -> None:
    """A planner that reads an index before its backfill ends misses rows."""

    async def test(it: World) -> None:
        await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        for _, table in it.seen:
            made = table.index("u")
            unique = {name for name, _ in table.unique_sets()}
            assert ("u" in unique) == (made is not None and made.state == PUBLIC)
            assert choose(table, [])[0].index is None

    world(test)


def test_q4_a_duplicate_takes_the_index_back_by_the_same_states() -> None:
    """What is left of it would refuse rows, or keep its name and its range."""

    async def test(it: World) -> None:
        await it.rows((1, 5), (2, 6), (3, 5))
        before = set(it.replicas.there)
        _, error = await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        assert error["sqlstate"] == "23505"
        assert error["sql_message"] == 'could not create unique index "u"'
        assert error["sql_detail"] == "Key (a)=(5) is duplicated."
        states = [t.index("u").state if t.index("u") else "" for _, t in it.seen]  # type: ignore[union-attr]
        while states[:1] == [""]:
            states.pop(0)
        assert states == [DELETE_ONLY, WRITE_ONLY, DELETE_ONLY, ""]
        assert "u" not in await relations.taken(it.reader, "shop")
        assert set(it.replicas.there) == before

    world(test)


def test_q4_every_row_gets_its_entry_and_nulls_are_no_duplicates() -> None:
    """A row without its entry is not found by the index; two NULLs are never equal."""

    async def test(it: World) -> None:
        await it.rows((1, None), (2, None), (3, 7))
        result, error = await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        assert not error, error
        assert result["rows"] == 3
        table = await it.table()
        index = table.index("u")
        assert index is not None
        wanted = {
            table_prefix(index.id) + index_codec(table, index).entry((n, a, f"b{n}"))[0]
            for n, a in ((1, None), (2, None), (3, 7))
        }
        found = await catalog.scan_all(it.reader, table_prefix(index.id))
        assert {key for key, _ in found} == wanted

    world(test)


def test_q3_changes_of_one_table_come_one_after_the_other() -> None:
    """Two at once would skip a state for somebody."""

    async def test(it: World) -> None:
        other = {"name": "v", "columns": ["b", "a"]}
        async with it.lab.executor() as executor:
            watching = asyncio.ensure_future(it._watch())
            numbers = [
                await executor.submit(
                    Submission("CreateIndex", {**NAME, "index": index}, "t", str(index))
                )
                for index in (UNIQUE, other)
            ]
            for number in numbers:
                record = await executor.wait(number, 60_000)
                assert record.error is None
            watching.cancel()
        for _, table in it.seen:
            assert sum(index.state != PUBLIC for index in table.indexes) <= 1
        assert {index.name for index in (await it.table()).indexes} == {"other", "u", "v"}

    world(test)


def test_q2_what_is_declared_is_looked_at_again_when_it_is_old() -> None:
    """A proxy that never looks stays at a version that is long gone."""

    async def test(it: World) -> None:
        timers = LoopTimers(it.loop)
        catalogs = Catalogs(it.reader, timers, limits.SQL_SCHEMA_TTL_MS / 1000)
        first = await catalogs.declared("shop")
        assert catalogs.looked(first) == timers.monotonic()
        await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        second = await catalogs.declared("shop")
        assert second is not first
        assert second.index("u") is not None
        assert catalogs.looked(first) == NEVER

    world(test)


class FakeTransaction:
    """Of the fence: what it reads and holds."""

    def __init__(self, reader: Any, *, spilled: bool = False) -> None:
        self.get = reader.get
        self.spilled = spilled
        self.within: int | None = None
        self.held: list[bytes] = []

    def commit_within(self, ms: int) -> None:
        self.within = ms

    def hold_key(self, key: bytes) -> None:
        self.held.append(key)

    def check(self, key: bytes, version: int) -> None:
        self.held.append(key)


@pytest.mark.parametrize("spilled", [False, True])
def test_q5_a_process_that_stood_still_cannot_commit_what_it_was_bound_to(spilled: bool) -> None:
    """Its changes would miss an index that everybody else maintains since."""

    async def test(it: World) -> None:
        timers = LoopTimers(it.loop)
        version = await catalog.schema_version(it.reader, "shop")
        fence = Fence("shop", timers)
        fence.bound(timers.monotonic(), version)
        t: Any = FakeTransaction(it.reader, spilled=spilled)
        await fence.hold(t)
        assert (t.within is None) == bool(t.held) == spilled
        await asyncio.sleep(limits.SQL_FENCE_MS / 1000 + 0.1)
        t = FakeTransaction(it.reader, spilled=spilled)
        await fence.hold(t)
        assert t.held == [catalog.schema_key("shop")]
        await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        with pytest.raises(WriteConflict):
            await fence.hold(t)
        fence.forget()
        await fence.hold(t)

    world(test)


def test_q5_the_oldest_look_of_a_transaction_counts() -> None:
    """A young statement must not hide what an old one was bound to."""

    async def test(it: World) -> None:
        timers = LoopTimers(it.loop)
        fence = Fence("shop", timers)
        version = await catalog.schema_version(it.reader, "shop")
        fence.bound(timers.monotonic(), version)
        await asyncio.sleep(limits.SQL_FENCE_MS / 1000 + 0.1)
        fence.bound(timers.monotonic(), version)
        t: Any = FakeTransaction(it.reader)
        await fence.hold(t)
        assert t.held

    world(test)


def test_p4_columns_come_and_go_while_rows_are_there() -> None:
    """A column that comes back by the id of another one would show its values."""

    async def test(it: World) -> None:
        await it.rows((1, 5))
        add = {"kind": "add_column", "column": {"name": "c", "type": "text"}, "initial_stored": "x"}
        _, error = await it.call("AlterTable", {**NAME, "action": add})
        assert not error, error
        table = await it.table()
        assert (table.column("c").missing, table.column("c").default) == ("x", None)
        _, error = await it.call("DropColumn", {**NAME, "column": "a"})
        assert not error, error
        table = await it.table()
        assert [c.name for c in table.columns] == ["id", "b", "c"]
        hidden = [t for _, t in it.seen if any(c.state == WRITE_ONLY for c in t.columns)]
        assert hidden
        assert all("a" not in [c.name for c in t.visible] for t in hidden)
        again = {"kind": "add_column", "column": {"name": "a", "type": "int4"}}
        await it.call("AlterTable", {**NAME, "action": again})
        assert (await it.table()).column("a").id == 5

    world(test)


def test_p4_what_depends_on_a_column_keeps_it() -> None:
    """A primary key without its column cannot be read."""

    async def test(it: World) -> None:
        _, error = await it.call("DropColumn", {**NAME, "column": "id"})
        assert error["sqlstate"] == "0A000"
        _, error = await it.call("DropColumn", {**NAME, "column": "none"})
        assert error["sqlstate"] == "42703"

    world(test)


def test_p4_rows_that_break_a_new_constraint_take_it_back() -> None:
    """A constraint that not every row obeys is a lie, to planners as well."""

    async def test(it: World) -> None:
        await it.rows((1, 5), (2, None))
        check = {"check": {"name": "small", "sql": "a < 5", "columns": ["a"]}}
        _, error = await it.call("AddConstraint", {**NAME, **check})
        assert error["sqlstate"] == "23514"
        _, error = await it.call("AddConstraint", {**NAME, "not_null": "a"})
        assert error["sqlstate"] == "23502"
        key = {"foreign_key": {"columns": ["a"], "table": "t"}}
        _, error = await it.call("AddConstraint", {**NAME, **key})
        assert (error["sqlstate"], error["sql_detail"]) == (
            "23503", 'Key (a)=(5) is not present in table "t".',
        )  # fmt: skip
        table = await it.table()
        assert (table.checks, table.foreign_keys) == ((), ())
        _, error = await it.call("AddConstraint", {**NAME, **check, "not_valid": True})
        assert not error
        assert [c.state for c in (await it.table()).checks] == [WRITE_ONLY]
        _, error = await it.call("AddConstraint", {**NAME, "validate": "small"})
        assert error["sqlstate"] == "23514"
        assert len((await it.table()).checks) == 1

    world(test)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("int2", "int8", True), ("int8", "int4", False), ("varchar(3)", "varchar(4)", True),
        ("varchar(4)", "varchar(3)", False), ("varchar(9)", "text", True),
        ("text", "varchar(9)", False), ("int4", "text", False), ("text", "text", True),
    ],
)  # fmt: skip
def test_p4_types_change_at_once_where_rows_stay_as_they_are(
    old: str, new: str, same: bool
) -> None:
    """Values read by a type that they were not written with are damaged."""
    assert same_form(resolve(old), resolve(new)) is same


@pytest.mark.parametrize("seed", [1, 2])
def test_q4_the_index_is_the_table_whatever_sessions_and_masters_do(seed: int) -> None:
    """An entry too many answers with a row that is gone, one too few hides a row."""
    world = model.play(seed)
    assert len(world.versions) > 3


def test_q3_jobs_tell_what_is_changed() -> None:
    """Who waits for an index does not know which procedure it is."""
    row = {"id": 7, "name": "CreateIndex", "state": "RUNNABLE", "step": "backfill"}
    locks = [["exclusive", "table/shop/t"], ["exclusive", "table/shop/u"], ["shared", "cluster"]]
    (job,) = jobs_of([{**row, "locks": locks}, {**row, "name": "CreateTable"}])
    assert (job["kind"], job["phase"], job["table"], job["object"]) == (
        "add index", "backfill", "t", "u",
    )  # fmt: skip
