"""Snapshot reads: points, sets of keys and scans, over any number of partitions, all at one
timestamp.

A read at R sees every transaction with commit_ts ≤ R and none above. Partitions keep that promise
for what they know (kv/partition); what they can not know is the fate of an intent, and that is
asked here (txn/intents/resolver).

`at=0` means the newest. One key of one partition needs no timestamp for that: its leader knows what
was acknowledged. Several keys do, since their partitions have no common clock but the oracle. A
timestamp above the oracle's present is refused: transactions that commit later would slip below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from kv.base.errors import InvalidArgument, KeyLocked, KvorumError, Moved, TooLarge
from kv.base.intents import TxnId
from kv.base.limits import (
    FEED_PART_BYTES_MAX,
    FEED_PART_ROWS_MAX,
    IGNORED_TXNS_MAX,
    KEY_BYTES_MAX,
    MULTI_KEYS_MAX,
    READS_IN_FLIGHT_MAX,
    SCAN_PAGE_BYTES_MAX,
    SCAN_ROWS_MAX,
)
from kv.base.methods import CHANGES, GET, MGET, READ_NOW, SCAN, SCAN_SEALED, SCAN_VALUES
from kv.base.ports import Timers
from kv.base.timestamps import MAX
from kv.client.calls import Started
from kv.client.links import LinkExpired, LinkLost
from txn.intents.resolver import Resolver
from txn.results import Row, ScanPage, Tally
from txn.shared.deadlines import Deadline
from txn.shared.grouping import by_partition
from txn.shared.ports import Kv, Quick, Tso

_STORAGE_KEY_BYTES_MAX: Final = 4 + KEY_BYTES_MAX
_FEW_KEYS: Final = 64  # of one multi_get; more are grouped first


def last_below(end: bytes) -> bytes:
    """The largest legal key below `end` (b"" = no bound): what routes a reverse scan to its first
    partition.
    """
    if not end:
        return b"\xff" * _STORAGE_KEY_BYTES_MAX
    if end[-1] == 0:
        return end[:-1]
    below = end[:-1] + bytes([end[-1] - 1])
    return below + b"\xff" * (_STORAGE_KEY_BYTES_MAX - len(below))


class Reader:
    """Reads of one client."""

    def __init__(self, kv: Kv, tso: Tso, timers: Timers, resolver: Resolver) -> None:
        self._kv = kv
        self._quick = kv if isinstance(kv, Quick) else None
        self._located = getattr(kv, "located", None)  # a KvClient's
        self._tso = tso
        self._timers = timers
        self._resolver = resolver
        self._seen = 0  # the highest timestamp that came from the oracle, directly or as a version

    async def now(self) -> int:
        """A fresh timestamp."""
        ts = await self._tso.now()
        self._seen = max(self._seen, ts)
        return ts

    async def past(self, at: int) -> int:
        """`at`, if no transaction can commit below it any more. Raises InvalidArgument."""
        if at <= self._seen:
            if at < 0:
                raise InvalidArgument(f"a timestamp is not negative, got {at}")
            return at
        if self._tso.hybrid and at <= MAX:
            self._seen = max(self._seen, await self._tso.above(at))
            return at
        if at > MAX or at > (now := await self.now()):
            raise InvalidArgument(
                f"at={at} lies in the future: transactions may still commit below it; read at a "
                "timestamp that begin(), a scan or a write has returned",
                details={"at": at, "now": self._seen},
            )
        return min(at, now)

    async def get(self, key: bytes, at: int, budget_ms: int) -> tuple[bytes | None, int]:
        """The value and its version, (None, 0) if there is none. `at` 0 = the newest."""
        try:
            value, version = await self._kv.call(GET, key, key, at, None, budget_ms=budget_ms)
        except KeyLocked as met:
            return await self._get_past_intents(met, key, at, budget_ms)
        return value, version

    async def get_past(self, key: bytes, at: int, budget_ms: int) -> tuple[bytes | None, int]:
        """`get` at a timestamp that somebody gave: checked first."""
        return await self.get(key, await self.past(at), budget_ms)

    async def _get_past_intents(
        self, met: KeyLocked, key: bytes, at: int, budget_ms: int
    ) -> tuple[bytes | None, int]:
        deadline = Deadline(self._timers, budget_ms)
        read_ts = at or await self.now()
        reading = _Reading(self._resolver, read_ts, deadline)
        await reading.met(met)
        value, version = await reading.past_intents(self._kv, GET, key, key)
        return value, version

    async def multi_get(
        self,
        keys: Sequence[bytes],
        read_ts: int,
        budget_ms: int,
        tally: Tally | None = None,
    ) -> list[tuple[bytes, int] | None]:
        """Value and version of each key, None where there is none, in the order of `keys`."""
        if len(keys) > MULTI_KEYS_MAX:
            raise TooLarge(
                f"multi_get of {len(keys)} keys; the limit is {MULTI_KEYS_MAX}; "
                "ask in several calls at one `at`",
                details={"what": "keys", "limit": MULTI_KEYS_MAX, "actual": len(keys)},
            )
        reading = _Reading(self._resolver, read_ts, Deadline(self._timers, budget_ms))
        found: list[tuple[bytes, int] | None] = [None] * len(keys)
        if tally is not None:
            return await self._multi_get(keys, reading, found, list(range(len(keys))), {}, tally)
        if (groups := self._few(keys)) is None:
            return await self._multi_get(keys, reading, found, list(range(len(keys))), {})
        met: dict[int, KeyLocked] = {}
        left = await self._at_once(reading, keys, groups, found, met)
        if not left:
            return found
        return await self._multi_get(keys, reading, found, sorted(chain(*left)), met)

    def _few(self, keys: Sequence[bytes]) -> list[list[int]] | None:
        """Indexes of few keys by the partitions that are known to serve them; None: that takes
        more.
        """
        located = self._located
        if self._quick is None or located is None or not 0 < len(keys) <= _FEW_KEYS:
            return None
        here = located(keys[0])
        if here is None:
            return None
        group = [0]
        groups = {here.id: group}
        for index in range(1, len(keys)):
            key = keys[index]
            if not here.covers(key):
                if (here := located(key)) is None:
                    return None
                group = groups.setdefault(here.id, [])
            group.append(index)
        return list(groups.values())

    async def _multi_get(
        self,
        keys: Sequence[bytes],
        reading: _Reading,
        found: list[tuple[bytes, int] | None],
        todo: list[int],
        met: dict[int, KeyLocked],
        tally: Tally | None = None,
    ) -> list[tuple[bytes, int] | None]:
        """Over partitions, past intents and moves; what is `todo` is put into `found`. `met`: what
        stood in the way of a group, by its first key.
        """

        async def read(group: list[int]) -> list[int]:
            """Ask one partition; the keys that it does not serve any more."""
            part = [keys[i] for i in group]
            if (locked := met.pop(group[0], None)) is not None:
                await reading.met(locked)
            try:
                rows, *looked_at = await reading.past_intents(
                    self._kv, MGET, part[0], part, options=() if tally is None else (True,)
                )
            except Moved:
                return group
            except TooLarge:  # of values: less at once, at the same timestamp
                if len(group) == 1:
                    raise
                half = len(group) // 2
                return await read(group[:half]) + await read(group[half:])
            for index, row in zip(group, rows, strict=True):
                found[index] = None if row is None else (row[0], row[1])
            if tally is not None:
                tally.versions += looked_at[0]
            return []

        while True:
            groups = await by_partition(self._kv, keys, todo)
            if len(groups) > 1 and self._quick is not None and not met and tally is None:
                groups = await self._at_once(reading, keys, groups, found, met)
            todo = [index for moved in await _side_by_side(read, groups) for index in moved]
            if not todo:
                return found
            await reading.moved()

    async def multi_get_now(
        self, keys: Sequence[bytes], budget_ms: int
    ) -> tuple[list[tuple[bytes, int] | None], int]:
        """`multi_get` at a fresh timestamp, and that. In one partition its leader takes it along;
        whatever stands in the way of that, is asked for as usual.
        """
        if (first := self._start_alone(READ_NOW, keys, 0, budget_ms)) is not None:
            with suppress(KvorumError, LinkLost, LinkExpired):
                rows, read_ts = await first.reply
                self._seen = max(self._seen, read_ts)
                return [None if row is None else (row[0], row[1]) for row in rows], read_ts
        read_ts = await self.now()
        return await self.multi_get(keys, read_ts, budget_ms), read_ts

    def _start_alone(
        self, method: int, keys: Sequence[bytes], read_ts: int, budget_ms: int
    ) -> Started | None:
        """Ask for few keys of one partition that is known; None: that takes more."""
        if self._quick is None or self._located is None or not 0 < len(keys) <= _FEW_KEYS:
            return None
        here = self._located(keys[0])
        if here is None or not all(map(here.covers, keys)):
            return None
        return self._quick.start(method, keys[0], (list(keys), read_ts, None), budget_ms)

    async def _at_once(
        self,
        reading: _Reading,
        keys: Sequence[bytes],
        groups: list[list[int]],
        found: list[tuple[bytes, int] | None],
        met: dict[int, KeyLocked],
    ) -> list[list[int]]:
        """Ask several partitions in one step, without a task for each. The groups that need more
        than that, `met` with the intents that stood in the way.
        """
        assert self._quick is not None
        left: list[list[int]] = []
        asked: list[tuple[list[int], Started]] = []
        budget_ms, ignored = reading.budget_ms(), reading.ignored()
        for group in groups:
            part = [keys[i] for i in group]
            args = (part, reading.read_ts, ignored)
            first = None
            if len(asked) < READS_IN_FLIGHT_MAX:
                first = self._quick.start(MGET, part[0], args, budget_ms)
            if first is None:
                left.append(group)
            else:
                asked.append((group, first))
        try:
            for group, first in asked:
                try:
                    (rows,) = await first.reply
                except (KvorumError, LinkLost, LinkExpired) as error:
                    left.append(group)
                    if isinstance(error, KeyLocked):
                        met[group[0]] = error
                    continue
                for index, row in zip(group, rows, strict=True):
                    found[index] = None if row is None else (row[0], row[1])
        except asyncio.CancelledError:
            for _, first in asked:
                first.reply.cancel()
            raise
        return left

    async def scan(
        self,
        start: bytes,
        end: bytes,
        read_ts: int,
        *,
        limit: int,
        reverse: bool,
        budget_ms: int,
        tally: Tally | None = None,
    ) -> ScanPage:
        """At most `limit` rows of `[start, end)` (end b"" = no bound), in scan order."""
        if not 0 < limit <= SCAN_ROWS_MAX:
            raise InvalidArgument(f"limit must be in 1 … {SCAN_ROWS_MAX}, got {limit}")
        reading = _Reading(self._resolver, read_ts, Deadline(self._timers, budget_ms))
        items: list[Row] = []
        size = 0
        resume: bytes | None = end if reverse else start
        while resume is not None and not _empty(start, end):
            try:
                rows, resume = await self._scan_partition(
                    reading, start, end, limit - len(items), reverse=reverse, tally=tally
                )
            except Moved:
                await reading.moved()
                continue
            items += map(tuple, rows)
            size += sum([len(key) + len(value) for key, value, _ in rows])
            if resume is None or len(items) >= limit or size >= SCAN_PAGE_BYTES_MAX:
                return ScanPage(items, resume, read_ts)
            start, end = (start, resume) if reverse else (resume, end)
        return ScanPage(items, None, read_ts)

    async def scan_expiring(
        self, start: bytes, end: bytes, read_ts: int, *, limit: int, budget_ms: int
    ) -> tuple[ScanPage, dict[int, int]]:
        """A page of the first partition of the range, perhaps a short one, and when (ms) those of
        its rows will expire that will, by their place in it. For copies that keep that.
        """
        reading = _Reading(self._resolver, read_ts, Deadline(self._timers, budget_ms))
        while True:
            here = await self._kv.locate(start)
            high = min(end, here.end) if end and here.end else end or here.end
            try:
                rows, resume, due = await reading.past_intents(
                    *(self._kv, SCAN, start, start, high), limit=limit, options=(True,)
                )
            except Moved:
                await reading.moved()
                continue
            if resume is None and high != end:
                resume = high
            items = [(key, value, version) for key, value, version in rows]
            return ScanPage(items, resume, read_ts), dict(due)

    async def newest_change(self, key: bytes, above: int, upto: int, budget_ms: int) -> int:
        """The newest version of a key in (above, upto], deletions included; 0 = there is none. The
        key was read at `upto` before: then nothing comes below it any more. Raises SnapshotTooOld.
        """
        newest: int = 0
        cursor = None
        while True:
            rows, _, cursor, *_ = await self._kv.call(
                *(CHANGES, key, key, key + b"\x00", upto, FEED_PART_ROWS_MAX, above, True),
                *(FEED_PART_BYTES_MAX, cursor),
                budget_ms=budget_ms,
            )
            newest = max(newest, *(version for _, _, version, _ in rows), 0)
            if cursor is None:
                return newest

    async def scan_values(
        self,
        start: bytes,
        end: bytes,
        read_ts: int,
        *,
        limit: int,
        budget_ms: int,
        tally: Tally | None = None,
    ) -> tuple[list[bytes], bytes | None]:
        """The values of the next rows of `[start, end)`, at most `limit`, and where to go on."""
        reading = _Reading(self._resolver, read_ts, Deadline(self._timers, budget_ms))
        while True:
            try:
                return await self._scan_partition(
                    reading, start, end, limit, reverse=False, method=SCAN_VALUES, tally=tally
                )
            except Moved:
                await reading.moved()

    async def scan_sealed(
        self, start: bytes, end: bytes, read_ts: int, *, limit: int, budget_ms: int
    ) -> tuple[bytes, bytes, bytes | None] | None:
        """The next records of `[start, end)` as they are stored, lengths and rows (SCAN_SEALED),
        and where to go on. None: an intent is in the way; `scan_values` deals with it.
        """
        reading = _Reading(self._resolver, read_ts, Deadline(self._timers, budget_ms))
        while True:
            here = await self._kv.locate(start)
            high = min(end, here.end) if end and here.end else end or here.end
            try:
                (lengths, rows), resume = await self._kv.call(
                    SCAN_SEALED,
                    start,
                    start,
                    high,
                    read_ts,
                    limit,
                    False,
                    None,
                    budget_ms=reading.budget_ms(),
                )
            except KeyLocked:
                return None
            except Moved:
                await reading.moved()
                continue
            if resume is None and high != end:
                resume = high
            return lengths, rows, resume

    async def _scan_partition(
        self,
        reading: _Reading,
        start: bytes,
        end: bytes,
        limit: int,
        *,
        reverse: bool,
        method: int = SCAN,
        tally: Tally | None = None,
    ) -> tuple[list[Any], bytes | None]:
        """One request: rows of the first partition of the range, and where the scan goes on (None =
        finished).
        """
        route = last_below(end) if reverse else start
        here = await self._kv.locate(route)
        low = max(start, here.start)
        high = min(end, here.end) if end and here.end else end or here.end
        rows, resume, *looked_at = await reading.past_intents(
            self._kv,
            method,
            route,
            low,
            high,
            limit=limit,
            reverse=reverse,
            through=method == SCAN_VALUES,
            counted=tally is not None,
        )
        if tally is not None:
            tally.versions += looked_at[0]
        if resume is None:  # this partition is exhausted; the next one begins where it ends
            border = low if reverse else high
            resume = None if border == (start if reverse else end) else border
        return rows, resume


async def _side_by_side(
    read: Callable[[list[int]], Awaitable[list[int]]], groups: list[list[int]]
) -> list[list[int]]:
    """`read` of every group, a bounded number at once. All end before the first error is raised."""
    if len(groups) == 1:
        return [await read(groups[0])]
    results: list[list[int]] = []
    for at in range(0, len(groups), READS_IN_FLIGHT_MAX):
        some = groups[at : at + READS_IN_FLIGHT_MAX]
        for result in await asyncio.gather(*map(read, some), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
    return results


def _empty(start: bytes, end: bytes) -> bool:
    return bool(end) and start >= end


class _Reading:
    """One user's read: the intents that it has learned to step over, and its patience."""

    __slots__ = ("_attempt", "_deadline", "_ignore", "_resolver", "read_ts")

    def __init__(self, resolver: Resolver, read_ts: int, deadline: Deadline) -> None:
        self._resolver = resolver
        self._deadline = deadline
        self._ignore: dict[TxnId, bool] = {}  # whether it is finished
        self._attempt = 0
        self.read_ts = read_ts

    async def met(self, locked: KeyLocked, *, through: bool = False) -> None:
        """Deal with an intent. Raises it when there is no time left. `through`: the read may say
        which chunks are committed.
        """
        beside = await self._resolver.met_beside(locked, self.read_ts, self._deadline)
        over = await self._resolver.met_by_read(
            locked, self.read_ts, self._attempt, self._deadline, reads_through=through
        )
        self._attempt += 1
        for one in beside if over is None else (*beside, over):
            if len(self._ignore) >= IGNORED_TXNS_MAX:
                del self._ignore[next(iter(self._ignore))]  # asked about again if met again
            self._ignore[one.id] = one.finished

    def budget_ms(self) -> int:
        return self._deadline.budget_ms()

    def ignored(self) -> list[TxnId] | None:
        return list(self._ignore) or None

    async def moved(self) -> None:
        """The range was served elsewhere: a little patience before the next look."""
        await self._resolver.pause(self._attempt, self._deadline)
        self._attempt += 1

    async def past_intents(
        self,
        kv: Kv,
        method: int,
        route: bytes,
        *args: object,
        limit: int | None = None,
        reverse: bool = False,
        options: tuple[object, ...] = (),
        through: bool = False,
        counted: bool = False,
    ) -> Any:
        """The reply of a read method at this snapshot; with its `options`. `through`: it reads
        through chunks that are known to be committed. `counted`: a scan reports what it looked at.
        """
        more = () if limit is None else (limit, reverse)
        while True:
            ignore = list(self._ignore) or None
            if through:
                pairs = self._resolver.loads(self.read_ts)
                options = (pairs, True) if counted else (pairs,) if pairs else ()
            elif counted:
                options = (False, True)
            try:
                reply = await kv.call(
                    method,
                    route,
                    *args,
                    self.read_ts,
                    *more,
                    ignore,
                    *options,
                    budget_ms=self._deadline.budget_ms(),
                )
            except KeyLocked as locked:
                await self.met(locked, through=through)
                continue
            if ignore is not None:
                self._ignore = {txn: False for txn, done in self._ignore.items() if not done}
            return reply
