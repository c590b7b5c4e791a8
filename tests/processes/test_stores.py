"""`kvorum start --stores N`: several node processes of one machine, as a user starts them."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

import kvorum
from tests.kit.machine import free_port_base
from tests.kit.processes import READY_S, NodeProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def stores(data: Path, base: int, count: int) -> NodeProcess:
    return NodeProcess(data, base, "--stores", str(count), "--json")


def told(machine: NodeProcess) -> dict[str, Any]:
    """What it printed when all stores were ready."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and machine.exit_code_now() is None:
        for line in machine.tail().splitlines():
            if line.startswith('{"stores"'):
                found: dict[str, Any] = json.loads(line)
                return found
        time.sleep(0.05)
    raise AssertionError(f"not ready: {machine.tail()}")


def gone(pids: list[int], within_s: float = 20.0) -> bool:
    """Whether these processes end by themselves."""
    processes = []
    for pid in pids:
        try:
            processes.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    _, living = psutil.wait_procs(processes, timeout=within_s)
    for process in living:
        process.kill()
    return not living


def pids_of(what: dict[str, Any]) -> list[int]:
    return [int(store["pid"]) for store in what["stores"]]


@pytest.mark.slow
def test_f8_partitions_are_spread_over_the_stores_and_all_serve(tmp_path: Path) -> None:
    """More processes would be of no use if one of them led everything."""
    base, data = free_port_base(2), tmp_path / "data"
    with stores(data, base, 2) as machine:
        machine.spawn()
        first = told(machine)
        assert first["connect"] == f"kvorum://127.0.0.1:{base},127.0.0.1:{base + 10}"
        with kvorum.connect(first["connect"]) as db:
            _all_live(db, 2)  # a store that has only just come up is not a member yet
            db.create_table("default", "t", split_keys=["g", "n", "t"], replicas=1)
            rows = [row for row in db.partitions() if row["id"] != 1]
            assert Counter(node for row in rows for node in row["replicas"]) == {1: 2, 2: 2}
            assert all(row["leader"] in row["replicas"] for row in rows)
        for store in first["stores"]:
            with kvorum.connect(store["native"]) as db:
                table = db.table("default", "t")
                for key in ("a", "h", "o", "u"):
                    table.put(f"{key}{store['store']}", "v")
        served = [_writes(store["pid"], data, store["store"]) for store in first["stores"]]
        assert all(served), "each has log records of its own partitions"
        assert machine.stop() == 0
        assert gone(pids_of(first), 1.0)
    with stores(data, base, 2) as machine:
        machine.log.unlink()
        machine.spawn()
        again = told(machine)
        ids = [[store["node"] for store in what["stores"]] for what in (first, again)]
        assert ids[0] == ids[1], "they are the same nodes"
        with kvorum.connect(again["connect"]) as db:
            assert len(list(db.table("default", "t").rows())) == 8
        assert machine.stop() == 0
    with stores(data, base, 1) as machine:
        machine.spawn()
        assert machine.exit_code() == 1
        assert "start it with --stores 2" in machine.tail()


def _all_live(db: kvorum.Database, count: int) -> None:
    for _ in range(300):
        states = [row["state"] for row in db.nodes()]
        if states == ["live"] * count:
            return
        time.sleep(0.1)
    raise AssertionError(states)


def _writes(pid: int, data: Path, store: int) -> int:
    """Bytes of a store's log."""
    assert psutil.pid_exists(pid)
    return sum(file.stat().st_size for file in (data / f"store-{store}" / "log").glob("*.log"))


@pytest.mark.slow
def test_f8_one_store_that_ends_ends_all_with_its_reason(tmp_path: Path) -> None:
    """A machine of which a part is gone is neither up nor down; whatever restarts it must see."""
    with stores(tmp_path / "data", free_port_base(2), 2) as machine:
        machine.spawn()
        pids = pids_of(told(machine))
        psutil.Process(pids[1]).send_signal(signal.SIGKILL)
        assert machine.exit_code() == 1
        assert "store 1 ended: it was killed by signal 9" in machine.tail().splitlines()[-1]
        assert gone(pids, 1.0)


@pytest.mark.slow
def test_f8_stores_do_not_outlive_who_started_them(tmp_path: Path) -> None:
    """Processes that nobody knows of hold ports and data."""
    with stores(tmp_path / "data", free_port_base(2), 2) as machine:
        machine.spawn()
        pids = pids_of(told(machine))
        machine.kill()
        assert gone(pids), "they went on alone"


@pytest.mark.slow
def test_f8_a_store_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A port that is in use must not leave half a machine running."""
    base = free_port_base(2)
    with NodeProcess(tmp_path / "other", base + 10) as other:
        other.start()
        with stores(tmp_path / "data", base, 2) as machine:
            machine.spawn()
            assert machine.exit_code() == 1
            last = machine.tail().splitlines()[-1]
            assert "store 1 ended: CANNOT_LISTEN" in last
