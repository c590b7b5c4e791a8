"""DDL as procedures: namespaces and tables are created and dropped wholly or not at all (J1).

    CreateNamespace  {namespace, replicas?, tags?}    what its tables have that do not say otherwise
    DropNamespace    {namespace}          refused while it has tables
    CreateTable      {namespace, name, split_keys?, columns?: [{name, type, nullable?, default?}],
                      primary_key?, replicas?, tags?, partition_bytes?}
                     → {table_id, namespace, name, partitions: [id, …]}
    DropTable        {namespace, name}    → the same

    CreateTable:  reserve ──→ partitions ──→ publish
                     │undo       │undo
                  release     drop_partitions

    DropTable:    hide ──→ close ──→ partitions ──→ forget
                   └ point of no return

The catalog's state says what a name stands for: `creating` from reserve, `public` from publish on.
Nobody finds a table that is not public. A CreateTable that failed has released its name; while it
runs or rolls back the name is taken, truthfully. DropTable hides the table first, in one
transaction, and then goes forward until its rows are gone.

Deciding steps write the row they decided on (`CatalogTxn.check`): two of them on one namespace
conflict, and one runs again and sees the other's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument
from kv.base.ids import PartitionId, TableId
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.procedure import Lock, Outcome, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.master.partitions import (
    COUNTER_PARTITION,
    FIRST_PARTITION,
    Maker,
    checked_split_keys,
    delete_rows,
    partitions_of,
    plan,
    put_rows,
)
from sqlproxy import catalog
from sqlproxy.schema import Table, placement
from txn.results import ScanPage

_CREATE_FIELDS = frozenset(
    {
        *("namespace", "name", "split_keys", "columns", "primary_key"),
        *("replicas", "tags", "partition_bytes"),
    }
)
_NAMESPACE_FIELDS = frozenset({"namespace", "replicas", "tags"})


@dataclass(frozen=True, slots=True)
class DdlServices:
    """What DDL works with. `changed` is told of every table whose descriptor changed: caches."""

    partitions: Maker
    changed: Callable[[str, str], None]


def register(registry: Registry, services: DdlServices) -> None:
    """Serve the DDL procedures."""
    registry.add(CreateNamespace)
    registry.add(DropNamespace)
    registry.add(CreateTable, make=lambda: CreateTable(services))
    registry.add(DropTable, make=lambda: DropTable(services))


class CatalogTxn:
    """A step's transaction in the shape that sqlproxy.catalog wants (catalog.Writer)."""

    def __init__(self, txn: StepTxn, start_ts: int) -> None:
        self._txn = txn
        self.start_ts = start_ts
        self._values: dict[bytes, bytes] = {}

    @staticmethod
    async def of(ctx: StepContext) -> CatalogTxn:
        return CatalogTxn(ctx.txn, await ctx.txn.start_ts())

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        row = await self._txn.get(key)
        if row is None:
            return None, 0
        self._values[key] = row.value
        return row.value, row.version

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        return await self._txn.scan(start, end, limit=limit)

    def put(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value)

    def delete(self, key: bytes) -> None:
        self._txn.delete(key)

    def check(self, key: bytes, version: int) -> None:
        """Write the row as it was read. A mere check leaves no trace: a transaction that began
        before this one could then delete the row after it (write skew).
        """
        self._txn.put(key, self._values[key])


def _args(ctx: StepContext) -> dict[str, Any]:
    args: dict[str, Any] = ctx.args
    return args


def name_in(args: Any, field: str) -> str:
    """A name from the arguments; the catalog says which names are allowed. Raises
    InvalidArgument.
    """
    value = args.get(field) if isinstance(args, Mapping) else None
    if not isinstance(value, str):
        raise InvalidArgument(f"the argument {field!r} must be a name, got {value!r:.80}")
    return value


def namespace_locks(args: Any) -> list[Lock]:
    """The whole namespace. Raises InvalidArgument."""
    return [exclusive(f"namespace/{name_in(args, 'namespace')}")]


def table_locks(args: Any) -> list[Lock]:
    """One table. Raises InvalidArgument."""
    namespace = name_in(args, "namespace")
    return [exclusive(f"table/{namespace}/{name_in(args, 'name')}")]  # and the namespace shared


@procedure("CreateNamespace", locks=namespace_locks)
class CreateNamespace:
    """One step: the row is there or not."""

    @step(first=True)
    async def create(self, ctx: StepContext) -> Outcome:
        name = name_in(ctx.args, "namespace")
        args = known_fields(ctx.args, _NAMESPACE_FIELDS)
        wanted = args.get("replicas"), tuple(names_in(args, "tags"))
        await catalog.create_namespace(await CatalogTxn.of(ctx), name, *wanted)
        return done({"namespace": name})


@procedure("DropNamespace", locks=namespace_locks)
class DropNamespace:
    """One step; refused while there is a table of whatever state in it."""

    @step(first=True)
    async def drop(self, ctx: StepContext) -> Outcome:
        name = name_in(ctx.args, "namespace")
        await catalog.drop_namespace(await CatalogTxn.of(ctx), name)
        return done({"namespace": name})


class TableProcedure:
    """What the procedures of tables share. ctx.state: table (id), partitions (descriptor rows)."""

    def __init__(self, services: DdlServices) -> None:
        self._partitions = services.partitions
        self._changed = services.changed

    @staticmethod
    def stored(ctx: StepContext) -> list[PartitionDescriptor]:
        return [PartitionDescriptor.from_wire(row) for row in ctx.state["partitions"]]

    @staticmethod
    async def table(t: CatalogTxn, ctx: StepContext) -> Table | None:
        return await catalog.find_by_id(t, TableId(ctx.state["table"]))

    @staticmethod
    def result(ctx: StepContext) -> dict[str, Any]:
        args = _args(ctx)
        return {
            "table_id": ctx.state["table"],
            "namespace": args["namespace"],
            "name": args["name"],
            "partitions": [row[0] for row in ctx.state["partitions"]],
        }

    def tell(self, ctx: StepContext) -> None:
        """A hint to caches, before the commit and perhaps for nothing; they also age."""
        self._changed(ctx.args["namespace"], ctx.args["name"])


@procedure("CreateTable", locks=table_locks)
class CreateTable(TableProcedure):
    @step(first=True, undo="release")
    async def reserve(self, ctx: StepContext) -> Outcome:
        """Check everything, take the name and the ids."""
        declared, split_keys = declare(ctx.args)
        t = await CatalogTxn.of(ctx)
        table_id = await catalog.next_table_id(t)
        await catalog.create_table_record(t, declared, table_id)
        count = len(split_keys) + 1
        first = await catalog.next_id(t, COUNTER_PARTITION, count=count, first=FIRST_PARTITION)
        ids = [PartitionId(first + i) for i in range(count)]
        namespace = await catalog.lookup_namespace(t, declared.namespace)
        replicas, tags = placement(namespace, declared)
        places = await self._partitions.places(t, ids, replicas, tags)
        descriptors = plan(table_id, split_keys, first, places)
        put_rows(t, descriptors, replicas or 0, tags, declared.partition_bytes or 0)
        ctx.state["table"] = table_id
        ctx.state["partitions"] = [descriptor.to_wire() for descriptor in descriptors]
        return go_on("partitions")

    @step(undo="drop_partitions", undo_partial=True)
    async def partitions(self, ctx: StepContext) -> Outcome:
        await self._partitions.create(self.stored(ctx))
        return go_on("publish")

    @step
    async def publish(self, ctx: StepContext) -> Outcome:
        t = await CatalogTxn.of(ctx)
        table = await self.table(t, ctx)
        assert table is not None, "only release removes a table that is being created"
        await catalog.publish(t, table)
        self.tell(ctx)
        return done(self.result(ctx))

    @undo
    async def drop_partitions(self, ctx: StepContext) -> None:
        await self._partitions.drop(self.stored(ctx))

    @undo
    async def release(self, ctx: StepContext) -> None:
        t = await CatalogTxn.of(ctx)
        table = await self.table(t, ctx)
        delete_rows(t, self.stored(ctx))
        if table is not None:
            await catalog.finish_drop(t, await catalog.start_drop(t, table.namespace, table.name))


@procedure("DropTable", locks=table_locks)
class DropTable(TableProcedure):
    @step(first=True, point_of_no_return=True)
    async def hide(self, ctx: StepContext) -> Outcome:
        """From this commit on nobody finds the table; its name stays taken until its rows are
        gone.
        """
        namespace, name = name_in(ctx.args, "namespace"), name_in(ctx.args, "name")
        t = await CatalogTxn.of(ctx)
        await catalog.lookup_any(t, namespace, name)  # one that is being made cannot be dropped
        table = await catalog.start_drop(t, namespace, name)
        ctx.state["table"] = table.id
        ctx.state["partitions"] = [d.to_wire() for d in await partitions_of(t, table.id)]
        self.tell(ctx)
        return go_on("close")

    @step
    async def close(self, ctx: StepContext) -> Outcome:
        """Nothing is written to it any more, and nothing elsewhere depends on it; with that, the
        map forgets it. Not before: a node that compares its replicas with the map would remove the
        proof of what was committed. Nor later: it would make again what is dropped.
        """
        closed = self.stored(ctx)
        await self._partitions.close(closed)
        t = await CatalogTxn.of(ctx)
        partitions = await partitions_of(t, TableId(ctx.state["table"]))
        ctx.state["partitions"] = [d.to_wire() for d in partitions]
        if [d.id for d in partitions] != [d.id for d in closed]:
            return go_on("close")  # they were split meanwhile
        delete_rows(t, partitions)
        ctx.state["closed"] = True
        return go_on("partitions")

    @step
    async def partitions(self, ctx: StepContext) -> Outcome:
        stored = self.stored(ctx)
        if not ctx.state.get("closed"):  # of a drop that an earlier version began
            await self._partitions.close(stored)
        await self._partitions.drop(stored)
        return go_on("forget")

    @step
    async def forget(self, ctx: StepContext) -> Outcome:
        t = await CatalogTxn.of(ctx)
        table = await self.table(t, ctx)
        delete_rows(t, self.stored(ctx))  # of a drop that an earlier version began
        if table is not None:
            await catalog.finish_drop(t, table)
        self.tell(ctx)
        return done(self.result(ctx))


@dataclass(frozen=True, slots=True)
class _ColumnArgs:
    """A column as arguments give it (sqlproxy.schema.ColumnLike)."""

    name: str
    type: str
    nullable: bool
    default: Any


def declare(args: Any) -> tuple[Table, list[bytes]]:
    """A checked table descriptor without an id, and its split keys, from the arguments of
    CreateTable. Raises InvalidArgument or TooLarge.
    """
    namespace, name = name_in(args, "namespace"), name_in(args, "name")
    known_fields(args, _CREATE_FIELDS)
    table = Table.declare(
        namespace,
        name,
        columns=column_args(args, "columns"),
        primary_key=names_in(args, "primary_key"),
        replicas=args.get("replicas"),
        tags=names_in(args, "tags"),
        partition_bytes=args.get("partition_bytes"),
    )
    return table, checked_split_keys(_list(args, "split_keys"))


def known_fields(args: Any, fields: frozenset[str]) -> Mapping[str, Any]:
    """The arguments, which have no other fields. Raises InvalidArgument."""
    if not isinstance(args, Mapping):
        raise InvalidArgument(f"the arguments must be a map, got {args!r:.80}")
    if unknown := sorted(map(str, set(args) - fields)):
        raise InvalidArgument(
            f"unknown argument {unknown[0]!r:.60}; there are {', '.join(sorted(fields))}"
        )
    return args


def column_args(args: Mapping[str, Any], field: str) -> list[_ColumnArgs]:
    """Columns from the arguments. Raises InvalidArgument."""
    return [_column(i, c) for i, c in enumerate(_list(args, field))]


def _list(args: Mapping[str, Any], field: str) -> list[Any]:
    value = args.get(field)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"the argument {field!r} must be a list, got {value!r:.80}")
    return list(value)


def names_in(args: Mapping[str, Any], field: str) -> list[str]:
    """A list of names from the arguments. Raises InvalidArgument."""
    names = _list(args, field)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(f"the argument {field!r} must hold names, got {name!r:.80}")
    return names


def _column(i: int, raw: Any) -> _ColumnArgs:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str):
        raise InvalidArgument(f"column {i} must be {{name, type, nullable?}}, got {raw!r:.80}")
    kind, nullable = raw.get("type"), raw.get("nullable", True)
    if not isinstance(kind, str) or not isinstance(nullable, bool):
        raise InvalidArgument(
            f"column {raw['name']!r:.60}: type must be text and nullable a boolean, got {raw!r:.80}"
        )
    return _ColumnArgs(raw["name"], kind, nullable, raw.get("default"))
