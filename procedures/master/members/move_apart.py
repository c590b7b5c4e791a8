"""Moving a partition in view of another one, replica after replica, each a kvorum.move_replica.

    kvorum.move_apart   {partition, beside}   every replica leaves the nodes that have one of the
                                              other (H5)
    kvorum.move_beside  {partition, beside}   every replica goes to where the other's are (H6)

When a partition was split because it was hot, both halves lie on the same nodes, which stay as hot
as they were. So one half moves away entirely, to where load is least, as far as tags, failure
domains and room allow; what has no other node stays and is listed in `left`. A table that is
everywhere has no other nodes: nothing moves.

Two neighbours are merged where their replicas are at the same nodes
(procedures/master/shape/merging.py). So a fragment moves next to its neighbour first. What does not
fit there (tags, room, failure domains) is refused by the move, with the reason; replicas that have
moved by then stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kv.base.errors import InvalidArgument, Refused
from kv.base.ids import PartitionId
from kv.base.limits import MEMBERSHIP_PAUSE_MS, REPLICAS_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.registry import Registry, procedure, step
from procedures.master.balancing.cluster import ClusterState
from procedures.master.balancing.placing import Placer, beside
from procedures.master.map.nodes import NodeRow, all_nodes
from procedures.master.map.partitions import Placed, placed_partitions
from procedures.master.map.picture import Loads, picture, wanted_by
from procedures.master.members.moves import MasterTxn, MembershipServices, ReplicaMove
from procedures.master.members.relocating import MOVE_REPLICA, REFUSED

MOVE_APART: Final = "kvorum.move_apart"
MOVE_BESIDE: Final = "kvorum.move_beside"
_ROUNDS_MAX: Final = 100  # looks at a partition that something else is being done to


class _Moving(ReplicaMove):
    """What both share."""

    def __init__(self, services: MembershipServices, loads: Callable[[], Loads]) -> None:
        super().__init__(services)
        self._loads = loads

    async def _seen(
        self, ctx: StepContext
    ) -> tuple[ClusterState, dict[PartitionId, Placed], Sequence[NodeRow]] | None:
        """How the cluster stands, the map, the members; None: one of the two was merged, or
        dropped.
        """
        args = _checked(ctx.args)
        ctx.state.setdefault("moved", 0)
        t = MasterTxn(ctx.txn)
        nodes, rows = await all_nodes(t), await placed_partitions(t)
        by_id = {row.descriptor.id: row for row in rows}
        if args["partition"] not in by_id or args["beside"] not in by_id:
            return None
        views = await self._groups.views([row.id for row in nodes])
        return picture(nodes, rows, views, self._loads()), by_id, nodes

    @staticmethod
    def _move(ctx: StepContext, source: int | None, target: int | None, why: str) -> Outcome:
        ctx.state["moved"] += 1
        partition = ctx.args["partition"]
        call = {"partition": partition, "from": source, "to": target, "why": why}
        return children([(MOVE_REPLICA, call)], then="look")


@procedure(MOVE_APART)
class MoveApart(_Moving):
    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        """One replica at a time. Raises InvalidArgument."""
        seen = await self._seen(ctx)
        if seen is None:
            return done({"moved": ctx.state["moved"], "left": []})
        state, rows, nodes = seen
        id_ = PartitionId(ctx.args["partition"])
        leave = rows[PartitionId(ctx.args["beside"])].descriptor.data_voters
        view = state.partitions[id_]
        left = [node for node in view.nodes if node in leave]
        if view.held and ctx.round < _ROUNDS_MAX:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        wanted, _ = wanted_by(rows.values(), nodes)
        placer = Placer(state, wanted, level=self._level(), apart={id_: leave})
        fix = placer.fix(view)
        if fix is None or fix.rule != "apart" or ctx.state["moved"] >= REPLICAS_MAX:
            return done({"moved": ctx.state["moved"], "left": left})
        return self._move(ctx, fix.source, fix.target, fix.reason)


@procedure(MOVE_BESIDE)
class MoveBeside(_Moving):
    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        """One replica at a time. Raises InvalidArgument, Refused."""
        seen = await self._seen(ctx)
        if seen is None:
            return done({"moved": ctx.state["moved"]})
        state, *_ = seen
        mine, other = (PartitionId(ctx.args[name]) for name in ("partition", "beside"))
        view, neighbour = state.partitions[mine], state.partitions[other]
        if set(view.nodes) == set(neighbour.nodes):
            return done({"moved": ctx.state["moved"]})
        if (view.held or neighbour.held) and ctx.round < _ROUNDS_MAX:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        moves = beside(state, view, neighbour)
        if len(view.nodes) != len(neighbour.nodes) or ctx.state["moved"] >= REPLICAS_MAX:
            raise Refused(
                f"partition {mine} has replicas at nodes {sorted(view.nodes)}, partition {other} "
                f"at {sorted(neighbour.nodes)}, after {ctx.state['moved']} moves: they are not "
                "brought together now; try again when their replicas rest",
                code=REFUSED,
            )
        why = f"next to partition {other}, to be merged with it"
        return self._move(ctx, *moves[0], why)


def _checked(args: object) -> Mapping[str, object]:
    if not isinstance(args, Mapping) or not all(
        type(args.get(name)) is int and args[name] > 1 for name in ("partition", "beside")
    ):
        raise InvalidArgument("the arguments 'partition' and 'beside' must be ids of partitions")
    return args


def register(registry: Registry, services: MembershipServices, loads: Callable[[], Loads]) -> None:
    """Serve the procedures of this module."""
    registry.add(MoveApart, make=lambda: MoveApart(services, loads))
    registry.add(MoveBeside, make=lambda: MoveBeside(services, loads))
