"""Bytes of requests to plain data and back: JSON or msgpack, paths, query strings, replies and
error bodies. Pure.

Content-Type says what a body is (JSON if it does not say), Accept what the reply is to be (the same
if it does not say).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from kv.base import timestamps
from kv.base.errors import InvalidArgument, KvorumError, to_json
from kvorum.api.model import Record
from kvorum.http.wire.fields import from_b64, snapshot, wrong

JSON = b"application/json"
MSGPACK = b"application/msgpack"
OCTETS = b"application/octet-stream"
MSGPACK_NAMES = (b"application/msgpack", b"application/x-msgpack", b"application/vnd.msgpack")

Header = tuple[bytes, bytes]
_json_decode = msgspec.json.Decoder().decode
_json_encode = msgspec.json.Encoder().encode
_msgpack_decode = msgspec.msgpack.Decoder().decode
_msgpack_encode = msgspec.msgpack.Encoder().encode


class Reply(NamedTuple):
    """A whole response."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[Header, ...] = ()


class Formats(NamedTuple):
    """How this request speaks and wants to be answered: True = msgpack."""

    body: bool
    reply: bool


def formats(headers: list[Header]) -> Formats:
    """From the Content-Type and Accept headers (names in lower case, as ASGI has them)."""
    content, accept = b"", b""
    for name, value in headers:
        if name == b"content-type":
            content = value
        elif name == b"accept":
            accept = value
    if not content and not accept:
        return Formats(False, False)
    packed = content.partition(b";")[0].strip().lower() in MSGPACK_NAMES
    wanted = accept.lower()
    if any(name in wanted for name in MSGPACK_NAMES):
        return Formats(packed, True)
    return Formats(packed, packed and (not wanted or (b"*/*" in wanted and JSON not in wanted)))


def decode(body: bytes, packed: bool) -> Any:
    """The plain data of a body; an empty body is an empty object. Raises InvalidArgument."""
    if not body:
        return {}
    try:
        return _msgpack_decode(body) if packed else _json_decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as e:
        # TypeError: a msgpack map whose key is a map.
        what = "msgpack" if packed else "JSON"
        raise InvalidArgument(f"the body is not valid {what}: {e}", code="MALFORMED_BODY") from None


def encode(data: object, packed: bool) -> bytes:
    """Plain data as bytes."""
    return _msgpack_encode(data) if packed else _json_encode(data)


def reply(data: object, packed: bool, status: int = 200) -> Reply:
    """Plain data as a response."""
    return Reply(status, encode(data, packed), MSGPACK if packed else JSON)


def show(data: bytes, packed: bool) -> object:
    """A key or a value in a reply: bytes in msgpack; in JSON text, or `{"b64"}` if it
    is not UTF-8.
    """
    if packed:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}


def show_record(record: Record | None, packed: bool) -> dict[str, object] | None:
    """`{"value", "version"}`, or None."""
    if record is None:
        return None
    return {"value": show(record.value, packed), "version": str(record.version)}


def plain(data: object, packed: bool) -> Any:
    """Whatever an error or a procedure carries, as something that JSON can hold."""
    match data:
        case bytes():
            return show(data, packed)
        case Mapping():
            return {str(k): plain(v, packed) for k, v in data.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(v, packed) for v in data]
        case float() if not math.isfinite(data):
            return str(data)
        case bool() | int() | float() | str() | None:
            return data
        case _:
            return str(data)


def refusal(error: KvorumError, packed: bool) -> Reply:
    """The response of an error: its status, its body (docs/reference/http.md), Retry-After where
    waiting helps.
    """
    body = plain(to_json(error), packed)
    headers: tuple[Header, ...] = ()
    if error.status in (429, 503):
        wait_ms = error.details.get("retry_after_ms", 1000)
        headers = ((b"retry-after", b"%d" % max(1, math.ceil(wait_ms / 1000))),)
    elif error.status == 401:
        headers = ((b"www-authenticate", b'Bearer realm="kvorum"'),)
    elif error.status == 405:
        headers = ((b"allow", str(error.details.get("allow", "")).encode()),)
    elif error.status == 413:
        headers = ((b"connection", b"close"),)  # the rest of the body is not read
    return Reply(error.status, encode(body, packed), MSGPACK if packed else JSON, headers)


class Query:
    """The parameters of a query string. Every known one is taken once; `done` refuses the rest."""

    __slots__ = ("_left",)

    def __init__(self, raw: bytes, several: Collection[str] = ()) -> None:
        """`several`: those that may be given more than once; their text is all of it."""
        self._left: dict[str, bytes] = {}
        for part in raw.split(b"&") if raw else ():
            if not part:
                continue
            name, _, value = part.partition(b"=")
            key = unquote_to_bytes(name.replace(b"+", b" ")).decode("utf-8", "replace")
            said = unquote_to_bytes(value.replace(b"+", b" "))
            if key in self._left:
                if key not in several:
                    raise InvalidArgument(f"the parameter {key[:60]!r} is given twice")
                said = self._left[key] + b"&" + said
            self._left[key] = said

    def raw(self, name: str) -> bytes | None:
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise wrong(name, "UTF-8 text", value) from None

    def data(self, name: str, b64: bool) -> bytes | None:
        """A key: raw bytes, or base64url with `enc=b64`."""
        value = self._left.pop(name, None)
        return from_b64(value.decode("ascii", "replace"), name) if value and b64 else value

    def encoded(self) -> bool:
        """Whether keys are base64url (`enc=b64`)."""
        value = self.text("enc")
        if value not in (None, "b64"):
            raise wrong("enc", "b64", value)
        return value == "b64"

    def flag(self, name: str) -> bool:
        value = self.text(name)
        if value not in (None, "true", "false"):
            raise wrong(name, "true or false", value)
        return value == "true"

    def version(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return timestamps.parse(value, name)
        except ValueError as e:
            raise InvalidArgument(str(e)) from None

    def snapshot(self) -> int:
        """The parameter `at`; 0 = it is not there."""
        value = self.text("at")
        return 0 if value is None else snapshot(value, "at")

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        good = value.isascii() and value.isdigit() and len(value) < 20
        if not good or not low <= int(value) <= high:
            raise wrong(name, f"a whole number from {low} to {high}", value)
        return int(value)

    def done(self) -> None:
        """Raises InvalidArgument if a parameter was given that nobody took."""
        if self._left:
            name = next(iter(self._left))
            raise InvalidArgument(f"unknown parameter {name[:60]!r} of the query string")


def path_text(part: bytes, what: str) -> str:
    """A %-encoded name of a path."""
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise wrong(what, "UTF-8 text", part) from None
