"""What ANALYZE keeps of a table's rows while it looks at them."""

from __future__ import annotations

import pytest

from kv.base.limits import SQL_STATISTICS_SAMPLE_BYTES, SQL_STATISTICS_SAMPLE_ROWS
from sqlproxy.session.shared.statistics import _DECODED, _DECODED_BYTES, _Sample


@pytest.mark.parametrize("size", [10, 3_000, 200_000, SQL_STATISTICS_SAMPLE_BYTES + 1])
def test_q4_a_sample_is_bounded_in_rows_and_bytes(size: int) -> None:
    """A table of large rows is held in memory, or decoded without a break."""
    sample, value = _Sample(), b"x" * size
    count = 70_000 if size < 10_000 else 700
    for number in range(count):
        sample.add(number.to_bytes(4), value)
        held = sum(len(one) for _, one in sample.kept[:2]) // 2 * len(sample.kept)
        assert held <= SQL_STATISTICS_SAMPLE_BYTES or len(sample.kept) == 1
    assert (sample.rows, sample.size) == (count, count * (size + 4))
    assert len(sample.kept) <= SQL_STATISTICS_SAMPLE_ROWS
    full = min(count, SQL_STATISTICS_SAMPLE_ROWS, SQL_STATISTICS_SAMPLE_BYTES // (size + 4))
    assert len(sample.kept) >= max(1, full // 2)
    places = [int.from_bytes(key) for key, _ in sample.kept]
    assert places == list(range(0, count, places[1] if len(places) > 1 else count))
    found: list[bytes] = []
    for keys, values in sample.pieces():
        assert len(keys) <= _DECODED
        assert sum(map(len, values[:-1])) < _DECODED_BYTES
        found += keys
    assert found == [key for key, _ in sample.kept]
