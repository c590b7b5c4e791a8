"""Reading all logs of a directory: strict, but for the one place where a crash may have torn it.

What must hold, else the start is refused with Corruption naming file and offset: logs are numbered
without a hole from the oldest that is needed to the newest; every head and frame is whole; records
are numbered without a hole over all of them.

The exception is the end of the newest log. A frame is written and synced before the next one is
begun, so a power loss can have torn one frame at most, which nobody heard of: it is cut off, and
reported. If a whole frame lies anywhere after a damaged one, then the damaged one had been synced:
that is damage, not a torn end. The same holds for a head: no frame is written before it is durable.

A log that was being dropped is known by the `oldest` of later records and heads, which is durable
before the file goes (docs/decisions/0416): such a file is ignored, whatever it holds, and deleted.
So what it says of deleted procedures can never bring them back (HBASE-21354).

Left out here: a damaged last frame whose log was not closed looks like a torn one. Nobody
can, without writing twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kv.base.errors import Corruption
from procedures.wal.disk import Disk
from procedures.wal.format import (
    HEAD_BYTES,
    Damage,
    Head,
    LogRecord,
    decode_frame,
    decode_head,
    find_frame,
)
from procedures.wal.image import Image
from procedures.wal.logs import Log
from procedures.wal.tracker import cell_of_procedure, cell_of_row

_NO_SALT: Final = b""


@dataclass(slots=True)
class Report:
    """What a start found. `torn`: why the end was cut; "" = it was whole.

    torn_records is how many the torn frame had, if that can be read: none of them was acknowledged.
    """

    logs: int = 0
    frames: int = 0
    records: int = 0
    procedures: int = 0
    broken: int = 0
    torn: str = ""
    torn_file: str = ""
    torn_offset: int = 0
    torn_bytes: int = 0
    torn_records: int | None = 0

    def text(self) -> str:
        text = (
            f"{self.procedures} procedures from {self.records} records in {self.logs} logs"
            f"{f', {self.broken} of them unreadable' if self.broken else ''}"
        )
        if self.torn:
            text += (
                f"; {self.torn_bytes} bytes at offset {self.torn_offset} of {self.torn_file} were "
                f"left out, which were never acknowledged: {self.torn}"
            )
        return text


@dataclass(slots=True)
class Replayed:
    """All that the logs say, and what is to be done before the newest may be written."""

    image: Image = field(default_factory=Image)
    logs: list[Log] = field(default_factory=list)
    salt: bytes = _NO_SALT  # of the newest log
    next: int = 1  # number of the next record
    oldest: int = 1
    cut: tuple[int, int] | None = None  # (log, bytes to keep)
    remove: list[int] = field(default_factory=list)  # logs that are needed no more
    report: Report = field(default_factory=Report)


class _Read(NamedTuple):
    """One log, whole up to its end or to where it was torn."""

    log: Log
    head: Head
    records: list[LogRecord]


def replay(disk: Disk) -> Replayed:
    """Read everything; changes nothing on the disk. Raises Corruption."""
    found = Replayed()
    numbers = disk.list()
    read: list[_Read] = []
    for number in reversed(numbers):  # the newest say from which one on the logs are needed
        if number < found.oldest:
            break
        one = _read(disk, number, number == numbers[-1], found)
        if one is not None:
            read.append(one)
            found.oldest = max(found.oldest, one.head.oldest, *(r.oldest for r in one.records))
    found.remove += [number for number in numbers if number < found.oldest]
    read = [one for one in reversed(read) if one.log.number >= found.oldest]
    _check(disk, read, found)
    for log, head, records in read:
        found.image.next_id = max(found.image.next_id, head.next_id)
        found.image.rows.next_slot = max(found.image.rows.next_slot, head.next_slot)
        for record in records:
            found.image.apply(record)
            log.tracker.add(*cells(record))
        found.logs.append(log)
        found.salt = head.salt
        found.next = head.first + len(records)
        found.report.records += len(records)
        found.report.frames += log.frames
    found.image.rows.prune(found.next)
    found.report.logs = len(found.logs)
    found.report.procedures = len(found.image.held)
    found.report.broken = found.image.broken_count()
    return found


def _read(disk: Disk, number: int, newest: bool, found: Replayed) -> _Read | None:
    """One log; None: its making was interrupted. Raises Corruption."""
    data = disk.read(number)
    head = decode_head(data)
    if isinstance(head, Head) and head.number != number:
        head = f"its head says that it is log {head.number}"
    if isinstance(head, str):
        if not newest or len(data) > HEAD_BYTES:
            raise _damaged(disk, number, 0, head)
        found.remove.append(number)  # no frame is written before the head is durable
        _tear(found, disk.where(number), 0, len(data), head, 0)
        return None
    log = Log(number, HEAD_BYTES, head.created_ms)
    records: list[LogRecord] = []
    at = HEAD_BYTES
    while at < len(data):
        try:
            frame = decode_frame(head.salt, data, at)
        except Damage as damage:
            whole = find_frame(head.salt, data, at + 1)
            if not newest or whole is not None:
                reason = damage.reason + (f"; a whole one follows at {whole}" if whole else "")
                raise _damaged(disk, number, at, reason) from damage
            found.cut = (number, at)
            _tear(found, disk.where(number), at, len(data) - at, damage.reason, damage.records)
            break
        expected = head.first + len(records)
        if frame.first != expected:
            reason = f"record {frame.first} follows, {expected} was expected"
            raise _damaged(disk, number, at, reason)
        records += frame.records
        log.frames += bool(frame.records)
        at = frame.end
    log.size = at
    return _Read(log, head, records)


def _check(disk: Disk, read: list[_Read], found: Replayed) -> None:
    """That no log and no record is missing. Raises Corruption."""
    number, first = found.oldest, read[0].head.first if read else 1
    for one in read:
        if one.log.number != number:
            break
        if one.head.first != first:
            reason = f"it begins with record {one.head.first}, {first} was expected"
            raise _damaged(disk, number, 0, reason)
        number, first = number + 1, first + len(one.records)
    else:
        if read or found.oldest == 1:
            return
    raise Corruption(
        f"{disk.where(number)} is missing: the procedures in it cannot be restored; bring the "
        "file back. Nothing was changed",
        details={"file": disk.where(number)},
    )


def cells(record: LogRecord) -> tuple[list[int], list[int]]:
    """The cells that a record writes, and those that it deletes."""
    written = [cell_of_procedure(put.id) for put in record.puts]
    deleted = [cell_of_procedure(id) for id in record.removed]
    for row in record.rows:
        (deleted if row.value is None else written).append(cell_of_row(row.slot))
    return written, deleted


def _tear(
    found: Replayed, file: str, offset: int, size: int, reason: str, records: int | None
) -> None:
    report = found.report
    report.torn, report.torn_file, report.torn_offset = reason, file, offset
    report.torn_bytes, report.torn_records = size, records


def _damaged(disk: Disk, number: int, offset: int, reason: str) -> Corruption:
    return Corruption(
        f"{disk.where(number)} is damaged at offset {offset}: {reason}. What was written there "
        "had been acknowledged; restore the file from a copy. Nothing was changed",
        details={"file": disk.where(number), "offset": offset},
    )
