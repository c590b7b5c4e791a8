"""Which way a statement goes to its rows, and that no way changes an answer.

A condition inside `(…) IS TRUE`, and a column inside `coalesce(c, c)`, narrows and sorts nothing:
so every statement has a twin that reads everything, and both must answer alike.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from decimal import Decimal
from typing import Any, Final

import psycopg
import pytest

_KINDS: Final = {
    "int4": ["-1", "0", "1", "2", "3", "2147483647"],
    "text": ["''", "'a'", "'B'", "'ab'", "'é'", "'a b'"],
    "numeric": ["0", "1.5", "1.50", "-2", "'NaN'", "100"],
    "timestamptz": ["'2026-01-01 00:00Z'", "'2026-01-01 02:00+02'", "'2025-06-01 12:00Z'"],
    "uuid": [f"'00000000-0000-0000-0000-00000000000{n}'" for n in (1, 2, 9)],
}
_COLUMNS: Final = {"a": "int4", "b": "int4", "c": "text", "d": "numeric", "e": "timestamptz"}


class _Tables:
    """Random declarations, rows, conditions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = dict(_COLUMNS)
        if seed % 2:
            self.columns["e"] = "uuid"
        names = list(self.columns)
        self.key = self.random.sample(names, self.random.choice((1, 2, 2)))

    def statements(self) -> list[str]:
        chance = self.random
        listed = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        found = [f"CREATE TABLE t (id int, {listed}, PRIMARY KEY ({', '.join(self.key)}, id))"]
        for number in range(3):
            columns = chance.sample(list(self.columns), chance.choice((1, 2, 3)))
            parts = [
                f"{one} {chance.choice(('', 'DESC'))} "
                f"{chance.choice(('', 'NULLS FIRST', 'NULLS LAST'))}"
                for one in columns
            ]
            where = f" WHERE {self.simple()}" if chance.random() < 0.2 else ""
            found.append(f"CREATE INDEX t_{number} ON t ({', '.join(parts)}){where}")
        found.append("CREATE UNIQUE INDEX t_unique ON t (id, a)")
        return found

    def value(self, name: str, *, null: float = 0.0) -> str:
        if self.random.random() < null:
            return "NULL"
        kind = self.columns.get(name, "int4")
        return f"{self.random.choice(_KINDS[kind])}::{kind}"

    def row(self, number: int) -> str:
        values = [self.value(name, null=0.0 if name in self.key else 0.2) for name in self.columns]
        return f"({number}, {', '.join(values)})"

    def simple(self) -> str:
        name = self.random.choice([*self.columns, "id"])
        operator = self.random.choice(("=", "=", "<", "<=", ">", ">="))
        return f"{name} {operator} {self.value(name)}"

    def condition(self) -> str:
        chance, names = self.random, [*self.columns, "id"]
        match chance.randrange(8):
            case 0:
                name = chance.choice(names)
                values = [self.value(name, null=0.1) for _ in range(chance.choice((1, 2, 3)))]
                return f"{name} IN ({', '.join(values)})"
            case 1 | 2:
                some = chance.sample(names, chance.choice((2, 2, 3)))
                if chance.random() < 0.5:
                    some = [*self.key, "id"]
                values = [self.value(name, null=0.1) for name in some]
                operator = chance.choice(("<", "<=", ">", ">=", "="))
                return f"({', '.join(some)}) {operator} ({', '.join(values)})"
            case 3:
                arms = [
                    " AND ".join(self.simple() for _ in range(chance.choice((1, 1, 2))))
                    for _ in range(chance.choice((2, 3)))
                ]
                return "(" + " OR ".join(f"({arm})" for arm in arms) + ")"
            case 4:
                return f"{chance.choice(names)} IS {chance.choice(('', 'NOT '))}NULL"
            case 5:
                return f"c LIKE {chance.choice(_KINDS['text'])[:-1]}%%'"
            case _:
                return self.simple()

    def where(self) -> str:
        return " AND ".join(self.condition() for _ in range(self.random.choice((1, 1, 2, 3))))

    def order(self) -> tuple[str, str]:
        """ORDER BY all of a row, and the same as no key gives it."""
        chance = self.random
        names = chance.sample(list(self.columns), chance.choice((0, 1, 2)))
        names += [name for name in (*self.key, "id") if name not in names]
        down = chance.random() < 0.4
        parts = []
        for name in names:
            turned = down if chance.random() < 0.9 else not down
            nulls = chance.choice(("", "", " NULLS FIRST", " NULLS LAST"))
            parts.append((name, f"{' DESC' if turned else ''}{nulls}"))
        return (
            ", ".join(name + way for name, way in parts),
            ", ".join(f"coalesce({name}, {name}){way}" for name, way in parts),
        )


def _pairs(tables: _Tables) -> list[tuple[str, str]]:
    """A statement and its twin."""
    chance, where = tables.random, tables.where()
    order, hidden = tables.order()
    bound = chance.choice(("", " LIMIT 3", " LIMIT 5 OFFSET 2"))
    name = chance.choice(list(tables.columns))
    least = chance.choice(("min", "max"))
    if tables.columns[name] == "uuid":  # of which PostgreSQL has neither
        name = "id"
    of = f"coalesce({name}, {name})"
    some = chance.sample([*tables.columns, "id"], chance.choice((1, 2, 2)))
    listed = ", ".join(some)
    equal = [f"{one} = {tables.value(one)}" for one in some[: chance.choice((0, 1, 2))]]
    narrow = " AND ".join([*equal, chance.choice((f"{some[0]} IS NULL", tables.simple(), "true"))])
    return [
        (
            f"SELECT * FROM t WHERE {where} ORDER BY {order}{bound}",
            f"SELECT * FROM t WHERE ({where}) IS TRUE ORDER BY {hidden}{bound}",
        ),
        (
            f"SELECT id FROM t WHERE {where} ORDER BY id",
            f"SELECT id FROM t WHERE ({where}) IS TRUE ORDER BY coalesce(id, id)",
        ),
        (
            f"SELECT count(*) FROM t WHERE {where}",
            f"SELECT count(*) FROM t WHERE ({where}) IS TRUE",
        ),
        (
            f"SELECT {least}({name}) FROM t WHERE {where}",
            f"SELECT {least}({of}) FROM t WHERE ({where}) IS TRUE",
        ),
        (f"SELECT {least}({name}) FROM t", f"SELECT {least}({of}) FROM t"),
        (
            f"SELECT DISTINCT {name} FROM t ORDER BY {name} LIMIT 3",
            f"SELECT {name} FROM t GROUP BY {name} ORDER BY {of} LIMIT 3",
        ),
        (
            f"SELECT DISTINCT {listed} FROM t WHERE {narrow} ORDER BY {listed} LIMIT 9",
            f"SELECT {listed} FROM t WHERE ({narrow}) IS TRUE GROUP BY {listed} "
            f"ORDER BY {listed} LIMIT 9",
        ),
    ]


def _seen(row: tuple[object, ...]) -> list[object]:
    """Numerics without a scale, of which each of several equal ones may be the answer."""
    return [str(one.normalize()) if isinstance(one, Decimal) else one for one in row]


def _same(db: psycopg.Connection, statement: str, twin: str) -> None:
    found, wanted = (
        db.execute(text.replace("%%", "%").encode()).fetchall() for text in (statement, twin)
    )
    if list(map(_seen, found)) != list(map(_seen, wanted)):
        plan = [
            row[0]
            for row in db.execute(f"EXPLAIN (COSTS OFF) {statement}".replace("%%", "%").encode())
        ]
        raise AssertionError((statement, plan, found, wanted))


def _change(tables: _Tables) -> tuple[str, str]:
    """An UPDATE or DELETE of few rows or of most, and its twin."""
    chance = tables.random
    where = chance.choice((tables.where(), tables.simple(), "id >= 0", "(id > 40 OR id < 33)"))
    others = [name for name in tables.columns if name not in tables.key]
    one, two = chance.sample(others, 2)
    key = chance.choice(tables.key)
    assigned = chance.choice(
        (
            f"{one} = {tables.value(one, null=0.2)}",
            f"{one} = {tables.value(one)}, {two} = DEFAULT",
            f"{key} = {tables.value(key)}",
            "id = id + 1000",
            f"id = id + 1000, {two} = {tables.value(two)}",
            "id = 7",  # which a row is already
            "b = a" if "b" in others else f"{one} = {one}",
        )
    )
    change = chance.choice((f"UPDATE t SET {assigned} WHERE", "DELETE FROM t WHERE"))
    return f"{change} {where} RETURNING *", f"{change} ({where}) IS TRUE RETURNING *"


def _done(db: psycopg.Connection, change: str, *, keep: bool) -> tuple[object, ...]:
    """What it returned, and which rows are there then; or what was wrong."""
    found: tuple[object, ...]
    try:
        with db.transaction(force_rollback=not keep):
            returned = db.execute(change.replace("%%", "%").encode()).fetchall()
            there = db.execute(b"SELECT * FROM t").fetchall()
            found = tuple(sorted(map(str, map(_seen, some))) for some in (returned, there))
    except psycopg.Error as error:
        found = (error.sqlstate,)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_a_way_changes_no_answer(sql: Any, seed: int) -> None:
    """A way loses or repeats a row, or sorts it wrongly: also one that the transaction wrote."""
    tables = _Tables(seed)
    with sql.connect(autocommit=True) as db:
        for text in tables.statements():
            db.execute(text.encode())
        rows = ", ".join(tables.row(number) for number in range(60))
        db.execute(f"INSERT INTO t VALUES {rows}".encode())
        for _ in range(5):
            for statement, twin in _pairs(tables):
                _same(db, statement, twin)
        with db.transaction(force_rollback=True):
            rows = ", ".join(tables.row(number) for number in range(100, 120))
            db.execute(f"INSERT INTO t VALUES {rows}".encode())
            db.execute(f"DELETE FROM t WHERE {tables.simple()} AND id < 30".encode())
            db.execute(f"UPDATE t SET id = id + 1000 WHERE {tables.simple()}".encode())
            for _ in range(3):
                for statement, twin in _pairs(tables):
                    _same(db, statement, twin)
        for _ in range(4):
            change, twin = _change(tables)
            with db.transaction(force_rollback=True):
                wanted = _done(db, twin, keep=False)
                assert _done(db, change, keep=True) == wanted, change
                for pair in _pairs(tables)[:4]:
                    _same(db, *pair)
        _done(db, _change(tables)[0], keep=True)
        for pair in _pairs(tables):
            _same(db, *pair)
        where = tables.where().replace("%%", "%")
        counted = f"SELECT count(*) FROM t WHERE ({where}) IS TRUE".encode()
        wanted = db.execute(counted).fetchall()[0][0]
        assert db.execute(f"DELETE FROM t WHERE {where}".encode()).rowcount == wanted
        assert db.execute(counted).fetchall() == [(0,)]


_DECLARED: Final = (
    "CREATE TABLE p (g int, id int, v int, s text, t timestamptz, n numeric, PRIMARY KEY (g, id))",
    "CREATE INDEX p_v ON p (v)",
    "CREATE INDEX p_s ON p (s DESC, v)",
    "CREATE UNIQUE INDEX p_u ON p (t, n)",
    "CREATE INDEX p_few ON p (id) WHERE v > 100",
)
_SCAN: Final = "Seq Scan on p"
_PLANS: Final = {
    # the primary key: points, prefixes, ranges of several columns
    "SELECT * FROM p": _SCAN,
    "SELECT * FROM p WHERE g = 1 AND id = 2": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE g = 1": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE g > 1": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE id = 1": _SCAN,
    "SELECT * FROM p WHERE g IN (1, 2) AND id > 3": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE (g, id) > (1, 2)": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE (1, 2) >= (g, id)": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE (id, g) > (1, 2)": _SCAN,
    "SELECT * FROM p WHERE (g, id) IN ((1, 2), (3, 4))": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE g = 1 OR g = 2 AND id > 3": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE g = 1 OR id = 3": _SCAN,
    # indexes, whose entries end with the key
    "SELECT * FROM p WHERE v = 1": "Index Scan using p_v on p",
    "SELECT * FROM p WHERE v = 1 AND g > 2": "Index Scan using p_v on p",
    "SELECT * FROM p WHERE (v, g) > (1, 2)": "Index Scan using p_v on p",
    "SELECT * FROM p WHERE v IS NULL": "Index Scan using p_v on p",
    "SELECT * FROM p WHERE v IS NOT NULL": "Index Scan using p_v on p",
    "SELECT * FROM p WHERE s = 'x' AND v > 1": "Index Scan using p_s on p",
    "SELECT * FROM p WHERE (s, v) > ('x', 1)": "Index Scan using p_s on p",
    "SELECT * FROM p WHERE s LIKE 'x%'": "Index Scan using p_s on p",
    "SELECT * FROM p WHERE t = now() AND n = 1": "Index Scan using p_u on p",
    "SELECT * FROM p WHERE t IS NULL": "Index Scan using p_u on p",
    "SELECT * FROM p WHERE id = 3 AND v > 200": "Index Scan using p_few on p",
    "SELECT * FROM p WHERE v + 1 = 2": _SCAN,
    # entries alone
    "SELECT g, id, v FROM p WHERE v = 1": "Index Only Scan using p_v on p",
    "SELECT g FROM p WHERE s = 'x' AND v > 1": "Index Only Scan using p_s on p",
    "SELECT n FROM p WHERE t = now()": "Index Scan using p_u on p",
    "SELECT count(*) FROM p WHERE v = 1": "DuckDB (Select) / Index Only Scan using p_v on p",
    # several ways
    "SELECT * FROM p WHERE v = 1 OR s = 'x'": (
        "Append / Index Scan using p_v on p / Index Scan using p_s on p"
    ),
    "SELECT * FROM p WHERE v = 1 OR g = 2 OR v = 3": (
        "Append / Index Scan using p_v on p / Index Scan using p_pkey on p"
    ),
    "SELECT * FROM p WHERE g = 1 AND (v = 1 OR s = 'x')": "Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE v = 1 OR n = 2": _SCAN,
    "DELETE FROM p WHERE v = 1 OR s = 'x'": (
        "Delete on p / Append / Index Scan using p_v on p / Index Scan using p_s on p"
    ),
    "UPDATE p SET n = 1 WHERE (g, id) < (1, 2)": "Update on p / Index Scan using p_pkey on p",
    "DELETE FROM p WHERE g IN (1, 2) AND id < 3": "Delete on p / Index Scan using p_pkey on p",
    # what is sorted already
    "SELECT * FROM p ORDER BY g, id LIMIT 3": "Limit / Seq Scan on p",
    "SELECT * FROM p ORDER BY g DESC, id DESC LIMIT 3": "Limit / Seq Scan Backward on p",
    "SELECT * FROM p ORDER BY g DESC, id LIMIT 3": "Limit / Sort (in memory) / Seq Scan on p",
    "SELECT * FROM p WHERE (g, id) < (1, 2) ORDER BY g DESC, id DESC LIMIT 3": (
        "Limit / Index Scan Backward using p_pkey on p"
    ),
    "SELECT * FROM p WHERE g > 1 OR g = 1 AND id > 2 ORDER BY g, id LIMIT 3": (
        "Limit / Index Scan using p_pkey on p"
    ),
    "SELECT * FROM p WHERE g = 1 ORDER BY id LIMIT 3": "Limit / Index Scan using p_pkey on p",
    "SELECT * FROM p WHERE g IN (1, 2) ORDER BY g, id LIMIT 3": (
        "Limit / Index Scan using p_pkey on p"
    ),
    "SELECT * FROM p WHERE g IN (1, 2) ORDER BY id LIMIT 3": (
        "Limit / Sort (in memory) / Index Scan using p_pkey on p"
    ),
    "SELECT * FROM p ORDER BY v, g, id LIMIT 3": "Limit / Index Scan using p_v on p",
    "SELECT * FROM p WHERE v = 1 ORDER BY g, id LIMIT 3": "Limit / Index Scan using p_v on p",
    "SELECT * FROM p ORDER BY v DESC LIMIT 3": "Limit / Index Scan Backward using p_v on p",
    "SELECT * FROM p ORDER BY v DESC NULLS LAST LIMIT 3": (
        "Limit / Sort (in memory) / Seq Scan on p"
    ),
    "SELECT * FROM p WHERE v > 0 ORDER BY v DESC NULLS LAST LIMIT 3": (
        "Limit / Index Scan Backward using p_v on p"
    ),
    "SELECT * FROM p ORDER BY s DESC, v LIMIT 3": "Limit / Index Scan using p_s on p",
    "SELECT * FROM p ORDER BY s, v LIMIT 3": "Limit / Sort (in memory) / Seq Scan on p",
    "SELECT * FROM p WHERE v = 1 OR s = 'x' ORDER BY v LIMIT 3": (
        "Limit / Sort (in memory) / Append / Index Scan using p_v on p / Index Scan using p_s on p"
    ),
    # ends, and one of each
    "SELECT max(g) FROM p": "Result / Limit / Index Scan Backward using p_pkey on p",
    "SELECT min(v), max(v) FROM p": (
        "Result / Limit / Index Only Scan using p_v on p"
        " / Limit / Index Only Scan Backward using p_v on p"
    ),
    "SELECT max(s) FROM p WHERE s < 'n5'": "Result / Limit / Index Only Scan using p_s on p",
    "SELECT max(id) FROM p WHERE g = 3": "Result / Limit / Index Scan Backward using p_pkey on p",
    "SELECT max(v) FROM p WHERE n = 3": "DuckDB (Select) / Seq Scan on p",
    "SELECT max(n) FROM p": "DuckDB (Select) / Seq Scan on p",
    "SELECT DISTINCT g FROM p ORDER BY g LIMIT 3": "Limit / Unique / Seq Scan on p",
    "SELECT DISTINCT v FROM p ORDER BY v DESC LIMIT 3": (
        "Limit / Unique / Index Only Scan Backward using p_v on p"
    ),
    "SELECT DISTINCT s, v FROM p LIMIT 3": "DuckDB (Select) / Seq Scan on p",
    "SELECT DISTINCT id FROM p WHERE g = 3 LIMIT 3": (
        "Limit / Unique / Index Scan using p_pkey on p"
    ),
}


def _plan(db: psycopg.Connection, statement: str) -> str:
    lines = [
        row[0].strip() for row in db.execute(f"EXPLAIN (COSTS OFF) {statement}".encode()).fetchall()
    ]
    return " / ".join(line for line in lines if ": " not in line and line[0] != "…")


def test_the_way_of_each_statement(sql: Any) -> None:
    """A statement that was quick reads everything after a change of the planner."""
    with sql.connect(autocommit=True) as db:
        for text in _DECLARED:
            db.execute(text.encode())
        found = {statement: _plan(db, statement) for statement in _PLANS}
        assert {k: v for k, v in found.items() if v != _PLANS[k]} == {}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM r WHERE a = 1 AND b = 77",
        "SELECT b FROM r WHERE a = 1 AND b = 77 AND id > 0",
        "SELECT max(id), min(b) FROM r WHERE a = 1 AND b = 77",
        "SELECT * FROM r WHERE a < 2 AND b BETWEEN 70 AND 77",
        "SELECT * FROM r WHERE id > 1 AND b > 1990",
        "UPDATE r SET id = id + 5000 WHERE a = 1 AND b = 77",
        "DELETE FROM r WHERE a = 1 AND b = 77",
    ],
)
def test_of_keys_that_are_as_good_that_with_fewer_entries_is_read(sql: Any, statement: str) -> None:
    """A condition that all rows meet has an index, too: every row is looked up by it."""
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE r (id int PRIMARY KEY, a int, b int)")
        db.execute("CREATE INDEX r_a ON r (a)")
        db.execute("CREATE INDEX r_b ON r (b)")
        db.execute("INSERT INTO r SELECT i, 1, i FROM generate_series(1, 2000) i")
        lines = [row[0].strip() for row in db.execute(f"EXPLAIN (COSTS OFF) {statement}".encode())]
        assert "Or, with fewer entries: Index Scan using r_b on r" in lines
        analyzed = db.execute(f"EXPLAIN ANALYZE {statement}".encode()).fetchall()
        (read,) = [row[0] for row in analyzed if row[0].startswith("Read: ")]
        gets, rows = (int(n) for n in re.findall(r"(\d+) gets, (\d+) rows", read)[0])
        assert gets <= 20
        assert rows <= 130


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM w WHERE (g, id) > (5, 1) ORDER BY g, id LIMIT 2",
        "SELECT * FROM w WHERE g = 5 AND id > 1 OR v = 77",
        "SELECT id FROM w WHERE v = 77",
        "SELECT max(v) FROM w",
        "SELECT DISTINCT g FROM w ORDER BY g DESC LIMIT 1",
        "SELECT count(*) FROM w WHERE v > 50",
        "SELECT 1 FROM w a JOIN w b ON b.v = a.v + 76 WHERE a.g = 0 AND a.id = 0",
    ],
)
def test_what_a_way_did_not_find_holds_until_the_commit(sql: Any, query: str) -> None:
    """A row comes where a narrow way looked, and both transactions commit: write skew."""
    with sql.connect() as one, sql.connect() as other, sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE w (g int, id int, v int, PRIMARY KEY (g, id))")
        db.execute("CREATE INDEX w_v ON w (v)")
        db.execute("CREATE TABLE log (id int PRIMARY KEY)")
        db.execute("INSERT INTO w SELECT i % 5, i, i + 1 FROM generate_series(0, 20) i")
        for connection in (one, other):
            connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        before = one.execute(query.encode()).fetchall()
        one.execute("INSERT INTO log VALUES (1)")
        assert other.execute("SELECT * FROM log").fetchall() == []
        other.execute("INSERT INTO w VALUES (5, 100, 77)")
        other.commit()
        assert db.execute(query.encode()).fetchall() != before
        with pytest.raises(psycopg.errors.SerializationFailure):
            one.commit()


def _joins(chance: random.Random) -> list[tuple[str, str]]:
    """Statements of two tables; in the twin no condition of the one says anything of the other."""
    column = chance.choice(("k", "v", "w"))
    other = chance.choice(("id", "x", "y"))
    few = chance.choice(("a.k < 3", "a.k = 4", "a.v = 2", "a.w IS NULL", "true"))
    more = chance.choice(("", " AND a.v = b.y", " AND b.y > 1", " AND a.w = b.x"))
    kind = chance.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    equal = f"a.{column} = b.{other}"
    compare = chance.choice(("=", "<>", "<"))
    shapes = [
        f"SELECT a.k, b.id FROM a {kind} b ON @{equal}@{more} WHERE {few} ORDER BY 1, 2",
        f"SELECT a.k, b.id FROM a {kind} b ON a.k = b.id WHERE @{equal}@ AND {few} ORDER BY 1, 2",
        f"SELECT a.k, b.id FROM a, b WHERE @{equal}@{more} AND {few} ORDER BY 1, 2",
        f"SELECT b.id FROM b WHERE @{other} IN (SELECT {column} FROM a WHERE {few})@ ORDER BY 1",
        f"SELECT b.id FROM b WHERE @{other} NOT IN (SELECT {column} FROM a WHERE {few})@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @EXISTS (SELECT FROM a WHERE {equal} AND {few})@ ORDER BY 1",
        f"SELECT b.id FROM b WHERE @NOT EXISTS (SELECT FROM a WHERE {equal} AND {few})@ ORDER BY 1",
        f"SELECT b.id FROM b WHERE @EXISTS (SELECT max(k) FROM a WHERE @{equal}@ AND {few})@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @EXISTS (SELECT FROM a LEFT JOIN b c ON c.id = b.x "
        f"WHERE @{equal}@ AND {few})@ ORDER BY 1",
        f"SELECT b.id FROM b WHERE @x IN (SELECT count(*) FROM a WHERE @{equal}@ AND {few})@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @(x IN (SELECT {column} FROM a WHERE {few} ORDER BY k LIMIT 2)) "
        "IS NOT NULL@ ORDER BY 1",
        f"SELECT b.id FROM b WHERE @x IN (SELECT {column} FROM a WHERE {few} ORDER BY k LIMIT 2)@ "
        "ORDER BY 1",
        f"SELECT a.k, (SELECT max(b.id) FROM b WHERE @{equal}@), (SELECT count(*) FROM b "
        f"WHERE @{equal}@) FROM a WHERE {few} ORDER BY 1",
        f"SELECT a.k, b.id, c.id FROM a JOIN b ON @{equal}@ LEFT JOIN b c ON @c.x = b.y@ "
        f"WHERE {few} ORDER BY 1, 2, 3",
        f"SELECT a.k, n FROM a, LATERAL (SELECT b.id AS n FROM b WHERE @{equal}@ ORDER BY 1 "
        f"LIMIT 2) q WHERE {few} ORDER BY 1, 2",
        f"WITH q AS (SELECT * FROM a WHERE {few}) SELECT q.k, b.id FROM q JOIN b "
        f"ON @q.{column} = b.{other}@ ORDER BY 1, 2",
        f"SELECT id FROM b WHERE @id = (SELECT max({column}) FROM a WHERE {few})@",
        f"SELECT a.v, count(b.id) FROM a LEFT JOIN b ON @{equal}@ WHERE {few} GROUP BY 1 "
        f"HAVING EXISTS (SELECT FROM b c WHERE @c.x = a.v@) ORDER BY 1",
        f"SELECT a.k FROM a WHERE @a.v {compare} ALL (SELECT x FROM b WHERE {equal} AND b.id < 9)@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @b.x {compare} ALL (SELECT v FROM a WHERE {equal} AND {few})@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @b.x {compare} ANY (SELECT v FROM a WHERE {equal} AND {few})@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @b.x {compare} (SELECT v FROM a WHERE {equal} AND a.k = 4)@ "
        "ORDER BY 1",
        f"SELECT b.id FROM b WHERE @(x, y) IN (SELECT {column}, v FROM a WHERE {few})@ ORDER BY 1",
    ]
    found = []
    for shape in shapes:
        parts = shape.split("@")
        depth, twin = 0, ""
        for at, part in enumerate(parts):
            twin += part
            if at + 1 < len(parts):
                opens = not part or part.endswith((" ", "("))
                depth += 1 if opens else -1
                twin += "(" if opens else ") IS TRUE"
        assert depth == 0, shape
        found.append(("".join(parts), twin))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_rows_of_one_table_say_which_of_another_matter(sql: Any, seed: int) -> None:
    """A row is left out that belongs to the answer: of an outer join, of NOT IN, of a count."""
    chance = random.Random(seed)
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE a (k int PRIMARY KEY, v int, w int8)")
        db.execute("CREATE TABLE b (id int PRIMARY KEY, x int, y int8)")
        db.execute("CREATE INDEX a_v ON a (v)")
        db.execute("CREATE INDEX b_x ON b (x, y)")
        if seed % 2:
            db.execute("CREATE INDEX b_y ON b (y DESC)")

        def rows(numbers: range) -> str:
            values = [None, 0, 1, 2, 3, 4, 7]
            made = [(n, chance.choice(values), chance.choice(values)) for n in numbers]
            return ", ".join(str(row).replace("None", "NULL") for row in made)

        db.execute(f"INSERT INTO a VALUES {rows(range(8))}".encode())
        db.execute(f"INSERT INTO b VALUES {rows(range(25))}".encode())
        for _ in range(2):
            for statement, twin in _joins(chance):
                _same(db, statement, twin)
        with db.transaction(force_rollback=True):
            db.execute(f"INSERT INTO b VALUES {rows(range(30, 40))}".encode())
            db.execute("DELETE FROM b WHERE id < 6")
            for statement, twin in _joins(chance):
                _same(db, statement, twin)
        equal = chance.choice(("a.k = b.id", "a.v = b.x", "a.v = b.y"))
        counted = f"SELECT count(*) FROM b WHERE (EXISTS (SELECT FROM a WHERE {equal})) IS TRUE"
        wanted = db.execute(counted.encode()).fetchall()[0][0]
        done = db.execute(f"DELETE FROM b USING a WHERE {equal}".encode())
        assert done.rowcount == wanted
        assert db.execute(counted.encode()).fetchall() == [(0,)]


def test_rows_alike_in_a_key_need_not_be_alike(sql: Any) -> None:
    """DISTINCT passes over a row that WHERE wants, as one before it has the same key."""
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE v (id int PRIMARY KEY, n numeric, f float8)")
        db.execute("CREATE INDEX v_n ON v (n)")
        db.execute("CREATE INDEX v_f ON v (f)")
        db.execute("INSERT INTO v VALUES (1, 1.0, 0), (2, 1.00, '-0')")
        for column, text in (("n", "1.00"), ("f", "-0")):
            asked = f"SELECT DISTINCT {column} FROM v WHERE {column}::text = '{text}' LIMIT 3"
            assert len(db.execute(asked.encode()).fetchall()) == 1
        asked = "SELECT DISTINCT n FROM v WHERE random() > 2 OR id > 1 LIMIT 3"
        assert len(db.execute(asked.encode()).fetchall()) == 1


def test_the_way_of_each_join(sql: Any) -> None:
    """A join of one row with its row reads two tables."""
    plans = {
        "SELECT * FROM p JOIN q ON q.id = p.v WHERE p.g = 1 AND p.id = 2": (
            "Index Scan using p_pkey on p / Index Scan using q_pkey on q: p"
        ),
        "SELECT * FROM q JOIN p ON p.v = q.a WHERE q.id = 1": (
            "Index Scan using q_pkey on q / Index Scan using p_v on p: q"
        ),
        "SELECT * FROM q JOIN p ON (p.g, p.id) = (q.a, q.b) WHERE q.id < 9": (
            "Index Scan using q_pkey on q / Index Scan using p_pkey on p: q"
        ),
        "SELECT * FROM p WHERE v IN (SELECT a FROM q WHERE id = 1)": (
            "Index Scan using q_pkey on q / Index Scan using p_v on p: q"
        ),
        "SELECT * FROM p WHERE EXISTS (SELECT FROM q WHERE q.a = p.v AND id = 1)": (
            "Index Scan using q_pkey on q / Index Scan using p_v on p: q"
        ),
        "SELECT * FROM q WHERE id = 1 AND NOT EXISTS (SELECT FROM p WHERE p.v = q.a)": (
            "Index Scan using q_pkey on q / Index Only Scan using p_v on p: q"
        ),
        "SELECT (SELECT max(p.n) FROM p WHERE p.v = q.a) FROM q WHERE id = 1": (
            "Index Scan using q_pkey on q / Index Scan using p_v on p: q"
        ),
        "SELECT * FROM p WHERE v NOT IN (SELECT a FROM q WHERE id = 1)": (
            "Index Scan using q_pkey on q / Seq Scan on p"
        ),
        "SELECT * FROM q LEFT JOIN p ON p.v = q.a JOIN q r ON r.id = p.id WHERE q.id = 1": (
            "Index Scan using q_pkey on q / Index Scan using p_v on p: q"
            " / Index Scan using q_pkey on q: p"
        ),
        "DELETE FROM p USING q WHERE p.v = q.a AND q.id = 1": (
            "Index Scan using q_pkey on q / Index Only Scan using p_v on p: q"
        ),
        "SELECT * FROM p JOIN q ON q.a = p.n": "Seq Scan on p / Seq Scan on q",
    }
    with sql.connect(autocommit=True) as db:
        for text in (*_DECLARED, "CREATE TABLE q (id int PRIMARY KEY, a int, b int)"):
            db.execute(text.encode())
        found = {}
        for statement in plans:
            lines = db.execute(f"EXPLAIN (COSTS OFF) {statement}".encode()).fetchall()
            shown = [
                row[0].strip() for row in lines if row[0].strip()[:6] not in ("DuckDB", "Key Ra")
            ]
            joined = " / ".join(shown).replace(" / Keys: of ", ": ")
            found[statement] = joined.replace(" / Keys: 1", "")
        assert {k: v for k, v in found.items() if v != plans[k]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_moments_are_the_same_by_columns_as_by_rows(sql: Any, zone: str) -> None:
    """A day of the week, a month or a text of a moment is another one where DuckDB computes it."""
    fields = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
    parts = [*fields[1:], "dow", "isodow", "doy"]
    patterns = ["YYYY-MM", "Dy DD Mon YYYY", "FMDay, DDth Month", "IYYY-IW ID", "Q", "HH24:MI", "D"]
    patterns += ["HH12 AM", "YYYY-MM-DD HH24", "SS", "DDD"]
    with sql.connect(autocommit=True) as db:
        db.execute(f"SET timezone = '{zone}'".encode())
        db.execute("CREATE TABLE m (id int PRIMARY KEY, t timestamp, z timestamptz, f text)")
        chance = random.Random(7)
        moments = ["0001-01-01", "9999-12-31 23:59:59.999999", "1970-01-01", "2000-02-29 12:00"]
        for _ in range(60):
            moments.append(
                f"{chance.randrange(1, 9999):04}-{chance.randrange(1, 13):02}-"
                f"{chance.randrange(1, 29):02} {chance.randrange(24):02}:59:07.123456"
            )
        for number, moment in enumerate(moments):
            near = moment if 0 < number != 1 else "2024-12-30 20:00"
            row = f"({number}, '{moment}', '{near} UTC', '')"
            db.execute(f"INSERT INTO m VALUES {row}".encode())
        for column in ("t", "z"):
            exprs = [(f"date_trunc('{one}', {column})", one, "date_trunc(f, {})") for one in fields]
            exprs += [(f"extract({one} FROM {column})", one, "date_part(f, {})") for one in parts]
            exprs += [(f"to_char({column}, '{one}')", one, "to_char({}, f)") for one in patterns]
            for quick, field, slow in exprs:
                db.execute("UPDATE m SET f = %s", (field,))
                twin = slow.format(column)
                text = (
                    f"SELECT a.id, {quick}, {twin} FROM m a JOIN m b USING (id) "
                    f"WHERE {quick} IS DISTINCT FROM {twin}"
                )
                text = text.replace("(f", "(a.f").replace(", f", ", a.f")
                text = text.replace(f" {column})", f" a.{column})").replace(
                    f"({column}", f"(a.{column}"
                )
                assert db.execute(text.encode()).fetchall() == []
            text = (
                f"SELECT {column}::date, count(*) FROM m GROUP BY 1 HAVING min(to_char({column}, "
            )
            text += f"'YYYY-MM-DD')) <> ({column}::date)::text"
            assert db.execute(text.encode()).fetchall() == []


_LED: Final = {
    "SELECT a.k, b.id FROM a LEFT JOIN b ON b.x = a.v ORDER BY a.k LIMIT 3": True,
    "SELECT a.k, b.id FROM a LEFT JOIN b ON b.x = a.v AND b.id > 3 ORDER BY a.k DESC LIMIT 3": True,
    "SELECT a.v, b.id FROM a LEFT JOIN b USING (k) ORDER BY a.v LIMIT 5 OFFSET 2": True,
    "SELECT a.k, b.id, c.id FROM a LEFT JOIN b ON b.x = a.v LEFT JOIN b c ON c.id = b.y "
    "WHERE a.k > 1 ORDER BY a.k LIMIT 4": True,
    "SELECT a.k, n FROM a LEFT JOIN LATERAL (SELECT count(*) AS n FROM b WHERE b.x = a.v) q "
    "ON true ORDER BY a.k LIMIT 3 OFFSET 1": True,
    "SELECT a.k FROM a LEFT JOIN b ON b.x = a.v WHERE a.k > 100 ORDER BY a.k LIMIT 3": True,
    "SELECT a.k FROM a LEFT JOIN b ON a.k = b.id ORDER BY a.k, b.id LIMIT 4": False,
    "SELECT a.k, b.id FROM a LEFT JOIN b ON b.x = a.v WHERE b.id IS NULL "
    "ORDER BY a.k LIMIT 3": True,
    "SELECT a.k, b.id FROM a LEFT JOIN b ON b.x = a.v WHERE a.w = 1 ORDER BY a.k LIMIT 3": False,
    "SELECT a.k, b.id FROM a JOIN b ON b.x = a.v ORDER BY a.k LIMIT 3": True,
    "SELECT a.k, b.id FROM a JOIN b ON b.x = a.v ORDER BY a.k DESC LIMIT 30 OFFSET 2": True,
    "SELECT a.k, b.id FROM b JOIN a ON b.x = a.v WHERE b.y > 2 ORDER BY a.k LIMIT 6": True,
    "SELECT a.k, b.id FROM a, b WHERE b.x = a.v AND a.k > 4 ORDER BY a.k LIMIT 3": True,
    "SELECT a.k, b.id FROM b RIGHT JOIN a ON b.x = a.v ORDER BY a.k LIMIT 3": True,
    "SELECT a.k, b.id FROM a JOIN b ON b.x = a.v WHERE b.y > 100 ORDER BY a.k LIMIT 3": True,
    "SELECT a.k FROM a WHERE EXISTS (SELECT FROM b WHERE b.x = a.v) ORDER BY a.k LIMIT 3": True,
    "SELECT a.k FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.x = a.v) "
    "ORDER BY a.k DESC LIMIT 2 OFFSET 1": True,
    "SELECT a.k, (SELECT max(y) FROM b WHERE b.x = a.v) FROM a ORDER BY a.k LIMIT 3": True,
    "SELECT a.k, b.id FROM a JOIN b ON b.x = a.v WHERE b.id = 7 ORDER BY a.k LIMIT 3": False,
    "SELECT a.k FROM a WHERE v IN (SELECT x FROM b WHERE x = 1) ORDER BY a.k LIMIT 3": False,
    "SELECT a.k, b.id FROM a FULL JOIN b ON b.x = a.v ORDER BY a.k LIMIT 3": False,
    "SELECT a.k, b.id FROM a JOIN b ON b.x = a.v WHERE a.k = 3 ORDER BY a.k LIMIT 3": False,
    "SELECT DISTINCT a.v, b.x FROM a LEFT JOIN b ON b.x = a.v ORDER BY a.v LIMIT 3": False,
    "SELECT count(*) FROM a LEFT JOIN b ON b.x = a.v LIMIT 3": False,
    "SELECT a.k, generate_series(1, b.x) FROM a LEFT JOIN b ON b.x = a.v "
    "ORDER BY a.k LIMIT 3": False,
}
"""Whether it begins with the keys of its first rows."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_join_with_a_limit_begins_with_few_rows(sql: Any, seed: int) -> None:
    """All of the other table is read for ten rows; or a row is missing, or another comes."""
    chance = random.Random(seed)
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE a (k int PRIMARY KEY, v int, w int)")
        db.execute("CREATE TABLE b (id int PRIMARY KEY, k int, x int, y int)")
        db.execute("CREATE INDEX a_v ON a (v)")
        db.execute("CREATE INDEX b_x ON b (x)")
        for n in range(12):
            row = (n, chance.choice((None, 0, 1, 2)), chance.choice((0, 1)))
            db.execute("INSERT INTO a VALUES (%s, %s, %s)", row)
        for n in range(30):
            row = (n, n % 9, chance.choice((None, 0, 1, 3)), chance.randrange(9))
            db.execute("INSERT INTO b VALUES (%s, %s, %s, %s)", row)
        for text, leads in _LED.items():
            rows = db.execute(text.encode()).fetchall()
            whole, _, bounds = text.partition(" LIMIT ")
            limit, _, offset = bounds.partition(" OFFSET ")
            every = db.execute(whole.encode()).fetchall()
            assert Counter(rows) <= Counter(every), text
            part = every[int(offset or 0) :][: int(limit)]
            assert [row[0] for row in rows] == [row[0] for row in part], text
            lines = [row[0].strip() for row in db.execute(f"EXPLAIN (COSTS OFF) {text}".encode())]
            assert ("InitPlan" in lines) is leads, (text, lines)
        text = next(iter(_LED))
        lines = [row[0].strip() for row in db.execute(f"EXPLAIN (COSTS OFF) {text}".encode())]
        assert "Index Only Scan using b_x on b" in lines
        assert "Keys: of a" in lines
        with db.transaction():
            db.execute("DELETE FROM a WHERE k < 2")
            assert db.execute(text.encode()).fetchall()[0][0] == 2


@pytest.mark.slow
def test_queries_of_one_value_run_first(sql: Any) -> None:
    """A row that a query names by its key is looked for in the whole table; or two rows are one."""
    with sql.connect(autocommit=True) as db:
        for text in _DECLARED:
            db.execute(text.encode())
        db.execute(
            "INSERT INTO p SELECT i % 3, i, 10 - i, 'x', NULL, i FROM generate_series(1, 9) i"
        )
        query = "SELECT g, id FROM p WHERE v = (SELECT max(v) FROM p WHERE v < 9)"
        assert db.execute(query.encode()).fetchall() == [(2, 2)]
        lines = [
            row[0].strip() for row in db.execute(f"EXPLAIN (COSTS OFF) {query}".encode()).fetchall()
        ]
        assert lines[0] == "Index Only Scan using p_v on p"
        assert "InitPlan" in lines
        assert not any("Seq Scan" in line for line in lines)
        none = "SELECT id FROM p WHERE v = (SELECT id FROM p WHERE id = 77)"
        assert db.execute(none.encode()).fetchall() == []
        with pytest.raises(psycopg.errors.CardinalityViolation):
            db.execute("SELECT id FROM p WHERE v = (SELECT id FROM p)")
        changed = "UPDATE p SET s = 'y' WHERE v >= (SELECT max(v) FROM p) RETURNING id"
        assert db.execute(changed.encode()).fetchall() == [(1,)]
        assert db.execute("DELETE FROM p WHERE id < (SELECT min(id) + 2 FROM p)").rowcount == 2
        joined = "SELECT a.id FROM p a JOIN p b ON b.v = a.v WHERE a.v = (SELECT min(v) FROM p)"
        assert db.execute(joined.encode()).fetchall() == [(9,)]
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            assert db.execute(query.encode()).fetchall() == [(0, 3)]
