"""The client's own promises: conditions, batches, reads at a timestamp, running functions again."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KeyLocked,
    SnapshotTooOld,
    TooLarge,
    Unavailable,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.keys import successor
from kv.base.limits import BATCH_OPS_MAX, MULTI_KEYS_MAX, SCAN_ROWS_MAX
from kv.base.methods import GET, PUT, WRITE
from kv.base.ops import check, delete, put
from kv.base.timestamps import MAX
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.fake_kv import FakeKv, Sent
from tests.txn.test_txn_protocol import FIVE, abandoned, methods
from tests.txn.world import WORLDS, Hooked, RealWorld, World, failure, k
from txn.reading.reader import last_below
from txn.transaction import Transaction, TxnState


@WORLDS
def test_b2_of_racing_puts_if_absent_exactly_one_wins(make: type[World]) -> None:
    """Two winners would each believe that they own the key."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        clients = [world.client() for _ in range(4)]
        racing = [clients[i % 4].write([put(k("b"), b"%d" % i, cond=0)]) for i in range(100)]
        outcomes = await asyncio.gather(*racing, return_exceptions=True)
        (version,) = [o for o in outcomes if isinstance(o, int)]
        lost = [o for o in outcomes if isinstance(o, ConditionFailed)]
        assert len(lost) == 99
        assert {o.details["version"] for o in lost} == {str(version)}
        world.close()

    run(main)


@WORLDS
def test_b2_conditions_hold_across_partitions(make: type[World]) -> None:
    """A batch over several partitions keeps its conditions from the prewrite to the commit."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        ops = [put(key, b"1", cond=0) for key in FIVE]
        # the model has no queues: rivals look again at growing distances
        racing = [world.client().write(ops, budget_ms=60_000) for _ in range(6)]
        outcomes = await asyncio.gather(*racing, return_exceptions=True)
        assert len([o for o in outcomes if isinstance(o, int)]) == 1
        assert len([o for o in outcomes if isinstance(o, ConditionFailed)]) == 5
        await client.write([check(FIVE[0], (await client.get(FIVE[0]))[1]), delete(FIVE[4])])
        assert (await client.get(FIVE[4]))[0] is None
        world.close()

    run(main)


@WORLDS
def test_b3_racing_increments_by_version_lose_nothing(make: type[World]) -> None:
    """A compare and set that lets two through loses an update."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        await world.client().write([put(k("b"), b"0")])

        async def increments() -> None:
            client = world.client()
            for _ in range(15):
                while True:
                    value, version = await client.get(k("b"))
                    try:
                        new = b"%d" % (int(value or b"") + 1)
                        await client.write([put(k("b"), new, cond=version)])
                    except ConditionFailed:
                        continue
                    break

        await asyncio.gather(*(increments() for _ in range(5)))
        assert (await world.client().get(k("b")))[0] == b"75"
        world.close()

    run(main)


@WORLDS
def test_b6_batch_rules_for_keys_named_twice(make: type[World]) -> None:
    """What a batch means must not depend on which of two operations somebody looks at first."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        await client.write([put(k("b"), b"1"), delete(k("b")), put(k("b"), b"3")])
        assert (await world.client().get(k("b")))[0] == b"3"
        twice = [put(k("c"), b"1", cond=0), put(k("c"), b"2")]
        for ops in (twice, twice[::-1], [check(k("c"), 0), put(k("c"), b"2")]):
            error = await failure(client.write(ops))
            assert isinstance(error, InvalidArgument)
            assert error.details["key"] == k("c")
        assert (await world.client().get(k("c")))[0] is None
        world.close()

    run(main)


def test_b6_limits_of_a_batch() -> None:
    """Too much is refused with the limit, before anything is sent."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        many = [put(k(f"a{i}"), b"1") for i in range(BATCH_OPS_MAX + 1)]
        wide = [put(k(f"{i}"), b"x" * 4_000_000) for i in range(5)]
        for ops in (many, wide):
            error = await failure(client.write(ops))
            assert isinstance(error, TooLarge)
            assert error.details["actual"] > error.details["limit"]
        assert isinstance(await failure(client.write([])), InvalidArgument)
        error = await failure(client.multi_get([k("a")] * (MULTI_KEYS_MAX + 1)))
        assert isinstance(error, TooLarge)
        for limit in (0, SCAN_ROWS_MAX + 1):
            assert isinstance(await failure(client.scan(k(""), b"", limit=limit)), InvalidArgument)
        assert kv.log == []

    run(main)


def test_single_writes_take_the_short_way() -> None:
    """The hot path: one message, no timestamp from the oracle, no transaction."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        await client.write([put(k("b"), b"1")])
        await client.get(k("b"))
        await client.write([put(k("b"), b"1"), put(k("c"), b"1")])
        assert methods(kv) == [PUT, GET, WRITE]
        assert world.cluster.records == {}

    run(main)


def test_b9_multi_write_answers_each_operation() -> None:
    """One partition that is down must not take the others' writes with it."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        await client.write([put(k("b"), b"old")])
        world.cluster.down.add(world.cluster.covering(k("g")).id)
        ops = [put(k("b"), b"1", cond=0), put(k("g"), b"1"), put(k("z"), b"1"), delete(k("x"))]
        results = await client.multi_write(ops, budget_ms=300)
        assert isinstance(results[0], ConditionFailed)
        assert isinstance(results[1], Unavailable)
        assert isinstance(results[2], int)
        assert isinstance(results[3], int)
        assert world.cluster.newest(k("z")) == b"1"
        ordered = [put(k("z"), b"%d" % i) for i in range(20)]
        assert sorted(await client.multi_write(ordered)) == await client_versions(world)
        assert world.cluster.newest(k("z")) == b"19", "operations on one key keep their order"

    run(main)


async def client_versions(world: World) -> list[int]:
    return [ts for ts, _ in world.cluster.versions[k("z")]][1:]


def test_b8_reads_at_a_timestamp() -> None:
    """The past is readable down to the safepoint; the future would change under the reader."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client, fresh = world.client(), world.client()
        first = await client.write([put(k("b"), b"1")])
        second = await client.write([put(k("b"), b"2")])
        assert await fresh.get(k("b"), at=first) == (b"1", first)
        assert await fresh.get(k("b"), at=second) == (b"2", second)
        assert await fresh.multi_get([k("b")], at=second - 1) == ([(b"1", first)], second - 1)
        for at in (second + 10**12, MAX, MAX + 1, -1):
            error = await failure(fresh.get(k("b"), at=at))
            assert isinstance(error, InvalidArgument)
        world.cluster.safepoint = second
        error = await failure(fresh.scan(k(""), b"", limit=1, at=first))
        assert isinstance(error, SnapshotTooOld)

    run(main)


def test_d1_a_transaction_that_outlives_its_snapshot_runs_again() -> None:
    """A step of a procedure that was slow would fail for good, though nothing is wrong with it."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        await client.write([put(k("b"), b"1")])
        seen = []

        async def work(t: Transaction) -> None:
            seen.append(t.start_ts)
            if len(seen) <= 3:
                world.cluster.safepoint = t.start_ts + 1
            if len(seen) == 1:
                await t.get(k("b"))
            elif len(seen) == 2:
                await t.multi_get([k("b")])
            else:
                await t.scan(k(""), b"", limit=1)
            t.put(k("b"), b"2")

        await client.run(work)
        assert len(seen) == 4
        assert (await client.get(k("b")))[0] == b"2"

    run(main)


@pytest.mark.parametrize("reverse", [False, True])
@WORLDS
def test_b10_cursor_of_a_scan_crosses_partitions(make: type[World], reverse: bool) -> None:
    """Pages joined must equal the whole, whatever splits between two of them."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        keys = [k(f"{c}{i}") for c in "abefjoptz" for i in range(5)]
        await client.multi_write([put(key, b"1") for key in keys])
        start, end = k("a2"), k("z3")
        wanted = [key for key in keys if start <= key < end]
        wanted = wanted[::-1] if reverse else wanted
        prefix = k("e")
        page = await client.scan(prefix, successor(prefix), limit=100, reverse=reverse)
        assert len(page.items) == 5
        for limit in (1, 4, 100, 7):
            got, low, high, at = [], start, end, 0
            while True:
                page = await client.scan(low, high, limit=limit, reverse=reverse, at=at)
                assert len(page.items) <= limit
                got += [row[0] for row in page.items]
                if page.resume is None:
                    break
                at = page.at
                low, high = (low, page.resume) if reverse else (page.resume, high)
                if limit == 7:
                    world.split(got[-1] + b"\x01")
                    await client.write([put(got[-1] + b"later", b"1")])
            assert got == wanted
        world.close()

    run(main)


def test_last_below_is_between_any_smaller_key_and_the_end() -> None:
    """A reverse scan that asks the wrong partition first begins in the middle."""
    for end in (b"tab1m", b"tab1\x00", b"tab2", b"\x00\x00\x00\x65"):
        below = last_below(end)
        assert below < end
        assert end[:-1] + bytes([end[-1] - 1]) + b"\xff" * 100 < below if end[-1] else True
    assert last_below(b"") > b"\xff" * 100


@WORLDS
def test_run_starts_again_on_a_new_snapshot(make: type[World]) -> None:
    """Retrying belongs to the product; the function runs as often as it takes, its writes once."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        await world.client().write([put(k("b"), b"0")])
        runs = 0

        async def increment(t: Transaction) -> int:
            nonlocal runs
            runs += 1
            value, _ = await t.get(k("b"))
            await asyncio.sleep(0.001)
            t.put(k("b"), b"%d" % (int(value or b"") + 1))
            return t.start_ts

        racing = [world.client().run(increment, budget_ms=60_000) for _ in range(20)]
        starts = await asyncio.gather(*racing)
        assert len(set(starts)) == 20
        assert (await world.client().get(k("b")))[0] == b"20"
        assert runs > 20
        world.close()

    run(main)


def test_run_is_bounded_and_lets_other_errors_through() -> None:
    """A function that can never succeed must end, with the reason; its own errors are not ours."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        client = world.client()
        runs = 0

        async def hopeless(t: Transaction) -> None:
            nonlocal runs
            runs += 1
            await t.get(k("b"))
            t.put(k("b"), b"mine")
            await client.write([put(k("b"), b"other")])

        assert isinstance(await failure(client.run(hopeless, attempts=5)), WriteConflict)
        assert runs == 5

        async def broken(t: Transaction) -> None:
            nonlocal runs
            runs += 1
            t.put(k("c"), b"1")
            raise LookupError("the user's own")

        with pytest.raises(LookupError):
            await client.run(broken)

        async def refused(t: Transaction) -> None:
            nonlocal runs
            runs += 1
            t.put(k("b"), b"1", cond=0)

        assert isinstance(await failure(client.run(refused)), ConditionFailed)
        assert runs == 7
        assert world.cluster.newest(k("c")) is None

    run(main)


def test_run_never_repeats_an_unknown_outcome() -> None:
    """It may have been committed: to run it again could do everything twice."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        runs = 0

        async def hook(sent: Sent) -> None:
            if sent.method not in (GET, WRITE):
                raise Unavailable("cut off")
            if sent.method == WRITE:
                raise UnknownOutcome("lost")

        kv.after = hook
        client = world.client(kv)

        async def append(t: Transaction) -> None:
            nonlocal runs
            runs += 1
            value, _ = await t.get(k("b"))
            t.put(k("b"), (value or b"") + b"x")

        error = await failure(client.run(append, budget_ms=2000))
        assert isinstance(error, UnknownOutcome)
        assert runs == 1
        assert world.cluster.newest(k("b")) == b"x"
        await client.close()

    run(main)


def test_d8_writer_waits_for_a_living_intent_and_names_it() -> None:
    """Whoever gives up must learn who is in the way, since when, and what can be done about it."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        dead = await abandoned(world, [k("b"), k("z")], ttl_ms=60_000)
        for ops in ([put(k("b"), b"1")], [put(k("b"), b"1"), put(k("a"), b"1")]):
            began = loop.time()
            error = await failure(world.client().write(ops, budget_ms=1000))
            assert isinstance(error, KeyLocked)
            assert 0.5 < loop.time() - began < 1.1
            assert (error.details["txn"], error.details["key"]) == (dead, k("b"))
            assert str(dead) in error.message
        t = await world.client().begin()
        t.put(k("b"), b"1")
        assert isinstance(await failure(t.commit()), KeyLocked)
        assert t.state is TxnState.ABORTED

    run(main)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(10))
def test_d8_crossing_waits_end_soon(seed: int) -> None:
    """Two commits that hold what the other wants would both wait until their deadlines."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        kvs = [Hooked(loop, world.kv(), latency_ms=8) for _ in range(6)]

        async def write(i: int) -> None:
            ops = [put(key, b"%d" % i) for key in (FIVE if i % 2 else FIVE[::-1])]
            await world.client(kvs[i]).write(ops, budget_ms=30_000)

        began = loop.time()
        await asyncio.gather(*(write(i) for i in range(6)))
        assert loop.time() - began < 4
        await asyncio.sleep(1)
        found, _ = await world.client().multi_get(FIVE)
        assert len({row[0] for row in found if row is not None}) == 1
        assert not world.locked()
        world.close()

    run(main, seed)


def test_begin_refuses_what_it_can_not_give() -> None:
    """Silently weaker isolation than asked for would be a wrong answer."""

    async def main(loop: SimLoop) -> None:
        client = World(loop).client()
        for bad in ({"isolation": "dirty"}, {"ttl_ms": 0}, {"ttl_ms": 10**9}):
            assert isinstance(await failure(client.begin(**bad)), InvalidArgument)  # type: ignore[arg-type]

    run(main)
