"""More clients than a node has file descriptors for: the node lives, and its clients with it."""

from __future__ import annotations

import contextlib
import json
import random
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
    2: b"GET /v1/namespaces HTTP/1.1\r\nhost: localhost\r\n\r\n",
    3: struct.pack("!i", len(_STARTUP) + 4) + _STARTUP,
}
"""What clients at each port say before they are idle: who says nothing makes room for others."""


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
                with contextlib.suppress(OSError):
                    sock.recv(1)  # it is known, or refused, before the next one comes
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
    seats, comers = Seats(2), [Comer() for _ in range(SEATS_EXTRA + 3)]
    for comer in comers[:2]:
        assert seats.take(comer)
        assert not seats.full(comer)
        seats.prove(comer)
    for comer in comers[2:-1]:
        assert seats.take(comer)
        seats.prove(comer)  # nodes, say
        assert seats.full(comer)
    assert not seats.take(comers[-1])
    for comer in comers[2:]:
        seats.give(comer)
    assert not seats.full(comers[0])
    told = {"connections": 2, "connections_limit": 2, "connections_refused": SEATS_EXTRA + 1}
    assert told.items() <= seats.figures().items()
    assert not any(comer.gone for comer in comers)


class Comer:
    """A connection."""

    gone = False

    def make_room(self) -> None:
        self.gone = True


@pytest.mark.parametrize("seed", range(20))
def test_who_has_not_proved_himself_keeps_nobody_out(seed: int) -> None:
    """Silent connections took all places: who proves who he is has one, as long as there are fewer
    of his kind than places; and he keeps it, whoever comes.
    """
    chance = random.Random(seed)
    limit = chance.randrange(1, 20)
    seats = Seats(limit)
    known, silent = list[Comer](), list[Comer]()
    for _ in range(2_000):
        for comer in [one for one in silent if one.gone]:  # as the loop does in its next pass
            silent.remove(comer)
            seats.give(comer)
        comer = Comer()
        what = chance.random()
        if what < 0.05 and known:
            seats.give(known.pop(chance.randrange(len(known))))
        elif what < 0.15:
            taken, full = seats.take(comer), seats.full(comer)
            if len(known) < limit:
                assert taken
                assert not full
                seats.prove(comer)
                known.append(comer)
            else:
                seats.give(comer)
        elif seats.take(comer):
            silent.append(comer)
        else:
            seats.give(comer)
        assert not any(one.gone for one in known)
        assert len(known) <= limit
        assert seats.taken <= limit + SEATS_EXTRA + 2
