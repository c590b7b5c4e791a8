"""One transaction over three partitions, killed at every message and every sync of everybody.

The scenario runs once without faults and counts, from the commit on, what each process sends, gets,
hears (consensus) and persists. Then it runs once per such event, the same up to it, and there one
process dies: the coordinator for good; a node with the loss of its power, to come back later. The
oracle's leader is node 1, the anchor's part and the third are led by node 2, the second part by
node 3.

Whatever dies when: every snapshot shows the transaction whole or not at all, and never less than an
earlier one; the coordinator's answer, if there was one, is true; and within the time to live and
DECIDED_S the outcome is known to others, and every intent is gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kv.base.errors import KvorumError
from kv.replica.replica import Replica
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.life import LivesLoop, run
from kvorum.testing.simulation.processes import CLIENTS_FROM, Cluster, NodeProcess
from kvorum.testing.simulation.trace import Trace
from raft import RaftError
from tests.sim.cluster.limits import changed
from tests.sim.cluster.plan import Plan

KINDS: Final = ("parallel", "two-phase", "serializable", "serializable two-phase")
KEYS: Final = ("a", "m", "t")
NS: Final = "default"
TTL_MS: Final = 1_000
DECIDED_S: Final = 8.0
"""Beyond the time to live: elections, waits, and the sweeps of what nobody meets."""
WATCHED_S: Final = 0.12
"""So long events count, from the commit on: it takes some 20 ms, its cleaning as much again."""


@dataclass(frozen=True, slots=True)
class Point:
    """The `count`-th time that a process (node or client, by number) does `what`."""

    number: int
    what: str
    count: int

    def __str__(self) -> str:
        who = "coordinator" if self.number >= CLIENTS_FROM else f"node {self.number}"
        return f"{who} {self.what} #{self.count}"


class Scenario:
    """One run; `point` None only counts."""

    def __init__(self, loop: LivesLoop, seed: int, kind: str, point: Point | None) -> None:
        plan = Plan(nodes=3, clients=2, ttl_ms=TTL_MS, budget_ms=4_000)
        self.counts: Counter[tuple[int, str]] = Counter()
        self.cluster = Cluster(loop, seed, plan, Trace(loop.time))
        self.answer: str | None = None
        self._isolation = "serializable" if kind.startswith("serializable") else "snapshot"
        self._kind, self._point = kind, point
        self._watching = False
        self._txn = 0
        self._seen: list[bool] = []

    async def play(self) -> None:
        cluster = self.cluster
        await cluster.start()
        coordinator, observer = cluster.clients.values()
        watcher = observer.life
        database = watcher.spawn(_value(observer.database))
        await database
        db: AsyncDatabase = database.result()
        await watcher.spawn(self._prepare(db))
        await self._place_leaders()
        cluster.network.on_bytes = lambda life, what: self._event(life.number, what)
        cluster.on_persist = lambda node: self._event(node.number, "persists")
        coordinator.life.spawn(self._commit(coordinator.database()))
        reading = watcher.spawn(self._watch(db))
        await asyncio.sleep(WATCHED_S)
        self._watching = False
        await cluster.until(self._is_decided, TTL_MS / 1000 + DECIDED_S, "no intents are left")
        reading.cancel()
        await watcher.spawn(self._judge(db))

    async def _prepare(self, db: AsyncDatabase) -> None:
        await db.create_table(NS, "t", split_keys=KEYS[1:])
        for key in KEYS:
            await db.table(NS, "t").put(key, "old")

    async def _place_leaders(self) -> None:
        """As the module says. Table partitions are numbered in the order of their keys."""
        first = min(i for node in self.cluster.nodes.values() for i in node.led() if i > 1)
        wanted = {1: 1, first: 2, first + 1: 3, first + 2: 2}

        def placed() -> bool:
            there = True
            for partition, number in wanted.items():
                for node in self.cluster.nodes.values():
                    if node.number != number and partition in node.led():
                        there = False
                        _hand_over(node, partition, number)
                there = there and partition in self.cluster.nodes[number].led()
            return there

        await self.cluster.until(placed, 10, "every leader is where it should be")

    # -- the transaction

    async def _commit(self, db: AsyncDatabase) -> None:
        try:
            t = await db.transaction(isolation=self._isolation)
            table = t.table(NS, "t")
            for key in KEYS:
                await table.get(key)
                await table.put(key, "new")
            self._txn = t.id
            self._watching = True
            await t.commit()
        except KvorumError as error:
            unknown = error.disposition == "unknown_outcome"
            self.answer = "unknown" if unknown else f"failed ({error.code})"
        else:
            self.answer = "committed"

    def _event(self, number: int, what: str) -> None:
        if not self._watching or number == CLIENTS_FROM + 1:
            return
        self.counts[number, what] += 1
        if self._point == Point(number, what, self.counts[number, what]):
            self._watching = False
            if number == CLIENTS_FROM:
                self.cluster.clients[number].kill()
            else:
                node = self.cluster.nodes[number]
                node.kill(power=True)
                self.cluster.later(1.2, node.start)

    # -- what others see

    async def _watch(self, db: AsyncDatabase) -> None:
        while True:
            await self._look(db)
            await asyncio.sleep(0.02)

    async def _look(self, db: AsyncDatabase) -> bool | None:
        """Whether a snapshot shows the transaction; None if there was no answer."""
        try:
            rows = await db.multi_get([(NS, "t", key) for key in KEYS])
        except KvorumError:
            return None
        values = {row.value.decode() for row in rows if row is not None}
        if len(values) != 1:
            self.cluster.fail(f"half of it is there: {rows}")
        done = values == {"new"}
        if self._seen and self._seen[-1] and not done:
            self.cluster.fail("it was there, and is not any more")
        self._seen.append(done)
        return done

    def _is_decided(self) -> bool:
        nodes = self.cluster.nodes.values()
        if not all(node.ready and node.node is not None for node in nodes):
            return False
        return not any(
            replica.state.locks or len(replica.state.guards.by_at)
            for node in nodes
            if node.node is not None
            for replica in node.node.store.manager.replicas()
        )

    async def _judge(self, db: AsyncDatabase) -> None:
        done = await self._look(db)
        status = await db.status(self._txn)
        if done is None:
            self.cluster.fail("no answer although everybody is back")
        elif self.answer == "committed" and not done:
            self.cluster.fail("it was acknowledged, and is not there")
        elif self.answer is not None and self.answer.startswith("failed") and done:
            self.cluster.fail(f"it {self.answer}, and is there")
        # A transaction that left nothing anywhere is pending until it is too old to come back.
        elif (status.status != "committed" and done) or (status.status == "committed" and not done):
            self.cluster.fail(f"its status is {status.status}, visible: {done}")


def _hand_over(node: NodeProcess, partition: int, target: int) -> None:
    assert node.node is not None
    assert node.life is not None
    replica = node.node.store.manager.replica(partition)
    assert replica is not None
    node.life.enter(_transfer, replica, target)


def _transfer(replica: Replica, target: int) -> None:
    try:
        replica.group.transfer(target)
    except RaftError:
        return  # it is asked again


async def _value(make: Callable[[], Any]) -> Any:
    return make()


def play(seed: int, kind: str, point: Point | None) -> Scenario:
    """One run; what went wrong is in `cluster.violations`."""
    made: list[Scenario] = []

    async def main(loop: LivesLoop) -> None:
        made.append(Scenario(loop, seed, kind, point))
        await made[0].play()

    with changed({"PARALLEL_PARTS_MAX": 0} if kind.endswith("two-phase") else {}):
        run(main, seed)
    return made[0]


def points(seed: int, kind: str) -> list[Point]:
    """All of a run without faults."""
    calm = play(seed, kind, None)
    assert not calm.cluster.violations, calm.cluster.violations
    assert calm.answer == "committed", calm.answer
    return [
        Point(number, what, count)
        for (number, what), counted in sorted(calm.counts.items())
        for count in range(1, counted + 1)
    ]


def violations(seed: int, kind: str, some: list[Point]) -> Iterator[str]:
    for point in some:
        for violation in play(seed, kind, point).cluster.violations:
            yield f"{kind}, seed {seed}, {point} dies: {violation}"


def enumerate_all(say: Callable[[str], None], seeds: range = range(1, 4)) -> int:
    """Every point of every kind, on several schedules. Exit code."""
    bad = 0
    for kind in KINDS:
        for seed in seeds:
            all_ = points(seed, kind)
            found = list(violations(seed, kind, all_))
            bad += len(found)
            say(f"{kind}, seed {seed}: {len(all_)} points, {len(found)} violations")
            for violation in found:
                say(f"  {violation}")
    return 1 if bad else 0
