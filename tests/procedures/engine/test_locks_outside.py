"""Locks of code outside of procedures (K9): kept by heartbeats, given back, lost, stolen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import InvalidArgument, Refused, TxnAborted
from kvorum.testing.simulation import loop as simloop
from procedures.engine.lock_procedure import LOCK, Keeper, LockProcedure, LockService
from procedures.engine.procedure import State
from procedures.engine.submission import Submission
from tests.procedures.lab import Lab, run

TTL_MS = 2_000


class Outside:
    """A lab whose executor serves locks; as a node wires it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.timers = LoopTimers(lab.loop)
        self.keeper = Keeper(self.timers)
        lab.types.add(LockProcedure, make=lambda: LockProcedure(self.keeper))

    def executor(self) -> Any:
        self.keeper.clear()  # a reign begins
        return self.lab.executor()

    def service(self, executor: Any) -> LockService:
        return LockService(executor, self.keeper, self.timers)


async def take(executor: Any, resource: str, *, shared: bool = False) -> int:
    args = {"resource": resource, "exclusive": not shared, "ttl_ms": TTL_MS, "owner": "me"}
    id: int = await executor.submit(Submission(LOCK, args, "tester"))
    return id


def outside(test: Callable[[Outside], Awaitable[None]]) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        await test(Outside(Lab(loop, [])))

    simloop.run(main)


def test_k9_held_while_there_are_heartbeats() -> None:
    """A lock was lost under a living holder, or kept after a dead one."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)
            first, second = await take(executor, "r"), await take(executor, "r")
            state, token = await service.beat(first, 0)
            assert state == "held"
            assert token > 1
            for _ in range(20):
                await asyncio.sleep(TTL_MS * 0.6 / 1000)
                assert await service.beat(first, 0) == ("held", token)
                assert await service.beat(second, 0) == ("waiting", 0)
            waits = asyncio.ensure_future(service.beat(second, 10_000))
            started = out.timers.monotonic()
            state, later = await waits  # nobody hears of the first one any more
            took_ms = (out.timers.monotonic() - started) * 1000
            assert state == "held"
            assert later > token
            assert TTL_MS * 0.9 < took_ms < TTL_MS * 1.2
            assert await service.beat(first, 0) == ("ended", 0)
            record = await executor.find(first)
            assert record.state is State.SUCCESS

    outside(test)


def test_k9_sessions_do_not_wait_in_circles() -> None:
    """Two that hold locks and wait for each other's waited for ever; or a queue was taken for a
    circle."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)

            async def ask(resource: str, session: str, *, shared: bool = False) -> tuple[int, str]:
                args = {
                    "resource": resource,
                    "exclusive": not shared,
                    "ttl_ms": TTL_MS,
                    "session": session,
                }
                id = await executor.submit(Submission(LOCK, args, session))
                return id, (await service.beat(id, 0))[0]

            (a1, one), (b2, two), (c3, three) = [
                await ask(f"r{n}", name) for n, name in ((1, "a"), (2, "b"), (3, "c"))
            ]
            assert (one, two, three) == ("held", "held", "held")
            a2, state = await ask("r2", "a")
            assert state == "waiting"
            x2, state = await ask("r2", "x")
            assert state == "waiting"  # x holds nothing
            b3, state = await ask("r3", "b")
            assert state == "waiting"
            with pytest.raises(TxnAborted, match=r"a waits for r2.*b waits for r3") as refused:
                await ask("r1", "c")
            assert refused.value.code == "DEADLOCK"
            assert (await service.beat(b3, 0))[0] == (await service.beat(a2, 0))[0] == "waiting"
            await service.end(c3)  # what the refused one does
            assert (await service.beat(b3, 1_000))[0] == "held"
            await service.end(b2)
            assert (await service.beat(a2, 1_000))[0] == "held"
            # a new reign hears of all of them again, and knows
            a3, state = await ask("r3", "a")
            assert state == "waiting"
            out.keeper.clear()
            for id in (a1, a2, a3, b3, x2):
                await service.beat(id, 0)
            with pytest.raises(TxnAborted):
                await ask("r1", "b")

    outside(test)


class Slowly:
    """An executor that takes its time to find a record."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    async def find(self, id: int) -> Any:
        await asyncio.sleep(0.001)
        return await self._executor.find(id)


def test_k9_one_of_a_circle_is_refused() -> None:
    """All that looked while the first one's refusal was put into words were refused, too."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)

            async def ask(resource: str, session: str) -> int:
                args = {
                    "resource": resource,
                    "exclusive": True,
                    "ttl_ms": TTL_MS,
                    "session": session,
                }
                id: int = await executor.submit(Submission(LOCK, args, session))
                return id

            held = [await ask("r1", "a"), await ask("r2", "b")]
            assert [(await service.beat(id, 0))[0] for id in held] == ["held", "held"]
            waits = [await ask("r2", "a"), await ask("r1", "b")]
            assert (await service.beat(waits[0], 0))[0] == "waiting"
            waits.reverse()  # the one that closes the circle looks first, then the other one
            slow = out.service(Slowly(executor))
            ended = await asyncio.gather(
                *(slow.beat(id, 0) for id in waits), return_exceptions=True
            )
            assert {type(one) for one in ended} == {tuple, TxnAborted}
            (left,) = [id for id, one in zip(waits, ended, strict=True) if isinstance(one, tuple)]
            assert (await service.beat(left, 0))[0] == "waiting"

    outside(test)


def test_k9_given_back_at_once() -> None:
    """Who gave a lock back, or left the queue, still kept others waiting."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)
            a, b, c = [await take(executor, "r") for _ in range(3)]
            assert (await service.beat(a, 0))[0] == "held"
            await service.end(b)
            started = out.timers.monotonic()
            await service.end(a)
            assert (await service.beat(c, 5_000))[0] == "held"
            assert out.timers.monotonic() - started < 0.1
            await service.end(a)
            assert (await service.beat(b, 0))[0] == "ended"
            await service.end(c)
            assert executor.holders("r") == {}

    outside(test)


def test_k9_who_waits_and_dies_gets_nothing_for_long() -> None:
    """A lock was given to somebody who had gone while he waited, and hung there."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)
            first, dead, last = [await take(executor, "r") for _ in range(3)]
            await service.beat(dead, 0)
            for _ in range(5):
                await asyncio.sleep(TTL_MS / 2 / 1000)
                await service.beat(first, 0)
                await service.beat(last, 0)
            await service.end(first)
            assert (await service.beat(last, 100))[0] == "held"

    outside(test)


def test_k9_survives_its_master() -> None:
    """A new master took the lock from a holder whose heartbeats it had not heard yet."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)
            holder, waiter = await take(executor, "r"), await take(executor, "r")
            state, token = await service.beat(holder, 0)
            assert state == "held"
        await asyncio.sleep(10 * TTL_MS / 1000)  # nobody is master
        async with out.executor() as executor:
            service = out.service(executor)
            assert list(executor.holders("r")) == [holder]
            await asyncio.sleep(TTL_MS * 0.8 / 1000)
            for _ in range(10):
                assert await service.beat(holder, 0) == ("held", token)
                assert await service.beat(waiter, 0) == ("waiting", 0)
                await asyncio.sleep(TTL_MS * 0.8 / 1000)
            await asyncio.sleep(TTL_MS / 1000)
            assert (await service.beat(holder, 0))[0] == "ended"

    outside(test)


def test_k9_stolen() -> None:
    """Whose lock was stolen went on with it, or came back for it later."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            service = out.service(executor)
            first, second = await take(executor, "r"), await take(executor, "r")
            _, token = await service.beat(first, 0)
            assert await executor.steal("r", "an operator says so") == [first]
            state, later = await service.beat(second, 1_000)
            assert state == "held"
            assert later > token
            assert await service.beat(first, 0) == ("ended", 0)
            await service.end(second)
            await asyncio.sleep(1)
            assert executor.holders("r") == {}
            assert executor.live() == []

    outside(test)


def test_k9_bad_input() -> None:
    """A lock with senseless arguments was accepted, or a heartbeat for something else."""

    async def test(out: Outside) -> None:
        async with out.executor() as executor:
            good = {"resource": "r", "exclusive": True, "ttl_ms": TTL_MS}
            for bad in (
                {"resource": ""},
                {"resource": "table/x"},
                {"ttl_ms": 1},
                {"ttl_ms": "1000"},
                {"exclusive": 1},
                {"more": 1},
            ):
                with pytest.raises(InvalidArgument):
                    await executor.submit(Submission(LOCK, good | bad, "tester"))
            assert executor.live() == []

    outside(test)


def test_k9_not_a_lock() -> None:
    """LOCK_END ended something that is no lock."""
    from tests.procedures.engine.test_locks_engine import Work, args

    async def test(out: Outside) -> None:
        out.lab.types.add(Work, make=out.lab._maker(Work))
        async with out.executor() as executor:
            record = await run(executor, "locks.work", args("x:r"))
            with pytest.raises(Refused, match="not a lock"):
                await out.service(executor).end(record.id)

    outside(test)
