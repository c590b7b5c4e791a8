"""`kvorum.import`: files, or a query of another PostgreSQL, into one table.

    {table: [namespace, name], source, format?, on_conflict?, on_error?, atomic?, rate?, query?,
    delimiter?, encoding?, compression?}
        → {rows, skipped, errors: [[file, line, code, message], …], files}

    look ──→ load ⟲

`load` reads a piece and writes its rows in the transaction of its step, together with where the
next piece begins: that record is the ledger. So each row is written once, whoever dies when, and an
import that was interrupted goes on after its last piece. `atomic`: all rows in one step, or none
(TRANSFER_ATOMIC_ROWS); else readers see pieces of TRANSFER_CHUNK_ROWS come in, and what was
written before a row that stops the import stays.

Rows go the way that SQL's INSERT goes: defaults, generated columns, NOT NULL, CHECK, unique
indexes, entries of indexes, foreign keys. What a row refers to must be there, or come in the same
piece; a step holds it by the condition that it stays as it is until the step commits (loader.py).
`on_conflict`: "error", or "replace" (the row with that primary key).
`on_error`: "stop" with the file and the line, or "skip": the result lists them. The table is
locked shared: schema changes wait.

Deliberately missing: replacing rows that others refer to (SQL follows them); values for hidden
keys; deferred checks (of a table that refers to itself, rows come after those that they refer to,
or all in one step: `atomic`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from kv.base.errors import InvalidArgument, NotFound, Refused, TooLarge
from kv.base.limits import (
    TRANSFER_ATOMIC_ROWS,
    TRANSFER_CHUNK_ROWS,
    TRANSFER_QUERY_MS,
    TRANSFER_TIMEOUT_MS,
)
from kvorum.transfer import formats, postgresql
from kvorum.transfer.claims import is_claim
from kvorum.transfer.export import DONE, table_in, table_lock
from kvorum.transfer.formats import Piece
from kvorum.transfer.loader import Loader
from kvorum.transfer.places import Found, Place
from kvorum.transfer.services import Services, flag_in, rate_in, text_in
from kvorum.transfer.spools import Written
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step
from sqlproxy.catalog import catalog
from sqlproxy.ddl.steps import CatalogTxn
from sqlproxy.rows.schema import Table, stands_by

IMPORT: Final = "kvorum.import"
IMPORT_HERE: Final = "kvorum.import_here"
_CONFLICTS: Final = ("error", "replace")
_ERRORS: Final = ("stop", "skip")


def _locks(args: object) -> list[Lock]:
    """Asked before anything of a procedure is kept: a password is not. Raises InvalidArgument."""
    source = args.get("source") if isinstance(args, dict) else None
    if isinstance(source, str) and postgresql.is_database(source):
        postgresql.check_no_password(source)
    return table_lock(args)


class _Import:
    """ctx.state: source (digest of what files there are), files; where it stands: file, names,
    offset, line; rows, skipped, errors.
    """

    here = False

    def __init__(self, services: Services) -> None:
        self._services = services

    @step(first=True, deadline_ms=TRANSFER_QUERY_MS)
    async def look(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument, Refused."""
        args = ctx.args
        rate_in(args)
        Written.of(args)
        for field, allowed in (("on_conflict", _CONFLICTS), ("on_error", _ERRORS)):
            if text_in(args, field, allowed[0]) not in allowed:
                raise InvalidArgument(f"{field} is {' or '.join(allowed)}, not {args[field]!r:.40}")
        check_table(await self._table(ctx), args.get("on_conflict", "error"))
        files = await self._files(ctx)
        digest = _digest(files)
        self._services.listings.keep(ctx.id, digest, files)
        ctx.state.update(source=digest, files=len(files), file=0, rows=0, skipped=0)
        ctx.state.update(names=[], offset=0, line=0, errors=[])
        await self._keyless(ctx)
        return go_on("load")

    async def _table(self, ctx: StepContext) -> Table:
        table = await catalog.lookup(await CatalogTxn.of(ctx), *table_in(ctx.args))
        if table.standby:
            raise stands_by(table)
        return table

    async def _keyless(self, ctx: StepContext) -> None:
        """Rows of a query with NULL in the key are never found after a key: they are reported here.
        Raises Refused (NULL_KEYS).
        """
        args, state = ctx.args, ctx.state
        if not postgresql.is_database(args["source"]):
            return
        table = await self._table(ctx)
        count = await self._services.beside(
            lambda: postgresql.count_keyless(args["source"], args.get("query") or "", table)
        )
        if not count:
            return
        keys = ", ".join(table.primary_key)
        text = f"{count} rows of the source have NULL in the primary key ({keys})"
        if args.get("on_error") != "skip":
            raise Refused(
                f'{text}: leave them out (--query "SELECT … WHERE {table.primary_key[0]} IS NOT'
                ' NULL"), give them a key (coalesce), or skip them (--on-error skip)',
                code="NULL_KEYS",
                details={"rows": count},
            )
        state["skipped"] = count
        state["errors"] = [["query", 0, "NULL_KEYS", text]]

    async def _place(self, ctx: StepContext) -> Place:
        return await self._services.place(ctx, "source", here=self.here)

    async def _files(self, ctx: StepContext) -> list[Found]:
        """In order; one without a name is the source itself."""
        source = text_in(ctx.args, "source")
        if postgresql.is_database(source):
            await self._services.check_database(ctx, source, here=self.here)
            return [Found("", 0, 0)]
        place = await self._place(ctx)
        files = [
            one
            for one in await self._services.beside(place.files)
            if one.name != DONE and not is_claim(one.name)
        ]
        if not files:
            raise Refused(f"there are no files in {place.uri}", code="NO_FILES")
        for one in files:
            formats.format_of(one.name or source, ctx.args.get("format", ""))
        return files

    @step(deadline_ms=TRANSFER_QUERY_MS)
    async def load(self, ctx: StepContext) -> Outcome:
        """A piece, or (atomic) all of them."""
        state, services = ctx.state, self._services
        began = services.timers.monotonic()
        files = await self._same_files(ctx)
        loader = await Loader.of(ctx, await self._table(ctx))
        atomic = flag_in(ctx.args, "atomic")
        while state["file"] < len(files):
            await self._is_same(ctx, files[state["file"]])
            piece, where = await self._piece(ctx, files[state["file"]].name, loader.table)
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
        if state["file"] == len(files):
            await self._same_files(ctx, anew=True)
        await loader.flush()
        state["rows"] += loader.written
        ctx.progress(
            state["file"] / len(files), f"{state['rows']} rows, {state['skipped']} skipped"
        )
        if state["file"] < len(files):
            return services.paced(began, loader.size, ctx.args)
        services.listings.drop(ctx.id)
        services.spools.drop(ctx.id)
        return done({name: state[name] for name in ("rows", "skipped", "errors", "files")})

    async def _same_files(self, ctx: StepContext, *, anew: bool = False) -> list[Found]:
        """The files that the import began with: listed by a process that does not know them yet,
        and in the end. Raises Refused.
        """
        listings = self._services.listings
        kept = None if anew else listings.get(ctx.id, ctx.state["source"])
        if kept is not None:
            return kept
        files = await self._files(ctx)
        if _digest(files) != ctx.state["source"]:
            raise _changed(ctx)
        listings.keep(ctx.id, ctx.state["source"], files)
        return files

    async def _is_same(self, ctx: StepContext, file: Found) -> None:
        """Whether a file is still what it was, before a piece of it is read. Raises Refused."""
        source = text_in(ctx.args, "source")
        if postgresql.is_database(source):
            return
        place = await self._place(ctx)
        try:
            found = await self._services.beside(lambda: place.found(file.name))
        except NotFound as error:
            raise _changed(ctx) from error
        if found != file:
            raise _changed(ctx)

    async def _piece(self, ctx: StepContext, name: str, table: Table) -> tuple[Piece, str]:
        """The next rows, and the file's name for people. Raises InvalidArgument, Unavailable."""
        state, args = ctx.state, ctx.args
        if postgresql.is_database(args["source"]):
            await self._services.check_database(ctx, args["source"], here=self.here)
            piece = await self._services.beside(
                lambda: postgresql.read_piece(
                    args["source"],
                    args.get("query") or "",
                    table,
                    state["offset"],
                    TRANSFER_CHUNK_ROWS,
                )
            )
            return piece, "query"
        place = await self._place(ctx)
        kind = formats.format_of(name or args["source"], args.get("format", ""))

        written = Written.of(args)
        spools, key = self._services.spools, (ctx.id, f"{place.uri}/{name}")

        def read() -> Piece:
            with spools.opened(key, written, kind, lambda: place.open(name)) as file:
                where = (state["names"], state["offset"], state["line"], TRANSFER_CHUNK_ROWS)
                kept = self._services.groups, (ctx.id, place.uri, name)
                return formats.read_piece(
                    kind, file, *where, kept=kept, delimiter=written.delimiter
                )

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
    if table.referenced_by and on_conflict == "replace":
        raise Refused(
            f"rows of other tables refer to {table.path}: replace rows by SQL, which follows them",
            code="REFERENCED",
        )


def _changed(ctx: StepContext) -> Refused:
    return Refused(
        "the files of the source are not those that the import began with: one came, went"
        f" or was changed; {ctx.state['rows']} rows are in the table, import what is there now"
        " with --on-conflict replace",
        code="SOURCE_CHANGED",
    )


def _digest(files: Sequence[Found]) -> str:
    """Of names, sizes and times: a store may change what a name stands for."""
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()
