"""DO, run: its statements one after the other, as if the client had sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kv.base.limits import SQL_FETCH_ROWS
from sqlproxy.front import statements as s
from sqlproxy.values.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlproxy.session.session import SqlSession

_CHANGES = (s.Insert, s.Update, s.Delete, s.Merge)


async def do(session: SqlSession, bound: s.Do) -> str:
    """Raises SqlError, KvorumError."""
    if bound.handled is None:
        await _steps(session, bound.steps)
        return "DO"
    (step,) = bound.steps
    assert isinstance(step, str)
    try:
        await _handled(session, step)
    except SqlError as error:
        if not ("" in bound.handled or error.sqlstate in bound.handled):
            raise
    return "DO"


async def _handled(session: SqlSession, text: str) -> None:
    """What fails leaves nothing of what it wrote in the block."""
    prepared = await session.parse(text, ())
    if not isinstance(prepared.bound, _CHANGES):
        await _run(session, text)
        return
    t = await session.block.work(session.modes())
    session.block.statements += (
        1  # not alone: it is told of what is there already, not by the commit
    )
    mark = t.mark()
    try:
        await _run(session, text)
    except SqlError:
        t.undo_to(mark)
        raise
    finally:
        if not session.block.has_savepoints:
            t.forget_marks()


async def _steps(session: SqlSession, steps: Sequence[str | s.DoIf]) -> None:
    for step in steps:
        if isinstance(step, str):
            await _run(session, step)
            continue
        rows = await _run(session, step.condition)
        await _steps(session, step.then if rows and rows[0][0] is True else step.otherwise)


async def _run(session: SqlSession, text: str) -> Sequence[Sequence[object]]:
    try:
        portal = await session.bind(await session.parse(text, ()), ())
        try:
            return await portal.fetch(SQL_FETCH_ROWS)
        finally:
            await portal.close()
    except SqlError as error:
        error.position = 0  # it is of the statement, and the client knows the block
        raise
