"""`kvorum.check`: nothing is found where nothing is wrong, and each damage is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base import system
from kv.base.checksum import CRC_BYTES, seal
from kv.base.errors import Corruption, KvorumError
from kv.base.ids import PartitionId, TableId
from kv.base.keys import escape, table_prefix, table_range, u64
from kv.base.methods import OP_PUT
from kv.base.ops import delete, put
from kv.mvcc.records import Lock, hist_key
from kvorum.node.node import Node
from kvorum.transfer import check as checking
from kvorum.transfer.backup import all_tables, lock_names
from kvorum.transfer.check import Check
from procedures.master.map.partitions import Placed, placed_of, put_row
from sqlproxy.catalog import catalog, relations, sequences
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Table
from sqlproxy.tables.entries import index_codec
from tests.harness.sql_scenarios import PEOPLE
from tests.kvorum.cluster.three import Trio, client, trio

KEY = b"k3"


class Damaged:
    """A cluster of three with a plain and a declared table, and what tests do to it."""

    def __init__(self, nodes: Trio, db: Any) -> None:
        self.nodes, self.db, self.txn = nodes, db, db._backend.txn
        self.plain: Table
        self.people: Table

    async def fill(self) -> None:
        await self.db.create_table("default", "t", replicas=3)
        for i in range(8):
            await self.db.table("default", "t").put(f"k{i}", f"v{i}")
        await self.db.wait(await self.db.submit("CreateTable", PEOPLE), timeout_ms=30_000)
        self.plain = await catalog.lookup(self.txn, "default", "t")
        self.people = await catalog.lookup(self.txn, "default", "people")
        t = await self.txn.begin()
        for number in range(1, 6):
            row = (number, f"p{number}@x", number * 10)
            key, value = codec(self.people).encode_row(row)
            t.put(table_prefix(self.people.id) + key, value)
            for index in self.people.indexes:
                at, entry = index_codec(self.people, index).entry(row)
                t.put(table_prefix(index.id) + at, entry)
        (sequence,) = (await relations.list_relations(self.txn, "default")).sequences
        sequences.put_stand(t, sequence, sequences.Stand(5, True))
        await t.commit()

    async def check(self, *table: str) -> dict[str, Any]:
        args: dict[str, Any] = {"locks": lock_names(await all_tables(self.txn))}
        if table:
            args["table"] = list(table)
        return dict(await self.db.wait(await self.db.submit("kvorum.check", args)))

    async def follower(self) -> tuple[Node, Any]:
        """A node that does not lead the plain table, and its replica."""
        (placed,) = await placed_of(self.txn, self.plain.id)
        for number in sorted(self.nodes.nodes):
            node = self.nodes.nodes[number]
            replica = node.store.manager.replica(placed.descriptor.id)
            if replica is not None and not replica.leads():
                return node, replica
        raise AssertionError("all lead")

    def write(self, node: Node, family: str, key: bytes, value: bytes | None) -> None:
        """Past everything, into a node's own database."""
        engine = node.store.state
        batch = engine.batch()
        if value is None:
            batch.delete(key, engine.family(family))
        else:
            batch.put(key, value, engine.family(family))
        engine.write(batch)


async def lose_entry(d: Damaged) -> None:
    index = d.people.indexes[1]
    page = await d.txn.scan(*table_range(index.id), limit=1)
    await d.txn.write([delete(page.items[0][0])])


async def stray_entry(d: Damaged) -> None:
    at, entry = index_codec(d.people, d.people.indexes[1]).entry((77, "x", 99))
    await d.txn.write([put(table_prefix(d.people.indexes[1].id) + at, entry)])


async def change_row(d: Damaged) -> None:
    key, value = codec(d.people).encode_row((2, "other@x", 20))
    await d.txn.write([put(table_prefix(d.people.id) + key, value)])


async def set_sequence_back(d: Damaged) -> None:
    (sequence,) = (await relations.list_relations(d.txn, "default")).sequences
    t = await d.txn.begin()
    sequences.put_stand(t, sequence, sequences.Stand(2, True))
    await t.commit()


async def set_counter_back(d: Damaged) -> None:
    key = table_prefix(system.COUNTERS) + escape(b"table")
    await d.txn.write([put(key, seal(key, u64(100)))])


async def lose_id(d: Damaged) -> None:
    await d.txn.write([delete(catalog.table_id_key(d.people.id))])


async def stray_range(d: Damaged) -> None:
    (placed,) = await placed_of(d.txn, d.plain.id)
    low, high = table_range(TableId(900))
    of = placed.descriptor
    t = await d.txn.begin()
    made = type(of)(PartitionId(900), low, high, 1, of.voters)
    put_row(t, Placed(made, made.voters))
    key = table_prefix(system.COUNTERS) + escape(b"partition")
    t.put(key, seal(key, u64(901)))
    await t.commit()


async def change_replica(d: Damaged) -> None:
    node, replica = await d.follower()
    key = table_prefix(d.plain.id) + KEY
    record = replica.state.cur(key)
    body = bytearray(record[:-CRC_BYTES])
    body[-1] ^= 1
    d.write(node, "cur", key, seal(key, bytes(body)))


async def lose_row_of_replica(d: Damaged) -> None:
    node, _ = await d.follower()
    d.write(node, "cur", table_prefix(d.plain.id) + KEY, None)


async def damage_replica(d: Damaged) -> None:
    node, replica = await d.follower()
    key = table_prefix(d.plain.id) + KEY
    record = bytearray(replica.state.cur(key))
    record[-1] ^= 1
    d.write(node, "cur", key, bytes(record))


async def orphan_version(d: Damaged) -> None:
    node, _ = await d.follower()
    now = await d.txn.now()
    key = hist_key(table_prefix(d.plain.id) + b"lost", now - 10)
    d.write(node, "hist", key, seal(key, u64(now) + b"\x00old"))


async def old_intent(d: Damaged) -> None:
    _, replica = await d.follower()
    key = table_prefix(d.plain.id) + KEY
    replica.state.locks.by_key[key] = Lock(1 << 18, OP_PUT, 1_000, key, 0, b"x")


DAMAGES: list[tuple[Callable[[Damaged], Awaitable[None]], str, str]] = [
    (lose_entry, "index", "has no entry"),
    (stray_entry, "index", "leads to no row"),
    (change_row, "index", "leads to a row with other values"),
    (set_sequence_back, "sequence", "gives out 3 next, and column id of default.people has 5"),
    (set_counter_back, "counter", "gives out 100 next"),
    (lose_id, "catalog", "does not lead to it"),
    (stray_range, "map", "has partitions and is no table's"),
    (change_replica, "replica", "its replicas differ"),
    (lose_row_of_replica, "replica", "7 rows in this part"),
    (damage_replica, "replica", "fails its checksum"),
    (orphan_version, "orphan", "no reader can find"),
    (old_intent, "intent", "must have ended long ago"),
]


@pytest.mark.slow
async def test_whole_cluster_is_found_whole() -> None:
    """A check that cries wolf is not run a second time; one that looks at little finds nothing."""
    async with trio() as nodes, client(nodes) as db:
        d = Damaged(nodes, db)
        await d.fill()
        found = await d.check()
        assert found["findings"] == []
        assert found["ok"]
        assert (found["tables"], found["rows"], found["entries"]) == (2, 5, 10)
        assert found["replicas"] == 3 * 5, "of meta, of two tables, of two indexes"
        assert (await d.check("default", "people"))["replicas"] == 3 * 3
        assert await db.snapshots() == []


@pytest.mark.slow
async def test_p8_entries_of_a_partial_index_are_those_of_its_rows() -> None:
    """Rows outside the predicate are told to lack entries, or an entry of one is not found."""
    async with trio() as nodes, client(nodes) as db:
        d = Damaged(nodes, db)
        await d.fill()
        index = {"name": "old", "columns": ["age"], "where": "age > 20", "where_columns": ["age"]}
        call = {"namespace": "default", "name": "people", "index": index}
        await db.wait(await db.submit("CreateIndex", call), timeout_ms=30_000)
        d.people = await catalog.lookup(d.txn, "default", "people")
        found = await d.check("default", "people")
        assert (found["findings"], found["entries"]) == ([], 5 + 5 + 3)
        made = d.people.indexes[-1]
        at, entry = index_codec(d.people, made).entry((1, "p1@x", 10))
        await d.txn.write([put(table_prefix(made.id) + at, entry)])
        found = await d.check("default", "people")
        assert [(kind, where) for kind, where, _ in found["findings"]] == [
            ("index", "default.people.old")
        ]
        wrong = {**call, "index": {**index, "name": "more", "where": "email = 'x'"}}
        with pytest.raises(KvorumError, match="where_columns"):
            await db.wait(await db.submit("CreateIndex", wrong), timeout_ms=30_000)


@pytest.mark.slow
async def test_a_map_that_changed_meanwhile_is_no_finding() -> None:
    """A check of a cluster whose partitions are split and merged finds replicas missing."""
    async with trio() as nodes, client(nodes) as db:
        d = Damaged(nodes, db)
        await d.fill()
        (whole,) = await placed_of(d.txn, d.plain.id)
        made = await db.split(int(whole.descriptor.id), at="k4")
        left, right = await placed_of(d.txn, d.plain.id)
        store = next(iter(nodes.nodes.values())).store
        services: Any = SimpleNamespace(txn=lambda: store.txn)
        check = Check(services, lambda: store.cluster.calls)
        state = {"at": await store.txn.now(), "found": 0, "findings": [], "replicas": 0}
        ctx: Any = SimpleNamespace(state=state)
        assert await check._page(ctx, whole, whole.descriptor.start) is None
        assert state["findings"] == []
        await db.merge(int(left.descriptor.id), int(made["new"]))
        assert await check._page(ctx, right, right.descriptor.start) is None
        assert state["findings"] == []


@pytest.mark.slow
@pytest.mark.parametrize("answers", [30, 10_000], ids=["catches up", "stays behind"])
async def test_a_replica_that_is_behind_is_not_different(
    answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A voter that lags for more than three seconds, as behind a slow disk, is called damaged."""
    monkeypatch.setattr(checking, "_PAUSE_MS", 1)
    asked = 0

    class Lagging:
        """One node's answers are of before the last entries, so many times."""

        def __init__(self, calls: Any, node: int) -> None:
            self.calls, self.node = calls, node

        async def call_at(self, node: int, method: int, *args: Any) -> list[Any]:
            nonlocal asked
            told = list(await self.calls.call_at(node, method, *args))
            if node == self.node and asked < answers:
                asked += 1
                told[0], told[1], told[5] = bytes(16), told[1] - 1, told[5] - 1
            return told

    async with trio() as nodes, client(nodes) as db:
        d = Damaged(nodes, db)
        await d.fill()
        (placed,) = await placed_of(d.txn, d.plain.id)
        store = next(iter(nodes.nodes.values())).store
        behind, _ = await d.follower()
        lagging = Lagging(store.cluster.calls, behind.store.identity.node)
        services: Any = SimpleNamespace(txn=lambda: store.txn)
        check = Check(services, lambda: lagging)
        state: dict[str, Any] = {"at": await store.txn.now(), "found": 0, "findings": []}
        ctx: Any = SimpleNamespace(state=state | {"replicas": 0})
        for _ in range(2):
            assert await check._page(ctx, placed, placed.descriptor.start) is None
        if answers == 30:
            assert (ctx.state["findings"], asked) == ([], 30)
            return
        ((kind, where, message),) = ctx.state["findings"]
        assert (kind, where) == ("lag", f"partition {placed.descriptor.id}")
        assert "it is not compared: check again later" in message
        assert asked == checking._WAITED_MAX, "it was waited for once, not at every page"


async def test_damage_that_is_mended_meanwhile_is_told() -> None:
    """It is rebuilt as soon as it is read, so that the check said that all is well."""

    class Mended:
        """One node's first answer is damage."""

        def __init__(self, calls: Any, node: int) -> None:
            self.calls, self.damaged = calls, {node}

        async def call_at(self, node: int, method: int, *args: Any) -> list[Any]:
            if node in self.damaged:
                self.damaged.clear()
                raise Corruption("it fails its checksum")
            return list(await self.calls.call_at(node, method, *args))

    async with trio() as nodes, client(nodes) as db:
        d = Damaged(nodes, db)
        await d.fill()
        (placed,) = await placed_of(d.txn, d.plain.id)
        store = next(iter(nodes.nodes.values())).store
        follower, _ = await d.follower()
        node = follower.store.identity.node
        services: Any = SimpleNamespace(txn=lambda: store.txn)
        calls = Mended(store.cluster.calls, node)
        check = Check(services, lambda: calls)
        state: dict[str, Any] = {"at": await store.txn.now(), "found": 0, "findings": []}
        ctx: Any = SimpleNamespace(state=state | {"replicas": 0})
        assert await check._page(ctx, placed, placed.descriptor.start) is None
        ((kind, _, message),) = ctx.state["findings"]
        assert (kind, message) == ("replica", f"node {node}: it fails its checksum")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("damage", "what", "told"), DAMAGES, ids=[damage.__name__ for damage, _, _ in DAMAGES]
)
async def test_each_damage_is_told(
    damage: Callable[[Damaged], Awaitable[None]], what: str, told: str
) -> None:
    """Damage that a check does not see is found by a user, as a wrong answer."""
    async with trio() as nodes, client(nodes) as db:
        d = Damaged(nodes, db)
        await d.fill()
        await damage(d)
        found = await d.check()
        assert not found["ok"]
        assert any(told in message for kind, _, message in found["findings"] if kind == what), (
            found["findings"]
        )
        assert {kind for kind, _, _ in found["findings"]} == {what}, found["findings"]
