"""Going back to a step, as rules: a record → the next, or a new one. Pure.

    reset   the procedure itself goes on from there, also one that has ended and is kept
    fork    a new one begins there, with the state of the other; that one stays as it is

From a step of a class: it runs next, with the state that there is now (what a step found when it
ran is not kept), or with another one. From a call of a workflow, by its name (the last one of it)
or its position (#3): what is stored of it and of all calls behind it is dropped, so it is carried
out anew. Calls with an undo that one transaction carried out go together; a fork does not take over
what the other one still waits for.

What was done from there on can be undone first, newest first (`undo`): the stack is rolled back as
far as that and no further (`Back`, which core.py looks at), then it goes forward. With `keep` it
stays, and a failure later on undoes it, too. A procedure that has ended has nothing left to undo. A
fork never undoes what the other one did: its own stack is empty.

Left out here: going back past the point of no return undoes nothing, for there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused
from procedures.engine import core, plain_data
from procedures.engine.core import Change, Flow
from procedures.engine.journal import CHILD, OPEN, STEP
from procedures.engine.procedure import State
from procedures.engine.records import Back, Entry, Record, Undo
from procedures.engine.registry import ProcedureType

RESET: Final = "reset"
FORK: Final = "fork"
KEEP: Final = "keep"
UNDO: Final = "undo"
_RUN: Final = "run"  # the step of a workflow
_FINISHED: Final = frozenset({"next", "suspend", "done", "children"})


class Point(NamedTuple):
    """Where it goes on."""

    step: str
    data: bytes
    keep: int  # entries of the undo stack that stay …
    part: int  # … and so many executions of the one above them
    redone: tuple[str, ...]  # steps, or calls, that were carried out and will be again
    kept: tuple[str, ...]  # those that stay as they are
    started: tuple[int, ...] = ()  # procedures that dropped calls of a workflow started


def is_workflow(record: Record, declared: ProcedureType) -> bool:
    return declared.replaying and "calls" in plain_data.decode(record.data)


def point(
    record: Record,
    declared: ProcedureType,
    history: Sequence[Entry],
    step: str,
    state: Mapping[str, object] | None,
    *,
    forks: bool = False,
) -> Point:
    """Raises InvalidArgument (STEP_UNKNOWN)."""
    if is_workflow(record, declared):
        if state is not None:
            raise InvalidArgument(
                f"{record.name} is a workflow: its state is what its calls gave; go back to a call"
            )
        return _call(record, step, forks)
    return _step(record, declared, history, step, state)


def _step(
    record: Record,
    declared: ProcedureType,
    history: Sequence[Entry],
    step: str,
    state: Mapping[str, object] | None,
) -> Point:
    step = step or record.step
    if step not in declared.steps:
        raise InvalidArgument(
            f"procedure {record.name} has no step {step!r:.80} (steps: "
            f"{', '.join(declared.steps)})",
            code="STEP_UNKNOWN",
        )
    done = [one for one in history if one.outcome in _FINISHED]
    at = next((i for i in range(len(done) - 1, -1, -1) if done[i].step == step), len(done))
    redone = tuple(one.step for one in done[at:])
    rounds = sum(one.outcome == "children" for one in done[at:])
    keep, part = _depth(record.undo, record.seq - len(redone), rounds)
    data = record.data
    if state is not None:
        what = f"the state of {record.name}"
        data = plain_data.encode(dict(state), what, limits.PROCEDURE_STATE_BYTES_MAX)
    return Point(step, data, keep, part, redone, tuple(one.step for one in done[:at]))


def _call(record: Record, step: str, forks: bool) -> Point:
    stored = plain_data.decode(record.data)
    calls: list[list[Any]] = stored["calls"]
    at = _position(record, calls, step)
    if forks:
        at = min([at, *(i for i, one in enumerate(calls) if one[2] == OPEN)])
    while any(one[4] >= 0 and one[0] == STEP for one in calls[at:]):
        first = min(one[4] for one in calls[at:] if one[0] == STEP and one[4] >= 0)
        with_it = [i for i, one in enumerate(calls) if one[0] == STEP and one[4] == first]
        if with_it[0] >= at:
            break
        at = with_it[0]  # one transaction: one undo
    dropped = calls[at:]
    undone = [one[4] for one in dropped if one[0] == STEP and one[4] >= 0]
    keep, part = _depth(record.undo, min(undone), 0) if undone else (len(record.undo), 0)
    data = plain_data.encode(
        {**stored, "calls": calls[:at]},
        f"the state of {record.name}",
        limits.PROCEDURE_STATE_BYTES_MAX,
    )
    started = tuple(one[4] for one in dropped if one[0] == CHILD and one[2] == OPEN and one[4] > 0)
    return Point(_RUN, data, keep, part, _named(dropped), _named(calls[:at]), started)


def _named(calls: Sequence[Sequence[object]]) -> tuple[str, ...]:
    return tuple(f"{kind} {name}".strip() for kind, name, *_ in calls)


def _position(record: Record, calls: Sequence[Sequence[object]], step: str) -> int:
    if step.startswith("#") and step[1:].isascii() and step[1:].isdigit():
        at = int(step[1:10])
        if at <= len(calls):
            return at
    elif not step:
        return len(calls)
    else:
        named = [i for i, one in enumerate(calls) if step in (one[1], f"{one[0]} {one[1]}".strip())]
        if named:
            return named[-1]
    there = ", ".join(dict.fromkeys(_named(calls))) or "none"
    raise InvalidArgument(
        f"procedure {record.id} ({record.name}) has made no call {step!r:.80} (calls: "
        f"{there:.400}; or #0 to #{len(calls)})",
        code="STEP_UNKNOWN",
    )


def _depth(stack: Sequence[Undo], seq: int, rounds: int) -> tuple[int, int]:
    """How much of an undo stack is of executions before `seq`; so many rounds of children on top
    are of later ones.
    """
    keep = len(stack)
    while keep:
        top = stack[keep - 1]
        if not top.method:
            if not rounds:
                break
            rounds -= 1
        elif top.first + top.count <= seq:
            break
        elif top.first < seq:
            return keep - 1, seq - top.first
        keep -= 1
    return keep, 0


def refuse(record: Record, undo: str, *, children: bool) -> None:
    """Raises Refused (NOT_RESETTABLE, HAS_CHILDREN)."""
    why = ""
    if record.ended and record.parent:
        why = f"it is a child of {record.parent}, which has gone on; fork it"
    elif record.pending:
        why = "none of its workers has looked at its arguments yet"
    elif record.final and undo == UNDO and not record.ended:
        why = "it is past its point of no return: nothing is undone any more (undo=keep)"
    elif record.state is State.ROLLING_BACK and record.undone and record.back is None:
        why = "a part of it has been undone; fork it, or wait for its end"
    if why:
        raise Refused(
            f"procedure {record.id} ({record.name}) cannot be reset: {why}", code="NOT_RESETTABLE"
        )
    if children:
        raise Refused(
            f"procedure {record.id} ({record.name}) has procedures below it that have not ended: "
            "end them with it (children=end), or wait",
            code="HAS_CHILDREN",
        )


def back_to(record: Record, at: Point, args: bytes, reason: str, undo: str, now_ms: int) -> Change:
    """It goes on from `at`."""
    back = Back(at.step, at.data, args, at.keep, at.part)
    record = replace(record, due_ms=0, event="", attempt=0, waits_for=False, updated_ms=now_ms)
    had_ended = record.ended
    record = replace(record, **core.ANEW)
    if record.deadline_ms and record.deadline_ms <= now_ms:
        record = replace(record, deadline_ms=0)  # it would fail at once
    whole = record.undo
    if undo == UNDO and core.above(whole, back):
        error = core.failure("RESET", f"it goes back to {at.step}: {reason}")
        record = replace(record, state=State.ROLLING_BACK, error=error, back=back)
    else:
        record = core.forward(replace(record, back=back))
        if had_ended:  # it has lost its place among others
            record = replace(record, anew=record.seq)
    return core.noted(record, f"{RESET}: {reason}", now_ms, Flow.TAIL)


def fork_of(record: Record, new: Record, at: Point, reason: str, now_ms: int) -> Record:
    """`new`: as it would begin."""
    forked = replace(
        new,
        step=at.step,
        data=at.data,
        seq=record.seq + 1,
        anew=record.seq + 1,
        attributes=record.attributes,
        version=record.version,
        key=record.key,
        needs=record.needs,
        trace=record.trace,
    )
    return core.noted(forked, f"{FORK} of {record.id}: {reason}", now_ms, Flow.MORE).record


def effect(record: Record, at: Point, undo: str, *, forks: bool) -> dict[str, object]:
    """What it does, for people and the audit."""
    shown: dict[str, object] = {
        "from": at.step if at.step != _RUN else f"#{len(at.kept)}",
        "redone": list(at.redone[-_SHOWN:]),
        "kept": list(at.kept[-_SHOWN:]),
    }
    back = Back(at.step, b"", b"", at.keep, at.part)
    undone = [] if forks or undo == KEEP else core.above(record.undo, back)
    shown["undone"] = undone[:_SHOWN]
    return shown


_SHOWN: Final = 50
