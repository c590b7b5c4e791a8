"""Which procedure gets the next worker: classes, ranks, priorities, fair turns (K1 to K5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, State
from procedures.engine.queues import FairQueues
from procedures.engine.registry import procedure, step
from procedures.engine.resources import EXCLUSIVE, SHARED, Kind
from procedures.engine.scheduler import Entry, FairScheduler
from procedures.engine.submission import Options, Submission
from tests.procedures.lab import Lab
from tests.procedures.zoo import Zoo

X, S = EXCLUSIVE, SHARED


def order(entries: Iterable[Entry]) -> list[int]:
    """All pushed, then one worker: each ends before the next begins."""
    scheduler = FairScheduler()
    for entry in entries:
        scheduler.push(entry)
    found = []
    while (id := scheduler.pop()) is not None:
        found.append(id)
        scheduler.release(id)
    return found


def on(id: int, *resources: str, **more: Any) -> Entry:
    return Entry(id, 0, tuple((X, name) for name in resources), **more)


# ------------------------------------------------------------------------------ order
def test_k1_meta_server_peer_table() -> None:
    """A table's work came before the care for a server, on which it depends."""
    entries = [
        on(1, "table/a/t"),
        on(2, "peer/west"),
        on(3),
        on(4, "server/7"),
        on(5, "meta"),
        on(6, "partition/a/t/9", "server/8"),
        on(7, "mine"),
        on(8, kind=Kind.PEER),
    ]
    assert order(entries) == [5, 4, 6, 2, 8, 1, 3, 7]
    assert order(entries[::-1]) == [5, 6, 4, 8, 2, 7, 1, 3]


def test_k2_meta_system_and_user_tables() -> None:
    """A user's table came before the meta partition, or before the making of a namespace."""
    entries = [on(1, "table/a/t"), on(2, "namespace/b"), on(3, "partition/1"), on(4, "partition/2")]
    assert order(entries) == [3, 2, 1, 4]
    assert order(entries[::-1]) == [3, 2, 4, 1]


def test_k2_with_one_worker() -> None:
    """The same through an executor: what is queued while the one worker is busy."""

    @procedure("scheduling.on", locks=lambda a: [p.exclusive(name) for name in a["on"]])
    class On(Zoo):
        @step(first=True)
        async def one(self, ctx: StepContext) -> Outcome:
            self.lab.__dict__.setdefault("began", []).append(ctx.args["as"])
            await asyncio.sleep(ctx.args.get("secs", 0))
            return p.done()

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [On])
        async with lab.executor(workers=1) as executor:

            async def submit(name: str, *on: str, priority: int = 0, **more: Any) -> int:
                given = {"on": list(on), "as": name, **more}
                wanted = Options(priority=priority)
                sub = Submission("scheduling.on", given, "tester", options=wanted)
                return await executor.submit(sub)

            first = await submit("first", secs=1)
            await asyncio.sleep(0.1)
            ids = [
                await submit("low", priority=-1),
                await submit("table", "table/a/t"),
                await submit("peer", "peer/west"),
                await submit("high", priority=5),
                await submit("namespace", "namespace/b"),
                await submit("server", "server/3"),
                await submit("meta", "meta"),
            ]
            for id in (first, *ids):
                assert (await executor.wait(id, 60_000)).state is State.SUCCESS
        began = lab.__dict__["began"]
        assert began == ["first", "meta", "server", "peer", "namespace", "high", "table", "low"]

    simloop.run(main)


def test_k1_priorities_within_a_class() -> None:
    """A user's urgent procedure waited behind all others, or overtook the care for the cluster."""
    entries = [on(1), on(2, priority=-1), on(3, priority=10), on(4, "table/a/t"), on(5, "meta")]
    assert order(entries) == [5, 3, 1, 4, 2]


# ------------------------------------------------------------------------------ turns
def test_k3_tables_take_turns() -> None:
    """A table with a hundred procedures starved one with one."""
    many = [Entry(i, 0, ((S, "table/a/big"),)) for i in range(100)]
    few = [Entry(100 + i, 0, ((S, "table/a/small"),)) for i in range(3)]
    assert order([*many, *few])[:8] == [0, 100, 1, 101, 2, 102, 3, 4]


def test_k3_one_that_comes_late_waits_for_one_turn_of_each() -> None:
    """A newcomer's turn came only after the queues that were there had become empty."""
    scheduler = FairScheduler()
    for i in range(300):
        scheduler.push(Entry(i, 0, ((S, f"table/a/t{i % 3}"),)))
    for _ in range(50):
        assert scheduler.pop() is not None
    scheduler.push(Entry(1_000, 0, ((S, "table/a/new"),)))
    assert 1_000 in [scheduler.pop() for _ in range(4)]


def test_k4_front_and_back() -> None:
    """What was to go on at once came last, or what gave way came first."""
    scheduler = FairScheduler()
    for id in (1, 2):
        scheduler.push(on(id, "table/a/t"))
    scheduler.push(on(3, "table/a/t"), front=True)
    assert scheduler.pop() == 3
    scheduler.push(on(3, "table/a/t"))  # it holds its lock, and gives way
    scheduler.push(on(4, "table/a/t"), front=True)
    assert scheduler.pop() == 3, "the others cannot have the lock"
    scheduler.release(3)
    found = []
    while (id := scheduler.pop()) is not None:
        found.append(id)
        scheduler.release(id)
    assert found == [4, 1, 2]


def test_k4_parents_whose_children_ended_go_first() -> None:
    """A parent queued up again behind all that came while its children ran."""

    @procedure("scheduling.parent")
    class Parent(Zoo):
        @step(first=True)
        async def spawn(self, ctx: StepContext) -> Outcome:
            return p.children([("scheduling.leaf", {"as": "child"})], then="end")

        @step
        async def end(self, ctx: StepContext) -> Outcome:
            self.lab.__dict__["began"].append("parent")
            return p.done()

    @procedure("scheduling.leaf")
    class Leaf(Zoo):
        @step(first=True)
        async def one(self, ctx: StepContext) -> Outcome:
            self.lab.__dict__.setdefault("began", []).append(ctx.args["as"])
            await asyncio.sleep(0.1)
            return p.done()

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Parent, Leaf])
        async with lab.executor(workers=1) as executor:
            parent = await executor.submit(Submission("scheduling.parent", None, "tester"))
            await asyncio.sleep(0.05)
            wanted = Options(queue="scheduling.parent")  # the parent's own queue
            last = [
                await executor.submit(
                    Submission("scheduling.leaf", {"as": n}, "tester", options=wanted)
                )
                for n in (1, 2, 3)
            ]
            for id in (parent, *last):
                await executor.wait(id, 60_000)
        began = lab.__dict__["began"]
        assert began.index("parent") <= began.index("child") + 2, began

    simloop.run(main)


# ------------------------------------------------------------------------------ size
def cost(queues: int, count: int = 20_000) -> float:
    """CPU seconds of pushing and popping `count` procedures while `queues` tables have work."""
    fair = FairQueues()
    for i in range(queues):
        fair.add((3, 2, 0), f"table/a/t{i}", i)
    names = [f"table/a/t{i % queues}" for i in range(count)]
    began = process_time()
    for i, name in enumerate(names):
        fair.add((3, 2, 0), name, queues + i)
        fair.take()
    return process_time() - began


@pytest.mark.slow
def test_k5_cost_does_not_grow_with_the_tables() -> None:
    """Finding a table's queue took longer the more tables had work: 10 and 100 000 of them."""
    few, many = min(cost(10) for _ in range(3)), min(cost(100_000) for _ in range(3))
    assert many < 15 * few, (few, many)  # caches miss; a search in a list would take 1 000 times


def test_k5_many_waiters_of_one_lock() -> None:
    """Granting one of 20 000 who wait for a lock took longer than granting one of 500."""

    def per_grant(waiters: int) -> float:
        scheduler = FairScheduler()
        began = process_time()
        for i in range(waiters):
            scheduler.push(Entry(i, 0, ((X, "table/a/t"),)))
        count = 0
        while (id := scheduler.pop()) is not None:
            scheduler.release(id)
            count += 1
        assert count == waiters
        return (process_time() - began) / waiters

    few = min(per_grant(500) for _ in range(3))
    many = per_grant(20_000)
    assert many < 12 * few, (few, many)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.booleans()), max_size=60))
def test_k3_against_a_model(pushes: list[tuple[int, str, bool]]) -> None:
    """Something was lost, came twice, too early, or out of its queue's order."""
    fair = FairQueues()
    queues: dict[tuple[int, str], list[int]] = {}
    for id, (level, name, front) in enumerate(pushes):
        fair.add((level, 0, 0), name, id, front=front)
        queue = queues.setdefault((level, name), [])
        queue.insert(0 if front else len(queue), id)
    taken: list[tuple[int, str]] = []
    while (id := fair.take()) is not None:
        key = next(k for k, queue in queues.items() if id in queue)
        assert queues[key].pop(0) == id
        assert not any(queue for (level, _), queue in queues.items() if level < key[0])
        taken.append(key)
        waiting = [k for k, queue in queues.items() if queue and k[0] == key[0]]
        assert not (len(waiting) > 1 and taken[-2:] == [key, key] and len(taken) > 1), "no turn"
    assert not any(queues.values())
    assert len(fair) == 0


def test_k3_pools_are_apart() -> None:
    """A pool's worker got what another pool is to run."""
    scheduler = FairScheduler()
    scheduler.push(Entry(1, pool="gpu"))
    scheduler.push(Entry(2))
    assert scheduler.pop("cpu") is None
    assert not scheduler.waiting("cpu")
    assert scheduler.waiting("gpu")
    assert scheduler.pop("gpu") == 1
    assert scheduler.pop() == 2
    assert scheduler.pop("gpu") is None
