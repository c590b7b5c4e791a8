"""What a node says when it cannot start or cannot go on: one line with the reason, and
nothing half done.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import kvorum
from kv.base.config import NodeConfig
from kv.base.errors import Unavailable
from kv.storage.engine import Engine
from kv.storage.memory import MemoryEngine
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from kvorum.sdk.database import AsyncDatabase
from tests.kit.commands import run
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

pytestmark = pytest.mark.cluster


def refused(node: NodeProcess) -> str:
    """The one line with which a node refused to start."""
    node.log.unlink(missing_ok=True)
    node.spawn()
    assert node.exit_code() == 1, node.tail()
    lines = [line for line in node.tail().splitlines() if line.startswith("kvorum: ")]
    assert len(lines) == 1, node.tail()
    assert "Traceback" not in node.tail()
    return lines[0]


@pytest.mark.slow
def test_port_in_use(tmp_path: Path) -> None:
    """A user must be told which port, and what to do."""
    base = free_port_base()
    for offset in (0, 2):
        with socket.create_server(("127.0.0.1", base + offset)):
            line = refused(NodeProcess(tmp_path / f"data{offset}", base))
            assert f"127.0.0.1:{base + offset}" in line
            assert "--port" in line
    with NodeProcess(tmp_path / "data0", base) as node:
        node.start()
        assert node.stop() == 0


@pytest.mark.slow
def test_second_process_on_the_same_data(tmp_path: Path) -> None:
    """Two processes on one directory would destroy it; the line names who has it."""
    data = tmp_path / "data"
    with NodeProcess(data, free_port_base()) as first:
        first.start()
        line = refused(second := NodeProcess(data, free_port_base()))
        assert str(first.spawned) in line, line
        with kvorum.connect(first.url) as db:
            assert db.namespaces() == ["default", "postgres"]
        assert second.data == first.data
        assert first.stop() == 0


@pytest.mark.slow
def test_unusable_directory(tmp_path: Path) -> None:
    """A path that is no directory, or that may not be read, is told as such."""
    file = tmp_path / "file"
    file.write_text("not a database")
    assert "file" in refused(NodeProcess(file, free_port_base()))
    assert file.read_text() == "not a database"
    foreign = tmp_path / "foreign" / "state"
    foreign.mkdir(parents=True)
    (foreign / "thesis.txt").write_text("mine")
    line = refused(NodeProcess(tmp_path / "foreign", free_port_base()))
    assert "state" in line
    assert (foreign / "thesis.txt").read_text() == "mine"
    if os.geteuid() != 0:  # root reads everything
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o000)
        assert "closed" in refused(NodeProcess(closed, free_port_base()))
        closed.chmod(0o700)


@pytest.mark.slow
def test_damaged_data(tmp_path: Path) -> None:
    """A database that cannot be trusted must not be served as if it could."""
    data = tmp_path / "data"
    with NodeProcess(data, free_port_base()) as node:
        node.start()
        assert node.stop() == 0
    (data / "state" / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    line = refused(NodeProcess(data, free_port_base()))
    assert "state" in line


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["state", "log", "state/CURRENT"])
def test_half_of_the_data_is_not_started_anew(tmp_path: Path, lost: str) -> None:
    """A node that begins anew beside the rest of its data tells its users that all is gone."""
    data = tmp_path / "data"
    with NodeProcess(data, free_port_base()) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_table("default", "t")
        assert node.stop() == 0
    if (data / lost).is_dir():
        (data / lost).rename(tmp_path / "lost")
    else:
        (data / lost).unlink()
    assert "CORRUPTION" in refused(NodeProcess(data, free_port_base()))
    assert "CORRUPTION" in refused(NodeProcess(data, free_port_base()))
    if lost == "state":
        shutil.rmtree(data / "state")
        (tmp_path / "lost").rename(data / "state")
        with NodeProcess(data, free_port_base()) as node:
            node.start()
            with kvorum.connect(node.url) as db:
                assert [t.name for t in db.tables("default")] == ["t"]
            assert node.stop() == 0


@pytest.mark.slow
def test_bad_settings(tmp_path: Path) -> None:
    """A misspelt setting that is ignored runs another node than was meant."""
    words = ("start", "--data", str(tmp_path / "data"))
    assert b"gc_retention_ms" in run(*words, "--gc-retention-ms", "soon", code=1).err
    assert b"stores" in run(*words, "--stores", "65", code=1).err
    missing = ("--procedure-modules", "no.such.module")
    assert "no.such.module" in refused(NodeProcess(tmp_path / "data", free_port_base(), *missing))
    broken = ("--procedure-modules", "tests.processes.broken_procedures")
    line = refused(NodeProcess(tmp_path / "data", free_port_base(), *broken))
    assert "ZeroDivisionError" in line
    leaving = ("--procedure-modules", "tests.processes.leaving_procedures")
    line = refused(NodeProcess(tmp_path / "data", free_port_base(), *leaving))
    assert "sys.exit(0)" in line


@pytest.mark.slow
def test_log_that_cannot_be_written_stops_the_node(tmp_path: Path) -> None:
    """After a failed write or sync nothing may be acknowledged; what was before must be there."""
    data, acked = tmp_path / "data", {}
    with NodeProcess(data, free_port_base(), before="ulimit -f 4096") as node:  # 4 MiB per file
        node.start()
        with kvorum.connect(node.url, timeout_ms=5_000) as db:
            db.create_table("default", "t")
            table = db.table("default", "t")
            for i in range(200):
                try:
                    acked[str(i)] = table.put(str(i), bytes(100_000))
                except (kvorum.UnknownOutcome, kvorum.TryLater):
                    break
        if node.exited(10):
            assert node.exit_code() == 1
            assert "kvorum: fatal" in node.tail()
            assert "File too large" in node.tail().splitlines()[-1]
        else:
            assert node.ready()  # it refused, and stays up
    assert len(acked) < 200
    with NodeProcess(data, free_port_base()) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            table = db.table("default", "t")
            lost = [k for k, v in acked.items() if (r := table.get(k)) is None or r.version != v]
            assert not lost
            table.put("again", b"")
        assert node.stop() == 0


@pytest.mark.slow
async def test_full_disk_refuses_writes_and_stays_up(tmp_path: Path) -> None:
    """Reads must go on when nothing can be written, and writes as soon as there is room again."""
    engines: list[MemoryEngine] = []

    def open_engine(path: Path, families: Sequence[str]) -> Engine:
        engines.append(MemoryEngine(families))
        return engines[-1]

    ports = replace(system_ports(asyncio.get_running_loop()), open_engine=open_engine)
    node = await build(NodeConfig(data=tmp_path, port=None), ports)
    await node.start()
    async with AsyncDatabase(node.backend, ports.rng) as db:
        await db.create_table("default", "t")
        table = db.table("default", "t")
        version = await table.put("k", b"v")
        engines[1].fill_disk(Unavailable("the disk has 1 MiB left"))
        await asyncio.sleep(0.6)
        with pytest.raises(Unavailable, match="1 MiB left"):
            await table.put("k", b"w")
        with pytest.raises(Unavailable, match="1 MiB left"):
            await db.batch([kvorum.Put("default", "t", "a", "1")])
        assert await table.get("k") == (b"v", version)
        assert [i.key for i in (await table.scan()).items] == [b"k"]
        engines[1].fill_disk(None)
        await asyncio.sleep(0.6)
        assert await table.put("k", b"w") > version


@pytest.mark.slow
async def test_damaged_value_is_an_error_and_the_node_stays_up(tmp_path: Path) -> None:
    """A flipped bit must be told with its key, never served as a value."""
    engines: list[MemoryEngine] = []

    def open_engine(path: Path, families: Sequence[str]) -> Engine:
        engines.append(MemoryEngine(families))
        return engines[-1]

    ports = replace(system_ports(asyncio.get_running_loop()), open_engine=open_engine)
    node = await build(NodeConfig(data=tmp_path, port=None), ports)
    await node.start()
    async with AsyncDatabase(node.backend, ports.rng) as db:
        info = await db.create_table("default", "t")
        table = db.table("default", "t")
        await table.put("bad", b"value")
        await table.put("good", b"value")
        engines[0].flip_bit("cur", info.id.to_bytes(4, "big") + b"bad", 70)
        with pytest.raises(kvorum.Corruption) as damage:
            await table.get("bad")
        assert damage.value.details["key"] == b"bad"
        with pytest.raises(kvorum.Corruption):
            await table.scan()
        good = await table.get("good")
        assert good is not None
        assert good.value == b"value"
        await table.put("good", b"again")


@pytest.mark.slow
async def test_reads_below_the_safepoint_are_refused(tmp_path: Path) -> None:
    """Versions that were collected must not be missing silently."""
    ports = system_ports(asyncio.get_running_loop())
    config = NodeConfig(data=tmp_path / "data", port=None, gc_retention_ms=1, gc_interval_ms=100)
    node = await build(config, ports)
    await node.start()
    async with AsyncDatabase(node.backend, ports.rng) as db:
        await db.create_table("default", "t")
        table = db.table("default", "t")
        old = await table.put("k", b"old")
        await table.put("k", b"new")
        refused = None
        async with asyncio.timeout(10):
            while refused is None:
                await asyncio.sleep(0.05)
                try:
                    assert await table.get("k", at=old) is not None
                except kvorum.SnapshotTooOld as e:
                    refused = e
        assert int(refused.details["safepoint"]) > old
        found = await table.get("k")
        assert found is not None
        assert found.value == b"new"
