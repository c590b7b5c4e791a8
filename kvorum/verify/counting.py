"""The procedure of the workload `procedure`: each of its steps adds 1 to a counter, in the very
transaction that says that the step is done. So the counter ends at STEPS, whoever dies when.

Nodes load it by `--procedure-modules kvorum.verify.counting`; it is a user's procedure like any
other.
"""

from __future__ import annotations

from typing import Final

from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step

NAME: Final = "kvorum.verify.count"
STEPS: Final = 4


@procedure(NAME)
class Count:
    """Arguments: ns, table, key. Result: how many steps it counted itself."""

    @step(first=True)
    async def add(self, ctx: StepContext) -> Outcome:
        counted = ctx.state.get("counted", 0) + 1
        ctx.state["counted"] = counted
        table = ctx.txn.table(ctx.args["ns"], ctx.args["table"])
        row = await table.get(ctx.args["key"])
        table.put(ctx.args["key"], str(int(row.value) + 1 if row else 1))
        return next_step("add") if counted < STEPS else done(counted)
