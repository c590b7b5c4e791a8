"""INGEST from the client: over several partitions, past intents and splits, when answers are lost;
and deletes that leave tombstones for it, whichever way a transaction goes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.errors import ConditionFailed, KeyLocked, Moved, TooLarge, TxnAborted, Unavailable
from kv.base.limits import KEY_BYTES_MAX, MiB
from kv.base.methods import INGEST, RESOLVE
from kv.base.ops import delete
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.world import FarWorld, Hooked, RealWorld, failure, k
from txn.client import TxnClient

KEYS = sorted(k(f"{c}{i}") for c in "afkpu" for i in range(3))  # three in each of five partitions
VALUES = [b"%d" % i for i in range(len(KEYS))]


class Spoiled(Hooked):
    """Notes what arrives. `errors`: what the next ones of INGEST end with, before or behind it."""

    def __init__(self, loop: SimLoop, world: RealWorld) -> None:
        super().__init__(loop, world.kv())
        self.sent: list[int] = []
        self.before: list[Exception] = []
        self.behind: list[Exception] = []
        self.hold: dict[int, asyncio.Event] = {}  # methods that do not arrive yet

    async def arrives(self, method: int) -> None:
        self.sent.append(method)
        if method in self.hold:
            await self.hold[method].wait()
        if method == INGEST and self.before:
            raise self.before.pop(0)

    async def returns(self, method: int) -> None:
        if method == INGEST and self.behind:
            raise self.behind.pop(0)


def in_world(test: Any, make: type[RealWorld] = RealWorld, **options: Any) -> None:
    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        kv = Spoiled(loop, world)
        client = world.client(kv, **options)
        await test(world, client, kv)
        await client.close()
        world.close()

    run(main)


async def values(client: TxnClient) -> list[bytes | None]:
    rows, _ = await client.multi_get(KEYS)
    return [None if row is None else row[0] for row in rows]


async def now(client: TxnClient) -> int:
    t = await client.begin()
    start_ts = t.start_ts
    await t.abort()
    return start_ts


def test_q4_one_message_for_each_partition() -> None:
    """Entries of a slice go to wherever their keys lie."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        at = await now(client)
        assert await client.ingest(KEYS, VALUES, at=at, unique=False) == len(KEYS)
        assert kv.sent.count(INGEST) == 5
        assert await values(client) == VALUES
        (first, *_), _ = await client.multi_get(KEYS)
        assert first is not None
        assert first[1] == at
        assert await client.ingest(KEYS, VALUES, at=at, unique=True) == 0

    in_world(test)


def test_q4_large_entries_go_in_several_messages() -> None:
    """What one log entry cannot hold would never be written, and its index never made."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        keys = [k(f"a{i:02d}") for i in range(20)]
        some = [b"x" * MiB] * 20
        assert await client.ingest(keys, some, at=await now(client), unique=False) == 20
        assert kv.sent.count(INGEST) >= 5

    in_world(test)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(
    "error", [Moved("it moved"), Unavailable("not now"), KeyLocked("gone by now")]
)
def test_q4_what_is_not_answered_is_sent_again(error: Exception, behind: bool) -> None:
    """A slice would be lost with a message, or an answer."""
    if isinstance(error, KeyLocked):
        if behind:
            return
        error.details = {
            "txn": 1 << 18,
            "anchor": KEYS[0],
            "keys": [KEYS[0]],
            "age_ms": 10**7,
            "ttl_ms": 1,
        }

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        (kv.behind if behind else kv.before).extend([error, error])
        at = await now(client)
        put = await client.ingest(KEYS, VALUES, at=at, unique=False)
        assert put == len(KEYS) - 3 * behind, "of the first partition's nothing is new"
        assert await values(client) == VALUES

    in_world(test)


def test_q4_it_ends_at_the_deadline() -> None:
    """A slice would hang for ever where a partition is gone, and its step with it."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        kv.before = [Unavailable("not now")] * 1_000
        began = world.loop.time()
        work = client.ingest(KEYS, VALUES, at=await now(client), unique=False, budget_ms=500)
        assert isinstance(await failure(work), Unavailable)
        assert world.loop.time() - began < 1

    in_world(test)


@pytest.mark.parametrize("make", [RealWorld, FarWorld])
def test_q4_a_commit_under_way_is_waited_for(make: type[RealWorld]) -> None:
    """Its tombstone lies in intents yet, and would come below the entry."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        at = await now(client)
        other_kv = Spoiled(world.loop, world)
        other = world.client(other_kv)
        other_kv.hold[RESOLVE] = asyncio.Event()
        t = await other.begin()
        for key in (KEYS[1], KEYS[-1]):
            t.delete(key, tombstone=True)
        await t.commit()
        assert world.locked() == [KEYS[1], KEYS[-1]]
        assert await client.ingest(KEYS, VALUES, at=at, unique=False) == len(KEYS) - 2
        assert await values(client) == [None if v in (b"1", b"14") else v for v in VALUES]
        other_kv.hold.pop(RESOLVE).set()
        await other.close()

    in_world(test, make)


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize(
    "how", ["one", "one partition", "two phases", "spilled", "write", "single write"]
)
def test_q4_every_way_to_commit_leaves_tombstones(how: str, unique: bool) -> None:
    """An entry of a row that was deleted meanwhile would come back."""
    gone = (
        KEYS[:1]
        if how in ("one", "single write")
        else KEYS[:2]
        if how == "one partition"
        else KEYS[1:7]
    )

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        at = await now(client)
        if how in ("write", "single write"):
            await client.write([delete(key, tombstone=True) for key in gone])
        else:
            t = await client.begin()
            for key in gone:
                t.delete(key, tombstone=True)
            await t.commit()
        if unique:
            work = client.ingest(KEYS, VALUES, at=at, unique=True)
            assert isinstance(await failure(work), ConditionFailed)
            return
        assert await client.ingest(KEYS, VALUES, at=at, unique=False) == len(KEYS) - len(gone)
        left = [None if key in gone else v for key, v in zip(KEYS, VALUES, strict=True)]
        assert await values(client) == left

    in_world(test, spill_bytes=50 if how == "spilled" else 1 << 20)


def test_q4_a_delete_without_a_tombstone_leaves_nothing() -> None:
    """Every delete of what is not there would be garbage."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        at = await now(client)
        t = await client.begin()
        t.delete(KEYS[0])
        await t.commit()
        assert await client.ingest(KEYS, VALUES, at=at, unique=True) == len(KEYS)

    in_world(test)


def test_q4_a_snapshot_out_of_date_runs_again() -> None:
    """`run` would give a slice up that only took too long."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        kv.before = [TxnAborted("it began before the safepoint")]
        seen: list[int] = []

        async def slice_(t: Any) -> None:
            seen.append(t.start_ts)
            await client.ingest(KEYS, VALUES, at=t.start_ts, unique=False)

        await client.run(slice_)
        assert len(seen) == 2
        assert seen[0] < seen[1]
        assert await values(client) == VALUES

    in_world(test)


def test_q4_a_key_that_is_too_long_is_told() -> None:
    """An index on long texts would be made for ever."""

    async def test(world: RealWorld, client: TxnClient, kv: Spoiled) -> None:
        keys, at = [KEYS[0], k("a" * (KEY_BYTES_MAX + 1))], await now(client)
        work = client.ingest(keys, VALUES[:2], at=at, unique=False)
        assert isinstance(await failure(work), TooLarge)

    in_world(test)
