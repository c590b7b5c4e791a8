"""An idle cluster is left alone by the master's schedulers; any change is seen at once (I11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kv.base.limits import SCHEDULE_PAUSE_S, SCHEDULE_QUIET_S, SCHEDULE_QUIET_UNITS
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from procedures.master.map.groups import Groups
from procedures.master.map.liveness import Health
from procedures.master.map.quiet import Quiet, known
from procedures.master.map.reports import NodeReport, Picture, Report
from tests.kvorum.cluster.simulated import SimCluster

MiB = 1 << 20
ONE = Report(7, 3, True, 2, 9, 50 * MiB, 0, 3, 1.0, 1.0, 1.0, 1.0, 4.0, 0.0, True, ())


def now(
    *,
    one: Report = ONE,
    leader: int = 1,
    health: Health = Health.ALIVE,
    busy: tuple[int, ...] = (),
    live: int = 0,
    rules: tuple[Any, ...] = (2,),
    rows: tuple[Any, ...] = ("a row",),
) -> Any:
    picture = Picture()
    for node in (1, 2):
        told = NodeReport(True, 0.1, 900 * MiB, 80 * MiB)
        told.rows[one.partition] = replace(one, leads=node == leader)
        picture.nodes[node] = told
    heard = {1: (Health.ALIVE, 10), 2: (health, 20)}
    return known((), rows, heard, picture, busy, live, rules)  # type: ignore[arg-type]


CHANGES: list[Callable[[], Any]] = [
    lambda: now(leader=2),
    lambda: now(health=Health.DEAD),
    lambda: now(busy=(7,)),
    lambda: now(live=1),
    lambda: now(rules=(1,)),
    lambda: now(rows=("another row",)),
    lambda: now(one=replace(ONE, epoch=4)),
    lambda: now(one=replace(ONE, size=60 * MiB)),
    lambda: now(one=replace(ONE, units=SCHEDULE_QUIET_UNITS)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_i11_whatever_decisions_depend_on_ends_the_quiet(change: Callable[[], Any]) -> None:
    """A change that is not noticed waits for a minute: a dead node's replicas, a full disk."""
    clock = [0.0]
    quiet = Quiet(lambda: clock[0])
    assert not quiet.same(now())
    quiet.looked(idle=True)
    assert quiet.same(now())
    assert not quiet.same(change())


def test_i11_small_changes_of_size_and_traffic_do_not() -> None:
    """Heartbeats write and read a little all the time; they would be looked at for ever."""
    quiet = Quiet(lambda: 0.0)
    assert not quiet.same(now())
    quiet.looked(idle=True)
    assert quiet.same(now(one=replace(ONE, size=ONE.size + MiB // 2, units=9.0, applied=99)))


def test_i11_what_found_something_or_broke_off_is_looked_at_again() -> None:
    """What was refused may be possible by something that only the leaders know."""
    clock = [0.0]
    quiet = Quiet(lambda: clock[0])
    assert not quiet.same(now())
    quiet.looked(idle=False)
    assert not quiet.same(now())  # a look that does not end: nobody was there to answer
    assert not quiet.same(now())
    quiet.looked(idle=True)
    clock[0] = SCHEDULE_QUIET_S - 1
    assert quiet.same(now())
    clock[0] = SCHEDULE_QUIET_S
    assert not quiet.same(now()), "what is overlooked is overlooked for ever"


@pytest.mark.slow
def test_i11_an_idle_cluster_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node told everything about every partition twice in five seconds, for nothing."""
    asked = 0
    views = Groups.views

    async def counted(self: Groups, *args: Any) -> Any:
        nonlocal asked
        asked += 1
        return await views(self, *args)

    monkeypatch.setattr(Groups, "views", counted)

    async def main(loop: SimLoop) -> None:
        nonlocal asked
        cluster = SimCluster(loop, 3, 4)
        await cluster.start()
        db = AsyncDatabase(cluster.nodes[1].backend, SimRng(3))
        await db.create_table("default", "t", replicas=2)
        await asyncio.sleep(60)
        asked = 0
        await asyncio.sleep(120)
        assert 1 <= asked <= 2 * (1 + 120 / SCHEDULE_QUIET_S), asked  # it was 108
        asked = 0
        args = {"namespace": "default", "name": "t", "replicas": 3}
        await db.wait(await db.submit("kvorum.place_table", args))
        await asyncio.sleep(SCHEDULE_PAUSE_S + 1)
        assert asked, "it is looked at when the map has changed"
        await asyncio.sleep(4 * SCHEDULE_PAUSE_S)
        (row,) = [p for p in await db.partitions() if p["id"] != 1]
        assert len(row["replicas"]) == 3
        await cluster.close()

    run(main, 3)
