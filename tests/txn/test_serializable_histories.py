"""Random histories of serializable transactions, while messages are lost, partitions split and a
coordinator dies: each must have a serial order (tests/txn/ser_checker).
"""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import KvorumError
from kv.base.limits import TXN_TTL_MS_DEFAULT
from kv.base.timestamps import MAX, compose, physical_ms
from kv.mvcc import validate as validating
from kv.mvcc.validate import Checked, Reads
from kv.mvcc.view import Mutations, View
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.ser_checker import Txn, anomalies
from tests.txn.world import WORLDS, LossyKv, RealWorld, World, doomed_client, k
from txn.buffered.read_set import ReadSet
from txn.client import TxnClient
from txn.transaction import Transaction

# ------------------------------------------------------------------ the checker itself


def txn(
    id: int,
    reads: dict[str, str | None],
    writes: dict[str, str | None],
    *,
    commit: int = 0,
    at: float = 0.0,
) -> Txn:
    return Txn(id, commit or (id + 10 if writes else 0), at, at + 1 if at else 1e9, reads, writes)


KNOWN_BAD = {
    "write skew": [
        txn(1, {"x": None, "y": None}, {"x": "a"}, commit=11),
        txn(2, {"x": None, "y": None}, {"y": "b"}, commit=12),
    ],
    "lost update": [
        txn(1, {"x": None}, {"x": "a"}, commit=11),
        txn(2, {"x": None}, {"x": "b"}, commit=12),
    ],
    "read-only anomaly": [
        txn(1, {"x": None, "y": None}, {"y": "-11"}, commit=20),
        txn(2, {"x": None}, {"x": "20"}, commit=5),
        txn(8, {"x": "20", "y": None}, {}),
    ],
    "a delete that was not seen": [
        txn(1, {}, {"x": "a"}, commit=2),
        txn(3, {"x": "a"}, {"y": "b"}, commit=10),
        txn(4, {"y": None}, {"x": None}, commit=9),
    ],
    "read of nobody's value": [txn(1, {"x": "a"}, {})],
    "stale read": [txn(1, {}, {"x": "a"}, commit=2, at=1.0), txn(0, {"x": None}, {}, at=5.0)],
    "expired read": [
        Txn(1, 2, 0, 1e9, {}, {"x": "a"}, {"x": 8}),
        txn(3, {"x": "a"}, {"y": "b"}, commit=12),
        txn(9, {"x": None, "y": None}, {"z": "c"}, commit=10),
    ],
}


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_serializable_checker_finds(name: str) -> None:
    """A checker that accepts it would accept it from us."""
    assert anomalies(KNOWN_BAD[name])


def test_serializable_checker_accepts_serial_histories() -> None:
    """A false alarm would be looked for in the store."""
    history = [
        txn(1, {"x": None}, {"x": "a"}, commit=2, at=1.0),
        txn(3, {"x": "a"}, {"x": None, "y": "b"}, commit=4, at=3.0),
        txn(5, {"x": None, "y": "b"}, {}, at=5.0),
        txn(6, {"x": None}, {"x": "c"}, commit=7, at=7.0),
        Txn(8, 9, 9.0, 10.0, {"x": "c"}, {"x": "d"}, {"x": 20}),
        txn(10, {"x": "d"}, {"y": "e"}, commit=19, at=11.0),
        txn(21, {"x": None, "y": "e"}, {"x": None}, commit=22, at=13.0),
    ]
    assert anomalies(history) == []


# ------------------------------------------------------------------ the store

KEYS = ["b", "c", "g", "h", "l", "z"]


class Workload:
    """Transactions that read keys and ranges, put, delete and let expire; and what they saw."""

    def __init__(self, world: World, isolation: str) -> None:
        self.world, self.isolation = world, isolation
        self.attempts: list[Txn] = []
        self.ttls: dict[int, dict[str, int]] = {}

    async def work(self, client: TxnClient, count: int) -> None:
        for _ in range(count):
            try:
                record = await client.run(self._one, isolation=self.isolation, budget_ms=4000)
            except KvorumError:
                continue
            record.ended = self.world.loop.time()

    async def _one(self, t: Transaction) -> Txn:
        rng = self.world.loop.rng
        # no later than the moment at which its snapshot was asked for
        record = Txn(t.start_ts, began=self.world.loop.time() - 0.05)
        self.attempts.append(record)
        ttls = self.ttls.setdefault(t.start_ts, {})
        for _ in range(rng.randint(1, 2)):
            await self._read(t, record)
        for key in rng.sample(KEYS, rng.randint(0, 2)):
            kind = rng.random()
            if kind < 0.25:
                t.delete(k(key))
                record.writes[key] = None
                continue
            value = f"{t.start_ts}{key}"
            expires = kind < 0.5 and isinstance(self.world, RealWorld)  # the model keeps for ever
            ttl_ms = rng.randint(5, 80) if expires else 0
            t.put(k(key), value.encode(), ttl_ms=ttl_ms)
            record.writes[key] = value
            if ttl_ms:
                ttls[key] = ttl_ms
        return record

    async def _read(self, t: Transaction, record: Txn) -> None:
        rng = self.world.loop.rng
        if rng.random() < 0.5:
            keys = rng.sample(KEYS, 2)
            rows = await t.multi_get([k(key) for key in keys])
            found = dict(zip(keys, rows, strict=True))
            seen = {key: None if row is None else row[0].decode() for key, row in found.items()}
        else:
            low, high = sorted(rng.sample([*KEYS, "zz"], 2))
            page = await t.scan(k(low), k(high), limit=20, reverse=rng.random() < 0.5)
            assert page.resume is None
            there = {key[4:].decode(): value.decode() for key, value, _ in page.items}
            seen = {key: there.get(key) for key in KEYS if low <= key < high}
        record.reads.update(seen)

    async def history(self, client: TxnClient) -> list[Txn]:
        """What committed, as their records say."""
        found = []
        for t in self.attempts:
            if not t.writes:
                if t.ended < float("inf"):
                    found.append(t)
                continue
            status = await client.status(t.id)
            if status.status == "committed":
                t.commit_ts = status.commit_ts
                for key, ttl_ms in self.ttls[t.id].items():
                    t.expires[key] = compose(physical_ms(t.commit_ts) + ttl_ms)
                found.append(t)
            else:
                assert t.ended == float("inf"), f"{t.id} was acknowledged, and is {status.status}"
        return found


async def random_run(loop: SimLoop, make: type[World], isolation: str) -> list[str]:
    """What the checker finds in a run with lost messages and a coordinator that dies."""
    world = make(loop)
    await world.start()
    clients = [world.client(LossyKv(loop, world.kv(), 0.03)) for _ in range(4)]
    doomed, dying = doomed_client(world, 80 + int(loop.rng.random() * 80))
    load = Workload(world, isolation)
    victim = loop.create_task(load.work(doomed, 1000))
    work = [loop.create_task(load.work(client, 20)) for client in clients]
    for border in ("c", "h", "f"):  # of the model; ranges that were read lie in two partitions then
        await asyncio.sleep(0.1)
        world.split(k(border))
    await asyncio.gather(*work)
    victim.cancel()
    await asyncio.sleep(2 * TXN_TTL_MS_DEFAULT / 1000)
    reader = world.client()
    await reader.multi_get([k(key) for key in KEYS])  # finishes what the dead one left
    history = await load.history(reader)
    assert dying.dead
    assert sum(bool(t.writes) for t in history) > 25
    assert any(t.reads and not t.writes for t in history)
    for client in clients:
        await client.close()
    found = anomalies(history)
    world.close()
    return found


def found_in(seeds: range, make: type[World], isolation: str) -> list[int]:
    """The seeds whose history is not serializable."""
    bad = []
    for seed in seeds:

        async def main(loop: SimLoop, seed: int = seed) -> None:
            if await random_run(loop, make, isolation):
                bad.append(seed)

        run(main, seed)
    return bad


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(8))
@WORLDS
def test_serializable_histories_are_serializable(make: type[World], seed: int) -> None:
    """Serializable is a promise about every history, and one is enough to break it."""

    async def main(loop: SimLoop) -> None:
        assert await random_run(loop, make, "serializable") == []

    run(main, seed)


@pytest.mark.slow
def test_d1_histories_of_snapshot_transactions_show_write_skew() -> None:
    """If they never did, the workload could not tell the two levels apart."""
    assert found_in(range(3), RealWorld, "snapshot")


def unchecked(view: View, reads: Reads, *_: object) -> Checked:
    """Everything holds, for ever."""
    return Checked(MAX, [end for _, end in reads.ranges])


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["no guards", "no validation", "ranges forgotten"])
def test_serializable_histories_of_a_broken_store_are_caught(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that passes without what it is there for proves nothing."""
    if broken == "no guards":
        monkeypatch.setattr(Mutations, "set_guard", lambda self, guard: None)
    elif broken == "no validation":
        monkeypatch.setattr(validating, "_check", unchecked)
        monkeypatch.setattr(Mutations, "set_guard", lambda self, guard: None)
    else:
        monkeypatch.setattr(ReadSet, "add_range", lambda self, start, end: None)
    first = 15 if broken == "no guards" else 0  # one seed of ten shows it: begin at such a one
    seeds = range(first, first + 30)
    assert any(found_in(range(s, s + 1), RealWorld, "serializable") for s in seeds)
