"""`TlsStream`, both ends in memory, whatever the pieces that the network makes of what is sent."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import datetime
import socket
import ssl
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.tls import NODE, Tls, node_tls
from kv.base.tls_stream import TlsStream
from kvorum.security import certificates

RECORD = 1 << 14
SIZES = st.sampled_from([1, 2, 100, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD, 300_000])


class Wire(asyncio.Transport):
    """The transport below an end: what it sends waits until the test carries it over."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.reading, self.ended = True, False
        self.closed = asyncio.Event()

    @property
    def gone(self) -> bool:
        return self.closed.is_set()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended
        assert not self.gone
        self.sent += data

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed.set()

    def abort(self) -> None:
        self.closed.set()


class Heard(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> None:
        self.told.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(f"lost {type(exc).__name__}" if exc else "lost")


class Filled(asyncio.BufferedProtocol):
    """Has buffers of its own, smaller than a record."""

    def __init__(self) -> None:
        self.room, self.data = bytearray(1_000), bytearray()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.room)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.room[:nbytes]


class Two:
    """A client's and a server's end, joined by two wires."""

    def __init__(self, tls: Tls, server: asyncio.BaseProtocol | None = None) -> None:
        self.heard = Heard()
        self.served = server or Heard()
        self.client, self.server = tls.dialed(self.heard, "anywhere"), tls.accepted(self.served)
        self.up, self.down = Wire(), Wire()
        self.server.connection_made(self.down)
        self.client.connection_made(self.up)

    def carry(self, cuts: Random | None = None) -> None:
        """Everything that is under way arrives, whole or in pieces."""
        while (self.up.sent and self.down.reading) or (self.down.sent and self.up.reading):
            for wire, end, other in (
                (self.up, self.server, self.down),
                (self.down, self.client, self.up),
            ):
                while wire.sent and other.reading:
                    size = len(wire.sent)
                    if cuts is not None:
                        size = cuts.choice([1, 4, 5, 6, 100, RECORD, size])
                    arrive(end, take(wire, size))


def take(wire: Wire, size: int) -> bytes:
    data = bytes(wire.sent[:size])
    del wire.sent[:size]
    return data


def arrive(end: TlsStream, data: bytes) -> None:
    """As a loop does it."""
    while data:
        room = end.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        end.buffer_updated(count)
        data = data[count:]


def noise(size: int) -> bytes:
    return Random(size).randbytes(size)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Of a node."""
    at: Path = tmp_path_factory.mktemp("tls")
    now = datetime.datetime.now(datetime.UTC)
    ca = certificates.authority(now)
    certificates.save(at, certificates.AUTHORITY, ca)
    certificates.save(at, NODE, certificates.node(ca, ["localhost"], now))
    return node_tls(at)


@settings(max_examples=30, deadline=None)
@given(
    sent=st.lists(st.tuples(st.booleans(), SIZES), max_size=8),
    seed=st.none() | st.integers(0, 1_000),
    buffered=st.booleans(),
)
def test_what_is_sent_arrives(
    tls: Tls, sent: list[tuple[bool, int]], seed: int | None, buffered: bool
) -> None:
    """Bytes were lost, doubled or changed places at the edges of records or of reads."""

    async def talk() -> None:
        cuts = None if seed is None else Random(seed)
        two = Two(tls, Filled() if buffered else None)
        two.carry(cuts)
        await two.client.handshake()
        await two.server.handshake()
        to_server, to_client = bytearray(), bytearray()
        for upwards, size in sent:
            (two.client if upwards else two.server).write(noise(size))
            (to_server if upwards else to_client).extend(noise(size))
            if size % 2:
                two.carry(cuts)
        two.carry(cuts)
        assert two.heard.data == to_client
        assert cast(Heard, two.served).data == to_server

    asyncio.run(talk())


async def test_a_reader_that_pauses_is_not_read(tls: Tls) -> None:
    """What came with the handshake's end was delivered to who did not read, or never."""

    class Shy(Heard):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast(TlsStream, transport).pause_reading()

    two = Two(tls, Shy())
    served = cast(Shy, two.served)
    arrive(two.server, take(two.up, len(two.up.sent)))
    arrive(two.client, take(two.down, len(two.down.sent)))
    two.client.write(b"first")
    arrive(two.server, take(two.up, len(two.up.sent)))  # with the last part of the handshake
    await asyncio.sleep(0)
    assert not served.data
    two.server.resume_reading()
    await asyncio.sleep(0)
    assert served.data == b"first"


@pytest.mark.parametrize("cut", [1, 5, 6, 5_000, -1])
async def test_what_came_early_is_read_with_what_came_late(tls: Tls, cut: int) -> None:
    """A large record before a small one was read into a buffer for the small one, and stayed."""
    two = Two(tls)
    arrive(two.server, take(two.up, len(two.up.sent)))
    arrive(two.client, take(two.down, len(two.down.sent)))
    two.client.write(noise(10_000))
    arrive(two.server, take(two.up, len(two.up.sent) + min(cut, 0)))
    two.client.write(b"late")
    rest = take(two.up, len(two.up.sent))
    arrive(two.server, rest[: max(cut, 0)])
    arrive(two.server, rest[max(cut, 0) :])
    assert cast(Heard, two.served).data == noise(10_000) + b"late"


async def test_last_words_arrive_and_then_the_end(tls: Tls) -> None:
    """A close lost what was written before it, or the other end took it for a break."""
    two = Two(tls)
    two.carry()
    two.server.write(b"bye")
    two.server.close()
    two.client.write(b"what still comes")
    assert two.server.is_closing()
    assert two.down.ended
    assert not two.down.gone  # it hears the client out
    two.carry()
    assert two.heard.data == b"bye"
    assert two.heard.told == ["made", "eof"]
    assert two.up.gone
    two.client.connection_lost(None)
    assert two.heard.told == ["made", "eof", "lost"]
    two.server.connection_lost(None)
    served = cast(Heard, two.served)
    assert (served.data, served.told) == (b"", ["made", "lost"])


async def test_a_break_is_no_end(tls: Tls) -> None:
    """Whoever cuts a connection could make half of an answer look like a whole one."""
    two = Two(tls)
    two.carry()
    two.server.write(b"half")
    two.carry()
    two.client.eof_received()
    two.client.connection_lost(None)
    assert two.heard.told == ["made", "lost"]


async def test_what_was_changed_on_the_way_ends_it(tls: Tls) -> None:
    """A flipped bit reached the protocol, or what was well before it did not."""
    two = Two(tls)
    two.carry()
    two.client.write(b"well")
    two.carry()
    two.client.write(b"ill")
    two.up.sent[-1] ^= 1
    two.carry()
    served = cast(Heard, two.served)
    assert served.data == b"well"
    assert two.down.gone
    two.server.connection_lost(None)
    assert served.told == ["made", "lost SSLError"]
    two.server.write(b"nobody hears it")


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\x16\x03\x01\xff\xff"]
)
async def test_no_handshake_no_connection(tls: Tls, garbage: bytes) -> None:
    """A protocol heard of somebody who had not shaken hands."""
    served = Heard()
    server, wire = tls.accepted(served), Wire()
    server.connection_made(wire)
    arrive(server, garbage)
    arrive(server, garbage)
    server.connection_lost(None)
    with pytest.raises(OSError, match=r"."):
        await server.handshake()
    assert served.told == []


async def test_a_client_that_stays_after_the_end_is_let_go(
    tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never closes kept the socket of an ended connection."""
    monkeypatch.setattr("kv.base.tls_stream._SHUTDOWN_S", 0.0)
    two = Two(tls)
    two.carry()
    two.server.close()
    await two.down.closed.wait()


@pytest.mark.parametrize("again", ["server", "protocol"])
async def test_a_second_close_changes_nothing(tls: Tls, again: str) -> None:
    """What was written and not sent was thrown away, when the end came from two sides."""

    class Closing(Heard):
        def eof_received(self) -> None:
            two.server.close()

    two = Two(tls, Closing())
    two.carry()
    two.server.write(b"bye")
    if again == "protocol":
        two.client.close()
        arrive(two.server, take(two.up, len(two.up.sent)))
    else:
        two.server.close()
        two.server.close()
    assert two.down.ended
    assert not two.down.gone


class Rekeying:
    """A client of OpenSSL itself, which changes its keys when it is told; Python's cannot."""

    def __init__(self, sock: socket.socket) -> None:
        self._c = ctypes.CDLL(ctypes.util.find_library("ssl") or "libssl.so.3")
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self._c, name).restype = ctypes.c_void_p
        context = ctypes.c_void_p(self._c.SSL_CTX_new(ctypes.c_void_p(self._c.TLS_client_method())))
        self._ssl = ctypes.c_void_p(self._c.SSL_new(context))
        self._c.SSL_set_fd(self._ssl, sock.fileno())
        assert self._c.SSL_connect(self._ssl) == 1

    def rekey(self, times: int, *, ask: bool) -> None:
        """Until the server has had enough."""
        for _ in range(times):
            self._c.SSL_key_update(self._ssl, int(ask))
            if self._c.SSL_do_handshake(self._ssl) != 1:
                return

    def write(self, data: bytes) -> None:
        assert self._c.SSL_write(self._ssl, data, len(data)) == len(data)


@pytest.mark.parametrize("ask", [False, True])
async def test_keys_are_not_changed_all_the_time(tls: Tls, *, ask: bool) -> None:
    """One connection, before it logged in, kept the loop for seconds, and filled its memory with
    answers that were not read; changes of keys now and then have to work.
    """
    done = asyncio.Event()

    class Served(Heard):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.data == b"well" * 10:
                done.set()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            done.set()

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    served, loop = Served(), asyncio.get_running_loop()
    end = tls.accepted(served)
    with theirs:
        dialing = asyncio.create_task(asyncio.to_thread(Rekeying, theirs))
        await loop.connect_accepted_socket(lambda: end, ours)
        await end.handshake()
        client = await dialing

        def honest() -> None:
            for _ in range(10):
                client.rekey(5, ask=ask)
                client.write(b"well")

        await asyncio.to_thread(honest)
        await done.wait()
        assert served.told == ["made"]
        done.clear()
        await asyncio.to_thread(client.rekey, 5_000, ask=ask)
        await done.wait()
    assert served.told == ["made", "lost SSLError"]


async def test_who_stops_waiting_leaves_nothing(tls: Tls) -> None:
    """A handshake that was given up left its socket open."""
    server, wire = tls.accepted(Heard()), Wire()
    server.connection_made(wire)
    waiting = asyncio.create_task(server.handshake())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert wire.gone
    arrive(server, b"\x16")


async def test_nobody_negotiates_anew(tls: Tls) -> None:
    """A client of TLS 1.2 could make the server do handshakes for ever on one connection."""
    assert tls.server.options & ssl.OP_NO_RENEGOTIATION
    assert Tls(tls.ca).peer.options & ssl.OP_NO_RENEGOTIATION
