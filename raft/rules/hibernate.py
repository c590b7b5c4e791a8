"""Hibernation: an idle group costs nothing. (CockroachDB's quiescence, TiKV's hibernate regions.)

A leader whose followers all have the whole log, know that it is committed, and have had nothing to
do for some seconds, says so in its heartbeats. A follower for which that is true falls asleep (it
sets no election timer) and tells the leader; when all have said so, the leader falls asleep too.
Then nobody ticks and nothing is sent.

    leader    idle for a while ─▶ asks ─▶ everybody reachable sleeps ─▶ asleep
    follower  asked, and has exactly that log, committed ─▶ asleep
    awake     a proposal, a read, a message of any other kind, the loss of the leader's node

It rests on nothing and promises nothing: a group that is asleep elects like any other once somebody
wakes up, and its leader has no lease (leases are counted from heartbeats and run out). So a wrong
belief about who sleeps costs a second, never an answer.

    * a follower that wakes tells its leader, which wakes the others by its heartbeats; if the
      leader is gone, the election timer of the one that woke decides;
    * a follower that is asked for a pre-vote while its leader's node is reachable wakes and does
      not help: the other one may just have a broken link of its own;
    * nodes that the transport has lost do not keep the others awake, as long as a majority is
      there; when such a node is back, the leader wakes and brings it up to date.
"""

from __future__ import annotations

from collections.abc import Collection


class Sleep:
    """One replica's part, as leader or follower."""

    def __init__(self, *, after_s: float | None) -> None:
        """`after_s`: how long a leader is idle before it asks; None: it never does."""
        self._after_s = after_s
        self._idle_since_s: float | None = None
        self._said: set[int] = set()
        self.asleep = False
        self.asking = False
        """As leader: heartbeats invite the followers to sleep."""

    def stir(self) -> None:
        """Something happened: whoever wants to sleep begins to wait anew."""
        self._idle_since_s = None
        self.asking = False

    def wake(self) -> bool:
        """True if it was asleep."""
        self.stir()
        was, self.asleep = self.asleep, False
        return was

    def look(self, now_s: float, *, idle: bool, awaited: Collection[int]) -> None:
        """As leader, with every tick. `awaited`: the members whose sleep we wait for."""
        if not idle or self._after_s is None:
            self.stir()
        elif self._idle_since_s is None:
            self._idle_since_s = now_s
        elif not self.asking:
            if now_s - self._idle_since_s >= self._after_s:
                self.asking = True
                self._said.clear()
        elif self._said.issuperset(awaited):
            self.stir()
            self.asleep = True

    def sleeps(self, member: int) -> None:
        """As leader: this member said that it sleeps, with the log that we have now."""
        if self.asking:
            self._said.add(member)

    def fall_asleep(self) -> None:
        """As follower: the leader asked, and we have the log that it spoke of."""
        self.asleep = True
