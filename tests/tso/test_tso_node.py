"""tso.node: the timestamps of a node that does not lead the oracle, or not for long."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError, NotLeader, Unavailable
from kv.base.limits import TSO_COUNT_MAX, TSO_PATIENCE_MS
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from tests.tso.test_tso_client import FakeOracle, client_of
from tso.node import NO_ORACLE, NodeTso


class Local:
    """The oracle of the node itself; shares its numbers with the other one."""

    def __init__(self, oracle: FakeOracle) -> None:
        self.oracle = oracle
        self.leading = False
        self.lease = True
        self.takes = 0

    def take(self, n: int) -> int:
        if not self.leading or not self.lease:
            raise NotLeader("not here")
        self.takes += 1
        return self.oracle.take(n)


class Asker:
    """A partition: what it was told, in order."""

    def __init__(self, tso: NodeTso) -> None:
        self.tso = tso
        self.told: list[int | KvorumError] = []

    def ask(self, n: int = 1) -> None:
        self.tso.request(n, lambda first, error: self.told.append(error or first))


def node_of(loop: SimLoop, oracle: FakeOracle) -> tuple[NodeTso, Local]:
    local = Local(oracle)
    return NodeTso(local, client_of(loop, oracle), LoopTimers(loop), SimRng(2)), local


def test_e7_the_oracle_of_the_own_process_answers_at_once() -> None:
    """A cluster of one node would pay a turn of the loop, or a task, for every drain."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        tso, local = node_of(loop, oracle)
        local.leading = True
        asker = Asker(tso)
        asker.ask(3)
        asker.ask()
        assert asker.told == [1, 4]
        assert await tso.take(2) == 5
        assert await tso.now() == 7
        assert not oracle.requests
        assert tso.waits == 0
        oracle.errors = [Unavailable("bound", code="TSO_BOUND")]
        asker.ask()
        assert isinstance(asker.told[-1], Unavailable)

    run(main)


def test_e3_partitions_of_a_node_share_requests() -> None:
    """Each drain of each partition would be a request to the oracle's node."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle(0.01)
        tso, _ = node_of(loop, oracle)
        askers = [Asker(tso) for _ in range(100)]
        for _ in range(10):
            for asker in askers:
                asker.ask(2)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        told = sorted(first for asker in askers for first in asker.told)  # type: ignore[type-var]
        assert told == list(range(1, 2001, 2))
        assert all(asker.told == sorted(asker.told) for asker in askers)  # type: ignore[type-var]
        assert len(oracle.requests) <= 3
        assert sum(oracle.requests) == 2000
        assert oracle.most_out == 1

    run(main)


def test_e7_no_timestamp_is_older_than_its_request() -> None:
    """A partition's late commands would get timestamps that were fetched before they came."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle(0.01)
        tso, _ = node_of(loop, oracle)
        early, late = Asker(tso), Asker(tso)
        early.ask()
        await asyncio.sleep(0.008)  # the oracle has answered, the answer is on its way
        seen = oracle.take(1)
        late.ask()
        await asyncio.sleep(0.1)
        assert early.told == [1]
        assert isinstance(late.told[0], int)
        assert late.told[0] > seen

    run(main)


def test_e7_too_much_for_one_request_takes_two() -> None:
    """A node with thousands of writers would be refused all timestamps at once."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        tso, _ = node_of(loop, oracle)
        askers = [Asker(tso) for _ in range(3)]
        for asker in askers:
            asker.ask(TSO_COUNT_MAX // 2 + 1)
        await asyncio.sleep(0.2)
        assert [len(asker.told) for asker in askers] == [1, 1, 1]
        assert len(oracle.requests) == 3
        assert max(oracle.requests) <= TSO_COUNT_MAX

    run(main)


@pytest.mark.slow
def test_e2_partitions_are_told_when_no_oracle_answers() -> None:
    """Commands would wait for ever, or be called failed for good, while the oracle moves."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        tso, _ = node_of(loop, oracle)
        oracle.errors = [NotLeader("moving") for _ in range(10_000)]
        asker = Asker(tso)
        asker.ask()
        await asyncio.sleep(TSO_PATIENCE_MS / 1000 + 0.1)
        (error,) = asker.told
        assert isinstance(error, Unavailable)
        assert error.code == NO_ORACLE
        oracle.errors = []
        asker.ask()
        await asyncio.sleep(0.1)
        assert asker.told[1] == 1

    run(main)


def test_e2_the_oracle_changes_sides() -> None:
    """A node that gains or loses the oracle, or its lease, would go on with the old one."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        tso, local = node_of(loop, oracle)
        asker = Asker(tso)
        asker.ask()
        await asyncio.sleep(0.1)
        local.leading = True
        asker.ask()
        local.lease = False  # stopped for a while; it does not know yet
        asker.ask()
        assert asker.told == [1, 2]
        await asyncio.sleep(0.1)
        assert asker.told == [1, 2, 3]
        assert await tso.take(1) == 4
        assert local.takes == 1
        local.lease = True
        assert await tso.take(1) == 5
        assert local.takes == 2

    run(main)


def test_e7_closing_answers_everybody() -> None:
    """A stopping node's commands would never be answered."""

    async def main(loop: SimLoop) -> None:
        tso, _ = node_of(loop, FakeOracle(1.0))
        out, waiting, late = Asker(tso), Asker(tso), Asker(tso)
        out.ask()
        await asyncio.sleep(0.1)
        waiting.ask()
        await tso.close()
        late.ask()
        for asker in (out, waiting, late):
            (error,) = asker.told
            assert isinstance(error, Unavailable)

    run(main)


async def test_e7_a_bug_of_a_partition_is_not_swallowed() -> None:
    """An exception in who is told would vanish with its task, and so would all later requests."""
    loop = asyncio.get_running_loop()
    seen: list[object] = []
    loop.set_exception_handler(lambda _loop, context: seen.append(context.get("exception")))

    class Elsewhere:
        leading = False

        def take(self, n: int) -> int:
            raise AssertionError

    class Simple:
        async def take(self, count: int) -> int:
            return 1

    tso = NodeTso(Elsewhere(), Simple(), LoopTimers(loop), SimRng(1))
    tso.request(1, lambda _first, _error: 1 / 0)
    await asyncio.sleep(0.01)
    asker = Asker(tso)
    asker.ask()
    await asyncio.sleep(0.01)
    assert asker.told == [1]
    assert [type(e) for e in seen] == [ZeroDivisionError]
    with pytest.raises(AssertionError):
        Elsewhere().take(1)
