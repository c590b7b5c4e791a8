"""Snapshot isolation while messages are lost, partitions split and a coordinator dies (D1)."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import KvorumError
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.si_checker import Txn, anomalies
from tests.txn.world import WORLDS, LossyKv, World, doomed_client, k
from txn.client import TxnClient
from txn.transaction import Transaction

KEYS = ["b", "c", "g", "l", "z"]


# -- the checker itself: a checker that can not fail proves nothing


def txn(
    id: int, reads: dict[str, tuple[int, ...]], appends: dict[str, int], *, at: float = 0.0
) -> Txn:
    return Txn(id, at, at + 1 if at else 1e9, reads, appends)


KNOWN_BAD = {
    "lost update": (
        [txn(1, {"x": ()}, {"x": 1}), txn(2, {"x": ()}, {"x": 2})],
        {"x": [1, 2]},
    ),
    "dirty write (G0)": (
        [txn(1, {}, {"x": 1, "y": 1}), txn(2, {}, {"x": 2, "y": 2})],
        {"x": [1, 2], "y": [2, 1]},
    ),
    "aborted read (G1a)": ([txn(1, {"x": (9,)}, {})], {"x": []}),
    "circular information flow (G1c)": (
        [txn(1, {"y": (2,)}, {"x": 1}), txn(2, {"x": (1,)}, {"y": 2})],
        {"x": [1], "y": [2]},
    ),
    "read skew (G-single)": (
        [txn(1, {"x": (), "y": (2,)}, {}), txn(2, {}, {"x": 2, "y": 2})],
        {"x": [2], "y": [2]},
    ),
    "long fork": (
        [
            txn(1, {}, {"x": 1}),
            txn(2, {}, {"y": 2}),
            txn(3, {"x": (1,), "y": ()}, {}),
            txn(4, {"x": (), "y": (2,)}, {}),
        ],
        {"x": [1], "y": [2]},
    ),
    "stale read": (
        [txn(1, {}, {"x": 1}, at=1.0), txn(2, {"x": ()}, {}, at=5.0)],
        {"x": [1]},
    ),
    "lost write": ([txn(1, {}, {"x": 1}, at=1.0)], {"x": []}),
}


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_d1_checker_finds(name: str) -> None:
    """Each of these histories is forbidden; a checker that accepts it would accept it from us."""
    history, final = KNOWN_BAD[name]
    assert anomalies(history, final)


def test_d1_checker_accepts_write_skew() -> None:
    """Snapshot isolation permits it; to report it would be a false alarm."""
    history = [txn(1, {"x": (), "y": ()}, {"x": 1}), txn(2, {"x": (), "y": ()}, {"y": 2})]
    assert anomalies(history, {"x": [1], "y": [2]}) == []


# -- the store


def listed(value: bytes | None) -> tuple[int, ...]:
    return tuple(int(x) for x in value.split()) if value else ()


async def appender(
    client: TxnClient, world: World, history: list[Txn], ids: list[int], count: int
) -> None:
    """`count` transactions that read some lists and append to some of them."""
    rng = world.loop.rng
    for _ in range(count):
        ids[0] += 1
        record = Txn(ids[0])
        wanted = rng.sample(KEYS, 3)
        writes = set(rng.sample(wanted, rng.randint(0, 2)))
        asked = [world.loop.time()]  # before the snapshot of the first run, of the next, …

        async def fn(
            t: Transaction,
            record: Txn = record,
            wanted: list[str] = wanted,
            writes: set[str] = writes,
            asked: list[float] = asked,
        ) -> None:
            record.began = asked[-1]
            record.reads, record.appends = {}, {}
            if rng.random() < 0.5:
                rows = await t.multi_get([k(key) for key in wanted])
                found = {
                    key: row[0] if row else None for key, row in zip(wanted, rows, strict=True)
                }
            else:
                found = {key: (await t.get(k(key)))[0] for key in wanted}
            for key in wanted:
                record.reads[key] = listed(found[key])
                if key in writes:
                    new = (*record.reads[key], record.id)
                    record.appends[key] = record.id
                    t.put(k(key), b" ".join(b"%d" % v for v in new))
            asked.append(world.loop.time())

        try:
            await client.run(fn, budget_ms=4000)
        except KvorumError as error:
            if error.disposition == "unknown_outcome":
                history.append(record)  # it may show up, or not
            elif not writes:
                continue
        else:
            record.ended = world.loop.time()
            history.append(record)


async def si_run(loop: SimLoop, make: type[World]) -> None:
    world = make(loop)
    await world.start()
    lossy = [LossyKv(loop, world.kv(), 0.05) for _ in range(3)]
    clients = [world.client(kv) for kv in lossy]
    doomed, dying = doomed_client(world, 60 + int(loop.rng.random() * 60))
    history: list[Txn] = []
    ids = [0]
    victim = loop.create_task(appender(doomed, world, history, ids, 1000))
    work = [loop.create_task(appender(c, world, history, ids, 25)) for c in clients]
    await asyncio.sleep(0.3)
    world.split(k("c"))
    world.split(k("f"))
    await asyncio.gather(*work)
    victim.cancel()
    await asyncio.sleep(TXN_TTL_MS_DEFAULT / 1000)
    reader = world.client()
    rows, _ = await reader.multi_get([k(key) for key in KEYS])
    final = {key: listed(row[0]) if row else () for key, row in zip(KEYS, rows, strict=True)}
    # what the dead client had under way is known by what it left
    seen = {value for values in final.values() for value in values}
    known = {t.id for t in history}
    for lost in seen - known:
        history.append(
            Txn(lost, appends={key: lost for key, values in final.items() if lost in values})
        )
    history = [t for t in history if t.ended < float("inf") or t.id in seen or not t.appends]
    assert anomalies(history, final) == []
    committed = [t for t in history if t.appends and t.ended < float("inf")]
    assert len(committed) > 25
    assert dying.dead
    assert sum(kv.lost for kv in lossy) > 10
    for client in clients:
        await client.close()
    world.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
@WORLDS
def test_d1_history_is_snapshot_isolated(make: type[World], seed: int) -> None:
    """Lost updates, forks and torn reads are what the whole protocol exists to prevent."""
    run(lambda loop: si_run(loop, make), seed)


@pytest.mark.parametrize("guarded", [False, True])
@WORLDS
def test_d1_write_skew_is_permitted_and_a_check_prevents_it(
    make: type[World], guarded: bool
) -> None:
    """Two doctors on call, each signs off because the other is there: it has a remedy."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        client = world.client()
        await client.write([put(k("b"), b"on"), put(k("z"), b"on")])
        first, second = await client.begin(), await client.begin()
        for t, me, other in ((first, "b", "z"), (second, "z", "b")):
            value, version = await t.get(k(other))
            assert value == b"on"
            t.put(k(me), b"off")
            if guarded:
                t.check(k(other), version)
        outcomes = await asyncio.gather(first.commit(), second.commit(), return_exceptions=True)
        failed = [o for o in outcomes if isinstance(o, KvorumError)]
        on = [(await client.get(k(key)))[0] for key in "bz"].count(b"on")
        await client.close()
        if guarded:
            assert failed
            assert on >= 1
        else:
            assert (failed, on) == ([], 0)
        world.close()

    run(main)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
@WORLDS
def test_b8_bank_total_is_constant_in_every_multi_get(make: type[World], seed: int) -> None:
    """A snapshot that is not one timestamp would find money created or lost."""

    async def main(loop: SimLoop) -> None:
        world = make(loop)
        await world.start()
        setup = world.client()
        await setup.write([put(k(key), b"100") for key in KEYS])
        done = False
        totals: list[int] = []

        async def transfers(client: TxnClient) -> None:
            for _ in range(20):
                a, b = loop.rng.sample(KEYS, 2)

                async def move(t: Transaction, a: str = a, b: str = b) -> None:
                    rows = await t.multi_get([k(a), k(b)])
                    have = [int(row[0]) for row in rows if row]
                    t.put(k(a), b"%d" % (have[0] - 7))
                    t.put(k(b), b"%d" % (have[1] + 7))

                await client.run(move, budget_ms=60_000)

        async def audit(client: TxnClient) -> None:
            while not done:
                rows, at = await client.multi_get([k(key) for key in KEYS])
                totals.append(sum(int(row[0]) for row in rows if row))
                page = await client.scan(k(""), b"", limit=3, at=at)
                more = await client.scan(page.resume or b"", b"", limit=9, at=at)
                again = [value for _, value, _ in page.items + more.items]
                assert again == [row[0] for row in rows if row], "one timestamp, one answer"

        kvs = [LossyKv(loop, world.kv(), 0.02) for _ in range(3)]
        auditor = loop.create_task(audit(world.client()))
        try:
            await asyncio.gather(*(transfers(world.client(kv)) for kv in kvs))
        finally:
            done = True
            await auditor
        assert len(totals) > 20
        assert set(totals) == {500}
        world.close()

    run(main, seed)
