"""What a node and its SQL processes say to each other (kvorum/sql_channel.py)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from kvorum.sql_channel import CLIENT, GONE, TOLD, Channel


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


async def _until(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)


async def test_messages_and_sockets_keep_their_order() -> None:
    """A client would be served by whoever asked for another one's sessions."""
    ends = socket.socketpair()
    one, other = (_End(sock) for sock in ends)
    pairs = [socket.socketpair() for _ in range(40)]
    large = "x" * 5_000
    for n, (given, _) in enumerate(pairs):
        one.channel.send([TOLD, n, [large] * 20])  # more than the socket takes at once
        one.channel.send([CLIENT], given)
    assert one.channel.waiting > 0
    await _until(lambda: len(other.messages) == 2 * len(pairs))
    assert other.messages[::2] == [[TOLD, n, [large] * 20] for n in range(len(pairs))]
    assert other.messages[1::2] == [[CLIENT]] * len(pairs)
    for n, ((given, kept), got) in enumerate(zip(pairs, other.clients, strict=True)):
        assert given.fileno() == -1, "it is the other's now"
        kept.sendall(b"%d" % n)
        assert got.recv(10) == b"%d" % n
        kept.close()
        got.close()
    other.channel.send([GONE])
    await _until(lambda: one.messages == [[GONE]])
    one.channel.close()
    await _until(lambda: other.ended == 1)
    assert (one.ended, other.ended) == (0, 1)


async def test_sockets_that_were_not_taken_are_closed() -> None:
    """A client whose process died would wait for ever."""
    ours, theirs = socket.socketpair()
    end = _End(ours)
    given, kept = socket.socketpair()
    end.channel.send([TOLD, 1, ["x" * 500_000]])
    end.channel.send([CLIENT], given)
    theirs.close()
    await _until(lambda: end.ended == 1)
    assert kept.recv(1) == b""
    late, kept_too = socket.socketpair()
    end.channel.send([CLIENT], late)
    assert kept_too.recv(1) == b""
    for sock in (kept, kept_too):
        sock.close()
