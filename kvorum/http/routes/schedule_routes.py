"""Schedules, and what is paused."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import Field

from kv.base import limits
from kv.base.rights import Action, Kind
from kvorum.http.routes.declaring import (
    As,
    Body,
    Me,
    Node,
    Plain,
    Routes,
    Text,
    TextOrNone,
    digits,
)
from kvorum.http.routes.procedure_routes import FIRST, WHERE, WORKERS, acted
from kvorum.http.routes.rights import READ_CLUSTER, Right
from kvorum.http.routes.route import OBJECT, items_of, object_of
from kvorum.http.wire.fields import Schema, integer, one_of
from procedures.pools.pauses import KINDS
from procedures.pools.schedules import MISSED, OVERLAP

ROUTES: Final = Routes("schedules")

_TEXT: Final[Schema] = {"type": "string"}
_TIMES: Final = object_of(times={"type": "array", "items": {"type": "integer"}})
_STARTED: Final = object_of(
    name=_TEXT, count={"type": "integer"}, started={"type": "array", "items": _TEXT}
)
_PAUSE: Final = object_of(kind=_TEXT, name=_TEXT, note=_TEXT, by=_TEXT, at_ms={"type": "integer"})
_SCHEDULE: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE, "<procedure>")
_CHANGE: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE, "{schedule}")
_LOOK: Final = Right(Action.READ, Kind.PROCEDURE_TYPE, "{schedule}")
_PAUSES: Final = Right(Action.OPERATE, Kind.PROCEDURE_TYPE, "<paused>")
_RESUMES: Final = Right(Action.OPERATE, Kind.PROCEDURE_TYPE, "{paused}")
_MOMENT: Final = integer(0, 1 << 53)
_MS: Final = integer(0, limits.PROCEDURE_TIMEOUT_MS_MAX)
_PRIORITY: Final = integer(-limits.PROCEDURE_PRIORITY_MAX, limits.PROCEDURE_PRIORITY_MAX)
_OVERLAP: Final = "When the run before has not ended."


class Schedule(Body):
    name: Text = Field(description="Its name; an existing one is changed.")
    cron: Any = Field(
        None,
        description="Five fields: minute, hour, day of month, month, day of week; or several such.",
    )
    every_ms: Annotated[int | None, As(_MS)] = Field(None, description="Also so often, …")
    offset_ms: Annotated[int | None, As(_MS)] = Field(None, description="… so much later.")
    exclude: Any = Field(None, description="Cron expressions of minutes in which nothing starts.")
    procedure: Text = Field(description="What is started.")
    args: Any = Field(None, description="With these arguments.")
    zone: TextOrNone = Field(None, description="Time zone; UTC if left out.")
    jitter_ms: Annotated[int | None, As(integer(0, limits.SCHEDULE_JITTER_MS_MAX))] = Field(
        None, description="Each run begins up to so much later."
    )
    start_ms: Annotated[int | None, As(_MOMENT)] = Field(None, description="Not before.")
    end_ms: Annotated[int | None, As(_MOMENT)] = Field(None, description="Not after.")
    remaining: Annotated[int | None, As(_MOMENT)] = Field(None, description="So many runs.")
    overlap: Annotated[str | None, As(one_of(*OVERLAP))] = Field(None, description=_OVERLAP)
    missed: Annotated[str | None, As(one_of(*MISSED))] = Field(
        None,
        description="What becomes of times at which there was no master: the newest, each, none; "
        "one.",
    )
    catch_up_ms: Annotated[int | None, As(_MS)] = Field(
        None, description="Of times that are older nothing becomes; 0 = however old."
    )
    queue: TextOrNone = Field(None, description=WHERE)
    priority: Annotated[int | None, As(_PRIORITY)] = Field(None, description=FIRST)
    pool: TextOrNone = Field(None, description=WORKERS)
    attributes: Any = Field(None, description="By which what it starts can be found: an object.")


class Trigger(Body):
    overlap: Annotated[str | None, As(one_of(*OVERLAP))] = Field(None, description=_OVERLAP)
    key: TextOrNone = Field(None, description="The same key acts once.")


class Backfill(Trigger):
    from_ms: Annotated[int, As(_MOMENT)] = Field(description="From this time on …")
    to_ms: Annotated[int, As(_MOMENT)] = Field(description="… before that one.")


class Pause(Body):
    kind: Annotated[str, As(one_of(*KINDS))] = Field(description="What it is.")
    name: Text = Field(description="Its name; of a procedure its id.")
    note: Text = Field(description="Why.")
    actor: TextOrNone = Field(
        None, description="Who does it, while the cluster has no users: `http` if left out."
    )


@ROUTES.on("GET", "/v1/schedules", READ_CLUSTER, items_of(OBJECT))
async def list_schedules(
    node: Node,
    after: Annotated[TextOrNone, Query(description="Only those behind this name.")] = None,
    name: Annotated[TextOrNone, Query(description="Only this one.")] = None,
) -> Plain:
    """List schedules

    By name, with the next time and the last run of each; of many some: ask on behind the last one.
    """
    return {"items": await node.control("schedule.list", {"after": after, "name": name})}


@ROUTES.on("POST", "/v1/schedules", _SCHEDULE, OBJECT, 404)
async def set_schedule(node: Node, body: Schedule) -> object:
    """Start a procedure at the times of a clock

    Once for each time of the cron expressions, or of the interval; an existing schedule of the name
    is changed in place.
    """
    return await node.control("schedule.set", body.given())


@ROUTES.on("DELETE", "/v1/schedules/{schedule}", _CHANGE, OBJECT, 404)
async def remove_schedule(node: Node, schedule: str) -> object:
    """Remove a schedule

    What it started goes on.
    """
    return await node.control("schedule.remove", {"name": schedule})


@ROUTES.on("GET", "/v1/schedules/{schedule}/times", _LOOK, _TIMES, 404)
async def schedule_times(
    node: Node,
    schedule: str,
    count: Annotated[
        int | None, digits(1, limits.SCHEDULE_TIMES_MAX), Query(description="10 if left out.")
    ] = None,
    after_ms: Annotated[
        int | None, digits(0, 1 << 53), Query(description="Now, if left out.")
    ] = None,
) -> object:
    """The next times of a schedule

    Nominal ones, in ms since 1970.
    """
    asked = {"name": schedule, "count": count, "after_ms": after_ms}
    return await node.control("schedule.times", asked)


@ROUTES.on("POST", "/v1/schedules/{schedule}/trigger", _CHANGE, _STARTED, 404, ok=202)
async def trigger_schedule(node: Node, schedule: str, body: Trigger) -> object:
    """Run a schedule now

    Also while it is paused. `started`: ids; none if it waits for the run before, or does not run.
    """
    return await node.control("schedule.trigger", {**body.given(), "name": schedule})


@ROUTES.on("POST", "/v1/schedules/{schedule}/backfill", _CHANGE, _STARTED, 404, 413, ok=202)
async def backfill_schedule(node: Node, schedule: str, body: Backfill) -> object:
    """Run a schedule for times that have passed

    For each of its times in the range: one after the other, if `overlap` is left out.
    """
    return await node.control("schedule.backfill", {**body.given(), "name": schedule})


@ROUTES.on("GET", "/v1/pauses", READ_CLUSTER, items_of(_PAUSE))
async def list_pauses(node: Node) -> Plain:
    """List what is paused

    By whom, since when and why.
    """
    return {"items": await node.control("pause.list", {})}


@ROUTES.on("POST", "/v1/pauses", _PAUSES, _PAUSE, 404, 409)
async def pause(node: Node, me: Me, body: Pause) -> object:
    """Pause a procedure, a type, a queue, a pool or a schedule

    No step of it begins any more; steps under way come to their end. 409 `ENDED`, `PAUSES_FULL`.
    """
    return await node.control("pause.set", acted(me, body.given()))


@ROUTES.on("DELETE", "/v1/pauses/{kind}/{paused}", _RESUMES, OBJECT, 404)
async def resume(
    node: Node,
    me: Me,
    kind: str,
    paused: str,
    actor: Annotated[TextOrNone, Query(description="Who does it.")] = None,
) -> object:
    """Let something go on that is paused

    404 `NOT_PAUSED`.
    """
    said = {"kind": kind, "name": paused, **({"actor": actor} if actor else {})}
    return await node.control("pause.end", acted(me, said))
