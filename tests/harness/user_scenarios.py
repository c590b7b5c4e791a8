"""A user's workflow among the built-in types: a function whose calls are stored, in a cluster whose
nodes are lost under it.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from procedures.engine.context import StepContext
from procedures.engine.flow import Flow
from procedures.engine.registry import Registry
from procedures.engine.workflow import workflow
from tests.harness.world import TABLE, Place

FLOW: Final = "sample.flow"
_KEYS: Final = ("flow-1", "flow-2", "flow-3")


async def _count_up(ctx: StepContext, key: str) -> int:
    table = ctx.txn.table(*TABLE)
    row = await table.get(key)
    count = int(row.value if row else b"0") + 1
    table.put(key, str(count))
    return count


async def _count_down(ctx: StepContext, key: str) -> None:
    table = ctx.txn.table(*TABLE)
    row = await table.get(key)
    assert row is not None, f"{key} is undone and was never done"
    table.put(key, str(int(row.value) - 1))


@workflow(FLOW)
async def sample_flow(flow: Flow) -> list[int]:
    """A step, two at once, a pause, and the end: each time all counts go up by one."""
    first = flow.step(_count_up, _KEYS[0], undo=_count_down)
    counts = [await first]
    both = (flow.step(_count_up, key, undo=_count_down) for key in _KEYS[1:])
    counts += await flow.gather(*both)
    await flow.sleep(500)
    return counts


def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node has it, as if it were started with its module."""
    follow = Registry.users_follow

    def with_flow(self: Registry) -> None:
        follow(self)
        self.add(sample_flow)

    monkeypatch.setattr(Registry, "users_follow", with_flow)


async def a_table(place: Place) -> Any:
    await place.table()


async def counted(place: Place, args: Any, happened: bool) -> Any:
    """All counts are alike, and as large as often as it happened."""
    table = place.db.table(*TABLE)
    rows = [await table.get(key) for key in _KEYS]
    counts = [0 if row is None else int(row.value) for row in rows]
    if len(set(counts)) > 1 or (counts[0] > 0) != happened or counts[0] > 2:
        return f"the counts are {counts}"
    return None
