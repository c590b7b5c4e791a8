"""Names of columns: what each FROM item makes visible, what an unqualified name means, and the
parameters' types.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kv.base.limits import SQL_PARAMETERS_MAX
from sqlproxy.front.bound.exprs import Column, Const, Expr, Param
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import Cte, ItemColumn, Select
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.front.types.registry import format_type
from sqlproxy.pg import oids
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.rows.schema import SqlFunction, Table, View
from sqlproxy.values.enums import Enum
from sqlproxy.values.errors import (
    AMBIGUOUS_COLUMN,
    AMBIGUOUS_PARAMETER,
    DUPLICATE_ALIAS,
    INDETERMINATE_TYPE,
    UNDEFINED_COLUMN,
    UNDEFINED_PARAMETER,
    UNDEFINED_TABLE,
    SqlError,
)


@dataclass(slots=True)
class SystemView:
    """A view of the system: its text; once it was bound also its query, and what that asks of the
    catalog (`casting.Coercer.asked`).
    """

    text: str
    select: Select | None = None
    asks: frozenset[str] = frozenset()


class Names(Protocol):
    """What one database declares, as of one moment. Lookups by name (`sqlproxy.rows.naming.named`)
    answer None for what is not there.
    """

    @property
    def database(self) -> str: ...

    @property
    def path(self) -> tuple[str, ...]:
        """The schemas that are searched for what is named without one."""
        ...

    @property
    def schemas(self) -> Container[str]:
        """Those that there are beside public."""
        ...

    def searched(self, name: str) -> str:
        """A relation that is named without a schema: its name in that of the path that has it."""
        ...

    @property
    def private(self) -> str:
        """The schema of what only the session has (temporary tables); "": it has none yet."""
        ...

    @property
    def first(self) -> tuple[str, ...]:
        """Schemas that are searched for relations before the path."""
        ...

    def along(self, path: tuple[str, ...]) -> Names:
        """The same with another path."""
        ...

    def publicly(self) -> Names:
        """As what is kept as text is read: the path is public alone."""
        ...

    def table(self, name: str) -> Table | None: ...

    def view(self, name: str) -> View | None: ...

    def sequence(self, name: str) -> SequenceRow | None: ...

    def enum(self, name: str) -> Enum | None:
        """The type of users' of that name."""
        ...

    def functions(self, title: str) -> Sequence[SqlFunction]:
        """Those of users' of that name, in its schema."""
        ...

    def index(self, name: str) -> Table | None:
        """The table that has the index of that name."""
        ...

    def sequences_owned_by(self, table: int) -> list[SequenceRow]: ...

    def table_by_id(self, table: int) -> Table | None: ...

    def relation_oid(self, table: int) -> int:
        """The OID that pg_class has for a table's id."""
        ...

    def system_columns(self, schema: str, name: str) -> Sequence[tuple[str, int, int]] | None:
        """Those of a relation of the system, or of a function `f()` whose rows are known as a
        relation's are: name, type, modifier.
        """
        ...

    def system_view(self, schema: str, name: str) -> SystemView | None:
        """A view of the system, the same object each time."""
        ...

    def relations(self) -> Relations:
        """All relations, the system's too, as regclass finds them."""
        ...


@dataclass(slots=True)
class Parameters:
    """The types of $1, $2, …: declared, or decided by their first use that says it. 0 = not yet."""

    types: list[int] = field(default_factory=list)
    allowed: bool = True

    def get(self, number: int, pos: int) -> Param:
        if not self.allowed or not 1 <= number <= SQL_PARAMETERS_MAX:
            raise SqlError(UNDEFINED_PARAMETER, f"there is no parameter ${number}", position=pos)
        while len(self.types) < number:
            self.types.append(0)
        return Param(oid=self.types[number - 1] or oids.UNKNOWN, number=number, pos=pos - 1)

    def decide(self, param: Param, oid: int, pos: int) -> Param:
        """The parameter as one of that type. Raises 42P08: an earlier use decided differently."""
        known = self.types[param.number - 1]
        if known not in (0, oids.UNKNOWN, oid):
            raise SqlError(
                AMBIGUOUS_PARAMETER,
                f"inconsistent types deduced for parameter ${param.number}",
                detail=f"{format_type(known)} versus {format_type(oid)}",
                position=pos,
            )
        self.types[param.number - 1] = oid
        return Param(oid=oid, number=param.number, pos=param.pos)

    def final(self) -> tuple[int, ...]:
        """All types. Raises 42P18: one is still open."""
        for number, oid in enumerate(self.types, 1):
            if oid in (0, oids.UNKNOWN):
                raise SqlError(
                    INDETERMINATE_TYPE, f"could not determine data type of parameter ${number}"
                )
        return tuple(self.types)


@dataclass(slots=True)
class Rel:
    """One name in FROM: `names[i]` is the column that `exprs[i]` reads. Qualified access needs
    `named`, unqualified `open`.
    """

    alias: str
    names: tuple[str, ...]
    exprs: tuple[Expr, ...]
    named: bool = True
    open: bool = True
    base: str = ""  # the table's own name
    schema: str = "public"
    scalar: bool = False  # a function of one value: its name is the value, not a row
    outer: bool = False  # an outer join may make up a row of NULLs in its place
    system: Mapping[str, Expr] = field(default_factory=dict)  # ctid and its like
    joined: bool = False  # a join around it has no ctid: only by the name of this one


@dataclass(slots=True)
class Scope:
    """What an expression may name. `width`: columns of the row so far. `hidden`: what stands in the
    statement and may not be named here.
    """

    parent: Scope | None = None
    rels: list[Rel] = field(default_factory=list)
    hidden: list[Rel] = field(default_factory=list)
    ctes: dict[str, Cte] = field(default_factory=dict)
    width: int = 0

    def cte(self, name: str) -> Cte | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.parent
        return None

    def add(self, rel: Rel) -> None:
        if rel.alias and any(other.alias == rel.alias and other.named for other in self.rels):
            raise SqlError(DUPLICATE_ALIAS, f'table name "{rel.alias}" specified more than once')
        self.rels.append(rel)

    def column(self, name: str, pos: int) -> Expr | None:
        """An unqualified column, here or around; None: there is none. Raises 42702."""
        level, scope = 0, self
        while True:
            found = [
                rel.exprs[i]
                for rel in scope.rels
                if rel.open
                for i, n in enumerate(rel.names)
                if n == name
            ]
            if len(found) > 1:
                raise SqlError(
                    AMBIGUOUS_COLUMN, f'column reference "{name}" is ambiguous', position=pos
                )
            if not found:
                found = [
                    rel.system[name] for rel in scope.rels if name in rel.system and not rel.joined
                ][:2]
                if len(found) > 1:
                    raise SqlError(
                        AMBIGUOUS_COLUMN, f'column reference "{name}" is ambiguous', position=pos
                    )
            if found:
                return _seen_from(found[0], level, pos)
            if scope.parent is None:
                return None
            level, scope = level + 1, scope.parent

    def qualified(self, relation: str, name: str, pos: int) -> Expr:
        """Raises SqlError 42P01, 42703, 42702."""
        rel, level = self.relation(relation, pos)
        found = [rel.exprs[i] for i, n in enumerate(rel.names) if n == name]
        if len(found) > 1:
            raise SqlError(
                AMBIGUOUS_COLUMN, f'column reference "{name}" is ambiguous', position=pos
            )
        if not found and name in rel.system:
            found = [rel.system[name]]
        if not found:
            raise SqlError(
                UNDEFINED_COLUMN, f"column {relation}.{name} does not exist", position=pos
            )
        return _seen_from(found[0], level, pos)

    def relation(self, name: str, pos: int) -> tuple[Rel, int]:
        """The FROM item of that name and how far out it is. Raises 42P01."""
        level, scope = 0, self
        while True:
            for rel in scope.rels:
                if rel.alias == name and rel.named:
                    return rel, level
            if scope.parent is None:
                raise self._missing(name, pos)
            level, scope = level + 1, scope.parent

    def _missing(self, name: str, pos: int) -> SqlError:
        scope: Scope | None = self
        while scope is not None:
            for i, rel in enumerate((*scope.rels, *scope.hidden)):
                if name not in (rel.base, rel.alias):
                    continue
                hint = (
                    f'Perhaps you meant to reference the table alias "{rel.alias}".'
                    if i < len(scope.rels) and rel.named and rel.alias != name
                    else f'There is an entry for table "{rel.alias}", but it cannot be referenced '
                    "from this part of the query."
                )
                return SqlError(
                    UNDEFINED_TABLE,
                    f'invalid reference to FROM-clause entry for table "{name}"',
                    hint=hint,
                    position=pos,
                )
            scope = scope.parent
        return SqlError(
            UNDEFINED_TABLE, f'missing FROM-clause entry for table "{name}"', position=pos
        )

    def schema_of(self, name: str, pos: int) -> str:
        """Where the relation of that name is. Raises 42P01."""
        return self.relation(name, pos)[0].schema

    def value_of(self, name: str) -> Expr | None:
        """What the name of a function of one value in FROM stands for, here or around."""
        level: int = 0
        scope: Scope | None = self
        while scope is not None:
            for rel in scope.rels:
                if rel.alias == name and rel.named:
                    return _seen_from(rel.exprs[0], level, 0) if rel.scalar else None
            level, scope = level + 1, scope.parent
        return None

    def row_of(self, name: str, pos: int) -> tuple[tuple[str, ...], list[Expr], bool] | None:
        """The columns of a FROM item of that name, here or around, which is no single value; and
        whether there may be no row.
        """
        level: int = 0
        scope: Scope | None = self
        while scope is not None:
            for rel in scope.rels:
                if rel.alias == name and rel.named:
                    if rel.scalar:
                        return None
                    columns = [_seen_from(expr, level, pos) for expr in rel.exprs]
                    return rel.names, columns, rel.outer
            level, scope = level + 1, scope.parent
        return None


def _seen_from(expr: Expr, level: int, pos: int) -> Expr:
    if isinstance(expr, Column):
        return Column(  # for each name of a statement: replace() takes three times as long
            oid=expr.oid,
            typmod=expr.typmod,
            pos=pos - 1,
            index=expr.index,
            name=expr.name,
            relation=expr.relation,
            table=expr.table,
            attribute=expr.attribute,
            level=expr.level + level,
        )
    if level and not isinstance(expr, Const):
        return rebuilt(
            expr, lambda one: _seen_from(one, level, pos) if isinstance(one, Column) else None
        )
    return expr


def columns_of(alias: str, columns: Sequence[ItemColumn], offset: int) -> tuple[Column, ...]:
    """The columns of a FROM item as expressions."""
    return tuple(c.at(offset + i, alias) for i, c in enumerate(columns))
