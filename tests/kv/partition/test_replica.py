"""Replicas and the node's set of them: replay, damage, cutting the log, creating and dropping,
collecting.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kv.base import methods
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Corruption,
    InvalidArgument,
    KeyLocked,
    SnapshotTooOld,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import (
    LOCK_INLINE_BYTES_MAX,
    TXN_LIFETIME_MS_MAX,
    TXN_STATUS_RETENTION_MS,
    MiB,
)
from kv.base.methods import ABORTED, COMMITTED, OP_CHECK, OP_DELETE, OP_PUT
from kv.base.timestamps import compose
from kv.mvcc.records import Lock
from kv.partition.entry import Entry, decode
from kv.partition.locks import LockMirror
from kv.storage.engine import STATE_FAMILIES, Engine
from kv.storage.memory import MemoryEngine
from kv.storage.rocks import RocksEngine
from raft.replica import Replica as Group
from tests.kv.partition.node import START_MS, Node, run


def state_hash(engine: Engine) -> str:
    """Of everything that replicas must agree on."""
    digest = hashlib.sha256()
    for family in STATE_FAMILIES:
        for key, value in engine.scan(family, b"", b""):
            digest.update(b"%s %d %s %s" % (family.encode(), len(key), key, value))
    return digest.hexdigest()


def busy(node: Node, rng: random.Random, steps: int) -> None:
    """Random commands of every kind, many in flight."""
    keys = [b"tab.k%02d" % i for i in range(30)] + [b"tab.z%02d" % i for i in range(10)]
    open_txns: list[tuple[int, bytes]] = []
    rids: list[int] = []
    send = partial(node.send, budget_s=0.03)  # whoever meets an intent does not wait long
    for _ in range(steps):
        key = rng.choice(keys)
        value = bytes(rng.choice((1, 20, 700, 3000)))
        match rng.randrange(9):
            case 0 | 1 | 2:
                ttl = rng.choice((0, 0, 50))
                rids.append(send(methods.PUT, key, key, value, None, ttl))
            case 3:
                rids.append(send(methods.DELETE, key, key, None))
            case 4:
                group = [k for k in keys if k[:5] == key[:5]]
                ops = [[OP_PUT, k, value, None, 0] for k in rng.sample(group, 5)]
                start = rng.choice((0, node.oracle(1)))
                rids.append(send(methods.WRITE, key, ops, start, 0))
            case 5:
                start = node.oracle(1)
                op = [OP_PUT, key, value, None, 0]
                more = [{"ranges": [[key, key + b"\xff"]]}] if len(open_txns) % 2 == 0 else []
                rids.append(send(methods.PREWRITE, key, start, key, 1000, [op], 0, *more))
                open_txns.append((start, key))
            case 6 if open_txns:
                start, anchor = open_txns.pop()
                ts = node.oracle(1)
                rids.append(send(methods.COMMIT, anchor, anchor, start, ts))
                rids.append(send(methods.CHECK, anchor, anchor, start, 0, 1000))
            case 7 if open_txns:
                start, anchor = open_txns.pop()
                rids.append(send(methods.ROLLBACK, anchor, anchor, start))
                rids.append(send(methods.RESOLVE, anchor, start, 0, [anchor]))
            case _:
                node.timers.run(rng.random() * 0.003)
    for rid in rids:
        node.settle(lambda rid=rid: rid in node.conn.rows)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(6))
def test_f2_replay_gives_the_same_state(seed: int) -> None:
    """A replica that replays the log would differ from the leader that wrote its own batches."""
    node = Node(splits=(b"tab.m",))
    busy(node, random.Random(seed), 150)
    assert node.collect(b"tab.k", node.oracle(1) - (5 << 18), 0) is None
    node.timers.run(1.0)
    wanted, locks = state_hash(node.engine), node.locks(b"tab.k")
    indexes = [replica.state.index for replica in node.manager.replicas()]
    fresh = MemoryEngine(STATE_FAMILIES)
    follower = Node(
        splits=(b"tab.m",), engine=fresh, log=node.log.crash(0), oracle_last=node.oracle.last
    )
    assert follower.host.counters.entries_replayed >= sum(indexes) - 2
    for engine in (node.engine, fresh):  # the applied index moved on by the new term's first entry
        batch = engine.batch()
        for pid in (1, 2):
            batch.delete(b"r" + pid.to_bytes(8, "big") + b"a", engine.family("meta"))
            # estimates of this replica alone: a follower is not sent every old version
            batch.delete(b"r" + pid.to_bytes(8, "big") + b"t", engine.family("meta"))
        engine.write(batch)
    assert state_hash(fresh) == state_hash(node.engine)
    assert wanted
    mirror = follower.locks(b"tab.k")
    assert mirror.keys() == locks.keys()
    for old, new in zip(node.manager.replicas(), follower.manager.replicas(), strict=True):
        assert new.state.old_versions == old.state.old_versions
        assert new.state.live_bytes == old.state.live_bytes
        assert new.state.guards.by_at == old.state.guards.by_at
    assert any(replica.state.guards.by_at for replica in node.manager.replicas())


def test_counters_are_what_is_stored() -> None:
    """The collector's and the splitter's counters would drift away from the data."""
    node = Node()
    busy(node, random.Random(5), 300)
    state = node.manager.replicas()[0].state
    assert state.old_versions == len(node.engine.scan("hist", b"", b"")) > 10
    stored = sum(len(key) + len(value) for key, value in node.engine.scan("cur", b"", b""))
    assert state.live_bytes == stored
    node.timers.run(2.0)
    assert node.collect(b"tab.k", node.oracle(1)) is None
    assert state.old_versions == len(node.engine.scan("hist", b"", b""))
    stored = sum(len(key) + len(value) for key, value in node.engine.scan("cur", b"", b""))
    assert state.live_bytes == stored


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(25))
def test_c14_random_crashes(seed: int) -> None:
    """After a power loss an acknowledged write would be missing, a batch half there, or a version
    lower than before.
    """
    rng = random.Random(seed)
    node = Node(splits=(b"tab.m",), keep=rng.choice((2, 1000)))
    acked: dict[bytes, tuple[int, int]] = {}  # key → (version, serial)
    sent: dict[int, tuple[list[bytes], int]] = {}
    serial, highest = 0, 0
    for _ in range(4):
        for _ in range(rng.randrange(5, 60)):
            serial += 1
            prefix = rng.choice((b"tab.a", b"tab.z"))
            keys = rng.sample([prefix + b"%d" % i for i in range(4)], rng.randrange(1, 4))
            value = (b"%d " % serial) + bytes(rng.choice((0, 600)))
            ops = [[OP_PUT, key, value, None, 0] for key in keys]
            sent[node.send(methods.WRITE, keys[0], ops, 0, 0)] = (keys, serial)
            if rng.random() < 0.5:
                node.timers.run(rng.random() * 0.004)
            if rng.random() < 0.1:
                run(node.manager.truncate())
        for rid, row in node.conn.rows.items():
            if row[1] == 0 and rid in sent:
                for key in sent[rid][0]:
                    acked[key] = max(acked.get(key, (0, 0)), (row[2], sent[rid][1]))
                highest = max(highest, row[2])
        batches = {number: keys for keys, number in sent.values()}
        node, sent = node.crash(rng.randrange(1 << 30), keep=rng.choice((2, 1000))), {}
        assert not node.fatal
        found = {}
        for key in (prefix + b"%d" % i for prefix in (b"tab.a", b"tab.z") for i in range(4)):
            value, version = node.get(key)
            found[key] = (version, int(value.split()[0]) if value else 0)
            assert found[key] >= acked.get(key, (0, 0)), (key, found[key], acked.get(key))
        for version, number in found.values():
            for other in batches.get(number, []):
                assert found[other][0] >= version, "half a batch"
        key = b"tab.a0"
        assert node.put(key, b"%d after" % serial) > max(highest, *(v for v, _ in found.values()))
        acked[key] = (node.get(key)[1], serial)


def test_locks_are_rebuilt_at_the_start() -> None:
    """After a restart, intents would be overlooked: readers would miss commits, writers overwrite
    them.
    """
    node = Node()
    start = node.oracle(1)
    long = bytes(LOCK_INLINE_BYTES_MAX + 1)
    ops = [[OP_PUT, b"long", long, None, 0], [OP_PUT, b"short", b"s", None, 0]]
    ops += [[OP_DELETE, b"gone", None, None, 0], [OP_CHECK, b"seen", None, 0, 0]]
    node.call(methods.PREWRITE, b"long", start, b"long", 1000, ops, 0)
    after = node.crash(1)
    locks = after.locks()
    assert sorted(locks) == [b"gone", b"long", b"seen", b"short"]
    assert locks[b"long"].payload is None, "long values stay on disk"
    with pytest.raises(KeyLocked):
        after.get(b"short")
    commit_ts = after.oracle(1)
    keys = sorted(locks)
    assert after.call(methods.COMMIT, b"long", b"long", start, commit_ts)[0] == COMMITTED
    assert after.call(methods.RESOLVE, b"long", start, commit_ts, keys) == [4, 0]
    assert after.get(b"long") == (long, commit_ts)
    assert after.get(b"short") == (b"s", commit_ts)
    assert not after.engine.scan("lock", b"", b"")


def test_locks_are_rebuilt_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle of a large load leaves gigabytes of intents: read at once, they would
    not let the node start again.
    """
    node, start = Node(), 0
    keys = [b"tab.%03d" % i for i in range(80)]
    start = node.oracle(1)
    for key in keys:
        ops = [[OP_PUT, key, bytes(MiB // 2), None, 0]]
        node.call(methods.PREWRITE, key, start, keys[0], 60_000, ops, 0)
    loaded: list[int] = []
    scan = MemoryEngine.scan

    def spy(self: MemoryEngine, name: str, *args: Any, **more: Any) -> Any:
        rows = scan(self, name, *args, **more)
        if name == "lock":
            loaded.append(sum(len(value) for _, value in rows))
        return rows

    monkeypatch.setattr(MemoryEngine, "scan", spy)
    after = node.crash()
    assert sorted(after.manager.replicas()[0].state.locks) == keys
    assert max(loaded) <= 9 * MiB, max(loaded)


def test_lock_mirror_keeps_order() -> None:
    """A scan would overlook an intent, or meet one that is gone."""
    rng, mirror, model = random.Random(2), LockMirror(), dict[bytes, Lock]()
    for i in range(2000):
        key = b"tab.%d" % rng.randrange(300)
        lock = Lock(i, OP_PUT, 1, b"", 0, b"") if rng.random() < 0.6 else None
        mirror.set(key, lock)
        if lock is None:
            model.pop(key, None)
        else:
            model[key] = lock
        if rng.random() < 0.1:
            start, end = sorted(b"tab.%d" % rng.randrange(300) for _ in range(2))
            assert list(mirror.range(start, end)) == sorted(k for k in model if start <= k < end)
            assert mirror.oldest() == min((x.start_ts for x in model.values()), default=None)
    assert list(mirror.range(b"", b"")) == sorted(model)


def test_f2_corrupt_entry_stops_the_replica() -> None:
    """A damaged entry would be applied, and replicas would differ from there on."""
    node = Node()
    node.put(b"tab.k", b"v")
    entry = Entry(1)
    entry.rows.append((b"tab.k", b"record", None, None))
    command = entry.seal()
    assert decode(command, "here").rows == ((b"tab.k", b"record", None, None),)
    for at in (0, 3, 4, len(command) - 1):
        damaged = bytearray(command)
        damaged[at] ^= 1
        with pytest.raises(Corruption, match="partition 1, index 9"):
            node.manager.replicas()[0].apply(9, 1, bytes(damaged), None)
    with pytest.raises(Corruption):
        decode(b"", "nowhere")
    replica = node.manager.replicas()[0]
    rid = node.send(methods.PUT, b"tab.k", b"tab.k", b"tab.w", None, 0)
    replica.group.propose(b"\x00\x00\x00\x00garbage", object())  # type: ignore[arg-type]
    node.settle(lambda: bool(node.fatal))
    node.settle(lambda: rid in node.conn.rows)
    assert isinstance(node.fatal[0].__cause__, Corruption)
    assert not replica.serving()


def test_c14_a_damaged_log_is_an_error_of_ours_not_a_shorter_history() -> None:
    """The last entry was cut, and with it an acknowledged write that the state DB lost with the
    power; or the node ended with a traceback.
    """
    node = Node()
    for i in range(5):
        node.put(b"tab.%d" % i, b"v")
    log = node.log.crash(0)
    key = max(key for key in log.items() if len(key) == 16)
    value = log.items()[key]
    log.tamper(key, value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(Corruption, match=r"partition 1.*index 6.*backup") as caught:
        Node(engine=node.engine.crash(random.Random(2)), log=log)  # type: ignore[attr-defined]
    assert caught.value.details == {"partition": 1, "index": 6, "family": "log"}


def test_truncation_keeps_what_is_not_durable() -> None:
    """The log would grow for ever, or be cut above what the state DB still needs after a power
    loss.
    """
    node = Node(keep=10)
    for i in range(50):
        node.put(b"tab.k", b"%d" % i)
    due = node.manager.logs.due.is_set()
    assert due, "the manager was not told that the log is long"
    run(node.manager.truncate())
    assert node.manager.counters.truncations == 1
    replica = node.manager.replicas()[0]
    node.timers.run(1.0)
    assert len(node.log.items()) < 30
    for seed in range(3):
        after = node.crash(seed, keep=10)
        assert after.get(b"tab.k")[0] == b"49"
        node = after
    assert replica.state.index >= 50


@pytest.mark.parametrize("alone", [False, True])
def test_truncation_counts_bytes_too_also_those_of_earlier_lives(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand large entries are gigabytes of log, to be read again at every start. Where no
    other node will be sent them, none are kept.
    """
    monkeypatch.setattr(Group, "alone", lambda group: alone)
    node = Node(keep_bytes=100_000)
    least, most = [], []

    def write(count: int) -> None:
        for i in range(count):
            node.put(b"tab.k%d" % i, bytes(10_000))
            most.append(log_bytes())
            if node.manager.logs.due.is_set():
                node.manager.logs.due.clear()
                run(node.manager.truncate())
                node.timers.run(1.0)
                least.append(log_bytes())

    def log_bytes() -> int:
        return sum(map(len, node.log.items().values()))

    write(100)
    assert len(least) >= 5
    assert max(most) < (130_000 if alone else 240_000)
    assert max(least) < 15_000 if alone else min(least[1:]) > 90_000
    for seed in range(8):  # never alive for long enough to write as much in one life
        node.engine.sync()
        node = node.crash(seed, keep_bytes=100_000)
        write(7)
    assert log_bytes() < 300_000
    assert node.get(b"tab.k99")[0] == bytes(10_000)
    assert not node.fatal


def test_truncation_counts_only_what_was_applied_before_its_sync() -> None:
    """Entries that were applied while the sync ran would be cut, though it does not cover them."""
    node = Node(keep=1)
    for i in range(10):
        node.put(b"tab.k", b"%d" % i)

    async def slow(fn: Any) -> None:
        fn()
        for i in range(10, 20):
            node.put(b"tab.k", b"%d" % i)

    node.manager.logs._in_thread = slow
    run(node.manager.truncate())
    node.timers.run(1.0)
    assert isinstance(node.engine, MemoryEngine)

    class Nothing:
        def random(self) -> float:
            return 0.0

        def token(self, n_bytes: int) -> bytes:
            return bytes(n_bytes)

    lost = node.engine.crash(Nothing())
    after = Node(engine=lost, log=node.log.crash(0), oracle_last=node.oracle.last)
    assert not after.fatal
    assert after.get(b"tab.k")[0] == b"19"


def test_a_failed_state_sync_cuts_nothing() -> None:
    """After a failed sync the log would be cut although the state DB may have lost what it held."""
    node = Node(keep=2)
    for i in range(20):
        node.put(b"tab.k", b"%d" % i)
    before = len(node.log.items())
    assert isinstance(node.engine, MemoryEngine)
    node.engine.fail_sync(Unavailable("the disk failed"))
    run(node.manager.truncate())
    run(node.manager.truncate())
    assert len(node.log.items()) >= before
    assert len(node.fatal) == 2


# ------------------------------------------------------------------ the set of partitions


def descriptor(pid: int, start: bytes, end: bytes) -> PartitionDescriptor:
    return PartitionDescriptor(PartitionId(pid), start, end, 1, (NodeId(1),))


def test_create_is_idempotent_and_refuses_overlaps() -> None:
    """A repeated creation would fail, or two partitions would serve one key."""
    node = Node(splits=(b"tab.m",))
    run(node.manager.create(descriptor(1, b"", b"tab.m")))
    assert len(node.manager.descriptors()) == 2
    for start, end in ((b"tab.a", b"tab.b"), (b"tab.a", b""), (b"tab.z", b"")):
        with pytest.raises(InvalidArgument, match="overlaps"):
            run(node.manager.create(descriptor(9, start, end)))
    assert node.manager.covering(b"tab.a") == descriptor(1, b"", b"tab.m")
    assert node.manager.covering(b"tab.m") == descriptor(2, b"tab.m", b"")
    assert node.manager.by_id(9) is None


def test_created_is_durable() -> None:
    """A partition would be acknowledged and gone after a power loss, with all its data."""
    node = Node(splits=(b"tab.m",))
    node.put(b"tab.z", b"v")
    after = node.crash(0)
    assert [d.id for d in after.manager.descriptors()] == [1, 2]
    assert after.get(b"tab.z")[0] == b"v"


@pytest.mark.parametrize("order", ["late, then founded", "late first", "founder first"])
def test_a_founder_that_was_made_late_is_founded(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that reads the map between a new partition's row and the order to found it makes a
    replica without members: then nobody ever led it.
    """
    node = Node(splits=(b"tab.m",))
    run(node.manager.drop(PartitionId(2)))
    node.timers.run(0.1)
    founder = descriptor(3, b"tab.m", b"")
    late = replace(founder, voters=())

    async def in_thread(fn: Any) -> None:
        fn()
        await asyncio.sleep(0)

    async def both(*them: PartitionDescriptor) -> None:
        under_way = [asyncio.ensure_future(node.manager.create(one)) for one in them]
        while not all(one.done() for one in under_way):
            await asyncio.sleep(0)
            node.timers.run(0.001)
        await asyncio.gather(*under_way)

    with monkeypatch.context() as patched:
        patched.setattr(node.manager, "_in_thread", in_thread)
        if order == "late, then founded":
            asyncio.run(both(late))
            asyncio.run(both(founder))
        else:
            asyncio.run(both(late, founder) if order == "late first" else both(founder, late))
    node.settle(lambda: all(r.serving() for r in node.manager.replicas()))
    node.put(b"tab.z", b"v")
    for one in (late, founder):
        run(node.manager.create(one))
    assert node.get(b"tab.z")[0] == b"v", "what has begun stays as it is"
    assert reopened(node, random.Random(0)).get(b"tab.z")[0] == b"v"


def drop_steps(node: Node, crash_at: int) -> None:
    """Drop partition 2, but lose the power at the sync number `crash_at`."""

    class PowerLost(Exception):
        pass

    count = 0

    async def in_thread(fn: Any) -> None:
        nonlocal count
        if count == crash_at:
            raise PowerLost
        count += 1
        fn()

    node.manager._in_thread = in_thread
    try:
        run(node.manager.drop(PartitionId(2)))
    except PowerLost:
        return


@pytest.mark.parametrize("crash_at", [0, 1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_drop_leaves_all_or_nothing(crash_at: int, seed: int) -> None:
    """A crash while dropping would leave a partition with half of its rows, or rows without a
    partition.
    """
    node = Node(splits=(b"tab.m",))
    for i in range(5):
        node.put(b"tab.a%d" % i, b"left")
        node.put(b"tab.z%d" % i, b"1", ttl_ms=99)
        node.put(b"tab.z%d" % i, b"2")
    start = node.oracle(1)
    node.call(
        methods.PREWRITE, b"tab.zz", start, b"tab.zz", 1000, [[OP_PUT, b"tab.zz", b"", None, 0]], 0
    )
    drop_steps(node, crash_at)
    rng = random.Random(seed)
    after = reopened(node, rng)
    left = [d.id for d in after.manager.descriptors()]
    assert after.get(b"tab.a4")[0] == b"left"
    if 2 in left:
        assert crash_at == 0
        for i in range(5):
            assert after.get(b"tab.z%d" % i)[0] == b"2"
    else:
        for family, prefix in (
            ("cur", b"tab.z"),
            ("hist", b"tab.z"),
            ("lock", b"tab.z"),
            ("txn", b"tab.z"),
        ):
            assert not after.engine.scan(family, prefix, b"")
        after.timers.run(0.1)
        assert not after.engine.scan("meta", b"r\0\0\0\0\0\0\0\2", b"r\0\0\0\0\0\0\0\3")
        assert after.host.stored_groups() == [1]
        run(after.manager.create(descriptor(3, b"tab.m", b"")))
        after.settle(lambda: all(r.serving() for r in after.manager.replicas()))
        assert after.get(b"tab.z1") == (None, 0)


class Stalling(MemoryEngine):
    """Refuses the writes of the numbers in `refused`, counted from when it was given; those from
    `broken_from` on find damage.
    """

    refused: range = range(0)
    broken_from = 1 << 60
    writes = 0

    def write(self, batch: Any) -> None:
        self.writes += 1
        if self.writes - 1 in self.refused:
            raise Unavailable("a write stall")
        if self.writes > self.broken_from:
            raise Corruption("a damaged file")
        super().write(batch)


def test_damage_met_by_a_write_that_waited_stops_the_replica() -> None:
    """Raised in a timer it would be a line in a log, and the partition would hang for ever."""
    engine = Stalling(STATE_FAMILIES)
    node = Node(engine=engine)
    engine.writes, engine.refused, engine.broken_from = 0, range(1), 1
    rid = node.send(methods.PUT, b"tab.k", b"tab.k", b"v", None, 0)
    node.settle(lambda: bool(node.fatal))
    assert [type(error) for error in node.fatal] == [Corruption]
    assert isinstance(node.error(rid), UnknownOutcome)
    assert not node.manager.replicas()[0].serving()


@pytest.mark.parametrize("stalls", range(4))
def test_a_stall_of_the_state_db_leaves_nothing_of_a_dropped_partition(stalls: int) -> None:
    """A write that waited for the state DB was made after the drop, or a second drop said done."""
    engine = Stalling(STATE_FAMILIES)
    node = Node(splits=(b"tab.m",), engine=engine)
    node.put(b"tab.z0", b"v")
    engine.writes, engine.refused = 0, range(1)
    rid = node.send(methods.PUT, b"tab.z1", b"tab.z1", b"v", None, 0)
    node.settle(lambda: bool(engine.writes))  # it waits to be tried again
    engine.writes, engine.refused = 0, range(stalls - 1, stalls)  # marker, rows, end of the marker
    for _ in range(2):
        try:
            run(node.manager.drop(PartitionId(2)))
            break
        except Unavailable:
            with pytest.raises((InvalidArgument, Unavailable)):
                run(node.manager.create(descriptor(3, b"tab.m", b"")))
    else:
        pytest.fail("the second drop does it")
    node.timers.run(1.0)
    assert isinstance(node.error(rid), UnknownOutcome)
    assert not node.engine.scan("cur", b"tab.m", b"")
    assert not node.engine.scan("meta", b"r\0\0\0\0\0\0\0\2", b"r\0\0\0\0\0\0\0\3")
    assert not node.fatal


def reopened(node: Node, rng: random.Random) -> Node:
    """The node after a power loss, with the partitions that it finds and no others."""
    assert isinstance(node.engine, MemoryEngine)
    kept = int(rng.random() * (node.log.unsynced + 1))
    return Node(
        None,
        engine=node.engine.crash(rng),
        log=node.log.crash(kept),
        oracle_last=node.oracle.last + 10,
    )


def test_drop_again_and_create_again() -> None:
    """A new partition with the id of a dropped one would replay the old one's log."""
    node = Node(splits=(b"tab.m",))
    node.put(b"tab.z", b"old")
    run(node.manager.drop(PartitionId(2)))
    run(node.manager.drop(PartitionId(2)))
    with pytest.raises(Unavailable):
        run(node.manager.create(descriptor(2, b"tab.m", b"")))
    node.timers.run(0.1)
    run(node.manager.create(descriptor(2, b"tab.m", b"")))
    node.settle(lambda: all(r.serving() for r in node.manager.replicas()))
    assert node.get(b"tab.z") == (None, 0)
    after = node.crash(2)
    assert after.get(b"tab.z") == (None, 0)


def test_dropping_answers_who_waits() -> None:
    """Requests to a partition that is dropped would never be answered."""
    node = Node(splits=(b"tab.m",), sync_s=0.5)
    flying = node.send(methods.PUT, b"tab.z", b"tab.z", b"v", None, 0)
    node.settle(lambda: node.machine(b"tab.z").view.flying is not None)
    machine = node.machine(b"tab.z")
    run(node.manager.drop(PartitionId(2)))
    assert node.error(flying).disposition in ("unknown_outcome", "reroute")
    machine.submit(node.conn, [999, methods.GET, 1e9, 2, 1, b"tab.z", 0, None])
    assert node.error(999).disposition == "reroute"
    assert node.manager.covering(b"tab.z") is None


# ------------------------------------------------------------------ collecting, on a node


def collect(node: Node, key: bytes, safepoint: int, floor: int = 1 << 63) -> Any:
    return node.collect(key, safepoint, floor)


def test_c4_collector_goes_through_the_log_in_bounded_steps() -> None:
    """1000 overwrites would stay on disk, reads below the safepoint be wrong, or a step hold the
    loop.
    """
    node = Node()
    versions = [node.put(b"tab.k", b"%d" % i) for i in range(1000)]
    entries = node.manager.partition_counters.entries
    assert collect(node, b"tab.k", versions[-10]) is None
    assert 3 <= node.manager.partition_counters.entries - entries <= 6
    assert len(node.engine.scan("hist", b"", b"")) == 9
    for i in range(-10, 0):
        assert node.get(b"tab.k", at=versions[i]) == (b"%d" % (1000 + i), versions[i])
    refused = node.error(node.send(methods.GET, b"tab.k", b"tab.k", versions[-11], None))
    assert isinstance(refused, SnapshotTooOld)
    after = node.crash(3)
    refused = after.error(after.send(methods.GET, b"tab.k", b"tab.k", versions[-11], None))
    assert isinstance(refused, SnapshotTooOld), "the safepoint must survive"


def test_b5_time_to_live_on_a_node() -> None:
    """A record would be readable after its end, or its space never come back."""
    node = Node()
    node.put(b"tab.k", b"v", ttl_ms=100)
    assert node.get(b"tab.k")[0] == b"v"
    node.timers.run(0.101)
    assert node.get(b"tab.k") == (None, 0)
    assert node.call(methods.MGET, b"tab.k", [b"tab.k"], 0, None) == [[None]]
    assert node.call(methods.SCAN, b"tab.k", b"tab.k", b"tab.l", 0, 9, False, None) == [[], None]
    assert node.put(b"tab.k", b"again", cond=0)
    node.put(b"gone", b"v", ttl_ms=100)
    node.timers.run(1.0)
    assert collect(node, b"tab.k", node.oracle(1)) is None
    assert [key for key, _ in node.engine.scan("cur", b"", b"")] == [b"tab.k"]
    assert not node.engine.scan("gcq", b"", b"")


def test_b5_a_clock_set_back_shows_no_expired_record() -> None:
    """A record that had expired would come back when the clock is set back."""
    node = Node()
    node.put(b"tab.k", b"v", ttl_ms=100)
    node.timers.run(0.2)
    node.put(b"other", b"v")
    assert node.get(b"tab.k") == (None, 0)
    node.clock.skew_ms = -3_600_000
    assert node.get(b"tab.k") == (None, 0)
    assert node.put(b"tab.k", b"new", cond=0)


def test_transaction_records_are_collected_after_their_retention() -> None:
    """Outcomes would be kept for ever, or forgotten while an intent still needs them."""
    node = Node(splits=(b"tab.m",))
    start = node.oracle(1)
    node.call(
        methods.PREWRITE, b"tab.a", start, b"tab.a", 1000, [[OP_PUT, b"tab.a", b"", None, 0]], 0
    )
    node.call(
        methods.PREWRITE, b"tab.z", start, b"tab.a", 1000, [[OP_PUT, b"tab.z", b"", None, 0]], 0
    )
    commit_ts = node.oracle(1)
    node.call(methods.COMMIT, b"tab.a", b"tab.a", start, commit_ts)
    node.call(methods.RESOLVE, b"tab.a", start, commit_ts, [b"tab.a"])
    assert node.manager.find_txn(start) == b"tab.a"
    assert node.manager.oldest_lock() == start
    gone_ms = TXN_LIFETIME_MS_MAX + TXN_STATUS_RETENTION_MS + 1000
    node.clock.skew_ms = gone_ms
    safepoint = compose(START_MS + gone_ms)
    collect(node, b"tab.a", safepoint, node.manager.oldest_lock() or 0)
    assert node.manager.find_txn(start) == b"tab.a", "its intent on z still needs it"
    node.call(methods.RESOLVE, b"tab.z", start, commit_ts, [b"tab.z"])
    assert node.manager.oldest_lock() is None
    collect(node, b"tab.a", safepoint)
    assert node.manager.find_txn(start) is None


def test_d6_d12_abandoned_transaction_over_two_partitions() -> None:
    """Keys of a coordinator that died would stay locked on the partition without the record."""
    node = Node(splits=(b"tab.m",))
    start = node.oracle(1)
    node.call(
        methods.PREWRITE, b"tab.z", start, b"tab.a", 500, [[OP_PUT, b"tab.z", b"new", None, 0]], 0
    )
    locked = node.error(node.send(methods.GET, b"tab.z", b"tab.z", 0, None))
    assert isinstance(locked, KeyLocked)
    node.timers.run(1.1)  # less is not believed of the caller
    d = locked.details
    answer = node.call(methods.CHECK, d["anchor"], d["anchor"], d["txn"], 0, d["ttl_ms"])
    assert answer[0] == ABORTED
    node.call(methods.RESOLVE, b"tab.z", start, 0, [b"tab.z"])
    assert node.get(b"tab.z") == (None, 0)
    late = node.send(
        methods.PREWRITE, b"tab.a", start, b"tab.a", 500, [[OP_PUT, b"tab.a", b"", None, 0]], 0
    )
    assert node.error(late).code == "TXN_ABORTED"


def test_d11_reader_after_the_coordinators_death_sees_the_commit() -> None:
    """Committed data of a transaction that was never resolved would be invisible."""
    node = Node(splits=(b"tab.m",))
    start = node.oracle(1)
    for key in (b"tab.a", b"tab.z"):
        op = [OP_PUT, key, b"new", None, 0]
        node.call(methods.PREWRITE, key, start, b"tab.a", 500, [op], 0)
    commit_ts = node.oracle(1)
    assert node.call(methods.COMMIT, b"tab.a", b"tab.a", start, commit_ts)[0] == COMMITTED
    after = node.crash(7)
    after.timers.run(5.0)
    locked = after.error(after.send(methods.GET, b"tab.z", b"tab.z", 0, None))
    assert isinstance(locked, KeyLocked)
    answer = after.call(methods.CHECK, b"tab.a", b"tab.a", locked.details["txn"], 0, 500)
    assert answer[:2] == [COMMITTED, commit_ts]
    after.call(methods.RESOLVE, b"tab.z", start, commit_ts, [b"tab.z"])
    assert after.get(b"tab.z") == (b"new", commit_ts)


# ------------------------------------------------------------------ the main job, on both engines


@pytest.fixture(params=["memory", "rocks"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield MemoryEngine(STATE_FAMILIES)
        return
    found = RocksEngine(tmp_path / "state", STATE_FAMILIES)
    yield found
    found.close()


def test_b2_of_a_hundred_racing_creators_one_wins(engine: Engine) -> None:
    """Two creators of one key would both be told that they won."""
    node = Node(engine=engine)
    rids = [node.send(methods.PUT, b"tab.k", b"tab.k", b"%d" % i, 0, 0) for i in range(100)]
    node.settle(lambda: all(rid in node.conn.rows for rid in rids))
    rows = [node.conn.rows[rid] for rid in rids]
    won = [row for row in rows if row[1] == 0]
    assert len(won) == 1
    assert {row[2] for row in rows if row[1]} == {"CONDITION_FAILED"}
    assert {row[5]["version"] for row in rows if row[1]} == {str(won[0][2])}


@pytest.mark.slow
def test_b3_racing_increments_lose_nothing(engine: Engine) -> None:
    """Two increments by compare-and-set would build on the same version."""
    node = Node(engine=engine)
    version, value = node.put(b"tab.k", b"0"), 0
    done = 0
    while done < 60:
        rids = [
            node.send(methods.PUT, b"tab.k", b"tab.k", b"%d" % (value + 1), version, 0)
            for _ in range(4)
        ]
        node.settle(lambda rids=rids: all(rid in node.conn.rows for rid in rids))  # type: ignore[misc]
        done += sum(node.conn.rows[rid][1] == 0 for rid in rids)
        found, version = node.get(b"tab.k")
        value = int(found)
    assert value == done


def test_busy_partition_on_both_engines(engine: Engine) -> None:
    """What works in memory would not work on disk."""
    node = Node(splits=(b"tab.m",), engine=engine)
    busy(node, random.Random(9), 200)
    other = MemoryEngine(STATE_FAMILIES)
    Node(splits=(b"tab.m",), engine=other, log=node.log.crash(0), oracle_last=node.oracle.last)
    for family in ("cur", "hist", "lock", "txn", "guard", "gcq"):
        assert engine.scan(family, b"", b"") == other.scan(family, b"", b"")
