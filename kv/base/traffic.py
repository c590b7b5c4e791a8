"""Standard traffic units: one measure for requests of every kind, so that what a replica costs can
be compared between partitions and machines (I9). Pure figures.

    one request of up to 1 KiB                     1
    of 1 to 2 KiB                                  2, and one more for each further KiB begun
    a read that misses the cache                   twice that
    a write in the middle of old rows (an update)  what it replaces is read and moved: + half of it
    a delete                                       1, whatever it removes, and the same half

Whoever has only sums (`Load`) gets the units of that many requests of the mean size: it is exact
where sizes are alike, and a little low where few are large.

Source: the ByteKV article, "heterogeneous machines": sizes, hit rate of reads, the shares of random
updates and of deletes. What one unit costs at a node is measured there, never assumed
(procedures/master/balancing/prediction.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from kv.base.limits import KiB

UNIT_BYTES: Final = KiB
MISS_FACTOR: Final = 2
UPDATE_SHARE: Final = 0.5


def units_of(size: float) -> int:
    """The units of one request that moves so many bytes."""
    return max(1, ceil(size / UNIT_BYTES))


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of some time, or per second. Shares are of 0 to 1."""

    reads: float = 0.0
    read_bytes: float = 0.0
    writes: float = 0.0
    write_bytes: float = 0.0
    misses: float = 0.0  # share of reads that the cache did not have
    updates: float = 0.0  # share of writes that replace something
    deletes: float = 0.0  # share of writes that remove something

    @property
    def units(self) -> float:
        """In standard units."""
        total = 0.0
        if self.reads > 0:
            each = units_of(self.read_bytes / self.reads)
            total += self.reads * each * (1 + self.misses * (MISS_FACTOR - 1))
        if self.writes > 0:
            each = units_of(self.write_bytes / self.writes)
            kept = self.deletes + (1 - self.deletes) * each
            replaced = min(1.0, self.updates + self.deletes) * each * UPDATE_SHARE
            total += self.writes * (kept + replaced)
        return total
