"""The requests of an HTTP client: sent again when that harms nothing, and their errors.

A read is repeated when a connection breaks; a write whose request may have arrived becomes
UnknownOutcome, never a failure. Everything else the server tells, in the errors that it raised.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, Literal

import msgspec

from kv.base.errors import (
    DeadlineExceeded,
    KvorumError,
    Unavailable,
    UnknownOutcome,
    from_json,
)
from kvorum.api.model import Item
from kvorum.http.client.transport import Answer, HttpTransport, Lost
from procedures.engine.plain_data import Plain

_MSGPACK: Final = "application/msgpack"
HEADERS: Final = (("content-type", _MSGPACK), ("accept", _MSGPACK))
RAW: Final = (("accept", f"{_MSGPACK}, */*"),)
_TRIED: Final = 3
Effect = Literal["none", "same", "more"]
"""Of sending a request twice: a read; a write that is then the same as once; a write done twice."""
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class Calls:
    """To one node. `timeout_ms` bounds every request; `extra_ms` of one is added."""

    def __init__(self, transport: HttpTransport, timeout_ms: int) -> None:
        self._transport = transport
        self._timeout_ms = timeout_ms

    async def call(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        twice: Effect | None = None,
        extra_ms: int = 0,
    ) -> Any:
        """A msgpack request; the plain data of its answer."""
        raw = b"" if body is None else _encode(body)
        effect = twice or ("none" if method == "GET" else "more")
        answer = await self.send(method, target, raw, HEADERS, twice=effect, extra_ms=extra_ms)
        return _decode(answer.body)

    async def send(
        self,
        method: str,
        target: str,
        body: bytes,
        headers: tuple[tuple[str, str], ...],
        *,
        twice: Effect = "more",
        extra_ms: int = 0,
    ) -> Answer:
        what = f"{method} {target.partition('?')[0]}"
        doubt = False  # whether an attempt may have been executed
        try:
            async with asyncio.timeout((self._timeout_ms + extra_ms) / 1000):
                for left in reversed(range(_TRIED)):
                    try:
                        answer = await self._transport.request(method, target, body, headers)
                        break
                    except Lost as e:
                        doubt = doubt or (e.sent and twice != "none")
                        if doubt and (twice == "more" or not left):
                            raise unknown_outcome(f"{what}: {e}") from None
                        if not left:
                            raise Unavailable(
                                str(e), code=None if e.sent else "UNREACHABLE"
                            ) from None
        except TimeoutError:
            late = f"no answer to {what} in {self._timeout_ms + extra_ms} ms"
            raise (DeadlineExceeded if twice == "none" else unknown_outcome)(late) from None
        if answer.status >= 400:
            raise _error(answer)
        return answer


def unknown_outcome(what: str) -> UnknownOutcome:
    return UnknownOutcome(
        f"{what}; it may or may not have been executed: look before you repeat it"
    )


def _error(answer: Answer) -> KvorumError:
    """The error behind an answer; one that is not Kvorum's (a proxy's, say) is Unavailable."""
    for decode in (_decode, msgspec.json.decode):  # a port that wants TLS says so in JSON
        with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError):
            return from_json(answer.status, decode(answer.body))
    return Unavailable(f"HTTP {answer.status}: {answer.body[:200]!r}")


def version_of(answer: Plain) -> int:
    """Of a write that was answered."""
    return int(answer["version"])


def rows_of(answer: Plain) -> list[Item]:
    """Records of a page; what a transaction wrote itself has version 0."""
    return [Item(i["key"], i["value"], int(i["version"] or 0)) for i in answer["items"]]
