"""The master's view of consensus groups on other nodes: how they stand, and orders to their
leaders.

A leader is found by asking: its hint from the last time, then whoever an answer names, then the
other candidates. Nothing is remembered that a failover would make wrong for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kv.base.errors import KvorumError, NotLeader, Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import MEMBERSHIP_CALL_MS
from kv.base.node_methods import NodesById
from kv.base.wire_row import WireRow
from procedures.master.map.replica_methods import NO_REPLICA, GroupView
from procedures.verbs import CAUGHT_UP, CHANGE_REPLICAS, REPLICA_STATUS


class Groups:
    """See the module."""

    def __init__(self, calls: NodesById) -> None:
        self._calls = calls
        self._leaders: dict[PartitionId, int] = {}

    async def leader_view(
        self, partition: PartitionId, candidates: Iterable[NodeId]
    ) -> GroupView | None:
        """How its leader sees a group; None if none was found. That may be none of the candidates:
        a new voter leads before the map names it.
        """
        order = self._order(partition, candidates)
        asked: set[int] = set()
        while order:
            node = order.pop(0)
            if node in asked:
                continue
            asked.add(node)
            try:
                (rows,) = await self._ask(node, REPLICA_STATUS, [partition])
            except KvorumError:
                continue
            for view in map(GroupView.from_wire, rows):
                if view.leads:
                    self._leaders[partition] = node
                    return view
                if view.leader:
                    order.append(view.leader)
        return None

    async def change(
        self, partition: PartitionId, change: str, node: NodeId, candidates: Iterable[NodeId]
    ) -> None:
        """Order one change at the leader. Raises Busy (ask again), Refused, Unavailable (no
        leader).
        """
        await self.order(partition, candidates, CHANGE_REPLICAS, partition, change, node)

    async def order(
        self,
        partition: PartitionId,
        candidates: Iterable[NodeId],
        method: int,
        *args: object,
        budget_ms: int = MEMBERSHIP_CALL_MS,
    ) -> list[Any]:
        """What the leader answers to a node method that may be repeated. Raises what it raises
        but for NotLeader, and Unavailable (no leader).
        """
        last: KvorumError | None = None
        order = self._order(partition, candidates)
        asked: set[int] = set()
        while order:
            at = order.pop(0)
            if at in asked:
                continue
            asked.add(at)
            try:
                found = await self._calls.call_at(at, method, *args, budget_ms=budget_ms)
            except NotLeader as error:
                last = error
                if leader := error.details.get("leader"):
                    order.insert(0, leader)
            except KvorumError as error:
                gone = error.disposition == "retry" and error.code != "BUSY"
                if gone or error.code == NO_REPLICA:
                    last = error  # this node does not answer, or left: another one may lead by now
                    continue
                raise
            else:
                self._leaders[partition] = at
                return found
        raise Unavailable(f"partition {partition} has no leader that answers: {last}")

    async def caught_up(
        self, partition: PartitionId, index: int, nodes: Sequence[NodeId]
    ) -> list[NodeId]:
        """Those of the nodes that say that they have applied that entry, durably."""

        async def ask(node: NodeId) -> bool:
            try:
                await self._ask(node, CAUGHT_UP, partition, index)
            except KvorumError:
                return False
            return True

        async with asyncio.TaskGroup() as group:
            asked = {node: group.create_task(ask(node)) for node in nodes}
        return [node for node, task in asked.items() if task.result()]

    async def views(
        self,
        nodes: Sequence[NodeId],
        answered: Callable[[NodeId], object] = lambda node: None,
    ) -> dict[NodeId, list[GroupView]]:
        """Every replica of these nodes; nodes that do not answer are left out. `answered` is called
        with each when it has.
        """

        async def ask(node: NodeId) -> list[GroupView] | None:
            found = await self._views_at(node)
            if found is not None:
                answered(node)
            return found

        async with asyncio.TaskGroup() as group:
            asked = {node: group.create_task(ask(node)) for node in nodes}
        return {node: found for node, task in asked.items() if (found := task.result()) is not None}

    async def _views_at(self, node: NodeId) -> list[GroupView] | None:
        try:
            (rows,) = await self._ask(node, REPLICA_STATUS, None)
        except KvorumError:
            return None
        return [GroupView.from_wire(row) for row in rows]

    def _order(self, partition: PartitionId, candidates: Iterable[NodeId]) -> list[int]:
        known = self._leaders.get(partition)
        return list(dict.fromkeys([*([known] if known else []), *candidates]))

    async def _ask(self, node: int, method: int, *args: object) -> WireRow:
        return await self._calls.call_at(node, method, *args, budget_ms=MEMBERSHIP_CALL_MS)
