"""What happened in a run, and what a test says of it.

step      a process began to execute a step (of a class, or of a workflow), or an undo
returned  the step returned, or …
raised    … raised; what it wrote is committed, or not, after that
effect    an outside service did something
repeated  it was asked again with the same idempotency key, and did nothing
asked     it was asked, and did not do it (the request was lost, or refused)
fault     a process died, a link was cut: what the test or an exploration did
note      whatever the test wants to find again in the story
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvorum.testing.durations import said


@dataclass(frozen=True, slots=True)
class Event:
    """`at_ms`: since the run began. `who`: the process or service that it happened in."""

    at_ms: int
    kind: str
    who: str
    name: str
    procedure: int = 0
    attempt: int = 0
    key: str = ""
    """Of an effect: its idempotency key; of a step: its token."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        what = {
            "step": f"begins {self.name}" + (f", attempt {self.attempt}" * (self.attempt > 1)),
            "returned": f"{self.name} returned",
            "raised": f"{self.name} raised",
            "effect": f"does {self.name}",
            "repeated": f"is asked for {self.name} again, and does nothing",
            "asked": f"is asked for {self.name}, and does not do it",
        }.get(self.kind, self.name)
        of = f" (procedure {self.procedure})" if self.procedure else ""
        more = " ".join(f"{name}={value!r:.60}" for name, value in self.details.items())
        return f"{said(self.at_ms)}  {self.who}: {what}{of}{' ' * bool(more)}{more}"


class History:
    """Of one run, in the order of time. What `assert_…` finds wrong is raised with the story."""

    EVENTS_MAX = 100_000

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.events: list[Event] = []
        self._now_ms = now_ms

    def add(self, kind: str, who: str, name: str, **more: Any) -> None:
        if len(self.events) >= self.EVENTS_MAX:
            raise AssertionError(f"a run of more than {self.EVENTS_MAX} events: it goes in circles")
        self.events.append(Event(self._now_ms(), kind, who, name, **more))

    def of(self, kind: str, name: str = "", procedure: int = 0) -> list[Event]:
        """Those of a kind; with this name, of this procedure."""
        return [
            one
            for one in self.events
            if one.kind == kind
            and name in ("", one.name)
            and (not procedure or one.procedure == procedure)
        ]

    def steps(self, name: str = "", procedure: int = 0) -> list[Event]:
        """Executions of steps; those that died with their process included."""
        return self.of("step", name, procedure)

    def effects(self, name: str = "") -> list[Event]:
        """What outside services did."""
        return self.of("effect", name)

    def story(self, last: int = 0) -> str:
        """A line for each event (the `last` ones; 0 = all)."""
        return "\n".join(map(str, self.events[-last:]))

    def _fail(self, why: str) -> None:
        raise AssertionError(f"{why}\n{self.story(200)}")

    # -- what a test says of it
    def assert_once(self, name: str, **details: object) -> None:
        """An outside service has done it exactly once (with these details, if some are given)."""
        self.assert_times(name, 1, **details)

    def assert_never(self, name: str, **details: object) -> None:
        """No outside service has done it."""
        self.assert_times(name, 0, **details)

    def assert_times(self, name: str, times: int, **details: object) -> None:
        """Outside services have done it so many times. If there is no such effect at all, it is a
        step of this name that has returned so often.
        """
        found = [one for one in self.effects(name) if details.items() <= one.details.items()]
        if not self.of("effect", name) and not self.of("asked", name) and not details:
            found = self.of("returned", name)
        if len(found) != times:
            self._fail(f"{name}{details or ''} happened {len(found)} times, not {times}")

    def assert_no_double_effect(self) -> None:
        """No outside service has done the same thing (name, key and details) twice for one
        procedure.
        """
        counts = Counter(
            (one.who, one.name, one.procedure, one.key, repr(sorted(one.details.items())))
            for one in self.effects()
        )
        for (who, name, procedure, *_), count in counts.items():
            if count > 1:
                self._fail(f"{who} has done {name} {count} times for procedure {procedure}")

    def assert_order(self, *names: str) -> None:
        """Each of these steps has returned, the first time after the one before did."""
        before = -1
        for name in names:
            at = [
                i for i, one in enumerate(self.events) if (one.kind, one.name) == ("returned", name)
            ]
            if not at:
                self._fail(f"step {name} has not returned")
            if at[0] < before:
                self._fail(f"step {name} returned before those that stand before it in {names}")
            before = at[0]
