"""The procedures that a node offers: the system's, and those of the user's modules."""

from __future__ import annotations

from kvorum.api.verbs import RAISE_SAFEPOINT
from kvorum.cluster.placement import SpreadPartitions
from kvorum.native.native import NativeBackend
from kvorum.node.components import Parts
from kvorum.sites.role import SiteRole
from kvorum.sites.site import SiteLink, SiteServices
from kvorum.sites.sites_file import connected, site_of
from kvorum.steps.modules import declared
from kvorum.storage.drop_transactions import Settling
from kvorum.transfer import registering as transfers
from kvorum.transfer.restore_ranges import MasterPorts
from kvorum.transfer.services import Services
from procedures.engine.lock_procedure import LockProcedure
from procedures.engine.registry import Registry
from procedures.master.map.groups import Groups
from procedures.master.members import membership
from procedures.master.members.membership import MembershipServices
from procedures.master.shape import merging, splitting
from procedures.master.shape.splitter import ExplainPartitions
from procedures.pools.bulk import Bulk
from procedures.pools.control import Control
from procedures.sink.sink_clean import SinkClean
from procedures.sink.sink_commit import SinkCommit
from procedures.sink.spark_job import SparkJob
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.ddl import ddl, ddl_objects, emptying, moving, surviving, switching
from sqlproxy.ddl.change import registering as changes
from sqlproxy.ddl.change.states import ChangeServices
from sqlproxy.ddl.placing import PlaceTable
from sqlproxy.ddl.steps import DdlServices
from sqlproxy.sinking import SinkTables


def offered(node: Parts, cache: CatalogCache, groups: Groups, settling: Settling) -> Registry:
    """Of a node that is being wired; what does not exist yet is asked for when a procedure runs.
    Raises InvalidArgument.
    """
    registry = Registry()
    store = node.store
    partitions = SpreadPartitions(
        *(store.cluster.calls, store.everywhere, store.answers, settling.settle),
        *(node.balancing.schedulers.level, lambda: node.upkeep.homes()),
    )
    ports = node.ports
    change = ChangeServices(
        *(partitions, cache.invalidate, ports.timers, store.txn),
        ports.rng,
        ports.loop_s,
        snapshots=lambda: node.backend,
    )
    services = change.ddl
    ddl.register(registry, services)
    emptying.register(registry, services)
    ddl_objects.register(registry, cache.invalidate)
    moving.register(registry, cache.invalidate)
    switching.register(registry, services)
    changes.register(registry, change)
    registry.add(PlaceTable)
    surviving.register(registry)
    node.bus.register(registry)
    level = node.balancing.schedulers.level
    moves = MembershipServices(node.store.cluster.calls, groups, level)
    membership.register(registry, moves)
    node.balancing.register(registry, moves)
    splitting.register(registry, moves)
    merging.register(registry, moves)
    sinking = SinkTables(node.ports.clock)
    registry.add(SinkCommit, make=lambda: SinkCommit(node.store.txn, node.master.submit, sinking))
    registry.add(SparkJob)
    registry.add(ExplainPartitions, make=lambda: ExplainPartitions(lambda: node.shaping.shown()))
    registry.add(SinkClean, make=lambda: SinkClean(node.store.txn))
    registry.add(Bulk, make=lambda: Bulk(lambda: Control(node.master.current())))
    registry.add(LockProcedure, make=lambda: LockProcedure(node.keeper))
    _register_transfers(registry, services, node)
    registry.users_follow()
    if modules := node.config.procedure_modules:
        for cls in declared(modules):
            registry.add(cls)
    for one in node.ports.procedures:
        registry.put(one)
    return registry


def _register_transfers(registry: Registry, ddl: DdlServices, node: Parts) -> None:
    services = Services(
        txn=lambda: node.store.txn,
        backend=lambda: node.backend,
        in_thread=node.ports.outside or node.ports.in_thread,
        timers=node.ports.timers,
        own=transfers.own_names,
        # Without ports, only this process submits anything.
        places=None if node.config.port is None else node.config.transfer_places,
        key_file=node.config.backup_key_file,
    )
    ports = MasterPorts(
        skip=lambda at: node.store.tso.skip(at),
        now=lambda: node.store.txn.now(),
        raise_at=lambda node_id, partitions, at: node.store.cluster.calls.call_at(
            node_id, RAISE_SAFEPOINT, partitions, at
        ),
        renew=lambda: node.master.renew(),
    )
    transfers.register(registry, ddl, services, ports, lambda: node.store.cluster.calls)
    _register_sites(registry, ddl, services, node)


def _register_sites(registry: Registry, ddl: DdlServices, transfer: Services, node: Parts) -> None:
    async def connect(site: str) -> NativeBackend:
        file = node.config.sites_file
        return await connected(await transfer.beside(lambda: site_of(file, site)))

    services = SiteServices(
        *(lambda: node.backend, connect, transfer.run, node.ports.timers),
        *(ddl.changed, node.sites),
    )
    registry.add(SiteLink, make=lambda: SiteLink(services))
    settled = ddl.settled
    assert settled is not None, "a node waits for those who use descriptors"
    registry.add(SiteRole, make=lambda: SiteRole(settled, ddl.changed))
