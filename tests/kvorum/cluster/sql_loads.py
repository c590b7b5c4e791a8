"""What the attack on SQL (tests/kvorum/cluster/sql_attack.py) does, and how each load judges what
it was told. A load is a class: `tables` declares, `step` does one thing over a client's connection,
`judge` looks at the end.

    bank        transfers in blocks with a journal, audits at one snapshot, also of the past
    counters    UPDATE n = n + 1 of one row: each acknowledged one makes another value, none is lost
    register    one row written in every way of one statement: linearizable
    unique      a unique column is a register, too: of racing inserts one wins
    batches     COPY and INSERT of many rows: all of them or none, in every read
    changing    rows that only one client writes, while their table is declared anew all the time
    family      foreign keys, immediate, cascading and deferred: no orphan, in any snapshot
    numbers     serial and nextval(): no value twice
    duty        two rows of which one must stay: SERIALIZABLE against write skew

An operation whose outcome is unknown may be done later, too; what it may write is never judged as
if it could not.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

import psycopg
from psycopg.pq import TransactionStatus

from kvorum.verify.checkers import bank as bank_checker
from kvorum.verify.checkers import counters as counters_checker
from kvorum.verify.checkers import linearizable
from kvorum.verify.history import Header, Recorder

Connect = Callable[[], psycopg.Connection]
_MAY_HAVE_BEEN: Final = ("40003", "08")


def unknown(error: psycopg.Error) -> bool:
    """Whether a write that ended so may have been done: only if the answer was lost, or says so."""
    return error.sqlstate is None or error.sqlstate.startswith(_MAY_HAVE_BEEN)


def done(_: psycopg.Cursor[Any]) -> None:
    """A write that answers nothing but that it was done."""


class Failed(Exception):
    """A step did not do what it was to do; whatever that may be was recorded."""


class Client:
    """One client: a connection to some port, which is left when it breaks, and now and then."""

    _processes = itertools.count(1_000)

    def __init__(self, number: int, seed: int, connect: Connect) -> None:
        self.number = number
        self.chance = random.Random(seed * 1_000 + number)
        self.process = number
        self.told: Counter[str] = Counter()
        self.conn: psycopg.Connection | None = None
        self._connect = connect

    def use(self) -> psycopg.Connection:
        """Raises psycopg.Error."""
        if self.conn is not None and (self.conn.closed or self.chance.random() < 0.01):
            self.leave()
        if self.conn is None:
            self.conn = self._connect()
        if self.conn.info.transaction_status != TransactionStatus.IDLE:
            self.conn.execute("ROLLBACK")
        return self.conn

    def leave(self) -> None:
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.close()

    def do(self, text: str, *values: Any) -> psycopg.Cursor[Any]:
        """A statement by itself, prepared or as text."""
        conn = self.use()
        if self.chance.random() < 0.15:
            return psycopg.ClientCursor(conn).execute(text, values)
        return conn.execute(text, values)

    def wrong(self, error: psycopg.Error) -> bool:
        """Whether a write is in doubt; what was told is counted."""
        self.told[error.sqlstate or "lost"] += 1
        if error.sqlstate == "40003" and not error.diag.message_detail:
            self.told["40003 without DETAIL"] += 1
        if unknown(error):
            self.process = next(self._processes)
            return True
        return False


class History:
    """A recorder that clients on threads may share: positions are the order of real time."""

    def __init__(self, workload: str, **parameters: Any) -> None:
        self._recorder = Recorder(Header(workload, parameters=parameters), time.monotonic)
        self._lock = threading.Lock()

    @property
    def history(self) -> Any:
        return self._recorder.history

    def invoke(self, client: Client, f: str, args: Any) -> int:
        with self._lock:
            return self._recorder.invoke(client.process, f, args)

    def ok(self, op: int, result: Any = None) -> None:
        with self._lock:
            self._recorder.ok(op, result)

    def failed(self, op: int, client: Client, error: psycopg.Error) -> None:
        """The end of a write."""
        doubt = client.wrong(error)
        with self._lock:
            end = self._recorder.unknown if doubt else self._recorder.fail
            end(op, f"{error.sqlstate} {str(error)[:120]}")

    def refused(self, op: int, client: Client, error: psycopg.Error) -> None:
        """The end of a read, or of a block before its COMMIT: it did nothing."""
        client.wrong(error)
        with self._lock:
            self._recorder.fail(op, str(error.sqlstate))


class Load(ABC):
    """See the module."""

    name: ClassVar[str]

    @abstractmethod
    def tables(self, conn: psycopg.Connection) -> None: ...

    @abstractmethod
    def step(self, client: Client) -> None:
        """Raises psycopg.Error only of what changes nothing."""

    @abstractmethod
    def judge(self, conn: psycopg.Connection) -> list[str]:
        """What is wrong."""


_PAST: Final = "SELECT id, v FROM bank AS OF SYSTEM TIME '-700ms'"


class Bank(Load):
    name = "bank"

    def __init__(self) -> None:
        self._names = [f"a{i}" for i in range(8)]
        self._h = History("bank", accounts=self._names, balance=100)
        self._ids = itertools.count(1)

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE bank (id text PRIMARY KEY, v int NOT NULL CHECK (v >= 0))")
        conn.execute("CREATE TABLE journal (id text PRIMARY KEY, a text, b text, amount int)")
        for name in self._names:
            conn.execute("INSERT INTO bank VALUES (%s, 100)", (name,))
        # Behind a change of the oracle's leader timestamps run ahead of the clocks for seconds:
        # 0.7 s ago by the clock may be before these rows until it has caught up.
        until = time.monotonic() + 60
        while len(conn.execute(_PAST).fetchall()) < len(self._names):
            assert time.monotonic() < until, "the clocks never caught up with the oracle"
            time.sleep(0.1)

    def step(self, client: Client) -> None:
        if client.chance.random() < 0.35:
            self._read(client)
        else:
            self._transfer(client)

    def _read(self, client: Client) -> None:
        how = client.chance.choice(("scan", "block", "past", "keys", "serializable"))
        op = self._h.invoke(client, "read", {"how": how})
        try:
            found = self._balances(client, how)
        except psycopg.Error as error:
            self._h.refused(op, client, error)
            return
        self._h.ok(op, found)

    def _balances(self, client: Client, how: str) -> dict[str, int]:
        conn = client.use()
        match how:
            case "scan":
                return dict(client.do("SELECT id, v FROM bank").fetchall())
            case "past":
                return dict(conn.execute(_PAST).fetchall())
            case "keys":
                text = "SELECT id, v FROM bank WHERE id = ANY(%s)"
                return dict(conn.execute(text, (self._names,)).fetchall())
            case _:
                return self._in_block(conn, how)

    def _in_block(self, conn: psycopg.Connection, how: str) -> dict[str, int]:
        level = "REPEATABLE READ READ ONLY" if how == "block" else "SERIALIZABLE"
        conn.execute(f"BEGIN ISOLATION LEVEL {level}")
        found: dict[str, int] = {}
        for name in self._names:
            found |= conn.execute("SELECT id, v FROM bank WHERE id = %s", (name,)).fetchall()
        conn.execute("COMMIT")
        return found

    def _transfer(self, client: Client) -> None:
        a, b = client.chance.sample(self._names, 2)
        number, amount = str(next(self._ids)), client.chance.randint(1, 9)
        args = {"id": number, "from": a, "to": b, "amount": amount}
        op = self._h.invoke(client, "transfer", args)
        try:
            conn = client.use()
            level = client.chance.choice(("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"))
            conn.execute(f"BEGIN ISOLATION LEVEL {level}")
            result = self._moved(client, conn, args)
        except psycopg.Error as error:
            self._h.refused(op, client, error)
            return
        try:
            tag = conn.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            self._h.failed(op, client, error)
            return
        self._h.ok(op, result if tag == "COMMIT" else None)

    def _moved(
        self, client: Client, conn: psycopg.Connection, args: dict[str, Any]
    ) -> dict[str, int] | None:
        a, b, amount = args["from"], args["to"], args["amount"]
        if client.chance.random() < 0.3:
            conn.execute("SAVEPOINT s")
            conn.execute("UPDATE bank SET v = v + 1000 WHERE id = %s", (b,))
            conn.execute("INSERT INTO journal VALUES (%s, 'never', 'never', 0)", (args["id"],))
            conn.execute("ROLLBACK TO s")
        text = "UPDATE bank SET v = v - %s WHERE id = %s AND v >= %s RETURNING v"
        row = conn.execute(text, (amount, a, amount)).fetchone()
        if row is None:
            conn.execute("ROLLBACK")
            conn.execute("BEGIN")
            return None
        text = "UPDATE bank SET v = v + %s WHERE id = %s RETURNING v"
        (other,) = conn.execute(text, (amount, b)).fetchone() or (None,)
        text = "INSERT INTO journal VALUES (%s, %s, %s, %s)"
        conn.execute(text, (args["id"], a, b, amount))
        return {a: row[0], b: other}

    def judge(self, conn: psycopg.Connection) -> list[str]:
        client = Client(0, 0, lambda: conn)
        op = self._h.invoke(client, "final read", None)
        self._h.ok(op, dict(conn.execute("SELECT id, v FROM bank").fetchall()))
        op = self._h.invoke(client, "final journal", None)
        rows = conn.execute("SELECT id, a, b, amount FROM journal").fetchall()
        self._h.ok(op, {number: rest for number, *rest in rows})
        return [f"{a.kind}: {a.text}" for a in bank_checker.check(self._h.history)]


class Counters(Load):
    name = "counters"

    def __init__(self) -> None:
        self._h = History("counters")
        self._keys = [f"c{i}" for i in range(3)]

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE counters (k text PRIMARY KEY, v int)")
        for key in self._keys:
            conn.execute("INSERT INTO counters VALUES (%s, 0)", (key,))

    def step(self, client: Client) -> None:
        key = client.chance.choice(self._keys)
        op = self._h.invoke(client, "increment", {"key": key})
        try:
            text = "UPDATE counters SET v = v + %s WHERE k = %s RETURNING v"
            row = client.do(text, 1, key).fetchone()
        except psycopg.Error as error:
            self._h.failed(op, client, error)
            return
        self._h.ok(op, None if row is None else row[0])

    def judge(self, conn: psycopg.Connection) -> list[str]:
        client = Client(0, 0, lambda: conn)
        for key in self._keys:
            op = self._h.invoke(client, "final", {"key": key})
            row = conn.execute("SELECT v FROM counters WHERE k = %s", (key,)).fetchone()
            self._h.ok(op, row and row[0])
        return [f"{a.kind}: {a.text}" for a in counters_checker.check(self._h.history)]


class _Linearizable(Load):
    """Keys that are left after some operations: the search grows with a key's history."""

    per_key: ClassVar = 120

    def __init__(self) -> None:
        self._h = History(self.name)
        self._lock = threading.Lock()
        self._fresh = itertools.count(1)
        self._keys = [self._new_key() for _ in range(3)]
        self._used = [0] * 3
        self._seen: dict[str, str] = {}

    def _new_key(self) -> str:
        return f"k{next(self._fresh)}"

    def _key(self, client: Client) -> str:
        with self._lock:
            slot = client.chance.randrange(len(self._keys))
            self._used[slot] += 1
            if self._used[slot] > self.per_key:
                self._keys[slot], self._used[slot] = self._new_key(), 0
            return self._keys[slot]

    def _unique(self) -> str:
        return f"v{next(self._fresh)}"

    def _write(self, client: Client, f: str, args: dict[str, Any], run: Callable[[], Any]) -> None:
        op = self._h.invoke(client, f, args)
        try:
            result = run()
        except psycopg.errors.UniqueViolation as error:
            if f == "cas" and args["old"] is None:
                client.wrong(error)
                self._h.ok(op, False)
            else:
                self._h.failed(op, client, error)
            return
        except psycopg.Error as error:
            self._h.failed(op, client, error)
            return
        self._h.ok(op, result)

    def _read(self, client: Client, key: str, text: str) -> None:
        op = self._h.invoke(client, "read", {"key": key})
        try:
            row = client.do(text, key).fetchone()
        except psycopg.Error as error:
            self._h.refused(op, client, error)
            return
        value = None if row is None else row[0]
        if value is not None:
            self._seen[key] = value
        self._h.ok(op, value)

    def judge(self, conn: psycopg.Connection) -> list[str]:
        client = Client(0, 0, lambda: conn)
        for key in sorted({o.args["key"] for o in self._h.history.operations()}):
            self._read(client, key, self.reads)
        return [f"{a.kind}: {a.text}" for a in linearizable.check(self._h.history)]

    reads: ClassVar[str]


class Register(_Linearizable):
    name = "register"
    reads = "SELECT v FROM register WHERE k = %s"

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE register (k text PRIMARY KEY, v text, n int DEFAULT 0)")

    def step(self, client: Client) -> None:
        key, new = self._key(client), self._unique()
        roll = client.chance.random()
        if roll < 0.4:
            self._read(client, key, self.reads)
        elif roll < 0.55:
            text = "INSERT INTO register (k, v) VALUES (%s, %s)"
            args = {"key": key, "old": None, "new": new}
            self._write(client, "cas", args, lambda: bool(client.do(text, key, new).rowcount))
        elif roll < 0.65:
            text = (
                "INSERT INTO register (k, v) VALUES (%s, %s) "
                "ON CONFLICT (k) DO UPDATE SET v = excluded.v"
            )
            self._write(
                client, "write", {"key": key, "value": new}, lambda: done(client.do(text, key, new))
            )
        elif roll < 0.85:
            old = self._seen.get(key, "nothing")
            text = "UPDATE register SET v = %s, n = n + 1 WHERE k = %s AND v = %s"
            args = {"key": key, "old": old, "new": new}
            self._write(client, "cas", args, lambda: bool(client.do(text, new, key, old).rowcount))
        elif roll < 0.93:
            old = self._seen.get(key, "nothing")
            text = "DELETE FROM register WHERE k = %s AND v = %s"
            args = {"key": key, "old": old, "new": None}
            self._write(client, "cas", args, lambda: bool(client.do(text, key, old).rowcount))
        else:
            text = "DELETE FROM register WHERE k = %s"
            self._write(
                client, "write", {"key": key, "value": None}, lambda: done(client.do(text, key))
            )


class Unique(_Linearizable):
    name = "unique"
    reads = "SELECT id FROM uniques WHERE name = %s"

    def tables(self, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE uniques (id text PRIMARY KEY, name text UNIQUE, note text)")
        conn.execute("CREATE INDEX uniques_note ON uniques (note)")

    def step(self, client: Client) -> None:
        key, new = self._key(client), self._unique()
        roll = client.chance.random()
        if roll < 0.35:
            self._read(client, key, self.reads)
        elif roll < 0.65:
            text = "INSERT INTO uniques VALUES (%s, %s, %s)"
            args = {"key": key, "old": None, "new": new}
            note = str(client.number)
            self._write(client, "cas", args, lambda: bool(client.do(text, new, key, note).rowcount))
        elif roll < 0.8:
            # a row of nobody's is given the name
            text = "INSERT INTO uniques VALUES (%s, %s, 'renamed')"
            try:
                client.do(text, new, f"free {new}")
            except psycopg.Error as error:
                client.wrong(error)
                return
            text = "UPDATE uniques SET name = %s WHERE id = %s"
            args = {"key": key, "old": None, "new": new}
            self._write(client, "cas", args, lambda: bool(client.do(text, key, new).rowcount))
        else:
            old = self._seen.get(key, "nothing")
            text = "DELETE FROM uniques WHERE name = %s AND id = %s"
            args = {"key": key, "old": old, "new": None}
            self._write(client, "cas", args, lambda: bool(client.do(text, key, old).rowcount))

    def judge(self, conn: psycopg.Connection) -> list[str]:
        found = super().judge(conn)
        text = "SELECT name, count(*) FROM uniques GROUP BY name HAVING count(*) > 1"
        return found + [f"unique: {row} is there twice" for row in conn.execute(text).fetchall()]
