"""Procedures: started, sent signals, looked at, operated on."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Body as AnyBody
from fastapi import Depends, Header, Query
from pydantic import Field

from kv.base import limits
from kv.base.rights import LOOPBACK, Action, Identity, Kind, is_named
from kvorum.api.model import ProcedureInfo
from kvorum.api.submissions import needed
from kvorum.http.routes.declaring import (
    As,
    Asked,
    Body,
    BoolOrNone,
    Here,
    Id,
    Me,
    Node,
    Plain,
    Routes,
    Services,
    Text,
    TextOrNone,
    digits,
    submitter,
    types_of,
)
from kvorum.http.routes.rights import OPERATE_CLUSTER, READ_CLUSTER, SELF, Right
from kvorum.http.routes.route import OBJECT, TS, items_of, object_of
from kvorum.http.wire.fields import Schema, integer, one_of, snapshot, wrong
from kvorum.http.wire.request import Request
from procedures.engine.client import Earlier
from procedures.pools.bulk import BULK, OPTIONS

ROUTES: Final = Routes("procedures")
LOCK_ROUTES: Final = Routes("locks")

_TEXT: Final[Schema] = {"type": "string"}
_ID: Final = object_of(id=_TEXT)
_SURGERY: Final = object_of(
    id=_TEXT,
    what=_TEXT,
    dry_run={"type": "boolean"},
    changed={"type": "boolean"},
    count={"type": "integer"},
    procedures={"type": "array", "items": OBJECT},
)
_PROCEDURE: Final = object_of(
    id=_TEXT,
    name=_TEXT,
    state=_TEXT,
    step={"type": ["string", "null"]},
    steps={"type": "array", "items": OBJECT},
    locks={"type": "array", "items": {}},
    result={},
    error=OBJECT,
)
_EXPLAINED: Final = object_of(
    id=TS,
    name=_TEXT,
    state=_TEXT,
    step=_TEXT,
    sentence=_TEXT,
    waits={"type": "array", "items": OBJECT},
)
_SENT: Final = object_of(sent={"type": "boolean"})
_ANSWER: Final = object_of(result={})
_UPDATED: Final = OBJECT
_EVENTS: Final = object_of(
    items={"type": "array", "items": OBJECT},
    after={"type": "integer"},
    ended={"type": "boolean"},
)
_COMPLETED: Final = object_of(completed={"type": "boolean"})
_SUBMIT_NAMED: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE, "{name}")
_READ: Final = Right(Action.READ, Kind.PROCEDURE_TYPE, "{id}")
_SUBMIT: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE, "{id}")
_COMPLETE: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE, "<token>")
_OPERATE: Final = Right(Action.OPERATE, Kind.PROCEDURE_TYPE, "{id}")
_STEAL: Final = Right(Action.OPERATE, Kind.LOCK, "<resource>")

_READ_NAMED: Final = Right(Action.READ, Kind.PROCEDURE_TYPE, "{name}")
_OPERATE_NAMED: Final = Right(Action.OPERATE, Kind.PROCEDURE_TYPE, "{name}")
_VERSION_MAX: Final = (1 << 32) - 1
_PRIORITY_MAX: Final = limits.PROCEDURE_PRIORITY_MAX
FIRST: Final = "The higher one begins first."
WHERE: Final = "In which it waits for its turn."
WORKERS: Final = "Which workers run it."
_KEY: Final = "Of one key its queue runs one at a time, in order."
_MS: Final = digits(0, limits.PROCEDURE_TIMEOUT_MS_MAX)


class Signal(Body):
    name: Text = Field(description="Which signal: its step takes it by this name.")
    payload: Any = Field(None, description="Plain data for the step.")
    key: TextOrNone = Field(None, description="The same key is sent once.")


class SignalWithStart(Body):
    nonce: Text = Field(description="Which procedure: it is started if there is none.")
    args: Any = Field(None, description="Its arguments, if it is started.")
    signal: Text = Field(description="Which signal: its step takes it by this name.")
    payload: Any = Field(None, description="Plain data for the step.")
    key: TextOrNone = Field(None, description="The same key is sent once.")
    queue: TextOrNone = Field(None, description=WHERE)
    priority: Annotated[int | None, As(integer(-_PRIORITY_MAX, _PRIORITY_MAX))] = Field(
        None, description=FIRST
    )
    pool: TextOrNone = Field(None, description=WORKERS)


class Question(Body):
    args: Any = Field(None, description="What the query is called with.")


class Change(Body):
    args: Any = Field(None, description="Plain data for the step that takes it.")
    key: Text = Field(description="The same key is carried out once, and has the same answer.")
    wait_ms: Annotated[int | None, As(integer(0, limits.UPDATE_WAIT_MS))] = Field(
        None, description="Wait so long for its answer; not at all if left out."
    )


class Completion(Body):
    token: Text = Field(description="What `ctx.external()` gave.")
    result: Any = Field(None, description="How it ended well …")
    error: Any = Field(None, description="… or not.")


class Limit(Body):
    name: Text = Field(description="Of a queue, a type or a pool.")
    kind: Annotated[str | None, As(one_of("queue", "type", "pool"))] = Field(
        None, description="queue if left out."
    )
    max_concurrent: Annotated[int | None, As(integer(0, limits.PROCEDURE_CONCURRENT_MAX))] = Field(
        None, description="Begun and not ended; 0 = any number."
    )
    rate_per_s: Any = Field(None, description="Begun per second; 0 = any number.")
    rate: TextOrNone = Field(None, description="The same as so many per time: `100/1h`.")
    burst: Annotated[int | None, As(integer(0, limits.PROCEDURE_RATE_MAX))] = Field(
        None, description="So many at once after a pause; 0 = one second's worth."
    )
    key_concurrent: Annotated[int | None, As(integer(0, limits.PROCEDURE_CONCURRENT_MAX))] = Field(
        None, description="Of each key of a queue: 1 if left out; 0 = any number."
    )
    key_rate_per_s: Any = Field(None, description="Of each key of a queue.")
    key_rate: TextOrNone = Field(None, description="The same as so many per time.")
    key_burst: Annotated[int | None, As(integer(0, limits.PROCEDURE_RATE_MAX))] = Field(
        None, description="Of each key of a queue."
    )
    aging_ms: Annotated[int | None, As(integer(0, limits.PROCEDURE_TIMEOUT_MS_MAX))] = Field(
        None, description="Waiting for so long counts as one priority; 0 = not."
    )
    weights: Any = Field(None, description="Key → how many turns it has, in place of 1.")


class Versions(Body):
    default: Annotated[int | None, As(integer(0, _VERSION_MAX))] = Field(
        None, description="What new ones begin with; 0 = the newest that is not drained."
    )
    ramp: Annotated[int | None, As(integer(0, _VERSION_MAX))] = Field(
        None, description="But a share of them this one; 0 = none."
    )
    percent: Any = Field(None, description="That share.")
    drain: Annotated[int | None, As(integer(0, _VERSION_MAX))] = Field(
        None, description="No new ones begin with this one any more."
    )
    undrain: Annotated[int | None, As(integer(0, _VERSION_MAX))] = Field(
        None, description="They may again."
    )


class MoveVersion(Body):
    to: Annotated[int, As(integer(1, _VERSION_MAX))] = Field(
        description="The version to go on with."
    )
    from_: Annotated[int | None, As(integer(0, _VERSION_MAX))] = Field(
        None, alias="from", description="Only those of this version; all others if left out."
    )
    after: TextOrNone = Field(None, description="Only those with greater ids.")
    dry_run: BoolOrNone = Field(None, description="Change nothing, only tell what would change.")
    partial: BoolOrNone = Field(None, description="Move those that can, though others cannot.")
    reason: TextOrNone = Field(None, description="Why: kept in the audit.")
    actor: TextOrNone = Field(
        None, description="Who does it, while the cluster has no users: `http` if left out."
    )


class Surgery(Body):
    reason: Text = Field(description="Why: kept in the audit.")
    actor: TextOrNone = Field(
        None, description="Who does it, while the cluster has no users: `http` if left out."
    )
    dry_run: BoolOrNone = Field(None, description="Change nothing, only tell what would change.")
    key: TextOrNone = Field(None, description="The same key acts once.")


class Bypass(Surgery):
    override: BoolOrNone = Field(None, description="Also while a step of it is under way.")
    recursive: BoolOrNone = Field(None, description="With everything below it that has not ended.")


class Retry(Surgery):
    step: TextOrNone = Field(
        None, description="Go on from this step; the one that it has if left out."
    )


class Fork(Surgery):
    step: TextOrNone = Field(
        None, description="At this step, or call of a workflow (name, or `#3`)."
    )
    state: Any = Field(None, description="Another state (a map); that which there is, if left out.")
    args: Any = Field(None, description="Other arguments.")


class Reset(Fork):
    undo: Annotated[str | None, As(one_of("undo", "keep"))] = Field(
        None, description="What was done from there on: undone first (if left out), or kept."
    )
    children: Annotated[str | None, As(one_of("refuse", "end"))] = Field(
        None, description="Those that have not ended: refuse (if left out), or end them with it."
    )


class Bulk(Surgery):
    what: Annotated[str, As(one_of(*OPTIONS))] = Field(description="Which action.")
    filter: Any = Field(description="On which procedures: what GET /v1/search takes, as a map.")
    options: Any = Field(None, description="Of the action.")


class Rule(Body):
    type: TextOrNone = Field(None, description="Of this type; of any, if left out.")
    state: TextOrNone = Field(None, description="That ended so; in any way, if left out.")
    keep_ms: Annotated[int | None, As(integer(0, limits.PROCEDURE_TIMEOUT_MS_MAX))] = Field(
        None, description="So long after the end."
    )
    most: Annotated[int | None, As(integer(0, limits.RETENTION_MOST_MAX))] = Field(
        None, description="So many of a type and state, the newest."
    )


class Steal(Surgery):
    resource: Text = Field(description="What is locked.")
    holder: TextOrNone = Field(None, description="Only from this procedure; from all if left out.")


@ROUTES.on("POST", "/v1/procedures/{name}", _SUBMIT_NAMED, _ID, 404, 409, 413, ok=202)
async def start_procedure(
    node: Node,
    me: Me,
    name: str,
    args: Annotated[Any, AnyBody(description="Any value.")] = None,
    nonce: Annotated[TextOrNone, Header(alias="Idempotency-Key", description="Nonce.")] = None,
    traceparent: Annotated[
        TextOrNone, Header(description="The span that it belongs to (W3C Trace Context).")
    ] = None,
    queue: Annotated[TextOrNone, Query(description=WHERE)] = None,
    priority: Annotated[
        int | None, digits(-_PRIORITY_MAX, _PRIORITY_MAX), Query(description=FIRST)
    ] = None,
    delay_ms: Annotated[
        int | None,
        digits(0, limits.PROCEDURE_TIMEOUT_MS_MAX),
        Query(description="Begin so much later."),
    ] = None,
    at_ms: Annotated[
        int | None, digits(0, 1 << 53), Query(description="Begin then, in ms since 1970.")
    ] = None,
    pool: Annotated[TextOrNone, Query(description=WORKERS)] = None,
    key: Annotated[TextOrNone, Query(description=_KEY)] = None,
    dedup: Annotated[TextOrNone, Query(description="The same one starts nothing …")] = None,
    dedup_ms: Annotated[int | None, _MS, Query(description="… for so long.")] = None,
    debounce_ms: Annotated[
        int | None, _MS, Query(description="Begin so long after the last one of its key …")
    ] = None,
    debounce_max_ms: Annotated[
        int | None, _MS, Query(description="… at most so long after the first …")
    ] = None,
    debounce: Annotated[
        TextOrNone, Query(description="… with the arguments of the `last` or the `first`.")
    ] = None,
    needs: Annotated[
        TextOrNone, Query(description='What it needs of a worker, a JSON map: `{"gpu": 1}`.')
    ] = None,
    attributes: Annotated[
        TextOrNone, Query(description="By which it can be found: a JSON object.")
    ] = None,
) -> Plain:
    """Start a procedure

    The body is its arguments. The header `Idempotency-Key` is its nonce: the same one gives the
    same id as long as the procedure is kept; of another procedure, or with other arguments, it is
    refused (409 `NONCE_REUSED`). With `dedup_ms` or `debounce_ms` the answer has `earlier`, why it
    is one that was started before (`deduplicated`, `debounced`), empty if it is a new one.
    """
    if nonce is not None and not 0 < len(nonce) <= limits.NONCE_CHARS_MAX:
        raise wrong("Idempotency-Key", f"1 to {limits.NONCE_CHARS_MAX} characters", nonce)
    given = {
        "queue": queue,
        "pool": pool,
        "delay_ms": delay_ms,
        "at_ms": at_ms,
        "priority": priority,
        "trace": traceparent,
        "key": key,
        "dedup": dedup,
        "dedup_ms": dedup_ms,
        "debounce_ms": debounce_ms,
        "debounce_max_ms": debounce_max_ms,
        "debounce": debounce,
        "needs": _needs(needs),
    }
    options: Plain = {option: value for option, value in given.items() if value is not None}
    if attributes is not None:
        options["attributes"] = _object("attributes", attributes)
    options |= submitter(me)
    id = await node.submit(name, args, nonce, options or None)
    return {"id": str(int(id)), **({"earlier": id.why} if isinstance(id, Earlier) else {})}


def _needs(text: str | None) -> object:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise wrong("needs", "a JSON map", text) from None


@ROUTES.on(
    "POST", "/v1/procedures/{name}/signal-with-start", _SUBMIT_NAMED, _ID, 404, 409, 413, ok=202
)
async def signal_with_start(node: Node, me: Me, name: str, body: SignalWithStart) -> Plain:
    """Send a signal to a procedure that is started if need be

    Both in one write: none of this nonce is there without its signal. One that is there gets it as
    any other, as long as it is kept: 409 `ENDED` if it has ended.
    """
    said = body.given()
    signal = {"name": said.pop("signal"), "payload": said.pop("payload", None)}
    signal["key"] = said.pop("key", None)
    args, nonce = said.pop("args", None), said.pop("nonce")
    options = {**said, **submitter(me), "signal": signal}
    return {"id": str(await node.submit(name, args, nonce, options))}


@ROUTES.on("POST", "/v1/procedures/{id}/signals", _SUBMIT, _SENT, 404, 409, 413)
async def send_signal(node: Node, id: Id, body: Signal) -> object:
    """Send a signal

    Kept until a step takes it with `ctx.receive(name)`. `sent` false: the same key was sent before.
    409 `ENDED`.
    """
    return await node.control("signal", {**body.given(), "id": id})


@ROUTES.on("POST", "/v1/procedures/{id}/queries/{name}", _READ, _ANSWER, 404, 409, 413)
async def ask_procedure(node: Node, id: Id, name: str, body: Question) -> object:
    """Ask a procedure

    A query (`@kvorum.query`) answers from what the procedure has stored, whatever it does
    meanwhile. 409: it raised something (`QUERY_FAILED`, or its own code).
    """
    return await node.control("query", {**body.given(), "id": id, "name": name})


@ROUTES.on("POST", "/v1/procedures/{id}/updates/{name}", _SUBMIT, _UPDATED, 404, 409, 413)
async def update_procedure(node: Node, id: Id, name: str, body: Change) -> object:
    """Update a running procedure

    Kept until a step takes it, once for each key. `done` false: it has no answer yet, ask again
    with the same key. Else `result`, or the `error` (`code`, `message`) that it was refused with.
    409 `ENDED`: it ended without an answer.
    """
    return await node.control("update", {**body.given(), "id": id, "name": name})


@ROUTES.on("GET", "/v1/procedures/{id}/events", _READ, _EVENTS, 404)
async def procedure_events(
    node: Node,
    id: Id,
    after: Annotated[
        int | None, digits(0, (1 << 53) - 1), Query(description="Only those above this position.")
    ] = None,
    limit: Annotated[
        int | None,
        digits(1, limits.PROCEDURE_EVENTS_PAGE_MAX),
        Query(description="So many at most; 100 if left out."),
    ] = None,
    name: Annotated[TextOrNone, Query(description="Only those of this name.")] = None,
    wait_ms: Annotated[
        int | None,
        digits(0, limits.WAIT_MS_MAX),
        Query(description="Wait so long if there is none."),
    ] = None,
) -> object:
    """Read what a procedure emits

    Each event has `position`, `name`, `at_ms` and `value`. `after`: ask on with it. `ended`: there
    are no more, and none will come. With `Accept: text/event-stream` they come as a stream of
    server-sent events `emitted`, with their position as id, so `Last-Event-ID` goes on; `end` is
    the last one.
    """
    asked = {"id": id, "after": after, "limit": limit, "name": name, "wait_ms": wait_ms}
    return await node.control("events", asked)


@ROUTES.on("POST", "/v1/completions", _COMPLETE, _COMPLETED, 404, 409, 413)
async def complete(node: Node, body: Completion) -> object:
    """End what an outside system was asked

    With a result or an error. `completed` false: it was before, in the same way; in another way:
    409 `ALREADY_COMPLETED`.
    """
    return await node.control("complete", body.given())


@ROUTES.on("GET", "/v1/queues", READ_CLUSTER, items_of(OBJECT))
async def list_queues(node: Node) -> Plain:
    """List queues and limits

    Of everything that has a limit or waits for one: `running`, `waiting`.
    """
    return {"items": await node.control("queue.list", {})}


@ROUTES.on("GET", "/v1/queues/{queue}", READ_CLUSTER, OBJECT)
async def show_queue(node: Node, queue: str) -> object:
    """Look into a queue

    Its settings; `running`, `waiting`, `oldest_ms`; and of each of its `keys`, those with most
    first, the same, and which procedure is `next`.
    """
    return await node.control("queue.show", {"name": queue})


@ROUTES.on("POST", "/v1/queues", OPERATE_CLUSTER)
async def set_limit(node: Node, body: Limit) -> object:
    """Limit a queue, a type or a pool

    What is left out is as if it had never been set; zeros remove the limit.
    """
    return await node.control("queue.set", body.given())


@ROUTES.on("GET", "/v1/procedures/{id}", _READ, _PROCEDURE, 404, 410)
async def look_at_procedure(
    node: Node,
    id: Id,
    wait_ms: Annotated[
        int, digits(0, limits.WAIT_MS_MAX), Query(description="Wait so long for its end.")
    ] = 0,
    at: Annotated[
        TextOrNone,
        Query(description="What its record said then: a version, `-10s`, or a time."),
    ] = None,
) -> Plain:
    """Look at a procedure

    With `at`: as it was then, also one that is forgotten by now; 410 `SNAPSHOT_TOO_OLD`.
    `result` when it succeeded, `error` when it did not. The result is kept for a while. `children`,
    if there are any: each round as `{"first", "count"}`, ids from `first`. Of types of users also
    `args` and `ctx_state` (`args_bytes`, `ctx_state_bytes` if they are large), and in `error` and
    `retrying` the place in their code: `step`, `file`, `line`, `traceback`. `retry`: the step has
    failed so often (`failed`, `of` so many, null: any number) and runs again at `due_ms`.
    """
    if at is not None:
        moment = snapshot(at, "at")
        return _shown(ProcedureInfo.of(await node.control("past", {"id": id, "at": moment})))
    return _shown(await node.procedure(id, wait_ms))


@ROUTES.on("GET", "/v1/procedures", SELF, items_of(_PROCEDURE, before=_TEXT))
async def list_procedures(
    node: Node,
    asked: Asked,
    here: Here,
    state: Annotated[TextOrNone, Query(description="Only in this state.")] = None,
    owner: Annotated[TextOrNone, Query(description="Only of this owner.")] = None,
    name: Annotated[TextOrNone, Query(description="Only of this name.")] = None,
    before: Annotated[
        int | None, digits(1, (1 << 64) - 1), Query(description="Only those with smaller ids.")
    ] = None,
) -> Plain:
    """List procedures

    The 100 newest of those that run and of the ended ones that are kept, without `steps`: of types
    that you may read, submit or operate on. `before` is in the answer if it ends early, after so
    many that do not fit: ask on with it.
    """
    types = types_of(asked, here)
    if types is not None and not (types if name is None else is_named(name, types)):
        return {"items": []}
    page, before = await node.procedure_page(
        state=state, owner=owner, name=name, before=before, seen=types
    )
    items = [_shown(info) for info in page]
    if not before or len(items) >= limits.PROCEDURE_LIST_DEFAULT:
        return {"items": items}
    return {"items": items, "before": str(before)}


def _object(name: str, text: str) -> Plain:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise wrong(name, "a JSON object", text)
    return found


_FOUND: Final = object_of(
    items={"type": "array", "items": _PROCEDURE}, token=_TEXT, looked={"type": "integer"}
)
_COUNTS: Final = object_of(
    items={"type": "array", "items": OBJECT},
    count={"type": "integer"},
    more={"type": "boolean"},
)
_Since = Annotated[int | None, digits(0, 1 << 53), Query(description="From then on (ms).")]
_Until = Annotated[int | None, digits(0, 1 << 53), Query(description="Before then (ms).")]


class _Search(NamedTuple):
    """What a request searches for, by the names of procedures/engine/filters.py."""

    wanted: Plain


async def _searched(
    type: Annotated[list[str] | None, Query(description="Of these types.")] = None,
    state: Annotated[list[str] | None, Query(description="In these states.")] = None,
    owner: Annotated[TextOrNone, Query(description="Of this owner.")] = None,
    queue: Annotated[TextOrNone, Query(description="Of this queue.")] = None,
    pool: Annotated[TextOrNone, Query(description="Of this pool.")] = None,
    schedule: Annotated[TextOrNone, Query(description="Started by this schedule.")] = None,
    parent: Annotated[TextOrNone, Query(description="Children of this one (id).")] = None,
    error: Annotated[
        TextOrNone, Query(description="The beginning of an error's code, class or message.")
    ] = None,
    submitted_from: _Since = None,
    submitted_to: _Until = None,
    ended_from: _Since = None,
    ended_to: _Until = None,
    where: Annotated[
        list[str] | None,
        Query(description="Conditions on attributes: `customer=ada`, `amount>=100`, `city^=New`."),
    ] = None,
) -> _Search:
    said = dict(locals())
    return _Search({name: value for name, value in said.items() if value is not None})


Searched = Annotated[_Search, Depends(_searched)]


@ROUTES.on("GET", "/v1/search", SELF, _FOUND, 413)
async def search_procedures(
    node: Node,
    asked: Asked,
    here: Here,
    searched: Searched,
    limit: Annotated[
        int | None, digits(1, limits.PROCEDURE_PAGE_MAX), Query(description="100 if left out.")
    ] = None,
    token: Annotated[TextOrNone, Query(description="Of the page before.")] = None,
) -> Plain:
    """Search for procedures

    Of types that you may read; of others the answer says nothing. All conditions hold. What has not
    ended comes first, the newest first; then what has, the last to end first; by attributes,
    schedule or parent the newest submission first. `token`: ask on with it, also if `items` is
    short; `""`: these are all.
    """
    seen = _seen(asked, here)
    if seen is None:
        return {"items": [], "token": "", "looked": 0}
    wanted = {**searched.wanted, "limit": limit, "token": token, **seen}
    return dict(await node.control("search", wanted))


@ROUTES.on("GET", "/v1/search/count", SELF, _COUNTS, 413)
async def count_procedures(node: Node, asked: Asked, here: Here, searched: Searched) -> Plain:
    """Count procedures

    By type and state, of types that you may read. `more`: of very many not all are counted.
    """
    seen = _seen(asked, here)
    if seen is None:
        return {"items": [], "count": 0, "more": False}
    return dict(await node.control("count", {**searched.wanted, **seen}))


def _seen(asked: Request, here: Services) -> Plain | None:
    """What a list is asked for besides; None: he may see no type of procedures."""
    types = types_of(asked, here)
    if types is None:
        return {}
    return {"seen": types} if types else None


@ROUTES.on("POST", "/v1/procedures/{id}/abort", _OPERATE, _SURGERY, 404, 409, ok=202)
async def abort(node: Node, me: Me, id: Id, body: Surgery) -> object:
    """Abort a procedure

    It rolls back what it did; fine for one that was aborted already. A step under way gets a moment
    to end; then what it still writes is refused. 409 `NOT_ABORTABLE`: it has ended, it fails
    already, or it is past its point of no return.
    """
    return await node.control("abort", {**_surgery(me, body), "id": id})


@ROUTES.on("POST", "/v1/procedures/{id}/bypass", _OPERATE, _SURGERY, 404, 409, 413, ok=202)
async def bypass(node: Node, me: Me, id: Id, body: Bypass) -> object:
    """End a procedure where it stands

    Nothing more of it runs, nothing is undone, its locks end; its parent goes on. 409 `UNDER_WAY`:
    a step runs (`override`); `HAS_CHILDREN`: `recursive`; `NOT_BYPASSABLE`: it has ended.
    """
    return await node.control("bypass", {**_surgery(me, body), "id": id})


@ROUTES.on("POST", "/v1/procedures/{id}/retry", _OPERATE, _SURGERY, 404, 409, ok=202)
async def retry(node: Node, me: Me, id: Id, body: Retry) -> object:
    """Let a procedure go on at once

    From the step that it has, or from `step`; also while it rolls back, as long as nothing is
    undone. 409 `NOT_RETRYABLE`.
    """
    return await node.control("retry", {**_surgery(me, body), "id": id})


@ROUTES.on("POST", "/v1/procedures/{id}/reset", _OPERATE, _SURGERY, 404, 409, 413, ok=202)
async def reset(node: Node, me: Me, id: Id, body: Reset) -> object:
    """Have a procedure go on from an earlier step

    Also one that has ended and is kept. `redone`, `kept`, `undone`: what that means. With `args` or
    `state` you need submit on its type, too. 409 `NOT_RESETTABLE`, `HAS_CHILDREN`.
    """
    return await node.control("reset", {**_surgery(me, body), "id": id})


@ROUTES.on("POST", "/v1/procedures/{id}/fork", _OPERATE, _SURGERY, 404, 409, 413, ok=202)
async def fork(node: Node, me: Me, id: Id, body: Fork) -> object:
    """Begin a new procedure at a step of another one

    That one stays as it is. `forked`: the id; its owner is who asks. With `args` or `state` you
    need submit on its type, too. 409 `NOT_RESETTABLE`.
    """
    return await node.control("fork", {**_surgery(me, body), **submitter(me), "id": id})


@ROUTES.on("POST", "/v1/bulk", OPERATE_CLUSTER, OBJECT, 413, ok=202)
async def bulk(node: Node, asked: Asked, me: Me, body: Bulk) -> object:
    """Act on all procedures that fit a filter

    By a procedure, whose `id` is answered; its result: `matched`, `changed`, `unchanged`,
    `refused`, `errors`. With `dry_run`: `count`, and the first `items`. To `signal`, and to reset
    with `args` or `state`, you need submit on the types that the filter names, or on all.
    """
    if asked.may is not None:
        for actions, resource in needed(BULK, body.given()):
            asked.may(actions, resource)
    return await node.control("bulk", _surgery(me, body))


@ROUTES.on("GET", "/v1/retention", READ_CLUSTER, items_of(OBJECT))
async def list_rules(node: Node) -> Plain:
    """List rules of retention

    How long ended procedures are kept, and how many.
    """
    return {"items": await node.control("retention.list", {})}


@ROUTES.on("POST", "/v1/retention", OPERATE_CLUSTER)
async def set_rule(node: Node, body: Rule) -> object:
    """Say how long ended procedures are kept

    `keep_ms`, `most`, or both, instead of what their declarations say. The most exact rule counts.
    """
    return await node.control("retention.set", body.given())


@ROUTES.on("DELETE", "/v1/retention", OPERATE_CLUSTER, OBJECT, 404)
async def remove_rule(
    node: Node,
    type: Annotated[TextOrNone, Query(description="Of this type.")] = None,
    state: Annotated[TextOrNone, Query(description="In this state.")] = None,
) -> object:
    """Remove a rule of retention

    404 `RULE_NOT_FOUND`.
    """
    said = {"type": type, "state": state}
    return await node.control("retention.remove", {k: v for k, v in said.items() if v is not None})


@ROUTES.on("GET", "/v1/procedures/{id}/explain", _READ, _EXPLAINED, 404)
async def explain(node: Node, id: Id) -> object:
    """What a procedure waits for

    `sentence` for people; `waits`: `kind`, `text`, `since_ms`, and who has it.
    """
    return await node.control("explain", {"id": id})


@LOCK_ROUTES.on("POST", "/v1/locks/steal", _STEAL, _SURGERY, 404)
async def steal_lock(node: Node, me: Me, body: Steal) -> object:
    """Take a lock away

    From who holds it: the next one gets it, late writes of the old one are refused. The old one
    queues up again. 404 `LOCK_NOT_HELD`.
    """
    return await node.control("steal", _surgery(me, body))


@ROUTES.on("GET", "/v1/audit", SELF, items_of(OBJECT, before={"type": "integer"}))
async def audit(
    node: Node,
    asked: Asked,
    here: Here,
    id: Annotated[TextOrNone, Query(description="Only of this procedure.")] = None,
    limit: Annotated[
        int | None,
        digits(1, limits.PROCEDURE_PAGE_MAX),
        Query(description="100 if left out."),
    ] = None,
    before: Annotated[
        int | None, digits(1, 1 << 53), Query(description="Only entries with smaller numbers.")
    ] = None,
) -> Plain:
    """What was done to procedures

    By whom, when and why, the newest first, with the states before and after: of types that you
    may read, submit or operate on. `before` is in the answer if it ends early, after so many that
    do not fit: ask on with it.
    """
    seen = _seen(asked, here)
    if seen is None:
        return {"items": []}
    most = limit or limits.PROCEDURE_LIST_DEFAULT
    page = await node.control("audit.page", {"id": id, "limit": most, "before": before, **seen})
    if len(page["items"]) >= most or not page["before"]:
        return {"items": page["items"]}
    return {"items": page["items"], "before": page["before"]}


@ROUTES.on("GET", "/v1/versions", SELF, items_of(OBJECT))
async def list_versions(
    node: Node,
    asked: Asked,
    here: Here,
    name: Annotated[TextOrNone, Query(description="Only of this type.")] = None,
) -> Plain:
    """List versions of procedure types

    Of types that you may read: `default`, `ramp`, `percent`, and of each of its `versions` how many
    are `live`, the share of new ones (`new_percent`), which `workers` have it, and whether these
    are `safe_to_stop` (`why_not`).
    """
    seen = _seen(asked, here)
    if seen is None or not (name is None or is_named(name, seen.get("seen", "*"))):
        return {"items": []}
    found = await node.control("version.page", {"name": name, **seen})
    return {"items": found["items"]}


@ROUTES.on("POST", "/v1/versions/{name}", _OPERATE_NAMED, OBJECT, 404)
async def set_versions(node: Node, name: str, body: Versions) -> object:
    """Choose the version that new procedures begin with

    What is left out stays as it is. A share is by the id: who has the new version at 10 percent
    has it at 20, too.
    """
    return await node.control("version.set", {**body.given(), "name": name})


@ROUTES.on("POST", "/v1/versions/{name}/rollback", _OPERATE_NAMED, OBJECT, 404)
async def roll_back_version(node: Node, name: str) -> object:
    """Let new procedures begin with the version before

    A ramp ends; without one the default is what it was before.
    """
    return await node.control("version.rollback", {"name": name})


@ROUTES.on("POST", "/v1/versions/{name}/move", _OPERATE_NAMED, OBJECT, 404, 409)
async def move_to_version(node: Node, me: Me, name: str, body: MoveVersion) -> object:
    """Let live procedures go on with another version

    By the rule of `kvorum proc check-upgrade`; 1,000 at a time: unless `after` of the answer is
    "0", ask on with it. 409 `NOT_MOVABLE`: some cannot, whose ids are in
    `refused` of its details, and none is moved (`partial`: the others are).
    """
    said = body.given()
    actor = said.get("actor", "http") if me.credential == LOOPBACK.credential else me.name
    return await node.control("version.move", {**said, "actor": actor, "name": name})


@ROUTES.on("GET", "/v1/workers", READ_CLUSTER, items_of(OBJECT))
async def list_workers(node: Node) -> Plain:
    """List workers

    Processes that run procedures of their pool: `slots`, `running`, `procedures` (ids), `types`
    (`name@version`), `silent_ms`.
    """
    return {"items": await node.workers()}


def _surgery(me: Identity, body: Surgery) -> Plain:
    return acted(me, body.given())


def acted(me: Identity, said: Plain) -> Plain:
    """With who does it: what a client says of itself counts only where it could not prove it."""
    said = {"actor": "http", **said}
    return said if me.credential == LOOPBACK.credential else {**said, "actor": me.name}


def _shown(info: ProcedureInfo) -> Plain:
    """As docs/reference/http.md has it: `result` and `error` only when there is one."""
    shown: Plain = {
        **info.extra,
        "id": str(info.id),
        "name": info.name,
        "state": info.state,
        "step": info.step,
        "locks": info.locks,
    }
    if info.steps is not None:
        shown["steps"] = info.steps
    if info.state == "SUCCESS":
        shown["result"] = info.result
    if info.error is not None:
        shown["error"] = info.error
    return shown
