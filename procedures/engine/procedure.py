"""What a step returns, and the states that a procedure goes through.

A procedure is a state machine whose steps are methods. A step does its work and returns an
*outcome*, a plain value that says what comes next; nothing happens before the engine has stored
that outcome together with the step's writes.

    next(step)                this step is finished, `step` follows
    done(result)              the procedure succeeded
    children([(name, args)],  run these procedures in parallel, then go on with `then`; there may be
             then=)           several rounds. If one fails, this procedure fails and rolls back
    suspend(event=,           finished; `then` runs when the event is signalled or the time is over.
            timeout_ms=,      Spurious wake-ups happen (a restart wakes everybody): `then` looks and
            then=)            suspends again
    again(delay_ms=)          not finished: what it wrote is kept, the same step runs again
    fail(code, message)       the procedure fails: finished steps are undone in reverse order

    RUNNABLE ⇄ WAITING → SUCCESS            any of them, by an operator:  BYPASSED (surgery.py)
        │                                  a failure with nothing to undo:  FAILED
        └→ ROLLING_BACK → ROLLED_BACK      shown as RUNNABLE with the step "undo:NAME"

Source: HBase's Procedure V2 (HBASE-12439): one `execute` is one idempotent step; theirs signals by
exceptions (suspend, yield), ours by values, so that a step is a function that can be tested without
an engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from kv.base.errors import InvalidArgument
from procedures.engine.plain_data import Plain


class State(IntEnum):
    """The run states common to all procedures; the numbers are on disk."""

    RUNNABLE = 1
    WAITING = 2
    SUCCESS = 3
    FAILED = 4
    ROLLED_BACK = 5
    BYPASSED = 6
    ROLLING_BACK = 7


TERMINAL: Final = frozenset({State.SUCCESS, State.FAILED, State.ROLLED_BACK, State.BYPASSED})
BACK: Final = frozenset({State.ROLLING_BACK, State.ROLLED_BACK})


class Lock(NamedTuple):
    """A resource lock that a procedure declares. Stored and shown; nothing enforces it yet."""

    mode: str  # "shared" or "exclusive"
    resource: str


def shared(resource: str) -> Lock:
    """A lock that others may share."""
    return Lock("shared", resource)


def exclusive(resource: str) -> Lock:
    """A lock that nobody else may hold."""
    return Lock("exclusive", resource)


PUSH: Final = "push"  # a finished step counts for undo, if its declaration says so
KEEP: Final = "keep"  # this execution did nothing that has to be undone
DROP: Final = "drop"  # … and neither has anything before it, from now on
SEVERAL: Final = "\x1f"  # between events of which the first one wakes


def events_of(event: str) -> tuple[str, ...]:
    """What a record waits for: any of these."""
    return tuple(event.split(SEVERAL)) if event else ()


def said(event: str) -> str:
    """The same in words."""
    return " or ".join(events_of(event))


@dataclass(frozen=True, slots=True)
class Next:
    step: str
    undo: str = PUSH
    label: str = ""  # how the execution is called in the history; "" = as its step


@dataclass(frozen=True, slots=True)
class Done:
    result: Any = None
    undo: str = PUSH
    label: str = ""


@dataclass(frozen=True, slots=True)
class Children:
    calls: tuple[tuple[str, Any], ...]
    then: str


@dataclass(frozen=True, slots=True)
class Suspend:
    then: str
    event: str = ""
    timeout_ms: int = 0  # 0 = only the event wakes it
    undo: str = PUSH
    label: str = ""


@dataclass(frozen=True, slots=True)
class Again:
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Fail:
    code: str
    message: str
    details: Plain | None = None


Outcome: TypeAlias = Next | Done | Children | Suspend | Again | Fail
NAMED: Final = "procedure_name"  # what a procedure's class has its registered name in
OUTCOMES: Final = (Next, Done, Children, Suspend, Again, Fail)


def next(step: str) -> Next:  # the name users write: kvorum.next
    """This step is finished; `step` (a step's name) follows."""
    return Next(step)


def done(result: object = None) -> Done:
    """The procedure succeeded. `result` is plain data, kept until it is acknowledged or its
    retention ends.
    """
    return Done(result)


def children(calls: Iterable[tuple[str | type, object]], *, then: str) -> Children:
    """Run procedures in parallel, each `(name or class, args)`; `then` runs when all have ended
    well.
    """
    named = tuple((procedure_name(which), args) for which, args in calls)
    return Children(named, then)


def suspend(*, then: str, event: str = "", timeout_ms: int = 0) -> Suspend:
    """Wait for `event` to be signalled, or for `timeout_ms`; then `then` runs and finds out which
    in `ctx.wake`. An event that was signalled before this step began is not kept: look first. The
    time is counted from the end of this step, also over restarts.
    """
    return Suspend(then, event, timeout_ms)


def again(*, delay_ms: int = 0) -> Again:
    """Keep what this step wrote and run it again, after `delay_ms`. `ctx.round` counts."""
    return Again(delay_ms)


def fail(code: str, message: str, details: dict[str, object] | None = None) -> Fail:
    """The procedure fails with this error; the writes of this step are dropped, finished steps are
    undone.
    """
    return Fail(code, message, details)


def procedure_name(which: object) -> str:
    """The registered name of a procedure class, or the name itself. Raises InvalidArgument."""
    if isinstance(which, str):
        return which
    declared = getattr(which, NAMED, None)
    if not isinstance(declared, str):
        raise InvalidArgument(
            f"{which!r:.80} is not a procedure: decorate a class with @kvorum.procedure(NAME), or "
            "a function with @kvorum.workflow"
        )
    return declared
