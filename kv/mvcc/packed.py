"""Many rows as two pieces of bytes: their keys, and their values. So they are staged, sent, logged
and kept as a chunk intent without a step per row, until somebody asks for one of them.

    keys     msgpack list of keys, which rise, each without its first `prefix_bytes` bytes: those
             are the same for all
    values   msgpack list of as many values, nil = a deletion

In a request (PREWRITE_ROWS), in place of its two lists:

    [first key, prefix_bytes, rows, keys, last key], values

Invariant of a `PackedKeys` in a partition: it was looked at once (kv/partition/request_writes.py),
so number, order, first and last are what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from operator import lt
from typing import Any, Final, NamedTuple, overload

import msgpack

from kv.base.errors import InvalidArgument

_TYPES: Final = {bytes, type(None)}
_OPEN_MAX: Final = 16  # whose keys are remembered: a page of a scan meets a few; 8 MiB each at most
_pack = msgpack.Packer(use_bin_type=True, buf_size=1 << 20).pack


class PackedKeys(Sequence[bytes]):
    """Rising keys. The first and the last cost nothing; for the others all are unpacked, which is
    remembered for those that were asked last.
    """

    __slots__ = ("first", "last", "packed", "prefix_bytes", "rows")

    def __init__(
        self, first: bytes, prefix_bytes: int, rows: int, packed: bytes, last: bytes
    ) -> None:
        self.first, self.last = first, last
        self.prefix_bytes, self.rows, self.packed = prefix_bytes, rows, packed

    @staticmethod
    def of(keys: Sequence[bytes]) -> PackedKeys:
        """At least one key."""
        return PackedKeys(keys[0], 0, len(keys), _pack(list(keys)), keys[-1])

    def sent(self) -> list[Any]:
        """As a request has them."""
        return [self.first, self.prefix_bytes, self.rows, self.packed, self.last]

    def all(self) -> tuple[bytes, ...]:
        return _unpacked(self.first[: self.prefix_bytes], self.packed)

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
        own, bodies = keys.all(), unpack_values(values)
        good = type(bodies) is list and len(own) == len(bodies) == keys.rows > 0
        good = good and all(map(lt, own, islice(own, 1, None)))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvalidArgument(f"packed keys and values are msgpack lists: {error}") from error
    if not good or own[0] != keys.first or own[-1] != keys.last:
        raise InvalidArgument(f"packed rows are not the {keys.rows} rising ones that they say")
    if not set(map(type, own)) | set(map(type, bodies)) <= _TYPES:
        raise InvalidArgument("keys must be bytes, values bytes or nil")
    return own, bodies


@lru_cache(maxsize=_OPEN_MAX)
def _unpacked(prefix: bytes, packed: bytes) -> tuple[bytes, ...]:
    keys = msgpack.unpackb(packed, use_list=False)
    return tuple(map(prefix.__add__, keys)) if prefix else keys
