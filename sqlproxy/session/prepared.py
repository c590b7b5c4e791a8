"""Bound statements with what was compiled for them, shared by all sessions of a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kv.base.limits import SQL_PLAN_CHARS_MAX
from sqlproxy.answers import Field
from sqlproxy.aside import aside
from sqlproxy.catalog.privileges import Members, Need
from sqlproxy.declared import Declared
from sqlproxy.front import front
from sqlproxy.front import statements as s
from sqlproxy.front.syntax import Parsed
from sqlproxy.pg.style import Style
from sqlproxy.session.settings import shown_name
from sqlproxy.tables.listing import ListingPlan
from sqlproxy.tables.selecting import ConstantPlan, SelectPlan, select_plan
from sqlproxy.tables.writing import DeletePlan, InsertPlan, UpdatePlan
from sqlproxy.values.errors import (
    INSUFFICIENT_PRIVILEGE,
    INVALID_TEXT,
    SYNTAX_ERROR,
    UNDEFINED_PARAMETER,
    UNDEFINED_SCHEMA,
    SqlError,
)

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession

_DECLARED: Final = (UNDEFINED_SCHEMA, INVALID_TEXT)  # the text of a label
_NOT_DECLARED: Final = (SYNTAX_ERROR, INSUFFICIENT_PRIVILEGE, UNDEFINED_PARAMETER)
Plan = SelectPlan | ConstantPlan | ListingPlan | InsertPlan | UpdatePlan | DeletePlan | None


@dataclass(slots=True, eq=False)
class Prepared:
    """`bound`: of `sqlproxy.front.statements` or `definitions`. `plan`: how it runs without DuckDB;
    None: it cannot, or it is no query and no change. `system`: what the catalog made of it.
    """

    text: str
    oids: tuple[int, ...]
    bound: Any
    declared: Declared | None
    fields: Sequence[Field] | None
    parameters: Sequence[int]
    plan: Plan = None
    system: Any = None
    wire: Any = field(default=None)
    short: Any = None  # True: it is to be looked at whether there is one
    needs: tuple[Need, ...] = ()
    permitted: dict[str, Members] = field(default_factory=dict)  # user → roles that it was by

    def __post_init__(self) -> None:
        self.short = self.plan is not None or None


async def prepare(
    session: SqlSession, text: str, parsed: Parsed | None, oids: tuple[int, ...]
) -> Prepared:
    """Raises SqlError."""
    declared: Declared = await session.declared()
    found = remembered(session, text, oids, declared)
    if found is None:
        try:
            found = await _prepared(session, text, parsed, oids, declared)
        except SqlError as error:
            declared = await newer(session, declared, error)
            found = await _prepared(session, text, parsed, oids, declared)
        if len(text) <= SQL_PLAN_CHARS_MAX:
            key = _key(session, text, oids, declared)
            session.services.plans.put(key, found, len(text))
    return found


async def newer(session: SqlSession, declared: Declared, error: SqlError) -> Declared:
    """What is declared by now, if that is not what a statement failed with: another process may
    just have declared what it names. Raises the error.
    """
    state = error.sqlstate
    if state not in _DECLARED and (state[:2] != "42" or state in _NOT_DECLARED):
        raise error
    catalogs = session.services.catalogs
    found = await catalogs.declared_since(session.database, catalogs.moment())
    if found is declared:
        raise error
    return found


def _key(session: SqlSession, text: str, oids: tuple[int, ...], declared: Declared) -> Any:
    return text, oids, declared, session.settings.get("TimeZone")


def remembered(
    session: SqlSession, text: str, oids: tuple[int, ...], declared: Declared
) -> Prepared | None:
    """What was prepared for the same text before, by any session."""
    if len(text) > SQL_PLAN_CHARS_MAX:
        return None
    found: Prepared | None = session.services.plans.get(_key(session, text, oids, declared))
    return found


async def _prepared(
    session: SqlSession,
    text: str,
    parsed: Parsed | None,
    oids: tuple[int, ...],
    declared: Declared,
) -> Prepared:
    bound, needs, plan = await aside(text, _planned, parsed, declared, oids, session.style)
    if isinstance(bound, s.System):
        assert parsed is not None
        system = session.services.system.prepare(text, bound.tree["SelectStmt"], oids)
        return Prepared(
            text, oids, bound, declared, system.fields, system.parameters, system=system
        )
    parameters = getattr(bound, "parameters", ())
    if isinstance(bound, s.DeclareCursor) and isinstance(bound.query, s.System):
        query = bound.query
        parameters = session.services.system.prepare(
            query.text, query.tree["SelectStmt"], oids
        ).parameters
    return Prepared(text, oids, bound, declared, _fields(bound), parameters, plan=plan, needs=needs)


def _fields(bound: Any) -> Sequence[Field] | None:
    """What the client is told of its rows. Those of a COPY are no rows of the protocol."""
    match bound:
        case s.Copy():
            return None
        case s.Show() if bound.name != "all":
            return (replace(bound.fields[0], name=shown_name(bound.name)),)
        case _:
            return getattr(bound, "fields", None) or None


def _planned(
    parsed: Parsed | None, declared: Declared, oids: tuple[int, ...], style: Style
) -> tuple[Any, tuple[Need, ...], Plan]:
    bound, needs = front.bind_with_needs(parsed, declared, oids, style)
    return bound, needs, plan_of(bound)


def plan_of(bound: Any) -> Plan:
    """How a query or a change runs without DuckDB; None if it cannot."""
    match bound:
        case s.Select():
            return select_plan(bound)
        case s.Insert() if not (bound.ctes or bound.subqueries):
            return InsertPlan(bound)
        case s.Update() | s.Delete() if _alone(bound):
            return UpdatePlan(bound) if isinstance(bound, s.Update) else DeletePlan(bound)
        case _:
            return None


def _alone(bound: s.Update | s.Delete) -> bool:
    """Whether its own table is all that it reads."""
    return not (bound.ctes or bound.subqueries or bound.current_of) and len(bound.items) == 1
