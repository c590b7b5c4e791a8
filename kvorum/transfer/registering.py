"""The procedures of this package, for a node's registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.node_methods import NodesById
from kvorum.transfer import restore_ranges
from kvorum.transfer.backup import Backup
from kvorum.transfer.check import Check
from kvorum.transfer.export import Export
from kvorum.transfer.import_ import Import
from kvorum.transfer.restore import Restore
from kvorum.transfer.restore_ranges import MasterPorts
from kvorum.transfer.services import Services
from procedures.engine.registry import Registry, declared_below
from sqlproxy.ddl.steps import DdlServices

PRODUCT: Final = ("kvorum", "procedures", "sqlproxy")


def own_names() -> frozenset[str]:
    """The procedures of the product."""
    return declared_below(PRODUCT)


def register(
    registry: Registry,
    ddl: DdlServices,
    services: Services,
    ports: MasterPorts,
    calls: Callable[[], NodesById],
) -> None:
    """Serve them."""
    registry.add(Backup, make=lambda: Backup(services))
    registry.add(Restore, make=lambda: Restore(services))
    registry.add(Export, make=lambda: Export(services))
    registry.add(Import, make=lambda: Import(services))
    registry.add(Check, make=lambda: Check(services, calls))
    restore_ranges.register(registry, ddl, ports)
