"""HBase's read point: everything at or below it is applied.

Entries begin in log order and may be reported complete in any order; the point advances over the
longest complete prefix. With one entry in flight per partition the prefix is trivial, but nothing
here relies on that.
"""

from __future__ import annotations

from collections import deque


class ReadPoint:
    """`top` is the highest commit timestamp of the contiguous applied prefix."""

    __slots__ = ("_flying", "top")

    def __init__(self, top: int = 0) -> None:
        self.top = top
        self._flying: deque[list[int]] = deque()  # [number, top, complete]

    def begin(self, number: int, top: int) -> None:
        """Entry `number` (rising) with the highest timestamp `top` is on its way."""
        assert not self._flying or self._flying[-1][0] < number, "entries begin in order"
        self._flying.append([number, top, 0])

    def complete(self, number: int) -> int:
        """Entry `number` is applied; returns the read point."""
        flying = self._flying
        for item in flying:
            if item[0] == number:
                item[2] = 1
                break
        else:
            raise AssertionError(f"entry {number} completed but never began")
        while flying and flying[0][2]:
            top = flying.popleft()[1]
            if top > self.top:
                self.top = top
        return self.top

    def forget(self) -> None:
        """What was on its way is lost (the leader changed): it never becomes visible here by its
        number.
        """
        self._flying.clear()
