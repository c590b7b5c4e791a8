"""Whom an operation is sent to, and what each of them is asked: looked up anew at every step, since
nodes come and go and partitions move.

    {"nodes": "all"}                   every member that keeps data
    {"nodes": [1, 3]}                  these
    {"table": {"namespace", "name"}}   who has replicas with data of its partitions, each with their
                                       ids as body["partitions"]
    {"partitions": [5, 7]}             the same for these partitions
    {"workers": ["worker/a", …]}       these, by the names under which they report
    {"pool": "shop"}                   the workers of a pool that carry out operations and are here

A node is named "node/3", a worker "worker/NAME". Nodes that were decommissioned are nobody's
targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kv.base import limits
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument, NotFound
from kv.base.keys import unescape
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.master.map.nodes import NodeRow, NodeState, all_nodes
from procedures.master.map.partitions import partitions_of, placed_partitions
from procedures.master.members.moves import MasterTxn
from procedures.pools import rows
from procedures.pools.messages import Entry, entry

_FORMS: Final = "nodes, table, partitions, workers, pool"
_WORKER: Final = "worker/"


def node_target(node: int) -> str:
    """The name of a node on the bus."""
    return f"node/{node}"


def worker_target(name: str) -> str:
    """The name of a worker on the bus."""
    return f"{_WORKER}{name}"


def node_of(target: str) -> int | None:
    """The node of a name, None for a worker's."""
    kind, _, number = target.partition("/")
    return int(number) if kind == "node" and number.isdecimal() else None


async def wanted(ctx: StepContext, spec: object, body: Mapping[str, object] | None = None) -> Plain:
    """What each target of `spec` is asked now: `body`, and its partitions. Raises InvalidArgument,
    NotFound.
    """
    base = dict(body or {})
    match spec:
        case {"nodes": "all"}:
            nodes = [row for row in await _living(ctx) if not row.witness]
            return {node_target(row.id): base for row in nodes}
        case {"nodes": list(ids)} if ids and all(_is_id(one) for one in ids):
            known = {row.id for row in await _living(ctx)}
            missing = sorted(set(ids) - known)
            if missing and "bus" not in ctx.state:
                raise NotFound(f"there is no node {missing[0]} in this cluster")
            return {node_target(one): base for one in sorted(known.intersection(ids))}
        case {"table": {"namespace": str(namespace), "name": str(name)}}:
            table = await ctx.txn.table_id((namespace, name))
            return by_host(await partitions_of(MasterTxn(ctx.txn), table), base)
        case {"partitions": list(ids)} if ids and all(_is_id(one) for one in ids):
            placed = await placed_partitions(MasterTxn(ctx.txn))
            found = [row.descriptor for row in placed if row.descriptor.id in ids]
            missing = sorted(set(ids) - {descriptor.id for descriptor in found})
            if missing:
                raise NotFound(f"there is no partition {missing[0]}", code="PARTITION_NOT_FOUND")
            return by_host(found, base)
        case {"workers": list(names)} if names and all(_is_worker(one) for one in names):
            return dict.fromkeys(sorted(set(names)), base)
        case {"pool": str(pool)} if pool:
            here = await _workers(ctx)
            able = [name for name, of in here.items() if of.pool == pool and of.operations]
            return {worker_target(name): base for name in sorted(able)}
    raise InvalidArgument(
        f"targets must be one of {_FORMS} (docs/guides/bus.md), got {spec!r:.120}"
    )


def by_host(
    descriptors: Iterable[PartitionDescriptor], base: Mapping[str, object]
) -> dict[str, dict[str, object]]:
    """Per node that has data of these partitions: which of them."""
    hosts: dict[int, list[int]] = {}
    for descriptor in descriptors:
        for node in (*descriptor.data_voters, *descriptor.learners):
            hosts.setdefault(node, []).append(descriptor.id)
    return {node_target(node): {**base, "partitions": sorted(ids)} for node, ids in hosts.items()}


async def gone(ctx: StepContext, silent: Iterable[str] = ()) -> frozenset[str]:
    """The nodes that were decommissioned, and those of the `silent` ones that are workers without a
    lease: nothing is there to be committed or taken back.
    """
    nodes = await all_nodes(MasterTxn(ctx.txn))
    found = {node_target(row.id) for row in nodes if row.state is NodeState.GONE}
    for target in silent:
        if target.startswith(_WORKER):
            row = await ctx.txn.get(rows.worker(target.removeprefix(_WORKER)))
            if row is None:
                found.add(target)
    return frozenset(found)


async def _workers(ctx: StepContext) -> dict[str, Entry]:
    """Everybody whose lease lasts, by name."""
    start: bytes | None
    start, end = rows.ALL_WORKERS
    prefix = len(start)
    found: dict[str, Entry] = {}
    while start is not None:
        page = await ctx.txn.scan(start, end, limit=limits.PROCEDURE_PAGE_MAX)
        for key, value, _ in page.items:
            found[unescape(key, prefix)[0].decode()] = entry(value)
        start = page.resume
    return found


async def _living(ctx: StepContext) -> list[NodeRow]:
    nodes = await all_nodes(MasterTxn(ctx.txn))
    return [row for row in nodes if row.state is not NodeState.GONE]


def _is_id(value: object) -> bool:
    return type(value) is int and 0 < value < 1 << 63


def _is_worker(value: object) -> bool:
    return (
        isinstance(value, str) and value.startswith(_WORKER) and len(value) <= limits.NAME_CHARS_MAX
    )
