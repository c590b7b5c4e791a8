"""A database of this node that cannot be used any more: its directory is kept under another name,
and the node goes on with an empty one, if others have copies of what was in it.

That is seen when it is opened, or while the node runs, when a compaction meets damage: then it
takes no writes, and would not after a restart either, as soon as the same files are compacted
again. So it is marked, and the process starts anew in its own place (kvorum/programs/process.py).
"""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path
from typing import Final

from kv.base.errors import Corruption
from raft.errors import LogCorrupt

log = logging.getLogger(__name__)

MARK: Final = "KVORUM.damaged"
ASIDE_MAX: Final = 3  # directories that were put aside: with more the disk is to be looked at


def damage_of(error: BaseException) -> Corruption | LogCorrupt | None:
    """What was damaged, if that is why."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Corruption | LogCorrupt):
        cause = cause.__cause__
    return cause


def mark(error: BaseException, data: Path) -> bool:
    """If `error` comes from a damaged file of one of the databases in `data`: mark that. Whether a
    start makes it good.
    """
    cause = damage_of(error)
    if not isinstance(cause, Corruption) or not cause.details.get("file"):
        return False
    directory = Path(cause.details["file"]).parent
    if directory.parent != data or not directory.is_dir():
        return False
    try:
        (directory / MARK).write_text(f"{cause.message}\n", encoding="utf-8")
    except OSError as failed:
        log.error("%s could not be marked as damaged: %s", directory, failed)
        return False
    return sum(1 for _ in data.glob("*.damaged-*")) < ASIDE_MAX


def refuse_marked(directory: Path) -> None:
    """Raises Corruption."""
    found = directory / MARK
    if found.is_file():
        why = found.read_text(encoding="utf-8", errors="replace").strip()
        raise Corruption(f"{directory} is damaged: {why}", details={"path": str(directory)})


def put_aside(directory: Path) -> Path:
    """Rename it; its new name."""
    names = (directory.with_name(f"{directory.name}.damaged-{n}") for n in count(1))
    aside = next(name for name in names if not name.exists())
    directory.rename(aside)
    return aside
