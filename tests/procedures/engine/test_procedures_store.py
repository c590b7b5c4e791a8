"""One suite for every store (L1), and the crash tests once more over the real transactions."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import ConditionFailed, Corruption, KvorumError, NotFound, Refused
from kv.base.ids import NodeId
from kv.base.keys import table_prefix
from kv.base.ops import delete, put
from kvorum.testing.simulation import loop as simloop
from procedures.engine import core
from procedures.engine.core import Change, Flow
from procedures.engine.kv_store import KvStore, forget_ops
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Record
from procedures.engine.registry import Registry
from procedures.engine.store import Fenced, Stored
from procedures.engine.submission import Submission, check, create
from tests.procedures.engine.test_procedures_crash import check_end
from tests.procedures.lab import TABLE, CrashingStore, Lab, crashed, refusal
from tests.procedures.stores import STORES, Looks, opened
from tests.procedures.zoo import CASES, TYPES, Case

KEY = table_prefix(TABLE) + b"a"
FAR = table_prefix(TABLE) + b"z"  # in another partition


def over(kind: str, test: Any) -> None:
    """Run `test(store, looks)` over a new store."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            await test(looks.store, looks)

    simloop.run(main)


async def fresh(store: Any, nonce: str = "", name: str = "three") -> Stored:
    ok = check(Submission(name, None, "me", nonce), Registry(TYPES))
    record = create(ok, id=await store.take_ids(1), salt=b"12345678", now_ms=1_000)
    stored = await store.insert(record)
    assert isinstance(stored, Stored), stored
    return stored


def step(record: Record, **change: Any) -> Change:
    return Change(replace(record, seq=record.seq + 1, **change), Flow.MORE)


def end(record: Record) -> Change:
    return Change(replace(record, state=State.SUCCESS, updated_ms=5_000), Flow.ENDED)


@STORES
def test_l1_insert_load_update_remove(kind: str) -> None:
    """A store lost a record, gave back another one, or kept what was removed."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store, "n")
        id = stored.record.id
        assert await store.load(id) == stored
        assert await store.find_nonce("me", "n") == id
        assert await store.load(id + 1_000_000) is None
        change = step(stored.record, step="two")
        version = await store.update(stored.version, change, ops=[put(KEY, b"v")])
        assert version > stored.version
        assert await store.load(id) == Stored(change.record, version)
        assert await looks.value(KEY) == b"v"
        ended = end(change.record)
        version = await store.update(version, ended, ops=[delete(KEY)])
        assert (await store.live(0, 10)).stored == []
        await store.remove([Stored(ended.record, version)])
        assert await store.load(id) is None
        assert await store.find_nonce("me", "n") is None
        assert (await looks.rows(), await looks.value(KEY)) == (0, None)

    over(kind, test)


@STORES
def test_l1_update_is_fenced_and_atomic(kind: str) -> None:
    """A stale step committed, or a refused one left some of its writes (U1)."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store)
        first = step(stored.record, data=b"\x81\xa1a\x01")
        version = await store.update(stored.version, first, ops=[put(KEY, b"1"), put(FAR, b"1")])
        with pytest.raises(Fenced):
            await store.update(stored.version, first, ops=[put(KEY, b"2"), put(FAR, b"2")])
        assert [await looks.value(key) for key in (KEY, FAR)] == [b"1", b"1"]
        second = step(first.record)
        with pytest.raises(ConditionFailed):
            await store.update(version, second, ops=[put(FAR, b"3"), put(KEY, b"3", cond=0)])
        assert await store.load(stored.record.id) == Stored(first.record, version)
        assert [await looks.value(key) for key in (KEY, FAR)] == [b"1", b"1"]
        with pytest.raises(Fenced):
            await store.remove([stored])

    over(kind, test)


@STORES
def test_l1_reads_conflict(kind: str) -> None:
    """A step that had read a row overwrote what somebody wrote since (lost update)."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store)
        other = await fresh(store)
        reads = await store.reads()
        assert await reads.get(KEY) is None
        await store.update(other.version, step(other.record), ops=[put(KEY, b"theirs")])
        assert await reads.get(KEY) is None, "one step, one snapshot"
        error = await refusal(
            store.update(stored.version, step(stored.record), ops=[put(KEY, b"mine")], reads=reads)
        )
        assert error.disposition == "restart_txn"
        await reads.close()
        assert await looks.value(KEY) == b"theirs"
        assert await store.load(stored.record.id) == stored
        reads = await store.reads()
        row = await reads.get(KEY)
        assert row is not None
        assert row.value == b"theirs"
        assert await reads.multi_get([FAR, KEY]) == [None, row]
        page = await reads.scan(KEY, FAR, limit=5)
        assert [item[:2] for item in page.items] == [(KEY, b"theirs")]
        version = await store.update(
            stored.version,
            step(stored.record),
            ops=[put(KEY, b"mine"), put(FAR, b"x")],
            reads=reads,
        )
        assert version > stored.version
        assert await looks.value(KEY) == b"mine"

    over(kind, test)


@STORES
def test_j15_parent_and_children_are_one(kind: str) -> None:
    """Some children were stored without the others, or without their parent's step (J15)."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store)
        first = await store.take_ids(3)
        made = tuple(
            replace(stored.record, id=first + i, parent=stored.record.id) for i in range(3)
        )
        change = Change(step(stored.record).record, Flow.WAIT, created=made)
        version = await store.update(stored.version, change)
        assert [s.record for s in await store.load_range(first, 3)] == list(made)
        assert [s.version for s in await store.load_range(first, 3)] == [version] * 3
        again = tuple(replace(child, id=child.id + 100) for child in made)
        with pytest.raises(Fenced):
            await store.update(stored.version, Change(change.record, Flow.WAIT, created=again))
        assert await store.load_range(first + 100, 3) == []
        live = (await store.live(0, 10)).stored
        assert [s.record.id for s in live] == [stored.record.id, first, first + 1, first + 2]
        child = end(made[2])
        ended = await store.update(version, child)
        assert len((await store.live(0, 10)).stored) == 3
        back = replace(child.record, state=State.ROLLING_BACK)
        parent = step(change.record).record
        with pytest.raises(Fenced):
            await store.update(
                version, Change(parent, Flow.WAIT, revived=back), revived_version=version
            )
        await store.update(version, Change(parent, Flow.WAIT, revived=back), revived_version=ended)
        assert len((await store.live(0, 10)).stored) == 4

    over(kind, test)


@STORES
def test_l1_nonces(kind: str) -> None:
    """A nonce let a second procedure in, or an insert could not be repeated."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store, "n")
        record = replace(stored.record, id=await store.take_ids(1))
        assert await store.insert(record) == stored.record.id
        assert await store.load(record.id) is None
        repeated = await store.insert(stored.record)
        assert isinstance(repeated, Stored)
        assert repeated.record == stored.record
        error = await refusal(store.insert(replace(record, name="loop")))
        assert isinstance(error, Refused)
        assert error.code == "NONCE_REUSED"

    over(kind, test)


@STORES
def test_l1_ids_are_never_given_twice(kind: str) -> None:
    """An id was given out twice, also after a crash of whoever reserved it."""

    async def test(store: Any, looks: Looks) -> None:
        seen: set[int] = set()
        for count in (1, 5, limits.PROCEDURE_ID_BLOCK + 7, 1, 3):
            first = await store.take_ids(count)
            ids = set(range(first, first + count))
            assert not ids & seen
            seen |= ids
        if looks.txn is not None:
            other = KvStore(looks.txn)  # as after a restart
            first = await other.take_ids(2)
            assert not {first, first + 1} & seen
            assert await store.take_ids(1) < first, "a reserved block is used up"

    over(kind, test)


@STORES
def test_l1_live_pages(kind: str) -> None:
    """A resume missed a procedure, or read all of them at once."""

    async def test(store: Any, looks: Looks) -> None:
        ids = [(await fresh(store)).record.id for _ in range(7)]
        stored = await store.load(ids[3])
        await store.update(stored.version, end(stored.record))
        found: list[int] = []
        after: int | None = 0
        pages = 0
        while after is not None:
            page = await store.live(after, 2)
            assert len(page.stored) <= 2
            found += [s.record.id for s in page.stored]
            after = page.after
            pages += 1
        assert found == ids[:3] + ids[4:]
        assert pages >= 3
        assert [s.record.id for s in await store.newest(0, 3)] == ids[:-4:-1]
        assert [s.record.id for s in await store.newest(ids[2], 9)] == [ids[1], ids[0]]

    over(kind, test)


@STORES
def test_l1_live_pages_are_bounded_by_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume held a thousand records at once, whatever their size: gigabytes."""
    monkeypatch.setattr(limits, "SCAN_PAGE_BYTES_MAX", 5_000)

    async def test(store: Any, looks: Looks) -> None:
        ids = []
        for _ in range(9):
            stored = await fresh(store)
            ids.append(stored.record.id)
            await store.update(stored.version, step(stored.record, data=b"x" * 2_000))
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            page = await store.live(after, 100)
            assert len(page.stored) <= 3
            found += [s.record.id for s in page.stored]
            after = page.after
        assert found == ids

    over(kind, test)


@STORES
def test_l1_retention(kind: str) -> None:
    """A result was forgotten early, or never."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store)
        ended = end(stored.record)
        version = await store.update(stored.version, ended)
        due = 5_000 + ended.record.retention_ms
        assert await store.expired(due - 1, 10) == ([], due)
        assert (await store.expired(due, 10))[0] == [stored.record.id]
        await store.remove([Stored(ended.record, version)])
        assert await store.expired(due, 10) == ([], 0)

    over(kind, test)


@STORES
def test_l1_history(kind: str) -> None:
    """Old steps of a long procedure were lost, or grew its record without a bound."""

    async def test(store: Any, looks: Looks) -> None:
        stored = await fresh(store)
        record, version = stored
        types = Registry(TYPES)
        record = replace(record, name="loop", step="turn")
        entries = 3 * limits.PROCEDURE_HISTORY_INLINE_MAX
        for i in range(entries):
            ran = core.Ran(record.data, 1, i, i)
            change = core.advance(record, core.Next("turn"), ran, types)
            version = await store.update(version, change)
            record = change.record
            assert len(record.history) <= limits.PROCEDURE_HISTORY_INLINE_MAX
        history: list[Entry] = await store.history(record, 1_000)
        assert [e.start_ms for e in history] == list(range(entries))
        assert await store.history(record, 40) == history[-40:]
        ended = end(record)
        version = await store.update(version, ended)
        await store.remove([Stored(ended.record, version)])
        assert await looks.rows() == 0

    over(kind, test)


@STORES
def test_l1_a_history_with_a_bound_leaves_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a version that kept all of a history had written was left for ever."""
    monkeypatch.setattr(limits, "PROCEDURE_HISTORY_KEPT", 1 << 30)

    async def test(store: Any, looks: Looks) -> None:
        record, version = await fresh(store)
        types = Registry(TYPES)
        record = replace(record, name="loop", step="turn")
        for i in range(8 * limits.PROCEDURE_HISTORY_CHUNK):
            if i == 6 * limits.PROCEDURE_HISTORY_CHUNK:
                monkeypatch.setattr(
                    limits, "PROCEDURE_HISTORY_KEPT", 2 * limits.PROCEDURE_HISTORY_CHUNK
                )
            change = core.advance(record, core.Next("turn"), core.Ran(b"", 1, i, i), types)
            version = await store.update(version, change)
            record = change.record
        kept = await store.history(record, 1_000)
        assert kept[-1].start_ms == 8 * limits.PROCEDURE_HISTORY_CHUNK - 1
        ended = end(record)
        version = await store.update(version, ended)
        await store.remove([Stored(ended.record, version)])
        assert await looks.rows() == 0

    over(kind, test)


def test_l1_the_end_of_many_rounds_removes_few_rows() -> None:
    """To forget a procedure that had gone round for long was a write for each of its steps ever."""
    ok = check(Submission("three", None, "me", ""), Registry(TYPES))
    record = create(ok, id=1, salt=b"12345678", now_ms=1_000)
    record = replace(record, spilled=1_000 * limits.PROCEDURE_HISTORY_KEPT)
    rows = limits.PROCEDURE_HISTORY_KEPT // limits.PROCEDURE_HISTORY_CHUNK
    assert len(forget_ops(record, 1)) == rows + 3


@pytest.mark.parametrize("kind", ["model", "real"])
def test_l10_unreadable_record_is_left_alone(kind: str) -> None:
    """One damaged record stopped the start-up, or was taken for another."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            good, bad = await fresh(looks.store, name="waiter"), await fresh(looks.store)
            key = table_prefix(10) + bad.record.id.to_bytes(8, "big")
            await looks.txn.write([put(key, b"\x93\x01\x02")])
            page = await looks.store.live(0, 10)
            assert [s.record.id for s in page.stored] == [good.record.id]
            assert [b.id for b in page.broken] == [bad.record.id]
            async with Lab(loop, TYPES, store=looks.store).executor() as executor:
                assert list(executor.broken) == [bad.record.id]
                assert [live.id for live in executor.live()] == [good.record.id]

    simloop.run(main)


@pytest.mark.parametrize("kind", ["model", "real"])
def test_m5_a_damaged_record_does_not_keep_the_others(kind: str) -> None:
    """Retention stopped at the first record that could not be read, for all, for ever."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            stored = [await fresh(looks.store) for _ in range(3)]
            for one in stored:
                await looks.store.update(one.version, end(one.record))
            key = table_prefix(10) + stored[0].record.id.to_bytes(8, "big")
            value = await looks.value(key)
            await looks.txn.write([put(key, b"\x93\x01\x02")])
            lab = Lab(loop, TYPES, store=looks.store)
            async with lab.executor() as executor:
                await asyncio.sleep(5)
                for one in stored[1:]:
                    with pytest.raises(NotFound):
                        await executor.find(one.record.id)
                with pytest.raises(Corruption):
                    await executor.find(stored[0].record.id)
            await looks.txn.write([put(key, value)])  # restored from a copy
            async with lab.executor() as executor:
                await asyncio.sleep(5)
                with pytest.raises(NotFound):
                    await executor.find(stored[0].record.id)
            assert await looks.rows() == 0

    simloop.run(main)


# ------------------------------------------------------------------------------ the whole thing
async def _life(lab: Lab, case: Case, store: CrashingStore) -> Record | None:
    try:
        async with lab.executor(store) as executor:
            id = await executor.submit(Submission(case.name, case.args, "tester", "the one"))
            record = await executor.wait(id, 60_000)
            assert record.ended, f"stuck: {record}"
            return record
    except BaseException as error:
        if not crashed(error):
            raise
        return None


@pytest.mark.few(16)
@pytest.mark.parametrize("kind", ["model", "real"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_j9_crashes_over_real_transactions(case: Case, kind: str) -> None:
    """Over real transactions, some across partitions, a crash lost or doubled a step."""

    async def main(loop: simloop.SimLoop) -> None:
        rng = random.Random(str(case))
        async with opened(kind, loop) as looks:
            lab = Lab(loop, TYPES, store=looks.store)
            crashes = [(rng.randrange(1, 9), rng.random() < 0.5) for _ in range(3)]
            record: Record | None = None
            for at, after in [*crashes, (0, False)]:
                # a new store object: what the dead process had in memory is gone
                inner = looks.store if looks.txn is None else KvStore(looks.txn)
                lab.running.clear()
                record = await _life(lab, case, CrashingStore(inner, at, after=after))
                if record is not None:
                    break
            assert record is not None
            async with lab.executor() as executor:
                await executor.acknowledge(record.id)
            await check_end(lab, case, record, looks.value)
            assert await looks.rows() == 0

    simloop.run(main)


def test_partition_voters() -> None:
    """The planned partitions of a table did not cover its keys exactly."""
    from kv.base.ids import TableId
    from procedures.master.map.partitions import Place, decode_row, map_key, plan, put_rows

    found = plan(TableId(7), [b"a", b"b"], 10, [Place((NodeId(3),))] * 3)
    assert found[0].start == table_prefix(7)
    assert found[-1].end == table_prefix(8)
    assert [a.end for a in found[:-1]] == [b.start for b in found[1:]]
    rows: dict[bytes, bytes] = {}

    class Txn:
        def put(self, key: bytes, value: bytes) -> None:
            rows[key] = value

        def delete(self, key: bytes) -> None:
            raise AssertionError

        async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
            raise AssertionError

    put_rows(Txn(), found)
    assert [decode_row(map_key(d.start), rows[map_key(d.start)]) for d in found] == found
    key, value = next(iter(rows.items()))
    for broken in (b"", value[:-1], bytes([value[0] ^ 1]) + value[1:]):
        with pytest.raises(KvorumError, match="damaged"):
            decode_row(key, broken)
