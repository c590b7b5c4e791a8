"""How many connections of clients a process has, over all its ports: each takes a file descriptor,
and a process without a free one cannot open its log, its database's files or a connection to
another node.

A connection that comes when all seats are taken is refused; a few more are let in until they have
said who they are, because nodes are never refused.
"""

from __future__ import annotations

from typing import Final

from kv.base.held_bytes import Held

SEATS_EXTRA: Final = 100
_UNBOUNDED: Final = 1 << 31


class Seats:
    """Of one process. `limit`: connections that are served; `held`: what they make it hold."""

    def __init__(self, limit: int = _UNBOUNDED, held: Held | None = None) -> None:
        self.limit = limit
        self.held = held or Held()
        self.taken = 0
        self.refused = 0

    def take(self) -> bool:
        """A connection has come; False: refuse it at once. It gives back in any case."""
        self.taken += 1
        if self.taken <= self.limit + SEATS_EXTRA:
            return True
        self.refused += 1
        return False

    def give(self) -> None:
        """It has ended."""
        self.taken -= 1

    def full(self) -> bool:
        """Whether a connection that is asked who it is now has to be refused; it is counted."""
        if self.taken <= self.limit:
            return False
        self.refused += 1
        return True

    def figures(self) -> dict[str, int]:
        """For the metrics."""
        return {
            "connections": self.taken,
            "connections_limit": self.limit,
            "connections_refused": self.refused,
            **self.held.figures(),
        }
