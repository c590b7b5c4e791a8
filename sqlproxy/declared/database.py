"""What one database declares, as of one moment: the names that statements are bound with, and what
is compiled once per version of a table.

It is immutable and the same object as long as nothing in the database changed, so it is part of the
key of a remembered plan. What a session has for itself (temporary tables) lies over it (`under`).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Final

from kv.base.ids import TableId
from sqlproxy.catalog import relations
from sqlproxy.catalog.privileges import Place
from sqlproxy.catalog.sequences import rowids
from sqlproxy.front.binding.scope import SystemView
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.front.functions.system_columns import without_row_number
from sqlproxy.pg.style import Style
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import Contents
from sqlproxy.pgcatalog.relations import FED, VIEW_OID
from sqlproxy.pgcatalog.row_indexes import primary_key_name
from sqlproxy.pgcatalog.static import CATALOG, KVORUM, function_columns, load
from sqlproxy.pgcatalog.views import VIEWS
from sqlproxy.rows.naming import PUBLIC, bare, named, schema_in, schema_of
from sqlproxy.rows.schema import ROWID, EnumType, ForeignKey, SqlFunction, Table, View
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.compile_rules import rules_of
from sqlproxy.values.enums import Enum, learn
from sqlproxy.values.errors import UNDEFINED_TABLE, WRONG_OBJECT_TYPE, SqlError

_PATHS_MAX: Final = 64  # that are kept


def name_of(one: Table | View | SequenceRow | EnumType | SqlFunction) -> str:
    """Its name, with its schema."""
    return named(schema_of(one.namespace), one.name)


def _bare(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Without what others say of them."""
    return {name: replace(t, referenced_by=(), version=0) for name, t in tables.items()}


class Declared:
    """Lookups by name and id: `front.binding.scope.Names`, `tables.referring.Tables`."""

    def __init__(
        self,
        found: relations.Relations,
        version: int,
        place: Place | None = None,
        schemas: Mapping[str, Place] | None = None,
    ) -> None:
        """`place`: whose the database is; `schemas`: those beside public, unless `found` says
        them.
        """
        if schemas is None:
            schemas = {
                schema_of(one.name): Place(one.name, one.owner, one.acl, one.schema_acl)
                for one in found.spaces
                if one.name != found.namespace
            }
        self.database: Final = found.namespace
        self.version: Final = version
        self.found: Final = found
        self.place: Final = place or Place(found.namespace)
        self.schemas = schemas
        self.path: tuple[str, ...] = (PUBLIC,)
        self.first: tuple[str, ...] = ()  # searched for relations before the path
        self.private = ""  # the schema of what the session has for itself
        self.whole = self  # as it is without a path of one's own …
        self.stored = self  # … and without what a session has for itself
        self._along: dict[tuple[str, ...], Declared] = {}
        self._public: Declared | None = None  # as what is kept as text is read
        self._tables: MutableMapping[str, Table] = {name_of(one): one for one in found.tables}
        self._by_id: MutableMapping[TableId, Table] = {one.id: one for one in found.tables}
        self._views: MutableMapping[str, View] = {name_of(one): one for one in found.views}
        self._sequences: MutableMapping[str, SequenceRow] = {
            name_of(one): one for one in found.sequences
        }
        self._types = {name_of(one): one for one in found.types}
        for one in found.types:
            learn(one.enum)
        self._by_name = {name_of(one): one for one in found.functions}
        self._functions: dict[str, list[SqlFunction]] = {}
        for function in found.functions:
            title = named(schema_of(function.namespace), function.title)
            self._functions.setdefault(title, []).append(function)
        self._indexes: MutableMapping[str, Table] = {
            named(schema_of(t.namespace), name): t
            for t in found.tables
            for name in (*(index.name for index in t.indexes), t.primary_key_name)
            if name
        }
        self._relations: Relations | None = None
        self._system_views: dict[str, SystemView] = {}
        self._writers: dict[int, TableWriter] = {}
        self._referring: MutableMapping[int, list[tuple[Table, ForeignKey]]] = {}
        for table in found.tables:
            for key in table.foreign_keys:
                self._referring.setdefault(key.table, []).append((table, key))
        self.contents = Contents(
            found.namespace,
            {int(one.id): one for one in found},
            dict(_comments(found)),
            types={one.id: one for one in found.types},
            functions={one.id: one for one in found.functions},
            schema_comment=self.place.schema_comment,
            schemas=schemas,
        )

    def along(self, path: tuple[str, ...]) -> Declared:
        """The same with the schemas that are searched for names without one: those of `path` that
        are there.
        """
        there = tuple(one for one in path if one == PUBLIC or one in self.schemas)
        if there == self.path:
            return self
        found = self.whole._along.get(there)
        if found is None:
            if there == (PUBLIC,):
                return self.whole
            found = copy(self.whole)
            found.path, found._relations = there, None
            if self.private in there:
                found.first = ()
            if len(self.whole._along) >= _PATHS_MAX:
                self.whole._along.clear()
            self.whole._along[there] = found
        return found

    def under(self, found: relations.Relations, schema: str, place: Place) -> Declared:
        """The same with what a session has for itself in a schema of its own, which is searched
        first.
        """
        own = Declared(found, self.version, self.place, {schema: place})
        made = copy(self.whole)
        made.whole, made._along, made._public, made._relations = made, {}, None, None
        made.first, made.private = (schema,), schema
        made.schemas = {**self.schemas, schema: place}
        made._tables = ChainMap(own._tables, self._tables)
        made._by_id = ChainMap(own._by_id, self._by_id)
        made._views = ChainMap(own._views, self._views)
        made._sequences = ChainMap(own._sequences, self._sequences)
        made._indexes = ChainMap(own._indexes, self._indexes)
        made._referring = ChainMap(own._referring, self._referring)
        made._writers = {}
        mine, theirs = own.contents, self.contents
        made.contents = replace(
            theirs,
            relations=ChainMap(dict(mine.relations), dict(theirs.relations)),
            comments={**theirs.comments, **mine.comments},
            schemas=made.schemas,
            private=schema,
        )
        return made

    def publicly(self) -> Declared:
        """As what is kept as text is read: the path is public alone."""
        if not self.private:
            return self.along((PUBLIC,))
        found = self.whole._public
        if found is None:
            found = self.whole._public = copy(self.whole)
            found.path, found.first, found._relations = (PUBLIC,), (), None
        return found

    def searched(self, name: str) -> str:
        """A relation's name without a schema, in the first schema of the path that has it; else in
        the first one; where there is none, the name is of nothing.
        """
        for schema in (*self.first, *self.path):
            found = named(schema, name)
            if any(
                found in known
                for known in (self._tables, self._views, self._sequences, self._indexes)
            ):
                return found
        return named(next(iter(self.path), ""), name)

    def taken(self, schema: str) -> set[str]:
        """The names of relations and indexes that there are in a schema."""
        every = (self._tables, self._views, self._sequences, self._indexes, self._types)
        return {bare(name) for known in every for name in known if schema_in(name) == schema}

    def extends(self, before: Declared) -> bool:
        """Whether all that was declared before is the same now, to whoever adds rows: that more
        tables refer to one is nothing to them.
        """
        pairs: Sequence[tuple[Mapping[str, object], Mapping[str, object]]] = (
            (_bare(self._tables), _bare(before._tables)),
            (self._views, before._views),
            (self._sequences, before._sequences),
            (self._types, before._types),
            (self._by_name, before._by_name),
        )
        return all(now.get(name) == one for now, then in pairs for name, one in then.items())

    def table(self, name: str) -> Table | None:
        return self._tables.get(name)

    def view(self, name: str) -> View | None:
        return self._views.get(name)

    def sequence(self, name: str) -> SequenceRow | None:
        return self._sequences.get(name)

    def enum(self, name: str) -> Enum | None:
        found = self._types.get(name)
        return None if found is None else found.enum

    def schema_said(self, enum: Enum) -> str:
        """The schema of a type where its name alone does not mean it, else ""."""
        for one in self._types.values():
            if one.enum.oid == enum.oid:
                schema = schema_of(one.namespace)
                here = (name for s in self.path if (name := named(s, enum.name)) in self._types)
                return "" if next(here, None) == named(schema, enum.name) else schema
        return ""

    def enum_type(self, name: str) -> EnumType | None:
        return self._types.get(name)

    def functions(self, title: str) -> Sequence[SqlFunction]:
        return self._functions.get(title, ())

    def function(self, name: str) -> SqlFunction | None:
        """By its name in the catalog."""
        return self._by_name.get(name)

    def index(self, name: str) -> Table | None:
        """The table that has the index, or the primary key, of that name."""
        return self._indexes.get(name)

    def named_relation(self, name: str) -> Table | View | SequenceRow:
        """Raises SqlError (42P01)."""
        found = self.table(name) or self.view(name) or self.sequence(name)
        if found is None:
            raise SqlError(UNDEFINED_TABLE, f'relation "{name}" does not exist')
        return found

    @property
    def tables(self) -> Iterable[Table]:
        return self._tables.values()

    def table_by_id(self, table: int) -> Table | None:
        return self._by_id.get(TableId(table))

    def relation_oid(self, table: int) -> int:
        return -table if table < 0 else oids.relation(table)

    def system_columns(self, schema: str, name: str) -> list[tuple[str, int, int]] | None:
        if schema == KVORUM:
            view = VIEWS.get(name)
            return None if view is None else [(one.name, one.type, -1) for one in view.columns]
        if name[-2:] == "()":
            return function_columns(name[:-2]) if schema == CATALOG else None
        found = load().layouts.get((schema, name))
        return None if found is None else [(one.name, one.type, one.typmod) for one in found]

    def system_view(self, schema: str, name: str) -> SystemView | None:
        path = f"{schema}.{name}"
        if name in FED or (text := load().views.get(path)) is None:
            return None
        return self._system_views.setdefault(path, SystemView(text))

    def relations(self) -> Relations:
        if self._relations is None:
            listed = [(schema, name, oid) for (schema, name), oid in load().relations.items()]
            listed += [(KVORUM, name, VIEW_OID + n) for n, name in enumerate(VIEWS)]
            for found in (self._tables, self._views, self._sequences):
                for one in found.values():
                    schema = schema_of(one.namespace)
                    listed.append((schema, one.name, oids.relation(int(one.id))))
            for table in self._tables.values():
                schema = schema_of(table.namespace)
                listed += [(schema, i.name, oids.relation(int(i.id))) for i in table.indexes]
                if table.primary_key_name or table.plain:
                    index = oids.primary_index(int(table.id))
                    listed.append((schema, primary_key_name(table), index))
            path = (*self.first, *self.path)
            numbers = [oids.relation(int(one.id)) for one in self._sequences.values()]
            self._relations = Relations(self.database, listed, path, self.schemas, numbers)
        return self._relations

    def referring_to(self, table: int) -> Sequence[tuple[Table, ForeignKey]]:
        return self._referring.get(table, ())

    def sequences_owned_by(self, table: int) -> list[SequenceRow]:
        return [s for s in self._sequences.values() if s.owned_by and s.owned_by[0] == table]

    def numbering(self, name: str) -> SequenceRow:
        """The sequence that `nextval` names, or that numbers a table's rows. Raises SqlError."""
        if name.startswith(f"{ROWID}:"):
            table = self._by_id.get(TableId(int(name.partition(":")[2])))
            if table is not None:
                return rowids(table)
        found = self._sequences.get(name)
        if found is None:
            if self.table(name) or self.view(name) or self.index(name):
                raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a sequence')
            raise SqlError(UNDEFINED_TABLE, f'relation "{name}" does not exist')
        return found

    def columns_named(self, number: int, columns: Sequence[int]) -> list[str]:
        """Columns of a relation (ids; of a view places from 1) by their names."""
        one = self.contents.relations[number]
        match one:
            case Table():
                return [one.by_id(column).name for column in columns]
            case View():
                return [one.columns[place - 1][0] for place in columns]
            case _:
                return []

    def names_by_kind(self, schema: str = PUBLIC) -> dict[str, list[str]]:
        """Everything that a DROP DATABASE or SCHEMA takes along, by the kind of its procedure."""
        kinds: dict[str, Iterable[Table | View | SequenceRow | EnumType | SqlFunction]] = {
            "View": self._views.values(),
            "Table": self._tables.values(),
            "Sequence": [one for one in self._sequences.values() if not one.owned_by],
            "Function": self._by_name.values(),
            "Enum": self._types.values(),
        }
        return {
            kind: sorted(one.name for one in there if schema_of(one.namespace) == schema)
            for kind, there in kinds.items()
        }

    def writer(self, table: Table) -> TableWriter:
        """What writes rows of a table, its rules compiled."""
        if self.stored is not self and not table.private and self.private:
            return self.stored.writer(table)
        table = without_row_number(table)
        found = self._writers.get(table.id)
        if found is None or (found.table is not table and found.table != table):
            owned = self.sequences_owned_by(table.id)
            numbered = {one.owned_by[1]: name_of(one) for one in owned if one.owned_by is not None}
            rules = rules_of(table, self.publicly(), Style(), numbered)
            found = self._writers[table.id] = TableWriter(table, rules)
        return found


def _comments(found: relations.Relations) -> Iterator[tuple[tuple[int, int], str]]:
    """(relation, column or 0) → what COMMENT ON said."""
    for table in found.tables:
        if table.comment:
            yield (int(table.id), 0), table.comment
        yield from (((int(table.id), c.id), c.comment) for c in table.columns if c.comment)
    others: tuple[View | SequenceRow, ...] = (*found.views, *found.sequences)
    for one in others:
        yield from (((int(one.id), place), text) for place, text in one.comments)
