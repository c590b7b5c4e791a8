"""Bound DDL: what is to be declared or changed, by name (of relations and types
with their schemas: `sqlproxy.rows.naming.named`). Types are canonical names
(`sqlproxy.values.types`), expressions are checked and kept as SQL. A name of None is PostgreSQL's
to make (`sqlproxy.rows.naming`) when the others are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlproxy.front.bound.statements import Select
from sqlproxy.rows.schema import Sequence, SqlFunction, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDef:
    """`default`: the value if it is a constant, with its `default_sql`; an expression has
    `default_sql` alone. `identity` "always" or "by default", with `sequence`'s options; `serial`:
    as serial and AUTO_INCREMENT do.
    """

    name: str
    type: str
    nullable: bool = True
    default: object = None
    default_sql: str | None = None
    identity: str = ""
    serial: bool = False
    sequence: Mapping[str, object] = field(default_factory=dict)
    generated: str | None = None
    uses: tuple[str, ...] = ()  # the columns that `generated` names
    on_update: str | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """An expression that an index is of. `title`: what PostgreSQL calls a column of it."""

    sql: str
    type: str
    uses: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class KeyPart:
    """`expression`: instead of a column, whose name is to be made."""

    column: str
    descending: bool = False
    nulls_first: bool = False
    expression: Derived | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDef:
    """A primary key, a UNIQUE constraint or an index; `constraint`: declared as one."""

    name: str | None
    parts: tuple[KeyPart, ...]
    unique: bool = False
    primary: bool = False
    constraint: bool = False
    include: tuple[str, ...] = ()
    where: str = ""  # of a partial index
    where_columns: tuple[str, ...] = ()
    deferrable: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDef:
    name: str | None
    sql: str
    columns: tuple[str, ...] = ()
    validated: bool = True  # False: NOT VALID


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyDef:
    """`referenced` empty: the primary key of `table`, which may be the table itself."""

    name: str | None
    columns: tuple[str, ...]
    table: str
    referenced: tuple[str, ...] = ()
    on_delete: str = "no action"
    on_update: str = "no action"
    deferrable: bool = False
    deferred: bool = False
    validated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """`options` of WITH (…): front.ddl.ddl_options.TABLE_OPTIONS."""

    name: str
    columns: tuple[ColumnDef, ...]
    if_not_exists: bool = False
    keys: tuple[KeyDef, ...] = ()
    checks: tuple[CheckDef, ...] = ()
    foreign_keys: tuple[ForeignKeyDef, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    on_commit: str = ""  # of a temporary one: "delete rows", "drop"
    notes: tuple[tuple[str, str, str], ...] = ()  # COLUMN or CONSTRAINT, its name, COMMENT ON


@dataclass(frozen=True, slots=True)
class CreateTableAs:
    """`columns` are of the answer's types; the rows of `select` go in, unless WITH NO DATA."""

    name: str
    columns: tuple[ColumnDef, ...]
    select: Select
    if_not_exists: bool = False
    with_data: bool = True
    options: Mapping[str, object] = field(default_factory=dict)
    on_commit: str = ""


@dataclass(frozen=True, slots=True)
class CreateIndex:
    table: Table
    key: KeyDef
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """`sql` has its stars expanded; `uses` as `schema.View` keeps it."""

    name: str
    sql: str
    columns: tuple[tuple[str, str], ...]
    uses: tuple[tuple[int, tuple[int, ...]], ...]
    replace: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True)
class CreateSequence:
    """`options`: start, increment, minvalue, maxvalue (None: NO …), cycle, cache, as, owned_by,
    restart.
    """

    name: str
    options: Mapping[str, object]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSequence:
    sequence: Sequence | None  # None: it is not there, and IF EXISTS was said
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    name: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DropDatabase:
    name: str
    missing_ok: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """`owner` None: who says so."""

    name: str
    owner: str | None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSchemas:
    """`skipped`: those that are not there, and need not be, in words."""

    names: tuple[str, ...]
    cascade: bool = False
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateEnum:
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`function`: without an id."""

    function: SqlFunction
    replace: bool = False


@dataclass(frozen=True, slots=True)
class DropFunctions:
    """`names`: those of the catalog; `skipped`: what is said of those that are not there."""

    names: tuple[str, ...]
    cascade: bool = False
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddLabel:
    """ALTER TYPE … ADD VALUE; `before` or `after` a label, or at the end."""

    name: str
    label: str
    before: str | None = None
    after: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameLabel:
    name: str
    label: str
    new_label: str


@dataclass(frozen=True, slots=True)
class DropTypes:
    """Of users'. `skipped`: those that are not there, and need not be, in words."""

    names: tuple[str, ...]
    cascade: bool = False
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """`kind`: table, index, view, sequence. `skipped`: those whose schema is not there, and need
    not be, in words.
    """

    kind: str
    names: tuple[str, ...]
    missing_ok: bool = False
    cascade: bool = False
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rename:
    """`kind`: table, view, sequence, index, type, schema, column, constraint; `part`: of the last
    two.
    """

    kind: str
    relation: str
    new_name: str
    part: str = ""
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class SetSchema:
    """`name` None: it is not there, and need not be."""

    kind: str  # table, view, sequence
    name: str | None
    schema: str


@dataclass(frozen=True, slots=True)
class Comment:
    """`kind`: table, view, sequence or column (of a table or a view: `column`); index or
    constraint of the table `relation` (`column` is its name); database; schema. No text: none.
    """

    kind: str
    relation: str
    column: str
    text: str


# -- the actions of ALTER TABLE


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Constraints that were declared with the column are actions of their own, after it."""

    column: ColumnDef
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str
    missing_ok: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """`sql` None: DROP DEFAULT."""

    column: str
    default: object = None
    sql: str | None = None


@dataclass(frozen=True, slots=True)
class SetNullable:
    column: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetType:
    """`using`: the expression of the old row that gives the new value, and the columns that it
    names; None: the plain cast. `plain`: it is no more than that.
    """

    column: str
    type: str
    using: str | None = None
    uses: tuple[str, ...] = ()
    plain: bool = True


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """`index`: ADD … USING INDEX that index. `of`: it was declared with this new column, and goes
    with it: IF NOT EXISTS may find that the column is there.
    """

    constraint: KeyDef | CheckDef | ForeignKeyDef
    index: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class DropConstraint:
    name: str
    missing_ok: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class ValidateConstraint:
    name: str


@dataclass(frozen=True, slots=True)
class AlterConstraint:
    """Of a foreign key."""

    name: str
    deferrable: bool
    deferred: bool


@dataclass(frozen=True, slots=True)
class SetIdentity:
    """`identity` "" drops it; None: keeps it and changes the sequence's `options`."""

    column: str
    identity: str | None
    options: Mapping[str, object] = field(default_factory=dict)
    missing_ok: bool = False
    add: bool = False


@dataclass(frozen=True, slots=True)
class DropExpression:
    """The generated column becomes a plain one."""

    column: str
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class SetOptions:
    """`options`: as of WITH (…); None as a value: RESET."""

    options: Mapping[str, object]


Action = (
    AddColumn
    | DropColumn
    | SetDefault
    | SetNullable
    | SetType
    | AddConstraint
    | DropConstraint
    | ValidateConstraint
    | AlterConstraint
    | SetIdentity
    | DropExpression
    | SetOptions
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`table` None: it is not there, and IF EXISTS was said."""

    table: Table | None
    name: str
    actions: tuple[Action, ...]
