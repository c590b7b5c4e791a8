"""Workers that speak HTTP (docs/reference/worker-protocol.md): they lease tasks, one execution of a
step each, run them in whatever language they are written in, and commit what came out.

To the engine each of them is a worker like any other (procedures/pools/worker.py), which lives in
the node that it speaks to; only its steps are called elsewhere. So leases, fencing, retries,
timeouts and commits are those of every step: a task whose lease ended may still be sent back, and
is refused, here because nobody knows it any more, else because the record has moved on.

A worker says which tasks it has. One that it was given and does not name after a while is given to
it again: the answer was lost on its way, and else the step would stay with it for ever.

A worker that is silent for HTTP_LEASE_MS has lost what it had, and its tasks go to others. What it
was given is in the memory of this node alone: at another one, or after a restart, it begins anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol

from kv.base import limits
from kv.base.errors import Busy, InvalidArgument, KvorumError, Refused, UnknownOutcome
from kv.base.ops import Op
from kv.base.ports import Rng, Timers
from procedures.engine import core, plain_data
from procedures.engine.context import StepContext
from procedures.engine.core import Change
from procedures.engine.kv_store import KvStore
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import (
    Again,
    Children,
    Done,
    Fail,
    Next,
    Outcome,
    State,
    Suspend,
)
from procedures.engine.registry import (
    ProcedureType,
    StepDef,
    StepMark,
    UndoDef,
    check_declared,
    check_heartbeat,
)
from procedures.engine.retries import retry
from procedures.engine.runner import Ended, Failed, Returned, Runner, TryAgain, outlasted
from procedures.engine.store import Fenced, Reads
from procedures.pools import inbox
from procedures.pools.messages import Turned
from procedures.pools.worker import Worker
from txn.client import TxnClient

_LOOK_S: Final = 0.2
_COMMIT_S: Final = limits.DEADLINE_MS_DEFAULT / 1000
_LOST: Final = core.failure("LEASE_LOST", "its worker did not speak for too long")


class ToldStore(KvStore):
    """A store that tells what became of the commits of steps."""

    def __init__(self, txn: TxnClient, told: Told) -> None:
        super().__init__(txn)
        self._told = told

    async def update(
        self,
        version: int,
        change: Change,
        *,
        ops: Sequence[Op] = (),
        reads: Reads | None = None,
        revived_version: int = 0,
    ) -> int:
        id = change.record.id
        try:
            found = await super().update(
                version, change, ops=ops, reads=reads, revived_version=revived_version
            )
        except (KvorumError, Fenced) as error:
            self._told(id, change, error)
            raise
        self._told(id, change, None)
        return found


class Told(Protocol):
    """Is told of every commit of a step, or why there was none."""

    def __call__(self, id: int, change: Change, error: BaseException | None) -> None: ...


Make = Callable[[str, str, Sequence[ProcedureType], Runner, int, Told], Worker]
"""(name, pool, types, runner, slots, whom its store tells) → a worker of the engine."""


class Task:
    """One execution that a worker is to run, or runs."""

    def __init__(self, name: str, method: StepDef | UndoDef, ctx: StepContext) -> None:
        loop = asyncio.get_running_loop()
        self.name, self.method, self.ctx = name, method, ctx
        self.given_s = 0.0  # when its worker was given it
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self.stored: asyncio.Future[dict[str, object]] = loop.create_future()

    @property
    def undoes(self) -> bool:
        return isinstance(self.method, UndoDef)

    def shown(self) -> dict[str, object]:
        """What its worker is given."""
        ctx, record = self.ctx, self.ctx.record
        children = [
            {"id": str(c.id), "name": c.name, "state": c.state, "result": c.result}
            for c in ctx.children
        ]
        return {
            "task": self.name,
            "procedure": str(ctx.id),
            "type": ctx.name,
            "version": record.version,
            "kind": "undo" if self.undoes else "step",
            "step": self.method.name,
            "args": ctx.args,
            "state": ctx.state,
            "token": ctx.given[0],
            "external": "" if self.undoes else inbox.token_of(ctx.given[0]),
            "owner": ctx.owner,
            "attempt": ctx.attempt,
            "round": ctx.round,
            "wake": ctx.wake,
            "now_ms": ctx.now_ms,
            "left_ms": ctx.left_ms,
            "heartbeat_ms": ctx.heart.ms,
            "last_heartbeat": ctx.last_heartbeat,
            "failure": ctx.failure,
            "children": children,
        }


class Handing(Runner):
    """Calls steps by giving them to whoever leases them."""

    def __init__(self, session: Session) -> None:
        super().__init__(1)
        self._session = session

    async def run(
        self, method: StepDef | UndoDef, make: Callable[[], object], ctx: StepContext
    ) -> Ended:
        task = self._session.offer(method, ctx)
        try:
            async with asyncio.timeout(ctx.left_ms / 1000 if ctx.left_ms else None) as time:
                if ctx.heart.ms:
                    ctx.heart.begin(time)
                return await asyncio.shield(task.ended)
        except TimeoutError:
            return outlasted(method, ctx)
        finally:
            if ctx.heart.ms:
                ctx.heart.end()
            self._session.taken_back(task)


class Session:
    """One worker, as long as it speaks."""

    def __init__(self, leases: Leases, key: tuple[str, str, str], shape: object) -> None:
        self.key, self.shape = key, shape
        self._leases = leases
        self.heard = leases.timers.monotonic()
        self.waiting: deque[Task] = deque()
        self.tasks: dict[str, Task] = {}
        self._committing: dict[int, Task] = {}
        self._come = asyncio.Event()
        self.worker: Worker | None = None
        self.life: asyncio.Task[None] | None = None

    def offer(self, method: StepDef | UndoDef, ctx: StepContext) -> Task:
        task = Task(self._leases.rng.token(12).hex(), method, ctx)
        self.tasks[task.name] = task
        self.waiting.append(task)
        self._come.set()
        return task

    def taken_back(self, task: Task) -> None:
        """It was run, or is not to be run any more."""
        self.tasks.pop(task.name, None)
        if task in self.waiting:
            self.waiting.remove(task)

    async def lease(self, count: int, wait_ms: int, have: Sequence[str] | None) -> list[Task]:
        """Up to so many; waits for one. `have`: the tasks that the worker has, None: it does not
        say.
        """
        self.heard = self._leases.timers.monotonic()
        again = [] if have is None else self._not_heard_of(frozenset(have))[:count]
        if count and not again and not self.waiting and wait_ms:
            self._come.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._come.wait()
            except TimeoutError:
                pass
        self.heard = self._leases.timers.monotonic()
        found = [task for task in again if task.name in self.tasks]
        found += [self.waiting.popleft() for _ in range(min(count - len(found), len(self.waiting)))]
        for task in found:
            task.given_s = self.heard
        return found

    def _not_heard_of(self, have: frozenset[str]) -> list[Task]:
        """Those that the worker was given, and does not have. An answer may be under way to it for
        as long as a request waits.
        """
        before = self.heard - limits.HTTP_LEASE_MS / 2000
        return [
            task
            for task in self.tasks.values()
            if 0 < task.given_s <= before and task.name not in have and not task.ended.done()
        ]

    def task(self, name: str) -> Task:
        """Raises Refused (TASK_LOST)."""
        self.heard = self._leases.timers.monotonic()
        task = self.tasks.get(name)
        if task is None or task.ended.done() or task in self.waiting:
            raise lost(name)
        return task

    async def end(self, task: Task, how: Ended) -> dict[str, object]:
        """It was run: what became of it, once that is stored."""
        self._committing[task.ctx.id] = task
        try:
            task.ended.set_result(how)
            async with asyncio.timeout(_COMMIT_S):
                return await asyncio.shield(task.stored)
        except TimeoutError:
            raise UnknownOutcome(
                f"task {task.name}: it is not known yet whether its step was stored; look at "
                f"procedure {task.ctx.id}",
                details={"procedure": str(task.ctx.id)},
            ) from None
        finally:
            if self._committing.get(task.ctx.id) is task:
                del self._committing[task.ctx.id]

    def told(self, id: int, change: Change, error: BaseException | None) -> None:
        task = self._committing.get(id)
        if task is None or task.stored.done():
            return
        if error is None:
            task.stored.set_result(_stored(change))
        elif isinstance(error, KvorumError):
            task.stored.set_exception(error)
        else:
            task.stored.set_exception(lost(task.name))

    def turned(self, turn: Turned) -> None:
        """It is over: of what is not told yet nothing was stored, as of an undo that fails."""
        task = self._committing.get(turn.id)
        if task is None or task.stored.done():
            return
        if turn.retry is None:
            task.stored.set_exception(lost(task.name))
            return
        error = {"code": turn.retry.code, "message": turn.retry.message}
        task.stored.set_result(
            {"state": State.RUNNABLE.name, "step": task.method.name, "error": error}
        )

    def lose(self) -> None:
        """Its worker is silent, or leaves."""
        for task in list(self.tasks.values()):
            if not task.ended.done():
                task.ended.set_result(TryAgain(_LOST))
        self.waiting.clear()


class Leases:
    """The workers that speak to this node over HTTP. `make` a worker of the engine."""

    def __init__(self, make: Make, timers: Timers, rng: Rng) -> None:
        self._make, self.timers, self.rng = make, timers, rng
        self._sessions: dict[tuple[str, str, str], Session] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def session(
        self, pool: str, worker: str, user: str, types: Sequence[Plain], slots: int
    ) -> Session:
        """That of a worker, begun if need be. Raises InvalidArgument, Busy, what keeps it out."""
        key = pool, worker, user
        session = self._sessions.get(key)
        if session is not None and (not types or session.shape == types):
            return session
        if session is not None:
            await self.end(key)
        if not types:
            raise Refused(f"worker {worker} is not known here: say types", code="WORKER_UNKNOWN")
        every = len(self._sessions)
        if every >= limits.HTTP_WORKERS_MAX or self._closed:
            raise _crowded("workers speak", every, limits.HTTP_WORKERS_MAX)
        mine = sum(whose == user for _, _, whose in self._sessions)
        if mine >= limits.HTTP_WORKERS_OF_USER_MAX:
            raise _crowded(f"workers of {user!r} speak", mine, limits.HTTP_WORKERS_OF_USER_MAX)
        declared = [type_of(one, pool) for one in types]
        session = self._sessions[key] = Session(self, key, list(types))
        name = f"{worker[: limits.NAME_CHARS_MAX // 2]}-{self.rng.token(4).hex()}"
        session.worker = self._make(name, pool, declared, Handing(session), slots, session.told)
        session.worker.turned = session.turned
        loop = asyncio.get_running_loop()
        session.life = loop.create_task(self._live(session), name=f"http worker {worker}")
        entered = loop.create_task(session.worker.entered.wait())
        try:
            await asyncio.wait([session.life, entered], return_when=asyncio.FIRST_COMPLETED)
        finally:
            entered.cancel()
        if session.life.done():
            await session.life  # raises why it may not
        return session

    def known(self, pool: str, task: str, user: str) -> tuple[Session, Task]:
        """Raises Refused (TASK_LOST)."""
        for (of, _, whose), session in self._sessions.items():
            if of == pool and whose == user and task in session.tasks:
                return session, session.task(task)
        raise lost(task)

    async def _live(self, session: Session) -> None:
        worker = session.worker
        assert worker is not None
        working = asyncio.get_running_loop().create_task(worker.run())
        try:
            while not working.done():
                await asyncio.wait([working], timeout=_LOOK_S)
                silent_s = self.timers.monotonic() - session.heard
                if silent_s > limits.HTTP_LEASE_MS / 1000:
                    break
            if working.done():
                await working
        finally:
            if self._sessions.get(session.key) is session:
                del self._sessions[session.key]
            session.lose()
            worker.stop()
            if not working.done():
                await asyncio.wait([working], timeout=limits.PROCEDURE_STOP_MS / 1000)
            if not working.done():
                working.cancel()
                await asyncio.wait([working])

    async def end(self, key: tuple[str, str, str]) -> None:
        """It leaves. What it had goes to others."""
        session = self._sessions.pop(key, None)
        if session is None or session.life is None:
            return
        session.heard = float("-inf")
        session.lose()
        await asyncio.wait([session.life])

    async def close(self) -> None:
        self._closed = True
        lives = [one.life for one in self._sessions.values() if one.life is not None]
        for session in list(self._sessions.values()):
            session.heard = float("-inf")
            session.lose()
        if lives:
            await asyncio.wait(lives)


def _crowded(who: str, actual: int, limit: int) -> Busy:
    return Busy(
        f"{actual} {who} to this node, the limit is {limit}; use another node",
        details={"limit": limit, "actual": actual},
    )


def lost(task: str) -> Refused:
    return Refused(
        f"task {task:.60} is not this worker's any more: its lease ended, or another one has it; "
        "drop what it did",
        code="TASK_LOST",
    )


def _stored(change: Change) -> dict[str, object]:
    record = change.record
    error = record.error or (record.trying.error if record.trying is not None else None)
    found: dict[str, object] = {"state": record.state.name, "step": record.step}
    if record.state is State.ROLLING_BACK:
        found["state"] = State.RUNNABLE.name
    if error is not None:
        found["error"] = {"code": error.code, "message": error.message}
    return found


# ---------------------------------------------------------------------- what is said
def type_of(said: Plain, pool: str) -> ProcedureType:
    """A declaration. Raises InvalidArgument."""
    name = said["name"]
    if not said["steps"] or len({one["name"] for one in said["steps"]}) < len(said["steps"]):
        raise InvalidArgument(f"type {name:.80}: it has steps, each with a name of its own")
    steps, undos = {}, {undo: UndoDef(undo, _elsewhere, True) for undo in said.get("undos") or ()}
    policy = _policy(said.get("retry"))
    for number, one in enumerate(said["steps"]):
        own = _policy(one.get("retry")) or policy
        mark = StepMark(
            first=number == 0,
            undo=one.get("undo") or "",
            point_of_no_return=bool(one.get("point_of_no_return")),
            undo_partial=bool(one.get("undo_partial")),
            deadline_ms=one.get("deadline_ms") or 0,
            attempt_ms=one.get("attempt_ms") or 0,
            retry=own,
            heartbeat_ms=one.get("heartbeat_ms") or 0,
        )
        check_heartbeat(name, mark.heartbeat_ms)
        if mark.undo and mark.undo not in undos:
            raise InvalidArgument(f"type {name}: step {one['name']} has no undo {mark.undo!r:.80}")
        steps[one["name"]] = StepDef(one["name"], _elsewhere, True, mark)
    declared = ProcedureType(
        name,
        said.get("version") or 1,
        said["steps"][0]["name"],
        MappingProxyType(steps),
        MappingProxyType(undos),
        (),
        said.get("timeout_ms") or 0,
        said.get("retention_ms") or limits.PROCEDURE_RETENTION_MS_DEFAULT,
        object,
        "a worker over HTTP",
        pool=pool,
        queue=said.get("queue") or "",
    )
    check_declared(name, declared)
    return declared


def _policy(said: Plain | None) -> Any:
    return None if said is None else retry(**said)


def _elsewhere(*_: object) -> NoReturn:
    raise AssertionError("a method that a worker over HTTP runs was called here")


_OUTCOMES: Final[Mapping[str, Callable[[Mapping[str, Any]], Outcome]]] = {
    "next": lambda said: Next(said["step"]),
    "done": lambda said: Done(said.get("result")),
    "again": lambda said: Again(said.get("delay_ms") or 0),
    "fail": lambda said: Fail(said["code"], said["message"], said.get("details")),
    "suspend": lambda said: Suspend(said["then"], said.get("event") or "", said["timeout_ms"]),
    "children": lambda said: Children(
        tuple((one["name"], one.get("args")) for one in said["children"]), said["then"]
    ),
}
OUTCOMES: Final = tuple(_OUTCOMES)


def outcome_of(ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
    """Raises InvalidArgument."""
    said = {"timeout_ms": 0, **said}
    if said["do"] == "suspend":
        if said.get("signal"):
            return ctx.until_signal(
                said["signal"], then=_field(said, "then"), timeout_ms=said["timeout_ms"]
            )
        if said.get("token"):
            return ctx.until_done(
                said["token"], then=_field(said, "then"), timeout_ms=said["timeout_ms"]
            )
    try:
        return _OUTCOMES[said["do"]](said)
    except KeyError as error:
        raise InvalidArgument(f"the outcome {said['do']} lacks the field {error}") from None


def _field(said: Mapping[str, object], name: str) -> Any:
    if name not in said:
        raise InvalidArgument(f"the outcome {said['do']} lacks the field {name!r}")
    return said[name]


def returned(
    task: Task,
    outcome: Mapping[str, object] | None,
    state: Mapping[str, object] | None,
    writes: Sequence[Callable[[StepContext], None]],
    emits: Sequence[tuple[str, object]],
    signals: Sequence[str],
) -> Returned:
    """What a worker says of a task that it has run. Raises InvalidArgument, TooLarge; then nothing
    of it counts.
    """
    ctx, made, data = task.ctx, None, task.ctx.record.data
    if not task.undoes:
        if outcome is None:
            raise InvalidArgument("a step is committed with an outcome")
        made = outcome_of(ctx, outcome)
    if state is not None:
        what = f"the state of {ctx.name}"
        data = plain_data.encode(dict(state), what, limits.PROCEDURE_STATE_BYTES_MAX)
    for one in (ctx.rehearsed(), ctx):  # what is wrong is found before anything of it counts
        for write in writes:
            write(one)
        for name, value in emits:
            one.emit(name, value)
        for event in signals:
            one.signal(event)
    return Returned(made, data)


def failed(task: Task, code: str, message: str, details: Mapping[str, object] | None) -> Ended:
    """It raised something, as a step does."""
    failure = core.failure(code, message, details=dict(details or {}))
    return Failed(failure, task.method.policy(code))
