"""What the Spark sink keeps in the system tables, and the chunks that it stages. Pure.

    SINK_ATTEMPTS  esc(attempt)                      → [format, state, table, lease_ms, procedure]
                                                       format: 1, or [2, began_ms, user,
                                                       application, version], which programs before
                                                       read over (and write 1)
    SINK_ATTEMPTS  esc(attempt) esc(task)            → [format, part, chunks, rows, crc] sealed; and
                                                       [[start_ts, bound], …] of the transactions
                                                       under which it lays rows in place, and how
                                                       many; rows 0 until it is sealed
    SINK_PLACES    [table id u32]                    → attempt that lays rows in it in place
    SINK_CHUNKS    esc(attempt) esc(task) [seq u32]  → chunk
    SINK_MARKERS   esc(application) [table id u32]   → [format, version, query]  last committed; and
                                                       [query, …] that it replaced; and [[version,
                                                       rows, sum], …]: digests of the last batches
    SINK_MARKERS   esc("") [table id u32]            → attempt of the last large batch: the anchor
                                                       of their transactions, so one at a time

All values are msgpack lists. A chunk is msgpack `[2, [piece, …]]`, a piece `[first user key, rows,
last user key, keys, values]`: packed rows (kv/mvcc/packed_rows.py) of one legal message, which the
commit of a large batch sends as they lie here. The pieces rise, sorted by their writer; nil = a
deletion. Or a chunk is `[[user key, …], [value | nil, …], [order, …]]`: each row's order among rows
of its key, bytes, compared as such. (Programs before wrote all chunks so, without the third list.)

Or it is `[3, [[start_ts, first user key, last user key, rows], …]]`: no rows, but what was laid in
place (placed_rows.py).

User keys come without the table prefix, so that no chunk can reach into another table. `crc` is the
sum of (seq + 1) * crc32(chunk) modulo 2^32, so that it can be checked in any order. Deliberately
missing: compression (the server would need another library to read it).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, replace
from enum import IntEnum
from itertools import islice
from operator import lt
from typing import Any, Final
from zlib import crc32

import msgpack

from kv.base import decode_cost, limits, system
from kv.base.errors import InvalidArgument, KeyLocked, Refused, TooLarge
from kv.base.keys import escape, successor, table_prefix, u32, unescape
from kv.mvcc.packed_rows import PackedKeys

FORMAT: Final = 1
_SAYS: Final = 2  # an attempt's own row that says what it is about
DUPLICATE: Final = "SINK_DUPLICATE"
# A buffer of its own: one that grows copies what it has, a megabyte again and again.
_pack = msgpack.Packer(use_bin_type=True, buf_size=4 * limits.MiB).pack
_KEY_TYPES: Final = {bytes}
_VALUE_TYPES: Final = {bytes, type(None)}
_PACKED: Final = 2
_IS_PACKED: Final = b"\x92\x02"  # how a chunk of packed pieces begins
_LAID: Final = 3
_IS_LAID: Final = b"\x92\x03"
_LAID_PIECE: Final = [int, bytes, bytes, int]
_PIECE: Final = [bytes, int, bytes, bytes, bytes]


Digest = tuple[int, int]
"""What a batch is: how many rows, and the sum of their checksums, which no order of rows and no cut
into tasks changes.
"""


class AttemptState(IntEnum):
    """OPEN → [PREPARED →] COMMITTING → [DONE →] gone (committed); OPEN, PREPARED → ABORTED → gone
    when its lease ends; OPEN → EXPIRED (its lease ended with sealed tasks) → gone a day later.

    PREPARED belongs to a job, which alone can end it: it has no lease. DONE: its rows are visible,
    its staging is being removed.
    """

    OPEN = 1
    COMMITTING = 2
    ABORTED = 3
    PREPARED = 4
    DONE = 5
    EXPIRED = 6


@dataclass(frozen=True, slots=True)
class About:
    """What an attempt says to people; nothing is decided by it. 0 and "": nobody has said so, or a
    program before has written the row since.
    """

    began_ms: int = 0
    user: str = ""
    app: str = ""
    """Its application and batch, which are known when it is prepared or committed."""
    version: int = 0


_UNKNOWN: Final = About()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One writer's try at one batch. Stages only while OPEN; a lease that ran out lets anybody
    remove it.
    """

    state: AttemptState
    table: int
    lease_until_ms: int
    procedure: int = 0
    about: About = field(default=_UNKNOWN, compare=False)

    def pack(self) -> bytes:
        said = FORMAT if self.about == _UNKNOWN else [_SAYS, *astuple(self.about)]
        row = [said, int(self.state), self.table, self.lease_until_ms, self.procedure]
        packed: bytes = msgpack.packb(row)
        return packed

    @staticmethod
    def leased(
        state: AttemptState,
        table: int,
        now_ms: int,
        procedure: int = 0,
        before: Attempt | None = None,
    ) -> Attempt:
        """For the usual time from now on. `before`: what it was."""
        about = before.about if before is not None else _UNKNOWN
        return Attempt(state, table, now_ms + limits.SINK_LEASE_MS, procedure, about)

    def of_batch(self, app: str, version: int) -> Attempt:
        return replace(self, about=replace(self.about, app=app, version=version))

    @staticmethod
    def unpack(data: bytes) -> Attempt:
        said, state, table, lease, procedure = msgpack.unpackb(data)
        about = About(*said[1:5]) if isinstance(said, list) else _UNKNOWN
        return Attempt(AttemptState(state), table, lease, procedure, about)


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a finished task staged; equal to its entry in the driver's manifest, or the batch is not
    committed.
    """

    part: int
    chunks: int
    rows: int
    crc: int
    txns: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """start_ts and the lowest commit_ts of each transaction under which it laid rows in place."""
    placed: int = field(default=0, compare=False)
    """Rows that it laid so."""

    def pack(self) -> bytes:
        row: list[object] = [FORMAT, self.part, self.chunks, self.rows, self.crc]
        if self.txns:
            row += [self.txns, self.placed]
        packed: bytes = msgpack.packb(row)
        return packed

    @staticmethod
    def unpack(data: bytes) -> Sealed:
        _, part, chunks, rows, crc, *more = msgpack.unpackb(data)
        if not more:
            return Sealed(part, chunks, rows, crc)
        txns, placed = more
        return Sealed(part, chunks, rows, crc, tuple((ts, bound) for ts, bound in txns), placed)


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of an application that reached a table, and the query that wrote it.
    `retired`: queries before it, which were replaced by a reset and stay refused. `digests`: of its
    last batches whose contents are known; programs before wrote none.
    """

    version: int
    query: str
    retired: tuple[str, ...] = ()
    digests: tuple[tuple[int, Digest], ...] = ()

    def pack(self) -> bytes:
        row: list[object] = [FORMAT, self.version, self.query]
        if self.retired or self.digests:
            row.append(list(self.retired))
        if self.digests:
            row.append([[version, *digest] for version, digest in self.digests])
        packed: bytes = msgpack.packb(row)
        return packed

    @staticmethod
    def unpack(data: bytes) -> Marker:
        _, version, query, *more = msgpack.unpackb(data)
        retired, digests = (*more, [], [])[:2]
        known = tuple((at, (rows, total)) for at, rows, total in digests)
        return Marker(version, query, tuple(retired), known)

    def digest(self, version: int) -> Digest | None:
        return dict(self.digests).get(version)

    def follow(self, version: int, query: str, digest: Digest | None = None) -> Marker:
        """The marker after a batch of `query`, which is this one's or replaces it."""
        retired = self.retired
        known = tuple(one for one in self.digests if one[0] < version)
        if query != self.query:
            retired, known = (*retired, self.query)[-limits.SINK_RETIRED_MAX :], ()
        if digest is not None:
            known = (*known, (version, digest))[-limits.SINK_DIGESTS_MAX :]
        return Marker(version, query, retired, known)


def attempt_key(attempt: str) -> bytes:
    return table_prefix(system.SINK_ATTEMPTS) + escape(attempt.encode())


def task_key(attempt: str, task: str) -> bytes:
    return attempt_key(attempt) + escape(task.encode())


def task_of(key: bytes) -> str:
    """The task in a key made by `task_key`; "" if it is the attempt's own row."""
    _, end = unescape(key, 4)
    return unescape(key, end)[0].decode() if end < len(key) else ""


def own_row(key: bytes) -> bytes:
    """The key of the attempt that a key made by `task_key` belongs to; of its own row: itself.
    Raises ValueError.
    """
    return key[: unescape(key, 4)[1]]


def attempt_of(key: bytes) -> str:
    return unescape(key, 4)[0].decode()


def loading_attempt(anchor: bytes) -> str:
    """Of which attempt a task laid rows in place under the transaction of this anchor; "": of
    none.
    """
    known = anchor.startswith(table_prefix(system.SINK_ATTEMPTS)) and task_of(anchor)
    return attempt_of(anchor) if known else ""


def met_by(attempt: str) -> Callable[[KeyLocked], None]:
    """For `BulkTransactions.begin`: what lies in the way of an attempt's rows is waited for, unless
    it is the attempt's own. Raises Refused (SINK_DUPLICATE, with the storage key).
    """

    def met(locked: KeyLocked) -> None:
        if loading_attempt(locked.details["anchor"]) == attempt:
            raise Refused(
                "two rows of the batch have one key, or another try of a task has laid this one",
                code=DUPLICATE,
                details={"key": locked.details["key"]},
            )

    return met


def place_key(table: int) -> bytes:
    return table_prefix(system.SINK_PLACES) + u32(table)


def chunk_key(attempt: str, task: str, seq: int) -> bytes:
    return (
        table_prefix(system.SINK_CHUNKS)
        + escape(attempt.encode())
        + escape(task.encode())
        + u32(seq)
    )


def chunks_range(attempt: str) -> tuple[bytes, bytes]:
    """`[start, end)` of everything that an attempt staged."""
    start = table_prefix(system.SINK_CHUNKS) + escape(attempt.encode())
    return start, successor(start)


def marker_key(app: str, table: int) -> bytes:
    return table_prefix(system.SINK_MARKERS) + escape(app.encode()) + u32(table)


def bulk_key(table: int) -> bytes:
    """The anchor of large batches for a table. No application has an empty name."""
    return marker_key("", table)


def pack_chunk(keys: list[bytes], values: list[bytes | None]) -> bytes:
    """`keys`, which rise, without the table prefix; None deletes. At most SINK_CHUNK_BYTES_MAX when
    packed. For callers with lists; Spark's tasks have columns (pyspark_kvorum/packing.py). Raises
    TooLarge for a key or a value.
    """
    return pack_pieces(pieces_of(keys, values))


def pack_pieces(pieces: list[list[object]]) -> bytes:
    """The chunk of these pieces, which rise."""
    packed: bytes = _pack([_PACKED, pieces])
    return packed


def pieces_of(keys: list[bytes], values: list[bytes | None]) -> list[list[object]]:
    """The pieces of a chunk of these rows. Raises TooLarge for a key or a value."""
    check_fits("chunk", "key", max(map(len, keys), default=0), limits.KEY_BYTES_MAX)
    pieces: list[list[object]] = []
    parts = -(-len(keys) // limits.PREWRITE_KEYS_MAX)
    step = -(-len(keys) // max(1, parts))
    for low in range(0, len(keys), max(1, step)):
        _add_pieces(pieces, keys[low : low + step], values[low : low + step])
    return pieces


def _add_pieces(pieces: list[list[object]], keys: list[bytes], values: list[bytes | None]) -> None:
    packed_keys: bytes = _pack(keys)
    packed_values: bytes = _pack(values)
    if len(packed_values) > limits.VALUE_BYTES_MAX:
        longest = max(map(len, filter(None, values)), default=0)
        check_fits("chunk", "value", longest, limits.VALUE_BYTES_MAX)
    if len(packed_keys) + len(packed_values) > limits.PREWRITE_BYTES_MAX and len(keys) > 1:
        half = len(keys) // 2
        _add_pieces(pieces, keys[:half], values[:half])
        _add_pieces(pieces, keys[half:], values[half:])
        return
    pieces.append([keys[0], len(keys), keys[-1], packed_keys, packed_values])


class Apart:
    """Where runs of rising keys lie that do not overlap. A run right after the last one is one
    with it.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[bytes, bytes]] = []
        self._last = -1  # where the run that was added last is

    def add(self, first: bytes, last: bytes) -> bool:
        """Whether the run overlaps none; only then it is added."""
        runs = self._runs
        at = bisect_left(runs, (first, last))
        if (at > 0 and runs[at - 1][1] >= first) or (at < len(runs) and runs[at][0] <= last):
            return False
        if at > 0 and at - 1 == self._last:
            runs[at - 1] = (runs[at - 1][0], last)
        else:
            runs.insert(at, (first, last))
            self._last = at
        return True


def pack_laid(pieces: Sequence[tuple[int, bytes, bytes, int]]) -> bytes:
    """(start_ts, first and last user key, rows) of each message that a task laid in place."""
    packed: bytes = _pack([_LAID, pieces])
    return packed


def is_laid(chunk: bytes) -> bool:
    return chunk[:2] == _IS_LAID


def laid_of(chunk: bytes) -> dict[int, list[tuple[bytes, bytes, int]]]:
    """What `pack_laid` was given, by start_ts; nothing for a chunk of rows. Raises
    InvalidArgument.
    """
    found: dict[int, list[tuple[bytes, bytes, int]]] = {}
    if not is_laid(chunk):
        return found
    try:
        _, pieces = decode_cost.unpack_rows(chunk, use_list=True)
        good = all([type(one) for one in piece] == _LAID_PIECE for piece in pieces)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise InvalidArgument(f"not a chunk of what was laid: {e}") from e
    if not good:
        raise InvalidArgument("what was laid is a list of [start_ts, first, last, rows]")
    for start_ts, first, last, rows in pieces:
        found.setdefault(start_ts, []).append((first, last, rows))
    return found


def pack_ordered(keys: list[bytes], values: list[bytes | None], orders: list[bytes]) -> bytes:
    """`pack_chunk` with each row's order among the rows of its key."""
    packed: bytes = msgpack.packb([keys, values, orders], use_bin_type=True)
    return packed


def unpack_chunk(chunk: bytes, what: str) -> tuple[list[bytes], list[bytes | None]]:
    """The rows of a chunk, checked: shapes, types, key and value sizes. `what` names it in errors.

    Raises InvalidArgument or TooLarge.
    """
    keys, values, _ = unpack_orders(chunk, what)
    return keys, values


def unpack_orders(
    chunk: bytes, what: str
) -> tuple[list[bytes], list[bytes | None], list[bytes] | None]:
    """The rows of a chunk, checked, and their orders if it has them. Raises InvalidArgument,
    TooLarge.
    """
    if chunk[:2] == _IS_PACKED:
        return (*_unpack_pieces(chunk, what), None)
    return _unpack_plain(chunk, what)


def _unpack_plain(
    chunk: bytes, what: str
) -> tuple[list[bytes], list[bytes | None], list[bytes] | None]:
    try:
        keys, values, *more = decode_cost.unpack_rows(chunk, use_list=True)
        orders = more[0] if more else None
        lengths = (len(keys), len(values))
        ordered = lengths[0] if orders is None else len(orders)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise InvalidArgument(f"{what}: not a chunk of [[key], [value]]: {e}") from e
    if lengths[0] != lengths[1] or ordered != lengths[0] or len(more) > 1:
        raise InvalidArgument(
            f"{what}: {lengths[0]} keys but {lengths[1]} values and {ordered} orders"
        )
    if not set(map(type, keys)) <= _KEY_TYPES or not set(map(type, values)) <= _VALUE_TYPES:
        raise InvalidArgument(f"{what}: keys must be bytes, values bytes or nil")
    if orders is not None and not set(map(type, orders)) <= _KEY_TYPES:
        raise InvalidArgument(f"{what}: orders must be bytes")
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise InvalidArgument(f"{what}: its keys are not in order, or one occurs twice")
    _check_sizes(what, keys, values)
    return keys, values, orders


def _check_sizes(what: str, keys: list[bytes], values: list[bytes | None]) -> None:
    check_fits(what, "key", max(map(len, keys), default=0), limits.KEY_BYTES_MAX)
    longest = max(map(len, filter(None, values)), default=0)
    check_fits(what, "value", longest, limits.VALUE_BYTES_MAX)


def check_chunk(chunk: bytes, what: str) -> None:
    """Whether it may be staged. Of packed pieces only their heads are looked at: their rows are
    checked by whoever uses them (`unpack_orders`; a partition, when they come as one message).

    Raises InvalidArgument or TooLarge.
    """
    if is_laid(chunk):
        laid_of(chunk)
        return
    if chunk[:2] != _IS_PACKED:
        unpack_orders(chunk, what)
        return
    before = None
    for first, rows, last, _, _ in _pieces(chunk, what):
        if (before is not None and first <= before) or (first < last) != (rows > 1):
            raise InvalidArgument(f"{what}: its keys are not in order, or one occurs twice")
        check_fits(what, "key", max(len(first), len(last)), limits.KEY_BYTES_MAX)
        before = last


def packed_rows(chunk: bytes, prefix: bytes) -> list[tuple[PackedKeys, bytes]] | None:
    """Its pieces as rows of a table. None: it is not of packed pieces. Raises InvalidArgument."""
    if chunk[:2] != _IS_PACKED:
        return None
    return [
        (PackedKeys(prefix + first, len(prefix), rows, keys, prefix + last), values)
        for first, rows, last, keys, values in _pieces(chunk, "staged chunk")
    ]


def _pieces(chunk: bytes, what: str) -> list[list[Any]]:
    """Their heads have the right types. Raises InvalidArgument."""
    try:
        _, pieces = decode_cost.unpack_rows(chunk, use_list=True)
        good = all([type(field) for field in piece] == _PIECE for piece in pieces)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise InvalidArgument(f"{what}: not a chunk of packed pieces: {e}") from e
    if not good or any(not 0 < piece[1] <= len(chunk) for piece in pieces):
        raise InvalidArgument(f"{what}: a piece is [first, rows, last, keys, values]")
    found: list[list[object]] = pieces
    return found


def _unpack_pieces(chunk: bytes, what: str) -> tuple[list[bytes], list[bytes | None]]:
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for first, rows, last, packed_keys, packed_values in _pieces(chunk, what):
        own, mine, _ = _unpack_plain(b"\x92" + packed_keys + packed_values, what)
        if len(own) != rows or own[0] != first or own[-1] != last or (keys and keys[-1] >= first):
            raise InvalidArgument(f"{what}: a piece is not the {rows} rows that it says")
        keys += own
        values += mine
    return keys, values


def trusted(chunk: bytes) -> tuple[list[bytes], list[bytes | None], list[bytes] | None]:
    """`unpack_orders` of a chunk that was taken in, and whose checksum is what it was then: what
    was checked then is not checked again.
    """
    if chunk[:2] == _IS_PACKED:
        return unpack_orders(chunk, "staged chunk")
    keys, values, *more = msgpack.unpackb(chunk, use_list=True)
    return keys, values, more[0] if more else None


def check_fits(what: str, part: str, actual: int, limit: int) -> None:
    """Raises TooLarge."""
    if actual > limit:
        raise TooLarge(
            f"{what}: a {part} of {actual} bytes, the limit is {limit}",
            details={"what": part, "limit": limit, "actual": actual},
        )


def add_crc(crc: int, seq: int, chunk: bytes) -> int:
    """A task's checksum with chunk number `seq` added, in any order of the chunks; start with 0."""
    return (crc + (seq + 1) * crc32(chunk)) & 0xFFFFFFFF


def checked_text(value: object, what: str, chars_max: int = limits.NONCE_CHARS_MAX) -> str:
    """A non-empty name from the wire. Raises InvalidArgument."""
    if not isinstance(value, str) or not 0 < len(value) <= chars_max:
        raise InvalidArgument(
            f"{what} must be a text of 1 to {chars_max} characters, got {value!r:.80}"
        )
    return value


def checked_int(value: object, what: str, low: int, high: int) -> int:
    """An integer in `[low, high]` from the wire. Raises InvalidArgument."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{what} must be between {low} and {high}, got {value!r:.40}")
    return value
