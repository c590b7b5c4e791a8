"""What workers of the real-process tests run."""

from __future__ import annotations

import time
from typing import Any

import kvorum


@kvorum.procedure("sample.family", retention_ms=600_000)
class Family:
    """Begins children, and ends with what they said."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        return kvorum.children([("sample.pool", {"sleep_s": 0})] * 2, then="end")

    @kvorum.step
    def end(self, ctx: Any) -> Any:
        return kvorum.done([child.result for child in ctx.children])


@kvorum.workflow("sample.starter", retention_ms=600_000)
async def starter(flow: kvorum.Flow) -> Any:
    """Two families, the second one after the first."""
    first = await flow.start(Family)
    return [first, await flow.start(Family)]


@kvorum.procedure("sample.pool", retention_ms=600_000)
class Sample:
    """Two steps; the second sleeps, and both leave a row with the token of their execution."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        ctx.txn.table("pool", "rows").put(f"{ctx.id} begin", ctx.token)
        return kvorum.next("end")

    @kvorum.step
    def end(self, ctx: Any) -> Any:
        time.sleep(ctx.args["sleep_s"])
        ctx.txn.table("pool", "rows").put(f"{ctx.id} end", ctx.token, if_absent=True)
        return kvorum.done(ctx.id)
