"""A transaction that takes others with it: all of them are committed at one timestamp, or none."""

from __future__ import annotations

import pytest

from kv.base.errors import InvalidArgument, TxnAborted
from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.methods import ABORTED, COMMITTED, PENDING
from kv.base.ops import put
from tests.kv.mvcc.store import NOW_MS, Store, at

ANCHOR = b"a"
TASKS = [(b"b1", at(0, 1)), (b"b2", at(0, 2))]


def begun(ttl: int = 1_000) -> Store:
    """One transaction with its anchor, two without an intent there, each with a row."""
    store = Store()
    store.prewrite(put(ANCHOR, b"anchor"), start=at(0), anchor=ANCHOR, ttl=ttl)
    for n, (anchor, start) in enumerate(TASKS):
        assert store.heartbeat(anchor, start, ttl) == PENDING
        store.prewrite_rows({b"k%d" % n: b"v"}, start=start, anchor=anchor)
    return store


def test_o3_all_are_committed_at_once() -> None:
    """One of them stays pending, or gets another timestamp, or the second time another answer."""
    store = begun()
    for _ in range(2):
        assert store.commit(ANCHOR, at(0), at(5), beside=TASKS).commit_ts == at(5)
        for anchor, start in TASKS:
            record = store.check(anchor, start).record
            assert (record.status, record.commit_ts) == (COMMITTED, at(5))
    for n, (_, start) in enumerate(TASKS):
        assert store.resolve(b"k%d" % n, start=start, ts=at(5)) == 1
        assert store.get(b"k%d" % n, ts=at(5)) == (b"v", at(5))
        assert store.get(b"k%d" % n, ts=at(5) - 1) == (None, 0)


def test_o3_one_that_was_pushed_holds_all_back() -> None:
    """A reader that stepped over one of them sees it in its snapshot later."""
    store = begun()
    store.check(*TASKS[1], push=at(7))
    refused = store.commit(ANCHOR, at(0), at(5), beside=TASKS)
    assert (refused.status, refused.min_commit_ts) == (PENDING, at(7) + 1)
    for anchor, start in ((ANCHOR, at(0)), *TASKS):
        assert store.check(anchor, start).record.status == PENDING
    assert store.commit(ANCHOR, at(0), at(8), beside=TASKS).status == COMMITTED


@pytest.mark.parametrize("gone", [0, 1])
def test_o3_one_that_is_over_lets_none_be_committed(gone: int) -> None:
    """A batch is committed without the rows of a task that was given up."""
    store = begun()
    store.rollback(*TASKS[gone])
    with pytest.raises(TxnAborted):
        store.commit(ANCHOR, at(0), at(5), beside=TASKS)
    assert store.check(ANCHOR, at(0)).record.status == PENDING
    assert store.check(*TASKS[1 - gone]).record.status == PENDING
    assert store.rollback(ANCHOR, at(0)).status == ABORTED
    with pytest.raises(TxnAborted):  # not even one that nobody ever heard of
        begun().commit(ANCHOR, at(0), at(5), beside=[(b"b3", at(1))])


def test_o3_who_is_over_takes_none_with_it() -> None:
    """A commit that comes late, after its transaction was rolled back, commits those beside it."""
    store = begun()
    store.rollback(ANCHOR, at(0))
    assert store.commit(ANCHOR, at(0), at(5), beside=TASKS).status == ABORTED
    assert store.check(*TASKS[0]).record.status == PENDING


def test_o3_they_lie_in_one_partition() -> None:
    """A record of another partition is taken for one that is over."""
    store = begun()
    store.end = b"b2"
    with pytest.raises(InvalidArgument):
        store.commit(ANCHOR, at(0), at(5), beside=TASKS)
    assert store.check(ANCHOR, at(0)).record.status == PENDING


def test_o3_old_ones_are_committed_while_they_are_kept_alive() -> None:
    """The rows of a load of hours are refused though somebody cared for them; or kept for ever
    though nobody did.
    """
    store = begun()
    anchor, start = TASKS[0]
    for _ in range(8):
        store.now_ms += TXN_LIFETIME_MS_MAX // 4
        store.heartbeat(anchor, start, TXN_LIFETIME_MS_MAX)
    late = at(store.now_ms - NOW_MS)
    store.prewrite(put(b"a2", b"anchor"), start=late, anchor=b"a2")
    assert store.commit(b"a2", late, late + 9, beside=[TASKS[0]]).status == COMMITTED
    assert store.check(anchor, start).record.commit_ts == late + 9
    assert store.check(*TASKS[1]).record.status == ABORTED


def test_o3_a_heartbeat_makes_a_life_longer_never_shorter() -> None:
    """The rows of a finished task are given up as soon as those of one that works."""
    store = begun(ttl=1_000)
    anchor, start = TASKS[0]
    store.heartbeat(anchor, start, 50_000)
    store.heartbeat(anchor, start, 10)
    store.heartbeat(anchor, start)
    store.now_ms += 40_000
    assert store.check(anchor, start).record.status == PENDING
    store.now_ms += 20_000
    assert store.check(anchor, start).record.status == ABORTED
