"""What the sink keeps of SQL's tables: indexes, uniqueness, constraints, references; replacing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from kv.base.errors import KvorumError
from kvorum.spark.sinks import Sinks
from procedures.sink.format.sink_parts import SPARK_JOB
from procedures.verbs import SINK_ABORT, SINK_COMMIT, SINK_SEAL, SINK_STAGE
from pyspark_kvorum import writer
from pyspark_kvorum.session import Session
from tests.kit.commands import Ended, run
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.procedures.sink.arrow_client import Write, rows, write

_numbers = itertools.count(1)
To = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("sink") / "data", free_port_base()) as found:
        found.start()
        yield found


@pytest.fixture
def database(node: NodeProcess) -> str:
    name = f"s{next(_numbers)}"
    with psycopg.connect(_dsn(node, "postgres"), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def sql(node: NodeProcess, database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(_dsn(node, database), autocommit=True) as conn:
        yield conn


@pytest.fixture
def to(node: NodeProcess, database: str) -> To:
    def make(table: str, **more: str) -> dict[str, str]:
        where = {"endpoint": f"127.0.0.1:{node.base}", "table": f"{database}.{table}"}
        return where | more

    return make


def _dsn(node: NodeProcess, database: str) -> str:
    return f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname={database}"


def refusal(work: Callable[[], Any]) -> str:
    with pytest.raises(KvorumError) as caught:
        work()
    return f"{caught.value.code}: {caught.value}"


def both(sql: psycopg.Connection, table: str, column: str, value: Any) -> tuple[Any, Any]:
    """Rows found through an index on the column, and by reading everything."""
    by_index = sql.execute(f"SELECT * FROM {table} WHERE {column} = %s", [value])
    found = sorted(by_index.fetchall())
    every = sql.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    return found, every


@pytest.mark.slow
def test_o2_indexes_are_maintained(sql: psycopg.Connection, to: To) -> None:
    """A row that Spark wrote, changed or deleted is not found by an index, or its old entry is."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, tag text, n int)")
    sql.execute("CREATE INDEX by_tag ON t (tag)")
    sql.execute("INSERT INTO t VALUES (1, 'old', 1), (2, 'kept', 2), (5, 'old', 5)")
    write(
        rows("id tag n op", [(1, "new", 10, "U"), (3, "new", 30, "I")]),
        rows("id tag n op", [(5, None, None, "D")], tag=pa.string(), n=pa.int32()),
        **to("t", opColumn="op"),
    )
    found, every = both(sql, "t", "tag", "new")
    assert found == [(1, "new", 10), (3, "new", 30)]
    assert every == [(1, "new", 10), (2, "kept", 2), (3, "new", 30)]
    assert both(sql, "t", "tag", "old")[0] == []
    assert sql.execute("SELECT count(*) FROM t WHERE tag = 'kept'").fetchone() == (1,)


def test_o2_an_index_made_while_rows_were_staged(sql: psycopg.Connection, to: To) -> None:
    """Rows staged before CREATE INDEX and committed behind it have no entries."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, tag text)")
    data = rows("id tag", [(i, f"t{i % 3}") for i in range(1_000)])
    made = Write(data.schema, **to("t")).task(data)
    sql.execute("CREATE INDEX by_tag ON t (tag)")
    made.commit()
    assert sql.execute("SELECT count(*) FROM t WHERE tag = 't1'").fetchone() == (333,)


ALTERED = [
    ("ALTER COLUMN n TYPE text", "n is text now and was int4 when", False),
    ("ALTER COLUMN n TYPE text", "n is text now and was int4 when", True),
    ("ALTER COLUMN n TYPE int2", "n is int2 now and was int4 when", False),
    ("ALTER COLUMN tag SET NOT NULL", "tag is text NOT NULL now and was text when", False),
    ("ADD COLUMN more int NOT NULL", "more is int4 NOT NULL now and was not there when", False),
]


@pytest.mark.parametrize(("change", "says", "indexed"), ALTERED)
def test_o2_a_table_altered_while_rows_were_staged(
    sql: psycopg.Connection, to: To, change: str, says: str, indexed: bool
) -> None:
    """Staged values of a column that got another type became NULL without a word, and NULLs came
    into a column that had become NOT NULL, which no reader can read.
    """
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, tag text, n int)")
    if indexed:
        sql.execute("CREATE INDEX by_tag ON t (tag)")
    data = rows("id tag n", [(i, None, i) for i in range(1_000)], tag=pa.string())
    made = [Write(data.schema, **to("t")).task(part) for part in (data, data.slice(0, 3))]
    sql.execute(f"ALTER TABLE t {change}")
    for one in made:
        told = refusal(one.commit)
        assert told.startswith("SINK_ALTERED")
        name, _, now = says.partition(" ")
        assert re.search(f"column {name} of table \\S+ {now}", told), told
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_o2_a_table_altered_in_ways_that_rows_survive(sql: psycopg.Connection, to: To) -> None:
    """A batch is refused for a change that leaves its rows what they are."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, tag varchar(5), n int NOT NULL)")
    data = rows("id tag n", [(1, "a", 10)])
    made = Write(data.schema, **to("t")).task(data)
    for change in (
        "RENAME COLUMN tag TO label",
        "ADD COLUMN more int NOT NULL DEFAULT 3",
        "ADD COLUMN less text",
        "ALTER COLUMN n DROP NOT NULL",
        "ADD CHECK (n > 0)",
        "ALTER COLUMN n TYPE bigint",
        "ALTER COLUMN id TYPE bigint",
        "ALTER COLUMN label TYPE text",
    ):
        sql.execute(f"ALTER TABLE t {change}")
    made.commit()
    sql.execute("INSERT INTO t VALUES (5000000000, 'longer than five', 5000000000)")
    found = sql.execute("SELECT * FROM t WHERE id IN (1, 5000000000) ORDER BY 1").fetchall()
    big = 5_000_000_000
    assert found == [(1, "a", 10, 3, None), (big, "longer than five", big, 3, None)]


def test_o2_unique_values_may_change_places(sql: psycopg.Connection, to: To) -> None:
    """Two rows of a batch that swap a unique value refuse each other, or an entry is lost."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, tag text UNIQUE)")
    sql.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    write(rows("id tag", [(1, "b"), (2, "a")]), **to("t"))
    assert both(sql, "t", "tag", "a") == ([(2, "a")], [(1, "b"), (2, "a"), (3, "c")])
    text = refusal(lambda: write(rows("id tag", [(4, "c")]), **to("t")))
    assert "SINK_VIOLATION" in text
    assert 'unique constraint "t_tag_key"' in text
    assert "(tag)=(c)" in text
    text = refusal(lambda: write(rows("id tag", [(5, "x")]), rows("id tag", [(6, "x")]), **to("t")))
    assert "(tag)=(x)" in text
    assert len(both(sql, "t", "tag", "a")[1]) == 3, "nothing of a refused batch"


def test_o6_constraints_are_checked(sql: psycopg.Connection, to: To) -> None:
    """A row that breaks CHECK is stored; a generated column is not computed."""
    sql.execute(
        "CREATE TABLE t (id int PRIMARY KEY, price int CHECK (price > 0),"
        " twice int GENERATED ALWAYS AS (price * 2) STORED)"
    )
    write(rows("id price", [(1, 10), (2, 20)]), **to("t"))
    assert sql.execute("SELECT * FROM t ORDER BY 1").fetchall() == [(1, 10, 20), (2, 20, 40)]
    text = refusal(lambda: write(rows("id price", [(3, 1), (4, -1)]), **to("t")))
    assert "violates check constraint" in text
    assert "(4, -1" in text
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (2,)
    generated = rows("id price twice", [(3, 1, 2)])
    assert "is generated from others" in refusal(lambda: write(generated, **to("t")))


def test_o6_references_hold(sql: psycopg.Connection, to: To) -> None:
    """A child without a parent is stored, or a parent goes from under its children."""
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, name text)")
    sql.execute(
        "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE, up int"
        " REFERENCES c)"
    )
    write(rows("id name", [(1, "a"), (2, "b")]), **to("p"))
    write(rows("id p up", [(10, 1, None), (11, 2, 10)]), **to("c"))
    text = refusal(lambda: write(rows("id p up", [(12, 3, 10)]), **to("c")))
    assert "violates foreign key constraint" in text
    assert "(p)=(3)" in text
    write(rows("id", [(2,)]), **to("p", op="delete"))
    assert sql.execute("SELECT id FROM c").fetchall() == [(10,)]
    write(rows("id name", [(1, "changed")]), **to("p"))
    assert sql.execute("SELECT id FROM c").fetchall() == [(10,)], "the parent is still there"


@pytest.mark.slow
def test_o14_overwrite_replaces_the_table(sql: psycopg.Connection, to: To) -> None:
    """An overwrite keeps rows of before, loses entries, or is seen half-way."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, tag text)")
    sql.execute("CREATE INDEX by_tag ON t (tag)")
    sql.execute("INSERT INTO t SELECT i, 'old' FROM generate_series(1, 3000) i")
    with sql.transaction():
        sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert sql.execute("SELECT count(*) FROM t").fetchone() == (3_000,)
        write(rows("id tag", [(i, "new") for i in range(2_990, 3_100)]), overwrite=True, **to("t"))
        assert sql.execute("SELECT count(*) FROM t").fetchone() == (3_000,)
    assert sql.execute("SELECT count(*), min(id) FROM t").fetchone() == (110, 2_990)
    assert sql.execute("SELECT count(*) FROM t WHERE tag = 'old'").fetchone() == (0,)
    assert sql.execute("SELECT count(*) FROM t WHERE tag = 'new'").fetchone() == (110,)
    empty = rows("id tag", [], id=pa.int32(), tag=pa.string())
    write(empty, overwrite=True, **to("t"))
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_o14_overwrite_of_a_range(sql: psycopg.Connection, to: To) -> None:
    """Rows outside of the range go, or rows of the batch that lie outside come."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    sql.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i")
    ranged = to("t", keyFrom="10", keyTo="20")
    write(rows("id n", [(12, 1), (19, 1)]), overwrite=True, **ranged)
    left = sql.execute("SELECT count(*), sum(n) FROM t").fetchone()
    assert left == (92, 2)
    text = refusal(lambda: write(rows("id n", [(20, 1)]), overwrite=True, **ranged))
    assert "SINK_OUTSIDE" in text
    assert "keyFrom" in text
    assert "mode overwrite" in refusal(lambda: write(rows("id n", [(1, 1)]), **ranged))


def test_o14_overwrite_where(sql: psycopg.Connection, to: To) -> None:
    """replaceWhere takes rows that its condition does not mean, or a batch smuggles others in."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, day text, n int)")
    sql.execute("INSERT INTO t SELECT i, 'd' || i % 3, 0 FROM generate_series(1, 9) i")
    one = to("t", replaceWhere="day = 'd1' AND n < 5")
    write(rows("id day n", [(1, "d1", 1), (100, "d1", 1)]), overwrite=True, **one)
    found = sql.execute("SELECT id, n FROM t WHERE day = 'd1' ORDER BY 1").fetchall()
    assert found == [(1, 1), (100, 1)]
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (8,)
    text = refusal(lambda: write(rows("id day n", [(7, "d2", 1)]), overwrite=True, **one))
    assert "replaceWhere" in text
    text = refusal(
        lambda: write(
            rows("id day n", [(7, "d1", 1)]), overwrite=True, **to("t", replaceWhere="nix = 1")
        )
    )
    assert 'column "nix" does not exist' in text


def test_an_overwrite_under_a_condition_takes_no_row_outside(
    sql: psycopg.Connection, to: To
) -> None:
    """A row that the condition does not mean goes because a row of the batch has its key."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, day text, n int)")
    sql.execute("INSERT INTO t VALUES (1, 'd1', 1), (2, 'd2', 2)")
    one = to("t", replaceWhere="day = 'd1'")
    told = (rows("id day n", [(2, "d1", 9)]), rows("id day", [(2, "d1")]))
    for batch in told:
        text = refusal(partial(write, batch, overwrite=True, **one))
        assert "no read under this condition" in text
    assert sql.execute("SELECT * FROM t ORDER BY 1").fetchall() == [(1, "d1", 1), (2, "d2", 2)]


@pytest.mark.slow
def test_an_upsert_of_some_columns_keeps_the_others(sql: psycopg.Connection, to: To) -> None:
    """A frame with some of the columns sets the others of a row that is there to NULL."""
    sql.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text DEFAULT 'new', n int,"
        " twice int GENERATED ALWAYS AS (n * 2) STORED, CHECK (n < 100))"
    )
    sql.execute("CREATE TABLE bare (id int PRIMARY KEY, name text, n int)")
    sql.execute("CREATE INDEX ON t (n)")
    sql.execute("INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, NULL, 3)")
    sql.execute("INSERT INTO bare VALUES (1, 'one', 1), (2, 'two', 2), (3, NULL, 3)")
    for table in ("t", "bare"):
        write(rows("id n", [(1, 10), (3, None)]), rows("ID N", [(4, 40), (2, 2)]), **to(table))
        found = sql.execute(f"SELECT id, name, n FROM {table} ORDER BY 1").fetchall()
        fresh = "new" if table == "t" else None
        assert found == [(1, "one", 10), (2, "two", 2), (3, None, None), (4, fresh, 40)]
        write(rows("id name", [(1, "uno"), (4, None)], name=pa.string()), **to(table))
        found = sql.execute(f"SELECT name, n FROM {table} ORDER BY id").fetchall()
        assert found == [("uno", 10), ("two", 2), (None, None), (None, 40)]
        write(rows("id n op", [(1, 11, "U"), (2, None, "D")]), **to(table, opColumn="op"))
        found = sql.execute(f"SELECT id, name, n FROM {table} ORDER BY 1").fetchall()
        assert found == [(1, "uno", 11), (3, None, None), (4, None, 40)]
    assert sql.execute("SELECT twice FROM t ORDER BY id").fetchall() == [(22,), (None,), (80,)]
    assert both(sql, "t", "n", 11)[0] == [(1, "uno", 11, 22)]
    assert "SINK_VIOLATION" in refusal(lambda: write(rows("id n", [(1, 100)]), **to("t")))
    write(rows("id n", [(9, 9)]), overwrite=True, **to("bare"))
    assert sql.execute("SELECT * FROM bare").fetchall() == [(9, None, 9)], "nothing is kept"


def test_frames_of_narrower_types_and_of_none(sql: psycopg.Connection, to: To) -> None:
    """A frame whose values all fit is refused for its types' names, or lit(None) is."""
    sql.execute(
        "CREATE TABLE t (id int8 PRIMARY KEY, n numeric(12,2), f float8, ts timestamp, j jsonb,"
        " i interval, u uuid, a int8[])"
    )
    frame = pa.record_batch(
        {
            "ID": pa.array([1], pa.int32()),
            "N": pa.array([7], pa.int16()),
            "f": pa.array([1.5], pa.float32()),
            "ts": pa.array([0], pa.date32()),
            "j": pa.nulls(1),
            "i": pa.nulls(1),
            "u": pa.nulls(1),
            "a": pa.array([[1]], pa.list_(pa.int32())),
        }
    )
    write(frame, **to("t"))
    found = sql.execute("SELECT id, n::text, f, ts::text, j, i, u, a FROM t").fetchone()
    assert found == (1, "7.00", 1.5, "1970-01-01 00:00:00", None, None, None, [1])
    for name, kind in (("f", pa.int64()), ("n", pa.int64()), ("n", pa.float64())):
        wrong = pa.record_batch({"id": pa.array([1]), name: pa.nulls(1, kind)})
        assert f"column {name} is" in refusal(lambda: write(wrong, **to("t")))  # noqa: B023
    twice = pa.record_batch({"id": pa.array([1]), "ID": pa.array([1])})
    assert "no column 'ID'" in refusal(lambda: write(twice, **to("t")))


@pytest.mark.slow
def test_text_with_a_zero_byte_is_refused_as_in_sql(sql: psycopg.Connection, to: To) -> None:
    """A writer stores text that SQL's clients cannot be sent."""
    kinds = ["text", "varchar(5)", "char(5)", "text[]", "json"]
    for number, kind in enumerate(kinds):
        sql.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v {kind})")
        value: Any = ["a\0"] if kind == "text[]" else '"a\0"' if kind == "json" else "a\0"
        of = pa.list_(pa.string()) if kind == "text[]" else pa.string()
        text = refusal(lambda: write(rows("id v", [(1, value)], v=of), **to(f"t{number}")))  # noqa: B023
        assert "column v" in text, kind
        assert "0x00" in text or kind == "json", text
        assert sql.execute(f"SELECT count(*) FROM t{number}").fetchone() == (0,)


def test_o6_two_rows_with_one_key(sql: psycopg.Connection, to: To) -> None:
    """Which of two rows stays is chance: the default must be an error that names the key."""
    sql.execute("CREATE TABLE t (a int, b text, n int, PRIMARY KEY (a, b))")
    one, other = rows("a b n", [(1, "x", 1), (2, "y", 1)]), rows("a b n", [(1, "x", 2)])
    text = refusal(lambda: write(one, other, **to("t")))
    assert "SINK_DUPLICATE" in text
    assert "(a, b)=(1, x)" in text
    both_in_one = rows("a b n", [(1, "x", 1), (1, "x", 2)])
    assert "(a, b)=(1, x)" in refusal(lambda: write(both_in_one, **to("t")))
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (0,)
    write(one, other, **to("t", duplicates="last"))
    assert sql.execute("SELECT n FROM t ORDER BY a").fetchall() == [(2,), (1,)]


@pytest.mark.slow
def test_o6_duplicates_of_a_large_batch(sql: psycopg.Connection, to: To) -> None:
    """Two rows with one key in different chunks of a streamed batch are not noticed."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    first = rows("id n", [(i, 0) for i in range(30_000)])
    second = rows("id n", [(i, 1) for i in range(29_999, 60_000)])
    text = refusal(lambda: write(first, second, **to("t")))
    assert "(id)=(29999)" in text
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (0,)


@pytest.mark.parametrize("index", [False, True])
def test_o6_the_highest_of_a_key_stays(sql: psycopg.Connection, to: To, index: bool) -> None:
    """dedupeBy keeps a row that is not the highest, or forgets that the highest is a deletion."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    if index:
        sql.execute("CREATE INDEX by_n ON t (n)")
    sql.execute("INSERT INTO t VALUES (3, 0)")
    types = {"at": pa.timestamp("us", "UTC")}
    at = [pa.scalar(i * 1_000_000, pa.timestamp("us", "UTC")).as_py() for i in range(9)]
    write(
        rows("id n at op", [(1, 10, at[5], "U"), (2, 20, at[1], "I"), (3, 1, at[1], "U")], **types),
        rows("id n at op", [(1, 11, at[2], "U"), (2, 21, at[3], "U"), (3, 2, at[2], "D")], **types),
        rows("id n at op", [(2, 22, None, "U"), (1, 12, at[5] - timedelta(1), "D")], **types),
        **to("t", dedupeBy="at", opColumn="op"),
    )
    assert sql.execute("SELECT * FROM t ORDER BY 1").fetchall() == [(1, 10), (2, 21)]


def test_o14_insert_only(sql: psycopg.Connection, to: To) -> None:
    """op=insert replaces a row that is there."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    write(rows("id n", [(1, 1), (2, 1)]), **to("t", op="insert"))
    text = refusal(lambda: write(rows("id n", [(3, 2), (2, 2)]), **to("t", op="insert")))
    assert "SINK_KEY_EXISTS" in text
    assert "(id)=(2)" in text
    assert sql.execute("SELECT * FROM t ORDER BY 1").fetchall() == [(1, 1), (2, 1)]


def test_o6_a_table_dropped_meanwhile(
    node: NodeProcess, sql: psycopg.Connection, to: To, database: str
) -> None:
    """Rows are written into the range of a table that is gone, or the error, and what operators
    see of it, say a number instead of a name.
    """
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    app = f"dropped-{database}"
    write(rows("id n", [(0, 0)]), **to("t", txnAppId=app, txnVersion="1"))
    data = rows("id n", [(i, i) for i in range(5_000)])
    made = Write(data.schema, **to("t")).task(data)
    sql.execute("DROP TABLE t")
    assert re.search(r"TABLE_GONE.*table \w+\.t was dropped", refusal(made.commit))
    with Sinks(f"127.0.0.1:{node.base}") as sinks:
        tables = [one.table for one in sinks.attempts() if one.table.startswith(f"{database}.t")]
        (ledger,) = [one for one in sinks.ledgers() if one.app == app]
        (shown,) = {*tables, ledger.table}
        found = re.fullmatch(rf"{database}\.t \(gone, id (\d+)\)", shown)
        assert found is not None, shown
        assert sinks.forget(app, found[1])
        assert not sinks.forget(app, found[1])


def test_o14_nested_values_become_json(sql: psycopg.Connection, to: To) -> None:
    """A struct, map or array is refused for a JSON column, or stored as Python prints it."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, j jsonb, at time, took interval)")
    struct = pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.float64()))])
    write(
        rows(
            "id j at took",
            [
                (1, {"a": [1, 2], "m": [("x", 1.5)]}, "12:30:00.25", "1 mon 2 days"),
                (2, None, None, None),
            ],
            j=struct,
            id=pa.int32(),
        ),
        **to("t"),
    )
    found = sql.execute("SELECT j, at::text, took::text FROM t ORDER BY id").fetchall()
    assert found == [
        ({"a": [1, 2], "m": {"x": 1.5}}, "12:30:00.25", "1 mon 2 days"),
        (None, None, None),
    ]


def test_o4_order_of_the_hooks(
    sql: psycopg.Connection, to: To, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is sealed before its chunks are there, or a batch is committed before its tasks."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    names = {SINK_STAGE: "stage", SINK_SEAL: "seal", SINK_COMMIT: "commit", SINK_ABORT: "abort"}
    plain_ask = Session.ask
    called: list[str] = []

    async def ask(self: Session, method: int, *args: Any) -> list[Any]:
        found = await plain_ask(self, method, *args)
        called.append(names[method])
        return found

    monkeypatch.setattr(Session, "ask", ask)
    monkeypatch.setattr(writer, "CHUNK_BYTES_TARGET", 2_000)
    monkeypatch.setattr(writer, "CHUNK_ROWS", 10)
    data = [rows("id v", [(n * 100 + i, "x" * 90) for i in range(50)]) for n in range(2)]
    write(*data, **to("t"))
    first = called.index("seal")
    assert first > 0
    assert called == ["stage"] * first + ["seal"] + ["stage"] * first + ["seal", "commit"]
    called.clear()
    made = Write(data[0].schema, **to("t")).task(data[0])
    made.writer.abort(list(made.staged))
    assert called[-2:] == ["seal", "abort"]
    assert "SINK_ABORTED" in refusal(made.commit)
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (100,)


def cli(node: NodeProcess, *args: str, code: int = 0) -> Ended:
    return run("spark", *args, code=code, connect=f"127.0.0.1:{node.base}")


@pytest.mark.slow
def test_o7_prepared_jobs_are_listed_and_decided(
    node: NodeProcess, sql: psycopg.Connection, to: To, database: str
) -> None:
    """An operator cannot see what is prepared, or commits more than was asked for."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    app = f"app-{database}"
    with Sinks(f"127.0.0.1:{node.base}") as sinks:

        def prepare(version: int) -> int:
            args = {"app": app, "version": version, "name": "j"}
            job = int(sinks.ask(sinks.procedures.submit(SPARK_JOB, args)))
            write(rows("id v", [(version, "x")]), **to("t", jobId=str(job), jobOrdinal="0"))
            return job

        jobs = [prepare(version) for version in (1, 2, 3, 9)]
        told = cli(node, "sinks").out.decode()
        assert told.count("PREPARED") == 4
        assert f"{app} 9" in told
        assert f"{database}.t" in told
        listed = [job for job in sinks.jobs() if job.app == app]
        assert [(job.id, job.version) for job in listed] == list(
            zip(jobs, (1, 2, 3, 9), strict=True)
        )
        (first,) = [a for a in sinks.attempts() if a.procedure == jobs[0]]
        sinks.abort(first.attempt)
        assert b"was aborted" in cli(node, "commit", app, "--up-to", "3", code=1).err
        assert sql.execute("SELECT id FROM t ORDER BY 1").fetchall() == [(2,), (3,)]
        cli(node, "abort", str(jobs[3]))
        misspelt = cli(node, "abort", first.attempt + "x", code=1)
        assert b"there is no attempt" in misspelt.err
        assert [job.id for job in sinks.jobs() if job.app == app] == []
        (ledger,) = [one for one in sinks.ledgers() if one.app == app]
        assert (ledger.version, ledger.table) == (3, "")
        cli(node, "commit", app, code=1)  # which version?
        cli(node, "forget", app)
        cli(node, "forget", app, code=1)  # it is forgotten
        assert prepare(1) not in jobs
