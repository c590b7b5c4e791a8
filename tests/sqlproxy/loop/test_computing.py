"""What computes long takes turns on the loop, and ends when its task is cancelled."""

from __future__ import annotations

import asyncio
import time

import pytest

from kv.base import fair_turns
from kv.base.accounts import USER, Account, Use
from kv.base.fair_turns import FairTurns
from sqlproxy.loop.computing import Breaking
from sqlproxy.loop.statement_threads import aside
from sqlproxy.values.breaks import no_break, pause, set_breaks


def _compute(stopped: list[bool]) -> None:
    while not stopped:
        pause()


@pytest.fixture(autouse=True)
def _every_pause_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_turns, "SLICE_S", 0.0)


async def test_others_have_the_loop_between_two_pieces() -> None:
    """One client's expression would hold all others."""
    stopped: list[bool] = []

    async def work() -> str:
        _compute(stopped)
        return "done"

    task = asyncio.create_task(_guarded(work()))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    stopped.append(True)
    assert await task == "done"


async def _guarded(work: object) -> object:
    turns, account = FairTurns(time.monotonic), Account(USER, "a", lambda: 0, shown=True)
    return await Breaking(work, lambda: turns.turn(account), Use(), turns)  # type: ignore[arg-type]


async def test_a_cancelled_task_ends_where_it_computes() -> None:
    """A timeout, Ctrl-C and the end of a node would wait for an expression."""
    told: list[str] = []

    async def work() -> None:
        try:
            _compute([])
        finally:
            told.append("ended")

    task = asyncio.create_task(_guarded(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["ended"]


async def test_what_it_awaits_is_awaited_by_the_task() -> None:
    """A statement that reads would get no answer, or not its error."""
    event = asyncio.Event()

    async def inner(fails: bool) -> int:
        await event.wait()
        pause()
        if fails:
            raise KeyError("no")
        return 7

    async def outer() -> int:
        with pytest.raises(KeyError):
            await inner(True)
        return await inner(False)

    task = asyncio.create_task(_guarded(_guarded(outer())))
    await asyncio.sleep(0)
    event.set()
    assert await task == 7


async def test_what_it_starts_takes_no_breaks_of_its_own() -> None:
    """A task that a statement starts inherits its context, and would leave a greenlet that it is
    not in.
    """

    async def child() -> int:
        pause()
        return 3

    async def work() -> int:
        return await asyncio.create_task(child())

    assert await _guarded(work()) == 3
    set_breaks(no_break)


async def test_a_thread_ends_when_nobody_waits() -> None:
    """Two long statements of a client that is gone would hold both threads."""
    stopped: list[bool] = []
    task = asyncio.create_task(aside("x" * 10_000, _compute, stopped))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    others = [aside("x" * 10_000, len, "abc") for _ in range(4)]
    assert await asyncio.gather(*others) == [3] * 4
