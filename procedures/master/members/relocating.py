"""Moving one replica, handing over one leadership (F5; docs/decisions/0410).

    kvorum.move_replica     {partition, from, to, why?}   check ─▶ child AddReplica ─▶ lead ─▶ child
                                                          RemoveReplica ─▶ finish
    kvorum.transfer_leader  {partition, to, why?}         check ─▶ hand over ─▶ settle

The new replica votes before the old one leaves, so at no moment are there fewer copies than before.
A move that fails until then leaves everything as it was (AddReplica takes its learner out again);
from then on it goes forward. `from` may be dead.

Who leads a partition that the balancer has touched is written in its row of the map, because the
rule that follows from ids alone would choose anew whenever a voter changes: leaderships would move
that nobody wanted to move.

Refused with its reason, before anything is done: an unknown partition or node, a node that has a
replica already or has none to give, lacks a tag, has no room, is being decommissioned or does not
answer, would be the second one in a failure domain; the meta partition, which is everywhere.

What is moved because of its load, and what because it must, is decided in procedures/master/
balancing; people decide, too: `kvorum partition move`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from kv.base.errors import Busy, InvalidArgument, NotFound, Refused
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_PAUSE_MS
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, again, children, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step
from procedures.master.balancing.model import NodeView, level_of
from procedures.master.balancing.rules import shared
from procedures.master.map.nodes import NodeRow, NodeState, all_nodes
from procedures.master.map.partitions import Placed, busy_with, placed_partitions, put_row
from procedures.master.map.placement import carries
from procedures.master.map.replica_methods import TRANSFER, GroupView
from procedures.master.members.moves import (
    ADD_REPLICA,
    REMOVE_REPLICA,
    MasterTxn,
    MembershipServices,
    ReplicaMove,
)

MOVE_REPLICA: Final = "kvorum.move_replica"
TRANSFER_LEADER: Final = "kvorum.transfer_leader"
REFUSED: Final = "MOVE_REFUSED"
WHY_CHARS_MAX: Final = 1_000

Room = Callable[[NodeId, PartitionId], str | None]
"""Why a replica of the partition does not fit there; None if it does, as far as is known."""


def checked(args: object, *nodes: str) -> Mapping[str, object]:
    """The arguments. Raises InvalidArgument."""
    if not isinstance(args, Mapping):
        raise InvalidArgument(f"the arguments must be a map, got {args!r:.80}")
    for name in ("partition", *nodes):
        if type(args.get(name)) is not int or args[name] < 1:
            raise InvalidArgument(
                f"the argument {name!r} must be an id, 1 or more; got {args.get(name)!r:.80}"
            )
    why = args.get("why", "")
    if not isinstance(why, str) or len(why) > WHY_CHARS_MAX:
        raise InvalidArgument(
            f"the argument 'why' must be text of up to {WHY_CHARS_MAX} characters"
        )
    if unknown := sorted(set(args) - {"partition", "why", *nodes}):
        raise InvalidArgument(f"unknown argument {unknown[0]!r:.60}")
    return args


def _move_locks(args: object) -> list[Lock]:
    return [exclusive(f"partition/{checked(args, 'from', 'to')['partition']}")]


def _transfer_locks(args: object) -> list[Lock]:
    return [exclusive(f"partition/{checked(args, 'to')['partition']}")]


class Relocation(ReplicaMove):
    """What both share."""

    def __init__(self, services: MembershipServices, room: Room) -> None:
        super().__init__(services)
        self._room = room

    @staticmethod
    async def placed(ctx: StepContext) -> Placed:
        """The partition's row. Raises NotFound, Refused (the meta partition)."""
        wanted = ctx.args["partition"]
        if wanted == META_PARTITION:
            raise Refused(
                "the meta partition has a replica at every member, and its leader is the master: "
                "add or decommission nodes instead",
                code=REFUSED,
            )
        for placed in await placed_partitions(MasterTxn(ctx.txn)):
            if placed.descriptor.id == wanted:
                return placed
        raise NotFound(f"there is no partition {wanted}", code="PARTITION_NOT_FOUND")

    async def seen(self, placed: Placed) -> GroupView | None:
        """How its leader sees the group; None: no leader, or a change is not committed yet."""
        d = placed.descriptor
        found = await self._groups.leader_view(d.id, d.data_voters)
        return found if found is not None and found.settled else None


@procedure(MOVE_REPLICA, locks=_move_locks)
class MoveReplica(Relocation):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        placed = await self.placed(ctx)
        source, target = NodeId(ctx.args["from"]), NodeId(ctx.args["to"])
        if placed.change:
            raise busy_with(placed)
        nodes = {row.id: row for row in await all_nodes(MasterTxn(ctx.txn))}
        self._refuse(placed, nodes, source, target)
        if target not in await self._groups.views([target]):
            raise _refused(f"node {target} does not answer")
        view = await self.seen(placed)
        if view is None:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        d = placed.descriptor
        leader = await self._leader(placed)
        ctx.state["start"] = d.start
        ctx.state["leader"] = target if leader in (source, 0) else leader
        args = {"partition": d.id, "start": d.start, "node": target}
        if placed.replicas:
            args["replaces"] = source
        return children([(ADD_REPLICA, args)], then="lead")

    def _refuse(
        self, placed: Placed, nodes: Mapping[NodeId, NodeRow], source: NodeId, target: NodeId
    ) -> None:
        """Raises NotFound, Refused."""
        d = placed.descriptor
        if target not in nodes:
            raise NotFound(f"there is no node {target} in this cluster", code="NODE_NOT_FOUND")
        there = nodes[target]
        if source not in d.data_voters:
            at = ", ".join(map(str, d.data_voters))
            raise _refused(f"node {source} has no replica of partition {d.id}: nodes {at} have")
        if target in placed.nodes:
            raise _refused(f"node {target} has a replica of partition {d.id} already")
        if there.state is not NodeState.MEMBER or there.witness:
            what = "a witness" if there.witness else there.state.name.lower()
            raise _refused(f"node {target} takes no replicas: it is {what}")
        if not carries(there.tags, placed.tags):
            missing = ", ".join(sorted(set(placed.tags) - set(there.tags)))
            raise _refused(f"node {target} lacks the tag {missing}, which the table wants")
        if (full := self._room(target, d.id)) is not None:
            raise _refused(full)
        others = [_site(nodes[n]) for n in d.data_voters if n != source and n in nodes]
        level = level_of(placed.survive) or self._level()
        before = shared(_site(nodes[source]), others, level) if source in nodes else (len(others),)
        if shared(_site(there), others, level) > before:
            where = "/".join(filter(None, there.domains))
            raise _refused(
                f"node {target} ({where}) fails together with another node that has a replica "
                f"(replicas of its table are kept in different {level}s)"
            )

    async def _leader(self, placed: Placed) -> int:
        d = placed.descriptor
        view = await self._groups.leader_view(d.id, d.data_voters)
        return 0 if view is None else view.leader

    @step(point_of_no_return=True)
    async def lead(self, ctx: StepContext) -> Outcome:
        """The new replica votes. Who leads from now on is written down before a voter leaves."""
        placed = await self.row(self._as_row(ctx))
        if placed is None:
            return done({"partition": ctx.args["partition"], "dropped": True})
        if ctx.args["to"] not in placed.descriptor.voters:
            raise _refused(f"partition {placed.descriptor.id} has enough replicas meanwhile")
        put_row(MasterTxn(ctx.txn), placed._replace(leads=NodeId(ctx.state["leader"])))
        args = {
            "partition": ctx.args["partition"],
            "start": ctx.state["start"],
            "node": ctx.args["from"],
        }
        return children([(REMOVE_REPLICA, args)], then="finish")

    @staticmethod
    def _as_row(ctx: StepContext) -> Any:
        return _Row(ctx)

    @step
    async def finish(self, ctx: StepContext) -> Outcome:
        return done({name: ctx.args[name] for name in ("partition", "from", "to")})


class _Row:
    """A context in the shape that `ReplicaMove.row` wants: the arguments name the start key."""

    def __init__(self, ctx: StepContext) -> None:
        self.txn = ctx.txn
        self.args = {"partition": ctx.args["partition"], "start": ctx.state["start"]}


@procedure(TRANSFER_LEADER, locks=_transfer_locks)
class TransferLeader(Relocation):
    @step(first=True)
    async def check(self, ctx: StepContext) -> Outcome:
        placed = await self.placed(ctx)
        target, d = NodeId(ctx.args["to"]), placed.descriptor
        if target not in d.data_voters:
            at = ", ".join(map(str, d.data_voters))
            raise _refused(f"node {target} has no replica of partition {d.id}: nodes {at} have")
        if placed.change:
            raise busy_with(placed)
        view = await self.seen(placed)
        if view is None:
            return again(delay_ms=MEMBERSHIP_PAUSE_MS)
        follower = view.followers.get(target)
        if view.leader != target and (follower is None or not follower.responsive):
            raise _refused(f"node {target} does not answer the leader of partition {d.id}")
        ctx.state["before"] = placed.leads
        ctx.state["from"] = view.leader
        put_row(MasterTxn(ctx.txn), placed._replace(leads=target))
        return go_on("hand_over")

    @step
    async def hand_over(self, ctx: StepContext) -> Outcome:
        """A target that has not caught up yet is waited for; one that is lost meanwhile is not: the
        partition stays where it is, and goes there when it can
        (procedures/master/schedulers/balance.py).
        """
        placed = await self.placed(ctx)
        target, d = NodeId(ctx.args["to"]), placed.descriptor
        view = await self.seen(placed)
        if view is not None and view.leader == target:
            return done({"partition": d.id, "from": ctx.state["from"], "to": target})
        with contextlib.suppress(Busy):
            await self._groups.change(d.id, TRANSFER, target, d.data_voters)
        if ctx.round > _ROUNDS:
            raise Refused(
                f"node {target} does not take over partition {d.id}: it lags or does not answer; "
                "it will when it can",
                code="TRANSFER_LATER",
            )
        return again(delay_ms=MEMBERSHIP_PAUSE_MS)


_ROUNDS: Final = 50


def _site(row: NodeRow) -> NodeView:
    return NodeView(row.id, domains=row.domains)


def _refused(why: str) -> Refused:
    return Refused(why, code=REFUSED)


def register(
    registry: Registry, services: MembershipServices, room: Room = lambda node, partition: None
) -> None:
    """Serve the procedures of this module."""
    registry.add(MoveReplica, make=lambda: MoveReplica(services, room))
    registry.add(TransferLeader, make=lambda: TransferLeader(services, room))
