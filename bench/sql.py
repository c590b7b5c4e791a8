"""SQL against PostgreSQL 15 on the same machine: `python -m bench.sql
[points|tpcb|bulk|index|sets|paths]` prints JSON lines.

    points   pgbench as the client of both: SELECT, INSERT and UPDATE of one row by primary key,
             each a transaction, prepared; and the same SELECT not prepared, whose plan is
             remembered by its text (`-M extended`). CLIENTS connections
    tpcb     pgbench's own transactions at READ COMMITTED, -N and -S, scale SCALE (10), prepared
    bulk     COPY, INSERT of 1,000 rows, scans, aggregates, joins (bench/sql_bulk.py)
    index    latency of point reads beside CREATE INDEX (bench/sql_index.py)
    sets     IN, NOT IN, = ANY, <> ALL of thousands of values (bench/sql_sets.py)
    paths    few rows of a large table, by keys and indexes (bench/sql_paths.py)

One server runs at a time; both keep what they acknowledge (fsync). Client and server share the
machine's cores; `server_us` is the CPU time of the server's processes per statement, or row.
Without PostgreSQL 15 (POSTGRES_BIN) only Kvorum is measured. PROCESSES=0,2 measures a node that
serves SQL itself and one with two SQL processes (`--sql-processes`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import sql_bulk, sql_index, sql_paths, sql_sets
from bench.machine import tree_cpu_s
from bench.node import Node
from bench.stats import Record, per_op_us

CLIENTS = tuple(int(n) for n in os.environ.get("CLIENTS", "16,64").split(","))
SECONDS = int(os.environ.get("SECONDS", "5"))
PROCESSES = tuple(int(n) for n in os.environ.get("PROCESSES", "0").split(","))
SCALE = int(os.environ.get("SCALE", "10"))
ROWS = 10_000
POSTGRES_BIN = Path(os.environ.get("POSTGRES_BIN", "/usr/lib/postgresql/15/bin"))
SCRIPTS = {
    "select": f"\\set id random(1, {ROWS})\nSELECT v, n FROM bench WHERE id = :id;\n",
    "select, not prepared": f"\\set id random(1, {ROWS})\nSELECT v, n FROM bench WHERE id = :id;\n",
    "insert": "INSERT INTO written (v, n) VALUES ('a value of some length', 7);\n",
    "update": f"\\set id random(1, {ROWS})\nUPDATE bench SET n = n + 1 WHERE id = :id;\n",
}
_SETUP = (
    "CREATE TABLE bench (id int PRIMARY KEY, v text, n int)",
    "CREATE TABLE written (id bigserial PRIMARY KEY, v text, n int)",
)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def as_user(user: str, *words: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", user, "--", *words] if os.geteuid() == 0 else list(words)


@contextlib.contextmanager
def postgres() -> Iterator[tuple[int, int]]:
    """A server of its own directory; its port and process."""
    where = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    user = "postgres" if os.geteuid() == 0 else ""
    if user:
        shutil.chown(where, user)
    data, port = where / "data", free_port()
    quiet = partial(
        subprocess.run,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    initdb = (str(POSTGRES_BIN / "initdb"), "-A", "trust", "-U", "kvorum", "-D", str(data))
    quiet(as_user(user, *initdb))
    control = as_user(user, str(POSTGRES_BIN / "pg_ctl"), "-D", str(data), "-w")
    options = f"-p {port} -k {where} -c listen_addresses=127.0.0.1 -c max_connections=200"
    quiet([*control, "-o", options, "start"])
    try:
        yield port, int((data / "postmaster.pid").read_text().split()[0])
    finally:
        quiet([*control, "-m", "fast", "stop"])
        shutil.rmtree(where, ignore_errors=True)


def prepare(port: int) -> None:
    import psycopg

    address = f"host=127.0.0.1 port={port} user=kvorum dbname=postgres"
    with psycopg.connect(address, autocommit=True) as conn:
        for text in _SETUP:
            conn.execute(text)
        with conn.cursor().copy("COPY bench FROM STDIN") as copy:
            for n in range(1, ROWS + 1):
                copy.write_row((n, f"value {n}", n))


def pgbench(port: int, *words: str) -> str:
    """What it prints."""
    address = ("-h", "127.0.0.1", "-p", str(port), "-U", "kvorum")
    return subprocess.run(
        ["pgbench", *address, *words, "postgres"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS + 600,
    ).stdout


def run(port: int, pid: int, script: str, clients: int) -> Record:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(SCRIPTS[script])
        file.flush()
        mode = "extended" if "not prepared" in script else "prepared"
        return timed(port, pid, clients, "-M", mode, "-f", file.name)


def timed(port: int, pid: int, clients: int, *words: str) -> Record:
    before = tree_cpu_s([pid])
    done = pgbench(port, "-n", "-c", str(clients), "-T", str(SECONDS), *words)
    spent = tree_cpu_s([pid]) - before
    count = int(_number(r"actually processed: (\d+)", done))
    rate = float(_number(r"tps = ([\d.]+)", done))
    latency = float(_number(r"latency average = ([\d.]+)", done))
    return {"ops_s": round(rate), "mean_ms": latency, "server_us": per_op_us(spent, count)}


def points(system: str, port: int, pid: int) -> Iterator[Record]:
    """Single rows, on one server."""
    prepare(port)
    for script in SCRIPTS:
        for clients in CLIENTS:
            time.sleep(0.5)
            case = {"bench": "sql", "system": system, "case": script, "clients": clients}
            yield {**case, **run(port, pid, script, clients)}


def tpcb(system: str, port: int, pid: int) -> Iterator[Record]:
    """pgbench's transactions, on one server."""
    pgbench(port, "-i", "-I", "dtgp", "-q", "-s", str(SCALE))
    for case, words in (("tpc-b", ()), ("tpc-b -N", ("-N",)), ("tpc-b -S", ("-S",))):
        for clients in CLIENTS:
            time.sleep(0.5)
            told = {"bench": "sql", "system": system, "case": case, "clients": clients}
            yield {**told, **timed(port, pid, clients, "-M", "prepared", *words)}


def main() -> None:
    kinds = {
        "points": points,
        "tpcb": tpcb,
        "bulk": sql_bulk.measured,
        "index": sql_index.measured,
        "sets": sql_sets.measured,
        "paths": sql_paths.measured,
    }
    parser = argparse.ArgumentParser(prog="python -m bench.sql", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=sorted(kinds), default="points")
    measured = kinds[parser.parse_args().kind]
    found: list[Record] = []
    for count in PROCESSES:
        options = ("--sql-processes", str(count)) if count else ()
        system = f"kvorum, {count} processes" if count else "kvorum"
        with Node("sql", options=options) as node:
            found += _shown_as_they_come(measured(system, node.http_port + 1, node.pid))
    if POSTGRES_BIN.is_dir():
        with postgres() as (port, pid):
            found += _shown_as_they_come(measured("postgresql", port, pid))
    theirs = {_case(one): _rate(one) for one in found if one["system"] == "postgresql"}
    for one in found:
        other = theirs.get(_case(one))
        if one["system"] != "postgresql" and other:
            one["ratio"] = round(_rate(one) / other, 2)
        sys.stdout.write(json.dumps(one) + "\n")


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, f"pgbench does not print {pattern}"
    return found[1]


def _shown_as_they_come(records: Iterator[Record]) -> Iterator[Record]:
    """Progress, for who watches."""
    for one in records:
        sys.stderr.write(f"{one}\n")
        yield one


def _case(one: Record) -> tuple[str, int]:
    return one["case"], one.get("clients", 0)


def _rate(one: Record) -> float:
    return float(one.get("rows_s") or one["ops_s"])


if __name__ == "__main__":
    main()
