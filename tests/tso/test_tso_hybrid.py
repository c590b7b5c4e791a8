"""tso.hybrid: causes lie below effects, whatever the clocks do within their bound."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import (
    CLOCK_FAR_MS,
    CLOCK_HANDOVER_MS,
    CLOCK_LEAP_MS,
    CLOCK_OFFSET_MS_MAX,
)
from kv.base.timestamps import MAX, SLOT_MAX, STEP, compose, physical_ms
from tso.hybrid import AHEAD, DOUBT, HybridClock

START_MS = 1_700_000_000_000


class Machine:
    """A wall clock that may be off by `skew_ms`, and one that only rises."""

    def __init__(self, skew_ms: int = 0) -> None:
        self.skew_ms, self.passed_ms = skew_ms, 0

    def now_ms(self) -> int:
        return START_MS + self.skew_ms + self.passed_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000


def trusted(machine: Machine, slot: int = 1) -> HybridClock:
    """A clock that was compared, long ago."""
    clock = HybridClock(machine, slot)
    clock.agree()
    machine.passed_ms += CLOCK_HANDOVER_MS
    return clock


@given(
    st.lists(st.integers(-60, 60), min_size=2, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=60
    ),
)
def test_r1_a_cause_is_below_its_effects(
    skews: list[int], moves: list[tuple[int, int, int]]
) -> None:
    """Else a snapshot could hold an answer to a question that it does not hold: nodes give out
    timestamps and tell each other, in any order, with clocks that are apart.
    """
    machines = [Machine(skew_ms) for skew_ms in skews]
    clocks = [trusted(machine, slot) for slot, machine in enumerate(machines, 1)]
    given_out: list[int] = []
    known = [0] * len(clocks)
    for speaker, listener, pause_ms in moves:
        for machine in machines:
            machine.passed_ms += pause_ms
        a, b = speaker % len(clocks), listener % len(clocks)
        ts = clocks[a].take()
        assert ts > known[a]
        given_out.append(ts)
        assert clocks[b].hear(ts) is None
        known[a], known[b] = ts, max(known[b], ts)
    assert len({*given_out}) == len(given_out), "transactions are named by their timestamps"
    newest = max(machine.now_ms() for machine in machines)
    assert physical_ms(max(given_out)) <= newest + 1, "no clock runs ahead of all"


@given(st.lists(st.integers(1, 700), min_size=1, max_size=20))
def test_r1_several_at_once_are_one_step_apart(counts: list[int]) -> None:
    """Who takes many counts on from the first."""
    clock = trusted(Machine(), 7)
    taken = []
    for count in counts:
        try:
            first = clock.take(count)
        except Unavailable:  # the clock stands still here
            break
        taken += [first + i * STEP for i in range(count)]
    assert all(a < b for a, b in pairwise(taken))
    assert {ts % STEP for ts in taken} == {7}


def test_r1_nothing_is_given_out_in_doubt() -> None:
    """A clock that nobody has compared, or that leapt, may be below what it gave out before."""
    machine = Machine()
    clock = HybridClock(machine, 1)
    with pytest.raises(Unavailable, match="not compared") as refused:
        clock.take()
    assert refused.value.code == DOUBT
    clock.agree()
    with pytest.raises(Unavailable, match="trusted in"):
        clock.take()
    machine.passed_ms += CLOCK_HANDOVER_MS
    clock.take()
    for leap_ms in (CLOCK_LEAP_MS + 1, -CLOCK_LEAP_MS - 1):
        machine.skew_ms += leap_ms
        with pytest.raises(Unavailable, match="leapt"):
            clock.take()
        clock.agree()
        machine.passed_ms += CLOCK_HANDOVER_MS
        assert clock.trouble() is None


def test_r1_a_node_that_starts_anew_repeats_nothing() -> None:
    """Two transactions with one id would share one record."""
    machine = Machine()
    clock = trusted(machine)
    assert clock.hear(compose(machine.now_ms() + CLOCK_OFFSET_MS_MAX)) is None
    last = clock.take()
    machine.skew_ms -= CLOCK_OFFSET_MS_MAX
    again = HybridClock(machine, 1)
    again.agree()
    machine.passed_ms += CLOCK_HANDOVER_MS + 1
    assert again.take() > last


def test_r1_what_is_too_far_ahead_is_not_heard() -> None:
    """One wrong clock, or one liar, would carry all others with it."""
    machine = Machine()
    clock = trusted(machine)
    before = clock.at
    near = compose(machine.now_ms() + CLOCK_OFFSET_MS_MAX + 1)
    error = clock.hear(near)
    assert isinstance(error, Unavailable)
    assert error.code == AHEAD
    assert isinstance(clock.hear(compose(machine.now_ms() + CLOCK_FAR_MS + 1)), InvalidArgument)
    assert clock.at == before
    machine.passed_ms += 1
    assert clock.hear(near) is None
    assert clock.take() > near


def test_r1_what_is_owed_is_waited_for() -> None:
    """What a leader found in its partition is there, however fast the clock was that dated it."""
    machine = Machine()
    clock = trusted(machine)
    owed = compose(machine.now_ms() + 2 * CLOCK_OFFSET_MS_MAX)
    clock.owe(owed)
    with pytest.raises(Unavailable, match="ahead of this node's clock"):
        clock.take()
    machine.passed_ms += CLOCK_OFFSET_MS_MAX
    assert clock.take() > owed


@given(st.integers(-CLOCK_OFFSET_MS_MAX, CLOCK_OFFSET_MS_MAX))
def test_r1_a_new_leader_begins_above_what_the_old_one_read_at(apart_ms: int) -> None:
    """A snapshot that was read would change."""
    old, new = Machine(), Machine(apart_ms)
    before, after = trusted(old), trusted(new, 2)
    read_at = compose(old.now_ms() + CLOCK_OFFSET_MS_MAX)
    assert before.hear(read_at) is None
    assert after.floor() >= read_at


def test_r1_ids_are_part_of_timestamps() -> None:
    """A node whose id does not fit would give out another's."""
    HybridClock(Machine(), SLOT_MAX)
    with pytest.raises(InvalidArgument, match="ids go up to"):
        HybridClock(Machine(), SLOT_MAX + 1)


def test_r1_no_client_drives_clocks_apart() -> None:
    """One that names times ahead of all nodes stopped those whose clocks are behind."""
    machine = Machine()
    clock = trusted(machine)
    clock.ahead_ms = 30  # the other nodes' clocks are at most so far ahead
    assert clock.hear(compose(machine.now_ms() + 30)) is None
    assert isinstance(clock.hear(compose(machine.now_ms() + 31)), Unavailable)
    clock.owe(MAX)
    assert clock.at == compose(machine.now_ms() + 30), "what no clock can say is nobody's"
    assert clock.take()
