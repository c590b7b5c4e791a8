"""Going back to a step or a call: what is redone, kept and undone; forks; crashes. Virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, Refused, Unavailable
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.flow import Flow
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step, undo
from procedures.engine.reset import KEEP, UNDO
from procedures.engine.submission import Submission
from procedures.engine.workflow import workflow
from tests.procedures.lab import CrashingStore, Lab, crashed, refusal
from tests.procedures.stores import opened
from tests.procedures.zoo import Zoo, bump


@procedure("stairs")
class Stairs(Zoo):
    """One step after the other; the last one fails as long as its state says so."""

    @step(first=True, undo="down")
    async def one(self, ctx: StepContext) -> Outcome:
        return await self._up(ctx, "one", p.next("two"))

    @step(undo="down")
    async def two(self, ctx: StepContext) -> Outcome:
        return await self._up(ctx, "two", p.next("three"))

    @step(undo="down")
    async def three(self, ctx: StepContext) -> Outcome:
        if (ctx.args or {}).get("children") and not ctx.state.get("bred"):
            ctx.state["bred"] = True
            return await self._up(
                ctx, "three", p.children([("stairs.leaf", None)] * 3, then="four")
            )
        return await self._up(ctx, "three", p.next("four"))

    @step
    async def four(self, ctx: StepContext) -> Outcome:
        if ctx.wake != "event" and (ctx.args or {}).get("wait"):
            return p.suspend(event=f"go {ctx.id}", then="four")
        if ctx.state.get("bad", (ctx.args or {}).get("bad")):
            return p.fail("BAD", "it is")
        return p.done([ctx.state.get("said"), ctx.args])

    @undo
    async def down(self, ctx: StepContext) -> None:
        self.lab.count("down")
        await bump(ctx, "up", -1)

    async def _up(self, ctx: StepContext, name: str, outcome: Outcome) -> Outcome:
        self.lab.count(name)
        await bump(ctx, "up")
        return outcome


@procedure("stairs.leaf")
class Leaf(Zoo):
    @step(first=True, undo="back")
    async def go(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "leaves")
        return p.done(None)

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "leaves", -1)


DONE: list[str] = []


@workflow("plan")
async def plan(flow: Flow) -> Any:
    async def act(ctx: StepContext, name: str) -> str:
        DONE.append(name)
        await bump(ctx, "acts")
        return f"{name} {len(DONE)}"

    async def unact(ctx: StepContext, name: str) -> None:
        DONE.append(f"-{name}")
        await bump(ctx, "acts", -1)

    a = await flow.step(act, "a", undo=unact, name="a")
    b = await flow.step(act, "b", undo=unact, name="b")
    await flow.signal("go")
    c = await flow.step(act, "c", name="c")
    return [a, b, c]


@workflow("chief")
async def chief(flow: Flow) -> Any:
    return await flow.start("plan")


TYPES: list[Any] = [Stairs, Leaf, plan, chief]


def in_lab(test: Any) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        DONE.clear()
        lab = Lab(loop, TYPES)
        async with lab.executor() as executor:
            await test(lab, executor)

    simloop.run(main, 0)


async def begun(executor: Executor, args: Any, name: str = "stairs") -> int:
    id = await executor.submit(Submission(name, args, "tester"))
    await asyncio.sleep(0.5)
    return id


@pytest.mark.parametrize(("how", "downs", "up"), [(UNDO, 2, 3), (KEEP, 0, 5)])
def test_u29_a_waiting_one_goes_back(how: str, downs: int, up: int) -> None:
    """Steps behind the point are undone, and it runs on from there."""

    async def test(lab: Lab, executor: Executor) -> None:
        id = await begun(executor, {"wait": True})
        told = await executor.surgeon.reset(id, "why", "ann", step="two", undo=how, dry_run=True)
        assert (told["redone"], told["kept"]) == (["two", "three", "four"], ["one"])
        assert told["undone"] == (["down"] if how == UNDO else [])
        assert lab.calls == {"one": 1, "two": 1, "three": 1}
        await executor.surgeon.reset(id, "why", "ann", step="two", undo=how)
        await asyncio.sleep(0.5)
        assert (lab.calls["one"], lab.calls["two"], lab.calls.get("down", 0)) == (1, 2, downs)
        assert lab.number("up") == up
        record = await executor.find(id)
        assert any(entry.outcome == "reset: why" for entry in record.history)
        # A failure later on undoes all that was done, once.
        await executor.abort(id, "enough")
        assert (await executor.wait(id, 10_000)).state is State.ROLLED_BACK
        assert lab.number("up") == 0

    in_lab(test)


def test_one_that_has_ended_goes_on_with_another_state() -> None:
    """A failure that was the data's is mended without a new procedure."""

    async def test(lab: Lab, executor: Executor) -> None:
        failed = await begun(executor, {"bad": True})
        assert (await executor.find(failed)).state is State.ROLLED_BACK
        state = {"bad": False, "said": 5}
        await executor.surgeon.reset(failed, "mended", "ann", step="three", state=state)
        record = await executor.wait(failed, 10_000)
        assert (record.state, record.error) == (State.SUCCESS, None)
        assert plain_data.decode(record.result) == [5, {"bad": True}]
        await executor.surgeon.reset(failed, "again", "ann", step="four", args={"x": 1}, key="k")
        again = await executor.surgeon.reset(failed, "again", "ann", step="four", key="k")
        assert again["changed"]
        record = await executor.wait(failed, 10_000)
        assert plain_data.decode(record.result) == [5, {"x": 1}]
        assert lab.calls["three"] == 2
        page, _ = await executor.surgeon.book.page(limit=10)
        assert [one["what"] for one in page] == ["reset", "reset"]
        await executor.acknowledge(failed)
        assert executor.store.rows() == 0  # type: ignore[attr-defined]

    in_lab(test)


def test_a_fork_leaves_the_other_one_alone() -> None:
    """Both go their own ways, with ids of their own."""

    async def test(lab: Lab, executor: Executor) -> None:
        id = await begun(executor, {"wait": True})
        before = await executor.find(id)
        told = await executor.surgeon.fork(id, "try", "ann", step="three", dry_run=True)
        assert (told["forked"], told["redone"]) == (None, ["three", "four"])
        how: Any = {"step": "three", "args": {}, "state": {"said": 1}, "key": "k"}
        told = await executor.surgeon.fork(id, "try", "ann", **how)
        forked = int(told["forked"])
        assert (await executor.surgeon.fork(id, "try", "ann", **how))["forked"] == str(forked)
        done = await executor.wait(forked, 10_000)
        assert plain_data.decode(done.result) == [1, {}]
        assert done.history[0].outcome == f"fork of {id}: try"
        assert await executor.find(id) == before
        # What it did itself is undone, what the other one did is not.
        state = {"bad": True}
        told = await executor.surgeon.fork(id, "x", "ann", step="two", state=state, args={})
        failed = await executor.wait(int(told["forked"]), 10_000)
        assert failed.state is State.ROLLED_BACK
        assert lab.number("up") == 4

    in_lab(test)


def test_rounds_of_children_are_undone_with_the_steps_behind_the_point() -> None:
    """What a step that is taken back had started ends, too."""

    async def test(lab: Lab, executor: Executor) -> None:
        id = await begun(executor, {"children": True, "wait": True})
        assert lab.number("leaves") == 3
        told = await executor.surgeon.reset(id, "why", "ann", step="three", dry_run=True)
        assert told["undone"] == ["children", "down"]
        await executor.surgeon.reset(id, "why", "ann", step="three")
        await asyncio.sleep(0.5)
        assert (lab.number("leaves"), lab.number("up")) == (0, 3)
        assert (await executor.find(id)).state is State.WAITING

    in_lab(test)


def test_u29_a_workflow_goes_back_to_a_call() -> None:
    """Calls before it keep their results, the others are made again."""

    async def test(lab: Lab, executor: Executor) -> None:
        id = await begun(executor, None, "plan")
        assert DONE == ["a", "b"]
        told = await executor.surgeon.reset(id, "why", "ann", step="b", dry_run=True)
        assert (told["from"], told["kept"]) == ("#1", ["step a"])
        assert told["redone"] == ["step b", "signal go"]
        await executor.surgeon.reset(id, "why", "ann", step="b")
        await asyncio.sleep(0.5)
        assert DONE == ["a", "b", "-b", "b"]
        assert lab.number("acts") == 2
        await executor.surgeon.reset(id, "why", "ann", step="#0")
        await asyncio.sleep(0.5)
        assert DONE == ["a", "b", "-b", "b", "-b", "-a", "a", "b"]
        for wrong in ("nothing", "#9"):
            error = await refusal(executor.surgeon.reset(id, "why", "ann", step=wrong))
            assert error.code == "STEP_UNKNOWN"
        told = await executor.surgeon.fork(id, "why", "ann", step="#2")
        await asyncio.sleep(0.5)
        assert len(DONE) == 8
        error = await refusal(executor.surgeon.reset(id, "why", "ann", step="b", state={}))
        assert isinstance(error, InvalidArgument)

    in_lab(test)


def test_u29_what_a_workflow_has_started_ends_with_a_reset_or_refuses_it() -> None:
    """It ran on beside the one that was started anew; also if the engine died after the reset."""

    async def test(_lab: Lab, executor: Executor) -> None:
        id = await begun(executor, None, "chief")
        (child,) = [one.id for one in executor.live_of("plan")]
        surgeon: Any = executor.surgeon
        for dry_run in (True, False):
            error = await refusal(surgeon.reset(id, "why", "ann", step="#0", dry_run=dry_run))
            assert error.code == "HAS_CHILDREN"
        abort = surgeon.abort

        async def nobody(*_: object) -> None:
            raise Unavailable("it died")

        surgeon.abort = nobody
        how: Any = {"step": "#0", "children": "end", "key": "k"}
        with pytest.raises(Unavailable):
            await surgeon.reset(id, "why", "ann", **how)
        surgeon.abort = abort
        told = await surgeon.reset(id, "why", "ann", **how)
        assert told["started"] == [str(child)]
        assert (await executor.wait(child, 10_000)).state is State.ROLLED_BACK
        await asyncio.sleep(0.5)
        (other,) = executor.live_of("plan")
        await surgeon.reset(id, "why", "ann", step="#0", children="end")
        assert (await executor.wait(other.id, 10_000)).state is State.ROLLED_BACK

    in_lab(test)


def test_what_goes_back_can_be_aborted() -> None:
    """Its rollback to the step had made it look as if it failed already."""

    async def test(lab: Lab, executor: Executor) -> None:
        id = await begun(executor, {"wait": True})
        record = await executor.find(id)
        await executor.surgeon.reset(id, "why", "ann", step="three")
        await executor.abort(id, "no, all of it")
        done = await executor.wait(id, 10_000)
        assert (done.state, lab.number("up")) == (State.ROLLED_BACK, 0)
        assert record.seq < done.seq or done.error is not None

    in_lab(test)


def test_what_is_the_databases_own_does_not_go_back() -> None:
    """With arguments of another's choice it would do what nobody had a right to submit."""

    async def test(_lab: Lab, executor: Executor) -> None:
        id = await begun(executor, {"wait": True})
        executor.types.users_follow()
        for act in (executor.surgeon.reset, executor.surgeon.fork):
            error = await refusal(act(id, "why", "ann"))
            assert error.code == "NOT_RESETTABLE"
            assert "the database's own" in error.message

    in_lab(test)


def test_what_cannot_go_back_says_why() -> None:
    """A refusal names what is in the way, and changes nothing."""

    async def test(_lab: Lab, executor: Executor) -> None:
        id = await begun(executor, {"wait": True})
        for how in ({"step": "five"}, {"undo": "maybe"}, {"children": "eat"}, {"state": [1]}):
            error = await refusal(executor.surgeon.reset(id, "why", "ann", **how))  # type: ignore[arg-type]
            assert isinstance(error, InvalidArgument)
        parent = await begun(executor, {"children": True})
        child = (await executor.find(parent)).rounds[0][0]
        error = await refusal(executor.surgeon.reset(child, "why", "ann"))
        assert (type(error), error.code) == (Refused, "NOT_RESETTABLE")

    in_lab(test)


@pytest.mark.parametrize("kind", ["memory", "model"])
def test_u29_a_crash_at_any_write_of_a_reset_ends_as_without(kind: str) -> None:
    """Before and after each write: what is undone is undone once, and what is redone is there."""

    async def main(loop: simloop.SimLoop) -> None:
        for at in range(1, 30):
            for after in (False, True):
                async with opened(kind, loop) as looks:
                    lab = Lab(loop, TYPES, store=looks.store)
                    async with lab.executor() as executor:
                        id = await begun(executor, {"wait": True})
                        before = await executor.find(id)
                    store = CrashingStore(looks.store, at, after=after)
                    died = False
                    try:
                        async with lab.executor(store) as executor:
                            await executor.surgeon.reset(id, "why", "ann", step="two", key="k")
                            await asyncio.sleep(1)
                    except BaseException as error:
                        if not crashed(error):
                            raise
                        died = True
                    async with lab.executor() as executor:
                        await executor.surgeon.reset(id, "why", "ann", step="two", key="k")
                        await asyncio.sleep(1)
                        executor.signal(f"go {id}")
                        record = await executor.wait(id, 10_000)
                    assert record.state is State.SUCCESS
                    assert record.seq > before.seq
                    if kind == "memory":
                        assert lab.number("up") == 3
                    if not died:
                        return
        raise AssertionError("it never ran to its end")

    simloop.run(main, 0)
