"""Commands of a session: transactions, settings, prepared statements, cursors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from sqlproxy.front.bound import statements as s
from sqlproxy.front.ddl import ddl_granting as g
from sqlproxy.pg.answers import Row
from sqlproxy.rows.naming import PUBLIC
from sqlproxy.session.commands import change_roles, grant_privileges
from sqlproxy.session.commands.scrolling import scrolled
from sqlproxy.session.preparing import parse
from sqlproxy.session.running import transactions
from sqlproxy.session.state.block import Modes
from sqlproxy.session.state.notes import Wish
from sqlproxy.session.state.portals import Portal
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import (
    ACTIVE_TRANSACTION,
    DUPLICATE_CURSOR,
    DUPLICATE_PREPARED,
    NO_ACTIVE_TRANSACTION,
    NOT_IN_SEQUENCE,
    UNDEFINED_CURSOR,
    UNDEFINED_PREPARED,
    UNDEFINED_SCHEMA,
    SqlError,
    outside_of_block,
    unsupported,
)
from sqlproxy.values.memory import Held

Command = Callable[[State, Any], Awaitable[str]]  # → the command tag


async def begin(session: State, bound: s.Begin) -> str:
    block = session.block
    if block.explicit:
        session.notice("there is already a transaction in progress", "WARNING", ACTIVE_TRANSACTION)
    block.settle(session.modes())
    block.change(bound)
    if not block.explicit:
        block.begin()
    return "START TRANSACTION" if bound.start else "BEGIN"


async def commit(session: State, bound: s.Commit) -> str:
    if session.block.status == "E":
        return await rollback(session, s.Rollback(bound.chain))
    _check_end(session, bound.chain, "COMMIT AND CHAIN")
    modes = session.block.modes
    try:
        await session.cursors.hold()
        await transactions.commit(session)
    except SqlError:
        await session.block.roll_back()
        await transactions.ended(session, committed=False)
        raise
    await transactions.ended(session, committed=True)
    if bound.chain:
        _begin_again(session, modes)
    return "COMMIT"


async def rollback(session: State, bound: s.Rollback) -> str:
    _check_end(session, bound.chain, "ROLLBACK AND CHAIN")
    # a failure has ended what the transaction was said to be, also in PostgreSQL
    modes = session.modes() if session.block.status == "E" else session.block.modes
    await session.block.roll_back()
    await transactions.ended(session, committed=False)
    if bound.chain:
        _begin_again(session, modes)
    return "ROLLBACK"


def _check_end(session: State, chain: bool, what: str) -> None:
    """What was not begun can be ended all the same: whatever this message changed before. Raises
    SqlError (25P01).
    """
    if session.block.explicit:
        return
    if chain:
        raise outside_of_block(what)
    session.notice("there is no transaction in progress", "WARNING", NO_ACTIVE_TRANSACTION)


def _begin_again(session: State, modes: Modes) -> None:
    session.block.settle(modes)
    session.block.begin()


def _check_block(session: State, what: str) -> None:
    if not session.block.explicit:
        raise outside_of_block(what)


def check_outside(session: State, what: str) -> None:
    """That it is a transaction by itself. Raises SqlError (25001)."""
    if session.block.open:
        raise SqlError(ACTIVE_TRANSACTION, f"{what} cannot run inside a transaction block")
    if session.block.after_another:
        raise SqlError(ACTIVE_TRANSACTION, f"{what} cannot be executed within a pipeline")
    session.block.rest()  # what comes after it is another transaction


def _check_open(session: State, what: str) -> None:
    if not session.block.open:
        raise outside_of_block(what)


def _warn_unless_open(session: State, what: str) -> None:
    """Outside of a block it means the transaction under way, which is nearly over."""
    if not session.block.open:
        session.notice(
            f"{what} can only be used in transaction blocks", "WARNING", NO_ACTIVE_TRANSACTION
        )


async def savepoint(session: State, bound: s.Savepoint) -> str:
    _check_block(session, "SAVEPOINT")
    session.block.savepoint(bound.name, session.settings.mark())
    return "SAVEPOINT"


async def release(session: State, bound: s.Release) -> str:
    _check_block(session, "RELEASE SAVEPOINT")
    session.block.release_from(session.block.find(bound.name))
    session.cursors.lift()
    session.advising.released(session.block.depth)
    return "RELEASE"


async def roll_back_to(session: State, bound: s.RollbackTo) -> str:
    _check_block(session, "ROLLBACK TO SAVEPOINT")
    await undo_to(session, session.block.find(bound.name))
    return "ROLLBACK"


async def undo_to(session: State, at: int) -> None:
    """Go back to the savepoint with this number, which stays. Raises SqlError (40001)."""
    marked = await session.block.roll_back_to(at)
    session.variables.report(session.settings.go_back(marked))
    await session.cursors.drop_deeper()
    await session.advising.end_deeper(session.block.depth)


async def set_transaction(session: State, bound: s.SetTransaction) -> str:
    modes = bound.modes
    if bound.session:
        for name in ("isolation", "read_only", "deferrable"):
            if (value := getattr(modes, name)) is not None:
                result = value if isinstance(value, str) else "on" if value else "off"
                session.variables.assign(f"default_transaction_{name}", result)
        return "SET"
    _warn_unless_open(session, "SET TRANSACTION")
    session.block.settle(session.modes())
    session.block.change(modes)
    return "SET"


async def set_variable(session: State, bound: s.SetVariable) -> str:
    if bound.local:
        _warn_unless_open(session, "SET LOCAL")
    value = None if bound.values is None else ", ".join(bound.values)
    await session.assign(bound.name, value, local=bound.local)
    return "SET"


async def reset(session: State, bound: s.Reset) -> str:
    if bound.name == "all":
        session.block.settle(session.modes())  # its defaults were those until now
        session.variables.reset_all()
    else:
        session.variables.assign(bound.name, None)
    return "RESET"


def show_rows(session: State, bound: s.Show) -> list[Row]:
    """The rows of SHOW."""
    if bound.name == "all":
        result = session.variables.shown()
        return [(name, result[name], what) for name, _, what in session.settings.all()]
    return [(session.variables.get(bound.name),)]


async def discard(session: State, bound: s.Discard) -> str:
    if bound.what in ("all", "temp") and session.temporary is not None:
        if bound.what == "all":
            check_outside(session, "DISCARD ALL")
        await session.temporary.discard()
    if bound.what == "all":
        check_outside(session, "DISCARD ALL")
        await session.cursors.close_all()
        await session.advising.unlock_all()
        session.listening.close()
        session.statements.clear()
        session.currvals.clear()
        session.variables.reset_all()
        session.settings.set("role", None)
    elif bound.what == "sequences":
        session.currvals.clear()
    elif bound.what == "plans":
        session.statements.clear()
    return f"DISCARD {bound.what.upper()}"


async def notify(session: State, bound: s.Notify) -> str:
    block = session.block
    block.notes.say(bound.channel, bound.payload)
    block.statements += 1  # a change is not the only thing that would have to run again
    block.sole = None
    return "NOTIFY"


async def listen(session: State, bound: s.Listen) -> str:
    block = session.block
    block.notes.wish(Wish(bound.listens, bound.channel))
    block.statements += 1
    block.sole = None
    return "LISTEN" if bound.listens else "UNLISTEN"


async def prepare_statement(session: State, bound: s.Prepare) -> str:
    statement = await parse(session, bound.text, bound.oids)
    if bound.name in session.statements:
        raise SqlError(DUPLICATE_PREPARED, f'prepared statement "{bound.name}" already exists')
    session.statements.prepared(
        bound.name, statement, session.activity.message or session.activity.query
    )
    return "PREPARE"


async def deallocate(session: State, bound: s.Deallocate) -> str:
    if bound.name is None:
        session.statements.clear()
        return "DEALLOCATE ALL"
    if session.statements.pop(bound.name, None) is None:
        raise SqlError(UNDEFINED_PREPARED, f'prepared statement "{bound.name}" does not exist')
    return "DEALLOCATE"


def check_cursor(session: State, bound: s.DeclareCursor) -> None:
    """Whether it may be declared. Raises SqlError."""
    if not bound.hold:
        _check_open(session, "DECLARE CURSOR")
    if bound.name in session.cursors.portals:
        raise SqlError(DUPLICATE_CURSOR, f'cursor "{bound.name}" already exists')


def cursor(session: State, name: str) -> Portal:
    """Raises SqlError (34000)."""
    found = session.cursors.portals.get(name)
    if not isinstance(found, Portal):
        raise SqlError(UNDEFINED_CURSOR, f'cursor "{name}" does not exist')
    return found


async def fetched(session: State, bound: s.Fetch) -> list[Row]:
    """The rows of FETCH, or those that MOVE passes over."""
    portal = cursor(session, bound.cursor)
    if portal.scrolls:
        await portal.keep(whole=False)
        rows = portal.kept_rows()
        found, place = scrolled(rows, portal.place, bound)
        from_the_end = bound.direction == "absolute" and (bound.count or 0) < 0
        if portal.failed is not None and (from_the_end or place > len(rows)):
            raise portal.failed
        portal.place = place
        return found
    count = bound.count
    match bound.direction:
        case "forward" if count is None or count >= 0:
            wanted = count
        case "relative" if count is not None and count >= 0:
            wanted = count
        case "absolute" if count is not None and count > portal.position:
            await _take(portal, count - portal.position - 1, session.held)
            wanted = 1
        case _:
            raise SqlError(
                NOT_IN_SEQUENCE,
                "cursor can only scan forward",
                hint="Declare it with SCROLL option to enable backward scan.",
            )
    return await _take(portal, wanted, session.held)


async def _take(portal: Portal, count: int | None, held: Held) -> list[Row]:
    rows: list[Row] = []
    while count is None or len(rows) < count:
        some = await portal.fetch(1_000 if count is None else min(1_000, count - len(rows)))
        if not some:
            break
        held.rows(some)
        rows += some
    return rows


async def close_portal(session: State, bound: s.ClosePortal) -> str:
    if bound.cursor is None:
        await session.cursors.close_all()
        return "CLOSE CURSOR ALL"
    cursor(session, bound.cursor)
    await session.cursors.drop(bound.cursor)
    return "CLOSE CURSOR"


async def lock_table(session: State, bound: s.LockTable) -> str:
    _check_open(session, "LOCK TABLE")
    if bound.mode not in ("access share", "row share", "row exclusive"):
        raise unsupported(
            f"LOCK TABLE … IN {bound.mode.upper()} MODE",
            hint="Use BEGIN ISOLATION LEVEL SERIALIZABLE: what is read then holds at the commit.",
        )
    return "LOCK TABLE"


async def set_constraints(session: State, bound: s.SetConstraints) -> str:
    _warn_unless_open(session, "SET CONSTRAINTS")
    declared, names = await session.declared(), list[tuple[Sequence[str], str]]()
    for schema, name in bound.names:
        if schema is not None and schema != PUBLIC and schema not in declared.schemas:
            raise SqlError(UNDEFINED_SCHEMA, f'schema "{schema}" does not exist')
        names.append(((*declared.first, *declared.path) if schema is None else (schema,), name))
    session.block.deferred.say(tuple(declared.tables), names, deferred=bound.deferred)
    if not bound.deferred:
        await transactions.check_constraints(session, every=False)
    return "SET CONSTRAINTS"


async def ignored(session: State, bound: s.Ignored) -> str:
    if bound.notice:
        for notice in (bound.notice, *bound.more):
            session.notice(notice, sqlstate=bound.sqlstate)
    return bound.tag


COMMANDS: Final[dict[type, Command]] = {
    s.Begin: begin,
    s.Commit: commit,
    s.Rollback: rollback,
    s.Savepoint: savepoint,
    s.Release: release,
    s.RollbackTo: roll_back_to,
    s.SetTransaction: set_transaction,
    s.SetVariable: set_variable,
    s.Reset: reset,
    s.Discard: discard,
    s.Notify: notify,
    s.Listen: listen,
    s.Prepare: prepare_statement,
    s.Deallocate: deallocate,
    s.ClosePortal: close_portal,
    s.LockTable: lock_table,
    s.SetConstraints: set_constraints,
    s.Ignored: ignored,
    s.CreateRole: change_roles.create_role,
    s.AlterRole: change_roles.alter_role,
    s.ChangeDefaults: change_roles.change_defaults,
    s.DropRole: change_roles.drop_role,
    g.Grant: grant_privileges.grant,
    g.GrantRole: change_roles.grant_role,
    g.GrantDefaults: grant_privileges.grant_defaults,
    g.ChangeOwner: grant_privileges.change_owner,
    g.ReassignOwned: grant_privileges.reassign_owned,
}
