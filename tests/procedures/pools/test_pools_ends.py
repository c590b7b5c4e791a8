"""Workers that cannot enter: stopped meanwhile, or refused for their name. Virtual time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from msgspec import structs

from kv.base import limits
from kv.base.errors import Busy, NotFound, Refused, TooLarge
from kv.base.ops import Op
from procedures.engine.executor import Executor
from procedures.engine.procedure import State
from procedures.engine.registry import declaration
from procedures.pools import messages, rows
from procedures.pools.describe import described
from procedures.pools.messages import Entry
from procedures.pools.worker import Worker
from tests.procedures.pools.pool_lab import LEASE_S, Office
from tests.procedures.pools.test_pools import Slow, in_office, submission


def twin(office: Office) -> tuple[Worker, asyncio.Task[None]]:
    """Another process with the name of w1."""
    first = office.running.pop("w1")
    second = office.hire("w1")
    second._pid = 99
    office.running["first"], office.ways["first"] = first, office.ways["w1"]
    return second, office.running.pop("w1")


def test_u1_a_name_that_another_worker_has(caplog: pytest.LogCaptureFixture) -> None:
    """Its user is told at once, and after a lease it ends with the refusal; the first one works."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        began = office.loop.time()
        with caplog.at_level(logging.WARNING):
            second, running = twin(office)
            await asyncio.sleep(0.1)
            assert "the name w1 belongs to process 0" in caplog.text
        with pytest.raises(Refused, match="take another name") as refused:
            await running
        assert refused.value.code == "NAME_TAKEN"
        assert LEASE_S < office.loop.time() - began < 3 * LEASE_S
        assert not second.entered.is_set()
        id = await executor.submit(submission("pool.slow"))
        office.lab.opened.set()
        assert (await executor.wait(id, 5_000)).state is State.SUCCESS

    in_office(test, [Slow])


def test_workers_of_one_user_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may work for one pool kept the workers of all others out, by many of his own."""
    monkeypatch.setattr(limits, "WORKERS_OF_USER_MAX", 2)

    async def test(office: Office, executor: Executor) -> None:
        assert executor.crew is not None
        entry = Entry("p", 1, tuple(described(one, "p") for one in office.types()))
        for name in ("a", "b", "b"):
            await executor.crew.enter(name, entry, "eve")
        with pytest.raises(Busy, match="2 workers of 'eve' are here, the limit is 2"):
            await executor.crew.enter("c", entry, "eve")
        await executor.crew.enter("c", entry, "ann")
        for name in ("d", "e", "f"):  # while nobody logs in
            await executor.crew.enter(name, entry)

    in_office(test, [Slow])


@pytest.mark.parametrize("what", ["MAX", "BYTES_MAX"])
def test_types_of_one_user_leave_room_for_others(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came again and again, each time with other names, filled the memory of the master,
    and the answer to every worker that comes.
    """

    async def test(office: Office, executor: Executor) -> None:
        crew = executor.crew
        assert crew is not None
        (slow,) = (described(one, "p") for one in office.types())
        size = len(messages.encode(structs.replace(slow, name="t000")))
        limit = 3 if what == "MAX" else 3 * size + size // 2
        monkeypatch.setattr(limits, f"TYPES_OF_USER_{what}", limit)

        def entry(*numbers: int) -> Entry:
            return Entry("p", 1, tuple(structs.replace(slow, name=f"t{n:03}") for n in numbers))

        def known() -> list[str]:
            return sorted(one.name for one in crew._types.types() if one.user == "eve")

        await crew.enter("a", entry(0, 1), "eve")
        _, _, told = await crew.enter("b", entry(2), "eve")
        assert {one.user for one in messages.descriptions(told)} == {""}, "others are told, too"
        with pytest.raises(Refused, match=f"of 'eve' would be known, the limit is {limit}") as full:
            await crew.enter("c", entry(3), "eve")
        assert full.value.code == "TYPES_FULL"
        assert "declare fewer types" in full.value.message
        assert known() == ["t000", "t001", "t002"], "nothing has changed"
        assert "c" not in crew.hands
        await crew.enter("a", entry(0, 1), "eve")  # as before
        await crew.enter("d", entry(3), "ann")
        await crew.enter("e", entry(0, 3), "ann")  # what others declared first is theirs
        await crew._bury(crew.hands["b"])  # nobody has t002 any more
        await crew.enter("c", entry(4), "eve")
        assert known() == ["t000", "t001", "t004"]
        stored = [rows.name_in(key) async for key, _, _ in rows.every(crew._rows, rows.ALL_TYPES)]
        assert sorted(stored) == ["t000", "t001", "t003", "t004"]

    in_office(test, [Slow])


def test_what_is_submitted_while_room_is_made_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which types nobody needs was found out once, for all that were then forgotten one by one."""
    monkeypatch.setattr(limits, "TYPES_OF_USER_MAX", 2)

    async def test(office: Office, executor: Executor) -> None:
        crew = executor.crew
        assert crew is not None
        (slow,) = (described(one, "p") for one in office.types())

        def entry(*names: str) -> Entry:
            return Entry("p", 1, tuple(structs.replace(slow, name=name) for name in names))

        await crew.enter("a", entry("first", "second"), "eve")
        await crew._bury(crew.hands["a"])
        begun, go_on, write = asyncio.Event(), asyncio.Event(), crew._rows.write

        async def slowly(ops: list[Op]) -> None:
            if ops[0].key == rows.type_("first", slow.version):
                begun.set()
                await go_on.wait()
            await write(ops)

        monkeypatch.setattr(crew._rows, "write", slowly)
        coming = asyncio.create_task(crew.enter("b", entry("third", "fourth"), "eve"))
        await begun.wait()
        with pytest.raises(NotFound, match="first"):  # it is being forgotten
            await executor.submit(submission("first"))
        await executor.submit(submission("second"))
        go_on.set()
        with pytest.raises(Refused, match="3 types and versions of workers of 'eve'"):
            await coming
        assert [one.name for one in crew._types.types() if one.user == "eve"] == ["second"]

    in_office(test, [Slow])


def test_what_was_declared_before_there_were_limits_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers were refused by the master that was upgraded, with what it had known for long."""

    async def test(office: Office, executor: Executor) -> None:
        crew = executor.crew
        assert crew is not None
        (slow,) = (described(one, "p") for one in office.types())

        def entry(count: int) -> Entry:
            steps = tuple(structs.replace(slow.steps[0], name=f"step{n:04}") for n in range(count))
            types = [structs.replace(slow, name=name, steps=steps) for name in ("wide", "broad")]
            return Entry("p", 1, tuple(types))

        await crew.enter("a", entry(60))  # nobody was asked who he is
        for name in ("WORKER_TYPE_BYTES_MAX", "TYPES_OF_USER_BYTES_MAX", "TYPES_OF_USER_MAX"):
            monkeypatch.setattr(limits, name, 1)
        await crew.enter("b", entry(60), "eve")
        assert {one.user for one in crew._types.types() if one.name == "wide"} == {"eve"}
        await crew.enter("b", entry(60), "eve")
        with pytest.raises(TooLarge, match="give it another version"):
            await crew.enter("b", entry(61), "eve")

    in_office(test, [Slow])


def test_a_type_is_bounded_and_so_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one version added up, as each worker said others."""

    async def test(office: Office, executor: Executor) -> None:
        crew = executor.crew
        assert crew is not None
        (slow,) = (described(one, "p") for one in office.types())
        monkeypatch.setattr(limits, "WORKER_TYPE_BYTES_MAX", 2_000)

        def steps(begin: int) -> Entry:
            added = tuple(
                structs.replace(slow.steps[0], name=f"step{n:04}") for n in range(begin, begin + 60)
            )
            return Entry("p", 1, (structs.replace(slow, name="wide", steps=slow.steps + added),))

        await crew.enter("a", steps(0))
        await crew.enter("a", steps(20))
        with pytest.raises(TooLarge, match=r"procedure wide, version 1: .* the limit is 2000"):
            await crew.enter("a", steps(100))
        monkeypatch.setattr(limits, "TYPES_KNOWN_MAX", 2)
        await crew.enter("b", Entry("p", 1, (structs.replace(slow, name="second"),)))
        with pytest.raises(Refused, match="3 types and versions of workers would be known"):
            await crew.enter("c", Entry("p", 1, (structs.replace(slow, name="third"),)))

    in_office(test, [Slow])


def test_u1_a_killed_workers_name_is_free_after_its_lease() -> None:
    """Started again at once under its old name it waits for the lease of the dead one."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        await office.kill("w1")
        office.hire("w1")._pid = 99
        await office.entered("w1")

    in_office(test, [Slow])


def test_u1_sigterm_ends_a_worker_that_has_not_entered() -> None:
    """Stopped while another one has its name, it ends at once; so it does while nobody is there."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        second, running = twin(office)
        await asyncio.sleep(0.3)
        second.stop()
        async with asyncio.timeout(0.05):
            await running
        assert [w["worker"] for w in executor.crew.workers()] == ["w1"]  # type: ignore[union-attr]
        alone = office.hire("w2")
        office.ways["w2"].cut = True
        await asyncio.sleep(1)
        alone.stop()
        async with asyncio.timeout(0.05):
            await office.running.pop("w2")

    in_office(test, [Slow])


def test_u1_sigterm_ends_a_worker_whose_master_is_away() -> None:
    """It lets its step end, waits for nobody to hear of it, and the next master reads the store."""

    async def test(office: Office, executor: Executor) -> None:
        worker = office.hire("w1")
        await office.entered("w1")
        id = await executor.submit(submission("pool.slow"))
        await office.until(lambda: len(worker._jobs) == 1)
        await asyncio.sleep(0.1)
        office.ways["w1"].cut = True
        await asyncio.sleep(1)
        worker.stop()
        await asyncio.sleep(0.5)
        assert not office.running["w1"].done()  # a step is under way
        office.lab.opened.set()
        async with asyncio.timeout(0.5):
            await office.running.pop("w1")
        office.hire("w2")
        assert (await executor.wait(id, 10_000)).state is State.SUCCESS
        assert office.lab.number(f"slow {id}") == 1

    in_office(test, [Slow])


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        ("", "start the nodes without that module"),
        ("app.orders.Slow", "give the worker's procedure another name"),
    ],
)
def test_u1_a_type_that_the_nodes_run_themselves(origin: str, advice: str) -> None:
    """Whose class only happens to have a built-in's name was told to take it out of options that
    nobody had given.
    """

    async def test(office: Office, executor: Executor) -> None:
        mine = declaration(Slow)
        executor.types.put(replace(mine, origin=origin or mine.origin))
        office.hire("w1")
        with pytest.raises(Refused, match=advice) as refused:
            await office.running.pop("w1")
        assert refused.value.code == "ALREADY_SERVED"

    in_office(test, [Slow])
