"""What a request to a node is about, where its verb names that in a way that only its layer reads:
kv.server.connection_rights.Named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kv.base.rights import CLUSTER, Action, Book, Identity, Kind, Resource, may
from kv.base.verbs import NODE_METHODS, Verb
from kv.base.wire_row import WireRow
from kv.server.connection_rights import Needs
from kvorum.api.submissions import is_own, needed
from kvorum.native.native_admin import OWNER
from kvorum.node.procedure_rights import is_about_one
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.records import Record
from procedures.pools import messages
from procedures.pools.bulk import BULK
from procedures.pools.crew import Crew
from procedures.pools.worker_permissions import check_found_by, check_kin, pools_of, written
from procedures.verbs import (
    PROC_CONTROL,
    PROC_LISTS,
    PROC_OF_TYPES,
    PROC_SUBMIT,
    PROC_SUBMIT_MORE,
    SINK_COMMIT,
    WORK_ENTER,
    WORK_IDS,
    WORK_LEAVE,
    WORK_POLL,
)
from tso.verbs import SNAPSHOT_RELEASE, SNAPSHOT_RENEW

_SUBMIT: Final = frozenset({Action.SUBMIT})


class Named:
    """Of one node, by its book of the moment."""

    def __init__(
        self,
        book: Callable[[], Book | None],
        current: Callable[[], Executor],
        holder_of: Callable[[int], str | None],
    ) -> None:
        """`current`: the executor here. Raises NotLeader, Busy. `holder_of` a snapshot; None: there
        is none here.
        """
        self._book, self._current, self._holder_of = book, current, holder_of

    def __call__(self, verb: Verb, row: WireRow, user: str) -> Needs | None:
        if verb.number < NODE_METHODS:
            crew = self._crew()
            begun = _begun(crew, verb, row, user, self._book())
            return [*map(_runs, pools_of(crew, user, verb, row)), *begun]
        if verb.number == WORK_ENTER:
            entry = messages.entry(row[verb.at("registration")])
            return map(_runs, self._crew().pools_named(entry))
        if verb.number in (PROC_SUBMIT, PROC_SUBMIT_MORE):
            return needed(row[verb.at("name")], plain_data.read(row[verb.at("args")], "args"))
        if is_about_one(verb.number, row[verb.args_at :]):
            return ()  # the master's door asks
        if verb.number == PROC_CONTROL and row[verb.at("what")] in PROC_LISTS:
            return ((frozenset({Action.CONNECT}), CLUSTER),)  # what he may not see is left out
        if verb.number == PROC_CONTROL and row[verb.at("what")] in PROC_OF_TYPES:
            said = plain_data.read(row[verb.at("args")], "arguments")
            name = said.get("name") if isinstance(said, dict) else None
            of = Resource(Kind.PROCEDURE_TYPE, name if isinstance(name, str) else "")
            return ((frozenset({Action.OPERATE}), of),)
        if verb.number == PROC_CONTROL and not verb.asks(row[verb.args_at :]):
            said = plain_data.read(row[verb.at("args")], "arguments")
            return self._controlled(row[verb.at("what")], said if isinstance(said, dict) else {})
        if verb.number in (SNAPSHOT_RENEW, SNAPSHOT_RELEASE):
            mine = self._holder_of(row[verb.at("id")]) in (user, None)
            return ((frozenset({Action.CONNECT if mine else Action.OPERATE}), CLUSTER),)
        resource = self._resource(verb, row)
        if resource is None:
            return None
        return ((frozenset({verb.right(row[verb.args_at :])}), resource),)

    def _controlled(self, what: str, said: dict[str, object]) -> Needs:
        """What changes queues, rules and pauses, as over HTTP."""
        name = said.get("name")
        named = name if isinstance(name, str) else ""
        operates = frozenset({Action.OPERATE})
        match what, said.get("kind"):
            case "bulk", _:
                return needed(BULK, said)
            case ("queue.set" | "retention.set" | "retention.remove", _) | (
                "pause.set" | "pause.end",
                "queue",
            ):
                return ((operates, CLUSTER),)
            case "steal", _:
                resource = said.get("resource")
                named = resource if isinstance(resource, str) else ""
                return ((operates, Resource(Kind.LOCK, named)),)
            case "pause.set" | "pause.end", "pool":
                return ((operates, Resource(Kind.POOL, named)),)
            case "pause.set" | "pause.end", "type":
                return ((operates, Resource(Kind.PROCEDURE_TYPE, named)),)
            case _:
                pass
        return ((operates, Resource(Kind.PROCEDURE_TYPE)),)

    def _crew(self) -> Crew:
        crew = self._current().crew
        assert crew is not None, "a node's executor has rows"
        return crew

    def _resource(self, verb: Verb, row: list[object]) -> Resource | None:
        subject = verb.resource
        if not subject.field:
            return None
        at = verb.at(subject.field)
        value: Any = row[at] if at < len(row) else None
        if subject.kind is Kind.TABLE:
            if verb.number == SINK_COMMIT:
                value = value.get("table") if type(value) is dict else None
            book = self._book()
            return None if book is None or type(value) is not int else book.tables.get(value)
        if verb.number in (WORK_POLL, WORK_IDS, WORK_LEAVE):
            hand = self._crew().hands.get(value)
            return None if hand is None else Resource(Kind.POOL, hand.entry.pool)
        if subject.how == "the name" and type(value) is str and value:
            return Resource(subject.kind, value)
        return None


def _begun(crew: Crew, verb: Verb, row: list[object], user: str, book: Book | None) -> Needs:
    """A master runs the database's own procedures with all rights, whoever wrote their records; and
    a child of another's type is run by another's worker, in the name of its parent's owner.
    """
    told = {record.id: record for record in written(verb, row)}
    check_found_by(crew, verb, row, told)
    for record in told.values():
        check_kin(crew, user, record)
        if is_own(record.name):
            yield from needed(record.name, plain_data.read(record.args, "args"))
        elif not crew.lives(record.id):
            yield from _started(crew, record, user, book)


def _started(crew: Crew, record: Record, user: str, book: Book | None) -> Needs:
    """What the worker of this user needs to begin it: nothing, if whoever has submitted its parent
    may submit that type, or if it works for that type, too; else he must have that right himself.
    """
    type_, owner = Resource(Kind.PROCEDURE_TYPE, record.name), record.owner
    if book is None:
        return
    if owner == OWNER and not book.knows(OWNER):
        return  # nobody's: of before the first user, or of a node itself
    if may(Identity(owner, "submitter"), _SUBMIT, type_, book) is None:
        return
    pool = crew.pool_serving(user, record.name)
    yield (_SUBMIT, type_) if pool is None else _runs(pool)


def _runs(pool: str) -> tuple[frozenset[Action], Resource]:
    return frozenset({Action.RUN}), Resource(Kind.POOL, pool)
