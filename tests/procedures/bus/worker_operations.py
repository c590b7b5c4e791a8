"""What the workers of test_bus_workers.py carry out."""

from __future__ import annotations

import os
from typing import Any

import kvorum

seen: list[tuple[str, Any]] = []
refuses: set[str] = set()


@kvorum.procedure("worker_operations.idle")
class Idle:
    @kvorum.step(first=True)
    async def go(self, ctx: Any) -> Any:
        return kvorum.done()


@kvorum.operation("reload")
class Reload:
    """One phase."""

    async def do(self, job: Any) -> Any:
        seen.append(("do", job.body["n"]))
        job.progress({"half": True})
        if "reload" in refuses:
            raise kvorum.Refused("not today", code="NOT_TODAY")
        return os.getpid()

    async def undo(self, job: Any) -> None:
        seen.append(("undo", job.body["n"]))


@kvorum.operation("switch")
class Switch:
    """Two phases."""

    async def stage(self, job: Any) -> Any:
        seen.append(("stage", job.body["n"]))
        if "switch" in refuses:
            raise kvorum.Refused("not ready", code="NOT_READY")

    async def commit(self, job: Any) -> Any:
        seen.append(("commit", job.body["n"]))
        return "switched"

    async def undo(self, job: Any) -> None:
        seen.append(("undo", job.body["n"]))
