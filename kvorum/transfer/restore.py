"""`kvorum.restore`: a backup into an empty cluster.

    {source, force?, rate?}   → {source, at, rows, bytes, tables, procedures}

    check ──→ empty ──→ ranges ──→ rows ⟲ ──→ past ──→ catalog     undo of ranges, rows, past: clean
                                                        └ point of no return
    ──→ holders ⟲ ──→ settle ──→ waiters ⟲ ──→ finish

`check` reads the manifest, has the oracle go on above the backup's timestamp, and wants an id above
those of the backup's procedures: if it has a lower one, it raises their counter and fails with
RESTORE_AGAIN (`kvorum restore` submits it once more). `empty` refuses a cluster with tables in it,
or drops them (`force`). `rows` writes file by file into ranges that no name leads to; `catalog`
makes everything visible in one transaction: names, sequences, roles, the markers of Spark sinks.
Then come the procedures that had not ended: first those that hold locks; a new reign takes them in,
so that their locks are theirs before anybody asks for them; then the others (restored_rows.py).

A file is checked against the one before it when it is read, so nothing that was changed is written;
`kvorum backup verify` does that for all files beforehand.

Every step may run twice: rows are put as they are; what must happen once is in the transaction of a
step. A restore that fails before `catalog` removes the ranges that it made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from kv.base import system
from kv.base.errors import Refused
from kv.base.ids import TableId
from kv.base.limits import (
    TRANSFER_RANGES_MAX,
    TRANSFER_TIMEOUT_MS,
    TRANSFER_WRITE_BYTES,
    TRANSFER_WRITE_ROWS,
)
from kv.base.ops import Op, put
from kvorum.native import epoch
from kvorum.transfer import blocks, manifest, restored_rows
from kvorum.transfer.backup import all_tables
from kvorum.transfer.backup_scope import is_system, table_of
from kvorum.transfer.blocks import Block, Row
from kvorum.transfer.places import Place
from kvorum.transfer.restore_ranges import CLEAN, RANGES, WORK, Range, reign_of
from kvorum.transfer.sealing import Files
from kvorum.transfer.services import Services, flag_in, rate_in
from kvorum.transfer.targets import check_no_keys
from procedures.engine import kv_store, records
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from procedures.master.map.partitions import Placed, decode_placed
from sqlproxy.catalog import catalog, relations, roles
from sqlproxy.ddl.steps import CatalogTxn
from sqlproxy.rows.records import decode_namespace, decode_table
from sqlproxy.rows.schema import DEFAULT_NAMESPACE, POSTGRES_NAMESPACE, Namespace, Table, placement

RESTORE: Final = "kvorum.restore"
RESTORE_HERE: Final = "kvorum.restore_here"
AGAIN: Final = "RESTORE_AGAIN"
_PREFIX: Final = 4
_PARALLEL: Final = 4  # transactions that write rows
_LIVE_PER_STEP: Final = 500
_WAIT_MS: Final = 500
_WAITS_MAX: Final = 120  # rounds that the cluster's own procedures may take to end
_BUILT_IN: Final = (DEFAULT_NAMESPACE, POSTGRES_NAMESPACE)


class _Restore:
    """ctx.state: files, at, top (of the manifest); number, last, rows, bytes: how far it has read;
    system: so many files have rows of the system; ids: of the ranges; live: how many procedures.
    """

    here = False

    def __init__(self, services: Services) -> None:
        self._services = services

    # ------------------------------------------------------------------------------- beginning

    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        """Raises NotFound (NO_BACKUP), Corruption, Refused (RESTORE_AGAIN, CLUSTER_NOT_EMPTY)."""
        rate_in(ctx.args)
        place = await self._place(ctx)
        key = await self._services.backup_key()
        made, files = await self._services.beside(lambda: manifest.read(place, key))
        nonce = f"{RESTORE}-{ctx.token}"
        await self._services.run(WORK, {"what": "above", "at": made.at}, f"{nonce}-above")
        if ctx.id <= made.procedures_top:
            at = made.procedures_top
            await self._services.run(WORK, {"what": "ids", "at": at}, f"{nonce}-ids")
            await self._anew(ctx, nonce)
            raise Refused(
                "the backup has procedures with higher ids than this one: submit it again",
                code=AGAIN,
            )
        ctx.state.update(files=made.files, at=made.at, top=made.procedures_top)
        ctx.state.update(last_of_all=made.last, total=made.rows, source=place.uri)
        ctx.state.update(id=made.id, key="" if files.key is None else files.key.id)
        return go_on("empty")

    async def _place(self, ctx: StepContext) -> Place:
        return await self._services.place(ctx, "source", here=self.here)

    async def _files(self, ctx: StepContext) -> Files:
        """Raises Refused (KEY_NEEDED, WRONG_KEY): whoever goes on has another key."""
        place, begun, key = await self._place(ctx), ctx.state.get("key", ""), None
        if begun:
            key = manifest.key_for(place, begun, await self._services.backup_key())
        return Files(place, ctx.state.get("id", ""), key)

    async def _anew(self, ctx: StepContext, nonce: str) -> None:
        """Another reign than this one takes in what is in the store."""
        reign = await reign_of(ctx)
        await self._services.run(WORK, {"what": "anew", "reign": reign}, f"{nonce}-anew")

    @step
    async def empty(self, ctx: StepContext) -> Outcome:
        """Nothing of users is in the cluster. Raises Refused."""
        spaces, there, names = await _relations(await CatalogTxn.of(ctx))
        force = flag_in(ctx.args, "force")
        if names and not force:
            raise _not_empty(names, "or with --force, which drops what is there")
        if names:
            await self._drop(ctx, spaces, there)
            return again()
        if waiting := await self._forget(ctx):
            if ctx.round > _WAITS_MAX:
                raise Refused(
                    f"procedures of this cluster have not ended: {', '.join(waiting[:5])}; wait "
                    "for them or abort them",
                    code="PROCEDURES_RUN",
                )
            return again(delay_ms=_WAIT_MS)
        return go_on("ranges")

    async def _drop(self, ctx: StepContext, spaces: list[str], there: Sequence[Any]) -> None:
        for name, found in zip(spaces, there, strict=True):
            nonce = f"{RESTORE}-{ctx.token}-{name}"
            if name not in _BUILT_IN:
                args: dict[str, object] = {"namespace": name, "cascade": True}
                await self._services.run("DropNamespace", args, nonce)
                continue
            for what, those in (
                ("DropTable", found.tables),
                ("DropView", found.views),
                ("DropSequence", found.sequences),
            ):
                names = [one.name for one in those]
                args = {"namespace": name, "names": names, "cascade": True, "if_exists": True}
                if names:
                    await self._services.run(what, args, f"{nonce}-{what}")

    async def _forget(self, ctx: StepContext) -> list[str]:
        """Remove what has ended and would be in the way of the backup's records; the names of what
        has not ended.
        """
        txn, top = self._services.txn(), ctx.state["top"]
        start: bytes | None = kv_store.record_key(0)
        waiting: list[str] = []
        while start is not None:
            page = await txn.scan(start, kv_store.record_key(top + 1), limit=TRANSFER_WRITE_ROWS)
            for key, value, version in page.items:
                record = records.decode(value, f"procedure {kv_store.id_in(key)}")
                if not record.ended:
                    waiting.append(f"{record.name} ({record.id})")
                    continue
                await txn.write(kv_store.forget_ops(record, version))
            start = page.resume
        return waiting

    # ------------------------------------------------------------------------------- the rows

    @step(undo="clean", undo_partial=True)
    async def ranges(self, ctx: StepContext) -> Outcome:
        """The partitions of everything, where they were cut."""
        spaces: dict[str, Namespace] = {}
        tables: list[Table] = []
        rows: dict[int, list[Placed]] = {}
        count = 0
        async for block in self._system_files(ctx):
            count = block.number + 1
            for key, value, _, _ in block.rows:
                match table_of(key):
                    case system.NAMESPACES:
                        namespace = decode_namespace(key, value)
                        spaces[namespace.name] = namespace
                    case system.TABLES:
                        tables.append(decode_table(key, value))
                    case system.PARTITIONS:
                        placed = decode_placed(key, value)
                        rows.setdefault(table_of(placed.descriptor.start), []).append(placed)
                    case _:
                        pass
        wanted = [_range(spaces, t, id, rows) for t in tables for id in t.storage_ids]
        ctx.state.update(system=count, ids=[one.id for one in wanted])
        for at in range(0, len(wanted), TRANSFER_RANGES_MAX // 10):
            part = [one.to_plain() for one in wanted[at : at + TRANSFER_RANGES_MAX // 10]]
            await self._services.run(RANGES, {"ranges": part}, f"{RESTORE}-{ctx.token}-{at}")
        ctx.state.update(number=0, last=blocks.NOTHING_BEFORE, rows=0, bytes=0)
        return go_on("rows")

    @step(undo="clean", undo_partial=True)
    async def rows(self, ctx: StepContext) -> Outcome:
        """One file."""
        services, state = self._services, ctx.state
        began = services.timers.monotonic()
        if state["number"] < state["files"]:
            block = await self._file(ctx, state["number"], bytes(state["last"]))
            ops: list[Op] = []
            for row in block.rows:
                if is_system(row[0]):
                    ops += restored_rows.early(row, services.own(), ctx.now_ms)
                elif not row[3] or row[3] > ctx.now_ms:
                    ttl_ms = row[3] - ctx.now_ms if row[3] else 0
                    ops.append(put(row[0], row[1], None, ttl_ms))
            size = sum(len(row[0]) + len(row[1]) for row in block.rows)
            await self._write(ops)
            state["last"] = block.digest
            state["number"] += 1
            state["rows"] += len(block.rows)
            state["bytes"] += size
            text = f"{state['number']} of {state['files']} files, {state['rows']} rows"
            ctx.progress(state["number"] / state["files"], text)
            return services.paced(began, size, ctx.args)
        if bytes(state["last"]).hex() != state["last_of_all"]:
            raise Refused(
                "the last file is not the one that the manifest names: the backup was changed",
                code="BACKUP_CHANGED",
            )
        return go_on("past")

    @step(undo="clean", undo_partial=True)
    async def past(self, ctx: StepContext) -> Outcome:
        """A read at a timestamp of before is refused, and does not find the tables empty."""
        args = {"what": "past", "ids": ctx.state["ids"]}
        await self._services.run(WORK, args, f"{RESTORE}-{ctx.token}-past")
        return go_on("catalog")

    async def _write(self, ops: Sequence[Op]) -> None:
        """In transactions of bounded size, some at once. They need not be atomic: nobody sees
        them.
        """
        txn, parts = self._services.txn(), list(_cut(ops))
        for at in range(0, len(parts), _PARALLEL):
            async with asyncio.TaskGroup() as group:
                for part in parts[at : at + _PARALLEL]:
                    group.create_task(_written(txn.write, part))

    async def _file(self, ctx: StepContext, number: int, before: bytes) -> Block:
        """Raises NotFound, Corruption."""
        files, name = await self._files(ctx), blocks.file_name(number)

        def read() -> Block:
            data = files.read(name)
            return blocks.unpack(data, f"{files.place.uri}/{name}", number=number, before=before)

        return await self._services.beside(read)

    async def _system_files(self, ctx: StepContext) -> AsyncIterator[Block]:
        before = blocks.NOTHING_BEFORE
        for number in range(ctx.state["files"]):
            block = await self._file(ctx, number, before)
            yield block
            before = block.digest
            if not is_system(block.rows[-1][0]):
                return

    async def _system_rows(self, ctx: StepContext) -> list[Row]:
        """All of them but the records and histories of procedures that have ended."""
        found: list[Row] = []
        async for block in self._system_files(ctx):
            found += [row for row in block.rows if is_system(row[0]) and _kept(row)]
        return found

    @undo
    async def clean(self, ctx: StepContext) -> None:
        ids = ctx.state.get("ids")
        if ids:
            await self._services.run(CLEAN, {"ids": ids}, f"{RESTORE}-{ctx.token}-clean")

    # ------------------------------------------------------------------------------- everything

    @step(point_of_no_return=True)
    async def catalog(self, ctx: StepContext) -> Outcome:
        """From this commit on everything is there. Raises Refused: somebody made a table since
        `empty`; whoever does so while this commits conflicts with it.
        """
        t = await CatalogTxn.of(ctx)
        spaces, _, names = await _relations(t)
        if names:
            raise _not_empty(names, "and let nobody be connected meanwhile")
        for name in spaces:
            await catalog.touch(t, name)
        await roles.touch(t)
        until = await ctx.txn.start_ts()
        for key, value, expire in restored_rows.late(await self._system_rows(ctx)):
            if table_of(key) in restored_rows.MERGED:
                here = await ctx.txn.get(key)
                value = restored_rows.merged(key, value, None if here is None else here.value)
            value = restored_rows.with_version(key, value, until)
            if not expire or expire > ctx.now_ms:
                ctx.txn.put(key, value, ttl_ms=expire - ctx.now_ms if expire else 0)
        ctx.txn.put(epoch.restored_key(), epoch.restored_row(ctx.state["at"], until))
        ctx.state["live"] = 0
        return go_on("holders")

    @step
    async def holders(self, ctx: StepContext) -> Outcome:
        return await self._revive(ctx, held=True, then="settle")

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        """Their locks are theirs before anybody else comes."""
        await self._anew(ctx, f"{RESTORE}-{ctx.token}")
        return go_on("waiters")

    @step
    async def waiters(self, ctx: StepContext) -> Outcome:
        return await self._revive(ctx, held=False, then="finish")

    async def _revive(self, ctx: StepContext, *, held: bool, then: str) -> Outcome:
        every = restored_rows.live(await self._system_rows(ctx), self._services.own())
        those = [record for record in every if bool(record.grant) is held]
        at = (ctx.round - 1) * _LIVE_PER_STEP
        for record in those[at : at + _LIVE_PER_STEP]:
            for op in restored_rows.live_ops(record):
                ctx.txn.put(op.key, op.value or b"")
        if at + _LIVE_PER_STEP < len(those):
            return again()
        ctx.state["live"] += len(those)
        return go_on(then)

    @step
    async def finish(self, ctx: StepContext) -> Outcome:
        """Those that wait are taken in; versions up to here are not those of before."""
        nonce, state = f"{RESTORE}-{ctx.token}", ctx.state
        await self._anew(ctx, nonce)
        until = await ctx.txn.start_ts()
        ctx.txn.put(epoch.restored_key(), epoch.restored_row(state["at"], until))
        return done(
            {
                "source": state.get("source") or ctx.args["source"],
                "at": str(state["at"]),
                "rows": state["rows"],
                "bytes": state["bytes"],
                "tables": len(await all_tables(await CatalogTxn.of(ctx))),
                "procedures": state["live"],
            }
        )


def _locks(args: object) -> list[Lock]:
    """None; asked before anything of a procedure is kept: keys of a store are not. Raises
    InvalidArgument.
    """
    if isinstance(args, Mapping) and isinstance(source := args.get("source"), str):
        check_no_keys(source)
    return []


@procedure(RESTORE, locks=_locks, timeout_ms=TRANSFER_TIMEOUT_MS, max_concurrent=1)
class Restore(_Restore):
    """Run by the nodes."""


@procedure(RESTORE_HERE, locks=_locks, timeout_ms=TRANSFER_TIMEOUT_MS, max_concurrent=1)
class RestoreHere(_Restore):
    """Run by the process of the command."""

    here = True


async def _relations(t: CatalogTxn) -> tuple[list[str], list[Any], list[str]]:
    """The namespaces, what each declares, and the names of all that."""
    spaces = [namespace.name for namespace in await catalog.list_namespaces(t)]
    there = [await relations.list_relations(t, name, creating=True) for name in spaces]
    return spaces, there, [f"{one.namespace}.{one.name}" for every in there for one in every]


def _not_empty(names: Sequence[str], advice: str) -> Refused:
    return Refused(
        f"the cluster is not empty: {', '.join(names[:3])}{' …' * (len(names) > 3)}; "
        f"restore into a new one, {advice}",
        code="CLUSTER_NOT_EMPTY",
    )


def _range(
    spaces: dict[str, Namespace], table: Table, id: TableId, rows: dict[int, list[Placed]]
) -> Range:
    """Of a table or an index, as it was."""
    here = sorted(rows.get(id, ()), key=lambda placed: placed.descriptor.start)
    cuts = tuple(placed.descriptor.start[_PREFIX:] for placed in here[1:])
    epoch = max((placed.descriptor.epoch for placed in here), default=0) + 1
    return Range(id, epoch, cuts, placement(spaces[table.namespace], table))


def _kept(row: Row) -> bool:
    """Whether the late steps need it: histories and ended procedures are many."""
    table = table_of(row[0])
    if table == system.PROCEDURES:
        return not records.decode(row[1], "a procedure of the backup").ended
    return table not in (system.PROCEDURE_STEPS, system.NONCES, system.RUNNABLE)


def _cut(ops: Sequence[Op]) -> list[list[Op]]:
    """Parts of a bounded size, each in one table."""
    parts: list[list[Op]] = []
    size = 0
    for op in ops:
        full = size >= TRANSFER_WRITE_BYTES or (parts and len(parts[-1]) >= TRANSFER_WRITE_ROWS)
        if not parts or full or parts[-1][-1].key[:_PREFIX] != op.key[:_PREFIX]:
            parts.append([])
            size = 0
        parts[-1].append(op)
        size += len(op.key) + len(op.value or b"")
    return parts


async def _written(write: Any, ops: list[Op]) -> None:
    await write(ops)
