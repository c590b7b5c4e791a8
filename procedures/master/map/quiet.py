"""When the master's schedulers need not ask all nodes again. Pure but for the clock.

What nodes would answer follows from what the master knows by itself as long as no partition has
traffic: members and map (its own tables), who is alive and who leads what (heartbeats), sizes and
disks in steps of about a tenth, what procedures and operations have, settings. `known` is all of
that, to be compared; it is None while there is traffic, because then loads change all the time and
slow nodes matter (procedures/master/schedulers/slowness.py).

A look is skipped only if the one before it found nothing to do and nothing to refuse: what was
refused may become possible by something that only the leaders know, as a follower that catches up.
SCHEDULE_QUIET_S bounds what is overlooked by all this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import log
from typing import Final

from kv.base.ids import NodeId, PartitionId
from kv.base.limits import SCHEDULE_QUIET_S, SCHEDULE_QUIET_UNITS
from procedures.master.map.nodes import NodeRow
from procedures.master.map.partitions import Placed
from procedures.master.map.reports import Picture

_STEP: Final = log(1.1)
_SMALL_BYTES: Final = 1 << 20  # below it sizes are alike

Known = tuple[object, ...]


class Quiet:
    """Of one scheduler."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.skipped = 0
        self._monotonic = monotonic
        self._now: Known | None = None
        self._idle: Known | None = None  # of the last look, if there was nothing to do
        self._until_s = 0.0

    def same(self, now: Known | None) -> bool:
        """Whether a look can be skipped; if not, one is taken, and `looked` called. A look that
        ends before that counts as one that found something.
        """
        if now is not None and now == self._idle and self._monotonic() < self._until_s:
            self.skipped += 1
            return True
        self._now, self._idle = now, None
        return False

    def looked(self, *, idle: bool) -> None:
        """What came of the look."""
        if idle:
            self._idle = self._now
            self._until_s = self._monotonic() + SCHEDULE_QUIET_S


def known(
    nodes: Sequence[NodeRow],
    rows: Sequence[Placed],
    health: Mapping[int, tuple[object, int | None]],
    reports: Picture,
    busy: Collection[int],
    live: int,
    rules: Known,
) -> Known | None:
    """See the module. `busy`: partitions that must stay; `live`: moves under way."""
    leaders = reports.leaders()
    if any(report.units >= SCHEDULE_QUIET_UNITS for _, report in leaders.values()):
        return None
    return (
        tuple(nodes),
        tuple(rows),
        tuple(sorted((node, how) for node, (how, _) in health.items())),
        tuple(
            (partition, leader, report.epoch, _step(report.size))
            for partition, (leader, report) in sorted(leaders.items())
        ),
        tuple(
            (
                node,
                report.complete,
                len(report.rows),
                _step(report.disk_free),
                _step(report.file_bytes),
            )
            for node, report in sorted(reports.nodes.items())
        ),
        tuple(sorted(busy)),
        live,
        rules,
    )


def led(
    reports: Picture,
    health: Mapping[int, tuple[object, int | None]],
    wanted: Mapping[PartitionId, NodeId],
    slow: Collection[NodeId],
) -> Known:
    """What says where leaderships are and belong (procedures/master/schedulers/balance.py); no
    load."""
    return (
        tuple(sorted((node, how) for node, (how, _) in health.items())),
        tuple((id_, node, one.epoch) for id_, (node, one) in sorted(reports.leaders().items())),
        tuple((node, report.complete) for node, report in sorted(reports.nodes.items())),
        tuple(sorted(wanted.items())),
        tuple(sorted(slow)),
    )


def _step(size: float) -> int:
    """Sizes of one step are alike."""
    return int(log(size / _SMALL_BYTES) / _STEP) if size > _SMALL_BYTES else -1
