"""Conditions of reads and overwrites against SQL: random ones over columns of all types, read by
columns, by rows, within the key range that they narrow to, and by Kvorum's own SQL.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from kv.base.errors import InvalidArgument, KvorumError
from pyspark_kvorum.options import Options
from pyspark_kvorum.read_options import ReadOptions
from pyspark_kvorum.reader import KvorumReader
from pyspark_kvorum.session import Session
from pyspark_kvorum.types import narrowed, spark_schema
from pyspark_kvorum.where_option import Condition
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import DEFAULT
from sqlproxy.pg.text import reader
from sqlproxy.rows import arrow_rows
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Table
from sqlproxy.tables import conditions
from tests.clients.spark.conftest import namespace_of
from tests.kit.processes import NodeProcess
from tests.procedures.sink.arrow_client import write

NAMESPACE = namespace_of(__name__)

VALUES: dict[str, list[str]] = {
    "bool": ["true", "false"],
    "int2": ["0", "1", "-7", "32767"],
    "int4": ["0", "1", "-7", "2147483647"],
    "int8": ["0", "1", "-9223372036854775808", "3000000000"],
    "float4": ["0", "-0.0", "1.1", "'NaN'", "'Infinity'", "-2.5"],
    "float8": ["0", "-0.0", "1.1", "'NaN'", "'-Infinity'", "-2.5"],
    "numeric(10,2)": ["0", "1.23", "-2.50", "'NaN'", "99999999.99"],
    "numeric": ["0", "1.2345", "-2.5", "'NaN'", "1e30"],
    "text": ["''", "'a'", "'a%_b'", "'Ä'", "'ab'", "'a b '"],
    "varchar(5)": ["''", "'a'", "'ab'", "'Ä'"],
    "char(4)": ["''", "'a'", "'ab'", "'a b'"],
    "bytea": ["'\\x'", "'\\x00'", "'\\x61'", "'\\\\x00'", "'\\xff00'"],
    "date": ["'2013-01-01'", "'1969-12-31'", "'9999-12-31'"],
    "timestamp": ["'2013-01-01 00:00:00'", "'1969-12-31 23:59:59.999999'"],
    "timestamptz": ["'2013-01-01 00:00:00+00'", "'2013-01-01 01:00:00+02'"],
    "uuid": [
        "'abcdef12-0000-4000-8000-000000000001'",
        "'ABCDEF12-0000-4000-8000-000000000002'",
    ],
}
OF_ROWS = {  # beside the types above, where SQL makes the table
    "mood": ["'sad'", "'ok'", "'happy'"],
    "time": ["'01:02:03'", "'23:59:59.5'"],
    "interval": ["'1 day'", "'24:00:00'", "'1 mon'"],
    "jsonb": ["'1'", "'{\"a\": [1]}'", "'null'"],
    "int4[]": ["'{}'", "'{1,NULL}'", "'{1,2}'"],
}
LITERALS = {  # what values of the type are compared with beside its own
    "int2": ["70000", "1.5", "'1'", "-1"],
    "int4": ["3000000000", "30000000000000000000", "2.5", "'1'"],
    "int8": ["1.0", "'5'", "9223372036854775808"],
    "float4": ["1.1", "1", "'1.1'", "1e39"],
    "float8": ["1", "1.1", "'nan'"],
    "numeric(10,2)": ["1.2345", "1", "1e30", "1.230"],
    "numeric": ["1", "1.23450", "1e31"],
    "char(4)": ["'a       '", "'abcdefg'"],
    "varchar(5)": ["'abcdefg'"],
    "bytea": ["'a'", "'\\x6'"],
    "date": ["DATE '2013-01-01'", "timestamp '2013-01-01 00:00:01'"],
    "timestamp": ["date '2013-01-01'", "'2013-01-01'"],
    "timestamptz": ["date '2013-01-01'", "'2013-01-01'"],
}
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def name_of(kind: str) -> str:
    return "c_" + re.sub(r"\W+", "_", kind.replace("[]", "_list")).strip("_")


class Conditions:
    """Random ones, of a seed."""

    def __init__(self, seed: int, kinds: dict[str, list[str]], names: dict[str, str]) -> None:
        self._random = random.Random(seed)
        self._kinds, self._names = kinds, names

    def one(self, depth: int = 3) -> str:
        rng = self._random
        match rng.randrange(6) if depth else 0:
            case 1:
                return f"({self.one(depth - 1)} AND {self.one(depth - 1)})"
            case 2:
                return f"({self.one(depth - 1)} OR {self.one(depth - 1)})"
            case 3:
                return f"NOT ({self.one(depth - 1)})"
            case 4:
                how = rng.choice(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN"])
                return f"({self.one(depth - 1)}) IS {how}"
            case _:
                return self._test(rng.choice(sorted(self._names)))

    def _test(self, kind: str) -> str:
        rng, name = self._random, self._names[kind]
        literals = self._kinds[kind] + LITERALS.get(kind, [])
        some = [rng.choice([*literals, "NULL"]) for _ in range(rng.randint(1, 4))]
        negated = rng.choice(["", "NOT "])
        match rng.randrange(8):
            case 0:
                return f"{name} IS {negated}NULL"
            case 1:
                return f"{name} {negated}IN ({', '.join(some)})"
            case 2:
                low, high = (rng.choice(literals) for _ in range(2))
                return f"{name} {negated}BETWEEN {low} AND {high}"
            case 3 if kind == "text":
                pattern = rng.choice(["'a%'", "'%b'", "'a\\%_b'", "'_'", "''"])
                return f"{name} {negated}LIKE {pattern}"
            case 4:
                return f"{name} IS {negated}DISTINCT FROM {rng.choice(some)}"
            case 5:
                return f"{rng.choice(literals)} {rng.choice(OPERATORS)} {name}"
            case 6 if kind == "bool":
                return name
            case _:
                return f"{name} {rng.choice(OPERATORS)} {rng.choice([*literals, 'NULL'])}"


class _Col:
    def __init__(self, name: str, type: str, nullable: bool = True) -> None:
        self.name, self.type, self.nullable = name, type, nullable


def declared(kinds: dict[str, list[str]], key: str = "") -> Table:
    """A table with a column `id` and one of each type; the primary key is the one of type `key`."""
    columns = [_Col("id", "int8", nullable=False)]
    columns += [_Col(name_of(kind), kind, kind != key) for kind in kinds]
    keys = [name_of(key), "id"] if key else ["id"]
    return Table.declare("ns", "t", columns=columns, primary_key=keys)


def stored_rows(table: Table, key: str = "") -> tuple[list[bytes], list[bytes]]:
    """Rows that have each value once at least, and NULL; user keys and values."""
    made = codec(table)
    keys, values = [], []
    for number in range(7):
        row: list[Any] = [number]
        for kind, texts in VALUES.items():
            there = texts[number] if number < len(texts) else None
            if there is None and kind == key:
                there = texts[0]
            if there is None:
                row.append(None)
                continue
            of, typmod = by_name(kind)
            row.append(reader(of.oid, DEFAULT, typmod)(there.strip("'")))
        at, value = made.encode_row(row)
        keys.append(at)
        values.append(value)
    order = sorted(range(7), key=lambda at: keys[at])
    return [keys[at] for at in order], [values[at] for at in order]


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["", *VALUES])
def test_conditions_by_columns_by_rows_and_by_keys(key: str) -> None:
    """Arrow keeps other rows than SQL's closures, or the key range that a condition narrows to
    leaves out a row that it means: wrong answers without a word.
    """
    table = declared(VALUES, key)
    keys, values = stored_rows(table, key)
    names = {kind: name_of(kind) for kind in VALUES}
    if key:
        names = {key: names[key], "int4": names["int4"]}
    make = Conditions(len(key), VALUES, names)
    by_column = by_key = 0
    for _ in range(150):
        text = make.one()
        try:
            condition = Condition(text, table)
            wanted = condition.rows(keys, values)
        except InvalidArgument:
            continue
        low, high = condition.bounds()
        by_key += bool(low or high)
        out = [at for at in wanted if keys[at] < low or (high and keys[at] >= high)]
        assert not out, f"{text}: rows {out} are outside of [{low!r}, {high!r})"
        if condition.arrow is None:
            continue
        by_column += 1
        try:
            batch = arrow_rows.decode_batch(
                table, keys, values, ["id", *sorted(condition.columns - {"id"})]
            )
        except InvalidArgument:  # numeric's NaN; such a page is read by rows
            continue
        ids = [codec(table).decode_row(keys[at], values[at])[0] for at in wanted]
        assert batch.filter(condition.arrow)["id"].to_pylist() == ids, text
    assert by_column > 20
    assert by_key or not key or key == "bool"


def test_conditions_of_plain_tables() -> None:
    """A key is compared as text, or a bound is off by one byte."""
    table = Table.declare("ns", "t")
    keys = [b"", b"\x00", b"a", b"a\x00", b"b", b"\xff"]
    values = [b"v", b"\x00", b"\\x00", b"a", b"", b"v"]
    for text, want in [
        ("key = 'a'", [2]),
        ("key > 'a'", [3, 4, 5]),
        ("key >= 'a'", [2, 3, 4, 5]),
        ("key <= 'a'", [0, 1, 2]),
        ("key < 'a'", [0, 1]),
        ("key IN ('b', '\\x00')", [1, 4]),
        ("key = X'FF'", [5]),
        ("value = '\\x00'", [1]),
        ("value = X'5c783030'", [2]),
        ("key BETWEEN 'a' AND 'b' AND value <> ''", [2, 3]),
        ("key = NULL", []),
        ("KEY = 'a' OR Value = 'a'", [2, 3]),
        ("length(key) = 2", [3]),
        ("key > NULL", []),
    ]:
        condition = Condition(text, table)
        assert condition.rows(keys, values) == want, text
        low, high = condition.bounds()
        assert all(low <= keys[at] and (not high or keys[at] < high) for at in want), text
        if condition.arrow is not None:
            data = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": values})
            found = data.filter(condition.arrow)["key"].to_pylist()
            assert found == [keys[at] for at in want], text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id =", "syntax error"),
        ("nope = 1", 'column "nope" does not exist'),
        ("id = 'x'", "invalid input syntax"),
        ("id", "must be type boolean"),
        ("id = (SELECT 1)", "subquery"),
        ("count(id) > 1", "aggregate"),
        ("id = 1; DROP TABLE x", "multiple commands"),
        ("id = 1 LIMIT 2", "more than one"),
        ("id = 1 UNION SELECT true", "more than one"),
        ("c_jsonb < c_text", "operator"),
        ("c_timestamptz < now()", "write the value itself"),
        ("random() < 1", "the value itself"),
        ("c_date = 'today'", "write the value itself"),
        ("c_text = current_user", "value itself"),
        ("c_bytea = X'0'", "hexadecimal"),
        ("id = $1", "parameter"),
        ("age(c_timestamp) > '1 day'", "write the value itself"),
    ],
)
def test_conditions_that_are_refused(text: str, said: str) -> None:
    """What is no condition on one row selects something, or its refusal does not say why."""
    table = declared(VALUES | {"jsonb": []})
    with pytest.raises(InvalidArgument, match="option where") as caught:
        Condition(text, table)
    assert said in caught.value.message


def test_every_function_that_asks_for_the_time_is_refused() -> None:
    """A new function that reads the clock is taken in a condition: a read and the overwrite behind
    it mean other rows.
    """
    asking = {
        source
        for source, fn in FUNCTIONS.items()
        if fn.with_env
        and {"now", "statement_now"}
        & set(getattr(fn.call, "__code__", (lambda: 0).__code__).co_names)
    }
    assert asking == conditions.ASK_THE_TIME


def test_a_row_that_raises_is_told() -> None:
    """An error of one row ends a read as an internal one, or the row is left out."""
    table = declared(VALUES)
    keys, values = stored_rows(table)
    guarded = Condition("c_int4 <> 0 AND 10 / c_int4 > 1", table)
    assert guarded.rows(keys, values) == [1]
    with pytest.raises(InvalidArgument, match=r"option where.*division by zero"):
        Condition("10 / c_int4 > 1", table).rows(keys, values)


# -- beside SQL, on a node

EVERY = VALUES | OF_ROWS


@pytest.fixture(scope="module")
def sql(node: NodeProcess, db: Any) -> Iterator[psycopg.Connection]:
    dsn = f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname={NAMESPACE}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        yield conn


def fill(sql: psycopg.Connection, table: str, key: str = "id") -> None:
    columns = ", ".join(f"{name_of(kind)} {kind}" for kind in EVERY)
    sql.execute(f"CREATE TABLE {table} (id int8, {columns}, PRIMARY KEY ({key}))")
    insert(sql, table, key)


def insert(sql: psycopg.Connection, table: str, key: str = "id") -> None:
    rows = []
    for number in range(7):
        row = [str(number)]
        for kind, texts in EVERY.items():
            spare = texts[0] if name_of(kind) in key else "NULL"
            row.append(texts[number] if number < len(texts) else spare)
        rows.append(f"({', '.join(row)})")
    sql.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}")


def read(raw: dict[str, str]) -> list[int]:
    options = Options.parse(raw)
    with Session(options) as session:
        schema = narrowed(spark_schema(session.table), options.columns)
    reader = KvorumReader(options, ReadOptions.parse(raw), schema)
    return sorted(
        one
        for part in reader.partitions()
        for batch in reader.read(part)
        for one in batch["id"].to_pylist()
    )


def told(sql: psycopg.Connection, table: str, text: str) -> list[int] | None:
    """What SQL finds; None if it refuses."""
    try:
        found = sql.execute(f"SELECT id FROM {table} WHERE {text} ORDER BY 1")  # type: ignore[call-overload]
        return [row[0] for row in found]
    except psycopg.Error:
        return None


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "key", ["id", "c_text, id", "c_float8, id", "c_timestamptz, c_numeric_10_2, id"]
)
def test_a_read_finds_what_sql_finds(
    sql: psycopg.Connection, options: Callable[..., dict[str, str]], key: str
) -> None:
    """`where` keeps other rows than SQL's WHERE, or takes what SQL refuses."""
    table = "w" + name_of(key)
    fill(sql, table, key)
    names = {kind: name_of(kind) for kind in EVERY}
    make = Conditions(7, EVERY, names)
    compared = 0
    for _ in range(40):
        text = make.one(2)
        wanted = told(sql, table, text)
        where = options(table, where=text, columns="id")
        if wanted is None:
            with pytest.raises(InvalidArgument):
                read(where)
            continue
        assert read(where) == wanted, text
        compared += 1
    assert compared > 20


@pytest.mark.slow
@pytest.mark.spark
def test_an_overwrite_replaces_what_was_read(
    sql: psycopg.Connection, options: Callable[..., dict[str, str]]
) -> None:
    """replaceWhere deletes rows that a read under the same condition did not show, or leaves some:
    read, change, overwrite loses data.
    """
    fill(sql, "replaced_where")
    every = [row[0] for row in sql.execute("SELECT id FROM replaced_where ORDER BY 1")]
    make = Conditions(3, EVERY, {kind: name_of(kind) for kind in EVERY})
    texts = [
        "c_float8 > 0",
        "NOT (c_float8 >= 0)",
        "c_bytea = '\\x00'",
        "c_bytea = X'00'",
        "C_INT4 < 3000000000",
        "c_int4 IN (1, NULL)",
        "c_numeric_10_2 = 1.2345",
    ]
    texts += [make.one(2) for _ in range(12)]
    compared = 0
    for text in texts:
        try:
            found = read(options("replaced_where", where=text, columns="id"))
        except InvalidArgument:
            continue
        empty = pa.record_batch({"id": pa.array([], pa.int64())})
        write(empty, overwrite=True, **options("replaced_where", replaceWhere=text))
        left = [row[0] for row in sql.execute("SELECT id FROM replaced_where ORDER BY 1")]
        assert left == [one for one in every if one not in found], text
        sql.execute("DELETE FROM replaced_where")
        insert(sql, "replaced_where")
        compared += bool(found)
    assert compared >= 5


@pytest.mark.spark
def test_an_overwrite_of_a_plain_table(db: Any, options: Callable[..., dict[str, str]]) -> None:
    """A condition on the keys or values of a key-value table is refused, or replaces others."""
    db.create_table(NAMESPACE, "plain_replaced")
    table = db.table(NAMESPACE, "plain_replaced")
    for key in (b"a", b"b", b"\x00"):
        table.put(key, key)
    fresh = pa.record_batch({"key": [b"c"], "value": [b"v"]})
    to = options("plain_replaced", replaceWhere="key = X'00' OR key >= 'b'")
    write(fresh, overwrite=True, **to)
    assert [item.key for item in table.scan().items] == [b"a", b"c"]
    outside = pa.record_batch({"key": [b"a"], "value": [b"v"]})
    with pytest.raises(KvorumError, match="replaceWhere"):
        write(outside, overwrite=True, **to)
    with pytest.raises(InvalidArgument, match=r"option replaceWhere.*syntax error"):
        write(fresh, overwrite=True, **options("plain_replaced", replaceWhere="key ="))
    same = pa.record_batch({"key": [b"a"], "value": [b"c"]})
    with pytest.raises(KvorumError, match="no read under this condition"):
        write(same, overwrite=True, **options("plain_replaced", replaceWhere="value = 'c'"))
    assert [item.key for item in table.scan().items] == [b"a", b"c"]
