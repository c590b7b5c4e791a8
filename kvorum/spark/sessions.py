"""A Spark session that can read and write Kvorum's tables from the first line on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kvorum.spark.tables import ENDPOINT, found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(endpoint: str = "", *, app_name: str = "kvorum", **conf: object) -> SparkSession:
    """The running session, or a new one, with the format `kvorum` registered and `endpoint`
    (HOST:BASE[,…]) as its cluster. `conf`: settings of a new one; as names have dots, they come as
    `session(**{"spark.master": "local[2]"})`.

    Spark starts its workers by the first `python3` of the PATH unless it is given another: here by
    the Python that runs this, which has Kvorum installed. PYSPARK_PYTHON, `spark.pyspark.python`,
    and a running session, stay what they are.
    """
    from pyspark.sql import SparkSession

    if "spark.pyspark.python" not in conf:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for name, value in conf.items():
        builder = builder.config(name, str(value))
    spark = found(builder.getOrCreate())
    if endpoint:
        spark.conf.set(ENDPOINT, endpoint)
    return spark
