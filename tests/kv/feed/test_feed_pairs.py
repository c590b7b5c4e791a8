"""PAIRS, SCAN_VALUES, SCAN_SEALED and PARTS at one partition: what readers of whole tables ask."""

from __future__ import annotations

import random
import struct
from itertools import accumulate, pairwise
from typing import Any

import pytest

from kv.base import methods
from kv.base.errors import InvalidArgument, KeyLocked, SnapshotTooOld
from kv.base.keys import MAX64
from kv.base.limits import FEED_ROWS_MAX, RANGE_PARTS_MAX
from kv.base.methods import OP_DELETE, OP_PUT
from kv.feed.version_pairs import ROWS, VERSIONS
from tests.kv.partition.node import Node

LOW, HIGH = b"tab.", b"tab/"
Pair = tuple[bytes, bytes | None, int, bytes | None]


def pairs(
    node: Node,
    above: int,
    upto: int,
    *,
    start: bytes = LOW,
    end: bytes = HIGH,
    limit: int = FEED_ROWS_MAX,
    bytes_max: int = 1 << 20,
) -> list[Any]:
    """All pages, as a client asks for them: from a cursor's key on."""
    found: list[Any] = []
    cursor: bytes | None = None
    for _ in range(10_000):
        low = start if cursor is None else cursor[:-8]
        args = (low, end, upto, limit, above, ROWS, bytes_max, cursor)
        rows, cursor = node.call(methods.PAIRS, low, *args)
        found += map(tuple, rows)
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


def counted(node: Node, above: int, upto: int, limit: int) -> list[int]:
    """The versions of all pages of them, rising."""
    found: list[int] = []
    cursor: bytes | None = None
    for _ in range(10_000):
        args = (LOW, HIGH, upto, limit, above, VERSIONS, 1 << 20, cursor)
        (newest, older, keys), cursor = node.call(methods.PAIRS, LOW, *args)
        assert (len(newest) + len(older)) // 8 <= 2 * limit
        assert all(LOW <= key < HIGH for key in keys)
        found += struct.unpack(f">{len(newest) // 8}Q", newest)
        found += [MAX64 - one for one in struct.unpack(f">{len(older) // 8}Q", older)]
        if cursor is None:
            return sorted(found)
    raise AssertionError("the pages have no end")


class Model:
    """What was written: versions by key, oldest first."""

    def __init__(self, node: Node, seed: int) -> None:
        self.node, self.random = node, random.Random(seed)
        self.versions: dict[bytes, list[tuple[int, bytes | None]]] = {}

    def write(self) -> int:
        """A transaction of some keys."""
        chosen = self.random
        keys = sorted({b"tab.%02d\x00" % chosen.randrange(30) for _ in range(chosen.randint(1, 6))})
        ops, told = [], []
        for key in keys:
            value = None if chosen.random() < 0.25 else b"%d" % chosen.randrange(1000)
            value = value and value * chosen.choice([1, 1, 1, 400])  # old ones that are not shipped
            kind = OP_DELETE if value is None else OP_PUT
            ops.append([kind, key, value, None, 0])
            told.append((key, value))
        (version,) = self.node.call(methods.WRITE, keys[0], ops, 0, methods.BLIND)
        for key, value in told:
            known = self.versions.setdefault(key, [])
            if value is not None or (known and known[-1][1] is not None):
                known.append((version, value))  # a deletion of nothing writes nothing
        return int(version)

    def expected(self, above: int, upto: int) -> set[Pair]:
        found: set[Pair] = set()
        for key, versions in self.versions.items():
            before: bytes | None = None
            for version, value in versions:
                if above < version <= upto:
                    found.add((key, value, version, before))
                before = value
        return found


@pytest.mark.few(4)
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_f14_pairs_tell_each_version_with_what_it_replaced(seed: int, watched: bool) -> None:
    """A version, or what it replaced, is missing, told twice or another one: by a walk, from the
    recent entries, over pages of any size.
    """
    node = Node()
    model = Model(node, seed)
    moments = [0, model.write()]
    if watched:
        pairs(node, moments[-1], moments[-1])
    moments += [model.write() for _ in range(60)]
    if seed % 2:
        assert node.collect(LOW, moments[20]) is None
    chosen = random.Random(seed)
    moments = moments[21:] if seed % 2 else moments[1:] if watched else moments
    for _ in range(12):
        above, upto = sorted(chosen.sample(moments, 2))
        limit, size = chosen.choice([1, 3, 17, 1000]), chosen.choice([1, 900, 1 << 20])
        found = pairs(node, above, upto, limit=limit, bytes_max=size)
        assert len(found) == len(set(found)), "told twice"
        assert set(found) == model.expected(above, upto)
        assert counted(node, above, upto, limit) == sorted(version for _, _, version, _ in found)
        half = pairs(node, above, upto, end=b"tab.15") + pairs(node, above, upto, start=b"tab.15")
        assert set(half) == set(found)


@pytest.mark.slow
@pytest.mark.parametrize("watched", [False, True])
def test_f14_pairs_of_one_key_with_many_versions(watched: bool) -> None:
    """A key with more versions than a page has is told for ever, in part, or in one huge answer."""
    node = Node()
    if watched:
        before = node.put(b"tab.j", b"v")
        pairs(node, before, before)
    versions = [node.put(b"tab.k", b"%d" % i) for i in range(1500)]
    found = pairs(node, versions[3], versions[-2], limit=100)
    args = (LOW, HIGH, versions[-1], 100, versions[0], ROWS, 1 << 20, None)
    assert counted(node, versions[3], versions[-2], 500) == versions[4:-1]
    assert len(node.call(methods.PAIRS, LOW, *args)[0]) == 100
    assert [row[2] for row in found] == versions[-2:3:-1]
    assert found[-1][3] == b"3"


def test_f14_pairs_below_the_safepoint_are_refused() -> None:
    """Changes are told that miss what was collected."""
    node = Node()
    version = node.put(b"tab.k", b"v")
    node.machine().raise_safepoint(version + 1, lambda error: None)
    node.put(b"tab.z", b"v")
    with pytest.raises(SnapshotTooOld):
        pairs(node, version, version + 2)
    with pytest.raises(InvalidArgument, match="form"):
        node.call(methods.PAIRS, LOW, LOW, HIGH, version, 1, 0, 3, 1, None)


def test_o14_values_alone_are_those_of_a_scan() -> None:
    """Who reads values alone sees others than a scan at the same version: an expired, a deleted or
    a newer one.
    """
    node = Node()
    model = Model(node, 7)
    moments = [model.write() for _ in range(30)]
    for at in moments[::5]:
        for limit in (1, 4, 1000):
            resume: bytes | None = LOW
            values: list[bytes] = []
            while resume is not None:
                args = (resume, HIGH, at, limit, False, None)
                some, resume = node.call(methods.SCAN_VALUES, resume, *args)
                values += some
            page, rest = node.call(methods.SCAN, LOW, LOW, HIGH, at, 1000, False, None)
            assert rest is None
            assert values == [value for _, value, _ in page]


def test_o14_sealed_pages_are_records_as_they_lie() -> None:
    """Who checks records himself misses one, gets one twice, or one that is not what is stored."""
    node = Node()
    model = Model(node, 7)
    at = [model.write() for _ in range(30)][-1]
    whole = [bytes(part) for row in node.engine.scan("cur", LOW, HIGH) for part in row]
    assert whole
    for limit in (1, 4, 1000):
        resume: bytes | None = LOW
        found: list[bytes] = []
        while resume is not None:
            args = (resume, HIGH, at, limit, False, None)
            (lengths, rows), resume = node.call(methods.SCAN_SEALED, resume, *args)
            edges = [0, *accumulate(struct.unpack(f"<{len(lengths) // 4}I", lengths))]
            assert len(edges) <= 2 * limit + 1
            found += [rows[a:b] for a, b in pairwise(edges)]
        assert found == whole
    for wrong in ((LOW, HIGH, 0, 4, False, None), (LOW, HIGH, at, 4, True, None)):
        with pytest.raises(InvalidArgument):
            node.call(methods.SCAN_SEALED, LOW, *wrong)


def test_o14_an_intent_stands_in_the_way_of_sealed_pages() -> None:
    """A reader that looks at records alone misses what a transaction committed below it."""
    node = Node()
    node.put(b"tab.a", b"v")
    start = node.oracle(1)
    node.call(methods.PREWRITE_ROWS, b"tab.b", start, b"tab.z", 1_000, [b"tab.b"], [b"w"])
    at = node.oracle(1)
    for low, met in ((b"tab.a\x00", True), (LOW, False)):  # a page ends with its last record
        args = (low, HIGH, at, 10, False)
        rid = node.send(methods.SCAN_SEALED, low, *args, None)
        if met:
            assert isinstance(node.error(rid), KeyLocked)
        else:
            assert node.reply(rid)[1] == b"tab.a\x00"
        assert node.call(methods.SCAN_SEALED, low, *args, [start])
    node.call(methods.SCAN_SEALED, b"tab.a\x00", b"tab.a\x00", HIGH, start - 1, 10, False, None)


def test_o14_parts_are_cuts_of_the_range() -> None:
    """A reader is told cuts outside of its range, out of order, or more than it asked for."""
    node = Node()
    for i in range(400):
        node.put(b"tab.%04d" % i, b"v" * 200)
    cuts, size = node.call(methods.PARTS, b"tab.0100", b"tab.0100", b"tab.0300", 4)
    assert cuts == sorted(set(cuts))
    assert len(cuts) <= 3
    assert all(b"tab.0100" < cut < b"tab.0300" for cut in cuts)
    whole = node.call(methods.PARTS, LOW, LOW, HIGH, 1)
    assert whole[0] == []
    assert 0 < size < whole[1]
    with pytest.raises(InvalidArgument, match="parts"):
        node.call(methods.PARTS, LOW, LOW, HIGH, RANGE_PARTS_MAX + 1)
