"""A clock that leaps ahead must not end what lives, nor lie for ever."""

from __future__ import annotations

import random

import pytest

from kv.base.steady_clock import BELIEVED_S, LEAP_MS, SteadyClock

START_MS = 1_700_000_000_000


class Machine:
    """Its monotonic clock, and a wall clock that somebody sets."""

    def __init__(self) -> None:
        self.s, self.off_ms = 100.0, 0

    def now_ms(self) -> int:
        return START_MS + round(self.s * 1000) + self.off_ms

    def monotonic(self) -> float:
        return self.s

    def clock(self) -> SteadyClock:
        return SteadyClock(self)


def looks(machine: Machine, clock: SteadyClock, seconds: float, step: float = 0.01) -> list[int]:
    """What it says, hundred times a second."""
    found = []
    for _ in range(round(seconds / step)):
        machine.s += step
        found.append(clock.now_ms())
    return found


@pytest.mark.parametrize("leap_ms", [5_000, 30_000, 59_000])
def test_d6_a_leap_of_less_than_a_minute_ends_no_transaction(leap_ms: int) -> None:
    """Living transactions, which send a heartbeat every third of their ttl, would look silent."""
    machine = Machine()
    clock = machine.clock()
    looks(machine, clock, 5)
    machine.off_ms = leap_ms
    seen = looks(machine, clock, 70)
    for a, b in zip(seen, seen[167:], strict=False):  # a third of 5 s
        assert b - a < 5_000
    assert seen[-1] == machine.now_ms(), "by now it has caught up"


def test_e6_a_leap_that_is_taken_back_leaves_no_trace_for_long() -> None:
    """Timestamps would be an hour ahead, because the clock was for ten seconds."""
    machine = Machine()
    clock = machine.clock()
    looks(machine, clock, 1)
    machine.off_ms = 3_600_000
    ahead = looks(machine, clock, 10)[-1] - (START_MS + machine.s * 1000)
    assert ahead < 11_000
    machine.off_ms = 0
    assert looks(machine, clock, 0.02)[-1] == machine.now_ms()


def test_e6_a_clock_that_stays_ahead_is_believed() -> None:
    """A node that started with a wrong clock would be behind all others for ever."""
    machine = Machine()
    clock = machine.clock()
    machine.off_ms = 24 * 3_600_000
    seen = looks(machine, clock, BELIEVED_S + 1)
    assert seen[-1] == machine.now_ms()
    assert looks(machine, clock, 5)[-1] == machine.now_ms()


def test_e6_what_is_no_leap_is_followed_at_once() -> None:
    """A clock that is slewed, set back, or not asked for long, would be answered wrongly."""
    machine = Machine()
    clock = machine.clock()
    machine.s += 3_600
    assert clock.now_ms() == machine.now_ms(), "nobody asked for an hour"
    machine.off_ms = int(LEAP_MS)
    assert clock.now_ms() == machine.now_ms()
    machine.off_ms = -3_600_000
    assert clock.now_ms() == machine.now_ms()


@pytest.mark.parametrize("seed", range(10))
def test_e6_it_is_never_ahead_of_the_wall_clock_nor_faster_than_twice(seed: int) -> None:
    """Something would expire before its time; a heartbeat would come too late."""
    chance, machine = random.Random(seed), Machine()
    clock = machine.clock()
    last, believed = clock.now_ms(), 0
    for _ in range(20_000):
        step = chance.random() * 0.1
        machine.s += step
        if chance.random() < 0.002:
            machine.off_ms += chance.randrange(-100_000, 200_000)
        now = clock.now_ms()
        assert now <= machine.now_ms()
        if now - last > 2_000 * step + LEAP_MS + 2:
            believed += 1
            assert now == machine.now_ms()
        last = now
    assert believed <= 20_000 * 0.05 / BELIEVED_S
