"""nextval and setval: gaps are allowed, a value twice is not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sqlproxy.catalog import sequences
from sqlproxy.catalog.sequence_pool import STALE_S, SequencePool
from sqlproxy.rows.schema import Sequence
from sqlproxy.values.errors import SqlError
from tests.sqlproxy.catalog.test_catalog import Clock, Store, WriteConflict

ONE = Sequence(7, "shop", "s", maximum=9)


class Runs:
    """Transactions over the store, again on a conflict."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = 0

    async def __call__(self, body: Callable[[Any], Awaitable[Any]]) -> Any:
        while True:
            t = self.store.begin()
            found = await body(t)
            await asyncio.sleep(0)  # so that others come between
            try:
                t.commit()
            except WriteConflict:
                continue
            self.count += 1
            return found


async def take(store: Store, sequence: Sequence, count: int = 1) -> list[int]:
    t = store.begin()
    run = await sequences.take(t, sequence, count)
    t.commit()
    return [run.first + i * run.step for i in range(run.size)]


async def test_p13_values_are_postgresql_s() -> None:
    """start, increment, bounds, cycle, setval: as a client of PostgreSQL expects them."""
    store = Store()
    assert [await take(store, ONE) for _ in range(3)] == [[1], [2], [3]]
    assert await take(store, ONE, 100) == [4, 5, 6, 7, 8, 9]
    with pytest.raises(SqlError) as caught:
        await take(store, ONE)
    assert (caught.value.sqlstate, caught.value.message) == (
        "2200H",
        'nextval: reached maximum value of sequence "s" (9)',
    )
    assert await take(store, replace(ONE, cycle=True), 2) == [1, 2]
    down = Sequence(8, "shop", "d", start=-1, increment=-3, minimum=-8, maximum=-1)
    assert await take(store, down, 9) == [-1, -4, -7]
    with pytest.raises(SqlError, match=r'reached minimum value of sequence "d" \(-8\)'):
        await take(store, down)
    for value, called, wanted in ((5, True, 6), (5, False, 5), (9, False, 9)):
        t = store.begin()
        sequences.set_value(t, ONE, value, called)
        t.commit()
        assert await take(store, ONE) == [wanted]
    with pytest.raises(SqlError) as caught:
        sequences.set_value(store.begin(), ONE, 10)
    assert caught.value.message == 'setval: value 10 is out of bounds for sequence "s" (1..9)'


async def test_p13_no_value_is_given_out_twice() -> None:
    """Two proxies, many statements at once, conflicts: every number at most once, each in order."""
    store = Store()
    big = Sequence(9, "shop", "b")
    pools = [SequencePool(Runs(store), Clock()) for _ in range(3)]
    asked = [1, 7, 2, 30, 1, 1, 500, 3]
    found = await asyncio.gather(*(pool.reserve(big, n) for n in asked for pool in pools))
    assert [len(one) for one in found] == [n for n in asked for _ in pools]
    flat = [value for one in found for value in one]
    assert len(set(flat)) == len(flat)
    assert all(one == sorted(one) for one in found)


async def test_p13_a_pool_asks_the_store_seldom_when_it_is_busy() -> None:
    """A transaction per row would halve the speed of inserts; a run per row now and then would
    leave a gap after each.
    """
    store, clock = Store(), Clock()
    runs = Runs(store)
    pool = SequencePool(runs, clock)
    big = Sequence(9, "shop", "b")
    slow = []
    for _ in range(5):
        slow += await pool.reserve(big, 1)
        clock.now += STALE_S + 1
    assert slow == [1, 2, 3, 4, 5]
    runs.count = 0
    for _ in range(1_000):
        await pool.reserve(big, 1)
    assert runs.count < 15
    (before,) = await pool.reserve(big, 1)
    await pool.set_value(big, 7)
    assert await pool.reserve(big, 1) == [8]
    assert before > 1_000
    (one,) = await pool.reserve(replace(big, version=2), 1)
    assert one > 8, "after ALTER SEQUENCE nothing of the old run is used"
    with pytest.raises(SqlError, match="reached maximum"):
        await SequencePool(runs, clock).reserve(ONE, 10)


async def test_p13_the_next_run_is_taken_while_this_one_is_used() -> None:
    """At the end of each run all who insert would wait for a transaction."""
    store, clock = Store(), Clock()
    runs = Runs(store)
    pool = SequencePool(runs, clock)
    big = Sequence(9, "shop", "b")
    found = await pool.reserve(big, 32)
    while runs.count < 2:
        one = pool.at_once(big, 1)
        if one is None:
            one = await pool.reserve(big, 1)
        found += one
        await asyncio.sleep(0)
    missed = 0
    for _ in range(3_000):
        one = pool.at_once(big, 1)
        missed += one is None
        found += one or ()
        for _ in range(3):
            await asyncio.sleep(0)
    assert missed == 0
    assert found == list(range(1, len(found) + 1)), "in order, without gaps"
    await pool.close()


async def test_p13_what_was_taken_ahead_is_forgotten_by_setval() -> None:
    """After setval, numbers of before would come back, and be in use already."""
    store, clock = Store(), Clock()
    pool = SequencePool(Runs(store), clock)
    big = Sequence(9, "shop", "b")
    for stop in range(12):
        await pool.reserve(big, 40)
        await pool.reserve(big, 30)  # the next run is under way, or there
        for _ in range(stop):
            await asyncio.sleep(0)
        await pool.set_value(big, 100_000 * (stop + 1))
        for n in range(200):
            (value,) = pool.at_once(big, 1) or await pool.reserve(big, 1)
            assert value == 100_000 * (stop + 1) + 1 + n
    await pool.close()


async def test_p13_what_was_not_used_is_given_out_next() -> None:
    """A query that reserves for more rows than there are would leave a gap each time."""
    store, clock = Store(), Clock()
    big = Sequence(9, "shop", "b")
    runs = Runs(store)
    pool = SequencePool(runs, clock)
    values, run = await pool.some(big, 10)
    assert values == list(range(1, 11))
    pool.give_back(big, values[4:], run)
    assert runs.count == 1
    assert await pool.reserve(big, 3) == [5, 6, 7]
    assert await pool.stand(big) == (7, 3, True)
    values, run = await pool.some(big, 3)
    pool.give_back(big, values, run)
    assert await pool.reserve(big, 4) == [8, 9, 10, 11]


@pytest.mark.parametrize("way", ["others took", "another run", "set", "forgotten", "old"])
async def test_p13_what_may_have_been_overtaken_is_a_gap(way: str) -> None:
    """A number that is given back behind others', or behind a setval, would come twice."""
    store, clock = Store(), Clock()
    big = Sequence(9, "shop", "b")
    pool = SequencePool(Runs(store), clock)
    values, run = await pool.some(big, 10)
    after: list[int] = []
    match way:
        case "others took":
            after = await pool.reserve(big, 1)
        case "another run":
            after = await SequencePool(Runs(store), clock).reserve(big, 1)
            after += await pool.reserve(big, 1)
        case "set":
            await pool.set_value(big, 4)
        case "forgotten":
            pool.forget(9)
        case _:
            clock.now += STALE_S + 1
    pool.give_back(big, values[5:], run)
    after += await pool.reserve(big, 3)
    assert after == ([5, 6, 7] if way == "set" else list(range(11, 11 + len(after))))


async def test_p13_some_are_fewer_at_the_end() -> None:
    """A statement that may need none of them would fail before it needs one."""
    store = Store()
    pool = SequencePool(Runs(store), Clock())
    assert (await pool.some(ONE, 100))[0] == list(range(1, 10))
    with pytest.raises(SqlError, match="reached maximum value"):
        await pool.some(ONE, 1)
    ring = replace(ONE, id=8, maximum=3, cycle=True)
    assert (await pool.some(ring, 8))[0] == [1, 2, 3]
    assert await pool.reserve(ring, 8) == [1, 2, 3, 1, 2, 3, 1, 2]


async def test_p13_values_of_two_runs_go_back() -> None:
    """Another node took some between them, and each query would leave a gap."""
    store, clock = Store(), Clock()
    big = Sequence(9, "shop", "b", cache=3)
    pool, other = SequencePool(Runs(store), clock), SequencePool(Runs(store), clock)
    assert await pool.reserve(big, 1) == [1]
    assert await other.reserve(big, 1) == [4]
    values, run = await pool.some(big, 5)
    assert values == [2, 3, 7, 8, 9]
    pool.give_back(big, values[1:], run)
    assert await pool.stand(big) == (2, 7, True)
    values, run = await pool.some(big, 4)
    assert values == [3, 7, 8, 9]
    pool.give_back(big, values[2:], run)
    assert await pool.reserve(big, 3) == [8, 9, 10]


@pytest.mark.parametrize("seed", range(4))
async def test_p13_nothing_that_is_given_back_comes_twice(seed: int) -> None:
    """Queries that use fewer numbers than they reserved, beside others, on three nodes: two of
    them would have the same number.
    """
    rng = random.Random(seed)
    store, clock = Store(), Clock()
    big = Sequence(9, "shop", "b", cache=rng.choice([1, 1, 7]))
    pools = [SequencePool(Runs(store), clock) for _ in range(3)]
    used: list[int] = []

    async def statement(pool: SequencePool) -> None:
        for _ in range(60):
            if rng.random() < 0.3:
                used.extend(await pool.reserve(big, rng.randint(1, 4)))
                continue
            values, run = await pool.some(big, rng.randint(1, 40))
            keep = rng.randint(0, len(values))
            used.extend(values[:keep])
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            pool.give_back(big, values[keep:], run)
            clock.now += rng.choice([0, 0, 0.1, 6])

    await asyncio.gather(*(statement(pool) for pool in pools for _ in range(3)))
    assert len(set(used)) == len(used) > 500
    alone = SequencePool(Runs(Store()), Clock())
    taken: list[int] = []
    for _ in range(200):
        values, run = await alone.some(big, rng.randint(1, 40))
        keep = rng.randint(0, len(values))
        taken += values[:keep]
        alone.give_back(big, values[keep:], run)
    assert taken == list(range(1, len(taken) + 1))  # whoever is alone leaves no gap
