"""Which transactions have no record in this partition, and what the open ones' say, known without
looking.

Nearly every transaction comes with its commit, and nobody has heard of it before: looking for its
record was the dearest part of a small commit. While this replica leads, every record is made by a
command that it evaluates, and named here; and records of before are those of transactions that
began before, so they lie below the first timestamp that the oracle gave this leader.

Invariant: a transaction above `floor` that is not in here has no record, applied or in flight.
Being in here, or below, says nothing: then one looks. Lost entries leave too much in here, never
too little. What changes the records without a command (a merge, a snapshot, another leader) is
followed by `forget`: nothing is known until the oracle answers a question that was asked later
(`Asked.outdated`).

A transaction over several partitions has a record for the moment between its prewrite and its
flip. So the records of open ones (PENDING, STAGING) are kept as they were evaluated last; who ends
it takes it out. What is not here is looked for.

Bounded: of RECORDED_TXNS_MAX the older half goes, and the floor rises above it; of OPEN_TXNS_MAX
open records all are let go, those with many keys are not taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from kv.base.limits import OPEN_TXN_KEYS_MAX, OPEN_TXNS_MAX, RECORDED_TXNS_MAX
from kv.base.methods import PENDING, STAGING
from kv.base.timestamps import MAX
from kv.mvcc.records import TxnRecord


class Recorded:
    """See the module."""

    __slots__ = ("_seen", "floor", "open")

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.floor = MAX
        self.open: dict[tuple[bytes, int], TxnRecord] = {}

    def forget(self) -> None:
        """Records may have changed by other ways than `add`."""
        self._seen.clear()
        self.floor = MAX
        self.open.clear()

    def heard(self, first: int) -> None:
        """The oracle answered a question of this leader's: who began before lies below `first`."""
        if self.floor == MAX:
            self.floor = first

    def add(self, txns: Mapping[tuple[bytes, int], TxnRecord | None]) -> None:
        """Records (anchor, start_ts) are made, changed or removed (None)."""
        seen, opened = self._seen, self.open
        for at, record in txns.items():
            seen.add(at[1])
            if record is not None and record.status in (STAGING, PENDING) and _few(record):
                opened[at] = record
            else:
                opened.pop(at, None)
        if len(opened) > OPEN_TXNS_MAX:
            opened.clear()
        if len(seen) > RECORDED_TXNS_MAX:
            kept = sorted(seen)[len(seen) // 2 :]
            self.floor = max(self.floor, kept[0] - 1)
            self._seen = set(kept)

    def perhaps(self, start_ts: int) -> bool:
        """Whether one has to look."""
        return start_ts <= self.floor or start_ts in self._seen


def _few(record: TxnRecord) -> bool:
    return not record.parts or sum(map(len, record.parts)) <= OPEN_TXN_KEYS_MAX
