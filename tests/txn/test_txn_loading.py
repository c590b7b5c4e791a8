"""Loads: rows that are sent while they come, as one transaction (txn/bulk/load.py)."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import Any

import pytest

from kv.base.errors import ConditionFailed, TxnAborted
from kv.base.limits import LOAD_IN_FLIGHT_MAX, LOAD_YIELDS_MS, THROUGH_MS, TXN_STREAM_KEYS_MIN
from kv.base.methods import HEARTBEAT, PREWRITE, PREWRITE_ROWS, RESOLVE
from kv.base.ops import check, put
from kvorum.testing.simulation.loop import SimLoop
from tests.txn.test_txn_spill import ROWS, key, play, rows
from tests.txn.wire import Gate, Wire
from tests.txn.world import Hooked, RealWorld
from txn.bulk.load import Load
from txn.client import TxnClient


async def loaded(load: Load) -> None:
    await load.add(KEYS, VALUES, absent=True)
    await load.commit()


KEYS = [key(i) for i in range(ROWS)]
VALUES = [b"%d" % i for i in range(ROWS)]


def test_a_load_is_whole_and_new() -> None:
    """Rows of several parts and partitions, in any order, become visible at one version."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv())
        client = world.client(wire)
        load = await client.load()
        await load.add(KEYS[::-1][:400], VALUES[::-1][:400], absent=True)
        await load.add(KEYS[: ROWS - 400], VALUES[: ROWS - 400], absent=True)
        assert await world.client().get(KEYS[0]) == (None, 0), "nothing is there before the commit"
        version = await load.commit([check(key(ROWS + 1), 0)])
        await load.abort()  # nothing, any more
        found = [await world.client().get(KEYS[i]) for i in (0, 1, ROWS - 1)]
        assert found == [(VALUES[i], version) for i in (0, 1, ROWS - 1)]
        assert await rows(world) == VALUES
        assert (await world.client().status(load.start_ts)).commit_ts == version
        await client.close()
        assert max(wire.methods().count(PREWRITE_ROWS), 1) <= 2 * 5 * LOAD_IN_FLIGHT_MAX

    play(scene)


def test_a_load_that_is_committed_leaves_no_intents() -> None:
    """A message whose rows lie in several partitions is a chunk in each: all but its first were
    left to readers, who had to ask for each.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        load = await client.load()
        await load.add(KEYS, VALUES, absent=True)
        await load.commit()
        await client.close()  # ends what runs behind the commit
        assert not world.locked()

    play(scene)


async def scanned(client: TxnClient) -> list[bytes]:
    """The values of all rows there are, by scans that want no keys, at a fresh snapshot."""
    now, found, at = await client.now(), list[bytes](), b""
    while True:
        values, resume = await client.reader.scan_values(at, b"", now, limit=1_000, budget_ms=5_000)
        found += values
        if resume is None:
            return found
        at = resume


def test_p10_a_scan_behind_a_load_reads_through_what_is_not_cleaned() -> None:
    """The first count behind a COPY would resolve all of its rows, or miss them."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv())
        gate = Gate(wire, RESOLVE)
        client = world.client(wire)
        before = await client.now()
        await loaded(await client.load())
        await gate.reached.wait()
        locked = world.locked()
        seen = Wire(loop, world.kv())
        reader = world.client(seen)
        assert sorted(await scanned(reader)) == sorted(VALUES)
        assert seen.methods().count(RESOLVE) == 1, "the anchor is no chunk"
        assert len(world.locked()) >= len(locked) * 4 // 5, "of five partitions"
        found, _ = await reader.reader.scan_values(b"", b"", before, limit=1_000, budget_ms=5_000)
        assert found == [], "rows of a snapshot from before"
        assert sorted(await scanned(client)) == sorted(VALUES)
        now = await client.now()
        assert len(client.resolver.loads(now)) == len(reader.resolver.loads(now)) == 1
        assert reader.resolver.loads(before) == []
        gate.opened.set()
        await client.close()
        assert world.locked() == []
        assert client.resolver.loads(now) == [], "it has cleaned the load itself"
        assert sorted(await scanned(reader)) == sorted(VALUES)
        await asyncio.sleep(THROUGH_MS / 1000)
        assert reader.resolver.loads(now) == [], "each scan would look for chunks for ever"
        assert sorted(await scanned(reader)) == sorted(VALUES)
        await reader.close()

    play(scene)


def test_p10_the_cleaning_of_a_load_leaves_the_loop_to_others() -> None:
    """A count behind a COPY would wait for the cleaning; or the cleaning for ever, and what is
    locked takes memory.
    """
    took: dict[float, float] = {}

    async def scene(loop: SimLoop, world: RealWorld, share: float) -> None:
        load = await world.client(Wire(loop, world.kv(), latency_ms=20)).load()
        load._loop_s = lambda: loop.time() * share
        await loaded(load)
        began = loop.time()
        while world.locked():  # noqa: ASYNC110 - cleaned behind the answer; nobody tells
            await asyncio.sleep(0.001)
        took[share] = loop.time() - began

    for share in (0.01, 0.5):
        play(partial(scene, share=share))
    assert took[0.01] * 2 < took[0.5] < took[0.01] * 6, took


def test_o6_the_cleaning_of_a_batch_leaves_the_loop_to_others() -> None:
    """Whoever reads single rows beside a batch of Spark would wait for two chunks each time."""
    keys = sorted(KEYS)
    took: dict[float, float] = {}

    async def scene(loop: SimLoop, world: RealWorld, share: float) -> None:
        client = world.client(Wire(loop, world.kv(), latency_ms=20))
        bulk = client.bulk
        bulk._loop_s = lambda: loop.time() * share
        transaction = bulk.begin(await bulk.fresh_ts(), keys[0])
        await transaction.prewrite([put(keys[0], VALUES[0])])
        laid: list[tuple[bytes, int]] = []
        at = range(1, len(keys), 100)
        for i in at:
            await transaction.prewrite_rows(keys[i : i + 100], VALUES[i : i + 100], laid)
        await transaction.close()
        start_ts = transaction.start_ts
        _, version = await bulk.commit(start_ts, keys[0], transaction.min_commit_ts)
        assert len(laid) >= len(at)
        began = loop.time()
        assert await bulk.resolve_laid(laid, start_ts, version) == []
        took[share] = (loop.time() - began) / len(laid)
        assert world.locked() == keys[:1]
        await bulk.resolve(keys[:1], start_ts, version)
        missed = await bulk.resolve_laid(laid, start_ts, version)
        assert sorted(missed) == sorted(first for first, _ in laid), "there is nothing any more"
        await client.close()

    for share in (0.01, 0.5):
        play(partial(scene, share=share))
    # Alone two are under way; else each is followed by a rest of four times as long.
    assert took[0.01] * 5 < took[0.5] < took[0.01] * 14, took


def test_p10_the_cleaning_of_a_large_change_waits_for_scans_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count(*) right behind an UPDATE of many rows would share the interpreter with it."""
    monkeypatch.setattr("txn.transaction.TXN_STREAM_KEYS_MIN", ROWS)

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client(Wire(loop, world.kv(), latency_ms=1))
        t = await client.begin()
        t.put_rows(KEYS, VALUES)
        assert t.spilled
        pages = count(1)
        client._pages_through = partial(next, pages)  # type: ignore[method-assign]
        await t.commit()
        began = loop.time()
        await asyncio.sleep(LOAD_YIELDS_MS / 2_000)
        assert len(world.locked()) == ROWS - 1, "all but the anchor: scans go on"
        while world.locked():  # noqa: ASYNC110 - cleaned behind the answer; nobody tells
            await asyncio.sleep(0.1)
        assert loop.time() - began > LOAD_YIELDS_MS / 1_000
        await client.close()

    play(scene)


def test_p10_the_cleaning_of_a_load_waits_for_scans_but_not_for_ever() -> None:
    """A query right behind a COPY would share the interpreter with the cleaning; or who asks one
    query after the other would keep a million keys locked in memory.
    """

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client(Wire(loop, world.kv(), latency_ms=1))
        load, pages = await client.load(), 0

        def one_more() -> int:
            nonlocal pages
            pages += 1
            return pages

        load.pages = one_more
        await loaded(load)
        began, locked = loop.time(), len(world.locked())
        await asyncio.sleep(LOAD_YIELDS_MS / 2_000)
        assert len(world.locked()) == locked, "scans go on"
        while world.locked():  # noqa: ASYNC110 - cleaned behind the answer; nobody tells
            await asyncio.sleep(0.1)
        assert loop.time() - began > LOAD_YIELDS_MS / 1_000
        behind = await client.load()
        assert behind.pages() == client.resolver.pages_through == 0
        client.resolver.learn_load(1, 2)
        await client.reader.scan_values(b"", b"", await client.now(), limit=9, budget_ms=5_000)
        assert behind.pages() == 1, "a scan that may read through a load"
        await behind.abort()
        await client.close()

    play(scene)


@pytest.mark.parametrize("there", [0, 7, ROWS - 1])
def test_a_load_of_a_row_that_is_there_leaves_nothing(there: int) -> None:
    """One row that is not new refuses all of them, and is named."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        await client.write_one(put(KEYS[there], b"there"))
        load = await client.load()
        with pytest.raises(ConditionFailed) as refused:
            await loaded(load)
        assert refused.value.details["key"] == KEYS[there]
        await load.abort()
        await client.close()
        found = await rows(world)
        assert found == [b"there" if i == there else None for i in range(ROWS)]

    play(scene)


def test_conditions_of_a_load_hold_at_its_commit() -> None:
    """Rows that were encoded for a schema that is no more would be committed."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        load = await client.load()
        await load.add(KEYS, VALUES, absent=True)
        await client.write_one(put(key(ROWS + 1), b"there"))
        with pytest.raises(ConditionFailed):
            await load.commit([check(key(ROWS + 1), 0)])
        await client.close()
        assert await rows(world) == [None] * ROWS

    play(scene)


def test_a_load_that_is_given_up_or_aborted_by_others_leaves_nothing() -> None:
    """A client that goes away in the middle would leave half of its rows."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        client = world.client()
        load = await client.load()
        await load.add(KEYS, VALUES)
        await load.abort()
        second = await client.load()
        await second.add(KEYS, VALUES)
        while not world.locked():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        await client.abort(second.start_ts)
        with pytest.raises(TxnAborted):
            await second.commit()
        empty = await client.load()
        assert await empty.commit() == empty.start_ts
        await client.close()
        assert await rows(world) == [None] * ROWS

    play(scene)


@pytest.mark.parametrize("way", ["abort", "cancelled commit"])
def test_a_load_that_waits_for_a_lock_is_given_up_at_once(way: str) -> None:
    """Whoever cancels a COPY would wait as long as it does, for a transaction of somebody else."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        holder = world.client().bulk
        locked = sorted(KEYS)[ROWS // 2]
        held = holder.begin(await holder.fresh_ts(), locked)
        await held.prewrite([put(locked, b"theirs")])
        client = world.client()
        load = await client.load()
        await load.add(KEYS, VALUES)
        await asyncio.sleep(1)
        assert load._sending, "some wait"
        began = loop.time()
        if way == "cancelled commit":
            commit = loop.create_task(load.commit())
            await asyncio.sleep(0.1)
            commit.cancel()
            await asyncio.wait([commit])
            assert commit.cancelled()
        else:
            await load.abort()
        assert loop.time() - began < 1
        assert all(task.done() for task in load._sending)
        await held.close()
        await holder.roll_back(locked, held.start_ts)
        await holder.resolve([locked], held.start_ts, 0)
        await client.close()
        assert await rows(world) == [None] * ROWS

    play(scene)


@pytest.mark.slow
def test_many_keys_are_streamed_without_a_file() -> None:
    """Many thousand keys would have an intent each; or one of them be lost."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv())
        client = world.client(wire)
        t = await client.begin()
        for i in range(TXN_STREAM_KEYS_MIN - 1):
            t.put(key(i), b"x", cond=0)
        before = t.spilled
        t.put(key(TXN_STREAM_KEYS_MIN), b"last", cond=0)
        assert (before, t.spilled) == (False, True)
        version = await t.commit()
        assert await client.get(key(TXN_STREAM_KEYS_MIN)) == (b"last", version)
        await client.close()
        assert wire.methods().count(PREWRITE) == 1, "the anchor"
        second = world.client()
        other = await second.begin()
        for i in range(TXN_STREAM_KEYS_MIN, 2 * TXN_STREAM_KEYS_MIN + 1):
            other.put(key(i), b"y", cond=0)
        with pytest.raises(ConditionFailed):
            await other.commit()
        assert await world.client().get(key(2 * TXN_STREAM_KEYS_MIN)) == (None, 0)
        held = await second.begin()
        for i in range(TXN_STREAM_KEYS_MIN):
            held.put(key(i), b"z")
        held.hold_key(key(7))
        assert not held.spilled, "what it holds is checked by an ordinary commit"
        await held.commit()
        await second.close()

    play(scene)


def test_o3_a_batch_lives_while_it_keeps_many_beside_it() -> None:
    """Whoever meets rows of a batch while it says that its tasks' transactions live, which takes
    long if they are many, rolls it back.
    """

    class Slow(Hooked):
        kept = 0

        async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
            if method == HEARTBEAT and key == KEYS[1]:
                await asyncio.sleep(60)
                self.kept += 1
            return await super().call(method, key, *args, budget_ms=budget_ms)

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        kv = Slow(loop, world.kv())
        bulk = world.client(kv).bulk
        beside = [(KEYS[1], await bulk.fresh_ts())]
        transaction = bulk.begin(await bulk.fresh_ts(), KEYS[0], beside=beside)
        await transaction.prewrite([put(KEYS[0], b"")])
        other = world.client().bulk
        for _ in range(80):
            await asyncio.sleep(5)
            assert await other.lives((KEYS[0], transaction.start_ts))
        assert kv.kept > 1
        await transaction.close()
        await other.roll_back(KEYS[0], transaction.start_ts)
        await other.resolve(KEYS[:1], transaction.start_ts, 0)

    play(scene)
