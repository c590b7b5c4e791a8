"""Every way to read a table gives the same rows, whatever was done to it: row by row, by columns
for DuckDB, by COPY; of now, of a moment before, and with what the transaction itself has written.

    python -m tests.clients.sql.test_scans_agree DSN FIRST COUNT      more seeds, against a node
                                                                      that runs
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

_TEXTS = ("", "a", "'", "\\N", "x" * 300, "é€😀", "tab\there", 'q"uote', "null")
_DRAW: dict[str, Callable[[random.Random], str]] = {
    "int2": lambda r: str(r.choice([0, -1, 32767, -32768, r.randrange(100)])),
    "int4": lambda r: str(r.choice([0, 2147483647, -2147483648, r.randrange(1000)])),
    "int8": lambda r: str(r.choice([0, 9223372036854775807, -9223372036854775808, 5])),
    "float8": lambda r: r.choice(["0", "-0.0", "NaN", "Infinity", "-Infinity", "1e-300", "1.5"]),
    "float4": lambda r: r.choice(["0", "NaN", "3.4e38", "-0.1", "16777217"]),
    "numeric": lambda r: r.choice(["0", "1.50", "-99999999999999999999.000001", "NaN", "1e20"]),
    "numeric(9,2)": lambda r: r.choice(["0", "-1.25", "9999999.99", "12.345"]),
    "bool": lambda r: r.choice(["t", "f"]),
    "text": lambda r: r.choice(_TEXTS),
    "varchar(400)": lambda r: r.choice(_TEXTS),
    "char(4)": lambda r: r.choice(["", "a", "abcd", "é"]),
    "bytea": lambda r: r.choice(["\\x", "\\x00ff", "\\x" + "ab" * 100]),
    "date": lambda r: r.choice(["0001-01-01", "1970-01-01", "9999-12-31", "2024-02-29"]),
    "time": lambda r: r.choice(["00:00", "23:59:59.999999", "12:30:00.5"]),
    "timestamp": lambda r: r.choice(["0001-01-01 00:00", "1999-12-31 23:59:59.999999"]),
    "timestamp(2)": lambda r: r.choice(["2024-01-01 00:00:00.005", "1960-01-01 00:00:00.995"]),
    "timestamptz": lambda r: r.choice(["2024-07-01 12:00+02", "9999-12-31 12:00Z"]),
    "interval": lambda r: r.choice(["0", "1 year -3 days 00:00:01.5", "-1 mon", "1000000:00:00"]),
    "uuid": lambda r: f"{r.getrandbits(128):032x}",
    "jsonb": lambda r: r.choice(["null", "1.50", '{"b": [1, null], "a": "é"}', '"x"']),
    "json": lambda r: r.choice(["null", '{"b":1,  "a":2}', "[ ]"]),
    "int4[]": lambda r: r.choice(["{}", "{1,NULL,3}", "{-2147483648}"]),
    "text[]": lambda r: r.choice(["{}", '{"a b",NULL,""}', '{"NULL","\\\\"}']),
    "mood": lambda r: r.choice(["sad", "so-so", "happy"]),
    "mood[]": lambda r: r.choice(["{}", "{sad,NULL}", "{happy,sad}"]),
}


class Table:
    """A table `s` that is changed at random. `rows`: ids that may be there."""

    def __init__(self, db: psycopg.Connection, rng: random.Random) -> None:
        self.db, self.rng = db, rng
        self.columns: dict[str, str] = {}
        self.made = self.last = 0
        key = rng.choice(["int4", "int8", "text"])
        db.execute(f"CREATE TABLE s (id {key} PRIMARY KEY)".encode())
        for _ in range(rng.randrange(1, 12)):
            self.add()

    def add(self) -> None:
        """A column, with a default or without: rows that are there do not have it."""
        kind = self.rng.choice(list(_DRAW))
        name, self.made = f"c{self.made}", self.made + 1
        default = f" DEFAULT '{self._drawn(kind)}'" if self.rng.random() < 0.5 else ""
        self.db.execute(f"ALTER TABLE s ADD COLUMN {name} {kind}{default}".encode())
        self.columns[name] = kind

    def drop(self) -> None:
        if len(self.columns) > 1:
            name = self.rng.choice(list(self.columns))
            self.db.execute(f"ALTER TABLE s DROP COLUMN {name}".encode())
            del self.columns[name]

    def insert(self, db: psycopg.Connection) -> None:
        names = [n for n in self.columns if self.rng.random() < 0.8]
        rows = []
        for _ in range(self.rng.choice([1, 3, 9, 200])):
            self.last += 1
            values = [f"'{self.last:06}'", *(self._value(self.columns[n]) for n in names)]
            rows.append(f"({', '.join(values)})")
        db.execute(
            f"INSERT INTO s (id{''.join(', ' + n for n in names)}) VALUES "
            f"{', '.join(rows)}".encode()
        )

    def update(self, db: psycopg.Connection) -> None:
        name = self.rng.choice(list(self.columns))
        db.execute(
            f"UPDATE s SET {name} = {self._value(self.columns[name])} WHERE {self._some()}".encode()
        )

    def delete(self, db: psycopg.Connection) -> None:
        db.execute(f"DELETE FROM s WHERE {self._some()}".encode())

    def _some(self) -> str:
        low = self.rng.randrange(self.last + 1)
        return f"id >= '{low:06}' AND id < '{low + self.rng.choice([1, 5, 60]):06}'"

    def _value(self, kind: str) -> str:
        return "NULL" if self.rng.random() < 0.2 else f"'{self._drawn(kind)}'"

    def _drawn(self, kind: str) -> str:
        return _DRAW[kind](self.rng).replace("'", "''")

    def change(self, db: psycopg.Connection) -> None:
        act = self.rng.choice([self.insert, self.insert, self.update, self.delete])
        act(db)


def _same(found: list[Any], wanted: list[Any], columns: list[str], what: str) -> None:
    """With the first difference, not with thousands of rows."""
    for row, other in zip(found, wanted, strict=False):
        for name, a, b in zip(["id", *columns], row, other, strict=True):
            assert a == b, f"{what}: {name} of {other[0]}: {a!r}, not {b!r}"
    assert len(found) == len(wanted), what


def agreed(db: psycopg.Connection, columns: list[str], at: str = "") -> list[Any]:
    """The rows, read in every way. `at`: an AS OF clause."""
    listed = ", ".join(f"{name}::text" for name in ["id", *columns])
    bare = ", ".join(["id", *columns])
    joined = ", ".join(f"s.{name}" for name in ["id", *columns])
    plain = db.execute(f"SELECT {listed} FROM s{at} ORDER BY s.id".encode()).fetchall()
    text = db.execute(
        f"SELECT {', '.join(f'q.{n}::text' for n in ['id', *columns])} FROM (SELECT {joined} "
        f"FROM s{at} JOIN (VALUES (1)) AS one(x) ON true) q ORDER BY q.id".encode()
    ).fetchall()
    _same(text, plain, columns, "DuckDB's columns")
    (count,) = db.execute(f"SELECT count(*) FROM s{at}".encode()).fetchone() or (None,)
    assert count == len(plain)
    if not at:
        told = db.pgconn.exec_(f"SELECT {bare} FROM s ORDER BY id".encode())
        found = [
            tuple(told.get_value(n, m) for m in range(told.nfields)) for n in range(told.ntuples)
        ]
        with db.cursor().copy(f"COPY (SELECT {bare} FROM s ORDER BY id) TO STDOUT".encode()) as c:
            lines = [tuple(None if v is None else v.encode() for v in row) for row in c.rows()]
        _same(lines, found, columns, "COPY's text")
        with db.cursor().copy("COPY s TO STDOUT") as c:
            whole = sorted(
                str(tuple(None if v is None else v.encode() for v in row)) for row in c.rows()
            )
        assert whole == sorted(map(str, found)), "the whole table by COPY"
    return plain


def attack(dsn: str, seed: int) -> None:
    rng = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC") as db:
        db.execute("DROP TABLE IF EXISTS s")
        if not db.execute("SELECT 1 FROM pg_type WHERE typname = 'mood'").fetchall():
            db.execute("CREATE TYPE mood AS ENUM ('sad', 'so-so', 'happy')")
        table = Table(db, rng)
        kept: list[tuple[str, list[str], list[Any]]] = []
        for _ in range(rng.randrange(8, 20)):
            doing = rng.random()
            if doing < 0.1:
                table.add()
                kept.clear()  # moments of other declarations are another matter
            elif doing < 0.2:
                table.drop()
                kept.clear()
            elif doing < 0.4:
                with db.transaction(force_rollback=rng.random() < 0.3):
                    for _ in range(rng.randrange(1, 5)):
                        table.change(db)
                    agreed(db, list(table.columns))
            else:
                table.change(db)
            rows = agreed(db, list(table.columns))
            if rng.random() < 0.3:
                (now,) = db.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
                kept.append((now, list(table.columns), rows))
        for now, columns, rows in kept:
            assert agreed(db, columns, f" AS OF SYSTEM TIME '{now}'") == rows, now
        db.execute("DROP TABLE s")


@pytest.mark.parametrize("seed", range(4))
def test_p1_every_way_to_read_gives_the_same_rows(db: psycopg.Connection, seed: int) -> None:
    """A page that ends inside of a row's versions, a column that is not in old rows, a NULL at a
    border of eight, or what the transaction wrote itself: somebody gets other rows than others.
    """
    info = db.info
    attack(f"host={info.host} port={info.port} user={info.user} dbname={info.dbname}", seed)


if __name__ == "__main__":
    where, first, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for one in range(first, first + number):
        try:
            attack(where, one)
        except (AssertionError, errors.Error) as error:
            sys.stdout.write(f"seed {one}: {type(error).__name__}: {str(error)[:1500]}\n")
    sys.stdout.write(f"{number} seeds\n")
