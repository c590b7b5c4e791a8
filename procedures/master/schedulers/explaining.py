"""kvorum.explain_balance {rows?}: what the schedulers of the master see, would do next, refuse, and
did last, each with its reason (procedures/master/schedulers/schedule.py). Changes nothing.

A procedure, so that it is asked for through whatever surface procedures are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kv.base.errors import InvalidArgument
from kv.base.limits import EXPLAIN_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.registry import Registry, procedure, step
from procedures.master.schedulers.schedule import Schedulers

EXPLAIN_BALANCE: Final = "kvorum.explain_balance"
ROWS_DEFAULT: Final = 50


@procedure(EXPLAIN_BALANCE)
class ExplainBalance:
    def __init__(self, schedulers: Schedulers) -> None:
        self._schedulers = schedulers

    @step(first=True)
    async def explain(self, ctx: StepContext) -> Outcome:
        """Raises InvalidArgument."""
        args = {} if ctx.args is None else ctx.args
        rows: object = args.get("rows", ROWS_DEFAULT) if isinstance(args, Mapping) else None
        if type(rows) is not int or not 0 < rows <= EXPLAIN_MAX:
            raise InvalidArgument(
                f"the argument 'rows' must be 1 to {EXPLAIN_MAX}, got {rows!r:.80}"
            )
        return done(await self._schedulers.explain(rows))


def register(registry: Registry, schedulers: Schedulers) -> None:
    """Serve it."""
    registry.add(ExplainBalance, make=lambda: ExplainBalance(schedulers))
