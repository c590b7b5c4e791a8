"""Section "replicas" of a node's beats: how its replicas are, as far as the master does not know.

Once a beat every replica is looked at: of one without traffic whose log did not grow that is a
comparison of four numbers. What differs from the last report is reported, in figures that are
rounded, so that a tremor is no news; an idle partition is reported once. After `again` (a new
master, a lost beat) everything is, REPORT_ROWS_MAX replicas with each beat, one after the other.

The format is in procedures/master/map/reports.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from kv.base.limits import (
    BEAT_SECTION_BYTES_MAX,
    HOT_KEYS_REPORTED_MAX,
    KEY_BYTES_MAX,
    REPORT_ROWS_MAX,
)
from kv.base.traffic import Load
from kv.partition.statistics import Rates, Sums
from kv.replica.replica import Replica
from kv.replica.state import PartitionState
from kv.storage.engine import Engine
from procedures.master.map.reports import Hot, Report

SECTION: Final = "replicas"
_DIGITS: Final = 2  # of a rate that is reported
_SIZE_STEPS: Final = 128  # a size is news when it has changed by so small a part
_ROW_BYTES: Final = 256  # of a report without its hot keys, at most
_BYTES_MAX: Final = BEAT_SECTION_BYTES_MAX // 2  # of the rows of one beat
_KEEP: Final = 0.8  # of what earlier looks found, when there are new samples
_APPENDS_MIN: Final = 6  # sampled rows on which the share of appended ones is said
_DISK_S: Final = 10.0
_TAIL_SHARE: Final = 0.95


class _Known:
    """What is remembered of one replica."""

    __slots__ = (
        "appended",
        "index",
        "inserts",
        "last",
        "leads",
        "quiet",
        "rates",
        "reads",
        "reported",
    )

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.index = self.reads = -1  # when it was looked at in full
        self.leads = False
        self.quiet = False  # its rates are zero
        self.reported: Report | None = None
        self.inserts = self.appended = 0.0  # sampled, of which at the end
        self.last = (0, 0)


class ReplicaReport:
    """kvorum.cluster.heartbeat.NodeSection."""

    def __init__(
        self,
        replicas: Callable[[], Iterable[Replica]],
        monotonic: Callable[[], float],
        *,
        cpu_s: Callable[[], float] = lambda: 0.0,
        disk: Callable[[], tuple[int, int]] = lambda: (0, 0),
        hurry: Callable[[], object] = lambda: None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`cpu_s`: that this process has used so far; `disk`: bytes free, and in files. `now_ms`:
        by the wall clock, for what has expired.
        """
        self._replicas, self._monotonic, self._now_ms = replicas, monotonic, now_ms
        self._cpu_s, self._disk, self._hurry = cpu_s, disk, hurry
        self._known: dict[int, _Known] = {}
        self._full = True  # the master knows nothing
        self._at = 0  # the place of the replica with which the next beat begins
        self._cpu = (cpu_s(), monotonic())

    def again(self) -> None:
        """Tell everything anew."""
        self._full = True

    def take(self, reply: object) -> None:
        """Nothing is answered."""

    def collect(self) -> dict[str, object] | None:
        """See the module."""
        now_s = self._monotonic()
        full, self._full = self._full, False
        if full:
            for each in self._known.values():
                each.reported = None
        rows: list[list[object]] = []
        here: set[int] = set()
        unreported, size = False, 0
        replicas = list(self._replicas())
        at, self._at = self._at, 0
        for i, replica in chain(enumerate(replicas[at:], at), enumerate(replicas[:at])):
            partition: int = replica.descriptor.id
            here.add(partition)
            known = self._known.get(partition)
            if known is None:
                known = self._begin(partition, replica, now_s)
            # Whatever there is to report changes one of these: a new epoch and a new term are
            # entries of the log.
            elif (
                known.quiet
                and known.index == replica.state.index
                and known.reads == replica.machine.traffic.reads
                and known.leads is replica.leads()
                and known.reported is not None
            ):
                continue
            if len(rows) >= REPORT_ROWS_MAX or size >= _BYTES_MAX:
                self._at = self._at or i  # the next beat begins with who found no room
                unreported = unreported or known.reported is None
                continue
            report = self._report(replica, known, now_s)
            if known.reported is None or _is_news(known.reported, report):
                known.reported = report
                rows.append(report.to_wire())
                size += _ROW_BYTES + sum(len(one.key) for one in report.hot)
        gone = [partition for partition in self._known if partition not in here]
        for partition in gone:
            del self._known[partition]
        if unreported:
            self._hurry()
        return {
            "full": full,
            "told_all": not unreported,
            "node": [*self._figures(now_s)],
            "rows": rows,
            "gone": gone,
        }

    def _size(self, state: PartitionState) -> int:
        """Live bytes without those of records that have expired and wait for the collector: what
        goes by itself is no reason to split, and none against a merge.
        """
        size = max(0, state.live_bytes)
        if not state.collected.expires:
            return size
        return round(size * (1 - state.collected.expired_share(self._now_ms())))

    def _begin(self, partition: int, replica: Replica, now_s: float) -> _Known:
        fresh = Rates(Sums.of(replica.machine.traffic), now_s)
        found = self._known[partition] = _Known(fresh)
        return found

    def _figures(self, now_s: float) -> Iterable[object]:
        cpu_s, (before_s, at_s) = self._cpu_s(), self._cpu
        self._cpu = (cpu_s, now_s)
        passed = now_s - at_s
        return (round((cpu_s - before_s) / passed, 3) if passed > 0 else 0.0, *self._disk())

    def _report(self, replica: Replica, known: _Known, now_s: float) -> Report:
        if known.reported is not None and known.reported.epoch != replica.descriptor.epoch:
            known.inserts = known.appended = 0.0  # they are of what it was before it was cut
        traffic, state = replica.machine.traffic, replica.state
        load = known.rates.look(Sums.of(traffic), now_s)
        known.quiet = load == Load() and not state.collected.expires
        leads = known.leads = replica.leads()
        known.index, known.reads = state.index, traffic.reads
        return Report(
            partition=int(replica.descriptor.id),
            epoch=replica.descriptor.epoch,
            leads=leads,
            term=replica.group.term,
            applied=state.index,
            size=self._size(state),
            old_versions=max(0, state.old_versions),
            members=len(replica.group.status().voters),
            reads=_rounded(load.reads),
            read_bytes=_rounded(load.read_bytes),
            writes=_rounded(load.writes),
            write_bytes=_rounded(load.write_bytes),
            units=_rounded(load.units),
            appended=_appended(replica, known) if leads else 0.0,
            written=state.top_ts > 0,
            hot=tuple(Hot(k, round(s, 2)) for k, s in traffic.hot.hot())
            if leads and not known.quiet
            else (),
        )


def _appended(replica: Replica, known: _Known) -> float:
    """Which share of the rows that are new lies after nearly all others. Samples; those of
    earlier looks count less each time that there are new ones.
    """
    sizes = replica.state.sizes
    if sizes.inserts < known.last[0]:
        known.last = (0, 0)  # another map: the partition was cut, or replaced by a snapshot
    inserts, appended = sizes.inserts - known.last[0], sizes.appended - known.last[1]
    known.last = (sizes.inserts, sizes.appended)
    if inserts:
        known.inserts = known.inserts * _KEEP + inserts
        known.appended = known.appended * _KEEP + appended
        sizes.watch_tail(_TAIL_SHARE)
    if known.inserts < _APPENDS_MIN:
        return 0.0
    return round(known.appended / known.inserts, 1)


def _rounded(rate: float) -> float:
    return float(f"{rate:.{_DIGITS}g}")


def _is_news(last: Report, now: Report) -> bool:
    """Whether the master should hear of it: `applied` alone is none."""
    for name in (
        "epoch",
        "leads",
        "term",
        "members",
        "reads",
        "writes",
        "units",
        "appended",
        "written",
        "hot",
    ):
        if getattr(last, name) != getattr(now, name):
            return True
    return any(
        abs(new - old) * _SIZE_STEPS > old
        for old, new in ((last.size, now.size), (last.old_versions, now.old_versions))
    )


class Seldom:
    """A figure that is costly to get, looked at every few seconds."""

    def __init__(self, look: Callable[[], tuple[int, int]], monotonic: Callable[[], float]) -> None:
        self._look, self._monotonic = look, monotonic
        self._at_s = float("-inf")
        self._last = (0, 0)

    def __call__(self) -> tuple[int, int]:
        now_s = self._monotonic()
        if now_s - self._at_s >= _DISK_S:
            self._at_s, self._last = now_s, self._look()
        return self._last


def disk_figures(engine: Engine) -> tuple[int, int]:
    """Bytes free on the disk, and in files of the state DB."""
    stats = engine.stats()
    return stats.get("disk_free_bytes", 0), stats.get("file_bytes", 0)


assert _ROW_BYTES * REPORT_ROWS_MAX <= _BYTES_MAX
assert _BYTES_MAX + HOT_KEYS_REPORTED_MAX * (KEY_BYTES_MAX + 16) < BEAT_SECTION_BYTES_MAX
