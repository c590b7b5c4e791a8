"""Reads of the past: a read at R shows the batch with the highest version at or below R, whoever
answered, and whenever it was asked (shapes of workloads/stale.py; beside batches.py, which judges
whether each read is whole, and the reads of now).

Finds

    missed        an older version than one that was acknowledged and lies at or below R
    future        a version above R
    went-back     an older version than a read at the same or an earlier moment has shown

Writes whose outcome is unknown are judged by the reads alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    groups: dict[int, list[Operation]] = defaultdict(list)
    for o in history.operations():
        if o.acknowledged:
            groups[o.args["group"]].append(o)
    return [anomaly for number in sorted(groups) for anomaly in _group(number, groups[number])]


def _group(number: int, operations: Sequence[Operation]) -> list[Anomaly]:
    """Sweep over moments, writes before reads of the same one."""
    events = [(int(o.info["version"]), 0, o) for o in operations if o.f == "write"]
    events += [(int(o.args["at"]), 1, o) for o in operations if o.args.get("at")]
    events.sort(key=lambda event: (event[0], event[1], event[2].id))
    found: list[Anomaly] = []
    newest, shown_by = 0, -1
    for at, reads, o in events:
        version = _shown(o) if reads else at
        if version > at:
            text = f"group {number}: #{o.id} at {at} saw version {version}"
            found.append(Anomaly("future", text, (o.id,)))
        elif version < newest:
            kind = "went-back" if _is_read(shown_by, operations) else "missed"
            text = f"group {number}: #{o.id} at {at} saw version {version}, not {newest}"
            found.append(Anomaly(kind, f"{text} of #{shown_by}", (shown_by, o.id)))
        elif version > newest:
            newest, shown_by = version, o.id
    return found


def _is_read(id: int, operations: Sequence[Operation]) -> bool:
    return any(o.id == id and o.f != "write" for o in operations)


def _shown(o: Operation) -> int:
    return max((int(row[1]) for row in o.result if row), default=0)
