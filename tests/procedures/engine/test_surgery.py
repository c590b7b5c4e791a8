"""Surgery on procedures that hang: abort, bypass, retry, steal, and the book that tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base import limits, system
from kv.base.errors import InvalidArgument, NotFound, TooLarge
from kv.base.keys import table_prefix, table_range
from kvorum.testing.simulation import loop as simloop
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import (
    Outcome,
    State,
    children,
    done,
    exclusive,
    next,
    suspend,
)
from procedures.engine.registry import procedure, step, undo
from procedures.engine.submission import Submission
from tests.procedures.lab import TABLE, Lab, refusal


def row(ctx: StepContext, step: str) -> bytes:
    return table_prefix(TABLE) + f"{step} {ctx.id}".encode()


class Patient:
    """What the tests operate on; `lab.hang` names the steps that hang until `lab.opened`."""

    lab: Lab


def _locks(args: Any) -> list[Any]:
    return [exclusive(name) for name in (args or {}).get("locks", ())]


@procedure("op.two", locks=_locks)
class Two(Patient):
    """Two steps with a row each, and a wait between them if asked for."""

    @step(first=True, undo="not_one")
    async def one(self, ctx: StepContext) -> Outcome:
        self.lab.count(f"one {ctx.id}")
        if "one" in ctx.args.get("hang", ()):
            await self.lab.opened.wait()
        ctx.txn.put(row(ctx, "one"), b"1")
        return suspend(event="go", then="two") if ctx.args.get("wait") else next("two")

    @undo
    async def not_one(self, ctx: StepContext) -> None:
        self.lab.count(f"undo one {ctx.id}")
        ctx.txn.delete(row(ctx, "one"))

    @step(undo="not_two", undo_partial=True)
    async def two(self, ctx: StepContext) -> Outcome:
        if ctx.wake == "restart":
            return suspend(event="go", then="two")
        self.lab.count(f"two {ctx.id}")
        if "two" in ctx.args.get("hang", ()):
            await self.lab.opened.wait()
        ctx.txn.put(row(ctx, "two"), b"1")
        if ctx.args.get("broken"):
            raise RuntimeError("broken")
        return done("well")

    @undo
    async def not_two(self, ctx: StepContext) -> None:
        self.lab.count(f"undo two {ctx.id}")
        ctx.txn.delete(row(ctx, "two"))
        if ctx.args.get("stubborn") and not self.lab.opened.is_set():
            raise RuntimeError("cannot be undone")


@procedure("op.tree", locks=_locks)
class Tree(Patient):
    """A tree of the given depth; its leaves wait for `go`, or hang."""

    @step(first=True, undo="back")
    async def grow(self, ctx: StepContext) -> Outcome:
        depth = ctx.args["depth"]
        if not depth:
            return suspend(event="go", then="end")
        below = dict(ctx.args, depth=depth - 1)
        return children([("op.tree", below)] * 2, then="end")

    @undo
    async def back(self, ctx: StepContext) -> None:
        self.lab.count("back")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        if ctx.wake == "restart":
            return suspend(event="go", then="end")
        return done([child.state for child in ctx.children])


TYPES = [Two, Tree]
WHO: tuple[str, str] = ("a test", "ann")


def in_lab(test: Callable[[Lab], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        await test(Lab(loop, TYPES, seed=seed))

    simloop.run(main, seed)


async def begun(executor: Executor, name: str, args: Any, nonce: str = "") -> int:
    """Its id, once it has come as far as it comes by itself."""
    id = await executor.submit(Submission(name, args, "tester", nonce))
    await asyncio.sleep(0.1)
    return id


async def left(lab: Lab) -> dict[str, int]:
    """What there is of locks, nonces and live rows."""
    table = lab.store.table
    locks = [key for key in table.keys(*table_range(system.LOCKS)) if table.read(key, table.clock)]
    return {"locks": len(locks) - 1, "rows": lab.store.rows()}  # a reign is always there


# ---------------------------------------------------------------------- bypass
def test_m8_bypass_ends_what_waits_and_frees_its_locks() -> None:
    """A bypassed procedure lived on, was undone, or kept its locks from who waits for them."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True, "locks": ["r"]})
            next_one = await begun(executor, "op.two", {"locks": ["r"]})
            waiter = await executor.find(next_one)
            assert not waiter.ended, waiter.error
            waiting = asyncio.ensure_future(executor.wait(id, 10_000))
            await asyncio.sleep(0)
            told = await executor.surgeon.bypass(id, *WHO)
            assert told["changed"]
            (one,) = told["procedures"]
            assert one["before"] == {"state": "WAITING", "waits_for": "event go"}
            assert one["after"] == {"state": "BYPASSED", "waits_for": None}
            assert one["locks_released"] == [{"mode": "exclusive", "resource": "r"}]
            assert (await waiting).state is State.BYPASSED
            assert (await executor.wait(next_one, 10_000)).state is State.SUCCESS
            assert lab.row(f"one {id}") == b"1", "a bypass undoes nothing"
            executor.signal("go")
            await asyncio.sleep(0.1)
            assert lab.row(f"two {id}") is None, "it went on"
            assert not (await executor.surgeon.bypass(id, *WHO))["changed"], "twice is once"
            for one_id in (id, next_one):
                await executor.acknowledge(one_id)
            assert await left(lab) == {"locks": 0, "rows": 0}

    in_lab(test)


def test_m8_bypass_of_a_step_under_way_needs_override_and_fences_it() -> None:
    """What a hanging step wanted to write was committed after its procedure had been bypassed."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"hang": ["two"], "locks": ["r"]})
            other = await begun(executor, "op.two", {"locks": ["r"]})
            refused = await refusal(executor.surgeon.bypass(id, *WHO))
            assert refused.code == "UNDER_WAY"
            assert "two under way at the master" in refused.message
            told = await executor.surgeon.bypass(id, *WHO, override=True)
            assert "two" in told["procedures"][0]["refuses"]
            assert (await executor.wait(other, 10_000)).state is State.SUCCESS
            lab.opened.set()
            await asyncio.sleep(0.1)
            assert lab.row(f"two {id}") is None, "a late commit was not refused"
            assert (await executor.find(id)).state is State.BYPASSED
            for one_id in (id, other):
                await executor.acknowledge(one_id)
            assert await left(lab) == {"locks": 0, "rows": 0}

    in_lab(test)


def test_m8_bypass_refuses_children_unless_recursive() -> None:
    """Children lived on without their parent, or a recursion left some of them."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.tree", {"depth": 2}, "n")
            assert len(executor.live()) == 7
            refused = await refusal(executor.surgeon.bypass(id, *WHO))
            assert refused.code == "HAS_CHILDREN"
            assert refused.details["count"] == 6
            dry = await executor.surgeon.bypass(id, *WHO, recursive=True, dry_run=True)
            assert (dry["dry_run"], dry["count"], len(executor.live())) == (True, 7, 7)
            told = await executor.surgeon.bypass(id, *WHO, recursive=True)
            assert told["procedures"] == dry["procedures"], "a dry run told something else"
            assert not executor.live()
            assert lab.calls.get("back") is None
            await executor.acknowledge(id)
            assert await left(lab) == {"locks": 0, "rows": 0}

    in_lab(test)


def test_m8_a_parent_goes_on_when_its_child_is_bypassed() -> None:
    """A bypassed child left its parent waiting, or made it fail."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.tree", {"depth": 1})
            first, second = sorted(live.id for live in executor.live())[1:]
            await executor.surgeon.bypass(first, *WHO)
            assert not (await executor.find(id)).ended
            await executor.surgeon.bypass(second, *WHO)
            record = await executor.wait(id, 10_000)
            assert record.state is State.SUCCESS
            assert record.result == b"\x92\xa8BYPASSED\xa8BYPASSED"

    in_lab(test)


def test_m8_what_is_too_large_or_has_ended_is_not_bypassed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bypass of what ended changed it; a tree beyond the limit was bypassed by half."""
    monkeypatch.setattr(limits, "SURGERY_TREE_MAX", 5)

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {})
            assert (await refusal(executor.surgeon.bypass(id, *WHO))).code == "NOT_BYPASSABLE"
            tree = await begun(executor, "op.tree", {"depth": 2})
            refused = await refusal(executor.surgeon.bypass(tree, *WHO, recursive=True))
            assert isinstance(refused, TooLarge)
            assert len(executor.live()) == 7
            assert isinstance(await refusal(executor.surgeon.bypass(999, *WHO)), NotFound)

    in_lab(test)


# ---------------------------------------------------------------------- abort
def test_m8_abort_does_not_wait_for_a_step_that_hangs() -> None:
    """An abort waited for ever for a hanging step, or that step's writes were committed; its
    effects outside were not undone, or undone while it still ran.
    """

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"hang": ["two"]})
            before = lab.loop.time()
            told = await executor.surgeon.abort(id, *WHO)
            assert lab.loop.time() - before < limits.SURGERY_GRACE_MS / 1000 + 0.1
            assert told["procedures"][0]["undoes"] == ["not_two", "not_one"]
            assert (await executor.find(id)).state is State.ROLLING_BACK
            await asyncio.sleep(5)
            assert lab.calls.get(f"undo two {id}") is None, "undone beside its own step"
            lab.opened.set()
            record = await executor.wait(id, 10_000)
            assert record.state is State.ROLLED_BACK
            assert (lab.row(f"one {id}"), lab.row(f"two {id}")) == (None, None)
            assert lab.calls[f"undo two {id}"] == 1, "it says undo_partial"

    in_lab(test)


def test_m8_a_dry_run_changes_nothing_and_tells_the_same() -> None:
    """A dry run changed something, told something else than what was done, or was written down."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True, "locks": ["r"]})
            stored = await executor.store.load(id)
            dry = await executor.surgeon.abort(id, *WHO, dry_run=True)
            assert await executor.store.load(id) == stored
            assert not (await executor.surgeon.book.page(limit=10))[0]
            told = await executor.surgeon.abort(id, *WHO)
            assert dict(told, dry_run=True) == dry
            assert (await executor.wait(id, 10_000)).state is State.ROLLED_BACK

    in_lab(test)


# ---------------------------------------------------------------------- retry
def test_m8_retry_from_a_step() -> None:
    """A retry from a step did not run it, or kept what it had waited for."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True})
            refused = await refusal(executor.surgeon.retry(id, *WHO, step="three"))
            assert refused.code == "STEP_UNKNOWN"
            told = await executor.surgeon.retry(id, *WHO, step="one")
            assert told["procedures"][0]["after"]["step"] == "one"
            await asyncio.sleep(0.1)
            assert lab.calls[f"one {id}"] == 2
            await executor.surgeon.retry(id, *WHO, step="two")
            assert (await executor.wait(id, 10_000)).state is State.SUCCESS
            refused = await refusal(executor.surgeon.retry(id, *WHO))
            assert refused.code == "NOT_RETRYABLE"

    in_lab(test)


def test_m8_retry_turns_a_rollback_that_has_undone_nothing() -> None:
    """A rollback stuck in its first undo could not be turned, or one that has undone a part was."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            args = {"broken": True, "stubborn": True}
            id = await begun(executor, "op.two", args)
            assert (await executor.find(id)).state is State.ROLLING_BACK
            await executor.surgeon.retry(id, *WHO, step="one")
            await asyncio.sleep(0.1)
            record = await executor.find(id)
            assert record.state is State.ROLLING_BACK, "it is still broken"
            assert lab.calls[f"one {id}"] == 2
            lab.opened.set()
            await executor.surgeon.retry(id, *WHO)
            assert (await executor.wait(id, 100)).state is State.ROLLED_BACK, "at once"
            assert lab.calls[f"undo one {id}"] == 2

    in_lab(test)


def test_m8_children_are_not_retried_over() -> None:
    """A parent went on although its children had not ended."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.tree", {"depth": 1})
            refused = await refusal(executor.surgeon.retry(id, *WHO, step="end"))
            assert refused.code == "NOT_RETRYABLE"
            assert "children" in refused.message

    in_lab(test)


# ---------------------------------------------------------------------- steal
def test_m8_steal_gives_the_lock_to_the_next_and_fences_the_holder() -> None:
    """The next holder did not get a stolen lock, or the old one's late write was committed."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"hang": ["two"], "locks": ["r"]})
            other = await begun(executor, "op.two", {"wait": True, "locks": ["r"]})
            dry = await executor.surgeon.steal("r", *WHO, dry_run=True)
            assert executor.holders("r") == {id: "exclusive"}
            told = await executor.surgeon.steal("r", *WHO)
            assert told["procedures"] == dry["procedures"]
            await asyncio.sleep(0.1)
            assert executor.holders("r") == {other: "exclusive"}
            lab.opened.set()
            await asyncio.sleep(0.1)
            assert lab.row(f"two {id}") is None, "its late write was committed"
            assert lab.row(f"one {other}") == b"1"
            executor.signal("go")
            for one in (other, id):
                assert (await executor.wait(one, 10_000)).state is State.SUCCESS
            assert (await refusal(executor.surgeon.steal("r", *WHO))).code == "LOCK_NOT_HELD"
            (entry,), _ = await executor.surgeon.book.page(limit=10)
            assert (entry["what"], entry["options"]) == ("steal", {"resource": "r"})

    in_lab(test)


# ---------------------------------------------------------------------- the book
def test_m8_every_action_is_in_the_audit_with_its_reason() -> None:
    """An action without a reason or an actor, or one that nobody finds later."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True})
            for reason, actor in (("", "ann"), ("  ", "ann"), (None, "ann"), ("why", "")):
                refused = await refusal(executor.surgeon.bypass(id, reason, actor))  # type: ignore[arg-type]
                assert isinstance(refused, InvalidArgument)
            long = "x" * (limits.SURGERY_REASON_CHARS_MAX + 1)
            assert isinstance(await refusal(executor.surgeon.bypass(id, long, "ann")), TooLarge)
            assert not (await executor.find(id)).ended
            await executor.surgeon.retry(id, "again", "bob", step="one")
            await asyncio.sleep(0.1)
            await executor.surgeon.bypass(id, "it hangs", "ann")
            (newest, oldest), _ = await executor.surgeon.book.page(procedure=id, limit=10)
            assert (oldest["what"], oldest["actor"], oldest["reason"]) == ("retry", "bob", "again")
            assert (newest["what"], newest["actor"], newest["number"]) == ("bypass", "ann", 2)
            assert newest["at_ms"] == lab.clock.now_ms()
            assert newest["procedures"][0]["after"]["state"] == "BYPASSED"
            assert not (await executor.surgeon.book.page(procedure=999, limit=10))[0]
            assert (await executor.surgeon.book.page(before=2, limit=10))[0][0]["number"] == 1
            shown = (await executor.find(id)).history[-1]
            assert shown.outcome == "bypass: it hangs"

    in_lab(test)


def test_m8_the_same_key_acts_once() -> None:
    """An action that was asked for again, because its answer was lost, was done twice."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True})
            first = await executor.surgeon.retry(id, *WHO, step="one", key="k")
            await asyncio.sleep(0.1)
            assert await executor.surgeon.retry(id, *WHO, step="one", key="k") == first
            await asyncio.sleep(0.1)
            assert lab.calls[f"one {id}"] == 2

    in_lab(test)


def test_m8_the_audit_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The book grew for ever, by number or by age."""
    monkeypatch.setattr(limits, "AUDIT_ROWS_MAX", 5)
    monkeypatch.setattr(limits, "AUDIT_RETENTION_MS", 60_000)

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True})
            for _ in range(9):
                await executor.surgeon.retry(id, *WHO, step="one")
                await asyncio.sleep(0.05)
            kept, _ = await executor.surgeon.book.page(limit=100)
            assert [entry["number"] for entry in kept] == [9, 8, 7, 6, 5]
            await asyncio.sleep(limits.AUDIT_RETENTION_MS / 1000 + 60)
            await executor.surgeon.retry(id, *WHO, step="one")
            await asyncio.sleep(0.05)
            await executor.surgeon.retry(id, *WHO, step="one")
            kept, _ = await executor.surgeon.book.page(limit=100)
            assert [entry["number"] for entry in kept] == [11, 10]

    in_lab(test)


def test_m8_an_answer_has_looked_at_so_many_entries_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may see few actions, or asks for a procedure that nobody touched, would have the whole
    book read with each request; or what lies behind could not be asked for.
    """
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", 4)
    monkeypatch.setattr(limits, "PROCEDURE_PASSED_MAX", 4)

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await begun(executor, "op.two", {"wait": True})
            await executor.surgeon.retry(first, *WHO, step="one")
            id = await begun(executor, "op.two", {"wait": True})
            for _ in range(9):
                await executor.surgeon.retry(id, *WHO, step="one")
                await asyncio.sleep(0.05)
            page = executor.surgeon.book.page
            assert await page(limit=100, seen=lambda _name: False) == ([], 7)
            assert await page(limit=100, seen=lambda _name: False, before=7) == ([], 3)
            assert await page(limit=100, procedure=999, before=3) == ([], 0)
            found, on = await page(limit=1, procedure=first, before=3)
            assert [entry["number"] for entry in found] == [1]
            assert await page(limit=1, before=on) == ([], 0)
            found, on = await page(limit=2)
            assert ([entry["number"] for entry in found], on) == ([10, 9], 9)

    in_lab(test)
