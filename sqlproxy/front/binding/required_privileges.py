"""What a statement needs to be allowed, noted while it is bound
(`sqlproxy.catalog.privileges.Need`).

A view's query is bound inside the statement, as its owner. The target of UPDATE, DELETE and
INSERT … ON CONFLICT needs SELECT only if a column of it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kv.base.rights import OWNER
from sqlproxy.catalog.privileges import Need
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.bound.exprs import Column, Const, Default, Expr, walk
from sqlproxy.front.bound.statements import TableItem, Target
from sqlproxy.front.functions.regclass import name_parts
from sqlproxy.front.syntax.syntax import find, parse_expression, strings
from sqlproxy.front.types.quoting import read_relation
from sqlproxy.rows.naming import PUBLIC
from sqlproxy.rows.schema import Column as TableColumn
from sqlproxy.rows.schema import Table, View

_SEQUENCES = {"nextval_oid": "Uw", "currval_oid": "Ur", "setval_oid": "w", "setval3_oid": "w"}


class Needs:
    """Of one statement."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._found: dict[Need, None] = {}
        self._defaults: dict[Need, None] = {}  # of sequences: asked for after the tables
        self._owner: str | None = None
        self._read: set[int] = set()  # tables of which a column was named

    def all(self) -> tuple[Need, ...]:
        return tuple({**self._found, **self._defaults})

    def clear(self) -> None:
        """What was bound is not run now (CREATE VIEW)."""
        self._found.clear()
        self._defaults.clear()

    @contextmanager
    def inside(self, view: View) -> Iterator[None]:
        """What is bound now is the view's."""
        self.on(view.id, "r")
        outer, self._owner = self._owner, view.owner or OWNER
        try:
            yield
        finally:
            self._owner = outer

    @contextmanager
    def called(self, schema: str) -> Iterator[None]:
        """What is bound now is a function's of that schema, which runs as who asks, also inside a
        view: its owner may put another body there.
        """
        if self._owner is None:
            self._found[Need(0, "U", schema=schema)] = None
        outer, self._owner = self._owner, None
        try:
            yield
        finally:
            self._owner = outer

    def named(self, text: str) -> None:
        """A relation whose name is a text: USAGE of the schema that it says."""
        for schema in name_parts(text)[-2:-1]:
            if self._owner is None and (schema == PUBLIC or schema in self._names.schemas):
                self._found[Need(0, "U", schema=schema)] = None

    def on(self, relation: int, any_of: str) -> None:
        """One of these privileges."""
        self._found[Need(int(relation), any_of, self._owner)] = None

    def saw(self, expr: Expr) -> None:
        """A column was named."""
        if isinstance(expr, Column) and expr.table:
            self._read.add(expr.table)

    def changes(
        self, target: TableItem, any_of: str, returning: Iterable[Target] = (), *, reads: bool
    ) -> None:
        """The target of a change, when all of it is bound; `reads`: it does anyway."""
        table = target.table
        self.on(table.id, any_of)
        named = any(isinstance(e, Column) for t in returning for e in walk(t.expr))
        if reads or named or table.id in self._read:
            self.on(table.id, "r")

    def numbers(
        self, table: Table, columns: Sequence[TableColumn], rows: Sequence[Sequence[Expr]] = ()
    ) -> None:
        """The sequences of what is not among these columns, or is DEFAULT in one of these rows.
        Those of identities are the table's own matter.
        """
        given = {column.id: at for at, column in enumerate(columns)}
        for column in table.columns:
            at = given.get(column.id)
            if at is None or any(isinstance(row[at], Default) for row in rows):
                self.default(column)

    def default(self, column: TableColumn) -> None:
        """It gets its default."""
        if column.identity or column.hidden or not column.computed:
            return
        if column.sequence:
            self._defaults[Need(int(column.sequence), "Uw", self._owner)] = None
            return
        for call in find(parse_expression(column.default_sql or "NULL"), "FuncCall"):
            if strings(call["funcname"])[-1] == "nextval":
                for constant in find(call, "A_Const"):
                    text = constant.get("sval", {}).get("sval", "")
                    self._sequence(read_relation(text), "Uw")

    def call(self, source: str, args: tuple[Expr, ...]) -> None:
        """A function, by the name of its body in PostgreSQL."""
        any_of = _SEQUENCES.get(source)
        if any_of is None:
            return
        if isinstance(args[0], Const) and isinstance(args[0].value, str):
            self._sequence(read_relation(args[0].value), any_of)
        else:
            self._found[Need(0, any_of, self._owner)] = None

    def _sequence(self, name: str, any_of: str) -> None:
        found = self._names.sequence(name)
        if found is not None:
            self.on(found.id, any_of)
