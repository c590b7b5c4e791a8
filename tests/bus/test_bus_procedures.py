"""Operations from the procedure to the targets and back, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from procedures.bus import phases
from procedures.engine.records import Record
from procedures.engine.submission import Submission
from tests.bus.world import World, effects, leftovers, one_phase
from tests.support import simloop

ONE, TWO = "kvorum.bus_one_phase", "kvorum.bus_two_phase"


def simulated(body: Callable[[World], Awaitable[None]], **more: Any) -> None:
    """Run a test against three targets that live, with a courier and heartbeats."""

    async def main(loop: simloop.SimLoop) -> None:
        world = World(loop, **more)
        world.start()
        await body(world)
        await world.close()

    simloop.run(main)


async def ended(world: World, name: str, args: Any, wait_ms: int = 60_000) -> Record:
    """The record of an operation that one master saw from its begin to its end."""
    async with world.new_master() as executor:
        running = world.loop.create_task(world.courier.run())
        id_ = await executor.submit(Submission(name, args, "tester"))
        record = await executor.wait(id_, wait_ms)
        running.cancel()
        await asyncio.wait([running])
        assert record.ended, phases.shown(record, world.courier)
        return record


@pytest.mark.parametrize("name", [ONE, TWO])
def test_n1_everybody_is_asked_and_waited_for(name: str) -> None:
    """An operation that ended before everybody had done it, or was done twice."""

    async def body(world: World) -> None:
        record = await ended(world, name, one_phase())
        assert record.state.name == "SUCCESS", record.error
        assert effects(world, record.id) == [1, 2, 3]
        assert leftovers(world, record.id) == []
        for register in world.registers.values():
            verbs = [verb for verb, _ in register.ran]
            assert verbs == (["do"] if name == ONE else ["stage", "commit"])
        told = phases.shown(record, world.courier)
        assert {t["state"] for t in told["targets"].values()} == {"done"}

    simulated(body)
