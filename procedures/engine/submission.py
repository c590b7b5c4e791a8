"""Submissions: what a client may ask to be started, and the first record of it (J3). Pure.

A submission is checked whole before anything is stored: owner, initial state, no parent, known
name, plain arguments below their limit. Children are made by the same rules, by a step of their
parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine import plain
from procedures.engine.procedure import State
from procedures.engine.records import FORMAT, Record
from procedures.engine.registry import ProcedureType, Registry


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client wants started. Leave the last three alone: a submission has no history."""

    name: str
    args: Any = None
    owner: str = ""
    nonce: str = ""
    parent: int = 0
    step: str = ""
    state: State | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """A submission that passed its checks."""

    type: ProcedureType
    args: bytes
    locks: tuple[tuple[str, str], ...]
    owner: str
    nonce: str


def check(sub: Submission, types: Registry) -> Admitted:
    """J3. Raises NotFound, InvalidArgument (codes OWNER_MISSING, PARENT_FORBIDDEN, NOT_INITIAL) or
    TooLarge.
    """
    declared = types.get(checked_text("procedure name", sub.name, limits.NAME_CHARS_MAX))
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
    return admit(declared, sub.args, sub.owner, nonce)


def admit(declared: ProcedureType, args: Any, owner: str, nonce: str) -> Admitted:
    """Check what children have in common with submissions: arguments and locks."""
    data = plain.encode(args, f"arguments of {declared.name}", limits.PROCEDURE_ARGS_BYTES_MAX)
    locks = tuple((lock.mode, lock.resource) for lock in declared.locks_of(args))
    return Admitted(declared, data, locks, owner, nonce)


def create(
    ok: Admitted, *, id: int, salt: bytes, now_ms: int, parent: int = 0, final: bool = False
) -> Record:
    """The first record. `final`: born past its point of no return, as its parent is."""
    t = ok.type
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
        deadline_ms=now_ms + t.timeout_ms if t.timeout_ms else 0,
        retention_ms=t.retention_ms,
        state=State.RUNNABLE,
        step=t.first,
        final=final,
        updated_ms=now_ms,
    )


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
