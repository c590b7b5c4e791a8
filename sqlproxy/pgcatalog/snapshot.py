"""The system tables of one database as of one moment, as functions ask them
(`front.bound.env.Catalog`): rows by the values of columns. Nothing is made before it is asked for.

A relation of a user's that did not change keeps the rows that were made of it before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, overload

from sqlproxy.front.bound.by_columns import ByColumns
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import rows
from sqlproxy.pgcatalog.contents import NO_SIZES, Cluster, Contents, Named, Sized
from sqlproxy.pgcatalog.fixed_rows import Fixed, fixed, split
from sqlproxy.pgcatalog.oids import PG_NAMESPACE, PUBLIC_SCHEMA, relation
from sqlproxy.pgcatalog.row_bases import CHANGING, Facts, Row, Rows
from sqlproxy.pgcatalog.row_cluster import SHARED, of_cluster, of_schema
from sqlproxy.pgcatalog.static import CATALOG, load
from sqlproxy.rows.schema import EnumType, SqlFunction

_Index = dict[object, list[int]]
_TEXTS: Final = types.OF_CATALOG | {types.TEXT, types.VARCHAR, types.NAME, types.CHAR}
_NUMBERS: Final = types.NAMES_OF_OBJECTS | {
    types.INT2,
    types.INT4,
    types.INT8,
    types.OID,
    types.XID,
}


class Snapshot:
    """`before`: an earlier one of the database. In a thread: there may be many relations."""

    def __init__(
        self,
        cluster: Cluster,
        contents: Contents,
        before: Snapshot | None = None,
        sizes: Mapping[int, Sized] = NO_SIZES,
    ) -> None:
        self.cluster: Final = cluster
        self.contents: Final = contents
        self.sizes: Final = sizes
        self._fixed: Final[Fixed] = fixed()
        self._made = _made(contents, before)
        self._own: dict[str, list[Row]] = {
            name: [row for of in self._made.values() for row in of[name]] for name in CHANGING
        }
        self._own["pg_description"] += of_schema(contents.schema_comment)
        self._own["pg_namespace"] += rows.of_schemas(contents)
        self._own |= of_cluster(cluster)
        sized = {relation(one): sizes[one] for one in contents.relations if one in sizes}
        if sized:
            self._own["pg_class"] = [_sized(row, sized) for row in self._own["pg_class"]]
        self._columns: dict[tuple[str, str], list[object]] = {}
        self._indexes: dict[tuple[str, str], _Index] = {}
        self._tables: dict[str, TableRows] = {}

    def table(self, relation: str) -> TableRows:
        found = self._tables.get(relation)
        if found is None:
            found = self._tables[relation] = TableRows(self, relation)
        return found

    def has(self, relation: str) -> bool:
        """Whether it is a table of which it has the rows."""
        return relation in self._own or relation in self._fixed.names

    def column(self, relation: str, name: str) -> list[Any]:
        """All its values, those of rows that are the same everywhere first."""
        found = self._columns.get((relation, name))
        if found is None:
            own = [row.get(name) for row in self._own.get(relation, ())]
            found = self._columns[relation, name] = [*self._base(relation, name), *own]
        return found

    def _base(self, relation: str, name: str) -> Sequence[object]:
        if relation in SHARED and relation != "pg_authid":
            return ()
        columns = self._fixed.columns(relation)
        found: Sequence[object] = columns.get(name) or [None] * self._fixed.count(relation)
        if relation == "pg_authid":  # the recorded server's own users are none of ours
            kept = [one.startswith("pg_") for one in columns["rolname"]]
        elif relation == "pg_description":
            kept = [
                (of, oid) != (PG_NAMESPACE, PUBLIC_SCHEMA)
                for of, oid in zip(columns["classoid"], columns["objoid"], strict=True)
            ]
        else:
            return found
        return [value for value, keep in zip(found, kept, strict=True) if keep]

    def _places(self, relation: str, name: str, value: object) -> Sequence[int]:
        index = self._indexes.get((relation, name))
        if index is None:
            index = {}
            for at, one in enumerate(self.column(relation, name)):
                index.setdefault(one, []).append(at)
            self._indexes[relation, name] = index  # other threads find it whole
        return index.get(value, ())

    def find(self, relation: str, column: str, **where: object) -> list[Any]:
        """See `front.bound.env.Catalog`."""
        first, *others = where
        values = self.column(relation, column)
        places = self._places(relation, first, where[first])
        if not others:
            return [values[at] for at in places]
        rest = [(self.column(relation, name), where[name]) for name in others]
        return [values[at] for at in places if all(listed[at] == value for listed, value in rest)]


def _sized(row: Row, sized: Mapping[Any, Sized]) -> Row:
    """A row of pg_class with what is known of the relation's size."""
    size = sized.get(row["oid"])
    if size is None:
        return row
    return {**row, "reltuples": float(size.rows), "relpages": size.pages}


def _made(contents: Contents, before: Snapshot | None) -> dict[int, Rows]:
    """Of each relation and type of users', by its id."""
    new = contents.everything
    kept: dict[int, Rows] = {}
    if before is not None:
        old = before.contents.everything
        changed: set[int] = {id for id, one in new.items() if old.get(id) is not one}
        pairs = set(before.contents.comments.items()) ^ set(contents.comments.items())
        changed |= {id for (id, _), _ in pairs}
        touched = rows.dependents(contents, changed)
        touched |= rows.dependents(before.contents, changed | (set(old) - set(new)))
        kept = {id: made for id, made in before._made.items() if id not in touched}
    facts = Facts(load())

    def of(id: int, one: Named | EnumType | SqlFunction) -> Rows:
        found = kept.get(id)
        return rows.of_relation(facts, contents, one) if found is None else found

    return {id: of(id, one) for id, one in sorted(new.items())}


class TableRows(ByColumns):
    """All rows of a system table, as columns of its layout."""

    def __init__(self, snapshot: Snapshot, name: str) -> None:
        super().__init__()
        self._snapshot, self._name = snapshot, name
        self._layout = load().layouts[split(name)]

    def __len__(self) -> int:
        return len(self._snapshot.column(self._name, self._layout[0].name))

    def column(self, place: int) -> Sequence[object]:
        """In user form: some were recorded as text, domains as what they are made of."""
        column = self._layout[place]
        values = self._snapshot.column(self._name, column.name)
        if column.type in _TEXTS:
            return [v if v is None or isinstance(v, str) else str(v) for v in values]
        if column.type in _NUMBERS:
            return [int(v) if isinstance(v, str) else v for v in values]
        return values

    @overload
    def __getitem__(self, at: int) -> Sequence[object]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sequence[object]]: ...
    def __getitem__(self, at: int | slice) -> Sequence[object] | Sequence[Sequence[object]]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        return [self.column(place)[at] for place in range(len(self._layout))]


class Asked:
    """What one statement asks of a snapshot, with the facts that it wants."""

    def __init__(
        self, snapshot: Snapshot, relations: Relations, facts: Mapping[str, object]
    ) -> None:
        self._snapshot, self._relations, self._facts = snapshot, relations, facts
        self.moment: Final[object] = snapshot
        self.reported: dict[str, Sequence[Sequence[object]]] = {}  # rows of what is no table

    def find(self, relation: str, column: str, **where: object) -> list[Any]:
        """See `front.bound.env.Catalog`."""
        return self._snapshot.find(relation, column, **where)

    def get(self, relation: str, column: str, **where: object) -> Any:
        """See `front.bound.env.Catalog`."""
        found = self._snapshot.find(relation, column, **where)
        return found[0] if found else None

    def relation(self, name: str) -> int:
        """See `front.bound.env.Catalog`."""
        return self._relations.oid(self._relations.must(name))

    def rows(self, relation: str) -> Sequence[Sequence[object]] | None:
        """See `front.bound.env.Catalog`."""
        name = relation.removeprefix(f"{CATALOG}.")
        return (
            self._snapshot.table(name) if self._snapshot.has(name) else self.reported.get(relation)
        )

    def fact(self, name: str) -> Any:
        """See `front.bound.env.Catalog`."""
        return self._facts[name]
