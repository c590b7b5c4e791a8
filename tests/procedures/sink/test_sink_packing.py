"""Rows as columns, on their way into chunks: as if they were lists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base import limits
from kv.base.errors import TooLarge
from procedures.sink.format.sink_records import pieces_of
from pyspark_kvorum import packing
from pyspark_kvorum.packing import Rows

KEYS = st.binary(max_size=2) | st.sampled_from(
    [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]
)
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), min_size=1, max_size=12)
Pairs = Sequence[tuple[bytes, bytes | None]]


def rows_of(pairs: Pairs) -> Rows:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return Rows(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def pairs_of(rows: Rows) -> list[tuple[bytes, bytes | None]]:
    return list(zip(*rows.lists(), strict=True))


@given(ROWS, st.data())
def test_o14_rows_are_sorted_and_cut_as_lists_are(pairs: Pairs, data: st.DataObject) -> None:
    """Arrow's order of bytes, and which of two rows is the last, must be ours."""
    cut = data.draw(st.integers(0, len(pairs)))
    parts = [rows_of(some) for some in (pairs[:cut], pairs[cut:]) if some]
    rows = packing.merged(parts)
    assert pairs_of(rows) == list(pairs)
    assert rows.size == sum(len(key) + len(value or b"") for key, value in pairs)
    runs = packing.runs(rows)
    assert [pair for low, high in runs for pair in pairs[low:high]] == list(pairs)
    for low, high in runs:
        assert all(a[0] < b[0] for a, b in zip(pairs[low:], pairs[low + 1 : high], strict=False))
    for (_, high), (low, _) in pairwise(runs):
        assert high == low
        assert pairs[high - 1][0] >= pairs[low][0]
    ordered = packing.in_order(rows)
    assert pairs_of(ordered) == sorted(pairs, key=lambda pair: pair[0])
    keys = [key for key, _ in pairs]
    twin = packing.twin(ordered)
    assert (twin is None) is (len(set(keys)) == len(keys))
    assert twin is None or keys.count(twin) > 1
    last = packing.last_of_twins(ordered)
    assert pairs_of(last) == sorted(dict(pairs).items())
    assert packing.pieces(last) == pieces_of(*last.lists())
    some = last.part(last.count // 2, last.count)
    assert packing.pieces(some) == pieces_of(*some.lists())
    assert (some.first, some.last) == (some.lists()[0][0], some.lists()[0][-1])


def test_o14_pieces_are_legal_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece over the limit is refused by the node, and its task with it."""
    many = rows_of([(b"%06d" % n, b"v" * 50) for n in range(2 * limits.PREWRITE_KEYS_MAX + 1)])
    assert packing.pieces(many) == pieces_of(*many.lists())
    assert len(packing.pieces(many)) == 3
    monkeypatch.setattr(limits, "PREWRITE_BYTES_MAX", 10_000)
    cut = packing.pieces(many)
    assert cut == pieces_of(*many.lists())
    assert max(len(keys) + len(values) for _, _, _, keys, values in cut) <= 10_000
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 40)
    with pytest.raises(TooLarge, match="a value of 50 bytes"):
        packing.pieces(many)
    monkeypatch.setattr(limits, "KEY_BYTES_MAX", 5)
    with pytest.raises(TooLarge, match="a key of 6 bytes"):
        packing.pieces(many)
