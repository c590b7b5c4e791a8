"""One logged-in client: its messages into calls of its session, and the answers into bytes.

    Q                 split, then each: parse, bind, fetch …; sync; ReadyForQuery
    P B D E C         parse, bind, describe, execute, close; after an error: nothing until S
    S                 sync; ReadyForQuery
    H                 what is there is written
    F                 an error, sync, ReadyForQuery: functions are called by SELECT
    d c f             of a COPY that failed: ignored

CommandComplete of the last statement before a Sync waits for the commit: a client that got
`INSERT 0 1` has rows that are there. (PostgreSQL sends it first in the extended
protocol, and an error of the commit after it.)

A message that ends with ReadyForQuery is written before anything that comes after it is waited
for, also when more messages are here.

Whatever a statement raises ends that statement only. A client whose messages cannot be
distinguished from each other (ProtocolError) loses the connection. An error that is our own bug is
XX000 to the client and a line in the log, which has no text of users.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from kv.base.limits import (
    SQL_ASIDE_CHARS,
    SQL_ENCODE_ROWS,
    SQL_FETCH_ROWS,
    SQL_MESSAGE_BYTES_MAX,
    SQL_OUTPUT_BYTES,
    SQL_PORTALS_MAX,
    SQL_STATEMENTS_AT_ONCE,
    SQL_STATEMENTS_MAX,
    MiB,
)
from sqlproxy.pg import zones
from sqlproxy.pg.answers import Answered, Field
from sqlproxy.pg.style import DEFAULT, Style
from sqlproxy.values.enums import Unfit
from sqlproxy.values.errors import (
    DUPLICATE_CURSOR,
    DUPLICATE_PREPARED,
    LIMIT_EXCEEDED,
    PROTOCOL_VIOLATION,
    UNDEFINED_CURSOR,
    UNDEFINED_PREPARED,
    SqlError,
    in_failed_transaction,
    unsupported,
)
from sqlproxy.values.memory import Held, size_of_rows
from sqlproxy.wire import codec
from sqlproxy.wire.codec import Fatal, ProtocolError, Skipped
from sqlproxy.wire.compiled import VARIANTS_MAX, Bound, Compiled, Output, as_sql_error, output_of
from sqlproxy.wire.copying import CopyIn, CopyOut
from sqlproxy.wire.rows import Read, parameter_reader
from sqlproxy.wire.seam import Portal, Session, Statement

log = logging.getLogger(__name__)

_ALL_TEXT: Final = b"\x00\x00"  # of Bind: no format codes
_SAMPLE: Final = 16  # of so many rows one is looked at for their size
_MESSAGES_AT_ONCE: Final = 64  # before others have the loop
_OF_COPY: Final = (codec.COPY_DATA, codec.COPY_DONE, codec.COPY_FAIL)


class Gone(Exception):
    """The client's connection is no more; nobody is left."""


class Door(Protocol):
    """The socket, as the conversation needs it. `out`: replies that are not written yet; always the
    same object.
    """

    out: bytearray

    @property
    def stalled(self) -> bool:
        """Whether its client leaves unread what was written."""
        ...

    @property
    def synced(self) -> bool:
        """Whether the next message is here, and a Sync."""
        ...

    def pull(self) -> tuple[int, bytes | Skipped] | None:
        """The next message if it is here."""
        ...

    async def message(self) -> tuple[int, bytes | Skipped]:
        """The next message; writes what is in `out` before it waits. Raises Gone."""
        ...

    def flush(self) -> None: ...

    def ready(self) -> None:
        """What is in `out` now is a whole answer: it is written before anything waits."""
        ...

    async def drain(self) -> None:
        """Flush, and wait until the client has taken enough of it; others have the loop at least
        once. Raises Gone.
        """
        ...

    def answered(self, reply: bytes | None) -> None:
        """What the cycle that `Conversation.start` began is answered, after what is in `out`;
        None: it goes the usual way.
        """
        ...

    async def turn(self) -> None:
        """Between two pieces of a long answer: wait until its client has taken enough, and let
        others do something (`kv.base.fair_turns`). Raises Gone, SqlError: it is cancelled.
        """
        ...


class Conversation:
    """`run` works on all messages that are here. One task at a time."""

    __slots__ = (
        "_described",
        "_door",
        "_held",
        "_known",
        "_output",
        "_parsed",
        "_session",
        "_skipping",
        "_style",
        "_zone",
        "ended",
    )

    def __init__(self, session: Session, door: Door) -> None:
        self._session = session
        self._door = door
        self._style: Style = DEFAULT
        self._zone = "UTC"
        self._skipping = False  # until Sync, after an error
        self._held = b""  # CommandComplete that waits for Sync
        self._known: dict[bytes, _Known] = {}  # prepared statements by name, as they came last
        # Of the cycle that `start` began: there is one at a time.
        self._output: Output | None = None
        self._parsed: Statement | None = None
        self._described = False
        self.ended = False  # the client said goodbye

    @property
    def at_rest(self) -> bool:
        """Between two messages of queries: nothing of an extended query is under way."""
        return not self._skipping and not self._held

    async def run(self) -> None:
        """Raises Fatal, Gone."""
        pull = self._door.pull
        done = 0
        while not self.ended and (message := pull()) is not None:
            kind, body = message
            if kind == codec.SYNC:
                await self._sync(_whole(body, ""))
            elif kind == codec.TERMINATE:
                self.ended = True
            elif kind == codec.PASSWORD:
                raise ProtocolError(f"invalid frontend message type {kind}")
            elif self._skipping or kind in _OF_COPY:
                continue  # of a COPY that failed; the client could not know
            elif kind == codec.QUERY:
                await self._query(body)
            elif kind == codec.FUNCTION_CALL:
                await self._function_call(body)
            else:
                await self._extended(kind, body)
            done += 1
            full = len(self._door.out) > SQL_OUTPUT_BYTES or self._door.stalled
            if full or not done % _MESSAGES_AT_ONCE:
                await self._door.drain()

    def start(self, cycle: codec.Cycle) -> bool:
        """Begin a cycle that the session can do without a task. False: it goes the usual way. Else
        the door gets it later (`Door.answered`).
        """
        session = self._session
        parse, bind, described, _ = cycle
        long = len(bind) > SQL_ASIDE_CHARS  # its values are read with breaks
        if self._held or self._skipping or session.portals or long:
            return False
        try:
            parsed = None
            known = None if parse else self._known.get(bind[1 : bind.index(0, 1)])
            values = None
            if known is not None and session.statements.get(known.name) is known.statement:
                values = known.values(bind)
            if known is not None and values is not None:
                statement, output = known.statement, known.output
            else:
                message = codec.read_bind(bind)
                if parse:
                    name, text, oids = codec.read_parse(parse)
                    if name or message.statement:
                        return False
                    found = parsed = session.known(text, oids)
                else:
                    found = session.statements.get(message.statement)
                if found is None or found.short is None:
                    return False
                statement, raws = found, message.values
                compiled = self._compiled(statement)
                readers = compiled.readers.get(message.formats)
                if readers is None:
                    readers = self._readers(compiled, statement, message)
                if len(readers) != len(raws):
                    return False
                values = _read(readers, raws)
                output = None
                if statement.fields is not None:
                    output = output_of(compiled, message.results, statement.fields, self._style)
                if not parse:
                    self._know(_Known(message, bind, statement, readers, output))
        except Exception:  # noqa: BLE001 - the usual way meets it again, and says so to the client
            return False
        self._output, self._parsed, self._described = output, parsed, described
        return session.start(statement, values, self._answered)

    def _know(self, known: _Known) -> None:
        if len(self._known) >= VARIANTS_MAX:
            self._known.clear()
        self._known[known.name.encode()] = known

    def _answered(self, answer: Answered | SqlError | None) -> None:
        """The end of the cycle that was begun by `start`."""
        if answer is None:
            self._door.answered(None)
            return
        output, parsed, described = self._output, self._parsed, self._described
        channel = self._session.channel
        if output is None and parsed is None and type(answer) is Answered:
            if channel.notices or channel.parameters:
                self.tell()
            self._door.answered(_plainly(answer.tag, described))
            return
        head = codec.BIND_COMPLETE
        if parsed is not None:
            self._session.statements[""] = parsed
            head = codec.PARSE_COMPLETE + head
        if described:
            head += codec.NO_DATA if output is None else output.description
        if isinstance(answer, SqlError):
            message_bytes = codec.error_response(answer, style=self._style)
        else:
            try:
                message_bytes = b""
                if output is not None and answer.rows:
                    message_bytes = b"".join(map(output.message, answer.rows))
                message_bytes += completed(answer.tag)
            except Exception as error:  # noqa: BLE001 - the boundary: see the module
                message_bytes = codec.error_response(as_sql_error(error), style=self._style)
        if channel.notices or channel.parameters:
            self.tell()
        self._door.answered(head + message_bytes + codec.READY["I"])

    # -- what is sent out of turn

    def tell(self) -> None:
        """Notices and changed settings, before the next reply. The zone is ours to obey, too."""
        channel = self._session.channel
        if channel.notices:
            notices, channel.notices = channel.notices, []
            for notice in notices:
                self._door.out += codec.notice_response(notice)
        if channel.parameters:
            changed, channel.parameters = channel.parameters, {}
            for name, value in changed.items():
                self._door.out += codec.parameter_status(name, value)
                if name == "TimeZone":
                    self.use_zone(value)

    def hear(self) -> None:
        """What other sessions have said, between two transactions."""
        channel = self._session.channel
        if channel.notifications and self._session.status == "I":
            for one in channel.notifications:
                self._door.out += codec.notification_response(one)
            channel.notifications.clear()

    def use_zone(self, name: str) -> None:
        try:
            self._style = Style(zones.shown(name))
        except SqlError:  # the session's zones are its own business: it stays at what it was
            log.warning("the time zone %.64r of a session is not known", name)
            return
        self._zone = name
        self._known.clear()

    # -- errors and ends

    async def _fail(self, error: BaseException, *, offset: int = 0) -> None:
        """Tell the client, then the session. The held tag was of a statement that succeeded."""
        self._release()
        message = as_sql_error(error)
        await self._session.failed(message)
        self.tell()
        self._door.out += codec.error_response(message, offset=offset, style=self._style)

    def _release(self) -> None:
        if self._held:
            self._door.out += self._held
            self._held = b""

    async def _sync(self, body: bytes = b"") -> None:
        self._skipping = False
        if body:
            await self._fail(codec.malformed("invalid message format"))
        held, self._held = self._held, b""
        session = self._session
        try:
            await session.sync()
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            told = as_sql_error(error)
            await session.word(told)
            held = codec.error_response(told, style=self._style)
        channel = session.channel
        if channel.notices or channel.parameters:
            self.tell()
        out = self._door.out
        out += held
        if channel.notifications:
            self.hear()
        out += codec.READY[session.status]
        self._door.ready()

    # -- simple queries

    async def _query(self, body: bytes | Skipped) -> None:
        self._release()
        offset = 0
        last = b""
        try:
            text = codec.read_query(_whole(body, "the query"))
            await self._forget_unnamed()
            parts = await self._session.split(text)
            if not parts:
                self._door.out += codec.EMPTY_QUERY
            at = 0
            for n, part in enumerate(parts, 1):
                if not n % SQL_STATEMENTS_AT_ONCE:
                    await self._door.turn()
                offset = max(0, text.find(part, at))
                at = offset + len(part)
                self._door.out += last
                last = await self._simple(part)
                if len(self._door.out) > SQL_OUTPUT_BYTES:
                    await self._door.drain()
        except (Fatal, Gone):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            await self._fail(error, offset=offset)
            last = b""
        self._held = last
        await self._sync()

    async def _simple(self, text: str) -> bytes:
        """One statement; its CommandComplete."""
        statement = await self._session.parse(text, ())
        if statement.parameters:
            raise SqlError("42P02", "there is no parameter $1")
        portal = await self._session.bind(statement, ())
        try:
            if portal.copy_in is not None or portal.copy_out is not None:
                return await self._copy(portal)
            fields = portal.fields
            if fields is None:
                await portal.fetch(SQL_FETCH_ROWS)
            else:
                output = output_of(self._compiled(statement), _ALL_TEXT, fields, self._style)
                await self._rows(portal, output, 0, description=output.description)
            self.tell()
            tag = portal.tag()
        finally:
            await portal.close()
        return codec.command_complete(tag) if tag else codec.EMPTY_QUERY

    async def _forget_unnamed(self) -> None:
        """A simple query ends the unnamed statement and portal, as in PostgreSQL."""
        session = self._session
        session.statements.pop("", None)
        portal = session.portals.pop("", None)
        if portal is not None:
            await portal.close()

    async def _function_call(self, body: bytes | Skipped) -> None:
        """It has an answer as a query has, and none of them is called so."""
        self._release()
        try:
            codec.read_function_call(_whole(body, "the arguments of the function"))
            if self._session.status == "E":
                raise in_failed_transaction()
            raise unsupported("the function call protocol", hint="Use SELECT.")
        except SqlError as error:
            await self._fail(error)
        await self._sync()

    # -- the extended protocol

    async def _extended(self, kind: int, body: bytes | Skipped) -> None:
        try:
            if kind == codec.BIND:
                await self._bind(_whole(body, "the values of the statement"))
            elif kind == codec.EXECUTE:
                await self._execute(_whole(body, ""))
            elif kind == codec.DESCRIBE:
                self._describe(_whole(body, ""))
            elif kind == codec.PARSE:
                await self._parse(_whole(body, "the statement"))
            elif kind == codec.CLOSE:
                await self._close(_whole(body, ""))
            else:
                assert kind == codec.FLUSH, "no other kind comes here"
                codec.read_nothing(_whole(body, ""))
                self._release()
                self._door.flush()
        except (Fatal, Gone):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            await self._fail(error)
            self._skipping = True

    async def _parse(self, body: bytes) -> None:
        self._release()
        name, text, oids = codec.read_parse(body)
        statements = self._session.statements
        if not name:
            statements.pop("", None)
        elif len(statements) >= SQL_STATEMENTS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"more than {SQL_STATEMENTS_MAX} prepared statements in one session",
                hint="Close those that are no longer needed.",
            )
        statement = await self._session.parse(text, oids)
        if name in statements:  # told behind what is wrong with the text, as PostgreSQL does
            raise SqlError(DUPLICATE_PREPARED, f'prepared statement "{name}" already exists')
        statements[name] = statement
        self._door.out += codec.PARSE_COMPLETE

    async def _bind(self, body: bytes) -> None:
        if self._held:
            self._release()
        message = codec.read_bind(body)
        session = self._session
        statement = session.statements.get(message.statement)
        if statement is None:
            raise _no_statement(message.statement)
        portals = session.portals
        if message.portal:
            if message.portal in portals:
                raise SqlError(DUPLICATE_CURSOR, f'cursor "{message.portal}" already exists')
            if len(portals) >= SQL_PORTALS_MAX:
                raise SqlError(
                    LIMIT_EXCEEDED, f"more than {SQL_PORTALS_MAX} portals in one transaction"
                )
        elif (old := portals.pop("", None)) is not None:
            await old.close()
        compiled = self._compiled(statement)
        readers = compiled.readers.get(message.formats)
        if readers is None:
            readers = self._readers(compiled, statement, message)
        if len(readers) != len(message.values):
            raise SqlError(
                PROTOCOL_VIOLATION,
                f"bind message supplies {len(message.values)} parameters, but prepared statement "
                f'"{message.statement}" requires {len(readers)}',
            )
        try:
            values = await self._values(readers, message.values, len(body))
        except Unfit:  # a label, perhaps, that was added since the session looked
            await session.look_again()
            values = await self._values(readers, message.values, len(body))
        portal = await session.bind(statement, values)
        bound = Bound(compiled, message.results)
        if portal.fields is not None and portal.copy_out is None and portal.copy_in is None:
            bound.output = output_of(compiled, message.results, portal.fields, self._style)
        portal.wire = bound
        portals[message.portal] = portal
        self._door.out += codec.BIND_COMPLETE

    async def _values(
        self, readers: list[Read], raws: Sequence[bytes | None], size: int
    ) -> list[object]:
        """The values of parameters; those of a long message with breaks. Raises SqlError."""
        if size <= SQL_ASIDE_CHARS:
            return _read(readers, raws)

        async def read() -> list[Any]:
            return _read(readers, raws)

        values: list[object] = await self._session.guard(read())
        return values

    def _compiled(self, statement: Statement) -> Compiled:
        by_zone = statement.wire
        if by_zone is None:
            by_zone = statement.wire = {}
        compiled: Compiled | None = by_zone.get(self._zone)
        if compiled is None:
            if len(by_zone) >= VARIANTS_MAX:
                by_zone.clear()
            compiled = by_zone[self._zone] = Compiled()
        return compiled

    def _readers(self, compiled: Compiled, statement: Statement, message: codec.Bind) -> list[Read]:
        types = statement.parameters
        codes = codec.format_codes(
            message.formats,
            len(types),
            "bind message has {given} parameter formats but {count} parameters",
        )
        readers = [
            parameter_reader(oid, code, self._style) for oid, code in zip(types, codes, strict=True)
        ]
        if len(compiled.readers) >= VARIANTS_MAX:
            compiled.readers.clear()
        compiled.readers[message.formats] = readers
        return readers

    def _describe(self, body: bytes) -> None:
        if self._held:
            self._release()
        is_statement, name = codec.read_target(body)
        out = self._door.out
        if is_statement:
            statement = self._session.statements.get(name)
            if statement is None:
                raise _no_statement(name)
            fields = statement.fields
            if fields is not None:
                self._check_alive()
            out += codec.parameter_description(statement.parameters)
            out += (
                codec.NO_DATA
                if fields is None
                else codec.row_description(fields, (0,) * len(fields))
            )
            return
        portal = self._portal(name)
        fields = portal.fields
        if fields is None or portal.copy_in is not None or portal.copy_out is not None:
            out += codec.NO_DATA
        else:
            self._check_alive()
            out += self._portal_output(portal, fields).description

    def _check_alive(self) -> None:
        """Raises SqlError (25P02)."""
        if self._session.status == "E":
            raise in_failed_transaction()

    def _portal(self, name: str) -> Portal:
        portal = self._session.portals.get(name)
        if portal is None:
            raise SqlError(UNDEFINED_CURSOR, f'portal "{name}" does not exist')
        return portal

    def _portal_output(self, portal: Portal, fields: Sequence[Field]) -> Output:
        """Of a cursor that SQL declared there is no Bind: text."""
        bound = portal.wire
        if bound is None:
            bound = portal.wire = Bound(None, _ALL_TEXT)
        if bound.output is None or bound.output.fields is not fields:
            bound.output = output_of(bound.compiled, bound.results, fields, self._style)
        output: Output = bound.output
        return output

    async def _execute(self, body: bytes) -> None:
        if self._held:
            self._release()
        name, rows_max = codec.read_execute(body)
        portal = self._portal(name)
        if not portal.ends:
            self._check_alive()
        fields = portal.fields
        if fields is None or portal.copy_in is not None or portal.copy_out is not None:
            if portal.wire.ran and portal.tag():  # an empty statement is run any number of times
                raise SqlError("55000", f'portal "{name}" cannot be run')
            portal.wire.ran = True
        if portal.copy_in is not None or portal.copy_out is not None:
            self._held = await self._copy(portal)  # more may come between its rows and a Sync
            return
        self._session.lone = self._door.synced
        if fields is None:
            await portal.fetch(SQL_FETCH_ROWS)
        else:
            output = self._portal_output(portal, fields)
            if not await self._rows(portal, output, rows_max):
                self.tell()
                portal.tag()  # the next one counts what comes now
                self._door.out += codec.PORTAL_SUSPENDED
                return
        channel = self._session.channel
        if channel.notices or channel.parameters:
            self.tell()
        tag = portal.tag()
        self._held = codec.command_complete(tag) if tag else codec.EMPTY_QUERY

    async def _rows(
        self, portal: Portal, output: Output, rows_max: int, *, description: bytes = b""
    ) -> bool:
        """Rows until the portal has ended or `rows_max` (0 = all) are sent; whether it ended. All
        of it together has the time that a statement may take.
        """
        whole: bool = await self._session.guard(
            self._send(portal, output, rows_max, description=description)
        )
        return whole

    async def _send(
        self, portal: Portal, output: Output, rows_max: int, *, description: bytes
    ) -> bool:
        left = rows_max or SQL_FETCH_ROWS
        rows = await portal.fetch(min(left, SQL_FETCH_ROWS))
        out = self._door.out
        out += description
        while rows:
            if len(rows) <= SQL_ENCODE_ROWS:
                output.encode(rows, out)
            else:
                for at in range(0, len(rows), SQL_ENCODE_ROWS):
                    output.encode(rows[at : at + SQL_ENCODE_ROWS], out)
                    await self._door.turn()
            if len(out) > SQL_OUTPUT_BYTES:
                with Held(self._session.budget) as held:  # it may be long until they are read
                    some = rows[::_SAMPLE]
                    held.add(size_of_rows(some) * len(rows) // len(some))
                    await self._door.turn()
            if rows_max:
                left -= len(rows)
                if left <= 0:
                    return False
            rows = await portal.fetch(min(left, SQL_FETCH_ROWS))
        return True

    async def _close(self, body: bytes) -> None:
        self._release()
        is_statement, name = codec.read_target(body)
        if is_statement:
            self._session.statements.pop(name, None)
        else:
            portal = self._session.portals.pop(name, None)
            if portal is not None:
                await portal.close()
        self._door.out += codec.CLOSE_COMPLETE

    # -- COPY

    async def _copy(self, portal: Portal) -> bytes:
        """The whole of a COPY; its CommandComplete."""
        if portal.copy_in is not None:
            guard = self._session.guard
            await CopyIn(portal, portal.copy_in, self._style, self._door, guard).run()
        else:
            assert portal.copy_out is not None
            out = CopyOut(portal, portal.copy_out, self._style, self._door)
            await self._session.guard(out.run())
        self.tell()
        return codec.command_complete(portal.tag())


class _Known:
    """A prepared statement as a Bind named it last: what is read of the next one are its values, if
    its other bytes are the same.
    """

    __slots__ = ("_head", "_readers", "_tail", "name", "output", "statement")

    def __init__(
        self,
        message: codec.Bind,
        body: bytes,
        statement: Statement,
        readers: Sequence[Read],
        output: Output | None,
    ) -> None:
        """`body`: of the Bind that was read as `message`."""
        self.name, self.statement, self.output = message.statement, statement, output
        values = sum(4 + len(raw or b"") for raw in message.values)
        self._tail = message.results
        self._head = body[: len(body) - len(self._tail) - values]
        self._readers = readers

    def values(
        self, body: bytes, unpack: Callable[[bytes, int], tuple[int]] = codec.unpack_i4
    ) -> list[Any] | None:
        """Of another Bind; None: it has to be read as a whole. Raises what readers raise."""
        if not body.startswith(self._head):
            return None
        at = len(self._head)
        values: list[object] = []
        for read in self._readers:
            (size,) = unpack(body, at)
            at += 4
            if size >= 0:
                end = at + size
                values.append(read(body[at:end]))
                at = end
            elif size == -1:
                values.append(None)
            else:
                return None
        return values if body[at:] == self._tail else None


@lru_cache(maxsize=64)
def completed(tag: str) -> bytes:
    """CommandComplete of the tags that come again and again."""
    return codec.command_complete(tag)


@lru_cache(maxsize=64)
def _plainly(tag: str, described: bool) -> bytes:
    """All that a cycle of a prepared statement without rows is answered."""
    said = codec.NO_DATA if described else b""
    return codec.BIND_COMPLETE + said + codec.command_complete(tag) + codec.READY["I"]


def _no_statement(name: str) -> SqlError:
    if name:
        return SqlError(UNDEFINED_PREPARED, f'prepared statement "{name}" does not exist')
    return SqlError(UNDEFINED_PREPARED, "unnamed prepared statement does not exist")


def _whole(body: bytes | Skipped, what: str) -> bytes:
    if isinstance(body, bytes):
        return body
    raise SqlError(
        LIMIT_EXCEEDED,
        f"{what} has {body.size} bytes; at most {SQL_MESSAGE_BYTES_MAX // MiB} MiB are taken",
        hint="Send it in several statements, or use COPY.",
    )


def _read(
    readers: Sequence[Callable[[bytes], object]], raws: Sequence[bytes | None]
) -> list[object]:
    """The values of parameters."""
    return [None if raw is None else read(raw) for read, raw in zip(readers, raws, strict=True)]
