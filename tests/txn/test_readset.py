"""What a serializable transaction remembers of its reads (txn/buffered/read_set)."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import TooLarge
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import KEY_BYTES_MAX
from kv.base.methods import OP_READ
from kv.base.ops import Op, put
from txn.buffered import read_set
from txn.buffered.read_set import ReadSet, as_key, cut, split


def test_serializable_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a client would have no bound; and a limit that is not named helps nobody."""
    monkeypatch.setattr(read_set, "TXN_READS_MAX", 10)
    reads = ReadSet()
    for i in range(10):
        reads.add_key(b"tab.%d" % i)
    reads.add_key(b"tab.3")
    with pytest.raises(TooLarge) as refused:
        reads.add_key(b"tab.x")
    assert (refused.value.details["limit"], refused.value.details["actual"]) == (10, 11)
    with pytest.raises(TooLarge):
        reads.add_range(b"tab.a", b"tab.z")
    assert len(reads.ops()[0]) == 10
    monkeypatch.setattr(read_set, "TXN_READS_MAX", 100)
    monkeypatch.setattr(read_set, "TXN_READ_BYTES_MAX", 100)
    with pytest.raises(TooLarge) as refused:
        reads.add_key(b"tab." + bytes(100))
    assert refused.value.details["limit"] == 100


@pytest.mark.parametrize("seed", range(5))
def test_serializable_remembered_ranges_cover_what_was_read(seed: int) -> None:
    """A part of a scan that is forgotten is a phantom that is let in."""
    rng = random.Random(seed)
    for _ in range(200):
        reads, wanted = ReadSet(), list[tuple[bytes, bytes]]()
        for _ in range(rng.randint(1, 8)):
            start, end = sorted(rng.randint(0, 30) for _ in range(2))
            low = b"tab.%02d" % start
            high = rng.choice([b"", b"tab.%02d" % end, b"tab.%02d" % end])
            reads.add_range(low, high)
            wanted.append((low, high))
        keys = [b"tab.%02d" % rng.randint(0, 30) for _ in range(4)]
        for key in keys:
            reads.add_key(key)
        ops, _ = reads.ops()
        ranges = [(op.key, op.value) for op in ops if op.value is not None]
        singles = {op.key for op in ops if op.value is None}
        assert ranges == sorted(ranges)
        assert all(a[1] and a[1] < b[0] for a, b in pairwise(ranges))
        for i in range(32):
            key = b"tab.%02d" % i
            covered = any(a <= key and (not b or key < b) for a, b in ranges)
            assert covered == any(a <= key and (not b or key < b) for a, b in wanted)
            assert (key in singles) == (key in keys and not covered)


def test_serializable_pages_of_one_scan_are_one_range() -> None:
    """A scan of a million rows would be remembered as a thousand ranges."""
    forward, backward = ReadSet(), ReadSet()
    borders = [b"tab.%03d" % i for i in range(100)]
    for low, high in pairwise(borders):
        forward.add_range(low, high)
    for low, high in reversed(list(pairwise(borders))):
        backward.add_range(low, high)
    for reads in (forward, backward):
        assert len(reads) == 1
        assert reads.ops()[0] == [Op(OP_READ, borders[0], borders[-1])]
    forward.add_range(b"tab.01", b"tab.02")
    forward.add_range(b"tab.9", b"tab.9")
    assert len(forward) == 1, "read again, or nothing"


def test_serializable_starts_become_keys_without_leaving_one_out() -> None:
    """A scan of everything begins at no legal key; a page may begin behind the longest one."""
    longest = b"tab." + b"\xff" * KEY_BYTES_MAX
    assert as_key(b"") == bytes(4)
    assert as_key(b"a") == b"a\x00\x00\x00"
    assert as_key(longest + b"\x00") == longest
    assert as_key(b"tab.k") == b"tab.k"
    reads = ReadSet()
    reads.add_range(b"", b"")
    assert reads.ops()[0] == [Op(OP_READ, bytes(4), b"")]


def test_serializable_reads_travel_as_options() -> None:
    """A read that is sent as a write would be refused, one that is not sent is not checked."""
    ops = [put(b"tab.w", b"1"), Op(OP_READ, b"tab.b"), Op(OP_READ, b"tab.c", b"tab.d")]
    ops += [Op(OP_READ, b"tab.a"), Op(OP_READ, b"tab.a", b"")]
    writes, options = split(ops)
    assert writes == ops[:1]
    assert options == {
        "reads": [b"tab.a", b"tab.b"],
        "ranges": [[b"tab.a", b""], [b"tab.c", b"tab.d"]],
    }
    assert split(ops[:1]) == (ops[:1], {})


class Map:
    """Partitions that meet at `borders`."""

    def __init__(self, *borders: bytes) -> None:
        self.borders = borders

    async def locate(self, key: bytes) -> PartitionDescriptor:
        start = max((b for b in self.borders if b <= key), default=b"")
        end = min((b for b in self.borders if b > key), default=b"")
        return PartitionDescriptor(PartitionId(1), start, end, 1, (NodeId(1),))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_serializable_ranges_are_cut_where_partitions_meet(seed: int) -> None:
    """A partition refuses what is not its own; what nobody is asked about is not guarded."""
    rng = random.Random(seed)
    for _ in range(100):
        kv = Map(*sorted({b"tab.%02d" % rng.randint(0, 30) for _ in range(rng.randint(0, 6))}))
        low, high = sorted(rng.sample(range(31), 2))
        end = rng.choice([b"", b"tab.%02d" % high])
        op = Op(OP_READ, b"tab.%02d" % low, end)
        pieces = asyncio.run(cut(kv, op))  # type: ignore[arg-type]
        assert pieces[0].key == op.key
        assert pieces[-1].value == end
        assert all(a.value == b.key for a, b in pairwise(pieces))
        for piece in pieces:
            here = asyncio.run(kv.locate(piece.key))
            assert piece.value is not None
            assert not here.end or (piece.value and piece.value <= here.end)
    assert asyncio.run(cut(Map(), Op(OP_READ, b"tab.k"))) == [Op(OP_READ, b"tab.k")]  # type: ignore[arg-type]
