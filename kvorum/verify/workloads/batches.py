"""Batches over several partitions are all or nothing, for every reader and at every version.

    write   {"group", "value"}         → null                      info: version
    read    {"group", "how", "at"?}    → [[value, version] or null, …], one for each key
    final   {"group", "how"}           → the same, at the end

A batch writes one value to every key of a group, each in a partition of its own; now and then it
deletes them all. A reader of a group must find one value and one version, or nothing at all.
"""

from __future__ import annotations

from typing import Any, ClassVar

from kvorum.api.model import BatchOp, Delete, Put, Record
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

KEYS = ("a", "f", "m", "t")


class Batch(Workload):
    name: ClassVar[str] = "batch"
    about: ClassVar[str] = "batches over partitions: all or nothing in every read, also of the past"
    splits: ClassVar = ("f", "m", "t")

    def __init__(self, *, groups: int = 4) -> None:
        super().__init__()
        self._groups = groups
        self._versions: list[tuple[int, int]] = []
        """The last acknowledged (group, version), to read at again."""

    async def step(self, client: Client) -> None:
        group = client.chance.below(self._groups)
        if client.chance.happens(0.5):
            await self._read(client, "read", group)
            return
        value = self.unique()
        names = [f"{letter}{group}" for letter in KEYS]
        ops: list[BatchOp]
        if client.chance.happens(0.1):
            args: dict[str, object] = {"group": group, "value": None}
            ops = [Delete(NAMESPACE, client.table_name, name) for name in names]
        else:
            args = {"group": group, "value": value}
            ops = [Put(NAMESPACE, client.table_name, name, str(value)) for name in names]
        version = await client.write("write", args, lambda: client.db.batch(ops))
        if version:
            self._versions = [*self._versions[-20:], (group, version)]

    async def final(self, client: Client) -> bool:
        for group in range(self._groups):
            if not await self._read(client, "final", group):
                return False
        return True

    async def _read(self, client: Client, f: str, group: int) -> bool:
        names = [f"{letter}{group}" for letter in KEYS]
        how = client.chance.pick(("multi_get", "transaction", "past"))
        args: dict[str, Any] = {"group": group, "how": how}
        if how == "past" and (not self._versions or f == "final"):
            args["how"] = how = "multi_get"
        if how == "past":
            group, at = client.chance.pick(self._versions)
            names = [f"{letter}{group}" for letter in KEYS]
            args |= {"group": group, "at": at}

        async def call() -> list[list[object] | None]:
            rows: list[Record | None]
            if how == "transaction":
                t = await client.db.transaction(isolation=client.isolation)
                table = t.table(NAMESPACE, client.table_name)
                rows = [await table.get(name) for name in names]
                await t.commit()
            else:
                rows = await client.table.multi_get(names, at=args.get("at"))
            return [[int(row.value), row.version] if row else None for row in rows]

        return await client.read(f, args, call)
