"""Constraints that are checked at the commit (DEFERRABLE, INITIALLY DEFERRED, SET CONSTRAINTS).

Of a foreign key a statement only notes which values have to be right in the end: what a row refers
to, and what is gone and may be referred to. At the commit, or with SET CONSTRAINTS … IMMEDIATE,
each is looked at once: there is a parent with these values, or no child has them. Both answers are
held until the commit, as those of immediate checks are (`sqlproxy.tables.referring`).

Of a unique constraint it notes which entries of its index lie beside their places, because another
row had the key (`Spots`). They are looked at when the statement has ended, or at the commit, and
`sqlproxy.tables.changing.TableWriter.settle` says what then.

What a savepoint took back stays noted: it asks for more than is needed, which is true all the same.
For the same reason SET CONSTRAINTS … IMMEDIATE forgets nothing while there is a savepoint: what
made it true may be taken back, and what was found wrong may stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kv.base.limits import SQL_CASCADES_MAX
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.schema import CONSTRAINT, ForeignKey, Index, Table
from sqlproxy.values.errors import (
    STATEMENT_TOO_COMPLEX,
    UNDEFINED_OBJECT,
    WRONG_OBJECT_TYPE,
    SqlError,
)

Noted = tuple[tuple[object, ...], bool]  # values of the child's columns; whether a parent went
Said = tuple[bool | None, Mapping[tuple[int, str], bool]]
"""By SET CONSTRAINTS: of ALL, and of single ones, each with its table's id and its name."""


class Noting(NamedTuple):
    """A foreign key by what it says: its name may be another one at the commit. `table`: the one
    that has it.
    """

    table: int
    columns: tuple[int, ...]
    parent: int
    referenced: tuple[int, ...]

    @staticmethod
    def of(table: int, key: ForeignKey) -> Noting:
        return Noting(table, key.columns, key.table, key.referenced)


class Spots:
    """Where entries of deferrable unique constraints lie beside their places, in one transaction:
    of each (ids of table and index), for each key, the keys at which such entries are, or were.
    """

    def __init__(self) -> None:
        self.noted: dict[tuple[int, int], dict[bytes, dict[bytes, None]]] = {}
        self.kept: set[tuple[int, int]] = set()  # what was looked at may be taken back
        self._count = 0

    def add(self, table: int, index: Index, key: bytes, beside: bytes) -> None:
        """Raises SqlError (54001)."""
        there = self.noted.setdefault((table, index.id), {}).setdefault(key, {})
        if beside not in there:
            self._count += 1
            if self._count > SQL_CASCADES_MAX:
                raise _too_many()
            there[beside] = None

    def forget(self, of: tuple[int, int]) -> None:
        """They were looked at."""
        if of in self.kept:
            return
        self._count -= sum(map(len, self.noted.pop(of).values()))


class Later(Protocol):
    """Where a statement notes what is looked at later."""

    @property
    def deferred(self) -> Deferred | None:
        """At the commit; None: the statement is a transaction by itself."""
        ...

    @property
    def spots(self) -> Spots:
        """When it has ended, or at the commit."""
        ...


class Deferred:
    """Of one transaction; `end` begins the next one."""

    def __init__(self) -> None:
        self.spots = Spots()
        self.noted: dict[Noting, dict[Noted, None]] = {}
        self.said: Said = (None, {})
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.noted or self.spots.noted)

    def defers(self, table: int, key: ForeignKey | Index) -> bool:
        """Whether this constraint of a table is checked at the commit."""
        if not key.deferrable:
            return False
        every, named = self.said
        return named.get((table, key.name), key.deferred if every is None else every)

    def add(self, child: int, key: ForeignKey, values: tuple[object, ...], *, gone: bool) -> None:
        """Raises SqlError (54001)."""
        noted = self.noted.setdefault(Noting.of(child, key), {})
        if (values, gone) in noted:
            return
        self._count += 1
        if self._count > SQL_CASCADES_MAX:
            raise _too_many()
        noted[values, gone] = None

    def say(
        self,
        tables: Iterable[Table],
        names: Sequence[tuple[Sequence[str], str]],
        *,
        deferred: bool,
    ) -> None:
        """SET CONSTRAINTS; without names: ALL. Of a name all constraints are meant that the first
        of its schemas has. Raises SqlError (42704, 42809).
        """
        if not names:
            self.said = (deferred, {})
            return
        every, named = self.said
        named = dict(named)
        for schemas, name in names:
            having = [table for table in tables if name in table.named_parts(CONSTRAINT)]
            there = {schema_of(table.namespace) for table in having}
            schema = next((one for one in schemas if one in there), None)
            if schema is None:
                raise SqlError(UNDEFINED_OBJECT, f'constraint "{name}" does not exist')
            for table in having:
                if schema_of(table.namespace) == schema:
                    if any(key.deferrable for key in _keys(table, name)):
                        named[table.id, name] = deferred
                    elif deferred:
                        words = f'constraint "{name}" is not deferrable'
                        raise SqlError(WRONG_OBJECT_TYPE, words)
        self.said = (every, named)

    def forget(self, checked: Iterable[Noting]) -> None:
        """Nothing that these were true by can be taken back any more."""
        for one in checked:
            self._count -= len(self.noted.pop(one))

    def end(self) -> None:
        """The transaction is over."""
        self.spots = Spots()
        self.noted, self._count = {}, 0
        self.said = (None, {})


class Together(Deferred):
    """Of one statement that makes several changes: its foreign keys are looked at when all of them
    are made (`sqlproxy.tables.referring.check_deferred`); what waits for the commit is noted there.
    """

    def __init__(self, beyond: Deferred | None) -> None:
        """`beyond`: the transaction's; None: the statement is one by itself."""
        super().__init__()
        self._beyond = beyond

    def defers(self, table: int, key: ForeignKey | Index) -> bool:
        return isinstance(key, ForeignKey) or self._waits(table, key)

    def _waits(self, table: int, key: ForeignKey | Index) -> bool:
        return self._beyond is not None and self._beyond.defers(table, key)

    def add(self, child: int, key: ForeignKey, values: tuple[object, ...], *, gone: bool) -> None:
        """Raises SqlError (54001)."""
        if self._beyond is not None and self._waits(child, key):
            self._beyond.add(child, key, values, gone=gone)
        else:
            super().add(child, key, values, gone=gone)


def _keys(table: Table, name: str) -> Iterator[ForeignKey | Index]:
    """The constraint, if it is one that may be deferrable."""
    yield from (key for key in table.foreign_keys if key.name == name)
    yield from (index for index in table.indexes if index.constraint and index.name == name)


def _too_many() -> SqlError:
    return SqlError(
        STATEMENT_TOO_COMPLEX,
        f"more than {SQL_CASCADES_MAX} values wait for the check of constraints",
        hint="Change fewer rows in a statement; of deferred ones SET CONSTRAINTS ALL IMMEDIATE "
        "checks what is there so far.",
    )
