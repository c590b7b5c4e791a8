"""kv.client: routing, retries and, above all, what a lost reply is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    Moved,
    NotLeader,
    TooLarge,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import DEADLINE_MS_MAX, IN_FLIGHT_PER_CONNECTION_MAX
from kv.base.methods import (
    COMMIT,
    GET,
    LOOKUP,
    MGET,
    PING,
    PUT,
    SCAN,
    SCAN_SEALED,
    SCAN_VALUES,
    STATS,
)
from kv.client.client import KvClient
from kv.client.links import Link, LinkExpired
from kv.client.router import Router
from tests.kit.waiting import until
from tests.kv.rpc.fakes import KEY, embedded, running_node

A, M, Z = KEY + b"a", KEY + b"m", KEY + b"z"


async def get(client: KvClient, key: bytes, **options: Any) -> list[Any]:
    return await client.call(GET, key, key, 0, None, **options)


async def put(client: KvClient, key: bytes, value: bytes = b"v", **options: Any) -> list[Any]:
    return await client.call(PUT, key, key, value, None, 0, **options)


# -- the embedded


async def test_rpc_local_and_remote_calls_agree() -> None:
    """Embedded and over the wire must be one interface: results, errors, counters."""
    async with running_node() as node, embedded() as (local, _, _):
        remote = await node.client()
        for client in (local, remote):
            assert await put(client, A) == [1]
            assert await get(client, A) == [b"v", 1]
            assert await get(client, Z) == [None, 0]
            assert await client.call_node(PING) == [1]
            with pytest.raises(InvalidArgument, match="takes 0 arguments"):
                await client.call_node(STATS, "extra")
            with pytest.raises(InvalidArgument, match="budget_ms"):
                await client.call_node(PING, budget_ms=DEADLINE_MS_MAX + 1)
        remote.close()


async def test_a2_many_gets_on_one_range_cost_one_lookup() -> None:
    """Routing must come from the cache: a lookup per get would double every read."""
    async with running_node((M,)) as node:
        client = await node.client()
        keys = [KEY + b"a%d" % i for i in range(1000)]
        await asyncio.gather(*(get(client, key) for key in keys))
        for key in keys[:50]:
            await get(client, key)
        assert client.lookups == 1
        assert node.dispatcher.counters.requests[LOOKUP] == 1
        assert node.dispatcher.counters.requests[GET] == 1050
        await get(client, Z)
        assert client.lookups == 2
        client.close()


async def test_rpc_requests_of_one_turn_share_a_frame() -> None:
    """Coalescing: a hundred concurrent calls must not be a hundred writes."""
    async with running_node() as node:
        client = await node.client()
        await get(client, A)
        frames, drains = node.dispatcher.counters.frames_in, node.first.drains
        await asyncio.gather(*(get(client, A) for _ in range(100)))
        assert node.dispatcher.counters.frames_in == frames + 1
        assert node.first.drains == drains + 1
        client.close()


async def test_rpc_replies_out_of_order_find_their_callers() -> None:
    """Replies come in any order; each must reach the caller whose request it answers."""
    async with running_node() as node:
        client = await node.client()
        for i in range(50):
            node.first.rows[KEY + b"%d" % i] = (b"%d" % i, i)
        node.first.reverse = True
        got = await asyncio.gather(*(get(client, KEY + b"%d" % i) for i in range(50)))
        assert got == [[b"%d" % i, i] for i in range(50)]
        client.close()


async def test_rpc_cancelled_caller_leaves_the_others() -> None:
    """A caller that gives up must not disturb those whose requests share its frame."""
    async with running_node() as node:
        client = await node.client()
        await get(client, A)
        node.first.held = []
        tasks = [asyncio.ensure_future(get(client, A)) for _ in range(10)]
        await until(lambda: len(node.first.held or []) == 10)
        tasks[3].cancel()
        node.first.release()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(r) for r in done].count(list) == 9
        assert isinstance(done[3], asyncio.CancelledError)
        client.close()


# -- rerouting


async def test_rpc_split_partition_is_found_again() -> None:
    """An old location must be mended from the refusal, without another lookup."""
    async with embedded() as (client, partitions, _):
        await put(client, Z, b"1")
        old = partitions.machines[PartitionId(1)]
        left = PartitionDescriptor(PartitionId(1), b"", M, 2, (NodeId(1),))
        right = PartitionDescriptor(PartitionId(2), M, b"", 2, (NodeId(1),))
        old.descriptor = left
        other = type(old)(right)
        other.rows = dict(old.rows)
        partitions.machines[PartitionId(2)] = other
        assert await get(client, Z) == [b"1", 1]
        assert client.lookups == 1
        assert await get(client, A) == [None, 0]
        assert (await client.locate(A), await client.locate(Z)) == (left, right)
        assert client.lookups == 2


async def test_rpc_moved_without_descriptor_looks_up() -> None:
    """A node that does not know where a key went must not stop the client from asking."""
    async with embedded() as (client, partitions, _):
        await get(client, A)
        first = partitions.machines[PartitionId(1)]
        first.fails = [
            Moved("gone"),
            NotLeader("not me"),
            Moved("gone", details={"descriptor": None}),
        ]
        assert await get(client, A) == [None, 0]
        assert client.lookups == 4
        assert client.retries == 3


async def test_rpc_keys_of_two_partitions_are_the_callers_problem() -> None:
    """A multi-key request that fits no partition must come back for another split, not loop."""
    async with embedded((M,)) as (client, partitions, _):
        now = await client.locate(A)
        partitions.machines[PartitionId(1)].fails = [
            Moved("outside", details={"descriptor": now.to_wire()})
        ]
        with pytest.raises(Moved):
            await client.call(MGET, A, [A, Z], 0, None)
        assert client.retries == 0


@pytest.mark.parametrize("method", [SCAN, SCAN_VALUES, SCAN_SEALED])
async def test_rpc_a_range_that_was_split_is_the_callers_problem(method: int) -> None:
    """A scan beside a split asked the left half for all of the range, until its deadline."""
    async with embedded((M,)) as (client, partitions, _):
        now = await client.locate(A)
        partitions.machines[PartitionId(1)].fails = [
            Moved("outside", details={"descriptor": now.to_wire()})
        ]
        with pytest.raises(Moved):
            await client.call(method, A, A, Z, 1, 10, False, None)
        assert client.retries == 0


async def test_rpc_endless_rerouting_ends_at_the_deadline() -> None:
    """A cluster that cannot agree who leads must cost the caller its deadline, not for ever."""
    async with embedded() as (client, partitions, _):
        partitions.machines[PartitionId(1)].fails = [NotLeader("not me") for _ in range(1000)]
        with pytest.raises(DeadlineExceeded, match="not me"):
            await put(client, A, budget_ms=500)
        assert client.retries < 40, "the pauses must grow"


async def test_rpc_split_by_partition_keeps_order() -> None:
    """Whoever sends a part per partition needs every key once, in order, next to its range."""
    async with embedded((M,)) as (client, partitions, _):
        left, right = (m.descriptor for m in partitions.machines.values())
        keys = [Z, A, Z + b"2", KEY + b"b", M]
        assert await client.split_by_partition(keys) == [
            (right, [Z, Z + b"2", M]),
            (left, [A, KEY + b"b"]),
        ]
        assert await client.split_by_partition([]) == []
        assert client.lookups == 2


def descriptor(i: int, start: bytes, end: bytes, epoch: int = 1) -> PartitionDescriptor:
    return PartitionDescriptor(PartitionId(i), start, end, epoch, (NodeId(1),))


def test_rpc_router_entries_never_overlap() -> None:
    """Two entries for one key would send it to a partition that no longer has it."""
    router = Router()
    at = ("h", 1)
    router.learn(descriptor(1, b"", b""), at)
    router.learn(descriptor(2, b"d", b"h", 2), at)
    assert router.find(b"a") is None, "the old range is not trusted any more"
    assert router.find(b"h") is None
    router.learn(descriptor(1, b"", b"d", 2), at)
    router.learn(descriptor(3, b"h", b"", 2), at)
    found = [router.find(k) for k in (b"", b"c", b"d", b"g", b"h", b"z")]
    assert [f.descriptor.id for f in found if f] == [1, 1, 2, 2, 3, 3]
    router.learn(descriptor(2, b"a", b"z", 1), at)
    assert len(router) == 3, "an older epoch of a known partition changes nothing"
    router.learn(descriptor(2, b"a", b"z", 3), at)
    assert [router.find(k) and router.find(k).descriptor.id for k in (b"", b"a", b"y", b"z")] == [  # type: ignore[union-attr]
        None,
        2,
        2,
        None,
    ]


def test_rpc_router_is_bounded() -> None:
    """A client of a huge cluster must not keep every location for ever."""
    router = Router(locations_max=10)
    for i in range(100):
        router.learn(descriptor(i, b"%03d" % i, b"%03d" % (i + 1)), ("h", 1))
        assert len(router) <= 10
        assert router.find(b"%03d" % i) is not None


# -- busy, deadlines


async def test_rpc_busy_is_asked_again_within_the_deadline() -> None:
    """BUSY is the server's brake: the client waits as told and asks again; then the caller hears
    it.
    """
    async with embedded() as (client, partitions, _):
        first = partitions.machines[PartitionId(1)]
        first.fails = [Busy("full", details={"retry_after_ms": 30}), Busy("full")]
        began = asyncio.get_running_loop().time()
        assert await put(client, A) == [1]
        assert asyncio.get_running_loop().time() - began >= 0.03
        first.fails = [Busy("full", details={"limit": 5}) for _ in range(1000)]
        with pytest.raises(Busy) as caught:
            await put(client, A, budget_ms=50)
        assert caught.value.details == {"limit": 5}


async def test_e6_a_write_waits_for_the_oracles_bound_within_its_deadline() -> None:
    """After every sleep of a node, or jump of its clock, the first writes failed."""
    async with embedded() as (client, partitions, _):
        first = partitions.machines[PartitionId(1)]
        first.fails = [Unavailable("bound", code="TSO_BOUND") for _ in range(3)]
        assert await put(client, A) == [1]
        first.fails = [Unavailable("bound", code="TSO_BOUND") for _ in range(1000)]
        for _ in range(20):  # a deadline between a request and its answer says nothing of either
            with pytest.raises((DeadlineExceeded, UnknownOutcome)) as caught:
                await put(client, A, budget_ms=50)
            if "bound" in caught.value.message:
                break
        assert caught.type is DeadlineExceeded
        assert "bound" in caught.value.message


@pytest.mark.parametrize("error", [KeyLocked("k"), Unavailable("disk full"), TooLarge("t")])
async def test_rpc_other_errors_are_the_callers(error: KvorumError) -> None:
    """What only the caller can judge must reach it at once and whole."""
    async with embedded() as (client, partitions, _):
        partitions.machines[PartitionId(1)].fails = [error]
        with pytest.raises(type(error)) as caught:
            await put(client, A)
        assert caught.value.message == error.message
        assert client.retries == 0


@pytest.mark.parametrize("remote", [False, True], ids=["embedded", "tcp"])
async def test_rpc_deadline_read_and_write(remote: bool) -> None:
    """A read that is late failed; a write that is late may have been done, and must be called
    so.
    """
    async with running_node() as node, embedded() as (local, partitions, _):
        client = await node.client() if remote else local
        machine = node.first if remote else partitions.machines[PartitionId(1)]
        await get(client, A)
        machine.held = []
        began = asyncio.get_running_loop().time()
        results = await asyncio.gather(
            get(client, A, budget_ms=40),
            put(client, A, budget_ms=60),
            client.call(COMMIT, A, A, 5, 6, budget_ms=80),
            return_exceptions=True,
        )
        assert [type(r) for r in results] == [DeadlineExceeded, UnknownOutcome, UnknownOutcome]
        assert 0.07 < asyncio.get_running_loop().time() - began < 5
        machine.release()
        assert await get(client, Z) == [None, 0], "late replies are dropped, the link lives on"
        client.close()


async def test_rpc_deadline_reaches_the_server() -> None:
    """The server must know how long its caller waits, or it works for nobody."""
    async with running_node() as node:
        client = await node.client()
        node.first.held = []
        asked = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineExceeded):
            await get(client, A, budget_ms=50)
        (_, request) = node.first.held[0]
        assert 0 < request[2] - asked <= 0.25
        client.close()


class SilentLink(Link):
    """Takes requests and never answers."""

    def __init__(self, timers: Any) -> None:
        super().__init__(timers)
        self.rows: list[list[Any]] = []

    def _transmit(self, rows: list[list[Any]]) -> None:
        self.rows += rows


async def test_rpc_one_timer_serves_all_deadlines() -> None:
    """A timer per request would cost more than the request; expiry must still be on time."""
    timers = CountingTimers()
    link = SilentLink(timers)
    loop = asyncio.get_running_loop()
    now = loop.time()
    futures = [link.send(GET, 0, now + 0.02 * (1 + i % 3), ()) for i in range(300)]
    assert timers.later == 1
    ended: dict[int, float] = {}
    for i, future in enumerate(futures):
        future.add_done_callback(lambda _f, i=i: ended.setdefault(i, loop.time() - now))
    await asyncio.wait(futures)
    assert all(isinstance(f.exception(), LinkExpired) for f in futures)
    assert all(0.017 < ended[i] - 0.02 * (i % 3) < 0.2 for i in ended)
    assert timers.later <= 4
    assert link.in_flight == 0


class CountingTimers(LoopTimers):
    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.later = 0

    def call_later(self, delay_s: float, fn: Callable[..., object], *args: Any) -> Any:
        self.later += 1
        return super().call_later(delay_s, fn, *args)


@pytest.mark.slow
async def test_rpc_in_flight_of_a_client_is_bounded() -> None:
    """A client that never waits must be told BUSY before its memory is full."""
    link = SilentLink(CountingTimers())
    deadline = asyncio.get_running_loop().time() + 60
    futures = [link.send(GET, 0, deadline, ()) for _ in range(IN_FLIGHT_PER_CONNECTION_MAX)]
    with pytest.raises(Busy) as caught:
        link.send(GET, 0, deadline, ())
    assert caught.value.details["limit"] == IN_FLIGHT_PER_CONNECTION_MAX
    link.close()
    assert all(f.exception() for f in futures)
