"""What the master knows of every node's replicas, from section "replicas" of their beats.

    payload   {"full": bool, "told_all": bool, "node": [cpu share, disk free, file bytes],
               "rows": [row of Report, …], "gone": [partition, …]}

A node says what has changed; to a new master, and after a lost beat, everything: `full` begins it,
`told_all` ends it (the next beats go on with it until then). Rows replace what was known of that
replica, so that one sent twice harms nothing. A master has the whole picture when every node that
it hears has reported everything once: within two beats of its beginning (A4).

Of two replicas that both say they lead, the one of the higher term is right (`leaders`). Rates are
averages of about ten seconds, in requests, bytes and standard traffic units (kv/base/traffic.py)
per second; only leaders have some.

Pure: the transport is kvorum/cluster/heartbeat.py, who makes the rows is
kvorum/cluster/replica_report.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, Final, NamedTuple

from kv.base.wire_row import WireRow
from procedures.engine.plain_data import Plain


class Hot(NamedTuple):
    """A key (in storage form, with its table's prefix) that has this share of the requests."""

    key: bytes
    share: float


@dataclass(frozen=True, slots=True)
class Report:
    """One replica at one node."""

    partition: int
    epoch: int
    leads: bool
    term: int
    applied: int
    size: int  # live bytes: keys and newest values, about without those that have expired
    old_versions: int  # rows that wait for the collector
    members: int
    reads: float  # per second, like all that follow
    read_bytes: float
    writes: float
    write_bytes: float
    units: float
    appended: float  # share of the new rows that were written after all others
    written: bool  # there ever was a row
    hot: tuple[Hot, ...]

    def to_wire(self) -> WireRow:
        row = list(astuple(self))
        row[-1] = [list(one) for one in self.hot]
        return row

    @staticmethod
    def from_wire(row: WireRow) -> Report:
        """Raises TypeError, ValueError. Fields of later versions are passed over."""
        values = list(row[:_FIELDS])
        values[-1] = tuple(Hot(*one) for one in values[-1])
        return Report(*values)


_FIELDS: Final = len(fields(Report))


@dataclass(slots=True)
class NodeReport:
    """What one node reported."""

    complete: bool = False  # everything, once
    cpu: float = 0.0  # share of one core that the process uses
    disk_free: int = 0
    file_bytes: int = 0
    replicas: dict[int, Report] | None = None

    @property
    def rows(self) -> dict[int, Report]:
        if self.replicas is None:
            self.replicas = {}
        return self.replicas


class Picture:
    """kvorum.cluster.heartbeat.MasterSection "replicas". Empty elsewhere than at the master."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeReport] = {}

    def begin(self) -> None:
        """A reign begins: nothing is known."""
        self.nodes = {}

    def handle(self, node: int, payload: Any) -> object:
        """What a node reports. Raises KeyError, TypeError, ValueError."""
        if payload is None:
            return None
        known = self.nodes.get(node)
        if known is None or payload["full"]:
            known = NodeReport()
        known.cpu, known.disk_free, known.file_bytes = payload["node"]
        for row in payload["rows"]:
            report = Report.from_wire(row)
            known.rows[report.partition] = report
        for partition in payload["gone"]:
            known.rows.pop(partition, None)
        if payload["told_all"]:
            known.complete = True
        self.nodes[node] = known
        return None

    def keep(self, nodes: Iterable[int]) -> None:
        """Forget all but these: a dead node's replicas serve nobody."""
        staying = set(nodes)
        for node in [node for node in self.nodes if node not in staying]:
            del self.nodes[node]

    # --------------------------------------------------------------------------------- questions

    def complete(self, nodes: Iterable[int]) -> bool:
        """Whether all of these have reported everything."""
        return all((n := self.nodes.get(node)) is not None and n.complete for node in nodes)

    def leaders(self) -> dict[int, tuple[int, Report]]:
        """By partition: the node that leads it, and what that reported."""
        found: dict[int, tuple[int, Report]] = {}
        for node in sorted(self.nodes):
            for partition, report in self.nodes[node].rows.items():
                known = found.get(partition)
                if report.leads and (known is None or report.term > known[1].term):
                    found[partition] = (node, report)
        return found

    def units(self) -> dict[int, float]:
        """By node: the standard traffic units per second of what it leads."""
        found = dict.fromkeys(sorted(self.nodes), 0.0)
        for node, report in self.leaders().values():
            found[node] += report.units
        return found

    def to_wire(self, health: Mapping[int, tuple[str, int | None]]) -> Plain:
        """The answer of REPORTS. `health`: Pulse.health."""
        return {
            "nodes": [
                [node, str(how), heard, *self._figures(node)]
                for node, (how, heard) in sorted(health.items())
            ],
            "partitions": [
                [node, report.to_wire()] for _, (node, report) in sorted(self.leaders().items())
            ],
        }

    def _figures(self, node: int) -> list[object]:
        known = self.nodes.get(node, NodeReport())
        return [known.complete, known.cpu, known.disk_free, known.file_bytes, len(known.rows)]


APPENDED_MIN: Final = 0.8  # of its new rows: then a partition is appended to
_WRITES_MIN: Final = 20.0  # per second: of less, the order of the keys does no harm
HOT_MIN: Final = 0.5  # of the requests: no cut helps a single key


def hint(report: Report) -> str:
    """What people should know about a partition's load, in a sentence; empty for nothing."""
    hot = report.hot[0] if report.hot else None
    if hot is not None and hot.share >= HOT_MIN and report.units >= _WRITES_MIN:
        return (
            f"one key has {hot.share:.0%} of the requests: no split divides it; spread it over "
            "several keys, or cache it"
        )
    if report.appended >= APPENDED_MIN and report.writes >= _WRITES_MIN:
        return (
            "new keys are always the highest: all writes go to this partition, however the table "
            "is split; put a hash or another column in front of the key to spread them"
        )
    return ""
