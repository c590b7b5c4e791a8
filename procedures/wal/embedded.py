"""An executor over a directory of logs: procedures without a cluster, in this process.

Tables by name come into being when a step first names one (`WalTables`); their rows are this
store's own (store.py says how many there may be). Limits of declarations need the queues of a
cluster (procedures/pools), so a type that declares them is refused when the directory is opened:
a limit that is not kept would be worse. `pool=` is ignored: what is given here, runs here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from kv.base import limits, system
from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.errors import InvalidArgument, Refused
from kv.base.ids import FIRST_USER_TABLE, TableId
from kv.base.keys import escape, table_prefix, u32
from kv.base.ops import put
from procedures.engine.executor import Executor
from procedures.engine.registry import Declared, ProcedureType, Registry
from procedures.wal.disk import DirectoryDisk, ThreadOffload
from procedures.wal.journal import Terms
from procedures.wal.store import WalStore

_TABLES: Final = table_prefix(system.TABLES)
_LAST_TABLE: Final = table_prefix(system.COUNTERS) + escape(b"table")


class WalTables:
    """`Tables`: names and ids of the tables of one store."""

    def __init__(self, store: WalStore) -> None:
        self._store = store

    async def resolve(self, namespace: str, table: str) -> TableId:
        """The table of this name, made now if there is none. Raises InvalidArgument."""
        for what, name in (("namespace", namespace), ("table", table)):
            if not 0 < len(name) <= limits.NAME_CHARS_MAX:
                raise InvalidArgument(
                    f"the name of a {what} has 1 to {limits.NAME_CHARS_MAX} characters, "
                    f"got {name!r:.80}"
                )
        key = _TABLES + escape(namespace.encode()) + escape(table.encode())
        known = self._store.row(key)
        if known is None:
            last = self._store.row(_LAST_TABLE)
            known = u32(FIRST_USER_TABLE if last is None else int.from_bytes(last, "big") + 1)
            await self._store.write([put(key, known, cond=0), put(_LAST_TABLE, known)])
        return TableId(int.from_bytes(known, "big"))

    async def writable(self, namespace: str, table: str) -> TableId:
        """All are: there is no SQL here."""
        return await self.resolve(namespace, table)


def registry(types: Iterable[Declared]) -> Registry:
    """What may run here. Raises InvalidArgument, Refused (NOT_OFFERED)."""
    found = Registry()
    for cls in types:
        _check(found.add(cls))
    return found


def _check(declared: ProcedureType) -> None:
    asked = {
        "queue": declared.queue,
        "key": declared.key,
        "max_concurrent": declared.max_concurrent,
        "rate_per_s": declared.rate_per_s,
    }
    for what, value in asked.items():
        if value:
            raise Refused(
                f"procedure {declared.name} declares {what}={value!r}: queues and their limits "
                "are kept by a node; leave it out, or run a node (kvorum.open)",
                code="NOT_OFFERED",
            )


@asynccontextmanager
async def serving(
    path: str | os.PathLike[str],
    types: Iterable[Declared],
    *,
    terms: Terms | None = None,
    workers: int = limits.PROCEDURE_WORKERS_DEFAULT,
) -> AsyncIterator[tuple[Executor, WalStore]]:
    """Resume what the directory holds, then serve, until the block ends.

    Raises InvalidArgument (not a directory of ours, or in use), Corruption (file and offset).
    """
    known = registry(types)
    loop = asyncio.get_running_loop()
    clock, timers, rng = SystemClock(), LoopTimers(loop), SystemRng()
    disk = DirectoryDisk(path)
    offload = ThreadOffload(loop.call_soon_threadsafe)
    try:
        store = WalStore(disk, offload, clock, timers, rng, terms)
    except BaseException:
        offload.close()
        disk.close()
        raise
    try:
        executor = Executor(store, known, WalTables(store), clock, timers, rng, workers=workers)
        async with executor:
            yield executor, store
    finally:
        await store.close()
