"""Procedures that fit a filter, page by page: at a cost that goes with the answer.

What is asked picks where it is looked for; the rest of the filter is asked of each record:

    parent          the rounds of children in its record
    schedule        the nonces of its runs
    where           the index of attributes: a condition with =, else with ^= or a range
    else            what has not ended, in memory, by type; then the index of what has, by type and
                    state, merged

The order is that of time: without attributes first what has not ended, the newest first, then what
has, the last to end first. By parent and attributes: the newest submission first; by schedule: the
run of the latest time first. (With conditions on ranges alone all that fit them are collected and
sorted: SEARCH_SORTED_MAX at most.)

One page looks at so many records at most (PROCEDURE_LOOKED_MAX), then it ends with a token to go on
with, however little it has found. Who ends meanwhile may be in two pages, or in none.

Who may not see all types is answered as if there were none but those that he may see: what is known
of attributes, the token, what was looked at and what is too much say nothing of others. Rows of
attributes, schedules and parents do not say of which type they are: others are read and passed
over. Only behind PROCEDURE_PASSED_MAX of these a page ends early.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing
from heapq import heapify, heappop, heappush, heappushpop, heapreplace
from typing import Final, NamedTuple, Protocol

import msgspec

from kv.base import limits
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.keys import MAX64, TERMINATOR, successor, u64, unescape
from procedures.engine import attributes, search_rows
from procedures.engine.audit import Seen
from procedures.engine.filters import Filter, Where, filter_of
from procedures.engine.kv_store import nonce_of, nonces_from
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import TERMINAL, State
from procedures.engine.records import ASKED, SCHEDULE_OWNER, SCHEDULED, Record
from procedures.engine.registry import Registry
from procedures.engine.roster import Live, Roster
from procedures.engine.store import ProcedureStore, Stored
from procedures.pools.rows import Rows
from txn.results import ScanPage

_BATCH: Final = 100  # records that are read at once
_GLANCED_MAX: Final = 50_000  # at what is in memory, for one page
_SLICE: Final = 2_000  # of these, then others have their turns
_LIVE, _ENDED, _INDEX, _SORTED, _RUN = "l", "e", "a", "s", "r"

_ABOVE_DIGITS: Final = ":"  # in the order of characters

_pack: Final = msgspec.msgpack.Encoder().encode


class _At(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: the stage, and the last place in it."""

    stage: str
    ms: int = 0
    id: int = 0
    stop: bool = False  # so much of memory was looked at for it


_unpack: Final = msgspec.msgpack.Decoder(_At)
_BEGIN: Final = _At("")


class Found(NamedTuple):
    """`token` "": these are all."""

    stored: list[Stored]
    token: str
    looked: int
    passed: bool = False
    """It ends early for all that may not be seen."""


class Scans(Protocol):
    def scan(self, start: bytes, end: bytes, *, limit: int) -> Awaitable[ScanPage]: ...


class Search:
    """Of one executor."""

    def __init__(self, store: ProcedureStore, rows: Rows, roster: Roster, types: Registry) -> None:
        self._store, self._rows, self._roster, self._types = store, rows, roster, types

    def filter(self, given: Mapping[str, object], seen: Seen = None) -> Filter:
        """Raises InvalidArgument."""
        types = self._types.types()
        return filter_of(given, [one for one in types if seen is None or seen(one.name)])

    async def page(
        self, wanted: Filter, *, limit: int = 0, token: str = "", seen: Seen = None
    ) -> Found:
        """Raises InvalidArgument (token), TooLarge."""
        limit = limit or limits.PROCEDURE_LIST_DEFAULT
        if type(limit) is not int or not 0 < limit <= limits.PROCEDURE_PAGE_MAX:
            most = limits.PROCEDURE_PAGE_MAX
            raise InvalidArgument(f"limit must be 1 to {most}, got {limit!r:.40}")
        found: list[Stored] = []
        ids: set[int] = set()
        looked = size = passed = 0
        places = self._places(wanted, _read(token), seen)
        async with aclosing(places):
            more = True
            while more:
                batch = []
                async for place in places:
                    batch.append(place)
                    most = _BATCH if passed else min(_BATCH, max(10, limit - len(found)))
                    if place.stop or len(batch) == most:
                        break
                else:
                    more = False
                there = {one.record.id: one for one in await self._load(batch)}
                for place in batch:
                    stored = there.get(place.id)
                    if place.id and seen and not (stored and seen(stored.record.name)):
                        stored, passed = None, passed + 1
                        if passed >= limits.PROCEDURE_PASSED_MAX:
                            return Found(found, _token(place), looked, passed=True)
                    else:
                        looked += 1
                    if stored is not None and _true(place, stored.record):
                        record = stored.record
                        if record.id not in ids and wanted.fits(record):
                            ids.add(record.id)  # who ends meanwhile may come twice
                            found.append(stored)
                            size += len(record.result)
                    full = len(found) == limit or size >= limits.SCAN_PAGE_BYTES_MAX
                    if full or place.stop or looked >= limits.PROCEDURE_LOOKED_MAX:
                        return Found(found, _token(place), looked)
        return Found(found, "", looked)

    async def count(self, wanted: Filter, *, seen: Seen = None) -> Plain:
        """How many there are of each type and state; `more`: only so many were counted."""
        if wanted.only_by_type:
            counts, more = await self._counted(wanted, seen)
        else:
            counts, more = Counter(), False
            token = ""
            for _ in range(limits.SEARCH_COUNT_MAX // limits.PROCEDURE_LOOKED_MAX):
                found = await self.page(
                    wanted, limit=limits.PROCEDURE_PAGE_MAX, token=token, seen=seen
                )
                counts.update((one.record.name, _word(one.record.state)) for one in found.stored)
                token = found.token
                if not token or found.passed:
                    break
            more = bool(token)
        items = []
        for (name, state), n in sorted(counts.items()):
            items.append({"type": name, "state": state, "count": n})
        return {"items": items, "count": sum(counts.values()), "more": more}

    async def _counted(self, wanted: Filter, seen: Seen) -> tuple[Counter[tuple[str, str]], bool]:
        counts: Counter[tuple[str, str]] = Counter()
        left = limits.SEARCH_COUNT_MAX
        if wanted.live:
            for number, id in enumerate(self._newest(wanted, seen), 1):
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
                live = self._roster.get(id)
                if live is not None and (state := _state(live)) in wanted.states:
                    counts[live.name, _word(state)] += 1
                    left -= 1
                if not left:
                    return counts, True
        for name in await self._ended_types(wanted, seen):
            for state in sorted(wanted.states & TERMINAL):
                start = search_rows.of_state(name, state)
                page = await self._rows.scan(start, successor(start), limit=_page(left))
                n = len(page.items)
                while page.resume is not None and n < left:
                    page = await self._rows.scan(
                        page.resume, successor(start), limit=_page(left - n)
                    )
                    n += len(page.items)
                if n:
                    counts[name, _word(state)] += n
                left -= n
                if left <= 0:
                    return counts, True
        return counts, False

    # ------------------------------------------------------------------------------ where to look
    async def _places(self, wanted: Filter, at: _At, seen: Seen) -> AsyncGenerator[_At, None]:
        equal = next((one for one in wanted.where if one.how == "="), None)
        ranged = [one for one in wanted.where if one.how not in ("=", "!=")]
        if wanted.parent:
            async for id in self._children(wanted.parent, at.id):
                yield _At(_SORTED, id=id)
        elif wanted.schedule:
            async for place in self._runs(wanted.schedule, at):
                yield place
        elif equal is not None:
            async for place in self._equal(equal, at):
                yield place
        elif ranged:
            for place in await self._sorted(ranged, at, seen):
                yield place
        else:
            async for place in self._by_type(wanted, at, seen):
                yield place

    async def _by_type(self, wanted: Filter, at: _At, seen: Seen) -> AsyncGenerator[_At, None]:
        if wanted.live and at.stage in ("", _LIVE):
            async for place in self._lives(wanted, at.id, seen):
                yield place
        if wanted.states & TERMINAL:
            behind = at if at.stage == _ENDED else _BEGIN
            async for place in self._ended(wanted, behind, seen):
                yield place

    def _newest(self, wanted: Filter, seen: Seen, before: int = 0) -> Iterator[int]:
        """Ids of those that live, of types that are wanted and may be seen."""
        if seen is None:
            return self._roster.newest(wanted.types, before)
        names = [one for one in wanted.types or self._roster.names() if seen(one)]
        return self._roster.newest(names, before) if names else iter(())

    async def _lives(self, wanted: Filter, before: int, seen: Seen) -> AsyncGenerator[_At, None]:
        keys = [f"{kind}:{n}" for kind, n in (("queue", wanted.queue), ("pool", wanted.pool)) if n]
        for glanced, id in enumerate(self._newest(wanted, seen, before), 1):
            if glanced % _SLICE == 0:
                await asyncio.sleep(0)
            live = self._roster.get(id)
            if live is not None and _may_fit(live, wanted, keys):
                yield _At(_LIVE, id=id)
            elif glanced % _GLANCED_MAX == 0:
                yield _At(_LIVE, id=id, stop=True)

    async def _children(self, parent: int, before: int) -> AsyncGenerator[int, None]:
        stored = await self._store.load(parent)
        if stored is None:
            return
        for first, count in reversed(stored.record.rounds):
            last = min(first + count, before or MAX64)
            for id in range(last - 1, first - 1, -1):
                yield id

    async def _runs(self, schedule: str, at: _At) -> AsyncGenerator[_At, None]:
        """Of a schedule, by their nonces: those of the clock are in the order of time, and those
        that somebody asked for, of which there are few, are laid between them.
        """
        before = (at.ms, at.id) if at.stage == _RUN else (MAX64, MAX64)
        asked = await self._asked(schedule, before)
        last = asked.pop() if len(asked) > limits.PROCEDURE_LOOKED_MAX else None
        asked.reverse()
        clock = self._by_clock(schedule, before)
        async with aclosing(clock):
            async for run in clock:
                while asked and asked[-1] > run:
                    yield _At(_RUN, *asked.pop())
                if last is not None and last > run:
                    break
                yield _At(_RUN, *run)
        for run in reversed(asked):
            yield _At(_RUN, *run)
        if last is not None:
            yield _At(_RUN, *last, stop=True)  # what is behind it was not looked at

    async def _asked(self, schedule: str, before: tuple[int, int]) -> list[tuple[int, int]]:
        """The latest runs that somebody asked for: one more than a page may look at."""
        start = nonces_from(SCHEDULE_OWNER, f"{SCHEDULED}{schedule}{ASKED}")
        latest: list[tuple[int, int]] = []
        async for key, value in self._rows_of(start, successor(start)):
            run = _run(nonce_of(key), value)
            if run is not None and run < before:
                push = heappushpop if len(latest) > limits.PROCEDURE_LOOKED_MAX else heappush
                push(latest, run)
        return sorted(latest, reverse=True)

    async def _by_clock(
        self, schedule: str, before: tuple[int, int]
    ) -> AsyncGenerator[tuple[int, int], None]:
        head = f"{SCHEDULED}{schedule}/"
        start = nonces_from(SCHEDULE_OWNER, head)
        until = f"{head}{before[0]}" if before[0] < MAX64 else f"{head}{_ABOVE_DIGITS}"
        end = successor(nonces_from(SCHEDULE_OWNER, until))
        reads = await self._store.reads()
        try:
            while (page := await reads.scan(start, end, limit=_BATCH, reverse=True)).items:
                for end, value, _ in page.items:
                    nonce = nonce_of(end)
                    run = _run(nonce, value)
                    # Of a schedule "a", not of "a/b".
                    if run is not None and run < before and nonce == f"{head}{run[0]}":
                        yield run
        finally:
            await reads.close()

    async def _equal(self, where: Where, at: _At) -> AsyncGenerator[_At, None]:
        start = attributes.prefix(where.name) + attributes.key_of(where.kind, where.value)
        low = start + u64(MAX64 - at.ms) + u64(at.id) + b"\x00" if at.stage == _INDEX else start
        async for key, _ in self._rows_of(low, successor(start)):
            yield _At(_INDEX, *search_rows.tail_of(key))

    async def _sorted(self, ranged: Sequence[Where], at: _At, seen: Seen) -> list[_At]:
        found: set[tuple[int, int]] = set()
        spans = [_range(one) for one in ranged if one.name == ranged[0].name]
        low, high = max(low for low, _ in spans), min(high for _, high in spans)
        rows = self._rows_of(low, high)
        await self._collect((search_rows.tail_of(key) async for key, _ in rows), found, seen)
        order = sorted(found, reverse=True)
        if at.stage == _INDEX:
            order = [one for one in order if one < (at.ms, at.id)]
        return [_At(_INDEX, *one) for one in order]

    async def _collect(
        self, places: AsyncGenerator[tuple[int, int], None], found: set[tuple[int, int]], seen: Seen
    ) -> None:
        """Those (ms, id) that may be seen. Raises TooLarge."""
        passed, batch = 0, list[tuple[int, int]]()

        async def take() -> int:
            visible = {id for _, id in batch}
            if seen is not None:
                there = await self._store.load_many(sorted(visible))
                visible = {one.record.id for one in there if seen(one.record.name)}
            found.update(one for one in batch if one[1] in visible)
            _check_sorted(len(found))
            return len(batch) - len(visible)

        async for place in places:
            batch.append(place)
            if len(batch) == _BATCH:
                passed += await take()
                _check_sorted(
                    limits.SEARCH_SORTED_MAX + 1 if passed > limits.PROCEDURE_PASSED_MAX else 0
                )
                batch.clear()
        await take()

    async def _ended_types(self, wanted: Filter, seen: Seen) -> Sequence[str]:
        if wanted.types:
            return [one for one in wanted.types if seen is None or seen(one)]
        found: list[str] = []
        start, end = search_rows.ENDED, successor(search_rows.ENDED)
        while (page := await self._rows.scan(start, end, limit=1)).items:
            name = unescape(page.items[0][0], len(search_rows.ENDED))[0].decode()
            if seen is None or seen(name):
                found.append(name)
            start = successor(search_rows.of_type(name))
        return found

    async def _ended(self, wanted: Filter, at: _At, seen: Seen) -> AsyncGenerator[_At, None]:
        """Those of all types and states, the last to end first."""
        streams = [
            self._stream(search_rows.of_state(name, state), wanted, at)
            for name in await self._ended_types(wanted, seen)
            for state in sorted(wanted.states & TERMINAL)
        ]
        heads: list[tuple[int, int, int]] = []
        try:
            for i, stream in enumerate(streams):
                async for ms, id in stream:
                    heads.append((MAX64 - ms, id, i))
                    break
            heapify(heads)
            while heads:
                inverse, id, i = heads[0]
                yield _At(_ENDED, MAX64 - inverse, id)
                async for ms, next_id in streams[i]:
                    heapreplace(heads, (MAX64 - ms, next_id, i))
                    break
                else:
                    heappop(heads)
        finally:
            for stream in streams:
                await stream.aclose()

    async def _stream(
        self, prefix: bytes, wanted: Filter, at: _At
    ) -> AsyncGenerator[tuple[int, int], None]:
        since = max(wanted.ended_from, wanted.submitted_from)  # nobody ends before he begins
        low = prefix + (u64(MAX64 - wanted.ended_to + 1) if wanted.ended_to else b"")
        high = prefix + u64(MAX64 - since + 1) if since else successor(prefix)
        if at.stage == _ENDED:
            low = max(low, prefix + u64(MAX64 - at.ms) + u64(at.id + 1))
        async for key, _ in self._rows_of(low, high):
            yield search_rows.tail_of(key)

    async def _rows_of(self, start: bytes, end: bytes) -> AsyncGenerator[tuple[bytes, bytes], None]:
        while start < end:
            page = await self._rows.scan(start, end, limit=_BATCH)
            for key, value, _ in page.items:
                yield key, value
            if page.resume is None:
                return
            start = page.resume

    async def _load(self, places: Sequence[_At]) -> list[Stored]:
        ids = [place.id for place in places if place.id]
        return await self._store.load_many(ids) if ids else []


def _run(nonce: str, value: bytes) -> tuple[int, int] | None:
    """For which time it is, and its id."""
    ms = nonce.rpartition("/")[2]
    return (int(ms), int.from_bytes(value, "big")) if ms.isdecimal() else None


def _page(left: int) -> int:
    return max(1, min(left, limits.PROCEDURE_PAGE_MAX))


def _range(where: Where) -> tuple[bytes, bytes]:
    """The rows of a condition that is no equality."""
    all_ = attributes.prefix(where.name)
    kind = all_ + attributes.key_of(where.kind, where.value)[:1]
    value = all_ + attributes.key_of(where.kind, where.value)
    match where.how:
        case "^=":
            open_ = value[: -len(TERMINATOR)]
            return open_, successor(open_)
        case "<":
            return kind, value
        case "<=":
            return kind, successor(value)
        case ">":
            return successor(value), successor(kind)
        case _:
            return value, successor(kind)


def _check_sorted(count: int) -> None:
    if count > limits.SEARCH_SORTED_MAX:
        raise TooLarge(
            f"more than {limits.SEARCH_SORTED_MAX} procedures fit that condition, the limit of "
            "what is sorted by time: narrow the range, or add a condition with =",
            details={"limit": limits.SEARCH_SORTED_MAX, "actual": count},
        )


def _may_fit(live: Live, wanted: Filter, keys: Sequence[str]) -> bool:
    """Whether it is worth reading: what is known of it in memory."""
    if any(key not in live.limits for key in keys):
        return False
    return live.record is None or bool(live.worker) or live.record.state in wanted.states


def _state(live: Live) -> State:
    record = live.record or live.needs
    return State.RUNNABLE if record is None else record.state


def _true(place: _At, record: Record) -> bool:
    """Whether a row of the index says what its record says: it may be left from before."""
    if place.stage != _ENDED:
        return True
    return record.ended and record.updated_ms == place.ms


def _word(state: State) -> str:
    return (State.RUNNABLE if state is State.ROLLING_BACK else state).name


def _token(at: _At) -> str:
    return base64.urlsafe_b64encode(_pack([at.stage, at.ms, at.id])).decode().rstrip("=")


def _read(token: str) -> _At:
    if not token:
        return _BEGIN
    try:
        return _unpack.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (msgspec.MsgspecError, binascii.Error, ValueError, AttributeError, TypeError):
        raise InvalidArgument(
            f"{token!r:.60} is no token of a search: use the one that its last page gave"
        ) from None
