"""Pre-vote: thesis 9.6. A node asks whether it could win before it raises its term and so deposes a
healthy leader.

A round is numbered, because terms do not move during it and an answer to an earlier round must not
count.

Where a group is founded by all of its first voters (`RaftHost.open_group`), a candidate whose log
is empty asks all of them: each that has anything says no. Else two of three nodes that have lost
their disks would found it anew, and elect an empty leader over what the third one has.
"""

from __future__ import annotations

from collections.abc import Collection

from raft.rules.votes import VoteBox


class PreVote:
    """The candidate's side. `won` opens the way for one real election."""

    def __init__(self, me: int) -> None:
        self.round = 0
        self.won = False
        self._box = VoteBox(me)

    def start(self) -> int:
        """A new round; returns its number."""
        self.round += 1
        self.won = False
        self._box.restart()
        return self.round

    def cancel(self) -> None:
        """A leader spoke, or the term moved: what was granted is void."""
        self.won = False

    def granted(
        self, sender: int, round_number: int, voters: Collection[int], *, by_all: bool = False
    ) -> bool:
        """Count an answer; True if it completes a majority, or all of them (`by_all`)."""
        if round_number == self.round and not self.won and self._box.add(sender, voters):
            self.won = self._box.has_all(voters) if by_all else self._box.has_majority(voters)
            return self.won
        return False


def log_is_current(theirs: tuple[int, int], ours: tuple[int, int]) -> bool:
    """Raft section 5.4.1: may a candidate whose log ends at `theirs` = (last term, last index) have
    our vote?
    """
    return theirs >= ours
