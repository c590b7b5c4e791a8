"""What a load of many rows is made of: slices, and the keys that came before."""

from __future__ import annotations

import random
from itertools import pairwise

from kv.base.limits import SQL_LOAD_SLICE_ROWS
from sqlproxy.pg.answers import Columns, Part
from sqlproxy.session.running.loading import Twins, _slices


def test_p9_a_key_that_came_before_is_found() -> None:
    """A COPY would write two rows of one key; or refuse one whose keys are all new."""
    chance = random.Random(3)
    for _ in range(20):
        twins, seen = Twins(), set[bytes]()
        for _ in range(chance.randrange(1, 60)):
            keys = list({b"%d" % chance.randrange(10**9) for _ in range(chance.randrange(1, 200))})
            at = twins.met(keys)
            met = [i for i, key in enumerate(keys) if key in seen]
            assert (at is None) == (not met)
            if at is not None:
                assert at in met
                continue
            seen.update(keys)
        if seen:
            again = chance.choice(sorted(seen))
            assert twins.met([b"new", again, b"newer"]) == 1
        assert twins.met([b"a", b"b", b"a"]) == 2


def test_p10_keys_that_came_before_are_merged_seldom() -> None:
    """A COPY of a million rows would sort all their hashes once for some thousand."""
    twins, merged = Twins(), 0
    for at in range(256):
        before = len(twins._runs)
        assert twins.met([b"%d-%d" % (at, i) for i in range(50)]) is None
        merged += len(twins._runs[-1]) if len(twins._runs) <= before else 0
        sizes = list(map(len, twins._runs))
        assert all(large > 2 * small for large, small in pairwise(sizes))
    assert sum(sizes) == 256 * 50
    assert merged < 256 * 50 * 8, "each hash a few times"


def test_p10_rows_are_encoded_in_slices() -> None:
    """A batch of narrow rows would be encoded in one stretch of the loop."""
    rows = [(i, str(i)) for i in range(2 * SQL_LOAD_SLICE_ROWS + 7)]
    parts: list[Part] = [Columns(list(zip(*rows, strict=True)), len(rows)), rows, rows[:1], []]
    found = list(_slices(parts))
    assert max(count for _, count in found) == SQL_LOAD_SLICE_ROWS
    assert all(len(column) == count for columns, count in found for column in columns)
    assert [row for columns, _ in found for row in zip(*columns, strict=True)] == [
        *rows,
        *rows,
        *rows[:1],
    ]
