"""Parallel commit at the participants: staging, recovery, fences; controlled timestamps (D13)."""

from __future__ import annotations

import pytest

from kv.base.errors import InvalidArgument, KeyLocked, TxnAborted
from kv.base.methods import ABORTED, COMMITTED, FENCED, PENDING, STAGING
from kv.base.ops import delete, put
from kv.base.timestamps import compose
from kv.mvcc.find import find
from kv.mvcc.prewrite import Prewritten
from tests.kv.mvcc.store import Store, at

A, Z = b"a", b"z"
PARTS = ((A,), (Z,))
START = at(5)


def staged(store: Store) -> None:
    """The part with the anchor is there, STAGING; the other one is not."""
    done = store.stage(put(A, b"1"), start=START, fresh=at(7), anchor=A, parts=PARTS)
    assert done == Prewritten(at(7), exact=True)


def test_d13_complete_intents_commit_at_their_highest_bound() -> None:
    """Two who recover it would tell different commit timestamps."""
    store = Store()
    staged(store)
    assert store.check(A, START).record.parts == PARTS
    assert store.stage(put(Z, b"1"), start=START, fresh=at(9), anchor=A) == (at(9), True)
    for _ in range(2):
        assert store.recover(Z, start=START, anchor=A) == (True, at(9))
        assert store.recover(A, start=START, anchor=A) == (True, at(7))
    assert store.settle(A, START, at(9)).commit_ts == at(9)
    assert store.settle(A, START, 0).status == COMMITTED, "the first one decided"
    assert store.commit(A, START, at(9)).commit_ts == at(9)


def test_d13_missing_intent_is_fenced_and_comes_too_late() -> None:
    """The late prewrite would complete a transaction that others were told is aborted."""
    store = Store()
    staged(store)
    assert store.recover(Z, start=START, anchor=A, fence=False) == (False, 0)
    assert store.rows["txn"].keys() == {key for key in store.rows["txn"] if key.startswith(A)}
    assert store.recover(Z, start=START, anchor=A) == (False, 0)
    with pytest.raises(TxnAborted):
        store.stage(put(Z, b"1"), start=START, fresh=at(9), anchor=A)
    assert store.recover(Z, start=START, anchor=A) == (False, 0)
    assert store.settle(A, START, 0).status == ABORTED
    assert store.commit(A, START, at(9)).status == ABORTED
    store.stage(put(Z, b"2"), start=at(6), fresh=at(10), anchor=A)  # another transaction may


def test_d13_an_echo_after_the_recovery_is_refused() -> None:
    """Its new bound would make the coordinator tell another version than the one that is there."""
    store, far = Store(end=b"m"), Store(start=b"m")
    staged(store)
    assert far.stage(delete(Z), start=START, fresh=at(9), anchor=A) == (at(9), True)
    assert far.recover(Z, start=START, anchor=A, fence=False) == (True, at(9))
    assert far.stage(delete(Z), start=START, fresh=at(11), anchor=A) == (at(9), True)
    store.settle(A, START, at(9))
    store.resolve(A, start=START, ts=at(9))
    far.resolve(Z, start=START, ts=at(9))
    with pytest.raises(TxnAborted):  # a delete of nothing left no version that would refuse it
        far.stage(delete(Z), start=START, fresh=at(12), anchor=A)
    again = store.stage(put(A, b"1"), start=START, fresh=at(12), anchor=A, parts=PARTS)
    assert again == Prewritten(at(9), exact=False)


def test_d13_a_fence_is_not_taken_for_the_transaction() -> None:
    """`status` would answer "aborted" from a fence while the record says "committed"."""
    store = Store()
    staged(store)
    store.recover(Z, start=START, anchor=A)
    assert store.txn(Z, START) is not None
    assert find(store, START) == A
    elsewhere = Store(start=b"m")
    elsewhere.recover(Z, start=START, anchor=A)
    assert find(elsewhere, START) is None


def test_d13_fences_are_collected() -> None:
    """Every recovery would leave a record for ever."""
    store = Store()
    store.recover(Z, start=START, anchor=A)
    assert store.txn(Z, START) is not None
    store.collect(START + compose(48 * 3_600_000), txn_floor=START)
    assert store.txn(Z, START) is not None, "an old intent may still need what is left"
    store.collect(START + compose(48 * 3_600_000))
    assert not store.rows["txn"]
    assert not store.rows["gcq"]


def test_d13_the_anchor_is_never_fenced() -> None:
    """The fence would overwrite the record that says how the transaction ended."""
    store = Store()
    staged(store)
    store.settle(A, START, at(7))
    store.resolve(A, start=START, ts=at(7))
    assert store.recover(A, start=START, anchor=A) == (False, 0)
    assert store.settle(A, START, 0).status == COMMITTED


def test_d13_only_the_coordinator_aborts_a_staging_one() -> None:
    """A rollback by somebody who does not know would undo what was acknowledged already."""
    store = Store()
    staged(store)
    assert store.rollback(A, START).status == STAGING
    store.now_ms += 10**7
    assert store.check(A, START, push=at(50)).record.status == STAGING, "expiry aborts nothing"
    assert store.rollback(A, START, own=True).status == ABORTED


def test_d13_heartbeat_takes_staging_back() -> None:
    """A coordinator that waits for a lock would be recovered from under its feet."""
    store = Store()
    staged(store)
    store.now_ms += 100
    assert store.heartbeat(A, START) == PENDING
    assert store.settle(A, START, 0).status == PENDING, "whoever recovers finds that it lives"
    assert store.stage(put(A, b"1"), start=START, fresh=at(11), anchor=A, parts=PARTS) == (
        at(11),
        False,
    ), "sent again: not a second time STAGING"
    store.check(A, START, push=at(20))
    assert store.commit(A, START, at(15)).status == PENDING, "pushed like any other"
    assert store.commit(A, START, at(21)).status == COMMITTED


def test_d13_sent_again_answers_the_bound_of_the_intents() -> None:
    """The coordinator would commit at another timestamp than those who recover it."""
    store = Store()
    staged(store)
    again = store.stage(put(A, b"1"), start=START, fresh=at(12), anchor=A, parts=PARTS)
    assert again == Prewritten(at(7), exact=True)


def test_d13_pushed_before_the_prewrite_is_not_staged() -> None:
    """It would commit below the snapshot of a reader that stepped over its intents."""
    store = Store()
    store.check(A, START, push=at(8))
    done = store.stage(put(A, b"1"), start=START, fresh=at(7), anchor=A, parts=PARTS)
    assert done == Prewritten(at(8) + 1, exact=False)
    assert store.check(A, START).record.status == PENDING
    other = Store()
    other.check(A, START, push=at(6))
    staged(other)


def test_d9_reader_below_the_bound_passes() -> None:
    """It would ask and wait for a transaction that cannot be in its snapshot."""
    store = Store()
    staged(store)
    assert store.get(A, at(7) - 1) == (None, 0)
    with pytest.raises(KeyLocked):
        store.get(A, at(7))


def test_d13_staging_survives_its_encoding() -> None:
    """After a restart nobody would know which keys to ask for."""
    store = Store()
    store.stage(
        put(A, b"1", ttl_ms=50), put(b"c", b""), start=START, fresh=at(7), anchor=A, parts=PARTS
    )
    first, second = store.lock(A), store.lock(b"c")
    assert first is not None
    assert second is not None
    assert (first.min_commit_ts, first.value_ttl_ms, first.payload) == (at(7), 50, b"1")
    assert (second.min_commit_ts, second.value_ttl_ms, second.payload) == (at(7), 0, b"")
    record = store.txn(A, START)
    assert record is not None
    assert (record.status, record.parts) == (STAGING, PARTS)
    store.recover(Z, start=START, anchor=A)
    fence = store.txn(Z, START)
    assert fence is not None
    assert fence.status == FENCED


def test_settle_refuses_a_timestamp_that_cannot_be() -> None:
    """A commit below its own start would be invisible to those who began after it."""
    store = Store()
    staged(store)
    with pytest.raises(InvalidArgument):
        store.settle(A, START, START)
    assert store.settle(b"none", START, at(9)).status == PENDING
