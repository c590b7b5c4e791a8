"""A node under attack: mutated streams at each of its ports, strange statements, and bystanders in
a process of their own who must notice nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

import kvorum
from kv.base.rpc import FrameEncoder, Hello
from sqlproxy.wire import codec as sql
from tests.attack.decoders import targets
from tests.attack.mutations import Mutator
from tests.attack.statements import FUNCTIONS, TABLE, Statements
from tests.kit.commands import settings
from tests.kit.machine import ROOT
from tests.kit.processes import NodeProcess

STALL_S: Final = 0.2
STATEMENT_S: Final = 1.0
OVERTIME_S: Final = 1.0
_AT_ONCE: Final = 8
_CLOSING: Final = "/v1/(init|users|tokens|whoami)"  # nobody else would be let in afterwards
_DSN: Final = "host=127.0.0.1 port={} user=kvorum dbname=postgres"
_ANSWER_S: Final = 0.05
_PAUSE_S: Final = 0.01
_GROWTH_BYTES: Final = 256 << 20


@dataclass
class Report:
    """What became of a part of the attack."""

    inputs: int = 0
    findings: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # what is not installed

    def found(self, what: str) -> None:
        if len(self.findings) < 50:
            self.findings.append(what[:8_000])


# -- bystanders


def bystander(base: int) -> None:
    """Get, select and ask over HTTP until stdin ends; then say the slowest of each, in seconds."""
    slowest = Counter[str]()
    over = Counter[str]()
    db = kvorum.connect(f"kvorum://127.0.0.1:{base}")
    url = f"http://127.0.0.1:{base + 2}/healthz"
    with db, psycopg.connect(_DSN.format(base + 3), autocommit=True) as conn:
        table = db.table("attacked", "bystander")
        asks: dict[str, Any] = {
            "native": lambda: table.get(b"k"),
            "sql": lambda: conn.execute("SELECT a0 FROM t WHERE a0 = 1").fetchall(),
            "http": lambda: urllib.request.urlopen(url, timeout=30).read(),
        }
        print("ready", flush=True)
        ended = _stdin_ended()
        while not ended():
            for name, ask in asks.items():
                began = time.monotonic()
                ask()
                took = time.monotonic() - began
                slowest[name] = max(slowest[name], took)  # type: ignore[assignment]
                over[name] += took > STALL_S
            time.sleep(_PAUSE_S)
    print(json.dumps({"slowest": slowest, "over": over}), flush=True)


def _stdin_ended() -> Any:
    import select

    return lambda: bool(select.select([sys.stdin], [], [], 0)[0])


class Bystander:
    """That process."""

    def __init__(self, base: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.attack", "--bystander", str(base)],
            cwd=ROOT,
            env=settings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "ready\n"

    def end(self, report: Report) -> dict[str, float]:
        """The slowest of each."""
        out, _ = self._child.communicate(timeout=120)
        if self._child.returncode:
            report.found("a bystander was refused; its words are above")
            return {}
        told = json.loads(out.splitlines()[-1])
        for name, times in told["over"].items():
            if times:
                slowest = told["slowest"][name]
                report.found(
                    f"bystanders over {name}: {times} waits above {STALL_S} s, {slowest:.2f} s"
                )
        return dict(told["slowest"])


# -- streams


def _samples(name: str) -> list[bytes]:
    """Of the targets whose names begin so."""
    return [one for each in targets() if each.name.startswith(name) for one in each.samples]


def _http_samples(base: int) -> list[bytes]:
    """A request for each operation of the document that the node gives of itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{base + 2}/openapi.json", timeout=10) as answer:
        document = json.load(answer)
    found = []
    bodies = [b"", *_samples("HTTP JSON")]
    for path, methods in document["paths"].items():
        if re.match(_CLOSING, path):
            continue
        for method in methods:
            filled = path.replace("{ns}", "attacked").replace("{table}", "x")
            for body in bodies[: 1 if method == "get" else 2]:
                head = f"{method.upper()} {filled} HTTP/1.1\r\nHost: x\r\n"
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                found.append(head.encode() + body)
    return found


def _native_samples() -> list[bytes]:
    hello = FrameEncoder().message(Hello().to_wire())
    return [hello + one for one in _samples("native frames")]


def _sql_samples() -> list[bytes]:
    body = struct.pack(">I", 3 << 16) + b"user\0kvorum\0database\0postgres\0\0"
    start = struct.pack(">I", len(body) + 4) + body
    messages = _samples("SQL messages")
    query = sql.message(b"Q", b"SELECT a0, a1 FROM t WHERE a0 < 5\0")
    copy = sql.message(b"Q", b"COPY t FROM STDIN\0") + sql.message(b"d", b"900\tx\n")
    return [start + one for one in (*messages, query, copy)] + [start]


async def streams(base: int, count: int, seed: int, report: Report) -> None:
    """`count` connections, each with one mutated stream."""
    ports = [(base, _native_samples()), (base + 2, _http_samples(base)), (base + 3, _sql_samples())]
    ports.append((base + 1, _samples("raft")))
    mutator = Mutator(seed)
    rng = random.Random(seed)
    while report.inputs < count:
        chosen = [rng.choice(ports) for _ in range(_AT_ONCE)]
        await asyncio.gather(*(_send(port, mutator.make(samples)) for port, samples in chosen))
        report.inputs += _AT_ONCE


async def _send(port: int, data: bytes) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return  # a node alone has no port for others
    try:
        writer.write(data)
        async with asyncio.timeout(_ANSWER_S):
            while await reader.read(1 << 16):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


# -- statements


def statements(base: int, count: int, seed: int, report: Report) -> None:
    """One client's calls of every function, then its statements; each ends in time and breaks
    nothing.
    """
    dsn = _DSN.format(base + 3)
    with psycopg.connect(dsn) as catalog:
        made = Statements(seed, catalog.execute(FUNCTIONS).fetchall())
    conn = _connected(dsn)
    for statement in itertools.chain(made.calls(), (made.make() for _ in range(count))):
        began = time.monotonic()
        try:
            conn.execute(statement.encode())
        except psycopg.OperationalError as error:
            if conn.closed:
                report.found(f"the connection ended: {error} on {statement}")
                conn = _connected(dsn)
        except psycopg.Error as error:
            if error.sqlstate == "XX000":
                report.found(f"internal error: {error} on {statement}")
        took = time.monotonic() - began
        if took > STATEMENT_S + OVERTIME_S:
            report.found(f"{took:.1f} s: {statement}")
        report.inputs += 1
    conn.close()


def _connected(dsn: str) -> psycopg.Connection:
    conn = psycopg.connect(dsn, autocommit=True)
    conn.execute(f"SET statement_timeout = {int(STATEMENT_S * 1_000)}")
    return conn


# -- requests

SCHEMATHESIS: Final = Path(sys.executable).with_name("schemathesis")
_REQUESTS_S: Final = 150


def requests(base: int, seed: int, report: Report) -> None:
    """Right and wrong requests of each operation of our OpenAPI document (schemathesis): no answer
    is a server error, each has a status and a shape that the document tells.
    """
    words = ["run", f"http://127.0.0.1:{base + 2}/openapi.json", "--phases", "coverage,fuzzing"]
    words += ["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"]
    words += ["--seed", str(seed), "--max-time", str(_REQUESTS_S), "--no-shrink", "--no-color"]
    words += ["--exclude-path-regex", _CLOSING]
    words += ["--continue-on-failure", "--warnings", "off", "--request-timeout", "10"]
    with tempfile.TemporaryDirectory(prefix="kvorum-attack-") as home:
        done = subprocess.run([str(SCHEMATHESIS), *words], cwd=home, capture_output=True, text=True)
    if done.returncode:
        failures = done.stdout.partition("FAILURES ")[2].partition(" SUMMARY ")[0]
        report.found(
            f"schemathesis: {failures[:6_000] or done.stdout[-2_000:]}{done.stderr[-200:]}"
        )
    made = re.search(r"(\d+) generated", done.stdout)
    report.inputs += int(made[1]) if made else 0


# -- the node


def attack(node: NodeProcess, counts: Sequence[int], seed: int) -> tuple[Report, dict[str, float]]:
    """`counts`: of streams, of statements. The node runs."""
    report = Report()
    base = node.base
    with kvorum.connect(node.url) as db:
        db.create_namespace("attacked")
        db.create_table("attacked", "bystander")
        db.table("attacked", "bystander").put(b"k", b"v")
    with psycopg.connect(_DSN.format(base + 3), autocommit=True) as conn:
        for statement in TABLE:
            conn.execute(statement)
    before = _memory(node)
    beside = Bystander(base)
    asyncio.run(streams(base, counts[0], seed, report))
    statements(base, counts[1], seed, report)
    if SCHEMATHESIS.exists():
        requests(base, seed, report)
    else:
        report.skipped.append("schemathesis")
    slowest = beside.end(report)
    if node.exit_code_now() is not None:
        report.found(f"the node ended: {node.tail()}")
        return report, slowest
    with urllib.request.urlopen(f"http://127.0.0.1:{base + 2}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if "internal_errors" in line and not line.startswith("#") and float(line.split()[-1]):
                report.found(f"{line}: {node.tail()}")
    grown = _memory(node) - before
    if grown > _GROWTH_BYTES:
        report.found(f"the node has {grown >> 20} MiB more than before")
    return report, slowest


def _memory(node: NodeProcess) -> int:
    """Of the node and its SQL processes."""
    process = psutil.Process(node.spawned)
    family = [process, *process.children(recursive=True)]
    return sum(one.memory_info().rss for one in family if one.is_running())
