"""What TLS and rights cost: `python -m bench.tls [--ops 500] [--rounds 11]` prints JSON lines.

Four nodes: plain, with users, with TLS, with both. With users somebody who may read and write three
tables logs in (native and HTTP by a token, SQL by a password). On each, in turn, one connection
does `ops` puts, gets, and selects of one row by its key, one after the other. Per operation and
node: CPU microseconds of the node and of the client, as medians of all rounds; then how many times
as much the node alone, and both together, need with TLS and users as without either.
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
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

import psycopg

import kvorum
from bench.machine import own_cpu_us
from bench.node import ROOT, Node
from bench.stats import Record

VALUE = b"v" * 100
_ADMIN, _USER, _OWNER = ("boss", "Boss-77-xyz"), ("ann", "Ann-77-xyz"), ("kvorum", "")
_BURST = 50  # operations between two looks at the clock, and to warm up
Work = Callable[[], object]


class Bounded(Node):
    """With TLS, with users, or both."""

    def __init__(self, name: str, *, tls: bool, users: bool) -> None:
        super().__init__(name)
        self.users = users
        self.ca = self.folder / "tls" / "ca.crt" if tls else None
        if tls:
            directory = ("--dir", str(self.folder / "tls"))
            self.command("cert", "ca", *directory)
            self.command("cert", "node", *directory, "--host", "127.0.0.1")
            self._options = ("--tls-dir", str(self.folder / "tls"))

    @property
    def url(self) -> str:
        return f"{'kvorums' if self.ca else 'kvorum'}://127.0.0.1:{self.base}"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)

    def web(self) -> http.client.HTTPConnection:
        if self.ca is None:
            return http.client.HTTPConnection("127.0.0.1", self.http_port)
        return http.client.HTTPSConnection("127.0.0.1", self.http_port, context=self.context)

    def sql(self, user: str, password: str) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.base + 3,
            user=user,
            password=password,
            dbname="postgres",
            sslmode="require" if self.ca else "disable",
            autocommit=True,
        )

    def _ready(self) -> bool:
        if self.ca is None:
            return super()._ready()
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
        with self.sql(*_OWNER) as sql:
            sql.execute("CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'Boss-77-xyz'")
        with self.sql(*_ADMIN) as sql:
            sql.execute("CREATE ROLE ann LOGIN PASSWORD 'Ann-77-xyz'")
            sql.execute("GRANT SELECT, INSERT, UPDATE ON bench TO ann")
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(_ADMIN[1])
        admin = {
            "KVORUM_CONNECT": f"127.0.0.1:{self.base}",
            "KVORUM_USER": _ADMIN[0],
            "KVORUM_PASSWORD_FILE": str(secret),
        }
        if self.ca is not None:
            admin["KVORUM_CA"] = str(self.ca)
        self.command("grant", "give", "ann", "read,write", "table:default.bench_tls", **admin)
        made = json.loads(self.command("token", "create", "ann", "bench", "--json", **admin))
        return str(made["token"])


@contextmanager
def connected(node: Bounded, loop: asyncio.AbstractEventLoop) -> Iterator[dict[str, Work]]:
    """One connection of each kind; what it does."""

    async def create() -> None:
        async with await kvorum.aconnect(node.url, ca=node.ca) as db:
            await db.create_table("default", "bench_tls")

    loop.run_until_complete(create())
    with node.sql(*_OWNER) as sql:
        sql.execute("CREATE TABLE bench (id int PRIMARY KEY, v text, n int)")
        sql.execute("INSERT INTO bench VALUES (1, 'a value of some length', 7)")
    headers, token = {}, ""
    if node.users:
        token = node.make_user()
        headers = {"authorization": f"Bearer {token}"}
    web = node.web()
    db = loop.run_until_complete(kvorum.aconnect(node.url, ca=node.ca, token=token))
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

    with node.sql(*(_USER if node.users else _OWNER)) as sql:

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
    began = own_cpu_us(node.pid), own_cpu_us(os.getpid())
    for _ in range(bursts):
        work()
    ended = own_cpu_us(node.pid), own_cpu_us(os.getpid())
    return (ended[0] - began[0]) / (bursts * _BURST), (ended[1] - began[1]) / (bursts * _BURST)


def measured(ops: int, rounds: int) -> Iterator[Record]:
    loop = asyncio.new_event_loop()
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                Bounded(name, tls=name in ("tls", "both"), users=name in ("users", "both"))
            )
            for name in ("plain", "users", "tls", "both")
        ]
        works = [stack.enter_context(connected(node, loop)) for node in nodes]
        for case in works[0]:
            found = [
                [cpu_us(node, work[case], ops) for node, work in zip(nodes, works, strict=True)]
                for _ in range(rounds)
            ]
            medians = [
                tuple(median(one[i] for one in of_node) for i in (0, 1))
                for of_node in zip(*found, strict=True)
            ]
            plain, both = medians[0], medians[-1]
            yield {
                "bench": "tls",
                "case": case,
                **{
                    name: {"node_us": round(node, 1), "client_us": round(client, 1)}
                    for name, (node, client) in zip(
                        ("plain", "users", "tls", "both"), medians, strict=True
                    )
                },
                "node_ratio": round(both[0] / plain[0], 2),
                "ratio": round(sum(both) / sum(plain), 2),
            }
    loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--ops", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    for record in measured(options.ops, options.rounds):
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
