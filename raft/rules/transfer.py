"""Handing over the leadership: thesis 3.10, with a freeze of proposals.

    start ─▶ target has the whole log ─▶ order (TimeoutNow), repeated with every heartbeat
          ─▶ another leader (done)
          ─▶ the time is up (given up)

Invariants
  * from `start` on nothing is appended, so the target's log, once complete, stays so, and wins;
  * a refused proposal was certainly not executed: it was never appended;
  * an order may arrive at any later time of its term, and the receiver needs nobody's promise. So a
    leader that has ordered has no lease in that term any more, and one that gave up after an order
    begins a new term (an election that it orders itself) to be able to have one again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Step(Enum):
    """What the leader is to do about its transfer now."""

    WAIT = auto()
    ORDER = auto()
    GIVE_UP = auto()
    RENEW = auto()
    """Give up, and begin a new term: the order may still be on its way."""


@dataclass(slots=True)
class Transfer:
    """A transfer that is under way."""

    target: int
    until_s: float
    resend_s: float
    _ordered_s: float | None = None

    def step(self, *, now_s: float, match: int, last_index: int) -> Step:
        """`match`: what the target has of our log, which ends at `last_index`."""
        ordered_s = self._ordered_s
        if now_s >= self.until_s:
            return Step.GIVE_UP if ordered_s is None else Step.RENEW
        if match < last_index or (ordered_s is not None and now_s < ordered_s + self.resend_s):
            return Step.WAIT
        self._ordered_s = now_s
        return Step.ORDER
