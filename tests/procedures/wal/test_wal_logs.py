"""Which logs are needed: the bitmaps and the bookkeeping of logs, by themselves (L4-L7)."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from procedures.wal.format import HEAD_BYTES
from procedures.wal.logs import Log, Logs
from procedures.wal.tracker import SPAN, Bitmap, Tracker

NUMBERS = st.sets(
    st.one_of(st.integers(0, 3 * SPAN), st.integers(0, 1 << 63), st.just(SPAN - 1), st.just(SPAN))
)


@given(NUMBERS, NUMBERS)
def test_l4_bitmap_is_a_set(some: set[int], others: set[int]) -> None:
    """A bitmap lost or invented a number: at the edge of a node, in a hole, after a subtraction."""
    bits, other = Bitmap(some), Bitmap(others)
    assert (list(bits), len(bits), bool(bits)) == (sorted(some), len(some), bool(some))
    copy = bits.copy()
    copy.subtract(other)
    assert list(copy) == sorted(some - others)
    assert list(bits) == sorted(some), "the copy is its own"
    for number in others:
        assert (number in bits) == (number in some)
        bits.discard(number)
    assert list(bits) == sorted(some - others)


def test_l4_a_million_ids_and_holes_take_little_memory() -> None:
    """A tracker took a node for each word of 64 ids, as HBase's does, or memory for holes."""
    bits = Bitmap(range(1_000_000))
    assert len(bits) == 1_000_000
    assert memory(bits) < 300_000, "a node for each 64 numbers would take twenty times as much"
    dense = memory(bits)
    bits.add(1 << 62)
    assert memory(bits) - dense < 2_000, "a far number costs one node"
    bits.subtract(Bitmap(range(1_000_000)))
    assert list(bits) == [1 << 62]
    assert memory(bits) < 30_000, "empty nodes are gone"


def memory(bits: Bitmap) -> int:
    return sys.getsizeof(bits._nodes) + sum(
        sys.getsizeof(k) + sys.getsizeof(v) for k, v in bits._nodes.items()
    )


def test_l4_modified_and_deleted() -> None:
    """A deleted procedure counted as one that lives, or the other way round."""
    tracker = Tracker()
    tracker.add([1, 5_000, 9], [])
    tracker.add([5_000], [9, 77])
    assert list(tracker.live()) == [1, 5_000]
    assert list(tracker.deleted) == [9, 77]


def log(number: int) -> Log:
    return Log(number, HEAD_BYTES, 0)


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(40))
def test_l5_never_dropped_early_and_always_in_time(seed: int) -> None:
    """A log went although it had the newest record of something alive, or stayed without need.

    The model knows of every cell in which log its newest record is.
    """
    rng = random.Random(seed)
    logs = Logs([log(1)])
    home: dict[int, int] = {}
    last = 1
    fresh = 0
    for _ in range(150):
        what = rng.random()
        if what < 0.15:
            last += 1
            logs.rolled(log(last))
        elif what < 0.5 or not home:
            fresh += rng.choice([1, 1, 1, 3, SPAN])
            home[fresh] = last
            logs.wrote(10, [fresh], [])
        elif what < 0.75:
            cell = rng.choice(sorted(home))
            home[cell] = last
            logs.wrote(10, [cell], [])
        else:
            some = rng.sample(sorted(home), min(len(home), 3))
            for cell in some:
                del home[cell]
            logs.wrote(10, [], some)
        needed = set(home.values()) | {last}
        oldest = logs.oldest.number
        assert logs.droppable() == (oldest not in needed), (oldest, needed)
        wanted = sorted(cell for cell, at in home.items() if at == oldest and oldest != last)
        assert logs.laggards(10**9) == wanted
        if rng.random() < 0.5:
            while logs.droppable():
                assert logs.drop().number not in needed
            assert logs.oldest.number == min(needed), "the oldest goes as soon as it may (L6)"


def test_l6_holding_follows_the_oldest_log() -> None:
    """After the oldest log was dropped, its successor was dropped or kept by the wrong cells."""
    logs = Logs([log(1)])
    logs.wrote(1, [1, 2], [])
    logs.rolled(log(2))
    logs.wrote(1, [3, 4], [])
    assert logs.laggards(10) == [1, 2]
    logs.wrote(1, [1], [2])
    assert logs.droppable()
    logs.rolled(log(3))
    logs.wrote(1, [4], [])
    assert logs.drop().number == 1
    assert logs.laggards(10) == [1, 3], "2 is deleted and 4 was written later"
    assert not logs.droppable()
    logs.wrote(1, [], [1])
    logs.wrote(1, [3], [])
    assert logs.drop().number == 2
    assert not logs.droppable(), "the log that is written is never dropped"


def test_l7_room_grows_with_what_lives() -> None:
    """A store whose procedures fill the permitted logs copied them for ever."""
    logs = Logs(log(i) for i in range(1, 10))
    assert logs.too_many(8, 1_000, 400)
    assert not logs.too_many(8, 1_000, 500), "one more log for every half log that lives"
