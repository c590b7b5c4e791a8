"""A Spark driver that copies changes, to be killed:
python -m tests.clients.spark.changes_driver ENDPOINT SOURCE TARGET FOLDER until-killed|to-the-end

Kvorum → Spark → Kvorum: the changes of SOURCE, as they come, become the rows of TARGET, exactly
once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

BATCH_ROWS = 150


def main(endpoint: str, source: str, target: str, folder: Path, how: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    changes = (
        spark.readStream.format("kvorum")
        .option("changes", "true")
        .option("endpoint", endpoint)
        .option("table", source)
        .option("maxRowsPerBatch", BATCH_ROWS)
        .load()
    )
    rows = changes.drop("_old", "_commit_time")
    writer = (
        rows.writeStream.format("kvorum")
        .option("endpoint", endpoint)
        .option("table", target)
        .option("opColumn", "_op")
        .option("dedupeBy", "_commit_version")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if how == "to-the-end":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime="0 seconds")
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
