"""Writes sqlproxy/pgcatalog/data/pg15.json.xz: what PostgreSQL's own catalog says of itself.

    python scripts/record_pg_catalog.py "host=127.0.0.1 port=5432 user=postgres dbname=postgres" \
        sqlproxy/pgcatalog/data/pg15.json.xz

Run it against a fresh PostgreSQL 15 (initdb --locale=C.UTF-8, nothing created): the columns of
every relation of pg_catalog and information_schema, the text of the views among them, and the
rows of the tables that do not depend on users. `sqlproxy/pgcatalog/static.py` reads the file.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

import psycopg

ROWS = [
    "pg_aggregate",
    "pg_authid",
    "pg_am",
    "pg_amop",
    "pg_amproc",
    "pg_attribute",
    "pg_cast",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_conversion",
    "pg_description",
    "pg_index",
    "pg_language",
    "pg_namespace",
    "pg_opclass",
    "pg_operator",
    "pg_opfamily",
    "pg_proc",
    "pg_range",
    "pg_tablespace",
    "pg_ts_config",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_type",
]
SCHEMA_ROWS = ["sql_features", "sql_implementation_info", "sql_parts", "sql_sizing"]
FUNCTIONS = {
    "pg_get_keywords": "select * from pg_get_keywords() order by word",
    "pg_show_all_settings": """
        select name, v.value as setting, unit, category, short_desc, extra_desc, context, vartype,
               'default' as source, min_val, max_val, enumvals, v.value as boot_val,
               v.value as reset_val, null::text as sourcefile, null::int as sourceline,
               false as pending_restart,
               case when v.value = setting then current_setting(name) else v.value end as _shown
        from pg_show_all_settings(), lateral (
            select case when name ~ '^lc_' then 'C.UTF-8' when name ~ 'imezone$' then 'UTC'
                when name in ('client_encoding', 'server_encoding') then 'UTF8'
                when name = 'DateStyle' then 'ISO, MDY' when name ~ '^server_version' then setting
                else boot_val end as value) v
        where category !~ '^(File Locations|Developer|Replication|Reporting and Logging)'
        order by name""",
}
WHERE = {
    "pg_authid": "rolname ~ '^pg_'",
    "pg_collation": "collprovider <> 'i' and collnamespace = 11",
    "pg_class": "relkind in ('r','v','i')"
    " and relnamespace in (11, 'information_schema'::regnamespace)",
    "pg_attribute": "attnum > 0 and attrelid in"
    " (select oid from pg_class where relkind in ('r','v','i')"
    " and relnamespace in (11, 'information_schema'::regnamespace))",
    "pg_index": "indrelid in (select oid from pg_class where relnamespace = 11)",
    "pg_namespace": "nspname in ('pg_catalog', 'pg_toast', 'information_schema', 'public')",
    "pg_type": "typnamespace in (11, 'information_schema'::regnamespace)",
}
# What functions tell of a row, kept beside it under a name that no client can see.
TOLD = {
    "pg_index": {"_def": "pg_get_indexdef(indexrelid)"},
    "pg_constraint": {
        "_def": "pg_get_constraintdef(oid)",
        "_short": "pg_get_constraintdef(oid, true)",
    },
    "pg_type": {"_text": "format_type(oid, null)"},
    "pg_proc": {
        "_result": "pg_get_function_result(oid)",
        "_arguments": "pg_get_function_arguments(oid)",
        "_identity": "pg_get_function_identity_arguments(oid)",
    },
}
INTEGERS = {
    "int2",
    "int4",
    "int8",
    "oid",
    "xid",
    "regproc",
    "regtype",
    "regclass",
    "regoper",
}
LISTS = {"int2vector", "oidvector", "_int2", "_oid", "_int4"}


def value(kind: str, text: str | None) -> Any:
    """A column's text as the number, the list or the truth that it stands for."""
    if text is None:
        return None
    if kind in INTEGERS:
        return int(text)
    if kind in ("float4", "float8"):
        return float(text)
    if kind == "bool":
        return text in ("t", "true")
    if kind in LISTS:
        return [int(part) for part in text.strip("{}").replace(",", " ").split()]
    return text


def cast(name: str, kind: str) -> str:
    if kind in INTEGERS and kind.startswith("reg"):
        return f'"{name}"::oid::text'
    if kind.startswith("_") and kind not in LISTS:
        return f'array_to_json("{name}")::text' if kind != "_aclitem" else "null"
    return f'"{name}"::text'


def columns(connection: psycopg.Connection[Any], schema: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for relation, name, kind, typmod in connection.execute(
        """select c.relname::text, a.attname::text, t.typname::text, a.atttypmod from pg_attribute a
           join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
           where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'v') and a.attnum > 0
           order by c.relname, a.attnum""",
        [schema],
    ):
        found.setdefault(relation, []).append([name, kind, typmod])
    return found


def table(connection: psycopg.Connection[Any], name: str, layout: list[Any], where: str) -> Any:
    """One list for each column: neighbours are alike, so it packs well."""
    told = TOLD.get(name, {})
    picked = ", ".join([*(cast(n, k) for n, k, _ in layout), *told.values()])
    key = '"oid"' if layout[0][0] == "oid" else "1, 2, 3"
    text = (
        f"select {picked} from {name}" + (f" where {where}" if where else "") + f" order by {key}"
    )
    rows = connection.execute(text).fetchall()
    answer = []
    for at, (_, kind, _) in enumerate(layout):
        listed = [row[at] for row in rows]
        if kind.startswith("_") and kind not in LISTS:
            answer.append([None if v is None else json.loads(v) for v in listed])
        else:
            answer.append([value(kind, v) for v in listed])
    first = len(layout)
    return answer + [[row[at] for row in rows] for at in range(first, first + len(told))]


def main(address: str, path: str) -> None:
    with psycopg.connect(address) as connection:
        layouts = {s: columns(connection, s) for s in ("pg_catalog", "information_schema")}
        rows = {t: table(connection, t, layouts["pg_catalog"][t], WHERE.get(t, "")) for t in ROWS}
        for name in SCHEMA_ROWS:
            layout = layouts["information_schema"][name]
            rows[f"information_schema.{name}"] = table(
                connection, f"information_schema.{name}", layout, ""
            )
        functions = {}
        for name, text in FUNCTIONS.items():
            cursor = connection.execute(text)
            assert cursor.description is not None
            functions[name] = {
                "columns": [[c.name, c.type_code] for c in cursor.description],
                "rows": [list(row) for row in cursor.fetchall()],
            }
        views = {
            f"{schema}.{name}": text
            for schema, name, text in connection.execute(
                """select schemaname::text, viewname::text, definition from pg_views
                   where schemaname in ('pg_catalog', 'information_schema') order by 1, 2"""
            )
        }
    body = {
        "layouts": layouts,
        "rows": rows,
        "functions": functions,
        "views": views,
        "told": {t: list(c) for t, c in TOLD.items()},
    }
    packed = lzma.compress(
        json.dumps(body, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME
    )
    Path(path).write_bytes(packed)
    sizes = {
        n: len(lzma.compress(json.dumps(r).encode())) for n, r in [*rows.items(), ("views", views)]
    }
    sys.stdout.write(f"{len(packed)} bytes; alone: {sizes}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
