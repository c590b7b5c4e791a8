"""What Spark's writers have staged, as people and programs are told of it. Pure.

OPEN        rows are staged, under a lease that the writer's beats renew
PREPARED    it is a job's: stays until somebody decides
COMMITTING  a procedure commits it
DONE        its rows are visible, its staging is being removed
ABORTED     refused from then on; its staging goes
EXPIRED     its lease ended with finished tasks: said for a day
ORPHAN      tasks of an attempt that is gone: removed within a minute
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from shlex import quote  # its writer gave it its name
from typing import Any

from kv.base.limits import SINK_LEASE_MS, SINK_PREPARED_WARN_MS
from procedures.engine.plain_data import Plain


@dataclass(frozen=True, slots=True)
class SinkAttempt:
    """Staged work. `tasks`, `rows`, `chunks`: of finished tasks; `working`: other tasks that have
    laid rows in place. `more`: it has more tasks than were counted. `began_ms`, `user`, `app`:
    None and "" if nobody has said so; `version` is the application's batch. `since_ms`: for how
    long it is in this state. `left_ms` of its lease; None: it has none.
    """

    attempt: str
    table: str
    state: str
    tasks: int
    working: int
    rows: int
    chunks: int
    more: bool
    user: str
    app: str
    version: int
    procedure: int
    began_ms: int | None
    since_ms: int | None
    left_ms: int | None

    @property
    def silent(self) -> bool:
        """Whether its writer should have said something: it does so when a third of the lease is
        gone, and may be late by another third.
        """
        return self.state == "OPEN" and (self.left_ms or 0) < SINK_LEASE_MS // 4

    @property
    def level(self) -> str:
        """How much it is worth looking at: good, note, warn."""
        late = (self.since_ms or 0) >= SINK_PREPARED_WARN_MS
        match self.state:
            case "OPEN":
                return "warn" if self.silent else "good"
            case "PREPARED" | "COMMITTING":
                return "warn" if late else "good"
            case "DONE":
                return "good"
            case "EXPIRED":
                return "warn"
            case _:
                return "note"

    @property
    def do(self) -> str:
        """What it waits for, and what helps."""
        left = _minutes(self.left_ms)
        match self.state:
            case "OPEN" if self.silent:
                return (
                    "Its writer has gone silent. What it staged goes with the lease, in"
                    f" {left}; if the program is dead: kvorum spark abort {quote(self.attempt)}"
                )
            case "OPEN":
                return "It is being written."
            case "PREPARED":
                return (
                    f"It waits for its job, procedure {self.procedure}. If that program does not"
                    f" come back: kvorum spark commit {self.procedure}, or kvorum spark abort"
                    f" {self.procedure}"
                )
            case "COMMITTING":
                return f"Procedure {self.procedure} commits it: kvorum proc show {self.procedure}"
            case "DONE":
                return "Its rows are visible; what it staged is being removed."
            case "ABORTED":
                return f"Nothing of it is visible or stays; it is forgotten in {left}."
            case "EXPIRED":
                return (
                    "Its writer died before the commit, and nothing of it is visible: run the"
                    f" batch again. This is said for another {left}."
                )
            case _:
                return "What its tasks left is removed within a minute."

    def to_plain(self) -> Plain:
        return asdict(self) | {
            "procedure": str(self.procedure) if self.procedure else None,
            "level": self.level,
            "do": self.do,
        }

    @staticmethod
    def of(told: Any) -> SinkAttempt:
        """From what `to_plain` made of it."""
        known = {name: told[name] for name in SinkAttempt.__dataclass_fields__}
        return SinkAttempt(**known | {"procedure": int(told["procedure"] or 0)})


def _minutes(ms: int | None) -> str:
    minutes = (ms or 0) // 60_000
    if minutes >= 120:
        return f"{minutes // 60} hours"
    return f"{minutes} minutes" if minutes > 1 else "a minute"
