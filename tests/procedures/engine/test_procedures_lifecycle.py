"""The life of procedures: J2 to J8, J10, J11, J13, J14, timeouts, aborts, signals. Virtual time."""

from __future__ import annotations

import asyncio
import tracemalloc
from itertools import groupby
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import KvorumError, NotFound, Refused, TooLarge, UnknownOutcome
from kvorum.testing.simulation import loop as simloop
from procedures.engine import core, plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.core import Change, Flow, Ran
from procedures.engine.procedure import Outcome, State
from procedures.engine.records import Record
from procedures.engine.registry import Registry, procedure, step, undo
from procedures.engine.scheduler import Entry, FairScheduler
from procedures.engine.submission import Submission, check, create
from procedures.engine.view import info, shown_state
from tests.procedures.lab import CrashingStore, Lab, LaggingStore, crashed, refusal, run
from tests.procedures.zoo import TYPES, Zoo, bump


@procedure("gate")
class Gate(Zoo):
    """Each step waits until the test lets it pass."""

    @step(first=True)
    async def one(self, ctx: StepContext) -> Outcome:
        await self.enter(ctx)
        return p.next("two")

    @step
    async def two(self, ctx: StepContext) -> Outcome:
        await self.enter(ctx)
        return p.done()

    async def enter(self, ctx: StepContext) -> None:
        assert ctx.id not in self.lab.running, "one procedure on two workers"
        self.lab.running.add(ctx.id)
        self.lab.calls["most"] = max(self.lab.calls.get("most", 0), len(self.lab.running))
        try:
            await self.lab.opened.wait()
            await bump(ctx, f"gate {ctx.id}")
        finally:
            self.lab.running.discard(ctx.id)


@procedure("slow", timeout_ms=2_000)
class Slow(Zoo):
    """Ends by its timeout: asleep, or waiting for a child that is."""

    @step(first=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "slow")
        if ctx.args["how"] == "child":
            return p.children([("sleeper", None)], then="never")
        return p.suspend(event="never", then="never")

    @step
    async def never(self, ctx: StepContext) -> Outcome:
        return p.done("too late")

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "slow", -1)


@procedure("sleeper")
class Sleeper(Zoo):
    @step(first=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "sleeper")
        return p.suspend(timeout_ms=3_600_000, then="wake")

    @step
    async def wake(self, ctx: StepContext) -> Outcome:
        return p.done()

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "sleeper", -1)


ALL = [*TYPES, Gate, Slow, Sleeper]


def in_lab(test: Any, seed: int = 0) -> None:
    """Run `test(lab)` in virtual time."""

    async def main(loop: simloop.SimLoop) -> None:
        await test(Lab(loop, ALL, seed=seed))

    simloop.run(main, seed)


def submission(name: str, args: Any = None, nonce: str = "") -> Submission:
    return Submission(name, args, "tester", nonce)


# ------------------------------------------------------------------------------ states
def test_j2_states_and_steps_are_shown() -> None:
    """A reader could not tell what a procedure is doing: run state, own step, what it did."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("waiter"))
            await asyncio.sleep(1)
            record = await executor.find(id)
            assert shown_state(record) == ("WAITING", "look")
            assert [e.step for e in record.history] == ["look"]
            record = await run(executor, "three", {"do": ["fail three"]})
            told = info(record, record.history, lab.clock.now_ms())
            assert told["state"] == "ROLLED_BACK"
            assert [(e["step"], e["outcome"]) for e in told["steps"]] == [
                ("one", "next"),
                ("two", "next"),
                ("three", "fail:NO"),
                ("undo:un_two", "undone"),
                ("undo:un_one", "undone"),
            ]
            assert told["error"]["message"] == "three does not want to"

    in_lab(test)


def test_j2_rollback_is_shown_as_runnable() -> None:
    """A rollback under way looked like an end, or like a forward step."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("three", {"do": ["fail two", "bad undo"]}))
            await asyncio.sleep(0.005)  # the undo failed for the first time, and pauses
            record = await executor.find(id)
            assert record.state is State.ROLLING_BACK
            assert shown_state(record) == ("RUNNABLE", "undo:un_one")
            live = executor.live_one(id)
            assert live is not None
            assert live.retry is not None
            assert live.retry.message == "undo is broken, too"
            assert (await executor.wait(id, 60_000)).state is State.ROLLED_BACK

    in_lab(test)


def test_j2_undoing_children_is_shown_as_their_round() -> None:
    """A round of children has no undo method of its own: while its children were undone, the
    parent's step was empty.
    """

    async def test(lab: Lab) -> None:
        shown: list[tuple[str, str]] = []
        update = lab.store.update

        async def noted(version: int, change: Change, **more: Any) -> int:
            if change.record.name == "rounds":
                shown.append(shown_state(change.record))
            return await update(version, change, **more)

        lab.store.update = noted
        async with lab.executor() as executor:
            id = await executor.submit(submission("rounds", {"do": ["fail end"]}))
            await executor.wait(id, 60_000)
        undoing = [step for state, step in shown if state == "RUNNABLE" and step[:5] == "undo:"]
        assert [step for step, _ in groupby(undoing)] == [
            *("undo:children", "undo:un_middle"),
            *("undo:children", "undo:un_begin"),
        ]

    in_lab(test)


# ------------------------------------------------------------------------------ submission
@pytest.mark.parametrize(
    ("sub", "code"),
    [
        (Submission("three", None, ""), "OWNER_MISSING"),
        (Submission("three", None, "x" * 201), "INVALID_ARGUMENT"),
        (Submission("three", None, "me", parent=7), "PARENT_FORBIDDEN"),
        (Submission("three", None, "me", step="two"), "NOT_INITIAL"),
        (Submission("three", None, "me", state=State.WAITING), "NOT_INITIAL"),
        (Submission("nobody", None, "me"), "PROCEDURE_UNKNOWN"),
        (Submission("three", {1: 2}, "me"), "INVALID_ARGUMENT"),
        (Submission("three", {"a": [object()]}, "me"), "INVALID_ARGUMENT"),
        (Submission("three", {"a": {1, 2}}, "me"), "INVALID_ARGUMENT"),
        (Submission("three", 1 << 64, "me"), "INVALID_ARGUMENT"),
        (Submission("three", "\ud800", "me"), "INVALID_ARGUMENT"),
        (Submission("three", b"x" * (1 << 20), "me"), "TOO_LARGE"),
        (Submission("three", None, "me", "n" * 201), "INVALID_ARGUMENT"),
    ],
)
def test_j3_bad_submission_stores_nothing(sub: Submission, code: str) -> None:
    """A submission that cannot be was stored, or refused without a code of its own."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            assert (await refusal(executor.submit(sub))).code == code
            assert lab.store.rows() == 0

    in_lab(test)


def test_j3_deep_arguments() -> None:
    """Arguments nested without end broke the encoder instead of being refused."""
    deep: Any = []
    for _ in range(limits.PLAIN_DEPTH_MAX + 5):
        deep = [deep]

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            assert (await refusal(executor.submit(submission("three", deep)))).code == (
                "INVALID_ARGUMENT"
            )

    in_lab(test)


def test_j4_nonce() -> None:
    """The same nonce started a second procedure: while running, when done, or after a restart."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("waiter", None, "n"))
            assert await executor.submit(submission("waiter", None, "n")) == id
            other = await executor.submit(Submission("waiter", None, "somebody else", "n"))
            assert other != id
            wrong = await refusal(executor.submit(submission("three", None, "n")))
            assert wrong.code == "NONCE_REUSED"
        async with lab.executor() as executor:
            assert await executor.submit(submission("waiter", None, "n")) == id
            executor.signal("ready")  # wakes it: it looks, and suspends again
            await executor.abort(id, "enough")
            assert (await executor.wait(id, 1_000)).ended
            assert await executor.submit(submission("waiter", None, "n")) == id
            await executor.acknowledge(id)
            assert await executor.submit(submission("waiter", None, "n")) != id

    in_lab(test)


def test_j4_same_nonce_at_the_same_moment() -> None:
    """Two submissions that race with one nonce became two procedures."""

    async def test(lab: Lab) -> None:
        async with lab.executor(LaggingStore(lab.store, lab.rng)) as executor:
            ids = await asyncio.gather(
                *(executor.submit(submission("three", None, "n")) for _ in range(10))
            )
            assert len(set(ids)) == 1
            await executor.wait(ids[0], 60_000)
        assert lab.number("one") == 1

    in_lab(test)


def test_j5_stored_before_scheduled() -> None:
    """A crash between storing and scheduling lost a procedure."""

    async def test(lab: Lab) -> None:
        try:
            async with lab.executor(CrashingStore(lab.store, 1, after=True)) as executor:
                await executor.submit(submission("three"))
        except BaseException as error:
            if not crashed(error):
                raise
        assert lab.number("one") == 0
        async with lab.executor() as executor:
            (live,) = executor.live()
            assert (await executor.wait(live.id, 1_000)).state is State.SUCCESS

    in_lab(test)


def test_j5_unknown_outcome_of_a_submission() -> None:
    """An insert whose answer was lost was reported as failed, or stored twice."""

    class Deaf(CrashingStore):
        async def insert(self, record: Record, reign: int = 0) -> Any:
            self.writes += 1
            stored = await self.inner.insert(record, reign)
            if self.writes % 3:
                raise UnknownOutcome("no answer")
            return stored

    async def test(lab: Lab) -> None:
        async with lab.executor(Deaf(lab.store)) as executor:
            id = await executor.submit(submission("three"))
            assert (await executor.wait(id, 1_000)).state is State.SUCCESS
            assert [live.id for live in executor.live()] == []
        assert lab.number("one") == 1

    in_lab(test)


# ------------------------------------------------------------------------------ workers
def test_j6_workers_change_live() -> None:
    """More workers did not start, or fewer did not stop, while procedures run."""

    async def test(lab: Lab) -> None:
        async with lab.executor(workers=2) as executor:
            for _ in range(20):
                await executor.submit(submission("gate"))
            await asyncio.sleep(1)
            assert len(lab.running) == 2
            executor.set_workers(7)
            await asyncio.sleep(1)
            assert len(lab.running) == 7
            executor.set_workers(1)
            lab.opened.set()
            await asyncio.sleep(0.5)
            assert executor.counters()["workers"] == 1
            lab.calls["most"] = 0
            for _ in range(5):
                await executor.submit(submission("gate"))
            await asyncio.sleep(2)
            assert lab.calls["most"] == 1
            assert executor.counters()["live"] == 0
            assert (await refusal(_set(executor, 0))).code == "INVALID_ARGUMENT"

    async def _set(executor: Any, n: int) -> None:
        executor.set_workers(n)

    in_lab(test)


@pytest.mark.parametrize("seed", range(5))
def test_j7_one_procedure_on_one_worker(seed: int) -> None:
    """Two workers ran the same procedure at once (Gate asserts it), or its effect came twice."""

    async def test(lab: Lab) -> None:
        async with lab.executor(LaggingStore(lab.store, lab.rng), workers=8) as executor:
            ids = [await executor.submit(submission("gate")) for _ in range(50)]
            most = 0

            async def nuisance() -> None:
                nonlocal most
                while executor.counters()["live"]:
                    for live in executor.live():
                        executor._roster.enqueue(live)  # as a stray wake-up would
                    most = max(most, len(executor._roster._queue))
                    await asyncio.sleep(0.001)
                    lab.opened.set()

            async with asyncio.TaskGroup() as group:
                group.create_task(nuisance())
            assert {lab.number(f"gate {id}") for id in ids} == {2}
            assert most <= len(ids), "a procedure stood in the queue twice"

    in_lab(test, seed)


def test_j7_two_executors_fence_each_other() -> None:
    """Two executors over one store (a false failover) let a step take effect twice."""

    async def test(lab: Lab) -> None:
        lag = LaggingStore(lab.store, lab.rng)
        async with lab.executor(lag) as first:
            ids = [await first.submit(submission("rounds")) for _ in range(5)]
            ids += [await first.submit(submission("three", {"do": ["fail three"]}))]
            async with lab.executor(lag) as second:
                for id in ids:
                    record = await first.wait(id, 60_000)
                    assert record.ended
                    again = await second.wait(id, 60_000)
                    assert again.ended
                await asyncio.sleep(5)
                assert first.counters()["live"] == second.counters()["live"] == 0
        assert lab.number("begin") == lab.number("middle") == lab.number("end") == 5
        assert lab.number("leaf a1") == lab.number("leaf b2") == 5
        assert (lab.number("one"), lab.number("two"), lab.number("three")) == (0, 0, 0)
        assert (lab.row("trace") or b"").split() == [b"two", b"one"]

    for seed in range(5):
        in_lab(test, seed)


def test_j7_lost_answers() -> None:
    """A commit whose answer was lost was repeated, or taken for failed."""

    class Deaf(LaggingStore):
        async def update(self, *args: Any, **kw: Any) -> Any:
            version = await self.inner.update(*args, **kw)
            if self.rng.random() < 0.4:
                raise UnknownOutcome("no answer")
            return version

    async def test(lab: Lab) -> None:
        async with lab.executor(Deaf(lab.store, lab.rng)) as executor:
            record = await run(executor, "rounds")
            assert plain_data.decode(record.result) == ["a0", "a1", "a2", "b0", "b1", "b2"]
            failed = await run(executor, "rounds", {"do": ["fail end"]})
            assert failed.state is State.ROLLED_BACK
        assert {lab.number(f"leaf {k}{i}") for k in "ab" for i in range(3)} == {1}

    for seed in range(10):
        in_lab(test, seed)


def test_j8_locks_are_declared_stored_and_shown() -> None:
    """What a procedure wants to lock was lost before a scheduler could see it."""

    async def test(lab: Lab) -> None:
        seen: list[Any] = []

        class Watching(FairScheduler):
            def push(self, entry: Entry, *, front: bool = False) -> None:
                seen.append(entry.locks)
                super().push(entry, front=front)

        async with lab.executor(scheduler=Watching()) as executor:
            record = await run(executor, "three")
            assert info(record, (), 0)["locks"] == [
                {"mode": "exclusive", "resource": "account/1"},
                {"mode": "shared", "resource": "bank"},
            ]
            assert seen == [(("exclusive", "account/1"), ("shared", "bank"))]

    in_lab(test)


# ------------------------------------------------------------------------------ flows
def _record(**change: Any) -> tuple[Record, Registry]:
    types = Registry(TYPES)
    ok = check(Submission("three", None, "me"), types)
    record = create(ok, id=5, salt=b"12345678", now_ms=1_000)
    return core.replace(record, **change), types


@pytest.mark.parametrize(
    ("outcome", "state", "step", "flow"),
    [
        (p.next("two"), State.RUNNABLE, "two", Flow.MORE),
        (p.done(1), State.SUCCESS, "one", Flow.ENDED),
        (p.again(), State.RUNNABLE, "one", Flow.TAIL),
        (p.again(delay_ms=5), State.WAITING, "one", Flow.WAIT),
        (p.suspend(event="e", then="two"), State.WAITING, "two", Flow.WAIT),
        (p.suspend(timeout_ms=9, then="two"), State.WAITING, "two", Flow.WAIT),
        (p.children([("leaf", {"key": "a"})], then="two"), State.WAITING, "two", Flow.WAIT),
        (p.fail("NO", "no"), State.FAILED, "one", Flow.ENDED),
    ],
)
def test_j10_flow_of_every_outcome(outcome: Outcome, state: State, step: str, flow: Flow) -> None:
    """An outcome led to another state, step or place in the queue than the table says."""
    record, types = _record()
    change = core.advance(record, outcome, Ran(record.data, 1, 1_000, 1_007), types, 100)
    assert (change.record.state, change.record.step, change.flow) == (state, step, flow)
    assert change.record.history[-1:] == () or change.record.history[-1].took_ms == 7
    assert [child.id for child in change.created] == (
        [100] if isinstance(outcome, p.Children) else []
    )


@pytest.mark.parametrize(
    "outcome",
    [
        p.next("nowhere"),
        p.children([], then="two"),
        p.children([("nobody", None)], then="two"),
        p.children([("leaf", {"key": "a"})], then="nowhere"),
        p.suspend(then="two"),
        p.suspend(event="e", timeout_ms=-1, then="two"),
        p.again(delay_ms=-1),
        p.done(object()),
    ],
)
def test_j10_impossible_outcomes(outcome: Outcome) -> None:
    """An outcome that cannot be was stored."""
    record, types = _record()
    with pytest.raises(KvorumError) as caught:
        core.advance(record, outcome, Ran(record.data, 1, 0, 0), types, 100)
    assert caught.value.disposition == "no"


def test_j10_a_procedure_goes_on_without_the_queue() -> None:
    """Every step went through the queue: slow, and others came between (HBase's loop)."""

    async def test(lab: Lab) -> None:
        pushed: list[int] = []

        class Watching(FairScheduler):
            def push(self, entry: Entry, *, front: bool = False) -> None:
                pushed.append(entry.id)
                super().push(entry, front=front)

        async with lab.executor(scheduler=Watching()) as executor:
            await run(executor, "loop", {"turns": 20})
            assert len(pushed) == 1
            await run(executor, "loop", {"turns": limits.PROCEDURE_STEPS_PER_TURN_MAX * 2})
            assert len(pushed) == 1 + 3, "a long one has to give way now and then"

    in_lab(test)


def test_j11_nothing_remains() -> None:
    """Something of an ended and acknowledged procedure stayed in the store (M7: its nonce)."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            for i, args in enumerate((None, {"do": ["fail end"]})):
                record = await run(executor, "rounds", args, nonce=f"n{i}")
                assert record.ended
                assert lab.store.rows() > 7
                await executor.acknowledge(record.id)
                assert lab.store.rows() == 0
            record = await run(executor, "loop", {"turns": 100})
            assert record.spilled > 0
            history = await lab.store.history(record, 1_000)
            assert [e.step for e in history] == ["turn"] * 100 + ["end"]
            assert await lab.store.history(record, 50) == history[-50:]
            await executor.acknowledge(record.id)
            assert lab.store.rows() == 0

    in_lab(test)


# ------------------------------------------------------------------------------ back and forward
def test_j13_failure_undoes_in_reverse() -> None:
    """Finished steps were not undone, or not in reverse; the failed step's writes were kept."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            record = await run(executor, "three", {"do": ["fail three"]})
            assert record.state is State.ROLLED_BACK
            assert lab.row("trace") == b"two one"
            assert lab.row("three") is None, "a failed step's write was committed"
            record = await run(executor, "three", {"do": ["fail one"]})
            assert record.state is State.FAILED, "nothing was done, so nothing was rolled back"

    in_lab(test)


def test_j13_point_of_no_return_rolls_forward() -> None:
    """A failure past the point of no return rolled back, or could be aborted."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("forward"))
            await asyncio.sleep(0.005)
            refused = await refusal(executor.abort(id, "no more"))
            assert refused.code == "NOT_ABORTABLE"
            record = await executor.wait(id, 60_000)
            assert record.state is State.SUCCESS
            assert lab.calls["after"] == 3
            assert lab.calls["stubborn"] == 3

    in_lab(test)


def test_j13_a_child_past_its_point_of_no_return_stays() -> None:
    """A child that cannot go back was marked as rolled back by its parent's failure."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            record = await run(executor, "over")
            children = await lab.store.load_range(*record.rounds[0])
            assert [(s.record.name, s.record.state.name) for s in children] == [
                ("forward", "SUCCESS"),
                ("leaf", "ROLLED_BACK"),
            ]

    in_lab(test)


def test_j14_children_overlap_and_wake_once() -> None:
    """Children ran one after the other, or the parent went on early, or twice."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            record = await run(executor, "rounds")
            assert lab.calls["together"] == 3
            assert [e.step for e in record.history] == ["begin", "middle", "end"]
            assert lab.number("middle") == 1
            children = await lab.store.load_range(record.rounds[0][0], 3)
            assert {s.record.parent for s in children} == {record.id}
            assert {s.record.owner for s in children} == {"tester"}

    in_lab(test)


@pytest.mark.slow
def test_j14_many_children() -> None:
    """Hundreds of children were not all run, or their parent's rollback missed some."""

    @procedure("crowd")
    class Crowd(Zoo):
        @step(first=True)
        async def begin(self, ctx: StepContext) -> Outcome:
            return p.children([("leaf", {"key": str(i % 7)}) for i in range(300)], then="end")

        @step
        async def end(self, ctx: StepContext) -> Outcome:
            return p.fail("NO", f"{len(ctx.children)} of them")

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [*ALL, Crowd])
        async with lab.executor() as executor:
            record = await run(executor, "crowd")
            assert record.error is not None
            assert record.error.message == "300 of them"
            assert record.state is State.ROLLED_BACK
            assert {lab.number(f"leaf {i}") for i in range(7)} == {0}
            await executor.acknowledge(record.id)
            assert lab.store.rows() == 0

    simloop.run(main)


# ------------------------------------------------------------------------------ time and signals
@pytest.mark.parametrize("how", ["sleep", "child"])
@pytest.mark.parametrize("restart", [False, True])
def test_timeout_rolls_back_on_time(how: str, restart: bool) -> None:
    """A timeout did not fire, also after a restart, or left its child running."""

    async def test(lab: Lab) -> None:
        started = lab.clock.now_ms()
        async with lab.executor() as executor:
            id = await executor.submit(submission("slow", {"how": how}))
            if not restart:
                record = await executor.wait(id, 10_000)
        if restart:
            async with lab.executor() as executor:
                record = await executor.wait(id, 10_000)
        assert record.error is not None
        assert record.error.code == "TIMEOUT"
        assert record.state is State.ROLLED_BACK
        assert 2_000 <= lab.clock.now_ms() - started < 2_100
        assert (lab.number("slow"), lab.number("sleeper")) == (0, 0)

    in_lab(test)


def test_abort() -> None:
    """An abort did not roll back, waited for the children's own end, or could not be repeated."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("slow", {"how": "child"}))
            await asyncio.sleep(0.1)
            await executor.check_abort(id)
            await executor.abort(id, "not wanted")
            await executor.abort(id, "again")
            record = await executor.wait(id, 1_000)
            assert record.state is State.ROLLED_BACK
            assert record.error is not None
            assert (record.error.code, record.error.message) == ("ABORTED", "aborted: not wanted")
            await executor.abort(id, "once more")
            done = await run(executor, "three")
            assert isinstance(await refusal(executor.abort(done.id, "late")), Refused)
            assert isinstance(await refusal(executor.check_abort(done.id)), Refused)
            assert isinstance(await refusal(executor.abort(99_999, "who")), NotFound)
            assert (lab.number("slow"), lab.number("sleeper")) == (0, 0)

    in_lab(test)


def test_abort_waits_for_the_step_under_way() -> None:
    """An abort cut a running step, or was lost because one was running."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("gate"))
            await asyncio.sleep(0.1)
            async with asyncio.TaskGroup() as group:
                group.create_task(executor.abort(id, "now"))
                await asyncio.sleep(0.1)
                lab.opened.set()
            record = await executor.wait(id, 1_000)
            assert record.error is not None
            assert record.error.code == "ABORTED"
            assert lab.number(f"gate {id}") == 1, "the step under way ended, the next did not begin"

    in_lab(test)


def test_signal_wakes_without_polling() -> None:
    """A signal was lost, woke the wrong one, or was only noticed by a timer."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("waiter"))
            await asyncio.sleep(100)
            executor.signal("something else")
            await asyncio.sleep(1)
            assert (await executor.find(id)).seq == 1
            lab.store.table.write([_row("ready")])
            started = lab.loop.time()
            executor.signal("ready")
            record = await executor.wait(id, 60_000)
            assert plain_data.decode(record.result) == "saw it"
            assert lab.loop.time() - started < 0.1

    in_lab(test)


def test_signal_while_the_step_runs() -> None:
    """A signal between a step's look and its suspension was lost (the classic lost wake-up)."""

    @procedure("racer")
    class Racer(Zoo):
        @step(first=True)
        async def look(self, ctx: StepContext) -> Outcome:
            if ctx.wake == "event":
                return p.done("woken")
            self.lab.executor_now.signal("e")
            return p.suspend(event="e", then="look")

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Racer])
        async with lab.executor() as executor:
            lab.executor_now = executor  # type: ignore[attr-defined]
            record = await run(executor, "racer", wait_ms=1_000)
            assert plain_data.decode(record.result) == "woken"

    simloop.run(main)


def test_signal_for_an_earlier_wait() -> None:
    """A signal woke a procedure from another wait than the one it was meant for."""

    @procedure("pauser")
    class Pauser(Zoo):
        @step(first=True)
        async def first(self, ctx: StepContext) -> Outcome:
            return p.suspend(event="e", timeout_ms=1_000, then="pause")

        @step
        async def pause(self, ctx: StepContext) -> Outcome:
            if ctx.round == 1:
                return p.again(delay_ms=10_000)
            return p.done(ctx.wake)

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Pauser])
        async with lab.executor() as executor:
            id = await executor.submit(submission("pauser"))
            await asyncio.sleep(5)
            executor.signal("e")
            await asyncio.sleep(1)
            assert not (await executor.find(id)).ended
            record = await executor.wait(id, 20_000)
            assert plain_data.decode(record.result) == "timeout"
            assert loop.time() == pytest.approx(11, abs=0.1)

    simloop.run(main)


def test_condition_on_a_row_that_changed_meanwhile() -> None:
    """A condition that held when the step looked failed the procedure instead of the attempt."""

    @procedure("careful")
    class Careful(Zoo):
        @step(first=True)
        async def write(self, ctx: StepContext) -> Outcome:
            table = ctx.txn.table("test", "counters")
            row = await table.get("n")
            if row is None:
                table.put("n", "1", if_absent=True)
            else:
                table.put("n", str(int(row.value) + 1), if_version=row.version)
            return p.done()

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Careful])
        async with lab.executor(LaggingStore(lab.store, lab.rng)) as executor:
            await run(executor, "careful")
            ids = [await executor.submit(submission("careful")) for _ in range(10)]
            for id in ids:
                assert (await executor.wait(id, 60_000)).state is State.SUCCESS
        assert lab.number("n") == 11

    simloop.run(main)


def test_clock_jumps() -> None:
    """A clock that jumped ahead woke nobody; one that jumped back woke somebody too early."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("sleeper"))
            await asyncio.sleep(10)
            lab.clock.skew_ms = -3_600_000
            await asyncio.sleep(3_700)
            assert not (await executor.find(id)).ended
            lab.clock.skew_ms = 3_600_000
            assert (await executor.wait(id, 3_000)).ended

    in_lab(test)


# ------------------------------------------------------------------------------ limits and oddities
def test_state_limit_fails_the_step() -> None:
    """State without a bound was stored, or the limit left the procedure stuck."""

    @procedure("glutton")
    class Glutton(Zoo):
        @step(first=True)
        async def eat(self, ctx: StepContext) -> Outcome:
            ctx.state["x"] = b"x" * (limits.PROCEDURE_STATE_BYTES_MAX + 1)
            return p.done()

    @procedure("mute")
    class Mute(Zoo):
        @step(first=True)
        async def say(self, ctx: StepContext) -> Any:
            return None

    @procedure("stranger")
    class Stranger(Zoo):
        @step(first=True)
        async def write(self, ctx: StepContext) -> Outcome:
            ctx.txn.table("test", "nowhere").put("k", b"v")
            return p.done()

    @procedure("fussy")
    class Fussy(Zoo):
        @step(first=True)
        async def write(self, ctx: StepContext) -> Outcome:
            self.lab.count("fussy")
            ctx.txn.table("test", "counters").put("k", b"v", if_version=77)
            return p.done()

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Glutton, Mute, Stranger, Fussy])
        async with lab.executor() as executor:
            codes = {}
            for name in lab.types.names():
                record = await run(executor, name)
                assert record.state is State.FAILED
                assert record.error is not None
                codes[name] = record.error.code
        assert codes == {
            "glutton": TooLarge.code,
            "mute": "BAD_OUTCOME",
            "stranger": "TABLE_NOT_FOUND",
            "fussy": "CONDITION_FAILED",
        }
        assert lab.calls["fussy"] == 1

    simloop.run(main)


def test_unknown_types_are_parked() -> None:
    """Half-done work of another version stopped the start-up, was lost, or ran wrongly."""

    async def main(loop: simloop.SimLoop) -> None:
        old = Lab(loop, ALL)
        async with old.executor() as executor:
            id = await executor.submit(submission("waiter"))
            await asyncio.sleep(1)
        new = Lab(loop, [t for t in ALL if t.procedure_name != "waiter"], store=old.store)
        async with new.executor() as executor:
            await asyncio.sleep(1)
            live = executor.live_one(id)
            assert live is not None
            assert "no procedure named 'waiter'" in live.parked
            assert (await refusal(executor.abort(id, "x"))).code == "NOT_ABORTABLE"
            assert (await run(executor, "three")).state is State.SUCCESS
        async with old.executor() as executor:
            old.store.table.write([_row("ready")])
            executor.signal("ready")
            assert (await executor.wait(id, 1_000)).state is State.SUCCESS

    simloop.run(main)


def test_a_broken_procedure_does_not_stop_the_others() -> None:
    """One bug, or one record that breaks the rules, took the whole engine down, at every start."""

    class Buggy(CrashingStore):
        async def update(self, version: int, change: Any, **kw: Any) -> Any:
            if change.record.name == "loop":
                raise RuntimeError("a bug")
            return await self.inner.update(version, change, **kw)

    async def test(lab: Lab) -> None:
        async with lab.executor(Buggy(lab.store)) as executor:
            id = await executor.submit(submission("loop", {"turns": 3}))
            assert (await run(executor, "three")).state is State.SUCCESS
            live = executor.live_one(id)
            assert live is not None
            assert "RuntimeError: a bug" in live.parked
        async with lab.executor() as executor:
            assert (await executor.wait(id, 1_000)).state is State.SUCCESS

    in_lab(test)


def test_a_clock_set_back_does_not_prolong_a_pause() -> None:
    """A step that met a conflict just before the clock was set back waited for hours."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("three", {"do": ["retry two"]}))
            live = executor.live_one(id)
            for _ in range(1_000):
                await asyncio.sleep(0.0001)
                if live is not None and live.retry is not None:
                    break
            else:
                pytest.fail("the step met nothing")
            lab.clock.skew_ms = -3_600_000
            assert (await executor.wait(id, 10_000)).state is State.SUCCESS

    in_lab(test)


def test_resuming_keeps_no_large_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start held all records of everything that waits at once, megabytes of each."""
    monkeypatch.setattr(limits, "PROCEDURE_PAGE_MAX", 4)
    count, size = 40, 200_000

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            ids = [
                await executor.submit(submission("waiter", {"pad": "x" * size}))
                for _ in range(count)
            ]
            await asyncio.sleep(1)
        tracemalloc.start()
        async with lab.executor() as executor:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 12 * size, peak
            for id in ids:
                assert (await executor.find(id)).state is State.WAITING
                await executor.abort(id, "enough")
            assert sum(len(s.record.args) for s in executor._recent.values()) == 0

    in_lab(test)


def test_too_many_children_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of children had no bound."""
    monkeypatch.setattr(limits, "PROCEDURE_FAMILY_LIVE_MAX", 3)

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            record = await run(executor, "rounds")
            assert record.error is not None
            assert record.error.code == "TOO_MANY_LIVE"

    in_lab(test)


def _row(key: str) -> Any:
    from kv.base.keys import table_prefix
    from kv.base.ops import put
    from tests.procedures.lab import TABLE

    return put(table_prefix(TABLE) + key.encode(), b"1")


def test_busy_when_too_many_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of live procedures had no bound."""
    monkeypatch.setattr(limits, "PROCEDURES_LIVE_MAX", 3)

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            for _ in range(3):
                await executor.submit(submission("waiter"))
            refused = await refusal(executor.submit(submission("waiter")))
            assert (refused.code, refused.details["limit"]) == ("BUSY", 3)

    in_lab(test)


@procedure("kvorum.tester_care")
class Care(Zoo):
    """One of the database's own."""

    @step(first=True)
    async def wait(self, ctx: StepContext) -> Outcome:
        return p.suspend(event="never", timeout_ms=0, then="wait")


def test_a_node_full_of_procedures_can_still_be_cared_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users' procedures took all the room, and no partition was split, moved or rebuilt."""
    monkeypatch.setattr(limits, "PROCEDURES_LIVE_MAX", 2)
    monkeypatch.setattr(limits, "PROCEDURES_OWN_MAX", 1)

    async def test(lab: Lab) -> None:
        lab.types.add(Care, make=lab._maker(Care))
        async with lab.executor() as executor:
            for _ in range(2):
                await executor.submit(submission("waiter"))
            await refusal(executor.submit(submission("waiter")))
            await executor.submit(submission("kvorum.tester_care"))
            refused = await refusal(executor.submit(submission("kvorum.tester_care")))
            assert (refused.code, refused.details["limit"]) == ("BUSY", 3)

    in_lab(test)


@pytest.mark.parametrize("asked", [True, False])
def test_j18_what_a_deposed_executor_stored_late_is_run(asked: bool) -> None:
    """A record that reached the store after the new master had read it lay there until a restart,
    and whoever waited was told at once that time was up.
    """

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            late = create(
                check(submission("three", {"do": []}), lab.types),
                id=await lab.store.take_ids(1),
                salt=b"12345678",
                now_ms=lab.clock.now_ms(),
            )
            await lab.store.insert(late)
            if asked:
                assert (await executor.wait(late.id, 500)).state is State.SUCCESS
            else:
                await asyncio.sleep(1.5)
                assert (await executor.find(late.id)).state is State.SUCCESS
            assert executor.live() == []

    in_lab(test)
