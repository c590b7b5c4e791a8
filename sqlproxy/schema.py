"""What a namespace, a table and a column are; what may be declared. Immutable; a change is a new
descriptor.

A table without columns is a plain key-value table: its user keys and values are bytes as given. A
table with columns has a primary key; `sqlproxy.rows` says what its keys and values are.

Column ids are never used again within a table: they are positions in stored rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from kv.base.errors import AlreadyExists, InvalidArgument, TooLarge
from kv.base.ids import TableId
from kv.base.limits import (
    COLUMNS_MAX,
    NAME_CHARS_MAX,
    PARTITION_BYTES_MAX_MAX,
    PARTITION_BYTES_MAX_MIN,
    PRIMARY_KEY_COLUMNS_MAX,
    REPLICAS_MAX,
    TAGS_MAX,
)
from sqlproxy.keys import TAG
from sqlproxy.types import Type, resolve

CREATING: Final = "creating"  # its partitions are being made; not yet to be used
PUBLIC: Final = "public"
DISABLED: Final = "disabled"  # it keeps its rows, but nobody reads or writes it
DROPPING: Final = "dropping"  # its rows are being removed; its name is taken until they are
STATES: Final = (CREATING, PUBLIC, DISABLED, DROPPING)
USABLE: Final = (PUBLIC, DISABLED)  # what users see of tables, and may change

DEFAULT_NAMESPACE: Final = "default"
POSTGRES_NAMESPACE: Final = "postgres"  # a database of SQL is a namespace; clients expect this one
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Namespace:
    """`created` is the timestamp of the transaction that made it. `replicas` and `tags` are its
    tables' (`placement`). `state`: public, or disabled: then no table is made or enabled in it.
    """

    name: str
    created: int = 0
    replicas: int | None = None  # None: the cluster's default, one at every node
    tags: tuple[str, ...] = ()
    state: str = PUBLIC


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is a canonical name of `sqlproxy.types`; `default` is in the user's form, None =
    none.
    """

    id: int
    name: str
    type: str
    nullable: bool = True
    default: Any = None

    @property
    def resolved(self) -> Type:
        return resolve(self.type)


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
    """`version` rises with every change of the descriptor; `next_column_id` is above every id ever
    used.
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

    @property
    def plain(self) -> bool:
        """A key-value table without columns."""
        return not self.columns

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"

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

    @staticmethod
    def declare(
        namespace: str,
        name: str,
        *,
        columns: Iterable[ColumnLike] = (),
        primary_key: Sequence[str] = (),
        replicas: int | None = None,
        tags: Sequence[str] = (),
        partition_bytes: int | None = None,
    ) -> Table:
        """A checked descriptor that has no id yet (0), with column ids 1, 2, … in the order given.

        Raises InvalidArgument or TooLarge that names the table, the field and what is allowed.
        """
        check_name("namespace", namespace)
        check_name("table", name)
        numbered = tuple(
            Column(i, c.name, resolve(c.type).name, c.nullable, getattr(c, "default", None))
            for i, c in enumerate(columns, 1)
        )
        where = f"table {namespace}.{name}"
        _check_columns(where, numbered)
        _check_primary_key(where, numbered, primary_key)
        check_placement(where, replicas, tags)
        check_partition_bytes(where, partition_bytes)
        keyed = frozenset(primary_key)
        return Table(
            id=TableId(0),
            namespace=namespace,
            name=name,
            # A primary key column is never null, whether or not that was said.
            columns=tuple(
                Column(c.id, c.name, c.type, c.nullable and c.name not in keyed, c.default)
                for c in numbered
            ),
            primary_key=tuple(primary_key),
            replicas=replicas,
            tags=tuple(tags),
            partition_bytes=partition_bytes,
            next_column_id=len(numbered) + 1,
        )


def with_columns(table: Table, added: Iterable[ColumnLike]) -> Table:
    """The table with these columns behind its own, under ids that were never used. Rows without
    them have their defaults, so each must be nullable or have one. Raises InvalidArgument,
    TooLarge, AlreadyExists.
    """
    where = f"table {table.path}"
    if table.plain:
        raise InvalidArgument(
            f"{where} is a plain key-value table: it has no columns that others could be added to"
        )
    numbered = tuple(
        Column(i, c.name, resolve(c.type).name, c.nullable, getattr(c, "default", None))
        for i, c in enumerate(added, table.next_column_id)
    )
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


def check_name(what: str, name: object) -> None:
    """Raise InvalidArgument unless `name` may name a namespace, a table or a column."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise InvalidArgument(
            f"{what} name {name!r:.100} is not allowed: 1 to {NAME_CHARS_MAX} letters, digits, '_' "
            "and '-', the first one not '-'",
            details={"what": what, "name": str(name)[:100], "limit": NAME_CHARS_MAX},
        )


def _check_columns(where: str, columns: Sequence[Column]) -> None:
    if len(columns) > COLUMNS_MAX:
        raise TooLarge(
            f"{where} has {len(columns)} columns; the limit is {COLUMNS_MAX}",
            details={"what": "columns", "limit": COLUMNS_MAX, "actual": len(columns)},
        )
    seen: set[str] = set()
    for column in columns:
        check_name(f"{where}: column", column.name)
        if column.name in seen:
            raise InvalidArgument(f"{where} declares column {column.name!r} twice")
        seen.add(column.name)
        if column.default is not None:
            try:
                column.resolved.to_stored(column.default)
            except (ValueError, TypeError) as error:
                raise InvalidArgument(
                    f"{where}: the default of column {column.name} ({column.type}): {error}",
                    details={"column": column.name},
                ) from error


def _check_primary_key(where: str, columns: Sequence[Column], names: Sequence[str]) -> None:
    by_name = {column.name: column for column in columns}
    if bool(columns) != bool(names):
        one = "columns but no primary key" if columns else "a primary key but no columns"
        raise InvalidArgument(
            f"{where} declares {one}; give both, or neither for a plain key-value table"
        )
    if len(names) > PRIMARY_KEY_COLUMNS_MAX:
        raise TooLarge(
            f"{where} has {len(names)} primary key columns; the limit is {PRIMARY_KEY_COLUMNS_MAX}",
            details={
                "what": "primary_key",
                "limit": PRIMARY_KEY_COLUMNS_MAX,
                "actual": len(names),
            },
        )
    for at, name in enumerate(names):
        if name not in by_name:
            raise InvalidArgument(
                f"{where}: primary key column {name!r} is not declared; there are "
                f"{', '.join(by_name)}"
            )
        if name in names[:at]:
            raise InvalidArgument(f"{where} names {name!r} twice in its primary key")
        if by_name[name].resolved.base not in TAG:
            raise InvalidArgument(
                f"{where}: column {name} of type {by_name[name].type} has no order and cannot be "
                "in the primary key"
            )


def check_placement(where: str, replicas: int | None, tags: Sequence[str]) -> None:
    if replicas is not None and not (type(replicas) is int and 1 <= replicas <= REPLICAS_MAX):
        raise InvalidArgument(
            f"{where}: replicas must be 1 to {REPLICAS_MAX}, got {replicas!r}",
            details={"limit": REPLICAS_MAX, "actual": replicas},
        )
    if len(tags) > TAGS_MAX:
        raise TooLarge(
            f"{where} has {len(tags)} tags; the limit is {TAGS_MAX}",
            details={"what": "tags", "limit": TAGS_MAX, "actual": len(tags)},
        )
    for tag in tags:
        check_name(f"{where}: tag", tag)


def check_partition_bytes(where: str, size: int | None) -> None:
    low, high = PARTITION_BYTES_MAX_MIN, PARTITION_BYTES_MAX_MAX
    if size is not None and not (type(size) is int and low <= size <= high):
        raise InvalidArgument(
            f"{where}: partition_bytes must be {low} to {high}, got {size!r:.40}",
            details={"limit": high, "actual": size},
        )


def placement(namespace: Namespace, table: Table) -> tuple[int | None, tuple[str, ...]]:
    """How many replicas a table has and which tags a node must carry to have one: its own number,
    else its namespace's; the tags of both.
    """
    replicas = namespace.replicas if table.replicas is None else table.replicas
    return replicas, tuple(dict.fromkeys((*namespace.tags, *table.tags)))
