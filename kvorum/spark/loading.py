"""Bulk loads: a frame, sorted by the keys of a table, becomes its rows in one commit.

    kvorum.spark.bulk_load(frame, "shop.orders", splits=16)

Spark range-partitions and sorts the frame; each task ships neighbouring keys, which costs the
stores least (pyspark_kvorum.bulk). `splits` cuts the table beforehand where samples of the frame's
keys say, for a table that is empty or whose new keys lie elsewhere. The rows appear all at once, as
with any append.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from kv.base.errors import Forbidden, InvalidArgument, Refused
from kvorum.spark.tables import cluster_of, database_at, found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE_ROWS = 20_000


def bulk_load(
    frame: DataFrame,
    name: str,
    *,
    tasks: int | None = None,
    splits: int = 1,
    app_id: str = "",
    version: int | None = None,
    endpoint: str = "",
    **options: Any,
) -> None:
    """Write all rows of `frame` to `namespace.table`, in key order; rows with the keys of stored
    ones replace them.

    `tasks`: with how many Spark writes, by default its default parallelism; a persisted frame whose
    partitions are ranges of keys already keeps them, and is spared the exchange of rows, and the
    sorting if they rise there. `splits`: into how many partitions of the table the rows should
    fall; that takes the right to operate, without which the table is left as it is. `app_id` and
    `version` make a resubmitted load a no-op.
    Other options are those of a write (`dedupeBy`, …); `bulk="staged"`: the rows are not laid in
    the table before the commit, so that streams of its changes need not wait for a load of hours.
    The frame is computed twice if it is to be split for, so persist an expensive one. Raises
    InvalidArgument; Spark raises what is refused.
    """
    if (version is None) != (not app_id):
        raise InvalidArgument("app_id and version belong together; one is missing")
    spark = found(frame.sparkSession)
    where = {**cluster_of(spark, endpoint), "table": name}
    bulk = importlib.import_module("pyspark_kvorum.bulk")
    exact = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    given = {key: _named(frame.columns, key, name, exact) for key in bulk.key_columns(where)}
    columns = list(given.values())
    if splits != 1:
        _split(where, bulk.cuts(where, _sample(frame, given), splits))
    wanted = tasks or spark.sparkContext.defaultParallelism
    lies = bulk.Layout.ANYWHERE
    if not tasks and splits == 1 and frame.is_cached:  # to look at another one is to compute it
        lies = bulk.layout(_numbered(bulk, frame, columns), columns, wanted)
    if lies is bulk.Layout.ANYWHERE:
        frame = frame.repartitionByRange(wanted, *map(_quoted, columns))
    if lies is not bulk.Layout.RUNS:
        frame = frame.sortWithinPartitions(*map(_quoted, columns))
    how = {"bulk": "runs" if lies is bulk.Layout.RUNS else "true"}
    writer = frame.write.format("kvorum").mode("append").options(**where, **(how | options))
    if app_id:
        writer = writer.option("txnAppId", app_id).option("txnVersion", str(version))
    writer.save()


def _named(columns: list[str], key: str, table: str, exact: bool) -> str:
    """Which column of a frame Spark means by the name of a key's column. Raises InvalidArgument."""
    found = [one for one in columns if one == key or (not exact and one.lower() == key.lower())]
    if len(found) == 1:
        return found[0]
    has = f"; it has {', '.join(columns)}"
    if found:
        raise InvalidArgument(
            f"the frame has {' and '.join(found)}: which of them is {key!r}, in the primary key of "
            f"{table}? rename one, or set spark.sql.caseSensitive{has}"
        )
    raise InvalidArgument(
        f"the frame has no column {key!r}, which is in the primary key of {table}{has}"
    )


def _sample(frame: DataFrame, given: dict[str, str]) -> object:
    """Some of the frame's keys, as Arrow, by the names that the table has for them."""
    from pyspark.sql import functions as F

    keys = frame.select(*[F.col(_quoted(one)).alias(key) for key, one in given.items()])
    total = keys.count()
    if total > _SAMPLE_ROWS:
        keys = keys.sample(fraction=_SAMPLE_ROWS / total, seed=1)
    return keys.toArrow()


def _quoted(column: str) -> str:
    """As Spark reads names: a dot in one does not cut it."""
    return f"`{column.replace('`', '``')}`"


def _numbered(bulk: Any, frame: DataFrame, columns: list[str]) -> object:
    """Keys of a few rows of each partition with where they lie, as Arrow (`bulk.layout`)."""
    from pyspark.sql import functions as F

    numbered = frame.select(F.monotonically_increasing_id().alias(bulk.AT), *map(_quoted, columns))
    return numbered.where(F.col(bulk.AT) % bulk.EACH < bulk.PAIR).toArrow()


def _split(where: dict[str, str], cuts: list[tuple[int, bytes]]) -> None:
    """A partition that is split or moved by others meanwhile, or that the loader may not split, is
    left as it is: only speed is at stake.
    """
    with database_at(where) as db:
        for partition, key in cuts:
            with contextlib.suppress(Refused, Forbidden):
                db.split(partition, at=key)
