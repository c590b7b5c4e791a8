"""The part of `NativeBackend` that is not about records: namespaces and tables, procedures, and
what the cluster tells of itself. Schema changes are procedures, which go on when this client goes
away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kv.base.errors import DeadlineExceeded, Unavailable, UnknownOutcome
from kv.base.ids import TableId
from kv.base.limits import DEADLINE_MS_MAX, PROCEDURE_ARGS_BYTES_MAX, PROCEDURE_LIST_DEFAULT
from kv.base.ports import Timers
from kv.client.client import KvClient
from kvorum.api.cursor import table_id
from kvorum.api.model import (
    Column,
    NamespaceInfo,
    ProcedureInfo,
    TableInfo,
    TableSpec,
)
from kvorum.api.names import TableIds
from kvorum.api.sink_attempts import SinkAttempt
from kvorum.api.verbs import ACCESS
from kvorum.cluster import replica_status
from kvorum.cluster.members import partition_map
from kvorum.native import staged_attempts
from kvorum.storage import cluster_waits
from procedures.bus import settings
from procedures.engine import plain_data
from procedures.engine.client import ENDED, ProcedureClient
from procedures.engine.plain_data import Plain
from procedures.master.map.audit import all_forced
from procedures.master.map.nodes import NodeState, all_nodes
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import CatalogCache, Reader
from sqlproxy.rows.schema import USABLE, Namespace, Table
from txn.client import TxnClient

_ALTERING: Final = {"enable": "Enable", "disable": "Disable", "modify": "Modify"}
OWNER: Final = "user"
"""Who submits. One for all until there are users to tell apart, so that a nonce means
the same everywhere.
"""


class NativeAdmin:
    """See the module."""

    patience_ms: int = DEADLINE_MS_MAX
    """How long a schema change, or another procedure that is waited for here, may take."""

    def __init__(
        self, kv: KvClient, txn: TxnClient, timers: Timers, tables: CatalogCache, catalog: Reader
    ) -> None:
        """`catalog`: by which it is read, a node's transactions or what a client sees of it."""
        self.catalog = catalog
        self._kv = kv
        self._txn = txn
        self._tables = tables
        self._timers = timers
        self._procedures = ProcedureClient(kv, timers, owner=OWNER, margin_ms=kv.budget_ms)

    def step_tables(self) -> TableIds:
        """How steps of procedures find tables."""
        return TableIds(self._tables)

    # ------------------------------------------------------------------- namespaces and tables

    async def namespaces(self) -> list[NamespaceInfo]:
        found = await catalog.list_namespaces(self.catalog)
        return [_space(n) for n in found]

    async def create_namespace(self, name: str, change: dict[str, object] | None = None) -> None:
        await self._ddl("CreateNamespace", {**(change or {}), "namespace": name})

    async def alter_namespace(
        self, name: str, what: str, change: dict[str, object] | None = None
    ) -> NamespaceInfo:
        await self._ddl(f"{_ALTERING[what]}Namespace", {**(change or {}), "namespace": name})
        self._tables.invalidate(name)
        with _done(f"{what} of namespace {name}"):
            n = await catalog.lookup_namespace(self.catalog, name)
        return _space(n)

    async def drop_namespace(self, name: str) -> None:
        await self._ddl("DropNamespace", {"namespace": name})

    async def tables(self, ns: str) -> list[TableInfo]:
        await catalog.lookup_namespace(self.catalog, ns)
        return [_info(t) for t in await catalog.list_tables(self.catalog, ns) if t.state in USABLE]

    async def create_table(self, ns: str, name: str, spec: TableSpec) -> TableInfo:
        args: dict[str, object] = {
            "namespace": ns,
            "name": name,
            "split_keys": list(spec.split_keys),
            "columns": [column.to_plain() for column in spec.columns],
            "primary_key": list(spec.primary_key),
            "tags": list(spec.tags),
        }
        if spec.replicas is not None:
            args["replicas"] = spec.replicas
        if spec.partition_bytes is not None:
            args["partition_bytes"] = spec.partition_bytes
        for field in ("shard", "survive", "leaders"):
            if value := getattr(spec, field):
                args[field] = value
        await self._ddl("CreateTable", args)
        self._tables.invalidate(ns, name)
        with _done(f"the creation of {ns}.{name}"):
            return _info(await self._tables.lookup(ns, name))

    async def drop_table(self, ns: str, name: str) -> None:
        await self._ddl("DropTable", {"namespace": ns, "name": name})
        self._tables.invalidate(ns, name)

    async def alter_table(
        self, ns: str, name: str, what: str, change: dict[str, object] | None = None
    ) -> TableInfo:
        names = {"namespace": ns, "name": name}
        await self._ddl(f"{_ALTERING[what]}Table", {**(change or {}), **names})
        self._tables.invalidate(ns, name)
        with _done(f"{what} of {ns}.{name}"):
            return _info(await catalog.lookup_any(self.catalog, ns, name))

    async def _ddl(self, procedure: str, args: dict[str, object]) -> None:
        """Run a schema change to its end. It goes on when this client goes away."""
        began = self._timers.monotonic()
        started = await self._procedures.submit(procedure, args)
        await self._result(procedure, started, began)

    async def _result(self, procedure: str, id: int, began: float) -> Any:
        """What it returned. Raises what ended it, or UnknownOutcome: it goes on."""
        left_ms = self.patience_ms - int((self._timers.monotonic() - began) * 1000)
        try:
            return await self._procedures.result(id, timeout_ms=max(1, left_ms))
        except (DeadlineExceeded, Unavailable) as error:
            if error.details.get("state") in ENDED:
                raise  # it is the procedure's own
            raise UnknownOutcome(
                f"{procedure} has not ended within {self.patience_ms} ms, as far as is known: it "
                f"goes on as procedure {id}; `kvorum proc show {id}`, db.procedure({id}) and "
                f"db.wait({id}) tell what becomes of it; look before you repeat it",
                details={"procedure": str(id)},
            ) from error

    # ------------------------------------------------------------------------------ procedures

    async def submit(
        self, name: str, args: object, nonce: str | None, options: dict[str, object] | None = None
    ) -> int:
        return await self._procedures.submit(name, args, nonce=nonce, options=options)

    async def control(self, what: str, args: Plain) -> Any:
        return await self._procedures.control(what, args)

    async def access(self, what: str, args: dict[str, object]) -> object:
        data = plain_data.encode(args, what, PROCEDURE_ARGS_BYTES_MAX)
        (answer,) = await self._kv.call_node(ACCESS, what, data)
        return plain_data.decode(answer)

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo:
        return ProcedureInfo.of(await self._procedures.get(procedure, wait_ms=wait_ms))

    async def procedures(
        self, *, state: str | None, owner: str | None, name: str | None, before: int | None = None
    ) -> list[ProcedureInfo]:
        found = await self._procedures.list(state=state, owner=owner, name=name, before=before)
        return [ProcedureInfo.of(answer) for answer in found]

    async def procedure_page(
        self,
        *,
        state: str | None,
        owner: str | None,
        name: str | None,
        before: int | None,
        seen: Sequence[str] | None = None,
    ) -> tuple[list[ProcedureInfo], int]:
        wanted: dict[str, object] = {"state": state, "owner": owner, "name": name, "before": before}
        if seen is not None:
            wanted["seen"] = list(seen)
        found, on = await self._procedures.page(wanted)
        if len(found) >= PROCEDURE_LIST_DEFAULT:
            on = int(found[-1]["id"])
        return [ProcedureInfo.of(answer) for answer in found], on

    async def acknowledge(self, procedure: int) -> None:
        await self._procedures.acknowledge(procedure)

    async def workers(self) -> list[dict[str, object]]:
        return await self._procedures.workers()

    # --------------------------------------------------------------------------------- cluster

    async def cluster(self) -> Plain:
        members = [m for m in await all_nodes(self.catalog) if m.state is not NodeState.GONE]
        map_, known = await partition_map(self._txn), await replica_status.reports(self._kv)
        return {
            "cluster": known.cluster,
            "master": known.master,
            "nodes": len(members),
            "partitions": len(map_),
            "settings": [
                settings.shown(name, *one)
                for name, one in (await settings.read_all(self.catalog)).items()
                if one[1] >= 0
            ],
        }

    async def set_settings(self, values: dict[str, int]) -> list[dict[str, object]]:
        settings.check_all(values)
        procedure, began = "kvorum.set_setting", self._timers.monotonic()
        ids = [
            await self._procedures.submit(procedure, {"name": name, "value": value})
            for name, value in values.items()
        ]
        return [await self._result(procedure, id, began) for id in ids]

    async def nodes(self) -> list[Plain]:
        found = await all_nodes(self.catalog)
        answer, map_ = await replica_status.ask(self._kv, found), await partition_map(self._txn)
        known = await replica_status.reports(self._kv)
        return replica_status.node_rows(found, map_, answer, await all_forced(self.catalog), known)

    async def partitions(self) -> list[dict[str, object]]:
        answer = await replica_status.ask(self._kv, await all_nodes(self.catalog))
        known = await replica_status.reports(self._kv)
        return replica_status.partition_rows(await partition_map(self._txn), answer, known)

    async def hour(self, after_ms: int = 0) -> list[dict[str, object]]:
        return await replica_status.hours(self._kv, await all_nodes(self.catalog), after_ms)

    async def locks(self, every: bool = False) -> dict[str, object]:
        found = await cluster_waits.ask(self._kv, await all_nodes(self.catalog), every=every)
        tables = {
            prefix: await catalog.find_by_id(self.catalog, TableId(table_id(prefix)))
            for prefix in cluster_waits.table_prefixes(found)
        }
        return cluster_waits.shown(found, tables, self._txn.clock.now_ms(), every=every)

    async def sink_attempts(
        self, after: str = "", seen: Callable[[int], bool] | None = None
    ) -> tuple[list[SinkAttempt], str]:
        now_ms, paths = self._txn.clock.now_ms(), staged_attempts.Paths(self.catalog, self._txn)
        return await staged_attempts.page(self.catalog, paths, now_ms, after, seen)


@contextmanager
def _done(what: str) -> Iterator[None]:
    """It was done, whatever keeps who asked for it from seeing what came of it."""
    try:
        yield
    except (DeadlineExceeded, Unavailable) as error:
        raise UnknownOutcome(
            f"{what} was done, but what came of it cannot be read now: {error.message}"
        ) from error


def _space(n: Namespace) -> NamespaceInfo:
    return NamespaceInfo(n.name, n.replicas, n.tags, n.state, n.shard, n.survive, n.leaders)


def _info(table: Table) -> TableInfo:
    columns = tuple(Column(c.name, c.shown_type, c.nullable) for c in table.visible)
    return TableInfo(
        table.namespace,
        table.name,
        table.id,
        columns,
        table.primary_key,
        table.replicas,
        table.tags,
        table.state,
        table.partition_bytes,
        table.shard,
        table.survive,
        table.leaders,
    )
