"""A node whose SQL cannot be loaded, and the end of one whose SQL was."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from kvorum.sql import sql_endpoint
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess


async def _asked(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(struct.pack(">II", 8, 80877103))  # may it be encrypted?
        assert await asyncio.wait_for(reader.readexactly(1), 10) == b"N"
        writer.write(struct.pack(">II", 9, 3 << 16) + b"\0")
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("error", "logged", "told"),
    [
        (ImportError("no such package"), "no such package", b"could not be started"),
        (
            ModuleNotFoundError("No module named 'duckdb'", name="duckdb"),
            "pip install 'kvorum[sql]'",
            b"this needs duckdb, which is not installed here: pip install 'kvorum[sql]'",
        ),
    ],
)
async def test_an_import_that_fails_refuses_clients_and_spares_the_node(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: ImportError,
    logged: str,
    told: bytes,
) -> None:
    """The node would stop at the first SQL client because of a broken package."""
    tries = 0

    def broken() -> None:
        nonlocal tries
        tries += 1
        raise error

    async def in_thread(work: Any) -> None:
        await asyncio.to_thread(work)

    monkeypatch.setattr(sql_endpoint, "_loaded", broken)
    none: Any = None
    timers: Any = SimpleNamespace(monotonic=lambda: 1_000.0)  # it stands: no time for a retry
    door = sql_endpoint.SqlDoor(
        none, none, none, none, clock=none, rng=none, timers=timers, in_thread=in_thread
    )
    sock = socket.create_server(("127.0.0.1", free_port_base()))
    sock.setblocking(False)
    tasks: list[asyncio.Task[None]] = []
    door.open(sock, lambda work: tasks.append(asyncio.create_task(work)))
    port = sock.getsockname()[1]
    try:
        for _ in range(3):
            answer = await _asked(port)
            assert answer[:1] == b"E"
            assert b"58000" in answer
            assert told in answer
        assert tries == 1, "the import is not tried at once again"
        assert logged in caplog.text
    finally:
        await asyncio.gather(*tasks)
        await door.close()


@pytest.mark.slow
def test_a_node_that_served_sql_ends_without_a_word(tmp_path: Path) -> None:
    """A node that is stopped in order tells its user about leaks of a library, 40 lines long."""
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        with psycopg.connect(
            f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname=postgres"
        ) as client:
            client.execute("SELECT count(*) FROM pg_class").fetchone()
        assert node.stop() == 0
        assert "leaked" not in node.tail(), node.tail()
