"""What the commit of a procedure's step waits for, asked of all nodes (`kvorum proc explain`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kv.base.ids import TableId
from kv.client.client import KvClient
from kvorum.api.cursor import table_id
from kvorum.storage import cluster_waits
from procedures.engine.kv_store import waiter
from procedures.master.map.nodes import all_nodes
from sqlproxy.catalog import catalog
from txn.client import TxnClient


class KeyWaits:
    """procedures.engine.executor.KeyWaits over the nodes' registries of waits."""

    def __init__(self, kv: KvClient, txn: TxnClient) -> None:
        self._kv, self._txn = kv, txn

    async def __call__(self, id: int, keys: Collection[bytes]) -> Sequence[Mapping[str, object]]:
        found = await cluster_waits.ask(self._kv, await all_nodes(self._txn))
        mine = cluster_waits.of_procedure(found, waiter(id), frozenset(keys))
        if not mine:
            return ()
        found.waits = mine
        tables = {
            prefix: await catalog.find_by_id(self._txn, TableId(table_id(prefix)))
            for prefix in cluster_waits.table_prefixes(found)
        }
        return list(cluster_waits.shown(found, tables, self._txn.clock.now_ms())["waits"])
