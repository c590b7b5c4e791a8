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
