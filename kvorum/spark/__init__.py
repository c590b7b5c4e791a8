"""Kvorum for users of Spark: tables and their changes as frames, without option strings.

Importing this does not import Spark; calling something does.
"""

from kvorum.spark.tables import SparkSnapshot, changes, size, snapshot, table

__all__ = ["SparkSnapshot", "changes", "size", "snapshot", "table"]
