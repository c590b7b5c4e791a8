"""A disk that fills up faster than any timer looks."""

from __future__ import annotations

from kv.base import methods
from kv.base.disk_space import goes_on
from kv.base.errors import Unavailable
from kv.base.keys import u32
from kv.base.limits import (
    DISK_FREE_BYTES_LAST,
    DISK_FREE_BYTES_MIN,
    ROOM_CHECK_BYTES,
    MiB,
)
from kv.base.methods import COMMIT, OP_DELETE, OP_PUT, PREWRITE, RESOLVE, ROLLBACK, WRITE
from kv.storage.memory import MemoryEngine
from tests.kv.partition.node import Node

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


def test_what_frees_space_goes_on_until_the_last_reserve() -> None:
    """On a nearly full disk nothing can be deleted or dropped, so it stays full."""
    node = Node()
    assert isinstance(node.engine, MemoryEngine)
    node.put(b"tab.a", b"v")
    node.put(b"tab.b", b"v")
    what = {"what": "disk_free_bytes", "limit": DISK_FREE_BYTES_MIN}
    node.engine.fill_disk(Unavailable("full", details=what | {"actual": DISK_FREE_BYTES_LAST}))
    node.room.look()
    put, gone = [OP_PUT, b"tab.c", b"v", None, 0], [OP_DELETE, b"tab.b", None, None, 0]
    for refused in (
        node.send(methods.PUT, b"tab.c", b"tab.c", b"v", None, 0),
        node.send(WRITE, b"tab.c", [put], 0, 0),
        node.send(WRITE, b"tab.c", [gone, put], 0, 0),
        node.send(PREWRITE, b"tab.c", node.oracle(1), b"tab.c", 5000, [put], 0),
    ):
        assert node.error(refused).details["what"] == "disk_free_bytes"
    node.call(methods.DELETE, b"tab.a", b"tab.a", None)
    node.call(WRITE, b"tab.b", [gone], 0, 0)
    assert [node.get(key)[0] for key in (b"tab.a", b"tab.b", b"tab.c")] == [None, None, None]
    last = Unavailable("full", details=what | {"actual": DISK_FREE_BYTES_LAST - 1})
    node.engine.fill_disk(last)
    node.room.look()
    assert node.error(node.send(methods.DELETE, b"tab.a", b"tab.a", None)).details == last.details


def test_which_requests_go_on() -> None:
    """The catalog's records do not, so no table can be dropped; or a large one does, and the disk
    is full.
    """
    full = Unavailable("full", details={"what": "disk_free_bytes", "actual": DISK_FREE_BYTES_MIN})
    slow = Unavailable("slow", details={"what": "buffers", "actual": DISK_FREE_BYTES_MIN})
    record = [OP_PUT, u32(3) + b"table", b"v", None, 0]
    large = [OP_PUT, u32(3) + b"table", bytes(1 << 20), None, 0]
    row = [OP_PUT, u32(100) + b"row", b"v", None, 0]
    for ops, taken in (([record], True), ([large], False), ([record, row], False), ([], False)):
        assert goes_on(full, [1, WRITE, 0, 1, 1, ops, 0, 0]) is taken
        assert goes_on(full, [1, PREWRITE, 0, 1, 1, 7, b"k", 5000, ops, 0]) is taken
        assert not goes_on(slow, [1, WRITE, 0, 1, 1, ops, 0, 0])
    for key, taken in ((u32(3) + b"record", True), (u32(100) + b"row", False)):
        assert goes_on(full, [1, methods.PUT, 0, 1, 1, key, b"v", None, 0]) is taken
    for broken in (
        [1, methods.PUT, 0, 1, 1, 7],
        [1, methods.PUT],
        [1, WRITE],
        [1, WRITE, 0, 1, 1, [7]],
        [1, WRITE, 0, 1, 1, [[1]]],
        [1, WRITE, 0, 1, 1, [[[], b"key", b"v"]]],
        [1, WRITE, 0, 1, 1, [[{}, u32(3), b"v"]]],
        [1, 99],
    ):
        assert not goes_on(full, broken)
