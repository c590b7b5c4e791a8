"""Splitting and merging at a node, while it is the master: procedures/master/shape/splitter.py with
what it needs of the node, its switch and its limits.

    setting partition.auto        0: nothing is split or merged by itself
    setting partition.bytes_max   the size above which a partition is split
    setting partition.load_min    the load from which one may be split by load
    setting partition.settle_s    for how long neighbours must be small

They are settings of the cluster (procedures/bus/settings.py), applied at every node while it runs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kv.base.errors import KvorumError
from kv.base.limits import DECIDE_PAUSE_S
from kvorum.cluster.members import placed
from kvorum.master.bus import NodeBus
from kvorum.master.roles import Master
from kvorum.storage.store import Store
from procedures.engine.plain_data import Plain
from procedures.master.map.groups import Groups
from procedures.master.map.liveness import Health
from procedures.master.shape.deciding import Policy
from procedures.master.shape.splitter import Splitter

log = logging.getLogger(__name__)

AUTO: Final = "partition.auto"


class Shaping:
    """See the module. `run` until it is cancelled."""

    def __init__(self, store: Store, master: Master, bus: NodeBus, groups: Groups) -> None:
        self._store, self._master, self._settings = store, master, bus.settings
        self._reign = 0
        self.splitter = Splitter(
            picture=store.picture,
            nodes=self._living,
            map_=lambda: placed(store.txn),
            busy=bus.busy,
            groups=groups,
            procedures=master,
            policy=self.policy,
            monotonic=store.ports.timers.monotonic,
        )

    def _living(self) -> list[int]:
        """Nodes with data that the master hears."""
        health = self._store.pulse.health()
        witnesses = self._store.witnesses()
        return [n for n, (how, _) in health.items() if how is Health.ALIVE and n not in witnesses]

    def policy(self) -> Policy:
        """The rules in force."""
        value = self._settings.value
        return Policy(
            bytes_max=value("partition.bytes_max"),
            load_min=float(value("partition.load_min")),
            settle_s=float(value("partition.settle_s")),
        )

    @property
    def on(self) -> bool:
        return bool(self._settings.value(AUTO))

    async def run(self) -> None:
        """Look every few seconds, as long as this node is the master."""
        while True:
            await asyncio.sleep(DECIDE_PAUSE_S)
            if self._master.executor is None or not self.on:
                continue
            if self._master.reigns != self._reign:
                self._reign = self._master.reigns
                self.splitter.begin()
            try:
                await self.splitter.look()
            except KvorumError as error:
                log.info("partitions were not looked at: %s; next round", error)

    def shown(self) -> Plain:
        """For people: ExplainPartitions."""
        policy = self.policy()
        return {
            "auto": self.on,
            "bytes_max": policy.bytes_max,
            "load_min": policy.load_min,
            "settle_s": policy.settle_s,
            **self.splitter.shown(),
        }
