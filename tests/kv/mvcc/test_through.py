"""Scans that read through committed chunks of intents answer what they would behind their
resolution.
"""

from __future__ import annotations

import random

import pytest

from kv.base.errors import Corruption, InvalidArgument, SnapshotTooOld
from kv.base.fields import check_through
from kv.base.intents import Author, TxnId, txn_id
from kv.base.limits import SCAN_STEP_ROWS_MAX, THROUGH_CHUNKS_MAX
from kv.base.ops import put
from kv.mvcc.scan import Values, scan_values
from kv.mvcc.scan_through_intents import through_chunks
from tests.kit.each import each
from tests.kv.mvcc.store import Store, at

ANCHOR = b"a"
DONE = at(9)
NOW = at(20)


@pytest.fixture(autouse=True, params=["rows", "packed"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of rows, and of packed rows, are the same to readers."""
    monkeypatch.setattr(Store, "packed", request.param == "packed")


def begun() -> Store:
    store = Store()
    store.prewrite(put(ANCHOR, b"anchor"), start=at(0), anchor=ANCHOR)
    return store


def key(number: int) -> bytes:
    return b"k%06d" % number


def numbered(*numbers: int, value: bytes = b"v") -> dict[bytes, bytes | None]:
    return {key(i): value + b"%d" % i for i in numbers}


def page(
    store: Store,
    start: bytes = b"b",
    end: bytes = b"",
    *,
    limit: int = 100,
    ts: int = NOW,
    committed: dict[TxnId, int] | None = None,
) -> Values | None:
    return through_chunks(
        store,
        start,
        end,
        read_ts=ts,
        limit=limit,
        committed=committed or {at(0): DONE},
        stored=store.rows["lock"].get,
    )


def resolved(store: Store) -> list[bytes]:
    """What a scan finds when all intents of the transaction are versions."""
    store.commit(ANCHOR, at(0), DONE)
    for one in store.locked_keys(b"", b""):
        store.resolve(one, start=at(0), ts=DONE)
    return all_of(store, through=False)


def all_of(store: Store, *, through: bool, limit: int = 100) -> list[bytes]:
    values: list[bytes] = []
    start: bytes | None = b"b"
    while start is not None:
        found = page(store, start, limit=limit) if through else None
        assert found is None or len(found.items) <= limit, "a page holds more than was asked for"
        found = found or scan_values(
            store, start, b"", read_ts=NOW, limit=limit, now_ms=store.now_ms
        )
        values += found.items
        start = found.resume
    return values


@pytest.mark.few(1)
@each("seed", range(40))
def test_p10_a_scan_through_chunks_is_the_scan_behind_their_resolution(seed: int) -> None:
    """A row would be missing, twice, old or deleted and there all the same."""
    chance = random.Random(seed)
    store, free = begun(), list(range(600))
    for number in chance.sample(free, chance.choice([0, 5, 300])):  # those that were there before
        store.write(put(key(number), b"old"), ts=at(-5))
    while free:  # chunks side by side, with gaps
        run, free = free[: (n := chance.randint(1, 150))], free[n:]
        rows = numbered(*(i for i in run if chance.random() < 0.9))
        if rows and chance.random() < 0.8:
            rows |= dict.fromkeys(chance.sample(sorted(rows), len(rows) // 10))
            store.prewrite_rows(rows, start=at(0), anchor=ANCHOR)
    store.commit(ANCHOR, at(0), DONE)
    for one in store.locked_keys(b"k", b"l")[:: chance.randint(100, 400)]:
        store.resolve(one, start=at(0), ts=DONE)  # some are cleaned by now
    limit = chance.choice([1, 7, 100, SCAN_STEP_ROWS_MAX])
    locked = bool(store.locked_keys(b"k", b"l"))
    found = all_of(store, through=True, limit=limit)
    assert bool(store.locked_keys(b"k", b"l")) is locked, "a read wrote something"
    assert found == resolved(store)


def test_p10_a_page_through_chunks_has_its_bounds() -> None:
    """A page would be unbounded, begin before its range or go on behind it."""
    store = begun()
    for first in range(0, 80, 10):
        store.prewrite_rows(numbered(*range(first, first + 10)), start=at(0), anchor=ANCHOR)
    found = page(store, key(5), key(12))
    assert found == Values([b"v%d" % i for i in range(5, 12)], None)
    found = page(store, key(5), limit=3)
    assert found == Values([b"v5", b"v6", b"v7"], key(7) + b"\0")
    found = page(store)
    assert found is not None
    assert len(found.items) == 10 * THROUGH_CHUNKS_MAX
    assert found.resume == key(10 * THROUGH_CHUNKS_MAX - 1) + b"\0"
    found = page(store, key(79))
    assert found == Values([b"v79"], None)


def test_p10_a_page_through_chunks_ends_with_a_chunk() -> None:
    """Pages that begin within chunks would unpack each of them twice."""
    store, asked = begun(), list[bytes]()
    for first in range(0, 240, 60):
        store.prewrite_rows(numbered(*range(first, first + 60)), start=at(0), anchor=ANCHOR)

    def stored(key: bytes) -> bytes | None:
        asked.append(key)
        return store.rows["lock"].get(key)

    ends, start = list[int](), key(30)
    while start:
        found = through_chunks(
            store, start, b"", read_ts=NOW, limit=100, committed={at(0): DONE}, stored=stored
        )
        assert found is not None
        start = found.resume or b""
        ends.append(int(found.items[-1][1:]))
    assert ends == [119, 179, 239]
    assert asked == [key(first) for first in range(0, 240, 60)]


def test_p10_what_is_not_simple_is_left_to_the_usual_way() -> None:
    """Intents of somebody else, of a later commit, or chunks that lie in each other would be read
    wrongly.
    """
    store = begun()
    assert page(store) is None, "nothing is locked"
    store.prewrite_rows(numbered(1, 3, 5), start=at(0), anchor=ANCHOR)
    assert page(store, ts=DONE - 1) is None, "it is committed above the snapshot"
    assert page(store) == Values([b"v1", b"v3", b"v5"], None)
    store.prewrite_rows(numbered(2, 4), start=at(0), anchor=ANCHOR)
    assert page(store) is None, "a chunk within another one"
    forged = begun()
    forged.author = Author("bob")
    forged.prewrite_rows(numbered(1), start=at(0), anchor=key(0))
    assert page(forged) is None, "a chunk that somebody else laid under its id"
    its = {txn_id(at(0), "bob"): DONE}
    check_through("through", list(map(list, its.items())))
    assert page(forged, committed=its) == Values([b"v1"], None)
    for wrong in (txn_id(0, "bob"), txn_id(NOW, "bob"), b"short"):
        with pytest.raises(InvalidArgument):
            check_through("through", [[wrong, DONE]])
    other = begun()
    other.prewrite_rows(numbered(1), start=at(0), anchor=ANCHOR)
    other.prewrite(put(key(2), b"x"), start=at(1), anchor=key(2))
    assert page(other) is None, "an intent of another transaction"
    single = begun()
    single.prewrite(put(key(1), b"x"), start=at(0), anchor=ANCHOR)
    assert page(single) is None, "an intent that is no chunk"
    newer = begun()
    newer.write(put(key(0), b"x"), ts=at(30))
    newer.prewrite_rows(numbered(1), start=at(0), anchor=ANCHOR)
    assert page(newer) is None, "a row beside it is newer than the snapshot"
    ending = begun()
    ending.write(put(key(0), b"x", ttl_ms=1_000), ts=at(0))
    ending.prewrite_rows(numbered(1), start=at(0), anchor=ANCHOR)
    assert page(ending) is None, "a row beside it may have expired"


def test_p10_a_chunk_that_is_damaged_is_never_read() -> None:
    """Bytes that nobody wrote would be rows; a snapshot that is gone would be half there."""
    store = begun()
    store.prewrite_rows(numbered(*range(10)), start=at(0), anchor=ANCHOR)
    record = store.rows["lock"][key(0)]
    store.rows["lock"][key(0)] = record[:-20] + b"!" + record[-19:]
    with pytest.raises(Corruption):
        page(store)
    with pytest.raises(Corruption):
        through_chunks(
            store,
            b"b",
            b"",
            read_ts=NOW,
            limit=10,
            committed={at(0): DONE},
            stored=lambda _key: None,
        )
    store.safepoint = NOW + 1
    with pytest.raises(SnapshotTooOld):
        page(store)
