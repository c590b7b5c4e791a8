"""Lines of the log that a stranger can cause: a few per address and time, so that a flood of calls
fills no disk and hides nothing else.
"""

from __future__ import annotations

from typing import Final

LINES: Final = 10
EVERY_S: Final = 60.0
ADDRESSES_MAX: Final = 100
_OTHERS: Final = "\0others"


class LogBound:
    """LINES of an address in EVERY_S; what was left out is counted. Beyond ADDRESSES_MAX addresses
    the others share theirs.
    """

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, int, int]] = {}
        """By address, the oldest first: since when, lines since then, those left out."""

    def tail(self, address: str, now_s: float) -> str | None:
        """None: say nothing. Else the end of the line: how many of that address were left out."""
        told = self._told
        if address not in told and len(told) >= ADDRESSES_MAX:
            oldest = next(iter(told))
            if now_s - told[oldest][0] >= EVERY_S:
                del told[oldest]
            else:
                address = _OTHERS
        at_s, lines, left = told.get(address, (now_s, 0, 0))
        if now_s - at_s >= EVERY_S:
            del told[address]  # it is the newest now
            told[address] = now_s, 1, 0
            return f" ({left} more were not logged)" if left else ""
        if lines >= LINES:
            told[address] = at_s, lines, left + 1
            return None
        told[address] = at_s, lines + 1, left
        return ""
