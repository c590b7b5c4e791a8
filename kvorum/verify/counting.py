"""The procedures of two workloads, which count in the very transaction that says that a step is
done: so what they counted is right, whoever dies when.

`procedure`: each of the steps adds 1 to a counter, which ends at STEPS. `queue`: one row says that
a ticket began, another one that it ended.

Nodes load them by `--procedure-modules kvorum.verify.counting`; they are users' procedures like any
other.
"""

from __future__ import annotations

from typing import Final

from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done, suspend
from procedures.engine.procedure import next as next_step
from procedures.engine.registry import procedure, step

NAME: Final = "kvorum.verify.count"
STEPS: Final = 4
TICKET: Final = "verify.ticket"  # the database's own, kvorum.…, are not deduplicated
_AT_WORK_MS: Final = 20


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


@procedure(TICKET)
class Ticket:
    """Arguments: ns, table, ticket. Result: the ticket. Every other one waits between its steps."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        await _noted(ctx, "began")
        if ctx.id % 2:
            return suspend(timeout_ms=_AT_WORK_MS, then="end")
        return next_step("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        await _noted(ctx, "ended")
        return done(ctx.args["ticket"])


async def _noted(ctx: StepContext, what: str) -> None:
    table = ctx.txn.table(ctx.args["ns"], ctx.args["table"])
    key = f"{ctx.args['ticket']}/{what}"
    row = await table.get(key)
    table.put(key, str(int(row.value) + 1 if row else 1))
