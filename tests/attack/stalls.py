"""How long a statement holds others: a node in a process of its own whose loop has a pulse, and a
neighbour who asks for a row by its key.

    python -m tests.attack.stalls [--only WORDS] [--every N]

The pulse is told in the processor time of the whole process, which other work on the machine does
not lengthen: what holds the interpreter in a thread holds the loop, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psycopg
import uvloop

from kv.base.config import NodeConfig
from kvorum.local import descriptors
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from tests.attack.hostile import TABLES, Hostile, statements
from tests.kit.commands import settings
from tests.kit.machine import ROOT, free_port_base

TIMEOUT_S: Final = 0.5
_BEAT_S: Final = 0.005
_BYTES_MAX: Final = 3 << 30


# -- the node's side


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def _serve(data: str, base: int) -> None:
    loop = asyncio.get_running_loop()
    descriptors.raise_limit()
    node = await build(NodeConfig(data=Path(data), port=base), system_ports(loop))
    await node.start()
    held = [0.0, 0.0]
    over = loop.create_future()

    def asked() -> None:
        if not sys.stdin.readline():
            over.set_result(None)
            return
        print(*held, flush=True)
        held[:] = 0.0, 0.0

    loop.add_reader(0, asked)
    print("ready", flush=True)
    while not over.done():
        cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(_BEAT_S)
        held[0] = max(held[0], time.process_time() - cpu)
        held[1] = max(held[1], time.monotonic() - wall)
        if resident() > _BYTES_MAX:
            os._exit(9)
    await node.stop()


# -- who measures


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds: how long the statement ran, the loop was held (processor time; as the clock says),
    and the neighbour waited.
    """

    took: float
    held: float
    wall: float
    waited: float
    state: str | None


class Watched:
    """A node whose pulse is felt."""

    def __init__(self, data: Path) -> None:
        self.base = free_port_base()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.stalls", "--node", str(data), str(self.base)],
            cwd=ROOT,
            env=settings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"
        with self.connect() as conn:
            for text in TABLES:
                conn.execute(text)

    def connect(self) -> psycopg.Connection:
        where = f"host=127.0.0.1 port={self.base + 3} user=kvorum dbname=postgres"
        return psycopg.connect(where, autocommit=True)

    def pulse(self) -> tuple[float, float]:
        """Since it was asked last."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        cpu, wall = map(float, self._read().split())
        return cpu, wall

    def measured(self, one: Hostile) -> Measured:
        with self.connect() as conn, self.connect() as other:
            conn.execute(f"SET statement_timeout = '{TIMEOUT_S}s'")
            self.pulse()
            neighbour = Neighbour(other)
            began = time.perf_counter()
            state = run(conn, one)
            took = time.perf_counter() - began
            waited = neighbour.end()
            return Measured(took, *self.pulse(), waited, state)

    def _read(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._child.communicate(timeout=60)


class Neighbour(threading.Thread):
    """Asks for a row all the time; how long it waited at most."""

    def __init__(self, conn: psycopg.Connection) -> None:
        super().__init__(daemon=True)
        self._conn, self._over, self.longest = conn, threading.Event(), 0.0
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.005):
            began = time.perf_counter()
            self._conn.execute("SELECT v FROM words WHERE id = 7", prepare=True).fetchall()
            self.longest = max(self.longest, time.perf_counter() - began)

    def end(self) -> float:
        self._over.set()
        self.join()
        return self.longest


def run(conn: psycopg.Connection, one: Hostile) -> str | None:
    """To its end; the SQLSTATE of its error. What it changes is rolled back."""
    raw = conn.pgconn
    if one.lines or one.text.startswith("COPY"):
        try:
            with conn.cursor().copy(one.text.encode()) as copy:
                if one.lines:
                    for at in range(0, len(one.lines), 1 << 20):
                        copy.write(one.lines[at : at + (1 << 20)])
                else:
                    for _ in copy:
                        pass
        except psycopg.Error as error:
            return error.sqlstate or "lost"
        return None
    changes = one.text.startswith(("INSERT", "UPDATE", "DELETE", "MERGE"))
    if changes:
        conn.execute("BEGIN")
    if one.values is None:
        raw.send_query(one.text.encode())
    else:
        raw.send_query_params(one.text.encode(), [value.encode() for value in one.values])
    raw.set_single_row_mode()
    state = None
    while (result := _result(raw)) is not None:
        if found := result.error_field(psycopg.pq.DiagnosticField.SQLSTATE):
            state = found.decode()
        elif result.status in (psycopg.pq.ExecStatus.FATAL_ERROR,):
            state = "lost"
    if changes and state != "lost":
        conn.execute("ROLLBACK")
    return state


def _result(raw: psycopg.pq.abc.PGconn) -> psycopg.pq.abc.PGresult | None:
    """The next one; the neighbour has the interpreter meanwhile."""
    while raw.is_busy():
        select.select([raw.socket], [], [])
        raw.consume_input()
    return raw.get_result()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", nargs=2, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    if given.node:
        uvloop.run(_serve(given.node[0], int(given.node[1])))
        return 0
    chosen = [one for one in statements() if re.search(given.only, one.name)][
        given.skip :: given.every
    ]
    print(len(chosen), "statements", flush=True)
    with tempfile.TemporaryDirectory() as home, Watched(Path(home) / "data") as node:
        for one in chosen:
            try:
                m = node.measured(one)
            except psycopg.Error as error:
                print(f"!! {one.name}: {error!r}", flush=True)
                continue
            bad = m.held > 0.2 or m.took > TIMEOUT_S + 1 or m.state in ("lost", "XX000")
            if bad or m.waited > 0.4 or given.all:
                mark = "**" if bad else "  "
                print(f"{mark} held {m.held:.2f} wall {m.wall:.2f} waited {m.waited:.2f}", end=" ")
                print(
                    f"took {m.took:.2f} {m.state} {one.name}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
