"""A watch over HTTP: reads the stream of a node (server/watch_streams.py), and connects again from
where it was when the connection breaks or falls silent.

Nothing is lost: the new stream begins after the last whole event. Nothing is repeated: of an event
of which a part was delivered, the rows up to the last one delivered are left out; a transaction's
rows come in key order. Only a snapshot that broke off begins anew, with part 0 and a higher
version.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlencode

import httptools
import msgspec

from kv.base.errors import InvalidArgument, KvorumError, Unavailable, from_json
from kv.base.limits import FEED_HEARTBEAT_MS
from kv.base.tls import dial
from kvorum.api.watching import Event, WatchSpec
from kvorum.http.client.transport import HttpTransport
from kvorum.http.wire import sse

_decode = msgspec.json.Decoder().decode
_SILENT_S: Final = 3 * FEED_HEARTBEAT_MS / 1000
_READ_BYTES: Final = 1 << 16
_PAUSES_S: Final = (0.0, 0.05, 0.2, 0.5, 1.0)
_GOES_ON: Final = frozenset({"retry", "reroute", "unknown_outcome"})


class _Broken(Exception):
    """The stream ended; another one may go on."""


class HttpWatcher:
    """kvorum.api.watching.Watcher over one node's HTTP."""

    def __init__(
        self, to: HttpTransport, ns: str, table: str, spec: WatchSpec, timeout_ms: int
    ) -> None:
        """`timeout_ms`: how long the node may take to answer at all; later it is waited for."""
        self.position = spec.above or 0
        self._first_until = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._first_seen = False
        self._to, self._spec = to, spec
        self._path = f"/v1/watch/{quote(ns, safe='')}/{quote(table, safe='')}"
        self._above = spec.above
        self._stream: _Stream | None = None
        self._part: Event | None = None  # the last one delivered, of an event that has more
        self._failures = 0
        self._closed = False

    async def next(self) -> Event:
        while True:
            if self._closed:
                raise Unavailable("the watch was closed")
            try:
                event = await self._read()
            except _Broken as e:
                self._drop()
                if not self._first_seen and asyncio.get_running_loop().time() > self._first_until:
                    host, port = self._to.address
                    raise Unavailable(
                        f"no stream from {host}:{port}: {e}", code="UNREACHABLE"
                    ) from None
                await asyncio.sleep(_PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)])
                self._failures += 1
                continue
            self._failures, self._first_seen = 0, True
            if (answer := self._new_part(event)) is not None:
                return answer

    def ready(self) -> Event | None:
        """None: what came in is returned by `next`."""
        return None

    async def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    async def _read(self) -> Event:
        if self._stream is None:
            self._stream = await _Stream.open(self._to, self._target())
        while True:
            message = await self._stream.next()
            if message.name == "error":
                body = _decode(message.data)
                error = from_json(body["status"], body)
                if error.disposition in _GOES_ON:
                    raise _Broken(error.message)
                self._drop()
                raise error
            event = sse.event_of(message)
            if event is not None:
                return event

    def _target(self) -> str:
        params: dict[str, str | bytes] = {}
        if self._above is not None:
            params["from"] = str(self._above)
        if self._spec.prefix:
            params["prefix"] = self._spec.prefix
        return f"{self._path}?{urlencode(params)}"

    def _new_part(self, event: Event) -> Event | None:
        """What of the event was not delivered before a break, None if nothing."""
        before = self._part
        if before is not None and (before.kind, before.version) == (event.kind, event.version):
            seen = before.changes[-1].key
            changes = [change for change in event.changes if change.key > seen]
            if not changes and not event.last:
                return None
            event = replace(event, changes=changes, part=before.part + 1)
        self._part = None if event.last else event
        if event.last:
            self._above = self.position = event.version
        if self._to.heard.at:  # clocks are hybrid
            self._to.heard.owe(event.version)
        return event


class _Stream:
    """One connection: a response head, then messages. The callbacks from `on_` are httptools'."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser = httptools.HttpResponseParser(self)
        self._decoder = sse.Decoder()
        self._messages: deque[sse.Message] = deque()
        self._body: list[bytes] = []
        self._ended = False

    @staticmethod
    async def open(to: HttpTransport, target: str) -> _Stream:
        """Raises _Broken, or the error that the node replied."""
        try:
            reader = asyncio.StreamReader()
            transport, protocol = await dial(
                lambda: asyncio.StreamReaderProtocol(reader), *to.address, to.tls
            )
        except OSError as e:
            raise _Broken(str(e)) from None
        writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
        stream = _Stream(reader, writer)
        lines = [*to.head("GET", target), "accept: text/event-stream", "\r\n"]
        writer.write("\r\n".join(lines).encode())
        try:
            while not stream._status():
                await stream._receive()
            if stream._status() != 200:
                while not stream._ended:
                    await stream._receive()
                raise stream._refusal()
        except BaseException:
            stream.close()
            raise
        return stream

    async def next(self) -> sse.Message:
        while True:
            body, self._body = self._body, []
            for data in body:
                self._messages.extend(self._decoder.feed(data))
            if self._messages:
                return self._messages.popleft()
            if self._ended:
                raise _Broken("the stream ended")
            await self._receive()

    def close(self) -> None:
        self._writer.transport.abort()

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(_SILENT_S):
                data = await self._reader.read(_READ_BYTES)
        except (OSError, TimeoutError) as e:
            raise _Broken(str(e)) from None
        if not data:
            raise _Broken("the connection was closed")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as e:
            raise InvalidArgument(f"the answer is not HTTP: {e}") from None

    def _status(self) -> int:
        return self._parser.get_status_code() if self._head else 0

    _head = False

    def on_headers_complete(self) -> None:
        self._head = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._ended = True

    def _refusal(self) -> Exception:
        body = b"".join(self._body)
        try:
            error: KvorumError = from_json(self._parser.get_status_code(), _decode(body))
        except (msgspec.MsgspecError, KeyError, TypeError):
            return _Broken(f"HTTP {self._parser.get_status_code()}")
        return _Broken(error.message) if error.disposition in _GOES_ON else error
