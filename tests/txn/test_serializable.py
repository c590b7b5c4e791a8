"""Serializable transactions over several partitions: what snapshot isolation permits does not
happen, whoever dies and whatever is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from kv.base.errors import KeyLocked, KvorumError, WriteConflict
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.methods import COMMIT, FINISH, PREWRITE, PUT, RESOLVE, WRITE
from kv.base.ops import put
from kv.base.timestamps import physical_ms
from kv.mvcc import validate as validating
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.fake_kv import FakeKv
from tests.txn.world import (
    FarWorld,
    Hooked,
    RealWorld,
    World,
    doomed_client,
    failure,
    k,
)
from txn.client import TxnClient
from txn.intents.sweeper import Sweeper
from txn.transaction import Transaction

REAL = pytest.mark.parametrize("make", [RealWorld, FarWorld], ids=["real", "far oracle"])
LEVELS = ("snapshot", "serializable")
PLACES = pytest.mark.parametrize(
    "places", [("a", "b"), ("b", "z")], ids=["one partition", "two partitions"]
)


def in_world(
    test: Callable[..., Awaitable[None]], make: type[World] = RealWorld, seed: int = 0, **more: Any
) -> None:
    """Run `test(world, client, **more)`; nothing may be left behind."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        await test(world, client, **more)
        await client.close()
        await asyncio.sleep(1)
        assert at_rest(world)
        assert not world.locked()
        world.close()

    run(main, seed)


def guards(world: World) -> list[tuple[bytes, int]]:
    """What is guarded, in memory and on disk, which must agree."""
    assert isinstance(world, RealWorld)
    found = []
    for replica in world.real.manager.replicas():
        found += replica.state.guards.by_at
    assert len(world.real._engine.scan("guard", b"", b"\xff" * 8192)) == len(found)
    return sorted(found)


def at_rest(world: World) -> bool:
    """Whether nothing is guarded, in the evaluated state neither."""
    assert isinstance(world, RealWorld)
    views = [replica.machine.view for replica in world.real.manager.replicas()]
    return guards(world) == [] and all(view.guards is None for view in views)


async def both(*work: Coroutine[Any, Any, int]) -> list[int | KvorumError]:
    """The outcomes of commits that run side by side."""
    outcomes: list[int | KvorumError] = []
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        assert isinstance(outcome, int | KvorumError), outcome
        outcomes.append(outcome)
    return outcomes


def failed(outcomes: list[int | KvorumError]) -> list[KvorumError]:
    found = [o for o in outcomes if isinstance(o, KvorumError)]
    assert all(error.disposition in ("restart_txn", "retry") for error in found), found
    return found


# ------------------------------------------------------------------ the anomalies, by hand


async def doctors(
    world: World, client: TxnClient, isolation: str, places: tuple[str, str], left: int
) -> None:
    """Each of two doctors on call signs off because the other one is there."""
    await client.write([put(k(key), b"on") for key in places])
    first, second = [await client.begin(isolation=isolation) for _ in range(2)]
    for t, me, other in ((first, *places), (second, *places[::-1])):
        assert (await t.get(k(other)))[0] == b"on"
        t.put(k(me), b"off")
    outcomes = await both(first.commit(), second.commit())
    on = [(await client.get(k(key)))[0] for key in places].count(b"on")
    assert (on, len(failed(outcomes))) == (left, left)


@REAL
@PLACES
def test_d1_write_skew_happens_between_snapshot_transactions(
    make: type[World], places: tuple[str, str]
) -> None:
    """It is documented so: whoever relies on the documentation would be surprised."""
    in_world(doctors, make, isolation="snapshot", places=places, left=0)


@pytest.mark.parametrize("seed", range(4))
@REAL
@PLACES
def test_serializable_write_skew_does_not_happen(
    make: type[World], places: tuple[str, str], seed: int
) -> None:
    """Nobody would be on call."""
    in_world(doctors, make, seed, isolation="serializable", places=places, left=1)


async def phantoms(
    world: World,
    client: TxnClient,
    isolation: str,
    places: tuple[str, str],
    left: int,
    change: str,
) -> None:
    """Two count the rows of a range, and each changes their number by one, elsewhere in it."""
    low, high = k("a"), k("zz")
    mine = [k(place + "1") for place in places]
    if change == "delete":
        await client.write([put(key, b"row") for key in mine])
    first, second = [await client.begin(isolation=isolation) for _ in range(2)]
    for t, key, reverse in ((first, mine[0], False), (second, mine[1], True)):
        page = await t.scan(low, high, limit=10, reverse=reverse)
        assert len(page.items) == (2 if change == "delete" else 0)
        if change == "delete":
            t.delete(key)
        else:
            t.put(key, b"row")
    outcomes = await both(first.commit(), second.commit())
    rows = len((await client.scan(low, high, limit=10)).items)
    assert len(failed(outcomes)) == left
    assert rows == (left if change == "delete" else 2 - left)


@REAL
@PLACES
@pytest.mark.parametrize("change", ["insert", "delete"])
def test_d1_phantoms_happen_between_snapshot_transactions(
    make: type[World], places: tuple[str, str], change: str
) -> None:
    """It is documented so."""
    more = {"isolation": "snapshot", "places": places, "left": 0, "change": change}
    in_world(phantoms, make, **more)


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(3))
@REAL
@PLACES
@pytest.mark.parametrize("change", ["insert", "delete"])
def test_serializable_no_phantoms(
    make: type[World], places: tuple[str, str], change: str, seed: int
) -> None:
    """A limit on the number of rows could be broken by rows that nobody could have read."""
    more = {"isolation": "serializable", "places": places, "left": 1, "change": change}
    in_world(phantoms, make, seed, **more)


async def fekete(
    world: World, client: TxnClient, isolation: str, places: tuple[str, str], passes: bool
) -> None:
    """Fekete, O'Neil and O'Neil 2004: savings x and checking y, both 0. A withdrawal of 10 from y
    reads 0 + 0 and so pays a charge of 1; a deposit of 20 into x comes first; a report sees the
    deposit, but no charge. It says that the charge was wrong: in no serial order were all three.
    """
    x, y = k(places[0]), k(places[1])
    await client.write([put(x, b"0"), put(y, b"0")])
    withdrawal = await client.begin(isolation=isolation)
    total = int((await withdrawal.get(x))[0] or 0) + int((await withdrawal.get(y))[0] or 0)
    withdrawal.put(y, b"%d" % (total - 10 - 1))
    deposit = await client.begin(isolation=isolation)
    deposit.put(x, b"%d" % (int((await deposit.get(x))[0] or 0) + 20))
    await deposit.commit()
    report = await client.begin(isolation=isolation)
    seen = [(await report.get(key))[0] for key in (x, y)]
    assert await report.commit() == report.start_ts
    assert seen == [b"20", b"0"]
    if passes:
        await withdrawal.commit()
    else:
        assert isinstance(await failure(withdrawal.commit()), WriteConflict)


@REAL
@PLACES
def test_d1_the_read_only_anomaly_happens_among_snapshot_transactions(
    make: type[World], places: tuple[str, str]
) -> None:
    """It is documented so."""
    in_world(fekete, make, isolation="snapshot", places=places, passes=True)


@REAL
@PLACES
def test_serializable_what_a_report_saw_stays_explainable(
    make: type[World], places: tuple[str, str]
) -> None:
    """A report would show a state that no serial order has, though it wrote nothing."""
    in_world(fekete, make, isolation="serializable", places=places, passes=False)


@REAL
@pytest.mark.parametrize("elsewhere", ["a", "z"], ids=["one partition", "two partitions"])
@pytest.mark.parametrize("how", ["get", "scan"])
def test_serializable_what_expired_before_the_commit_was_not_read(
    make: type[World], elsewhere: str, how: str
) -> None:
    """A voucher that ran out would be honoured by a transaction that is dated after its end."""

    async def main(world: World, client: TxnClient) -> None:
        for late in (False, True):
            await client.write([put(k("b"), b"voucher", ttl_ms=200)])
            t = await client.begin(isolation="serializable")
            if how == "get":
                assert (await t.get(k("b")))[0] == b"voucher"
            else:
                assert len((await t.scan(k("b"), k("c"), limit=9)).items) == 1
            t.put(k(elsewhere), b"sold")
            if late:
                await asyncio.sleep(0.25)
                assert isinstance(await failure(t.commit()), WriteConflict)
            else:
                assert physical_ms(await t.commit()) < physical_ms(t.start_ts) + 200
        used = await client.begin(isolation="serializable")
        assert await used.get(k("b")) == (None, 0)
        used.put(k(elsewhere), b"other")
        await used.commit()  # what was gone already stays so

    in_world(main, make)


@PLACES
def test_serializable_transactions_are_safe_among_snapshot_ones(places: tuple[str, str]) -> None:
    """What a serializable transaction read could be changed by one that is less careful."""

    async def main(world: World, client: TxnClient) -> None:
        await client.write([put(k(key), b"on") for key in places])
        careful = await client.begin(isolation="serializable")
        await careful.get(k(places[1]))
        careful.put(k(places[0]), b"off")
        other = await client.begin()
        other.put(k(places[1]), b"off")
        await other.commit()
        assert isinstance(await failure(careful.commit()), WriteConflict)

    in_world(main)


# ------------------------------------------------------------------ costs


class Counting(Hooked):
    """Counts messages by method; `stops(method)` holds some back."""

    def __init__(self, world: World) -> None:
        super().__init__(world.loop, world.kv(), latency_ms=1.0)
        self.sent: list[int] = []
        self.held: dict[int, asyncio.Event] = {}

    async def arrives(self, method: int) -> None:
        self.sent.append(method)
        if method in self.held:
            await self.held[method].wait()


def test_serializable_reading_alone_sends_nothing_and_waits_for_nobody() -> None:
    """Reports would be slowed down by, and slow down, those who write."""

    async def main(world: World, client: TxnClient) -> None:
        kv = Counting(world)
        writer = world.client(kv)
        await client.write([put(k("b"), b"1"), put(k("z"), b"1")])
        report = await client.begin(isolation="serializable")
        t = await writer.begin(isolation="serializable")
        await t.scan(k("a"), k("zz"), limit=9)
        t.put(k("b"), b"2")
        t.put(k("z"), b"2")
        kv.held[COMMIT] = kv.held[FINISH] = asyncio.Event()
        committing = world.loop.create_task(t.commit())
        while not guards(world):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        began = world.loop.time()
        page = await report.scan(k("a"), k("zz"), limit=9)
        assert [value for _, value, _ in page.items] == [b"1", b"1"]
        again = await client.begin(isolation="serializable")
        assert (await again.scan(k("f"), k("q"), limit=9)).items == []
        assert await again.get(k("y")) == (None, 0)
        assert await again.commit() == again.start_ts
        assert await report.commit() == report.start_ts
        assert world.loop.time() - began < 0.05
        assert guards(world)
        kv.held[COMMIT].set()
        await committing
        await writer.close()

    in_world(main)


@pytest.mark.parametrize("reads", ["b1", "scan"])
def test_serializable_in_one_partition_is_one_message(reads: str) -> None:
    """Guards would be written, and removed, for nothing."""

    async def main(world: World, client: TxnClient) -> None:
        kv = Counting(world)
        mine = world.client(kv)
        t = await mine.begin(isolation="serializable")
        await (t.scan(k("b"), k("c"), limit=9) if reads == "scan" else t.get(k(reads)))
        t.put(k("b2"), b"x")
        kv.sent.clear()
        await t.commit()
        await mine.close()
        assert kv.sent == [WRITE]

    in_world(main)


def test_serializable_a_partition_that_was_only_read_gets_guards_and_loses_them() -> None:
    """Its part of the answer would hold for a moment only; or block it for the whole ttl."""

    async def main(world: World, client: TxnClient) -> None:
        kv = Counting(world)
        mine = world.client(kv)
        t = await mine.begin(isolation="serializable")
        await t.get(k("z"))
        await t.scan(k("f"), k("q"), limit=9)  # three partitions
        t.put(k("b"), b"x")
        kv.sent.clear()
        kv.held[RESOLVE] = asyncio.Event()
        await t.commit()
        assert {start for start, _ in guards(world)} == {k("z"), k("f"), k("j"), k("o")}
        assert kv.sent.count(PREWRITE) == 5
        blocked = await failure(client.write_one(put(k("l"), b"x"), budget_ms=1))
        assert blocked.disposition == "retry"
        # whoever meets them knows what to do: the transaction is committed
        assert await client.write_one(put(k("l"), b"x"), budget_ms=2_000) > 0
        kv.held[RESOLVE].set()
        await mine.close()

    in_world(main)


def test_d13_serializable_transactions_are_committed_by_intents_and_guards() -> None:
    """They would cost a round trip and a sync more than others, though all is known as early."""

    async def main(world: World, client: TxnClient) -> None:
        for place, early in (("z", True), ("v", False)):
            await client.write([put(k("v"), b"voucher", ttl_ms=60_000)])
            kv = Counting(world)
            mine = world.client(kv)
            t = await mine.begin(isolation="serializable")
            await t.get(k(place))  # one expires some day: its transaction must be flipped in time
            await t.scan(k("g"), k("l"), limit=9)
            t.put(k("b"), b"x")
            kv.held[COMMIT] = kv.held[FINISH] = asyncio.Event()
            commit = world.loop.create_task(t.commit())
            await asyncio.sleep(0.05)
            assert commit.done() == early
            # nobody hears from the coordinator: others find the same outcome in guards and intents
            if early:
                assert (await client.status(t.id)).commit_ts == commit.result()
                assert await client.get(k("b")) == (b"x", commit.result())
                await client.write([put(k("g1"), b"x")])
            kv.held[COMMIT].set()
            assert await commit == (await client.status(t.id)).commit_ts
            await mine.close()

    in_world(main)


def test_d13_a_range_that_is_cut_after_it_was_staged_leaves_no_bound() -> None:
    """Its first piece would be taken for all of it: the rest was not checked yet."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        kv = FakeKv(world.cluster)
        client = world.client(kv)
        t = await client.begin(isolation="serializable")
        await t.scan(k("f"), k("i"), limit=9)
        t.put(k("b"), b"x")
        world.split(k("g"))  # the client does not know
        await t.commit()
        sent = [s.args[5] for s in kv.log if s.method == PREWRITE]
        ranges = [[[k("f"), k("g")]], [[k("g"), k("i")]]]
        assert sorted(o["ranges"] for o in sent if "ranges" in o) == ranges
        assert [o.get("fence") for o in sent if "ranges" in o] == [None, None]
        assert any("stage" in o for o in sent)
        await asyncio.sleep(1)
        assert world.cluster.guards == {}
        await client.close()

    run(main)


def test_serializable_long_ranges_take_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report over many rows that writes its result could not be serializable."""
    monkeypatch.setattr(validating, "GUARD_ROWS", 10)

    async def main(world: World, client: TxnClient) -> None:
        keys = [k(f"{c}{i:02}") for c in "bg" for i in range(35)]
        await client.write([put(key, b"row") for key in keys])
        kv = Counting(world)
        mine = world.client(kv)
        for changed in (False, True):
            t = await mine.begin(isolation="serializable")
            assert len((await t.scan(k("a"), k("i"), limit=100)).items) == len(keys)
            t.put(k("y"), b"sum")
            if changed:
                await client.write([put(k("g34"), b"new")])
                assert isinstance(await failure(t.commit()), WriteConflict)
            else:
                kv.sent.clear()
                await t.commit()
                assert kv.sent.count(PREWRITE) >= 8
        await asyncio.sleep(0.1)
        t = await mine.begin(isolation="serializable")
        await t.scan(k("b"), k("b20"), limit=100)
        t.put(k("a"), b"sum")  # too much for one entry, though one partition has it all
        await t.commit()
        await mine.close()

    in_world(main)


# ------------------------------------------------------------------ accidents


def test_serializable_guards_outlive_a_power_loss() -> None:
    """A transaction that is committing would not find protected what it was told is."""

    async def main(world: World, client: TxnClient) -> None:
        assert isinstance(world, RealWorld)
        start = await client.now()
        args = (start, k("b"), TXN_TTL_MS_DEFAULT)
        reads = {"reads": [k("c")], "ranges": [[k("d"), k("e")]]}
        kv = world.kv()
        await kv.call(PREWRITE, k("b"), *args, [put(k("b"), b"x")], 0, reads, budget_ms=1000)
        await kv.call(PREWRITE, k("g"), *args, [], 0, {"reads": [k("g")]}, budget_ms=1000)
        await asyncio.sleep(0.1)
        before = guards(world)
        assert len(before) == 3
        await world.crash()
        kv = world.kv()
        await asyncio.sleep(2)
        assert guards(world) == before
        for key in ("c", "d1", "g"):
            call = kv.call(PUT, k(key), k(key), b"x", None, 0, budget_ms=100)
            met = await failure(call)
            assert isinstance(met, KeyLocked)
            assert (met.details["txn"], met.details["kind"]) == (start, "guard")
        commit_ts = await world.client().now()
        flip = await kv.call(COMMIT, k("b"), k("b"), start, commit_ts, budget_ms=1000)
        for keys in ([k("b"), k("c"), k("d")], [k("g")]):
            await kv.call(RESOLVE, keys[0], start, flip[1], keys, budget_ms=1000)
        await world.client().write([put(k(key), b"y") for key in ("c", "d1", "g")])

    in_world(main)


@pytest.mark.few(8)
@pytest.mark.parametrize("dies_at", range(3, 28))
def test_serializable_guards_of_a_dead_coordinator_are_removed(dies_at: int) -> None:
    """Keys that it only read would be closed to writers for ever."""

    async def main(world: World, client: TxnClient) -> None:
        await client.write([put(k(key), b"0") for key in "bgz"])
        doomed, _ = doomed_client(world, dies_at)

        async def work() -> None:
            t = await doomed.begin(isolation="serializable", ttl_ms=1000)
            await t.get(k("g"))
            await t.scan(k("u"), k("zz"), limit=9)
            t.put(k("b"), b"1")
            t.put(k("c"), b"1")
            await t.commit()

        task = world.loop.create_task(work())
        await asyncio.wait([task], timeout=1)
        began = world.loop.time()
        writes = [client.write([put(k(key), b"2")], budget_ms=8_000) for key in ("g", "z", "v")]
        await asyncio.gather(*writes)
        assert world.loop.time() - began < 2, "its ttl and a bounded delay"
        b, c = [(await client.get(k(key)))[0] for key in "bc"]
        assert (b, c) in ((b"0", None), (b"1", b"1"))
        task.cancel()
        await asyncio.sleep(7)  # a message of the dead one may arrive this late …
        await client.write([put(k(key), b"3") for key in ("b", "c", "g", "v", "z")])
        await asyncio.sleep(0.5)
        sweeper = world_sweeper(world, client)
        for _ in range(3):
            await sweeper()

    in_world(main)


def world_sweeper(world: World, client: TxnClient) -> Callable[[], Coroutine[Any, Any, None]]:
    """One round of the node's sweeper."""
    assert isinstance(world, RealWorld)
    real = world.real
    return Sweeper(real.manager, client.resolver, real.clock, client.timers).sweep


def test_serializable_guards_that_nobody_meets_are_swept() -> None:
    """They would hold back the collection of all younger transactions' records, for ever."""

    async def main(world: World, client: TxnClient) -> None:
        assert isinstance(world, RealWorld)
        start = await client.now()
        for key in ("b", "z"):
            args = (start, k("b"), 500, [], 0, {"ranges": [[k(key), k(key + "9")]]})
            await client._kv.call(PREWRITE, k(key), *args, budget_ms=1000)
        await asyncio.sleep(0.1)
        assert world.real.manager.oldest_lock() == start
        sweep = world_sweeper(world, client)
        await sweep()
        assert len(guards(world)) == 2, "it may be alive"
        await asyncio.sleep(1)
        await sweep()
        await asyncio.sleep(0.1)
        assert guards(world) == []
        assert world.real.manager.oldest_lock() is None
        assert (await client.status(start)).status == "aborted"

    in_world(main)


# ------------------------------------------------------------------ use


def test_serializable_own_writes_are_not_read() -> None:
    """A transaction would be restarted for what it never asked the store."""

    async def main(world: World, client: TxnClient) -> None:
        t = await client.begin(isolation="serializable")
        t.put(k("b"), b"mine")
        assert await t.get(k("b")) == (b"mine", 0)
        assert (await t.multi_get([k("b")]))[0] == (b"mine", 0)
        await client.write([put(k("zz"), b"x")])
        await t.commit()
        bare = await client.begin(isolation="serializable")
        bare.check(k("b"), t._version)
        bare.put(k("z"), b"1")
        await bare.commit()
        wrong = await client.begin(isolation="serializable")
        await wrong.get(k("b"))
        wrong.check(k("b"), 0)
        wrong.delete(k("z"))
        assert (await failure(wrong.commit())).code == "CONDITION_FAILED"

    in_world(main)


def test_serializable_run_repeats_until_it_fits() -> None:
    """Every conflict would be the caller's own work."""

    async def main(world: World, client: TxnClient) -> None:
        async def take(t: Transaction) -> int:
            taken = len((await t.scan(k("a"), k("zz"), limit=99)).items)
            t.put(k(f"{'bgz'[taken % 3]}{taken}"), b"")
            return taken

        clients = [world.client() for _ in range(3)]
        work = [
            c.run(take, isolation="serializable", budget_ms=60_000) for c in clients for _ in "1234"
        ]
        assert sorted(await asyncio.gather(*work)) == list(range(12)), "every number once"
        for c in clients:
            await c.close()

    in_world(main)
