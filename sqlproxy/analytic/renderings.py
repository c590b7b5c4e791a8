"""What was rendered of a statement, kept for its next runs.

Into the text for DuckDB goes what constants are in the run that it is made for: values of
parameters and settings, what functions found in the catalog. So what is asked of that run while it
is made is noted, and it serves a run that would answer the same; where no other run would (the
time, chance, sequences) it is not kept. What is asked for each row is asked of the run that has it
then. One run has it at a time: who comes meanwhile gets one of its own. Nothing of a run that has
ended is kept alive: the session may be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from kv.base.limits import SQL_CACHED_CHARS_MAX, SQL_PLAN_CHARS_MAX, SQL_RENDERINGS_MAX
from sqlproxy.analytic.selects import Query, Selects
from sqlproxy.front.bound.env import Catalog, Env
from sqlproxy.pg.style import Style
from sqlproxy.values import memory
from sqlproxy.values.errors import SqlError
from sqlproxy.values.interval import Interval

_PLAIN: Final = frozenset(
    (bool, int, float, str, bytes, Decimal, date, datetime, time, UUID, Interval, type(None))
)
"""Types of which equal values of the same type have the same repr, and others another one."""
_NEVER: Final = object()
_NOBODY: Final = Env()


class Rendering:
    """`env`: of the run that has it."""

    query: Query

    def __init__(self, env: Env, *, late: bool = False) -> None:
        """`late`: see `Selects`."""
        self.env = Lent(env)
        self.selects = Selects(self.env, late=late)
        self.notes: Final = self.env.notes

    def render(self, make: Callable[[Selects], Query]) -> None:
        """Raises SqlError."""
        self.query = make(self.selects)
        self.selects.forget()
        self.env.settle()

    def begin(self, env: Env) -> None:
        """For another run."""
        self.env.lend(env)
        self.selects.functions.begin()

    @property
    def small(self) -> bool:
        """Whether it may be kept with its statement."""
        if len(self.query.text) > SQL_PLAN_CHARS_MAX:
            return False
        listed = (rows.item.rows for rows in self.selects.known.values())
        return sum(map(memory.size_of_rows, listed)) <= SQL_PLAN_CHARS_MAX


def taken(kept: list[Rendering], env: Env) -> Rendering | None:
    """One that serves this run, which has it alone from now on; None: there is none."""
    for at in range(len(kept) - 1, -1, -1):
        if kept[at].notes.serve(env):
            found = kept.pop(at)
            found.begin(env)
            return found
    return None


def put_back(kept: list[Rendering], rendering: Rendering) -> None:
    """Its run has ended well."""
    if rendering.notes.alike and rendering.small:
        rendering.env.lend(_NOBODY)
        kept.append(rendering)
        del kept[:-SQL_RENDERINGS_MAX]


class Notes:
    """What was asked while a statement was rendered. `alike`: another run may answer the same."""

    def __init__(self) -> None:
        self.alike = True
        self._told: dict[tuple[str, str], object] = {}

    def note(self, of: str, name: str, value: object) -> None:
        if value is _NEVER:
            self.alike = False
        self._told[of, name] = value

    def serve(self, env: Env) -> bool:
        """Whether this run answers all that was asked in the same way."""
        try:
            return all(_TOLD[of](env, name) == value for (of, name), value in self._told.items())
        except (SqlError, KeyError):  # a setting that this session has not
            return False


class _Same:
    """An object, which equals itself alone."""

    __slots__ = ("_one",)

    def __init__(self, one: object) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._one is self._one

    __hash__ = object.__hash__


def _values(env: Env, name: str) -> object:
    """Of parameters."""
    if not set(map(type, _flat(env.params))) <= _PLAIN:
        return _NEVER
    told = repr(tuple(env.params))
    return told if len(told) <= SQL_CACHED_CHARS_MAX else _NEVER


def _flat(values: Sequence[object]) -> Iterator[object]:
    for one in values:
        if type(one) is list:
            yield from _flat(one)
        else:
            yield one


_TOLD: Final[dict[str, Callable[[Env, str], object]]] = {
    "parameters": _values,
    "style": lambda env, name: env.style,
    "setting": lambda env, name: env.session[name],
    "catalog": lambda env, name: _Same(env.catalog.moment),
    "fact": lambda env, name: _Same(env.catalog.fact(name)),
}


class Lent(Env):
    """What is not set here is asked of the run's own: all of it, as long as it is noted."""

    __slots__ = ("_noting", "_run", "notes")

    def __init__(self, run: Env) -> None:
        self._run, self._noting, self.notes = run, True, Notes()
        self.slept, self.memo = 0.0, None

    def settle(self) -> None:
        """It is rendered: nothing is noted any more."""
        self._noting = False
        self.lend(self._run)

    def lend(self, run: Env) -> None:
        self._run, self.params, self.catalog = run, run.params, run.catalog
        self.slept, self.memo = 0.0, None

    def __getattr__(self, name: str) -> object:
        found = getattr(self._run, name)
        return self._noted(name, found) if self._noting else found

    def _noted(self, name: str, found: Any) -> object:
        notes = self.notes
        match name:
            case "params":
                notes.note("parameters", "", _values(self._run, ""))
            case "style":
                notes.note("style", "", replace(found, now=None))
                return found if found.now is None else replace(found, now=self._moment(found))
            case "session":
                return _Settings(found, self)
            case "catalog":
                return _Catalog(found, self)
            case _:
                notes.note("moment", name, _NEVER)
        return found

    def _moment(self, style: Style) -> Callable[[], datetime]:
        def now() -> datetime:
            self.notes.note("moment", "now", _NEVER)
            assert style.now is not None
            return style.now()

        return now


class _Settings(Mapping[str, str]):
    def __init__(self, found: Mapping[str, str], lent: Lent) -> None:
        self._found, self._notes = found, lent.notes

    def __getitem__(self, name: str) -> str:
        try:
            value = self._found[name]
        except (SqlError, KeyError):
            self._notes.note("setting", name, _NEVER)
            raise
        self._notes.note("setting", name, value)
        return value

    def __iter__(self) -> Iterator[str]:
        self._notes.note("setting", "", _NEVER)
        return iter(self._found)

    def __len__(self) -> int:
        self._notes.note("setting", "", _NEVER)
        return len(self._found)


class _Catalog:
    def __init__(self, found: Catalog, lent: Lent) -> None:
        self._found, self._notes = found, lent.notes

    @property
    def moment(self) -> object:
        return self._asked.moment

    @property
    def _asked(self) -> Catalog:
        self._notes.note("catalog", "", _Same(self._found.moment))
        return self._found

    def get(self, relation: str, column: str, **where: object) -> Any:
        return self._asked.get(relation, column, **where)

    def find(self, relation: str, column: str, **where: object) -> list[Any]:
        return self._asked.find(relation, column, **where)

    def relation(self, name: str) -> int:
        return self._asked.relation(name)

    def rows(self, relation: str) -> Sequence[Sequence[object]] | None:
        return self._asked.rows(relation)

    def fact(self, name: str) -> Any:
        value = self._found.fact(name)
        self._notes.note("fact", name, _Same(value))
        return value
