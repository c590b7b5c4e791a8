"""What a node that is cut off from the others tells those who ask it: soon, and never a wrong
failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

import pytest

from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.ids import META_PARTITION
from kv.base.ops import put
from kvorum.api.model import ScanSpec, TableSpec
from kvorum.cluster.cluster import CONSENSUS
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.engine.lock_procedure import LOCK
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.test_cut_from_the_oracle import leaders, settled
from txn.transaction import Transaction

WITHIN_S = 2 * CONSENSUS.election_max_ms / 1000 + 0.4
LOCK_ARGS = {"resource": "l", "exclusive": True, "ttl_ms": 60_000, "owner": "me"}
KEYS = (b"a", b"i", b"t")  # of three partitions


class Answer(NamedTuple):
    """How one request ended: after how long, with which error."""

    name: str
    wrote: bytes | None  # with this suffix, at every key
    after_s: float
    error: KvorumError | None


async def ask(loop: SimLoop, name: str, wrote: bytes | None, work: Awaitable[object]) -> Answer:
    began = loop.time()
    error: KvorumError | None = None
    try:
        await work
    except KvorumError as refused:
        error = refused
    return Answer(name, wrote, loop.time() - began, error)


def requests(loop: SimLoop, node: Node, prefix: bytes, round_: int) -> list[asyncio.Task[Answer]]:
    """One of each kind through the node's own client, as HTTP and SQL use it."""
    backend, txn = node.backend, node.store.txn
    tasks: list[asyncio.Task[Answer]] = []

    def begin(name: str, work: Awaitable[object], wrote: bytes | None = None) -> None:
        tasks.append(loop.create_task(ask(loop, name, wrote, work)))

    async def both(suffix: bytes) -> None:
        async def work(t: Transaction) -> None:
            for key in KEYS:
                await t.get(prefix + key + suffix)
                t.put(prefix + key + suffix, b"1")

        await txn.run(work)

    for key in KEYS:
        begin("get", backend.get("default", "k", key, 0))
        one = b"-put-%s-%d" % (key, round_)
        begin("put", backend.put("default", "k", key + one, b"1", None, 0), one)
    begin("scan", backend.scan("default", "k", ScanSpec()))
    begin("timestamp", txn.now())
    many, some = b"-run-%d" % round_, b"-batch-%d" % round_
    begin("transaction", both(many), many)
    begin("batch", txn.write([put(prefix + key + some, b"1", None, 0) for key in KEYS]), some)
    begin("table", backend.create_table("default", f"made-{round_}", TableSpec()))
    begin("procedure", backend.submit(LOCK, LOCK_ARGS, None))
    begin("nodes", backend.nodes())
    return tasks


@pytest.mark.slow
@pytest.mark.parametrize("master", [True, False], ids=["master", "another"])
@pytest.mark.parametrize("seed", range(2))
def test_a8_a_node_that_is_cut_off_answers_within_two_elections(master: bool, seed: int) -> None:
    """Whatever it took waited for its deadline, ten seconds; a client stayed at it meanwhile. What
    it calls a failure must not be done, what it acknowledged must be there.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed)
        await cluster.start()
        first = cluster.nodes[1]
        await first.backend.create_table("default", "k", TableSpec(split_keys=(b"h", b"s")))
        home = await settled(cluster)
        meta = home[META_PARTITION]
        number = meta if master else next(n for n in cluster.nodes if n != meta)
        victim = cluster.nodes[number]
        starts = [r.descriptor.start for r in victim.store.manager.replicas()]
        prefix = next(start for start in starts if start)[:4]
        tasks = requests(loop, victim, prefix, 0)
        cluster.network.isolate(number)
        for round_, pause_s in enumerate((0.05, 0.25, 0.3, 0.5, 1.0, 6.0), 1):
            await asyncio.sleep(pause_s)
            tasks += requests(loop, victim, prefix, round_)
        answers = await asyncio.gather(*tasks)
        late = [(a.name, a.after_s, a.error) for a in answers if a.after_s > WITHIN_S]
        assert not late, late
        wrong = [a for a in answers if a.error is not None and a.error.disposition == "no"]
        assert not wrong, "a client would not ask another node"
        cluster.network.cut.clear()
        async with asyncio.timeout(30):
            while len(set(leaders(cluster))) < 4:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.1)
        other = next(node for n, node in cluster.nodes.items() if n != number)
        for answer in answers:
            if answer.wrote is None or isinstance(answer.error, UnknownOutcome):
                continue
            keys = KEYS if answer.name != "put" else (answer.wrote[5:6],)
            found = [await other.backend.get("default", "k", k + answer.wrote, 0) for k in keys]
            assert all(found) if answer.error is None else not any(found), answer
        await cluster.close()

    run(main, seed)
