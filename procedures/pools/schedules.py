"""Schedules: a procedure started at the times of a clock, exactly once for each time.

The row of a schedule holds the next time that is due. When it has come, the procedure is submitted
with the nonce `schedule/NAME/TIME` and then the row moves on: a crash in between submits again with
the same nonce, which is the same procedure. Two masters at once (an old one that does not know yet)
are settled by the nonce, too, and by the version of the row.

Times that passed while nobody was master: `missed` says what becomes of them: "one" (the newest of
them runs), "all" (each, up to SCHEDULE_MISSED_MAX), "skip" (none); none of those that are older
than `catch_up_ms`. Times that pass while a schedule is paused are none of its times.

`overlap` says what becomes of a time at which a run before has not ended:

    allow_all        it runs beside
    skip             it does not run
    buffer_one       one of them runs when that has ended: the first
    buffer_all       each, one after the other; up to SCHEDULE_BUFFER_MAX wait
    cancel_other     the run before is aborted; when it has rolled back, the newest time runs
    terminate_other  the run before is ended where it stands (bypassed), and this one runs

What waits for its turn is in the row (`waiting`), so another master goes on with it: what the clock
started and what somebody asked for in two lines, of which none holds up the other. Whether a run
has ended is known in memory: all that live are there before a schedule is looked at. Runs of a
schedule that allows all, but for those that must not run beside others, are nobody's run before.

The nonce says for which time a run was started, however late that was; steps and users see it as
`scheduled_ms`. Runs that somebody asked for (`trigger`, `backfill`) have one more part in theirs.

An idle schedule costs nothing: a heap says which one is due next.

    WORKERS 20 esc(name)  → Schedule
            04 esc(name)  → the same of an older version (`_Older`), read until it is changed here;
                            masters of that version look only there
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from heapq import heappop, heappush
from itertools import accumulate, takewhile
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import (
    Busy,
    ConditionFailed,
    InvalidArgument,
    KvorumError,
    NotFound,
    TooLarge,
    UnknownOutcome,
)
from kv.base.keys import unescape
from kv.base.ops import delete, put
from kv.base.ports import Clock
from procedures.engine import attributes, plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.records import ASKED, SCHEDULE_OWNER, SCHEDULED, Record
from procedures.engine.submission import Options, Submission, check_options, checked_text
from procedures.pools import rows
from procedures.pools.pauses import SCHEDULE, Pause
from procedures.pools.rows import Rows
from procedures.pools.schedule_times import (
    Times,
    begins,
    newest,
    next_of,
    seek,
    times_of,
    whole,
)

log = logging.getLogger(__name__)

MISSED: Final = ("one", "all", "skip")
ALLOW, SKIP, BUFFER_ONE, BUFFER_ALL = "allow_all", "skip", "buffer_one", "buffer_all"
CANCEL, TERMINATE = "cancel_other", "terminate_other"
OVERLAP: Final = (ALLOW, SKIP, BUFFER_ONE, BUFFER_ALL, CANCEL, TERMINATE)
_LATE_MS: Final = 5_000  # a time that passed less long ago was not missed
_NAP_S: Final = 1.0  # the wall clock may jump
_ATTEMPTS: Final = 10
_KEYS_KEPT: Final = 20  # requests that were repeated are known again
_LIVE_KEPT: Final = 100
_LOOKS: Final = 64  # schedules that are looked at at once
_LOOKED_AT_ONCE: Final = 100  # times, also excluded ones: about 10 ms
_LOOKED_MAX: Final = 50_000  # for one request


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """A run to come."""

    nominal_ms: int
    tag: str  # of whoever asked for it; "" = the clock
    overlap: str


class Schedule(msgspec.Struct, frozen=True, array_like=True):
    name: str
    times: Times
    procedure: str
    args: bytes  # plain
    created_ms: int
    next_ms: int  # 0 = it never comes
    missed: str = "one"
    overlap: str = ALLOW
    catch_up_ms: int = 0  # 0 = however old
    remaining: int = -1  # so many runs are left; -1 = any number
    options: tuple[tuple[str, Any], ...] = ()
    last_ms: int = 0
    last_id: int = 0
    runs: int = 0
    skipped: int = 0
    waiting: tuple[Waiting, ...] = ()
    paused: Pause | None = None
    keys: tuple[str, ...] = ()  # of requests that were carried out
    live: tuple[int, ...] = ()  # runs that others may have to wait for, the newest ones

    def to_plain(self) -> dict[str, object]:
        return {
            "name": self.name,
            **self.times.to_plain(),
            "procedure": self.procedure,
            "args": plain_data.decode(self.args),
            "missed": self.missed,
            "overlap": self.overlap,
            "catch_up_ms": self.catch_up_ms,
            "remaining": self.remaining if self.remaining >= 0 else None,
            "next_ms": self.next_ms,
            "last_ms": self.last_ms,
            "last_id": str(self.last_id) if self.last_id else None,
            "runs": self.runs,
            "skipped": self.skipped,
            "waiting": len(self.waiting),
            "paused": None if self.paused is None else self.paused.to_plain(),
            **dict(self.options),
        }

    @property
    def before(self) -> tuple[int, ...]:
        """The runs that have to have ended before one that runs alone."""
        if self.live or self.overlap == ALLOW:
            return self.live
        return (self.last_id,)  # of before it was changed, or of a master that knows no others

    @property
    def due_ms(self) -> int:
        """When the clock starts something of it; 0 = never."""
        if not self.next_ms or self.paused is not None or not self.remaining:
            return 0
        return begins(self.times, self.name, self.next_ms)


class _Older(msgspec.Struct, frozen=True, array_like=True):
    name: str
    cron: str
    zone: str
    procedure: str
    args: bytes
    missed: str
    created_ms: int
    next_ms: int
    last_ms: int = 0
    last_id: int = 0
    runs: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    def today(self) -> Schedule:
        return Schedule(
            self.name,
            Times((self.cron,), self.zone),
            *(self.procedure, self.args, self.created_ms, self.next_ms, self.missed),
            options=self.options,
            last_ms=self.last_ms,
            last_id=self.last_id,
            runs=self.runs,
        )


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Schedule)
_older: Final = msgspec.msgpack.Decoder(_Older)


class _Known:
    """One schedule as it is stored."""

    __slots__ = ("older", "schedule", "version")

    def __init__(self, schedule: Schedule, version: int, older: int = 0) -> None:
        self.schedule, self.version = schedule, version
        self.older = older  # the version of its row of an older kind; 0 = there is none


class Schedules:
    """The schedules of a cluster, at its master.

    submit   the executor's
    lives    whether a run has not ended
    cancel   abort a run; `terminate`: end it where it stands. Both say why
    kinds    the attributes that a type declares; None: it is not known
    """

    def __init__(
        self,
        store: Rows,
        clock: Clock,
        submit: Callable[[Submission], Awaitable[int]],
        *,
        lives: Callable[[int], bool] = lambda _id: False,
        cancel: Callable[[int, str], Awaitable[object]] | None = None,
        terminate: Callable[[int, str], Awaitable[object]] | None = None,
        kinds: Callable[[str], Mapping[str, str] | None] = lambda _name: None,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._submit = submit
        self._lives, self._cancel, self._terminate = lives, cancel, terminate
        self._known: dict[str, _Known] = {}
        self._loaded = False
        self._started: dict[str, int] = {}  # by nonce; of times that the row does not know yet
        self._heap: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}  # what of the heap is true
        self._awaited: dict[int, str] = {}  # runs whose end somebody waits for → schedule
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by name
        self._some = asyncio.Semaphore(_LOOKS)
        self._looking: dict[str, bool] = {}  # whether to look once more then
        self._noticed: dict[str, int] = {}  # since when it is known that one is due
        self._changed = asyncio.Event()
        self.looks = 0  # at schedules, for tests

    # ------------------------------------------------------------------------------ requests
    def starts(self, name: str) -> tuple[str, object] | None:
        """What a schedule starts, and with which arguments; "": there is no such one. None: they
        are not known yet.
        """
        if not self._loaded:
            return None
        known = self._known.get(name)
        if known is None:
            return "", None
        return known.schedule.procedure, plain_data.decode(known.schedule.args)

    async def set(self, given: dict[str, object]) -> dict[str, Any]:
        """Add one, or change it in place: what it did so far, and a pause, stay. Raises
        InvalidArgument, Busy.
        """
        made = self._made(given)

        def change(known: Schedule | None) -> Schedule:
            if known is None:
                self._check_room()
                return made
            kept = (
                "created_ms",
                "last_ms",
                "last_id",
                "runs",
                "skipped",
                "waiting",
                "keys",
                "live",
            )
            same = {field: getattr(known, field) for field in (*kept, "paused")}
            if known.due_ms and known.times == made.times:
                same["next_ms"] = (
                    known.next_ms
                )  # it may have come, and its run may be still to come
            return replace(made, **same)

        return (await self._change(made.name, change, new=True)).to_plain()

    def _made(self, given: Plain) -> Schedule:
        name = checked_text("the schedule's name", given.get("name"), limits.NAME_CHARS_MAX)
        missed = _one_of(given, "missed", MISSED)
        overlap = _one_of({"overlap": ALLOW, **_said(given)}, "overlap", OVERLAP)
        now = self._clock.now_ms()
        times = times_of(given)
        procedure = checked_text("procedure", given.get("procedure"), limits.NAME_CHARS_MAX)
        fields = ("queue", "priority", "pool", "attributes")
        options = tuple((k, given[k]) for k in fields if given.get(k))
        self._check_options(procedure, Options(**dict(options)))
        remaining = given.get("remaining")
        return Schedule(
            name,
            times,
            procedure,
            plain_data.encode(given.get("args"), "arguments", limits.PROCEDURE_ARGS_BYTES_MAX),
            now,
            next_of(times, now),
            missed,
            overlap,
            whole(given, "catch_up_ms", 0, limits.PROCEDURE_TIMEOUT_MS_MAX),
            -1 if remaining is None else whole(given, "remaining", 0, 1 << 53),
            options,
        )

    def _check_options(self, procedure: str, options: Options) -> None:
        """What would be refused at each of its times. Of a type that is not here yet: as far as it
        is known.
        """
        check_options(options)
        if not isinstance(options.attributes, Mapping):
            raise InvalidArgument("attributes is a map of names to values")
        kinds = self._kinds(procedure)
        if kinds is not None:
            attributes.changed(f"procedure {procedure}", kinds, (), options.attributes)
        plain_data.encode(dict(options.attributes), "attributes", limits.PROCEDURE_ARGS_BYTES_MAX)

    def _check_room(self) -> None:
        if len(self._known) >= limits.SCHEDULES_MAX:
            raise Busy(
                f"there are {len(self._known)} schedules, the limit is {limits.SCHEDULES_MAX}",
                details={"limit": limits.SCHEDULES_MAX, "actual": len(self._known)},
            )

    async def remove(self, name: str) -> None:
        """Raises NotFound (SCHEDULE_NOT_FOUND)."""
        await self._load()
        known = self._known.get(name)
        if known is None:
            raise _unknown(name)
        await self._store.write([delete(rows.schedule(name)), delete(rows.older_schedule(name))])
        if self._known.get(name) is known:  # nobody has set it anew
            del self._known[name]
            self._due.pop(name, None)
            self._noticed.pop(name, None)

    async def all(self, *, after: str = "", name: str = "", limit: int = 0) -> list[Any]:
        """By name: those behind `after`, or the one of this name; as many as fit an answer."""
        await self._load()
        found: list[dict[str, object]] = []
        size = 0
        for one in sorted(self._known):
            if one <= after or name not in ("", one):
                continue
            schedule = self._known[one].schedule
            found.append(schedule.to_plain())
            size += len(schedule.args)
            if len(found) == (limit or limits.PROCEDURE_PAGE_MAX) or (
                size >= limits.SCAN_PAGE_BYTES_MAX
            ):
                break
        return found

    async def pause(self, name: str, pause: Pause) -> dict[str, object]:
        """Nothing of it starts by the clock until `resume`. Raises NotFound."""
        return (await self._change(name, lambda s: replace(_must(s), paused=pause))).to_plain()

    async def resume(self, name: str) -> Plain:
        """From now on; what passed meanwhile does not run. Raises NotFound."""

        def change(known: Schedule | None) -> Schedule:
            there = _must(known)
            if there.paused is None:
                return there
            next_ms = next_of(there.times, self._clock.now_ms())
            return replace(there, paused=None, next_ms=next_ms)

        return (await self._change(name, change)).to_plain()

    async def pauses(self) -> list[dict[str, object]]:
        """Of those that are paused."""
        await self._load()
        return [
            {"kind": SCHEDULE, "name": name, **pause.to_plain()}
            for name, known in sorted(self._known.items())
            if (pause := known.schedule.paused) is not None
        ]

    async def trigger(self, name: str, *, overlap: str = "", key: str = "") -> dict[str, object]:
        """Run it now, also while it is paused. Raises NotFound, InvalidArgument."""
        now = self._clock.now_ms()
        return await self._ask(name, [now], overlap, key)

    async def backfill(
        self, name: str, from_ms: int, to_ms: int, *, overlap: str = "", key: str = ""
    ) -> dict[str, object]:
        """Run it for each of its times from one moment on, before the other. Raises NotFound,
        InvalidArgument, TooLarge: then none of them.
        """
        await self._load()
        if name not in self._known:
            raise _unknown(name)
        if not 0 <= from_ms < to_ms <= self._clock.now_ms():
            raise InvalidArgument("backfill wants from before to, and both in the past")
        most = limits.SCHEDULE_BUFFER_MAX
        found: list[int] = []
        async for one in _sought(self._known[name].schedule.times, from_ms - 1):
            if one >= to_ms:
                break
            found.append(one)
            if len(found) > most:
                raise TooLarge(
                    f"schedule {name} has more than {most} times in that range, the limit of one "
                    f"backfill: ask for a part of it, up to {one}",
                    details={"what": "times", "limit": most, "actual": len(found)},
                )
        return await self._ask(name, found, overlap or BUFFER_ALL, key)

    async def next_times(self, name: str, count: int, after_ms: int = 0) -> list[int]:
        """Its next nominal times. Raises NotFound, InvalidArgument, TooLarge."""
        await self._load()
        if name not in self._known:
            raise _unknown(name)
        if type(count) is not int or not 0 < count <= limits.SCHEDULE_TIMES_MAX:
            most = limits.SCHEDULE_TIMES_MAX
            raise InvalidArgument(f"count must be 1 to {most}, got {count!r:.40}")
        found: list[int] = []
        times, at = self._known[name].schedule.times, after_ms or self._clock.now_ms()
        async for one in _sought(times, at):
            found.append(one)
            if len(found) == count:
                break
        return found

    async def _ask(self, name: str, times: list[int], overlap: str, key: str) -> dict[str, object]:
        if overlap and overlap not in OVERLAP:
            raise _wrong("overlap", OVERLAP, overlap)
        tag = f"{ASKED}{key}"
        longest = max((len(_nonce(name, tag, ms)) for ms in times), default=0)
        if (over := longest - limits.NONCE_CHARS_MAX) > 0:
            raise InvalidArgument(
                f"the key of a run of schedule {name} may have {len(key) - over} characters (with "
                f"the schedule's name {limits.NONCE_CHARS_MAX}), it has {len(key)}",
                details={"limit": len(key) - over, "actual": len(key)},
            )
        fresh = True

        def change(known: Schedule | None) -> Schedule:
            nonlocal fresh
            there = _must(known)
            if key in there.keys:
                fresh = False
                return there
            keys = (*there.keys, key)[-_KEYS_KEPT:] if key else there.keys
            new = tuple(Waiting(ms, tag, overlap or there.overlap) for ms in times)
            asked = sum(bool(one.tag) for one in there.waiting)
            if asked + len(new) > limits.SCHEDULE_BUFFER_MAX:
                raise Busy(
                    f"{asked} runs that were asked for of schedule {name} wait already, the limit "
                    f"is {limits.SCHEDULE_BUFFER_MAX}",
                    details={"limit": limits.SCHEDULE_BUFFER_MAX, "actual": asked + len(new)},
                )
            return replace(there, waiting=(*there.waiting, *new), keys=keys)

        await self._change(name, change)
        try:
            started = await self._look(name)
        except KvorumError as error:  # it is stored: `run` starts it
            log.warning("schedule %s waits: %s", name, error)
            started = []
        return {
            "name": name,
            "count": len(times) if fresh else 0,
            "started": [str(id) for id in started if id],
        }

    async def _change(
        self, name: str, change: Callable[[Schedule | None], Schedule], *, new: bool = False
    ) -> Schedule:
        """Write one anew; `change` gets it as it is (None: there is none)."""
        await self._load()
        for _ in range(_ATTEMPTS):
            known = self._known.get(name)
            if known is None and not new:
                raise _unknown(name)
            made = change(None if known is None else known.schedule)
            try:
                await self._write(name, known, made)
            except ConditionFailed:
                await self._read(name)
            else:
                self._mind(name, ready=bool(made.waiting))
                return made
        raise Busy(
            f"schedule {name!r:.80} is changed all the time; try again",
            details={"what": "attempts", "limit": _ATTEMPTS, "actual": _ATTEMPTS},
        )

    # ------------------------------------------------------------------------------ the store
    async def _write(self, name: str, known: _Known | None, made: Schedule) -> None:
        """Raises ConditionFailed: somebody else has changed it."""
        version = 0 if known is None else known.version
        ops = [put(rows.schedule(name), _encoder.encode(made), cond=version)]
        if known is not None and known.older:
            ops.append(delete(rows.older_schedule(name), known.older))
        self._known[name] = _Known(made, await self._store.write(ops))

    async def _load(self) -> None:
        if self._loaded:
            return
        found: dict[str, _Known] = {}
        for span in (rows.ALL_SCHEDULES, rows.OLDER_SCHEDULES):
            older = span is rows.OLDER_SCHEDULES
            async for key, value, version in rows.every(self._store, span):
                name = unescape(key, len(span[0]))[0].decode()
                if older:  # set by a master that knows no other row: the last word
                    there = found.get(name)
                    today = _older.decode(value).today()
                    found[name] = _Known(today, 0 if there is None else there.version, version)
                else:
                    found[name] = _Known(_decoder.decode(value), version)
        if self._known:
            return  # somebody else was faster
        self._known, self._loaded = found, True
        for name, known in found.items():
            self._mind(name, ready=bool(known.schedule.waiting))

    async def _read(self, name: str) -> None:
        """Somebody changed it."""
        self._known.pop(name, None)
        data, version = await self._store.get(rows.schedule(name))
        if data is not None:
            self._known[name] = _Known(_decoder.decode(data), version)
            self._mind(name, ready=True)

    # ------------------------------------------------------------------------------ the clock
    def _mind(self, name: str, *, ready: bool = False) -> None:
        """Look at it when it is due, or soon."""
        at = 1 if ready else self._known[name].schedule.due_ms
        if at and self._due.get(name) != at:
            heappush(self._heap, (at, name))
        if at:
            self._due[name] = at
            self._changed.set()
        else:
            self._due.pop(name, None)

    def ended(self, id: int) -> None:
        """A run has ended: somebody may wait for that."""
        name = self._awaited.pop(id, None)
        if name is not None and name in self._known:
            self._mind(name, ready=True)

    def may_start(self, record: Record) -> bool:
        """Whether its time would be started once more if this run were forgotten: the row does not
        know of it yet.
        """
        if record.owner != SCHEDULE_OWNER or not record.nonce.startswith(SCHEDULED):
            return False
        if not self._loaded:
            return True
        head, _, when = record.nonce.removeprefix(SCHEDULED).rpartition("/")
        name, asked, key = head.partition(ASKED)
        known = self._known.get(name)
        if known is None:
            return False
        schedule, tag = known.schedule, asked + key
        waits = any((str(one.nominal_ms), one.tag) == (when, tag) for one in schedule.waiting)
        return waits or (not tag and 0 < schedule.next_ms <= record.scheduled_ms)

    async def run(self) -> None:
        """Start what is due, until cancelled."""
        async with asyncio.TaskGroup() as looks:
            while True:
                trouble = False
                try:
                    await self._load()
                except KvorumError as error:
                    trouble = True
                    log.warning("schedules wait: %s", error)
                for name in self._ready():
                    if name in self._looking:
                        self._looking[name] = True
                    else:
                        self._looking[name] = False
                        looks.create_task(self._look_at(name))
                try:
                    async with asyncio.timeout(_NAP_S if trouble else self._pause_s()):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                if trouble and self._changed.is_set():
                    await asyncio.sleep(_NAP_S)
                self._changed.clear()

    async def _look_at(self, name: str) -> None:
        """One that has trouble, or whose workers are silent, keeps no other from its times."""
        try:
            async with self._some:
                await self._look(name)
        except KvorumError as error:
            log.warning("schedule %s waits: %s", name, error)
            await asyncio.sleep(_NAP_S)
            self._looking[name] = True
        if self._looking.pop(name) and name in self._known:
            self._mind(name, ready=True)

    def _ready(self) -> list[str]:
        """Those that are due now, by name."""
        found = []
        now = self._clock.now_ms()
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._due.get(name) == at:
                del self._due[name]
                self._noticed.setdefault(name, now)
                found.append(name)
        return sorted(found)

    def _pause_s(self) -> float:
        if self._changed.is_set():
            return 0.0
        if not self._heap:
            return 60 * _NAP_S
        return min(_NAP_S, max(0.001, (self._heap[0][0] - self._clock.now_ms()) / 1000))

    @property
    def next_due_ms(self) -> int:
        """When the next of them is due; 0 = none is."""
        return self._heap[0][0] if self._heap else 0

    def look_at_the_clock(self) -> None:
        """It was set."""
        self._changed.set()

    async def _look(self, name: str) -> list[int]:
        """Start what of it may start; the ids."""
        async with self._turns.setdefault(name, asyncio.Lock()):
            self.looks += 1
            known = self._known.get(name)
            if known is None:
                return []
            before = known.schedule
            now = self._clock.now_ms()
            noticed, moved_on = self._noticed.pop(name, now), False
            after, times = _passed(before, now, noticed)
            nonces: list[str] = []
            try:
                after = await self._drained(after, nonces)
                for when in times:
                    if after.remaining == 0:
                        break
                    after = await self._drained(self._pushed(after, when), nonces)
                started = [self._started[nonce] for nonce in nonces]
                if after != before:
                    try:
                        await self._write(name, known, after)
                    except (ConditionFailed, UnknownOutcome):
                        await self._read(name)
                        return started
                moved_on = True
            finally:
                if not moved_on and name in self._known:
                    self._noticed[name] = noticed  # a master was there: its times are not missed
            for nonce in nonces:
                self._started.pop(nonce, None)
            if name in self._known and name not in self._due:
                self._mind(name)
            return started

    def _pushed(self, schedule: Schedule, when: int) -> Schedule:
        """A time has come."""
        waiting, overlap = schedule.waiting, schedule.overlap
        mine = [one for one in waiting if not one.tag]
        full = len(mine) >= limits.SCHEDULE_BUFFER_MAX
        if full or (overlap == BUFFER_ONE and mine):
            return replace(schedule, skipped=schedule.skipped + 1)
        skipped = schedule.skipped
        if overlap in (CANCEL, TERMINATE) and mine:
            waiting, skipped = tuple(one for one in waiting if one.tag), skipped + len(mine)
        return replace(schedule, waiting=(*waiting, Waiting(when, "", overlap)), skipped=skipped)

    async def _drained(self, schedule: Schedule, nonces: list[str]) -> Schedule:
        """Start what waits, as far as it may; `nonces` gets those that were."""
        left: list[Waiting] = []
        stopped: set[bool] = set()  # of what was asked for, and of the clock: its first one waits
        for one in schedule.waiting:
            asked, alone = bool(one.tag), one.overlap != ALLOW
            if (not asked and schedule.paused is not None) or (alone and asked in stopped):
                left.append(one)
                continue
            if not asked and not schedule.remaining:
                schedule = replace(schedule, skipped=schedule.skipped + 1)
                continue
            nonce = _nonce(schedule.name, one.tag, one.nominal_ms)
            if nonce not in self._started:  # else a later one had trouble
                if alone and any(self._lives(id) for id in schedule.before):
                    if one.overlap == SKIP:
                        schedule = replace(schedule, skipped=schedule.skipped + 1)
                        continue
                    if not await self._ended_for(schedule, one.overlap):
                        stopped.add(asked)
                        left.append(one)
                        continue
                self._started[nonce] = await self._start(schedule, nonce)
            nonces.append(nonce)
            id, live = self._started[nonce], schedule.live
            if id and (alone or schedule.overlap != ALLOW):
                live = (*(before for before in live if self._lives(before)), id)[-_LIVE_KEPT:]
            schedule = replace(
                schedule,
                last_ms=one.nominal_ms,
                last_id=id or schedule.last_id,
                live=live,
                runs=schedule.runs + 1,
                remaining=schedule.remaining - (schedule.remaining > 0 and not asked),
            )
        return replace(schedule, waiting=tuple(left))

    async def _ended_for(self, schedule: Schedule, overlap: str) -> bool:
        """Whether the runs before have ended; else somebody looks again when one has."""
        before = [id for id in schedule.before if self._lives(id)]
        end = {CANCEL: self._cancel, TERMINATE: self._terminate}.get(overlap)
        for id in before:
            self._awaited[id] = schedule.name
            if end is None:
                continue
            try:
                await end(id, f"schedule {schedule.name}: its next time has come")
            except KvorumError as error:
                if error.disposition != "no":
                    raise
                log.warning("schedule %s: run %d goes on: %s", schedule.name, id, error)
        still = [id for id in before if self._lives(id)]
        for id in set(before) - set(still):
            self._awaited.pop(id, None)
        return not still

    async def _start(self, known: Schedule, nonce: str) -> int:
        """Its run at a time; 0: it was refused (said in the log)."""
        args = plain_data.decode(known.args)
        options = Options(**dict(known.options))
        try:
            return await self._submit(
                Submission(
                    *(known.procedure, args, SCHEDULE_OWNER, nonce),
                    options=options,
                    first_counts=True,  # the schedule may have been changed since
                )
            )
        except KvorumError as error:
            if error.disposition != "no":
                raise
            log.error("schedule %s: its run was refused: %s", known.name, error)
            return 0


async def _sought(times: Times, after_ms: int) -> AsyncIterator[int]:
    """Its times after a moment; others have their turn meanwhile. Raises InvalidArgument, TooLarge:
    so many are excluded that looking for them costs others too much.
    """
    for looked, one in enumerate(seek(times, after_ms), 1):
        if one:
            yield one
        if looked % _LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        if looked == _LOOKED_MAX:
            raise TooLarge(
                f"{_LOOKED_MAX:,} times were looked at, most of them are excluded: ask for fewer",
                details={"what": "times", "limit": _LOOKED_MAX, "actual": looked},
            )


def _passed(known: Schedule, now: int, noticed: int) -> tuple[Schedule, list[int]]:
    """The times that have come, without those that do not run, and the schedule behind them. How
    late they are is counted until somebody `noticed`: then there was a master.
    """
    if not known.due_ms or known.due_ms > now:
        return known, []
    found = newest(known.times, known.next_ms, now, limits.SCHEDULE_MISSED_MAX)
    times = list(takewhile(lambda one: begins(known.times, known.name, one) <= now, found))
    after = next_of(known.times, times[-1] if times else known.next_ms)
    return replace(known, next_ms=after), _chosen(known, times, noticed)


def _chosen(known: Schedule, times: list[int], noticed: int) -> list[int]:
    # One begins when those before it have, however short its own jitter is: it is not late then.
    began = list(accumulate((begins(known.times, known.name, one) for one in times), max))
    late_ms = {when: noticed - at for when, at in zip(times, began, strict=True)}
    if known.catch_up_ms:
        times = [one for one in times if late_ms[one] <= max(_LATE_MS, known.catch_up_ms)]
    late = [when for when in times if late_ms[when] > _LATE_MS]
    on_time = [when for when in times if when not in late]
    if known.missed == "all":
        return times
    if known.missed == "one" and late and not on_time:
        return late[-1:]
    return on_time


def _nonce(name: str, tag: str, nominal_ms: int) -> str:
    return f"{SCHEDULED}{name}{tag}/{nominal_ms}"


def _said(given: dict[str, object]) -> Plain:
    return {name: value for name, value in given.items() if value is not None and value != ""}


def _one_of(given: dict[str, object], field: str, words: tuple[str, ...]) -> str:
    value = given.get(field) or words[0]
    if value not in words:
        raise _wrong(field, words, value)
    return str(value)


def _wrong(field: str, words: tuple[str, ...], value: object) -> InvalidArgument:
    return InvalidArgument(f"{field} must be {', '.join(words)}, got {value!r:.40}")


def _must(known: Schedule | None) -> Schedule:
    assert known is not None
    return known


def _unknown(name: str) -> NotFound:
    return NotFound(f"no schedule {name!r:.80}", code="SCHEDULE_NOT_FOUND")
