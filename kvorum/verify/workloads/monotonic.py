"""Counters that only grow: no reader sees one go back, no increment is lost or done twice.

increment  {"key"} → the new value        info: version
read       {"key"} → the value            info: version
final      {"key"} → the same, at the end
"""

from __future__ import annotations

from typing import ClassVar

from kv.base.errors import ConditionFailed, KvorumError
from kvorum.api.model import Put
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload, make_table


class Monotonic(Workload):
    name: ClassVar[str] = "monotonic"
    about: ClassVar[str] = "counters: no lost update, values and versions never go back"
    splits: ClassVar = ("c1", "c2")

    def __init__(self, *, counters: int = 3) -> None:
        super().__init__()
        self._counters = [f"c{i}" for i in range(counters)]

    def parameters(self) -> dict[str, object]:
        return {"counters": self._counters}

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        await make_table(db, table, self.splits)
        await db.batch([Put(NAMESPACE, table, counter, "0") for counter in self._counters])

    async def step(self, client: Client) -> None:
        key = client.chance.pick(self._counters)
        roll = client.chance.rng.random()
        if roll < 0.4:
            await self._read(client, "read", key)
        elif roll < 0.7:
            await _by_version(client, key)
        else:

            async def add(t: AsyncTransaction) -> int:
                table = t.table(NAMESPACE, client.table_name)
                row = await table.get(key)
                value = int(row.value) + 1 if row else 1
                await table.put(key, str(value))
                return value

            await client.transact("increment", {"key": key}, add)

    async def final(self, client: Client) -> bool:
        for key in self._counters:
            if not await self._read(client, "final", key):
                return False
        return True

    async def _read(self, client: Client, f: str, key: str) -> bool:
        op = client.invoke(f, {"key": key})
        try:
            row = await client.table.get(key)
        except KvorumError as e:
            client.failed(op, e)
            return False
        value, version = (int(row.value), row.version) if row else (None, 0)
        client.ok(op, value, version=version)
        return True


async def _by_version(client: Client, key: str) -> None:
    """Read, then put if the version is still the same."""
    op = client.invoke("increment", {"key": key})
    try:
        row = await client.table.get(key)
    except KvorumError as e:
        client.failed(op, e)
        return
    value, known = (int(row.value), row.version) if row else (0, 0)
    try:
        version = await client.table.put(key, str(value + 1), if_version=known or None)
    except ConditionFailed as e:
        client.failed(op, e)
    except KvorumError as e:
        client.refused(op, e)
    else:
        client.ok(op, value + 1, version=version)
