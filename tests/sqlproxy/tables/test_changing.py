"""Rows and their index entries against a model: after any inserts, updates and deletes each index
has exactly the entries of the rows that are there, and a duplicate is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.errors import ConditionFailed
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.methods import OP_DELETE, OP_TOMBSTONE
from kv.base.ops import check, delete, put
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import DELETE_ONLY, PUBLIC, WRITE_ONLY, Column, Index, IndexColumn, Table
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.deferring import Deferred, Spots
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.reading import Stored
from sqlproxy.tables.rules import Rules
from sqlproxy.tables.writing import settle
from sqlproxy.values.errors import SqlError
from txn.buffered.write_buffer import WriteBuffer


class Store:
    """Rows that are committed, and a transaction's writes over them, by the real buffer."""

    renews = False

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.buffer = WriteBuffer()

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> None:
        self.buffer.add(put(key, value, cond))

    def delete(self, key: bytes, *, tombstone: bool = False) -> None:
        self.buffer.add(delete(key, tombstone=tombstone))

    def put_rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self.buffer.add_rows(keys, values)

    def delete_rows(self, keys: Sequence[bytes], *, tombstone: bool = False) -> None:
        self.buffer.add_rows(keys, None, tombstone=tombstone)

    def change_rows(
        self, keys: Sequence[bytes], versions: Sequence[int], values: Sequence[bytes] | None
    ) -> None:
        self.buffer.add_rows(keys, values, [version or None for version in versions])

    async def multi_get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        found: list[tuple[bytes, int] | None] = []
        for key in keys:
            op = self.buffer.written(key)
            value = self.rows.get(key) if op is None else op.value
            found.append(None if value is None else (value, 1))
        return found

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        (found,) = await self.multi_get([key])
        return found or (None, 0)

    def wrote(self, key: bytes) -> bool:
        return self.buffer.written(key) is not None

    def has_put(self, key: bytes) -> bool:
        op = self.buffer.written(key)
        return op is not None and op.value is not None

    def seen(self) -> dict[bytes, bytes]:
        """What the transaction reads."""
        found: dict[bytes, bytes | None] = dict(self.rows)
        found |= {op.key: op.value for op in self.buffer.ops()}
        return {key: value for key, value in found.items() if value is not None}

    def commit(self) -> None:
        """Raises ConditionFailed as the store does."""
        for op in self.buffer.ops():
            if op.cond == 0 and op.key in self.rows:
                raise ConditionFailed("there", details={"key": op.key})
        for op in self.buffer.ops():
            if op.value is None:
                self.rows.pop(op.key, None)
            else:
                self.rows[op.key] = op.value
        self.buffer = WriteBuffer()


def table(states: Sequence[str] = ("public", "public", "public")) -> Table:
    columns = [Column(0, "a", "int4"), Column(0, "b", "int4"), Column(0, "c", "text")]
    made = Table.declare("default", "t", columns=columns, primary_key=("a",))
    indexes = (
        Index(TableId(101), "t_b_key", (IndexColumn(2),), True, state=states[0]),
        Index(TableId(102), "t_c_idx", (IndexColumn(3, descending=True),), state=states[1]),
        Index(
            TableId(103), "t_bc_key", (IndexColumn(2), IndexColumn(3)), True, (1,), state=states[2]
        ),
    )
    return replace(made, id=TableId(100), indexes=indexes, primary_key_name="t_pkey")


def partial_table() -> Table:
    """The unique indexes are of some rows only."""
    t = table()
    first, second, third = t.indexes
    first = replace(first, where="c = 'x' OR c IS NULL", where_columns=(3,))
    second = replace(second, where="b > 1", where_columns=(2,))
    return replace(t, indexes=(first, second, replace(third, where="a < 3", where_columns=(1,))))


HAS: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "t_b_key": lambda row: row[2] in ("x", None),
    "t_c_idx": lambda row: row[1] is not None and row[1] > 1,
    "t_bc_key": lambda row: row[0] < 3,
}
"""Which rows the indexes of `partial_table` have, in Python's words."""


def writer(of: Table) -> TableWriter:
    return TableWriter(of, Rules(of, {}, (), (), (), (), lambda place, value: str(value)))


def expected(of: Table, rows: Sequence[tuple[Any, ...]]) -> dict[bytes, bytes]:
    found = {}
    for row in rows:
        key, value = codec(of).encode_row(row)
        found[table_prefix(of.id) + key] = value
        for index in of.indexes:
            if index.state != DELETE_ONLY and (not index.where or HAS[index.name](row)):
                key, value = index_codec(of, index).entry(row)
                found[table_prefix(index.id) + key] = value
    return found


SMALL = st.one_of(st.none(), st.integers(0, 3))
ROW = st.tuples(st.integers(0, 4), SMALL, st.one_of(st.none(), st.sampled_from("xyz")))


def clashes(
    of: Table, rows: dict[int, tuple[Any, ...]], row: tuple[Any, ...], but: int | None
) -> set[str]:
    """The constraints that a row would break, by the definition of UNIQUE."""
    names = set()
    for key, there in rows.items():
        if key == but:
            continue
        wrong = {"t_pkey"} if there[0] == row[0] else set()
        if row[1] is not None and there[1] == row[1]:
            wrong.add("t_b_key")
            if row[2] is not None and there[2] == row[2]:
                wrong.add("t_bc_key")
        for index in of.indexes:
            if index.where and not (HAS[index.name](row) and HAS[index.name](there)):
                wrong.discard(index.name)
        names |= wrong
    return names


STEPS = st.lists(st.tuples(st.sampled_from("iudc"), st.integers(0, 4), ROW), max_size=25)


@pytest.mark.slow
@settings(max_examples=200)
@given(STEPS, st.sampled_from([table(), partial_table()]))
async def test_p8_indexes_equal_the_rows(steps: Any, t: Table) -> None:
    """An entry too many or too few is a row that a query finds wrongly or not at all."""
    store = Store()
    out = writer(t)
    rows: dict[int, tuple[Any, ...]] = {}

    def stored(key: int) -> Stored:
        return Stored(out.key_of(rows[key]), rows[key], 1)

    for what, key, row in steps:
        if what == "c":
            store.commit()
        elif what == "d" and key in rows:
            out.delete(store, stored(key))  # type: ignore[arg-type]
            del rows[key]
        elif what in "iu" and (what == "i" or key in rows):
            old = stored(key) if what == "u" else None
            (taken,) = await out.seek(store, [row], [old] if old else ())  # type: ignore[arg-type]
            wrong = clashes(t, rows, row, key if old else None)
            assert (taken is None) == (not wrong)
            if taken is not None:
                assert taken.constraint in wrong
                assert out.refused(taken, row).constraint == taken.constraint
                continue
            if old is None:
                out.insert(store, row)  # type: ignore[arg-type]
            else:
                out.update(store, old, row)  # type: ignore[arg-type]
                del rows[key]
            rows[row[0]] = row
    store.commit()
    assert store.rows == expected(t, list(rows.values()))


def loose(of: Table) -> Table:
    """None of its indexes is unique."""
    return replace(of, indexes=tuple(replace(index, unique=False) for index in of.indexes))


STATES = st.sampled_from([PUBLIC, WRITE_ONLY, DELETE_ONLY])
VALUES = st.tuples(SMALL, st.one_of(st.none(), st.sampled_from("xyz")))


@given(
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6),
    STATES,
    st.sampled_from([table(), partial_table()]),
    st.sampled_from([{1}, {2}, {1, 2}, None]),
)
def test_p10_many_rows_are_changed_as_each_is(
    given_rows: list[tuple[tuple[Any, ...], tuple[Any, ...]]],
    state: str,
    t: Table,
    changed: set[int] | None,
) -> None:
    """UPDATE and DELETE of many rows would leave an entry, or forget one. None: they go."""
    t = replace(t, indexes=tuple(replace(index, state=state) for index in t.indexes))
    if changed is not None:
        t = loose(t)
    out, one, many = writer(t), Store(), Store()
    olds = [(n, *before) for n, (before, _) in enumerate(given_rows)]
    stored = [Stored(out.key_of(row), row, 5) for row in olds]
    if changed is None:
        for old in stored:
            one.buffer.add(check(old.key, 5))
            out.delete(one, old)
        out.delete_many(many, stored)
    else:
        news = [
            tuple(new[at - 1] if at in changed else old[at] for at in range(3))
            for old, (_, new) in zip(olds, given_rows, strict=True)
        ]
        for old, row in zip(stored, news, strict=True):
            one.buffer.add(check(old.key, 5))
            out.update(one, old, row)
        out.update_many(many, stored, news, changed)
    assert sorted(many.buffer.ops()) == sorted(one.buffer.ops())


async def test_p10_rows_that_move_are_free_together() -> None:
    """Of rows that take each other's places, or a place that is taken, each is looked at alone."""
    t, store = table(), Store()
    out = writer(t)
    rows = [(n, n, "x") for n in range(4)]
    olds = [Stored(out.insert(store, row), row, 1) for row in rows]
    store.commit()
    for news, wanted in (
        ([(n + 10, n, "x") for n in range(4)], True),
        ([(n + 1, n, "x") for n in range(4)], False),
        ([(n, 3 - n, "x") for n in range(4)], False),
        ([(n, 9, "x") for n in range(4)], False),
        ([(n, None, "x") for n in range(4)], True),
        (rows, True),
    ):
        assert await out.free(store, news, olds) is wanted, news


@pytest.mark.parametrize("state", [DELETE_ONLY, WRITE_ONLY])
def test_q4_indexes_that_are_being_made(state: str) -> None:
    """F1: delete-only takes entries away and adds none, write-only does both; neither is read."""
    t = table((state, state, state))
    old, new = table(), Store()
    row = (1, 2, "x")
    writer(old).insert(new, row)  # type: ignore[arg-type]
    new.commit()
    out = writer(t)
    stored = Stored(out.key_of(row), row, 1)
    out.update(new, stored, (1, 3, "y"))  # type: ignore[arg-type]
    new.commit()
    assert new.rows == expected(t, [(1, 3, "y")])
    out.delete(new, Stored(stored.key, (1, 3, "y"), 1))  # type: ignore[arg-type]
    out.insert(new, (2, 5, None))  # type: ignore[arg-type]
    new.commit()
    assert new.rows == expected(t, [(2, 5, None)])


@pytest.mark.parametrize("state", [WRITE_ONLY, PUBLIC])
def test_q4_entries_that_may_come_later_leave_tombstones(state: str) -> None:
    """An entry of before the change would be written behind it, and stay (kv/mvcc/ingest.py)."""
    t, store = partial_table(), Store()
    t = replace(t, indexes=tuple(replace(index, state=state) for index in t.indexes))
    row, partly = (1, 2, "x"), (1, None, "y")  # not in t_b_key, nor in t_c_idx
    out = writer(t)
    old = Stored(out.insert(store, row), row, 1)  # type: ignore[arg-type]
    store.commit()
    for change in (lambda: out.update(store, old, partly), lambda: out.delete(store, old)):  # type: ignore[arg-type]
        change()
        kinds = {op.key[:4]: op.kind for op in store.buffer.ops() if op.value is None}
        kinds.pop(table_prefix(t.id), None)
        assert len(kinds) == 3
        assert set(kinds.values()) == {OP_DELETE if state == PUBLIC else OP_TOMBSTONE}
        store.buffer = WriteBuffer()


def test_p9_a_refused_condition_is_the_constraint() -> None:
    """The commit of the slower of two inserts fails at a key, which names the constraint."""
    t, store = table(), Store()
    out = writer(t)
    out.insert(store, (1, 2, "x"))  # type: ignore[arg-type]
    store.commit()
    for row, name, detail in (
        ((1, 9, "q"), "t_pkey", "Key (a)=(1) already exists."),
        ((7, 2, "q"), "t_b_key", "Key (b)=(2) already exists."),
    ):
        store.buffer = WriteBuffer()
        out.insert(store, row)  # type: ignore[arg-type]
        with pytest.raises(ConditionFailed) as caught:
            store.commit()
        told = out.violated(caught.value.details["key"])
        assert told is not None
        assert (told.sqlstate, told.constraint, told.detail) == ("23505", name, detail)
    assert out.violated(table_prefix(TableId(999)) + b"x") is None


def test_p5_a_row_twice_in_one_transaction_is_refused_at_once() -> None:
    """The second insert of a key in one statement needs no commit to be wrong."""
    out, store = writer(table()), Store()
    out.insert(store, (1, 2, "x"))  # type: ignore[arg-type]
    for row, name in (((1, 5, "y"), "t_pkey"), ((2, 2, "y"), "t_b_key")):
        with pytest.raises(SqlError) as caught:
            out.insert(store, row)  # type: ignore[arg-type]
        assert caught.value.constraint == name


def test_f1_a_dropped_index_refuses_no_update() -> None:
    """Its predicate, which fails of the new row, would refuse an UPDATE of a table that has no such
    index any more; and an old entry that stays would point to a row that moved.
    """
    first, *_ = table().indexes
    first = replace(first, where="12 / a > 1", where_columns=(1,))
    store = Store()
    before = replace(table(), indexes=(first,))
    writer(before).insert(store, (3, 1, "x"))
    store.commit()
    assert any(key.startswith(table_prefix(first.id)) for key in store.rows)
    with pytest.raises(SqlError, match="division by zero"):
        writer(before).insert(store, (0, 1, "x"))
    for row in ((4, 1, "x"), (0, 1, "x")):
        store = Store()
        old = Stored(writer(before).insert(store, (3, 1, "x")), (3, 1, "x"), 1)
        store.commit()
        dropped = replace(table(), indexes=(replace(first, state=DELETE_ONLY),))
        writer(dropped).update(store, old, row)
        store.commit()
        key, value = codec(dropped).encode_row(row)
        assert store.rows == {table_prefix(dropped.id) + key: value}


def test_an_index_that_a_change_does_not_touch_costs_nothing(monkeypatch: Any) -> None:
    """UPDATE of all rows makes each entry of every index twice, to find that it is the same."""
    t = replace(table(), indexes=table().indexes[:1])
    out, store, row = writer(t), Store(), (1, 2, "x")
    out.insert(store, row)  # type: ignore[arg-type]
    store.commit()
    monkeypatch.setattr(type(index_codec(t, t.indexes[0])), "entry", None)
    out.update(store, Stored(out.key_of(row), row, 1), (*row[:2], "y"))  # type: ignore[arg-type]
    assert [op.key for op in store.buffer.ops()] == [out.key_of(row)]


# -- deferrable constraints


def deferrable(of: Table) -> Table:
    """Its unique indexes are checked when a statement has ended, or at the commit."""
    return replace(
        of,
        indexes=tuple(
            replace(i, constraint=True, deferrable=True, deferred=i.id == 103) if i.unique else i
            for i in of.indexes
        ),
    )


class Later:
    """A statement of a block."""

    def __init__(self) -> None:
        self.deferred = Deferred()

    @property
    def spots(self) -> Spots:
        return self.deferred.spots


class Declared:
    """One table."""

    def __init__(self, of: Table, out: TableWriter) -> None:
        self._of, self._out = of, out

    def table_by_id(self, table: int) -> Table | None:
        return self._of if table == self._of.id else None

    def writer(self, table: Table) -> TableWriter:
        return self._out


def found_by_indexes(of: Table, seen: dict[bytes, bytes]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that each index leads to, each with the values that its entry has."""
    rows = {}
    for key, value in seen.items():
        if key.startswith(table_prefix(of.id)):
            rows[key[4:]] = codec(of).decode_row(key[4:], value)
    found = {}
    for index in of.indexes:
        codec_ = index_codec(of, index)
        entries = [(k[4:], v) for k, v in seen.items() if k.startswith(table_prefix(index.id))]
        read = [codec_.decode(key, value) for key, value in entries]
        names = [rows[one.row_key] for one in read]
        places = [number - 1 for number in index.column_ids]
        for one, row in zip(read, names, strict=True):
            assert one.values == tuple(row[at] for at in places)
        found[index.name] = sorted(names, key=repr)
    return found


def doubled(rows: Sequence[tuple[Any, ...]], *places: int) -> bool:
    keys = [tuple(row[at] for at in places) for row in rows]
    whole = [key for key in keys if None not in key]
    return len(set(whole)) < len(whole)


MOVES = st.dictionaries(st.integers(0, 4), st.one_of(st.none(), ROW), min_size=1, max_size=4)


@settings(max_examples=60)
@given(st.lists(st.tuples(MOVES, st.sampled_from(["", "", "savepoint", "back"])), max_size=6))
async def test_p11_rows_may_share_a_key_until_they_are_looked_at(steps: Any) -> None:
    """An index would forget a row of two that share a key for a moment, keep one that is gone, or
    let two of them be committed.
    """
    t = deferrable(table())
    out, store, later = writer(t), Store(), Later()
    declared: Any = Declared(t, out)
    rows: dict[int, tuple[Any, ...]] = {n: (n, n, "x") for n in range(4)}
    for row in rows.values():
        out.insert(store, row)
    store.commit()
    marks = [(store.buffer.mark(), dict(rows))]
    for moves, mark in steps:
        moved = {key: row for key, row in moves.items() if key in rows and row is not None}
        come = [row for key, row in moves.items() if key not in rows and row is not None]
        before = marks[-1] if mark == "back" else (store.buffer.mark(), dict(rows))
        if mark == "savepoint":
            marks.append(before)
        after = {key: row for key, row in rows.items() if moves.get(key, row) is not None}
        after = [moved.get(key, row) for key, row in after.items()] + come
        if doubled(after, 0) or any(row[0] in rows.keys() - {key} for key, row in moved.items()):
            continue  # the primary key is not deferrable
        old = [Stored(out.key_of(rows[key]), rows[key], 1) for key in moved]
        for key, to in moves.items():
            if key in rows and to is None:
                out.delete(store, Stored(out.key_of(rows[key]), rows[key], 1))
        for one, row in zip(old, moved.values(), strict=True):
            out.update(store, one, row, late=False)
        for row in come:
            out.insert(store, row, late=False)
        news: Any = list(moved.values())
        await out.place(store, later, news, old)
        await out.place(store, later, come)
        seen = found_by_indexes(t, store.seen())
        assert all(found == sorted(after, key=repr) for found in seen.values())
        if doubled(after, 1):
            with pytest.raises(SqlError, match="t_b_key"):
                await settle(store, declared, later.spots, later.deferred)
            store.buffer.undo_to(before[0])
            rows = before[1]
            continue
        later.spots.kept |= later.spots.noted.keys()  # there is a savepoint
        await settle(store, declared, later.spots, later.deferred)
        rows = {row[0]: row for row in after}
        if mark == "back":
            store.buffer.undo_to(before[0])
            rows = dict(before[1])
        seen = found_by_indexes(t, store.seen())
        assert all(found == sorted(rows.values(), key=repr) for found in seen.values())
    if doubled(list(rows.values()), 1, 2):
        with pytest.raises(SqlError, match="t_bc_key"):
            await settle(store, declared, later.spots)
        return
    await settle(store, declared, later.spots)
    store.commit()
    assert store.rows == expected(t, list(rows.values()))
