"""Kvorum's column types as Spark's and Arrow's, and the check of a DataFrame's schema against a
table.

A table without declared columns is a plain key-value table: columns `key BINARY`, `value BINARY`.
"""

from __future__ import annotations

from pyspark.sql import types as T

from kv.base.errors import InvalidArgument
from sqlproxy.schema import Column, Table
from sqlproxy.types import Type

_SPARK: dict[str, T.DataType] = {
    "bool": T.BooleanType(),
    "int2": T.ShortType(),
    "int4": T.IntegerType(),
    "int8": T.LongType(),
    "float4": T.FloatType(),
    "float8": T.DoubleType(),
    "text": T.StringType(),
    "varchar": T.StringType(),
    "char": T.StringType(),
    "name": T.StringType(),
    "json": T.StringType(),
    "jsonb": T.StringType(),
    "oid": T.LongType(),
    "uuid": T.StringType(),
    "bytea": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "timestamptz": T.TimestampType(),
}
PLAIN = T.StructType(
    [T.StructField("key", T.BinaryType(), False), T.StructField("value", T.BinaryType(), False)]
)


def spark_schema(table: Table) -> T.StructType:
    """The table as a Spark schema, columns in declared order. Raises InvalidArgument for a type
    Spark lacks.
    """
    if not table.columns:
        return PLAIN
    return T.StructType([_field(table, column) for column in table.visible])


def _spark_type(kind: Type) -> T.DataType | None:
    if kind.element is not None:
        element = _spark_type(kind.element)
        return None if element is None else T.ArrayType(element)
    if kind.base == "numeric":
        import pyarrow as pa  # a fifth of a second: most processes need none

        from sqlproxy.arrow_rows import arrow_type

        wanted = arrow_type(kind)
        if isinstance(wanted, pa.Decimal128Type):
            return T.DecimalType(wanted.precision, wanted.scale)
        return None
    return _SPARK.get(kind.base)


def _field(table: Table, column: Column) -> T.StructField:
    spark = _spark_type(column.resolved)
    if spark is None:
        raise InvalidArgument(
            f"column {column.name} of {table.namespace}.{table.name} has type {column.type},"
            " which Spark does not have; read it over HTTP or the SDK"
        )
    return T.StructField(column.name, spark, column.nullable)


def narrowed(schema: T.StructType, columns: tuple[str, ...]) -> T.StructType:
    """`schema` with only `columns`, in their order."""
    by_name = {f.name: f for f in schema.fields}
    missing = [c for c in columns if c not in by_name]
    if missing:
        raise InvalidArgument(
            f"option columns names {missing[0]!r}; the table has {', '.join(by_name)}"
        )
    return T.StructType([by_name[c] for c in columns]) if columns else schema


def check_writable(table: Table, given: T.StructType) -> None:
    """A DataFrame's schema must fit the table: same names in any order, same types; a missing
    column must be
    nullable or have a default. Raises InvalidArgument that names the column."""
    if table.ruled:
        raise InvalidArgument(
            f"table {table.namespace}.{table.name} has indexes, constraints or computed columns,"
            " which are kept by SQL alone: write to it by SQL, or to a table without them"
        )
    want = {f.name: f for f in spark_schema(table).fields}
    have = {f.name: f for f in given.fields}
    where = f"table {table.namespace}.{table.name}"
    for name, field in have.items():
        if name not in want:
            raise InvalidArgument(f"{where} has no column {name!r}; it has {', '.join(want)}")
        if not _same(field.dataType, want[name].dataType):
            raise InvalidArgument(
                f"column {name} is {field.dataType.simpleString()} in the DataFrame and"
                f" {want[name].dataType.simpleString()} in {where}; cast it first"
            )
    defaults = {c.name for c in table.columns if c.default is not None}
    for name, field in want.items():
        if name not in have and not field.nullable and name not in defaults:
            raise InvalidArgument(f"{where} needs column {name!r}, which the DataFrame lacks")


def _same(a: T.DataType, b: T.DataType) -> bool:
    if isinstance(b, T.DecimalType):
        return isinstance(a, T.DecimalType) and a.scale <= b.scale and a.precision <= b.precision
    return type(a) is type(b)
