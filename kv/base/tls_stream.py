"""TLS over a connection, as a transport: what asyncio's and uvloop's layers do, at the cost of the
encryption alone. Those ask OpenSSL for 256 KiB per record, which the allocator maps and unmaps: 30
of the 50 µs of a small request.

    socket ─▶ data_received ─▶ SSLObject ─▶ the protocol: all records that came, in one piece
    socket ◀──── one write ◀── SSLObject ◀── write

Below it is a plain transport, whose buffer of what is not sent, and whose pausing, are this one's:
nothing is kept here but the rest of a record. The protocol hears of the connection when the
handshake is done, and of its end only if it did. An end without TLS's own (close_notify) is a lost
connection, not the end of what was said. Nobody negotiates anew; see kv.base.tls.

Records without data cost most: 256 KiB of changes of keys (RFC 8446, 4.6.3) take OpenSSL 0.7 s. So
what comes is decrypted in pieces, and who sends more than _MUTE_BYTES_MAX that are neither data nor
what records of data have around it is cut off. A little is forgiven for data.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Final, cast

_RECORD_BYTES: Final = 1 << 14  # that one has at most (RFC 8446, 5.1): a read gives a whole one
_CAME_BYTES: Final = 1 << 18  # that are read at once
_PIECE_BYTES: Final = 1 << 18  # that are encrypted before they are passed on
_LOOK_BYTES: Final = 1 << 15  # that are decrypted before it is looked what came of them
_MUTE_BYTES_MAX: Final = 20 << 10  # more than any record has
_OVERHEAD_BYTES: Final = {"TLSv1.3": 22}  # of a record without padding …
_OVERHEAD_BYTES_MAX: Final = 100  # … and of one of TLS 1.2, at most
_SHUTDOWN_S: Final = 1.0  # for the other end to say that it has understood the end
_NOTHING: Final = memoryview(b"")


class _Room(threading.local):
    """Where what comes lies until it is in a MemoryBIO, before the loop does anything else."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_CAME_BYTES))


_room: Final = _Room()


class TlsStream(asyncio.BufferedProtocol, asyncio.Transport):
    """One end. It is the protocol of the transport below, and the transport of the one above."""

    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        *,
        host: str | None,
        tells: bool = True,
    ) -> None:
        """`host`: who the other end has to be; None: this is the server's end. `tells`: the
        protocol hears that there is a connection; else it knows.
        """
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._context, self._serves = context, host is None
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=host is None, server_hostname=host
        )
        self._take = self._outgoing.read
        self._feed, self._read, self._encrypt = (
            self._incoming.write,
            self._tls.read,
            self._tls.write,
        )
        self._below: asyncio.Transport | None = None
        self._shaken: asyncio.Future[None] = self._loop.create_future()
        self._room = _room.view
        self._mute = 0  # bytes that came, and were not data; those of a part of a record among them
        self._overhead = _OVERHEAD_BYTES_MAX
        self._partial = True  # there may be more to read than what comes next
        self._open = False  # the handshake is done; nothing has ended yet
        self._told = not tells  # the protocol has a connection
        self._error: Exception | None = None  # why it ends
        self._patience: asyncio.TimerHandle | None = None
        self.set_protocol(protocol)

    async def handshake(self) -> None:
        """Wait for its end. Raises OSError, ssl.SSLError among them. Bound it with a timeout."""
        try:
            await self._shaken
        except BaseException:
            self.abort()
            raise

    # -- the protocol of what is below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._send = self._below.write
        self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room if self._open else self._room[:_LOOK_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._open:
            self._deliver(self._room[:nbytes])
        elif self._error is None and not self._shaken.done():
            self._feed(self._room[:nbytes])
            self._shake()

    def eof_received(self) -> None:
        """`connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        if self._patience is not None:
            self._patience.cancel()
        error = self._error or exc
        if not self._shaken.done():
            gone = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._shaken.set_exception(error or gone)
        if self._told:
            self._told = False
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        if self._told:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._told:
            self._protocol.resume_writing()

    # -- in

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._pass_on()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._pass_on()
        self._open = True
        self._overhead = _OVERHEAD_BYTES.get(self._tls.version() or "", _OVERHEAD_BYTES_MAX)
        self._mute = self._incoming.pending
        self._shaken.set_result(None)
        if not self._told:
            self._told = True
            self._protocol.connection_made(self)
        if self._incoming.pending:
            self._loop.call_soon(self._catch_up)

    def _deliver(self, came: memoryview) -> None:
        """All of it. While reading is paused nothing comes."""
        parts: list[bytes] = []
        size = len(came)
        if size <= _LOOK_BYTES:
            end = self._decrypt(came, parts)
        else:
            at, end = 0, None
            while at < size and end is None:
                end = self._decrypt(came[at : at + _LOOK_BYTES], parts)
                at += _LOOK_BYTES
        if self._outgoing.pending:
            self._pass_on()  # the answer to a change of keys
        if parts:
            self._receive(parts[0] if len(parts) == 1 else b"".join(parts))
        if end is None:
            return
        if isinstance(end, ssl.SSLError):
            self._fail(end)
        elif self._open:
            cast(asyncio.Protocol, self._protocol).eof_received()
            self.close()

    def _decrypt(self, came: memoryview, parts: list[bytes]) -> ssl.SSLError | bool | None:
        """Add the data to `parts`. None: it goes on; True: the other end has ended; or why
        it has to end.
        """
        incoming, read, overhead = self._incoming, self._read, self._overhead
        fed = len(came)
        # A small buffer is quick to get. What was encrypted is longer than what it says.
        size = _RECORD_BYTES if self._partial else min(fed, _RECORD_BYTES)
        mute = self._mute + fed
        self._feed(came)
        self._partial = False
        try:
            while incoming.pending:
                part = read(size)
                if not part:
                    return True
                parts.append(part)
                said = len(part)
                mute -= said + (said >> 4) + overhead
        except ssl.SSLWantReadError:
            self._partial = True  # the rest of it is on its way
        except ssl.SSLError as error:
            return error
        self._mute = mute = max(mute, 0)
        if mute > _MUTE_BYTES_MAX:
            return ssl.SSLError("it sends records without data, or changes keys all the time")
        return None

    def _catch_up(self) -> None:
        """With what came before it was wanted."""
        if self._open and self.is_reading():
            self._partial = True  # they are longer than nothing
            self._deliver(_NOTHING)

    def _fill(self, data: bytes) -> None:
        """For a protocol that has buffers of its own."""
        protocol = cast(asyncio.BufferedProtocol, self._protocol)
        at, size = 0, len(data)
        while at < size and self._told:
            room = memoryview(protocol.get_buffer(size - at))
            count = min(len(room), size - at)
            room[:count] = data[at : at + count]
            at += count
            protocol.buffer_updated(count)

    # -- out

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._open or not data:
            return
        try:
            done, size = self._encrypt(data), len(data)
            if done < size:  # it is more than a record
                view = memoryview(data)
                while done < size:
                    done += self._encrypt(view[done : done + _RECORD_BYTES])
                    if self._outgoing.pending >= _PIECE_BYTES:
                        self._pass_on()
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._send(self._take())

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _pass_on(self) -> None:
        data = self._take()
        if data:
            self._send(data)

    # -- the transport of what is above

    def get_extra_info(self, name: str, default: object = None) -> object:
        match name:
            case "peercert":
                return self._tls.getpeercert()
            case "ssl_object":
                return self._tls
            case "sslcontext":
                return self._context
            case "cipher":
                return self._tls.cipher()
            case _:
                below = self._below
                return default if below is None else below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._receive: Callable[[bytes], object] = self._fill
        if not isinstance(protocol, asyncio.BufferedProtocol):
            self._receive = cast(asyncio.Protocol, protocol).data_received

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_reading(self) -> bool:
        return self._below is not None and self._below.is_reading()

    def pause_reading(self) -> None:
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._below is not None:
            self._below.resume_reading()
            if self._open and self._incoming.pending:
                self._loop.call_soon(self._catch_up)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    # -- the end

    def is_closing(self) -> bool:
        return not self._open

    def close(self) -> None:
        """What was written still goes out, and that it ends; fine twice. A server waits a while for
        its client to close: what that still sends would make the kernel throw our last words away.
        """
        below = self._below
        if below is None or not self._shaken.done():
            self.abort()
            return
        if not self._open:
            return  # it ends already
        with contextlib.suppress(ssl.SSLError):  # it would like to hear the other end's
            self._tls.unwrap()
        self._pass_on()
        self._open = False
        if self._serves and below.can_write_eof():
            below.write_eof()
            below.resume_reading()
            self._patience = self._loop.call_later(_SHUTDOWN_S, below.close)
        else:
            below.close()

    def abort(self) -> None:
        self._open = False
        if self._below is not None:
            self._below.abort()

    def _fail(self, error: Exception) -> None:
        """The other end broke the protocol, and gets an alert."""
        self._error = self._error or error
        self._open = False
        self._pass_on()
        if self._below is not None:
            self._below.close()
