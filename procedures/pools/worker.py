"""The life of a worker: enter, ask for work, have turns, report; enter anew when it must.

    poll ─▶ orders ─▶ a task per procedure: turn ─▶ report ─▶ the next poll takes it along

One poll always waits at the master; another goes out as soon as there is something to report, and
the master then answers the first. So what is said under load goes together, and alone at once.

A worker that the master does not know (a new master, or this one was silent too long) enters again
and says what it holds; what the master has given to others meanwhile it drops: steps under way are
cancelled if they are async, and none of them can commit (worker_turns.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable, to_wire
from kv.base.node_methods import Nodes
from kv.base.ports import Clock, Rng, Timers
from procedures.engine import core, records
from procedures.engine.context import Tables
from procedures.engine.counters import Blocks
from procedures.engine.needs import Needs
from procedures.engine.registry import ProcedureType, Registry
from procedures.engine.roster import Live
from procedures.engine.runner import Runner
from procedures.engine.store import ProcedureStore, Stored
from procedures.pools import messages
from procedures.pools.describe import described, remote_type
from procedures.pools.messages import (
    Drop,
    Entry,
    Look,
    Looked,
    Progress,
    Recall,
    Report,
    Run,
    Slow,
    Turned,
    Types,
)
from procedures.pools.worker_turns import Desk, HandTurns
from procedures.verbs import WORK_ENTER, WORK_IDS, WORK_LEAVE, WORK_POLL

log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.05
_AGAIN_S_MAX: Final = 1.0
_MARGIN_MS: Final = 2_000
_POLLS_MAX: Final = 2
# So long another process may seem to have the name though it is dead; then its lease is over.
_TAKEN_S: Final = limits.WORKER_LEASE_MS / 1000 + 1.0


class _Job:
    """A procedure that this worker holds."""

    __slots__ = ("desk", "given", "live", "recalled", "reported_moves", "reported_slow", "task")

    def __init__(self, version: int) -> None:
        self.given = version
        self.live: Live | None = None  # once its record is here
        self.task: asyncio.Task[None] | None = None
        self.recalled = False
        self.reported_slow = False
        self.desk: Desk | None = None
        self.reported_moves = 0

    @property
    def version(self) -> int:
        return self.given if self.live is None else self.live.version


class Worker:
    """See the module. `run` until cancelled, or until `stop`."""

    def __init__(
        self,
        name: str,
        pool: str,
        nodes: Nodes,
        store: ProcedureStore,
        types: Sequence[ProcedureType],
        tables: Tables,
        clock: Clock,
        timers: Timers,
        rng: Rng,
        *,
        slots: int = limits.WORKER_SLOTS_DEFAULT,
        threads: int = limits.PROCEDURE_THREADS_DEFAULT,
        host: str = "",
        pid: int = 0,
        operations: Sequence[str] = (),
        runner: Runner | None = None,
        capacity: Needs = (),
    ) -> None:
        """`runner` calls the methods; None = one of its own, in this process. `capacity`: what it
        has, of what procedures need (needs.py).
        """
        self.name = name
        self._pool = pool
        self._nodes = nodes
        self._store = store
        self._mine = [described(declared, pool) for declared in types]
        self._types = Registry()
        for declared in types:
            self._types.put(replace(declared, pool=declared.pool or pool))
        self._runner = Runner(threads) if runner is None else runner
        self._types.entrust(self._runner)
        self._tables = tables
        self._clock = clock
        self._timers = timers
        self._rng = rng
        self._slots = slots
        self._host, self._pid = host, pid
        self._operations = tuple(operations)
        self._capacity = capacity
        self.format: int = records.FORMAT_MORE  # of the records that it keeps all of
        self._runner_is_own = runner is None
        self._jobs: dict[int, _Job] = {}
        self._reports: list[Report] = []
        self._unheard: list[Report] = []  # said, but perhaps not taken by a master
        self._changed = asyncio.Event()
        self._epoch = 0
        self._ids = self._blocks()
        self._seq = 0
        self._seen = 0
        self._early: dict[int, messages.Order] = {}  # answers may overtake each other
        self._again = False
        self._stopping = False
        self._stop_ms = 0
        self.entered = asyncio.Event()
        self.refused: KvorumError | None = None
        self.commits = 0
        self.turns = 0
        self.turned: Callable[[Turned], None] = lambda _: None  # hears of each turn that is over

    # ------------------------------------------------------------------------------ life
    async def run(self) -> None:
        """Work until `stop`. Raises what keeps it out for good (Refused, InvalidArgument)."""
        self._runner.begin()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                watching = group.create_task(self._watch())
                while not (self._over and not self._reports):
                    if not await self._enter():
                        break  # what is not said is read from the store
                    await self._serve()
                watching.cancel()
            if self.entered.is_set():
                await self._leave()
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            raise first from first.__cause__
        finally:
            if self._runner_is_own:
                self._runner.close()

    def stop(self) -> None:
        """Take nothing more; steps under way may end (PROCEDURE_STOP_MS), then leave."""
        self._stopping = True
        self._stop_ms = self._clock.now_ms() + limits.PROCEDURE_STOP_MS
        for job in self._jobs.values():
            job.recalled = True
        self._changed.set()

    @property
    def _over(self) -> bool:
        return self._stopping and not self._jobs

    async def _unless_over(self, doing: Coroutine[object, None, object]) -> Any:
        """What `doing` returns; None if it is over before that: nobody may be there to answer."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(doing)  # not of the group, which its error would end
        try:
            while not task.done() and not self._over:
                changed = loop.create_task(self._changed.wait())
                await asyncio.wait([changed, task], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self._changed.clear()
            return await task if task.done() else None
        finally:
            task.cancel()

    async def _enter(self) -> bool:
        """False: it is over, and this worker did not get in."""
        pause, refused_s = _AGAIN_S, 0.0
        while not self._over:
            said = (*self._unheard, *self._reports)
            over = {r.id: r.version for r in said if isinstance(r, Turned)}
            held = {id: job.version for id, job in self._jobs.items()} | over
            entry = Entry(
                self._pool,
                self._slots,
                tuple(self._mine),
                tuple(sorted(held.items())),
                self._host,
                self._pid,
                self._operations,
                format=self.format,
                capacity=self._capacity,
            )
            try:
                answer = await self._unless_over(
                    self._nodes.call_node(WORK_ENTER, self.name, messages.encode(entry))
                )
                if answer is None:
                    return False
                epoch, dropped, types = answer
                break
            except KvorumError as error:
                now = self._timers.monotonic()
                if error.code != "NAME_TAKEN":
                    if error.disposition == "no":
                        raise
                    refused_s = 0.0
                elif not refused_s:
                    refused_s = now
                elif now - refused_s > _TAKEN_S:  # whoever has the name lives
                    raise
                log.warning("not entered yet: %s", error)
            await self._unless_over(asyncio.sleep(pause))
            pause = min(pause * 2, _AGAIN_S_MAX)
        else:
            return False
        self._epoch, self._seq, self._seen, self._again = epoch, 0, 0, False
        self._ids = self._blocks()  # what another master gave out is not known to this one
        self._early.clear()
        self._learn(types)
        for id in dropped:
            self._drop(id)
        gone = set(dropped)
        self._reports = [
            r
            for r in (*self._unheard, *self._reports)
            if not (isinstance(r, Turned) and r.id in gone)
        ]
        self._unheard = []
        self.entered.set()
        return True

    def _blocks(self) -> Blocks:
        return Blocks(self._reserve_ids, limits.PROCEDURE_ID_BLOCK)

    async def _reserve_ids(self, count: int) -> int:
        try:
            row = await self._nodes.call_node(WORK_IDS, self.name, self._epoch, count)
        except Refused as error:  # it enters anew, and keeps what it has
            raise Unavailable(f"no ids for children now: {error.message}") from error
        return int(row[0])

    def _learn(self, types: bytes) -> None:
        for description in messages.descriptions(types):
            self._types.learn(remote_type(description))

    async def _leave(self) -> None:
        try:
            await self._nodes.call_node(WORK_LEAVE, self.name, self._epoch, budget_ms=2_000)
        except KvorumError as error:
            log.warning("left without a word: %s", error)

    # ------------------------------------------------------------------------------ polling
    async def _serve(self) -> None:
        """Poll until the master does not know this worker any more, or everything is done."""
        polls: set[asyncio.Task[bool]] = set()
        known = True
        try:
            while known and not (self._over and not self._reports):
                if not polls or (self._reports and len(polls) < _POLLS_MAX):
                    polls.add(self._group.create_task(self._poll(idle=not self._reports)))
                changed = self._group.create_task(self._changed.wait())
                await asyncio.wait([changed, *polls], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self._changed.clear()
                for poll in [p for p in polls if p.done()]:
                    polls.remove(poll)
                    known = poll.result() and known
        finally:
            for poll in polls:
                poll.cancel()

    async def _poll(self, *, idle: bool) -> bool:
        """One exchange; False: the master does not know this worker."""
        said, self._reports = (
            self._reports[: limits.WORKER_BATCH_MAX],
            self._reports[limits.WORKER_BATCH_MAX :],
        )
        self._unheard += said
        self._seq += 1
        again, self._again = self._again, False
        epoch = self._epoch
        wait_ms = 0 if self._stopping else limits.WORKER_POLL_MS
        try:
            row = await self._nodes.call_node(
                WORK_POLL,
                self.name,
                epoch,
                self._seq,
                self._seen,
                again,
                wait_ms,
                messages.encode(said) if said else b"",
                budget_ms=limits.WORKER_POLL_MS + _MARGIN_MS,
            )
        except KvorumError as error:
            if error.code != "WORKER_UNKNOWN":
                log.warning("the master does not answer: %s", error)
            return False
        if epoch != self._epoch:
            return True
        for report in said:
            self._unheard.remove(report)
        for order in messages.orders(row[0]):
            if order.number > self._seen:
                self._early[order.number] = order
        while (next_order := self._early.pop(self._seen + 1, None)) is not None:
            self._seen += 1
            self._obey(next_order)
        if self._stopping:
            await asyncio.sleep(_AGAIN_S)
        return True

    def _obey(self, order: messages.Order) -> None:
        match order:
            case Run():
                self._begin(order)
            case Recall():
                if (job := self._jobs.get(order.id)) is not None:
                    job.recalled = True
            case Drop():
                self._drop(order.id)
            case Look():
                self._group.create_task(self._look(order))
            case Types():
                self._learn(order.types)
                self._types.deploys.update(order.deploys)

    def _say(self, report: Report) -> None:
        self._reports.append(report)
        self._changed.set()

    def _drop(self, id: int) -> None:
        job = self._jobs.pop(id, None)
        if job is not None and job.task is not None:
            log.warning("procedure %d was given to another worker", id)
            job.task.cancel()

    # ------------------------------------------------------------------------------ turns
    def _begin(self, run: Run) -> None:
        job = self._jobs[run.id] = _Job(run.version)
        job.recalled = self._stopping
        job.task = self._group.create_task(self._turn(job, run))

    async def _turn(self, job: _Job, run: Run) -> None:
        try:
            report = await self._worked(job, run)
        except asyncio.CancelledError:
            if self._jobs.get(run.id) is job:
                raise  # the worker itself is being stopped
            return
        except Exception as error:
            log.error("procedure %d is parked", run.id, exc_info=error)
            why = (
                f"internal error, worker {self.name} has the rest: {type(error).__name__}: {error}"
            )
            report = Turned(run.id, job.version, b"", parked=core.storable(why))
        if self._jobs.get(run.id) is job:
            del self._jobs[run.id]
            self.turns += 1
            self.commits += report.commits
            self.turned(report)
            self._say(report)

    async def _worked(self, job: _Job, run: Run) -> Turned:
        stored = await self._record(run)
        if stored is None or self._stopping:
            return Turned(run.id, run.version, b"", lost=True)
        live = job.live = Live(stored)
        live.wake, live.tries = run.wake, run.tries
        desk = job.desk = Desk(live, run, run.alive, self._clock.now_ms())
        turns = HandTurns(
            *(self._store, self._types, self._tables, self._clock, self._rng),
            *(self._runner, desk, _nothing),
        )
        turns.desk = desk
        turns.progress = self._progress
        turns.take_ids = self._ids.take
        await turns.turn(live, lambda _: not job.recalled)
        return desk.report(turns.commits)

    async def _record(self, run: Run) -> Stored | None:
        """What it is to run; None if it is gone, or cannot be read now."""
        if run.record:
            return Stored(records.decode(run.record, f"procedure {run.id}"), run.version)
        try:
            stored = await self._store.load(run.id)
        except KvorumError as error:
            log.warning("procedure %d is given back: %s", run.id, error)
            return None
        return None if stored is None or stored.record.ended else stored

    def _progress(self, id: int, part: float, text: str) -> None:
        self._reports = [r for r in self._reports if not (isinstance(r, Progress) and r.id == id)]
        self._reports.append(Progress(id, part, text))  # goes with the next poll

    async def _look(self, look: Look) -> None:
        declared = self._types.find(look.name, look.version)
        try:
            if declared is None or declared.remote:
                raise InvalidArgument(f"{look.name} of version {look.version} is not served here")
            if look.query:
                record = records.decode(look.record, "a procedure that is asked")
                told = await self._runner.ask(declared, look.query, record, look.args)
                self._say(Looked(look.question, None, (), told))
                return
            seen = await self._runner.look(declared, look.args)
        except KvorumError as error:
            if error.disposition == "no":  # else nobody knows now, and its first turn asks again
                self._say(Looked(look.question, to_wire(error)))
            return
        self._say(Looked(look.question, None, seen.locks, seen.args))

    async def _watch(self) -> None:
        """Say which steps take longer than they should, and which are not the first of their turn:
        somebody may wait for what those before have told.
        """
        while True:
            await asyncio.sleep(limits.WORKER_BEAT_MS / 1000)
            now, stuck = self._clock.now_ms(), 0
            for id, job in self._jobs.items():
                if job.live is None:
                    continue
                began, limit, step = job.live.step_began
                late = began > 0 and now - began > limit
                stuck += late
                moves = 0 if job.desk is None else job.desk.moves
                if moves > job.reported_moves:
                    self._changed.set()
                if late or job.reported_slow or moves > job.reported_moves:
                    job.reported_slow, job.reported_moves = late, moves
                    self._reports.append(Slow(id, step, now - began if late else 0))
            self._runner.hire(stuck)
            if self._stopping and now > self._stop_ms:
                for job in self._jobs.values():
                    if job.task is not None:
                        job.task.cancel()  # it will be run again by another worker
                self._jobs.clear()
                self._changed.set()


def _nothing(_: Stored) -> None:
    """Results and retention are the master's business."""
