"""A small transaction of one partition: one read, one write, nothing else (txn/commit/shell.py)."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from kv.base.errors import UnknownOutcome, WriteConflict
from kv.base.methods import MGET, ROLLBACK, WRITE
from tests.txn import short
from tests.txn.short import SENT_S, Seen
from tests.txn.world import RealWorld, failure, k
from txn.client import TxnClient
from txn.results import TxnStatus
from txn.transaction import Transaction, TxnState

A, B = k("a"), k("b")

in_world = partial(short.in_world, (A, B), WRITE)


async def changed(client: TxnClient, value: bytes) -> Transaction:
    """A transaction that read both and will write both."""
    return await short.changed(client, (A, B), value)


async def both(client: TxnClient) -> list[bytes]:
    return await short.values(client, (A, B))


def test_d2_the_usual_one_is_a_read_and_a_write() -> None:
    """A small transaction went through machinery that only others need."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
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

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        first, second = await changed(client, b"1"), await changed(client, b"2")
        await first.commit()
        assert isinstance(await failure(second.commit()), WriteConflict)
        assert second.state is TxnState.ABORTED
        assert await both(client) == [b"1", b"1"]

    in_world(test)


@pytest.mark.parametrize("spoil", ["answer", "request"])
def test_d2_a_lost_connection_is_settled_by_the_record(spoil: str) -> None:
    """A commit whose answer was lost was reported as failed, or done twice."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        seen.spoil = (seen.started.count(WRITE), spoil)
        version = await t.commit()
        assert await both(client) == [b"1", b"1"]
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


@pytest.mark.parametrize("after_s", [0.0, SENT_S, 0.1])
def test_d2_a_caller_that_goes_away_leaves_one_outcome(after_s: float) -> None:
    """After a cancelled commit the slot stayed taken, or the transaction had no outcome."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
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

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
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
