"""Kvorum's column types as Spark's and Arrow's, and the check of a DataFrame's schema against a
table.

A table without declared columns is a plain key-value table: columns `key BINARY`, `value BINARY`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from kv.base.errors import InvalidArgument
from pyspark_kvorum.options import DELETE, UPSERT, Options
from sqlproxy.rows.schema import ALWAYS, Column, Table
from sqlproxy.values.types import Type

if TYPE_CHECKING:
    import pyarrow as pa

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
    "enum": T.StringType(),
    "json": T.StringType(),
    "jsonb": T.StringType(),
    "oid": T.LongType(),
    "uuid": T.StringType(),
    "bytea": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "timestamptz": T.TimestampType(),
    # Text, as PostgreSQL prints it: Spark's own types for these hold less, or come and go with its
    # versions.
    "time": T.StringType(),
    "interval": T.StringType(),
}
_NESTED = (T.StructType, T.MapType, T.ArrayType)
PLAIN = T.StructType(
    [T.StructField("key", T.BinaryType(), False), T.StructField("value", T.BinaryType(), False)]
)


def spark_schema(table: Table, *, numeric_as_text: bool = False) -> T.StructType:
    """The table as a Spark schema, columns in declared order. Raises InvalidArgument for a type
    Spark lacks.
    """
    if not table.columns:
        return PLAIN
    found = [_field(table, column) for column in table.visible]
    if numeric_as_text:
        found = [T.StructField(f.name, _decimals_as_text(f.dataType), f.nullable) for f in found]
    return T.StructType(found)


def _decimals_as_text(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_decimals_as_text(kind.elementType))
    return T.StringType() if isinstance(kind, T.DecimalType) else kind


def _is_text(kind: T.DataType) -> bool:
    return isinstance(kind.elementType if isinstance(kind, T.ArrayType) else kind, T.StringType)


def texts_of(table: Table, schema: T.StructType) -> frozenset[str]:
    """The columns of type numeric, and arrays of them, that are strings in a schema which may have
    more (`_old`).
    """
    kinds = ((c.name, c.resolved.element or c.resolved) for c in table.columns)
    names = {name for name, kind in kinds if kind.base == "numeric"}
    return frozenset(f.name for f in schema.fields if f.name in names and _is_text(f.dataType))


def _spark_type(kind: Type) -> T.DataType | None:
    if kind.element is not None:
        element = _spark_type(kind.element)
        return None if element is None else T.ArrayType(element)
    if kind.base == "numeric":
        import pyarrow as pa  # a fifth of a second: most processes need none

        from sqlproxy.rows.arrow_rows import arrow_type

        wanted = arrow_type(kind)
        if isinstance(wanted, pa.Decimal128Type):
            return T.DecimalType(wanted.precision, wanted.scale)
        return T.StringType()  # more digits than Spark's 38
    return _SPARK.get(kind.base)


def _field(table: Table, column: Column) -> T.StructField:
    spark = _spark_type(column.resolved)
    if spark is None:
        raise InvalidArgument(
            f"column {column.name} of {table.namespace}.{table.name} has type {column.shown_type},"
            " which Spark does not have; read it over HTTP or the SDK"
        )
    return T.StructField(column.name, spark, column.nullable)


def narrowed(schema: T.StructType, columns: tuple[str, ...]) -> T.StructType:
    """`schema` with only `columns`, in their order."""
    by_name = {f.name: f for f in schema.fields}
    known = matched(list(dict.fromkeys(columns)), by_name)
    columns = tuple(known.get(c, c) for c in columns)
    if len(set(columns)) < len(columns):
        twice = next(c for at, c in enumerate(columns) if c in columns[:at])
        raise InvalidArgument(f"option columns names {twice!r} twice; select it twice in Spark")
    missing = [c for c in columns if c not in by_name]
    if missing:
        raise InvalidArgument(
            f"option columns names {missing[0]!r}; the table has {', '.join(by_name)}"
        )
    return T.StructType([by_name[c] for c in columns]) if columns else schema


def matched(names: Sequence[str], wanted: Collection[str]) -> dict[str, str]:
    """Which of `wanted` each of the names means: itself, else the one that differs in nothing but
    case, as Spark resolves names. What means none, or one that is meant already, is left out.
    """
    found = {name: name for name in names if name in wanted}
    for name in names:
        if name not in found:
            taken = set(found.values())
            alike = [w for w in wanted if w.lower() == name.lower() and w not in taken]
            if len(alike) == 1:
                found[name] = alike[0]
    return found


def kept_columns(table: Table, given: T.StructType, options: Options) -> tuple[int, ...]:
    """The ids of the columns that an upsert of these gives to rows that are there already, whose
    others stay; () if it gives all.
    """
    if options.op != UPSERT or table.plain:
        return ()
    names = set(matched(given.names, [c.name for c in table.visible]).values())
    left = [c for c in table.visible if c.name not in names and c.generated is None]
    return tuple(c.id for c in table.visible if c.name in names) if left else ()


def check_writable(table: Table, given: T.StructType, options: Options) -> None:
    """A DataFrame's schema must fit the table: same names in any order, same types; a missing
    column must be nullable, generated, or have a default. To delete, the key's columns suffice.
    Raises InvalidArgument that names the column.
    """
    where = f"table {table.path}"
    if table.hidden_key:
        raise InvalidArgument(
            f"{where} has no primary key, so a row written twice would be two rows:"
            " give it one, or write by SQL"
        )
    if options.replace_where:
        _check_condition(table, options.replace_where)
    known = matched(given.names, [f.name for f in spark_schema(table).fields])
    have = {known.get(f.name, f.name): f for f in given.fields}
    if len(have) < len(given.fields):
        raise InvalidArgument(
            f"{where}: the DataFrame has a column twice: {', '.join(given.names)}"
        )
    for option, name in (("opColumn", options.op_column), ("dedupeBy", options.dedupe_by)):
        if name and not matched([name], given.names):
            raise InvalidArgument(
                f"option {option} names {name!r}; the DataFrame has {', '.join(have)}"
            )
    columns = {c.name: c for c in table.columns}
    want = {f.name: f for f in spark_schema(table).fields}
    extra = set(matched([options.op_column, options.dedupe_by], given.names).values())
    for name, field in have.items():
        if name in want:
            _check_column(where, field, want[name], columns.get(name))
        elif name not in extra:
            raise InvalidArgument(f"{where} has no column {name!r}; it has {', '.join(want)}")
    keys = set(table.primary_key) if columns else {"key"}
    for name, field in want.items():
        if name in have or (options.op == DELETE and name not in keys):
            continue
        column = columns.get(name)
        _check_missing(where, name, field, column)


def _check_condition(table: Table, text: str) -> None:
    """The commit would refuse a wrong one, too, but after all the work of the tasks."""
    from sqlproxy.tables import conditions
    from sqlproxy.values.errors import SqlError

    try:
        conditions.bound(table, text)
    except SqlError as error:
        raise InvalidArgument(f"option replaceWhere: {text!r:.300}: {error.message}") from error


def _check_column(
    where: str, field: T.StructField, want: T.StructField, column: Column | None
) -> None:
    name = field.name
    if column is not None and column.generated is not None:
        raise InvalidArgument(
            f"column {name} of {where} is generated from others: leave it out of the DataFrame"
            " (df.drop)"
        )
    if column is not None and column.identity == ALWAYS:
        raise InvalidArgument(
            f"column {name} of {where} is GENERATED ALWAYS AS IDENTITY: only SQL may number it;"
            " declare it BY DEFAULT to give its values here"
        )
    json = column is not None and column.resolved.base in ("json", "jsonb")
    if json and isinstance(field.dataType, _NESTED):
        return
    if not _fits(field.dataType, want.dataType):
        raise InvalidArgument(
            f"column {name} is {field.dataType.simpleString()} in the DataFrame and"
            f" {want.dataType.simpleString()} in {where}; cast it first"
        )


def _check_missing(where: str, name: str, field: T.StructField, column: Column | None) -> None:
    if column is not None and column.generated is not None:
        return
    if column is not None and column.computed:
        raise InvalidArgument(
            f"{where} needs column {name!r}, whose default only SQL computes"
            f" ({column.default_sql or 'a sequence'}); add it to the DataFrame"
        )
    if not field.nullable and (column is None or column.default is None):
        raise InvalidArgument(f"{where} needs column {name!r}, which the DataFrame lacks")


_DIGITS: dict[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
_EXACT: dict[type[T.DataType], int] = {
    T.FloatType: 5,
    T.DoubleType: 10,
}  # the digits of integers that they hold
_WIDER = {
    (T.FloatType, T.DoubleType),
    (T.DateType, T.TimestampNTZType),
    (T.CharType, T.StringType),
    (T.VarcharType, T.StringType),
}


def _fits(a: T.DataType, b: T.DataType) -> bool:
    """Whether every value of `a` is one of `b`, as it is: the same type, or a wider one."""
    if isinstance(a, T.NullType):
        return True
    if isinstance(b, T.ArrayType):
        return isinstance(a, T.ArrayType) and _fits(a.elementType, b.elementType)
    digits = _DIGITS.get(type(a))
    if isinstance(b, T.DecimalType):
        if isinstance(a, T.StringType):
            return True  # it is read as SQL reads it: more digits, NaN
        if digits is not None:
            return digits <= b.precision - b.scale
        return isinstance(a, T.DecimalType) and a.scale <= b.scale and a.precision <= b.precision
    if digits is not None:
        return digits <= (_DIGITS.get(type(b)) or _EXACT.get(type(b)) or 0)
    return type(a) is type(b) or (type(a), type(b)) in _WIDER


def as_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Intervals as text, which no cast of Arrow's makes."""
    import pyarrow as pa

    at = [n for n, f in enumerate(batch.schema) if f.type == pa.month_day_nano_interval()]
    if not at:
        return batch
    from sqlproxy.pg.intervals import write_interval
    from sqlproxy.values.interval import Interval

    arrays = list(batch.columns)
    for n in at:
        texts = [
            None if v is None else write_interval(Interval(v.months, v.days, v.nanoseconds // 1000))
            for v in arrays[n].to_pylist()
        ]
        arrays[n] = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
