"""A statement's text → what it is bound to now, with a plan: shared by all sessions of a node.

Changes of a table whose column is being replaced (ALTER COLUMN … TYPE) wait until it has the new
one: a moment, unless a process that serves SQL is silent. However many wait, one asks the store. In
a transaction whose snapshot is older than that they would read what is not there yet, so it has to
run again (40001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kv.base.limits import SQL_EXPEL_MS, SQL_PLAN_CHARS_MAX, SQL_SETTLE_MS
from sqlproxy.declared.database import Declared
from sqlproxy.front import front
from sqlproxy.front.bound import statements as s
from sqlproxy.front.syntax.syntax import Parsed
from sqlproxy.loop.statement_threads import aside, is_long
from sqlproxy.pg.answers import Field
from sqlproxy.pg.style import Style
from sqlproxy.rows.naming import TEMPORARY
from sqlproxy.rows.schema import Table
from sqlproxy.session.shared.prepared import Plan, PlanKey, Prepared, described_alike, plan_of
from sqlproxy.session.state.settings import shown_name
from sqlproxy.session.state.state import State
from sqlproxy.tables.changing import being_changed
from sqlproxy.values.errors import (
    INSUFFICIENT_PRIVILEGE,
    INVALID_TEXT,
    SYNTAX_ERROR,
    UNDEFINED_PARAMETER,
    UNDEFINED_SCHEMA,
    UNSUPPORTED,
    SqlError,
    in_failed_transaction,
    outside_of_block,
)

_DECLARED: Final = (UNDEFINED_SCHEMA, INVALID_TEXT)  # the text of a label
_NOT_DECLARED: Final = (SYNTAX_ERROR, INSUFFICIENT_PRIVILEGE, UNDEFINED_PARAMETER)
_WAIT_MS: Final = 2 * (SQL_SETTLE_MS + SQL_EXPEL_MS)
_REFERRING: Final = (s.Execute, s.Fetch)
"""What is described by something else of the session."""
_EXIT_KINDS: Final = frozenset(
    {"TRANS_STMT_COMMIT", "TRANS_STMT_ROLLBACK", "TRANS_STMT_ROLLBACK_TO"}
)


async def parse(session: State, text: str, oids: Sequence[int]) -> Prepared:
    """Raises SqlError."""
    found = None if session.block.status == "E" else known(session, text, oids)
    if found is None:
        found = await _read(session, text, tuple(oids))
    return _described(session, found) if type(found.bound) in _REFERRING else found


async def _read(session: State, text: str, oids: tuple[int, ...]) -> Prepared:
    """Raises SqlError."""

    async def read() -> Prepared:
        parsed = await aside(text, front.parse, text)
        _check_allowed(session, parsed)
        return await prepare(session, text, parsed, oids)

    return await session.interrupts.guard(read(), reads=is_long(text))


def known(session: State, text: str, oids: Sequence[int]) -> Prepared | None:
    """What is remembered of this text, if what is declared is known, too."""
    declared = session.services.catalogs.fresh(session.database)
    if declared is None:
        return None
    return remembered(session, text, tuple(oids), session.along(declared))


def _check_allowed(session: State, parsed: Parsed | None) -> None:
    """Raises SqlError (25P02): nothing but an end is allowed in a failed transaction."""
    if session.block.status != "E" or parsed is None:
        return
    if parsed.kind == "TransactionStmt" and parsed.body["kind"] in _EXIT_KINDS:
        return
    raise in_failed_transaction()


def _described(session: State, statement: Prepared) -> Prepared:
    """What has the rows of something else of the session, with what that has now."""
    bound = statement.bound
    fields = None
    if isinstance(bound, s.Execute):
        if (prepared := session.statements.get(bound.name)) is not None:
            fields = prepared.fields
    elif not bound.move and (portal := session.cursors.portals.get(bound.cursor)) is not None:
        fields = portal.fields
    return replace(statement, fields=fields)


async def current(session: State, statement: Prepared) -> Prepared:
    """The statement as it is bound to what is declared now. Raises SqlError."""
    declared = await session.declared()
    if statement.declared is None or statement.declared is declared:
        return statement
    oids = tuple(statement.parameters)  # as the client knows them, and writes its values
    again = await _read(session, statement.text, oids)
    if type(again.bound) not in _REFERRING and not described_alike(again, statement):
        raise SqlError(
            UNSUPPORTED,
            "cached plan must not change result type",
            routine="RevalidateCachedQuery",  # by this asyncpg and pgjdbc prepare it anew
        )
    return again


async def allowed(session: State, statement: Prepared) -> Prepared:
    """Another statement than the one that runs, as it is bound now. Raises SqlError."""
    found = await current(session, statement)
    session.check(found)
    return found


async def prepare(
    session: State, text: str, parsed: Parsed | None, oids: tuple[int, ...]
) -> Prepared:
    """Raises SqlError."""
    if parsed is not None and session.temporary is None and _needs_own_schema(session, parsed):
        await session.begin_temporary()
    declared = await session.declared()
    found = remembered(session, text, oids, declared)
    if found is None:
        try:
            found = await _prepared(session, text, parsed, oids, declared)
        except SqlError as error:
            if parsed is not None and parsed.kind == "LockStmt" and not session.block.open:
                raise outside_of_block("LOCK TABLE") from error  # whatever it names
            declared = await newer(session, declared, error)
            found = await _prepared(session, text, parsed, oids, declared)
        if len(text) <= SQL_PLAN_CHARS_MAX:
            key = _key(session, text, oids, declared)
            session.plans.put(key, found, len(text))
    return found


def _needs_own_schema(session: State, parsed: Parsed) -> bool:
    """Whether it makes what only the session has, said or by search_path."""
    if front.makes_temporary(parsed):
        return True
    return parsed.kind.startswith("Create") and session.path[:1] == (TEMPORARY,)


async def newer(session: State, declared: Declared, error: SqlError) -> Declared:
    """What is declared by now, if that is not what a statement failed with: another process may
    just have declared what it names. Raises the error.
    """
    state = error.sqlstate
    if state not in _DECLARED and (state[:2] != "42" or state in _NOT_DECLARED):
        raise error
    catalogs = session.services.catalogs
    found = await catalogs.declared_since(session.database, catalogs.moment())
    found = session.along(found)
    if found is declared:
        raise error
    return found


def _key(session: State, text: str, oids: tuple[int, ...], declared: Declared) -> PlanKey:
    return text, oids, declared, session.settings.get("TimeZone")


def remembered(
    session: State, text: str, oids: tuple[int, ...], declared: Declared
) -> Prepared | None:
    """What was prepared for the same text before, by any session."""
    if len(text) > SQL_PLAN_CHARS_MAX:
        return None
    return session.plans.get(_key(session, text, oids, declared))


async def _prepared(
    session: State, text: str, parsed: Parsed | None, oids: tuple[int, ...], declared: Declared
) -> Prepared:
    given = parsed, declared, oids, session.style
    (bound, needs, asks), plan = await aside(text, _planned, *given)
    parameters = getattr(bound, "parameters", ())
    return Prepared(
        *(text, oids, bound, declared, _fields(bound), parameters),
        plan=plan,
        needs=needs,
        asks=asks,
        noted=True,
    )


def _fields(bound: object) -> Sequence[Field] | None:
    """The RowDescription. Those of a COPY are no rows of the protocol."""
    match bound:
        case s.Copy():
            return None
        case s.Show() if bound.name != "all":
            return (replace(bound.fields[0], name=shown_name(bound.name)),)
        case _:
            return getattr(bound, "fields", None) or None


def _planned(
    parsed: Parsed | None, declared: Declared, oids: tuple[int, ...], style: Style
) -> tuple[front.BoundWith, Plan]:
    found = front.bind_with_needs(parsed, declared, oids, style)
    return found, plan_of(found.bound)


def frozen(bound: object) -> Table | None:
    """The table that a change would write and may not."""
    match bound:
        case s.Insert() | s.Update() | s.Delete() | s.Merge():
            table: Table = bound.target.table
        case s.Copy() if bound.source and bound.target is not None:
            table = bound.target.table
        case _:
            return None
    return table if table.frozen or table.standby else None


async def thawed(session: State, table: Table, statement: Prepared) -> Prepared:
    """The statement, bound to the table as it is then. Raises SqlError (40001)."""
    catalogs = session.services.catalogs
    timers = session.services.client.timers
    until = timers.monotonic() + _WAIT_MS / 1000
    while timers.monotonic() < until and session.block.transaction is None and not table.standby:
        found = await current(session, statement)
        if frozen(found.bound) is None:
            return found
        assert found.declared is not None
        await catalogs.changed(found.declared, until)
    raise being_changed(table)
