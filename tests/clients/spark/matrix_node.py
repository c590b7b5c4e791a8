"""Loaded by the nodes of the kill matrix as a module of procedures: leases that a run lives to see
end, and a point before and behind each step of a commit and its cleaning (`write<`, `write>`: it
ran, and is not committed yet). No test imports it: it would change all tests of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kv.base import limits
from kvorum.node import maintenance
from procedures.engine.registry import StepDef, declaration
from procedures.sink.sink_clean import SinkClean
from procedures.sink.sink_commit import SinkCommit
from tests.clients.spark.matrix_lease import LEASE_MS
from tests.clients.spark.matrix_points import LOOK_S, Waiting, planned

limits.SINK_LEASE_MS = LEASE_MS  # type: ignore[misc]
limits.SINK_EXPIRED_MS = 2 * LEASE_MS  # type: ignore[misc]
maintenance._REAP_INTERVAL_S = 2.0  # type: ignore[misc]


async def point(name: str) -> None:
    plan = planned(name)
    if plan is None:
        return
    waiting = Waiting(plan)
    while waiting.on:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(LOOK_S)


def between(step: StepDef) -> StepDef:
    """The step between two points."""
    plain: Callable[[Any, Any], Any] = step.method

    async def method(self: Any, ctx: Any) -> Any:
        await point(f"{step.name}<")
        outcome = await plain(self, ctx)
        await point(f"{step.name}>")
        return outcome

    return replace(step, method=method)


for _cls in (SinkCommit, SinkClean):
    _steps: Any = declaration(_cls).steps
    for _name, _step in list(_steps.items()):
        _steps[_name] = between(_step)
