"""Who is next among those that may run: classes, ranks, priorities, and fair turns between tables.

    pool ─▶ levels (class, rank, priority), the first level that has anything
              ─▶ queues in rotation (one per table, …), one procedure of each in turn
                   ─▶ a deque: the head

A level is strictly before the next one. Every operation is O(1) in the number of procedures and of
queues, and O(log) in the number of levels, which are few: a queue is found by hash and exists only
while something is in it.

Source: HBase's MasterProcedureScheduler and FairQueue, which keep the tables in an AVL tree.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TypeAlias

Level: TypeAlias = tuple[int, int, int]  # class, rank, -priority: the smaller one goes first


class _Rotation:
    """The queues of one level."""

    __slots__ = ("queues", "turns")

    def __init__(self) -> None:
        self.queues: dict[str, deque[int]] = {}
        self.turns: deque[str] = deque()  # names of queues, each once

    def add(self, name: str, id: int, *, front: bool) -> None:
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = deque()
            self.turns.append(name)
        if front:
            queue.appendleft(id)
        else:
            queue.append(id)

    def take(self) -> int:
        name = self.turns[0]
        queue = self.queues[name]
        id = queue.popleft()
        if queue:
            self.turns.rotate(-1)
        else:
            self.turns.popleft()
            del self.queues[name]
        return id


class FairQueues:
    """What may run, of one pool."""

    def __init__(self) -> None:
        self._levels: dict[Level, _Rotation] = {}
        self._order: list[Level] = []  # those that have something
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, level: Level, queue: str, id: int, *, front: bool = False) -> None:
        """At the tail of its queue, or at its front. The caller adds nothing twice."""
        rotation = self._levels.get(level)
        if rotation is None:
            rotation = self._levels[level] = _Rotation()
            insort(self._order, level)
        rotation.add(queue, id, front=front)
        self._count += 1

    def take(self) -> int | None:
        """The next one, None = nothing there."""
        if not self._count:
            return None
        level = self._order[0]
        rotation = self._levels[level]
        id = rotation.take()
        if not rotation.turns:
            del self._levels[level], self._order[0]
        self._count -= 1
        return id
