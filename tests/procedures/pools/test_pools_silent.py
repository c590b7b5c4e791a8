"""A step that blocks its worker: the others go on. Virtual time; the block is a cut and a sleep."""

from __future__ import annotations

import asyncio

from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step
from tests.procedures.pools.pool_lab import LEASE_S, Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo

OFFICE: list[Office] = []


@procedure("silent.blocks")
class Blocks(Zoo):
    """Nobody hears of its worker while its step runs: so does one that blocks the loop."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        self.lab.count("blocks")
        OFFICE[0].ways["w1"].cut = True
        await asyncio.sleep(3 * LEASE_S)
        OFFICE[0].ways["w1"].cut = False
        return p.done()


@procedure("silent.other")
class Other(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        await asyncio.sleep(0.5)
        return p.done()


def test_u1_a_step_that_blocks_its_worker_starves_nobody() -> None:
    """It is taken back again and again, with growing pauses and the reason; the others end."""

    async def test(office: Office, executor: Executor) -> None:
        OFFICE[:] = [office]
        crew = executor.crew
        assert crew is not None

        async def heal() -> None:  # the cancelled step cannot do it
            while True:
                await asyncio.sleep(3 * LEASE_S)
                office.ways["w1"].cut = False

        healing = office.loop.create_task(heal())
        office.hire("w1")
        await office.entered("w1")
        bad = await executor.submit(submission("silent.blocks"))
        others = [await executor.submit(submission("silent.other")) for _ in range(3)]
        for id in others:
            assert (await executor.wait(id, 60_000)).state is State.SUCCESS
        live = executor.live_one(bad)
        assert live is not None
        await office.until(lambda: crew._losses.get(bad, 0) >= 4, 120)
        assert crew._losses.keys() == {bad}
        told = await executor.explain(bad)
        assert "taken back 4 times from silent worker w1" in told["sentence"] + str(told["waits"])
        assert live.retry is not None
        began = office.loop.time()
        before = live.retry_ms / 1000
        assert 3.9 <= before - began <= 8.1, before - began
        healing.cancel()

    in_office(test, [Blocks, Other])
