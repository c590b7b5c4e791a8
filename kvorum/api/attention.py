"""What an operator should look at first, worked out of what a cluster tells of itself. Pure.

    findings(Facts(…)) → [{"level": "bad" | "warn" | "note", "kind", "title", "text", "do", "page"}]

The worst come first. `do`: what helps, in words, with a command where there is one; `page`: of the
console, where more is to be seen. One finding for all things of a kind: of a hundred partitions
that lack the same node the node is what matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kv.base.limits import DISK_FREE_BYTES_MIN, MiB
from procedures.engine.plain_data import Plain

Row = Plain

LAG_MAX: Final = 5_000  # log entries
LATE_MS_MAX: Final = 1_000
SYNC_MS_MAX: Final = 250
LOCK_AGE_MS: Final = 10 * 60_000
WAIT_AGE_MS: Final = 60_000
PAUSE_AGE_MS: Final = 24 * 3_600_000
CERTIFICATE_DAYS: Final = 30
CERTIFICATE_DAYS_LAST: Final = 7
DISK_LOW_BYTES: Final = 5_120 * MiB
RECENT_MS: Final = 5 * 60_000
_DAY_S: Final = 86_400
_SHOWN: Final = 3
_LEVELS: Final = ("bad", "warn", "note")
BACKUP: Final = "kvorum.backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Rows as `/v1/nodes` and so on tell them; what is not known, or who asks may not see, is
    empty.
    """

    now_ms: int
    master: int | None
    nodes: Sequence[Row] = ()
    partitions: Sequence[Row] = ()
    hours: Sequence[Row] = ()
    procedures: Row = field(default_factory=dict)  # procedures/pools/census.py
    locks: Row = field(default_factory=dict)
    schedules: Sequence[Row] | None = None
    pauses: Sequence[Row] = ()
    backups: Mapping[str, str] = field(default_factory=dict)  # the last run of a schedule → state


def findings(facts: Facts) -> list[dict[str, str]]:
    """See the module."""
    found = [
        *_nodes(facts),
        *_partitions(facts),
        *_hours(facts),
        *_procedures(facts),
        *_locks(facts),
        *_pauses(facts),
        *_backups(facts),
    ]
    return sorted(found, key=lambda one: _LEVELS.index(one["level"]))


def _one(level: str, kind: str, title: str, text: str, do: str, page: str) -> dict[str, str]:
    return {"level": level, "kind": kind, "title": title, "text": text, "do": do, "page": page}


def _nodes(facts: Facts) -> list[dict[str, str]]:
    found = []
    if facts.master is None:
        found.append(
            _one(
                *("bad", "master", "There is no master"),
                "Nobody leads the first partition: no timestamps, no procedures, no changes.",
                "Start nodes until a majority of those that have it is there.",
                "nodes",
            )
        )
    for node in facts.nodes:
        if node["state"] == "gone":
            continue
        name = f"Node {node['id']}"
        heard = node.get("heard_ms")
        if node["state"] == "down" or node.get("health") == "dead":
            ago = "" if heard is None else f", not heard for {_span(heard)}"
            found.append(
                _one(
                    *("bad", "node", f"{name} is down", f"{node['address']}{ago}"),
                    "Start it again. If it is gone for good: "
                    f"kvorum node decommission {node['id']}",
                    "nodes",
                )
            )
        elif node.get("health") == "suspect":
            found.append(
                _one(
                    *("warn", "node", f"{name} is silent", f"not heard for {_span(heard or 0)}"),
                    "Look at its log, its load and its network.",
                    "nodes",
                )
            )
        elif node["state"] in ("joining", "leaving"):
            what = f"{name} is {node['state']}"
            do = "Wait for it; the procedures page shows how far it is."
            found.append(_one("note", "node", what, str(node["address"]), do, "procedures"))
        free = node.get("disk_free")
        if free and free < DISK_LOW_BYTES:
            stops = "below 128 MiB it takes no more writes"
            level = "bad" if free < 2 * DISK_FREE_BYTES_MIN else "warn"
            said = f"{free / MiB / 1024:.1f} GiB are free; {stops}"
            do = "Give it room, add a node, or drop what is not needed."
            found.append(_one(level, "disk", f"{name} has little disk left", said, do, "nodes"))
    versions = Counter(str(node["version"]) for node in facts.nodes if node.get("version"))
    if len(versions) > 1:
        said = ", ".join(f"{count} of {version}" for version, count in sorted(versions.items()))
        do = "Fine during an upgrade: finish it."
        found.append(_one("note", "version", "Nodes run several versions", said, do, "nodes"))
    return found


def _partitions(facts: Facts) -> list[dict[str, str]]:
    found = []
    live = {node["id"] for node in facts.nodes if node["state"] not in ("down", "gone")}
    lost = [p["id"] for p in facts.partitions if p["leader"] is None]
    if lost:
        said = f"{_listed(lost)}: reads and writes of their keys wait."
        do = "Start the nodes that have their replicas."
        what = f"{_count(len(lost), 'partition')} without a leader"
        found.append(_one("bad", "leaderless", what, said, do, "partitions"))
    missing = Counter(
        node
        for p in facts.partitions
        for node in (*p["replicas"], *p.get("witnesses", ()))
        if node not in live
    )
    few = [p["id"] for p in facts.partitions if not live.issuperset(p["replicas"])]
    if few and missing:
        said = ", ".join(f"{n} at node {node}" for node, n in sorted(missing.items()))
        do = "Start those nodes; what stays away is replaced after a while, if there is room."
        what = f"{_count(len(few), 'partition')} with too few replicas"
        found.append(_one("warn", "replicas", what, f"Missing: {said}", do, "partitions"))
    behind = [
        (lag, p["id"], node)
        for p in facts.partitions
        for node, lag in p.get("lag", {}).items()
        if lag > LAG_MAX and int(node) in live
    ]
    if behind:
        lag, partition, node = max(behind)
        said = f"Node {node} lacks {lag} entries of partition {partition}."
        do = "It catches up by itself; if it does not, look at that node's disk and network."
        what = f"{_count(len(behind), 'replica')} far behind"
        found.append(_one("warn", "lag", what, said, do, "partitions"))
    return found


def _hours(facts: Facts) -> list[dict[str, str]]:
    found = []
    for hour in facts.hours:
        name = f"Node {hour['node']}"
        recent = [one for one in hour["samples"] if one[0] > facts.now_ms - RECENT_MS]
        late = max((one[6] for one in recent), default=0)
        if late >= LATE_MS_MAX:
            said = f"In the last minutes it did nothing else for {_span(late)}."
            do = "Too much work, or a machine that is too busy: look at its load."
            found.append(_one("warn", "late", f"{name} was held up", said, do, "overview"))
        sync = max((one[5] or 0 for one in recent), default=0)
        if sync >= SYNC_MS_MAX:
            said = f"A sync of its log took up to {_span(sync)}; each write waits for one."
            do = "Look who else writes to that disk, or give the log one of its own."
            found.append(_one("warn", "disk", f"{name} has a slow disk", said, do, "overview"))
        for kind, what in (("expires_seconds", "certificate"), ("ca_expires_seconds", "authority")):
            if kind not in hour:
                continue
            days = (hour[kind] - facts.now_ms / 1000) / _DAY_S
            if days < CERTIFICATE_DAYS:
                level = "bad" if days < CERTIFICATE_DAYS_LAST else "warn"
                ended = "has ended" if days < 0 else f"ends in {_count(int(days), 'day')}"
                do = "Make a new one (kvorum cert) and put it in its place: no restart is needed."
                title = f"The {what} of node {hour['node']} {ended}"
                said = "Without it nobody can connect."
                found.append(_one(level, "certificate", title, said, do, "nodes"))
    return found


_KINDS: Final = (
    (
        *("parked", "bad", "not run here"),
        "Their code is missing or has changed: deploy the version that they need.",
    ),
    (
        *("stuck", "bad", "stuck in a step"),
        "Look at the step; bypass or abort those that do not come back.",
    ),
    (
        *("retrying", "warn", "retrying after errors"),
        "Read the error; retry at once when the cause is mended, or abort.",
    ),
    ("rolling_back", "note", "rolling back", "They undo what they did; nothing is to be done."),
)


def _procedures(facts: Facts) -> list[dict[str, str]]:
    kinds = facts.procedures.get("kinds", {})
    found = []
    for kind, level, words, do in _KINDS:
        if count := kinds.get(kind, 0):
            names = {one["name"] for one in facts.procedures["first"] if one["kind"] == kind}
            what = f"{_count(count, 'procedure')} {words}"
            found.append(
                _one(level, kind, what, _listed(sorted(names)), do, f"procedures?kind={kind}")
            )
    return found


def _locks(facts: Facts) -> list[dict[str, str]]:
    found = []
    old = [one for one in facts.locks.get("locks", ()) if one["age_ms"] > LOCK_AGE_MS]
    if old:
        oldest = max(one["age_ms"] for one in old)
        what = f"{_count(len(old), 'key')} locked for long"
        said = f"The oldest for {_span(oldest)}."
        do = "Look whose transactions they are; abort those that nobody ends."
        found.append(_one("warn", "lock", what, said, do, "locks"))
    waits = [
        one
        for one in facts.locks.get("waits", ())
        if one["waited_ms"] > WAIT_AGE_MS
        and (one["kind"] != "procedure" or one["resource"].startswith("lock "))
    ]
    if waits:
        oldest = max(one["waited_ms"] for one in waits)
        what = f"{_count(len(waits), 'request')} waiting for locks"
        said = f"The first for {_span(oldest)}."
        do = "See who holds what they wait for."
        found.append(_one("warn", "wait", what, said, do, "locks"))
    down = {node["id"] for node in facts.nodes if node["state"] == "down"}  # it is told already
    missing = [node for node in facts.locks.get("missing", ()) if node not in down]
    if missing:
        said = f"Locks at {_listed(missing)} are not known."
        do = "Look whether these nodes are well."
        what = f"{_count(len(missing), 'node')} gave no answer"
        found.append(_one("note", "silent", what, said, do, "nodes"))
    return found


def _pauses(facts: Facts) -> list[dict[str, str]]:
    if not facts.pauses:
        return []
    said = [f"{one['kind']} {one['name']} by {one['by']} ({one['note']})" for one in facts.pauses]
    kinds = {one["kind"] for one in facts.pauses}
    first = facts.pauses[0]
    page = "schedules" if kinds == {"schedule"} else "queues"
    if len(facts.pauses) == 1 and kinds == {"procedure"}:
        page = f"procedures/{first['name']}"
    oldest = min(one["at_ms"] for one in facts.pauses)
    level = "warn" if facts.now_ms - oldest > PAUSE_AGE_MS else "note"
    what = f"{_count(len(said), 'thing')} paused"
    do = f"Resume what was forgotten; the oldest for {_span(facts.now_ms - oldest)}."
    return [_one(level, "pause", what, _listed(said), do, page)]


def _backups(facts: Facts) -> list[dict[str, str]]:
    if facts.schedules is None:
        return []
    mine = [one for one in facts.schedules if one["procedure"] == BACKUP]
    do = "kvorum backup create, or a schedule of kvorum.backup (kvorum schedule set)"
    if not mine:
        what, said = "No backup is scheduled", "What is deleted by mistake stays deleted."
        return [_one("note", "backup", what, said, do, "schedules")]
    found = []
    for one in mine:
        name, last, due = one["name"], one["last_ms"], one["next_ms"]
        if facts.backups.get(name) in ("FAILED", "ROLLED_BACK"):
            what = f"The last backup of schedule {name} failed"
            said, help_ = f"{_span(facts.now_ms - last)} ago", "Read why on its page."
            page = f"procedures/{one['last_id']}"
            found.append(_one("bad", "backup", what, said, help_, page))
        elif due and facts.now_ms - due > max(60_000, due - last if last else 0):
            what = f"A backup of schedule {name} is late"
            said = f"It was due {_span(facts.now_ms - due)} ago."
            found.append(_one("warn", "backup", what, said, "See what it waits for.", "schedules"))
    return found


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN]))
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _span(ms: float) -> str:
    for size, unit in ((_DAY_S * 1000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= 2 * size:
            return f"{int(ms / size)} {unit}"
    return f"{ms / 1000:.1f} s" if ms >= 1_000 else f"{int(ms)} ms"
