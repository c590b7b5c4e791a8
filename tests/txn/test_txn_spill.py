"""Transactions that do not fit in memory: spilled, read over, and streamed at the commit."""

from __future__ import annotations

import asyncio
import io
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.adapters import temporary_file
from kv.base.errors import ConditionFailed, KvorumError, TooLarge, TxnAborted, WriteConflict
from kv.base.limits import LARGE_IN_FLIGHT_MAX, TXN_KEYS_MAX
from kv.base.methods import COMMIT, PREWRITE, PREWRITE_ROWS, RESOLVE
from kv.base.ops import Op, check, delete, put
from kv.base.strengths import KEY_SHARE
from kv.mvcc.packed_rows import PackedKeys
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.wire import Gate, Wire
from tests.txn.world import RealWorld, failure, k
from txn.buffered.write_buffer import WriteBuffer
from txn.bulk.spilled_commit import portions
from txn.results import ScanPage

SMALL = 4000  # a run of a dozen rows


def spilling(**more: int) -> WriteBuffer:
    return WriteBuffer(open_file=io.BytesIO, spill_bytes=SMALL, **more)


writes = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "check", "absent"]),
        st.binary(min_size=1, max_size=2),
        st.binary(max_size=300),
    ),
    max_size=120,
)


def perform(buffer: WriteBuffer, steps: list[tuple[str, bytes, bytes]]) -> list[str]:
    """What each step was answered."""
    told = []
    for kind, key, value in steps:
        op = {
            "put": put(key, value),
            "delete": delete(key),
            "check": check(key, 7),
            "absent": put(key, value, 0),
        }[kind]
        try:
            buffer.add(op)
        except ConditionFailed:
            told.append("refused")
        else:
            told.append("")
    return told


@settings(max_examples=40, deadline=None)
@given(writes, writes, st.booleans())
def test_lent_buffer_has_what_was_there(
    before: list[tuple[str, bytes, bytes]], after: list[tuple[str, bytes, bytes]], spills: bool
) -> None:
    """A subquery of a statement would see the rows that the statement has written by then."""
    buffer = spilling() if spills else WriteBuffer()
    perform(buffer, before)
    there = list(buffer.written_between(b"", b""))
    lent = buffer.lend()
    perform(buffer, after)
    assert list(lent.written_between(b"", b"")) == there
    assert [lent.written(op.key) for op in there] == there
    others = {key for _, key, _ in after} - {op.key for op in there}
    assert all(lent.written(key) is None for key in others)


@settings(max_examples=60, deadline=None)
@given(writes, st.binary(max_size=2), st.binary(max_size=2), st.integers(1, 9), st.booleans())
def test_spilled_buffer_is_one_in_memory(
    steps: list[tuple[str, bytes, bytes]], low: bytes, high: bytes, limit: int, reverse: bool
) -> None:
    """A write would be lost, or an old one come back, once the buffer is larger than memory."""
    memory, spilled = WriteBuffer(), spilling()
    assert perform(memory, steps) == perform(spilled, steps)
    assert (len(memory), memory.size_bytes) == (len(spilled), spilled.size_bytes)
    for _, key, _ in steps:
        assert memory.written(key) == spilled.written(key)
    assert sorted(memory.ops(), key=lambda op: op.key) == list(spilled.stream())
    low, high = min(low, high), max(low, high)
    for direction in (False, True):
        mine = list(memory.written_between(low, high, reverse=direction))
        assert mine == list(spilled.written_between(low, high, reverse=direction))
    stored = [(bytes([i]), b"stored", 1) for i in range(0, 250, 25)]
    page = ScanPage(stored[::-1] if reverse else stored, None, 9)
    seen = [b.overlay(page, b"", b"", reverse=reverse, limit=limit) for b in (memory, spilled)]
    assert seen[0] == seen[1]
    spilled.close()


def test_spill_bounds_the_memory_and_reads_little() -> None:
    """A million keys would be a million objects; and a key that was never written would cost a read
    of every run.
    """

    class Counted(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1) -> bytes:
            Counted.reads += 1
            return super().read(size)

    buffer = WriteBuffer(open_file=Counted, spill_bytes=100_000)
    for i in range(20_000):
        buffer.add(put(b"key%07d" % (i * 7919 % 20_000), b"v" * 50))
        assert buffer._held <= 100_000
    assert buffer.spilled
    assert len(buffer) == 20_000
    assert Counted.reads < 1_000, "of 20,000 new keys few look like written ones"
    Counted.reads = 0
    assert buffer.written(b"key0000123") is not None
    assert Counted.reads <= 3
    Counted.reads = 0
    page = ScanPage([], None, 9)
    assert len(buffer.overlay(page, b"", b"", reverse=False, limit=100).items) == 100
    assert Counted.reads < 200, "a page of own writes does not read all of them"
    assert [op.key for op in buffer.stream()] == [b"key%07d" % i for i in range(20_000)]


def test_spill_limits_name_actual_limit_and_knob() -> None:
    """Who meets one must know what to change."""
    buffer = spilling(keys_max=100)
    for i in range(100):
        buffer.add(put(b"%d" % i, b"v" * 100))
    assert buffer.spilled
    buffer.add(put(b"7", b"again"))
    with pytest.raises(TooLarge) as caught:
        buffer.add(put(b"new", b""))
    assert (caught.value.details["actual"], caught.value.details["limit"]) == (101, 100)
    assert "TXN_KEYS_MAX" in str(caught.value)
    assert len(buffer) == 100
    assert TXN_KEYS_MAX >= 1_000_000


def test_temporary_file_has_no_name() -> None:
    """A killed process would leave its transactions' data on the disk."""
    file: IO[bytes] = temporary_file()
    with file:
        file.write(b"x")
        assert not isinstance(file.name, str)


def test_portions_are_legal_messages() -> None:
    """A message that is too large is refused, and with it the transaction."""
    ops = [put(b"%05d" % i, b"v" * (3_000_000 if i % 100 == 0 else 10)) for i in range(5000)]
    ops[7] = put(ops[7].key, b"", 5)
    ops[8] = put(ops[8].key, b"new", 0)
    cut = list(portions(iter(ops), ops[0].key))
    assert sum(map(len, cut)) == 4999
    assert [op.key for p in cut for op in p.others] == [ops[7].key]
    assert [(k, v) for p in cut for k, v in zip(p.new_keys, p.new_values, strict=True)] == [
        (ops[8].key, b"new")
    ]
    sizes = [sum(map(len, p.keys)) + sum(map(len, filter(None, p.values))) for p in cut]
    assert max(sizes) <= 4 << 20
    assert max(len(p.keys) for p in cut) <= 2000


# -- the commit


def key(i: int) -> bytes:
    """Over all five partitions."""
    return k("bglpz"[i % 5] + f"{i:05}")


ROWS = 600


async def filled(
    world: RealWorld, wire: Wire | None = None, *, locked: bool = False
) -> tuple[object, ...]:
    """`locked`: at READ COMMITTED, with locks of some of its rows, and of others that it does not
    write.
    """
    client = world.client(wire, spill_bytes=SMALL)
    t = await client.begin(renews=locked)
    if locked:
        await t.lock([*map(key, range(0, ROWS, 7)), k("b-mine"), k("z-mine")])
        await t.lock([key(1), k("k-shared")], strength=KEY_SHARE)
    for i in range(ROWS):
        t.put(key(i), b"%d" % i)
    return client, t


async def rows(world: RealWorld) -> list[bytes | None]:
    client = world.client()
    found, _ = await client.multi_get([key(i) for i in range(ROWS)])
    await client.close()
    return [None if row is None else row[0] for row in found]


def play(scene: object, seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        await scene(loop, world)  # type: ignore[operator]
        assert world.locked() == []
        world.close()

    run(main, seed)


def test_spilled_transaction_reads_its_own_and_commits_whole() -> None:
    """All or nothing must not depend on the size."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv())
        client = world.client(wire, spill_bytes=SMALL)
        old = await client.write([put(key(5), b"old"), put(k("k-old"), b"old")])
        while world.locked():  # noqa: ASYNC110 - cleaned behind the answer; nobody tells
            await asyncio.sleep(0.001)
        t = await client.begin()
        for i in range(ROWS):
            t.put(key(i), b"%d" % i)
        t.delete(key(5))
        t.put(k("c-ttl"), b"soon", ttl_ms=50_000)
        t.check(k("k-old"), old)
        t.put(k("d-new"), b"1", cond=0)
        assert await t.get(key(3)) == (b"3", 0)
        assert await t.get(key(5)) == (None, 0)
        page = await t.scan(k("b"), k("c"), limit=50)
        assert [v for _, v, _ in page.items] == [b"%d" % i for i in range(0, 250, 5) if i != 5] + (
            [b"250"]
        )
        assert not world.locked(), "nothing is sent before the commit"
        version = await t.commit()
        assert version == await t.commit()
        await client.close()
        assert {PREWRITE_ROWS, PREWRITE, COMMIT, RESOLVE} <= set(wire.methods())
        found = await rows(world)
        assert found == [None if i == 5 else b"%d" % i for i in range(ROWS)]
        reader = world.client()
        assert (await reader.get(k("c-ttl")))[0] == b"soon"
        assert await reader.get(k("d-new")) == (b"1", version)
        assert await reader.get(key(77)) == (b"77", version)
        assert (await reader.status(t.id)).commit_ts == version

    play(scene)


@pytest.mark.slow
def test_spilled_transaction_of_many_messages_is_whole() -> None:
    """A message that is forgotten between two rounds of them is lost without a word."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv(), latency_ms=0.5)
        client = world.client(wire, spill_bytes=300_000)
        t = await client.begin()
        count = 2000 * (3 * LARGE_IN_FLIGHT_MAX + 1)
        for i in range(count):
            t.put(key(i), b"")
        version = await t.commit()
        await client.close()
        sent = [s for s in wire.log if s.method == PREWRITE_ROWS]
        assert sum(len(PackedKeys(*s.args[3])) for s in sent) == count - 1, "and the anchor"
        reader = world.client()
        for at in range(0, count, 997):
            assert await reader.get(key(at)) == (b"", version)

    play(scene)


@pytest.mark.parametrize("kind", ["conflict", "condition"])
def test_spilled_transaction_is_refused_whole(kind: str) -> None:
    """A lost update in one of a million rows would be as bad as in one of two."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        await world.client().write([put(k("k-cond"), b"")])
        client, t = await filled(world)  # type: ignore[misc]
        if kind == "conflict":
            await world.client().write([put(key(400), b"newer")])
        else:
            t.put(k("k-cond"), b"", cond=0)
        error = await failure(t.commit())
        assert isinstance(error, WriteConflict if kind == "conflict" else ConditionFailed)
        assert (await client.status(t.id)).status == "aborted"
        assert isinstance(await failure(t.commit()), TxnAborted)
        await client.close()
        found = await rows(world)
        assert found.count(None) >= ROWS - 1
        assert set(found) <= {None, b"newer"}

    play(scene)


@pytest.mark.parametrize("locked", [False, True], ids=["", "locked"])
@pytest.mark.parametrize("method", [PREWRITE, PREWRITE_ROWS, COMMIT])
def test_spilled_transaction_whose_caller_goes_away(method: int, locked: bool) -> None:
    """Its intents would block everybody, or half of it be there."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv())
        client, t = await filled(world, wire, locked=locked)  # type: ignore[misc]
        gate = Gate(wire, method)
        commit = loop.create_task(t.commit())
        await gate.reached.wait()
        commit.cancel()
        await asyncio.wait([commit])
        gate.opened.set()
        assert (await failure(t.commit())).disposition == "unknown_outcome"
        await client.close()
        state = (await world.client().status(t.id)).status
        assert state == ("committed" if method == COMMIT else "aborted")
        found = await rows(world)
        assert found.count(None) == (0 if method == COMMIT else ROWS)

    play(scene)


@pytest.mark.parametrize("locked", [False, True], ids=["", "locked"])
@pytest.mark.parametrize("seed", range(6))
def test_spilled_transaction_and_a_crash(seed: int, locked: bool) -> None:
    """The node loses power in the middle of it: all or none, and the caller is not misled."""

    async def scene(loop: SimLoop, world: RealWorld) -> None:
        wire = Wire(loop, world.kv())
        client, t = await filled(world, wire, locked=locked)  # type: ignore[misc]
        commit = loop.create_task(t.commit())
        await asyncio.wait([commit], timeout=loop.rng.random() * 0.2)
        await world.crash()
        wire.inner = world.kv()
        outcome: int | KvorumError
        try:
            outcome = await commit
        except KvorumError as error:
            outcome = error
        await client.close()
        found = await rows(world)
        committed = found == [b"%d" % i for i in range(ROWS)]
        assert committed or found == [None] * ROWS
        if isinstance(outcome, int):
            assert committed
        elif outcome.disposition != "unknown_outcome":
            assert not committed

    play(scene, seed)


def test_op_travels_through_the_file_as_it_is() -> None:
    """A condition or a time to live would be lost on the way."""
    buffer = spilling()
    given_ = [Op(1, b"%03d" % i, b"v" * 90, i % 3 or None, i % 2 * 1000) for i in range(60)]
    for op in given_:
        buffer.add(op)
    assert buffer.spilled
    assert list(buffer.stream()) == given_
