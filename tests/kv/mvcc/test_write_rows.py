"""Many puts in one step: what `write` does with an op for each row, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kv.base.errors import ConditionFailed, KeyLocked, KvorumError, TxnAborted, WriteConflict
from kv.base.methods import BLIND
from kv.base.ops import delete, put
from kv.base.system import UNVERSIONED
from kv.mvcc.guards import Guard
from kv.mvcc.view import Mutations
from kv.mvcc.write_rows import write_rows
from tests.kit.each import each
from tests.kv.mvcc.store import NOW_MS, Store, at

KEYS = [b"k%02d" % i for i in range(12)]


def rows(store: Store, found: dict[bytes, bytes], *, ts: int, start: int = 0, **more: Any) -> int:
    keys = sorted(found)
    m = Mutations()
    version = write_rows(
        store,
        keys,
        [found[key] for key in keys],
        start_ts=start,
        commit_ts=ts,
        now_ms=NOW_MS,
        m=m,
        flags=more.pop("flags", 0),
        **more,
    )
    store.apply(m)
    return version


def lived(seed: int, prefix: bytes = b"") -> Store:
    """Some keys were written, some deleted, some have a time to live (which may be over), one an
    intent.
    """
    rng, store = random.Random(seed), Store()
    for n, key in enumerate(KEYS):
        kind = rng.randrange(7)
        if kind in (1, 2, 5):
            store.write(put(prefix + key, b"old", ttl_ms=rng.choice((0, 0, 3, 10_000))), ts=at(n))
        if kind == 2:
            store.write(delete(prefix + key), ts=at(n + 20))
    if rng.random() < 0.2:
        store.prewrite(put(b"k05", b"x"), start=at(1), anchor=b"k05", fresh=at(30), flags=BLIND)
    if rng.random() < 0.2:
        store.table.set((b"k03", at(1)), Guard(b"k03", b"k05", at(1), b"z", 1_000))
    return store


def told(work: Any) -> int | None:
    """What it answers; None: it refuses, for one of the keys."""
    try:
        version: int = work()
    except KvorumError:
        return None
    return version


@each("seed", range(120))
def test_b7_rows_are_what_puts_are(seed: int) -> None:
    """Rows that are sent together would be stored or refused otherwise than one by one."""
    rng = random.Random(seed)
    prefix = next(iter(UNVERSIONED)) if seed % 5 == 0 else b""
    some = {prefix + key: b"new %d" % seed for key in rng.sample(KEYS, rng.randrange(1, 9))}
    absent, start = rng.random() < 0.5, rng.choice((0, at(25), at(40)))
    flags = rng.choice((0, BLIND))
    puts = [put(key, some[key], 0 if absent else None) for key in sorted(some)]
    one, other = lived(seed, prefix), lived(seed, prefix)
    wanted = told(lambda: one.write(*puts, ts=at(50), start=start, flags=flags))
    found = told(lambda: rows(other, some, ts=at(50), start=start, flags=flags, absent=absent))
    assert found == wanted
    assert other.snapshot() == one.snapshot()


def test_b7_rows_are_refused_whole() -> None:
    """One row that is not new, changed since or locked would leave the others written."""
    store = Store()
    store.write(put(b"k03", b"there"), ts=at(10))
    store.prewrite(put(b"k07", b"x"), start=at(1), anchor=b"k07", fresh=at(30))
    before = store.snapshot()
    with pytest.raises(ConditionFailed) as caught:
        rows(store, {b"k02": b"", b"k03": b""}, ts=at(20), absent=True)
    assert caught.value.details == {
        "key": b"k03",
        "version": str(at(10)),
        "op": 1,
        "wanted": "0",
    }
    with pytest.raises(WriteConflict):
        rows(store, {b"k02": b"", b"k03": b""}, ts=at(20), start=at(5))
    with pytest.raises(KeyLocked) as met:
        rows(store, {b"k06": b"", b"k07": b""}, ts=at(20))
    assert met.value.details["key"] == b"k07"
    assert store.snapshot() == before


def test_b7_rows_sent_again_are_found_committed() -> None:
    """The answer was lost: sending them again would write a second version, or be refused."""
    store = Store()
    some = {b"k01": b"a", b"k02": b"b"}
    assert rows(store, some, ts=at(20), start=at(5), absent=True, owner="me") == at(20)
    before = store.snapshot()
    assert rows(store, some, ts=at(30), start=at(5), absent=True) == at(20)
    assert store.snapshot() == before
    record = store.txn(b"k01", at(5))
    assert record is not None
    assert (record.commit_ts, record.owner) == (at(20), "me")


def test_b7_rows_of_a_transaction_that_was_rolled_back() -> None:
    """A commit that comes after somebody rolled it back would be half of the truth."""
    store = Store()
    store.rollback(b"k01", at(5))
    with pytest.raises(TxnAborted):
        rows(store, {b"k01": b"a"}, ts=at(20), start=at(5))
