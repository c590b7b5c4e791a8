"""Snapshots and reads in the past, through every surface, on a node that keeps little."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import kvorum
from kv.base.config import NodeConfig
from kvorum.api.model import TableSpec
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build
from tests.kit.commands import run, told
from tests.kit.machine import free_port_base
from tests.kvorum.surfaces.conftest import SURFACES, Served

RETENTION_MS = 300


@asynccontextmanager
async def forgetful(data: Path, base: int) -> AsyncIterator[Node]:
    """A node that keeps old versions for a moment."""
    config = NodeConfig(
        data=data, port=base, gc_retention_ms=RETENTION_MS, gc_interval_ms=100, log_level="error"
    )
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def reached(node: Node, base: int, surface: str) -> AsyncIterator[kvorum.AsyncDatabase]:
    if surface == "embedded":
        yield kvorum.AsyncDatabase(node.backend, node.ports.rng)
        return
    url = f"kvorum://127.0.0.1:{base}" if surface == "sdk" else f"http://127.0.0.1:{base + 2}"
    async with await kvorum.aconnect(url) as db:
        yield db


async def until_refused(db: kvorum.AsyncDatabase, at: int) -> kvorum.SnapshotTooOld:
    """Reading there, until its versions are collected."""
    async with asyncio.timeout(20):
        while True:
            try:
                await db.table("default", "t").get("a", at=at)
            except kvorum.SnapshotTooOld as error:
                return error
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
async def test_u9_what_a_snapshot_sees_is_not_collected(tmp_path: Path, surface: str) -> None:
    """A long report would end in the middle because its versions were collected; or they would
    never be, because nobody let go of them.
    """
    base = free_port_base()
    async with forgetful(tmp_path / "data", base) as node:
        await node.backend.create_table("default", "t", TableSpec(split_keys=(b"m",)))
        async with reached(node, base, surface) as db:
            table = db.table("default", "t")
            keys = [f"{c}{i}" for c in "az" for i in range(30)]
            for value in ("old", "new"):
                await db.batch([kvorum.Put("default", "t", key, value) for key in ["a", *keys]])
                if value == "old":
                    held = await db.snapshot(owner="report", ttl_ms=600)
            for i in range(20):
                await table.put("a", f"{i}")
                await asyncio.sleep(0.05)  # longer than retention and ttl together
            seen = held.table("default", "t")
            assert (await seen.get("a")).value == b"old"  # type: ignore[union-attr]
            assert {r.value for r in await seen.multi_get(keys) if r} == {b"old"}
            found = await held.multi_get([("default", "t", key) for key in keys])
            assert {r.value for r in found if r} == {b"old"}
            assert {item.value async for item in seen.rows()} == {b"old"}
            (info,) = await db.snapshots()
            assert (info.id, info.at, info.owner, info.ttl_ms) == (held.id, held.at, "report", 600)
            assert info.age_ms > 600
            assert 0 < info.left_ms <= 600
            await held.close()
            await held.close()
            assert await db.snapshots() == []
            error = await until_refused(db, held.at)
            assert int(error.details["safepoint"]) > held.at
            with pytest.raises(kvorum.SnapshotTooOld):
                await db.snapshot(held.at)


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
async def test_c4_a_read_below_the_safepoint_says_what_to_do(tmp_path: Path, surface: str) -> None:
    """Who reads too far back would get wrong rows, or a refusal that helps nobody."""
    base = free_port_base()
    async with forgetful(tmp_path / "data", base) as node:
        await node.backend.create_table("default", "t", TableSpec())
        async with reached(node, base, surface) as db:
            table = db.table("default", "t")
            at = await table.put("a", "1")
            for value in range(5):
                await table.put("a", f"{value}")
            error = await until_refused(db, at)
            for wanted in (str(error.details["safepoint"]), f"{RETENTION_MS} ms", "snapshot"):
                assert wanted in error.message
            for read in (
                lambda: table.scan(at=at),
                lambda: table.multi_get(["a"], at=at),
                lambda: db.multi_get([("default", "t", "a")], at=at),
            ):
                with pytest.raises(kvorum.SnapshotTooOld):
                    await read()


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
async def test_u9_a_snapshot_that_nobody_closes_ends(tmp_path: Path, surface: str) -> None:
    """An abandoned object would hold all garbage back for as long as its program lives; a closed
    database for as long as its ttl.
    """
    base = free_port_base()
    async with forgetful(tmp_path / "data", base) as node:
        backend = node.backend
        async with reached(node, base, surface) as db:
            lost = await db.snapshot(ttl_ms=600)
            id = lost.id
            del lost
            gc.collect()
            async with asyncio.timeout(5):
                while id in [info.id for info in await backend.snapshots()]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            async with db.snapshot(ttl_ms=60_000) as inside:
                assert [info.id for info in await backend.snapshots()] == [inside.id]
            assert await backend.snapshots() == []
            if surface != "embedded":
                await db.snapshot(ttl_ms=60_000)
        assert await backend.snapshots() == []


@pytest.mark.parametrize("bad", [0, -1, 1 << 64, "soon", True])
def test_c4_times_that_are_none(db: kvorum.Database, table: kvorum.Table, bad: object) -> None:
    """A timestamp that was computed wrongly would read the newest, or something."""
    for read in (
        lambda: table.get("a", at=bad),  # type: ignore[arg-type]
        lambda: table.scan(at=bad),  # type: ignore[arg-type]
        lambda: table.multi_get(["a"], at=bad),  # type: ignore[arg-type]
        lambda: db.multi_get([("default", table.name, "a")], at=bad),  # type: ignore[arg-type]
        lambda: db.snapshot(bad),  # type: ignore[arg-type]
    ):
        with pytest.raises(kvorum.InvalidArgument):
            read()


def test_c4_the_future_is_refused_on_every_read(db: kvorum.Database, table: kvorum.Table) -> None:
    """A read of the future would be answered differently the second time."""
    table.put("a", "1")
    at = db.timestamp() + (60_000 << 18)
    for read in (
        lambda: table.get("a", at=at),
        lambda: table.get("none", at=at),
        lambda: table.scan(at=at),
        lambda: table.scan(start="b", end="b", at=at),
        lambda: table.multi_get(["a", "z"], at=at),
        lambda: db.multi_get([("default", table.name, "a")], at=at),
        lambda: db.snapshot(at),
    ):
        with pytest.raises(kvorum.InvalidArgument) as caught:
            read()
        assert "future" in caught.value.message


def test_c4_the_past_is_what_it_was(db: kvorum.Database, table: kvorum.Table) -> None:
    """An audit would see something that never was."""
    history: list[tuple[int, dict[str, bytes]]] = []
    state: dict[str, bytes] = {}
    for i in range(12):
        key, value = "abhpz"[i % 5], b"%d" % i
        if i % 4 == 3:
            at = table.delete(key)
            state.pop(key, None)
        else:
            at = table.put(key, value)
            state[key] = value
        history.append((at, dict(state)))
    for at, then in history:
        assert {item.key.decode(): item.value for item in table.scan(at=at).items} == then
        found = table.multi_get(list("abhpz"), at=at)
        assert [r and r.value for r in found] == [then.get(key) for key in "abhpz"]
        assert [(r := table.get(key, at=at)) and r.value for key in "abhpz"] == [
            then.get(key) for key in "abhpz"
        ]


@pytest.mark.slow
def test_u9_the_command_lists_and_releases(served: Served) -> None:
    """An operator could not see who holds the garbage back, nor end it."""
    db = served.by_name["sdk"]
    held = db.snapshot(owner="night's export")
    listed = told("snapshot", "list", connect=served.address)["items"]
    assert [row["owner"] for row in listed if row["id"] == str(held.id)] == ["night's export"]
    assert b"night's export" in run("snapshot", "list", connect=served.address).out
    release = ("snapshot", "release", str(held.id))
    assert b"is released" in run(*release, connect=served.address).out
    assert b"is not held" in run(*release, code=1, connect=served.address).out
    assert held.id not in [info.id for info in db.snapshots()]
    held.close()
