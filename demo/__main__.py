"""`make demo`: stream 336,776 flights into Kvorum exactly once while the driver and the node are
killed, and prove it.

1  a node (or, with --nodes 3, a cluster) on a fresh directory; the flights cut into files
2  Spark streams the files; at a third the driver is killed with -9, at two thirds the node is (of a
   cluster: the leader; the others go on without it); both come back
3  proof: row count and content hash equal the source; each micro-batch has one version of its own;
   a witness that read snapshots all the while never saw a part of one
4  a cross-partition transaction with a conflict; a procedure that fails and rolls back; delays per
   carrier by Spark
5  a summary, and commands to look around (with --keep the node stays up)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

import kvorum
from demo import flights
from demo.driver import TABLE
from demo.processes import Cluster, Node, Process, Servers, free_base_port
from sqlproxy.rows import rows as row_codec
from sqlproxy.rows.schema import Table

NAMESPACE, NAME = TABLE.split(".")
ROWS_PER_FILE = 10_000
STREAM_TIMEOUT_S = 240
DRIVER_STARTS_MAX = 4
out = Console(highlight=False)


@dataclass
class Survived:
    """What the summary says."""

    rows: int = 0
    digest: str = ""
    batches: int = 0
    stream_s: float = 0.0
    driver_kills: int = 0
    driver_starts: int = 1
    node_kills: int = 0
    node_back_s: float = 0.0
    nodes: int = 1
    pulses: int = 0
    gap_s: float = 0.0
    snapshots: int = 0
    put_ms: list[float] = field(default_factory=list)
    get_ms: list[float] = field(default_factory=list)


class Failed(Exception):
    """The proof does not hold, or something did not come up: the reason."""


class Witness(threading.Thread):
    """Reads the first, middle and last row of every file at one snapshot, again and again.

    A file is delivered by one micro-batch, so at any snapshot all three are there or none is.
    """

    def __init__(self, db: kvorum.Database, files: list[list[bytes]]) -> None:
        super().__init__(name="witness", daemon=True)
        self._db, self._files, self._ended = db, files, threading.Event()
        self.snapshots, self.torn, self.seen = 0, 0, 0

    def run(self) -> None:
        table = self._db.table(NAMESPACE, NAME)
        keys = [key for file in self._files for key in file]
        while not self._ended.wait(0.05):
            try:
                found = table.multi_get(keys)
            except kvorum.KvorumError:
                continue  # the node is being killed
            at, seen = 0, 0
            for file in self._files:
                there = sum(r is not None for r in found[at : at + len(file)])
                self.torn += there not in (0, len(file))
                seen += there == len(file)
                at += len(file)
            self.seen, self.snapshots = seen, self.snapshots + 1

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


class Pulse(threading.Thread):
    """Writes a number every few milliseconds and remembers the longest time without an
    acknowledged write.
    """

    def __init__(self, db: kvorum.Database) -> None:
        super().__init__(name="pulse", daemon=True)
        self._db, self._ended = db, threading.Event()
        self.beats, self.gap_s, self.last = 0, 0.0, -1

    def run(self) -> None:
        table = self._db.table(NAMESPACE, "pulse")
        number, acknowledged = 0, time.monotonic()
        while not self._ended.wait(0.005):
            try:
                table.put("beat", str(number).encode())
            except kvorum.KvorumError:
                continue
            now = time.monotonic()
            self.gap_s, acknowledged = max(self.gap_s, now - acknowledged), now
            self.last, self.beats, number = number, self.beats + 1, number + 1

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the node running at the end")
    parser.add_argument("--nodes", type=int, default=1, help="1, or 3 and more for a cluster")
    given = parser.parse_args()
    keep = given.keep
    if given.nodes != 1 and not 3 <= given.nodes <= 9:
        parser.error("--nodes: 1, or 3 to 9 (two nodes survive nothing: both are a majority)")
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvorum-demo-")))
        try:
            survived = _run(folder, stack, given.nodes)
        except Failed as e:
            out.print(f"[bold red]FAILED[/] {e}")
            return 1
        _summary(survived, time.monotonic() - began)
        if keep:
            _stay(stack)
    return 0


def _run(folder: Path, stack: ExitStack, nodes: int) -> Survived:
    result = Survived(nodes=nodes)
    out.rule("1  a node and the source" if nodes == 1 else f"1  {nodes} nodes and the source")
    source = list(flights.read_source())
    want_rows, want_digest = flights.content_hash(source)
    count = flights.write_files(source, folder / "source", ROWS_PER_FILE)
    out.print(f"source      {want_rows:,} flights in {count} files, sha256 {want_digest[:16]}…")
    servers: Servers
    if nodes == 1:
        servers = node = Node(folder / "node", free_base_port(), folder / "node.log")
        stack.callback(node.stop)
        node.start()
        ready_s = node.wait_ready()
    else:
        servers = cluster = Cluster(folder / "cluster", nodes, free_base_port(nodes))
        stack.callback(cluster.stop)
        ready_s = cluster.start()
    out.print(
        f"{'node ' if nodes == 1 else 'nodes'}       ready in {ready_s:.1f} s: {servers.endpoint}"
    )
    db = stack.enter_context(kvorum.connect(f"kvorum://{servers.endpoint}"))
    table = _create_tables(db)

    out.rule("2  Spark streams, things are killed")
    _stream(folder, servers, db, table, source, result, stack)

    out.rule("3  proof")
    _prove(db, table, source, want_rows, want_digest, result)

    out.rule("4  transactions, a procedure, a Spark read")
    _conflict(db, source, table)
    _procedure(db)
    _carriers(folder, servers)
    _latencies(db, result)
    return result


def _create_tables(db: kvorum.Database) -> Table:
    db.create_namespace(NAMESPACE)
    columns = [
        kvorum.Column(name, kind, nullable=name in flights.NULLABLE)
        for name, kind in flights.COLUMNS
    ]
    descriptor = Table.declare(NAMESPACE, NAME, columns=columns, primary_key=flights.PRIMARY_KEY)
    splits = [row_codec.key_prefix(descriptor, (day,)) for day in flights.SPLIT_DAYS]
    db.create_table(
        NAMESPACE, NAME, columns=columns, primary_key=flights.PRIMARY_KEY, split_keys=splits
    )
    db.create_table(NAMESPACE, "bookings")
    db.create_table(NAMESPACE, "pulse")
    out.print(
        f"table       {TABLE}: {len(columns)} columns, primary key {flights.PRIMARY_KEY},"
        f" {len(splits) + 1} partitions"
    )
    return descriptor


def _stream(
    folder: Path,
    servers: Servers,
    db: kvorum.Database,
    table: Table,
    source: list[flights.Row],
    result: Survived,
    stack: ExitStack,
) -> None:
    files = [source[i : i + ROWS_PER_FILE] for i in range(0, len(source), ROWS_PER_FILE)]
    keys = [
        [row_codec.encode_key(table, flights.key_of(f[i])) for i in (0, len(f) // 2, -1)]
        for f in files
    ]
    witness = Witness(db, keys)
    witness.start()
    stack.callback(witness.stop)
    pulse = Pulse(db)
    pulse.start()
    stack.callback(pulse.stop)
    stream = [sys.executable, "-m", "demo.driver", "stream", servers.endpoint]
    folders = [str(folder / name) for name in ("source", "checkpoint", "spark")]
    driver = Process("driver", [*stream, *folders], folder / "driver.log")
    stack.callback(driver.stop)
    driver.start()
    began = time.monotonic()
    with out.status("streaming") as status:
        while True:
            time.sleep(0.1)
            seconds = time.monotonic() - began
            status.update(f"streaming   {witness.seen}/{len(files)} files visible, {seconds:.0f} s")
            if seconds > STREAM_TIMEOUT_S:
                raise Failed(f"the stream is not done after {STREAM_TIMEOUT_S} s:\n{driver.tail()}")
            if driver.code == 0:
                break
            if driver.code is not None:
                _restart(driver, result, seconds, f"ended with {driver.code}, restarted", witness)
            elif not result.driver_kills and witness.seen >= len(files) / 3:
                driver.kill()
                result.driver_kills += 1
                _restart(driver, result, seconds, "KILLED (-9) and restarted", witness)
            elif not result.node_kills and witness.seen >= len(files) * 2 / 3:
                victim = servers.kill_leader()
                result.node_kills += 1
                result.node_back_s = servers.back()
                out.print(
                    f"{seconds:5.1f} s     {victim} KILLED (-9) at {witness.seen} files; back after"
                    f" {result.node_back_s:.1f} s"
                )
    result.stream_s = time.monotonic() - began
    witness.stop()
    pulse.stop()
    result.snapshots = witness.snapshots
    result.pulses, result.gap_s = pulse.beats, pulse.gap_s
    _check_pulse(db, pulse)
    if witness.torn:
        raise Failed(f"{witness.torn} files were seen in part")
    if not (result.driver_kills and result.node_kills):
        raise Failed("the stream ended before everything was killed")
    out.print(
        f"delivered   {len(files)} files in {result.stream_s:.1f} s, Spark's starts and all kills"
        " included"
    )


def _check_pulse(db: kvorum.Database, pulse: Pulse) -> None:
    """What was acknowledged last is there, or what was tried after it."""
    item = db.table(NAMESPACE, "pulse").get("beat")
    stored = -1 if item is None else int(item.value)
    if stored < pulse.last:
        raise Failed(f"write {pulse.last} was acknowledged, but {stored} is what is stored")


def _restart(
    driver: Process, result: Survived, seconds: float, what: str, witness: Witness
) -> None:
    result.driver_starts += 1
    if result.driver_starts > DRIVER_STARTS_MAX:
        raise Failed(f"the driver keeps failing:\n{driver.tail()}")
    out.print(f"{seconds:5.1f} s     driver {what} at {witness.seen} files")
    driver.start()


def _prove(
    db: kvorum.Database,
    table: Table,
    source: list[flights.Row],
    want_rows: int,
    want_digest: str,
    result: Survived,
) -> None:
    stored, files_of_version = [], defaultdict(set)
    file_of = {flights.key_of(row): i // ROWS_PER_FILE for i, row in enumerate(source)}
    began = time.monotonic()
    for item in db.table(NAMESPACE, NAME).rows():
        row = row_codec.decode_row(table, item.key, item.value)
        stored.append(row)
        files_of_version[item.version].add(file_of[flights.key_of(row)])
    seconds = time.monotonic() - began
    result.rows, result.digest = flights.content_hash(stored)
    result.batches = len(files_of_version)
    if (result.rows, result.digest) != (want_rows, want_digest):
        raise Failed(
            f"stored {result.rows} rows with sha256 {result.digest}, the source has {want_rows}"
            f" with {want_digest}"
        )
    sizes = Counter(len(f) for f in files_of_version.values())
    whole = sum(len(f) for f in files_of_version.values())
    if whole != len(set().union(*files_of_version.values())):
        raise Failed(
            "a file's rows have more than one version: a micro-batch was torn or delivered twice"
        )
    out.print(f"rows        {result.rows:,} read back in {seconds:.1f} s: equal to the source")
    out.print(f"sha256      {result.digest}: equal to the source")
    out.print(
        f"batches     {result.batches} versions of whole files"
        f" ({', '.join(f'{n} of {size}' for size, n in sorted(sizes.items()))});"
        f" {result.snapshots:,} snapshots read meanwhile, none saw a part of one"
    )


def _conflict(db: kvorum.Database, source: list[flights.Row], table: Table) -> None:
    """Two transactions move the same flights' numbers in partitions January and December; one has
    to go again.
    """
    first = row_codec.encode_key(table, flights.key_of(source[0]))
    other = row_codec.encode_key(table, flights.key_of(source[ROWS_PER_FILE * 11]))
    runs = 0

    def swap(t: kvorum.Transaction) -> None:
        nonlocal runs
        runs += 1
        rows = t.table(NAMESPACE, NAME)
        a, b = rows.get(first), rows.get(other)
        assert a is not None
        assert b is not None
        if runs == 1:  # somebody else is faster, after our snapshot
            db.table(NAMESPACE, NAME).put(first, a.value)
        rows.put(first, a.value)
        rows.put(other, b.value)

    db.run(swap)
    versions = db.table(NAMESPACE, NAME).multi_get([first, other])
    if runs != 2 or len({r.version for r in versions if r}) != 1:
        raise Failed(f"the conflicting transaction ran {runs} times, versions {versions}")
    out.print(
        "conflict    WRITE_CONFLICT on the first run, committed on the second: 2 partitions, 1"
        " version"
    )


def _procedure(db: kvorum.Database) -> None:
    procedure = db.submit(
        "demo.book_seat", {"seat": "12A", "passenger": "Ada", "card": "declined"}, nonce="demo-1"
    )
    again = db.submit(
        "demo.book_seat", {"seat": "12A", "passenger": "Ada", "card": "declined"}, nonce="demo-1"
    )
    info = db.procedure(procedure, wait_ms=20_000)
    left = list(db.table(NAMESPACE, "bookings").rows())
    if again != procedure or info.state != "ROLLED_BACK" or left:
        raise Failed(f"procedure {procedure}/{again} is {info.state} and left {left}")
    out.print(
        f"procedure   demo.book_seat {procedure}: {info.error and info.error['code']},"
        f" {info.state}, nothing left; its nonce gave the same id"
    )
    paid = db.submit("demo.book_seat", {"seat": "12B", "passenger": "Grace", "card": "good"})
    out.print(f"procedure   demo.book_seat {paid}: {db.wait(paid, timeout_ms=20_000)}")


def _carriers(folder: Path, servers: Servers) -> None:
    argv = [
        sys.executable,
        "-m",
        "demo.driver",
        "read",
        servers.endpoint,
        str(folder / "spark-read"),
    ]
    with out.status("Spark reads delays per carrier"):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Failed(f"the Spark read failed:\n{done.stderr[-2000:]}")
    carriers = json.loads(done.stdout.splitlines()[-1])
    worst = ", ".join(f"{c} {delay:+.1f} min" for c, _, delay in carriers[:3])
    total = sum(n for _, n, _ in carriers)
    out.print(f"carriers    {len(carriers)} over {total:,} arrivals, the latest: {worst}")


def _latencies(db: kvorum.Database, result: Survived) -> None:
    table = db.table(NAMESPACE, "bookings")
    for i in range(200):
        t0 = time.perf_counter()
        table.put(f"probe/{i}", b"x" * 100)
        t1 = time.perf_counter()
        table.get(f"probe/{i}")
        result.put_ms.append((t1 - t0) * 1e3)
        result.get_ms.append((time.perf_counter() - t1) * 1e3)


def _summary(s: Survived, seconds: float) -> None:
    out.rule("5  summary")
    grid = Grid(show_header=False, box=None)
    p50 = statistics.median
    for name, value in (
        (
            "rows",
            f"{s.rows:,} exactly once ({s.rows / s.stream_s:,.0f} rows/s with starts and kills)",
        ),
        ("micro-batches", f"{s.batches}, each visible all at once in {s.snapshots:,} snapshots"),
        (
            "killed with -9",
            (
                f"driver {s.driver_kills}, {'node' if s.nodes == 1 else 'leader'} {s.node_kills}"
                f" (ready again in {s.node_back_s:.1f} s); lost: 0, doubled: 0"
            ),
        ),
        (
            "pulse",
            f"{s.pulses:,} writes acknowledged, longest time without one {s.gap_s:.2f} s; lost: 0",
        ),
        ("durable put", f"p50 {p50(s.put_ms):.2f} ms, one client"),
        ("get", f"p50 {p50(s.get_ms):.2f} ms, one client"),
        ("all of it", f"{seconds:.0f} s"),
    ):
        grid.add_row(name, value)
    out.print(grid)
    out.print(
        "\nLook around:  kvorum dev --data ./data"
        "   then   kvorum put default/greetings/hello world --create"
    )


def _stay(stack: ExitStack) -> None:
    out.print("the node stays up; Ctrl-C ends it")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        stack.close()


if __name__ == "__main__":
    sys.exit(main())
