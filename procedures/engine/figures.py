"""How long steps and procedures take, and what waits: per type, step and queue, at the master.

Counted from the histories of records as they come past (`Roster.moved`), whoever ran the steps: so
what workers run is in it, too. A new master begins with nothing, as Prometheus expects of a process
that starts. The number of types, steps and queues is bounded; those beyond are counted as `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from procedures.engine.records import Entry, Record

EDGES_MS: Final = (1, 5, 25, 100, 500, 2_500, 10_000, 60_000, 600_000)
OTHER: Final = "other"
_TYPES_MAX: Final = 200
_STEPS_MAX: Final = 50  # of one type
_RETRY: Final = "retry:"
_FAIL: Final = "fail:"


class Times:
    """A histogram. `counts[i]` took at most EDGES_MS[i], the last longer."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(EDGES_MS) + 1)
        self.sum_ms = 0

    def add(self, ms: int) -> None:
        self.counts[bisect_left(EDGES_MS, ms)] += 1
        self.sum_ms += ms


class OfStep:
    __slots__ = ("failures", "retries", "times")

    def __init__(self) -> None:
        self.times = Times()  # of those that were finished
        self.retries = self.failures = 0


class OfType:
    __slots__ = ("ended", "steps", "times")

    def __init__(self) -> None:
        self.steps: dict[str, OfStep] = {}
        self.ended: dict[str, int] = {}  # by state
        self.times = Times()  # from the submission to the end


class Figures:
    """Of one executor."""

    def __init__(self) -> None:
        self.types: dict[str, OfType] = {}

    def moved(self, before: Record | None, after: Record) -> None:
        """A record is now this one; `before`: as it was, if that is known."""
        now = after.spilled + len(after.history)
        then = now - 1 if before is None else before.spilled + len(before.history)
        new = min(max(0, now - then), len(after.history))
        if not (new or after.ended):
            return
        of = self._type(after.name)
        self._entries(of, after.history[len(after.history) - new :])
        if after.ended and not (before is not None and before.ended):
            of.ended[after.state.name] = of.ended.get(after.state.name, 0) + 1
            of.times.add(max(0, after.updated_ms - after.created_ms))

    def _entries(self, of: OfType, entries: Sequence[Entry]) -> None:
        for entry in entries:
            name = entry.step if entry.step in of.steps or len(of.steps) < _STEPS_MAX else OTHER
            step = of.steps.get(name)
            if step is None:
                step = of.steps[name] = OfStep()
            if entry.outcome.startswith(_RETRY):
                step.retries += 1
            elif entry.outcome.startswith(_FAIL):
                step.failures += 1
            else:
                step.times.add(entry.took_ms)

    def _type(self, name: str) -> OfType:
        found = self.types.get(name)
        if found is None:
            if len(self.types) >= _TYPES_MAX:
                name = OTHER
            found = self.types.setdefault(name, OfType())
        return found
