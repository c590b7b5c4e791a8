"""Bound statements: what a session runs. Immutable; names are resolved, types decided, literals
read.

    Query     Select                                          rows out
    Write     Insert, Update, Delete, Merge                   rows changed, and out with RETURNING
    Define    CreateTable, CreateIndex, …  (`ddl`)            changes of descriptors
    Command   Begin, Commit, SetVariable, Copy, …             of the session

The row that an expression's columns index (`exprs.Column.index`) is the columns of the FROM items
one after another, each item's from its `offset` on. Of UPDATE, DELETE and MERGE the target is the
first item. In ON CONFLICT DO UPDATE the row is the existing row's columns, then the proposed row's
(EXCLUDED). RETURNING sees the target's columns first.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field, replace
from typing import Any

from sqlproxy.front.bound.bulk_values import Columns
from sqlproxy.front.bound.exprs import Column, Expr, Order, conjuncts
from sqlproxy.pg.answers import CopyFormat, Field
from sqlproxy.rows.schema import Column as TableColumn
from sqlproxy.rows.schema import Sequence, Table, View


@dataclass(frozen=True, slots=True)
class Target:
    """A column of an answer."""

    expr: Expr
    name: str


@dataclass(frozen=True, slots=True)
class ItemColumn:
    """A column that a FROM item has. `table`, `attribute`: where it comes from, 0 = computed."""

    name: str
    oid: int
    typmod: int = -1
    table: int = 0
    attribute: int = 0

    def at(self, index: int, relation: str = "") -> Column:
        """As an expression over a row in which it has this place."""
        return Column(
            oid=self.oid,
            typmod=self.typmod,
            index=index,
            name=self.name,
            relation=relation,
            table=self.table,
            attribute=self.attribute,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of FROM. `alias` is what the statement calls it."""

    alias: str
    columns: tuple[ItemColumn, ...]
    offset: int
    lateral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableItem(Item):
    """`columns` are the table's shown ones, in its order (`shown`)."""

    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectItem(Item):
    """A subquery, VALUES or a view."""

    select: Select
    view: View | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CteItem(Item):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionItem(Item):
    calls: tuple[Expr, ...]
    ordinality: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceItem(Item):
    """A sequence read as a table of one row: last_value, log_cnt, is_called. Before the statement
    runs, its row stands there instead.
    """

    sequence: Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemItem(Item):
    """A relation of the system, which is no view: `schema.name`. `Env.catalog` has its rows. `key`:
    the attributes that all others follow from.
    """

    relation: str
    oid: int
    key: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownItem(Item):
    """Rows that were computed before the statement runs; nobody writes it."""

    rows: Sequence_[Sequence_[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinItem(Item):
    """`kind`: inner, left, right, full, cross. Its columns are those of both sides; `offset` is the
    left one's.
    """

    kind: str
    left: Item
    right: Item
    on: Expr | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cte:
    name: str
    statement: Select | Change | None  # None: the recursive one, while it is bound
    columns: tuple[ItemColumn, ...]
    recursive: bool = False
    materialized: bool | None = None


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`kind`: union, intersect, except."""

    kind: str
    all: bool
    left: Select
    right: Select


@dataclass(frozen=True, slots=True)
class Locking:
    """`strength`: update, no key update, share, key share; `wait`: block, skip, error; `tables`
    empty = all.
    """

    strength: str
    wait: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """`text` and `tree` are the statement's as given: of the whole statement for the outermost one,
    else empty. `subqueries`: somewhere in its expressions.
    """

    text: str = ""
    tree: Mapping[str, Any] = field(default_factory=dict)
    ctes: tuple[Cte, ...] = ()
    subqueries: bool = False
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Statement):
    targets: tuple[Target, ...]
    fields: tuple[Field, ...] = ()
    items: tuple[Item, ...] = ()
    where: Expr | None = None
    group: tuple[Expr, ...] = ()
    grouping_sets: bool = False
    having: Expr | None = None
    distinct: bool = False
    distinct_on: tuple[Expr, ...] = ()
    order: tuple[Order, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    with_ties: bool = False
    operation: SetOperation | None = None
    locking: tuple[Locking, ...] = ()
    values: tuple[tuple[Expr, ...], ...] | None = None
    aggregates: bool = False  # it groups, or has aggregates
    windows: bool = False
    sets: bool = False  # a function in its list returns rows
    volatile: bool = False
    numbers: bool = False  # somewhere in it nextval() or setval() is called
    as_of: str | None = None  # the token after AS OF SYSTEM TIME

    def unordered(self, targets: tuple[Target, ...]) -> Select:
        """Its rows as they come, all of them: another list, which is neither sorted nor cut."""
        return replace(
            self,
            targets=targets,
            fields=(),
            order=(),
            distinct=False,
            distinct_on=(),
            limit=None,
            offset=None,
            with_ties=False,
        )

    @property
    def conjuncts(self) -> tuple[Expr, ...]:
        """What WHERE demands, part by part."""
        return conjuncts(self.where)

    @property
    def table(self) -> TableItem | None:
        """The one table that it reads, with nothing that needs more than filter, order and limit;
        else None.
        """
        simple = not (
            self.operation
            or self.ctes
            or self.aggregates
            or self.windows
            or self.sets
            or self.subqueries
            or self.distinct
            or self.distinct_on
            or self.values is not None
            or self.with_ties
        )
        if simple and len(self.items) == 1 and isinstance(self.items[0], TableItem):
            return self.items[0]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubQuery(Expr):
    """`kind`: exists, scalar, any, all, array. Not for closures: executors give it to what can
    join.
    """

    kind: str
    select: Select
    left: tuple[Expr, ...] = ()
    operator: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`value` is of the column's type already, and fits its modifier; Default: the column's
    default.
    """

    column: TableColumn
    value: Expr


@dataclass(frozen=True, slots=True)
class Conflict:
    """ON CONFLICT. `columns`: ids of the unique columns meant, () = any; `constraint`: by name.
    `predicate`: the WHERE after the columns, which chooses partial indexes, too. No assignments:
    DO NOTHING. Expressions see the existing row, then the proposed one.
    """

    columns: tuple[int, ...] = ()
    constraint: str | None = None
    assignments: tuple[Assignment, ...] | None = None
    where: Expr | None = None
    predicate: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Statement):
    """`items`: the target first, then those of FROM or USING."""

    target: TableItem
    items: tuple[Item, ...] = ()
    where: Expr | None = None
    current_of: str = ""
    returning: tuple[Target, ...] = ()
    fields: tuple[Field, ...] | None = None

    @property
    def conjuncts(self) -> tuple[Expr, ...]:
        return conjuncts(self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert(Change):
    """`columns` are those named, in the order of the values; each value is an expression without
    columns of the column's type, or Default. With `select`: its rows, converted by `conversions`,
    whose columns index its row.
    """

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Expr, ...], ...] | None = None
    given: Columns | None = None
    """The values of many rows, of which `rows` has the first (sqlproxy/front/binding/bulk.py)."""
    select: Select | None = None
    conversions: tuple[Expr, ...] = ()
    overriding: str = ""  # "", user, system
    conflict: Conflict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Change):
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Change):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWhen:
    """`action`: insert, update, delete, nothing. Expressions see the target's row, then the
    source's.
    """

    matched: bool
    action: str
    condition: Expr | None = None
    assignments: tuple[Assignment, ...] = ()
    overriding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Change):
    """`items`: the target, then the source."""

    on: Expr
    whens: tuple[MergeWhen, ...]


# -- commands of a session


@dataclass(frozen=True, slots=True)
class Begin:
    """None: not said. `isolation` as in SET, e.g. `repeatable read`. `start`: START TRANSACTION."""

    isolation: str | None = None
    read_only: bool | None = None
    deferrable: bool | None = None
    start: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Savepoint:
    name: str


@dataclass(frozen=True, slots=True)
class Release:
    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    name: str


@dataclass(frozen=True, slots=True)
class SetTransaction:
    """SET TRANSACTION …; `session`: SET SESSION CHARACTERISTICS AS TRANSACTION …; `snapshot`: SET
    TRANSACTION SNAPSHOT.
    """

    modes: Begin
    session: bool = False


@dataclass(frozen=True, slots=True)
class SetVariable:
    """`values` as text; None: TO DEFAULT. `local`: SET LOCAL."""

    name: str
    values: tuple[str, ...] | None
    local: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    name: str  # "all": all


@dataclass(frozen=True, slots=True)
class Show:
    name: str  # "all": all
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    what: str  # all, plans, sequences, temp


@dataclass(frozen=True, slots=True)
class Prepare:
    """`text` is the statement's own text, `oids` the declared types, 0 = find out."""

    name: str
    oids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Execute:
    """`arguments` are expressions without columns; the session converts them to the parameters'
    types (`coerce_to`).
    """

    name: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Deallocate:
    name: str | None  # None: all


@dataclass(frozen=True, slots=True)
class DeclareCursor:
    name: str
    query: Select
    hold: bool = False
    scroll: bool | None = None
    binary: bool = False
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """`direction`: forward, backward, absolute, relative; `count` None: all. `move`: MOVE, no rows
    come.
    """

    cursor: str
    direction: str
    count: int | None
    move: bool = False


@dataclass(frozen=True, slots=True)
class ClosePortal:
    cursor: str | None  # None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """COPY table or (query), FROM STDIN or TO STDOUT. `fields` are the columns that travel."""

    source: bool  # FROM: rows come in
    format: CopyFormat
    target: TableItem | None = None
    columns: tuple[TableColumn, ...] = ()
    query: Select | Change | None = None
    where: Expr | None = None
    freeze: bool = False
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Explain:
    statement: object
    options: Mapping[str, str]
    fields: tuple[Field, ...]
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    tables: tuple[Table, ...]
    restart_identity: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Analyze:
    """No tables: all of them. `only`: for each the ids of the columns that were named, none: all.
    `vacuum`: VACUUM was said, which does nothing here but ANALYZE, if that was said, too.
    """

    tables: tuple[Table, ...]
    only: tuple[frozenset[int], ...] = ()
    vacuum: bool = False
    analyze: bool = True


@dataclass(frozen=True, slots=True)
class DoIf:
    """IF … THEN … ELSE … END IF in DO. `condition`: a query of one value."""

    condition: str
    then: tuple[DoStep, ...]
    otherwise: tuple[DoStep, ...]


@dataclass(frozen=True, slots=True)
class DoExecute:
    """EXECUTE: the statements in a text. `query`: of one value, the text."""

    query: str


@dataclass(frozen=True, slots=True)
class DoRaise:
    """RAISE. `level` "exception" is an error, others are notices."""

    level: str
    message: str


@dataclass(frozen=True, slots=True)
class DoHandler:
    """WHEN … THEN … `states`: SQLSTATEs; "": all, "23000": all of the class."""

    states: tuple[str, ...]
    steps: tuple[DoStep, ...]


@dataclass(frozen=True, slots=True)
class DoBlock:
    """BEGIN … END. `undoes`: what its steps changed is taken back when one of them fails."""

    steps: tuple[DoStep, ...]
    handlers: tuple[DoHandler, ...] = ()
    undoes: bool = False


DoStep = str | DoIf | DoExecute | DoRaise | DoBlock
"""A statement is its text."""


@dataclass(frozen=True, slots=True)
class Do:
    block: DoBlock


@dataclass(frozen=True, slots=True)
class Notify:
    channel: str
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Listen:
    """LISTEN, or UNLISTEN (`listens` false); `channel` None: all of them."""

    channel: str | None
    listens: bool = True


@dataclass(frozen=True, slots=True)
class LockTable:
    tables: tuple[Table, ...]
    mode: str
    nowait: bool = False


@dataclass(frozen=True, slots=True)
class SetConstraints:
    """`names` (): ALL; each behind its schema, if it has one."""

    deferred: bool
    names: tuple[tuple[str | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """`given`: fields of `sqlproxy.catalog.roles.Role`. `no_password`: PASSWORD NULL. `groups`: IN
    ROLE, `members`: ROLE.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    password: str | None = field(default=None, repr=False)
    no_password: bool = False
    groups: tuple[str, ...] = ()
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateRole:
    """CREATE USER has login."""

    name: str
    options: RoleOptions


@dataclass(frozen=True, slots=True)
class AlterRole:
    name: str  # "current_user", "session_user": whoever it is
    options: RoleOptions
    adds: bool = True  # of `members`: ALTER GROUP … ADD USER, else DROP USER


@dataclass(frozen=True, slots=True)
class ChangeDefaults:
    """ALTER ROLE and ALTER DATABASE … SET, RESET. `role`, `database` None: all of them."""

    role: str | None
    database: str | None
    change: SetVariable | Reset


@dataclass(frozen=True, slots=True)
class DropRole:
    names: tuple[str, ...]
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """Accepted and without effect, because it says what is so anyway; `tag` is its command tag,
    `notice` what the client is shown.
    """

    tag: str
    notice: str = ""
    more: tuple[str, ...] = ()  # notices after the first
    sqlstate: str = "00000"  # of the notices


@dataclass(frozen=True, slots=True)
class Empty:
    """No statement at all."""


def shown(table: Table) -> tuple[TableColumn, ...]:
    """The columns that statements see."""
    return tuple(c for c in table.columns if c.state == "public" and not c.hidden)
