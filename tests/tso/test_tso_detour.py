"""tso.detour: timestamps through nodes that the oracle hears."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import DeadlineExceeded, NotLeader, Refused
from kv.base.limits import TSO_CUT_OFF_MS, TSO_DIRECT_MS, TSO_RELAYS_MAX
from kv.client.router import Address
from kvorum.testing.simulation.loop import SimLoop, run
from tso.detour import Detour, Route

NODES: list[Address] = [(f"node{i}", 1) for i in range(3)]
DIRECT_S = TSO_DIRECT_MS / 1000


class Network:
    """The oracle, which may be silent to the asker, and the nodes that reach it."""

    def __init__(self, loop: SimLoop, *able: Address) -> None:
        self.last = 0
        self.silent = asyncio.Event()  # set: it answers
        self.silent.set()
        self.refuses: Refused | None = None
        self.able = set(able)
        self.asked: list[Address] = []
        self.detour = Detour(self._direct, self._relayed, lambda: NODES, LoopTimers(loop))

    def take(self, count: int) -> int:
        first, self.last = self.last + 1, self.last + count
        return first

    async def _direct(self, count: int, budget_ms: int) -> int:
        if self.refuses is not None:
            raise self.refuses
        first = self.take(count)  # it is the answer that is lost
        try:
            async with asyncio.timeout(budget_ms / 1000):
                await self.silent.wait()
        except TimeoutError:
            raise DeadlineExceeded("no answer") from None
        return first

    async def _relayed(self, relay: Address, count: int, budget_ms: int) -> int:
        self.asked.append(relay)
        if relay not in self.able:
            raise NotLeader("it hears nobody either")
        await asyncio.sleep(0.001)
        return self.take(count)


def test_a8_a_silent_oracle_is_asked_through_a_node_that_it_hears() -> None:
    """Everything of a node would stand still while one of its links is cut; or the way round would
    be looked for anew with every request.
    """

    async def main(loop: SimLoop) -> None:
        net = Network(loop, NODES[1])
        assert await net.detour.fetch(1, 9_000) == 1
        assert not net.asked, "the short way is not doubted"
        net.silent.clear()
        begin = loop.time()
        first = await net.detour.fetch(5, 9_000)
        assert first + 4 == net.last
        assert DIRECT_S <= loop.time() - begin < DIRECT_S + 0.1
        assert sorted(net.asked) == NODES
        net.asked.clear()
        assert await net.detour.fetch(1, 9_000) > first
        assert loop.time() - begin < DIRECT_S + 0.1
        assert net.asked == [NODES[1]]

    run(main)


def test_a8_what_comes_late_is_nobodys_timestamp() -> None:
    """The probe of the short way was asked before the caller asked: its answer may lie below what
    was handed out, read and written since.
    """

    async def main(loop: SimLoop) -> None:
        net = Network(loop, NODES[0])
        net.silent.clear()
        await net.detour.fetch(1, 9_000)
        net.take(1_000)  # others'
        net.able.clear()
        asking = asyncio.ensure_future(net.detour.fetch(1, 9_000))
        await asyncio.sleep(0.01)
        net.silent.set()
        assert await asking > 1_000
        net.asked.clear()
        await net.detour.fetch(1, 9_000)
        assert not net.asked, "the oracle answers again"

    run(main)


def test_a8_without_any_way_the_caller_is_told_in_time() -> None:
    """It would wait for ever, or for longer than it said; or not learn what no repetition mends."""

    async def main(loop: SimLoop) -> None:
        net = Network(loop)
        net.silent.clear()
        begin = loop.time()
        with pytest.raises(DeadlineExceeded):
            await net.detour.fetch(1, 2_000)
        assert 2 <= loop.time() - begin < 2 + DIRECT_S
        asked = len(net.asked)
        assert asked <= 3 * len(NODES) * 2, "with pauses"
        await asyncio.sleep(5)
        assert len(net.asked) == asked, "nobody asks when nobody waits"
        net.refuses = Refused("another cluster")
        with pytest.raises(Refused):
            await net.detour.fetch(1, 2_000)

    run(main)


def test_a8_a_route_asks_few_nodes_at_once_and_all_in_turn() -> None:
    """A cut in a large cluster would be answered by a storm of requests; or a node that could ask
    would never be found.
    """
    known = [(f"node{i}", 1) for i in range(3 * TSO_RELAYS_MAX - 1)]
    route = Route()
    route.silent(1.0)
    asked = set()
    for _ in range(3):
        now = route.ask(known)
        assert len(now) == TSO_RELAYS_MAX
        asked |= set(now)
    assert asked == set(known)


def test_a8_leaderships_move_only_after_a_while_and_to_who_relays_now() -> None:
    """A hiccup would move leaderships; or they would move because of a cut that is long healed."""
    route = Route()
    patience_s = TSO_CUT_OFF_MS / 1000
    route.silent(10.0)
    route.relayed(NODES[0], 10.1)
    assert route.relay_for(TSO_CUT_OFF_MS, 10.2) is None
    route.silent(10.5)  # it still is
    route.relayed(NODES[1], 10.0 + patience_s)
    assert route.relay_for(TSO_CUT_OFF_MS, 10.0 + patience_s) == NODES[1]
    assert route.relay_for(TSO_CUT_OFF_MS, 90.0) is None, "that was long ago"
    route.relayed(NODES[1], 90.0)
    route.heard()
    assert route.direct
    assert route.relay_for(TSO_CUT_OFF_MS, 90.0) is None
