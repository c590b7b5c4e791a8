"""Schedules: a procedure started at the times of a cron expression, exactly once for each time.

The row of a schedule holds the next time that is due. When it has come, the procedure is submitted
with the nonce `schedule/NAME/TIME` and then the row moves on: a crash in between submits again with
the same nonce, which is the same procedure. Two masters at once (an old one that does not know yet)
are settled by the nonce, too, and by the version of the row.

Times that passed while nobody was master: `missed` says what becomes of them: "one" (the newest of
them runs), "all" (each, up to SCHEDULE_MISSED_MAX), "skip" (none).

The nonce says for which time a run was started, however late that was; steps and users see it as
`scheduled_ms`.

Cron expressions are cronsim's (five fields, and its daylight-saving rules, which are Debian cron's:
docs/decisions/0414) or one of cron's names for some of them (@daily); times are those of the
schedule's time zone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import (
    Busy,
    ConditionFailed,
    InvalidArgument,
    KvorumError,
    NotFound,
    UnknownOutcome,
)
from kv.base.keys import unescape
from kv.base.ops import delete, put
from kv.base.ports import Clock
from procedures.engine import plain_data
from procedures.engine.records import SCHEDULE_OWNER, SCHEDULED
from procedures.engine.submission import Options, Submission, check_options, checked_text
from procedures.pools import rows
from procedures.pools.rows import Rows

log = logging.getLogger(__name__)

MISSED: Final = ("one", "all", "skip")
_LATE_MS: Final = 5_000  # a time that passed less long ago was not missed
_NAP_S: Final = 1.0  # the wall clock may jump
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS: Final = 5


class Schedule(msgspec.Struct, frozen=True, array_like=True):
    name: str
    cron: str
    zone: str
    procedure: str
    args: bytes  # plain
    missed: str
    created_ms: int
    next_ms: int  # 0 = it never comes
    last_ms: int = 0
    last_id: int = 0
    runs: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    def to_plain(self) -> dict[str, object]:
        return {
            "name": self.name,
            "cron": self.cron,
            "zone": self.zone,
            "procedure": self.procedure,
            "args": plain_data.decode(self.args),
            "missed": self.missed,
            "next_ms": self.next_ms,
            "last_ms": self.last_ms,
            "last_id": str(self.last_id) if self.last_id else None,
            "runs": self.runs,
            **dict(self.options),
        }


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Schedule)


def check_cron(cron: str) -> None:
    """Raises InvalidArgument unless it has five fields: cronsim would take seconds, too."""
    count = len(_fields(cron).split())
    if count != _FIELDS:
        found = f"it has {count}" if not cron.strip().startswith("@") else "there is no such name"
        raise InvalidArgument(
            f"{cron!r:.80} is no cron expression ({found}); it has five fields: minute, hour, day "
            f"of the month, month, day of the week; or is one of {', '.join(_NAMED)}"
        )


def _fields(cron: str) -> str:
    """The expression without names."""
    return _NAMED.get(cron.strip().lower(), cron)


def next_time(cron: str, zone: str, after_ms: int) -> int:
    """The first time of the expression after `after_ms`; 0 = never. Raises InvalidArgument."""
    try:
        tz = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(f"{zone!r:.60} is no time zone; use one like Europe/Berlin") from None
    try:
        start = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(tz)
        found = next(CronSim(_fields(cron), start))
    except CronSimError as error:
        raise InvalidArgument(
            f"{cron!r:.80} is no cron expression ({error}); its five fields are: minute, hour, day "
            "of the month, month, day of the week"
        ) from None
    except StopIteration:
        return 0
    return int(found.timestamp() * 1000)


class Schedules:
    """The schedules of a cluster, at its master. `submit` is the executor's."""

    def __init__(
        self, store: Rows, clock: Clock, submit: Callable[[Submission], Awaitable[int]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._submit = submit
        self._known: dict[str, tuple[Schedule, int]] = {}
        self._started: dict[str, int] = {}  # by nonce; of times that the row does not know yet
        self._changed = asyncio.Event()

    async def set(self, given: dict[str, Any]) -> dict[str, Any]:
        """Add or change one. Raises InvalidArgument, Busy."""
        await self._load()
        name = checked_text("the schedule's name", given.get("name"), limits.NAME_CHARS_MAX)
        missed = given.get("missed") or "one"
        if missed not in MISSED:
            raise InvalidArgument(f"missed must be {', '.join(MISSED)}, got {missed!r:.40}")
        if name not in self._known and len(self._known) >= limits.SCHEDULES_MAX:
            raise Busy(
                f"there are {len(self._known)} schedules, the limit is {limits.SCHEDULES_MAX}",
                details={"limit": limits.SCHEDULES_MAX, "actual": len(self._known)},
            )
        now = self._clock.now_ms()
        cron = checked_text("cron", given.get("cron"), limits.NAME_CHARS_MAX)
        check_cron(cron)
        zone = checked_text("zone", given.get("zone") or "UTC", limits.NAME_CHARS_MAX)
        procedure = checked_text("procedure", given.get("procedure"), limits.NAME_CHARS_MAX)
        options = tuple((k, given[k]) for k in ("queue", "priority", "pool") if given.get(k))
        check_options(Options(**dict(options)))
        made = Schedule(
            name,
            cron,
            zone,
            procedure,
            plain_data.encode(given.get("args"), "arguments", limits.PROCEDURE_ARGS_BYTES_MAX),
            missed,
            now,
            next_time(cron, zone, now),
            options=options,
        )
        version = await self._store.write([put(rows.schedule(name), _encoder.encode(made))])
        self._known[name] = (made, version)
        self._changed.set()
        return made.to_plain()

    async def remove(self, name: str) -> None:
        """Raises NotFound (SCHEDULE_NOT_FOUND)."""
        await self._load()
        if self._known.pop(name, None) is None:
            raise NotFound(f"no schedule {name!r:.80}", code="SCHEDULE_NOT_FOUND")
        await self._store.write([delete(rows.schedule(name))])

    async def all(self) -> Any:
        await self._load()
        return [known.to_plain() for _, (known, _) in sorted(self._known.items())]

    async def run(self) -> None:
        """Start what is due, until cancelled."""
        while True:
            trouble = False
            try:
                await self._load()
            except KvorumError as error:
                trouble = True
                log.warning("schedules wait: %s", error)
            for name in sorted(self._known):
                if name not in self._known:
                    continue  # removed meanwhile
                try:
                    await self._look(name)
                except KvorumError as error:  # it must not keep the others from their times
                    trouble = True
                    log.warning("schedule %s waits: %s", name, error)
            try:
                async with asyncio.timeout(_NAP_S if trouble else self._pause_s()):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()

    def _pause_s(self) -> float:
        times = [known.next_ms for known, _ in self._known.values() if known.next_ms]
        if not times:
            return 60 * _NAP_S
        return min(_NAP_S, max(0.001, (min(times) - self._clock.now_ms()) / 1000))

    async def _load(self) -> None:
        if self._known:
            return
        async for key, value, version in rows.every(self._store, rows.ALL_SCHEDULES):
            name = unescape(key, len(rows.ALL_SCHEDULES[0]))[0].decode()
            self._known[name] = (_decoder.decode(value), version)

    async def _look(self, name: str) -> None:
        known, version = self._known[name]
        now = self._clock.now_ms()
        if not known.next_ms or known.next_ms > now:
            return
        times = [known.next_ms]
        while (after := next_time(known.cron, known.zone, times[-1])) and after <= now:
            times.append(after)
            del times[: -limits.SCHEDULE_MISSED_MAX]
        last_id = known.last_id
        chosen = self._chosen(known, times, now)
        for when in chosen:
            nonce = f"{SCHEDULED}{name}/{when}"
            if nonce not in self._started:  # else a later one had trouble
                self._started[nonce] = await self._start(known, nonce)
            last_id = self._started[nonce] or last_id
        moved = replace(
            known,
            next_ms=after,
            last_ms=chosen[-1] if chosen else known.last_ms,
            last_id=last_id,
            runs=known.runs + len(chosen),
        )
        try:
            row = put(rows.schedule(name), _encoder.encode(moved), cond=version)
            version = await self._store.write([row])
        except (ConditionFailed, UnknownOutcome):
            self._known.pop(name, None)  # somebody changed it: read it again
            data, version = await self._store.get(rows.schedule(name))
            if data is not None:
                self._known[name] = (_decoder.decode(data), version)
            return
        for when in chosen:
            self._started.pop(f"{SCHEDULED}{name}/{when}", None)
        if name in self._known:
            self._known[name] = (moved, version)

    @staticmethod
    def _chosen(known: Schedule, times: list[int], now: int) -> list[int]:
        late = [when for when in times if now - when > _LATE_MS]
        on_time = times[len(late) :]
        if known.missed == "all":
            return times
        if known.missed == "one" and late and not on_time:
            return late[-1:]
        return on_time

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
