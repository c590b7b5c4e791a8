"""Asks a real PostgreSQL 15 what it makes of every literal of inputs.json, and keeps its answers in
golden.json.

    python -m tests.sqlproxy.pg.record [/usr/lib/postgresql/15/bin]

Starts a server of its own in a temporary directory on a free loopback port (as user `postgres` if
run by root) and stops it again. Run it after a change of inputs.json.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import psycopg

from sqlproxy.pg import oids
from tests.kit.machine import free_port

INPUTS = pathlib.Path(__file__).with_name("inputs.json")
GOLDEN = pathlib.Path(__file__).with_name("golden.json")


def main() -> None:
    binaries = sys.argv[1] if len(sys.argv) > 1 else "/usr/lib/postgresql/15/bin"
    directory = tempfile.mkdtemp(prefix="pg-golden-")
    prefix: list[str] = []
    if os.getuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
        prefix = ["runuser", "-u", "postgres", "--"]
    port = free_port()
    data = f"{directory}/data"

    def run(*words: str) -> None:
        subprocess.run([*prefix, *words], check=True, stdout=subprocess.DEVNULL, cwd=directory)

    run(f"{binaries}/initdb", "-D", data, "-E", "UTF8", "--locale=C", "-A", "trust", "-N")
    options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    run(f"{binaries}/pg_ctl", "-D", data, "-o", options, "-l", f"{directory}/log", "-w", "start")
    try:
        with psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres") as conn:
            conn.autocommit = True
            found = record(conn)
    finally:
        run(f"{binaries}/pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(directory)
    GOLDEN.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n")


def record(conn: psycopg.Connection[Any]) -> dict[str, Any]:
    inputs = json.loads(INPUTS.read_text())
    literals = inputs["literals"]
    conn.execute("set TimeZone = 'UTC'")
    values = [ask(conn, name, given, "UTC") for name in literals for given in literals[name]]
    for zone in inputs["zones"][1:]:
        conn.execute(f"set TimeZone = '{zone}'")
        values += [ask(conn, "timestamptz", given, zone) for given in literals["timestamptz"]]
    types = []
    for name in inputs["formats"]:
        conn.execute(f"create temp table probe (c {name})")
        row = conn.execute(
            "select atttypid::int8, atttypmod, format_type(atttypid, atttypmod), "
            "format_type(atttypid, null), typname, typlen, typarray::int8, typcategory::text, "
            "typelem::int8 from pg_attribute a join pg_type t on t.oid = atttypid "
            "where attrelid = 'probe'::regclass and attnum = 1"
        )
        types.append([name, *(row.fetchone() or ())])
        conn.execute("drop table probe")
    version = (conn.execute("show server_version").fetchone() or [""])[0]
    return {
        "version": version,
        "values": values,
        "types": types,
        "copy_out": [[options, copy_out(conn, options)] for options in inputs["copy_out"]],
        "copy_in": [
            [options, data, copy_in(conn, options, data)] for options, data in inputs["copy_in"]
        ],
    }


def copy_out(conn: psycopg.Connection[Any], options: str) -> str:
    """These rows in a format of COPY; latin-1, so that any bytes fit."""
    rows = r"""(values (1, 'plain'), (2, null), (3, ''), (4, E'tab\tnew\nline\\back'),
        (5, 'a,b;c|d'), (6, 'q"uo''te'), (7, E'\\.'), (8, 'NULL'), (9, E'\r\b\f\v'),
        (null, 'ä€'), (10, ' x '))"""
    with conn.cursor().copy(f"copy (select * from {rows} v(a, b)) to stdout {options}") as copy:
        return b"".join(bytes(piece) for piece in copy).decode("latin-1")


def copy_in(conn: psycopg.Connection[Any], options: str, data: str) -> Any:
    """The rows, or the error with its context."""
    conn.execute("create temp table t (a int4, b text)")
    try:
        with conn.cursor().copy(f"copy t from stdin {options}") as copy:
            copy.write(data)
        return [list(row) for row in conn.execute("select a, b from t").fetchall()]
    except psycopg.Error as error:
        diag = error.diag
        return {"sqlstate": diag.sqlstate, "message": diag.message_primary, "where": diag.context}
    finally:
        conn.execute("drop table t")


def ask(conn: psycopg.Connection[Any], name: str, given: str, zone: str) -> dict[str, Any]:
    """The literal as a parameter of its type: its text and binary, or the error."""
    oid = oids.by_name(name)[0].oid
    found: dict[str, Any] = {"type": name, "in": given}
    if zone != "UTC":
        found["zone"] = zone
    for key, code in (("text", 0), ("binary", 1)):
        result = conn.pgconn.exec_params(
            b"select $1", [given.encode()], param_types=[oid], result_format=code
        )
        if result.status == psycopg.pq.ExecStatus.TUPLES_OK:
            raw = result.get_value(0, 0) or b""
            found[key] = raw.hex() if code else raw.decode()
            if code and len(raw) > 4_000:
                found[key] = f"{len(raw)} bytes"
            if not code and len(raw) > 4_000:
                found[key] = f"{len(raw)} characters"
            continue
        field = psycopg.pq.DiagnosticField
        found["sqlstate"] = (result.error_field(field.SQLSTATE) or b"").decode()
        found["message"] = (result.error_field(field.MESSAGE_PRIMARY) or b"").decode()
        found["hint"] = (result.error_field(field.MESSAGE_HINT) or b"").decode()
        break
    return found


if __name__ == "__main__":
    main()
