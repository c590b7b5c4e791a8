"""DDL as procedures: namespaces and tables are created and dropped wholly or not at all (J1).

    CreateNamespace  {namespace, replicas?, tags?}    what its tables have that do not say otherwise
    DropNamespace    {namespace}          refused while it has tables
    CreateTable      {namespace, name, split_keys?, columns?: [{name, type, nullable?, default?}],
                      primary_key?, replicas?, tags?, partition_bytes?, if_not_exists?, and what
                      SQL declares besides: sqlproxy/declaring.py}
                     → {table_id, namespace, name, partitions: [id, …]}; {exists} if it is there
    DropTable        {namespace, name | names, cascade?, if_exists?}    → the same, and {cascaded:
                     [what went along], missing: [name, …]}

An index is made and dropped with its table: it has a key range and partitions of its own. So are
the sequences that its columns own. What depends on a table that is dropped: sqlproxy/dropping.py.

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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kv.base.ids import PartitionId, TableId
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.procedure import Lock, Outcome, again, done, exclusive
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
from sqlproxy import catalog, relations, settling
from sqlproxy.declaring import Draft, columns_in, hidden_key, with_parts
from sqlproxy.dropping import Plan, plan_drop
from sqlproxy.naming import check_table_name
from sqlproxy.refusals import refusal
from sqlproxy.schema import ROWID, Column, Namespace, Table, placement
from txn.results import ScanPage

_CREATE_FIELDS = frozenset(
    {
        *("namespace", "name", "split_keys", "columns", "primary_key", "primary_key_name"),
        *("replicas", "tags", "partition_bytes", "hidden_key", "if_not_exists"),
        *("indexes", "checks", "foreign_keys"),
    }
)
_DROP_FIELDS = frozenset({"namespace", "name", "names", "cascade", "if_exists"})
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


def drop_locks(args: Any) -> list[Lock]:
    """All that are named. Raises InvalidArgument."""
    namespace = name_in(args, "namespace")
    return [exclusive(f"table/{namespace}/{name}") for name in names_to_drop(args)]


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
    def asked(ctx: StepContext) -> dict[str, Any]:
        """What was named."""
        return {key: ctx.args[key] for key in ("namespace", "name", "names") if key in ctx.args}

    @staticmethod
    def result(ctx: StepContext) -> dict[str, Any]:
        return {
            "table_id": ctx.state["table"],
            **TableProcedure.asked(ctx),
            "partitions": [row[0] for row in ctx.state["partitions"]],
        }

    def tell(self, ctx: StepContext) -> None:
        """A hint to caches, before the commit and perhaps for nothing; they also age."""
        self._changed(ctx.args["namespace"], ctx.args["name"])


@procedure("CreateTable", locks=table_locks)
class CreateTable(TableProcedure):
    @step(first=True, undo="release")
    async def reserve(self, ctx: StepContext) -> Outcome:
        """Check everything, take the names and the ids. A name that caches may still take for a
        table that was renamed is waited for.
        """
        draft, split_keys = declare(ctx.args)
        t = await CatalogTxn.of(ctx)
        namespace = await catalog.lookup_namespace(t, draft.table.namespace)
        name = draft.table.name
        if ctx.args.get("if_not_exists") and (
            there := await relations.find_relation(t, namespace.name, name)
        ):
            return done({"namespace": namespace.name, "name": name, "exists": there.kind})
        wait_ms = await relations.gone_until(t, namespace.name, name) - ctx.now_ms
        if wait_ms > 0:
            return again(delay_ms=wait_ms)
        table_id = await catalog.next_table_id(t)
        settled, sequences = await settling.settled(t, draft, table_id)
        table = await catalog.create_table_record(t, settled, table_id)
        await relations.put_index_names(t, table)
        for sequence in sequences:
            await relations.put_sequence(t, sequence)
        descriptors = await self._planned(t, namespace, table, split_keys)
        ctx.state["table"] = table_id
        ctx.state["partitions"] = [descriptor.to_wire() for descriptor in descriptors]
        return go_on("partitions")

    async def _planned(
        self, t: CatalogTxn, namespace: Namespace, table: Table, split_keys: list[bytes]
    ) -> list[PartitionDescriptor]:
        """The partitions of the table and of each of its indexes, in the map."""
        replicas, tags = placement(namespace, table)
        cuts = [split_keys, *([] for _ in table.indexes)]
        count = sum(len(keys) + 1 for keys in cuts)
        first = await catalog.next_id(t, COUNTER_PARTITION, count=count, first=FIRST_PARTITION)
        ids = [PartitionId(first + i) for i in range(count)]
        places = await self._partitions.places(t, ids, replicas, tags)
        found: list[PartitionDescriptor] = []
        for storage_id, keys in zip(table.storage_ids, cuts, strict=True):
            at = len(found)
            found += plan(storage_id, keys, first + at, places[at : at + len(keys) + 1])
        put_rows(t, found, replicas or 0, tags, table.partition_bytes or 0)
        return found

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
        if "table" not in ctx.state:
            return  # it was waiting for its name
        t = await CatalogTxn.of(ctx)
        table = await self.table(t, ctx)
        delete_rows(t, self.stored(ctx))
        if table is not None:
            await settling.forget_parts(t, table)
            await catalog.finish_drop(t, await catalog.start_drop(t, table.namespace, table.name))


@procedure("DropTable", locks=drop_locks)
class DropTable(TableProcedure):
    """ctx.state: tables (ids, those of their indexes, and what goes along), partitions."""

    @step(first=True, point_of_no_return=True)
    async def hide(self, ctx: StepContext) -> Outcome:
        """From this commit on nobody finds the tables, nor what goes with them; their names stay
        taken until their rows are gone. Raises NotFound, Refused (2BP01).
        """
        args = known_fields(ctx.args, _DROP_FIELDS)
        t = await CatalogTxn.of(ctx)
        found, missing = await self._targets(t, args)
        if not found:
            return done({**self.asked(ctx), "missing": missing, "partitions": []})
        namespace = found[0].namespace
        there = await relations.list_relations(t, namespace, creating=True)
        drop = plan_drop(there, found, cascade=bool(args.get("cascade")))
        ids: list[TableId] = []
        for table in drop.tables:
            ids += table.storage_ids
            await settling.forget_parts(t, table)
            await catalog.start_drop(t, namespace, table.name)
            self._changed(namespace, table.name)
        await drop_along(t, drop, self._changed)
        ctx.state["table"] = drop.tables[0].id
        ctx.state["tables"] = [[table.id, table.name] for table in drop.tables]
        ctx.state["ranges"] = ids
        ctx.state["told"] = {"cascaded": drop.told, "missing": missing}
        ctx.state["partitions"] = [d.to_wire() for d in await self._mapped(t, ids)]
        return go_on("close")

    async def _targets(
        self, t: CatalogTxn, args: Mapping[str, Any]
    ) -> tuple[list[Table], list[str]]:
        """What there is to be dropped, and what is not there (with `if_exists`)."""
        found, missing = [], []
        for name in names_to_drop(args):
            try:  # one that is being made cannot be dropped
                found.append(await catalog.lookup_any(t, args["namespace"], name))
            except NotFound as error:
                other = await relations.find_relation(t, args["namespace"], name)
                if other is not None and other.kind != "table":
                    raise wrong_kind(name, other.kind, "table") from error
                if not args.get("if_exists") or error.code == "NAMESPACE_NOT_FOUND":
                    raise
                missing.append(name)
        return found, missing

    @staticmethod
    async def _mapped(t: CatalogTxn, ids: Iterable[int]) -> list[PartitionDescriptor]:
        return [d for number in ids for d in await partitions_of(t, TableId(number))]

    @staticmethod
    def ranges(ctx: StepContext) -> list[int]:
        """The ids of what is dropped; an earlier version dropped one table without indexes."""
        found: list[int] = ctx.state.get("ranges") or [ctx.state["table"]]
        return found

    async def _close(self, descriptors: list[PartitionDescriptor]) -> None:
        """One range of keys after the other."""
        for _, group in groupby(descriptors, key=lambda d: d.start[:4]):
            await self._partitions.close(list(group))

    @step
    async def close(self, ctx: StepContext) -> Outcome:
        """Nothing is written to it any more, and nothing elsewhere depends on it; with that, the
        map forgets it. Not before: a node that compares its replicas with the map would remove the
        proof of what was committed. Nor later: it would make again what is dropped.
        """
        closed = self.stored(ctx)
        await self._close(closed)
        t = await CatalogTxn.of(ctx)
        partitions = await self._mapped(t, self.ranges(ctx))
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
            await self._close(stored)
        await self._partitions.drop(stored)
        return go_on("forget")

    @step
    async def forget(self, ctx: StepContext) -> Outcome:
        t = await CatalogTxn.of(ctx)
        delete_rows(t, self.stored(ctx))  # of a drop that an earlier version began
        own = [ctx.state["table"], ctx.args.get("name")]
        for number, name in ctx.state.get("tables") or [own]:
            table = await catalog.find_by_id(t, TableId(number))
            if table is not None:
                await catalog.finish_drop(t, table)
            self._changed(ctx.args["namespace"], name)
        return done({**self.result(ctx), **ctx.state.get("told", {})})


async def drop_along(t: CatalogTxn, drop: Plan, changed: Callable[[str, str], None]) -> None:
    """All of a plan but its tables."""
    for view in drop.views:
        await relations.drop_name(t, view.namespace, view.name)
    for sequence in drop.sequences:
        await settling.drop_sequence(t, sequence)
    for table in drop.changed.values():
        stored = await catalog.find_by_id(t, table.id)
        assert stored is not None, "it was read in this transaction"
        bare = replace(stored, foreign_keys=table.foreign_keys, columns=table.columns)
        await catalog.write(t, replace(bare, version=stored.version + 1))
        changed(table.namespace, table.name)


def names_to_drop(args: Mapping[str, Any]) -> list[str]:
    """`names`, or the one `name`. Raises InvalidArgument."""
    if args.get("names") is None:
        return [name_in(args, "name")]
    found = list(dict.fromkeys(names_in(args, "names")))
    if not found:
        raise InvalidArgument("the argument 'names' is empty: name what is to be dropped")
    return found


def wrong_kind(name: str, is_: str, wanted: str) -> KvorumError:
    """42809, in PostgreSQL's words."""
    shown = {"key": "index"}.get(is_, is_)
    article = "an" if wanted == "index" else "a"
    return refusal(
        "42809",
        f'"{name}" is not {article} {wanted}',
        hint=f"Use DROP {shown.upper()} to remove {'an' if shown == 'index' else 'a'} {shown}.",
        kind=InvalidArgument,
    )


def declare(args: Any) -> tuple[Draft, list[bytes]]:
    """A checked table without an id, and its split keys, from the arguments of CreateTable. Raises
    InvalidArgument or TooLarge.
    """
    namespace, name = name_in(args, "namespace"), name_in(args, "name")
    known_fields(args, _CREATE_FIELDS)
    columns, sequences = columns_in(_list(args, "columns"))
    primary_key = names_in(args, "primary_key")
    if args.get("hidden_key") and not primary_key:
        columns.append(hidden_key())
        primary_key = [ROWID]
    table = Table.declare(
        namespace,
        name,
        columns=columns,
        primary_key=primary_key,
        replicas=args.get("replicas"),
        tags=names_in(args, "tags"),
        partition_bytes=args.get("partition_bytes"),
    )
    key_name = args.get("primary_key_name") or ""
    if key_name:
        check_table_name("primary key", key_name)
    draft = with_parts(replace(table, primary_key_name=key_name), args)
    return replace(draft, sequences=tuple(sequences)), checked_split_keys(_list(args, "split_keys"))


def known_fields(args: Any, fields: frozenset[str]) -> Mapping[str, Any]:
    """The arguments, which have no other fields. Raises InvalidArgument."""
    if not isinstance(args, Mapping):
        raise InvalidArgument(f"the arguments must be a map, got {args!r:.80}")
    if unknown := sorted(map(str, set(args) - fields)):
        raise InvalidArgument(
            f"unknown argument {unknown[0]!r:.60}; there are {', '.join(sorted(fields))}"
        )
    return args


def column_args(args: Mapping[str, Any], field: str) -> list[Column]:
    """Columns that are added to a table that is there. Raises InvalidArgument."""
    found, sequences = columns_in(_list(args, field))
    if sequences:
        raise InvalidArgument(
            f"column {sequences[0][0]}: a column that numbers itself cannot be added here"
        )
    return found


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
