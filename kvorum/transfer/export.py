"""`kvorum.export`: one table, as it was at one timestamp, to files part-00000.csv and so on.

    {table: [namespace, name], target, format, columns?, where?, prefix?, at?, rate?}
        → {target, at, files, rows}

    begin ──→ hold ──→ copy ⟲         undo: give_up (of the snapshot, and of what was written)

A file per step; the step that is run again writes the same bytes under the same name, for the cuts
depend on the rows alone. `at` is a timestamp of the past that is still kept, else now. The last
file to appear is `export.json`, which says what it is: without it the export is not whole. The
place is taken before (claims.py): of two exports to one place one is refused.

`where` is SQL over the table's columns (all that a CHECK may say); it is evaluated where the export
runs. When rows expire is not in the files: that is what backups are for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument
from kv.base.keys import successor, table_prefix, table_range
from kv.base.limits import (
    SCAN_ROWS_MAX,
    TRANSFER_EXPORT_BYTES,
    TRANSFER_EXPORT_ROWS,
    TRANSFER_EXPORT_STROKE_S,
    TRANSFER_STEP_MS,
    TRANSFER_TIMEOUT_MS,
    TRANSFER_UNDO_MS,
)
from kvorum.transfer import claims, formats
from kvorum.transfer.places import Place
from kvorum.transfer.services import (
    Past,
    Services,
    hold,
    keep,
    let_go,
    page_of,
    rate_in,
    stroke,
    text_in,
)
from kvorum.transfer.tables import Row, condition, decoder, shapes_of
from kvorum.transfer.targets import check_no_keys
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, done, shared
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from sqlproxy.catalog import catalog
from sqlproxy.rows.schema import Table

EXPORT: Final = "kvorum.export"
EXPORT_HERE: Final = "kvorum.export_here"
DONE: Final = "export.json"
_WHAT: Final = "export"


def table_in(args: object) -> tuple[str, str]:
    """Namespace and name. Raises InvalidArgument."""
    named = args.get("table") if isinstance(args, Mapping) else None
    match named:
        case [str(namespace), str(name)]:
            return namespace, name
        case _:
            raise InvalidArgument(f"table must be [namespace, name], got {named!r:.80}")


def table_lock(args: Any) -> list[Lock]:
    """Asked before anything of a procedure is kept: keys of a store are not. Raises
    InvalidArgument.
    """
    namespace, name = table_in(args)
    for field in ("target", "source"):
        if isinstance(place := args.get(field), str):
            check_no_keys(place)
    return [shared(f"table/{namespace}/{name}")]


class _Export:
    """ctx.state: at, lease; where it stands: start, number, rows, read."""

    here = False

    def __init__(self, services: Services) -> None:
        self._services = services

    @step(first=True, deadline_ms=TRANSFER_STEP_MS)
    async def begin(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument, SnapshotTooOld."""
        args = ctx.args
        rate_in(args)
        await self._place(ctx)
        formats.format_of("", text_in(args, "format"))
        at = args.get("at") or await ctx.txn.start_ts()
        if type(at) is not int:
            raise InvalidArgument(f"at must be a timestamp, got {at!r:.40}")
        ctx.state["at"] = at
        table = await self._table(ctx)
        shapes_of(table, args.get("columns") or ())
        if args.get("where"):
            await condition(Past(self._services.txn(), at), table, args["where"], ctx.now_ms)
        return go_on("hold")

    async def _table(self, ctx: StepContext) -> Table:
        """As it was at that moment."""
        past = Past(self._services.txn(), ctx.state["at"])
        return await catalog.lookup(past, *table_in(ctx.args))

    @step(undo="give_up", undo_partial=True, deadline_ms=TRANSFER_STEP_MS)
    async def hold(self, ctx: StepContext) -> Outcome:
        """Raises Refused (TARGET_IN_USE)."""
        place, mine = await self._place(ctx), _claim(ctx)
        if not await self._services.beside(
            lambda: claims.take(place, mine, "an export", looks=ctx.round)
        ):
            return again(delay_ms=claims.LOOK_MS)
        ctx.state["lease"] = await hold(self._services, ctx, ctx.state["at"], _WHAT)
        ctx.state.update(start=b"", number=0, rows=0, read=0)
        return go_on("copy")

    @step(undo="give_up", undo_partial=True, deadline_ms=TRANSFER_STEP_MS)
    async def copy(self, ctx: StepContext) -> Outcome:
        """One file, the last one with what it is. An empty table has one, too."""
        services, state, args = self._services, ctx.state, ctx.args
        began = services.timers.monotonic()
        await keep(services, ctx, _WHAT)
        table = await self._table(ctx)
        shapes = shapes_of(table, args.get("columns") or ())
        rows, more, size = await self._rows(ctx, table)
        if rows or not state["number"]:
            name = f"part-{state['number']:05d}{formats.suffix_of(args['format'])}"
            place = await self._place(ctx)

            def write() -> None:
                place.write(name, formats.encode(args["format"], shapes, table.plain, rows))

            await services.beside(write)
            state["number"] += 1
            state["rows"] += len(rows)
        ctx.progress(0.5 if more else 1.0, f"{state['number']} files, {state['rows']} rows")
        if more:
            return services.paced(began, size, ctx.args)
        return await self._finish(ctx, table, [shape.name for shape in shapes])

    async def _rows(self, ctx: StepContext, table: Table) -> tuple[list[Row], bool, int]:
        """Those of the next file, whether there are more to look at, and the bytes that were read
        of keys and values.
        """
        state, args, txn = ctx.state, ctx.args, self._services.txn()
        decode = decoder(table, shapes_of(table, args.get("columns") or ()))
        meets = None
        if args.get("where"):
            past = Past(txn, state["at"])
            meets = await condition(past, table, args["where"], ctx.now_ms)
        low, high = table_range(table.id)
        if args.get("prefix"):
            low = table_prefix(table.id) + args["prefix"]
            high = successor(low)
        rows: list[Row] = []
        start: bytes | None = state["start"] or low
        rate = args.get("rate", 0)
        limit = stroke(rate, TRANSFER_EXPORT_STROKE_S, TRANSFER_EXPORT_BYTES)
        read = size = 0
        while start is not None:
            most = SCAN_ROWS_MAX // 2
            if rate:
                most = page_of(limit - size, read, size, most)
            page = await txn.scan(start, high, limit=most, at=state["at"], replicas=True)
            for key, value, _ in page.items:
                read += 1
                size += len(key) + len(value)
                if meets is None or meets(key, value):
                    rows.append(decode(key, value))
                if read >= TRANSFER_EXPORT_ROWS or size >= limit:
                    state["start"] = key + b"\x00"
                    state["read"] += read
                    return rows, True, size
            start = page.resume
        state["read"] += read
        return rows, False, size

    async def _finish(self, ctx: StepContext, table: Table, columns: list[str]) -> Outcome:
        services, state, args = self._services, ctx.state, ctx.args
        place = await self._place(ctx)
        made = {
            "table": table.path,
            "at": str(state["at"]),
            "format": args["format"],
            "columns": columns,
            "where": args.get("where") or None,
            "files": state["number"],
            "rows": state["rows"],
        }
        data = json.dumps(made, indent=1).encode() + b"\n"
        await services.beside(lambda: place.write(DONE, data))
        await services.beside(lambda: claims.release(place, _claim(ctx)))
        await let_go(services, ctx)
        return done(
            {
                "target": place.uri,
                "at": made["at"],
                "files": state["number"],
                "rows": state["rows"],
                "read": state["read"],
            }
        )

    async def _place(self, ctx: StepContext) -> Place:
        return await self._services.place(ctx, "target", here=self.here)

    @undo(give_up_ms=TRANSFER_UNDO_MS)
    async def give_up(self, ctx: StepContext) -> None:
        await let_go(self._services, ctx)
        place, mine = await self._place(ctx), _claim(ctx)
        if "number" not in ctx.state:  # the place was somebody else's, or is not taken yet
            await self._services.beside(lambda: claims.release(place, mine))
            return

        def clear() -> None:
            for name in place.names():
                if name == DONE or name.startswith("part-"):
                    place.remove(name)
            claims.release(place, mine)

        await self._services.beside(clear)


def _claim(ctx: StepContext) -> str:
    return f"{ctx.state['at']:x}-{ctx.id:x}"


@procedure(EXPORT, locks=table_lock, timeout_ms=TRANSFER_TIMEOUT_MS)
class Export(_Export):
    """Run by the nodes."""


@procedure(EXPORT_HERE, locks=table_lock, timeout_ms=TRANSFER_TIMEOUT_MS)
class ExportHere(_Export):
    """Run by the process of the command."""

    here = True
