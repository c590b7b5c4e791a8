"""The procedure that is measured: so many steps, each of which keeps a value of so many bytes.

The peers' workflow does the same: its steps return the value, which is stored with the step.
"""

from __future__ import annotations

from typing import Any

import kvorum


@kvorum.procedure("bench.steps")
class Steps:
    """args: {"steps": how many, "size": bytes kept by each}"""

    @kvorum.step(first=True)
    async def work(self, ctx: Any) -> Any:
        done = ctx.state.get("done", 0) + 1
        ctx.state["done"] = done
        ctx.state["value"] = "v" * ctx.args["size"]
        return kvorum.done(done) if done >= ctx.args["steps"] else kvorum.next("work")
