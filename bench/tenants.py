"""What one user that floods does to another: `python -m bench.tenants [--seconds 4] [--rounds 3]`
prints JSON lines.

A node with users. ann does a put, a get, a get by HTTP and a select of one row by its key, one
after the other, with PAUSE_S between them: alone, then while bob floods from a process of its own.
Each flood in turn: pipelined gets over 64 connections, scans of a table, heavy statements, bulk
puts, HTTP gets over 32 connections. `ratio`: how many times as long ann's slowest hundredth takes,
the median of the rounds; bob's process takes its share of the machine, too. `loop_ms`: what the
node's loop computes between ann's request and its answer (schedstat), which tells of queues in the
node alone, however busy the machine is. `flood_per_s`: what bob is served meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg

import kvorum
from bench.node import ROOT, Node
from bench.stats import Record, percentile

PAUSE_S = 0.002
ROWS = 20_000
PASSWORD = "Ann-77-xyz"
PATH = "/v1/kv/default/bench_tenants/00001"
HEAVY = "SELECT sum(length(repeat('x', 100) || n)) FROM generate_series(1, 200000) n"
_BEGIN_S = 1.5  # until a flood runs
_FLOODS = {"gets": 64, "scans": 8, "sql": 4, "puts": 8, "http": 32}


def _address(base: int, user: str) -> str:
    return f"host=127.0.0.1 port={base + 3} user={user} dbname=default password={PASSWORD}"


def prepare(node: Node) -> dict[str, str]:
    """Rows and users; their tokens."""
    with kvorum.connect(node.url) as db:
        db.create_table("default", "bench_tenants")
        for at in range(0, ROWS, 1_000):
            keys = (b"%05d" % n for n in range(at, at + 1_000))
            db.batch([kvorum.Put("default", "bench_tenants", key, b"v" * 100) for key in keys])
        root = db.access("init")["token"]
    tokens = {"root": str(root)}
    with kvorum.connect(node.url, token=tokens["root"]) as db:
        for user in ("ann", "bob"):
            db.access("user.create", {"name": user, "password": PASSWORD})
            said = {"role": user, "actions": ["read", "write"], "kind": "table"}
            db.access("grant.give", {**said, "namespace": "default", "name": "bench_tenants"})
            tokens[user] = str(db.access("token.create", {"user": user, "name": "b"})["token"])
        db.access("user.create", {"name": "maker", "password": PASSWORD, "superuser": True})
    with psycopg.connect(_address(node.base, "maker"), autocommit=True) as sql:
        sql.execute("CREATE TABLE bench (id int PRIMARY KEY, v text, n int)")
        sql.execute("INSERT INTO bench VALUES (1, 'a value of some length', 7)")
        sql.execute("GRANT SELECT ON bench TO ann, bob")
    return tokens


# ------------------------------------------------------------------------------------ bob's process


async def _native(
    base: int, token: str, work: Callable[[kvorum.AsyncTable, int], Awaitable[object]], count: int
) -> None:
    async def one(number: int) -> None:
        async with await kvorum.aconnect(f"127.0.0.1:{base}", token=token) as db:
            table = db.table("default", "bench_tenants")
            while True:
                await work(table, number)

    await asyncio.gather(*map(one, range(count)))


def flood(kind: str, base: int, token: str) -> None:
    """Until it is killed."""

    async def gets(table: kvorum.AsyncTable, _number: int) -> None:
        await asyncio.gather(*(table.get(b"%05d" % n) for n in range(50)))

    async def scans(table: kvorum.AsyncTable, _number: int) -> None:
        page = await table.scan()
        while page.cursor:
            page = await table.scan(cursor=page.cursor)

    async def puts(table: kvorum.AsyncTable, number: int) -> None:
        keys = (b"b%d%05d" % (number, n) for n in range(200))
        await asyncio.gather(*(table.put(key, b"v" * 500) for key in keys))

    def sql() -> None:
        with psycopg.connect(_address(base, "bob"), autocommit=True) as connection:
            while True:
                connection.execute(HEAVY)

    def web() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", base + 2)
        while True:
            connection.request("GET", PATH, headers={"authorization": f"Bearer {token}"})
            connection.getresponse().read()

    count = _FLOODS[kind]
    if kind in ("sql", "http"):
        for _ in range(count):
            threading.Thread(target=sql if kind == "sql" else web).start()
        return
    work = {"gets": gets, "scans": scans, "puts": puts}[kind]
    asyncio.run(_native(base, token, work, count))


# ------------------------------------------------------------------------------------ ann's times


def loop_s(pid: int) -> float:
    """What the first thread of a process, which has the node's loop, has computed."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def served(node: Node, token: str) -> int:
    """Requests of bob's."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port)
    connection.request("GET", "/metrics", headers={"authorization": f"Bearer {token}"})
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r'kvorum_tenant_requests_total{tenant="user bob"} (\S+)', text)
    return int(float(found[1])) if found else 0


Times = dict[str, list[tuple[float, float]]]  # by case: seconds, and of those the loop's


def steady(node: Node, token: str, stack: ExitStack) -> Callable[[float], Times]:
    """Measures for so many seconds."""
    base = node.base
    table = stack.enter_context(kvorum.connect(f"127.0.0.1:{base}", token=token)).table(
        "default", "bench_tenants"
    )
    sql = stack.enter_context(psycopg.connect(_address(base, "ann"), autocommit=True))
    web = http.client.HTTPConnection("127.0.0.1", base + 2)
    headers = {"authorization": f"Bearer {token}"}

    def page() -> None:
        web.request("GET", PATH, headers=headers)
        answer = web.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    statement = "SELECT v, n FROM bench WHERE id = %s"
    works: dict[str, Callable[[], object]] = {
        "put": lambda: table.put(b"00002", b"v" * 100),
        "get": lambda: table.get(b"00001"),
        "HTTP get": page,
        "point SELECT": lambda: sql.execute(statement, (1,), prepare=True).fetchone(),
    }

    def measure(seconds: float) -> Times:
        found: Times = {name: [] for name in works}
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for name, work in works.items():
                began, computed = time.monotonic(), loop_s(node.pid)
                work()
                found[name].append((time.monotonic() - began, loop_s(node.pid) - computed))
                time.sleep(PAUSE_S)
        return found

    return measure


def measured(seconds: float, rounds: int, kinds: list[str]) -> Iterator[Record]:
    with Node("tenants") as node, ExitStack() as stack:
        tokens = prepare(node)
        measure = steady(node, tokens["ann"], stack)
        measure(1.0)
        for kind in kinds:
            told: dict[str, list[Record]] = {}
            for _ in range(rounds):
                alone = measure(seconds)
                command = [sys.executable, "-m", "bench.tenants", "--flood", kind]
                environment = {
                    **os.environ,
                    "BENCH_TOKEN": tokens["bob"],
                    "BENCH_BASE": str(node.base),
                }
                bob = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
                )
                try:
                    time.sleep(_BEGIN_S)
                    before = served(node, tokens["root"])
                    beside = measure(seconds)
                    flooded = (served(node, tokens["root"]) - before) / seconds
                    assert bob.poll() is None, f"the flood of {kind} has ended"
                finally:
                    bob.kill()
                    bob.wait()
                for name in alone:
                    told.setdefault(name, []).append(
                        {**_compared(alone[name], beside[name]), "flood_per_s": flooded}
                    )
            for name, found in told.items():
                median = {
                    key: round(statistics.median(one[key] for one in found), 3) for key in found[0]
                }
                yield {"bench": "tenants", "flood": kind, "case": name, **median}


def _compared(alone: list[tuple[float, float]], beside: list[tuple[float, float]]) -> Record:
    found: Record = {"rate": len(beside) / len(alone)}
    for n, what in enumerate(("", "loop_")):
        p50, p99 = (
            [percentile(sorted(one[n] for one in each), share) or 1e-9 for each in (alone, beside)]
            for share in (0.5, 0.99)
        )
        found |= {f"{what}p50_ms": p50[0] * 1e3, f"{what}p50_beside_ms": p50[1] * 1e3}
        found |= {f"{what}p99_ms": p99[0] * 1e3, f"{what}p99_beside_ms": p99[1] * 1e3}
        found[f"{what}ratio"] = p99[1] / p99[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tenants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--floods", nargs="*", choices=list(_FLOODS), default=list(_FLOODS))
    parser.add_argument("--flood", choices=list(_FLOODS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        flood(options.flood, int(os.environ["BENCH_BASE"]), os.environ["BENCH_TOKEN"])
        return
    for record in measured(options.seconds, options.rounds, options.floods):
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
