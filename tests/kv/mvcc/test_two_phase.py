"""Prewrite, commit, rollback, check, resolve, heartbeat with controlled timestamps."""

from __future__ import annotations

import pytest

from kv.base.errors import ConditionFailed, KeyLocked, TxnAborted, WriteConflict
from kv.base.intents import NOBODY, Author
from kv.base.limits import PREWRITE_BYTES_MAX, TXN_LIFETIME_MS_MAX, TXN_TTL_MS_MAX
from kv.base.methods import ABORTED, BLIND, COMMITTED, PENDING
from kv.base.ops import check, delete, put
from kv.mvcc.find import find
from tests.kv.mvcc.store import NOW_MS, Store, at


def test_d3_no_reader_returns_intent_data() -> None:
    """A running transaction's data would be read before it commits."""
    store = Store()
    store.write(put(b"k", b"old"), ts=at(1))
    store.prewrite(put(b"k", b"new"), put(b"n", b"new"), start=at(5), anchor=b"k")
    assert store.get(b"k", at(4)) == (b"old", at(1))
    assert store.get(b"n", at(4)) == (None, 0)
    for read in (lambda: store.get(b"k"), lambda: store.page(), lambda: store.get(b"n", at(6))):
        with pytest.raises(KeyLocked):
            read()
    assert store.get(b"k", at(6), ignore=[at(5)]) == (b"old", at(1))
    assert store.page(ts=at(6), ignore=[at(5)]).items == [(b"k", b"old", at(1))]


def test_d9_only_intents_from_before_the_snapshot_stop_a_reader() -> None:
    """A reader would wait for a transaction that must commit after its snapshot, or miss one that
    need not.
    """
    store = Store()
    store.prewrite(put(b"k", b"v"), start=at(5), anchor=b"k")
    assert store.get(b"k", at(5) - 1) == (None, 0)
    with pytest.raises(KeyLocked) as caught:
        store.get(b"k", at(5))
    assert caught.value.details["txn"] == at(5)


def test_d9_a_check_stops_writers_but_no_reader() -> None:
    """Readers would wait for a transaction that writes nothing there."""
    store = Store()
    store.prewrite(check(b"k", 0), put(b"p", b"v"), start=at(5), anchor=b"p")
    assert store.get(b"k") == (None, 0)
    with pytest.raises(KeyLocked):
        store.write(put(b"k", b"v"), ts=at(6))
    store.commit(b"p", at(5), at(7))
    assert store.resolve(b"k", b"p", start=at(5), ts=at(7)) == 2
    assert store.get(b"k") == (None, 0)


def test_d5_commit_timestamp_is_in_every_key() -> None:
    """Keys of one transaction would differ in version: a reader between them would see half."""
    store = Store()
    store.write(put(b"a", b"0"), put(b"d", b"0"), ts=at(1))
    store.prewrite(put(b"a", b"1"), start=at(2), anchor=b"a")
    store.prewrite(put(b"b", b"2", ttl_ms=50), delete(b"d"), start=at(2), anchor=b"a")
    assert store.commit(b"a", at(2), at(9)).status == COMMITTED
    assert store.resolve(b"a", b"b", b"d", b"none", start=at(2), ts=at(9)) == 3
    assert store.scan_all(ts=at(9)) == [(b"a", b"1", at(9)), (b"b", b"2", at(9))]
    assert store.scan_all(ts=at(8)) == [(b"a", b"0", at(1)), (b"d", b"0", at(1))]
    assert store.get(b"b", at(58)) == (b"2", at(9))
    assert store.get(b"b", at(59)) == (None, 0)
    assert store.resolve(b"a", b"b", b"d", start=at(2), ts=at(9)) == 0


@pytest.mark.parametrize(
    ("ops", "start", "flags", "error"),
    [
        ((put(b"k", b"x"),), 4, 0, WriteConflict),
        ((put(b"k", b"x"),), 4, BLIND, None),
        ((put(b"k", b"x"),), 5, 0, None),
        ((put(b"k", b"x", cond=0),), 6, 0, ConditionFailed),
        ((put(b"new", b"x", cond=0), put(b"k", b"x", cond=at(5))), 6, 0, None),
        ((put(b"new", b"x", cond=0), check(b"k", at(4))), 6, 0, ConditionFailed),
        ((put(b"locked", b"x"),), 6, 0, KeyLocked),
        ((put(b"expired", b"x", cond=0),), 20, 0, None),
    ],
)
def test_prewrite_rules(
    ops: tuple[object, ...], start: int, flags: int, error: type[Exception] | None
) -> None:
    """An intent would be written against the rules of conflict, condition or lock."""
    store = Store()
    store.write(put(b"k", b"1"), ts=at(5))
    store.write(put(b"expired", b"1", ttl_ms=10), ts=at(5))
    store.prewrite(put(b"locked", b"1"), start=at(3), anchor=b"locked")
    if error is None:
        store.prewrite(*ops, start=at(start), anchor=b"other", flags=flags)  # type: ignore[arg-type]
        return
    with pytest.raises(error) as caught:
        store.prewrite(*ops, start=at(start), anchor=b"other", flags=flags)  # type: ignore[arg-type]
    if error is ConditionFailed:
        assert caught.value.details["op"] == len(ops) - 1  # type: ignore[attr-defined]
        assert caught.value.details["key"] == b"k"  # type: ignore[attr-defined]


def test_prewrite_again_changes_nothing() -> None:
    """A repeated request would move the bound back, or fail on its own intents."""
    store = Store()
    store.prewrite(put(b"k", b"1"), start=at(5), anchor=b"k")
    store.check(b"k", at(5), push=at(8))
    before = store.snapshot()
    assert store.prewrite(put(b"k", b"1"), start=at(5), anchor=b"k", fresh=at(6)) == at(8) + 1
    assert store.snapshot() == before


def test_late_prewrite_after_the_end() -> None:
    """A duplicate that arrives after its transaction would write a version twice, or bring a
    deleted one back.
    """
    store = Store()
    store.prewrite(put(b"a", b"1"), start=at(1), anchor=b"a")
    store.prewrite(put(b"b", b"1"), start=at(1), anchor=b"a", flags=BLIND)
    store.commit(b"a", at(1), at(2))
    store.resolve(b"a", b"b", start=at(1), ts=at(2))
    store.write(delete(b"b"), ts=at(3))
    assert store.prewrite(put(b"a", b"1"), start=at(1), anchor=b"a") == at(2)
    elsewhere = Store(start=b"b")  # the record lies in another partition
    elsewhere.rows, elsewhere.order = store.rows, store.order
    elsewhere.prewrite(put(b"b", b"1"), start=at(1), anchor=b"a", flags=BLIND)
    assert store.resolve(b"b", start=at(1), ts=at(2)) == 1
    assert store.get(b"b") == (None, 0)
    assert store.get(b"b", at(2)) == (b"1", at(2))


def test_d10_reader_pushes_the_commit_beyond_its_snapshot() -> None:
    """A transaction could commit below a snapshot that was read: it would change."""
    store = Store()
    store.prewrite(put(b"k", b"new"), start=at(5), anchor=b"k")
    found = store.check(b"k", at(5), push=at(10))
    assert (found.record.status, found.record.min_commit_ts) == (PENDING, at(10) + 1)
    assert store.get(b"k", at(10), ignore=[at(5)]) == (None, 0)
    refused = store.commit(b"k", at(5), at(9))
    assert (refused.status, refused.min_commit_ts) == (PENDING, at(10) + 1)
    assert store.commit(b"k", at(5), at(10)).status == PENDING
    assert store.commit(b"k", at(5), at(10) + 1).status == COMMITTED
    store.resolve(b"k", start=at(5), ts=at(10) + 1)
    assert store.get(b"k", at(10)) == (None, 0)


@pytest.mark.parametrize("prewritten", [True, False])
def test_whoever_asks_does_not_say_how_long_a_transaction_lives(prewritten: bool) -> None:
    """A reader that called a living transaction abandoned would have it aborted; one that gave it
    years would keep its intents in everybody's way.
    """
    store = Store()
    start = at(0)
    if prewritten:
        store.prewrite(put(b"k", b"v"), start=start, anchor=b"k")  # for 1,000 ms
    store.now_ms += 900
    for said_ms in (0, 1):
        assert store.check(b"k", start, ttl=said_ms).record.status == PENDING
    store.check(b"k", start, push=at(10), ttl=1 << 32)
    store.now_ms += 200 if prewritten else TXN_TTL_MS_MAX
    assert store.check(b"k", start).record.status == ABORTED


def test_d10_push_before_the_anchor_is_prewritten() -> None:
    """A push that comes before the record exists would be forgotten when the record is made."""
    store = Store()
    assert store.check(b"k", at(5), push=at(10), ttl=1000).record.status == PENDING
    assert store.prewrite(put(b"k", b"v"), start=at(5), anchor=b"k") == at(10) + 1
    assert store.commit(b"k", at(5), at(8)).status == PENDING
    assert store.commit(b"k", at(5), at(11)).status == COMMITTED


def test_a_push_never_lowers_the_bound() -> None:
    """A second, older reader would undo the first one's push."""
    store = Store()
    store.prewrite(put(b"k", b"new"), start=at(5), anchor=b"k")
    store.check(b"k", at(5), push=at(10))
    assert store.check(b"k", at(5), push=at(7)).record.min_commit_ts == at(10) + 1


def test_d6_expired_transaction_is_rolled_back_by_who_meets_it() -> None:
    """An abandoned transaction would block its keys for ever."""
    store = Store()
    store.prewrite(put(b"k", b"v"), start=at(0), anchor=b"k", ttl=500)
    store.now_ms = NOW_MS + 500
    assert store.check(b"k", at(0)).record.status == PENDING
    store.now_ms = NOW_MS + 501
    assert store.check(b"k", at(0)).record.status == ABORTED
    with pytest.raises(TxnAborted):
        store.prewrite(put(b"k", b"v"), start=at(0), anchor=b"k")
    assert store.commit(b"k", at(0), at(9)).status == ABORTED
    assert store.resolve(b"k", start=at(0), ts=0) == 1
    assert store.get(b"k") == (None, 0)


def test_d6_a_heartbeat_keeps_it_alive() -> None:
    """A transaction that works for longer than its time to live would be killed under its owner."""
    store = Store()
    store.prewrite(put(b"k", b"v"), start=at(0), anchor=b"k", ttl=500)
    store.now_ms = NOW_MS + 400
    assert store.heartbeat(b"k", at(0)) == PENDING
    store.now_ms = NOW_MS + 900
    assert store.check(b"k", at(0)).record.status == PENDING
    store.now_ms = NOW_MS + 901
    assert store.check(b"k", at(0)).record.status == ABORTED
    assert store.heartbeat(b"k", at(0)) == ABORTED


def test_a_record_of_somebody_else_is_not_kept_for_him() -> None:
    """Whoever had used the id of a task's transaction first would own the record that decides it:
    what the task lays is not its own, and goes.
    """
    store = Store()
    store.author = Author("bob")
    store.heartbeat(b"k", at(0), 500)
    store.author = NOBODY
    assert store.heartbeat(b"k", at(0), 500) == PENDING, "a node keeps anybody's"
    assert store.heartbeat(b"k", at(0), 500, user="bob") == PENDING
    with pytest.raises(TxnAborted):
        store.heartbeat(b"k", at(0), 500, user="ann")


def test_a_forged_intent_at_the_anchor_commits_nothing() -> None:
    """Nothing of the transaction was written where its record lies."""
    store = Store()
    store.author = Author("ann")
    store.heartbeat(b"k", at(0), 500)
    store.author = Author("bob")
    store.prewrite(put(b"k", b"v"), start=at(0), anchor=b"elsewhere")
    store.author = Author("ann")
    with pytest.raises(TxnAborted):
        store.commit(b"k", at(0), at(9))


def test_d6_a_clock_set_back_does_not_protect_the_abandoned() -> None:
    """After the clock jumped back an hour, an abandoned transaction would block for that hour."""
    store = Store()
    store.now_ms = NOW_MS + 3_600_000
    store.prewrite(put(b"k", b"v"), start=at(3_600_000), anchor=b"k", ttl=500)
    store.now_ms = NOW_MS
    assert store.check(b"k", at(3_600_000)).record.status == PENDING, "perhaps it lives"
    store.now_ms = NOW_MS + 500
    assert store.check(b"k", at(3_600_000)).record.status == PENDING
    store.now_ms = NOW_MS + 501
    assert store.check(b"k", at(3_600_000)).record.status == ABORTED


def test_e6_a_clock_set_back_kills_no_living_transaction() -> None:
    """The oracle goes on ahead of a clock that was set back: whoever met a transaction whose anchor
    is still under way would roll it back, for as long as the clock is behind.
    """
    store, anchors = Store(start=b"m"), Store(end=b"m")
    start = at(3_600_000)
    store.prewrite(put(b"z", b"v"), start=start, anchor=b"a", ttl=500)
    anchors.now_ms = NOW_MS + 100
    assert anchors.check(b"a", start, push=start + 5, ttl=500).record.status == PENDING
    anchors.prewrite(put(b"a", b"v"), start=start, anchor=b"a", ttl=500)
    assert anchors.commit(b"a", start, start + 6).status == COMMITTED


def test_d11_large_intents_are_resolved_a_few_at_once() -> None:
    """A reader that names all large intents it met asked for more than a log entry holds: nothing
    was resolved, so nobody could ever read them together.
    """
    store, keys = Store(), [b"k%02d" % i for i in range(12)]
    value = bytes(PREWRITE_BYTES_MAX // 4)
    for key in keys:
        store.prewrite(put(key, value), start=at(0), anchor=keys[0])
    store.commit(keys[0], at(0), at(9))
    assert store.resolve_some(*keys, start=at(0), ts=at(9)) == (4, 8)
    assert store.resolve_some(*keys, start=at(0), ts=at(9)) == (4, 4)
    assert store.resolve_some(*keys, start=at(0), ts=at(9)) == (4, 0)
    assert store.get(keys[11], ts=at(9)) == (value, at(9))
    for key in keys:  # small values, but what they replace is read and written again
        store.prewrite(put(key, b"s"), start=at(10), anchor=keys[0])
    store.commit(keys[0], at(10), at(19))
    assert store.resolve_some(*keys, start=at(10), ts=at(19)) == (4, 8)


def test_d12_never_heard_of_is_fenced_off_after_its_time() -> None:
    """A coordinator that died between its prewrites would leave intents that nobody may remove."""
    store = Store(start=b"m")  # the participant's partition
    anchors = Store(end=b"m")
    store.prewrite(put(b"z", b"v"), start=at(0), anchor=b"a", ttl=1_500)
    with pytest.raises(KeyLocked) as caught:
        store.get(b"z")
    anchors.now_ms = NOW_MS + 1_500
    ttl = caught.value.details["ttl_ms"]
    assert anchors.check(b"a", at(0), ttl=ttl).record.status == PENDING
    assert not anchors.rows["txn"]
    anchors.now_ms = NOW_MS + 1_501
    assert anchors.check(b"a", at(0), ttl=ttl).record.status == ABORTED
    with pytest.raises(TxnAborted):  # the anchor's own prewrite arrives at last
        anchors.prewrite(put(b"a", b"v"), start=at(0), anchor=b"a")
    assert store.resolve(b"z", start=at(0), ts=0) == 1
    assert store.get(b"z") == (None, 0)
    assert not store.rows["lock"]


def test_d12_the_intents_of_a_long_session_count_from_its_prewrite() -> None:
    """A session that thought for a minute before it wrote would be fenced off at once."""
    store = Store()
    store.now_ms = NOW_MS + 60_000
    store.prewrite(put(b"z", b"v"), start=at(0), anchor=b"a", ttl=500)
    with pytest.raises(KeyLocked) as caught:
        store.get(b"z")
    assert caught.value.details["ttl_ms"] == 60_500


def test_d11_committed_intent_is_finished_by_who_meets_it() -> None:
    """Data of a transaction whose coordinator died after the flip would stay invisible."""
    store = Store()
    store.prewrite(put(b"a", b"1"), put(b"b", b"2"), start=at(1), anchor=b"a")
    store.commit(b"a", at(1), at(2))
    store.now_ms += 10_000_000  # long after every time to live
    with pytest.raises(KeyLocked) as caught:
        store.get(b"b")
    found = store.check(caught.value.details["anchor"], caught.value.details["txn"])
    assert (found.record.status, found.record.commit_ts) == (COMMITTED, at(2))
    store.resolve(b"b", start=at(1), ts=at(2))
    assert store.get(b"b") == (b"2", at(2))


def test_outcomes_are_final() -> None:
    """A decided transaction would change its mind."""
    store = Store()
    store.prewrite(put(b"a", b"1"), start=at(1), anchor=b"a")
    store.commit(b"a", at(1), at(5))
    before = store.snapshot()
    assert store.commit(b"a", at(1), at(9)).commit_ts == at(5)
    assert store.rollback(b"a", at(1)).status == COMMITTED
    assert store.check(b"a", at(1), push=at(99)).record.commit_ts == at(5)
    assert store.heartbeat(b"a", at(1)) == COMMITTED
    assert store.snapshot() == before


def test_commit_needs_a_prewritten_anchor() -> None:
    """A transaction without its intents would be declared committed."""
    store = Store()
    with pytest.raises(TxnAborted):
        store.commit(b"a", at(1), at(2))
    store.check(b"a", at(1), push=at(3))  # makes a record, but no intent
    with pytest.raises(TxnAborted):
        store.commit(b"a", at(1), at(5))


def test_older_than_a_lifetime_is_refused() -> None:
    """A transaction would commit when its record may be forgotten already."""
    store = Store()
    store.prewrite(put(b"a", b"1"), start=at(0), anchor=b"a")
    store.now_ms = NOW_MS + TXN_LIFETIME_MS_MAX + 1
    with pytest.raises(TxnAborted):
        store.commit(b"a", at(0), at(TXN_LIFETIME_MS_MAX + 2))
    with pytest.raises(TxnAborted):
        store.heartbeat(b"a", at(0))
    with pytest.raises(TxnAborted):
        store.prewrite(put(b"b", b"1"), start=at(0), anchor=b"a")
    assert store.check(b"a", at(0)).record.status == ABORTED


def test_find_from_the_id_alone() -> None:
    """`status(id)` would have no answer without knowing the keys."""
    store = Store()
    assert find(store, at(1)) is None
    store.prewrite(put(b"a\x00b", b"1"), start=at(1), anchor=b"a\x00b")
    store.write(put(b"w", b"1"), start=at(2), ts=at(3))
    store.rollback(b"r", at(4))
    assert [find(store, at(i)) for i in (1, 2, 4, 3)] == [b"a\x00b", b"w", b"r", None]


def test_one_refusal_names_all_keys_of_the_transaction() -> None:
    """A reader of many keys would need a round trip per intent of one transaction."""
    store = Store()
    store.prewrite(put(b"a", b""), put(b"b", b""), put(b"c", b""), start=at(1), anchor=b"a")
    store.prewrite(put(b"x", b""), start=at(2), anchor=b"x")
    with pytest.raises(KeyLocked) as caught:
        store.page()
    assert caught.value.details["keys"] == [b"a", b"b", b"c"]
    with pytest.raises(KeyLocked) as caught:
        store.multi_get(b"x", b"b", b"a")
    assert caught.value.details["keys"] == [b"x"]
