"""`kvorum.import`: files, or a query of another PostgreSQL, into one table.

    {table: [namespace, name], source, format?, on_conflict?, on_error?, atomic?, rate?, query?}
        → {rows, skipped, errors: [[file, line, code, message], …], files}

    look ──→ load ⟲

`load` reads a piece and writes its rows in the transaction of its step, together with where the
next piece begins: that record is the ledger. So each row is written once, whoever dies when, and an
import that was interrupted goes on behind its last piece. `atomic`: all rows in one step, or none
(TRANSFER_ATOMIC_ROWS); else readers see pieces of TRANSFER_CHUNK_ROWS come in, and what was
written before a row that stops the import stays.

Rows go the way that SQL's INSERT goes: defaults, generated columns, NOT NULL, CHECK, unique
indexes, entries of indexes. `on_conflict`: "error", or "replace" (the row with that primary key).
`on_error`: "stop" with the file and the line, or "skip": they are told in the result. The table is
locked shared: schema changes wait.

Deliberately missing: tables with foreign keys, and replacing rows that others refer to (COPY and
INSERT of SQL check these); values for hidden keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from kv.base.errors import ConditionFailed, InvalidArgument, Refused, TooLarge
from kv.base.keys import table_prefix
from kv.base.limits import (
    KEY_BYTES_MAX,
    MULTI_KEYS_MAX,
    TRANSFER_ATOMIC_ROWS,
    TRANSFER_CHUNK_ROWS,
    TRANSFER_ERRORS_MAX,
    TRANSFER_TIMEOUT_MS,
)
from kvorum.transfer import formats, jdbc
from kvorum.transfer.allowed import check_database, check_place
from kvorum.transfer.export import DONE, table_in, table_lock
from kvorum.transfer.formats import Cells, Piece
from kvorum.transfer.places import place_of
from kvorum.transfer.services import Services, flag_in, pause_ms, rate_in, text_in
from kvorum.transfer.tables import PLAIN, declared, environment, given, problem
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step
from sqlproxy import catalog, sequences
from sqlproxy.rows import codec
from sqlproxy.schema import Table
from sqlproxy.steps import CatalogTxn

IMPORT: Final = "kvorum.import"
IMPORT_HERE: Final = "kvorum.import_here"
_CONFLICTS: Final = ("error", "replace")
_ERRORS: Final = ("stop", "skip")
_MESSAGE_CHARS_MAX: Final = 500
_MISSING: Any = object()


def _locks(args: Any) -> list[Lock]:
    """Asked before anything of a procedure is kept: a password is not. Raises InvalidArgument."""
    source = args.get("source") if isinstance(args, dict) else None
    if isinstance(source, str) and jdbc.is_database(source):
        jdbc.check_no_password(source)
    return table_lock(args)


class _Import:
    """ctx.state: source (digest of the names), files; where it stands: file, names, offset, line;
    rows, skipped, errors.
    """

    here = False

    def __init__(self, services: Services) -> None:
        self._services = services

    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument, Refused."""
        args = ctx.args
        rate_in(args)
        for field, allowed in (("on_conflict", _CONFLICTS), ("on_error", _ERRORS)):
            if text_in(args, field, allowed[0]) not in allowed:
                raise InvalidArgument(f"{field} is {' or '.join(allowed)}, not {args[field]!r:.40}")
        check_table(await self._table(ctx), args.get("on_conflict", "error"))
        names = await self._names(ctx)
        ctx.state.update(source=_digest(names), files=len(names), file=0, rows=0, skipped=0)
        ctx.state.update(names=[], offset=0, line=0, errors=[])
        return go_on("load")

    async def _table(self, ctx: StepContext) -> Table:
        return await catalog.lookup(await CatalogTxn.of(ctx), *table_in(ctx.args))

    async def _names(self, ctx: StepContext) -> list[str]:
        """The files, in order; [""] is the source itself."""
        source = text_in(ctx.args, "source")
        if jdbc.is_database(source):
            check_database(source, here=self.here, listed=self._services.places)
            return [""]
        services = self._services
        await services.beside(lambda: check_place(source, here=self.here, listed=services.places))
        place = place_of(source)
        names = await services.beside(place.names)
        names = [name for name in names if name != DONE]
        if not names:
            raise Refused(f"there are no files in {place.uri}", code="NO_FILES")
        for name in names:
            formats.format_of(name or source, ctx.args.get("format", ""))
        return names

    @step
    async def load(self, ctx: StepContext) -> Outcome:
        """A piece, or (atomic) all of them."""
        state, services = ctx.state, self._services
        began = services.timers.monotonic()
        names = await self._names(ctx)
        if _digest(names) != state["source"]:
            raise Refused(
                "the files of the source are not those that the import began with",
                code="SOURCE_CHANGED",
            )
        loader = await _Loader.of(ctx, await self._table(ctx))
        atomic = flag_in(ctx.args, "atomic")
        while state["file"] < len(names):
            piece, where = await self._piece(ctx, names[state["file"]], loader.table)
            await loader.take(piece, where)
            if atomic and loader.written > TRANSFER_ATOMIC_ROWS:
                raise TooLarge(
                    f"an atomic import has at most {TRANSFER_ATOMIC_ROWS} rows; without --atomic "
                    "it comes in pieces, or load it with Spark",
                    details={"limit": TRANSFER_ATOMIC_ROWS},
                )
            if piece.offset is None:
                state.update(file=state["file"] + 1, names=[], offset=0, line=0)
            else:
                state.update(names=piece.names, offset=piece.offset, line=piece.line)
            if not atomic:
                break
        await loader.flush()
        state["rows"] += loader.written
        ctx.progress(
            state["file"] / len(names), f"{state['rows']} rows, {state['skipped']} skipped"
        )
        if state["file"] < len(names):
            took_ms = (services.timers.monotonic() - began) * 1000
            size = loader.size
            return again(delay_ms=pause_ms(size, ctx.args.get("rate", 0), took_ms))
        told = {name: state[name] for name in ("rows", "skipped", "errors", "files")}
        return done(told)

    async def _piece(self, ctx: StepContext, name: str, table: Table) -> tuple[Piece, str]:
        """The next rows, and the file's name for people. Raises InvalidArgument, Unavailable."""
        state, args = ctx.state, ctx.args
        if jdbc.is_database(args["source"]):
            piece = await self._services.beside(
                lambda: jdbc.read_piece(
                    args["source"], args.get("query") or "", table, state["offset"],
                    TRANSFER_CHUNK_ROWS,
                )
            )  # fmt: skip
            return piece, "query"
        place = place_of(args["source"])
        kind = formats.format_of(name or args["source"], args.get("format", ""))

        def read() -> Piece:
            with place.open(name) as file:
                where = (state["names"], state["offset"], state["line"], TRANSFER_CHUNK_ROWS)
                kept = self._services.groups, (ctx.id, place.uri, name)
                return formats.read_piece(kind, file, *where, kept=kept)

        try:
            return await self._services.beside(read), name or place.uri.rpartition("/")[2]
        except InvalidArgument as error:
            raise InvalidArgument(f"{name or place.uri}: {error.message}") from error


@procedure(IMPORT, locks=_locks, timeout_ms=TRANSFER_TIMEOUT_MS)
class Import(_Import):
    """Run by the nodes."""


@procedure(IMPORT_HERE, locks=_locks, timeout_ms=TRANSFER_TIMEOUT_MS)
class ImportHere(_Import):
    """Run by the process of the command."""

    here = True


def check_table(table: Table, on_conflict: str) -> None:
    """Raises Refused: SQL has to write to it."""
    if table.foreign_keys:
        raise Refused(
            f"table {table.path} has foreign keys, which an import does not check: use "
            "`kvorum sql` with COPY … FROM STDIN",
            code="FOREIGN_KEYS",
        )
    if table.referenced_by and on_conflict == "replace":
        raise Refused(
            f"rows of other tables refer to {table.path}: replace rows by SQL, which follows them",
            code="REFERENCED",
        )


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


class _Loader:
    """The rows of one step: written into an overlay, which goes to the step's transaction at the
    end; so a row that turns out to be wrong leaves nothing of it.
    """

    def __init__(self, ctx: StepContext, table: Table, declarations: Any) -> None:
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
    async def of(ctx: StepContext, table: Table) -> _Loader:
        if table.plain:
            return _Loader(ctx, table, None)
        there = await declared(await CatalogTxn.of(ctx), table)
        found = there.table_by_id(table.id)
        assert found is not None, "both are of one snapshot"
        return _Loader(ctx, found, there)

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
        """Tell the piece's bad rows, in the order of their lines. Raises Refused."""
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

    async def _plain(self, rows: Sequence[tuple[Cells, Any]]) -> None:
        prefix = table_prefix(self.table.id)
        there: dict[bytes, Any] = {}
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

    async def _ruled(self, rows: Sequence[tuple[Cells, Any]]) -> None:
        assert self._writer is not None
        await self._reserve(len(rows))
        finished: list[tuple[Cells, Any]] = []
        for cells, row in rows:
            try:
                finished.append((cells, self._finished(row)))
            except Exception as error:  # noqa: BLE001 - `problem` raises what is not the row's
                self._wrong(cells, error)
        found = await self._txn.multi_get([self._writer.key_of(row) for _, row in finished])
        old = [self._stored(row, there) for (_, row), there in zip(finished, found, strict=True)]
        taken = await self._writer.seek(self._txn, [row for _, row in finished], old)
        for (cells, row), before, other in zip(finished, old, taken, strict=True):
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
                self._wrong(cells, error)
                continue
            self._count(sum(len(str(value)) for value in row))

    def _stored(self, row: Any, there: Any) -> Any:
        """The row that this one replaces."""
        if there is None or not self._replace:
            return None
        from sqlproxy.fast.reading import Stored

        assert self._writer is not None
        key = self._writer.key_of(row)
        return Stored(key, codec(self.table).decode_row(key[4:], there[0]), there[1])

    def _finished(self, values: list[Any]) -> Any:
        assert self._writer is not None
        rules = self._writer.rules
        for place, value in enumerate(values):
            if value is _MISSING:
                default = rules.defaults.get(place)
                values[place] = None if default is None else default((), self._env)
        row = rules.finished(values, self._env)
        codec(self.table).encode_row(row)  # what does not fit is the row's fault
        return row

    async def _reserve(self, count: int) -> None:
        """Numbers for defaults; what is not used is a gap, as in PostgreSQL."""
        assert self._writer is not None
        for name in sorted(self._writer.rules.sequences):
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
        self._fields: dict[str, Callable[[Any], Any]] = {}
        self._places = {column.name: at for at, column in enumerate(table.columns)}
        if names:
            given(table, names)

    def of(self, cells: Cells) -> Any:
        """Raises what `problem` explains, with the column."""
        if self._names:
            told = dict(zip(self._names, cells.values, strict=True))
        else:  # an object of JSON
            told = cells.values[0]
            given(self._table, list(told))
        values = {name: self._value(name, cell) for name, cell in told.items()}
        if self._table.plain:
            for name in PLAIN:
                if values[name] is None:
                    raise ValueError(f"{name} has no value")
            return values["key"], values["value"]
        row = [_MISSING] * len(self._table.columns)
        for name, value in values.items():
            row[self._places[name]] = value
        return row

    def _value(self, name: str, cell: Any) -> Any:
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


def given_one(table: Table, name: str) -> list[Any]:
    """The column of this name, [None] for one of a plain table."""
    return [None] if table.plain else [table.column(name)]


def checked_key(key: bytes) -> bytes:
    """Raises ValueError."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")
    return key


class _Overlay:
    """Writes of one step before they are its transaction's: to be read, and to be taken back.
    `Reads` of sqlproxy.fast, `Writes` of its TableWriter, `Writer` of the catalog.
    """

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._ops: dict[bytes, tuple[bytes | None, int | None]] = {}
        self._journal: list[tuple[bytes, tuple[bytes | None, int | None] | None]] = []
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
        return self._ops.get(key, (None,))[0] is not None

    def own(self, key: bytes) -> tuple[bytes, int]:
        value = self._ops[key][0]
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
                value = self._ops[key][0]
                found[at] = None if value is None else (value, 0)
        return found

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        raise AssertionError("an import looks rows up by their keys")

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> None:
        before = self._ops.get(key)
        if cond == 0 and before is not None:
            if before[0] is not None:
                raise ConditionFailed("this step wrote it", details={"key": key, "version": 0})
            cond = before[1]  # it was there, and this step removed it
        self._set(key, (value, cond if before is None else before[1]))

    def delete(self, key: bytes) -> None:
        before = self._ops.get(key)
        self._set(key, (None, None if before is None else before[1]))

    def check(self, key: bytes, version: int) -> None:
        self._ctx.txn.check(key, version)

    def _set(self, key: bytes, op: tuple[bytes | None, int | None]) -> None:
        self._journal.append((key, self._ops.get(key)))
        self._ops[key] = op

    def flush(self) -> None:
        for key, (value, cond) in self._ops.items():
            if value is not None:
                self._ctx.txn.put(key, value, cond=cond)
            else:
                self._ctx.txn.delete(key)
