"""Values of sequences for the statements of one process: taken from the store in runs, each in a
transaction of its own, and given out from memory.

    pool = SequencePool(run, timers)
    await pool.reserve(sequence, n)       -> n values, in order
    await pool.some(sequence, n)            the same, fewer at its end; and of which run
    pool.give_back(sequence, values, run)  what was not used of them
    await pool.set_value(sequence, v, …)     setval; what is left in memory is forgotten
    await pool.stand(sequence)             last_value, log_cnt, is_called
    pool.forget(sequence_id)                 after ALTER SEQUENCE, TRUNCATE … RESTART, DROP
    await pool.close()

A run holds what is asked for, CACHE at least, and about as much as was used in REFILL_S, but at
most twice as much as the last one: a table that is loaded fast asks the store seldom, and one that
gets a row now and then has no gaps. Where half of a run went within REFILL_S the next one is taken
while the rest is given out, so that nobody waits for it. What is left of a run is not given out
after STALE_S: a setval by another process counts from then on at the latest (as with CACHE in
PostgreSQL; there it counts never). What a crash, a rollback or age leave is a gap. A value is given
out once (`sqlproxy.catalog.sequences`), and later ones of one process are further on, until a
setval.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import SEQUENCE_POOLS_MAX, SEQUENCE_RUN_MAX
from kv.base.ports import Timers
from sqlproxy.catalog import sequences
from sqlproxy.catalog.catalog import Run, Writer
from sqlproxy.rows.schema import Sequence
from sqlproxy.values.errors import SqlError
from txn.shared.deadlines import Background

REFILL_S = 1.0
STALE_S = 5.0
_AHEAD_MIN: Final = 16  # a shorter run is not worth a transaction beside it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Taken:
    """A run that is used next."""

    run: sequences.Run
    version: int
    taken_s: float


@dataclass
class _Left:
    """What is left of a run: `following`, `following + step`, …, `count` of them."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ahead: _Taken | None = None
    taking: asyncio.Task[None] | None = None  # makes `ahead`
    epoch: int = 0  # what is taken for an earlier one is not used
    runs: int = 0  # that were begun or forgotten
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
        self._background = Background()

    async def close(self) -> None:
        """Take nothing ahead any more."""
        await self._background.drain(0)

    async def reserve(self, sequence: Sequence, count: int) -> list[int]:
        """The next `count` values. Raises SqlError (2200H: it is at its end; values that were
        taken before that are gaps), KvorumError.
        """
        found, _ = await self._reserved(sequence, count, fewer=False)
        return found

    async def some(self, sequence: Sequence, count: int) -> tuple[list[int], int]:
        """The same; at its end, or before it begins anew, those that are left, and none is an error
        (2200H). With the number of the run that they end in, for `give_back`.
        """
        return await self._reserved(sequence, count, fewer=True)

    async def _reserved(
        self, sequence: Sequence, count: int, *, fewer: bool
    ) -> tuple[list[int], int]:
        assert count >= 0
        left = self._of(sequence.id)
        found: list[int] = []
        filled = False
        async with left.lock:
            if not self._good(sequence, left.version, left.taken_s):
                left.count = 0
            while len(found) < count:
                if not left.count and left.taking is not None:
                    await asyncio.wait([left.taking])
                if not left.count and not self._go_on(left, sequence):
                    if fewer and filled:
                        break
                    try:
                        await self._refill(left, sequence, count - len(found))
                    except SqlError:
                        if found and fewer:
                            break
                        raise
                    filled = True
                found += _some(left, count - len(found))
        self._look_ahead(left, sequence)
        return found, left.runs

    def take_back(self, sequence: Sequence, values: list[int]) -> None:
        """What `at_once` just gave was not used."""
        left = self._left.get(sequence.id)
        if left is not None:
            self.give_back(sequence, values, left.runs)

    def give_back(self, sequence: Sequence, values: list[int], run: int) -> None:
        """Values of `some` that nobody used, in order: they are given out next, unless somebody
        took others since, or the run is not the last one any more. Then they are a gap, and so are
        those of runs before the last two.
        """
        left = self._left.get(sequence.id)
        if left is None or left.lock.locked() or left.runs != run:
            return
        if not values or not self._good(sequence, left.version, left.taken_s):
            return
        if values[-1] + left.step != left.following:
            return
        for value in reversed(values):
            if value + left.step != left.following and left.count:
                # it was another run, or the sequence began anew: what is here comes after it
                if left.ahead is not None or left.taking is not None:
                    return
                behind = sequences.Run(left.following, left.step, left.count)
                left.ahead = _Taken(behind, left.version, left.taken_s)
                left.count = 0
            left.following, left.count = value, left.count + 1

    def at_once(self, sequence: Sequence, count: int) -> list[int] | None:
        """The same, if that many are in memory and nobody else is taking any."""
        left = self._left.get(sequence.id)
        if left is None or left.lock.locked():
            return None
        if left.version != sequence.version or self._now() - left.taken_s > STALE_S:
            return None
        if left.count < count and (left.count or not self._go_on(left, sequence)):
            return None
        if count == 1 and left.count:
            found: list[int] | None = [left.following]
            left.following += left.step
            left.count -= 1
        else:
            found = _some(left, count) if left.count >= count else None
        if left.count * 2 <= left.size:
            self._look_ahead(left, sequence)
        return found

    def _good(self, sequence: Sequence, version: int, taken_s: float) -> bool:
        return version == sequence.version and self._now() - taken_s <= STALE_S

    async def _refill(self, left: _Left, sequence: Sequence, wanted: int) -> None:
        run = await self._take(sequence, max(wanted, self._size(left, sequence)))
        self._use(left, _Taken(run, sequence.version, self._now()))

    def _size(self, left: _Left, sequence: Sequence) -> int:
        """As much as was used of late in REFILL_S, at most twice as much as the last run."""
        lasted_s = max(self._now() - left.taken_s, REFILL_S / 2)
        return max(sequence.cache, min(int(left.size * REFILL_S / lasted_s), SEQUENCE_RUN_MAX), 1)

    async def _take(self, sequence: Sequence, size: int) -> sequences.Run:
        async def take(t: Writer) -> sequences.Run:
            return await sequences.take(t, sequence, size)

        return await self._run(take)

    @staticmethod
    def _use(left: _Left, taken: _Taken) -> None:
        run = taken.run
        left.following, left.step, left.count = run.first, run.step, run.size
        left.size, left.version = min(run.size, SEQUENCE_RUN_MAX), taken.version
        left.taken_s = taken.taken_s
        left.runs += 1

    def _go_on(self, left: _Left, sequence: Sequence) -> bool:
        """Use what was taken ahead."""
        ahead, left.ahead = left.ahead, None
        if ahead is None or not self._good(sequence, ahead.version, ahead.taken_s):
            return False
        self._use(left, ahead)
        return True

    def _look_ahead(self, left: _Left, sequence: Sequence) -> None:
        """Take the next run, if this one is going fast."""
        if left.count * 2 > left.size or left.size < _AHEAD_MIN or self._background.closed:
            return
        if left.ahead is None and left.taking is None and self._now() - left.taken_s < REFILL_S:
            work = self._take_ahead(left, sequence, left.epoch)
            left.taking = self._background.spawn(work, f"sequence {sequence.id}")

    async def _take_ahead(self, left: _Left, sequence: Sequence, epoch: int) -> None:
        tries, size = 0, self._size(left, sequence)

        async def take(t: Writer) -> sequences.Run:
            nonlocal tries
            tries += 1
            if tries > 1:  # somebody restarted it, perhaps: nothing is to be missing then
                raise InvalidArgument("the sequence was changed at the same time")
            return await sequences.take(t, sequence, size)

        try:
            run = await self._run(take)
            if left.epoch == epoch:
                left.ahead = _Taken(run, sequence.version, self._now())
        except (KvorumError, SqlError):
            return  # whoever needs a value gets the error
        finally:
            left.taking = None

    async def set_value(self, sequence: Sequence, value: int, called: bool = True) -> None:
        """setval. Raises SqlError (22003), KvorumError."""
        left = self._of(sequence.id)

        async def put(t: Writer) -> None:
            sequences.set_value(t, sequence, value, called)

        async with left.lock:
            if left.taking is not None:  # else its run would begin with the new value
                await asyncio.wait([left.taking])
            await self._run(put)
            self._drop(left)

    async def stand(self, sequence: Sequence) -> tuple[int, int, bool]:
        """last_value, log_cnt, is_called: what was given out last, and how many more were taken,
        if nobody took any after them; else the store's word. Raises KvorumError.
        """
        left = self._of(sequence.id)

        async def look(t: Writer) -> sequences.Stand:
            return await sequences.stand(t, sequence)

        async with left.lock:
            if left.taking is not None:
                await asyncio.wait([left.taking])
            at = await self._run(look)
            if self._good(sequence, left.version, left.taken_s):
                end, more = left.following + (left.count - 1) * left.step, left.count
                if left.ahead is not None:
                    run = left.ahead.run
                    end, more = run.first + (run.size - 1) * run.step, more + run.size
                if at == (end, True):
                    return left.following - left.step, more, True
            return at.last, 0, at.called

    def forget(self, sequence: int) -> None:
        """The one of this id was changed: what is left of its run is not given out."""
        left = self._left.get(sequence)
        if left is not None:
            self._drop(left)

    @staticmethod
    def _drop(left: _Left) -> None:
        left.count, left.ahead = 0, None
        left.epoch += 1
        left.runs += 1

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


def _some(left: _Left, most: int) -> list[int]:
    """The next values of the run."""
    if most == 1 and left.count:  # nearly always
        value = left.following
        left.following, left.count = value + left.step, left.count - 1
        return [value]
    use = min(left.count, most)
    end = left.following + use * left.step
    found = list(range(left.following, end, left.step))
    left.following, left.count = end, left.count - use
    return found
