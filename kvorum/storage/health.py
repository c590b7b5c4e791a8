"""Whether a node that is up does its work: what /readyz says beyond whom it knows.

A timer looks a few times a second; what a request needs is asked of what it last saw, so that the
answer costs nothing. It sees
  * how late the timer itself is: so long the loop did nothing else;
  * partitions that wanted to be drained at the last look and have not been drained since;
  * the oracle, where it is served: whether it can hand out timestamps.

Each is reported only while it lasts, and a moment longer, so that whoever asks seldom sees it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kv.base.ids import PartitionId

LOOK_S: Final = 0.5
STUCK_S: Final = 1.0  # without a drain
LATE_S: Final = 2.0  # of the loop; less happens on machines that are merely busy
REMEMBERED_S: Final = 2.0  # how long a late loop is reported


class Partition(Protocol):
    """kv.partition.machine.PartitionMachine."""

    @property
    def undrained(self) -> int:
        """The number of the drain that is wanted, 0 if none is."""
        ...


class Health:
    """See the module. `run` in a task of the node's."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        partitions: Callable[[], Iterable[tuple[PartitionId, Partition]]],
        oracle: Callable[[], str | None],
    ) -> None:
        """`oracle()`: what keeps it from handing out timestamps here, None if nothing does."""
        self._monotonic, self._partitions, self._oracle = monotonic, partitions, oracle
        self._wanted: dict[PartitionId, tuple[int, float]] = {}  # drain, since when
        self._late_s = self._late_at = 0.0
        self._worst_s = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            due = self._monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.look(due)

    def look(self, due: float) -> None:
        """One look, which was to be taken at `due`."""
        now = self._monotonic()
        late_s = now - due
        self._worst_s = max(self._worst_s, late_s)
        if late_s >= LATE_S or now - self._late_at > REMEMBERED_S:
            self._late_s, self._late_at = late_s, now
        wanted: dict[PartitionId, tuple[int, float]] = {}
        for partition, machine in self._partitions():
            drain = machine.undrained
            if drain:
                known = self._wanted.get(partition)
                same = known is not None and known[0] == drain
                wanted[partition] = known if known is not None and same else (drain, now)
        self._wanted = wanted

    def worst_s(self) -> float:
        """How late a look was at most since this was last asked."""
        found, self._worst_s = self._worst_s, 0.0
        return found

    def trouble(self) -> str | None:
        """What is wrong, None for nothing."""
        now = self._monotonic()
        if self._late_s >= LATE_S and now - self._late_at <= REMEMBERED_S:
            return f"its loop did nothing else for {self._late_s:.1f} s"
        for partition, (_, since) in self._wanted.items():
            if now - since >= STUCK_S:
                return f"partition {partition} has not been drained for {now - since:.1f} s"
        return self._oracle()
