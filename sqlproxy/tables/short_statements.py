"""Statements by themselves that one partition can answer in one request, or two: what they ask of
it, and what they make of its answer. Pure; who sends is `sqlproxy.session.running.short_requests`.

    SELECT by primary key             key ─ GET ─▶ rows
    INSERT of rows                    ops ─ PUT, or WRITE of several ─▶ outcome
    INSERT of many rows               keys, values ─ WRITE_ROWS ─▶ outcome
    UPDATE, DELETE by primary key     key ─ GET ─▶ op ─ PUT, DELETE ─▶ outcome

No snapshot is needed: a read of one key is one by itself, an INSERT reads nothing, and what an
UPDATE or DELETE read is the condition of its write. So there is no transaction, and no timestamp
to begin with: the partition puts each write where it comes (docs/decisions/1020).

A refused condition, an intent in the way, a key that moved: all that is not as usual is left to the
usual way, which begins again; nothing was written then. Left out for good: what may read or write
other rows (foreign keys, entries of indexes, ON CONFLICT, subqueries).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kv.base.ops import Op, delete, put
from sqlproxy.front.bound.env import Env
from sqlproxy.pg.answers import Answered
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.rows.schema import Table
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.reading import TableReader
from sqlproxy.tables.referring import Tables
from sqlproxy.tables.rules import Row
from sqlproxy.tables.selecting import SelectPlan
from sqlproxy.tables.writing import DeletePlan, InsertPlan, UpdatePlan
from txn.shared.message_sizes import rises


@dataclass(slots=True)
class Gathered:
    """Changes of rows as ops (`sqlproxy.tables.changing.Writes`)."""

    ops: list[Op] = field(default_factory=list)

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> None:
        self.ops.append(put(key, value, cond))

    def delete(self, key: bytes, *, tombstone: bool = False) -> None:
        self.ops.append(delete(key, tombstone=tombstone))


class ShortSelect:
    """The row of one key."""

    def __init__(self, plan: SelectPlan) -> None:
        self._plan = plan
        self.key = plan.reader.point
        self._decoded = codec(plan.reader.table).decode_row

    def rows(self, key: bytes, found: bytes | None, env: Env) -> list[Row]:
        """The answer. Raises SqlError."""
        if found is None:
            return []
        return self._plan.rows_of(self._decoded(key[4:], found), env)


class ShortInsert:
    """`count` rows that must be new. `sequences`: what numbers them, and how many of each."""

    def __init__(self, plan: InsertPlan, writer: TableWriter) -> None:
        self._plan, self._writer = plan, writer
        self.sequences = sorted(plan.numbers(writer).items())
        self.count = plan.count
        self.done = Answered(f"INSERT 0 {plan.count}")
        self.numberings: Sequence[tuple[str, SequenceRow, int]] | None = None  # the sender's
        self.single = plan.single(writer)

    def many(self, env: Env) -> tuple[list[bytes], list[bytes]] | None:
        """Keys, which rise, and values of many rows without RETURNING; None: `ops` makes them, or
        says that a key is twice among them. Raises SqlError.
        """
        columns = None if self._plan.returns else self._plan.many(self._writer, env)
        if columns is None:
            return None
        (part,) = self._writer.encoded(columns)
        keys, values = part.keys, part.values
        if rises(keys):
            return keys, values
        rows = dict(sorted(zip(keys, values, strict=True)))
        return (list(rows), list(rows.values())) if len(rows) == len(keys) else None

    def ops(self, env: Env) -> tuple[list[Op] | None, Sequence[Row]]:
        """What to write, and what RETURNING says of it. None: a key is twice among it. Raises
        SqlError.
        """
        rows = self._plan.made(self._writer, env)
        gathered = Gathered()
        for row in rows:
            self._writer.insert(gathered, row)
        ops = gathered.ops
        if len(ops) > 1 and len({op.key for op in ops}) < len(ops):
            return None, ()
        return ops, self._plan.returned(rows, env)


class ShortChange:
    """One row that is changed in place, or removed."""

    def __init__(self, plan: UpdatePlan | DeletePlan, writer: TableWriter) -> None:
        assert plan.meant is not None
        self._plan, self._writer, self._meant = plan, writer, plan.meant
        self._reader: TableReader = plan.meant.reader
        self.key = self._reader.point
        self.removes = isinstance(plan, DeletePlan)

    def change(
        self, key: bytes, found: bytes | None, version: int, env: Env
    ) -> tuple[bytes | None, Sequence[Row]] | None:
        """What the row becomes, if nobody changed it meanwhile, None if it goes; and what RETURNING
        says of it. None: no row is meant. Raises SqlError.
        """
        if found is None:
            return None
        old = self._reader.stored(key, found, version)
        seen = self._meant.meant(old, env)
        if seen is None:
            return None
        plan = self._plan
        if isinstance(plan, UpdatePlan):
            row = plan.assignments.new(self._writer, old, seen, env)
            return self._writer.replaced(row), plan.returned(row, env)
        self._writer.check_open()
        return None, plan.returned(seen, env)


Short = ShortSelect | ShortInsert | ShortChange


def short_of(plan: object, tables: Tables) -> Short | None:
    """The short way of a plan, if it has one. Raises SqlError."""
    if getattr(getattr(plan, "table", None), "private", False):
        return None  # there is nobody to ask
    match plan:
        case SelectPlan() if plan.point and not plan.select.locking and not plan.select.as_of:
            return ShortSelect(plan)
        case InsertPlan() if plan.plain and _alone(plan.table) and not plan.table.indexes:
            writer = tables.writer(plan.table)
            waits = plan.unsure(writer) or plan.returns_numbers
            return None if waits else ShortInsert(plan, writer)
        case UpdatePlan() if _by_key(plan) and not plan.assignments.moves:
            writer = tables.writer(plan.table)
            if writer.rules.taken or _touches_index(plan, writer):
                return None
            return None if tables.referring_to(plan.table.id) else ShortChange(plan, writer)
        case DeletePlan() if _by_key(plan) and not plan.table.indexes:
            if tables.referring_to(plan.table.id):
                return None
            return ShortChange(plan, tables.writer(plan.table))
        case _:
            return None


def _alone(table: Table) -> bool:
    return not (table.plain or table.foreign_keys)


def _by_key(plan: UpdatePlan | DeletePlan) -> bool:
    """Whether it means one row of the primary key at most."""
    if plan.meant is None or not _alone(plan.table):
        return False
    return plan.meant.reader.access.one_row


def _touches_index(plan: UpdatePlan, writer: TableWriter) -> bool:
    """Whether an entry of an index may change with what it sets."""
    table = plan.table
    places = {place for place, _ in (*writer.rules.generated, *writer.rules.on_update)}
    changed = plan.assignments.changed | {table.columns[place].id for place in places}
    held = {n for index in table.indexes for n in index.used_ids}
    return bool(changed & held)
