"""The relations that a statement may name: PostgreSQL's system tables and views, and Kvorum's
views.

A system table is DuckDB's `k_NAME`; views of PostgreSQL are put in place as their own text; what is
*fed* (sessions, settings, procedures, …) are rows given with each execution, as `kv_NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlproxy.pgcatalog.static import CATALOG, INFORMATION, KVORUM, Column, Static
from sqlproxy.pgcatalog.views import VIEWS

# PostgreSQL's views over the state of a server: their rows are given by who knows it, or are none.
FED: Final = (
    "pg_stat_activity",
    "pg_locks",
    "pg_prepared_statements",
    "pg_cursors",
    "pg_prepared_xacts",
    "pg_settings",
    "pg_file_settings",
    "pg_hba_file_rules",
    "pg_config",
    "pg_shmem_allocations",
    "pg_backend_memory_contexts",
    "pg_stat_replication",
    "pg_stat_wal_receiver",
    "pg_stat_ssl",
    "pg_stat_gssapi",
    "pg_replication_slots",
    "pg_stat_progress_analyze",
    "pg_stat_progress_vacuum",
    "pg_stat_progress_cluster",
    "pg_stat_progress_create_index",
    "pg_stat_progress_basebackup",
    "pg_stat_progress_copy",
    "pg_stat_bgwriter",
    "pg_stat_wal",
    "pg_stat_archiver",
    "pg_stat_slru",
    "pg_stat_subscription",
    "pg_stat_subscription_stats",
    "pg_stat_replication_slots",
    "pg_stat_recovery_prefetch",
    "pg_stat_statements",
    "pg_available_extensions",
    "pg_available_extension_versions",
    "pg_timezone_names",
    "pg_timezone_abbrevs",
    "pg_ident_file_mappings",
    "pg_stats",
    "pg_stats_ext",
    "pg_stats_ext_exprs",
    "pg_rules",
    "pg_policies",
    "pg_seclabels",
    "pg_replication_origin_status",
    "pg_publication_tables",
    "pg_user_mappings",
    "pg_stat_database",
    "pg_stat_database_conflicts",
    "pg_stat_xact_all_tables",
    "pg_stat_xact_sys_tables",
    "pg_stat_xact_user_tables",
    "pg_stat_xact_user_functions",
    "pg_stat_user_functions",
)
_KEYED: Final = {
    "pg_index": ("indexrelid",),
    "pg_attribute": ("attrelid", "attnum"),
    "pg_sequence": ("seqrelid",),
    "pg_range": ("rngtypid",),
}
VIEW_OID: Final = 16_000  # of the kvorum views, in the order of VIEWS; below what users' have
FUNCTIONS: Final = {
    "pg_get_keywords": "k_fn_pg_get_keywords",
    "pg_show_all_settings": "kv_settings_all",
}


@dataclass(frozen=True, slots=True)
class Shown:
    name: str
    sql: str
    type: int
    typmod: int = -1


@dataclass(frozen=True, slots=True)
class Relation:
    """`sql`: its name in DuckDB. `view`: the text to put in its place. `feed`: its rows are given
    with each execution under this name.
    """

    schema: str
    name: str
    oid: int
    columns: tuple[Shown, ...]
    sql: str = ""
    view: str = ""
    feed: str = ""
    key: tuple[str, ...] = ()


class Relations:
    def __init__(self, static: Static) -> None:
        self.all: dict[tuple[str, str], Relation] = {}
        for (schema, name), layout in static.layouts.items():
            self.all[schema, name] = self._system(static, schema, name, layout)
        for number, view in enumerate(VIEWS.values()):
            columns = tuple(Shown(c.name, f'"{c.name}"', c.type) for c in view.columns)
            self.all[KVORUM, view.name] = Relation(
                KVORUM,
                view.name,
                VIEW_OID + number,
                columns,
                f"kv_{view.name}",
                feed=f"kv_{view.name}",
            )
        self._functions = {
            name: self._function(static, name, sql) for name, sql in FUNCTIONS.items()
        }

    def find(self, schema: str, name: str) -> Relation | None:
        """Without a schema PostgreSQL looks into pg_catalog first."""
        return self.all.get((schema or CATALOG, name))

    def function(self, name: str) -> Relation | None:
        """What a function of several columns returns."""
        return self._functions.get(name) or (
            self.all[CATALOG, name]
            if name in ("pg_timezone_names", "pg_timezone_abbrevs")
            else None
        )

    def _system(self, static: Static, schema: str, name: str, layout: Sequence[Column]) -> Relation:
        oid = static.relations.get((schema, name), 0)
        columns = tuple(Shown(c.name, f'"{c.name}"', c.type, c.typmod) for c in layout)
        if schema == CATALOG and name in FED:
            return Relation(schema, name, oid, columns, f"kv_{name}", feed=f"kv_{name}")
        if view := static.views.get(f"{schema}.{name}", ""):
            return Relation(schema, name, oid, columns, view=view)
        prefix = "k_is_" if schema == INFORMATION else "k_"
        key = _KEYED.get(name, ("oid",) if layout and layout[0].name == "oid" else ())
        return Relation(schema, name, oid, columns, prefix + name, key=key)

    def _function(self, static: Static, name: str, sql: str) -> Relation:
        listed = static.feeds[name]["columns"]
        columns = tuple(Shown(n, f'"{n}"', oid) for n, oid in listed if n[0] != "_")
        return Relation(CATALOG, name, 0, columns, sql, feed=sql if sql.startswith("kv_") else "")
