"""DO, run: its statements one after the other, as if the client had sent them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kv.base.limits import SQL_FETCH_ROWS
from sqlproxy.front.bound import statements as s
from sqlproxy.pg.answers import Values
from sqlproxy.session.preparing import parse
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError
from sqlproxy.wire.seam import Portal

Bind = Callable[[State, Prepared, Values], Awaitable[Portal]]

_CHANGES = (s.Insert, s.Update, s.Delete, s.Merge)


async def do(bind: Bind, session: State, bound: s.Do) -> str:
    """`bind`: a statement to its values. Raises SqlError, KvorumError."""
    if bound.handled is None:
        await _steps(bind, session, bound.steps)
        return "DO"
    (step,) = bound.steps
    assert isinstance(step, str)
    try:
        await _handled(bind, session, step)
    except SqlError as error:
        if not ("" in bound.handled or error.sqlstate in bound.handled):
            raise
    return "DO"


async def _handled(bind: Bind, session: State, text: str) -> None:
    """What fails leaves nothing of what it wrote in the block."""
    prepared = await parse(session, text, ())
    if not isinstance(prepared.bound, _CHANGES):
        await _run(bind, session, text)
        return
    t = await session.work()
    session.block.statements += 1  # not alone: what is there already is met here, not at the commit
    mark = t.mark()
    try:
        await _run(bind, session, text)
    except SqlError:
        t.undo_to(mark)
        raise
    finally:
        if not session.block.has_savepoints:
            t.forget_marks()


async def _steps(bind: Bind, session: State, steps: Sequence[str | s.DoIf]) -> None:
    for step in steps:
        if isinstance(step, str):
            await _run(bind, session, step)
            continue
        rows = await _run(bind, session, step.condition)
        await _steps(bind, session, step.then if rows and rows[0][0] is True else step.otherwise)


async def _run(bind: Bind, session: State, text: str) -> Sequence[Sequence[object]]:
    try:
        portal = await bind(session, await parse(session, text, ()), ())
        try:
            return await portal.fetch(SQL_FETCH_ROWS)
        finally:
            await portal.close()
    except SqlError as error:
        error.position = 0  # it is of the statement, and the client knows the block
        raise
