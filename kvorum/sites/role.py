"""`kvorum.site_role`: whether this cluster's clients write to the tables of a link, or only the
link.

    {site, role: "active" | "standby"}      switch ─▶ settle       undo: back

Fail-over is `active` at the stand-by: one transaction, and whoever looks writes. What the other
cluster had committed and not sent comes by the link when it is back, and by the rule of its table.
Fail-back is the same in both directions: `standby` here, which ends when nobody can write any more,
then, once the other one has taken everything, `active` there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from kv.base.errors import InvalidArgument, NotFound
from kv.base.ids import TableId
from kvorum.api.site_links import LINKS, NAMESPACE, ROLES, SITE_ROLE
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Lock, Outcome, done, exclusive, suspend
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from sqlproxy.catalog import catalog
from sqlproxy.ddl.steps import CatalogTxn
from sqlproxy.ddl.switching import SETTLE_MS

Changed = Callable[[str, str], None]


class Settled(Protocol):
    """sqlproxy.ddl.change.version_waits.Settled."""

    async def proxies(self, namespace: str, tell: Callable[[str], None]) -> None: ...
    async def native_writers(self, table: TableId) -> None: ...


def _site_and_role(args: object) -> tuple[str, str]:
    """Raises InvalidArgument."""
    match args:
        case {"site": str(site), "role": "active" | "standby" as role, **rest} if not rest:
            return site, role
        case _:
            raise InvalidArgument(
                f"the arguments of {SITE_ROLE} are site, a name, and role, {' or '.join(ROLES)}"
            )


def _locks(args: object) -> list[Lock]:
    site, _ = _site_and_role(args)
    return [exclusive(f"site-role/{site}")]


@procedure(SITE_ROLE, locks=_locks)
class SiteRole:
    """ctx.state: tables ([[namespace, name, id], …] that this one switched), link (its procedure),
    was (the link's role before).
    """

    def __init__(self, settled: Settled, changed: Changed) -> None:
        """`changed`: a hint to the caches of this node."""
        self._settled, self._changed = settled, changed

    @step(first=True, undo="back")
    async def switch(self, ctx: StepContext) -> Outcome:
        """All tables in one transaction. Raises NotFound."""
        site, role = _site_and_role(ctx.args)
        link = await _link(ctx)
        if link is None:
            raise NotFound(f"there is no link to {site!r:.80}", code="SITE_NOT_FOUND")
        tables = [tuple(one["table"]) for one in link["tables"]]
        ctx.state["tables"] = await self._switch(ctx, link, tables, role, role)
        ctx.state.update(link=link["procedure"], was=link["role"])
        ctx.state["until_ms"] = ctx.now_ms
        if role == "active":
            return go_on("settle")
        ctx.state["until_ms"] += SETTLE_MS
        return suspend(timeout_ms=SETTLE_MS, then="settle")

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        """Until everybody has heard of it. A restart wakes it earlier: it waits on."""
        left_ms = ctx.state["until_ms"] - ctx.now_ms
        if left_ms > 0:
            return suspend(timeout_ms=left_ms, then="settle")
        tables = ctx.state["tables"]
        namespaces = sorted({namespace for namespace, _, _ in tables})
        for namespace in namespaces:
            await self._settled.proxies(namespace, lambda text: ctx.progress(0, text))
        for _, _, number in tables:
            await self._settled.native_writers(TableId(number))
        t = await CatalogTxn.of(ctx)
        for namespace in namespaces:
            await catalog.touch(t, namespace)
        return done(_told(ctx))

    @undo
    async def back(self, ctx: StepContext) -> None:
        """Of that link: it may have been removed meanwhile, and made anew."""
        _, role = _site_and_role(ctx.args)
        link, state = await _link(ctx), ctx.state
        if link is not None and link["procedure"] == state["link"]:
            other = next(one for one in ROLES if one != role)
            tables = [(namespace, name) for namespace, name, _ in state["tables"]]
            await self._switch(ctx, link, tables, other, state["was"])

    async def _switch(
        self,
        ctx: StepContext,
        link: dict[str, object],
        tables: Iterable[tuple[str, str]],
        role: str,
        told: str,
    ) -> list[list[object]]:
        """Those that had another role than `role`; `told`: the link's. Raises NotFound."""
        site, _ = _site_and_role(ctx.args)
        ctx.txn.table(NAMESPACE, LINKS).put(site, json.dumps({**link, "role": told}))
        return await switch(ctx, tables, role, self._changed)


async def _link(ctx: StepContext) -> Plain | None:
    """As `kvorum.site` wrote it down, and the last change of its role."""
    site, _ = _site_and_role(ctx.args)
    with suppress(NotFound):  # there was never a link
        if (found := await ctx.txn.table(NAMESPACE, LINKS).get(site)) is not None:
            link: dict[str, object] = json.loads(found.value)
            return link
    return None


def _told(ctx: StepContext) -> Plain:
    site, role = _site_and_role(ctx.args)
    switched = [f"{namespace}.{name}" for namespace, name, _ in ctx.state["tables"]]
    return {"site": site, "role": role, "switched": switched}


async def switch(
    ctx: StepContext, tables: Iterable[tuple[str, str]], link: str, changed: Changed
) -> list[list[object]]:
    """All of them with this step, to a role, or to none ("": they are not linked any more); [[
    namespace, name, id], …] of those that had another one. Raises NotFound, Refused (SITE_LINKED).
    """
    t = await CatalogTxn.of(ctx)
    switched: list[list[object]] = []
    for namespace, name in tables:
        table = await (catalog.lookup_any if link else catalog.find)(t, namespace, name)
        if table is None or table.link == link:
            continue
        new = replace(table, link=link, version=table.version + 1)
        await catalog.write(t, new, awaited=True)
        changed(namespace, name)
        switched.append([namespace, name, table.id])
    return switched
