"""KvClient.start: a first attempt without a task, and `go_on` when it fails."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base.errors import UnknownOutcome
from kv.base.methods import PREWRITE, PUT
from kv.client.client import KvClient
from tests.kv.rpc.fakes import KEY
from tests.kv.rpc.faulty_server import FaultyServer, reply

A = KEY + b"a"
PREWRITTEN = (5, A, 100, [[1, A, b"v", None, 0]], 0)


def dies_first(server: FaultyServer, rows: list[Any], transport: Any) -> None:
    if server.connections == 1:
        transport.abort()
    else:
        reply(transport, *([row[0], 0, 77] for row in rows))


async def connected(server: FaultyServer) -> KvClient:
    client = await server.client()
    await client.locate(A)
    return client


async def test_rpc_start_goes_on_as_a_call_does() -> None:
    """A prewrite whose connection broke would fail its transaction, where a call sends it again."""
    async with FaultyServer(dies_first) as server:
        client = await connected(server)
        first = client.start(PREWRITE, A, PREWRITTEN, 2_000)
        assert first is not None
        with pytest.raises(BaseException) as lost:  # noqa: PT011 - whatever a link says
            await first.reply
        assert await client.go_on(first, lost.value) == [77]
        client.close()


async def test_rpc_start_doubts_what_may_have_been_done() -> None:
    """A put that was sent and not answered is unknown, not failed, and is not sent again."""
    async with FaultyServer(dies_first) as server:
        client = await connected(server)
        first = client.start(PUT, A, (A, b"v", None, 0), 2_000)
        assert first is not None
        with pytest.raises(BaseException) as lost:  # noqa: PT011
            await first.reply
        with pytest.raises(UnknownOutcome):
            await client.go_on(first, lost.value)
        client.close()


async def test_rpc_start_needs_a_way_that_is_known() -> None:
    """It must not wait: who has no way to go makes a call of it."""
    async with FaultyServer(dies_first) as server:
        client = await server.client()
        assert client.start(PREWRITE, A, PREWRITTEN, 2_000) is None
        client.close()
