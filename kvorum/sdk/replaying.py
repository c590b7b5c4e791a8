"""A step of a procedure once more, with other code, on what it saw then. Nothing leaves.

    replay = await db.replay_procedure(4711, Transfer, step="deposit")

The execution is found in the versions of the procedure's record: what the record said before it is
what the step begins with; its reads are answered from the snapshot that it had (which is kept with
the step), its own signals and children as they were then. It runs in this process, like any step.
What it writes is compared with what the execution wrote: all rows of the database that have the
version of its commit.

Effects outside are refused and listed: connections, datagrams, other programs, files that are
opened to be written. That is seen where Python asks the system (sys.addaudithook), in the step's
own task or thread; a connection that was open before, or a library in C that asks by itself, is
not seen.

Old versions are kept for `gc_retention_ms`; what is older is SnapshotTooOld, which says so.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, NotFound, Refused
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.ops import Op
from kv.base.timestamps import compose, physical_ms
from kvorum.api.backend import Backend
from kvorum.api.model import ScanSpec
from kvorum.api.replays import Replay, Rows
from kvorum.api.watching import WatchSpec
from procedures.engine import core, heartbeats, plain_data, records
from procedures.engine.context import StepContext, StepTxn, SyncStepTxn
from procedures.engine.core import Ran, RunStep, RunUndo
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Children, Fail, State
from procedures.engine.records import Entry, Record
from procedures.engine.registry import ProcedureType, Registry, StepDef, UndoDef
from procedures.engine.runner import Died, Failed, Returned, Runner, TryAgain
from procedures.engine.store import Row
from procedures.engine.turn import child_of
from procedures.pools import rows
from txn.results import ScanPage

T = TypeVar("T")

LOOKS_MAX: Final = 2_000
"""Versions of a record in which an execution is looked for."""
_FIRST_TABLE: Final = 1 << 31  # numbers of this replay, for tables by name
_CHILDREN_MAX: Final = 1_000
_TABLES_AT_ONCE: Final = 16
_REFUSED: Final = (
    "socket.connect",
    "socket.sendto",
    "socket.sendmsg",
    "socket.bind",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "shutil.rmtree",
)


# ------------------------------------------------------------------- the execution, as it was
@dataclass(frozen=True, slots=True)
class _Then:
    """An execution: the record that it began with, and what it made of it."""

    before: Record
    after: Record
    version: int

    @property
    def entry(self) -> Entry:
        return self.after.history[-1]


async def _record(backend: Backend, id: int, at: int) -> tuple[Record, int] | None:
    found = await backend.control("past.record", {"id": id, "at": at, "kept": False})
    if found is None:
        return None
    record = records.decode(found["record"], f"procedure {id}")
    return record.settled(found["version"]), found["version"]


async def _kept(backend: Backend, id: int, at: int) -> dict[bytes, Row]:
    """The procedure's own rows that a step may read."""
    found = await backend.control("past.record", {"id": id, "at": at})
    there = () if found is None else found["kept"]
    return {key: Row(value, version) for key, value, version in there}


async def _beats(backend: Backend, then: _Then, kept: Mapping[bytes, Row]) -> Mapping[str, bytes]:
    """What runs before this one had said, as far as it was stored."""
    began, key = then.entry.start_ms, rows.heartbeat(then.before.id)
    row = kept.get(key)
    if row is not None and physical_ms(row.version) > began:  # by this run itself
        row = (await _kept(backend, then.before.id, compose(began, 0))).get(key)
    return heartbeats.read(None if row is None else row.value)


def _executions(record: Record) -> int:
    return record.spilled + len(record.history)


async def _found(backend: Backend, id: int, step: str, last: int, at: int) -> _Then:
    """The `last`-th execution of a step ("": of any), counted from the end. Raises NotFound."""
    newer = await _record(backend, id, at)
    if newer is None:
        raise NotFound(
            f"procedure {id} is not there{' now' if not at else ' at that moment'}: it was "
            "forgotten, or not submitted yet; at= looks from an earlier moment on",
            code="PROCEDURE_NOT_FOUND",
        )
    for _ in range(LOOKS_MAX):
        record, version = newer
        older = await _record(backend, id, version - 1)
        count = 0 if older is None else _executions(older[0])
        if _executions(record) > count and record.history[-1].step.removeprefix("undo:") in (
            step or record.history[-1].step.removeprefix("undo:"),
        ):
            last -= 1
            if not last:
                if older is None:
                    raise Refused(
                        f"step {record.history[-1].step} of procedure {id} ran with its "
                        "submission (early=True): there is no record from before it",
                        code="NOT_REPLAYABLE",
                    )
                return _Then(older[0], record, version)
        if older is None:
            break
        newer = older
    what = f"so many executions of step {step}" if step else "so many executions"
    raise NotFound(f"procedure {id} has not had {what} by then", code="STEP_NOT_FOUND")


# ------------------------------------------------------------------- what it reads
class _Tables:
    """Names of tables as numbers of this replay."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    async def resolve(self, namespace: str, table: str) -> TableId:
        if (namespace, table) not in self.names:
            self.names.append((namespace, table))
        return TableId(_FIRST_TABLE + self.names.index((namespace, table)))

    writable = resolve

    def split(self, key: bytes) -> tuple[tuple[str, str], bytes] | None:
        """Table and user key; None: a row of the procedure's own."""
        number = int.from_bytes(key[:4]) - _FIRST_TABLE
        return (self.names[number], key[4:]) if 0 <= number < len(self.names) else None


class _Reads:
    """procedures.engine.store.Reads of a snapshot of the past."""

    def __init__(self, backend: Backend, tables: _Tables, kept: dict[bytes, Row], at: int) -> None:
        self.start_ts = at
        self._context = copy_context()  # of before the step: whose connections these are
        self._backend, self._tables = backend, tables
        self._kept = kept

    async def get(self, key: bytes) -> Row | None:
        place = self._tables.split(key)
        if place is None:
            return self._kept.get(key)
        (ns, table), user_key = place
        row = await self._apart(self._backend.get(ns, table, user_key, self.start_ts))
        return None if row is None else Row(row.value, row.version)

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        return [await self.get(key) for key in keys]

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage:
        place = self._tables.split(start)
        if place is None:
            mine = sorted(key for key in self._kept if start <= key and (not end or key < end))
            mine = mine[::-1][:limit] if reverse else mine[:limit]
            return ScanPage([(key, *self._kept[key]) for key in mine], None, self.start_ts)
        (ns, table), low = place
        prefix = start[:4]
        high = end[4:] if end.startswith(prefix) else None
        spec = ScanSpec(
            prefix=None,
            start=low,
            end=high,
            reverse=reverse,
            limit=limit,
            cursor=None,
            at=self.start_ts,
        )
        page = await self._apart(self._backend.scan(ns, table, spec))
        found = [(prefix + item.key, item.value, item.version) for item in page.items]
        resume = None
        if page.cursor is not None and found:
            resume = found[-1][0] if reverse else found[-1][0] + b"\x00"
        return ScanPage(found, resume, self.start_ts)

    async def _apart(self, work: Coroutine[object, None, T]) -> T:
        """The database's own connections are none of the step's effects."""
        loop = asyncio.get_running_loop()
        return await loop.create_task(work, context=self._context.copy())

    async def close(self) -> None:
        """Nothing is held."""


class _Store:
    """As much of a ProcedureStore as a step's transaction needs."""

    def __init__(self, reads: _Reads) -> None:
        self._reads = reads

    async def reads(self) -> _Reads:
        return self._reads


# ------------------------------------------------------------------- effects outside
_effects: ContextVar[list[str] | None] = ContextVar("effects", default=None)
_hooked: list[bool] = []


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event not in _REFUSED and event != "open":
        return
    found = _effects.get()
    if found is None or (event == "open" and not _writes(args)):
        return
    told = f"{event} {', '.join(str(one)[:80] for one in args[-2:])}"
    if len(found) < limits.PROCEDURE_HISTORY_SHOWN_MAX:
        found.append(told)
    raise Refused(f"a replay has no effects outside: {told}", code="REPLAY_EFFECT")


def _writes(args: tuple[object, ...]) -> bool:
    mode = args[1] if len(args) > 1 else None
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


@contextmanager
def _refusing(effects: list[str]) -> Iterator[None]:
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    token = _effects.set(effects)
    try:
        yield
    finally:
        _effects.reset(token)


# ------------------------------------------------------------------- the replay
async def replayed(
    backend: Backend,
    procedure: int,
    declared: ProcedureType,
    *,
    step: str = "",
    last: int = 1,
    at: int = 0,
) -> Replay:
    """Execute a step again, as the module says. `step` "": the newest execution; `last`: the n-th
    of it, counted from the end; `at`: those of before that moment. Raises NotFound, SnapshotTooOld,
    Refused (NOT_REPLAYABLE), Forbidden (who may not operate it).
    """
    if type(last) is not int or not 1 <= last <= LOOKS_MAX:
        raise InvalidArgument(f"last must be 1 to {LOOKS_MAX}, got {last!r:.40}")
    then = await _found(backend, procedure, step, last, at)
    if then.before.name != declared.name:
        raise InvalidArgument(
            f"procedure {procedure} is a {then.before.name}, the code is of {declared.name}"
        )
    read_at = then.entry.read_ts or then.version - 1
    replay = Replay(procedure, then.entry.step, read_at, then.version, then.entry.outcome)
    replay.state = _state(then.after)
    tables = _Tables()
    kept = await _kept(backend, procedure, read_at)
    beats = await _beats(backend, then, kept)
    txn = StepTxn(_Store(_Reads(backend, tables, kept, read_at)), tables)  # type: ignore[arg-type]
    await _executed(replay, then, declared, txn, await _children(backend, then), beats)
    replay.wrote = await _written(backend, then.version)
    return replay


async def _executed(
    replay: Replay,
    then: _Then,
    declared: ProcedureType,
    txn: StepTxn,
    children: Any,
    beats: Mapping[str, bytes],
) -> None:
    types = Registry()
    types.put(declared)
    record = then.before
    if missing := core.missing(record, types):
        raise InvalidArgument(f"procedure {record.id}: {missing}")
    action = core.action(record)
    definition: StepDef | UndoDef
    if isinstance(action, RunStep):
        definition, label = declared.steps[action.step], action.step
    elif isinstance(action, RunUndo):
        definition, label = declared.undos[action.method], f"undo:{action.method}"
    else:
        raise Refused("children were undone there: no code ran", code="NOT_REPLAYABLE")
    ctx = StepContext(
        record,
        step=label,
        token=action.token,
        attempt=then.entry.attempt,
        wake=_wake(record, then.entry),
        now_ms=then.entry.start_ms,
        children=children,
        txn=txn if definition.is_async else SyncStepTxn(txn, asyncio.get_running_loop()),
        shape=declared.args,
        take_ids=_ids,
        kinds=declared.attributes,
    )
    if isinstance(definition, StepDef):
        known = heartbeats.of_execution(beats, action.token, ctx.round)
        ctx.heart = heartbeats.Heart(definition.heartbeat_ms, known)
    runner = Runner(1)
    try:
        with _refusing(replay.effects):
            if not definition.is_async:  # threads have no context of their own
                here, method = copy_context(), definition.method
                definition = replace(definition, method=lambda *given: here.run(method, *given))
            ended = await runner.run(definition, declared.make, ctx)
        await _judged(replay, then, types, txn, ctx, ended)
    finally:
        runner.close()
        await txn.end()


async def _judged(
    replay: Replay, then: _Then, types: Registry, txn: StepTxn, ctx: StepContext, ended: object
) -> None:
    match ended:  # type: ignore[exhaustive-match]
        case Returned(None, data):  # an undo
            replay.after = "undone"
            replay.new_state = replay.state | {"ctx_state": plain_data.decode(data)}
        case Returned(outcome, data) if outcome is not None:
            ran = Ran(data, ctx.attempt, ctx.now_ms, ctx.now_ms)
            first = 1 if isinstance(outcome, Children) else 0
            try:
                after = core.advance(then.before, outcome, ran, types, first).record
            except KvorumError as error:
                replay.after, replay.error = f"fails: {error.code}", _plain_error(error)
                return
            replay.after = after.history[-1].outcome if after.history else ""
            replay.new_state = _state(after)
            if isinstance(outcome, Fail):
                return
        case Failed(error, _) | TryAgain(error):
            replay.after, replay.error = f"fails: {error.code}", error.to_plain()
            return
        case Died(why):
            replay.after = f"dies: {why}"
            return
    for op in await txn.writes():
        if (place := _place(txn, op)) is not None:
            replay.writes[place] = op.value


def _place(txn: StepTxn, op: Op) -> tuple[str, bytes] | None:
    for (ns, name), number in txn.known.items():
        if op.key.startswith(prefix := table_prefix(number)):
            return f"{ns}/{name}", op.key[len(prefix) :]
    return None  # of the procedure's own: a signal that it took


async def _ids(_count: int) -> int:
    return 1 << 62  # of procedures that are not started


def _wake(record: Record, entry: Entry) -> str:
    if record.state is not State.WAITING:
        return ""
    if record.waits_for:
        return "children"
    return "timeout" if 0 < record.due_ms <= entry.start_ms else "event"


async def _children(backend: Backend, then: _Then) -> Any:
    if not then.before.waits_for:
        return ()
    first, count = then.before.rounds[-1]
    if count > _CHILDREN_MAX:
        raise Refused(
            f"the step waited for {count} children; a replay reads {_CHILDREN_MAX} at most",
            code="NOT_REPLAYABLE",
        )
    found = [await _record(backend, first + i, then.version - 1) for i in range(count)]
    return tuple(child_of(one[0]) for one in found if one is not None)


def _state(record: Record) -> Plain:
    told: dict[str, object] = {"state": record.state.name, "step": record.step}
    if record.state is State.SUCCESS:
        return told | {"result": plain_data.decode(record.result)}
    if record.error is not None:
        told["error"] = record.error.code
    return told | {"ctx_state": plain_data.decode(record.data)}


def _plain_error(error: KvorumError) -> Plain:
    return {"code": error.code, "message": error.message, "details": dict(error.details)}


async def _written(backend: Backend, version: int) -> Rows:
    """All rows of users' tables that one commit wrote: what watches of them would tell."""
    found: Rows = {}
    places = asyncio.Semaphore(_TABLES_AT_ONCE)

    async def look(ns: str, table: str) -> None:
        place = f"{ns}/{table}"
        async with places:
            watcher = await backend.watch(ns, table, WatchSpec(above=version - 1))
            try:
                while True:
                    event = await watcher.next()
                    if event.kind == "changes" and event.version == version:
                        found.update({(place, one.key): one.value for one in event.changes})
                    if event.version > version or (event.version == version and event.last):
                        return
            finally:
                await watcher.close()

    async with asyncio.TaskGroup() as group:
        for space in await backend.namespaces():
            for table in await backend.tables(space.name):
                group.create_task(look(space.name, table.name))
    return found
