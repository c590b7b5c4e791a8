"""Marks of runs in memory that two processes have, and who waits alone: interleavings by hand."""

from __future__ import annotations

import asyncio
import threading
from itertools import permutations

import pytest

from kv.base.adapters import LoopTimers
from kvorum.steps.step_channel import UNBEGUN, Marks
from kvorum.steps.step_processes import StepProcesses, _Call, _Process
from tests.procedures import harmful

_RUN = 7 + (1 << 16)  # its bytes are those of run 7


class _Stepped:
    """Memory in which a thread gets on by one access when it is told to."""

    def __init__(self, memory: bytearray) -> None:
        self._memory = memory
        self._may, self._came = threading.Semaphore(0), threading.Semaphore(0)

    def go_on(self) -> None:
        self._may.release()
        assert self._came.acquire(timeout=10)

    def finish(self) -> None:
        for _ in range(10):
            self._may.release()

    def __getitem__(self, at: int) -> int:
        assert self._may.acquire(timeout=10)
        value = self._memory[at]
        self._came.release()
        return value

    def __setitem__(self, at: int, value: int) -> None:
        assert self._may.acquire(timeout=10)
        self._memory[at] = value
        self._came.release()


@pytest.mark.parametrize("order", sorted({"".join(one) for one in permutations("ccpp")}))
def test_no_run_begins_that_was_withdrawn(order: str) -> None:
    """A step would run in two processes at once, or after its undo."""
    memory = bytearray(Marks.BYTES)
    child, parent = _Stepped(memory), _Stepped(memory)
    found: dict[str, bool] = {}
    threads = [
        threading.Thread(target=lambda: found.update(begins=Marks(child).begin(_RUN))),
        threading.Thread(target=lambda: found.update(never=Marks(parent).withdraw(_RUN))),
    ]
    for thread in threads:
        thread.start()
    for who in order:
        (child if who == "c" else parent).go_on()
    child.finish()
    parent.finish()
    for thread in threads:
        thread.join(10)
    assert not (found["begins"] and found["never"])
    assert found == {
        "ccpp": {"begins": True, "never": False},
        "ppcc": {"begins": False, "never": True},
    }.get(order, {"begins": False, "never": False})
    assert Marks(memory).has_begun(_RUN) is found["begins"], "its process's end is not its doing"
    Marks(memory).clear(_RUN + (1 << 16))
    assert not any(memory), "the next run that has these bytes begins without marks"


async def _one() -> tuple[_Process, _Call]:
    process = _Process(LoopTimers(asyncio.get_running_loop()), {}, alone=False, timed=False)
    call = _Call(None)
    process.take(_RUN, call)
    return process, call


async def test_what_has_begun_is_not_let_go() -> None:
    """A step that has begun in a process that is held up would begin in another one, too."""
    process, call = await _one()
    assert process._marks.begin(_RUN)
    process.let_go()
    assert not call.ended.done()


async def test_what_was_let_go_does_not_begin() -> None:
    """Between the look at its mark and the news that it goes elsewhere it would begin."""
    process, call = await _one()
    process.let_go()
    assert await call.ended is None
    assert not process._marks.begin(_RUN)


async def test_who_saw_each_other_run_elsewhere() -> None:
    """A run that its process did not begin would be waited for until its process ends."""
    process, call = await _one()
    process._memory[2 * 7] = 1  # it is about to begin …
    process.let_go()
    assert not call.ended.done()
    process._memory[2 * 7] = 0  # … and saw that it must not
    process._heard([UNBEGUN, _RUN], None)
    assert await call.ended is None
    process._heard([UNBEGUN, _RUN + 1], None)  # nobody waits for that one any more


async def test_waiting_for_a_process_of_its_own_is_the_steps_time() -> None:
    """Beside long steps that run alone it would wait for ever, with a deadline."""
    timers = LoopTimers(asyncio.get_running_loop())
    runner = StepProcesses([harmful.__name__], timers)
    await _all_of(runner._alone)
    assert not await runner._place_alone(timers.monotonic() + 0.01)
    runner._alone.release()
    await _all_of(runner._new)
    assert not await runner._place_alone(timers.monotonic() + 0.01)
    assert not runner._alone.locked(), "who does not get both gives back the first"
    runner._new.release()
    assert await runner._place_alone(timers.monotonic() + 60)
    runner.close()


async def _all_of(places: asyncio.Semaphore) -> None:
    while not places.locked():
        await places.acquire()
