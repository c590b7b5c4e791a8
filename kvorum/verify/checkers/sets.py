"""The set: what was acknowledged is there for every later scan, whole, once.

The shapes are those of workloads/sets.py. Finds

    lost           acknowledged before the scan began, and not in it
    vanished       seen by a scan that ended before this one began, and not in it
    from-nowhere   an element that nobody added, whose add was refused, or not begun yet
    twice          an element that a scan returned more than once
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation

_SHOWN = 5


def check(history: History) -> list[Anomaly]:
    """See the module."""
    rounds: dict[int, list[Operation]] = defaultdict(list)
    for o in history.operations():
        rounds[o.args["round"]].append(o)
    return [anomaly for number in sorted(rounds) for anomaly in _round(rounds[number])]


def _round(operations: Sequence[Operation]) -> list[Anomaly]:
    adds = {o.args["element"]: o for o in operations if o.f == "add"}
    scans = [o for o in operations if o.f in ("read", "final") and o.acknowledged]
    found: list[Anomaly] = []
    known: dict[int, int] = {}
    """Elements that must be seen by scans that begin after the position (the earliest proof)."""
    for element, o in adds.items():
        if o.acknowledged:
            known[element] = o.ended
    for scan in sorted(scans, key=lambda o: o.ended):
        found += _strangers(scan, adds)
        seen = set(scan.result)
        for element in seen:
            known[element] = min(known.get(element, scan.ended), scan.ended)
    for scan in scans:
        seen = set(scan.result)
        missing = sorted(e for e, since in known.items() if since < scan.began and e not in seen)
        lost = [e for e in missing if e in adds and adds[e].ended < scan.began]
        vanished = [e for e in missing if e not in lost]
        found += _missing("lost", "was acknowledged before it began", scan, lost, adds)
        found += _missing("vanished", "had been seen before it began", scan, vanished, adds)
    return found


def _strangers(scan: Operation, adds: dict[int, Operation]) -> list[Anomaly]:
    found = []
    for element, times in Counter(scan.result).items():
        o = adds.get(element)
        if times > 1:
            text = f"#{scan.id} {scan.f} returned {element} {times} times"
            found.append(Anomaly("twice", text, (scan.id,)))
        if o is None:
            text = f"#{scan.id} {scan.f} returned {element}, which nobody added"
            found.append(Anomaly("from-nowhere", text, (scan.id,)))
        elif o.outcome == "fail":
            text = f"#{scan.id} {scan.f} returned {element}, whose add #{o.id} failed: {o.error}"
            found.append(Anomaly("from-nowhere", text, (o.id, scan.id)))
        elif o.began > scan.ended:
            text = f"#{scan.id} {scan.f} returned {element} before its add #{o.id} began"
            found.append(Anomaly("from-nowhere", text, (o.id, scan.id)))
    return found


def _missing(
    kind: str, why: str, scan: Operation, elements: list[int], adds: dict[int, Operation]
) -> list[Anomaly]:
    if not elements:
        return []
    shown = ", ".join(map(str, elements[:_SHOWN])) + (" …" if len(elements) > _SHOWN else "")
    text = f"#{scan.id} {scan.f} (began {scan.began_s:.3f} s) did not return {shown}, which {why}"
    involved = [adds[e].id for e in elements[:_SHOWN] if e in adds]
    return [Anomaly(kind, text, (*involved, scan.id))]
