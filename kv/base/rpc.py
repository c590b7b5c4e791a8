"""Framing of the native protocol, without a socket: bytes in, messages out. docs/reference/rpc.md
has every byte.

A frame is `[u32 LE length][msgpack]`; a message is a list. The first frame of each side is its
hello, later frames hold requests or replies (`kv.base.methods`). Row 0 of a reply, the *rid*, names
the request; rid 0 means the connection itself: such an error is the last thing its sender says.

Invariants
  * a frame is refused by its length before its body is kept, so a decoder holds at most one frame
    and one chunk of the socket, whatever the peer claims;
  * what comes out is plain data: None, bool, int, float, str, bytes, list and dict. No extension
    types, no code;
  * an encoder never sends a frame above the limits, and one row that cannot be sent does not take
    its neighbours along.

Left out: compression and checksums (TCP has one; stored data has its own), encryption (TLS is
below).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from kv.base import decode_cost
from kv.base.credentials import NONE, Credential
from kv.base.errors import InvalidArgument, KvorumError, Refused, TooLarge, from_wire, to_wire
from kv.base.limits import FRAME_BYTES_MAX, LIST_ITEMS_MAX, REQUESTS_PER_FRAME_MAX
from kv.base.methods import PROTOCOL, VERSION
from kv.base.wire_row import WireRow

HEADER_BYTES: Final = 4
CONNECTION_RID: Final = 0
OK: Final = 0
FAILED: Final = 1
_HEADER = struct.Struct("<I")
_header = _HEADER.pack
_header_at = _HEADER.unpack_from
_EMPTY: Final = b""
_COPIED_BYTES_MAX: Final = 4096  # a body up to here is copied: cheaper than a view of it


def malformed(what: str) -> InvalidArgument:
    """The error about bytes that are not this protocol. Whoever sent them loses the connection."""
    return InvalidArgument(f"malformed frame: {what}", code="MALFORMED_FRAME")


def _no_ext(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code} of {len(data)} bytes is not allowed")


def decode(body: bytes | memoryview, *, weighed: bool = False) -> WireRow:
    """The message in the body of a frame; `weighed`: of one that nobody trusts
    (kv/base/decode_cost.py).

    Raises InvalidArgument (MALFORMED_FRAME) that says what is wrong, TooLarge.
    """
    weigh: Callable[[Any], object] | None = None
    if weighed and len(body) > decode_cost.LIGHT_BYTES_MAX:
        weigh = decode_cost.scale()
    try:
        message = msgpack.unpackb(
            body,
            list_hook=weigh,
            object_hook=weigh,
            raw=False,
            use_list=True,
            strict_map_key=False,
            max_array_len=LIST_ITEMS_MAX,
            max_map_len=LIST_ITEMS_MAX,
            max_ext_len=0,
            ext_hook=_no_ext,
        )
    except (ValueError, TypeError) as error:  # every way msgpack refuses, bad map keys included
        reason = str(error) or type(error).__name__
        raise malformed(f"{reason} in a body of {len(body)} bytes") from error
    if type(message) is not list:
        raise malformed(f"a message is a list, this is {type(message).__name__}")
    return message


def requests_of(message: WireRow) -> list[list[object]]:
    """The rows of a frame of requests, all of the shape `[rid, method, budget_ms, …]`, three
    unsigned integers first.

    Raises InvalidArgument (MALFORMED_FRAME; details: rid of the bad row, where it has one) or
    TooLarge; a frame is refused as a whole, before any of its rows is looked at.
    """
    if len(message) > REQUESTS_PER_FRAME_MAX:
        raise TooLarge(
            f"{len(message)} requests in a frame; the limit is {REQUESTS_PER_FRAME_MAX}:"
            " send several frames",
            details={
                "what": "requests in a frame",
                "limit": REQUESTS_PER_FRAME_MAX,
                "actual": len(message),
            },
        )
    for row in message:
        if (
            type(row) is not list
            or len(row) < 3
            or type(row[0]) is not int
            or type(row[1]) is not int
            or type(row[2]) is not int
            or row[0] <= CONNECTION_RID
            or row[1] < 0
        ):
            raise _bad_request(row)
    return message


def _bad_request(row: object) -> InvalidArgument:
    if type(row) is not list:
        return malformed(f"a request is a list, this is {type(row).__name__}")
    error = malformed(
        "a request is [rid, method, budget_ms, …]: integers, rid above 0, method not negative"
    )
    if row and type(row[0]) is int and row[0] > CONNECTION_RID:
        error.details["rid"] = row[0]
    return error


class FrameDecoder:
    """Cuts a byte stream into messages: `push` what arrived, then `pull` until None.

    Pulling may stop at any time (backpressure); what is left waits here. After an error the stream
    has no meaning.
    """

    __slots__ = ("_at", "_weighed", "data", "limit")

    def __init__(self, limit: int = FRAME_BYTES_MAX, *, weighed: bool = False) -> None:
        self.limit = limit  # bytes of a frame's body; may be changed between two frames
        self._weighed = weighed
        self.data: bytes | bytearray = _EMPTY  # what came and was not pulled, after what was
        self._at = 0

    @property
    def buffered(self) -> int:
        """Bytes kept that no `pull` has returned yet."""
        return len(self.data) - self._at

    @property
    def complete(self) -> bool:
        """Whether `pull` has something to do."""
        left = len(self.data) - self._at - HEADER_BYTES
        if left < 0:
            return False
        (length,) = _header_at(self.data, self._at)
        return not left < length <= self.limit

    def push(self, chunk: bytes) -> None:
        if self._at == len(self.data):
            self.data = chunk  # the common case: nothing was left, nothing is copied
            self._at = 0
            return
        data = self.data
        if isinstance(data, bytearray):
            del data[: self._at]
        else:
            data = bytearray(memoryview(data)[self._at :])
        data += chunk  # a bytearray grows by doubling: a large frame is not copied once per chunk
        self.data = data
        self._at = 0

    def pull(self) -> list[object] | None:
        """The next message, None if its bytes are not all here.

        Raises TooLarge, InvalidArgument (MALFORMED_FRAME).
        """
        data, at = self.data, self._at
        if len(data) - at < HEADER_BYTES:
            return None
        (length,) = _header_at(data, at)
        if length > self.limit:
            raise TooLarge(
                f"frame of {length} bytes; the limit is {self.limit} here: send less at once",
                details={"what": "frame", "limit": self.limit, "actual": length},
            )
        start = at + HEADER_BYTES
        end = start + length
        if end > len(data):
            return None
        if length <= _COPIED_BYTES_MAX:
            message = decode(bytes(data[start:end]))
        else:
            with memoryview(data) as whole, whole[start:end] as body:
                message = decode(body, weighed=self._weighed)
        if end == len(data):
            self.data = _EMPTY
            self._at = 0
        else:
            self._at = end
        return message


class FrameEncoder:
    """Packs rows into frames within the limits. One per event loop is enough: it keeps one buffer
    for reuse.
    """

    __slots__ = ("_pack",)

    def __init__(self) -> None:
        self._pack: Callable[[object], bytes] = msgpack.Packer(use_bin_type=True).pack

    def message(self, message: WireRow) -> bytes:
        """One frame. For hellos and closing errors, which always fit."""
        body = self._pack(message)
        return _header(len(body)) + body

    def rows(
        self, rows: WireRow, refused: Callable[[Any, KvorumError], list[object] | None]
    ) -> bytes:
        """The frames of `rows`, in order; one frame unless a limit forbids it.

        A row that cannot be sent (too large, or a value that msgpack does not know) is given to
        `refused` with the reason; what that returns is sent in its place, nothing if it returns
        None.
        """
        if len(rows) <= REQUESTS_PER_FRAME_MAX:
            try:
                body = self._pack(rows)
            except (TypeError, ValueError, OverflowError) as error:
                if len(rows) == 1:
                    return self._replace(rows[0], _unpackable(error), refused)
            else:
                if len(body) <= FRAME_BYTES_MAX:
                    return _header(len(body)) + body
                if len(rows) == 1:
                    return self._replace(rows[0], _oversize(len(body)), refused)
        middle = len(rows) // 2
        return self.rows(rows[:middle], refused) + self.rows(rows[middle:], refused)

    def _replace(
        self,
        row: object,
        error: KvorumError,
        refused: Callable[[object, KvorumError], list[object] | None],
    ) -> bytes:
        instead = refused(row, error)
        return _EMPTY if instead is None else self.message([instead])


def _unpackable(error: Exception) -> InvalidArgument:
    return InvalidArgument(
        f"a value cannot be sent: {error};"
        " use None, bool, 64-bit int, float, str, bytes, list or dict"
    )


def _oversize(actual: int) -> TooLarge:
    return TooLarge(
        f"message of {actual} bytes; the limit of a frame is {FRAME_BYTES_MAX}: split the work",
        details={"what": "frame", "limit": FRAME_BYTES_MAX, "actual": actual},
    )


def error_row(rid: int, error: KvorumError) -> list[object]:
    """The reply `[rid, 1, *error]`."""
    return [rid, FAILED, *to_wire(error)]


def error_of(row: list[object]) -> KvorumError:
    """The error in a reply `[rid, 1, *error]`. A reply of another shape is itself the error."""
    try:
        error = from_wire(row[2:])
    except (ValueError, TypeError):
        return malformed(f"an error reply of {len(row)} fields that is not an error")
    return error


# ------------------------------------------------------------------------------------------- hello


_PROOFS: Final = ("token", "user", "password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who speaks. `cluster` "" = any (a client that was given none); `node` 0 = a client. A server
    gives a connection of a node a `challenge`, by which it proves that it is one (`node_proof`);
    its `incarnation` is as old as its data. `proves`: so does this one of a proxy. Of a client's
    `credential` the token, or user and
    password, travel; the cluster's secret never does.
    """

    cluster: str = ""
    node: int = 0
    challenge: bytes = b""
    incarnation: bytes = b""
    proves: bool = False
    credential: Credential = NONE

    def to_wire(self) -> list[object]:
        fields: dict[str, object] = {"cluster": self.cluster, "node": self.node}
        if self.challenge:
            fields["challenge"] = self.challenge
        if self.incarnation:
            fields["incarnation"] = self.incarnation
        if self.proves:
            fields["proves"] = True
        for name in _PROOFS:
            if value := getattr(self.credential, name):
                fields[name] = value
        return [PROTOCOL, VERSION, fields]


def node_proof(secret: bytes, server: Hello, node: int) -> bytes:
    """What only a node of the cluster can answer to the hello of a server: an HMAC (RFC 2104) with
    the cluster's secret, of this connection alone.
    """
    said = msgpack.packb(["kvorum-node", server.cluster, server.node, server.challenge, node])
    return hmac.digest(secret, said, hashlib.sha256)


def read_hello(message: WireRow, own_cluster: str) -> Hello:
    """The peer's hello. Raises InvalidArgument if it is none, Refused if the two must not talk,
    with the reason.

    `own_cluster` "" accepts every cluster.
    """
    if (
        len(message) != 3
        or type(message[0]) is not str
        or type(message[1]) is not int
        or type(message[2]) is not dict
    ):
        raise malformed(f'the first message must be ["{PROTOCOL}", version, {{…}}]')
    name, version, fields = message
    if name != PROTOCOL:
        raise Refused(
            f"this port speaks {PROTOCOL}, the peer speaks {name[:64]!r}", code="WRONG_PROTOCOL"
        )
    if version != VERSION:
        raise Refused(
            f"this side speaks {PROTOCOL} version {VERSION}, the peer version {version}:"
            " upgrade the older one",
            code="WRONG_VERSION",
            details={"own": VERSION, "peer": version},
        )
    cluster, node = fields.get("cluster", ""), fields.get("node", 0)
    challenge, incarnation = fields.get("challenge", b""), fields.get("incarnation", b"")
    if type(cluster) is not str or type(node) is not int or type(challenge) is not bytes:
        raise malformed("hello: cluster must be a string, node an integer, challenge bytes")
    if type(incarnation) is not bytes:
        raise malformed("hello: incarnation must be bytes")
    credential = Credential(*(fields.get(name, "") for name in _PROOFS))
    if cluster and own_cluster and cluster != own_cluster:
        raise Refused(
            f"this is cluster {own_cluster!r}, the peer belongs to {cluster[:64]!r}:"
            " check the address",
            code="WRONG_CLUSTER",
            details={"own": own_cluster, "peer": cluster[:64]},
        )
    return Hello(
        cluster=cluster,
        node=node,
        challenge=challenge,
        incarnation=incarnation,
        proves=fields.get("proves") is True,
        credential=credential,
    )
