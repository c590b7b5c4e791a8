"""Counting votes: Raft section 5.2. Each voter of the configuration counts once, strangers never
(fix P9).
"""

from __future__ import annotations

from collections.abc import Collection


class VoteBox:
    """Votes of one election. The candidate's own vote is in it from the start."""

    def __init__(self, me: int) -> None:
        self._me = me
        self._given = {me}

    def restart(self) -> None:
        """A new term: older votes mean nothing."""
        self._given = {self._me}

    def add(self, sender: int, voters: Collection[int]) -> bool:
        """True if this vote counts: the sender votes in this configuration and has not been
        counted.
        """
        if sender not in voters or sender in self._given:
            return False
        self._given.add(sender)
        return True

    def has_all(self, voters: Collection[int]) -> bool:
        return self._given.issuperset(voters)

    def has_majority(self, voters: Collection[int]) -> bool:
        return 2 * len(self._given.intersection(voters)) > len(voters)
