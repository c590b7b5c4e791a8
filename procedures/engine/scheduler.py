"""In which order procedures get a worker, and which of them may: locks, classes, fair turns.

    push ─▶ queues (who is next) ─▶ pop ─▶ has its locks, or takes them now ─▶ runs
      │          ▲                    └─▶ cannot: ┐
      └ cannot ──┼────────────────────────────▶ waits for them, out of the queues
                 └───────── release ◀─────────────┘  of a lock: those that it frees, at the front

Only ids: what runs is the executor's business. Locks are granted at `pop` and stay until `release`,
however often the procedure waits and is pushed again. Nobody polls: one that waits for locks is not
looked at until a release frees it.

An entry may be pushed again while it waits for locks: with `locks` empty it comes without them (it
is to fail, and fails without them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from procedures.engine.locks import Link, LockTable
from procedures.engine.queues import FairQueues, Level, Place, Rota
from procedures.engine.resources import Kind, Locks, Rank, kind_of, queue_of, rank_of


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A procedure as the scheduler sees it. `kind` and `queue` None: as its locks say."""

    id: int
    parent: int = 0
    locks: Locks = ()  # declared; what they imply is added here
    pool: str = ""  # "" = the master's own workers
    priority: int = 0  # the higher one goes first, within its class
    kind: Kind | None = None
    queue: str | None = None  # queues of one level take turns


class Scheduler(Protocol):
    on_ready: Callable[[str], None]
    """Called with the pool of every procedure that a release put back into a queue."""

    def push(self, entry: Entry, *, front: bool = False) -> None:
        """Add a procedure at the tail of its queue, or at its front. The executor adds none that is
        in a queue already.
        """
        ...

    def pop(self, pool: str = "") -> int | None:
        """The id that runs now, with its locks; None = nothing to do."""
        ...

    def release(self, id: int) -> None:
        """It ended, or is not run here any more: it holds nothing, and waits for nothing."""
        ...

    def introduce(self, id: int, parent: int) -> None:
        """A live procedure and its parent, parents first: children may have what ancestors hold."""
        ...

    def grab(self, entry: Entry) -> bool:
        """Take its locks now, before it is pushed, if nobody holds them or waits for them."""
        ...

    def restore(self, entry: Entry) -> None:
        """It holds its locks: the store says so (K11)."""
        ...

    def heir(self, id: int) -> int:
        """Who waits for nothing but what this one holds, and is next; 0 = nobody. If it still waits
        when this one is released, `restore` at once gives it its locks.
        """
        ...

    def withdraw(self, id: int) -> None:
        """Take its locks away, or out of the wait for them; it lives on."""
        ...

    def holds(self, id: int) -> bool:
        """Whether it has its locks. Without declared locks: no."""
        ...

    def circle(self, id: int) -> list[Link]:
        """Not empty: it was popped without its locks, for waiting would close this circle."""
        ...

    def blocked(self, id: int) -> list[Link]:
        """What it waits for now, if it waits for locks."""
        ...

    def holders(self, resource: str) -> dict[int, str]:
        """Who holds a resource → mode."""
        ...

    def waiting(self, pool: str) -> bool:
        """Whether `pop` may have something for this pool."""
        ...

    def order(self, pool: str) -> Place | None:
        """Of several pools the one with the smallest is next; None = not `waiting`."""
        ...

    def heads(self) -> Iterator[tuple[str, int, int]]:
        """Of each queue its name, how many are in it, and the next one."""
        ...

    def __len__(self) -> int:
        """How many are in the queues; those that wait for locks are not."""
        ...


class FairScheduler:
    """The scheduler of an executor."""

    def __init__(self) -> None:
        self._locks = LockTable()
        self._pools: dict[str, FairQueues] = {"": FairQueues()}
        self._own = self._pools[""]
        self._rota = Rota()  # of all the others: a queue has one turn, wherever its procedures run
        self._wanting: dict[int, Entry] = {}  # those in a queue or waiting that still want locks
        self._up: set[int] = set()  # those of them that wait for locks and are in a queue again
        self._circles: dict[int, list[Link]] = {}
        self.on_ready: Callable[[str], None] = lambda pool: None

    def __len__(self) -> int:
        return sum(map(len, self._pools.values()))

    # ---------------------------------------------------------------------- the queues
    def push(self, entry: Entry, *, front: bool = False) -> None:
        id = entry.id
        if entry.locks and not self._locks.holds(id):
            self._wanting[id] = entry
            self._circles.pop(id, None)
            if not self._locks.free(id, entry.locks) and not self._wait(entry):
                return  # its place is in the queues of the locks, from now on
        elif self._wanting and self._wanting.pop(id, None) is not None:
            self._ready(self._locks.withdraw(id))
            if id in self._up:  # in its queue already
                self._up.discard(id)
                return
        self._add(entry, front=front)

    def heads(self) -> Iterator[tuple[str, int, int]]:
        for queues in self._pools.values():
            yield from queues.heads()

    def pop(self, pool: str = "") -> int | None:
        queues = self._own if not pool else self._pools.get(pool)
        if queues is None:
            return None
        while (id := queues.take()) is not None:
            if not self._wanting:
                return id
            self._up.discard(id)
            entry = self._wanting.get(id)
            if entry is None or self._may_run(entry):
                return id
        if pool:  # there may be many, one after the other
            del self._pools[pool]
        return None

    def waiting(self, pool: str) -> bool:
        queues = self._pools.get(pool)
        return queues is not None and len(queues) > 0

    def order(self, pool: str) -> Place | None:
        queues = self._pools.get(pool)
        return None if queues is None else queues.order()

    def _add(self, entry: Entry, *, front: bool) -> None:
        queues = self._pools.get(entry.pool)
        if queues is None:
            queues = self._pools[entry.pool] = FairQueues(self._rota)
        level, queue = _place(entry)
        queues.add(level, queue, entry.id, front=front)

    def _ready(self, ids: list[int]) -> None:
        """These wait and may have their locks now: they go first when their turn comes."""
        for id in reversed(ids):
            if id not in self._up:
                self._up.add(id)
                entry = self._wanting[id]
                self._add(entry, front=True)
                self.on_ready(entry.pool)

    # ---------------------------------------------------------------------- locks
    def _may_run(self, entry: Entry) -> bool:
        if self._locks.take(entry.id, entry.locks):
            del self._wanting[entry.id]
            return True
        return self._wait(entry)

    def _wait(self, entry: Entry) -> bool:
        """Queue up for its locks; True if it may not, for that would close a circle."""
        circle, freed = self._locks.wait(entry.id, entry.locks)
        self._ready(freed)
        if circle:
            self._circles[entry.id] = circle
            del self._wanting[entry.id]
        return bool(circle)

    def release(self, id: int) -> None:
        self._forget(id)
        self._ready(self._locks.release(id))

    def withdraw(self, id: int) -> None:
        self._forget(id)
        self._ready(self._locks.withdraw(id))

    def _forget(self, id: int) -> None:
        self._wanting.pop(id, None)
        self._circles.pop(id, None)
        self._up.discard(id)

    def introduce(self, id: int, parent: int) -> None:
        self._locks.introduce(id, parent)

    def grab(self, entry: Entry) -> bool:
        return self._locks.take(entry.id, entry.locks)

    def restore(self, entry: Entry) -> None:
        self._locks.restore(entry.id, entry.locks)

    def heir(self, id: int) -> int:
        return self._locks.heir(id)

    def holds(self, id: int) -> bool:
        return self._locks.holds(id)

    def circle(self, id: int) -> list[Link]:
        return self._circles.get(id, [])

    def blocked(self, id: int) -> list[Link]:
        return self._locks.blocked(id)

    def holders(self, resource: str) -> dict[int, str]:
        return self._locks.holders(resource)


def _place(entry: Entry) -> tuple[Level, str]:
    if not entry.locks and entry.kind is None:
        return (Kind.TABLE, Rank.USER, -entry.priority), entry.queue or ""
    kind = kind_of(entry.locks) if entry.kind is None else entry.kind
    rank = rank_of(entry.locks) if kind is Kind.TABLE else 0
    queue = queue_of(entry.locks) if entry.queue is None else entry.queue
    return (kind, rank, -entry.priority), queue
