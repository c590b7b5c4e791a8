"""The bus between real processes: what operators call, and a master that is killed in between."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import kvorum
from tests.kit.clusters import Nodes, cluster
from tests.kit.commands import run

pytestmark = pytest.mark.cluster


def points(nodes: Nodes) -> dict[int, list[str]]:
    """What lies in the directories of the nodes."""
    found = {}
    for node in nodes.local.nodes:
        root = nodes.local.data(node.id) / "points"
        names = [p.name for p in root.iterdir() if p.name != ".staging"] if root.exists() else []
        assert not list((root / ".staging").glob("*")), "something is left of an operation"
        found[node.id] = sorted(names)
    return found


@pytest.mark.slow
def test_n9_r6_flush_compact_copy_and_a_killed_master(tmp_path: Path) -> None:
    """An operation of all nodes was lost with its master, or left something half done on disk."""
    with cluster(tmp_path / "c") as nodes, kvorum.connect(nodes.url) as db:
        db.create_table("default", "k", split_keys=["m"])
        table = db.table("default", "k")
        for i in range(200):
            table.put(f"a{i}", "x" * 100)
        where = nodes.local.connect
        told = run("table", "flush", "default.k", "--json", connect=where).json
        assert {t: r["partitions"] for t, r in told["targets"].items()} == {
            f"node/{n}": 2 for n in (1, 2, 3)
        }
        args = {"namespace": "default", "table": "k"}
        told = db.wait(db.submit("kvorum.compact_table", args), timeout_ms=60_000)
        assert sorted(told["targets"]) == ["node/1", "node/2", "node/3"]

        told = db.wait(db.submit("kvorum.checkpoint", {"name": "before"}), timeout_ms=60_000)
        assert sorted(told["targets"]) == ["node/1", "node/2", "node/3"]
        assert points(nodes) == {n: ["before"] for n in (1, 2, 3)}
        (point,) = run("checkpoint", "list", "--json", connect=where).json["points"]
        assert (point["name"], point["nodes"], point["whole"]) == ("before", [1, 2, 3], True)
        with pytest.raises(kvorum.KvorumError) as caught:
            db.wait(db.submit("kvorum.checkpoint", {"name": "before"}), timeout_ms=60_000)
        assert caught.value.code == "POINT_EXISTS"

        # A node that sleeps holds it up; then the master dies with the other answers in.
        master = nodes.leader()
        asleep = next(n for n in nodes.numbers if n != master)
        nodes.pause(asleep)
        id_ = db.submit("kvorum.checkpoint", {"name": "later"})
        deadline = time.monotonic() + 20
        while True:
            states = {t: r["state"] for t, r in db.procedure(id_).extra.get("targets", {}).items()}
            if list(states.values()).count("done") == 2:
                break
            assert time.monotonic() < deadline, states
            time.sleep(0.1)
        assert states[f"node/{asleep}"] == "waiting"
        assert all("later" not in names for names in points_there(nodes).values())
        nodes.kill(master)
        nodes.resume(asleep)
        nodes.start(master)
        assert db.wait(id_, timeout_ms=60_000)["name"] == "later"
        assert points(nodes) == {n: ["before", "later"] for n in (1, 2, 3)}

        told = db.wait(db.submit("kvorum.drop_checkpoint", {"name": "before"}), timeout_ms=60_000)
        assert all(told["targets"].values())
        assert points(nodes) == {n: ["later"] for n in (1, 2, 3)}
        assert table.get("a7") is not None


def points_there(nodes: Nodes) -> dict[int, list[str]]:
    """The same while an operation is under way."""
    return {
        node.id: [p.name for p in (nodes.local.data(node.id) / "points").glob("*")]
        for node in nodes.local.nodes
    }
