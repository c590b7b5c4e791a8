"""What procedures do, in counts (procedures/pools/census.py), in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.errors import Unavailable
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step
from procedures.pools import census
from procedures.pools.control import Control
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.zoo import Zoo


@procedure("census.one")
class One(Zoo):
    """Does what it is told: waits, fails again and again, has a child, takes too long."""

    @step(first=True, deadline_ms=60_000)
    async def begin(self, ctx: StepContext) -> Outcome:
        match ctx.args:
            case "waits":
                return p.suspend(event="never", then="end")
            case "fails":
                raise Unavailable("<b>not</b> today")
            case "parent":
                return p.children([("census.one", "waits")], then="end")
            case "works":
                await asyncio.sleep(30)
        return p.done()

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done()


async def begun(executor: Executor, what: str, count: int = 1) -> list[int]:
    return [await executor.submit(submission("census.one", what)) for _ in range(count)]


async def look(control: Control) -> dict[str, Any]:
    await asyncio.sleep(census.FRESH_S + 0.5)
    found: dict[str, Any] = await control.do("census", {})
    return found


def test_m11_each_is_counted_once_by_what_it_does() -> None:
    """An operator would look for what is wrong in a list of 10,000."""

    async def test(_office: Office, executor: Executor) -> None:
        control = Control(executor)
        waits = await begun(executor, "waits", 3)
        (fails,) = await begun(executor, "fails")
        (parent,) = await begun(executor, "parent")
        (works,) = await begun(executor, "works")
        told = await look(control)
        kinds = {kind: n for kind, n in told["kinds"].items() if n}
        assert kinds == {"retrying": 1, "running": 1, "children": 1, "waiting": 4}
        assert told["live"] == 7
        assert set(told["kinds"]) == set(census.KINDS)
        assert told["types"] == [{"name": "census.one", "live": 7, "trouble": 1}]
        first, *others = told["first"]
        assert (first["id"], first["kind"]) == (str(fails), "retrying")
        assert "<b>not</b> today" in first["why"]
        assert [one["id"] for one in others][:4] == [*map(str, waits), str(parent)]
        said = {"kind": "procedure", "name": str(waits[0]), "note": "not now", "actor": "ann"}
        await control.do("pause.set", said)
        told = await look(control)
        assert told["kinds"]["paused"] == 1
        assert told["kinds"]["waiting"] == 3
        assert str(works) not in {one["id"] for one in told["first"]}, "it is not in trouble"
        for id in (*waits, fails, parent, works):
            await executor.abort(id, "seen")

    in_office(test, False, [One])


def test_who_asks_often_does_not_have_all_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten open consoles would hold up the master of a million procedures."""

    async def test(_office: Office, executor: Executor) -> None:
        control, looks, live = Control(executor), [0], executor.live

        def counted() -> list[Any]:
            looks[0] += 1
            return live()

        monkeypatch.setattr(executor, "live", counted)
        await asyncio.gather(*(control.do("census", {}) for _ in range(10)))
        assert looks == [1]
        await look(control)
        assert looks == [2]

    in_office(test, False, [One])


def test_lists_are_bounded_and_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer, or the pause of the loop, would grow with what there is."""

    async def test(_office: Office, executor: Executor) -> None:
        monkeypatch.setattr(census, "_SLICE", 10)
        control = Control(executor)
        ids = await begun(executor, "waits", 60)
        await asyncio.sleep(1)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        told = await control.do("census", {})
        task.cancel()
        assert turns >= 2
        assert told["kinds"]["waiting"] == 60
        assert [one["id"] for one in told["first"]] == [str(id) for id in ids[: census._OLDEST]]
        for id in ids:
            await executor.abort(id, "seen")

    in_office(test, False, [One])
