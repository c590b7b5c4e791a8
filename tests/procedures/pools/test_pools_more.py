"""Versions side by side, stuck steps, limits, schedules. Virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, UnknownOutcome
from kvorum.master.upgrade import check
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import Registry, declaration, procedure, step
from procedures.engine.submission import Options
from procedures.pools import inbox
from procedures.pools.control import Control
from procedures.pools.schedule_times import next_time
from procedures.pools.schedules import Schedules
from procedures.pools.start_limits import Gate, Limit
from tests.procedures.lab import run
from tests.procedures.pools.pool_lab import Office, TableRows
from tests.procedures.pools.test_pools import Waits, in_office, submission
from tests.procedures.zoo import Zoo


@procedure("grown", version=1)
class Grown1(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.suspend(event=f"go {ctx.id}", then="old")

    @step
    async def old(self, ctx: StepContext) -> Outcome:
        return p.done(1)


@procedure("grown", version=2)
class Grown2(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.done(2)


@procedure("grown", version=3, accepts=[1, 2])
class Grown3(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.done(3)

    @step
    async def old(self, ctx: StepContext) -> Outcome:
        return p.done(31)


GROWN = [Grown1, Grown2, Grown3]


@pytest.mark.parametrize(("later", "result"), [((1, 3), 1), ((3,), 31)])
def test_u10_a_record_runs_with_its_version(later: tuple[int, ...], result: int) -> None:
    """The version that it began with where somebody has it, else the one that accepts it."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1", types=office.types(["grown"], [1]))
        await office.entered("w1")
        id = await executor.submit(submission("grown"))
        await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
        await office.dismiss("w1")
        office.hire("w2", types=office.types(["grown"], [2]))
        await office.entered("w2")
        executor.signal(f"go {id}")
        await asyncio.sleep(0.5)
        live = executor.live_one(id)
        assert live is not None
        assert executor.crew is not None
        assert executor.crew.why_waits(live) == "no worker of pool p serves grown of version 1"
        assert plain_data.decode((await run(executor, "grown")).result) == 2
        office.hire("w3", types=office.types(["grown"], list(later)))
        ended = await executor.wait(id, 5_000)
        assert plain_data.decode(ended.result) == result

    in_office(test, GROWN)


def test_u10_versions_in_one_registry() -> None:
    """The newest is submitted; a record finds its own version, or one that accepts it, or none."""
    registry = Registry([Grown1, Grown2])
    assert registry.get("grown").version == 2
    assert registry.get("grown", 1).version == 1
    assert registry.find("grown", 3) is None
    assert Registry([Grown2]).find("grown", 1) is None
    assert Registry([Grown3]).get("grown", 1).version == 3


@procedure("sticks")
class Sticks(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        if ctx.args == "stick":
            await self.lab.opened.wait()
        return p.done()


@pytest.mark.parametrize("remote", [True, False])
def test_j17_stuck_steps_starve_nobody(remote: bool) -> None:
    """Steps that take longer than a minute are shown, and others run beside them."""

    async def test(office: Office, executor: Executor) -> None:
        if remote:
            office.hire("w1", slots=2)
            await office.entered("w1")
        else:
            executor.types.add(Sticks, make=office.lab._maker(Sticks))
            executor.set_workers(2)
        stuck = [await executor.submit(submission("sticks", "stick")) for _ in range(2)]
        await asyncio.sleep(0.3)
        other = await executor.submit(submission("sticks"))
        await asyncio.sleep(58)
        assert not (await executor.find(other)).ended
        assert (await executor.wait(other, 5_000)).state is State.SUCCESS
        assert executor.counters()["stuck"] == 2
        office.lab.opened.set()
        for id in stuck:
            assert (await executor.wait(id, 5_000)).state is State.SUCCESS
        await asyncio.sleep(1)
        assert executor.counters()["stuck"] == 0

    in_office(test, [Sticks])


def test_u1_rates_and_limits_of_types() -> None:
    """A gate of so many at once and so many a second lets exactly that through, highest first."""

    async def main(loop: simloop.SimLoop) -> None:
        from kv.base.adapters import LoopTimers

        began: list[tuple[float, int]] = []
        began_at = lambda id: began.append((loop.time(), id))  # noqa: E731
        gate = Gate(LoopTimers(loop), simloop.SimClock(loop), began_at, lambda _, __: None)
        gate.limit("queue:a", Limit(rate_per_s=10))
        gate.limit("type:t", Limit(max_concurrent=3))
        start = loop.time()
        for id in range(6):
            assert not gate.enter(id, ("queue:a", "type:t"), id)
        assert gate.enter(100, ("queue:b",), 0), "another queue waits for nobody"
        await asyncio.sleep(2)
        assert [id for _, id in began] == [5, 4, 3]
        gaps = [when - start for when, _ in began]
        assert gaps == pytest.approx([0.1, 0.2, 0.3], abs=0.02)
        assert "type:t" in gate.waits(0)
        gate.left(4)
        assert [id for _, id in began][3:] == [2]
        gate.left(1)  # one that waits may go, too
        gate.limit("type:t", Limit())
        await asyncio.sleep(1)
        assert [id for _, id in began][4:] == [0]
        assert gate.figures()["queue:a"] == (4, 0)
        gate.close()

    simloop.run(main, 0)


def test_u1_a_new_master_counts_what_has_begun() -> None:
    """A limit holds over a failover: what waits in the middle still counts."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Waits])
        executor = await office.open(office.executor())
        office.hire("w1")
        await office.entered("w1")
        await Control(executor).do("queue.set", {"name": "q", "max_concurrent": 1})
        options = Options(queue="q")
        ids = [
            await executor.submit(submission("pool.waits", n, options=options)) for n in range(2)
        ]
        await office.until(lambda: executor.live_one(ids[0]).event)  # type: ignore[union-attr]
        await office.close(executor)
        second = await office.open(office.executor())
        await asyncio.sleep(3)
        waiting = second.live_one(ids[1])
        assert waiting is not None
        assert not waiting.begun
        second.signal("go 0")
        await second.wait(ids[0], 5_000)
        await office.until(lambda: second.live_one(ids[1]).event)  # type: ignore[union-attr]
        await office.end()
        await office.close(second)

    simloop.run(main, 0)


def test_u1_each_time_of_a_schedule_runs_once() -> None:
    """Over submissions with unknown outcome and over masters that come late; three ways to miss."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [])
        store = TableRows(office.lab.store.table)
        started: dict[str, int] = {}
        trouble = iter([True, False] * 100)

        async def submit(sub: Any) -> int:
            started.setdefault(sub.nonce, len(started) + 1)
            if next(trouble):
                raise UnknownOutcome("it may or may not have been submitted")
            return started[sub.nonce]

        first = Schedules(store, office.lab.clock, submit)
        for missed in ("one", "all", "skip"):
            await first.set(
                {"name": missed, "cron": "*/5 * * * *", "procedure": "x", "missed": missed}
            )
        running = loop.create_task(first.run())
        await asyncio.sleep(3_600)
        assert len(started) == 3 * 12
        running.cancel()
        await asyncio.sleep(3_600)  # nobody is master
        later = Schedules(store, office.lab.clock, submit)
        running = loop.create_task(later.run())
        await asyncio.sleep(60)
        names = [nonce.split("/")[1] for nonce in list(started)[36:]]
        assert sorted(names) == ["all"] * 12 + ["one"]
        told = {s["name"]: s["runs"] for s in await later.all()}
        assert told == {"one": 13, "all": 24, "skip": 12}
        await asyncio.sleep(300)
        assert len(started) == 36 + 13 + 3
        running.cancel()

    simloop.run(main, 0)


def test_u1_times_of_a_schedule() -> None:
    """Zones and daylight saving: 2:30 exists once a day in Berlin, also when the clock is moved."""
    day = 86_400_000
    times = [next_time("30 2 * * *", "Europe/Berlin", 1_711_670_400_000)]  # 2024-03-29
    for _ in range(3):
        times.append(next_time("30 2 * * *", "Europe/Berlin", times[-1]))
    gaps = [b - a for a, b in pairwise(times)]
    assert sum(gaps) == 3 * day - 3_600_000
    assert all(gap > day / 2 for gap in gaps)
    assert next_time("0 0 29 2 *", "UTC", 1_711_670_400_000) == 1_835_395_200_000
    with pytest.raises(InvalidArgument, match="five fields"):
        next_time("nonsense", "UTC", 0)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        (" @Daily ", "0 0 * * *"),
    ],
)
def test_names_of_cron_expressions(name: str, fields: str, zone: str) -> None:
    """What every cron reads was refused."""
    for after in (0, 1_711_670_400_000):
        assert next_time(name, zone, after) == next_time(fields, zone, after)


@pytest.mark.parametrize("cron", ["* * * * * *", "0 */5 * * * *", "* * * *", "@reboot", "@", ""])
def test_a_schedule_has_five_fields(cron: str) -> None:
    """Six fields were taken, against what is documented: the first of them as seconds."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [])

        async def submit(_sub: Any) -> int:
            raise AssertionError("nothing is due")

        schedules = Schedules(TableRows(office.lab.store.table), office.lab.clock, submit)
        with pytest.raises(InvalidArgument, match="cron"):
            await schedules.set({"name": "s", "cron": cron, "procedure": "x"})
        assert await schedules.all() == []

    simloop.run(main)


def test_one_schedule_in_trouble_keeps_no_other_from_its_time() -> None:
    """Those behind the name that could not be submitted were never started."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [])
        started: list[str] = []

        async def submit(sub: Any) -> int:
            if sub.name == "bad":
                raise UnknownOutcome("again and again")
            started.append(sub.name)
            return 1

        schedules = Schedules(TableRows(office.lab.store.table), office.lab.clock, submit)
        for name, procedure_ in (("a", "bad"), ("b", "good")):
            await schedules.set({"name": name, "cron": "*/5 * * * *", "procedure": procedure_})
        running = loop.create_task(schedules.run())
        await asyncio.sleep(900)
        running.cancel()
        assert started == ["good"] * 3

    simloop.run(main)


@procedure("nominal")
class Nominal(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.done(ctx.scheduled_ms)


def test_a_missed_run_is_told_its_nominal_time() -> None:
    """A run that was made up for could not know which day it stands for."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        told = {"name": "n/a", "cron": "*/5 * * * *", "procedure": "nominal", "missed": "all"}
        await Control(executor).do("schedule.set", told)
        await asyncio.sleep(301)
        await office.close(executor)
        await asyncio.sleep(900)
        again = await office.open(office.executor())
        await asyncio.sleep(30)
        found = [s.record for s in await office.lab.store.newest(0, 10)]
        times = sorted(plain_data.decode(r.result) for r in found if r.name == "nominal")
        assert len(times) >= 4
        assert [t % 300_000 for t in times] == [0] * len(times)
        assert {b - a for a, b in pairwise(times)} == {300_000}
        assert times == sorted(r.scheduled_ms for r in found)
        assert (await run(again, "nominal")).scheduled_ms == 0
        await office.close(again)

    in_office(test, [Nominal])


def test_u10_check_upgrade() -> None:
    """New code is told of every live procedure that it would not run: type, version, step, undo."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Grown1, Waits])
        executor = await office.open(office.executor())
        office.hire("w1")
        await office.entered("w1")
        grown = await executor.submit(submission("grown"))
        waits = await executor.submit(submission("pool.waits", 1))
        for id in (grown, waits):
            await office.until(lambda id=id: executor.live_one(id).event)
        live = [(await office.lab.store.load(id)).record for id in (grown, waits)]

        def broken(*types: type) -> dict[str, str]:
            told = check([declaration(cls) for cls in types], live)
            return {p["name"]: p["why"] for p in told["broken"]}

        assert check([declaration(Grown1), declaration(Waits)], live) == {
            "checked": 2,
            "broken": [],
        }
        assert broken(Grown3) == {}
        assert "version 1" in broken(Grown2)["grown"]
        assert "no step 'old'" in broken(Grown1WithoutOld)["grown"]
        assert "no undo method 'back'" in broken(WaitsWithoutBack)["pool.waits"]
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


class _Later:
    """The same names, as a later version of the module would declare them."""


def _renamed(name: str, cls: type, new: str) -> type:
    """A declaration under the name of another one, which its module has no more."""
    declared = replace(declaration(cls), name=new, origin="the new code")
    return type(name, (_Later,), {"__kvorum_procedure__": declared})


@procedure("grown.new")
class _Grown(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.done()


@procedure("pool.waits.new")
class _Waits(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        return p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done()


Grown1WithoutOld = _renamed("Grown1WithoutOld", _Grown, "grown")
WaitsWithoutBack = _renamed("WaitsWithoutBack", _Waits, "pool.waits")


def test_u1_nothing_is_left_of_signals() -> None:
    """Signals that nobody took, their keys and completions go with their procedure."""

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1")
        await office.entered("w1")
        control = Control(executor)
        id = await executor.submit(submission("pool.waits", 1))
        await office.until(lambda: executor.live_one(id).event)  # type: ignore[union-attr]
        token = f"ext-00-{id}-1"
        for n in range(3):
            await control.do("signal", {"id": id, "name": "x", "payload": n, "key": str(n)})
        await control.do("complete", {"token": token, "result": 1})
        executor.signal("go 1")
        await executor.wait(id, 5_000)
        await asyncio.sleep(70)
        store = TableRows(office.lab.store.table)
        assert {one async for one in inbox.owners(store)} == {id}
        await executor.acknowledge(id)
        await asyncio.sleep(70)
        assert [one async for one in inbox.owners(store)] == []

    in_office(test, [Waits])
