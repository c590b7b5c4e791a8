"""Promises and leases: thesis 6.4.1, with check-quorum's other half (a vote is refused while a
leader is heard).

Invariants
  * a node that heard a leader, or started, less than `election_min_s` ago helps nobody to an
    election, except by an ordered transfer: it may have promised before a restart, so a restart
    counts as hearing;
  * a lease is counted from the moment its heartbeat was *sent* and is shorter than the promise less
    clock drift;
  * once a transfer was ordered, the term gets no lease any more: the order may arrive at any later
    time.
"""

from __future__ import annotations


class Promise:
    """The follower's side: since when a leader, or our own start, binds us."""

    def __init__(self, *, now_s: float, election_min_s: float) -> None:
        self._heard_s = now_s
        self._election_min_s = election_min_s

    def heard_leader(self, now_s: float) -> None:
        self._heard_s = now_s

    def binds(self, now_s: float) -> bool:
        return now_s < self._heard_s + self._election_min_s


class Lease:
    """The leader's side, for one term. Rounds of heartbeats are numbered; `sent` says when each
    left.
    """

    ROUNDS_KEPT = 64

    def __init__(self, *, lease_s: float) -> None:
        self._lease_s = lease_s
        self._sent_s: dict[int, float] = {}
        self._until_s = float("-inf")
        self._allowed = True

    def restart(self) -> None:
        """A new term of leadership begins: what was sent before counts no more."""
        self._sent_s.clear()
        self._until_s = float("-inf")
        self._allowed = True

    def forbid(self) -> None:
        """A transfer was ordered in this term."""
        self._until_s = float("-inf")
        self._allowed = False

    def sent(self, round_number: int, now_s: float) -> None:
        self._sent_s[round_number] = now_s
        if len(self._sent_s) > self.ROUNDS_KEPT:
            del self._sent_s[min(self._sent_s)]

    def confirmed(self, round_number: int) -> None:
        """A majority answered this round. Unknown (too old) rounds extend nothing."""
        if self._allowed and round_number in self._sent_s:
            self._until_s = max(self._until_s, self._sent_s[round_number] + self._lease_s)

    def holds(self, now_s: float) -> bool:
        return now_s < self._until_s
