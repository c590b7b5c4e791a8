"""Plain code in a simulation: one thread at a time, as the loop hands the turn on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kvorum.testing.simulation.loop import SimLoop, run


async def later(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def test_u7_threads_wait_for_the_loop_and_no_two_run() -> None:
    """An hour of waiting in two threads passes at once, in the order of virtual time."""

    async def main(loop: SimLoop) -> list[str]:
        told: list[str] = []

        def waits(name: str, seconds: float) -> None:
            for _ in range(2):
                loop.wait_in_thread(later(seconds))
                told.append(f"{name} {loop.time():.0f}")

        await asyncio.gather(
            asyncio.to_thread(waits, "a", 2_000), asyncio.to_thread(waits, "b", 1_500)
        )
        return told

    assert run(main) == ["b 1500", "a 2000", "b 3000", "a 4000"]


def test_u7_who_does_not_wait_any_more_leaves_the_thread_to_its_end() -> None:
    """A worker that was recalled cancelled the wait for a plain step, and the loop stood still when
    the step came to its end.
    """

    async def main(loop: SimLoop) -> list[str]:
        told: list[str] = []

        def waits() -> None:
            loop.wait_in_thread(later(10))
            told.append("ended")

        task = asyncio.get_running_loop().create_task(asyncio.to_thread(waits))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(20)
        return told

    assert run(main) == ["ended"]


def test_u7_threads_that_still_wait_end_with_the_simulation() -> None:
    """Each run would leave some behind; what they hold on to is let go."""
    before = threading.active_count()
    let_go: list[bool] = []

    async def main(loop: SimLoop) -> None:
        def waits() -> None:
            try:
                loop.wait_in_thread(asyncio.Event().wait())
            finally:
                let_go.append(True)

        task = asyncio.get_running_loop().create_task(asyncio.to_thread(waits))
        await asyncio.sleep(1)
        assert not task.done()

    run(main)
    assert let_go == [True]
    assert threading.active_count() == before


def test_u7_errors_of_plain_code_are_its_callers() -> None:
    """And what it waits for raises in it."""

    async def main(loop: SimLoop) -> None:
        async def fails() -> None:
            raise KeyError("k")

        def waits() -> None:
            with pytest.raises(KeyError):
                loop.wait_in_thread(fails())
            raise ValueError("v")

        with pytest.raises(ValueError, match="v"):
            await asyncio.to_thread(waits)

    run(main)
