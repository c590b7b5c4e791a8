"""Bytes that statements hold, and who may hold more. Pure.

    Share     of a process: what all its sessions hold together, shared by tenants
    Budget    of a session: its statement, its portals and cursors, what it has prepared
    Held      what one holder has taken of a budget; given back at its end

What is refused is 53200, and was not made: a function whose result may be much larger than what it
is given asks for `room` first. Values are not tracked one by one: the large ones that closures made
since `fresh` count as held, which is more than there is. Whoever computes row by row says `fresh`
before each; whoever computes many rows at once does that again row by row when it was refused, or,
where they must not be computed twice, has each `Kept`.

A session's budget is found by `now`: a connection's task enters it; what DuckDB calls spends it.
What is computed for no session (defaults of a backfill) has the process's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

from kv.base.accounts import Account, Use
from kv.base.limits import (
    SQL_FOLDED_BYTES_MAX,
    SQL_MEMORY_BYTES_DEFAULT,
    SQL_PIECE_BYTES,
    SQL_STATEMENT_MEMORY_BYTES_DEFAULT,
    SQL_VALUE_BYTES_MAX,
    TXN_SPILL_BYTES,
)
from kv.base.shared_bytes import NO_LOCK, SharedBytes
from sqlproxy.values.breaks import pause
from sqlproxy.values.errors import LIMIT_EXCEEDED, OUT_OF_MEMORY, SqlError

T = TypeVar("T")
SETTING: Final = "statement_memory_bytes"
_PIECES: Final = 4  # of an answer, which one limit has room for
_PLACE: Final = 8  # of a value in its row
_WIDE: Final = 4  # bytes of a character, where they are not all ASCII's
_PIECE: Final = 1 << 12  # values that are looked at between two breaks
_DEEP: Final = frozenset((list, tuple, dict))


class Share(SharedBytes):
    """`worn`: how much was taken and made since the allocator was last asked to give pages back
    (`sqlproxy.loop.trimming`).
    """

    __slots__ = ("worn",)

    def __init__(
        self,
        limit: int = SQL_MEMORY_BYTES_DEFAULT,
        lock: AbstractContextManager[object] = NO_LOCK,
    ) -> None:
        super().__init__(limit, lock)
        self.worn = 0


class Budget:
    """`limit`: statement_memory_bytes."""

    __slots__ = ("_made", "_whole", "_written", "limit", "share", "use", "used", "who")

    def __init__(self, share: Share, limit: int = SQL_STATEMENT_MEMORY_BYTES_DEFAULT) -> None:
        self.share, self.limit = share, limit
        self.use: Use | None = None  # whom the session's computing counts for, …
        self.who: Account | None = None  # … its tenant among them; None: it is the process's own
        self.used = self._made = self._written = 0
        self._whole: Budget = self

    def serve(self, use: Use) -> None:
        """It is a session's of whom that counts for."""
        self.use, self.who = use, use.accounts[0]

    def take(self, size: int) -> None:
        """Hold so many bytes more. Raises SqlError (53200)."""
        if self.used + size > self.limit or not self.share.take(self.who, size):
            raise self.refused(size)
        self.used += size
        self.share.worn += size

    def give(self, size: int) -> None:
        """Hold them no longer."""
        self.used -= size
        self.share.give(self.who, size)

    def fresh(self) -> None:
        """What was made before is held by somebody who has taken it, or is gone."""
        self._made = 0

    @property
    def much(self) -> bool:
        """Whether it pays to look what is left of what was made."""
        return self._made > SQL_PIECE_BYTES

    @property
    def piece(self) -> int:
        """So many bytes of an answer are made before they go out."""
        return min(SQL_PIECE_BYTES, self.limit // _PIECES)

    def part(self) -> Budget:
        """For values that are there twice for a while: here, and where they go to."""
        found = Budget(self.share, max(0, self.limit - self.used) // 2)
        found._whole, found.who = self, self.who
        return found

    def fits(self, size: int) -> None:
        """Before a value of so many bytes is made. Raises SqlError (53200)."""
        made = self._made + size
        if self.used + made > self.limit or not self.share.fits(self.who, made):
            raise self.refused(made)

    def made(self, size: int) -> None:
        """It was. Raises SqlError (53200)."""
        self.fits(size)
        self._made += size
        self.share.worn += size

    def write(self, size: int) -> None:
        """A transaction's writes have so many bytes in memory now. It has its own bound, above
        which they go to a file; where they cannot, they are the statement's. Raises SqlError
        (53200).
        """
        more = size - self._written
        if more > 0:
            if size > max(self.limit, TXN_SPILL_BYTES):
                raise self.refused(size)
            if not self.share.take(self.who, more):
                raise self.refused(more)
        elif more:
            self.share.give(self.who, -more)
        self._written = size
        self.share.worn += abs(more)

    def end(self) -> None:
        """The session is over: whatever it held is gone."""
        self.share.give(self.who, self.used + self._written)
        self.used = self._made = self._written = 0

    def refused(self, size: int) -> SqlError:
        """53200."""
        share, who = self.share, self.who
        if self.used + size > self.limit:
            whose = f"the limit of a statement ({SETTING}) is {self._whole.limit} bytes"
            hint = (
                f"Read or change fewer rows at a time, close cursors, or raise {SETTING} for this "
                "session."
            )
        else:
            whose = f"all statements here hold {share.used} bytes, of at most {share.limit}"
            if who is not None and share.used + size <= share.limit:
                whose += (
                    f", of which {who.kind} {who.name} has {share.of(who)}: one user may have "
                    f"{share.share(size)} now, so that others find some"
                )
            hint = "Try again when others are done, or give the node more (sql_memory_bytes)."
        return SqlError(
            OUT_OF_MEMORY,
            "out of memory",
            detail=f"Failed on a request of {size} bytes beside {self.used} held; {whose}.",
            hint=hint,
        )


class Held:
    """What one holder has of a budget."""

    __slots__ = ("_budget", "bytes")

    def __init__(self, budget: Budget | None = None) -> None:
        """`budget`: of whom; None: of whoever runs now."""
        self._budget = budget or _now.get()
        self.bytes = 0

    def add(self, size: int) -> None:
        """Raises SqlError (53200)."""
        self._budget.take(size)
        self.bytes += size

    def rows(self, rows: Iterable[Sequence[object]]) -> None:
        """The same of rows that are there. Raises SqlError (53200)."""
        self.add(size_of_rows(rows))

    def end(self) -> None:
        """Fine twice."""
        if self.bytes:
            self._budget.give(self.bytes)
            self.bytes = 0

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


class Kept(Generic[T]):
    """Values that are made one after the other, within `with`: of what each was made of, nothing is
    left when it is there. What they hold counts until all are there.
    """

    __slots__ = ("_budget", "_counted", "_held", "values")

    def __init__(self) -> None:
        self.values: list[T] = []
        self._budget, self._counted = now(), 0
        self._held = Held(self._budget)

    def add(self, value: T) -> None:
        """Raises SqlError (53200)."""
        self.values.append(value)
        if self._budget.much:
            self._held.add(sum(map(size_of, self.values[self._counted :])))
            self._counted = len(self.values)
            self._budget.fresh()

    def __enter__(self) -> Kept[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.end()


def one_by_one(values: Iterable[T]) -> list[T]:
    """All of them, `Kept`. Raises SqlError: 53200, and what they raise."""
    with Kept[T]() as kept:
        for value in values:
            kept.add(value)
    return kept.values


class _Single(Budget):
    """Of expressions that are computed one by one, each to its end."""

    __slots__ = ()

    def made(self, size: int) -> None:
        self.fits(size)


own: Final = _Single(Share())
"""Of the process: what no session asks for."""
_folding: Final = _Single(Share(), SQL_FOLDED_BYTES_MAX)
_now: Final[ContextVar[Budget]] = ContextVar("budget", default=own)


def now() -> Budget:
    """Of whoever runs now."""
    return _now.get()


def enter(budget: Budget) -> None:
    """This task, or thread, works for that session from now on."""
    _now.set(budget)


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """The same for a while."""
    before = _now.set(budget)
    try:
        yield
    finally:
        _now.reset(before)


def folding() -> AbstractContextManager[None]:
    """What is computed when a statement is bound stays with its plan: nothing large is made."""
    return spending(_folding)


def room(size: int) -> None:
    """Before a value of so many bytes is made. Raises SqlError: 54000, 53200."""
    if size > SQL_VALUE_BYTES_MAX:
        raise SqlError(
            LIMIT_EXCEEDED, f"requested length too large: more than {SQL_VALUE_BYTES_MAX} bytes"
        )
    _now.get().fits(size)


def bytes_of(text: str | bytes) -> int:
    """So much each repetition of it takes."""
    return characters(len(text), wide=not (isinstance(text, bytes) or text.isascii()))


def characters(count: int, *, wide: bool) -> int:
    """Bytes of so many; `wide`: not all of them are ASCII's."""
    return _WIDE * count if wide else count


def size_of(value: Any) -> int:
    """Bytes of a value with what Python needs for it."""
    size = getsizeof(value)
    if type(value) in _DEEP:
        parts = (*value, *value.values()) if isinstance(value, dict) else value
        for at in range(0, len(parts), _PIECE):
            some = parts[at : at + _PIECE]
            size += sum(map(getsizeof if _DEEP.isdisjoint(map(type, some)) else size_of, some))
            if at:
                pause()
    return size


def size_of_rows(rows: Iterable[Sequence[object]]) -> int:
    """The same of rows, column by column: that is as quick as it can be."""
    return size_of_columns(zip(*rows, strict=True))


def size_of_columns(columns: Iterable[Sequence[object]]) -> int:
    """The same of columns of rows."""
    size = 0
    for column in columns:
        of = size_of if not _DEEP.isdisjoint(map(type, column)) else getsizeof
        size += sum(map(of, column)) + _PLACE * len(column)
    return size
