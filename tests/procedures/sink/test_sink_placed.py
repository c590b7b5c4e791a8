"""Rows that tasks lay in place: seen when the batch is committed, and not at all if it is not;
whatever becomes of the tasks.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import KeyLocked, KvorumError, NotFound, Refused, TxnAborted, WriteConflict
from kv.base.keys import table_prefix
from kv.base.methods import COMMITTED, PREWRITE, PREWRITE_ROWS
from kv.base.ops import put
from procedures.engine.procedure import State
from procedures.sink import large_batch, sink_clean
from procedures.sink.careful_batch import PlainTables
from procedures.sink.format.sink_records import place_key, task_key
from procedures.sink.sink_commit import SINK_COMMIT
from procedures.sink.sink_ports import Facts, Get
from tests.procedures.sink.placed import PlacedTask
from tests.procedures.sink.world import (
    TABLE,
    Client,
    Life,
    Rows,
    Task,
    World,
    play,
    refusal,
    some_rows,
)

PREFIX = table_prefix(TABLE)
LOAD = {"placed": True, "twice": "refuse"}


def parts_of(rows: Rows, count: int) -> list[Rows]:
    keys = sorted(rows)
    step = -(-len(keys) // count)
    return [{k: rows[k] for k in keys[at : at + step]} for at in range(0, len(keys), step)]


async def laid(world: World, life: Life, client: Client, rows: Rows, count: int = 3) -> list[Any]:
    """Tasks that laid these rows, sealed."""
    tasks = [
        PlacedTask(world, life, client, part, f"{client.attempt}-{part}", some)
        for part, some in enumerate(parts_of(rows, count))
    ]
    for task in tasks:
        await task.all_of_it()
    return tasks


async def nothing_left(world: World, life: Life, rows: Rows) -> None:
    """The table has these rows; of the load there is nothing any more."""
    await life.idle()
    assert await world.rows() == rows
    await asyncio.sleep(1)  # what a reader met goes behind it
    assert world.intents() == []
    assert await world.staged() == []


def test_o3_rows_in_place_appear_at_once() -> None:
    """Some snapshot contains a part of a load, or its rows before the commit, or a reader waits for
    tasks that work; or something is left.
    """

    async def work(world: World, life: Life) -> None:
        seen: dict[int, int] = {}
        stop = asyncio.Event()

        async def watch() -> None:
            while not stop.is_set():
                began = world.loop.time()
                at = await world.store.txn.now()
                seen[at] = len(await world.rows(at=at))
                assert world.loop.time() - began < 0.2
                await asyncio.sleep(0.003)

        client, rows = Client(life.sink, "a"), some_rows(600, "v")
        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            tasks = await laid(world, life, client, rows)
            assert set(seen.values()) <= {0}
            await client.commit(tasks, 0, **LOAD)
            await asyncio.sleep(0.1)
            stop.set()
        assert set(seen.values()) == {0, 600}
        for at, count in seen.items():
            assert len(await world.rows(at=at)) == count
        await nothing_left(world, life, rows)
        assert (await world.store.txn.get(place_key(TABLE)))[0] is None

    play(work)


def test_o3_rows_in_place_need_no_copying() -> None:
    """A commit writes again what tasks have laid."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(900, "v")
        tasks = await laid(world, life, client, rows)
        before = life.kv.changes
        await client.commit(tasks, 0, **LOAD)
        assert life.kv.changes - before < 16, life.kv.sent[before:]
        await nothing_left(world, life, rows)

    play(work)


def test_o3_the_same_version_again_is_no_load() -> None:
    """A load that is submitted again is loaded again, or what it laid stays in the way."""

    async def work(world: World, life: Life) -> None:
        rows = some_rows(300, "v")
        for name, value in (("a", "v"), ("b", "again")):
            client = Client(life.sink, name)
            tasks = await laid(world, life, client, some_rows(300, value))
            await client.commit(tasks, 7, **LOAD)
            await life.idle()
        assert await world.rows() == rows
        assert world.intents() == []
        assert (await refusal(tasks[0].start())).code == "SINK_NOT_OPEN"
        await nothing_left_after_abort(world, life, client, rows)

    play(work)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("laid_rows", [1, 100])
def test_o3_a_retry_stages_and_wins(sealed: bool, laid_rows: int) -> None:
    """A task's second try meets what the first one laid; or rows of both are committed."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(300, "v")
        first, second = parts_of(rows, 2)
        winner = PlacedTask(world, life, client, 0, "t0", first)
        await winner.all_of_it()
        lost = PlacedTask(world, life, client, 1, "t1", dict.fromkeys(second, b"lost"))
        assert await lost.start()
        await lost.lay(laid_rows)
        if sealed:
            await lost.seal()
        retry = Task(1, "t1-again", second, chunk_rows=40)
        await client.stage(retry)
        began = world.loop.time()
        await client.commit([winner, retry], 0, **LOAD)
        assert world.loop.time() - began < 2
        await nothing_left(world, life, rows)

    play(work)


def test_o3_a_retry_alone_wins_over_what_was_laid() -> None:
    """The commit of a load of which every task was tried twice waits for the first tries."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(300, "v")
        await laid(world, life, client, some_rows(300, "lost"), 1)
        retry = Task(0, "again", rows, chunk_rows=40)
        await client.stage(retry)
        began = world.loop.time()
        await client.commit([retry], 0, **LOAD)
        assert world.loop.time() - began < 2
        await nothing_left(world, life, rows)

    play(work)


def test_o3_a_task_may_stage_some_of_its_rows() -> None:
    """Rows that lie among others of the task are lost, or counted as laid."""

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(300, "v")
        first, second = parts_of(rows, 2)
        task = PlacedTask(world, life, client, 0, "t0", first)
        assert await task.start()
        await task.lay(tell=True)
        await task.stage(second)
        await task.seal()
        await client.commit([task], 0, **LOAD)
        await nothing_left(world, life, rows)

    play(work)


@pytest.mark.parametrize("part", [0, 1])
def test_o3_two_tasks_with_one_key(part: int) -> None:
    """Two rows with one key are laid one over the other, or the second waits for the first; or a
    copy of a task waits for it.
    """

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        one = PlacedTask(world, life, client, 0, "t0", {b"10": b"a", b"20": b"a"})
        other = PlacedTask(world, life, client, part, "t1", {b"20": b"b", b"80": b"b"})
        await one.all_of_it()
        began = world.loop.time()
        assert await other.start()
        refused = await refusal(other.lay())
        assert isinstance(refused, Refused)
        assert (refused.code, refused.details["key"]) == ("SINK_DUPLICATE", PREFIX + b"20")
        assert world.loop.time() - began < 0.5
        await nothing_left_after_abort(world, life, client)

    play(work)


def test_o3_one_key_laid_and_staged() -> None:
    """The commit overwrites what one task laid by what another one staged."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        one = PlacedTask(world, life, client, 0, "t0", {b"10": b"a", b"20": b"a"})
        other = Task(1, "t1", {b"20": b"b", b"80": b"b"})
        await one.all_of_it()
        await client.stage(other)
        began = world.loop.time()
        refused = await refusal(client.commit([one, other], 0, **LOAD))
        assert refused.code == "SINK_DUPLICATE"
        assert world.loop.time() - began < 1
        await nothing_left_after_abort(world, life, client)

    play(work)


async def nothing_left_after_abort(
    world: World, life: Life, client: Client, rows: Rows | None = None
) -> None:
    await client.abort()
    await life.idle()
    assert await world.rows() == (rows or {})
    await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
    await life.sink.reap()
    await nothing_left(world, life, rows or {})


def test_o3_nothing_is_laid_after_an_abort() -> None:
    """A task that goes on after its attempt was aborted brings rows into the table, or takes keys
    from others.
    """

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        one, two = (
            PlacedTask(world, life, client, part, f"t{part}", rows)
            for part, rows in enumerate(parts_of(some_rows(200, "v"), 2))
        )
        await one.all_of_it()
        assert await two.start()
        await two.lay(20, tell=True)
        await client.abort()
        assert not await two.beat()
        await two.lay(20)  # it does not know
        assert (await refusal(two.seal())).code == "SINK_NOT_OPEN"
        assert (await refusal(two.start())).code == "SINK_NOT_OPEN"
        assert (await refusal(client.commit([one], 0, **LOAD))).code == "SINK_ABORTED"
        await life.txn.write([put(PREFIX + key, b"mine") for key in two.all])
        await nothing_left_after_abort(world, life, client, dict.fromkeys(two.all, b"mine"))

    play(work)


def test_o3_another_load_stages() -> None:
    """Two loads of one table lay rows at once, and wait for each other; or the next one never may
    again.
    """

    async def work(world: World, life: Life) -> None:
        first, second = Client(life.sink, "a"), Client(life.sink, "b")
        rows = some_rows(200, "v")
        tasks = await laid(world, life, first, rows)
        blocked = PlacedTask(world, life, second, 0, "t", rows)
        assert not await blocked.start()
        retry = Task(0, "t", {b"99/z": b"staged"})
        await second.stage(retry)
        await second.commit([retry], 0, app="other", **LOAD)
        assert await world.rows() == {b"99/z": b"staged"}
        await first.commit(tasks, 0, **LOAD)
        third = Client(life.sink, "c")
        tasks = await laid(world, life, third, some_rows(200, "w"))  # over rows not cleaned yet
        await third.commit(tasks, 1, **LOAD)
        await nothing_left(world, life, some_rows(200, "w") | {b"99/z": b"staged"})

    play(work)


def test_o3_the_load_of_a_dead_driver_is_in_nobodys_way_for_long() -> None:
    """A load that nobody commits keeps its keys, or the next one from laying rows."""

    async def work(world: World, life: Life) -> None:
        first, rows = Client(life.sink, "a"), some_rows(200, "v")
        lost = await laid(world, life, first, some_rows(200, "lost"))
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert world.intents() == []
        assert (await refusal(first.commit(lost, 0, **LOAD))).code == "SINK_ATTEMPT_GONE"
        second = Client(life.sink, "b")
        await second.commit(await laid(world, life, second, rows), 0, **LOAD)
        await nothing_left(world, life, rows)

    play(work)


@pytest.mark.slow
def test_o3_a_dead_task_is_in_nobodys_way_for_long() -> None:
    """Somebody who wants a key that a dead task laid waits for the attempt's lease."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        lost = PlacedTask(world, life, client, 0, "t", {b"10": b"lost"})
        assert await lost.start()
        await lost.lay()
        began = world.loop.time()
        while True:
            try:
                await life.txn.write([put(PREFIX + b"10", b"mine")])
                break
            except KeyLocked:
                assert world.loop.time() - began < 2 * limits.SINK_PLACED_TTL_MS / 1000
        assert world.loop.time() - began >= limits.SINK_PLACED_TTL_MS / 1000 / 2
        assert (await refusal(lost.seal())).code == "SINK_NOT_OPEN"
        await nothing_left_after_abort(world, life, client, {b"10": b"mine"})

    play(work)


@pytest.mark.slow
def test_o3_a_working_task_keeps_its_rows() -> None:
    """A writer takes the keys of a task that works, or waits without an end; or a finished task's
    rows are given up while another one works.
    """

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(200, "v")
        first, second = parts_of(rows, 2)
        done = PlacedTask(world, life, client, 0, "t0", first)
        await done.all_of_it()
        busy = PlacedTask(world, life, client, 1, "t1", second)
        assert await busy.start()
        await busy.lay(20)
        keys = [PREFIX + next(iter(first)), PREFIX + next(iter(second))]
        for minute in range(25):
            for _ in range(6):
                await asyncio.sleep(10)
                assert await busy.beat()
            if minute % 3 == 0:
                await life.sink.begin("a", TABLE, limits.SINK_LEASE_MS)
            if minute % 8 == 0:
                for key in keys:
                    error = await refusal(life.txn.write([put(key, b"mine")]))
                    assert isinstance(error, KvorumError)
                    assert error.disposition == "retry"
        assert await world.rows() == {}
        await busy.lay()
        await busy.seal()
        await client.commit([done, busy], 0, **LOAD)
        await nothing_left(world, life, rows)

    play(work)


@pytest.mark.slow
def test_o3_a_load_of_hours() -> None:
    """A task that works for longer than a transaction lives loses its rows; or its commit is
    refused.
    """

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(400, "v")
        task = PlacedTask(world, life, client, 0, "t0", rows)
        may = await task.start()
        staged: Rows = {}
        for _ in range(20):
            for _ in range(33):
                await asyncio.sleep(10)
                await task.beat()
            await life.sink.begin("a", TABLE, limits.SINK_LEASE_MS)
            assert task.placing.old
            may = may and await task.start()
            if may:
                await task.lay(20)
        staged = {key: rows[key] for key in list(task.all)[task.laid :]}
        assert not may, "a task has so many transactions at most"
        await task.tell()
        await task.stage(staged)
        await task.seal()
        assert world.clock.now_ms() > limits.TXN_LIFETIME_MS_MAX
        await client.commit([task], 0, **LOAD)
        await nothing_left(world, life, rows)

    play(work)


def test_o3_rows_that_were_given_up_are_missed() -> None:
    """A batch is committed of which rows were given up."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await laid(world, life, client, some_rows(100, "v"), 2)
        (start_ts, _), *_ = tasks[1].placing.sealed()
        await life.txn.bulk.roll_back(task_key("a", tasks[1].name), start_ts)
        refused = await refusal(client.commit(tasks, 0, **LOAD))
        assert refused.code == "SINK_ATTEMPT_GONE"
        await nothing_left_after_abort(world, life, client)

    play(work)


class _Tables(PlainTables):
    """A table whose record is at a key of OTHER; it gets an index."""

    def __init__(self, life: Life) -> None:
        self.life, self.ruled = life, False
        self.key = table_prefix(99) + b"t"
        self.looks = 0
        self.then: Any = None

    async def facts(self, get: Get, table: int, path: str = "") -> Facts | None:
        _, version = await get(self.key)
        found = Facts("n.t", self.ruled, self.key, version)
        self.looks += 1
        if self.then is not None:
            await self.then()
        return found


@pytest.mark.parametrize("late", [False, True])
def test_o3_a_table_that_gets_an_index_refuses_what_was_laid(late: bool) -> None:
    """Rows that were laid before an index was made are committed without its entries."""

    async def work(world: World, life: Life) -> None:
        tables = life.tables = _Tables(life)

        async def index() -> None:
            tables.then = None
            tables.ruled = True
            await world.store.txn.write([put(tables.key, b"indexed")])

        client = Client(life.sink, "a")
        tasks = await laid(world, life, client, some_rows(100, "v"))
        if late:  # between the commit's look and its writing
            tables.then = index
        else:
            await index()
        refused = await refusal(client.commit(tasks, 0, **LOAD))
        assert refused.code == "SINK_ALTERED"
        await nothing_left_after_abort(world, life, client)

    play(work)


@pytest.mark.parametrize("late", [False, True])
def test_o3_a_load_of_a_table_with_rules_is_staged(late: bool) -> None:
    """A table with an index takes no bulk load; or one that got it meanwhile none whose tasks were
    all tried again.
    """

    async def work(world: World, life: Life) -> None:
        tables = life.tables = _Tables(life)
        tables.ruled = True
        client, rows = Client(life.sink, "a"), some_rows(300, "v")
        if late:
            await laid(world, life, client, some_rows(300, "lost"), 2)
        task = Task(0, "again", rows, chunk_rows=40)
        await client.stage(task)
        await client.commit([task], 0, **LOAD)
        await nothing_left(world, life, rows)

    play(work)


def test_o3_others_intents_are_waited_for() -> None:
    """A task lays a row over somebody's transaction, or fails because of it."""

    async def work(world: World, life: Life) -> None:
        bulk = world.store.txn.bulk
        theirs = bulk.begin(await bulk.fresh_ts(), PREFIX + b"20")
        await theirs.prewrite([put(PREFIX + b"20", b"theirs")])
        client = Client(life.sink, "a")
        task = PlacedTask(world, life, client, 0, "t", {b"20": b"ours", b"80": b"ours"})
        assert await task.start()
        laying = asyncio.create_task(task.lay())
        await asyncio.sleep(0.5)
        assert not laying.done()
        status, _ = await bulk.commit(theirs.start_ts, theirs.anchor, 0)
        assert status == COMMITTED
        await theirs.close()
        await laying
        assert (await world.store.txn.get(PREFIX + b"20"))[0] == b"theirs"
        await task.seal()
        await client.commit([task], 0, **LOAD)
        await nothing_left(world, life, {b"20": b"ours", b"80": b"ours"})

    play(work)


def test_o3_a_commit_says_that_rows_are_in_place() -> None:
    """A program that does not know of rows in place commits a batch without them."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await laid(world, life, client, some_rows(100, "v"))
        refused = await refusal(client.commit(tasks, 0, twice="refuse"))
        assert refused.code == "SINK_MANIFEST"
        await nothing_left_after_abort(world, life, client)

    play(work)


@pytest.mark.parametrize("laid_first", [25, 50])
def test_o3_a_batch_beside_a_load_of_the_same_keys(
    laid_first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has the table's anchor and waits for rows of a load, whose commit, or whose task,
    waits for the batch: for ever.
    """
    monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 10)

    async def work(world: World, life: Life) -> None:
        first, second = Client(life.sink, "a"), Client(life.sink, "b")
        load = PlacedTask(world, life, first, 0, "t", some_rows(50, "v"))
        assert await load.start()
        await load.lay(laid_first)
        batch = Task(0, "t", some_rows(100, "w"), chunk_rows=20)
        await second.stage(batch)
        began = world.loop.time()
        later = asyncio.create_task(second.commit([batch], 0, app="other", twice="refuse"))
        await asyncio.sleep(0.5)
        if load.laid < len(load.all):
            async with asyncio.timeout(10):
                await load.lay()
        await load.seal()
        async with asyncio.timeout(10):
            await first.commit([load], 0, **LOAD)
        assert world.loop.time() - began < 2 * limits.SINK_MEETS_MS / 1000
        assert await world.rows() == some_rows(50, "v"), "the batch holds nothing while it waits"
        await later
        assert world.loop.time() - began < 5
        await nothing_left(world, life, some_rows(100, "w"))

    play(work)


def test_o3_a_batch_waits_for_a_load_without_laying_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is in the way of a load of hours writes its rows again and again."""
    monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 10)

    async def work(world: World, life: Life) -> None:
        first = Client(life.sink, "a")
        load = PlacedTask(world, life, first, 0, "t", {b"00/000000": b"v"})
        assert await load.start()
        await load.lay()
        second, batch = Client(life.sink, "b"), Task(0, "t", some_rows(100, "w"), chunk_rows=20)
        await second.stage(batch)
        later = asyncio.create_task(second.commit([batch], 0, app="other", twice="refuse"))
        await asyncio.sleep(10)
        before = len(life.kv.sent)
        for _ in range(10):
            await asyncio.sleep(30)
            await load.beat()
        assert not {PREWRITE_ROWS, PREWRITE} & set(life.kv.sent[before:])
        assert await life.txn.write([put(PREFIX + b"99/x", b"mine")]), "it holds nothing"
        await first.abort()
        await later
        rows = some_rows(100, "w") | {b"99/x": b"mine"}
        await nothing_left_after_abort(world, life, first, rows)

    play(work)


def test_o3_a_flip_that_is_asked_for_again_when_all_is_cleaned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step of the flip is done again, and its tasks are removed since: a load that is there
    ends as one that failed.
    """
    hand, times = sink_clean.hand_to_clean, 0

    async def work(world: World, life: Life) -> None:
        async def then_again(*args: Any) -> None:
            nonlocal times
            times += 1
            await hand(*args)
            if times == 1:
                while len(life.executor.live()) > 1:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                raise WriteConflict("another load of the table took its place")

        monkeypatch.setattr(large_batch, "hand_to_clean", then_again)
        client, rows = Client(life.sink, "a"), some_rows(100, "v")
        request = client.request(await laid(world, life, client, rows), 0, app="", **LOAD)
        assert await life.sink.commit(request, wait_ms=60_000) == [0]
        ends = [await _end_of(life, id) for id in range(1, 5)]
        assert ends.count((SINK_COMMIT, State.SUCCESS)) == 1, ends
        assert times == 2
        await nothing_left(world, life, rows)

    play(work)


async def _end_of(life: Life, id: int) -> tuple[str, State] | None:
    try:
        record = await life.executor.wait(id, 0)
    except NotFound:
        return None
    return record.name, record.state


def test_o3_the_cleaning_reads_what_a_border_cut_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One chunk that lies in two partitions, or that a reader met: all rows of the load are read to
    find the rest of it.
    """

    async def work(world: World, life: Life) -> None:
        scan, read = life.txn.scan, 0

        async def counted(start: bytes, end: bytes, **more: Any) -> Any:
            nonlocal read
            page = await scan(start, end, **more)
            read += len(page.items) if start.startswith(PREFIX) else 0
            return page

        monkeypatch.setattr(life.txn, "scan", counted)
        client, rows = Client(life.sink, "a"), some_rows(2_000, "v")
        tasks = await laid(world, life, client, rows, 1)  # of 40 rows each: 2 are in two partitions
        await client.commit(tasks, 0, **LOAD)
        assert (await life.txn.get(PREFIX + b"05/000005"))[0] == b"v-5"
        await life.idle()
        assert world.intents() == []
        assert 40 <= read <= 3 * 41
        await nothing_left(world, life, rows)

    play(work)


def test_o3_rows_that_were_laid_although_they_were_refused() -> None:
    """A transaction gets too old for one of two partitions, or the first answer is lost: its rows
    are in the way of those that are sent again, as if two had one key.
    """

    async def work(world: World, life: Life) -> None:
        client, rows = Client(life.sink, "a"), some_rows(100, "v")
        task = PlacedTask(world, life, client, 0, "t", rows)
        assert await task.start()
        transaction = task.placing._txns[-1]
        send = transaction.send_rows

        async def laid_and_refused(*args: Any) -> None:
            transaction.send_rows = send  # type: ignore[method-assign]
            await send(*args)
            raise TxnAborted("it began before the safepoint")

        transaction.send_rows = laid_and_refused  # type: ignore[method-assign]
        await task.lay()
        await task.seal()
        await client.commit([task], 0, **LOAD)
        await nothing_left(world, life, rows)

    play(work)


def test_o3_an_abort_of_much_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who aborts a load of many rows is told that it failed, since they are not removed in time; or
    they lie there until the lease ends.
    """

    async def work(world: World, life: Life) -> None:
        resolve, chunks = life.txn.bulk.resolve_laid, 0

        async def slow(laid: Any, *args: Any, anchor: bytes) -> list[bytes]:
            nonlocal chunks
            missed = []
            for one in laid:
                await asyncio.sleep(1)
                chunks += 1
                missed += await resolve([one], *args, anchor=anchor)
            return missed

        monkeypatch.setattr(life.txn.bulk, "resolve_laid", slow)
        client = Client(life.sink, "a")
        tasks = await laid(world, life, client, some_rows(2_000, "v"))
        began = world.loop.time()
        await client.abort()
        assert world.loop.time() - began < limits.DEADLINE_MS_DEFAULT / 1000 / 2 + 1
        assert 0 < chunks < 10
        assert (await refusal(client.commit(tasks, 0, **LOAD))).code == "SINK_ABORTED"
        await life.sink.reap()
        assert world.intents() == []
        assert len(await world.staged()) == 1, "the attempt refuses until its lease ends"
        before = chunks
        await life.sink.reap()
        assert chunks == before
        await nothing_left_after_abort(world, life, client)

    play(work)
