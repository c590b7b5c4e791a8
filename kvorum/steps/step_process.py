"""A process that runs steps of users' procedures (kvorum/steps/step_processes.py starts it). It
keeps nothing, and commits nothing: it calls methods, and says what they did.

Whoever started it may be gone at any time: then it ends at once, also while a step computes and its
loop does not go round (the kernel is to end it).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import itertools
import logging
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

import uvloop

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, from_wire, to_wire
from kv.base.ids import TableId
from kvorum.local import logs
from kvorum.sql.sql_channel import Channel
from kvorum.steps.modules import load_types
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
    Looked,
    Marks,
    Mouth,
    Pieces,
    Ran,
    Run,
    children_of,
    failed,
    not_done,
    ops_wire,
    outcome_wire,
    pieces,
    read_answer,
    read_look,
    read_run,
)
from procedures.engine import core, records
from procedures.engine.context import StepContext, StepTxn, SyncStepTxn
from procedures.engine.heartbeats import Bound, Heart
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Fail
from procedures.engine.queries import answered
from procedures.engine.registry import ProcedureType, Registry, StepDef, UndoDef
from procedures.engine.runner import SLOW, Failed, Returned, Runner, TryAgain
from procedures.engine.step_exceptions import step_error
from procedures.engine.store import Row
from procedures.engine.submission import seen
from txn.results import ScanPage

log = logging.getLogger(__name__)

ORPHANED: Final = 3  # exit code: whoever started it is gone
_PR_SET_PDEATHSIG: Final = 1


class _Asking:
    """Questions of one run."""

    def __init__(self, process: StepProcess, run: int) -> None:
        self._process, self._run = process, run
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[object]] = {}

    async def ask(self, what: str, *args: object) -> Any:
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        self._process.send(ASK, self._run, Ask(number, what, list(args)))
        try:
            return await answer
        finally:
            del self._open[number]

    def answered(self, answer: Answer) -> None:
        future = self._open.get(answer.number)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(from_wire(answer.error))
        else:
            future.set_result(answer.value)


class _Reads:
    """procedures.engine.store.Reads, asked for."""

    def __init__(self, asking: _Asking, start_ts: int) -> None:
        self._asking = asking
        self.start_ts = start_ts

    async def get(self, key: bytes) -> Row | None:
        row = await self._asking.ask("get", key)
        return None if row is None else Row(*row)

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        rows = await self._asking.ask("multi_get", list(keys))
        return [None if row is None else Row(*row) for row in rows]

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage:
        items, resume, at = await self._asking.ask("scan", start, end, limit, reverse)
        return ScanPage([tuple(item) for item in items], resume, at)

    async def close(self) -> None:
        pass  # who committed it, or did not, has done so


class _Beating:
    """Tells the heartbeats of one run: those of a moment together."""

    def __init__(self, channel: Channel, run: int) -> None:
        self._channel, self._run = channel, run
        self._loop = asyncio.get_running_loop()
        self._said: dict[str, bytes] = {}
        self._waits = False

    def said(self, key: str, data: bytes) -> None:
        """In any thread."""
        self._said[key] = data
        if not self._waits:
            self._waits = True
            self._loop.call_soon_threadsafe(self._later)

    def bound(self, key: str, bound: Bound | None) -> None:
        """In any thread."""
        said: list[object] = [HEART, self._run, key]
        if bound is not None:
            policy = None if bound.policy is None else bound.policy.wire
            said += [bound.name, bound.ms, bound.slack_ms, policy]
        if threading.current_thread() is threading.main_thread():
            self._channel.send(said)  # at once: the step that begins may hold the loop up
        else:
            self._loop.call_soon_threadsafe(self._channel.send, said)

    def _later(self) -> None:
        self._loop.call_later(limits.PROCEDURE_HEARTBEAT_TELL_MS / 1000, self.tell)

    def tell(self) -> None:
        """What was not told yet."""
        self._waits = False
        said, self._said = self._said, {}
        if said:
            self._channel.send([HEART, self._run, said])


class _EnginesSide:
    """What a StepTxn needs of a store and of a catalog."""

    def __init__(self, asking: _Asking) -> None:
        self._asking = asking

    async def reads(self) -> _Reads:
        return _Reads(self._asking, await self._asking.ask("begin"))

    async def resolve(self, namespace: str, table: str) -> TableId:
        return TableId(await self._asking.ask("resolve", namespace, table))

    async def writable(self, namespace: str, table: str) -> TableId:
        return TableId(await self._asking.ask("writable", namespace, table))


class StepProcess:
    """See the module. `run` until it is ended."""

    def __init__(self, sock: socket.socket, marks: Marks) -> None:
        self._marks = marks
        self._channel = Channel(sock, self._heard, _orphaned)
        self._mouth = Mouth(self._channel)
        self._loop = asyncio.get_running_loop()
        self._settings: asyncio.Future[Plain] = self._loop.create_future()
        self._types = Registry()
        self._runner: Runner | None = None
        self._pieces = Pieces()
        self._runs: dict[int, tuple[asyncio.Task[None], _Asking]] = {}

    async def run(self) -> None:
        settings = await self._settings
        logs.configure(settings["log_level"])
        sys.path[:] = settings["path"]
        try:
            for declared in load_types(settings["modules"]):
                self._types.put(declared)
        except KvorumError as error:
            self._channel.send([BROKEN, error.message])
        else:
            self._runner = Runner(settings["threads"])
            self._channel.send([READY])
        while True:
            await asyncio.sleep(limits.STEP_PROCESS_BEAT_MS / 1000)
            self._channel.send([BEAT])

    def send(self, kind: str, run: int, what: Any) -> None:
        for message in pieces(kind, run, what):
            self._mouth.say(message)

    def _heard(self, message: list[object], _client: socket.socket | None) -> None:
        match message:
            case [str(kind), list(several)] if kind == SEVERAL:
                for one in several:
                    self._heard(one, None)
            case [str(kind), dict(settings)] if kind == SETTINGS:
                self._settings.set_result(settings)
            case [str(kind), int(count)] if kind == HIRE and self._runner is not None:
                self._runner.hire(count)
            case [str(kind), int(run)] if kind == CANCEL and run in self._runs:
                self._runs[run][0].cancel()
            case [str(kind), int(run), bool(last), bytes(data)]:
                whole = self._pieces.whole(kind, run, last, data)
                if whole is not None and kind == RUN:
                    asking = _Asking(self, run)
                    task = self._loop.create_task(self._execute(run, whole, asking))
                    self._runs[run] = task, asking
                    task.add_done_callback(lambda _: self._runs.pop(run))
                elif whole is not None and kind == LOOK:
                    self._look(run, whole)
                elif whole is not None and kind == ANSWER and run in self._runs:
                    self._runs[run][1].answered(read_answer(whole))
            case _:
                pass  # of a run that has ended

    def _look(self, number: int, data: bytes) -> None:
        """Here on the loop: it is to be quick, and whoever asked ends this process if it is not.
        What others did is sent before, else it would be lost with it.
        """
        self._mouth.flush()
        if not self._marks.begin(number):
            self._mouth.say([UNBEGUN, number])
            return
        look = read_look(data)
        try:
            declared = self._types.get(look.name, look.version)
            if look.query:
                record = records.decode(look.record, "a procedure that is asked")
                looked = Looked(None, (), answered(declared, look.query, record, look.args))
            else:
                looked = Looked(None, *seen(declared, look.args))
        except KvorumError as error:
            looked = Looked(to_wire(error))
        except BaseException as error:  # noqa: BLE001  users' code: whatever it raises
            its = f"query {look.query}" if look.query else "lock rule or check of arguments"
            why = f"its {its} raised {type(error).__name__}: {error}"
            looked = Looked(
                to_wire(InvalidArgument(f"procedure {look.name}: {core.storable(why)}"))
            )
        self.send(LOOKED, number, looked)
        self._mouth.flush()

    async def _execute(self, number: int, data: bytes, asking: _Asking) -> None:
        if not self._marks.begin(number):
            self._mouth.say([UNBEGUN, number])
            return
        try:
            ran = await self._ran(number, read_run(data), asking)
        except Exception as error:
            log.exception("a step cannot be run")
            ran = Ran(again=core.failure("STEP_PROCESS", f"{type(error).__name__}: {error}"))
        self.send(ENDED, number, ran)

    async def _ran(self, number: int, run: Run, asking: _Asking) -> Ran:
        record = records.decode(run.record, "a procedure to run")
        declared = self._types.get(record.name, record.version)
        methods: Any = declared.undos if run.undo else declared.steps
        method: StepDef | UndoDef | None = methods.get(run.method)
        if method is None:
            return Ran(again=core.failure("STEP_PROCESS", _changed(record.name, run.method)))
        side: Any = _EnginesSide(asking)
        txn = StepTxn(side, side)
        ctx = StepContext(
            record,
            step=run.step,
            token=run.token,
            attempt=run.attempt,
            wake=run.wake,
            now_ms=run.now_ms,
            children=children_of(run),
            txn=txn if method.is_async else SyncStepTxn(txn, self._loop),
            shape=declared.args,
            progress=lambda _id, part, text: self._progress(number, part, text),
            early=run.early,
            left_ms=run.left_ms,
            one_attempt=run.one_attempt,
            take_ids=lambda count: asking.ask("ids", count),
            kinds=declared.attributes,
        )
        assert self._runner is not None
        ctx.trace = run.trace
        beating = _Beating(self._channel, number)
        if run.heartbeat_ms:
            ctx.heart = Heart(run.heartbeat_ms, run.beats)
            ctx.heart.on_beat, ctx.heart.on_bound = beating.said, beating.bound
        try:
            async with asyncio.timeout(limits.PROCEDURE_EARLY_MS / 1000 if run.early else None):
                ended = await self._runner.run(method, declared.make, ctx)
        except TimeoutError:
            return Ran(again=core.failure(SLOW, "it took too long to run early"))
        finally:
            beating.tell()
        try:
            match ended:
                case Returned():
                    return await _returned(ended, ctx, txn, declared)
                case TryAgain(error):
                    return Ran(again=error, too_early=ctx.too_early)
                case Failed(error, policy):
                    return not_done(error, policy, too_early=ctx.too_early)
                case _:
                    raise AssertionError(f"a step ended as {ended!r:.80}")
        except KvorumError as error:
            return failed(txn.in_users_words(error), method)
        except Exception as error:  # noqa: BLE001  its outcome, too, is the application's
            known = step_error(error, method, ctx.step)
            return not_done(known, method.policy(known.code, error))
        finally:
            await txn.end()

    def _progress(self, run: int, part: float, text: str) -> None:
        self._loop.call_soon_threadsafe(self._channel.send, [PROGRESS, run, part, text])


async def _returned(
    ended: Returned, ctx: StepContext, txn: StepTxn, declared: ProcedureType
) -> Ran:
    outcome = None if ended.outcome is None else outcome_wire(ended.outcome, declared)
    ops = [] if isinstance(ended.outcome, Fail) else await txn.writes()
    return Ran(
        outcome=outcome,
        data=ended.data,
        ops=ops_wire(ops),
        held=sorted(txn.held),
        tables=[(*name, id) for name, id in txn.known.items()],
        signals=ctx.signals(),
        starts=ctx.starts,
        emits=ctx.emits,
        too_early=ctx.too_early,
        missing=sorted(ctx.missing),
        found_by=ctx.found_by,
    )


def _changed(name: str, method: str) -> str:
    """This process is younger than the one that started it, and imported what is there now."""
    return (
        f"{name} has no {method!r} in the modules as they are now on disk; start the worker or the "
        "node with them again, or put it back"
    )


def _orphaned() -> None:
    os._exit(ORPHANED)


def _end_with(parent: int) -> None:
    """Have the kernel end this process when the one that started it does, however it does."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        _orphaned()


def _outlive_signals() -> None:
    """Whoever stops a service may stop all of its processes. When this one ends is decided by the
    one that started it: it lets steps end, and theirs would be counted as a death. What a step
    forks can be ended by signals as ever.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def forked() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)
    os.register_at_fork(  # one that comes meanwhile waits for the child
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, numbers),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers),
        after_in_child=forked,
    )


async def _main() -> None:
    with contextlib.closing(socket.socket(fileno=os.dup(sys.stdin.fileno()))) as sock:
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # a step may read it
        marks = int(sys.argv[2])
        with mmap.mmap(marks, Marks.BYTES) as shared:
            os.close(marks)
            await StepProcess(sock, Marks(shared)).run()


if __name__ == "__main__":
    faulthandler.enable()  # a fault in a C library is reported with the step's line
    _end_with(int(sys.argv[1]))
    _outlive_signals()
    uvloop.run(_main())
