"""Foreign keys that are checked at the commit (DEFERRABLE, INITIALLY DEFERRED, SET CONSTRAINTS).

A statement only notes which values have to be right in the end: what a row refers to, and what is
gone and may be referred to. At the commit, or with SET CONSTRAINTS … IMMEDIATE, each is looked at
once: there is a parent with these values, or no child has them. Both answers are held until the
commit, as those of immediate checks are (`sqlproxy.tables.referring`).

What a savepoint took back stays noted: it asks for more than is needed, which is true all the same.
For the same reason SET CONSTRAINTS … IMMEDIATE forgets nothing while there is a savepoint: what
made it true may be taken back, and what was found wrong may stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from kv.base.limits import SQL_CASCADES_MAX
from sqlproxy.rows.schema import ForeignKey, Table
from sqlproxy.values.errors import (
    STATEMENT_TOO_COMPLEX,
    UNDEFINED_OBJECT,
    WRONG_OBJECT_TYPE,
    SqlError,
)

Noted = tuple[tuple[object, ...], bool]  # values of the child's columns; whether a parent went
Noting = tuple[int, str]  # a foreign key: the child's id and the key's name


class Deferred:
    """Of one transaction; `end` begins the next one."""

    def __init__(self) -> None:
        self.noted: dict[Noting, dict[Noted, None]] = {}
        self._every: bool | None = None  # what SET CONSTRAINTS ALL said
        self._named: dict[str, bool] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.noted)

    def defers(self, key: ForeignKey) -> bool:
        """Whether this foreign key is checked at the commit."""
        if not key.deferrable:
            return False
        usual = key.deferred if self._every is None else self._every
        return self._named.get(key.name, usual)

    def add(self, child: int, key: ForeignKey, values: tuple[object, ...], *, gone: bool) -> None:
        """Raises SqlError (54001)."""
        noted = self.noted.setdefault((child, key.name), {})
        if (values, gone) in noted:
            return
        self._count += 1
        if self._count > SQL_CASCADES_MAX:
            raise SqlError(
                STATEMENT_TOO_COMPLEX,
                f"more than {SQL_CASCADES_MAX} values wait for the check of deferred constraints",
                hint="SET CONSTRAINTS ALL IMMEDIATE checks what is there so far.",
            )
        noted[values, gone] = None

    def say(self, tables: Iterable[Table], names: tuple[str, ...], *, deferred: bool) -> None:
        """SET CONSTRAINTS; without names: ALL. Raises SqlError (42704, 42809)."""
        if not names:
            self._every, self._named = deferred, {}
            return
        known = {key.name: key for table in tables for key in table.foreign_keys}
        for name in names:
            key = known.get(name)
            if key is None:
                raise SqlError(UNDEFINED_OBJECT, f'constraint "{name}" does not exist')
            if not key.deferrable:
                raise SqlError(WRONG_OBJECT_TYPE, f'constraint "{name}" is not deferrable')
            self._named[name] = deferred

    def forget(self, checked: Iterable[Noting]) -> None:
        """Nothing that these were true by can be taken back any more."""
        for one in checked:
            self._count -= len(self.noted.pop(one))

    def end(self) -> None:
        """The transaction is over."""
        self.noted, self._count = {}, 0
        self._every, self._named = None, {}
