"""64-bit timestamps: milliseconds since the epoch << 18 | logical counter (after TiDB's oracle).

0 means "none / latest". MAX is the version of a write intent (infinity) in comparisons only.

In a cluster with hybrid clocks (tso/hybrid.py) each node gives them out from its own clock. The
lowest SLOT_BITS of the counter are the node's id there, so that no two nodes give out the same; a
node's consecutive ones are STEP apart.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

LOGICAL_BITS: Final = 18
LOGICAL_MAX: Final = (1 << LOGICAL_BITS) - 1
MAX: Final = (1 << 64) - 1
SLOT_BITS: Final = 10
SLOT_MAX: Final = (1 << SLOT_BITS) - 1
STEP: Final = 1 << SLOT_BITS
_AGO: Final = re.compile(r"-\s*(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|min|h|d)", re.ASCII)
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def compose(physical_ms: int, logical: int = 0) -> int:
    """The timestamp of `physical_ms` (ms since the epoch) and `logical` (0 … 2^18 - 1)."""
    return physical_ms << LOGICAL_BITS | logical


def physical_ms(ts: int) -> int:
    """Milliseconds since the epoch."""
    return ts >> LOGICAL_BITS


def ago_ms(text: str) -> int | None:
    """How many ms ago a text like -10s says; None: it says something else."""
    found = _AGO.fullmatch(text.strip())
    return None if found is None else round(float(found[1]) * _MS[found[2]])


def of_time(text: str) -> int | None:
    """The timestamp of a time like 2026-01-31 12:00:00+00 (UTC unless it says so); None: it is no
    such text.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ms = round(moment.timestamp() * 1000)
    return compose(ms) if ms > 0 else None


def parse(text: str, what: str = "timestamp") -> int:
    """A version or timestamp as users write it: a decimal string. Raises ValueError with the
    reason.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) > MAX:
        raise ValueError(f"{what} must be a decimal number below 2^64, got {text[:40]!r}")
    return int(text)
