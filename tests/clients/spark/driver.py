"""A Spark driver of its own, to be killed: python driver.py ENDPOINT TABLE FOLDER [APP]

Streams FOLDER/source (lines "id,value"), one file to a micro-batch, until every file was
delivered.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(endpoint: str, table: str, folder: Path, app: str = "") -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    writer = (
        spark.readStream.schema("id INT, value STRING")
        .option("maxFilesPerTrigger", 1)
        .csv(str(folder / "source"))
        .writeStream.format("kvorum")
        .option("endpoint", endpoint)
        .option("table", table)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    if app:
        writer = writer.option("appId", app)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
