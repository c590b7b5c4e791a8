"""The DuckDB that holds the system tables. One database in memory per process; a schema `pgc`
with what is the same everywhere, a schema for each of our databases with the tables that its
objects change.

Every statement runs on a cursor of its own (its own connection to the same data), in whatever
thread; changes are one transaction each, so a statement sees a database before or after one,
never between. Reaching files or the network is switched off.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

import duckdb
import pyarrow as pa

from kv.base.limits import (
    SQL_CATALOG_BYTES_MAX,
    SQL_CATALOG_DATABASES_MAX,
    SQL_CATALOG_STALE_MAX,
)
from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import computed, held_types, oids, rights, rows
from sqlproxy.pgcatalog.contents import Cluster, Contents
from sqlproxy.pgcatalog.fixed_rows import fixed, split
from sqlproxy.pgcatalog.functions import MACROS
from sqlproxy.pgcatalog.relations import FUNCTIONS, Relations
from sqlproxy.pgcatalog.row_bases import CHANGING, HIDDEN, Facts, Row, Rows
from sqlproxy.pgcatalog.row_cluster import SHARED, of_cluster, of_schema
from sqlproxy.pgcatalog.static import CATALOG, INFORMATION, KVORUM, Static
from sqlproxy.values.words import words

_ARROW: Final = {
    "BOOLEAN": pa.bool_(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP": pa.timestamp("us"),
    "DATE": pa.date32(),
    "INTERVAL": pa.duration("us"),
}
_SETTINGS: Final = (
    "SET GLOBAL integer_division = true",
    "SET GLOBAL default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "SET GLOBAL TimeZone = 'UTC'",
)
# Tables are small and statements are long: most of the time is planning. These are worth theirs.
_OPTIMIZERS: Final = words(
    """
    filter_pushdown filter_pullup deliminator unnest_rewriter unused_columns in_clause cte_inlining
    join_order build_side_probe_side expression_rewriter column_lifetime limit_pushdown top_n
    """
)


def arrow(held: str) -> pa.DataType:
    if held.endswith("[]"):
        return pa.list_(arrow(held[:-2]))
    return _ARROW.get(held, pa.string())


class Store:
    """Not for several threads at once, except `cursor`."""

    def __init__(self, static: Static, relations: Relations) -> None:
        self._static = static
        self._facts = Facts(static)
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[str, Contents]] = OrderedDict()
        self._stale: dict[str, int] = {}
        self._made = 0
        self._cluster: Cluster | None = None
        self._db = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "memory_limit": f"{SQL_CATALOG_BYTES_MAX // (1 << 20)}MB",
                "enable_external_access": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        for text in _SETTINGS:
            self._db.execute(text)
        every = self._db.execute("SELECT name FROM duckdb_optimizers()").fetchall()
        needless = ",".join(name for (name,) in every if name not in _OPTIMIZERS)
        self._db.execute(f"SET GLOBAL disabled_optimizers = '{needless}'")
        self._layouts = {name: self._layout(name) for name in CHANGING}
        self._fill(relations)

    # -- what is the same everywhere

    def _layout(self, name: str) -> list[tuple[str, str]]:
        """A table's columns in DuckDB, those for our own functions and the owner after."""
        plain = [(c.name, self._held(c.type)) for c in self._static.layouts[CATALOG, name]]
        return [
            *plain,
            *HIDDEN.get(name, ()),
            *([("_owner", "BIGINT")] if name in CHANGING else []),
        ]

    def _held(self, oid: int) -> str:
        if oid == types.REGTYPE:
            return "BIGINT"
        return held_types.held(oid, self._static.element_of(oid))

    def _fill(self, relations: Relations) -> None:
        db = self._db
        db.execute("CREATE SCHEMA pgc")
        db.execute("USE pgc")
        computed.register(db)
        for text in (*MACROS, *rights.MACROS):
            db.execute(text)
        for (schema, name), relation in relations.all.items():
            if relation.sql and not relation.feed and schema != KVORUM:
                self._create("pgc", relation.sql, self._layout_of(schema, name))
        for name in fixed().names:
            self._load(name)
        keywords = self._static.feeds["pg_get_keywords"]
        layout = [(n, self._held(oid)) for n, oid in keywords["columns"]]
        self._create("pgc", FUNCTIONS["pg_get_keywords"], layout)
        self._insert(
            f"pgc.{FUNCTIONS['pg_get_keywords']}", layout, list(zip(*keywords["rows"], strict=True))
        )

    def _layout_of(self, schema: str, name: str) -> list[tuple[str, str]]:
        if schema == CATALOG and (name in CHANGING or name in HIDDEN):
            return self._layout(name)
        return [(c.name, self._held(c.type)) for c in self._static.layouts[schema, name]]

    def _create(self, schema: str, name: str, layout: Iterable[tuple[str, str]]) -> None:
        listed = ", ".join(f'"{column}" {held}' for column, held in layout)
        self._db.execute(f"CREATE TABLE {schema}.{name} ({listed})")

    def _load(self, name: str) -> None:
        """Rows that are the same everywhere."""
        schema, table = split(name)
        layout = self._layout_of(schema, table)
        columns, count = fixed().columns(name), fixed().count(name)
        listed = [columns.get(column, [None] * count) for column, _ in layout]
        target = f"k_is_{table}" if schema == INFORMATION else f"k_{table}"
        self._insert(f"pgc.{target}", layout, listed)

    # -- rows

    def _insert(
        self, table: str, layout: Sequence[tuple[str, str]], columns: Sequence[Sequence[object]]
    ) -> None:
        if not columns or not len(columns[0]):
            return
        arrays = [
            pa.array([held_types.fit(v, held) for v in values], arrow(held))
            for (_, held), values in zip(layout, columns, strict=True)
        ]
        batch = pa.table(arrays, names=[n for n, _ in layout])
        self._db.register("kv_incoming", batch)
        try:
            self._db.execute(f"INSERT INTO {table} SELECT * FROM kv_incoming")
        finally:
            self._db.unregister("kv_incoming")

    def _insert_rows(
        self, table: str, layout: Sequence[tuple[str, str]], made: Sequence[Row]
    ) -> None:
        self._insert(table, layout, [[row.get(name) for row in made] for name, _ in layout])

    # -- what changes

    def follow(self, cluster: Cluster, contents: Contents) -> str:
        """Make the tables say what there is now; the search path for statements of this
        database.
        """
        with self._lock:
            if cluster != self._cluster:
                self._follow_cluster(cluster)
            known = self._known.get(contents.database)
            if known is None:
                known = self._open(contents.database)
            schema, before = known
            self._known.move_to_end(contents.database)
            if before is not contents:
                self._follow(schema, before, contents)
                self._comment_schema(schema, contents.schema_comment)
                self._list_schemas(schema, contents)
                self._known[contents.database] = schema, contents
            return f"{schema},pgc"

    def _comment_schema(self, schema: str, comment: str | None) -> None:
        where = f"classoid = {oids.PG_NAMESPACE} AND objoid = {oids.PUBLIC_SCHEMA}"
        self._db.execute(f"DELETE FROM {schema}.k_pg_description WHERE {where}")
        layout = self._layouts["pg_description"]
        self._insert_rows(f"{schema}.k_pg_description", layout, of_schema(comment))

    def _list_schemas(self, schema: str, contents: Contents) -> None:
        table, layout = f"{schema}.k_pg_namespace", self._layouts["pg_namespace"]
        self._db.execute(f"DELETE FROM {table} WHERE oid > {oids.FIRST}")
        self._insert_rows(table, layout, rows.of_schemas(contents))

    def _open(self, database: str) -> tuple[str, Contents]:
        while len(self._known) >= SQL_CATALOG_DATABASES_MAX:
            _, (schema, _) = self._known.popitem(last=False)
            self._db.execute(f"DROP SCHEMA {schema} CASCADE")
        self._made += 1
        schema = f"d{self._made}"
        self._db.execute(f"CREATE SCHEMA {schema}")
        for name in CHANGING:
            self._db.execute(f"CREATE TABLE {schema}.k_{name} AS SELECT * FROM pgc.k_{name}")
        self._known[database] = schema, Contents(database)
        self._stale[schema] = 0
        return self._known[database]

    def _follow(self, schema: str, before: Contents, after: Contents) -> None:
        old, new = before.everything, after.everything
        gone = {id for id in old if id not in new}
        changed = {id for id, one in new.items() if old.get(id) is not one}
        if before.comments != after.comments:
            pairs = set(before.comments.items()) ^ set(after.comments.items())
            changed |= {id for (id, _), _ in pairs if id in new}
        if not gone and not changed:
            return
        touched = rows.dependents(after, changed) | rows.dependents(
            before, gone | (changed & set(old))
        )
        again = {id for id in touched if id in new}
        replaced = touched & set(old)
        self._stale[schema] += len(replaced)
        if self._stale[schema] > SQL_CATALOG_STALE_MAX * max(len(new), 256):
            again, replaced = set(new), set(old)
            self._empty(schema)
        self._replace(schema, after, replaced, again)

    def _empty(self, schema: str) -> None:
        """Deleted rows stay in memory until a table is made anew."""
        for name in CHANGING:
            self._db.execute(
                f"CREATE OR REPLACE TABLE {schema}.k_{name} AS SELECT * FROM pgc.k_{name}"
            )
        self._stale[schema] = 0

    def _replace(self, schema: str, contents: Contents, old: set[int], new: set[int]) -> None:
        made: Rows = {name: [] for name in CHANGING}
        everything = contents.everything
        for id in sorted(new):
            for name, listed in rows.of_relation(self._facts, contents, everything[id]).items():
                made[name] += listed
        self._db.execute("BEGIN")
        try:
            for name in CHANGING:
                if old:
                    ids = ", ".join(map(str, sorted(old)))
                    self._db.execute(f"DELETE FROM {schema}.k_{name} WHERE _owner IN ({ids})")
                self._insert_rows(f"{schema}.k_{name}", self._layouts[name], made[name])
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _follow_cluster(self, cluster: Cluster) -> None:
        made = of_cluster(cluster)
        self._db.execute("BEGIN")
        try:
            for name in SHARED:
                kept = " WHERE rolname NOT LIKE 'pg\\_%' ESCAPE '\\'" if name == "pg_authid" else ""
                self._db.execute(f"DELETE FROM pgc.k_{name}{kept}")
                self._insert_rows(f"pgc.k_{name}", self._layout_of(CATALOG, name), made[name])
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._cluster = cluster

    # -- statements

    def cursor(self, path: str) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the same data, for one statement."""
        made = self._db.cursor()
        made.execute(f"SET search_path = '{path}'")
        return made

    def memory(self) -> int:
        """Bytes that DuckDB holds."""
        found = self._db.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()
        return int(found[0]) if found else 0

    def close(self) -> None:
        self._db.close()
