"""The operations on a group's members, as steps from one configuration to the next. Ongaro's
thesis, chapter 4: one voter at a time, a learner first.

    outside ── add_learner ──▶ learner ── promote ──▶ voter ── demote ──▶ learner
    outside ── add_witness ──▶ witness                 any of them ── remove ──▶ outside

To replace a node: add the new one as learner, promote it when it has caught up, remove the old one;
so a majority never gets larger before its new member can be part of it. A leader that is to go
hands over first. Whether a step is allowed now, is decided in `rules/membership.check_change`.

Every operation may be repeated: one that is in force already gives None, and nothing is appended.
"""

from __future__ import annotations

from collections.abc import Iterable

from raft.errors import BadConfig
from raft.rules.membership import Membership, membership


def add_learner(old: Membership, index: int, node: int) -> Membership | None:
    """The configuration of entry `index`, in which `node` is a learner too. Raises BadConfig."""
    if node in old.learners:
        return None
    if node in old.voters:
        raise BadConfig(f"node {node} votes already: {old.voters}")
    return _next(old, index, old.voters, (*old.learners, node), old.witnesses)


def promote(old: Membership, index: int, node: int) -> Membership | None:
    """A learner becomes a voter. Raises BadConfig."""
    if node in old.data_voters:
        return None
    if node not in old.learners:
        raise BadConfig(f"node {node} is no learner: {old.learners}; add it as learner first")
    return _next(old, index, (*old.voters, node), _without(old.learners, node), old.witnesses)


def demote(old: Membership, index: int, node: int) -> Membership | None:
    """A voter with data becomes a learner. Raises BadConfig."""
    if node in old.learners:
        return None
    if node not in old.data_voters:
        raise BadConfig(f"node {node} is no voter with data: {old.data_voters}")
    return _next(old, index, _without(old.voters, node), (*old.learners, node), old.witnesses)


def add_witness(old: Membership, index: int, node: int) -> Membership | None:
    """A new node votes and keeps no data. Raises BadConfig."""
    if node in old.witnesses:
        return None
    if node in old.members:
        raise BadConfig(f"node {node} keeps data; remove it first, or choose another node")
    return _next(old, index, (*old.voters, node), old.learners, (*old.witnesses, node))


def remove(old: Membership, index: int, node: int) -> Membership | None:
    """Whatever `node` is, it is no member. Raises BadConfig."""
    if node not in old.members:
        return None
    return _next(
        old,
        index,
        _without(old.voters, node),
        _without(old.learners, node),
        _without(old.witnesses, node),
    )


def force(
    old: Membership, index: int, voters: Iterable[int], *, me: int, reason: str
) -> Membership:
    """What an operator makes of a group that has lost its majority: `voters` of the members, no
    learners, and a number that tells the two sides apart. Raises BadConfig.
    """
    survivors = sorted(voters)
    strangers = sorted(set(survivors) - set(old.members))
    if me not in survivors or me in old.witnesses:
        raise BadConfig(
            f"force the members on one of the voters {survivors} itself, one that keeps data; "
            f"this is node {me}, witnesses are {old.witnesses}"
        )
    if strangers:
        raise BadConfig(f"nodes {strangers} are no members; add them when the group works again")
    if not reason.strip():
        raise BadConfig("say why the members are forced; the reason is kept in the log")
    witnesses = [node for node in old.witnesses if node in survivors]
    return membership(index, survivors, (), witnesses, forced=old.forced + 1, reason=reason.strip())


def _next(
    old: Membership,
    index: int,
    voters: Iterable[int],
    learners: Iterable[int],
    witnesses: Iterable[int],
) -> Membership:
    return membership(index, voters, learners, witnesses, forced=old.forced, reason=old.reason)


def _without(nodes: tuple[int, ...], node: int) -> tuple[int, ...]:
    return tuple(other for other in nodes if other != node)
