"""Hibernation of one replica: when it falls asleep, what wakes it. The rule is in
`rules/hibernate`; this connects it to the group.

Messages, beside the heartbeats that carry `sleep` (the end of the leader's log):

    asleep (term, round, index)   follower to leader: I sleep, with this log
    wake (term)                   follower to leader: somebody needs the group
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from raft.followers import Followers
from raft.journal import Journal
from raft.pinned import Message
from raft.rules.hibernate import Sleep
from raft.rules.reads import Rounds

_TO_A_SLEEPING_LEADER = frozenset(
    {"hb_ack", "next_node_idx", "snapshot_ack", "asleep", "stale", "removed"}
)
"""Late answers: they do not ask for anything. (A newer term in them is acted on all the same.)"""


class Sleeper(Protocol):
    """The group that may fall asleep."""

    journal: Journal
    followers: Followers
    rounds: Rounds

    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def raft_leader(self) -> bool: ...
    @property
    def leader_id(self) -> int | None: ...
    @property
    def handing_over(self) -> int | None: ...
    def now_s(self) -> float: ...
    def post(self, peer: int, message: Message) -> None: ...
    def confirm_leadership(self) -> int: ...
    def await_leader(self, *, impatient: bool = False) -> None: ...


class Quiet:
    """See the module. `unreachable`: nodes that the transport has lost, kept by the host;
    `on_wake()`: the replica wants to be ticked again.
    """

    def __init__(
        self,
        core: Sleeper,
        *,
        after_s: float | None,
        unreachable: Collection[int],
        on_wake: Callable[[], None],
    ) -> None:
        self._core, self._unreachable, self._on_wake = core, unreachable, on_wake
        self._sleep = Sleep(after_s=after_s)
        self._asked_round = 0

    @property
    def asleep(self) -> bool:
        return self._sleep.asleep

    def stir(self) -> None:
        """Somebody uses the group: it does not fall asleep soon, and wakes if it does sleep."""
        if self._sleep.asleep:
            self.wake()
        else:
            self._sleep.stir()

    # ------------------------------------------------------------------ leader

    def look(self) -> None:
        """With every tick of a leader that has members."""
        core, asked = self._core, self._sleep.asking
        if core.commit_index != core.journal.last_index:  # nearly always so under load
            self._sleep.stir()
            return
        awaited = [peer for peer in core.followers.ids if peer not in self._unreachable]
        self._sleep.look(core.now_s(), idle=self._idle(awaited), awaited=awaited)
        if self._sleep.asking and not asked:
            self._asked_round = core.rounds.current + 1

    def _idle(self, awaited: list[int]) -> bool:
        core = self._core
        journal, config = core.journal, core.journal.memberships.current
        last = journal.last_index
        if not core.commit_index == journal.synced == last or journal.last_term != core.term:
            return False
        voters = sum(peer in config.voters for peer in awaited) + 1
        return (
            2 * voters > len(config.voters)
            and not core.handing_over
            and all(core.followers.match(peer) == last for peer in awaited)
        )

    @property
    def inviting(self) -> bool:
        """Heartbeats are to say where our log ends, to put their receivers to sleep."""
        return self._sleep.asking

    def member_sleeps(self, peer: int, message: Message) -> None:
        if (
            message["round"] >= self._asked_round
            and message["index"] == self._core.journal.last_index
        ):
            self._sleep.sleeps(peer)

    # ------------------------------------------------------------------ follower

    def invited(self, leader: int, message: Message) -> None:
        """A heartbeat with an invitation was taken in."""
        core, journal = self._core, self._core.journal
        index = message["sleep"]
        if not index == journal.last_index == core.commit_index or journal.last_term != core.term:
            self.wake(tell=False)
            return
        self._sleep.fall_asleep()
        answer = {"type": "asleep", "term": core.term, "round": message["round"], "index": index}
        core.post(leader, answer)

    # ------------------------------------------------------------------ waking

    def admits(self, peer: int, message: Message) -> bool:
        """A message for a sleeping replica: wakes it unless it is of those that do not. False if
        the message has thereby done its work.
        """
        core, kind = self._core, str(message["type"])
        if core.raft_leader:
            if kind not in _TO_A_SLEEPING_LEADER:
                self.wake()
            return kind != "pre_vote"  # we lead, and say so
        if kind == "append_entries" and "sleep" in message:
            return True
        self.wake(tell=kind != "append_entries")
        return kind != "pre_vote" or core.leader_id in self._unreachable

    def wake(self, *, tell: bool = True) -> None:
        """Nothing happens if it is awake. As follower, `tell` the leader."""
        if not self._sleep.wake():
            return
        core = self._core
        if core.raft_leader:
            core.followers.hear_everybody()
            core.confirm_leadership()
        else:
            core.await_leader()
            if tell and core.leader_id is not None:
                core.post(core.leader_id, {"type": "wake", "term": core.term})
        self._on_wake()

    def peer_down(self, peer: int) -> None:
        """A follower that sleeps looks for another leader: nobody else would notice."""
        if self._sleep.asleep and not self._core.raft_leader and peer == self._core.leader_id:
            self.wake(tell=False)
            self._core.await_leader(impatient=True)
            self._on_wake()
