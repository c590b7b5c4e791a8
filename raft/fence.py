"""Who does not belong to the group any more, and how he learns it.

Two cases. A *removed* node may never have received the entry that removed it: nobody replicates to
it any more, and it would ask for votes for ever. A member whose committed configuration lacks the
sender, and whose log is newer, tells it; it stops asking until a leader speaks to it.

A *forced* configuration (`RaftHost.force_members`) is not agreed on by a majority, so the side that
was given up may live and have a majority of its own: two groups of one name. Every message of a
group that was forced n times says n, and its leader tells whoever connects and is no member. A side
with a smaller number is stopped at the first contact: its replicas are answered so (`fenced`) and
stop for good.

    removed (term, config)            you are no member since entry `config`
    fenced (forced, members, reason)  an operator has given your side up

A forced entry has a term far above all others (`forced_term`), with a random part: no leader of the
other side can have written under it, and what that side writes never looks newer.
"""

from __future__ import annotations

from typing import Protocol

from raft.api import Rng
from raft.errors import Fenced
from raft.journal import Journal
from raft.pinned import Message
from raft.rules.prevote import log_is_current

FORCED_TERM_STEP = 1 << 32
_FROM_LEADERS = frozenset({"append_entries", "snapshot", "timeout_now"})
_FROM_CANDIDATES = frozenset({"request_vote", "pre_vote"})


def forced_term(term: int, rng: Rng) -> int:
    """A term that no election can have reached meanwhile, nor another operator's command."""
    return term + FORCED_TERM_STEP + int(rng.random() * FORCED_TERM_STEP)


class Fenceable(Protocol):
    """The group that this keeps others from."""

    journal: Journal

    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    def post(self, peer: int, message: Message) -> None: ...


class Fence:
    """One replica's view. `removed`: a member answered that it is none."""

    def __init__(self, core: Fenceable) -> None:
        self._core = core
        self.removed = False

    def admits(self, peer: int, message: Message) -> bool:
        """Called when the sender's number of forced configurations is not ours."""
        core, config = self._core, self._core.journal.memberships.current
        theirs = message.get("forced", 0)
        if theirs > config.forced:
            if message["type"] != "fenced":
                return True  # it takes us for a member, and its entries will make us one
            if config.voters:
                raise Fenced(core.journal.group_id, message["members"], message["reason"])
            return False
        kind = message["type"]
        if peer in config.members and kind not in _FROM_LEADERS:
            # Not reached by our leader yet. Its answers count; it cannot win an election.
            return kind not in _FROM_CANDIDATES
        core.post(peer, {"type": "fenced", "members": list(config.voters), "reason": config.reason})
        return False

    def met(self, peer: int) -> None:
        """A node that is no member is there again: if it was given up, tell it at once. A witness
        would never ask, and others could begin to serve each other.
        """
        core, config = self._core, self._core.journal.memberships.current
        if config.forced and peer not in config.members:
            core.post(
                peer, {"type": "fenced", "members": list(config.voters), "reason": config.reason}
            )

    def refuses_candidate(self, peer: int, message: Message) -> bool:
        """Answers a candidate that is certainly no member: our committed configuration lacks it,
        and its log lacks that configuration. One with a newer log may know a newer configuration;
        it must be able to win (thesis 4.1), for it may be the only one who can.
        """
        core, config = self._core, self._core.journal.memberships.current
        if peer in config.members or config.index > core.commit_index or not config.voters:
            return False
        log, theirs = core.journal, (message["last_log_term"], message["last_log_index"])
        if log_is_current(theirs, (log.last_term, log.last_index)):
            return False
        core.post(peer, {"type": "removed", "term": core.term, "config": config.index})
        return True

    def learn_removed(self, message: Message) -> None:
        if message["config"] > self._core.journal.memberships.current.index:
            self.removed = True
