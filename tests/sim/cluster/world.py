"""One seed: a cluster, clients that work, faults, then peace, and the verdict.

start      the cluster forms, the workload's table is made; no faults
phase 1    clients work while the nemesis does
phase 2    everything is healed: within a bound every client gets an answer, every partition
           serves again, every intent is gone, and all replicas are equal
verdict    the workload's own last reads, and the checkers on the history
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kv.base.errors import KvorumError
from kv.base.limits import TSO_AHEAD_MS
from kv.replica.ranges import slices
from kvorum.testing.simulation.life import LivesLoop, run
from kvorum.testing.simulation.loop import Deadlock, Livelock
from kvorum.testing.simulation.probes import probes
from kvorum.testing.simulation.processes import CLIENTS_FROM, ClientProcess, Cluster
from kvorum.testing.simulation.trace import Trace
from kvorum.verify.catalog import WORKLOADS, judge
from kvorum.verify.client import Client
from kvorum.verify.history import Header, Recorder
from kvorum.verify.random_choices import Chance
from kvorum.verify.workloads.base import Workload
from tests.sim.cluster.limits import randomised
from tests.sim.cluster.mutations import MUTATIONS, broken
from tests.sim.cluster.nemesis import Nemesis
from tests.sim.cluster.plan import Plan, draw, draw_hybrid

HEALED_S = 30.0
PEACE_S = 0.3
"""Clients still work for so long."""
ANSWER_S = 40.0
"""A client's operation has a deadline of 10 s, and its status is asked for once more."""
INTENTS_S = 45.0
"""Time to live, sweeps, and twice the error of a clock, by which an age may be wrong."""
TABLE = "t"
EVENTS_MAX = 2_000
"""Of a history: more seeds find more than longer ones."""
CLIENTS_EVER = 10_000
"""More than clients ever live in a run."""
FAMILIES = ("cur", "hist", "lock", "txn")
"""Of the state database, all that belongs to partitions alone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`violation`: what was broken first, None for nothing. `digest`: of the whole trace."""

    violation: str | None
    digest: int
    events: int
    operations: int
    committed: int


Show = Callable[[str], None]


class World:
    """See the module; `play` once."""

    def __init__(self, loop: LivesLoop, seed: int, plan: Plan, show: Show | None = None) -> None:
        self.seed, self.plan = seed, plan
        self.trace = Trace(loop.time, show)
        plan.modules = tuple(WORKLOADS[plan.workload].modules)
        self.cluster = Cluster(loop, seed, plan, self.trace)
        self.nemesis = Nemesis(self.cluster)
        self.workload: Workload = WORKLOADS[plan.workload]()
        header = Header(plan.workload, seed, plan.isolation, self.workload.parameters())
        self.recorder = Recorder(header, loop.time, self._told)
        self._loop = loop
        self._working = 0
        self._stop = False
        self._processes = 0
        self._born: set[int] = set()

    def _told(self, event: Any) -> None:
        told = f"{event.type} {event.process} {event.f} {event.value} {event.error} {event.info}"
        self.trace.note(f"history {told}")

    async def play(self) -> None:
        cluster = self.cluster
        await cluster.start()
        if cluster.violations:
            return
        await self._in_client(self._prepare, "the table is made")
        if cluster.violations:
            return
        if self.plan.clock:  # who has no token sees what was written when clocks have passed it
            await asyncio.sleep(PEACE_S)
        if self.plan.replica_age_ms:  # a new oracle is ahead of time: replicas would not be asked
            await asyncio.sleep(TSO_AHEAD_MS / 1000)
        self._born = self._partitions()
        cluster.note("phase 1")
        cluster.faulty = True
        cluster.network.chances = self.plan.chances
        for client in cluster.clients.values():
            self._employ(client)
        self.nemesis.begin()
        await asyncio.sleep(self.plan.faults_s)
        cluster.note("phase 2")
        cluster.faulty = False
        self.nemesis.heal()
        await cluster.until(cluster.all_ready, HEALED_S, "all nodes are ready again")
        await asyncio.sleep(PEACE_S)
        self._stop = True
        await cluster.until(lambda: not self._working, ANSWER_S, "every client has an answer")
        await cluster.until(self._no_intents, INTENTS_S, "all intents are gone")
        if not cluster.violations:
            await self._in_client(self._final, "the last reads are answered")
        await cluster.until(self._replicas_agree, HEALED_S, "all replicas are equal")
        self._judge()

    # -- clients

    def _employ(self, process: ClientProcess) -> None:
        """Let it work, and whoever comes in its place when it dies."""
        if self._stop:
            return
        self._processes += 1
        life = process.life
        self._working += 1
        task = life.spawn(self._work(process, self._processes))

        def look() -> None:
            if life.state.value == "dead" or task.done():
                self._working -= 1
                if task.done() and not task.cancelled() and (error := task.exception()):
                    self.cluster.fail(f"a client broke: {error!r}")
                elif not task.done():
                    self._employ(process)
            else:
                self.cluster.later(0.05, look)

        look()

    def _client(self, process: ClientProcess, number: int) -> Client:
        chance = Chance(_Rng(self.cluster.rng.getrandbits(64)))
        return Client(
            process.database(),
            self.recorder,
            chance,
            number=number,
            clients=CLIENTS_EVER,
            table=TABLE,
            isolation=self.plan.isolation,
        )

    async def _work(self, process: ClientProcess, number: int) -> None:
        client = self._client(process, number)
        rng = random.Random(number)
        events = self.recorder.history.events
        while not self._stop:
            if len(events) < EVENTS_MAX:
                await self.workload.step(client)
            await asyncio.sleep(rng.expovariate(1 / self.plan.think_s))

    async def _in_client(self, work: Callable[[Client], Any], what: str) -> None:
        process = self.cluster.clients[CLIENTS_FROM]
        self._processes += 1
        task = process.life.spawn(work(self._client(process, self._processes)))
        await self.cluster.until(task.done, ANSWER_S, what)
        if task.done():
            task.result()

    async def _prepare(self, client: Client) -> None:
        for _ in range(50):
            try:
                await self.workload.prepare(client.db, TABLE)
            except KvorumError as error:
                refusal = error
                await asyncio.sleep(0.1)
            else:
                return
        self.cluster.fail(f"the table could not be made without faults: {refusal!r}")

    async def _final(self, client: Client) -> None:
        while not await self.workload.final(client):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)

    # -- the state at the end

    def _no_intents(self) -> bool:
        return not any(
            replica.state.locks
            for node in self.cluster.nodes.values()
            if node.node is not None
            for replica in node.node.store.manager.replicas()
        )

    def _replicas_agree(self) -> bool:
        """The state databases, row by row."""
        if self.plan.replicas:
            return self._partitions_agree()
        disks = [node.engine("state") for node in self.cluster.nodes.values()]
        states = [[disk.scan(family, b"", b"") for family in FAMILIES] for disk in disks]
        return all(state == states[0] for state in states)

    def _partitions_agree(self) -> bool:
        """Row by row and partition by partition, where each has as many replicas as it has members;
        nothing else is left at any node.
        """
        members: dict[int, set[int]] = {}
        found: dict[int, dict[int, Any]] = {}
        for number, node in self.cluster.nodes.items():
            if node.node is None:
                return False
            disk, rows = node.engine("state"), 0
            for replica in node.node.store.manager.replicas():
                d, status = replica.descriptor, replica.group.status()
                mine = [disk.scan(*cut) for cut in slices(d) if cut[0] in FAMILIES]
                rows += sum(map(len, mine))
                found.setdefault(d.id, {})[number] = (d.start, d.end, d.epoch, mine)
                members[d.id] = {*status.voters, *status.learners}
            if rows != sum(len(disk.scan(family, b"", b"")) for family in FAMILIES):
                return False
        return all(
            members[id_] == {*at} and all(one == next(iter(at.values())) for one in at.values())
            for id_, at in found.items()
        )

    def _partitions(self) -> set[int]:
        nodes = [node.node for node in self.cluster.nodes.values() if node.node is not None]
        return {d.id for node in nodes for d in node.store.manager.descriptors()}

    def _judge(self) -> None:
        probes.hit("partition split", len(self._partitions() - self._born))
        probes.hit("partitions merged", len(self._born - self._partitions()))
        for error in self._loop.errors:
            told = error.get("exception") or error["message"]
            self.cluster.fail(f"an error that nobody saw: {told!r}")
        for node in self.cluster.nodes.values():
            if node.node is not None:
                self.cluster.look_at_the_dead(node.node)
        for anomaly in judge(self.recorder.history):
            if anomaly.kind == "refused" and "SNAPSHOT_TOO_OLD" in anomaly.text:
                continue  # a retention of seconds is shorter than the faults
            self.cluster.fail(f"{anomaly.kind}: {anomaly.text}")

    def outcome(self) -> Outcome:
        for event in self.recorder.history.events:
            if event.error:
                probes.hit(f"answer: {event.error}")
        operations = self.recorder.history.operations()
        return Outcome(
            self.cluster.violations[0] if self.cluster.violations else None,
            self.trace.digest,
            self.trace.count,
            len(operations),
            sum(op.acknowledged for op in operations),
        )


class _Rng:
    """kv.base.ports.Rng."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.random = self._random.random

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)


def run_seed(
    seed: int,
    *,
    mutation: str = "",
    tuned_for: str = "",
    show: Show | None = None,
    clock: str = "",
) -> Outcome:
    """One run, of the build as it is or of a broken one; `tuned_for` makes only the plan of the
    broken one. A violation is in the outcome; an exception is the harness's own.
    """
    made = (draw_hybrid if clock else draw)(random.Random(seed))
    if mutation or tuned_for:
        MUTATIONS[mutation or tuned_for].tune(made)
    if mutation:
        with broken(mutation):
            return run_plan(seed, made, show)
    return run_plan(seed, made, show)


def run_plan(seed: int, made: Plan, show: Show | None = None) -> Outcome:
    """One run of a plan that was made, or changed, by hand."""

    worlds: list[World] = []

    async def main(loop: LivesLoop) -> None:
        worlds.append(World(loop, seed, made, show))
        await worlds[0].play()

    fixed = {} if made.parallel else {"PARALLEL_PARTS_MAX": 0}
    with randomised(random.Random(seed), made.limits, **fixed) as limits:
        if show is not None:
            show(f"{made} {limits}")
        try:
            run(main, seed)
        except (Livelock, Deadlock) as error:
            worlds[0].cluster.violations.append(f"{type(error).__name__}: {error}")
    return worlds[0].outcome()
