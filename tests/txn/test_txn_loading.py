"""Loads: rows that are sent while they come, as one transaction (txn/loading.py)."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import ConditionFailed, TxnAborted
from kv.base.limits import LOAD_IN_FLIGHT_MAX, TXN_STREAM_KEYS_MIN
from kv.base.methods import PREWRITE, PREWRITE_ROWS
from kv.base.ops import check, put
from tests.support.simloop import SimLoop
from tests.txn.test_txn_spill import ROWS, key, play, rows
from tests.txn.wire import Wire
from tests.txn.world import RealWorld
from txn.loading import Load


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
