"""Pages that statements used and gave up go back to the system.

glibc's allocator keeps what was freed for the next one who asks, which for a process that once
sorted a table is for ever. So when much was taken (`Share.worn`) and a statement has ended, it is
asked to give free pages back: in a thread, for it takes milliseconds, and not too often. Arrow
takes its memory from there, too: its own allocator keeps what a thread freed until that one asks.
DuckDB's keeps what it freed until it is asked (`flush`).
Other allocators than glibc's give back by themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from kv.base.limits import SQL_TRIM_BYTES, SQL_TRIM_MS
from sqlproxy.values.memory import Share

Later = Callable[[float, Callable[[], None]], object]


class Trimming:
    """Of one process. `later`: calls after so many seconds. `in_thread`: runs something beside the
    loop. `flush`: called there before.
    """

    def __init__(
        self,
        share: Share,
        later: Later,
        in_thread: Callable[[Callable[[], None]], object],
        flush: Callable[[], None],
    ) -> None:
        self._share, self._later, self._in_thread = share, later, in_thread
        self._flush = flush
        self._waiting = False
        pa.set_memory_pool(pa.system_memory_pool())

    def look(self) -> None:
        """A statement has ended."""
        if self._share.worn > SQL_TRIM_BYTES and not self._waiting:
            self._waiting = True
            self._later(SQL_TRIM_MS / 1_000, self._trim)

    def _trim(self) -> None:
        self._waiting = False
        self._share.worn = 0
        self._in_thread(self._give_back)

    def _give_back(self) -> None:
        self._flush()
        _trim_c(0)


def _malloc_trim() -> Callable[[int], int]:
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda keep: 0) if found is None else found


_trim_c: Final = _malloc_trim()
