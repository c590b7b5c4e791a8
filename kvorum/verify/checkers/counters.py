"""Increments: none lost, none done twice (shapes of workloads/monotonic.py).

Finds "lost-update" (two acknowledged increments made the same value; or the end is below what was
acknowledged), "done-twice" (the end is above all that was asked for and not refused) and
"version-order" (a greater value with a smaller version).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    found: list[Anomaly] = []
    operations = history.operations()
    for key in sorted({o.args["key"] for o in operations}):
        of_key = [o for o in operations if o.args["key"] == key]
        increments = [o for o in of_key if o.f == "increment"]
        ends = [o for o in of_key if o.f == "final" and o.acknowledged]
        found += _twice(key, [o for o in increments if o.acknowledged])
        if ends:
            found += _end(key, ends[-1], increments)
    return found


def _twice(key: str, done: Sequence[Operation]) -> list[Anomaly]:
    found = []
    for a, b in pairwise(sorted(done, key=lambda o: (int(o.result), o.id))):
        if a.result == b.result:
            text = f"counter {key}: #{a.id} and #{b.id} both made it {a.result}"
            found.append(Anomaly("lost-update", text, (a.id, b.id)))
        elif int(a.info.get("version") or 0) >= int(b.info.get("version") or 1 << 64):
            text = (
                f"counter {key}: #{a.id} made it {a.result} at version {a.info['version']}, "
                f"#{b.id} {b.result} at version {b.info['version']}"
            )
            found.append(Anomaly("version-order", text, (a.id, b.id)))
    return found


def _end(key: str, end: Operation, increments: Sequence[Operation]) -> list[Anomaly]:
    sure = sum(o.acknowledged for o in increments)
    maybe = sum(o.outcome == "unknown" for o in increments)
    value = int(end.result or 0)
    if sure <= value <= sure + maybe:
        return []
    kind = "lost-update" if value < sure else "done-twice"
    text = (
        f"counter {key} ends at {value}, but {sure} increments were acknowledged and {maybe} are "
        "unknown"
    )
    return [Anomaly(kind, text, (end.id,))]
