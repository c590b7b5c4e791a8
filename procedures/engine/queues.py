"""Who is next among those that may run: classes, ranks, priorities, and fair turns between queues.

    pool ─▶ levels (class, rank, priority), the first level that has anything
              ─▶ queues in turn (one per table, per queue of users, per type), one of each
                   ─▶ a deque: the head

A level is strictly before the next one. Every operation is O(1) in the number of procedures, and
O(log) in the numbers of levels and queues: a queue is found by hash and exists only while something
is in it.

Pools may share a `Rota`: then a queue that is in several of them has one turn, not one in each, and
`order` says which of them is next, whichever of them are asked. A queue draws a ticket when it
gets its first procedure, and a new one, after all others, each time it is served: so a queue is
passed over at most once by every other of its level.

Source: HBase's MasterProcedureScheduler and FairQueue, which keep the tables in an AVL tree.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import TypeAlias

Level: TypeAlias = tuple[int, int, int]  # class, rank, -priority: the smaller one goes first
Place: TypeAlias = tuple[Level, int]  # … and of one level the smaller ticket


class _Turn:
    """A queue's place among those of its level."""

    __slots__ = ("pools", "ticket")

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.pools = 0  # that have something of this queue


class Rota:
    """The tickets of queues, of one pool or of several."""

    def __init__(self) -> None:
        self._turns: dict[tuple[Level, str], _Turn] = {}
        self._last = 0

    def enter(self, level: Level, name: str) -> _Turn:
        """One more pool has something of this queue."""
        turn = self._turns.get((level, name))
        if turn is None:
            turn = self._turns[level, name] = _Turn(0)
            self.served(turn)
        turn.pools += 1
        return turn

    def served(self, turn: _Turn) -> None:
        self._last += 1
        turn.ticket = self._last

    def leave(self, level: Level, name: str) -> None:
        """One pool less has."""
        turn = self._turns[level, name]
        turn.pools -= 1
        if not turn.pools:
            del self._turns[level, name]


class _Rotation:
    """The queues of one level of one pool."""

    __slots__ = ("_level", "_order", "_rota", "queues")

    def __init__(self, level: Level, rota: Rota) -> None:
        self._level, self._rota = level, rota
        self.queues: dict[str, tuple[_Turn, deque[int]]] = {}
        # A heap; another pool's service gives a queue a later ticket, which is found out here when
        # it is the first.
        self._order: list[tuple[int, str]] = []

    def add(self, name: str, id: int, *, front: bool) -> None:
        known = self.queues.get(name)
        if known is None:
            known = self.queues[name] = self._rota.enter(self._level, name), deque()
            heappush(self._order, (known[0].ticket, name))
        if front:
            known[1].appendleft(id)
        else:
            known[1].append(id)

    def ticket(self) -> int:
        """That of the queue which is next."""
        while True:
            ticket, name = self._order[0]
            now = self.queues[name][0].ticket
            if now == ticket:
                return ticket
            heapreplace(self._order, (now, name))

    def take(self) -> int:
        self.ticket()
        name = self._order[0][1]
        turn, queue = self.queues[name]
        id = queue.popleft()
        self._rota.served(turn)
        if queue:
            heapreplace(self._order, (turn.ticket, name))
        else:
            heappop(self._order)
            del self.queues[name]
            self._rota.leave(self._level, name)
        return id


class FairQueues:
    """What may run, of one pool."""

    def __init__(self, rota: Rota | None = None) -> None:
        self._rota = Rota() if rota is None else rota
        self._levels: dict[Level, _Rotation] = {}
        self._order: list[Level] = []  # those that have something
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, level: Level, queue: str, id: int, *, front: bool = False) -> None:
        """At the tail of its queue, or at its front. The caller adds nothing twice."""
        rotation = self._levels.get(level)
        if rotation is None:
            rotation = self._levels[level] = _Rotation(level, self._rota)
            insort(self._order, level)
        rotation.add(queue, id, front=front)
        self._count += 1

    def order(self) -> Place | None:
        """When it is this pool's turn, compared with others of its rota; None = nothing there."""
        if not self._count:
            return None
        level = self._order[0]
        return level, self._levels[level].ticket()

    def heads(self) -> Iterator[tuple[str, int, int]]:
        """Of each queue its name, how many are in it, and the next one."""
        for rotation in self._levels.values():
            for name, (_, queue) in rotation.queues.items():
                yield name, len(queue), queue[0]

    def take(self) -> int | None:
        """The next one, None = nothing there."""
        if not self._count:
            return None
        level = self._order[0]
        rotation = self._levels[level]
        id = rotation.take()
        if not rotation.queues:
            del self._levels[level], self._order[0]
        self._count -= 1
        return id
