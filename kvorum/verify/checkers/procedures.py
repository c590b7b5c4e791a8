"""Procedures: every step's effect is there exactly once (shapes of workloads/procedure.py).

Finds

    steps          a counter that is not the number of steps: a step was lost or done twice
    result         a procedure that says another number of steps itself
    from-nowhere   a counter of a procedure that was refused, or that nobody submitted
    two-ids        one nonce, two procedures
    unfinished     an acknowledged procedure whose end nobody could wait for
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    steps = int(history.header.parameters["steps"])
    operations = history.operations()
    submits = [o for o in operations if o.f in ("submit", "final submit")]
    awaits = [o for o in operations if o.f in ("await", "final await") and o.acknowledged]
    found = [
        Anomaly("result", f"#{o.id}: procedure {o.args['id']} counted {o.result} steps", (o.id,))
        for o in awaits
        if o.result != steps
    ]
    ids: dict[str, Operation] = {}
    for o in submits:
        if not o.acknowledged:
            continue
        first = ids.setdefault(o.args["nonce"], o)
        if first.result != o.result:
            text = f"nonce {o.args['nonce']} is procedure {first.result} and {o.result}"
            found.append(Anomaly("two-ids", text, (first.id, o.id)))
    ends = [o for o in operations if o.f == "final read" and o.acknowledged]
    if ends:
        ended = {o.args["id"] for o in awaits}
        found += _unfinished(ids, ended)
        found += _counters(ends[-1], submits, ids, steps)
    return found


def _unfinished(ids: dict[str, Operation], ended: set[int]) -> list[Anomaly]:
    return [
        Anomaly("unfinished", f"#{o.id}: procedure {o.result} ({nonce}) did not succeed", (o.id,))
        for nonce, o in ids.items()
        if o.result not in ended
    ]


def _counters(
    end: Operation, submits: Sequence[Operation], ids: dict[str, Operation], steps: int
) -> list[Anomaly]:
    asked = {o.args["nonce"]: o for o in submits}
    refused = {o.args["nonce"] for o in submits if o.outcome == "fail"}
    found = []
    for nonce, o in ids.items():
        counted = end.result.get(nonce, 0)
        if counted != steps:
            text = (
                f"#{o.id}: procedure {o.result} left its counter {nonce} at {counted}, not {steps}"
            )
            found.append(Anomaly("steps", text, (o.id, end.id)))
    for nonce, counted in end.result.items():
        if nonce in ids:
            continue
        if nonce not in asked or (nonce in refused and asked[nonce].outcome == "fail"):
            text = f"counter {nonce} is {counted}, though its procedure was never taken on"
            found.append(Anomaly("from-nowhere", text, (end.id,)))
    return found
