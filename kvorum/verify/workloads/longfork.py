"""Two readers must not see two writes in different orders (long fork; after Jepsen's).

write  {"group", "key"}  → null: the key of the group is written, once for ever
read   {"group"}         → {key: true or false}: is it written, all at one snapshot
final  {"group"}         → the same, at the end
"""

from __future__ import annotations

from typing import ClassVar

from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

KEYS = ("a", "f", "m", "t")
"""The keys of a group begin so: each lies in a partition of its own."""


class LongFork(Workload):
    name: ClassVar[str] = "long-fork"
    about: ClassVar[str] = "all readers see writes to different keys in one order"
    splits: ClassVar = ("f", "m", "t")

    def __init__(self, *, reads_per_group: int = 12) -> None:
        super().__init__()
        self._group = self.unique()
        self._todo = list(KEYS)
        self._reads = 0
        self._reads_per_group = reads_per_group

    async def step(self, client: Client) -> None:
        if self._reads >= self._reads_per_group and not self._todo:
            self._group, self._todo, self._reads = self.unique(), list(KEYS), 0
        group = self._group
        if not self._todo or client.chance.happens(0.6):
            self._reads += 1
            await self._read(client, "read", group)
            return
        letter = client.chance.pick(self._todo)
        self._todo.remove(letter)
        args, key = {"group": group, "key": letter}, f"{letter}{group}"

        async def write(t: AsyncTransaction) -> None:
            await t.table(NAMESPACE, client.table_name).put(key, "1")

        if client.chance.happens(0.5):
            await client.transact("write", args, write)
        else:
            await client.write("write", args, lambda: client.table.put(key, "1"))

    async def final(self, client: Client) -> bool:
        return await self._read(client, "final", self._group)

    async def _read(self, client: Client, f: str, group: int) -> bool:
        keys = [f"{letter}{group}" for letter in KEYS]

        async def call() -> dict[str, bool]:
            if client.chance.happens(0.5):
                rows = await client.table.multi_get(keys)
            else:
                # One key after the other, in random order: the snapshot must hold them together.
                t = await client.db.transaction(isolation=client.isolation)
                table = t.table(NAMESPACE, client.table_name)
                found = {key: await table.get(key) for key in client.chance.some(keys, len(keys))}
                await t.commit()
                rows = [found[key] for key in keys]
            return {letter: row is not None for letter, row in zip(KEYS, rows, strict=True)}

        return await client.read(f, {"group": group}, call)
