"""Surgery on the procedures of one executor: abort, bypass, retry, steal, as audited transactions.

    wait a moment for steps under way → read the tree → rules (surgery.py) → ONE transaction: the
    records, their locks, the entry of the audit, all under the versions that were read and the
    executor's reign → only then memory follows

The moment (SURGERY_GRACE_MS) is a courtesy: a step that ends by itself has taken effect as a whole.
One that does not is not waited for: the record's version moves, its commit is refused. A step of
this process or of a worker is not interrupted, and an undo never runs beside the step that it
undoes: it begins when that one has returned, or its worker's lease is over. Who cannot wait for
that bypasses.

Who changed between reading and writing is read again. A lost answer: the same `key` again finds the
entry of the audit.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from kv.base import limits
from kv.base.errors import (
    Busy,
    ConditionFailed,
    InvalidArgument,
    KvorumError,
    NotFound,
    Refused,
    UnknownOutcome,
)
from kv.base.ops import Op, check
from kv.base.ports import Clock
from procedures.engine import audit, core, plain_data, reset, surgery
from procedures.engine.core import Change
from procedures.engine.grants import REIGN, deposed
from procedures.engine.idlock import IdLock
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Record
from procedures.engine.registry import ProcedureType, Registry
from procedures.engine.resources import check_resource
from procedures.engine.roster import Live, Roster, brief
from procedures.engine.steal import Thief
from procedures.engine.store import Fenced, ProcedureStore, Stored
from procedures.engine.submission import Options, admit, create
from procedures.engine.turn import Turns
from procedures.pools.crew import Crew

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.005

Given = Any
KEPT: Final = object()  # the arguments that it has
Planned = tuple[Sequence[tuple[Stored, Change]], str]  # what changes; why, if nothing does
Plan = Callable[[list[Stored], dict[int, str]], Planned]


class Surgeon:
    """See the module."""

    def __init__(
        self,
        *,
        store: ProcedureStore,
        types: Registry,
        clock: Clock,
        locks: IdLock,
        roster: Roster,
        turns: Turns,
        crew: Crew | None,
        ended: Callable[[Stored], None],
        reopened: Callable[[int], None] = lambda _id: None,
    ) -> None:
        """`ended` is called with every procedure that ended here, `reopened` with one that goes on
        all the same.
        """
        self._store, self._types, self._clock = store, types, clock
        self._locks, self._roster, self._turns, self._crew = locks, roster, turns, crew
        self._tell, self._reopened = ended, reopened
        self.book = audit.Book(store)

    # ---------------------------------------------------------------------- actions
    async def abort(
        self,
        id: int,
        reason: str,
        actor: str,
        *,
        dry_run: bool = False,
        key: str = "",
        together: bool = False,
    ) -> dict[str, object]:
        """Make it fail and roll back. Raises Refused (NOT_ABORTABLE), NotFound, Busy."""
        reason, now = surgery.checked_reason(reason), self._clock.now_ms()

        def plan(tree: list[Stored], busy: dict[int, str]) -> Planned:
            record = tree[0].record
            if record.back is None and core.refuse_abort(record):
                return (), "it was aborted before"
            core.refuse_foreign(record, self._types, "aborted", "NOT_ABORTABLE")
            change = surgery.aborted(
                record,
                self._types.get(record.name, record.version),
                reason,
                now,
                children=len(tree) > 1,
                under_way=id in busy or record.deaths > 0,
            )
            assert change is not None
            return ((tree[0], change),), ""

        return await self._operate(
            *(surgery.ABORT, id, reason, actor, plan, {}),
            dry_run=dry_run,
            key=key,
            together=together,
        )

    async def bypass(
        self,
        id: int,
        reason: str,
        actor: str,
        *,
        override: bool = False,
        recursive: bool = False,
        dry_run: bool = False,
        key: str = "",
        together: bool = False,
    ) -> dict[str, object]:
        """End it where it stands, with all below it if `recursive`; `override`: also while a step
        is under way. Raises Refused (NOT_BYPASSABLE, HAS_CHILDREN, UNDER_WAY), TooLarge, NotFound,
        Busy.
        """
        reason, now = surgery.checked_reason(reason), self._clock.now_ms()

        def plan(tree: list[Stored], busy: dict[int, str]) -> Planned:
            records = [one.record for one in tree]
            if surgery.refuse_bypass(
                records, self._types, busy, override=override, recursive=recursive
            ):
                return (), "it was bypassed before"
            return [(one, surgery.bypassed(one.record, reason, now)) for one in tree], ""

        options = {"override": override, "recursive": recursive}
        return await self._operate(
            *(surgery.BYPASS, id, reason, actor, plan, options),
            dry_run=dry_run,
            key=key,
            together=together,
        )

    async def retry(
        self,
        id: int,
        reason: str,
        actor: str,
        *,
        step: str = "",
        dry_run: bool = False,
        key: str = "",
        together: bool = False,
    ) -> dict[str, object]:
        """Let it go on at once, from `step` if one is given. Raises Refused (NOT_RETRYABLE),
        InvalidArgument (STEP_UNKNOWN), NotFound, Busy.
        """
        reason, now = surgery.checked_reason(reason), self._clock.now_ms()
        if not isinstance(step, str):
            raise InvalidArgument(f"a step is a name, not {step!r:.40}")

        def plan(tree: list[Stored], busy: dict[int, str]) -> Planned:
            record = tree[0].record
            if not step:
                core.refuse_foreign(record, self._types, "retried", "NOT_RETRYABLE")
            declared = self._types.get(record.name, record.version)
            children = len(tree) > 1
            change = surgery.retried(record, declared, step, reason, now, children=children)
            return ((tree[0], change),), ""

        options = {"step": step}
        return await self._operate(
            *(surgery.RETRY, id, reason, actor, plan, options),
            dry_run=dry_run,
            key=key,
            together=together,
        )

    async def move(
        self, id: int, version: int, reason: str, actor: str, key: str
    ) -> dict[str, object]:
        """With others of this key, let it go on with another version of its type, which was looked
        at. Raises Refused (UNDER_WAY), NotFound, Busy.
        """
        reason, now = surgery.checked_reason(reason), self._clock.now_ms()

        def plan(tree: list[Stored], busy: dict[int, str]) -> Planned:
            record = tree[0].record
            if record.ended or record.version == version:
                return (), "it has ended, or has this version"
            if id in busy:
                text = (
                    f"a step of procedure {id} is under way {busy[id]}: move it when it has ended"
                )
                raise Refused(text, code="UNDER_WAY")
            return ((tree[0], surgery.moved(record, version, reason, now)),), ""

        return await self._operate(
            *(surgery.MOVE, id, reason, actor, plan, {}), key=key, together=True
        )

    async def reset(
        self,
        id: int,
        reason: str,
        actor: str,
        *,
        step: str = "",
        state: Mapping[str, object] | None = None,
        args: Given = KEPT,
        undo: str = reset.UNDO,
        children: str = "refuse",
        dry_run: bool = False,
        key: str = "",
        together: bool = False,
    ) -> dict[str, object]:
        """Have it go on from an earlier step, or call (reset.py). Raises Refused (NOT_RESETTABLE,
        HAS_CHILDREN), InvalidArgument (STEP_UNKNOWN), NotFound, Busy.
        """
        reason, now = surgery.checked_reason(reason), self._clock.now_ms()
        _check_how(step, state, undo, children)
        read = await self._history(id)

        def plan(tree: list[Stored], _busy: dict[int, str]) -> Planned:
            record, below = tree[0].record, tree[1:]
            core.refuse_builtin(record, self._types, "reset", "NOT_RESETTABLE")
            core.refuse_foreign(record, self._types, "reset", "NOT_RESETTABLE")
            declared = self._types.get(record.name, record.version)
            at = reset.point(record, declared, read(record), step, state)
            live = bool(below) or any(self._roster.get(one) is not None for one in at.started)
            reset.refuse(record, undo, children=live and children != "end")
            told["started"] = [str(one) for one in at.started]
            given = self._given(record, declared, args)
            change = reset.back_to(record, at, given, reason, undo, now)
            if record.ended:
                change = dataclasses.replace(change, reopened=record)
            ends = [(one, surgery.bypassed(one.record, reason, now)) for one in below]
            told.update(reset.effect(record, at, undo, forks=False))
            return ((tree[0], change), *ends), ""

        told: dict[str, Any] = {"step": step, "undo": undo, "children": children}
        answer = await self._operate(
            *(reset.RESET, id, reason, actor, plan, told),
            dry_run=dry_run,
            key=key,
            together=together,
        )
        if "started" not in told:  # it was done before; perhaps nobody came to what follows
            done = await self.book.repeated(reset.RESET, actor, key, id)
            told |= {} if done is None else done["options"]
        started = told.get("started", [])
        if children == "end" and not dry_run:
            for one in started:
                try:
                    await self.abort(int(one), reason, actor)
                except KvorumError as error:  # else it has ended, or cannot be
                    if error.disposition != "no":
                        raise
        return {**answer, **_told(told), "started": started}

    async def fork(
        self,
        id: int,
        reason: str,
        actor: str,
        *,
        step: str = "",
        state: Mapping[str, object] | None = None,
        args: Given = KEPT,
        owner: str = "",
        dry_run: bool = False,
        key: str = "",
    ) -> dict[str, object]:
        """Begin a new one (`forked`) at a step, or call, of this one. `owner`: who has asked for
        it, "" if nobody knows: then that of this one. Raises as `reset` does.
        """
        reason, actor = surgery.checked_reason(reason), surgery.checked_actor(actor)
        _check_how(step, state, reset.UNDO, "refuse")
        tree = await self._tree(id)
        record, now = tree[0].record, self._clock.now_ms()
        core.refuse_builtin(record, self._types, "forked", "NOT_RESETTABLE")
        core.refuse_foreign(record, self._types, "forked", "NOT_RESETTABLE")
        declared = self._types.get(record.name, record.version)
        history = (await self._history(id))(record)
        at = reset.point(record, declared, history, step, state, forks=True)
        said = plain_data.decode(record.args) if args is KEPT else args
        nonce = f"{reset.FORK}/{id}/{key}" if key else ""
        ok = admit(declared, said, owner or record.owner, nonce)
        options = Options(queue=record.queue, priority=record.priority, pool=record.pool)
        told = reset.effect(record, at, reset.KEEP, forks=True)
        entry = self._entry(reset.FORK, id, reason, actor, {"step": step, **told}, key)
        entry |= {"name": record.name, "count": 1}
        if dry_run:
            return {**_answer(entry, dry_run=True), **told, "forked": None}
        new_id = await self._store.take_ids(1)
        made = create(replace(ok, options=options), id=new_id, salt=record.salt, now_ms=now)
        forked = reset.fork_of(record, made, at, reason, now)
        for _ in range(_ATTEMPTS):
            ops = [*await self.book.entry_ops(entry), check(REIGN, self._turns.reign)]
            try:
                stored = await self._store.insert(forked, 0, ops)
            except ConditionFailed as error:
                if error.details.get("key") == REIGN:
                    raise deposed() from error
                continue
            if isinstance(stored, Stored):
                await self._turns.take_in(stored)
                new_id = stored.record.id
            else:
                new_id = stored
            log.warning("procedure %d was forked as %d by %s: %s", id, new_id, actor, reason)
            return {**_answer(entry, dry_run=False), **told, "forked": str(new_id)}
        raise Busy(
            "others write to the audit all the time; try again",
            details={"what": "attempts", "limit": _ATTEMPTS, "actual": _ATTEMPTS},
        )

    async def _history(self, id: int) -> Callable[[Record], Sequence[Entry]]:
        """What there is of a procedure's history, older rows, too, as long as it does not move."""
        stored = await self._store.load(id)
        if stored is None:
            return lambda record: record.history
        record = stored.record
        older = await self._store.history(record, limits.PROCEDURE_HISTORY_KEPT)
        older = older[: len(older) - len(record.history)]
        return lambda now: [*(older if now.spilled == record.spilled else ()), *now.history]

    def _given(self, record: Record, declared: ProcedureType, args: Given) -> bytes:
        """The arguments that it goes on with."""
        if args is KEPT:
            return record.args
        ok = admit(declared, args, record.owner, "")
        why = ""
        if ok.pending or declared.apart:
            why = "only its workers know whether they fit"
        elif ok.locks != record.locks:
            why = "they need other locks"
        if why:
            raise Refused(
                f"procedure {record.id} ({record.name}) cannot go on with other arguments: {why}; "
                "fork it",
                code="NOT_RESETTABLE",
            )
        return ok.args

    async def steal(
        self,
        resource: str,
        reason: str,
        actor: str,
        *,
        holder: int = 0,
        dry_run: bool = False,
        key: str = "",
    ) -> Plain:
        """Take a resource from all who hold it, or from one: each loses all its locks, and queues
        up for them again. Raises InvalidArgument, NotFound (LOCK_NOT_HELD), Busy.
        """
        reason, actor = surgery.checked_reason(reason), surgery.checked_actor(actor)
        check_resource(resource, "steal")
        if (done := await self.book.repeated(surgery.STEAL, actor, key, holder)) is not None:
            return _answer(done, dry_run=False)
        thief = Thief(self._store, self._roster, self._clock, self._busy)
        held = [one for one in sorted(thief.holders(resource)) if holder in (0, one)]
        if not held:
            who = f"procedure {holder} does not hold" if holder else "nobody holds"
            raise NotFound(f"{who} {resource}", code="LOCK_NOT_HELD")
        entry = self._entry(surgery.STEAL, held[0], reason, actor, {"resource": resource}, key)
        found: list[dict[str, object]] = []
        for id in held:
            stored = await self._store.load(id)
            if stored is None or stored.record.ended:
                continue
            shown = _stolen(stored.record, self._where(id))
            if dry_run:
                found.append(shown)
                continue
            one = {**entry, "procedure": str(id), "name": stored.record.name}
            one |= {"procedures": [shown], "count": 1}

            async def ops(one: dict[str, object] = one) -> list[Op]:
                return [*await self.book.entry_ops(one), check(REIGN, self._turns.reign)]

            if await thief.take(id, resource, reason, ops):
                found.append(shown)
        entry |= {"procedures": found, "count": len(found)}
        return _answer(entry, dry_run=dry_run)

    # ---------------------------------------------------------------------- one transaction
    async def _operate(
        self,
        what: str,
        id: int,
        reason: str,
        actor: str,
        plan: Plan,
        options: Plain,
        *,
        dry_run: bool = False,
        key: str = "",
        together: bool = False,
    ) -> dict[str, object]:
        """`together`: others have this key, too (audit.py)."""
        actor = surgery.checked_actor(actor)
        if dry_run:
            return await self._try(what, id, reason, actor, plan, options)
        tree = await self._tree(id)
        busy: dict[int, str]
        async with self._quiet([one.record.id for one in tree]) as held:
            for _ in range(_ATTEMPTS):
                if (done := await self.book.repeated(what, actor, key, id)) is not None:
                    await self._follow([int(p["procedure"]) for p in done["procedures"]], held)
                    return _answer(done, dry_run=False)
                tree = await self._tree(id)
                busy = self._under_way(tree, held)
                changes, why = plan(tree, busy)
                entry = self._entry(what, id, reason, actor, options, key)
                entry |= _effects(tree[0].record, changes, busy, why)
                if together:
                    entry["together"] = True
                if not changes:
                    return _answer(entry, dry_run=False)
                if await self._commit(changes, entry):
                    await self._follow([one.record.id for one, _ in changes], held)
                    log.warning("%s of procedure %d by %s: %s", what, id, actor, reason)
                    return _answer(entry, dry_run=False)
                await asyncio.sleep(_PAUSE_S)
        raise Busy(
            f"procedure {id} commits faster than its {what} can; nothing was changed, try again",
            details={"what": "attempts", "limit": _ATTEMPTS, "actual": _ATTEMPTS},
        )

    async def _try(
        self, what: str, id: int, reason: str, actor: str, plan: Plan, options: dict[str, object]
    ) -> dict[str, object]:
        """What it would change if it were done now. Waits for nobody."""
        tree = await self._tree(id)
        busy = self._under_way(tree, frozenset())
        changes, why = plan(tree, busy)
        entry = self._entry(what, id, reason, actor, options, "")
        return _answer(entry | _effects(tree[0].record, changes, busy, why), dry_run=True)

    async def _commit(
        self, changes: Sequence[tuple[Stored, Change]], entry: dict[str, object]
    ) -> bool:
        """False: somebody was faster, or nobody knows: look again. Raises Unavailable (another
        executor rules).
        """
        (first, change), *rest = changes
        others = tuple((stored.version, other) for stored, other in rest)
        whole = Change(
            change.record,
            change.flow,
            spill=change.spill,
            drops=change.drops,
            others=others,
            reopened=change.reopened,
        )
        ops = [*await self.book.entry_ops(entry), check(REIGN, self._turns.reign)]
        try:
            await self._store.update(first.version, whole, ops=ops)
        except (Fenced, UnknownOutcome):
            return False
        except ConditionFailed as error:
            if error.details.get("key") == REIGN:
                raise deposed() from error
            if error.details.get("key") != audit.HEAD:
                raise
            return False
        return True

    async def _tree(self, id: int) -> list[Stored]:
        """It, and all below it that has not ended, parents first. Raises NotFound, TooLarge."""
        root = await self._store.load(id)
        if root is None:
            raise NotFound(
                f"no procedure {id}: it was never submitted here, or its result was acknowledged, "
                "or its retention is over",
                code="PROCEDURE_NOT_FOUND",
            )
        found = [root]
        for stored in found:  # grows while it is walked
            for first, count in _rounds(stored.record):
                round_ = await self._store.load_range(first, count)
                found += [child for child in round_ if not child.record.ended]
            if len(found) > limits.SURGERY_TREE_MAX:
                raise surgery.too_many(id)
        return found

    # ---------------------------------------------------------------------- steps under way
    @asynccontextmanager
    async def _quiet(self, ids: Sequence[int]) -> AsyncGenerator[frozenset[int]]:
        """Those of which nothing is under way, as far as a moment's patience goes: no turn of them
        begins meanwhile.
        """
        held: list[int] = []
        late: list[int] = []
        try:
            for id in ids:
                if self._locks.try_acquire(id):
                    held.append(id)
                else:
                    late.append(id)
                    live = self._roster.get(id)
                    if self._crew is not None and live is not None and live.worker:
                        self._crew.recall(live)
            try:
                async with asyncio.timeout(limits.SURGERY_GRACE_MS / 1000):
                    for id in late:
                        await self._locks.acquire(id)
                        held.append(id)
            except TimeoutError:
                held += [id for id in late if id not in held and self._locks.try_acquire(id)]
            yield frozenset(held)
        finally:
            for id in held:
                self._locks.release(id)

    def _under_way(self, tree: Iterable[Stored], held: frozenset[int]) -> dict[int, str]:
        """Of these, whose step runs → where."""
        ids = (one.record.id for one in tree if one.record.id not in held)
        return {id: where for id in ids if (where := self._where(id))}

    def _where(self, id: int) -> str:
        live = self._roster.get(id)
        if live is None or not live.running:
            return ""
        return f"at worker {live.worker}" if live.worker else "at the master"

    def _busy(self, id: int) -> bool:
        live = self._roster.get(id)
        if live is not None and live.worker and self._crew is not None:
            self._crew.recall(live)
            return True
        return self._locks.held(id)

    # ---------------------------------------------------------------------- memory follows
    async def _follow(self, ids: Sequence[int], held: frozenset[int]) -> None:
        """Take over what the store says of these; parents first."""
        for id in ids:
            live = self._roster.get(id)
            stored = await self._store.load(id)
            if stored is None or self._roster.get(id) is not live:
                continue
            if live is None:  # nobody had taken it in yet, or it had ended
                if not stored.record.ended:
                    self._reopened(id)
                    live = self._roster.adopt(stored)
                    if self._crew is not None and live.begun:
                        self._crew.gate.count([(live.id, live.limits, live.key)])
                    self._roster.place(live, brief(stored.record))
                continue
            if stored.record.ended:
                self._ended(live, stored)
            elif id in held:
                wake = live.wake
                self._roster.moved(live, stored.record, stored.version)
                if stored.record.state is State.WAITING:
                    live.wake = wake
                live.parked = core.missing(stored.record, self._types) or core.aside(stored.record)
                self._roster.place(live, brief(stored.record))
            else:  # its turn finds out when it wants to commit: its version stays the old one
                live.record = None

    def _ended(self, live: Live, stored: Stored) -> None:
        """Out of memory, too. A turn that is under way keeps the version that it began with."""
        self._roster.drop(live)
        self._tell(stored)
        if live.worker and self._crew is not None:
            self._crew.forsake(live)

    # ---------------------------------------------------------------------- the audit
    def _entry(
        self,
        what: str,
        id: int,
        reason: str,
        actor: str,
        options: dict[str, object],
        key: str,
    ) -> dict[str, object]:
        return {
            "at_ms": self._clock.now_ms(),
            "actor": actor,
            "what": what,
            "procedure": str(id),
            "name": "",
            "reason": reason,
            "key": key,
            "options": options,
            "procedures": [],
            "count": 0,
        }


def _check_how(step: object, state: object, undo: str, children: str) -> None:
    if not isinstance(step, str):
        raise InvalidArgument(f"a step is a name, not {step!r:.40}")
    if state is not None and not isinstance(state, dict):
        raise InvalidArgument(f"state must be a map, got {state!r:.40}")
    if undo not in (reset.UNDO, reset.KEEP):
        raise InvalidArgument(f"undo must be {reset.UNDO} or {reset.KEEP}, got {undo!r:.40}")
    if children not in ("refuse", "end"):
        raise InvalidArgument(f"children must be refuse or end, got {children!r:.40}")


def _told(told: dict[str, object]) -> Plain:
    return {name: told[name] for name in ("from", "redone", "kept", "undone") if name in told}


def _rounds(record: Record) -> list[tuple[int, int]]:
    """Where its live children can be: in the round it waits for, or the one it undoes."""
    found = {record.rounds[-1]} if record.rounds else set()
    if record.state is State.ROLLING_BACK and record.undo and not record.undo[-1].method:
        found.add((record.undo[-1].first, record.undo[-1].count))
    return [] if record.ended else sorted(found)


def _effects(
    record: Record,
    changes: Sequence[tuple[Stored, Change]],
    busy: dict[int, str],
    why: str,
) -> dict[str, object]:
    shown = [
        surgery.effect(one.record, change, busy.get(one.record.id, ""))
        for one, change in changes[: limits.AUDIT_PROCEDURES_NAMED_MAX]
    ]
    found: dict[str, object] = {"name": record.name, "procedures": shown, "count": len(changes)}
    return {**found, "why": why} if why else found


def _stolen(record: Record, where: str) -> dict[str, object]:
    shown: dict[str, object] = {
        "procedure": str(record.id),
        "name": record.name,
        "before": {"token": str(record.grant)},
        "after": {"token": None},
        "locks_released": [{"mode": mode, "resource": name} for mode, name in record.locks],
    }
    if where:
        shown["refuses"] = f"what its step {record.step}, under way {where}, still writes"
    return shown


def _answer(entry: Plain, *, dry_run: bool) -> dict[str, object]:
    """What the caller gets."""
    names = ("what", "procedure", "name", "procedures", "count", "why")
    shown = {name: entry[name] for name in names if name in entry}
    return {"id": shown["procedure"], "dry_run": dry_run, "changed": entry["count"] > 0, **shown}
