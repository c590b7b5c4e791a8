"""`kvorum verify` as users run it: on real processes, with real faults.

VERIFY_SECONDS says how long each load runs (10; `make verify` takes 600).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import kvorum
from kv.base.config import HTTP_OFFSET
from kvorum.programs.localcluster import LocalCluster
from kvorum.verify.nemesis import set_links
from tests.kit.clusters import Nodes, cluster
from tests.kit.machine import ROOT, free_port_base

SECONDS = float(os.environ.get("VERIFY_SECONDS", "10"))
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240 + SECONDS * 8)]


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "kvorum", "verify", *args]


def verify(*args: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what --json said, and stderr."""
    done = subprocess.run(
        command(*args, "--json"), capture_output=True, text=True, check=False, cwd=ROOT
    )
    told = json.loads(done.stdout) if done.stdout else {}
    return done.returncode, told, done.stderr


def enough(folder: Path, *args: str) -> tuple[int, dict[str, Any], str, Path]:
    """As `verify`, in a directory of its own, and that. Once more, for longer, if too little
    happened: nodes that are started on a machine with much to do are ready after ten seconds.
    """
    for seconds in (SECONDS, 4 * SECONDS):
        where = folder / f"{seconds:.0f}"
        where.mkdir()
        paths = ("--data", str(where / "cluster"), "--history", str(where / "all.jsonl"))
        found = verify(*args, *paths, "--seconds", str(seconds), *new_cluster())
        if all(one["verdict"] != "too little" for one in found[1].get("workloads", ())):
            break
    return *found, where


def new_cluster() -> list[str]:
    return ["--nodes", "3", "--port", str(free_port_base(4))]


def processes_in(directory: Path) -> list[psutil.Process]:
    """Nodes whose data lie there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_u12_three_nodes_are_hurt_and_clients_see_nothing_impossible(tmp_path: Path) -> None:
    """The product's central promise, checked from outside on real processes."""
    code, told, stderr, where = enough(
        tmp_path, "--workload", "list-append", "--nemesis", "kill,pause,cut", "--clients", "6"
    )
    history = where / "all.jsonl"
    assert code == 0, (told, stderr)
    assert told["verdict"] == "clean"
    (one,) = told["workloads"]
    assert one["acknowledged"] > 20  # how many there are is the machine's matter
    assert one["anomalies"] == []
    assert not processes_in(tmp_path), "nodes were left behind"
    again, said, _ = verify("--check", str(history))
    assert again == 0
    assert said["workloads"] == told["workloads"], "the file says something else than the run"
    faults = [line for line in history.read_text().splitlines() if '"fault":true' in line]
    assert len(faults) >= 2


def test_u12_several_workloads_run_side_by_side(tmp_path: Path) -> None:
    """One run over everything is what people do before a release."""
    code, told, stderr, where = enough(
        tmp_path, "--workload", "all", "--nemesis", "kill,pause,cut,restart", "--clients", "3"
    )
    assert code == 0, (told, stderr)
    assert [one["anomalies"] for one in told["workloads"]] == [[]] * len(told["workloads"])
    acknowledged = {one["workload"]: one["acknowledged"] for one in told["workloads"]}
    names = set(acknowledged)
    assert {"bank", "register", "list-append", "procedure", "unique-ids"} <= names
    assert min(acknowledged[name] for name in ("bank", "register", "list-append")) > 5
    assert {path.name for path in where.glob("*.jsonl")} == {f"all.{name}.jsonl" for name in names}


def test_u12_serializable_transactions_permit_no_write_skew(tmp_path: Path) -> None:
    """Serializable on request: the anomaly that snapshot isolation permits must not be seen."""
    code, told, stderr, _ = enough(
        tmp_path,
        *("--workload", "skew,list-append,bank", "--isolation", "serializable", "--clients", "4"),
        *("--nemesis", "kill,pause,cut"),
    )
    assert code == 0, (told, stderr)


def test_u12_an_interrupted_run_leaves_a_users_cluster_whole(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a fault: every node of the user's cluster runs, awake and uncut."""
    with cluster(tmp_path / "cluster") as nodes:
        for number in range(2):
            run = subprocess.Popen(
                command(
                    *("--data", str(tmp_path / "cluster"), "--seconds", "60"),
                    *("--nemesis", ["pause,cut", "kill"][number], "--seed", str(number)),
                ),
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            _wait_for_fault(run)
            run.send_signal(signal.SIGINT)
            said, _ = run.communicate(timeout=60)
            assert run.returncode == 1, said
            assert "interrupted" in said
            _whole(nodes)


def _wait_for_fault(run: subprocess.Popen[str]) -> None:
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("    "):
            return
    raise AssertionError("it ended before a fault")


def _whole(nodes: Nodes) -> None:
    for number in nodes.numbers:
        assert _state(nodes, number) == "running"
        found = LocalCluster.open(nodes.local.directory).node(number)
        assert asyncio.run(set_links(found, None)) == [], f"node {number} is still cut"
    with kvorum.connect(nodes.url) as db:
        assert db.timestamp() > 0


def _state(nodes: Nodes, number: int) -> str:
    return LocalCluster.open(nodes.local.directory).node(number).state()


def test_u12_a_run_that_is_told_to_end_leaves_no_process(tmp_path: Path) -> None:
    """A run that is ended by a CI system, at whatever moment, must not leave three nodes behind."""
    for delay_s in (1.0, 8.0):  # while the nodes start, and under load
        data = tmp_path / f"cluster-{delay_s}"
        run = subprocess.Popen(
            command("--data", str(data), "--seconds", "60", "--nemesis", "pause", *new_cluster()),
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        deadline = time.monotonic() + 60
        while not LocalCluster.exists(data):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(delay_s)
        run.terminate()
        run.communicate(timeout=60)
        assert run.returncode == 1
        assert not processes_in(data)


def test_u12_a_users_cluster_is_used_and_left_running(tmp_path: Path) -> None:
    """--data of a running cluster, and --connect: what was there before is there afterwards."""
    with cluster(tmp_path / "cluster") as nodes:
        short = ("--seconds", "10", "--clients", "3")  # 4 are too little on a busy machine
        code, told, stderr = verify(
            "--data", str(tmp_path / "cluster"), "--nemesis", "kill", *short
        )
        assert code == 0, (told, stderr)
        _whole(nodes)
        killed = LocalCluster.open(nodes.local.directory)
        nodes.local.nodes = killed.nodes  # others have the pids now
        first = nodes.local.node(1)
        for url in (nodes.local.connect, f"http://127.0.0.1:{first.base + HTTP_OFFSET}"):
            code, told, stderr = verify("--connect", url, "--workload", "set,bank,batch", *short)
            assert code == 0, ([one["verdict"] for one in told["workloads"]], told, stderr)
        with kvorum.connect(nodes.url) as db:
            assert db.tables("verify") == [], "tables were left behind"


def test_u12_a_cluster_that_does_not_come_back_is_told(tmp_path: Path) -> None:
    """Nodes that end by themselves are a finding even if every answer was right."""
    data = tmp_path / "cluster"
    run = subprocess.Popen(
        command(
            *("--workload", "set", "--data", str(data), "--seconds", "8", "--nemesis", "pause"),
            *("--seed", "5", "--json", *new_cluster()),
        ),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    deadline = time.monotonic() + 60
    while not (LocalCluster.exists(data) and _ready(data)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    victim = LocalCluster.open(data).node(2).process()
    assert victim is not None
    victim.kill()
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    told = json.loads(said)
    assert any("node 2" in problem for problem in told["problems"]), told
    assert not processes_in(data)


def _ready(data: Path) -> bool:
    """The tables of the workload are there: the load begins."""
    try:
        with kvorum.connect(LocalCluster.open(data).connect, timeout_ms=1_000) as db:
            return any(info.name.startswith("set_") for info in db.tables("verify"))
    except kvorum.KvorumError:
        return False


def test_u12_nothing_is_left_in_the_temporary_directory() -> None:
    """A clean run cleans up after itself."""
    before = set(Path(tempfile.gettempdir()).glob("kvorum-verify-*"))
    code, told, stderr = verify("--workload", "unique-ids", "--seconds", "2", *new_cluster())
    assert code == 0, (told, stderr)
    assert set(Path(tempfile.gettempdir()).glob("kvorum-verify-*")) <= before
