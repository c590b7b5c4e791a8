"""The DuckDB that holds the system tables. One database in memory per process; a schema `pgc`
with what is the same everywhere, a schema for each of our databases with the tables that its
objects change.

Every statement runs on a cursor of its own (its own connection to the same data), in whatever
thread; changes are one transaction each, so a statement sees a database before or after one,
never between. Reaching files or the network is switched off.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import duckdb
import pyarrow as pa

from kv.base.limits import (
    SQL_CATALOG_BYTES_MAX,
    SQL_CATALOG_DATABASES_MAX,
    SQL_CATALOG_STALE_MAX,
)
from sqlproxy.catalog.privileges import Place
from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import computed, definitions, held_types, oids, rights, rows
from sqlproxy.pgcatalog.contents import Cluster, Contents
from sqlproxy.pgcatalog.functions import MACROS
from sqlproxy.pgcatalog.relations import FUNCTIONS, VIEW_OID, Relations
from sqlproxy.pgcatalog.row_bases import (
    ATTRIBUTE,
    CHANGING,
    HIDDEN,
    PATH,
    Facts,
    Row,
    Rows,
    class_row,
    depends,
)
from sqlproxy.pgcatalog.static import CATALOG, INFORMATION, KVORUM, Static
from sqlproxy.pgcatalog.views import VIEWS
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
_WHOLE: Final = ("SMALLINT", "INTEGER", "BIGINT")
_SHARED: Final = ("pg_database", "pg_authid", "pg_auth_members", "pg_shdescription")
_STANDARD: Final = "standard public schema"  # PostgreSQL's comment on it


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
        for name, listed in self._static.rows.items():
            self._load(name, listed)
        for name in ("pg_extension", "pg_depend"):
            self._insert_rows(f"pgc.k_{name}", self._layout_of(CATALOG, name), self._built_in(name))
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

    def _load(self, name: str, listed: list[list[object]]) -> None:
        """Recorded rows; those that only our functions see are computed."""
        schema, _, table = name.rpartition(".")
        layout = self._layout_of(schema or CATALOG, table)
        by_name: dict[str, Sequence[Any]] = {
            c.name: listed[n] for n, c in enumerate(self._static.layouts[schema or CATALOG, table])
        }
        first = len(by_name)
        hidden = self._static.hidden.get(table, ())
        by_name |= {c: listed[first + n] for n, c in enumerate(hidden)}
        count = len(listed[0])
        if table == "pg_class":
            by_name |= self._names(by_name)
        if table == "pg_index":
            by_name["_short"] = [_short(text) for text in by_name["_def"]]
            named = self._attributes()
            by_name["_columns"] = [named.get(oid) for oid in by_name["indexrelid"]]
        by_name["_owner"] = [0] * count
        columns = [by_name.get(column, [None] * count) for column, _ in layout]
        target = f"k_is_{table}" if schema == INFORMATION else f"k_{table}"
        self._insert(f"pgc.{target}", layout, columns)
        if table in ("pg_class", "pg_attribute", "pg_namespace"):
            self._our_views(table, layout)

    def _attributes(self) -> dict[int, list[str]]:
        """The columns of each recorded relation, in order."""
        layout = [c.name for c in self._static.layouts[CATALOG, "pg_attribute"]]
        recorded = self._static.rows["pg_attribute"]
        wanted = ("attrelid", "attnum", "attname")
        found: dict[int, list[str]] = {}
        for oid, _, name in sorted(zip(*(recorded[layout.index(c)] for c in wanted), strict=True)):
            found.setdefault(oid, []).append(definitions.quoted(name))
        return found

    def _names(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[object]]:
        schemas = {oid: name for name, oid in self._static.schemas.items()}
        named = [
            (schemas[space], name)
            for space, name in zip(columns["relnamespace"], columns["relname"], strict=True)
        ]
        return {
            "_name": [definitions.quoted(n) for _, n in named],
            "_qname": [f"{s}.{definitions.quoted(n)}" for s, n in named],
            "_path": [f"{s}{PATH}{n}" for s, n in named],
            "_view": [self._static.views.get(f"{s}.{n}") for s, n in named],
        }

    @staticmethod
    def _built_in(table: str) -> list[Row]:
        """The kvorum views belong to an extension that is there from the start, so that no dump
        makes them anew.
        """
        if table == "pg_extension":
            return [
                {
                    "oid": oids.KVORUM_EXTENSION,
                    "extname": KVORUM,
                    "extowner": oids.BOOTSTRAP_ROLE,
                    "extnamespace": oids.KVORUM_SCHEMA,
                    "extrelocatable": False,
                    "extversion": "1.0",
                    "_owner": 0,
                }
            ]
        members = [(oids.PG_NAMESPACE, oids.KVORUM_SCHEMA)]
        members += [(oids.PG_CLASS, VIEW_OID + number) for number in range(len(VIEWS))]
        return [
            {**depends(kind, oid, oids.PG_EXTENSION, oids.KVORUM_EXTENSION, 0, "e"), "_owner": 0}
            for kind, oid in members
        ]

    def _our_views(self, table: str, layout: list[tuple[str, str]]) -> None:
        """The kvorum views as relations of their own schema."""
        made: list[Row] = []
        if table == "pg_namespace":
            made = [{"oid": oids.KVORUM_SCHEMA, "nspname": KVORUM, "nspowner": oids.BOOTSTRAP_ROLE}]
        for number, view in enumerate(VIEWS.values()):
            oid = VIEW_OID + number
            if table == "pg_class":
                made.append(
                    {
                        **class_row(
                            oid, view.name, "v", relnatts=len(view.columns), relhasrules=True
                        ),
                        "relnamespace": oids.KVORUM_SCHEMA,
                        "_qname": f"kvorum.{view.name}",
                        "_path": f"kvorum{PATH}{view.name}",
                        "_view": f" -- {view.what}",
                        "_owner": 0,
                    }
                )
            elif table == "pg_attribute":
                made += [
                    {
                        **ATTRIBUTE,
                        **self._facts.of(column.type),
                        "attrelid": oid,
                        "attname": column.name,
                        "attnum": at,
                        "_owner": 0,
                    }
                    for at, column in enumerate(view.columns, 1)
                ]
        self._insert_rows(f"pgc.k_{table}", layout, made)

    # -- rows

    def _insert(
        self, table: str, layout: Sequence[tuple[str, str]], columns: Sequence[Sequence[object]]
    ) -> None:
        if not columns or not len(columns[0]):
            return
        arrays = [
            pa.array([_fit(v, held) for v in values], arrow(held))
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
                self._known[contents.database] = schema, contents
            return f"{schema},pgc"

    def _comment_schema(self, schema: str, comment: str | None) -> None:
        text = _STANDARD if comment is None else comment
        where = f"classoid = {oids.PG_NAMESPACE} AND objoid = {oids.PUBLIC_SCHEMA}"
        self._db.execute(f"DELETE FROM {schema}.k_pg_description WHERE {where}")
        row = {
            "objoid": oids.PUBLIC_SCHEMA,
            "classoid": oids.PG_NAMESPACE,
            "objsubid": 0,
            "description": text,
            "_owner": 0,
        }
        layout = self._layouts["pg_description"]
        self._insert_rows(f"{schema}.k_pg_description", layout, [row] if text else [])

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
        roles = {
            role.name: oids.role(role.name, first=not n) for n, role in enumerate(cluster.roles)
        }
        places = {place.name: place for place in cluster.places}
        members = rights.of_roles(cluster)
        made: Rows = {
            "pg_authid": [
                {
                    "oid": roles[r.name],
                    "rolname": r.name,
                    "rolsuper": r.superuser,
                    "rolinherit": r.inherit,
                    "rolcreaterole": r.create_role,
                    "rolcreatedb": r.create_database,
                    "rolcanlogin": r.login,
                    "rolreplication": r.superuser,
                    "rolbypassrls": r.superuser,
                    "rolconnlimit": -1,
                    "_roles": members[r.name],
                }
                for r in cluster.roles
            ],
            "pg_auth_members": [
                {
                    "roleid": roles[of],
                    "member": roles[r.name],
                    "grantor": oids.BOOTSTRAP_ROLE,
                    "admin_option": False,
                }
                for r in cluster.roles
                for of in r.member_of
                if of in roles
            ],
            "pg_database": [
                {
                    "oid": oids.database(name),
                    "datname": name,
                    "encoding": 6,
                    "datlocprovider": "c",
                    "datistemplate": False,
                    "datallowconn": True,
                    "datconnlimit": -1,
                    "datfrozenxid": 0,
                    "datminmxid": 0,
                    "dattablespace": 1663,
                    "datcollate": "C.UTF-8",
                    "datctype": "C.UTF-8",
                    **rights.of_database(places.get(name) or Place(name)),
                }
                for name in cluster.databases
            ],
        }
        made["pg_shdescription"] = [
            {
                "objoid": oids.database(place.name),
                "classoid": oids.PG_DATABASE,
                "description": place.comment,
            }
            for place in cluster.places
            if place.comment
        ]
        self._db.execute("BEGIN")
        try:
            for name in _SHARED:
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


def _fit(value: Any, held: str) -> object:
    """Recorded values of types that DuckDB holds otherwise: unusual ones as text, domains as what
    they are made of.
    """
    if value is None or isinstance(value, str) == (held == "VARCHAR"):
        return value
    return str(value) if held == "VARCHAR" else int(value) if held in _WHOLE else value


def _short(definition: str) -> str:
    """Without the schema, as psql asks for it."""
    return definition.replace(" ON pg_catalog.", " ON ").replace(" ON information_schema.", " ON ")
