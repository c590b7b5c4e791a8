"""Chunk intents: one record for many rows, an intent on each of its keys to everybody else."""

from __future__ import annotations

import random

import pytest

from kv.base.errors import ConditionFailed, Corruption, KeyLocked, TxnAborted
from kv.base.limits import RESOLVE_CHUNK_ROWS
from kv.base.methods import OP_PUT
from kv.base.ops import delete, put
from kv.mvcc.records import Lock, decode_chunk, encode_chunk, is_chunk
from kv.partition.locks import LockMirror
from tests.kv.mvcc.store import Store, at

ANCHOR = b"a"


@pytest.fixture(autouse=True, params=["rows", "packed"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of rows, and of packed rows, are the same to everybody."""
    monkeypatch.setattr(Store, "packed", request.param == "packed")


def begun(start: int = at(0)) -> Store:
    store = Store()
    store.prewrite(put(ANCHOR, b"anchor"), start=start, anchor=ANCHOR)
    return store


def numbered(first: int, count: int, value: bytes = b"v") -> dict[bytes, bytes | None]:
    return {b"k%06d" % i: value for i in range(first, first + count)}


def test_o3_a_chunk_is_one_record_and_an_intent_on_every_key() -> None:
    """A key of a chunk is not locked, or costs a record of its own."""
    store = begun()
    rows = numbered(0, 100) | {b"k000050": None}
    assert store.prewrite_rows(rows, start=at(0), anchor=ANCHOR, fresh=at(3)) == at(3)
    assert len(store.rows["lock"]) == 2
    for key in rows:
        with pytest.raises(KeyLocked) as met:
            store.get(key, ts=at(5))
        assert (met.value.details["txn"], met.value.details["anchor"]) == (at(0), ANCHOR)
        assert store.get(key, ts=at(0) - 1) == (None, 0)
    assert store.locked_keys(b"k", b"l") == sorted(rows)
    with pytest.raises(KeyLocked):
        store.write(put(b"k000007", b"x"), ts=at(4))
    with pytest.raises(KeyLocked):
        store.prewrite(put(b"k000007", b"x"), start=at(4), anchor=b"k000007")
    with pytest.raises(KeyLocked):
        store.prewrite_rows({b"k000007": b"x"}, start=at(4), anchor=b"other")


def test_o3_a_chunk_is_resolved_whole_whichever_key_is_named() -> None:
    """Resolving one key of a chunk leaves the others without a record, or does nothing."""
    store = begun()
    store.write(put(b"k000003", b"old"), put(b"k000004", b"old"), ts=at(0) - 5)
    rows = numbered(0, 20) | {b"k000004": None, b"k000005": None}
    store.prewrite_rows(rows, start=at(0), anchor=ANCHOR)
    store.commit(ANCHOR, at(0), at(9))
    assert store.resolve_some(b"k000011", b"k000012", start=at(0), ts=at(9)) == (20, 0)
    assert store.resolve(b"k000011", start=at(0), ts=at(9)) == 0
    for key, value in rows.items():
        assert store.get(key, ts=at(9)) == ((value, at(9)) if value else (None, 0))
    assert store.get(b"k000003", ts=at(8))[0] == b"old"
    assert store.get(b"k000004", ts=at(8))[0] == b"old"
    assert store.locked_keys(b"k", b"") == []
    assert store.resolve(ANCHOR, start=at(0), ts=at(9)) == 1
    assert store.rows["lock"] == {}


def test_o12_a_chunk_rolled_back_leaves_nothing() -> None:
    """A rolled back chunk leaves versions or intents, or a late one is let in."""
    store = begun()
    store.prewrite_rows(numbered(0, 20), start=at(0), anchor=ANCHOR)
    store.rollback(ANCHOR, at(0))
    assert store.resolve(b"k000000", start=at(0), ts=0) == 20
    assert store.rows["cur"] == {}
    with pytest.raises(TxnAborted):
        store.prewrite_rows(numbered(0, 20), start=at(0), anchor=ANCHOR)


def test_o3_a_chunk_sent_twice() -> None:
    """A repeated chunk locks twice, or of two rows with one key the second wins."""
    store = begun()
    store.prewrite_rows(numbered(5, 10, b"first"), start=at(0), anchor=ANCHOR)
    before = store.snapshot()
    store.prewrite_rows(numbered(5, 10, b"second"), start=at(0), anchor=ANCHOR)
    assert store.snapshot() == before
    store.prewrite_rows(numbered(0, 20, b"third"), start=at(0), anchor=ANCHOR)
    store.commit(ANCHOR, at(0), at(9))
    assert store.prewrite_rows(numbered(0, 20), start=at(0), anchor=ANCHOR) == at(9)
    while store.resolve_some(*numbered(0, 20), start=at(0), ts=at(9))[1]:
        pass
    found = [store.get(key, ts=at(9))[0] for key in numbered(0, 20)]
    assert found == [b"third"] * 5 + [b"first"] * 10 + [b"third"] * 5


def test_o3_an_echo_of_a_chunk_only_vanishes() -> None:
    """A prewrite that arrives after its rows were resolved writes them again over newer ones."""
    store = begun()
    store.prewrite_rows(numbered(0, 5), start=at(0), anchor=ANCHOR)
    store.commit(ANCHOR, at(0), at(9))
    store.resolve(b"k000000", start=at(0), ts=at(9))
    store.write(put(b"k000001", b"newer"), delete(b"k000002"), ts=at(11))
    far = Store(start=b"k")  # another partition: the anchor's record is not here
    far.rows, far.order, far.mirror = store.rows, store.order, store.mirror
    far.prewrite_rows(numbered(0, 5, b"echo"), start=at(0), anchor=ANCHOR)
    assert far.resolve(b"k000004", start=at(0), ts=at(9)) == 5
    found = [store.get(key, ts=at(12))[0] for key in numbered(0, 5)]
    assert found == [b"v", b"newer", None, b"v", b"v"]


def test_o3_few_chunks_at_once() -> None:
    """One request that names keys of many chunks stops the loop for seconds."""
    store = begun()
    size = RESOLVE_CHUNK_ROWS // 2
    for i in range(5):
        store.prewrite_rows(numbered(i * size, size), start=at(0), anchor=ANCHOR)
    store.commit(ANCHOR, at(0), at(9))
    one_each = [b"k%06d" % (i * size + 7) for i in range(5)]
    assert store.resolve_some(*one_each, start=at(0), ts=at(9)) == (2 * size, 3)
    assert store.resolve_some(*one_each, start=at(0), ts=at(9)) == (2 * size, 1)
    assert store.resolve_some(*one_each, start=at(0), ts=at(9)) == (size, 0)
    big: dict[bytes, bytes | None] = {b"x%d" % i: b"x" * 3_000_000 for i in range(4)}
    store.prewrite(put(b"b", b"anchor"), start=at(20), anchor=b"b")
    for key, value in big.items():
        store.prewrite_rows({key: value}, start=at(20), anchor=b"b")
    assert store.resolve_some(*big, start=at(20), ts=at(29)) == (2, 2)


def test_o3_mirror_follows_a_log() -> None:
    """A replica that reads the log, or opens, has other intents than the leader."""
    store = begun()
    rows = numbered(0, 50)
    store.prewrite_rows(rows, start=at(0), anchor=ANCHOR)
    opened = LockMirror()
    for key, record in store.rows["lock"].items():
        opened.follow(key, record)
    assert list(opened.range(b"", b"")) == [ANCHOR, *rows]
    assert len({id(opened.get(key)) for key in rows}) == 1, "one object for all keys"
    opened.follow(b"k000000", None)
    assert list(opened.range(b"", b"")) == [ANCHOR]


def test_o3_record_of_a_chunk_is_sealed() -> None:
    """Damage in a chunk intent becomes rows."""
    store = begun()
    store.prewrite_rows({b"k1": b"v", b"k2": None}, start=at(0), anchor=ANCHOR)
    record = store.rows["lock"][b"k1"]
    lock, values = decode_chunk(b"k1", record)
    assert (list(lock.chunk), list(values)) == ([b"k1", b"k2"], [b"v", None])
    assert is_chunk(record)
    assert not is_chunk(store.rows["lock"][ANCHOR])
    plain = encode_chunk(lock._replace(chunk=tuple(lock.chunk)), values)
    assert decode_chunk(b"k1", plain) == (lock, tuple(values))
    assert (plain == record) == (not Store.packed)
    damaged = bytearray(record)
    damaged[-7] ^= 4
    with pytest.raises(Corruption):
        decode_chunk(b"k1", bytes(damaged))


@pytest.mark.parametrize("seed", range(8))
def test_many_intents_at_once_are_as_one_by_one(seed: int) -> None:
    """A lock that came or went with many others is not seen, or a range shows it twice."""
    rng = random.Random(seed)
    slowly, fast = LockMirror(), LockMirror()
    for _ in range(30):
        keys = rng.sample([b"%05d" % i for i in range(2_000)], rng.choice([1, 10, 300]))
        lock = Lock(rng.randrange(9), OP_PUT, 1, b"a", 0, rng.choice([None, b"v" * 9_999]))
        some: dict[bytes, Lock | None] = dict.fromkeys(keys, rng.choice([lock, None]))
        if rng.random() < 0.2:
            some[keys[0]] = None
        for key, one in some.items():
            slowly.set(key, one)
        fast.set_all(some)
        assert fast.by_key == slowly.by_key
        assert list(fast.range(b"00100", b"01500")) == list(slowly.range(b"00100", b"01500"))


def test_rows_that_must_be_new() -> None:
    """A row that is there would be replaced by an insert, or one that was deleted not be new."""
    store = begun()
    store.write(put(b"k000003", b"there"), put(b"k000004", b"gone"), ts=at(0) - 5)
    store.write(delete(b"k000004"), ts=at(0) - 4)
    with pytest.raises(ConditionFailed) as refused:
        store.prewrite_rows(numbered(0, 10), start=at(0), anchor=ANCHOR, absent=True)
    assert refused.value.details["key"] == b"k000003"
    assert store.locked_keys(b"k", b"l") == []
    new = numbered(4, 10)
    store.prewrite_rows(new, start=at(0), anchor=ANCHOR, absent=True)
    store.prewrite_rows(new, start=at(0), anchor=ANCHOR, absent=True)  # sent again: no change
    assert store.locked_keys(b"k", b"l") == sorted(new)
    store.commit(ANCHOR, at(0), at(9))
    store.resolve(b"k000005", start=at(0), ts=at(9))
    assert store.get(b"k000003", ts=at(9)) == (b"there", at(0) - 5)
    assert store.get(b"k000004", ts=at(9)) == (b"v", at(9))
