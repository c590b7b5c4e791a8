"""The oracle: every timestamp is handed out once, and later ones are greater.

    take   {"how"} → a timestamp
    final  null    → one at the end

`how` is "timestamp", "transaction" (its start) or "write" (a commit version): all are the oracle's.
"""

from __future__ import annotations

from typing import ClassVar

from kv.base.errors import KvorumError
from kvorum.verify.client import Client
from kvorum.verify.workloads.base import Workload


class UniqueIds(Workload):
    name: ClassVar[str] = "unique-ids"
    about: ClassVar[str] = "timestamps of the oracle: unique, and rising in real time"
    splits: ClassVar = ("k3", "k6")

    async def step(self, client: Client) -> None:
        how = client.chance.pick(("timestamp", "timestamp", "transaction", "write"))
        op = client.invoke("take", {"how": how})
        try:
            match how:
                case "timestamp":
                    taken = await client.db.timestamp()
                case "transaction":
                    t = await client.db.transaction()
                    taken = t.start_ts
                    await t.abort()
                case _:
                    key = f"k{client.chance.below(10)}"
                    taken = await client.table.put(key, str(self.unique()))
        except KvorumError as e:
            client.failed(op, e)  # a timestamp that nobody got proves nothing
        else:
            client.ok(op, taken)

    async def final(self, client: Client) -> bool:
        return await client.read("final", None, client.db.timestamp)
