"""When a link is cut between the oracle's node and another, and a third one hears both.

Every node asks for timestamps in the stead of those that cannot (TSO_RELAYED; why that is right:
tso/detour.py). One that needed that for TSO_CUT_OFF_MS hands its leaderships to the node that asks
for it: the master's procedures run beside the oracle, and reach no leader beyond the cut. The
balancer brings them back when the master reaches this node again
(procedures/master/schedulers/balance.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kv.base.ids import META_PARTITION
from kv.base.limits import TSO_CUT_OFF_MS, TSO_DIRECT_MS
from kv.base.methods import TSO
from kv.base.wire_row import WireRow
from kvorum.cluster import handover
from tso.verbs import TSO_RELAYED

if TYPE_CHECKING:
    from kvorum.storage.store import Store

log = logging.getLogger(__name__)


class CutOff:
    """See the module; of one node. Counts `handed_over`: leaderships."""

    def __init__(self, store: Store) -> None:
        self.handed_over = 0
        self._store = store
        hybrid = store.clock is not None  # then any node gives out timestamps
        store.dispatcher.register(TSO_RELAYED, store.tso.handle if hybrid else self._relayed)

    async def _relayed(self, _context: object, args: WireRow) -> list[object]:
        """The method TSO_RELAYED: in one attempt. Raises NotLeader while nobody is known to lead,
        and what that attempt raises.
        """
        store = self._store
        if store.tso.leading:
            return [store.tso.take(args[0])]
        meta = store.manager.replica(META_PARTITION)
        leader = None if meta is None else meta.leader_hint()
        address = None if leader is None else store.cluster.peers.address_of(leader)
        if address is None or leader == store.identity.node:
            raise store.not_master("timestamps come from the meta partition's leader")
        return await store.cluster.oracle.call_at(address, TSO, args[0], budget_ms=TSO_DIRECT_MS)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(TSO_DIRECT_MS / 1000)
            if not self._store.tso.leading:
                self._look()

    def _look(self) -> None:
        store = self._store
        store.detour.look()  # without leaderships nobody here may ask for timestamps
        relay = store.detour.relay_for(TSO_CUT_OFF_MS)
        heir = None if relay is None else store.cluster.peers.node_at(relay)
        if heir is None or not (ordered := handover.to(store.manager, heir)):
            return
        self.handed_over += ordered
        log.warning(
            "the oracle answers node %d and not this one: %d leaderships go there", heir, ordered
        )
