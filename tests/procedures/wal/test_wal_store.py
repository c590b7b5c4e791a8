"""The store in a directory of logs: power losses at every write and sync, rolls, drops, damage, and
HBase's known faults (L2, L3, L5-L8, L10, L11). The suite of all stores is
tests/procedures/engine/test_procedures_store.py.
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
from kvorum.testing.simulation import loop as simloop
from procedures.engine.core import Change, Flow
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Record
from procedures.engine.registry import Registry
from procedures.engine.store import Stored
from procedures.engine.submission import Submission, check, create
from procedures.wal.format import HEAD_BYTES, LogRecord, encode_frame, encode_record
from procedures.wal.store import WalStore
from tests.procedures.engine.test_procedures_crash import check_end
from tests.procedures.engine.test_procedures_store import _life as life
from tests.procedures.lab import TABLE, CrashingStore, Lab
from tests.procedures.wal.wal_lab import VARIANTS, CrashDisk, PowerLoss, wal
from tests.procedures.zoo import CASES, TYPES, Case

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


@pytest.mark.slow
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


def test_l2_logs_roll_by_size() -> None:
    """A log grew without a bound."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        stored = await fresh(store)
        for _ in range(60):
            stored = await moved(store, stored)
            newest = store.logs.newest
            assert newest.size < 2_000 + 500, "at most one frame above the limit"
        assert store.counts.rolls >= 4

    on(disk, test, roll_bytes=2_000)


def test_l2_logs_roll_by_time() -> None:
    """A log stayed for ever because little was written."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        stored = await fresh(store)
        for _ in range(10):
            await asyncio.sleep(0.5)
            stored = await moved(store, stored)
        assert store.counts.rolls == 1
        await asyncio.sleep(60)
        assert store.counts.rolls == 1, "nothing was written: no new log"
        await moved(store, stored)
        assert store.counts.rolls == 2

    on(disk, test, roll_ms=30_000)


def test_l3_concurrent_updates_share_syncs() -> None:
    """Every update waited for a sync of its own."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        some = [await fresh(store) for _ in range(50)]
        before = store.counts.syncs
        for _ in range(4):
            some = list(await asyncio.gather(*(moved(store, one) for one in some)))
        assert store.counts.syncs - before <= 8, "200 updates"

    on(disk, test)
    assert disk.log.count("synced") < 70, "the disk saw no more than that"


def test_l3_nothing_is_told_before_it_is_durable() -> None:
    """A reader was told of a change that a power loss took back."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        stored = await fresh(store, "n")
        began = asyncio.get_running_loop().time()
        updating = asyncio.ensure_future(moved(store, stored))
        while store._image.held[stored.record.id].version == stored.version:  # noqa: ASYNC110
            await asyncio.sleep(0)
        seen = await store.load(stored.record.id)
        assert seen is not None
        assert seen.record.seq == 1
        assert store._journal.durable >= seen.version, "told before its sync had ended"
        assert asyncio.get_running_loop().time() > began
        await updating
        reads = await store.reads()
        assert await reads.get(key(stored.record.id)) is not None
        await reads.close()

    on(disk, test)


def test_l7_a_sleeper_does_not_hold_logs() -> None:
    """One procedure that sleeps for a month held all logs since."""
    disk = CrashDisk()

    async def test(store: WalStore) -> Stored:
        sleeper, busy = await fresh(store, "sleeper"), await fresh(store)
        sleeper = await moved(store, sleeper)
        for _ in range(400):
            busy = await moved(store, busy)
            assert len(store.logs) <= 6
        assert store.counts.forced > 0
        assert min(disk.files) > 10, "the log in which it began has gone"
        assert await store.load(sleeper.record.id) == sleeper
        return sleeper

    sleeper = on(disk, test, **SMALL)

    async def again(store: WalStore) -> None:
        assert await store.load(sleeper.record.id) == sleeper, "with its version: its fencing token"
        assert store.row(key(sleeper.record.id)) == b"1"
        assert await store.find_nonce("me", "sleeper") == sleeper.record.id

    on(disk, again)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_l8_soak(seed: int) -> None:
    """In a long life logs piled up, or a restart did not find exactly what there was."""
    rng = random.Random(seed)
    disk = CrashDisk()
    alive: dict[int, Stored] = {}

    async def life(store: WalStore) -> None:
        assert {id: await store.load(id) for id in alive} == alive
        assert sorted(store._image.held) == sorted(alive)
        for _ in range(500):
            what = rng.random()
            if what < 0.2 or len(alive) < 5:
                stored = await fresh(store, rng.choice(["", f"{rng.random()}"]))
            elif what < 0.75:
                stored = await moved(store, rng.choice(list(alive.values())))
            else:
                stored = await ended(store, alive.pop(rng.choice(list(alive))))
                await store.remove([stored])
                continue
            alive[stored.record.id] = stored
        await asyncio.sleep(1)  # a drop may be under way
        allowed = 2 + 2 * store._image.size // 1_200 + 3
        assert len(store.logs) <= allowed
        assert len(disk.files) == len(store.logs)
        assert store.counts.dropped > 0

    for _ in range(6):
        on(disk, life, **SMALL)


def lived() -> tuple[CrashDisk, list[Stored]]:
    """A disk with some logs, not closed properly."""
    disk = CrashDisk()

    async def main(loop: simloop.SimLoop) -> list[Stored]:
        store = wal(loop, disk, roll_bytes=1_200, logs_max=50)
        return [await moved(store, await fresh(store, f"n{i}")) for i in range(15)]

    return disk, simloop.run(main)


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_l10_a_torn_tail_loads_the_rest_and_says_so(cut: int) -> None:
    """A torn end stopped the start, or went unnoticed, or took more with it."""
    disk, stored = lived()
    newest = max(disk.files)
    disk.files[newest] = disk.files[newest][:-cut]

    async def test(store: WalStore) -> None:
        report = store.report
        assert report.torn
        assert (report.torn_file, report.procedures) == (disk.where(newest), 15)
        assert report.torn_records in (1, None)
        assert str(report.torn_bytes) in report.text()
        for one in stored[:-1]:
            assert await store.load(one.record.id) == one
        last = await store.load(stored[-1].record.id)
        assert last is not None
        assert last.record.seq == 0, "the last step was the torn one"
        await moved(store, last)

    on(disk, test)

    async def whole(store: WalStore) -> None:
        assert not store.report.torn, "it was cut off"

    on(disk, whole)


@pytest.mark.slow
def test_l10_damage_refuses_to_start_and_names_the_place() -> None:
    """A flipped bit in the middle was taken for the end, and what followed was lost in silence."""
    disk, _ = lived()
    logs = sorted(disk.files)
    assert len(logs) >= 3
    for number in logs:
        data = disk.files[number]
        for at in range(0, len(data) - (200 if number == logs[-1] else 0), 37):
            hurt = CrashDisk(
                disk.files | {number: data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]}
            )
            with pytest.raises(Corruption) as caught:
                on(hurt, lambda store: asyncio.sleep(0))
            assert caught.value.details["file"] == disk.where(number)
            place = caught.value.details["offset"]
            assert place <= at < place + 400, (place, at)
            assert hurt.points == 0, "nothing was changed"


def test_l10_a_missing_log_refuses_to_start() -> None:
    """A log that somebody deleted was not missed."""
    disk, _ = lived()
    for number in sorted(disk.files)[:-1]:
        files = {n: data for n, data in disk.files.items() if n != number}
        with pytest.raises(Corruption, match=disk.where(number)):
            on(CrashDisk(files), lambda store: asyncio.sleep(0))


def test_l10_the_end_of_a_closed_log_is_strict() -> None:
    """Damage of the last record, before a proper end, was taken for a torn tail."""
    disk = CrashDisk()
    on(disk, fresh)
    data = disk.files[1]
    disk.files[1] = data[: HEAD_BYTES + 30] + b"\xff" + data[HEAD_BYTES + 31 :]
    with pytest.raises(Corruption):
        on(disk, fresh)


def test_l10_users_bytes_are_not_frames() -> None:
    """A value that looks like a frame made a torn end look like damage: the start was refused."""
    disk = CrashDisk()
    fake = encode_frame(b"a guess.", 1, [encode_record(LogRecord(next_id=9))])

    async def main(loop: simloop.SimLoop) -> None:
        store = wal(loop, disk)
        stored = await fresh(store)
        change = Change(replace(stored.record, seq=1), Flow.MORE)
        await store.update(stored.version, change, ops=[put(key(1), fake * 3)])

    simloop.run(main)
    assert fake in disk.files[1]
    disk.files[1] = disk.files[1][:-1]

    async def look(store: WalStore) -> None:
        assert store.report.torn_records == 1

    on(disk, look)


def test_l10_a_failed_sync_ends_the_store() -> None:
    """After a failed sync the store went on, and acknowledged what may not be on the disk."""
    disk = CrashDisk()

    async def main(loop: simloop.SimLoop) -> None:
        store = wal(loop, disk)
        stored = await fresh(store)
        disk.broken = OSError(5, "Input/output error")
        with pytest.raises(KvorumError) as caught:
            await moved(store, stored)
        assert caught.value.disposition == "unknown_outcome"
        disk.broken = None
        for refused in (store.load(stored.record.id), moved(store, stored), store.reads()):
            with pytest.raises(Unavailable, match="open the directory again"):
                await refused
        await store.close()

    simloop.run(main)


def test_l1_no_room_refuses_new_procedures_only() -> None:
    """On a full disk what ran could not end, or new work was let in until it broke."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        stored = await fresh(store)
        disk.room = limits.WAL_FREE_BYTES_MIN - 1
        stored = await moved(store, stored)
        with pytest.raises(Unavailable, match="make room"):
            await fresh(store)
        await ended(store, stored)

    on(disk, test)


async def opened_with(loop: simloop.SimLoop, **terms: int) -> None:
    wal(loop, CrashDisk(), **terms)


def test_l1_what_is_not_offered_is_refused() -> None:
    """A row that should expire stayed for ever."""

    async def test(store: WalStore) -> None:
        stored = await fresh(store)
        change = Change(replace(stored.record, seq=1), Flow.MORE)
        with pytest.raises(Refused) as caught:
            await store.update(stored.version, change, ops=[put(key(1), b"v", ttl_ms=5)])
        assert caught.value.code == "NOT_OFFERED"
        assert await store.load(stored.record.id) == stored

    on(CrashDisk(), test)
    with pytest.raises(InvalidArgument):
        simloop.run(lambda loop: opened_with(loop, logs_max=1))


# ---------------------------------------------------------------------- faults that HBase had (L11)
def test_l11_21354_a_restart_deletes_nothing_that_lives() -> None:
    """HBASE-21354: trackers rebuilt at a restart forgot, and logs with live procedures went; or a
    log that was already dropped came back and with it a deleted procedure.
    """
    disk, stored = lived()
    files: dict[int, bytes] = {}

    async def restart(store: WalStore) -> None:
        assert sorted(store._image.held) == [one.record.id for one in stored]
        files.update(disk.files)
        gone = await ended(store, stored[0])
        await store.remove([gone])
        del stored[0]
        busy = stored[-1]
        for _ in range(60):
            busy = await moved(store, busy)
        stored[-1] = busy

    for _ in range(4):
        on(disk, restart, **SMALL)
    dropped = {n: data for n, data in files.items() if n not in disk.files}
    assert dropped
    disk.files |= dropped  # the deletion of their names was lost

    async def look(store: WalStore) -> None:
        assert {id: await store.load(id) for id in sorted(store._image.held)} == {
            one.record.id: one for one in stored
        }
        assert not dropped.keys() & disk.files.keys()

    on(disk, look)


def test_l11_20973_deleting_ids_that_no_log_knows() -> None:
    """HBASE-20973: an index error when a rollback deleted an id outside the tracker's nodes."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        first = await fresh(store)
        far = await store.take_ids(1_000_000)
        record = replace(first.record, id=far + 999_999, nonce="")
        stored = await store.insert(record)
        assert isinstance(stored, Stored)
        for _ in range(40):
            first = await moved(store, first)  # its own log goes
        await store.remove([await ended(store, stored)])
        for _ in range(40):
            first = await moved(store, first)
        assert sorted(store._image.held) == [first.record.id]

    on(disk, test, **SMALL)

    async def again(store: WalStore) -> None:
        assert len(store._image.held) == 1
        assert (await fresh(store)).record.id > 1_000_999

    on(disk, again)


def test_l11_20338_an_interrupted_new_log_does_not_stop_the_start() -> None:
    """HBASE-20338: a start hung in a loop of tries to make its first log."""
    disk, stored = lived()
    disk.files[max(disk.files) + 1] = b"KVPL\x01"  # its making was interrupted

    async def test(store: WalStore) -> None:
        assert store.report.torn_records == 0
        assert await moved(store, stored[0])

    on(disk, test)


def test_l11_19756_and_19996_failed_procedures_and_their_nonces_go() -> None:
    """HBASE-19756, HBASE-19996: the eviction of a failed procedure broke, and its nonce stayed."""
    disk = CrashDisk()

    async def test(store: WalStore) -> None:
        for nonce in ("", "n"):
            stored = await fresh(store, nonce)
            record = replace(stored.record, state=State.ROLLED_BACK, updated_ms=1)
            record = replace(record, history=(Entry("one", "fail", 1, 1, 1),))
            version = await store.update(stored.version, Change(record, Flow.ENDED))
            assert (await store.expired(1 << 60, 9))[0] == [record.id]
            await store.remove([Stored(record, version)])
        assert store.indexed() == 0

    on(disk, test)

    async def again(store: WalStore) -> None:
        assert store.indexed() == 0
        assert await store.find_nonce("me", "n") is None
        assert (await fresh(store, "n")).record.id > 2, "the nonce may be used for a new one"

    on(disk, again)


# ------------------------------------------------------------------------------ the whole thing
@pytest.mark.few(19)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_j9_crashes_over_logs(case: Case) -> None:
    """Over a directory of logs a crash lost or doubled a step, forward or back."""

    async def main(loop: simloop.SimLoop) -> None:
        rng = random.Random(str(case))
        disk = CrashDisk()
        lab = Lab(loop, TYPES, store=wal(loop, disk, **SMALL))
        crashes = [(rng.randrange(1, 9), rng.random() < 0.5) for _ in range(3)]
        record: Record | None = None
        for at, after in [*crashes, (0, False)]:
            lab.running.clear()
            record = await life(lab, case, CrashingStore(lab.store, at, after=after))
            if record is not None:
                break
            disk.dead = True  # the process is gone with all that it had not written
            disk = disk.survivor()
            lab.store = wal(loop, disk, **SMALL)
        assert record is not None
        async with lab.executor() as executor:
            await executor.acknowledge(record.id)

        async def value(row: bytes) -> bytes | None:
            found: bytes | None = lab.store.row(row)
            return found

        await check_end(lab, case, record, value)
        assert lab.store.indexed() == 0

    simloop.run(main)


def test_l9_an_insert_tells_older_logs_that_they_lack_it() -> None:
    """Logs of before a procedure was inserted were kept for its sake: every one that is there had
    to be looked through, or waited for, until it had been written anew.
    """

    async def test(store: WalStore) -> None:
        first = [await fresh(store, f"a{i}") for i in range(20)]
        older = set(disk.files)
        assert len(older) > 1
        for stored in first:
            await store.remove([await ended(store, stored)])
        later = [await fresh(store, f"b{i}") for i in range(6)]  # they never change, as sleepers
        await asyncio.sleep(1)
        assert not older & set(disk.files), "nothing of what lives is in these"
        assert [await store.load(one.record.id) for one in later] == later
        assert store.counts.forced == 0, "and none of it was written anew"

    disk = CrashDisk()
    on(disk, test, roll_bytes=1_200, logs_max=50)
