"""COPY FROM STDIN and TO STDOUT: messages of the client ↔ rows of the portal.

In: pieces are put together until SQL_COPY_BATCH_BYTES are there, read slice by slice, between which
others have the loop, and handed on; while the portal works, the client's next pieces wait in its
socket. A row that is longer counts while it is held. CopyFail and any error end the COPY; the
pieces that still come after an error are thrown away by the conversation.
Out: a message per row, as clients expect it; the portal is asked for more only when the client has
read what came before.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kv.base.limits import (
    SQL_COPY_BATCH_BYTES,
    SQL_COPY_SLICE_BYTES,
    SQL_ENCODE_ROWS,
    SQL_FETCH_ROWS,
    SQL_MESSAGE_BYTES_MAX,
)
from sqlproxy.pg.answers import CopyFormat, Part
from sqlproxy.pg.copying import reader
from sqlproxy.pg.copying_out import TRAILER, batch_writer, header
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import LIMIT_EXCEEDED, QUERY_CANCELED, SqlError
from sqlproxy.values.memory import Held, characters
from sqlproxy.wire import codec
from sqlproxy.wire.codec import ProtocolError, Skipped
from sqlproxy.wire.seam import Portal

_DATA: Final = ord("d")
_AS_BYTES: Final = 2  # times that a row is there while it is read …
_AS_TEXT: Final = 3
_head = struct.Struct(">BI").pack  # of a message: kind, length


class Door(Protocol):
    out: bytearray

    async def message(self) -> tuple[int, bytes | Skipped]: ...

    async def drain(self) -> None: ...

    async def turn(self) -> None: ...


class CopyIn:
    def __init__(
        self,
        portal: Portal,
        of: CopyFormat,
        style: Style,
        door: Door,
        guard: Callable[[Awaitable[list[Part]]], Awaitable[list[Part]]],
    ) -> None:
        """`guard`: runs what reads values, which takes breaks."""
        fields = portal.fields or ()
        self._portal, self._guard = portal, guard
        self._door = door
        self._reader = reader(of, fields, style, SQL_MESSAGE_BYTES_MAX)
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._slice = SQL_COPY_SLICE_BYTES  # more while one row is longer
        self._wide = False  # not all of it is ASCII
        self._held = Held()  # of a row that is longer than a batch
        door.out += codec.copy_response(b"G", of.kind == "binary", len(fields))

    async def run(self) -> None:
        """Raises SqlError, ProtocolError, Gone."""
        with self._held:
            await self._take()
            await self._portal.finish()

    async def _take(self) -> None:
        while True:
            kind, body = await self._door.message()
            if kind == codec.COPY_DATA:
                if isinstance(body, Skipped):
                    raise SqlError(
                        LIMIT_EXCEEDED,
                        f"a piece of a COPY has {body.size} bytes; at most "
                        f"{SQL_MESSAGE_BYTES_MAX} are taken",
                    )
                if body:
                    self._pieces.append(body)
                self._bytes += len(body)
                if self._bytes >= SQL_COPY_BATCH_BYTES:
                    await self._hand_on()
            elif kind == codec.COPY_DONE:
                break
            elif kind == codec.COPY_FAIL:
                reason = "" if isinstance(body, Skipped) else codec.read_query(body)
                raise SqlError(QUERY_CANCELED, f"COPY from stdin failed: {reason}")
            elif kind not in (codec.FLUSH, codec.SYNC):
                wrong = f"unexpected message type 0x{kind:02X} during COPY from stdin"
                self._door.out += codec.error_response(codec.malformed(wrong))
                raise ProtocolError(
                    "terminating connection because protocol synchronization was lost"
                )
        await self._hand_on()
        if rows := self._reader.finish():
            await self._portal.take(rows)

    async def _hand_on(self) -> None:
        data = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        for at in range(0, len(data), SQL_COPY_BATCH_BYTES):
            piece = data[at : at + SQL_COPY_BATCH_BYTES]
            self._hold(piece)
            if parts := await self._guard(self._parts(piece)):
                await self._portal.take_parts(parts)
            self._hold()

    def _hold(self, read: bytes = b"") -> None:
        """What there is of a long row counts, and what is made of it while more is `read`. Raises
        SqlError (53200).
        """
        self._held.end()
        self._wide = self._wide or not read.isascii()
        size = self._reader.unread + len(read)
        if size > SQL_COPY_BATCH_BYTES:
            made = _AS_BYTES * size + _AS_TEXT * characters(size, wide=self._wide)
            self._held.add(made if read else size)

    async def _parts(self, data: bytes) -> list[Part]:
        parts: list[Part] = []
        at = 0
        while at < len(data):
            at, before = at + self._slice, at
            if found := self._reader.feed_many(data[before:at]):
                parts.append(found)
                self._slice = SQL_COPY_SLICE_BYTES
            else:  # what is kept of a row would be looked at over and over
                self._slice = min(2 * self._slice, SQL_COPY_BATCH_BYTES)
            await self._door.turn()
        return parts


class CopyOut:
    def __init__(self, portal: Portal, of: CopyFormat, style: Style, door: Door) -> None:
        self._portal = portal
        self._door = door
        self._of = of
        self._fields = portal.fields or ()
        self._write = batch_writer(of, self._fields, style)

    async def run(self) -> None:
        """Raises SqlError, Gone."""
        portal, door = self._portal, self._door
        binary = self._of.kind == "binary"
        rows = await portal.fetch(SQL_FETCH_ROWS)  # executes: an error comes before the first byte
        door.out += codec.copy_response(b"H", binary, len(self._fields))
        head = header(self._of, self._fields)
        if head and not binary:
            door.out += codec.message(b"d", head)
            head = b""
        while rows:
            if head:
                door.out += codec.message(b"d", head + self._write(rows[:1])[0])
                rows, head = rows[1:], b""
            for at in range(0, len(rows), SQL_ENCODE_ROWS):
                some = rows[at : at + SQL_ENCODE_ROWS]
                door.out += b"".join(
                    [
                        one
                        for line in self._write(some)
                        for one in (_head(_DATA, len(line) + 4), line)
                    ]
                )
                await door.turn()
            rows = await portal.fetch(SQL_FETCH_ROWS)
        if binary:
            door.out += codec.message(b"d", head + TRAILER)
        door.out += codec.COPY_OUT_DONE
