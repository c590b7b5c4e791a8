"""What one user that floods does to another: `python -m bench.tenants [--seconds 4] [--rounds 3]`
prints JSON lines.

A node with users. ann does a put, a get, a get by HTTP and a select of one row by its key, one
after the other, with PAUSE_S between them: alone, then while bob floods from a process of its own.
Each flood in turn: pipelined gets over 64 connections, scans of a table, heavy statements, bulk
puts, single puts over 64 connections, HTTP gets over 32; each is under way when all its connections
have had an answer. Then ann is measured alone again.

`ratio`: how many times as long ann's slowest hundredth takes, over the samples of all rounds;
bob's process takes its share of the machine, too. `ratio_least`, `ratio_most`: of single rounds.
`noise`: the same of the second measure alone to the first: a ratio that is no further from 1 tells
nothing, and `samples` says how many there were. `met`: the ratio is GOAL at most. `loop_…`: what
the node's loop computes between ann's request and its answer (schedstat), which tells of queues in
the node alone, however busy the machine is. `flood_per_s`: what bob is served meanwhile.
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
from typing import NamedTuple

import psycopg

import kvorum
from bench.node import ROOT, Node
from bench.stats import Record, percentile

PAUSE_S = 0.002
ROWS = 20_000
PASSWORD = "Ann-77-xyz"
PATH = "/v1/kv/default/bench_tenants/00001"
HEAVY = "SELECT sum(length(repeat('x', 100) || n)) FROM generate_series(1, 200000) n"
GOAL = 1.5  # times that a flood may move another's p99
_BEGIN_S = 120.0  # until a flood has had its first answers, at most
_FLOODS = {"gets": 64, "scans": 8, "sql": 4, "puts": 8, "commits": 64, "http": 32}


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


def _under_way(count: int) -> Callable[[int], None]:
    """To be told of each connection's answers; says so on stdout when each has had one."""
    waiting = set(range(count))

    def answered(number: int) -> None:
        if waiting:
            waiting.discard(number)
            if not waiting:
                sys.stdout.write("under way\n")
                sys.stdout.flush()

    return answered


async def _native(
    base: int,
    token: str,
    work: Callable[[kvorum.AsyncTable, int], Awaitable[object]],
    count: int,
    answered: Callable[[int], None],
) -> None:
    async def one(number: int) -> None:
        async with await kvorum.aconnect(f"127.0.0.1:{base}", token=token) as db:
            table = db.table("default", "bench_tenants")
            while True:
                await work(table, number)
                answered(number)

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

    async def commits(table: kvorum.AsyncTable, number: int) -> None:
        await table.put(b"b%05d" % number, b"v" * 100)

    def sql(number: int) -> None:
        with psycopg.connect(_address(base, "bob"), autocommit=True) as connection:
            while True:
                connection.execute(HEAVY)
                answered(number)

    def web(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", base + 2)
        while True:
            connection.request("GET", PATH, headers={"authorization": f"Bearer {token}"})
            connection.getresponse().read()
            answered(number)

    count = _FLOODS[kind]
    answered = _under_way(count)
    if kind in ("sql", "http"):
        for number in range(count):
            threading.Thread(target=sql if kind == "sql" else web, args=(number,)).start()
        return
    work = {"gets": gets, "scans": scans, "puts": puts, "commits": commits}[kind]
    asyncio.run(_native(base, token, work, count, answered))


def until_under_way(flood: subprocess.Popen[str]) -> None:
    """Wait for the first answers of all its connections."""
    assert flood.stdout is not None
    timer = threading.Timer(_BEGIN_S, flood.kill)
    timer.start()
    try:
        assert flood.stdout.readline() == "under way\n", "the flood has not begun in time"
    finally:
        timer.cancel()


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
            told = [_round(node, tokens, measure, kind, seconds) for _ in range(rounds)]
            flooded = statistics.median(one.flood_per_s for one in told)
            for name in told[0].alone:
                found = _compared(name, told)
                yield {
                    "bench": "tenants",
                    "flood": kind,
                    "case": name,
                    **{key: round(value, 3) for key, value in found.items()},
                    "flood_per_s": round(flooded, 1),
                    "met": found["ratio"] <= GOAL,
                }


class Round(NamedTuple):
    """One after the other: alone, beside the flood, alone again."""

    alone: Times
    beside: Times
    again: Times
    flood_per_s: float


def _round(
    node: Node,
    tokens: dict[str, str],
    measure: Callable[[float], Times],
    kind: str,
    seconds: float,
) -> Round:
    alone = measure(seconds)
    command = [sys.executable, "-m", "bench.tenants", "--flood", kind]
    environment = {**os.environ, "BENCH_TOKEN": tokens["bob"], "BENCH_BASE": str(node.base)}
    bob = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        until_under_way(bob)
        before, began = served(node, tokens["root"]), time.monotonic()
        beside = measure(seconds)
        flooded = (served(node, tokens["root"]) - before) / (time.monotonic() - began)
        assert bob.poll() is None, f"the flood of {kind} has ended"
    finally:
        bob.kill()
        bob.communicate()
    return Round(alone, beside, measure(seconds), flooded)


def _compared(name: str, rounds: list[Round]) -> Record:
    """Over the samples of all rounds together. `ratio`: of the p99 beside the flood to that alone;
    `ratio_least`, `ratio_most`: of single rounds; `noise`: the same of both times alone, which
    nothing was different in.
    """
    alone = [one for each in rounds for one in (*each.alone[name], *each.again[name])]
    beside = [one for each in rounds for one in each.beside[name]]
    found: Record = {"samples": len(beside), "rate": 2 * len(beside) / len(alone)}
    for n, what in enumerate(("", "loop_")):
        for share in (0.5, 0.99):
            p = f"{what}p{share * 100:.0f}"
            found[f"{p}_ms"] = _percentile(alone, n, share) * 1e3
            found[f"{p}_beside_ms"] = _percentile(beside, n, share) * 1e3
        found[f"{what}ratio"] = found[f"{what}p99_beside_ms"] / found[f"{what}p99_ms"]
        each = [
            _percentile(one.beside[name], n) / _percentile(one.alone[name] + one.again[name], n)
            for one in rounds
        ]
        found |= {f"{what}ratio_least": min(each), f"{what}ratio_most": max(each)}
        first = [one for each in rounds for one in each.alone[name]]
        second = [one for each in rounds for one in each.again[name]]
        found[f"{what}noise"] = _percentile(second, n) / _percentile(first, n)
    return found


def _percentile(times: list[tuple[float, float]], n: int, share: float = 0.99) -> float:
    return percentile(sorted(one[n] for one in times), share) or 1e-9


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
