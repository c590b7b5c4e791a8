"""The logs there are, and when the oldest one is not needed any more. Pure.

A log is needed while it holds the newest record of a cell that still lives. Logs go in the order
of their age, and only the oldest: so what a log says of a deleted cell is needed only while an
older log may bring the cell back, and never when it is the oldest itself. `holding` is what the
oldest log is still needed for: its own live cells without those that later logs wrote or deleted;
every write that has become durable takes its cells out. The newest log is never dropped.

How many logs may there be before their sleepers are written anew (L7)? `logs_max`, and as many as
twice the live bytes fill: else a store whose procedures fill the permitted logs would copy them
for ever. With that room a pass over all logs copies each live byte once and frees as many, so that
forced updates at most double what is written.

Source: HBase WALProcedureStore (holdingCleanupTracker, tryCleanupLogsOnLoad).
Left out here: dropping a log from the middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from procedures.wal.tracker import Bitmap, Tracker


@dataclass(slots=True)
class Log:
    """One log file: its number, the bytes in it that are durable, and what it wrote."""

    number: int
    size: int
    created_ms: int
    frames: int = 0
    tracker: Tracker = field(default_factory=Tracker)


class Logs:
    """All logs, the oldest first; the last one is written."""

    def __init__(self, found: Iterable[Log] = ()) -> None:
        self._logs: deque[Log] = deque(found)
        self.holding = Bitmap()
        self._hold()

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterable[Log]:
        return iter(self._logs)

    @property
    def newest(self) -> Log:
        return self._logs[-1]

    @property
    def oldest(self) -> Log:
        return self._logs[0]

    def size(self) -> int:
        return sum(log.size for log in self._logs)

    def rolled(self, log: Log) -> None:
        """A new log is there, empty and durable."""
        assert not self._logs or log.number == self.newest.number + 1
        self._logs.append(log)
        if len(self._logs) == 2:
            self._hold()  # the first one is a log that may go, from now on

    def wrote(self, size: int, written: Sequence[int], deleted: Sequence[int]) -> None:
        """A frame of `size` bytes in the newest log is durable."""
        newest = self.newest
        newest.size += size
        newest.frames += 1
        newest.tracker.add(written, deleted)
        if len(self._logs) > 1:
            for cells in (written, deleted):
                for cell in cells:
                    self.holding.discard(cell)

    def droppable(self) -> bool:
        return len(self._logs) > 1 and not self.holding

    def drop(self) -> Log:
        """The oldest log is not needed any more, and gone."""
        assert self.droppable()
        gone = self._logs.popleft()
        self._hold()
        return gone

    def too_many(self, logs_max: int, log_bytes: int, live_bytes: int) -> bool:
        return len(self._logs) > logs_max + 2 * live_bytes // log_bytes

    def laggards(self, limit: int) -> list[int]:
        """Cells that the oldest log is still needed for, in rising order."""
        return list(islice(self.holding, limit))

    def _hold(self) -> None:
        self.holding = Bitmap()
        if len(self._logs) < 2:
            return
        self.holding = self._logs[0].tracker.live()
        for later in islice(self._logs, 1, None):
            self.holding.subtract(later.tracker.modified)
            self.holding.subtract(later.tracker.deleted)
