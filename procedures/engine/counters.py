"""Numbers that are never given out twice, also after a crash: ids of procedures, tables,
partitions.

COUNTERS: esc(name) → sealed u64, the first number that nobody reserved. A block is reserved by one
conditional write; what a crash leaves of it is never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kv.base import limits, system
from kv.base.checksum import intact, seal
from kv.base.errors import Busy, ConditionFailed, Corruption, UnknownOutcome
from kv.base.keys import escape, from_u64, table_prefix, u64
from kv.base.ops import put
from txn.client import TxnClient

_ATTEMPTS: Final = 100


class Blocks:
    """Numbers one after the other, of blocks that somebody reserves."""

    def __init__(self, reserve: Callable[[int], Awaitable[int]], block: int) -> None:
        """`reserve(count)`: the first of so many that are nobody else's."""
        self._reserve, self._block = reserve, block
        self._next = 0
        self._end = 0  # of what is reserved
        self._reserving = asyncio.Lock()

    async def take(self, count: int) -> int:
        """The first of `count` consecutive numbers. Raises what `reserve` raises."""
        while self._next + count > self._end:
            async with self._reserving:
                if self._next + count > self._end:
                    wanted = max(count, self._block)
                    first = await self._reserve(wanted)
                    if first != self._end:
                        self._next = first
                    self._end = first + wanted
        first = self._next
        self._next += count
        return first


class Counter:
    """One counter. `block`: how many numbers one write reserves."""

    def __init__(
        self, txn: TxnClient, name: str, *, first: int = 1, block: int = limits.PROCEDURE_ID_BLOCK
    ) -> None:
        self._txn = txn
        self._name = name
        self._key = table_prefix(system.COUNTERS) + escape(name.encode())
        self._first = first
        self.take = Blocks(self._reserve, block).take

    async def _reserve(self, count: int) -> int:
        for _ in range(_ATTEMPTS):
            stored, version = await self._txn.get(self._key)
            if stored is not None and not intact(self._key, stored):
                raise Corruption(
                    f"the counter {self._name!r} is damaged", details={"key": self._key}
                )
            first = self._first if stored is None else from_u64(stored)
            sealed = seal(self._key, u64(first + count))
            try:
                await self._txn.write([put(self._key, sealed, cond=version)])
            except (ConditionFailed, UnknownOutcome):
                continue  # somebody else's block, or perhaps ours: either way the next one
            return first
        raise Busy(
            f"{_ATTEMPTS} attempts to reserve a block of the counter {self._name!r} met others; "
            "ask again"
        )
