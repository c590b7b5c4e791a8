"""How many connections of clients a process has, over all its ports: each takes a file descriptor,
and a process without a free one cannot open its log, its database's files or a connection to
another node.

A connection that comes when all seats are taken is refused; a few more are let in until they have
said who they are, because nodes are never refused. Who has not proved who he is keeps nobody out:
where a seat is wanted, the one of them that has been here longest goes.
"""

from __future__ import annotations

from typing import Final, Protocol

from kv.base.held_bytes import Held

SEATS_EXTRA: Final = 100
_UNBOUNDED: Final = 1 << 31


class Comer(Protocol):
    """A connection."""

    def make_room(self) -> None:
        """It ends at once: others need its seat."""
        ...


class Strangers:
    """Those that have not proved who they are, the longest here first."""

    __slots__ = ("_there",)

    def __init__(self) -> None:
        self._there: dict[Comer, None] = {}

    def come(self, comer: Comer) -> None:
        self._there[comer] = None

    def go(self, comer: Comer) -> bool:
        """It has proved itself, or has ended; False: that is known."""
        return self._there.pop(comer, self) is None

    def make_room(self, comer: Comer) -> bool:
        """One of the others goes; False: there is none."""
        for one in self._there:
            if one is not comer:
                del self._there[one]
                one.make_room()
                return True
        return False


class Seats:
    """Of one process. `limit`: connections that are served; `held`: what they make it hold."""

    def __init__(self, limit: int = _UNBOUNDED, held: Held | None = None) -> None:
        self.limit = limit
        self.held = held or Held()
        self.taken = 0
        self.refused = 0
        self._strangers = Strangers()
        self._known: set[Comer] = set()

    def take(self, comer: Comer) -> bool:
        """A connection has come; False: refuse it at once. It gives back in any case."""
        self.taken += 1
        self._strangers.come(comer)
        if self.taken <= self.limit + SEATS_EXTRA or self._strangers.make_room(comer):
            return True
        self.refused += 1
        return False

    def prove(self, comer: Comer) -> None:
        """It has proved who it is, or nobody has to."""
        if self._strangers.go(comer):
            self._known.add(comer)

    def give(self, comer: Comer) -> None:
        """It has ended."""
        self.taken -= 1
        self._strangers.go(comer)
        self._known.discard(comer)

    def full(self, comer: Comer) -> bool:
        """Whether a connection that is asked who it is now has to be refused; it is counted."""
        if self.taken <= self.limit:
            return False
        if len(self._known) < self.limit and self._strangers.make_room(comer):
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
