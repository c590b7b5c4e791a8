"""A cluster of three real processes for the tests, always taken down; and what to do to it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kvorum
from kv.base.config import PORTS_PER_NODE
from kvorum.cli.cluster_commands import links
from kvorum.programs.localcluster import LocalCluster
from procedures.master.members.membership import DECOMMISSION
from tests.kit.cables import CABLES_HOST, Cables
from tests.kit.machine import free_port_base

MODULES = ("--procedure-modules", "tests.processes.sample_procedures")
READY_S = 60.0


class Nodes:
    """A local cluster and its faults. Numbers are node ids, from 1."""

    def __init__(
        self, directory: Path, count: int, *options: str, clock: str = "", spare: int = 0
    ) -> None:
        """`spare`: so many may be added."""
        # free_port_base looks at BASE of node 0; node I of a local cluster uses BASE + 10·I.
        base = free_port_base(count + spare + 1)
        self.local = LocalCluster.create(directory, count, base, clock=clock)
        self.options = (*MODULES, *options)

    @property
    def numbers(self) -> list[int]:
        return [node.id for node in self.local.nodes]

    @property
    def url(self) -> str:
        return f"kvorum://{self.local.connect}"

    def start(self, *numbers: int) -> float:
        """Start them (all) and wait; seconds until the last is ready."""
        began = time.monotonic()
        wanted = list(numbers) or self.numbers
        for number in wanted:
            self.launch(number)
        try:
            self.local.wait_ready(wanted, within_s=READY_S, on_ready=lambda _number: None)
        except kvorum.KvorumError as e:
            logs = "\n".join(f"--- {n}\n{self.local.tail(n, 30)}" for n in self.numbers)
            raise AssertionError(f"{e}\n{logs}") from e
        return time.monotonic() - began

    def launch(self, number: int) -> None:
        """Begin to start it."""
        self.local.start(number, self.options)

    def kill(self, number: int) -> None:
        self.local.signal(number, signal.SIGKILL)

    def pause(self, number: int) -> None:
        self.local.signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.local.signal(number, signal.SIGCONT)

    def cut(self, number: int, *others: int) -> None:
        """Nothing passes between the node and the others (all others if none is named)."""
        for other in others or [n for n in self.numbers if n != number]:
            for here, there in ((number, other), (other, number)):
                blocked = links(self.local.node(here), None)
                links(self.local.node(here), [*blocked, there])

    def heal(self) -> None:
        for node in self.local.nodes:
            if node.state() == "running":
                links(node, [])

    def replace(self, number: int) -> int:
        """A new node in the place of an old one; the new one's number."""
        added = self.local.add()
        self.start(added.id)
        self.wait_voters(added.id, there=True)
        with kvorum.connect(self.url) as db:
            db.wait(db.submit(DECOMMISSION, {"node": number}), timeout_ms=60_000)
        self.local.stop(number)
        self.local.forget(number)
        return added.id

    def mend(self) -> None:
        """Undo whatever a test has left behind, so that the next one finds the cluster whole."""
        for node in self.local.nodes:
            match node.state():
                case "paused":
                    self.resume(node.id)
                case "running":
                    pass
                case _:
                    self.start(node.id)
        self.heal()
        self.wait_caught_up()

    def wait_voters(self, number: int, *, there: bool, within_s: float = 60) -> None:
        """Until a node votes in every partition (or in none)."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with kvorum.connect(self.url) as db:
                rows = db.partitions()
            if all((number in row["replicas"]) == there for row in rows):
                return
            time.sleep(0.2)
        raise AssertionError(f"node {number} (wanted {there}): {rows}")

    def leader(self, partition: int = 1) -> int:
        """Who leads a partition, as the cluster says."""
        return self.local.leader(partition)

    def wait_caught_up(self, within_s: float = 30, *, lag_max: int = 0) -> None:
        """Until every partition has a leader and no replica lags by more entries than `lag_max`
        (under load there are always some).
        """
        deadline = time.monotonic() + within_s
        rows: list[dict[str, Any]] = []
        while time.monotonic() < deadline:
            try:
                with kvorum.connect(self.url) as db:
                    rows = db.partitions()
            except kvorum.KvorumError:
                time.sleep(0.1)
                continue
            if all(row["leader"] is not None for row in rows) and all(
                behind <= lag_max for row in rows for behind in row["lag"].values()
            ):
                return
            time.sleep(0.1)
        raise AssertionError(f"still behind: {rows}")


class Cabled(Nodes):
    """Nodes that know each other by what the cables listen on."""

    def __init__(self, directory: Path, count: int, *, clock: str = "", spare: int = 0) -> None:
        super().__init__(directory, count, "--advertise", CABLES_HOST, clock=clock, spare=spare)
        bases = {node.id: node.base for node in self.local.nodes}
        last = bases[count]
        later = {count + i: last + PORTS_PER_NODE * i for i in range(1, spare + 1)}
        self.cables = Cables(bases | later)
        self.options += ("--join", ",".join(f"{CABLES_HOST}:{base}" for base in bases.values()))

    def others(self, number: int) -> list[int]:
        return [other for other in self.numbers if other != number]


@contextmanager
def cluster(directory: Path, count: int = 3, *options: str) -> Iterator[Nodes]:
    """A running cluster; taken down whatever happens."""
    nodes = Nodes(directory, count, *options)
    try:
        nodes.start()
        yield nodes
    finally:
        for number in nodes.numbers:
            if nodes.local.node(number).state() == "paused":
                nodes.resume(number)
        nodes.local.down(within_s=10)
        if LocalCluster.exists(directory):  # another process may have started nodes anew
            LocalCluster.open(directory).down(within_s=10)
