"""Two real clusters that take over from each other, while nodes of both are killed and the way
between them is cut: they come to the same rows, and no acknowledged write goes without a word.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

import kvorum
from kv.base.config import HTTP_OFFSET
from kvorum.api.site_links import SITE_LINK, SITE_ROLE
from kvorum.programs.localcluster import LocalCluster
from tests.kit.cables import CABLES_HOST, Cables
from tests.kit.clusters import Nodes
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll
from tests.processes.workload import MAYBE

TABLES: Final = ("last", "counter", "set")
KEYS: Final = ("a", "b", "c", "d")
CUT_S: Final = float(os.environ.get("SITES_CUT_S", "5"))  # `make drills`: a minute
SAME_S: Final = 90.0
CONFLICTS_MAX: Final = 10_000


@dataclass
class Key:
    """What was written to a key: acknowledged, and of unknown outcome."""

    acked: dict[str, int] = field(default_factory=dict)  # value → version
    maybe: set[str] = field(default_factory=set)


@dataclass
class Seen:
    """`told`: the values of all conflicts, of both clusters."""

    keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def key(self, table: str, key: str) -> Key:
        return self.keys.setdefault((table, key), Key())


def complaints(seen: Seen, ends: tuple[dict[str, str], dict[str, str]]) -> list[str]:
    """What must not be, of what both clusters have in the end ("table/key" → value). A value of
    `last` is "NUMBER<what its writer had seen"; of `counter` all add one; of `set` its number.
    """
    found = []
    if ends[0] != ends[1]:
        found.append(f"they differ: {ends[0]} and {ends[1]}")
    for (table, key), of in seen.keys.items():
        value = ends[0].get(f"{table}/{key}")
        match table:
            case "counter":
                count, least = int(value or 0), len(of.acked)
                if not least <= count <= least + len(of.maybe):
                    found.append(f"{table}/{key} is {value}, {least} were acknowledged")
            case "set":
                there = set(map(str, json.loads(value or "[]")))
                if not set(of.acked) <= there <= set(of.acked) | of.maybe:
                    found.append(f"{table}/{key} is {value}, acknowledged were {set(of.acked)}")
            case _:
                found += _of_last(f"{table}/{key}", of, value, seen.told)
    return found


def _of_last(name: str, of: Key, value: str | None, told: set[str]) -> list[str]:
    every = of.maybe | set(of.acked)
    if value not in every and of.acked:
        return [f"{name} is {value}, which nobody wrote"]
    newest = max(of.acked.values(), default=0)
    found = []
    if value in of.acked and of.acked[value] < newest:
        found.append(f"{name} is {value}, which is not the last one")
    replaced = {one.partition("<")[2] for one in every}
    names = {one.partition("<")[0] for one in told}
    for one in of.acked:
        number = one.partition("<")[0]
        if one != value and number not in replaced and number not in names:
            found.append(f"{name}: {one} is gone, and no conflict tells of it")
    return found


def test_r3_the_checker_of_two_clusters() -> None:
    """It would find nothing wrong with anything."""
    seen = Seen()
    seen.key("last", "a").acked |= {"1<": 10, "2<1": 20, "3<1": 30}
    seen.key("counter", "a").acked |= {"4": 11, "5": 12}
    seen.key("set", "a").acked |= {"6": 13}
    good = {"last/a": "3<1", "counter/a": "2", "set/a": "[6]"}
    assert complaints(seen, (good, good)) == ["last/a: 2<1 is gone, and no conflict tells of it"]
    seen.told.add("2<1")
    assert not complaints(seen, (good, dict(good)))
    for bad in ({"last/a": "2<1"}, {"last/a": "9<"}, {"counter/a": "1"}, {"set/a": "[]"}):
        assert complaints(seen, (good | bad, good | bad)), bad
        assert complaints(seen, (good, good | bad)), bad


class Site(Nodes):
    """A cluster of one node, which everybody but the clients of a test reaches by cables."""

    def __init__(self, directory: Path, sites: Path) -> None:
        self.local = LocalCluster.create(directory, 1, free_port_base(2))
        self.base = self.local.node(1).base
        self.audit = directory.with_suffix(".audit")
        self.options = ("--advertise", CABLES_HOST, "--sites-file", str(sites))
        self.options += ("--audit", str(self.audit))
        self.cables = Cables({1: self.base})

    @property
    def linked(self) -> str:
        return f"kvorum://{CABLES_HOST}:{self.base}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.base + HTTP_OFFSET}"

    def in_sync(self) -> bool:
        with kvorum.connect(self.url) as db:
            return any(link["does"] == "in sync" for link in db.sites())

    def cut(self, number: int, *others: int) -> None:
        """Nobody reaches it, but over HTTP."""
        self.cables.cut((0, 1), (1, 0))


@contextmanager
def two(directory: Path) -> Iterator[list[Site]]:
    """Two clusters in sync; taken down whatever happens."""
    files = [directory / f"sites-{number}.toml" for number in (0, 1)]
    sites = [Site(directory / f"c{number}", file) for number, file in enumerate(files)]
    for number, file in enumerate(files):
        file.write_text(f'[other]\nurl = "{sites[1 - number].linked}"\n')
    with sites[0].cables, sites[1].cables:
        try:
            for site in sites:
                site.start()
            for site in sites:
                with kvorum.connect(site.url) as db:
                    for name in TABLES:
                        db.create_table("default", name)
            tables = [{"table": ["default", name], "rule": name} for name in TABLES]
            for site in sites:
                with kvorum.connect(site.url) as db:
                    db.submit(SITE_LINK, {"site": "other", "tables": tables})
            for site in sites:
                poll(site.in_sync)
            yield sites
        finally:
            for site in sites:
                site.local.down(within_s=10)


async def write(
    db: kvorum.AsyncDatabase, numbers: Iterator[int], seen: Seen, chance: float
) -> None:
    """One write of a client."""
    number = next(numbers)
    table, key = TABLES[number % len(TABLES)], KEYS[int(chance * len(KEYS))]
    of = seen.key(table, key)
    rows = db.table("default", table)
    try:
        row = await rows.get(key)
    except MAYBE:
        return
    old = "" if row is None else row.value.decode()
    told, value = str(number), f"{number}<{old.partition('<')[0]}"
    match table:
        case "counter":
            value = str(int(old or 0) + 1)
        case "set":
            value = json.dumps([*json.loads(old or "[]"), number])
        case _:
            told = value
    of.maybe.add(told)
    try:
        if row is None:
            version = await rows.put(key, value, if_absent=True)
        else:
            version = await rows.put(key, value, if_version=row.version)
    except kvorum.ConditionFailed:
        of.maybe.discard(told)
        return
    except MAYBE:
        return
    of.maybe.discard(told)
    of.acked[told] = version


async def content(db: kvorum.AsyncDatabase) -> dict[str, str]:
    return {
        f"{name}/{row.key.decode()}": row.value.decode()
        for name in TABLES
        async for row in db.table("default", name).rows()
    }


async def same(one: kvorum.AsyncDatabase, other: kvorum.AsyncDatabase) -> None:
    """Wait until both have the same rows, and what each took over is told."""
    until = time.monotonic() + SAME_S
    while time.monotonic() < until:
        if await content(one) == await content(other):
            return
        await asyncio.sleep(0.5)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(240 + 8 * CUT_S)
def test_r3_two_clusters_in_sync_are_cut_and_killed(tmp_path: Path) -> None:
    """A cut or a kill would leave two truths, or a write that is gone without a word."""
    seen, numbers, chance = Seen(), itertools.count(1), random.Random(7)

    async def main(sites: list[Site]) -> None:
        stop = asyncio.Event()

        async def client(site: Site) -> None:
            async with await kvorum.aconnect(site.url) as db:
                while not stop.is_set():
                    await write(db, numbers, seen, chance.random())
                    await asyncio.sleep(CUT_S / 250)  # fewer conflicts than are listed at once

        async def faults() -> None:
            try:
                await asyncio.sleep(3)
                for round_ in range(2):
                    for number, site in enumerate(sites):
                        site.cut(1)
                        await asyncio.sleep(CUT_S)
                        other = sites[1 - number] if round_ else site
                        await asyncio.to_thread(other.kill, 1)
                        await asyncio.to_thread(other.start, 1)
                        site.cables.heal()
                        await asyncio.sleep(3)
            finally:
                stop.set()

        async with asyncio.TaskGroup() as group:
            for site in (*sites, *sites):
                group.create_task(client(site))
            group.create_task(faults())
        async with (
            await kvorum.aconnect(sites[0].url) as one,
            await kvorum.aconnect(sites[1].url) as other,
        ):
            await same(one, other)
            for db in (one, other):
                told = await db.site_conflicts(limit=CONFLICTS_MAX)
                assert len(told) < CONFLICTS_MAX, "there are more, which nobody would look at"
                sides = [side for row in told for side in (row["here"], row["there"])]
                seen.told |= {side["value"] for side in sides if side["value"] is not None}
            ends = (await content(one), await content(other))
            assert not complaints(seen, ends)

    with two(tmp_path) as sites:
        asyncio.run(main(sites))
        acked = sum(len(of.acked) for of in seen.keys.values())
        assert acked > 200, f"hardly anything was written: {acked}"
        assert seen.told, "no two writes met"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_r3_a_lost_site_and_the_way_back(tmp_path: Path) -> None:
    """Fail-over would need more than one command, or what the lost site had not sent be gone."""
    with two(tmp_path) as (main, standby):

        def role(site: Site, role: str) -> None:
            with kvorum.connect(site.url) as db:
                db.wait(db.submit(SITE_ROLE, {"site": "other", "role": role}), timeout_ms=60_000)

        def put(site: Site, key: str, value: str) -> None:
            with kvorum.connect(site.url) as db:
                db.table("default", "last").put(key, value)

        def seen(site: Site, key: str, value: bytes) -> None:
            until = time.monotonic() + SAME_S
            with kvorum.connect(site.url) as db:
                while (row := db.table("default", "last").get(key)) is None or row.value != value:
                    assert time.monotonic() < until, f"{key} of {row}: {db.sites()}"
                    time.sleep(0.2)

        put(main, "before", "of main")
        seen(standby, "before", b"of main")
        role(standby, "standby")
        with pytest.raises(kvorum.KvorumError, match="stand-by"):
            put(standby, "k", "refused")
        standby.cut(1)
        main.cut(1)
        put(main, "late", "not sent")
        main.kill(1)
        role(standby, "active")
        assert SITE_ROLE in standby.audit.read_text(), "nobody knows who failed over"
        put(standby, "before", "of the stand-by")
        main.start(1)
        main.cables.heal()
        standby.cables.heal()
        role(main, "standby")
        seen(standby, "late", b"not sent")
        seen(main, "before", b"of the stand-by")
        role(standby, "standby")
        role(main, "active")
        put(main, "back", "of main")
        seen(standby, "back", b"of main")
