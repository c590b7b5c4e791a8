"""Schedules: procedures started at the times of a clock, and what of them and of everything else is
paused (docs/guides/operating-procedures.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kv.base.ports import Rng
from kvorum.api.backend import Backend
from kvorum.api.submit_options import moment_ms, start_options
from kvorum.sdk.operating import myself
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import procedure_name
from procedures.engine.registry import Declared


class AsyncScheduling:
    """A part of `AsyncDatabase`."""

    _backend: Backend
    _rng: Rng

    async def set_schedule(
        self,
        name: str,
        cron: str | Sequence[str] | None,
        procedure: str | Declared,
        args: object = None,
        *,
        every_ms: int = 0,
        offset_ms: int = 0,
        exclude: str | Sequence[str] = (),
        zone: str = "UTC",
        jitter_ms: int = 0,
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        remaining: int | None = None,
        overlap: str = "allow_all",
        missed: str = "one",
        catch_up_ms: int = 0,
        queue: str = "",
        priority: int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Plain:
        """Start a procedure at the times of a clock, once for each; by its name an existing
        schedule is changed in place: what it did so far, and a pause, stay.

        cron         one expression or several; `every_ms` (from `offset_ms` on): also so often
        exclude      cron expressions of minutes in which nothing starts
        jitter_ms    each run begins up to so much later
        start, end   not before, not after; `remaining`: so many runs and no more
        overlap      when the run before has not ended: "allow_all", "skip", "buffer_one",
                     "buffer_all", "cancel_other", "terminate_other"
        missed       times at which there was no master: "one" (the newest), "all", "skip"; none
                     older than `catch_up_ms` (0 = however old)
        attributes   by which what it starts can be found (`search`)
        Raises InvalidArgument, NotFound (no such procedure), Busy.
        """
        request: dict[str, object] = {"name": name, "procedure": procedure_name(procedure)}
        request |= {"args": args, "zone": zone, "missed": missed, "queue": queue}
        request |= {"priority": priority, "pool": pool}
        more = {
            "cron": cron if isinstance(cron, str) else list(cron or ()),
            "exclude": exclude if isinstance(exclude, str) else list(exclude),
            "every_ms": every_ms,
            "offset_ms": offset_ms,
            "jitter_ms": jitter_ms,
            "start_ms": moment_ms("start", start),
            "end_ms": moment_ms("end", end),
            "overlap": overlap if overlap != "allow_all" else "",
            "catch_up_ms": catch_up_ms,
            **start_options("", None, 0, None, "", attributes),
        }
        request |= {field: value for field, value in more.items() if value}
        if remaining is not None:
            request["remaining"] = remaining
        return dict(await self._backend.control("schedule.set", request))

    async def remove_schedule(self, name: str) -> None:
        """Raises NotFound (SCHEDULE_NOT_FOUND). What it started goes on."""
        await self._backend.control("schedule.remove", {"name": name})

    async def schedules(self) -> list[Plain]:
        """All of them, by name, with the next time and the last run of each."""
        found: list[Plain] = []
        while True:  # one answer has so many at most
            after = {"after": found[-1]["name"]} if found else {}
            page = await self._backend.control("schedule.list", after)
            new = [one for one in page if not found or one["name"] > found[-1]["name"]]
            found += new
            if not new:
                return found

    async def schedule_times(
        self, name: str, count: int = 10, *, after: datetime | int | None = None
    ) -> list[int]:
        """The next nominal times of a schedule, in ms since 1970. Raises NotFound."""
        request: dict[str, object] = {"name": name, "count": count}
        if after is not None:
            request["after_ms"] = moment_ms("after", after)
        return list((await self._backend.control("schedule.times", request))["times"])

    async def trigger_schedule(
        self, name: str, *, overlap: str = "", key: str | None = None
    ) -> Plain:
        """Start what a schedule starts, now, also while it is paused; `started` has its id, unless
        it waits for the run before, or does not run (`overlap`: that of the schedule, if left
        out). The same `key` acts once. Raises NotFound.
        """
        request = {"name": name, "overlap": overlap, "key": key or self._rng.token(12).hex()}
        return dict(await self._backend.control("schedule.trigger", request))

    async def backfill_schedule(
        self,
        name: str,
        start: datetime | int,
        end: datetime | int,
        *,
        overlap: str = "buffer_all",
        key: str | None = None,
    ) -> Plain:
        """Start what a schedule starts for each of its times from `start` on, before `end`: one
        after the other, if `overlap` does not say otherwise. The same `key` acts once. Raises
        NotFound, TooLarge: then nothing.
        """
        request: dict[str, object] = {"name": name, "overlap": overlap}
        request["key"] = key or self._rng.token(12).hex()
        request |= {"from_ms": moment_ms("start", start), "to_ms": moment_ms("end", end)}
        return dict(await self._backend.control("schedule.backfill", request))

    async def pause(self, kind: str, name: str | int, note: str, *, actor: str = "") -> Plain:
        """Let no step begin of a "procedure" (its id), "type", "queue" or "pool", or nothing of a
        "schedule", until `resume`; steps under way come to their end. `note`: why. Raises NotFound,
        Refused (ENDED).
        """
        request = {"kind": kind, "name": str(name), "note": note, "actor": actor or myself()}
        return dict(await self._backend.control("pause.set", request))

    async def resume(self, kind: str, name: str | int, *, actor: str = "") -> None:
        """End a pause. Raises NotFound (NOT_PAUSED)."""
        request = {"kind": kind, "name": str(name), "actor": actor or myself()}
        await self._backend.control("pause.end", request)

    async def pauses(self) -> list[Plain]:
        """Everything that is paused, by whom, since when and why."""
        return list(await self._backend.control("pause.list", {}))
