"""The directory of a standalone store: a port, and the real one.

    KVORUM, KVORUM.pid     whose directory it is, and which process has it (kv/storage/directory.py)
    NNNNNNNNNNNNNNNN.wal   a log; its number in decimal

Every method blocks and is called by one thread at a time. Names and bytes are durable when the
method that says so returns.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from kv.base.errors import InvalidArgument
from kv.storage.directory import DirectoryLock, check_format, sync_directory

FAMILIES: Final = ("procedures",)
_NAME: Final = re.compile(r"\d{16}\.wal\Z")


class Disk(Protocol):
    def where(self, number: int) -> str:
        """How a log is called in a message."""
        ...

    def list(self) -> list[int]:
        """Numbers of the logs there are, in rising order."""
        ...

    def read(self, number: int) -> bytes: ...

    def create(self, number: int, head: bytes) -> None:
        """A new log, durable with its name."""
        ...

    def append(self, number: int, data: bytes) -> None:
        """Write at the end and make it durable."""
        ...

    def cut(self, number: int, size: int) -> None:
        """Keep the first `size` bytes, durably."""
        ...

    def remove(self, number: int) -> None:
        """Delete a log, durably. It may be gone already."""
        ...

    def free(self) -> int:
        """Bytes that may still be written."""
        ...

    def close(self) -> None:
        """Let others have the directory."""
        ...


class Offload(Protocol):
    """Runs what blocks somewhere else, one after the other."""

    def run(
        self, work: Callable[[], int], done: Callable[[BaseException | None, int], None]
    ) -> None:
        """`done(error, result)` is called on the loop."""
        ...

    def close(self) -> None: ...


class DirectoryDisk:
    """The logs in a real directory, which is locked for this process unless it is only read."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._path = Path(path)
        self._lock: DirectoryLock | None = None
        self._file: tuple[int, int] | None = None  # number, descriptor
        if read_only:
            if not self._path.is_dir():
                raise InvalidArgument(f"{self._path} is not a directory")
            return
        self._lock = DirectoryLock(self._path)
        try:
            check_format(self._path, FAMILIES)
        except BaseException:
            self._lock.release()
            raise

    def where(self, number: int) -> str:
        return str(self._name(number))

    def list(self) -> list[int]:
        names = os.listdir(self._path)
        return sorted(int(name[:16]) for name in names if _NAME.match(name))

    def read(self, number: int) -> bytes:
        return self._name(number).read_bytes()

    def create(self, number: int, head: bytes) -> None:
        self._close_file()
        # a log of this number can only be one whose making was interrupted: nothing was in it
        fd = os.open(
            self._name(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        self._file = (number, fd)
        _write(fd, head)
        os.fsync(fd)
        sync_directory(self._path)

    def append(self, number: int, data: bytes) -> None:
        if self._file is None or self._file[0] != number:
            self._close_file()
            fd = os.open(self._name(number), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._file = (number, fd)
        _write(self._file[1], data)
        os.fdatasync(self._file[1])

    def cut(self, number: int, size: int) -> None:
        self._close_file()
        fd = os.open(self._name(number), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self, number: int) -> None:
        self._name(number).unlink(missing_ok=True)
        sync_directory(self._path)

    def free(self) -> int:
        stat = os.statvfs(self._path)
        return stat.f_bavail * stat.f_frsize

    def close(self) -> None:
        self._close_file()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _name(self, number: int) -> Path:
        return self._path / f"{number:016}.wal"

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file[1])
            self._file = None


class ThreadOffload:
    """One thread: writing and syncing a file releases the interpreter's lock."""

    def __init__(self, on_loop: Callable[..., object]) -> None:
        """`on_loop`: the loop's `call_soon_threadsafe`."""
        self._on_loop = on_loop
        self._pool = ThreadPoolExecutor(1, "kvorum-wal")

    def run(
        self, work: Callable[[], int], done: Callable[[BaseException | None, int], None]
    ) -> None:
        def over(future: Future[int]) -> None:
            error = future.exception()
            self._on_loop(done, error, 0 if error is not None else future.result())

        self._pool.submit(work).add_done_callback(over)
        # so that the thread has the interpreter and begins now, as kv.storage.log has it
        time.sleep(0)  # noqa: TID251 - does not sleep

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
