"""Two clusters that take over from each other, both written to: they come to the same rows.

    read             {"site", "table", "key"}          → value or null
    write            {"site", "table", "key", "told"}  → null                    info: version
    final            {}                                → [{"TABLE/KEY": value}, the other's]
    final-conflicts  {}                                → the values of all conflicts that are told

One table for each rule of links (docs/guides/sites.md). What a write of `last` puts there is
"NUMBER<what it had seen", of `counter` the number that it saw and one more, of `set` the elements
that it saw and its number. `told` names it: the value of `last`, else the number. Client I writes
to cluster I modulo 2. The end is read until both clusters have the same, or time is over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from kv.base.errors import Unavailable
from kvorum.api.site_links import CONFLICTS, SITE_LINK
from kvorum.api.site_links import NAMESPACE as OF_LINKS
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

RULES: Final = ("last", "counter", "set")
KEYS: Final = ("a", "b", "c", "d")
OTHER: Final = "other"
"""How each of the two calls the other one, in its file of sites."""
_BEGINS_S: Final = 0.25
_BEGINS_TIMES: Final = 240
_PAUSE_S: Final = 0.02  # conflicts are kept for a month


class Sites(Workload):
    name: ClassVar[str] = "sites"
    about: ClassVar[str] = "two clusters in sync: the same in the end, nothing gone without a word"
    clusters: ClassVar[int] = 2
    isolations: ClassVar[Sequence[str]] = ("snapshot",)

    def __init__(self) -> None:
        super().__init__()
        self._sites: Sequence[AsyncDatabase] = ()
        self._table = ""

    async def begin(self, databases: Sequence[AsyncDatabase], table: str) -> None:
        """Both clusters have the tables, and a link to the other one; both links are in sync."""
        self._sites, self._table = databases[: self.clusters], table
        for db in self._sites:
            await self.prepare(db, table)
        tables = [{"table": [NAMESPACE, self._of(rule)], "rule": rule} for rule in RULES]
        for db in self._sites:
            await db.submit(SITE_LINK, {"site": OTHER, "tables": tables}, nonce=table)
        for db in self._sites:
            for _ in range(_BEGINS_TIMES):
                does = [link["does"] for link in await db.sites()]
                if does == ["in sync"]:
                    break
                await asyncio.sleep(_BEGINS_S)
            else:
                raise Unavailable(f"the link is not in sync: it {does or 'has not begun'}")

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        for rule in RULES:
            await super().prepare(db, f"{table}_{rule}")

    def _of(self, rule: str) -> str:
        return f"{self._table}_{rule}"

    async def step(self, client: Client) -> None:
        number, key = self.unique(), client.chance.pick(KEYS)
        rule = client.chance.pick(RULES)
        rows = client.db.table(NAMESPACE, self._of(rule))
        args = {"site": client.number % self.clusters, "table": rule, "key": key}
        found: list[Any] = []

        async def get() -> str | None:
            found[:] = [await rows.get(key)]
            return None if found[0] is None else found[0].value.decode()

        if not await client.read("read", args, get):
            return
        row = found[0]
        old = "" if row is None else row.value.decode()
        told, value = _written(rule, number, old)

        async def put() -> int:
            if row is None:
                return await rows.put(key, value, if_absent=True)
            return await rows.put(key, value, if_version=row.version)

        await client.write("write", {**args, "told": told}, put)
        await asyncio.sleep(_PAUSE_S)

    async def final(self, client: Client) -> bool:
        contents: list[dict[str, str]] = []

        async def read() -> list[dict[str, str]]:
            contents[:] = [await self._content(db) for db in self._sites]
            return contents

        async def conflicts() -> list[str]:
            return [value for db in self._sites for value in await _told(db)]

        return (
            await client.read("final", {}, read)
            and await client.read("final-conflicts", {}, conflicts)
            and contents[0] == contents[1]
        )

    async def _content(self, db: AsyncDatabase) -> dict[str, str]:
        return {
            f"{rule}/{row.key.decode()}": row.value.decode()
            for rule in RULES
            async for row in db.table(NAMESPACE, self._of(rule)).rows()
        }


def _written(rule: str, number: int, old: str) -> tuple[str, str]:
    """How the write is told, and what it puts."""
    match rule:
        case "counter":
            return str(number), str(int(old or 0) + 1)
        case "set":
            return str(number), json.dumps([*json.loads(old or "[]"), number])
        case _:
            value = f"{number}<{old.partition('<')[0]}"
            return value, value


async def _told(db: AsyncDatabase) -> list[str]:
    rows = [json.loads(row.value) async for row in db.table(OF_LINKS, CONFLICTS).rows()]
    values = [row[side]["value"] for row in rows for side in ("here", "there")]
    return [value for value in values if value is not None]
