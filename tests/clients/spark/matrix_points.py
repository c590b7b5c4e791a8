"""Places where the kill matrix stops a process, by files in the folder MATRIX_FOLDER:

    plan-ID.json   {id, point, action, times}: what to do when a process comes to a point
    reached-ID     the process that did: {pid, ppid}
    go-ID          a process that waits goes on

Of several processes that come to a point at once, one does what the plan says.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

WAIT_S = 120.0
LOOK_S = 0.01


def folder() -> Path:
    return Path(os.environ["MATRIX_FOLDER"])


def planned(name: str) -> dict[str, Any] | None:
    """The plan for this point, which is this process's now."""
    for path in sorted(folder().glob("plan-*.json")):
        try:
            plan: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if plan["point"] != name:
            continue
        mine = path.with_suffix(f".{os.getpid()}")
        try:
            path.rename(mine)
        except FileNotFoundError:
            continue
        if plan.get("times", 1) > 1:
            again = path.with_suffix(".new")
            again.write_text(json.dumps({**plan, "times": plan["times"] - 1}))
            again.rename(path)
        told = folder() / f"told.{os.getpid()}"
        told.write_text(json.dumps({"pid": os.getpid(), "ppid": os.getppid()}))
        told.rename(folder() / f"reached-{plan['id']}")
        return plan
    return None


class Waiting:
    """`while waiting.on: sleep`."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._go = folder() / f"go-{plan['id']}"
        self._until = time.monotonic() + WAIT_S

    @property
    def on(self) -> bool:
        return not self._go.exists() and time.monotonic() < self._until
