"""DO, run: its statements one after the other, as if the client had sent them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kv.base.limits import SQL_FETCH_ROWS
from sqlproxy.front.blocks import statements
from sqlproxy.front.bound import statements as s
from sqlproxy.pg.answers import Row, Values
from sqlproxy.session.commands.run_commands import undo_to
from sqlproxy.session.preparing import parse
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import QUERY_CANCELED, SqlError
from sqlproxy.wire.codec import Fatal
from sqlproxy.wire.seam import Portal

Bind = Callable[[State, Prepared, Values], Awaitable[Portal]]

_RAISED: Final = "P0001"


async def do(bind: Bind, session: State, bound: s.Do) -> str:
    """`bind`: a statement to its values. Raises SqlError, KvorumError."""
    session.block.lone = False  # none of its statements is a transaction by itself
    await _block(bind, session, bound.block)
    return "DO"


async def _block(bind: Bind, session: State, block: s.DoBlock) -> None:
    if not block.handlers:
        await _steps(bind, session, block.steps)
        return
    handler = await _tried(bind, session, block)
    if handler is not None:
        await _steps(bind, session, handler.steps)


async def _tried(bind: Bind, session: State, block: s.DoBlock) -> s.DoHandler | None:
    """Who handles what failed, which leaves nothing of what it wrote; None: nothing did. Raises
    SqlError that nobody handles.
    """
    under = session.block
    depth = under.depth
    if block.undoes:
        # Not alone: what is there already is met here, not at the commit.
        under.statements += 1
        under.settle(session.modes())
        under.savepoint("", session.settings.mark())
    try:
        await _steps(bind, session, block.steps)
    except SqlError as error:
        handler = next((one for one in block.handlers if _handles(one, error)), None)
        if handler is None:
            raise
        if block.undoes:
            await undo_to(session, depth)
        return handler
    finally:
        if block.undoes:
            under.release_from(depth)
            session.cursors.lift()
            session.advising.released(depth)
    return None


def _handles(handler: s.DoHandler, error: SqlError) -> bool:
    if isinstance(error, Fatal):
        return False
    state = error.sqlstate
    return any(
        state == one
        or (one == "" and state != QUERY_CANCELED)
        or (one[2:] == "000" and state[:2] == one[:2])
        for one in handler.states
    )


async def _steps(bind: Bind, session: State, steps: Sequence[s.DoStep]) -> None:
    for step in steps:
        match step:
            case str():
                await _run(bind, session, step)
            case s.DoIf():
                chosen = await _value(bind, session, step.condition)
                await _steps(bind, session, step.then if chosen is True else step.otherwise)
            case s.DoExecute():
                text = await _value(bind, session, step.query)
                if text is None:
                    raise SqlError("22004", "query string argument of EXECUTE is null")
                for one in statements(str(text)):
                    await _run(bind, session, one)
            case s.DoRaise():
                if step.level == "exception":
                    raise SqlError(_RAISED, step.message)
                sqlstate = "01000" if step.level == "warning" else "00000"
                session.notice(step.message, step.level.upper(), sqlstate)
            case s.DoBlock():
                await _block(bind, session, step)


async def _value(bind: Bind, session: State, query: str) -> object:
    rows = await _run(bind, session, query)
    return rows[0][0] if rows else None


async def _run(bind: Bind, session: State, text: str) -> Sequence[Row]:
    """Its last rows. Raises SqlError."""
    try:
        portal = await bind(session, await parse(session, text, ()), ())
        try:
            while len(rows := await portal.fetch(SQL_FETCH_ROWS)) == SQL_FETCH_ROWS:
                pass
            return rows
        finally:
            await portal.close()
    except SqlError as error:
        error.position = 0  # it is of the statement, and the client knows the block
        raise
