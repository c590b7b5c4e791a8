"""Server-sent events (WHATWG HTML, section 9.2), as far as a watch needs them. Pure.

    id: VERSION                 of the last part of an event: what `Last-Event-ID` goes on from
    event: changes | snapshot | resolved | error
    data: JSON, one line
    (empty line)
    : a comment, when there is no event for a while

`changes` and `snapshot`: {"version", "part", "last", "changes": [{"key", "value" | null,
"expires_ms"?}]}; `resolved`: {"version"}; `error`: the body of an error reply, with the `status`
that it would have; then the stream ends.

Of a procedure's events: `emitted`: {"position", "name", "at_ms", "value"}, with the position as id,
and `end`: {}, the last one. Keys and values are those of JSON bodies
(kvorum.http.wire.codec).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from kv.base.errors import InvalidArgument, KvorumError, to_json
from kv.base.limits import FRAME_BYTES_MAX
from kvorum.api.watching import Change, Event
from kvorum.http.wire import fields
from kvorum.http.wire.codec import plain, show
from procedures.engine.plain_data import Plain

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
COMMENT = b":\n\n"
CONTENT_TYPE = b"text/event-stream"
END = b"event: end\ndata: {}\n\n"


def event_bytes(event: Event) -> bytes:
    """One event, or part of one, as it is sent."""
    data: dict[str, object] = {"version": str(event.version)}
    if event.kind != "resolved":
        changes = [_shown(change) for change in event.changes]
        data |= {"part": event.part, "last": event.last, "changes": changes}
    id_ = b"id: %d\n" % event.version if event.last else b""
    return b"%bevent: %b\ndata: %b\n\n" % (id_, event.kind.encode(), _encode(data))


def emitted_bytes(event: Plain) -> bytes:
    """An event of a procedure (procedures/pools/emitted.py)."""
    data = _encode(plain(event, packed=False))
    return b"id: %d\nevent: emitted\ndata: %b\n\n" % (event["position"], data)


def error_bytes(error: KvorumError) -> bytes:
    """The last thing that a stream tells."""
    body = {**plain(to_json(error), packed=False), "status": error.status}
    return b"event: error\ndata: %b\n\n" % _encode(body)


def _shown(change: Change) -> dict[str, object]:
    value = None if change.value is None else show(change.value, packed=False)
    row = {"key": show(change.key, packed=False), "value": value}
    if change.expires_ms:
        row["expires_ms"] = change.expires_ms
    return row


class Message(NamedTuple):
    """What was received: the event's name and its data."""

    name: str
    data: bytes


class Decoder:
    """Bytes of a stream to messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises InvalidArgument of a line without an end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) + self._size > FRAME_BYTES_MAX:
            raise InvalidArgument(f"an event has more than {FRAME_BYTES_MAX} bytes")
        found = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    found.append(Message(self._name or "message", b"\n".join(self._data)))
                self._name, self._data, self._size = "", [], 0
                continue
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self._name = value.decode("utf-8", "replace")
            elif name == b"data":
                self._data.append(value)
                self._size += len(value)
        return found


def event_of(message: Message) -> Event | None:
    """The event that a node sent; None for what this program does not know."""
    if message.name not in ("changes", "snapshot", "resolved"):
        return None
    decoded = _decode(message.data)
    kind: Any = message.name
    changes = [
        Change(
            fields.DATA.convert(row["key"], "key"),
            None if row["value"] is None else fields.DATA.convert(row["value"], "value"),
            row.get("expires_ms", 0),
        )
        for row in decoded.get("changes", ())
    ]
    version = int(decoded["version"])
    return Event(kind, version, changes, decoded.get("part", 0), decoded.get("last", True))
