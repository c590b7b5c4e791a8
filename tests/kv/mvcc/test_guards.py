"""What a serializable transaction read must hold until its outcome is known: records, the table of
guards, validation, and who meets them.
"""

from __future__ import annotations

import random
from functools import partial

import pytest

from kv.base.errors import Busy, Corruption, KeyLocked, TooLarge, TxnAborted, WriteConflict
from kv.base.intents import Author
from kv.base.ops import check, delete, put
from kv.base.timestamps import MAX, compose
from kv.mvcc import validate as module
from kv.mvcc.guards import Guard, GuardTable, decode_guard, encode_guard, guard_key
from kv.mvcc.validate import Reads, guard, look, validate
from kv.mvcc.write import put_plain
from tests.kv.mvcc.store import NOW_MS, Store, at

A = b"tab.a"  # the anchor of the reading transaction, in another partition


def read(*keys: bytes, ranges: list[tuple[bytes, bytes]] | None = None) -> Reads:
    return Reads(sorted(keys), sorted(ranges or []))


def hold(
    store: Store, reads: Reads, *, start: int, anchor: bytes = A, ttl: int = 1000, bound: int = 0
) -> tuple[int, int]:
    """(before_ts, 0 = none; ranges left), as a PREWRITE answers them."""
    checked = look(store, reads, start_ts=start, now_ms=store.now_ms, user=store.author.user)
    store._run(
        guard,
        reads,
        checked,
        start_ts=start,
        anchor=anchor,
        ttl_ms=ttl,
        bound_ts=bound,
        now_ms=store.now_ms,
    )
    before_ts = 0 if checked.before_ts == MAX else checked.before_ts
    return before_ts, checked.left(reads)


def validated(store: Store, reads: Reads, *, start: int, ts: int) -> None:
    validate(
        store,
        reads,
        start_ts=start,
        commit_ts=ts,
        now_ms=store.now_ms,
        user=store.author.user,
    )


def held(store: Store) -> list[tuple[bytes, bytes | None, int]]:
    return sorted(((g.start, g.end, g.start_ts) for g in store.table.by_at.values()), key=str)


# ------------------------------------------------------------------ records and the table

ONE = Guard(b"tab\x00k", None, 7, b"tab.a", 1000)
RANGE = Guard(b"tab.a", b"tab.z", 1 << 40, b"tab.b", 5000, 1 << 50, 1 << 49)
OPEN = Guard(b"tab.a", b"", 1, b"tab.b", 1)

GOLDEN = {
    "one key": (
        ONE,
        "74616200ff6b00010000000000000007",
        "95c0c4057461622e61cd03e80000",
    ),
    "range": (
        RANGE,
        "7461622e6100010000010000000000",
        "95c4057461622e7ac4057461622e62cd1388cf0004000000000000cf0002000000000000",
    ),
    "no end": (OPEN, "7461622e6100010000000000000001", "95c400c4057461622e62010000"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_serializable_guard_bytes_stay(name: str) -> None:
    """A directory of an older version would not be read any more."""
    one, key, body = GOLDEN[name]
    assert guard_key(one.start, one.start_ts).hex() == key
    record = encode_guard(one)
    assert record[:-4].hex() == body
    assert decode_guard(bytes.fromhex(key), record) == one


def test_serializable_guard_records_are_checked() -> None:
    """A damaged guard would let writes through, or stop others for ever."""
    key, record = guard_key(ONE.start, ONE.start_ts), encode_guard(ONE)
    for i in range(len(record)):
        damaged = record[:i] + bytes([record[i] ^ 1]) + record[i + 1 :]
        with pytest.raises(Corruption):
            decode_guard(key, damaged)
    with pytest.raises(Corruption):
        decode_guard(guard_key(ONE.start, 8), record)


def test_serializable_ranges_may_be_read_later_than_the_beginning() -> None:
    """A parent that goes was refused because of a child that it had seen; or one that came behind
    its look was not seen.
    """
    store = Store()
    put_at = at(10)
    store.write(put(b"tab.c", b"child"), ts=put_at)
    reads = read(ranges=[(b"tab.b", b"tab.d")])
    said = {"start_ts": at(5), "now_ms": store.now_ms, "user": store.author.user}
    with pytest.raises(WriteConflict):
        validate(store, reads, commit_ts=at(20), **said)
    with pytest.raises(WriteConflict):
        validate(store, reads, commit_ts=at(20), since=at(9), **said)
    validate(store, reads, commit_ts=at(20), since=put_at, **said)
    with pytest.raises(WriteConflict):
        look(store, reads, since=at(9), **said)
    assert look(store, reads, since=put_at, **said).before_ts == MAX
    with pytest.raises(WriteConflict):  # keys were read, or locked, at the beginning
        validate(store, read(b"tab.c"), commit_ts=at(20), since=put_at, **said)


def test_serializable_guard_keys_lie_in_their_range() -> None:
    """Guards would be left behind, or be a neighbour's, when a range is moved or dropped."""
    rng = random.Random(1)
    starts = [bytes(rng.choices(b"\x00\x01ab\xff", k=rng.randint(1, 5))) for _ in range(500)]
    ats = sorted((start, rng.getrandbits(62)) for start in starts)
    keys = [guard_key(*one) for one in ats]
    assert keys == sorted(keys)


@pytest.mark.parametrize("seed", range(5))
def test_serializable_table_finds_what_a_plain_search_finds(seed: int) -> None:
    """A guard that is overlooked is a lost read; one that is not there stops writers."""
    rng = random.Random(seed)
    table, plain = GuardTable(), dict[tuple[bytes, int], Guard]()

    def key() -> bytes:
        return bytes(rng.choice(b"abc") for _ in range(rng.randint(1, 3)))

    def meets(k: bytes, ts: int) -> bool:
        return any(
            g.start_ts != ts and (g.start == k if g.end is None else g.start <= k < g.past)
            for g in plain.values()
        )

    for _ in range(1500):
        start, start_ts = key(), rng.randint(1, 4)
        end = rng.choice([None, None, b"", *(e for e in [key()] if e > start)])
        made = None if rng.random() < 0.4 else Guard(start, end, start_ts, A, 1)
        table.set((start, start_ts), made)
        plain.pop((start, start_ts), None)
        if made is not None:
            plain[start, start_ts] = made
        probe, ts = key(), rng.randint(0, 4)
        found = table.meets(probe, ts)
        assert (found is not None) == meets(probe, ts)
        assert found is None or found.start_ts != ts
        assert table.holds(probe, ts) == any(
            g.start <= probe < g.past for g in plain.values() if g.start_ts == ts
        )
        keys = sorted({key() for _ in range(4)})
        any_ = table.meets_any(keys, ts)
        wanted = next((k for k in keys if meets(k, ts)), None)
        assert (None if any_ is None else any_[0]) == wanted
        assert table.by_at == plain
        assert table.oldest() == min((ts for _, ts in plain), default=None)
    assert table.copy().by_at == plain


def test_serializable_table_is_looked_at_in_turn() -> None:
    """The sweeper would look at the same guards for ever."""
    table = GuardTable()
    for i in range(5):
        table.set((b"k%d" % i, 1), Guard(b"k%d" % i, None, 1, A, 1))
    seen = [g.start for _ in range(3) for g in table.turn(2)]
    assert seen == [b"k0", b"k1", b"k2", b"k3", b"k4", b"k0"]


# ------------------------------------------------------------------ validation

T = at(10)  # the start of the reading transaction


def stored() -> Store:
    """Four keys that were there when the transaction began, one of them deleted."""
    store = Store()
    for i, key in enumerate((b"k1", b"k3", b"k5", b"k7")):
        store.write(put(key, b"old"), ts=at(i))
    store.write(delete(b"k7"), ts=at(5))
    return store


EVERYTHING = read(b"k1", b"k3", b"k7", b"none", ranges=[(b"k4", b"k9")])
CHANGES = {
    "a key that was read": put(b"k3", b"new"),
    "a key that was read and deleted": delete(b"k3"),
    "a key that was not there": put(b"none", b"new"),
    "a tombstone that was read": put(b"k7", b"new"),
    "a row of the range": put(b"k5", b"new"),
    "a row of the range, deleted": delete(b"k5"),
    "a new row of the range": put(b"k8", b"new"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("way", ["version", "guard", "intent"])
def test_serializable_reads_that_changed_are_found(name: str, way: str) -> None:
    """The transaction would commit on what is not true any more."""
    op = CHANGES[name]
    store = stored()
    if way == "intent":
        store.prewrite(op, start=at(11), anchor=b"other", fresh=at(12))
        with pytest.raises(KeyLocked) as met:
            hold(store, EVERYTHING, start=T)
        assert (met.value.details["txn"], met.value.details["keys"]) == (at(11), [op.key])
        with pytest.raises(KeyLocked):
            validated(store, EVERYTHING, start=T, ts=at(20))
        store.resolve(op.key, start=at(11), ts=0)
        validated(store, EVERYTHING, start=T, ts=at(20))
        return
    store.write(op, ts=at(11))
    look = hold if way == "guard" else partial(validated, ts=at(20))
    with pytest.raises(WriteConflict) as conflict:
        look(store, EVERYTHING, start=T)
    assert conflict.value.details["key"] == op.key
    assert conflict.value.details["conflict_ts"] == at(11)
    assert held(store) == []


@pytest.mark.parametrize(
    "op", [put(b"k2", b"x"), put(b"k9", b"x"), delete(b"k4"), put(b"j", b"x"), put(b"k10", b"x")]
)
def test_serializable_other_keys_do_not_matter(op: object) -> None:
    """Transactions would be restarted for what they never read."""
    store = stored()
    store.write(op, ts=at(11))  # type: ignore[arg-type]
    validated(store, EVERYTHING, start=T, ts=at(20))
    assert hold(store, EVERYTHING, start=T) == (0, 0)
    store.prewrite(put(b"k2", b"y"), start=at(12), anchor=b"k2", fresh=at(13))
    assert hold(store, EVERYTHING, start=T) == (0, 0)


@pytest.mark.parametrize("reads", [EVERYTHING, read(b"k5")])
def test_serializable_an_intent_of_another_user_is_not_its_own(reads: Reads) -> None:
    """By its start_ts somebody's intent was taken for the transaction's own: it needed no guard,
    and became a version before the commit.
    """
    store = stored()
    store.author = Author("bob")
    store.prewrite(put(b"k5", b"forged"), start=T, anchor=b"k5", fresh=at(12))
    store.author = Author("ann")
    with pytest.raises(TxnAborted):
        hold(store, reads, start=T)
    with pytest.raises(TxnAborted):
        validated(store, reads, start=T, ts=at(20))
    assert held(store) == []


def test_serializable_own_intents_and_checks_of_others_are_no_change() -> None:
    """A transaction would wait for itself, or for somebody who writes nothing."""
    store = stored()
    store.prewrite(put(b"k5", b"mine"), start=T, anchor=b"k5", fresh=at(12))
    store.prewrite(check(b"k3", at(1)), start=at(11), anchor=b"other", fresh=at(12))
    assert hold(store, read(b"k1", b"k3", b"k5", ranges=[(b"k4", b"k9")]), start=T) == (0, 0)
    assert held(store) == [(b"k1", None, T), (b"k3", None, T), (b"k4", b"k9", T)], (
        "what it writes is protected by its intent"
    )


def test_serializable_a_record_that_expires_bounds_the_commit() -> None:
    """Expiry is a delete that nobody sends: a transaction that saw the record must come first."""
    store = Store()
    store.write(put(b"k1", b"v", ttl_ms=50), ts=at(0))
    store.write(put(b"k2", b"v", ttl_ms=8), ts=at(1))  # expired when the transaction began
    store.write(put(b"k3", b"v", ttl_ms=40), ts=at(2))
    for reads, before in (
        (read(b"k1", b"k2"), at(50)),
        (read(ranges=[(b"k", b"k3")]), at(50)),
        (read(b"k1", ranges=[(b"k2", b"k9")]), at(42)),
        (read(b"k2"), 0),
    ):
        fresh = Store()
        fresh.rows, fresh.order = store.rows, store.order
        assert hold(fresh, reads, start=T) == (before, 0)
        assert hold(fresh, reads, start=T) == (before, 0), "a lost answer is told again"
        for start in list(fresh.table.by_at):
            fresh.resolve(start[0], start=T, ts=0)
        if before:
            validated(fresh, reads, start=T, ts=before - 1)
            with pytest.raises(WriteConflict):
                validated(fresh, reads, start=T, ts=before)
        else:
            validated(fresh, reads, start=T, ts=compose(NOW_MS + 10**6))


def test_serializable_a_read_that_expires_is_guarded_though_it_is_written() -> None:
    """The bound would be known to nobody but the coordinator, who may die."""
    store = Store()
    store.write(put(b"k1", b"v", ttl_ms=50), ts=at(0))
    store.prewrite(put(b"k1", b"new"), start=T, anchor=b"k1", fresh=at(12))
    assert hold(store, read(b"k1"), start=T) == (at(50), 0)
    assert [g.before_ts for g in store.table.by_at.values()] == [at(50)]
    store.resolve(b"k1", start=T, ts=0)
    assert held(store) == [], "an intent and a guard may begin at one key"


def test_serializable_long_ranges_are_guarded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request would hold the loop for as long as the range is, or guard half of it."""
    store = Store()
    for i in range(25):
        store.write(put(b"k%02d" % i, b"v"), ts=at(0, i))
    store.write(put(b"k24", b"v", ttl_ms=30), ts=at(1))
    monkeypatch.setattr(module, "GUARD_ROWS", 10)
    reads = read(b"a", ranges=[(b"k", b"k05"), (b"k05", b"k99")])
    with pytest.raises(TooLarge) as refused:
        validated(store, reads, start=T, ts=at(20))
    assert refused.value.details["limit"] == 10
    assert hold(store, reads, start=T) == (0, 1)
    assert (b"k05", b"k04\x00", T) not in held(store)
    assert store.table.by_at[b"k05", T].end == b"k09\x00"
    store.write(put(b"k20", b"in between"), ts=at(11))
    more = Store()
    more.rows, more.order, more.table = store.rows, store.order, store.table
    assert hold(store, read(ranges=list(reads.ranges)), start=T)[1] == 1
    with pytest.raises(WriteConflict):  # not looked at before, and changed meanwhile
        hold(store, read(ranges=list(reads.ranges)), start=T)


def test_serializable_steps_reach_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long range could never be read by a serializable transaction; or its bound got lost."""
    store = Store()
    for i in range(25):
        store.write(put(b"k%02d" % i, b"v"), ts=at(0, i))
    store.write(put(b"k03", b"v", ttl_ms=30), ts=at(1))
    monkeypatch.setattr(module, "GUARD_ROWS", 10)
    reads = read(ranges=[(b"k", b"")])
    found = [hold(store, reads, start=T) for _ in range(4)]
    assert found == [(at(31), 1), (at(31), 1), (at(31), 0), (at(31), 0)]
    assert held(store) == [(b"k", b"", T)]


def test_serializable_bytes_bound_a_step_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of megabytes would be loaded by the thousand."""
    store = Store()
    for i in range(6):
        store.write(put(b"k%d" % i, bytes(1000)), ts=at(0, i))
    monkeypatch.setattr(module, "GUARD_BYTES", 2500)
    reads = read(ranges=[(b"k", b"l")])
    left = [hold(store, reads, start=T)[1] for _ in range(3)]
    assert left == [1, 1, 0] or left == [1, 0, 0]
    assert held(store) == [(b"k", b"l", T)]


# ------------------------------------------------------------------ who meets guards


def guarded() -> Store:
    store = stored()
    hold(store, EVERYTHING, start=T)
    return store


@pytest.mark.parametrize("name", CHANGES)
def test_serializable_writes_of_others_meet_a_guard(name: str) -> None:
    """A write between the check and the commit would undo what the check said."""
    op = CHANGES[name]
    store = guarded()

    def refused(met: pytest.ExceptionInfo[KeyLocked]) -> None:
        d = met.value.details
        assert (d["key"], d["txn"], d["anchor"], d["kind"]) == (op.key, T, A, "guard")
        assert (d["keys"][0], T) in store.table.by_at, "what a RESOLVE is to name"
        assert d["ttl_ms"] == 1000

    with pytest.raises(KeyLocked) as met:
        store.write(op, ts=at(20))
    refused(met)
    with pytest.raises(KeyLocked) as met:
        store.write(put(b"zz", b"1"), op, ts=at(20), start=at(15))
    refused(met)
    with pytest.raises(KeyLocked) as met:
        store.prewrite(put(b"zz", b"1"), op, start=at(15), anchor=b"zz", fresh=at(20))
    refused(met)
    with pytest.raises(KeyLocked) as met:
        store.prewrite_rows({op.key: op.value}, start=at(15), anchor=b"zz", fresh=at(20))
    refused(met)
    with pytest.raises(KeyLocked) as met:
        put_plain(store, op.key, b"new", None, at(20), NOW_MS)
    refused(met)


def test_serializable_guards_stop_nobody_else() -> None:
    """Readers would wait for readers; a transaction for itself."""
    store = guarded()
    for read_ts in (0, at(11), at(30)):
        assert store.get(b"k3", read_ts) == (b"old", at(1))
        assert len(store.page(b"k", b"l", ts=read_ts, limit=9).items) == 3
    store.write(check(b"k3", at(1)), put(b"k2", b"new"), ts=at(20), start=at(15))
    store.prewrite(check(b"k5", at(2)), start=at(16), anchor=b"k5", fresh=at(21))
    store.prewrite(put(b"k3", b"mine"), delete(b"k8"), start=T, anchor=b"k3", fresh=at(22))
    assert hold(store, read(b"k1", ranges=[(b"k10", b"k3")]), start=at(21)) == (0, 0), "shared"


def test_serializable_guards_end_with_their_transaction() -> None:
    """Writers would wait for a transaction that has its outcome."""
    store = guarded()
    hold(store, read(b"k1"), start=at(11))
    keys = sorted({start for start, ts in store.table.by_at if ts == T})
    assert store.resolve(*keys, start=T, ts=at(30)) == len(keys)
    assert held(store) == [(b"k1", None, at(11))]
    store.write(put(b"k3", b"new"), ts=at(40))
    with pytest.raises(KeyLocked):
        store.write(put(b"k1", b"new"), ts=at(41))
    store.resolve(b"k1", start=at(11), ts=0)
    store.write(put(b"k1", b"new"), ts=at(42))
    assert store.rows["guard"] == {}


def test_serializable_too_many_guards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of the node would have no bound."""
    monkeypatch.setattr(module, "GUARDS_HELD_MAX", 10)
    store = Store()
    hold(store, read(*(b"k%d" % i for i in range(8))), start=T)
    with pytest.raises(Busy) as refused:
        hold(store, read(*(b"m%d" % i for i in range(3))), start=at(11))
    assert refused.value.details["actual"] == 11
    assert len(store.table.by_at) == 8


def test_serializable_a_delete_of_nothing_is_no_change() -> None:
    """It writes no version, so it must not restart anybody."""
    store = stored()
    store.write(delete(b"none"), ts=at(11))
    validated(store, EVERYTHING, start=T, ts=at(20))


def test_serializable_tombstones_below_the_safepoint_are_not_needed() -> None:
    """A collected tombstone must not make a changed read look unchanged: the transaction is older
    than the safepoint then, and is refused.
    """
    store = stored()
    store.write(delete(b"k3"), ts=at(11))
    store.collect(at(12))
    assert store.cur(b"k3") is None
    validated(store, read(b"k3"), start=T, ts=at(20))  # nothing is left to see …
    with pytest.raises(TxnAborted):  # … and therefore nobody gets that far
        store.write(put(b"k9", b"x"), ts=at(20), start=T)
    with pytest.raises(TxnAborted):
        store.prewrite(start=T, anchor=A, fresh=at(20))


# ------------------------------------------------------------------ parallel commits


def parallel(store: Store, *, fresh: int) -> None:
    """One part of a parallel commit: an intent, guards, and the record."""
    store.stage(put(b"k2", b"x"), start=T, anchor=b"k2", fresh=fresh, parts=((b"k2", b"k1"),))
    hold(store, read(b"k1", ranges=[(b"k4", b"k9")]), start=T, anchor=b"k2", bound=fresh)


def test_d13_guards_are_part_of_a_parallel_commit() -> None:
    """It would count as committed though a read was never checked, or at a timestamp that its
    coordinator was not told.
    """
    store = stored()
    parallel(store, fresh=at(12))
    other = Store()
    hold(other, read(b"z1"), start=T, anchor=b"k2", bound=at(14))
    assert store.recover(b"k2", b"k1", b"k4", start=T, anchor=b"k2") == (True, at(12))
    assert other.recover(b"z1", start=T, anchor=b"k2") == (True, at(14))
    assert other.recover(b"z1", b"z2", start=T, anchor=b"k2", fence=True) == (False, 0)
    with pytest.raises(TxnAborted):  # too late: somebody has decided without it
        hold(other, read(b"z2"), start=T, anchor=b"k2", bound=at(15))
    assert held(other) == [(b"z1", None, T)]


def test_d13_guards_sent_again_keep_their_bound() -> None:
    """The coordinator would commit above the timestamp that everybody else finds."""
    store = stored()
    reads = read(b"k1", ranges=[(b"k4", b"k9")])
    for bound in (at(12), at(20)):
        checked = look(store, reads, start_ts=T, now_ms=store.now_ms)
        done = store._run(
            guard,
            reads,
            checked,
            start_ts=T,
            anchor=A,
            ttl_ms=1000,
            bound_ts=bound,
            now_ms=store.now_ms,
        )
        assert done == (at(12), True)
    more = read(b"k1", b"k3")
    checked = look(store, more, start_ts=T, now_ms=store.now_ms)
    done = store._run(
        guard,
        more,
        checked,
        start_ts=T,
        anchor=A,
        ttl_ms=1000,
        bound_ts=at(21),
        now_ms=store.now_ms,
    )
    assert done == (at(21), True)
    assert store.recover(b"k1", b"k4", b"k3", start=T, anchor=A) == (True, at(21))


def test_d13_guards_without_a_bound_commit_nothing() -> None:
    """A transaction of two phases would be found committed before its flip."""
    store = stored()
    hold(store, read(b"k1"), start=T)
    assert store.recover(b"k1", start=T, anchor=A) == (False, 0)
    checked = look(store, read(b"k1"), start_ts=T, now_ms=store.now_ms)
    done = store._run(
        guard,
        read(b"k1"),
        checked,
        start_ts=T,
        anchor=A,
        ttl_ms=1000,
        bound_ts=at(20),
        now_ms=store.now_ms,
    )
    assert not done.exact


@pytest.mark.parametrize("count", [5, 100])
def test_serializable_many_keys_are_all_checked(count: int) -> None:
    """Many keys are read another way than few."""
    store = Store()
    keys = [b"k%03d" % i for i in range(count)]
    for i, key in enumerate(keys[::2]):
        store.write(put(key, b"v"), ts=at(0, i))
    validated(store, read(*keys), start=T, ts=at(20))
    for i, key in enumerate(keys):
        store.write(put(key, b"new"), ts=at(11, i))
        with pytest.raises(WriteConflict) as conflict:
            validated(store, read(*keys[i:]), start=T, ts=at(20))
        assert conflict.value.details["key"] == key
