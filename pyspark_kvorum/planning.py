"""What the driver of a stream of changes knows: how far everything is known, how many rows that is,
and where to cut it for tasks. It lives as long as the query, in Spark's planner process.

    look    one timestamp R; each partition says how far below R it is complete (CHANGES), the
            lowest of these is the frontier; the versions up to it are counted (PAIRS)
    latest  the next offset: the highest version with at most so many rows below it. What was
            counted beyond it is remembered, so a backlog is counted once, not once per batch

Counts are 8 bytes per row, SPARK_PLAN_ROWS_MAX of them: of a longer backlog only the lowest
versions are kept. Some keys are remembered, too: tasks get about the same number of rows each.

An offset that does not move falls below what the cluster keeps, so a table at rest moves it every
SPARK_IDLE_OFFSET_MS with an empty batch.

With the trigger AvailableNow the stream ends at the timestamp of its start: everything that was
acknowledged before is given. If an intent holds the frontier below it, it is waited for.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kv.base.errors import InvalidArgument, KvorumError, SnapshotTooOld, Unavailable
from kv.base.limits import (
    FEED_BYTES_MAX,
    FEED_ROWS_MAX,
    SCAN_STEP_ROWS_MAX,
    SPARK_CHANGES_PER_TASK,
    SPARK_IDLE_OFFSET_MS,
    SPARK_PARTS_MAX,
    SPARK_PLAN_ROWS_MAX,
)
from kv.base.methods import CHANGES, PAIRS
from kv.base.timestamps import physical_ms
from kv.feed.version_pairs import VERSIONS
from pyspark_kvorum.options import Options
from pyspark_kvorum.pins import Pin
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.reader import key_ranges
from pyspark_kvorum.session import Session
from sqlproxy.rows.schema import Table
from txn.results import ScanPage

Range = tuple[bytes, bytes]
Versions = NDArray[np.uint64]
T = TypeVar("T")
_NONE: Final[Versions] = np.empty(0, np.uint64)
_KEYS_MAX: Final = 200_000
_LEGS_AT_ONCE: Final = 8
_PAUSE_S: Final = 0.05
_BUDGET_MS: Final = 30_000


class Planner:
    """Of one thread. Close it."""

    def __init__(self, options: Options, reading: ReadOptions, table: Table, bounds: Range) -> None:
        self._options, self._reading, self._bounds = options, reading, bounds
        self._session = Session(options, table).__enter__()
        self._base = self._frontier = -1  # what is known: the versions of (base, frontier]
        self._versions = _NONE  # of their rows, rising
        self._keys: list[bytes] = []
        self._target = 0  # of AvailableNow
        self._pin: Pin | None = None

    def close(self) -> None:
        if self._pin is not None:
            self._pin.release(self._session)
        self._session.__exit__(None, None, None)

    # -- where to begin

    def now(self) -> int:
        found: int = self._session.run(self._session.definite(self._session.txn.now))
        return found

    def past(self, version: int) -> int:
        """`version`, if it is none of the future."""
        if version > (now := self.now()):
            raise InvalidArgument(
                f"option startingVersion {version} lies in the future (now {now})"
            )
        return version

    def begin_snapshot(self) -> int:
        """A version whose rows are given first; it is held until they are."""
        self._pin = Pin.open(self._session, 0, self._reading.owner)
        return self._pin.at

    def stop_at_now(self) -> None:
        """Nothing is given of what is committed from now on."""
        self._target = self.now()

    # -- changes

    def latest(self, start: int, rows_max: int) -> int:
        """The offset after the next rows, `start` if there are none. `rows_max` 0: of all."""
        self._stand_at(start)
        if self._target and start >= self._target:
            return start
        deadline = time.monotonic() + self._options.timeout_ms / 1000
        while True:
            if not rows_max or len(self._versions) <= rows_max:
                self._look(start)
            end = self._cut(rows_max)
            if end is not None:
                return end
            if not self._target:
                idle = physical_ms(self._frontier) - physical_ms(start) >= SPARK_IDLE_OFFSET_MS
                return self._frontier if idle else start
            if self._frontier >= self._target:
                return self._target
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"transactions that began before {self._target} are still under way: what was"
                    f" committed up to then is known up to {self._frontier} only; try again"
                )
            self._session.run(asyncio.sleep(_PAUSE_S))

    def _cut(self, rows_max: int) -> int | None:
        """The end of a batch of what is known, None if no row is."""
        versions = self._versions
        if not len(versions):
            return None
        if not rows_max or len(versions) <= rows_max:
            return self._frontier
        end = int(versions[rows_max - 1])
        if int(versions[rows_max]) != end:
            return end
        first = int(np.searchsorted(versions, versions[rows_max]))
        return int(versions[first - 1]) if first else int(versions[0])  # that one alone is larger

    def _stand_at(self, start: int) -> None:
        """Forget what lies at or below an offset; everything, if it is none that we know."""
        if not self._base <= start <= self._frontier:
            self._base = self._frontier = start
            self._versions, self._keys = _NONE, []
        at = int(np.searchsorted(self._versions, np.uint64(start), side="right"))
        self._versions = self._versions[at:]
        self._base = start
        if not len(self._versions):
            self._keys = []

    def _look(self, start: int) -> None:
        """Count what is known by now beyond the frontier."""
        work = self._session.definite(self._count)
        try:
            found, frontier, keys = self._session.run(work)
        except SnapshotTooOld as e:
            raise too_late(e, start) from e
        if frontier > self._frontier:
            self._frontier = frontier
            self._versions = np.concatenate([self._versions, found])
            self._keys = sorted(self._keys + keys)
            if len(self._keys) > _KEYS_MAX:
                self._keys = self._keys[::2]

    async def _count(self, upto: int = 0) -> tuple[Versions, int, list[bytes]]:
        """The versions of (frontier, f], f, and some of their keys. `upto`: a known frontier."""
        above = self._frontier
        kv, txn = self._session.kv, self._session.txn
        legs = await self._legs()
        if not upto:
            read_ts = self._target or await txn.now()
            answers = await _several(
                kv.call(CHANGES, low, low, high, read_ts, 1, above, False, FEED_BYTES_MAX, None)
                for low, high in legs
            )
            upto = min(answer[4] for answer in answers)  # resolved
            if upto <= above:
                return _NONE, above, []
        counted = _Counted(upto)
        await _several(self._count_leg(counted, above, low, high) for low, high in legs)
        return counted.sorted(), counted.upto, counted.keys

    async def _count_leg(self, counted: _Counted, above: int, low: bytes, high: bytes) -> None:
        cursor: bytes | None = None
        while True:
            rows, cursor = await self._session.kv.call(
                PAIRS,
                low,
                low,
                high,
                counted.upto,
                FEED_ROWS_MAX,
                above,
                VERSIONS,
                FEED_BYTES_MAX,
                cursor,
            )
            counted.add(rows)
            if cursor is None:
                return

    async def _legs(self) -> list[Range]:
        start, end = self._bounds
        legs: list[Range] = []
        while start < end:
            here = await self._session.kv.locate(start)
            high = min(here.end or end, end)
            legs.append((start, high))
            start = high
        return legs

    def ranges(self, start: int, end: int) -> tuple[Pin | None, list[Range]]:
        """Key ranges with about SPARK_CHANGES_PER_TASK rows of (start, end] each."""
        if not self._base <= start <= end <= self._frontier:  # a batch of before a restart
            self._base = self._frontier = start
            try:
                found, _, keys = self._session.run(self._session.definite(lambda: self._count(end)))
            except SnapshotTooOld as e:
                raise too_late(e, start) from e
            self._versions, self._keys, self._frontier = found, sorted(keys), end
        if self._reading.hold and self._pin is None:
            self._hold(start)
        known = self._versions
        rows = int(
            np.searchsorted(known, np.uint64(end), side="right")
            - np.searchsorted(known, np.uint64(start), side="right")
        )
        return self._pin, self._cut_keys(max(1, -(-rows // SPARK_CHANGES_PER_TASK)))

    def _cut_keys(self, tasks: int) -> list[Range]:
        low, high = self._bounds
        tasks = min(tasks, SPARK_PARTS_MAX)
        keys = self._keys
        cuts = {keys[len(keys) * i // tasks] for i in range(1, tasks)} if keys else set()
        edges = [low, *sorted(cut for cut in cuts if low < cut < high), high]
        return list(pairwise(edges)) if low < high else []

    # -- the rows that come first

    def snapshot_to(self, version: int, after: bytes, rows_max: int) -> bytes | None:
        """Up to which key the next batch of them goes, None: to the end."""
        self._pinned(version)
        if not rows_max:
            return None

        async def ask(start: bytes, limit: int) -> ScanPage:
            return await self._session.txn.reader.scan(
                *(start, self._bounds[1], version),
                limit=limit,
                reverse=False,
                budget_ms=_BUDGET_MS,
            )

        resume: bytes | None = after
        left = rows_max
        while resume is not None and left > 0:
            look = partial(ask, resume, min(left, SCAN_STEP_ROWS_MAX))
            page = self._session.run(self._session.definite(look))
            left -= len(page.items)
            resume = page.resume
        return resume

    def snapshot_ranges(
        self, version: int, after: bytes, until: bytes
    ) -> tuple[Pin | None, list[Range]]:
        self._pinned(version)
        if after >= until:
            return self._pin, []
        found = self._session.run(key_ranges(self._session, after, until))
        return self._pin, [(low, high) for low, high, _ in found]

    def _pinned(self, version: int) -> None:
        """A lease at the rows' version, anew after a restart."""
        if self._pin is None:
            self._hold(version)
        else:
            self._pin.renew(self._session)

    def _hold(self, version: int) -> None:
        try:
            self._pin = Pin.open(self._session, version, self._reading.owner)
        except SnapshotTooOld as e:
            raise too_late(e, version) from e

    def committed(self, version: int, *, in_snapshot: bool) -> None:
        """Everything at or below is done with: nobody needs what came before."""
        if self._pin is None or in_snapshot:
            return
        if self._reading.hold:
            if version > self._pin.at:
                self._pin = self._pin.moved(self._session, version)
        else:
            self._pin.release(self._session)
            self._pin = None


class _Counted:
    """Versions as they are found, of all legs. Bounded: of too many the lowest are kept."""

    def __init__(self, upto: int) -> None:
        self.upto = upto  # sinks when there are too many
        self.keys: list[bytes] = []
        self._found = array("Q")
        self._most = SPARK_PLAN_ROWS_MAX

    def add(self, page: list[Any]) -> None:
        """Versions of a page (kv/feed/slices.py)."""
        newest, older, keys = page
        self._found.frombytes(np.frombuffer(newest, ">u8").astype(np.uint64).tobytes())
        self._found.frombytes((~np.frombuffer(older, ">u8").astype(np.uint64)).tobytes())
        self.keys += keys
        if len(self._found) > self._most:
            kept = self.sorted()
            last = kept[len(kept) // 2]
            if last < kept[-1]:  # else it is one transaction, and goes as a whole
                self.upto = min(self.upto, int(last))
                self._found = array("Q", kept[kept <= last].tobytes())
            # Of what stays long, not every page is worth a sort.
            self._most = max(SPARK_PLAN_ROWS_MAX, 2 * len(self._found))

    def sorted(self) -> Versions:
        found = np.frombuffer(self._found, np.uint64) if self._found else _NONE
        return np.sort(found[found <= np.uint64(self.upto)])


async def _several(work: Iterable[Awaitable[T]]) -> list[T]:
    """Everything, a bounded number at once."""
    slots = asyncio.Semaphore(_LEGS_AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    found: list[T] = []
    for result in await asyncio.gather(*map(one, work), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


def too_late(error: SnapshotTooOld, above: int) -> KvorumError:
    """What to do when what a stream wants is not kept any more."""
    return KvorumError(
        f"{error.code}: this stream stands at version {above}, and not everything after it is kept"
        " any more. Begin a new query with a new checkpoint (startingVersion earliest reads all"
        " rows first); to fall behind for longer, raise gc_retention_ms, or set holdHistory:"
        f" {error.message}",
        code=error.code,
        details=error.details,
    )
