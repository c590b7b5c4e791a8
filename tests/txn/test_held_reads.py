"""Snapshot transactions that hold some of what they read: what a foreign key needs."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import TooLarge, WriteConflict
from kv.base.ops import put
from kvorum.testing.simulation.loop import SimLoop, run
from tests.txn.test_serializable import both, failed, in_world
from tests.txn.world import FarWorld, RealWorld, World, k
from txn.buffered.read_set import ReadSet
from txn.buffered.write_buffer import WriteBuffer
from txn.client import TxnClient

MAKE = pytest.mark.parametrize("make", [RealWorld, FarWorld], ids=["real", "far oracle"])
PLACES = pytest.mark.parametrize(
    "places", [("a", "b"), ("b", "z")], ids=["one partition", "two partitions"]
)


async def orphan(
    world: World, client: TxnClient, places: tuple[str, str], hold: str, left: int
) -> None:
    """A parent goes because it has no children, a child comes because its parent is there."""
    parent, low, high = k(places[0]), k(places[1] + "0"), k(places[1] + "9")
    await client.write([put(parent, b"parent")])
    goes, comes = [await client.begin() for _ in range(2)]
    assert not (await goes.scan(low, high, limit=10)).items
    assert (await comes.get(parent))[0] == b"parent"
    if hold in ("range", "both"):
        goes.hold_range(low, high)
    if hold in ("key", "both"):
        comes.hold_key(parent)
    goes.delete(parent)
    comes.put(k(places[1] + "5"), b"child")
    outcomes = await both(goes.commit(), comes.commit())
    assert len(failed(outcomes)) == 1 - left
    children = len((await client.scan(low, high, limit=10)).items)
    orphans = children if (await client.get(parent))[0] is None else 0
    assert orphans == left


@pytest.mark.parametrize("seed", range(3))
@MAKE
@PLACES
def test_held_reads_forbid_an_orphan(make: type[World], places: tuple[str, str], seed: int) -> None:
    """A child whose parent is gone breaks its foreign key for ever."""
    in_world(orphan, make, seed, places=places, hold="both", left=0)


@PLACES
def test_without_held_reads_the_orphan_is_there(places: tuple[str, str]) -> None:
    """If it were not, the test above would prove nothing."""
    in_world(orphan, RealWorld, places=places, hold="none", left=1)


def test_what_is_held_keeps_the_writes_in_memory() -> None:
    """A commit that streams from a file checks no reads: it must be refused, not let through."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        client.open_file, client.spill_bytes = TemporaryFile, 1_000
        t = await client.begin()
        t.put(k("a"), bytes(2_000))
        assert t._buffer.spilled
        with pytest.raises(TooLarge, match="limit"):
            t.hold_key(k("b"))
        await t.abort()
        t = await client.begin()
        t.hold_key(k("b"))
        t.put(k("a"), bytes(2_000))
        assert not t._buffer.spilled
        await t.commit()
        await client.close()
        world.close()

    run(main, 0)


def test_kept_in_memory_it_takes_as_much_as_memory_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the smaller limit one transaction could take all memory of a node."""
    monkeypatch.setattr("txn.buffered.write_buffer.TXN_MEMORY_KEYS_MAX", 3)
    buffer = WriteBuffer(open_file=TemporaryFile)
    buffer.keep_in_memory()
    for n in range(3):
        buffer.add(put(k(str(n)), b""))
    with pytest.raises(TooLarge):
        buffer.add(put(k("3"), b""))
    buffer.close()


@pytest.mark.parametrize("back", [True, False])
def test_what_a_savepoint_held_goes_with_it(back: bool) -> None:
    """A row that was locked in a savepoint and let go failed the commit of the rest."""

    async def main(loop: SimLoop) -> None:
        world = RealWorld(loop)
        await world.start()
        client = world.client()
        await client.write([put(k("a"), b"1"), put(k("b"), b"1"), put(k("c"), b"1")])
        t = await client.begin()
        first = t.mark()
        t.hold_key(k("a"))
        t.hold_range(k("b0"), k("b5"))
        second = t.mark()
        t.hold_range(k("b5"), k("b9"))
        t.hold_key(k("c"))
        if back:
            t.undo_to(second)
            assert t._holds is not None
            assert len(t._holds) == 2
            t.undo_to(first)
        await client.write([put(k("a"), b"2"), put(k("b6"), b"2"), put(k("c"), b"2")])
        t.put(k("z"), b"1")
        outcome = (await asyncio.gather(t.commit(), return_exceptions=True))[0]
        assert isinstance(outcome, WriteConflict) != back
        await client.close()
        world.close()

    run(main, 0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=30), st.data())
def test_a_read_set_goes_back_to_its_mark(
    reads: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Pages that made a range longer behind the mark were kept, or others forgotten."""

    def add(to: ReadSet, one: tuple[int, int]) -> None:
        low = b"tab.%02d" % one[0]
        if one[1]:
            to.add_range(low, b"tab.%02d" % (one[0] + one[1]))
        else:
            to.add_key(low)

    at = data.draw(st.integers(0, len(reads)))
    held, expected = ReadSet(), ReadSet()
    for one in reads[:at]:
        add(held, one)
        add(expected, one)
    mark = held.mark()
    for one in reads[at:]:
        add(held, one)
    held.undo_to(mark)
    assert held.ops() == expected.ops()
    assert (len(held), held._bytes) == (len(expected), expected._bytes)
