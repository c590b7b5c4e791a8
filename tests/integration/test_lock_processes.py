"""Locks of users' code over a real cluster: the master dies, then the holder does."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kvorum
from tests.integration.clusters import cluster
from tests.machine import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

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
