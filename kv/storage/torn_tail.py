"""What a power loss leaves at the end of a write-ahead log, distinguished from damage.

A file system may have made the log longer before the data arrived: the file then ends in zeros that
nobody wrote, and they begin in the middle of a record. RocksDB sees a checksum that is wrong. It
can either refuse to open (tolerate_corrupted_tail_records, what we use) or drop everything from the
first wrong record on, wherever it is (point_in_time), which loses synced writes to a flipped bit.

So after a refusal the zeros at the end are cut off: a torn record is then one that the file is too
short for, and that is accepted. If something else was wrong too, opening fails again and the
zeros are put back: nothing but zeros was ever removed. A hole in front of later data still refuses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kv.base.limits import MiB

_STEP_BYTES: Final = 1 * MiB


@dataclass(frozen=True, slots=True)
class TornTail:
    """A log whose zeros at the end were cut off."""

    path: Path
    bytes_before: int
    bytes_now: int

    def restore(self) -> None:
        """Put the zeros back: the file is again what it was."""
        os.truncate(self.path, self.bytes_before)


def cut_torn_tail(directory: Path) -> TornTail | None:
    """Cut the zeros off the end of the newest log in `directory`; None if there are none."""
    logs = [path for path in directory.glob("*.log") if path.stem.isdigit()]
    if not logs:
        return None
    newest = max(logs, key=lambda path: int(path.stem))
    before = newest.stat().st_size
    now = _end_of_data(newest, before)
    if now == before:
        return None
    os.truncate(newest, now)
    return TornTail(newest, before, now)


def _end_of_data(path: Path, size: int) -> int:
    """The offset after the last byte that is not zero."""
    with path.open("rb") as file:
        end = size
        while end:
            start = max(0, end - _STEP_BYTES)
            file.seek(start)
            data = file.read(end - start).rstrip(b"\x00")
            if data:
                return start + len(data)
            end = start
    return 0
