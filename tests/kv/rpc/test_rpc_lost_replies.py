"""kv.client when connections break: what is sent again, what is unknown, and how it reconnects."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    NotLeader,
    TooLarge,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import PartitionId
from kv.base.methods import COMMIT, GET, PING, PREWRITE, PUT, WRITE
from kv.base.rpc import FrameEncoder, error_row
from kv.base.verbs import VERBS, repeatable
from kv.client import connection as connection_module
from kv.client.client import KvClient, connect
from kv.client.connection import open_connection
from kv.client.links import LinkExpired
from kv.server.dispatcher import Context
from procedures.verbs import PROC_ABORT, PROC_CONTROL, PROC_SUBMIT
from tests.kit.machine import free_port
from tests.kit.waiting import until
from tests.kv.rpc.fakes import CLUSTER, KEY, Node, SeededRng, embedded, running_node
from tests.kv.rpc.faulty_server import FaultyServer, reply

A = KEY + b"a"


async def get(client: KvClient, key: bytes, **options: Any) -> list[Any]:
    return await client.call(GET, key, key, 0, None, **options)


async def put(client: KvClient, key: bytes, value: bytes = b"v", **options: Any) -> list[Any]:
    return await client.call(PUT, key, key, value, None, 0, **options)


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
    assert repeatable(method)
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
    assert not repeatable(method)
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        with pytest.raises(UnknownOutcome):
            await client.call(method, A, *args)
        assert [row[1] for row in server.seen] == [method]
        assert await get(client, A) == [b"again", 9], "the client connects again by itself"
        client.close()


async def test_rpc_lost_node_methods() -> None:
    """The same rule for procedures: submit is unknown, abort (idempotent) is sent again, and so is
    a submission whose nonce makes it one and the same.
    """
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        with pytest.raises(UnknownOutcome):
            await client.call_node(PROC_SUBMIT, "n", b"\x80", "o", None)
        assert len(server.seen) == 1
        client.close()
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        assert await client.call_node(PROC_SUBMIT, "n", b"\x80", "o", "once") == [b"again", 9]
        assert [row[3:] for row in server.seen] == [["n", b"\x80", "o", "once"]] * 2
        client.close()
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        assert await client.call_node(PROC_ABORT, 5, "why", False) == [b"again", 9]
        client.close()


async def test_rpc_a_master_that_stops_is_not_the_end_of_a_submission() -> None:
    """It may have begun it, so it cannot say no; the next master knows by the nonce."""

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        unknown = error_row(rows[0][0], UnknownOutcome("the node stopped while it worked on it"))
        reply(transport, unknown if len(server.seen) == 1 else [rows[0][0], 0, 7])

    async with FaultyServer(script) as server:
        client = await server.client()
        assert await client.call_node(PROC_SUBMIT, "n", b"\x80", "o", "once") == [7]
        client.close()
    async with FaultyServer(script) as server:
        client = await server.client()
        with pytest.raises(UnknownOutcome):
            await client.call_node(PROC_SUBMIT, "n", b"\x80", "o", None)
        assert len(server.seen) == 1, "without a nonce it might run twice"
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

    assert not VERBS[COMMIT].asks(())
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
        assert asyncio.get_running_loop().time() - began < 5
        assert [row[1] for row in server.seen] == [GET, PING, GET]
        client.close()


async def test_rpc_long_poll_is_not_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that works long but answers PING is alive: its callers must not be cut off."""
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.03)
    async with running_node() as node:
        client = await node.client()
        node.first.held = []
        task = asyncio.ensure_future(get(client, A))
        await until(lambda: node.dispatcher.counters.requests[PING] >= 2)
        node.first.release()
        assert await task == [None, 0]
        assert node.dispatcher.counters.connections_total == 1
        client.close()


async def test_rpc_client_that_slept_blames_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped for a while finds its timers due before it reads what came."""
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.03)
    transmit = connection_module.MuxConnection._transmit

    def and_sleep(self: connection_module.MuxConnection, rows: list[list[Any]]) -> None:
        """The process stands still as soon as it has asked."""
        transmit(self, rows)
        if rows[0][1] == PING:
            asyncio.get_running_loop().call_soon(time.sleep, 0.04)

    monkeypatch.setattr(connection_module.MuxConnection, "_transmit", and_sleep)
    async with running_node() as node:
        client = await node.client()
        node.first.held = []
        task = asyncio.ensure_future(get(client, A))
        await until(lambda: node.dispatcher.counters.requests[PING] >= 5)
        node.first.release()
        assert await task == [None, 0]
        assert node.dispatcher.counters.connections_total == 1
        client.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\xc1",
        FrameEncoder().message(["a row"]),
        FrameEncoder().message([[1]]),
        FrameEncoder().message([error_row(0, Busy("go away"))]),
    ],
    ids=["oversize", "not-msgpack", "row-not-a-list", "short-row", "connection-error"],
)
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


# -- connecting


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
            await client.call_node(PROC_SUBMIT, "n", b"\x80", "o", None, budget_ms=40)
        await until(lambda n=node: idle(n))  # type: ignore[misc]
        client.close()


def idle(node: Node) -> bool:
    return node.dispatcher.counters.handlers == 0


async def test_a8_callers_of_a_silent_node_turn_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is stopped keeps its connections: reads would wait until their deadline though
    another node leads by now. A write that it may have taken is unknown then, and nobody knows more
    by waiting; it is neither sent again nor called a failure.
    """
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.1)
    asleep: list[tuple[Any, Any]] = []

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        asleep.extend((transport, row) for row in rows)

    async with FaultyServer(script) as stopped, running_node() as node:
        client = await connect(
            [("127.0.0.1", stopped.port), ("127.0.0.1", node.port)],
            timers=LoopTimers(asyncio.get_running_loop()),
            rng=SeededRng(),
        )
        write = asyncio.ensure_future(put(client, A))
        reads = [asyncio.ensure_future(get(client, A)) for _ in range(20)]
        began = asyncio.get_running_loop().time()
        assert await asyncio.gather(*reads) == [[None, 0]] * 20
        assert asyncio.get_running_loop().time() - began < 2.0
        with pytest.raises(UnknownOutcome, match="silent"):
            await write
        assert asyncio.get_running_loop().time() - began < 2.0
        assert await put(client, A) == [1], "new requests go elsewhere at once"
        assert client.refreshes == 1
        assert [row[1] for _, row in asleep].count(PING) == 1
        for transport, row in asleep:
            if row[1] in (PUT, PING):
                reply(transport, [row[0], 0, 77])
        assert await put(client, A) == [2], "a reply that comes too late disturbs nobody"
        assert [row[1] for _, row in asleep].count(PUT) == 1
        assert stopped.connections == 1
        client.close()


async def test_rpc_a_doubted_node_is_asked_again_once_it_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client of one node would never come back to it, though it only stood still for a moment."""
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.04)
    monkeypatch.setattr(connection_module, "_LOSE_SHARE", 1e6)  # however slow this machine is
    asleep = True

    def script(server: FaultyServer, rows: list[Any], transport: Any) -> None:
        if not asleep:
            reply(transport, *([row[0], 0, b"v", 9] for row in rows))

    def wake() -> None:
        nonlocal asleep
        asleep = False
        for transport in server.transports:
            reply(transport, [server.seen[-1][0], 0, 1])

    doubt = connection_module.MuxConnection._doubt

    def doubts(link: connection_module.MuxConnection, why: str) -> None:
        doubt(link, why)
        asyncio.get_running_loop().call_soon(wake)

    monkeypatch.setattr(connection_module.MuxConnection, "_doubt", doubts)
    async with FaultyServer(script) as server:
        client = await server.client()
        assert await asyncio.gather(*(get(client, A) for _ in range(5))) == [[b"v", 9]] * 5
        assert server.connections == 1
        client.close()


async def test_rpc_pings_grow_rare_while_the_server_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand clients that wait for a procedure would keep a node busy with PINGs."""
    monkeypatch.setattr(connection_module, "_PING_AFTER_S", 0.02)
    async with running_node() as node:
        client = await node.client()
        node.first.held = []
        task = asyncio.ensure_future(get(client, A))
        await asyncio.sleep(0.4)
        assert 3 <= node.dispatcher.counters.requests[PING] <= 0.4 / 0.05
        node.first.release()
        assert await task == [None, 0]
        client.close()


def test_rpc_what_asks_only_is_known() -> None:
    """A list of schedules that got no answer is told as a change in doubt."""
    assert VERBS[PROC_CONTROL].asks(("schedule.list", b""))
    assert not VERBS[PROC_CONTROL].asks(("schedule.set", b""))
    assert not VERBS[PROC_CONTROL].asks(())
    assert VERBS[GET].asks(())
    assert not VERBS[COMMIT].asks(())
