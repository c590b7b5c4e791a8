"""Which followers keep up: rounds of catching up of Ongaro's thesis, 4.2.1, as a sliding window.

A leader marks the end of its log now and then. A follower is *in step* if it answered lately and
holds everything that existed one window ago: a slow disk, a long catch-up and a dead node all look
the same, and none of them looks like a follower that is one entry behind under load.

Invariant: marks are in order of time and index; the first one is the newest that is at least one
window old, if there is any.
"""

from __future__ import annotations

from collections import deque

MARKS_PER_WINDOW = 8


class Progress:
    """Marks of one leadership."""

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._marks: deque[tuple[float, int]] = deque()
        self.next_mark_s = float("-inf")
        """Callers on the hot path look here before they call `mark`."""

    def restart(self, now_s: float, last_index: int) -> None:
        self._marks.clear()
        self.mark(now_s, last_index)

    def mark(self, now_s: float, last_index: int) -> None:
        marks = self._marks
        marks.append((now_s, last_index))
        while len(marks) > 1 and marks[1][0] <= now_s - self._window_s:
            marks.popleft()
        self.next_mark_s = now_s + self._window_s / MARKS_PER_WINDOW

    def heard(self, heard_s: float, now_s: float) -> bool:
        """Did a follower that was heard at `heard_s` answer within the window?"""
        return now_s - heard_s < self._window_s

    def in_step(self, match: int, heard_s: float, now_s: float) -> bool:
        """Before a leadership is a window old, who answers has the benefit of the doubt."""
        began_s, index = self._marks[0]
        return self.heard(heard_s, now_s) and (match >= index or now_s - began_s < self._window_s)

    def caught_up(self, match: int, heard_s: float, now_s: float) -> bool:
        """Stricter: it holds the log as it was at the first mark, however young that is."""
        return self.heard(heard_s, now_s) and match >= self._marks[0][1]
