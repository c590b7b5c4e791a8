"""Parallel commit from end to end, message by message: one outcome, whoever decides it (D13).

Controlled: a wire holds messages, and the clocks are virtual. The argument is in kv.mvcc.recover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from kv.base.errors import KvorumError, TxnAborted, WriteConflict
from kv.base.limits import RECOVERY_GRACE_MS, TXN_TTL_MS_DEFAULT, UNSTAGE_MS
from kv.base.methods import (
    ABORTED,
    CHECK,
    COMMIT,
    FINISH,
    HEARTBEAT,
    PENDING,
    PREWRITE,
    RECOVER,
    RESOLVE,
    ROLLBACK,
    SETTLE,
)
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.fake_kv import Sent
from tests.txn.wire import Gate, PausedTimers, Wire
from tests.txn.world import WORLDS, RealWorld, World, failure, k
from txn.client import TxnClient
from txn.transaction import Transaction

B, G, Z = k("b"), k("g"), k("z")  # three partitions
OLD, NEW = b"old", b"new"
S = 1 / 1000  # seconds of a millisecond

Scene = Callable[[SimLoop, World], Awaitable[None]]


def play(scene: Scene, make: type[World], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        setup = world.client()
        await setup.write([put(key, OLD) for key in (B, G, Z)])
        await setup.close()
        await scene(loop, world)
        world.close()

    run(main, seed)


async def began(client: TxnClient, *keys: bytes) -> Transaction:
    """A transaction that has written the keys."""
    t = await client.begin()
    for key in keys:
        t.put(key, NEW)
    return t


async def intent(world: World, key: bytes) -> None:
    """Wait until there is one on the key."""
    while key not in world.locked():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(S)


def dead(commit: asyncio.Task[int]) -> None:
    """What a coordinator that was closed says interests nobody."""
    if commit.done() and not commit.cancelled():
        commit.exception()


async def values(client: TxnClient, *keys: bytes, at: int = 0) -> list[bytes]:
    rows, _ = await client.multi_get(list(keys), at)
    return [row[0] for row in rows if row is not None]


@WORLDS
def test_d13_one_round_trip_less(make: type[World]) -> None:
    """The caller would wait for the oracle and the flip, though the outcome is certain."""

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        client = world.client(wire)
        t = await began(client, B, Z)
        gate = Gate(wire, COMMIT, FINISH)
        version = await t.commit()
        assert wire.methods() == [PREWRITE, PREWRITE], "nothing else was needed"
        trace = t.trace()
        assert trace is not None
        assert (trace.round_trips, trace.syncs) == (1, 1), str(trace)
        gate.opened.set()
        await client.close()
        assert wire.methods() == [PREWRITE, PREWRITE, FINISH, FINISH]
        assert await world.client().get(Z) == (NEW, version)

        wire = Wire(loop, world.kv())
        client = world.client(wire, parallel=False)
        t = await began(client, B, Z)
        await t.commit()
        trace = t.trace()
        assert trace is not None
        assert (trace.round_trips, trace.syncs) == (3, 2), "prewrites, oracle, flip"
        assert "PREWRITE" in str(trace)
        await client.close()

    play(scene, make)


@WORLDS
def test_d13_reader_in_the_implicit_window_sees_the_commit(make: type[World]) -> None:
    """The coordinator died before it flipped: what it acknowledged is there, at that version."""

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        Gate(wire, COMMIT, FINISH, HEARTBEAT)
        client, reader = world.client(wire), world.client()
        t = await began(client, B, G, Z)
        version = await t.commit()
        began_at = loop.time()
        assert await reader.get(G) == (NEW, version)
        assert loop.time() - began_at < RECOVERY_GRACE_MS * S, "complete: no need for patience"
        assert (await reader.status(t.id)).commit_ts == version
        assert await values(reader, B, G, Z) == [NEW] * 3
        await client.close(drain_s=0)
        await reader.close()
        assert world.locked() == []

    play(scene, make)


@WORLDS
def test_d13_status_of_a_staging_transaction(make: type[World]) -> None:
    """ "Pending" for ever, or an answer that a later one contradicts, would be no answer."""

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, HEARTBEAT, ROLLBACK, key=Z)
        client, other = world.client(wire), world.client()
        t = await began(client, B, Z)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        await intent(world, B)
        wire.before = Gate(wire, HEARTBEAT, ROLLBACK)._hook  # dead from here on
        assert (await other.status(t.id)).status == "pending"
        await asyncio.sleep(RECOVERY_GRACE_MS * S)
        assert (await other.status(t.id)).status == "aborted"
        gate.opened.set()
        commit.cancel()
        await asyncio.wait([commit])
        await client.close(drain_s=0)
        assert await values(other, B, Z) == [OLD, OLD]
        await other.close()
        await asyncio.sleep(1)
        assert (await other.status(t.id)).status == "aborted"

    play(scene, make)


@WORLDS
def test_d13_late_prewrite_meets_the_fence(make: type[World]) -> None:
    """Recovery said "aborted"; a prewrite that still travels would complete the intents, and the
    coordinator call it committed.
    """

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=Z)
        client, reader = world.client(wire, timers=PausedTimers(loop)), world.client()
        t = await began(client, B, Z)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        await asyncio.sleep(UNSTAGE_MS * S)
        assert await values(reader, B, Z) == [OLD, OLD]
        gate.opened.set()
        error = await failure(commit)  # type: ignore[arg-type]
        assert isinstance(error, TxnAborted)
        assert error.disposition == "restart_txn"
        assert (await reader.status(t.id)).status == "aborted"
        await client.close()
        await reader.close()
        assert await values(world.client(), B, Z) == [OLD, OLD]
        assert world.locked() == []

    play(scene, make)


@WORLDS
def test_d13_slow_coordinator_is_not_recovered_under_its_feet(make: type[World]) -> None:
    """One of its prewrites waits for a lock: it says so, goes on in two phases, and readers push it
    instead of waiting.
    """

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=Z)
        client, reader = world.client(wire), world.client()
        t = await began(client, B, Z)
        commit = loop.create_task(t.commit())
        await asyncio.sleep(3 * RECOVERY_GRACE_MS * S)
        began_at = loop.time()
        at = await reader.now()
        assert await values(reader, B, Z, at=at) == [OLD, OLD]
        assert loop.time() - began_at < 50 * S, "it was pushed"
        gate.opened.set()
        version = await commit
        assert version > at
        assert HEARTBEAT in wire.methods()
        assert await values(reader, B, Z, at=at) == [OLD, OLD]
        assert await reader.get(Z) == (NEW, version)
        await client.close()

    play(scene, make)


@WORLDS
def test_d13_prefetched_timestamp_would_miss_a_reader(make: type[World]) -> None:
    """A bound taken when the message was sent lies below a snapshot that has read the old value
    since.
    """

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=Z)
        client, reader = world.client(wire), world.client()
        t = await began(client, B, Z)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        at = await reader.now()
        assert await reader.get(Z, at=at) == (OLD, (await reader.get(Z))[1])
        gate.opened.set()
        version = await commit
        assert version > at
        assert await values(reader, B, Z, at=at) == [OLD, OLD]
        await client.close()

    play(scene, make)


@WORLDS
def test_d13_push_before_the_anchor_is_prewritten(make: type[World]) -> None:
    """The reader stepped over an intent; the commit must not slip below its snapshot."""

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=B)
        client, reader = world.client(wire), world.client()
        t = await began(client, B, Z)
        commit = loop.create_task(t.commit())
        await intent(world, Z)
        at = await reader.now()
        assert await values(reader, B, Z, at=at) == [OLD, OLD]
        gate.opened.set()
        version = await commit
        assert version > at
        assert await values(reader, B, Z, at=at) == [OLD, OLD]
        assert await values(reader, B, Z) == [NEW, NEW]
        await client.close()

    play(scene, make)


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(12))
@WORLDS
def test_d13_push_and_recovery_race_the_flip(make: type[World], seed: int) -> None:
    """Readers at every moment of a commit, some of which recover it: one version, and snapshots
    that do not change.
    """

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv(), latency_ms=20)
        client = world.client(wire)
        readers = [world.client(Wire(loop, world.kv(), latency_ms=10)) for _ in range(4)]
        t = await began(client, B, G, Z)
        seen: list[tuple[int, list[tuple[bytes, int] | None]]] = []

        async def look(reader: TxnClient) -> None:
            await asyncio.sleep(loop.rng.random() * 60 * S)
            rows, at = await reader.multi_get([B, G, Z])
            seen.append((at, rows))
            state = await reader.status(t.id)
            assert state.status in ("pending", "committed", "unknown")

        looks = [loop.create_task(look(reader)) for reader in readers for _ in range(3)]
        version = await t.commit()
        await asyncio.gather(*looks)
        again = world.client()
        for at, rows in seen:
            assert {row[0] for row in rows if row} == ({NEW} if version <= at else {OLD})
            assert (await again.multi_get([B, G, Z], at))[0] == rows
        assert (await again.multi_get([B, G, Z]))[0] == [(NEW, version)] * 3
        assert (await again.status(t.id)).commit_ts == version
        await client.close()
        for reader in readers:
            await reader.close()
        assert world.locked() == []

    play(scene, make, seed)


@pytest.mark.few(8)
@pytest.mark.parametrize("step", range(24))
def test_d13_leader_change_at_any_moment(step: int) -> None:
    """The node restarts in the middle of a commit, and leads again: its bounds, stages and fences
    are those of the log, and new ones lie above everything that was read before.
    """

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        setup = world.client()
        await setup.write([put(key, OLD) for key in (B, G, Z)])
        await setup.close()
        wire = Wire(loop, world.kv(), latency_ms=0.5)
        client = world.client(wire)
        t = await began(client, B, G, Z)
        commit = loop.create_task(t.commit())
        await asyncio.wait([commit], timeout=step * 0.4 * S)
        acknowledged = commit.result() if commit.done() else 0
        early = world.client()
        seen, at = await early.multi_get([B, G, Z]) if step % 3 == 0 else ([], 0)
        await early.close()
        await world.crash()
        wire.inner = world.kv()  # the client finds the new leader
        reader = world.client()
        outcome = (await asyncio.gather(commit, return_exceptions=True))[0]
        if isinstance(outcome, KvorumError):
            assert outcome.disposition != "unknown_outcome", "there was time enough to learn it"
        version = outcome if isinstance(outcome, int) else 0
        rows, _ = await reader.multi_get([B, G, Z])
        if version:
            assert rows == [(NEW, version)] * 3
        else:
            assert [row[0] for row in rows if row] == [OLD] * 3
        assert acknowledged in (0, version)
        if seen:
            assert (await reader.multi_get([B, G, Z], at))[0] == seen, "the snapshot changed"
        await client.close()
        await reader.close()
        world.close()

    run(main, step)


def test_d13_split_between_prewrite_and_recovery() -> None:
    """Whoever recovers asks by keys: a part that lies in two partitions by now is still whole, and
    a fence in one of them stops the whole part.
    """

    async def scene(loop: SimLoop, world: World) -> None:
        f, h = k("f"), k("h")
        wire = Wire(loop, world.kv())
        Gate(wire, COMMIT, FINISH, HEARTBEAT)
        client, reader = world.client(wire), world.client()
        t = await began(client, B, f, h)
        version = await t.commit()
        world.split(G)  # f | h
        assert await reader.get(h) == (NEW, version)
        assert await values(reader, B, f, h) == [NEW] * 3
        await client.close(drain_s=0)

        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=k("p"))

        async def paused(sent: Sent) -> None:
            await gate._hook(sent)
            if sent.method == HEARTBEAT:
                await gate.opened.wait()

        wire.before = paused
        client = world.client(wire)
        t = await began(client, B, k("p"), k("s"))  # p and s: one part
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        world.split(k("r"))
        await asyncio.sleep(RECOVERY_GRACE_MS * S)
        assert (await reader.get(B))[0] == NEW
        assert (await reader.status(t.id)).status == "aborted"
        gate.opened.set()
        assert isinstance(await failure(commit), TxnAborted)  # type: ignore[arg-type]
        await client.close()
        await reader.close()
        assert (await world.client().get(k("s"))) == (None, 0)

    play(scene, World)


def test_d13_split_under_the_prewrite_keeps_the_early_answer() -> None:
    """A split would cost every transaction that it meets a round trip, or worse its atomicity."""

    async def scene(loop: SimLoop, world: World) -> None:
        f, h = k("f"), k("h")
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=f)
        client = world.client(wire)
        t = await began(client, B, f, h)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        world.split(G)
        gate.opened.set()
        version = await commit
        await client.close()
        assert wire.methods() == [PREWRITE] * 3 + [FINISH] * 3
        rows, _ = await world.client().multi_get([B, f, h])
        assert rows == [(NEW, version)] * 3

    play(scene, World)


@WORLDS
def test_d13_many_recover_at_once(make: type[World]) -> None:
    """Each of them would decide for itself, and perhaps differently."""

    async def scene(loop: SimLoop, world: World) -> None:
        for complete in (True, False):
            wire = Wire(loop, world.kv())
            first = Gate(wire, PREWRITE, key=Z)
            rest = Gate(wire, COMMIT, FINISH, HEARTBEAT, ROLLBACK)

            async def hold(sent: Sent, first: Gate = first, rest: Gate = rest) -> None:
                await rest._hook(sent)
                await first._hook(sent)

            if not complete:
                wire.before = hold
            client = world.client(wire)
            t = await began(client, B, G, Z)
            commit = loop.create_task(t.commit())
            await asyncio.wait([commit], timeout=20 * S)
            assert commit.done() == complete
            await client.close(drain_s=0)  # it is dead
            await asyncio.wait([commit])
            dead(commit)
            await asyncio.sleep(RECOVERY_GRACE_MS * S)
            many = [world.client() for _ in range(10)]
            found = await asyncio.gather(*(one.status(t.id) for one in many))
            assert set(found) == {found[0]}
            assert found[0].status == ("committed" if complete else "aborted")
            for one in many:
                assert (await values(one, B, G, Z)) == [NEW if complete else OLD] * 3
                await one.close()
            setup = world.client()
            await setup.write([put(key, OLD) for key in (B, G, Z)])
            await setup.close()

    play(scene, make)


@WORLDS
def test_d13_nobody_meets_it_but_the_sweeper(make: type[World]) -> None:
    """An acknowledged transaction whose coordinator died would stay a heap of intents."""

    async def scene(loop: SimLoop, world: World) -> None:
        if not isinstance(world, RealWorld):
            return
        from kvorum.testing.simulation.loop import SimRng
        from txn.intents.resolver import Resolver
        from txn.intents.sweeper import Sweeper
        from txn.shared.deadlines import Background

        wire = Wire(loop, world.kv())
        Gate(wire, COMMIT, FINISH, HEARTBEAT)
        client = world.client(wire)
        t = await began(client, B, Z)
        version = await t.commit()
        await client.close(drain_s=0)
        assert len(world.locked()) == 2
        await asyncio.sleep(2 * TXN_TTL_MS_DEFAULT * S)
        timers = world.client().timers
        resolver = Resolver(world.kv(), timers, SimRng(9), Background())
        await Sweeper(world.real.manager, resolver, world.real.clock, timers).sweep()
        assert world.locked() == []
        assert await world.client().get(Z) == (NEW, version)

    play(scene, make)


@WORLDS
def test_two_commits_of_one_id_have_one_outcome(make: type[World]) -> None:
    """Both callers must be told the same, or one repeats what the other has done."""

    async def scene(loop: SimLoop, world: World) -> None:
        client = world.client()
        for keys in ((B,), (B, Z)):
            t = await began(client, *keys)
            first, second = await asyncio.gather(t.commit(), t.commit())
            assert first == second == await t.commit()
            assert (await client.status(t.id)).commit_ts == first
        t, rival = await client.begin(), await began(client, B, Z)
        t.put(B, NEW)
        t.put(Z, NEW)
        await rival.commit()
        told = await asyncio.gather(t.commit(), t.commit(), return_exceptions=True)
        codes = [error.code for error in told if isinstance(error, KvorumError)]
        assert codes == ["WRITE_CONFLICT"] * 2
        error = await failure(t.commit())
        assert isinstance(error, TxnAborted)
        assert "begin another" in str(error)
        await client.close()

    play(scene, make)


def test_d13_flip_learns_what_recovery_decided() -> None:
    """The usual way out of STAGING meets a recovery that was faster: the record decides."""

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, PREWRITE, key=B, after=True)  # the answer of the anchor is late
        wire.before = Gate(wire, HEARTBEAT)._hook
        client, reader = world.client(wire), world.client()
        t = await began(client, B, Z)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        await asyncio.sleep(RECOVERY_GRACE_MS * S)
        seen = await reader.get(Z)
        gate.opened.set()
        version = await commit
        assert seen == (NEW, version)
        assert (await reader.status(t.id)).commit_ts == version
        await client.close()
        await reader.close()

    play(scene, World)


@pytest.mark.slow
def test_d13_recovery_messages_may_come_twice() -> None:
    """Executed again, late and in any order, they must change nothing."""

    async def scene(loop: SimLoop, world: World) -> None:
        wire = Wire(loop, world.kv())
        Gate(wire, COMMIT, FINISH, HEARTBEAT)
        client = world.client(wire)
        t = await began(client, B, Z)
        version = await t.commit()
        await client.close(drain_s=0)
        told = Wire(loop, world.kv())
        reader = world.client(told)
        await reader.get(Z)
        await reader.close()
        wanted = (PREWRITE, RECOVER, SETTLE, RESOLVE)
        echoes = [sent for sent in wire.log + told.log if sent.method in wanted]
        loop.rng.shuffle(echoes)
        kv = world.kv()
        for sent in echoes:
            with suppress(TxnAborted, WriteConflict):
                await kv.call(sent.method, sent.key, *sent.args, budget_ms=1000)
        settle = next(s for s in echoes if s.method == SETTLE)
        for wrong in (0, version + 5):  # of somebody who was slower, or is mistaken
            args = (*settle.args[:2], wrong)
            status, ts = await kv.call(SETTLE, settle.key, *args, budget_ms=1000)
            assert ts == version
            assert status not in (PENDING, ABORTED)
        status, *_ = await kv.call(CHECK, B, B, t.id, 0, 1000, budget_ms=1000)
        assert status not in (PENDING, ABORTED)
        final = world.client()
        assert (await final.multi_get([B, Z]))[0] == [(NEW, version)] * 2
        await final.close()
        assert world.locked() == []

    for seed in range(10):
        play(scene, World, seed)
        play(scene, RealWorld, seed)
