"""Two clusters in sync, in virtual time: they converge after any cut to what their rules say, and
the checker finds out if they do not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest

from kv.base.errors import Unavailable
from kv.base.limits import SITE_WHOLE_ROWS
from kvorum.api.site_links import CONFLICTS, NAMESPACE
from kvorum.sdk.database import AsyncDatabase
from kvorum.sites import pull, rules, taking
from kvorum.sites.links import LinkedTable
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from kvorum.verify.anomaly import Anomaly
from kvorum.verify.catalog import judge
from kvorum.verify.run_workload import Run, Settings
from kvorum.verify.workloads.sites import RULES, Sites
from tests.kvorum.sites import pair
from tests.kvorum.sites.pair import NS, Pair, story

SECONDS = 8
SLOW = pytest.mark.slow


def played(
    seed: int, tell: Callable[[Pair], Awaitable[list[str]]], *, skew_ms: int = 0
) -> list[str]:
    """What is wrong in the end of a story of two linked clusters."""

    async def main(loop: SimLoop) -> list[str]:
        pair = Pair(loop, seed, skew_ms)
        await pair.start()
        for _ in range(10):
            await pair.write(pair.chance.choice((0, 1)))  # what was there before the links
        await pair.link(0)
        await pair.write(0)
        await pair.write(1)
        await pair.link(1)
        found = await tell(pair)
        await pair.close()
        return found

    return list(run(main, seed))


@pytest.mark.parametrize(
    ("seed", "skew_ms"),
    [(0, 400), *(pytest.param(seed, s, marks=SLOW) for seed in (1, 2, 3) for s in (0, 400, -400))],
)
def test_r3_two_clusters_converge_after_any_cut(seed: int, skew_ms: int) -> None:
    """A write would be lost, taken twice, or win over a later one; or half of one be seen."""
    told: list[int] = []

    async def tell(pair: Pair) -> list[str]:
        found = await story(pair, SECONDS, faults=True)
        told.extend(counts.conflicts for counts in pair.counts)
        told.append(len(pair.history))
        return found

    assert not played(seed, tell, skew_ms=skew_ms)
    assert told[-1] > SECONDS, "hardly anything was written"
    assert sum(told[:-1]), "no two writes met"


@SLOW
def test_r3_an_idle_link_does_not_write() -> None:
    """Each cluster would take over the other's position, for ever."""

    async def tell(pair: Pair) -> list[str]:
        found = await story(pair, 3, faults=False)
        await asyncio.sleep(40)
        before = [counts.transactions for counts in pair.counts]
        await asyncio.sleep(120)
        after = [counts.transactions for counts in pair.counts]
        assert all(new - old <= 5 for old, new in zip(before, after, strict=True)), (before, after)
        lag_ms = [
            pair.backend(site).txn.clock.now_ms() - (pair.counts[site].position >> 18)
            for site in (0, 1)
        ]
        assert max(lag_ms) < 15_000
        return found

    assert not played(1, tell)


@SLOW
def test_r3_conflicts_are_told() -> None:
    """Somebody's write would be gone without a word."""

    async def tell(pair: Pair) -> list[str]:
        await asyncio.sleep(10)
        for site in (0, 1):
            await pair.cut(site)
        for site in (0, 1):
            await pair.backend(site).put(NS, "last", b"both", b"of %d" % site, None, 0)
        for site in (0, 1):
            pair.heal(site)
        await asyncio.sleep(10)
        for site in (0, 1):
            prefix = await pair.backend(site).storage_prefix(NAMESPACE, CONFLICTS)
            page = await pair.backend(site).txn.scan(prefix, prefix + b"\xff", limit=100)
            assert any(b'"key": "both"' in value for _, value, _ in page.items), site
        return []

    assert not played(2, tell)


@SLOW
def test_r3_a_large_transaction_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes in many parts would be taken in part, twice, or as one that came from here."""
    monkeypatch.setattr(pull, "SITE_WHOLE_ROWS", 1_500)
    assert SITE_WHOLE_ROWS > 1_500

    async def tell(pair: Pair) -> list[str]:
        await asyncio.sleep(5)
        session = await pair.backend(0).begin(ttl_ms=5_000, isolation="snapshot")
        for number in range(4_000):
            await session.put(NS, "counter", b"large-%05d" % number, b"2")
        await session.commit()
        await asyncio.sleep(1)
        await pair.cut(1)
        pair.heal(1)
        for _ in range(60):
            await asyncio.sleep(1)
            rows = [await pair.rows(site, "counter") for site in (0, 1)]
            if rows[0] == rows[1]:
                break
        large = {key: value for key, value in rows[1].items() if key.startswith("large")}
        assert set(large.values()) == {"2"}
        return []

    async def whole(pair: Pair, site: int, table: str) -> dict[str, str]:
        prefix = await pair.backend(site).storage_prefix(NS, table)
        page = await pair.backend(site).txn.scan(prefix, prefix + b"\xff", limit=10_000)
        return {key[4:].decode(): value.decode() for key, value, _ in page.items}

    monkeypatch.setattr(Pair, "rows", whole)
    assert not played(3, tell)


class Linked(Sites):
    """The workload of `kvorum verify`, on clusters that are linked without a procedure."""

    async def begin(self, databases: Sequence[AsyncDatabase], table: str) -> None:
        self._sites, self._table = databases, table


def verified(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[Anomaly]:
    """What `kvorum verify --workload sites` says."""
    tables = tuple(LinkedTable("verify", f"t_{rule}", rule) for rule in RULES)
    monkeypatch.setattr(pair, "TABLES", tables)

    async def main(loop: SimLoop) -> list[Anomaly]:
        two = Pair(loop, seed)
        await two.start()
        for site in (0, 1):
            await two.link(site)
        databases = [AsyncDatabase(two.backend(site), SimRng(seed)) for site in (0, 1)]
        settings = Settings(table="t", clients=4, seed=seed, final_s=30)

        def rng(what: str) -> random.Random:
            return random.Random(f"{seed} {what}")

        made = Run(Linked(), settings, databases, monotonic=loop.time, rng=rng)
        await made.prepare()
        stop = asyncio.Event()

        async def faults() -> None:
            for site in (0, 1, 0):
                await asyncio.sleep(1)
                await two.cut(site)
                await asyncio.sleep(1)
                two.heal(site)
            stop.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(made.load(stop))
            group.create_task(faults())
        with suppress(Unavailable):  # they never come to the same
            await made.final()
        await two.close()
        assert sum(o.acknowledged for o in made.history.operations("write")) > 100
        return judge(made.history)

    return list(run(main, seed))


@SLOW
@pytest.mark.parametrize("broken", ["", "blind"])
def test_r3_verify_finds_a_broken_build(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workload of two clusters would prove nothing of a good one."""
    break_it(broken, monkeypatch)
    found = verified(1, monkeypatch)
    assert bool(found) == bool(broken), found


def break_it(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken == "blind":  # whatever comes is taken
        monkeypatch.setattr(rules, "concurrent", lambda here, change: False)
    elif broken == "hasty":  # nobody waits for the other's clock

        async def at_once(self: object, top: int) -> None:
            return

        monkeypatch.setattr(taking.Taker, "_pass", at_once)
    elif broken == "deaf":  # what was taken from here is taken back

        async def no_mark(self: object, part: object) -> None:
            return None

        monkeypatch.setattr(pull.Pull, "_mark_of", no_mark)


@SLOW
@pytest.mark.parametrize("broken", ["blind", "hasty", "deaf"])
def test_r3_the_checker_finds_a_broken_build(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find nothing wrong with anything."""
    monkeypatch.setattr(pair, "END_S", 10)
    break_it(broken, monkeypatch)
    skew_ms = 5_000 if broken == "hasty" else 0
    assert any(
        played(seed, lambda two: story(two, 5, faults=True), skew_ms=skew_ms) for seed in range(4)
    )
