"""A disk that fills up faster than any timer looks."""

from __future__ import annotations

from kv.base import methods
from kv.base.errors import Unavailable
from kv.base.limits import ROOM_CHECK_BYTES, MiB
from kv.base.methods import COMMIT, OP_PUT, PREWRITE, RESOLVE, ROLLBACK, WRITE
from kv.storage.memory import MemoryEngine
from tests.partition.node import Node

FULL = Unavailable("the disk has 1 MiB left", details={"what": "disk_free_bytes", "limit": 2})


def test_c15_disk_is_looked_at_after_so_many_bytes() -> None:
    """What was queued already would fill the disk before a timer looks, for good."""
    node = Node(sync_s=0.005)
    assert isinstance(node.engine, MemoryEngine)
    version = node.put(b"tab.k", b"old")
    node.engine.fill_disk(FULL)
    rids = [
        node.send(methods.PUT, key := b"tab.%03d" % i, key, bytes(MiB), None, 0) for i in range(60)
    ]
    node.settle(lambda: all(rid in node.conn.rows for rid in rids))
    done = [rid for rid in rids if not node.conn.rows[rid][1]]
    assert len(done) * MiB <= 3 * ROOM_CHECK_BYTES
    refused = node.error(rids[-1])
    assert isinstance(refused, Unavailable)
    assert refused.details == FULL.details
    assert node.get(b"tab.k") == (b"old", version)
    node.engine.fill_disk(None)
    node.room.look()
    assert node.put(b"tab.k", b"new") > version


def test_c15_what_was_begun_is_finished_on_a_full_disk() -> None:
    """Intents would stay, and nothing could be freed."""
    node = Node()
    assert isinstance(node.engine, MemoryEngine)
    first, second = node.oracle(1), node.oracle(1)
    keys = [b"tab.a", b"tab.b"]
    for start, key in zip((first, second), keys, strict=True):
        node.call(PREWRITE, key, start, key, 5000, [[OP_PUT, key, b"v", None, 0]], 0)
    node.engine.fill_disk(FULL)
    node.room.look()
    op = [OP_PUT, b"tab.c", b"v", None, 0]
    for send in (
        node.send(WRITE, b"tab.c", [op], 0, 0),
        node.send(PREWRITE, b"tab.c", node.oracle(1), b"tab.c", 5000, [op], 0),
        node.send(methods.DELETE, b"tab.c", b"tab.c", None),
    ):
        assert node.error(send).details == FULL.details
    commit_ts = node.oracle(1)
    assert node.call(COMMIT, keys[0], keys[0], first, commit_ts)[1] == commit_ts
    node.call(RESOLVE, keys[0], first, commit_ts, [keys[0]])
    node.call(ROLLBACK, keys[1], keys[1], second)
    node.call(RESOLVE, keys[1], second, 0, [keys[1]])
    assert node.get(keys[0]) == (b"v", commit_ts)
    assert node.get(keys[1]) == (None, 0)
