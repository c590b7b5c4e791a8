"""Values that only grow never go back in real time (shapes of workloads/monotonic.py).

Finds "went-back": an answer that names less than one that had come before it was asked for, of
values or of versions; the same process or another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    found: list[Anomaly] = []
    operations = [o for o in history.operations() if o.acknowledged]
    for key in sorted({o.args["key"] for o in operations}):
        of_key = [o for o in operations if o.args["key"] == key]
        values = [o for o in of_key if o.result is not None]
        found += went_back(values, lambda o: int(o.result), f"counter {key}")
        versions = [o for o in of_key if o.info.get("version")]
        found += went_back(versions, lambda o: int(o.info["version"]), f"version of {key}")
    return found


def went_back(
    operations: Sequence[Operation],
    number: Callable[[Operation], int],
    what: str,
    *,
    strictly: bool = False,
) -> list[Anomaly]:
    """Whoever asked after an answer must hear at least its number (more, if `strictly`)."""
    found = []
    begins = [(o.began, True, o) for o in operations]
    events = sorted(begins + [(o.ended, False, o) for o in operations], key=lambda e: e[0])
    greatest: Operation | None = None
    before: dict[int, Operation] = {}
    for _, is_call, o in events:
        if is_call:
            if greatest is not None:
                before[o.id] = greatest
            continue
        known = before.get(o.id)
        if known is not None and (number(o), not strictly) < (number(known), True):
            text = (
                f"{what}: #{o.id} {o.f} → {number(o)} at {o.ended_s:.3f} s, though #{known.id} "
                f"{known.f} → {number(known)} had been answered before it was asked"
            )
            found.append(Anomaly("went-back", text, (known.id, o.id)))
        if greatest is None or number(o) > number(greatest):
            greatest = o
    return found
