"""kv.client among several nodes: leaders are found, followed and lost; what was sent is never sent
twice.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import kv.client.calls
import kv.client.client
from kv.base.errors import (
    DeadlineExceeded,
    KvorumError,
    NotLeader,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import META_PARTITION
from kv.base.limits import CONNECT_MS_MAX
from kv.base.methods import COMMIT, FIND_TXN, GET, LOOKUP, PING, PUT, TSO
from kv.client.calls import Call
from kv.client.client import KvClient
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from procedures.verbs import CHANGE_REPLICAS
from tests.kv.rpc.fakes import KEY
from tests.kv.rpc.several import Cluster, address_of

A, M, Z = KEY + b"a", KEY + b"m", KEY + b"z"


async def get(client: KvClient, key: bytes, **options: Any) -> list[Any]:
    return await client.call(GET, key, key, 0, None, **options)


async def put(client: KvClient, key: bytes, value: bytes = b"v", **options: Any) -> list[Any]:
    return await client.call(PUT, key, key, value, None, 0, **options)


def refused(cluster: Cluster) -> int:
    """Requests that came to replicas that do not lead."""
    return sum(r.refused for node in cluster.nodes for r in node.replicas.values())


def test_a2_a_thousand_gets_on_one_range_cost_one_lookup() -> None:
    """A lookup must name the leader's node, or each range costs a detour over a follower."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 3, (M,))
        client = cluster.client(3)  # it leads neither of the two partitions
        keys = [KEY + b"a%d" % i for i in range(1000)]
        await asyncio.gather(*(get(client, key) for key in keys[:500]))
        for key in keys[500:]:
            await get(client, key)
        assert (client.lookups, client.refreshes, client.retries) == (1, 0, 0)
        assert [node.requests(LOOKUP) for node in cluster.nodes] == [0, 0, 1]
        assert [node.requests(GET) for node in cluster.nodes] == [1000, 0, 0]
        await get(client, Z)
        assert client.lookups == 2
        assert cluster.node(2).requests(GET) == 1
        assert refused(cluster) == 0

    run(main)


@pytest.mark.parametrize("callers", [1, 200])
def test_a3_a_stale_location_costs_one_refresh_and_no_error(callers: int) -> None:
    """After a change of leader the first request would fail, or every one would look up anew."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        await put(client, A, b"1")
        cluster.lead(1, 2)
        found = await asyncio.gather(*(get(client, A) for _ in range(callers)))
        assert found == [[b"1", 1]] * callers
        assert (client.refreshes, client.lookups) == (1, 1)
        assert client.retries == callers == refused(cluster)
        await asyncio.gather(*(get(client, A) for _ in range(callers)))
        assert client.refreshes == 1

    run(main)


def test_a3_a_call_that_was_sent_twice_dies_with_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call and the frames of its last error would hold each other, and the value that was to be
    written, until Python searches for cycles.
    """
    made = ended = 0

    class Counted(Call):
        # gc.get_objects() would find them, and half-made tuples of other threads of this process,
        # who then get a SystemError.
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            nonlocal made
            super().__init__(*args)
            made += 1

        def __del__(self) -> None:
            nonlocal ended
            ended += 1

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        await put(client, A, b"1")
        cluster.lead(1, 2)
        await put(client, A, b"2")
        assert client.retries

    monkeypatch.setattr(kv.client.calls, "Call", Counted)
    monkeypatch.setattr(kv.client.client, "Call", Counted)
    gc.disable()
    try:
        run(main)
        assert made == ended > 1
    finally:
        gc.enable()


def test_a3_the_leader_died_and_another_one_is_elected() -> None:
    """While nobody leads, reads and writes must wait within their deadline, and all of them go on
    with one refresh once somebody does.
    """

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        await put(client, A, b"1")
        cluster.node(1).stop()
        loop.call_later(0.5, cluster.lead, 1, None)  # the others notice after a while
        loop.call_later(1.5, cluster.lead, 1, 3)
        began = loop.time()
        results = await asyncio.gather(*(get(client, A) for _ in range(50)), put(client, A, b"2"))
        assert all(value in ([b"1", 1], [b"2", 2]) for value in results[:50])
        assert results[50] == [2], "it was never sent: the connection was gone before"
        assert loop.time() - began < 1.5 + 0.3
        assert cluster.shared[0].executed == [b"1", b"2"]

    run(main)


def test_a3_a_hint_that_is_wrong_does_not_lead_in_circles() -> None:
    """Two nodes that take each other for the leader would be asked in a tight loop."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        await get(client, A)
        cluster.lead(1, None)
        one, two = (cluster.node(i).replicas[META_PARTITION] for i in (1, 2))
        one.believes, two.believes = 2, 1
        with pytest.raises(DeadlineExceeded, match="not here"):
            await get(client, A, budget_ms=1000)
        assert refused(cluster) < 40

    run(main)


def test_a8_what_was_sent_is_unknown_and_never_sent_again() -> None:
    """A write whose reply was lost with its leader would be executed twice, or called failed."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        await get(client, A)
        work = [asyncio.ensure_future(put(client, A, b"%d" % i)) for i in range(20)]
        await asyncio.sleep(0.00005)  # they are there; the replies are not back
        cluster.node(1).stop()
        cluster.lead(1, 2)
        results = await asyncio.gather(*work, return_exceptions=True)
        assert all(isinstance(r, UnknownOutcome) for r in results)
        executed = cluster.shared[0].executed
        assert len(executed) == len(set(executed)) == 20, "done, though nobody can know"
        assert await put(client, A, b"next") == [21]

    run(main)


def test_a8_a_deposed_leader_that_does_not_know_the_outcome() -> None:
    """What it had in its log may be committed by the next one: a write of the kind that may be
    repeated is asked there, another one is its caller's to ask for.
    """

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        await get(client, A)
        deposed = cluster.node(1).replicas[META_PARTITION]
        deposed.fails = [UnknownOutcome("deposed")]
        with pytest.raises(UnknownOutcome, match="deposed"):
            await put(client, A)
        await get(client, A)
        deposed.fails = [UnknownOutcome("deposed")]
        cluster.lead(1, 2)
        assert await client.call(COMMIT, A, A, 5, 6) == [None, 0]
        assert (client.refreshes, client.retries) == (2, 1)
        cluster.lead(1, 1)
        await get(client, A)
        deposed.fails = [UnknownOutcome("deposed"), *(NotLeader("no") for _ in range(1000))]
        with pytest.raises(UnknownOutcome):
            await client.call(COMMIT, A, A, 5, 6, budget_ms=100)

    run(main)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(20))
def test_a8_a_key_is_linear_whatever_happens_to_its_leader(seed: int) -> None:
    """An acknowledged write would be lost to its reader, or one be executed twice, while leaders
    die, come back and change.
    """

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        rng = SimRng(seed)
        acknowledged = 0  # the highest version that somebody was told of
        unknown = 0
        over = False

        async def writer(name: int) -> None:
            nonlocal acknowledged, unknown
            client = cluster.client(1 + name % 3, seed=name)
            for i in range(60):
                try:
                    (version,) = await put(client, A, b"%d.%d" % (name, i))
                    acknowledged = max(acknowledged, version)
                except UnknownOutcome:
                    unknown += 1
                await asyncio.sleep(rng.random() * 0.1)

        async def reader(name: int) -> None:
            client = cluster.client(1 + name % 3, seed=100 + name)
            while not over:
                before = acknowledged
                _, version = await get(client, A)
                assert version >= before
                await asyncio.sleep(rng.random() * 0.02)

        async def trouble() -> None:
            while not over:
                await asyncio.sleep(rng.random())
                leader = cluster.shared[0].leader
                assert leader is not None
                node, next_ = cluster.node(leader), leader % 3 + 1
                if rng.random() < 0.5:
                    node.stop()
                    await asyncio.sleep(rng.random())
                    cluster.lead(1, None)
                    await asyncio.sleep(rng.random())
                cluster.lead(1, next_, told=rng.random() < 0.7)
                await asyncio.sleep(rng.random())
                node.down = False

        async with asyncio.TaskGroup() as group:
            group.create_task(trouble())
            for i in range(3):
                group.create_task(reader(i))
            async with asyncio.TaskGroup() as writers:
                for i in range(4):
                    writers.create_task(writer(i))
            over = True
        executed = cluster.shared[0].executed
        assert len(executed) == len(set(executed)), "nothing is executed twice"
        assert len(executed) >= 4 * 60 - unknown

    run(main, seed)


def test_rpc_no_herd_looks_for_a_leader() -> None:
    """A thousand callers of a partition without a leader would be a thousand lookups, connections
    and refusals at every turn, just when its nodes have an election to do.
    """

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 3, (M,))
        client = cluster.client()
        await asyncio.gather(get(client, A), get(client, Z))
        cluster.node(1).stop()
        loop.call_later(0.2, cluster.lead, 1, None)
        loop.call_later(1.5, cluster.lead, 1, 2)
        before = client.lookups
        work = [asyncio.ensure_future(get(client, A)) for _ in range(1000)]
        await asyncio.sleep(1.0)
        began = loop.time()
        await get(client, Z)
        assert loop.time() - began < 0.002, "another partition's callers are not held up"
        await asyncio.gather(*work)
        assert client.lookups - before < 60
        assert cluster.node(1).connects < 30
        assert refused(cluster) == 0

    run(main)


def test_rpc_a_node_that_takes_connections_and_says_nothing_is_passed_over() -> None:
    """A stopped process still has its port open: who connects would wait until the deadline."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        cluster.node(1).silent = True
        cluster.lead(1, 2)
        client = cluster.client()
        began = loop.time()
        assert await asyncio.gather(*(get(client, A) for _ in range(100))) == [[None, 0]] * 100
        assert loop.time() - began < CONNECT_MS_MAX / 1000 + 0.2
        assert cluster.node(1).connects == 1

    run(main)


def test_rpc_master_methods_go_to_the_master_and_stay_there() -> None:
    """Each timestamp would ask the wrong node first; other methods would all move to the master."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        cluster.lead(1, 3)
        client = cluster.client()
        assert await client.call_node(TSO, 5) == [1]
        for _ in range(10):
            await client.call_node(TSO, 1)
            assert await client.call_node(PING) == [1]
        assert [node.requests(TSO) for node in cluster.nodes] == [0, 0, 11]
        assert client.retries == 1
        cluster.lead(1, 2)
        firsts = await asyncio.gather(*(client.call_node(TSO, 1) for _ in range(100)))
        assert len({first for (first,) in firsts}) == 100
        cluster.node(2).stop()
        loop.call_later(0.7, cluster.lead, 1, 3)
        began = loop.time()
        firsts += await asyncio.gather(*(client.call_node(TSO, 1) for _ in range(100)))
        assert loop.time() - began < 0.7 + 0.3
        assert len({first for (first,) in firsts}) == 200
        assert await client.call_node(PING) == [1]

    run(main)


def test_rpc_a_node_method_may_say_who_leads_something_else() -> None:
    """An order to a partition's leader would be sent to the master, again and again."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        cluster.lead(1, 2)

        def elsewhere(_context: object, _args: list[Any]) -> list[Any]:
            raise NotLeader("that partition is led by node 3", details={"leader": 3})

        cluster.node(1).dispatcher.register(CHANGE_REPLICAS, elsewhere)
        with pytest.raises(NotLeader) as caught:
            await cluster.client().call_at(address_of(1), CHANGE_REPLICAS, 9, "remove", 1)
        assert caught.value.details["leader"] == 3
        assert tuple(caught.value.details["address"]) == address_of(3)

    run(main)


def test_rpc_a_master_method_without_a_handler_is_another_nodes() -> None:
    """A node that ran the master once would answer "no such method" to clients that remember it."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        assert await client.call_node(TSO, 1) == [1]
        cluster.node(1).dispatcher.unregister(TSO)
        cluster.lead(1, 2)
        assert await client.call_node(TSO, 1) == [2]

    run(main)


def test_rpc_a_client_outlives_the_nodes_that_it_was_told_of() -> None:
    """A client that was given one address of three would end with that node."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        cluster.lead(1, 2)
        client = cluster.client(1)
        await get(client, A)
        cluster.node(1).stop()
        assert await client.call_node(PING) == [2]
        cluster.lead(1, 3)
        assert await get(client, A) == [None, 0]

    run(main)


def test_rpc_a_node_that_lacks_a_partition_is_not_believed() -> None:
    """A node that was down when a table was made would tell everybody that there is none."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 3, (M,))
        client = cluster.client()
        del cluster.node(1).replicas[cluster.shared[1].descriptor.id]
        assert await get(client, Z) == [None, 0]
        assert await client.call_node(PING) == [1], "it is in use all the same"
        for node in cluster.nodes[1:]:
            del node.replicas[cluster.shared[1].descriptor.id]
        other = cluster.client()
        with pytest.raises(Unavailable, match="no partition"):
            await get(other, Z)
        assert other.lookups == 3

    run(main)


def test_a3_a_client_of_a_node_without_replicas_is_sent_on() -> None:
    """Its replicas were taken away, it still runs, and it is the only address that a client has:
    "ask again" would be true for ever.
    """

    async def main(loop: SimLoop) -> None:
        for master in (False, True):
            cluster = Cluster(loop)
            cluster.lead(1, 3)
            cluster.node(1).replicas.clear()
            client = cluster.client(1)
            if master:
                assert await client.call_node(TSO, 1) == [1]
            else:
                assert await get(client, A) == [None, 0]
            cluster.node(1).stop()
            assert await get(client, A) == [None, 0], "it knows the others by now"

    run(main)


def test_a3_a_leader_that_was_true_once_leads_nobody_astray() -> None:
    """A node that was left alone repeats what it last heard; that leader may be dead."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        cluster.lead(1, 2)
        cluster.node(2).stop()
        cluster.lead(1, 3, told=False)
        client = cluster.client(1)
        assert await client.call_node(TSO, 1, budget_ms=2_000) == [1]

    run(main)


def test_d4_a_record_is_missing_only_if_every_leader_says_so() -> None:
    """A node that does not lead may not have the record yet: its "none" would call a committed
    transaction aborted.
    """

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 3, (KEY + b"d", M))
        client = cluster.client()
        assert await client.find_txn(7) is None
        assert [node.requests(FIND_TXN) for node in cluster.nodes] == [1, 1, 1]
        cluster.node(3).found = M
        assert await client.find_txn(7) == M
        cluster.node(3).found = None
        cluster.node(3).stop()
        with pytest.raises(DeadlineExceeded, match="partition 3 has no leader"):
            await client.find_txn(7, budget_ms=300)
        loop.call_later(0.5, cluster.lead, 3, 1)
        began = loop.time()
        assert await client.find_txn(7) is None, "two of three nodes are enough"
        assert 0.5 <= loop.time() - began < 0.7
        cluster.lead(2, 1)
        cluster.node(2).stop()
        with pytest.raises(DeadlineExceeded, match="1 of 3 nodes"):
            await client.find_txn(7, budget_ms=300)
        assert await cluster.client(1).call_node(PING) == [1]

    run(main)


def test_d4_a_partition_at_few_nodes_is_asked_too() -> None:
    """A majority of the nodes need not have it, and would call what it committed unheard of."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 3, (M,))
        cluster.lead(2, 3)
        few = cluster.shared[1].descriptor.id
        for number in (1, 2):
            del cluster.node(number).replicas[few]

        async def placed() -> list[int]:
            return [few]

        for node in cluster.nodes:
            node.dispatcher.placed = placed
        client = cluster.client()
        assert await client.find_txn(7) is None
        cluster.node(3).stop()
        with pytest.raises(DeadlineExceeded, match="partition 2 has no leader"):
            await client.find_txn(7, budget_ms=300)

    run(main)


def test_a3_a_partition_at_few_nodes_is_waited_for() -> None:
    """While its only node is away the others know no such partition: that is no answer, yet."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 3, (M,))
        cluster.lead(2, 3)
        for number in (1, 2):
            del cluster.node(number).replicas[cluster.shared[1].descriptor.id]
        client = cluster.client()
        assert await get(client, Z) == [None, 0]
        cluster.node(3).stop()
        loop.call_later(1.0, setattr, cluster.node(3), "down", False)
        began = loop.time()
        assert await get(client, Z) == [None, 0]
        assert 1.0 <= loop.time() - began < 1.3
        cluster.node(3).stop()
        loop.call_later(1.0, setattr, cluster.node(3), "down", False)
        assert await get(cluster.client(), Z) == [None, 0], "nor for one that never heard of it"
        cluster.node(3).stop()
        with pytest.raises(DeadlineExceeded):
            await get(client, Z, budget_ms=500)

    run(main)


def test_a3_an_election_is_waited_for_though_some_nodes_lack_the_partition() -> None:
    """Of five nodes two have nothing to do with it; they must not be heard more often than those
    that elect its leader.
    """

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop, 5, (M,))
        few = cluster.shared[1].descriptor.id
        cluster.lead(2, 3)
        for number in (1, 2):
            del cluster.node(number).replicas[few]
        client = cluster.client()
        assert await get(client, Z) == [None, 0]
        cluster.node(3).stop()
        for number in (4, 5):
            cluster.node(number).replicas[few].believes = None
        loop.call_later(1.5, elected, cluster, few)
        assert await get(client, Z) == [None, 0]

    def elected(cluster: Cluster, few: int) -> None:
        cluster.shared[1].leader = 4
        for number in (4, 5):
            cluster.node(number).replicas[few].believes = 4

    run(main)


def test_rpc_one_node_by_its_address() -> None:
    """Who asks a certain node wants its answer, or to know that there is none."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(loop)
        client = cluster.client()
        for id_ in (2, 3):
            assert await client.call_at(address_of(id_), PING) == [id_]
        cluster.node(2).stop()
        with pytest.raises(Unavailable) as caught:
            await client.call_at(address_of(2), PING)
        assert caught.value.code == "UNREACHABLE"
        cluster.node(3).silent = True
        with pytest.raises(DeadlineExceeded):
            await client.call_at(address_of(3), PING, budget_ms=100)
        work = asyncio.ensure_future(client.call_at(address_of(1), TSO, 1))
        await asyncio.sleep(0.0003)
        cluster.node(1).stop()
        with pytest.raises(KvorumError):
            await work

    run(main)
