"""The procedures of this package, for a node's registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kv.base.methods import RAISE_SAFEPOINT
from kvorum.transfer import ranges
from kvorum.transfer.backup import Backup
from kvorum.transfer.check import Check
from kvorum.transfer.export import Export
from kvorum.transfer.import_ import Import
from kvorum.transfer.ranges import MasterPorts
from kvorum.transfer.restore import Restore
from kvorum.transfer.services import Services
from procedures.engine.registry import Registry, declared_below
from sqlproxy.ddl.steps import DdlServices

if TYPE_CHECKING:
    from kvorum.node.node import Node

PRODUCT: Final = ("kvorum", "procedures", "sqlproxy")


def own_names() -> frozenset[str]:
    """The procedures of the product."""
    return declared_below(PRODUCT)


def register(registry: Registry, ddl: DdlServices, node: Node) -> None:
    """Serve them."""
    services = Services(
        txn=lambda: node.store.txn,
        backend=lambda: node.backend,
        in_thread=node.ports.in_thread,
        timers=node.ports.timers,
        own=own_names,
        # Without ports, only this process submits anything.
        places=None if node.config.port is None else node.config.transfer_places,
    )
    registry.add(Backup, make=lambda: Backup(services))
    registry.add(Restore, make=lambda: Restore(services))
    registry.add(Export, make=lambda: Export(services))
    registry.add(Import, make=lambda: Import(services))
    registry.add(Check, make=lambda: Check(services, lambda: node.store.cluster.calls))
    ports = MasterPorts(
        skip=lambda at: node.store.tso.skip(at),
        now=lambda: node.store.txn.now(),
        raise_at=lambda node_id, partitions, at: node.store.cluster.calls.call_at(
            node_id, RAISE_SAFEPOINT, partitions, at
        ),
        renew=lambda: node.master.renew(),
    )
    ranges.register(registry, ddl, ports)
