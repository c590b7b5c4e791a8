"""What a node that has restarted must do before it counts as whole, as a one-phase operation to
that node alone (N11).

    kvorum.recover_node   {node, timeout_ms?} → {node, partitions, took_ms}

The node compares its replicas with the map, makes what it misses, and waits until each replica has
applied all that its leader had committed when it was asked. The leaders send the log, or a snapshot
(raft/README.md): in the source's words, that is the log replay, distributed over the partitions'
leaders. Its partitions are busy meanwhile: nothing of them is moved.

A node submits this for itself at its start (kvorum/master/bus.py). Its own readiness does not hang
on it: a cluster that starts has no master before enough of its nodes are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kv.base.errors import InvalidArgument
from procedures.bus import targets
from procedures.bus.phases import OnePhase
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.registry import procedure
from procedures.master.map.partitions import placed_partitions
from procedures.master.members.moves import MasterTxn

CATCH_UP = "catch_up"
RETENTION_MS = 3_600_000
_TIMEOUT_MS = 60_000


@procedure("kvorum.recover_node", retention_ms=RETENTION_MS)
class RecoverNode(OnePhase):
    """See the module."""

    kind: ClassVar[str] = CATCH_UP
    leaves_nothing: ClassVar[bool] = True

    def timeout_ms(self, ctx: StepContext) -> int:
        return super().timeout_ms(ctx) if "timeout_ms" in ctx.args else _TIMEOUT_MS

    async def wanted(self, ctx: StepContext) -> Plain:
        node = ctx.args.get("node") if isinstance(ctx.args, dict) else None
        if type(node) is not int:
            raise InvalidArgument(f"kvorum.recover_node wants {{node}}, got {ctx.args!r:.120}")
        rows = await placed_partitions(MasterTxn(ctx.txn))
        mine = sorted(row.descriptor.id for row in rows if node in row.nodes)
        return await targets.wanted(ctx, {"nodes": [node]}, {"partitions": mine})

    def result(self, ctx: StepContext, results: Mapping[str, Any]) -> object:
        node = ctx.args["node"]
        return {"node": node, **(results.get(targets.node_target(node)) or {})}
