"""Whole nodes in one event loop, on memory engines and the loopback: as fast as a cluster gets.

`stop` and `start` are orderly; `crash` is kill -9: nothing is flushed, nobody is told, and what was
not synced is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kv.base.config import NodeConfig
from kv.base.errors import Unavailable
from kv.base.ids import META_PARTITION
from kv.server.socket_server import SocketServer
from kv.storage.engine import Engine
from kv.storage.memory import MemoryEngine
from kvorum.api.verbs import LINKS
from kvorum.connecting import aconnect
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build
from kvorum.sdk.database import AsyncDatabase
from raft.listener import stop_listening
from raft.transport import MuxTransport
from tests.kit.machine import free_port_base
from tests.kit.waiting import until

READY_S = 20.0
_LOOK_S = 0.01


class Trio:
    """The nodes of a cluster by their id, those that live."""

    def __init__(self, count: int, later: int = 0, **settings: Any) -> None:
        """`count` founders; up to `later` more may join, numbered from `count` + 1 on."""
        base = free_port_base(count + later)
        every = [f"127.0.0.1:{base + 10 * i}" for i in range(count + later)]
        self.addresses, self.later = every[:count], every[count:]
        self.nodes: dict[int, Node] = {}
        self.fatal: list[BaseException] = []
        self._settings = settings
        self._dead: set[int] = set()
        self._disks: dict[tuple[int, str], MemoryEngine] = {}
        self._rng = random.Random(count)

    @property
    def url(self) -> str:
        return "kvorum://" + ",".join(self.addresses)

    def url_of(self, node: int) -> str:
        return f"kvorum://{[*self.addresses, *self.later][node - 1]}"

    def config(self, node: int) -> NodeConfig:
        founds = node <= len(self.addresses)
        _, _, port = [*self.addresses, *self.later][node - 1].rpartition(":")
        return NodeConfig(
            data=Path(f"node-{node}"),
            port=int(port),
            node_id=node if founds else 1,
            join=tuple(self.addresses),
            engine="memory",
            fault_injection=True,
            **{"http": False, **self._settings},
        )

    async def start(self, *numbers: int) -> None:
        """Start these (all, if none is named) and wait until they are ready."""
        wanted = numbers or tuple(range(1, len(self.addresses) + 1))
        for number in wanted:
            self.nodes[number] = await self._build(number)
        async with asyncio.timeout(READY_S), asyncio.TaskGroup() as group:
            for number in wanted:
                group.create_task(self.nodes[number].start())

    async def _build(self, number: int, config: NodeConfig | None = None) -> Node:
        def open_engine(path: Path, families: Sequence[str]) -> Engine:
            key = number, path.name
            if key not in self._disks:
                self._disks[key] = MemoryEngine(families)
            return self._disks[key]

        ports = replace(system_ports(asyncio.get_running_loop()), open_engine=open_engine)
        node = await build(config or self.config(number), ports)
        self._dead.discard(number)

        def failed(done: asyncio.Future[BaseException]) -> None:
            if number not in self._dead:
                self.fatal.append(done.result())

        node.fatal.add_done_callback(failed)
        return node

    async def stop(self, number: int) -> None:
        """SIGTERM. The disks stay."""
        await self.nodes.pop(number).stop()
        self._disks |= {key: disk.reopen() for key, disk in self._of(number)}

    def lose_disk(self, number: int) -> None:
        """Of a node that is down: it starts with nothing."""
        for key, _disk in self._of(number):
            del self._disks[key]

    async def crash(self, number: int) -> None:
        """kill -9 and a power loss: connections break, what was not synced is gone."""
        node = self.nodes.pop(number)
        self._dead.add(number)
        native, peers = node.doors.native, node.store.cluster.transport
        assert isinstance(native, SocketServer)
        assert isinstance(peers, MuxTransport)
        for door in (peers._server, native._server):
            assert door is not None
            await stop_listening(door)
        # In one go from here: nobody is answered by a node whose disks are gone.
        self._disks |= {key: disk.crash(self._rng) for key, disk in self._of(number)}
        peers.stop()
        native.cut(range(1 << 16))
        for connection in list(native._connections):
            connection.drop()
        # What is left of it cannot write, and so cannot promise anything; here it is put away.
        node._fail(Unavailable("killed"))
        node.store.failed = True
        node.store.host.close()
        node.master.role(leader=False)
        await node.store.txn._background.cancel()
        await node.stop()

    def _of(self, number: int) -> list[tuple[tuple[int, str], MemoryEngine]]:
        return [(key, disk) for key, disk in self._disks.items() if key[0] == number]

    def leader(self, partition: int = META_PARTITION) -> int | None:
        """The node that serves a partition now."""
        for number, node in self.nodes.items():
            replica = node.store.manager.replica(partition)
            if replica is not None and replica.serving():
                return number
        return None

    async def led(self, partition: int = META_PARTITION, *, but: int = 0) -> int:
        """Wait for a leader, another than `but`."""
        await until(lambda: self.leader(partition) not in (None, but))
        found = self.leader(partition)
        assert found is not None
        return found

    async def cut(self, node: int, *others: int) -> None:
        """Cut a node from these others, both ways; no others: heal."""
        for number, living in self.nodes.items():
            mine = [node] if number in others else []
            if number == node:
                mine = list(others)
            await living.store.cluster.calls.call_at(number, LINKS, mine)

    async def close(self) -> None:
        async with asyncio.TaskGroup() as group:
            for node in self.nodes.values():
                group.create_task(node.stop())


@asynccontextmanager
async def trio(count: int = 3, later: int = 0, **settings: Any) -> AsyncIterator[Trio]:
    """A running cluster; in the end no node has failed."""
    made = Trio(count, later, **settings)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
    assert not made.fatal, made.fatal


@asynccontextmanager
async def client(made: Trio, node: int = 0) -> AsyncIterator[AsyncDatabase]:
    """A client that knows every node, or one alone."""
    async with await aconnect(made.url_of(node) if node else made.url) as db:
        yield db
