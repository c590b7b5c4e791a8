"""What a session does when the cluster does not hear of its advisory locks any more."""

from __future__ import annotations

import asyncio
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError, Unavailable
from kv.base.limits import ADVISORY_BEAT_MS, ADVISORY_TTL_MS
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.verbs import LOCK_BEAT, LOCK_END, PROC_SUBMIT
from sqlproxy.session.shared.advisory_locks import AdvisoryLocks, Held, Key, resource_of, rows


class Nodes:
    """Answers as a cluster with one lock would; `fails`: instead."""

    def __init__(self) -> None:
        self.state = "held"
        self.fails: KvorumError | None = None
        self.asked: list[int] = []

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> Any:
        self.asked.append(method)
        if self.fails is not None:
            raise self.fails
        if method == PROC_SUBMIT:
            return [7]
        return [self.state, 1] if method == LOCK_BEAT else [True]


async def taken(locks: AdvisoryLocks, *, wait: bool = False) -> Held | None:
    return await locks.take(
        "sql/db/0/1/1", exclusive=True, session="s", owner="o", nonce="n", wait=wait
    )


def test_p10_a_lock_is_lost_when_the_cluster_is_not_heard_of() -> None:
    """A session went on without its lock; or lost it for one heartbeat that failed."""

    async def main(loop: SimLoop) -> None:
        nodes = Nodes()
        locks = AdvisoryLocks(nodes, LoopTimers(loop))
        held = await taken(locks)
        assert held is not None
        await asyncio.sleep(ADVISORY_TTL_MS / 1000 * 3)
        assert not held.lost
        nodes.fails = Unavailable("the node stops")
        await asyncio.sleep((ADVISORY_TTL_MS - 2 * ADVISORY_BEAT_MS) / 1000)
        assert not held.lost
        nodes.fails = None
        await asyncio.sleep(ADVISORY_BEAT_MS / 1000)
        assert not held.lost
        nodes.fails = Unavailable("the node stops")
        await asyncio.sleep(ADVISORY_TTL_MS / 1000 + 0.1)
        assert held.lost
        nodes.fails, nodes.state = None, "held"
        again = await taken(locks)
        assert again is not None
        nodes.state = "ended"  # somebody stole it
        await asyncio.sleep(ADVISORY_BEAT_MS / 1000 + 0.1)
        assert again.lost
        await locks.close()

    run(main)


def test_p10_who_is_cancelled_while_he_waits_leaves_no_lock() -> None:
    """Somebody who went away got the lock, and kept it while his process lived."""

    async def main(loop: SimLoop) -> None:
        nodes = Nodes()
        nodes.state = "waiting"
        locks = AdvisoryLocks(nodes, LoopTimers(loop))

        async def slow(method: int, *args: Any, budget_ms: int = 0) -> Any:
            await asyncio.sleep(1)
            return await Nodes.call_node(nodes, method, *args, budget_ms=budget_ms)

        nodes.call_node = slow  # type: ignore[method-assign]
        for after_s in (0.5, 1.5):  # before it is submitted, and while it waits
            nodes.asked.clear()
            waits = loop.create_task(taken(locks, wait=True))
            await asyncio.sleep(after_s)
            waits.cancel()
            await asyncio.sleep(5)
            assert waits.cancelled()
            assert nodes.asked[-1] == LOCK_END
        await locks.close()

    run(main)


def test_p10_numbers_of_advisory_locks_are_those_of_pg_locks() -> None:
    """pg_locks told other numbers than PostgreSQL: who looks for his lock does not find it."""
    assert Key.of([42]) == (0, 42, 1)
    assert Key.of([-1]) == (2**32 - 1, 2**32 - 1, 1)
    assert Key.of([(5 << 32) + 6]) == (5, 6, 1)
    assert Key.of([-1, 7]) == (2**32 - 1, 7, 2)
    lock = {"mode": "shared", "resource": resource_of("a/b", Key(1, 2, 2))}
    other = {"mode": "shared", "resource": "job/nightly"}
    foreign = {"mode": "shared", "resource": lock["resource"] + "x"}  # anybody may name his locks
    told = [
        {"id": "1", "name": "kvorum.lock", "state": "WAITING", "owner": "o", "locks": [lock]},
        {"id": "2", "name": "kvorum.lock", "state": "SUCCESS", "owner": "o", "locks": [lock]},
        {"id": "3", "name": "kvorum.lock", "state": "WAITING", "owner": "o", "locks": [other]},
        {"id": "4", "name": "kvorum.lock", "state": "WAITING", "owner": "o", "locks": [foreign]},
    ]
    (row,) = rows(told, {"1"})
    assert (row["database"], row["classid"], row["objid"], row["objsubid"]) == ("a/b", 1, 2, 2)
    assert (row["mode"], row["granted"]) == ("ShareLock", False)
