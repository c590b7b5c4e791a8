"""Three and four real processes whose cables are cut, one way and both: nothing that was
acknowledged is lost, no read is stale, and whoever can go on does.

The cuts are made outside of the nodes (tests/kit/cables.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.client.client import connect
from kvorum.api.verbs import STANDING
from kvorum.cluster.replica_status import Standing
from tests.kit.clusters import Cabled
from tests.kit.waiting import poll
from tests.processes.registers import History, Op, use, violations
from tests.processes.workload import Seen, check, load, prepare

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(150)]

CUT_S = 4.0
# A new leader is there about a second after the cut, on a machine that has nothing else to do.
GAP_S_MAX = 8.0
# A deposed leader says within a third of a second that it does not know; a client asks a silent one
# after a second. Their deadline is 10 s.
ANSWER_S_MAX = 8.0


class Standings(Cabled):
    """… and how each of them sees itself."""

    def standings(self, number: int) -> dict[int, Standing]:
        """How a node itself says that its replicas stand, by partition."""

        async def ask() -> list[Standing]:
            address = ("127.0.0.1", self.local.node(number).base)
            timers = LoopTimers(asyncio.get_running_loop())
            client = await connect([address], timers=timers, rng=SystemRng())
            try:
                (told,) = await client.call_at(address, STANDING)
            finally:
                client.close()
            return [Standing.from_wire(row) for row in told["replicas"]]

        return {standing.id: standing for standing in asyncio.run(ask())}

    def led_by(self, number: int) -> set[int]:
        """The partitions that a node says it leads."""
        return {i for i, s in self.standings(number).items() if s.role == "leader"}


@contextmanager
def cabled(directory: Path, count: int = 3) -> Iterator[Standings]:
    """A running cluster with its cables; taken down whatever happens."""
    nodes = Standings(directory, count)
    with nodes.cables:
        try:
            nodes.start()
            ways = {(a, b) for a in nodes.numbers for b in nodes.others(a)}
            assert ways <= set(nodes.cables.carried), "some nodes do not use the cables"
            yield nodes
        finally:
            nodes.local.down(within_s=10)


def under_load(nodes: Standings, fault: Callable[[], None]) -> tuple[Seen, History]:
    """`fault` with a load of puts, batches, procedures and registers, then everything healed and
    proved.
    """
    seen, history = Seen(), History()

    async def run() -> None:
        async with await kvorum.aconnect(nodes.url) as db, asyncio.TaskGroup() as group:
            stop = asyncio.Event()
            async with load(nodes.url, seen):
                group.create_task(use(db, history, seen, stop))
                try:
                    await asyncio.sleep(1.0)
                    await asyncio.to_thread(fault)
                    await asyncio.to_thread(nodes.cables.heal)
                    await asyncio.sleep(2.0)
                finally:
                    stop.set()

    prepare(nodes.url)
    nodes.wait_caught_up()
    asyncio.run(run())
    assert len(seen.puts) > 50, f"hardly anything was written: {len(seen.puts)}"
    assert not seen.went_back
    assert any(not op.writes and op.version for op in history.ops), "nothing was read"
    assert violations(history) == []
    nodes.wait_caught_up()
    with kvorum.connect(nodes.url) as db:
        assert db.timestamp() > seen.highest
        check(db, seen)
    return seen, history


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standings]:
    """Three nodes for all tests: each leaves them whole."""
    with cabled(tmp_path_factory.mktemp("cuts") / "c") as nodes:
        yield nodes


@pytest.fixture
def nodes(shared: Standings) -> Standings:
    """The shared cluster, whole."""
    shared.cables.heal()
    shared.mend()
    return shared


def test_a8_an_isolated_leader_is_replaced_and_fools_nobody(nodes: Standings) -> None:
    """Clients still reach the leader that was cut off: it must neither acknowledge nor answer with
    what is old.
    """

    def fault() -> None:
        old = nodes.leader()
        nodes.cables.part([old], nodes.others(old))
        time.sleep(CUT_S)
        assert not nodes.led_by(old)

    seen, history = under_load(nodes, fault)
    assert seen.gap_s < GAP_S_MAX, f"no write was acknowledged for {seen.gap_s:.1f} s"
    assert history.slowest_s < ANSWER_S_MAX, "somebody waited for a deadline"


def test_a8_a_paused_leader_keeps_nobody_waiting(nodes: Standings) -> None:
    """What was in flight at a leader that stands still is unknown: whoever waited for it to wake
    would learn nothing that another read does not tell.
    """

    def fault() -> None:
        old = nodes.leader()
        nodes.pause(old)
        time.sleep(2 * CUT_S)
        nodes.resume(old)

    for _ in range(3):  # whether something is in flight at that moment is chance
        seen, history = under_load(nodes, fault)
        assert seen.gap_s < GAP_S_MAX, f"no write was acknowledged for {seen.gap_s:.1f} s"
        assert history.slowest_s < ANSWER_S_MAX, "somebody waited for a deadline, or for the leader"
        if history.unknown_s:
            return
    raise AssertionError("nothing was in flight at the leader")


def test_f3_a_leader_that_hears_nobody_steps_down(nodes: Standings) -> None:
    """Its heartbeats arrive, so nobody else would stand for election as long as it goes on
    (check-quorum): the cluster would stand still.
    """

    def fault() -> None:
        old = nodes.leader()
        nodes.cables.cut(*((other, old) for other in nodes.others(old)))
        poll(lambda: not nodes.led_by(old), CUT_S)
        time.sleep(CUT_S)
        led = {p for other in nodes.others(old) for p in nodes.led_by(other)}
        assert led == set(nodes.standings(old)), "others lead everything"

    seen, _ = under_load(nodes, fault)
    assert seen.gap_s < GAP_S_MAX, f"no write was acknowledged for {seen.gap_s:.1f} s"


def test_f3_a_leader_that_nobody_hears_is_replaced(nodes: Standings) -> None:
    """It hears its successor and must believe it, though none of its own messages arrives."""

    def fault() -> None:
        old = nodes.leader()
        nodes.cables.cut(*((old, other) for other in nodes.others(old)))
        time.sleep(CUT_S)
        assert not nodes.led_by(old)

    seen, _ = under_load(nodes, fault)
    assert seen.gap_s < GAP_S_MAX, f"no write was acknowledged for {seen.gap_s:.1f} s"


def test_f3_a_node_that_hears_nobody_does_not_disturb(nodes: Standings) -> None:
    """Without pre-vote it would raise its term until the others hear it, and depose a leader that
    serves everybody.
    """
    deaf = max(set(nodes.numbers) - {nodes.leader()})
    found: dict[str, dict[int, int]] = {}

    def fault() -> None:
        before = nodes.standings(deaf)
        followed = {i for i, s in before.items() if s.role != "leader"}
        nodes.cables.cut(*((other, deaf) for other in nodes.others(deaf)))
        time.sleep(CUT_S)
        after = nodes.standings(deaf)
        found["before"] = {i: before[i].term for i in followed}
        found["after"] = {i: after[i].term for i in followed}

    seen, _ = under_load(nodes, fault)
    assert found["before"], "it led everything"
    assert found["after"] == found["before"], "it stood for election though nobody answered"
    assert seen.gap_s < GAP_S_MAX, f"no write was acknowledged for {seen.gap_s:.1f} s"


def test_a8_two_halves_acknowledge_nothing_until_they_meet(tmp_path: Path) -> None:
    """Neither half has a majority. One that goes on alone would lose what it acknowledged."""
    with cabled(tmp_path / "c", 4) as nodes:
        silent: list[float] = []

        def fault() -> None:
            nodes.cables.part([1, 2], [3, 4])
            silent.append(time.monotonic())
            time.sleep(CUT_S)
            silent.append(time.monotonic())
            assert not any(nodes.led_by(number) for number in nodes.numbers)

        _, history = under_load(nodes, fault)
    cut_s, healed_s = silent
    between = [at for at in history.acknowledged_s if cut_s + 0.5 < at < healed_s]
    assert not between, f"{len(between)} writes were acknowledged without a majority"
    assert max(history.acknowledged_s) > healed_s


def test_a8_the_check_of_registers_finds_what_it_should() -> None:
    """A check that accepts a stale read proves nothing."""

    def history(*ops: Op, **unknown: tuple[str, float]) -> list[str]:
        return violations(History(list(ops), dict(unknown)))

    first = Op("k", True, "a", 1, 0.0, 1.0)
    second = Op("k", True, "b", 2, 2.0, 3.0)
    assert not history(first, second, Op("k", False, "b", 2, 4.0, 5.0))
    assert not history(first, second, Op("k", False, "a", 1, 2.5, 5.0)), "they overlap"
    assert history(first, second, Op("k", False, "a", 1, 4.0, 5.0)), "stale"
    assert history(first, Op("k", False, None, 0, 1.5, 2.0)), "lost"
    assert history(first, Op("k", True, "b", 1, 2.0, 3.0)), "two writes at one version"
    assert history(first, Op("k", False, "b", 1, 1.5, 2.0)), "not what was written"
    assert history(first, Op("k", False, "c", 7, 1.5, 2.0)), "from nowhere"
    assert not history(first, Op("k", False, "c", 7, 1.5, 2.0), c=("k", 0.5))
    assert history(first, Op("k", False, "c", 7, 1.5, 2.0), c=("k", 3.0)), "before it began"
    twice = Op("k", False, "c", 7, 1.5, 2.0), Op("k", False, "c", 8, 2.5, 3.0)
    assert history(first, *twice, c=("k", 0.5)), "one write happened twice"
