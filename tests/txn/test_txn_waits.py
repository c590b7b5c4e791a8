"""Waiting for each other: fairness, deadlocks, dead holders. Real partitions in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kv.base.errors import KeyLocked, KvorumError, TxnAborted
from kv.base.limits import (
    DEADLOCK_AFTER_MS,
    TXN_TTL_MS_DEFAULT,
    WAIT_PUSH_MS,
    WAIT_PUSH_MS_MAX,
)
from kv.base.methods import BLIND, CHECK, HEARTBEAT, OP_PUT, PREWRITE, RESOLVE, ROLLBACK
from kv.base.ops import put
from kv.base.waits import Wait
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import Hooked, RealWorld, doomed_client, failure, k
from txn.intents.deadlock import cycles, refusal, still, victim
from txn.shared.wait_terms import Terms
from txn.transaction import Transaction

FIVE = [k("b"), k("f"), k("l"), k("p"), k("z")]  # one per partition
A, B, C, D, E = FIVE
Scene = Callable[[SimLoop, RealWorld], Coroutine[Any, Any, None]]


def played(scene: Scene, seed: int = 0) -> None:
    """Run a scene on fresh partitions; nothing waits in the end."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        await scene(loop, world)
        for replica in world.real.manager.replicas():
            assert len(replica.machine.waits) == 0
        world.close()

    run(main, seed)


class Manual:
    """A transaction by hand: keys are locked one after the other, in any order."""

    def __init__(self, world: RealWorld, start_ts: int, **options: Any) -> None:
        self.world, self.ts, self.options = world, start_ts, options
        self.touched: list[bytes] = []
        self.anchor = b""

    async def lock(self, *keys: bytes, budget_ms: int = 20_000) -> None:
        self.anchor = self.anchor or keys[0]
        self.touched += keys
        ops = [[OP_PUT, key, b"%d" % self.ts, None, 0] for key in keys]
        await self.world.kv().call(
            PREWRITE,
            keys[0],
            self.ts,
            self.anchor,
            TXN_TTL_MS_DEFAULT,
            ops,
            BLIND,
            self.options or None,
            budget_ms=budget_ms,
        )

    async def beat(self) -> None:
        await self.world.kv().call(HEARTBEAT, self.anchor, self.anchor, self.ts, budget_ms=1_000)

    async def end(self) -> None:
        kv = self.world.kv()
        await kv.call(ROLLBACK, self.anchor, self.anchor, self.ts, budget_ms=1_000)
        for key in self.touched:
            await kv.call(RESOLVE, key, self.ts, 0, [key], budget_ms=1_000)


async def begin(world: RealWorld, count: int, **options: Any) -> list[Manual]:
    """Transactions, the oldest first."""
    return [Manual(world, await world.tso().now(), **options) for _ in range(count)]


async def lock_or_end(t: Manual, key: bytes) -> TxnAborted | None:
    """Lock one more key; a victim ends, as a coordinator would have it."""
    try:
        await t.lock(key)
    except TxnAborted as error:
        await t.end()
        return error
    return None


# ------------------------------------------------------------------------------------- fairness


def test_d8_writers_of_one_key_are_served_in_order() -> None:
    """A writer that comes back to ask may find the key taken by somebody younger, for ever."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        (holder,) = await begin(world, 1)
        await holder.lock(A)
        client = world.client()
        done: list[int] = []

        async def write(i: int) -> None:
            if i % 2:
                await client.write([put(A, b"%d" % i)])
            else:
                await client.write([put(A, b"%d" % i), put(D, b"%d" % i)])
            done.append(i)

        async with asyncio.TaskGroup() as group:
            for i in range(20):
                group.create_task(write(i))
                await asyncio.sleep(0.02)
            await holder.end()
        first_writes = [i for i in done if i % 2 == 0]
        assert first_writes == sorted(first_writes)
        assert done.index(19) > done.index(2), "nobody comes before those who waited"

    played(scene)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_d8_nobody_starves_with_50_writers_on_one_key(seed: int) -> None:
    """With everybody for himself, the unlucky wait until their deadline."""
    writers, rounds = 50, 6

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        took: list[float] = []

        async def write(i: int) -> None:
            client = world.client()
            for n in range(rounds):
                began = loop.time()
                if i % 2:
                    await client.write([put(A, b"%d" % n)])
                else:
                    await client.write([put(A, b"%d" % n), put(FIVE[1 + i % 4], b"%d" % i)])
                took.append(loop.time() - began)

        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for i in range(writers):
                group.create_task(write(i))
        assert len(took) == writers * rounds
        passed = loop.time() - began
        assert max(took) < 3 * passed / rounds, "about one turn of everybody"

    played(scene, seed)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_d8_fifty_readers_and_writers_of_one_key_all_get_done(seed: int) -> None:
    """Each needs a snapshot that nobody writes over: a livelock would have all fail each other."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        async def increment(i: int) -> None:
            client = world.client()

            async def work(t: Transaction) -> None:
                value, _ = await t.get(A)
                t.put(A, b"%d" % (int(value or b"0") + 1))
                if i % 5 == 0:
                    t.put(E, b"x")

            for _ in range(3):
                await client.run(work, attempts=1_000, budget_ms=60_000)

        async with asyncio.TaskGroup() as group:
            for i in range(50):
                group.create_task(increment(i))
        value, _ = await world.client().get(A)
        assert value == b"150"

    played(scene, seed)


def test_d8_priorities_of_transactions() -> None:
    """The surfaces' word must reach the queue."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        (holder,) = await begin(world, 1)
        await holder.lock(A)
        client = world.client()
        done: list[int] = []

        async def write(priority: int) -> None:
            async with await client.begin(terms=Terms(priority=priority)) as t:
                t.put(A, b"x")
                t.put(FIVE[3 + priority], b"x")
                try:
                    await t.commit()
                except KvorumError as error:
                    assert error.code == "WRITE_CONFLICT"  # noqa: PT017 - of those that come later
            done.append(priority)

        async with asyncio.TaskGroup() as group:
            for priority in (-1, 0, 1):
                group.create_task(write(priority))
                await asyncio.sleep(0.05)
            await holder.end()
        assert done[0] == 1
        assert sorted(done) == [-1, 0, 1]  # the answers of the other two leave together

    played(scene)


# ------------------------------------------------------------------------------- time and names


def test_d8_nowait_and_timeout_name_the_blocker_and_its_owner() -> None:
    """Who is refused must learn whom to ask."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        (holder,) = await begin(world, 1, owner="nightly import")
        await holder.lock(A, k("a"))
        client = world.client()
        for wait_ms in (0, 400):
            t = await client.begin(terms=Terms(lock_wait_ms=wait_ms))
            t.put(A, b"x")
            began = loop.time()
            error = await failure(t.commit())
            assert isinstance(error, KeyLocked)
            assert wait_ms <= 1000 * (loop.time() - began) < wait_ms + 50
            assert error.details["txn"] == holder.ts
            assert error.details["waited_ms"] >= wait_ms
        assert error.details["owner"] == "nightly import", "the push service has asked for it"
        assert "nightly import" in error.message
        await holder.end()

    played(scene)


def test_d6_dead_holder_blocks_for_its_ttl_and_a_bounded_delay() -> None:
    """A coordinator that died between its messages must not hold up anybody for longer."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        doomed, kv = doomed_client(world, 6)
        died = asyncio.create_task(doomed.write([put(key, b"dead") for key in FIVE]))
        await kv.died.wait()
        began = loop.time()
        await asyncio.sleep(0.01)
        locked = world.locked()
        assert locked
        client = world.client()
        await asyncio.gather(*(client.write([put(key, b"alive")]) for key in FIVE for _ in "12"))
        bound_ms = TXN_TTL_MS_DEFAULT + WAIT_PUSH_MS + WAIT_PUSH_MS_MAX + 100
        assert 1000 * (loop.time() - began) < bound_ms
        died.cancel()
        await doomed.close(0)

    played(scene)


def test_d6_unfinished_commit_is_finished_for_those_who_wait() -> None:
    """It was committed and its coordinator died before the cleaning: nobody waits for a ttl."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        class NoCleaning(Hooked):
            async def arrives(self, method: int) -> None:
                if method == RESOLVE:
                    await asyncio.sleep(3_600)

        committer = world.client(NoCleaning(loop, world.kv()))
        version = await committer.write([put(key, b"first") for key in FIVE])
        began = loop.time()
        client = world.client()
        later = await asyncio.gather(*(client.write([put(key, b"second")]) for key in FIVE))
        assert min(later) > version
        assert 1000 * (loop.time() - began) < 3 * WAIT_PUSH_MS
        await committer.close(0)

    played(scene)


def test_d6_one_question_per_holder_however_many_wait() -> None:
    """A hot key with a slow holder would drown its anchor in questions."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        asked: list[int] = []

        class Counted(Hooked):
            async def arrives(self, method: int) -> None:
                asked.append(method)

        world.real.care._resolver._kv = Counted(loop, world.kv())
        (holder,) = await begin(world, 1)
        await holder.lock(A, k("a"))
        client = world.client()
        waiting = [asyncio.create_task(client.write([put(A, b"x")])) for _ in range(100)]
        await asyncio.sleep(2.0)
        most = 2_000 / WAIT_PUSH_MS_MAX + 4
        assert 5 <= asked.count(CHECK) <= most
        await holder.end()
        await asyncio.gather(*waiting)

    played(scene)


@pytest.mark.slow
def test_d6_anchor_that_does_not_answer_holds_up_nobody_else() -> None:
    """Its partition has no leader, say: others' dead holders are asked about all the same."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        class Partly(Hooked):
            async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
                if method == CHECK and key == A:
                    await asyncio.sleep(budget_ms / 1000)
                    raise KeyLocked("no answer")
                return await super().call(method, key, *args, budget_ms=budget_ms)

        world.real.care._resolver._kv = Partly(loop, world.kv())
        silent, dead = await begin(world, 2)
        await silent.lock(A)
        await dead.lock(E)
        client = world.client()
        first = asyncio.create_task(client.write([put(A, b"x")], budget_ms=60_000))
        began = loop.time()
        await client.write([put(E, b"x")])
        bound_ms = TXN_TTL_MS_DEFAULT + WAIT_PUSH_MS + WAIT_PUSH_MS_MAX + 100
        assert 1000 * (loop.time() - began) < bound_ms
        await silent.end()
        await first

    played(scene)


def test_d6_anchor_that_waits_longer_than_its_ttl_stays_alive() -> None:
    """Its other intents are met by somebody who finds no record: it must not be taken for dead."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        (holder,) = await begin(world, 1)
        await holder.lock(A)
        client, other = world.client(), world.client()
        t = await client.begin(ttl_ms=1_000)
        t.put(A, b"slow")
        t.put(E, b"slow")
        slow = asyncio.create_task(t.commit())
        await asyncio.sleep(0.1)
        behind = asyncio.create_task(other.write([put(E, b"behind")]))
        for _ in range(5):
            await asyncio.sleep(0.9)
            await holder.beat()
        assert not slow.done()
        assert not behind.done()
        await holder.end()
        assert await behind > await slow

    played(scene)


# ------------------------------------------------------------------------------------ deadlocks


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_d8_deadlock_over_partitions_has_one_victim(count: int, seed: int) -> None:
    """Everybody would wait until his deadline; with two victims work is thrown away."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        ts = await begin(world, count)
        for t, key in zip(ts, FIVE, strict=False):
            t.options = {"owner": f"job {key[-1:].decode()}"}
            await t.lock(key)
        began = loop.time()

        async def cross(i: int) -> TxnAborted | None:
            error = await lock_or_end(ts[i], FIVE[(i + 1) % count])
            if error is None:
                await asyncio.sleep(0.05)
                await ts[i].end()
            return error

        ended = await asyncio.gather(*(cross(i) for i in range(count)))
        assert 1000 * (loop.time() - began) < 4 * DEADLOCK_AFTER_MS + 200 * count
        assert [error is not None for error in ended] == [False] * (count - 1) + [True]
        error = ended[-1]
        assert error is not None
        assert (error.code, error.disposition) == ("DEADLOCK", "restart_txn")
        cycle = error.details["cycle"]
        assert {step["txn"] for step in cycle} == {str(t.ts) for t in ts}
        assert cycle[0]["txn"] == str(ts[-1].ts) == str(error.details["txn"])
        assert {step["key"] for step in cycle} == set(FIVE[:count])
        assert {step["owner"] for step in cycle} == {"job b", "job f", "job l"} - (
            {"job l"} if count == 2 else set()
        )
        for step in cycle:
            assert step["txn"] in error.message
            assert step["owner"] in error.message

    played(scene, seed)


def test_d8_lowest_priority_is_the_victim() -> None:
    """The youngest may be what somebody waits for."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        low, high = (await begin(world, 1, priority=-1))[0], (await begin(world, 1))[0]
        await low.lock(A)
        await high.lock(E)
        crossed = await asyncio.gather(lock_or_end(low, E), lock_or_end(high, A))
        assert [error is not None for error in crossed] == [True, False]
        await high.end()

    played(scene)


@pytest.mark.slow
def test_d8_crossing_transactions_are_run_again() -> None:
    """`run` must take a deadlock for what it is: the same work may succeed."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        async def cross(i: int) -> None:
            client = world.client(Hooked(loop, world.kv(), latency_ms=8))

            async def work(t: Transaction) -> None:
                for key in FIVE if i % 2 else FIVE[::-1]:
                    t.put(key, b"%d" % i)

            await client.run(work, budget_ms=60_000, attempts=1_000)

        await asyncio.gather(*(cross(i) for i in range(8)))
        assert world.real.care.deadlocks
        await asyncio.sleep(1)
        found, _ = await world.client().multi_get(FIVE)
        assert len({row[0] for row in found if row is not None}) == 1

    played(scene)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_d8_every_deadlock_that_was_named_was_one(seed: int) -> None:
    """A false deadlock throws work away that nothing was in the way of."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        named: list[Sequence[Wait]] = []
        care, registry = world.real.care, world.real.manager.waits
        real_end = care._end

        async def end(cycle: Sequence[Wait]) -> None:
            assert still(cycle, registry.all(10_000, holding=True)), "it stands at this moment"
            named.append(cycle)
            await real_end(cycle)

        care._end = end  # type: ignore[method-assign]
        chance = random.Random(seed)

        async def work(i: int) -> None:
            client = world.client(Hooked(loop, world.kv(), latency_ms=10))
            for n in range(4):
                keys = chance.sample(FIVE, 3)
                await client.write([put(key, b"%d-%d" % (i, n)) for key in keys], budget_ms=60_000)

        await asyncio.gather(*(work(i) for i in range(8)))
        assert care.deadlocks <= len(named)

    played(scene, seed)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(5))
def test_d8_long_queues_without_a_circle_name_no_victim(seed: int) -> None:
    """Whoever locks in one order can not be part of a circle, however long everybody waits."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        chance = random.Random(seed)

        async def work() -> None:
            for _ in range(3):
                (t,) = await begin(world, 1)
                for key in sorted(chance.sample(FIVE, chance.randint(2, 4))):
                    await t.lock(key)
                    await asyncio.sleep(chance.random() * 0.1)
                await t.end()

        await asyncio.gather(*(work() for _ in range(12)))
        assert world.real.care.deadlocks == 0

    played(scene, seed)


def test_d8_circle_of_two_moments_costs_nobody_anything() -> None:
    """Answers of two nodes are not of one moment: one wait may end before the other begins."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        (old,), looks = await begin(world, 1), []
        await old.lock(A)
        young = asyncio.create_task(world.client().write([put(A, b"x"), put(E, b"x")]))
        await asyncio.sleep(0)

        class Elsewhere:
            async def all(self) -> Sequence[Wait]:
                looks.append(loop.time())
                mine = world.real.manager.waits.all(10, holding=True)
                gone = [wait(w.holder, w.waiter, node=2, id=len(looks)) for w in mine]
                return [*mine, *gone]

            async def refuse(self, wait: Wait, error: KvorumError) -> bool:
                raise AssertionError("nobody stood in a circle")

        world.real.care._others = Elsewhere()
        await asyncio.sleep(1)
        assert len(looks) >= 4
        assert len(looks) % 2 == 0, "each circle was looked at again"
        await old.end()
        await young

    played(scene)


def test_d8_victim_that_has_gone_on_is_left_alone() -> None:
    """Between the second look and the refusal the circle may have been broken from outside."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        old, young = await begin(world, 2)
        await old.lock(A)
        await young.lock(B)
        care, registry = world.real.care, world.real.manager.waits
        real_refuse = care._others.refuse

        async def refuse(wait: Wait, error: KvorumError) -> bool:
            await old.end()
            await asyncio.sleep(0.05)
            assert not await real_refuse(wait, error)
            return False

        care._others.refuse = refuse  # type: ignore[method-assign]
        one = asyncio.create_task(lock_or_end(old, B))
        assert await lock_or_end(young, A) is None
        assert await one is not None, "it was aborted by its owner"
        assert not registry.all(10, holding=True)
        await young.end()
        assert care.deadlocks == 0

    played(scene)


# ----------------------------------------------------------------------------- the pure detector


def wait(
    waiter: int, holder: int, *, node: int = 1, priority: int = 0, id: int = 0, user: str = ""
) -> Wait:
    return Wait(
        node=node,
        source=1,
        id=id or 1000 * waiter + holder,
        kind="intent",
        resource=b"key%d" % holder,
        waiter=waiter,
        waiter_owner="",
        holder=holder,
        holder_owner=f"owner {holder}",
        held=b"key%d" % holder,
        anchor=b"anchor",
        ttl_ms=1,
        waited_ms=500,
        priority=priority,
        holding=True,
        waiter_user=user,
    )


def test_d8_circles_are_found_with_all_their_members() -> None:
    """A chain that leads into a circle is no part of it."""
    waits = [wait(1, 2), wait(2, 3), wait(3, 4), wait(4, 2), wait(9, 9), wait(0, 1), wait(4, 0)]
    (cycle,) = cycles(waits, {1})
    assert [w.waiter for w in cycle] == [2, 3, 4]
    assert victim(cycle).waiter == 4
    assert cycles(waits[:3], {1, 2, 3}) == []
    assert cycles(waits, {5}) == [], "nobody asked about those"


def test_nobody_waits_in_the_name_of_somebody_else() -> None:
    """A write with a guessed start_ts closed a circle through somebody's transaction: its holder's
    waits, or its own, ended as victims.
    """
    honest, forged = wait(2, 1), wait(1, 2, user="bob")
    assert len(cycles([honest, wait(1, 2)], {1, 2})) == 1
    assert cycles([honest, forged], {one.waiter_id for one in (honest, forged)}) == []
    real = replace(honest, holder_user="bob", waiter_user="ann", priority=1)
    back = replace(forged, holder_user="ann")
    (cycle,) = cycles([real, back, wait(1, 2)], {real.waiter_id})
    assert [one.waiter_user for one in cycle] == ["ann", "bob"]
    assert victim(cycle) is back
    assert Wait.from_wire(real.to_wire()) == real
    old = honest.to_wire()[:-2]  # of a node that does not say whose they are
    assert Wait.from_wire(old) == honest


def test_d8_several_circles_are_told_in_one_look() -> None:
    """Those behind the first would wait for another round each."""
    waits = [wait(1, 2), wait(2, 1), wait(3, 4), wait(4, 3), wait(2, 3), wait(5, 1)]
    found = cycles(waits, {1, 2, 3, 4, 5})
    assert [sorted(w.waiter for w in cycle) for cycle in found] == [[1, 2], [3, 4]]


def test_d8_long_circles_are_found_and_shown_in_part() -> None:
    """A recursion would break at a thousand, and so would whoever reads the message."""
    count = 5_000
    waits = [wait(i, i % count + 1) for i in range(1, count + 1)]
    (cycle,) = cycles(waits, {17})
    assert len(cycle) == count
    error = refusal(cycle, victim(cycle))
    assert error.details["txn"] == count
    assert len(error.details["cycle"]) == 16
    assert f"and {count - 16} more" in error.message
    assert len(error.message) < 5_000


@pytest.mark.parametrize("seed", range(20))
def test_d8_circles_agree_with_a_plain_search(seed: int) -> None:
    """A missed circle waits for ever."""
    chance = random.Random(seed)
    waits = [wait(chance.randint(1, 12), chance.randint(1, 12), id=i) for i in range(1, 18)]
    edges = {(w.waiter, w.holder) for w in waits if w.waiter != w.holder}
    reach = {(a, b) for a, b in edges}
    while True:
        more = {(a, d) for a, b in reach for c, d in edges if b == c} - reach
        if not more:
            break
        reach |= more
    roots = set(range(1, 13))
    found = cycles(waits, roots)
    assert bool(found) == any(a == b for a, b in reach)
    for cycle in found:
        after = [*cycle[1:], cycle[0]]
        assert all(w.holder == n.waiter for w, n in zip(cycle, after, strict=True))
    left = [w for w in waits if w.waiter not in {victim(c).waiter for c in found}]
    assert cycles(left, roots) == [], "without its victims nobody waits for ever"


def test_d8_a_circle_of_different_moments_is_none() -> None:
    """A wait that ended and began anew, or has another holder now, is another wait."""
    cycle = [wait(1, 2), wait(2, 1)]
    assert still(cycle, [*cycle, wait(3, 1)])
    assert not still(cycle, [wait(1, 2)])
    assert not still(cycle, [wait(1, 2), wait(2, 1, id=77)])
    assert not still(cycle, [wait(1, 2), wait(2, 3, id=2001)])
    assert not still(cycle, [wait(1, 2), wait(2, 1, node=2)])
