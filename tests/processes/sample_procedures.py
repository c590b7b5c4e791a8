"""A procedure whose every step leaves a mark, for the kill tests."""

from __future__ import annotations

import os
from typing import Any

import kvorum

STEPS = 4


@kvorum.procedure("kill.marks")
class Marks:
    """Adds one to its own counter in each of STEPS steps: a step run twice would show."""

    @kvorum.step(first=True)
    async def mark(self, ctx: Any) -> Any:
        done = ctx.state.get("done", 0) + 1
        ctx.state["done"] = done
        marks = ctx.txn.table("default", "k")
        found = await marks.get(ctx.args["key"])
        marks.put(ctx.args["key"], str(int(found.value) + 1 if found else 1))
        return kvorum.next("mark") if done < STEPS else kvorum.done(done)


@kvorum.procedure("sample.environment")
class Environment:
    """What a user's code finds of our settings in its environment."""

    @kvorum.step(first=True)
    def look(self, _ctx: Any) -> Any:
        return kvorum.done(sorted(name for name in os.environ if name.startswith("KVORUM_")))
