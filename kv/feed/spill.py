"""What one look at a range found and memory does not hold: sorted runs in a file, read back as one
stream by version.

A watcher that lags far walks over its table; without a file it could keep only the lowest
versions, and would walk again for the next ones, and again. The file is a cache: it is lost with
the watcher, and whoever goes on begins at its position.

Bytes: blocks of [length u32 LE][msgpack of a list of rows], a run after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, groupby
from typing import BinaryIO, Final

import msgpack

from kv.feed.changes import Row, size_of

_U32 = struct.Struct("<I")
_BLOCK_ROWS: Final = 256
_BLOCK_BYTES: Final = 64 * 1024
_pack = msgpack.Packer(use_bin_type=True).pack


class Spill:
    """`add` runs, then `begin`, then `take` until it says that it is done."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` is empty and nobody else's; `close` closes it."""
        self.size = 0
        self.done = False
        self._file = file
        self._runs: list[tuple[int, int]] = []
        self._upto = 0
        self._versions: Iterator[tuple[int, Iterator[Row]]] = iter(())
        self._begun: tuple[int, Iterator[Row]] | None = None  # did not fit the last time

    def add(self, rows: Sequence[Row]) -> None:
        """One run, by version and key. Raises OSError: the disk is full, say."""
        begin = self.size
        self._file.seek(begin)
        block: list[Row] = []
        size = 0
        for row in rows:
            block.append(row)
            size += size_of(row)
            if len(block) >= _BLOCK_ROWS or size >= _BLOCK_BYTES:
                self._write(block)
                block, size = [], 0
        if block:
            self._write(block)
        self._runs.append((begin, self.size))

    def _write(self, block: list[Row]) -> None:
        data = _pack(block)
        self._file.write(_U32.pack(len(data)) + data)
        self.size += _U32.size + len(data)

    def begin(self, upto: int) -> None:
        """All runs are there; what lies above `upto` is not wanted."""
        self._upto = upto
        rows = merge(*(self._read(*run) for run in self._runs), key=_by_version)
        self._versions = groupby(rows, key=_version)

    def _read(self, at: int, end: int) -> Iterator[Row]:
        while at < end:
            self._file.seek(at)
            (length,) = _U32.unpack(self._file.read(_U32.size))
            block = msgpack.unpackb(self._file.read(length), use_list=False)
            at += _U32.size + length
            yield from block

    def take(self, *, rows_max: int, bytes_max: int) -> tuple[list[Row], int, int]:
        """(rows of the next versions, as many as fit; how far they go; the next version if it alone
        does not fit, else 0). That one is passed over.
        """
        found: list[Row] = []
        size = last = 0
        for version, group in self._next_versions():
            of_it: list[Row] = []
            begun = 0
            for row in group:
                of_it.append(row)
                begun += size_of(row)
                full = len(found) + len(of_it) > rows_max or size + begun > bytes_max
                if full and found:
                    self._begun = version, chain(of_it, group)
                    return found, last, 0
                if full and len(of_it) > 1:
                    for _ in group:
                        pass
                    return [], version - 1, version
            found += of_it
            size += begun
            last = version
        self.done = True
        return found, self._upto, 0

    def _next_versions(self) -> Iterator[tuple[int, Iterator[Row]]]:
        """From the one on that did not fit the last time."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            yield begun
        for version, group in self._versions:
            if version > self._upto:
                return
            yield version, group

    def close(self) -> None:
        self._file.close()


def _version(row: Row) -> int:
    return row[2]


def _by_version(row: Row) -> tuple[int, bytes]:
    return row[2], row[0]
