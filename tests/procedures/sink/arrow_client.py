"""Spark's side of a write without Spark: a task is called as Spark calls it, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import check_writable, kept_columns
from pyspark_kvorum.writer import KvorumBatchWriter, Staged, _Stage


def rows(names: str, values: Iterable[Sequence[Any]], **types: pa.DataType) -> pa.RecordBatch:
    """`rows("a b", [(1, "x"), (2, None)], b=pa.string())`; integers are of 32 bits."""
    columns = names.split()
    listed = [list(column) for column in zip(*values, strict=True)] or [[] for _ in columns]
    arrays = [pa.array(v, types.get(n)) for n, v in zip(columns, listed, strict=True)]
    small = [a.cast(pa.int32()) if a.type == pa.int64() else a for a in arrays]
    return pa.RecordBatch.from_arrays(small, names=columns)


class Write:
    """One batch write. `tasks` are staged in turn; `commit` ends it."""

    def __init__(self, schema: pa.Schema, *, overwrite: bool = False, **options: str) -> None:
        self.options = Options.parse({"timeoutMs": "20000", **options})
        self.options.check_write(overwrite)
        with Session(self.options) as session:
            spark = from_arrow_schema(schema)
            check_writable(session.table, spark, self.options)
            given = kept_columns(session.table, spark, self.options)
            self.writer = KvorumBatchWriter.create(self.options, session, overwrite, given)
        self.staged: list[Staged] = []

    def task(self, *batches: pa.RecordBatch) -> Write:
        with Session(self.options, self.writer.table) as session:
            part = len(self.staged)
            stage = _Stage(
                session, self.writer.table, self.writer.attempt, part, "", columns=self.writer.given
            )
            self.staged.append(session.run(stage.all(iter(batches))))
        return self

    def commit(self) -> None:
        self.writer.commit(list(self.staged))


def write(*tasks: pa.RecordBatch, overwrite: bool = False, **options: str) -> None:
    """Each batch as a task of its own, and the commit."""
    made = Write(tasks[0].schema, overwrite=overwrite, **options)
    for task in tasks:
        made.task(task)
    made.commit()
