"""ALTER TABLE … ADD, of columns and constraints, and SET NOT NULL: parts that come together or not
at all (sqlproxy.ddl.change.parts). One that is alone is the procedure of its own.

What a part needs goes before or after it, as a part: NOT NULL of a new column, or of the columns
of a new primary key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from kv.base.errors import KvorumError
from sqlproxy.declared.database import name_of
from sqlproxy.front.binding.binder import Binder
from sqlproxy.front.binding.scope import Parameters, Scope
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.syntax.syntax import parse_expression
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg.oids import by_name
from sqlproxy.rows.schema import Table
from sqlproxy.session.definitions.definition_arguments import (
    Arguments,
    check_args,
    check_reference,
    column_args,
    foreign_key_args,
    index_args,
    placed_default,
)
from sqlproxy.session.definitions.definition_jobs import run, table_now
from sqlproxy.session.running.environment import environment
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import DUPLICATE_COLUMN, INVALID_TABLE_DEFINITION, SqlError, from_store
from sqlproxy.values.types import resolve

_TRIES: Final = 3  # of ADD COLUMN IF NOT EXISTS, beside others who do the same
Part: TypeAlias = tuple[str, Mapping[str, object]]


def is_addition(action: d.Action) -> bool:
    match action:
        case d.AddColumn() | d.AddConstraint(_, "") | d.SetNullable(_, False):
            return True
        case _:
            return False


async def add(session: State, table: str, actions: Sequence[d.Action]) -> None:
    """All of these additions, or none. Raises SqlError, KvorumError."""
    lenient = any(isinstance(one, d.AddColumn) and one.if_not_exists for one in actions)
    for _ in range(_TRIES if lenient else 0):
        try:
            await _add(session, table, actions)
            return
        except KvorumError as error:  # somebody added the column meanwhile: now it is there
            if from_store(error).sqlstate != DUPLICATE_COLUMN:
                raise
    await _add(session, table, actions)


async def _add(session: State, table: str, actions: Sequence[d.Action]) -> None:
    parts = await Additions.of(session, table, actions)
    match parts:
        case []:
            return
        case [(procedure, args)]:
            await run(session, procedure, {"name": table, **args})
        case _:
            whole = [[procedure, dict(args)] for procedure, args in parts]
            await run(session, "AddParts", {"name": table, "parts": whole})


class Additions:
    """The parts of some actions, in their order."""

    def __init__(self, session: State, table: Table) -> None:
        self.session, self.table = session, table
        self.nullable = {c.name: c.nullable for c in table.columns}  # as they will be
        self.parts: list[Part] = []
        self.keyed = bool(table.declared_key)
        self.skipped: set[str] = set()  # columns that are there already

    @staticmethod
    async def of(session: State, name: str, actions: Sequence[d.Action]) -> list[Part]:
        made = Additions(session, await table_now(session, name))
        for action in actions:
            match action:
                case d.AddColumn(column, if_not_exists):
                    await made._column(column, if_not_exists)
                case d.SetNullable(column):
                    made.parts.append(("AddConstraint", {"not_null": column}))
                    made.nullable[column] = False
                case d.AddConstraint(constraint, of=of):
                    if of not in made.skipped:
                        made._constraint(constraint)
                case _:
                    raise AssertionError(action)
        return made.parts

    async def _column(self, column: d.ColumnDef, if_not_exists: bool) -> None:
        if column.name in self.nullable:
            result = f'column "{column.name}" of relation "{self.table.name}" already exists'
            if not if_not_exists:
                raise SqlError(DUPLICATE_COLUMN, result)
            self.session.notice(f"{result}, skipping", sqlstate=DUPLICATE_COLUMN)
            self.skipped.add(column.name)
            return
        declared, table = await self.session.declared(), name_of(self.table)
        column = replace(column, default_sql=placed_default(column.default_sql, declared, table))
        args: Arguments = {"column": {**column_args(column, table), "nullable": True}}
        computed = column.identity or column.serial or column.generated is not None
        if column.default_sql is not None and column.default is None and not computed:
            found = await self._constant(column)
            if found is not None:
                kind = resolve(column.type)
                args["initial_stored"] = None if found[0] is None else kind.to_stored(found[0])
        self.parts.append(("AddColumn", args))
        self.nullable[column.name] = True
        if not column.nullable or column.identity or column.serial:
            self._not_null(column.name)

    async def _constant(self, column: d.ColumnDef) -> tuple[object] | None:
        """What rows that are there get: the default's value now, as PostgreSQL takes it, if it is
        the same for all rows; None: it differs. Raises SqlError.
        """
        assert column.default_sql is not None
        of, typmod = by_name(column.type)
        session = self.session
        binder = Binder(await session.declared(), Parameters(allowed=False), session.style)
        expr = binder.expr(parse_expression(column.default_sql), Scope())
        found: Expr | None = binder.casts.to(expr, of.oid, typmod, ASSIGNMENT, 0)
        assert found is not None, "it was checked when it was bound"
        compiled = compile(found)
        if compiled.volatile or compiled.numbered:
            return None
        return (compiled.fn((), environment(session, ())[0]),)

    def _not_null(self, column: str) -> None:
        if self.nullable.get(column, False):
            self.parts.append(("AddConstraint", {"not_null": column}))
            self.nullable[column] = False

    def _constraint(self, constraint: d.KeyDef | d.CheckDef | d.ForeignKeyDef) -> None:
        """Rows go on lying by their numbers under a new primary key: it is an index, and its
        columns are NOT NULL.
        """
        match constraint:
            case d.KeyDef():
                if constraint.primary:
                    if self.keyed:
                        raise SqlError(
                            INVALID_TABLE_DEFINITION,
                            f'multiple primary keys for table "{self.table.name}" are not allowed',
                        )
                    self.keyed = True
                    for part in constraint.parts:
                        self._not_null(part.column)
                self.parts.append(("CreateIndex", {"index": index_args(constraint)}))
            case d.CheckDef():
                args = {"check": check_args(constraint), "not_valid": not constraint.validated}
                self.parts.append(("AddConstraint", args))
            case _:
                table = name_of(self.table)
                check_reference(table, constraint.table)
                args = {"foreign_key": foreign_key_args(constraint, table)}
                args |= {"not_valid": not constraint.validated}
                self.parts.append(("AddConstraint", args))
