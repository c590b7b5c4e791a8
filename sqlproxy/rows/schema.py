"""What a namespace, a table, an index, a view and a sequence are. Immutable; a change is a new
descriptor. What SQL may declare is checked in `sqlproxy.ddl.declaring`, names in
`sqlproxy.rows.naming`.

A table without columns is a plain key-value table: its user keys and values are bytes as given. A
table with columns has a primary key; `sqlproxy.rows.rows` says what its keys and values are, and
`sqlproxy.tables.entries` what those of its indexes are. One without a declared primary key has the
hidden column `_rowid`, an int8 that the executor numbers.

Column ids are never used again within a table: they are positions in stored rows. Tables, indexes,
views and sequences have ids from one counter; the id of a table or an index is the prefix of its
storage keys. References are by id: a rename changes names only. Expressions are kept as SQL text in
the words of the table (column names); what they refer to is kept beside them by id.

States of columns, indexes, checks and foreign keys are F1's (online schema change): only `public`
ones are seen by users; in `write_only` they are maintained and enforced for what is written, in
`delete_only` they are only removed from. A descriptor made by CREATE TABLE has public ones only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kv.base.errors import AlreadyExists, InvalidArgument, Refused, TooLarge
from kv.base.ids import FIRST_PRIVATE_TABLE, TableId
from kv.base.limits import COLUMNS_MAX, PRIMARY_KEY_COLUMNS_MAX
from kv.base.placement import Placement, canonical_leaders, votes
from kv.base.shards import canonical
from sqlproxy.rows.keys import unordered
from sqlproxy.rows.naming import (
    check_name,
    check_partition_bytes,
    check_placement,
    check_shard,
    check_sql_name,
    check_survival,
    made_name,
)
from sqlproxy.values.enums import Enum, shown
from sqlproxy.values.types import Type, resolve

CREATING: Final = "creating"  # its partitions are being made; not yet to be used
PUBLIC: Final = "public"
DISABLED: Final = "disabled"  # it keeps its rows, but nobody reads or writes it
DROPPING: Final = "dropping"  # its rows are being removed; its name is taken until they are
STATES: Final = (CREATING, PUBLIC, DISABLED, DROPPING)
USABLE: Final = (PUBLIC, DISABLED)  # what users see of tables, and may change
ACTIVE: Final = "active"
STANDBY: Final = "standby"

WRITE_ONLY: Final = "write_only"
DELETE_ONLY: Final = "delete_only"

DEFAULT_NAMESPACE: Final = "default"
POSTGRES_NAMESPACE: Final = "postgres"  # a database of SQL is a namespace; clients expect this one

ROWID: Final = "_rowid"

INDEX: Final = "index"  # parts of a table that COMMENT ON names
CONSTRAINT: Final = "constraint"
COLUMN: Final = "column"

NO_ACTION: Final = "no action"
RESTRICT: Final = "restrict"
CASCADE: Final = "cascade"
SET_NULL: Final = "set null"
SET_DEFAULT: Final = "set default"
ACTIONS: Final = (NO_ACTION, RESTRICT, CASCADE, SET_NULL, SET_DEFAULT)

ALWAYS: Final = "always"
BY_DEFAULT: Final = "by default"

# (role, letters), …; None: as made. See sqlproxy.catalog.privileges
Acl = tuple[tuple[str, str], ...]


PLACING: Final = ("replicas", "tags", "shard", "survive", "leaders")
"""What places the rows of a table, or of all tables of a namespace that do not say otherwise."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """`created` is the timestamp of the transaction that made it. `replicas` and what places them
    are its tables' (`placement`). `state`: public, or disabled: then no table is made or enabled
    in it. `acl`: of the database that it is to SQL, `schema_acl`: of its schema public, `defaults`:
    of what is made in it.
    """

    name: str
    created: int = 0
    replicas: int | None = None  # None: the cluster's default, one at every node
    tags: tuple[str, ...] = ()
    state: str = PUBLIC
    owner: str = ""
    acl: Acl | None = None
    schema_acl: Acl | None = None
    defaults: tuple[tuple[str, str, Acl], ...] = ()  # (who makes it, kind, what it is granted)
    comment: str = ""
    schema_comment: str | None = None  # None: the one that it has by itself
    shard: str = ""  # kv.base.shards
    survive: str = ""  # kv.base.placement; so are leaders
    leaders: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is a canonical name of `sqlproxy.values.types`.

    A default is a constant (`default`, in the user's form, and `default_sql` if SQL gave it), or an
    expression (`default_sql` alone, e.g. "now()"). Rows that are shorter than the table take
    `initial[0]` if there is an `initial`, else `default`: the default may have changed since.
    """

    id: int
    name: str
    type: str
    nullable: bool = True
    default: object = None
    default_sql: str | None = None
    identity: str = ""  # "always" or "by default"; its sequence is `sequence`
    generated: str | None = None  # the expression of a stored generated column
    on_update: str | None = None  # the expression that UPDATE sets it to, unless it is given
    state: str = PUBLIC
    hidden: bool = False  # never shown: `_rowid`, and what indexes over expressions are of
    sequence: int = 0  # the id of the sequence whose nextval is the default or the identity
    uses: tuple[int, ...] = ()  # the ids of the columns that `generated` refers to
    comment: str = ""
    initial: tuple[object] | None = None
    acl: Acl | None = None  # beside what the table allows

    @property
    def resolved(self) -> Type:
        return resolve(self.type)

    @property
    def shown_type(self) -> str:
        """In messages; of an enum its name alone."""
        return shown(self.type)

    @property
    def derived(self) -> bool:
        """What an index over an expression is of: generated, and never shown."""
        return self.hidden and self.generated is not None

    @property
    def hidden_number(self) -> bool:
        """What stands for a primary key where none was declared."""
        return self.hidden and self.generated is None

    @property
    def title(self) -> str:
        """As errors and plans name it."""
        return self.generated or self.name if self.derived else self.name

    @property
    def computed(self) -> bool:
        """Whether only SQL can say what it is when it is not given."""
        if self.generated is not None or self.sequence or self.hidden:
            return True
        return self.default_sql is not None and self.default is None and not self.defaults_to_null

    @property
    def defaults_to_null(self) -> bool:
        return self.default_sql is None or self.default_sql.strip().lower() == "null"

    @property
    def missing(self) -> object:
        """What a row that is shorter than the table has in it, in the user's form."""
        return self.default if self.initial is None else self.initial[0]

    def without_expressions(self, **changes: Any) -> Column:
        """The same, given by whoever writes it, with these changes."""
        nothing: dict[str, Any] = {"default_sql": None, "generated": None, "on_update": None}
        return replace(self, **nothing, identity="", sequence=0, uses=(), **changes)


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """`column` is its id. PostgreSQL's defaults: NULLs last ascending, first descending."""

    column: int
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """`id` is from the counter of tables: an index has a key range and partitions of its own."""

    id: TableId
    name: str
    columns: tuple[IndexColumn, ...]
    unique: bool = False
    include: tuple[int, ...] = ()
    constraint: bool = False  # of UNIQUE in the table's declaration, not of CREATE INDEX
    state: str = PUBLIC
    primary: bool = False  # it is the primary key of a table whose rows lie by `_rowid`
    since: int = 0  # an older snapshot does not have all its entries; 0: it is as old as the table
    where: str = ""  # of a partial index: only rows of which this is true have entries …
    where_columns: tuple[int, ...] = ()  # … the ids of the columns that it names
    deferrable: bool = False  # a unique constraint that is checked when a statement has ended …
    deferred: bool = False  # … or, unless SET CONSTRAINTS says otherwise, at the commit

    @property
    def immediate(self) -> bool:
        """Whether no two rows ever have the same key, also in the middle of a transaction."""
        return self.unique and not self.deferrable

    @property
    def used_ids(self) -> frozenset[int]:
        """The columns on which a row's entry depends."""
        return frozenset((*self.column_ids, *self.include, *self.where_columns))

    @property
    def column_ids(self) -> tuple[int, ...]:
        return tuple(part.column for part in self.columns)


@dataclass(frozen=True, slots=True)
class Check:
    """`columns`: the ids of those that `sql` refers to."""

    name: str
    sql: str
    columns: tuple[int, ...] = ()
    state: str = PUBLIC


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` of this table refer to `referenced` of `table` (ids), which are its primary key or
    the columns of a unique index, in the order of `columns`.
    """

    name: str
    columns: tuple[int, ...]
    table: TableId
    referenced: tuple[int, ...]
    on_delete: str = NO_ACTION
    on_update: str = NO_ACTION
    state: str = PUBLIC
    deferrable: bool = False
    deferred: bool = False  # unless SET CONSTRAINTS says otherwise


@dataclass(frozen=True, slots=True)
class Sequence:
    """`type` is int2, int4 or int8; where it stands is not in here (sqlproxy/catalog/sequences.py).
    `owned_by`: the ids of the table and of the column with which it is dropped.
    """

    id: int
    namespace: str
    name: str
    start: int = 1
    increment: int = 1
    minimum: int = 1
    maximum: int = (1 << 63) - 1
    cycle: bool = False
    type: str = "int8"
    owned_by: tuple[int, int] | None = None
    cache: int = 1
    version: int = 1
    kind: str = "sequence"
    owner: str = ""
    acl: Acl | None = None
    comments: tuple[tuple[int, str], ...] = ()  # (0, COMMENT ON SEQUENCE)

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class View:
    """`columns`: names and canonical types. `uses`: what `sql` reads, as (id of a table, view or
    sequence, ids of its columns; of a view: places from 1); it cannot be dropped while this is.
    """

    id: int
    namespace: str
    name: str
    sql: str
    columns: tuple[tuple[str, str], ...] = ()
    uses: tuple[tuple[int, tuple[int, ...]], ...] = ()
    version: int = 1
    kind: str = "view"
    owner: str = ""
    acl: Acl | None = None
    comments: tuple[tuple[int, str], ...] = ()  # (place of a column from 1, or 0, COMMENT ON)

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class EnumType:
    """A type that CREATE TYPE … AS ENUM made. Columns have all of `enum` in their types."""

    id: int
    namespace: str
    enum: Enum
    kind: str = "type"
    owner: str = ""
    acl: Acl | None = None  # everybody may use it; nothing is granted

    @property
    def name(self) -> str:
        return self.enum.name

    @property
    def version(self) -> int:
        return self.enum.version

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"


class FunctionArgument(NamedTuple):
    """`default`: as SQL."""

    name: str
    oid: int
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """What CREATE FUNCTION … LANGUAGE sql made. `columns`: names and types of the rows that it
    returns; () of one that returns a value of the type `result`. `sql`: its one query.
    """

    id: int
    namespace: str
    title: str
    arguments: tuple[FunctionArgument, ...]
    result: int
    columns: tuple[tuple[str, int], ...]
    sql: str
    strict: bool = False
    volatile: str = "v"
    version: int = 1
    kind: str = "function"
    owner: str = ""
    acl: Acl | None = None  # everybody may call it; nothing is granted

    @property
    def name(self) -> str:
        """Its name in the catalog, which says the types of its arguments, too."""
        return function_name(self.title, (one.oid for one in self.arguments))

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"


def function_name(title: str, types: Iterable[int]) -> str:
    return f"{title}({','.join(map(str, types))})"


class ColumnLike(Protocol):
    """What `Table.declare` needs of a column."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`version` rises with every change of what rows are: it is the table's schema version. Whose
    it is, and who may do what with it (sqlproxy.catalog.privileges), does not count.
    `next_column_id` is above every id ever used.
    """

    id: TableId
    namespace: str
    name: str
    state: str = CREATING
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    replicas: int | None = None  # None: its namespace's
    tags: tuple[str, ...] = ()  # besides its namespace's
    partition_bytes: int | None = None  # above which a partition is split; None: the cluster's
    created: int = 0
    version: int = 1
    next_column_id: int = 1
    indexes: tuple[Index, ...] = ()
    checks: tuple[Check, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    referenced_by: tuple[TableId, ...] = ()  # tables whose foreign keys refer to this one
    primary_key_name: str = ""  # "": it has none that was declared
    frozen: bool = False  # nobody writes it for a moment: ddl/change/retyping.py, CreateTable
    kind: str = "table"
    owner: str = ""  # a role; "": the one that is always there
    acl: Acl | None = None
    comment: str = ""
    notes: tuple[tuple[str, str, str], ...] = ()  # (INDEX or CONSTRAINT, its name, COMMENT ON)
    shard: str = ""  # "": its namespace's; so with the two below
    survive: str = ""
    leaders: str = ""
    link: str = ""  # with another cluster (kvorum/sites): ACTIVE, or STANDBY: it alone writes

    def named_parts(self, kind: str) -> set[str]:
        """The names of its indexes, or of its constraints, which may be commented on."""
        keys = {index.name for index in self.indexes if kind == INDEX or index.constraint}
        keys |= {self.primary_key_name} - {""}
        if kind == INDEX:
            return keys
        return keys | {c.name for c in self.checks} | {k.name for k in self.foreign_keys}

    def noted(self, kind: str, name: str, text: str) -> tuple[tuple[str, str, str], ...]:
        """`notes` with this one; without a text it goes."""
        others = [note for note in self.notes if note[:2] != (kind, name)]
        return (*others, (kind, name, text)) if text else tuple(others)

    def renoted(self, name: str, to: str, *kinds: str) -> tuple[tuple[str, str, str], ...]:
        """`notes` when something has another name."""
        return tuple(
            (kind, to if kind in kinds and of == name else of, text)
            for kind, of, text in self.notes
        )

    @property
    def private(self) -> bool:
        """One session's own."""
        return self.id >= FIRST_PRIVATE_TABLE

    @property
    def plain(self) -> bool:
        """A key-value table without columns."""
        return not self.columns

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that users see, in order."""
        return tuple(c for c in self.columns if c.state == PUBLIC and not c.hidden)

    @property
    def hidden_key(self) -> bool:
        """Whether the primary key is the hidden row number."""
        return self.primary_key == (ROWID,) and self.column(ROWID).hidden

    @property
    def standby(self) -> bool:
        """Whether nobody but the link with another cluster writes to it."""
        return self.link == STANDBY

    @property
    def ruled(self) -> bool:
        """Whether others than SQL may not write to it, or nobody but a link may."""
        return self.link == STANDBY or self.kept

    @property
    def kept(self) -> bool:
        """Whether something must hold between a row and what else is stored (indexes, checks,
        foreign keys, computed columns): only SQL may write to it.
        """
        return bool(
            self.indexes
            or self.checks
            or self.foreign_keys
            or self.referenced_by
            or self.frozen
            or any(
                c.generated is not None or c.hidden or (c.state != PUBLIC and c.computed)
                for c in self.columns
            )
        )

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the primary key, in its order."""
        return tuple(self.column(name) for name in self.primary_key)

    @property
    def key_index(self) -> Index | None:
        """The primary key, if it was added to a table that was made without one: rows go on lying
        by their numbers.
        """
        return next((index for index in self.indexes if index.primary), None)

    @property
    def declared_key(self) -> tuple[int, ...]:
        """The ids of the columns of the primary key that users see; () if there is none."""
        if self.primary_key and not self.hidden_key:
            return tuple(column.id for column in self.key_columns)
        index = self.key_index
        return index.column_ids if index is not None and index.state == PUBLIC else ()

    @property
    def determining_key(self) -> tuple[int, ...]:
        """The same if all of a row follows from it at any moment; else ()."""
        index = self.key_index
        return () if index is not None and index.deferrable else self.declared_key

    @property
    def storage_ids(self) -> tuple[TableId, ...]:
        """The prefixes of its storage keys: its own, and those of its indexes."""
        return (self.id, *(index.id for index in self.indexes))

    def column(self, name: str) -> Column:
        """Raises InvalidArgument with the names that there are."""
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidArgument(
            f"table {self.path} has no column {name!r}; it has "
            f"{', '.join(c.name for c in self.columns) or 'none: it is a plain key-value table'}",
            details={"column": name},
        )

    def by_id(self, number: int) -> Column:
        """The column of this id. KeyError."""
        for column in self.columns:
            if column.id == number:
                return column
        raise KeyError(number)

    def index(self, name: str) -> Index | None:
        return next((index for index in self.indexes if index.name == name), None)

    def unique_sets(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and column ids of the primary key and of each public unique index that has all
        rows, and never two of the same key.
        """
        if self.primary_key:
            yield self.primary_key_name, tuple(c.id for c in self.key_columns)
        for index in self.indexes:
            if index.immediate and index.state == PUBLIC and not index.where:
                yield index.name, index.column_ids

    @staticmethod
    def declare(
        namespace: str,
        name: str,
        *,
        columns: Iterable[ColumnLike] = (),
        primary_key: Items[str] = (),
    ) -> Table:
        """A checked descriptor that has no id yet (0), with column ids 1, 2, … in the order given.

        Raises InvalidArgument or TooLarge that names the table, the field and what is allowed.
        """
        check_name("namespace", namespace)
        check_sql_name("table", name)
        numbered = tuple(_numbered(i, c) for i, c in enumerate(columns, 1))
        where = f"table {namespace}.{name}"
        _check_columns(where, numbered)
        _check_primary_key(where, numbered, primary_key)
        keyed = frozenset(primary_key)
        return Table(
            id=TableId(0),
            namespace=namespace,
            name=name,
            # A primary key column is never null, whether or not that was said.
            columns=tuple(
                replace(c, nullable=c.nullable and c.name not in keyed and not c.identity)
                for c in numbered
            ),
            primary_key=tuple(primary_key),
            next_column_id=len(numbered) + 1,
            primary_key_name=made_name(name, "", "pkey") if primary_key else "",
        )


def _numbered(number: int, given: ColumnLike) -> Column:
    """The column under this id, its type by its canonical name."""
    kind = resolve(given.type).name
    if isinstance(given, Column):
        return replace(given, id=number, type=kind)
    return Column(number, given.name, kind, given.nullable, getattr(given, "default", None))


def with_columns(table: Table, added: Iterable[ColumnLike]) -> Table:
    """The table with these columns after its own, under ids that were never used. Rows without
    them have their defaults, so each must be nullable or have one. Raises InvalidArgument,
    TooLarge, AlreadyExists.
    """
    where = f"table {table.path}"
    if table.plain:
        raise InvalidArgument(
            f"{where} is a plain key-value table: it has no columns that others could be added to"
        )
    numbered = tuple(_numbered(i, c) for i, c in enumerate(added, table.next_column_id))
    for column in numbered:
        if not column.nullable and column.default is None:
            raise InvalidArgument(
                f"{where}: the new column {column.name} must be nullable or have a default: the "
                "rows that are there have no value for it",
                details={"column": column.name},
            )
        if any(column.name == there.name for there in table.columns):
            raise AlreadyExists(
                f"{where} has a column {column.name} already", details={"column": column.name}
            )
    columns = (*table.columns, *numbered)
    _check_columns(where, columns)
    return replace(table, columns=columns, next_column_id=table.next_column_id + len(numbered))


def _check_columns(where: str, columns: Items[Column]) -> None:
    if len(columns) > COLUMNS_MAX:
        raise TooLarge(
            f"{where} has {len(columns)} columns; the limit is {COLUMNS_MAX}",
            details={"what": "columns", "limit": COLUMNS_MAX, "actual": len(columns)},
        )
    seen: set[str] = set()
    for column in columns:
        check_sql_name(f"{where}: column", column.name)
        if column.name in seen:
            raise InvalidArgument(f"{where} declares column {column.name!r} twice")
        seen.add(column.name)
        if column.default is not None:
            try:
                column.resolved.to_stored(column.default)
            except (ValueError, TypeError) as error:
                raise InvalidArgument(
                    f"{where}: the default of column {column.name} ({column.shown_type}): {error}",
                    details={"column": column.name},
                ) from error


def _check_primary_key(where: str, columns: Items[Column], names: Items[str]) -> None:
    by_name = {column.name: column for column in columns}
    if bool(columns) != bool(names):
        one = "columns but no primary key" if columns else "a primary key but no columns"
        raise InvalidArgument(
            f"{where} declares {one}; give both, or neither for a plain key-value table"
        )
    if len(names) > PRIMARY_KEY_COLUMNS_MAX:
        raise TooLarge(
            f"{where} has {len(names)} primary key columns; the limit is {PRIMARY_KEY_COLUMNS_MAX}",
            details={"what": "primary_key", "limit": PRIMARY_KEY_COLUMNS_MAX, "actual": len(names)},
        )
    for at, name in enumerate(names):
        if name not in by_name:
            raise InvalidArgument(
                f"{where}: primary key column {name!r} is not declared; there are "
                f"{', '.join(by_name)}"
            )
        if name in names[:at]:
            raise InvalidArgument(f"{where} names {name!r} twice in its primary key")
        if problem := unordered(by_name[name].resolved):
            raise InvalidArgument(
                f"{where}: column {name} of type {shown(by_name[name].type)} has no order "
                f"and cannot be in the primary key: {problem}",
                details={"column": name, "sqlstate": "42704"},
            )


_Placed = TypeVar("_Placed", bound=Namespace | Table)


def placed(had: _Placed, change: Mapping[str, Any]) -> _Placed:
    """A namespace or a table with what `change` has of PLACING, and of a table's `partition_bytes`.
    Raises InvalidArgument or TooLarge that names it, the field and what is allowed.
    """
    made = replace(had, **change)
    where = f"table {made.path}" if isinstance(made, Table) else f"namespace {made.name}"
    check_placement(where, made.replicas, made.tags)
    check_shard(where, made.shard)
    check_survival(where, made.survive, made.leaders)
    if isinstance(made, Table):
        check_partition_bytes(where, made.partition_bytes)
    return replace(made, shard=canonical(made.shard), leaders=canonical_leaders(made.leaders))


def placement(namespace: Namespace, table: Table) -> Placement:
    """What a table wants itself, else its namespace; the tags of both."""
    replicas = namespace.replicas if table.replicas is None else table.replicas
    survive = table.survive or namespace.survive
    return Placement(
        votes(survive, replicas or 0),
        tuple(dict.fromkeys((*namespace.tags, *table.tags))),
        table.partition_bytes or 0,
        table.shard or namespace.shard,
        survive,
        table.leaders or namespace.leaders,
    )


Relation = Table | View | Sequence


def stands_by(table: Table) -> Refused:
    """Why nobody but the link writes to it."""
    return Refused(
        f"table {table.path} is a stand-by of another cluster: its rows come from there alone, "
        "nothing was changed. `kvorum site promote SITE` makes it writable here",
        code="SITE_STANDBY",
        details={"namespace": table.namespace, "table": table.name, "sqlstate": "25006"},
    )
