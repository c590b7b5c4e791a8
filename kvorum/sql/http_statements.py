"""Statements that come over HTTP (POST /v1/sql): each request has a session of its own, with the
identity that HTTP knows, and the session ends with it: what BEGIN opened and nobody committed is
rolled back, and a notice says so. Rights are the session's, as for every client of the SQL port.

Values are PostgreSQL's text, NULL is null. An answer is bounded in rows and bytes, notices
included; `more` says that there were others. All statements of a request share its time, and each
user has a part of what runs at once. COPY needs the SQL port.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    Refused,
    RestartTxn,
    UnknownOutcome,
)
from kv.base.limits import (
    SQL_HTTP_ANSWER_BYTES_MAX,
    SQL_HTTP_NOTICES_BYTES_MAX,
    SQL_HTTP_STATEMENTS_MAX,
    SQL_HTTP_STATEMENTS_OF_USER_MAX,
)
from kv.base.rights import Identity
from sqlproxy.front.types.registry import format_type
from sqlproxy.pg import text, zones
from sqlproxy.pg.answers import Field
from sqlproxy.pg.style import DEFAULT, Style
from sqlproxy.session.state.settings import ONLY_READS
from sqlproxy.values.errors import QUERY_CANCELED, SqlError
from sqlproxy.wire.compiled import as_sql_error
from sqlproxy.wire.seam import Portal, Session, Sessions

log = logging.getLogger(__name__)

_KINDS: Final[dict[str, type[KvorumError]]] = {
    "40003": UnknownOutcome,
    "40001": RestartTxn,
    "40P01": RestartTxn,
    "57014": DeadlineExceeded,
    "53000": Busy,
    "53300": Busy,
    "53400": Busy,
}
_PAGE: Final = 256  # rows that are fetched and written in one go
_NOT_COMMITTED: Final = {
    "severity": "WARNING",
    "message": "the transaction was rolled back: a request's session ends with it, so BEGIN and "
    "COMMIT go into one request",
}


class _Time:
    """What a request has, all its statements together, whatever statement_timeout says, and as long
    as who asks may go on.
    """

    def __init__(self, session: Session, timeout_ms: int, *, read_only: bool) -> None:
        self._session, self._timeout_ms, self._over = session, timeout_ms, ""
        self._read_only = read_only
        self.lost: KvorumError | None = None  # why who asked may not go on

    def ends(self) -> None:
        self._over = f"its timeout_ms, {self._timeout_ms}, have passed"
        self._session.cancel()

    def left(self, gone: asyncio.Task[KvorumError | None]) -> None:
        if not gone.cancelled():
            self.lost = gone.result()
            if self.lost is not None:
                self._over = self.lost.message
            self._session.cancel()

    def check(self) -> None:
        """Raises SqlError (57014)."""
        if self._over:
            raise SqlError(QUERY_CANCELED, self._over)

    def told(self, error: SqlError, offset: int) -> KvorumError:
        """Why what was cancelled has ended."""
        if not self._over or error.sqlstate != QUERY_CANCELED:
            return _told(error, offset)
        words = f"the request was cancelled: {self._over}"
        if self.lost is not None:  # a COMMIT before this one may have been done
            kind = type(self.lost) if self._read_only else UnknownOutcome
            return kind(words, details={"sqlstate": error.sqlstate})
        return _told(SqlError(QUERY_CANCELED, words), offset)


class Statements:
    """Of one node or proxy."""

    def __init__(self, sessions: Sessions, monotonic: Callable[[], float]) -> None:
        self._sessions, self._monotonic = sessions, monotonic
        self._running: Counter[str] = Counter()  # by user

    async def run(
        self,
        identity: Identity,
        address: str,
        database: str,
        statement: str,
        *,
        read_only: bool,
        rows_max: int,
        timeout_ms: int,
        left: Callable[[], Coroutine[Any, Any, KvorumError | None]],
    ) -> dict[str, Any]:
        """What the last statement of a text answered. `left`: ends when nobody waits any more
        (None), or who asks may not go on (why); what runs is cancelled then. Raises KvorumErrors,
        with SQL's fields in `details`.
        """
        who = identity.name
        if self._running.total() >= SQL_HTTP_STATEMENTS_MAX:
            raise _busy("", SQL_HTTP_STATEMENTS_MAX)
        if self._running[who] >= SQL_HTTP_STATEMENTS_OF_USER_MAX:
            raise _busy(f" of {who!r}", SQL_HTTP_STATEMENTS_OF_USER_MAX)
        self._running[who] += 1
        try:
            settings = {
                "application_name": "http",
                "statement_timeout": str(timeout_ms),
                "default_transaction_read_only": "on" if read_only else "off",
                ONLY_READS: "on" if read_only else "off",
            }
            try:
                session = await self._sessions.open(identity, address, database, settings)
            except SqlError as error:
                raise _told(error, 0) from error
            session.channel.room = SQL_HTTP_NOTICES_BYTES_MAX
            loop = asyncio.get_running_loop()
            time = _Time(session, timeout_ms, read_only=read_only)
            over = loop.call_later(timeout_ms / 1000, time.ends)
            gone = loop.create_task(left())
            gone.add_done_callback(time.left)
            try:
                return await self._run(session, statement, rows_max, time)
            finally:
                over.cancel()
                gone.cancel()
                await session.close()
        finally:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]

    async def _run(
        self, session: Session, statement: str, rows_max: int, time: _Time
    ) -> dict[str, Any]:
        began, at, offset = self._monotonic(), 0, 0
        answer: dict[str, Any] = {"columns": [], "rows": [], "tag": "", "more": False}
        try:
            for part in await session.split(statement):
                offset = max(0, statement.find(part, at))
                at = offset + len(part)
                time.check()
                answer = await self._one(session, part, rows_max)
                await asyncio.sleep(0)  # of many statements each is short
            offset = 0
            time.check()
            await session.sync()
        except Exception as error:  # noqa: BLE001 - the boundary, as the wire's: bugs are told, too
            failed = as_sql_error(error)
            await session.failed(failed)
            try:
                await session.sync()
            except SqlError as worse:
                log.debug("the end of a statement that failed: %s", worse)
            raise time.told(failed, offset) from None
        notices = [
            {"severity": one.severity, "message": one.message} for one in session.channel.notices
        ]
        if left_out := session.channel.left_out:
            words = f"{left_out} notices more are not told: they have too many bytes"
            notices.append({"severity": "WARNING", "message": words})
        if session.status != "I":
            notices.append(_NOT_COMMITTED)
        took_ms = round((self._monotonic() - began) * 1000, 1)
        return {**answer, "notices": notices, "took_ms": took_ms}

    async def _one(self, session: Session, part: str, rows_max: int) -> dict[str, Any]:
        prepared = await session.parse(part, ())
        if prepared.parameters:
            raise SqlError("42P02", "there is no parameter $1")
        portal = await session.bind(prepared, ())
        try:
            if portal.copy_in is not None or portal.copy_out is not None:
                raise SqlError("0A000", "COPY over HTTP is not supported: use the SQL port")
            fields = portal.fields or ()
            rows, more = await session.guard(_rows(session, portal, fields, rows_max))
            columns = [
                {"name": one.name, "type": format_type(one.oid, one.typmod)} for one in fields
            ]
            tag = portal.tag()
            if more and tag.startswith("SELECT "):
                tag = f"SELECT {len(rows)}"  # not what was read ahead
            return {"columns": columns, "rows": rows, "more": more, "tag": tag}
        finally:
            await portal.close()


async def _rows(
    session: Session, portal: Portal, fields: Sequence[Field], rows_max: int
) -> tuple[list[list[str | None]], bool]:
    """As text, and whether there were more. The rest of what changes rows is done all the same."""
    write = [text.writer(one.oid, _style(session)) for one in fields]
    found: list[list[str | None]] = []
    size = 0
    more = False
    while page := await portal.fetch(_PAGE):
        for row in page if fields else ():
            if len(found) >= rows_max or size > SQL_HTTP_ANSWER_BYTES_MAX:
                more = True
                break
            cells = [None if v is None else w(v) for w, v in zip(write, row, strict=True)]
            size += sum(len(cell or "") for cell in cells)
            found.append(cells)
        if more:
            break
        await asyncio.sleep(0)
    return found, more


def _busy(whose: str, limit: int) -> Busy:
    return Busy(
        f"{limit} statements{whose} over HTTP run at this node, the limit; try again, or use the "
        "SQL port",
        details={"limit": limit},
    )


def _style(session: Session) -> Style:
    zone = session.channel.parameters.get("TimeZone")
    try:
        return DEFAULT if zone is None else Style(zones.shown(zone))
    except SqlError:
        return DEFAULT


def _told(error: SqlError, offset: int) -> KvorumError:
    """SQL's error as HTTP tells it; `position` in the whole text, 1 the first character."""
    said: dict[str, object] = {"sqlstate": error.sqlstate}
    if error.position:
        said["position"] = error.position + offset
    for name in ("detail", "hint", "schema", "table", "column", "constraint", "where"):
        if value := getattr(error, name):
            said[name] = str(value)  # of a DETAIL that knows more, what all may see
    wrong = error.sqlstate[:2] in ("42", "22", "0A", "26", "34")
    kind = _KINDS.get(error.sqlstate) or (InvalidArgument if wrong else Refused)
    return kind(error.message, code="SQL_ERROR", details=said)
