"""What TLS and rights cost: `python -m bench.tls [--ops 2000] [--rounds 5]` prints JSON lines.

Two nodes, one without users and TLS, one with both: a user logs in (native and HTTP by a token,
SQL by a password) and may read and write three tables. On each, in turn, one connection does `ops`
puts, gets, and selects of one row by its key, one after the other. Per operation: CPU microseconds
of the node and of the client (the least of all rounds, since noise only adds), and how many times
as much the second node needs.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

import kvorum
from bench.machine import tree_cpu_s
from bench.node import ROOT, Node
from bench.stats import Record

VALUE = b"v" * 100
_ADMIN, _USER = ("boss", "Boss-77-xyz"), ("ann", "Ann-77-xyz")
_BURST = 50  # operations between two looks at the clock, and to warm up
Work = Callable[[], object]


class Secured(Node):
    """With TLS and users."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tls = self.folder / "tls"
        self.ca = self.tls / "ca.crt"
        self.command("cert", "ca", "--dir", str(self.tls))
        self.command("cert", "node", "--dir", str(self.tls), "--host", "127.0.0.1")
        self._options = ("--tls-dir", str(self.tls))

    @property
    def url(self) -> str:
        return f"kvorums://127.0.0.1:{self.base}"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)

    def _ready(self) -> bool:
        url = f"https://127.0.0.1:{self.http_port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=1, context=self.context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def command(self, *words: str, **environment: str) -> str:
        """What `kvorum` prints."""
        return subprocess.run(
            [sys.executable, "-m", "kvorum", *words],
            cwd=ROOT,
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def make_user(self) -> str:
        """Who may read and write; its token."""
        with psycopg.connect(sql_address(self, "kvorum", ""), autocommit=True) as sql:
            sql.execute("CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'Boss-77-xyz'")
        with psycopg.connect(sql_address(self, *_ADMIN), autocommit=True) as sql:
            sql.execute("CREATE ROLE ann LOGIN PASSWORD 'Ann-77-xyz'")
            sql.execute("GRANT SELECT, INSERT, UPDATE ON bench TO ann")
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(_ADMIN[1])
        admin = {
            "KVORUM_CONNECT": f"127.0.0.1:{self.base}",
            "KVORUM_CA": str(self.ca),
            "KVORUM_USER": _ADMIN[0],
            "KVORUM_PASSWORD_FILE": str(secret),
        }
        self.command("grant", "give", "ann", "read,write", "table:default.bench_tls", **admin)
        made = json.loads(self.command("token", "create", "ann", "bench", "--json", **admin))
        return str(made["token"])


def sql_address(node: Node, user: str, password: str) -> str:
    mode = "require" if isinstance(node, Secured) else "disable"
    address = f"host=127.0.0.1 port={node.base + 3} user={user} dbname=postgres sslmode={mode}"
    return f"{address} password={password}" if password else address


@contextmanager
def connected(node: Node, loop: asyncio.AbstractEventLoop) -> Iterator[dict[str, Work]]:
    """One connection of each kind; what it does."""
    ca = node.ca if isinstance(node, Secured) else None

    async def create() -> None:
        async with await kvorum.aconnect(node.url, ca=ca) as db:
            await db.create_table("default", "bench_tls")

    loop.run_until_complete(create())
    with psycopg.connect(sql_address(node, "kvorum", ""), autocommit=True) as sql:
        sql.execute("CREATE TABLE bench (id int PRIMARY KEY, v text, n int)")
        sql.execute("INSERT INTO bench VALUES (1, 'a value of some length', 7)")
    headers, token, who = {}, "", ("kvorum", "")
    web = http.client.HTTPConnection("127.0.0.1", node.http_port)
    if isinstance(node, Secured):
        token, who = node.make_user(), _USER
        headers = {"authorization": f"Bearer {token}"}
        web = http.client.HTTPSConnection("127.0.0.1", node.http_port, context=node.context)
    db = loop.run_until_complete(kvorum.aconnect(node.url, ca=ca, token=token))
    table = db.table("default", "bench_tls")

    async def put() -> None:
        for _ in range(_BURST):
            await table.put(b"k", VALUE)

    async def get() -> None:
        for _ in range(_BURST):
            await table.get(b"k")

    def ask(method: str, body: bytes | None) -> None:
        for _ in range(_BURST):
            web.request(method, "/v1/kv/default/bench_tls/k", body=body, headers=headers)
            answer = web.getresponse()
            answer.read()
            assert answer.status == 200, answer.status

    with psycopg.connect(sql_address(node, *who), autocommit=True) as sql:

        def select() -> None:
            for _ in range(_BURST):
                sql.execute("SELECT v, n FROM bench WHERE id = %s", (1,), prepare=True).fetchone()

        yield {
            "put": lambda: loop.run_until_complete(put()),
            "get": lambda: loop.run_until_complete(get()),
            "HTTP put": lambda: ask("PUT", VALUE),
            "HTTP get": lambda: ask("GET", None),
            "point SELECT": select,
        }
    web.close()
    loop.run_until_complete(db.close())


def cpu_us(node: Node, work: Work, ops: int) -> tuple[float, float]:
    """Of the node and of this process, per operation."""
    work()
    bursts = max(1, ops // _BURST)
    node_s, own_s = tree_cpu_s([node.pid]), time.process_time()
    for _ in range(bursts):
        work()
    spent = tree_cpu_s([node.pid]) - node_s, time.process_time() - own_s
    return spent[0] / (bursts * _BURST) * 1e6, spent[1] / (bursts * _BURST) * 1e6


def measured(ops: int, rounds: int) -> Iterator[Record]:
    loop = asyncio.new_event_loop()
    with (
        Node("plain") as plain,
        Secured("tls") as secured,
        connected(plain, loop) as without,
        connected(secured, loop) as with_both,
    ):
        for case in without:
            found: dict[Node, list[tuple[float, float]]] = {plain: [], secured: []}
            for _ in range(rounds):
                found[plain].append(cpu_us(plain, without[case], ops))
                found[secured].append(cpu_us(secured, with_both[case], ops))
            (node, client), (node_tls, client_tls) = (
                (min(one[0] for one in each), min(one[1] for one in each))
                for each in found.values()
            )
            yield {
                "bench": "tls",
                "case": case,
                "node_us": round(node, 1),
                "node_tls_us": round(node_tls, 1),
                "node_ratio": round(node_tls / node, 2),
                "client_us": round(client, 1),
                "client_tls_us": round(client_tls, 1),
                "ratio": round((node_tls + client_tls) / (node + client), 2),
            }
    loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--ops", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for record in measured(options.ops, options.rounds):
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
