"""What a directory of logs holds, read without changing it: `kvorum proc dump DIR`.

May be used while a process has the directory. Logs that are being written or dropped at this moment
can then make the picture incomplete: the end of the newest is shown as torn, and a log that went
away while it was read makes it begin anew.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Final

from kv.base.errors import Corruption, InvalidArgument
from procedures.engine.plain_data import Plain
from procedures.engine.records import Record
from procedures.wal.disk import DirectoryDisk
from procedures.wal.replay import Replayed, replay

_ATTEMPTS: Final = 5


def dump(path: str | os.PathLike[str]) -> Plain:
    """Logs, what was found, and every procedure. Raises InvalidArgument, Corruption."""
    disk = DirectoryDisk(path, read_only=True)
    if not disk.list():
        raise InvalidArgument(f"{path} has no logs of procedures (files NNNNNNNNNNNNNNNN.wal)")
    found = _replay(disk)
    procedures: list[dict[str, object]] = []
    broken: list[dict[str, object]] = []
    for id in sorted(found.image.held):
        try:
            stored = found.image.stored(id)
        except Corruption as error:
            broken.append({"id": str(id), "reason": error.message})
            continue
        if stored is not None:
            procedures.append(_shown(stored.record, stored.version))
    return {
        "logs": [
            {
                "file": disk.where(log.number),
                "bytes": log.size,
                "frames": log.frames,
                "written": len(log.tracker.modified),
                "deleted": len(log.tracker.deleted),
            }
            for log in found.logs
        ],
        "report": asdict(found.report) | {"text": found.report.text()},
        "rows": len(found.image.rows),
        "next_id": found.image.next_id,
        "procedures": procedures,
        "broken": broken,
    }


def _replay(disk: DirectoryDisk) -> Replayed:
    for _ in range(_ATTEMPTS - 1):
        try:
            return replay(disk)
        except FileNotFoundError:
            continue  # it was dropped between the listing and the reading
    return replay(disk)


def _shown(record: Record, version: int) -> dict[str, object]:
    return {
        "id": str(record.id),
        "name": record.name,
        "state": record.state.name,
        "step": record.step,
        "owner": record.owner,
        "nonce": record.nonce,
        "parent": str(record.parent),
        "version": version,
        "executions": record.seq,
        "locks": [list(lock) for lock in record.locks],
        "due_ms": record.due_ms,
        "event": record.event,
        "error": None if record.error is None else record.error.to_plain(),
    }
