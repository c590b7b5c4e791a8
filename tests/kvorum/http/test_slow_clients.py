"""kvorum.http.server.http_server: clients that stop in the middle, say nothing, read nothing, or
say everything at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kv.base import held_bytes as held_module
from kv.base.accounts import USER, Account
from kv.base.connection_slots import SEATS_EXTRA, Seats
from kv.base.fair_turns import FairTurns
from kv.base.held_bytes import Held
from kvorum.http.server import http_server
from kvorum.http.server.connection_turns import turn_of
from kvorum.http.server.http_server import HttpServer
from kvorum.http.wire.codec import Reply
from kvorum.http.wire.request import Disconnected, Receive, Request, Scope, Send, send_reply
from tests.kit.waiting import until

HEAD = b"POST /x HTTP/1.1\r\nhost: localhost\r\n"
MIB = 1 << 20


class Door:
    """A server whose answers are as large as the path says, and which counts its requests."""

    def __init__(self, limit: int) -> None:
        self.seats = Seats(held=Held(limit))
        self.served = self.left = 0
        self.port = 0
        self.users = {n: Account(USER, n.decode(), lambda: 0, shown=True) for n in (b"ann", b"bob")}
        self._turns = FairTurns(time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = dict(scope["headers"]).get(b"authorization", b"")
        if (turn := turn_of(scope)) is not None and said:
            turn.asked(self.users[said], said, self._turns)
        try:
            body = await Request(scope, receive).body(24 * MIB)
        except Disconnected:
            self.left += 1
            return
        self.served += 1
        size = int(scope["path"].rpartition("/")[2] or 0) if scope["path"] != "/x" else len(body)
        await send_reply(send, Reply(200, b"x" * size))


@asynccontextmanager
async def door(patch: pytest.MonkeyPatch, limit: int = 64 * MIB) -> AsyncIterator[Door]:
    """With times of tenths of seconds."""
    patch.setattr(held_module, "MESSAGE_MS_MAX", 300)
    patch.setattr(http_server, "STALL_MS_MAX", 300)
    patch.setattr(http_server, "_SWEEP_S", 0.05)
    app = Door(limit)
    sock = socket.create_server(("127.0.0.1", 0))
    app.port = sock.getsockname()[1]
    server = HttpServer(app, sock, app.seats)
    await server.start()
    try:
        yield app
    finally:
        await server.stop()


_STARTS = (b"GET /x", b"GET /x?", HEAD + b"x: ", HEAD + b"x")
_CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("start", [*_STARTS, _CHUNKED + b"1;", _CHUNKED + b"1\r\nx\r\n0\r\nx: "])
async def test_what_does_not_end_is_refused_soon(
    monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    """A header without an end was kept and copied for each piece: 25 MB of anybody's took seconds
    of the loop, and nothing bounded it but the time for a head.
    """
    async with door(monkeypatch) as app:
        # Its length ends it, not the time that a busy machine takes for it.
        monkeypatch.setattr(held_module, "MESSAGE_MS_MAX", 60_000)
        monkeypatch.setattr(http_server, "STALL_MS_MAX", 60_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
        writer.write(start)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                writer.write(b"a" * 16_384)
                await writer.drain()
        async with asyncio.timeout(30):
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert app.served == 0


async def test_silent_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opened connections and said nothing, or asked for nothing that one has to prove who
    one is for, shut the port for everybody.
    """
    ask = b"GET /0 HTTP/1.1\r\nhost: localhost\r\n"
    async with door(monkeypatch) as app, contextlib.AsyncExitStack() as stack:
        app.seats.limit = 2

        async def comes() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
            stack.callback(writer.close)
            return reader, writer

        async def asks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(ask + b"authorization: ann\r\n\r\n")
            async with asyncio.timeout(30):
                return await reader.readuntil(b"\r\n\r\n")

        first = await comes()
        assert b" 200 OK" in await asks(*first)
        for number in range(SEATS_EXTRA + 10):
            _, writer = await comes()
            writer.write(ask + b"\r\n" if number % 2 else b"")
        assert b" 200 OK" in await asks(*await comes())
        assert b" 200 OK" in await asks(*first)


async def answers(reader: asyncio.StreamReader) -> bytes:
    """Until the server closes."""
    async with asyncio.timeout(30):
        return await reader.read()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"POST /x HT",
        HEAD + b"x: y",
        HEAD + b"content-length: 9\r\n\r\n1234",
        HEAD + b"content-length: 90000\r\n\r\n" + b"1" * 80_000,
        HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\n1234\r\n",
        HEAD + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n",
    ],
)
async def test_a_client_that_stops_in_the_middle_is_told_and_closed(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Half requests would hold connections, and their bytes, for ever."""
    async with door(monkeypatch) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
        writer.write(sent)
        answer = await answers(reader)
        assert b"HTTP/1.1 408 Request Timeout\r\n" in answer
        told: dict[str, Any] = json.loads(answer.rpartition(b"\r\n\r\n")[2])
        assert "at least" in told["error"]["message"]
        await until(lambda: app.seats.taken == 0)
        assert app.seats.held.messages == 0
        writer.close()


async def test_a_client_that_is_slow_but_goes_on_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a body grows with what came of it: large ones take long."""
    monkeypatch.setattr(held_module, "MESSAGE_BYTES_PER_S_MIN", 1_000)
    async with door(monkeypatch) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
        writer.write(HEAD + b"content-length: 20000\r\n\r\n")
        for _ in range(10):
            writer.write(b"x" * 2_000)
            await asyncio.sleep(0.08)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_answers_that_nobody_reads_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that reads nothing would hold its answer for ever; all of them together, the node."""
    async with door(monkeypatch, 20 * MIB) as app:
        with socket.create_connection(("127.0.0.1", app.port)) as sock:
            sock.sendall(b"GET /20000000 HTTP/1.1\r\n\r\n")
            await until(lambda: app.served == 1)
            await until(lambda: app.seats.taken == 0)
        monkeypatch.setattr(http_server, "STALL_MS_MAX", 60_000)
        socks = [socket.create_connection(("127.0.0.1", app.port)) for _ in range(4)]
        for sock in socks:
            sock.sendall(b"GET /20000000 HTTP/1.1\r\n\r\n")
        await until(lambda: app.served == 5)
        await until(lambda: app.seats.held.dropped >= 2)
        assert app.seats.held.unread <= 20 * MIB
        for sock in socks:
            sock.close()
        await until(lambda: app.seats.taken == 0)
        assert app.seats.held.unread == 0


@pytest.mark.slow
async def test_bodies_under_way_have_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many large bodies at once would fill the memory; who comes too late is told, at once."""
    async with door(monkeypatch, 12 * MIB) as app:
        monkeypatch.setattr(held_module, "MESSAGE_MS_MAX", 600_000)
        first, second = [await asyncio.open_connection("127.0.0.1", app.port) for _ in range(2)]
        first[1].write(HEAD + b"content-length: %d\r\n\r\n" % (6 * MIB) + b"x" * (6 * MIB - 1))
        await until(lambda: app.seats.held.messages == 6 * MIB - 1)
        second[1].write(HEAD + b"content-length: %d\r\n\r\n" % (6 * MIB) + b"x" * (6 * MIB - 1))
        answer = await answers(second[0])
        assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"retry-after: 1\r\n" in answer
        first[1].write(b"x")
        assert (await first[0].readline()).startswith(b"HTTP/1.1 200")
        await until(lambda: app.seats.held.messages == 0)
        for _, writer in (first, second):
            writer.close()


async def test_g10_one_users_bodies_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user's half-sent bodies take all the room, or count for whoever used the connection
    before.
    """
    size = 6 * MIB
    head = b"content-length: %d\r\nauthorization: %b\r\n\r\n"
    async with door(monkeypatch, 15 * MIB) as app:
        monkeypatch.setattr(held_module, "MESSAGE_MS_MAX", 600_000)
        pairs = [await asyncio.open_connection("127.0.0.1", app.port) for _ in range(3)]
        first, second, anns = pairs
        second[1].write(HEAD + head % (4, b"ann") + b"abcd")
        assert (await second[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await second[0].readexactly(4)
        first[1].write(HEAD + head % (size, b"bob") + b"x" * (size - 1))
        await until(lambda: app.seats.held.bytes.of(app.users[b"bob"]) == size - 1)
        second[1].write(HEAD + head % (size, b"bob") + b"x" * (size - 1))
        assert b"user bob makes this node hold" in await answers(second[0])
        second[1].close()
        await until(lambda: app.seats.held.bytes.of(app.users[b"bob"]) == size - 1)
        anns[1].write(HEAD + head % (size, b"ann") + b"x" * (size - 1))
        await until(lambda: app.seats.held.bytes.of(app.users[b"ann"]) == size - 1)
        for reader, writer in (first, anns):
            writer.write(b"x")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await until(lambda: app.seats.held.bytes.used == 0)
        for _, writer in pairs:
            writer.close()


async def test_requests_in_one_read_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand pipelined requests would be parsed, and kept, before any other's turn comes; or
    the pieces of a body between them would be lost.
    """
    async with door(monkeypatch) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
        _, other = await asyncio.open_connection("127.0.0.1", app.port)
        large = HEAD + b"content-length: 300000\r\n\r\n" + b"y" * 300_000
        count = 2_000
        writer.write((b"GET /x HTTP/1.1\r\n\r\n" * count + large) * 2)
        await until(lambda: app.served > 0)
        other.write(b"GET /x HTTP/1.1\r\n\r\n")
        writer.write(b"GET /x HTTP/1.1\r\nconnection: close\r\n\r\n")
        answer = await answers(reader)
        assert answer.count(b"HTTP/1.1 200 OK") == 2 * count + 3
        assert answer.count(b"x" * 300_000) == 2
        assert app.served == 2 * count + 4
        writer.close()
        other.close()
