"""What a batch's rows mean, who may commit under a name, and what is prepared, without Spark."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused
from kv.base.keys import table_prefix
from kv.base.ops import put
from kvorum.spark.sinks import SparkJobInfo, commit_all
from procedures.engine.procedure import State
from procedures.engine.submission import Submission
from procedures.pools import inbox
from procedures.sink.format.sink_parts import JOB_SIGNAL, SPARK_JOB
from procedures.sink.format.sink_records import About, AttemptState, Marker, attempt_of
from procedures.sink.sink_commit import SINK_COMMIT
from procedures.sink.sink_ports import attempt_by
from pyspark_kvorum.encoding import deletions, order_of
from tests.procedures.sink.world import (
    OTHER,
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


@pytest.fixture(params=["small", "large", "huge"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways of committing blindly, with the same rows."""
    if request.param != "small":
        monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 10)
    if request.param == "huge":
        monkeypatch.setattr(limits, "SINK_STEP_ROWS", 10)
        monkeypatch.setattr(limits, "SINK_STEP_CHUNKS", 2)
    return str(request.param)


async def staged(client: Client, *tasks: Rows) -> list[Task]:
    made = [Task(i, f"{client.attempt}-{i}", rows, chunk_rows=20) for i, rows in enumerate(tasks)]
    for task in made:
        await client.stage(task)
    return made


# ---------------------------------------------------------------------------- two rows with one key


@pytest.mark.parametrize("rounds", [1, 3])
def test_o6_duplicates_are_refused(path: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows with one key one is lost in silence, or a batch without any is refused."""
    monkeypatch.setattr(limits, "SINK_UNIQUE_ROWS", 100 if rounds == 1 else 30)

    async def work(world: World, life: Life) -> None:
        one, other = some_rows(40, "x"), some_rows(40, "y", first=40)
        good, bad = Client(life.sink, "good"), Client(life.sink, "bad")
        tasks = await staged(bad, one, other | {b"07/000007": b"again"})
        error = await refusal(bad.commit(tasks, 0, twice="refuse"))
        assert error.code == "SINK_DUPLICATE"
        assert "07/000007" in error.message
        assert await world.rows() == {}
        assert world.intents() == []
        await good.commit(await staged(good, one, other), 0, twice="refuse")
        assert await world.rows() == one | other

    play(work)


def test_o6_equal_hashes_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys whose hashes meet are taken for one."""
    from procedures.sink import staged_rows

    monkeypatch.setattr(staged_rows, "hash", lambda key: len(key), raising=False)

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await staged(client, some_rows(400, "x"))
        await client.commit(tasks, 0, twice="refuse")
        assert await world.rows() == some_rows(400, "x")

    play(work)


def test_o6_the_highest_order_stays() -> None:
    """Of rows with one key another one than the highest stays, or a deletion does not count."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        rows: list[Rows] = [{b"1": b"a", b"2": b"b", b"3": b"c"}, {b"1": b"A", b"2": None}]
        orders = [{b"1": b"9", b"2": b"1", b"3": b""}, {b"1": b"5", b"2": b"2"}]
        tasks = [Task(i, f"t{i}", rows[i], orders=orders[i]) for i in range(2)]
        for task in tasks:
            await client.stage(task)
        await life.txn.write([put(table_prefix(TABLE) + b"2", b"old")])
        await client.commit(tasks, 0, twice="order")
        assert await world.rows() == {b"1": b"a", b"3": b"c"}

    play(work)


def test_o6_too_many_rows_to_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose duplicates do not fit in memory ends the node instead of the batch."""
    monkeypatch.setattr(limits, "SINK_ORDERED_ROWS_MAX", 10)

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await staged(client, some_rows(20, "x"))
        error = await refusal(client.commit(tasks, 0, twice="order"))
        assert error.code == "SINK_TOO_MANY_ROWS"
        assert await world.rows() == {}

    play(work)


# ----------------------------------------------------------------------- replacing, several tables


def test_o3_replacing_is_atomic_at_every_snapshot() -> None:
    """Some snapshot has rows of both, or of neither."""

    async def work(world: World, life: Life) -> None:
        old, new = some_rows(200, "old"), some_rows(150, "new", first=100)
        first, second = Client(life.sink, "a"), Client(life.sink, "b")
        await first.commit(await staged(first, old), 0)
        stop = asyncio.Event()

        async def watch() -> int:
            looks = 0
            while not stop.is_set():
                assert await world.rows() in (old, new)
                looks += 1
                await asyncio.sleep(0.001)
            return looks

        async with asyncio.TaskGroup() as group:
            looks = group.create_task(watch())
            await second.commit(await staged(second, new), 1, replace=[b"", b"", ""])
            stop.set()
        assert looks.result() > 3
        assert await world.rows() == new
        third = Client(life.sink, "c")
        await third.commit([], 2, replace=[b"40", b"", ""])
        assert await world.rows() == {k: v for k, v in new.items() if k < b"40"}
        await life.idle()
        assert await world.staged() == []

    play(work)


def test_o6_a_row_that_is_changed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that only inserts replaces a row that came between its look and its commit."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await staged(client, {b"5": b"mine"})
        key = table_prefix(TABLE) + b"5"
        plain_begin, raced = life.txn.begin, []

        async def begin(**options: Any) -> Any:
            t = await plain_begin(**options)
            if not raced:
                raced.append(await world.store.txn.write([put(key, b"theirs")]))
            return t

        monkeypatch.setattr(life.txn, "begin", begin)
        error = await refusal(client.commit(tasks, 0, fresh=True))
        assert error.code == "SINK_KEY_EXISTS"
        assert await world.rows() == {b"5": b"theirs"}

    play(work)


def test_o10_bad_parts_are_refused() -> None:
    """A wrong mode is ignored."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        for wrong, text in (
            ({"twice": "maybe"}, "twice"),
            ({"replace": [b"b", b"a", ""]}, "replace"),
            ({"replace": ["a", "b"]}, "replace"),
        ):
            error = await refusal(client.commit([], 0, **wrong))
            assert isinstance(error, InvalidArgument)
            assert text in error.message

    play(work)


# ----------------------------------------------------------------------------------- names, levels


def test_o11_a_query_that_was_replaced_is_fenced() -> None:
    """After a reset the old query commits, even if it resets, too; or the new one cannot go on."""

    async def work(world: World, life: Life) -> None:
        async def batch(name: str, version: int, query: str, **more: Any) -> KvorumError | None:
            client = Client(life.sink, name)
            tasks = await staged(client, {b"1": name.encode()})
            try:
                await client.commit(tasks, version, query=query, **more)
            except KvorumError as error:
                return error
            return None

        for version in range(3):
            assert await batch(f"a{version}", version, "old") is None
        error = await batch("b", 0, "new")
        assert error is not None
        assert (error.code, "resetTxnApp" in error.message) == ("SINK_OTHER_QUERY", True)
        assert await batch("c", 0, "new", reset=True) is None
        assert await batch("d", 0, "new", reset=True) is None, "a replay"
        assert await batch("e", 1, "new", reset=True) is None
        for more in ({}, {"reset": True}):
            error = await batch(f"f{len(more)}", 3, "old", **more)
            assert error is not None
            assert error.code == "SINK_FENCED"
        assert await world.rows() == {b"1": b"e"}

    play(work)


def test_o11_retired_queries_are_bounded() -> None:
    """The ledger of an application that is reset every day grows for ever."""
    marker = Marker(5, "q0")
    for number in range(1, 50):
        marker = Marker.unpack(marker.follow(0, f"q{number}").pack())
    assert marker.query == "q49"
    assert marker.retired == tuple(f"q{i}" for i in range(49 - limits.SINK_RETIRED_MAX, 49))


def test_a_batch_of_an_older_checkpoint_is_told() -> None:
    """A checkpoint that is older than the table plans other batches under numbers that are taken:
    taken for replays, their rows are lost without a word.
    """

    async def work(world: World, life: Life) -> None:
        async def batch(name: str, version: int, digest: Any = None, **more: Any) -> Any:
            client = Client(life.sink, name)
            more |= {"query": "q"} | ({} if digest is None else {"digest": digest})
            try:
                await client.commit(
                    await staged(client, {b"%d" % version: name.encode()}), version, **more
                )
            except KvorumError as error:
                return error
            return None

        assert await batch("old", 0) is None  # of a program that told no digests
        assert await batch("again", 0, [1, 77]) is None, "nothing is known of it"
        for version in (1, 2, 3):
            assert await batch(f"a{version}", version, [1, version]) is None
        assert await batch("replay", 3, [1, 3]) is None
        assert await batch("older", 2, [1, 2]) is None, "the same batch, from an older checkpoint"
        assert await batch("untold", 2) is None
        for version, digest, why in (
            (3, [2, 3], "1 rows"),
            (2, [1, 9], "other contents"),
            (0, [1, 0], "too long ago"),
        ):
            error = await batch(f"b{version}", version, digest)
            assert error is not None, version
            assert (error.code, why in error.message) == ("SINK_OTHER_BATCH", True), error.message
        assert await world.rows() == {b"0": b"old", b"1": b"a1", b"2": b"a2", b"3": b"a3"}
        assert await batch("c2", 2, [1, 9], reset=True) is None
        assert await batch("c2 again", 2, [1, 9], reset=True) is None, "a replay"
        assert await batch("c3", 3, [1, 10]) is None
        assert (await world.rows())[b"2"] == b"c2"
        assert (await world.rows())[b"3"] == b"c3"
        error = await batch("d", 4, [1])
        assert error is not None
        assert error.code == "INVALID_ARGUMENT"

    play(work)


def test_digests_of_batches_are_bounded_and_read_beside_older_markers() -> None:
    """A marker grows with each batch, or one of an older program cannot be read."""
    assert Marker.unpack(Marker(5, "q").pack()) == Marker(5, "q")
    assert Marker.unpack(Marker(5, "q", ("p",)).pack()) == Marker(5, "q", ("p",))
    marker = Marker(0, "q")
    for version in range(1, 100):
        marker = Marker.unpack(marker.follow(version, "q", (version, 7)).pack())
    assert len(marker.digests) == limits.SINK_DIGESTS_MAX
    assert (marker.digest(99), marker.digest(1)) == ((99, 7), None)
    assert marker.follow(0, "other").digests == ()


def test_o1_at_most_once_loses_what_is_refused() -> None:
    """At most once: a batch that cannot be committed is tried again, or its caller waits."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await staged(client, {b"1": b"x"}, {b"1": b"y"})
        request = client.request(tasks, 0, twice="refuse", early=True)
        assert await life.sink.commit(request, wait_ms=5_000) == [0]
        await life.idle()
        assert await world.rows() == {}
        replay = Client(life.sink, "b")
        await replay.commit(await staged(replay, {b"1": b"x"}), 0, early=True)
        await life.idle()
        assert await world.rows() == {b"1": b"x"}, "it was refused before its marker"
        huge = Client(life.sink, "c")
        await huge.commit(await staged(huge, some_rows(400, "z")), 1, early=True)
        again = Client(life.sink, "d")
        await again.commit(await staged(again, {b"1": b"again"}), 1, early=True)
        await life.idle()
        assert await world.rows() == some_rows(400, "z") | {b"1": b"x"}

    play(work)


def test_o5_every_batch_begins_an_attempt_of_its_own() -> None:
    """An attempt that is committed takes rows of the next batch."""

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        assert await life.sink.begin("a", TABLE, limits.SINK_LEASE_MS) == ["OPEN"], "at init"
        assert await life.sink.begin("a", TABLE, limits.SINK_LEASE_MS) == ["OPEN"], "reused"
        await client.commit(await staged(client, {b"1": b"x"}), 0)
        late = Task(0, "late", {b"2": b"y"})
        await client.stage(late)  # opens it anew: nobody's
        error = await refusal(
            life.sink.commit(client.request([Task(0, "a-0", {b"1": b"x"}), late], 1), wait_ms=5_000)
        )
        assert error.code == "SINK_MANIFEST"
        assert await world.rows() == {b"1": b"x"}

    play(work)


# -------------------------------------------------------------------------------- prepared, expired


@pytest.mark.slow
def test_o9_an_attempt_says_that_its_lease_ended(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished work goes without a word: neither its driver nor an operator learns why."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(limits, "SINK_EXPIRED_MS", 2 * limits.SINK_LEASE_MS)

    async def work(world: World, life: Life) -> None:
        client = Client(life.sink, "a")
        tasks = await staged(client, {b"1": b"x"})
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        assert await life.sink.reap() == 1
        assert await world.staged() == []
        assert await world.expired() == ["a"]
        error = await refusal(client.commit(tasks, 0))
        assert (error.code, "its lease ended" in error.message) == ("SINK_ATTEMPT_GONE", True)
        assert (await refusal(client.stage(tasks[0]))).code == "SINK_NOT_OPEN"
        await asyncio.sleep(limits.SINK_EXPIRED_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.expired() == []

    play(work)
    assert "had finished tasks; its lease ended" in caplog.text


async def job_of(life: Life, app: str, version: int, nonce: str) -> int:
    args = {"app": app, "version": version, "name": app}
    return int(await life.executor.submit(Submission(SPARK_JOB, args, "spark", nonce)))


async def tell(life: Life, job: int, told: Any) -> None:
    """As PROC_CONTROL does."""
    from procedures.engine import plain_data

    await inbox.Senders(life.txn).send(
        job, JOB_SIGNAL, plain_data.pack(told), None, life.executor.reign
    )
    life.executor.signal(inbox.signal_event(job, JOB_SIGNAL))


def added(client: Client, tasks: list[Task], ordinal: int) -> dict[str, Any]:
    manifest = [task.manifest for task in tasks]
    part = {"attempt": client.attempt, "table": client.table, "manifest": manifest}
    return {"do": "add", "ordinal": ordinal, "table": f"t{client.table}", "part": part}


@pytest.mark.slow
def test_o10_prepared_work_waits_for_a_decision(caplog: pytest.LogCaptureFixture) -> None:
    """What a job has prepared expires, is committed in part, or a second try of a write counts."""
    caplog.set_level(logging.WARNING)
    assert limits.SINK_PREPARED_WARN_MS > limits.SINK_LEASE_MS

    async def work(world: World, life: Life) -> None:
        job = await job_of(life, "nightly", 1, "n")
        one, other = Client(life.sink, "one"), Client(life.sink, "other", OTHER)
        twin = Client(life.sink, "twin")
        for ordinal, client in ((0, one), (1, other), (0, twin)):
            rows: Rows = {b"1": client.attempt.encode()}
            await tell(life, job, added(client, await staged(client, rows), ordinal))
            await asyncio.sleep(0.5)
        await asyncio.sleep(limits.SINK_PREPARED_WARN_MS / 1000)
        await life.sink.reap()
        assert await world.rows() == {}
        await tell(life, job, {"do": "commit"})
        record = await life.executor.wait(job, 20_000)
        assert record.state is State.SUCCESS, record.error
        assert await world.rows() == {b"1": b"one"}
        assert await world.rows(OTHER) == {b"1": b"other"}
        again = await job_of(life, "nightly", 1, "m")
        record = await life.executor.wait(again, 20_000)
        assert record.state is State.SUCCESS, "a version that is done is skipped"
        await life.idle()
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.staged() == []

    play(work)
    assert "commit or abort the job" in caplog.text


def test_o10_a_write_that_was_told_of_in_part() -> None:
    """A program that died between two pieces of a manifest lost the rows of the second."""

    async def work(world: World, life: Life) -> None:
        from procedures.sink.format.sink_records import AttemptState

        job = await job_of(life, "nightly", 1, "n")
        first, second = Client(life.sink, "first"), Client(life.sink, "second")
        tasks = await staged(first, {b"1": b"a"}, {b"2": b"a"})
        await tell(life, job, added(first, tasks[:1], 0) | {"tasks": 2})
        await asyncio.sleep(0.5)
        row, _ = await attempt_by(life.txn.get, "first")
        assert row is not None
        assert row.state is AttemptState.OPEN, "else the next run would take it for prepared"
        again = await staged(second, {b"1": b"b"}, {b"2": b"b"})
        for task in again:
            await tell(life, job, added(second, [task], 0) | {"tasks": 2})
            await asyncio.sleep(0.5)
        await tell(life, job, {"do": "commit"})
        record = await life.executor.wait(job, 20_000)
        assert record.state is State.SUCCESS, record.error
        assert await world.rows() == {b"1": b"b", b"2": b"b"}

        half = await job_of(life, "nightly", 2, "m")
        third = Client(life.sink, "third")
        tasks = await staged(third, {b"3": b"c"}, {b"4": b"c"})
        await tell(life, half, added(third, tasks[:1], 0) | {"tasks": 2})
        await tell(life, half, {"do": "commit"})
        record = await life.executor.wait(half, 20_000)
        assert record.error is not None
        assert record.error.code == "SINK_NOT_WHOLE"
        assert await world.rows() == {b"1": b"b", b"2": b"b"}

    play(work)


def test_o10_a_job_whose_part_was_aborted() -> None:
    """A job is committed without a part that an operator let go of."""

    async def work(world: World, life: Life) -> None:
        job = await job_of(life, "nightly", 1, "n")
        one, other = Client(life.sink, "one"), Client(life.sink, "other", OTHER)
        for ordinal, client in enumerate((one, other)):
            tasks = await staged(client, {b"1": b"x"})
            await tell(life, job, added(client, tasks, ordinal))
            await asyncio.sleep(0.5)
        await other.abort()
        await tell(life, job, {"do": "commit"})
        record = await life.executor.wait(job, 20_000)
        assert record.state is State.ROLLED_BACK
        assert await world.rows() == await world.rows(OTHER) == {}
        await life.idle()
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 1)
        await life.sink.reap()
        assert await world.staged() == []

    play(work)


def test_o10_a_commit_that_rests_behind_its_transaction() -> None:
    """A master that comes back after more than a lease says of a committed batch that it failed."""

    async def work(world: World, life: Life) -> None:
        from procedures.sink.format.sink_records import Attempt, AttemptState, attempt_key

        job = await job_of(life, "nightly", 1, "n")  # goes on, as a commit that waits for a master
        row = Attempt(AttemptState.DONE, TABLE, world.clock.now_ms() - 1, job)
        await life.txn.write([put(attempt_key("a"), row.pack())])
        assert await life.sink.reap() == 0
        await tell(life, job, {"do": "commit"})
        await life.executor.wait(job, 20_000)
        assert await life.sink.reap() == 1

    play(work)


@pytest.mark.parametrize("end", ["commit", "abort", "expire"])
def test_o10_what_an_attempt_says_of_itself_stays(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose staged work it is, and of which batch, is forgotten with its next lease or state."""
    monkeypatch.setattr(limits, "SINK_SMALL_ROWS", 1)

    async def work(world: World, life: Life) -> None:
        async def about() -> tuple[About, AttemptState]:
            found, _ = await attempt_by(life.txn.get, "a")
            assert found is not None
            return found.about, found.state

        client, lease = Client(life.sink, "a"), limits.SINK_LEASE_MS
        await life.sink.begin("a", TABLE, lease, user="ann")
        said, state = await about()
        assert (said.user, said.app, state) == ("ann", "", AttemptState.OPEN)
        assert 0 < said.began_ms <= world.clock.now_ms()
        await asyncio.sleep(lease * 0.6 / 1000)
        tasks = await staged(client, {b"1": b"x", b"2": b"y"})
        await asyncio.sleep(lease * 0.6 / 1000)
        assert await about() == (said, AttemptState.OPEN), "its lease was renewed"
        if end == "expire":
            await asyncio.sleep(lease / 1000)
            await life.sink.reap()
            assert await about() == (said, AttemptState.EXPIRED)
            return
        job = await job_of(life, "nightly", 7, "n")
        await tell(life, job, added(client, tasks, 0))
        while (await about())[1] is AttemptState.OPEN:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
        said = replace(said, app="nightly", version=7)
        assert await about() == (said, AttemptState.PREPARED)
        if end == "abort":
            await client.abort()
            assert await about() == (said, AttemptState.ABORTED)
            return
        await tell(life, job, {"do": "commit"})
        while (await about())[1] is AttemptState.PREPARED:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        assert await about() == (said, AttemptState.COMMITTING)
        await life.executor.wait(job, 20_000)

    play(work)


def test_o10_what_a_bypassed_commit_left_can_be_aborted() -> None:
    """A commit that was ended by force keeps its attempt for ever."""

    async def work(world: World, life: Life) -> None:
        from procedures.sink.format.sink_records import Attempt, AttemptState, attempt_key

        client = Client(life.sink, "a")
        await staged(client, {b"1": b"x"})
        row = Attempt(AttemptState.COMMITTING, TABLE, 1 << 62, 987_654)
        await life.txn.write([put(attempt_key("a"), row.pack())])
        await client.abort()
        assert (await refusal(client.stage(Task(0, "t", {b"1": b"x"})))).code == "SINK_NOT_OPEN"

    play(work)


@pytest.mark.slow
def test_o10_what_a_bypassed_commit_left_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was ended by force keeps its staging for ever; or the staging of one that goes
    on, or is being cleaned, goes with it.
    """
    monkeypatch.setattr(limits, "SINK_EXPIRED_MS", limits.SINK_LEASE_MS + 60_000)

    async def work(world: World, life: Life) -> None:
        from procedures.sink.format.sink_records import Attempt, AttemptState, attempt_key

        ended = await job_of(life, "nightly", 1, "n")
        await life.executor.surgeon.bypass(ended, "stuck", "me", override=True)
        goes_on = await job_of(life, "nightly", 2, "m")
        for name, procedure in (("a", ended), ("b", goes_on), ("c", 987_654)):
            await staged(Client(life.sink, name), {b"1": b"x"})
            row = Attempt(AttemptState.COMMITTING, TABLE, 1 << 62, procedure)
            await life.txn.write([put(attempt_key(name), row.pack())])
        assert await life.sink.reap() == 1
        assert sorted({attempt_of(key) for key in await world.staged()}) == ["b", "c"]
        await asyncio.sleep(limits.SINK_EXPIRED_MS / 1000 + 1)
        assert await life.sink.reap() == 1, "nobody knows of this commit any more"
        assert sorted({attempt_of(key) for key in await world.staged()}) == ["b"]

    play(work)


def test_o10_a_commit_aborted_behind_its_flip_says_that_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch without an application that is visible is told to have failed: nobody has a marker
    to look at, so it is written twice.
    """
    monkeypatch.setattr(limits, "SINK_STEP_ROWS", 10)

    async def work(world: World, life: Life) -> None:
        bulk = life.txn.bulk
        flip = bulk.commit

        async def aborted_behind(*args: Any) -> Any:
            told = await flip(*args)
            await life.executor.abort(ids[0], "by hand")
            return told

        monkeypatch.setattr(bulk, "commit", aborted_behind)
        rows = some_rows(400, "a")
        client = Client(life.sink, "a")
        request = client.request(await staged(client, rows), 0, app="")
        ids = await life.sink.commit(request, wait_ms=0)
        record = await life.executor.wait(ids[0], 20_000)
        assert record.state is State.ROLLED_BACK
        assert await life.sink.commit(request, wait_ms=5_000) == [0]
        assert await world.rows() == rows
        await life.idle()
        assert await world.staged() == []

    play(work)


@pytest.mark.parametrize("app", ["", "app"])
def test_o10_a_bypassed_commit_is_not_said_to_have_failed(
    monkeypatch: pytest.MonkeyPatch, app: str
) -> None:
    """A commit that was ended by force, perhaps behind its flip, is told to have written nothing;
    or a job whose commit was is told to be done.
    """
    monkeypatch.setattr(limits, "SINK_STEP_ROWS", 10)

    async def work(world: World, life: Life) -> None:
        async def never(*args: Any) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr(life.txn.bulk, "commit", never)
        client = Client(life.sink, "a")
        request = client.request(await staged(client, some_rows(400, "a")), 0, app=app)
        (id,) = await life.sink.commit(request, wait_ms=0)
        await asyncio.sleep(5)
        await life.executor.surgeon.bypass(id, "stuck", "me", override=True)
        error = await refusal(life.sink.commit(request, wait_ms=5_000))
        assert (error.code, str(id) in error.message) == ("SINK_UNKNOWN", True)

        job = await job_of(life, "nightly", 1, "n")
        other = Client(life.sink, "other", OTHER)
        await tell(life, job, added(other, await staged(other, some_rows(400, "b")), 0))
        await asyncio.sleep(0.5)
        await tell(life, job, {"do": "commit"})
        await asyncio.sleep(5)
        (child,) = [one.id for one in life.executor.live_of(SINK_COMMIT)]
        await life.executor.surgeon.bypass(child, "stuck", "me", override=True)
        record = await life.executor.wait(job, 20_000)
        assert record.error is not None
        assert record.error.code == "SINK_UNKNOWN"

    play(work)


@pytest.mark.slow
def test_o10_a_job_that_nobody_can_take_up_ends_with_its_program() -> None:
    """The staging of a program that died stays until an operator looks; or that of one that works
    for hours between two writes goes.
    """

    async def work(world: World, life: Life) -> None:
        args = {"app": "x-random", "version": 0, "name": "x", "once": True}
        job = await life.executor.submit(Submission(SPARK_JOB, args, "spark", "n"))
        kept = await job_of(life, "nightly", 1, "m")
        for ordinal, (id, name) in enumerate(((job, "one"), (kept, "two"))):
            client = Client(life.sink, name)
            await tell(life, id, added(client, await staged(client, {b"1": b"a"}), ordinal))
        for _ in range(3):
            await asyncio.sleep(limits.SINK_JOB_SILENT_MS / 1000 - 5)
            await tell(life, job, {"do": "alive"})
        assert not (await life.executor.wait(job, 0)).ended
        await asyncio.sleep(limits.SINK_JOB_SILENT_MS / 1000 + 5)
        record = await life.executor.wait(job, 20_000)
        assert record.error is not None
        assert record.error.code == "SINK_JOB_SILENT"
        await asyncio.sleep(limits.SINK_LEASE_MS / 1000 + 5)
        await life.sink.reap()
        assert {attempt_of(key) for key in await world.staged()} == {"two"}
        assert not (await life.executor.wait(kept, 0)).ended, "it can be resumed"

    play(work)


JOBS = [
    # versions that fail, what is committed, which error is raised
    (set(), [1, 2, 3], None),
    ({2}, [1, 3], 2),
    ({1, 3}, [2], 1),
    ({1, 2, 3}, [], 1),
]


@pytest.mark.parametrize(("failing", "wanted", "first"), JOBS)
def test_o7_all_pending_are_tried_and_the_first_error_is_raised(
    failing: set[int], wanted: list[int], first: int | None
) -> None:
    """One job that cannot be committed keeps the others back, or its error is lost."""
    jobs = [SparkJobInfo(v, "app", v, "WAITING", "gather", 1, "") for v in (1, 2, 3)]
    done: list[int] = []

    def commit(job: int) -> None:
        if job in failing:
            raise Refused(f"job {job} is refused", code="SINK_MANIFEST")
        done.append(job)

    if first is None:
        assert commit_all(jobs, commit) == wanted
    else:
        with pytest.raises(Refused, match=f"job {first} is refused") as caught:
            commit_all(jobs, commit)
        assert caught.value.details["committed"] == [str(job) for job in wanted]
        assert f"version {first}) was not committed" in caught.value.__notes__[0]
    assert done == wanted


# ---------------------------------------------------------------------------------------- encoding


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, -5, 2**40]),
        pa.array([1.5, None, float("-inf"), -0.0, 2.0]),
        pa.array(["b", None, "", "a", "ab\x00", "ab"]),
        pa.array([True, None, False]),
        pa.array([5, None, -1], pa.timestamp("ms")),
        pa.array([5, None, -1], pa.date32()),
        pa.array([Decimal("1.50"), None, Decimal(-3), Decimal(20)], pa.decimal128(9, 2)),
    ],
)
def test_o6_orders_compare_as_values_do(values: pa.Array) -> None:
    """dedupeBy keeps a lower value, or NULL wins."""
    plain = values.to_pylist()
    encoded = order_of(values)
    for a, x in zip(plain, encoded, strict=True):
        for b, y in zip(plain, encoded, strict=True):
            lower = b is not None and (a is None or a < b)
            assert (x < y) is lower, (a, b)


def test_o6_operations_are_words_or_letters() -> None:
    """An operation is misread."""
    ops = pa.array(["I", "u", " delete ", "UPDATE", "D"])
    assert deletions(ops, "op") == [False, False, True, False, True]
    with pytest.raises(InvalidArgument, match="None; it must be I or U"):
        deletions(pa.array(["I", None]), "op")
