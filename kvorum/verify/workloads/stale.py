"""Reads of the past at any replica: each shows exactly what was committed up to its moment.

    write   {"group", "value"}         → null                      info: version
    read    {"group", "how", "at"?}    → [[value, version] or null, …], one for each key
    final   {"group", "how"}           → the same, at the end

A batch writes one value to every key of a group, each in a partition of its own. Readers go back to
moments that the oracle named before: replicas may answer those (`connect(near=…)`), leaders answer
the reads of now beside them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from kv.base.errors import KvorumError
from kvorum.api.model import BatchOp, Put
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.random_choices import Chance
from kvorum.verify.workloads.base import Workload

KEYS = ("a", "f", "m", "t")
MOMENTS_MAX = 400  # that readers go back to


class Stale(Workload):
    name: ClassVar[str] = "stale"
    about: ClassVar[str] = "reads of the past at replicas: what was committed by then, all of it"
    splits: ClassVar = ("f", "m", "t")

    def __init__(self, *, groups: int = 4) -> None:
        super().__init__()
        self._groups = groups
        self._moments: list[int] = []

    async def step(self, client: Client) -> None:
        group = client.chance.below(self._groups)
        match client.chance.below(8):
            case 0 | 1 | 2:
                value = str(self.unique())
                ops: list[BatchOp] = [
                    Put(NAMESPACE, client.table_name, f"{letter}{group}", value) for letter in KEYS
                ]
                args = {"group": group, "value": int(value)}
                await client.write("write", args, lambda: client.db.batch(ops))
            case 3:
                await self._read(client, "read", group, 0)
            case _:
                at = self._moment(client.chance)
                await self._read(client, "read", group, at)
                with suppress(KvorumError):  # an older one will do
                    moment = await client.db.timestamp()
                    self._moments = [*self._moments[1 - MOMENTS_MAX :], moment]

    def _moment(self, chance: Chance) -> int:
        """Every second one is the newest: what is committed by then may be on its way still."""
        if not self._moments:
            return 0
        return self._moments[-1] if chance.below(2) else chance.pick(self._moments)

    async def final(self, client: Client) -> bool:
        for group in range(self._groups):
            if not await self._read(client, "final", group, 0):
                return False
        return True

    async def _read(self, client: Client, f: str, group: int, at: int) -> bool:
        names = [f"{letter}{group}" for letter in KEYS]
        args: dict[str, Any] = {"group": group, "how": "past" if at else "multi_get"}
        if at:
            args["at"] = at

        async def call() -> list[list[object] | None]:
            rows = await client.table.multi_get(names, at=at or None)
            return [[int(row.value), row.version] if row else None for row in rows]

        return await client.read(f, args, call)
