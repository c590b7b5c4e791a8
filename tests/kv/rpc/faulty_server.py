"""A server that speaks the protocol and then does what a script says with the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.methods import LOOKUP
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello
from kv.client.client import KvClient, connect
from tests.kv.rpc.fakes import SeededRng


class FaultyServer:
    """Speaks the protocol and then does what the script says with each frame of requests."""

    def __init__(
        self, script: Callable[[FaultyServer, list[Any], asyncio.Transport], None]
    ) -> None:
        self.script = script
        self.seen: list[list[Any]] = []
        self.connections = 0
        self.port = 0
        self.transports: list[asyncio.Transport] = []

    async def __aenter__(self) -> FaultyServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Faulty(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for transport in self.transports:
            transport.abort()
        await self._server.wait_closed()

    async def client(self) -> KvClient:
        return await connect(
            [("127.0.0.1", self.port)],
            timers=LoopTimers(asyncio.get_running_loop()),
            rng=SeededRng(),
        )


class _Faulty(asyncio.Protocol):
    def __init__(self, server: FaultyServer) -> None:
        self.server, self.decoder, self.greeted = server, FrameDecoder(), False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.server.connections += 1
        self.server.transports.append(self.transport)

    def data_received(self, data: bytes) -> None:
        self.decoder.push(data)
        while (message := self.decoder.pull()) is not None:
            if not self.greeted:
                self.greeted = True
                self.transport.write(FrameEncoder().message(Hello(node=1).to_wire()))
                continue
            rest = []
            for row in message:
                if row[1] == LOOKUP:
                    found = PartitionDescriptor(PartitionId(1), b"", b"", 1, (NodeId(1),))
                    reply(self.transport, [row[0], 0, found.to_wire(), ["", 0]])
                else:
                    rest.append(row)
            if rest:
                self.server.seen += rest
                self.server.script(self.server, rest, self.transport)


def reply(transport: Any, *rows: list[Any]) -> None:
    transport.write(FrameEncoder().message(list(rows)))
