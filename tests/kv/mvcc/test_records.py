"""The bytes on disk: they may never change, and damage must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.checksum import intact
from kv.base.errors import Corruption
from kv.base.limits import TXN_LIFETIME_MS_MAX, TXN_STATUS_RETENTION_MS
from kv.base.methods import ABORTED, OP_CHECK, OP_DELETE, OP_PUT
from kv.base.ops import put
from kv.mvcc import records
from kv.mvcc.guards import Guard, decode_guard, encode_guard, guard_key
from kv.mvcc.packed_rows import PackedKeys, pack_values
from kv.mvcc.records import Lock, TxnRecord
from tests.kv.mvcc.store import Store, at

LOOKS: dict[str, Callable[[Store], object]] = {
    "cur": lambda store: store.get(b"k"),
    "hist": lambda store: store.get(b"k", at(2)),
    "lock": lambda store: store.get(b"p"),
    "txn": lambda store: store.check(b"k", at(4)),
}
KEY = b"\x00\x00\x00\x64a\x00b"


def test_bytes_of_a_version_and_of_what_it_replaces() -> None:
    """A store written by an earlier version could not be read any more."""
    _, first, none, _ = records.cur_row(KEY, b"one", 7, None)
    assert first is not None
    assert none is None
    assert first[:-4].hex() == "0000000000000007" + "00" + b"one".hex()
    key, second, old_key, old = records.cur_row(KEY, b"two", 9, first, expire_ms=5)
    assert (key, second[:-4].hex()) == (KEY, "0000000000000009020000000000000005" + b"two".hex())
    assert old_key == KEY.replace(b"\0", b"\0\xff") + b"\x00\x01" + b"\xff" * 7 + b"\xf8"
    assert old is not None
    assert old[:-4].hex() == "0000000000000009" + "00" + b"one".hex()
    assert intact(old_key, old)
    assert not intact(KEY, old)
    tomb = records.cur_row(KEY, None, 11, second)
    assert tomb[1][:-4].hex() == "000000000000000b01"
    assert tomb[3][:-4].hex() == "000000000000000b020000000000000005" + b"two".hex()


def test_put_row_is_cur_row() -> None:
    """The hot path would write other bytes than the general one."""
    old = records.cur_row(KEY, b"old", 3, None)[1]
    assert records.put_row(KEY, b"v", 5, old) == records.cur_row(KEY, b"v", 5, old)
    assert records.put_row(KEY, b"v", 5, None) == records.cur_row(KEY, b"v", 5, None)


@pytest.mark.parametrize("kind", [OP_PUT, OP_DELETE, OP_CHECK])
@pytest.mark.parametrize("ttl", [0, 77])
def test_lock_round_trip(kind: int, ttl: int) -> None:
    """An intent would come back as another one after a restart."""
    payload = b"x" * 40 if kind == OP_PUT else None
    lock = Lock(9, kind, 1234, b"anchor\x00", ttl if kind == OP_PUT else 0, payload)
    stored = records.encode_lock(KEY, lock)
    assert records.decode_lock(KEY, stored) == lock
    short = records.decode_lock(KEY, stored, inline_bytes_max=39)
    assert short.payload is None
    assert records.decode_lock(KEY, stored, inline_bytes_max=40) == lock


def test_txn_record_and_its_row_for_the_collector() -> None:
    """`status(id)` would not find a transaction from its id alone."""
    key = records.txn_key(b"an\x00chor", 1234)
    record = TxnRecord(status=ABORTED, commit_ts=1, min_commit_ts=2, heartbeat_ms=3, ttl_ms=4)
    assert records.decode_txn(key, records.encode_txn(key, record)) == record
    whole = record._replace(owner="Å", parts=((b"a", b"b\x00"), (b"z",)))
    assert records.decode_txn(key, records.encode_txn(key, whole)) == whole
    assert records.parse_txn_key(key) == (b"an\x00chor", 1234)
    distance = (TXN_LIFETIME_MS_MAX + TXN_STATUS_RETENTION_MS) << 18
    row = records.gcq_txn(b"an\x00chor", 1234)
    assert row[:9] == (1234 + distance).to_bytes(8, "big") + b"X"
    first, past = records.find_range(1234)
    assert first <= row < past
    assert records.parse_find(row, 1234) == b"an\x00chor"
    assert records.parse_find(row, 1235) is None


@given(
    st.binary(max_size=8), st.binary(max_size=8), st.integers(0, 1 << 63), st.integers(0, 1 << 63)
)
def test_c2_versions_adjacent_and_newest_first(a: bytes, b: bytes, s: int, t: int) -> None:
    """Versions of one key would be torn apart by another key, or come in the wrong order."""
    left, right = records.hist_key(a, s), records.hist_key(b, t)
    assert (left < right) == ((a, -s) < (b, -t))


def test_c2_store_keeps_versions_newest_first() -> None:
    """Walking the old versions of a key would not meet them in descending order."""
    store = Store()
    for i in (1, 2, 3, 4):
        store.write(put(b"k", b"v%d" % i), put(b"k\x00", b"w"), ts=at(i))
    keys = [key for key in store.order["hist"] if key.startswith(b"k\x00\x01")]
    stamps = [(1 << 64) - 1 - int.from_bytes(key[-8:], "big") for key in keys]
    assert stamps == [at(3), at(2), at(1)]


@pytest.mark.parametrize("family", ["cur", "hist", "lock", "txn"])
def test_every_flipped_bit_is_found(family: str) -> None:
    """A damaged record would be returned as if it were true."""
    for bit in range(0, 8 * 20, 7):
        store = Store()
        store.write(put(b"k", b"v1"), ts=at(1))
        store.write(put(b"k", b"v2"), ts=at(5), start=at(4))
        store.prewrite(put(b"p", b"value"), start=at(6), anchor=b"p")
        key = store.order[family][0]
        value = bytearray(store.rows[family][key])
        value[bit // 8 % len(value)] ^= 1 << bit % 8
        store.rows[family][key] = bytes(value)
        with pytest.raises(Corruption) as caught:
            LOOKS[family](store)
        assert caught.value.details == {"key": key, "family": family}


def test_a_record_under_another_key_is_found() -> None:
    """A record that turned up in the wrong place would be believed."""
    store = Store()
    store.write(put(b"a", b"1"), put(b"b", b"2"), ts=at(1))
    store.rows["cur"][b"a"] = store.rows["cur"][b"b"]
    with pytest.raises(Corruption):
        store.get(b"a")


@pytest.mark.parametrize("user", ["ann", "Ω" * 40])
def test_records_say_whose_they_are(user: str) -> None:
    """A lost name would be nobody's: others could end the transaction, its owner could not. Without
    one the bytes are what they always were.
    """
    key, rows = b"t\0\0\1k", (b"t\0\0\1k", b"t\0\0\1l")
    for lock in (
        Lock(at(1), OP_PUT, 100, b"anchor", 0, b"v"),
        Lock(at(1), OP_PUT, 100, b"anchor", 7, b"", (), at(9)),
        Lock(at(1), OP_DELETE, 100, b"", 0, None, (), at(9)),
    ):
        whose = lock._replace(user=user)
        bare, named = records.encode_lock(key, lock), records.encode_lock(key, whose)
        assert records.decode_lock(key, bare) == lock
        assert records.decode_lock(key, named) == whose
        assert len(named) == len(bare) + 2 + len(user.encode())
    chunk = Lock(at(1), OP_PUT, 100, b"anchor", 0, None, rows, 0, user)
    for lock in (chunk, chunk._replace(user="")):
        record = records.encode_chunk(lock, [b"a", None])
        assert records.decode_chunk(key, record) == (lock, (b"a", None))
        packed = PackedKeys.of(rows)
        record = records.encode_packed(
            lock._replace(chunk=packed), packed, pack_values([b"a", b"b"])
        )
        assert records.decode_chunk_lock(key, record).user == lock.user
        assert list(records.decode_chunk(key, record)[1]) == [b"a", b"b"]
    record = TxnRecord(ABORTED, owner="job", user=user)
    at_key = records.txn_key(key, at(1))
    for one in (record, record._replace(owner=""), record._replace(user="", parts=((key,),))):
        assert records.decode_txn(at_key, records.encode_txn(at_key, one)) == one
    guard = Guard(key, None, at(1), b"anchor", 100, 0, at(9), user)
    at_guard = guard_key(key, at(1))
    for held in (guard, replace(guard, user="")):
        assert decode_guard(at_guard, encode_guard(held)) == held


@given(data=st.data())
def test_many_rows_are_replaced_as_one_by_one(data: st.DataObject) -> None:
    """A large UPDATE or DELETE leaves other versions than a small one."""
    some = st.binary(max_size=8)
    keys = data.draw(st.lists(some.map(lambda key: b"\0\0\0\x64" + key), unique=True, max_size=6))
    olds = []
    for key in keys:
        version = data.draw(st.sampled_from([3, 5, 1 << 40]))
        olds.append(records.put_row(key, data.draw(some), version, None)[1])
    values = [data.draw(some) for _ in keys]
    for new in (values, None):
        made = list(records.replacing(keys, new, olds, 1 << 41))
        each = new or [None] * len(keys)
        assert made == [
            records.cur_row(key, value, 1 << 41, old)
            for key, value, old in zip(keys, each, olds, strict=True)
        ]
