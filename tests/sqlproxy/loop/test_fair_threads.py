"""Threads that tenants share: none takes all of them, and none computes beside another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial

import pytest

from kv.base.accounts import USER, Account, Use
from sqlproxy.loop.fair_threads import SLICE_S, FairThreads, OneByOne
from sqlproxy.values import memory

_WAIT_S = 30.0


def _until(event: threading.Event, _name: str) -> bool:
    return event.wait(_WAIT_S)


class Calls:
    """Calls of tenants that last until they are let go."""

    def __init__(self, most: int) -> None:
        self.threads = FairThreads(most, "test")
        self.goes_on = threading.Event()
        self.began: list[str] = []
        self._changed = threading.Condition()
        self._accounts: dict[str, Account] = {}

    def submit(self, name: str, call: Callable[[str], object] | None = None) -> Future[object]:
        account = self._accounts.setdefault(name, Account(USER, name, lambda: 0, shown=True))
        budget = memory.Budget(memory.Share())
        budget.serve(Use(account))
        with memory.spending(budget):
            return self.threads.submit(self._call if call is None else call, name)

    def _call(self, name: str) -> str:
        with self._changed:
            self.began.append(name)
            self._changed.notify_all()
        assert self.goes_on.wait(_WAIT_S)
        return name

    def until(self, count: int) -> list[str]:
        """Those that have begun, when they are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.began) >= count, _WAIT_S), self.began
            return list(self.began)


@pytest.fixture
def many() -> Iterator[Calls]:
    calls = Calls(8)
    yield calls
    calls.goes_on.set()
    calls.threads.shutdown()


def test_g10_endless_calls_of_one_tenant_leave_threads_for_others(many: Calls) -> None:
    """Eight endless queries of one user would keep everybody's queries waiting for ever."""
    for _ in range(30):
        many.submit("bob")
    assert many.until(8) == ["bob"] * 8
    for name in ("ann", "eve"):  # who comes later still finds one
        for _ in range(30):
            many.submit(name)
    began = many.until(12)
    assert began.count("bob") == 8
    assert began.count("ann") == 3
    assert began.count("eve") == 1


def test_two_threads_of_one_tenant_leave_one() -> None:
    """Two long statements of one user would keep those of others from being parsed."""
    calls = Calls(2)
    for _ in range(5):
        calls.submit("bob")
    calls.submit("ann")
    assert sorted(calls.until(3)) == ["ann", "bob", "bob"]
    calls.goes_on.set()
    calls.threads.shutdown()


def test_g10_who_has_fewest_threads_is_next_however_many_wait(many: Calls) -> None:
    """A hundred calls that wait would all go before another tenant's first one."""
    given = [threading.Event() for _ in range(8)]
    for each in given:
        many.submit("bob", partial(_until, each))
    for name in ("ann", "eve"):
        for _ in range(30):
            many.submit(name)
    many.until(4)
    for _ in range(30):
        many.submit("bob")
    many.submit("new")
    given[0].set()
    assert many.until(5)[4] == "new"
    for each in given:
        each.set()


def test_what_a_call_raises_is_its_callers_and_its_thread_goes_on(many: Calls) -> None:
    """An error would take a thread along, and the ninth query would wait for ever."""

    def breaks(_name: str) -> None:
        raise ValueError("no")

    for _ in range(40):
        with pytest.raises(ValueError, match="no"):
            many.submit("bob", breaks).result(_WAIT_S)
    many.submit("bob")
    assert many.until(1) == ["bob"]


def test_what_waits_is_cancelled_at_the_end() -> None:
    """A process that ends would run all that waits first."""
    calls = Calls(2)
    futures = [calls.submit("bob") for _ in range(5)]
    calls.until(2)
    futures[4].cancel()
    ends = threading.Thread(target=calls.threads.shutdown)
    ends.start()
    for future in futures[2:]:
        with pytest.raises(CancelledError):
            future.result(_WAIT_S)
    calls.goes_on.set()
    ends.join(_WAIT_S)
    assert [future.cancelled() for future in futures] == [False] * 2 + [True] * 3
    assert [future.result() for future in futures[:2]] == ["bob"] * 2


def test_g10_one_thread_computes_at_a_time_tenant_by_tenant() -> None:
    """A loop would wait for each of the threads whenever it needs the interpreter."""
    now = [0.0]
    turns = OneByOne(lambda: now[0])
    order: list[str] = []
    at_once: list[int] = [0, 0]
    bob, ann = (Account(USER, name, lambda: 0, shown=True) for name in ("bob", "ann"))
    come = threading.Semaphore(0)

    def computes(who: Account) -> None:
        come.release()
        with turns.turn(who) as between:
            for _ in range(3):
                at_once[0] += 1
                at_once[1] = max(at_once)
                order.append(who.name)
                at_once[0] -= 1
                now[0] += SLICE_S
                between()

    threads = [threading.Thread(target=computes, args=(who,)) for who in (bob, bob, bob, ann)]
    with turns.turn(None) as between:
        between()  # nobody waits
        for count, thread in enumerate(threads, 1):
            thread.start()
            while turns.waiting < count:
                time.sleep(0)
    for thread in threads:
        thread.join(_WAIT_S)
    assert at_once[1] == 1
    assert order[:6] == ["bob", "ann"] * 3, (
        "ann has every second turn, though bob has three threads"
    )
    assert order[6:] == ["bob"] * 6
    with turns.turn(ann):
        assert turns.waiting == 0


def test_a_turn_goes_on_when_what_had_it_breaks() -> None:
    """One function that fails would end all computing of a process."""
    turns = OneByOne(lambda: 0.0)
    with pytest.raises(ValueError, match="no"), turns.turn(None):
        raise ValueError("no")
    with turns.turn(None):
        pass
