"""The closed loop of the lean clients: one request in flight per connection.

A *script* is what one connection does: `begin()` gives the bytes of an operation's first request,
`reply(data)` looks at the reply and gives the next request, or None when the operation is over.
Scripts never wait and hold no socket, so a client costs a few microseconds per operation and the
server is what is measured.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from array import array
from time import monotonic
from typing import Protocol, cast

RETRY_S = (
    0.005  # a connection whose operation failed waits this long, as etcd's load generator does
)


class Failed(Exception):
    """The server refused an operation, or a reply is not what was asked for."""


class Tally:
    """What the connections of one process measured, for operations that ended in [begin, end)."""

    __slots__ = ("begin", "end", "errors", "first_error", "latencies")

    def __init__(self) -> None:
        self.begin = self.end = float("inf")
        self.latencies = array("d")
        self.errors = 0
        self.first_error = ""

    def window(self, begin: float, end: float) -> None:
        """Set it, in seconds of the monotonic clock, which all processes of a machine share."""
        self.begin, self.end = begin, end

    def failed(self, why: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or why


class Script(Protocol):
    """The operations of one connection."""

    def begin(self) -> bytes: ...
    def reply(self, data: bytes | bytearray) -> bytes | None: ...


class Connection(asyncio.Protocol, ABC):
    """Runs a script over a socket. What a complete reply is, subclasses know (`missing`)."""

    def __init__(self, script: Script, tally: Tally) -> None:
        self._script, self._tally = script, tally
        self._part = bytearray()
        self._sent = 0.0
        self._stopping = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- for subclasses

    @abstractmethod
    def missing(self, data: bytes | bytearray) -> int:
        """How many bytes of the reply are not here yet, at least; 0 = complete."""

    # -- the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._write = self._transport.write
        self.ready.set_result(None)

    def start(self) -> None:
        """Send the first request."""
        if self._stopping or self.finished.done():
            return
        self._sent = monotonic()
        self._write(self._script.begin())

    def data_received(self, data: bytes | bytearray) -> None:
        if self._part:
            self._part += data
            data = self._part
        if self.missing(data):
            if data is not self._part:
                self._part += data
            return
        if data is self._part:
            self._part = bytearray()
        self._answered(data)

    def _answered(self, data: bytes | bytearray) -> None:
        try:
            request = self._script.reply(data)
        except Failed as error:
            self._tally.failed(str(error))
            if monotonic() >= self._tally.end:
                self._finish()
            else:
                asyncio.get_running_loop().call_later(RETRY_S, self.start)
            return
        if request is None:
            tally, now = self._tally, monotonic()
            if now >= tally.end:
                self._finish()
                return
            if now >= tally.begin:
                tally.latencies.append(now - self._sent)
            self._sent = now
            request = self._script.begin()
        self._write(request)

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._stopping and not self.finished.done():
            self._tally.failed(f"connection lost: {error}")
        self._finish()

    def close(self) -> None:
        self._stopping = True
        self._transport.close()
