"""Files of sorted rows on their way into the database on disk (`engine.SortedRows`).

    put ─▶ close ─▶ Engine.sync (in a thread: the bytes are on the disk) ─▶ Engine.ingest

The library holds the interpreter while it closes a file and while it takes files in, and both sync.
So what could take long was done before, in the thread of `Engine.sync`: at every sync the bytes
that left the writer's buffer are written back, and what is left for the interpreter to wait for is
a megabyte, and an entry in the list of files. Who fills a file asks for a sync now and then.

The files lie in a directory beside the database's own; RocksDB links them in and removes these
names. What a crash leaves there belongs to nobody: it goes when the database is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from kv.base.errors import InvalidArgument, KvorumError

DIRECTORY: Final = "ingest"


class RawWriter(Protocol):
    """What is needed of the library's writer of files; it is open."""

    def __setitem__(self, key: bytes, value: bytes, /) -> None: ...
    def finish(self) -> None: ...


class SortedFile:
    """See `engine.SortedRows` and the module."""

    def __init__(
        self,
        family: str,
        path: Path,
        writer: RawWriter,
        *,
        translated: Callable[[Exception, str], KvorumError],
        on_discard: Callable[[SortedFile], None],
    ) -> None:
        """`translated(error, doing)`: the error of ours for one of the library."""
        self.family, self.path = family, path
        self.size = 0
        self.first = self.last = b""
        self.closed = self.taken = False
        self._translated, self._on_discard = translated, on_discard
        self._writer: RawWriter | None = writer
        self._put = writer.__setitem__
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def put(self, key: bytes, value: bytes) -> None:
        try:
            self._put(key, value)
        except Exception as error:
            raise self._translated(error, f"writing {self.path}") from error
        if not self.size:
            self.first = key
        self.last = key
        self.size += len(key) + len(value)

    def close(self) -> None:
        if self._writer is None:
            return
        if not self.size:
            raise InvalidArgument(f"{self.path} has no rows; discard it instead")
        writer, self._writer = self._writer, None
        try:
            writer.finish()
        except Exception as error:
            raise self._translated(error, f"writing {self.path}") from error
        self.closed = True

    def sync(self) -> None:
        """In the thread of `Engine.sync`. Raises OSError."""
        if self._fd >= 0:
            os.fdatasync(self._fd)

    def discard(self) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        os.close(fd)
        self._writer = None
        self._on_discard(self)
        with suppress(FileNotFoundError):
            self.path.unlink()


class Incoming:
    """The directory of them, of one database."""

    def __init__(self, database: Path) -> None:
        """Whatever an earlier process left is removed."""
        self._path = database / DIRECTORY
        self._made = 0
        self.files: dict[SortedFile, None] = {}
        self.in_the_way: dict[str, None] = {}
        """Families whose rows in memory overlap files: the next sync flushes them."""
        if self._path.exists():
            shutil.rmtree(self._path)

    def next_path(self) -> Path:
        self._path.mkdir(exist_ok=True)
        self._made += 1
        return self._path / f"{self._made:06d}.sst"

    def add(self, file: SortedFile) -> None:
        self.files[file] = None

    def forget(self, file: SortedFile) -> None:
        self.files.pop(file, None)

    def discard(self) -> None:
        for file in list(self.files):
            file.discard()
