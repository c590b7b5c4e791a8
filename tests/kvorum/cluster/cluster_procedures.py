"""A procedure that takes its time, so that its master can be lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import kvorum

STEPS = 3


@kvorum.procedure("cluster.slow")
class Slow:
    """STEPS steps of `ms` each; each adds one to the row `key`: a step run twice would show."""

    @kvorum.step(first=True)
    async def mark(self, ctx: Any) -> Any:
        await asyncio.sleep(ctx.args["ms"] / 1000)
        done = ctx.state.get("done", 0) + 1
        ctx.state["done"] = done
        marks = ctx.txn.table("default", "k")
        found = await marks.get(ctx.args["key"])
        marks.put(ctx.args["key"], str(int(found.value) + 1 if found else 1))
        return kvorum.next("mark") if done < STEPS else kvorum.done(done)


@kvorum.procedure("cluster.paid", attributes={"customer": str})
class Paid:
    """Waits until it is paid, and counts the payments that it got: one for each signal."""

    @kvorum.step(first=True)
    async def wait(self, ctx: Any) -> Any:
        return ctx.until_signal("paid", then="count")

    @kvorum.step
    async def count(self, ctx: Any) -> Any:
        paid = ctx.state.get("paid", 0)
        while await ctx.receive("paid") is not None:
            paid += 1
        ctx.state["paid"] = paid
        ctx.txn.table("default", "k").put(f"paid {ctx.id}", str(paid))
        if ctx.wake == "timeout":  # nothing more came for a while
            return kvorum.done(paid)
        return ctx.until_signal("paid", then="count", timeout_ms=20_000)


@kvorum.procedure("cluster.held")
class Held:
    @kvorum.step(first=True)
    async def run(self, ctx: Any) -> Any:
        return kvorum.done(ctx.now_ms)
