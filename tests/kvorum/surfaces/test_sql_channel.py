"""What a node and its SQL processes say to each other (kvorum/sql/sql_channel.py)."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kv.base.adapters import LoopTimers, SystemRng
from kv.base.config import NodeConfig
from kvorum.node.endpoints import bound_socket
from kvorum.sql import sql_processes
from kvorum.sql.sql_channel import ANSWER, CLIENT, GONE, LIST, READY, Channel
from kvorum.sql.sql_process import SqlProcess
from kvorum.sql.sql_processes import SqlProcesses
from tests.kit.waiting import until


class _End:
    """One end, and what it heard."""

    def __init__(self, sock: socket.socket) -> None:
        self.messages: list[list[Any]] = []
        self.clients: list[socket.socket] = []
        self.ended = 0
        self.channel = Channel(sock, self._heard, self._over)

    def _heard(self, message: list[Any], client: socket.socket | None) -> None:
        self.messages.append(message)
        if client is not None:
            self.clients.append(client)

    def _over(self) -> None:
        self.ended += 1


async def test_messages_and_sockets_keep_their_order() -> None:
    """A client would be served by whoever asked for another one's sessions."""
    ends = socket.socketpair()
    one, other = (_End(sock) for sock in ends)
    pairs = [socket.socketpair() for _ in range(40)]
    large = "x" * 5_000
    for n, (given, _) in enumerate(pairs):
        one.channel.send([ANSWER, n, [large] * 20])  # more than the socket takes at once
        one.channel.send([CLIENT], given)
    assert one.channel.waiting > 0
    await until(lambda: len(other.messages) == 2 * len(pairs))
    assert other.messages[::2] == [[ANSWER, n, [large] * 20] for n in range(len(pairs))]
    assert other.messages[1::2] == [[CLIENT]] * len(pairs)
    for n, ((given, kept), got) in enumerate(zip(pairs, other.clients, strict=True)):
        assert given.fileno() == -1, "it is the other's now"
        kept.sendall(b"%d" % n)
        assert got.recv(10) == b"%d" % n
        kept.close()
        got.close()
    other.channel.send([GONE])
    await until(lambda: one.messages == [[GONE]])
    one.channel.close()
    await until(lambda: other.ended == 1)
    assert (one.ended, other.ended) == (0, 1)


async def test_sockets_that_were_not_taken_are_closed() -> None:
    """A client whose process died would wait for ever."""
    ours, theirs = socket.socketpair()
    end = _End(ours)
    given, kept = socket.socketpair()
    end.channel.send([ANSWER, 1, ["x" * 500_000]])
    end.channel.send([CLIENT], given)
    theirs.close()
    await until(lambda: end.ended == 1)
    assert kept.recv(1) == b""
    late, kept_too = socket.socketpair()
    end.channel.send([CLIENT], late)
    assert kept_too.recv(1) == b""
    for sock in (kept, kept_too):
        sock.close()


async def test_a_client_that_no_descriptor_is_left_for_is_counted_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be counted for ever, and its process get fewer clients; messages behind it would
    wait for the next ones.
    """
    received = socket.recv_fds

    def none_left(*args: Any) -> Any:
        """What the kernel does where the limit is reached."""
        data, descriptors, flags, address = received(*args)
        for number in descriptors:
            os.close(number)
        return data, [], flags, address

    monkeypatch.setattr(socket, "recv_fds", none_left)
    ours, theirs = socket.socketpair()
    node, process = _End(ours), SqlProcess(theirs)
    given, kept = socket.socketpair()
    node.channel.send([CLIENT], given)
    node.channel.send([LIST, 7])
    await until(lambda: node.messages == [[GONE], [ANSWER, 7, []]])
    assert kept.recv(1) == b"", "it is told"
    process._channel.close()
    await until(lambda: node.ended == 1)
    kept.close()


async def test_an_end_that_can_say_nothing_more_ends() -> None:
    """Its clients would wait for ever: nothing is written behind what failed."""
    ours, theirs = socket.socketpair()
    one, other = _End(ours), _End(theirs)
    given, kept = socket.socketpair()
    given.close()
    one.channel.send([CLIENT], given)
    late, kept_too = socket.socketpair()
    one.channel.send([CLIENT], late)
    await until(lambda: (one.ended, other.ended) == (1, 1))
    assert kept_too.recv(1) == b""
    for sock in (kept, kept_too):
        sock.close()


class _Deaf(SqlProcesses):
    """Of one process, which reads nothing."""

    theirs: socket.socket
    channel: Channel

    async def _run(self, one: Any) -> str:
        ours, self.theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        one.channel = self.channel = Channel(ours, lambda *_: None, lambda: None)
        self._heard(one, [READY], None)
        await self._closing.wait()
        return ""


async def test_clients_of_a_process_that_takes_none_wait_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The node would hold a descriptor for each until it has none left for its own files."""
    monkeypatch.setattr(sql_processes, "_UNTAKEN_MAX", 4)
    monkeypatch.setattr(sql_processes, "_NO_FILES_S", 0.01)
    config = NodeConfig(data=tmp_path, port=1, sql_processes=1)
    loop = asyncio.get_running_loop()
    processes = _Deaf(config, 1, LoopTimers(loop), SystemRng())
    listener = bound_socket("127.0.0.1", 0)
    address = listener.getsockname()
    processes.open(listener)
    many = 100
    clients = [socket.create_connection(address) for _ in range(many)]
    await asyncio.sleep(0.1)
    assert 0 < processes.channel.waiting <= 5
    assert processes.figures()["clients"] < many / 2
    end = _End(processes.theirs)
    await until(lambda: len(end.clients) == many)
    await processes.close()
    processes.channel.close()
    end.channel.close()
    for sock in [*clients, *end.clients]:
        sock.close()
