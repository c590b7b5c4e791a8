"""Bulk loads: what the driver knows of a table before it sorts a frame for it.

A bulk load is an append whose rows come in key order, each task with a range of keys of its own
(`kvorum.spark.bulk_load` exchanges rows and sorts them unless they lie so already; option `bulk`
makes the writer hold a frame to it that was sorted). Then every staged chunk and every log entry is
one run of neighbouring keys, which the stores insert four times as fast as keys from everywhere
(docs/decisions/1107, 1138). Everything else is as in any append: staging, one commit, one version,
the marker.

The table may be split beforehand where samples of the keys say, so that several leaders take the
rows from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kv.base.errors import InvalidArgument
from kv.base.keys import table_prefix
from kv.base.limits import SPARK_SPLITS_MAX
from pyspark_kvorum.encoding import key_table
from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session
from sqlproxy.rows import arrow_rows

Cut = tuple[int, bytes]
"""(partition, user key at which it is to be split)"""


AT: Final = "kvorum_bulk_at"
"""The column of a sample that says where its row lies: Spark's monotonically_increasing_id."""
EACH: Final = 4_096  # rows of a partition, of which …
PAIR: Final = 2  # … so many, side by side, are in the sample
_SAMPLED_MIN: Final = 100  # of fewer nothing is concluded, and the rows are soon exchanged
_CHANGES_MAX: Final = 0.05
_PARTITIONS_MAX: Final = 64
_PARTITION_BITS: Final = 33  # of AT, below the partition's number


class Layout(Enum):
    """How a frame's rows lie, and so what is to be done before they are written."""

    ANYWHERE = "anywhere"
    """They are exchanged and sorted."""
    RANGES = "ranges"
    """Partitions are ranges of keys, or nearly: each is sorted where it lies."""
    RUNS = "runs"
    """And within each the keys rise, with few exceptions: the writer sorts each chunk, no more."""


def layout(sample: pa.Table, columns: list[str], tasks: int) -> Layout:
    """Of a frame that `tasks` are to write. `sample` has the key columns and AT, of PAIR rows of
    each EACH. It decides about speed only: rows and promises are those of any append.

    Ranges: when the rows are put in the order of the keys, partitions hardly ever take turns, so
    that each has long runs of neighbouring keys to itself.
    """
    firsts = pc.equal(pc.bit_wise_and(sample.column(AT), EACH - 1), 0)
    if sum(firsts.to_pylist()) < _SAMPLED_MIN:
        return Layout.ANYWHERE
    try:
        order = pc.sort_indices(sample, sort_keys=[(name, "ascending") for name in columns])
    except pa.ArrowException:  # no order known
        return Layout.ANYWHERE
    of = pc.shift_right(sample.column(AT), _PARTITION_BITS)
    by_key = pc.filter(of.take(order), firsts.take(order)).to_pylist()
    parts = len(set(by_key))
    if not tasks <= parts <= _PARTITIONS_MAX or _changes(by_key) > _few(by_key, parts):
        return Layout.ANYWHERE
    rank = [0] * len(order)
    for at, row in enumerate(order.to_pylist()):
        rank[row] = at
    lying = [rank[row] for row in pc.sort_indices(sample.column(AT)).to_pylist()]
    falls = sum(one < before for before, one in pairwise(lying))
    return Layout.RUNS if falls <= _few(lying, parts) else Layout.RANGES


def _changes(values: list[int]) -> int:
    return sum(one != before for before, one in pairwise(values))


def _few(rows: list[int], parts: int) -> float:
    return parts + _CHANGES_MAX * len(rows)


def key_columns(raw: Mapping[str, str]) -> list[str]:
    """The columns by which a frame is sorted for the table, in order."""
    options = Options.parse(raw)
    with Session(options) as session:
        return ["key"] if session.table.plain else list(session.table.primary_key)


def cuts(raw: Mapping[str, str], sample: pa.Table, wanted: int) -> list[Cut]:
    """Where to split the table so that about `wanted` partitions get the same share of rows with
    keys like those of `sample` (its key columns). Of one partition the highest cut comes first: the
    rest stays where it is. Raises InvalidArgument.
    """
    if not 0 < wanted <= SPARK_SPLITS_MAX:
        raise InvalidArgument(f"splits must be between 1 and {SPARK_SPLITS_MAX}, got {wanted}")
    options = Options.parse(raw)
    found: list[Cut] = []
    with Session(options) as session:
        table = key_table(session.table)
        keys: list[bytes] = []
        for batch in sample.to_batches():
            if table.plain:
                keys += batch.column("key").cast(pa.binary()).to_pylist()
            else:
                keys += arrow_rows.encode_batch(table, batch)[0]
        keys.sort()
        chosen = {keys[len(keys) * i // wanted] for i in range(1, wanted)} if keys else set()
        prefix = table_prefix(session.table.id)
        for key in sorted(chosen, reverse=True):
            here = session.run(session.kv.locate(prefix + key))
            if here.start < prefix + key:  # else there is a border already
                found.append((int(here.id), key))
    return found
