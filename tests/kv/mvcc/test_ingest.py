"""Entries of an index, written as of the snapshot that they were made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kv.base.errors import ConditionFailed, KeyLocked, KvorumError, TxnAborted, WriteConflict
from kv.base.keys import from_u64
from kv.base.methods import BLIND
from kv.base.ops import Op, delete, put
from kv.mvcc.guards import Guard
from kv.mvcc.ingest import ingest
from kv.mvcc.view import Mutations
from tests.kv.mvcc.store import NOW_MS, Store, at

GONE = (None, 0)


def ingested(
    store: Store, found: dict[bytes, bytes], *, ts: int, unique: bool = False, **more: Any
) -> int:
    """What it answers. A refusal changes nothing."""
    keys, before = sorted(found), store.snapshot()
    m = Mutations()
    try:
        put_ = ingest(
            store,
            keys,
            [found[key] for key in keys],
            at=ts,
            unique=unique,
            now_ms=NOW_MS,
            m=m,
            **more,
        )
    except KvorumError:
        assert m.empty
        assert store.snapshot() == before
        raise
    store.apply(m)
    return put_


def test_q4_new_entries_are_there_as_of_their_snapshot() -> None:
    """A reader of the time before would see them, or one of their own time would not."""
    store = Store()
    assert ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10)) == 2
    assert store.multi_get(b"a", b"b") == [(b"1", at(10)), (b"2", at(10))]
    assert store.get(b"a", at(9)) == GONE
    assert store.get(b"a", at(10)) == (b"1", at(10))


def test_q4_what_is_newer_stays() -> None:
    """An entry that its row's writer has put, or removed, would be as it was before him."""
    store = Store()
    store.write(put(b"a", b"new"), ts=at(20))
    store.write(delete(b"b", tombstone=True), ts=at(20))
    assert ingested(store, {b"a": b"old", b"b": b"old", b"c": b"old"}, ts=at(10)) == 1
    assert store.multi_get(b"a", b"b", b"c") == [(b"new", at(20)), GONE, (b"old", at(10))]
    assert not store.rows["hist"], "versions in an order that no reader expects"


def test_q4_what_is_older_is_replaced() -> None:
    """An entry would stay away because its row was deleted before it came again."""
    store = Store()
    store.write(delete(b"a", tombstone=True), ts=at(5))
    store.write(put(b"b", b"older"), ts=at(5))
    assert ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10)) == 2
    assert store.multi_get(b"a", b"b") == [(b"1", at(10)), (b"2", at(10))]
    assert store.get(b"b", at(9)) == (b"older", at(5))
    store.collect(at(8))
    assert store.multi_get(b"a", b"b") == [(b"1", at(10)), (b"2", at(10))], "taken for a tombstone"
    store.collect(at(30))
    assert not store.rows["hist"]
    assert not store.rows["gcq"]


def test_q4_done_twice_it_changes_nothing() -> None:
    """The answer was lost: entries that were removed meanwhile would come back."""
    store, some = Store(), {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert ingested(store, some, ts=at(10)) == 3
    assert ingested(store, some, ts=at(10)) == 0
    store.write(delete(b"a"), put(b"b", b"new"), ts=at(20))
    before = store.snapshot()
    assert ingested(store, some, ts=at(10)) == 0
    assert store.snapshot() == before


@pytest.mark.parametrize("unique", [False, True])
def test_q4_who_is_writing_is_waited_for(unique: bool) -> None:
    """A commit of before the snapshot would lie over an entry that it knows nothing of, or one of
    behind it be written below.
    """
    store = Store()
    store.prewrite(delete(b"b", tombstone=True), start=at(1), anchor=b"b", fresh=at(2))
    with pytest.raises(KeyLocked) as met:
        ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10), unique=unique)
    assert met.value.details["key"] == b"b"
    store.commit(b"b", at(1), at(20))
    store.resolve(b"b", start=at(1), ts=at(20))
    if unique:
        with pytest.raises(ConditionFailed):
            ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10), unique=True)
        return
    assert ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10)) == 1
    assert store.get(b"b") == GONE


def test_q4_chunks_and_guards_are_waited_for() -> None:
    """A COPY beside it, or a serializable transaction that found no entry, would be overtaken."""
    store = Store()
    rows: dict[bytes, bytes | None] = {b"k%d" % n: b"x" for n in range(8)}
    store.prewrite_rows(rows, start=at(1), anchor=b"k0", fresh=at(2))
    with pytest.raises(KeyLocked) as met:
        ingested(store, {b"a": b"1", b"k3": b"2"}, ts=at(10))
    assert met.value.details["chunk"]
    store.resolve(b"k0", start=at(1), ts=at(20))
    assert ingested(store, {b"a": b"1", b"k3": b"2"}, ts=at(10)) == 1
    store.table.set((b"m", at(1)), Guard(b"m", b"r", at(1), b"z", 1_000))
    with pytest.raises(KeyLocked):
        ingested(store, {b"q": b"1"}, ts=at(10))


def test_q4_who_began_before_it_and_comes_later_runs_again() -> None:
    """His delete would be of an entry that he has not seen."""
    store = Store()
    ingested(store, {b"a": b"1"}, ts=at(10))
    for op in (delete(b"a"), delete(b"a", tombstone=True), put(b"a", b"2")):
        with pytest.raises(WriteConflict):
            store.write(op, ts=at(20), start=at(5))
        with pytest.raises(WriteConflict):
            store.prewrite(op, start=at(6), anchor=b"a", fresh=at(20))
    store.write(delete(b"a", tombstone=True), ts=at(20), start=at(15))
    assert store.get(b"a") == GONE


def test_q4_a_snapshot_that_is_too_old_is_refused() -> None:
    """The tombstones above it may be forgotten, and entries of deleted rows would come back."""
    store = Store()
    store.write(delete(b"a", tombstone=True), ts=at(20))
    store.collect(at(19))
    assert ingested(store, {b"b": b"1"}, ts=at(19)) == 1
    assert ingested(store, {b"a": b"1"}, ts=at(19)) == 0, "its tombstone is still there"
    store.collect(at(20))
    assert b"a" not in store.rows["cur"]
    with pytest.raises(TxnAborted):
        ingested(store, {b"a": b"1"}, ts=at(19))


@pytest.mark.parametrize("value", [b"other", None])
def test_q4_a_unique_key_that_says_otherwise_refuses_all(value: bytes | None) -> None:
    """Another row's entry, or that it is gone, would hide that two rows want the key."""
    store = Store()
    store.write(put(b"b", b"other") if value else delete(b"b", tombstone=True), ts=at(20))
    with pytest.raises(ConditionFailed) as refused:
        ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10), unique=True)
    assert refused.value.details["key"] == b"b"
    assert refused.value.details["op"] == 1
    store.write(put(b"b", b"2"), ts=at(30))
    assert ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10), unique=True) == 1


def test_q4_a_unique_key_that_was_free_is_taken() -> None:
    """Nobody has it as of the snapshot: an index on a table that changes would need transactions
    for all of its rows.
    """
    store = Store()
    store.write(delete(b"b", tombstone=True), ts=at(5))
    assert ingested(store, {b"a": b"1", b"b": b"2"}, ts=at(10), unique=True) == 2
    store.write(put(b"c", b"older"), ts=at(5))
    with pytest.raises(ConditionFailed):
        ingested(store, {b"c": b"2"}, ts=at(10), unique=True)


# ------------------------------------------------------------------ tombstones


def test_q4_a_tombstone_is_left_where_nothing_is() -> None:
    """A delete of an entry that is not there yet would leave no trace."""
    for two_phases in (False, True):
        store = Store()
        ops = [delete(b"a"), delete(b"b", tombstone=True)]
        if two_phases:
            store.prewrite(*ops, start=at(1), anchor=b"a", fresh=at(2))
            store.commit(b"a", at(1), at(3))
            store.resolve(b"a", b"b", start=at(1), ts=at(3))
        else:
            store.write(*ops, ts=at(3), start=at(1))
        assert sorted(store.rows["cur"]) == [b"b"]
        assert store.get(b"b") == GONE
        store.write(delete(b"b", tombstone=True), ts=at(5))
        assert ingested(store, {b"b": b"1"}, ts=at(4)) == 0, "the second one is newer"
        store.collect(at(9))
        assert not store.rows["cur"]
        assert not store.rows["hist"]
        assert {row[8:9] for row in store.rows["gcq"]} <= {b"X"}


def test_q4_a_tombstone_that_is_rolled_back_leaves_nothing() -> None:
    """A row that was not deleted would lack its entry."""
    store = Store()
    store.prewrite(delete(b"a", tombstone=True), start=at(1), anchor=b"a", fresh=at(2))
    store.rollback(b"a", at(1))
    store.resolve(b"a", start=at(1), ts=0)
    assert not store.rows["cur"]
    assert ingested(store, {b"a": b"1"}, ts=at(1)) == 1


@pytest.mark.parametrize("committed", [False, True])
def test_q4_a_tombstone_of_a_parallel_commit_is_recovered(committed: bool) -> None:
    """Its coordinator died: whether the entry is gone would depend on who found it."""
    store, op = Store(), delete(b"a", tombstone=True)
    store.stage(op, start=at(1), fresh=at(3), anchor=b"a", parts=((b"a", b"b"),))
    if committed:
        store.stage(put(b"b", b"x"), start=at(1), fresh=at(4), anchor=b"a")
    whole, bound = store.recover(b"a", b"b", start=at(1), anchor=b"a")
    assert whole is committed
    record = store.settle(b"a", at(1), bound if whole else 0)
    store.resolve(b"a", b"b", start=at(1), ts=record.commit_ts)
    assert (b"a" in store.rows["cur"]) is committed
    assert ingested(store, {b"a": b"1"}, ts=at(2)) == (not committed)


# ------------------------------------------------------------------ histories


class History:
    """Rows with a number each, which change in transactions, and an index on the numbers that is
    filled meanwhile. The rows are plain lists of versions, the index is a partition.

    Rows that have one number, under a unique index, stay as they are: the writer of one of them
    would remove the other one's entry. `without`: a rule that is switched off.
    """

    ROWS = 6

    def __init__(self, seed: int, *, unique: bool, without: str = "") -> None:
        self.rng = random.Random(seed)
        self.unique, self.without = unique, without
        self.store = Store()
        self.early = self.rng.random() < 0.5  # whether there are slices before the last step
        self.clock = 1
        self.rows: list[list[tuple[int, int | None]]] = []  # (commit_ts, number or None = no row)
        for _ in range(self.ROWS):
            self.rows.append([(self.tick(), self.rng.choice((None, *range(8))))])
        self.pending: list[tuple[int, list[Op], dict[int, int | None]]] = []  # start, ops, rows
        self.slices: list[tuple[int, list[int]]] = []  # snapshots of rows, to be written
        self.duplicate = False
        self.looking = False  # a slice is being written in a transaction
        self.left: list[tuple[int, list[int]]] = []  # slices of the last step

    def tick(self) -> int:
        self.clock += self.rng.choice((1, 1, 2))
        return at(self.clock)

    def number(self, row: int, ts: int) -> int | None:
        return [number for version, number in self.rows[row] if version <= ts][-1]

    def entry(self, row: int, number: int) -> tuple[bytes, bytes]:
        key = b"e%d" % number if self.unique else b"e%d|%d" % (number, row)
        return key, b"row %d" % row

    def entries(self, rows: Sequence[int], ts: int) -> dict[bytes, bytes]:
        """As of a snapshot."""
        found: dict[bytes, bytes] = {}
        for row in rows:
            if (number := self.number(row, ts)) is not None:
                key, value = self.entry(row, number)
                self.duplicate = self.duplicate or key in found
                found[key] = value
        return found

    # -- writers, as of the state write-only

    def change(self) -> None:
        start = self.tick()
        busy = {row for _, _, rows in self.pending for row in rows}
        taken = [rows[-1][1] for rows in self.rows]
        taken += [number for _, _, rows in self.pending for number in rows.values()]
        free = [
            row
            for row in range(self.ROWS)
            if row not in busy and not (self.unique and taken.count(taken[row]) > 1)
        ]
        if not free:
            return
        rows = self.rng.sample(free, min(len(free), self.rng.choice((1, 1, 2))))
        new: dict[int, int | None] = {
            row: self.rng.choice((None, *range(8), *range(8))) for row in rows
        }
        if len(rows) == 2 and self.rng.random() < 0.5:  # one takes what the other one had
            new = {rows[0]: None, rows[1]: self.number(rows[0], start)}
        ops: dict[bytes, Op] = {}
        for row, number in new.items():
            had = self.number(row, start)
            if had is not None and had != number:
                key = self.entry(row, had)[0]
                ops[key] = delete(key, tombstone=self.without != "tombstones")
        for row, number in new.items():
            had = self.number(row, start)
            if number is not None and had != number:
                key, value = self.entry(row, number)
                if key in ops and ops[key].value is not None:
                    return  # both would have it
                cond = 0 if self.unique and key not in ops else None
                ops[key] = put(key, value, cond)
        if not ops:
            return
        read = any(self.number(row, start) is not None for row in new)
        flags = 0 if read or self.rng.random() < 0.5 else BLIND
        some = [ops[key] for key in sorted(ops)]
        try:
            if self.rng.random() < 0.5:
                ts = self.tick()
                self.store.write(*some, ts=ts, start=start, flags=flags)
                self.committed(new, ts)
            else:
                self.store.prewrite(
                    *some,
                    start=start,
                    anchor=some[0].key,
                    fresh=self.tick(),
                    flags=flags,
                    ttl=10**6,
                )
                self.pending.append((start, some, new))
        except (KeyLocked, WriteConflict, ConditionFailed, TxnAborted):
            pass

    def committed(self, new: dict[int, int | None], ts: int) -> None:
        for row, number in new.items():
            self.rows[row].append((ts, number))

    def finish(self) -> None:
        """The flip, some time before the intents go."""
        if not self.pending:
            return
        start, ops, new = self.pending.pop(self.rng.randrange(len(self.pending)))
        ts, anchor = self.tick(), ops[0].key
        if self.rng.random() < 0.2:
            self.store.rollback(anchor, start)
            ts = 0
        else:
            self.store.commit(anchor, start, ts)
            self.committed(new, ts)
        if self.rng.random() < 0.5:
            self.slice()
        self.fill()  # met by whoever fills
        self.store.resolve(*[op.key for op in ops], start=start, ts=ts)

    # -- the backfill

    def slice(self) -> None:
        if not self.early:
            return
        first = self.rng.randrange(self.ROWS)
        self.slices.append((self.tick(), list(range(first, min(first + 3, self.ROWS)))))

    def fill(self) -> None:
        """One of the slices, in any order, some twice."""
        if self.slices:
            self.filled(*self.rng.choice(self.slices))
        if self.left:
            self.step()

    def step(self) -> None:
        """One of the last step's, which is done once."""
        snapshot, rows = self.left.pop(self.rng.randrange(len(self.left)))
        if not self.filled(snapshot, rows):
            self.left.append((self.tick(), rows))

    def filled(self, snapshot: int, rows: Sequence[int]) -> bool:
        """Whether it needs not be done again."""
        found, m = self.entries(rows, snapshot), Mutations()
        if not found or self.duplicate:
            return True
        keys = sorted(found)
        view: Any = self.store
        if self.without == "intents":
            view = _Unlocked(self.store)
        ts = snapshot
        if self.without == "newer stays":
            ts = max([ts, *(from_u64(r) for r in self.store.many_cur(keys) if r)]) + 1
        try:
            ingest(
                view,
                keys,
                [found[key] for key in keys],
                at=ts,
                unique=self.unique and self.without != "unique",
                now_ms=NOW_MS + self.clock,
                m=m,
            )
        except ConditionFailed:
            return not self.looking and self.looked_at(rows)
        except (KeyLocked, TxnAborted):
            return False
        self.store.apply(m)
        return True

    def looked_at(self, rows: Sequence[int]) -> bool:
        """The same in a transaction, which other slices may come between."""
        start = self.tick()
        found = self.entries(rows, start)
        try:
            there = {key: self.store.get(key, start)[0] for key in found}
        except KeyLocked:
            return False
        for key, value in found.items():
            if there[key] not in (None, value):
                owners = [
                    row
                    for row in range(self.ROWS)
                    if (number := self.number(row, start)) is not None
                    and self.entry(row, number)[0] == key
                ]
                assert len(owners) > 1, "a duplicate that is none"
                self.duplicate = True
                return True
        self.looking = True
        for _ in range(self.rng.randrange(4)):
            self.fill()
        self.looking = False
        cond = None if self.without == "free at the commit" else 0
        ops = [put(key, found[key], cond) for key in sorted(found) if there[key] is None]
        held = all(self.rows[row][-1][0] <= start for row in rows)
        held = held and not any(set(rows) & set(new) for _, _, new in self.pending)
        if not held:
            return False
        try:
            if ops:
                self.store.write(*ops, ts=self.tick(), start=start)
        except (KeyLocked, WriteConflict, ConditionFailed, TxnAborted):
            return False
        return True

    def collect(self) -> None:
        if not self.pending:
            self.store.collect(at(self.clock - self.rng.randrange(12)))

    def play(self) -> None:
        """Raises AssertionError."""
        for _ in range(40):
            steps = (self.change, self.change, self.finish, self.slice, self.fill, self.collect)
            self.rng.choice(steps)()
            self.store.now_ms = NOW_MS + self.clock
        self.left = [
            (self.tick(), [row for row in range(self.ROWS) if row // 2 == n])
            for n in range(self.ROWS // 2)
        ]
        for _ in range(200):
            if not self.left:
                break
            self.rng.choice((self.step, self.step, self.change, self.finish))()
        else:
            raise AssertionError("it does not end")
        while self.pending:
            self.finish()
        for _ in range(5):
            self.change()
            self.fill()
        while self.pending:
            self.finish()
        if self.duplicate:
            return
        ts = self.tick()
        wanted = self.entries(range(self.ROWS), ts)
        assert not self.duplicate, "two rows have one key of the index"
        there = {key: self.store.get(key)[0] for key in self.store.rows["cur"]}
        assert {key: value for key, value in there.items() if value is not None} == wanted


class _Unlocked:
    """A view without intents."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def locked(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        return ()


@pytest.mark.few(2)
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("seed", range(0, 1_000, 100))
def test_q4_the_entries_are_those_of_the_rows(seed: int, unique: bool) -> None:
    """An entry too many answers with a row that is gone, one too few hides a row."""
    for n in range(100):
        History(seed + n, unique=unique).play()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("rule", "unique"),
    [
        ("tombstones", False),
        ("newer stays", False),
        ("intents", True),
        ("unique", True),
        ("free at the commit", True),
    ],
)
def test_q4_each_rule_is_needed(rule: str, unique: bool) -> None:
    """A rule whose absence nobody notices is not tested, or not needed."""
    for seed in range(3_000):
        try:
            History(seed, unique=unique, without=rule).play()
        except AssertionError:
            return
    pytest.fail(f"{rule}: nobody notices")
