"""Changes of tables that are there, as procedures: switched off and on again, and modified (J19).

    DisableTable      {namespace, name}     shut ─▶ settle             undo: reopen
    EnableTable       {namespace, name}     open
    DisableNamespace  {namespace}           switch ─▶ look: a DisableTable for each of its tables
    EnableNamespace   {namespace}           the same the other way     undo: back
    ModifyNamespace   {namespace, replicas?, tags?, shard?}   modify ─▶ move
    ModifyTable       {namespace, name, add_columns?, replicas?, tags?, partition_bytes?, shard?}
                      modify ─▶ move

All of them lock the table, or the namespace, exclusively, and tell `{…, changed}`: what is so
already is no error.

A disabled table keeps its rows, its partitions are cared for as ever; nobody reads or writes it:
TABLE_DISABLED. That is decided where names are looked up, before each operation and again before a
transaction commits that wrote to it. What was looked up may be remembered for CATALOG_TTL_S; so
`settle` waits for that long, and when DisableTable has ended, whoever begins an operation by the
table's name is refused, at whatever node. A rollback before then opens the table again.

ModifyTable is one transaction: all of it or nothing. Columns are added after the others; rows
without them have their defaults (sqlproxy/rows/rows.py). Replicas and tags: see placing.py; so is
ModifyNamespace, with all tables that have something of their namespace. To another storage shard
every node moves its own replicas, beside what it serves (kv/replica/shard_move.py): `move` tells
those that answer, the others see it when they compare their replicas with the map.

In a disabled namespace no table is made or enabled (NAMESPACE_DISABLED), until it is enabled with
all that are in it.

Left out here: a request that was under way by then ends as it would have; sessions that work on
storage keys (the Spark sink's tasks, open watches) look a table up when they begin, and go on.
Columns are dropped and changed by `sqlproxy.ddl.change`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, ClassVar, Final

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import PROCEDURE_CHILDREN_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, children, done, suspend
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.map.partitions import Maker, placed_of
from procedures.master.members.moves import MasterTxn
from sqlproxy.catalog import catalog
from sqlproxy.ddl.ddl import column_args
from sqlproxy.ddl.placing import placed_anew
from sqlproxy.ddl.steps import (
    CatalogTxn,
    DdlServices,
    known_fields,
    name_in,
    namespace_locks,
    placing_in,
    table_locks,
)
from sqlproxy.rows.schema import (
    DISABLED,
    PLACING,
    PUBLIC,
    USABLE,
    Table,
    placed,
    placement,
    stands_by,
)

log = logging.getLogger(__name__)

DISABLE_TABLE: Final = "DisableTable"
ENABLE_TABLE: Final = "EnableTable"
MODIFY_TABLE: Final = "ModifyTable"
DISABLE_NAMESPACE: Final = "DisableNamespace"
ENABLE_NAMESPACE: Final = "EnableNamespace"
MODIFY_NAMESPACE: Final = "ModifyNamespace"

SETTLE_MS: Final = round(catalog.CATALOG_TTL_S * 1000) + 1_000  # the second: clocks of nodes differ
_CHANGES: Final = frozenset({"add_columns", "partition_bytes", *PLACING})

Changed = Callable[[str, str], None]
"""A hint to the caches of this node that a table's descriptor changes."""


def register(registry: Registry, services: DdlServices) -> None:
    """Serve the procedures of this module."""
    changed = services.changed
    registry.add(DisableTable, make=lambda: DisableTable(changed))
    registry.add(EnableTable, make=lambda: EnableTable(changed))
    registry.add(ModifyTable, make=lambda: ModifyTable(services))
    registry.add(DisableNamespace)
    registry.add(EnableNamespace)
    registry.add(ModifyNamespace, make=lambda: ModifyNamespace(services))


class _OfTable:
    """What they share."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed

    def tell(self, ctx: StepContext) -> None:
        """Before the commit, and perhaps for nothing; caches age besides."""
        self._changed(ctx.args["namespace"], ctx.args["name"])

    async def switch(self, ctx: StepContext, state: str) -> bool:
        """Whether it was otherwise. Raises NotFound."""
        known_fields(ctx.args, frozenset({"namespace", "name"}))
        t = await CatalogTxn.of(ctx)
        table = await catalog.lookup_any(t, *_path(ctx.args))
        await catalog.switch(t, table, state)
        self.tell(ctx)
        return table.state != state


@procedure(DISABLE_TABLE, locks=table_locks)
class DisableTable(_OfTable):
    @step(first=True, undo="reopen")
    async def shut(self, ctx: StepContext) -> Outcome:
        """From this commit on nobody who looks finds it open."""
        ctx.state["changed"] = await self.switch(ctx, DISABLED)
        ctx.state["until_ms"] = ctx.now_ms + SETTLE_MS
        return suspend(timeout_ms=SETTLE_MS, then="settle")

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        """Until nobody remembers it as open. A restart wakes it earlier: it waits on."""
        left_ms = ctx.state["until_ms"] - ctx.now_ms
        if left_ms > 0:
            return suspend(timeout_ms=left_ms, then="settle")
        self.tell(ctx)
        return done(_result(ctx, changed=ctx.state["changed"]))

    @undo
    async def reopen(self, ctx: StepContext) -> None:
        if ctx.state["changed"]:
            await self.switch(ctx, PUBLIC)


@procedure(ENABLE_TABLE, locks=table_locks)
class EnableTable(_OfTable):
    @step(first=True, undo="reshut")
    async def open(self, ctx: StepContext) -> Outcome:
        """One step: whoever looks from then on finds it. Nobody remembers that it was shut. Raises
        Refused (NAMESPACE_DISABLED).
        """
        namespace = name_in(ctx.args, "namespace")
        catalog.check_enabled(await catalog.lookup_namespace(await CatalogTxn.of(ctx), namespace))
        ctx.state["changed"] = await self.switch(ctx, PUBLIC)
        return done(_result(ctx, changed=ctx.state["changed"]))

    @undo
    async def reshut(self, ctx: StepContext) -> None:
        """The rest of its namespace could not be enabled."""
        if ctx.state["changed"]:
            await self.switch(ctx, DISABLED)


class _Moves:
    """Ends with telling the nodes where rows are to lie. ctx.state: ranges (ids of tables and
    indexes), result.
    """

    _maker: Maker

    @step
    async def move(self, ctx: StepContext) -> Outcome:
        m = MasterTxn(ctx.txn)
        rows = [row for number in ctx.state["ranges"] for row in await placed_of(m, number)]
        try:
            await self._maker.create([row.descriptor for row in rows], late=True)
        except KvorumError as error:
            log.info("nodes will see by themselves which storage shards changed: %s", error)
        return done(ctx.state["result"])


def _moved(ctx: StepContext, tables: Sequence[Table], result: dict[str, Any]) -> Outcome:
    """The end of a change after which these tables lie in another storage shard."""
    if not tables:
        return done(result)
    ctx.state["ranges"] = [number for table in tables for number in table.storage_ids]
    ctx.state["result"] = result
    return go_on("move")


@procedure(MODIFY_TABLE, locks=table_locks)
class ModifyTable(_Moves, _OfTable):
    def __init__(self, services: DdlServices) -> None:
        super().__init__(services.changed)
        self._maker = services.partitions

    @step(first=True, point_of_no_return=True)
    async def modify(self, ctx: StepContext) -> Outcome:
        """One transaction. Raises InvalidArgument, TooLarge, NotFound, Refused, Busy."""
        args = _some(ctx.args, _CHANGES, {"namespace", "name"})
        t = await CatalogTxn.of(ctx)
        before = table = await catalog.lookup_any(t, *_path(args))
        change, columns = placing_in(args), column_args(args, "add_columns")
        if columns and table.standby:
            raise stands_by(table)
        moved = placed(table, change) != table
        if moved or columns:
            table = await catalog.modify(t, table, change, columns)
            self.tell(ctx)
        if moved:
            await placed_anew(ctx, await catalog.lookup_namespace(t, table.namespace), table)
        result = {"table_id": table.id, "version": table.version}
        result = {**_result(ctx, changed=bool(moved or columns)), **result}
        return _moved(ctx, [table] * (table.shard != before.shard), result)


class _OfNamespace:
    """A child for each table of the namespace; new ones are locked out meanwhile."""

    child: ClassVar[str]
    was: ClassVar[str]
    becomes: ClassVar[str]

    @step(first=True, undo="back")
    async def switch(self, ctx: StepContext) -> Outcome:
        """The namespace itself: what is made in it from now on."""
        known_fields(ctx.args, frozenset({"namespace"}))
        t = await CatalogTxn.of(ctx)
        namespace = await catalog.lookup_namespace(t, name_in(ctx.args, "namespace"))
        ctx.state["had"] = namespace.state
        if namespace.state != self.becomes:
            await catalog.switch_namespace(t, namespace, self.becomes)
        return go_on("look")

    @undo
    async def back(self, ctx: StepContext) -> None:
        t = await CatalogTxn.of(ctx)
        namespace = await catalog.lookup_namespace(t, name_in(ctx.args, "namespace"))
        await catalog.switch_namespace(t, namespace, ctx.state["had"])

    @step
    async def look(self, ctx: StepContext) -> Outcome:
        namespace = name_in(ctx.args, "namespace")
        t = await CatalogTxn.of(ctx)
        tables = await catalog.list_tables(t, namespace)
        names = [table.name for table in tables if table.state == self.was]
        del names[PROCEDURE_CHILDREN_MAX:]
        ctx.state["tables"] = ctx.state.get("tables", 0) + len(names)
        if not names:
            return done({"namespace": namespace, "changed": ctx.state["tables"]})
        calls = [(self.child, {"namespace": namespace, "name": name}) for name in names]
        return children(calls, then="look")


@procedure(DISABLE_NAMESPACE, locks=namespace_locks)
class DisableNamespace(_OfNamespace):
    """See the module."""

    child, was, becomes = DISABLE_TABLE, PUBLIC, DISABLED


@procedure(ENABLE_NAMESPACE, locks=namespace_locks)
class EnableNamespace(_OfNamespace):
    """See the module."""

    child, was, becomes = ENABLE_TABLE, DISABLED, PUBLIC


@procedure(MODIFY_NAMESPACE, locks=namespace_locks)
class ModifyNamespace(_Moves):
    """See the module."""

    def __init__(self, services: DdlServices) -> None:
        self._maker = services.partitions

    @step(first=True, point_of_no_return=True)
    async def modify(self, ctx: StepContext) -> Outcome:
        """One transaction, with the rows of the map of all its tables. Raises InvalidArgument,
        TooLarge, NotFound, Refused (NO_NODE_WITH_TAGS, CANNOT_SURVIVE), Busy.
        """
        args = _some(ctx.args, frozenset(PLACING), {"namespace"})
        t = await CatalogTxn.of(ctx)
        had = await catalog.lookup_namespace(t, name_in(args, "namespace"))
        namespace = await catalog.modify_namespace(t, had, placing_in(args))
        moved: list[Table] = []
        for table in await catalog.list_tables(t, had.name):
            if table.state in USABLE and placement(had, table) != placement(namespace, table):
                await placed_anew(ctx, namespace, table)
                moved.append(table)
        result: dict[str, object] = {"namespace": had.name, "replicas": namespace.replicas}
        result["tags"] = list(namespace.tags)
        result |= {"tables": len(moved), "changed": namespace != had}
        return _moved(ctx, moved if namespace.shard != had.shard else (), result)


def _path(args: object) -> tuple[str, str]:
    return name_in(args, "namespace"), name_in(args, "name")


def _some(args: object, changes: frozenset[str], of: Set[str]) -> Mapping[str, Any]:
    """The arguments, with at least one of the changes. Raises InvalidArgument."""
    found = known_fields(args, changes | of)
    if not changes & set(found):
        names = ", ".join(repr(name) for name in sorted(changes))
        raise InvalidArgument(f"give {names}, or several of them")
    return found


def _result(ctx: StepContext, *, changed: bool) -> dict[str, Any]:
    return {**{name: ctx.args[name] for name in ("namespace", "name")}, "changed": changed}
