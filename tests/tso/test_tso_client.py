"""tso.client: few requests for many timestamps, none of them old."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kv.base.adapters import LoopTimers, SystemClock
from kv.base.errors import InvalidArgument, KvorumError, NotLeader, Unavailable
from kv.base.limits import TSO_COUNT_MAX
from kv.base.methods import GET, TSO
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from tests.kv.rpc.fakes import KEY, SeededRng, running_node
from tso.client import LocalTso, TsoClient, remote_tso
from tso.service import Done, TsoService


class FakeOracle:
    """Counts up; takes `delay_s` per request, the first half of it on the way there."""

    def __init__(self, delay_s: float = 0.01) -> None:
        self.last = 0
        self.delay_s = delay_s
        self.requests: list[int] = []
        self.errors: list[KvorumError] = []
        self.out = 0
        self.most_out = 0

    def take(self, n: int) -> int:
        if self.errors:
            raise self.errors.pop(0)
        first = self.last + 1
        self.last += n
        return first

    async def fetch(self, count: int, budget_ms: int) -> int:
        self.requests.append(count)
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            await asyncio.sleep(self.delay_s / 2)
            first = self.take(count)
            await asyncio.sleep(self.delay_s / 2)
        finally:
            self.out -= 1
        return first


def client_of(loop: SimLoop, oracle: FakeOracle, *, budget_ms: int = 10_000) -> TsoClient:
    return TsoClient(oracle.fetch, LoopTimers(loop), SimRng(1), budget_ms=budget_ms)


@pytest.mark.parametrize("seed", range(5))
def test_e1_no_duplicate_and_real_time_order(seed: int) -> None:
    """Who asks after another one had its answer must get a later timestamp; nobody gets the
    same.
    """

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        clients = [client_of(loop, oracle) for _ in range(4)]
        seen: set[int] = set()
        done_max = 0  # the highest timestamp that anybody has in hand
        rng = SimRng(seed)

        async def caller(client: TsoClient) -> None:
            nonlocal done_max
            for _ in range(50):
                asked_after = done_max
                n = 1 + int(rng.random() * 3)
                first = await client.take(n)
                assert first > asked_after
                block = set(range(first, first + n))
                assert not block & seen
                seen.update(block)
                done_max = max(done_max, first + n - 1)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.02)

        async with asyncio.TaskGroup() as group:
            for i in range(32):
                group.create_task(caller(clients[i % 4]))

    run(main, seed)


async def test_e1_a_million_timestamps_by_32_clients() -> None:
    """E1 at scale, over sockets: 10^6 timestamps of 32 clients, no duplicate, in real-time
    order.
    """
    async with running_node() as node:
        service = TsoService(SystemClock(), node.timers, read_bound=lambda: 0, persist=at_once)
        service.role(leader=True)
        node.dispatcher.register(TSO, service.handle)
        kvs = [await node.client() for _ in range(4)]
        clients = [remote_tso(kv, node.timers, SeededRng()) for kv in kvs]
        blocks: list[int] = []
        done_max, n, rounds = 0, 125, 250

        async def caller(client: TsoClient) -> None:
            nonlocal done_max
            for _ in range(rounds):
                asked_after = done_max
                first = await client.take(n)
                assert first > asked_after
                blocks.append(first)
                done_max = max(done_max, first + n - 1)

        async with asyncio.TaskGroup() as group:
            for i in range(32):
                group.create_task(caller(clients[i % 4]))
        blocks.sort()
        assert len(blocks) * n == 1_000_000
        assert all(b - a >= n for a, b in itertools.pairwise(blocks))
        requests = node.dispatcher.counters.requests[TSO]
        assert requests < len(blocks) / 3, "callers of one client must share requests"
        service.close()
        for kv in kvs:
            kv.close()


def at_once(bound: int, done: Done) -> None:
    done(None)


def test_e3_requests_are_far_fewer_than_timestamps() -> None:
    """Without coalescing the oracle's node would drown in requests of one timestamp each."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        client = client_of(loop, oracle)
        for _ in range(20):
            got = await asyncio.gather(*(client.now() for _ in range(500)))
            assert len(set(got)) == 500
        assert client.handed_out == 10_000
        assert client.requests == len(oracle.requests) <= 40
        assert oracle.most_out == 1

    run(main)


def test_e3_late_callers_go_into_the_next_request() -> None:
    """A timestamp from a request that was already out could be older than what its caller has
    seen.
    """

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle(delay_s=0.01)
        client = client_of(loop, oracle)
        early = asyncio.ensure_future(client.now())
        await asyncio.sleep(0.008)  # the oracle has answered the first request, the reply travels
        elsewhere = oracle.take(1)
        late = [asyncio.ensure_future(client.now()) for _ in range(3)]
        assert await early < elsewhere
        assert all(ts > elsewhere for ts in await asyncio.gather(*late))
        assert oracle.requests == [1, 3]

    run(main, None)


def test_tso_cancelled_callers_do_not_stop_the_others() -> None:
    """Whoever makes the request for all may be cancelled at any time; another one must take
    over.
    """

    async def main(loop: SimLoop) -> None:
        for step in range(12):
            oracle = FakeOracle()
            client = client_of(loop, oracle)
            tasks = [asyncio.ensure_future(client.now()) for _ in range(6)]
            for victim in (0, 1, 3):
                await asyncio.sleep(0.001 * step)
                tasks[victim].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            got = [r for r in results if isinstance(r, int)]
            assert len(got) >= 3
            assert len(set(got)) == len(got)
            assert not any(isinstance(r, Exception) for r in results)
            assert await client.now() > max(got)

    for seed in range(20):
        run(main, seed)


def test_tso_error_is_everybodys_and_the_next_goes_on() -> None:
    """An oracle that refuses must be heard by all who waited for that request, and by nobody
    else.
    """

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        client = client_of(loop, oracle)
        oracle.errors = [KvorumError("broken")]
        results = await asyncio.gather(*(client.now() for _ in range(5)), return_exceptions=True)
        assert all(isinstance(r, KvorumError) for r in results)
        assert await client.now() == 1

    run(main, None)  # in order: all five are in the first request


def test_tso_unavailable_is_waited_for_within_the_deadline() -> None:
    """While the bound is raised or the leader changes, a transaction waits; it does not fail."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        client = client_of(loop, oracle, budget_ms=2000)
        oracle.errors = [Unavailable("bound", code="TSO_BOUND"), NotLeader("not me")] * 3
        assert await client.now() == 1
        oracle.errors = [Unavailable("bound", code="TSO_BOUND") for _ in range(1000)]
        began = loop.time()
        with pytest.raises(Unavailable):
            await client.now()
        assert 1 < loop.time() - began <= 2

    run(main)


def test_tso_local_waits_the_same_way() -> None:
    """Embedded, a timestamp is a call; when the oracle cannot serve it waits like everybody."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        local = LocalTso(oracle, LoopTimers(loop), SimRng(1), budget_ms=1000)
        assert [await local.now(), await local.take(10), await local.now()] == [1, 2, 12]
        oracle.errors = [Unavailable("bound", code="TSO_BOUND"), NotLeader("not me")]
        assert await local.now() == 13
        oracle.errors = [NotLeader("not me") for _ in range(1000)]
        with pytest.raises(NotLeader):
            await local.now()
        assert loop.time() <= 2
        with pytest.raises(InvalidArgument):
            await LocalTso(Refusing(), LoopTimers(loop), SimRng(1)).take(0)

    run(main)


class Refusing:
    def take(self, n: int) -> int:
        raise InvalidArgument("count")


def test_tso_counts_are_limited_and_split() -> None:
    """Callers who together want more than one request may carry must be served by several."""

    async def main(loop: SimLoop) -> None:
        oracle = FakeOracle()
        client = client_of(loop, oracle)
        got = await asyncio.gather(*(client.take(TSO_COUNT_MAX // 2) for _ in range(5)))
        assert len(set(got)) == 5
        assert max(oracle.requests) <= TSO_COUNT_MAX
        assert sum(oracle.requests) == 5 * (TSO_COUNT_MAX // 2)
        for bad in (0, -1, TSO_COUNT_MAX + 1):
            with pytest.raises(InvalidArgument):
                await client.take(bad)

    run(main)


@pytest.mark.slow
async def test_e4_own_connection_is_not_behind_bulk_data() -> None:
    """E4's seam: timestamps on a connection of their own come while the data connection is
    stuck.
    """
    async with running_node() as node:
        service = TsoService(SystemClock(), node.timers, read_bound=lambda: 0, persist=at_once)
        service.role(leader=True)
        node.dispatcher.register(TSO, service.handle)
        data, own = await node.client(), await node.client()
        tso = remote_tso(own, LoopTimers(asyncio.get_running_loop()), SeededRng())
        node.first.held = []
        reads = [asyncio.ensure_future(data.call(GET, KEY, KEY, 0, None)) for _ in range(2000)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(1):
            assert await tso.now() > 0
        node.first.release()
        await asyncio.gather(*reads)
        assert node.dispatcher.counters.connections == 2
        service.close()
        data.close()
        own.close()
