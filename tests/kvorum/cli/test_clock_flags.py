"""`--clock` of the commands that make clusters on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvorum.programs.localcluster import LocalCluster
from kvorum.verify.catalog import WORKLOADS
from tests.kit.commands import run
from tests.kit.machine import free_port_base


@pytest.mark.parametrize("command", [("cluster", "up"), ("dev",), ("verify",)])
def test_r1_an_unknown_clock_is_refused_by_name(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A typing error must not found a cluster with an oracle, which it keeps for good."""
    more = ("--seconds", "1") if command == ("verify",) else ()
    data = tmp_path / "data"
    ended = run(*command, "--clock", "hybird", "--data", str(data), *more, code=None)
    assert ended.code in (1, 2)
    assert b"hybird" in ended.err
    assert not data.exists()


def test_r1_a_local_cluster_keeps_its_clock(tmp_path: Path) -> None:
    """What was said at its making goes to every start, and another word is refused."""
    made = LocalCluster.create(tmp_path / "c", 1, free_port_base(2), clock="hybrid")
    words = LocalCluster.open(tmp_path / "c")._arguments(made.node(1))
    assert words[words.index("--clock") + 1] == "hybrid"
    ended = run("cluster", "up", "--data", str(tmp_path / "c"), "--clock", "oracle", code=1)
    assert b"--clock hybrid" in ended.err
    path = tmp_path / "c" / "cluster.json"  # of an earlier version
    saved = json.loads(path.read_text())
    del saved["clock"]
    path.write_text(json.dumps(saved))
    assert LocalCluster.open(tmp_path / "c").clock == ""


@pytest.mark.parametrize("name", [n for n, k in WORKLOADS.items() if "hybrid" not in k.clocks])
def test_r1_what_hybrid_clocks_do_not_promise_is_not_checked(tmp_path: Path, name: str) -> None:
    """It would report anomalies of a cluster that is right."""
    data = str(tmp_path / "c")
    how = ("--workload", name, "--seconds", "1", "--data", data)
    ended = run("verify", "--clock", "hybrid", "--isolation", _isolation(name), *how, code=2)
    assert name.encode() in ended.err
    assert not (tmp_path / "c").exists()


def _isolation(name: str) -> str:
    return WORKLOADS[name].isolations[0]
