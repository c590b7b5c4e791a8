"""What a statement holds is bounded by bytes: each function and operator, with values of several
sizes, gives the right answer or 53200, and its session goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.each import each
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll
from tests.processes.test_footprint import resident_bytes

MIB = 1 << 20
LIMIT = 4 * MIB
SMALL, LARGE = 1_000, 6 * MIB
"""Bytes of what is computed: one that fits, one that does not."""

# of {n} bytes, nearly; each must be refused before it is there
VALUES = (
    "repeat('x', {n})",
    "repeat('é', {n} / 2)",
    "lpad('x', {n})",
    "rpad('x', {n}, 'yz')",
    "repeat('x', {n} / 2) || repeat('y', {n} / 2)",
    "'x' || repeat('y', {n})",
    "concat(repeat('x', {n} / 2), 1, repeat('y', {n} / 2))",
    "concat_ws('-', repeat('x', {n} / 2), repeat('y', {n} / 2))",
    "format('%%s%%1$s', repeat('x', {n} / 2))",
    "format('%%{n}s', 'x')",
    "replace(repeat('x', {n} / 100), 'x', repeat('y', 100))",
    "regexp_replace(repeat('x', {n} / 100), 'x', repeat('y', 100), 'g')",
    "regexp_replace(repeat('x', {n} / 100), 'x+', repeat('\\&', 100))",
    "encode(repeat('x', {n} / 2)::bytea, 'hex')",
    "encode(repeat('x', {n})::bytea, 'escape')",
    "overlay(repeat('x', {n} / 2) placing repeat('y', {n} / 2) from 1)",
    "upper(repeat('x', {n}))",
    "array_to_string(array_fill('x'::text, array[{n} / 8]), ',')",
    "array_to_string(array_fill(1, array[10, {n} / 80]), ',')",
    "string_to_array(repeat('x,', {n} / 60), ',')::text",
    "array_cat(array_fill(1, array[{n} / 16]), array_fill(1, array[{n} / 16]))::text",
    "array_append(array_fill(1, array[{n} / 8]), 1)::text",
    "to_json(repeat('x', {n}))::text",
    "jsonb_build_object('a', repeat('x', {n}))::text",
    "jsonb_pretty(to_jsonb(array_fill(1, array[{n} / 8])))",
    "jsonb_build_array(repeat('x', {n} / 2), repeat('y', {n} / 2))::text",
    "quote_literal(repeat('x', {n}))",
    "cast('1e' || least({n}, 16000) || repeat(' ', {n}) as jsonb)::text",
)
# of {n} bytes together
ROWS = (
    "select string_agg(repeat('x', 1000), ',') from generate_series(1, {n} / 1000)",
    "select array_agg(repeat('x', 1000 + i - i))::text from generate_series(1, {n} / 1000) i",
    "select jsonb_agg(repeat('x', 1000 + i - i))::text from generate_series(1, {n} / 1000) i",
    "select json_object_agg(i, repeat('x', 1000))::text from generate_series(1, {n} / 1000) i",
    "select cardinality(array_agg(i)) from generate_series(1, {n} / 16) i",
    "select array_agg(i::smallint % 10) from generate_series(1, least({n} / 16, 30000)) i, "
    "generate_series(1, {n} / 500000 + 1)",
    "select percentile_disc(0.5) within group (order by i) from generate_series(1, {n} / 8) i",
    "insert into w (v) select repeat('x', 1000) from generate_series(1, {n} / 1000) returning v",
    "update t set v = repeat('y', {n} / 200) returning v",
    "delete from t where id <= {n} / 1000 returning repeat(v, 10)",
    "with x as (update t set v = v where id <= {n} / 1000 returning repeat(v, 10)) table x",
)
# of {n} bytes together, which go to a file, or to the client while they are made
SPILLED = (
    "select repeat('x', {n} / 10 + i) from generate_series(1, 10) i",
    "select repeat('x', {n} / 10) from generate_series(1, 10)",
    "select v || v from t where id <= {n} / 2000",
    "select v from t where id <= {n} / 1000 order by v",
    "select v from t where id <= {n} / 1000 order by v || id",
    "select distinct v from t where id <= {n} / 1000",
    "select a.v from t a join t b on a.id = b.id where a.id <= {n} / 1000",
    "select v from t where id <= {n} / 1000 union all select v from t where id < 0",
    "select v, row_number() over (order by v) from t where id <= {n} / 1000",
    "with x as materialized (select v from t where id <= {n} / 1000) select v from x",
    "with recursive r(i, v) as (select 1, repeat('x', 1000) union all select i + 1, v from r "
    "where i < {n} / 1000) select v from r",
    "select v from t where id <= {n} / 1000 for update",
    "insert into w (v) select v from t where id <= {n} / 1000",
    "update t set n = 2 where id <= {n} / 1000",
    "delete from t where id <= {n} / 1000",
    "copy (select v from t where id <= {n} / 1000) to stdout",
)


@pytest.fixture(scope="module")
def filled(node: NodeProcess) -> Iterator[psycopg.Connection]:
    """A session that may hold LIMIT, and a table of 8 MiB."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum"
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
        connection.execute("create database memories")
    with psycopg.connect(f"{address} dbname=memories", autocommit=True) as connection:
        connection.execute("create table t (id int primary key, n int, v text)")
        connection.execute("create table w (id bigserial primary key, v text)")
        connection.execute(
            "insert into t select i, 1, i || repeat('v', 1000) from generate_series(1, 8000) i"
        )
        connection.execute(f"set statement_memory_bytes = {LIMIT}")
        yield connection


def ended(connection: psycopg.Connection, text: str) -> tuple[str, int]:
    """The SQLSTATE ("" = none) and the bytes of the answer, of a statement that changes nothing in
    the end; the session goes on.
    """
    size, failed = 0, None
    try:
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            if text.startswith("copy"):
                with cursor.copy(text.encode()) as copy:
                    size = sum(map(len, copy))
            else:
                cursor.execute(text.encode())
                if cursor.description is not None:
                    size = sum(len(str(row[0])) for row in cursor)
    except psycopg.Error as error:
        failed = error
    assert connection.execute("select 1").fetchall() == [(1,)]
    if failed is None:
        return "", size
    if failed.sqlstate == "53200":
        assert failed.diag.message_primary == "out of memory"
        assert failed.diag.message_detail
        assert failed.diag.message_hint
    return failed.sqlstate or repr(failed), size


@pytest.fixture(autouse=True)
def _nothing_left(node: NodeProcess) -> Iterator[None]:
    """Tables that a statement had read into files are gone with it, however it ended: what is
    mapped keeps memory and disk.
    """
    yield
    poll(lambda: ".arrow" not in Path(f"/proc/{node.spawned}/maps").read_text())


@pytest.mark.slow
@pytest.mark.cluster
@each("value", VALUES)
@pytest.mark.parametrize(
    "source", ["", "from t where id = 1", "from t a join t b using (id) where id = 1"]
)
def test_a_value_that_does_not_fit_is_refused(
    filled: psycopg.Connection, value: str, source: str
) -> None:
    """A function that grows a value without a look at its size takes all of a node's memory."""
    text = f"select length({value}) {source}"
    assert ended(filled, text.replace("{n}", str(SMALL)).replace("%%", "%"))[0] == ""
    assert ended(filled, text.replace("{n}", str(LARGE)).replace("%%", "%"))[0] == "53200"


@pytest.mark.few(2)
@pytest.mark.cluster
@pytest.mark.parametrize("text", ROWS)
def test_rows_that_have_to_be_held_are_refused(filled: psycopg.Connection, text: str) -> None:
    """An operator that holds rows without counting them takes all of a node's memory."""
    assert ended(filled, text.format(n=10_000))[0] == ""
    state, _ = ended(filled, text.format(n=LARGE))
    assert state == "53200"


@pytest.mark.few(3)
@pytest.mark.cluster
@pytest.mark.parametrize("text", SPILLED)
def test_rows_that_can_spill_or_stream_do(filled: psycopg.Connection, text: str) -> None:
    """A statement that PostgreSQL answers with little memory is refused."""
    state, size = ended(filled, text.format(n=LARGE))
    assert state == ""
    assert size == 0 or size >= LARGE * 0.9


@pytest.mark.few(1)
@pytest.mark.cluster
@pytest.mark.parametrize(
    "text",
    [
        "select array_agg(v) from t",  # what comes out of it is too large
        "select cardinality(array_agg(v)) from t",  # … for a function of ours
        "select v, 1 / (id - 7000) from t order by v || id",  # ends in the middle
        "select sum(length(repeat(v, 20000))) from t",  # again, with the list row by row
        "select * from t a, t b where a.v < b.v limit 10",  # ends before its rows do
        "insert into w (v) select v from t order by v || id || repeat('x', 10000)",
    ],
)
def test_what_a_query_has_read_goes_with_it(filled: psycopg.Connection, text: str) -> None:
    """The error of a query refers to itself, and keeps the tables that it had read."""
    for _ in range(3):
        with suppress(psycopg.Error), filled.transaction(force_rollback=True):
            filled.execute(text.encode())
    with filled.transaction(force_rollback=True):
        filled.execute("declare c cursor for select v || id from t order by v || id")
        filled.execute("fetch 5 from c")
        with suppress(psycopg.errors.QueryCanceled), filled.transaction():
            filled.execute("set local statement_timeout = 50")
            filled.execute("select count(*) from t a, t b, t c where a.v < b.v || c.v")


BEHIND_A_SAVEPOINT = (
    "copy w (v) from stdin",
    "insert into w (v) select repeat(v, 5) from t",
    "update t set v = repeat(v, 5)",
    "update t set n = n + 1; " * 4 + "update t set n = n + 1",
    "delete from t; insert into t select i, 1, repeat('v', 5000) from generate_series(1, 8000) i",
)


@pytest.mark.few(1)
@pytest.mark.cluster
@pytest.mark.parametrize("text", BEHIND_A_SAVEPOINT)
def test_what_cannot_spill_is_refused(filled: psycopg.Connection, text: str) -> None:
    """What is written behind a savepoint stays in memory, and nobody counts it while it is."""
    with filled.transaction(force_rollback=True):
        with pytest.raises(psycopg.errors.OutOfMemory), filled.transaction():
            changed(filled, text, 8_000)
        changed(filled, "copy w (v) from stdin", 100)
        count = filled.execute("select count(*), max(length(v)) from w").fetchall()
        assert count == [(100, 5_000)]
    with filled.transaction(force_rollback=True):  # a transaction alone goes to a file
        changed(filled, "copy w (v) from stdin", 8_000)
        assert filled.execute("select count(*) from w").fetchall() == [(8_000,)]


def changed(connection: psycopg.Connection, text: str, rows: int) -> None:
    """COPY: of so many rows of 5,000 bytes."""
    with connection.cursor() as cursor:
        if not text.startswith("copy"):
            for one in text.split("; "):
                cursor.execute(one.encode())
            return
        with cursor.copy(text.encode()) as copy:
            for _ in range(rows // 100):
                copy.write((b"v" * 5_000 + b"\n") * 100)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_copy_of_any_length_streams(filled: psycopg.Connection) -> None:
    """What COPY holds of rows that it has sent on counts, or a row of megabytes does not."""
    try:
        changed(filled, "copy w (v) from stdin", 4_000)
        assert filled.execute("select count(*) from w").fetchall() == [(4_000,)]
        with (
            pytest.raises(psycopg.errors.OutOfMemory),
            filled.cursor() as cursor,
            cursor.copy("copy w (v) from stdin") as copy,
        ):
            copy.write(b"v" * (2 * MIB))
        assert filled.execute("select count(*) from w").fetchall() == [(4_000,)]
    finally:
        filled.execute("delete from w")


@pytest.mark.cluster
def test_cursors_hold_what_is_theirs_until_they_are_closed(filled: psycopg.Connection) -> None:
    """Rows of a cursor WITH HOLD are forgotten in the account, or for ever kept in it."""
    for _ in range(3):
        filled.execute("declare c cursor with hold for select v from t where id <= 2500")
        with pytest.raises(psycopg.errors.OutOfMemory):
            filled.execute("declare d cursor with hold for select v from t where id <= 2500")
        filled.execute("close c")
    with pytest.raises(psycopg.errors.OutOfMemory):
        filled.execute("declare c cursor with hold for select v from t")
    with filled.transaction():
        filled.execute("declare c cursor for select v from t")
        assert len(filled.execute("fetch 1000 from c").fetchall()) == 1000
        with pytest.raises(psycopg.errors.OutOfMemory), filled.transaction():
            filled.execute("fetch all from c")


@pytest.mark.cluster
def test_the_limit_is_a_setting_of_the_session(filled: psycopg.Connection) -> None:
    """SET LOCAL does not end with its transaction, or a unit is not understood."""
    with filled.transaction():
        filled.execute("set local statement_memory_bytes = '64MB'")
        assert filled.execute("show statement_memory_bytes").fetchall() == [(str(64 * MIB),)]
        filled.execute(f"select length(repeat('x', {LARGE}))")
    assert filled.execute("show statement_memory_bytes").fetchall() == [(str(LIMIT),)]
    with pytest.raises(psycopg.errors.OutOfMemory):
        filled.execute(f"select length(repeat('x', {LARGE}))")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        filled.execute("set statement_memory_bytes = 10")


@pytest.mark.slow
@pytest.mark.cluster
def test_changes_see_the_rows_as_they_were(sql: Sql) -> None:
    """A change that is written while its rows are read meets what it wrote itself."""
    with sql.connect(autocommit=True) as connection:
        connection.execute("create table t (id int primary key, n int, v text)")
        connection.execute(
            "insert into t select i, 0, repeat('v', 1000) from generate_series(1, 5000) i"
        )
        with connection.transaction():
            connection.execute("update t set n = 1 where id = 1")
            done = connection.execute("insert into t select id + 20000, n + 1, v from t")
            assert done.rowcount == 5000
            done = connection.execute("update t set id = id + 100000, n = n + 1")
            assert done.rowcount == 10000
        found = connection.execute("select n, count(*) from t group by n order by n").fetchall()
        assert found == [(1, 4999), (2, 5000), (3, 1)]
        assert connection.execute("delete from t where n > 0").rowcount == 10000


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "select repeat('x', 1000000 + i) from generate_series(1, 2000) i",
        "select repeat('x', 1000000) from generate_series(1, 2000)",
        "select count(*) from (select repeat('x', 1000000 + i) r "
        "from generate_series(1, 9000) i) s where length(r) > 5",
        "select length(string_agg(repeat('x', 1000000), ',')) from generate_series(1, 9000)",
        "select length(v || v || v || v) from "
        "(select repeat('x', 16000000 + n) v from t limit 1) s",
        "select v, i from (select repeat('x', 10000000) v from t limit 1) s, "
        "generate_series(1, 2000) i",
        "select array_fill(1, array[1000000]) from generate_series(1, 2000) limit 5",
        "select array[repeat('x', 1000000), repeat('y', 1000000)] from generate_series(1, 50)",
        "select lpad('x', 1000000), to_json(rpad('x', 1000000)) from generate_series(1, 250)",
        "select repeat('x', 1000000)::bytea from generate_series(1, 250)",
        "select wide from (select string_agg(v, '') as wide from t) s, generate_series(1, 2000)",
        "insert into w (v) select repeat('z', 1000) || i from generate_series(1, 300000) i",
        "update t set n = n + 1",
    ],
)
def test_a_node_stays_small_and_becomes_so_again(
    filled: psycopg.Connection, node: NodeProcess, text: str
) -> None:
    """A statement takes gigabytes of a node, or a node keeps them."""
    stays_small(filled, node, text)


# over some hundred megabytes of rows
OPERATORS = (
    "select length(string_agg(v || i, ',')) {rows}",
    "select cardinality(array_agg(v || i)) {rows}",
    "select array_agg(i) from generate_series(1, 30000000) i",
    "select length(jsonb_agg(v || i)::text) {rows}",
    "select count(distinct v || i) {rows}",
    "select percentile_disc(0.5) within group (order by v || i) {rows}",
    "select i, cardinality(array_agg(v || i)) {rows} group by 1",
    "select v || i, count(*) {rows} group by 1",
    "select v || i {rows} order by 1",
    "select v || i {rows} union select v || i || 'x' {rows}",
    "select v || i, row_number() over (order by v || i) {rows}",
    "with x as materialized (select v || i as w {rows}) select count(*) from x join x y using (w)",
    "select v || i, lag(v || i) over (partition by i order by id) {rows}",
    "declare c cursor with hold for select v || i {rows}",
    "insert into w (v) select v || i {rows}",
    "insert into w (v) select v || i {rows} returning v",
    "update t set v = v || v returning v",
    "delete from t returning repeat(v, 40)",
)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("text", OPERATORS)
def test_whatever_holds_rows_gives_them_back_however_it_ends(
    filled: psycopg.Connection, node: NodeProcess, text: str
) -> None:
    """An operator holds rows that nobody counts, or keeps them when it fails or is cancelled."""
    text = text.replace("{rows}", "from t, generate_series(1, 30) i")
    stays_small(filled, node, text)
    stays_small(filled, node, text, timeout_ms=2_000)


def stays_small(
    connection: psycopg.Connection, node: NodeProcess, text: str, timeout_ms: int = 0
) -> None:
    """The node does while it runs, and is afterwards what it was; `timeout_ms`: it is ended."""
    pid = node.spawned
    connection.execute("set statement_memory_bytes = '256MB'")
    connection.execute("select 1")
    before = resident_bytes(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    errors = psycopg.errors
    with (
        suppress(errors.OutOfMemory, errors.ProgramLimitExceeded, errors.QueryCanceled),
        connection.transaction(force_rollback=True),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"set local statement_timeout = {timeout_ms}".encode())
        if text.startswith(("select", "with")):
            for _ in cursor.stream(text.encode()):
                pass
        else:
            cursor.execute(text.encode())
    peak = int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10
    assert peak - before < 900 * MIB
    poll(lambda: resident_bytes(pid) - before < 300 * MIB)
    connection.execute(f"set statement_memory_bytes = {LIMIT}")
