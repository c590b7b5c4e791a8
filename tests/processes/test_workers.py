"""Real workers of a real node: killed, stopped, and what became of their procedures."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import kvorum
from tests.kit.commands import command, settings
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class WorkerProcess:
    """`kvorum worker`; ended by its pid whatever happens."""

    def __init__(self, node: NodeProcess, name: str, log: IO[bytes]) -> None:
        self.child = subprocess.Popen(
            command(
                *("worker", "tests.processes.sample_pool", "--pool", "sample"),
                *("--name", name, "--json", "--connect", f"127.0.0.1:{node.base}"),
            ),
            cwd=ROOT,
            env=settings(),
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def ready(self) -> dict[str, object]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, "the worker ended"
        told: dict[str, object] = json.loads(line)
        return told

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.child.poll() is None:
            self.child.send_signal(number)
        code = self.child.wait(30)
        if self.child.stdout is not None:
            self.child.stdout.close()
        return code


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        yield node


@pytest.mark.slow
def test_u1_a_killed_workers_procedures_move_within_three_seconds(
    node: NodeProcess, tmp_path: Path
) -> None:
    """kill -9 of a worker: what it held goes on at another one, no step is lost or doubled."""
    workers: dict[str, WorkerProcess] = {}
    with (tmp_path / "workers.log").open("ab") as log:
        try:
            for name in ("one", "two"):
                workers[name] = WorkerProcess(node, name, log)
            for worker in workers.values():
                assert "sample.pool@1" in worker.ready()["types"]
            with kvorum.connect(node.url) as db:
                db.create_namespace("pool")
                db.create_table("pool", "rows")
                ids = [db.submit("sample.pool", {"sleep_s": 1.0}) for _ in range(8)]
                held: dict[str, list[str]] = {}
                while sum(map(len, held.values())) < 8 or not held.get("one"):
                    held = {w["worker"]: w["procedures"] for w in db.workers()}
                    assert any(db.procedure(id).state != "SUCCESS" for id in ids)
                workers["one"].end()
                killed = time.monotonic()
                while any(w["worker"] == "one" for w in db.workers()):
                    time.sleep(0.02)
                moved_s = time.monotonic() - killed
                for id in ids:
                    assert db.wait(id, timeout_ms=30_000) == id
                rows = {i.key.decode(): i.value for i in db.table("pool", "rows").scan().items}
                assert len(rows) == 16
                assert len(set(rows.values())) == 16
                assert workers["two"].end(signal.SIGTERM) == 0
                assert db.workers() == []
            assert (
                moved_s < 3.0 + 3.0
            )  # test_pools.py has the promise; here others use the machine, too
        finally:
            for worker in workers.values():
                worker.end()
