"""Bytes that the tenants of a process share: nobody may take all, so that whoever comes next finds
some.

    a tenant may hold at most twice as much as is free then (dynamic thresholds, Choudhury and Hahne
    1998): one alone two thirds of all, and who comes then two thirds of what is left

There is no way to take back what somebody holds, so what others may want has to be free before they
come. Who is nobody's tenant (nodes, what the process does itself) has no share, only the limit.
Pure.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from kv.base.accounts import Account

OF_FREE: Final = 2
NO_LOCK: Final = nullcontext()
Who = Account | None


class SharedBytes:
    """Of one process. `limit`: of all together. `lock`: if threads use it."""

    __slots__ = ("_lock", "_of", "limit", "used")

    def __init__(self, limit: int, lock: AbstractContextManager[object] = NO_LOCK) -> None:
        self.limit = limit
        self.used = 0
        self._of: dict[Who, int] = {}
        self._lock = lock

    def fits(self, who: Who, size: int) -> bool:
        """Whether it may take so many more."""
        free = self.limit - self.used - size
        return free >= 0 and (who is None or self._of.get(who, 0) + size <= OF_FREE * free)

    def take(self, who: Who, size: int) -> bool:
        """So many more, if they fit."""
        with self._lock:
            has, free = self._of.get(who, 0) + size, self.limit - self.used - size
            if free < 0 or (has > OF_FREE * free and who is not None):  # `fits`, without a call
                return False
            self.used += size
            self._of[who] = has
            return True

    def give(self, who: Who, size: int) -> None:
        """So many less; negative: so many more, which are there whether they fit or not."""
        with self._lock:
            self.used -= size
            has = self._of.get(who, 0) - size
            if has:
                self._of[who] = has
            else:
                self._of.pop(who, None)

    def of(self, who: Who) -> int:
        """What it holds."""
        return self._of.get(who, 0)

    def share(self, size: int) -> int:
        """What a tenant may hold if so many more are taken."""
        return OF_FREE * (self.limit - self.used - size)
