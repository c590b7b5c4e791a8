"""Writes of one transaction that do not fit in memory: sorted runs in a temporary file.

A small log-structured merge tree without merges (O'Neil et al. 1996): the buffer in memory becomes
a run when it is full, the newest run wins. A run is cut into blocks of SPILL_BLOCK_BYTES, msgpack
lists of ops in key order, and in memory it is the first key and the place of each block. One Bloom
filter over all runs keeps keys that were never spilled, nearly all that are asked for, from reading
anything; one for each run finds the run.

The file is the process's own, unlinked from the start: nobody else reads it, and nothing of it
outlives the process. So there is no format and no checksum to keep. Reads and writes block the
loop, as long as the page cache takes: a run of TXN_SPILL_BYTES for some tens of milliseconds, a
block for some tens of microseconds.

Deliberately missing: merging runs. A transaction of TXN_BUFFER_BYTES_MAX has about a hundred.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from typing import IO, Any, Final
from zlib import crc32

import msgpack

from kv.base.limits import SPILL_BLOCK_BYTES
from kv.base.ops import Op

OpenFile = Callable[[], IO[bytes]]

_HASHES: Final = 5
_BITS_PER_KEY: Final = 10  # one in a hundred keys is looked for in vain
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


class Bloom:
    """The keys of some set, and a few more. Kirsch and Mitzenmacher's two hashes for all."""

    __slots__ = ("_bits", "_size")

    def __init__(self, keys: int) -> None:
        self._size = max(64, keys * _BITS_PER_KEY)
        self._bits = bytearray(self._size // 8 + 1)

    def add(self, key: bytes) -> None:
        bits, size = self._bits, self._size
        at, step = crc32(key), crc32(key, 0x9E3779B9) | 1
        for _ in range(_HASHES):
            bit = at % size
            bits[bit >> 3] |= 1 << (bit & 7)
            at += step

    def __contains__(self, key: bytes) -> bool:
        bits, size = self._bits, self._size
        at, step = crc32(key), crc32(key, 0x9E3779B9) | 1
        for _ in range(_HASHES):
            bit = at % size
            if not bits[bit >> 3] & 1 << (bit & 7):
                return False
            at += step
        return True


class Run:
    """One sorted run: where its blocks are."""

    __slots__ = ("_file", "_firsts", "_keys", "_places")

    def __init__(self, file: IO[bytes], ops: Sequence[Op]) -> None:
        """`ops` rise by key; they are written at the end of the file."""
        self._file = file
        self._firsts: list[bytes] = []
        self._places: list[tuple[int, int]] = []
        self._keys = Bloom(len(ops))
        at = file.seek(0, 2)
        block: list[Op] = []
        size = 0
        for op in ops:
            self._keys.add(op.key)
            block.append(op)
            size += len(op.key) + len(op.value or b"")
            if size >= SPILL_BLOCK_BYTES:
                at, block, size = self._put(block, at), [], 0
        if block:
            self._put(block, at)

    def _put(self, block: list[Op], at: int) -> int:
        data = _pack(block)
        self._file.write(data)
        self._firsts.append(block[0].key)
        self._places.append((at, len(data)))
        return at + len(data)

    def _block(self, i: int) -> list[Op]:
        at, size = self._places[i]
        self._file.seek(at)
        return [Op(*op) for op in msgpack.unpackb(self._file.read(size))]

    def find(self, key: bytes) -> Op | None:
        if key not in self._keys:
            return None
        i = bisect_right(self._firsts, key) - 1
        if i < 0:
            return None
        return next((op for op in self._block(i) if op.key == key), None)

    def between(self, start: bytes, end: bytes, *, reverse: bool) -> Iterator[Op]:
        """Ops of `[start, end)`, end b"" = no bound, a block in memory at a time."""
        low = max(0, bisect_right(self._firsts, start) - 1)
        high = len(self._firsts)
        for i in range(high - 1, low - 1, -1) if reverse else range(low, high):
            if end and self._firsts[i] >= end:
                if reverse:
                    continue
                return
            block = self._block(i)
            for op in reversed(block) if reverse else block:
                if op.key >= start and (not end or op.key < end):
                    yield op


class Spill:
    """All runs of a transaction. Close it when the transaction is over."""

    def __init__(self, open_file: OpenFile, keys_max: int) -> None:
        self._open_file = open_file
        self._file: IO[bytes] | None = None
        self._runs: list[Run] = []  # oldest first
        self._keys_max = keys_max
        self._any: Bloom | None = None  # made when it is needed: most transactions spill nothing

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, ops: Sequence[Op]) -> None:
        """A run of ops that rise by key, newer than all others."""
        if self._file is None:
            self._file = self._open_file()
            self._any = Bloom(self._keys_max)
        assert self._any is not None
        self._runs.append(Run(self._file, ops))
        for op in ops:
            self._any.add(op.key)

    def lend(self) -> Spill:
        """The runs of now, for who only reads, as long as this is not closed."""
        lent = Spill(self._open_file, self._keys_max)
        lent._runs, lent._any = self._runs.copy(), self._any
        return lent

    def find(self, key: bytes) -> Op | None:
        """The newest op of the key."""
        if self._any is None or key not in self._any:
            return None
        for run in reversed(self._runs):
            if (op := run.find(key)) is not None:
                return op
        return None

    def between(
        self, start: bytes, end: bytes, newest: Iterable[Op] = (), *, reverse: bool = False
    ) -> Iterator[Op]:
        """The newest op of each key of `[start, end)` in (reversed) key order; `newest` is a
        further run above all of them.
        """
        runs: list[Iterable[Op]] = [run.between(start, end, reverse=reverse) for run in self._runs]
        runs.append(newest)
        # of equal keys merge gives the one of the earlier iterable first: the newest run leads
        last: bytes | None = None
        for op in merge(*reversed(runs), key=_key, reverse=reverse):
            if op.key != last:
                last = op.key
                yield op

    def close(self) -> None:
        file, self._file, self._runs, self._any = self._file, None, [], None
        if file is not None:
            file.close()


def _key(op: Op) -> Any:
    return op.key
