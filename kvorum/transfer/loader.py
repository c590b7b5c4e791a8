"""The rows of one step of an import: checked as SQL's INSERT checks them, and written.

Rows are written into an overlay, which goes to the step's transaction at the end: so a row that
turns out to be wrong leaves nothing of it. Foreign keys are looked at after the rows of a piece,
so that these may refer to each other in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kv.base import ops
from kv.base.errors import ConditionFailed, InvalidArgument, Refused
from kv.base.keys import table_prefix
from kv.base.limits import KEY_BYTES_MAX, MULTI_KEYS_MAX, TRANSFER_ERRORS_MAX
from kv.base.ops import Op
from kvorum.transfer import formats
from kvorum.transfer.formats import Cells, Piece
from kvorum.transfer.tables import PLAIN, declared, environment, given, problem
from procedures.engine.context import StepContext
from sqlproxy.catalog import sequences
from sqlproxy.ddl.steps import CatalogTxn
from sqlproxy.rows.rows import Row, codec
from sqlproxy.rows.schema import Column, Table

if TYPE_CHECKING:
    from sqlproxy.declared.database import Declared
    from sqlproxy.tables.reading import Stored

_MESSAGE_CHARS_MAX: Final = 500
_MISSING: object = object()


class Loader:
    """The rows of one step: written into an overlay, which goes to the step's transaction at the
    end; so a row that turns out to be wrong leaves nothing of it.
    """

    def __init__(self, ctx: StepContext, table: Table, declarations: Declared | None) -> None:
        self._ctx, self.table = ctx, table
        self._replace = ctx.args.get("on_conflict") == "replace"
        self._skip = ctx.args.get("on_error") == "skip"
        self._txn = _Overlay(ctx)
        self._bad: list[tuple[int, str, str]] = []
        self._numbers: dict[str, list[int]] = {}
        self._writer = None if declarations is None else declarations.writer(table)
        self._declared = declarations
        self._env = environment(table, ctx.now_ms, self._nextval) if declarations else None
        self.written = self.size = 0

    @staticmethod
    async def of(ctx: StepContext, table: Table) -> Loader:
        if table.plain:
            return Loader(ctx, table, None)
        there = await declared(await CatalogTxn.of(ctx), table)
        found = there.table_by_id(table.id)
        assert found is not None, "both are of one snapshot"
        return Loader(ctx, found, there)

    async def take(self, piece: Piece, where: str) -> None:
        """Its rows. Raises Refused (IMPORT_ROW): the first that cannot be taken."""
        rows: list[tuple[Cells, Any]] = []
        made = _Made(self.table, piece.names)
        for cells in piece.rows:
            try:
                if cells.broken:
                    raise ValueError(cells.broken)
                rows.append((cells, made.of(cells)))
            except Exception as error:  # noqa: BLE001 - `problem` raises what is not the row's
                self._wrong(cells, error)
        if self._writer is None:
            await self._plain(rows)
        else:
            await self._ruled(rows)
        self._judge(where)

    def _wrong(self, cells: Cells, error: Exception) -> None:
        code, message = problem(error)
        self._bad.append((cells.line, code, message[:_MESSAGE_CHARS_MAX]))

    def _judge(self, where: str) -> None:
        """Report the piece's bad rows, in the order of their lines. Raises Refused."""
        state = self._ctx.state
        bad, self._bad = sorted(self._bad), []
        if bad and not self._skip:
            line, code, message = bad[0]
            raise Refused(
                f"{where}, line {line}: {message}",
                code="IMPORT_ROW",
                details={"file": where, "line": line, "reason": code},
            )
        state["skipped"] += len(bad)
        room = TRANSFER_ERRORS_MAX - len(state["errors"])
        state["errors"] += [[where, *one] for one in bad[:room]]

    async def _plain(self, rows: Sequence[tuple[Cells, tuple[bytes, bytes]]]) -> None:
        prefix = table_prefix(self.table.id)
        there: dict[bytes, object] = {}
        if not self._replace:
            keys = [prefix + key for _, (key, _) in rows]
            there = dict(zip(keys, await self._txn.multi_get(keys), strict=True))
        for cells, (key, value) in rows:
            try:
                codec_key = prefix + checked_key(key)
                if not self._replace and (there.get(codec_key) or self._txn.has(codec_key)):
                    raise ValueError(f"the key {formats.bytes_shown(key)!r:.80} exists already")
                self._txn.put(codec_key, value, cond=None if self._replace else 0)
            except Exception as error:  # noqa: BLE001 - `problem` raises what is not the row's
                self._wrong(cells, error)
                continue
            self._count(len(key) + len(value))

    async def _ruled(self, rows: Sequence[tuple[Cells, list[object]]]) -> None:
        assert self._writer is not None
        await self._reserve([row for _, row in rows])
        finished: list[tuple[Cells, Row]] = []
        for cells, row in rows:
            try:
                finished.append((cells, self._finished(row)))
            except Exception as error:  # noqa: BLE001 - `problem` raises what is not the row's
                self._wrong(cells, error)
        start = self._txn.mark()
        while True:
            written, wrong = await self._written(finished)
            orphans = await self._orphans(written)
            if not orphans:
                break
            # Those that go may be what others refer to, or have kept a key from others.
            self._txn.back_to(start)
            for cells, why in orphans:
                self._wrong(cells, why)
            gone = {cells.line for cells, _ in orphans}
            finished = [one for one in finished if one[0].line not in gone]
        for cells, why in wrong:
            self._wrong(cells, why)
        for _, values in written:
            self._count(sum(len(str(value)) for value in values))

    async def _written(
        self, rows: Sequence[tuple[Cells, Row]]
    ) -> tuple[list[tuple[Cells, Row]], list[tuple[Cells, Exception]]]:
        """Write rows into the overlay: those that are there now, and what is wrong with others."""
        assert self._writer is not None
        written, wrong = [], []
        found = await self._txn.multi_get([self._writer.key_of(row) for _, row in rows])
        old = [self._stored(row, there) for (_, row), there in zip(rows, found, strict=True)]
        taken = await self._writer.look(self._txn, [row for _, row in rows], old)
        for (cells, row), before, other in zip(rows, old, taken, strict=True):
            mark = self._txn.mark()
            try:
                if other is not None:
                    raise self._writer.refused(other, row)
                key = self._writer.key_of(row)
                if self._replace and self._txn.has(key):
                    before = self._stored(row, self._txn.own(key))
                if before is None:
                    self._writer.insert(self._txn, row)
                else:
                    self._writer.update(self._txn, before, row)
            except Exception as error:  # noqa: BLE001 - `problem` raises what is not the row's
                self._txn.back_to(mark)
                problem(error)
                wrong.append((cells, error))
                continue
            written.append((cells, row))
        return written, wrong

    async def _orphans(self, rows: Sequence[tuple[Cells, Row]]) -> list[tuple[Cells, Exception]]:
        """Which of the written rows refer to nothing. What the others refer to stays as it is
        until the step commits, or the step runs again.
        """
        if not self.table.foreign_keys:
            return []
        from sqlproxy.tables.referring import parents_of

        assert self._declared is not None
        wanted = [(cells, parents_of(self._declared, self.table, row)) for cells, row in rows]
        keys = sorted({key for _, parents in wanted for key, _ in parents})
        found = dict(zip(keys, await self._txn.multi_get(keys), strict=True))
        for key, there in found.items():
            if there is not None and there[1]:
                self._ctx.txn.hold(key, there[1])
        return [
            (cells, missing[0]())
            for cells, parents in wanted
            if (missing := [error for key, error in parents if found[key] is None])
        ]

    def _stored(self, row: Row, there: tuple[bytes, int] | None) -> Stored | None:
        """The row that this one replaces."""
        if there is None or not self._replace:
            return None
        from sqlproxy.tables.reading import Stored

        assert self._writer is not None
        key = self._writer.key_of(row)
        return Stored(key, codec(self.table).decode_row(key[4:], there[0]), there[1])

    def _finished(self, values: list[object]) -> Row:
        assert self._writer is not None
        assert self._env is not None
        rules = self._writer.rules
        for place, value in enumerate(values):
            if value is _MISSING:
                default = rules.defaults.get(place)
                values[place] = None if default is None else default((), self._env)
        row = rules.finished(values, self._env)
        codec(self.table).encode_row(row)  # what does not fit is the row's fault
        return row

    async def _reserve(self, rows: Sequence[list[object]]) -> None:
        """Numbers for defaults; those of rows that are refused are gaps, as in PostgreSQL."""
        assert self._writer is not None
        assert self._declared is not None
        rules = self._writer.rules
        if not (rules.taken or rules.perhaps):
            return
        wanted: Counter[str] = Counter()
        for row in rows:
            given = {place for place, value in enumerate(row) if value is not _MISSING}
            wanted += rules.numbers(given, most=True)
        for name, count in sorted(wanted.items()):
            sequence = self._declared.numbering(name)
            have = self._numbers.setdefault(name, [])
            while len(have) < count:
                run = await sequences.take(self._txn, sequence, count - len(have))
                have += [run.first + i * run.step for i in range(run.size)]

    def _nextval(self, name: str) -> int:
        return self._numbers[name].pop(0)

    def _count(self, size: int) -> None:
        self.written += 1
        self.size += size

    async def flush(self) -> None:
        self._txn.flush()


class _Made:
    """Cells of a file into values: (key, value) of a plain table, else all columns of the
    descriptor, `_MISSING` for those that the file does not have.
    """

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        self._table = table
        self._names = list(names)
        self._fields: dict[str, Callable[[object], object]] = {}
        self._places = {column.name: at for at, column in enumerate(table.columns)}
        if names:
            given(table, names)

    def of(self, cells: Cells) -> Any:
        """Raises what `problem` explains, with the column."""
        if self._names:
            named = dict(zip(self._names, cells.values, strict=True))
        else:  # an object of JSON
            named = cells.values[0]
            given(self._table, list(named))
        values = {name: self._value(name, cell) for name, cell in named.items()}
        if self._table.plain:
            for name in PLAIN:
                if values[name] is None:
                    raise ValueError(f"{name} has no value")
            return values["key"], values["value"]
        row = [_MISSING] * len(self._table.columns)
        for name, value in values.items():
            row[self._places[name]] = value
        return row

    def _value(self, name: str, cell: object) -> object:
        if cell is None:
            return None
        convert = self._fields.get(name)
        if convert is None:
            (column,) = given_one(self._table, name)
            convert = self._fields[name] = formats.from_value(column)
        try:
            return convert(cell)
        except Exception as error:
            code, message = problem(error)
            raise InvalidArgument(f"column {name}: {message}", code=code) from error


def given_one(table: Table, name: str) -> list[Column | None]:
    """The column of this name, [None] for one of a plain table."""
    return [None] if table.plain else [table.column(name)]


def checked_key(key: bytes) -> bytes:
    """Raises ValueError."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")
    return key


class _Overlay:
    """Writes of one step before they are its transaction's: to be read, and to be taken back.
    `KeysSeen` of sqlproxy.tables, `Writes` of its TableWriter, `Writer` of the catalog.
    """

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._ops: dict[bytes, Op] = {}
        self._journal: list[tuple[bytes, Op | None]] = []
        self.start_ts = 0

    def mark(self) -> int:
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        while len(self._journal) > mark:
            key, before = self._journal.pop()
            if before is None:
                del self._ops[key]
            else:
                self._ops[key] = before

    def has(self, key: bytes) -> bool:
        """Whether this step wrote it."""
        return key in self._ops and self._ops[key].value is not None

    def own(self, key: bytes) -> tuple[bytes, int]:
        value = self._ops[key].value
        assert value is not None
        return value, 0

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        (found,) = await self.multi_get([key])
        return (None, 0) if found is None else found

    async def multi_get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        found: list[tuple[bytes, int] | None] = []
        for at in range(0, len(keys), MULTI_KEYS_MAX):
            rows = await self._ctx.txn.multi_get(keys[at : at + MULTI_KEYS_MAX])
            found += [None if row is None else (row.value, row.version) for row in rows]
        for at, key in enumerate(keys):
            if key in self._ops:
                value = self._ops[key].value
                found[at] = None if value is None else (value, 0)
        return found

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        raise AssertionError("an import looks rows up by their keys")

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> None:
        before = self._ops.get(key)
        if cond == 0 and before is not None:
            if before.value is not None:
                raise ConditionFailed("this step wrote it", details={"key": key, "version": 0})
            cond = before.cond  # it was there, and this step removed it
        self._set(ops.put(key, value, cond if before is None else before.cond))

    def delete(self, key: bytes, *, tombstone: bool = False) -> None:
        before = self._ops.get(key)
        cond = None if before is None else before.cond
        self._set(ops.delete(key, cond, tombstone=tombstone))

    def check(self, key: bytes, version: int) -> None:
        self._ctx.txn.check(key, version)

    def _set(self, op: Op) -> None:
        self._journal.append((op.key, self._ops.get(op.key)))
        self._ops[op.key] = op

    def flush(self) -> None:
        for op in self._ops.values():
            self._ctx.txn.add(None, op if op.value is not None else op._replace(cond=None))
