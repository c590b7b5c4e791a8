"""The notification bus of one node: its half as a target, and its half as the master.

    BUS_ORDERS ─▶ hands ─▶ handlers (bus_work.py)          every node
    courier ─▶ BUS_ORDERS at the others                    the master
    BUS_REPORTS, and section "bus" of the heartbeats       both ways at once

Whoever wants to move a partition asks `busy` first: what operations are about is not moved
meanwhile (N10); what moved in between is followed (procedures/bus/phases.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from kv.base.config import NodeConfig
from kv.base.errors import Forbidden, KvorumError
from kv.base.ids import META_PARTITION
from kv.base.limits import BUS_PUSH_MS
from kv.base.wire_row import WireRow
from kv.server.dispatcher import Context
from kvorum.local.ports import Loop
from kvorum.local.settings import Settings
from kvorum.master import bus_work as work
from kvorum.storage.store import Store
from procedures.bus import phases
from procedures.bus.checkpoints import (
    CHECKPOINT,
    DROP_CHECKPOINT,
    LIST_CHECKPOINTS,
    Checkpoint,
    DropCheckpoint,
    ListCheckpoints,
)
from procedures.bus.core import partitions_of
from procedures.bus.courier import Courier, Push
from procedures.bus.handlers import Handler, Hands
from procedures.bus.messages import Order, Report, read_orders, read_reports
from procedures.bus.recovery import CATCH_UP, RecoverNode
from procedures.bus.settings import SETTING, CheckSetting, ListSettings, SetSetting
from procedures.bus.tables import COMPACT, FLUSH, CompactTable, FlushTable
from procedures.bus.targets import node_of, node_target, worker_target
from procedures.engine import plain_data
from procedures.engine.client import ProcedureClient
from procedures.engine.executor import Executor
from procedures.engine.plain_data import Plain
from procedures.engine.records import Record
from procedures.engine.registry import Registry
from procedures.verbs import BUS_ORDERS, BUS_REPORTS

log = logging.getLogger(__name__)

_OWNER: Final = "system"
_AGAIN_S: Final = 1.0

PROCEDURES: Final = (
    *(FlushTable, CompactTable, Checkpoint, DropCheckpoint, ListCheckpoints),
    *(SetSetting, CheckSetting, RecoverNode),
)


class Reign(Protocol):
    """kvorum.master.roles.Master."""

    executor: Executor | None


class NodeBus:
    """See the module."""

    def __init__(
        self,
        store: Store,
        config: NodeConfig,
        master: Callable[[], Reign],
        look: Callable[[], Awaitable[None]],
        stopped: Callable[[], bool],
    ) -> None:
        """`look`: compare this node's replicas with the map."""
        self._store, self._master = store, master
        self._me = store.identity.node
        self.settings = Settings(store.txn)
        files = config.engine != "memory" and not store.identity.witness
        self._points = work.Points(config.data) if files else None
        meta = store.manager.replica(META_PARTITION)
        alone = store.alone or store.identity.witness
        self._restarted = meta is not None and meta.state.index > 0 and not alone
        timers = store.ports.timers
        self.hands = Hands(self._handlers(look, stopped), timers, self._tell)
        self.courier = Courier(timers, self._reach, self._signal)
        store.dispatcher.register(BUS_ORDERS, self._orders)
        store.dispatcher.register(BUS_REPORTS, self._reports)
        store.heart.add("bus", _NodeSection(self.hands))
        store.pulse.add("bus", _MasterSection(self.courier))

    def _handlers(
        self, look: Callable[[], Awaitable[None]], stopped: Callable[[], bool]
    ) -> Mapping[str, Handler]:
        store, in_thread = self._store, self._store.ports.in_thread
        here = (store.manager, store.state, in_thread)
        points = (self._points, in_thread)
        return {
            FLUSH: work.Flush(*here),
            COMPACT: work.Compact(*here, self.settings),
            CHECKPOINT: work.MakePoint(*points, store.manager, store.state, stopped),
            DROP_CHECKPOINT: work.DropPoint(*points),
            LIST_CHECKPOINTS: work.ListPoints(*points),
            SETTING: work.ReadSetting(self.settings),
            CATCH_UP: work.CatchUp(*here, look, stopped),
        }

    def register(self, registry: Registry) -> None:
        """Serve the procedures of the bus."""
        phases.register(registry, self.courier, PROCEDURES)
        registry.add(ListSettings)

    def loops(self) -> list[Loop]:
        """Loops of the node, each until it is cancelled."""
        loops: list[Loop] = [self.hands.run, self.courier.run, self.settings.run, self._clear]
        return [*loops, self._recover] if self._restarted else loops

    async def _clear(self) -> None:
        if self._points is not None:
            await self._store.ports.in_thread(self._points.clear)

    async def _recover(self) -> None:
        """Have the master see this restart through, by one procedure."""
        client = ProcedureClient(self._store.kv, self._store.ports.timers, owner=_OWNER)
        nonce = f"restart/{self._me}/{self._store.ports.rng.token(8).hex()}"
        while True:
            try:
                await client.submit(RecoverNode, {"node": self._me}, nonce=nonce)
                return
            except KvorumError as error:
                log.info("the master does not know of this restart: %s; again soon", error)
            await asyncio.sleep(_AGAIN_S)

    def role(self, *, leader: bool) -> None:
        """The meta partition's role at this node changed."""
        if leader:
            self.courier.begin()
        else:
            self.courier.shut()

    # ------------------------------------------------------------------------------ the master

    def _signal(self, event: str) -> None:
        executor = self._master().executor
        if executor is not None:
            executor.signal(event)

    def _reach(self, target: str) -> Push | None:
        node = node_of(target)
        if node is None:
            return None

        async def push(orders: list[Order]) -> Sequence[Report]:
            (rows,) = await self._store.cluster.calls.call_at(
                node, BUS_ORDERS, [list(order) for order in orders], budget_ms=BUS_PUSH_MS
            )
            return read_reports(rows)

        return push

    def _reports(self, context: Context, args: WireRow) -> list[object]:
        """The method BUS_REPORTS. Raises NotLeader, Forbidden: a user speaks for his workers."""
        if not self._store.tso.leading:
            raise self._store.not_master("the bus is driven by the meta partition's leader")
        target, rows = args
        if context.user and not self._is_worker_of(context.user, target):
            raise Forbidden(
                f"{target:.80} is no worker of yours that is here", details={"user": context.user}
            )
        self.courier.heard(target, read_reports(rows))
        return [[list(order) for order in self.courier.asked(target)]]

    def _is_worker_of(self, user: str, target: str) -> bool:
        executor = self._master().executor
        crew = None if executor is None else executor.crew
        name = target.partition("/")[2]
        hand = None if crew is None or worker_target(name) != target else crew.hands.get(name)
        return hand is not None and hand.entry.user == user

    async def busy(self) -> dict[int, str]:
        """The partitions that operations are about now, and why: nothing of them is to be moved.
        Derived from the records, so a new master knows them before anything goes on. Raises
        KvorumError.
        """
        executor = self._master().executor
        if executor is None:
            return {}
        found: dict[int, str] = {}
        for live in executor.live_own():
            record = live.record
            if record is None:  # too large to be kept in memory
                stored = await executor.store.load(live.id)
                record = None if stored is None else stored.record
            if record is not None and not record.ended:
                state = plain_data.decode(record.data)
                if isinstance(state, dict):
                    why = f"procedure {record.id} ({record.name}) is about it"
                    found |= dict.fromkeys(sorted(partitions_of(state.get("bus"))), why)
        return found

    def shown(self, record: Record) -> Plain:
        """What people see of an operation, beside its record."""
        return phases.shown(record, self.courier)

    # ------------------------------------------------------------------------------ a target

    def _orders(self, _context: object, args: list[object]) -> list[object]:
        """The method BUS_ORDERS."""
        return [[list(report) for report in self.hands.take(read_orders(args[0]))]]

    async def _tell(self, reports: list[Report]) -> Sequence[Order]:
        rows = [list(report) for report in reports]
        (orders,) = await self._store.kv.call_node(
            BUS_REPORTS, node_target(self._me), rows, budget_ms=BUS_PUSH_MS
        )
        return read_orders(orders)

    def stats(self) -> dict[str, int]:
        """For metrics."""
        return {
            "operations": len(self.courier),
            "pushed": self.courier.pushed,
            "lost": self.courier.lost,
            "begun": self.hands.begun,
        }


class _NodeSection:
    """kvorum.cluster.heartbeat.NodeSection."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    def collect(self) -> object:
        return [list(report) for report in self._hands.beat()] or None

    def take(self, reply: object) -> None:
        self._hands.beaten(read_orders(reply))

    def again(self) -> None:
        """What the last beat said is said again, unless it was answered."""


class _MasterSection:
    """kvorum.cluster.heartbeat.MasterSection."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    def begin(self) -> None: ...

    def handle(self, node: int, payload: object) -> object:
        target = node_target(node)
        if payload is not None:
            self._courier.heard(target, read_reports(payload))
        return [list(order) for order in self._courier.asked(target)]
