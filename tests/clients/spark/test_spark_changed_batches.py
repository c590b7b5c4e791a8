"""What tasks of a stream of changes make of sealed slices: the same as of changes row by row."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kv.base import methods
from kv.base.checksum import seal
from kv.base.keys import u64
from kv.base.limits import SCAN_SEALED_ROWS_MAX
from kv.feed.slices import _packed
from kv.feed.version_pairs import ROWS, SEALED
from kv.mvcc.records import cur_row, hist_key
from pyspark_kvorum import changed_batches
from pyspark_kvorum.changed_batches import VERSION, Changes, by_version
from pyspark_kvorum.changes import changes_schema
from pyspark_kvorum.types import PLAIN
from sqlproxy.rows.arrow_pages import plain_page
from sqlproxy.rows.schema import Table
from tests.kv.feed.test_feed_pairs import HIGH, LOW, Model, pairs
from tests.kv.partition.node import Node

TABLE = Table.declare("default", "t")


def told(node: Node, above: int, upto: int, limit: int) -> tuple[list[Any], int]:
    """All pages as a task asks for them, as rows, and how many of them were told by slices."""
    changes = Changes(TABLE, changes_schema(PLAIN))
    found: list[Any] = []
    slices, at, cursor = 0, LOW, None
    for _ in range(10_000):
        args = (at, HIGH, upto, limit, above)
        rest = (1 << 20, cursor)
        rows, on = node.call(methods.PAIRS, at, *args, SEALED, *rest)
        batch = changes.of_slice(rows, above, upto) if rows else None
        high = HIGH if on is None else on[:-8]
        if batch is not None:
            slices += batch.num_rows
            found += batch.to_pylist()
        elif rows:
            one = pairs(node, above, upto, start=at, end=high)
            found += [row for batch in changes.of_rows(real(one)) for row in batch.to_pylist()]
        else:
            some, on = node.call(methods.PAIRS, at, *args, ROWS, *rest)
            found += [row for batch in changes.of_rows(real(some)) for row in batch.to_pylist()]
        if on is None:
            return found, slices
        at, cursor = on[:-8], on
    raise AssertionError("the pages have no end")


def real(rows: list[Any]) -> list[Any]:
    return [row for row in rows if row[1] is not None or row[3] is not None]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_f14_sealed_slices_tell_what_rows_do(seed: int) -> None:
    """A change is missing, told twice, paired with what another key replaced, or with a row older
    than what it replaced.
    """
    node = Node()
    model = Model(node, seed)
    moments = [model.write() for _ in range(60)]
    if seed % 2:
        assert node.collect(LOW, moments[15]) is None
    chosen = random.Random(seed)
    moments, slices = moments[16:], 0
    changes = Changes(TABLE, changes_schema(PLAIN))
    windows = [sorted(chosen.sample(moments, 2)) for _ in range(4)]
    for above, upto in [*windows, *((moments[at], moments[-1]) for at in (-8, -4, -2))]:
        some = real(pairs(node, above, upto))
        wanted = [row for batch in changes.of_rows(some) for row in batch.to_pylist()]
        for limit in (1, 5, 1000):
            found, by_slice = told(node, above, upto, limit)
            slices += by_slice
            assert found == wanted
    assert slices, "no slice was simple: nothing was tested"


@pytest.mark.parametrize("updated", [0, 7, 300])
def test_f14_slices_of_inserts_and_updates_are_simple(updated: int) -> None:
    """The usual streams take the long way, at several times the cost; an insert among updates is
    paired with its neighbour's old row.
    """
    node = Node()
    keys = [b"tab.%03d\x00" % i for i in range(300)]
    for key in keys[:updated]:
        node.put(key, b"old" + key)
    above = node.put(b"tab.zz", b"v")
    for key in reversed(keys):
        upto = node.put(key, b"new" + key)
    found, by_slice = told(node, above, upto, SCAN_SEALED_ROWS_MAX)
    assert by_slice == len(keys)
    for row, key in zip(found, keys, strict=True):
        old = {"key": key[4:], "value": b"old" + key} if key in keys[:updated] else None
        assert (row["_op"], row["_old"]) == ("update" if old else "insert", old)
        assert (row["key"], row["value"]) == (key[4:], b"new" + key)
    expected = pairs(node, above, upto)
    assert [row[VERSION] for row in found] == [row[2] for row in expected]


@pytest.mark.parametrize(
    ("keys", "others"),
    [
        ([b"tab.a\x00b", b"tab.c"], [b"tab.a\x00b", b"tab.d"]),
        ([b"tab.a\x00", b"\x01tab"], [b"tab.a", b"\x00\x01tab"]),  # cut at another place
        ([b"tab.ab", b"tab"], [b"tab.a", b"btab"]),
    ],
)
def test_f14_old_rows_belong_to_keys_byte_by_byte(keys: list[bytes], others: list[bytes]) -> None:
    """A change is paired with the old row of another key that looks like its own."""
    now = [(key, cur_row(key, b"v", 9, None)[1] or b"") for key in keys]

    def replaced(names: list[bytes]) -> Any:
        was = [(at := hist_key(key, 3), seal(at, u64(9) + b"\x00old")) for key in names]
        pages = [
            plain_page(*_packed([part for row in rows for part in row]), 9) for rows in (now, was)
        ]
        assert None not in pages
        return changed_batches._replaced(pages[0], pages[1], 5)  # type: ignore[arg-type]

    assert replaced(keys).tolist() == [0, 1]
    assert replaced(others) is None


@pytest.mark.parametrize("joined", [0, 1 << 30])
def test_f14_batches_of_a_task_go_by_version(joined: int, monkeypatch: Any) -> None:
    """Rows of a task come out of order, rows of one version by chance, or some get lost where they
    are too many bytes for one column.
    """
    monkeypatch.setattr(changed_batches, "_JOINED_BYTES_MAX", joined)
    monkeypatch.setattr(changed_batches, "_BATCH_ROWS", 7)
    chosen = random.Random(3)
    rows = [(chosen.randrange(9), at) for at in range(50)]
    cuts = [0, 10, 10, 31, 50]
    batches = [
        pa.record_batch(
            {VERSION: np.array([v for v, _ in rows[a:b]], np.int64), "n": [n for _, n in rows[a:b]]}
        )
        for a, b in pairwise(cuts)
        if a < b
    ]
    for given, wanted in ((batches, sorted(rows)), (batches[:0], [])):
        found = [(r[VERSION], r["n"]) for one in by_version(given) for r in one.to_pylist()]
        assert found == wanted
