"""kvorum.move_apart {partition, beside}: every replica of a partition leaves the nodes that have
replicas of another one (H5).

When a partition was split because it was hot, both halves lie on the same nodes, which stay as hot
as they were. So one half moves away entirely, replica after replica (each a kvorum.move_replica),
to where load is least, as far as tags, failure domains and room allow; what has no other node stays
and is told in `left`. A table that is everywhere has no other nodes: nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument
from kv.base.ids import PartitionId
from kv.base.limits import MEMBERSHIP_PAUSE_MS, REPLICAS_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.registry import Registry, procedure, step
from procedures.master.balancing.placing import Placer
from procedures.master.moves import MasterTxn, MembershipServices, ReplicaMove
from procedures.master.nodes import all_nodes
from procedures.master.partitions import placed_partitions
from procedures.master.picture import Loads, picture, wanted_by
from procedures.master.relocating import MOVE_REPLICA

MOVE_APART: Final = "kvorum.move_apart"
_ROUNDS_MAX: Final = 100  # looks at a partition that something else is being done to


@procedure(MOVE_APART)
class MoveApart(ReplicaMove):
    def __init__(self, services: MembershipServices, loads: Callable[[], Loads]) -> None:
        super().__init__(services)
        self._loads = loads

    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        """One replica at a time. Raises InvalidArgument."""
        args = _checked(ctx.args)
        ctx.state.setdefault("moved", 0)
        t = MasterTxn(ctx.txn)
        nodes, rows = await all_nodes(t), await placed_partitions(t)
        by_id = {row.descriptor.id: row for row in rows}
        placed, other = by_id.get(args["partition"]), by_id.get(args["beside"])
        if placed is None or other is None:  # merged again, or dropped
            return done({"moved": ctx.state["moved"], "left": []})
        leave = other.descriptor.data_voters
        views = await self._groups.views([row.id for row in nodes])
        state = picture(nodes, rows, views, self._loads())
        id_ = PartitionId(args["partition"])
        view = state.partitions[id_]
        left = [node for node in view.nodes if node in leave]
        if view.held and ctx.round < _ROUNDS_MAX:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        placer = Placer(state, wanted_by(rows), level=self._level(), apart={id_: leave})
        fix = placer.fix(view)
        if fix is None or fix.rule != "apart" or ctx.state["moved"] >= REPLICAS_MAX:
            return done({"moved": ctx.state["moved"], "left": left})
        ctx.state["moved"] += 1
        call = {"partition": id_, "from": fix.source, "to": fix.target, "why": fix.reason}
        return children([(MOVE_REPLICA, call)], then="look")


def _checked(args: Any) -> Mapping[str, Any]:
    if not isinstance(args, Mapping) or not all(
        type(args.get(name)) is int and args[name] > 1 for name in ("partition", "beside")
    ):
        raise InvalidArgument("the arguments 'partition' and 'beside' must be ids of partitions")
    return args


def register(registry: Registry, services: MembershipServices, loads: Callable[[], Loads]) -> None:
    """Serve the procedure of this module."""
    registry.add(MoveApart, make=lambda: MoveApart(services, loads))
