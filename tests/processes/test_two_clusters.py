"""Two real clusters that take over from each other, while nodes of both are killed and the way
between them is cut: they come to the same rows, and no acknowledged write goes without a word.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

import kvorum
from kv.base.adapters import SeededRng, SystemClock
from kv.base.config import HTTP_OFFSET
from kvorum.api.site_links import SITE_LINK, SITE_ROLE
from kvorum.programs.localcluster import LocalCluster
from kvorum.verify.catalog import judge
from kvorum.verify.history import History
from kvorum.verify.run_workload import Run, Settings
from kvorum.verify.workloads.sites import OTHER, Sites
from tests.kit.cables import CABLES_HOST, Cables
from tests.kit.clusters import Nodes
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll

CUT_S: Final = float(os.environ.get("SITES_CUT_S", "5"))  # `make drills`: a minute
SAME_S: Final = 90.0


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
    """Two clusters, each of which knows where the other is; taken down whatever happens."""
    files = [directory / f"sites-{number}.toml" for number in (0, 1)]
    sites = [Site(directory / f"c{number}", file) for number, file in enumerate(files)]
    for number, file in enumerate(files):
        file.write_text(f'[{OTHER}]\nurl = "{sites[1 - number].linked}"\n')
    with sites[0].cables, sites[1].cables:
        try:
            for site in sites:
                site.start()
            yield sites
        finally:
            for site in sites:
                site.local.down(within_s=10)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(240 + 8 * CUT_S)
def test_r3_two_clusters_in_sync_are_cut_and_killed(tmp_path: Path) -> None:
    """A cut or a kill would leave two truths, or a write that is gone without a word."""

    async def main(sites: list[Site], stack: AsyncExitStack) -> History:
        async def opened(site: Site) -> kvorum.AsyncDatabase:
            return await stack.enter_async_context(await kvorum.aconnect(site.url))

        databases = [await opened(site) for site in (*sites, *sites)]
        clock = SystemClock()
        settings = Settings(table="t", clients=len(databases), seed=7, final_s=SAME_S)
        run = Run(Sites(), settings, databases, monotonic=clock.monotonic, rng=SeededRng)
        await run.prepare()
        stop = asyncio.Event()

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
            group.create_task(run.load(stop))
            group.create_task(faults())
        await run.final()
        return run.history

    async def played(sites: list[Site]) -> History:
        async with AsyncExitStack() as stack:
            return await main(sites, stack)

    with two(tmp_path) as sites:
        history = asyncio.run(played(sites))
    assert not judge(history)
    acknowledged = [o for o in history.operations("write") if o.acknowledged]
    assert len(acknowledged) > 200, "hardly anything was written"
    assert history.operations("final-conflicts")[-1].result, "no two writes met"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_r3_a_lost_site_and_the_way_back(tmp_path: Path) -> None:
    """Fail-over would need more than one command, or what the lost site had not sent be gone."""
    with two(tmp_path) as (main, standby):
        for site in (main, standby):
            with kvorum.connect(site.url) as db:
                db.create_table("default", "last")
        for site in (main, standby):
            with kvorum.connect(site.url) as db:
                linked = [{"table": ["default", "last"], "rule": "last"}]
                db.submit(SITE_LINK, {"site": OTHER, "tables": linked})
        for site in (main, standby):
            poll(site.in_sync)

        def role(site: Site, role: str) -> None:
            with kvorum.connect(site.url) as db:
                db.wait(db.submit(SITE_ROLE, {"site": OTHER, "role": role}), timeout_ms=60_000)

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
