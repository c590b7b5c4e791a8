"""The kill matrix of the Spark sink, with real processes: three nodes, a Spark driver, its tasks.

    python -m tests.clients.spark.kill_matrix --rounds 200 [--seed 7] [--master
      'local-cluster[2,1,512]']
                                      [--bulk]

A round is one micro-batch that is disturbed at one point in one way (CASES, shuffled by the seed).
After it: the batch is there, whole, in one version, whatever was killed. At every look in between
each batch is there as a whole or not at all. Requests of earlier rounds are sent once more, as a
network that kept them back would. In the end: the table equals the source, the ledger says how many
batches there were, and nothing staged is left when the leases have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import psutil

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.errors import KvorumError
from kv.client.client import connect
from kvorum.spark.sinks import Sinks
from sqlproxy.catalog import catalog
from sqlproxy.rows.rows import codec
from tests.clients.spark.matrix_lease import LEASE_MS
from tests.kit.cables import CABLES_HOST, Cables
from tests.kit.clusters import Nodes
from tests.kit.machine import ROOT, java_home

NAMESPACE, TABLE = "spark", "matrix"
ROUND_S = 180.0
LOOK_S = 0.1
START_S = 600.0  # of a JVM and its executors, on a machine that has much else to do
START_TRIES = 10
LONG_S = 65.0
BEYOND_LEASE_S = LEASE_MS / 1000 + 3
HOLD_S = 2.5  # how long nodes are unreachable
ROWS = 300
ROWS_LARGE = 3_000
ROWS_TINY = 20
META = 1
PER_FILE = 1_000_000  # ids
END_S = 120.0
LOOKED_WHOLE = 25  # rounds, after which every row is compared
SINKS = frozenset({"kvorum.sink_commit", "kvorum.sink_clean"})

TASK_POINTS = ("begin", "staged", "sealed")
DRIVER_POINTS = ("commit", "committed")
NODE_POINTS = tuple(
    step + when for step in ("verify", "write", "flip", "resolve", "remove") for when in "<>"
)


@dataclass(frozen=True)
class Case:
    """At `point`, `victim`. `delay_s`: the point is only noticed, the victim dies so much later."""

    point: str
    victim: str
    delay_s: float | None = None
    large: bool = False
    tiny: bool = False  # so few rows that tasks bring them with the commit

    @property
    def rows(self) -> int:
        if self.victim == "empty":
            return 0
        return ROWS_LARGE if self.large else ROWS_TINY if self.tiny else ROWS


def cases() -> list[Case]:
    """All of the matrix."""
    found = [
        Case(point, victim)
        for point in TASK_POINTS
        for victim in ("task", "fail", "driver", "leader", "master", "cut", "executor", "stop")
    ]
    found += [
        Case(point, victim)
        for point in DRIVER_POINTS
        for victim in ("task", "fail", "driver", "leader", "master", "cut", "stop", "oom")
    ]
    found += [
        Case(point, victim, large=True) for point in NODE_POINTS for victim in ("leader", "master")
    ]
    found += [
        Case(point, victim, tiny=True)
        for point in DRIVER_POINTS
        for victim in ("task", "driver", "leader", "master", "cut", "stop")
    ]
    found += [Case("verify>", victim, tiny=True) for victim in ("leader", "master")]
    for large in (False, True):
        for victim in ("leader", "master"):
            found += [Case("commit", victim, delay_s, large) for delay_s in (0.0, 0.02, 0.06, 0.2)]
    found += [Case("abort", victim) for victim in ("task", "leader", "master", "driver")]
    found += [Case("sealed", "lease"), Case("commit", "lease"), Case("none", "empty")]
    found += [Case("commit", victim, large=True) for victim in ("long", "hold")]
    found += [Case("staged", "late")]
    found += [Case("none", "nothing", large=True), Case("staged", "slow")]
    return found


DRIVERS = frozenset({"driver", "oom"})  # a new JVM starts
SLOW = DRIVERS | frozenset(
    {"driver", "oom", "lease", "long", "hold", "late"}
)  # they cost ten seconds and more


def chosen(rounds: int, seed: int, *, executors: bool, quick: bool, only: str = "") -> list[Case]:
    """So many cases, each once before any comes twice. `quick`: few of those that take long.
    `only`: POINT/VICTIM[,…].
    """
    rng = random.Random(seed)
    deck: list[Case] = []
    while len(deck) < rounds:
        more = [c for c in cases() if executors or c.victim != "executor"]
        if quick:
            more = [c for c in more if c.victim not in SLOW]
        if only:
            more = [c for c in more if f"{c.point}/{c.victim}" in only.split(",")]
            assert more, f"there is no case {only}"
        rng.shuffle(more)
        deck += more
    deck = deck[:rounds]
    if quick:
        deck[min(2, rounds - 1)] = Case("commit", "hold", large=True)
        deck[rounds // 2] = Case(rng.choice(DRIVER_POINTS), "driver")
    return deck


class Cluster(Nodes):
    """Three nodes behind cables, with short leases."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 3, "--advertise", CABLES_HOST)
        bases = {node.id: node.base for node in self.local.nodes}
        self.cables = Cables(bases)
        join = ",".join(f"{CABLES_HOST}:{base}" for base in bases.values())
        modules = ("--procedure-modules", "tests.clients.spark.matrix_node")
        self.options = (*modules, "--advertise", CABLES_HOST, "--join", join)
        self.endpoint = join

    def cut_clients(self) -> None:
        """Spark reaches no node; the nodes reach each other."""
        ways = [(0, n) for n in self.numbers] + [(n, 0) for n in self.numbers]
        self.cables.cut(*ways)


@dataclass
class Matrix:
    """One run."""

    folder: Path
    cluster: Cluster
    master: str
    seed: int
    files: dict[int, int] = field(default_factory=dict)  # number → rows
    round: int = 0
    driver: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    resent: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)

    def prepare(self) -> None:
        for name in ("source", "rpc"):
            (self.folder / name).mkdir()
        columns = [kvorum.Column("id", "int4", nullable=False), kvorum.Column("value", "text")]
        with kvorum.connect(self.cluster.url) as db:
            db.create_namespace(NAMESPACE)
            db.create_table(NAMESPACE, TABLE, columns=columns, primary_key=["id"])
            self.partition = max(row["id"] for row in db.partitions())  # the newest is the table's

    # -- Spark

    def start_driver(self) -> None:
        (self.folder / "driver-is-up").unlink(missing_ok=True)
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),  # else in the installation
        }
        argv = [sys.executable, "-m", "tests.clients.spark.matrix_driver", self.cluster.endpoint]
        argv += [f"{NAMESPACE}.{TABLE}", str(self.folder), self.master]
        with (self.folder / "driver.log").open("ab") as log:
            self.driver = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self.restarts += 1

    def _session_processes(self) -> list[psutil.Process]:
        """The driver, its Java, executors and Python workers."""
        assert self.driver is not None
        try:
            root = psutil.Process(self.driver.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill_driver(self) -> None:
        """All at once, as when the machine goes."""
        assert self.driver is not None
        for process in self._session_processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.driver.wait(30)
        for left in self.folder.glob("plan-*"):
            left.unlink(missing_ok=True)

    # -- a round

    def play(self, case: Case) -> None:
        """Disturb one batch, then see it arrive."""
        self.round += 1
        if case.point != "none":
            self._arm(case)
        self._add_file(self.round, case.rows)
        if case.point != "none":
            pid = self._reached(case)
            self._strike(case, pid)
        self._arrived(case)
        for left in self.folder.glob("plan-*"):
            left.unlink(missing_ok=True)
        self._resend()
        self.done[f"{case.point}/{case.victim}"] += 1

    def _arm(self, case: Case) -> None:
        action = "wait"
        if case.victim in ("task", "fail"):
            action = "die" if case.victim == "task" else "raise"
        if case.delay_s is not None:
            action = "note"
        if case.point == "abort":  # one of two tasks must fail four times first
            self._plan(f"{self.round}f", "sealed", "raise", times=8)
        self._plan(str(self.round), case.point, action)

    def _plan(self, name: str, point: str, action: str, times: int = 1) -> None:
        plan = {"id": name, "point": point, "action": action, "times": times}
        made = self.folder / "plan.new"
        made.write_text(json.dumps(plan))
        made.rename(self.folder / f"plan-{name}.json")

    def _add_file(self, number: int, rows: int) -> None:
        lines = [f"{number * PER_FILE + n},v{number}\n" for n in range(rows)]
        made = self.folder / "file.new"
        made.write_text("".join(lines))
        os.utime(made, (1_700_000_000 + number, 1_700_000_000 + number))
        made.rename(self.folder / "source" / f"{number:06d}.csv")
        self.files[number] = rows

    def _reached(self, case: Case) -> dict[str, int]:
        up = (self.folder / "driver-is-up").exists()
        until = time.monotonic() + (ROUND_S if up else START_S)
        path = self.folder / f"reached-{self.round}"
        while not path.exists():
            self._alive()
            if time.monotonic() > until:
                raise AssertionError(f"{case}: nobody came there\n{self._log()}")
            time.sleep(0.005)
        told: dict[str, int] = json.loads(path.read_text())
        return told

    def _strike(self, case: Case, who: dict[str, int]) -> None:
        if case.delay_s is not None:
            time.sleep(case.delay_s)
        hurt: Callable[[], None] | None = {
            "driver": self._driver_dies,
            "leader": lambda: self._node_dies(self.partition),
            "master": lambda: self._node_dies(META),
            "cut": self._cut,
            "stop": self._stop_query,
            "oom": self._driver_has_no_memory,
            "executor": lambda: self._executor_dies(who["ppid"]),
            "lease": self._lease_ends,
            "slow": lambda: time.sleep(4.0),
            "long": lambda: self._nobody_answers(LONG_S),
            "hold": lambda: self._nobody_answers(BEYOND_LEASE_S),
            "late": self._task_is_late,
        }.get(case.victim)
        if hurt is not None:
            hurt()
        (self.folder / f"go-{self.round}").touch()

    def _driver_dies(self) -> None:
        self.kill_driver()
        self.start_driver()

    def _driver_has_no_memory(self) -> None:
        """The JVM goes by itself; Python processes live on, one of them in the middle of its
        callback: it goes on beside the next driver.
        """
        assert self.driver is not None
        (self.folder / "oom").touch()
        self.driver.wait(END_S)
        (self.folder / "oom").unlink()
        self.start_driver()

    def _node_dies(self, partition: int) -> None:
        number = self.cluster.local.leader(partition)
        self.cluster.kill(number)
        (self.folder / f"go-{self.round}").touch()
        time.sleep(0.5)
        for left in reversed(range(START_TRIES)):
            try:
                self.cluster.start(number)
                return
            except AssertionError as e:
                # While it was dead somebody's outgoing connection was given its port.
                if "Address already in use" not in str(e) or not left:
                    raise
            time.sleep(HOLD_S)

    def _cut(self) -> None:
        self.cluster.cut_clients()
        (self.folder / f"go-{self.round}").touch()
        time.sleep(HOLD_S)
        self.cluster.cables.heal()

    def _task_is_late(self) -> None:
        """A task computes for longer than a lease, others have ended: its attempt goes on."""
        before = self._queries_ended()
        time.sleep(BEYOND_LEASE_S)
        (self.folder / f"go-{self.round}").touch()
        time.sleep(HOLD_S)
        assert self._queries_ended() == before, "the lease of a task that works has ended"

    def _queries_ended(self) -> int:
        return (self.folder / "driver.log").read_text(errors="replace").count("the query ended")

    def _nobody_answers(self, seconds: float) -> None:
        """The commit takes longer than a minute, or a lease: two of three nodes stand still."""
        (self.folder / f"go-{self.round}").touch()
        still = self.cluster.numbers[:2]
        for number in still:
            self.cluster.pause(number)
        time.sleep(seconds)
        for number in still:
            self.cluster.resume(number)

    def _stop_query(self) -> None:
        (self.folder / "stop-query").touch()
        time.sleep(0.3)

    def _executor_dies(self, daemon: int) -> None:
        """The Java process whose Python daemon forked the worker."""
        psutil.Process(daemon).parent().kill()  # type: ignore[union-attr]

    def _lease_ends(self) -> None:
        """Everything of Spark stands still for longer than the lease."""
        processes = self._session_processes()
        for process in processes:
            process.suspend()
        time.sleep(BEYOND_LEASE_S)
        for process in processes:
            process.resume()

    # -- what must hold

    def looked(self) -> dict[int, set[int]]:
        """The versions of each batch that is there; every batch that is there is whole."""
        seen: dict[int, Counter[int]] = {}
        with kvorum.connect(self.cluster.url) as db:
            for item in db.table(NAMESPACE, TABLE).rows():
                number = (int.from_bytes(item.key[1:9], "big") - (1 << 63)) // PER_FILE
                seen.setdefault(number, Counter())[item.version] += 1
        for number, versions in seen.items():
            assert len(versions) == 1, f"batch {number} came in {len(versions)} parts: {versions}"
            assert sum(versions.values()) == self.files[number], f"a part of batch {number}"
        return {number: set(versions) for number, versions in seen.items()}

    def _arrived(self, case: Case) -> None:
        started = self.round == 1 or case.victim in DRIVERS
        until = time.monotonic() + (START_S if started else ROUND_S)
        wanted = {number for number, rows in self.files.items() if rows}
        while True:
            self._alive()
            try:
                there = set(self.looked())
            except KvorumError as e:
                if time.monotonic() > until or e.disposition == "no":
                    raise
                there = set()
            if there >= wanted:
                return
            if time.monotonic() > until:
                raise AssertionError(f"{case}: {sorted(wanted - there)} missing\n{self._log()}")
            time.sleep(LOOK_S)

    def _alive(self) -> None:
        assert self.driver is not None
        if self.driver.poll() is not None:
            raise AssertionError(f"the driver ended by itself\n{self._log()}")

    def _log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-4_000:]

    def _resend(self) -> None:
        """What was sent in earlier rounds comes once more: it is refused, or changes nothing."""
        old = sorted((self.folder / "rpc").glob("*.bin"))[:-40]
        for path in old[:-60]:
            path.unlink()
        some = random.Random(self.round).sample(old[-60:], min(3, len(old)))
        told = [msgpack.unpackb(path.read_bytes()) for path in some]
        for outcome in asyncio.run(_send(self.cluster.local.connect, told)):
            self.resent[outcome] += 1

    def end(self) -> dict[str, Any]:
        """Spark stops; the final oracle. What there is to report."""
        stopped = self._driver_stops()
        self.cluster.wait_caught_up(within_s=END_S)
        found = self.looked()
        with Sinks(self.cluster.url) as sinks:
            self.equals_the_source(sinks)
            (ledger,) = [one for one in sinks.ledgers() if one.table == f"{NAMESPACE}.{TABLE}"]
            assert ledger.version == len(self.files) - 1, (ledger, "one version for each file")
            until = time.monotonic() + 6 * LEASE_MS / 1000
            while left := (sinks.attempts(), self._going_on()):
                if not any(left):
                    break
                assert time.monotonic() < until, f"something is left: {left}"
                time.sleep(0.5)
        return {
            "rounds": self.round,
            "batches": len(found),
            "stopped": stopped,
            "rows": sum(self.files.values()),
            "drivers": self.restarts,
            "copies": self._copies(),
            "resent": dict(self.resent),
            "cases": dict(sorted(self.done.items())),
        }

    def _driver_stops(self) -> bool:
        """Whether it did so by itself: Spark may hang while it stops, which is not ours."""
        (self.folder / "end").touch()
        assert self.driver is not None
        try:
            self.driver.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill_driver()
            return False
        return True

    def equals_the_source(self, sinks: Sinks) -> None:
        """Row by row, with what is in it."""
        txn = sinks._backend.txn
        decode = codec(sinks.ask(catalog.lookup(txn, NAMESPACE, TABLE))).decode_row
        wanted = {
            number * PER_FILE + n: f"v{number}"
            for number, rows in self.files.items()
            for n in range(rows)
        }
        with kvorum.connect(self.cluster.url) as db:
            rows = [decode(item.key, item.value) for item in db.table(NAMESPACE, TABLE).rows()]
        assert len(rows) == len(wanted), f"{len(rows)} rows, not {len(wanted)}"
        wrong = [row for row in rows if wanted.get(row[0]) != row[1]]
        assert not wrong, f"{len(wrong)} rows are not the source's: {wrong[:3]}"

    def _copies(self) -> int:
        """Tasks that were sealed beside another one of the same part of the same attempt."""
        log = self.folder / "sealed.log"
        sealed = Counter(log.read_text().splitlines() if log.exists() else ())
        return sum(count - 1 for count in sealed.values())

    def _going_on(self) -> list[int]:
        """Commits and cleanings that have not ended."""
        with kvorum.connect(self.cluster.url) as db:
            return [p.id for p in db.procedures() if p.name in SINKS and not p.finished]


async def _send(endpoint: str, requests: list[Any]) -> list[str]:
    host, _, port = endpoint.partition(",")[0].rpartition(":")
    client = await connect(
        [(host, int(port))], timers=LoopTimers(asyncio.get_running_loop()), rng=SystemRng()
    )
    told = []
    try:
        for method, args in requests:
            try:
                found = await client.call_node(method, *args)
            except KvorumError as e:
                told.append(e.code)
            else:
                told.append(f"{method}:{found[0]!r:.10}")
    finally:
        client.close()
    return told


def run(
    folder: Path,
    *,
    rounds: int,
    seed: int,
    master: str = "local[2,4]",
    quick: bool = False,
    seconds: float = 1e9,
    least: int = 0,
    only: str = "",
    bulk: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Play so many rounds, or until `seconds` are over, but `least` at least. Raises
    AssertionError.
    """
    home, advice = java_home()
    assert home is not None, advice
    os.environ["JAVA_HOME"] = home
    os.environ["MATRIX_FOLDER"] = str(folder / "spark")  # for nodes and drivers
    os.environ.pop("MATRIX_BULK", None)
    if bulk:
        os.environ["MATRIX_BULK"] = "true"
    began = time.monotonic()
    cluster = Cluster(folder / "cluster")
    spark = folder / "spark"
    spark.mkdir()
    matrix = Matrix(spark, cluster, master, seed)
    with cluster.cables:
        try:
            cluster.start()
            matrix.prepare()
            matrix.start_driver()
            deck = chosen(rounds, seed, executors="cluster" in master, quick=quick, only=only)
            for case in [Case("none", "nothing"), *deck]:
                at = time.monotonic()
                matrix.play(case)
                say(f"{matrix.round:4d} {time.monotonic() - at:6.1f} s  {case}")
                if matrix.round % LOOKED_WHOLE == 0:
                    with Sinks(cluster.url) as sinks:
                        matrix.equals_the_source(sinks)
                if time.monotonic() - began > seconds and matrix.round >= least:
                    break
            return matrix.end() | {"seconds": round(time.monotonic() - began, 1)}
        finally:
            if matrix.driver is not None and matrix.driver.poll() is None:
                matrix.kill_driver()
            cluster.local.down(within_s=10)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.spark.kill_matrix")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--only", default="", help="POINT/VICTIM[,…], e.g. commit/long")
    parser.add_argument("--bulk", action="store_true", help="each micro-batch is a bulk load")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round after so many")
    parser.add_argument("--quick", action="store_true", help="few of the slow cases, as in CI")
    parser.add_argument("--folder", type=Path, help="kept for a look at what went wrong")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kill-matrix-"))
    folder.mkdir(exist_ok=True)

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    try:
        told = run(
            folder,
            rounds=args.rounds,
            seed=args.seed,
            master=args.master,
            quick=args.quick,
            seconds=args.seconds,
            only=args.only,
            bulk=args.bulk,
            say=say,
        )
    except AssertionError as e:
        say(f"FAILED in {folder} (--seed {args.seed}): {e}")
        raise SystemExit(1) from None
    say(json.dumps(told, indent=1))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
