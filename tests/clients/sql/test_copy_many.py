"""COPY of many rows: sent while it comes, in one transaction (session/running/loading.py)."""

from __future__ import annotations

import os
import socket
from datetime import datetime

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

COLUMNS = (
    "id int8 PRIMARY KEY, v text, n int NOT NULL, x float8, at timestamp,"
    " no serial, part varchar(20) DEFAULT 'p'"
)
MANY = 12_000  # more than SQL_LOAD_ROWS_MIN


@pytest.fixture
def big(db: psycopg.Connection) -> psycopg.Connection:
    db.execute(f"CREATE TABLE big ({COLUMNS})")
    return db


def lines(numbers: list[int], *, separator: str = "\t", null: str = "\\N") -> bytes:
    cells = (
        (
            str(i),
            null if i % 7 == 0 else f"näme {i}",
            str(i % 1000),
            str(i / 4),
            "2026-01-31 12:00:00.250",
        )
        for i in numbers
    )
    return "".join(separator.join(row) + "\n" for row in cells).encode()


def load(conn: psycopg.Connection, data: bytes, options: str = "") -> None:
    text = f"COPY big (id, v, n, x, at) FROM STDIN {options}"
    with conn.cursor().copy(text) as copy:
        for at in range(0, len(data), 50_000):
            copy.write(data[at : at + 50_000])


def summary(conn: psycopg.Connection) -> object:
    return conn.execute(
        "SELECT count(*), sum(id), count(v), min(v), sum(n), sum(x), max(at), count(DISTINCT no),"
        " min(part) FROM big"
    ).fetchone()


def expected(numbers: list[int]) -> object:
    names = [f"näme {i}" for i in numbers if i % 7]
    return (
        len(numbers),
        sum(numbers),
        len(names),
        min(names),
        sum(i % 1000 for i in numbers),
        sum(i / 4 for i in numbers),
        datetime(2026, 1, 31, 12, 0, 0, 250_000),  # noqa: DTZ001
        len(numbers),
        "p",
    )


@pytest.mark.slow
@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_p10_copy_of_many_rows(big: psycopg.Connection, order: str) -> None:
    """Rows in any order, with NULLs, defaults and numbers of a sequence, are all there."""
    numbers = list(range(MANY))
    if order == "falling":
        numbers.reverse()
    elif order == "mixed":
        numbers = [i * 7_919 % 12_007 for i in range(12_007)]
    load(big, lines(numbers))
    assert summary(big) == expected(numbers)
    assert big.execute("SELECT v FROM big WHERE id = 5").fetchone() == ("näme 5",)
    last = sorted(numbers, key=lambda i: (-(i % 1000), i))[2:5]
    found = big.execute("SELECT id FROM big ORDER BY n DESC, id LIMIT 3 OFFSET 2").fetchall()
    assert found == [(i,) for i in last], "more rows than are sorted without DuckDB"


@pytest.mark.slow
def test_p10_copy_of_many_rows_in_csv_and_binary(sql: Sql, big: psycopg.Connection) -> None:
    """What goes out in any format comes in again."""
    numbers = list(range(MANY))
    load(big, lines(numbers, separator=",", null=""), "(FORMAT csv)")
    assert summary(big) == expected(numbers)
    for form in ("text", "csv", "binary"):
        big.execute(f"CREATE TABLE again ({COLUMNS})")
        out = f"COPY big TO STDOUT (FORMAT {form})"
        back = f"COPY again FROM STDIN (FORMAT {form})"
        with sql.connect(autocommit=True) as other:
            with big.cursor().copy(out) as copy:
                data = b"".join(bytes(part) for part in copy)
            with other.cursor().copy(back) as copy:
                copy.write(data)
            differing = "SELECT count(*) FROM (TABLE big EXCEPT TABLE again) AS d"
            assert other.execute(differing).fetchone() == (0,)
            assert other.execute("SELECT count(*) FROM again").fetchone() == (MANY,)
        big.execute("DROP TABLE again")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("numbers", "state"),
    [
        ([*range(MANY), 5], "23505"),  # in another batch
        ([*range(MANY), MANY + 1, MANY + 1], "23505"),  # in one batch
        ([*range(1, MANY), 0, 900_000], "23505"),  # there before
    ],
)
def test_p9_copy_of_a_key_that_is_there_or_comes_twice(
    big: psycopg.Connection, numbers: list[int], state: str
) -> None:
    """A second row with the key would replace the first, or vanish; and nothing may stay."""
    big.execute("INSERT INTO big (id, n) VALUES (900000, 1)")
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        load(big, lines(numbers))
    assert caught.value.sqlstate == state
    assert caught.value.diag.constraint_name == "big_pkey"
    assert caught.value.diag.message_detail is not None
    assert big.execute("SELECT id FROM big").fetchall() == [(900_000,)]
    load(big, lines(list(range(MANY))))
    assert big.execute("SELECT count(*) FROM big").fetchone() == (MANY + 1,)


@pytest.mark.slow
def test_p10_copy_that_fails_late_leaves_nothing(big: psycopg.Connection) -> None:
    """A line that is wrong behind thousands that were sent: PostgreSQL's words, and no rows."""
    wrong = lines(list(range(MANY))) + b"12000\tx\tseven\t1\t\\N\n"
    with pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught:
        load(big, wrong)
    assert caught.value.diag.context == f'COPY big, line {MANY + 1}, column n: "seven"'
    with pytest.raises(psycopg.errors.NotNullViolation):
        load(big, lines(list(range(MANY))) + b"12000\tx\t\\N\t1\t\\N\n")
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        load(big, lines(list(range(MANY))) + b"12000\tx\t3000000000\t1\t\\N\n")
    assert big.execute("SELECT count(*) FROM big").fetchone() == (0,)


@pytest.mark.slow
def test_p10_copy_with_indexes(big: psycopg.Connection) -> None:
    """Every row has its entries, and what is unique stays so."""
    big.execute("CREATE UNIQUE INDEX by_v ON big (v)")
    big.execute("CREATE INDEX by_n ON big (n)")
    load(big, lines(list(range(MANY))))
    assert big.execute("SELECT id FROM big WHERE v = 'näme 11999'").fetchall() == [(11_999,)]
    assert big.execute("SELECT count(*) FROM big WHERE n = 5").fetchone() == (12,)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        load(big, lines(list(range(20_000, 32_000))) + "50000\tnäme 20001\t1\t1\t\\N\n".encode())
    assert caught.value.diag.constraint_name == "by_v"
    assert big.execute("SELECT count(*) FROM big").fetchone() == (MANY,)


@pytest.mark.slow
def test_p10_copy_in_a_block_is_seen_and_rolled_back(big: psycopg.Connection) -> None:
    """What COPY wrote belongs to the transaction that it is in."""
    with big.transaction():
        load(big, lines(list(range(MANY))))
        assert big.execute("SELECT count(*) FROM big").fetchone() == (MANY,)
        raise psycopg.Rollback
    assert big.execute("SELECT count(*) FROM big").fetchone() == (0,)


@pytest.mark.slow
def test_p10_copy_that_is_canceled_leaves_nothing(sql: Sql, big: psycopg.Connection) -> None:
    """A client that ends its COPY, or leaves in the middle of it, has copied nothing."""
    data = lines(list(range(MANY)))
    text = "COPY big (id, v, n, x, at) FROM STDIN"

    def give_up(conn: psycopg.Connection) -> None:
        with conn.cursor().copy(text) as copy:
            copy.write(data)
            raise ZeroDivisionError

    def leave(conn: psycopg.Connection) -> None:
        with conn.cursor().copy(text) as copy:
            copy.write(data)
            with socket.socket(fileno=os.dup(conn.fileno())) as raw:
                raw.shutdown(socket.SHUT_RDWR)
            copy.write(data)

    with pytest.raises(ZeroDivisionError):
        give_up(big)
    with sql.connect(autocommit=True) as other, pytest.raises(psycopg.OperationalError):
        leave(other)
    assert big.execute("SELECT count(*) FROM big").fetchone() == (0,)
    load(big, data)
    assert big.execute("SELECT count(*) FROM big").fetchone() == (MANY,)


def test_p10_copy_of_the_rows_that_where_means(
    db: psycopg.Connection, big: psycopg.Connection
) -> None:
    """asyncpg's copy_records_to_table(where=…) was refused; or the tag counts what was not kept."""
    for numbers in (list(range(20)), list(range(20, 20 + MANY))):
        with db.cursor() as cursor:
            text = "COPY big (v, id, n, x, at) FROM STDIN WHERE big.id % 4 = 0 AND v IS NOT NULL"
            with cursor.copy(text) as copy:
                for row in lines(numbers).decode().splitlines():
                    number, name, *more = row.split("\t")
                    copy.write("\t".join((name, number, *more)) + "\n")
            kept = [i for i in numbers if i % 4 == 0 and i % 7]
            assert cursor.rowcount == len(kept)
    every = [i for i in range(20 + MANY) if i % 4 == 0 and i % 7]
    assert summary(db) == expected(every)
    with db.cursor() as cursor, cursor.copy("COPY big (id, n) FROM STDIN WHERE id < 0") as copy:
        copy.write("7\t1\n")
    assert db.execute("SELECT count(*) FROM big").fetchone() == (len(every),)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match='the default of column "part"'):
        db.cursor().copy("COPY big (id, n) FROM STDIN WHERE part = 'p'").__enter__()
