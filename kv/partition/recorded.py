"""Which transactions have no record in this partition, known without looking.

Nearly every transaction comes with its commit, and nobody has heard of it before: looking for its
record was the dearest part of a small commit. While this replica leads, every record is made by a
command that it evaluates, and named here; and records of before are those of transactions that
began before, so they lie below the first timestamp that the oracle gave this leader.

Invariant: a transaction above `floor` that is not in here has no record, applied or in flight.
Being in here, or below, says nothing: then one looks. Lost entries leave too much in here, never
too little. What changes the records without a command (a merge, a snapshot, another leader) is
followed by `forget`: nothing is known until the oracle answers anew.

Bounded: of RECORDED_TXNS_MAX the older half goes, and the floor rises above it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kv.base.limits import RECORDED_TXNS_MAX
from kv.base.timestamps import MAX


class Recorded:
    """See the module."""

    __slots__ = ("_seen", "floor")

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.floor = MAX

    def forget(self) -> None:
        """Records may have changed by other ways than `add`."""
        self._seen.clear()
        self.floor = MAX

    def heard(self, first: int) -> None:
        """The oracle answered a question of this leader's: who began before lies below `first`."""
        if self.floor == MAX:
            self.floor = first

    def add(self, ats: Iterable[tuple[bytes, int]]) -> None:
        """Records (anchor, start_ts) are made, changed or removed."""
        seen = self._seen
        for _, start_ts in ats:
            seen.add(start_ts)
        if len(seen) > RECORDED_TXNS_MAX:
            kept = sorted(seen)[len(seen) // 2 :]
            self.floor = max(self.floor, kept[0] - 1)
            self._seen = set(kept)

    def perhaps(self, start_ts: int) -> bool:
        """Whether one has to look."""
        return start_ts <= self.floor or start_ts in self._seen
