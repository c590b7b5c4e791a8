"""A whole cluster in one process, from one seed, in virtual time.

    from kvorum import testing

    async def story(cluster: testing.Cluster) -> None:
        started = await cluster.submit(Transfer, {"from": "ada", "to": "bob", "amount": 30})
        await cluster.run_until(started.done())
        assert await started.result() == {"moved": 30}

    testing.simulate(story, procedures=[Transfer], seed=7)

Nodes, workers and the test are processes of the simulation (simulation/): the code that runs in
production, over disks, clocks and a network that exist only here. Nothing waits: time passes when
nobody has anything to do. Two kinds of time:

- heartbeats, leases, elections, deadlines of requests run on timers. Their time passes event by
  event; a second of three idle nodes costs 20 ms.
- procedures wait by the wall clock. When all of them wait, `run_until` and `advance` set the wall
  clocks of all machines forward to the moment when the next one is due: a month costs nothing.

Everything is drawn from the seed: a run can be repeated exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from kv.base.errors import DeadlineExceeded, InvalidArgument, KvorumError, Unavailable
from kvorum.api.model import ProcedureInfo
from kvorum.api.outcome import result_of
from kvorum.local.extras import needed
from kvorum.native.native import NativeBackend
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.durations import Duration, milliseconds
from kvorum.testing.history import History
from kvorum.testing.running import Running, as_the_one, name_of
from kvorum.testing.simulation.life import LivesLoop, run
from kvorum.testing.simulation.plan import Chances, Plan
from kvorum.testing.simulation.processes import (
    CLIENTS_FROM,
    WORKERS_FROM,
    ClientProcess,
    NodeProcess,
    WorkerProcess,
)
from kvorum.testing.simulation.processes import (
    Cluster as Machines,
)
from kvorum.testing.simulation.trace import Trace
from kvorum.testing.watching import watched
from procedures.engine.executor import Executor
from procedures.engine.registry import Declared, ProcedureType

T = TypeVar("T")

NODES_MAX = 9
WORKERS_MAX = 99
_QUIET_S = 0.2
_LOOK_S = 0.01
_STUCK_S = 120.0
_BUSY_S = 600.0
_READY_S = 60.0


class Started:
    """A procedure that a test has submitted."""

    def __init__(self, cluster: Cluster, id: int) -> None:
        self.id = id
        self._cluster = cluster

    async def done(self) -> ProcedureInfo:
        """What it is when it has ended, however it did."""
        while True:
            try:
                info = await self._cluster.db.procedure(self.id, wait_ms=1_000)
            except KvorumError as error:
                if error.disposition == "no":
                    raise
                await asyncio.sleep(0.1)  # nobody leads just now
                continue
            if info.finished:
                return info

    async def result(self) -> Any:
        """Its result; time is skipped until it is there. Raises the error that ended it."""
        return result_of(await self._cluster.run_until(self.done()), 0)


class Cluster:
    """See the module. Nodes and workers have numbers from 1 on.

    db        the database, as the test's own process sees it
    history   what steps and outside services did (history.py)
    seed      of this run
    """

    def __init__(
        self,
        loop: LivesLoop,
        seed: int,
        *,
        nodes: int,
        workers: int,
        procedures: Sequence[Declared],
        retention: Duration,
        show: Callable[[str], None] | None,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX or not 0 <= workers <= WORKERS_MAX:
            raise InvalidArgument(
                f"{nodes} nodes and {workers} workers: a simulation has 1 to {NODES_MAX} nodes and "
                f"0 to {WORKERS_MAX} workers"
            )
        self.seed = seed
        self._loop = loop
        self.running = Running(loop, lambda: self.elapsed_ms)
        self.history: History = self.running.history
        self._types: list[ProcedureType] = [watched(one, self.running) for one in procedures]
        plan = Plan(
            nodes=nodes,
            clients=1,
            procedures=() if workers else self._types,
            gc_retention_ms=milliseconds(retention),
        )
        self.machines = Machines(loop, seed, plan, Trace(loop.time, show))
        self._test = self.machines.clients[CLIENTS_FROM]
        self._workers = {
            n: WorkerProcess(self.machines, WORKERS_FROM + n) for n in range(1, workers + 1)
        }
        self.db: AsyncDatabase
        self._sql: Any = None
        self._began_ms = self._test.clock.now_ms()

    # -- the run
    async def play(self, story: Callable[[Cluster], Awaitable[T]]) -> T:
        """For `simulate`: start everything, then tell the story in the test's process."""
        await self.machines.start()
        for worker in self._workers.values():
            worker.start(self._types)
        task = self._test.life.spawn(self._told(story))
        await asyncio.wait([task])
        told: T = task.result()
        if self.machines.violations:
            raise AssertionError("; ".join(self.machines.violations))
        return told

    async def _told(self, story: Callable[[Cluster], Awaitable[T]]) -> T:
        self.db = self._test.database()
        await self._until(self._workers_are_in, "the workers are there")
        return await story(self)

    def _workers_are_in(self) -> bool:
        return all(
            one.worker is not None and one.worker.entered.is_set() for one in self._workers.values()
        )

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        if not await self.machines.until(holds, _READY_S, what):
            raise Unavailable(f"not within {_READY_S:.0f} s of the simulation: {what}")

    # -- time
    @property
    def now_ms(self) -> int:
        """The wall clock of the test's machine; those of nodes may be skewed."""
        return self._test.clock.now_ms()

    @property
    def elapsed_ms(self) -> int:
        """Of the wall clock, since the run began."""
        return self._test.clock.now_ms() - self._began_ms

    async def advance(self, duration: Duration) -> None:
        """Let so much time pass. What is due meanwhile happens at its time, and is waited for.
        Raises DeadlineExceeded where something runs and gets nowhere.
        """
        end_ms = self.now_ms + milliseconds(duration)
        happened, events = self._loop.time(), 0
        while (left_ms := end_ms - self.now_ms) > 0:
            if len(self.history.events) != events:
                happened, events = self._loop.time(), len(self.history.events)
            all_waits = await self._all_waits(min(left_ms / 1000, _STUCK_S))
            due_ms = self._due_ms()
            if all_waits and due_ms is not None:
                self._jump(min(due_ms or end_ms, end_ms) - self.now_ms)
                happened = self._loop.time()
            elif due_ms is None:
                self._check_stuck(self._loop.time() - happened, None)
        await self._all_waits(_STUCK_S)

    async def run_until(
        self, what: Awaitable[T] | Callable[[], T], *, within: Duration = "1 year"
    ) -> T:
        """Wait for something, or until a function gives something true; while all procedures wait,
        time is skipped. Raises DeadlineExceeded after `within`, or when nothing more will happen.
        """
        end_ms = self.now_ms + milliseconds(within)
        waiting = self._test.life.spawn(_come_true(what))
        happened, events = self._loop.time(), 0
        try:
            while not waiting.done():
                if self.now_ms > end_ms:
                    raise DeadlineExceeded(f"not within {within}\n{self.history.story(50)}")
                if len(self.history.events) != events:
                    happened, events = self._loop.time(), len(self.history.events)
                all_waits = await self._all_waits(_QUIET_S, waiting)
                due_ms = self._due_ms()
                if all_waits and due_ms and due_ms > self.now_ms:
                    self._jump(due_ms - self.now_ms)
                    happened = self._loop.time()
                self._check_stuck(self._loop.time() - happened, due_ms)
            found: T = await waiting
        finally:
            waiting.cancel()
        return found

    def _check_stuck(self, still_s: float, due_ms: int | None) -> None:
        """Raises DeadlineExceeded."""
        if due_ms is None:
            if still_s > _BUSY_S:
                raise DeadlineExceeded(
                    f"something runs, but no step has begun or ended for {_BUSY_S:.0f} s of the "
                    f"simulation: is it cut off?\n{self.history.story(50)}"
                )
        elif still_s > _STUCK_S:
            raise DeadlineExceeded(
                "nothing runs, nothing is due, and what is waited for is not there\n"
                + self.history.story(50)
            )

    async def _all_waits(self, most_s: float, unless: asyncio.Task[object] | None = None) -> bool:
        """Whether all procedures waited for a while; looked at for so long."""
        began = quiet_since = self._loop.time()
        commits = self._commits()
        while self._loop.time() - began <= most_s + _QUIET_S:
            if unless is not None and unless.done():
                return False
            if self._due_ms() is None or self._commits() != commits:
                quiet_since, commits = self._loop.time(), self._commits()
            elif self._loop.time() - quiet_since >= _QUIET_S:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    def _master(self) -> Executor | None:
        for node in self.machines.nodes.values():
            if node.running and node.leads() and node.node is not None:
                return node.node.master.executor
        return None

    def _due_ms(self) -> int | None:
        """When all waits: the next moment at which something is due (0: there is none)."""
        if not any(node.up for node in self.machines.nodes.values()):
            return 0
        master = self._master() if self._is_ready() else None
        return None if master is None else master.waits_until()

    def _commits(self) -> int:
        return len(self.history.events)

    def _jump(self, ms: int) -> None:
        if ms > 0:
            self._loop.jumped_ms += ms
        if (master := self._master()) is not None:
            master.look_at_the_clock(max(0, ms))

    # -- procedures
    async def submit(self, which: str | Declared, args: object = None, **how: Any) -> Started:
        """As `db.submit`; repeated with its nonce until it is known to be stored."""
        nonce = how.pop("nonce", None) or self.machines.rng.randbytes(8).hex()
        while True:
            try:
                return Started(self, await self.db.submit(which, args, nonce=nonce, **how))
            except KvorumError as error:
                if error.disposition == "no":
                    raise
            await asyncio.sleep(0.1)

    async def sql(self, text: str, *values: object, database: str = "default") -> list[Any]:
        """The rows of one SQL statement, with the `values` of $1, $2 …; a transaction stays open
        until COMMIT. Raises SqlError (its `code` is a SQLSTATE), and InvalidArgument without
        `kvorum[sql]`.
        """
        if self._sql is None:
            needed("duckdb")
            from kvorum.testing.sql_client import SqlClient  # DuckDB and a parser: who asks for it

            backend = self.db.backend
            assert isinstance(backend, NativeBackend)
            self._sql = SqlClient(backend, self.machines.rng.getrandbits(64))
        rows: list[Any] = await self._sql.run(database, text, values)
        return rows

    # -- faults
    def leader(self) -> int:
        """The node that leads the meta partition: the master of procedures. Raises Unavailable."""
        for number, node in self.machines.nodes.items():
            if node.leads():
                return number
        raise Unavailable("nobody leads just now")

    def _node(self, number: int) -> NodeProcess:
        if (node := self.machines.nodes.get(number)) is None:
            raise InvalidArgument(f"no node {number}: there are 1 to {len(self.machines.nodes)}")
        return node

    def _fault(self, what: str) -> None:
        self.history.add("fault", "test", what)

    def kill_node(self, number: int, *, power: bool = True) -> None:
        """It ends without a word; `power`: with its machine, and what was not synced is gone."""
        self._node(number).kill(power=power)
        self._fault(f"node {number} {'loses its power' if power else 'is killed'}")

    async def start_node(self, number: int) -> None:
        """Start it again, and wait until all that are up serve."""
        self._node(number).start()
        self._fault(f"node {number} starts")
        await self._until(self._is_ready, "the nodes serve again")

    def _is_ready(self) -> bool:
        return all(n.ready and n.running for n in self.machines.nodes.values() if n.up)

    async def fail_over(self) -> int:
        """The leader loses its power, and stays down; which node has taken over."""
        self.kill_node(self.leader())
        await self._until(lambda: self._master() is not None, "another node leads")
        return self.leader()

    def kill_worker(self, number: int) -> None:
        """It ends without a word; `start_worker` starts another one in its place."""
        self._worker(number).kill()
        self._fault(f"worker {number} is killed")

    def start_worker(self, number: int) -> None:
        self._worker(number).start(self._types)
        self._fault(f"worker {number} starts")

    def _worker(self, number: int) -> WorkerProcess:
        if (worker := self._workers.get(number)) is None:
            raise InvalidArgument(f"no worker {number}: there are 1 to {len(self._workers)}")
        return worker

    def _number(self, who: str | int) -> int:
        """A process by its name ("node 1", "worker 2", "test"), or a node's number."""
        if isinstance(who, int):
            return self._node(who).number
        nodes: list[NodeProcess | ClientProcess] = [*self.machines.nodes.values()]
        for process in (*nodes, *self._workers.values(), self._test):
            life = process.life
            if life is not None and name_of(life) == who:
                return process.number
        raise InvalidArgument(f"no process {who!r:.40}: 'node 1', 'worker 1', 'test'")

    def cut(self, one: str | int, other: str | int) -> None:
        """Nothing passes between the two until `heal`, and nobody is told."""
        a, b = self._number(one), self._number(other)
        self.machines.network.cut |= {(a, b), (b, a)}
        self._fault(f"the link between {one} and {other} is cut")

    def isolate(self, number: int) -> None:
        """Cut a node from everybody."""
        everybody = [*self.machines.nodes, *(w.number for w in self._workers.values())]
        self.machines.network.isolate(self._node(number).number, [*everybody, self._test.number])
        self._fault(f"node {number} is cut off")

    def network(self, **chances: float) -> None:
        """How bad it is from now on: `latency_s`, `drop`, `duplicate`, `late` (shares of 1),
        `late_s`, `pieces`.
        """
        try:
            self.machines.network.chances = Chances(**chances)
        except TypeError as error:
            raise InvalidArgument(f"network: {error}") from None
        self._fault(f"the network has {chances}")

    def slow_disk(self, number: int, per_sync: Duration) -> None:
        """Each sync of that node takes so much longer."""
        self._node(number).slow_s = milliseconds(per_sync) / 1000
        self._fault(f"the disk of node {number} is slow: {per_sync} per sync")

    def skew(self, number: int, by: Duration, *, back: bool = False) -> None:
        """Set the wall clock of one node off; `back`: behind the others."""
        self._node(number).clock.skew_ms = milliseconds(by) * (-1 if back else 1)
        self._fault(f"the clock of node {number} is {by} {'behind' if back else 'ahead'}")

    def heal(self) -> None:
        """The network, disks and clocks are as they were; dead processes stay dead."""
        self.machines.network.heal()
        for node in self.machines.nodes.values():
            node.slow_s, node.clock.skew_ms = 0.0, 0
        self._fault("all is healed")

    def fail_step(self, name: str, nth: int = 1, error: BaseException | None = None) -> None:
        """The n-th execution of a step from now on, of any procedure, raises this before it begins
        (RuntimeError, if none is given).
        """
        at = self.running.began.get(name, 0) + nth
        failure = RuntimeError(f"the test fails {name}") if error is None else error
        self.running.to_fail.setdefault(name, {})[at] = failure

    def note(self, text: str) -> None:
        """A line for the story."""
        self.history.add("note", "test", text)


async def _come_true(what: Awaitable[T] | Callable[[], T]) -> T:
    if isinstance(what, Awaitable):
        return await what
    while not (found := what()):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_LOOK_S)
    return found


def simulate(
    story: Callable[[Cluster], Coroutine[object, None, T]],
    *,
    procedures: Sequence[Declared] = (),
    nodes: int = 3,
    workers: int = 0,
    seed: int = 1,
    retention: Duration = "10 min",
    show: Callable[[str], None] | None = None,
) -> T:
    """Tell a story of a cluster; what it returns. Raises what it raises, and AssertionError for
    what the cluster itself did wrong.

    procedures  classes and workflows; nodes run them, or the `workers` if there are some
    retention   of old versions of rows (reads of the past, time travel)
    show        is given every message and event, for looking at a run
    """
    made: list[Cluster] = []

    async def main(loop: LivesLoop) -> T:
        given: Mapping[str, Any] = {
            "nodes": nodes,
            "workers": workers,
            "procedures": procedures,
            "retention": retention,
            "show": show,
        }
        cluster = Cluster(loop, seed, **given)
        made.append(cluster)
        with as_the_one(cluster.running):
            return await cluster.play(story)

    result: T = run(main, seed)
    return result
