"""`Intake`: how a follower's log takes what its leader sends.

Invariants
  * an entry is removed only where it conflicts with the leader's, and never one that is committed
    (P1, I4);
  * the commit index moves only to what was compared with the leader's log (P2);
  * an answer speaks of what is in the log when it is made; it leaves after the sync that covers it;
  * a replica that is *blank* takes no entry: what the group began with is not what it begins with,
    so it waits for a snapshot.

Source: Raft figure 2, AppendEntries; what a message may change is in `rules/append`, what waits for
its predecessors in `rules/reorder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, assert_never

from raft.api import RaftConfig, RaftCounters
from raft.errors import InvariantBroken
from raft.journal import Journal
from raft.pinned import Message
from raft.records import Entry
from raft.rules import append
from raft.rules.reorder import Parked

_LONG_AGO = float("-inf")


class Follower(Protocol):
    """The group whose log this is."""

    journal: Journal
    blank: bool

    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    def learn_commit(self, index: int) -> None: ...
    def post(self, peer: int, message: Message) -> None: ...


class Intake:
    """See the module."""

    def __init__(self, core: Follower, *, config: RaftConfig, counters: RaftCounters) -> None:
        self._core, self._journal, self._counters = core, core.journal, counters
        self._parked = Parked(
            bytes_max=config.window_bytes_max, messages_max=config.window_messages_max
        )

    def take(self, leader: int, message: Message) -> None:
        """An AppendEntries with a position, of the leader of this term: take it, and whatever
        waited for it, into the log, and answer.
        """
        answer, at_s = self._accept(message), message.get("at", _LONG_AGO)
        while (parked := self._parked.take(self._journal.last_index, self._core.term)) is not None:
            later, at_s = self._accept(parked), max(at_s, parked.get("at", _LONG_AGO))
            if later is not None and (answer is None or later[1]):
                answer = later
        if answer is not None:
            self._answer(leader, *answer, at_s=at_s)

    def vouch(self, leader: int, index: int) -> None:
        """Tell the leader that our log or state has everything up to `index`."""
        self._answer(leader, index + 1, True, at_s=_LONG_AGO)

    def _answer(self, leader: int, next_index: int, success: bool, *, at_s: float) -> None:
        """Our log is the leader's before `next_index`, or, without success, is to be looked at
        there. `at_s` echoes when the newest message that we have seen left.
        """
        answer: Message = {"type": "next_node_idx", "next_node_idx": next_index, "success": success}
        answer |= {"reset": not success, "last": self._journal.last_index, "at": at_s}
        if self._core.blank:
            answer["blank"] = True
        self._core.post(leader, {**answer, "waiting": self._parked.waiting(self._core.term)})

    def _accept(self, message: Mapping[str, Any]) -> tuple[int, bool] | None:
        """Take the entries into the log. The next index to ask for and whether the ones before are
        there (I3); None if the message waits for others.
        """
        prev, entries, journal = message["prevLogIdx"], message["entries"], self._journal
        if self._core.blank:
            return 0, False
        placed = append.place(
            prev,
            message["prevLogTerm"],
            [entry[2] for entry in entries],
            base=(journal.base_index, journal.base_term),
            term_at=journal.term_at,
        )
        match placed:
            case append.Known(end):  # P1: the library would remove everything after `prev`
                self._core.learn_commit(min(message["commit_index"], end))
                return end + 1, True
            case append.Mismatch(prev, _):
                if prev <= journal.last_index:
                    return max(journal.run_start(prev), self._core.commit_index + 1), False
                size = sum(len(entry[0]) for entry in entries)
                if entries and self._parked.put(prev, message, size):
                    self._counters.appends_parked += 1
                    return None
                return journal.last_index + 1, False
            case append.Extend(prev, _, skip):
                self._extend(prev, entries[skip:])
                self._core.learn_commit(min(message["commit_index"], journal.last_index))
                return journal.last_index + 1, True
            case _ as unreachable:
                assert_never(unreachable)

    def _extend(self, prev: int, entries: Sequence[Entry]) -> None:
        """Replace what follows `prev` by these entries."""
        journal, commit_index = self._journal, self._core.commit_index
        if prev < journal.last_index:
            if prev < commit_index:
                why = f"would truncate after {prev}, but {commit_index} is committed"
                raise InvariantBroken(why)
            journal.truncate(prev + 1)
        for command, index, term in entries:
            if index != journal.last_index + 1:
                raise InvariantBroken(f"entry {index} would follow {journal.last_index}: a hole")
            journal.append(command, term)
