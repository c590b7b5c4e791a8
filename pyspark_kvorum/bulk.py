"""Bulk loads: what the driver knows of a table before it sorts a frame for it.

A bulk load is an append whose rows come in key order, each task with a range of keys of its own
(`kvorum.spark.bulk_load` sorts, and exchanges rows unless they lie so already; option `bulk` makes
the writer hold the frame to it). Then every staged chunk and every log entry is one run of
neighbouring keys, which the stores insert four times as fast as keys from everywhere
(docs/decisions/1107, 1138). Everything else is as in any append: staging, one commit, one version,
the marker.

The table may be split beforehand where samples of the keys say, so that several leaders take the
rows from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from sqlproxy import arrow_rows

Cut = tuple[int, bytes]
"""(partition, user key at which it is to be split)"""


AT: Final = "kvorum_bulk_at"
"""The column of a sample that says where its row lies: Spark's monotonically_increasing_id."""
EACH: Final = 4_096  # rows of a partition, one of which is in the sample
_SAMPLED_MIN: Final = 100  # of fewer nothing is concluded, and the rows are soon exchanged
_CHANGES_MAX: Final = 0.05
_PARTITIONS_MAX: Final = 64
_PARTITION_BITS: Final = 33  # of AT, below the partition's number


def lies_in_ranges(sample: pa.Table, columns: list[str], tasks: int) -> bool:
    """Whether partitions hardly ever take turns, when their rows are put in the order of the keys.
    Then each of them, sorted, has long runs of neighbouring keys to itself. `sample` has the key
    columns and AT, of a row of each partition now and then.
    """
    if sample.num_rows < _SAMPLED_MIN:
        return False
    try:
        order = pc.sort_indices(sample, sort_keys=[(name, "ascending") for name in columns])
    except pa.ArrowException:  # no order known: it is only asked for the sake of speed
        return False
    of = pc.shift_right(sample.column(AT).take(order), _PARTITION_BITS).to_pylist()
    changes = sum(one != before for before, one in pairwise(of))
    if not tasks <= len(set(of)) <= _PARTITIONS_MAX:
        return False
    return bool(changes <= len(set(of)) + _CHANGES_MAX * len(of))


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
