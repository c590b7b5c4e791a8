"""The Spark driver of the demo, a process of its own so that it can be killed: files → stream →
Kvorum.

    python -m demo.driver stream ENDPOINT SOURCE CHECKPOINT LOCAL     runs until every file was
                                                                      delivered
    python -m demo.driver read   ENDPOINT LOCAL                       delays per carrier, one JSON
                                 line

Nothing in here knows about failures: exactly-once is the data source's work, not the user's.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from demo.flights import COLUMNS

TABLE = "demo.flights"
FILES_PER_BATCH = 2
_SQL = {"int4": "INT", "text": "STRING", "timestamptz": "TIMESTAMP"}


def session(local_dir: str) -> Any:
    """A quiet local Spark with the Kvorum data source."""
    from pyspark.sql import SparkSession

    from pyspark_kvorum import DefaultSource

    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers: this environment's Python
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kvorum-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", local_dir)
        .config("spark.sql.warehouse.dir", f"{local_dir}/warehouse")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(DefaultSource)
    return spark


def stream(endpoint: str, source: str, checkpoint: str, local_dir: str) -> None:
    """Deliver every file of `source`, FILES_PER_BATCH to a micro-batch, then end."""
    spark = session(local_dir)
    schema = ", ".join(f"{name} {_SQL[kind]}" for name, kind in COLUMNS)
    flights = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).csv(source)
    )
    query = (
        flights.writeStream.format("kvorum")
        .option("endpoint", endpoint)
        .option("table", TABLE)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def read(endpoint: str, local_dir: str) -> None:
    """Mean arrival delay per carrier, read at one snapshot; the source sees only two columns."""
    from pyspark.sql import functions as F

    spark = session(local_dir)
    frame = (
        spark.read.format("kvorum")
        .option("endpoint", endpoint)
        .option("table", TABLE)
        .option("columns", "carrier,arr_delay")
        .option("where", "arr_delay IS NOT NULL")
        .load()
    )
    rows = (
        frame.groupBy("carrier")
        .agg(F.count("*").alias("flights"), F.avg("arr_delay").alias("delay"))
        .orderBy(F.desc("delay"))
        .collect()
    )
    sys.stdout.write(json.dumps([[r.carrier, r.flights, r.delay] for r in rows]) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    {"stream": stream, "read": read}[sys.argv[1]](*sys.argv[2:])
