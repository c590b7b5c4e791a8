"""The pure parts of the feed, against plain dictionaries: whatever order versions come in, and
however little may be held, whole transactions go out in commit order.
"""

from __future__ import annotations

import io
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.feed.changes import Row, whole_versions
from kv.feed.collect import Collector
from kv.feed.merge import Leg, Merge
from kv.feed.spill import Spill

KEYS = [bytes([c]) for c in b"abcdefghijkl"]
Transactions = dict[int, set[bytes]]

histories = st.dictionaries(
    st.integers(1, 60), st.sets(st.sampled_from(KEYS), min_size=1), max_size=25
)


def rows_of(history: Transactions) -> list[Row]:
    return [(key, b"v", version, 0) for version, keys in history.items() for key in keys]


def looked(rows: list[Row], above: int, upto: int, pages: list[int], rows_max: int) -> Collector:
    """One look at the rows of a range that come in pages, as a reader does it."""
    found = Collector(upto, rows_max=rows_max, bytes_max=1 << 20)
    at, sizes = 0, iter(pages * len(rows) or [1])
    while at < len(rows) and found.upto > above:
        page = rows[at : at + (size := next(sizes))]
        found.add(row for row in page if above < row[2] <= found.upto)
        at += size
    return found


@given(
    histories,
    st.integers(0, 1 << 16),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 8),
)
def test_f14_looks_lose_nothing_however_little_fits(
    history: Transactions, seed: int, pages: list[int], rows_max: int
) -> None:
    """A look that drops what does not fit must begin the next one exactly there."""
    rows = rows_of(history)
    random.Random(seed).shuffle(rows)
    told: list[tuple[int, set[bytes]]] = []
    above, top = 0, 61
    while above < top:
        found = looked(rows, above, top, pages, rows_max)
        of: dict[int, set[bytes]] = defaultdict(set)
        for key, _, version, _ in found.rows():
            of[version].add(key)
        told += of.items()
        assert len(found.rows()) <= max(rows_max, 1)
        above = found.upto
        if found.large:
            assert found.large == above + 1
            assert len(history[found.large]) > rows_max // 2
            told.append((found.large, history[found.large]))
            above = found.large
    assert told == sorted(history.items())


@pytest.mark.slow
@given(
    histories,
    st.integers(0, 1 << 16),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(0, 61),
)
def test_f14_what_was_spilled_comes_back_in_order(
    history: Transactions, seed: int, run: int, rows_max: int, upto: int
) -> None:
    """A watcher that is far behind reads its changes from a file: the same rows, by version, what
    does not fit told apart, and nothing above what was complete.
    """
    rows = rows_of(history)
    random.Random(seed).shuffle(rows)
    with closing(Spill(io.BytesIO())) as spill:
        for at in range(0, len(rows), run):
            spill.add(sorted(rows[at : at + run], key=lambda row: (row[2], row[0])))
        spill.begin(upto)
        told: list[tuple[int, set[bytes]]] = []
        above = 0
        while not spill.done:
            found, frontier, large = spill.take(rows_max=rows_max, bytes_max=1 << 20)
            assert len(found) <= max(rows_max, 1)
            assert all(above < row[2] <= frontier for row in found)
            for version, some in groupby(found, key=lambda row: row[2]):
                told.append((version, {row[0] for row in some}))
            above = frontier
            if large:
                assert (large, found) == (above + 1, [])
                assert len(history[large]) > rows_max
                told.append((large, history[large]))
                above = large
        assert above == upto or not history
    assert told == sorted((v, keys) for v, keys in history.items() if v <= upto)


@pytest.mark.slow
@given(histories, st.integers(1, 8))
def test_f14_an_answer_is_cut_between_transactions(history: Transactions, limit: int) -> None:
    """Half a transaction below a frontier would be told as a whole one."""
    rows, frontier, large = whole_versions(rows_of(history), 61, limit=limit, bytes_max=1 << 20)
    if large:
        assert (rows, frontier, large) == ([], min(history) - 1, min(history))
        assert len(history[large]) > limit
        return
    assert len(rows) <= limit
    assert sorted(rows) == sorted(rows_of({v: k for v, k in history.items() if v <= frontier}))
    assert frontier == 61 or min((v for v in history if v > frontier), default=0)


def legs_of(borders: list[bytes]) -> list[Leg]:
    bounds = [b"", *sorted(set(borders)), b""]
    return [Leg(low, high, 0) for low, high in pairwise(bounds)]


def within(leg: Leg, key: bytes) -> bool:
    return leg.start <= key and (not leg.end or key < leg.end)


def drive(
    merge: Merge, history: Transactions, chance: random.Random, rows_max: int
) -> Iterator[tuple[int, set[bytes]]]:
    """Look at the legs in any order and up to any frontier, until all is told."""
    top = 61
    while merge.position < top:
        for leg in merge.wanting():
            if chance.random() < 0.5:
                continue
            if chance.random() < 0.1:
                border = chance.choice(KEYS)
                if within(leg, border) and border > leg.start:
                    merge.split(leg, [border])
                    continue
            resolved = min(top, leg.frontier + chance.randrange(20))
            rows = [row for row in rows_of(history) if within(leg, row[0])]
            leg.looked(looked(rows, leg.frontier, resolved, [3], rows_max), resolved, 0)
        for version, rows in merge.take():
            assert version <= merge.position
            yield version, {row[0] for row in rows}
        if version := merge.large():
            yield version, history[version]
            merge.delivered(version)


@pytest.mark.slow
@given(
    histories,
    st.lists(st.sampled_from(KEYS), max_size=3),
    st.integers(1, 6),
    st.integers(0, 1 << 16),
)
def test_f14_ranges_become_whole_transactions(
    history: Transactions, borders: list[bytes], rows_max: int, seed: int
) -> None:
    """A transaction that is told before all its partitions reached it is split; one that is told
    after a later one breaks the order. Ranges may split meanwhile.
    """
    merge = Merge(legs_of(borders))
    told = list(drive(merge, history, random.Random(seed), rows_max))
    assert told == sorted(history.items())


def test_f13_a_leg_that_is_ahead_is_not_asked_again() -> None:
    """What one watcher holds is bounded: a leg that waits for a slow one holds one look."""
    fast, slow = Leg(b"", b"m", 0), Leg(b"m", b"", 0)
    merge = Merge([fast, slow])
    fast.looked(looked([(b"a", b"", 5, 0)], 0, 9, [1], 10), 9, 0)
    assert merge.take() == []
    assert merge.wanting() == [slow]
    slow.looked(Collector(5, rows_max=10, bytes_max=10), 5, 0)
    assert [version for version, _ in merge.take()] == [5]
    assert merge.wanting() == [fast, slow]
    assert merge.position == 5
