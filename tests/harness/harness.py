"""Runs one built-in procedure in a whole simulated cluster, hurts it once, heals, and looks.

    prepare ─▶ submit, hurt at one point ─▶ heal ─▶ it has ended; wholly there or not at all ─▶
    the same submission again: done now if it had not happened, the same effect if it had

Source: HBase's MasterProcedureTestingUtility (kill before every store update, run the step twice),
over whole nodes here: a process is lost with its disks' unsynced tail, not only an executor.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kv.base import limits
from kv.base.config import NodeConfig
from kv.storage.memory import MemoryEngine
from kvorum.master.bus import NodeBus
from kvorum.testing.simulation.loop import SimLoop, run
from tests.harness.saboteur import Case, Hurt, Saboteur, sabotaged
from tests.harness.scenarios import LIMITS, SCENARIOS, SUCCESS, Scenario, eventually
from tests.harness.site_scenarios import neighbours
from tests.harness.user_scenarios import served
from tests.harness.world import Place

UNDONE = ("FAILED", "ROLLED_BACK")
CRASHES = (Hurt.MASTER_BEFORE, Hurt.MASTER_AFTER, Hurt.OTHER_BEFORE, Hurt.OTHER_AFTER)
FAULTS = (Hurt.FAILS, Hurt.TWICE)


def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nodes keep points, an engine in memory that has something to put there, and another
    cluster for links.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in LIMITS.items():
        monkeypatch.setattr(limits, name, value)

    def checkpoint(self: MemoryEngine, path: str | Path) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(MemoryEngine, "checkpoint", checkpoint)
    init = NodeBus.__init__

    def with_files(self: NodeBus, store: Any, config: NodeConfig, *rest: Any) -> None:
        init(self, store, replace(config, engine="rocks"), *rest)

    monkeypatch.setattr(NodeBus, "__init__", with_files)
    neighbours(monkeypatch)
    served(monkeypatch)


def registered() -> set[str]:
    """Every type that a node serves."""
    found: set[str] = set()

    async def main(loop: SimLoop) -> None:
        place = Place(loop, 0, 1)
        await place.cluster.start()
        await place.until(lambda: _master(place))
        (node,) = place.cluster.nodes.values()
        assert node.master.executor is not None
        found.update(node.master.executor.types.names())
        await place.cluster.close()

    run(main, 0)
    return found


async def _master(place: Place) -> Any:
    here = [n for n, node in place.cluster.nodes.items() if node.master.executor is not None]
    return None if here else "no master"


def play(name: str, case: Case = Case(), seed: int = 0) -> Saboteur:  # noqa: B008 - frozen
    """One whole run; what was seen of it. Raises AssertionError."""
    seen: list[Saboteur] = []

    async def main(loop: SimLoop) -> None:
        scenario = SCENARIOS[name]
        place = Place(loop, seed, scenario.nodes)
        place.chance.seed(f"{name} {case}")
        await place.start()
        args = await scenario.prepare(place)
        await place.settled(set())
        with sabotaged(place, name, case) as it:
            seen.append(it)
            state = await _ended(place, it, scenario, name, args)
            if scenario.start is not None:
                await place.settled(it.ids)  # what it leaves to another procedure is watched, too
            await it.healed()
        assert case.hurt is Hurt.NOTHING or it.done, f"{case}: it never came to that"
        await _judge(place, scenario, name, args, case, state, it)
        await place.cluster.close()

    run(main, seed)
    return seen[0]


async def _ended(place: Place, it: Saboteur, scenario: Scenario, name: str, args: Any) -> str:
    """How the procedure ended, over whatever is lost; then it is forgotten."""
    if scenario.start is not None:
        try:
            await scenario.start(place, name, args, "once")
        except Exception as error:
            if it.case.hurt is not Hurt.FAILS:
                raise AssertionError(f"{it.case}: {error!r}") from error
            return UNDONE[0]
        if name == "kvorum.sink_clean" and it.case.hurt is Hurt.FAILS:
            return UNDONE[0]
        return SUCCESS
    id_ = await place.submit(name, args, "once")
    state = (await place.end_of(id_)).state
    await place.patiently(lambda: place.db.acknowledge(id_))
    return state


async def _judge(
    place: Place,
    scenario: Scenario,
    name: str,
    args: Any,
    case: Case,
    state: str,
    it: Saboteur,
) -> None:
    happened = state == SUCCESS
    if not happened:
        assert state in UNDONE, state
        lost_a_node = case.hurt in CRASHES and scenario.may_fail
        assert case.hurt is Hurt.FAILS or lost_a_node, f"{case} ended it as {state}"
    await place.settled(it.ids)
    if not (happened and scenario.best_effort and case.hurt in CRASHES):  # else: by the repetition
        await eventually(place, scenario, args, happened)
    if scenario.start is not None:
        if not happened:
            return
        await scenario.start(place, name, args, "twice")
    else:
        id_ = await place.submit(name, args, "twice")
        info = await place.end_of(id_)
        ended = info.state if info.error is None else info.error["code"]
        assert ended == (scenario.again if happened else SUCCESS), (ended, info.error)
    await place.settled(it.ids)
    await eventually(place, scenario, args, True)


def cases(name: str) -> list[Case]:
    """Every way to hurt it, from a run that nobody hurts."""
    calm = play(name)
    found = [Case(hurt, at) for at in range(1, calm.writes + 1) for hurt in CRASHES]
    return found + [Case(hurt, 0, step) for step in dict.fromkeys(calm.steps) for hurt in FAULTS]
