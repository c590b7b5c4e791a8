"""Values of sequences for the statements of one process: taken from the store in runs, each in a
transaction of its own, and given out from memory.

    pool = SequencePool(run, timers)
    await pool.reserve(sequence, n)       -> n values, in order
    await pool.set_value(sequence, v, …)     setval; what is left in memory is forgotten
    pool.forget(sequence_id)                 after ALTER SEQUENCE, TRUNCATE … RESTART, DROP

A run holds what is asked for, CACHE at least, and up to twice as much as the last one if that was
used up within REFILL_S: a table that is loaded fast asks the store seldom, and one that gets a row
now and then has no gaps. What is left of a run is not given out after STALE_S: a setval by another
process counts from then on at the latest (as with CACHE in PostgreSQL; there it counts never).
What a crash, a rollback or age leave is a gap. A value is given out once (`sqlproxy.sequences`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from kv.base.limits import SEQUENCE_POOLS_MAX, SEQUENCE_RUN_MAX
from kv.base.ports import Timers
from sqlproxy import sequences
from sqlproxy.catalog import Writer
from sqlproxy.schema import Sequence

REFILL_S = 1.0
STALE_S = 5.0

T = TypeVar("T")


class Run(Protocol):
    """Runs a body in a transaction and commits, again on a conflict (`TxnClient.run`)."""

    def __call__(self, body: Callable[[Any], Awaitable[T]], /) -> Awaitable[T]: ...


@dataclass
class _Left:
    """What is left of a run: `following`, `following + step`, …, `count` of them."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    version: int = 0
    following: int = 0
    step: int = 1
    count: int = 0
    size: int = 0  # of the last run
    taken_s: float = float("-inf")


class SequencePool:
    """See the module. Calls may come at once; those of one sequence wait for each other."""

    def __init__(self, run: Run, timers: Timers) -> None:
        self._run = run
        self._now = timers.monotonic
        self._left: OrderedDict[int, _Left] = OrderedDict()

    async def reserve(self, sequence: Sequence, count: int) -> list[int]:
        """The next `count` values. Raises SqlError (2200H: it is at its end; values that were
        taken before that are gaps), KvorumError.
        """
        assert count >= 0
        left = self._of(sequence.id)
        found: list[int] = []
        async with left.lock:
            if left.version != sequence.version or self._now() - left.taken_s > STALE_S:
                left.count = 0
            while len(found) < count:
                if not left.count:
                    await self._refill(left, sequence, count - len(found))
                use = min(left.count, count - len(found))
                end = left.following + use * left.step
                found += range(left.following, end, left.step)
                left.following, left.count = end, left.count - use
        return found

    def at_once(self, sequence: Sequence, count: int) -> list[int] | None:
        """The same, if that many are in memory and nobody else is taking any."""
        left = self._left.get(sequence.id)
        if left is None or left.count < count or left.lock.locked():
            return None
        if left.version != sequence.version or self._now() - left.taken_s > STALE_S:
            return None
        end = left.following + count * left.step
        found = list(range(left.following, end, left.step))
        left.following, left.count = end, left.count - count
        return found

    async def _refill(self, left: _Left, sequence: Sequence, wanted: int) -> None:
        soon = self._now() - left.taken_s < REFILL_S
        size = max(wanted, sequence.cache, 2 * left.size if soon else 1)
        size = min(size, max(SEQUENCE_RUN_MAX, wanted))

        async def take(t: Writer) -> sequences.Run:
            return await sequences.take(t, sequence, size)

        run = await self._run(take)
        left.following, left.step, left.count = run.first, run.step, run.size
        left.size, left.version = min(size, SEQUENCE_RUN_MAX), sequence.version
        left.taken_s = self._now()

    async def set_value(self, sequence: Sequence, value: int, called: bool = True) -> None:
        """setval. Raises SqlError (22003), KvorumError."""
        left = self._of(sequence.id)

        async def put(t: Writer) -> None:
            sequences.set_value(t, sequence, value, called)

        async with left.lock:
            await self._run(put)
            left.count = 0

    def forget(self, sequence: int) -> None:
        """The one of this id was changed: what is left of its run is not given out."""
        left = self._left.get(sequence)
        if left is not None:
            left.count = 0

    def _of(self, number: int) -> _Left:
        left = self._left.get(number)
        if left is None:
            left = self._left[number] = _Left()
            while len(self._left) > SEQUENCE_POOLS_MAX:
                oldest = next(iter(self._left))
                if self._left[oldest].lock.locked():
                    break
                del self._left[oldest]
        self._left.move_to_end(number)
        return left
