"""The node gives memory back that the C library keeps."""

from __future__ import annotations

from collections.abc import Callable

from kv.base.limits import MiB
from kvorum.local.heap import GROWN_BYTES, Trimmer, resident_bytes, trim


async def _here(fn: Callable[[], None]) -> None:
    fn()


async def test_trims_only_when_the_process_has_grown() -> None:
    """A node trims all the time, which costs, or never."""
    sizes = iter([100, 130, 147, 148, 120, 150, 90, 137, 138, 100])
    trimmer = Trimmer(_here, lambda: next(sizes) * MiB, lambda: None)  # the first: at the start
    trims = []
    for _ in range(6):
        await trimmer.look()
        trims.append(trimmer.trims)
    assert trims == [0, 0, 1, 1, 1, 1]
    await trimmer.look()
    assert trimmer.trims == 2
    assert 48 * MiB == GROWN_BYTES


def test_the_system_is_asked() -> None:
    """Asking breaks the process, or tells nothing on Linux."""
    assert resident_bytes() > 10 * MiB
    trim()
