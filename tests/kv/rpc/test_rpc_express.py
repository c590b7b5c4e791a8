"""Requests for timestamps are answered in the middle of other work
(kv/server/timestamp_connections.py), over real sockets, with both loops that users have.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

import pytest
import uvloop

from kv.base.limits import EXPRESS_SLICE_S
from kv.base.methods import GET, PING, PUT, TSO
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello
from kv.server.timestamp_connections import Express
from tests.kit.waiting import until
from tests.kv.rpc.fakes import CLUSTER, KEY, Node, running_node

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="needs epoll")
Test = Callable[[Node], Awaitable[None]]
LOOPS = pytest.mark.parametrize("runs", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Peer:
    """A blocking client in the loop's own thread: what it is told while it waits was not told by
    the loop.
    """

    def __init__(self, node: Node) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port), 5)
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()

    def send(self, *rows: list[Any]) -> None:
        self.socket.sendall(self._encoder.message(list(rows)))

    def receive(self, wait_s: float = 5.0) -> list[Any] | None:
        """The next message; None: there is none, or the connection has ended."""
        self.socket.settimeout(wait_s)
        while (message := self._decoder.pull()) is None:
            try:
                data = self.socket.recv(65_536)
            except TimeoutError:
                return None
            if not data:
                return None
            self._decoder.push(data)
        return message

    async def told(self) -> list[Any]:
        """The next message, while the loop runs."""
        message = await asyncio.to_thread(self.receive)
        assert message is not None
        return message

    @classmethod
    async def of(cls, node: Node) -> Peer:
        """One that has asked for a timestamp before, as a client of the oracle has."""
        peer = cls(node)
        peer.socket.sendall(peer._encoder.message(Hello(cluster=CLUSTER).to_wire()))
        await peer.told()
        peer.send([1, TSO, 0, 1])
        await peer.told()
        return peer


def play(runs: Callable[[Coroutine[Any, Any, None]], None], test: Test) -> None:
    async def main() -> None:
        async with running_node() as node:
            given = count(100)
            node.dispatcher.register(TSO, lambda _context, args: [next(given), args[0]])
            await test(node)
        assert not len(node.dispatcher.express)

    runs(main())


def look(node: Node, finds: int = 1) -> None:
    """What a drain does between two commands, until what `finds` peers sent has arrived."""
    express = node.dispatcher.express
    heard, patience = express.heard, 2_000
    if not finds:
        express._next = 0.0
        express.look()
    while express.heard < heard + finds and patience:
        express._next = 0.0
        express.look()
        patience -= 1
        time.sleep(0.001)


@LOOPS
def test_e4_timestamps_come_in_the_middle_of_a_drain(runs: Any) -> None:
    """Whoever asked for a timestamp waited for the end of the pass of the loop."""

    async def test(node: Node) -> None:
        peers = [await Peer.of(node) for _ in range(3)]
        for round_ in range(1, 4):
            for peer in peers:
                peer.send([round_ + 1, TSO, 0, 5])
            assert peers[0].receive(0.01) is None, "the loop does not run now"
            look(node, 3)
            rows = [peer.receive() for peer in peers]
            assert [row and row[0][0] for row in rows] == [round_ + 1] * 3
            numbers = [row[0][2] for row in rows if row]
            assert numbers == sorted(set(numbers))
            await asyncio.sleep(0)
        assert node.dispatcher.express.heard >= 9
        for peer in peers:  # and by the loop, as before
            peer.send([9, TSO, 0, 1])
            assert (await peer.told())[0][:2] == [9, 0]
            peer.socket.close()
        await until(lambda: not len(node.dispatcher.express))

    play(runs, test)


@LOOPS
def test_e4_nothing_else_runs_in_the_middle_of_a_drain(runs: Any) -> None:
    """A write of the same connection was evaluated inside the drain of another partition, or its
    reply came before an earlier one's.
    """

    async def test(node: Node) -> None:
        peer = await Peer.of(node)
        put = [3, PUT, 0, 1, 1, KEY + b"k", b"v", None, 0]
        get = [5, GET, 0, 1, 1, KEY + b"k", 0, None]
        frames = ([[2, TSO, 0, 1]], [put, [4, TSO, 0, 1]], [get])
        peer.socket.sendall(b"".join([FrameEncoder().message(list(rows)) for rows in frames]))
        look(node)
        first = peer.receive()
        assert first is not None
        assert [row[0] for row in first] == [2]
        assert node.first.executed == 0
        assert not len(node.dispatcher.express), "it is a usual connection again"
        told: list[list[Any]] = []
        while len(told) < 3:
            told += await peer.told()
        assert {row[0]: row[1] for row in told} == {3: 0, 4: 0, 5: 0}
        assert next(row for row in told if row[0] == 5)[2] == b"v"
        peer.send([6, TSO, 0, 1])
        assert (await peer.told())[0][0] == 6
        assert len(node.dispatcher.express) == 1
        peer.socket.close()
        await until(lambda: not len(node.dispatcher.express))

    play(runs, test)


@LOOPS
def test_e4_a_connection_that_ends_is_left_to_the_loop(runs: Any) -> None:
    """A descriptor that another connection got was read for one that was gone."""

    async def test(node: Node) -> None:
        gone, stays = await Peer.of(node), await Peer.of(node)
        gone.socket.close()
        stays.send([2, TSO, 0, 1])
        look(node)
        assert stays.receive() is not None
        await until(lambda: node.server.counters.connections == 1)
        others = [await Peer.of(node) for _ in range(2)]
        for peer in (stays, *others):
            peer.send([3, TSO, 0, 1])
        look(node, 3)
        assert all(peer.receive() is not None for peer in (stays, *others))
        for peer in (stays, *others):
            peer.socket.close()
        await until(lambda: node.server.counters.connections == 0)

    play(runs, test)


@LOOPS
def test_e4_bad_bytes_are_refused_as_by_the_loop(runs: Any) -> None:
    """What is no frame of requests broke the drain that it was met in."""

    async def test(node: Node) -> None:
        peer = await Peer.of(node)
        peer.send([2, TSO, 0, 0])  # count 0
        look(node)
        told = peer.receive()
        assert told is not None
        assert told[0][:2] == [2, 1]
        peer.send(["x"])
        look(node)
        while (message := await asyncio.to_thread(peer.receive)) is not None:
            assert message[-1][1] == 1
        peer.socket.close()
        await until(lambda: node.server.counters.connections == 0)

    play(runs, test)


@LOOPS
def test_e4_who_does_not_read_is_not_read(runs: Any) -> None:
    """Requests of a client that takes no replies piled up in memory, look by look."""

    async def test(node: Node) -> None:
        peer = await Peer.of(node)
        conn = next(iter(node.server._connections))
        conn.pause_writing()
        for rid in range(2, 12):
            peer.send([rid, TSO, 0, 1])
            await asyncio.sleep(0.01)
            look(node, 0)
        assert not len(node.dispatcher.express)
        assert node.dispatcher.express.heard <= 1
        conn.resume_writing()
        told: list[Any] = []
        while len(told) < 10:
            told += await peer.told()
        assert [row[0] for row in told] == list(range(2, 12))
        await until(lambda: len(node.dispatcher.express) == 1)
        peer.socket.close()
        await until(lambda: not len(node.dispatcher.express))

    play(runs, test)


@LOOPS
def test_e4_a_frame_in_pieces_is_whole_in_the_end(runs: Any) -> None:
    """Bytes that a look read were lost for the loop."""

    async def test(node: Node) -> None:
        peer = await Peer.of(node)
        frame = FrameEncoder().message([[2, TSO, 0, 1]])
        for cut in range(1, len(frame)):
            peer.socket.sendall(frame[:cut])
            look(node)
            peer.socket.sendall(frame[cut:])
            if cut % 2:
                look(node)
            assert (await peer.told())[0][:2] == [2, 0]
        peer.send([3, PING, 0])
        assert (await peer.told())[0][0] == 3
        peer.socket.close()
        await until(lambda: node.server.counters.connections == 0)

    play(runs, test)


def test_e4_looks_are_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of a drain paid for a look into the kernel; or one look was made within
    another.
    """
    now = [0.0]
    express = Express(lambda: now[0])
    express.look()
    a, b = socket.socketpair()
    heard: list[bytes] = []

    class Conn:
        def heard_between(self, data: bytes) -> None:
            heard.append(data)
            b.send(b"more")
            now[0] += 1
            express.look()

    conn = Conn()
    assert express.add(a.fileno(), conn)
    b.send(b"1")
    now[0] = EXPRESS_SLICE_S
    express.look()
    assert heard == [b"1"]
    now[0] = express._next - EXPRESS_SLICE_S / 2
    express.look()
    assert heard == [b"1"], "too soon"
    now[0] = express._next
    express.look()
    assert heard == [b"1", b"more"]
    express.remove(a.fileno(), Conn())
    assert len(express) == 1, "another's"
    express.remove(a.fileno(), conn)
    assert not len(express)
    a.close()
    b.close()
