"""Clients that send garbage, stall, vanish or ask for too much end, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from kv.base.connection_slots import SEATS_EXTRA, Seats
from kv.base.rights import Identity
from sqlproxy.catalog.scram import read_verifier
from sqlproxy.values.errors import SqlError
from sqlproxy.wire import connection as connection_module
from tests.kit.waiting import until
from tests.sqlproxy.wire.conftest import Served

Serving = Callable[..., AbstractAsyncContextManager[Served]]


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def hello(version: int = 3 << 16, **parameters: str) -> bytes:
    body = struct.pack(">I", version)
    for name, value in ({"user": "bob", "database": "db"} | parameters).items():
        body += name.encode() + b"\0" + value.encode() + b"\0"
    return struct.pack(">I", len(body) + 5) + body + b"\0"


OPEN: list[Raw] = []


@pytest.fixture(autouse=True)
async def _leave_nothing_open() -> AsyncIterator[None]:
    yield
    while OPEN:
        await OPEN.pop().close()


class Raw:
    """A client made of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, served: Served) -> Raw:
        raw = cls(*await asyncio.open_connection("127.0.0.1", served.port, limit=1 << 22))
        OPEN.append(raw)
        return raw

    @classmethod
    async def logged_in(cls, served: Served) -> Raw:
        raw = await cls.open(served)
        raw.send(hello())
        await raw.until(b"Z")
        return raw

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def message(self) -> tuple[bytes, bytes]:
        head = await self.reader.readexactly(5)
        return head[:1], await self.reader.readexactly(int.from_bytes(head[1:]) - 4)

    async def until(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        found = [await self.message()]
        while found[-1][0] != kind:
            found.append(await self.message())
        return found

    async def last_words(self) -> bytes:
        """All that comes until the server hangs up."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


async def works(served: Served) -> None:
    """Another client gets its answer."""
    conn = await asyncpg.connect(host="127.0.0.1", port=served.port, user="al", database="db")
    assert await conn.fetchval("select $1::int4", 5) == 5
    await conn.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(100),
        b"\xff" * 100,
        struct.pack(">II", 8, 2 << 16),
        struct.pack(">II", 12, 3 << 16) + b"abcd",
        hello(user=""),
        hello(client_encoding="LATIN1"),
        hello(replication="database"),
        hello(options="-z"),
        struct.pack(">II", 8, 80877103) * 4,
        hello() + b"\x00\x00\x00\x00\x01",
        hello() + message(b"z", b"select 1"),
        hello() + message(b"R", b"\x00"),
        hello() + b"Q\xff\xff\xff\xff" + b"select 1",
        hello() + b"S\x00\x00\x00\x03" + b"select 1",
        hello() + message(b"p", b"password"),
        hello() + message(b"P", b"\0fail") + message(b"p", b"password"),
    ],
)
async def test_garbage_is_told_and_hung_up_on(served: Served, data: bytes) -> None:
    """A peer that speaks something else kept its connection, or took the server down."""
    raw = await Raw.open(served)
    raw.send(data)
    words = await raw.last_words()
    assert b"FATAL\0" in words
    await raw.close()
    await until(lambda: served.server.connections == 0)
    await works(served)


async def test_random_messages_never_disturb_others(served: Served) -> None:
    """A stream of well-framed nonsense broke the server or another client's session."""
    chance = random.Random(7)
    for _ in range(60):
        raw = await Raw.logged_in(served)
        for _ in range(12):
            body = chance.choice(
                (b"", b"\0", b"\0\0\0", b"S\0", b"P\0", b"select 1\0", b"\0select 1\0\0\0")
            )
            if chance.random() < 0.3:
                body = chance.randbytes(chance.randrange(20))
            raw.send(message(bytes([chance.choice(b"BCDEFHPQSXcdfpzv")]), body))
        raw.send(message(b"X", b""))
        with contextlib.suppress(ConnectionResetError):  # it may have said X before
            await raw.last_words()
        await raw.close()
    await until(lambda: served.server.connections == 0)
    assert served.sessions.shared.closed == len(served.sessions.opened)
    await works(served)


async def test_oversized_statement_is_refused_and_the_session_goes_on(served: Served) -> None:
    """SQL over the size limit ended the connection or filled the memory."""
    async with await psycopg.AsyncConnection.connect(served.url, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="32 MiB"):
            await conn.execute("select '" + "x" * (33 << 20) + "'")
        assert (await (await conn.execute("select 3")).fetchone() or [0])[0] == 3


async def test_large_messages_share_what_a_node_has_for_them(served: Served) -> None:
    """Thousands of clients with a large statement each would take all memory."""
    served.server.large.limit = 3 << 20
    first, second = await Raw.logged_in(served), await Raw.logged_in(served)
    half = b"Q" + struct.pack(">I", 2 << 20) + b"x" * 100_000
    first.send(half)
    await until(lambda: served.server.large.used > 0)
    second.send(half)
    assert b"53200" in await second.last_words()
    await first.close()
    await until(lambda: served.server.large.used == 0)
    await works(served)


async def test_vanished_client_has_its_statement_canceled_and_its_session_closed(
    served: Served,
) -> None:
    """A transaction of a client that is gone went on holding what it holds."""
    raw = await Raw.logged_in(served)
    raw.send(message(b"Q", b"begin; sleep\0"))
    await served.sessions.shared.running.wait()
    await raw.close()
    await until(lambda: served.sessions.shared.closed == 1)
    assert served.sessions.shared.canceled == 1
    await works(served)


@pytest.mark.parametrize(
    "data",
    [
        message(b"Q", b"begin\0"),
        message(b"Q", b"copy t from stdin\0") + message(b"d", b"1\ta\n"),
        message(b"Q", b"copy t from stdin\0") + b"d\x00\x00\x10\x00half",
        b"Q\x00\x00\x01\x00select",
        message(b"P", b"s\0select 1\0\0\0") + message(b"B", b"\0s\0\0\0\0\0\0\0"),
    ],
)
async def test_clients_that_vanish_in_the_middle_of_anything(served: Served, data: bytes) -> None:
    """A session was left open, or what was copied half was kept."""
    raw = await Raw.logged_in(served)
    raw.send(data)
    await asyncio.sleep(0.05)
    await raw.close()
    await until(lambda: served.sessions.shared.closed == 1)
    assert served.sessions.shared.copied == []
    assert served.server.connections == 0


@pytest.mark.few(1)
async def test_stalled_clients_are_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that stop in their login, in a message or in a transaction stayed forever."""
    monkeypatch.setattr(connection_module, "SQL_STARTUP_MS_MAX", 100)
    monkeypatch.setattr(connection_module, "SQL_MESSAGE_MS_MAX", 100)
    silent, half = await Raw.open(served), await Raw.logged_in(served)
    half.send(b"Q\x00\x00\x01\x00select")
    idle, working = await Raw.logged_in(served), await Raw.logged_in(served)
    served.sessions.opened[-2].idle_ms_max = 100
    idle.send(message(b"Q", b"begin\0"))
    assert b"authentication due to timeout" in await silent.last_words()
    assert b"08P01" in await half.last_words()
    assert b"25P03" in await idle.last_words()
    working.send(message(b"Q", b"select 1\0"))
    assert (await working.until(b"Z"))[-1] == (b"Z", b"I")
    assert served.server.counters.expired == 3
    for raw in (silent, half, idle, working):
        await raw.close()


@pytest.mark.slow
async def test_client_that_does_not_read_waits_alone_and_is_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows nobody reads filled the memory, or the others had to wait for them."""
    monkeypatch.setattr(connection_module, "STALL_MS_MAX", 1_500)
    raw = await Raw.logged_in(served)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    raw.send(message(b"Q", b"select * from wide(100000)\0"))
    await asyncio.sleep(0.3)
    portal = next(iter(served.server._connections))
    assert len(portal.out) < 4 << 20
    await works(served)
    await until(lambda: served.server.connections == 0)
    await until(lambda: served.sessions.shared.closed == 2)
    await raw.close()


_LONG = b"'" + b"x" * 10_000 + b"'"
_RUN = message(b"B", b"\0s\0\0\0\0\0\0\0") + message(b"E", bytes(5))


@pytest.mark.parametrize(
    ("prepared", "again"),
    [
        (b", ".join([b"1 as c%d" % n for n in range(400)]), message(b"D", b"Ss\0") + b"H\0\0\0\4"),
        (_LONG, _RUN + message(b"H", b"")),
        (_LONG, _RUN + message(b"S", b"")),
        (b"1", message(b"Q", b"select " + _LONG + b"\0")),
    ],
    ids=["described", "flushed", "synced", "asked"],
)
async def test_who_asks_more_and_more_and_reads_nothing_is_answered_little(
    served: Served, prepared: bytes, again: bytes
) -> None:
    """13 bytes had 10 KB written each time, of which nobody took any, until the memory was full."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", served.port))
    raw = Raw(*await asyncio.open_connection(sock=sock))
    OPEN.append(raw)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    raw.send(hello() + message(b"P", b"s\0select " + prepared + b"\0\0\0"))
    raw.send(again * 2_000)
    (end,) = await until(lambda: list(served.server._connections))
    await until(lambda: end.stalled)
    for _ in range(50):
        await asyncio.sleep(0.002)
        assert end._transport is not None
        assert end._transport.get_write_buffer_size() + len(end.out) < 1 << 20
    await works(served)


async def test_others_have_the_loop_in_the_middle_of_a_pipeline(served: Served) -> None:
    """3,000 small statements that come at once kept all others of the process waiting for 0.2 s."""
    raw, shared = await Raw.logged_in(served), served.sessions.shared
    raw.send(message(b"P", b"s\0select 1\0\0\0") + _RUN * 1_000 + message(b"S", b""))
    most = before = 0
    async with asyncio.timeout(30):
        while shared.closed_portals < 1_000:
            await asyncio.sleep(0)
            most, before = max(most, shared.closed_portals - before), shared.closed_portals
    assert most <= 64
    assert [kind for kind, _ in await raw.until(b"Z")].count(b"D") == 1_000


async def test_more_clients_than_allowed_are_told(serving: Serving) -> None:
    """The limit was not held, or a client over it saw only a closed socket."""
    async with serving(connections_max=2) as served:
        clients = [await Raw.logged_in(served) for _ in range(2)]
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            await psycopg.AsyncConnection.connect(served.url)
        await clients[0].close()
        await until(lambda: served.server.connections == 1)
        await works(served)
        await clients[1].close()


async def test_each_login_is_told(serving: Serving) -> None:
    """Whoever kept a log heard of failed logins alone, and not of who tried too often."""
    async with serving(users={"bob": "secret"}) as served:
        told: list[tuple[str, str, str, str]] = []

        def on_login(who: Identity, address: str, refused: SqlError | None) -> None:
            code = refused.sqlstate if refused is not None else ""
            told.append((who.name, who.credential, address, code))

        served.server.on_login = on_login
        at, good, bad = "127.0.0.1", "password=secret", "password=guess"
        await (await psycopg.AsyncConnection.connect(f"{served.url} {good}")).close()
        for password in (good, *[bad] * 9):
            with contextlib.suppress(psycopg.OperationalError):
                conn = await psycopg.AsyncConnection.connect(f"{served.url} {password}")
                await conn.close()
        assert told[:3] == [*[("bob", "password", at, "")] * 2, ("bob", "none", at, "28P01")]
        assert len(told) == 11
        assert told[-1] == ("bob", "none", at, "53300")


async def test_silent_connections_keep_nobody_out(serving: Serving) -> None:
    """Whoever opened connections and said nothing shut the port for everybody."""
    async with serving(connections_max=2, seats=Seats(2)) as served:
        first = await Raw.logged_in(served)
        for _ in range(SEATS_EXTRA + 10):
            await Raw.open(served)
        await works(served)
        first.send(message(b"Q", b"select 1\0"))
        await first.until(b"Z")


async def test_stop_tells_idle_clients_and_lets_statements_end(serving: Serving) -> None:
    """A node that stops cut statements in the middle, or waited forever for idle clients."""
    async with serving() as served:
        idle, busy = await Raw.logged_in(served), await Raw.logged_in(served)
        busy.send(message(b"Q", b"sleep\0"))
        await served.sessions.shared.running.wait()
        stopping = asyncio.create_task(served.server.stop(grace_s=5))
        assert b"57P01" in await idle.last_words()
        sleeping = served.sessions.opened[-1]._wait
        assert sleeping is not None
        sleeping.set_result(None)
        words = await busy.last_words()
        assert words.index(b"SLEEP") < words.index(b"57P01")
        await stopping
        assert served.server.connections == 0
        assert served.sessions.shared.closed == 2
        for raw in (idle, busy):
            await raw.close()


async def test_stop_cancels_what_does_not_end(serving: Serving) -> None:
    """One endless statement kept a node from stopping."""
    async with serving() as served:
        raw = await Raw.logged_in(served)
        raw.send(message(b"Q", b"sleep\0"))
        await served.sessions.shared.running.wait()
        await served.server.stop(grace_s=0.05)
        assert b"57014" in await raw.last_words()
        assert served.sessions.shared.closed == 1
        await raw.close()


async def test_cancel_needs_the_right_key(served: Served) -> None:
    """Anybody could cancel anybody's statement; 3.2's keys are longer, and theirs work, too."""
    raw = await Raw.open(served)
    raw.send(hello(3 << 16 | 2))
    key = dict(await raw.until(b"Z"))[b"K"]
    assert len(key) == 4 + 32
    raw.send(message(b"Q", b"sleep\0"))
    await served.sessions.shared.running.wait()
    for wrong in (bytes(32), key[4:8], b"x" * 32):
        other = await Raw.open(served)
        body = struct.pack(">I", 80877102) + key[:4] + wrong
        other.send(struct.pack(">I", len(body) + 4) + body)
        assert await other.last_words() == b""
        await other.close()
    assert served.sessions.shared.canceled == 0
    other = await Raw.open(served)
    other.send(struct.pack(">II", 12 + 32, 80877102) + key)
    assert await other.last_words() == b""
    assert b"57014" in b"".join(body for _, body in await raw.until(b"Z"))
    await raw.close()
    await other.close()


async def test_cancel_ends_a_copy_that_waits_for_rows(served: Served) -> None:
    """A COPY whose client sends nothing more could not be ended by its key."""
    raw = await Raw.open(served)
    raw.send(hello())
    key = dict(await raw.until(b"Z"))[b"K"]
    raw.send(message(b"Q", b"copy t from stdin\0") + message(b"d", b"1\ta\n"))
    assert (await raw.until(b"G"))[-1][0] == b"G"
    other = await Raw.open(served)
    other.send(struct.pack(">II", 16, 80877102) + key)
    assert b"57014" in b"".join(body for _, body in await raw.until(b"Z"))
    raw.send(message(b"d", b"2\tb\n") + message(b"c", b"") + message(b"Q", b"select 1\0"))
    assert (await raw.until(b"Z"))[-1] == (b"Z", b"I")
    assert served.sessions.shared.copied == []


async def test_formats_and_zones_of_one_statement_are_not_kept_without_end(
    served: Served,
) -> None:
    """A client that asks for ever other formats made a statement's compiled forms grow."""
    raw = await Raw.logged_in(served)
    raw.send(message(b"P", b"s\0select " + b", ".join([b"1"] * 8) + b"\0\0\0"))
    for n in range(200):
        codes = [n >> bit & 1 for bit in range(8)]
        bind = b"\0s\0\0\0\0\0" + struct.pack(">9h", 8, *codes)
        raw.send(message(b"B", bind) + message(b"E", bytes(5)))
    raw.send(message(b"S", b""))
    kinds = [kind for kind, _ in await raw.until(b"Z")]
    assert kinds.count(b"D") == 200
    statement = served.sessions.opened[-1].statements["s"]
    assert len(statement.wire["UTC"].outputs) <= 64


async def test_versions_and_options_are_negotiated(served: Served) -> None:
    """Clients of the next protocol could not connect at all."""
    for version, told in ((3 << 16 | 9, 3 << 16 | 2), (3 << 16 | 1, 3 << 16)):
        raw = await Raw.open(served)
        raw.send(hello(version, **{"_pq_.shiny": "1"}))
        found = await raw.until(b"Z")
        assert found[0] == (b"v", struct.pack(">II", told, 1) + b"_pq_.shiny\0")
        await raw.close()


async def test_encryption_requests_are_answered(served: Served) -> None:
    """Clients that ask for TLS or GSSAPI first could not go on without."""
    raw = await Raw.open(served)
    raw.send(struct.pack(">II", 8, 80877104))
    assert await raw.reader.readexactly(1) == b"N"
    raw.send(struct.pack(">II", 8, 80877103))
    assert await raw.reader.readexactly(1) == b"N"
    raw.send(hello(options="-c a=b --c-d=e\\ f -cx=y", DateStyle="ISO"))
    await raw.until(b"Z")
    assert served.sessions.shared.settings == {"a": "b", "c_d": "e f", "x": "y", "DateStyle": "ISO"}
    await raw.close()


async def test_internal_errors_tell_clients_nothing_and_keep_the_session(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug's message could hold users' values; the log has the place and no text of users."""
    raw = await Raw.logged_in(served)
    raw.send(message(b"Q", b"crash\0"))
    words = b"".join(body for _, body in await raw.until(b"Z"))
    assert b"XX000" in words
    assert b"secret" not in words
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text
    raw.send(message(b"Q", b"select 1\0"))
    assert (await raw.until(b"Z"))[-1] == (b"Z", b"I")
    await raw.close()


async def test_after_an_error_nothing_runs_until_sync(served: Served) -> None:
    """Statements that were sent behind one that failed were executed."""
    raw = await Raw.logged_in(served)
    insert = message(b"P", b"\0insert into log values (1)\0\0\0")
    run = message(b"B", b"\0\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0")
    raw.send(message(b"P", b"\0fail\0\0\0") + run + insert + run + message(b"S", b""))
    kinds = [kind for kind, _ in await raw.until(b"Z")]
    assert kinds == [b"1", b"2", b"E", b"Z"]
    assert served.sessions.shared.log == []
    raw.send(insert + run + message(b"S", b""))
    assert [kind for kind, _ in await raw.until(b"Z")] == [b"1", b"2", b"C", b"Z"]
    assert served.sessions.shared.log == ["1"]
    await raw.close()


async def test_portals_give_rows_in_the_pieces_that_are_asked_for(served: Served) -> None:
    """Execute with a row limit sent all, or lost its place."""
    raw = await Raw.logged_in(served)
    raw.send(message(b"P", b"\0select * from rows(5)\0\0\0") + message(b"B", b"p\0\0\0\0\0\0\0\0"))
    execute = message(b"E", b"p\0\0\0\0\x02")
    raw.send(message(b"D", b"Pp\0") + execute * 3 + message(b"H", b""))
    kinds = [(await raw.message())[0] for _ in range(11)]
    assert kinds == [b"1", b"2", b"T", b"D", b"D", b"s", b"D", b"D", b"s", b"D", b"C"]
    raw.send(message(b"C", b"Pp\0") + message(b"S", b""))
    assert [kind for kind, _ in await raw.until(b"Z")] == [b"3", b"Z"]
    raw.send(execute + message(b"S", b""))
    assert b"34000" in b"".join(body for _, body in await raw.until(b"Z"))
    await raw.close()


@pytest.mark.parametrize(
    ("data", "sqlstate"),
    [
        (message(b"P", b"s\0select 1\0\0\0") * 2, b"42P05"),
        (message(b"B", b"\0nosuch\0\0\0\0\0\0\0"), b"26000"),
        (message(b"D", b"Snosuch\0"), b"26000"),
        (message(b"E", b"nosuch\0\0\0\0\0"), b"34000"),
        (message(b"P", b"\0select $1\0\0\0") + message(b"B", b"\0\0\0\0\0\0\0\0"), b"08P01"),
        (message(b"P", b"\0select 1\0\0\0") + message(b"B", b"\0\0\0\0\0\0\0\x01\0\x05"), b"22023"),
        (message(b"F", b"\0\0\0\1\0\0\0\0\0\0"), b"0A000"),
        (message(b"F", b"\0\0\0\0"), b"08P01"),
        (message(b"B", b"\x00\x00\xff\xff"), b"08P01"),
        (message(b"Q", b"select 1"), b"08P01"),
        (message(b"E", b"\x00"), b"08P01"),
        (message(b"P", b"\0\xff\xff\0\0\0"), b"22021"),
        (message(b"P", b"n" * 1_001 + b"\0select 1\0\0\0"), b"42622"),
        (message(b"P", b"\0select 1\0\0\0") + message(b"B", b"p" * 1_001 + bytes(8)), b"42622"),
    ],
)
async def test_mistakes_in_the_extended_protocol_have_their_sqlstates(
    served: Served, data: bytes, sqlstate: bytes
) -> None:
    """A driver could not tell what it did wrong, or lost its connection for it."""
    raw = await Raw.logged_in(served)
    raw.send(data + message(b"S", b""))
    found = await raw.until(b"Z")
    assert sqlstate in b"".join(body for kind, body in found if kind == b"E")
    assert found[-1] == (b"Z", b"I")
    await raw.close()


# -- passwords and TLS


async def test_passwords_are_asked_for_once_there_are_users(serving: Serving) -> None:
    """A user got in without its password, or could not with it."""
    async with serving({"bob": "sëcret"}) as served:
        for url, right in (
            (f"{served.url} password=sëcret", True),
            (f"{served.url} password=wrong", False),
            (served.url.replace("bob", "eve") + " password=sëcret", False),
        ):
            if right:
                async with await psycopg.AsyncConnection.connect(url) as conn:
                    made = conn.pgconn.encrypt_password(b"x", b"bob", b"scram-sha-256")
                    assert read_verifier(made.decode()).iterations == 4096
                continue
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                await psycopg.AsyncConnection.connect(url)
        conn: Any = await asyncpg.connect(
            host="127.0.0.1", port=served.port, user="bob", password="sëcret", database="db"
        )
        await conn.close()


@dataclass
class _Tls:
    """sqlproxy.wire.startup.Tls of one certificate."""

    server: ssl.SSLContext
    hashed: bytes

    def end_point(self) -> bytes:
        return self.hashed


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> _Tls:
    """A certificate of our own, with its hash for channel binding."""
    import hashlib

    directory: Path = tmp_path_factory.mktemp("tls")
    key, cert = directory / "key.pem", directory / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-sha256",
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    der = ssl.PEM_cert_to_DER_cert(cert.read_text())
    return _Tls(context, hashlib.sha256(der).digest())


async def test_tls_with_channel_binding(serving: Serving, tls: _Tls) -> None:
    """An encrypted login did not work, or was not bound to its certificate."""
    async with serving({"bob": "secret"}, tls=tls) as served:
        url = served.url.replace("sslmode=prefer", "sslmode=require channel_binding=require")
        async with await psycopg.AsyncConnection.connect(f"{url} password=secret") as conn:
            assert conn.pgconn.ssl_in_use
            cursor = await conn.execute("select * from wide(300)")
            assert len(await cursor.fetchall()) == 300
        wrong = _Tls(tls.server, b"another certificate's hash")
        served.server.tls = wrong
        with pytest.raises(psycopg.OperationalError, match="channel binding"):
            await psycopg.AsyncConnection.connect(f"{url} password=secret")


async def test_bytes_ahead_of_the_handshake_are_refused(serving: Serving, tls: _Tls) -> None:
    """Somebody between the two could put a statement in front of the encrypted ones."""
    async with serving(tls=tls) as served:
        raw = await Raw.open(served)
        raw.send(struct.pack(">II", 8, 80877103) + hello())
        assert b"unencrypted data" in await raw.last_words()
        await raw.close()
