"""Locks of procedures that workers of a pool run: the master grants, the workers only keep."""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.testing.simulation import loop as simloop
from procedures.engine.executor import Executor
from procedures.engine.procedure import State
from tests.procedures.engine.test_locks_engine import TYPES, args, end, overlaps, rows, submit
from tests.procedures.pools.pool_lab import Office


def in_office(test: Any) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        executor = await office.open(office.executor())
        try:
            office.hire("w1")
            office.hire("w2")
            await office.entered("w1")
            await office.entered("w2")
            await test(office, executor)
        finally:
            await office.end()
            await office.close(executor)

    simloop.run(main)


def test_k6_workers_work_under_locks() -> None:
    """Two workers were inside at once, or a lock stayed behind a procedure that a worker ended."""

    async def test(office: Office, executor: Executor) -> None:
        ids = [await submit(executor, args("x:r", fail=i == 2)) for i in range(6)]
        ends = [await end(executor, id) for id in ids]
        assert [e.state for e in ends].count(State.SUCCESS) == 5
        assert ends[2].state is State.ROLLED_BACK
        diary = office.lab.__dict__["diary"]
        assert not overlaps(diary)
        assert await rows(office.lab) == 0

    in_office(test)


def test_u4_a_worker_that_sleeps_is_robbed() -> None:
    """A worker in the middle of a step wrote after its lock had gone to another one."""

    async def test(office: Office, executor: Executor) -> None:
        sleeper = await submit(executor, args("x:r", who="sleeper", secs=5))
        await asyncio.sleep(1)
        second = await submit(executor, args("x:r", who="second"))
        assert await executor.steal("r", "it hangs") == [sleeper]
        assert (await end(executor, second, 3_000)).state is State.SUCCESS
        assert (await office.lab.store.load(sleeper)).record.seq == 0
        assert (await end(executor, sleeper)).state is State.SUCCESS
        whose = [who for who, what in office.lab.__dict__["diary"] if what == "in"]
        assert whose == ["sleeper", "second", "second", "sleeper", "sleeper"]
        assert await rows(office.lab) == 0

    in_office(test)


def test_k11_locks_of_workers_over_a_failover() -> None:
    """A new master gave away the lock of a procedure that a living worker still ran."""

    async def test(office: Office, executor: Executor) -> None:
        first = await submit(executor, args("x:r", who="first", secs=4))
        second = await submit(executor, args("x:r", who="second"))
        await asyncio.sleep(1)
        await office.close(executor)
        later = await office.open(office.executor())
        try:
            assert list(later.holders("r")) == [first]
            assert (await end(later, first)).state is State.SUCCESS
            assert (await end(later, second)).state is State.SUCCESS
            diary = office.lab.__dict__["diary"]
            assert not overlaps(diary)
            assert await rows(office.lab) == 0
        finally:
            await office.close(later)

    in_office(test)
