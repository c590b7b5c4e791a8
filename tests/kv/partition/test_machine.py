"""The rules of the write path, each with its own scene. Time and disk are virtual; a sync takes a
millisecond.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kv.base import methods
from kv.base.errors import (
    Busy,
    ConditionFailed,
    Corruption,
    DeadlineExceeded,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    Moved,
    NotLeader,
    TooLarge,
    Unavailable,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.limits import (
    BATCH_OPS_MAX,
    ENTRY_BYTES_MAX,
    ENTRY_TARGET_BYTES,
    KEY_BYTES_MAX,
    QUEUE_REQUESTS_MAX,
    VALUE_BYTES_MAX,
    MiB,
)
from kv.base.methods import COMMITTED, OP_CHECK, OP_DELETE, OP_PUT, PENDING
from kv.base.timestamps import compose
from kv.partition.read_point import ReadPoint
from kv.partition.timestamps import AtOnce
from kv.storage.engine import STATE_FAMILIES, Getter, MultiGetter
from kv.storage.memory import MemoryEngine
from tests.kit.each import each
from tests.kv.partition.node import START_MS, Conn, Node


def put_op(key: bytes, value: bytes = b"v", cond: int | None = None) -> list[Any]:
    return [OP_PUT, key, value, cond, 0]


def send_put(node: Node, key: bytes, value: bytes = b"v", cond: int | None = None) -> int:
    return node.send(methods.PUT, key, key, value, cond, 0)


def in_flight(node: Node) -> None:
    """Let the queue drain and the sync begin, but not end."""
    node.settle(lambda: node.machine().view.flying is not None)


def prewrite(node: Node, start: int, *ops: list[Any], anchor: bytes, ttl: int = 5000) -> int:
    bound: int = node.call(methods.PREWRITE, ops[0][1], start, anchor, ttl, list(ops), 0)[0]
    return bound


# ------------------------------------------------------------------ C: order and visibility


def test_c5_numbers_are_unique_and_rising() -> None:
    """Two writes would share a version, or a later one would have the smaller."""
    node = Node()
    rids = [send_put(node, b"tab.k%d" % (i % 3)) for i in range(50)]
    rids.append(node.send(methods.WRITE, b"tab.a", [put_op(b"tab.a"), put_op(b"tab.b")], 0, 0))
    versions = [node.reply(rid)[0] for rid in rids]
    assert versions == sorted(set(versions))
    assert node.get(b"tab.a")[1] == node.get(b"tab.b")[1] == versions[-1]


def test_c6_reader_sees_nothing_before_the_acknowledgement_and_never_half() -> None:
    """A reader would see a batch that a crash could take back, or half of one."""
    node = Node()
    rid = node.send(methods.WRITE, b"tab.a", [put_op(b"tab.a"), put_op(b"tab.b")], 0, 0)
    in_flight(node)
    keys = [b"tab.a", b"tab.b"]
    assert node.call(methods.MGET, b"tab.a", keys, 0, None) == [[None, None]]
    assert node.call(methods.SCAN, b"tab.a", b"tab.a", b"tab.c", 0, 10, False, None) == [[], None]
    assert rid not in node.conn.rows
    version = node.reply(rid)[0]
    assert node.call(methods.MGET, b"tab.a", keys, 0, None) == [[[b"v", version], [b"v", version]]]


@pytest.mark.parametrize("seed", range(8))
def test_c6_puts_of_one_drain_are_as_if_each_had_come_alone(seed: int) -> None:
    """What one write of a drain is refused for, or leaves, would be another's: a condition passed
    over, an old version lost, a row counted twice.
    """
    rng = random.Random(seed)
    together, alone = Node(), Node()
    found = []
    for _ in range(6):
        sent, told = [], []
        for _ in range(rng.choice([1, 7, 40])):
            key = b"tab.k%d" % rng.randrange(12)
            size = rng.choice([1, 30, 700])  # old versions of 700 bytes are not shipped
            cond, ttl = rng.choice([None, None, 0, 1]), rng.choice([0, 0, 0, 0, 60_000])
            request = (methods.PUT, key, key, b"%d" % rng.randrange(10) * size, cond, ttl)
            if rng.random() < 0.2:
                request = (methods.DELETE, key, key, rng.choice([None, 0]))
            sent.append(together.send(*request))
            told.append(_outcome(alone, alone.send(*request)))
        assert [_outcome(together, rid) for rid in sent] == told
        found += told
    assert len(set(found)) == 2, "some were refused, and some were not"
    states = [node.machine()._state for node in (together, alone)]
    for n in range(12):
        assert len({node.get(b"tab.k%d" % n)[0] for node in (together, alone)}) == 1
    assert len({(s.live_bytes, s.old_versions, s.collected.rows) for s in states}) == 1


def _outcome(node: Node, rid: int) -> str:
    node.settle(lambda: rid in node.conn.rows)
    row = node.conn.rows[rid]
    return "" if row[1] == 0 else str(row[2])


def test_c7_latches_drop_before_the_sync() -> None:
    """The second writer of a row would wait for the disk of the first."""
    node = Node()
    first = send_put(node, b"tab.k", b"1")
    in_flight(node)
    second = send_put(node, b"tab.k", b"2", cond=None)
    third = send_put(node, b"tab.k", b"3", cond=7)
    node.settle(lambda: b"tab.k" in node.machine().view.open.pending)
    assert first not in node.conn.rows, "the first is still in the hands of the disk"
    v1, v2 = node.reply(first)[0], node.reply(second)[0]
    refused = node.error(third)
    assert refused.details["version"] == str(v2), "it saw the version in flight"
    assert node.get(b"tab.k") == (b"2", v2)
    assert node.get(b"tab.k", v1) == (b"1", v1)


def test_c7_batches_with_crossed_rows_do_not_deadlock() -> None:
    """Two batches that take the same rows in opposite order would wait for each other."""
    node = Node()
    there = [put_op(b"tab.a"), put_op(b"tab.b")]
    back = [put_op(b"tab.b"), put_op(b"tab.a")]
    rids = [node.send(methods.WRITE, b"tab.a", [there, back][i % 2], 0, 0) for i in range(20)]
    versions = [node.reply(rid)[0] for rid in rids]
    assert node.get(b"tab.a")[1] == node.get(b"tab.b")[1] == versions[-1]


def test_c8_read_point_waits_for_the_prefix() -> None:
    """A later entry that completes first would become visible before an earlier one."""
    point = ReadPoint()
    for number, top in ((1, 10), (2, 20), (3, 15)):
        point.begin(number, top)
    assert point.complete(3) == 0
    assert point.complete(2) == 0
    assert point.complete(1) == 20
    point.begin(4, 30)
    assert point.complete(4) == 30


def test_c8_read_point_of_the_machine_follows_the_entries() -> None:
    """The read point would run ahead of what is applied."""
    node = Node()
    version = node.put(b"tab.k", b"1")
    point = node.machine().read_point
    assert point.top == version
    rid = send_put(node, b"tab.k", b"2")
    in_flight(node)
    assert node.machine().read_point.top == version
    assert node.reply(rid)[0] == node.machine().read_point.top


def test_c9_acknowledged_means_readable() -> None:
    """A client would not read its own acknowledged write."""
    node = Node()

    class Eager(Conn):
        """Reads in the very moment when the acknowledgement is handed over."""

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, bytes | None]] = []

        def reply(self, row: list[Any]) -> None:
            state = node.manager.replicas()[0].state
            self.seen.append((row[2], state.cur(b"tab.k")))
            super().reply(row)

    conn = Eager()
    machine = node.machine()
    for i in range(5):
        machine.submit(conn, [i, methods.PUT, 1e9, 1, 1, b"tab.k", b"%d" % i, None, 0])
        node.settle(lambda i=i: i in conn.rows)  # type: ignore[misc]
    assert len(conn.seen) == 5
    for version, record in conn.seen:
        assert record is not None
        assert int.from_bytes(record[:8], "big") >= version


def test_c10_a_crash_before_the_sync_leaves_nothing() -> None:
    """A write that was never durable would be seen before the crash, or after it by some."""
    node = Node(sync_s=0.5)
    node.put(b"tab.k", b"old")
    rid = send_put(node, b"tab.k", b"new")
    in_flight(node)
    assert node.get(b"tab.k")[0] == b"old"
    assert rid not in node.conn.rows
    log = node.log.crash(0)
    assert isinstance(node.engine, object)
    after = Node(engine=node.engine.crash(Always(1.0)), log=log, oracle_last=node.oracle.last)  # type: ignore[attr-defined]
    assert after.get(b"tab.k")[0] == b"old"


class Always:
    """A generator that answers one number; nearly all that was not synced survives with 0.999."""

    def __init__(self, value: float) -> None:
        self._value = min(value, 0.999)

    def random(self) -> float:
        return self._value


def test_c11_replay_keeps_the_order_and_the_entries_say_where_they_belong() -> None:
    """Replay would apply entries of a partition out of order, or to another one."""
    node = Node(splits=(b"tab.m",), sync_s=0.01)
    for i in range(30):
        node.put(b"tab.a", b"left %d" % i)
        node.put(b"tab.z", b"right %d" % i)
    indexes = [replica.state.index for replica in node.manager.replicas()]
    after = Node(
        splits=(b"tab.m",),
        engine=node.engine.crash(Always(0.0)),  # type: ignore[attr-defined]
        log=node.log.crash(0),
        oracle_last=node.oracle.last,
    )
    assert after.host.counters.entries_replayed > 0
    assert after.get(b"tab.a")[0] == b"left 29"
    assert after.get(b"tab.z")[0] == b"right 29"
    assert all(r.state.index > i for r, i in zip(after.manager.replicas(), indexes, strict=True))
    assert len(after.engine.scan("hist", b"", b"")) == 58


def test_c12_concurrent_writers_share_syncs() -> None:
    """Every write would pay for its own sync."""
    node = Node()
    before = node.host.counters.syncs
    rids = []
    for i in range(200):
        rids.append(send_put(node, b"tab.k%d" % i))
        if i % 10 == 0:
            node.timers.run(0.0005)
    for rid in rids:
        node.reply(rid)
    assert 2 <= node.host.counters.syncs - before < 40


def test_c13_nobody_is_answered_before_its_sync_and_a_failed_one_fails_exactly_them() -> None:
    """A writer would be told "done" by another one's sync, or hear nothing when its own fails."""
    node = Node(sync_s=0.01)
    done = send_put(node, b"tab.a")
    version = node.reply(done)[0]
    flying = [send_put(node, b"tab.b%d" % i) for i in range(3)]
    in_flight(node)
    waiting = send_put(node, b"tab.c")
    node.settle(lambda: b"tab.c" in node.machine().view.open.pending)
    assert not set(node.conn.rows) & {*flying, waiting}
    node.syncer.fail_with = OSError("the disk is gone")
    assert all(isinstance(node.error(rid), UnknownOutcome) for rid in flying)
    assert isinstance(node.error(waiting), NotLeader)
    assert node.fatal
    assert node.conn.rows[done] == [done, 0, version]
    assert isinstance(node.error(send_put(node, b"tab.d")), NotLeader)


def test_c14_every_acknowledged_write_survives() -> None:
    """An acknowledged write would be lost with the power."""
    node = Node()
    versions = {b"tab.k%02d" % i: node.put(b"tab.k%02d" % i, b"%d" % i) for i in range(20)}
    for seed in range(5):
        node = node.crash(seed)
        for i, (key, version) in enumerate(versions.items()):
            assert node.get(key) == (b"%d" % i, version)


BAD: list[tuple[int, list[Any], type[KvorumError]]] = [
    (methods.PUT, ["k", b"v", None, 0], InvalidArgument),
    (methods.PUT, [b"tab.k", "v", None, 0], InvalidArgument),
    (methods.PUT, [b"tab.k", b"v", -1, 0], InvalidArgument),
    (methods.PUT, [b"tab.k", b"v", True, 0], InvalidArgument),
    (methods.PUT, [b"tab.k", b"v", None, -5], InvalidArgument),
    (methods.PUT, [b"tab.k", b"v", None], InvalidArgument),
    (methods.PUT, [b"tab.k", b"v", None, 0, 0], InvalidArgument),
    (methods.PUT, [b"k" * (KEY_BYTES_MAX + 5), b"v", None, 0], TooLarge),
    (methods.PUT, [b"tab.k", bytes(VALUE_BYTES_MAX + 1), None, 0], TooLarge),
    (methods.PUT, [b"tab", b"v", None, 0], InvalidArgument),
    (methods.GET, [b"tab", 0, None], InvalidArgument),
    (methods.GET, [b"", 0, None], InvalidArgument),
    (methods.DELETE, [b"tab", None], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k"), put_op(b"tab")], 0, 0], InvalidArgument),
    (methods.MGET, [[b"tab.k", b""], 0, None], InvalidArgument),
    (methods.PREWRITE, [5, b"tab", 1000, [put_op(b"tab.k")], 0], InvalidArgument),
    (methods.RESOLVE, [5, 6, [b"tab.k", b"tab"]], InvalidArgument),
    (methods.ROLLBACK, [b"tab", 5], InvalidArgument),
    (methods.GET, [b"tab.k", -1, None], InvalidArgument),
    (methods.GET, [b"tab.k", 0, "x"], InvalidArgument),
    (methods.GET, [5, 0, None], InvalidArgument),
    (methods.GET, [b"tab.k", 1 << 63, None], InvalidArgument),
    (methods.DELETE, [b"tab.k", "x"], InvalidArgument),
    (methods.WRITE, [[], 0, 0], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k")], 0, 0, {"speed": 9}], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k")], 0, 0, {"owner": 9}], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k")], 0, 0, []], InvalidArgument),
    (methods.PREWRITE, [5, b"tab.k", 1000, [put_op(b"tab.k")], 0, {b"x": 1}], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k"), put_op(b"tab.k")], 0, 0], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k"), [9, b"tab.x", None, None, 0]], 0, 0], InvalidArgument),
    (
        methods.WRITE,
        [[put_op(b"tab.k"), [OP_DELETE, b"tab.x", b"v", None, 0]], 0, 0],
        InvalidArgument,
    ),
    (
        methods.WRITE,
        [[put_op(b"tab.k"), [OP_CHECK, b"tab.x", None, None, 0]], 0, 0],
        InvalidArgument,
    ),
    (methods.WRITE, [[put_op(b"tab.k"), [OP_PUT, b"tab.x", b"v"]], 0, 0], InvalidArgument),
    (methods.WRITE, [[put_op(b"tab.k")] * (BATCH_OPS_MAX + 1), 0, 0], TooLarge),
    (methods.WRITE, [[put_op(b"tab.k%d" % i, bytes(1 << 22)) for i in range(5)], 0, 0], TooLarge),
    (methods.MGET, [b"tab.k", 0, None], InvalidArgument),
    (methods.SCAN, [b"tab.z", b"tab.a", 0, 10, False, None], InvalidArgument),
    (methods.SCAN, [b"tab.a", b"tab.z", 0, 0, False, None], InvalidArgument),
    (methods.SCAN, [b"tab.a", b"tab.z", 0, 10, 1, None], InvalidArgument),
    (methods.PREWRITE, [0, b"tab.k", 1000, [put_op(b"tab.k")], 0], InvalidArgument),
    (methods.PREWRITE, [5, b"tab.k", 10**9, [put_op(b"tab.k")], 0], InvalidArgument),
    (methods.RESOLVE, [5, 6, [b"tab.k", b"tab.k"]], InvalidArgument),
    (methods.COMMIT, [b"tab.k", 5, 0], InvalidArgument),
    (99, [b"tab.k"], InvalidArgument),
]


@each(("method", "args", "error"), BAD)
def test_c15_bad_input_is_refused_with_nothing_written(
    method: int, args: list[Any], error: type[KvorumError]
) -> None:
    """Bad input would be written half, or stop the partition."""
    node = Node()
    node.put(b"tab.k", b"v")
    before = node.engine.stats()["keys"]
    refused = node.error(node.send(method, b"tab.k", *args))
    assert type(refused) is error, refused
    if error is TooLarge:
        assert refused.details["actual"] > refused.details["limit"]
        assert str(refused.details["limit"]) in refused.message
    assert node.engine.stats()["keys"] == before
    assert node.get(b"tab.k")[0] == b"v"
    assert not node.fatal


def test_c16_ordered_iteration_while_inserting() -> None:
    """A scan in pages would skip a key that was there all the time."""
    node = Node()
    stable = [b"tab.s%03d" % i for i in range(0, 200, 2)]
    node.call(methods.WRITE, b"tab.s", [put_op(key) for key in stable], 0, 0)
    found: list[bytes] = []
    start, n = b"tab.s", 0
    while True:
        items, resume = node.call(methods.SCAN, start, start, b"tab.t", 0, 7, False, None)
        found += [item[0] for item in items]
        for _ in range(5):
            node.put(b"tab.s%03d" % (n * 37 % 200 | 1), b"new")
            n += 1
        if resume is None:
            break
        start = resume
    assert [key for key in found if key in set(stable)] == stable
    assert found == sorted(set(found))


# ------------------------------------------------------------------ timestamps


@pytest.mark.parametrize("batch", [False, True])
def test_read_waits_for_commits_in_flight_at_or_below_it(batch: bool) -> None:
    """A snapshot would be read without a version whose timestamp lies below it: it would change."""
    node = Node()
    node.put(b"tab.k", b"old")
    if batch:
        rid = node.send(methods.WRITE, b"tab.k", [put_op(b"tab.k", b"new")], 0, 0)
    else:
        rid = send_put(node, b"tab.k", b"new")
    in_flight(node)
    read_ts = node.oracle(1)
    get = node.send(methods.GET, b"tab.k", b"tab.k", read_ts, None)
    mget = node.send(methods.MGET, b"tab.k", [b"tab.a", b"tab.k"], read_ts, None)
    scan = node.send(methods.SCAN, b"tab.a", b"tab.a", b"tab.z", read_ts, 10, False, None)
    other = node.send(methods.GET, b"tab.z", b"tab.z", read_ts, None)
    assert node.reply(other) == [None, 0]
    assert not {rid, get, mget, scan} & set(node.conn.rows), "only the untouched key may be read"
    version = node.reply(rid)[0]
    assert version < read_ts
    assert node.reply(get) == [b"new", version]
    assert node.reply(mget) == [[None, [b"new", version]]]
    assert node.reply(scan) == [[(b"tab.k", b"new", version)], None]
    assert node.manager.partition_counters.waited == 3


def test_read_waits_for_a_version_hidden_by_a_newer_one_in_flight() -> None:
    """With two versions of a key in one entry, a reader between them would get neither."""
    node = Node()
    node.put(b"other", b"")
    blocker = send_put(node, b"other")
    in_flight(node)
    first = send_put(node, b"tab.k", b"1")
    node.settle(lambda: b"tab.k" in node.machine().view.open.pending)
    read_ts = node.oracle(1)
    get = node.send(methods.GET, b"tab.k", b"tab.k", read_ts, None)
    second = send_put(node, b"tab.k", b"2")
    version = node.reply(first)[0]
    assert node.reply(get) == [b"1", version]
    assert version < read_ts < node.reply(second)[0]
    assert node.reply(blocker)


def test_a_read_below_what_is_in_flight_does_not_wait() -> None:
    """Every snapshot read of a busy key would wait for the disk."""
    node = Node()
    version = node.put(b"tab.k", b"old")
    rid = send_put(node, b"tab.k", b"new")
    in_flight(node)
    assert node.get(b"tab.k", at=version) == (b"old", version)
    assert rid not in node.conn.rows


def test_commit_timestamps_are_taken_after_every_read_served() -> None:
    """A commit below a snapshot that was read already would change the snapshot."""
    node = Node()
    for i in range(20):
        read_ts = node.oracle(1)
        get = node.send(methods.GET, b"tab.k", b"tab.k", read_ts, None)
        put = send_put(node, b"tab.k", b"%d" % i)
        value, version = node.reply(get)
        assert node.reply(put)[0] > read_ts > version
        assert node.get(b"tab.k", at=read_ts) == (value, version)


def test_one_timestamp_range_per_drain() -> None:
    """Every put would ask the oracle on its own."""
    node = Node()
    before = node.oracle.takes
    rids = [send_put(node, b"tab.k%d" % i) for i in range(50)]
    for rid in rids:
        node.reply(rid)
    assert node.oracle.takes == before + 1


def test_reads_in_the_future_are_refused() -> None:
    """A snapshot that is not over yet would change after it was read."""
    node = Node()
    future = compose(START_MS + 60_000)
    refused = node.error(node.send(methods.GET, b"tab.k", b"tab.k", future, None))
    assert isinstance(refused, InvalidArgument)
    assert refused.details["at"] == future
    assert node.put(b"tab.k", b"v") < future


def test_an_oracle_that_falls_back_stops_writes() -> None:
    """A version below an existing one would be written: history would be out of order."""
    node = Node()
    version = node.put(b"tab.k", b"1")

    node.machine()._timestamps = AtOnce(lambda n: version)
    refused = node.error(send_put(node, b"tab.k", b"2"))
    assert isinstance(refused, Unavailable)
    assert node.get(b"tab.k") == (b"1", version)


def test_no_timestamps_no_writes_but_reads() -> None:
    """While the oracle's bound is not raised, replies would be lost, or reads would fail too."""
    node = Node()
    version = node.put(b"tab.k", b"1")
    node.oracle.stuck = True
    assert isinstance(node.error(send_put(node, b"tab.k", b"2")), Unavailable)
    assert node.get(b"tab.k") == (b"1", version)
    done: list[Any] = []
    node.machine().put_meta(b"tso", b"bound", done.append)
    node.settle(lambda: bool(done))
    assert done == [None], "the bound itself needs no timestamp"
    assert node.engine.getter("meta")(b"tso") == b"bound"
    node.oracle.stuck = False
    assert node.put(b"tab.k", b"2") > version


def test_prewrites_in_flight_do_not_stop_readers_and_their_bound_covers_them() -> None:
    """A reader that passed a prewrite in flight would be overtaken by its commit."""
    node = Node()
    start = node.oracle(1)
    rid = node.send(methods.PREWRITE, b"tab.k", start, b"tab.k", 5000, [put_op(b"tab.k")], 0)
    in_flight(node)
    again = node.send(methods.PREWRITE, b"tab.k", start, b"tab.z", 5000, [put_op(b"tab.k")], 0)
    node.timers.run(0.0)
    read_ts = node.oracle(1)
    assert node.get(b"tab.k", at=read_ts) == (None, 0)
    assert node.reply(rid)[0] > read_ts
    assert node.reply(again)[0] > read_ts


def test_d10_reader_pushes_and_reads_on() -> None:
    """A reader would wait for a writer, or the writer would commit below the reader's snapshot."""
    node = Node()
    node.put(b"tab.k", b"old")
    start = node.oracle(1)
    prewrite(node, start, put_op(b"tab.k", b"new"), anchor=b"tab.k")
    commit_ts = node.oracle(1)
    read_ts = node.oracle(1)
    locked = node.error(node.send(methods.GET, b"tab.k", b"tab.k", read_ts, None))
    assert isinstance(locked, KeyLocked)
    d = locked.details
    answer = node.call(methods.CHECK, d["anchor"], d["anchor"], d["txn"], read_ts, d["ttl_ms"])
    assert answer[0] == PENDING
    assert node.get(b"tab.k", at=read_ts, ignore=[start])[0] == b"old"
    assert node.call(methods.COMMIT, b"tab.k", b"tab.k", start, commit_ts) == [
        PENDING,
        0,
        read_ts + 1,
    ]
    later = node.oracle(1)
    assert node.call(methods.COMMIT, b"tab.k", b"tab.k", start, later)[:2] == [COMMITTED, later]
    node.call(methods.RESOLVE, b"tab.k", start, later, [b"tab.k"])
    assert node.get(b"tab.k", at=read_ts)[0] == b"old"
    assert node.get(b"tab.k") == (b"new", later)


def test_resolution_in_flight_is_not_a_lost_read() -> None:
    """A reader would be told "locked" by an intent that is being resolved, or miss its version."""
    node = Node()
    start = node.oracle(1)
    prewrite(node, start, put_op(b"tab.k", b"new"), anchor=b"tab.k")
    commit_ts = node.oracle(1)
    node.call(methods.COMMIT, b"tab.k", b"tab.k", start, commit_ts)
    resolve = node.send(methods.RESOLVE, b"tab.k", start, commit_ts, [b"tab.k"])
    in_flight(node)
    read_ts = node.oracle(1)
    reads = [
        node.send(methods.GET, b"tab.k", b"tab.k", read_ts, None),
        node.send(methods.GET, b"tab.k", b"tab.k", 0, None),
        node.send(methods.SCAN, b"tab.k", b"tab.k", b"tab.l", 0, 9, False, None),
    ]
    older = node.send(methods.GET, b"tab.k", b"tab.k", start - 1, None)
    assert node.reply(older) == [None, 0]
    assert resolve not in node.conn.rows
    assert node.reply(reads[0]) == [b"new", commit_ts]
    assert node.reply(reads[1]) == [b"new", commit_ts]
    assert node.reply(reads[2]) == [[(b"tab.k", b"new", commit_ts)], None]
    assert node.reply(resolve) == [1, 0]


def test_refusals_wait_for_what_they_saw() -> None:
    """A refusal would tell of a version that a crash takes back."""
    node = Node()
    first = send_put(node, b"tab.k", b"1")
    in_flight(node)
    second = send_put(node, b"tab.k", b"2", cond=0)
    check = node.send(methods.WRITE, b"tab.k", [[OP_CHECK, b"tab.k", None, 5, 0]], 0, 0)
    node.timers.run(0.0004)
    assert not {first, second, check} & set(node.conn.rows)
    version = node.reply(first)[0]
    refused = node.error(second)
    assert isinstance(refused, ConditionFailed)
    assert refused.details["version"] == str(version)
    assert isinstance(node.error(check), ConditionFailed)
    writer, refused_at_once = send_put(node, b"tab.k", b"3"), send_put(node, b"tab.k", b"4", cond=0)
    in_flight(node)
    node.timers.run(0.0004)
    assert not {writer, refused_at_once} & set(node.conn.rows), "both were in one drain"
    assert node.error(refused_at_once).details["version"] == str(node.reply(writer)[0])


def test_conflict_with_a_version_in_flight() -> None:
    """Two transactions that read the same version would both commit: a lost update."""
    node = Node()
    start = node.oracle(1)
    rid = node.send(methods.WRITE, b"tab.k", [put_op(b"tab.k", b"1")], start, 0)
    other = node.send(methods.WRITE, b"tab.k", [put_op(b"tab.k", b"2")], start + 0, 0)
    late = node.oracle(1)
    stale = node.send(
        methods.WRITE, b"tab.x", [put_op(b"tab.x"), put_op(b"tab.k", b"3")], start - 1, 0
    )
    version = node.reply(rid)[0]
    assert node.reply(other)[0] == version, "the same id: its recorded outcome"
    refused = node.error(stale)
    assert isinstance(refused, WriteConflict)
    assert refused.details["conflict_ts"] == version
    assert late < version
    assert node.manager.find_txn(start) == b"tab.k"


# ------------------------------------------------------------------ limits, routing, loss


def test_expired_budget_is_not_executed() -> None:
    """A request whose caller has given up would still be written."""
    node = Node()
    rid = node.send(methods.PUT, b"tab.k", b"tab.k", b"v", None, 0, budget_s=-0.001)
    assert isinstance(node.error(rid), DeadlineExceeded)
    assert node.get(b"tab.k") == (None, 0)


def test_queue_limits() -> None:
    """A queue without a bound would eat the memory of the node."""
    node = Node()
    machine = node.machine()
    conn = Conn()
    for rid in range(QUEUE_REQUESTS_MAX + 3):
        machine.submit(conn, [rid, methods.GET, 1e9, 1, 1, b"tab.k", 0, None])
    node.settle(lambda: len(conn.rows) == QUEUE_REQUESTS_MAX + 3)
    refused = [row for row in conn.rows.values() if row[1]]
    assert [row[2] for row in refused] == [Busy.code] * 3
    assert refused[0][5]["limit"] == QUEUE_REQUESTS_MAX


def test_queue_bytes_are_bounded_while_the_disk_is_busy() -> None:
    """Large values would pile up behind a slow disk without a bound."""
    node = Node(sync_s=1.0)
    value = bytes(VALUE_BYTES_MAX)
    rids = []
    for i in range(45):
        key = b"tab.k%02d" % i
        rids.append(node.send(methods.PUT, key, key, value, None, 0, budget_s=1000))
        node.timers.run(0.0)
    node.timers.run(0.5)
    refused = [rid for rid in rids if rid in node.conn.rows]
    assert 5 < len(refused) < 20
    assert all(isinstance(node.error(rid), Busy) for rid in refused)
    for rid in rids:
        if rid not in refused:
            node.settle(lambda rid=rid: rid in node.conn.rows, 60)  # type: ignore[misc]
            assert node.conn.rows[rid][1] == 0
    assert node.host.counters.entries_appended > 10


def test_a_full_entry_holds_writes_in_order_and_lets_reads_pass() -> None:
    """Behind a slow disk and large values, reads would wait too, or writes change their order."""
    node = Node(sync_s=1.0)
    old = node.put(b"tab.k", b"old")
    value = bytes(VALUE_BYTES_MAX)
    rids = []
    for i in range(6):
        rids.append(node.send(methods.PUT, b"tab.k", b"tab.k", value + b"", None, 0, budget_s=100))
        node.timers.run(0.0)
        assert node.get(b"tab.k") == (b"old", old), i
    late = node.send(methods.PUT, b"tab.k", b"tab.k", b"late", None, 0, budget_s=1.5)
    small = node.send(methods.PUT, b"tab.z", b"tab.z", b"v", None, 0, budget_s=100)
    assert node.get(b"tab.z") == (None, 0)
    for rid in (*rids, late, small):
        node.settle(lambda rid=rid: rid in node.conn.rows, 60)  # type: ignore[misc]
    versions = [node.conn.rows[rid][2] for rid in (*rids, small)]
    assert versions == sorted(versions)
    assert node.conn.rows[late][2] == DeadlineExceeded.code


def test_a_step_of_the_loop_looks_at_a_bounded_number_of_rows() -> None:
    """A burst of scans would hold the loop until heartbeats are late."""
    node = Node()
    for i in range(3):
        ops = [put_op(b"tab.k%d%03d" % (i, j)) for j in range(500)]
        node.call(methods.WRITE, b"tab.k", ops, 0, 0)
    scans = [
        node.send(methods.SCAN, b"tab.k", b"tab.k", b"tab.l", 0, 1000, False, None)
        for _ in range(25)
    ]
    get = node.send(methods.GET, b"tab.k", b"tab.k0000", 0, None)
    before = node.manager.partition_counters.drains
    replies = [node.reply(rid) for rid in scans]
    assert all(reply == replies[0] for reply in replies)
    assert len(replies[0][0]) == 1000
    assert node.reply(get)[0] == b"v"
    assert node.manager.partition_counters.drains - before == 3


def test_wrong_epoch_or_range_is_moved() -> None:
    """A stale client would read or write a range that another partition serves."""
    node = Node(splits=(b"tab.m",))
    left = node.machine(b"tab.a")
    for epoch, request in (
        (9, [methods.GET, b"tab.a", 0, None]),
        (1, [methods.GET, b"tab.z", 0, None]),
        (1, [methods.PUT, b"tab.z", b"v", None, 0]),
        (1, [methods.MGET, [b"tab.a", b"tab.z"], 0, None]),
        (1, [methods.WRITE, [put_op(b"tab.a"), put_op(b"tab.z")], 0, 0]),
        (1, [methods.SCAN, b"tab.a", b"tab.z", 0, 9, False, None]),
        (1, [methods.SCAN, b"tab.a", b"", 0, 9, False, None]),
        (1, [methods.PREWRITE, 5, b"tab.a", 1000, [put_op(b"tab.z")], 0]),
        (1, [methods.COMMIT, b"tab.z", 5, 6]),
        (1, [methods.RESOLVE, 5, 6, [b"tab.a", b"tab.z"]]),
    ):
        conn = Conn()
        left.submit(conn, [1, request[0], 1e9, 1, epoch, *request[1:]])
        node.settle(lambda conn=conn: 1 in conn.rows)  # type: ignore[misc]
        assert conn.rows[1][2] == Moved.code
        assert conn.rows[1][5]["descriptor"] == left.descriptor.to_wire()
    assert node.call(methods.SCAN, b"tab.a", b"", b"tab.m", 0, 9, False, None) == [[], None]


def test_stop_tells_what_is_certain() -> None:
    """A write whose outcome is open would be reported as failed, or a waiting one as unknown."""
    node = Node(sync_s=1.0)
    flying = send_put(node, b"tab.a")
    in_flight(node)
    evaluated = send_put(node, b"tab.b")
    read = node.send(methods.GET, b"tab.a", b"tab.a", node.oracle(1), None)
    node.settle(lambda: b"tab.b" in node.machine().view.open.pending)
    queued = send_put(node, b"tab.c")
    node.host.close()
    assert isinstance(node.error(flying), UnknownOutcome)
    for rid in (evaluated, read, queued):
        assert isinstance(node.error(rid), NotLeader)
    after = send_put(node, b"tab.d")
    assert isinstance(node.error(after), NotLeader)


def test_one_flush_per_connection_and_drain() -> None:
    """Every reply would be its own write to the socket."""
    node = Node()
    for i in range(30):
        node.put(b"tab.k%d" % i, b"v")
    before = node.conn.flushes
    gets = [node.send(methods.GET, b"tab.k%d" % i, b"tab.k%d" % i, 0, None) for i in range(30)]
    puts = [send_put(node, b"tab.k%d" % i) for i in range(30)]
    for rid in (*gets, *puts):
        node.reply(rid)
    assert node.conn.flushes == before + 2


def test_a_state_db_that_refuses_delays_but_loses_nothing() -> None:
    """A write stall would stop the replica, or acknowledge what is not applied."""
    node = Node()
    node.put(b"tab.k", b"1")
    rid = send_put(node, b"tab.k", b"2")
    in_flight(node)
    node.engine.fail_writes(Unavailable("write stall"), 3)  # type: ignore[attr-defined]
    node.timers.run(0.03)
    assert rid not in node.conn.rows
    assert node.get(b"tab.k")[0] == b"1"
    refused = node.error(send_put(node, b"tab.k", b"3"))
    assert isinstance(refused, Unavailable)
    version = node.reply(rid)[0]
    assert node.get(b"tab.k") == (b"2", version)
    assert node.put(b"tab.k", b"4") > version
    assert not node.fatal


@pytest.mark.parametrize(
    ("n", "key_bytes", "value_bytes"), [(3, 30, VALUE_BYTES_MAX), (BATCH_OPS_MAX, 300, 1300)]
)
def test_the_largest_batches_fit_an_entry(n: int, key_bytes: int, value_bytes: int) -> None:
    """A batch within the documented limits would be refused by a limit of the log."""
    node = Node()
    keys = [b"tab.k%05d" % i + b"k" * key_bytes for i in range(n)]
    batch = [[OP_PUT, key, bytes(value_bytes), None, 60_000] for key in keys]
    for _ in range(2):  # the second time with old versions and rows of the collector
        version = node.call(methods.WRITE, b"tab.k", batch, 0, 0)[0]
        assert node.get(keys[-1])[1] == version
    assert node.host.counters.bytes_appended < 2 * ENTRY_BYTES_MAX


def test_commands_that_fit_an_entry_each_but_not_together_take_two() -> None:
    """Both were refused by the log, with everybody else in the entry."""
    node = Node()
    keys = [b"tab.k%05d" % i + b"k" * 1600 for i in range(6_700)]
    node.call(methods.WRITE, b"tab.k", [put_op(key) for key in keys], 0, 0)
    entries = node.manager.partition_counters.entries
    first = send_put(node, b"tab.a", bytes(ENTRY_TARGET_BYTES - 100_000))
    batch = [[OP_PUT, key, b"w", None, 60_000] for key in keys]  # each key three times in the log
    second = node.send(methods.WRITE, b"tab.k", batch, 0, 0)
    assert node.reply(first)
    assert node.reply(second)
    assert node.manager.partition_counters.entries - entries == 2
    assert node.get(keys[0])[0] == b"w"


def test_a_batch_of_huge_keys_is_refused_whole() -> None:
    """A batch that does not fit an entry would stop the partition, or take its neighbours along."""
    node = Node()
    keys = [b"tab.k%05d" % i + b"k" * 1600 for i in range(BATCH_OPS_MAX)]
    version = node.call(methods.WRITE, b"tab.k", [put_op(key) for key in keys], 0, 0)[0]
    batch = [
        [OP_PUT, key, b"tab.w", None, 60_000] for key in keys
    ]  # each key three times in the log
    neighbour = send_put(node, b"tab.n")
    refused = node.error(node.send(methods.WRITE, b"tab.k", batch, 0, 0))
    assert isinstance(refused, TooLarge)
    assert refused.details["what"] == "log entry bytes"
    assert node.reply(neighbour)
    assert node.get(keys[0]) == (b"v", version)
    assert not node.fatal


class Damaged(MemoryEngine):
    """A block of family cur cannot be read: the one with this key."""

    BAD = b"tab.bad"

    def getter(self, name: str) -> Getter:
        get = super().getter(name)

        def read(key: bytes) -> bytes | None:
            if name == "cur" and key == self.BAD:
                raise Corruption("a block is damaged", details={"key": key, "file": "000012.sst"})
            return get(key)

        return read

    def multi_getter(self, name: str) -> MultiGetter:
        get = self.getter(name)
        return lambda keys: [get(key) for key in keys]


@pytest.mark.parametrize("n", [10, 200])
def test_damage_in_a_file_fails_only_who_asked_for_it(n: int) -> None:
    """Reading ahead for a busy drain met the damage of one key: nobody of the drain was answered,
    and their connections waited for ever.
    """
    node = Node(engine=Damaged(STATE_FAMILIES))
    keys = [b"tab.%03d" % i for i in range(n)]
    rids = [send_put(node, key) for key in keys]
    bad = [send_put(node, Damaged.BAD), node.send(methods.GET, Damaged.BAD, Damaged.BAD, 0, None)]
    rids += [node.send(methods.GET, key, key, 0, None) for key in keys]
    for rid in bad:
        assert isinstance(node.error(rid), Corruption)
    for rid in rids:
        assert node.reply(rid)
    assert node.get(keys[-1])[0] == b"v"
    assert not node.fatal


@pytest.mark.slow
def test_replacing_large_values_is_bounded_by_bytes() -> None:
    """A burst of small puts over large values would load all of them into memory at once."""
    node = Node(sync_s=0.01)
    keys = [b"tab.%03d" % i for i in range(100)]
    for key in keys:
        node.put(key, bytes(MiB))
    rids = [send_put(node, key, b"small") for key in keys]
    kept = []
    while not all(rid in node.conn.rows for rid in rids):
        view = node.machine().view
        entries = [entry for entry in (view.open, view.flying) if entry is not None]
        kept.append(sum(len(row[3] or b"") for entry in entries for row in entry.rows))
        node.timers.run(0.001)
    assert 0 < max(kept) <= 2 * (ENTRY_TARGET_BYTES + 2 * MiB), max(kept)
    assert [node.get(key)[0] for key in keys] == [b"small"] * 100


def test_large_old_versions_stay_out_of_the_log() -> None:
    """Overwriting large values would send every old version through the log once more."""
    node = Node()
    big = bytes(100_000)
    v1 = node.put(b"tab.k", big + b"1")
    before = node.host.counters.bytes_appended
    rids = [send_put(node, b"tab.k", big + b"%d" % i) for i in (2, 3)]
    versions = [v1, *(node.reply(rid)[0] for rid in rids)]
    assert node.host.counters.bytes_appended - before < 210_000
    leader_wrote = node.engine.scan("hist", b"", b"")
    after = Node(
        engine=node.engine.crash(Always(0.0)),  # type: ignore[attr-defined]
        log=node.log.crash(0),
        oracle_last=node.oracle.last,
    )
    for i, version in enumerate(versions):
        assert after.get(b"tab.k", at=version) == (big + b"%d" % (i + 1), version)
    assert after.engine.scan("hist", b"", b"") == leader_wrote
