"""What reads and status questions answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Row: TypeAlias = tuple[
    bytes, bytes, int
]  # key, value, version (0: a write of the same transaction)


@dataclass(slots=True)
class ScanPage:
    """Rows in the direction of the scan, all at timestamp `at`.

    `resume`: None = the range is exhausted, else the `start` of the next page (in reverse: its
    `end`, exclusive). With `at` it is a complete cursor.
    """

    items: list[Row]
    resume: bytes | None
    at: int


@dataclass(slots=True)
class Tally:
    """What reads looked at, for who asks: they add to it."""

    versions: int = 0  # records of rows: newest and older ones, those of deleted rows too


@dataclass(frozen=True, slots=True)
class TxnStatus:
    status: Literal["pending", "committed", "aborted", "unknown"]
    commit_ts: int = 0  # 0 unless committed
