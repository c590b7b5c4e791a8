"""kv.server.socket_server over loopback: what a bad, slow or vanished peer can and cannot do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest

from kv.base import held_bytes
from kv.base.errors import Busy, InvalidArgument, KvorumError, Refused, Unavailable
from kv.base.limits import FRAME_BYTES_MAX, IN_FLIGHT_PER_CONNECTION_MAX, REPLY_WINDOW_BYTES
from kv.base.methods import GET, PING, PROTOCOL, PUT, VERSION
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello, error_of
from kv.client.client import connect
from kv.server import socket_server
from kv.server.dispatcher import Context
from kv.server.socket_server import ServerConnection, SocketServer
from procedures.verbs import PROC_GET
from tests.kit.waiting import until
from tests.kv.rpc.fakes import CLUSTER, KEY, SeededRng, running_node

HELLO = Hello(cluster=CLUSTER).to_wire()


class Raw:
    """A peer that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()
        self._encoder = FrameEncoder()

    def send(self, *messages: list[Any]) -> None:
        self.writer.write(b"".join(self._encoder.message(m) for m in messages))

    async def receive(self) -> list[Any] | None:
        """The next message, None when the server closed the connection."""
        async with asyncio.timeout(30):  # a machine under load
            while (message := self._decoder.pull()) is None:
                data = await self.reader.read(65_536)
                if not data:
                    return None
                self._decoder.push(data)
        return message

    async def rows(self, n: int) -> list[list[Any]]:
        found: list[list[Any]] = []
        while len(found) < n:
            message = await self.receive()
            assert message is not None, f"closed after {found}"
            found += message
        return found

    async def closed_with(self) -> list[KvorumError]:
        """The errors that the server says before it closes."""
        errors = []
        while (message := await self.receive()) is not None:
            errors += [error_of(row) for row in message if row[1] == 1]
        return errors


@asynccontextmanager
async def raw(port: int, *, greet: bool = True) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = Raw(reader, writer)
    try:
        if greet:
            peer.send(HELLO)
            assert await peer.receive() == [PROTOCOL, VERSION, {"cluster": CLUSTER, "node": 1}]
        yield peer
    finally:
        writer.transport.abort()


async def test_rpc_pipelined_hello_and_requests() -> None:
    """A client may send everything in one packet; half a packet more must wait for its rest."""
    async with running_node() as node, raw(node.port, greet=False) as peer:
        frame = FrameEncoder().message([[2, PING, 0]])
        peer.send(HELLO, [[1, PING, 0]])
        peer.writer.write(frame[:-1])
        assert (await peer.receive())[0] == PROTOCOL  # type: ignore[index]
        assert await peer.receive() == [[1, 0, 1]]
        peer.writer.write(frame[-1:])
        assert await peer.receive() == [[2, 0, 1]]


async def test_rpc_one_frame_per_drain() -> None:
    """A write per reply costs a quarter of the throughput; a drain's replies leave together."""
    async with running_node() as node, raw(node.port) as peer:
        writes = node.dispatcher.counters.writes
        peer.send([[i, GET, 0, 1, 1, KEY, 0, None] for i in range(1, 101)])
        message = await peer.receive()
        assert message is not None
        assert sorted(row[0] for row in message) == list(range(1, 101))
        assert node.dispatcher.counters.writes == writes + 1


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (["http", 1, {}], "WRONG_PROTOCOL"),
        ([PROTOCOL, 99, {}], "WRONG_VERSION"),
        ([PROTOCOL, VERSION, {"cluster": "zz"}], "WRONG_CLUSTER"),
        ([[1, PING, 0]], "MALFORMED_FRAME"),
    ],
)
async def test_rpc_wrong_hello_closes_with_the_reason(first: list[Any], code: str) -> None:
    """A peer of another cluster or version must not get as far as a request."""
    async with running_node() as node, raw(node.port, greet=False) as peer:
        peer.send(first, [[1, GET, 0, 1, 1, KEY, 0, None]])
        (error,) = await peer.closed_with()
        assert error.code == code
        assert node.first.executed == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (struct.pack("<I", FRAME_BYTES_MAX + 1), "TOO_LARGE"),
        (b"\x01\x00\x00\x00\xc1", "MALFORMED_FRAME"),
        (b"\x01\x00\x00\x00\x80", "MALFORMED_FRAME"),
        (b"GET / HTTP/1.1\r\n\r\n", "TOO_LARGE"),
        (b"\x04\x00\x00\x00\x91\xd4\x01a", "MALFORMED_FRAME"),
    ],
    ids=["oversize", "not-msgpack", "not-a-list", "http", "extension"],
)
async def test_rpc_malformed_frame_closes_with_the_reason(data: bytes, code: str) -> None:
    """After broken framing nothing on that connection can be trusted; others are not touched."""
    async with running_node() as node, raw(node.port) as good, raw(node.port) as bad:
        bad.writer.write(data)
        (error,) = await bad.closed_with()
        assert error.code == code
        good.send([[1, PING, 0]])
        assert await good.receive() == [[1, 0, 1]]
        assert node.dispatcher.counters.protocol_errors == 1


async def test_rpc_malformed_row_names_its_request() -> None:
    """The caller of the broken row learns it by its rid, everybody on the connection by rid 0."""
    async with running_node() as node, raw(node.port) as peer:
        peer.send([[1, PING, 0], [7, PING]])
        rows = await peer.rows(2)
        assert [row[:2] for row in rows] == [[7, 1], [0, 1]]
        assert {error_of(row).code for row in rows} == {"MALFORMED_FRAME"}
        assert await peer.receive() is None
        assert node.dispatcher.counters.requests[PING] == 0, "a refused frame is refused as a whole"


async def test_rpc_hello_frame_is_small() -> None:
    """A stranger must not make the node keep 32 MiB before it has said who it is."""
    async with running_node() as node, raw(node.port, greet=False) as peer:
        peer.writer.write(struct.pack("<I", 8192))
        (error,) = await peer.closed_with()
        assert error.details["limit"] == 4096


async def test_rpc_silent_stranger_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that never say hello would use up the limit of connections."""
    monkeypatch.setattr(socket_server, "HELLO_MS_MAX", 30)
    monkeypatch.setattr(socket_server, "_SWEEP_S", 0.02)
    async with running_node() as node, raw(node.port) as greeted:
        async with raw(node.port, greet=False) as silent:
            assert await silent.receive() is None
        greeted.send([[1, PING, 0]])
        assert await greeted.receive() == [[1, 0, 1]]
        await until(lambda: node.server._sweeper is None)  # nobody to look after: no timer


async def test_rpc_connection_limit_is_told() -> None:
    """The connection too many is told the limit; the others go on; a free place is usable again."""
    async with running_node(connections_max=2) as node, raw(node.port) as one:
        async with raw(node.port):
            async with raw(node.port, greet=False) as third:
                (error,) = await third.closed_with()
                assert type(error) is Busy
                assert error.details["limit"] == 2
            one.send([[1, PING, 0]])
            assert await one.receive() == [[1, 0, 1]]
        await until(lambda: node.dispatcher.counters.connections == 1)
        async with raw(node.port):
            assert node.dispatcher.counters.connections_refused == 1


async def test_rpc_silent_connections_keep_nobody_out() -> None:
    """Whoever opened as many connections as the limit, and said nothing, shut the port."""
    async with running_node(connections_max=3) as node, contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(raw(node.port))
        for _ in range(10):
            await stack.enter_async_context(raw(node.port, greet=False))
        other = await stack.enter_async_context(raw(node.port))
        for peer in (one, other):
            peer.send([[1, PING, 0]])
            assert await peer.receive() == [[1, 0, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("pace", [20, 10_000], ids=["one-by-one", "at-once"])
async def test_rpc_peer_that_does_not_read_is_not_served_further(pace: int) -> None:
    """A peer that asks and does not read must not fill the node's memory; when it reads, all
    arrives.
    """
    async with running_node() as node, raw(node.port) as peer:
        value, n = b"v" * (256 << 10), 1000
        node.first.rows[KEY] = (value, 1)
        sock = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for i in range(n):
            peer.send([[i + 1, GET, 0, 1, 1, KEY, 0, None]])
            if i % pace == 0:
                await asyncio.sleep(0.001)
        counters = node.dispatcher.counters
        await until(lambda: counters.pauses > 0)
        await asyncio.sleep(0.1)
        held = counters.bytes_out
        assert held <= 2 * REPLY_WINDOW_BYTES
        assert counters.requests[GET] < n
        async with raw(node.port) as other:
            other.send([[1, PING, 0]])
            assert await other.receive() == [[1, 0, 1]]
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        rows = await peer.rows(n)
        assert sorted(row[0] for row in rows) == list(range(1, n + 1))
        assert all(row[2] == value for row in rows)


class Behind:
    """A clock that cannot take a time before it is `there`."""

    at = 0
    there = False

    def owe(self, ts: int) -> None:
        """Nobody answers it."""

    def hear(self, ts: int) -> KvorumError | None:
        if ts > self.at and not self.there:
            return Unavailable("its clock is behind", code="CLOCK_AHEAD")
        self.at = max(self.at, ts)
        return None


async def test_r1_a_time_holds_for_all_frames_after_it() -> None:
    """A burst of several frames has its time in the first one: the others must not be done by a
    node that could not take it, for their causes could be above what it gives out.
    """
    async with running_node() as node, raw(node.port) as peer:
        node.server.time = clock = Behind()

        async def answered(peer: Raw, *messages: list[Any]) -> list[list[Any]]:
            """What a message for each of two requests is answered."""
            found: list[list[Any]] = []
            peer.send(*messages)
            while len(found) < 2:
                found += [row for row in await peer.rows(1) if type(row) is list]
            return found

        pings = [[1, PING, 0]], [[2, PING, 0]]
        refused = await answered(peer, [7], *pings)
        assert [error_of(row).code for row in refused] == ["CLOCK_AHEAD"] * 2
        async with raw(node.port) as other:  # it knows of nothing
            assert await answered(other, *pings) == [[1, 0, 1], [2, 0, 1]]
        clock.there = True
        assert await answered(peer, *pings) == [[1, 0, 1], [2, 0, 1]]
        assert clock.at == 7


async def test_rpc_in_flight_window_is_kept() -> None:
    """Requests beyond the window wait in the socket: no BUSY, no unbounded queue, none lost."""
    async with running_node() as node, raw(node.port) as peer:
        node.first.held = []
        n = IN_FLIGHT_PER_CONNECTION_MAX + 3000
        for at in range(0, n, 1000):
            rows = [[i + 1, GET, 0, 1, 1, KEY, 0, None] for i in range(at, min(at + 1000, n))]
            peer.send(rows)
        await until(lambda: node.dispatcher.counters.pauses > 0)
        await asyncio.sleep(0.05)
        assert len(node.first.held) <= IN_FLIGHT_PER_CONNECTION_MAX
        node.first.release()
        rows = await peer.rows(n)
        assert sorted(row[0] for row in rows) == list(range(1, n + 1))


async def test_rpc_stalled_peer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that never reads again must not hold its replies for ever."""
    monkeypatch.setattr(socket_server, "STALL_MS_MAX", 50)
    monkeypatch.setattr(socket_server, "_SWEEP_S", 0.02)
    async with running_node() as node, raw(node.port) as peer:
        node.first.rows[KEY] = (b"v" * (4 << 20), 1)
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        peer.send([[i, GET, 0, 1, 1, KEY, 0, None] for i in range(1, 9)])
        await until(lambda: node.dispatcher.counters.connections == 0)


async def test_rpc_replies_to_a_gone_peer_are_dropped() -> None:
    """A client that left must not break the drain that answers it, nor a handler that still
    runs.
    """
    async with running_node() as node, raw(node.port) as other:
        gate = asyncio.Event()

        async def slow(_context: Context, _args: list[Any]) -> list[Any]:
            await gate.wait()
            return [1]

        node.dispatcher.register(PROC_GET, slow)
        node.first.held = []
        async with raw(node.port) as peer:
            peer.send([[1, PUT, 0, 1, 1, KEY, b"v", None, 0], [2, PROC_GET, 0, 1, 0]])
            await until(lambda: bool(node.first.held) and node.dispatcher.counters.handlers == 1)
        await until(lambda: node.dispatcher.counters.connections == 1)
        node.first.release()
        gate.set()
        await until(lambda: node.dispatcher.counters.handlers == 0)
        other.send([[1, GET, 0, 1, 1, KEY, 0, None]])
        assert await other.receive() == [[1, 0, b"v", 1]]


async def test_rpc_unsendable_reply_is_an_error_of_that_request() -> None:
    """A handler's result that is no plain data must not take the drain's other replies along."""
    async with running_node() as node, raw(node.port) as peer:
        node.dispatcher.register(PROC_GET, lambda _context, _args: [object()])
        peer.send([[1, PING, 0], [2, PROC_GET, 0, 1, 0], [3, PING, 0]])
        rows = {row[0]: row for row in await peer.rows(3)}
        assert rows[1] == [1, 0, 1]
        assert rows[3] == [3, 0, 1]
        assert "cannot be sent" in error_of(rows[2]).message


async def test_rpc_close_says_why_and_sends_what_is_owed() -> None:
    """A stopping node sends the replies it has, then says that it stops: clients go elsewhere."""
    async with running_node() as node, raw(node.port) as peer:
        peer.send([[1, PING, 0]])
        await until(lambda: node.dispatcher.counters.writes > 0)
        await node.server.close()
        assert await peer.receive() == [[1, 0, 1]]
        (error,) = await peer.closed_with()
        assert (type(error), error.code) == (Unavailable, "STOPPING")


async def test_rpc_close_does_not_wait_for_a_peer_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One stuck client must not keep a node from stopping."""
    monkeypatch.setattr(socket_server, "_GOODBYE_S", 0.05)
    async with running_node() as node, raw(node.port) as peer:
        node.first.rows[KEY] = (b"v" * (4 << 20), 1)
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        peer.send([[i, GET, 0, 1, 1, KEY, 0, None] for i in range(1, 9)])
        await until(lambda: node.dispatcher.counters.bytes_out > 1 << 20)
        async with asyncio.timeout(2):
            await node.server.close()


async def test_rpc_port_in_use_is_named() -> None:
    """A second node on the port must say which address is taken, not show a traceback."""
    async with running_node() as node:
        second = SocketServer(node.dispatcher, node.timers, cluster=CLUSTER, node=2)
        with pytest.raises(InvalidArgument, match=f"127.0.0.1:{node.port}") as caught:
            await second.start("127.0.0.1", node.port)
        assert caught.value.code == "CANNOT_LISTEN"


async def test_rpc_wrong_cluster_is_refused_to_the_client() -> None:
    """`connect` must fail with the reason, at once, not after its retries."""
    async with running_node() as node:
        with pytest.raises(Refused) as caught:
            await connect(
                [("127.0.0.1", node.port)], timers=node.timers, rng=SeededRng(), cluster="c2"
            )
        assert caught.value.code == "WRONG_CLUSTER"
        assert caught.value.details == {"own": "c1", "peer": "c2"}


def test_rpc_frame_layout_is_documented() -> None:
    """docs/reference/rpc.md shows these very bytes; who changes them breaks other people's
    clients.
    """
    body = msgpack.packb([[1, PING, 0]])
    assert FrameEncoder().message([[1, PING, 0]]) == struct.pack("<I", len(body)) + body
    assert FrameEncoder().message([[1, PING, 0]]).hex(" ") == "05 00 00 00 91 93 01 40 00"


async def test_rpc_a_connection_accepted_while_closing_is_dropped() -> None:
    """What the listener had taken when it closed would stay open for ever, and nobody serve it."""
    async with running_node() as node:
        server = node.server
        await server.close()
        conn = ServerConnection(server)
        transport = FakeTransport()
        conn.connection_made(transport)  # type: ignore[arg-type]
        assert transport.aborted
        conn.connection_lost(None)
        assert server.counters.connections == 0


class FakeTransport:
    aborted = False

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted = True


async def test_rpc_half_a_frame_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that does not come on holds its bytes and its connection, and would for ever."""
    monkeypatch.setattr(held_bytes, "MESSAGE_MS_MAX", 100)
    monkeypatch.setattr(socket_server, "_SWEEP_S", 0.02)
    async with running_node() as node, raw(node.port) as idle, raw(node.port) as peer:
        peer.writer.write(FrameEncoder().message([[1, PUT, 0, b"v" * 1_000]])[:-1])
        (error,) = await peer.closed_with()
        assert "stopped in the middle of a message" in error.message
        assert node.server.held.messages == 0
        idle.send([[2, PING, 0]])  # it owes nothing, however long it says nothing
        assert await idle.rows(1) == [[2, 0, 1]]


async def test_rpc_frames_under_way_have_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half frames of many connections would fill the memory."""
    async with running_node() as node, raw(node.port) as first, raw(node.port) as second:
        monkeypatch.setattr(node.server.held.bytes, "limit", 1_000_000)
        frame = FrameEncoder().message([[1, PING, 0, b"v" * 700_000]])
        first.writer.write(frame[:-1])
        await until(lambda: node.server.held.messages == len(frame) - 1)
        second.writer.write(frame[:-1])
        (error,) = await second.closed_with()
        assert isinstance(error, Busy)
        first.writer.write(frame[-1:])
        assert (await first.rows(1))[0][0] == 1
        assert node.server.held.messages == 0


async def test_rpc_a_flood_takes_turns_with_its_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever pipelines without an end would keep all others waiting until it is done."""
    monkeypatch.setattr(socket_server, "_TURN_S", 0.0)
    pings = [[[rid, PING, 0] for rid in range(1, 4_001)]] * 10
    async with running_node() as node, raw(node.port) as flood, raw(node.port) as other:
        flood.send(*pings)
        await until(lambda: node.dispatcher.counters.requests[PING] > 0)
        other.send([[1, PING, 0]])
        assert await other.rows(1) == [[1, 0, 1]]
        assert node.dispatcher.counters.requests[PING] < 30_000
        assert len(await flood.rows(40_000)) == 40_000


async def test_rpc_two_floods_are_served_in_turns() -> None:
    """The first that comes would have the loop for itself, and the second be served after it."""
    pings = [[[rid, PING, 0] for rid in range(1, 4_001)]] * 10
    async with running_node() as node, raw(node.port) as one, raw(node.port) as two:
        one.send(*pings)
        two.send(*pings)
        got = await asyncio.gather(one.rows(40_000), two.rows(40_000))
        assert [len(rows) for rows in got] == [40_000, 40_000]
        assert not node.server.held.messages


async def test_rpc_heavy_frames_are_refused() -> None:
    """Twenty million empty lists in a frame stop the loop for seven seconds."""
    async with running_node() as node, raw(node.port) as peer:
        peer.send([[1, PING, 0, [[[]] * 50_000] * 8]])
        (error,) = await peer.closed_with()
        assert error.code == "TOO_LARGE"
        assert node.dispatcher.counters.protocol_errors == 1
