"""The change feed: every committed transaction, whole, once, in commit order, to every consumer.

    write           {"id", "changes": {key: value or null}}  → null           info: version
    event           {"consumer"}   → {"version", "changes": {key: value or null}}
    final position  {"consumer"}   → up to which version it got everything
    final read      null           → {key: [value, version]}

The first clients consume, the others write. Each write puts its id as the value of one key at
least, so an event says whose it is. Consumers are stopped now and then, in the middle of anything,
and go on from the position that they had written down.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from kv.base.errors import KvorumError
from kvorum.api.model import BatchOp, Delete, Put
from kvorum.api.watching import AsyncWatch
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

CONSUMERS = 2
_KEYS = 24
_PULL_S = 0.5  # a step of a consumer
_STOPPED = 0.1  # of its steps end with a stop


class _Consumer:
    """One reader of the feed. `position`: what it would find written down after a crash."""

    def __init__(self, number: int, client: Client, position: int) -> None:
        self.number = number
        self.position = position
        self._client = client
        self._watch: AsyncWatch | None = None
        self._parts: dict[str, str | None] = {}

    async def pull(self, seconds: float, until: int) -> None:
        """Take and record events for so long, or until everything up to `until` came."""
        try:
            async with asyncio.timeout(seconds):
                while self.position < until:
                    await self._next()
        except TimeoutError:
            pass
        except KvorumError:
            await self.stop()  # it has to begin anew, and does

    async def stop(self) -> None:
        """As a crash: what was taken of an unfinished transaction is forgotten."""
        watch, self._watch, self._parts = self._watch, None, {}
        if watch is not None:
            await watch.close()

    async def _next(self) -> None:
        client = self._client
        if self._watch is None:
            self._watch = client.db.watch(
                NAMESPACE, client.table_name, from_version=self.position, heartbeats=True
            )
        event = await self._watch.next()
        if event.kind == "resolved":
            self.position = max(self.position, event.version)
            return
        self._parts |= {
            change.key.decode(): None if change.value is None else change.value.decode()
            for change in event.changes
        }
        if event.last:
            changes, self._parts = self._parts, {}
            op = client.invoke("event", {"consumer": self.number})
            client.ok(op, {"version": event.version, "changes": changes})
            self.position = event.version


class Feed(Workload):
    name: ClassVar[str] = "feed"
    about: ClassVar[str] = "the change feed: each transaction once, whole, in commit order"
    splits: ClassVar = ("k08", "k16")

    def __init__(self) -> None:
        super().__init__()
        self._keys = [f"k{i:02}" for i in range(_KEYS)]
        self._from = 0
        self._consumers: dict[int, _Consumer] = {}

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        await super().prepare(db, table)
        self._from = await db.timestamp()

    async def step(self, client: Client) -> None:
        # One client at least writes; the last one reads the end and has no steps.
        if client.number < min(CONSUMERS, client.clients - 2):
            await self._consume(client)
        else:
            await self._write(client)

    async def final(self, client: Client) -> bool:
        try:
            until = await client.db.timestamp()
        except KvorumError:
            return False
        for consumer in self._consumers.values():
            await consumer.pull(10 * _PULL_S, until)
            if consumer.position < until:
                return False
        for number, consumer in self._consumers.items():
            await consumer.stop()
            op = client.invoke("final position", {"consumer": number})
            client.ok(op, consumer.position)

        async def rows() -> dict[str, list[Any]]:
            found = client.table.rows()
            return {i.key.decode(): [i.value.decode(), i.version] async for i in found}

        return await client.read("final read", None, rows)

    async def _consume(self, client: Client) -> None:
        if client.number not in self._consumers:
            self._consumers[client.number] = _Consumer(client.number, client, self._from)
        consumer = self._consumers[client.number]
        await consumer.pull(_PULL_S, 1 << 64)
        if client.chance.happens(_STOPPED):
            await consumer.stop()

    async def _write(self, client: Client) -> None:
        number = self.unique()
        keys = client.chance.some(self._keys, 1 + client.chance.below(4))
        changes: dict[str, str | None] = {
            key: None if at and client.chance.happens(0.3) else str(number)
            for at, key in enumerate(keys)
        }
        args = {"id": number, "changes": changes}
        table = client.table_name

        async def all_of_them(t: AsyncTransaction) -> None:
            for key, value in changes.items():
                if value is None:
                    await t.table(NAMESPACE, table).delete(key)
                else:
                    await t.table(NAMESPACE, table).put(key, value)

        if client.chance.happens(0.5):
            await client.transact("write", args, all_of_them)
            return
        ops: list[BatchOp] = [
            Delete(NAMESPACE, table, key) if value is None else Put(NAMESPACE, table, key, value)
            for key, value in changes.items()
        ]
        await client.write("write", args, lambda: client.db.batch(ops))
