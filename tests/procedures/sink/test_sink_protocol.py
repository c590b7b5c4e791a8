"""The sink's protocol and its failure table, one row per test; batches that one step commits."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused, TooLarge
from kv.base.ops import delete, put
from kv.base.verbs import VERBS
from procedures.engine.procedure import State
from procedures.sink import sink_commit
from procedures.sink.format.sink_records import (
    add_crc,
    pack_chunk,
    task_key,
    unpack_chunk,
)
from procedures.sink.sink_clean import SINK_CLEAN
from procedures.sink.sink_ports import attempt_by
from tests.procedures.sink.world import (
    OTHER,
    TABLE,
    Client,
    Life,
    Rows,
    Task,
    World,
    pack_plain,
    play,
    refusal,
    some_rows,
)


def halves(rows: Rows, mark: str = "") -> list[Task]:
    items = list(rows.items())
    half = len(items) // 2
    return [Task(0, f"t0{mark}", dict(items[:half])), Task(1, f"t1{mark}", dict(items[half:]))]


async def staged(client: Client, rows: Rows, mark: str = "") -> list[Task]:
    tasks = halves(rows, mark)
    for task in tasks:
        await client.stage(task)
    return tasks


async def expire(world: World, life: Life) -> int:
    """The next round of the reaper after every lease."""
    await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
    return await life.sink.reap()


def test_o3_small_batch_appears_whole() -> None:
    """A batch's rows are seen before its commit, not all after it, or its staging stays."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(300, "x")
        tasks = await staged(client, rows)
        assert await world.rows() == {}
        await client.commit(tasks, 0)
        assert await world.rows() == rows
        await life.idle()
        assert await world.staged() == []

    play(work)


def test_o3_small_batch_is_cheap() -> None:
    """A micro-batch of two tasks needs more messages than one per task, one for the commit, and
    what its transaction sends to its partitions.
    """

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        started = len(life.kv.sent)  # the executor says that it reigns
        tasks = await staged(client, some_rows(1_000, "x"))
        seals = len(life.kv.sent) - started
        entries = {r.descriptor.id: r.state.index for r in world.store.manager.replicas()}
        await client.commit(tasks, 0)
        await life.idle()
        assert seals == 2
        grown = {
            r.descriptor.id: r.state.index - entries[r.descriptor.id]
            for r in world.store.manager.replicas()
        }
        assert grown.pop(1) <= 9, "the meta partition: procedures, intents, flip"
        assert max(grown.values()) <= 2, "an entry with the intents, one with the versions"

    play(work)


def inline(*tasks: Task) -> dict[str, bytes]:
    return {task.name: task.chunks[0] for task in tasks}


@pytest.mark.parametrize(("small", "rows"), [(300, 200), (10, 200)])
def test_o3_a_batch_that_came_with_its_commit(
    small: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch whose chunks came with the commit is not whole, leaves something, is taken twice, or
    costs as much as one that was staged.
    """
    monkeypatch.setattr(limits, "SINK_SMALL_ROWS", small)

    async def work(world: World, life: Life) -> None:
        client, wanted = Client(life.sink, "a1"), some_rows(rows, "x")
        tasks = halves(wanted)
        sent = len(life.kv.sent)
        await client.commit(tasks, 0, twice="refuse", inline=inline(*tasks))
        if small > rows:
            assert len(life.kv.sent) - sent <= 6, "no more than the transaction of its first step"
        assert await world.rows() == wanted
        await client.commit(tasks, 0, twice="refuse", inline=inline(*tasks))
        other = halves(some_rows(rows, "y"), "y")
        await Client(life.sink, "a2").commit(other, 0, inline=inline(*other))
        assert await world.rows() == wanted, "a replay is a no-op"
        await life.idle()
        assert await world.staged() == []
        assert world.intents() == []

    play(work)


def test_o3_staged_and_inline_tasks_of_one_batch() -> None:
    """Of a batch with a large and a small task one is forgotten, or its staging stays."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(100, "x")
        one, two = halves(rows)
        await client.stage(one)
        await client.commit([one, two], 0, inline=inline(two))
        assert await world.rows() == rows
        assert await world.staged() == []
        gone = Client(life.sink, "gone")  # what it staged went with a lease
        error = await refusal(gone.commit([one, two], 1, inline=inline(two)))
        assert error.code == "SINK_ATTEMPT_GONE"

    play(work)


def test_o3_inline_rows_replace_what_is_there() -> None:
    """A batch that must read first does not find the rows that came with its commit."""

    async def work(world: World, life: Life) -> None:
        await Client(life.sink, "old").commit([], 0)
        for version, value in ((1, "old"), (2, "new")):
            client, rows = Client(life.sink, value), some_rows(30, value, first=version)
            tasks = halves(rows, value)
            told = {"replace": [b"", b"", ""], "inline": inline(*tasks)}
            await client.commit(tasks, version, **told)
            assert await world.rows() == rows
        await life.idle()
        assert await world.staged() == []

    play(work)


def test_o10_a_zombie_with_its_rows_in_the_commit() -> None:
    """A commit that comes late, after its attempt was aborted or replaced, is taken."""

    async def work(world: World, life: Life) -> None:
        late = Client(life.sink, "late")
        await late.abort()
        tasks = halves(some_rows(20, "late"))
        for app in ("app", ""):
            error = await refusal(late.commit(tasks, 0, app=app, inline=inline(*tasks)))
            assert error.code == "SINK_ABORTED"
        new = halves(some_rows(20, "new"), "n")
        await Client(life.sink, "new").commit(new, 0, inline=inline(*new))
        zombie = Client(life.sink, "zombie")
        await zombie.commit(tasks, 0, inline=inline(*tasks))  # the marker has this version
        assert await world.rows() == some_rows(20, "new")

    play(work)


@pytest.mark.parametrize("rows", [20, 400])
def test_o10_an_abort_that_meets_a_commit_with_its_rows(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows appear behind an abort that was answered, because the commit had looked before."""

    async def work(world: World, life: Life) -> None:
        client, tasks = Client(life.sink, "a1"), halves(some_rows(rows, "x"))
        looked = sink_commit._check_manifest

        async def aborted_meanwhile(ctx: Any, part: Any) -> None:
            await looked(ctx, part)
            monkeypatch.setattr(sink_commit, "_check_manifest", looked)
            await client.abort()

        monkeypatch.setattr(sink_commit, "_check_manifest", aborted_meanwhile)
        error = await refusal(client.commit(tasks, 0, inline=inline(*tasks)))
        assert error.code == "SINK_ABORTED"
        await life.idle()
        assert await world.rows() == {}

    play(work)


def test_o6_chunks_in_a_commit_are_checked() -> None:
    """What came with a commit is believed: other rows than the manifest's, keys out of order."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        one, two = halves(some_rows(20, "x"))
        packed = pack_plain([b"2", b"1"], [b"", b""])
        huge = pack_chunk([b"k"], [bytes(limits.SINK_INLINE_TOTAL)])
        bad: list[tuple[Any, str]] = [
            ({"t0": two.chunks[0]}, "not what the manifest says"),
            ({"nobody": one.chunks[0]}, "not what the manifest says"),
            ({"t0": packed}, "not in order"),
            ({"t0": b"\xc1"}, "not a chunk"),
            ({"t0": 7}, "a map of tasks"),
            ([one.chunks[0]], "a map of tasks"),
            ({"t0": huge}, "the limit is"),
        ]
        for told, why in bad:
            error = await refusal(client.commit([one, two], 0, inline=told))
            assert why in str(error), told
        error = await refusal(client.commit([one, two], 0, inline=inline(one)))
        assert error.code == "SINK_ATTEMPT_GONE", "the other was never staged"
        assert await world.rows() == {}

    play(work)


def test_o3_records_of_answered_commits_go_soon() -> None:
    """A stream would leave the record of every micro-batch until its retention is over."""

    async def work(world: World, life: Life) -> None:
        for version in range(3):
            client = Client(life.sink, f"a{version}")
            await client.commit(await staged(client, some_rows(20, "x")), version)
        await life.idle()
        commits = [r for r in await life.executor.store.newest(0, 100) if r.record.nonce[:1] == "a"]
        assert len(commits) == 3, "nobody waits for it"
        await life.sink.reap()
        left = await life.executor.store.newest(0, 100)
        assert not [r for r in left if r.record.nonce[:1] == "a"]

    play(work)


def test_o3_records_of_cleaning_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each micro-batch leaves a quarter of a megabyte for an hour: the rows that came with it."""
    monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 10)

    async def work(world: World, life: Life) -> None:
        client, tasks = Client(life.sink, "a1"), halves(some_rows(200, "x"))
        await client.commit(tasks, 0, inline=inline(*tasks))
        await life.idle()

        async def left() -> list[Any]:
            found = await life.executor.store.newest(0, 100)
            return [r for r in found if r.record.name == SINK_CLEAN]

        assert len(await left()) == 1
        await asyncio.sleep(limits.PROCEDURE_RETENTION_MS_DEFAULT / 1000 / 4)
        assert await left() == []

    play(work)


def test_o6_task_that_was_not_sealed_as_told() -> None:
    """A manifest that differs from what was sealed is committed all the same."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        tasks = await staged(client, some_rows(20, "x"))
        for field, value in ((0, 7), (1, "nobody"), (2, 2), (3, 11), (4, 1)):
            request = client.request(tasks, 0)
            request["manifest"][1] = list(request["manifest"][1])
            request["manifest"][1][field] = value
            request["version"] = field  # another procedure each
            error = await refusal(life.sink.commit(request, wait_ms=5_000))
            assert (error.code, error.disposition) == ("SINK_MANIFEST", "no")
        assert await world.rows() == {}

    play(work)


def test_o6_missing_chunk() -> None:
    """A task is committed without a chunk that it counted."""

    async def work(world: World, life: Life) -> None:
        client, task = Client(life.sink, "a1"), Task(0, "t", some_rows(30, "x"), chunk_rows=10)
        await life.sink.stage("a1", TABLE, 0, "t", 0, task.chunks[0])
        await client.seal(task, task.chunks[2])
        error = await refusal(client.commit([task], 0))
        assert error.code == "SINK_MANIFEST"
        assert "chunk 1" in error.message
        assert await world.rows() == {}

    play(work)


def test_o6_corrupt_chunk() -> None:
    """What a task staged differs from its checksum and is committed."""

    async def work(world: World, life: Life) -> None:
        client, task = Client(life.sink, "a1"), Task(0, "t", some_rows(30, "x"), chunk_rows=10)
        other = Task(0, "t", some_rows(30, "y"), chunk_rows=10)
        await life.sink.stage("a1", TABLE, 0, "t", 0, task.chunks[0])
        await life.sink.stage("a1", TABLE, 0, "t", 1, other.chunks[1])
        await client.seal(task, task.chunks[2])
        assert (await refusal(client.commit([task], 0))).code == "SINK_CORRUPT"
        assert await world.rows() == {}
        one = Task(0, "u", some_rows(3, "x"))
        error = await refusal(client.seal(one, pack_chunk([b"k"], [b"v"])))
        assert error.code == "SINK_CORRUPT"

    play(work)


def test_o10_retry_and_speculation_are_dropped() -> None:
    """Rows of a task that lost are in the table, or what it staged stays for ever."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(100, "x")
        loser = Task(1, "copy", some_rows(100, "loser"), chunk_rows=30)
        await life.sink.stage("a1", TABLE, 1, "early", 0, loser.chunks[0])  # died while staging
        await client.stage(loser, last=False)  # completed, but another copy won
        tasks = await staged(client, rows)
        await client.commit(tasks, 0)
        assert await world.rows() == rows
        await life.idle()
        await life.sink.reap()
        assert await world.staged() == []

    play(work)


def test_o10_zombie_after_abort_is_refused() -> None:
    """A task that goes on after the abort leaves rows behind, or they are committed."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        tasks = await staged(client, some_rows(10, "x"))
        await client.abort()
        late = Task(2, "late", some_rows(10, "y"))
        for step in (
            life.sink.stage("a1", TABLE, 2, "late", 0, late.chunks[0]),
            client.stage(late),
            life.sink.begin("a1", TABLE, 10_000),
        ):
            assert (await refusal(step)).code == "SINK_NOT_OPEN"
        assert (await refusal(client.commit(tasks, 0))).code == "SINK_ABORTED"
        assert len(await world.staged()) == 1, "only the row that refuses"
        assert await expire(world, life) == 1
        assert await world.staged() == []
        assert await world.rows() == {}

    play(work)


def test_o10_abort_before_anything_was_staged() -> None:
    """The abort overtakes the first chunk, which then opens the attempt."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        await client.abort()
        await client.abort()
        assert (await refusal(client.stage(Task(0, "t", some_rows(1, "x"))))).code == (
            "SINK_NOT_OPEN"
        )

    play(work)


def test_o10_late_stage_after_commit_expires() -> None:
    """A zombie that stages after its batch was committed leaves rows for ever."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(10, "x")
        tasks = await staged(client, rows)
        await client.commit(tasks, 0)
        await client.stage(Task(3, "late", some_rows(10, "y")))
        assert await world.staged()
        assert await expire(world, life) == 1
        assert await world.staged() == []
        assert await world.rows() == rows

    play(work)


def test_o9_lease_ends_and_reap() -> None:
    """Staging of a driver that died stays for ever, or a living attempt is reaped."""

    async def work(world: World, life: Life) -> None:
        dead, alive = Client(life.sink, "dead"), Client(life.sink, "alive")
        tasks = await staged(dead, some_rows(10, "x"))
        await staged(alive, some_rows(10, "y"))
        half = limits.SINK_LEASE_MS / 2000
        await asyncio.sleep(half)
        await alive.stage(Task(2, "t2", some_rows(5, "z")))  # renews the lease
        assert await life.sink.reap() == 0
        await asyncio.sleep(half + 1)
        assert await life.sink.reap() == 1
        assert len(await world.staged()) == 1 + 2 * 3
        assert (await refusal(dead.commit(tasks, 0))).code == "SINK_ATTEMPT_GONE"
        assert await life.sink.begin("alive", TABLE, limits.SINK_LEASE_MS) == ["OPEN"]
        await asyncio.sleep(half)
        assert await life.sink.reap() == 0

    play(work)


def test_o9_reap_that_died_goes_on() -> None:
    """Staging whose attempt's row is gone is never found again."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        await staged(client, some_rows(10, "x"))
        row, version = await attempt_by(life.txn.get, "a1")
        assert row is not None
        over = world.clock.now_ms() + limits.SINK_LEASE_MS
        await life.txn.write([delete(task_key("a1", name)) for name in ("t0", "t1")])
        assert await life.sink._ended("a1", row, version, over)
        assert not await life.sink._ended("a1", row, version, over), "only once"
        assert await life.sink.reap() == 1
        assert await world.staged() == []

    play(work)


def test_o9_driver_dies_before_commit() -> None:
    """A batch that is replayed under a new attempt is written twice or not at all."""

    async def work(world: World, life: Life) -> None:
        rows = some_rows(50, "x")
        await staged(Client(life.sink, "a1"), rows)
        replay = Client(life.sink, "a2")
        tasks = await staged(replay, rows, "again")
        await replay.commit(tasks, 0)
        assert await world.rows() == rows
        await expire(world, life)
        assert await world.staged() == []

    play(work)


def test_o9_driver_dies_after_commit() -> None:
    """A replayed batch changes something: rows of a later batch, or a user's change since then."""

    async def work(world: World, life: Life) -> None:
        first, rows = Client(life.sink, "a1"), some_rows(50, "x")
        await first.commit(await staged(first, rows), 0)
        changed = next(iter(rows))
        await life.txn.write([put(b"\x00\x00\x00\x64" + changed, b"by a user")])
        replay = Client(life.sink, "a2")
        tasks = await staged(replay, rows, "again")
        assert await life.sink.commit(replay.request(tasks, 0)) == [0]
        assert (await world.rows())[changed] == b"by a user"

    play(work)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(8))
def test_o9_zombie_commit_races_the_replay(seed: int) -> None:
    """Two commits of one version both take effect, or one of the two is told an error."""

    async def work(world: World, life: Life) -> None:
        rows = some_rows(100, "x")
        zombie, replay = Client(life.sink, "a1"), Client(life.sink, "a2")
        old, new = await staged(zombie, rows), await staged(replay, rows, "again")
        await asyncio.gather(zombie.commit(old, 0), replay.commit(new, 0))
        assert await world.rows() == rows
        assert len(await world.versions_of_marker()) == 1
        await expire(world, life)
        assert await world.staged() == []

    play(work, seed)


def test_o9_zombie_of_an_older_batch() -> None:
    """A commit that was delayed past the next batches writes old rows over new ones."""

    async def work(world: World, life: Life) -> None:
        zombie = Client(life.sink, "a0")
        old = await staged(zombie, some_rows(10, "old"))
        for version, value in ((0, "old"), (1, "new")):
            client = Client(life.sink, f"a{version + 1}")
            await client.commit(await staged(client, some_rows(10, value), value), version)
        await zombie.commit(old, 0)
        assert await world.rows() == some_rows(10, "new")

    play(work)


def test_o3_other_query_under_the_same_name() -> None:
    """A fresh checkpoint with an old name: its first batches are taken for replays and lost."""

    async def work(world: World, life: Life) -> None:
        first = Client(life.sink, "a1")
        await first.commit(await staged(first, some_rows(10, "x")), 3)
        other = Client(life.sink, "a2")
        tasks = await staged(other, some_rows(10, "y"), "b")
        error = await refusal(other.commit(tasks, 0, query="query-2"))
        assert error.code == "SINK_OTHER_QUERY"
        assert "appId" in error.message
        assert await world.rows() == some_rows(10, "x")
        await other.commit(tasks, 0, app="app-2", query="query-2")
        assert await world.rows() == some_rows(10, "y")

    play(work)


def test_o3_two_queries_race_for_a_name() -> None:
    """Two new queries under one name both write: one of them loses batches later."""

    async def work(world: World, life: Life) -> None:
        clients = [Client(life.sink, f"a{i}") for i in range(2)]
        tasks = [await staged(c, some_rows(10, f"v{i}"), f"{i}") for i, c in enumerate(clients)]
        ended = await asyncio.gather(
            *(c.commit(t, 0, query=c.attempt) for c, t in zip(clients, tasks, strict=True)),
            return_exceptions=True,
        )
        refused = [e for e in ended if isinstance(e, Refused)]
        assert [e.code for e in refused] == ["SINK_OTHER_QUERY"]
        winner = ended.index(None)
        assert await world.rows() == some_rows(10, f"v{winner}")

    play(work)


def test_o3_marker_is_per_table_and_application() -> None:
    """One table's or one application's progress makes batches of another one vanish."""

    async def work(world: World, life: Life) -> None:
        for i, (table, app) in enumerate(((TABLE, "x"), (OTHER, "x"), (OTHER, "y"))):
            client = Client(life.sink, f"a{i}", table)
            await client.commit(await staged(client, some_rows(9, app), app), 5, app=app)
        assert await world.rows(TABLE) == some_rows(9, "x")
        assert await world.rows(OTHER) == some_rows(9, "y")

    play(work)


def test_o8_batch_without_rows_moves_the_marker() -> None:
    """An empty batch fails, or is not remembered."""

    async def work(world: World, life: Life) -> None:
        await Client(life.sink, "a1").commit([], 0)
        late = Client(life.sink, "a2")
        await late.commit(await staged(late, some_rows(5, "late")), 0)
        assert await world.rows() == {}
        assert await life.sink.commit(Client(life.sink, "a3").request([], 0, app="")) == [0]

    play(work)


def test_o2_write_without_a_name_commits_once() -> None:
    """A batch write without an application: a repeated commit request fails or writes again."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(50, "x")
        tasks = await staged(client, rows)
        for _ in range(3):
            await client.commit(tasks, 0, app="", query="")
        assert await world.rows() == rows
        assert await world.versions_of_marker() == []
        await life.idle()
        assert await world.staged() == []

    play(work)


def test_o10_every_message_may_be_repeated() -> None:
    """A message whose answer was lost has another effect the second time."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(60, "x")
        task = Task(0, "t", rows, chunk_rows=20)
        for _ in range(2):
            assert await life.sink.begin("a1", TABLE, 10_000) == ["OPEN"]
        for seq in (0, 1, 0, 1):
            await life.sink.stage("a1", TABLE, 0, "t", seq, task.chunks[seq])
        for _ in range(2):
            await client.seal(task, task.chunks[2])
        request = client.request([task], 0)
        ids = {(await life.sink.commit(request))[0] for _ in range(3)}
        assert len(ids - {0}) <= 1, "one procedure for all of them"
        for _ in range(2):
            await client.commit([task], 0)
        assert await world.rows() == rows
        assert len(await world.versions_of_marker()) == 1

    play(work)


def test_o10_commit_waits_no_longer_than_asked() -> None:
    """A request keeps its caller waiting beyond the caller's deadline."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        tasks = await staged(client, some_rows(400, "x"))  # more than its first step commits
        began = world.loop.time()
        (id,) = await life.sink.commit(client.request(tasks, 0), wait_ms=0)
        assert world.loop.time() - began < 0.1
        record = await life.executor.wait(id, 10_000)
        assert record.state is State.SUCCESS

    play(work)


def test_o3_last_row_of_a_key_wins() -> None:
    """Of several rows with one key another than the last one of the last partition stays."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        tasks = [
            Task(1, "a", {b"10": b"part 1", b"20": b"part 1"}),
            Task(0, "z", {b"10": b"part 0", b"30": b"part 0"}),
        ]
        for task in tasks:
            await client.stage(task)
        await client.commit(tasks, 0)
        assert await world.rows() == {b"10": b"part 1", b"20": b"part 1", b"30": b"part 0"}

    play(work)


def test_o3_deletions() -> None:
    """A row without a value does not delete its key."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        await client.commit(await staged(client, some_rows(10, "x")), 0)
        again = Client(life.sink, "a2")
        rows: Rows = dict.fromkeys(list(some_rows(10, "x"))[:6])
        await again.commit(await staged(again, rows, "b"), 1)
        assert list(await world.rows()) == sorted(some_rows(10, "x"))[6:]

    play(work)


def test_o3_conflict_with_a_transaction_runs_again() -> None:
    """A small batch that meets a user's commit fails instead of going again."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a1"), some_rows(200, "x")
        tasks = await staged(client, rows)
        key, stop = next(iter(rows)), asyncio.Event()

        async def disturb() -> None:
            while not stop.is_set():
                await life.txn.write([put(b"\x00\x00\x00\x64" + key, b"user")])

        async with asyncio.TaskGroup() as group:
            group.create_task(disturb())
            await asyncio.sleep(0.01)
            committing = group.create_task(client.commit(tasks, 0))
            await asyncio.sleep(0.05)
            stop.set()
            await committing
        found = await world.rows()
        assert found.pop(key) in (b"user", rows.pop(key))
        assert found == rows

    play(work)


def pieces(*several: Any) -> bytes:
    """A chunk that says that it is of packed pieces."""
    packed: bytes = msgpack.packb([2, *([list(several)] if several else [])])
    return packed


def test_o6_pieces_in_pieces() -> None:
    """A few kilobytes end the procedure that unpacks them with an error that undoing it meets, too:
    the batch is neither committed nor taken back.
    """
    chunk = pieces([b"a", 1, b"a", msgpack.packb([b"a"]), msgpack.packb([b"v"])])
    assert unpack_chunk(chunk, "this") == ([b"a"], [b"v"])
    for _ in range(600):
        chunk = pieces([b"a", 1, b"a", b"\x02", chunk[2:]])
    with pytest.raises(InvalidArgument):
        unpack_chunk(chunk, "this")


BAD: list[tuple[str, list[Any], type[Exception], str]] = [
    ("begin", ["", TABLE, 1000], InvalidArgument, "attempt"),
    ("begin", ["x" * 65, TABLE, 1000], InvalidArgument, "64"),
    ("begin", ["a", 99, 1000], InvalidArgument, "table id"),
    ("begin", ["a", TABLE, 1], InvalidArgument, "lease_ms"),
    ("stage", ["a", TABLE, -1, "t", 0, pack_chunk([b"k"], [b"v"])], InvalidArgument, "part"),
    ("stage", ["a", TABLE, 0, 7, 0, b""], InvalidArgument, "task"),
    ("stage", ["a", TABLE, 0, "t", "0", b""], InvalidArgument, "seq"),
    ("stage", ["a", TABLE, 0, "t", 0, "text"], InvalidArgument, "bytes"),
    ("stage", ["a", TABLE, 0, "t", 0, b"\xc1"], InvalidArgument, "chunk"),
    ("stage", ["a", TABLE, 0, "t", 0, pack_plain([b"k"], [])], InvalidArgument, "1 keys"),
    ("stage", ["a", TABLE, 0, "t", 0, pack_plain(["k"], [b"v"])], InvalidArgument, "bytes"),
    (
        "stage",
        ["a", TABLE, 0, "t", 0, pack_plain([b"k", b"k"], [b"v", b"v"])],
        InvalidArgument,
        "order",
    ),
    ("stage", ["a", TABLE, 0, "t", 0, pack_plain([b"k" * 4097], [b"v"])], TooLarge, "key"),
    ("stage", ["a", TABLE, 0, "t", 0, pieces()], InvalidArgument, "chunk"),
    ("stage", ["a", TABLE, 0, "t", 0, pieces(7)], InvalidArgument, "packed"),
    ("stage", ["a", TABLE, 0, "t", 0, pieces([b"a", 1, b"a", b""])], InvalidArgument, "piece"),
    ("stage", ["a", TABLE, 0, "t", 0, pieces([b"a", 0, b"a", b"", b""])], InvalidArgument, "piece"),
    (
        "stage",
        ["a", TABLE, 0, "t", 0, pieces([b"a", 2**64 - 1, b"b", b"", b""])],
        InvalidArgument,
        "piece",
    ),
    ("stage", ["a", TABLE, 0, "t", 0, pieces([b"a", 2, b"a", b"", b""])], InvalidArgument, "order"),
    ("stage", ["a", TABLE, 0, "t", 0, pieces([b"a", 1, b"b", b"", b""])], InvalidArgument, "order"),
    (
        "stage",
        ["a", TABLE, 0, "t", 0, pieces([b"b", 1, b"b", b"", b""], [b"b", 1, b"b", b"", b""])],
        InvalidArgument,
        "order",
    ),
    (
        "stage",
        ["a", TABLE, 0, "t", 0, pieces([b"k" * 4097, 1, b"k" * 4097, b"", b""])],
        TooLarge,
        "key",
    ),
    (
        "stage",
        ["a", TABLE, 0, "t", 0, b"x" * (limits.SINK_CHUNK_BYTES_MAX + 1)],
        TooLarge,
        "smaller chunks",
    ),
    ("seal", ["a", TABLE, 0, "t", 0, 1, 1, None], InvalidArgument, "chunks"),
    ("seal", ["a", TABLE, 0, "t", 1, 0, 1, None], InvalidArgument, "rows"),
    ("commit", [[]], InvalidArgument, "map"),
    ("commit", [{"attempt": "a"}], InvalidArgument, "lacks app, manifest"),
    ("abort", [b"a"], InvalidArgument, "attempt"),
]


@pytest.mark.parametrize(("method", "args", "kind", "text"), BAD)
def test_o6_bad_input_changes_nothing(
    method: str, args: list[Any], kind: type[Exception], text: str
) -> None:
    """A malformed message is half done, or its error does not say what is wrong."""

    async def work(world: World, life: Life) -> None:
        error = await refusal(getattr(life.sink, method)(*args))
        assert isinstance(error, kind)
        assert text in error.message
        assert await world.staged() == []

    play(work)


def test_o6_bad_commit_requests() -> None:
    """A commit request with one wrong field reaches the procedure."""

    async def work(world: World, life: Life) -> None:
        good = Client(life.sink, "a1").request([Task(0, "t", some_rows(1, "x"))], 0)
        for field, value in (
            ("table", "100"),
            ("app", 7),
            ("app", "x" * 201),
            ("version", -1),
            ("version", True),
            ("query", None),
            ("manifest", "x"),
            ("manifest", [[0, "t", 1, 1]]),
            ("manifest", [[0, "t", 1, 1, None]]),
            ("manifest", [[0, "", 1, 1, 1]]),
            ("manifest", [[0, "t", 1, 1, 1]] * 2),
        ):
            error = await refusal(life.sink.commit(good | {field: value}))
            assert isinstance(error, InvalidArgument), (field, value)
        assert life.executor.live() == []

    play(work)


def test_o6_methods_count_their_arguments() -> None:
    """A request with too few arguments breaks the handler instead of being refused."""

    async def work(world: World, life: Life) -> None:
        for method in life.sink.handlers():
            with pytest.raises(InvalidArgument, match="takes"):
                VERBS[method].check([1, method, 0])

    play(work)


def test_o10_attempt_of_another_table() -> None:
    """One attempt's rows end up in two tables."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a1")
        tasks = await staged(client, some_rows(4, "x"))
        stranger = Client(life.sink, "a1", OTHER)
        assert isinstance(await refusal(stranger.stage(tasks[0])), InvalidArgument)
        assert (await refusal(stranger.commit(tasks, 0))).code == "SINK_OTHER_TABLE"
        assert add_crc(0, 0, tasks[0].chunks[0]) == tasks[0].crc

    play(work)
