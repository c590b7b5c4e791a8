"""Workers that speak HTTP: tasks are leased, kept alive, committed, failed (leases.py; the protocol
is docs/reference/worker-protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused
from kv.base.rights import Action, Kind, Resource
from kvorum.api.submissions import needed
from kvorum.http.routes import leases
from kvorum.http.routes.declaring import (
    As,
    Asked,
    Body,
    Here,
    Plain,
    Routes,
    Services,
    Text,
    TextOrNone,
)
from kvorum.http.routes.leases import Leases
from kvorum.http.routes.rights import Right
from kvorum.http.routes.route import OBJECT, object_of
from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.fields import BOOL, TEXT, array, integer, one_of, record
from procedures.engine.context import StepContext

ROUTES: Final = Routes("workers")
_RUN: Final = Right(Action.RUN, Kind.POOL, "{pool}")
_WRITE: Final = frozenset({Action.WRITE})
_READ: Final = frozenset({Action.READ})
_MS: Final = integer(0, limits.PROCEDURE_TIMEOUT_MS_MAX)
_ANY: Final = fields.Kind(lambda value, _where: value, {})


def _optional(name: str, kind: fields.Kind, text: str) -> fields.Field:
    return fields.Field(name, kind, text, False)


_POLICY: Final = (
    _optional("attempts", integer(0, limits.PROCEDURE_ATTEMPTS_MAX), "0 = any number."),
    _optional("first_ms", _MS, "The first pause …"),
    _optional("factor", fields.Kind(lambda value, _where: value, {"type": "number"}), "… times."),
    _optional("most_ms", _MS, "… up to this."),
    _optional("jitter", fields.Kind(lambda value, _where: value, {"type": "number"}), "0 to 1."),
    _optional("never", array(TEXT, limits.PROCEDURE_NEVER_MAX), "Codes that are not repeated."),
)
_STEP: Final = (
    fields.Field("name", TEXT, "Of the step; the first one begins."),
    _optional("undo", TEXT, "What takes it back: one of `undos`."),
    _optional("point_of_no_return", BOOL, "Nothing is undone after it."),
    _optional("undo_partial", BOOL, "Undone also when it failed itself."),
    _optional("deadline_ms", _MS, "For all its runs."),
    _optional("attempt_ms", _MS, "For one run."),
    _optional("heartbeat_ms", _MS, "One run may be silent for so long."),
    _optional("retry", record(_POLICY), "Its policy; without one its first failure counts."),
)
_TYPE: Final = (
    fields.Field("name", TEXT, "Of the procedure."),
    _optional("version", integer(1, 1 << 31), "Of the declaration; 1."),
    fields.Field("steps", array(record(_STEP), 1_000), "All of them."),
    _optional("undos", array(TEXT, 1_000), "Names of undos."),
    _optional("timeout_ms", _MS, "For the whole; 0 = any time."),
    _optional("retention_ms", _MS, "How long the result is kept."),
    _optional("queue", TEXT, "Whose limits it obeys."),
    _optional("retry", record(_POLICY), "The policy of steps without one."),
)
_OUTCOME: Final = (
    fields.Field("do", one_of(*leases.OUTCOMES), "What comes next."),
    _optional("step", TEXT, "next: this step."),
    _optional("result", _ANY, "done: the result."),
    _optional("delay_ms", _MS, "again: after so long."),
    _optional("then", TEXT, "suspend, children: this step follows."),
    _optional("signal", TEXT, "suspend: until a signal of this name, which is taken with `take` …"),
    _optional("token", TEXT, "… or until this token is completed …"),
    _optional("event", TEXT, "… or this event is signalled."),
    _optional("timeout_ms", _MS, "suspend: or after so long."),
    _optional("code", TEXT, "fail: the error."),
    _optional("message", TEXT, "fail: in words."),
    _optional("details", _ANY, "fail: plain data."),
    _optional(
        "children",
        array(record((fields.Field("name", TEXT, "."), _optional("args", _ANY, "."))), 10_000),
        "children: these procedures.",
    ),
)
_EMIT: Final = (fields.Field("name", TEXT, "."), _optional("value", _ANY, "."))


class Lease(Body):
    worker: Text = Field(description="Its name, of its own choice.")
    types: Annotated[list[Any] | None, As(array(record(_TYPE), limits.WORKER_TYPES_MAX))] = Field(
        None, description="What it runs; may be left out once it is known."
    )
    slots: Annotated[int | None, As(integer(1, limits.WORKER_SLOTS_MAX))] = Field(
        None, description="How many tasks it runs at once; said with its types."
    )
    take: Annotated[int | None, As(integer(0, limits.WORKER_SLOTS_MAX))] = Field(
        None, description="So many more at most; 1. 0: it only says that it lives."
    )
    wait_ms: Annotated[int | None, As(integer(0, limits.HTTP_LEASE_MS // 2))] = Field(
        None, description="Wait so long for the first one."
    )
    have: Annotated[list[Any] | None, As(array(TEXT, limits.WORKER_SLOTS_MAX))] = Field(
        None,
        description="The tasks that it has, until they are answered for. One that it was given and "
        "does not name, because an answer was lost, is given again after half a lease.",
    )


class Beat(Body):
    worker: Text = Field(description="Who says it.")
    details: Any = Field(None, description="For the next attempt.")


class Read(Body):
    worker: Text = Field(description="Who runs it.")
    ns: TextOrNone = Field(None, description="Namespace …")
    table: TextOrNone = Field(None, description="… table …")
    key: Annotated[bytes | None, As(fields.DATA)] = Field(None, description="… and key.")
    signal: TextOrNone = Field(None, description="Or take the next signal of this name.")
    token: TextOrNone = Field(None, description="Or see how this token was completed.")


class Commit(Body):
    worker: Text = Field(description="Who has run it.")
    outcome: Annotated[Any, As(record(_OUTCOME))] = Field(
        None, description="Of a step what comes next; of an undo left out."
    )
    state: Annotated[Any, As(fields.Kind(lambda value, where: _map(value, where), {}))] = Field(
        None, description="The new state, a map; as it was if left out."
    )
    writes: Annotated[list[Any] | None, As(array(record(fields.OP), limits.BATCH_OPS_MAX))] = Field(
        None, description="Puts and deletes, committed with the step."
    )
    emits: Annotated[
        list[Any] | None, As(array(record(_EMIT), limits.PROCEDURE_EVENTS_EMITTED_MAX))
    ] = Field(None, description="Events for those who follow the procedure.")
    signals: Annotated[list[Any] | None, As(array(TEXT, 1_000))] = Field(
        None, description="Events to wake others with."
    )


class Failure(Body):
    worker: Text = Field(description="Who has run it.")
    code: Text = Field(description="The error's code.")
    message: Text = Field(description="In words.")
    details: Annotated[Any, As(fields.Kind(lambda value, where: _map(value, where), {}))] = Field(
        None, description="Plain data."
    )


class Leave(Body):
    worker: Text = Field(description="Who leaves.")


def _map(value: object, where: str) -> object:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise fields.wrong(where, "an object", value)
    return dict(value)


@ROUTES.on("POST", "/v1/pools/{pool}/lease", _RUN, OBJECT, 409)
async def lease_tasks(here: Here, asked: Asked, pool: str, body: Lease) -> Plain:
    """Lease tasks

    Each is one execution of a step, or of an undo, for this worker alone, as long as it speaks at
    least every `lease_ms`. 409 `WORKER_UNKNOWN`: say `types` (again), this node does not know it.
    """
    workers, given = _workers(here), body.given()
    types = given.get("types") or []
    if types:
        await _check_types(here, asked, pool, types)
    slots = given.get("slots") or 1
    session = await workers.session(pool, body.worker, asked.identity.name, types, slots)
    take, wait_ms = given.get("take", 1), given.get("wait_ms") or 0
    tasks = await session.lease(take, wait_ms, given.get("have"))
    if wait_ms and asked.may is not None:  # the right may have been taken away meanwhile
        asked.may(frozenset({Action.RUN}), Resource(Kind.POOL, pool))
    return {"lease_ms": limits.HTTP_LEASE_MS, "tasks": [task.shown() for task in tasks]}


@ROUTES.on("POST", "/v1/pools/{pool}/tasks/{task}/heartbeat", _RUN, OBJECT, 409)
async def heartbeat(here: Here, asked: Asked, pool: str, task: str, body: Beat) -> Plain:
    """Say that a task is being run

    For steps with `heartbeat_ms`; `details` are for the next attempt. 409 `TASK_LOST`: drop it.
    """
    _, found = _workers(here).known(pool, task, asked.identity.name)
    found.ctx.heartbeat(body.details)
    return {}


@ROUTES.on(
    "POST",
    "/v1/pools/{pool}/tasks/{task}/commit",
    _RUN,
    object_of(state={"type": "string"}, step={"type": "string"}, error=OBJECT),
    403,
    409,
    413,
)
async def commit_task(here: Here, asked: Asked, pool: str, task: str, body: Commit) -> object:
    """Commit a task

    Its outcome, state, writes and events in one transaction: all of it, or nothing. The answer
    comes when that is stored: the `state` and `step` of the procedure, and its `error` if it fails.
    Writes need `write` on their tables, children `submit` on their types. 409 `TASK_LOST`: another
    worker has it, nothing of this counts; `CONDITION_FAILED` and the like: a write was refused.
    """
    session, found = _workers(here).known(pool, task, asked.identity.name)
    given = body.given()
    outcome = given.get("outcome")
    for child in (outcome or {}).get("children") or ():
        for actions, resource in needed(child["name"], child.get("args")):
            if asked.may is not None:
                asked.may(actions, resource)
    writes = [_write(asked, one) for one in given.get("writes") or ()]
    emits = [(one["name"], one.get("value")) for one in given.get("emits") or ()]
    how = leases.returned(
        found, outcome, given.get("state"), writes, emits, given.get("signals") or ()
    )
    return await session.end(found, how)


@ROUTES.on("POST", "/v1/pools/{pool}/tasks/{task}/read", _RUN, OBJECT, 403, 409)
async def read_for_task(here: Here, asked: Asked, pool: str, task: str, body: Read) -> Plain:
    """Read in the snapshot of a task

    A `key` of a table (`value`, `version`; needs `read` on it), the next signal of a name (`taken`:
    it is gone when the task is committed; `payload`), or how a token was completed (`completed`,
    `ok`, `result` or `error`).
    """
    _, found = _workers(here).known(pool, task, asked.identity.name)
    ctx = found.ctx
    if body.signal is not None:
        signal = await ctx.receive(body.signal)
        return {"taken": False} if signal is None else {"taken": True, "payload": signal.payload}
    if body.token is not None:
        asked_for: Any = ctx.completed(body.token)
        done = await asked_for
        return {"completed": False} if done is None else {"completed": True, **done._asdict()}
    if body.ns is None or body.table is None or body.key is None:
        raise InvalidArgument("it reads a signal, a token, or a key: ns, table and key")
    asked.needs(_READ, body.ns, body.table)
    row = await ctx.txn.table(body.ns, body.table).get(body.key)
    return {} if row is None else {"value": row.value, "version": str(row.version)}


@ROUTES.on("POST", "/v1/pools/{pool}/tasks/{task}/fail", _RUN, OBJECT, 409)
async def fail_task(here: Here, asked: Asked, pool: str, task: str, body: Failure) -> object:
    """Say that a task failed

    As if its step had raised something: it runs again if its policy says so, else the procedure
    fails and rolls back. Nothing else of the task counts.
    """
    session, found = _workers(here).known(pool, task, asked.identity.name)
    how = leases.failed(found, body.code, body.message, body.details)
    return await session.end(found, how)


@ROUTES.on("POST", "/v1/pools/{pool}/leave", _RUN)
async def leave_pool(here: Here, asked: Asked, pool: str, body: Leave) -> Plain:
    """Leave

    What this worker had goes to others at once.
    """
    await _workers(here).end((pool, body.worker, asked.identity.name))
    return {}


def _workers(here: Services) -> Leases:
    if here.leases is None:
        raise Refused("no workers are served here: ask a node", code="NO_WORKERS")
    return here.leases


async def _check_types(
    here: Services, asked: http.Request, pool: str, types: Sequence[Mapping[str, Any]]
) -> None:
    """Who runs a type that others run has the right to their pools, too."""
    names = [one["name"] for one in types]
    for name in names:
        if name.startswith("kvorum.") or not name:
            raise InvalidArgument(f"a worker does not run {name!r:.80}: it is the database's")
    if asked.may is None:
        return
    known = await here.backend.control("type.list", {"names": names})
    for one in known:
        if one["pool"] != pool:
            asked.may(frozenset({Action.RUN}), Resource(Kind.POOL, one["pool"]))


def _write(asked: http.Request, said: Mapping[str, Any]) -> Callable[[StepContext], None]:
    ns, name, key = said["ns"], said["table"], said["key"]
    asked.needs(_WRITE, ns, name)
    if said.get("fence") is not None:
        raise InvalidArgument("writes of a task are fenced by its own locks: fence is not for them")
    if said["op"] == "delete":

        def delete(ctx: StepContext) -> None:
            ctx.txn.table(ns, name).delete(key, if_version=said.get("if_version"))

        return delete
    if said.get("value") is None:
        raise InvalidArgument("a put needs a value")

    def put(ctx: StepContext) -> None:
        ctx.txn.table(ns, name).put(
            key,
            said["value"],
            if_absent=bool(said.get("if_absent")),
            if_version=said.get("if_version"),
            ttl_ms=said.get("ttl_ms") or 0,
        )

    return put
