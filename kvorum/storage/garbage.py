"""Whether a partition's old versions are worth a walk. Pure.

Every old version was superseded by a commit, and the partition counts its old versions. So what the
count was when its highest commit timestamp was T, is garbage once the safepoint has reached T, less
what was removed since. A walk looks at all old versions; it is worth it when at least a share of
them goes, or when some garbage has waited long. A partition without garbage is not touched: an idle
one stays asleep.

The figure is from below: what was counted between two looks belongs to the later one. It begins
anew with every leadership, and takes all that it finds for new.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 4  # a walk pays when one of so many old versions goes …
ROUNDS_MAX: Final = 20  # … or when less waited for so many looks
ROWS_PER_GARBAGE: Final = 8  # … and at most so many rows are there for each
_LOOKS_MAX: Final = 64  # remembered; then every other one is forgotten


class Garbage:
    """Of one partition, while this node leads it."""

    __slots__ = ("_due", "_looks", "_old", "_removed", "_waited")

    def __init__(self) -> None:
        self._looks: list[tuple[int, int]] = []  # (highest commit, old versions ever), rising
        self._removed = 0  # old versions, since the first look
        self._due = 0  # of those ever, so many are below the safepoint
        self._old = 0  # there now
        self._waited = 0

    def look(self, old_versions: int, top_ts: int, safepoint: int) -> int:
        """How many old versions are certainly garbage at `safepoint`; `top_ts`: the highest commit
        timestamp so far.
        """
        self._old = old_versions
        ever = old_versions + self._removed
        if not self._looks or self._looks[-1][1] != ever:
            if len(self._looks) >= _LOOKS_MAX:
                self._looks = self._looks[1::2]  # the later of two: a version is never due early
            self._looks.append((top_ts, ever))
        while len(self._looks) > 1 and self._looks[1][0] <= safepoint:
            del self._looks[0]
        if self._looks[0][0] <= safepoint:
            self._due = max(self._due, self._looks[0][1])
        return max(0, min(old_versions, self._due - self._removed))

    def worth_a_walk(self, garbage: int, rows: int = 0) -> bool:
        """Asked once per look. `rows`: that the partition has; where nearly each has one version,
        a walk waits: what it gives back is little beside what is there.
        """
        if not garbage:
            return False
        self._waited += 1
        if self._waited >= ROUNDS_MAX:
            return True
        return garbage * SHARE >= self._old and garbage * ROWS_PER_GARBAGE >= rows

    def removed(self, rows: int) -> None:
        """By a step of a walk."""
        self._removed += rows

    def walked(self) -> None:
        """To the end."""
        self._due = min(self._due, self._removed)
        self._waited = 0
