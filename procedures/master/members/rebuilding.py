"""A replica whose data or log are damaged is replaced by a copy of a healthy one.

    kvorum.rebuild_replica {partition, start, node, why}
        check ─▶ child RemoveReplica ─▶ enter ─▶ child AddReplica ─▶ finish

The node stays, its replica does not: the group agrees by a majority of the others that it is no
member any more, then what it has is removed, and it comes back with nothing, as a learner that
votes when it has caught up. So what it has lost of its log, or forgotten of its votes, is never
counted: a replica that was removed is asked by nobody, and one that is empty gives no vote
(raft/elections.py).

Nothing is removed before another copy was read from end to end, every record against its checksum:
the leader's, from which the new one is made. Where there is no such copy the replica stays as it
is, damaged, and what is well in it can still be read; the procedure ends and says why.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from kv.base.errors import Busy, Corruption, KvorumError, Refused
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_CALL_MS, MEMBERSHIP_PAUSE_MS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, children, done
from procedures.engine.registry import Registry, procedure, step
from procedures.master.map.replica_methods import TRANSFER, GroupView
from procedures.master.members.moves import (
    ADD_REPLICA,
    REMOVE_REPLICA,
    MembershipServices,
    ReplicaMove,
    node_locks,
)
from procedures.verbs import DROP_PARTITION, VERIFY_REPLICA

REBUILD_REPLICA: Final = "kvorum.rebuild_replica"


class Damage(NamedTuple):
    """A node has found its replica damaged, in these words."""

    node: NodeId
    partition: PartitionId
    why: str


@procedure(REBUILD_REPLICA, locks=node_locks)
class RebuildReplica(ReplicaMove):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        if await self.gone(ctx):
            return done({"dropped": True})
        node, partition = NodeId(ctx.args["node"]), PartitionId(ctx.args["partition"])
        view = await self.view(ctx)
        if view is None:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        if node in view.voters and not [n for n in view.data_voters if n != node]:
            raise Refused(
                f"node {node} has the only copy of partition {partition}: restore what is damaged "
                f"from a backup, or drop its table ({ctx.args.get('why', '')})",
                code="LAST_COPY",
                details={"node": node, "partition": partition},
            )
        if view.leader == node:
            await self._hand_over(view, await self.candidates(ctx))
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        try:
            await self._read_all(NodeId(view.leader), partition)
        except Corruption as error:
            raise Refused(
                f"the leader's copy of partition {partition}, at node {view.leader}, is damaged, "
                f"too: {error.message}",
                code="NO_HEALTHY_COPY",
                details={"node": view.leader, "partition": partition},
            ) from error
        except KvorumError as error:
            if error.disposition == "no":
                raise
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        if node not in (*view.voters, *view.learners):
            return await self.enter(ctx)
        return children([(REMOVE_REPLICA, self._replica(ctx))], then="enter")

    async def _hand_over(self, view: GroupView, candidates: list[NodeId]) -> None:
        """What knows of its damage does it by itself."""
        able = [
            (follower.lag, NodeId(node))
            for node, follower in view.followers.items()
            if node in view.data_voters and follower.responsive and not follower.snapshot
        ]
        if able:
            with contextlib.suppress(Busy):
                await self._groups.change(view.partition, TRANSFER, min(able)[1], candidates)

    async def _read_all(self, leader: NodeId, partition: PartitionId) -> None:
        """Raises Corruption; what else `leader` answers."""
        place, key = 0, b""
        while key is not None:
            place, key = await self._calls.call_at(
                leader, VERIFY_REPLICA, partition, place, key, budget_ms=MEMBERSHIP_CALL_MS
            )

    @step(point_of_no_return=True)
    async def enter(self, ctx: StepContext) -> Outcome:
        """What it had is gone for sure before it comes back. Raises what the node says."""
        await self._calls.call_at(
            *(ctx.args["node"], DROP_PARTITION, [ctx.args["partition"]]),
            budget_ms=MEMBERSHIP_CALL_MS,
        )
        return children([(ADD_REPLICA, self._replica(ctx))], then="finish")

    @step
    async def finish(self, ctx: StepContext) -> Outcome:
        return done({name: ctx.args[name] for name in ("partition", "node")})

    @staticmethod
    def _replica(ctx: StepContext) -> dict[str, object]:
        return {name: ctx.args[name] for name in ("partition", "start", "node")}


def register(registry: Registry, services: MembershipServices) -> None:
    """Serve the procedure of this module."""
    registry.add(RebuildReplica, make=lambda: RebuildReplica(services))
