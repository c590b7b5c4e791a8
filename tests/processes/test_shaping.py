"""Real nodes that split by themselves under load while their master is killed."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import kvorum
from kv.base.limits import MiB
from tests.kit.clusters import Nodes, cluster
from tests.kit.commands import told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.slow]

MAX = 1 * MiB
ROWS = 5_000
VALUE = b"." * 1_000


def _rows(nodes: Nodes) -> list[dict[str, Any]]:
    with kvorum.connect(nodes.url) as db:
        return [row for row in db.partitions() if row["id"] != 1]


def _put(db: kvorum.Database, keys: list[bytes]) -> None:
    """The same rows again until it is known that they are there."""
    while True:
        try:
            db.batch([kvorum.Put("default", "t", key, VALUE) for key in keys])
            return
        except kvorum.KvorumError as error:
            if error.disposition == "no":
                raise
            time.sleep(0.05)


def _cli(nodes: Nodes, *words: str) -> Any:
    return told(*words, connect=nodes.local.connect)


def test_h1_partitions_split_under_load_while_the_master_is_killed(tmp_path: Path) -> None:
    """What a user sees: a table that grows, nobody who does anything, and no row lost."""
    keys = [b"%06d" % i for i in range(ROWS)]
    random.Random(1).shuffle(keys)
    with cluster(tmp_path) as nodes:
        with kvorum.connect(nodes.url) as db:
            db.create_table("default", "t")
            db.wait(db.submit("kvorum.set_setting", {"name": "partition.bytes_max", "value": MAX}))
            for at in range(0, ROWS, 50):
                if at == ROWS // 2:
                    killed = nodes.leader()
                    nodes.kill(killed)
                _put(db, keys[at : at + 50])
        done = set(_cli(nodes, "partition", "auto")["done"])  # a new master would not know
        nodes.start(killed)
        deadline = time.monotonic() + 90
        steady: list[dict[str, Any]] = []
        while time.monotonic() < deadline:
            steady = _rows(nodes)  # sizes as they were reported: the last rows may be missing
            sizes = [row["size"] for row in steady]
            if sum(sizes) >= ROWS * len(VALUE) and all(0.4 * MAX <= size <= MAX for size in sizes):
                break
            time.sleep(1)
        assert all(0.4 * MAX <= row["size"] <= MAX for row in steady), steady
        assert len(steady) >= 5
        with kvorum.connect(nodes.url) as db:
            found = sorted(item.key for item in db.table("default", "t").rows())
        assert found == sorted(keys)
        told = _cli(nodes, "partition", "auto")
        assert told["auto"] is True
        assert told["bytes_max"] == MAX
        assert any("is split" in text for text in done.union(told["done"])), told
        healths = {row["id"]: row["health"] for row in _cli(nodes, "node", "list")["items"]}
        assert healths == dict.fromkeys(nodes.numbers, "alive")
        assert _cli(nodes, "partition", "auto", "off")["auto"] is False
