"""A database directory before RocksDB sees it: is it ours, which format, and does anybody else use
it?

Files of ours in it (RocksDB ignores what it does not know):

    KVORUM        text, written before the database is made, so that a crash never leaves a
                  database without it: "kvorum storage <format>\\n<family> <family> …\\n"; and again
                  before families of a storage shard are
    KVORUM.pid    held with flock by the process that uses the directory; its text is "<pid>\\n"

The lock is a kernel lock and not the mere file: it goes with the process, however that ends.

The directory is its owner's alone (0700), also one that was there before.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kv.base.errors import InvalidArgument
from kv.base.shards import parted
from kv.storage.engine import FAMILIES_SINCE

FORMAT: Final = 2  # 2: chunk intents may be packed (kv/mvcc/records.py), in tables and logs
_OLDER: Final = frozenset({1})  # that are read, too; who opens one makes it of this format
FORMAT_FILE: Final = "KVORUM"
PID_FILE: Final = "KVORUM.pid"
_MAGIC: Final = "kvorum storage "


class DirectoryLock:
    """The directory at `path`, made if missing, and the lock on it. Raises InvalidArgument."""

    def __init__(self, path: Path) -> None:
        try:
            private_directory(path)
            os.scandir(path).close()  # may it be listed? A locked directory is found here
            self._fd = os.open(path / PID_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidArgument(
                f"data directory {path} cannot be used: {error.strerror}; "
                "give a directory that this user may read and write",
                details={"path": str(path), "reason": error.strerror},
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = "this process" if owner == str(os.getpid()) else f"process {owner or 'unknown'}"
            raise InvalidArgument(
                f"data directory {path} is in use by {who}; stop that one first or give another "
                "directory",
                details={"path": str(path), "pid": int(owner) if owner.isdigit() else None},
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others in. The file stays: removing it would race with whoever opens it next."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def private_directory(path: Path) -> None:
    """Make it, and what is missing above, for its owner alone. Who may use it is changed if it is
    this user's: another one's (a volume that is mounted) is left as it is.
    """
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        with suppress(PermissionError):
            path.chmod(0o700)


def check_format(path: Path, families: Sequence[str]) -> list[str]:
    """Accept the directory of a database with these families, or claim an empty one; the families
    of storage shards that it has besides (kv.base.shards).

    One of an older format is accepted and marked as of this one, so that older programs refuse it
    from then on; as is one that lacks families of a later release (`engine.FAMILIES_SINCE`): the
    database makes them when it is opened. Raises InvalidArgument if it holds something else:
    another format, other families, foreign files.
    """
    try:
        text = (path / FORMAT_FILE).read_text("utf-8")
    except FileNotFoundError:
        _refuse_foreign(path)
        write_format(path, families)
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"{path / FORMAT_FILE} cannot be read ({error}), so the format of the data is unknown",
            details={"path": str(path)},
        ) from error
    first, _, rest = text.partition("\n")
    older = first in {f"{_MAGIC}{number}" for number in _OLDER}
    if first != f"{_MAGIC}{FORMAT}" and not older:
        raise InvalidArgument(
            f"data directory {path} has the format {first[:80]!r}; this program reads "
            f"'{_MAGIC}{FORMAT}' and older ones: use the version of Kvorum that wrote it",
            details={"path": str(path), "found": first[:80], "supported": FORMAT},
        )
    named = rest.split()
    extra = [name for name in named if parted(name)[1]]
    found = [name for name in named if name not in extra]
    grown = set(found) < set(families) and set(families) - set(found) <= FAMILIES_SINCE
    if not grown and sorted(found) != sorted(families):
        raise InvalidArgument(
            f"data directory {path} holds the families {rest.strip()!r}, not "
            f"{' '.join(families)!r}: it belongs to another part of a node",
            details={"path": str(path), "found": found, "expected": list(families)},
        )
    if grown or older:
        write_format(path, [*families, *extra])
    return extra


def write_format(path: Path, families: Sequence[str]) -> None:
    """Mark `path` as ours, durably and all at once."""
    new = path / (FORMAT_FILE + ".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(f"{_MAGIC}{FORMAT}\n{' '.join(families)}\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path / FORMAT_FILE)
    sync_directory(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        # Some file systems cannot sync a directory, and say so; they order names themselves.
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


def _refuse_foreign(path: Path) -> None:
    ours = {PID_FILE, FORMAT_FILE + ".new", "lost+found"}
    foreign = sorted(entry.name for entry in os.scandir(path) if entry.name not in ours)
    if foreign:
        raise InvalidArgument(
            f"data directory {path} is not empty and has no file {FORMAT_FILE}, so it is not "
            f"Kvorum's (it has {', '.join(foreign[:3])}, …); give an empty or a new directory",
            details={"path": str(path), "found": foreign[:10]},
        )
