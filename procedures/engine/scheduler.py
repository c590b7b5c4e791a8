"""In which order runnable procedures get a worker. Only ids: what runs is the executor's business.

`Fifo` is the policy of this issue. Priorities by type, fair queues per table and locks (FEATURES K)
are other policies behind the same protocol: they look at the declared locks, which `push` therefore
hands over.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeAlias

Locks: TypeAlias = tuple[tuple[str, str], ...]  # (mode, resource), as in the record


class Scheduler(Protocol):
    def push(self, id: int, locks: Locks) -> None:
        """Add a procedure at the tail. The executor adds none that is already inside."""
        ...

    def pop(self) -> int | None:
        """The id that runs now, None = nothing to do."""
        ...

    def __len__(self) -> int: ...


class Fifo:
    def __init__(self) -> None:
        self._ids: deque[int] = deque()

    def push(self, id: int, locks: Locks) -> None:
        self._ids.append(id)

    def pop(self) -> int | None:
        return self._ids.popleft() if self._ids else None

    def __len__(self) -> int:
        return len(self._ids)
