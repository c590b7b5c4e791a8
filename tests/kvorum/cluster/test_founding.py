"""Founding a cluster: while something else listens where a peer should, and over one that was."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from kv.base.config import NodeConfig
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from tests.kit.machine import free_port_base
from tests.kit.waiting import until
from tests.kvorum.cluster.three import client, trio


async def speak(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, words: bytes, heard: asyncio.Event
) -> None:
    heard.set()
    try:
        writer.write(words)
        with contextlib.suppress(OSError):
            await reader.read(65_536)
    finally:  # the test may be over meanwhile
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    "words",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x01\x00\x00\x00\xc1", b"\xff" * 64, b""],
    ids=["http", "no-msgpack", "length", "silent"],
)
async def test_a_founder_waits_for_its_peers_whatever_answers_there(
    tmp_path: Path, words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """All three found the cluster; the port of the third is somebody else's for a while."""
    first = free_port_base(3)
    bases = [first, first + 10, first + 20]
    join = tuple(f"127.0.0.1:{base}" for base in bases)
    heard = asyncio.Event()
    strangers = [
        await asyncio.start_server(
            lambda r, w: speak(r, w, words, heard), "127.0.0.1", bases[2] + offset
        )
        for offset in (0, 1)
    ]
    loop = asyncio.get_running_loop()
    nodes = [
        await build(
            NodeConfig(data=tmp_path / str(n), port=bases[n - 1], node_id=n, join=join),
            system_ports(loop),
        )
        for n in (1, 2)
    ]
    starting = [asyncio.ensure_future(node.start()) for node in nodes]
    try:
        async with asyncio.timeout(60):
            await heard.wait()
            assert not any(one.done() for one in starting), "one may have what two have lost"
            for stranger in strangers:
                stranger.close()
                await stranger.wait_closed()
            third = NodeConfig(data=tmp_path / "3", port=bases[2], node_id=3, join=join)
            nodes.append(await build(third, system_ports(loop)))
            starting.append(asyncio.ensure_future(nodes[2].start()))
            await asyncio.gather(*starting)
        assert all(node.not_ready() is None for node in nodes)
        assert not any(node.fatal.done() for node in nodes)
    finally:
        for node in nodes:
            await node.stop()
        for stranger in strangers:
            stranger.close()


@pytest.mark.slow
async def test_f4_who_has_data_does_not_enrol_in_a_cluster_that_was_founded_over_it() -> None:
    """Two founders and a later node: the founders, emptied, know nothing of it and found a cluster
    under the old id. By its map the later node would drop the only copy that is left.
    """
    async with trio(count=2, later=1) as made:
        async with client(made) as db:
            await db.create_table("default", "k")
            await db.table("default", "k").put("a", "1")
            await made.start(3)
            await until(lambda: len(made.nodes[3].store.manager.descriptors()) == 2)
            await until(lambda: 3 in made.nodes[1].store.host.group(2).voters)
        for number in (1, 2, 3):
            await made.stop(number)
        for number in (1, 2):
            made.lose_disk(number)
        await made.start(1, 2)
        third = await made._build(3)
        starting = asyncio.ensure_future(third.start())
        await until(lambda: "it was emptied" in (third.not_ready() or ""))
        async with client(made) as db:
            assert [row["id"] for row in await db.nodes()] == [1, 2]
        assert not starting.done()
        assert len(third.store.manager.descriptors()) == 2, "it keeps what only it has"
        await third.stop()
        await asyncio.gather(starting, return_exceptions=True)
