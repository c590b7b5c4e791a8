"""kvorum.place_table {namespace, name, replicas?, tags?}: how many replicas a table has from now
on, and which tags a node must carry to have them (I14). And what all changes of that share.

One transaction changes the descriptor in the catalog and every row of the table in the partition
map; the replicas follow: the placement scheduler of the master moves what is at the wrong nodes,
adds what is missing and removes what is too much (procedures/master/schedulers/schedule.py). What
is left out stays as it is; `replicas` null means as many as its namespace says, else one at every
node that carries the tags: the table's and its namespace's.

Refused (NO_NODE_WITH_TAGS) if no member carries the tags, or if those that do cannot give what the
table is to survive (CANNOT_SURVIVE): then nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument
from kv.base.ids import NodeId
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, done, exclusive
from procedures.engine.registry import procedure, step
from procedures.master.map.nodes import NodeState, all_nodes
from procedures.master.map.partitions import (
    busy_with,
    check_shards,
    hold_new_ones,
    placed_of,
    put_row,
)
from procedures.master.map.placement import carries, checked_seats, no_node_with
from procedures.master.members.moves import MasterTxn
from sqlproxy.catalog import catalog
from sqlproxy.ddl.steps import CatalogTxn, placing_in
from sqlproxy.rows.schema import Namespace, Table, placement

PLACE_TABLE: Final = "kvorum.place_table"
_FIELDS: Final = frozenset({"namespace", "name", "replicas", "tags"})


def _checked(args: object) -> Mapping[str, Any]:
    """Raises InvalidArgument. What replicas and tags may be says the schema."""
    if not isinstance(args, Mapping) or not all(
        isinstance(args.get(name), str) for name in ("namespace", "name")
    ):
        raise InvalidArgument("the arguments 'namespace' and 'name' must be names")
    if unknown := sorted(set(args) - _FIELDS):
        raise InvalidArgument(f"unknown argument {unknown[0]!r:.60}")
    if not {"replicas", "tags"} & set(args):
        raise InvalidArgument("give 'replicas' (1 or more; null = everywhere), 'tags', or both")
    tags = args.get("tags", ())
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidArgument(f"the argument 'tags' must be a list of names, got {tags!r:.80}")
    return args


def _locks(args: object) -> list[Lock]:
    checked = _checked(args)
    return [exclusive(f"table/{checked['namespace']}/{checked['name']}")]


@procedure(PLACE_TABLE, locks=_locks)
class PlaceTable:
    @step(first=True)
    async def place(self, ctx: StepContext) -> Outcome:
        args = _checked(ctx.args)
        t = await CatalogTxn.of(ctx)
        table = await catalog.lookup_any(t, args["namespace"], args["name"])
        namespace = await catalog.lookup_namespace(t, args["namespace"])
        table = await catalog.modify(t, table, placing_in(args))
        partitions, nodes = await placed_anew(ctx, namespace, table)
        return done(
            {
                "namespace": table.namespace,
                "name": table.name,
                "replicas": table.replicas,
                "tags": list(table.tags),
                "partitions": partitions,
                "nodes": nodes,
            }
        )


async def placed_anew(
    ctx: StepContext, namespace: Namespace, table: Table
) -> tuple[int, list[NodeId]]:
    """Write what a table wants into its rows of the map; how many there are, and the nodes that may
    have replicas. Raises Refused (NO_NODE_WITH_TAGS, CANNOT_SURVIVE), Busy.
    """
    wanted = placement(namespace, table)
    m = MasterTxn(ctx.txn)
    await check_shards(m, wanted.shard)
    nodes = await all_nodes(m)
    able = [
        row.id
        for row in nodes
        if row.state is NodeState.MEMBER and not row.witness and carries(row.tags, wanted.tags)
    ]
    if not able:
        raise no_node_with(wanted.tags, nodes)
    checked_seats(wanted, nodes)
    await hold_new_ones(m)  # none is split off meanwhile with the old values
    rows = [row for number in table.storage_ids for row in await placed_of(m, number)]
    for placed in rows:
        if placed.change:
            raise busy_with(placed)
        put_row(m, placed.wanting(wanted))
    return len(rows), able
