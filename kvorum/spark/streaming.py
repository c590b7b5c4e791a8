"""Streams in output mode `update`, which Spark refuses of every sink that is written in Python.

    (
        counts.writeStream.outputMode("update")
        .foreachBatch(kvorum.spark.each_batch("shop.totals"))
        .option("checkpointLocation", "…")
        .start()
    )

Each micro-batch is one transaction, once, as with `format("kvorum")`: its number is the version of
a batch write, the query's id the application.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kv.base.errors import InvalidArgument
from kvorum.spark.tables import cluster_of, found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID: Final = "sql.streaming.queryId"


def each_batch(
    name: str, *, app_id: str = "", endpoint: str = "", **options: Any
) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: each micro-batch's rows take the place of those of
    `namespace.table` with their keys. `app_id` is by default the query's id, which lives in the
    checkpoint. Other options are those of a batch write (`opColumn`, `dedupeBy`, …). Spark raises
    what is refused.
    """

    def write(frame: DataFrame, batch: int) -> None:
        spark = found(frame.sparkSession)
        app = app_id or spark.sparkContext.getLocalProperty(_QUERY_ID)
        if not app:
            raise InvalidArgument(
                "Spark gave no query id, so a replayed batch could not be recognised; give app_id"
            )
        where = {**cluster_of(spark, endpoint), "table": name}
        once = {"txnAppId": app, "txnVersion": str(batch)}
        frame.write.format("kvorum").mode("append").options(**where, **once, **options).save()

    return write
