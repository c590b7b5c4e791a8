"""What one node is made of: for its doors, and for the procedures that it offers."""

from __future__ import annotations

from collections.abc import Mapping

from kv.base.config import NodeConfig
from kvorum.local.ports import Ports
from kvorum.master.balancing import Balancing
from kvorum.master.bus import NodeBus
from kvorum.master.roles import Master
from kvorum.master.shaping import Shaping
from kvorum.native.native import NativeBackend
from kvorum.node.maintenance import Upkeep
from kvorum.security.oidc_login import Logins
from kvorum.sites.taking import Counts, site_figures
from kvorum.storage.store import Store
from procedures.engine.lock_procedure import Keeper
from sqlproxy.catalog.guard import Guard


class Parts:
    """`config`, `ports`, `store` and `sites` are there from the start, the others once the store is
    open.
    """

    config: NodeConfig
    ports: Ports
    store: Store
    guard: Guard
    logins: Logins | None
    keeper: Keeper
    master: Master
    upkeep: Upkeep
    bus: NodeBus
    shaping: Shaping
    balancing: Balancing
    backend: NativeBackend
    sites: dict[str, Counts]

    def partition_figures(self) -> Mapping[str, int]:
        """Per partition: live bytes, and how many entries its log ever had."""
        figures: dict[str, int] = {}
        for replica in self.store.manager.replicas():
            figures[f"partition_bytes.{replica.descriptor.id}"] = replica.state.live_bytes
            figures[f"partition_entries.{replica.descriptor.id}"] = replica.state.index
        return figures

    def storage_figures(self) -> Mapping[str, int]:
        """Of the state DB, sizes in bytes."""
        state = self.store.state
        return {**state.stats(), **state.counters()}

    def procedure_figures(self) -> Mapping[str, int]:
        """Of the executor, while this node has one."""
        executor = self.master.executor
        return {} if executor is None else executor.counters()

    def site_figures(self) -> Mapping[str, float]:
        """Of the links to other clusters that this node serves, or has served."""
        return site_figures(self.sites, self.ports.clock)
