"""Which node holds an HTTP transaction open: its buffer and snapshot are in one process alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kv.base.errors import KvorumError
from kv.base.members import Address
from kv.base.wire_row import WireRow
from kv.client.client import KvClient
from kvorum.api.verbs import HOLDS_TXN

_ASK_MS: Final = 1_500
_NOBODY: Final = ["", 0]


class Holders:
    """Asks the other nodes of a cluster, and answers them."""

    def __init__(
        self,
        kv: KvClient,
        others: Callable[[], Sequence[Address]],
        *,
        own: Address,
        holds: Callable[[int], bool],
    ) -> None:
        """`own` is where this node serves HTTP; `holds(txn)`: whether it is open here."""
        self._kv = kv
        self._others = others
        self._own = own
        self._holds = holds

    def answer(self, _context: object, args: WireRow) -> WireRow:
        """The node method HOLDS_TXN."""
        return [list(self._own) if self._holds(args[0]) else _NOBODY]

    async def find(self, txn: int) -> str | None:
        """HOST:PORT of the HTTP API where a transaction is open; None if no other node that answers
        has it.
        """

        async def ask(address: Address) -> tuple[str, int] | None:
            try:
                ((host, port),) = await self._kv.call_at(address, HOLDS_TXN, txn, budget_ms=_ASK_MS)
            except KvorumError:  # it is down, or serves no HTTP
                return None
            return (host, port) if host else None

        for found in await asyncio.gather(*map(ask, self._others())):
            if found is not None:
                host, port = found
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return None
