"""DDL as procedures: a table exists wholly or not at all, whatever crashes (J1)."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, Unavailable
from kv.base.ids import NodeId, PartitionId, TableId
from kv.base.keys import u32
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.memory_store import Table
from procedures.engine.records import Record
from procedures.engine.submission import Submission
from procedures.master.map.partitions import Partitions, partitions_of
from sqlproxy.catalog import catalog
from sqlproxy.ddl import ddl
from sqlproxy.ddl.steps import DdlServices
from tests.procedures.lab import CrashingStore, Lab, LaggingStore, crashed
from txn.results import ScanPage


class Reader:
    """catalog.Reader over the memory store's table."""

    def __init__(self, table: Table) -> None:
        self._snapshot = table.reads()

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        row = await self._snapshot.get(key)
        return (row.value, row.version) if row else (None, 0)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        return await self._snapshot.scan(start, end, limit=limit)

    def put(self, key: bytes, value: bytes) -> None:
        raise AssertionError("reads only")

    def delete(self, key: bytes) -> None:
        raise AssertionError("reads only")


class FakeReplicas:
    """A node's partitions: they outlive the process, and they know no overlap."""

    def __init__(self) -> None:
        self.there: dict[PartitionId, PartitionDescriptor] = {}
        self.refuse = False
        self.troubles = 0

    async def create(self, descriptor: PartitionDescriptor) -> None:
        if self.troubles:
            self.troubles -= 1
            raise Unavailable("the disk is busy")
        if self.refuse and len(self.there) >= 1:
            raise InvalidArgument("no more partitions here", code="NODE_FULL")
        for other in self.there.values():
            assert other.id == descriptor.id or not (
                other.start < descriptor.end and descriptor.start < other.end
            ), "two partitions overlap"
        self.there[descriptor.id] = descriptor

    async def drop(self, partition: PartitionId) -> None:
        if self.troubles:
            self.troubles -= 1
            raise RuntimeError("the disk is strange")
        self.there.pop(partition, None)


class Ddl:
    """A lab with the DDL procedures on it."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.lab = Lab(loop, [])
        self.replicas = FakeReplicas()
        self.changed: list[tuple[str, str]] = []
        services = DdlServices(
            Partitions(self.replicas, NodeId(1)), lambda ns, name: self.changed.append((ns, name))
        )
        ddl.register(self.lab.types, services)

    async def one(self, name: str, args: Any, store: Any = None) -> Record:
        async with self.lab.executor(store) as executor:
            id = await executor.submit(Submission(name, args, "tester", (name + repr(args))[:200]))
            record = await executor.wait(id, 60_000)
            assert record.ended, record
            await executor.acknowledge(id)
            return record

    async def crashing(self, name: str, args: Any, at: int, after: bool) -> Record | None:
        """Die at write `at`, then go on in another process. None: it ended before, unseen."""
        store = CrashingStore(self.lab.store, at, after=after)
        try:
            return await self.one(name, args, store)
        except BaseException as error:
            if not crashed(error):
                raise
        if not self.lab.store.rows() and after and at > 1:
            return None  # it died after the acknowledgement
        return await self.one(name, args)

    async def tables(self) -> list[tuple[str, str]]:
        reader = Reader(self.lab.store.table)
        return [(t.name, t.state) for t in await catalog.list_tables(reader, "shop")]

    async def consistent(self) -> None:
        """Partitions of the map, of the tables and of the node are the same ones."""
        reader = Reader(self.lab.store.table)
        mapped = await partitions_of(reader, TableId(0))
        for t in await catalog.list_tables(reader, "shop"):
            assert t.state == "public", "a ghost"
            mapped += await partitions_of(reader, t.id)
        assert {d.id for d in mapped} == set(self.replicas.there)


CREATE = {
    "namespace": "shop",
    "name": "orders",
    "split_keys": [b"g", b"p"],
    "columns": [{"name": "id", "type": "bigint"}, {"name": "note", "type": "text"}],
    "primary_key": ["id"],
}
ORDERS = {"namespace": "shop", "name": "orders"}


def test_j1_create_table_makes_every_part() -> None:
    """A created table lacked a partition, a column, or was not found by its name."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        record = await world.one("CreateTable", CREATE)
        assert record.state.name == "SUCCESS", record.error
        told = plain_data.decode(record.result)
        table = await catalog.lookup(Reader(world.lab.store.table), "shop", "orders")
        assert told == {
            "table_id": table.id,
            "namespace": "shop",
            "name": "orders",
            "partitions": [2, 3, 4],
        }
        assert [c.name for c in table.columns] == ["id", "note"]
        prefix = u32(table.id)
        borders = [prefix, prefix + b"g", prefix + b"p", u32(table.id + 1)]
        there = sorted(world.replicas.there.values(), key=lambda d: d.start)
        assert [(d.start, d.end) for d in there] == list(itertools.pairwise(borders))
        assert {d.voters for d in there} == {(1,)}
        assert ("shop", "orders") in world.changed
        assert record.locks == (("exclusive", "table/shop/orders"),)
        await world.consistent()

    simloop.run(main)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
def test_j1_create_table_crashed_at_every_step(at: int, after: bool, fails: bool) -> None:
    """A crash left half a table, or a ghost whose name could not be used again."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        world.replicas.refuse = fails
        record = await world.crashing("CreateTable", CREATE, at, after)
        assert await world.tables() == ([] if fails else [("orders", "public")])
        await world.consistent()
        if record is not None:
            assert record.state.name == ("ROLLED_BACK" if fails else "SUCCESS")
        if fails:
            assert record is None or (record.error and record.error.code == "NODE_FULL")
            world.replicas.refuse = False
            again = await world.one("CreateTable", dict(CREATE, replicas=1))
            assert again.state.name == "SUCCESS", again.error
            assert await world.tables() == [("orders", "public")]

    simloop.run(main)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_j1_drop_table_crashed_at_every_step(at: int, after: bool) -> None:
    """A crash left partitions of a dropped table, or its name."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        await world.one("CreateTable", CREATE)
        await world.crashing("DropTable", ORDERS, at, after)
        assert await world.tables() == []
        assert world.replicas.there == {}
        again = await world.one("CreateTable", dict(CREATE, replicas=1))
        assert again.state.name == "SUCCESS", again.error
        await world.consistent()

    simloop.run(main)


def test_j1_drop_table_goes_forward() -> None:
    """A failure after the table was hidden made it visible again, with rows missing."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        world.replicas.troubles = 2
        assert (await world.one("CreateTable", CREATE)).state.name == "SUCCESS"
        world.replicas.troubles = 3
        record = await world.one("DropTable", ORDERS)
        assert record.state.name == "SUCCESS"
        assert next(e for e in record.history if e.step == "partitions").attempt == 4
        assert await world.tables() == []
        assert world.replicas.there == {}

    simloop.run(main)


def test_j1_two_creates_of_one_name() -> None:
    """Two creates of one table both won, or both lost, or the loser left something."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        async with world.lab.executor() as executor:
            ids = [await executor.submit(Submission("CreateTable", CREATE, "me")) for _ in range(5)]
            ends = [await executor.wait(id, 60_000) for id in ids]
        states = sorted(record.state.name for record in ends)
        assert states == ["FAILED"] * 4 + ["SUCCESS"]
        assert {r.error.code for r in ends if r.error} == {"ALREADY_EXISTS"}
        await world.consistent()

    simloop.run(main, seed=3)


@pytest.mark.parametrize("seed", range(20))
def test_j1_namespace_and_table_race(seed: int) -> None:
    """A table was created in a namespace that was dropped at the same moment (write skew)."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        async with world.lab.executor(LaggingStore(world.lab.store, world.lab.rng)) as executor:
            ids = await asyncio.gather(
                executor.submit(Submission("CreateTable", CREATE, "me")),
                executor.submit(Submission("DropNamespace", {"namespace": "shop"}, "me")),
            )
            table, namespace = [await executor.wait(id, 60_000) for id in ids]
        won = [r.state.name for r in (table, namespace)]
        assert won in (["SUCCESS", "FAILED"], ["FAILED", "SUCCESS"]), won
        names = [n.name for n in await catalog.list_namespaces(Reader(world.lab.store.table))]
        assert names == (["shop"] if won[0] == "SUCCESS" else [])
        await world.consistent()

    simloop.run(main, seed=seed)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"namespace": "shop"}, "INVALID_ARGUMENT"),
        ("shop.orders", "INVALID_ARGUMENT"),
        (dict(ORDERS, colour="red"), "INVALID_ARGUMENT"),
        (dict(ORDERS, split_keys=[b"b", b"a"]), "INVALID_ARGUMENT"),
        (dict(ORDERS, split_keys=[b""]), "INVALID_ARGUMENT"),
        (dict(ORDERS, split_keys="abc"), "INVALID_ARGUMENT"),
        (dict(ORDERS, split_keys=[b"%05d" % i for i in range(1_001)]), "TOO_LARGE"),
        (dict(ORDERS, columns=[{"name": "a"}]), "INVALID_ARGUMENT"),
        (dict(ORDERS, columns=["a"]), "INVALID_ARGUMENT"),
        (dict(ORDERS, name="no\x00zero"), "INVALID_ARGUMENT"),
        (dict(ORDERS, namespace="nowhere"), "NAMESPACE_NOT_FOUND"),
    ],
)
def test_j1_bad_table_changes_nothing(args: Any, code: str) -> None:
    """A refused CreateTable left a trace, or its reason was not told."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)
        await world.one("CreateNamespace", {"namespace": "shop"})
        got: str | None
        try:
            record = await world.one("CreateTable", args)
            got = record.error.code if record.error else None
        except InvalidArgument as refused:  # at the submission already: its locks have no name
            got = refused.code
        assert got == code
        assert await world.tables() == []
        assert world.replicas.there == {}

    simloop.run(main)


def test_j1_namespaces() -> None:
    """A namespace with tables could be dropped, or a missing one be dropped twice."""

    async def main(loop: simloop.SimLoop) -> None:
        world = Ddl(loop)

        async def code(name: str, args: Any) -> str:
            record = await world.one(name, args)
            return record.error.code if record.error else record.state.name

        shop = {"namespace": "shop"}
        assert await code("CreateNamespace", shop) == "SUCCESS"
        assert await code("CreateNamespace", shop) == "ALREADY_EXISTS"
        assert await code("CreateTable", CREATE) == "SUCCESS"
        assert await code("DropNamespace", shop) == "NAMESPACE_NOT_EMPTY"
        assert await code("DropTable", ORDERS) == "SUCCESS"
        assert await code("DropTable", ORDERS) == "TABLE_NOT_FOUND"
        assert await code("DropNamespace", shop) == "SUCCESS"
        assert await code("DropNamespace", shop) == "NAMESPACE_NOT_FOUND"

    simloop.run(main)
