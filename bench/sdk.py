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

    async def txn() -> None:
        chosen = key()
        async with db.transaction() as t:
            rows = t.table(spec.namespace, spec.table)
            await rows.get(chosen)
            await rows.put(chosen, value)

    async def proc() -> None:
        procedure = await db.submit("bench.steps", {"steps": spec.rows_per_op, "size": spec.size})
        await db.wait(procedure)

    return {"put": put, "get": get, "scan": scan, "batch": batch, "txn": txn, "proc": proc}[spec.op]


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
