"""The Spark data source `kvorum`: reads at one snapshot, exactly-once batch and streaming writes.

Spark finds `DefaultSource` here by itself because the package's name begins with `pyspark_`; the
sure way, also for notebooks and other threads, is
`spark.dataSource.register(pyspark_kvorum.DefaultSource)`.
"""

from pyspark_kvorum.source import DefaultSource, KvorumDataSource

__all__ = ["DefaultSource", "KvorumDataSource"]
