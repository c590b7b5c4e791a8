"""Statements under way: what the wire fetches from (`sqlproxy.wire.seam.Portal`).

A portal runs nothing before its first `fetch`. Its rows come in batches from a generator and leave
in the pieces that the client asked for; a generator is closed when its portal is, so that a client
which stops in the middle leaves no scan behind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from kv.base.limits import SQL_FETCH_ROWS, SQL_HELD_ROWS_MAX
from sqlproxy.catalog.declaration_users import Use
from sqlproxy.pg.answers import CopyFormat, Field, Part, Row, Values
from sqlproxy.session.state.portal_view import Sight
from sqlproxy.values.errors import LIMIT_EXCEEDED, OUT_OF_MEMORY, SqlError
from sqlproxy.values.memory import Held, now, size_of

T = TypeVar("T")
Batches = AsyncIterator[Sequence[Row]]
_SMALL_BYTES: Final = 1024  # of values that are not counted: a portal takes as much
_TOO_MANY: Final = frozenset((LIMIT_EXCEEDED, OUT_OF_MEMORY))


class Guard(Protocol):
    """Awaits a piece of a statement, which may be cancelled meanwhile."""

    def __call__(self, work: Awaitable[T], /) -> Awaitable[T]: ...


class Portal:
    """`start` runs the statement: it answers with the batches of rows, or None when there are none
    and the statement is done. `tag_of`: the command tag by the number of rows that were fetched.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[Batches | None]],
        tag_of: Callable[[int], str],
        fields: Sequence[Field] | None = None,
        *,
        guard: Guard,
        copy_out: CopyFormat | None = None,
        use: Use | None = None,
        sight: Sight | None = None,
    ) -> None:
        """`use`: of the declarations that it is bound to, until it has started. `sight`: what it
        reads of its transaction, until it has read all.
        """
        self.wire: object = None
        self.ends = False
        self._start, self._tag_of, self._guard = start, tag_of, guard
        self._use = use
        self._sight = sight
        self._fields = fields
        self._copy_out = copy_out
        self._batches: Batches | None = None
        self._started = self._ended = False
        self._left: list[Row] = []
        self.kept = False  # all that is left is in memory
        self.scrolls = False  # a cursor declared with SCROLL
        self.place = 0  # then: the row it is on, from 1, …
        self.failed: SqlError | None = None  # … and what is wrong with the row after the last one
        self.binary = False
        self.depth = 0  # of savepoints when it was made, …
        self.made_us = 0  # … the time then, since 1970, …
        self.text = ""  # … and what it was made by
        self._count = self._reported = 0
        self._held = Held()

    @property
    def fields(self) -> Sequence[Field] | None:
        return self._fields

    @property
    def copy_in(self) -> CopyFormat | None:
        return None

    @property
    def copy_out(self) -> CopyFormat | None:
        return self._copy_out

    def hold(self, values: Values) -> None:
        """It has these values until it is closed. Raises SqlError (53200)."""
        size = size_of(values)
        if size > _SMALL_BYTES:
            self._held.add(size)

    @property
    def position(self) -> int:
        """Rows that were fetched."""
        return self._count

    async def fetch(self, rows_max: int) -> Sequence[Row]:
        """See the protocol."""
        if self._ended:
            return ()
        rows: Sequence[Row] = await self._guard(self._next(rows_max))
        self._count += len(rows)
        return rows

    async def _next(self, rows_max: int) -> Sequence[Row]:
        now().fresh()
        if not self._started:
            self._started = True
            try:
                self._batches = await self._start()
            finally:
                self._unused()
        left = self._left
        while self._batches is not None and len(left) < rows_max:
            batch = await anext(self._batches, None)
            if batch is None:
                self._batches = None
                self._unseen()
                break
            if not left and len(batch) <= rows_max:
                return batch
            left.extend(batch)
        if not left:
            self._ended = True
            return ()
        rows, self._left = left[:rows_max], left[rows_max:]
        return rows

    async def take(self, rows: Sequence[Row]) -> None:
        raise AssertionError("not a COPY FROM STDIN")

    async def take_parts(self, parts: Sequence[Part]) -> None:
        raise AssertionError("not a COPY FROM STDIN")

    async def finish(self) -> None:
        raise AssertionError("not a COPY FROM STDIN")

    def tag(self) -> str:
        """See the protocol."""
        count, self._reported = self._count - self._reported, self._count
        return self._tag_of(count)

    async def keep(self, *, whole: bool = True) -> None:
        """Read all that is left into memory: the transaction ends, or a cursor goes back and forth.
        Not `whole`: the rows before the first that fails do, and its error comes where it stands.
        Raises SqlError (54000).
        """
        if self.kept:
            return
        rows: list[Row] = []
        try:
            while some := await self._guard(self._next(SQL_FETCH_ROWS)):
                rows += some
                self._held.rows(some)
                if len(rows) > SQL_HELD_ROWS_MAX:
                    raise SqlError(
                        LIMIT_EXCEEDED,
                        f"a cursor WITH HOLD keeps at most {SQL_HELD_ROWS_MAX} rows",
                        hint="Fetch them inside the transaction.",
                    )
        except BaseException as error:
            if whole or not isinstance(error, SqlError) or error.sqlstate in _TOO_MANY:
                self._left = [*rows, *self._left]  # they are still to be fetched
                raise
            rows += self._left
            self.failed = error
        self._left, self._ended, self.kept = rows, not rows, True

    def kept_rows(self) -> Sequence[Row]:
        """What `keep` read and nobody fetched."""
        return self._left

    def _unseen(self) -> None:
        if self._sight is not None:
            self._sight.end()

    def _unused(self) -> None:
        if self._use is not None:
            self._use.end()

    async def close(self) -> None:
        """Give up the scan; fine twice."""
        self._unused()
        self._unseen()
        self._ended = True
        self._left = []
        self._held.end()
        batches, self._batches = self._batches, None
        if batches is not None:
            await given_up(batches)


class Rows(Protocol):
    """Who takes the rows of a COPY FROM STDIN."""

    async def take(self, rows: Sequence[Row]) -> int:
        """How many there were."""
        ...

    async def take_parts(self, parts: Sequence[Part]) -> int:
        """The same, in parts, of which some are column by column."""
        ...

    async def finish(self) -> None:
        """There are no more."""
        ...

    async def close(self) -> None:
        """Nothing of what is not finished stays; fine twice."""
        ...


class CopyIn:
    """COPY FROM STDIN: rows that come are inserted batch by batch, in one transaction."""

    def __init__(
        self,
        rows: Rows,
        fields: Sequence[Field],
        form: CopyFormat,
        *,
        guard: Guard,
    ) -> None:
        self.wire: object = None
        self.ends = False
        self._rows, self._guard = rows, guard
        self._fields, self._form = fields, form
        self._count = 0

    @property
    def fields(self) -> Sequence[Field] | None:
        return self._fields

    @property
    def copy_in(self) -> CopyFormat | None:
        return self._form

    @property
    def copy_out(self) -> CopyFormat | None:
        return None

    async def fetch(self, rows_max: int) -> Sequence[Row]:
        return ()

    async def take(self, rows: Sequence[Row]) -> None:
        now().fresh()
        self._count += await self._guard(self._rows.take(rows))

    async def take_parts(self, parts: Sequence[Part]) -> None:
        now().fresh()
        self._count += await self._guard(self._rows.take_parts(parts))

    async def finish(self) -> None:
        await self._guard(self._rows.finish())

    def tag(self) -> str:
        return f"COPY {self._count}"

    async def close(self) -> None:
        await self._rows.close()


async def given_up(batches: Batches) -> None:
    """No more of these are wanted: what makes them ends now."""
    if isinstance(batches, AsyncGenerator):
        await batches.aclose()


async def at_once(rows: Sequence[Row]) -> Batches:
    """Rows that are there already, as batches."""
    if rows:
        yield rows
