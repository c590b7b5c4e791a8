"""Steps that end their process, or keep Python's lock, at a real node and at a real worker."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kvorum
from kv.base import limits
from tests.kit.commands import command, settings
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
MODULE = "tests.procedures.harmful"


@contextmanager
def _worker(node: NodeProcess, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ("worker", MODULE, "--json", "--name", "w")
    with log.open("ab") as told:
        child = subprocess.Popen(
            command(*words, "--connect", f"127.0.0.1:{node.base}"),
            cwd=ROOT,
            env=settings(),
            stdout=subprocess.PIPE,
            stderr=told,
        )
    assert child.stdout is not None
    try:
        assert json.loads(child.stdout.readline())["worker"] == "w"
        yield child
    finally:
        child.kill()
        child.wait(30)
        child.stdout.close()


@pytest.fixture(params=["node", "worker"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[NodeProcess, Any]]:
    """A node whose steps are run beside it, or by a worker; and the process that runs them."""
    options = ("--procedure-modules", MODULE) if request.param == "node" else ()
    with NodeProcess(tmp_path / "data", free_port_base(), *options) as node:
        node.start()
        if request.param == "node":
            yield node, node
            return
        with _worker(node, tmp_path / "worker.log") as worker:
            yield node, worker


def _gone(pid: str) -> bool:
    """Nobody may collect its exit code: then its name stays, without a command."""
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


@pytest.mark.slow
def test_what_ends_its_process_ends_no_node_and_no_worker(
    served: tuple[NodeProcess, Any], tmp_path: Path
) -> None:
    """It ended every node and worker in turn, at every start; nothing told of it."""
    node, runs = served
    log = tmp_path / "runs"
    with kvorum.connect(node.url) as db:
        db.create_table("default", "k")
        id = db.submit("harmful.ends", {"how": "kill", "log": str(log)})
        told = poll(lambda: db.procedure(id).extra.get("parked"))
        assert "set aside: its step work ended 3 processes" in told
        assert log.read_text().count("\n") == limits.PROCEDURE_DEATHS_MAX
        waits = db.submit("harmful.ends", {"how": ""})
        poll(lambda: f"held by procedure {id}" in db.explain_procedure(waits)["sentence"])
        assert db.wait(db.submit("harmful.quick", 1), timeout_ms=100_000) == 1
        if isinstance(runs, NodeProcess):
            assert runs.exit_code_now() is None
            runs.kill()
            runs.start()
        else:
            assert runs.poll() is None
    with kvorum.connect(node.url) as db:
        db.retry_procedure(id, "again")
        runs_after = 2 * limits.PROCEDURE_DEATHS_MAX
        poll(lambda: log.read_text().count("\n") == runs_after)
        poll(lambda: "set aside" in (db.procedure(id).extra.get("parked") or ""))
        db.bypass_procedure(id, "enough")
        assert db.wait(waits, timeout_ms=100_000) == 1


@pytest.mark.slow
def test_a_step_that_keeps_pythons_lock_is_run_once(
    served: tuple[NodeProcess, Any], tmp_path: Path
) -> None:
    """Its worker lost the lease, again and again: it never ended, and `attempt` stayed 1."""
    node, _ = served
    log = tmp_path / "runs"
    with kvorum.connect(node.url) as db:
        long_s = 2 * limits.WORKER_LEASE_MS // 1000 + 1
        id = db.submit("harmful.holds", {"s": long_s, "log": str(log)})
        poll(log.exists)
        beside = db.submit("harmful.quick", 2)
        assert db.wait(beside, timeout_ms=100_000) == 2
        assert db.wait(id, timeout_ms=100_000) == 1
        assert log.read_text().count("\n") == 1


@pytest.mark.slow
def test_a_killed_worker_takes_its_steps_with_it(tmp_path: Path) -> None:
    """A step went on outside after its worker was killed; the next run was told attempt 1."""
    log, go = tmp_path / "runs", tmp_path / "go"
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        args = {"until": str(go), "log": str(log)}
        with _worker(node, tmp_path / "worker.log") as worker, kvorum.connect(node.url) as db:
            id = db.submit("harmful.waits", args)
            poll(log.exists)
            children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
            assert children
            worker.send_signal(signal.SIGKILL)
            worker.wait(30)
            poll(lambda: all(map(_gone, children)))
        with _worker(node, tmp_path / "worker.log"), kvorum.connect(node.url) as db:
            poll(lambda: log.read_text().count("\n") == 2)
            go.touch()
            assert db.wait(id, timeout_ms=100_000) == 2
