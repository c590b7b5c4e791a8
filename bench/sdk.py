"""Clients through the SDK, as users write them: a task per request in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic

import kvorum
from bench.closed_loop import RETRY_S, Tally
from bench.spec import Spec, user_key

Operation = Callable[[], Awaitable[object]]


def operation(db: kvorum.AsyncDatabase, spec: Spec, rng: Random, value: bytes) -> Operation:
    """One operation of `spec` as a coroutine function."""
    table = db.table(spec.namespace, spec.table)

    def key() -> bytes:
        return user_key(rng.randrange(spec.keys))

    async def put() -> None:
        await table.put(key(), value)

    async def get() -> None:
        assert await table.get(key()) is not None, "a loaded key is not there"

    async def scan() -> None:
        start = user_key(rng.randrange(max(1, spec.keys - spec.rows_per_op)))
        page = await table.scan(start=start, limit=spec.rows_per_op)
        assert len(page.items) == spec.rows_per_op, f"a page of {len(page.items)} rows"

    async def batch() -> None:
        keys = rng.sample(range(spec.keys), spec.rows_per_op)
        await db.batch([kvorum.Put(spec.namespace, spec.table, user_key(k), value) for k in keys])

    async def proc() -> None:
        procedure = await db.submit("bench.steps", {"steps": spec.rows_per_op, "size": spec.size})
        await db.wait(procedure)

    alone = {"put": put, "get": get, "scan": scan, "batch": batch, "proc": proc}
    return (alone | _transactions(db, spec, rng, value))[spec.op]


def _transactions(
    db: kvorum.AsyncDatabase, spec: Spec, rng: Random, value: bytes
) -> dict[str, Operation]:
    async def txn() -> None:
        chosen = user_key(rng.randrange(spec.keys))
        async with db.transaction() as t:
            rows = t.table(spec.namespace, spec.table)
            await rows.get(chosen)
            await rows.put(chosen, value)

    async def txn2() -> None:
        """Two random keys, read and written."""
        pair = rng.sample(range(spec.keys), 2)
        await read_and_write([user_key(k) for k in pair])

    async def txn2x() -> None:
        """The same, one key on each side of the middle, where such a table is split."""
        half = spec.keys // 2
        await read_and_write([user_key(rng.randrange(half)), user_key(half + rng.randrange(half))])

    async def read_and_write(keys: list[bytes]) -> None:
        async with db.transaction() as t:
            rows = t.table(spec.namespace, spec.table)
            for chosen, found in zip(keys, await rows.multi_get(keys), strict=True):
                assert found is not None, "a loaded key is not there"
                await rows.put(chosen, value)

    async def bank() -> None:
        """Move 1 between two of few accounts, as often as it takes until it is committed."""
        a, b = (user_key(k) for k in rng.sample(range(spec.keys), 2))

        async def move(t: kvorum.AsyncTransaction) -> None:
            rows = t.table(spec.namespace, spec.table)
            found = await rows.multi_get([a, b])
            left, right = (int(item.value) for item in found if item is not None)
            await rows.put(a, b"%d" % (left - 1))
            await rows.put(b, b"%d" % (right + 1))

        await db.run(move)

    return {"txn": txn, "txn2": txn2, "txn2x": txn2x, "bank": bank}


async def client(work: Operation, tally: Tally) -> None:
    """The closed loop of one task."""
    while True:
        sent = monotonic()
        if sent >= tally.end:
            return
        try:
            await work()
        except (kvorum.KvorumError, AssertionError) as error:
            tally.failed(f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_S)
            continue
        now = monotonic()
        if tally.begin <= now < tally.end:
            tally.latencies.append(now - sent)
