"""The change feed of a key range: whole transactions in commit order, asked for by whoever reads
them.

    take a timestamp R ─▶ CHANGES of every leg up to R ─▶ merge ─▶ events ─▶ wait for news ─▶ …

Nothing is kept for a watcher but here, where it reads: legs of its range with their frontiers
(kv/feed/merge.py), and what one look at each found. It is asked for the next event only when the
last one was taken (a pull), so a slow reader has nothing but old news; it falls out of the kept
history (SnapshotTooOld) if it is slower than the writers for the whole retention.

Where it stands is one number: `position`, every transaction at or below was reported. A feed that
begins there, here or at another node, goes on with the next one; nothing is lost or repeated.

A transaction larger than a part goes out as several parts of one event, rows by key; one larger
than what a watcher may hold is never held whole: it is read by its version, part by part.

`above` 0 begins with all rows as they are now: one event of kind "snapshot", in parts; what is
committed after its version follows.

Who is far behind walks over its table once: what does not fit the memory waits in a temporary file
(kv/feed/spill.py), and only beyond that it walks again.

Failures that pass (no leader, a partition that moves) are waited for without end: only who reads
knows how long that makes sense.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kv.base.errors import KvorumError, Moved, Reroute, TryLater, UnknownOutcome
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    FEED_AWAITS_MAX,
    FEED_BYTES_MAX,
    FEED_HEARTBEAT_MS,
    FEED_LEGS_IN_FLIGHT_MAX,
    FEED_PART_BYTES_MAX,
    FEED_PART_ROWS_MAX,
    FEED_PAUSE_MS,
    FEED_POLL_MS,
    FEED_ROWS_MAX,
    FEED_SPILL_BYTES_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
)
from kv.base.methods import AWAIT_CHANGES, CHANGES
from kv.base.ports import Rng, Timers
from kv.feed.changes import Row, size_of
from kv.feed.collect import Collector
from kv.feed.merge import Leg, Merge
from kv.feed.spill import Spill
from txn.reading.feed_parts import LargeParts, Part, Parts, Range, SnapshotParts
from txn.reading.reader import Reader
from txn.shared.deadlines import Backoff, sleep
from txn.shared.ports import Kv

_LEG_ROWS_MIN: Final = 256
_LEG_BYTES_MIN: Final = 256 * 1024
_PASSING: Final = (TryLater, Reroute, UnknownOutcome)


class Feed:
    """One watcher of ranges `[start, end)` of storage keys, in their order. Of one task; `close`
    it. Transactions are whole over all of them.
    """

    def __init__(
        self,
        kv: Kv,
        reader: Reader,
        timers: Timers,
        rng: Rng,
        ranges: Sequence[Range],
        *,
        above: int | None,
        check: Callable[[], Awaitable[None]],
        heartbeat_ms: int = FEED_HEARTBEAT_MS,
    ) -> None:
        """`above` None: what is committed from now on. `check` raises if the range is not the
        table's any more; it is asked when something fails.
        """
        self.position = above or 0
        self._kv, self._reader, self._timers = kv, reader, timers
        assert above != 0 or len(ranges) == 1, "all rows first: of one range"
        self._ranges, self._above = ranges, above
        self._check = check
        self._heartbeat_s = heartbeat_ms / 1000
        self._backoff = Backoff(timers, rng, first_ms=RETRY_WAIT_MS_FIRST, max_ms=RETRY_WAIT_MS_MAX)
        self._merge: Merge | None = None
        self._ready: deque[Part] = deque()
        self._reading: Parts | None = None  # a snapshot, or a large version
        self._waiting: dict[Leg, asyncio.Task[object]] = {}
        self._looked_at = self._reported_at = float("-inf")
        self._slots = asyncio.Semaphore(FEED_LEGS_IN_FLIGHT_MAX)
        self._may_spill = True

    async def next(self) -> Part:
        """The next part, when there is one, or "resolved" after a while without.

        Raises SnapshotTooOld, InvalidArgument (of a timestamp in the future), NotFound (the table
        was dropped), Corruption.
        """
        while True:
            if self._reading is not None:
                part = await self._reading.next()
                if part.last:
                    self._reading = None
                    if part.kind == "changes" and self._merge is not None:
                        self._merge.delivered(part.version)
                return self._reported(part)
            if self._ready:
                return self._reported(self._ready.popleft())
            if self._merge is None:
                await self._begin()
                continue
            await self._round(self._merge)

    def ready(self) -> Part | None:
        """The next part if nothing needs to be asked for it."""
        if self._reading is not None or not self._ready:
            return None
        return self._reported(self._ready.popleft())

    def _reported(self, part: Part) -> Part:
        self._reported_at = self._timers.monotonic()
        if part.last:
            self.position = max(self.position, part.version)
        return part

    async def close(self) -> None:
        """End what waits."""
        tasks, self._waiting = list(self._waiting.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for leg in self._merge.legs if self._merge is not None else ():
            if leg.spill is not None:
                leg.spill.close()

    # ------------------------------------------------------------------ the beginning

    async def _begin(self) -> None:
        above = self._above
        if above is None or above == 0:
            at = await self._patiently(self._reader.now)
        else:
            given = above
            at = await self._patiently(lambda: self._reader.past(given))
        ranges = await self._patiently(self._cut_all)
        if above == 0:
            self._reading = SnapshotParts(self._reader, self._patiently, *self._ranges[0], at)
        self._merge = Merge([Leg(low, high, at) for low, high in ranges])
        self.position = at if above != 0 else 0

    async def _cut_all(self) -> list[Range]:
        return [part for one in self._ranges for part in await self._cut(*one)]

    async def _cut(self, start: bytes, end: bytes) -> list[Range]:
        """`[start, end)` cut at the borders of partitions."""
        ranges: list[Range] = []
        while True:
            here = await self._kv.locate(start)
            if not here.end or (end and end <= here.end):
                ranges.append((start, end))
                return ranges
            ranges.append((start, here.end))
            start = here.end

    # ------------------------------------------------------------------ a round

    async def _round(self, merge: Merge) -> None:
        """Look at what may have changed; wait before that if there is nothing to expect."""
        wanting = merge.wanting()
        if wanting and not any(leg.more for leg in wanting):
            await self._news(merge)
        rest_s = self._looked_at + FEED_PAUSE_MS / 1000 - self._timers.monotonic()
        if rest_s > 0:
            await sleep(self._timers, rest_s)
        read_ts = await self._patiently(self._reader.now)
        self._looked_at = self._timers.monotonic()
        await _all([self._look(merge, leg, read_ts) for leg in merge.wanting()])
        for version, rows in merge.take():
            self._ready.extend(in_parts(version, rows))
        if not self._ready and (version := merge.large()):
            ranges = [(leg.start, leg.end) for leg in merge.legs]
            self._reading = LargeParts(self._kv, self._patiently, self._cut, ranges, version)
            return
        due = self._looked_at - self._reported_at >= self._heartbeat_s
        if due and not self._ready and merge.position >= self.position:
            self._ready.append(Part("resolved", merge.position))

    async def _look(self, merge: Merge, leg: Leg, read_ts: int) -> None:
        """Ask one leg for everything up to `read_ts`, as far as there is room."""
        if leg.spill is not None:
            rows_max, bytes_max = _room(len(merge.legs))
            leg.refill(rows_max=rows_max, bytes_max=bytes_max)
            return
        if leg.frontier >= read_ts:
            leg.more = False
            return
        async with self._slots:
            try:
                await self._patiently(lambda: self._collect(leg, read_ts, len(merge.legs)))
            except OSError:  # of the temporary file: from now on without one
                self._may_spill = False
            except Moved:  # to be looked at in the next round
                ranges = await self._patiently(lambda: self._cut(leg.start, leg.end))
                merge.split(leg, [low for low, _ in ranges[1:]])

    async def _collect(self, leg: Leg, read_ts: int, legs: int) -> None:
        rows_max, bytes_max = _room(legs)
        rows, frontier, cursor, mark, resolved, large = await self._changes(
            leg, read_ts, rows_max, leg.frontier, False, bytes_max, None
        )
        found = Collector(frontier, rows_max=rows_max, bytes_max=bytes_max, large=large)
        found.add(rows)
        with contextlib.ExitStack() as stack:
            spill: Spill | None = None
            while cursor is not None and found.upto > leg.frontier:
                rows, _, cursor, *_ = await self._changes(
                    leg, found.upto, rows_max, leg.frontier, True, bytes_max, cursor
                )
                if self._may_spill and not found.fits(rows):
                    spill = spill or stack.enter_context(contextlib.closing(_spill()))
                    if spill.size < FEED_SPILL_BYTES_MAX // legs:
                        spill.add(found.drain())
                found.add(rows)
            leg.looked(found, resolved, mark, spill)
            stack.pop_all()
        if leg.spill is not None:
            leg.refill(rows_max=rows_max, bytes_max=bytes_max)

    async def _changes(self, leg: Leg, *args: object) -> Any:
        return await self._kv.call(CHANGES, leg.start, leg.start, leg.end, *args)

    # ------------------------------------------------------------------ waiting

    async def _news(self, merge: Merge) -> None:
        """Until something was committed in one of the legs, or a heartbeat is due."""
        left_s = self._reported_at + self._heartbeat_s - self._timers.monotonic()
        if left_s <= 0:
            return
        for leg in [leg for leg in self._waiting if leg not in merge.legs]:
            self._waiting.pop(leg).cancel()
        wanting = merge.wanting()
        if len(wanting) > FEED_AWAITS_MAX:
            left_s = min(left_s, FEED_POLL_MS / 1000)
        for leg in wanting[:FEED_AWAITS_MAX]:
            if leg not in self._waiting:
                self._waiting[leg] = asyncio.get_running_loop().create_task(self._await(leg))
        done, _ = await asyncio.wait(
            self._waiting.values(), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
        for leg, task in list(self._waiting.items()):
            if task in done:
                del self._waiting[leg]

    async def _await(self, leg: Leg) -> None:
        """One long question to the leg's leader."""
        wait_ms = int(self._heartbeat_s * 1000)
        try:
            await self._kv.call(
                AWAIT_CHANGES,
                leg.start,
                leg.start,
                leg.end,
                leg.mark,
                wait_ms,
                budget_ms=wait_ms + DEADLINE_MS_DEFAULT,
            )
        except KvorumError:
            return  # whoever looks next finds out

    async def _patiently(self, ask: Callable[[], Awaitable[object]]) -> Any:
        """`ask`, again and again while it fails for now. Raises Moved and whatever stays."""
        attempt = 0
        while True:
            try:
                return await ask()
            except Moved:
                raise
            except _PASSING:
                await self._check()
            await self._backoff.wait(attempt)
            attempt += 1


def _room(legs: int) -> tuple[int, int]:
    """Rows and bytes that one of so many legs may hold."""
    rows_max = max(_LEG_ROWS_MIN, FEED_ROWS_MAX // legs)
    return rows_max, max(_LEG_BYTES_MIN, FEED_BYTES_MAX // legs)


def _spill() -> Spill:
    return Spill(tempfile.TemporaryFile(prefix="kvorum-watch-"))


def in_parts(version: int, rows: Sequence[Row]) -> list[Part]:
    """A transaction that is held whole, as the parts of its event."""
    cuts, size = [0], 0
    for i, row in enumerate(rows):
        if i > cuts[-1] and (i - cuts[-1] >= FEED_PART_ROWS_MAX or size >= FEED_PART_BYTES_MAX):
            cuts.append(i)
            size = 0
        size += size_of(row)
    ends = [*cuts[1:], len(rows)]
    return [
        Part("changes", version, rows[low:high], number, last=high == len(rows))
        for number, (low, high) in enumerate(zip(cuts, ends, strict=True))
    ]


async def _all(work: Sequence[Awaitable[None]]) -> None:
    """Do everything, then raise the first error."""
    if len(work) == 1:
        await work[0]
        return
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
