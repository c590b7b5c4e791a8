"""Flipped bytes in the files of a real cluster under load: three processes on RocksDB."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import kvorum
from kv.base.errors import KvorumError
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll, until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

ROWS = 300
TABLE: dict[str, object] = {"namespace": "default", "table": "t", "timeout_ms": 20_000}
HEALED_S = 90.0


class Three:
    """The nodes, which nobody starts again."""

    def __init__(self, path: Path) -> None:
        first = free_port_base(3)
        bases = [first, first + 10, first + 20]
        self.join = ",".join(f"127.0.0.1:{base}" for base in bases)
        self.nodes = [
            NodeProcess(path / str(n), base, "--join", self.join, "--node-id", str(n))
            for n, base in enumerate(bases, 1)
        ]
        self.harmed = self.nodes[2]

    async def start(self) -> None:
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            await asyncio.to_thread(poll, node.ready, HEALED_S)

    async def mended(self, db: kvorum.AsyncDatabase) -> None:
        """All is well, and it was one process all the time."""
        async with asyncio.timeout(HEALED_S):
            while not await self._healed(db):
                assert self.harmed.exit_code_now() is None, self.harmed.tail()
                await asyncio.sleep(0.2)

    async def _healed(self, db: kvorum.AsyncDatabase) -> bool:
        """It is ready, votes everywhere, and its copies are the others'."""
        if not await asyncio.to_thread(self.harmed.ready):
            return False
        with contextlib.suppress(KvorumError):
            rows = await db.partitions()
            if all(sorted(row["replicas"]) == [1, 2, 3] for row in rows):
                id_ = await db.submit("kvorum.check", {"locks": ["table/default/t"]})
                return bool((await db.wait(id_))["ok"])
        return False


class Load:
    """Writes and reads until it is told to stop; what was acknowledged is remembered."""

    def __init__(self, db: kvorum.AsyncDatabase) -> None:
        self.table = db.table("default", "t")
        self.acked: dict[str, int] = {}
        self.maybe: dict[str, set[int]] = {}
        self.told: list[KvorumError] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            key = f"key{number % ROWS:04}"
            await self._write(key, number)
            await self._read(f"key{number * 7 % ROWS:04}")
            await asyncio.sleep(0.001)

    async def _write(self, key: str, number: int) -> None:
        try:
            await self.table.put(key, f"{number}")
        except kvorum.UnknownOutcome:
            self.maybe.setdefault(key, set()).add(number)
        except KvorumError as error:
            self.told.append(error)
        else:
            self.acked[key] = number
            self.maybe.pop(key, None)

    async def _read(self, key: str) -> None:
        try:
            await self.table.get(key)
        except KvorumError as error:
            self.told.append(error)

    def stop(self) -> None:
        self._stop.set()

    async def check(self) -> None:
        codes = {error.code for error in self.told}
        assert not codes & {"CORRUPTION", "INTERNAL"}, self.told
        rows = {key: await self.table.get(key) for key in self.acked}
        for key, number in self.acked.items():
            row = rows[key]
            assert row is not None, f"{key} is lost"
            assert int(row.value) in {number, *self.maybe.get(key, ())}


def flip(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 0x10
    path.write_bytes(data)


def flip_in_place(path: Path) -> None:
    """A process that has the file open meets it, too."""
    with path.open("r+b") as file:
        at = path.stat().st_size * 3 // 10
        file.seek(at)
        was = file.read(1)[0]
        file.seek(at)
        file.write(bytes([was ^ 0x10]))


async def done(db: kvorum.AsyncDatabase, name: str, args: dict[str, object]) -> None:
    """Run a procedure, whatever comes of it."""
    with contextlib.suppress(KvorumError):
        await db.wait(await db.submit(name, args))


async def damaged(tmp_path: Path, harm: Callable[[Path], None]) -> Three:
    """A node is killed, harmed, and started again, under load; in the end all is well."""
    three = Three(tmp_path)
    try:
        await three.start()
        db = await kvorum.aconnect(f"kvorum://{three.join}")
        async with db:
            await db.create_table("default", "t")
            load = Load(db)
            running = asyncio.ensure_future(load.run())
            await until(lambda: len(load.acked) >= ROWS, HEALED_S)
            # stopped in order and started twice: what is in memory gets into files
            for _ in range(2):
                await asyncio.to_thread(three.harmed.stop)
                await asyncio.to_thread(three.harmed.start)
            await asyncio.to_thread(three.harmed.kill)
            harm(three.harmed.data)
            three.harmed.spawn()
            await three.mended(db)
            load.stop()
            await running
            await load.check()
    finally:
        for node in three.nodes:
            node.__exit__()
    return three


async def test_b14_a_flipped_byte_in_a_data_file_under_load(tmp_path: Path) -> None:
    """Clients were told CORRUPTION; a compaction that met it ended the node at every start."""

    def harm(data: Path) -> None:
        for file in data.glob("state/*.sst"):
            flip(file, 0.3)

    await damaged(tmp_path, harm)


async def test_b14_a_flipped_byte_in_a_log_file_under_load(tmp_path: Path) -> None:
    """The node did not start any more, and somebody had to take it out and let it join anew."""

    def harm(data: Path) -> None:
        flip(max(data.glob("log/*.log"), key=lambda file: file.stat().st_size), 0.5)

    three = await damaged(tmp_path, harm)
    assert list(three.harmed.data.glob("log.damaged-*")), "kept for whoever looks into it"


async def test_b14_damage_that_a_leader_meets_under_load(tmp_path: Path) -> None:
    """The node ended, and was missing until somebody started it again; its clients heard of it."""
    three = Three(tmp_path)
    try:
        await three.start()
        db = await kvorum.aconnect(f"kvorum://{three.join}")
        async with db:
            await db.create_table("default", "t")
            load = Load(db)
            running = asyncio.ensure_future(load.run())
            await until(lambda: len(load.acked) >= ROWS, HEALED_S)
            await done(db, "kvorum.flush_table", TABLE)
            (led,) = [one for one in await db.partitions() if one["start"]]
            three.harmed = three.nodes[led["leader"] - 1]
            for file in three.harmed.data.glob("state/*.sst"):
                flip_in_place(file)

            async with asyncio.timeout(HEALED_S):
                while not list(three.harmed.data.glob("*.damaged-*")):  # a compaction meets it
                    await done(db, "kvorum.compact_table", TABLE)
            await three.mended(db)
            load.stop()
            await running
            await load.check()
            assert not load.told, load.told
    finally:
        for node in three.nodes:
            node.__exit__()
