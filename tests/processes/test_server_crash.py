"""Four real processes, one is killed: what it had is rebuilt on the others, as a user sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvorum
from tests.kit.clusters import Nodes, cluster
from tests.kit.commands import told

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

DEAD_AFTER_MS = 6_000
KEYS = [f"k{i:03}" for i in range(300)]


def command(nodes: Nodes, *words: str) -> Any:
    """What the command prints as JSON."""
    return told(*words, connect=nodes.url)


def voters(nodes: Nodes) -> dict[int, list[int]]:
    with kvorum.connect(nodes.url) as db:
        return {row["id"]: sorted(row["replicas"]) for row in db.partitions() if row["id"] != 1}


def eventually(holds: Callable[[], bool], what: str, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except kvorum.KvorumError:
            pass
        time.sleep(0.25)
    raise AssertionError(what)


def test_f6_a_killed_node_is_replaced_and_comes_back(tmp_path: Path) -> None:
    """Acknowledged writes are all there; three copies again, elsewhere; the old node is of use
    again; a person can read what was done and why, and move a replica by hand.
    """
    options = ("--dead-after-ms", str(DEAD_AFTER_MS))
    with cluster(tmp_path / "cluster", 4, *options) as nodes:
        with kvorum.connect(nodes.url) as db:
            db.create_table("default", "t", split_keys=["k100", "k200"], replicas=3)
            for key in KEYS:
                db.table("default", "t").put(key, key)
        before = voters(nodes)
        assert all(len(at) == 3 for at in before.values())
        victim = next(n for n in nodes.numbers if n != nodes.leader())
        nodes.kill(victim)
        with kvorum.connect(nodes.url) as db:
            for key in KEYS[:50]:
                db.table("default", "t").put(key, "later")

        def rebuilt() -> bool:
            found = voters(nodes).values()
            return all(len(at) == 3 and victim not in at for at in found)

        eventually(rebuilt, "not three copies again")
        nodes.start(victim)

        def back() -> bool:
            with kvorum.connect(nodes.url) as db:
                (row,) = [row for row in db.nodes() if row["id"] == victim]
            return bool(row["state"] == "live" and row["health"] == "alive")

        eventually(back, "the node is not taken for alive")
        with kvorum.connect(nodes.url) as db:
            found = {
                row.key.decode(): row.value.decode() for row in db.table("default", "t").rows()
            }
        assert found == {key: "later" if key in KEYS[:50] else key for key in KEYS}
        command(nodes, "setting", "set", "balance.enabled", "0")
        partition, at = next(iter(voters(nodes).items()))
        free = next(n for n in nodes.numbers if n not in at)
        words = ("partition", "move", str(partition), "--from", str(at[0]), "--to", str(free))
        assert command(nodes, *words)["result"]["to"] == free
        assert voters(nodes)[partition] == sorted({*at[1:], free})
        told = command(nodes, "explain", "balance")
        assert told["enabled"] == {"placement": True, "balance": False}
        assert {row["id"] for row in told["nodes"]} == set(nodes.numbers)
