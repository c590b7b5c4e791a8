"""What SQL declares, as arguments of procedures: checked, and turned into descriptors without ids.
`sqlproxy.ddl.resolve_declaration` chooses names, gives ids and finds what foreign keys refer to.

Arguments of CreateTable besides those of plain tables (`sqlproxy.ddl.ddl`); all but `name` and
`type` of a column may be left out:

    columns        [{name, type, nullable, default | default_stored, default_sql, identity,
                     generated, uses: [column, …], on_update, sequence, hidden}, …]
                   `hidden`: of a generated one, which an index over an expression is of
                   `default_stored`: a constant in stored form (`Type.to_stored`), for types that
                   plain data lacks. `sequence`: {start, increment, …} makes one that the column
                   owns (serial, identity); a name is one that is there
                   ([schema, name]: in another schema)
    primary_key    [column, …]            primary_key_name
    hidden_key     true: no primary key was declared; the table gets `_rowid`
    indexes        [{name, columns: [column | {name, descending, nulls_first}, …], unique,
                     include: [column, …], constraint, primary, where, where_columns: [column, …],
                     deferrable, deferred}, …]
                   `primary`: only of a table that has no other primary key; `where`: a partial
                   index's predicate, which names `where_columns`; `deferrable`: of a constraint
    checks         [{name, sql, columns: [column, …]}, …]
    foreign_keys   [{name, columns: [column, …], table, referenced: [column, …], on_delete,
                     on_update, deferrable, deferred}, …]
                   `referenced`: else the primary key of `table`, which may be [schema, name]

Deliberately missing: exclusion constraints, MATCH FULL; the front end refuses them by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.ids import TableId
from kv.base.limits import CHECKS_MAX, FOREIGN_KEYS_MAX, INDEX_COLUMNS_MAX, INDEXES_MAX
from sqlproxy.rows import keys
from sqlproxy.rows.naming import Reference, check_sql_name, located
from sqlproxy.rows.schema import (
    ACTIONS,
    ALWAYS,
    BY_DEFAULT,
    NO_ACTION,
    ROWID,
    Check,
    Column,
    Index,
    IndexColumn,
    Table,
)
from sqlproxy.values.refusals import fields_in, invalid, refusal
from sqlproxy.values.types import resolve

COLUMN_FIELDS: Final = frozenset(
    {
        *("name", "type", "nullable", "default", "default_stored", "default_sql", "identity"),
        *("generated", "uses", "on_update", "sequence", "hidden"),
    }
)
INDEX_FIELDS: Final = frozenset(
    {
        *("name", "columns", "unique", "include", "constraint", "primary"),
        *("where", "where_columns"),
        *("deferrable", "deferred"),
    }
)
INDEX_COLUMN_FIELDS: Final = frozenset({"name", "descending", "nulls_first"})
CHECK_FIELDS: Final = frozenset({"name", "sql", "columns"})
FOREIGN_KEY_FIELDS: Final = frozenset(
    {
        *("name", "columns", "table", "referenced", "on_delete", "on_update"),
        *("deferrable", "deferred"),
    }
)
_INTEGERS: Final = ("int2", "int4", "int8")
WantedSequence: TypeAlias = tuple[str, Mapping[str, object] | Reference]


@dataclass(frozen=True, slots=True)
class WantedKey:
    """A foreign key before it is known what it refers to. `table`: namespace and name;
    `referenced` (): the primary key.
    """

    name: str
    columns: tuple[int, ...]
    table: tuple[str, str]
    referenced: tuple[str, ...]
    on_delete: str
    on_update: str
    deferrable: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A table without ids. `sequences`: by column, options, or the name of one that is there."""

    table: Table
    foreign_keys: tuple[WantedKey, ...] = ()
    sequences: tuple[WantedSequence, ...] = ()


# -- from arguments


def columns_in(
    raw: Iterable[object],
) -> tuple[list[Column], list[WantedSequence]]:
    """Columns without ids, and the sequences that they want. Raises InvalidArgument."""
    found, sequences = list[Column](), list[WantedSequence]()
    given = list(raw)
    names = [one.get("name") for one in given if isinstance(one, Mapping)]
    for at, one in enumerate(given):
        fields = fields_in(one, f"column {at}", COLUMN_FIELDS)
        column = _column(at, fields, names)
        found.append(column)
        wanted = fields.get("sequence")
        if wanted is not None:
            if not isinstance(wanted, Mapping | str | list):
                raise InvalidArgument(f"column {column.name}: sequence must be a map or a name")
            sequences.append((column.name, wanted))
        elif column.identity:
            sequences.append((column.name, {}))
    return found, sequences


def _column(at: int, fields: Mapping[str, Any], names: list[object]) -> Column:
    name, kind = fields.get("name"), fields.get("type")
    nullable = fields.get("nullable", True)
    if not isinstance(name, str):
        raise InvalidArgument(f"column {at} must be {{name, type, nullable?}}, got {fields!r:.80}")
    if not isinstance(kind, str) or not isinstance(nullable, bool):
        raise InvalidArgument(
            f"column {name!r:.60}: type must be text and nullable a boolean, got {fields!r:.80}"
        )
    type_ = resolve(kind)
    default = fields.get("default")
    if (stored := fields.get("default_stored")) is not None:
        try:
            default = type_.from_stored(stored) if type_.from_stored is not None else stored
        except (ValueError, TypeError, ArithmeticError) as error:
            raise InvalidArgument(f"column {name}: default_stored: {error}") from error
    texts = {
        field: _optional_text(fields, field, f"column {name}")
        for field in ("default_sql", "generated", "on_update")
    }
    identity = fields.get("identity") or ""
    if identity not in ("", ALWAYS, BY_DEFAULT):
        raise InvalidArgument(f"column {name}: identity is {ALWAYS!r} or {BY_DEFAULT!r}")
    if identity and type_.base not in _INTEGERS:
        raise invalid("22023", "identity column type must be smallint, integer, or bigint")
    if texts["generated"] is not None and (default is not None or texts["default_sql"] or identity):
        raise invalid(
            "42601", f'both default and generation expression specified for column "{name}"'
        )
    uses = fields.get("uses") or ()
    return Column(
        0,
        name,
        kind,
        nullable and not identity,
        default,
        texts["default_sql"],
        identity,
        texts["generated"],
        texts["on_update"],
        hidden=bool(fields.get("hidden")) and texts["generated"] is not None,
        uses=tuple(_place(names, used) for used in uses),
    )


def _place(names: list[object], used: object) -> int:
    """The id of a column of a new table: its place."""
    if used not in names:
        raise InvalidArgument(f"{used!r:.60} is no column of the table")
    return names.index(used) + 1


def with_parts(table: Table, args: Mapping[str, object]) -> Draft:
    """Indexes, checks and foreign keys from the arguments. Raises InvalidArgument, TooLarge."""
    indexes = [_index(table, one) for one in _listed(args, "indexes", INDEXES_MAX, table)]
    checks = [_check(table, one) for one in _listed(args, "checks", CHECKS_MAX, table)]
    wanted = [
        _foreign_key(table, one) for one in _listed(args, "foreign_keys", FOREIGN_KEYS_MAX, table)
    ]
    return Draft(replace(table, indexes=tuple(indexes), checks=tuple(checks)), tuple(wanted))


def _listed(args: Mapping[str, object], field: str, limit: int, table: Table) -> list[Any]:
    value = args.get(field) or []
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"the argument {field!r} must be a list, got {value!r:.80}")
    if len(value) > limit:
        raise TooLarge(
            f"table {table.path} has {len(value)} {field}; the limit is {limit}",
            details={"what": field, "limit": limit, "actual": len(value)},
        )
    return list(value)


def _index(table: Table, raw: object) -> Index:
    fields = fields_in(raw, "an index", INDEX_FIELDS)
    where = f"index {fields.get('name') or ''} of {table.path}"
    parts = [_index_column(table, one) for one in fields.get("columns") or ()]
    include = [_known(table, name).id for name in fields.get("include") or ()]
    if not parts or len(parts) + len(include) > INDEX_COLUMNS_MAX:
        raise refusal(
            "54011",
            f"cannot use more than {INDEX_COLUMNS_MAX} columns in an index",
            kind=TooLarge,
            what="columns",
            limit=INDEX_COLUMNS_MAX,
            actual=len(parts),
        )
    for part in parts:
        column = table.by_id(part.column)
        if problem := keys.unordered(column.resolved):
            raise invalid(
                "42704",
                f"data type {column.shown_type} has no default operator class "
                'for access method "btree"',
                detail=f"{where}: column {column.name}: {problem}",
                column=column.name,
            )
    name = _optional_text(fields, "name", where) or ""
    if name:
        check_sql_name("index", name)
    primary = bool(fields.get("primary"))
    if primary:
        check_primary(table, parts)
    unique, constraint = fields.get("unique", primary), fields.get("constraint", primary)
    where_sql = _optional_text(fields, "where", where) or ""
    if where_sql and constraint:
        raise InvalidArgument(f"{where}: a constraint is about all rows, it has no predicate")
    deferred = bool(fields.get("deferred"))
    deferrable = deferred or bool(fields.get("deferrable"))
    if deferrable and not (unique and constraint):
        raise InvalidArgument(f"{where}: only a unique constraint is deferrable")
    uses = [_known(table, name).id for name in fields.get("where_columns") or ()]
    made = Index(
        TableId(0),
        name,
        tuple(parts),
        bool(unique),
        tuple(include),
        bool(constraint),
        primary=primary,
        where=where_sql,
        where_columns=tuple(uses) if where_sql else (),
        deferrable=deferrable,
        deferred=deferred,
    )
    if where_sql:
        _check_predicate(table, made)
    return made


def _check_predicate(table: Table, index: Index) -> None:
    """Raises InvalidArgument: it cannot be read, or names other columns."""
    from sqlproxy.front.bound.exprs import Column as Reference
    from sqlproxy.front.bound.exprs import walk
    from sqlproxy.tables.predicates import bound

    try:
        found = bound(table, index)
    except Corruption as error:
        raise InvalidArgument(error.message) from error
    named = {one.attribute for one in walk(found) if isinstance(one, Reference)}
    if not named <= set(index.where_columns):
        raise InvalidArgument(
            f"the predicate of an index of {table.path} names columns that are not among its "
            "where_columns"
        )


def check_primary(table: Table, parts: Iterable[IndexColumn]) -> None:
    """Raises InvalidArgument (42P16): another one, or a column that may be NULL."""
    if not table.hidden_key or table.key_index is not None:
        raise invalid("42P16", f'multiple primary keys for table "{table.name}" are not allowed')
    for part in parts:
        column = table.by_id(part.column)
        if column.nullable:
            raise invalid("42P16", f'column "{column.name}" of a primary key must be NOT NULL')


def _index_column(table: Table, raw: object) -> IndexColumn:
    if isinstance(raw, str):
        return IndexColumn(_known(table, raw).id)
    fields = fields_in(raw, "a column of an index", INDEX_COLUMN_FIELDS)
    down = bool(fields.get("descending", False))
    first = fields.get("nulls_first")
    column = _known(table, fields.get("name"))
    return IndexColumn(column.id, down, down if first is None else bool(first))


def _check(table: Table, raw: object) -> Check:
    fields = fields_in(raw, "a check", CHECK_FIELDS)
    sql = fields.get("sql")
    if not isinstance(sql, str) or not sql:
        raise InvalidArgument(f"a check of {table.path} needs 'sql', its expression")
    name = _optional_text(fields, "name", "a check") or ""
    return Check(name, sql, tuple(_known(table, c).id for c in fields.get("columns") or ()))


def _foreign_key(table: Table, raw: object) -> WantedKey:
    fields = fields_in(raw, "a foreign key", FOREIGN_KEY_FIELDS)
    columns = tuple(_known(table, name).id for name in fields.get("columns") or ())
    target = fields.get("table")
    if not columns or target is None:
        raise InvalidArgument(f"a foreign key of {table.path} needs 'columns' and 'table'")
    actions = [fields.get(field) or NO_ACTION for field in ("on_delete", "on_update")]
    if unknown := [action for action in actions if action not in ACTIONS]:
        raise InvalidArgument(f"{unknown[0]!r:.60} is not one of {', '.join(ACTIONS)}")
    referenced = tuple(fields.get("referenced") or ())
    if referenced and len(referenced) != len(columns):
        raise invalid(
            "42830", "number of referencing and referenced columns for foreign key disagree"
        )
    place = located(table.namespace, target)
    name = _optional_text(fields, "name", "a foreign key") or ""
    deferred = bool(fields.get("deferred"))
    deferrable = deferred or bool(fields.get("deferrable"))
    return WantedKey(name, columns, place, referenced, actions[0], actions[1], deferrable, deferred)


def _known(table: Table, name: object) -> Column:
    """The column of this name, which users see."""
    for column in table.columns:
        if column.name == name and (column.derived or not column.hidden):
            return column
    raise invalid(
        "42703", f'column "{name!s:.100}" named in key does not exist', column=str(name)[:100]
    )


def _optional_text(fields: Mapping[str, object], field: str, what: str) -> str | None:
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{what}: {field} must be text, got {value!r:.60}")
    return value


def hidden_key() -> Column:
    """The column that stands for a primary key where none was declared."""
    return Column(0, ROWID, "int8", nullable=False, hidden=True)
