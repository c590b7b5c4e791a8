"""Files that RocksDB took from one level to another as they are, without reading or writing a row.

Its counters leave them out, its own log (LOG) has a line for each time, complete when the work is
done:

    … EVENT_LOG_v1 {"time_micros": 1, "job": 6, "event": "trivial_move", "destination_level": 6,
    "files": 4, "total_files_size": 12781803}

What was written to it since the last look is read at the next one. A full log gets another name,
and is read to its end before the new one: only of two that became full between two looks the
second is missed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO, Final

from kv.base.limits import MiB

_MOVE: Final = re.compile(
    rb'"event": "trivial_move".*?"files": (\d+), "total_files_size": (\d+)\}\n'
)
_READ_BYTES: Final = 1 * MiB


class MovedFiles:
    """Of one open database, since it was opened: `files` and their `bytes`."""

    def __init__(self, database: Path) -> None:
        self.files = self.bytes = 0
        self._path = database / "LOG"
        self._file: BinaryIO | None = self._path.open("rb")

    def look(self) -> None:
        """Read on. Raises OSError."""
        while self._file is not None:
            self._read_on(self._file)
            now = self._path.stat()
            if os.path.samestat(now, os.fstat(self._file.fileno())):
                return
            self._read_on(self._file)  # written between the end that was met and its new name
            self._file.close()
            self._file = self._path.open("rb")

    def _read_on(self, file: BinaryIO) -> None:
        while data := file.read(_READ_BYTES):
            whole = data.rfind(b"\n") + 1
            if not whole:
                return
            file.seek(whole - len(data), os.SEEK_CUR)  # a line that is not all there yet
            for files, size in _MOVE.findall(data, 0, whole):
                self.files += int(files)
                self.bytes += int(size)
            if len(data) < _READ_BYTES:
                return

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
