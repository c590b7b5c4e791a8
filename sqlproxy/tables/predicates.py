"""What the predicate of a partial index says: which rows have an entry.

A predicate is kept as SQL text over the table's columns, as a CHECK is; it is immutable, so what it
says of a row is a function of the row alone, whoever asks and whenever. It is read with the usual
settings, never with a session's. Declarations were checked when they were made, so one that cannot
be bound now means that the catalog is damaged or of a newer program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kv.base.errors import Corruption
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows.naming import PUBLIC, bare
from sqlproxy.rows.schema import Column, Index, Table
from sqlproxy.tables.compile_rules import bound_condition, bound_value
from sqlproxy.values import enums
from sqlproxy.values.enums import Enum
from sqlproxy.values.errors import SqlError

Holds = Callable[[Sequence[object]], bool]


class _EverySchema:
    """Of users'. Whichever a type is in, it is that of a column."""

    def __contains__(self, name: object) -> bool:
        return name not in ("", PUBLIC, "pg_catalog", "information_schema")


class OwnNames:
    """What a predicate may name beside the table's columns: the types of these, nothing else."""

    database = ""
    path = (PUBLIC,)
    schemas = _EverySchema()
    private = ""
    first: tuple[str, ...] = ()

    def __init__(self, table: Table) -> None:
        self._enums: dict[str, Enum] = {}
        for column in table.columns:
            oid = enums.oid_in(column.type)
            known = enums.of(oid) if oid and by_name(column.type) else None
            if known is not None:
                self._enums[known.enum.name] = known.enum

    def enum(self, name: str) -> Enum | None:
        return self._enums.get(bare(name))

    def table(self, name: str) -> None:
        return None

    view = sequence = index = table

    def table_by_id(self, table: int) -> None:
        return None

    def relation_oid(self, table: int) -> int:
        return 0

    def system_columns(self, schema: str, name: str) -> None:
        return None

    system_view = system_columns

    def relations(self) -> Relations:
        return Relations(self.database, ())

    def functions(self, title: str) -> tuple[()]:
        return ()

    def searched(self, name: str) -> str:
        return name

    def along(self, path: tuple[str, ...]) -> OwnNames:
        return self

    def publicly(self) -> OwnNames:
        return self

    def sequences_owned_by(self, table: int) -> list[Any]:
        return []


def bound(table: Table, index: Index) -> Expr:
    """The predicate, bound. Raises Corruption."""
    try:
        return bound_condition(table, OwnNames(table), DEFAULT, index.where)
    except SqlError as error:
        raise Corruption(
            f"the predicate of index {index.name} of {table.path} cannot be read: {error.message}",
            details={"table": table.path, "index": index.name},
        ) from error


def computed(table: Table, column: Column) -> Expr:
    """What an index over an expression is of, bound. Raises Corruption."""
    try:
        return bound_value(table, OwnNames(table), DEFAULT, column.generated or "NULL")
    except SqlError as error:
        raise Corruption(
            f"the expression {column.title} of {table.path} cannot be read: {error.message}",
            details={"table": table.path, "column": column.name},
        ) from error


def holds(table: Table, index: Index) -> Holds:
    """Whether a row, all columns of the descriptor in user form, has an entry. It raises SqlError,
    as the expression does.
    """
    fn, env = compile(bound(table, index)).fn, Env()
    return lambda row: fn(row, env) is True
