"""Witnesses and lost sites with real processes: what is on the disk, and what an operator types."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import kvorum
from kvorum.programs.localcluster import LocalCluster
from tests.kit.clusters import MODULES, Nodes
from tests.kit.commands import run
from tests.kit.machine import free_port_base
from tests.processes.workload import Seen, check, load, prepare

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(150)]

WHY = "the main site burnt down"
PARTITION_BYTES_MAX = 64 << 10
ROCKS_BYTES = 512 << 10  # what two empty databases write about themselves


class Sites(Nodes):
    """Nodes 1 and 2 keep data, node 3 is a witness."""

    def __init__(self, directory: Path) -> None:
        self.local = LocalCluster.create(directory, 3, free_port_base(4), 1)
        self.options = MODULES


def payload(directory: Path) -> int:
    """Bytes of a node's databases, without what RocksDB logs about itself."""
    return sum(
        file.stat().st_size
        for file in directory.rglob("*")
        if file.is_file() and file.name not in ("LOG",) and not file.name.startswith("LOG.old")
    )


def command(nodes: Nodes, *words: str) -> tuple[int, Any]:
    """A command of the operator; its exit code and its JSON."""
    secret = (nodes.local.directory / "secret").read_text().strip()
    ended = run(*words, "--json", code=None, env={"KVORUM_CLUSTER_SECRET": secret})
    return ended.code, ended.json


def read_at(nodes: Nodes, number: int) -> bytes | None:
    """What a client of one node is told; None: nothing."""
    try:
        with kvorum.connect(f"kvorum://{nodes.local.node(number).address}") as db:
            row = db.table("default", "t").get("k0")
            return None if row is None else row.value
    except kvorum.KvorumError:
        return None


def test_f15_a_witness_stays_small_while_data_nodes_are_killed(tmp_path: Path) -> None:
    """The third vote is cheap only if it needs no disk; no acknowledged write may hang on it."""
    nodes, seen = Sites(tmp_path / "cluster"), Seen()
    try:
        nodes.start()
        prepare(nodes.url)
        with kvorum.connect(nodes.url) as db:
            for i in range(64):
                db.table("default", "k").put(f"m-large-{i}", os.urandom(64 << 10))

        async def loaded() -> None:
            async with load(nodes.url, seen):
                for victim in (1, 2):
                    await asyncio.sleep(1)
                    await asyncio.to_thread(nodes.kill, victim)
                    await asyncio.sleep(2.5)
                    await asyncio.to_thread(nodes.start, victim)
                    await asyncio.to_thread(nodes.wait_caught_up, lag_max=300)
                await asyncio.sleep(0.5)

        asyncio.run(loaded())
        assert len(seen.puts) > 50, "hardly anything was written"
        assert seen.gap_s < 10, f"no write was acknowledged for {seen.gap_s:.1f} s"
        assert not seen.went_back
        with kvorum.connect(nodes.url) as db:
            check(db, seen)
            members, partitions = db.nodes(), db.partitions()
        assert [row["witness"] for row in members] == [False, False, True]
        assert members[2]["leaders"] == 0
        sizes = {n: payload(nodes.local.data(n)) for n in (1, 2, 3)}
        assert sizes[1] > 4 << 20
        assert sizes[3] < ROCKS_BYTES + PARTITION_BYTES_MAX * len(partitions), sizes
        code, told = command(nodes, "cluster", "status", "--data", str(nodes.local.directory))
        assert code == 0
        assert told["members"][2]["witness"]
        assert all(row["witnesses"] == [3] for row in told["partitions"])
    finally:
        nodes.local.down(within_s=10)


def test_f18_the_standby_goes_on_and_the_main_site_ends(tmp_path: Path) -> None:
    """Main site: a node with data and the witness. The standby must be able to go on, on an
    operator's word; the main site, back again, must neither commit nor serve, and end.
    """
    nodes = Sites(tmp_path / "cluster")
    try:
        nodes.start()
        with kvorum.connect(nodes.url) as db:
            db.create_table("default", "t")
            for i in range(20):
                db.table("default", "t").put(f"k{i}", "before")
        nodes.wait_caught_up(lag_max=300)
        standby = nodes.local.node(2)
        order = ("node", "force-members", "--connect", standby.address)
        order += ("--voters", "2", "--reason", WHY)
        code, told = command(nodes, *order, "--yes")
        assert code == 1
        assert told["error"]["code"] == "NODE_LIVES"
        nodes.kill(3)
        nodes.pause(1)
        time.sleep(1)
        code, told = command(nodes, *order)
        assert (code, told["executed"]) == (0, False), told
        assert {row["action"] for row in told["items"]} == {"force"}
        code, told = command(nodes, *order, "--yes")
        assert (code, told["executed"]) == (0, True), told
        with kvorum.connect(f"kvorum://{standby.address}") as db:
            db.table("default", "t").put("k0", "after")
            rows = {row.key: row.value for row in db.table("default", "t").rows()}
        assert len(rows) == 20
        assert rows[b"k0"] == b"after"
        main = nodes.local.node(1).process()
        assert main is not None
        nodes.resume(1)
        assert read_at(nodes, 1) in (None, b"after"), "the old side served what it had"
        psutil.wait_procs([main], timeout=20)
        assert nodes.local.node(1).state() == "dead", nodes.local.tail(1)
        assert WHY in nodes.local.tail(1, 30)
        nodes.local.start(3)
        witness = nodes.local.node(3).process()
        assert witness is not None
        psutil.wait_procs([witness], timeout=20)
        assert nodes.local.node(3).state() == "dead", "the old witness still votes"
        assert WHY in nodes.local.tail(3, 30)
        code, told = command(nodes, "node", "history", "--connect", standby.address)
        assert code == 0
        (told,) = told["items"]
        assert (told["node"], told["voters"], told["given_up"]) == (2, [2], [1, 3])
        assert told["reason"] == WHY
    finally:
        if nodes.local.node(1).state() == "paused":
            nodes.resume(1)
        nodes.local.down(within_s=10)
