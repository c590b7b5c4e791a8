"""`kvorum.site`: this cluster takes over what another one commits to the linked tables, for as long
as the procedure lives. Aborting it ends the link. Its arguments: links.py.

    begin ──▶ pull ⟲       undo: unlink

A step of `pull` has one connection, for SITE_SPAN_MS; everything that it takes over is a
transaction with the mark (taking.py), so it may end, be run again or run twice at any moment. What
fails is tried again for ever, and the procedure's progress says why: also if history that the link
needs is gone (SITE_GONE). A stand-by must not become writable by itself.

This cluster's history is held (a lease, tso/leases.py) where the other one has taken it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kv.base.errors import (
    InvalidArgument,
    KvorumError,
    NotFound,
    Refused,
)
from kv.base.limits import (
    SITE_LEASE_AGE_MS,
    SITE_LEASE_MS,
    SITE_LOOK_MS,
    SITE_PAUSE_MS,
    SITE_SPAN_MS,
    VALUE_BYTES_MAX,
)
from kv.base.ports import Timers
from kv.base.timestamps import physical_ms
from kvorum.api.model import SnapshotInfo
from kvorum.api.names import ruled
from kvorum.api.site_links import CONFLICTS, LINKS, NAMESPACE, SITE_LINK
from kvorum.sites.links import Link, LinkedTable, link_of
from kvorum.sites.marks import CURSORS, Mark
from kvorum.sites.pull import Pull
from kvorum.sites.role import Changed, switch
from kvorum.sites.rules import Joined, Standing
from kvorum.sites.taking import Cluster, Counts, Taken, Taker
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Lock, Outcome, again, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import Reader
from sqlproxy.rows.schema import ACTIVE
from txn.shared.deadlines import sleep


class Whole(Cluster, Protocol):
    """A cluster with its catalog: kvorum.native.native.NativeBackend."""

    @property
    def catalog(self) -> Reader: ...

    async def cluster(self) -> Plain: ...
    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> SnapshotInfo: ...
    async def renew_snapshot(self, id: int) -> None: ...
    async def release_snapshot(self, id: int) -> bool: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SiteServices:
    """`connect` reaches a site by its name; `run` gives the result of a procedure, by its name,
    arguments and nonce.
    """

    here: Callable[[], Whole]
    connect: Callable[[str], Awaitable[Whole]]
    run: Callable[[str, object, str], Awaitable[Any]]
    timers: Timers
    changed: Changed
    counts: dict[str, Counts]
    """By site, of the links that this node has served."""


def _locks(args: object) -> list[Lock]:
    """One link to a site, and of a table. Raises InvalidArgument."""
    link = link_of(args)
    tables = [exclusive(f"site-table/{table.namespace}/{table.name}") for table in link.tables]
    return [exclusive(f"site/{link.site}"), *tables]


@procedure(SITE_LINK, locks=_locks)
class SiteLink:
    """ctx.state: me, other (ids of clusters), since, lease, at and leased_ms of the lease."""

    def __init__(self, services: SiteServices) -> None:
        self._services = services

    @step(first=True, undo="unlink", undo_partial=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument, Refused."""
        link, here = link_of(ctx.args), self._services.here()
        async with self._there(link) as there:
            me, other = [(await one.cluster())["cluster"] for one in (here, there)]
            if not me or not other:
                raise Refused("a cluster did not say its id", code="SITE_UNKNOWN")
            if me == other:
                raise InvalidArgument(f"site {link.site} is this cluster itself")
            await _check_columns(here, there, link)
        await self._make_tables(ctx)
        marks = ctx.txn.table(NAMESPACE, CURSORS)
        if await marks.get(other) is not None:
            raise Refused(f"there is a link to {link.site} already", code="SITE_EXISTS")
        since = await ctx.txn.start_ts()
        lease = await here.open_snapshot(since, _owner(ctx), SITE_LEASE_MS)
        marks.put(other, Mark(0, since).encode(), if_absent=True)
        told: dict[str, object] = {"procedure": str(ctx.id), "cluster": other, "role": ACTIVE}
        told["tables"] = [table.to_plain() for table in link.tables]
        ctx.txn.table(NAMESPACE, LINKS).put(link.site, json.dumps(told))
        await switch(ctx, _names(link), ACTIVE, self._services.changed)
        ctx.state.update(me=me, other=other, since=since)
        ctx.state.update(lease=lease.id, at=since, leased_ms=ctx.now_ms, old=[])
        return go_on("pull")

    async def _make_tables(self, ctx: StepContext) -> None:
        """Those of all links, if this is the first one."""
        here = self._services.here()
        for name in ("", CURSORS, LINKS, CONFLICTS):
            args = {"namespace": NAMESPACE, **({"name": name} if name else {})}
            try:
                if name:
                    await catalog.lookup(here.catalog, NAMESPACE, name)
                else:
                    await catalog.lookup_namespace(here.catalog, NAMESPACE)
            except NotFound:
                made = "CreateTable" if name else "CreateNamespace"
                await self._services.run(made, args, f"site-{made}-{name}-{ctx.id}")

    @step
    async def pull(self, ctx: StepContext) -> Outcome:
        """Take over for a while."""
        link, timers = link_of(ctx.args), self._services.timers
        counts = self._services.counts.setdefault(link.site, Counts())
        ends = timers.monotonic() + SITE_SPAN_MS / 1000
        for lease in ctx.state["old"]:  # the state that knows the new one is committed
            await self._services.here().release_snapshot(lease)
        ctx.state["old"] = []
        while timers.monotonic() < ends:
            counts.served_ms = self._services.here().txn.clock.now_ms()
            try:
                await self._hold(ctx, ctx.state["at"])
                await self._connected(ctx, link, counts, ends)
            except KvorumError as error:
                counts.failures += 1
                ctx.progress(0.0, f"it is tried again: {error.code}: {error.message}")
                await sleep(timers, SITE_PAUSE_MS / 1000)
        return again()

    async def _connected(self, ctx: StepContext, link: Link, counts: Counts, ends: float) -> None:
        services, state = self._services, ctx.state
        taker = Taker(services.here(), state["me"], state["other"], self._join, counts)
        if (mark := await taker.mark()) is not None:
            counts.position = max(counts.position, mark.at)
        async with self._there(link) as there:
            await _check_columns(services.here(), there, link)
            one = Pull(there, link, state["me"], taker, counts)
            try:
                await one.begin()
                while services.timers.monotonic() < ends:
                    await one.step(SITE_LOOK_MS / 1000)
                    counts.served_ms = now_ms = services.here().txn.clock.now_ms()
                    silent_s = (now_ms - physical_ms(counts.position)) // 1000
                    if not one.copied:
                        ctx.progress(0.5, "copies what was there before")
                    elif silent_s * 1000 < 3 * SITE_LOOK_MS:
                        ctx.progress(1.0, "in sync")
                    else:
                        ctx.progress(1.0, f"{silent_s} s behind")
                await self._hold(ctx, one.history_from)
            finally:
                await one.close()

    async def _hold(self, ctx: StepContext, at: int) -> None:
        """This cluster's history is held from `at` on. A lease that is not needed any more stays
        until this step is committed: another node may have to run it again. Raises SnapshotTooOld.
        """
        here, state = self._services.here(), ctx.state
        at = max(at, state["at"])
        if at == state["at"] and ctx.now_ms - state["leased_ms"] < SITE_LEASE_AGE_MS:
            with suppress(NotFound):  # nobody served the link for a while
                await here.renew_snapshot(state["lease"])
                return
        lease = await here.open_snapshot(at, _owner(ctx), SITE_LEASE_MS)
        state["old"] = [*state["old"], state["lease"]]
        state.update(lease=lease.id, at=at, leased_ms=ctx.now_ms)

    async def _join(self, row: Taken, here: Standing, nonce: str) -> Joined:
        """What the table's procedure makes of both values. Raises Refused."""
        table = row.table
        values = {"here": here.value, "there": row.change.value}
        # Both clusters ask the same: what comes out must not depend on who asks.
        values = dict(zip(("one", "other"), sorted(values.values(), key=_order), strict=True))
        args = {"namespace": table.namespace, "table": table.name, "key": row.key, **values}
        result = await self._services.run(table.procedure, args, nonce)
        return Joined(_joined(table, result))

    @undo
    async def unlink(self, ctx: StepContext) -> None:
        """The other one is told by there being no mark any more."""
        state = ctx.state
        if "other" not in state:
            return
        marks = ctx.txn.table(NAMESPACE, CURSORS)
        found = await marks.get(state["other"])
        if found is not None and Mark.decode(found.value).since == state["since"]:
            marks.delete(state["other"])
            link = link_of(ctx.args)
            ctx.txn.table(NAMESPACE, LINKS).delete(link.site)
            await switch(ctx, _names(link), "", self._services.changed)
        await self._services.here().release_snapshot(state["lease"])

    @asynccontextmanager
    async def _there(self, link: Link) -> AsyncIterator[Whole]:
        there = await self._services.connect(link.site)
        try:
            yield there
        finally:
            await there.close()


async def _check_columns(here: Whole, there: Whole, link: Link) -> None:
    """Rows are the same bytes at both, and nothing else is kept in step with them. Raises NotFound,
    Refused.
    """
    for table in link.tables:
        one, other = [
            await catalog.lookup(cluster.catalog, table.namespace, table.name)
            for cluster in (here, there)
        ]
        if one.kept:
            raise ruled(one)
        if not one.plain and table.rule in ("counter", "set"):
            raise InvalidArgument(
                f"table {table.path} has columns, and {table.rule} is of values of key-value "
                "tables: take last or procedure"
            )
        columns = [[(c.id, c.name, c.type) for c in found.columns] for found in (one, other)]
        if columns[0] != columns[1] or one.primary_key != other.primary_key:
            raise Refused(
                f"table {table.path} has other columns here than at {link.site}: definitions are "
                "not shipped; change them at both in the same way",
                code="SITE_COLUMNS",
                details={"namespace": table.namespace, "table": table.name},
            )


def _names(link: Link) -> list[tuple[str, str]]:
    return [(table.namespace, table.name) for table in link.tables]


def _owner(ctx: StepContext) -> str:
    return f"site {ctx.id}"


def _order(value: bytes | None) -> tuple[bool, bytes]:
    return value is not None, value or b""


def _joined(table: LinkedTable, result: object) -> bytes | None:
    """Raises Refused."""
    match result:
        case {"value": bytes() | str() | None as value}:
            data = value.encode() if isinstance(value, str) else value
            if data is None or len(data) <= VALUE_BYTES_MAX:
                return data
        case _:
            pass
    raise Refused(
        f"procedure {table.procedure} of {table.path} must give {{value: …}}, text, bytes of at "
        f"most {VALUE_BYTES_MAX}, or null",
        code="SITE_JOIN",
    )
