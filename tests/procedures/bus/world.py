"""A master and targets around the real bus, in virtual time: between them a network that loses,
doubles, delays and reorders, and cuts. Procedures run in a lab, whose store can crash.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kv.base import ops
from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Unavailable
from kv.base.ids import NodeId
from kv.base.keys import table_range
from kvorum.testing.simulation.loop import SimLoop
from procedures.bus import phases
from procedures.bus.courier import Courier
from procedures.bus.handlers import Handler, Hands, Job
from procedures.bus.messages import Order, Report
from procedures.engine.executor import Executor
from procedures.engine.records import Record
from procedures.engine.registry import Registry
from procedures.engine.submission import Submission
from procedures.master.map.nodes import NodeRow, NodeState, encode_node, node_key
from procedures.master.map.partitions import Place, Placed, plan, put_row, put_rows
from tests.procedures.lab import TABLE, CrashingStore, Lab, crashed

ALL = {"nodes": "all"}


class Register(Handler):
    """A target's outside: what it did, by operation, whatever the process forgets."""

    def __init__(self, world: World, node: int) -> None:
        self.world, self.node = world, node
        self.ran: list[tuple[str, str]] = []  # (verb, op), every time
        self.done: dict[str, Any] = {}  # by operation: the effect, once
        self.staged: dict[str, Any] = {}
        self.delay_s = 0.0
        self.error: BaseException | None = None
        self.errors = 10**9  # so often
        self.fails = ("do", "stage", "commit")

    async def _work(self, verb: str, job: Job) -> None:
        self.ran.append((verb, job.op))
        job.progress({"at": 1})
        if self.delay_s and verb in ("do", "stage"):
            await asyncio.sleep(self.delay_s)
        if self.error is not None and self.errors > 0 and verb in self.fails:
            self.errors -= 1
            raise self.error

    async def do(self, job: Job) -> Any:
        await self._work("do", job)
        self.done[job.op] = job.body
        return {"node": self.node, **({"n": job.body["n"]} if "n" in job.body else {})}

    async def stage(self, job: Job) -> Any:
        await self._work("stage", job)
        self.staged[job.op] = job.body

    async def commit(self, job: Job) -> Any:
        await self._work("commit", job)
        if job.op not in self.done:
            self.done[job.op] = self.staged.pop(job.op)
        return self.node

    async def undo(self, job: Job) -> None:
        await self._work("undo", job)
        self.staged.pop(job.op, None)
        self.done.pop(job.op, None)


class World:
    """`nodes` by id. `fault(source, target, number)` says what befalls a message: "", "lost",
    "twice", "late".
    """

    def __init__(self, loop: SimLoop, count: int = 3, *, store: Any = None, seed: int = 0) -> None:
        self.loop, self.random = loop, random.Random(seed)
        self.lab = Lab(loop, [], store=store, seed=seed)
        self.executor_now: Executor | None = None
        self.fault: Callable[[str, str, int], str] = lambda _s, _t, _n: ""
        self.messages = 0
        self.writes = 0
        self.push_blocked = False
        self.tell_blocked = False
        self.cut: set[int] = set()
        self.registers = {n: Register(self, n) for n in range(1, count + 1)}
        self.hands: dict[int, Hands] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.timers = LoopTimers(loop)
        self.courier = self._courier()
        for n in self.registers:
            self.put_node(n)

    # ------------------------------------------------------------------------------ the master

    def _courier(self) -> Courier:
        return Courier(self.timers, self._reach, self._signal)

    def _signal(self, event: str) -> None:
        if self.executor_now is not None:
            self.executor_now.signal(event)

    def new_master(self, store: Any = None) -> Executor:
        """Another one: it knows what the store has, and nothing else."""
        self.courier.shut()
        self.courier = self._courier()
        self.lab.types = Registry()
        phases.register(self.lab.types, self.courier)
        self.executor_now = self.lab.executor(store)
        return self.executor_now

    @asynccontextmanager
    async def master(self, store: Any = None) -> AsyncIterator[Executor]:
        """A reign: an executor over the store, and a courier that knows nothing yet."""
        executor = self.new_master(store)
        sending = self.loop.create_task(self.courier.run())
        try:
            async with executor:
                yield executor
        finally:
            self.executor_now = None
            self.courier.shut()
            sending.cancel()
            await asyncio.wait([sending])

    async def lives(self, name: str, args: Any, crashes: Sequence[tuple[int, bool]] = ()) -> Record:
        """The record in the end, over masters that die at their n-th write, before or after it."""
        for at, after in [*crashes, (0, False)]:
            store = CrashingStore(self.lab.store, at, after=after)
            try:
                async with self.master(store) as executor:
                    id_ = await executor.submit(Submission(name, args, "tester", "the one"))
                    record = await executor.wait(id_, 60_000)
                    assert record.ended, phases.shown(record, self.courier)
                    self.writes = store.writes
                    return record
            except BaseException as error:
                if not crashed(error):
                    raise
        raise AssertionError("the last master does not die")

    def _reach(self, target: str) -> Callable[[list[Order]], Awaitable[Sequence[Report]]] | None:
        kind, _, number = target.partition("/")
        if kind != "node":
            return None

        async def push(orders: list[Order]) -> Sequence[Report]:
            if self.push_blocked:
                await asyncio.sleep(2)
                raise Unavailable("push is blocked")
            node = int(number)
            fault = await self._travel("master", target)
            hands = self._hands(node)
            reports = hands.take(orders)
            if fault == "twice":
                hands.take(orders)
            await self._travel(target, "master")
            return reports

        return push

    def _hands(self, node: int) -> Hands:
        hands = self.hands.get(node)
        if hands is None or node in self.cut:
            raise Unavailable(f"node {node} does not answer", code="UNREACHABLE")
        return hands

    async def _travel(self, source: str, target: str) -> str:
        """One message's way, and what befell it."""
        self.messages += 1
        fault = self.fault(source, target, self.messages)
        await asyncio.sleep(0.001 + self.random.random() / 1000)
        if fault == "late":
            await asyncio.sleep(1.5)
        elif fault == "lost":
            await asyncio.sleep(2)
            raise Unavailable("it took too long", code="UNREACHABLE")
        return fault

    # ------------------------------------------------------------------------------ targets

    def start(self, *nodes: int) -> None:
        """With nothing in memory."""
        for node in nodes or tuple(self.registers):
            self.hands[node] = Hands({"test": self.registers[node]}, self.timers, self._tell(node))
            self._tasks[node] = self.loop.create_task(self.hands[node].run())

    async def stop(self, node: int) -> None:
        """kill -9: what its register holds stays, as files would."""
        self.hands.pop(node)
        task = self._tasks.pop(node)
        task.cancel()
        await asyncio.wait([task])

    def _tell_as(self, target: str) -> Callable[[list[Report]], Awaitable[Sequence[Order]]]:
        """BUS_REPORTS of a worker."""

        async def tell(reports: list[Report]) -> Sequence[Order]:
            self.courier.heard(target, reports)
            return self.courier.asked(target)

        return tell

    def _tell(self, node: int) -> Callable[[list[Report]], Awaitable[Sequence[Order]]]:
        async def tell(reports: list[Report]) -> Sequence[Order]:
            if self.tell_blocked or node in self.cut:
                raise Unavailable("the master is not reached")
            fault = await self._travel(f"node/{node}", "master")
            courier = self.courier
            courier.heard(f"node/{node}", reports)
            if fault == "twice":
                courier.heard(f"node/{node}", reports)
            return courier.asked(f"node/{node}")

        return tell

    def beat(self, node: int) -> None:
        """A heartbeat, there and back."""
        hands = self._hands(node)
        self.courier.heard(f"node/{node}", hands.beat())
        hands.beaten(self.courier.asked(f"node/{node}"))

    async def beats(self) -> None:
        """Every second, until cancelled."""
        while True:
            await asyncio.sleep(1)
            for node in list(self.hands):
                if node not in self.cut:
                    self.beat(node)

    # ------------------------------------------------------------------------------ the store

    def write(self, key: bytes, value: bytes) -> None:
        store = self.lab.store
        getattr(store, "inner", store).table.write([ops.put(key, value)])

    put = write

    def delete(self, key: bytes) -> None:
        store = self.lab.store
        getattr(store, "inner", store).table.write([ops.delete(key)])

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        raise NotImplementedError

    def put_node(self, node: int, state: NodeState = NodeState.MEMBER) -> None:
        row = NodeRow(NodeId(node), f"host{node}:7600", "1", state)
        self.write(node_key(row.id), encode_node(row))

    def put_table(self, *places: Sequence[int]) -> list[PartitionDescriptor]:
        """Partitions 2, 3, … of the lab's table, each at these nodes."""
        splits = [b"%d" % i for i in range(1, len(places))]
        where = [Place(tuple(map(NodeId, nodes))) for nodes in places]
        made = plan(TABLE, splits, 2, where)
        put_rows(self, made)
        return made

    def move(self, descriptor: PartitionDescriptor, *nodes: int) -> None:
        """A partition is at other nodes now."""
        voters = tuple(map(NodeId, nodes))
        moved = PartitionDescriptor(descriptor.id, descriptor.start, descriptor.end, 1, voters)
        put_row(self, Placed(moved, voters))

    async def close(self) -> None:
        for node in list(self._tasks):
            await self.stop(node)
        assert not self.loop.errors, self.loop.errors


def effects(world: World, op: Any) -> list[int]:
    """At which nodes the operation counts."""
    return [n for n, register in world.registers.items() if str(op) in register.done]


def leftovers(world: World, op: Any) -> list[int]:
    """At which nodes something of it is still staged."""
    return [n for n, register in world.registers.items() if str(op) in register.staged]


def one_phase(spec: Any = None, **more: Any) -> Mapping[str, Any]:
    """Arguments of the generic procedures."""
    return {"kind": "test", "targets": spec or ALL, **more}


TABLE_RANGE = table_range(TABLE)
