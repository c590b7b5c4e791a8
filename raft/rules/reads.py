"""ReadIndex: thesis 6.4. A read is linearizable once (1) the leader has committed an entry of its
own term, (2) a majority confirmed after the read arrived that it still leads, (3) everything
committed at its arrival is applied.

Rounds number the heartbeats of a leader; a reply names the round that it answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from raft.api import ReadDone
from raft.rules.commit import majority_index


class Rounds:
    """Which heartbeat rounds a majority has answered. `current` is the last one sent."""

    def __init__(self) -> None:
        self.current = 0
        self.confirmed = 0
        self._answered: dict[int, int] = {}

    def restart(self) -> None:
        """A new leadership: rounds go on counting, but nothing sent before it may confirm it."""
        self._answered.clear()
        self.confirmed = self.current

    def next(self) -> int:
        self.current += 1
        return self.current

    def answered(self, sender: int, round_number: int, others: Collection[int]) -> bool:
        """Count a reply (`others`: the other voters). True if a newer round is confirmed by it."""
        self._answered[sender] = max(self._answered.get(sender, 0), min(round_number, self.current))
        reached = majority_index(self.current, (self._answered.get(node, 0) for node in others))
        if reached > self.confirmed:
            self.confirmed = reached
            return True
        return False


@dataclass(frozen=True, slots=True)
class PendingRead:
    """To serve when round `round_number` is confirmed and `index` applied, while `term` lasts."""

    term: int
    round_number: int
    index: int
    done: ReadDone


class ReadQueue:
    """Reads in order of arrival; rounds and indexes only grow, so the first one that must wait
    stops the rest.
    """

    def __init__(self) -> None:
        self._waiting: deque[PendingRead] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, read: PendingRead) -> None:
        self._waiting.append(read)

    def take_served(self, *, confirmed: int, applied_index: int) -> list[ReadDone]:
        served = []
        while self._waiting:
            read = self._waiting[0]
            if read.round_number > confirmed or read.index > applied_index:
                break
            served.append(self._waiting.popleft().done)
        return served

    def take_lost(self, *, leading_term: int | None) -> list[ReadDone]:
        """Reads that this node can no longer answer: it does not lead, or leads another term."""
        lost = [read.done for read in self._waiting if read.term != leading_term]
        self._waiting = deque(read for read in self._waiting if read.term == leading_term)
        return lost
