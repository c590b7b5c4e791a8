"""One look at the changes of one range: steps in any order of versions come in, the lowest whole
versions go out. Pure, and bounded whatever the range holds.

What does not fit is dropped from the top: `upto` sinks to the highest version that is kept whole,
and the next look begins there. A single version that does not fit is `large`: it must be read by
itself, in parts, and `upto` lies just below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kv.feed.changes import Row, size_of


class Collector:
    """Versions of (above, upto]."""

    def __init__(self, upto: int, *, rows_max: int, bytes_max: int, large: int = 0) -> None:
        self.upto = upto
        self.large = large  # the lowest version that is too large, 0 = none; then it is upto + 1
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._rows: list[Row] = []
        self._bytes = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Rows of one step. Those above `upto` are dropped."""
        for row in rows:
            if row[2] <= self.upto:
                self._rows.append(row)
                self._bytes += size_of(row)
        if len(self._rows) > 1 and self._over(len(self._rows), self._bytes):
            self._cut()

    def fits(self, rows: Sequence[Row]) -> bool:
        """Whether these could be added with nothing dropped."""
        size = self._bytes + sum(map(size_of, rows))
        return not self._rows or not self._over(len(self._rows) + len(rows), size)

    def drain(self) -> list[Row]:
        """`rows`, which are not held any more."""
        rows = self.rows()
        self._rows, self._bytes = [], 0
        return rows

    def rows(self) -> list[Row]:
        """All of (above, upto], by version, within it by key."""
        self._rows.sort(key=_by_version)
        return self._rows

    def _over(self, rows: int, size: int) -> bool:
        return rows > self._rows_max or size > self._bytes_max

    def _cut(self) -> None:
        """Keep the lowest versions, as many as fill half of the room, but at least one."""
        rows = self.rows()
        lowest = rows[0][2]
        kept = size = whole = 0
        for i, row in enumerate(rows):
            if row[2] != rows[i - 1][2] and i:
                whole, kept = i, size
                if self._over(2 * i, 2 * size):
                    break
            size += size_of(row)
        if not whole or (rows[whole - 1][2] == lowest and whole > 1 and self._over(whole, kept)):
            # All are of one version, or the lowest alone is too much.
            self.large, self.upto, self._rows, self._bytes = lowest, lowest - 1, [], 0
            return
        self.upto, self.large = rows[whole - 1][2], 0
        self._rows, self._bytes = rows[:whole], kept


def _by_version(row: Row) -> tuple[int, bytes]:
    return row[2], row[0]
