"""Attributes without a cluster: they are shown, and leave nothing behind."""

from __future__ import annotations

from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step
from tests.procedures.lab import Lab, run
from tests.procedures.stores import opened
from tests.procedures.zoo import Zoo


@procedure("wal.named", attributes={"customer": str})
class Named(Zoo):
    @step(first=True)
    async def go(self, ctx: StepContext) -> Outcome:
        ctx.attributes(customer="ada")
        return p.done(ctx.attributes())


def test_attributes_leave_no_rows_where_nobody_searches() -> None:
    """Rows of an index that is never read stayed in the logs for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened("wal", loop) as looks:
            lab = Lab(loop, [Named], store=looks.store)
            async with lab.executor() as executor:
                before = len(list(looks.store._rows.all()))
                record = await run(executor, "wal.named")
                assert dict(record.attributes) == {"customer": "ada"}
                await executor.acknowledge(record.id)
                assert len(list(looks.store._rows.all())) == before

    simloop.run(main, 0)
