"""Commit, conflict and intents, message by message, with controlled timestamps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KeyLocked,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.limits import (
    LOCK_WAIT_MS_MAX,
    OUTCOMES_CACHED_MAX,
    PREWRITE_KEYS_MAX,
    TXN_LIFETIME_MS_MAX,
    TXN_STREAM_KEYS_MIN,
    TXN_TTL_MS_DEFAULT,
)
from kv.base.methods import (
    ABORTED,
    CHECK,
    COMMIT,
    COMMITTED,
    FINISH,
    HEARTBEAT,
    PENDING,
    PREWRITE,
    RESOLVE,
    ROLLBACK,
    WRITE,
)
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.fake_kv import FakeKv, Sent
from tests.txn.world import WORLDS, World, failure, k
from txn.intents.resolver import Outcome

FIVE = [k("b"), k("f"), k("l"), k("p"), k("z")]  # one per partition


class Gate:
    """Holds the messages of one method until it is opened; the first of them sets `reached`."""

    def __init__(self, kv: FakeKv, method: int, *, after: bool = False) -> None:
        self.method = method
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        if after:
            kv.after = self._hook
        else:
            kv.before = self._hook

    async def _hook(self, sent: Sent) -> None:
        if sent.method == self.method:
            self.reached.set()
            await self.opened.wait()


def methods(kv: FakeKv) -> list[int]:
    return [sent.method for sent in kv.log]


async def abandoned(world: World, keys: list[bytes], *, ttl_ms: int = TXN_TTL_MS_DEFAULT) -> int:
    """Intents of a coordinator that died after its prewrites. Its transaction id."""
    kv = FakeKv(world.cluster)
    gate = Gate(kv, COMMIT)
    client = world.client(kv, parallel=False)
    t = await client.begin(ttl_ms=ttl_ms)
    for key in keys:
        t.put(key, b"ghost")
    task = asyncio.get_running_loop().create_task(t.commit())
    await gate.reached.wait()
    await client.close(drain_s=0)
    await asyncio.wait([task])
    assert isinstance(task.exception(), UnknownOutcome)
    return t.id


def test_d2_one_transaction_over_five_partitions() -> None:
    """All five commit together; the flip comes after the last prewrite, the cleaning after the
    flip.
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        async with await client.begin() as t:
            for key in FIVE:
                t.put(key, b"1")
        await client.close()
        assert methods(kv) == [PREWRITE] * 5 + [FINISH] * 5
        assert [world.cluster.newest(key) for key in FIVE] == [b"1"] * 5

    run(main)


@pytest.mark.parametrize("refuses", range(5))
def test_d2_any_no_aborts_all(refuses: int) -> None:
    """A participant that refuses must leave nothing of the transaction at the others."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        t = await client.begin()
        newer = await client.write([put(FIVE[refuses], b"other")])
        for key in FIVE:
            t.put(key, b"mine")
        error = await failure(t.commit())
        assert isinstance(error, WriteConflict)
        assert error.details["key"] == FIVE[refuses]
        assert error.details["conflict_ts"] == newer
        assert (await client.status(t.id)).status == "aborted"
        await client.close()
        assert not world.cluster.locks
        assert [world.cluster.newest(key) for key in FIVE].count(None) == 4

    run(main)


def test_d2_failed_condition_names_key_and_operation() -> None:
    """An index into some partition's share of the batch would point at the wrong operation."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        await client.write([put(k("l"), b"0")])
        ops = [put(k("b"), b"1"), put(k("k"), b"1"), put(k("l"), b"1", cond=0), put(k("z"), b"1")]
        error = await failure(client.write(ops))
        assert isinstance(error, ConditionFailed)
        assert (error.details["key"], error.details["op"]) == (k("l"), 2)
        assert str(error).startswith("operation 2: ")
        error = await failure(client.write([*ops[:1], *ops]))  # the first key twice: the last wins
        assert error.details["op"] == 3
        await client.close()
        assert world.cluster.newest(k("b")) is None

    run(main)


def test_d3_no_reader_sees_data_of_a_running_transaction() -> None:
    """An intent is a version at infinity: to return it would be a dirty read."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        reader = world.client()
        await reader.write([put(key, b"old") for key in FIVE])
        await abandoned(world, FIVE)
        for key in FIVE:
            assert (await reader.get(key))[0] == b"old"
        rows, _ = await reader.multi_get(FIVE)
        assert {row[0] for row in rows if row} == {b"old"}
        page = await reader.scan(k(""), k("~"), limit=10)
        assert {value for _, value, _ in page.items} == {b"old"}

    run(main)


def test_d4_status_lies_at_the_anchor_and_is_always_answered() -> None:
    """Who lost the answer of a commit must be able to ask for it: begun, committed, rolled back."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        other = world.client()
        begun = await client.begin()
        assert (await other.status(begun.id)).status == "unknown"
        done = await client.begin()
        done.put(k("z"), b"1")
        done.put(k("b"), b"1")
        version = await done.commit()
        assert await other.status(done.id) == await client.status(done.id)
        assert (await other.status(done.id)).commit_ts == version
        single = await client.begin()
        single.put(k("l"), b"1")
        await single.commit()
        anchors = {anchor for anchor, _ in world.cluster.records}
        assert anchors == {k("z"), k("l")}, "in the partitions of their anchors"
        for written in (True, False):
            aborted = await client.begin(recorded=True)
            if written:
                aborted.put(k("b"), b"2")
            await aborted.abort()
            assert (await other.status(aborted.id)).status == "aborted"
        nothing = await client.begin(recorded=True)
        await nothing.commit()
        assert (await other.status(nothing.id)).status == "committed"
        await client.close()

    run(main)


def test_d4_status_of_ids_without_a_record() -> None:
    """What nobody has heard of must be called neither pending nor aborted: its record may have gone
    with a table.
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        t = await client.begin()
        error = await failure(client.status(t.id + 10**15))
        assert isinstance(error, InvalidArgument)
        await asyncio.sleep(TXN_LIFETIME_MS_MAX / 1000 - 1)
        assert (await client.status(t.id)).status == "unknown"
        await asyncio.sleep(2)
        assert (await client.status(t.id)).status == "unknown"
        t.put(k("a"), b"1")
        assert isinstance(await failure(t.commit()), TxnAborted)
        await asyncio.sleep(24 * 3600)
        assert (await failure(client.status(t.id))).code == "TXN_NOT_FOUND"

    run(main)


@WORLDS
def test_d5_one_version_from_the_oracle_in_all_keys(make: type[World]) -> None:
    """Different versions within a transaction would let a snapshot cut through it."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        async with await client.begin() as t:
            for key in FIVE:
                t.put(key, b"1")
        version = await t.commit()  # asked again: the same answer
        rows, at = await client.multi_get(FIVE)
        assert {row[1] for row in rows if row} == {version}
        assert t.start_ts < version < at
        await client.close()
        world.close()

    run(main)


def test_d6_abandoned_transaction_blocks_at_most_its_ttl() -> None:
    """Intents of a dead client would block a key for ever."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        dead = await abandoned(world, FIVE, ttl_ms=3000)
        began = loop.time()
        writer = world.client()
        await writer.write([put(k("z"), b"alive")])
        blocked_ms = (loop.time() - began) * 1000
        assert 2000 < blocked_ms <= 3000 + LOCK_WAIT_MS_MAX + 50
        assert (await writer.status(dead)).status == "aborted"

    run(main)


@pytest.mark.parametrize(("parallel", "cleans"), [(True, FINISH), (False, RESOLVE)])
def test_d7_reply_comes_before_the_cleaning(parallel: bool, cleans: int) -> None:
    """Cleaning is not the caller's business; and when it never happens, readers are right all the
    same.
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        gate = Gate(kv, cleans)
        client = world.client(kv, parallel=parallel)
        version = await client.write([put(key, b"1") for key in FIVE])
        assert len(world.cluster.locks) == 5, "acknowledged, and nothing cleaned yet"
        await gate.reached.wait()
        await client.close(drain_s=0)
        reader = world.client()
        rows, _ = await reader.multi_get(FIVE)
        assert rows == [(b"1", version)] * 5
        await reader.close()
        assert not world.cluster.locks, "the reader finished it"

    run(main)


def test_d7_ends_that_are_refused_go_the_old_way() -> None:
    """A node of an earlier version does not know FINISH: intents would stay until somebody met
    them.
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)

        async def unknown(sent: Sent) -> None:
            if sent.method == FINISH:
                raise InvalidArgument("unknown partition method 19")

        kv.before = unknown
        client = world.client(kv)
        version = await client.write([put(key, b"1") for key in FIVE])
        await client.close()
        assert methods(kv) == [PREWRITE] * 5 + [COMMIT] + [RESOLVE] * 5
        assert not world.cluster.locks
        assert (await world.client().multi_get(FIVE))[0] == [(b"1", version)] * 5

    run(main)


def test_d9_intent_younger_than_the_snapshot_is_ignored() -> None:
    """It can only commit above the snapshot: asking about it would be for nothing."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        await client.write([put(k("b"), b"old")])
        early = await client.now()
        await abandoned(world, [k("b"), k("z")])
        kv.log.clear()
        assert (await client.get(k("b"), at=early))[0] == b"old"
        assert CHECK not in methods(kv)
        late = await client.now()
        assert (await client.get(k("b"), at=late))[0] == b"old"
        assert CHECK in methods(kv), "an older intent might commit below the snapshot: ask"

    run(main)


def test_d10_reader_pushes_a_pending_writer_above_its_snapshot() -> None:
    """The reader does not wait, and the writer that commits later stays out of the reader's
    snapshot.
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        gate = Gate(kv, COMMIT)
        writer, reader = world.client(kv, parallel=False), world.client()
        await reader.write([put(k("b"), b"old"), put(k("z"), b"old")])
        t = await writer.begin()
        t.put(k("b"), b"new")
        t.put(k("z"), b"new")
        commit = loop.create_task(t.commit())
        await gate.reached.wait()  # the commit timestamp is taken, the flip on its way
        began = loop.time()
        value, _ = await reader.get(k("b"))
        snapshot = await reader.now()
        rows, _ = await reader.multi_get([k("b"), k("z")], at=snapshot)
        assert loop.time() - began < 0.1, "no waiting"
        assert value == b"old"
        gate.opened.set()
        version = await commit
        assert version > snapshot
        assert methods(kv).count(COMMIT) == 2, "the first flip was refused"
        assert (await reader.multi_get([k("b"), k("z")], at=snapshot))[0] == rows
        assert (await reader.get(k("z"))) == (b"new", version)
        await writer.close()

    run(main)


def test_d11_next_reader_finishes_what_a_dead_coordinator_committed() -> None:
    """Committed is committed: its intents are data that nobody has turned into versions yet."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        gate = Gate(kv, COMMIT, after=True)
        client = world.client(kv, parallel=False)
        task = loop.create_task(client.write([put(key, b"1") for key in FIVE]))
        await gate.reached.wait()  # flipped, but the coordinator never learns it
        await client.close(drain_s=0)
        await asyncio.wait([task])
        assert isinstance(task.exception(), UnknownOutcome)
        txn = task.exception().details["txn"]  # type: ignore[union-attr]
        reader = world.client()
        status = await reader.status(txn)
        assert status.status == "committed"
        page = await reader.scan(k(""), b"", limit=10)
        assert [row[1:] for row in page.items] == [(b"1", status.commit_ts)] * 5
        assert not world.cluster.locks

    run(main)


def test_d12_dead_before_the_commit_leaves_no_trace() -> None:
    """After the ttl whoever comes by rolls it back; nobody has to be called."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        dead = await abandoned(world, FIVE)
        await asyncio.sleep(TXN_TTL_MS_DEFAULT / 1000 + 0.1)
        reader = world.client()
        assert (await reader.scan(k(""), b"", limit=10)).items == []
        await reader.close()
        assert not world.cluster.locks
        assert (await reader.status(dead)).status == "aborted"

    run(main)


def test_d12_late_flip_of_a_rolled_back_transaction_is_refused() -> None:
    """A coordinator that slept through its ttl must not resurrect what others threw away."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        gate = Gate(kv, COMMIT)
        writer, reader = world.client(kv, parallel=False), world.client()
        t = await writer.begin(ttl_ms=1000)
        t.put(k("b"), b"1")
        t.put(k("z"), b"1")
        kv_heartbeat_stops(kv)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        await asyncio.sleep(1.5)
        assert (await reader.get(k("z")))[0] is None
        gate.opened.set()
        await asyncio.wait([commit])
        error = commit.exception()
        assert isinstance(error, TxnAborted)
        assert "ttl" in error.message
        await writer.close()
        await reader.close()
        assert not world.cluster.locks
        assert world.cluster.newest(k("b")) is None

    run(main)


def kv_heartbeat_stops(kv: FakeKv) -> None:
    """Lose the heartbeats of this client (its other hooks stay)."""
    before = kv.before

    async def hook(sent: Sent) -> None:
        if sent.method == HEARTBEAT:
            raise Unavailable("lost")
        if before is not None:
            await before(sent)

    kv.before = hook


def test_d6_heartbeats_keep_a_slow_commit_alive() -> None:
    """A large transaction may take longer than its ttl to write its intents."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        slow = asyncio.Event()

        async def hook(sent: Sent) -> None:
            if sent.method == PREWRITE and sent.key == k("z"):
                await slow.wait()

        kv.before = hook
        writer, rival = world.client(kv), world.client()
        t = await writer.begin(ttl_ms=900)
        t.put(k("b"), b"1")
        t.put(k("z"), b"1")
        commit = loop.create_task(t.commit())
        await asyncio.sleep(4)
        assert (await rival.status(t.id)).status == "pending"
        error = await failure(rival.write([put(k("b"), b"2")], budget_ms=2000))
        assert isinstance(error, KeyLocked)
        slow.set()
        await commit
        await writer.close()
        assert world.cluster.newest(k("b")) == b"1"

    run(main)


@WORLDS
def test_p10_interactive_transaction(make: type[World]) -> None:
    """Start timestamp, snapshot reads, own writes and tombstones visible to itself alone."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        await client.write([put(k(c), c.encode()) for c in "abfgpz"])
        t = await client.begin()
        await client.write([put(k("a"), b"later"), put(k("q"), b"later")])
        t.put(k("f"), b"mine")
        t.put(k("h"), b"mine")
        t.delete(k("g"))
        assert (await t.get(k("a")))[0] == b"a", "the snapshot"
        assert (await t.get(k("q"))) == (None, 0)
        assert (await t.get(k("f"))) == (b"mine", 0)
        assert (await t.get(k("g"))) == (None, 0)
        rows = await t.multi_get([k("g"), k("a"), k("f"), k("x")])
        assert [row and row[0] for row in rows] == [None, b"a", b"mine", None]
        whole = (await t.scan(k(""), b"", limit=100)).items
        assert [key for key, _, _ in whole] == [k(c) for c in "abfhpz"]
        backwards = (await t.scan(k(""), b"", limit=100, reverse=True)).items
        assert backwards == whole[::-1]
        paged, start = [], k("")
        while True:
            page = await t.scan(start, b"", limit=2)
            paged += page.items
            if page.resume is None:
                break
            start = page.resume
        assert paged == whole
        assert (await client.get(k("h")))[0] is None, "nobody else sees it"
        await t.abort()
        assert isinstance(await failure(t.get(k("a"))), TxnAborted)
        assert (await client.get(k("g")))[0] == b"g"
        await client.close()
        world.close()

    run(main)


@WORLDS
def test_p10_scan_of_rows_that_the_transaction_deleted(make: type[World]) -> None:
    """A page that is empty only because of own tombstones is not the end."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        await client.write([put(k(f"a{i}"), b"1") for i in range(8)] + [put(k("z"), b"1")])
        t = await client.begin()
        for i in range(8):
            t.delete(k(f"a{i}"))
        assert [row[0] for row in (await t.scan(k(""), b"", limit=2)).items] == [k("z")]
        await client.close()
        world.close()

    run(main)


@pytest.mark.parametrize("keys", [[k("b")], [k("b"), k("z")]], ids=["1pc", "2pc"])
@WORLDS
def test_p11_lost_update_is_impossible(make: type[World], keys: list[bytes]) -> None:
    """Both read the counter, both write it: the second must not commit."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        await client.write([put(key, b"0") for key in keys])
        first, second = await client.begin(), await client.begin()
        for t in (first, second):
            await t.get(keys[0])
            for key in keys:
                t.put(key, str(t.id).encode())
        await first.commit()
        error = await failure(second.commit())
        assert isinstance(error, WriteConflict)
        assert error.disposition == "restart_txn"
        assert (await world.client().get(keys[0]))[0] == str(first.id).encode()
        assert isinstance(await failure(second.commit()), TxnAborted), "it is over"
        await client.close()
        world.close()

    run(main)


def test_1pc_settles_a_lost_reply_by_the_record() -> None:
    """The connection breaks around a one-entry commit: the answer must be right, not a guess."""

    async def lost(loop: SimLoop, *, after: bool) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)

        async def hook(sent: Sent) -> None:
            if sent.method == WRITE:
                raise UnknownOutcome("connection lost")

        kv.before, kv.after = (None, hook) if after else (hook, None)
        client = world.client(kv)
        t = await client.begin()
        t.put(k("b"), b"1")
        t.put(k("c"), b"1")
        if after:
            version = await t.commit()
            assert (await client.get(k("c"))) == (b"1", version)
        else:
            error = await failure(t.commit())
            assert isinstance(error, TxnAborted)
            assert error.details["reason"] == "connection lost"
            assert world.cluster.newest(k("b")) is None
        assert methods(kv).count(ROLLBACK) == 1

    for after in (False, True):
        run(lambda loop, a=after: lost(loop, after=a))


def test_unknown_outcome_carries_the_transaction() -> None:
    """When the anchor is unreachable the caller must be able to ask later; it must not hear
    "failed".
    """

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)

        async def hook(sent: Sent) -> None:
            if sent.method in (COMMIT, ROLLBACK):
                raise Unavailable("no leader")

        kv.after = hook
        client = world.client(kv, parallel=False)
        began = loop.time()
        error = await failure(client.write([put(k("b"), b"1"), put(k("z"), b"1")], budget_ms=3000))
        assert isinstance(error, UnknownOutcome)
        assert 2.5 < loop.time() - began < 3.5
        status = await client.status(error.details["txn"])
        assert status.status == "committed"
        assert (await client.get(k("z"))) == (b"1", status.commit_ts)
        await client.close()

    run(main)


def test_a_bug_in_the_commit_is_no_certain_failure() -> None:
    """A transaction that may be committed said of itself that it was aborted."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()

        async def broken(*_: Any) -> int:
            raise RuntimeError("a bug")

        client.coordinator.commit = broken  # type: ignore[method-assign]
        t = await client.begin()
        t.put(k("b"), b"1")
        with pytest.raises(RuntimeError):
            await t.commit()
        assert isinstance(await failure(t.get(k("b"))), UnknownOutcome)
        await client.close()

    run(main)


def test_commit_whose_caller_went_away_ends_with_its_deadline() -> None:
    """One that cannot reach the anchor would ask for ever, and keep its slot."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        world.cluster.down.update(p.id for p in world.cluster.partitions)
        client = world.client()
        ops = [put(k("b"), b"1"), put(k("z"), b"1")]
        commit = loop.create_task(client.write(ops, budget_ms=1000))
        await asyncio.sleep(0.05)
        commit.cancel()
        await asyncio.wait([commit])
        assert len(client._background) > 0
        await asyncio.sleep(3)
        assert len(client._background) == 0
        await client.close()

    run(main)


def test_deadline_before_the_flip_is_a_certain_failure() -> None:
    """Nothing was decided, so the caller may simply do it again."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        world.cluster.down.add(world.cluster.covering(k("z")).id)
        client = world.client()
        error = await failure(client.write([put(k("b"), b"1"), put(k("z"), b"1")], budget_ms=1000))
        assert error.disposition == "retry"
        world.cluster.down.clear()
        await client.close()
        assert not world.cluster.locks
        assert world.cluster.newest(k("b")) is None

    run(main)


def test_partition_splits_during_the_commit() -> None:
    """Keys grouped by an old map are grouped again; nothing is lost, nothing is written twice."""

    async def main(loop: SimLoop) -> None:
        for method in (WRITE, PREWRITE, COMMIT, RESOLVE, FINISH):
            world = World(loop)
            kv = FakeKv(world.cluster)
            client = world.client(kv, parallel=method == FINISH)
            keys = [k("a"), k("b"), k("c")] + ([] if method == WRITE else [k("z")])
            split = False

            async def hook(sent: Sent, world: World = world, method: int = method) -> None:
                nonlocal split
                if sent.method == method and not split:
                    split = True
                    world.cluster.split(k("b"))

            kv.before = hook
            t = await client.begin()
            for key in keys:
                t.put(key, b"1")
            version = await t.commit()
            await client.close()
            assert split
            assert not world.cluster.locks
            rows, _ = await client.multi_get(keys)
            assert rows == [(b"1", version)] * len(keys)

    run(main)


def test_large_transaction_is_cut_into_legal_requests() -> None:
    """One request above the limits would be refused as a whole, whatever the user does."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        t = await client.begin()
        count = 4 * PREWRITE_KEYS_MAX + 10
        for i in range(count):
            t.put(k(f"a{i:06}"), b"1")
        for i in range(3):
            t.put(k(f"z{i}"), b"x" * 3_000_000)
        version = await t.commit()
        await client.close()
        parts = [len(sent.args[3]) for sent in kv.log if sent.method == PREWRITE]
        assert sum(parts) == count + 3
        assert max(parts) <= PREWRITE_KEYS_MAX
        assert parts.count(1) == 3, "values of 3 MB travel alone"
        assert max(len(sent.args[2]) for sent in kv.log if sent.method == RESOLVE) <= 2000
        assert len({v for rows in world.cluster.versions.values() for v, _ in rows}) == 1
        assert version
        assert not world.cluster.locks
        assert count < TXN_STREAM_KEYS_MIN

    run(main)


def test_commit_waits_for_the_oracle_to_pass_every_bound() -> None:
    """A commit timestamp below a participant's bound would appear in a snapshot already read."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        replies: list[Any] = []
        call = kv.call

        async def raised(method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
            reply = await call(method, key, *args, budget_ms=budget_ms)
            if method == PREWRITE and key == k("z"):
                reply = [reply[0] + (50 << 18)]  # 50 ms ahead of the oracle
                replies.append(reply[0])
            return reply

        kv.call = raised  # type: ignore[method-assign]
        version = await client.write([put(k("b"), b"1"), put(k("z"), b"1")])
        assert version >= replies[0]
        await client.close()

    run(main)


@pytest.mark.parametrize("keys", [FIVE, [k("b"), k("c")]], ids=["2pc", "1pc"])
def test_cancelled_commit_is_finished_or_undone(keys: list[bytes]) -> None:
    """A caller that goes away must not leave a transaction hanging between yes and no."""

    async def main(loop: SimLoop) -> None:
        ends = set()
        for delay_ms in range(16):
            world = World(loop)
            client = world.client()
            free = client.coordinator._slots._value
            t = await client.begin()
            for key in keys:
                t.put(key, b"1")
            task = loop.create_task(t.commit())
            await asyncio.sleep(delay_ms / 1000)
            task.cancel()
            await asyncio.wait([task])
            await client.close()
            assert client.coordinator._slots._value == free
            assert not world.cluster.locks
            written = {world.cluster.newest(key) for key in keys}
            assert len(written) == 1
            record = world.cluster.status_of(t.id)
            assert (record is not None and record.status == COMMITTED) == (written == {b"1"})
            assert record is None or record.status != PENDING
            ends.add(record and record.status)
        assert {ABORTED, COMMITTED} <= ends

    run(main)


def test_slots_come_back() -> None:
    """A leaked slot per transaction would stop the client after a thousand of them."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        free = client.coordinator._slots._value
        await client.write([put(key, b"1") for key in FIVE])
        await failure(client.write([put(key, b"1", cond=0) for key in FIVE]))
        t = await client.begin()
        t.put(k("b"), b"1")
        await t.commit()
        await client.close()
        assert client.coordinator._slots._value == free

    run(main)


def test_closing_waits_for_a_write_that_is_on_its_way() -> None:
    """A commit that was executed must not be reported as one that never happened."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        gate = Gate(kv, WRITE, after=True)
        client = world.client(kv)
        t = await client.begin()
        t.put(k("b"), b"1")
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        await client.close()
        gate.opened.set()
        version = await commit
        assert await world.client().get(k("b")) == (b"1", version)
        free = client.coordinator._slots._value
        late = await client.begin()
        late.put(k("b"), b"2")
        late.put(k("z"), b"2")
        assert isinstance(await failure(late.commit()), Unavailable), "two phases need the client"
        assert client.coordinator._slots._value == free

    run(main)


def test_transaction_beyond_its_lifetime_is_not_even_sent() -> None:
    """Its status is aborted by then, whatever a slow participant would make of it."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        t = await client.begin()
        t.put(k("b"), b"1")
        await asyncio.sleep(TXN_LIFETIME_MS_MAX / 1000 + 1)
        assert isinstance(await failure(t.commit()), TxnAborted)
        assert kv.log == []

    run(main)


def test_late_answer_does_not_unlearn_an_outcome() -> None:
    """A reader that forgets a commit would ask, and push, what is finished already."""

    async def main(loop: SimLoop) -> None:
        resolver = World(loop).client().resolver
        resolver.learn(7, Outcome(COMMITTED, commit_ts=9))
        resolver.learn(7, Outcome(PENDING, min_commit_ts=8))
        assert resolver._known[7] == Outcome(COMMITTED, commit_ts=9)
        for txn in range(OUTCOMES_CACHED_MAX + 10):
            resolver.learn(txn, Outcome(ABORTED))
        assert len(resolver._known) == OUTCOMES_CACHED_MAX

    run(main)


def test_multi_get_follows_a_split() -> None:
    """Keys that another partition serves by now are asked for there, not reported as absent."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        version = await client.write([put(key, b"1") for key in [*FIVE, k("c"), k("x")]])
        await asyncio.sleep(0.1)  # the cleaning must not learn of the split first
        for at in ("c", "x"):
            world.cluster.split(k(at))
        wanted = [*FIVE, k("c"), k("x")]
        rows, _ = await client.multi_get(wanted)
        assert rows == [(b"1", version)] * 7
        await client.close()

    run(main)
