"""What tables survive (docs/decisions/1495). Both read the catalog, the map and the members, ask no
node, and change nothing.

    kvorum.explain_loss   {lost: ["dc=eu", "node=3", …], rows?}   what becomes of every table when
                          all of these are lost at once
    kvorum.explain_table  {namespace, name}    what it wants, what it has, and whose loss stops it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import InvalidArgument
from kv.base.ids import META_PARTITION
from kv.base.keys import META_RANGE, table_prefix
from kv.base.limits import EXPLAIN_MAX, NODES_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.registry import Registry, procedure, step
from procedures.master.map.nodes import NodeState, all_nodes
from procedures.master.map.partitions import Placed, placed_of, placed_partitions
from procedures.master.map.placement import preferred_nodes, seats
from procedures.master.map.survival import FATES, breaking, fate, lost_nodes
from procedures.master.members.moves import MasterTxn
from sqlproxy.catalog import catalog
from sqlproxy.ddl.steps import CatalogTxn, known_fields, name_in, names_in
from sqlproxy.rows.schema import Table, placement

EXPLAIN_LOSS: Final = "kvorum.explain_loss"
EXPLAIN_TABLE: Final = "kvorum.explain_table"
ROWS_DEFAULT: Final = 100
_PREFIX: Final = len(table_prefix(0))
_SHOWN: Final = 10  # partitions of a table that are named


@procedure(EXPLAIN_LOSS)
class ExplainLoss:
    @step(first=True)
    async def explain(self, ctx: StepContext) -> Outcome:
        """Raises InvalidArgument."""
        args = known_fields(ctx.args, frozenset({"lost", "rows"}))
        lost, most = names_in(args, "lost"), args.get("rows", ROWS_DEFAULT)
        if not 0 < len(lost) <= NODES_MAX:
            raise InvalidArgument('say in \'lost\' what is lost: ["dc=eu"], ["node=3"]')
        if type(most) is not int or not 0 < most <= EXPLAIN_MAX:
            raise InvalidArgument(f"'rows' must be 1 to {EXPLAIN_MAX}, got {most!r:.40}")
        t, m = await CatalogTxn.of(ctx), MasterTxn(ctx.txn)
        nodes, rows = await all_nodes(m), await placed_partitions(m)
        gone = lost_nodes(lost, nodes)
        of_table: dict[bytes, list[PartitionDescriptor]] = {}
        for row in rows:
            of_table.setdefault(row.descriptor.start[:_PREFIX], []).append(row.descriptor)
        found: list[dict[str, Any]] = []
        for namespace in await catalog.list_namespaces(t):
            for table in await catalog.list_tables(t, namespace.name):
                prefixes = map(table_prefix, table.storage_ids)
                there = [d for prefix in prefixes for d in of_table.get(prefix, ())]
                goal = {"survive": placement(namespace, table).survive}
                found.append({**_named(table), **goal, **_toll(there, gone)})
        found.sort(key=lambda one: [-one[name] for name in FATES[:-1]])
        voters = [row.id for row in nodes if row.state in (NodeState.MEMBER, NodeState.LEAVING)]
        witnesses = tuple(row.id for row in nodes if row.witness)
        meta = PartitionDescriptor(META_PARTITION, *META_RANGE, 1, tuple(voters), (), witnesses)
        return done(
            {
                "nodes": sorted(gone),
                "meta": fate(meta, gone),
                "total": {name: sum(one[name] for one in found) for name in FATES},
                "tables": found[:most],
            }
        )


@procedure(EXPLAIN_TABLE)
class ExplainTable:
    @step(first=True)
    async def explain(self, ctx: StepContext) -> Outcome:
        """Raises InvalidArgument, NotFound."""
        args = known_fields(ctx.args, frozenset({"namespace", "name"}))
        t, m = await CatalogTxn.of(ctx), MasterTxn(ctx.txn)
        namespace = await catalog.lookup_namespace(t, name_in(args, "namespace"))
        table = await catalog.lookup_any(t, namespace.name, name_in(args, "name"))
        nodes = await all_nodes(m)
        rows = [row for id_ in table.storage_ids for row in await placed_of(m, id_)]
        wanted = placement(namespace, table)
        there = seats(wanted, nodes)
        stops = breaking(rows, nodes)
        liked = preferred_nodes(rows, nodes).get(wanted.leaders, frozenset())
        return done(
            {
                **_named(table),
                **{name: getattr(wanted, name) for name in ("replicas", "survive", "leaders")},
                "tags": list(wanted.tags),
                "copies": there.data,
                "witness_at": list(there.witnesses),
                "short": there.short,
                "partitions": [_where(row) for row in rows[:EXPLAIN_MAX]],
                "preferred": sorted(liked),
                "stopped_by": stops,
                "holds": not (wanted.survive and stops[wanted.survive]),
            }
        )


def _named(table: Table) -> dict[str, Any]:
    return {"namespace": table.namespace, "name": table.name}


def _toll(there: list[PartitionDescriptor], gone: frozenset[Any]) -> Mapping[str, Any]:
    fates = [fate(descriptor, gone) for descriptor in there]
    counts = Counter(fates)
    hit = [d.id for d, one in zip(there, fates, strict=True) if one != FATES[-1]]
    return {**{name: counts[name] for name in FATES}, "hit": hit[:_SHOWN]}


def _where(row: Placed) -> dict[str, Any]:
    d = row.descriptor
    return {"id": d.id, "copies": list(d.data_voters), "witnesses": list(d.witnesses)}


def register(registry: Registry) -> None:
    """Serve the procedures of this module."""
    registry.add(ExplainLoss)
    registry.add(ExplainTable)
