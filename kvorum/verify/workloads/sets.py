"""A growing set of rows: what was added is seen by every scan that begins later.

add    {"round", "element"} → null
read   {"round"}            → [element, …] of that round, as one scan saw it
final  {"round"}            → the same, at the end
"""

from __future__ import annotations

from typing import ClassVar

from kvorum.api.model import Put
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload


class Set(Workload):
    name: ClassVar[str] = "set"
    about: ClassVar[str] = "rows that are added: none lost, none twice, none come and go"
    splits: ClassVar = ("r0-4", "r0-7", "r1", "r2")

    def __init__(self, *, round_elements: int = 300) -> None:
        super().__init__()
        self._round_elements = round_elements
        self._round = 0
        self._in_round = 0

    async def step(self, client: Client) -> None:
        if client.chance.happens(0.1):
            await self._read(client, "read", self._round)
            return
        self._in_round += 1
        if self._in_round > self._round_elements:
            self._round, self._in_round = self._round + 1, 1
        element = self.unique()
        args = {"round": self._round, "element": element}
        # The last digit first, so that neighbours in time lie in different partitions.
        key = f"r{self._round}-{str(element)[::-1]}"
        match client.chance.below(4):
            case 0:

                async def add(t: AsyncTransaction) -> None:
                    await t.table(NAMESPACE, client.table_name).put(key, str(element))

                await client.transact("add", args, add)
            case 1:
                op = [Put(NAMESPACE, client.table_name, key, str(element), if_absent=True)]
                await client.write("add", args, lambda: client.db.batch(op))
            case _:
                await client.write("add", args, lambda: client.table.put(key, str(element)))

    async def final(self, client: Client) -> bool:
        for number in range(self._round + 1):
            if not await self._read(client, "final", number):
                return False
        return True

    async def _read(self, client: Client, f: str, number: int) -> bool:
        async def call() -> list[int]:
            rows = client.table.rows(
                prefix=f"r{number}-", reverse=f == "read" and client.chance.happens(0.5)
            )
            return [int(item.value) async for item in rows]

        return await client.read(f, {"round": number}, call)
