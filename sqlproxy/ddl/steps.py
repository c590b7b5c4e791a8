"""What DDL's procedures are put together from: arguments, locks, the transaction of a step in the
shape of the catalog, and the steps that make and remove key ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, KvorumError
from kv.base.ids import TableId
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.procedure import Lock, Outcome, exclusive
from procedures.engine.procedure import next as go_on
from procedures.master.map.partitions import Maker, delete_rows, partitions_of
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import Plan
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.version_waits import Settled
from sqlproxy.rows.naming import located
from sqlproxy.rows.schema import PLACING
from sqlproxy.values.refusals import invalid
from txn.results import ScanPage


@dataclass(frozen=True, slots=True)
class DdlServices:
    """What DDL works with. `changed` is called for every table whose descriptor changed: caches.
    `settled`: the wait between two versions; only what needs it has to have one.
    """

    partitions: Maker
    changed: Callable[[str, str], None]
    settled: Settled | None = None


class CatalogTxn:
    """A step's transaction in the shape that sqlproxy.catalog.catalog wants (catalog.Writer)."""

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


def name_in(args: object, field: str) -> str:
    """A name from the arguments; the catalog says which names are allowed. Raises
    InvalidArgument.
    """
    value = args.get(field) if isinstance(args, Mapping) else None
    if not isinstance(value, str):
        raise InvalidArgument(f"the argument {field!r} must be a name, got {value!r:.80}")
    return value


def namespace_locks(args: object) -> list[Lock]:
    """The whole namespace. Raises InvalidArgument."""
    return [exclusive(f"namespace/{name_in(args, 'namespace')}")]


def drop_locks(args: Any) -> list[Lock]:
    """All that are named. Raises InvalidArgument."""
    return [exclusive(f"table/{space}/{name}") for space, name in places_to_drop(args)]


def table_locks(args: object) -> list[Lock]:
    """One table. Raises InvalidArgument."""
    namespace = name_in(args, "namespace")
    return [exclusive(f"table/{namespace}/{name_in(args, 'name')}")]  # and the namespace shared


def known_fields(args: object, fields: frozenset[str]) -> Mapping[str, Any]:
    """The arguments, which have no other fields. Raises InvalidArgument."""
    if not isinstance(args, Mapping):
        raise InvalidArgument(f"the arguments must be a map, got {args!r:.80}")
    if unknown := sorted(map(str, set(args) - fields)):
        raise InvalidArgument(
            f"unknown argument {unknown[0]!r:.60}; there are {', '.join(sorted(fields))}"
        )
    return args


def list_in(args: Mapping[str, object], field: str) -> list[Any]:
    """A list from the arguments, none if it is left out. Raises InvalidArgument."""
    value = args.get(field)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"the argument {field!r} must be a list, got {value!r:.80}")
    return list(value)


def names_in(args: Mapping[str, object], field: str) -> list[str]:
    """A list of names from the arguments. Raises InvalidArgument."""
    names = list_in(args, field)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(f"the argument {field!r} must hold names, got {name!r:.80}")
    return names


def placing_in(args: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments say of `sqlproxy.rows.schema.placed`; null is the same as nothing at all,
    but for replicas: as many as the namespace says.
    """
    found = {name: args[name] for name in PLACING if name in args}
    found = {name: "" if value is None else value for name, value in found.items()}
    if "replicas" in args:
        found["replicas"] = args["replicas"]
    if "tags" in args:
        found["tags"] = tuple(names_in(args, "tags"))
    if (size := args.get("partition_bytes")) is not None:
        found["partition_bytes"] = size or None
    return found


async def drop_along(t: CatalogTxn, drop: Plan, changed: Callable[[str, str], None]) -> None:
    """All of a plan but its tables."""
    for view in drop.views:
        await relations.drop_name(t, view.namespace, view.name)
    for sequence in drop.sequences:
        await resolve_declaration.drop_sequence(t, sequence)
    for table in drop.changed.values():
        stored = await catalog.find_by_id(t, table.id)
        assert stored is not None, "it was read in this transaction"
        bare = replace(stored, foreign_keys=table.foreign_keys, columns=table.columns)
        await catalog.write(t, replace(bare, version=stored.version + 1))
        changed(table.namespace, table.name)


def names_to_drop(args: Mapping[str, object]) -> list[str]:
    """`names`, or the one `name`. Raises InvalidArgument."""
    if args.get("names") is None:
        return [name_in(args, "name")]
    found = list(dict.fromkeys(names_in(args, "names")))
    if not found:
        raise InvalidArgument("the argument 'names' is empty: name what is to be dropped")
    return found


def places_to_drop(args: Mapping[str, object]) -> list[tuple[str, str]]:
    """The same with their namespaces: `names` may hold references. Raises InvalidArgument."""
    namespace = name_in(args, "namespace")
    if args.get("names") is None:
        return [(namespace, name_in(args, "name"))]
    found = [located(namespace, one) for one in list_in(args, "names")]
    if not found:
        raise InvalidArgument("the argument 'names' is empty: name what is to be dropped")
    return list(dict.fromkeys(found))


def wrong_kind(name: str, is_: str, wanted: str) -> KvorumError:
    """42809, in PostgreSQL's words."""
    shown = {"key": "index"}.get(is_, is_)
    article = "an" if wanted == "index" else "a"
    return invalid(
        "42809",
        f'"{name}" is not {article} {wanted}',
        hint=f"Use DROP {shown.upper()} to remove {'an' if shown == 'index' else 'a'} {shown}.",
    )


class RangeProcedure:
    """A procedure that makes or removes key ranges. ctx.state: partitions (descriptor rows)."""

    def __init__(self, services: DdlServices) -> None:
        self.maker = services.partitions
        self.changed = services.changed
        """A hint to caches, before the commit and perhaps for nothing; they also age."""
        self._settled = services.settled

    async def settle(self, ctx: StepContext) -> None:
        """See `sqlproxy.ddl.change.states.Change`."""
        assert self._settled is not None, "it was registered with a wait"
        await self._settled.proxies(ctx.args["namespace"], lambda text: ctx.progress(0, text))

    async def native_writers(self, table: TableId) -> None:
        """Until nobody writes to it without SQL; see `sqlproxy.ddl.change.version_waits`."""
        assert self._settled is not None, "it was registered with a wait"
        await self._settled.native_writers(table)

    @staticmethod
    def stored(ctx: StepContext) -> list[PartitionDescriptor]:
        return [PartitionDescriptor.from_wire(row) for row in ctx.state["partitions"]]

    @staticmethod
    def asked(ctx: StepContext) -> dict[str, Any]:
        """What was named."""
        return {key: ctx.args[key] for key in ("namespace", "name", "names") if key in ctx.args}

    @staticmethod
    async def mapped(t: CatalogTxn, ids: Iterable[int]) -> list[PartitionDescriptor]:
        """The partitions of these tables and indexes, as the map has them. Raises Busy."""
        return [d for number in ids for d in await partitions_of(t, TableId(number))]

    async def close_all(self, descriptors: list[PartitionDescriptor]) -> None:
        """One range of keys after the other."""
        for _, group in groupby(descriptors, key=lambda d: d.start[:4]):
            await self.maker.close(list(group))

    async def closed(self, ctx: StepContext, ids: list[int], *, then: str) -> Outcome:
        """Nothing is written to these ranges any more, and nothing elsewhere depends on them; with
        that, the map forgets them. Not before: a node that compares its replicas with the map
        would remove the proof of what was committed. Nor later: it would make again what is
        dropped. It comes again if they were split meanwhile.
        """
        closed = self.stored(ctx)
        await self.close_all(closed)
        t = await CatalogTxn.of(ctx)
        partitions = await self.mapped(t, ids)
        ctx.state["partitions"] = [d.to_wire() for d in partitions]
        if [d.id for d in partitions] != [d.id for d in closed]:
            return go_on("close")
        delete_rows(t, partitions)
        ctx.state["closed"] = True
        return go_on(then)
