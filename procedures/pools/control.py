"""What users do with running procedures, queues and schedules: one node method, PROC_CONTROL.

    what              arguments                                          → result
    signal            id, name, payload, key                             {"sent": bool}
    complete          token, result | error                              {"completed": bool}
    query             id, name, args?                                    {"result": any}
    update            id, name, args?, key, wait_ms?                     {"done": bool, "result" |
                                                                         "error"}
    events            id, after?, limit?, name?, wait_ms?                {"items": [Event, …],
                                                                         "after": ask on with it,
                                                                         "ended": bool}
    schedule.set      name, procedure, args?, cron?, every_ms?, …        the schedule
                      (schedule_times.py, schedules.py)
    schedule.remove   name                                               {}
    schedule.list     after?, name?                                      [schedule, …]; ask on
                                                                         behind the last name
    schedule.trigger  name, overlap?, key?                               {started: [id, …], …}
    schedule.backfill name, from_ms, to_ms, overlap?, key?               {count, started, …}
    schedule.times    name, count?, after_ms?                            {times: [ms, …]}
    bulk              what, filter, options?, reason, actor, dry_run?,   {id}; or what it would act
                      key?                (bulk.py)                      on: {count, more, items}
    retention.set     type?, state?, keep_ms?, most? (retention.py)      the rule
    retention.remove  type?, state?                                      {}
    retention.list                                                       [rule, …]
    pause.set         kind, name, note, actor                            what is paused
    pause.end         kind, name, actor, note?                           {}
    pause.list                                                           [{kind, name, note, by,
                                                                         at_ms}, …]
    queue.set         name, kind?, settings (queue_settings.py)          the queue
    queue.list                                                           [queue, …]
    queue.show        name                                               what waits in it, by key
    version.…         name, …                                            versions.py
    abort             id, reason, actor, dry_run?, key?                  what changed (surgeon.py)
    bypass            …, override?, recursive?                           what changed
    retry             …, step?                                           what changed
    reset             …, step?, state?, args?, undo?, children?          what changed, from, redone,
                                                                         kept, undone
    fork              …, step?, state?, args?, owner?                    …, forked
    steal             resource, holder?, reason, actor, dry_run?, key?   what changed
    explain           id                                                 explain.py
    past              id, at                                             view.py, as of then
    past.record       id, at, kept? (false: without)                     {at, record, version, kept:
                                                                         [[key, value, version], …]}
                                                                         (kv_store.py), null: it was
                                                                         not there
    past.list         at, before?                                        {items: [view.py, …],
                                                                         before: as of audit.page}
    audit.page        id?, before?, limit?                               {items: [entry (audit.py),
                                                                         …], before: ask on with it,
                                                                         0: these are all}
    type.list         names                                              [{name, version, pool}, …]
    census                                                               census.py
    search            (filters.py), limit?, token?                       {items: [map (view.py), …],
                                                                         token: ask on with it, ""
                                                                         = these are all, looked}
    count             (filters.py)                                       {items: [{type, state,
                                                                         count}, …], count, more}
    live              after?, limit?                                     [[record, …], after]

Each may be repeated: a signal has a key, a completion its token, the others say what shall be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from heapq import nlargest
from typing import Any, Final

from kv.base import limits
from kv.base.errors import Busy, ConditionFailed, InvalidArgument, NotFound, Refused
from kv.base.timestamps import MAX as TIMESTAMP_MAX
from kv.base.timestamps import physical_ms
from procedures.engine import records, reset, surgery
from procedures.engine.audit import Seen
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.records import Record
from procedures.engine.service import shown
from procedures.engine.submission import Submission, checked_text
from procedures.engine.surgeon import KEPT
from procedures.engine.view import info
from procedures.pools import bulk, queue_settings
from procedures.pools.census import Census
from procedures.pools.pauses import KINDS as PAUSED
from procedures.pools.pauses import PROCEDURE, SCHEDULE, Pause
from procedures.pools.schedule_times import whole
from procedures.pools.start_limits import NONE
from procedures.pools.talk import Talk, id_of
from procedures.pools.versions import Versions
from procedures.pools.windows import Windows

SURGERY: Final = frozenset(
    {"abort", "bypass", "retry", "steal", "reset", "fork", "bulk", "pause.set", "pause.end"}
)
"""Whose actor is who asks, wherever that is known."""
_LIVE_PAGE: Final = 200
_AUDIT_SHOWN: Final = 100
_TIMES_SHOWN: Final = 10
_SHOWN: Final = 100  # of what a bulk action would act on
_ATTEMPTS: Final = 20
Writes = Callable[..., Awaitable[None]]


class Control:
    """Answers for one executor, which has rows."""

    def __init__(self, executor: Executor) -> None:
        rows, crew, schedules = executor.rows, executor.crew, executor.schedules
        pauses, search = executor.pauses, executor.search
        retention = executor.retention
        assert rows is not None
        assert crew is not None
        assert schedules is not None
        assert pauses is not None
        assert search is not None
        assert retention is not None
        self._retention = retention
        self._pauses = pauses
        self._search = search
        self._executor = executor
        self._crew = crew
        self._rows = rows
        self._schedules = schedules
        self._census = Census(executor)
        self.talk = talk = Talk(executor, rows)
        self.windows = Windows(executor, rows, crew.deduplicated)
        self.versions = Versions(executor)
        self._actions = {
            "signal": talk.signal,
            "complete": talk.complete,
            "query": talk.query,
            "update": talk.update,
            "events": talk.events,
            "schedule.set": self._set_schedule,
            "schedule.remove": self._remove_schedule,
            "schedule.list": self._list_schedules,
            "bulk": self._bulk,
            "retention.set": self._set_rule,
            "retention.remove": self._remove_rule,
            "retention.list": self._list_rules,
            "pause.set": self._set_pause,
            "pause.end": self._end_pause,
            "pause.list": self._list_pauses,
            "schedule.trigger": self._trigger,
            "schedule.backfill": self._backfill,
            "schedule.times": self._times,
            "queue.set": self._set_queue,
            "queue.list": self._list_queues,
            "queue.show": self._show_queue,
            "version.page": self.versions.listed,
            "version.set": self.versions.set,
            "version.rollback": self.versions.roll_back,
            "version.move": self.versions.move,
            "abort": self._abort,
            "bypass": self._bypass,
            "retry": self._retry,
            "steal": self._steal,
            "reset": self._reset,
            "fork": self._fork,
            "explain": self._explain,
            "past": self._past,
            "past.record": self._past_record,
            "past.list": self.past_list,
            "type.list": self._list_types,
            "audit.page": self.audit,
            "census": self.census,
            "search": self.search,
            "count": self.count,
            "live": self._live,
        }

    async def do(self, what: str, args: dict[str, object]) -> Any:
        """Raises InvalidArgument for what there is not, and what each action raises."""
        action = self._actions.get(what)
        if action is None:
            raise InvalidArgument(
                f"unknown action {what!r:.40}; there are {', '.join(self._actions)}"
            )
        return await action(args)

    async def seen(self, what: str, args: dict[str, object], seen: Seen) -> object:
        """What of a list (PROC_LISTS) somebody may see."""
        lists: dict[str, Callable[..., Awaitable[object]]] = {
            "version.page": self.versions.listed,
            "past.list": self.past_list,
            "search": self.search,
            "count": self.count,
            "census": self.census,
        }
        return await lists.get(what, self.audit)(args, seen)

    async def _set_schedule(self, args: dict[str, object]) -> object:
        name = checked_text("procedure", args.get("procedure"), limits.NAME_CHARS_MAX)
        # What it could never be submitted with is not kept either: such as keys of a store.
        await self._executor.check_args(name, args.get("args"))
        return await self._schedules.set(args)

    async def _remove_schedule(self, args: dict[str, object]) -> object:
        await self._schedules.remove(_name(args))
        return {}

    async def _list_schedules(self, args: dict[str, object]) -> object:
        after, name = args.get("after") or "", args.get("name") or ""
        if not isinstance(after, str) or not isinstance(name, str):
            raise InvalidArgument("after and name are names of schedules")
        return await self._schedules.all(after=after, name=name)

    async def _trigger(self, args: dict[str, object]) -> object:
        how = {"overlap": _words(args, "overlap"), "key": _words(args, "key")}
        return await self._schedules.trigger(_name(args), **how)

    async def _backfill(self, args: dict[str, object]) -> object:
        return await self._schedules.backfill(
            _name(args),
            whole(args, "from_ms", 0, 1 << 53),
            whole(args, "to_ms", 0, 1 << 53),
            overlap=_words(args, "overlap"),
            key=_words(args, "key"),
        )

    async def _times(self, args: dict[str, object]) -> object:
        count = whole(args, "count", 1, limits.SCHEDULE_TIMES_MAX) or _TIMES_SHOWN
        after_ms = whole(args, "after_ms", 0, 1 << 53)
        return {"times": await self._schedules.next_times(_name(args), count, after_ms)}

    async def _bulk(self, args: dict[str, Any]) -> object:
        given = dict(args)
        dry_run, key = _flag(given, "dry_run"), _words(given, "key")
        given.pop("dry_run", None)
        given.pop("key", None)
        what = bulk.checked(given)
        wanted = self._search.filter(what["filter"])
        if dry_run:
            counted = await self._search.count(wanted)
            found = await self._search.page(wanted, limit=_SHOWN)
            items = [
                {"id": str(one.record.id), "name": one.record.name, "state": one.record.state.name}
                for one in found.stored
            ]
            return {"count": counted["count"], "more": counted["more"], "items": items}
        nonce = f"bulk/{key}" if key else ""
        sub = Submission(bulk.BULK, what, what["actor"], nonce)
        return {"id": str(await self._executor.submit(sub))}

    async def matching(
        self, wanted: dict[str, Any], limit: int, token: str
    ) -> tuple[list[Record], str]:
        """procedures.pools.bulk.Acts"""
        found = await self._search.page(self._search.filter(wanted), limit=limit, token=token)
        return [one.record for one in found.stored], found.token

    async def forget(self, id: int) -> None:
        """The same."""
        await self._executor.acknowledge(id)

    async def _set_rule(self, args: dict[str, Any]) -> object:
        return await self._retention.set(args)

    async def _remove_rule(self, args: dict[str, Any]) -> object:
        await self._retention.remove(args)
        return {}

    async def _list_rules(self, _args: dict[str, object]) -> object:
        return self._retention.all()

    async def _set_pause(self, args: dict[str, object]) -> object:
        kind, name = _paused(args)
        note, by = _note(args), surgery.checked_actor(args.get("actor"))
        pause = Pause(note, by, self._executor.now_ms())
        if kind == SCHEDULE:
            await self._schedules.pause(name, pause)
            return {"kind": kind, "name": name, **pause.to_plain()}
        if kind == PROCEDURE:
            record = await self._executor.find(int(name))
            if record.ended:
                raise Refused(
                    f"procedure {name} ended {record.state.name}: there is nothing to pause",
                    code="ENDED",
                )
        write = partial(self._pauses.set, pause=pause)
        await self._with_audit("pause", kind, name, note, by, write, **_key(args))
        self._crew.recall_paused(int(name) if kind == PROCEDURE else 0)
        return {"kind": kind, "name": name, **pause.to_plain()}

    async def _end_pause(self, args: dict[str, object]) -> object:
        kind, name = _paused(args)
        note, by = _note({"note": "resumed", **args}), surgery.checked_actor(args.get("actor"))
        if kind == SCHEDULE:
            await self._schedules.resume(name)
            return {"kind": kind, "name": name}
        await self._with_audit("resume", kind, name, note, by, self._pauses.end, **_key(args))
        self._executor.pause_ended()
        return {"kind": kind, "name": name}

    async def _list_pauses(self, _args: dict[str, object]) -> object:
        return [*self._pauses.all(), *await self._schedules.pauses()]

    async def _with_audit(
        self,
        what: str,
        kind: str,
        name: str,
        note: str,
        by: str,
        write: Writes,
        *,
        key: str,
        together: bool,
    ) -> None:
        """With its entry in the audit, in one transaction; nothing if that is there."""
        book = self._executor.surgeon.book
        entry: dict[str, object] = {
            "at_ms": self._executor.now_ms(),
            "actor": by,
            "what": what,
            "procedure": name if kind == PROCEDURE else "0",
            "name": self._type_of(kind, name),
            "reason": note,
            "key": key,
            "options": {"kind": kind} if together else {"kind": kind, "name": name},
            "procedures": [],
            "count": 0,
        }
        if together:
            entry |= {"together": True, "count": 1}
        for _ in range(_ATTEMPTS):
            id = int(name) if kind == PROCEDURE else 0
            if await book.repeated(what, by, key, id) is not None:
                return
            ops = await book.entry_ops(entry)
            try:
                await write(f"{kind}:{name}", ops=ops)
            except ConditionFailed:
                continue
            return
        raise Busy(
            "others write to the audit all the time; try again",
            details={"what": "attempts", "limit": _ATTEMPTS, "actual": _ATTEMPTS},
        )

    def _type_of(self, kind: str, name: str) -> str:
        """Whose readers see it in the audit."""
        if kind == PROCEDURE:
            live = self._executor.live_one(int(name))
            return "" if live is None else live.name
        return name if kind == "type" else ""

    async def _set_queue(self, args: dict[str, Any]) -> object:
        name, kind = _named(args)
        key, limit = f"{kind}:{name}", queue_settings.given(args, kind)
        if len(self._crew.gate.limits) >= limits.QUEUES_MAX and key not in self._crew.gate.limits:
            raise Busy(
                f"{limits.QUEUES_MAX} limits are set, which is the limit",
                details={"limit": limits.QUEUES_MAX, "actual": len(self._crew.gate.limits)},
            )
        await self._rows.write(queue_settings.kept(key, limit))
        self._crew.limit(key, limit)
        return queue_settings.shown(name, kind, limit)

    async def _list_queues(self, _args: dict[str, object]) -> object:
        found = []
        for key, (begun, waiting) in self._crew.gate.figures().items():
            kind, _, name = key.partition(":")
            limit = self._crew.gate.limits.get(key, NONE)
            counts = {"running": begun, "waiting": waiting}
            found.append({**queue_settings.shown(name, kind, limit), **counts})
        return found

    async def _show_queue(self, args: dict[str, object]) -> object:
        name = checked_text("name", args.get("name"), limits.NAME_CHARS_MAX)
        gate, now_ms = self._crew.gate, self._executor.now_ms()
        found = list(gate.streams(f"queue:{name}"))
        first = nlargest(limits.QUEUE_KEYS_SHOWN_MAX, found, key=lambda one: one.waiting)
        oldest = min((one.since_ms for one in found if one.waiting), default=0)
        running, waiting = gate.figures().get(f"queue:{name}", (0, 0))
        return {
            **queue_settings.shown(name, "queue", gate.limits.get(f"queue:{name}", NONE)),
            "running": running,
            "waiting": waiting,
            "oldest_ms": max(0, now_ms - oldest) if oldest else 0,
            "keys": [
                {
                    "key": one.key,
                    "running": one.running,
                    "waiting": one.waiting,
                    "next": str(one.first) if one.first else None,
                    "oldest_ms": max(0, now_ms - one.since_ms) if one.waiting else 0,
                }
                for one in first
            ],
        }

    async def _abort(self, args: dict[str, object]) -> object:
        return await self._executor.surgeon.abort(id_of(args), *_who(args), **_how(args))

    async def _bypass(self, args: dict[str, object]) -> object:
        return await self._executor.surgeon.bypass(
            id_of(args),
            *_who(args),
            override=_flag(args, "override"),
            recursive=_flag(args, "recursive"),
            **_how(args),
        )

    async def _retry(self, args: dict[str, Any]) -> object:
        step = args.get("step") or ""
        return await self._executor.surgeon.retry(id_of(args), *_who(args), step=step, **_how(args))

    async def _reset(self, args: dict[str, Any]) -> object:
        reason, actor = _who(args)
        return await self._executor.surgeon.reset(
            *(id_of(args), reason, actor),
            step=args.get("step") or "",
            state=args.get("state"),
            args=KEPT if args.get("args") is None else args["args"],
            undo=args.get("undo") or reset.UNDO,
            children=args.get("children") or "refuse",
            **_how(args),
        )

    async def _fork(self, args: dict[str, Any]) -> object:
        reason, actor = _who(args)
        return await self._executor.surgeon.fork(
            *(id_of(args), reason, actor),
            step=args.get("step") or "",
            state=args.get("state"),
            args=KEPT if args.get("args") is None else args["args"],
            owner=_words(args, "owner"),
            **_alone(args),
        )

    async def _steal(self, args: dict[str, Any]) -> object:
        holder = id_of({"id": args["holder"]}) if args.get("holder") else 0
        resource = args.get("resource") or ""
        return await self._executor.surgeon.steal(
            resource, *_who(args), holder=holder, **_alone(args)
        )

    async def _list_types(self, args: dict[str, Any]) -> object:
        """Where these types run: of those of the nodes the pool is ""."""
        names = args.get("names")
        if not isinstance(names, list) or len(names) > limits.WORKER_TYPES_MAX:
            raise InvalidArgument(f"names must be a list of types, got {names!r:.80}")
        return [
            {"name": one.name, "version": one.version, "pool": one.pool if one.remote else ""}
            for one in self._executor.types.types()
            if one.name in names
        ]

    async def census(self, _args: dict[str, object], seen: Seen = None) -> object:
        """See `Census.look`."""
        return await self._census.look(seen)

    async def _explain(self, args: dict[str, object]) -> object:
        return await self._executor.explain(id_of(args))

    async def _past(self, args: dict[str, Any]) -> object:
        store, id, at = self._versions(), id_of(args), await self._moment(args)
        stored = await store.load(id, at)
        if stored is None:
            raise NotFound(
                f"procedure {id} was not there at {at}: it was submitted later, or was forgotten",
                code="PROCEDURE_NOT_FOUND",
            )
        history = await store.history(stored.record, limits.PROCEDURE_HISTORY_SHOWN_MAX, at)
        return self._as_of(stored.record, history, at)

    async def _past_record(self, args: dict[str, Any]) -> object:
        store, id, at = self._versions(), id_of(args), await self._moment(args)
        stored = await store.load(id, at)
        if stored is None:
            return None
        rows = await store.kept(id, at) if args.get("kept", True) else ()
        kept = [list(row) for row in rows]
        data = records.encode(stored.record)
        return {"at": at, "record": data, "version": stored.version, "kept": kept}

    async def past_list(self, args: dict[str, Any], seen: Seen = None) -> object:
        """Those of types that are `seen`."""
        store, at = self._versions(), await self._moment(args)
        before, passed = int(args.get("before") or 0), 0
        visible: list[Record] = []
        while page := await store.newest(before, limits.PROCEDURE_PAGE_MAX, at):
            for stored in page:
                before = stored.record.id
                if seen is None or seen(stored.record.name):
                    visible.append(stored.record)
                else:
                    passed += 1
                if (
                    len(visible) == limits.PROCEDURE_PAGE_MAX
                    or passed == limits.PROCEDURE_PASSED_MAX
                ):
                    return {"items": [self._as_of(r, None, at) for r in visible], "before": before}
        return {"items": [self._as_of(record, None, at) for record in visible], "before": 0}

    def _as_of(
        self, record: records.Record, history: Sequence[records.Entry] | None, at: int
    ) -> dict[str, Any]:
        own = self._executor.types.is_own(record.name)
        return info(record, history, physical_ms(at), own=own) | {"at": str(at)}

    def _versions(self) -> KvStore:
        store = self._executor.store
        if not isinstance(store, KvStore):
            raise Refused("this store keeps no older versions", code="NO_PAST")
        return store

    async def _moment(self, args: dict[str, Any]) -> int:
        """Now, if none is said."""
        at = args.get("at") or 0
        if isinstance(at, str) and at.isascii() and at.isdigit() and len(at) <= 20:
            at = int(at)
        if type(at) is not int or not 0 <= at < TIMESTAMP_MAX:
            raise InvalidArgument(f"at must be a timestamp or a version, got {at!r:.40}")
        return at or await self._rows.now()

    async def search(self, args: dict[str, Any], seen: Seen = None) -> object:
        """See `Search.page`."""
        said = dict(args)
        token, limit = said.pop("token", "") or "", said.pop("limit", 0) or 0
        wanted = self._search.filter(said, seen)
        found = await self._search.page(wanted, limit=limit, token=token, seen=seen)
        items = [shown(self._executor, one.record) for one in found.stored]
        return {"items": items, "token": found.token, "looked": found.looked}

    async def count(self, args: dict[str, Any], seen: Seen = None) -> object:
        """See `Search.count`."""
        return await self._search.count(self._search.filter(args, seen), seen=seen)

    async def audit(self, args: dict[str, object], seen: Seen = None) -> object:
        """See `Book.page`."""
        procedure = id_of(args) if args.get("id") else 0
        limit, before = args.get("limit") or _AUDIT_SHOWN, args.get("before") or 0
        if type(limit) is not int or not 0 < limit <= limits.PROCEDURE_PAGE_MAX:
            raise InvalidArgument(
                f"limit must be 1 to {limits.PROCEDURE_PAGE_MAX}, got {limit!r:.40}"
            )
        if type(before) is not int or not 0 <= before < 1 << 63:
            raise InvalidArgument(f"before must be the number of an entry, got {before!r:.40}")
        book = self._executor.surgeon.book
        found, on = await book.page(procedure=procedure, before=before, limit=limit, seen=seen)
        return {"items": found, "before": on}

    async def _live(self, args: dict[str, Any]) -> object:
        page = await self._executor.store.live(int(args.get("after") or 0), _LIVE_PAGE)
        return [[records.encode(stored.record) for stored in page.stored], page.after]


def _note(args: dict[str, object]) -> str:
    return surgery.checked_reason(args.get("note"), "note")


def _paused(args: dict[str, object]) -> tuple[str, str]:
    kind = args.get("kind")
    if kind not in PAUSED:
        raise InvalidArgument(f"kind must be {', '.join(PAUSED)}, got {kind!r:.40}")
    if kind == PROCEDURE:
        return PROCEDURE, str(id_of({"id": args.get("name")}))
    return str(kind), _name(args)


def _name(args: dict[str, object]) -> str:
    return checked_text("name", args.get("name"), limits.NAME_CHARS_MAX)


def _words(args: dict[str, object], field: str) -> str:
    value = args.get(field)
    return checked_text(field, value, limits.NONCE_CHARS_MAX) if value else ""


def _named(args: dict[str, Any]) -> tuple[str, str]:
    """The name and the kind of a limit."""
    kind = args.get("kind") or "queue"
    if kind not in queue_settings.KINDS:
        raise InvalidArgument(f"kind must be {', '.join(queue_settings.KINDS)}, got {kind!r:.40}")
    return checked_text("name", args.get("name"), limits.NAME_CHARS_MAX), kind


def _who(args: dict[str, object]) -> tuple[Any, Any]:
    return args.get("reason"), args.get("actor")


def _how(args: dict[str, object]) -> dict[str, Any]:
    return {"dry_run": _flag(args, "dry_run"), **_key(args)}


def _alone(args: dict[str, object]) -> dict[str, Any]:
    return {name: value for name, value in _how(args).items() if name != "together"}


def _key(args: dict[str, object]) -> dict[str, Any]:
    """`together`: it is shared by actions on several procedures, as the bulk ones do."""
    key = args.get("key") or ""
    if key:
        checked_text("key", key, limits.NONCE_CHARS_MAX)
    return {"key": key, "together": bool(key) and _flag(args, "together")}


def _flag(args: dict[str, object], name: str) -> bool:
    value = args.get(name) or False
    if type(value) is not bool:
        raise InvalidArgument(f"{name} must be true or false, got {value!r:.40}")
    return value
