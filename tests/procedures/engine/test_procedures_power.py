"""Procedures and DDL over a whole node in virtual time (consensus, log, partitions, transactions)
that loses its power again and again: what was not synced is gone, whoever waited hears nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import NotFound
from kv.base.ids import META_PARTITION, NodeId
from kv.base.keys import META_RANGE, table_prefix, u32
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.submission import Submission
from procedures.master.map.partitions import Partitions, partitions_of
from sqlproxy.catalog import catalog
from sqlproxy.ddl import ddl
from sqlproxy.ddl.steps import DdlServices
from tests.procedures.lab import TABLE, Crash, Lab, crashed
from tests.procedures.zoo import TYPES
from tests.txn.fake_kv import FakeTso
from tests.txn.real_kv import RealCluster
from txn.client import TxnClient

WORK: list[tuple[str, Any, str]] = [
    ("three", None, "SUCCESS"),
    ("three", {"do": ["fail three"]}, "ROLLED_BACK"),
    ("rounds", None, "SUCCESS"),
    ("rounds", {"do": ["fail end"]}, "ROLLED_BACK"),
    ("loop", {"turns": 7}, "SUCCESS"),
    ("loop", {"turns": 7, "do": ["fail"]}, "ROLLED_BACK"),
    ("again", None, "SUCCESS"),
]
NUMBERS = {"one": 1, "two": 1, "three": 1, "begin": 1, "middle": 1, "end": 1, "turns": 7} | {
    "parts": 4,
    **{f"leaf {k}{i}": 1 for k in "ab" for i in range(3)},
}


class Node:
    """Databases that outlive crashes, and whatever runs over them now."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.loop = loop
        self.cluster = RealCluster(loop, [])
        self.lab = Lab(loop, TYPES)
        self.submitted: dict[str, int] = {}

    async def start(self) -> None:
        manager = self.cluster.manager
        await manager.open_all()
        meta = PartitionDescriptor(META_PARTITION, *META_RANGE, 1, (NodeId(1),))
        await manager.create(meta)
        self.cluster.start_caring()
        kv, timers = self.cluster.kv(), LoopTimers(self.loop)
        self.txn = TxnClient(
            kv, FakeTso(self.cluster), self.cluster.clock, simloop.SimRng(5), timers
        )
        services = DdlServices(Partitions(manager, NodeId(1)), lambda _ns, _name: None)
        ddl.register(self.lab.types, services)

    def executor(self) -> Executor:
        return self.lab.executor(KvStore(self.txn))

    async def power_loss(self) -> None:
        # The client dies with its process: one that lived on would ask the dead node for ever.
        for _ in range(3):
            await asyncio.sleep(0)
        await self.txn.close(0)
        self.cluster = self.cluster.crash()

    async def submit(self, executor: Executor, name: str, args: Any, nonce: str) -> int:
        """Once; an id that was told must stay good."""
        id = await executor.submit(Submission(name, args, "tester", nonce))
        assert self.submitted.setdefault(nonce, id) == id, "a told id was lost, or changed"
        return id

    async def value(self, key: str) -> bytes | None:
        value: bytes | None = (await self.txn.get(table_prefix(TABLE) + key.encode()))[0]
        return value


CREATE = {"namespace": "shop", "name": "orders", "split_keys": [b"g", b"p"]}


async def _first_table(node: Node) -> None:
    """The counters' table: the first one of all, in three partitions."""
    async with node.executor() as executor:
        for name, args in (
            ("CreateNamespace", {"namespace": "test"}),
            ("CreateNamespace", {"namespace": "shop"}),
            ("CreateTable", {"namespace": "test", "name": "all", "split_keys": ["f", "n"]}),
        ):
            id = await node.submit(executor, name, args, name + args.get("namespace", ""))
            record = await executor.wait(id, 60_000)
            assert record.state.name == "SUCCESS", record.error
        assert plain_data.decode(record.result)["table_id"] == TABLE


async def _life(node: Node, seconds: float | None) -> list[str] | None:
    """Submit everything, then wait for all; None if the power went before."""
    await node.start()
    jobs = [*WORK, ("CreateTable", CREATE, "SUCCESS")]
    try:
        async with node.executor() as executor, asyncio.timeout(seconds):
            ids = await asyncio.gather(
                *(
                    node.submit(executor, name, args, f"n{i}")
                    for i, (name, args, _) in enumerate(jobs)
                )
            )
            ends = [await executor.wait(id, 60_000) for id in ids]
            return [record.state.name for record in ends]
    except TimeoutError:
        return None
    except BaseException as error:
        if not crashed(error):
            raise
        return None


async def _until_power_loss(node: Node, seconds: float) -> None:
    """As `_life`, but the end is a crash in the middle of everything."""
    await node.start()

    async def work(executor: Executor) -> None:
        for i, (name, args, _) in enumerate([*WORK, ("CreateTable", CREATE, "SUCCESS")]):
            await node.submit(executor, name, args, f"n{i}")

    try:
        async with node.executor() as executor:
            working = asyncio.ensure_future(work(executor))
            await asyncio.sleep(seconds)
            working.cancel()
            raise Crash
    except BaseException as error:
        if not crashed(error):
            raise
    await node.power_loss()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_j9_power_losses(seed: int) -> None:
    """After power losses a procedure was lost, doubled or stopped half-way; a table was a ghost."""

    async def main(loop: simloop.SimLoop) -> None:
        node = Node(loop)
        await node.start()
        await _first_table(node)
        await node.power_loss()
        for _ in range(4):
            await _until_power_loss(node, 0.005 + loop.rng.random() * 0.12)
        states = await _life(node, None)
        assert states == [*(state for _, _, state in WORK), "SUCCESS"]
        told = {key: int(await node.value(key) or b"0") for key in NUMBERS}
        assert told == NUMBERS
        await _check_tables(node)
        node.cluster.close()

    simloop.run(main, seed)


async def _check_tables(node: Node) -> None:
    mapped = []
    for ns in ("test", "shop"):
        for t in await catalog.list_tables(node.txn, ns):
            assert t.state == "public"
            mapped += await partitions_of(await node.txn.begin(), t.id)
    there = node.cluster.manager.descriptors()
    assert there[0].id == META_PARTITION
    assert there[1:] == mapped
    assert len(mapped) == 6


@pytest.mark.parametrize("seed", range(4))
def test_j1_drop_table_with_rows_and_power_losses(seed: int) -> None:
    """Rows of a dropped table came back, or its partitions stayed."""

    async def main(loop: simloop.SimLoop) -> None:
        node = Node(loop)
        await node.start()
        await _first_table(node)
        await node.txn.write([put_row(key) for key in "axz"])
        for _ in range(3):
            try:
                async with node.executor() as executor:
                    args = {"namespace": "test", "name": "all"}
                    await node.submit(executor, "DropTable", args, "drop")
                    await asyncio.sleep(loop.rng.random() * 0.03)
                    raise Crash
            except BaseException as error:
                if not crashed(error):
                    raise
            await node.power_loss()
            await node.start()
        async with node.executor() as executor:
            record = await executor.wait(node.submitted["drop"], 60_000)
            assert record.state.name == "SUCCESS"
            assert [d.id for d in node.cluster.manager.descriptors()] == [META_PARTITION]
            with pytest.raises(NotFound):
                await catalog.lookup(node.txn, "test", "all")
            args = {"namespace": "test", "name": "all"}
            id = await node.submit(executor, "CreateTable", args, "again")
            record = await executor.wait(id, 60_000)
            table = plain_data.decode(record.result)["table_id"]
            assert table > TABLE
            assert await node.txn.get(u32(table) + b"a") == (None, 0)
        node.cluster.close()

    simloop.run(main, seed)


def put_row(key: str) -> Any:
    from kv.base.ops import put

    return put(table_prefix(TABLE) + key.encode(), b"v")
