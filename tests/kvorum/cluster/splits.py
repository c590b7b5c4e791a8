"""A bank in a simulated cluster whose partitions are split and merged while it works: transfers,
audits at one snapshot, a plain counter a key, a watcher of everything; and what must hold.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import kvorum
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, UnknownOutcome
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster

ACCOUNTS = 24
START = 100
TABLE = ("default", "bank")


def account(i: int) -> str:
    return f"a{i:02d}"


class Bank:
    """Clients that use whichever node lives."""

    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.acknowledged: dict[str, int] = {}  # counters: the last value that was acknowledged
        self.sent: dict[str, int] = {}
        self.transfers = self.audits = self.refused = 0
        self.seen: list[tuple[int, dict[bytes, bytes | None]]] = []  # by the watcher
        self.errors: list[BaseException] = []
        self.waited_s: list[float] = []
        self.done: Counter[str] = Counter()
        self.stop = asyncio.Event()

    def db(self) -> AsyncDatabase:
        if not self.cluster.nodes:
            raise kvorum.Unavailable("no node is up")
        node = self.cluster.nodes[self.chance.choice(sorted(self.cluster.nodes))]
        if getattr(node, "backend", None) is None:
            raise kvorum.Unavailable("the node is not up")
        return AsyncDatabase(node.backend, self.cluster._rng)

    async def fill(self) -> None:
        db = self.db()
        await db.create_table(*TABLE)
        async with db.transaction() as t:
            for i in range(ACCOUNTS):
                await t.table(*TABLE).put(account(i), str(START))

    async def transfers_(self) -> None:
        while not self.stop.is_set():
            n = self.chance.choice((2, 2, 3, 6))
            ids = [account(i) for i in self.chance.sample(range(ACCOUNTS), n)]

            async def move(t: Any, ids: list[str] = ids) -> None:
                table = t.table(*TABLE)
                rows = [await table.get(key) for key in ids]
                values = [int(row.value) for row in rows]
                amount = self.chance.randint(1, 5)
                await table.put(ids[0], str(values[0] - amount * (len(ids) - 1)))
                for key, value in zip(ids[1:], values[1:], strict=True):
                    await table.put(key, str(value + amount))

            isolation = self.chance.choice(("snapshot", "serializable"))
            await self._try(self._run(move, isolation))
            await asyncio.sleep(self.chance.random() * 0.05)

    async def _run(self, move: Callable[[Any], Any], isolation: str) -> None:
        await self.db().run(move, isolation=isolation)
        self.transfers += 1

    async def audits_(self) -> None:
        while not self.stop.is_set():
            await self._try(self._audit())
            await asyncio.sleep(self.chance.random() * 0.1)

    async def _audit(self) -> None:
        db = self.db()
        table = db.table(*TABLE)
        if self.chance.random() < 0.5:
            rows = []
            cursor = None
            while True:
                page = await table.scan(prefix="a", limit=5, cursor=cursor)
                rows += [(r.key, r.value) for r in page.items if b"-" not in r.key]
                if (cursor := page.cursor) is None:
                    break
        else:
            found = await table.multi_get([account(i) for i in range(ACCOUNTS)])
            rows = [(account(i).encode(), r.value) for i, r in enumerate(found) if r]
        keys = [key for key, _ in rows]
        assert keys == [account(i).encode() for i in range(ACCOUNTS)], f"keys {keys}"
        assert sum(int(value) for _, value in rows) == START * ACCOUNTS, rows
        self.audits += 1

    async def counters_(self, name: str) -> None:
        number = 0
        while not self.stop.is_set():
            await asyncio.sleep(self.chance.random() * 0.03)
            key = f"{self.chance.choice('agmsz')}-{name}"
            number += 1
            self.sent[key] = number
            began = self.cluster.loop.time()
            if await self._try(self._put(key, number)):
                self.acknowledged[key] = number
                self.waited_s.append(self.cluster.loop.time() - began)

    async def _put(self, key: str, number: int) -> None:
        await self.db().table(*TABLE).put(key, str(number))

    async def _try(self, work: Any) -> bool:
        try:
            await work
        except UnknownOutcome:
            return False
        except KvorumError:
            self.refused += 1
            return False
        return True

    async def watch_(self) -> None:
        after = 0  # everything up to there was told wholly
        while True:
            self.seen = [one for one in self.seen if one[0] <= after]
            try:
                async for event in self.db().watch(*TABLE, from_version=after):
                    changes = {change.key: change.value for change in event.changes}
                    if self.seen and self.seen[-1][0] == event.version:
                        self.seen[-1][1].update(changes)
                    else:
                        self.seen.append((event.version, changes))
                    if event.last:
                        after = event.version
            except KvorumError:
                await asyncio.sleep(0.1)

    async def check(self) -> None:
        """When all is quiet: nothing acknowledged is lost, and the watcher has seen it all."""
        async with asyncio.timeout(60):
            await self._audit()
        table = self.db().table(*TABLE)
        rows = {r.key: r for r in (await table.scan()).items}
        for key, number in self.acknowledged.items():
            value = int(rows[key.encode()].value)
            assert number <= value <= self.sent[key], (key, number, value)
        last = max(r.version for r in rows.values())
        async with asyncio.timeout(60):
            while not self.seen or self.seen[-1][0] < last:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        versions = [version for version, _ in self.seen]
        assert versions == sorted(set(versions)), "the feed is not in commit order"
        state: dict[bytes, bytes | None] = {}
        for _, changes in self.seen:
            state.update(changes)
            balances = [int(v) for k, v in state.items() if k.startswith(b"a") and b"-" not in k]
            if len(balances) == ACCOUNTS:
                assert sum(b for b in balances) == START * ACCOUNTS, "the feed cut a transaction"
        assert state == {key: row.value for key, row in rows.items()}

    def led_at(self, start: bytes) -> PartitionDescriptor:
        """The partition that begins there, at its leader."""
        return next(
            replica.descriptor
            for node in self.cluster.nodes.values()
            for replica in node.store.manager.replicas()
            if replica.leads() and replica.descriptor.start == start
        )

    def ranges(self) -> list[tuple[bytes, bytes]]:
        """What the partitions of the table are, by the nodes that lead them; they must cover it."""
        found: dict[bytes, bytes] = {}
        for node in self.cluster.nodes.values():
            for replica in node.store.manager.replicas():
                if replica.leads() and replica.descriptor.id != 1:
                    found[replica.descriptor.start] = replica.descriptor.end
        return sorted(found.items())


async def everybody_follows(bank: Bank) -> None:
    """Each node has a replica of each partition, none else, and all are equal."""
    async with asyncio.timeout(120):
        while True:
            found = [
                [(d.id, d.start, d.end, d.epoch) for d in node.store.manager.descriptors()]
                for node in bank.cluster.nodes.values()
            ]
            if all(one == found[0] for one in found) and len(found) == bank.cluster.count:
                break
            await asyncio.sleep(0.5)
    ends = [end for _, _, end, _ in found[0][1:]]
    starts = [start for _, start, _, _ in found[0][1:]]
    assert ends[:-1] == starts[1:], "the table has holes"


async def submit(bank: Bank, name: str, args: dict[str, Any]) -> Any:
    """Run a procedure to its end, whoever is master."""
    nonce = f"{name}-{bank.chance.random()}"
    while True:
        try:
            db = bank.db()
            id_ = await db.submit(name, args, nonce=nonce)
            while True:
                info = await bank.db().procedure(id_, wait_ms=1_000)
                if info.state in ("SUCCESS", "FAILED", "ROLLED_BACK"):
                    return info
        except KvorumError:
            await asyncio.sleep(0.2)


def scene(
    main: Callable[[Bank], Any],
    *,
    seed: int = 0,
    nodes: int = 3,
    calm: bool = False,
    make: type[SimCluster] = SimCluster,
) -> None:
    """A started cluster with a filled bank, in virtual time. `calm`: with few clients."""

    async def whole(loop: SimLoop) -> None:
        cluster = make(loop, seed, nodes)
        await cluster.start()
        bank = Bank(cluster, seed)
        await bank.fill()
        work = [
            asyncio.create_task(one)
            for one in (
                *(bank.transfers_() for _ in range(1 if calm else 3)),
                *(bank.audits_() for _ in range(1 if calm else 2)),
                *(bank.counters_(name) for name in "xy"),
                bank.watch_(),
            )
        ]
        try:
            await main(bank)
            bank.stop.set()
            await asyncio.wait(work[:-1], timeout=60)
            for task in work:
                if task.done():
                    task.result()
            await bank.check()
        finally:
            for task in work:
                task.cancel()
            await asyncio.wait(work)
        await cluster.close()

    run(whole, seed)
