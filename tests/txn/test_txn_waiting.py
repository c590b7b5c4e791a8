"""Deadlines and background work: what the rest of the package relies on when time is short."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import DeadlineExceeded
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from tests.txn.world import Hooked, World, failure, k
from txn.commit.sending import Request
from txn.shared.deadlines import Backoff, Deadline


@pytest.mark.parametrize("budget_ms", [0.4, 1.0, 1.4, 1.6, 7.5])
def test_d6_deadline_is_not_over_while_time_is_left(budget_ms: float) -> None:
    """A loop that waits "until the deadline" for 0 ms, again and again, never lets time pass."""

    async def main(loop: SimLoop) -> None:
        timers = LoopTimers(loop)
        began = loop.time()
        deadline = Deadline(timers, budget_ms)
        backoff = Backoff(timers, SimRng(1), first_ms=1, max_ms=1)
        waits = 0
        while not deadline.passed:
            assert deadline.left_ms() >= 1
            await backoff.wait(waits, deadline)
            waits += 1
            assert waits < 100, "it spins"
        passed_ms = (loop.time() - began) * 1000
        assert budget_ms <= passed_ms + 1e-6 <= budget_ms + 1

    run(main)


def test_d6_behind_a_deadline_waits_still_take_time() -> None:
    """Whoever ends a call by a timer may be late by the timer's precision: a retry meanwhile must
    not spin.
    """

    async def main(loop: SimLoop) -> None:
        timers = LoopTimers(loop)
        deadline = Deadline(timers, 1.0)
        backoff = Backoff(timers, SimRng(1), first_ms=4, max_ms=8)
        await asyncio.sleep(0.01)
        assert deadline.passed
        began = loop.time()
        await backoff.wait(0, deadline)
        assert 0 < loop.time() - began <= 0.001 + 1e-9

    run(main)


def test_d6_closing_ends_work_that_did_not_start() -> None:
    """A task that is cancelled before its first step must answer its caller and leave nothing."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        ops = [put(k("b"), b"1"), put(k("z"), b"1")]
        errors = []
        for stop_at in (1, 2, 3):  # two prewrites, then the timestamp
            client = world.client(parallel=False)
            spawned = 0
            real = client._background.spawn

            def spawn(work, name):  # type: ignore[no-untyped-def]
                nonlocal spawned
                task = real(work, name)  # noqa: B023 - called in this round only
                spawned += 1
                if spawned == stop_at:  # noqa: B023
                    task.cancel()  # as `Background.cancel` does, before its first step
                return task

            client._background.spawn = spawn  # type: ignore[method-assign]
            async with asyncio.timeout(60):
                errors.append((await failure(client.write(ops))).code)
            await client.close(drain_s=0)
        assert set(errors) <= {"UNAVAILABLE", "UNKNOWN_OUTCOME"}, errors

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(main)
        gc.collect()
    assert not caught, [str(w.message) for w in caught]


def test_d6_a_commit_of_one_partition_ends_with_its_time() -> None:
    """Its requests are refused for lack of time then, and that may be tried again: for ever, if
    nobody looks at the clock.
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = Unanswering(loop, world.kv())
        client = world.client(kv)
        t = await client.begin()
        kv.deaf = True
        began = loop.time()
        error = await failure(
            client.coordinator.commit(Request(t.id, [put(k("a"), b"1")], 5_000), 400)
        )
        assert loop.time() - began < 1.0
        assert error.disposition in ("unknown_outcome", "retry", "restart_txn")

    run(main)


class Unanswering(Hooked):
    """A network in which nothing is in time, once it is `deaf`."""

    deaf = False
    asked = 0

    async def arrives(self, method: int) -> None:
        if self.deaf:
            self.asked += 1
            assert self.asked < 100, "it asks for ever"
            await asyncio.sleep(0.1)
            raise DeadlineExceeded("not in time")
