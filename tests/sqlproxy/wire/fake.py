"""A session that keeps no tables: enough SQL to make a client do all that the protocol has.

SELECT $1::int4, 'x'::text AS a        casts of parameters and literals, echoed
SELECT * FROM rows(N)                  N rows (id int4, name text), in several fetches
SELECT * FROM wide(N)                  N rows of 10,000 characters
BEGIN COMMIT ROLLBACK SAVEPOINT …      status only; a failing statement fails the transaction
INSERT INTO log VALUES ($1)            remembered when its transaction commits; 'refuse' cannot
COPY t FROM STDIN / TO STDOUT          what was copied in comes out again
SELECT …, with `Shared.short`          begun by `start`, and ended by the test
DECLARE c CURSOR FOR …, FETCH n FROM c, CLOSE c
SLEEP, FAIL, CRASH, NOTICE, SET TimeZone TO 'x', EMPTY
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kv.base.accounts import USER, Account, Use
from kv.base.errors import KvorumError
from kv.base.rights import Identity
from sqlproxy.catalog.scram import make_verifier
from sqlproxy.pg import oids, text
from sqlproxy.pg.answers import Answered, Columns, CopyFormat, Field, Part, Row
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import Budget, Share
from sqlproxy.wire.seam import Channel, Done, Notice, Status

_CAST = re.compile(
    r"\s*(?:\$(\d+)|'((?:[^']|'')*)'|(-?\d+))\s*(?:::\s*([a-z0-9_]+(?:\[\])?))?"
    r"(?:\s+as\s+(\w+))?\s*",
    re.IGNORECASE,
)
_COPY_FIELDS = (Field("id", oids.INT4), Field("name", oids.TEXT))
_ALIASES = {"int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2"}


@dataclass
class Parsed:
    text: str
    kind: str
    parameters: Sequence[int] = ()
    fields: Sequence[Field] | None = None
    columns: list[tuple[int, Any]] = field(default_factory=list)  # (parameter or 0, value)
    count: int = 0
    copy: CopyFormat | None = None
    wire: Any = None
    short: Any = None


@dataclass
class Shared:
    """What all sessions of a fake server know."""

    log: list[str] = field(default_factory=list)  # of INSERTs that are committed
    copied: list[Row] = field(default_factory=list)
    closed: int = 0
    hidden: str = "secret"
    canceled: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    closed_portals: int = 0
    running: asyncio.Event = field(default_factory=asyncio.Event)
    known: set[str] = field(default_factory=set)  # texts that were parsed before
    late: KvorumError | None = None  # instead of sessions
    short: bool = False  # values are answered by `start`
    begun: list[tuple[Done, Answered]] = field(default_factory=list)  # … and wait here


class FakePortal:
    def __init__(self, session: FakeSession, of: Parsed, values: Sequence[Any]) -> None:
        self.session = session
        self.of = of
        self.values = values
        self.fields: Sequence[Field] | None = of.fields
        self.copy_in = of.copy if of.kind == "copy_in" else None
        self.copy_out = of.copy if of.kind == "copy_out" else None
        self.wire: Any = None
        self.ends = of.kind in ("commit", "rollback")
        self._at = 0
        self._taken: list[Row] = []
        self._inner: FakePortal | None = None
        self._left = 0
        self.sent = 0

    async def fetch(self, rows_max: int) -> Sequence[Row]:
        of = self.of
        match of.kind:
            case "values":
                if self._at:
                    return []
                self._at = 1
                self.sent = 1
                return [tuple(self.values[n - 1] if n else v for n, v in of.columns)]
            case "rows" | "wide":
                first, self._at = self._at, min(of.count, self._at + rows_max)
                self.sent += self._at - first
                if of.kind == "wide":
                    return [(i, "x" * 10_000) for i in range(first, self._at)]
                return [(i, f"name {i}") for i in range(first, self._at)]
            case "copy_out":
                rows, self._left = self.session.shared.copied[self._at :], 0
                self._at += len(rows)
                self.sent += len(rows)
                return rows
            case "fetch":
                return await self._fetch(rows_max)
            case _:
                await self.session.execute(self)
                return []

    async def _fetch(self, rows_max: int) -> Sequence[Row]:
        assert self._inner is not None
        rows = await self._inner.fetch(min(rows_max, self._left))
        self._left -= len(rows)
        self.sent += len(rows)
        return rows if self._left >= 0 else []

    def from_cursor(self, inner: FakePortal, count: int) -> None:
        self._inner, self._left, self.fields = inner, count, inner.fields

    async def take(self, rows: Sequence[Row]) -> None:
        self._taken += rows

    async def take_parts(self, parts: Sequence[Part]) -> None:
        for found in parts:
            await self.take(found.rows() if isinstance(found, Columns) else found)

    async def finish(self) -> None:
        self.session.shared.copied += self._taken
        self.sent = len(self._taken)

    def tag(self) -> str:
        match self.of.kind:
            case "values" | "rows" | "wide":
                return f"SELECT {self.sent}"
            case "fetch":
                return f"FETCH {self.sent}"
            case "copy_in" | "copy_out":
                return f"COPY {self.sent}"
            case "insert":
                return "INSERT 0 1"
            case "empty":
                return ""
            case _:
                return self.of.text.split()[0].upper()

    async def close(self) -> None:
        self.session.shared.closed_portals += 1


class FakeSession:
    def __init__(self, shared: Shared, settings: Mapping[str, str]) -> None:
        self.shared = shared
        self.status: Status = "I"
        self.channel = Channel(parameters={"TimeZone": settings.get("TimeZone", "UTC")})
        self.budget = Budget(Share())
        self.use = Use(Account(USER, "ann", lambda: 0, shown=True))
        self.statements: dict[str, Any] = {}
        self.portals: dict[str, Any] = {}
        self.idle_ms_max = 0
        self.lone = False
        self._pending: list[str] = []
        self._wait: asyncio.Future[None] | None = None

    async def split(self, text: str) -> list[str]:
        return [part for part in text.split(";") if part.strip()]

    async def parse(self, text: str, oids_given: Sequence[int]) -> Parsed:
        if self.status == "E" and text.strip().split()[0].upper() not in ("ROLLBACK", "COMMIT"):
            raise SqlError("25P02", "current transaction is aborted")
        found = parsed(text.strip().rstrip(";"), oids_given)
        found.short = (self.shared.short and found.kind == "values") or None
        return found

    def known(self, text: str, oids_given: Sequence[int]) -> Parsed | None:
        if text not in self.shared.known:
            return None
        return replace(parsed(text, oids_given), short=True)

    async def look_again(self) -> None:
        """Nothing is declared here."""

    async def bind(self, statement: Any, values: Sequence[Any]) -> FakePortal:
        portal = FakePortal(self, statement, values)
        if statement.kind == "fetch":
            name = statement.text.split()[-1].strip('"')
            if name not in self.portals:
                raise SqlError("34000", f'cursor "{name}" does not exist')
            count = statement.count
            portal.from_cursor(self.portals[name], count)
        return portal

    def start(self, statement: Any, values: Sequence[Any], done: Done) -> bool:
        row = tuple(values[n - 1] if n else v for n, v in statement.columns)
        self.shared.begun.append((done, Answered("SELECT 1", [row])))
        self.shared.running.set()
        return True

    async def execute(self, portal: FakePortal) -> None:
        words = portal.of.text.split()
        match portal.of.kind:
            case "begin":
                self.status = "T"
            case "commit" | "rollback":
                failed = self.status == "E"
                await self._end(commit=portal.of.kind == "commit" and not failed)
            case "insert":
                literal = words[-1].strip("()'")
                self._pending.append(str(portal.values[0]) if portal.values else literal)
            case "sleep":
                self._wait = asyncio.get_running_loop().create_future()
                self.shared.running.set()
                await self._wait
            case "fail":
                raise SqlError("22012", "division by zero", position=3, hint="Do not.")
            case "crash":
                raise ZeroDivisionError(self.shared.hidden)
            case "notice":
                self.channel.tell(Notice("NOTICE", "00000", "look here", hint="there"))
            case "set":
                value = words[-1].strip("'")
                self.channel.parameters[words[1]] = value
            case "declare":
                name = words[1].strip('"')
                inner = parsed(portal.of.text.split(" FOR ", 1)[1], ())
                self.portals[name] = FakePortal(self, inner, ())
            case "close":
                self.portals.pop(words[1].strip('"'), None)
            case _:
                pass

    async def _end(self, *, commit: bool) -> None:
        pending, self._pending = self._pending, []
        self.status = "I"
        for portal in list(self.portals.values()):
            await portal.close()
        self.portals.clear()
        if commit:
            if "refuse" in pending:
                raise SqlError("40001", "could not serialize access due to concurrent update")
            self.shared.log += pending

    async def guard(self, work: Awaitable[Any]) -> Any:
        return await work

    async def failed(self, error: BaseException) -> None:
        self._pending = []
        if self.status == "T":
            self.status = "E"

    async def word(self, error: BaseException) -> None:
        """It may see all."""

    async def sync(self) -> None:
        if self.status == "I":
            await self._end(commit=True)

    def cancel(self) -> None:
        self.shared.canceled += 1
        if self._wait is not None and not self._wait.done():
            self._wait.set_exception(SqlError("57014", "canceling statement due to user request"))

    async def close(self) -> None:
        self.shared.closed += 1


def parsed(text: str, given: Sequence[int]) -> Parsed:
    word = text.split()[0].lower() if text.split() else "empty"
    if found := re.fullmatch(r"select \* from (rows|wide)\((\d+)\)", text, re.IGNORECASE):
        return Parsed(text, found[1].lower(), fields=_COPY_FIELDS, count=int(found[2]))
    if re.fullmatch(r"select .* from \"t\" limit 1", text, re.IGNORECASE):
        return Parsed(text, "rows", fields=_COPY_FIELDS)
    if word == "select":
        return _values(text, given)
    if word == "copy":
        to_out = " to stdout" in text.lower()
        of = _copy_format(text)
        return Parsed(text, "copy_out" if to_out else "copy_in", fields=_COPY_FIELDS, copy=of)
    if word == "fetch":
        found = re.search(r"(\d+)", text)
        count = 10**9 if " all " in text.lower() or found is None else int(found[1])
        return Parsed(text, "fetch", fields=_COPY_FIELDS, count=count)
    if word == "insert":
        return Parsed(text, "insert", parameters=(oids.TEXT,) if "$1" in text else ())
    known = {"begin", "commit", "rollback", "savepoint", "sleep", "fail", "crash", "notice", "set"}
    known |= {"declare", "close", "empty", "release", "deallocate"}
    if word not in known:
        raise SqlError("42601", f'syntax error at or near "{word}"', position=1)
    return Parsed(text, word)


def _values(text_given: str, given: Sequence[int]) -> Parsed:
    columns: list[tuple[int, Any]] = []
    fields: list[Field] = []
    types: dict[int, int] = dict(enumerate((oid for oid in given), 1))
    for item in text_given[6:].split(","):
        found = _CAST.fullmatch(item)
        if found is None:
            raise SqlError("42601", "syntax error in SELECT", position=8)
        number, literal, digits, type_name, alias = found.groups()
        name = _ALIASES.get(type_name or "", type_name or ("int4" if digits else "text"))
        oid = oids.by_name(name)[0].oid
        if number:
            types[int(number)] = types.get(int(number)) or oid
            oid = types[int(number)] if type_name is None else oid
            columns.append((int(number), None))
        else:
            raw = digits if digits is not None else literal.replace("''", "'")
            columns.append((0, text.reader(oid)(raw)))
        fields.append(Field(alias or "?column?", oid))
    return Parsed(
        text_given,
        "values",
        parameters=[types[n] for n in sorted(types)],
        fields=fields,
        columns=columns,
    )


def _copy_format(text_given: str) -> CopyFormat:
    lowered = text_given.lower()
    if "binary" in lowered:
        return CopyFormat("binary", table="t")
    if "csv" in lowered:
        return CopyFormat("csv", delimiter=",", null="", header="header" in lowered, table="t")
    return CopyFormat(table="t")


class FakeSessions:
    """`users`: name → password; without any, everybody is trusted."""

    def __init__(self, users: Mapping[str, str] | None = None) -> None:
        self.shared = Shared()
        self.opened: list[FakeSession] = []
        self._verifiers = {
            user: make_verifier(password, user.encode().ljust(16)[:16]).text()
            for user, password in (users or {}).items()
        }

    async def open(
        self, identity: Identity, address: str, database: str, settings: Mapping[str, str]
    ) -> FakeSession:
        if database == "nowhere":
            raise SqlError("3D000", f'database "{database}" does not exist')
        if self.shared.late is not None:
            raise self.shared.late
        self.shared.settings = dict(settings)
        session = FakeSession(self.shared, settings)
        self.opened.append(session)
        return session

    async def verifier(self, user: str) -> str | None:
        return self._verifiers.get(user)

    async def trusted(self, loopback: bool) -> bool:
        return loopback and not self._verifiers
