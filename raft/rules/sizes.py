"""How many bytes of commands lie where in a log, to within a piece: for deciding what to keep.

Invariant: marks ascend, one per `LogSizes.PIECE` of the log, so that asking costs a search in a
short list, and an entry costs an addition and a comparison.
"""

from __future__ import annotations

from bisect import bisect_right


class LogSizes:
    """Bytes of commands up to any index, roughly: one mark per piece of the log, so that asking
    costs no walk and holding it next to nothing.
    """

    PIECE = 64 << 10

    def __init__(self, base_index: int) -> None:
        self._indexes, self._totals = [base_index], [0]
        self._total = 0
        self._next = self.PIECE

    def appended(self, index: int, size: int) -> None:
        self._total += size
        if self._total >= self._next:
            self._indexes.append(index)
            self._totals.append(self._total)
            self._next = self._total + self.PIECE

    def truncate(self, index: int, size: int | None) -> None:
        """Nothing is left from `index` on; `size` bytes went. Where nobody knows how many (None), a
        piece may be forgotten.
        """
        while len(self._indexes) > 1 and self._indexes[-1] >= index:
            self._indexes.pop()
            self._totals.pop()
        self._total = self._totals[-1] if size is None else self._total - size
        self._next = self._totals[-1] + self.PIECE

    def compact(self, index: int) -> None:
        """The log begins after `index`."""
        at = max(0, bisect_right(self._indexes, index) - 1)
        del self._indexes[:at], self._totals[:at]

    def after(self, index: int) -> int:
        at = bisect_right(self._indexes, index) - 1
        return self._total - self._totals[max(0, at)]

    def before_end(self, size: int) -> int:
        at = bisect_right(self._totals, self._total - size) - 1
        return self._indexes[at] if at >= 0 else 0
