"""Several nodes in virtual time: consensus, replica managers and node methods are the real ones;
the network is memory. Procedures run in a lab beside them, as if at a master that never falls.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from kv.base import methods, ops
from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import NotLeader, Unavailable
from kv.base.ids import META_PARTITION, NodeId, PartitionId, TableId
from kv.base.keys import META_RANGE, table_range
from kv.base.placement import Placement
from kv.base.timestamps import compose
from kv.partition.scheduler import Scheduler
from kv.partition.timestamps import AtOnce
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica
from kv.replica.verifying import verify_part
from kv.storage.engine import STATE_FAMILIES
from kv.storage.memory import MemoryEngine, TimedSyncer
from kvorum.testing.simulation.loop import SimClock, SimLoop
from procedures.engine.submission import Submission
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import NodeRow, NodeState, all_nodes, encode_node, node_key
from procedures.master.map.partitions import (
    Place,
    Placed,
    placed_partitions,
    plan,
    put_row,
    put_rows,
)
from procedures.master.map.replica_methods import ReplicaMethods
from procedures.master.members import membership
from procedures.verbs import (
    CHANGE_REPLICAS,
    CREATE_PARTITION,
    DROP_PARTITION,
    REPLICA_STATUS,
    VERIFY_REPLICA,
)
from raft.api import RaftConfig
from raft.host import RaftHost
from raft.memory import MemoryLogDB, MemoryNetwork, MemorySyncer
from tests.kv.partition.node import Conn
from tests.procedures.lab import Lab

TABLE = TableId(100)


class OneNode:
    """A node of the world; `stop` and `start` again keep its databases."""

    def __init__(self, world: World, number: int, founders: Sequence[int]) -> None:
        self.world, self.id, self.founders = world, NodeId(number), tuple(map(NodeId, founders))
        self.engine, self.log = MemoryEngine(STATE_FAMILIES), MemoryLogDB()
        self.up = False

    async def start(self) -> None:
        world, timers = self.world, self.world.timers
        self.host = RaftHost(
            node_id=self.id,
            log_db=self.log,
            syncer=MemorySyncer(self.log, timers, 0.0005),  # type: ignore[arg-type]
            timers=timers,
            rng=random.Random(self.id),
            on_fatal=world.fatal.append,
            transport=world.network.transport(self.id),
            config=RaftConfig(log_keep_bytes_max=0, log_tail_bytes=0, snapshot_chunk_bytes=4_096),
        )
        self.manager = ReplicaManager(
            self.engine,
            self.host,
            timestamps=AtOnce(world.take),
            scheduler=Scheduler(world.loop.call_soon, world.clock, self.host.defer),
            timers=timers,
            in_thread=_at_once,
            on_fatal=world.fatal.append,
            log_keep_entries=5,
            syncer=TimedSyncer(self.engine, timers, lambda: 0.0005),
        )
        replicas = ReplicaMethods(self.manager)
        self.methods: dict[int, Callable[[object, list[Any]], list[Any]]] = {
            REPLICA_STATUS: replicas.status,
            CHANGE_REPLICAS: replicas.change,
        }
        world.network.hosts[self.id] = self.host
        self.up = True
        await self.manager.open_all()
        meta = PartitionDescriptor(META_PARTITION, *META_RANGE, 1, self.founders)
        await self.manager.create(meta)

    def stop(self) -> None:
        """A kill: what was written stays, nothing is said any more."""
        self.up = False
        self.world.network.hosts.pop(self.id, None)
        self.manager.close()
        self.host.close()
        self.engine, self.log = self.engine.reopen(), self.log.crash(self.log.unsynced)

    def crash(self, rng: random.Random) -> None:
        """A power loss: of what was not synced a random prefix stays."""
        self.up = False
        self.world.network.hosts.pop(self.id, None)
        kept = int(rng.random() * (self.log.unsynced + 1))
        engine, log = self.engine.crash(rng), self.log.crash(kept)  # type: ignore[arg-type]
        self.manager.close()
        self.host.close()
        self.engine, self.log = engine, log

    async def call(self, method: int, args: list[Any]) -> list[Any]:
        if method == CREATE_PARTITION:
            for row in args[0]:
                await self.manager.create(PartitionDescriptor.from_wire(row))
            return [True]
        if method == DROP_PARTITION:
            for partition in args[0]:
                if partition != META_PARTITION:  # only a damaged one goes
                    await self.manager.drop(PartitionId(partition))
            return [True]
        if method == VERIFY_REPLICA:
            replica = self.manager.replica(args[0])
            if replica is None or not replica.leads():
                raise NotLeader(f"node {self.id} does not lead partition {args[0]}")
            return [*verify_part(replica, args[1], args[2])]
        return self.methods[method](None, args)


async def _at_once(fn: Callable[[], None]) -> None:
    fn()


class World:
    """`nodes` by id; the lab's store has their rows and the map."""

    def __init__(self, loop: SimLoop, founders: int = 3) -> None:
        self.loop, self.lab = loop, Lab(loop, [])
        self.clock, self.timers = SimClock(loop), LoopTimers(loop)
        self.fatal: list[BaseException] = []
        self.cut: set[frozenset[int]] = set()
        self.calls: list[tuple[int, int]] = []  # node, method
        self.network = MemoryNetwork(
            self.timers,  # type: ignore[arg-type]
            lost=lambda a, b: frozenset((a, b)) in self.cut,
        )
        self._last_ts = 0
        ids = range(1, founders + 1)
        self.nodes = {i: OneNode(self, i, ids) for i in ids}
        self.groups = Groups(self)
        membership.register(self.lab.types, membership.MembershipServices(self, self.groups))
        for i in ids:
            self.put_node(NodeRow(NodeId(i), f"host{i}:7600", "1"))

    def take(self, n: int) -> int:
        first = max(self._last_ts + 1, compose(self.clock.now_ms()))
        self._last_ts = first + n - 1
        return first

    # -- the store of the master

    def put_node(self, row: NodeRow) -> None:
        Writer(self).put(node_key(row.id), encode_node(row))

    def place(self, placed: Placed) -> None:
        """Change a row of the map."""
        put_row(Writer(self), placed)

    @staticmethod
    def submission(node: int) -> Submission:
        return Submission(membership.ADD_REPLICAS, {"node": node}, "tester")

    async def rows(self) -> dict[int, NodeRow]:
        return {row.id: row for row in await all_nodes(self.lab.store.table.reads())}

    async def map(self) -> list[Placed]:
        return await placed_partitions(self.lab.store.table.reads())

    # -- nodes

    async def call_at(self, node: int, method: int, *args: Any, budget_ms: int = 0) -> list[Any]:
        """procedures.master.map.groups.Calls."""
        self.calls.append((node, method))
        there = self.nodes.get(node)
        if there is None or not there.up:
            raise Unavailable(f"node {node} cannot be reached", code="UNREACHABLE")
        return await there.call(method, list(args))

    async def start(
        self,
        tables: int = 1,
        splits: Sequence[bytes] = (),
        places: Sequence[Sequence[int]] = (),
    ) -> None:
        """All founders, and partitions of `tables` tables: everywhere, or with as many replicas as
        the first of `places` names nodes.
        """
        for node in self.nodes.values():
            await node.start()
        first = 2
        for i in range(tables):
            voters = tuple(NodeId(n) for n in self.nodes)
            where = [Place(tuple(map(NodeId, nodes))) for nodes in places]
            where = where or [Place(voters)] * (len(splits) + 1)
            made = plan(TableId(TABLE + i), splits, first, where)
            wanted = Placement(len(places[0]) if places else 0)
            put_rows(Writer(self), made, wanted)
            first += len(made)
            for descriptor in made:
                for number in descriptor.voters:
                    await self.nodes[number].manager.create(descriptor)
        await self.until(lambda: all(self.leader(p) for p in range(1, first)))

    async def join(self, number: int) -> OneNode:
        """A later node, empty."""
        node = self.nodes[number] = OneNode(self, number, ())
        self.put_node(NodeRow(node.id, f"host{number}:7600", "1", NodeState.JOINING))
        await node.start()
        return node

    def leader(self, partition: int) -> OneNode | None:
        for node in self.nodes.values():
            replica = node.manager.replica(partition) if node.up else None
            if replica is not None and replica.serving():
                return node
        return None

    def replica(self, node: int, partition: int) -> Replica | None:
        return self.nodes[node].manager.replica(partition)

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        end = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < end, "it never happened"
            await asyncio.sleep(0.005)

    async def put(self, partition: int, key: bytes, value: bytes) -> None:
        """An acknowledged write, however often the leader changes."""
        end = self.loop.time() + 30
        while self.loop.time() < end:
            node = self.leader(partition)
            machine = None if node is None else node.manager.by_id(partition)
            if machine is not None:
                conn, d = Conn(), machine.descriptor
                deadline = self.clock.monotonic() + 5
                key_ = table_range(TABLE)[0] + key
                machine.submit(
                    conn, [1, methods.PUT, deadline, d.id, d.epoch, key_, value, None, 0]
                )
                await self.until(lambda conn=conn: 1 in conn.rows)  # type: ignore[misc]
                if conn.rows[1][1] == 0:
                    return
            await asyncio.sleep(0.02)
        raise AssertionError("the write was never taken")

    async def run(self, name: str, args: Any) -> Any:
        """The record of a procedure that ended."""
        async with self.lab.executor() as executor:
            id_ = await executor.submit(Submission(name, args, "tester"))
            record = await executor.wait(id_, 60_000)
            assert record.ended, record
            return record

    def close(self) -> None:
        for node in self.nodes.values():
            if node.up:
                node.stop()
        assert not self.fatal, self.fatal


class Writer:
    """A transaction that is one write."""

    def __init__(self, world: World) -> None:
        self._table = world.lab.store.table

    def put(self, key: bytes, value: bytes) -> None:
        self._table.write([ops.put(key, value)])

    def delete(self, key: bytes) -> None:
        self._table.write([ops.delete(key)])

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        return await self._table.reads().scan(start, end, limit=limit)

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        row = await self._table.reads().get(key)
        return (None, 0) if row is None else (row.value, row.version)
