"""When a node is dead for long: its replicas are rebuilt elsewhere (F6, I13).

    kvorum.server_crash {node}   check ─▶ children (kvorum.move_replica, RemoveReplica) ─▶ check …
                                       ─▶ done {node, rebuilt, removed, left, back}

Each round looks at the map anew and changes as many partitions as it may at once, until the node
has nothing left that can be rebuilt, or is back: then what is done stays done, and the rest stays
with it. What comes back later finds that the map does not name it any more: those replicas are
removed (reconcile.py), and the node is used again for whatever it is chosen for. Its row in the
members table stays: a dead node is no decommissioned one, and nothing keeps it from coming back.

`left` names the partitions that could not be changed: too few voters answer (bring nodes back; or
force, docs/operations), or no node is left that may have the replica (add one). Acknowledged
writes are in a majority of the voters, and only groups whose majority answers are changed, so that
nothing is lost whenever the node comes back.

The meta partition, and tables that are everywhere, only lose the dead node's vote, and only where
the others survive one failure more without it (balancing/placing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.ids import META_PARTITION, NodeId
from kv.base.limits import MEMBERSHIP_MOVES_MAX, MEMBERSHIP_PAUSE_MS
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.registry import Registry, procedure, step
from procedures.master.balancing.model import Fix
from procedures.master.balancing.placing import Placer
from procedures.master.map.nodes import all_nodes
from procedures.master.map.partitions import Placed, placed_partitions
from procedures.master.map.picture import Loads, picture, wanted_by
from procedures.master.members.moves import (
    REMOVE_REPLICA,
    MasterTxn,
    MembershipServices,
    ReplicaMove,
    living,
    node_locks,
)
from procedures.master.members.relocating import MOVE_REPLICA

SERVER_CRASH: Final = "kvorum.server_crash"
_ROUNDS_MAX: Final = 10_000

Dead = Callable[[], frozenset[NodeId]]
"""Who was silent for too long, as the master of this moment has it."""


class CrashServices:
    """What the procedure works with: besides groups, what the master knows."""

    def __init__(
        self, membership: MembershipServices, loads: Callable[[], Loads], dead: Dead
    ) -> None:
        self.membership, self.loads, self.dead = membership, loads, dead


@procedure(SERVER_CRASH, locks=node_locks)
class ServerCrash(ReplicaMove):
    def __init__(self, services: CrashServices) -> None:
        super().__init__(services.membership)
        self._loads, self._dead = services.loads, services.dead

    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        node = NodeId((await living(ctx)).id)
        state = ctx.state
        state.setdefault("rebuilt", 0)
        state.setdefault("removed", 0)
        t = MasterTxn(ctx.txn)
        nodes, rows = await all_nodes(t), await placed_partitions(t)
        views = await self._groups.views([row.id for row in nodes])
        if node in views:
            return done(self._result(ctx, rows, back=True))
        placer = Placer(
            picture(nodes, rows, views, self._loads()),
            *wanted_by(rows, nodes),
            dead={node, *self._dead()},
            level=self._level(),
        )
        by_id = {row.descriptor.id: row for row in rows}
        fixes = [
            fix
            for fix in placer.fixes()
            if fix.rule == "dead" and fix.source == node and not by_id[fix.partition].change
        ]
        if not fixes or ctx.round > _ROUNDS_MAX:
            return await self._end(ctx, rows)
        del fixes[MEMBERSHIP_MOVES_MAX:]
        state["rebuilt"] += sum(fix.target is not None for fix in fixes)
        state["removed"] += sum(fix.target is None for fix in fixes)
        return children([self._call(fix, by_id[fix.partition]) for fix in fixes], then="check")

    @staticmethod
    def _call(fix: Fix, placed: Placed) -> tuple[str, Plain]:
        id_ = placed.descriptor.id
        if fix.target is None:
            return REMOVE_REPLICA, {
                "partition": id_,
                "start": placed.descriptor.start,
                "node": fix.source,
            }
        return MOVE_REPLICA, {
            "partition": id_,
            "from": fix.source,
            "to": fix.target,
            "why": fix.reason,
        }

    async def _end(self, ctx: StepContext, rows: list[Placed]) -> Outcome:
        """The meta partition last: it holds the map."""
        node = NodeId(ctx.args["node"])
        candidates = [row.id for row in await all_nodes(MasterTxn(ctx.txn))]
        view = await self._groups.leader_view(META_PARTITION, candidates)
        if view is None:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        dead = {node, *self._dead()}
        staying = [voter for voter in view.voters if voter not in dead]
        data = [voter for voter in view.data_voters if voter != node]
        stronger = len(view.voters) // 2 > len(staying) // 2
        if node in view.voters and stronger and len(data) > len(view.witnesses):
            ctx.state["removed"] += 1
            args = {"partition": META_PARTITION, "start": b"", "node": node}
            return children([(REMOVE_REPLICA, args)], then="check")
        return done(self._result(ctx, rows, back=False))

    @staticmethod
    def _result(ctx: StepContext, rows: list[Placed], *, back: bool) -> dict[str, object]:
        node = ctx.args["node"]
        left = [row.descriptor.id for row in rows if row.replicas and node in row.nodes]
        return {
            "node": node,
            "rebuilt": ctx.state["rebuilt"],
            "removed": ctx.state["removed"],
            "left": left[:MEMBERSHIP_MOVES_MAX],
            "back": back,
        }


def register(registry: Registry, services: CrashServices) -> None:
    """Serve the procedure of this module."""
    registry.add(ServerCrash, make=lambda: ServerCrash(services))
