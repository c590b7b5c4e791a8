"""Large batches: streamed under one transaction id, visible at one moment, cleaned behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest

from kv.base import limits
from kv.base.errors import KeyLocked, Refused
from kv.base.keys import table_prefix
from kv.base.ops import put
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.sink.careful_batch import PlainTables
from procedures.sink.format.sink_records import add_crc, chunk_key
from procedures.sink.large_batch import LargeBatch
from procedures.sink.sink_ports import Facts, Get, attempt_by
from tests.procedures.sink.world import (
    OTHER,
    TABLE,
    Client,
    Life,
    Task,
    World,
    opened,
    refusal,
    some_rows,
)

Work = Callable[[World, Life], Awaitable[None]]
PREFIX = table_prefix(TABLE)


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 10)
    monkeypatch.setattr(limits, "SINK_STEP_ROWS", 10)


def play(work: Work, seed: int = 0) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        async with opened(loop) as world:
            await Life(world).run(lambda life: work(world, life))

    simloop.run(main, seed)


async def staged(client: Client, value: str, count: int = 300) -> list[Task]:
    items = list(some_rows(count, value).items())
    third = count // 3
    tasks = [
        Task(i, f"{client.attempt}-{i}", dict(items[i * third : (i + 1) * third]), chunk_rows=40)
        for i in range(3)
    ]
    for task in tasks:
        await client.stage(task)
    return tasks


@pytest.mark.slow
def test_o3_large_batch_is_atomic_at_every_snapshot() -> None:
    """Some snapshot contains a part of a batch, now or when it is read again later."""

    async def work(world: World, life: Life) -> None:
        seen: dict[int, int] = {}
        stop = asyncio.Event()

        async def watch() -> None:
            while not stop.is_set():
                at = await world.store.txn.now()
                rows = await world.rows(at=at)
                values = {value[:1] for value in rows.values()}
                assert (len(rows), len(values)) in ((0, 0), (300, 1)), f"torn at {at}"
                seen[at] = len(rows)
                await asyncio.sleep(0.0005)

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            for version, value in enumerate("ab"):
                client = Client(life.sink, value)
                await client.commit(await staged(client, value), version)
            await life.idle()
            stop.set()
        assert {0, 300} == set(seen.values())
        assert len(seen) > 50
        for at, count in seen.items():
            assert len(await world.rows(at=at)) == count
        assert await world.rows() == some_rows(300, "b")
        assert await world.staged() == []
        assert world.intents() == []

    play(work)


def test_o3_readers_do_not_wait_for_a_large_batch() -> None:
    """A reader of a key that is being written waits for the whole batch."""

    async def work(world: World, life: Life) -> None:
        bulk, key = life.txn.bulk, PREFIX + b"50"
        await life.txn.write([put(key, b"before")])
        t = bulk.begin(await bulk.fresh_ts(), PREFIX + b"00")
        await t.prewrite([put(PREFIX + b"00", b"anchor")])
        await t.prewrite_rows([key], [b"after"])
        began = world.loop.time()
        assert (await world.store.txn.get(key))[0] == b"before"
        assert world.loop.time() - began < 0.1
        _, commit_ts = await bulk.commit(t.start_ts, t.anchor, t.min_commit_ts)
        await t.close()
        assert commit_ts
        assert (await world.store.txn.get(key)) == (b"after", commit_ts)
        await bulk.resolve([PREFIX + b"00"], t.start_ts, commit_ts)

    play(work)


@pytest.mark.parametrize("seed", range(4))
def test_o3_two_large_batches_on_the_same_keys(seed: int) -> None:
    """Two large batches wait for each other for ever, or mix their rows."""

    async def work(world: World, life: Life) -> None:
        clients = [Client(life.sink, name) for name in "xy"]
        tasks = [await staged(client, client.attempt) for client in clients]
        tasks[1].reverse()
        await asyncio.gather(
            *(c.commit(t, 0, app=c.attempt) for c, t in zip(clients, tasks, strict=True))
        )
        await life.idle()
        rows = await world.rows()
        assert rows in (some_rows(300, "x"), some_rows(300, "y"))
        assert world.intents() == []
        assert await world.staged() == []

    play(work, seed)


def test_o3_large_batches_of_two_tables_side_by_side() -> None:
    """A batch waits for one of another table."""

    async def work(world: World, life: Life) -> None:
        clients = [Client(life.sink, "x"), Client(life.sink, "y", OTHER)]
        tasks = [await staged(client, "v") for client in clients]
        await asyncio.gather(*(c.commit(t, 0) for c, t in zip(clients, tasks, strict=True)))
        assert await world.rows() == await world.rows(OTHER) == some_rows(300, "v")
        await life.idle()

    play(work)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_o9_zombie_races_the_replay_of_a_large_batch(seed: int) -> None:
    """Two large commits of one version take effect both, or the loser's staging stays."""

    async def work(world: World, life: Life) -> None:
        zombie, replay = Client(life.sink, "x"), Client(life.sink, "y")
        old, new = await staged(zombie, "v"), await staged(replay, "v")
        await asyncio.gather(zombie.commit(old, 0), replay.commit(new, 0))
        assert await world.rows() == some_rows(300, "v")
        await life.idle()
        assert len(await world.versions_of_marker()) == 1
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.staged() == []
        assert world.intents() == []

    play(work, seed)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(6))
def test_o3_two_queries_race_with_large_batches(seed: int) -> None:
    """The loser of a race for a name is never told, or its staging stays."""

    async def work(world: World, life: Life) -> None:
        clients = [Client(life.sink, name) for name in "xy"]
        tasks = [await staged(client, client.attempt) for client in clients]
        ended = await asyncio.gather(
            *(c.commit(t, 0, query=c.attempt) for c, t in zip(clients, tasks, strict=True)),
            return_exceptions=True,
        )
        assert [e.code for e in ended if isinstance(e, Refused)] == ["SINK_OTHER_QUERY"]
        assert await world.rows() == some_rows(300, "xy"[ended.index(None)])
        await life.idle()
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.staged() == []
        assert world.intents() == []

    play(work, seed)


def test_o10_abort_of_a_committing_attempt_is_refused() -> None:
    """An abort that follows a lost commit reply removes what is being committed."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        tasks = await staged(client, "v")
        (id,) = await life.sink.commit(client.request(tasks, 0), wait_ms=0)
        assert id
        while (await attempt_by(life.txn.get, "x"))[0].state.name == "OPEN":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert (await refusal(client.abort())).code == "SINK_COMMITTING"
        late = Task(9, "late", some_rows(5, "late"))
        assert (await refusal(client.stage(late))).code == "SINK_NOT_OPEN"
        await client.commit(tasks, 0)
        assert await world.rows() == some_rows(300, "v")
        await life.idle()

    play(work)


def test_o6_corrupt_chunk_of_a_large_batch() -> None:
    """A batch that fails half-way leaves intents, rows or staging; or its driver is not told."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        tasks = await staged(client, "v")
        good = Task(0, "other", some_rows(40, "w")).chunks[0]
        await life.txn.write([put(chunk_key("x", "x-0", 1), good)])
        error = await refusal(client.commit(tasks, 0))
        assert (error.code, error.disposition) == ("SINK_CORRUPT", "no")
        assert await world.rows() == {}
        assert await world.versions_of_marker() == []
        found = (await attempt_by(life.txn.get, "x"))[0]
        assert found is not None
        assert found.state.name == "ABORTED"
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.staged() == []
        replay = Client(life.sink, "y")
        await replay.commit(await staged(replay, "v"), 0)
        assert await world.rows() == some_rows(300, "v")
        await life.idle()
        assert world.intents() == []

    play(work)


def test_o3_what_was_laid_is_resolved_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cleans with nothing but the staged rows (of many millions, or behind a crash) cuts them
    otherwise than they were laid, and names each key instead of one of each chunk.
    """
    monkeypatch.setattr(limits, "SINK_LAID_BYTES", 0)

    async def work(world: World, life: Life) -> None:
        named: list[int] = []
        resolve = life.txn.bulk.resolve

        async def counting(keys: Any, start_ts: int, commit_ts: int) -> None:
            named.append(len(keys))
            await resolve(keys, start_ts, commit_ts)

        monkeypatch.setattr(life.txn.bulk, "resolve", counting)
        count = 2 * limits.PREWRITE_KEYS_MAX + 500
        task = Task(0, "a-0", some_rows(count, "v"), chunk_rows=count)
        client = Client(life.sink, "a")
        await client.stage(task)
        await client.commit([task], 0)
        await life.idle()
        assert named == [2]  # the anchor and the marker
        assert len(await world.rows()) == count
        assert world.intents() == []

    play(work)


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize(
    "keys", [[b"2", b"1", b"3"], [b"1", b"1", b"3"], [b"1", b"2"], [b"1", 2, b"3"]]
)
def test_o6_packed_rows_that_are_none(
    keys: list[Any], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the heads of packed pieces are looked at when they are staged: a task's program that
    staged something else in them would get its batch committed without some of its rows, or leave
    intents that nobody can resolve.
    """
    if not large:
        monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 200)

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        bad = Task(0, "x-0", some_rows(40, "v"), chunk_rows=10)
        piece = [b"1", 3, b"3", msgpack.packb(keys), msgpack.packb([b"v"] * len(keys))]
        bad.chunks[1] = msgpack.packb([2, [piece]])
        bad.crc = 0
        for seq, chunk in enumerate(bad.chunks):
            bad.crc = add_crc(bad.crc, seq, chunk)
        await client.stage(bad)
        error = await refusal(client.commit([bad], 0))
        assert error.code == "SINK_CORRUPT"
        assert error.disposition == "no"
        assert await world.rows() == {}
        await life.idle()
        replay = Client(life.sink, "y")
        await replay.commit(await staged(replay, "v"), 0)
        assert await world.rows() == some_rows(300, "v")
        await life.idle()
        assert world.intents() == []

    play(work)


@pytest.mark.few(4)
@pytest.mark.parametrize("delay_ms", [1, 5, 10, 15, 20, 30, 40, 60])
def test_o10_operator_aborts_the_commit(delay_ms: int) -> None:
    """A commit that is aborted by hand is neither done nor undone, or the driver is told the wrong
    one.
    """

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        tasks = await staged(client, "v")
        request = client.request(tasks, 0)
        (id,) = await life.sink.commit(request, wait_ms=0)
        await asyncio.sleep(delay_ms / 1000)
        try:
            await life.executor.abort(id, "by hand")
        except Refused:
            assert (await life.executor.find(id)).ended
        (ended,) = await asyncio.gather(client.commit(tasks, 0), return_exceptions=True)
        assert await world.rows() == ({} if ended else some_rows(300, "v"))
        assert getattr(ended, "code", "ABORTED") == "ABORTED"
        await life.idle()
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.staged() == []
        assert world.intents() == []

    play(work)


def test_o3_last_row_of_a_key_wins_in_large_batches() -> None:
    """A large batch chooses another of several rows with one key than a small one does."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        rows = some_rows(60, "new")
        tasks = [
            Task(0, "b", some_rows(60, "old"), chunk_rows=7),
            Task(1, "a", rows, chunk_rows=11),
        ]
        for task in tasks:
            await client.stage(task)
        await client.commit(tasks, 0)
        assert await world.rows() == rows
        await life.idle()
        assert await world.rows() == rows

    play(work)


def test_o3_large_deletions_and_replacements() -> None:
    """A large batch does not delete, or old snapshots lose what it replaced."""

    async def work(world: World, life: Life) -> None:
        first = Client(life.sink, "x")
        await first.commit(await staged(first, "old"), 0)
        await life.idle()
        before = await world.store.txn.now()
        second = Client(life.sink, "y")
        rows = some_rows(300, "old")
        changes = {key: None if i % 3 == 0 else b"new" for i, key in enumerate(rows) if i % 2 == 0}
        task = Task(0, "t", changes, chunk_rows=25)
        await second.stage(task)
        await second.commit([task], 1)
        want = rows | changes
        assert await world.rows() == {k: v for k, v in want.items() if v is not None}
        assert await world.rows(at=before) == rows
        await life.idle()
        assert await world.rows() == {k: v for k, v in want.items() if v is not None}
        assert await world.rows(at=before) == rows
        assert world.intents() == []

    play(work)


def test_o3_waits_for_a_users_transaction() -> None:
    """A large batch that meets a user's intent fails, or overwrites it before it is decided."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        tasks = await staged(client, "v")
        key = next(iter(some_rows(1, "v")))
        other = life.txn.bulk.begin(await life.txn.bulk.fresh_ts(), PREFIX + key)
        await other.prewrite([put(PREFIX + key, b"user")])
        committing = asyncio.get_running_loop().create_task(client.commit(tasks, 0))
        await asyncio.sleep(5)
        assert not committing.done()
        await life.txn.bulk.commit(other.start_ts, other.anchor, other.min_commit_ts)
        await other.close()
        await committing
        assert await world.rows() == some_rows(300, "v")
        await life.idle()

    play(work)


@pytest.mark.slow
def test_o9_a_commit_longer_than_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a commit writes is taken from under it when it takes longer than a minute, or than the
    lease of what it commits.
    """
    monkeypatch.setattr(limits, "SINK_LEASE_MS", 70_000)

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        tasks = await staged(client, "v")
        key = next(iter(some_rows(1, "v")))
        other = life.txn.bulk.begin(await life.txn.bulk.fresh_ts(), PREFIX + key)
        await other.prewrite([put(PREFIX + key, b"user")])
        committing = asyncio.get_running_loop().create_task(client.commit(tasks, 0))
        for _ in range(30):
            await asyncio.sleep(5)
            assert await life.sink.reap() == 0
        assert not committing.done()
        await life.txn.bulk.commit(other.start_ts, other.anchor, other.min_commit_ts)
        await other.close()
        await committing
        assert await world.rows() == some_rows(300, "v")
        await life.idle()

    play(work)


def test_o12_abandoned_large_batch_blocks_no_longer_than_its_ttl() -> None:
    """The intents of a process that died block writers for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(loop) as world:

            async def half(life: Life) -> None:
                client = Client(life.sink, "x")
                await client.commit(await staged(client, "v"), 0)

            dead = Life(world, 26)
            assert await dead.run(half) is None
            assert len(world.intents()) > 50
            key = PREFIX + list(some_rows(300, "v"))[-1]
            locked = world.store.txn.write([put(key, b"mine")], budget_ms=1_000)
            assert isinstance(await refusal(locked), KeyLocked)
            await asyncio.sleep(limits.BULK_TTL_MS / 1000 + 1)
            await world.store.txn.write([put(key, b"mine")], budget_ms=1_000)
            # … and the batch, when its procedure resumes, goes again under a new id
            resumed = Life(world)
            await resumed.run(lambda life: life.idle())
            assert await world.rows() == some_rows(300, "v")
            assert world.intents() == []

    simloop.run(main)


def test_o3_result_tells_rows_and_version() -> None:
    """The procedure's result does not say what was written."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "x")
        tasks = await staged(client, "v")
        (id,) = await life.sink.commit(client.request(tasks, 0), wait_ms=0)
        result = plain_data.decode((await life.executor.wait(id, 10_000)).result)
        version = (await world.store.txn.get(PREFIX + next(iter(some_rows(1, "v")))))[1]
        assert result == {"outcome": "committed", "rows": 300, "commit_version": str(version)}
        await life.idle()

    play(work)


def test_o2_a_table_that_changes_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that began without rules is flipped, though the table got an index meanwhile."""
    record = table_prefix(OTHER) + b"record"
    looks: list[bool] = []

    class Tables(PlainTables):
        async def facts(self, get: Get, table: int, path: str = "") -> Facts:
            value, version = await get(record)
            looks.append(value == b"ruled")
            return Facts("ns.t", value == b"ruled", record, version)

    plain_rows = LargeBatch._lay_rows

    async def work(world: World, life: Life) -> None:
        async def changed(*args: Any) -> Any:
            laid = await plain_rows(*args)
            await world.store.txn.write([put(record, b"ruled")])
            return laid

        monkeypatch.setattr(LargeBatch, "_lay_rows", changed)
        life.tables = Tables()
        await world.store.txn.write([put(record, b"plain")])
        client = Client(life.sink, "a")
        await client.commit(await staged(client, "v"), 0)
        assert looks == [False, True]
        assert await world.rows() == some_rows(300, "v")
        assert len(await world.versions_of_marker()) == 1
        await life.idle()
        assert world.intents() == []
        assert await world.staged() == []

    play(work)
