"""Locks of users' code over a real cluster: the master dies, then the holder does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import kvorum
from tests.kit.clusters import cluster
from tests.kit.machine import ROOT

pytestmark = pytest.mark.cluster

TTL_MS = 4_000
SLOW_S = 20.0

HOLDER = """
import sys, time, kvorum
with kvorum.connect(sys.argv[1]) as db:
    lock = db.lock("job/nightly", ttl_ms=int(sys.argv[2]))
    print(lock.token, flush=True)
    while True:
        lock.check()
        time.sleep(0.1)
"""


@pytest.mark.slow
def test_k9_a_lock_survives_the_master_and_not_its_holder(tmp_path: Path) -> None:
    """A failover gave the lock to the next one, or a killed holder kept it."""
    with cluster(tmp_path / "c") as nodes, kvorum.connect(nodes.url) as db:
        db.create_table("default", "t")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, nodes.url, str(TTL_MS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            token = int(holder.stdout.readline())

            def next_one() -> tuple[int, float]:
                with kvorum.connect(nodes.url) as other, other.lock("job/nightly") as lock:
                    return lock.token, time.monotonic()

            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(next_one)
                put = kvorum.Put("default", "t", "k", "v", fence=("job/nightly", token))
                db.batch([put])
                master = nodes.leader()
                nodes.kill(master)
                time.sleep(1.5 * TTL_MS / 1000)
                assert holder.poll() is None, "it still has its lock"
                assert not waiting.done()
                db.batch([put])
                killed = time.monotonic()
                holder.kill()
                later, at = waiting.result(60)
                assert later > token
                assert at - killed < TTL_MS / 1000 + SLOW_S
                with pytest.raises(kvorum.Refused) as refused:
                    db.batch([put])
                assert refused.value.code == "FENCED_OFF"
        finally:
            holder.kill()
            holder.communicate()


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [1, 3])
def test_k10_no_outside_coordinator(tmp_path: Path, count: int) -> None:
    """A node needed something beside its own cluster: it had another connection open, or has a
    client of a coordinator among the libraries that it loads.
    """
    with cluster(tmp_path / "c", count) as nodes, kvorum.connect(nodes.url) as db:
        db.create_table("default", "t")
        with db.lock("job/nightly", ttl_ms=TTL_MS) as lock:
            db.batch([kvorum.Put("default", "t", "k", "v", fence=lock.fence)])
            processes = [node.process() for node in nodes.local.nodes]
            pids = [process.pid for process in processes if process is not None]
            assert len(pids) == count
            sockets = [one for pid in pids for one in _sockets(pid)]
            mine = {local[1] for local, _, listens in sockets if listens}
            assert len(mine) >= 3 * len(pids), "native, peers and HTTP of each"
            for local, remote, listens in sockets:
                if not listens:
                    assert remote[0] == "0100007F", "a machine that is not of the cluster"
                    assert {local[1], remote[1]} & mine, f"a connection to port {remote[1]}"
            for pid in pids:
                loaded = Path(f"/proc/{pid}/maps").read_text()
                assert not [name for name in COORDINATORS if f"/{name}/" in loaded]
    named = {line.split("==")[0].strip().lower() for line in _requirements()}
    assert len(named) > 10
    assert not named & COORDINATORS


COORDINATORS = frozenset(
    {
        "kazoo",
        "zookeeper",
        "etcd3",
        "etcd3-py",
        "python-etcd",
        "python-consul",
        "py-consul",
        "redis",
    }
)


def _requirements() -> list[str]:
    files = sorted((ROOT / "requirements").glob("*.lock"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if "==" in line and not line.startswith((" ", "#", "-"))]


Address = tuple[str, int]


def _sockets(pid: int) -> list[tuple[Address, Address, bool]]:
    """(local, remote, whether it listens) of every TCP socket of a process."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [(_address(f[1]), _address(f[2]), f[3] == "0A") for f in rows if f[9] in inodes]


def _address(text: str) -> Address:
    host, port = text.split(":")
    return host, int(port, 16)
