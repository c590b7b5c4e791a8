"""Refusals that nothing explains: no request of a workload is wrong, so none may be called wrong.

A conflict, a full queue or a missing leader is an answer that clients live with; INVALID_ARGUMENT,
CORRUPTION or an internal error is not. Finds "refused", once per code.
"""

from __future__ import annotations

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation

_SHOWN = 5


def check(history: History) -> list[Anomaly]:
    """See the module."""
    codes: dict[str, list[Operation]] = {}
    for o in history.operations():
        if o.info.get("wrong"):
            codes.setdefault(o.error, []).append(o)
    return [
        Anomaly(
            "refused",
            f"{len(some)} requests were called wrong ({code}): {some[0].info['wrong']}",
            tuple(o.id for o in some[:_SHOWN]),
        )
        for code, some in sorted(codes.items())
    ]
