"""What a node did in the last hour: one sample every SAMPLE_S, the oldest falls out (PAST_HOUR).

    [at_ms, reads, writes, bytes, sync_ms, sync_p99_ms, late_ms, lag, cpu, [[partition, units], …]]

`reads`, `writes` and `bytes` are per second, of the partitions that it led; so are the `units`
(kv/base/traffic.py) of the busiest of them. `sync_ms` and `sync_p99_ms`: a sync of the log, which
every write waits for; null where there was none. `late_ms`: the longest time for which its loop did
nothing else. `lag`: log entries that the member farthest behind lacked. `cpu`: share of a core.

A sample costs one look at each replica. They live in memory: a node that starts anew begins anew.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from kv.base.traffic import Load
from kv.base.wire_row import WireRow
from kv.replica.replica import Replica
from kvorum.local.measure import POINTS_S, Histogram
from procedures.engine.plain_data import Plain

SAMPLE_S: Final = 15.0
SAMPLES_MAX: Final = 240
HOT_MAX: Final = 12  # partitions of a sample
_UNITS_MIN: Final = 0.05  # below it nothing is hot


class Hour:
    """Of one node. `run` until it is cancelled."""

    def __init__(
        self,
        replicas: Callable[[], Iterable[Replica]],
        sync_taken: Histogram,
        *,
        late_s: Callable[[], float],
        cpu_s: Callable[[], float],
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        more: Callable[[], Plain] = dict,
    ) -> None:
        """`late_s`: the longest delay of the loop since it was last asked. `more`: what else a node
        says of itself when it is asked.
        """
        self._replicas, self._sync, self._late_s = replicas, sync_taken, late_s
        self._cpu_s, self._now_ms, self._monotonic = cpu_s, now_ms, monotonic
        self._more = more
        self.samples: deque[WireRow] = deque(maxlen=SAMPLES_MAX)
        self._sums: dict[int, tuple[int, int, int, int]] = {}
        self._counts = list(sync_taken.counts)
        self._sync_s = sync_taken.sum_s
        self._cpu, self._at = cpu_s(), monotonic()

    async def run(self) -> None:
        self.take()  # what was before it ran is no rate of anything
        self.samples.clear()
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.take()

    def take(self) -> None:
        """One sample, of the time since the last one."""
        now, cpu = self._monotonic(), self._cpu_s()
        passed = max(now - self._at, 1e-3)
        share = (cpu - self._cpu) / passed
        self._at, self._cpu = now, cpu
        total = [0.0, 0.0, 0.0]
        hot: list[WireRow] = []
        lag = 0
        sums: dict[int, tuple[int, int, int, int]] = {}
        for replica in self._replicas():
            if not replica.leads():
                continue
            traffic, id_ = replica.machine.traffic, int(replica.descriptor.id)
            mine = (traffic.reads, traffic.writes, traffic.read_bytes, traffic.write_bytes)
            sums[id_] = mine
            lags = [one.lag for one in replica.group.status().followers.values()]
            lag = max(lag, *lags, 0)
            before = self._sums.get(id_, mine)  # of one that it has just got nothing is known
            reads, writes, read_bytes, write_bytes = (
                max(0, new - old) / passed for new, old in zip(mine, before, strict=True)
            )
            total = [total[0] + reads, total[1] + writes, total[2] + read_bytes + write_bytes]
            units = Load(reads, read_bytes, writes, write_bytes).units
            if units >= _UNITS_MIN:
                hot.append([id_, round(units, 1)])
        self._sums = sums
        hot.sort(key=lambda one: -one[1])
        rates = [round(rate, 1) for rate in total]
        sync = self._synced()
        late_ms = round(self._late_s() * 1000)
        self.samples.append(
            [self._now_ms(), *rates, *sync, late_ms, lag, round(share, 3), hot[:HOT_MAX]]
        )

    def _synced(self) -> list[float | None]:
        """Mean and 99th percentile of the syncs since the last sample, in ms."""
        counts, sum_s = list(self._sync.counts), self._sync.sum_s
        new = [now - before for now, before in zip(counts, self._counts, strict=True)]
        took_s = sum_s - self._sync_s
        self._counts, self._sync_s = counts, sum_s
        if not (total := sum(new)):
            return [None, None]
        return [round(took_s / total * 1000, 2), round(quantile(new, 0.99) * 1000, 2)]

    def told(self, _context: object, args: list[object]) -> list[Plain]:
        """The method PAST_HOUR."""
        samples = [one for one in self.samples if one[0] > args[0]]
        return [{"samples": samples, **self._more()}]


def quantile(counts: Sequence[int], share: float) -> float:
    """Of a histogram's counts (kvorum/local/measure.py), in seconds, as if those of one bucket were
    spread evenly; beyond the last point it is that.
    """
    sums = list(accumulate(counts))
    wanted = share * sums[-1]
    at = bisect_left(sums, wanted)
    if at >= len(POINTS_S):
        return POINTS_S[-1]
    low = POINTS_S[at - 1] if at else 0.0
    below = sums[at - 1] if at else 0
    return low + (POINTS_S[at] - low) * (wanted - below) / max(1, counts[at])
