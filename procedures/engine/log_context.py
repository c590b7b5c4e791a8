"""Which step runs here, for whoever writes log lines (kvorum/local/logs.py): what users' code logs
says of which procedure it speaks.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class Running(NamedTuple):
    id: int
    name: str
    step: str
    attempt: int


RUNNING: Final[ContextVar[Running | None]] = ContextVar("kvorum_step", default=None)


def fields() -> dict[str, object]:
    """Of a log line."""
    now = RUNNING.get()
    if now is None:
        return {}
    found = {"procedure": str(now.id), "type": now.name, "step": now.step}
    return found | {"attempt": now.attempt}
