"""Writes the logs: what comes together is one frame and one sync (L3), large and old logs are
rolled (L2), the oldest ones are dropped (L6) and their sleepers written anew (L7).

One *job* is under way at a time, in a thread: perhaps a new log, then one frame and its sync; or
the deletion of logs. What is appended meanwhile is the next frame. A record is durable when the
sync of its frame has ended; only then the trackers learn of it, so a log is never dropped for a
write that a power loss could take back.

Dropping: first a record says from which log on the logs are needed, and only when that is durable
the older files go. A write or sync that fails ends the store: nobody knows what is on the disk
(fsync forgets), so all who wait get UnknownOutcome and every later call Unavailable.

Left out here: compression, and writing on after a full disk; open the directory anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kv.base import limits
from kv.base.errors import KvorumError, TooLarge, Unavailable, UnknownOutcome
from kv.base.ports import Clock, Handle, Rng, Timers
from procedures.wal.disk import Disk, Offload
from procedures.wal.format import (
    HEAD_BYTES,
    Head,
    LogRecord,
    encode_frame,
    encode_head,
    encode_record,
)
from procedures.wal.image import Image
from procedures.wal.logs import Log, Logs
from procedures.wal.replay import Replayed, cells
from procedures.wal.tracker import is_row

SALT_BYTES: Final = 8


class Terms(NamedTuple):
    """When logs are rolled, and how many there may be before sleepers are written anew."""

    roll_bytes: int = limits.WAL_ROLL_BYTES
    roll_ms: int = limits.WAL_ROLL_MS
    logs_max: int = limits.WAL_LOGS_MAX


class Counts:
    """For tests, measurements and those who look: what was done since the start."""

    __slots__ = ("dropped", "forced", "records", "rolls", "syncs")

    def __init__(self) -> None:
        self.records = self.syncs = self.rolls = self.dropped = self.forced = 0


class _Waiting(NamedTuple):
    number: int
    data: bytes
    written: Sequence[int]
    deleted: Sequence[int]


class Journal:
    """The logs of one directory, open for writing."""

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        clock: Clock,
        timers: Timers,
        rng: Rng,
        found: Replayed,
        terms: Terms,
        durable_to: Callable[[int], None],
    ) -> None:
        self.logs = Logs(found.logs)
        self.counts = Counts()
        self._disk = disk
        self._offload = offload
        self._clock = clock
        self._timers = timers
        self._rng = rng
        self._terms = terms
        self._image: Final[Image] = found.image
        self._salt = found.salt
        self._oldest = found.oldest
        self._durable_to = durable_to
        self.next = found.next
        self.durable = found.next - 1
        self.free = disk.free()
        self.failed: BaseException | None = None
        self._queue: deque[_Waiting] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._busy = False
        self._closing = False
        self._roll_now = not found.logs
        self._timer: Handle | None = None
        self._dropping: int | None = None  # the record that says so, until the files are gone
        self._forced = 0  # the last record that wrote sleepers anew
        self._set_timer()

    # ------------------------------------------------------------------------------ writing
    def check(self) -> None:
        """Raises Unavailable if nothing can be written any more."""
        if self.failed is not None:
            raise Unavailable(
                f"the log of procedures could not be written ({self.failed}): what is on the disk "
                "is not known; open the directory again"
            )
        if self._closing:
            raise Unavailable("the store of procedures is closed; open it again")

    def append(self, record: LogRecord) -> int:
        """Write a record soon; its number, which becomes durable. Raises TooLarge, Unavailable."""
        self.check()
        data = encode_record(record)
        if len(data) > limits.WAL_RECORD_BYTES_MAX:
            raise TooLarge(
                f"{len(data)} bytes in one change, the limit is {limits.WAL_RECORD_BYTES_MAX}; "
                "write less in one step, or start fewer children",
                details={
                    "what": "bytes of a change",
                    "limit": limits.WAL_RECORD_BYTES_MAX,
                    "actual": len(data),
                },
            )
        number = self.next
        self.next += 1
        self.counts.records += 1
        self._queue.append(_Waiting(number, data, *cells(record)))
        self._soon()
        return number

    async def wait(self, number: int) -> None:
        """Until this record and all before it are durable. Raises UnknownOutcome."""
        if number <= self.durable:
            return
        if self.failed is not None:
            raise self._unknown()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((number, future))
        await future

    async def close(self) -> None:
        """Finish what was appended, and say in the log that it was closed."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._closing and self.failed is None:
            self._closing = True
            self._soon()
            self._closed = asyncio.get_running_loop().create_future()
            await self._closed

    def abandon(self, error: BaseException) -> None:
        """Write nothing more: all who wait get an unknown outcome."""
        if self._timer is not None:
            self._timer.cancel()
        if self.failed is None:
            self.failed = error
        waiters, self._waiters = self._waiters, deque()
        for _, future in waiters:
            if not future.done():
                future.set_exception(self._unknown())
        self._queue.clear()
        if self._closing and not self._closed.done():
            self._closed.set_result(None)

    # ------------------------------------------------------------------------------ jobs
    def _soon(self) -> None:
        if not self._busy:
            self._busy = True
            self._timers.call_soon(self._next_job)

    def _next_job(self) -> None:
        """Begin what is to be done next, if anything is."""
        if self.failed is not None:
            return
        if self._dropping is not None and self._dropping <= self.durable:
            self._drop()
        elif self._queue:
            self._write()
        elif self._closing and not self._closed.done():
            self._end_mark()
        else:
            self._busy = False

    def _write(self) -> None:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and size < limits.WAL_FRAME_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1].data)
        new = self._new_log() if self._roll_due() else None
        number = self.logs.newest.number if new is None else new.number
        data = encode_frame(self._salt, batch[0].number, [one.data for one in batch])
        head = None if new is None else self._head(new, batch[0].number)

        def work() -> int:
            if head is not None:
                self._disk.create(number, head)
            self._disk.append(number, data)
            return self._disk.free()

        def done(error: BaseException | None, free: int) -> None:
            if error is not None:
                self.abandon(error)
                return
            self.free = free
            self.counts.syncs += 1
            if new is not None:
                self.logs.rolled(new)
                self.counts.rolls += 1
                self._roll_now = False
                self._set_timer()
            written = [cell for one in batch for cell in one.written]
            deleted = [cell for one in batch for cell in one.deleted]
            self.logs.wrote(len(data), written, deleted)
            self._is_durable(batch[-1].number)
            self._care()
            self._next_job()

        self._offload.run(work, done)

    def _is_durable(self, number: int) -> None:
        self.durable = number
        while self._waiters and self._waiters[0][0] <= number:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
        self._durable_to(number)

    def _end_mark(self) -> None:
        if not len(self.logs):
            self._closed.set_result(None)
            return
        number, data = self.logs.newest.number, encode_frame(self._salt, self.next, [])

        def work() -> int:
            self._disk.append(number, data)
            return 0

        def done(error: BaseException | None, _: int) -> None:
            if error is not None:
                self.abandon(error)
            elif not self._closed.done():
                self._closed.set_result(None)

        self._offload.run(work, done)

    # ------------------------------------------------------------------------------ rolling
    def _roll_due(self) -> bool:
        if self._roll_now or not len(self.logs):
            return True
        return self.logs.newest.size >= self._terms.roll_bytes

    def _new_log(self) -> Log:
        number = self.logs.newest.number + 1 if len(self.logs) else self._oldest
        self._salt = self._rng.token(SALT_BYTES)
        return Log(number, HEAD_BYTES, self._clock.now_ms())

    def _head(self, log: Log, first: int) -> bytes:
        image = self._image
        head = Head(
            log.number,
            first,
            image.next_id,
            image.rows.next_slot,
            self._oldest,
            log.created_ms,
            self._salt,
        )
        return encode_head(head)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later(self._terms.roll_ms / 1000, self._old)

    def _old(self) -> None:
        """The newest log is old: the next frame goes to a new one, and sleepers are looked at."""
        if self.failed is not None or self._closing:
            return
        if len(self.logs) and self.logs.newest.frames:
            self._roll_now = True
        self._set_timer()

    # ------------------------------------------------------------------------------ dropping
    def _care(self) -> None:
        """Something became durable: drop logs, or see to it that they can be dropped."""
        if self._closing:
            return
        if self._dropping is None and self.logs.droppable():
            self._gone: list[int] = []
            while self.logs.droppable():
                self._gone.append(self.logs.drop().number)
            self._oldest = self.logs.oldest.number
            self._dropping = self._append_own(LogRecord(oldest=self._oldest))
        elif self._forced <= self.durable and self.logs.too_many(
            self._terms.logs_max, self._terms.roll_bytes, self._image.size
        ):
            self._force()

    def _force(self) -> None:
        """Write what holds the oldest log once more, as it is: some of it at a time."""
        puts, rows, size = [], [], 0
        for cell in self.logs.laggards(limits.WAL_FORCED_CELLS):
            if is_row(cell):
                row = self._image.rows.again(cell >> 1)
                if row is not None:
                    rows.append(row)
                    size += len(row.key) + len(row.value or b"")
            else:
                put = self._image.again(cell >> 1)
                if put is not None:
                    puts.append(put)
                    size += len(put.data)
            if size >= limits.WAL_FRAME_BYTES:
                break
        if puts or rows:  # else their deletion is on its way
            self._forced = self._append_own(LogRecord(tuple(puts), tuple(rows)))
            self.counts.forced += len(puts) + len(rows)

    def _append_own(self, record: LogRecord) -> int:
        try:
            return self.append(record)
        except KvorumError as error:
            raise AssertionError(f"the journal refused its own record: {error}") from error

    def _drop(self) -> None:
        gone = self._gone

        def work() -> int:
            for number in gone:
                self._disk.remove(number)
            return self._disk.free()

        def done(error: BaseException | None, free: int) -> None:
            if error is not None:
                self.abandon(error)
                return
            self.free = free
            self.counts.dropped += len(gone)
            self._dropping = None
            self._care()
            self._next_job()

        self._offload.run(work, done)

    def _unknown(self) -> KvorumError:
        return UnknownOutcome(
            f"the log of procedures could not be written ({self.failed}): the change may or may "
            "not be there when the directory is opened again"
        )
