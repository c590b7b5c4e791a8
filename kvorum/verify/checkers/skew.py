"""Write skew: of each group at most one claim succeeds (shapes of workloads/skew.py).

Finds "write-skew" (two acknowledged claims, or a read of two rows) and "lost" (a read that began
after a claim was acknowledged and found nothing). Snapshot isolation permits the first, so it is
judged only where the history says that it ran serializable.
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
    serializable = history.header.isolation == "serializable"
    found: list[Anomaly] = []
    for number in sorted(groups):
        claims = [o for o in groups[number] if o.f == "claim" and o.result is True]
        reads = [o for o in groups[number] if o.f != "claim"]
        if serializable:
            found += _twice(number, claims, reads)
        found += _lost(number, claims, reads)
    return found


def _twice(group: int, claims: Sequence[Operation], reads: Sequence[Operation]) -> list[Anomaly]:
    if len(claims) > 1:
        text = f"group {group}: {' and '.join(f'#{o.id}' for o in claims)} all found it empty"
        return [Anomaly("write-skew", text, tuple(o.id for o in claims))]
    return [
        Anomaly("write-skew", f"group {group}: #{o.id} found {len(o.result)} rows", (o.id,))
        for o in reads
        if len(o.result) > 1
    ]


def _lost(group: int, claims: Sequence[Operation], reads: Sequence[Operation]) -> list[Anomaly]:
    if not claims:
        return []
    first = min(claims, key=lambda o: o.ended)
    return [
        Anomaly(
            "lost",
            f"group {group}: #{o.id} found nothing after #{first.id} claimed it",
            (first.id, o.id),
        )
        for o in reads
        if not o.result and o.began > first.ended
    ]
