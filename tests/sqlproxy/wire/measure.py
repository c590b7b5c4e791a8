"""What the wire costs: CPU per prepared point SELECT, bytes per idle connection, COPY and rows/s.

    python -m tests.sqlproxy.wire.measure [seconds]

The session is as good as none, so that the figures are the wire's alone. Clients are another
process; a query is Bind, Describe, Execute, Sync in one packet, as libpq sends prepared ones.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import uvloop

from kv.base.accounts import USER, Account, Use
from kv.base.adapters import SystemClock, SystemRng
from sqlproxy.pg import oids
from sqlproxy.pg.answers import CopyFormat, Field
from sqlproxy.pg.copying import reader
from sqlproxy.pg.copying_out import header, row_writer
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.memory import Budget, Share
from sqlproxy.wire.rows import row_encoder
from sqlproxy.wire.seam import Channel
from sqlproxy.wire.server import SqlServer

FIELDS = (Field("id", oids.INT4), Field("name", oids.TEXT), Field("balance", oids.INT8))
ROW = (7, "a name of some length", 123_456_789)


class Statement:
    parameters = (oids.INT4,)
    fields = FIELDS
    wire: Any = None


class Portal:
    __slots__ = ("done", "fields", "wire")
    copy_in = copy_out = None
    ends = False

    def __init__(self) -> None:
        self.fields = FIELDS
        self.wire: Any = None
        self.done = False

    async def fetch(self, rows_max: int) -> Sequence[Any]:
        if self.done:
            return ()
        self.done = True
        return (ROW,)

    def tag(self) -> str:
        return "SELECT 1"

    async def close(self) -> None:
        pass


class Session:
    status: Any = "I"
    idle_ms_max = 0
    lone = False
    syncs = 0

    def __init__(self) -> None:
        self.channel = Channel()
        self.budget = Budget(Share())
        self.use = Use(Account(USER, "ann", lambda: 0, shown=True))
        self.statements: dict[str, Any] = {}
        self.portals: dict[str, Any] = {}

    async def split(self, text: str) -> list[str]:
        return [text]

    async def parse(self, text: str, oids: Sequence[int]) -> Any:
        return Statement()

    async def look_again(self) -> None:
        """Nothing is declared here."""

    async def bind(self, statement: Any, values: Sequence[Any]) -> Any:
        return Portal()

    async def guard(self, work: Awaitable[Any]) -> Any:
        return await work

    async def failed(self, error: BaseException) -> None:
        pass

    async def word(self, error: BaseException) -> None:
        """It may see all."""

    async def sync(self) -> None:
        self.portals.clear()
        Session.syncs += 1

    def cancel(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Sessions:
    async def open(self, identity: object, address: str, database: str, settings: Any) -> Any:
        return Session()

    async def verifier(self, user: str) -> str | None:
        return None

    async def trusted(self, loopback: bool) -> bool:
        return True


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


STARTUP = b"\x00\x03\x00\x00user\x00bob\x00\x00"
HELLO = struct.pack(">I", len(STARTUP) + 4) + STARTUP
BIND = b"\x00s\x00\x00\x01\x00\x01\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07\x00\x01\x00\x01"
POINT = message(b"B", BIND) + message(b"D", b"P\x00") + message(b"E", bytes(5)) + message(b"S", b"")


def connected(port: int) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(HELLO)
    while not s.recv(65536).endswith(b"Z\x00\x00\x00\x05I"):
        pass
    return s


def clients(port: int, count: int, seconds: float) -> None:
    """So many connections with a query under way each, one thread."""
    import select

    sockets = [connected(port) for _ in range(count)]
    for s in sockets:
        s.sendall(message(b"P", b"s\x00select\x00\x00\x00") + message(b"S", b""))
        s.recv(65536)
    poll = select.epoll()
    by_fd = {s.fileno(): s for s in sockets}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    for s in sockets:
        s.sendall(POINT)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for fd, _ in poll.poll():
            by_fd[fd].recv(65536)
            by_fd[fd].sendall(POINT)


def idlers(port: int, count: int, ready: Any, leave: Any) -> None:
    sockets = [connected(port) for _ in range(count)]
    ready.set()
    leave.wait()
    for s in sockets:
        s.close()


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(seconds: float) -> None:
    spawn = multiprocessing.get_context("spawn")
    server = SqlServer(Sessions(), clock=SystemClock(), rng=SystemRng())
    port = await server.start()
    before = resident()
    ready, leave = spawn.Event(), spawn.Event()
    process = spawn.Process(target=idlers, args=(port, 2_000, ready, leave))
    process.start()
    await asyncio.to_thread(ready.wait)
    print(f"{(resident() - before) / 2_000:,.0f} bytes per idle connection (2,000 of them)")  # noqa: T201
    leave.set()
    process.join()
    for count in (1, 16, 64):
        process = spawn.Process(target=clients, args=(port, count, seconds + 2))
        process.start()
        await asyncio.sleep(1.5)  # the process starts
        before, cpu, wall = Session.syncs, time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        done = Session.syncs - before
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        await asyncio.to_thread(process.join)
        each = f"{cpu / done * 1e6:5.1f} µs CPU per query"
        print(f"{count:3} clients: {each}, {done / wall:,.0f}/s")  # noqa: T201
    await server.stop(0.1)


def rows() -> None:
    many = [(i, f"name {i}", i * 1000) for i in range(200_000)]
    types = tuple(f.oid for f in FIELDS)
    for label, code in (("text", 0), ("binary", 1)):
        out = bytearray()
        start = time.process_time()
        row_encoder(types, (code,) * 3, DEFAULT)(many, out)
        print(f"rows out, {label}: {len(many) / (time.process_time() - start):,.0f}/s")  # noqa: T201
    for kind in ("text", "csv", "binary"):
        of = CopyFormat(kind) if kind != "csv" else CopyFormat("csv", ",", "")  # type: ignore[arg-type]
        write = row_writer(of, FIELDS, DEFAULT)
        start = time.process_time()
        pieces = [write(row) for row in many]
        took = time.process_time() - start
        data = b"".join(pieces)
        if kind == "binary":
            data = header(of, FIELDS) + data
        start = time.process_time()
        read = reader(of, FIELDS, DEFAULT, 1 << 25)
        count = sum(len(read.feed(data[i : i + 262_144])) for i in range(0, len(data), 262_144))
        count += len(read.finish())
        assert count == len(many)
        print(  # noqa: T201
            f"COPY {kind}: out {len(many) / took:,.0f}/s, "
            f"in {count / (time.process_time() - start):,.0f}/s"
        )


if __name__ == "__main__":
    uvloop.run(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))
    rows()
