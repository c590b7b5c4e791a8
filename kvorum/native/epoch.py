"""That this cluster was restored from a backup, for those who come with versions of before.

    CLUSTER   esc("restored")   sealed [1, at, until]

Versions up to `until` are not those of the cluster that the backup was taken of, nor of what was
here before: a watch that goes on from one of them would miss changes without a word, so it is
refused with EPOCH_CHANGED.
"""

from __future__ import annotations

from typing import Final, Protocol

from kv.base import system
from kv.base.errors import Refused
from kv.base.keys import escape, table_prefix
from sqlproxy.rows.records import FORMAT, opened, sealed

EPOCH_CHANGED: Final = "EPOCH_CHANGED"


class Reader(Protocol):
    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...


def restored_key() -> bytes:
    return table_prefix(system.CLUSTER) + escape(b"restored")


def restored_row(at: int, until: int) -> bytes:
    """The stored value."""
    return sealed(restored_key(), [FORMAT, at, until])


async def restored(t: Reader) -> tuple[int, int]:
    """(at, until); (0, 0): it never was. Raises Corruption."""
    value, _ = await t.get(restored_key())
    if value is None:
        return 0, 0
    _, at, until = opened(restored_key(), value)
    return at, until


async def check_version(t: Reader, version: int) -> None:
    """That changes after this version can be delivered without a gap. Raises Refused
    (EPOCH_CHANGED).
    """
    at, until = await restored(t)
    if version <= until:
        raise Refused(
            f"version {version} is of before this cluster was restored from a backup (of version "
            f"{at}; restored up to {until}): what changed between is not known here. Begin anew: "
            "watch from 0, which sends all records first",
            code=EPOCH_CHANGED,
            details={"from_version": str(version), "at": str(at), "until": str(until)},
        )
