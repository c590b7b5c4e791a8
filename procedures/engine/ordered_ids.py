"""Ids of procedures, mostly taken in as they grow: the newest come first without a look at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator
from typing import Final

_SPARE: Final = 1_000


class OrderedIds:
    """Those that `here` has. One that went stays listed until there are as many such as others."""

    __slots__ = ("_gone", "_here", "_ids")

    def __init__(self, here: Container[int]) -> None:
        self._here = here
        self._ids: list[int] = []
        self._gone = 0

    def add(self, id: int) -> None:
        ids = self._ids
        if not ids or id > ids[-1]:
            ids.append(id)
            return
        at = bisect_left(ids, id)
        if ids[at] == id:
            self._gone -= 1  # it is back
        else:
            ids.insert(at, id)

    def discard(self) -> None:
        """One of them went."""
        self._gone += 1
        if self._gone > _SPARE + len(self._ids) // 2:
            self._ids = [id for id in self._ids if id in self._here]
            self._gone = 0

    def newest(self, before: int = 0) -> Iterator[int]:
        """Those below `before` (0 = all), the newest first, as they are now."""
        ids = self._ids
        at = bisect_left(ids, before) if before else len(ids)
        while at:
            at -= 1
            if ids[at] in self._here:
                yield ids[at]
