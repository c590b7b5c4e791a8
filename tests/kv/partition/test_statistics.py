"""Traffic of a partition: hot keys are found, cold ones are not called hot, a cut divides load."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.limits import HOT_KEYS_MAX, KiB
from kv.base.traffic import Load, units_of
from kv.partition.statistics import (
    HOT_SHARE_MIN,
    RATE_S,
    SAMPLE_EVERY,
    HotKeys,
    Rates,
    Sums,
    Traffic,
)


def _asked(traffic: Traffic, keys: list[bytes], batch: int = 10) -> None:
    """As the machine does it."""
    for at in range(0, len(keys), batch):
        part = keys[at : at + batch]
        traffic.reads += len(part)
        traffic.until -= len(part)
        if traffic.until < 0:
            traffic.sample(part)


@pytest.mark.parametrize(
    ("size", "units"),
    [(0, 1), (1, 1), (KiB, 1), (KiB + 1, 2), (2 * KiB, 2), (2 * KiB + 1, 3), (10 * KiB, 10)],
)
def test_i9_a_request_counts_by_its_size(size: int, units: int) -> None:
    """Up to 1 KiB is one, 1 to 2 KiB are two: what machines are compared by."""
    assert units_of(size) == units


@pytest.mark.parametrize(
    ("load", "units"),
    [
        (Load(), 0),
        (Load(reads=10, read_bytes=10 * 100), 10),
        (Load(reads=10, read_bytes=10 * 1_500), 20),
        (Load(reads=10, read_bytes=10 * 100, misses=1.0), 20),
        (Load(reads=10, read_bytes=10 * 100, misses=0.5), 15),
        (Load(writes=10, write_bytes=10 * 100), 10),
        (Load(writes=10, write_bytes=10 * 1_500), 20),
        (Load(writes=10, write_bytes=10 * 100, updates=1.0), 15),
        (Load(writes=10, write_bytes=10 * 100, deletes=1.0), 15),
        (Load(writes=10, write_bytes=10 * 100, updates=1.0, deletes=1.0), 15),
        (Load(reads=10, read_bytes=1_000, writes=10, write_bytes=1_000), 20),
    ],
)
def test_i9_the_table_of_units(load: Load, units: float) -> None:
    """Every line of the table in kv/base/traffic.py."""
    assert load.units == units


@pytest.mark.parametrize("batch", [1, 10, 2_000])
def test_h5_hot_keys_are_found_and_cold_ones_are_not(batch: int) -> None:
    """A hot key that nobody is told of cannot be mended; a false one sends people astray."""
    rng = random.Random(batch)
    keys = [
        b"hot" if rng.random() < 0.3 else b"%06d" % rng.randrange(10_000) for _ in range(60_000)
    ]
    traffic = Traffic()
    _asked(traffic, keys, batch)
    hot = traffic.hot.hot()
    assert [one.key for one in hot] == [b"hot"]
    assert abs(hot[0].share - 0.3) < 0.1


def test_h5_few_requests_make_nothing_hot() -> None:
    """One request after a restart is 100 per cent of all."""
    traffic = Traffic()
    _asked(traffic, [b"a"] * SAMPLE_EVERY * 3)
    assert traffic.hot.hot() == []


@given(st.lists(st.integers(0, 60), min_size=1, max_size=1_500))
def test_h5_the_sketch_is_bounded_and_never_too_sure(numbers: list[int]) -> None:
    """The promise of space-saving: what is told as sure was asked for at least as often."""
    sketch = HotKeys()
    for n in numbers:
        sketch.add(b"%d" % n)
    assert len(sketch._counts) <= HOT_KEYS_MAX
    truth = Counter(b"%d" % n for n in numbers)
    for key, share in sketch.hot():
        assert share >= HOT_SHARE_MIN
        assert share * sketch.total <= truth[key] + 1e-9
    for key, (count, error) in sketch._counts.items():
        assert count - error <= truth[key] <= count


def test_h5_a_key_is_not_hot_for_what_others_were_asked() -> None:
    """It inherits the counter of the key that it drives out, with all that this had."""
    sketch = HotKeys()
    for n in range(1_900):
        sketch.add(b"%d" % n)
    for _ in range(57):
        sketch.add(b"x")  # 3 per cent
    assert sketch.hot() == []


def test_h5_what_was_hot_cools() -> None:
    """Yesterday's hot key would be reported for ever."""
    sketch = HotKeys()
    for _ in range(1_000):
        sketch.add(b"old")
    for n in range(20_000):
        sketch.add(b"%d" % (n % 500))
    assert b"old" not in [one.key for one in sketch.hot()]


def test_h5_a_cut_by_load_divides_the_requests() -> None:
    """The middle by bytes would leave a hot corner whole."""
    rng = random.Random(3)
    keys = [
        b"%06d" % (rng.randrange(1_000) if rng.random() < 0.9 else rng.randrange(100_000))
        for _ in range(40_000)
    ]
    traffic = Traffic()
    _asked(traffic, keys)
    cut = traffic.load_key()
    assert cut is not None
    assert 0.3 < sum(key < cut for key in keys) / len(keys) < 0.7


def test_h5_one_key_that_has_all_the_load_cannot_be_cut() -> None:
    """A split would make two partitions of which one is as hot as before, again and again."""
    rng = random.Random(4)
    keys = [b"m" if rng.random() < 0.9 else b"%06d" % rng.randrange(100_000) for _ in range(40_000)]
    traffic = Traffic()
    _asked(traffic, keys)
    assert traffic.load_key() is None
    assert Traffic().load_key() is None


def test_h5_samples_are_one_in_so_many_whatever_the_drains_are() -> None:
    """Shares that depend on how requests arrive would be wrong."""
    for batch in (1, 7, 64, 5_000):
        traffic = Traffic()
        _asked(traffic, [b"x"] * 64_000, batch)
        assert 800 < traffic.hot.total < 1_250, batch


def test_i9_rates_follow_and_forget() -> None:
    """A partition that was busy an hour ago would be split today."""
    rates = Rates(Sums(0, 0, 0, 0), 0.0)
    now, reads = 0.0, 0
    for _ in range(60):
        now, reads = now + 1.0, reads + 100
        load = rates.look(Sums(reads, reads * 50, 0, 0), now)
    assert abs(load.reads - 100) < 1
    assert abs(load.read_bytes - 5_000) < 50
    assert load.writes == 0
    for _ in range(int(3 * RATE_S)):
        now += 1.0
        load = rates.look(Sums(reads, reads * 50, 0, 0), now)
    assert load.reads < 6
    for _ in range(int(10 * RATE_S)):
        now += 1.0
        load = rates.look(Sums(reads, reads * 50, 0, 0), now)
    assert load == Load(), "what is idle is exactly nothing: it is reported no more"
    assert rates.look(Sums(reads, 0, 0, 0), now) == load, "twice at one moment"
