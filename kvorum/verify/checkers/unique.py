"""Timestamps of the oracle: handed out once, and rising in real time (shapes of
workloads/uniqueids.py). Finds "twice" and "went-back".
"""

from __future__ import annotations

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.checkers.monotonic import went_back
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    taken = [o for o in history.operations() if o.acknowledged]
    found = []
    first: dict[int, Operation] = {}
    for o in taken:
        other = first.setdefault(int(o.result), o)
        if other is not o:
            text = f"#{other.id} and #{o.id} were both given {o.result}"
            found.append(Anomaly("twice", text, (other.id, o.id)))
    return found + went_back(taken, lambda o: int(o.result), "timestamps", strictly=True)
