"""Row locks: laid before the commit, kept until the end, never the reason of a lost update. Real
partitions in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgpack
import pytest

import kv.partition.writes
from kv.base.checksum import seal
from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    TxnAborted,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.methods import BLIND, COMMIT, HEARTBEAT, MGET, OP_CHECK, PREWRITE, RESOLVE, WRITE
from kv.base.ops import Op, check, delete, put
from kv.base.strengths import EXCLUDED, KEY_SHARE, NO_KEY_UPDATE, SHARE, STRENGTHS
from kv.mvcc.guards import Guard, decode_guard, encode_guard, guard_key
from kv.mvcc.prewrite import Prewritten, prewrite
from kv.mvcc.view import View
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import Hooked, RealWorld, failure, k
from txn.client import TxnClient
from txn.row_locks import RowLocks
from txn.shared.ports import Kv
from txn.shared.wait_terms import Terms
from txn.transaction import Transaction

FIVE = [k("b"), k("f"), k("l"), k("p"), k("z")]  # one per partition
A, B, C, D, E = FIVE
BESIDE = k("a")  # in A's partition
Scene = Callable[[SimLoop, RealWorld], Coroutine[Any, Any, None]]


def played(scene: Scene, seed: int = 0) -> None:
    """Run a scene on fresh partitions; in the end nobody waits and nothing is locked."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        await scene(loop, world)
        for replica in world.real.manager.replicas():
            assert len(replica.machine.waits) == 0
        await asyncio.sleep(1)
        assert world.locked() == []
        world.close()

    run(main, seed)


async def add(
    client: TxnClient, keys: Sequence[bytes], *, wait_ms: int | None = None, pause_s: float = 0
) -> None:
    """Add one to each, without another try."""
    async with await client.begin(renews=True) as t:
        for key in keys:
            await t.lock([key], wait_ms=wait_ms)
            await t.renew()
            value, _ = await t.get(key)
            await asyncio.sleep(pause_s)
            t.put(key, b"%d" % (int(value or b"0") + 1))


async def values(world: RealWorld, keys: Sequence[bytes]) -> list[int]:
    rows, _ = await world.client().multi_get(keys)
    return [0 if row is None else int(row[0]) for row in rows]


async def counting(loop: SimLoop, world: RealWorld) -> None:
    """Increments under locks, none of which is tried again."""

    async def work(i: int) -> None:
        client = world.client()
        for n in range(4):
            keys = ([A], [BESIDE, A], [A, D], [B, C, E])[(i + n) % 4]
            await add(client, keys, wait_ms=60_000)

    async with asyncio.TaskGroup() as group:
        for i in range(12):
            group.create_task(work(i))
    assert await values(world, [A, BESIDE, B, C, D, E]) == [36, 12, 12, 12, 12, 12]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_d15_a_locked_read_modify_write_never_repeats(seed: int) -> None:
    """Programs that lock what they change would have to be written as if they did not."""
    played(counting, seed)


def test_d15_writers_wait_and_readers_pass() -> None:
    """A lock that writers do not see is none; one that readers see stops what need not wait."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client, other = world.client(), world.client()
        await client.write([put(A, b"0"), put(D, b"0")])
        t = await client.begin()
        versions = await t.lock([A, D, E])
        assert versions[0] == versions[1] > 0
        assert versions[2] == 0, "what is absent is locked, too"
        writing = [asyncio.create_task(other.write([put(key, b"1")])) for key in (A, D, E)]
        await asyncio.sleep(0.3)
        assert await values(world, [A, D, E]) == [0, 0, 0]
        reader = await other.begin()
        assert (await reader.get(A))[0] == b"0"
        assert not any(task.done() for task in writing)
        t.put(A, b"7")
        version = await t.commit()
        later = await asyncio.gather(*writing)
        assert min(later) > version
        assert await values(world, [A, D, E]) == [1, 1, 1]

    played(scene)


@pytest.mark.parametrize("how", ["commit", "abort", "leave"])
def test_d15_locks_end_with_the_transaction(how: str) -> None:
    """What wrote nothing would hold others up until its time is over."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        t = await client.begin()
        await t.lock([A, D])
        began = loop.time()
        match how:
            case "commit":
                assert await t.commit() == t.start_ts
            case "abort":
                await t.abort()
            case _:
                with pytest.raises(ZeroDivisionError):
                    async with t:
                        _ = 1 // 0
        await world.client().write([put(A, b"1"), put(D, b"1")])
        assert loop.time() - began < 1

    played(scene)


def test_d15_what_is_newer_than_the_snapshot_is_a_conflict_at_once() -> None:
    """A transaction would wait for a row, compute from another one, and learn it at its commit."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        t = await client.begin()
        deleted = await client.begin()
        await client.write([put(A, b"1"), put(D, b"1")])
        gone = await client.begin()
        gone.delete(D)
        await gone.commit()
        for one, key in ((t, A), (deleted, D)):
            assert isinstance(await failure(one.lock([key])), WriteConflict)
            one.put(key, b"2")
            assert isinstance(await failure(one.commit()), WriteConflict)
        assert await values(world, [A, D]) == [1, 0]

    played(scene)


def test_d15_nowait_and_timeout_name_the_blocker() -> None:
    """Who may not wait must be told at once, and whom to ask; what was free stays usable."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        holder = await world.client().begin(terms=Terms(owner="nightly import"))
        await holder.lock([A, D])
        for wait_ms in (0, 400):
            t = await world.client().begin(renews=True)
            began = loop.time()
            error = await failure(t.lock([A], wait_ms=wait_ms))
            assert isinstance(error, KeyLocked)
            assert wait_ms <= 1000 * (loop.time() - began) < wait_ms + 100
            assert error.details["txn"] == holder.start_ts
            await t.lock([B], wait_ms=0)
            t.put(B, b"1")
            await t.commit()
        await holder.abort()

    played(scene)


def test_d15_a_dead_holder_is_not_in_the_way_of_nowait() -> None:
    """SKIP LOCKED would skip for ever what nobody holds."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        dead = await world.client().begin()
        await dead.lock([A])
        assert dead._locks is not None
        dead._locks.stop()
        await asyncio.sleep(1.1 * TXN_TTL_MS_DEFAULT / 1000)
        t = await world.client().begin(renews=True)
        await t.lock([A], wait_ms=0)
        await t.abort()

    played(scene)


def test_d15_deadlocks_end_one() -> None:
    """Locks that are taken in any order make circles, which nobody leaves by himself."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        first, second = [await world.client().begin(renews=True) for _ in "12"]
        await first.lock([A])
        await second.lock([D])

        async def go_on(t: Transaction, key: bytes) -> KvorumError | None:
            try:
                await t.lock([key], wait_ms=30_000)
            except TxnAborted as victim:
                await t.abort()
                return victim
            t.put(key, b"1")
            await t.commit()
            return None

        began = loop.time()
        errors = await asyncio.gather(go_on(first, D), go_on(second, A))
        assert [error is None for error in errors] == [True, False], "the younger one"
        assert errors[1] is not None
        assert errors[1].code == "DEADLOCK"
        assert loop.time() - began < 2

    played(scene)


def test_d15_a_heartbeat_keeps_them() -> None:
    """Whoever thinks for longer than a ttl would lose its locks, and then its commit."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        t = await world.client().begin(renews=True)
        await t.lock([A, D])
        writing = asyncio.create_task(world.client().write([put(A, b"5")], budget_ms=60_000))
        await asyncio.sleep(3 * TXN_TTL_MS_DEFAULT / 1000)
        assert not writing.done()
        t.put(A, b"1")
        version = await t.commit()
        assert await writing > version

    played(scene)


def test_d15_a_lost_lock_loses_no_update() -> None:
    """A holder that was taken for dead would write over what others wrote meanwhile."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        t = await world.client().begin(renews=True)
        await t.lock([A, D])
        assert t._locks is not None
        t._locks.stop()
        await world.client().write([put(A, b"5")], budget_ms=60_000)
        t.put(A, b"1")
        assert isinstance(await failure(t.commit()), TxnAborted | WriteConflict)
        assert await values(world, [A]) == [5]

    played(scene)


def test_d15_what_is_held_for_a_short_time_costs_one_round_at_the_commit() -> None:
    """Locks would make every commit a flip in two phases."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        t = await world.client().begin(renews=True)
        await t.lock([A, D])
        t.put(A, b"1")
        await t.commit()
        trace = t.trace()
        assert trace is not None
        assert (trace.round_trips, trace.syncs) == (1, 1)

    played(scene)


@pytest.mark.parametrize("keys", [[A], [A, BESIDE], [A, D], FIVE])
def test_d15_locks_outlive_the_node(keys: list[bytes]) -> None:
    """A new leader would let others in, and the holder would find that out at its commit."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        way = Hooked(loop, world.kv())
        t = await world.client(way).begin(renews=True)
        await t.lock(keys)
        await world.crash()
        way.inner = world.kv()
        other = await world.client().begin(renews=True)
        assert isinstance(await failure(other.lock([keys[-1]], wait_ms=0)), KeyLocked)
        await other.abort()
        for key in keys:
            t.put(key, b"1")
        await t.commit()
        assert await values(world, keys) == [1] * len(keys)

    played(scene)


class Twice(Hooked):
    """Some messages that write come once more, later."""

    def __init__(self, loop: SimLoop, inner: Kv, late: list[asyncio.Task[None]]) -> None:
        super().__init__(loop, inner)
        self.late = late

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        rng = self.loop.rng
        if method in (PREWRITE, RESOLVE, HEARTBEAT, WRITE) and rng.random() < 0.15:
            again = self.loop.create_task(self._late(method, key, args, rng.random() * 3))
            self.late.append(again)
        return await super().call(method, key, *args, budget_ms=budget_ms)

    async def _late(self, method: int, key: bytes, args: tuple[Any, ...], after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await self.inner.call(method, key, *args, budget_ms=1_000)
        except KvorumError:
            return


async def chaos(loop: SimLoop, world: RealWorld) -> None:
    """Increments under locks, by clients that are slow, lose their locks and send twice: what is
    acknowledged counts once.
    """
    done, unknown = [0], [0]
    late: list[asyncio.Task[None]] = []

    async def work(i: int) -> None:
        client = world.client(Twice(loop, world.kv(), late))
        for n in range(4):
            keys = ([A], [A, BESIDE], [A, D], [A, C, E])[(i + n) % 4]
            t = await client.begin(renews=True, ttl_ms=300)
            try:
                if loop.rng.random() < 0.7:
                    await t.lock(keys[:1], wait_ms=5_000)
                await t.lock(keys, wait_ms=5_000)
                if loop.rng.random() < 0.3 and t._locks is not None:
                    t._locks.stop()
                    await asyncio.sleep(loop.rng.random())
                await t.renew()
                for key in keys:
                    value, _ = await t.get(key)
                    t.put(key, b"%d" % (int(value or b"0") + 1))
                await t.commit()
                done[0] += 1
            except UnknownOutcome:
                unknown[0] += 1
            except KvorumError:
                await t.abort()

    async with asyncio.TaskGroup() as group:
        for i in range(6):
            group.create_task(work(i))
    await asyncio.gather(*late)
    (count,) = await values(world, [A])
    assert done[0] <= count <= done[0] + unknown[0]
    assert done[0] > 0
    for key in (
        A,
        BESIDE,
        C,
        D,
        E,
    ):  # what a late message has locked again is free for whoever asks
        await world.client().write([put(key, b"0")])


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(20))
def test_d15_no_update_is_lost_whatever_becomes_of_the_locks(seed: int) -> None:
    """Locks are lost, and laid again by late messages: neither may count for the commit."""
    played(chaos, seed)


def _lays_nothing(view: View, ops: Sequence[Op], *, fresh_ts: int, **said: Any) -> Prewritten:
    """A prewrite that answers locks and does not lay them."""
    if all(op[0] == OP_CHECK and op[3] is None for op in ops):
        return Prewritten(fresh_ts)
    return prewrite(view, ops, fresh_ts=fresh_ts, **said)


def _trusting(self: RowLocks, ops: Sequence[Op]) -> list[Op]:
    """A commit without the versions that were answered."""
    return sorted(ops, key=lambda op: op.key != self.anchor)


def _rejected(scene: Scene) -> bool:
    """Whether a seed fails."""
    for seed in range(20):
        try:
            played(scene, seed)
        except (AssertionError, ExceptionGroup):
            return True
    return False


@pytest.mark.slow
def test_d15_builds_without_locks_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judges would pass a store that answers locks and lets others in: transactions repeat
    then, and without the conditions updates are lost.
    """
    monkeypatch.setattr(kv.partition.writes, "prewrite", _lays_nothing)
    assert _rejected(counting)
    assert not _rejected(chaos), "the conditions alone keep every update"
    monkeypatch.setattr(RowLocks, "conditions", _trusting)
    assert _rejected(chaos)


# --------------------------------------------------------------------------- message by message


async def said(world: RealWorld, start_ts: int, *ops: Op, **options: bool) -> list[Any]:
    """The answer to one PREWRITE with the first op's key as the anchor."""
    rows = (ops[0].key, start_ts, ops[0].key, TXN_TTL_MS_DEFAULT, [list(op) for op in ops])
    found: list[Any] = await world.kv().call(PREWRITE, *rows, BLIND, options, budget_ms=1_000)
    return found


LOCK_A, LOCK_BESIDE = Op(OP_CHECK, A), Op(OP_CHECK, BESIDE)


@pytest.mark.parametrize(
    ("ops", "options"),
    [
        ((LOCK_A,), {}),
        ((LOCK_A,), {"locked": True}),
        ((put(A, b"1"),), {"lock": True}),
        ((check(A, 0),), {"lock": True}),
        ((LOCK_A, put(BESIDE, b"1")), {"lock": True}),
        ((put(A, b"1"),), {"unlock": True}),
        ((LOCK_A,), {"lock": True, "unlock": True}),
        ((LOCK_A,), {"lock": True, "locked": True}),
        ((LOCK_A,), {"lock": True, "fence": True}),
    ],
)
def test_d15_what_is_no_lock_is_refused(ops: tuple[Op, ...], options: dict[str, bool]) -> None:
    """A value that came as a lock would be forgotten; a commit's checks would check nothing."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        ts = await world.tso().now()
        assert isinstance(await failure(said(world, ts, *ops, **options)), InvalidArgument)

    played(scene)


def test_d15_what_comes_late_takes_nothing_from_a_commit() -> None:
    """An unlock that was sent before would remove what the commit has laid: half of it is lost."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        ts = await world.tso().now()
        _, versions = await said(world, ts, LOCK_A, LOCK_BESIDE, lock=True)
        assert versions == [0, 0]
        assert world.locked() == [BESIDE, A]
        await said(world, ts, LOCK_BESIDE, unlock=True)
        assert world.locked() == [A]
        await said(world, ts, put(A, b"1", 0), check(BESIDE, 0), locked=True)
        for late in ({"unlock": True}, {"lock": True}):
            await said(world, ts, LOCK_A, LOCK_BESIDE, **late)
            assert world.locked() == [BESIDE, A]
        await world.kv().call(COMMIT, A, A, ts, await world.tso().now(), budget_ms=1_000)
        assert await values(world, [A]) == [1]
        await world.client().write([put(BESIDE, b"0")])

    played(scene)


def test_d15_a_lock_that_comes_late_excuses_nothing() -> None:
    """Its transaction has gone on without it, and others have written meanwhile."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        ts = await world.tso().now()
        version = await world.client().write([put(A, b"5")])
        await said(world, ts, LOCK_A, lock=True)
        for cond in (0, version - 1):
            refused = await failure(said(world, ts, put(A, b"1", cond), locked=True))
            assert isinstance(refused, ConditionFailed)
        await said(world, ts, put(A, b"1", version), locked=True)
        await world.kv().call(COMMIT, A, A, ts, await world.tso().now(), budget_ms=1_000)
        assert await values(world, [A]) == [1]

    played(scene)


def test_d15_an_unlock_wakes_those_who_wait() -> None:
    """Whoever waits for the row would sleep until the transaction ends."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        t = await world.client().begin(renews=True)
        await t.lock([B])
        mark = t.mark()
        await t.lock([A, D])
        t.put(A, b"1")
        writing = asyncio.create_task(world.client().write([put(A, b"5"), put(D, b"5")]))
        await asyncio.sleep(0.2)
        assert not writing.done()
        t.undo_to(mark)
        await t.unlock_to(mark)
        await asyncio.wait_for(writing, 0.5)
        t.put(B, b"1")
        await t.commit()
        assert await values(world, [A, B, D]) == [5, 1, 5]

    played(scene)


class Counting(Hooked):
    """Counts the requests of a client, by method."""

    def __init__(self, loop: SimLoop, inner: Kv) -> None:
        super().__init__(loop, inner)
        self.sent: list[int] = []

    async def arrives(self, method: int) -> None:
        self.sent.append(method)


def test_d15_a_lock_brings_what_it_locked() -> None:
    """Every change of a row by its key would cost a request to lock and another one to read."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(key, b"1") for key in (A, B, C)])
        kv = Counting(loop, world.kv())
        client = world.client(kv)
        t = await client.begin(renews=True)
        for key in (A, B, C):
            found = await t.lock_present(key)
            assert found is not None
            t.put(key, found[0] + b"0", cond=found[1])
        assert await t.lock_present(D) is None, "absent"
        assert kv.sent == [PREWRITE] * 4 + [MGET], "what is absent may be an intent"
        assert await t.lock_present(A) is not None, "locked before, and read now"
        await world.client().write([put(D, b"4")])  # what was absent is not locked
        await t.commit()
        rows, _ = await client.multi_get([A, B, C, D])
        assert [row and row[0] for row in rows] == [b"10", b"10", b"10", b"4"]

    played(scene)


def test_d15_a_row_that_was_just_committed_is_present() -> None:
    """Its version is an intent yet: an UPDATE by its key would not find what was acknowledged."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        keys = (A, B, C, D)
        for at in keys:
            first = await client.begin()
            for key in keys:
                first.put(key, b"1")
            await first.commit()
            t = await client.begin(renews=True)
            found = await t.lock_present(at)
            assert found is not None, at
            for key in keys:
                t.delete(key)
            await t.commit()

    played(scene)


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_d17_who_relies_on_what_is_about_to_go_waits(ends: str) -> None:
    """A child by itself passed the lock of its parent that went, and the block that removed it was
    refused. A lock that says no more than that somebody may write is passed as before.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(key, b"1") for key in (A, B)])
        t = await world.client().begin(renews=True)
        await t.lock([A, B])
        passing = await world.client().begin()
        passing.hold_key(A)
        passing.put(C, b"1")
        await passing.commit()
        await t.lock([A], going=True)
        t.delete(A)
        waiting = await world.client().begin()
        waiting.hold_key(A)
        waiting.put(D, b"1")
        child = asyncio.create_task(waiting.commit())
        await asyncio.sleep(0.2)
        assert not child.done()
        if ends == "commit":
            await t.commit()
            assert isinstance(await failure(child), WriteConflict)
        else:
            await t.abort()
            await child
        assert await values(world, [A, C, D]) == ([0, 1, 0] if ends == "commit" else [1, 1, 1])

    played(scene)


# -- with a commit that is streamed


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit of more than one key is."""
    monkeypatch.setattr("txn.transaction.TXN_STREAM_KEYS_MIN", 2)


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("renews", [True, False])
def test_d15_a_large_commit_goes_before_those_who_wait_for_its_locks(renews: bool) -> None:
    """Its locks ended before its intents were laid: whoever waited won, and all of its work was in
    vain. It is the same transaction to whoever asks for its end, too.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        await client.write([put(key, b"1") for key in (A, B, C)])
        while world.locked():  # noqa: ASYNC110 - cleaned behind the answer; nobody tells
            await asyncio.sleep(0.01)
        t = await client.begin(renews=renews)
        await t.lock([A, B, C, BESIDE])
        t.put(A, b"2")
        t.delete(B)
        t.put(D, b"2", cond=0)
        t.put(E, b"2")
        after = [
            asyncio.create_task(world.client().write([op]))
            for op in (put(A, b"7"), put(B, b"7"), put(C, b"7"), put(BESIDE, b"7"))
        ]
        await asyncio.sleep(0.1)
        version = await t.commit()
        for waited in after:
            assert await waited > version
        assert (await client.status(t.id)).commit_ts == version
        assert await values(world, [A, B, C, D, E, BESIDE]) == [7, 7, 7, 2, 2, 7]
        rows, _ = await client.multi_get([A, B, C, D], at=version)
        assert [row and row[0] for row in rows] == [b"2", None, b"1", b"2"]

    played(scene)


@pytest.mark.usefixtures("streamed")
def test_d15_a_large_commit_is_blind_to_what_its_statements_saw() -> None:
    """It was checked against its beginning, so what a later statement had seen was a conflict."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        old = await world.client().write([put(A, b"1"), put(B, b"1")])
        t = await world.client().begin(renews=True)
        await world.client().write([put(A, b"2"), delete(B)])
        await t.renew()
        _, version = await t.get(A)
        assert version > old
        t.computes_from(A, version)
        t.put(A, b"3")
        t.put(B, b"3", cond=0)
        await t.commit()
        assert await values(world, [A, B]) == [3, 3]

    played(scene)


@pytest.mark.usefixtures("streamed")
def test_d17_a_large_commit_leaves_others_what_it_only_shares() -> None:
    """A shared lock became a condition on a version: that a parent's other columns changed was a
    conflict. One that was lost is one, if its row is gone.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(key, b"1") for key in (A, B)])
        t = await world.client().begin(renews=True)
        await t.lock([A, B], strength=KEY_SHARE)
        await world.client().write([put(A, b"2")])
        t.put(D, b"1", cond=0)
        t.put(E, b"1", cond=0)
        waits = asyncio.create_task(world.client().write([delete(B)]))
        await asyncio.sleep(0.1)
        assert not waits.done()
        version = await t.commit()
        assert await waits > version
        assert await values(world, [A, B, D, E]) == [2, 0, 1, 1]

        t = await world.client().begin(renews=True)
        await t.lock([A], strength=KEY_SHARE)
        await world.kv().call(RESOLVE, A, t.start_ts, 0, [A], budget_ms=1000)
        await world.client().write([delete(A)])
        t.put(B, b"4", cond=0)
        t.put(D, b"4")
        assert isinstance(await failure(t.commit()), WriteConflict)
        assert await values(world, [A, B, D]) == [0, 0, 1]

    played(scene)


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("lost", [A, B, C], ids=["anchor", "written", "only locked"])
def test_d15_a_lost_lock_of_a_large_commit_costs_a_conflict(lost: bytes) -> None:
    """Trusted, it would cost what others wrote. Nothing may be half there."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(key, b"1") for key in (A, B, C)])
        t = await world.client().begin(renews=True)
        await t.lock([A, B, C])
        await world.kv().call(RESOLVE, lost, t.start_ts, 0, [lost], budget_ms=1000)
        await world.client().write([put(lost, b"7")])
        for key in (A, B, D):
            t.put(key, b"2")
        assert isinstance(await failure(t.commit()), WriteConflict)
        assert await values(world, [A, B, C, D]) == [
            7 if key == lost else 0 if key == D else 1 for key in (A, B, C, D)
        ]

    played(scene)


@pytest.mark.usefixtures("streamed")
def test_d15_rows_of_a_large_commit_take_the_place_of_locks_that_nobody_knows() -> None:
    """A lock that a late message laid was taken for the row's own intent: the row was lost."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(B, b"1")])
        t = await world.client().begin(renews=True)
        await t.lock([A, B, BESIDE])
        assert t._locks is not None
        for key in (B, BESIDE):  # as if it had been given up, and the message came late
            del t._locks._held[key], t._locks._asked[key], t._locks.versions[key]
        for key in (A, B, BESIDE, C):
            t.put(key, b"2")
        t.put(E, b"2", cond=0)
        await t.commit()
        assert await values(world, [A, B, BESIDE, C, E]) == [2] * 5

    played(scene)


def test_d15_what_is_absent_is_no_anchor() -> None:
    """Locks would lie under the record of a key that was never locked, and outlive their time."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(B, b"1")])
        client = world.client()
        t = await client.begin(renews=True)
        assert await t.lock_present(A) is None
        assert await t.lock_present(B) is not None
        assert t._locks is not None
        assert t._locks.anchor == B
        assert not t._locks.unsure
        await asyncio.sleep(2 * TXN_TTL_MS_DEFAULT / 1000)
        t.put(B, b"2")
        await t.commit()
        assert await values(world, [B]) == [2]

    played(scene)


def test_d15_what_was_absent_before_a_savepoint_makes_no_anchor_behind_it() -> None:
    """Whether there is a savepoint was settled when the first key was looked at, and ROLLBACK TO
    let the first row that was locked behind it not go.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(B, b"1")])
        t = await world.client().begin(renews=True)
        assert await t.lock_present(A) is None
        mark = t.mark()
        assert await t.lock_present(B) is not None
        t.undo_to(mark)
        await t.unlock_to(mark)
        other = await world.client().begin(renews=True)
        await other.lock([B], wait_ms=0)
        await other.abort()
        await t.abort()

    played(scene)


# -- the four strengths (docs/decisions/1560)


@pytest.mark.parametrize("second", STRENGTHS)
@pytest.mark.parametrize("first", STRENGTHS)
def test_d17_two_locks_of_a_key_as_postgresql_has_them(first: str, second: str) -> None:
    """Those who only share a row would wait for each other, or would not be kept apart."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(A, b"0")])
        one, two = [await world.client().begin(renews=True) for _ in range(2)]
        await one.lock([A], strength=STRENGTHS[first])
        work = two.lock([A], strength=STRENGTHS[second], wait_ms=0)
        if STRENGTHS[second] in EXCLUDED[STRENGTHS[first]]:
            assert isinstance(await failure(work), KeyLocked)
            waiting = asyncio.create_task(two.lock([A], strength=STRENGTHS[second]))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await one.abort()
            await waiting
        else:
            await work
        await two.abort()
        await one.abort()

    played(scene)


@pytest.mark.parametrize("strength", [SHARE, KEY_SHARE])
def test_d17_what_is_shared_is_not_written_by_others(strength: int) -> None:
    """Of a row that a block has shared, another one would take away what the block relies on; but
    what a key share does not care for may change, and is no conflict.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(A, b"0"), put(D, b"0")])
        t = await world.client().begin(renews=True)
        await t.lock([A, D], strength=strength)
        writing = asyncio.create_task(world.client().write([put(A, b"1")]))
        both = asyncio.create_task(world.client().write([put(D, b"1"), put(B, b"1")]))
        await asyncio.sleep(0.5)
        assert writing.done() == both.done() == (strength == KEY_SHARE)
        going = asyncio.create_task(world.client().write([delete(D)]))
        await asyncio.sleep(0.5)
        assert not going.done()
        t.put(C, b"child")
        version = await t.commit()
        done = await asyncio.gather(writing, both, going)
        assert done[2] > version
        assert strength == KEY_SHARE or min(done) > version

    played(scene)


def test_d17_shared_locks_are_undone_and_left() -> None:
    """Who goes back to a savepoint, or ends without writing, would hold others up."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(A, b"0"), put(D, b"0")])
        t = await world.client().begin(renews=True)
        await t.lock([A], strength=SHARE)
        mark = t.mark()
        await t.lock([D], strength=SHARE)
        t.undo_to(mark)
        await t.unlock_to(mark)
        await world.client().write([delete(D)])
        await t.commit()
        began = loop.time()
        await world.client().write([delete(A)])
        assert loop.time() - began < 1

    played(scene)


def test_d17_two_who_share_and_want_more_are_a_deadlock() -> None:
    """Each would wait for the other until the time of one is over."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(A, b"0")])
        one, two = [await world.client().begin(renews=True) for _ in range(2)]
        for t in (one, two):
            await t.lock([A], strength=SHARE)
        outsider = asyncio.create_task(world.client().write([put(A, b"9")]))
        await asyncio.sleep(0.1)

        async def more(t: Transaction) -> bool:
            try:
                await t.lock([A], wait_ms=60_000)
            except TxnAborted:
                await t.abort()
                return False
            t.put(A, b"1")
            await t.commit()
            return True

        began = loop.time()
        assert sorted(await asyncio.gather(more(one), more(two))) == [False, True]
        assert loop.time() - began < 5
        await outsider
        assert await values(world, [A]) == [9]

    played(scene)


def test_d17_who_holds_a_key_and_wants_more_goes_first() -> None:
    """Who waits for him would be asked first, and wait again: both for ever."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(A, b"0")])
        one, two, three = [await world.client().begin(renews=True) for _ in range(3)]
        await one.lock([A], strength=NO_KEY_UPDATE)
        await two.lock([A], strength=KEY_SHARE)
        waits = asyncio.create_task(three.lock([A], strength=NO_KEY_UPDATE))
        await asyncio.sleep(0.1)
        more = asyncio.create_task(one.lock([A]))
        await asyncio.sleep(0.1)
        late = await world.client().begin(renews=True)
        refused = await failure(late.lock([A], strength=KEY_SHARE, wait_ms=0))
        assert isinstance(refused, KeyLocked), "it would exclude who waits for all of it"
        began = loop.time()
        two.put(B, b"child")
        await two.commit()
        await more
        assert not waits.done()
        one.put(A, b"1")
        await one.commit()
        await waits
        assert loop.time() - began < 1
        await three.abort()
        await late.abort()

    played(scene)


def test_d17_shared_locks_outlive_the_node() -> None:
    """A lock that a crash forgets protects nothing."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(A, b"0")])
        t = await world.client().begin(renews=True)
        await t.lock([A], strength=KEY_SHARE)
        await asyncio.sleep(0.05)
        await world.crash()
        other = await world.client().begin(terms=Terms(lock_wait_ms=0))
        other.delete(A)
        refused = await failure(other.commit())
        assert isinstance(refused, KeyLocked)

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        await scene(loop, world)
        world.close()

    run(main, 0)


def test_d17_guards_of_before_are_read() -> None:
    """A partition would not open after an upgrade, or take a read for a lock."""
    old = Guard(A, None, 7, B, 5000, 0, 0, "ada")
    body = msgpack.packb([None, B, 5000, 0, 0, "ada"])
    assert decode_guard(guard_key(A, 7), seal(guard_key(A, 7), body)) == old
    assert decode_guard(guard_key(A, 7), encode_guard(old)) == old
    for user in ("", "ada"):
        new = Guard(A, None, 7, B, 5000, 0, 0, user, KEY_SHARE)
        assert decode_guard(guard_key(A, 7), encode_guard(new)) == new
