"""Membership: who votes, who only follows. Ongaro's thesis, 4.1 (one server at a time) and 4.3
(where it takes effect).

Invariants
  * a configuration is a full value in the log, not a difference; the last one in the log counts,
    committed or not;
  * at most one is uncommitted, and it differs from the one before by at most one voter: any two
    majorities overlap;
  * the history is rebuilt from the log (base record, then its tail), so a truncation also takes
    back a membership.

Bytes of a configuration, as entry payload and inside the base record (all big-endian):

    [voter count 2B][voter id 8B]*[learner count 2B][learner id 8B]*        ids ascending

Left out: joint consensus (several voters at once), witnesses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from raft.errors import BadConfig

NODE_ID_MAX = (1 << 63) - 1
MEMBERS_MAX = 64
_COUNT = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Membership:
    """Voters and learners, ascending, in force from the entry at `index` on (0: from the bootstrap
    record).
    """

    index: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]

    def encode(self) -> bytes:
        return _encode_ids(self.voters) + _encode_ids(self.learners)


def membership(index: int, voters: Iterable[int], learners: Iterable[int] = ()) -> Membership:
    """A checked configuration. Raises BadConfig for repeated, negative or too many ids."""
    result = Membership(index, tuple(sorted(voters)), tuple(sorted(learners)))
    ids = result.voters + result.learners
    if len(set(ids)) != len(ids):
        raise BadConfig(
            f"node ids repeat: voters {result.voters}, learners {result.learners}; "
            "name each node once"
        )
    if any(not 0 <= node <= NODE_ID_MAX for node in ids):
        raise BadConfig(f"node ids must lie in 0..{NODE_ID_MAX}: {ids}")
    if len(ids) > MEMBERS_MAX:
        raise BadConfig(f"{len(ids)} members exceed {MEMBERS_MAX}; remove replicas first")
    return result


def decode(index: int, data: bytes | memoryview) -> Membership:
    """Inverse of `Membership.encode`. Raises ValueError if the bytes are not a configuration."""
    voters, at = _decode_ids(bytes(data), 0)
    learners, at = _decode_ids(bytes(data), at)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after the configuration")
    return Membership(index, voters, learners)


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

    def at(self, index: int) -> Membership:
        """The configuration in force at `index`, which must not lie before the base."""
        return next(config for config in reversed(self._all) if config.index <= index)

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
    match: Callable[[int], int],
) -> str | None:
    """Why a leader must not propose `new` now, or None if it may. `match(voter)` is its verified
    log index.

    The requirement on the term closes the hole of 2015 in single-server changes (Ongaro, raft-dev
    list): a leader must have committed an entry of its own term first.
    """
    joining = set(new.voters) - set(old.voters)
    if len(set(old.voters) ^ set(new.voters)) > 1:
        return "at most one voter may change at a time; make several changes, one after the other"
    if me not in new.voters:
        return "a leader does not remove itself; transfer the leadership first"
    if not commit_term_is_ours:
        return "no entry of this term is committed yet; retry in a moment"
    if old.index > commit_index:
        return "the previous change is not committed yet; wait for it"
    if any(match(node) < commit_index for node in joining):
        return "the new voter has not caught up; keep it a learner until it has"
    return None
