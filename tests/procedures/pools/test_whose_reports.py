"""Workers with rights: a master goes on with what they were let write, whatever they tell of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from procedures.engine import procedure as p
from procedures.engine import records
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step
from procedures.pools import messages
from procedures.pools.describe import described
from procedures.pools.messages import Entry, Looked, Turned
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import Slow, in_office, submission
from tests.procedures.zoo import Zoo, bump


@procedure("reports.child")
class Child(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "children")
        return p.done(ctx.args)


@procedure("reports.parent")
class Parent(Zoo):
    """Begins some that it waits for, and one that it does not."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        await ctx.submit("reports.child", 7)
        return p.children([("reports.child", n) for n in range(3)], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done([child.result for child in ctx.children])


def test_what_a_users_worker_begins_is_run() -> None:
    """A turn that begins others is over when they have been read, and not before."""

    async def test(office: Office, executor: Executor) -> None:
        office.user = "ann"
        for name in ("w1", "w2"):
            office.hire(name)
            await office.entered(name)
        ids = [await executor.submit(submission("reports.parent")) for _ in range(5)]
        for id in ids:
            ended = await executor.wait(id, 10_000)
            assert ended.state is State.SUCCESS
        await office.until(lambda: office.lab.number("children") == 20)

    in_office(test, [Parent, Child])


@pytest.mark.parametrize("forged", ["its own", "a child", "others as its children"])
def test_a_record_that_was_not_written_is_not_gone_on_with(forged: str) -> None:
    """Whoever may work for some pool had the master run the database's own procedures, in anybody's
    name, and read what all others had come to: records were taken from what the worker told.
    """

    async def test(office: Office, executor: Executor) -> None:
        crew, office.user = executor.crew, "eve"
        assert crew is not None
        office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("pool.slow"))
        await office.until(lambda: office.lab.calls.get(f"ran {id}", 0) == 1)
        stored = await office.lab.store.load(id)
        assert stored is not None
        own, child = stored.record, 1 << 40
        made: tuple[tuple[int, bytes], ...] = ()
        evil: dict[str, Any] = {"name": "DropTable", "pool": "", "owner": "root", "step": "hide"}
        if forged == "a child":
            told = structs.replace(own, id=child, parent=id, **evil)
            made = ((1, records.encode(told)),)
        elif forged == "its own":
            own = structs.replace(own, **evil)
        else:
            own = structs.replace(own, rounds=((child, 1),))
        report = Turned(id, stored.version, records.encode(own), made)
        said = messages.encode([report])
        await crew.poll("w1", crew.hands["w1"].epoch, 9_000, 0, False, 0, said, "eve")
        for _ in range(100):
            await asyncio.sleep(0.001)
            assert crew._roster.get(child) is None
            assert crew.pool_of("eve", child, child) is None
            live = crew._roster.get(id)
            assert live is not None
            assert live.record is None or live.record.name == "pool.slow"
        office.lab.opened.set()
        ended = await executor.wait(id, 10_000)
        assert (ended.name, ended.state) == ("pool.slow", State.SUCCESS)
        assert office.lab.number(f"slow {id}") == 1

    in_office(test, [Slow])


def test_a_question_is_answered_by_who_was_asked() -> None:
    """What a procedure's arguments mean, what it locks and what it answers to a query was taken
    from any worker that guessed the question's number.
    """

    async def test(office: Office, executor: Executor) -> None:
        crew = executor.crew
        assert crew is not None
        (slow,) = (described(one, "p") for one in office.types())
        epochs = {}
        for name, type_ in (("w", "pool.slow"), ("spy", "other")):
            types = (structs.replace(slow, name=type_),)
            entry = Entry("p", 1, types, format=records.FORMAT_MORE)
            epochs[name], *_ = await crew.enter(name, entry, name)
        id = await executor.submit(submission("pool.slow"))
        stored = await office.lab.store.load(id)
        assert stored is not None
        declared: Any = crew._types.find("pool.slow", stored.record.version)
        asking = asyncio.create_task(crew.ask(declared, "how", stored.record, b""))
        await asyncio.sleep(0.01)
        for name in ("spy", "w"):
            assert not asking.done()
            said = messages.encode([Looked(crew._asked, None, (), name.encode())])
            await crew.poll(name, epochs[name], 1, 0, False, 0, said, name)
            await asyncio.sleep(0.01)
        assert await asking == b"w"

    in_office(test, [Slow])
