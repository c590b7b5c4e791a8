"""Connections that ask for timestamps are heard between two slices of work, not behind all of it.

A node is one loop: what a socket brings is read when the pass is over, and a pass with many writers
takes a millisecond. Whoever waits for a timestamp waits before it has begun anything, so the oracle
must not queue behind data (E4). So the loop's longer stretches call `look` every so often: it asks
the kernel which of these connections have something to read (a poll that does not wait), reads it,
and has it answered at once.

    drain ─ command … command ─ look ─ command … command ─ look ─ … replies ─ look ─ …

Invariants
  * only connections whose last frame was a request for timestamps and nothing else are in here;
    whatever else arrives on one of them is left to the loop (ServerConnection.heard_between), so
    that nothing but the oracle runs in the middle of a drain;
  * bytes are taken from a socket in the order in which they came, by this or by the loop, both in
    one thread: a loop that finds nothing to read any more goes on;
  * the end of a connection, and every error, is left to the loop to notice;
  * looks are at least EXPRESS_SLICE_S apart, so that they cost a hundredth of the time at most.

Why that is right for timestamps: an oracle at another node gives them out in the middle of a drain
as well (docs/decisions/0503); a drain's own were asked for before it is evaluated, and reads at
younger ones are served after it. Left out: systems without epoll, and transports that are not a
plain socket (the simulation's); there `look` has nothing to do. docs/decisions/0311.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from kv.base.limits import EXPRESS_SLICE_S, KiB

_READY_MAX: Final = 32  # connections that one look serves
_READ_BYTES: Final = 64 * KiB


class Hearing(Protocol):
    """kv.server.socket_server.ServerConnection."""

    def heard_between(self, data: bytes) -> None: ...


class Express:
    """See the module. One of each node."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.heard = 0  # how often it was of use
        self._monotonic = monotonic
        self._poll: select.epoll | None = None  # while somebody is in here
        self._conns: dict[int, Hearing] = {}  # by file descriptor
        self._next = 0.0
        self._looking = False

    def __len__(self) -> int:
        return len(self._conns)

    def add(self, fd: int, conn: Hearing) -> bool:
        """Hear it between slices from now on, if that is possible here."""
        if not hasattr(select, "epoll"):
            return False
        if self._poll is None:
            self._poll = select.epoll()
        try:
            self._poll.register(fd, select.EPOLLIN)
        except OSError:
            return False
        self._conns[fd] = conn
        return True

    def remove(self, fd: int, conn: Hearing) -> None:
        """Leave it to the loop. One whose descriptor is another's by now is forgotten already."""
        poll = self._poll
        if poll is None or self._conns.get(fd) is not conn:
            return
        del self._conns[fd]
        with suppress(OSError):  # closed: the kernel has forgotten it
            poll.unregister(fd)
        if not self._conns:
            poll.close()
            self._poll = None

    def look(self) -> None:
        """Answer whoever asked for timestamps meanwhile. Called in the middle of anything."""
        poll = self._poll
        if poll is None or self._looking:
            return
        now = self._monotonic()
        if now < self._next:
            return
        self._next = now + EXPRESS_SLICE_S
        ready = poll.poll(0, _READY_MAX)
        if not ready:
            return
        self._looking = True
        try:
            for fd, _ in ready:
                self._hear(fd)
        finally:
            self._looking = False

    def _hear(self, fd: int) -> None:
        conn = self._conns.get(fd)
        if conn is None:
            return
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError:
            return
        if data:
            self.heard += 1
            conn.heard_between(data)
        else:
            self.remove(fd, conn)  # it has ended: the loop reads that, too
