"""Where a partition's bytes lie, from samples: near the truth whatever is written, and bounded."""

from __future__ import annotations

import random
from bisect import bisect_left, insort

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.limits import SIZE_POINTS_MAX, SIZE_RECORD_BYTES_MAX, MiB
from kv.partition.sizes import SizeMap


class Store:
    """A partition's rows, and the map that follows them entry by entry."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.map = SizeMap()
        self.looked = 0

    def write(self, entry: dict[bytes, bytes | None]) -> None:
        rows = [(key, entry[key], None, None) for key in sorted(entry)]
        after = dict(self.rows)
        for key, record in entry.items():
            if record is None:
                after.pop(key, None)
            else:
                after[key] = record
        grown = sum(len(k) + len(v) for k, v in after.items() if k in entry) - sum(
            len(k) + len(self.rows[k]) for k in entry if k in self.rows
        )
        chosen = self.map.choose(rows, grown, self._cur)
        self.rows = after
        self.map.note(chosen)

    def _cur(self, key: bytes) -> bytes | None:
        self.looked += 1
        return self.rows.get(key)

    @property
    def live(self) -> int:
        return sum(map(len, self.rows)) + sum(map(len, self.rows.values()))

    def below(self, key: bytes | None) -> float:
        assert key is not None
        return sum(len(k) + len(v) for k, v in self.rows.items() if k < key) / self.live


def _fill(store: Store, keys: list[bytes], size: int, batch: int) -> None:
    """Without the checks of `write`, which look at everything."""
    for at in range(0, len(keys), batch):
        part = sorted(set(keys[at : at + batch]))
        rows = [(key, b"." * size, None, None) for key in part]
        new = [key for key in part if key not in store.rows]
        chosen = store.map.choose(rows, sum(len(k) + size for k in new), store._cur)
        store.rows.update((key, b"." * size) for key in part)
        store.map.note(chosen)


@pytest.mark.few(2)
@pytest.mark.parametrize("batch", [1, 64, 1_000])
@pytest.mark.parametrize(("count", "size"), [(60_000, 100), (20_000, 1_000), (40, 1 * MiB)])
@pytest.mark.parametrize("order", ["random", "rising", "falling", "skewed"])
def test_g2_the_middle_is_found_within_a_tenth(
    batch: int, count: int, size: int, order: str
) -> None:
    """Halves of 30 and 70 per cent would be split again, and fill up unevenly."""
    rng = random.Random(f"{batch} {count} {order}")
    numbers = list(range(count))
    if order == "random":
        rng.shuffle(numbers)
    elif order == "falling":
        numbers.reverse()
    elif order == "skewed":
        numbers = sorted({int(1_000 * rng.paretovariate(0.5)) for _ in range(count)})
        rng.shuffle(numbers)
    store = Store()
    _fill(store, [b"%040d" % n for n in numbers], size, batch)
    half = store.below(store.map.key_at(0.5))
    assert 0.4 <= half <= 0.6
    assert len(store.map) <= SIZE_POINTS_MAX
    assert abs(store.map.total / store.live - 1) < 0.2, "it knows how much there is"


def test_g2_overwriting_and_deleting_does_not_pull_the_middle() -> None:
    """A hot key that is written a million times has no more bytes than its last version."""
    rng = random.Random(7)
    store = Store()
    keys = [b"%08d" % n for n in range(20_000)]
    _fill(store, keys, 1_000, 100)
    for _ in range(300):
        _fill(store, [keys[-1], *keys[-50:]], 1_000, 51)
    assert 0.4 <= store.below(store.map.key_at(0.5)) <= 0.6
    gone = keys[:10_000]
    rng.shuffle(gone)
    for at in range(0, len(gone), 100):
        rows = [(key, None, None, None) for key in sorted(gone[at : at + 100])]
        chosen = store.map.choose(rows, -100 * 1_008, store._cur)
        for key in gone[at : at + 100]:
            del store.rows[key]
        store.map.note(chosen)
    assert 0.4 <= store.below(store.map.key_at(0.5)) <= 0.6, "the lower half has gone"
    assert abs(store.map.total / store.live - 1) < 0.25


def test_g2_one_large_row_among_small_ones_counts_once() -> None:
    """A row of megabytes that was taken for a hundred of its kind would move the middle to it."""
    store = Store()
    _fill(store, [b"%08d" % n for n in range(30_000)], 200, 500)
    for n in range(4):
        key = b"%08d" % (100 + n) + b"x"
        store.write({key: b"." * MiB, b"%08d" % (20_000 + n): b"." * 200})
    assert abs(store.map.total / store.live - 1) < 0.2
    assert abs(store.below(store.map.key_at(0.75)) - 0.75) < 0.1


def test_g2_few_rows_are_looked_at() -> None:
    """Reading every row again would double the cost of a write."""
    store = Store()
    _fill(store, [b"%08d" % n for n in range(50_000)], 100, 100)
    assert store.looked < 50_000 / 100


def test_g2_a_split_cuts_the_map_and_a_merge_joins_it() -> None:
    """Halves that know nothing of themselves could not be split again."""
    store = Store()
    _fill(store, [b"%08d" % n for n in range(20_000)], 1_000, 100)
    total = store.map.total
    key = store.map.key_at(0.5)
    assert key is not None
    right = store.map.cut(key)
    assert store.map.total + right.total == pytest.approx(total)
    assert 0.4 < right.total / total < 0.6
    middle = right.key_at(0.5)
    assert middle is not None
    assert middle > key
    assert store.below(middle) == pytest.approx(0.75, abs=0.05)
    store.map.join(right)
    assert store.map.total == pytest.approx(total)
    assert 0.4 <= store.below(store.map.key_at(0.5)) <= 0.6


def test_g2_the_record_is_bounded_and_gives_the_same_middle() -> None:
    """After a restart the first split would be blind, or the record would weigh more than rows."""
    store = Store()
    _fill(store, [b"%02000d" % n for n in range(5_000)], 1_000, 100)
    assert store.map.due()
    record = store.map.record()
    assert len(record) <= SIZE_RECORD_BYTES_MAX + 100
    assert not store.map.due()
    again = SizeMap.of(record)
    assert 0.4 <= store.below(again.key_at(0.5)) <= 0.6
    with pytest.raises(ValueError, match=r".+"):
        SizeMap.of(b"\xc1")


def test_g2_nothing_is_known_of_nothing() -> None:
    """An empty partition, or one of a single row, has no middle."""
    map_ = SizeMap()
    assert map_.key_at(0.5) is None
    assert map_.share_below(b"x") == 0.5
    map_.note([(b"a", 5.0)])
    assert map_.key_at(0.5) is None
    map_.note([(b"b", -3.0), (b"zz", 0.0)])
    assert map_.total == 2.0


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.integers(-2_000, 3_000)), max_size=400)
)
def test_g2_whatever_is_noted_the_map_stays_a_map(changes: list[tuple[bytes, int]]) -> None:
    """Keys out of order, or weights below nothing, would give a key outside of the partition."""
    map_ = SizeMap()
    known: list[bytes] = []
    for key, change in changes:
        map_.note([(key, float(change))])
        if change > 0 and key not in known:
            insort(known, key)
        assert map_._keys == sorted(set(map_._keys))
        assert all(weight > 0 for weight in map_._weights)
        assert set(map_._keys) <= set(known)
    for share in (0.0, 0.5, 1.0):
        key_at = map_.key_at(share)
        assert key_at is None or (key_at in known and bisect_left(map_._keys, key_at) > 0)
