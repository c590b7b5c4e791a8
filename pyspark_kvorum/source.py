"""The entry point that Spark calls on the driver: which schema, which reader, which writer.

`pushFilters` is deliberately not offered: with it Spark 4.3 leaks filters between the scans of one
`load()` and returns wrong rows (and by default refuses to read at all). Predicates are load options
instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kv.base.errors import InvalidArgument
from pyspark_kvorum.options import BATCH, READ, STREAM, Options
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.types import check_writable, kept_columns, narrowed, spark_schema

if TYPE_CHECKING:
    from pyspark_kvorum.changes import ChangesReader
    from pyspark_kvorum.reader import KvorumReader
    from pyspark_kvorum.writer import KvorumBatchWriter, KvorumStreamWriter

    W = TypeVar("W", KvorumBatchWriter, KvorumStreamWriter)


class KvorumDataSource(DataSource):
    """`spark.read.format("kvorum")` and `df.write.format("kvorum")`; options in
    pyspark_kvorum.options.
    """

    _travelled = False

    @classmethod
    def name(cls) -> str:
        return "kvorum"

    def schema(self) -> StructType:
        from pyspark_kvorum.session import Session

        options, reading = Options.parse(self.options), ReadOptions.parse(self.options)
        with Session(options) as session:
            whole = spark_schema(session.table, numeric_as_text=reading.numeric_as_text)
            found = narrowed(whole, options.columns)
        if not reading.changes:
            return found
        from pyspark_kvorum.changes import changes_schema

        return changes_schema(found)

    def reader(self, schema: StructType) -> KvorumReader:
        from pyspark_kvorum.reader import KvorumReader

        Options.check_use(self.options, READ)
        reading = ReadOptions.parse(self.options)
        if reading.changes:
            raise InvalidArgument("option changes is for spark.readStream, not for spark.read")
        return KvorumReader(Options.parse(self.options), reading, schema)

    def streamReader(self, schema: StructType) -> ChangesReader:
        from pyspark_kvorum.changes import ChangesReader

        Options.check_use(self.options, READ)
        reading = ReadOptions.parse(self.options)
        if not reading.changes:
            raise InvalidArgument(
                "spark.readStream reads the changes of a table: set option changes to true"
            )
        return ChangesReader(Options.parse(self.options), reading, schema)

    def writer(self, schema: StructType, overwrite: bool) -> KvorumBatchWriter:
        from pyspark_kvorum.writer import KvorumBatchWriter

        Options.check_use(self.options, BATCH)
        Options.parse(self.options).check_named()
        return self._writing(KvorumBatchWriter, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KvorumStreamWriter:
        from pyspark_kvorum.writer import KvorumStreamWriter

        Options.check_use(self.options, STREAM)
        return self._writing(KvorumStreamWriter, schema, overwrite)

    def __setstate__(self, state: dict[str, object]) -> None:
        """Spark plans each micro-batch with a source that it makes; one that has travelled writes
        nothing, it commits and aborts what tasks report. So that one need not know the table.
        """
        self.__dict__.update(state)
        self._travelled = True

    def _writing(self, kind: type[W], schema: StructType, overwrite: bool) -> W:
        """Nothing is claimed of the table: the commit holds the record that it finds."""
        from pyspark_kvorum.session import Session

        options = Options.parse(self.options)
        options.check_write(overwrite)
        if self._travelled:
            return kind.to_commit(options, overwrite)
        with Session(options) as session:
            check_writable(session.table, schema, options)
            given = kept_columns(session.table, schema, options)
            return kind.create(options, session, overwrite, given)


class DefaultSource(KvorumDataSource):
    """The name under which Spark looks for a data source in a package called pyspark_<x>."""
