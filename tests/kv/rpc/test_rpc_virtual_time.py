"""The whole client and dispatcher on a simulated loop: no real clock, no order that asyncio
happens to keep.
"""

from __future__ import annotations

import asyncio

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import Busy, DeadlineExceeded, KvorumError, NotLeader, UnknownOutcome
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.base.methods import GET, PUT
from kv.client.client import KvClient, local_client
from kv.server.dispatcher import Context, Dispatcher
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from procedures.verbs import PROC_GET
from tests.kv.rpc.fakes import KEY, FakeMachine, FakePartitions


def make(loop: SimLoop) -> tuple[KvClient, FakeMachine, Dispatcher]:
    partitions = FakePartitions()
    timers = LoopTimers(loop)
    dispatcher = Dispatcher(node_id=NodeId(1), partitions=partitions, timers=timers, rng=SimRng(2))
    client = local_client(dispatcher, timers, SimRng(3))
    return client, partitions.machines[PartitionId(1)], dispatcher


@pytest.mark.parametrize("seed", range(10))
def test_rpc_client_needs_no_order_of_callbacks(seed: int) -> None:
    """asyncio's FIFO is no promise: whatever runs first, each caller gets its own reply, once."""

    async def main(loop: SimLoop) -> None:
        client, machine, dispatcher = make(loop)
        rng = SimRng(seed)

        async def caller(i: int) -> None:
            key = KEY + b"%d" % i
            for n in range(20):
                if rng.random() < 0.1:
                    machine.fails.append(Busy("full", details={"retry_after_ms": 3}))
                await client.call(PUT, key, key, b"%d" % n, None, 0)
                assert (await client.call(GET, key, key, 0, None))[0] == b"%d" % n
                if rng.random() < 0.2:
                    await asyncio.sleep(rng.random() / 100)

        async with asyncio.TaskGroup() as group:
            for i in range(16):
                group.create_task(caller(i))
        assert client.lookups == 1
        assert machine.executed == 16 * 20 * 2
        client.close()
        await dispatcher.close()

    run(main, seed)


@pytest.mark.parametrize("seed", range(3))
def test_rpc_deadlines_run_on_the_injected_clock(seed: int) -> None:
    """Ten virtual seconds must take no real one, and every kind of wait must end at its
    deadline.
    """

    async def main(loop: SimLoop) -> None:
        client, machine, dispatcher = make(loop)

        async def hangs(_context: Context, _args: list[object]) -> list[object]:
            await asyncio.sleep(3600)
            return []

        dispatcher.register(PROC_GET, hangs)

        async def expect(error: type[KvorumError], coroutine: object) -> None:
            began = loop.time()
            with pytest.raises(error):
                await coroutine  # type: ignore[misc]
            took_ms = (loop.time() - began) * 1000
            assert DEADLINE_MS_DEFAULT * 0.94 < took_ms < DEADLINE_MS_DEFAULT * 1.01, took_ms

        await client.locate(KEY)
        machine.fails = [NotLeader("not me") for _ in range(1000)]
        await expect(DeadlineExceeded, client.call(GET, KEY, KEY, 0, None))
        machine.fails = [Busy("full") for _ in range(1000)]
        await expect(Busy, client.call(PUT, KEY, KEY, b"v", None, 0))
        machine.fails = []
        machine.held = []
        await expect(DeadlineExceeded, client.call(GET, KEY, KEY, 0, None))
        await expect(UnknownOutcome, client.call(PUT, KEY, KEY, b"v", None, 0))
        await expect(DeadlineExceeded, client.call_node(PROC_GET, 1, 0))
        client.close()
        await dispatcher.close()

    run(main, seed)
