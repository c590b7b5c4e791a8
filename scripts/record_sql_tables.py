"""Writes sqlproxy/front/types/tables.json: PostgreSQL's own tables of types, casts, operators and
functions, as far as they are about types that Kvorum has.

    python scripts/record_sql_tables.py "host=127.0.0.1 port=5432 user=postgres"
    sqlproxy/front/types/tables.json

The resolution of operators and functions (sqlproxy/front/types/resolve.py) follows PostgreSQL's
rules over these rows, so a name means here what it means there. Run it against PostgreSQL 15.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import psycopg

TYPES = [
    "bool",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar",
    "bpchar",
    "bytea",
    "uuid",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "json",
    "jsonb",
    "jsonpath",
    "name",
    "oid",
    "tid",
    "xid",
    "cid",
    "regclass",
    "regtype",
    "regproc",
    "regprocedure",
    "regoper",
    "regoperator",
    "regnamespace",
    "regrole",
    "regconfig",
    "int2vector",
    "oidvector",
    "aclitem",
    "pg_node_tree",
    "xid8",
    "char",
    "unknown",
    "record",
    "any",
    "anyelement",
    "anyarray",
    "anynonarray",
    "anycompatible",
    "anycompatiblearray",
    "anycompatiblenonarray",
    "void",
]
INTERNAL = (
    "binary_upgrade",
    "pg_import",
    "pg_replication",
    "pg_logical",
    "pg_ls",
    "brin_",
    "pg_read",
)


def rows(connection: psycopg.Connection[Any], text: str, *args: object) -> list[list[Any]]:
    return [list(row) for row in connection.execute(text, args).fetchall()]


def main(address: str, path: str) -> None:
    with psycopg.connect(address) as connection:
        types = rows(
            connection,
            """select oid::int, typname::text, typcategory::text, typispreferred, typelem::int,
            typarray::int,
                      typlen::int
               from pg_type
               where typtype in ('b', 'p') and typnamespace = 'pg_catalog'::regnamespace
               and (typname not like 'pg\\_%%' or typname = 'pg_node_tree') order by oid""",
        )
        known = {
            t[0] for t in types if t[1] in TYPES or (t[1].startswith("_") and t[1][1:] in TYPES)
        }
        known -= {t[0] for t in types if t[1] in ("_record", "_cstring")}
        casts = [
            row
            for row in rows(
                connection,
                """select castsource::int, casttarget::int, castcontext::text, castmethod::text,
                          coalesce(p.prosrc, '')
                   from pg_cast left join pg_proc p on p.oid = castfunc
                   order by 1, 2""",
            )
            if row[0] in known and row[1] in known
        ]
        operators = [
            row
            for row in rows(
                connection,
                """select oprname::text, oprleft::int, oprright::int, oprresult::int, p.prosrc,
                p.provolatile::text,
                   coalesce((select oprname::text from pg_operator c where c.oid = o.oprcom), ''),
                   coalesce((select oprname::text from pg_operator c where c.oid = o.oprnegate),
                            '')
                   from pg_operator o join pg_proc p on p.oid = oprcode order by 1, 2, 3""",
            )
            if {row[1], row[2], row[3]} <= known | {0}
        ]
        functions = [
            row
            for row in rows(
                connection,
                """select proname::text, proargtypes::oid[]::int[], prorettype::int, prokind::text,
                proisstrict,
                   provolatile::text, proretset, prosrc, pronargdefaults::int, provariadic::int,
                          coalesce(a.aggkind::text, ''), coalesce(a.aggnumdirectargs, 0)::int,
                          case when proallargtypes is null or 'o' <> all(proargmodes) then null else
                     (select array_agg(n || ' ' || t order by k)
                      from unnest(proargnames, proallargtypes, proargmodes)
                        with ordinality as x(n, t, m, k) where m = 'o' or m = 't') end
                   from pg_proc p left join pg_aggregate a on a.aggfnoid = p.oid
                   where pronamespace = 'pg_catalog'::regnamespace and prokind <> 'p'
                   order by 1, 2::text""",
            )
            if {*row[1], row[2]} <= known and not row[0].startswith(INTERNAL)
        ]
    data = {
        "types": [t for t in types if t[0] in known or t[6] >= -1],
        "casts": casts,
        "operators": operators,
        "functions": functions,
    }
    with open(path, "w", encoding="utf-8") as out:
        out.write("{\n")
        for at, (name, lines) in enumerate(data.items()):
            body = ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
            out.write(f'"{name}": [\n{body}\n]{"," if at < len(data) - 1 else ""}\n')
        out.write("}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
