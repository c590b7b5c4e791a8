"""The executor: resumes what had not ended, and gives workers the procedures that may run.

    submit → store → roster (queue) → worker: IdLock → turn (turn.py): step after step → store →
    roster …

What each part may rely on: a procedure is in the roster only after it is in the store (J5); it has
a turn only under its IdLock (J7); two executors over one store harm nothing, because every commit
is fenced by the record's version.

Left out here: locks and priorities (scheduler.py), what operators do (surgeon.py), and stopping a
step under way: a timeout takes effect when the running step has ended (turn.py: `late`); only a
step's own deadline ends it (runner.py, kvorum/steps/step_processes.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat
from types import TracebackType
from typing import Any, Final, Self

from kv.base import limits
from kv.base.errors import (
    Busy,
    InvalidArgument,
    KvorumError,
    NotFound,
    Refused,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import ProcedureId
from kv.base.ops import Op
from kv.base.ports import Clock, Rng, Timers
from procedures.engine import core, plain_data
from procedures.engine.context import Tables
from procedures.engine.early_steps import Begun, Early
from procedures.engine.explain import Facts, explained
from procedures.engine.figures import Figures
from procedures.engine.forget import Janitor
from procedures.engine.idlock import IdLock
from procedures.engine.locks import Link
from procedures.engine.missed_events import Lookout
from procedures.engine.procedure import State
from procedures.engine.records import Record
from procedures.engine.registry import ProcedureType, Registry
from procedures.engine.resources import EXCLUSIVE, closure
from procedures.engine.roster import Live, Roster, brief, small
from procedures.engine.row_watch import Feeds, RowWatch
from procedures.engine.runner import Runner
from procedures.engine.scheduler import FairScheduler, Scheduler
from procedures.engine.search import Search
from procedures.engine.store import Fenced, ProcedureStore, Stored
from procedures.engine.submission import (
    Admitted,
    Submission,
    canonical_here,
    check,
    create,
    refuse_other,
)
from procedures.engine.surgeon import Surgeon
from procedures.engine.turn import Turns
from procedures.engine.view import shown_state
from procedures.pools.crew import Crew
from procedures.pools.pauses import Pauses
from procedures.pools.retention import Retention
from procedures.pools.rows import Rows
from procedures.pools.schedules import Schedules

log = logging.getLogger(__name__)

_INSERT_ATTEMPTS: Final = 3
# An executor that was deposed may still have had a record on its way to the store when the next one
# read what there is. It arrives within its deadline, so the first looks come soon.
_LOOKS_S: Final = (1.0, 2.0, 7.0, 20.0, 30.0)
_LOOK_AGAIN_S: Final = 60.0
_DOUBT_MS: Final = 2 * limits.DEADLINE_MS_DEFAULT  # then a request on its way has arrived or never
_STUCK_LOOK_S: Final = 0.5
_RECENT_MAX: Final = 1_000  # ended procedures that an acknowledgement need not read again


# (procedure, keys) → what its commit, or a single write to one of these keys, waits for
KeyWaits = Callable[[int, Collection[bytes]], Awaitable[Sequence[Mapping[str, object]]]]


class Executor:
    """Runs the procedures of one store. `async with Executor(…) as executor:` resumes, then serves.

    scheduler  in which order procedures get a worker, and which may; None = a FairScheduler
    workers    how many procedures may have a step under way at once
    threads    how many of those steps may be plain (not async) methods
    key_waits  what commits wait for, of all nodes
    runner     calls the methods; None = one of its own, in this process
    feeds      of rows that are waited for; None = nobody waits for rows
    refusal    what callers, and those who wait, get when it does not serve any more
    """

    def __init__(
        self,
        store: ProcedureStore,
        types: Registry,
        tables: Tables,
        clock: Clock,
        timers: Timers,
        rng: Rng,
        *,
        rows: Rows | None = None,
        scheduler: Scheduler | None = None,
        workers: int = limits.PROCEDURE_WORKERS_DEFAULT,
        threads: int = limits.PROCEDURE_THREADS_DEFAULT,
        refusal: Callable[[], KvorumError] | None = None,
        key_waits: KeyWaits | None = None,
        runner: Runner | None = None,
        feeds: Feeds | None = None,
    ) -> None:
        self.store = store
        self.types = types
        self._refusal = _stopping if refusal is None else refusal
        self._key_waits = key_waits
        self._clock = clock
        self._locks = IdLock()
        self._runner = Runner(threads) if runner is None else runner
        self._runner_is_own = runner is None
        types.entrust(self._runner)
        queue = FairScheduler() if scheduler is None else scheduler
        self._roster = Roster(clock, timers, rng, queue)
        self._janitor = Janitor(store, self._locks, clock, timers)
        self._turns = Turns(
            *(store, types, tables, clock, rng),
            *(self._runner, self._roster, self._ended, self._locks),
        )
        self._early = Early(
            store=store,
            types=types,
            clock=clock,
            runner=self._runner,
            roster=self._roster,
            turns=self._turns,
            room=lambda: self._wanted - len(self._running),
        )
        self._recent: OrderedDict[int, Stored] = OrderedDict()  # ended, not acknowledged yet
        self._doubtful: dict[int, int] = {}  # submissions that have locks if they arrived → until
        self._salt = rng.token(8)
        self._watchers: dict[int, list[asyncio.Future[Record]]] = {}
        self._wanted = _checked_workers(workers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_spawn: list[Coroutine[object, None, None]] = []  # tasks of before it serves
        self._workers = 0
        self._running: dict[int, Live] = {}  # has a turn here now
        self.stuck = 0  # of them run longer than they may
        self._group = asyncio.TaskGroup()
        self._serving = False
        self.crew: Crew | None = None
        self.rows = rows
        self.schedules: Schedules | None = None
        self.pauses: Pauses | None = None
        self.search: Search | None = None
        self.retention: Retention | None = None
        if rows is not None:
            self.crew = Crew(
                store=store,
                rows=rows,
                types=types,
                roster=self._roster,
                turns=self._turns,
                locks=self._locks,
                clock=clock,
                timers=timers,
                rng=rng,
                spawn=self._spawn,
                refusal=self._refusal,
            )
            self._roster.offer = self.crew.offer
            self._roster.lane_ready = self.crew.kick
            self._roster.gate = self.crew.gate
            self.pauses = self._roster.pauses = Pauses(rows)
            self._lookout = Lookout(rows, self._roster.found, self._spawn)
            self._roster.look = self._lookout.look
            if feeds is not None:
                self._roster.row_watch = RowWatch(rows, feeds, self._roster.signal, self._spawn)
            self.retention = Retention(rows, clock, types)
            self._janitor.longer = self.retention.longer
            self._janitor.gone = self._reopened
            self.search = Search(store, rows, self._roster, types)
            self.schedules = Schedules(
                *(rows, clock, self.submit),
                lives=lambda id: self._roster.get(id) is not None,
                cancel=lambda id, why: self.surgeon.abort(id, why, "schedule"),
                terminate=lambda id, why: self.surgeon.bypass(
                    id, why, "schedule", override=True, recursive=True
                ),
                kinds=lambda name: None if (t := types.find(name)) is None else t.attributes,
            )
            self._janitor.needed = self.schedules.may_start
        self.surgeon = Surgeon(
            store=store,
            types=types,
            clock=clock,
            locks=self._locks,
            roster=self._roster,
            turns=self._turns,
            crew=self.crew,
            ended=self._ended,
            reopened=self._reopened,
        )
        self.broken: dict[int, str] = {}  # rows that could not be read at the start, and why

    # ------------------------------------------------------------------------------ life
    async def __aenter__(self) -> Self:
        await self._resume()
        await self._group.__aenter__()
        self._serving = True
        self._runner.begin()
        self._task(self._janitor.run())
        for work in self._to_spawn:
            self._task(work)
        if self.crew is not None and self.schedules is not None:
            self._watching = [self._task(self.crew.run()), self._task(self.schedules.run())]
            if self.retention is not None:
                self._watching.append(self._task(self.retention.run(self._janitor)))
        self._looking = self._task(self._take_in_strays())
        self._minding = self._task(self._watch_steps())
        self._hire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Steps under way may end within PROCEDURE_STOP_MS; those that do not are run again later.

        When the body raised, nothing is waited for.
        """
        self._serving = False
        self._looking.cancel()
        self._minding.cancel()
        if self.crew is not None:
            for task in self._watching:
                task.cancel()
            self.crew.close()
            self._lookout.close()
            if self._roster.row_watch is not None:
                self._roster.row_watch.close()
        self._roster.close()
        self._roster.dismiss()
        self._janitor.close()
        self._unwatch()
        try:
            if kind is not None and issubclass(kind, asyncio.CancelledError):
                await self._group.__aexit__(kind, error, trace)
                return
            if kind is not None:
                for task in self._tasks:
                    task.cancel()
            async with asyncio.timeout(limits.PROCEDURE_STOP_MS / 1000):
                await self._group.__aexit__(None, None, None)
        except TimeoutError:
            pass  # the group has cancelled and awaited them
        finally:
            if self._runner_is_own:
                self._runner.close()

    async def _resume(self) -> None:
        """Take in everything that had not ended, in bounded pages. All locks are where they were
        before anything runs (K11): the workers come later.
        """
        self._turns.reign = await self.store.reign()
        if self.crew is not None and self.pauses is not None:
            await self.pauses.load()
            if self.retention is not None:
                await self.retention.load()
            await self.crew.resume()
        after: int | None = 0
        found: list[tuple[Live, Record]] = []
        while after is not None:
            page = await self.store.live(after, limits.PROCEDURE_PAGE_MAX)
            found += [(self._roster.adopt(stored), brief(stored.record)) for stored in page.stored]
            self.broken |= {broken.id: broken.reason for broken in page.broken}
            after = page.after
        if self.broken:
            for id, locks in (await self.store.held_by(self.broken)).items():
                self._roster.keep(id, locks)
        self._roster.bereave(self.broken)
        for live, record in found:
            self._roster.doubt(live, record)
            if live.lane:
                live.record = None  # its worker may have moved it since it was read
            if self.crew is not None and live.begun:
                self.crew.gate.count([(live.id, live.limits, live.key)])
            self._roster.place(live, record)
        if self.crew is not None:
            self.crew.settle()

    async def _take_in_strays(self) -> None:
        """Procedures that are live in the store and not here: see _LOOKS_S. Until cancelled."""
        for pause_s in chain(_LOOKS_S, repeat(_LOOK_AGAIN_S)):
            await asyncio.sleep(pause_s)
            after = 0
            try:
                while ids := await self.store.live_ids(after, limits.PROCEDURE_PAGE_MAX):
                    for id in ids:
                        await self._take_in(id)
                    after = ids[-1]
                await self._settle_doubts()
            except KvorumError as error:
                log.warning("strays were not looked for: %s; next round", error)

    async def _settle_doubts(self) -> None:
        """Locks of submissions whose outcome nobody learnt."""
        for id, until_ms in list(self._doubtful.items()):
            stored = await self.store.load(id)
            if self._roster.get(id) is None and (stored is None or stored.record.ended):
                if stored is None and self._clock.now_ms() < until_ms:
                    continue  # it may still arrive
                self._roster.let_go(id)
            del self._doubtful[id]

    async def _take_in(self, id: int) -> None:
        """Run a procedure of the store that is not here, unless it has ended."""
        if self._roster.get(id) is not None:
            return
        stored = await self.store.load(id)
        if stored is None or stored.record.ended or not self._serving:
            return
        if self._roster.get(id) is None:
            await self._turns.take_in(stored, doubt=True)

    def _spawn(self, coro: Coroutine[object, None, None]) -> None:
        if self._serving:
            self._task(coro)
        else:
            self._to_spawn.append(coro)

    def _task(self, coro: Coroutine[object, None, None]) -> asyncio.Task[None]:
        task = self._group.create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------------------ clients
    async def submit(self, sub: Submission) -> ProcedureId:
        """Store, then schedule (J5). The id; the same one for the same owner's nonce (J4).

        Raises what `submission.check` raises (nothing is stored), Refused (NONCE_REUSED), Busy,
        Unavailable, or UnknownOutcome.
        """
        return (await self.begin(sub))[0]

    async def begin(
        self, sub: Submission, beside: Callable[[int], Sequence[Op]] | None = None
    ) -> tuple[ProcedureId, bool]:
        """`submit`, and whether it is new; then what is to be stored `beside` it, by its id, is
        there with it.
        """
        self._must_serve()
        id = await self.store.take_ids(1) if self.types.ramps(sub.name) else 0
        ok = check(sub, self.types, id)
        if ok.nonce:
            known = await self.store.find_nonce(ok.owner, ok.nonce)
            if known is not None and await self._is_it(known, sub, ok):
                return ProcedureId(known), False
        if ok.pending:
            ok = await self._looked_at(ok)
        self._check_room(sub.name)
        id = id or await self.store.take_ids(1)
        record = create(ok, id=id, salt=self._salt, now_ms=self._clock.now_ms())
        begun = record if beside else await self._early.begin(record)
        if isinstance(begun, Begun):
            self._take_over(begun)
            return ProcedureId(id), True
        record, reign = begun, 0
        if record.state is State.RUNNABLE and self._roster.grab(record):
            record, reign = core.granted(record), self._turns.reign  # one write for both
        try:
            stored = await self._insert(record, reign, beside(id) if beside else ())
        except (UnknownOutcome, asyncio.CancelledError):
            if reign:  # perhaps it is there, and has them: they stay taken until the store answers
                self._doubtful[id] = self._clock.now_ms() + _DOUBT_MS
            raise
        except KvorumError:
            self._roster.let_go(id)
            raise
        if isinstance(stored, int):
            self._roster.let_go(id)
            await self._is_it(stored, sub, ok)
            return ProcedureId(stored), False
        if stored.record.ended:  # its early run was stored, though nobody could say so
            self._ended(stored)
        elif self._serving:  # else it runs when the next executor resumes
            await self._turns.take_in(stored)
        return ProcedureId(id), True

    async def put_off(self, id: int, by_ms: int, new: Admitted | None) -> bool:
        """`core.put_off`, of one that is here; False: it has begun. Raises
        what the store raises, UnknownOutcome: to be asked again.
        """
        self._must_serve()
        live = self._roster.get(id)
        if live is None or live.begun or live.running:
            return False
        async with self._locks(id):
            stored = await self.store.load(id)
            if stored is None or self._roster.get(id) is not live or live.begun:
                return False
            change = core.put_off(stored.record, by_ms, new, self._clock.now_ms())
            if change is None:
                return False
            try:
                version = await self.store.update(stored.version, change)
            except (Fenced, UnknownOutcome) as error:
                await self._turns.reload(live)
                if isinstance(error, Fenced):
                    return False
                raise
            self._roster.moved(live, change.record, version)
            self._roster.place(live, change.record)
            return True

    async def _is_it(self, earlier: int, sub: Submission, ok: Admitted) -> bool:
        """Whether the procedure that has its nonce is there still; it must be the same one. Raises
        Refused (NONCE_REUSED).
        """
        stored = await self.store.load(earlier)
        if stored is not None and not (sub.first_counts and stored.record.name == sub.name):
            await refuse_other(stored.record, ok, self._canonical)
        return stored is not None

    async def _looked_at(self, ok: Admitted) -> Admitted:
        if ok.type.apart:
            looked = await self._runner.look(ok.type, ok.args)
            return replace(ok, locks=looked.locks, pending=False)
        return ok if self.crew is None else await self.crew.looked_at(ok)

    async def check_args(self, name: str, args: object) -> None:
        """Whether it could be submitted with them, as far as is known. Raises what is wrong."""
        declared = self.types.get(name)
        if not declared.apart:
            declared.locks_of(args)
            return
        what = f"arguments of {name}"
        data = plain_data.encode(args, what, limits.PROCEDURE_ARGS_BYTES_MAX)
        await self._runner.look(declared, data)

    async def _canonical(self, declared: ProcedureType, args: bytes) -> bytes | None:
        if declared.apart:
            try:
                return (await self._runner.look(declared, args)).args or None
            except InvalidArgument:
                return None
        if not declared.typed or self.crew is None:
            return canonical_here(declared, args)
        return await self.crew.canonical(declared, args)

    def _check_room(self, name: str) -> None:
        live_max = limits.PROCEDURES_LIVE_MAX
        if name.startswith("kvorum."):  # a node full of users' can still be cared for
            live_max += limits.PROCEDURES_OWN_MAX
        if len(self._roster) >= live_max:
            raise Busy(
                f"{len(self._roster)} procedures have not ended, the limit is {live_max}; "
                "submit again later",
                details={"limit": live_max, "actual": len(self._roster)},
            )

    def _take_over(self, begun: Begun) -> None:
        """Go on with a procedure whose first step was committed with its submission."""
        stored, record = begun.stored, begun.stored.record
        self._turns.commits += 1
        self._roster.figures.moved(None, record)
        if record.ended:
            self._ended(stored)
        elif self._serving:  # else it runs when the next executor resumes
            live = self._roster.adopt(stored)
            if self.crew is not None:
                self.crew.gate.count([(live.id, live.limits, live.key)])
            self._turns.adopt_all(begun.change.created, stored.version)
            self._roster.place(live, record)  # not `follow`: a large one is not kept in `live`
            if live.event:
                self._roster.missed(live, live.event, begun.since)
        for event in begun.events:
            self._roster.signal(event)

    async def _insert(self, record: Record, reign: int, ops: Sequence[Op]) -> Stored | int:
        for _ in range(_INSERT_ATTEMPTS):
            try:
                return await self.store.insert(record, reign, *([ops] if ops else []))
            except UnknownOutcome as error:  # an insert may be repeated: its id is its own
                unknown = error
        raise UnknownOutcome(
            f"procedure {record.id} ({record.name}) may or may not have been submitted: "
            "ask for it by this id, or submit again with the same nonce",
            details=dict(unknown.details, procedure=str(record.id)),
        )

    async def find(self, id: int) -> Record:
        """The record as it is stored now. Raises NotFound (PROCEDURE_NOT_FOUND)."""
        live = self._roster.get(id)
        if live is not None and live.record is not None and not live.worker:
            return live.record
        stored = self._lately(id) or await self.store.load(id)
        if stored is None:
            raise NotFound(
                f"no procedure {id}: it was never submitted here, or its result was acknowledged, "
                "or its retention is over",
                code="PROCEDURE_NOT_FOUND",
            )
        return stored.record

    async def query(self, id: int, name: str, args: object) -> Any:
        """What a procedure answers from what it has stored. Raises NotFound, InvalidArgument
        (QUERY_UNKNOWN), Refused (QUERY_FAILED), Unavailable.
        """
        self._must_serve()
        data = plain_data.encode(args, "the arguments", limits.PROCEDURE_ARGS_BYTES_MAX)
        record = await self.find(id)
        declared = self.types.get(record.name, record.version)
        return plain_data.decode(await self.asked(declared, name, record, data))

    async def asked(self, declared: ProcedureType, name: str, record: Record, args: bytes) -> bytes:
        """What this version of its type says of a record. Raises as `query`."""
        if not declared.remote:
            return await self._runner.ask(declared, name, record, args)
        assert self.crew is not None, "only workers have remote types"
        return await self.crew.ask(declared, name, record, args)

    def waits_until(self) -> int | None:
        """When the next of all that waits is due, schedules included (0: nothing is). None: it does
        not all wait; something runs, or pauses before it is tried again.
        """
        roster = self._roster
        if any(one.running or one.worker or roster.pause_left_ms(one) for one in roster.all()):
            return None
        scheduled = 0 if self.schedules is None else self.schedules.next_due_ms
        dues = [due for due in (roster.next_due_ms, scheduled) if due]
        wait_s = None if roster.gate is None else roster.gate.due_in_s
        if wait_s is not None:
            dues.append(self._clock.now_ms() + math.ceil(wait_s * 1000))
        return min(dues, default=0)

    def look_at_the_clock(self, skipped_ms: int = 0) -> None:
        """It was set: what is due by now begins at once. `skipped_ms`: so much time has passed with
        that, also for rates.
        """
        self._roster.look_at_the_clock()
        if self._roster.gate is not None and skipped_ms:
            self._roster.gate.skip(skipped_ms / 1000)
        if self.schedules is not None:
            self.schedules.look_at_the_clock()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    @contextmanager
    def listening(self, id: int) -> Iterator[asyncio.Future[None]]:
        """`Roster.listening`, of one that runs here. Raises what says that nobody would hear it."""
        self._must_serve()
        with self._roster.listening(id) as listener:
            yield listener

    def _lately(self, id: int) -> Stored | None:
        """One that ended here a moment ago: no reading, and it does not change any more (roots are
        not undone by others), until its retention is over.
        """
        stored = self._recent.get(id)
        if stored is None or stored.record.parent:
            return None
        record = stored.record
        kept = self._clock.now_ms() < record.updated_ms + record.retention_ms
        return stored if kept and self._serving else None

    def succeeded(self, id: int) -> Record | None:
        """The record of one that ended well a moment ago, if it is small and nothing of it has to
        be read, which could fail: nothing changes it any more, so it may be sent unasked.
        """
        stored = self._lately(id)
        if stored is None or stored.record.state is not State.SUCCESS or stored.record.spilled:
            return None
        return stored.record

    async def wait(self, id: int, wait_ms: int) -> Record:
        """The record at the end of the procedure, or as it is after `wait_ms`."""
        if type(wait_ms) is not int or not 0 <= wait_ms <= limits.WAIT_MS_MAX:
            raise InvalidArgument(f"wait_ms must be 0 to {limits.WAIT_MS_MAX}, got {wait_ms!r:.40}")
        record = await self.find(id)
        if record.ended or not wait_ms:
            return record
        self._must_serve()
        await self._take_in(id)
        if self._roster.get(id) is None:
            return await self.find(id)  # it ended while we were reading
        ended: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        watchers = self._watchers.setdefault(id, [])
        watchers.append(ended)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await ended
        except TimeoutError:
            return await self.find(id)
        finally:
            watchers.remove(ended)
            if not watchers and self._watchers.get(id) is watchers:
                del self._watchers[id]

    async def acknowledge(self, id: int) -> None:
        """The result was fetched: forget it (M4). An unknown id: done already. Raises Refused."""
        live = self._roster.get(id)
        if live is not None and live.worker:
            ended = await self.store.load(id)
            if ended is not None and ended.record.ended:
                async with self._locks(id):  # until its worker has reported what it committed
                    pass
        if self._roster.get(id) is None:
            async with self._locks(id):
                stored = self._recent.pop(id, None) or await self.store.load(id)
                if stored is None:
                    return
                if stored.record.parent:
                    raise Refused(
                        f"procedure {id} is a child of {stored.record.parent} and is forgotten "
                        "with it",
                        code="HAS_PARENT",
                    )
                if stored.record.ended:
                    await self._janitor.forget(stored)
                    return
        raise Refused(f"procedure {id} has not ended: there is no result yet", code="NOT_ENDED")

    async def abort(self, id: int, reason: str) -> None:
        """Make it fail and roll back: for the engine's own users. See surgeon.py."""
        self._must_serve()
        await self.surgeon.abort(id, reason, "kvorum")

    async def check_abort(self, id: int) -> None:
        """Raises what `abort` would raise if the step under way ended as it began. Changes nothing
        and waits for nobody.
        """
        self._must_serve()
        await self.surgeon.abort(id, "only asking", "kvorum", dry_run=True)

    async def steal(self, resource: str, reason: str, *, holder: int = 0) -> list[int]:
        """Take a lock away from those who hold it, or from one; see steal.py. Their ids."""
        self._must_serve()
        if not self._roster.holders(resource):
            return []
        changed = await self.surgeon.steal(resource, reason, "kvorum", holder=holder)
        return [int(one["procedure"]) for one in changed["procedures"]]

    async def explain(self, id: int) -> dict[str, object]:
        """What it waits for, since when, and who has it (explain.py). Raises NotFound."""
        self._must_serve()
        record = await self.find(id)
        live = self._roster.get(id)
        if live is None or record.ended:
            return explained(record, Facts(here=live is not None), self._clock.now_ms())
        links = sorted(self._roster.blocked(live), key=lambda link: link.order)
        began, limit_ms, _ = live.step_began
        keys: Sequence[Mapping[str, object]] = ()
        if live.running and self._key_waits is not None:
            keys = await self._key_waits(id, [op.key for op in live.writing])
        facts = Facts(
            here=True,
            parked=live.parked,
            running=live.running,
            worker=live.worker,
            began_ms=began,
            limit_ms=limit_ms,
            slow_ms=live.slow_ms,
            links=links,
            holders={link.blocker: self._name_of(link.blocker) for link in links},
            children=[self._child(child) for child in sorted(live.children)],
            keys=keys,
            pool_wait="" if self.crew is None else self.crew.why_waits(live),
            retry=live.retry,
            tries=live.tries,
            retry_in_ms=self._roster.pause_left_ms(live),
        )
        return explained(record, facts, self._clock.now_ms())

    def _name_of(self, id: int) -> str:
        live = self._roster.get(id)
        if live is None or live.record is None:
            return ""
        return f"{live.record.name}, left alone" if live.parked else live.record.name

    def _child(self, id: int) -> tuple[int, str, str, str]:
        live = self._roster.get(id)
        if live is None or live.record is None:
            return id, "?", "live", "?"
        return (id, live.record.name, *shown_state(live.record))

    def holders(self, resource: str) -> dict[int, str]:
        """Who holds a resource → mode."""
        return self._roster.holders(resource)

    def blocked(self, live: Live) -> list[Link]:
        """What it waits for, if it waits for locks."""
        return self._roster.blocked(live)

    def in_the_way(self, id: int) -> list[int]:
        """All that one which waits for its locks waits for: holders, and who came before it."""
        live = self._roster.get(id)
        found: dict[int, None] = {}
        for link in () if live is None else self._roster.blocked(live):
            found[link.blocker] = None
            if live is not None and not link.order:
                alone = (EXCLUSIVE, link.resource) in closure(live.entry.locks)
                held = self._roster.holders(link.resource)
                found |= dict.fromkeys(
                    one for one, how in held.items() if alone or how == EXCLUSIVE
                )
        return list(found)

    def signal(self, event: str) -> None:
        """Wake everything that is suspended on `event`, or is about to be."""
        self._roster.signal(event)

    def live(self) -> list[Live]:
        """Everything that has not ended, in the order of their ids."""
        return self._roster.all()

    def locked(self) -> list[Live]:
        """Of them those with locks, had or wanted."""
        return self._roster.locked()

    def live_of(self, name: str) -> list[Live]:
        """Of them those of one type."""
        return self._roster.named(name)

    def live_own(self) -> list[Live]:
        """Of them those that are no user's: of types that the database brings along. There may be
        very many others.
        """
        own = [name for name in self._roster.names() if self.types.is_own(name)]
        return [live for name in own for live in self._roster.named(name)]

    def live_one(self, id: int) -> Live | None:
        return self._roster.get(id)

    def counters(self) -> dict[str, int]:
        """For metrics: live procedures, workers, commits of steps and undos, retries."""
        return {
            "live": len(self._roster),
            "workers": self._workers,
            "stuck": self.stuck + (0 if self.crew is None else self.crew.stuck),
            "hands": 0 if self.crew is None else len(self.crew.hands),
            "taken_back": 0 if self.crew is None else self.crew.taken_back,
            "commits": self._turns.commits,
            "handed": self._turns.handed,
            "retries": self._roster.retries,
            "early": self._early.begun,
            "early_dropped": self._early.dropped,
        }

    @property
    def figures(self) -> Figures:
        """Of types and steps."""
        return self._roster.figures

    def waiting(self) -> dict[str, tuple[int, int]]:
        """Queue → how many of it could run and wait, and for how long the next one has, in ms; of
        very many queues those where most wait.
        """
        now = self._clock.now_ms()
        found = sorted(self._roster.waits().items(), key=lambda one: -one[1][0])
        most = limits.FIGURES_QUEUES_MAX
        return {queue: (n, max(0, now - since)) for queue, (n, since) in found[:most]}

    @property
    def reign(self) -> int:
        """What its grants of locks are fenced by, and what it keeps of signals."""
        return self._turns.reign

    # ------------------------------------------------------------------------------ workers
    @property
    def workers(self) -> int:
        """How many procedures may run at once."""
        return self._wanted

    def set_workers(self, count: int) -> None:
        """Change it now (J6): more start at once, surplus ones leave after their turn."""
        self._wanted = _checked_workers(count)
        self._roster.dismiss()
        if self._serving:
            self._hire()

    async def _watch_steps(self) -> None:
        """Steps that run longer than they may are stuck: for each of them one more worker is hired,
        so that they do not starve the others. Until cancelled.
        """
        while True:
            await asyncio.sleep(_STUCK_LOOK_S)
            now = self._clock.now_ms()
            late = 0
            for live in self._running.values():
                began, limit_ms, _step = live.step_began
                late += began > 0 and now - began > limit_ms
            self.stuck = late
            self._runner.hire(late)
            self._hire()

    def _hire(self) -> None:
        while self._workers < self._wanted + self._runner.extra:
            self._workers += 1
            self._task(self._worker())

    async def _worker(self) -> None:
        try:
            while self._serving and self._workers <= self._wanted + self._runner.extra:
                live = self._roster.take()
                if live is None:
                    await self._roster.idle()
                    continue
                async with self._locks(live.id):
                    live.running = True
                    self._running[live.id] = live
                    try:
                        await self._turns.turn(live, self._may_go_on)
                    except Exception as error:  # noqa: BLE001  the boundary: the others go on
                        self._turns.park(live, error)
                    finally:
                        live.running = False
                        del self._running[live.id]
        finally:
            self._workers -= 1

    # ------------------------------------------------------------------------------ details
    def _may_go_on(self, live: Live) -> bool:
        """Whether a turn may go on: nobody waits for its lock, it is not paused, and we are not
        stopping.
        """
        return (
            self._serving
            and not self._locks.contended(live.id)
            and not self._roster.pause_over(live)
        )

    def pause_of(self, live: Live) -> dict[str, object] | None:
        """What keeps it from running, by whom and why; None: nothing is paused."""
        key = self._roster.pause_over(live)
        pause = self.pauses.get(key) if self.pauses is not None and key else None
        if pause is None:
            return None
        kind, _, name = key.partition(":")
        return {"kind": kind, "name": name, **pause.to_plain()}

    def pause_ended(self) -> None:
        """What was paused runs again."""
        self._roster.go_on()

    def _ended(self, stored: Stored) -> None:
        record = stored.record
        self._janitor.ended(record)
        if self.schedules is not None:
            self.schedules.ended(record.id)
        if small(record):
            self._recent[record.id] = stored
            if len(self._recent) > _RECENT_MAX:
                self._recent.popitem(last=False)
        for watcher in self._watchers.pop(record.id, ()):
            if not watcher.done():
                watcher.set_result(record)

    def _reopened(self, id: int) -> None:
        """What it ended with is not so any more: it goes on, or is forgotten."""
        self._recent.pop(id, None)

    def _unwatch(self) -> None:
        for watchers in self._watchers.values():
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_exception(self._refusal())
        self._watchers.clear()

    def _must_serve(self) -> None:
        if not self._serving:
            raise self._refusal()


def _checked_workers(count: int) -> int:
    if type(count) is not int or not 1 <= count <= limits.PROCEDURE_WORKERS_MAX:
        raise InvalidArgument(
            f"workers must be 1 to {limits.PROCEDURE_WORKERS_MAX}, got {count!r:.40}"
        )
    return count


def _stopping() -> KvorumError:
    return Unavailable("the procedure engine of this node is starting or stopping; ask again")
