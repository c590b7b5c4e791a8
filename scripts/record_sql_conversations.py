"""Asks a real PostgreSQL 15 what it says to sequences of messages of its protocol, and what is in
the table then.

    python scripts/record_sql_conversations.py "host=127.0.0.1 port=5432 user=postgres" [FILE …]

A line of `tests/sqlproxy/conversations/*.txt` is a case: messages separated by ` | `, sent at once
and followed by Terminate.

    Q text          Query                        F           FunctionCall
    P name: text    Parse ("": unnamed)          S H X       Sync, Flush, Terminate
    B portal name   Bind (- is unnamed)          d text c    CopyData, CopyDone
    E portal rows   Execute                      f text      CopyFail
    Ds Dp Cs Cp n   Describe, Close              k hex       a message of kind k with this body
    x text          Parse, Bind, Describe, Execute of the unnamed ones

`generated` makes more: random statements of transactions, split over messages in both protocols.
Each case begins with the table t(a int primary key, b int) that has one row (0, 0), and the
settings of `OPTIONS`. The answers go to FILE.json: [case, [message, …], [row, …]]; `said` tells how
a message is written there.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

HERE = Path(__file__).parent.parent / "tests" / "sqlproxy" / "conversations"
OPTIONS = {
    "options": "-c default_transaction_isolation=repeatable\\ read -c timezone=UTC",
    "client_encoding": "UTF8",
}
GENERATED = "generated"
Case = list[Any]
"""Its messages, what was said to them, and the rows of t then."""

_UNHEARD = frozenset(b"RSK")  # of the login, and settings


# -- messages


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _name(word: str) -> bytes:
    return _text("" if word == "-" else word)


def _parse(name: str, text: str) -> bytes:
    return message(b"P", _name(name) + _text(text) + b"\0\0")


def _bind(portal: str, name: str) -> bytes:
    return message(b"B", _name(portal) + _name(name) + bytes(6))


def _execute(portal: str, rows: int = 0) -> bytes:
    return message(b"E", _name(portal) + struct.pack(">I", rows))


def _target(kind: str, name: str) -> bytes:
    return message(kind[0].encode(), kind[1].upper().encode() + _name(name))


def encoded(token: str) -> bytes:
    """The bytes of one message of a case."""
    word, _, rest = token.partition(" ")
    match word:
        case "Q":
            return message(b"Q", _text(rest))
        case "x":
            ask = _parse("-", rest) + _bind("-", "-")
            return ask + _target("Dp", "-") + _execute("-")
        case "P":
            name, _, text = rest.partition(": ")
            return _parse(name, text)
        case "B":
            portal, name = rest.split(" ")
            return _bind(portal, name)
        case "E":
            portal, rows = rest.split(" ")
            return _execute(portal, int(rows))
        case "Ds" | "Dp" | "Cs" | "Cp":
            return _target(word, rest)
        case "d":
            return message(b"d", rest.encode() + b"\n")
        case "f":
            return message(b"f", _text(rest))
        case "F":
            return message(b"F", struct.pack(">IHHHIIH", 957, 1, 1, 1, 4, 131072, 1))
        case "S" | "H" | "c" | "X":
            return message(word.encode())
        case "k":
            kind, _, body = rest.partition(" ")
            return message(kind.encode(), bytes.fromhex(body))
        case _:
            raise ValueError(token)


# -- answers


def said(kind: int, body: bytes) -> str:
    """A message of a server in a few words: its letter and what matters of it."""
    letter = chr(kind)
    match letter:
        case "C" | "Z":
            return f"{letter} {body.rstrip(bytes(1)).decode()}"
        case "E" | "N":
            told = {field[:1]: field[1:].decode() for field in body.split(b"\0") if field}
            return f"{letter} {told[b'V']} {told[b'C']}"
        case "T":
            return "T " + ",".join(_names(body))
        case "D":
            return "D " + "|".join(_values(body))
        case _:
            return letter


def _names(body: bytes) -> Iterator[str]:
    at = 2
    for _ in range(int.from_bytes(body[:2])):
        end = body.index(0, at)
        yield body[at:end].decode()
        at = end + 19


def _values(body: bytes) -> Iterator[str]:
    at = 2
    for _ in range(int.from_bytes(body[:2])):
        size = int.from_bytes(body[at : at + 4], signed=True)
        at += 4
        yield "NULL" if size < 0 else body[at : at + size].decode()
        at += max(0, size)


class Client:
    """A connection that is made of bytes."""

    def __init__(self, host: str, port: int, user: str, database: str) -> None:
        self._socket = socket.create_connection((host, port), timeout=10)
        self._data = b""
        words = {"user": user, "database": database, **OPTIONS}
        body = struct.pack(">I", 3 << 16)
        body += b"".join(_text(one) for pair in words.items() for one in pair) + b"\0"
        self.send(struct.pack(">I", len(body) + 4) + body)
        while (told := self.message()) is not None and told[0] != ord("Z"):
            if told[0] == ord("E"):
                raise ConnectionError(said(*told))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def message(self) -> tuple[int, bytes] | None:
        """The next one; None: the server has hung up."""
        if (head := self._read(5)) is None:
            return None
        body = self._read(int.from_bytes(head[1:]) - 4)
        return None if body is None else (head[0], body)

    def _read(self, size: int) -> bytes | None:
        while len(self._data) < size:
            try:
                more = self._socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self._data += more
        found, self._data = self._data[:size], self._data[size:]
        return found

    def close(self) -> None:
        self._socket.close()


def talked(client: Client, case: str) -> list[str]:
    """What a server says to a case, until it hangs up."""
    client.send(b"".join(encoded(token) for token in case.split(" | ")) + message(b"X"))
    found = []
    while (told := client.message()) is not None:
        if told[0] not in _UNHEARD:
            found.append(said(*told))
    client.close()
    return found


def begin_with(connection: psycopg.Connection, texts: Sequence[str]) -> None:
    """The rows of a case, by statements that may be said again: a disk that stands still for ten
    seconds leaves the outcome of one unknown.
    """
    for left in reversed(range(5)):
        try:
            for text in texts:
                connection.execute(text.encode())
            return
        except psycopg.OperationalError:
            if connection.closed or not left:
                raise


class Server:
    """One that is asked: each case has a connection of its own."""

    def __init__(self, address: str, name: str) -> None:
        told: dict[str, Any] = conninfo_to_dict(f"{address} dbname=postgres")
        with psycopg.connect(**told, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name}".encode())
            connection.execute(f"create database {name}".encode())
        self._where = (told["host"], int(told["port"]), told["user"], name)
        self._own = psycopg.connect(**{**told, "dbname": name}, autocommit=True)
        self._own.execute("create table t (a int primary key, b int)")
        self._own.execute("create table many (n int primary key)")
        self._own.execute("insert into many select g from generate_series(1, 9) g")
        self._own.execute("create table p (a int primary key)")
        self._own.execute(
            "create table c (a int primary key, p int references p deferrable initially deferred)"
        )

    def asked(self, case: str) -> Case:
        """The case, what is said to it, and the rows behind it."""
        empty = [f"delete from {table}" for table in ("c", "p", "t")]
        begin_with(self._own, [*empty, "insert into t values (0, 0)"])
        answers = talked(Client(*self._where), case)
        rows = self._own.execute("select a, b from t order by a").fetchall()
        return [case, answers, [list(row) for row in rows]]

    def close(self) -> None:
        self._own.close()


# -- cases


def cases(path: Path) -> Iterator[str]:
    """Those of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


_STATEMENTS: tuple[Callable[[random.Random, int], str], ...] = (
    lambda chance, n: f"insert into t values ({n}, 1)",
    lambda chance, n: f"insert into t values ({n}, 2)",
    lambda chance, n: "update t set b = b + 10",
    lambda chance, n: "select count(*), sum(b) from t",
    lambda chance, n: "select 1/0",
    lambda chance, n: "insert into t values (0, 5)",  # it is there
    lambda chance, n: "begin" + chance.choice(("", "", " read only", " read write")),
    lambda chance, n: "begin",
    lambda chance, n: "commit" + chance.choice(("", "", "", " and chain")),
    lambda chance, n: "commit",
    lambda chance, n: "rollback" + chance.choice(("", "", "", " and chain")),
    lambda chance, n: "rollback",
    lambda chance, n: f"savepoint {chance.choice('sr')}",
    lambda chance, n: f"release {chance.choice('sr')}",
    lambda chance, n: f"rollback to {chance.choice('sr')}",
    lambda chance, n: f"rollback to {chance.choice('sr')}",
    lambda chance, n: f"set transaction read {chance.choice(('only', 'write'))}",
    lambda chance, n: (
        "set transaction isolation level " + chance.choice(("serializable", "repeatable read"))
    ),
    lambda chance, n: f"set transaction {chance.choice(('', 'not '))}deferrable",
    lambda chance, n: "show transaction_read_only",
    lambda chance, n: "show transaction_isolation",
    lambda chance, n: "show transaction_deferrable",
    lambda chance, n: f"set local application_name = 'l{n}'",
    lambda chance, n: f"set application_name = 's{n}'",
    lambda chance, n: "show application_name",
    lambda chance, n: f"declare {chance.choice('uv')} cursor for select a, b from t order by a",
    lambda chance, n: f"fetch {chance.choice(('1', 'all'))} from {chance.choice('uv')}",
    lambda chance, n: f"close {chance.choice('uv')}",
)


def generated(number: int = 900, seed: int = 21) -> Iterator[str]:
    """Statements of transactions, in Query messages and in pipelines."""
    chance = random.Random(seed)
    for _ in range(number):
        tokens = []
        n = 0
        for _ in range(chance.randrange(1, 5)):
            some = []
            for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 5, 6))):
                n += 1
                some.append(chance.choice(_STATEMENTS)(chance, n))
            if chance.random() < 0.6:
                tokens.append("Q " + "; ".join(some))
            else:
                # PostgreSQL folds 1/0 when it binds; a Query is not described before it runs
                some = [one.replace("1/0", "n / (n - n) from many") for one in some]
                tokens += [f"x {one}" for one in some] + ["S"]
        yield " | ".join([*tokens, "Q select count(*), sum(b) from t"])


def files() -> list[str]:
    """What there is, by name."""
    return [*sorted(path.stem for path in HERE.glob("*.txt")), GENERATED]


def _record(address: str, *names: str) -> None:
    server = Server(address, "conversations")
    for name in names or files():
        asked = generated() if name == GENERATED else cases(HERE / f"{name}.txt")
        found = [server.asked(case) for case in asked]
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
        (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        print(f"{len(found)} in {name}")
    server.close()


if __name__ == "__main__":
    _record(*sys.argv[1:])
