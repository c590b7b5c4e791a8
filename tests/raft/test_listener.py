"""`raft.listener`: what asyncio had half taken when a listener closed is not left open."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from raft.listener import stop_listening


class _Rude(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@pytest.mark.few(4)
@pytest.mark.parametrize("passes", range(6))
async def test_a_connection_is_taken_whole_or_not_at_all(passes: int) -> None:
    """A socket that nobody owns fails some later test, whenever the garbage is collected."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(_Rude, "127.0.0.1", 0)
    with socket.create_connection(listener.sockets[0].getsockname()):
        for _ in range(passes):
            await asyncio.sleep(0)
        await stop_listening(listener)
        await listener.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
