"""ALTER TABLE where nothing but the descriptor changes: one transaction.

    AlterTable  {namespace, name, action: {kind, …}}     → {table_id, version}

    kind              besides
    add_column        column (as CreateTable's), initial_stored?: what rows that are there have
    set_default       column, default_stored?, default_sql? (neither: DROP DEFAULT), sequence?: the
                      name of the one whose nextval it is
    drop_not_null     column
    set_type          column, type: one whose values are stored, and ordered, as they are already
    drop_expression   column
    drop_constraint   constraint, if_exists?              a check or a foreign key goes; a unique
                      constraint becomes a plain index, for DropIndex (`index` in the result)
    rename_constraint constraint, to                      of a check or a foreign key
    alter_constraint  constraint, deferrable, deferred    of a foreign key
    set_identity      column, identity ("always", "by default", "": DROP IDENTITY), sequence?: the
                      options of the sequence that is made (ADD IDENTITY)
    use_index         index, constraint (its name then), primary?,     ADD … USING INDEX
                      deferrable?, deferred?

Rows know columns by their ids and are read by the types that they were written with, so neighbours
of one version may be used side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kv.base.errors import AlreadyExists, InvalidArgument, KvorumError, NotFound
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.registry import Registry, procedure, step
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.dropping import described, views_over
from sqlproxy.ddl import resolve_declaration
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.declaring import Draft, check_primary, columns_in
from sqlproxy.ddl.steps import CatalogTxn, table_locks
from sqlproxy.rows.naming import check_sql_name
from sqlproxy.rows.schema import (
    ALWAYS,
    BY_DEFAULT,
    CONSTRAINT,
    INDEX,
    PUBLIC,
    Column,
    Table,
    with_columns,
)
from sqlproxy.values import enums
from sqlproxy.values.interval import ALL_FIELDS
from sqlproxy.values.refusals import dependents, invalid, refusal
from sqlproxy.values.types import ROUNDED, Type, resolve

_FIELDS: Final = frozenset({"namespace", "name", "action"})
_WIDTH: Final = {"int2": 2, "int4": 4, "int8": 8}
_TEXTS: Final = ("text", "varchar")


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedure of this module."""
    registry.add(AlterTable, make=lambda: AlterTable(services))


@procedure("AlterTable", locks=table_locks)
class AlterTable(Change):
    """See the module."""

    @step(first=True)
    async def alter(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, AlreadyExists, InvalidArgument, Refused in PostgreSQL's words."""
        args, t, table = await self.named(ctx, _FIELDS)
        action = args.get("action")
        if not isinstance(action, Mapping):
            raise InvalidArgument(f"the argument 'action' must be a map, got {action!r:.80}")
        kind = str(action.get("kind"))
        if kind == "drop_constraint":
            return done(await self._drop_constraint(t, table, action))
        if kind == "set_identity":
            return done(_result(await self._set_identity(t, table, action)))
        if kind == "use_index":
            return done(_result(await self._use_index(t, table, action)))
        if kind not in _ACTIONS:
            raise InvalidArgument(
                f"the action {kind!r:.60} is not known; there are {', '.join(_ACTIONS)}, "
                "drop_constraint, set_identity, use_index"
            )
        if kind == "set_type":
            await check_type_readers(t, table, column_of(table, action))
        altered = _ACTIONS[kind](table, action)
        if kind == "set_type" and (table.checks or any(i.where for i in table.indexes)):
            from sqlproxy.ddl.change.stable_conditions import (
                check_meaning,  # reads SQL: most tables need none
            )

            check_meaning(table, altered, column_of(table, action))
        if kind == "set_default" and (name := action.get("sequence")):
            named = name if isinstance(name, list) else str(name)
            wanted = Draft(altered, sequences=((str(action["column"]), named),))
            altered, _ = await resolve_declaration.with_sequences(t, altered, wanted, {})
        return done(_result(await self.write(t, altered)))

    async def _drop_constraint(
        self, t: CatalogTxn, table: Table, action: Mapping[str, object]
    ) -> dict[str, object]:
        name = str(action.get("constraint"))
        if any(check.name == name for check in table.checks):
            checks = tuple(check for check in table.checks if check.name != name)
            return _result(await self.write(t, table, checks=checks))
        for key in table.foreign_keys:
            if key.name == name:
                keys = tuple(other for other in table.foreign_keys if other.name != name)
                changed = await self.write(t, table, foreign_keys=keys)
                if not any(other.table == key.table for other in keys):
                    await resolve_declaration.unrefer(t, changed, key.table)
                return _result(changed)
        index = table.index(name)
        if index is not None and index.constraint:
            there = await relations.list_database(t, table.namespace)
            lines = referring_lines(there, table, set(index.column_ids), f"constraint {name}")
            if lines:
                raise dependents(f"constraint {name} on {described(table)}", lines)
            plain = tuple(
                replace(i, constraint=False, primary=False, deferrable=False, deferred=False)
                if i.id == index.id
                else i
                for i in table.indexes
            )
            changed = await self.write(t, table, indexes=plain)
            return {**_result(changed), "index": name}
        check_constraint_goes(table, name)
        if action.get("if_exists"):
            return {**_result(table), "missing": [name]}
        raise no_constraint(table, name)

    async def _set_identity(self, t: CatalogTxn, table: Table, action: Mapping[str, Any]) -> Table:
        """Whoever has not heard of it gives the column no number, or one too many: NOT NULL refuses
        the first, nothing minds the second.
        """
        column, identity = column_of(table, action), str(action.get("identity"))
        if identity not in ("", ALWAYS, BY_DEFAULT):
            raise InvalidArgument(f"identity is {ALWAYS!r} or {BY_DEFAULT!r}, or empty")
        there = await relations.list_relations(t, table.namespace)
        if identity and not column.identity:
            changed = replace(column, identity=identity)
            draft = Draft(
                with_column(table, changed),
                sequences=((column.name, dict(action.get("sequence") or {})),),
            )
            names = await relations.taken(t, table.namespace)
            table, made = await resolve_declaration.with_sequences(t, draft.table, draft, names)
            await catalog.hold_namespace(t, table.namespace)
            for sequence in made:
                await relations.put_sequence(t, sequence)
            return await self.write(t, table)
        if not identity:
            for sequence in there.sequences:
                if sequence.owned_by == (int(table.id), column.id):
                    await resolve_declaration.drop_sequence(t, sequence)
            column = replace(column, sequence=0)
        return await self.write(t, with_column(table, replace(column, identity=identity)))

    async def _use_index(self, t: CatalogTxn, table: Table, action: Mapping[str, object]) -> Table:
        """A unique index becomes a constraint, under the constraint's name."""
        had, name = str(action.get("index")), str(action.get("constraint"))
        index, primary = table.index(had), bool(action.get("primary"))
        if index is None or index.state != PUBLIC:
            raise refusal("42704", f'index "{had}" does not exist', kind=NotFound)
        if not index.unique:
            raise invalid(
                "42809",
                f'"{had}" is not a unique index',
                detail="Cannot create a primary key or unique constraint using such an index.",
            )
        if index.where:
            raise invalid(
                "42809",
                f'"{had}" is a partial index',
                detail="Cannot create a primary key or unique constraint using such an index.",
            )
        if index.constraint:
            raise refusal("55000", f'index "{had}" is already associated with a constraint')
        if primary:
            check_primary(table, index.columns)
        deferred = bool(action.get("deferred"))
        deferrable = deferred or bool(action.get("deferrable"))
        if deferrable:
            there = await relations.list_database(t, table.namespace)
            if lines := referring_lines(there, table, set(index.column_ids), f"index {had}"):
                words = f'index "{had}" cannot become a deferrable constraint'
                raise refusal("55000", words, detail="\n".join(lines))
        if name != had:
            check_sql_name("constraint", name)
            await relations.check_free(t, table.namespace, name)
            await catalog.hold_namespace(t, table.namespace)
            await relations.drop_name(t, table.namespace, had)
        made = replace(
            index,
            name=name,
            constraint=True,
            primary=primary,
            deferrable=deferrable,
            deferred=deferred,
        )
        indexes = tuple(made if i.id == index.id else i for i in table.indexes)
        notes = table.renoted(had, name, INDEX)
        changed = await self.write(t, table, indexes=indexes, notes=notes)
        await relations.put_index_names(t, changed)
        return changed


def referring_lines(
    there: relations.Relations, table: Table, columns: set[int], what: str
) -> list[str]:
    """The foreign keys that need exactly these columns to be unique."""
    return [
        f"constraint {key.name} on {described(other)} depends on {what} on {described(table)}"
        for other in there.tables
        for key in other.foreign_keys
        if key.table == table.id and set(key.referenced) == columns
    ]


def no_constraint(table: Table, name: str) -> KvorumError:
    """42704, in PostgreSQL's words."""
    return refusal(
        "42704",
        f'constraint "{name}" of relation "{table.name}" does not exist',
        kind=NotFound,
        constraint=name,
    )


def _result(table: Table) -> dict[str, object]:
    return {"table_id": table.id, "name": table.name, "version": table.version}


def column_of(table: Table, action: Mapping[str, object]) -> Column:
    """The column that an action names. Raises NotFound (42703)."""
    name = action.get("column")
    for column in table.visible:
        if column.name == name:
            return column
    raise refusal(
        "42703", f'column "{name!s:.100}" of relation "{table.name}" does not exist', kind=NotFound
    )


def with_column(table: Table, column: Column) -> Table:
    """The table with this one instead of the column of its id."""
    columns = tuple(column if c.id == column.id else c for c in table.columns)
    return replace(table, columns=columns)


def stored_in(kind: Type, fields: Mapping[str, object], field: str) -> object:
    """A value of this type in user form. Raises InvalidArgument."""
    stored = fields.get(field)
    try:
        return stored if stored is None or kind.from_stored is None else kind.from_stored(stored)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidArgument(f"{field}: {error}") from error


def added(table: Table, action: Mapping[str, Any], **more: Any) -> tuple[Table, Column]:
    """The table with the column that an action describes after its own; `more` fields of it.
    Raises InvalidArgument, AlreadyExists, TooLarge.
    """
    raw = dict(action.get("column") or {})
    names = raw.pop("uses", [])
    if any(c.name == raw.get("name") for c in table.columns):
        raise refusal(
            "42701",
            f'column "{raw["name"]}" of relation "{table.name}" already exists',
            kind=AlreadyExists,
        )
    (column,), _ = columns_in([raw])
    uses = tuple(table.column(name).id for name in names)
    nullable = raw.get("nullable", True)
    wider = with_columns(table, [replace(column, nullable=True)])
    made = replace(wider.columns[-1], uses=uses, nullable=nullable, **more)
    return with_column(wider, made), made


def _add_column(table: Table, action: Mapping[str, object]) -> Table:
    wider, column = added(table, action)
    if "initial_stored" in action:
        column = replace(column, initial=(stored_in(column.resolved, action, "initial_stored"),))
    return with_column(wider, column)


def _set_default(table: Table, action: Mapping[str, Any]) -> Table:
    """What rows that have no value of it are read with stays as it was."""
    column = column_of(table, action)
    if column.generated is not None:
        raise invalid(
            "42601", f'column "{column.name}" of relation "{table.name}" is a generated column'
        )
    if column.identity:
        raise invalid(
            "42601", f'column "{column.name}" of relation "{table.name}" is an identity column'
        )
    value = stored_in(column.resolved, action, "default_stored")
    sql = action.get("default_sql")
    return with_column(
        table,
        replace(
            column,
            default=value,
            default_sql=sql,
            sequence=0,
            initial=column.initial or (column.missing,),
        ),
    )


def _drop_not_null(table: Table, action: Mapping[str, object]) -> Table:
    column = column_of(table, action)
    if column.id in table.declared_key:
        raise invalid("42P16", f'column "{column.name}" is in a primary key')
    if column.identity:
        raise invalid(
            "42601", f'column "{column.name}" of relation "{table.name}" is an identity column'
        )
    return with_column(table, replace(column, nullable=True))


def _drop_expression(table: Table, action: Mapping[str, object]) -> Table:
    column = column_of(table, action)
    if column.generated is None:
        raise refusal(
            "55000",
            f'column "{column.name}" of relation "{table.name}" is not a stored generated column',
        )
    return with_column(table, replace(column, generated=None, uses=()))


def same_form(old: Type, new: Type) -> bool:
    """Whether every value of `old` is stored, and lies in keys, as the same value of `new`."""
    if enums.same_type(old.name, new.name):
        return True
    if old.base in _WIDTH and new.base in _WIDTH:
        return _WIDTH[old.base] <= _WIDTH[new.base]
    if old.base == new.base and old.base in ROUNDED:
        had, has = old.digits, new.digits
        cut = new.fields not in (ALL_FIELDS, old.fields)
        return not cut and (has is None or (had is not None and had <= has))
    if old.base in _TEXTS and new.base in _TEXTS:
        had, has = length_of(old), length_of(new)
        return has is None or (had is not None and had <= has)
    return False


def length_of(kind: Type) -> int | None:
    """n of varchar(n); None: any length."""
    _, _, rest = kind.name.partition("(")
    return int(rest.rstrip(")")) if rest else None


def _set_type(table: Table, action: Mapping[str, object]) -> Table:
    column, new = column_of(table, action), resolve(str(action.get("type")))
    if not same_form(column.resolved, new):
        raise invalid(
            "0A000",
            f'changing column "{column.name}" from {column.shown_type} to '
            f"{enums.shown(new.name)} is not supported: its values would have to be stored in "
            "another form",
            hint="Add a column of the new type, fill it by UPDATE, and drop the old one.",
        )
    return with_column(table, replace(column, type=new.name))


def check_constraint_goes(table: Table, name: str) -> None:
    """Raises Refused (0A000): rows lie by it. Asked before anything goes along with it."""
    if name == table.primary_key_name and table.index(name) is None:
        raise refusal(
            "0A000",
            "dropping a primary key that the table was made with is not supported: "
            "its rows lie by it",
            hint="Make a table without it, copy the rows, and rename it.",
        )


async def check_type_readers(t: CatalogTxn, table: Table, column: Column) -> None:
    """Raises Refused (0A000), as PostgreSQL does."""
    there = await relations.list_database(t, table.namespace)
    if views := views_over(there, table.id, column.id):
        raise refusal(
            "0A000",
            "cannot alter type of a column used by a view or rule",
            detail=f'{described(views[0])} depends on column "{column.name}"',
        )
    for other in table.columns:
        if column.id in other.uses and other.derived:
            raise refusal(
                "0A000",
                f'changing the type of column "{column.name}" is not supported while an index '
                f"over {other.title} uses it",
                hint="Drop the index, change the type, and make it again.",
            )
        if column.id in other.uses:
            raise refusal(
                "0A000",
                "cannot alter type of a column used by a generated column",
                detail=f'Column "{column.name}" is used by generated column "{other.name}".',
            )


def _alter_constraint(table: Table, action: Mapping[str, object]) -> Table:
    name = str(action.get("constraint"))
    if not any(key.name == name for key in table.foreign_keys):
        raise no_constraint(table, name)
    deferred = bool(action.get("deferred"))
    deferrable = deferred or bool(action.get("deferrable"))
    keys = tuple(
        replace(key, deferrable=deferrable, deferred=deferred) if key.name == name else key
        for key in table.foreign_keys
    )
    return replace(table, foreign_keys=keys)


def _rename_constraint(table: Table, action: Mapping[str, object]) -> Table:
    name, to = str(action.get("constraint")), str(action.get("to"))
    check_sql_name("constraint", to)
    if to in {c.name for c in table.checks} | {k.name for k in table.foreign_keys}:
        raise resolve_declaration.constraint_exists(table, to)
    checks = tuple(replace(c, name=to) if c.name == name else c for c in table.checks)
    keys = tuple(replace(k, name=to) if k.name == name else k for k in table.foreign_keys)
    if checks == table.checks and keys == table.foreign_keys:
        raise no_constraint(table, name)
    notes = table.renoted(name, to, CONSTRAINT)
    return replace(table, checks=checks, foreign_keys=keys, notes=notes)


_ACTIONS: Final[Mapping[str, Callable[[Table, Mapping[str, object]], Table]]] = {
    "add_column": _add_column,
    "set_default": _set_default,
    "drop_not_null": _drop_not_null,
    "drop_expression": _drop_expression,
    "set_type": _set_type,
    "rename_constraint": _rename_constraint,
    "alter_constraint": _alter_constraint,
}
