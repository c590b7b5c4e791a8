"""Steps of users' procedures in processes beside a node, or beside the worker that has its lease.

    engine ── run ─▶ StepProcesses ── a socket ─▶ process (kvorum/steps/step_process.py): the method
      ▲  reads, tables, progress ◀── asks ──────────┘
      └── outcome and writes, committed here

So a step can neither stop the loop that serves requests and renews leases, whatever it computes and
however long it keeps Python's lock, nor end it: a process that ends under steps is reported `Died`
to each of them, and the engine counts (procedures/engine/core.py: died, aside).

Steps share a process, as they would share a worker. One that its process did not survive runs alone
from then on: so what is counted after the first time was its own doing. A shared process that is
silent, because a step keeps Python's lock, gets nothing new; others, and what it was given and has
not begun, get another process.

A step that has a deadline shares its process only with others that have one. An async one is
cancelled there at its deadline. A plain one cannot be, nor one that does not hear of it: its
process is ended, after a moment for those beside it. Only then the step is reported as failed: what
undoes it must not meet it.

Whoever dies takes all of them with it: they are ended by the kernel, or by the end of their socket.

What a declaration's lock rule and its check of arguments say is asked for there, too: they have two
seconds. Left out: operations of the bus run in the worker itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kv.base import limits
from kv.base.config import OPTIONS
from kv.base.errors import InvalidArgument, KvorumError, Unavailable, from_wire, to_wire
from kv.base.ids import TableId
from kv.base.ops import Op
from kv.base.ports import Timers
from kv.base.wire_row import WireRow
from kvorum.sql.sql_channel import Channel
from kvorum.steps.step_channel import (
    ANSWER,
    ASK,
    BEAT,
    BROKEN,
    CANCEL,
    ENDED,
    HEART,
    HIRE,
    LOOK,
    LOOKED,
    PROGRESS,
    READY,
    RUN,
    SETTINGS,
    SEVERAL,
    UNBEGUN,
    Answer,
    Ask,
    Look,
    Looked,
    Marks,
    Mouth,
    Pieces,
    Ran,
    Run,
    outcome_of,
    pieces,
    read_ask,
    read_looked,
    read_ran,
    run_of,
)
from procedures.engine import core, records
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.flow import BEATING
from procedures.engine.heartbeats import Bound
from procedures.engine.records import Record
from procedures.engine.registry import (
    ProcedureType,
    StepDef,
    UndoDef,
    declaration,
    declared_in,
    entrusted,
)
from procedures.engine.retries import Retry
from procedures.engine.runner import (
    Died,
    Ended,
    Failed,
    Places,
    Returned,
    Runner,
    TryAgain,
    outlasted,
)
from procedures.engine.submission import Seen

log = logging.getLogger(__name__)

_LOOK_S: Final = limits.STEP_PROCESS_BEAT_MS / 1000
_LATE_LOOKS_MAX: Final = 2
_MODULE: Final = "kvorum.steps.step_process"


class _Call:
    """A step that a process runs."""

    def __init__(self, ctx: StepContext | None) -> None:
        """None: it is asked what its type's code says of arguments."""
        self.ctx = ctx
        self.txn: StepTxn | None = None if ctx is None else getattr(ctx.txn, "inner", ctx.txn)
        self.ended: asyncio.Future[Ran | Looked | Died | TryAgain | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.answering: set[asyncio.Task[None]] = set()
        self.overdue = False

    def answered(self, task: asyncio.Task[None]) -> None:
        """Whoever waits for the step must hear of an answer that could not be given."""
        self.answering.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.ended.done():
            self.ended.set_exception(error)

    @property
    def unfinished(self) -> bool:
        """Whether its process may still be at it, though nobody waits any more."""
        ended = self.ended
        if not ended.done() or ended.cancelled() or ended.exception() is not None:
            return True
        return ended.result() is None

    def end(self, how: Ran | Looked | Died | TryAgain | None) -> None:
        if not self.ended.done():
            self.ended.set_result(how)


class _Process:
    """One of them. `gone` is called once it is."""

    def __init__(
        self, timers: Timers, settings: dict[str, object], *, alone: bool, timed: bool
    ) -> None:
        self._timers, self._settings = timers, settings
        self.alone = alone
        self.timed = timed  # its steps have deadlines
        self.calls: dict[int, _Call] = {}
        self.ready = False
        self.settled = asyncio.Event()  # it is ready, or over
        self.leaving = False  # it is to be ended soon
        self.over = False
        self._ended_here = False
        self.heard = timers.monotonic()
        self._broken = ""
        self._memory = mmap.mmap(-1, Marks.BYTES)
        self._marks = Marks(self._memory)
        self._channel: Channel | None = None
        self._mouth: Mouth | None = None
        self._pieces = Pieces()
        self._child: asyncio.subprocess.Process | None = None
        self._handle = -1  # the kernel's, while it is there
        self._waiting: list[list[object]] = []  # said before it had begun

    def take(self, number: int, call: _Call) -> None:
        self._marks.clear(number)
        self.calls[number] = call

    def withdraw(self, number: int) -> bool:
        """Whether it has not begun, and never will."""
        return self._marks.withdraw(number)

    def let_go(self) -> None:
        """It is held up: what has not begun goes elsewhere."""
        for number, call in self.calls.items():
            if self.withdraw(number):
                call.end(None)

    def cancel(self, number: int) -> None:
        """Nobody waits for it any more."""
        if not self.over:
            self.withdraw(number)
            self.send([CANCEL, number])

    @property
    def why_over(self) -> str:
        return self._broken or "the process for its steps ended before it had begun"

    @property
    def silent(self) -> bool:
        """Held up by one of its steps."""
        silent_s = self._timers.monotonic() - self.heard
        return self.ready and silent_s > limits.STEP_PROCESS_SILENT_MS / 1000

    async def live(self) -> None:
        """From its start to its end."""
        why = "before it had begun"
        try:
            await self._start()
            assert self._child is not None
            code = await self._child.wait()
            why = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        except OSError as error:
            self._broken = f"it cannot be started: {error.strerror or error}"
        finally:
            self._end(why)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        marks = os.memfd_create(_MODULE)
        os.ftruncate(marks, Marks.BYTES)
        self._memory, before = mmap.mmap(marks, Marks.BYTES), self._memory
        self._memory[:] = before[:]
        before.close()
        self._marks = Marks(self._memory)
        with theirs, os.fdopen(marks):
            try:
                self._child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _MODULE, str(os.getpid()), str(marks)),
                    pass_fds=[marks],
                    stdin=theirs.fileno(),
                    env=_environment(os.environ),
                    start_new_session=True,  # Ctrl-C is for us: steps under way may end
                )
            except BaseException:
                ours.close()
                raise
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self._handle = os.pidfd_open(self._child.pid)
        self._channel = Channel(ours, self._heard, self._kill)
        self._mouth = Mouth(self._channel)
        self._channel.send([SETTINGS, self._settings])
        for message in self._waiting:
            self._channel.send(message)
        self._waiting.clear()
        if self.over:
            self.kill()

    def send(self, message: list[object]) -> None:
        if self._mouth is None:
            self._waiting.append(message)
        else:
            self._mouth.say(message)

    def kill(self, why: str = "") -> None:
        """End it, which is no doing of its steps."""
        self._broken = self._broken or why
        self._ended_here = True
        self._kill()

    def _kill(self) -> None:
        self.over = True
        self.settled.set()
        if self._handle >= 0:  # not by its own `kill`, which may take from us how it ended
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _end(self, why: str) -> None:
        self.over = True
        if self._channel is not None:
            self._channel.close()
        self._kill()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        calls, self.calls = self.calls, {}
        begun = {number for number in calls if self._marks.has_begun(number)}
        self._memory.close()
        beside = f", beside {len(begun) - 1} others" if len(begun) > 1 else ""
        for number, call in calls.items():
            if self.ready and not self._ended_here and number in begun:
                call.end(Died(f"{why}{beside}"))
            elif self._spares(number in begun):
                call.end(None)  # it is no doing of this one
            else:
                why_not = self._broken or f"the process for its steps ended {why}"
                call.end(TryAgain(core.failure("STEP_PROCESS", why_not)))

    def _spares(self, begun: bool) -> bool:
        """Whether a step is to run elsewhere now that this process has ended."""
        if not self.ready or self.alone:
            return False
        return not begun if self.leaving else not self._ended_here

    def _heard(self, message: WireRow, _client: socket.socket | None) -> None:
        self.heard = self._timers.monotonic()
        if len(message) == 4 and message[0] != PROGRESS:
            self._piece(*message)
            return
        match message:
            case [str(kind), list(several)] if kind == SEVERAL:
                for one in several:
                    self._heard(one, None)
            case [str(kind)] if kind == READY:
                self.ready = True
                self.settled.set()
            case [str(kind)] if kind == BEAT:
                pass
            case [str(kind), int(run)] if kind == UNBEGUN:
                if (call := self.calls.get(run)) is not None:
                    call.end(None)
            case [str(kind), str(why)] if kind == BROKEN:
                self._broken = why
                log.error("a process for steps cannot be used: %s", why)
                self.kill()
            case [str(kind), int(run), *said] if kind in (HEART, PROGRESS):
                call = self.calls.get(run)
                if call is not None and call.ctx is not None:
                    _of_itself(call.ctx, *said)
            case _:
                raise AssertionError(f"a step process said {message!r:.80}")

    def _piece(self, kind: str, run: int, last: bool, data: bytes) -> None:
        whole = self._pieces.whole(kind, run, last, data)
        call = self.calls.get(run)
        if whole is None or call is None:
            return
        if kind == ENDED:
            call.end(read_ran(whole))
        elif kind == LOOKED:
            call.end(read_looked(whole))
        elif kind == ASK and call.txn is not None:
            answering = self._answer(run, call, read_ask(whole))
            task = asyncio.get_running_loop().create_task(answering)
            call.answering.add(task)
            task.add_done_callback(call.answered)

    async def _answer(self, run: int, call: _Call, ask: Ask) -> None:
        try:
            answer = Answer(ask.number, await _asked(call, ask))
        except KvorumError as error:
            answer = Answer(ask.number, None, to_wire(error))
        for message in pieces(ANSWER, run, answer):
            self.send(message)


async def _asked(call: _Call, ask: Ask) -> object:
    txn, args = call.txn, ask.args
    assert txn is not None
    assert call.ctx is not None
    match ask.what:
        case "ids":
            return await call.ctx.take_ids(*args)
        case "resolve":
            return await txn.tables.resolve(*args)
        case "writable":
            return await txn.tables.writable(*args)
        case "begin":
            return (await txn.snapshot()).start_ts
        case "get":
            row = await (await txn.snapshot()).get(*args)
            return None if row is None else list(row)
        case "multi_get":
            rows = await (await txn.snapshot()).multi_get(*args)
            return [None if row is None else list(row) for row in rows]
        case "scan":
            start, end, limit, reverse = args
            page = await (await txn.snapshot()).scan(start, end, limit=limit, reverse=reverse)
            return [[list(item) for item in page.items], page.resume, page.at]
        case what:
            raise AssertionError(f"a step process asked for {what!r:.40}")


class StepProcesses(Runner):
    """See the module. What the modules do not declare runs here, as ever."""

    def __init__(
        self,
        modules: Sequence[str],
        timers: Timers,
        *,
        threads: int = limits.PROCEDURE_THREADS_DEFAULT,
        log_level: str = "warning",
    ) -> None:
        """The modules are imported here, too."""
        super().__init__(threads)
        self._timers = timers
        types = [declaration(cls) for cls in declared_in(modules)]
        self._names = frozenset(declared.name for declared in types)
        self._any_timed = any(
            entrusted(declared).apart
            or any(
                step.may_ms or step.attempt_ms or step.heartbeat_ms
                for step in declared.steps.values()
                if step.name != BEATING  # of which few workflows make use
            )
            for declared in types
        )
        self._settings = {
            "modules": list(modules),
            "path": list(sys.path),
            "threads": threads,
            "log_level": log_level,
        }
        self._numbers = itertools.count(1)
        self._all: dict[_Process, asyncio.Task[None]] = {}
        self._alone = asyncio.Semaphore(limits.STEP_PROCESSES_ALONE_MAX)
        self._new = asyncio.Semaphore(limits.STEP_PROCESSES_ALONE_NEW_MAX)
        self._timed = Places(threads)  # for plain steps with deadlines
        self._closed = False
        self._watching: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A process takes a second to start: the first step shall not wait for it."""
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
            self._shared(timed=False)
            if self._any_timed:
                self._shared(timed=True)

    async def _watch(self) -> None:
        """Look for processes that are held up."""
        while not self._closed:
            await asyncio.sleep(_LOOK_S)
            for timed in (False, True):
                shared, free = self._usable(timed)
                if free or len(shared) < limits.STEP_PROCESSES_MAX:  # else it would come back here
                    for process in shared:
                        if process.silent:
                            process.let_go()

    async def prepared(self, method: StepDef | UndoDef, name: str, id: int) -> None:
        if name not in self._names:
            await super().prepared(method, name, id)
            return
        if not method.is_async:
            await self._timed.keep(id)
        await self._shared(timed=True).settled.wait()

    def unprepared(self, id: int) -> None:
        super().unprepared(id)
        self._timed.give_back(id)

    def runs_apart(self, name: str) -> bool:
        return name in self._names

    def at_once(self, name: str) -> bool:
        return name not in self._names or any(
            one.ready and not (one.alone or one.timed or one.over or one.silent)
            for one in self._all
        )

    def hire(self, stuck: int) -> None:
        changed = min(stuck, limits.PROCEDURE_STUCK_HIRED_MAX) != self.extra
        super().hire(stuck)
        self._timed.more(self.extra)
        for process in self._all if changed else ():
            process.send([HIRE, self.extra])

    def close(self) -> None:
        """Steps under way are ended: they run again, later or elsewhere."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        for process in self._all:
            process.kill()
        super().close()

    async def closed(self) -> None:
        tasks = [*self._all.values(), *([] if self._watching is None else [self._watching])]
        if tasks:
            await asyncio.wait(tasks)

    async def run(
        self, method: StepDef | UndoDef, make: Callable[[], object], ctx: StepContext
    ) -> Ended:
        if ctx.name not in self._names:
            return await super().run(method, make, ctx)
        if not (ctx.left_ms or ctx.heart.ms) or method.is_async:
            return await self._run(method, ctx)
        if not self._timed.claim(ctx.id) and not await self._turn(ctx):
            return outlasted(method, ctx)
        try:
            return await self._run(method, ctx)
        finally:
            self._timed.leave()

    async def _turn(self, ctx: StepContext) -> bool:
        """Of a plain step that runs again, whose time counts already: whether there is a place for
        it before its time is over. (Past the point of no return each run has its own.)
        """
        if ctx.renewed or not ctx.left_ms:
            await self._timed.take()
            return True
        began = self._timers.monotonic()
        try:
            async with asyncio.timeout(ctx.left_ms / 1000):
                await self._timed.take()
        except TimeoutError:
            return False
        ctx.left_ms = max(1, ctx.left_ms - int(1000 * (self._timers.monotonic() - began)))
        return True

    async def _run(self, method: StepDef | UndoDef, ctx: StepContext) -> Ended:
        until = self._timers.monotonic() + ctx.left_ms / 1000 if ctx.left_ms else 0.0
        ctx.heart.slack_ms = 2 * limits.PROCEDURE_HEARTBEAT_TELL_MS if ctx.heart.ms else 0
        if not ctx.record.deaths:
            while True:
                process = self._shared(timed=until > 0 or ctx.heart.ms > 0)
                if (ended := await self._call(process, method, ctx, until)) is not None:
                    return ended  # else another one held its process up before it had begun
        if not await self._place_alone(0.0 if ctx.renewed else until):
            return outlasted(method, ctx)
        try:
            if ctx.left_ms and ctx.renewed:  # each of its runs has that time for itself
                until = self._timers.monotonic() + ctx.left_ms / 1000
            return await self._run_alone(method, ctx, until)
        finally:
            self._alone.release()

    async def _place_alone(self, until: float) -> bool:
        """Whether there is a place for one that runs alone, in time. `until`: 0 = it waits."""
        try:
            async with asyncio.timeout(until - self._timers.monotonic() if until else None):
                await self._alone.acquire()
                try:
                    await self._new.acquire()
                except BaseException:
                    self._alone.release()
                    raise
        except TimeoutError:
            return False
        return True

    async def _run_alone(self, method: StepDef | UndoDef, ctx: StepContext, until: float) -> Ended:
        """Many may have shared the process that ended: they must not start theirs at once, and
        those that take long must not keep the one that ended it from being found.
        """
        with contextlib.ExitStack() as new:  # left once, however often it is closed
            new.callback(self._new.release)
            old_s = limits.STEP_PROCESS_ALONE_NEW_MS / 1000
            new.callback(asyncio.get_running_loop().call_later(old_s, new.close).cancel)
            process = self._start(alone=True, timed=until > 0 or ctx.heart.ms > 0)
            try:
                ended = await self._call(process, method, ctx, until)
            finally:
                process.kill()
        assert ended is not None, "nobody else is in its process"
        return ended

    async def _call(
        self, process: _Process, method: StepDef | UndoDef, ctx: StepContext, until: float
    ) -> Ended | None:
        """None: it has not begun, and its process is held up. `until`: its deadline; 0 = none."""
        call = _Call(ctx)
        left_ms = max(1, int(1000 * (until - self._timers.monotonic()))) if until else 0
        run = run_of(method, ctx, left_ms)
        what = f"step {method.name} of {ctx.name}"
        # an async one is cancelled there, and has a moment
        cancel_ms = limits.STEP_PROCESS_GRACE_MS if method.is_async else 0
        late_ms = left_ms + cancel_ms if left_ms else 0
        if ctx.heart.ms:
            ctx.heart.slack_ms += cancel_ms
            ctx.heart.begin()
        ended = await self._exchange(process, call, (RUN, run), late_ms, what)
        if isinstance(ended, _Late):
            return outlasted(method, ctx)
        assert not isinstance(ended, Looked)
        return _taken(call, ctx, ended) if isinstance(ended, Ran) else ended

    async def look(self, declared: ProcedureType, args: bytes) -> Seen:
        if not declared.apart:
            return await super().look(declared, args)
        what = f"the lock rule or check of arguments of {declared.name}"
        looked = await self._looked(Look(declared.name, declared.version, args), what)
        return Seen(looked.locks, looked.args)

    async def ask(self, declared: ProcedureType, query: str, record: Record, args: bytes) -> bytes:
        if declared.name not in self._names:
            return await super().ask(declared, query, record, args)
        shown = records.encode(records.needed(record))
        look = Look(declared.name, declared.version, args, query, shown)
        return (await self._looked(look, f"query {query} of {declared.name}")).args

    async def _looked(self, look: Look, what: str) -> Looked:
        """What users' code says that has to be quick. Raises what it refuses, InvalidArgument (it
        is not), Unavailable.
        """
        asked = LOOK, look
        died, late = 0, 0
        until = self._timers.monotonic() + limits.DEADLINE_MS_DEFAULT / 1000
        while True:
            process = self._shared(timed=True)
            await process.settled.wait()
            if process.over:
                raise Unavailable(f"{what} cannot be called now: {process.why_over}")
            match await self._exchange(process, _Call(None), asked, limits.PROCEDURE_LOOK_MS, what):
                case Looked(None) as looked:
                    return looked
                case Looked(list(error)):
                    raise from_wire(error)
                case _Late(begun=True):  # perhaps the machine stood still: a refusal is for good
                    late += 1
                    if late == _LATE_LOOKS_MAX:
                        ms = limits.PROCEDURE_LOOK_MS
                        raise InvalidArgument(f"{what} took more than {ms} ms: it must be quick")
                case TryAgain(failure):
                    raise Unavailable(failure.message)
                case Died(why):  # perhaps that of another one beside it
                    died += 1
                    if died == limits.PROCEDURE_DEATHS_MAX:
                        raise InvalidArgument(f"{what} ended the process that ran it {why}")
                case _:  # it has not begun: it is no doing of its own
                    if self._timers.monotonic() > until:
                        raise Unavailable(f"{what} had no turn: the processes for steps are busy")

    async def _exchange(
        self,
        process: _Process,
        call: _Call,
        asked: tuple[str, Run | Look],
        late_ms: int,
        what: str,
    ) -> Ran | Looked | Died | TryAgain | _Late | None:
        """Have a process do it; after `late_ms` the process is ended (0 = never)."""
        number = next(self._numbers)
        process.take(number, call)
        try:
            for message in pieces(asked[0], number, asked[1]):
                process.send(message)
            done = await self._ends_in_time(call, late_ms)
            if not done and not process.over:  # else it hears soon what became of it
                if process.withdraw(number):
                    return _Late(begun=False)
                if not await self._last_moment(process, call, what):
                    return _Late(begun=True)
                return await call.ended or _Late(begun=False)
            return await call.ended
        finally:
            process.calls.pop(number, None)
            if call.unfinished:
                process.cancel(number)
            for task in list(call.answering):
                task.cancel()
            if not process.calls and len(self._all) > 1:
                self._spare(process)

    @staticmethod
    async def _ends_in_time(call: _Call, late_ms: int) -> bool:
        """Whether it ends before `late_ms` (0 = never) are over, and is not silent for too long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + late_ms / 1000 if late_ms else 0.0
        heart = call.ctx.heart if call.ctx is not None and call.ctx.heart.ms else None
        while until or heart is not None:
            due = until
            if heart is not None:  # a step of a workflow may begin meanwhile, and be due before
                soon = loop.time() + limits.PROCEDURE_HEARTBEAT_WRITE_MS / 1000
                due = min(until or soon, heart.due, soon)
            if (await asyncio.wait([call.ended], timeout=max(0.0, due - loop.time())))[0]:
                return True
            if until and loop.time() >= until:
                return False
            if heart is not None and heart.check():
                return False
        return True

    async def _last_moment(self, process: _Process, call: _Call, what: str) -> bool:
        """Whether it ends while those beside it may. If it does not, its process is no more."""
        grace_s = limits.STEP_PROCESS_GRACE_MS / 1000
        call.overdue = process.leaving = True
        try:
            others = [one.ended for one in process.calls.values() if not one.overdue]
            if others and not process.silent:
                await asyncio.wait(others, timeout=grace_s)
        finally:
            call.overdue = not call.ended.done()
            if call.overdue:
                beside = f"{what}, which took longer than it may"
                process.kill(f"the process for its steps was ended because of {beside}")
            process.leaving = any(one.overdue for one in process.calls.values())
        if (living := self._all.get(process)) is not None and process.over:
            await asyncio.wait([living], timeout=grace_s)
        return not process.over

    # -- the processes
    def _shared(self, *, timed: bool) -> _Process:
        """Of those that are not held up the one with the least to do."""
        shared, free = self._usable(timed)
        if not free and len(shared) < limits.STEP_PROCESSES_MAX:
            return self._start(alone=False, timed=timed)
        return min(free or shared, key=lambda one: len(one.calls))

    def _usable(self, timed: bool) -> tuple[list[_Process], list[_Process]]:
        """Those that such steps share; and those of them that are not held up."""
        shared = [
            one
            for one in self._all
            if one.timed == timed and not (one.alone or one.over or one.leaving)
        ]
        return shared, [one for one in shared if not one.silent]

    def _spare(self, process: _Process) -> None:
        """One that was started because another was held up goes, when both have nothing to do."""
        idle = [one for one in self._usable(process.timed)[1] if not one.calls]
        if process in idle and len(idle) > 1:
            process.kill()

    def _start(self, *, alone: bool, timed: bool) -> _Process:
        process = _Process(self._timers, self._settings, alone=alone, timed=timed)
        task = asyncio.get_running_loop().create_task(process.live(), name="step process")
        self._all[process] = task
        task.add_done_callback(lambda _: self._all.pop(process, None))
        if self.extra:
            process.send([HIRE, self.extra])
        if self._closed:
            process.kill()
        return process


def _of_itself(ctx: StepContext, *said: Any) -> None:
    """What a step says while it runs: how far it is, or heartbeats."""
    match said:
        case [float(part), str(text)]:
            ctx.said(part, text)
        case [dict(beats)]:
            for key, data in beats.items():
                ctx.heart.told(key, data)
        case [str(key)]:
            ctx.heart.bind(key, None)
        case [str(key), str(name), int(ms), int(slack_ms), policy]:
            limit = None if policy is None else Retry.of(policy)
            ctx.heart.bind(key, Bound(name, ms, limit, slack_ms))
        case _:
            raise AssertionError(f"a step said {said!r:.80} of itself")


@dataclass(frozen=True, slots=True)
class _Late:
    """It did not end in time; perhaps it had no turn."""

    begun: bool


def _taken(call: _Call, ctx: StepContext, ran: Ran) -> Ended:
    """What it did, as if it had run here."""
    assert call.txn is not None
    ctx.did(ran.signals, ran.starts, ran.emits, ran.found_by, too_early=ran.too_early)
    ctx.missing.update(ran.missing)
    if ran.failed is not None:
        return Failed(ran.failed, None if ran.policy is None else Retry.of(ran.policy))
    if ran.again is not None:
        return TryAgain(ran.again)
    for op in ran.ops:
        call.txn.add(None, Op(*op))
    call.txn.held.update(ran.held)
    for namespace, name, id in ran.tables:
        call.txn.known[namespace, name] = TableId(id)
    return Returned(None if ran.outcome is None else outcome_of(ran.outcome), ran.data)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Without what proves that this process is a node: a user's code is none."""
    secrets = {option.variable for option in OPTIONS if option.secret}
    return {name: value for name, value in own.items() if name not in secrets}
