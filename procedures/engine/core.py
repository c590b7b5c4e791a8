"""The rules of procedures, pure: a record and what happened → the new record and what else to write
with it.

Nothing here waits, reads or looks at a clock. The executor asks `action` what a record wants, does
it, and hands the result to one of the functions below; what comes back is a `Change`, which the
store commits as ONE transaction with the step's own writes.

    submission.py  check, create → RUNNABLE
    advance        a step returned an outcome
    fail           a step failed, or time ran out, or somebody aborts: rollback begins (never past
                   the point of no return)
    undone         an undo method returned
    given_up       one whose effects are outside did not, in its time
    undo_child     the newest child that still stands is ordered to roll back

Rules that are easy to get wrong:
- a child's end is written in the child's own record only. A parent waits until none of its children
  is live; that is derived, in memory and again after a restart, so it can neither be lost nor
  counted twice, and children that end at the same time do not conflict over a counter in the parent
  (docs/decisions/0401);
- a step that failed is not undone: its writes in ctx.txn were dropped with it. Exceptions: it
  committed something through `again`, or it says `undo_partial`;
- undo runs in strict reverse order, children of one round from the last to the first, one at a
  time;
- a procedure past its point of no return never rolls back, and its children are born past theirs.

Source: HBase Procedure V2, RootProcedureState and ProcedureExecutor.executeRollback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, assert_never

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused, TooLarge
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import (
    DROP,
    PUSH,
    Again,
    Children,
    Done,
    Fail,
    Next,
    Outcome,
    State,
    Suspend,
    events_of,
)
from procedures.engine.records import GRANTED_HERE, Back, Entry, Failure, Record, Trying, Undo
from procedures.engine.registry import ProcedureType, Registry, StepDef, UndoDef
from procedures.engine.retries import Retry
from procedures.engine.submission import Admitted, Seen, admit, checked_text, create

CHILDREN_STEP: Final = "children"  # "undo:children" in the history
STOLEN: Final = "lock stolen"  # outcomes in the history
DIED: Final = "died"
ANEW: Final[Plain] = {"lost": 0, "deaths": 0, "step_due_ms": 0, "trying": None}
"""Of the execution to come: nothing has happened to it yet."""
RESTART: Final = "restart"  # why a step runs: what it waits for may have come unheard


class Flow(Enum):
    """What the executor does with a procedure after a change (HBase: HAS_MORE_STATE,
    NO_MORE_STATE).
    """

    MORE = "go on at once"
    TAIL = "to the tail of the queue"
    WAIT = "until an event, a time or the children"
    ENDED = "it ended"


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit writes besides the step's own writes."""

    record: Record
    flow: Flow
    created: tuple[Record, ...] = ()  # children, inserted
    revived: Record | None = None  # a finished child that begins to roll back (or did so at once)
    revived_from: Record | None = None  # … as it had ended
    reopened: Record | None = None  # the record as it had ended, if it goes on all the same
    spill: tuple[int, tuple[Entry, ...]] | None = (
        None  # sequence number of the first entry, entries
    )
    until_ms: int = 0  # not 0: what is held by others is not waited for any longer than until then
    reign: int = 0  # not 0: the record gets its locks, if this reign still stands
    drops: bool = False  # its locks end
    others: tuple[tuple[int, Change], ...] = ()  # of other procedures: version, change


@dataclass(frozen=True, slots=True)
class RunStep:
    step: str
    token: str


@dataclass(frozen=True, slots=True)
class RunUndo:
    method: str
    token: str


@dataclass(frozen=True, slots=True)
class UndoRound:
    """Find the last of these children that still stands, and undo it."""

    first: int
    count: int


Action: TypeAlias = RunStep | RunUndo | UndoRound


@dataclass(frozen=True, slots=True)
class Ran:
    """One execution of a step or an undo: the state it left, and when."""

    data: bytes
    attempt: int
    start_ms: int
    now_ms: int
    wake: str = ""  # as its context said
    read_ts: int = 0  # of its snapshot; 0 = it read nothing
    trace: str = ""  # the span that what it begins belongs to


# ---------------------------------------------------------------------- what comes next
def action(record: Record) -> Action:
    """What a record that may run wants done. It must not have ended, nor have live children."""
    assert not record.ended, record.id
    if record.state is not State.ROLLING_BACK:
        return RunStep(record.step, _token(record, record.seq))
    top = record.undo[-1]
    if not top.method:
        return UndoRound(top.first, top.count)
    return RunUndo(top.method, _token(record, top.first + top.count - 1) + "-undo")


def _token(record: Record, seq: int) -> str:
    return f"{record.salt.hex()}-{record.id}-{seq}"


def missing(record: Record, types: Registry) -> str:
    """Why this program cannot run the record (type, step or undo is not there), "" if it can. It
    must also have what a failure would need: else it would go on to where nobody can go back from.
    """
    declared = types.find(record.name, record.version)
    if declared is None and types.find(record.name) is not None:
        return types.no_version(record.name, record.version)
    if declared is None:
        return f"no procedure named {record.name!r} is registered in this process"
    if record.ended:
        return ""
    rolling = record.state is State.ROLLING_BACK
    if not rolling and record.step not in declared.steps:
        return f"{record.name} has no step {record.step!r} any more"
    for undo in reversed(record.undo):
        if undo.method and undo.method not in declared.undos:
            why = "" if rolling else ", which a failure would need"
            return f"{record.name} has no undo method {undo.method!r} any more{why}"
    return ""


def needs(record: Record) -> Record:
    """As much of it as is looked at beside its steps: the type, the step or the undo methods to
    come, and its children.
    """
    undo = tuple({u.method: Undo(u.method, 0, 1) for u in record.undo}.values())
    none = plain_data.EMPTY
    return replace(record, args=none, data=none, result=none, history=(), undo=undo)


def overdue(record: Record, declared: ProcedureType, now_ms: int, why: str = "") -> Failure | None:
    """Why it fails if its time, or that of its step, is over; nobody asks past the point of no
    return. `why`: what its last run met.
    """
    if 0 < record.deadline_ms <= now_ms:
        ms = record.deadline_ms - record.created_ms
        return failure("TIMEOUT", f"{record.name} did not end within {ms} ms")
    if 0 < record.step_due_ms <= now_ms:
        return outlasted(record.name, declared.steps[record.step], why)
    return None


def outlasted(name: str, definition: StepDef | UndoDef, why: str = "") -> Failure:
    """The error of a step, or an undo, that took longer than it may. `why`: what its last run met,
    if that is known.
    """
    what = "step" if isinstance(definition, StepDef) else "undo"
    text = f"{what} {definition.name} of {name} did not end within {definition.may_ms} ms"
    return failure("DEADLINE", f"{text}: {why}" if why else text)


def late_attempt(name: str, definition: StepDef | UndoDef) -> Failure:
    """The error of a run that took longer than one attempt may."""
    what, ms = f"an attempt of step {definition.name} of {name}", definition.attempt_ms
    return failure("ATTEMPT_TIMEOUT", f"{what} took longer than {ms} ms")


def silent_attempt(name: str, step: str, ms: int) -> Failure:
    """The error of a run that said no heartbeat for too long."""
    what = f"an attempt of step {step} of {name}"
    return failure("HEARTBEAT_TIMEOUT", f"{what} said no heartbeat for {ms} ms")


def ripe(record: Record, wake: str, now_ms: int) -> str | None:
    """Why a record that is not to end runs now ("": it waits for nothing), None: it does not yet.
    `wake`: what has come for it.
    """
    if record.trying is not None:
        return wake or record.trying.wake if record.trying.due_ms <= now_ms else None
    if record.state is not State.WAITING or wake or record.waits_for:
        return wake
    return "timeout" if 0 < record.due_ms <= now_ms else None


def limit_ms(record: Record) -> int:
    """When it fails by itself, as far as is known now; 0 = at no time."""
    if record.final:
        return 0
    due_ms, step_due_ms = record.deadline_ms, record.step_due_ms
    return min(due_ms, step_due_ms) if due_ms and step_due_ms else due_ms or step_due_ms


def begun(record: Record, definition: StepDef | UndoDef, now_ms: int) -> Record:
    """The time of a step or an undo that has a deadline counts from here, whoever runs it and
    however often. Past the point of no return a step cannot fail, so each of its runs has that time
    for itself.
    """
    ms = definition.may_ms
    return replace(record, step_due_ms=now_ms + ms) if ms and not record.final else record


# ---------------------------------------------------------------------- forward
def advance(
    record: Record,
    outcome: Outcome,
    ran: Ran,
    types: Registry,
    first_child: int = 0,
) -> Change:
    """A step returned `outcome`; `first_child` is the first of as many ids as it has children.

    Raises Rejected (nothing changes) for an outcome that cannot be: unknown step or procedure, data
    that is not plain or too large, too many rounds. The executor then fails the step with that
    error.
    """
    declared = types.get(record.name, record.version)
    match outcome:
        case Fail(code, message, details):
            return fail(record, declared, failure(code, message, details=details), ran)
        case Again(delay_ms):
            return _again(record, declared, _duration("delay_ms", delay_ms), ran)
        case Next(step):
            definition = declared.steps[_known_step(declared, step)]
            after = _finish(record, declared, ran, State.RUNNABLE, step, undo=outcome.undo)
            if definition.mark.deadline_ms and definition.is_async:  # a plain one waits for a place
                after = begun(after, definition, ran.now_ms)
            return _logged(after, outcome.label or record.step, "next", ran, Flow.MORE)
        case Suspend():
            return _suspend(record, declared, ran, outcome)
        case Done(result):
            after = _finish(record, declared, ran, State.SUCCESS, record.step, undo=outcome.undo)
            what = f"result of {record.name}"
            if declared.result is not None:
                result = declared.result.plain(result, what)
            data = plain_data.encode(result, what, limits.PROCEDURE_STATE_BYTES_MAX)
            # a child keeps what its parent may still have to undo
            undo = after.undo if record.parent else ()
            after = replace(after, result=data, undo=undo)
            return _logged(after, outcome.label or record.step, "done", ran, Flow.ENDED)
        case Children():
            return _spawn(record, declared, outcome, ran, types, first_child)
        case _:
            assert_never(outcome)


def _finish(
    record: Record,
    declared: ProcedureType,
    ran: Ran,
    state: State,
    step: str,
    *,
    event: str = "",
    due_ms: int = 0,
    undo: str = PUSH,
) -> Record:
    """The current step is finished: it counts for undo, and the waits that led to it are over.
    `step` comes next, when that is due, or at the event.
    """
    mark = declared.steps[record.step].mark
    pushes = undo == PUSH and not record.partial
    undos = _push(record.undo, mark.undo, record.seq) if pushes else record.undo
    final = record.final or mark.point_of_no_return
    return replace(
        record,
        state=state,
        step=step,
        seq=record.seq + 1,
        attempt=0,
        **ANEW,
        partial=False,
        data=ran.data,
        due_ms=due_ms,
        event=event,
        waits_for=False,
        final=final,
        undo=() if final or undo == DROP else undos,
        updated_ms=ran.now_ms,
    )


def _again(record: Record, declared: ProcedureType, delay_ms: int, ran: Ran) -> Change:
    mark = declared.steps[record.step].mark
    undo = record.undo if record.partial else _push(record.undo, mark.undo, record.seq)
    after = replace(
        record,
        state=State.WAITING if delay_ms else State.RUNNABLE,
        attempt=record.attempt + 1,
        **ANEW,
        partial=True,
        data=ran.data,
        due_ms=ran.now_ms + delay_ms if delay_ms else 0,
        event="",
        waits_for=False,
        undo=() if record.final else undo,
        updated_ms=ran.now_ms,
    )
    return Change(after, Flow.WAIT if delay_ms else Flow.TAIL)


def _suspend(record: Record, declared: ProcedureType, ran: Ran, outcome: Suspend) -> Change:
    event, then = outcome.event, outcome.then
    timeout_ms = _duration("timeout_ms", outcome.timeout_ms)
    if not event and not timeout_ms:
        raise InvalidArgument(
            f"{record.name}.{record.step}: suspend wants event= or timeout_ms=, "
            "nothing would wake it"
        )
    for one in events_of(event):
        checked_text("event", one, limits.NONCE_CHARS_MAX)
    due_ms = ran.now_ms + timeout_ms if timeout_ms else 0
    if ran.wake == RESTART and timeout_ms and (record.event, record.step) == (event, then):
        due_ms = record.due_ms or due_ms  # it only looked: the same wait goes on
    known = _known_step(declared, then)
    after = _finish(
        *(record, declared, ran, State.WAITING, known),
        event=event,
        due_ms=due_ms,
        undo=outcome.undo,
    )
    return _logged(after, outcome.label or record.step, "suspend", ran, Flow.WAIT)


def _spawn(
    record: Record,
    declared: ProcedureType,
    outcome: Children,
    ran: Ran,
    types: Registry,
    first: int,
) -> Change:
    """The parent's update and its children are one transaction (J15): no child or all."""
    count = len(outcome.calls)
    where = f"{record.name}.{record.step}"
    if not 0 < count <= limits.PROCEDURE_CHILDREN_MAX:
        raise InvalidArgument(
            f"{where}: children wants 1 to {limits.PROCEDURE_CHILDREN_MAX} procedures, "
            f"got {count}; make several rounds, or give each child a share of the work"
        )
    if len(record.rounds) >= limits.PROCEDURE_ROUNDS_MAX:
        raise _too_many(where, "rounds of children", limits.PROCEDURE_ROUNDS_MAX)
    then = _known_step(declared, outcome.then)
    after = _finish(record, declared, ran, State.WAITING, then)
    made = []
    for i, (name, args) in enumerate(outcome.calls):
        checked_text("procedure name", name, limits.NAME_CHARS_MAX)
        child = types.for_new(name, first + i)
        ok = dataclasses.replace(admit(child, args, record.owner, ""), trace=ran.trace)
        made.append(
            create(
                ok,
                id=first + i,
                salt=record.salt,
                now_ms=ran.now_ms,
                parent=record.id,
                final=after.final,
            )
        )
    undo = after.undo if after.final else (*after.undo, Undo("", first, count))
    after = replace(
        after,
        waits_for=True,
        rounds=(*after.rounds, (first, count)),
        undo=undo,
    )
    return _logged(after, record.step, "children", ran, Flow.WAIT, tuple(made))


def _push(undo: tuple[Undo, ...], method: str, seq: int) -> tuple[Undo, ...]:
    if not method:
        return undo
    if undo and undo[-1].method == method and undo[-1].first + undo[-1].count == seq:
        return (*undo[:-1], Undo(method, undo[-1].first, undo[-1].count + 1))
    if len(undo) >= limits.PROCEDURE_UNDO_ENTRIES_MAX:
        raise _too_many(method, "finished steps to undo", limits.PROCEDURE_UNDO_ENTRIES_MAX)
    return (*undo, Undo(method, seq, 1))


# ---------------------------------------------------------------------- failure and rollback
def failure(
    code: str, message: str, *, type: str = "", details: dict[str, object] | None = None
) -> Failure:
    """The error of a record. What is not plain in `details` is kept as its repr."""
    code, message, type = storable(str(code)), storable(str(message)), storable(type)
    try:
        data = plain_data.encode(details or {}, "details of an error", limits.KiB * 16)
    except KvorumError:
        data = plain_data.encode(
            {"repr": storable(f"{details!r:.1000}")}, "details of an error", limits.KiB * 16
        )
    return Failure(code[: limits.NAME_CHARS_MAX], message[: limits.ERROR_CHARS_MAX], type, data)


def storable(text: str) -> str:
    """Text of the application as UTF-8 can hold it: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def error_failure(error: KvorumError) -> Failure:
    """A refusal of the store or of a service, as a step met it: its own code and message come back
    to the client.
    """
    return failure(error.code, error.message, type=type(error).__name__, details=error.details)


def fail(
    record: Record, declared: ProcedureType, error: Failure, ran: Ran | None, *, now_ms: int = 0
) -> Change:
    """The current step failed (`ran`), or something outside ended the procedure (`ran` None, at
    `now_ms`).

    Must not be asked past the point of no return: the executor retries there.
    """
    assert not record.final, record.id
    assert not record.ended, record.id
    undo = record.undo
    mark = declared.steps[record.step].mark
    may_have_begun = ran is not None or record.step_due_ms > 0
    if may_have_begun and mark.undo_partial and not record.partial:
        undo = _push(undo, mark.undo, record.seq)
    after = replace(
        record,
        state=State.ROLLING_BACK,
        error=error,
        **ANEW,
        due_ms=0,
        event="",
        waits_for=False,
        undo=undo,
        updated_ms=ran.now_ms if ran else now_ms,
    )
    after, flow = _settled(after)
    if ran is None:
        return Change(after, flow)
    return _logged(after, record.step, f"fail:{error.code}", ran, flow)


def tried(record: Record, policy: Retry, error: Failure, ran: Ran, chance: float) -> Change | None:
    """The current step failed, and its policy has it run again after a pause; None: no more. Past
    the point of no return there is always one more. `chance`: from 0 to 1, of the pause.
    """
    failed = record.failed + 1
    if not (record.final or policy.left(failed)):
        return None
    due_ms = ran.now_ms + policy.pause_ms(failed, chance)
    trying = Trying(failed, policy.attempts, due_ms, ran.wake, error)
    after = replace(record, trying=trying, updated_ms=ran.now_ms)
    return _logged(after, record.step, f"retry:{error.code}", ran, Flow.WAIT)


def doom(record: Record, error: Failure, now_ms: int) -> Change:
    """A parent whose children still run is to fail: it waits for them, then it rolls back."""
    assert record.waits_for, record.id
    assert not record.final, record.id
    assert record.error is None, record.id
    return Change(replace(record, error=error, updated_ms=now_ms), Flow.WAIT)


def died(record: Record, why: str, ran: Ran) -> Change:
    """The process that ran the current step (or undo) ended under it. Counted before it runs again:
    what ends its process would else end one after the other, for ever.
    """
    after = replace(record, lost=record.lost + 1, deaths=record.deaths + 1, updated_ms=ran.now_ms)
    name = record.step
    if record.state is State.ROLLING_BACK:
        name = f"undo:{record.undo[-1].method}"
    flow = Flow.WAIT if aside(after) else Flow.MORE
    return _logged(after, name, f"{DIED}: {storable(why)[: limits.NONCE_CHARS_MAX]}", ran, flow)


def aside(record: Record) -> str:
    """Why it is not run any more: its step ends every process that runs it. "" = it is run."""
    if record.deaths < limits.PROCEDURE_DEATHS_MAX or record.ended:
        return ""
    last = next((one for one in reversed(record.history) if one.outcome.startswith(DIED)), None)
    why = "" if last is None else f" (the last one {last.outcome.removeprefix(f'{DIED}: ')})"
    step = record.step if last is None else last.step
    held = ", ".join(f"{mode} {name}" for mode, name in record.locks) if record.grant else ""
    keeps = f"; it keeps its locks: {held}" if held else ""
    return (
        f"set aside: its step {step} ended {record.deaths} processes that ran it{why}{keeps}; fix "
        f"it, then `kvorum proc retry {record.id}`, or end it (proc abort, proc bypass)"
    )


def admitted(record: Record, seen: Seen, now_ms: int) -> Change:
    """Arguments that nobody could look at when it was submitted fit, and these are its locks."""
    after = replace(record, pending=False, locks=seen.locks, updated_ms=now_ms)
    return Change(after, Flow.TAIL)


def put_off(record: Record, by_ms: int, new: Admitted | None, now_ms: int) -> Change | None:
    """It was submitted again before it began: its delay begins anew, and `new` says with what
    (None: with what it has). Whose time has come only waits for its turn: it keeps its place. None:
    it is not of that kind.
    """
    if record.state is not State.WAITING or not record.bounce_ms:
        return None
    due_ms = record.due_ms
    if now_ms < min(due_ms, record.bounce_ms):
        due_ms = min(now_ms + by_ms, record.bounce_ms)
    deadline_ms = record.deadline_ms and record.deadline_ms + due_ms - record.due_ms
    after = replace(record, due_ms=due_ms, deadline_ms=deadline_ms, updated_ms=now_ms)
    if new is not None:
        after = replace(after, args=new.args, locks=new.locks, pending=new.pending)
    return Change(after, Flow.WAIT)


def granted(record: Record) -> Record:
    """It has its locks from this write on."""
    return replace(record, grant=GRANTED_HERE)


def ungranted(change: Change) -> Change:
    """It ended: its locks end in the same write."""
    return dataclasses.replace(change, record=replace(change.record, grant=0), drops=True)


def handed(change: Change, version: int, heir: Record, reign: int) -> Change:
    """… and `heir`, at this version of its row, has its locks from the same write on."""
    given = Change(granted(heir), Flow.MORE, reign=reign)
    return dataclasses.replace(change, others=(*change.others, (version, given)))


def robbed(record: Record, reason: str, now_ms: int) -> Record:
    """Its locks were taken away. The history says so, with the step that has to run again."""
    entry = Entry(record.step, f"{STOLEN}: {reason}", record.attempt + 1, now_ms, 0)
    after = replace(record, grant=0, history=(*record.history, entry), updated_ms=now_ms)
    return replace(after, step_due_ms=0)  # it waits for them first


def noted(record: Record, what: str, now_ms: int, flow: Flow) -> Change:
    """Something was done to it from outside: the history says what."""
    ran = Ran(record.data, record.attempt + 1, now_ms, now_ms)
    return _logged(record, record.step, what, ran, flow)


def refuse_abort(record: Record) -> bool:
    """Whether an abort changes nothing because it already happened. Raises Refused (NOT_ABORTABLE)
    when it cannot.
    """
    if record.error is not None and record.error.code == "ABORTED":
        return True
    why = ""
    if record.ended:
        why = f"it ended {record.state.name}"
    elif record.state is State.ROLLING_BACK or record.error is not None:
        why = "it already failed and rolls back"
    elif record.final:
        why = (
            "it is past its point of no return: what fails is tried again until it works; bypass "
            "it to end it where it stands"
        )
    if why:
        raise Refused(
            f"procedure {record.id} ({record.name}) cannot be aborted: {why}", code="NOT_ABORTABLE"
        )
    return False


def refuse_foreign(record: Record, types: Registry, done: str, code: str) -> None:
    """Raises Refused for a record that this program cannot run, now or at its next step."""
    if not record.ended and (why := missing(record, types)):
        raise Refused(
            f"procedure {record.id} ({record.name}) cannot be {done} here: {why}; bypass it, or "
            "start what runs it",
            code=code,
        )


def refuse_builtin(record: Record, types: Registry, done: str, code: str) -> None:
    """Raises Refused for one of the database's own: its state and arguments are checked, and its
    rights asked for, when it is submitted.
    """
    if types.is_builtin(record.name):
        raise Refused(
            f"procedure {record.id} ({record.name}) is the database's own and cannot be {done}; "
            "submit it again",
            code=code,
        )


def children_failure(round_: Sequence[Record]) -> Failure | None:
    """The error of the first child of a round that failed, as the parent's own error."""
    for child in round_:
        if child.state in (State.FAILED, State.ROLLED_BACK):
            e = child.error or Failure("CHILD_FAILED", f"child {child.id} failed")
            details = dict(plain_data.decode(e.details), child=str(child.id), child_name=child.name)
            failed = failure(e.code, e.message, type=e.type, details=details)
            # The trace is the child's.
            return replace(failed, step=e.step, file=e.file, line=e.line)
    return None


def undone(record: Record, ran: Ran) -> Change:
    """The undo method on top of the stack returned."""
    top = record.undo[-1]
    rest = record.undo[:-1]
    if top.count > 1:
        rest = (*rest, Undo(top.method, top.first, top.count - 1))
    after = replace(record, undo=rest, data=ran.data, undone=True, attempt=0, updated_ms=ran.now_ms)
    after = replace(after, **ANEW)
    after, flow = _settled(after)
    return _logged(after, f"undo:{top.method}", "undone", ran, flow)


def given_up(record: Record, why: Failure, ran: Ran) -> Change:
    """The undo method on top of the stack could not do its work outside, for any of the executions
    that it stands for: the error says so, and the rollback goes on.
    """
    top, error = record.undo[-1], record.error
    assert error is not None, record.id
    details = plain_data.decode(error.details)
    left = {"undo": top.method, "code": why.code, "message": why.message}
    details["not_undone"] = [*details.get("not_undone", ()), left]
    text = f"{error.message}; its undo {top.method} was given up: {why.message}"
    failed = failure(error.code, text, type=error.type, details=details)
    after = replace(
        record,
        error=replace(error, message=failed.message, details=failed.details),
        undo=record.undo[:-1],
        attempt=0,
        **ANEW,
        updated_ms=ran.now_ms,
    )
    after, flow = _settled(after)
    return _logged(after, f"undo:{top.method}", f"given up:{why.code}", ran, flow)


def undo_child(record: Record, round_: Iterable[Record], now_ms: int) -> Change:
    """Tell the last child that still stands to roll back; without one the round is undone.

    `round_`: the children of the round on top of the stack, in the order of their ids.
    """
    top = record.undo[-1]
    standing = [c for c in round_ if c.state is State.SUCCESS and not c.final]
    if not standing:
        after = replace(record, undo=record.undo[:-1], updated_ms=now_ms)
        after, flow = _settled(after)
        ran = Ran(record.data, 1, now_ms, now_ms)
        return _logged(after, f"undo:{CHILDREN_STEP}", "undone", ran, flow)
    child = standing[-1]
    why = Failure("PARENT_FAILED", f"its parent {record.id} ({record.name}) failed")
    revived, _ = _settled(
        replace(
            child,
            state=State.ROLLING_BACK,
            error=why,
            undone=True,
            deadline_ms=0,
            updated_ms=now_ms,
        )
    )
    # the child stays in the entry: while the parent waits for it, the stack must not look empty
    rest = Undo("", top.first, child.id - top.first + 1)
    after = replace(record, undo=(*record.undo[:-1], rest), undone=True, updated_ms=now_ms)
    flow = Flow.MORE if revived.ended else Flow.WAIT
    return Change(after, flow, revived=revived, revived_from=child)


def _settled(record: Record) -> tuple[Record, Flow]:
    """A rollback with nothing left to undo has ended, or goes forward again."""
    if record.back is not None and not above(record.undo, record.back):
        return forward(record), Flow.TAIL
    if record.undo:
        return record, Flow.MORE
    state = State.ROLLED_BACK if record.undone else State.FAILED
    return replace(record, state=state), Flow.ENDED


def above(stack: Sequence[Undo], back: Back) -> list[str]:
    """What is undone before it goes forward from there, in this order."""
    found = [one.method or CHILDREN_STEP for one in reversed(stack[back.keep + bool(back.part) :])]
    if back.part and len(stack) > back.keep:
        top = stack[back.keep]
        found += [top.method] * (top.count > back.part)
    return found


def forward(record: Record) -> Record:
    """It goes on from where it was to go back to, as a new execution."""
    back = record.back
    assert back is not None, record.id
    return replace(
        record,
        state=State.RUNNABLE,
        step=back.step,
        seq=record.seq + 1,
        data=back.data,
        args=back.args,
        error=None,
        result=plain_data.NONE,
        undo=() if record.final else record.undo,
        undone=False,
        partial=False,
        back=None,
    )


# ---------------------------------------------------------------------- details
def _logged(
    record: Record,
    step: str,
    outcome: str,
    ran: Ran,
    flow: Flow,
    created: tuple[Record, ...] = (),
) -> Change:
    took_ms = max(0, ran.now_ms - ran.start_ms)
    entry = Entry(step, outcome, ran.attempt, ran.start_ms, took_ms, ran.read_ts)
    history = (*record.history, entry)
    spill = None
    if len(history) > limits.PROCEDURE_HISTORY_INLINE_MAX:
        cut = limits.PROCEDURE_HISTORY_CHUNK
        spill = (record.spilled, history[:cut])
        record = replace(record, spilled=record.spilled + cut)
        history = history[cut:]
    return Change(replace(record, history=history), flow, created, spill=spill)


def _known_step(declared: ProcedureType, step: str) -> str:
    if step not in declared.steps:
        raise InvalidArgument(
            f"procedure {declared.name} has no step {step!r:.80} "
            f"(steps: {', '.join(declared.steps)})",
            code="STEP_UNKNOWN",
        )
    return step


def _duration(what: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= limits.PROCEDURE_TIMEOUT_MS_MAX:
        raise InvalidArgument(
            f"{what} must be 0 to {limits.PROCEDURE_TIMEOUT_MS_MAX} ms, got {value!r:.40}"
        )
    return value


def _too_many(where: str, what: str, limit: int) -> TooLarge:
    return TooLarge(
        f"{where}: more than {limit} {what}; mark a point of no return, or hand the work to "
        "children",
        details={"what": what, "limit": limit, "actual": limit + 1},
    )
