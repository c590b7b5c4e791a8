"""Reads at a follower: thesis 6.4, "follower reads". The follower asks its leader for an index that
covers everything committed by now, waits until it has applied so far, and reads its own state.

    follower ── read_index (term, ask) ──▶ leader: lease, or a round of heartbeats
    follower ◀── read_at (ask, index) ──── leader

Invariants
  * reads that arrive while a question is on its way are not answered by it: it may have been
    handled before they came. They share the next one;
  * questions are numbered, from a random start: an answer to another life of this node, or a
    duplicate, answers nothing;
  * the leader answers like for a read of its own (`rules/reads`), so an answer is right whatever
    happened meanwhile; it needs no check of terms here.

Left out: reads at a timestamp. That an index is covered says nothing of writes that the leader has
accepted, but not proposed yet; whoever orders reads by timestamps asks the leader's state machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raft.api import ReadDone

ASK_MAX = 1 << 52


class FollowerReads:
    """One replica's reads. `ask(number)` sends the question to the leader of now; False if there is
    none.
    """

    def __init__(
        self, *, ask: Callable[[int], bool], first: int, resend_s: float, give_up_s: float
    ) -> None:
        self._ask, self._number = ask, first
        self._resend_s, self._give_up_s = resend_s, give_up_s
        self._waiting: list[ReadDone] = []
        self._asked: list[ReadDone] = []
        self._began_s = self._sent_s = 0.0
        self._covered: deque[tuple[int, float, ReadDone]] = deque()  # index, asked when, reader

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked) + len(self._covered)

    @property
    def idle(self) -> bool:
        """Nobody waits here."""
        return not (self._asked or self._covered)

    def add(self, done: ReadDone, now_s: float) -> None:
        """`done(index)` later, or `done(None)` at once if there is no leader to ask."""
        self._waiting.append(done)
        self._ask_next(now_s)

    def _ask_next(self, now_s: float) -> None:
        if self._waiting and not self._asked:  # a reader that was refused may have come again
            self._asked, self._waiting = self._waiting, []
            self._number += 1
            self._began_s = now_s
            self._send(now_s)

    def _send(self, now_s: float) -> None:
        self._sent_s = now_s
        if not self._ask(self._number):
            # No question is on its way that would bring the next one with it: whoever waits for
            # that would wait until somebody else reads here.
            refused, self._asked, self._waiting = [*self._asked, *self._waiting], [], []
            for done in refused:
                done(None)

    def _refuse_asked(self) -> None:
        refused, self._asked = self._asked, []
        for done in refused:
            done(None)

    def answered(self, number: int, index: int | None, now_s: float) -> None:
        """The leader's answer: serve at `index`, or None, it does not lead."""
        if number != self._number or not self._asked:
            return
        if index is None:
            self._refuse_asked()
        else:
            self._covered.extend((index, self._began_s, done) for done in self._asked)
            self._asked = []
        self._ask_next(now_s)

    def serve(self, applied_index: int) -> None:
        """Everything up to `applied_index` is applied."""
        while self._covered and self._covered[0][0] <= applied_index:
            self._covered.popleft()[2](applied_index)

    def tick(self, now_s: float) -> None:
        """Ask again, perhaps another leader; give up in the end."""
        while self._covered and now_s >= self._covered[0][1] + self._give_up_s:
            self._covered.popleft()[2](None)
        if self._asked and now_s >= self._began_s + self._give_up_s:
            self._refuse_asked()
            self._ask_next(now_s)
        elif self._asked and now_s >= self._sent_s + self._resend_s:
            self._send(now_s)

    def next_deadline_s(self) -> float | None:
        if self._asked:
            return min(self._sent_s + self._resend_s, self._began_s + self._give_up_s)
        return self._covered[0][1] + self._give_up_s if self._covered else None

    def close(self) -> None:
        """Nothing is served here any more."""
        lost = [*self._asked, *self._waiting, *(done for _, _, done in self._covered)]
        self._asked, self._waiting = [], []
        self._covered.clear()
        for done in lost:
            done(None)
