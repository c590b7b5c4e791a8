"""A small transaction of one partition: one read, one write, nothing else (txn/coordinator.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.errors import UnknownOutcome, WriteConflict
from kv.base.methods import GET, MGET, ROLLBACK, WRITE
from kv.client.client import KvClient
from kv.client.links import LinkLost
from tests.support.simloop import SimLoop, run
from tests.txn.world import RealWorld, failure, k
from txn.client import TxnClient
from txn.results import TxnStatus
from txn.transaction import Transaction, TxnState

A, B = k("a"), k("b")
SENT_S = 0.0005  # a sync of the simulated disk takes longer


class Seen:
    """A KvClient that notes what is sent; the first WRITE's answer is lost (`spoil` "answer"), or
    it never left ("request").
    """

    def __init__(self, inner: KvClient) -> None:
        self.inner, self.spoil = inner, ""
        self.started: list[int] = []
        self.called: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        self.called.append(method)
        return await self.inner.call(method, key, *args, budget_ms=budget_ms)

    async def go_on(self, first: Any, error: BaseException) -> Any:
        return await self.inner.go_on(first, error)

    def start(self, method: int, key: bytes, args: tuple[Any, ...], budget_ms: int) -> Any:
        self.started.append(method)
        spoil, self.spoil = self.spoil, ""
        if method != WRITE or not spoil:
            self.spoil = spoil
            return self.inner.start(method, key, args, budget_ms)
        lost: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if spoil == "request":  # a read of nobody's, for where it would have gone
            first = self.inner.start(GET, key, (key, 0, None), budget_ms)
            assert first is not None
            lost.set_exception(LinkLost("gone", sent=False))
            return first._replace(reply=lost, method=method, args=args)
        first = self.inner.start(method, key, args, budget_ms)
        assert first is not None

        def lose(_done: object) -> None:
            if not lost.done():
                lost.set_exception(LinkLost("gone", sent=True))

        first.reply.add_done_callback(lose)
        return first._replace(reply=lost)


def in_world(test: Callable[[TxnClient, Seen], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        inner = world.kv()
        assert isinstance(inner, KvClient)
        seen = Seen(inner)
        client = world.client(seen)
        for key in (A, B):
            t = await client.begin()
            t.put(key, b"0")
            await t.commit()
        seen.started.clear()
        seen.called.clear()
        await test(client, seen)
        await client.close()
        assert world.locked() == []
        assert not client.coordinator.resolver.owners
        world.close()

    run(main)


async def changed(client: TxnClient, value: bytes) -> Transaction:
    """A transaction that read both and will write both."""
    t = await client.begin()
    assert [row is not None for row in await t.multi_get([A, B])] == [True, True]
    t.put(A, value)
    t.put(B, value)
    return t


async def both(client: TxnClient) -> list[bytes]:
    return [row[0] for row in (await client.multi_get([A, B]))[0] if row is not None]


def test_d2_the_usual_one_is_a_read_and_a_write() -> None:
    """A small transaction went through machinery that only others need."""

    async def test(client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        version = await t.commit()
        assert (seen.started, seen.called) == ([MGET, WRITE], [])
        trace = t.trace()
        assert trace is not None
        assert [(m.name, m.rows, m.error) for m in trace.messages] == [("WRITE", 2, "")]
        assert (trace.round_trips, trace.syncs) == (1, 1)
        assert await both(client) == [b"1", b"1"]
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


def test_d2_a_conflict_is_the_callers() -> None:
    """A lost update, or a refusal that the fast way took for something to be tried again."""

    async def test(client: TxnClient, seen: Seen) -> None:
        first, second = await changed(client, b"1"), await changed(client, b"2")
        await first.commit()
        assert isinstance(await failure(second.commit()), WriteConflict)
        assert second.state is TxnState.ABORTED
        assert await both(client) == [b"1", b"1"]

    in_world(test)


@pytest.mark.parametrize("spoil", ["answer", "request"])
def test_d2_a_lost_connection_is_settled_by_the_record(spoil: str) -> None:
    """A commit whose answer was lost was reported as failed, or done twice."""

    async def test(client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        seen.spoil = spoil
        version = await t.commit()
        assert await both(client) == [b"1", b"1"]
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


@pytest.mark.parametrize("after_s", [0.0, SENT_S, 0.1])
def test_d2_a_caller_that_goes_away_leaves_one_outcome(after_s: float) -> None:
    """After a cancelled commit the slot stayed taken, or the transaction had no outcome."""

    async def test(client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        committing = asyncio.ensure_future(t.commit())
        await asyncio.sleep(after_s)
        gone = not committing.done() and WRITE in seen.started
        committing.cancel()
        await asyncio.wait([committing])
        await asyncio.sleep(5)
        assert (await client.status(t.id)).status in ("committed", "aborted", "unknown")
        told = (await client.status(t.id)).status
        assert await both(client) == ([b"1", b"1"] if told == "committed" else [b"0", b"0"])
        assert gone == (ROLLBACK in seen.called), "who goes away asks the record"
        slots = client.coordinator._slots
        assert not slots.locked()
        taken = [await asyncio.wait_for(slots.acquire(), 1) for _ in range(slots._value)]
        assert all(taken)
        for _ in taken:
            slots.release()

    in_world(test)


def test_d2_many_at_once_and_the_slots_come_back() -> None:
    """Fast commits, refused ones and cancelled ones used up the client's slots."""

    async def test(client: TxnClient, seen: Seen) -> None:
        free = client.coordinator._slots._value
        many = [await changed(client, b"%d" % i) for i in range(20)]
        tasks = [asyncio.ensure_future(t.commit()) for t in many]
        await asyncio.sleep(0)
        tasks[3].cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(end, int) for end in ends) <= 1, "they all read the same rows"
        assert not any(isinstance(end, UnknownOutcome) for end in ends)
        await asyncio.sleep(5)
        assert client.coordinator._slots._value == free

    in_world(test)
