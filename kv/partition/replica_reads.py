"""Reads that a replica answers although it does not lead: of the past, from its applied state.

    reader ── MARK ──▶ leader: T, I        whoever has applied the log up to I has every version at
       │                                   or below T, or an intent in its place
       └── read at R ≤ T, applied = I ──▶ any replica

MARK is a read of the whole partition at a fresh timestamp T: what is in flight at or below T is
waited for, all later commits lie above (kv/partition/reads.py), also those of later leaders. So at
I only intents that are there can still become versions at or below T: a replica that meets one, as
any reader would, does not know its fate and sends the reader to the leader. An index of a backfill
is the exception: its entries are written as of the past (kv/mvcc/ingest.py). Who reads indexes at a
timestamp from before they were complete asks the leader.

Invariants
  * nothing is answered here but requests that say how much must be applied, at a timestamp of the
    past, from a state with so much of the log; and what is asked binds nobody who leads later;
  * whoever waits for the log to come so far is answered within REPLICA_WAIT_MS.

What the reader says of I is believed: who says less than the leader did gets older rows himself.
Source: CockroachDB's closed timestamps, but asked for by readers, so that nothing is sent where
nobody reads; Raft's ReadIndex. docs/decisions/1430.
"""

from __future__ import annotations

from typing import Final

from kv.base.limits import REPLICA_WAIT_MS
from kv.base.methods import PARTITION_VERBS
from kv.base.ports import Handle, Timers
from kv.base.timestamps import physical_ms
from kv.base.wire_row import WireRow
from kv.partition.admission import Item, admit
from kv.partition.counters import PartitionCounters
from kv.partition.ports import ReplicaPort
from kv.partition.reader import Reader
from kv.partition.reads import read_ts_of
from kv.partition.replies import Replies
from kv.partition.scheduler import Scheduler

_AT: Final = {one.number: one.at("applied") for one in PARTITION_VERBS if "applied" in one.fields}


def least_applied(r: WireRow) -> int:
    """How much of the log a replica must have applied to answer; 0: only the leader may."""
    at = _AT.get(r[1])
    if at is None or len(r) <= at or type(r[at]) is not int:
        return 0
    index: int = r[at]
    return index


class ReplicaReads:
    """See the module."""

    def __init__(
        self,
        replica: ReplicaPort,
        reader: Reader,
        replies: Replies,
        *,
        scheduler: Scheduler,
        timers: Timers,
        counters: PartitionCounters,
    ) -> None:
        self._replica, self._reader, self._replies = replica, reader, replies
        self._scheduler, self._timers, self._counters = scheduler, timers, counters
        self.waiting: list[Item] = []  # for the log
        self.closed_ts = 0  # the highest timestamp that was answered at here
        self._timer: Handle | None = None

    def serve(self, batch: list[Item]) -> None:
        """Answer what may be answered here, and send the rest to the leader."""
        reader = self._reader
        batch, self.waiting = self.waiting + batch, []
        mine = [item for item in batch if least_applied(item[1])]
        others = [item for item in reader.behind + batch if not least_applied(item[1])]
        reader.behind = [item for item in reader.behind if least_applied(item[1])]
        state = self._replica.state
        if state.frozen is not None or not self._replica.readable():
            others += reader.behind + mine
            reader.behind = []
        elif mine or reader.behind_due:
            others += self._serve(mine)
        self._replies.refuse_all(others, self._replies.not_leader())

    def _serve(self, mine: list[Item]) -> list[Item]:
        """Those that only the leader can answer."""
        state, clock = self._replica.state, self._scheduler.clock
        now_s, now_ms = clock.monotonic(), clock.now_ms()
        faults = self._scheduler.faults
        reads, _, _ = admit(state.descriptor, mine, now_s, self._replies.refuse, faults)
        ready = self._reader.catch_up(now_s) if self._reader.behind_due else []
        others = []
        for item in reads:
            read_ts = read_ts_of(item[1])
            if not read_ts or physical_ms(read_ts) > now_ms:  # of now, or of the future
                others.append(item)
            elif least_applied(item[1]) > state.index:
                self.waiting.append(item)
            else:
                self.closed_ts = max(self.closed_ts, read_ts)
                self._counters.by_replicas += 1
                ready.append(item)
        if ready:
            self._reader.serve(ready, now_ms, leads=False)
        if self.waiting and self._timer is None:
            self._timer = self._timers.call_later(REPLICA_WAIT_MS / 1000, self._late)
        return others

    def _late(self) -> None:
        """Whoever waits has waited long enough, some of them less: the leader knows."""
        self._timer = None
        self._replies.refuse_all(self.release(), self._replies.not_leader())

    def release(self) -> list[Item]:
        """Whoever waits; it waits no more."""
        waiting, self.waiting = self.waiting, []
        return waiting
