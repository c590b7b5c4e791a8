"""Keyed queues in a whole cluster whose nodes and workers are killed. Virtual time."""

from __future__ import annotations

import random
from typing import Any

import pytest

import kvorum
from kvorum import testing

RATE, BURST = 10, 4
CUSTOMERS = ("ada", "bob", "cyd")


@kvorum.procedure("whole.ledger", queue="whole", key="customer")
class Ledger:
    """Notes in rows who is at work, in which order, and since when."""

    @kvorum.step(first=True)
    async def begin(self, ctx: Any) -> Any:
        customer = ctx.args["customer"]
        table = ctx.txn.table("default", "t")
        busy, order = await table.get(f"busy {customer}"), await table.get(f"order {customer}")
        if busy is not None:
            table.put(f"twice {customer}", busy.value)
        table.put(f"busy {customer}", str(ctx.id))
        table.put(f"order {customer}", f"{order.value.decode() if order else ''} {ctx.args['n']}")
        table.put(f"began {customer} {ctx.args['n']}", str(ctx.now_ms))
        return kvorum.suspend(timeout_ms=30, then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        ctx.txn.table("default", "t").delete(f"busy {ctx.args['customer']}")
        return kvorum.done(ctx.args["n"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seed", range(1, 5))
def test_u17_keys_hold_in_a_cluster_that_is_killed(seed: int, workers: int) -> None:
    """Never two of a key, in the order of submission, within the rate, and nothing lost."""

    async def story(cluster: testing.Cluster) -> None:
        db, chance = cluster.db, random.Random(seed)
        await db.create_table("default", "t")
        await db.set_limit("whole", rate_per_s=RATE, burst=BURST, max_concurrent=3)
        asked: dict[str, list[int]] = {customer: [] for customer in CUSTOMERS}
        started = []
        for n in range(30):
            customer = chance.choice(CUSTOMERS)
            asked[customer].append(n)
            started.append(await cluster.submit(Ledger, {"customer": customer, "n": n}))
            if n % 10 == 5:
                dead = cluster.leader()
                await cluster.fail_over()
                await cluster.start_node(dead)
            if workers and n % 10 == 9:
                number = chance.randrange(workers) + 1
                cluster.kill_worker(number)
                cluster.start_worker(number)
        for n, one in enumerate(started):
            assert await one.result() == n
        found = db.table("default", "t").rows()
        rows = {row.key.decode(): row.value.decode() async for row in found}
        assert [key for key in rows if key.startswith(("twice", "busy"))] == []
        for customer, mine in asked.items():
            assert [int(n) for n in rows.get(f"order {customer}", "").split()] == mine
        times = sorted(int(value) for key, value in rows.items() if key.startswith("began"))
        for at, first in enumerate(times):
            for more, last in enumerate(times[at:]):
                allowed = BURST + RATE * (last - first + 200) / 1000  # clocks differ a little
                assert more + 1 <= allowed + 1, "over the rate"

    testing.simulate(story, procedures=[Ledger], seed=seed, workers=workers)
