"""More clients than a node has file descriptors for: the node lives, and its clients with it."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from pathlib import Path

import psycopg
import pytest

import kvorum
from kv.base.connection_slots import SEATS_EXTRA, Seats
from kv.base.errors import Busy, Unavailable
from kv.base.rpc import FrameEncoder, Hello
from kvorum.local import descriptors
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

LIMIT = 600  # of the node's descriptors: half of them are for clients
_STARTUP = struct.pack("!i", 196_608) + b"user\0kvorum\0database\0postgres\0\0"
GREETINGS = {
    0: FrameEncoder().message(Hello(cluster="", node=0).to_wire()),
    2: b"",  # an HTTP client that has nothing to ask yet
    3: struct.pack("!i", len(_STARTUP) + 4) + _STARTUP,
}
"""What clients at each port say before they are idle."""


@pytest.mark.slow
def test_idle_connections_do_not_end_a_node(tmp_path: Path) -> None:
    """Idle connections at three ports, more than there are descriptors: who is there is served on,
    who comes is told at each port, and once they have gone everybody is welcome again.
    """
    base = free_port_base()
    limits = f"ulimit -Sn 200; ulimit -Hn {LIMIT}"
    with (
        NodeProcess(tmp_path / "data", base, before=limits) as node,
        contextlib.ExitStack() as idle,
    ):
        node.start()
        with kvorum.connect(node.url) as db, psycopg.connect(f"{sql(base)}") as sql_client:
            db.create_table("default", "t")
            table = db.table("default", "t")
            for number in range(LIMIT // 2 + SEATS_EXTRA + 50):
                port, greeting = [*GREETINGS.items()][number % 3]
                sock = socket.create_connection(("127.0.0.1", base + port), timeout=10)
                idle.enter_context(sock).sendall(greeting)
                if number % 50 == 0:
                    table.put(str(number), b"x")
            poll(lambda: refused_by_http(base))
            poll(lambda: refused_by_sql(base))
            poll(lambda: refused_by_native(node.url))
            table.put("after", b"y")
            assert (found := table.get("after")) is not None
            assert found.value == b"y"
            assert sql_client.execute("select 1").fetchone() == (1,)
            idle.close()
            poll(lambda: not refused_by_http(base))
            poll(lambda: not refused_by_sql(base))
            poll(lambda: not refused_by_native(node.url))
        assert node.exit_code_now() is None
        assert "Too many open files" not in node.tail()


def sql(base: int) -> str:
    return f"host=127.0.0.1 port={base + 3} user=kvorum dbname=postgres"


def refused_by_http(base: int) -> bool:
    """With an answer that says why."""
    try:
        with socket.create_connection(("127.0.0.1", base + 2), timeout=10) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            answer = sock.makefile("rb").read()
    except ConnectionError:  # beyond those that are let in to be told
        return False
    if b" 200 OK" in answer or not answer:
        return False
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert b"retry-after: 1" in head
    return bool(json.loads(body)["error"]["code"] == "BUSY")


def refused_by_sql(base: int) -> bool:
    """As PostgreSQL says it."""
    try:
        psycopg.connect(sql(base)).close()
    except psycopg.OperationalError as error:
        return "too many clients already" in str(error)
    return False


def refused_by_native(url: str) -> bool:
    """With the number that is the limit."""
    try:
        with kvorum.connect(url, timeout_ms=1_000) as db:
            db.table("default", "t").get("after")
    except (Busy, Unavailable) as error:
        return f"{LIMIT // 2} connections, the limit" in error.message
    return False


@pytest.mark.parametrize(
    ("limit", "served"), [(256, 128), (1_024, 512), (4_096, 2_816), (1 << 20, (1 << 20) - 1_280)]
)
def test_clients_never_get_all_descriptors(limit: int, served: int) -> None:
    """Where descriptors are few, half of them are kept for the node itself."""
    assert descriptors.seats(limit).limit == served


def test_seats_are_counted() -> None:
    """Who comes too late is told, and who comes much too late is not even let in."""
    seats = Seats(2)
    assert [seats.take() for _ in range(2)] == [True, True]
    assert not seats.full()
    assert all(seats.take() for _ in range(SEATS_EXTRA))
    assert seats.full()
    assert not seats.take()
    for _ in range(SEATS_EXTRA + 1):
        seats.give()
    assert not seats.full()
    told = {"connections": 2, "connections_limit": 2, "connections_refused": 2}
    assert told.items() <= seats.figures().items()
