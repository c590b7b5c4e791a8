"""Requests of this process to servers that its settings name: the issuer of tokens, and
whoever keeps the log of requests. They block.

Nothing is believed of the answer's size or speed: so many bytes, so many seconds in all, and no
redirect is followed, so that nobody but the settings says who is asked. Proxies of the environment
are passed over: these settings are not theirs.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

ANSWER_BYTES_MAX: Final = 1 << 20
ASK_S_MAX: Final = 10.0  # once it is connected; connecting has _STEP_S per address
_STEP_S: Final = 5.0


class Answer(NamedTuple):
    """Of any status."""

    status: int
    body: bytes


def ask(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """GET, or POST of a body. Raises OSError, ValueError (larger than ANSWER_BYTES_MAX)."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    link = kind(parts.hostname or "", parts.port, timeout=_STEP_S)
    late = threading.Event()
    timer: threading.Timer | None = None
    try:
        link.connect()
        timer = threading.Timer(ASK_S_MAX, _cut, (link.sock, late))
        timer.daemon = True
        timer.start()
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        link.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        with link.getresponse() as answer:
            found = answer.read(ANSWER_BYTES_MAX + 1)
            if len(found) <= ANSWER_BYTES_MAX and answer.length:
                raise http.client.IncompleteRead(found, answer.length)
    except (http.client.HTTPException, OSError) as error:
        if late.is_set():
            raise TimeoutError(f"{parts.hostname} took more than {ASK_S_MAX:.0f} s") from error
        why = str(error) or type(error).__name__
        raise OSError(f"{parts.hostname} cannot be asked: {why}") from error
    finally:
        if timer is not None:
            timer.cancel()
        link.close()
    if late.is_set():  # what is there may not be all of it
        raise TimeoutError(f"{parts.hostname} took more than {ASK_S_MAX:.0f} s")
    if len(found) > ANSWER_BYTES_MAX:
        raise ValueError(f"{parts.hostname} answers more than {ANSWER_BYTES_MAX} bytes")
    return Answer(answer.status, found)


def _cut(sock: socket.socket, late: threading.Event) -> None:
    """The connection itself forgets its socket while an answer is read."""
    late.set()
    with suppress(OSError):  # it has ended meanwhile
        sock.shutdown(socket.SHUT_RDWR)


def read(url: str) -> bytes:
    """The body of a success. Raises OSError, ValueError."""
    answer = ask(url, headers={"accept": "application/json"})
    if answer.status != 200:
        raise OSError(f"{urlsplit(url).hostname} answers {answer.status} to GET {url}")
    return answer.body
