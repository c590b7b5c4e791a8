"""A small transaction over several partitions: a read and a prewrite to each, its end with others'
(txn/commit/shell.py), and everything that may come between.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from kv.base.errors import KvorumError, UnknownOutcome, WriteConflict
from kv.base.limits import COMMITS_IN_FLIGHT_MAX, UNSTAGE_MS
from kv.base.methods import (
    COMMIT,
    FINISH,
    HEARTBEAT,
    MGET,
    PREWRITE,
    RESOLVE,
    ROLLBACK,
)
from tests.txn import short
from tests.txn.short import SENT_S, Seen
from tests.txn.world import RealWorld, failure, k
from txn.client import TxnClient
from txn.results import TxnStatus
from txn.transaction import Transaction

A, B, Z = k("a"), k("b"), k("z")  # two partitions: A and B in the first

in_world = partial(short.in_world, (A, B, Z), PREWRITE)


async def changed(client: TxnClient, value: bytes) -> Transaction:
    """A transaction that read both partitions and will write both."""
    return await short.changed(client, (A, Z), value)


async def both(client: TxnClient) -> list[bytes]:
    return await short.values(client, (A, Z))


def test_d13_the_usual_one_is_a_read_and_a_prewrite_for_each() -> None:
    """A small transaction ran the whole machinery of commits; or its trace was not told."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        version = await t.commit()
        assert seen.started == [MGET, MGET, PREWRITE, PREWRITE]
        trace = t.trace()
        assert trace is not None
        assert (trace.round_trips, trace.syncs) == (1, 1)
        await asyncio.sleep(0.1)
        assert seen.called == [FINISH, FINISH]
        assert await both(client) == [b"1", b"1"]
        assert await client.get(Z) == (b"1", version)
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


def test_d13_a_conflict_is_the_callers() -> None:
    """The short way must refuse a lost update as the long one does, and leave nothing behind."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        first, second = await changed(client, b"1"), await changed(client, b"2")
        await first.commit()
        error = await failure(second.commit())
        assert isinstance(error, WriteConflict)
        assert error.details["key"] in (A, Z)
        assert await both(client) == [b"1", b"1"]
        assert (await client.status(second.id)).status in ("aborted", "unknown")

    in_world(test)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["answer", "request", "nothing"])
def test_d13_a_lost_prewrite_is_sent_again(which: int, how: str) -> None:
    """A connection that breaks under one of the prewrites left the transaction to readers."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        seen.spoil = (which, how)
        version = await t.commit()
        assert await both(client) == [b"1", b"1"]
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


def test_d13_one_that_has_to_wait_goes_on_in_two_phases() -> None:
    """Others took a coordinator for dead that only waited for a key."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        other = world.client(parallel=False)
        blocker = await other.begin()
        start_ts = blocker.start_ts
        ops = [[1, Z, b"x", None, 0]]
        await seen.inner.call(PREWRITE, Z, start_ts, Z, 10_000, ops, 0, budget_ms=1_000)
        t = await client.begin()
        t.put(A, b"1")
        t.put(Z, b"1")
        commit = asyncio.ensure_future(t.commit())
        await asyncio.sleep(UNSTAGE_MS / 1000 * 1.5)
        assert not commit.done()
        await asyncio.sleep(0.01)
        assert HEARTBEAT in seen.called
        await seen.inner.call(ROLLBACK, Z, Z, start_ts, budget_ms=1_000)
        await seen.inner.call(RESOLVE, Z, start_ts, 0, [Z], budget_ms=1_000)
        version = await commit
        assert COMMIT in seen.called, "two phases"
        assert await both(client) == [b"1", b"1"]
        assert await client.status(t.id) == TxnStatus("committed", version)
        await other.close()

    in_world(test)


@pytest.mark.parametrize("after_s", [0.0, SENT_S, 0.002, 0.004, 0.02])
def test_d13_a_caller_that_goes_away_leaves_one_outcome(after_s: float) -> None:
    """A commit that nobody waits for any more left its intents, or half of them."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        commit = asyncio.ensure_future(t.commit())
        await asyncio.sleep(after_s)
        commit.cancel()
        await asyncio.wait([commit])
        await asyncio.sleep(0.2)
        found = await both(client)
        status = (await client.status(t.id)).status
        assert found == ([b"1", b"1"] if status == "committed" else [b"0", b"0"])

    in_world(test)


@pytest.mark.parametrize("refused", [[FINISH], [FINISH, FINISH]])
@pytest.mark.parametrize("behind", [0, 1])
def test_d13_ends_that_fail_are_made_alone(refused: list[int], behind: int) -> None:
    """What was answered stayed as intents, for every reader to ask about."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await changed(client, b"1")
        commit = asyncio.ensure_future(t.commit())
        if behind:  # not the flip, but what comes behind it
            while FINISH not in seen.called:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.0001)
        seen.refused = list(refused)
        version = await commit
        await asyncio.sleep(0.1)
        assert world.locked() == []
        assert (RESOLVE in seen.called) or (COMMIT in seen.called)
        assert await client.get(Z) == (b"1", version)
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


def test_d13_a_client_that_is_closed_says_what_it_knows() -> None:
    """Its callers waited for ever, or were told a lie."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        other = world.client(seen)
        t = await changed(other, b"1")
        commit = asyncio.ensure_future(t.commit())
        await asyncio.sleep(SENT_S)
        closing = asyncio.ensure_future(other.close())
        (told,) = await asyncio.gather(commit, return_exceptions=True)
        await closing
        assert isinstance(told, int | UnknownOutcome), told

    in_world(test)


@pytest.mark.slow
def test_d13_many_at_once_and_the_slots_come_back() -> None:
    """A slot that is not given back stops the client after COMMITS_IN_FLIGHT_MAX of them."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        async def one(i: int) -> None:
            t = await client.begin()
            t.put(k(f"a{i:04d}"), b"%d" % i)
            t.put(k(f"u{i:04d}"), b"%d" % i)
            t.put(B if i % 7 == 0 else k(f"b{i:04d}"), b"%d" % i)
            await t.commit()

        for at in range(0, COMMITS_IN_FLIGHT_MAX * 2, 300):
            every = (one(i) for i in range(at, at + 300))
            ends = await asyncio.gather(*every, return_exceptions=True)
            refused = [i for i, end in enumerate(ends, at) if isinstance(end, KvorumError)]
            assert refused, "they meet at one key"
            assert all(i % 7 == 0 for i in refused)
        await asyncio.sleep(0.2)
        rows, _ = await client.multi_get([k(f"u{i:04d}") for i in range(600) if i % 7])
        assert all(row is not None for row in rows)

    in_world(test)
