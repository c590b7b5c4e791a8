"""The door to the loop's thread: signals, and calls that are under way when it closes."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from kv.base.errors import Unavailable
from kvorum.sdk.portal import Portal


def test_u6_an_interrupt_that_does_not_wake_the_caller_is_noticed() -> None:
    """Ctrl-C a moment before the caller waits would be lost until the call ends, if ever."""
    ends: list[str] = []

    async def interrupted() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # not the thread that waits
        try:
            await asyncio.sleep(5)
            ends.append("by itself")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    portal = Portal("test-portal")
    try:
        with pytest.raises(KeyboardInterrupt):
            portal.call(interrupted())
    finally:
        portal.close()
    assert ends == ["cancelled"], "and the loop does not end before its tasks"


def test_u6_calls_under_way_end_with_the_portal() -> None:
    """A thread would wait for ever for the answer of a loop that has ended."""
    portal = Portal("test-portal")
    begun = threading.Event()
    told: list[str] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def caller() -> None:
        try:
            portal.call(work())
        except Unavailable as error:
            told.append(error.message)

    thread = threading.Thread(target=caller, daemon=True)
    thread.start()
    assert begun.wait(5)
    portal.close()
    thread.join(5)
    assert told == ["the database is closed; open it again"]


def test_u6_a_timeout_of_the_work_is_its_own() -> None:
    """The wait for signals must not pass for the work's error, nor hide it."""

    async def late() -> None:
        raise TimeoutError("of the work")

    async def slow() -> int:
        await asyncio.sleep(0.3)
        return 7

    portal = Portal("test-portal")
    try:
        with pytest.raises(TimeoutError, match="of the work"):
            portal.call(late())
        assert portal.call(slow()) == 7, "longer than one wait"
    finally:
        portal.close()
