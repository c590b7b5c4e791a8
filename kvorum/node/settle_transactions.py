"""Who ends transactions for clients that are not believed (kv/server/connection_rights.py): the
node looks at their records itself, as the sweeper does.
"""

from __future__ import annotations

from typing import Any

from kv.base.limits import TXN_TTL_MS_MAX
from kv.base.methods import RESOLVE, Resolve, Settle
from txn.client import TxnClient

_BUDGET_MS = 2_000


class Deputy:
    """kv.server.connection_rights.Deputy of one node."""

    def __init__(self, txn: TxnClient) -> None:
        self._txn = txn

    async def __call__(self, row: list[Any]) -> list[Any]:
        """Raises KvorumError."""
        if row[1] == RESOLVE:
            Resolve.verb.check(row)
            keys = row[Resolve.verb.at("keys")]
            await self._txn.multi_get(keys)  # it resolves what it meets of the committed
            return [0, 0]
        Settle.verb.check(row)
        anchor, start_ts = row[Settle.verb.at("anchor")], row[Settle.verb.at("start_ts")]
        found, _ = await self._txn.resolver.check(
            start_ts, anchor, ttl_ms=TXN_TTL_MS_MAX, budget_ms=_BUDGET_MS
        )
        return [found.status, found.commit_ts]
