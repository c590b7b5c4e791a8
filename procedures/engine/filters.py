"""What is searched for: a map of plain data, the same over every surface. Pure.

    type, state, owner, queue, pool, schedule, parent   a text (state, type: also a list of them)
    error                    the beginning of an error's code, class or message
    submitted_from, submitted_to, ended_from, ended_to  ms since 1970; from it on, before it
    where                    conditions on attributes, all of which hold: "customer=ada",
                             "amount>=100", "city^=New" (begins with), "tags=urgent" (has it)

A name of an attribute must be declared by some type, or by those that are named; of one kind by all
of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine import attributes
from procedures.engine.attributes import BOOLEAN, KEYWORDS, TEXT
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import TERMINAL, State
from procedures.engine.records import ASKED, SCHEDULE_OWNER, SCHEDULED, Record
from procedures.engine.registry import ProcedureType
from procedures.engine.submission import checked_text

_CONDITION: Final = re.compile(r"\s*(\w+)\s*(!=|<=|>=|\^=|=|<|>)\s*(.*)\Z", re.DOTALL)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_TEXTS: Final = ("owner", "queue", "pool", "schedule", "error")
_TIMES: Final = ("submitted_from", "submitted_to", "ended_from", "ended_to")
FIELDS: Final = ("type", "state", "parent", "where", *_TEXTS, *_TIMES)
_STATES: Final = {
    "RUNNABLE": (State.RUNNABLE, State.ROLLING_BACK),
    **{one.name: (one,) for one in State if one not in (State.RUNNABLE, State.ROLLING_BACK)},
}


@dataclass(frozen=True, slots=True)
class Where:
    """One condition on an attribute."""

    name: str
    how: str
    kind: str
    value: Any

    def fits(self, there: Plain) -> bool:
        value = there.get(self.name)
        if value is None:
            return False
        if self.kind == KEYWORDS:
            return (self.value in value) == (self.how == "=")
        if self.how == "^=":
            return str(value).startswith(self.value)
        return _COMPARE[self.how](value, self.value)


@dataclass(frozen=True, slots=True)
class Filter:
    types: tuple[str, ...] = ()
    states: frozenset[State] = frozenset(State)
    owner: str = ""
    queue: str = ""
    pool: str = ""
    schedule: str = ""
    error: str = ""
    parent: int = 0
    submitted_from: int = 0
    submitted_to: int = 0
    ended_from: int = 0
    ended_to: int = 0
    where: tuple[Where, ...] = field(default=())

    def fits(self, record: Record) -> bool:
        """Whether a record is one of those that are searched for."""
        return (
            (not self.types or record.name in self.types)
            and record.state in self.states
            and self.owner in ("", record.owner)
            and self.queue in ("", record.queue or record.name)
            and self.pool in ("", record.pool)
            and self.parent in (0, record.parent)
            and (not self.schedule or is_of(record, self.schedule))
            and _within(record.created_ms, self.submitted_from, self.submitted_to)
            and self._ended(record)
            and (not self.error or _has_error(record, self.error))
            and self._where(record)
        )

    def _ended(self, record: Record) -> bool:
        if not (self.ended_from or self.ended_to):
            return True
        return record.ended and _within(record.updated_ms, self.ended_from, self.ended_to)

    def _where(self, record: Record) -> bool:
        if not self.where:
            return True
        there = dict(record.attributes)
        return all(one.fits(there) for one in self.where)

    @property
    def live(self) -> bool:
        """Whether anything that has not ended may fit."""
        return bool(self.states - TERMINAL) and not (self.ended_from or self.ended_to)

    @property
    def only_by_type(self) -> bool:
        """Whether it says nothing but types and states."""
        return self == Filter(self.types, self.states)


def is_of(record: Record, schedule: str) -> bool:
    """Whether a schedule started it. (Names of others may begin alike.)"""
    name = record.nonce.removeprefix(SCHEDULED).rpartition("/")[0].partition(ASKED)[0]
    return record.owner == SCHEDULE_OWNER and name == schedule


def _within(ms: int, first: int, end: int) -> bool:
    return first <= ms and (not end or ms < end)


def _has_error(record: Record, text: str) -> bool:
    error = record.error
    if error is None and record.trying is not None:
        error = record.trying.error
    if error is None:
        return False
    return any(one.startswith(text) for one in (error.code, error.type, error.message))


def filter_of(given: Mapping[str, Any], types: Iterable[ProcedureType]) -> Filter:
    """`types`: all that are declared. Raises InvalidArgument."""
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        raise InvalidArgument(f"unknown filter {unknown[0]!r:.60}; there are {', '.join(FIELDS)}")
    said = {name: value for name, value in given.items() if value not in (None, "", [], ())}
    names = _several("type", said.get("type"))
    states = _several("state", said.get("state"))
    for one in states:
        if one not in _STATES:
            raise InvalidArgument(f"unknown state {one!r:.60}; there are {', '.join(_STATES)}")
    texts: dict[str, Any] = {
        name: checked_text(name, said[name], limits.NONCE_CHARS_MAX)
        for name in _TEXTS
        if name in said
    }
    times: dict[str, Any] = {name: _moment(name, said[name]) for name in _TIMES if name in said}
    conditions = _several("where", said.get("where"))
    if len(conditions) > limits.SEARCH_CONDITIONS_MAX:
        raise InvalidArgument(f"where takes up to {limits.SEARCH_CONDITIONS_MAX} conditions")
    known = list(types)
    return Filter(
        types=names,
        states=frozenset(s for one in states for s in _STATES[one]) if states else frozenset(State),
        parent=_parent(said.get("parent")),
        where=tuple(_where(text, names, known) for text in conditions),
        **texts,
        **times,
    )


def _several(name: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise InvalidArgument(f"the filter {name} must be a text, or a list of them")
    if len(listed) > limits.SEARCH_NAMES_MAX:
        raise InvalidArgument(f"the filter {name} takes up to {limits.SEARCH_NAMES_MAX} of them")
    return tuple(dict.fromkeys(listed))


def _moment(name: str, value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        value = int(value)
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise InvalidArgument(f"{name} must be a moment in ms since 1970, got {value!r:.40}")
    return value


def _parent(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if value is None:
        return 0
    if type(value) is not int or not 0 < value < 1 << 64:
        raise InvalidArgument(f"parent must be the id of a procedure, got {value!r:.40}")
    return value


def _where(text: str, names: tuple[str, ...], types: list[ProcedureType]) -> Where:
    found = _CONDITION.match(text)
    if found is None:
        raise InvalidArgument(
            f"{text!r:.80} is no condition; write NAME=VALUE, or one of != < <= > >= ^= (begins "
            "with) in between"
        )
    name, how, value = found.groups()
    kinds = {
        one.attributes[name]: one.name
        for one in types
        if name in one.attributes and (not names or one.name in names)
    }
    if not kinds:
        where = " of these" if names else ""
        raise InvalidArgument(
            f"no type{where} declares an attribute {name!r:.60}", code="ATTRIBUTE_UNKNOWN"
        )
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} in {one}" for kind, one in sorted(kinds.items()))
        raise InvalidArgument(f"attribute {name} is {listed}: say which type")
    (kind,) = kinds
    wrong = how == "^=" and kind != TEXT
    if wrong or (kind in (BOOLEAN, KEYWORDS) and how not in ("=", "!=")):
        raise InvalidArgument(f"{how} is not for attribute {name}, which is of kind {kind}")
    return Where(name, how, kind, attributes.parsed(f"attribute {name}", kind, value))
