"""The ticker: one timer for all groups, neither late nor spinning."""

from __future__ import annotations

from raft.memory import VirtualTimers
from raft.ticker import Ticker


def make() -> tuple[VirtualTimers, Ticker, list[tuple[float, int]]]:
    timers = VirtualTimers()
    seen: list[tuple[float, int]] = []
    ticker = Ticker(timers, 0.05, lambda group_id: seen.append((round(timers.now_s, 3), group_id)))
    return timers, ticker, seen


def test_groups_that_are_due_together_share_a_tick() -> None:
    """A timer per group would wake the loop a thousand times per heartbeat period."""
    timers, ticker, seen = make()
    for group_id, at_s in ((3, 0.01), (1, 0.02), (2, 0.2)):
        ticker.schedule(group_id, at_s)
    timers.run(1)
    assert seen == [(0.05, 3), (0.05, 1), (0.2, 2)]


def test_an_earlier_deadline_counts_and_a_later_one_waits() -> None:
    """A missed earlier deadline delays an election; a group looked at twice wastes a tick."""
    timers, ticker, seen = make()
    ticker.schedule(1, 0.5)
    ticker.schedule(1, 0.9)
    ticker.schedule(1, 0.3)
    timers.run(2)
    assert seen == [(0.3, 1)]


def test_deadlines_in_the_past_do_not_spin() -> None:
    """A deadline that stays in the past must cost one tick per period, not the whole CPU."""
    timers = VirtualTimers()
    ticks: list[float] = []

    def again(group_id: int) -> None:
        ticks.append(timers.now_s)
        ticker.schedule(group_id, float("-inf"))

    ticker = Ticker(timers, 0.05, again)
    ticker.schedule(1, float("-inf"))
    timers.run(1.01)
    assert len(ticks) == 20


def test_a_forgotten_group_and_a_closed_ticker_are_silent() -> None:
    """A dropped group must not be ticked, nor a closed host keep timers alive."""
    timers, ticker, seen = make()
    ticker.schedule(1, 0.1)
    ticker.schedule(2, 0.1)
    ticker.forget(1)
    timers.run(0.2)
    assert seen == [(0.1, 2)]
    ticker.schedule(3, 0.3)
    ticker.close()
    ticker.schedule(4, 0.3)
    timers.run(1)
    assert seen == [(0.1, 2)]
