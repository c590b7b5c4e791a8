"""A ring of nodes that is rewired by transactions and must stay one ring (FoundationDB's Cycle).

    swap   {"at"} → [a, b, c, d]: it found a → b → c → d and made it a → c → b → d
    read   {"how"} → {node: its next}
    final  {"how"} → the same, at the end

A transaction that saw two moments, or half of another one, cuts the ring or ties a second one.
"""

from __future__ import annotations

from typing import ClassVar

from kv.base.config import CLOCKS
from kvorum.api.model import Put
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload, make_table


class Cycle(Workload):
    name: ClassVar[str] = "cycle"
    clocks: ClassVar = CLOCKS
    about: ClassVar[str] = "a ring that transactions rewire: it stays one ring"
    splits: ClassVar = ("n04", "n08", "n12")

    def __init__(self, *, nodes: int = 16) -> None:
        super().__init__()
        self._nodes = [f"n{i:02}" for i in range(nodes)]

    def parameters(self) -> dict[str, object]:
        return {"nodes": self._nodes}

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        await make_table(db, table, self.splits)
        following = [*self._nodes[1:], self._nodes[0]]
        await db.batch(
            [Put(NAMESPACE, table, a, b) for a, b in zip(self._nodes, following, strict=True)]
        )

    async def step(self, client: Client) -> None:
        if client.chance.happens(0.3):
            await self._read(client, "read")
            return
        first = client.chance.pick(self._nodes)

        async def swap(t: AsyncTransaction) -> list[str] | None:
            return await _swap(t, client, first)

        await client.transact("swap", {"at": first}, swap)

    async def final(self, client: Client) -> bool:
        return await self._read(client, "final")

    async def _read(self, client: Client, f: str) -> bool:
        how = client.chance.pick(("multi_get", "scan"))

        async def call() -> dict[str, str]:
            if how == "multi_get":
                rows = await client.table.multi_get(self._nodes)
                found = zip(self._nodes, rows, strict=True)
                return {node: row.value.decode() for node, row in found if row}
            page = await client.table.scan(prefix="n")
            return {item.key.decode(): item.value.decode() for item in page.items}

        return await client.read(f, {"how": how}, call)


async def _swap(t: AsyncTransaction, client: Client, first: str) -> list[str] | None:
    table = t.table(NAMESPACE, client.table_name)
    path = [first]
    for _ in range(3):
        row = await table.get(path[-1])
        if row is None:
            return None  # the checker of the ring finds the hole
        path.append(row.value.decode())
    a, b, c, d = path
    await table.put(a, c)
    await table.put(c, b)
    await table.put(b, d)
    return path
