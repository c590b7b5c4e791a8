"""What operators and the master do with a replica: members, transfer, status. The other half of
`Replica`, which keeps proposals, reads and applying.

Nothing here decides about consensus: the steps are in `raft/membership`, whether they are allowed
in `rules/membership`, the hand-over in `raft/handover`, forced members in `raft/fence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from raft import membership
from raft.api import FollowerStatus, GroupStatus, Role
from raft.errors import BadConfig, NotLeader, Stopped, Transferring
from raft.group import Group
from raft.journal import Journal
from raft.rules.membership import Membership
from raft.rules.membership import membership as configuration
from raft.snapshot import Sender

Step = Callable[[Membership, int], Membership | None]


class Administration:
    """Mixed into `Replica`. `_enter` calls a door of the group as the host does."""

    group_id: int
    leader: bool
    applied_index: int
    _core: Group
    _journal: Journal
    _enter: Callable[..., None]
    _sender: Sender
    _stopped: str | None

    # ------------------------------------------------------------------ members

    def add_learner(self, node: int) -> int:
        """See ConsensusGroup, like all of these."""
        return self._step(partial(membership.add_learner, node=node))

    def promote(self, node: int) -> int:
        return self._step(partial(membership.promote, node=node))

    def demote(self, node: int) -> int:
        return self._step(partial(membership.demote, node=node))

    def add_witness(self, node: int) -> int:
        return self._step(partial(membership.add_witness, node=node))

    def remove(self, node: int) -> int:
        if node == self._core.me and self.leader:
            target = self._core.best_target()
            if target is None:
                raise BadConfig(
                    f"group {self.group_id}: no other voter with data keeps up, so nobody can lead "
                    "without this node; add one, or wait until one has caught up"
                )
            self.transfer(target)
            raise Transferring(self.group_id, target)
        return self._step(partial(membership.remove, node=node))

    def change_members(
        self, voters: Sequence[int], learners: Sequence[int], witnesses: Sequence[int] = ()
    ) -> int:
        """Any configuration that differs by at most one voter; its index. Raises like the others.

        The operations above are made of this.
        """

        def whole(old: Membership, index: int) -> Membership:
            return configuration(
                index, voters, learners, witnesses, forced=old.forced, reason=old.reason
            )

        return self._step(whole)

    def _step(self, step: Step) -> int:
        self._check_leads()
        self._core.stir()  # who sleeps has not answered for long
        old = self._journal.memberships.current
        try:
            new = step(old, self._journal.last_index + 1)
        except BadConfig as error:
            raise BadConfig(f"group {self.group_id}: {error}") from error
        if new is None:
            return old.index
        refusal = self._core.change(new)
        if refusal is not None:
            raise BadConfig(f"group {self.group_id}: {refusal}")
        self._enter(self._core.replicate)
        return new.index

    def _check_leads(self) -> None:
        if self._stopped is not None:
            raise Stopped(self.group_id, self._stopped)
        if not self.leader:
            raise NotLeader(self.group_id, None if self._core.raft_leader else self._core.leader_id)
        if (target := self._core.handing_over) is not None:
            raise Transferring(self.group_id, target)

    def force_members(self, voters: Sequence[int], reason: str) -> int:
        """See `RaftHost.force_members`."""
        core, journal = self._core, self._journal
        if self._stopped is not None:
            raise Stopped(self.group_id, self._stopped)
        if core.asleep:  # who is gone, and whether the leader lives, shows only once it wakes
            core.stir()
            raise BadConfig(
                f"group {self.group_id}: it was idle and slept, so nobody knows who is gone; it is "
                "awake now: try again after an election timeout"
            )
        if core.raft_leader:
            raise BadConfig(
                f"group {self.group_id}: this node leads it; remove members one by one, or, if "
                "their majority is gone, wait an election timeout until it gives up"
            )
        if core.hears_leader():
            raise BadConfig(
                f"group {self.group_id}: its leader, node {core.leader_id}, was heard just now, or "
                "this node has just started; stop the other side first, then wait a few seconds"
            )
        try:
            new = membership.force(
                journal.memberships.current,
                journal.last_index + 1,
                voters,
                me=core.me,
                reason=reason,
            )
        except BadConfig as error:
            raise BadConfig(f"group {self.group_id}: {error}") from error
        self._enter(core.force, new)
        return new.index

    # ------------------------------------------------------------------ leadership

    def transfer(self, node: int) -> None:
        if self._core.handing_over != node:
            self._check_leads()
        refusal = self._core.transfer_refusal(node)
        if refusal is not None:
            raise BadConfig(f"group {self.group_id}: {refusal}")
        self._enter(self._core.transfer, node)

    # ------------------------------------------------------------------ status

    def status(self) -> GroupStatus:
        core, journal = self._core, self._journal
        config = journal.memberships.current
        return GroupStatus(
            group_id=self.group_id,
            role=self._role(),
            term=core.term,
            leader_id=core.leader_id,
            voters=config.voters,
            learners=config.learners,
            witnesses=config.witnesses,
            config_index=config.index,
            commit_index=core.commit_index,
            applied_index=self.applied_index,
            first_index=journal.base_index + 1,
            last_index=journal.last_index,
            last_term=journal.last_term,
            log_bytes=journal.log_bytes,
            hibernating=core.asleep,
            transferring_to=core.handing_over,
            forced=config.forced,
            forced_reason=config.reason,
            followers=self._followers() if core.raft_leader else {},
        )

    def _role(self) -> Role:
        core, config = self._core, self._journal.memberships.current
        if self._stopped is not None:
            return "stopped"
        if core.raft_leader:
            return "leader"
        if not core.keeps_data:
            return "witness"
        if core.campaigns:
            return "candidate"
        if core.me in config.learners or not config.voters:
            return "learner"
        return "follower" if core.me in config.voters and not core.removed else "removed"

    def _followers(self) -> dict[int, FollowerStatus]:
        core, last = self._core, self._journal.last_index
        return {
            peer: FollowerStatus(
                match=(match := core.followers.match(peer)),
                next=core.followers.next(peer),
                lag=last - match,
                responsive=core.responsive(peer),
                snapshot=self._sender.sends_to(peer),
            )
            for peer in core.followers.ids
        }
