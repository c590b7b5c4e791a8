"""The stores that the same tests run over (L1): in memory, in a directory of logs, and in the KV
store over a model of the partitions or over the real ones (consensus, memory engine), all in
virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kv.base import system
from kv.base.keys import table_range
from kvorum.testing.simulation import loop as simloop
from procedures.engine.kv_store import KvStore
from procedures.engine.memory_store import MemoryStore
from procedures.wal.store import WalStore
from tests.procedures.wal.wal_lab import CrashDisk, wal
from tests.txn.world import RealWorld, World

KINDS = ("memory", "wal", "model", "real")
STORES = pytest.mark.parametrize("kind", KINDS)
_TABLES = (system.PROCEDURES, system.PROCEDURE_STEPS, system.NONCES, system.RUNNABLE)


class Looks:
    """What a test wants to see of a store, however it is made."""

    def __init__(self, store: Any, txn: Any = None) -> None:
        self.store = store
        self.txn = txn

    async def value(self, key: bytes) -> bytes | None:
        if isinstance(self.store, WalStore):
            return self.store.row(key)
        if self.txn is None:
            row = await self.store.table.reads().get(key)
            return row.value if row else None
        value: bytes | None = (await self.txn.get(key))[0]
        return value

    async def rows(self) -> int:
        """Everything that is kept for procedures."""
        if isinstance(self.store, WalStore):
            return self.store.indexed()
        if self.txn is None:
            count: int = self.store.rows()
            return count
        pages = [await self.txn.scan(*table_range(t), limit=10_000) for t in _TABLES]
        return sum(len(page.items) for page in pages)


@asynccontextmanager
async def opened(kind: str, loop: simloop.SimLoop) -> AsyncIterator[Looks]:
    """A new, empty store."""
    if kind == "memory":
        yield Looks(MemoryStore())
        return
    if kind == "wal":
        store = wal(loop, CrashDisk())
        yield Looks(store)
        await store.close()
        return
    world = World(loop) if kind == "model" else RealWorld(loop)
    if isinstance(world, RealWorld):
        await world.start()
    txn = world.client()
    try:
        yield Looks(KvStore(txn), txn)
    finally:
        await txn.close()
        if isinstance(world, RealWorld):
            world.close()
