"""Snapshot transactions that hold some of what they read: what a foreign key needs."""

from __future__ import annotations

from tempfile import TemporaryFile

import pytest

from kv.base.errors import TooLarge
from kv.base.ops import put
from tests.support.simloop import SimLoop, run
from tests.txn.test_serializable import both, failed, in_world
from tests.txn.world import FarWorld, RealWorld, World, k
from txn.buffer import WriteBuffer
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
    monkeypatch.setattr("txn.buffer.TXN_MEMORY_KEYS_MAX", 3)
    buffer = WriteBuffer(open_file=TemporaryFile)
    buffer.keep_in_memory()
    for n in range(3):
        buffer.add(put(k(str(n)), b""))
    with pytest.raises(TooLarge):
        buffer.add(put(k("3"), b""))
    buffer.close()
