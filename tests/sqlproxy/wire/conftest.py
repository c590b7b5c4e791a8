"""A wire server over fake sessions on a loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from kv.base.adapters import SystemClock, SystemRng
from sqlproxy.wire.server import SqlServer
from tests.sqlproxy.wire.fake import FakeSessions


@dataclass
class Served:
    port: int
    server: SqlServer
    sessions: FakeSessions

    @property
    def url(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=bob dbname=db sslmode=prefer"


@asynccontextmanager
async def serve(users: Mapping[str, str] | None = None, **options: Any) -> AsyncIterator[Served]:
    sessions = FakeSessions(users)
    server = SqlServer(sessions, clock=SystemClock(), rng=SystemRng(), **options)
    served = Served(await server.start(), server, sessions)
    try:
        yield served
    finally:
        await server.stop(grace_s=0.2)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both loops, by the name that the test's id carries."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def serving() -> Callable[..., AbstractAsyncContextManager[Served]]:
    """`async with serving(users=…, tls=…) as served`."""
    return serve


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server that trusts everybody."""
    async with serve() as found:
        yield found
