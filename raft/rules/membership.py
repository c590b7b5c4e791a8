"""Membership: who votes, who only follows. Ongaro's thesis, 4.1 (one server at a time) and 4.3
(where it takes effect).

Invariants
  * a configuration is a full value in the log, not a difference; the last one in the log counts,
    committed or not;
  * at most one is uncommitted, and it differs from the one before by at most one voter: any two
    majorities overlap;
  * the history is rebuilt from the log (base record, then its tail), so a truncation also takes
    back a membership;
  * witnesses are voters, and fewer than the voters that keep data: every majority has data;
  * whoever is or was a witness of a configuration is no other kind of member of the next one: a
    log without payloads never becomes a log with them.

Bytes of a configuration, as entry payload and inside the base record (all big-endian):

    [voter count 2B][voter id 8B]*[learner count 2B][learner id 8B]*        ids ascending
    then, only if there are witnesses or members were forced:
    [witness count 2B][witness id 8B]*
    then, only if members were forced:
    [times forced 2B][reason length 2B][reason, UTF-8]

Left out: joint consensus (several voters at once).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from raft.errors import BadConfig

NODE_ID_MAX = (1 << 63) - 1
MEMBERS_MAX = 64
REASON_BYTES_MAX = 512
FORCED_MAX = (1 << 16) - 1
_COUNT = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Membership:
    """Voters and learners, ascending, in force from the entry at `index` on (0: from the bootstrap
    record).
    """

    index: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    witnesses: tuple[int, ...] = ()
    """Those of the voters that keep no data."""
    forced: int = 0
    """How often an operator has forced the members: sides of a group with different numbers are
    different groups that must not mix."""
    reason: str = ""
    """Why, in the words of the operator who forced this configuration."""

    @property
    def data_voters(self) -> tuple[int, ...]:
        return tuple(node for node in self.voters if node not in self.witnesses)

    @property
    def members(self) -> tuple[int, ...]:
        return self.voters + self.learners

    def encode(self) -> bytes:
        parts = [_encode_ids(self.voters), _encode_ids(self.learners)]
        if self.witnesses or self.forced:
            parts.append(_encode_ids(self.witnesses))
        if self.forced:
            reason = self.reason.encode()
            parts += [_COUNT.pack(self.forced), _COUNT.pack(len(reason)), reason]
        return b"".join(parts)


def membership(
    index: int,
    voters: Iterable[int],
    learners: Iterable[int] = (),
    witnesses: Iterable[int] = (),
    *,
    forced: int = 0,
    reason: str = "",
) -> Membership:
    """A checked configuration. Raises BadConfig for repeated, negative or too many ids, for
    witnesses that do not vote, and for as many of them as voters with data.
    """
    result = Membership(
        index,
        tuple(sorted(voters)),
        tuple(sorted(learners)),
        tuple(sorted(witnesses)),
        forced,
        reason,
    )
    ids = result.members
    if len(set(ids)) != len(ids):
        raise BadConfig(
            f"node ids repeat: voters {result.voters}, learners {result.learners}; "
            "name each node once"
        )
    if any(not 0 <= node <= NODE_ID_MAX for node in ids):
        raise BadConfig(f"node ids must lie in 0..{NODE_ID_MAX}: {ids}")
    if len(ids) > MEMBERS_MAX:
        raise BadConfig(f"{len(ids)} members exceed {MEMBERS_MAX}; remove replicas first")
    _check_witnesses(result)
    if forced > FORCED_MAX:
        raise BadConfig(f"the members were forced {FORCED_MAX} times; make a new group")
    if len(reason.encode()) > REASON_BYTES_MAX:
        raise BadConfig(
            f"a reason of {len(reason.encode())} bytes exceeds {REASON_BYTES_MAX}; shorten it"
        )
    return result


def _check_witnesses(config: Membership) -> None:
    witnesses, data = set(config.witnesses), config.data_voters
    if len(witnesses) != len(config.witnesses) or not witnesses <= set(config.voters):
        raise BadConfig(f"witnesses {config.witnesses} must be voters, each once: {config.voters}")
    if witnesses and len(witnesses) >= len(data):
        raise BadConfig(
            f"witnesses {config.witnesses} must be fewer than the voters with data {data}; "
            "add voters with data first, or remove the witness first"
        )


def decode(index: int, data: bytes | memoryview) -> Membership:
    """Inverse of `Membership.encode`. Raises ValueError if the bytes are not a configuration."""
    data = bytes(data)
    voters, at = _decode_ids(data, 0)
    learners, at = _decode_ids(data, at)
    witnesses: tuple[int, ...] = ()
    forced, reason = 0, b""
    if at < len(data):
        witnesses, at = _decode_ids(data, at)
    if at < len(data):
        (forced,), at = _decode_count(data, at), at + _COUNT.size
        (length,), at = _decode_count(data, at), at + _COUNT.size
        reason, at = data[at : at + length], at + length
    if at != len(data):
        raise ValueError(f"configuration of {len(data)} bytes does not end where it says: {at}")
    return Membership(index, voters, learners, witnesses, forced, reason.decode())


def _decode_count(data: bytes, at: int) -> tuple[int]:
    try:
        (count,) = _COUNT.unpack_from(data, at)
    except struct.error as error:
        raise ValueError(f"configuration of {len(data)} bytes ends too early") from error
    return (count,)


def _encode_ids(ids: tuple[int, ...]) -> bytes:
    return _COUNT.pack(len(ids)) + struct.pack(f">{len(ids)}Q", *ids)


def _decode_ids(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    try:
        (count,) = _COUNT.unpack_from(data, at)
        return struct.unpack_from(f">{count}Q", data, at + 2), at + 2 + 8 * count
    except struct.error as error:
        raise ValueError(f"configuration of {len(data)} bytes ends too early") from error


class MembershipHistory:
    """Configurations of the log, oldest first. The first one is the base's: committed, and never
    taken back.
    """

    def __init__(self, base: Membership) -> None:
        self._all = [base]

    @property
    def current(self) -> Membership:
        return self._all[-1]

    @property
    def before(self) -> Membership:
        """The one that the current one replaced; the current one if that is not known any more."""
        return self._all[-2:][0]

    def at(self, index: int) -> Membership:
        """The configuration in force at `index`, which must not lie before the base."""
        return next(config for config in reversed(self._all) if config.index <= index)

    def after(self, index: int) -> list[Membership]:
        """Those whose entries are at `index` or later."""
        return [config for config in self._all if config.index >= index]

    def append(self, config: Membership) -> None:
        assert config.index > self._all[-1].index, "configurations come in log order"
        self._all.append(config)

    def truncate(self, index: int) -> None:
        """The log lost its entries from `index` on."""
        while len(self._all) > 1 and self._all[-1].index >= index:
            self._all.pop()

    def compact(self, index: int) -> Membership:
        """The log's base moved to `index`; returns the configuration to store with it."""
        base = self.at(index)
        self._all = [base, *(config for config in self._all if config.index > index)]
        return base


def check_change(
    old: Membership,
    new: Membership,
    *,
    me: int,
    commit_index: int,
    commit_term_is_ours: bool,
    caught_up: Callable[[int], bool],
    responsive: Callable[[int], bool],
) -> str | None:
    """Why a leader must not propose `new` now, or None if it may. `caught_up(node)`: it has nearly
    our whole log, and keeps up; `responsive(node)`: it has answered lately.

    The requirement on the term closes the hole of 2015 in single-server changes (Ongaro, raft-dev
    list): a leader must have committed an entry of its own term first. The requirement on those
    that answer is no part of Raft: a majority that is not there cannot even take the change back.
    """
    joining = set(new.voters) - set(old.voters)
    if len(set(old.voters) ^ set(new.voters)) > 1:
        return "at most one voter may change at a time; make several changes, one after the other"
    if me not in new.data_voters:
        return "a leader does not remove itself; transfer the leadership first"
    if (refusal := _check_kinds(old, new)) is not None:
        return refusal
    if not commit_term_is_ours:
        return "no entry of this term is committed yet; retry in a moment"
    if old.index > commit_index:
        return "the previous change is not committed yet; wait for it"
    if not all(caught_up(node) for node in joining.difference(new.witnesses)):
        return "the new voter has not caught up; keep it a learner until it has"
    answering = [node for node in new.voters if node == me or responsive(node)]
    if 2 * len(answering) <= len(new.voters):
        return (
            f"only {answering} of the new voters {new.voters} answer; "
            "bring the others back, or remove those first that are gone"
        )
    return None


def _check_kinds(old: Membership, new: Membership) -> str | None:
    """Witnesses come from outside and go outside."""
    fresh = set(new.witnesses) - set(old.witnesses)
    if fresh & set(old.members):
        return "a member that keeps data cannot become a witness; remove it first"
    if (set(old.witnesses) - set(new.witnesses)) & set(new.members):
        return "a witness has no data to become another kind of member; remove it first"
    if fresh and len(old.voters) % 2:
        return (
            f"a witness beside {len(old.voters)} voters would make the majority larger; "
            "add it to an even number of voters"
        )
    return None
