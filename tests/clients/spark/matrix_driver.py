"""A Spark driver for the kill matrix: python matrix_driver.py ENDPOINT TABLE FOLDER MASTER

Streams FOLDER/source, one file to a micro-batch, until FOLDER/end is there. A query that fails is
started again; FOLDER/stop-query asks for q.stop() and a new start, FOLDER/oom for more memory than
the JVM has. With MATRIX_BULK in the environment each micro-batch is a bulk load.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.clients.spark.matrix_source import MatrixSource

LOOK_S = 0.05


def session(folder: Path, master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("kill-matrix")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.quantile": "0.5",
        "spark.executorEnv.MATRIX_FOLDER": os.environ["MATRIX_FOLDER"],
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.worker.cleanup.enabled": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MatrixSource)
    return spark


def start(spark: SparkSession, endpoint: str, table: str, folder: Path) -> Any:
    rows = (
        spark.readStream.schema("id INT, value STRING")
        .option("maxFilesPerTrigger", 1)
        .csv(str(folder / "source"))
        .repartition(2)
    )
    options = {"endpoint": endpoint, "table": table}

    def load(batch: Any, number: int) -> None:
        named = {**options, "bulk": "true", "txnAppId": "matrix", "txnVersion": str(number)}
        batch.sortWithinPartitions("id").write.format("kvorum").options(**named).mode(
            "append"
        ).save()

    bulk = "MATRIX_BULK" in os.environ
    writing = rows.writeStream
    writing = writing.foreachBatch(load) if bulk else writing.format("kvorum").options(**options)
    return (
        writing.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def main(endpoint: str, table: str, folder: Path, master: str) -> None:
    spark = session(folder, master)
    (folder / "driver-is-up").touch()
    query = None
    while not (folder / "end").exists():
        if query is not None and not query.isActive:
            print(f"the query ended: {str(query.exception())[:600]}", flush=True)  # noqa: T201
            query = None
        if query is None:
            query = start(spark, endpoint, table, folder)
        stop = folder / "stop-query"
        if stop.exists():
            query.stop()
            query = None
            stop.unlink()
        if (folder / "oom").exists():
            gateway: Any = spark.sparkContext._gateway
            gateway.new_array(gateway.jvm.byte, (1 << 31) - 16)
        time.sleep(LOOK_S)
    if query is not None:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
