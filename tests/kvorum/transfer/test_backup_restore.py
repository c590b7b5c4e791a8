"""Backup and restore of a whole node: what is in it, what goes on, and what is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kvorum
from kv.base import system
from kv.base.errors import Corruption, NotFound, Refused
from kv.base.keys import table_prefix, table_range
from kv.base.limits import TRANSFER_LEFT_MS
from kvorum.transfer import backup as backing
from kvorum.transfer import blocks
from kvorum.transfer.abandoned_procedures import Left
from kvorum.transfer.backup_scope import RULES
from kvorum.transfer.command_worker import run_here
from kvorum.transfer.places import place_of
from kvorum.transfer.services import scan_expiring
from kvorum.transfer.verify import verify
from procedures.master.map.partitions import placed_of, placed_partitions
from procedures.sink.format.sink_records import Marker, marker_key
from sqlproxy.catalog import catalog, relations, roles, sequences
from sqlproxy.rows.rows import codec
from sqlproxy.tables.entries import index_codec
from tests.harness.sql_scenarios import PEOPLE
from tests.kit.object_store import ObjectStore
from tests.kvorum.cluster.three import client, trio
from tests.kvorum.transfer.backups import backup, restore
from tests.procedures.sink.world import Client, Task

MODULES = ("tests.kvorum.transfer.backups",)
LOCK = "account/7"


@asynccontextmanager
async def node(directory: Path) -> AsyncIterator[Any]:
    db = await kvorum.aopen(directory, procedure_modules=MODULES)
    try:
        yield db
    finally:
        await db.close()


async def fill(db: Any) -> None:
    """Plain and SQL tables, a sequence that has moved, a role, a marker of a sink."""
    await db.create_table("default", "t", split_keys=["k010", "k020"])
    await db.create_namespace("shop")
    for i in range(30):
        await db.table("default", "t").put(f"k{i:03}", f"v{i}")
    await db.table("default", "t").put("brief", "x", ttl_ms=3_600_000)
    people = {**PEOPLE, "namespace": "shop", "replicas": 1}
    await db.wait(await db.submit("CreateTable", people), timeout_ms=30_000)
    txn = db._backend.txn
    table = await catalog.lookup(txn, "shop", "people")
    (sequence,) = (await relations.list_relations(txn, "shop")).sequences
    t = await txn.begin()
    for number in range(1, 6):
        row = (number, f"p{number}@example.org", number * 10)
        key, value = codec(table).encode_row(row)
        t.put(table_prefix(table.id) + key, value)
        for index in table.indexes:
            at, entry = index_codec(table, index).entry(row)
            t.put(table_prefix(index.id) + at, entry)
    sequences.put_stand(t, sequence, sequences.Stand(77, True))
    await roles.put(t, roles.Role("ann", superuser=True, verifier="SCRAM-SHA-256$x"))
    t.put(marker_key("etl", table.id), Marker(41, "query").pack())
    await t.commit()


async def at_step(db: Any, id: int, step: str) -> None:
    while (await db.procedure(id)).step != step:  # noqa: ASYNC110 - nobody tells it
        await asyncio.sleep(0.02)


async def there(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - nobody tells it
        await asyncio.sleep(0.01)


async def stored(db: Any, *ids: int) -> list[tuple[bytes, bytes]]:
    """Every row of these tables and indexes."""
    found = []
    for id in ids:
        page = await db._backend.txn.scan(*table_range(id), limit=10_000)
        assert page.resume is None
        found += [(key, value) for key, value, _ in page.items]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("where", ["directory", "objects"])
async def test_u3_a_restored_cluster_has_everything(
    tmp_path: Path, objects: ObjectStore, where: str
) -> None:
    """A row, an index, a sequence, a role, a sink's marker, a TTL or a split was lost."""
    target = str(tmp_path / "backup") if where == "directory" else objects.uri("my/backup")
    async with node(tmp_path / "a") as db:
        await fill(db)
        txn = db._backend.txn
        plain, people = [
            await catalog.lookup(txn, *name) for name in (("default", "t"), ("shop", "people"))
        ]
        ids = (plain.id, *people.storage_ids)
        before = await stored(db, *ids)
        told = await backup(db, target)
        await db.table("default", "t").put("later", "not in it")
    assert verify(place_of(target)).rows == told["rows"]
    async with node(tmp_path / "b") as db:
        found = await restore(db, target)
        assert (found["rows"], found["at"], found["tables"]) == (told["rows"], told["at"], 2)
        txn = db._backend.txn
        assert await catalog.lookup(txn, "shop", "people") == people
        assert await stored(db, *ids) == before
        assert len(before) == 31 + 5 * 3
        cuts = [placed.descriptor.start for placed in await placed_of(txn, plain.id)]
        assert [cut[4:] for cut in cuts] == [b"", b"k010", b"k020"]
        (sequence,) = (await relations.list_relations(txn, "shop")).sequences
        assert await sequences.stand(txn, sequence) == (77, True)
        assert {role.name for role in await roles.all_roles(txn)} == {"kvorum", "ann"}
        marker, version = await txn.get(marker_key("etl", people.id))
        assert Marker.unpack(marker) == Marker(41, "query")
        assert version > int(told["at"])
        page, due = await scan_expiring(txn, *table_range(plain.id), await txn.now(), 10)
        assert [page.items[place][0][4:] for place in due] == [b"brief"]
        assert (await db.create_table("default", "new")).id > max(ids)


@pytest.mark.slow
async def test_u3_procedures_go_on_with_their_locks(tmp_path: Path) -> None:
    """A procedure was lost, ran a step twice, or lost its lock to one that waited for it."""
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "counts")
        args = {"resource": LOCK, "name": "holder"}
        holder = await db.submit("backup.pipeline", args, nonce="mine")
        await at_step(db, holder, "after")
        waiter = await db.submit("backup.pipeline", {**args, "name": "waiter"})
        ended = await db.submit("kvorum.list_settings", {}, nonce="done")
        await db.wait(ended)
        (grant,) = (await db._backend.txn.scan(*table_range(system.LOCKS), limit=10)).items[1:]
        await backup(db, tmp_path / "backup")
        await db.signal(holder, "go")
        await db.wait(holder, timeout_ms=20_000)
    async with node(tmp_path / "b") as db:
        assert (await restore(db, tmp_path / "backup"))["procedures"] == 2
        assert await db.submit("backup.pipeline", args, nonce="mine") == holder
        assert await db.submit("kvorum.list_settings", {}, nonce="done") == ended
        assert (await db.procedure(ended)).state == "SUCCESS"
        with pytest.raises(kvorum.KvorumError) as refused:
            await db.batch([kvorum.Put("default", "counts", "x", "1", fence=(LOCK, grant[2]))])
        assert refused.value.code == "FENCED_OFF"
        await asyncio.sleep(0.3)
        counts = db.table("default", "counts")
        assert await counts.get("waiter.before") is None
        await db.signal(holder, "go")
        token = (await db.wait(holder, timeout_ms=20_000))["token"]
        assert int(token) > grant[2]
        await db.signal(waiter, "go")
        await db.wait(waiter, timeout_ms=20_000)
        marks = ("holder.before", "holder.after", "waiter.before", "waiter.after")
        assert [(await counts.get(mark)).value for mark in marks] == [b"1"] * 4


@pytest.mark.slow
async def test_u3_what_was_known_of_before_is_refused(tmp_path: Path) -> None:
    """Who watched the old cluster would go on in the new one, and miss changes without a word."""
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "t")
        version = await db.table("default", "t").put("k", "v")
        await backup(db, tmp_path / "backup")
    async with node(tmp_path / "b") as db:
        await restore(db, tmp_path / "backup")
        events = aiter(db.watch("default", "t", from_version=version))
        with pytest.raises(kvorum.KvorumError) as refused:
            await anext(events)
        assert refused.value.code == "EPOCH_CHANGED"
        assert "watch from 0" in refused.value.message
        with pytest.raises(kvorum.SnapshotTooOld):
            await db.table("default", "t").get("k", at=version)
        later = await db.table("default", "t").put("k", "w")
        async with asyncio.timeout(10):
            async for event in db.watch("default", "t", from_version=later - 1):
                assert event.version == later
                break


@pytest.mark.slow
async def test_u3_only_into_an_empty_cluster_unless_forced(tmp_path: Path) -> None:
    """A restore would mix two clusters' data."""
    async with node(tmp_path / "a") as db:
        await fill(db)
        await backup(db, tmp_path / "backup")
        with pytest.raises(kvorum.KvorumError) as refused:
            await restore(db, tmp_path / "backup")
        assert refused.value.code == "CLUSTER_NOT_EMPTY"
        await db.create_table("default", "other")
        await db.table("default", "t").put("k000", "changed")
        await restore(db, tmp_path / "backup", force=True)
        assert [table.name for table in await db.tables("default")] == ["t"]
        assert (await db.table("default", "t").get("k000")).value == b"v0"


@pytest.mark.slow
async def test_u3_a_table_made_while_a_restore_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are mixed with the backup's, or it is overwritten without a word."""
    monkeypatch.setattr(backing, "TRANSFER_BLOCK_ROWS", 10)
    async with node(tmp_path / "a") as db:
        await fill(db)
        await backup(db, tmp_path / "backup")
        tables = await backing.all_tables(db._backend.txn)
        ids = {int(id) for table in tables for id in table.storage_ids}
    async with node(tmp_path / "b") as db:
        source = (tmp_path / "backup").as_uri()
        args = {"source": source, "rate": 8_192}
        with pytest.raises(kvorum.KvorumError, match="submit it again"):
            await db.wait(await db.submit("kvorum.restore", args), timeout_ms=60_000)
        id = await db.submit("kvorum.restore", args)
        await at_step(db, id, "rows")
        made = await db.create_table("default", "t")
        assert int(made.id) not in ids
        await db.table("default", "t").put("mine", "x")
        with pytest.raises(kvorum.KvorumError) as refused:
            await db.wait(id, timeout_ms=60_000)
        assert refused.value.code == "CLUSTER_NOT_EMPTY"
        assert [table.name for table in await db.tables("default")] == ["t"]
        assert len(await stored(db, made.id)) == 1
        assert (await db.table("default", "t").get("mine")).value == b"x"


def damages() -> list[Any]:
    def flip(where: Path) -> None:
        data = bytearray((where / "data/00000001.kvb").read_bytes())
        data[len(data) // 2] ^= 1
        (where / "data/00000001.kvb").write_bytes(bytes(data))

    def swap(where: Path) -> None:
        (where / "data/00000001.kvb").write_bytes((where / "data/00000002.kvb").read_bytes())

    def lose(where: Path) -> None:
        (where / "data/00000001.kvb").unlink()

    def edit(where: Path) -> None:
        told = json.loads((where / "manifest.json").read_text())
        (where / "manifest.json").write_text(json.dumps({**told, "at": str(int(told["at"]) + 1)}))

    def unfinished(where: Path) -> None:
        (where / "manifest.json").unlink()

    return [flip, swap, lose, edit, unfinished]


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", damages(), ids=lambda damage: damage.__name__)
async def test_u3_a_damaged_backup_is_told_and_leaves_nothing(
    damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed, exchanged or missing files would be restored as if they were what was backed up."""
    monkeypatch.setattr(backing, "TRANSFER_BLOCK_ROWS", 10)
    where = tmp_path / "backup"
    async with node(tmp_path / "a") as db:
        await fill(db)
        await backup(db, where)
    damage(where)
    with pytest.raises((Corruption, NotFound)):
        verify(place_of(str(where)))
    async with node(tmp_path / "b") as db:
        with pytest.raises((Corruption, NotFound)):
            await restore(db, where)
        assert await db.tables("default") == []
        left = [row for row in await placed_partitions(db._backend.txn) if row.descriptor.start]
        assert left == []


@pytest.mark.slow
async def test_j18_backup_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that was under way when its node ended began anew, or was lost."""
    monkeypatch.setattr(backing, "TRANSFER_BLOCK_ROWS", 5)
    where = tmp_path / "backup"
    async with node(tmp_path / "a") as db:
        await fill(db)
        locks = backing.lock_names(await backing.all_tables(db._backend.txn))
        args = {"target": where.as_uri(), "locks": locks, "rate": 4096}
        id = await db.submit("kvorum.backup", args)
        await there(where / "data/00000002.kvb")
        first = (where / "data/00000000.kvb").stat().st_mtime_ns
        assert not (where / "manifest.json").exists()
    async with node(tmp_path / "a") as db:
        told = await db.wait(id, timeout_ms=50_000)
        assert (where / "data/00000000.kvb").stat().st_mtime_ns == first
        assert verify(place_of(str(where))).rows == told["rows"]
        assert await db.snapshots() == []


@pytest.mark.slow
async def test_u3_a_rate_holds_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes were read and written as fast as it goes, and then nothing for a minute."""
    rate, value = 256 * 1024, bytes(8_000)
    asked: list[int] = []

    async def counted(*args: Any) -> Any:
        page, due = await scan_expiring(*args)
        asked.append(sum(len(key) + len(value) for key, value, _ in page.items))
        return page, due

    monkeypatch.setattr(backing, "scan_expiring", counted)
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "t")
        for i in range(100):
            await db.table("default", "t").put(f"k{i:03}", value)
        began = time.monotonic()
        told = await backup(db, tmp_path / "backup", rate=rate)
        assert time.monotonic() - began > (told["bytes"] - 2 * rate) / rate
        assert sum(asked) < 1.2 * told["bytes"], "more is read than is written"
        place, before, sizes = place_of(str(tmp_path / "backup")), blocks.NOTHING_BEFORE, []
        for number in range(told["files"]):
            name = blocks.file_name(number)
            block = blocks.unpack(place.read(name), name, number=number, before=before)
            before = block.digest
            sizes.append(sum(len(row[0]) + len(row[1]) for row in block.rows))
        assert max(sizes) <= rate + 9_000
        assert told["bytes"] == sum(sizes) > 3 * rate


@pytest.mark.slow
async def test_j18_aborted_backup_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot would be held and files would lie about for a backup that nobody finishes."""
    monkeypatch.setattr(backing, "TRANSFER_BLOCK_ROWS", 5)
    where = tmp_path / "backup"
    async with node(tmp_path / "a") as db:
        await fill(db)
        locks = backing.lock_names(await backing.all_tables(db._backend.txn))
        args = {"target": where.as_uri(), "locks": locks, "rate": 4096}
        id = await db.submit("kvorum.backup", args)
        await there(where / "data/00000001.kvb")
        assert [snapshot.owner for snapshot in await db.snapshots()] == [f"backup {id}"]
        await db.abort_procedure(id, "not wanted")
        with pytest.raises(kvorum.KvorumError):
            await db.wait(id, timeout_ms=20_000)
        assert [path for path in where.rglob("*") if path.is_file()] == []
        assert await db.snapshots() == []


@pytest.mark.slow
async def test_schema_changes_wait_for_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is dropped while it is copied would be missing, or half of it."""
    monkeypatch.setattr(backing, "TRANSFER_BLOCK_ROWS", 5)
    where = tmp_path / "backup"
    async with node(tmp_path / "a") as db:
        await fill(db)
        locks = backing.lock_names(await backing.all_tables(db._backend.txn))
        args = {"target": where.as_uri(), "locks": locks, "rate": 8192}
        id = await db.submit("kvorum.backup", args)
        await there(where / "data/00000000.kvb")
        await db.drop_table("default", "t")
        assert (await db.procedure(id)).state == "SUCCESS"
        with pytest.raises(kvorum.KvorumError) as refused:
            await db.wait(await db.submit("kvorum.backup", args), timeout_ms=10_000)
        assert refused.value.code == "TARGET_IN_USE"


@pytest.mark.slow
async def test_j18_a_backup_whose_command_is_gone_lets_go_of_its_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schema changes wait for ever behind a command that was killed; or one that is slow, or that
    is resumed in time, loses its locks.
    """
    clock = [0.0]
    async with trio(1) as cluster, client(cluster) as db:
        (node,) = cluster.nodes.values()
        left = Left(lambda: node.master.executor, lambda: clock[0])
        await db.create_table("default", "t")
        for i in range(4):
            await db.table("default", "t").put(f"k{i}", b"x" * 4_000)
        locks = backing.lock_names(await backing.all_tables(db._backend.txn))

        async def args(_backend: Any) -> Any:
            return {"target": (tmp_path / "b").as_uri(), "locks": locks, "rate": 4_096}

        ids: list[int] = []

        keys = [tmp_path / "key", tmp_path / "another"]
        for number, path in enumerate(keys):
            path.touch(mode=0o600)
            path.write_bytes(bytes([number]) * 32)

        async def command(resume: int = 0, key: Path | None = keys[0]) -> None:
            await run_here(
                cluster.url,
                backing.BACKUP_HERE,
                args,
                lambda info: ids.append(info.id),
                resume=resume,
                key_file=str(key or ""),
            )

        async def waited(ms: int) -> str:
            await left.look()
            clock[0] += ms / 1000
            await left.look()
            return str((await db.procedure(ids[0])).state)

        monkeypatch.setattr(backing, "TRANSFER_BLOCK_ROWS", 1)
        for round_ in range(2):
            running = asyncio.get_running_loop().create_task(command(ids[0] if round_ else 0))
            while len(ids) < 2 * (round_ + 1):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
            assert await waited(2 * TRANSFER_LEFT_MS) != "BYPASSED", "its command lives"
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            for other in (None, keys[1]):
                with pytest.raises(Refused, match="was begun with the key") as caught:
                    await command(ids[0], other)
                assert caught.value.code == "WRONG_KEY"
            assert await waited(TRANSFER_LEFT_MS - 1) != "BYPASSED", "it may be resumed"
        clock[0] += 0.001
        assert await waited(0) == "BYPASSED"
        await db.wait(await db.submit("DropTable", {"namespace": "default", "name": "t"}))
        with pytest.raises(NotFound, match="has ended: BYPASSED"):
            await command(ids[0])


@pytest.mark.slow
async def test_backup_of_tables_that_nobody_locked_is_refused(tmp_path: Path) -> None:
    """A table that was made after the list of locks was would be copied while it changes."""
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "t")
        args = {"target": (tmp_path / "b").as_uri(), "locks": []}
        with pytest.raises(kvorum.KvorumError) as refused:
            await db.wait(await db.submit("kvorum.backup", args), timeout_ms=10_000)
        assert refused.value.code == "SCHEMA_CHANGED"
        assert not (tmp_path / "b").exists()


def test_every_system_table_has_a_rule() -> None:
    """A new table of the system would be restored, or left out, without anybody having decided."""
    there = {
        number for name, number in vars(system).items() if name.isupper() and type(number) is int
    }
    assert there == set(RULES), "say in kvorum/transfer/backup_scope.py what a restore does with it"


async def test_u3_spark_batches_of_before_are_replays(tmp_path: Path) -> None:
    """A query that goes on after a restore would write its last batch twice, or skip the next."""
    where = tmp_path / "backup"
    rows = [Task(0, "one", {b"a": b"1", b"b": b"2"}), Task(0, "two", {b"c": b"3"})]
    async with trio(1, transfer_places=("file:///",)) as nodes, client(nodes) as db:
        table = (await db.create_table("default", "t")).id
        await batch(nodes, table, rows[0], 0)
        staged = Client(nodes.nodes[1]._sink, "half", table)
        await staged.stage(rows[1])
        await backup(db, where)
    async with trio(1, transfer_places=("file:///",)) as nodes, client(nodes) as db:
        await restore(db, where)
        before = (await db.table("default", "t").scan()).items
        assert [(item.key, item.value) for item in before] == [(b"a", b"1"), (b"b", b"2")]
        await batch(nodes, table, rows[0], 0)
        assert (await db.table("default", "t").scan()).items == before
        await batch(nodes, table, rows[1], 1)
        assert (await db.table("default", "t").get("c")).value == b"3"


async def batch(nodes: Any, table: int, task: Task, version: int) -> None:
    """One batch of the query, as Spark's driver commits it."""
    spark = Client(nodes.nodes[1]._sink, f"{task.name}-{version}", table)
    await spark.stage(task)
    await spark.commit([task], version)
