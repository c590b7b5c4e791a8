"""Range reads and the collector, with controlled timestamps."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base.errors import Corruption, KeyLocked, SnapshotTooOld, TxnAborted
from kv.base.keys import successor
from kv.base.limits import SCAN_PAGE_BYTES_MAX, TXN_LIFETIME_MS_MAX, TXN_STATUS_RETENTION_MS
from kv.base.ops import delete, put
from kv.mvcc.find import find
from kv.mvcc.gc import Due, OldVersions
from tests.kit.each import each
from tests.kv.mvcc.store import NOW_MS, Store, at

EDGES = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"a",
    b"a\x00",
    b"a\xff",
    b"b",
    b"\xff",
    b"\xff\xff",
]


def filled(n: int = 10) -> Store:
    store = Store()
    for i in range(n):
        store.write(put(b"k%02d" % i, b"v%d" % i), ts=at(i + 1))
    return store


def test_b10_scan_is_one_snapshot() -> None:
    """A scan of several pages would mix versions that were written while it ran."""
    store = filled()
    first = store.page(ts=at(20), limit=3)
    assert first.resume is not None
    for i in range(10):
        store.write(put(b"k%02d" % i, b"new"), ts=at(30 + i))
    store.write(delete(b"k07"), put(b"k045", b"born later"), ts=at(50))
    rest = store.scan_all(first.resume, ts=at(20))
    assert [item[1] for item in first.items + rest] == [b"v%d" % i for i in range(10)]
    assert store.page(ts=at(5)).items == [(b"k%02d" % i, b"v%d" % i, at(i + 1)) for i in range(5)]


@pytest.mark.parametrize("prefix", EDGES)
def test_b11_prefix_with_00_and_ff_edges(prefix: bytes) -> None:
    """A prefix would run into its neighbour, or miss its own last key."""
    store = Store()
    for i, key in enumerate(EDGES):
        store.write(put(key, b"v"), ts=at(i + 1))
    for reverse in (False, True):
        found = store.scan_all(prefix, successor(prefix), reverse=reverse, limit=2)
        wanted = sorted((key for key in EDGES if key.startswith(prefix)), reverse=reverse)
        assert [item[0] for item in found] == wanted


@each("limit", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("rows_max", [1, 2, 5, 1000])
@pytest.mark.parametrize("ts", [0, at(6), at(14)])
def test_b12_reverse_is_the_forward_scan_reversed(limit: int, rows_max: int, ts: int) -> None:
    """A reverse scan would skip or repeat keys at a page's edge."""
    store = filled(12)
    for i in range(0, 12, 3):
        store.write(delete(b"k%02d" % i), ts=at(13 + i))
    forward = store.scan_all(b"k01", b"k10", ts=ts, limit=limit, rows_max=rows_max)
    backward = store.scan_all(b"k01", b"k10", ts=ts, limit=limit, rows_max=rows_max, reverse=True)
    assert forward == backward[::-1]
    assert [item[0] for item in forward] == sorted(item[0] for item in forward)
    assert forward == store.page(b"k01", b"k10", ts=ts).items


def test_scan_work_per_call_is_bounded() -> None:
    """A scan over deleted or large rows would hold the loop, or load more than a page."""
    store = filled(300)
    for i in range(300):
        store.write(delete(b"k%02d" % i), ts=at(400 + i))
    page = store.page(rows_max=50)
    assert page.items == []
    assert page.resume == sorted(b"k%02d" % i for i in range(300))[49] + b"\x00"
    big = Store()
    for i in range(60):
        big.write(put(b"k%02d" % i, b"x" * 1000), ts=at(i + 1))
    page = big.page(bytes_max=20_000)
    assert len(page.items) in (19, 20)
    assert page.resume is not None
    assert len(big.scan_all(bytes_max=5_000)) == 60


class Weighing(Store):
    """Notes the bytes of the largest slice that was loaded."""

    loaded = 0

    def scan(self, *args: Any, **kwargs: Any) -> list[tuple[bytes, bytes]]:
        found = super().scan(*args, **kwargs)
        self.loaded = max(self.loaded, sum(len(k) + len(v) for k, v in found))
        return found


@pytest.mark.parametrize("reverse", [False, True])
def test_large_rows_behind_small_ones_are_not_loaded_together(reverse: bool) -> None:
    """Judged by the rows before them, hundreds of large rows would be in memory for one page."""
    store = Weighing()
    for i in range(200):
        large = (i >= 100) is not reverse
        store.write(put(b"k%03d" % i, b"x" * (2_000 if large else 1)), ts=at(i + 1))
    assert len(store.scan_all(bytes_max=10_000, reverse=reverse)) == 200
    assert store.loaded < 10_000 + 2_100
    for i in range(200):
        store.write(put(b"k%03d" % i, b"new"), ts=at(300 + i))
    store.loaded = 0
    store.collect(at(900))
    assert store.rows["hist"] == {}
    assert store.loaded < SCAN_PAGE_BYTES_MAX + 2_100


def test_scan_stops_only_at_intents_in_what_it_read() -> None:
    """A page would be refused for an intent behind its end, or return past one that it met."""
    store = filled()
    store.prewrite(put(b"k05", b"x"), start=at(20), anchor=b"k05")
    assert len(store.page(limit=5).items) == 5
    with pytest.raises(KeyLocked):
        store.page(limit=6)
    assert len(store.page(b"k06").items) == 4
    with pytest.raises(KeyLocked):
        store.page(b"k05", b"k06")
    assert [item[0] for item in store.page(reverse=True, limit=4).items][-1] == b"k06"
    with pytest.raises(KeyLocked):
        store.page(reverse=True, limit=5)


def test_scan_meets_a_new_key_of_an_intent() -> None:
    """The insert of a transaction that committed below the snapshot would be missed, because no row
    stands there yet.
    """
    store = filled(3)
    store.prewrite(put(b"k01x", b"new"), start=at(20), anchor=b"k01x")
    with pytest.raises(KeyLocked):
        store.page(ts=at(30))
    assert len(store.page(ts=at(19)).items) == 3


def test_c1_writers_do_not_change_an_open_snapshot() -> None:
    """An update would overwrite what a running reader sees."""
    store = filled(3)
    before = store.scan_all(ts=at(9))
    for i in range(3):
        store.write(put(b"k%02d" % i, b"new"), ts=at(10 + i))
    assert store.scan_all(ts=at(9)) == before
    assert [item[2] for item in store.scan_all()] == [at(10), at(11), at(12)]


def test_c4_collecting_old_versions() -> None:
    """Old versions would stay for ever, or one that a reader above the safepoint needs would go."""
    store = Store()
    for i in range(1, 1001):
        store.write(put(b"k", b"v%d" % i), ts=at(i))
    assert len(store.rows["hist"]) == 999
    store.collect(at(900), rows_max=64)
    assert len(store.rows["hist"]) == 100
    for i in (900, 901, 950, 1000):
        assert store.get(b"k", at(i)) == (b"v%d" % i, at(i))
    for read in (lambda: store.get(b"k", at(899)), lambda: store.page(ts=at(899))):
        with pytest.raises(SnapshotTooOld) as caught:
            read()
        assert caught.value.details == {"at": at(899), "safepoint": at(900), "retention_ms": 1}
    with pytest.raises(SnapshotTooOld):
        store.multi_get(b"k", ts=at(899))


def test_c4_collecting_delete_marks() -> None:
    """Tombstones would stay for ever, or a deleted record would come back."""
    store = Store()
    store.write(put(b"a", b"1"), put(b"b", b"1"), ts=at(1))
    store.write(delete(b"a"), delete(b"b"), ts=at(5))
    store.write(put(b"b", b"2"), ts=at(7))
    store.collect(at(4))
    assert store.get(b"a", at(4)) == (b"1", at(1))
    store.collect(at(5))
    assert list(store.rows["cur"]) == [b"b"]
    assert not store.rows["gcq"]
    assert store.get(b"a") == (None, 0)
    assert store.get(b"b", at(6)) == (None, 0)
    assert store.get(b"b") == (b"2", at(7))
    store.write(put(b"a", b"again", cond=0), ts=at(9))
    assert store.get(b"a", at(8)) == (None, 0)
    store.collect(at(9))
    assert not store.rows["hist"]


def test_a_gap_in_history_is_absent() -> None:
    """A version from before a collected tombstone would be shown to a reader after it."""
    store = Store()
    store.write(put(b"k", b"old"), ts=at(1))
    store.prewrite(delete(b"k"), start=at(2), anchor=b"k")
    store.commit(b"k", at(2), at(3))
    store.safepoint = at(5)
    assert store.step(OldVersions()) is None
    store.resolve(b"k", start=at(2), ts=at(3))  # between the collector's two walks
    store.step(Due(list(store.rows["gcq"]), 0))
    assert not store.rows["cur"]
    assert store.rows["hist"], "the scene needs the old version still there"
    store.write(put(b"k", b"new"), ts=at(9))
    assert store.get(b"k", at(6)) == (None, 0)
    assert store.page(ts=at(6)).items == []


def test_b5_space_of_expired_records_is_reclaimed() -> None:
    """Expired records would fill the disk."""
    store = Store()
    store.write(put(b"a", b"1", ttl_ms=10), put(b"b", b"1", ttl_ms=90), ts=at(1))
    store.collect(at(11) - 1)
    assert len(store.rows["cur"]) == 2
    store.collect(at(11))
    assert list(store.rows["cur"]) == [b"b"]
    assert len(store.rows["gcq"]) == 1


def test_collector_leaves_locked_keys() -> None:
    """An expired record below an intent would go while its transaction still compares with it."""
    store = Store()
    store.write(put(b"a", b"1", ttl_ms=10), ts=at(1))
    store.prewrite(put(b"a", b"2"), start=at(5), anchor=b"a")
    store.collect(at(50))
    assert b"a" in store.rows["cur"]
    assert store.rows["gcq"]
    store.resolve(b"a", start=at(5), ts=0)
    store.collect(at(50))
    assert b"a" not in store.rows["cur"]


def test_transaction_records_outlive_their_retention_only_if_needed() -> None:
    """A record would stay for ever, or go while its intents still need it: an acknowledged write
    would be rolled back.
    """
    store = Store()
    store.prewrite(put(b"a", b"1"), put(b"b", b"1"), start=at(1), anchor=b"a")
    store.commit(b"a", at(1), at(2))
    store.rollback(b"r", at(3))
    gone = TXN_LIFETIME_MS_MAX + TXN_STATUS_RETENTION_MS
    store.collect(at(gone), txn_floor=at(gone))
    assert len(store.rows["txn"]) == 2
    store.collect(at(gone + 5), txn_floor=at(1))
    assert len(store.rows["txn"]) == 2
    store.collect(at(gone + 5), txn_floor=at(3))
    assert find(store, at(1)) is None
    assert find(store, at(3)) == b"r"
    store.collect(at(gone + 5))
    assert not store.rows["txn"]
    store.now_ms = NOW_MS + gone + 5
    with pytest.raises(TxnAborted):
        store.prewrite(put(b"r", b"late"), start=at(3), anchor=b"r")


def test_below_the_safepoint_nobody_writes() -> None:
    """A transaction whose conflicts were collected would overwrite a newer version."""
    store = Store()
    store.write(put(b"a", b"1"), ts=at(1))
    store.write(delete(b"a"), ts=at(5))
    store.collect(at(6))
    with pytest.raises(TxnAborted):
        store.prewrite(put(b"a", b"lost"), start=at(3), anchor=b"a")


def test_collector_keeps_to_its_range() -> None:
    """One partition's collector would remove another one's rows with its own safepoint."""
    left, right = Store(end=b"m"), Store(start=b"m")
    right.rows, right.order = left.rows, left.order
    for key in (b"a", b"z"):
        left.write(put(key, b"1", ttl_ms=5), ts=at(1))
        left.write(put(key, b"2", ttl_ms=5), ts=at(2))
        left.rollback(key, at(1))
    gone = TXN_LIFETIME_MS_MAX + TXN_STATUS_RETENTION_MS + 10
    left.collect(at(gone))
    assert list(left.rows["cur"]) == [b"z"]
    assert [key[:1] for key in left.rows["hist"]] == [b"z"]
    assert [key[:1] for key in left.rows["txn"]] == [b"z"]
    right.collect(at(gone))
    assert not any(right.rows.values())


def test_collector_finds_damage() -> None:
    """A damaged old version would be judged by a damaged timestamp."""
    store = Store()
    store.write(put(b"a", b"1"), ts=at(1))
    store.write(put(b"a", b"2"), ts=at(2))
    key = store.order["hist"][0]
    store.rows["hist"][key] = b"\x00" + store.rows["hist"][key][1:]
    store.rows["hist"][key] = b"\xff" + store.rows["hist"][key][1:]
    with pytest.raises(Corruption):
        store.collect(at(5))


@pytest.mark.parametrize("versions", [1, 1_000])
def test_g15_a_scan_of_the_newest_never_looks_at_old_versions(versions: int) -> None:
    """Its cost would grow with how often the rows were overwritten."""
    store = Store()
    for i in range(versions):
        store.write(*(put(b"k%d" % k, b"v%d" % i) for k in range(5)), ts=at(i + 1))
    looked_at: list[tuple[str, int]] = []
    plain = store.scan

    def scan(family: str, *args: Any, **more: Any) -> Any:
        rows = plain(family, *args, **more)
        if family != "lock":  # the store's own table of intents, in place of the mirror
            looked_at.append((family, len(rows)))
        return rows

    store.scan = scan  # type: ignore[method-assign]
    for ts in (0, at(versions), at(versions + 5)):
        assert len(store.scan_all(ts=ts)) == 5
        assert len(store.scan_all(ts=ts, reverse=True)) == 5
    assert {family for family, _ in looked_at} == {"cur"}
    assert sum(rows for _, rows in looked_at) == 6 * 5
