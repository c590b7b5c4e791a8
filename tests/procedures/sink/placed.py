"""A Spark task that lays its rows in place: the production's `Placing` over a client of its own,
which outlives the processes of the node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError
from procedures.sink.format.sink_records import add_crc, pack_chunk
from procedures.verbs import SINK_PLACE
from pyspark_kvorum import packing
from pyspark_kvorum.placing import Placing
from pyspark_kvorum.session import Session
from sqlproxy.rows.schema import Table
from tests.procedures.sink.world import Client, Life, Rows, World
from txn.client import TxnClient


class _Session:
    """What `Placing` needs of a session. `life` is the process that answers."""

    def __init__(self, world: World, life: Life) -> None:
        self.world, self.life = world, life
        store = world.store
        timers = LoopTimers(world.loop)
        self.txn = TxnClient(store.kv, store.oracle, world.clock, world.rng, timers)

    async def opened(self) -> None:
        pass

    async def definite(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return await ask()

    async def ask(self, method: int, *args: Any) -> Any:
        assert method == SINK_PLACE
        return await self.life.sink.place(*args)

    def now_ms(self) -> int:
        return self.world.clock.now_ms()


class PlacedTask:
    """Rows that one task lays, `chunk_rows` at a time."""

    def __init__(
        self, world: World, life: Life, client: Client, part: int, name: str, rows: Rows
    ) -> None:
        self.client, self.part, self.name = client, part, name
        self.all = dict(sorted(rows.items()))
        self.kept: list[tuple[int, str, int]] = []
        self.session = _Session(world, life)
        table = cast(Table, SimpleNamespace(id=client.table))
        self.placing = Placing(
            cast(Session, self.session),
            table,
            client.attempt,
            part,
            name,
            lambda *one: self.kept.append(one),
        )
        self.chunks: list[bytes] = []
        self.rows = self.crc = 0
        self.laid = 0

    async def start(self) -> bool:
        return await self.placing.start()

    async def lay(self, rows: int = 0, *, tell: bool = False) -> None:
        """The next rows (0: all that are left). `tell`: also where they are."""
        keys = list(self.all)[self.laid :][: rows or None]
        self.laid += len(keys)
        values = [self.all[key] for key in keys]
        columns = packing.Rows(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        runs, rest = self.placing.take(columns)
        assert rest == [], "these lie apart"
        await self.placing.lay(runs)
        self.rows += len(keys)
        if tell:
            await self.tell()

    def told(self) -> int:
        """The number of a chunk that says what was laid; it is to be staged."""
        chunk = self.placing.laid_chunk(all_of_it=True)
        assert chunk is not None
        self.crc = add_crc(self.crc, len(self.chunks), chunk)
        self.chunks.append(chunk)
        return len(self.chunks) - 1

    async def tell(self) -> None:
        if (chunk := self.placing.laid_chunk(all_of_it=True)) is not None:
            await self._stage(chunk)

    async def stage(self, rows: Rows) -> None:
        """Rows that are not laid."""
        keys = sorted(rows)
        chunk = pack_chunk(keys, [rows[key] for key in keys])
        self.rows += len(keys)
        await self._stage(chunk)

    async def _stage(self, chunk: bytes) -> None:
        self.crc = add_crc(self.crc, len(self.chunks), chunk)
        self.chunks.append(chunk)
        await self.session.life.sink.stage(
            self.client.attempt,
            self.client.table,
            self.part,
            self.name,
            len(self.chunks) - 1,
            chunk,
        )

    async def seal(self) -> None:
        await self.tell()
        await self.session.life.sink.seal(
            self.client.attempt,
            self.client.table,
            self.part,
            self.name,
            len(self.chunks),
            self.rows,
            self.crc,
            None,
            self.placing.sealed(),
            self.placing.rows,
        )

    async def all_of_it(self, *, chunk_rows: int = 40) -> None:
        assert await self.start()
        while self.laid < len(self.all):
            await self.lay(chunk_rows)
        await self.seal()

    async def beat(self) -> bool:
        """What the task's thread does while it works."""
        for one in self.kept:
            try:
                await self.session.ask(SINK_PLACE, self.client.attempt, self.client.table, *one)
            except KvorumError:
                return False
        return True

    @property
    def manifest(self) -> list[Any]:
        return [self.part, self.name, len(self.chunks), self.rows, self.crc]
