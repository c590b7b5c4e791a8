"""nextval and setval: gaps are allowed, a value twice is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sqlproxy import sequences
from sqlproxy.errors import SqlError
from sqlproxy.schema import Sequence
from sqlproxy.sequence_pool import STALE_S, SequencePool
from tests.sqlproxy.test_catalog import Clock, Store, WriteConflict

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
        "2200H", 'nextval: reached maximum value of sequence "s" (9)',
    )  # fmt: skip
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
