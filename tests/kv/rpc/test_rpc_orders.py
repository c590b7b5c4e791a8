"""What one node orders another is taken from connections that have proved to be a node's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

import kvorum.api.verbs
import procedures.verbs
import tso.verbs
from kv.base.accounts import Use
from kv.base.credentials import Credential
from kv.base.errors import Forbidden, InvalidArgument, KvorumError, Unauthenticated
from kv.base.fair_turns import FairTurns
from kv.base.methods import GET, PING, PROVE
from kv.base.rights import Book, Identity
from kv.base.rpc import Hello, error_of, node_proof, read_hello
from kv.base.tenants import Tenants
from kv.base.verbs import VERBS
from kv.client.channels import SocketChannels
from kv.client.client import KvClient
from kv.client.connection import open_connection
from kv.server.connection_rights import Gate
from kv.server.socket_server import STRANGE_REQUESTS_MAX, ServerConnection, SocketServer
from tests.kv.rpc.fakes import CLUSTER, SeededRng, make_dispatcher
from tests.kv.rpc.test_rpc_server import Raw

SECRET = b"a secret of the whole cluster"
ORDERS = [verb.number for verb in VERBS if verb.order]
LAYERS = (kvorum.api.verbs, procedures.verbs, tso.verbs)  # they declare their verbs


class Served:
    """A node, and what reached its handlers."""

    def __init__(self, port: int, reached: list[int]) -> None:
        self.port, self.reached = port, reached

    async def ask(self, peer: Raw, method: int, *args: Any, rid: int = 7) -> KvorumError | None:
        peer.send([[rid, method, 0, *args]])
        (row,) = await peer.rows(1)
        assert row[0] == rid
        return error_of(row) if row[1] else None

    @asynccontextmanager
    async def peer(self, node: int) -> AsyncIterator[tuple[Raw, Hello]]:
        """Somebody who says that he is this node."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        raw = Raw(reader, writer)
        raw.send(Hello(cluster=CLUSTER, node=node).to_wire())
        message = await raw.receive()
        assert message is not None
        try:
            yield raw, read_hello(message, CLUSTER)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(secret: bytes, gate: Gate | None = None) -> AsyncIterator[Served]:
    dispatcher, _, timers = make_dispatcher()
    reached: list[int] = []

    def note(context: Any, args: list[Any]) -> list[Any]:
        reached.append(context.method)
        return []

    for number in ORDERS:
        dispatcher.register(number, note)
    server = SocketServer(
        dispatcher, timers, cluster=CLUSTER, node=1, secret=secret, rng=SeededRng()
    )
    server.gate = gate
    try:
        yield Served(await server.start("127.0.0.1", 0), reached)
    finally:
        await dispatcher.close()
        await server.close()


def test_orders_are_those_of_nodes_and_masters() -> None:
    """The table says which they are; it is not empty, and no client's request is among them."""
    assert len(ORDERS) > 15
    assert not {GET, PING, PROVE} & set(ORDERS)


async def test_every_order_is_refused_to_a_client() -> None:
    """A client, one that says it is a node, and one with a wrong proof: nothing reaches a handler,
    and their other requests are answered, those in the same frame too.
    """
    async with serving(SECRET) as served:
        for node in (0, 2):
            async with served.peer(node) as (peer, hello):
                assert bool(hello.challenge) == bool(node)
                wrong = [
                    node_proof(b"another secret", hello, node),
                    node_proof(SECRET, hello, node + 1),
                    node_proof(SECRET, replace(hello, challenge=b"an older one"), node),
                ]
                for proof in wrong:
                    assert isinstance(await served.ask(peer, PROVE, proof), Forbidden)
                assert isinstance(await served.ask(peer, PROVE, b"short"), InvalidArgument)
                for number in ORDERS:
                    assert isinstance(await served.ask(peer, number), Forbidden)
                peer.send([[1, PING, 0], [2, ORDERS[0], 0], [3, PING, 0]])
                rows = {row[0]: row[1] for row in await peer.rows(3)}
                assert rows == {1: 0, 2: 1, 3: 0}
        assert served.reached == []


async def test_a_node_gives_orders_after_its_proof() -> None:
    """In the same frame already; the proof of one connection is worth nothing on another one."""
    async with serving(SECRET) as served:
        async with served.peer(2) as (peer, hello):
            proof = node_proof(SECRET, hello, 2)
            peer.send([[1, PROVE, 0, proof], [2, PING, 0]])
            assert {row[0]: row[1] for row in await peer.rows(2)} == {1: 0, 2: 0}
            for number in ORDERS:
                assert not isinstance(await served.ask(peer, number), Forbidden)
        async with served.peer(2) as (peer, _):
            assert isinstance(await served.ask(peer, PROVE, proof), Forbidden)


async def test_a_nodes_client_proves_itself() -> None:
    """The link of a node may give orders from the first request on; one without the secret may
    not, and works on as a client.
    """
    async with serving(SECRET) as served:
        for secret, allowed in ((SECRET, True), (b"", False), (b"wrong", False)):
            dispatcher, _, timers = make_dispatcher()
            link = await open_connection(
                "127.0.0.1",
                served.port,
                timers=timers,
                cluster=CLUSTER,
                node=2,
                credential=Credential(secret=secret),
            )

            async def made(_address: object, link: Any = link) -> Any:
                return link

            channels = SocketChannels([("127.0.0.1", served.port)], made)
            client = KvClient(channels, timers, SeededRng())
            try:
                await client.call_at(("127.0.0.1", served.port), ORDERS[0])
            except Forbidden:
                assert not allowed
            except InvalidArgument:  # it got as far as its arguments
                assert allowed
            await client.call_at(("127.0.0.1", served.port), PING)
            client.close()
            await dispatcher.close()


class Closed:
    """A `Gate` that lets nobody in."""

    book: Book | None = None

    def __init__(self) -> None:
        self.tenants = Tenants(lambda: 0, FairTurns(lambda: 0.0))

    async def identify(self, credential: Credential, certificate: str, address: str) -> Identity:
        raise Unauthenticated("nobody")

    def stands(self, identity: Identity) -> bool:
        return False

    def use(self, identity: Identity) -> Use:
        return Use(self.tenants.user(identity.name))


class Waiting:
    """A connection of somebody who waits for an answer, and does not count any more."""

    waits, proved, book, identity = True, False, None, Identity("eve", "token")
    author = rights = None
    asked = False

    def __init__(self) -> None:
        self.ended: list[KvorumError] = []

    def end(self, error: KvorumError) -> None:
        self.ended.append(error)


async def test_changes_of_others_keep_nobody_from_his_end() -> None:
    """Each change of a right or of a table began the time anew that an answer has: on a busy
    cluster what waited under a token that was revoked went on.
    """
    dispatcher, _, timers = make_dispatcher()
    server = SocketServer(dispatcher, timers, cluster=CLUSTER, node=1)
    gate, conn = Closed(), Waiting()
    server.gate = cast(Gate, gate)
    server._connections[cast(ServerConnection, conn)] = None
    for _ in range(2):
        assert not conn.ended
        gate.book = Book({}, {}, {})
        server.review()
    assert [type(error) for error in conn.ended] == [Unauthenticated]
    await dispatcher.close()


async def test_who_proves_nothing_is_not_heard_for_ever() -> None:
    """Whoever said that it is a node had its requests refused, as many as it sent: no turns and no
    limits were theirs, and each was a line of the log.
    """
    async with serving(SECRET, Closed()) as served:
        async with served.peer(2) as (peer, _):
            for _ in range(STRANGE_REQUESTS_MAX):
                assert isinstance(await served.ask(peer, PING), Unauthenticated)
            peer.send([[7, PING, 0]])
            assert [row[0] for row in await peer.rows(2)] == [7, 0]
            assert await peer.receive() is None
        async with served.peer(2) as (peer, hello):
            assert await served.ask(peer, PROVE, node_proof(SECRET, hello, 2)) is None
            for _ in range(STRANGE_REQUESTS_MAX + 1):
                assert await served.ask(peer, PING) is None


async def test_without_a_secret_nodes_are_on_one_machine() -> None:
    """A cluster of one machine needs none: who says that it is a node is one, a client is not."""
    async with serving(b"") as served:
        async with served.peer(2) as (peer, _):
            assert not isinstance(await served.ask(peer, ORDERS[0]), Forbidden)
        async with served.peer(0) as (peer, _):
            assert isinstance(await served.ask(peer, ORDERS[0]), Forbidden)


@pytest.mark.parametrize(
    "changed",
    [{"cluster": "d"}, {"node": 2}, {"challenge": b"another"}],
)
def test_a_proof_is_for_one_connection(changed: dict[str, Any]) -> None:
    """Whoever hears one cannot use it elsewhere."""
    hello = Hello(cluster="c", node=1, challenge=b"challenge")
    assert node_proof(SECRET, hello, 3) != node_proof(SECRET, replace(hello, **changed), 3)
