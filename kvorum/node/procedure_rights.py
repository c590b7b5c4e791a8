"""What a user needs for a request about one procedure: the right to its very type, or to what it
locks; and about one schedule, that to what it starts. The master alone knows these, so the native
port (request_resources.py) leaves it to the master's door (kvorum/master/roles.py). Who may not is
told the same whether there is such a procedure, or schedule, or not. HTTP has the same rules
(kvorum/http/server/authentication.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

from kv.base.errors import Busy, Forbidden, InvalidArgument, NotFound
from kv.base.rights import Action, Kind, Resource
from kv.base.verbs import VERBS
from kv.base.wire_row import WireRow
from kv.server.connection_rights import Rights
from kvorum.api.submissions import is_own, needed, restated, scheduled, signalled
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.lock_procedure import LOCK
from procedures.pools.inbox import owner_of
from procedures.verbs import (
    LOCK_BEAT,
    LOCK_END,
    PROC_ABORT,
    PROC_ACK,
    PROC_CONTROL,
    PROC_GET,
    PROC_QUESTIONS,
)

BY_ID: Final = frozenset({PROC_GET, PROC_ACK, PROC_ABORT, LOCK_BEAT, LOCK_END})
CONTROLLED: Final[Mapping[str, Action]] = {
    "signal": Action.SUBMIT,
    "complete": Action.SUBMIT,
    "query": Action.READ,
    "events": Action.READ,
    "update": Action.SUBMIT,
    "abort": Action.OPERATE,
    "bypass": Action.OPERATE,
    "retry": Action.OPERATE,
    "reset": Action.OPERATE,
    "fork": Action.OPERATE,
    "explain": Action.READ,
    "past": Action.READ,
    "past.record": Action.OPERATE,
}
"""What PROC_CONTROL does with one procedure …"""
SCHEDULE: Final = "schedule."
"""… and how what it changes of one schedule begins."""
_AGAIN_MS: Final = 20


def is_about_one(method: int, args: list[object]) -> bool:
    """Whether the right that it needs is that to one procedure."""
    if method != PROC_CONTROL:
        return method in BY_ID
    return args[0] in CONTROLLED or _is_of_schedule(args)


def _is_of_schedule(args: WireRow) -> bool:
    what = args[0]
    return isinstance(what, str) and what.startswith(SCHEDULE) and what not in PROC_QUESTIONS


def check(
    rights: Rights, executor: Executor, method: int, args: list[object]
) -> Awaitable[None] | None:
    """kvorum.master.roles.Check."""
    return _check(rights, executor, method, args) if is_about_one(method, args) else None


async def _check(rights: Rights, executor: Executor, method: int, args: WireRow) -> None:
    """Raises Forbidden, InvalidArgument, Unauthenticated, and what the store raises."""
    if method == PROC_CONTROL and _is_of_schedule(args):
        given = plain_data.read(args[1], "arguments")
        _check_schedule(rights, executor, args[0], given if isinstance(given, Mapping) else {})
        return
    verb = VERBS[method]
    action, id, said = verb.action, args[0], None
    if method == PROC_CONTROL:
        action, said = CONTROLLED[args[0]], plain_data.read(args[1], "arguments")
        id = _id(args[0], said)
    kind = verb.resource.kind
    try:
        resource = await _resource(executor, kind, id)
    except NotFound:
        resource = Resource(kind)
    needs = [(frozenset({action}), resource)]
    if action is Action.SUBMIT and is_own(resource.name):
        needs = [*needed(resource.name, None)]
        if args[0] == "signal" and isinstance(said, Mapping):
            needs += signalled(said, rights.tables)
    if action is Action.OPERATE and restated(said):
        needs.append((frozenset({Action.SUBMIT}), resource))
    try:
        for actions, about in needs:
            rights.allow(actions, about)
    except Forbidden as error:
        raise _unseen(error, action, kind) from None


def _check_schedule(
    rights: Rights, executor: Executor, what: str, said: Mapping[str, object]
) -> None:
    """What a schedule is to start, he names himself; what another's starts is not told him. Raises
    Forbidden, Busy.
    """
    schedules, name = executor.schedules, said.get("name")
    assert schedules is not None, "a node's executor has rows"
    there = schedules.starts(name if isinstance(name, str) else "")
    if there is None:
        raise Busy(
            "this node has just become the master and reads the schedules; ask again",
            details={"what": "master", "retry_after_ms": _AGAIN_MS},
        )
    if what == "schedule.set":
        for actions, about in scheduled(said.get("procedure"), said.get("args")):
            rights.allow(actions, about)
        if not there[0]:
            return
    try:  # it is changed: taken from whoever has set it
        for actions, about in scheduled(*there):
            rights.allow(actions, about)
    except Forbidden as error:
        raise _unseen(error, Action.SUBMIT, Kind.PROCEDURE_TYPE) from None


def _unseen(error: Forbidden, action: Action, kind: Kind) -> Forbidden:
    """Without the name of what was looked up, nor what that needs: it may be nothing."""
    if error.details["missing"] == [Action.SUBMIT]:
        action = Action.SUBMIT
    return Forbidden(
        f"{error.details['user']!r} may not {action} the {kind} of that: an admin can grant it",
        details={**error.details, "missing": [action], "resource": f"the {kind} of that"},
    )


async def _resource(executor: Executor, kind: Kind, id: object) -> Resource:
    if type(id) is not int or id < 0:
        return Resource(kind)
    record = await executor.find(id)
    if kind is not Kind.LOCK:
        return Resource(kind, record.name)
    given = plain_data.decode(record.args) if record.name == LOCK else None
    return Resource(kind, str(given["resource"]) if isinstance(given, Mapping) else "")


def _id(what: str, said: object) -> object:
    """Of the procedure that is acted on: what else is said must not choose whose right counts."""
    if not isinstance(said, Mapping):
        return None
    if what != "complete":
        return said.get("id")
    token = said.get("token")
    try:
        return owner_of(token) if isinstance(token, str) else None
    except InvalidArgument:
        return None
