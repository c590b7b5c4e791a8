"""A transfer of the leadership, as the leader does it. The rule is in `rules/transfer`."""

from __future__ import annotations

from typing import Protocol, assert_never

from raft.followers import Followers
from raft.journal import Journal
from raft.rules.transfer import Step, Transfer


class Leader(Protocol):
    """The group whose leadership goes."""

    me: int
    journal: Journal
    followers: Followers

    @property
    def raft_leader(self) -> bool: ...
    def now_s(self) -> float: ...
    def replicate(self) -> None: ...
    def order_election(self, target: int) -> None: ...
    def renew(self) -> None: ...


class Handover:
    """At most one transfer at a time. While `target` is not None, proposals are refused."""

    def __init__(self, core: Leader, *, give_up_s: float, resend_s: float) -> None:
        self._core, self._give_up_s, self._resend_s = core, give_up_s, resend_s
        self._transfer: Transfer | None = None

    @property
    def target(self) -> int | None:
        return None if self._transfer is None else self._transfer.target

    def refusal(self, target: int) -> str | None:
        """Why the leadership cannot go there; None if it can."""
        core = self._core
        config = core.journal.memberships.current
        if not core.raft_leader:
            return "only the leader hands over"
        if target == core.me:
            return "it leads already"
        if target not in config.data_voters:
            return f"node {target} is no voter with data; choose one of {config.data_voters}"
        if self._transfer is not None and self._transfer.target != target:
            return f"a transfer to node {self._transfer.target} is under way; wait for its end"
        return None

    def start(self, target: int) -> None:
        """Nothing happens if this transfer is under way."""
        if self._transfer is None:
            self._transfer = Transfer(target, self._core.now_s() + self._give_up_s, self._resend_s)
            self._core.replicate()
            self.step()

    def best_target(self) -> int | None:
        """The voter with data that keeps up and has the most of our log; None: nobody can."""
        core = self._core
        ready = [
            (core.followers.match(peer), peer)
            for peer in core.journal.memberships.current.data_voters
            if peer != core.me and core.followers.in_step(peer)
        ]
        return max(ready)[1] if ready else None

    def step(self) -> None:
        """The target has answered, or time has passed."""
        transfer, core = self._transfer, self._core
        if transfer is None:
            return
        if not core.raft_leader or transfer.target not in core.followers.ids:
            self._transfer = None
            return
        step = transfer.step(
            now_s=core.now_s(),
            match=core.followers.match(transfer.target),
            last_index=core.journal.last_index,
        )
        match step:
            case Step.WAIT:
                pass
            case Step.ORDER:
                core.order_election(transfer.target)
            case Step.GIVE_UP:
                self._transfer = None
            case Step.RENEW:
                self._transfer = None
                core.renew()
            case _ as unreachable:
                assert_never(unreachable)

    def until_s(self) -> float | None:
        return None if self._transfer is None else self._transfer.until_s
