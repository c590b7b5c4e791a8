"""What an operator may do to a procedure that hangs, as rules: a record → the next. Pure.

    abort    it fails and rolls back, like a step that failed
    bypass   it ends BYPASSED where it stands: nothing of it runs any more, nothing is undone, its
             locks end. Its parent goes on as if it had succeeded without a result. With live
             children: only together with them (`recursive`), in one transaction. Never one that
             has begun, and declares that only itself puts right what it has begun
    retry    it goes on at once, with the step that it has, or from another one; also while it rolls
             back, as long as nothing has been undone yet
    steal    (steal.py) a lock is taken away from it

Each moves the version of the record's row, so whatever a step that is under way, or a zombie
elsewhere, still wants to commit is refused (docs/decisions/0417). Nothing here trusts the step
under way to end: it gets `under_way` where that matters.

Left out here: repairing the data of a procedure (`ctx.state`); bringing back what has ended: submit
it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused, TooLarge
from procedures.engine import core
from procedures.engine.core import Change, Flow
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import State, said
from procedures.engine.records import Record, Undo
from procedures.engine.registry import ProcedureType, Registry
from procedures.engine.view import shown_state

ABORT: Final = "abort"
BYPASS: Final = "bypass"
RETRY: Final = "retry"
MOVE: Final = "move"
STEAL: Final = "steal"


def checked_reason(reason: object, what: str = "reason") -> str:
    """Why somebody does this: for those who find it later. Raises InvalidArgument, TooLarge."""
    return _text(what, reason, limits.SURGERY_REASON_CHARS_MAX)


def checked_actor(actor: object) -> str:
    """Who does it. Raises InvalidArgument, TooLarge."""
    return _text("actor", actor, limits.NONCE_CHARS_MAX)


def _text(what: str, value: object, limit: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(
            f"a {what} is required: it is kept in the audit (kvorum proc audit)",
            details={"what": what},
        )
    if len(value) > limit:
        raise TooLarge(
            f"the {what} has {len(value)} characters, the limit is {limit}",
            details={"what": what, "limit": limit, "actual": len(value)},
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"the {what} is not valid Unicode: {value!r:.80}") from None
    return value


# ---------------------------------------------------------------------- abort
def aborted(
    record: Record,
    declared: ProcedureType,
    reason: str,
    now_ms: int,
    *,
    children: bool,
    under_way: bool,
) -> Change | None:
    """None: it was aborted before. `children`: some have not ended. Raises Refused
    (NOT_ABORTABLE).
    """
    error = core.failure("ABORTED", f"aborted: {reason}")
    if record.back is not None:  # it does not stop there any more
        after = replace(record, back=None, error=error, updated_ms=now_ms)
        return core.noted(after, f"{ABORT}: {reason}", now_ms, Flow.TAIL)
    if core.refuse_abort(record):
        return None
    if children:
        return core.doom(record, error, now_ms)
    if under_way:
        record = _half_done(record, declared)
    return released(core.fail(record, declared, error, None, now_ms=now_ms))


def _half_done(record: Record, declared: ProcedureType) -> Record:
    """Its step is under way and will be refused: what it did outside counts for undo, if it says
    so.
    """
    step = declared.steps.get(record.step)
    if step is None or not step.mark.undo_partial or record.partial or not step.mark.undo:
        return record
    return replace(record, undo=(*record.undo, Undo(step.mark.undo, record.seq, 1)))


# ---------------------------------------------------------------------- bypass
def bypassed(record: Record, reason: str, now_ms: int) -> Change:
    """It ends where it stands; the caller has seen to its children."""
    assert not record.ended, record.id
    after = replace(
        record,
        state=State.BYPASSED,
        due_ms=0,
        event="",
        waits_for=False,
        undo=(),
        pending=False,
        updated_ms=now_ms,
    )
    return released(core.noted(after, f"{BYPASS}: {reason}", now_ms, Flow.ENDED))


def refuse_bypass(
    tree: Sequence[Record],
    types: Registry,
    under_way: Mapping[int, str],
    *,
    override: bool,
    recursive: bool,
) -> bool:
    """Whether a bypass changes nothing because it already happened. `tree`: the procedure, then
    those below it that have not ended; `under_way`: of them whose step runs → where.

    Raises Refused (NOT_BYPASSABLE, HAS_CHILDREN, UNDER_WAY), TooLarge.
    """
    record, below = tree[0], tree[1:]
    if record.state is State.BYPASSED:
        return True
    if record.ended:
        raise Refused(
            f"procedure {record.id} ({record.name}) ended {record.state.name}: there is nothing to "
            "bypass",
            code="NOT_BYPASSABLE",
        )
    for one in tree:
        declared = types.find(one.name, one.version)
        if declared is not None and declared.bypass and _begun(one):
            raise Refused(
                f"procedure {one.id} ({one.name}) cannot be bypassed: {declared.bypass}",
                code="NOT_BYPASSABLE",
                details={"procedure": str(one.id), "name": one.name},
            )
    if below and not recursive:
        raise Refused(
            f"procedure {record.id} ({record.name}) waits for {len(below)} procedures below it "
            f"({_some(one.id for one in below)}): bypass them together (recursive), or them alone",
            code="HAS_CHILDREN",
            details={"children": [str(one.id) for one in below[:_SHOWN]], "count": len(below)},
        )
    busy = [one for one in tree if one.id in under_way]
    if busy and not override:
        raise Refused(
            f"procedure {busy[0].id} ({busy[0].name}) has its step {busy[0].step} under way "
            f"{under_way[busy[0].id]}: wait for it, abort it, or bypass it all the same (override; "
            "what the step still wants to write is refused, what it does outside goes on)",
            code="UNDER_WAY",
            details={"procedures": [str(one.id) for one in busy[:_SHOWN]], "count": len(busy)},
        )
    return False


def _begun(record: Record) -> bool:
    """Whether anything of it was committed."""
    return record.seq > 0 or record.attempt > 0 or record.partial


def too_many(id: int) -> TooLarge:
    """A tree that does not fit one transaction."""
    limit = limits.SURGERY_TREE_MAX
    return TooLarge(
        f"more than {limit} procedures below {id} have not ended, the limit of one transaction: "
        "bypass the trees below it first, one after the other",
        details={"what": "procedures", "limit": limit, "actual": limit + 1},
    )


# ---------------------------------------------------------------------- retry
def retried(
    record: Record,
    declared: ProcedureType,
    step: str,
    reason: str,
    now_ms: int,
    *,
    children: bool,
) -> Change:
    """`step` "": the one that it has. Raises Refused (NOT_RETRYABLE), InvalidArgument
    (STEP_UNKNOWN).
    """
    if step and step not in declared.steps:
        raise InvalidArgument(
            f"procedure {record.name} has no step {step!r:.80} (steps: "
            f"{', '.join(declared.steps)})",
            code="STEP_UNKNOWN",
        )
    why = ""
    if record.ended:
        why = f"it ended {record.state.name}; submit it again"
    elif children:
        why = "it waits for its children: retry, abort or bypass them"
    elif record.state is State.ROLLING_BACK and step:
        if record.undone:
            why = "a part of it has been undone; retry without a step to go on with the rollback"
        elif _began_later(record):
            why = "it rolls back because its parent does"
    elif record.pending:
        why = "none of its workers has looked at its arguments yet"
    elif record.error is not None and record.state is not State.ROLLING_BACK:
        why = "it fails, and rolls back as soon as its children have ended"
    if why:
        raise Refused(
            f"procedure {record.id} ({record.name}) cannot be retried: {why}", code="NOT_RETRYABLE"
        )
    after = replace(record, due_ms=0, event="", attempt=0, updated_ms=now_ms)
    after = replace(after, **core.ANEW)
    if record.deadline_ms and record.deadline_ms <= now_ms:
        after = replace(after, deadline_ms=0)  # it would fail again at once
    if record.state is not State.ROLLING_BACK or step:
        after = _forward(after, declared, step or record.step)
    return core.noted(after, f"{RETRY}: {reason}", now_ms, Flow.TAIL)


def moved(record: Record, version: int, reason: str, now_ms: int) -> Change:
    """It goes on with this version of its type."""
    what = f"{MOVE} to version {version}: {reason}"
    return core.noted(replace(record, version=version), what, now_ms, Flow.TAIL)


def _began_later(record: Record) -> bool:
    return record.error is not None and record.error.code == "PARENT_FAILED"


def _forward(record: Record, declared: ProcedureType, step: str) -> Record:
    """Forward, with this step. The same one again is the same execution, with the same token and
    the results of its children; another one is a new execution.
    """
    if step == record.step:
        state = State.WAITING if record.waits_for else State.RUNNABLE
        return replace(record, state=state, error=None)
    undo = record.undo
    left = declared.steps.get(record.step)
    if left is not None and left.mark.undo_partial and not record.partial and left.mark.undo:
        undo = (*undo, Undo(left.mark.undo, record.seq, 1))  # it may have begun
    return replace(
        record,
        state=State.RUNNABLE,
        step=step,
        seq=record.seq + 1,
        partial=False,
        waits_for=False,
        undo=() if record.final else undo,
        error=None,
    )


# ---------------------------------------------------------------------- what changes
def released(change: Change) -> Change:
    """Who ended holds nothing any more."""
    if change.record.ended and change.record.locks:
        return core.ungranted(change)
    return change


_SHOWN: Final = 20


def _some(ids: Any) -> str:
    shown = [str(id) for id in ids]
    more = len(shown) - 5
    return ", ".join(shown[:5]) + (f" and {more} more" if more > 0 else "")


def effect(before: Record, change: Change, under_way: str = "") -> Plain:
    """One procedure before and after, as people and the audit see it: only what changes."""
    after = change.record
    (state, step), (new_state, new_step) = shown_state(before), shown_state(after)
    fields = {
        "state": (state, new_state),
        "step": (step, new_step),
        "error": (
            before.error.code if before.error else None,
            after.error.code if after.error else None,
        ),
        "waits_for": (_waits(before), _waits(after)),
        "deadline_ms": (before.deadline_ms, after.deadline_ms),
    }
    shown: dict[str, object] = {
        "procedure": str(before.id),
        "name": before.name,
        "before": {name: old for name, (old, new) in fields.items() if old != new},
        "after": {name: new for name, (old, new) in fields.items() if old != new},
        "locks_released": (
            [{"mode": mode, "resource": resource} for mode, resource in before.locks]
            if change.drops and before.grant
            else []
        ),
    }
    if after.state is State.ROLLING_BACK and before.state is not State.ROLLING_BACK:
        shown["undoes"] = [one.method or core.CHILDREN_STEP for one in reversed(after.undo)][
            :_SHOWN
        ]
    if under_way:
        shown["refuses"] = f"what its step {before.step}, under way {under_way}, still writes"
    return shown


def _waits(record: Record) -> str | None:
    if record.state is not State.WAITING:
        return None
    if record.waits_for:
        return "children"
    if record.event:
        return f"event {said(record.event)}"
    return f"time {record.due_ms}"
