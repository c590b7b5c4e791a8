"""Kvorum for users of Spark: tables and their changes as frames, without option strings; several
writes in one commit (`job`); what writers left (`sinks`).

Importing this does not import Spark; calling something does.
"""

from kvorum.spark.job import Job, job
from kvorum.spark.loading import bulk_load
from kvorum.spark.sessions import session
from kvorum.spark.sinks import Sinks, sinks
from kvorum.spark.streaming import each_batch
from kvorum.spark.tables import SparkSnapshot, changes, size, snapshot, table

__all__ = [
    "Job",
    "Sinks",
    "SparkSnapshot",
    "bulk_load",
    "changes",
    "each_batch",
    "job",
    "session",
    "sinks",
    "size",
    "snapshot",
    "table",
]
