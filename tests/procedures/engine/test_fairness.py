"""Who is given out first at busy workers and limits: priority exactly, then turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.adapters import LoopTimers
from kvorum.testing.simulation import loop as simloop
from kvorum.testing.simulation.loop import SimClock, SimLoop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step
from procedures.engine.scheduler import Entry, FairScheduler
from procedures.engine.submission import Options
from procedures.pools.start_limits import Gate, Limit
from tests.procedures.lab import Lab
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo

_LANES = ("p\x1fa\x1f1", "p\x1fb\x1f1", "p\x1fc\x1f1")
_LOADS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(_LANES), st.sampled_from(["one", "two", "three"]), st.integers(0, 2)
        ),
        st.none(),
    ),
    max_size=80,
)


@given(_LOADS, st.integers(1, 7))
def test_over_random_loads_nobody_waits_longer_than_a_bound(
    loads: list[tuple[str, str, int] | None], mask: int
) -> None:
    """A queue or a lane was passed over again and again, or a lower priority went first."""
    asked = [lane for i, lane in enumerate(_LANES) if mask >> i & 1]
    scheduler = FairScheduler()
    waiting: dict[int, tuple[str, str, int]] = {}
    passed: dict[tuple[str, int], dict[str, int]] = {}  # (queue, priority) → by whom, how often
    served: dict[str, int] = {}

    def take() -> bool:
        places = [
            (place, served.get(lane, 0), lane)
            for lane in asked
            if (place := scheduler.order(lane)) is not None
        ]
        here = {id: one for id, one in waiting.items() if one[0] in asked}
        assert bool(places) == bool(here)
        if not places:
            return False
        lane = min(places)[-1]
        id = scheduler.pop(lane)
        assert id is not None
        _, queue, priority = waiting.pop(id)
        del here[id]
        served[lane] = max(served.values(), default=0) + 1
        assert all(other <= priority for _, _, other in here.values())
        passed.pop((queue, priority), None)
        for other, level in {(one[1], one[2]) for one in here.values()}:
            if level == priority and other != queue:
                by = passed.setdefault((other, level), {})
                by[queue] = by.get(queue, 0) + 1
                assert by[queue] <= 1, (queue, other)
        return True

    for id, load in enumerate([*loads, *[None] * len(loads)], start=1):
        if load is None:
            take()
        else:
            lane, queue, priority = load
            waiting[id] = load
            scheduler.push(Entry(id, 0, (), lane, priority, None, queue))
    while take():
        pass


class _Noting(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        self.lab.__dict__.setdefault("order", []).append(ctx.args)
        await asyncio.sleep(0.1)
        return p.done()


Aaa = procedure("aaa")(type("Aaa", (_Noting,), {}))
Mmm = procedure("mmm")(type("Mmm", (_Noting,), {}))
Zzz = procedure("zzz")(type("Zzz", (_Noting,), {}))
KINDS = [Aaa, Mmm, Zzz]


async def _loaded(executor: Executor, many: str, few: str, **options: Any) -> list[int]:
    """30 of one, 3 of another: at which positions these three ran."""
    ids = [await executor.submit(submission(many, many)) for _ in range(30)]
    ids += [
        await executor.submit(submission(few, few, options=Options(**options))) for _ in range(3)
    ]
    for id in ids:
        await executor.wait(id, 60_000)
    return ids


def _positions(lab: Lab, few: str) -> list[int]:
    return [at for at, name in enumerate(lab.__dict__["order"]) if name == few]


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(("many", "few"), [("aaa", "zzz"), ("zzz", "aaa")])
@pytest.mark.parametrize("options", [{}, {"priority": 100}, {"queue": "urgent", "priority": 100}])
def test_busy_workers_serve_every_type(
    many: str, few: str, options: dict[str, Any], remote: bool
) -> None:
    """The type whose name sorts first had all slots, whatever the priority of the others."""

    def check(lab: Lab) -> None:
        found = _positions(lab, few)
        assert len(found) == 3
        assert found[-1] <= (3 if options else 6), found

    async def test(office: Office, executor: Executor) -> None:
        office.hire("w1", types=office.types(["aaa", "mmm", "zzz"]), slots=1)
        await office.entered("w1")
        await _loaded(executor, many, few, **options)
        check(office.lab)

    async def here(loop: SimLoop) -> None:
        lab = Lab(loop, KINDS)
        async with lab.executor(workers=1) as executor:
            await _loaded(executor, many, few, **options)
        check(lab)

    if remote:
        in_office(test, KINDS)
    else:
        simloop.run(here)


def test_a_queue_of_several_types_has_one_turn() -> None:
    """A queue got as many turns as types are in it."""
    scheduler = FairScheduler()
    for id in range(1, 10):
        lane, queue = (_LANES[id % 2], "shared") if id < 7 else (_LANES[2], "own")
        scheduler.push(Entry(id, 0, (), lane, 0, None, queue))
    order = []
    while places := [(o, lane) for lane in _LANES if (o := scheduler.order(lane)) is not None]:
        id = scheduler.pop(min(places)[1])
        assert id is not None
        order.append("shared" if id < 7 else "own")
    assert order[:6] == ["shared", "own"] * 3


def _gate(test: Callable[[Gate, list[int]], None]) -> None:
    async def main(loop: SimLoop) -> None:
        opened: list[int] = []
        test(Gate(LoopTimers(loop), SimClock(loop), opened.append, lambda _, __: None), opened)

    simloop.run(main)


def test_a_limit_that_queues_share_is_taken_by_priority_then_in_turn() -> None:
    """The queue that came first had a pool's limit for itself, or a lower priority went first."""

    def test(gate: Gate, opened: list[int]) -> None:
        gate.limit("pool:p", Limit(1))
        assert gate.enter(1, ("queue:a", "pool:p"), 0)
        waits = [(2, "a", 0), (3, "a", 0), (4, "a", 5), (5, "b", 0), (6, "b", 0), (7, "c", 9)]
        for id, queue, priority in waits:
            assert not gate.enter(id, (f"queue:{queue}", "pool:p"), priority)
        for _ in waits:
            gate.left([1, *opened][-1])
        assert opened == [7, 4, 5, 2, 6, 3]
        gate.close()

    _gate(test)
