"""Numbers of sequences for what a statement computes: expressions never wait, so numbers are
reserved before, and where they are not enough, or a sequence is to be set, whoever computes waits
and goes on.

    reserve   so many, in one change of the store at most
    each      rows made one by one; a row that wants what is not there is made again when it is
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kv.base.ids import FIRST_PRIVATE_TABLE
from kv.base.limits import SQL_LATER_KNOWN_MAX
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound.env import Env, Wanting
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.preparing import newer
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SEQUENCE_LIMIT, SqlError
from sqlproxy.values.memory import Kept

T = TypeVar("T")
R = TypeVar("R")


async def reserve(
    session: State, declared: Declared, numbers: Numbers, name: str, count: int
) -> bool:
    """So many values of a sequence can be taken by nextval without waiting; False: it ends before.
    Raises SqlError (42P01).
    """
    missing = count - numbers.left(name)
    if missing <= 0:
        return True
    sequence = await numbering(session, declared, name)
    _check_writable(session, sequence)
    try:
        await _take(session, numbers, name, sequence, missing)
    except SqlError as error:
        if error.sqlstate != SEQUENCE_LIMIT:
            raise
        return False  # who wants one gets the error
    return numbers.left(name) >= count


def _check_writable(session: State, sequence: SequenceRow) -> None:
    """Raises SqlError (25006)."""
    if sequence.id < FIRST_PRIVATE_TABLE:
        session.check_writable("nextval()")


async def _take(
    session: State, numbers: Numbers, name: str, sequence: SequenceRow, count: int
) -> None:
    values, run = await session.numbers.some(sequence, count)
    numbers.add(name, sequence, values, run)


async def each(
    session: State,
    declared: Declared,
    env: Env,
    numbers: Numbers,
    make: Callable[[T], R],
    rows: Iterable[T],
) -> list[R]:
    """What `make` makes of each row; where it wants what is to be waited for, that is done and the
    row is made again. Raises SqlError.
    """
    given = list(rows)
    with Kept[R]() as made:
        try:
            for at, row in enumerate(given):
                numbers.begin()
                slept = env.slept
                while True:
                    try:
                        made.add(make(row))
                        break
                    except Wanting as wanting:
                        env.slept = slept
                        await supply(session, declared, numbers, wanting, len(given) - at)
        finally:
            numbers.end()
    return made.values


async def supply(
    session: State, declared: Declared, numbers: Numbers, wanting: Wanting, most: int
) -> None:
    """Do what a row waits for. `most`: so many rows may want the same. Raises SqlError."""
    if (once := wanting.once) is not None:
        assert once.work is not None
        numbers.give_back(session.numbers)  # the work takes the next ones
        before = numbers.standing()
        made = await once.work(wanting.given)
        if len(once.known) >= SQL_LATER_KNOWN_MAX:
            once.known.clear()
        once.known[repr(wanting.given)] = made
        numbers.was_done(once, before)
        numbers.again()
        return
    name = wanting.name
    sequence = await numbering(session, declared, name)
    if wanting.value is None:
        _check_writable(session, sequence)
        await _take(session, numbers, name, sequence, numbers.more(name, most))
    else:
        await session.numbers.set_value(sequence, wanting.value, wanting.called)
        numbers.was_set(name, sequence, wanting.value, wanting.called)
    numbers.again()


async def numbering(session: State, declared: Declared, name: str) -> SequenceRow:
    """The sequence of this name, by now: the name may be computed. Raises SqlError (42P01)."""
    try:
        return declared.numbering(name)
    except SqlError as error:
        return (await newer(session, declared, error)).numbering(name)
