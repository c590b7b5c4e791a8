"""What whoever runs procedures and the process that runs their steps say to each other, over a
`Channel` (kvorum/sql/sql_channel.py) that is the process's standard input.

    us ─▶ process   [SETTINGS, {modules, path, threads, log_level}]
                    [RUN, run, …]        Run: call this step
                    [LOOK, run, …]       Look: what its type's code says of arguments
                    [CANCEL, run]        nobody waits for it any more
                    [HIRE, count]        so many more plain steps may run, because others are stuck
                    [ANSWER, run, …]     to a question
    process ─▶ us   [READY] or [BROKEN, why]
                    [BEAT]               its loop goes round
                    [UNBEGUN, run]       it was withdrawn, and never begins
                    [ASK, run, …]        Ask: a read of the step's snapshot, a table's id
                    [PROGRESS, run, part, text]
                    [HEART, run, {key: details}] heartbeats since the last ones
                    [HEART, run, key, name, ms, slack_ms, policy] a step of a workflow begins that
                                                 may be silent for so long; [HEART, run, key]: ends
                    [ENDED, run, …]      Ran: how it ended, with all that it wrote
                    [LOOKED, run, …]     Looked

A step's reads come back one by one; its writes stay there until it ends, and come as one: so a
process that ends under a step leaves nothing. What may be large goes in pieces (`pieces`), because
a frame has a bound: [kind, run, is last, bytes]. What is said in one pass of a loop goes together
(`Mouth`): [SEVERAL, [message, …]].

Which steps have begun is not said, for it is asked only of a process that says nothing any more: it
is marked in memory that both have (`Marks`). There, too, stands that a step must not begin any
more, which its loop heard of and has not come to.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from kv.base import limits
from kv.base.errors import KvorumError
from kv.base.ops import Op
from kv.base.wire_row import WireRow
from kvorum.sql.sql_channel import Channel
from procedures.engine import core, plain_data, procedure, records
from procedures.engine.context import Child, StepContext
from procedures.engine.procedure import Children, Done, Fail, Outcome
from procedures.engine.records import Failure
from procedures.engine.registry import ProcedureType, StepDef, UndoDef
from procedures.engine.retries import Retry
from procedures.engine.submission import Start
from procedures.engine.typed_values import plain_of
from procedures.pools.emitted import Emitted

_MARKS: Final = 1 << 16  # far more than steps are under way
SEVERAL: Final = "several"
SETTINGS: Final = "settings"
RUN: Final = "run"
LOOK: Final = "look"
LOOKED: Final = "looked"
CANCEL: Final = "cancel"
HIRE: Final = "hire"
ANSWER: Final = "answer"
READY: Final = "ready"
BROKEN: Final = "broken"
BEAT: Final = "beat"
UNBEGUN: Final = "unbegun"
ASK: Final = "ask"
PROGRESS: Final = "progress"
HEART: Final = "heart"
ENDED: Final = "ended"

_PIECE_BYTES: Final = limits.FRAME_BYTES_MAX // 4
_OUTCOMES: Final = {cls.__name__: cls for cls in procedure.OUTCOMES}
_FIELDS: Final = {cls: [one.name for one in dataclasses.fields(cls)] for cls in procedure.OUTCOMES}
_PLAIN: Final = (str, int, float, bool, type(None))


class Run(msgspec.Struct, frozen=True, array_like=True):
    """One execution of a step, or (`undo`) of an undo."""

    record: bytes
    method: str
    undo: bool
    step: str
    token: str
    early: bool
    attempt: int
    wake: str
    now_ms: int
    children: tuple[tuple[int, str, str, bytes], ...]  # id, name, state, [result, error]
    left_ms: int = 0  # of its deadline, or …
    one_attempt: bool = False  # … of this attempt; 0 = it has none
    heartbeat_ms: int = 0
    beats: dict[str, bytes] = {}  # what was said in this execution before
    trace: str = ""


class Look(msgspec.Struct, frozen=True, array_like=True):
    """Whether these arguments fit, and with which locks; or what a query of a record gives."""

    name: str
    version: int
    args: bytes
    query: str = ""
    record: bytes = b""


class Looked(msgspec.Struct, frozen=True, array_like=True):
    """`error` as in kv.base.errors.to_wire; else as procedures.engine.submission.Seen, or the
    answer of a query in `args`.
    """

    error: WireRow | None = None
    locks: tuple[tuple[str, str], ...] = ()
    args: bytes = b""


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """`what`: begin, get, multi_get, scan, resolve, writable, ids."""

    number: int
    what: str
    args: WireRow


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """`error` as in kv.base.errors.to_wire."""

    number: int
    value: Any = None
    error: WireRow | None = None


class Ran(msgspec.Struct, frozen=True, array_like=True):
    """How it ended: `failed`, to be tried `again`, or with an outcome (of an undo: none)."""

    failed: Failure | None = None
    again: Failure | None = None
    outcome: WireRow | None = None
    data: bytes = b""
    ops: list[WireRow] = []
    held: list[bytes] = []
    tables: list[tuple[str, str, int]] = []
    signals: list[str] = []
    starts: list[Start] = []
    too_early: bool = False
    missing: list[str] = []
    policy: tuple[int, int, float, int, float] | None = None  # after `failed`: see Retry.wire
    emits: list[Emitted] = []
    found_by: tuple[tuple[str, object], ...] | None = None  # its attributes, if it said some


_encode: Final = msgspec.msgpack.Encoder().encode


def pieces(kind: str, run: int, what: msgspec.Struct) -> Iterator[WireRow]:
    """The messages that carry it."""
    data = _encode(what)
    if len(data) <= _PIECE_BYTES:
        yield [kind, run, True, data]
        return
    for at in range(0, len(data), _PIECE_BYTES):
        last = at + _PIECE_BYTES >= len(data)
        yield [kind, run, last, data[at : at + _PIECE_BYTES]]


class Mouth:
    """Says what is to be said in this pass of the loop, in one frame unless that is much."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._said: list[WireRow] = []

    def say(self, message: list[object]) -> None:
        if not self._said:
            self._loop.call_soon(self.flush)
        self._said.append(message)

    def flush(self) -> None:
        said, self._said = self._said, []
        while said:
            size = 0
            for count, message in enumerate(said, start=1):  # noqa: B007
                size += len(message[3]) if len(message) > 3 else 64
                if size > _PIECE_BYTES:
                    break
            now, said = said[:count], said[count:]
            self._channel.send(now[0] if len(now) == 1 else [SEVERAL, now])


class Memory(Protocol):
    """Bytes that two processes have."""

    def __getitem__(self, at: int, /) -> int: ...

    def __setitem__(self, at: int, value: int, /) -> None: ...


class Marks:
    """Two bytes for each run, that of run N at N modulo _MARKS: "it has begun", which only the
    process sets, and "it is withdrawn", which only we set. Either sets its own before it looks at
    the other's. So there is no moment at which it begins while we know that it never will; both may
    see each other, then it does not begin, and says so (UNBEGUN).
    """

    BYTES: Final = 2 * _MARKS

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._fence = threading.Lock()

    def clear(self, run: int) -> None:
        at = 2 * (run % _MARKS)
        self._memory[at] = self._memory[at + 1] = 0

    def begin(self, run: int) -> bool:
        """In the process: whether it may."""
        at = 2 * (run % _MARKS)
        self._memory[at] = 1
        with self._fence:  # for the processor, which may else look before others see what was set
            pass
        if self._memory[at + 1]:
            self._memory[at] = 0
            return False
        return True

    def withdraw(self, run: int) -> bool:
        """Here: whether it certainly never begins."""
        at = 2 * (run % _MARKS)
        self._memory[at + 1] = 1
        with self._fence:
            pass
        return not self._memory[at]

    def has_begun(self, run: int) -> bool:
        return bool(self._memory[2 * (run % _MARKS)])


class Pieces:
    """Puts together what comes in pieces, which the other end sends in order."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], list[bytes]] = {}

    def whole(self, kind: str, run: int, last: bool, data: bytes) -> bytes | None:
        """All of it, with its last piece."""
        if last and (kind, run) not in self._begun:
            return data
        begun = self._begun.setdefault((kind, run), [])
        begun.append(data)
        if not last:
            return None
        del self._begun[kind, run]
        return b"".join(begun)


read_run: Final = msgspec.msgpack.Decoder(Run).decode
read_look: Final = msgspec.msgpack.Decoder(Look).decode
read_looked: Final = msgspec.msgpack.Decoder(Looked).decode
read_ask: Final = msgspec.msgpack.Decoder(Ask).decode
read_answer: Final = msgspec.msgpack.Decoder(Answer).decode
read_ran: Final = msgspec.msgpack.Decoder(Ran).decode


# ---------------------------------------------------------------------- contexts
def run_of(method: StepDef | UndoDef, ctx: StepContext, left_ms: int = 0) -> Run:
    """What the other end needs to make the context anew."""
    token, early = ctx.given
    children = tuple(
        (c.id, c.name, c.state, plain_data.pack([c.result, c.error])) for c in ctx.children
    )
    return Run(
        records.encode(records.needed(ctx.record)),
        method.name,
        isinstance(method, UndoDef),
        ctx.step,
        token,
        early,
        ctx.attempt,
        ctx.wake,
        ctx.now_ms,
        children,
        left_ms,
        ctx.one_attempt,
        ctx.heart.ms,
        ctx.heart.details,
        ctx.trace,
    )


def children_of(run: Run) -> tuple[Child, ...]:
    found = []
    for id, name, state, data in run.children:
        result, error = plain_data.decode(data)
        found.append(Child(id, name, state, result, error))
    return tuple(found)


# ---------------------------------------------------------------------- outcomes
def outcome_wire(outcome: Outcome, declared: ProcedureType) -> list[object]:
    """An outcome as plain data. Raises InvalidArgument or TooLarge for what is none."""
    fields: dict[str, object] = {
        name: _simple(getattr(outcome, name)) for name in _FIELDS[type(outcome)]
    }
    match outcome:
        case Done(result):
            what = f"result of {declared.name}"
            if declared.result is not None:
                result = declared.result.plain(result, what)
            fields["result"] = plain_data.encode(result, what, limits.PROCEDURE_STATE_BYTES_MAX)
        case Children(calls):
            fields["calls"] = [(_simple(name), _args(name, args)) for name, args in calls]
        case Fail(code, message, details):
            made = core.failure(code, message, details=details)
            fields |= {"code": made.code, "message": made.message, "details": made.details}
        case _:
            pass
    return [type(outcome).__name__, fields]


def _args(name: object, args: object) -> bytes:
    what = f"arguments of {name!s:.80}"
    return plain_data.encode(plain_of(args, what), what, limits.PROCEDURE_ARGS_BYTES_MAX)


def _simple(value: object) -> object:
    return value if isinstance(value, _PLAIN) else f"{value!r:.200}"


def outcome_of(wire: WireRow) -> Outcome:
    name, fields = wire
    if "result" in fields:
        fields["result"] = plain_data.decode(fields["result"])
    if "calls" in fields:
        fields["calls"] = tuple((name, plain_data.decode(args)) for name, args in fields["calls"])
    if "details" in fields:
        fields["details"] = plain_data.decode(fields["details"])
    made: Outcome = _OUTCOMES[name](**fields)
    return made


def ops_wire(ops: list[Op]) -> list[list[object]]:
    return [list(op) for op in ops]


def not_done(failure: Failure, policy: Retry | None, *, too_early: bool = False) -> Ran:
    """It failed; `policy`: by which it may run again."""
    wire = None if policy is None else policy.wire
    return Ran(failed=failure, too_early=too_early, policy=wire)


def failed(error: KvorumError, method: StepDef | UndoDef) -> Ran:
    """A refusal of what the step wrote: as if it had raised it."""
    failure = core.error_failure(error)
    if error.disposition != "no":
        return Ran(again=failure)
    return not_done(failure, method.policy(failure.code, error))
