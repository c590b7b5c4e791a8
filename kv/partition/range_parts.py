"""The method PARTS: where a range of a partition would be cut for several readers, and its size.

    start, end, parts → [key, …], bytes

From the samples of what was written (kv/partition/sizes.py): a few hundred comparisons, no scan.
At most `parts - 1` rising keys inside the range; none where nothing is known. Both are estimates.
"""

from __future__ import annotations

from typing import Protocol

from kv.base.wire_row import WireRow
from kv.partition.sizes import SizeMap


class Sized(Protocol):
    """A partition's applied state."""

    @property
    def live_bytes(self) -> int: ...

    @property
    def sizes(self) -> SizeMap: ...


def parts(state: Sized, r: WireRow) -> WireRow:
    """The result fields."""
    start, end, wanted = r[5:]
    sizes = state.sizes
    if not len(sizes):
        return [[], state.live_bytes]
    low = sizes.share_below(start)
    high = sizes.share_below(end) if end else 1.0
    found = [sizes.key_at(low + (high - low) * i / wanted) for i in range(1, wanted)]
    keys = {key for key in found if key is not None and key > start and (not end or key < end)}
    return [sorted(keys), round(state.live_bytes * max(0.0, high - low))]
