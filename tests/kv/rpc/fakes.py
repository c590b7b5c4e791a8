"""A node without storage for the tests of the protocol: partitions are dicts, faults are
switches.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.ids import NodeId, PartitionId
from kv.base.methods import DELETE, GET, MGET, PUT
from kv.base.rpc import OK, error_row
from kv.client.client import KvClient, connect, local_client
from kv.server.dispatcher import Connection, Dispatcher
from kv.server.socket_server import SocketServer

CLUSTER = "c1"
KEY = b"\x00\x00\x00\x64"  # prefix of table 100


class SeededRng:
    """Repeatable."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)


class FakeMachine:
    """Queue, one drain per loop iteration, replies, one flush per connection: the contract of a
    partition.
    """

    def __init__(self, descriptor: PartitionDescriptor) -> None:
        self.descriptor = descriptor
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.version = 0
        self.executed = 0
        self.drains = 0
        self.fails: list[KvorumError] = []  # the next requests get these
        self.held: list[tuple[Connection, list[Any]]] | None = None  # a list: requests wait in it
        self.reverse = False
        self._queue: list[tuple[Connection, list[Any]]] = []

    def submit(self, conn: Connection, request: list[Any]) -> None:
        if self.held is not None:
            self.held.append((conn, request))
            return
        self._queue.append((conn, request))
        if len(self._queue) == 1:
            asyncio.get_running_loop().call_soon(self.drain)

    def release(self) -> None:
        """Execute what was held."""
        held, self.held = self.held or [], None
        for conn, request in held:
            self.submit(conn, request)

    def drain(self) -> None:
        queue, self._queue = self._queue, []
        self.drains += 1
        if self.reverse:
            queue.reverse()
        touched = {}
        for conn, request in queue:
            if self.fails:
                conn.reply(error_row(request[0], self.fails.pop(0)))
            else:
                conn.reply([request[0], OK, *self.execute(request)])
            touched[id(conn)] = conn
        for conn in touched.values():
            conn.flush()

    def execute(self, request: list[Any]) -> list[Any]:
        self.executed += 1
        _, method, _, _, _, key, *rest = request
        match method:
            case _ if method == GET:
                return list(self.rows.get(key, (None, 0)))
            case _ if method == MGET:
                return [[list(self.rows[k]) if k in self.rows else None for k in key]]
            case _ if method == PUT:
                self.version += 1
                self.rows[key] = (rest[0], self.version)
            case _ if method == DELETE:
                self.version += 1
                self.rows.pop(key, None)
        return [self.version]


class FakePartitions:
    """A node with the partitions between `splits`."""

    def __init__(self, splits: tuple[bytes, ...] = ()) -> None:
        bounds = [b"", *splits, b""]
        self.machines = {
            PartitionId(i + 1): FakeMachine(
                PartitionDescriptor(PartitionId(i + 1), start, end, 1, (NodeId(1),))
            )
            for i, (start, end) in enumerate(itertools.pairwise(bounds))
        }

    def by_id(self, partition: int) -> FakeMachine | None:
        return self.machines.get(PartitionId(partition))

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        return next(
            (m.descriptor for m in self.machines.values() if m.descriptor.covers(key)), None
        )

    def leader_of(self, partition: int) -> int | None:
        return 1

    def find_txn(self, start_ts: int) -> bytes | None:
        return KEY + b"anchor" if start_ts == 7 else None

    def led(self) -> tuple[list[int], list[int]]:
        return [int(id) for id in self.machines], []


@dataclass
class Node:
    """A running fake node."""

    partitions: FakePartitions
    dispatcher: Dispatcher
    server: SocketServer
    timers: LoopTimers
    port: int

    @property
    def first(self) -> FakeMachine:
        return next(iter(self.partitions.machines.values()))

    async def client(self, **options: Any) -> KvClient:
        return await connect(
            [("127.0.0.1", self.port)],
            timers=self.timers,
            rng=SeededRng(),
            cluster=CLUSTER,
            **options,
        )


def make_dispatcher(
    partitions: FakePartitions | None = None,
) -> tuple[Dispatcher, FakePartitions, LoopTimers]:
    partitions = partitions or FakePartitions()
    timers = LoopTimers(asyncio.get_running_loop())
    dispatcher = Dispatcher(
        node_id=NodeId(1), partitions=partitions, timers=timers, rng=SeededRng()
    )
    return dispatcher, partitions, timers


@asynccontextmanager
async def running_node(
    splits: tuple[bytes, ...] = (), *, port: int = 0, connections_max: int = 10_000
) -> AsyncIterator[Node]:
    dispatcher, partitions, timers = make_dispatcher(FakePartitions(splits))
    server = SocketServer(
        dispatcher, timers, cluster=CLUSTER, node=1, connections_max=connections_max
    )
    bound = await server.start("127.0.0.1", port)
    try:
        yield Node(partitions, dispatcher, server, timers, bound)
    finally:
        await dispatcher.close()
        await server.close()


@asynccontextmanager
async def embedded(
    splits: tuple[bytes, ...] = (),
) -> AsyncIterator[tuple[KvClient, FakePartitions, Dispatcher]]:
    dispatcher, partitions, timers = make_dispatcher(FakePartitions(splits))
    client = local_client(dispatcher, timers, SeededRng())
    try:
        yield client, partitions, dispatcher
    finally:
        client.close()
        await dispatcher.close()
