"""Submissions: what a client may ask to be started, and the first record of it (J3). Pure.

A submission is checked whole before anything is stored: owner, initial state, no parent, known
name, plain arguments below their limit. Children are made by the same rules, by a step of their
parent.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from msgspec.structs import replace as changed

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused
from procedures.engine import attributes, plain_data
from procedures.engine.needs import Needs
from procedures.engine.procedure import SEVERAL, State
from procedures.engine.records import FORMAT, Record
from procedures.engine.registry import ProcedureType, Registry
from procedures.engine.resources import checked
from procedures.engine.typed_values import plain_of

_TRACE: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")

# (type, arguments) → the same for all ways to write them; None: nobody knows. Raises Unavailable
Canonical = Callable[[ProcedureType, bytes], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Options:
    """How a submission waits for its turn; what is left out is the declaration's."""

    queue: str = ""
    priority: int | None = None
    delay_ms: int = 0  # begin so long after the submission at the earliest …
    at_ms: int = 0  # … or then (ms since 1970)
    pool: str = ""
    key: str = ""  # of its queue; "" = what the declaration reads from the arguments
    needs: Needs = ()  # of a worker, besides those of the declaration
    bounce_ms: int = 0  # not 0: its delay may begin anew for so long
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client wants started. `parent`, `step` and `state` must be left alone: a submission
    has no history.
    """

    name: str
    args: Any = None
    owner: str = ""
    nonce: str = ""
    parent: int = 0
    step: str = ""
    state: State | None = None
    options: Options = field(default_factory=Options)
    trace: str = ""  # the span that it belongs to; what is no traceparent counts as none
    first_counts: bool = (
        False  # the nonce alone says what it is for: other arguments change nothing
    )


@dataclass(frozen=True, slots=True)
class Admitted:
    """A submission that passed its checks."""

    type: ProcedureType
    args: bytes
    locks: tuple[tuple[str, str], ...]
    owner: str
    nonce: str
    options: Options = field(default_factory=Options)
    pending: bool = False  # a worker has to look at the arguments before the first step
    trace: str = ""


def check(sub: Submission, types: Registry, id: int = 0) -> Admitted:
    """J3. `id`: that it will have, if that says its version. Raises NotFound, InvalidArgument
    (codes OWNER_MISSING, PARENT_FORBIDDEN, NOT_INITIAL) or TooLarge.
    """
    declared = types.for_new(checked_text("procedure name", sub.name, limits.NAME_CHARS_MAX), id)
    if not sub.owner:
        raise InvalidArgument(
            f"procedure {sub.name}: the owner is not set; every procedure belongs to somebody",
            code="OWNER_MISSING",
        )
    checked_text("owner", sub.owner, limits.NONCE_CHARS_MAX)
    if sub.parent:
        raise InvalidArgument(
            f"procedure {sub.name}: submitted with parent {sub.parent}; only a step makes children",
            code="PARENT_FORBIDDEN",
        )
    if sub.state is not None or sub.step not in ("", declared.first):
        raise InvalidArgument(
            f"procedure {sub.name}: submitted in the middle (state {sub.state}, "
            f"step {sub.step!r:.80}); a submission begins at the first step",
            code="NOT_INITIAL",
        )
    nonce = checked_text("nonce", sub.nonce, limits.NONCE_CHARS_MAX) if sub.nonce else ""
    check_options(sub.options)
    if sub.options.needs and not declared.pool:
        raise InvalidArgument(
            f"procedure {sub.name} is run by the nodes themselves: needs are for workers"
        )
    trace = sub.trace if _TRACE.match(sub.trace) else ""
    ok = admit(declared, sub.args, sub.owner, nonce)
    attributes.changed(f"procedure {sub.name}", declared.attributes, (), sub.options.attributes)
    return replace(ok, options=sub.options, trace=trace)


def admit(declared: ProcedureType, args: object, owner: str, nonce: str) -> Admitted:
    """Check what children have in common with submissions: arguments and locks. Of a type that
    workers run, what only they know is left to them (`pending`); so is to the Runner what only
    users' code knows, where that runs apart.
    """
    what = f"arguments of {declared.name}"
    args = plain_of(args, what)
    if declared.apart:
        data = plain_data.encode(args, what, limits.PROCEDURE_ARGS_BYTES_MAX)
        return Admitted(declared, data, (), owner, nonce, pending=True)
    if declared.args is not None:
        args = declared.args.plain(args, what)
    data = plain_data.encode(args, what, limits.PROCEDURE_ARGS_BYTES_MAX)
    locks = checked(declared.locks_of(args), f"procedure {declared.name}")
    pending = declared.remote and declared.needs_look
    return Admitted(declared, data, locks, owner, nonce, pending=pending)


async def refuse_other(earlier: Record, ok: Admitted, canonical: Canonical) -> None:
    """Raises Refused (NONCE_REUSED) if a nonce was used for something else before: whoever asks
    would take its result for that of what he asks now. How it waits for its turn may differ, and
    how its arguments are written: both are read as the declaration reads them today, by who has it.
    """
    other = ""
    if earlier.name != ok.type.name:
        other = f"({earlier.name}), not to a {ok.type.name}"
    elif not plain_data.same(earlier.args, ok.args):
        mine = await canonical(ok.type, ok.args)
        before = await canonical(ok.type, earlier.args) if mine is not None else None
        if mine is None or before is None or not plain_data.same(before, mine):
            other = f"({earlier.name}), which has other arguments"
    if other:
        raise Refused(
            f"nonce {ok.nonce!r:.80} of {ok.owner!r:.80} belongs to procedure {earlier.id} "
            f"{other}; use another nonce",
            code="NONCE_REUSED",
            details={"procedure": str(earlier.id), "name": earlier.name},
        )


class Seen(NamedTuple):
    """What a type's code says of arguments that fit."""

    locks: tuple[tuple[str, str], ...]
    args: bytes  # as the type reads them; b"" = it has no type


def seen(declared: ProcedureType, args: bytes) -> Seen:
    """Call the type's check of arguments, and its lock rule. Raises KvorumError."""
    value = plain_data.decode(args)
    if declared.args is not None:
        declared.args.plain(value, f"arguments of {declared.name}")
    locks = checked(declared.locks_of(value), f"procedure {declared.name}")
    return Seen(locks, canonical_here(declared, args) or b"")


def canonical_here(declared: ProcedureType, args: bytes) -> bytes | None:
    """Arguments as the type reads them; None: it has none, or they do not fit."""
    if declared.args is None:
        return None
    try:
        found = declared.args.canonical(plain_data.decode(args), f"arguments of {declared.name}")
    except KvorumError:
        return None
    return plain_data.pack(found)


class Start(NamedTuple):
    """A procedure that a step starts. It is none of its children: it lives and ends by itself."""

    id: int
    name: str
    args: bytes
    options: Options
    tells: str  # the token that its end completes; "" = none
    bound: bool  # it is cancelled when its starter ends


def started(start: Start, starter: Record, types: Registry, now_ms: int, trace: str = "") -> Record:
    """Its first record. Raises NotFound, InvalidArgument, TooLarge."""
    declared = types.for_new(start.name, start.id)
    check_options(start.options)
    ok = admit(declared, plain_data.decode(start.args), starter.owner, "")
    ok = replace(ok, options=start.options, trace=trace)
    record = create(ok, id=start.id, salt=starter.salt, now_ms=now_ms)
    return changed(record, starter=starter.id, tells=start.tells, bound=start.bound)


def create(
    ok: Admitted, *, id: int, salt: bytes, now_ms: int, parent: int = 0, final: bool = False
) -> Record:
    """The first record. `final`: born past its point of no return, as its parent is."""
    t, wanted = ok.type, ok.options
    start_ms = max(wanted.at_ms, now_ms + wanted.delay_ms) if wanted.at_ms or wanted.delay_ms else 0
    return Record(
        format=FORMAT,
        id=id,
        name=t.name,
        version=t.version,
        owner=ok.owner,
        nonce=ok.nonce,
        parent=parent,
        salt=salt,
        locks=ok.locks,
        args=ok.args,
        created_ms=now_ms,
        deadline_ms=max(start_ms, now_ms) + t.timeout_ms if t.timeout_ms else 0,
        retention_ms=t.retention_ms,
        state=State.WAITING if start_ms > now_ms else State.RUNNABLE,
        step=t.first,
        due_ms=start_ms if start_ms > now_ms else 0,
        final=final,
        updated_ms=now_ms,
        pool=(wanted.pool or t.pool) if t.pool else "",
        queue=wanted.queue or t.queue or t.name,
        priority=t.priority if wanted.priority is None else wanted.priority,
        pending=ok.pending,
        trace=ok.trace,
        key=wanted.key or t.key_of(ok.args),
        needs=tuple(sorted({**dict(t.needs), **dict(wanted.needs)}.items())) if t.pool else (),
        bounce_ms=now_ms + wanted.bounce_ms if wanted.bounce_ms else 0,
        attributes=attributes.changed(f"procedure {t.name}", t.attributes, (), wanted.attributes),
    )


def begun(record: Record) -> bool:
    """Whether a step of it was ever under way, as far as the store knows: since it was forked, or
    went on after its end.
    """
    return (
        record.seq > record.anew
        or record.partial
        or record.trying is not None
        or record.error is not None
        or record.state is State.ROLLING_BACK
    )


def check_options(wanted: Options) -> None:
    """Raises InvalidArgument."""
    most = limits.PROCEDURE_TIMEOUT_MS_MAX
    for what, name in (("queue", wanted.queue), ("pool", wanted.pool)):
        if name:
            checked_text(what, name, limits.NAME_CHARS_MAX)
    if wanted.key:
        checked_text("key", wanted.key, limits.NONCE_CHARS_MAX)
    if type(wanted.delay_ms) is not int or not 0 <= wanted.delay_ms <= most:
        raise InvalidArgument(f"delay_ms must be 0 to {most}, got {wanted.delay_ms!r:.40}")
    if type(wanted.at_ms) is not int or not 0 <= wanted.at_ms < 1 << 53:
        raise InvalidArgument(f"at must be a time in ms since 1970, got {wanted.at_ms!r:.40}")
    if wanted.at_ms and wanted.delay_ms:
        raise InvalidArgument("delay_ms and at contradict each other: give one")
    high = limits.PROCEDURE_PRIORITY_MAX
    if wanted.priority is not None and (
        type(wanted.priority) is not int or abs(wanted.priority) > high
    ):
        raise InvalidArgument(f"priority must be −{high} to {high}, got {wanted.priority!r:.40}")


def checked_name(what: str, value: object) -> str:
    """The name of a signal, an update or the like: part of an event. Raises InvalidArgument."""
    name = checked_text(what, value, limits.NAME_CHARS_MAX)
    if SEVERAL in name:  # who waits for it would wait for other events
        raise InvalidArgument(f"{what} must not have the character U+001F, got {name!r:.80}")
    return name


def checked_text(what: str, value: object, chars_max: int) -> str:
    """A text of 1 to `chars_max` characters. Raises InvalidArgument."""
    if not isinstance(value, str) or not 0 < len(value) <= chars_max:
        raise InvalidArgument(
            f"{what} must be a text of 1 to {chars_max} characters, got {value!r:.80}"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} is not valid Unicode text: {value!r:.80}") from None
    return value
