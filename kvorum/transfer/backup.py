"""`kvorum.backup`: everything that the cluster holds, as it was at one timestamp, to files.

    {target, locks, rate?, encrypt?}   → {target, id, at, files, rows, bytes, tables, key}

    begin ──→ hold ──→ copy ⟲ ──→ seal
        └ undo: let_go (of the snapshot, and of what was written)

`begin` takes the timestamp: everything is read at it, rows by a snapshot that is held, so nobody
waits and nothing is missing, whatever is written meanwhile. The tables are locked shared for the
whole backup: a schema change would take rows away (DROP, TRUNCATE) or be seen half done (CREATE
INDEX), so it waits, as it does for pg_dump. Whoever submits says which tables there are (`locks`:
lock_names); if that is not so any more, the backup fails with SCHEMA_CHANGED and is begun again.

`copy` writes one file per step and keeps in its state where it stands, the SHA-256 of the last file
included: a step that is run again writes the same bytes under the same name. So whoever runs it may
die at any time, and the next one goes on with the next file.

Whoever runs it encrypts what it writes if it has a key (sealing.py); `encrypt` insists on that.

What is read: backup_scope.py. Deliberately missing: incremental backups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kv.base.errors import InvalidArgument, Refused
from kv.base.keys import table_range
from kv.base.limits import (
    TRANSFER_BLOCK_BYTES,
    TRANSFER_BLOCK_ROWS,
    TRANSFER_LOCKS_MAX,
    TRANSFER_PAGE_ROWS,
    TRANSFER_STEP_MS,
    TRANSFER_STROKE_S,
    TRANSFER_TIMEOUT_MS,
    TRANSFER_UNDO_MS,
)
from kvorum.transfer import blocks, claims, manifest
from kvorum.transfer.backup_scope import system_spans, table_of
from kvorum.transfer.places import Place
from kvorum.transfer.sealing import Files, check_apart
from kvorum.transfer.services import (
    Past,
    Services,
    flag_in,
    hold,
    keep,
    let_go,
    page_of,
    rate_in,
    scan_expiring,
    stroke,
)
from kvorum.transfer.targets import check_no_keys
from kvorum.version import VERSION
from procedures.engine import kv_store
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive, shared
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import Reader
from sqlproxy.rows.schema import Table
from txn.client import TxnClient

BACKUP: Final = "kvorum.backup"
BACKUP_HERE: Final = "kvorum.backup_here"
_WHAT: Final = "backup"
Span = tuple[bytes, bytes]


async def all_tables(t: Reader) -> list[Table]:
    """Of every namespace, in whatever state."""
    return [
        table
        for namespace in await catalog.list_namespaces(t)
        for table in await catalog.list_tables(t, namespace.name)
    ]


def lock_names(tables: Sequence[Table]) -> list[str]:
    """What a backup locks: the tables, or their namespaces if they are many. Raises Refused."""
    names = [f"table/{table.namespace}/{table.name}" for table in tables]
    if len(names) > TRANSFER_LOCKS_MAX:
        names = sorted({f"namespace/{table.namespace}" for table in tables})
    if len(names) > TRANSFER_LOCKS_MAX:
        raise Refused(
            f"there are {len(names)} namespaces with tables; a backup locks at most "
            f"{TRANSFER_LOCKS_MAX}: merge some, or export tables one by one",
            code="TOO_MANY_NAMESPACES",
        )
    return names


def locks_of(args: object) -> list[Lock]:
    """Asked before anything of a procedure is kept: keys of a store are not. Raises
    InvalidArgument.
    """
    if isinstance(args, Mapping) and isinstance(target := args.get("target"), str):
        check_no_keys(target)
    names = args.get("locks") if isinstance(args, Mapping) else None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"locks must be a list of resources, got {names!r:.80}")
    return [exclusive(n) if n.startswith("namespace/") else shared(n) for n in names]


def covered(tables: Sequence[Table], names: Sequence[str]) -> bool:
    """Whether these locks keep schema changes from all of the tables."""
    held = set(names)
    return all(
        f"table/{t.namespace}/{t.name}" in held or f"namespace/{t.namespace}" in held
        for t in tables
    )


def spans_of(tables: Sequence[Table]) -> list[Span]:
    """Everything that is copied, in the order of the keys."""
    ids = sorted(number for table in tables for number in table.storage_ids)
    return [*system_spans(), *map(table_range, ids)]


class _Backup:
    """ctx.state: at, id, lease; key (the id of its key, or ""); where it stands: span, start,
    number, last (digest), rows, bytes, top (the highest id of a procedure).
    """

    here = False

    def __init__(self, services: Services) -> None:
        self._services = services

    @step(first=True, deadline_ms=TRANSFER_STEP_MS)
    async def begin(self, ctx: StepContext) -> Outcome:
        """Raises InvalidArgument, Refused (SCHEMA_CHANGED)."""
        rate_in(ctx.args)
        place, key = await self._place(ctx), await self._services.backup_key()
        if key is None and flag_in(ctx.args, "encrypt"):
            raise Refused(
                "the backup is to be encrypted, and whoever writes it has no key: the command takes"
                " --key-file FILE, nodes their setting backup_key_file",
                code="KEY_NEEDED",
            )
        if key is not None:
            check_apart(self._services.key_file, place)
        at = await ctx.txn.start_ts()
        tables = await all_tables(Past(self._services.txn(), at))
        if not covered(tables, ctx.args["locks"]):
            raise Refused(
                "a table was made since this backup was submitted: submit it again",
                code="SCHEMA_CHANGED",
            )
        ctx.state.update(at=at, id=f"{at:x}-{ctx.id:x}", key="" if key is None else key.id)
        return go_on("hold")

    @step(undo="give_up", undo_partial=True, deadline_ms=TRANSFER_STEP_MS)
    async def hold(self, ctx: StepContext) -> Outcome:
        """The snapshot is kept from the collector, the place is taken. Raises Refused
        (TARGET_IN_USE).
        """
        state = ctx.state
        place = await self._place(ctx)
        if not await self._services.beside(
            lambda: manifest.begin(place, state["id"], looks=ctx.round)
        ):
            return again(delay_ms=claims.LOOK_MS)
        state["lease"] = await hold(self._services, ctx, state["at"], _WHAT)
        state.update(span=0, start=b"", number=0, last=blocks.NOTHING_BEFORE)
        state.update(rows=0, bytes=0, top=0)
        return go_on("copy")

    @step(undo="give_up", undo_partial=True, deadline_ms=TRANSFER_STEP_MS)
    async def copy(self, ctx: StepContext) -> Outcome:
        """One file. Raises SnapshotTooOld: nobody held the snapshot for too long."""
        services, state = self._services, ctx.state
        began = services.timers.monotonic()
        await keep(services, ctx, _WHAT)
        txn, at = services.txn(), state["at"]
        spans = spans_of(await all_tables(Past(txn, at)))
        rate = ctx.args.get("rate", 0)
        rows, size = await _next_rows(txn, at, spans, state, rate)
        if rows:
            number, last, to = state["number"], state["last"], await self._files(ctx)

            def write() -> bytes:
                data, digest = blocks.pack(number, last, rows)
                to.write(blocks.file_name(number), data)
                return digest

            state["last"] = await services.beside(write)
            state["number"] += 1
            state["rows"] += len(rows)
            state["bytes"] += size
        if state["span"] >= len(spans):
            return go_on("seal")
        low = spans[state["span"]][0]
        text = f"{state['number']} files, {state['rows']} rows, at table {table_of(low)}"
        ctx.progress(state["span"] / len(spans), text)
        return services.paced(began, size, ctx.args)

    @step(undo="give_up", undo_partial=True, deadline_ms=TRANSFER_STEP_MS)
    async def seal(self, ctx: StepContext) -> Outcome:
        """With the manifest it is a backup."""
        services, state = self._services, ctx.state
        tables = await all_tables(Past(services.txn(), state["at"]))
        files = await self._files(ctx)
        made = manifest.Manifest(
            id=state["id"],
            cluster=str((await services.backend().cluster())["cluster"]),
            at=state["at"],
            taken_ms=ctx.now_ms,
            version=VERSION,
            files=state["number"],
            rows=state["rows"],
            size=state["bytes"],
            last=bytes(state["last"]).hex(),
            procedures_top=state["top"],
            tables=tuple(f"{table.namespace}.{table.name}" for table in tables),
        )
        await services.beside(lambda: manifest.write(files, made))
        await let_go(services, ctx)
        return done(
            {
                "target": files.place.uri,
                "id": made.id,
                "at": str(made.at),
                "files": made.files,
                "rows": made.rows,
                "bytes": made.size,
                "tables": len(made.tables),
                "key": state.get("key", ""),
            }
        )

    async def _files(self, ctx: StepContext) -> Files:
        """Raises Refused (KEY_NEEDED, WRONG_KEY): whoever goes on has another key."""
        place, begun, key = await self._place(ctx), ctx.state.get("key", ""), None
        if begun:
            key = manifest.key_for(place, begun, await self._services.backup_key())
        return Files(place, ctx.state["id"], key)

    async def _place(self, ctx: StepContext) -> Place:
        return await self._services.place(ctx, "target", here=self.here)

    @undo(give_up_ms=TRANSFER_UNDO_MS)
    async def give_up(self, ctx: StepContext) -> None:
        """Nothing is left of it: a place without manifest is no backup, but takes room."""
        await let_go(self._services, ctx)
        if "id" in ctx.state:
            place, id = await self._place(ctx), ctx.state["id"]
            await self._services.beside(lambda: manifest.clear(place, id))


@procedure(BACKUP, locks=locks_of, timeout_ms=TRANSFER_TIMEOUT_MS)
class Backup(_Backup):
    """Run by the nodes."""


@procedure(BACKUP_HERE, locks=locks_of, timeout_ms=TRANSFER_TIMEOUT_MS)
class BackupHere(_Backup):
    """Run by the process of the command."""

    here = True


async def _next_rows(
    txn: TxnClient, at: int, spans: Sequence[Span], state: Plain, rate: int
) -> tuple[list[blocks.Row], int]:
    """The rows of the next file, and their bytes. Where they end depends on the rows and the
    rate alone, not on how partitions lie: whoever does it again writes the same file.
    """
    rows: list[blocks.Row] = []
    size = 0
    limit = stroke(rate, TRANSFER_STROKE_S, TRANSFER_BLOCK_BYTES)
    known = (0, 0)  # rows and bytes before this table's
    while state["span"] < len(spans):
        start, end = spans[state["span"]]
        most = TRANSFER_PAGE_ROWS
        if rate:
            most = page_of(limit - size, len(rows) - known[0], size - known[1], most)
        page, due = await scan_expiring(txn, state["start"] or start, end, at, most)
        for place, (key, value, version) in enumerate(page.items):
            rows.append((key, value, version, due.get(place, 0)))
            size += len(key) + len(value)
            state["top"] = max(state["top"], kv_store.id_in(key))
            if len(rows) >= TRANSFER_BLOCK_ROWS or size >= limit:
                state["start"] = key + b"\x00"
                return rows, size
        state["start"] = page.resume or b""
        state["span"] += page.resume is None
        if page.resume is None:
            known = (len(rows), size)
    return rows, size
