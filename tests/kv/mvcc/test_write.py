"""1PC: conditions, conflicts, deletes, times to live, repeated batches."""

from __future__ import annotations

import pytest

from kv.base.errors import ConditionFailed, KeyLocked, TooLarge, TxnAborted, WriteConflict
from kv.base.limits import TXN_LIFETIME_MS_MAX, VALUE_BYTES_MAX
from kv.base.methods import ABORTED, BLIND, COMMITTED
from kv.base.ops import check, delete, put
from kv.base.system import UNVERSIONED
from kv.mvcc.view import Mutations
from kv.mvcc.write import write
from tests.kv.mvcc.store import NOW_MS, Store, at

UNVERSIONED_KEY = next(iter(UNVERSIONED)) + b"key"


def test_b2_put_if_absent() -> None:
    """A second creator would overwrite the first, or not learn what stands there."""
    store = Store()
    store.write(put(b"k", b"first", cond=0), ts=at(1))
    with pytest.raises(ConditionFailed) as caught:
        store.write(put(b"k", b"second", cond=0), ts=at(2))
    assert caught.value.details == {
        "key": b"k",
        "version": str(at(1)),
        "op": 0,
        "wanted": "0",
    }
    assert caught.value.message.startswith("key b'k' must be absent"), "no batch, so no operation 0"
    assert store.get(b"k") == (b"first", at(1))
    store.write(delete(b"k"), ts=at(3))
    store.write(put(b"k", b"third", cond=0), ts=at(4))
    assert store.get(b"k") == (b"third", at(4))


def test_b3_put_if_version() -> None:
    """A compare-and-set on a stale version would lose the update in between."""
    store = Store()
    store.write(put(b"k", b"1"), ts=at(1))
    store.write(put(b"k", b"2", cond=at(1)), ts=at(2))
    with pytest.raises(ConditionFailed) as caught:
        store.write(put(b"k", b"x", cond=at(1)), ts=at(3))
    assert caught.value.details["version"] == str(at(2))
    with pytest.raises(ConditionFailed) as caught:
        store.write(put(b"none", b"x", cond=at(1)), ts=at(3))
    assert caught.value.details["version"] is None


def test_b4_delete_if_version() -> None:
    """A delete with a stale version would remove somebody else's record."""
    store = Store()
    store.write(put(b"k", b"1"), ts=at(1))
    store.write(put(b"k", b"2"), ts=at(2))
    with pytest.raises(ConditionFailed):
        store.write(delete(b"k", cond=at(1)), ts=at(3))
    assert store.get(b"k") == (b"2", at(2))
    store.write(delete(b"k", cond=at(2)), ts=at(4))
    assert store.get(b"k") == (None, 0)


def test_o9_staged_chunks_keep_no_history() -> None:
    """Every staged batch would be copied for readers that do not exist, or its bytes be counted for
    ever.
    """
    store, key = Store(), UNVERSIONED_KEY
    store.write(put(key, b"x" * 100), ts=at(1))
    staged = store.rows["cur"][key]
    for n, op in enumerate((put(key, b"y" * 50), delete(key)), 2):
        m = Mutations()
        old = store.rows["cur"][key]
        write(store, [op], start_ts=0, flags=0, commit_ts=at(n), now_ms=store.now_ms, m=m)
        assert m.forgotten_bytes == len(key) + len(old)
        assert m.rows[0][2:] == (None, None)
        store.apply(m)
    assert len(staged) > 100
    assert store.get(key, ts=at(1)) == store.get(key) == (None, 0)
    m = Mutations()
    write(store, [delete(key)], start_ts=0, flags=0, commit_ts=at(5), now_ms=store.now_ms, m=m)
    assert m.empty
    assert m.forgotten_bytes == 0, "deleted already"
    store.collect(at(900))
    assert not store.rows["cur"]
    assert not store.rows["gcq"]


def test_b7_one_failed_condition_refuses_the_batch_and_names_key_and_op() -> None:
    """Half of a batch would be written, or the caller could not tell which condition failed."""
    store = Store()
    store.write(put(b"b", b"1"), ts=at(1))
    batch = (put(b"a", b"x"), check(b"c", 0), delete(b"b", cond=at(9)))
    with pytest.raises(ConditionFailed) as caught:
        store.write(*batch, ts=at(2))
    wanted = str(at(9))
    assert caught.value.details == {"key": b"b", "version": str(at(1)), "op": 2, "wanted": wanted}
    assert caught.value.message.startswith("operation 2: key b'b' must")
    assert store.get(b"a") == (None, 0)
    store.write(put(b"a", b"x"), check(b"c", 0), delete(b"b", cond=at(1)), ts=at(3))
    assert store.multi_get(b"a", b"b", b"c") == [(b"x", at(3)), (None, 0), (None, 0)]


def test_c5_all_keys_of_a_batch_have_one_version() -> None:
    """A reader between two versions of one batch would see half of it."""
    store = Store()
    store.write(put(b"a", b"1"), put(b"b", b"2"), ts=at(1))
    store.write(put(b"a", b"3"), put(b"c", b"4"), ts=at(2))
    found = store.multi_get(b"a", b"b", b"c")
    assert [version for _, version in found] == [at(2), at(1), at(2)]


def test_p11_nothing_newer_than_the_snapshot() -> None:
    """A transaction that read an older version would overwrite a newer one: a lost update."""
    store = Store()
    store.write(put(b"k", b"1"), ts=at(1))
    store.write(put(b"k", b"2"), ts=at(5))
    with pytest.raises(WriteConflict) as caught:
        store.write(put(b"a", b"x"), put(b"k", b"x"), start=at(4), ts=at(6))
    assert caught.value.details == {"key": b"k", "conflict_ts": at(5), "start_ts": at(4)}
    assert store.get(b"a") == (None, 0)
    store.write(put(b"k", b"blind"), start=at(4), flags=BLIND, ts=at(7))
    store.write(put(b"k", b"later"), start=at(7), ts=at(8))
    assert store.get(b"k") == (b"later", at(8))


def test_p11_a_tombstone_is_a_newer_version_too() -> None:
    """A transaction that read a record would bring it back after somebody deleted it."""
    store = Store()
    store.write(put(b"k", b"1"), ts=at(1))
    store.write(delete(b"k"), ts=at(5))
    with pytest.raises(WriteConflict):
        store.write(put(b"k", b"x"), start=at(4), ts=at(6))


def test_repeated_batch_finds_its_outcome() -> None:
    """A batch that was sent again after a lost reply would be executed twice, or refused."""
    store = Store()
    first = store.write(put(b"k", b"1", cond=0), start=at(1), ts=at(2))
    store.write(put(b"k", b"other"), ts=at(3))
    before = store.snapshot()
    assert store.write(put(b"k", b"1", cond=0), start=at(1), ts=at(4)) == first
    assert store.snapshot() == before
    record = store.txn(b"k", at(1))
    assert record is not None
    assert (record.status, record.commit_ts) == (COMMITTED, at(2))


def test_batch_without_id_leaves_no_record() -> None:
    """Every plain put would pay for a transaction record."""
    store = Store()
    store.write(put(b"k", b"1"), ts=at(2))
    assert not store.rows["txn"]
    assert not store.rows["gcq"]


def test_rolled_back_batch_stays_rolled_back() -> None:
    """A batch whose id somebody declared aborted would commit afterwards."""
    store = Store()
    assert store.rollback(b"k", at(1)).status == ABORTED
    with pytest.raises(TxnAborted):
        store.write(put(b"k", b"1"), start=at(1), ts=at(2))


def test_locked_key_refuses_writers_and_says_who() -> None:
    """A writer would overwrite an intent, or could not find out whom to wait for."""
    store = Store()
    store.prewrite(put(b"k", b"1"), start=at(1), anchor=b"anchor", ttl=700)
    store.now_ms += 30
    with pytest.raises(KeyLocked) as caught:
        store.write(put(b"k", b"2"), ts=at(2))
    assert caught.value.details == {
        "key": b"k",
        "txn": at(1),
        "anchor": b"anchor",
        "age_ms": 29,
        "ttl_ms": 700,
        "keys": [b"k"],
    }


def test_deleting_nothing_leaves_no_garbage() -> None:
    """Deletes of absent keys would fill the store with tombstones."""
    store = Store()
    assert store.write(delete(b"k"), ts=at(1)) == at(1)
    store.write(put(b"k", b"1"), ts=at(2))
    store.write(delete(b"k"), ts=at(3))
    rows = store.snapshot()
    store.write(delete(b"k"), ts=at(4))
    assert store.snapshot() == rows


def test_b5_expired_record_is_absent_for_every_reader_and_condition() -> None:
    """An expired record would still be read, scanned or block a put-if-absent."""
    store = Store()
    store.write(put(b"k", b"1", ttl_ms=100), put(b"l", b"2"), ts=at(1))
    expiry = at(101)
    for ts, seen in ((expiry - 1, [b"1", b"2"]), (expiry, [None, b"2"])):
        assert [value for value, _ in store.multi_get(b"k", b"l", ts=ts)] == seen
        assert [store.get(b"k", ts)[0], store.get(b"l", ts)[0]] == seen
        assert [item[1] for item in store.scan_all(ts=ts)] == [v for v in seen if v]
    store.now_ms = NOW_MS + 100
    assert store.get(b"k")[0] == b"1"
    store.now_ms = NOW_MS + 101
    assert store.get(b"k") == (None, 0)
    with pytest.raises(ConditionFailed) as caught:
        store.write(put(b"k", b"3", cond=at(1)), ts=at(102))
    assert caught.value.details["version"] is None
    store.write(put(b"k", b"3", cond=0), ts=at(103))
    assert store.get(b"k", at(50)) == (b"1", at(1))
    assert store.get(b"k", at(102)) == (None, 0)
    assert store.get(b"k") == (b"3", at(103))


def test_b5_overwriting_moves_the_expiry() -> None:
    """The collector's queue would keep a row for each overwrite of a record with a ttl."""
    store = Store()
    for i in range(1, 5):
        store.write(put(b"k", b"v", ttl_ms=100), ts=at(i))
    assert len(store.rows["gcq"]) == 1
    store.write(put(b"k", b"for ever"), ts=at(9))
    assert not store.rows["gcq"]
    store.now_ms += 10_000
    assert store.get(b"k") == (b"for ever", at(9))


def test_too_old_to_write() -> None:
    """A transaction could write after its conflicts and its record were forgotten."""
    store = Store()
    store.safepoint = at(5)
    with pytest.raises(TxnAborted):
        store.write(put(b"k", b"1"), start=at(4), ts=at(9))
    store.safepoint = 0
    store.now_ms = NOW_MS + 4 + TXN_LIFETIME_MS_MAX + 1
    with pytest.raises(TxnAborted):
        store.write(put(b"k", b"1"), start=at(4), ts=at(TXN_LIFETIME_MS_MAX + 9))


def test_superseded_bytes_are_bounded() -> None:
    """One batch of small deletes could make an entry of gigabytes."""
    store = Store()
    big = b"x" * VALUE_BYTES_MAX
    keys = [b"k%02d" % i for i in range(17)]
    for i, key in enumerate(keys):
        store.write(put(key, big), ts=at(i + 1))
    with pytest.raises(TooLarge) as caught:
        store.write(*(delete(key) for key in keys), ts=at(50))
    assert caught.value.details["actual"] > caught.value.details["limit"]
