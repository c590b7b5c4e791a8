"""The peer protocol on real sockets of the loopback, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from kv.base.adapters import LoopTimers
from raft.errors import BadConfig
from raft.handshake import read_refusal
from raft.limits import TransportLimits
from raft.memory import MemoryPeers
from raft.transport import MuxTransport, SocketLink
from raft.wire import HEADER_BYTES, REFUSED
from tests.kit.waiting import until
from tests.raft.wires import SeededRng, incarnation_of

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
VOTE = {"type": "request_vote", "term": 1}
Test = Callable[[], Awaitable[None]]


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Runs a coroutine function on each kind of loop, and sees that it leaves nothing behind."""

    async def whole(test: Test) -> None:
        async with asyncio.timeout(20):
            await test()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    def run(test: Test) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(whole(test))

    return run


class Node:
    """A transport and what it told."""

    def __init__(self, node: int, **options: Any) -> None:
        settings: dict[str, Any] = {
            "cluster": "c",
            "node_id": node,
            "incarnation": incarnation_of(node),
            "secret": b"secret",
            "timers": LoopTimers(asyncio.get_running_loop()),
            "rng": SeededRng(node),
            "peers": MemoryPeers(),
        }
        self.id, self.port = node, 0
        self.mux = MuxTransport(**{**settings, **options})
        self.inbox: list[tuple[int, int, dict[str, Any]]] = []
        self.told: list[tuple[str, int]] = []
        self.mux.on_message = lambda *message: self.inbox.append(message)
        self.mux.on_up = lambda peer: self.told.append(("up", peer))
        self.mux.on_down = lambda peer: self.told.append(("down", peer))

    def connected(self) -> set[int]:
        figures = self.mux.figures()
        return {node for node, peer in figures.items() if peer.connected and not peer.silent}


@contextlib.asynccontextmanager
async def cluster(*ids: int, **options: Any) -> AsyncIterator[list[Node]]:
    """Connected nodes on ports of the kernel's choice."""
    nodes = [Node(node, **options) for node in ids]
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            node.port = await node.mux.start("127.0.0.1", 0)
            stack.push_async_callback(node.mux.close)
        for node in nodes:
            introduce(node, *nodes)
        await until(lambda: all(node.connected() == set(ids) - {node.id} for node in nodes))
        yield nodes


def introduce(node: Node, *others: Node) -> None:
    for other in others:
        if other is not node:
            node.mux.set_peer(other.id, ("127.0.0.1", other.port))


def append(size: int, index: int = 1) -> dict[str, Any]:
    return {"type": "append_entries", "entries": [(bytes(size), index, 1)], "prevLogIdx": index - 1}


def test_three_nodes_talk(run: Callable[[Test], None]) -> None:
    """The whole way over real sockets, with every kind of size, and nothing left at the end."""

    async def test() -> None:
        async with cluster(1, 2, 3) as nodes:
            one, two, three = nodes
            sizes = [0, 1, 1000, 131_000, 131_072, 131_073, 3 << 20]
            for index, size in enumerate(sizes):
                one.mux.send(2, 7, append(size, index), early=True)
            three.mux.send(2, 8, VOTE, early=False)
            await until(lambda: len(two.inbox) == len(sizes) + 1)
            assert [m for _, group, m in two.inbox if group == 7] == [
                append(size, index) for index, size in enumerate(sizes)
            ]
            assert (3, 8, VOTE) in two.inbox
            figures = one.mux.figures()[2]
            assert figures.sent == len(sizes)
            assert figures.queued_bytes == figures.lost == 0
            assert all(len(node.told) == 2 for node in nodes)
            await until(lambda: one.mux.figures()[2].rtt_ms is not None)

    run(test)


def test_heartbeats_pass_sixteen_mebibytes(run: Callable[[Test], None]) -> None:
    """The longest entry on its way must not delay another group's heartbeat, nor its own."""

    async def test() -> None:
        async with cluster(1, 2) as (one, two):
            one.mux.send(2, 7, append(16 << 20), early=True)
            await asyncio.sleep(0)  # the pass in which it is handed to the socket
            await asyncio.sleep(0)
            one.mux.send(2, 8, {"type": "append_entries", "prevLogIdx": 5}, early=True)
            one.mux.send(2, 7, {"type": "append_entries", "prevLogIdx": 1}, early=True)
            await until(lambda: len(two.inbox) == 3)
            assert two.inbox[0] == (1, 8, {"type": "append_entries", "prevLogIdx": 5})
            assert two.inbox[1] == (1, 7, {"type": "append_entries"})
            assert two.inbox[2][2] == append(16 << 20)

    run(test)


def test_slow_reader_fills_its_queue_and_no_other(run: Callable[[Test], None]) -> None:
    """One follower that reads slowly costs the leader a bounded queue, and others nothing."""

    async def test() -> None:
        limits = TransportLimits(queue_bytes_max=4 << 20)
        async with cluster(1, 2, 3, limits=limits) as (one, two, three):
            stuck = two.mux._links[1]._writer
            assert isinstance(stuck, asyncio.Transport) or hasattr(stuck, "pause_reading")
            stuck.pause_reading()
            for index in range(200):
                if not one.mux.room(2):
                    break
                one.mux.send(2, 7, append(1 << 20, index), early=True)
                one.mux.send(3, 7, append(1 << 10, index), early=True)
                await asyncio.sleep(0)
            full = one.mux.figures()[2]
            assert 4 << 20 <= full.queued_bytes <= 6 << 20
            assert (one.mux.room(2), one.mux.room(3), full.lost) == (False, True, 0)
            one.mux.send(2, 7, append(1 << 20), early=True)
            assert one.mux.figures()[2].lost == 1
            await until(lambda: len(three.inbox) == index)
            assert one.mux.figures()[2].connected
            stuck.resume_reading()
            await until(lambda: len(two.inbox) == index)
            assert [m["entries"][0][1] for _, _, m in two.inbox] == list(range(index))
            assert one.mux.room(2)

    run(test)


def test_lost_connection_comes_back(run: Callable[[Test], None]) -> None:
    """A connection that breaks must be told at once and made again soon."""

    async def test() -> None:
        async with cluster(1, 2) as (one, two):
            one.mux._links[2].abort()
            await until(lambda: len(one.told) == len(two.told) == 3, 3)
            assert one.told == [("up", 2), ("down", 2), ("up", 2)]
            assert two.told == [("up", 1), ("down", 1), ("up", 1)]
            one.mux.send(2, 7, VOTE, early=True)
            await until(lambda: two.inbox == [(1, 7, VOTE)])

    run(test)


def test_restarted_node_is_let_in_again(run: Callable[[Test], None]) -> None:
    """A rolling restart is a restart of every node: with its old data it must come back."""

    async def test() -> None:
        async with cluster(1, 2) as (one, two):
            await two.mux.close()
            await until(lambda: one.told[-1] == ("down", 2))
            again = Node(2)
            again.port = await again.mux.start("127.0.0.1", two.port)
            introduce(again, one)
            await until(lambda: one.connected() == {2} and again.connected() == {1})
            assert one.mux.figures()[2].connections == 2
            await again.mux.close()

    run(test)


def test_dead_peer_is_found_by_its_silence(run: Callable[[Test], None]) -> None:
    """A stopped process keeps its sockets: only silence tells, and a new connection heals it."""

    async def test() -> None:
        limits = TransportLimits(silence_ms=120, dead_ms=400, handshake_ms=400)
        async with cluster(1, 2, limits=limits) as (one, two):
            link = two.mux._links[1]
            assert two.mux._look_timer is not None
            two.mux._look_timer.cancel()  # it says nothing any more
            link._may_chat = lambda: False  # type: ignore[method-assign]
            await until(lambda: one.told[-1] == ("down", 2))
            assert one.connected() == set()
            assert not one.mux.room(2)
            await until(lambda: not one.mux.figures()[2].connected)
            assert "nothing came for" in str(one.mux.figures()[2].trouble)

    run(test)


async def _answer(port: int, data: bytes) -> bytes:
    """What a port says to these bytes until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 9, b"\x05\x00\x00\x00[\xff]!"]
)
def test_other_protocols_get_the_reason(run: Callable[[Test], None], data: bytes) -> None:
    """A browser, a client of another port, a scanner: an answer and a closed socket, no more."""

    async def test() -> None:
        async with cluster(1, 2) as (one, two):
            got = await _answer(one.port, data + bytes(100))
            length, _, kind = struct.unpack_from("<IIB", got)
            assert kind == REFUSED
            refusal = read_refusal(got[HEADER_BYTES : HEADER_BYTES + length])
            assert refusal.code == "PROTOCOL"
            assert one.mux.counters.refused == {"PROTOCOL": 1}
            assert one.connected() == {2}
            assert two.told == [("up", 1)]

    run(test)


def test_who_says_nothing_is_closed(run: Callable[[Test], None]) -> None:
    """Half-open connections of scanners must not stay for ever."""

    async def test() -> None:
        async with cluster(1, 2, limits=TransportLimits(handshake_ms=400)) as (one, _):
            before = one.mux.counters.timeouts
            assert await _answer(one.port, b"\x10") == b""
            assert one.mux.counters.timeouts == before + 1

    run(test)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"cluster": "d"}, "CLUSTER"),
        ({"secret": b"other"}, "SECRET"),
        ({"node_id": 1}, "INCARNATION"),  # two nodes called 1: the real one is known
    ],
)
def test_strangers_are_refused_on_the_wire(
    run: Callable[[Test], None], options: dict[str, Any], code: str
) -> None:
    """The reason must reach the stranger's own figures before the socket is closed."""

    async def test() -> None:
        async with cluster(1, 2) as (_, two):
            stranger = Node(3, **options)
            await stranger.mux.start("127.0.0.1", 0)
            stranger.mux.set_peer(2, ("127.0.0.1", two.port))
            await until(lambda: stranger.mux.figures()[2].trouble is not None)
            assert two.mux.counters.refused == {code: 1}
            assert two.connected() == {1}
            await stranger.mux.close()

    run(test)


def test_a_node_that_calls_itself_says_so(run: Callable[[Test], None]) -> None:
    """A wrong address in the list of members is the commonest mistake of all."""

    async def test() -> None:
        node = Node(1)
        node.port = await node.mux.start("127.0.0.1", 0)
        node.mux.set_peer(2, ("127.0.0.1", node.port))
        await until(lambda: node.mux.figures()[2].trouble is not None)
        assert "node 1 called itself" in str(node.mux.figures()[2].trouble)
        await node.mux.close()

    run(test)


def test_addresses_that_cannot_be_had(run: Callable[[Test], None]) -> None:
    """The message must name the address and what to do, and leave nothing open."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            node = Node(1)
            with pytest.raises(BadConfig, match=f"127.0.0.1:{port}: Address already in use"):
                await node.mux.start("127.0.0.1", port)
            await node.mux.close()
        with pytest.raises(BadConfig, match="same cluster_secret"):
            await Node(1, secret=b"").mux.start("0.0.0.0", 0)
        with socket.socket() as silent:  # has a port, and does not listen there
            silent.bind(("127.0.0.1", 0))
            port = silent.getsockname()[1]
            node = Node(1)
            node.mux.set_peer(2, ("a..b", 7))
            node.mux.set_peer(3, ("127.0.0.1", port))
            await node.mux.start("127.0.0.1", 0)
            await until(lambda: all(peer.trouble for peer in node.mux.figures().values()))
            assert "cannot reach a..b:7" in str(node.mux.figures()[2].trouble)
            why = f"cannot reach 127.0.0.1:{port}: Connection refused"
            assert node.mux.figures()[3].trouble == why
            await node.mux.close()

    run(test)


def test_close_waits_for_its_dials(run: Callable[[Test], None]) -> None:
    """A task that outlives its transport dials for a node that is gone."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            for _ in range(5):
                node = Node(1)
                node.mux.set_peer(2, ("127.0.0.1", other.getsockname()[1]))
                await node.mux.start("127.0.0.1", 0)
                node.mux.book.get(2).dial_at_s = 0.0
                node.mux._dial_due()
                assert len(asyncio.all_tasks()) == 2
                await node.mux.close()
                assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)


def test_close_in_the_middle_of_everything(run: Callable[[Test], None]) -> None:
    """Dials under way, handshakes under way, bulk under way: close must end them all, and soon."""

    async def test() -> None:
        async with cluster(1, 2) as (one, two):
            with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts, and never answers
                one.mux.set_peer(3, ("127.0.0.1", mute.getsockname()[1]))
                await asyncio.sleep(0.15)
                one.mux.send(2, 7, append(8 << 20), early=True)
                began = asyncio.get_running_loop().time()
                await one.mux.close()
                assert asyncio.get_running_loop().time() - began < 3.0
            await until(lambda: two.told[-1] == ("down", 1))
            assert one.told[-1] == ("down", 2)
            one.mux.send(2, 7, VOTE, early=True)
            assert one.mux.counters.unreachable == 1

    run(test)


def test_socket_links_are_what_the_loop_wants(run: Callable[[Test], None]) -> None:
    """A loop that does not see a buffered protocol calls `data_received`, which is not there."""

    async def test() -> None:
        async with cluster(1, 2) as (one, _):
            link = one.mux._links[2]
            assert isinstance(link, SocketLink)
            assert isinstance(link, asyncio.BufferedProtocol)

    run(test)
