"""Loads of the attack on SQL that judge tables: see tests/kvorum/cluster/sql_loads.py."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import psycopg

from tests.kvorum.cluster.sql_loads import Client, Failed, Load


class Batches(Load):
    name = "batches"

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._rows: dict[int, tuple[str, int]] = {}  # table and count of each batch
        self._state: dict[int, str] = {}  # begun, done, not done, unknown
        self._wrong: list[str] = []

    def tables(self, conn: psycopg.Connection) -> None:
        for table in ("plain", "indexed"):
            text = f"CREATE TABLE {table} (b int, n int, pad text, PRIMARY KEY (b, n))"
            conn.execute(text)
        conn.execute("CREATE INDEX indexed_n ON indexed (n)")

    def step(self, client: Client) -> None:
        roll = client.chance.random()
        if roll < 0.45 and self._rows:
            self._look(client)
        elif roll < 0.85:
            self._insert(client)
        else:
            self._copy(client)

    def _begin(self, client: Client, sizes: Sequence[int]) -> tuple[int, str, int]:
        number = next(self._ids)
        table, count = client.chance.choice(("plain", "indexed")), client.chance.choice(sizes)
        self._rows[number], self._state[number] = (table, count), "begun"
        return number, table, count

    def _run(self, client: Client, number: int, run: Callable[[], Any]) -> None:
        try:
            run()
        except psycopg.Error as error:
            self._state[number] = "unknown" if client.wrong(error) else "not done"
        except Failed:
            self._state[number] = "not done"
        else:
            self._state[number] = "done"

    def _insert(self, client: Client) -> None:
        number, table, count = self._begin(client, (2, 9, 40, 300))
        values: list[Any] = []
        for n in range(count):
            values += (number, n, "x" * (n % 30))
        rows = ", ".join(["(%s, %s, %s)"] * count)
        self._run(client, number, lambda: client.do(f"INSERT INTO {table} VALUES {rows}", *values))

    def _copy(self, client: Client) -> None:
        number, table, count = self._begin(client, (50, 2_000, 7_000, 15_000))
        gives_up = client.chance.randrange(count) if client.chance.random() < 0.15 else count
        block = client.chance.random() < 0.2

        def run() -> None:
            conn = client.use()
            if block:
                conn.execute("BEGIN")
            with conn.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                for at in range(0, count, 250):
                    if at > gives_up:
                        raise Failed
                    rows = (f"{number}\t{n}\tpad {n}\n" for n in range(at, min(count, at + 250)))
                    copy.write("".join(rows))
            if block:
                conn.execute("COMMIT")

        self._run(client, number, run)

    def _look(self, client: Client) -> None:
        number = client.chance.choice(list(self._rows)[-40:])
        state, (table, _) = self._state[number], self._rows[number]
        try:
            text = f"SELECT count(*) FROM {table} WHERE b = %s"
            (found,) = client.do(text, number).fetchone() or (0,)
        except psycopg.Error as error:
            client.wrong(error)
            return
        self._judged(number, state, found)

    def _judged(self, number: int, state: str, found: int) -> None:
        table, count = self._rows[number]
        right = {"done": (count,), "not done": (0,)}.get(state, (0, count))
        if found not in right:
            self._wrong.append(
                f"batches: {found} of {count} rows of {number} in {table}, which was {state}"
            )

    def judge(self, conn: psycopg.Connection) -> list[str]:
        for table in ("plain", "indexed"):
            there: dict[int, int] = dict(
                conn.execute(f"SELECT b, count(*) FROM {table} GROUP BY b").fetchall()
            )
            for number, (where, _) in self._rows.items():
                if where == table:
                    state = self._state[number]
                    self._judged(number, state, there.get(number, 0))
        return self._wrong


class Changing(Load):
    """Each row is written by one client alone, which knows what may be in it. One client declares
    at any time.
    """

    name = "changing"

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._may: dict[int, set[int | None]] = {}  # the values that a row may have; None: absent
        self._mine: dict[int, list[int]] = {}
        self._ddl = threading.Lock()
        self._round = 0
        self._wrong: list[str] = []

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE changing (id int PRIMARY KEY, v int, w int, s text)")
        conn.execute("CREATE TABLE changing_log (id int PRIMARY KEY)")

    def step(self, client: Client) -> None:
        if self._ddl.acquire(blocking=False):
            try:
                self._declare(client)
            finally:
                self._ddl.release()
            return
        for _ in range(8):
            self._change(client)

    _CHANGES: ClassVar = (
        "CREATE INDEX IF NOT EXISTS changing_v ON changing (v)",
        "ALTER TABLE changing ADD COLUMN IF NOT EXISTS added int DEFAULT 7",
        "ALTER TABLE changing ALTER COLUMN w TYPE text",
        "CREATE UNIQUE INDEX IF NOT EXISTS changing_u ON changing (s, id)",
        "ALTER TABLE changing ADD COLUMN IF NOT EXISTS twice int "
        "GENERATED ALWAYS AS (v * 2) STORED",
        "DROP INDEX IF EXISTS changing_v",
        "ALTER TABLE changing ALTER COLUMN w TYPE int USING w::int",
        "ALTER TABLE changing DROP COLUMN IF EXISTS added",
        "CREATE INDEX IF NOT EXISTS changing_w ON changing (w)",
        "ALTER TABLE changing DROP COLUMN IF EXISTS twice",
        "DROP INDEX IF EXISTS changing_u",
        "DROP INDEX IF EXISTS changing_w",
    )

    def _declare(self, client: Client) -> None:
        """The next change. One that is unknown is tried again, by whoever comes next."""
        text = self._CHANGES[self._round % len(self._CHANGES)]
        try:
            client.use().execute(text)
        except psycopg.Error as error:
            client.wrong(error)
            client.told[f"ddl {error.sqlstate}: {str(error)[:90]}"] += 1
            if error.sqlstate not in ("42704", "42804"):
                return
        client.told["declared"] += 1
        self._round += 1

    def _change(self, client: Client) -> None:
        mine = self._mine.setdefault(client.number, [])
        if len(mine) < 20:
            number = next(self._ids)
            self._may[number] = {None}
            mine.append(number)
        number = client.chance.choice(mine)
        now = self._may[number]
        assert len(now) == 1
        (was,) = now
        new = client.chance.randrange(1_000)
        try:
            if client.chance.random() < 0.25:
                self._look(client, number, was)
                return
            if was is None:
                after: int | None = new
                text = "INSERT INTO changing (id, v, w, s) VALUES (%s, %s, %s, %s)"
                values: tuple[Any, ...] = (number, new, new, str(new))
            elif client.chance.random() < 0.3:
                after, text, values = None, "DELETE FROM changing WHERE id = %s", (number,)
            elif client.chance.random() < 0.5:
                after, values = new, (new, new, number)
                text = "UPDATE changing SET v = %s, s = %s WHERE id = %s"
            else:
                after, values = new, (new, new, new, number)
                text = "UPDATE changing SET v = %s, w = %s, s = %s WHERE id = %s"
            # Text, so that the type of w may change between two statements.
            done = psycopg.ClientCursor(client.use()).execute(text, values).rowcount
        except psycopg.Error as error:
            if client.wrong(error):
                self._may[number] = {was, after}
                mine.remove(number)
            elif error.sqlstate and error.sqlstate.startswith("23"):
                self._wrong.append(f"changing: row {number} ({was}): {error}")
                mine.remove(number)
            else:
                client.told[f"dml {str(error)[:70]}"] += 1
            return
        if done != 1:
            self._wrong.append(f"changing: {text} of row {number} ({was}) changed {done} rows")
        self._may[number] = {after}

    def _look(self, client: Client, number: int, was: int | None) -> None:
        column, value = "id", number
        if was is not None and client.chance.random() < 0.5:
            column, value = "v", was
        try:
            text = f"SELECT id, v FROM changing WHERE {column} = %s"
            rows = psycopg.ClientCursor(client.use()).execute(text, (value,)).fetchall()
        except psycopg.Error as error:
            client.wrong(error)
            return
        found = [v for n, v in rows if n == number]
        if found != ([] if was is None else [was]):
            self._wrong.append(f"changing: row {number} by {column} is {found} instead of {was}")

    def judge(self, conn: psycopg.Connection) -> list[str]:
        rows = conn.execute("SELECT id, v, s FROM changing").fetchall()
        there = {number: v for number, v, _ in rows}
        found = [f"changing: row {n} has v {v} and s {s}" for n, v, s in rows if str(v) != s]
        for number, may in self._may.items():
            if there.get(number) not in may:
                found.append(f"changing: row {number} is {there.get(number)}, not of {may}")
        conn.execute("CREATE INDEX IF NOT EXISTS changing_v ON changing (v)")
        for number, v, _ in rows:
            text = "SELECT id FROM changing WHERE v = %s"
            if (number,) not in conn.execute(text, (v,)).fetchall():
                found.append(f"changing: row {number} is not found by v = {v}")
        return self._wrong + found


class Family(Load):
    name = "family"
    _CHILDREN: ClassVar = ("strict", "cascading", "deferred")

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._wrong: list[str] = []

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE parents (id int PRIMARY KEY, note text)")
        how = ("", "ON DELETE CASCADE", "DEFERRABLE INITIALLY DEFERRED")
        for name, words in zip(self._CHILDREN, how, strict=True):
            columns = f"id int PRIMARY KEY, parent int REFERENCES parents (id) {words}"
            conn.execute(f"CREATE TABLE {name} ({columns})")
            conn.execute(f"CREATE INDEX {name}_parent ON {name} (parent)")

    def step(self, client: Client) -> None:
        parent, child = client.chance.randrange(12), next(self._ids)
        table = client.chance.choice(self._CHILDREN)
        roll = client.chance.random()
        try:
            if roll < 0.3:
                client.do("INSERT INTO parents VALUES (%s, 'p') ON CONFLICT DO NOTHING", parent)
            elif roll < 0.5:
                client.do("DELETE FROM parents WHERE id = %s", parent)
            elif roll < 0.7:
                client.do(f"INSERT INTO {table} VALUES (%s, %s)", child, parent)
            elif roll < 0.78:
                client.do(f"DELETE FROM {table} WHERE parent = %s", parent)
            elif roll < 0.88:
                self._late(client, parent, child)
            else:
                self._orphans(client, table)
        except psycopg.Error as error:
            client.wrong(error)

    def _late(self, client: Client, parent: int, child: int) -> None:
        """The child first, then its parent; or a parent that is taken away and comes again."""
        conn = client.use()
        conn.execute("BEGIN")
        if client.chance.random() < 0.5:
            conn.execute("INSERT INTO deferred VALUES (%s, %s)", (child, parent))
            conn.execute("INSERT INTO parents VALUES (%s, 'p') ON CONFLICT DO NOTHING", (parent,))
        else:
            conn.execute("DELETE FROM strict WHERE parent = %s", (parent,))
            conn.execute("DELETE FROM parents WHERE id = %s", (parent,))
            if client.chance.random() < 0.5:
                conn.execute("INSERT INTO parents VALUES (%s, 'again')", (parent,))
        conn.execute("COMMIT")

    def _orphans(self, client: Client, table: str) -> None:
        text = (
            f"SELECT c.id, c.parent FROM {table} c LEFT JOIN parents p ON p.id = c.parent "
            "WHERE p.id IS NULL"
        )
        rows = client.use().execute(text).fetchall()
        self._wrong += [f"family: orphan {row} in {table}" for row in rows]

    def judge(self, conn: psycopg.Connection) -> list[str]:
        for table in self._CHILDREN:
            self._orphans(Client(0, 0, lambda: conn), table)
        return self._wrong


class Numbers(Load):
    name = "numbers"

    def __init__(self) -> None:
        self._whos = itertools.count(1)
        self._rows: dict[int, str] = {}
        self._lock = threading.Lock()
        self._taken: Counter[int] = Counter()
        self._unknown: set[str] = set()
        self._failed: set[str] = set()

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE numbers (id bigserial PRIMARY KEY, who text)")

    def step(self, client: Client) -> None:
        who = str(next(self._whos))
        if client.chance.random() < 0.2:
            try:
                row = client.do("SELECT nextval('numbers_id_seq')").fetchone()
            except psycopg.Error as error:
                client.wrong(error)
                return
            assert row is not None
            with self._lock:
                self._taken[row[0]] += 1
            return
        try:
            row = client.do("INSERT INTO numbers (who) VALUES (%s) RETURNING id", who).fetchone()
        except psycopg.Error as error:
            if client.wrong(error):
                self._unknown.add(who)
            else:
                self._failed.add(who)
            return
        assert row is not None
        with self._lock:
            self._taken[row[0]] += 1
            self._rows[row[0]] = who

    def judge(self, conn: psycopg.Connection) -> list[str]:
        found = [f"numbers: {n} was given {k} times" for n, k in self._taken.items() if k > 1]
        there: dict[int, str] = dict(conn.execute("SELECT id, who FROM numbers").fetchall())
        for number, who in self._rows.items():
            if there.get(number) != who:
                found.append(f"numbers: row {number} of {who} is {there.get(number)}")
        times = Counter(there.values())
        found += [f"numbers: {who} is there {k} times" for who, k in times.items() if k > 1]
        late = set(there.values()) & self._failed
        return found + [f"numbers: {who} was refused and is there" for who in late]


class Duty(Load):
    name = "duty"

    @staticmethod
    def _at(found: psycopg.Cursor[Any]) -> bool:
        row = found.fetchone()
        return row is not None and bool(row[1])

    def __init__(self) -> None:
        self._wrong: list[str] = []

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE duty (who int PRIMARY KEY, team int, here boolean)")
        for who in range(6):
            conn.execute("INSERT INTO duty VALUES (%s, %s, true)", (who, who // 2))

    def step(self, client: Client) -> None:
        who = client.chance.randrange(6)
        other = who ^ 1
        try:
            conn = client.use()
            conn.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            if client.chance.random() < 0.5:
                text = "SELECT who, here FROM duty WHERE team = %s"
                here = dict(conn.execute(text, (who // 2,)).fetchall())
            else:
                text = "SELECT who, here FROM duty WHERE who = %s"
                here = {n: self._at(conn.execute(text, (n,))) for n in (who, other)}
            if not any(here.values()):
                self._wrong.append(f"duty: nobody of team {who // 2} is there: {here}")
            if here[other]:
                text = "UPDATE duty SET here = NOT here WHERE who = %s"
                conn.execute(text, (who,))
            else:
                conn.execute("UPDATE duty SET here = true WHERE who = %s", (other,))
            conn.execute("COMMIT")
        except psycopg.Error as error:
            client.wrong(error)

    def judge(self, conn: psycopg.Connection) -> list[str]:
        text = "SELECT team FROM duty GROUP BY team HAVING NOT bool_or(here)"
        rows = conn.execute(text).fetchall()
        return self._wrong + [f"duty: nobody of team {team} is there" for (team,) in rows]
