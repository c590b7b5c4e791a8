"""Proof of power: each rule of consensus can be switched off, in this process, for a test only.

Nothing in production knows of this: a rule is replaced by what the code would do without it, by
patching the small modules that hold the rules. `RULES` says where a violation is then found: by
random seeds of a mode (within `seeds_max`, about three times what the prototype or this simulator
needed), or, where random schedules do not reach it, by a scenario of `tests/sim/raft/directed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from raft import followers, host, journal, reads, replica, restore
from raft import group as group_module
from raft.group import Group
from raft.pinned import SyncObj
from raft.rules import append, flow, lease, membership, votes

Patch = tuple[Any, Any, Any]
"""(object or dict, attribute or key, replacement)."""


# ------------------------------------------------------------------ the log


def _p1() -> list[Patch]:
    def place(
        prev: int,
        prev_term: int,
        entry_terms: Sequence[int],
        *,
        base: tuple[int, int],
        term_at: Callable[[int], int | None],
    ) -> append.Known | append.Mismatch | append.Extend:
        skip = min(max(base[0] - prev, 0), len(entry_terms))
        if prev + skip < base[0]:
            return append.Known(prev + skip)
        if skip:
            prev, prev_term = base
        if term_at(prev) != prev_term:
            return append.Mismatch(prev, prev_term)
        return append.Extend(prev, prev_term, skip)

    return [(append, "place", place)]


def _p2() -> list[Patch]:
    door = group_module._DOORS["append_entries"]

    def believe(self: Any, node: Any, message: Any) -> None:
        door(self, node, message)
        if message.get("prevLogIdx") is None and message["term"] == self.term:
            self.learn_commit(min(message["commit_index"], self.journal.last_index))

    return [(group_module._DOORS, "append_entries", believe)]


def _p3() -> list[Patch]:
    door = group_module._DOORS["next_node_idx"]

    def believe(self: Any, node: Any, message: Any) -> None:
        door(self, node, {**message, "term": self.term})

    return [(group_module._DOORS, "next_node_idx", believe)]


def _p10() -> list[Patch]:
    def rejected(self: Any, wanted: int, *, next_item: int, match: int) -> int:
        self.probing, self._asked = True, False
        return max(wanted, match + 1)

    return [(flow.Flow, "rejected", rejected)]


def _own_sender() -> list[Patch]:
    name = "_SyncObj__sendAppendEntries"
    return [(Group, name, getattr(SyncObj, name))]


def _truncate_marks() -> list[Patch]:
    truncate = journal.Journal.truncate

    def keep_marks(self: journal.Journal, index: int) -> None:
        synced, inflight = self.synced, self._inflight
        truncate(self, index)
        self.synced, self._inflight = synced, inflight

    return [(journal.Journal, "truncate", keep_marks)]


# ------------------------------------------------------------------ the disk


def _p5() -> list[Patch]:
    return [(group_module, "_AFTER_SYNC", frozenset()), *_p5_self()]


def _p5_self() -> list[Patch]:
    advance = Group._advance_commit

    def count_unsynced(self: Any, floor: int) -> None:
        synced, self.journal.synced = self.journal.synced, self.journal.last_index
        try:
            advance(self, floor)
        finally:
            self.journal.synced = synced

    return [(Group, "_advance_commit", count_unsynced)]


def _durable_votes() -> list[Patch]:
    kinds = group_module._AFTER_SYNC - {"request_vote", "response_vote"}
    return [(group_module, "_AFTER_SYNC", kinds)]


def _p15() -> list[Patch]:
    return [(journal.Journal, "hard_state_synced", property(lambda _self: True))]


def _apply_synced() -> list[Patch]:
    apply = replica.Replica._apply

    def unsynced_too(self: replica.Replica) -> None:
        synced, self._journal.synced = self._journal.synced, self._journal.last_index
        try:
            apply(self)
        finally:
            self._journal.synced = synced

    return [(replica.Replica, "_apply", unsynced_too)]


def _fail_stop() -> list[Patch]:
    on_sync = host.RaftHost._on_sync

    def go_on(self: host.RaftHost, _error: BaseException | None) -> None:
        on_sync(self, None)

    return [(host.RaftHost, "_on_sync", go_on)]


def _state_first() -> list[Patch]:
    install = restore.Receiver._install

    def log_first(self: Any, taking: Any) -> None:
        if taking is self._taking and not self._known(taking.id):
            self._core.journal.restart(taking.base)
        install(self, taking)

    return [
        (restore.Receiver, "_install", log_first),
        (restore.Receiver, "_known", lambda self, id_: self._follower.applied_index >= id_.index),
    ]


def _announce() -> list[Patch]:
    return [(journal.Journal, "announce", lambda _self, _base: None)]


# ------------------------------------------------------------------ elections


def _p9() -> list[Patch]:
    def anybody(self: votes.VoteBox, sender: int, _voters: Any) -> bool:
        self._given.add(sender)
        return True

    return [(votes.VoteBox, "add", anybody)]


def _pre_vote() -> list[Patch]:
    gate = Group._pre_vote_gate

    def won_already(self: Any) -> None:
        self._pre_vote.won = True
        gate(self)

    return [(Group, "_pre_vote_gate", won_already)]


def _check_quorum() -> list[Patch]:
    conf = Group._library_conf

    def patient(self: Any) -> Any:
        settings = conf(self)
        settings.leaderFallbackTimeout = 1e9
        return settings

    return [(Group, "_library_conf", patient)]


def _promise() -> list[Patch]:
    return [(Group, "_promised", lambda _self: False)]


def _restart_wait() -> list[Patch]:
    init = lease.Promise.__init__

    def forgetful(self: lease.Promise, **settings: float) -> None:
        init(self, **settings)
        self._heard_s = float("-inf")

    return [(lease.Promise, "__init__", forgetful)]


# ------------------------------------------------------------------ membership


def _one_change() -> list[Patch]:
    check = membership.check_change

    def uncommitted_too(old: Any, new: Any, **known: Any) -> str | None:
        commit_index = max(known.pop("commit_index"), old.index)
        known["commit_term_is_ours"] = True
        return check(old, new, commit_index=commit_index, **known)

    return [(group_module, "check_change", uncommitted_too)]


def _config_tail() -> list[Patch]:
    """The library's way: what a log holds at the start counts when it is applied again."""
    init, latest = Group.__init__, Group._adopt_latest

    def begin(self: Any, **parts: Any) -> None:
        init(self, **parts)
        self.found = self.journal.memberships.current
        self._adopt(self.journal.memberships.at(parts["applied_index"]))

    def adopt(self: Any) -> None:
        current = self.journal.memberships.current
        if current is self.found and self.commit_index < current.index:
            return
        latest(self)

    return [
        (Group, "__init__", begin),
        (Group, "_adopt_latest", adopt),
        (Group, "_voters", lambda self: self.membership.voters),
    ]


def _demoted_last() -> list[Patch]:
    adopt = followers.Followers.adopt

    def at_once(self: followers.Followers, *members: Any) -> None:
        adopt(self, *members)
        self._demoted = set()

    return [(followers.Followers, "adopt", at_once)]


def _config_synced() -> list[Patch]:
    feed = followers.Followers.feed

    def at_once(self: followers.Followers, node: Any, *, heartbeat: bool = False) -> bool:
        synced, self._journal.synced = self._journal.synced, self._journal.last_index
        try:
            return feed(self, node, heartbeat=heartbeat)
        finally:
            self._journal.synced = synced

    return [(followers.Followers, "feed", at_once), *_demoted_last()]


def _witness() -> list[Patch]:
    def all_of_it(self: followers.Followers, *, heartbeat: bool) -> int:
        return self._journal.last_index

    return [(followers.Followers, "_witness_bound", all_of_it)]


# ------------------------------------------------------------------ reads


def _lease_check() -> list[Patch]:
    return [(Group, "lease_holds", lambda _self: True)]


def _read_index() -> list[Patch]:
    return [(Group, "confirm_leadership", lambda _self: 0)]


def _noop_first() -> list[Patch]:
    advance = replica.Replica.advance

    def serve_at_once(self: replica.Replica) -> None:
        advance(self)
        if not self.leader and not self.stopped and not self._applying:
            self._tell_gain(self._core.term)

    return [(replica.Replica, "advance", serve_at_once)]


def _own_question() -> list[Patch]:
    add = reads.FollowerReads.add

    def join(self: reads.FollowerReads, done: Any, now_s: float) -> None:
        if self._asked:
            self._asked.append(done)
        else:
            add(self, done, now_s)

    return [(reads.FollowerReads, "add", join)]


def _transfer_lease() -> list[Patch]:
    return [(lease.Lease, "forbid", lambda _self: None)]


# ------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class Rule:
    """Where it is caught when it is off: by random seeds of `mode` (within `seeds_max`), by the
    scenario of that name, or both.
    """

    what: str
    patches: Callable[[], list[Patch]]
    seeds_max: int = 0
    mode: str = "chaos"
    scenario: str | None = None
    also_off: tuple[str, ...] = ()


RULES: dict[str, Rule] = {
    "P1": Rule("truncate only where an entry conflicts", _p1, 9),
    "P2": Rule("a message without position commits nothing", _p2, 69, scenario="P2"),
    "P3": Rule("an ack counts in its own term only", _p3, scenario="P3"),
    "P5": Rule("acks and votes wait for their sync", _p5, 30),
    "P5-self": Rule("a leader counts itself up to its synced index", _p5_self, 3),
    "P9": Rule("each voter counts once, strangers never", _p9, 219, "churn", "P9", ("pre-vote",)),
    "P10": Rule("while probing, next only goes down", _p10, 450),
    "P14": Rule("our sender, not the library's (P4, P8, P13, P14)", _own_sender, 53),
    "P15": Rule("nobody leads before its own vote is durable", _p15, 450, "small", "P15"),
    "one-change": Rule("one uncommitted membership at a time (P12)", _one_change, 198, "members"),
    "config-tail": Rule("the last configuration counts", _config_tail, scenario="config-tail"),
    "config-synced": Rule(
        "a configuration leaves after our own sync", _config_synced, scenario="config-synced"
    ),
    "demoted-last": Rule(
        "a demoted voter hears it when it is committed", _demoted_last, scenario="demoted-last"
    ),
    "witness": Rule("a witness gets what no other voter lacks", _witness, scenario="witness"),
    "durable-votes": Rule(
        "votes wait for their sync", _durable_votes, 150, scenario="durable-votes"
    ),
    "promise": Rule("who heard a leader helps no election", _promise, scenario="promise"),
    "restart-wait": Rule(
        "a restart counts as having heard a leader", _restart_wait, scenario="restart-wait"
    ),
    "transfer-lease": Rule(
        "no lease in a term after a transfer", _transfer_lease, scenario="transfer-lease"
    ),
    "apply-synced": Rule(
        "apply only what is durable here", _apply_synced, 150, scenario="apply-synced"
    ),
    "truncate-marks": Rule(
        "a truncation lowers the marks of syncs", _truncate_marks, scenario="truncate-marks"
    ),
    "fail-stop": Rule("a failed sync stops the node", _fail_stop, 90, scenario="fail-stop"),
    "state-first": Rule("a snapshot's state is durable before the log restarts", _state_first, 450),
    "announce": Rule("the log knows of a snapshot before its state", _announce, 450),
    "own-question": Rule("a follower's read joins no question under way", _own_question, 450),
    "lease": Rule("a lease ends", _lease_check, 186),
    "read-index": Rule("a read without a lease asks a majority", _read_index, 456),
    "no-op": Rule("reads wait for an entry of the own term", _noop_first, 3),
    "pre-vote": Rule("ask before raising the term", _pre_vote, 1, "flap"),
    "check-quorum": Rule("a leader without a majority gives way", _check_quorum, 1, "deaf"),
}


@contextmanager
def switched_off(*names: str, alone: bool = False) -> Iterator[None]:
    """Without these rules, and unless `alone` those that go with them, until the end of the
    block.
    """
    with ExitStack() as stack:
        others = [] if alone else [also for name in names for also in RULES[name].also_off]
        wanted = [*names, *others]
        for name in wanted:
            for holder, key, replacement in RULES[name].patches():
                stack.enter_context(_patched(holder, key, replacement))
        yield


@contextmanager
def _patched(holder: Any, key: Any, replacement: Any) -> Iterator[None]:
    if isinstance(holder, dict):
        before = holder[key]
        holder[key] = replacement
        try:
            yield
        finally:
            holder[key] = before
        return
    own = key in vars(holder)
    before = vars(holder).get(key)
    setattr(holder, key, replacement)
    try:
        yield
    finally:
        if own:
            setattr(holder, key, before)
        else:
            delattr(holder, key)
