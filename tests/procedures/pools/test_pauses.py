"""Pauses of procedures, types, queues and pools: who starts, who finishes, who goes on. Virtual
time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, NotFound, Refused
from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step, undo
from procedures.engine.submission import Options
from procedures.engine.view import shown_state
from procedures.pools.control import Control
from tests.procedures.lab import Lab, refusal
from tests.procedures.pools.pool_lab import Office, TableRows
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo, bump


@procedure("walk", timeout_ms=600_000)
class Walk(Zoo):
    """Ten steps of a second each; it can be rolled back."""

    @step(first=True, undo="back")
    async def go(self, ctx: StepContext) -> Outcome:
        await asyncio.sleep(1)
        await bump(ctx, f"walk {ctx.id}")
        ctx.state["steps"] = ctx.state.get("steps", 0) + 1
        return p.done(ctx.state["steps"]) if ctx.state["steps"] == 10 else p.next("go")

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, f"walk {ctx.id}", -1)


@procedure("early", queue="fast")
class Early(Zoo):
    @step(first=True, early=True)
    async def go(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "early")
        return p.done(None)


@procedure("locked", locks=lambda _: [p.exclusive("door")])
class Locked(Zoo):
    @step(first=True)
    async def go(self, ctx: StepContext) -> Outcome:
        await asyncio.sleep(1)
        await bump(ctx, f"locked {ctx.id}")
        return p.done(None)


TYPES = [Walk, Early, Locked]


def at_master(test: Any) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, TYPES)
        rows = TableRows(lab.store.table)
        async with lab.executor(rows=rows) as executor:
            await test(lab, executor, Control(executor))

    simloop.run(main, 0)


def of(kind: str, name: object, note: str = "look first") -> dict[str, object]:
    return {"kind": kind, "name": str(name), "note": note, "actor": "ann"}


async def steps(lab: Lab, id: int) -> int:
    return lab.number(f"walk {id}")


def test_a_paused_procedure_finishes_its_step_and_goes_on_later() -> None:
    """A pause tears no step apart."""

    async def test(lab: Lab, executor: Executor, control: Control) -> None:
        id, other = [await executor.submit(submission("walk")) for _ in range(2)]
        await asyncio.sleep(2.5)
        told = await control.do("pause.set", of("procedure", id))
        assert (told["note"], told["by"]) == ("look first", "ann")
        await asyncio.sleep(100)
        assert (lab.number(f"walk {id}"), lab.number(f"walk {other}")) == (3, 10)
        explained: Any = await executor.explain(id)
        assert "paused by ann: look first" in explained["sentence"]
        live = executor.live_one(id)
        assert live is not None
        assert (executor.pause_of(live) or {})["kind"] == "procedure"
        assert [one["name"] for one in await control.do("pause.list", {})] == [str(id)]
        await control.do("pause.end", of("procedure", id))
        assert (await executor.wait(id, 60_000)).state is State.SUCCESS
        audit: Any = await control.audit({})
        assert [one["what"] for one in audit["items"]] == ["resume", "pause"]
        error = await refusal(control.do("pause.set", of("procedure", id)))
        assert (type(error), error.code) == (Refused, "ENDED")
        assert isinstance(await refusal(control.do("pause.end", of("type", "walk"))), NotFound)
        for wrong in ({"kind": "step"}, {"note": ""}, {"kind": "procedure", "name": "x"}):
            error = await refusal(control.do("pause.set", of("type", "walk") | wrong))
            assert isinstance(error, InvalidArgument)

    at_master(test)


@pytest.mark.parametrize(("kind", "name"), [("type", "early"), ("queue", "fast")])
def test_nothing_new_of_what_is_paused_begins(kind: str, name: str) -> None:
    """An early step ran with its submission, before anybody looked."""

    async def test(lab: Lab, executor: Executor, control: Control) -> None:
        await control.do("pause.set", of(kind, name))
        ids = [await executor.submit(submission("early")) for _ in range(3)]
        await asyncio.sleep(10)
        assert lab.number("early") == 0
        await control.do("pause.end", of(kind, name))
        for id in ids:
            assert (await executor.wait(id, 10_000)).state is State.SUCCESS

    at_master(test)


@pytest.mark.parametrize("kind", ["type", "procedure"])
def test_what_is_paused_takes_nobodys_place_in_a_queue(kind: str) -> None:
    """It begins when its turn comes, does nothing, and nobody else of the queue begins."""

    async def test(lab: Lab, executor: Executor, control: Control) -> None:
        await control.do("queue.set", {"name": "q", "max_concurrent": 1})
        ids = []
        for type_ in ("walk", "locked", "walk"):
            ids.append(await executor.submit(submission(type_, options=Options(queue="q"))))
        first, paused, last = ids
        name = "locked" if kind == "type" else paused
        await control.do("pause.set", of(kind, name))
        for id in (first, last):
            assert (await executor.wait(id, 60_000)).state is State.SUCCESS
        assert lab.number(f"locked {paused}") == 0
        third = await executor.submit(submission("walk", options=Options(queue="q")))
        await asyncio.sleep(2.5)
        await control.do("pause.end", of(kind, name))
        await asyncio.sleep(2)
        assert lab.number(f"locked {paused}") == 0, "the third one has its place"
        for id in (third, paused):
            assert (await executor.wait(id, 60_000)).state is State.SUCCESS

    at_master(test)


def test_u26_what_is_paused_can_be_aborted_and_its_time_can_end() -> None:
    """A pause holds up neither an operator nor a deadline."""

    async def test(lab: Lab, executor: Executor, control: Control) -> None:
        first, second = [await executor.submit(submission("walk")) for _ in range(2)]
        await asyncio.sleep(2.5)
        await control.do("pause.set", of("type", "walk"))
        await asyncio.sleep(5)
        await executor.abort(first, "enough")
        assert (await executor.wait(first, 10_000)).state is State.ROLLED_BACK
        assert lab.number(f"walk {first}") == 0
        await asyncio.sleep(600)
        late = await executor.find(second)
        assert late.error is not None
        assert (late.state, late.error.code) == (State.ROLLED_BACK, "TIMEOUT")

    at_master(test)


def test_who_is_paused_while_it_waits_for_a_lock_holds_up_nobody() -> None:
    """Those behind it in the queue pass."""

    async def test(lab: Lab, executor: Executor, control: Control) -> None:
        ids = [await executor.submit(submission("locked")) for _ in range(3)]
        await control.do("pause.set", of("procedure", ids[1]))
        assert (await executor.wait(ids[2], 10_000)).state is State.SUCCESS
        assert lab.number(f"locked {ids[1]}") == 0
        new = await executor.submit(submission("locked"))
        assert (await executor.wait(new, 10_000)).state is State.SUCCESS
        await control.do("pause.end", of("procedure", ids[1]))
        assert (await executor.wait(ids[1], 10_000)).state is State.SUCCESS

    at_master(test)


@pytest.mark.parametrize("kind", ["procedure", "type", "queue", "pool"])
def test_u26_workers_give_back_what_is_paused(kind: str) -> None:
    """A worker runs step after step by itself."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        control = Control(executor)
        options = Options(queue="q", pool="p")
        id = await executor.submit(submission("walk", options=options))
        await asyncio.sleep(2.5)
        name = {"procedure": id, "type": "walk", "queue": "q", "pool": "p"}[kind]
        await control.do("pause.set", of(kind, name))
        await asyncio.sleep(30)
        assert office.lab.number(f"walk {id}") == 3
        # A new master, and the worker that comes back to it, know it.
        await office.close(executor)
        later = await office.open(office.executor())
        new = await later.submit(submission("walk", options=options))
        await asyncio.sleep(30)
        assert office.lab.number(f"walk {id}") == 3
        assert office.lab.number(f"walk {new}") == (10 if kind == "procedure" else 0)
        assert shown_state(await later.find(id)) == ("RUNNABLE", "go")
        await Control(later).do("pause.end", of(kind, name))
        assert (await later.wait(id, 60_000)).state is State.SUCCESS
        await office.close(later)

    in_office(test, TYPES)


def test_a_failover_while_a_step_is_under_way_keeps_the_pause() -> None:
    """The worker comes back with what it holds, and would have gone on with it."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("walk"))
        await asyncio.sleep(2.5)
        office.ways["w1"].cut = True
        await Control(executor).do("pause.set", of("type", "walk"))
        await office.close(executor)
        later = await office.open(office.executor())
        office.ways["w1"].cut = False
        await asyncio.sleep(2)
        there = office.lab.number(f"walk {id}")
        await asyncio.sleep(30)
        assert office.lab.number(f"walk {id}") == there < 10
        await Control(later).do("pause.end", of("type", "walk"))
        assert (await later.wait(id, 60_000)).state is State.SUCCESS
        await office.close(later)

    in_office(test, TYPES)


def test_a_pause_goes_with_its_procedure() -> None:
    """Nothing is left of it when the procedure is forgotten."""

    async def test(lab: Lab, executor: Executor, control: Control) -> None:
        id = await executor.submit(submission("walk"))
        await control.do("pause.set", of("procedure", id))
        await executor.abort(id, "enough")
        await asyncio.sleep(70)
        assert await control.do("pause.list", {}) == []

    at_master(test)


def test_one_may_pause_a_part_of_what_can_be_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may operate on one type took all pauses: an operator in need could pause nothing."""
    monkeypatch.setattr(limits, "PAUSES_OF_ONE_MAX", 2)

    async def test(_office: Office, executor: Executor) -> None:
        control = Control(executor)

        async def pause(name: str, actor: str) -> None:
            said = {"kind": "queue", "name": name, "note": "why", "actor": actor}
            await control.do("pause.set", said)

        await pause("a", "ann")
        await pause("b", "ann")
        await pause("b", "ann")
        with pytest.raises(Refused, match="by ann"):
            await pause("c", "ann")
        await pause("c", "bob")
        await control.do("pause.end", {"kind": "queue", "name": "a", "actor": "bob"})
        await pause("d", "ann")

    in_office(test)
