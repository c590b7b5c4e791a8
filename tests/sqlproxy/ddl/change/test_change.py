"""Online schema change: states, waits, the fence, and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import pytest

from kv.base import limits
from kv.base.adapters import LoopTimers
from kv.base.errors import Busy, NotFound, SnapshotTooOld, WriteConflict
from kv.base.ids import NodeId
from kv.base.keys import table_prefix
from kv.base.ops import delete, put
from kvorum.api.model import SnapshotInfo
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.registry import Registry
from procedures.engine.submission import Submission
from procedures.master.map.partitions import Partitions
from sqlproxy.catalog import catalog, declaration_users, relations
from sqlproxy.catalog.declaration_users import Presence, Use
from sqlproxy.catalog.fence import NEVER, Fence
from sqlproxy.ddl import ddl, emptying
from sqlproxy.ddl.change import indexes, registering
from sqlproxy.ddl.change.altering import same_form
from sqlproxy.ddl.change.backfill import fill_index
from sqlproxy.ddl.change.jobs import jobs_of
from sqlproxy.ddl.change.states import ChangeServices
from sqlproxy.ddl.change.version_waits import Settled
from sqlproxy.ddl.steps import DdlServices
from sqlproxy.declared.catalogs import Catalogs
from sqlproxy.rows.records import sealed
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import DELETE_ONLY, PUBLIC, WRITE_ONLY, Table
from sqlproxy.tables.access import choose
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.entries import index_codec
from sqlproxy.values.errors import SqlError
from sqlproxy.values.types import resolve
from tests.procedures.lab import Lab
from tests.procedures.test_procedures_ddl import FakeReplicas, Reader
from tests.sqlproxy.ddl.change import model

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
        self.change = change
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
            return None, dict(plain_data.decode(record.error.details))
        return plain_data.decode(record.result), {}

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


@pytest.mark.slow
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


def test_q4_a_row_whose_entry_its_twin_took_away_has_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows 1 and 3 had one key; the writer that deletes row 3, which has no entry yet, removes that
    of row 1: nobody would find row 1 by the index, and its key would be free.
    """
    filled = 0

    async def test(it: World) -> None:
        await it.rows((1, 5), (2, 6), (3, 5))

        async def fill(txn: Any, table: Table, index: Any, found: Any) -> None:
            nonlocal filled
            filled += 1
            if filled == 2:
                key, _ = codec(table).encode_row((3, 5, "b3"))
                entry, _ = index_codec(table, index).entry((3, 5, "b3"))
                gone = [table_prefix(table.id) + key, table_prefix(index.id) + entry]
                assert await it.reader.get(gone[1]) != (None, 0), "row 1 has its entry"
                it.lab.store.table.write([delete(one) for one in gone])
            await fill_index(txn, table, index, found)

        monkeypatch.setattr(indexes, "fill_index", fill)
        monkeypatch.setattr(indexes, "SQL_BACKFILL_ROWS", 1)
        monkeypatch.setattr(indexes, "fewer", lambda rows, _tries: rows)
        result, error = await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        assert not error, error
        assert result["rows"] == 2
        table = await it.table()
        index = table.index("u")
        assert index is not None
        wanted = {
            table_prefix(index.id) + index_codec(table, index).entry((n, a, f"b{n}"))[0]
            for n, a in ((1, 5), (2, 6))
        }
        found = await catalog.scan_all(it.reader, table_prefix(index.id))
        assert {key for key, _ in found} == wanted

    world(test)
    assert filled > 2


class Holding:
    """Snapshots that are held, and a store that only says what time it is."""

    def __init__(self) -> None:
        self.at, self.held, self.told = 100, dict[int, int](), list[str]()

    async def now(self) -> int:
        self.at += 1
        return self.at

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> Any:
        assert owner.startswith("CREATE INDEX ")
        assert 0 < ttl_ms <= limits.LEASE_TTL_MS_MAX
        if at == 102:
            raise SnapshotTooOld("too old")
        if at == 103:
            raise Busy("many are held")
        self.told.append(f"open {at}")
        self.held[at] = at
        return SnapshotInfo(at, at, owner, ttl_ms)

    async def renew_snapshot(self, id: int) -> None:
        if id == 104 and "lost" not in self.told:
            self.told.append("lost")
            raise NotFound("lost")
        self.told.append(f"renew {id}")

    async def release_snapshot(self, id: int) -> bool:
        self.told.append(f"release {id}")
        return bool(self.held.pop(id))


def test_q4_a_unique_index_is_checked_until_all_rows_have_entries_at_one_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index would be published although a row lacks its entry, or what the check reads would be
    collected under it, or never.
    """
    checks: list[int] = []
    # What a chunk of each time finds: a row without entry at 101; all at 103, but it is too old
    # behind the first chunk; all at 104, in three chunks.
    found = {
        101: [(False, b""), (True, None)],
        103: [(True, b""), SnapshotTooOld("collected")],
        104: [(True, b""), (True, b""), (True, None)],
    }

    async def test(it: World) -> None:
        await it.rows((1, 5), (2, 6))
        holding, start = Holding(), table_prefix((await it.table()).id)
        object.__setattr__(it.change, "store", holding)
        object.__setattr__(it.change, "snapshots", lambda: holding)

        async def fill(*_of: Any) -> tuple[int, None]:
            return 2, None

        async def check(
            _store: Any, _pace: Any, _table: Any, _index: Any, at: bytes, as_of: int
        ) -> Any:
            first = as_of not in checks
            checks.append(as_of)
            assert (at == start) == first
            one = found[as_of].pop(0)
            if isinstance(one, Exception):
                raise one
            whole, at_ = one  # type: ignore[misc]
            return whole, start + b"x" if at_ is not None else None

        monkeypatch.setattr(indexes, "in_slices", fill)
        monkeypatch.setattr(indexes, "checked_in_slices", check)
        result, error = await it.call("CreateIndex", {**NAME, "index": UNIQUE})
        assert not error, error
        assert result["rows"] == 2
        assert checks == [101] * 2 + [103] * 2 + [104] * 3
        assert holding.told == [
            "open 101",
            "renew 101",
            "release 101",
            "open 104",
            "lost",
            "open 104",
            "renew 104",
            "release 104",
        ]
        assert not holding.held

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


def test_q2_sessions_that_need_the_same_look_ask_once() -> None:
    """A thousand sessions that wait for a table would ask the meta partition ten thousand times a
    second; one that has just declared something would be told what was there before.
    """

    async def test(it: World) -> None:
        asked, held = 0, asyncio.Event()
        held.set()

        class Counting:
            async def get(self, key: bytes) -> Any:
                nonlocal asked
                asked += key == catalog.schema_key("shop")
                found = await it.reader.get(key)
                await asyncio.sleep(0.005)
                await held.wait()
                return found

            async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
                return await it.reader.scan(start, end, limit=limit)

        timers = LoopTimers(it.loop)
        catalogs = Catalogs(Counting(), timers, 100)
        found = await asyncio.gather(*(catalogs.declared("shop") for _ in range(50)))
        assert asked == 1
        assert all(one is found[0] for one in found)
        began = it.loop.time()
        waiting = [asyncio.ensure_future(catalogs.changed(found[0], began + 60)) for _ in range(50)]
        await asyncio.sleep(3)
        waiting[0].cancel()  # a client goes away: another one asks
        await asyncio.sleep(3)
        assert not any(one.done() for one in waiting[1:])
        assert asked < 150
        plain = {
            "namespace": "shop",
            "columns": [{"name": "a", "type": "int4"}],
            "hidden_key": True,
        }
        assert (await it.call("CreateTable", {**plain, "name": "more"}))[0] is not None
        await asyncio.gather(*waiting[1:])
        catalogs.forget("shop")  # they saw it come, which takes two versions
        assert (await catalogs.declared("shop")).table("more") is not None
        catalogs.forget("shop")
        held.clear()
        old = asyncio.ensure_future(catalogs.declared("shop"))
        await asyncio.sleep(0.01)
        assert (await it.call("CreateTable", {**plain, "name": "last"}))[0] is not None
        catalogs.forget("shop")  # as who declared it does
        held.set()
        assert (await old).table("last") is None, "it was asked before"
        assert (await catalogs.declared("shop")).table("last") is not None

    world(test)


class FakeTransaction:
    """Of the fence: what it reads and holds."""

    def __init__(self, reader: Any, *, spilled: bool = False) -> None:
        self.get = reader.get
        self.start_ts = 1 << 62  # after all that it reads
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


@pytest.mark.slow
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
            "23503",
            'Key (a)=(5) is not present in table "t".',
        )
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
        ("int2", "int8", True),
        ("int8", "int4", False),
        ("varchar(3)", "varchar(4)", True),
        ("varchar(4)", "varchar(3)", False),
        ("varchar(9)", "text", True),
        ("text", "varchar(9)", False),
        ("int4", "text", False),
        ("text", "text", True),
    ],
)
def test_p4_types_change_at_once_where_rows_stay_as_they_are(
    old: str, new: str, same: bool
) -> None:
    """Values read by a type that they were not written with are damaged."""
    assert same_form(resolve(old), resolve(new)) is same


CHILD: Final[dict[str, Any]] = {
    **SPEC,
    "name": "child",
    "indexes": [],
    "foreign_keys": [{"columns": ["a"], "table": "t"}],
}


def test_q2_a_table_that_refers_to_another_takes_rows_when_all_know_of_it() -> None:
    """Who looked before removes the parent of a new row without looking for children: orphans."""

    async def test(it: World) -> None:
        there = Proxies(it)
        partitions = Partitions(it.replicas, NodeId(1))
        services = DdlServices(partitions, lambda _ns, _name: None, there.settled)
        it.lab.types = Registry()
        ddl.register(it.lab.types, services)
        parent = await it.table()
        await there.write([put(catalog.claim_key(parent.id), b"claimed")])
        mine = there.presence("mine")
        catalogs = Catalogs(it.reader, there.timers, limits.SQL_SCHEMA_TTL_MS / 1000, mine)
        before = await catalogs.declared("shop")
        use = catalogs.use(before)  # DELETE FROM t, bound and without a snapshot yet
        assert not before.referring_to(parent.id)
        creating = asyncio.ensure_future(it.call("CreateTable", CHILD))
        await asyncio.sleep(2)
        child = await catalog.lookup(it.reader, "shop", "child")
        assert child.frozen, "a row could refer to one that the statement removes"
        now = await catalogs.declared("shop")
        assert [key.name for _, key in now.referring_to(parent.id)] == ["child_a_fkey"]
        with pytest.raises(SqlError):
            now.writer(child).insert(FakeTransaction(it.reader), (1, 1, "x"))  # type: ignore[arg-type]
        use.end()
        await asyncio.sleep(1)
        assert (await there.get(catalog.claim_key(parent.id)))[0] is not None
        assert (await catalog.lookup(it.reader, "shop", "child")).frozen, "a writer without SQL"
        _, error = await creating
        assert not error, error
        assert (await there.get(catalog.claim_key(parent.id)))[0] is None
        known = catalogs.fresh("shop") or await catalogs.declared("shop")
        assert (made := known.table("child")) is not None
        assert not made.frozen, "its first row would be refused elsewhere"
        await mine.close()

    world(test)


def test_q2_what_is_used_all_the_time_never_grows_old() -> None:
    """Once a second all statements would wait for a look; or what nobody looks at would be good for
    ever, and a process that has signed off go on with it.
    """

    async def test(it: World) -> None:
        there = Proxies(it)
        mine = there.presence("mine")
        catalogs = Catalogs(it.reader, there.timers, limits.SQL_SCHEMA_TTL_MS / 1000, mine)
        first = await catalogs.declared("shop")
        for _ in range(1_000):
            await asyncio.sleep(0.1)
            assert catalogs.fresh("shop") is first
        assert there.timers.monotonic() - catalogs.looked(first) < 3 * limits.SQL_POLL_MS / 1000
        assert (await there.get(declaration_users.row_key(b"mine")))[0] is not None
        await asyncio.sleep(2 * limits.SQL_SCHEMA_TTL_MS / 1000)
        assert catalogs.fresh("shop") is None
        await asyncio.sleep(limits.SQL_LEAVE_MS / 1000 + 1)
        assert (await there.get(declaration_users.row_key(b"mine")))[0] is None
        again = await catalogs.declared("shop")
        for _ in range(10):
            await asyncio.sleep(0.05)
            assert catalogs.fresh("shop") is again
        _, error = await it.call("CreateTable", {**SPEC, "name": "more", "indexes": []})
        assert not error, error
        await asyncio.sleep(1.1)
        assert catalogs.fresh("shop") is not again, "something else is declared by now"
        await mine.close()

    world(test)


@pytest.mark.parametrize("table", ["t", "own", ""])
def test_q2_a_table_that_refers_to_no_other_one_waits_for_nobody(table: str) -> None:
    """Every CREATE TABLE would wait for each proxy, and for transactions that are open."""

    async def test(it: World) -> None:
        wanted = [{"columns": ["a"], "table": table}] if table else []
        spec = {**CHILD, "name": "own", "foreign_keys": wanted}
        began = it.loop.time()
        _, error = await it.call("CreateTable", spec)
        assert not error, error
        waited = it.loop.time() - began
        if table != "t":
            assert waited < 1
            return
        assert waited >= limits.SQL_SETTLE_MS / 1000, "without proxies' rows it waits by time"
        began = it.loop.time()
        _, error = await it.call("CreateTable", {**spec, "name": "more", "behind_changes": True})
        assert not error, error
        assert it.loop.time() - began < 1
        assert not (await catalog.lookup(it.reader, "shop", "more")).frozen

    world(test)


def test_q2_a_table_that_waits_is_found_again_when_its_parent_is_truncated() -> None:
    """TRUNCATE … CASCADE gives it another id: it would never take rows."""

    async def test(it: World) -> None:
        async with it.lab.executor() as executor:
            creating = await executor.submit(Submission("CreateTable", CHILD, "t", "create"))
            await asyncio.sleep(2)
            old = await catalog.lookup(it.reader, "shop", "child")
            assert old.frozen
            truncate = {"namespace": "shop", "names": ["t"], "cascade": True}
            number = await executor.submit(Submission("TruncateTable", truncate, "t", "empty"))
            assert (await executor.wait(number, 60_000)).error is None
            record = await executor.wait(creating, 60_000)
        assert record.error is None
        new = await catalog.lookup(it.reader, "shop", "child")
        assert new.id != old.id
        assert not new.frozen
        assert plain_data.decode(record.result)["table_id"] == new.id

    world(test)


class Proxies:
    """A store with proxies' rows in it, and the master's wait for them."""

    def __init__(self, it: World) -> None:
        self.lab, self.timers = it.lab, LoopTimers(it.loop)
        self.settled = Settled(self.timers, self)

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return await Reader(self.lab.store.table).get(key)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        return await Reader(self.lab.store.table).scan(start, end, limit=limit)

    async def multi_get(self, keys: Sequence[bytes]) -> Any:
        found = [await self.get(key) for key in keys]
        return [None if value is None else (value, at) for value, at in found], 0

    async def write(self, ops: Sequence[Any]) -> int:
        self.lab.store.table.write(list(ops))
        return 0

    def presence(self, name: str) -> Presence:
        return Presence(self, self.timers, name.encode())

    async def change(self) -> int:
        """A version that is waited for; which it is."""
        key = catalog.schema_key("shop")
        version = catalog.schema_row(key, (await self.get(key))[0])[0] + 1
        await self.write([put(key, sealed(key, [1, version, version]))])
        return version

    async def waited(self) -> float:
        """How long a change that begins now has to wait, in seconds."""
        await self.change()
        began = self.timers.monotonic()
        await self.settled.proxies("shop")
        return self.timers.monotonic() - began


def test_q2_a_change_waits_for_proxies_that_use_the_database_and_no_longer() -> None:
    """A fixed wait makes each index take half a minute; none loses entries."""

    async def test(it: World) -> None:
        there = Proxies(it)
        assert await there.waited() == 0, "nobody serves SQL"
        other, mine = there.presence("other"), there.presence("mine")
        await other.look("elsewhere")
        assert await there.waited() == 0
        version = await mine.look("shop")
        assert await there.waited() < 0.3
        assert mine.floor("shop") > version
        held = Use(mine, "shop", mine.floor("shop"))
        waiting = asyncio.ensure_future(there.waited())
        await asyncio.sleep(0.8)
        assert not waiting.done(), "a statement is bound to the version before"
        held.end()
        assert 0.8 <= await waiting < 1.1
        fence = Fence("shop", there.timers, mine)
        fence.bound(there.timers.monotonic(), mine.floor("shop"))
        held_s = await there.waited()
        assert limits.SQL_FENCE_MS / 1000 <= held_s < limits.SQL_FENCE_MS / 1000 + 0.5
        for one in (other, mine):
            await one.close()

    world(test)


def test_q2_a_proxy_that_is_silent_is_waited_for_once() -> None:
    """A process that was killed would slow every later change down, or be taken for gone while it
    only stood still.
    """

    async def test(it: World) -> None:
        there = Proxies(it)
        killed, still = there.presence("killed"), there.presence("still")
        await killed.look("shop")
        await killed._background.drain(0)
        bound = (limits.SQL_EXPEL_MS + limits.SQL_SETTLE_MS) / 1000
        assert limits.SQL_SETTLE_MS / 1000 < await there.waited() < bound + 0.5
        assert await there.waited() == 0, "it is not in the list any more"
        await still.look("shop")
        await still._background.drain(0)
        waiting = asyncio.ensure_future(there.waited())
        await asyncio.sleep(3)
        await still.poll()  # it finds that it was expelled, and announces itself again
        await still.poll()
        assert 3 <= await waiting < 3.5

    world(test)


@pytest.mark.parametrize("database", ["shop", "elsewhere"])
def test_q5_a_process_under_the_name_of_a_killed_one_waits_for_its_commits(database: str) -> None:
    """A node that is restarted at once would acknowledge a version while commits of the process
    before it are under way that are bound to older ones: rows without entries.
    """

    async def test(it: World) -> None:
        there = Proxies(it)
        before = there.presence("node")
        await before.look("shop")
        assert await there.waited() < 0.3
        await before._background.drain(0)  # killed, with commits on their way
        after = there.presence("node")
        await after.look(database)
        held_s = await there.waited()
        assert limits.SQL_COMMIT_MS_MAX / 1000 - 0.2 < held_s < limits.SQL_COMMIT_MS_MAX / 1000 + 1
        assert await there.waited() < 0.3, "what it left is over"
        await after.close()
        again = there.presence("node")
        await again.look("shop")
        assert await there.waited() < 0.3, "who signed off left nothing"
        await again._background.drain(0)
        last = there.presence("node")
        await last.look("shop")
        await asyncio.sleep(limits.SQL_LEAVE_MS / 1000 + 1)
        assert (await there.get(declaration_users.row_key(b"node")))[0] is None, "it asks for ever"
        await last.close()

    world(test)


def test_q2_a_proxy_that_nobody_asks_signs_off() -> None:
    """Idle nodes would be asked for their leave by every change, and ask the store for ever."""

    async def test(it: World) -> None:
        there = Proxies(it)
        mine = there.presence("mine")
        await mine.look("shop")
        row = declaration_users.row_key(b"mine")
        assert (await there.get(row))[0] is not None
        await asyncio.sleep(limits.SQL_LEAVE_MS / 1000 + 1)
        assert (await there.get(row))[0] is None
        await mine.look("shop")
        assert (await there.get(row))[0] is not None
        await mine.close()
        assert (await there.get(row))[0] is None

    world(test)


def test_q5_a_commit_that_nobody_knows_of_is_waited_for() -> None:
    """Its messages may still arrive when the index does not expect such rows any more."""

    async def test(it: World) -> None:
        there = Proxies(it)
        mine = there.presence("mine")
        await mine.look("shop")
        await there.waited()
        fence = Fence("shop", there.timers, mine)
        fence.bound(there.timers.monotonic(), mine.floor("shop"))
        t: Any = FakeTransaction(there)
        await fence.hold(t)
        fence.forget(unknown=True)
        most = (limits.SQL_FENCE_MS + limits.SQL_COMMIT_MS_MAX) / 1000
        assert most - 0.2 <= await there.waited() <= most + 0.5
        await mine.close()

    world(test)


def test_q5_what_is_bound_behind_an_acknowledgement_holds_the_schema() -> None:
    """A COPY whose rows come when the index is already built would leave no entries, however young
    its look is.
    """

    async def test(it: World) -> None:
        there = Proxies(it)
        mine = there.presence("mine")
        catalogs = Catalogs(it.reader, there.timers, limits.SQL_SCHEMA_TTL_MS / 1000, mine)
        declared = await catalogs.declared("shop")
        fence = Fence("shop", there.timers, mine)
        fence.bound(catalogs.looked(declared), declared.version)
        await fence.hold(FakeTransaction(there))  # type: ignore[arg-type]
        fence.forget()
        assert await there.waited() < 0.3, "nothing is bound"
        fence.bound(catalogs.looked(declared), declared.version)
        with pytest.raises(WriteConflict):
            await fence.hold(FakeTransaction(there))  # type: ignore[arg-type]
        await mine.close()

    world(test)


def test_q6_tables_that_are_written_without_sql_are_waited_for_by_time() -> None:
    """A writer that knows the table as one without rules would leave rows out of its index."""

    async def test(it: World) -> None:
        there = Proxies(it)
        table = await it.table()
        before = there.timers.monotonic()
        await there.settled.native_writers(table.id)
        assert there.timers.monotonic() == before
        await there.write([put(catalog.claim_key(table.id), b"claimed")])
        await there.settled.native_writers(table.id)
        assert there.timers.monotonic() - before >= limits.SQL_SETTLE_NATIVE_MS / 1000
        assert (await there.get(catalog.claim_key(table.id)))[0] is None

    world(test)


@pytest.mark.slow
def test_p4_a_primary_key_is_added_once() -> None:
    """Two keys, or one with NULLs, would let two rows be the same."""

    async def test(it: World) -> None:
        spec = {**SPEC, "name": "bare", "primary_key": [], "hidden_key": True}
        await it.call("CreateTable", {**spec, "indexes": []})
        bare = {"namespace": "shop", "name": "bare"}
        key = {"columns": ["a"], "unique": True, "constraint": True, "primary": True}
        _, error = await it.call("CreateIndex", {**bare, "index": key})
        assert error["sqlstate"] == "42P16"
        await it.call("AddConstraint", {**bare, "not_null": "a"})
        result, error = await it.call("CreateIndex", {**bare, "index": key})
        assert not error, error
        assert result["index"] == "bare_pkey"
        table = await catalog.lookup(it.reader, "shop", "bare")
        assert table.declared_key == (2,)
        assert table.key_index is not None
        again = {**key, "columns": ["id"], "name": "other_key"}
        _, error = await it.call("CreateIndex", {**bare, "index": again})
        assert error["sqlstate"] == "42P16"
        child = {
            **SPEC,
            "name": "child",
            "indexes": [],
            "foreign_keys": [{"columns": ["a"], "table": "bare"}],
        }
        _, error = await it.call("CreateTable", child)
        assert not error, error

    world(test)


def test_p4_values_that_fail_take_the_new_column_back() -> None:
    """Half of the rows would have a value, and the column's name would be taken."""

    async def test(it: World) -> None:
        await it.rows((1, 5), (2, 0))
        before = await it.table()
        column = {"name": "g", "type": "int4", "generated": "10 / a", "uses": ["a"]}
        _, error = await it.call("AddColumn", {**NAME, "column": column})
        assert error["sqlstate"] == "22012"
        change = {"column": "a", "type": "text", "sql": "(10 / a)::text", "uses": ["a"]}
        _, error = await it.call("ChangeType", {**NAME, **change})
        assert error["sqlstate"] == "22012"
        table = await it.table()
        assert table.columns == before.columns
        assert not table.frozen
        _, error = await it.call("ChangeType", {**NAME, **change, "column": "b", "sql": "a::text"})
        assert error["sqlstate"] == "0A000", "an index uses it"

    world(test)


def test_p4_nobody_writes_while_a_column_takes_the_place_of_another() -> None:
    """Who writes the old one alone, and who reads the new one, would not see the same."""

    async def test(it: World) -> None:
        await it.rows((1, 5), (2, 6))
        change = {"column": "a", "type": "text", "sql": "'n' || a", "uses": ["a"]}
        _, error = await it.call("ChangeType", {**NAME, **change})
        assert not error, error
        types = [(t.column("a").type, t.frozen) for _, t in it.seen]
        assert [one for n, one in enumerate(types) if n == 0 or one != types[n - 1]] == [
            ("int4", False),
            ("int4", True),
            ("text", True),
            ("text", False),
        ]
        assert [c.name for c in (await it.table()).columns] == ["id", "a", "b"]
        frozen: Any = next(t for _, t in it.seen if t.frozen)
        writer, nothing = TableWriter(frozen, FakeRules()), None  # type: ignore[arg-type]
        with pytest.raises(SqlError, match="is being changed") as refused:
            writer.insert(nothing, (1, 2, "x", None))  # type: ignore[arg-type]
        assert refused.value.sqlstate == "40001"
        with pytest.raises(SqlError, match="is being changed"):
            writer.encoded([[1], [2], ["x"], [None]])

    world(test)


class FakeRules:
    """None."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 283])
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
        "add index",
        "backfill",
        "t",
        "u",
    )
