"""Write skew and phantoms: of each group at most one row may ever be made (serializable only).

    claim   {"group", "side"} → true if the group was empty in both ranges and the row was put
    read    {"group"}         → [row, …] of the group, at one snapshot
    final   {"group"}         → the same, at the end

Two claims look at both sides of a group, find nothing, and put a row on different sides: no key is
written twice, so snapshot isolation lets both commit. What they looked at are ranges without a row
in them, so guards on keys alone would not stop them either.
"""

from __future__ import annotations

from typing import ClassVar

from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

SIDES = ("a", "t")


class Skew(Workload):
    name: ClassVar[str] = "skew"
    about: ClassVar[str] = "write skew and phantoms (needs --isolation serializable)"
    splits: ClassVar = ("m",)
    isolations: ClassVar = ("serializable",)

    def __init__(self, *, claims_per_group: int = 8) -> None:
        super().__init__()
        self._per_group = claims_per_group
        self._groups, self._claims = [self.unique()], 0

    async def step(self, client: Client) -> None:
        if client.chance.happens(0.2):
            await self._read(client, "read", self._groups[-1])
            return
        self._claims += 1
        if self._claims > self._per_group:
            self._claims = 1
            self._groups.append(self.unique())
        group, side = self._groups[-1], client.chance.pick(SIDES)
        name = f"{side}{group}-{self.unique()}"

        async def claim(t: AsyncTransaction) -> bool:
            table = t.table(NAMESPACE, client.table_name)
            for other in client.chance.some(SIDES, len(SIDES)):
                if (await table.scan(prefix=f"{other}{group}-")).items:
                    return False
            await table.put(name, "1")
            return True

        await client.transact("claim", {"group": group, "side": side}, claim)

    async def final(self, client: Client) -> bool:
        for group in self._groups:
            if not await self._read(client, "final", group):
                return False
        return True

    async def _read(self, client: Client, f: str, group: int) -> bool:
        async def call() -> list[str]:
            at = await client.db.timestamp()
            pages = [await client.table.scan(prefix=f"{side}{group}-", at=at) for side in SIDES]
            return [item.key.decode() for page in pages for item in page.items]

        return await client.read(f, {"group": group}, call)
