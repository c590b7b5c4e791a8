"""The store in a directory of logs: power losses at every write and sync, rolls, drops, damage, and
HBase's known faults (L2, L3, L5-L8, L10, L11). The suite of all stores is test_procedures_store.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import Corruption, InvalidArgument, KvorumError, Refused, Unavailable
from kv.base.keys import table_prefix
from kv.base.ops import put
from procedures.engine.core import Change, Flow
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Record
from procedures.engine.registry import Registry
from procedures.engine.store import Stored
from procedures.engine.submission import Submission, check, create
from procedures.wal.format import HEAD_BYTES
from procedures.wal.store import WalStore
from tests.procedures.lab import TABLE
from tests.procedures.wal_lab import VARIANTS, CrashDisk, PowerLoss, wal
from tests.procedures.zoo import TYPES
from tests.support import simloop

REGISTRY = Registry(TYPES)
SMALL = {"roll_bytes": 1_200, "logs_max": 2}  # some records a log: everything happens soon
ROUNDS = 9


def key(id: int) -> bytes:
    return table_prefix(TABLE) + b"%d" % id


async def made(store: WalStore, nonce: str = "") -> Record:
    ok = check(Submission("three", None, "me", nonce), REGISTRY)
    return create(ok, id=await store.take_ids(1), salt=b"12345678", now_ms=1_000)


async def fresh(store: WalStore, nonce: str = "") -> Stored:
    stored = await store.insert(await made(store, nonce))
    assert isinstance(stored, Stored)
    return stored


async def moved(store: WalStore, stored: Stored, **change: Any) -> Stored:
    """One step more; its row says the same number as the record."""
    record = replace(stored.record, seq=stored.record.seq + 1, **change)
    ops = [put(key(record.id), b"%d" % record.seq)]
    return Stored(record, await store.update(stored.version, Change(record, Flow.MORE), ops=ops))


async def ended(store: WalStore, stored: Stored) -> Stored:
    record = replace(stored.record, state=State.SUCCESS, updated_ms=5_000)
    return Stored(record, await store.update(stored.version, Change(record, Flow.ENDED)))


def on(disk: CrashDisk, test: Callable[[WalStore], Awaitable[Any]], **terms: int) -> Any:
    """Run `test` over a store of this disk, and close it."""

    async def main(loop: simloop.SimLoop) -> Any:
        store = wal(loop, disk, **terms)
        result = await test(store)
        await store.close()
        return result

    return simloop.run(main)


class Told:
    """What callers were told, and what they had asked for when the power went."""

    def __init__(self) -> None:
        self.acked: dict[int, int] = {}  # procedure → steps that were acknowledged
        self.asked: dict[int, int] = {}  # … that were begun
        self.removing: set[int] = set()
        self.removed: set[int] = set()
        self.ids: set[int] = set()
        self.version = 0
        self.families: dict[int, tuple[int, int]] = {}  # parent → its children

    def check(self, store: WalStore) -> None:
        image = store._image
        for id, steps in self.acked.items():
            stored = image.stored(id)
            if stored is None:
                assert id in self.removing, f"procedure {id} is lost"
                continue
            assert image.by_nonce("me", stored.record.nonce) == id
            assert id not in self.removed, f"procedure {id} is back"
            assert steps <= stored.record.seq <= self.asked[id]
            row = store.row(key(id))
            assert int(row or b"0") == stored.record.seq, "a step and its row are one"
        for id in self.asked:
            stored = image.stored(id)
            children = self.families.get(id)
            if children is not None:
                there = [child for child in range(*children) if child in image.held]
                spawned = stored is not None and bool(stored.record.rounds)
                assert len(there) == (3 if spawned else 0), "a parent's step and its children"
        assert all(image.next_id > id for id in self.ids), "an id would be given out again"
        assert store._journal.next > self.version, "a version would be used again"


async def work(store: WalStore, told: Told, rounds: int) -> None:
    """Sleepers, busy ones, families, removals; several at once."""

    async def begin(nonce: str) -> Stored:
        record = await made(store, f"{nonce} {len(told.ids)}")
        told.ids.add(record.id)
        told.asked[record.id] = 0
        stored = await store.insert(record)
        assert isinstance(stored, Stored)
        told.acked[record.id] = 0
        told.version = max(told.version, stored.version)
        return stored

    async def go(stored: Stored) -> Stored:
        told.asked[stored.record.id] += 1
        stored = await moved(store, stored)
        told.acked[stored.record.id] += 1
        told.version = max(told.version, stored.version)
        return stored

    async def family() -> None:
        parent = await begin("")
        first = await store.take_ids(3)
        told.ids |= {first, first + 1, first + 2}
        told.families[parent.record.id] = (first, first + 3)
        children = tuple(
            replace(parent.record, id=first + i, parent=parent.record.id, nonce="")
            for i in range(3)
        )
        record = replace(parent.record, rounds=((first, 3),))
        await store.update(parent.version, Change(record, Flow.WAIT, created=children))

    await begin("sleeper")
    busy = [await begin("busy") for _ in range(3)]
    for turn in range(rounds):
        results = await asyncio.gather(*(go(one) for one in busy), return_exceptions=True)
        busy = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            busy.append(result)
        gone = await ended(store, busy.pop(0))
        told.removing.add(gone.record.id)
        await store.remove([gone])
        told.removed.add(gone.record.id)
        busy.append(await begin("more"))
        if turn == 0:
            await family()


def until_power_loss(disk: CrashDisk, told: Told, rounds: int) -> bool:
    """Open and work until the power goes; False = it did not."""

    async def main(loop: simloop.SimLoop) -> bool:
        try:
            store = wal(loop, disk, **SMALL)
        except PowerLoss:
            return True
        told.check(store)
        task = asyncio.ensure_future(work(store, told, rounds))
        try:
            await task
            await store.close()
        except KvorumError:
            assert disk.dead
        return disk.dead

    lost: bool = simloop.run(main)
    return lost


@pytest.mark.parametrize("variant", VARIANTS)
def test_l8_power_loss_at_every_write_and_sync(variant: str) -> None:
    """After a power loss somewhere an acknowledged change was lost, or a removed one came back."""
    whole = CrashDisk()
    assert not until_power_loss(whole, Told(), ROUNDS)
    assert {"create", "append", "synced", "remove"} <= set(whole.log), whole.log
    for at in range(1 + VARIANTS.index(variant) % 2, whole.points + 1, 2):
        disk, told = CrashDisk(), Told()
        disk.crash_at, disk.variant = at, variant
        assert until_power_loss(disk, told, ROUNDS), at
        again = disk.survivor()
        again.crash_at, again.variant = 1 + at % 9, variant  # often while it recovers
        until_power_loss(again, told, 1)
        assert not until_power_loss(again.survivor(), told, 1), "the third start works to its end"
