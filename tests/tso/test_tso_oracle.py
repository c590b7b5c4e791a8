"""tso.oracle: strictly increasing below a durable bound, whatever the clock does."""

from __future__ import annotations

import ast
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base import timestamps
from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import TSO_AHEAD_MS, TSO_COUNT_MAX, TSO_RAISE_BELOW_MS
from tso import oracle as oracle_module
from tso.oracle import Oracle

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Clock:
    """Set by hand."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def started(clock: Clock, bound: int = 0) -> Oracle:
    """An oracle whose bound was raised once."""
    oracle = Oracle(clock)
    oracle.start(bound)
    raise_bound(oracle)
    return oracle


def raise_bound(oracle: Oracle) -> None:
    bound = oracle.bound_needed()
    if bound is not None:
        oracle.raised(bound)


# What happens to an oracle: the clock jumps, timestamps are taken, the bound is raised, the node
# restarts (and knows only what was durable).
steps = st.lists(
    st.one_of(
        st.tuples(st.just("clock"), st.integers(-2 * HOUR_MS, 2 * HOUR_MS)),
        st.tuples(st.just("take"), st.just(1) | st.integers(1, TSO_COUNT_MAX)),
        st.tuples(st.just("raise"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_e1_unique_and_increasing_under_any_history(history: list[tuple[str, int]]) -> None:
    """A repeated timestamp is a lost update: no order of clock jumps, raises and restarts makes
    one.
    """
    clock = Clock()
    oracle, durable, last = Oracle(clock), 0, 0
    oracle.start(0)
    for what, amount in history:
        match what:
            case "clock":
                clock.ms = max(1, clock.ms + amount)
            case "raise":
                bound = oracle.bound_needed()
                if bound is not None:
                    assert bound > durable
                    durable = bound
                    oracle.raised(bound)
            case "restart":
                oracle = Oracle(clock)
                oracle.start(durable)
            case _:
                try:
                    first = oracle.take(amount)
                except Unavailable:
                    continue
                assert first > last
                last = first + amount - 1
                assert last < durable, "handed out what is not covered by the durable bound"


def test_e1_two_in_the_same_millisecond() -> None:
    """The clock stands still for a thousand calls in a row; each must get its own timestamp."""
    clock = Clock()
    oracle = started(clock)
    first = timestamps.compose(clock.ms)
    assert [oracle.take() for _ in range(4)] == [first, first + 1, first + 2, first + 3]


def test_e6_follows_the_clock() -> None:
    """Readers at a time of day rely on it: the physical part is the wall clock while it runs."""
    clock = Clock()
    oracle = started(clock)
    for _ in range(10_000):
        clock.ms += 7
        raise_bound(oracle)
        ts = oracle.take()
        assert abs(timestamps.physical_ms(ts) - clock.ms) < 1000


def test_e6_follows_the_clock_under_load() -> None:
    """A million timestamps per second must not run ahead of the clock."""
    clock = Clock()
    oracle = started(clock)
    for _ in range(1000):
        clock.ms += 1
        raise_bound(oracle)
        first = oracle.take(10_000)
        assert abs(timestamps.physical_ms(first + 9_999) - clock.ms) < 1000


def test_e6_clock_set_back_an_hour() -> None:
    """An operator who mends the clock must not break the order; later the clock is followed
    again.
    """
    clock = Clock()
    oracle = started(clock)
    last = oracle.take()
    clock.ms -= HOUR_MS
    for _ in range(1000):
        raise_bound(oracle)
        ts = oracle.take(1000)
        assert ts > last
        last = ts + 999
        clock.ms += 1
    assert timestamps.physical_ms(last) - START_MS < 1000, "it must not run away meanwhile"
    clock.ms = START_MS + 5_000
    raise_bound(oracle)
    assert timestamps.physical_ms(oracle.take()) == clock.ms


def test_e6_clock_set_forward_an_hour() -> None:
    """A forward jump must not hand out what is not durable; after one raise it goes on."""
    clock = Clock()
    oracle = started(clock)
    last = oracle.take()
    clock.ms += HOUR_MS
    with pytest.raises(Unavailable) as caught:
        oracle.take()
    assert caught.value.code == "TSO_BOUND"
    raise_bound(oracle)
    ts = oracle.take()
    assert ts > last
    assert timestamps.physical_ms(ts) == clock.ms


def test_e6_logical_part_runs_over() -> None:
    """More than 2^18 timestamps in a millisecond must go on into the next one, not wrap."""
    clock = Clock()
    oracle = started(clock)
    seen = [oracle.take(TSO_COUNT_MAX) for _ in range(10)]
    assert seen == [seen[0] + i * TSO_COUNT_MAX for i in range(10)]
    assert timestamps.physical_ms(seen[-1]) > clock.ms


def test_e1_restart_is_above_the_bound() -> None:
    """What a crashed oracle handed out is unknown: its successor starts above all it may have."""
    clock = Clock()
    oracle = started(clock)
    durable = oracle.bound
    clock.ms += TSO_AHEAD_MS - 1
    last = oracle.take()
    clock.ms -= HOUR_MS
    again = started(clock, durable)
    assert again.take() > durable > last


def test_e1_start_never_goes_back() -> None:
    """A node that leads again, with an old bound, must not repeat what it handed out itself."""
    clock = Clock()
    oracle = started(clock)
    last = oracle.take(1000) + 999
    oracle.start(0)
    with pytest.raises(Unavailable):
        oracle.take()
    raise_bound(oracle)
    assert oracle.take() > last


def test_e1_bound_is_exclusive_and_exhausts() -> None:
    """At the bound the oracle stops, whole requests at a time, and goes on when it is raised."""
    clock = Clock()
    oracle = Oracle(clock)
    with pytest.raises(Unavailable):
        oracle.take()
    first = timestamps.compose(clock.ms)
    oracle.raised(first + 10)
    assert oracle.take(5) == first
    with pytest.raises(Unavailable):
        oracle.take(6)
    assert oracle.take(5) == first + 5
    with pytest.raises(Unavailable):
        oracle.take()
    oracle.raised(first + 11)
    assert oracle.take() == first + 10
    oracle.raised(first)
    assert oracle.bound == first + 11, "a late report of an older bound changes nothing"


def test_tso_bound_is_raised_ahead_of_time() -> None:
    """The bound must be raised while there is still time to persist it, and not at every tick."""
    clock = Clock()
    oracle = Oracle(clock)
    bound = oracle.bound_needed()
    assert bound == timestamps.compose(clock.ms + TSO_AHEAD_MS)
    oracle.raised(bound)
    clock.ms += TSO_AHEAD_MS - TSO_RAISE_BELOW_MS
    assert oracle.bound_needed() is None
    clock.ms += 1
    assert oracle.bound_needed() == timestamps.compose(clock.ms + TSO_AHEAD_MS)
    oracle.take()


@pytest.mark.parametrize("n", [0, -1, TSO_COUNT_MAX + 1])
def test_tso_count_is_limited(n: int) -> None:
    """One caller must not use up the bound of all; nothing is handed out for a bad count."""
    clock = Clock()
    oracle = started(clock)
    before = oracle.last
    with pytest.raises(InvalidArgument, match=str(TSO_COUNT_MAX)):
        oracle.take(n)
    assert oracle.last == before


def test_e5_allocation_does_no_io_and_takes_no_lock() -> None:
    """E5: handing out a timestamp reads a clock and adds; it must never wait for anything."""
    tree = ast.parse(inspect.getsource(oracle_module))
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {
        "__future__",
        "kv.base",
        "kv.base.errors",
        "kv.base.limits",
        "kv.base.ports",
    }
    assert not any(
        isinstance(n, ast.Await | ast.AsyncFunctionDef | ast.With) for n in ast.walk(tree)
    )

    class Counting(Clock):
        reads = 0

        def now_ms(self) -> int:
            self.reads += 1
            return super().now_ms()

    clock = Counting()
    oracle = started(clock)
    clock.reads = 0
    oracle.take(100)
    assert clock.reads == 1
