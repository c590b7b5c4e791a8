"""Batches: all or nothing in every read, in order, and nothing lost (shapes of
workloads/batches.py).

Finds

    torn           a read with two values or two versions, or a part of the keys
    wrong-past     a read at an acknowledged version that did not return its batch
    from-nowhere   a value that nobody wrote, or whose write was refused, or not begun yet
    went-back      an older version than one that was answered before
    lost           a group that is empty or older at the end than what was acknowledged
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.checkers.monotonic import went_back
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    groups: dict[int, list[Operation]] = defaultdict(list)
    for o in history.operations():
        groups[o.args["group"]].append(o)
    found: list[Anomaly] = []
    for number in sorted(groups):
        found += _group(number, groups[number])
    return found


def _group(number: int, operations: Sequence[Operation]) -> list[Anomaly]:
    writes = {o.args["value"]: o for o in operations if o.f == "write" and o.args["value"]}
    versions = {o.info["version"]: o for o in operations if o.f == "write" and o.acknowledged}
    found: list[Anomaly] = []
    present = []
    for o in operations:
        if o.f == "write" or not o.acknowledged:
            continue
        found += _whole(number, o)
        found += _source(number, o, writes)
        if o.args["how"] == "past":
            found += _past(number, o, versions)
        else:
            present.append(o)
    acknowledged = list(versions.values())
    # A group that was deleted has no version: such reads are judged by what was written before.
    numbered = [o for o in present if _version(o)] + acknowledged
    found += went_back(numbered, _version, f"version of group {number}")
    found += _empty(number, [o for o in present if not _version(o)], operations)
    return found


def _version(o: Operation) -> int:
    if o.f == "write":
        return int(o.info["version"])
    return max((int(row[1]) for row in o.result if row), default=0)


def _whole(number: int, o: Operation) -> list[Anomaly]:
    if all(row == o.result[0] for row in o.result):
        return []
    text = f"group {number}: #{o.id} {o.f} by {o.args['how']} saw {o.result}"
    return [Anomaly("torn", text, (o.id,))]


def _source(number: int, o: Operation, writes: dict[int, Operation]) -> list[Anomaly]:
    found = []
    for value in sorted({row[0] for row in o.result if row}):
        write = writes.get(value)
        if write is None:
            text = f"group {number}: #{o.id} {o.f} saw {value}, which nobody wrote"
            found.append(Anomaly("from-nowhere", text, (o.id,)))
        elif write.outcome == "fail":
            text = f"group {number}: #{o.id} {o.f} saw {value}, refused in #{write.id}"
            found.append(Anomaly("from-nowhere", f"{text} ({write.error})", (write.id, o.id)))
        elif write.began > o.ended:
            text = f"group {number}: #{o.id} {o.f} saw {value} before #{write.id} wrote it"
            found.append(Anomaly("from-nowhere", text, (write.id, o.id)))
    return found


def _past(number: int, o: Operation, versions: dict[int, Operation]) -> list[Anomaly]:
    write = versions.get(o.args["at"])
    if write is None:
        return []  # it was acknowledged in a part of the history that is not here
    wanted = None if write.args["value"] is None else [write.args["value"], o.args["at"]]
    if all((list(row) if row else None) == wanted for row in o.result):
        return []
    text = f"group {number}: #{o.id} at version {o.args['at']} saw {o.result}, not {wanted}"
    return [Anomaly("wrong-past", text, (write.id, o.id))]


def _empty(
    number: int, reads: Sequence[Operation], operations: Sequence[Operation]
) -> list[Anomaly]:
    """A group is empty only before its first write, or if a delete may have come last."""
    writes = [o for o in operations if o.f == "write" and o.acknowledged]
    deletes = [
        o for o in operations if o.f == "write" and o.args["value"] is None and o.outcome != "fail"
    ]
    found = []
    for o in reads:
        before = [w for w in writes if w.ended < o.began and w.args["value"] is not None]
        last = max(before, key=_version, default=None)
        if last is None or any(
            d.began < o.ended and (not d.acknowledged or _version(d) > _version(last))
            for d in deletes
        ):
            continue
        text = f"group {number}: #{o.id} {o.f} saw nothing after #{last.id} was acknowledged"
        found.append(Anomaly("lost", text, (last.id, o.id)))
    return found
