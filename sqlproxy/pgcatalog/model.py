"""What the translation works on: expressions with their types, the items of a FROM, scopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kv.base.limits import SQL_CATALOG_CHARS_MAX
from sqlproxy.duck.ducktext import Text, inner
from sqlproxy.pg import oids
from sqlproxy.values.errors import (
    AMBIGUOUS_COLUMN,
    STATEMENT_TOO_COMPLEX,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    SqlError,
)

UNNAMED: Final = "?column?"
Struct = tuple[tuple[str, int], ...]  # the fields of a composite value


@dataclass(frozen=True, slots=True)
class Expr:
    """DuckDB's text of an expression and PostgreSQL's type of it. What was printed is a primary:
    texts are put into the recorded functions' (functions.py), between operators of those.

    `literal`: the text of an unknown literal (type UNKNOWN), None with NULL. `parameter`: of an
    unknown parameter its number. `many`: it returns rows; `listed` is then the list that they come
    from. `name` and `strength` are what PostgreSQL would call its column (FigureColname).
    """

    sql: str
    type: int
    typmod: int = -1
    name: str = UNNAMED
    strength: int = 0
    literal: str | None = None
    parameter: int = 0
    table: int = 0
    column: int = 0
    struct: Struct = ()
    many: bool = False
    listed: str = ""
    reg: str = ""  # of a name: DuckDB's text of the OID that it was made from

    def __post_init__(self) -> None:
        if isinstance(self.sql, Text):
            object.__setattr__(self, "sql", inner(self.sql))
        if len(self.sql) > SQL_CATALOG_CHARS_MAX:  # functions inside of functions may repeat it
            raise SqlError(
                STATEMENT_TOO_COMPLEX,
                f"an expression over the system catalog is larger than {SQL_CATALOG_CHARS_MAX} "
                "characters in the words that it is computed by",
                hint="Nest fewer calls, or ask for fewer values at once.",
            )

    @property
    def unknown(self) -> bool:
        return self.type == oids.UNKNOWN

    def named(self, name: str, strength: int = 2) -> Expr:
        return replace(self, name=name, strength=strength)


@dataclass(frozen=True, slots=True)
class Col:
    """A column that a FROM item offers: what users call it, what DuckDB does."""

    name: str
    sql: str
    type: int
    typmod: int = -1
    table: int = 0
    column: int = 0
    struct: Struct = ()
    hidden: bool = False  # only by its name, not in `*`


@dataclass(slots=True)
class Item:
    """One thing in a FROM. `alias`: the user's name of it, `sql`: DuckDB's. `key`: the columns that
    all others follow from.
    """

    alias: str
    sql: str
    columns: list[Col]
    schema: str = ""
    key: tuple[str, ...] = ()
    merged: frozenset[str] = frozenset()  # named by USING: only the join's own column counts


@dataclass(slots=True)
class Query:
    """A translated SELECT: what it returns, and its text once the types of its columns are
    settled.
    """

    targets: list[Expr]
    head: str = ""  # WITH …, SELECT [DISTINCT …]
    body: str = ""  # FROM … to LIMIT
    left: Query | None = None  # of a set operation
    right: Query | None = None
    operator: str = ""
    keys: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Cte:
    name: str
    sql: str
    columns: list[Col]


@dataclass(slots=True)
class Scope:
    """The names that an expression may use; `grouped`: DuckDB's texts of the GROUP BY, None: it
    is not checked here.
    """

    items: list[Item] = field(default_factory=list)
    parent: Scope | None = None
    ctes: dict[str, Cte] = field(default_factory=dict)
    grouped: set[str] | None = None
    windows: dict[str, str] = field(default_factory=dict)

    def cte(self, name: str) -> Cte | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.parent
        return None

    def item(self, alias: str, schema: str = "") -> tuple[Item, Scope] | None:
        scope: Scope | None = self
        while scope is not None:
            for item in scope.items:
                if item.alias == alias and (not schema or item.schema == schema):
                    return item, scope
            scope = scope.parent
        return None

    def column(self, name: str, position: int) -> tuple[Item, Col, Scope]:
        """Raises SqlError: no such column, or several."""
        scope: Scope | None = self
        while scope is not None:
            hits = [
                (item, col)
                for item in scope.items
                if name not in item.merged
                for col in item.columns
                if col.name == name
            ]
            shown = [hit for hit in hits if not hit[1].hidden] or hits
            if len(shown) > 1:
                raise SqlError(
                    AMBIGUOUS_COLUMN, f'column reference "{name}" is ambiguous', position=position
                )
            if shown:
                return *shown[0], scope
            scope = scope.parent
        raise SqlError(UNDEFINED_COLUMN, f'column "{name}" does not exist', position=position)


def missing_table(name: str, position: int) -> SqlError:
    return SqlError(
        UNDEFINED_TABLE, f'missing FROM-clause entry for table "{name}"', position=position
    )


SIGNAL: Final = "\0"
"""Instead of a setting's name among what is changed, as no user can write it: value, a session's
number; local: whether all of it ends, not what runs in it alone.
"""
SIGNAL_SQL: Final = "chr(0)"


@dataclass(slots=True)
class Needs:
    """What a translated statement takes from outside when it runs."""

    facts: dict[str, None] = field(default_factory=dict)  # $user, $visible, …
    settings: dict[str, str] = field(default_factory=dict)  # parameter → setting
    feeds: dict[str, None] = field(default_factory=dict)  # names of fed relations
    parameters: dict[int, int] = field(default_factory=dict)  # number → OID
    changes: bool = False  # set_config: what it sets comes in hidden columns


Declared = Mapping[int, int]
