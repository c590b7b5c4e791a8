"""The cables between real nodes, of which a test can cut each direction: a TCP proxy on loopback.

    node I listens on 127.0.0.1:BASE     and tells the others that it is at 127.0.0.2:BASE
    node J dials 127.0.0.2:BASE ──▶ here ──▶ 127.0.0.1:BASE           BASE + 1 (consensus) likewise

So the nodes are as in production, and what is cut is outside of them. Who dials stands in the first
frame of either protocol, in plain text. Clients (node 0) are never cut off, wherever they reach a
node: then they see both sides of a cut, which is where a deposed leader could fool them.

A cut direction carries nothing, neither bytes nor the end of the connection; what was sent arrives
when it is healed, as with TCP when packets were lost for a while. A connection that is dialed
across a cut is taken and not answered.

It runs on a thread of its own, with a loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, Self

from kv.base.config import PEERS_OFFSET
from kv.base.rpc import decode, read_hello
from raft.handshake import read_hello as read_peers_hello
from raft.wire import HEADER_BYTES

NODES_HOST: Final = "127.0.0.1"
CABLES_HOST: Final = "127.0.0.2"
_HELLO_BYTES_MAX: Final = 4 << 10
_PIECE_BYTES: Final = 64 << 10
_LENGTH: Final = struct.Struct("<I")

Direction = tuple[int, int]  # from a node to a node


class Cables:
    """See the module. Use it as a context manager around the life of the nodes."""

    def __init__(self, bases: Mapping[int, int]) -> None:
        """`bases`: BASE of each node, by its number."""
        self.carried: dict[Direction, int] = {}  # bytes between two nodes
        self._bases = bases
        self._cut: frozenset[Direction] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cables", daemon=True)
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---------------------------------------------------------------------------- what tests do

    def cut(self, *directions: Direction) -> None:
        """Nothing passes in these directions any more, beside those that were cut before."""
        self._do(self._set(self._cut | set(directions)))

    def part(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Nothing passes between two groups of nodes, either way."""
        left, right = list(one), list(other)
        self.cut(*((a, b) for a in left for b in right), *((b, a) for a in left for b in right))

    def heal(self) -> None:
        """Everything passes again."""
        self._do(self._set(frozenset()))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    # ------------------------------------------------------------------------------- on the loop

    async def _set(self, cut: frozenset[Direction]) -> None:
        self._cut = cut
        self._changed.set()
        self._changed = asyncio.Event()

    async def _listen(self) -> None:
        for node, base in self._bases.items():
            for port, consensus in ((base, False), (base + PEERS_OFFSET, True)):
                self._servers.append(await self._serve(node, port, consensus=consensus))

    async def _serve(self, node: int, port: int, *, consensus: bool) -> asyncio.Server:
        def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            work = self._carry(reader, writer, node, port, consensus=consensus)
            task = self._loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return await asyncio.start_server(called, CABLES_HOST, port)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        called: int,
        port: int,
        *,
        consensus: bool,
    ) -> None:
        """One connection, until an end of it closes it."""
        ends = [writer]
        try:
            with contextlib.suppress(OSError, EOFError):
                first, caller = await _hello(reader, consensus=consensus)
                await self._passage(caller, called)
                there, target = await asyncio.open_connection(NODES_HOST, port)
                ends.append(target)
                target.write(first)
                pumps = (
                    self._pump(reader, target, (caller, called)),
                    self._pump(there, writer, (called, caller)),
                )
                await self._first_of(*pumps)
        finally:
            for end in ends:
                end.transport.abort()

    async def _first_of(self, *pumps: Coroutine[Any, Any, None]) -> None:
        tasks = [self._loop.create_task(pump) for pump in pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, way: Direction
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(_PIECE_BYTES):
                await self._passage(*way)
                target.write(piece)
                self.carried[way] = self.carried.get(way, 0) + len(piece)
                await target.drain()
        await self._passage(*way)  # the end is told, too

    async def _passage(self, source: int, target: int) -> None:
        """Wait until something passes from one node to another."""
        while (source, target) in self._cut:
            await self._changed.wait()


async def _hello(reader: asyncio.StreamReader, *, consensus: bool) -> tuple[bytes, int]:
    """The first frame of a connection, and the node that sent it (0: a client)."""
    header = await reader.readexactly(HEADER_BYTES if consensus else _LENGTH.size)
    (length,) = _LENGTH.unpack_from(header)
    assert length <= _HELLO_BYTES_MAX, "that is no hello"
    body = await reader.readexactly(length)
    if consensus:
        return header + body, read_peers_hello(body).identity.node
    return header + body, read_hello(decode(body), "").node
