"""Autocommitted writes: single ops, atomic batches, and batches that are not atomic.

    one op                  PUT or DELETE: no transaction, no status record; the hot path
    several, one partition  WRITE without a transaction id: one log entry is atomic by itself
    several partitions      a two-phase commit that read nothing (BLIND); also of one partition if
                            an entry cannot hold it, for what it replaces or for its keys

A key may be named more than once in an atomic batch if none of its ops has a condition: the last
one wins. With a condition it is InvalidArgument, since nobody could say which state the condition
speaks of.

The first two have no id that could be asked for, so a lost connection is UnknownOutcome at once. An
atomic batch that is the victim of a deadlock starts again with a fresh timestamp; it read nothing,
so that is no other batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    Moved,
    TooLarge,
    TxnAborted,
)
from kv.base.limits import (
    BATCH_BYTES_MAX,
    BATCH_OPS_MAX,
    MULTI_WRITE_IN_FLIGHT_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
    TXN_TTL_MS_DEFAULT,
)
from kv.base.methods import BLIND, DELETE, OP_DELETE, OP_PUT, PUT, WRITE, WRITE_ROWS
from kv.base.ops import Op
from kv.base.ports import Rng, Timers
from kv.client.links import Receiver
from txn.buffered.write_buffer import validate
from txn.commit.coordinator import Coordinator
from txn.commit.sending import Request
from txn.intents.deadlock import DEADLOCK
from txn.shared.deadlines import Backoff, Deadline
from txn.shared.grouping import by_partition
from txn.shared.message_sizes import fits_one_entry, rows_fit
from txn.shared.ports import Kv
from txn.shared.refusals import renumber


class BatchWriter:
    def __init__(
        self,
        kv: Kv,
        now: Callable[[], Awaitable[int]],
        coordinator: Coordinator,
        timers: Timers,
        rng: Rng,
    ) -> None:
        self._kv = kv
        self._now = now
        self._coordinator = coordinator
        self._quick = coordinator.shared.quick
        self._timers = timers
        self._backoff = Backoff(timers, rng, first_ms=RETRY_WAIT_MS_FIRST, max_ms=RETRY_WAIT_MS_MAX)

    def start_write(self, waiter: Receiver, ops: Sequence[Op], budget_ms: int) -> bool:
        """Send ops of distinct keys that are no transaction; False unless one partition, which is
        known, has them all and one entry holds them.
        """
        quick = self._quick
        if quick is None:
            return False
        kind, key, value, cond, ttl_ms = ops[0]
        if len(ops) == 1:
            if kind == OP_PUT:
                return quick.start_for(waiter, PUT, key, (key, value, cond, ttl_ms), budget_ms)
            if kind == OP_DELETE:
                return quick.start_for(waiter, DELETE, key, (key, cond), budget_ms)
        here = quick.located(key)
        if here is None or not all(map(here.covers, [op.key for op in ops])):
            return False
        if not fits_one_entry(ops):
            return False
        return quick.start_for(waiter, WRITE, key, (list(ops), 0, 0), budget_ms)

    def start_rows(
        self,
        waiter: Receiver,
        keys: list[bytes],
        values: list[bytes],
        budget_ms: int,
        *,
        absent: bool,
    ) -> bool:
        """`start_write` of puts, whose keys rise."""
        quick = self._quick
        here = None if quick is None else quick.located(keys[0])
        if quick is None or here is None or not here.covers(keys[-1]):
            return False
        if not rows_fit(keys, values):
            return False
        said = ({"absent": True},) if absent else ()
        args = (keys, values, 0, 0, *said)
        return quick.start_for(waiter, WRITE_ROWS, keys[0], args, budget_ms)

    async def write(self, ops: Sequence[Op], budget_ms: int) -> int:
        """All ops or none; the version."""
        if len(ops) == 1:
            return await self.one(ops[0], budget_ms)
        ops, places = _checked(ops)
        try:
            if len(ops) == 1:
                return await self.one(ops[0], budget_ms)
            return await self._several(ops, Deadline(self._timers, budget_ms))
        except ConditionFailed as error:
            at = error.details.get("op")
            if isinstance(at, int) and at < len(places):
                renumber(error, places[at])
            raise

    async def one(self, op: Op, budget_ms: int) -> int:
        """One op; the version."""
        kind, key, value, cond, ttl_ms = op
        try:
            if kind == OP_PUT:
                reply = await self._kv.call(PUT, key, key, value, cond, ttl_ms, budget_ms=budget_ms)
            elif kind == OP_DELETE:
                reply = await self._kv.call(DELETE, key, key, cond, budget_ms=budget_ms)
            else:
                validate(op)
                reply = await self._kv.call(WRITE, key, [op], 0, 0, budget_ms=budget_ms)
        except KeyLocked as met:
            return await self._one_past_intent(op, met, Deadline(self._timers, budget_ms))
        version: int = reply[0]
        return version

    async def _one_past_intent(self, op: Op, met: KeyLocked, deadline: Deadline) -> int:
        args = _arguments(op)
        attempt = 0
        while True:
            await self._coordinator.resolver.met_by_write(met, attempt, deadline)
            attempt += 1
            try:
                (version,) = await self._kv.call(
                    args[0], op.key, *args[1:], budget_ms=deadline.budget_ms()
                )
            except KeyLocked as again:
                met = again
                continue
            return int(version)

    async def _several(self, ops: Sequence[Op], deadline: Deadline) -> int:
        attempt, fits = 0, True
        keys = [op.key for op in ops]
        while True:
            try:
                groups = await by_partition(self._kv, keys, range(len(ops)))
                one_entry = fits and len(groups) == 1
                if one_entry:
                    (version,) = await self._kv.call(
                        WRITE, keys[0], list(ops), 0, 0, budget_ms=deadline.budget_ms()
                    )
                    return int(version)
                request = Request(await self._now(), ops, TXN_TTL_MS_DEFAULT, flags=BLIND)
                return await self._coordinator.commit(request, deadline.budget_ms())
            except KeyLocked as met:
                if deadline.passed:
                    raise
                if one_entry:
                    await self._coordinator.resolver.met_by_write(met, attempt, deadline)
                else:
                    raise
            except TxnAborted as error:
                if error.code != DEADLOCK or deadline.passed:
                    raise
                await self._backoff.wait(attempt, deadline)
            except Moved:
                if deadline.passed:
                    raise
                await self._backoff.wait(attempt, deadline)
            except TooLarge:
                if not one_entry:
                    raise
                fits = False
            attempt += 1

    async def multi_write(self, ops: Sequence[Op], budget_ms: int) -> list[int | KvorumError]:
        """Each op by itself. Ops on one key run in their order, the rest side by side."""
        if len(ops) > BATCH_OPS_MAX:
            raise _too_large("operations", limit=BATCH_OPS_MAX, actual=len(ops))
        results: list[int | KvorumError] = [0] * len(ops)
        lanes: dict[bytes, list[int]] = {}
        for index, op in enumerate(ops):
            lanes.setdefault(op.key, []).append(index)
        waiting = iter(lanes.values())

        async def work() -> None:
            for lane in waiting:
                for index in lane:
                    try:
                        results[index] = await self.one(ops[index], budget_ms)
                    except KvorumError as error:
                        results[index] = error

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(lanes), MULTI_WRITE_IN_FLIGHT_MAX)):
                group.create_task(work())
        return results


def _arguments(op: Op) -> tuple[Any, ...]:
    if op.kind == OP_PUT:
        return PUT, op.key, op.value, op.cond, op.ttl_ms
    if op.kind == OP_DELETE:
        return DELETE, op.key, op.cond
    return WRITE, [op], 0, 0


def _checked(ops: Sequence[Op]) -> tuple[Sequence[Op], list[int]]:
    """The ops with each key once, and where each stood in the batch."""
    if not ops:
        raise InvalidArgument("a batch needs at least one operation")
    if len(ops) > BATCH_OPS_MAX:
        raise _too_large("operations", limit=BATCH_OPS_MAX, actual=len(ops))
    size = 0
    last: dict[bytes, int] = {}
    for index, op in enumerate(ops):
        validate(op)
        size += len(op.key) + (len(op.value) if op.value is not None else 0)
        last[op.key] = index
    if size > BATCH_BYTES_MAX:
        raise _too_large("bytes of keys and values", limit=BATCH_BYTES_MAX, actual=size)
    if len(last) == len(ops):
        return ops, list(range(len(ops)))
    for index, op in enumerate(ops):
        twice = last[op.key] != index
        if twice and (op.cond is not None or ops[last[op.key]].cond is not None):
            raise InvalidArgument(
                f"{op.key!r:.80} is named twice in the batch, with a condition; "
                "put one operation per key",
                details={"key": op.key, "op": index},
            )
    places = sorted(last.values())
    return [ops[i] for i in places], places


def _too_large(what: str, *, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"the batch has {actual} {what}; the limit is {limit}; "
        "send several batches, or one transaction",
        details={"what": what, "limit": limit, "actual": actual},
    )
