"""First steps that are committed with their submission (docs/decisions/0520). That they end as
others do, crashed at every write, forward and back, is in test_procedures_crash.py (`swift`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvorum
from kv.base import limits
from kv.base.errors import KvorumError, Unavailable, UnknownOutcome, WriteConflict
from kv.base.ops import put
from kvorum.testing.simulation import loop as simloop
from procedures.engine import core, plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import Registry, procedure, step
from procedures.engine.runner import Died, Runner
from procedures.engine.store import Fenced
from procedures.engine.submission import Submission, check, create
from tests.kit.machine import free_port_base
from tests.procedures.engine.test_procedures_store import KEY, over
from tests.procedures.lab import Lab, refusal, run
from tests.procedures.stores import STORES, Looks
from tests.procedures.zoo import TYPES, Zoo, bump, wants


class Counting:
    """Passes everything on, counts writes by name, and does to `start` what the test says."""

    def __init__(self, inner: Any, start: Callable[[Awaitable[int]], Awaitable[int]] | None = None):
        self.inner = inner
        self.wrapped = start
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **kw: Any) -> Any:
            if name in ("insert", "start", "update", "remove"):
                self.writes.append(name)
            work = method(*args, **kw)
            return self.wrapped(work) if name == "start" and self.wrapped else work

        return call


@procedure("early.locked", locks=[p.exclusive("one/thing")])
class Locked(Zoo):
    @step(first=True, early=True)
    async def work(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "locked")
        return p.done(True)


@procedure("early.holder")
class Holder(Zoo):
    """Has a worker until the test opens the door."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        await self.lab.opened.wait()
        return p.done(True)


@procedure("early.event")
class Event(Zoo):
    """Waits for an event that comes while its step is under way, or tells one."""

    @step(first=True, early=True)
    async def work(self, ctx: StepContext) -> Outcome:
        if wants(ctx, "tell"):
            ctx.signal("the door")
            return p.done("told")
        await asyncio.sleep(0.005)
        if wants(ctx, "large"):
            ctx.state["page"] = "x" * limits.PROCEDURE_RECORD_CACHED_BYTES_MAX
        return p.suspend(event="the door", then="end", timeout_ms=10_000)

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done(ctx.wake)


TREE = {"depth": 1, "key": "", "do": []}
MORE = [Locked, Holder, Event, *TYPES]


def in_lab(
    test: Callable[[Lab, Counting, Executor], Awaitable[None]],
    *,
    workers: int = 4,
    start: Callable[[Awaitable[int]], Awaitable[int]] | None = None,
) -> Lab:
    labs: list[Lab] = []

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, MORE)
        store = Counting(lab.store, start)
        async with lab.executor(store, workers=workers) as executor:
            await test(lab, store, executor)
        labs.append(lab)

    simloop.run(main)
    return labs[0]


class _Deadly(Runner):
    """What runs a step ends under it, each time."""

    runs = 0

    async def run(self, *_: Any) -> Died:
        self.runs += 1
        return Died("by signal 9")


def test_u1_an_early_run_that_ends_its_process_is_counted() -> None:
    """The run before the submission was stored ended one process more than the rule allows."""

    async def main(loop: simloop.SimLoop) -> None:
        lab, runner = Lab(loop, MORE), _Deadly(1)
        async with lab.executor(runner=runner) as executor:
            id = await executor.submit(Submission("swift", None, "tester"))
            await asyncio.sleep(60)
            record = await executor.find(id)
            assert runner.runs == record.deaths == limits.PROCEDURE_DEATHS_MAX
            assert core.aside(record)
            assert [one.attempt for one in record.history] == [1, 2, 3]
            assert executor.counters()["early_dropped"] == 1
        runner.close()

    simloop.run(main)


def test_u1_submission_and_first_step_are_one_write() -> None:
    """Two writes in a row are two syncs: twice the time of a procedure of one step."""

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        record = await run(executor, "swift")
        assert (record.state, plain_data.decode(record.result)) == (State.SUCCESS, "swiftly")
        assert store.writes == ["start"]
        assert [one.step for one in await store.history(record, 10)] == ["begin"]
        assert lab.number("swift") == 1
        assert executor.counters()["early"] == 1
        await executor.acknowledge(record.id)
        assert lab.store.rows() == 0

    in_lab(test)


@pytest.mark.slow
def test_u1_it_is_so_at_a_node_and_obeys_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node declares limits of its own: were those in the way, nothing would ever be early; and
    one that its type has must be kept.
    """
    monkeypatch.setattr(limits, "PROCEDURE_EARLY_MS", 20_000)  # the machine may be busy
    base = free_port_base()
    modules = ["tests.procedures.console_procedures"]
    with kvorum.open(tmp_path / "data", port=base, procedure_modules=modules) as db:
        db.create_table("default", "t")
        for i in range(5):
            assert db.wait(db.submit("console.quick", f"k{i}")) == f"k{i}"
        assert _early(base) == 5
        db.set_limit("console.quick", max_concurrent=1, kind="type")
        for i in range(5, 10):
            assert db.wait(db.submit("console.quick", f"k{i}")) == f"k{i}"
        assert _early(base) == 5
        assert len(db.table("default", "t").scan().items) == 10


def _early(base: int) -> int:
    page = httpx.get(f"http://127.0.0.1:{base + 2}/metrics").text
    (line,) = re.findall(r"^kvorum_procedure_early_total (.*)$", page, re.MULTILINE)
    return int(float(line))


def test_j5_without_the_word_nothing_runs_before_it_is_stored() -> None:
    """A step with effects outside would have them for a submission that is lost."""

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        await run(executor, "three")
        assert store.writes[0] == "insert"
        assert "start" not in store.writes

    in_lab(test)


@pytest.mark.parametrize("how", ["lock", "busy", "queue", "slow", "token", "fail"])
def test_u1_what_cannot_be_early_goes_the_usual_way(how: str) -> None:
    """An early run would jump a queue, break a limit, act without its lock, hold up the caller, or
    tell others of something that is not stored.
    """

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        name, do = "swift", [how]
        if how == "lock":
            name = "early.locked"
        if how == "busy":
            await executor.submit(Submission("early.holder", None, "tester", ""))
            await asyncio.sleep(0.01)
        if how == "queue":
            # the only worker is taken, and one waits: neither may be overtaken
            for _ in range(2):
                await executor.submit(Submission("early.holder", None, "tester", ""))
        begun = lab.clock.now_ms()
        id = await executor.submit(Submission(name, {"do": do}, "tester", ""))
        assert lab.clock.now_ms() - begun <= limits.PROCEDURE_EARLY_MS + 1
        assert "insert" in store.writes
        assert "start" not in store.writes
        lab.opened.set()
        record = await executor.wait(id, 60_000)
        assert record.state is (State.FAILED if how == "fail" else State.SUCCESS)
        assert list(lab.outside.values()) == ([1] if how == "token" else [])
        if how == "slow":
            assert lab.calls["swift began"] == 2
            await run(executor, "swift", {"do": ["slow"]})
            assert lab.calls["swift began"] == 3, "a type that is too slow is tried again at once"

    in_lab(test, workers=1)


def test_u1_a_type_that_was_slow_once_is_tried_again_later() -> None:
    """One pause of the machine costs a type its early step until the master changes."""

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        async def early() -> bool:
            store.writes.clear()
            await run(executor, "swift")
            return "start" in store.writes

        first_s = limits.PROCEDURE_EARLY_REST_MS_FIRST / 1000
        for rest_s in (first_s, 2 * first_s, 4 * first_s):
            await run(executor, "swift", {"do": ["slow"]})
            await asyncio.sleep(0.9 * rest_s)
            assert not await early()
            await asyncio.sleep(0.2 * rest_s)  # the next try decides
        assert await early()
        await run(executor, "swift", {"do": ["slow"]})
        await asyncio.sleep(1.1 * first_s)
        assert await early(), "what was in time once begins anew"

    in_lab(test)


@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (Unavailable("no leader"), False),
        (WriteConflict("met another"), False),
        (UnknownOutcome("no answer"), False),
        (UnknownOutcome("no answer"), True),
    ],
)
def test_u1_whatever_becomes_of_the_write_it_happens_once(
    error: KvorumError, arrives: bool
) -> None:
    """A write that was perhaps done is asked for, not done again: no step counts twice."""

    async def lose(work: Awaitable[int]) -> int:
        if arrives:
            await work
        else:
            work.close()  # type: ignore[attr-defined]
        raise error

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        for do in ([], ["children"], ["more"]):
            record = await run(executor, "swift", {"do": do}, nonce=f"n{len(do)}{do}")
            assert record.state is State.SUCCESS
        assert lab.number("swift") == 3
        assert lab.number("leaf s1") == 1

    in_lab(test, start=lose)


def test_j4_the_same_nonce_at_the_same_moment_is_one() -> None:
    """Both would run early; one of them is stored, and only its writes are there."""

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        async def one() -> int:
            return await executor.submit(Submission("swift", None, "tester", "the nonce"))

        ids = await asyncio.gather(*(one() for _ in range(5)))
        assert len(set(ids)) == 1
        await executor.wait(ids[0], 1_000)
        assert lab.number("swift") == 1
        told = await refusal(executor.submit(Submission("three", None, "tester", "the nonce")))
        assert told.code == "NONCE_REUSED"

    in_lab(test)


def test_u1_events_of_early_steps_are_not_lost() -> None:
    """What is signalled while the step is on its way to the store wakes it; and what it signals."""

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        waits = asyncio.ensure_future(run(executor, "early.event"))
        await asyncio.sleep(0.002)
        executor.signal("the door")
        record = await waits
        assert plain_data.decode(record.result) == "event"
        sleeper = asyncio.ensure_future(run(executor, "early.event"))
        await asyncio.sleep(0.1)
        assert not sleeper.done()
        await run(executor, "early.event", {"do": ["tell"]})
        assert plain_data.decode((await sleeper).result) == "event"
        assert store.writes.count("start") == 3

    in_lab(test)


def test_u1_what_is_too_large_for_memory_is_woken_too() -> None:
    """One whose first step left a large record and waits was never woken: neither by its event nor
    at its time.
    """

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        for _ in range(2):
            await executor.submit(Submission("early.event", {"do": ["large"]}, "tester", ""))
        first, second = [live.id for live in executor.live()]
        assert store.writes == ["start", "start"]
        assert plain_data.decode((await executor.wait(first, 60_000)).result) == "timeout"
        third = await executor.submit(Submission("early.event", {"do": ["large"]}, "tester", ""))
        executor.signal("the door")
        assert plain_data.decode((await executor.wait(third, 1_000)).result) == "event"
        assert (await executor.wait(second, 1_000)).state is State.SUCCESS

    in_lab(test)


def test_u1_events_of_a_write_that_is_asked_for_are_not_lost() -> None:
    """A step signalled, its write arrived and the answer did not: nobody was woken."""

    async def lose(work: Awaitable[int]) -> int:
        await work
        raise UnknownOutcome("no answer")

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        sleeper = await executor.submit(Submission("early.event", None, "tester", ""))
        await run(executor, "early.event", {"do": ["tell"]})
        assert plain_data.decode((await executor.wait(sleeper, 1_000)).result) == "event"

    in_lab(test, start=lose)


def test_j15_a_tree_that_comes_late_waits_for_its_children() -> None:
    """What another executor still had on its way is taken in with its children: a parent that is
    taken in alone would go on as if they had ended.
    """

    async def test(lab: Lab, store: Counting, executor: Executor) -> None:
        types = Registry(TYPES)
        ok = check(Submission("swift", None, "me", ""), types)
        first = await lab.store.take_ids(3)
        record = create(ok, id=first, salt=b"12345678", now_ms=lab.clock.now_ms())
        ran = core.Ran(record.data, 1, 1_000, 1_001)
        leaves = p.children([("leaf", {"key": "late"}), ("tree", TREE)], then="end")
        change = core.advance(record, leaves, ran, types, first + 1)
        await lab.store.start(change)
        ended = await executor.wait(record.id, 60_000)
        assert ended.state is State.SUCCESS
        assert plain_data.decode(ended.result) == ["late", ["x", "y"]]
        assert lab.number("leaf late") == 1
        assert len(executor.live()) == 0

    in_lab(test)


def test_u1_early_means_first_and_async_and_nothing_outside() -> None:
    """A declaration that contradicts itself is told when the module is loaded."""
    for what, mark in (
        ("async", {"first": True}),
        ("first step", {}),
        ("outside", {"first": True, "undo": "back", "undo_partial": True}),
    ):
        plain_step = what == "async"

        def declare(mark: dict[str, Any] = mark, plain_step: bool = plain_step) -> None:
            def body(self: Any, ctx: Any) -> Outcome:
                return p.done()

            async def body_async(self: Any, ctx: Any) -> Outcome:
                return p.done()

            async def back(self: Any, ctx: Any) -> None: ...

            work = step(early=True, **mark)(body if plain_step else body_async)
            more: dict[str, Any] = {"work": work}
            if "undo" in mark:
                from procedures.engine.registry import undo

                more["back"] = undo(back)
            if not mark:
                more["first"] = step(first=True)(body)
            procedure("early.bad")(type("Bad", (), more))

        with pytest.raises(KvorumError, match=what) as told:
            declare()
        assert told.value.code == "PROCEDURE_DECLARATION"


@STORES
def test_l1_start_is_insert_and_update_in_one(kind: str) -> None:
    """A store that forgot the nonce, the children, the mark of what is live, or the writes."""

    async def test(store: Any, looks: Looks) -> None:
        types = Registry(TYPES)

        async def new(nonce: str) -> Any:
            ok = check(Submission("swift", None, "me", nonce), types)
            return create(ok, id=await store.take_ids(1), salt=b"12345678", now_ms=1_000)

        record = await new("n")
        children = p.children([("leaf", {"key": "a"})], then="end")
        ran = core.Ran(record.data, 1, 1_000, 1_001)
        change = core.advance(record, children, ran, types, await store.take_ids(1))
        version = await store.start(change, ops=[put(KEY, b"v")])
        stored = await store.load(record.id)
        assert (stored.version, stored.record.step) == (version, "end")
        assert await store.find_nonce("me", "n") == record.id
        live = [one.record.id for one in (await store.live(0, 10)).stored]
        assert live == [record.id, change.created[0].id]
        assert await looks.value(KEY) == b"v"

        for again in (change, core.advance(await new("n"), p.done(1), ran, types, 0)):
            with pytest.raises(Fenced):
                await store.start(again, ops=[put(KEY, b"w")])
        assert await looks.value(KEY) == b"v"
        assert await store.insert(record) == stored  # who lost the answer asks like this

        before = await looks.rows()
        done = core.advance(await new("m"), p.done(1), ran, types, 0)
        version = await store.start(done)
        ids, _ = await store.expired(done.record.updated_ms + done.record.retention_ms, 10)
        assert ids == [done.record.id]
        live = [one.record.id for one in (await store.live(0, 10)).stored]
        assert done.record.id not in live
        assert await looks.rows() > before
        await store.remove([await store.load(done.record.id)])
        assert await looks.rows() == before

    over(kind, test)
