"""Where the log of stamps goes besides its file: to whoever keeps the logs of all machines.

    syslog:///dev/log, syslog://HOST:PORT    a datagram for each line (RFC 5424, facility 13)
    https://…, http://… on this machine      a POST of lines of JSON (application/x-ndjson)

What cannot be sent waits, in order, and is tried again; beyond WAITING_BYTES_MAX it is dropped and
counted: the file has it, and what is sent next begins with a line that says how much is missing. It
is sent in pieces of PIECE_BYTES, which every collector takes: one that is refused for its size
would keep all others waiting. Something may arrive twice, after an answer that was lost.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from kvorum.security import bounded_http

log = logging.getLogger(__name__)

WAITING_BYTES_MAX: Final = 32 << 20
PIECE_BYTES: Final = 256 << 10
_FULL: Final = f"more than {WAITING_BYTES_MAX >> 20} MiB wait; the file has it"
_AGAIN_S: Final = 5.0
_SEND_S_MAX: Final = 5.0
_DATAGRAM_BYTES_MAX: Final = 8_192  # of what is longer the beginning is sent
_HEAD: Final = b"<110>1 - - kvorum - - - "  # facility 13 (log audit), severity 6

Send = Callable[[bytes], None]
"""Whole lines; blocks; raises OSError."""
InThread = Callable[[Callable[[], None]], Awaitable[None]]


class Shipper:
    """Of one log. `add` from the loop; `run` until cancelled. `gap`: the line that says how many
    are missing, and why.
    """

    def __init__(
        self, send: Send, in_thread: InThread, gap: Callable[[int, str], bytes] = lambda *_: b""
    ) -> None:
        self.shipped = self.dropped = 0  # lines
        self._unsaid = 0  # of those that were dropped
        self._gap = gap
        self._send, self._in_thread = send, in_thread
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._more = asyncio.Event()

    def add(self, lines: bytes) -> None:
        """Whole lines."""
        if self._bytes + len(lines) > WAITING_BYTES_MAX:
            count = lines.count(b"\n")
            if not self._unsaid:
                log.warning("the log of requests is not sent on any more: %s", _FULL)
            self.dropped += count
            self._unsaid += count
            return
        if self._unsaid:
            lines, self._unsaid = self._gap(self._unsaid, _FULL) + lines, 0
        self._bytes += len(lines)
        while lines:
            end = lines.rfind(b"\n", 0, PIECE_BYTES) + 1 or lines.find(b"\n") + 1 or len(lines)
            self._waiting.append(lines[:end])
            lines = lines[end:]
        self._more.set()

    def figures(self) -> Mapping[str, int]:
        """For metrics."""
        return {"shipped": self.shipped, "dropped": self.dropped}

    async def run(self) -> None:
        """Send what comes."""
        while True:
            await self._more.wait()
            lines = self._waiting[0]
            if (failed := await self._try(lines)) is not None:
                log.warning("the log of requests cannot be sent on: %s", failed)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._waiting.popleft()
            self._bytes -= len(lines)
            self.shipped += lines.count(b"\n")
            if not self._waiting:
                self._more.clear()

    async def _try(self, lines: bytes) -> OSError | None:
        failed: list[OSError] = []

        def send() -> None:
            try:
                self._send(lines)
            except OSError as error:
                failed.append(error)

        await self._in_thread(send)
        return failed[0] if failed else None


def sending(place: str) -> Send:
    """To a place of the configuration."""
    parts = urlsplit(place)
    if parts.scheme != "syslog":
        return lambda lines: _post(place, lines)
    if parts.hostname is None:
        return lambda lines: _datagrams(socket.AF_UNIX, parts.path, lines)
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    return lambda lines: _datagrams(family, (parts.hostname, parts.port or 514), lines)


def _datagrams(family: int, address: str | tuple[str | None, int], lines: bytes) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(_SEND_S_MAX)
        one.connect(address)
        for line in lines.splitlines():
            one.send((_HEAD + line)[:_DATAGRAM_BYTES_MAX])


def _post(url: str, lines: bytes) -> None:
    try:
        answer = bounded_http.ask(url, lines, {"content-type": "application/x-ndjson"})
    except ValueError as error:
        raise OSError(str(error)) from error
    if not 200 <= answer.status < 300:
        raise OSError(f"{urlsplit(url).hostname} answers {answer.status} to POST {url}")
