"""The oracle and the procedures of real processes: killed, and put to sleep."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.config import split_address
from kv.base.errors import KvorumError, NotLeader
from kv.base.methods import TSO
from kv.client.client import connect
from tests.kit.clusters import Nodes, cluster
from tests.kvorum.cluster.cluster_procedures import STEPS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STEP_MS = 300
RESUME_S = 2.0


def test_e2_a_master_that_slept_hands_out_nothing_old(tmp_path: Path) -> None:
    """A request that waited in the socket of a sleeping master is answered when it wakes, before it
    hears of its successor: a timestamp then would be older than ones that were used long since.
    """

    async def asked_while_asleep(nodes: Nodes, old: int) -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        address = split_address(nodes.local.node(old).address)
        others = [split_address(n.address) for n in nodes.local.nodes if n.id != old]
        sleeper = await connect([address], timers=timers, rng=SystemRng())
        living = await connect(others, timers=timers, rng=SystemRng())
        try:
            (before,) = await sleeper.call_at(address, TSO, 1)
            nodes.pause(old)
            (known,) = await living.call_node(TSO, 1, budget_ms=20_000)
            assert known > before
            asked = asyncio.create_task(sleeper.call_at(address, TSO, 1, budget_ms=20_000))
            await asyncio.sleep(0.5)  # it is in the socket now
            nodes.resume(old)
            try:
                (got,) = await asked
            except NotLeader:
                return
            assert got > known, "asked for after `known` was handed out"
        finally:
            sleeper.close()
            living.close()

    with cluster(tmp_path / "c") as nodes:
        for _ in range(3):
            asyncio.run(asked_while_asleep(nodes, nodes.leader()))


def test_j18_a_killed_master_is_followed_within_two_seconds(tmp_path: Path) -> None:
    """The client that waits notices nothing but the time, and no step is run twice."""
    modules = ("--procedure-modules", "tests.kvorum.cluster.cluster_procedures")
    with cluster(tmp_path / "c", 3, *modules) as nodes:
        with kvorum.connect(nodes.url) as db:
            db.create_table("default", "k")
        waited = [follow_one(nodes, f"key{i}") for i in range(3)]
        assert min(waited) < RESUME_S, waited


def follow_one(nodes: Nodes, key: str) -> float:
    """Kill the master in the middle of a procedure; the seconds that its end came later."""
    with kvorum.connect(nodes.url) as db:
        master = nodes.leader()
        began = time.monotonic()
        id_ = db.submit("cluster.slow", {"key": key, "ms": STEP_MS})
        time.sleep(1.5 * STEP_MS / 1000)
        nodes.kill(master)
        assert db.wait(id_, timeout_ms=30_000) == STEPS
        took = time.monotonic() - began
        row = db.table("default", "k").get(key)
        assert row is not None
        assert int(row.value) == STEPS, "every step ran once"
    nodes.start(master)
    return took - STEPS * STEP_MS / 1000


def test_e2_timestamps_rise_while_masters_are_killed(tmp_path: Path) -> None:
    """Whoever asks after an answer gets a higher one, whichever node hands it out."""
    with cluster(tmp_path / "c") as nodes, kvorum.connect(nodes.url) as db:
        last = 0
        for _ in range(2):
            master = nodes.leader()
            killed = False
            until = time.monotonic() + 3
            while time.monotonic() < until:
                try:
                    got = db.timestamp()
                except KvorumError:
                    continue
                assert got > last
                last = got
                if not killed:
                    nodes.kill(master)
                    killed = True
            nodes.start(master)
