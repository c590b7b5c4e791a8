"""Gives memory that the C library holds back to the system.

Chunks, entries and pages are megabytes each and come from the C heap, which keeps what is freed:
after a few large batches a node held 250 MB of nothing. Trimming takes milliseconds, in a thread,
and only when the process has grown since the last time. (Fixing glibc's mmap threshold would
prevent it altogether, at the price of page faults: large batches became half as fast.)

Does nothing where the C library has no malloc_trim (musl, macOS) or there is no /proc.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kv.base.limits import MiB

GROWN_BYTES: Final = 48 * MiB
# A bulk load grows the heap by 100 MB a second; 100 MB are given back in 10 to 40 ms.
INTERVAL_S: Final = 0.5
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Of this process; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def trim() -> None:
    """Release free pages of the C heap. Blocks other allocations for milliseconds."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class Trimmer:
    """Looks every INTERVAL_S until it is cancelled."""

    def __init__(
        self,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
        resident: Callable[[], int] = resident_bytes,
        release: Callable[[], None] = trim,
    ) -> None:
        self.trims = 0
        self._in_thread, self._resident, self._release = in_thread, resident, release
        self._after = resident()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Trim if the process is GROWN_BYTES larger than after the last time."""
        now = self._resident()
        if now < self._after + GROWN_BYTES:
            self._after = min(self._after, now)
            return
        await self._in_thread(self._release)
        self.trims += 1
        self._after = self._resident()
