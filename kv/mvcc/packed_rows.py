"""Many rows as two pieces of bytes: their keys, and their values. So they are staged, sent, logged
and kept as a chunk intent without a step per row, until somebody asks for one of them.

    keys     msgpack list of keys, which rise, each without its first `prefix_bytes` bytes: those
             are the same for all
    values   msgpack list of as many values, nil = a deletion

In a request (PREWRITE_ROWS), in place of its two lists:

    [first key, prefix_bytes, rows, keys, last key], values

Invariant of a `PackedKeys` in a partition: it was looked at once (kv/partition/request_writes.py),
so number, order, first and last are what it says.

One key is looked up without unpacking all of them: every _BLOCK_KEYS-th is kept as it is, with its
place in the bytes, once somebody asked (about a tenth of the packed keys, as long as they are
there). What is looked for is searched in the bytes of one block, which is unpacked if it is met:
bytes that look like a key may lie in another one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from operator import lt
from typing import Final, NamedTuple, overload

import msgpack

from kv.base import decode_cost
from kv.base.errors import InvalidArgument
from kv.base.limits import OPEN_CHUNK_BYTES_MAX, OPEN_CHUNKS_MAX

_TYPES: Final = {bytes, type(None)}
_BLOCK_KEYS: Final = 32
_SHORT: Final = 256  # below so many bytes a key has a head of two bytes: bin 8, its length
_BIN8, _ARRAY16, _ARRAY32 = b"\xc4", b"\xdc", b"\xdd"
_pack = msgpack.Packer(use_bin_type=True, buf_size=1 << 20).pack


class PackedKeys(Sequence[bytes]):
    """Rising keys. The first and the last cost nothing, whether one is among them little; for the
    others all are unpacked, which is remembered for those that were asked last.
    """

    __slots__ = ("_blocks", "first", "last", "packed", "prefix_bytes", "rows")

    def __init__(
        self, first: bytes, prefix_bytes: int, rows: int, packed: bytes, last: bytes
    ) -> None:
        self.first, self.last = first, last
        self.prefix_bytes, self.rows, self.packed = prefix_bytes, rows, packed
        self._blocks: _Blocks | None = None

    @staticmethod
    def of(keys: Sequence[bytes]) -> PackedKeys:
        """At least one key."""
        return PackedKeys(keys[0], 0, len(keys), _pack(list(keys)), keys[-1])

    def sent(self) -> list[object]:
        """As a request has them."""
        return [self.first, self.prefix_bytes, self.rows, self.packed, self.last]

    def all(self) -> tuple[bytes, ...]:
        unpack = _remembered if len(self.packed) <= OPEN_CHUNK_BYTES_MAX else _unpacked
        return unpack(self.first[: self.prefix_bytes], self.packed)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, bytes) or not self.first <= key <= self.last:
            return False  # else it begins as the first and the last do
        blocks = self._blocks
        if blocks is None:
            blocks = self._blocks = _blocks_of(self.packed, self.rows)
        firsts, places = blocks
        own = key[self.prefix_bytes :]
        if not firsts:
            return own in _own(self.packed)
        at = bisect_right(firsts, own)
        low, high = places[at - 1], places[at]
        if self.packed.find(_pack(own), low, high) < 0:
            return False
        keys = min(_BLOCK_KEYS, self.rows - (at - 1) * _BLOCK_KEYS)
        return own in _own(_ARRAY16 + keys.to_bytes(2) + self.packed[low:high])

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, at: int | slice) -> bytes | tuple[bytes, ...]:
        if at == 0:
            return self.first
        if at == -1:
            return self.last
        return self.all()[at]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedKeys):
            return self is other or self.all() == other.all()
        return isinstance(other, Sequence) and list(self.all()) == list(other)

    def __hash__(self) -> int:
        return hash(self.all())


class PackedRows(NamedTuple):
    """Rows of one legal message. Not checked by itself."""

    keys: PackedKeys
    values: bytes


def all_keys(keys: Sequence[bytes]) -> Sequence[bytes]:
    """The same, for who looks at many of them."""
    return keys.all() if isinstance(keys, PackedKeys) else keys


def pack_values(values: Sequence[bytes | None]) -> bytes:
    packed: bytes = _pack(list(values))
    return packed


def unpack_values(packed: bytes | memoryview) -> list[bytes | None]:
    values: list[bytes | None] = msgpack.unpackb(packed, use_list=True)
    return values


def opened(keys: PackedKeys, values: bytes) -> tuple[Sequence[bytes], list[bytes | None]]:
    """Rows that nobody looked at yet, for who is to cut them: they are as many as is said, and they
    rise. Raises InvalidArgument.
    """
    try:
        own, bodies = keys.all(), decode_cost.unpack_rows(values)
        good = type(bodies) is list and len(own) == len(bodies) == keys.rows > 0
        good = good and all(map(lt, own, islice(own, 1, None)))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvalidArgument(f"packed keys and values are msgpack lists: {error}") from error
    if not good or own[0] != keys.first or own[-1] != keys.last:
        raise InvalidArgument(f"packed rows are not the {keys.rows} rising ones that they say")
    if not set(map(type, own)) | set(map(type, bodies)) <= _TYPES:
        raise InvalidArgument("keys must be bytes, values bytes or nil")
    return own, bodies


_Blocks = tuple[Sequence[bytes], Sequence[int]]
"""The first key of each block, without the prefix; where each begins, and where the last one ends.
No blocks: the bytes are not as this module packs them, so nothing can be searched for in them."""


def _blocks_of(packed: bytes, rows: int) -> _Blocks:
    """Of keys of one length, which most are, no object is made for those that are not kept."""
    head = {_ARRAY16: 3, _ARRAY32: 5}.get(packed[:1], 1)
    size = packed[head + 1] if packed[head : head + 1] == _BIN8 else 0
    step = 2 + size
    if (
        len(packed) == head + step * rows
        and packed[head::step] == _BIN8 * rows
        and packed[head + 1 :: step] == bytes((size,)) * rows
    ):
        places = array("I", range(head, len(packed), step * _BLOCK_KEYS))
        firsts = [packed[at + 2 : at + step] for at in places]
        places.append(len(packed))
        return firsts, places
    keys = _own(packed)
    parts = [keys[at : at + _BLOCK_KEYS] for at in range(0, rows, _BLOCK_KEYS)]
    if max(map(len, keys)) < _SHORT:
        sizes = [len(b"".join(part)) + 2 * len(part) for part in parts]
    else:
        sizes = [sum(len(_pack(key)) for key in part) for part in parts]
    places = array("I", accumulate(sizes, initial=head))
    if places[-1] != len(packed):  # some have a longer head than they need
        return (), ()
    return [part[0] for part in parts], places


def _own(packed: bytes) -> Sequence[bytes]:
    keys: Sequence[bytes] = decode_cost.unpack_rows(packed, use_list=False)
    return keys


def _unpacked(prefix: bytes, packed: bytes) -> tuple[bytes, ...]:
    keys = decode_cost.unpack_rows(packed, use_list=False)
    return tuple(map(prefix.__add__, keys)) if prefix else keys


_remembered = lru_cache(maxsize=OPEN_CHUNKS_MAX)(_unpacked)
