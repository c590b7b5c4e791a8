"""Transactions with parts in every partition are seen whole by scans, multi-gets and watches, while
the partitions are split, merged and led by others in turn (D14, F13, F14).

Each transaction writes its number to all KEYS; so whoever sees two numbers at once saw a part of
one, and whoever sees a lower number than before went back.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.ids import META_PARTITION
from kv.base.methods import SCAN
from kv.partition.machine import PartitionMachine
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.loop import SimLoop, run
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.splits import Bank, submit

TABLE = ("default", "bank")
KEYS = ("a", "f", "k", "p", "u", "z")
CUTS = ("g", "q")
ROUNDS = 1


class Sets:
    """One writer, whose transactions follow one another; the master's orders."""

    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self.cluster = cluster
        self.bank = Bank(cluster, seed)  # to hand in procedures
        self.chance = random.Random(seed)
        self.committed: list[tuple[int, int]] = []  # (version, number)
        self.parts: list[int] = []  # the table's partitions, in key order
        self.reads: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def db(self) -> AsyncDatabase:
        return self.bank.db()

    async def write(self) -> None:
        """The next transaction, until it is known to have happened."""
        number = len(self.committed) + 1
        while True:
            t = await self.db().transaction()
            try:
                for key in KEYS:
                    await t.table(*TABLE).put(key, str(number))
                version = await t.commit()
            except UnknownOutcome as error:
                raise AssertionError("no node failed") from error
            except KvorumError:
                continue
            self.committed.append((version, number))
            return

    async def writes(self) -> None:
        while True:
            await self.write()
            await asyncio.sleep(self.chance.random() * 0.03)  # some follow one another at once

    async def read(self) -> None:
        """One look at a snapshot: whole, and not older than what was acknowledged before."""
        least = self.committed[-1][1]
        kind = self.chance.choice(("multi-get", "scan", "pages", "reverse"))
        table = self.db().table(*TABLE)
        if kind == "multi-get":
            found = await table.multi_get(KEYS)
            rows = [(key.encode(), row.value) for key, row in zip(KEYS, found, strict=True) if row]
        elif kind == "pages":
            rows, cursor = [], None
            while True:
                page = await table.scan(limit=2, cursor=cursor)
                rows += [(row.key, row.value) for row in page.items]
                if (cursor := page.cursor) is None:
                    break
        else:
            page = await table.scan(reverse=kind == "reverse")
            items = page.items[::-1] if kind == "reverse" else page.items
            rows = [(row.key, row.value) for row in items]
        assert [key for key, _ in rows] == [key.encode() for key in KEYS], (kind, rows)
        assert len({value for _, value in rows}) == 1, (kind, rows)
        assert int(rows[0][1]) >= least, (kind, rows, least)
        self.reads[kind] += 1

    async def looks(self) -> None:
        while True:
            await self.read()
            await asyncio.sleep(self.chance.random() * 0.04)

    async def order(self, name: str, args: dict[str, Any]) -> Any:
        info = await submit(self.bank, name, args)
        self.done[f"{name} {info.state}"] += 1
        return info

    async def reshape(self) -> None:
        """Cut in four, move leaders about, and put together again."""
        for cut in CUTS:
            args = {"partition": self.parts[-1], "at": cut}
            info = await self.order("kvorum.split_partition", args)
            assert info.state == "SUCCESS", info
            self.parts.append(info.result["new"])
            await self.move_leader()
        for _ in CUTS:
            await self.move_leader()
            left, right = self.parts[:2]
            info = await self.order("kvorum.merge_partitions", {"left": left, "right": right})
            assert info.state == "SUCCESS", info
            self.parts.remove(right)

    async def move_leader(self) -> None:
        await asyncio.sleep(0.1)
        args = {"partition": self.chance.choice(self.parts), "to": self.chance.randint(1, 3)}
        await self.order("kvorum.transfer_leader", args)
        await asyncio.sleep(0.1)


@asynccontextmanager
async def working(work: list[Awaitable[None]]) -> AsyncIterator[None]:
    """Beside the body; whatever one of them finds ends it."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.wait(tasks)


def scene(seed: int, main: Callable[[Sets], Awaitable[None]]) -> None:
    async def whole(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed)
        await cluster.start()
        sets = Sets(cluster, seed)
        await sets.db().create_table(*TABLE)
        sets.parts = [row["id"] for row in await sets.db().partitions() if row["id"] != 1]
        await sets.write()
        await main(sets)
        await cluster.close()

    run(whole, seed)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(2))
def test_d14_scans_and_multi_gets_see_whole_transactions_while_partitions_change(
    seed: int,
) -> None:
    """A snapshot that lies over a border would be of two moments, one for each side."""

    async def main(sets: Sets) -> None:
        async with working([sets.writes(), *(sets.looks() for _ in range(3))]):
            for _ in range(ROUNDS):
                await sets.reshape()
        assert sets.done["kvorum.split_partition SUCCESS"] == ROUNDS * len(CUTS)
        assert sets.done["kvorum.merge_partitions SUCCESS"] == ROUNDS * len(CUTS)
        assert sets.done["kvorum.transfer_leader SUCCESS"] >= ROUNDS
        assert min(sets.reads.values()) > 10
        assert len(sets.reads) == 4
        assert len(sets.committed) > 20

    scene(seed, main)


class Watcher:
    """Follows the table from a version on; `rest_s`: lets go now and then, for so long."""

    def __init__(self, sets: Sets, rest_s: float) -> None:
        self.sets, self.rest_s = sets, rest_s
        self.after = sets.committed[0][0]
        self.seen: list[tuple[int, dict[bytes, bytes | None]]] = []
        self.rests = 0

    async def watch(self) -> None:
        while True:
            db, many = self.sets.db(), self.sets.chance.randint(1, 8)
            async with db.watch(*TABLE, from_version=self.after) as events:
                async for event in events:
                    assert event.last, "such small ones have one part"
                    changes = {change.key: change.value for change in event.changes}
                    self.seen.append((event.version, changes))
                    self.after = event.version
                    many -= 1
                    if self.rest_s and many <= 0:
                        break
            self.rests += 1
            await asyncio.sleep(self.rest_s)

    def check(self) -> None:
        """All of it was told, whole, once, in commit order."""
        told = [(version, int(next(iter(c.values())) or 0)) for version, c in self.seen]
        assert told == self.sets.committed[1:]
        for version, changes in self.seen:
            assert sorted(changes) == [key.encode() for key in KEYS], (version, changes)
            assert len(set(changes.values())) == 1, (version, changes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_f14_f13_watches_tell_whole_transactions_while_partitions_change(seed: int) -> None:
    """A watcher would get one side of a transaction, one twice, or none; one that rests would hold
    up whoever writes.
    """

    async def main(sets: Sets) -> None:
        watchers = [Watcher(sets, rest_s) for rest_s in (0, 0.05, 0.6)]
        async with working([*(one.watch() for one in watchers)]):
            async with working([sets.writes()]):
                for _ in range(ROUNDS):
                    before = len(sets.committed)
                    await sets.reshape()
                    assert len(sets.committed) > before + 10, "commits go on"
            last = sets.committed[-1][0]
            for one in watchers:
                one.rest_s = 0
            async with asyncio.timeout(30):
                while any(one.after < last for one in watchers):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
        for one in watchers:
            one.check()
        assert watchers[1].rests > 1
        assert watchers[2].rests > 1

    scene(seed, main)


def test_a6_a_scan_gives_byte_order_over_partitions_and_asks_only_those_it_meets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions by hash would be asked all for every range, and their rows be sorted by whoever
    asks; a border in the wrong place would lose rows, or bring them twice.
    """
    asked: list[int] = []
    submit_ = PartitionMachine.submit

    def noted(self: PartitionMachine, conn: Any, request: list[Any]) -> None:
        if request[1] == SCAN and self.descriptor.id != META_PARTITION:  # nodes scan that one
            asked.append(self.descriptor.id)
        submit_(self, conn, request)

    async def main(sets: Sets) -> None:
        db = sets.db()
        table = db.table(*TABLE)
        chance = random.Random(6)
        keys = {bytes(chance.choices(b"\x00\x01a~\x7f\x80\xfe\xff", k=n)) for n in (1, 2, 3) * 60}
        keys |= {key.encode() for key in KEYS}
        for key in sorted(keys, key=lambda _: chance.random()):
            await table.put(key, b"v")
        (whole,) = sets.parts
        cuts = [b"\x01", b"a", b"a\x80", b"\x7f\xff", b"\xfe"]
        last = whole
        ids = [whole]
        for cut in cuts:
            args = {"partition": last, "at": cut}
            last = (await sets.order("kvorum.split_partition", args)).result["new"]
            ids.append(last)
        borders = [b"", *cuts, None]
        monkeypatch.setattr(PartitionMachine, "submit", noted)
        for start, end, met in (
            (b"\x01\xff", b"a\xff", ids[1:4]),  # three of them
            (b"a", b"a\x80", ids[2:3]),  # exactly one, border to border
            (b"a\x80\x00", b"\x80", ids[3:5]),
            (b"", None, ids),
        ):
            wanted = sorted(k for k in keys if k >= start and (end is None or k < end))
            assert wanted
            for reverse in (False, True):
                asked.clear()
                found = await _all(table, start, end, reverse=reverse)
                assert found == (wanted[::-1] if reverse else wanted)
                assert set(asked) == set(met), (start, end, borders)
        for left, right in ((ids[0], ids[1]), (ids[0], ids[2])):
            await sets.order("kvorum.merge_partitions", {"left": left, "right": right})
        asked.clear()
        assert await _all(table, b"\x00", b"a\x80") == sorted(
            k for k in keys if b"\x00" <= k < b"a\x80"
        )
        assert set(asked) == {ids[0]}, "what was merged is asked as one"
        assert sets.done["kvorum.merge_partitions SUCCESS"] == 2
        assert sets.done["kvorum.split_partition SUCCESS"] == len(cuts)

    scene(1, main)


async def _all(
    table: Any, start: bytes, end: bytes | None, *, reverse: bool = False
) -> list[bytes]:
    """The keys of a range, page by page."""
    found: list[bytes] = []
    cursor = None
    while True:
        page = await table.scan(start=start, end=end, reverse=reverse, limit=50, cursor=cursor)
        found += [row.key for row in page.items]
        if (cursor := page.cursor) is None:
            return found
