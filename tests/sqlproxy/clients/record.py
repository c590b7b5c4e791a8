"""What programs send, and what PostgreSQL 15 answers to it.

    python -m tests.sqlproxy.clients.record listen PORT HOST:PORT FILE
    python -m tests.sqlproxy.clients.record answers "host=… user=…" NAME FILE

`listen` stands between a program and a server, and notes each statement with its parameters as
text. `answers` runs the statements in a new database, in order, and adds them to statements.json:
by program a list of [statement, parameters or null, SQLSTATE or ""]; null is a simple query.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn

from sqlproxy.pg import binary, text

FILE = Path(__file__).parent / "statements.json"
Statement = list[Any]


def answer(link: PGconn, sql: str, values: list[str | None] | None) -> str:
    """The SQLSTATE of a statement; "" if it is done."""
    if values is None:
        result = link.exec_(sql.encode())
    else:
        given = [None if value is None else value.encode() for value in values]
        result = link.exec_params(sql.encode(), given)
    if result.status == ExecStatus.FATAL_ERROR:
        return (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    return ""


class _Noted:
    """The statements of one connection."""

    def __init__(self) -> None:
        self.found: list[Statement] = []
        self._named: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._left, self._started = b"", False

    def take(self, data: bytes) -> None:
        self._left += data
        while True:
            at = 1 if self._started else 0
            if len(self._left) < at + 4:
                return
            (size,) = struct.unpack_from("!I", self._left, at)
            if len(self._left) < at + size:
                return
            kind, body = self._left[:at], self._left[at + 4 : at + size]
            self._left = self._left[at + size :]
            if self._started:
                self._message(kind, body)
            else:
                self._started = struct.unpack_from("!I", body)[0] == 196_608

    def _message(self, kind: bytes, body: bytes) -> None:
        if kind == b"Q":
            self.found.append([body[:-1].decode(), None])
        elif kind == b"P":
            name, sql, rest = body.split(b"\0", 2)
            (count,) = struct.unpack_from("!H", rest)
            oids = struct.unpack_from(f"!{count}I", rest, 2)
            self._named[name.decode()] = sql.decode(), oids
        elif kind == b"B":
            _, name, rest = body.split(b"\0", 2)
            (formats,) = struct.unpack_from("!H", rest)
            codes = struct.unpack_from(f"!{formats}H", rest, 2)
            at = 2 + 2 * formats
            (count,) = struct.unpack_from("!H", rest, at)
            at += 2
            sql, oids = self._named.get(name.decode(), ("", ()))
            values: list[str | None] = []
            for n in range(count):
                (size,) = struct.unpack_from("!i", rest, at)
                raw = rest[at + 4 : at + 4 + size] if size >= 0 else None
                at += 4 + max(size, 0)
                in_binary = bool(codes) and codes[n if len(codes) > 1 else 0] == 1
                oid = oids[n] if n < len(oids) else 0
                values.append(None if raw is None else _text(raw, oid if in_binary else 0))
            self.found.append([sql, values])


def _text(raw: bytes, oid: int) -> str:
    """`oid`: of a value in binary; 0: it is text."""
    return text.writer(oid)(binary.reader(oid)(raw)) if oid else raw.decode()


async def listen(port: int, target: str, write: Callable[[str], object]) -> None:
    """Until it is stopped."""
    noted: list[_Noted] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, number = target.partition(":")
        there, back = await asyncio.open_connection(host, int(number))
        one = _Noted()
        noted.append(one)

        async def pump(
            source: asyncio.StreamReader, sink: asyncio.StreamWriter, notes: bool
        ) -> None:
            while data := await source.read(65_536):
                if notes:
                    one.take(data)
                    statements = [s for each in noted for s in each.found]
                    write(json.dumps(statements, ensure_ascii=False, indent=1))
                sink.write(data)
                await sink.drain()
            sink.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, back, True))
            group.create_task(pump(there, writer, False))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def answers(address: str, name: str, path: Path) -> None:
    found: list[Statement] = json.loads(path.read_text())
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
        connection.execute("drop database if exists clients")
        connection.execute("create database clients")
    with psycopg.connect(f"{address} dbname=clients", autocommit=True) as connection:
        told = [[*one, answer(connection.pgconn, *one)] for one in found]
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[name] = told
    lines = [
        f"{json.dumps(key)}: [\n"
        + ",\n".join(json.dumps(one, ensure_ascii=False) for one in known[key])
        + "\n]"
        for key in sorted(known)
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["listen", port, target, out]:
            asyncio.run(listen(int(port), target, Path(out).write_text))
        case ["answers", address, name, path]:
            answers(address, name, Path(path))
        case _:
            sys.exit(__doc__)
