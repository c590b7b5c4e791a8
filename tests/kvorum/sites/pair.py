"""Two simulated clusters that take over from each other, what clients write to them, and the
checker: what both must have in the end, computed from what was acknowledged alone.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kv.base.errors import KvorumError, RestartTxn
from kvorum.api.model import TableKey, TableSpec
from kvorum.api.site_links import CONFLICTS, NAMESPACE
from kvorum.sites.links import Link, LinkedTable
from kvorum.sites.marks import CURSORS, Mark
from kvorum.sites.pull import Pull
from kvorum.sites.rules import Joined, Standing
from kvorum.sites.taking import Counts, Taken, Taker
from kvorum.testing.simulation.loop import SimLoop
from tests.kvorum.cluster.simulated import SimCluster

NS: Final = "default"
TABLES: Final = (
    LinkedTable(NS, "last"),
    LinkedTable(NS, "counter", "counter"),
    LinkedTable(NS, "set", "set"),
    LinkedTable(NS, "joined", "procedure", "longer"),
    LinkedTable(NS, "pairs"),
)
KEYS: Final = ("a", "b", "c")
IDS: Final = ("cluster-0", "cluster-1")
END_S: Final = 120


class Written(NamedTuple):
    """An acknowledged write. `value`: of a counter the difference, of a set the element."""

    site: int
    table: str
    key: str
    value: str | None
    version: int


class Pair:
    """The clusters, a task per direction, and the history."""

    def __init__(self, loop: SimLoop, seed: int, skew_ms: int = 0) -> None:
        self.clusters = [SimCluster(loop, seed + number, 1) for number in (0, 1000)]
        self.counts = [Counts(), Counts()]
        self.history: list[Written] = []
        self.torn: list[str] = []
        self.since = [0, 0]
        self.chance = random.Random(seed)
        self._skew_ms = skew_ms
        self._numbers = itertools.count(1)
        self._pulls: dict[int, asyncio.Task[None]] = {}

    def backend(self, site: int) -> Any:
        return self.clusters[site].nodes[1].backend

    async def start(self) -> None:
        for site, cluster in enumerate(self.clusters):
            await cluster.start()
            cluster.nodes[1].ports.clock.skew_ms = site * self._skew_ms  # type: ignore[attr-defined]
            here = self.backend(site)
            for name in {NAMESPACE, *(table.namespace for table in TABLES)} - {NS}:
                await here.create_namespace(name)
            names = [(NAMESPACE, CURSORS), (NAMESPACE, CONFLICTS)]
            names += [(table.namespace, table.name) for table in TABLES]
            for name in names:
                await here.create_table(*name, TableSpec())

    async def link(self, site: int) -> None:
        """As the procedure's first step does it."""
        here = self.backend(site)
        self.since[site] = await here.txn.now()
        mark = Mark(0, self.since[site])
        await here.put(NAMESPACE, CURSORS, IDS[1 - site].encode(), mark.encode(), None, 0)
        self.heal(site)

    def heal(self, site: int) -> None:
        """It takes over from the other one (again)."""
        if site not in self._pulls:
            self._pulls[site] = asyncio.get_running_loop().create_task(self._pull(site))

    async def cut(self, site: int) -> None:
        """It does not, from now on; whatever was under way ends where it is."""
        task = self._pulls.pop(site, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _pull(self, site: int) -> None:
        here, there = self.backend(site), self.backend(1 - site)
        while True:
            counts = self.counts[site]
            taker = Taker(here, IDS[site], IDS[1 - site], _longer, counts)
            pull = Pull(there, Link("other", TABLES), IDS[site], taker, counts)
            try:
                await pull.begin()
                while True:
                    await pull.step(1.0)
            except KvorumError:
                await asyncio.sleep(0.5)
            finally:
                await pull.close()

    async def close(self) -> None:
        for site in (0, 1):
            await self.cut(site)
        for cluster in self.clusters:
            await cluster.close()

    # ------------------------------------------------------------------ clients

    async def write(self, site: int) -> None:
        """One transaction of a client."""
        table = self.chance.choice([one.name for one in TABLES])
        key, number = self.chance.choice(KEYS), next(self._numbers)
        if table == "pairs":
            if site == 0:
                await self._both(str(number))
            return
        while True:
            session = await self.backend(site).begin(ttl_ms=5_000, isolation="snapshot")
            found = await session.get(NS, table, key.encode())
            old = None if found is None else found.value.decode()
            value, told = self._change(table, old, number)
            try:
                if value is not None:
                    await session.put(NS, table, key.encode(), value.encode())
                elif old is not None:
                    await session.delete(NS, table, key.encode())
                else:
                    return
                version = await session.commit()
            except RestartTxn:
                continue
            self.history.append(Written(site, table, key, told, version))
            return

    def _change(self, table: str, old: str | None, number: int) -> tuple[str | None, str | None]:
        """The new value, and what the history says of it."""
        match table:
            case "counter":
                by = self.chance.randint(-3, 5)
                return str(int(old or 0) + by), str(by)
            case "set":
                return json.dumps([*json.loads(old or "[]"), number]), str(number)
            case "joined":  # longer and longer, so that nothing is taken back
                value = "x" * (len(old or "") + 1) + f"-{number}"
                return value, value
            case _:
                value = None if self.chance.random() < 0.3 else str(number)
                return value, value

    async def _both(self, value: str) -> None:
        """A transaction over two keys, at one cluster alone: both are always the same."""
        session = await self.backend(0).begin(ttl_ms=5_000, isolation="snapshot")
        for key in (b"one", b"other"):
            await session.put(NS, "pairs", key, value.encode())
        with suppress(RestartTxn):
            await session.commit()

    async def look(self) -> None:
        """A reader at the other cluster."""
        keys = [TableKey(NS, "pairs", key) for key in (b"one", b"other")]
        found, _ = await self.backend(1).multi_get(keys, 0)
        values = [None if row is None else row.value for row in found]
        if values[0] != values[1]:
            self.torn.append(f"half a transaction: {values}")

    # ------------------------------------------------------------------ the checker

    async def rows(self, site: int, table: str) -> dict[str, str]:
        prefix = await self.backend(site).storage_prefix(NS, table)
        page = await self.backend(site).txn.scan(prefix, prefix + b"\xff", limit=1_000)
        return {key[4:].decode(): value.decode() for key, value, _ in page.items}

    async def complaints(self) -> list[str]:
        """What is not as it must be, once nothing is under way."""
        found = list(self.torn)
        for table in TABLES:
            both = [await self.rows(site, table.name) for site in (0, 1)]
            if table.rule == "counter":
                both = [{k: v for k, v in rows.items() if v != "0"} for rows in both]
            if both[0] != both[1]:
                found.append(f"{table.name}: {both[0]} and {both[1]}")
            found += [
                f"{table.name}.{key} at {site} is {rows.get(key)}: {why}"
                for site, rows in enumerate(both)
                for key in KEYS
                if table.name != "pairs"
                and (why := self._wrong(table.name, key, rows.get(key))) is not None
            ]
        return found

    def _wrong(self, table: str, key: str, value: str | None) -> str | None:
        writes = [one for one in self.history if (one.table, one.key) == (table, key)]
        match table:
            case "counter":
                total = self._counted(writes)
                return None if int(value or 0) == total else f"the sum is {total}"
            case "set":
                wanted = sorted(int(one.value or 0) for one in writes)
                return None if sorted(json.loads(value or "[]")) == wanted else f"{wanted}"
            case "last":
                counted = [one for one in writes if not self._before(one, writes)]
                last = max(counted, key=lambda one: (one.version, one.site), default=None)
                wrote = None if last is None else last.value
                return None if value == wrote else f"the last write was {last}"
            case _:
                return None

    def _counted(self, writes: list[Written]) -> int:
        """Of what was counted before the links the later one, and everything since."""
        total, later = 0, (0, 0, 0)
        for site, since in enumerate(self.since):
            mine = [one for one in writes if one.site == site]
            old = [one for one in mine if one.version <= since]
            total += sum(int(one.value or 0) for one in mine if one not in old)
            if old:
                counted = sum(int(one.value or 0) for one in old)
                later = max(later, (max(one.version for one in old), site, counted))
        return total + later[2]

    def _before(self, write: Written, writes: list[Written]) -> bool:
        """Whether it was replaced, or was a deletion, before its cluster had a link: the other one
        does not hear of it.
        """
        since = self.since[write.site]
        old = [one for one in writes if one.site == write.site and one.version <= since]
        return write in old and (write is not old[-1] or write.value is None)

    async def settled(self) -> list[str]:
        """The complaints that stay."""
        until = asyncio.get_running_loop().time() + END_S
        while found := await self.complaints():
            if asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(1)
        return found


async def _longer(row: Taken, here: Standing, nonce: str) -> Joined:
    """Of two values the longer one."""
    return Joined(max((here.value or b"", row.change.value or b""), key=lambda v: (len(v), v)))


async def story(
    pair: Pair,
    seconds: float,
    *,
    faults: bool,
    also: Callable[[], Awaitable[None]] | None = None,
) -> list[str]:
    """Clients write to both for a while, the way between them is cut and healed; what is wrong
    in the end.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds

    async def client(site: int) -> None:
        while loop.time() < until:
            await asyncio.sleep(pair.chance.random() * 0.2)
            await pair.write(site)
            await pair.look()

    async def nemesis() -> None:
        while loop.time() < until and faults:
            site = pair.chance.choice((0, 1))
            await asyncio.sleep(pair.chance.random() * 2)
            await pair.cut(site)
            await asyncio.sleep(pair.chance.random() * 3)
            pair.heal(site)

    async with asyncio.TaskGroup() as group:
        for site in (0, 0, 1, 1):
            group.create_task(client(site))
        group.create_task(nemesis())
    for site in (0, 1):
        pair.heal(site)
    if also is not None:
        await also()
    return await pair.settled()
