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
    PREWRITE,
    PROC_ABORT,
    PROC_SUBMIT,
    PUT,
    QUERIES,
    REPEATABLE,
    STATS,
    WRITE,
)
from kv.base.rpc import FrameDecoder, FrameEncoder, Hello, error_row
from kv.client import connection as connection_module
from kv.client.client import KvClient, connect
from kv.client.connection import open_connection
from kv.client.links import Link, LinkExpired
from kv.client.router import Router
from kv.server.dispatcher import Context
from tests.machine import free_port
from tests.rpc.fakes import (
    CLUSTER,
    KEY,
    Node,
    SeededRng,
    embedded,
    running_node,
    until,
)

A, M, Z = KEY + b"a", KEY + b"m", KEY + b"z"


async def get(client: KvClient, key: bytes, **options: Any) -> list[Any]:
    return await client.call(GET, key, key, 0, None, **options)


async def put(client: KvClient, key: bytes, value: bytes = b"v", **options: Any) -> list[Any]:
    return await client.call(PUT, key, key, value, None, 0, **options)


# ------------------------------------------------------------------------------------ the embedded


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


# ------------------------------------------------------------------------------------ rerouting


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


async def test_rpc_endless_rerouting_ends_at_the_deadline() -> None:
    """A cluster that cannot agree who leads must cost the caller its deadline, not for ever."""
    async with embedded() as (client, partitions, _):
        partitions.machines[PartitionId(1)].fails = [NotLeader("not me") for _ in range(1000)]
        with pytest.raises(DeadlineExceeded, match="not me"):
            await put(client, A, budget_ms=60)
        assert 2 < client.retries < 40, "the pauses must grow"


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
        None, 2, 2, None,
    ]  # fmt: skip


def test_rpc_router_is_bounded() -> None:
    """A client of a huge cluster must not keep every location for ever."""
    router = Router(locations_max=10)
    for i in range(100):
        router.learn(descriptor(i, b"%03d" % i, b"%03d" % (i + 1)), ("h", 1))
        assert len(router) <= 10
        assert router.find(b"%03d" % i) is not None


# ------------------------------------------------------------------------------------ busy,
# deadlines


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
        assert 0.07 < asyncio.get_running_loop().time() - began < 1
        machine.release()
        assert await get(client, Z) == [None, 0], "late replies are dropped, the link lives on"
        client.close()


async def test_rpc_deadline_reaches_the_server() -> None:
    """The server must know how long its caller waits, or it works for nobody."""
    async with running_node() as node:
        client = await node.client()
        node.first.held = []
        with pytest.raises(DeadlineExceeded):
            await get(client, A, budget_ms=50)
        (_, request) = node.first.held[0]
        assert 0 < request[2] <= 50
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


class CountingTimers:
    def __init__(self) -> None:
        self.later = 0
        loop = asyncio.get_running_loop()
        self.monotonic = loop.time
        self.call_soon = loop.call_soon

    def call_later(self, delay_s: float, fn: Callable[..., object], *args: Any) -> Any:
        self.later += 1
        return asyncio.get_running_loop().call_later(delay_s, fn, *args)


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


# ------------------------------------------------------------------------------------ lost
# connections


class FaultyServer:
    """Speaks the protocol and then does what the script says with each frame of requests."""

    def __init__(
        self, script: Callable[[FaultyServer, list[Any], asyncio.Transport], None]
    ) -> None:
        self.script = script
        self.seen: list[list[Any]] = []
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> FaultyServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Faulty(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def client(self) -> KvClient:
        return await connect(
            [("127.0.0.1", self.port)],
            timers=LoopTimers(asyncio.get_running_loop()),
            rng=SeededRng(),
        )


class _Faulty(asyncio.Protocol):
    def __init__(self, server: FaultyServer) -> None:
        self.server, self.decoder, self.greeted = server, FrameDecoder(), False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.server.connections += 1

    def data_received(self, data: bytes) -> None:
        self.decoder.push(data)
        while (message := self.decoder.pull()) is not None:
            if not self.greeted:
                self.greeted = True
                self.transport.write(FrameEncoder().message(Hello(node=1).to_wire()))
                continue
            rest = []
            for row in message:
                if row[1] == LOOKUP:
                    found = PartitionDescriptor(PartitionId(1), b"", b"", 1, (NodeId(1),))
                    reply(self.transport, [row[0], 0, found.to_wire(), ["", 0]])
                else:
                    rest.append(row)
            if rest:
                self.server.seen += rest
                self.server.script(self.server, rest, self.transport)


def reply(transport: Any, *rows: list[Any]) -> None:
    transport.write(FrameEncoder().message(list(rows)))


def dies_first(server: FaultyServer, rows: list[Any], transport: Any) -> None:
    """The first connection dies with requests executed and unanswered; the second one answers."""
    if server.connections == 1:
        transport.abort()
    else:
        reply(transport, *([row[0], 0, b"again", 9] for row in rows))


@pytest.mark.parametrize(
    ("method", "args"),
    [(GET, [A, 0, None]), (COMMIT, [A, 5, 6]), (PREWRITE, [5, A, 100, [[1, A, b"v", None, 0]], 0])],
)
async def test_rpc_repeatable_is_sent_again(method: int, args: list[Any]) -> None:
    """A lost reply to what may be repeated must not be the caller's problem."""
    assert method in REPEATABLE
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        assert await client.call(method, A, *args) == [b"again", 9]
        assert [row[1] for row in server.seen] == [method, method]
        client.close()


@pytest.mark.parametrize(
    ("method", "args"), [(PUT, [A, b"v", None, 0]), (WRITE, [[[1, A, b"v", None, 0]], 0, 0])]
)
async def test_rpc_lost_write_is_unknown_and_never_repeated(method: int, args: list[Any]) -> None:
    """Sending a write twice could do it twice; calling it failed could lose it. It is unknown."""
    assert method not in REPEATABLE
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        with pytest.raises(UnknownOutcome):
            await client.call(method, A, *args)
        assert [row[1] for row in server.seen] == [method]
        assert await get(client, A) == [b"again", 9], "the client connects again by itself"
        client.close()


async def test_rpc_lost_node_methods() -> None:
    """The same rule for procedures: submit is unknown, abort (idempotent) is sent again."""
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        with pytest.raises(UnknownOutcome):
            await client.call_node(PROC_SUBMIT, "n", {}, "o", None)
        client.close()
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        assert await client.call_node(PROC_ABORT, 5, "why") == [b"again", 9]
        client.close()


async def test_rpc_doubt_outlives_refusals() -> None:
    """After a lost COMMIT, "not leader" until the deadline proves nothing about the first
    attempt.
    """

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        if server.connections == 1:
            transport.abort()
        else:
            reply(transport, *(error_row(row[0], NotLeader("not me")) for row in rows))

    assert COMMIT not in QUERIES
    async with FaultyServer(script) as server:
        client = await server.client()
        with pytest.raises(UnknownOutcome):
            await client.call(COMMIT, A, A, 5, 6, budget_ms=80)
        client.close()
    async with FaultyServer(script) as server:
        client = await server.client()
        with pytest.raises(DeadlineExceeded):
            await get(client, A, budget_ms=80)
        client.close()


async def test_rpc_doubt_outlives_an_unreachable_cluster() -> None:
    """After a lost COMMIT nobody to ask is UNKNOWN_OUTCOME, too; a PUT never sent is not."""

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        server._server.close()
        transport.abort()

    async with FaultyServer(script) as server:
        client = await server.client()
        await client.locate(A)
        with pytest.raises(UnknownOutcome):
            await client.call(COMMIT, A, A, 5, 6, budget_ms=80)
        with pytest.raises(DeadlineExceeded):
            await put(client, A, budget_ms=80)
        assert [row[1] for row in server.seen] == [COMMIT]
        client.close()


async def test_rpc_request_on_a_dead_link_was_not_sent() -> None:
    """A write that waited in this process when the connection died is certainly not done: it is
    sent.
    """

    async with FaultyServer(dies_first) as server:
        client = await server.client()
        await client.locate(A)
        link = client._channels.open_link(("127.0.0.1", server.port))
        assert isinstance(link, connection_module.MuxConnection)
        link.pause_writing()  # the socket takes no more
        task = asyncio.ensure_future(put(client, A))
        await asyncio.sleep(0.01)
        assert not server.seen
        link.lose("pulled the plug")
        assert await task == [b"again", 9]
        client.close()


async def test_rpc_restarted_server_is_found_again() -> None:
    """A node that restarts within the deadline must be invisible to reads, and to new writes."""
    port = free_port()
    async with running_node(port=port) as node:
        client = await node.client()
        await get(client, A)

    async def later() -> list[Any]:
        return await put(client, A, budget_ms=5000)

    task = asyncio.ensure_future(later())
    await asyncio.sleep(0.1)
    async with running_node(port=port) as node:
        assert await task == [1]
        assert node.first.rows == {A: (b"v", 1)}
    client.close()


async def test_rpc_stopping_server_closes_mid_request() -> None:
    """A node that stops with requests in flight: reads go on at the next start, writes are
    unknown.
    """
    port = free_port()
    async with running_node(port=port) as node:
        client = await node.client()
        await get(client, A)
        node.first.held = []
        read = asyncio.ensure_future(get(client, A, budget_ms=5000))
        write = asyncio.ensure_future(put(client, A, budget_ms=5000))
        await until(lambda: len(node.first.held or []) == 2)
    with pytest.raises(UnknownOutcome, match="stopping"):
        await write
    async with running_node(port=port):
        assert await read == [None, 0]
    client.close()


async def test_rpc_half_open_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that vanished without a word must be noticed by its silence, long before TCP does."""
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.03)
    silent = True

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        if not silent or server.connections > 1:
            reply(transport, *([row[0], 0, b"again", 9] for row in rows))

    async with FaultyServer(script) as server:
        client = await server.client()
        began = asyncio.get_running_loop().time()
        assert await get(client, A) == [b"again", 9]
        assert asyncio.get_running_loop().time() - began < 2
        assert [row[1] for row in server.seen] == [GET, PING, GET]
        client.close()


async def test_rpc_long_poll_is_not_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that works long but answers PING is alive: its callers must not be cut off."""
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.03)
    async with running_node() as node:
        client = await node.client()
        node.first.held = []
        task = asyncio.ensure_future(get(client, A))
        await asyncio.sleep(0.2)
        node.first.release()
        assert await task == [None, 0]
        assert node.dispatcher.counters.requests[PING] >= 2
        assert node.dispatcher.counters.connections_total == 1
        client.close()


@pytest.mark.parametrize(
    "junk",
    [b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", FrameEncoder().message([5]),
     FrameEncoder().message([[1]]), FrameEncoder().message([error_row(0, Busy("go away"))])],
    ids=["oversize", "not-msgpack", "row-not-a-list", "short-row", "connection-error"],
)  # fmt: skip
async def test_rpc_server_that_breaks_the_protocol_is_left(junk: bytes) -> None:
    """A broken server must cost its client a connection, not an exception on the loop."""

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        if server.connections == 1:
            transport.write(junk)
        else:
            reply(transport, *([row[0], 0, b"again", 9] for row in rows))

    async with FaultyServer(script) as server:
        client = await server.client()
        assert await get(client, A) == [b"again", 9]
        client.close()


async def test_rpc_unsendable_argument_fails_alone() -> None:
    """A caller's object that is no plain data must not break its neighbours' requests."""
    async with running_node() as node:
        client = await node.client()
        await get(client, A)
        good, bad, large = await asyncio.gather(
            get(client, A),
            client.call(PUT, A, A, object(), None, 0),
            put(client, A, b"x" * (33 << 20)),
            return_exceptions=True,
        )
        assert good == [None, 0]
        assert type(bad) is InvalidArgument
        assert type(large) is TooLarge
        client.close()


# ------------------------------------------------------------------------------------ connecting


async def test_rpc_connect_tries_all_addresses() -> None:
    """One dead node of the list must not keep a client out."""
    async with running_node() as node:
        client = await connect(
            [("127.0.0.1", free_port()), ("127.0.0.1", node.port)],
            timers=node.timers,
            rng=SeededRng(),
        )
        assert await put(client, A) == [1]
        client.close()


async def test_rpc_connect_names_every_address_that_failed() -> None:
    """ "Cannot connect" must say where, and what was wrong there."""
    port = free_port()
    timers = LoopTimers(asyncio.get_running_loop())
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}: Connection refused") as caught:
        await connect([("127.0.0.1", port)], timers=timers, rng=SeededRng())
    assert caught.value.code == "UNREACHABLE"
    with pytest.raises(InvalidArgument):
        await connect([], timers=timers, rng=SeededRng())

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    left = asyncio.Event()
    server = await asyncio.start_server(mute, "127.0.0.1", port)
    with pytest.raises(Unavailable, match="no answer"):
        await connect([("127.0.0.1", port)], timers=timers, rng=SeededRng(), budget_ms=50)
    await left.wait()
    server.close()
    await server.wait_closed()


async def test_rpc_callers_share_one_connection_attempt() -> None:
    """A hundred callers of a node that came back must not open a hundred connections."""
    async with running_node() as node:
        client = await node.client()
        await get(client, A)
        link = client._channels.open_link(("127.0.0.1", node.port))
        assert link is not None
        link.close()
        await asyncio.gather(*(get(client, A) for _ in range(100)))
        assert node.dispatcher.counters.connections_total == 2
        client.close()


async def test_rpc_closed_client_says_so() -> None:
    """Calls on a closed client must fail at once; those that wait must not hang."""
    async with running_node() as node, embedded() as (local, partitions, _):
        remote = await node.client()
        for client, machine in ((remote, node.first), (local, partitions.machines[PartitionId(1)])):
            await get(client, A)
            machine.held = []
            read = asyncio.ensure_future(get(client, A))
            write = asyncio.ensure_future(put(client, A))
            await until(lambda m=machine: len(m.held or []) == 2)  # type: ignore[misc]
            client.close()
            with pytest.raises(Unavailable, match="closed"):
                await read
            with pytest.raises(UnknownOutcome):
                await write
            with pytest.raises(Unavailable, match="closed"):
                await get(client, A)
            with pytest.raises(Unavailable, match="closed"):
                await client.call_node(PING)


async def test_rpc_link_waits_for_a_peer_that_does_not_read() -> None:
    """While the socket takes no more, requests wait unsent, and expire as not executed."""
    async with running_node() as node:
        link = await open_connection("127.0.0.1", node.port, timers=node.timers, cluster=CLUSTER)
        link.pause_writing()
        now = asyncio.get_running_loop().time()
        late = link.send(PUT, 0, now + 0.02, (1, 1, A, b"late", None, 0))
        good = link.send(PUT, 0, now + 5, (1, 1, A, b"good", None, 0))
        with pytest.raises(LinkExpired) as caught:
            await late
        assert not caught.value.sent
        link.resume_writing()
        assert await good == [1]
        assert node.first.rows == {A: (b"good", 1)}
        link.close()


async def test_rpc_slow_handler_and_client_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own deadline reply must be understood as what it is."""
    async with running_node() as node:

        async def hangs(_context: Context, _args: list[Any]) -> list[Any]:
            await asyncio.sleep(30)
            return []

        node.dispatcher.register(PROC_SUBMIT, hangs)
        client = await node.client()
        with pytest.raises(UnknownOutcome):
            await client.call_node(PROC_SUBMIT, "n", {}, "o", None, budget_ms=40)
        await until(lambda n=node: idle(n))  # type: ignore[misc]
        client.close()


def idle(node: Node) -> bool:
    return node.dispatcher.counters.handlers == 0
