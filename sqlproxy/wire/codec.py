"""Messages of PostgreSQL's protocol, versions 3.0 and 3.2: bytes in, messages out, and back. Pure.

    first packet     i32 length, i32 code, …        (startup, SSL, GSS, cancel)
    every other      u8 kind, i32 length (with itself, without kind), body

A peer's bytes are garbage until they are understood: a kind that is none, a length below 4 or
beyond what the kind may have raise ProtocolError, and the connection ends. A body that is not what
its kind has is an error of this message only (08P01). A statement or a row of
a COPY that is merely larger than SQL_MESSAGE_BYTES_MAX is skipped as it comes and given out as
`Skipped`, so that its client gets an ordinary error.

Source: https://www.postgresql.org/docs/18/protocol-message-formats.html
Deliberately missing: protocol 2, function calls by OID (kind F is read and refused), replication,
GSSAPI.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kv.base.limits import (
    SQL_ERROR_FIELD_CHARS_MAX,
    SQL_MESSAGE_BYTES_MAX,
    SQL_SMALL_MESSAGE_BYTES_MAX,
    SQL_STARTUP_BYTES_MAX,
)
from sqlproxy.catalog.notifications import Notification
from sqlproxy.pg.answers import Field
from sqlproxy.pg.oids import TYPES
from sqlproxy.pg.style import DEFAULT, Style
from sqlproxy.values.errors import PROTOCOL_VIOLATION, UNSUPPORTED, Detail, SqlError
from sqlproxy.wire.seam import Notice, Status

VERSION_3_0: Final = 3 << 16
VERSION_3_2: Final = 3 << 16 | 2
_CANCEL: Final = 80877102
_SSL: Final = 80877103
_GSS: Final = 80877104
_NAMES_BYTES_MAX: Final = 1_000  # of a portal and its statement together
_SKIPPABLE_MAX: Final = 1 << 30  # what PostgreSQL itself would take; above it is garbage

BIND, CLOSE, COPY_DATA, COPY_DONE = ord("B"), ord("C"), ord("d"), ord("c")
COPY_FAIL, DESCRIBE, EXECUTE, FLUSH = ord("f"), ord("D"), ord("E"), ord("H")
FUNCTION_CALL, PARSE, PASSWORD, QUERY = ord("F"), ord("P"), ord("p"), ord("Q")
SYNC, TERMINATE = ord("S"), ord("X")

_LARGE: Final = frozenset({BIND, COPY_DATA, FUNCTION_CALL, PARSE, QUERY})
_SMALL: Final = frozenset(
    {CLOSE, COPY_DONE, COPY_FAIL, DESCRIBE, EXECUTE, FLUSH, PASSWORD, SYNC, TERMINATE}
)
# of each kind, with the length itself; 0: no such kind
_LENGTH_MAX: Final = tuple(
    SQL_MESSAGE_BYTES_MAX if kind in _LARGE else SQL_SMALL_MESSAGE_BYTES_MAX * (kind in _SMALL)
    for kind in range(256)
)
_HEAD = struct.Struct(">BI")
_I2, _I4, _U4 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">I")
_TWO = struct.Struct(">II")
unpack_i4 = _I4.unpack_from


class Fatal(SqlError):
    """The client gets the error, and the connection ends."""

    def __init__(self, sqlstate: str, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(sqlstate, message, detail=detail, hint=hint, severity="FATAL")


class ProtocolError(Fatal):
    """The peer does not speak the protocol."""

    def __init__(self, message: str, sqlstate: str = PROTOCOL_VIOLATION) -> None:
        super().__init__(sqlstate, message)


def _too_long_name() -> SqlError:
    """Of a statement or a portal. They are kept for long, and no client needs such."""
    return SqlError("42622", f"a name has at most {_NAMES_BYTES_MAX} bytes")


def malformed(what: str) -> SqlError:
    """The body of a message, whose end is where it should be."""
    return SqlError(PROTOCOL_VIOLATION, what)


# -- in


@dataclass(frozen=True, slots=True)
class Skipped:
    """The body of a message that was too large; its bytes were not kept."""

    size: int


class Cycle(NamedTuple):
    """What a client sends that runs a statement and waits: the body of its Parse, if it was not
    prepared before, that of its Bind, whether it asks for a description of the rows, and the size
    of all of it.
    """

    parse: bytes
    bind: bytes
    described: bool
    size: int


_named: Final = tuple.__new__  # the constructor of a named tuple is Python's, this one is C's
_SYNC: Final = b"S\x00\x00\x00\x04"
_EXECUTED: Final = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00" + _SYNC
_DESCRIBED: Final = b"D\x00\x00\x00\x06P\x00" + _EXECUTED
_CYCLE_BYTES_MIN: Final = 5 + 8 + len(_EXECUTED)


class Decoder:
    """Cuts the stream into messages. `need`: after a pull without a message, how many bytes the
    next one takes, as far as known.

    Chunks of a large message are joined once, when it is complete.
    """

    __slots__ = ("_at", "_chunks", "_chunks_bytes", "_data", "_skip", "_skipped", "need")

    def __init__(self) -> None:
        self.need = 0
        self._data = b""
        self._at = 0
        self._chunks: list[bytes] = []
        self._chunks_bytes = 0
        self._skip = 0  # bytes of a message that is too large are still to come
        self._skipped: tuple[int, Skipped] | None = None

    @property
    def buffered(self) -> int:
        """Bytes that wait here."""
        return len(self._data) - self._at + self._chunks_bytes

    def push(self, data: bytes) -> None:
        if self._skip:
            gone = min(self._skip, len(data))
            self._skip -= gone
            data = data[gone:]
        if self._at == len(self._data) and not self._chunks:
            self._data = data
            self._at = 0
        else:
            self._chunks.append(data)
            self._chunks_bytes += len(data)

    def pull(self) -> tuple[int, bytes | Skipped] | None:
        """The next message's kind and body; None: more bytes are needed. Raises ProtocolError."""
        data, at = self._data, self._at
        if len(data) - at >= 5 and self._skipped is None:
            kind, length = _HEAD.unpack_from(data, at)
            end = at + length + 1
            if 4 <= length <= _LENGTH_MAX[kind] and end <= len(data):
                self._at = end
                return kind, data[at + 5 : end]
        return self._pull_slowly()

    @property
    def ends(self) -> bool:
        """Whether a Sync is next."""
        return self._data.startswith(_SYNC, self._at)

    def cycle(self) -> Cycle | None:
        """What is here, if that is one Bind of the unnamed portal, its Execute and Sync, perhaps a
        Parse before, and nothing else. It stays here: `skip` takes it.
        """
        data, first = self._data, self._at
        size = len(data) - first
        if size < _CYCLE_BYTES_MIN or self._chunks or self._skipped is not None:
            return None
        at, parse = first, b""
        kind, length = _HEAD.unpack_from(data, at)
        if kind == PARSE and 8 <= length <= size - _CYCLE_BYTES_MIN:
            parse = data[at + 5 : at + 1 + length]
            at += 1 + length
            kind, length = _HEAD.unpack_from(data, at)
        if kind != BIND:
            return None
        rest = at + 1 + length
        described = data.endswith(_DESCRIBED)
        if rest + len(_DESCRIBED if described else _EXECUTED) != len(data):
            return None
        if not (described or data.endswith(_EXECUTED)) or length < 4 or data[at + 5]:
            return None
        return _named(Cycle, (parse, data[at + 5 : rest], described, size))

    def skip(self, size: int) -> bool:
        """So many bytes, which are here, have been worked on. Whether there are more."""
        self._at += size
        if self._chunks:
            if self._at == len(self._data):
                self._join(self.buffered)
            return True
        return self._at < len(self._data)

    def _pull_slowly(self) -> tuple[int, bytes | Skipped] | None:
        """What is not whole in the first chunk, too large, or garbage."""
        if self._skipped is not None:
            return self._pull_skipped()
        if not self._join(_HEAD.size):
            return None
        kind, length = _HEAD.unpack_from(self._data, self._at)
        if not _LENGTH_MAX[kind]:
            raise ProtocolError(f"invalid frontend message type {kind}")
        if length < 4:
            raise ProtocolError(f"invalid message length {length} of type {chr(kind)!r}")
        if length > _LENGTH_MAX[kind]:
            return self._begin_to_skip(kind, length)
        if not self._join(length + 1):
            return None
        start, self._at = self._at + _HEAD.size, self._at + length + 1
        return kind, self._data[start : self._at]

    def pull_startup(self) -> bytes | None:
        """The next packet without a kind: its code and what follows. Raises ProtocolError."""
        if not self._join(4):
            return None
        length = _I4.unpack_from(self._data, self._at)[0]
        if not 8 <= length <= SQL_STARTUP_BYTES_MAX:
            raise ProtocolError("invalid length of startup packet")
        if not self._join(length):
            return None
        at = self._at
        self._at += length
        return self._data[at + 4 : at + length]

    def _join(self, need: int) -> bool:
        """Whether so many bytes are here; then they are in one piece."""
        self.need = need
        if self.buffered < need:
            return False
        if len(self._data) - self._at < need:  # else what came behind it is left where it is
            self._data = b"".join((self._data[self._at :], *self._chunks))
            self._at = 0
            self._chunks = []
            self._chunks_bytes = 0
        return True

    def _begin_to_skip(self, kind: int, length: int) -> tuple[int, Skipped] | None:
        if length > _SKIPPABLE_MAX or kind not in _LARGE:
            raise ProtocolError(f"invalid message length {length} of type {chr(kind)!r}")
        self._skipped = kind, Skipped(length)
        here = min(self.buffered, length + 1)
        self._join(self.buffered)
        self._at += here
        self._skip = length + 1 - here
        return self._pull_skipped()

    def _pull_skipped(self) -> tuple[int, Skipped] | None:
        self.need = 0
        if self._skip:
            return None
        skipped, self._skipped = self._skipped, None
        return skipped

    @property
    def partial(self) -> bool:
        """After a pull without a message: one has begun, and the client owes its rest."""
        return self._skip > 0 or self.buffered > 0


@dataclass(frozen=True, slots=True)
class Startup:
    version: int
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class EncryptionRequest:
    tls: bool  # False: GSSAPI


@dataclass(frozen=True, slots=True)
class CancelRequest:
    process: int
    key: bytes


def read_startup(body: bytes) -> Startup | EncryptionRequest | CancelRequest:
    """Raises ProtocolError."""
    code = _U4.unpack_from(body)[0]
    if code in (_SSL, _GSS):
        return EncryptionRequest(code == _SSL)
    if code == _CANCEL:
        if not 12 <= len(body) <= 8 + 256:
            raise ProtocolError("invalid length of cancel request packet")
        return CancelRequest(_U4.unpack_from(body, 4)[0], body[8:])
    if code >> 16 != 3:
        raise ProtocolError(
            f"unsupported frontend protocol {code >> 16}.{code & 0xFFFF}: server supports 3.0 to "
            "3.2",
            UNSUPPORTED,
        )
    if body[-1:] != b"\x00":
        raise ProtocolError("invalid startup packet layout: expected terminator as last byte")
    pieces = body[4:-1].split(b"\x00")
    if pieces[-1] == b"":
        pieces.pop()
    if len(pieces) % 2:
        raise ProtocolError("invalid startup packet layout: a name without value")
    try:
        words = [piece.decode() for piece in pieces]
    except UnicodeDecodeError:
        raise ProtocolError("invalid startup packet layout: not in UTF-8") from None
    return Startup(code, dict(zip(words[::2], words[1::2], strict=True)))


def read_text(raw: bytes) -> str:
    """A string of the protocol. Raises SqlError (22021)."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{byte:02x}" for byte in raw[error.start : error.end])
        message = f'invalid byte sequence for encoding "UTF8": {wrong}'
        raise SqlError("22021", message) from None


def read_query(body: bytes) -> str:
    """Also of CopyFail. Raises SqlError."""
    end = body.find(0)
    if end < 0:
        raise malformed("invalid string in message")
    if end != len(body) - 1:
        raise malformed("invalid message format")
    return read_text(body[:-1])


def read_nothing(body: bytes) -> None:
    """Of Sync and Flush. Raises SqlError."""
    if body:
        raise malformed("invalid message format")


def read_function_call(body: bytes) -> int:
    """The function's OID. Raises SqlError."""
    try:
        formats = int.from_bytes(body[4:6])
        at = 6 + 2 * formats
        count = int.from_bytes(body[at : at + 2])
        at += 2
        for _ in range(count):
            (size,) = unpack_i4(body, at)
            if size < -1:
                raise ValueError
            at += 4 + max(0, size)
    except (ValueError, struct.error):
        raise malformed("invalid argument in function call message") from None
    if at + 2 != len(body):
        raise malformed("invalid message format of type 'F'")
    return int.from_bytes(body[:4])


def read_parse(body: bytes) -> tuple[str, str, tuple[int, ...]]:
    """Name, text, OIDs of parameters. Raises SqlError."""
    try:
        first = body.index(0)
        second = body.index(0, first + 1)
        count = int.from_bytes(body[second + 1 : second + 3])
        oids = struct.unpack_from(f">{count}I", body, second + 3)
    except (ValueError, struct.error):
        raise malformed("invalid message format of type 'P'") from None
    if second + 3 + 4 * count != len(body):
        raise malformed("invalid message format of type 'P'")
    if first > _NAMES_BYTES_MAX:
        raise _too_long_name()
    return read_text(body[:first]), read_text(body[first + 1 : second]), oids


def read_target(body: bytes) -> tuple[bool, str]:
    """Of Describe and Close: whether a statement is meant (else a portal), and its name. Raises
    SqlError.
    """
    if body == b"P\x00":
        return False, ""
    if body[:1] not in (b"S", b"P") or body.find(0, 1) != len(body) - 1:
        raise malformed("invalid message format: a statement's or a portal's name is missing")
    return body[0] == 83, read_text(body[1:-1])


def read_execute(body: bytes) -> tuple[str, int]:
    """The portal's name and how many rows are wanted, 0 = all. Raises SqlError."""
    if body == b"\x00\x00\x00\x00\x00":
        return "", 0
    end = body.find(0)
    if end < 0 or len(body) != end + 5:
        raise malformed("invalid message format of type 'E'")
    return read_text(body[:end]), max(0, _I4.unpack_from(body, end + 1)[0])


class Bind(NamedTuple):
    """`formats`, `results`: the count and the codes of parameters and results as they came: what
    was compiled for them is kept by these bytes.
    """

    portal: str
    statement: str
    formats: bytes
    values: list[bytes | None]
    results: bytes


def read_bind(body: bytes, unpack: Callable[[bytes, int], tuple[int]] = unpack_i4) -> Bind:
    """Raises SqlError."""
    try:
        first = body.index(0)
        second = body.index(0, first + 1)
        start = second + 1
        at = start + 2 + 2 * (body[start] << 8 | body[start + 1])
        formats = body[start:at]
        count = body[at] << 8 | body[at + 1]
        at += 2
        values: list[bytes | None] = []
        for _ in range(count):
            size = unpack(body, at)[0]
            at += 4
            if size >= 0:
                values.append(body[at : at + size])
                at += size
            elif size == -1:
                values.append(None)
            else:
                raise ValueError
        results = body[at:]
        if len(results) != 2 + 2 * (results[0] << 8 | results[1]):
            raise ValueError
    except (ValueError, IndexError, struct.error):
        raise malformed("invalid message format of type 'B'") from None
    if second > _NAMES_BYTES_MAX:
        raise _too_long_name()
    portal = read_text(body[:first]) if first else ""
    return _named(Bind, (portal, read_text(body[first + 1 : second]), formats, values, results))


def format_codes(raw: bytes, count: int, mismatch: str) -> tuple[int, ...]:
    """One code per column of what a Bind said (none, one for all, or each). Raises SqlError."""
    codes = struct.unpack_from(f">{len(raw) // 2 - 1}h", raw, 2)
    for code in codes:
        if code not in (0, 1):
            raise SqlError("22023", f"unsupported format code: {code}")
    if not codes:
        return (0,) * count
    if len(codes) == 1:
        return codes * count
    if len(codes) != count:
        raise SqlError(PROTOCOL_VIOLATION, mismatch.format(given=len(codes), count=count))
    return codes


# -- out

AUTHENTICATED: Final = b"R\x00\x00\x00\x08\x00\x00\x00\x00"
BIND_COMPLETE: Final = b"2\x00\x00\x00\x04"
CLOSE_COMPLETE: Final = b"3\x00\x00\x00\x04"
COPY_OUT_DONE: Final = b"c\x00\x00\x00\x04"
EMPTY_QUERY: Final = b"I\x00\x00\x00\x04"
NO_DATA: Final = b"n\x00\x00\x00\x04"
PARSE_COMPLETE: Final = b"1\x00\x00\x00\x04"
PORTAL_SUSPENDED: Final = b"s\x00\x00\x00\x04"
READY: Final[dict[Status, bytes]] = {
    "I": b"Z\x00\x00\x00\x05I",
    "T": b"Z\x00\x00\x00\x05T",
    "E": b"Z\x00\x00\x00\x05E",
}
_AUTHENTICATION_SASL: Final = 10


def message(kind: bytes, body: bytes) -> bytes:
    return kind + _U4.pack(len(body) + 4) + body


def _string(text: str) -> bytes:
    return text.replace("\x00", "").encode(errors="replace") + b"\x00"


def sasl_mechanisms(names: Iterable[str]) -> bytes:
    body = b"".join([_string(name) for name in names]) + b"\x00"
    return message(b"R", _U4.pack(_AUTHENTICATION_SASL) + body)


def sasl_continue(data: bytes) -> bytes:
    return message(b"R", _U4.pack(_AUTHENTICATION_SASL + 1) + data)


def sasl_final(data: bytes) -> bytes:
    return message(b"R", _U4.pack(_AUTHENTICATION_SASL + 2) + data)


def read_sasl_initial(body: bytes) -> tuple[str, bytes]:
    """The mechanism that the client chose and its first message. Raises ProtocolError."""
    end = body.find(0)
    if end < 0 or len(body) < end + 5:
        raise ProtocolError("invalid SASL response")
    size = _I4.unpack_from(body, end + 1)[0]
    data = body[end + 5 :]
    if size != len(data) and not (size == -1 and not data):
        raise ProtocolError("invalid SASL response")
    return read_text(body[:end]), data


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", _string(name) + _string(value))


def backend_key(process: int, key: bytes) -> bytes:
    return message(b"K", _U4.pack(process) + key)


def negotiate(version: int, unknown: Sequence[str]) -> bytes:
    body = _TWO.pack(version, len(unknown)) + b"".join([_string(name) for name in unknown])
    return message(b"v", body)


def command_complete(tag: str) -> bytes:
    return message(b"C", tag.encode() + b"\x00")


def error_response(error: SqlError, *, offset: int = 0, style: Style = DEFAULT) -> bytes:
    """`offset`: characters of the query before the statement that the position is within. `style`:
    of the values that it tells.
    """
    detail = error.detail.shown(style) if isinstance(error.detail, Detail) else error.detail
    position = str(error.position + offset) if error.position else ""
    return message(
        b"E",
        _fields(
            ("S", error.severity),
            ("V", error.severity),
            ("C", error.sqlstate),
            ("M", error.message),
            ("D", detail),
            ("H", error.hint),
            ("P", position),
            ("W", error.where),
            ("s", error.schema),
            ("t", error.table),
            ("c", error.column),
            ("d", error.datatype),
            ("n", error.constraint),
            ("R", error.routine),
        ),
    )


def notice_response(notice: Notice) -> bytes:
    return message(
        b"N",
        _fields(
            ("S", notice.severity),
            ("V", notice.severity),
            ("C", notice.sqlstate),
            ("M", notice.message),
            ("D", notice.detail),
            ("H", notice.hint),
        ),
    )


def notification_response(one: Notification) -> bytes:
    body = struct.pack(">I", one.process) + _string(one.channel) + _string(one.payload)
    return message(b"A", body)


def _fields(*fields: tuple[str, str]) -> bytes:
    """The message must be there even if it is empty; other fields only if they say something."""
    out = [
        kind.encode() + _string(text[:SQL_ERROR_FIELD_CHARS_MAX])
        for kind, text in fields
        if text or kind == "M"
    ]
    return b"".join(out) + b"\x00"


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f">H{len(oids)}I", len(oids), *oids))


def row_description(fields: Sequence[Field], formats: Sequence[int]) -> bytes:
    out = [_I2.pack(len(fields))]
    for field, code in zip(fields, formats, strict=True):
        of = TYPES.get(field.oid)
        size = -1 if of is None else of.size
        out += (
            _string(field.name),
            struct.pack(">IhIhih", field.table, field.column, field.oid, size, field.typmod, code),
        )
    return message(b"T", b"".join(out))


def copy_response(kind: bytes, binary: bool, columns: int) -> bytes:
    """`kind`: G (in) or H (out)."""
    codes = [int(binary)] * columns
    return message(kind, struct.pack(f">BH{columns}h", binary, columns, *codes))
