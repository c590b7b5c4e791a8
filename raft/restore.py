"""`Receiver`: the follower's side of snapshots. Their protocol, order and invariants are in
`raft/snapshot`.

    chunk ─▶ stage ─ durable ─▶ answer ─ all there ─▶ announce ─ durable ─▶ install ─ durable ─▶ log

Each arrow is a callback of somebody else's disk; by then another snapshot may be under way, or the
log may have caught up without one. So every step asks again whether it is still wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from raft.api import RaftConfig, RaftCounters, SnapshotId, SnapshotSink
from raft.errors import SnapshotUnavailable
from raft.records import Base
from raft.rules import membership

if TYPE_CHECKING:
    from raft.group import Group
    from raft.pinned import Message

_LONG_AGO = float("-inf")


class Follower(Protocol):
    """The replica that takes a snapshot."""

    @property
    def applied_index(self) -> int: ...

    def restart_at(self, base: Base) -> None:
        """The state is now that of the snapshot, durably: the log follows."""
        ...


class Receiver:
    """Takes at most one snapshot at a time."""

    def __init__(
        self,
        core: Group,
        follower: Follower,
        *,
        restore: Callable[[SnapshotId], SnapshotSink],
        barrier: Callable[[Callable[[], object]], None],
        enter: Callable[..., None],
        config: RaftConfig,
        counters: RaftCounters,
    ) -> None:
        """`barrier(done)` tells when the log DB is durable; `enter(door, *args)` calls back into
        the replica, so that whatever is raised stops it.
        """
        self._core, self._follower, self._restore = core, follower, restore
        self._barrier, self._enter = barrier, enter
        self._config, self._counters = config, counters
        self._taking: Taking | None = None
        self.installing = False
        """Between `install` and its end: nothing may be applied, and the log not be cut."""

    def _known(self, snapshot: SnapshotId) -> bool:
        """Is its last entry applied here, or in our log? Then it tells us nothing new."""
        applied = self._follower.applied_index >= snapshot.index
        return applied or self._core.journal.term_at(snapshot.index) == snapshot.term

    def received(self, peer: int, message: Message) -> None:
        """A `snapshot` message of the leader of this term."""
        if self.installing:
            return  # it asks again
        snapshot = SnapshotId(message["index"], message["index_term"], peer, message["number"])
        if self._known(snapshot):
            self._forget()
            self._core.vouch(snapshot.index)
            return
        taking = self._taking
        if taking is not None and snapshot.number < taking.id.number:
            return  # a late message of an earlier transfer
        try:
            if taking is None or taking.id != snapshot:
                taking = self._open(snapshot, message)
            taking.at_s = max(taking.at_s, message["at"])
            self._take(taking, message)
        except SnapshotUnavailable:
            self._refuse(snapshot, message["at"])

    def _open(self, snapshot: SnapshotId, message: Message) -> Taking:
        self._forget()
        config = membership.decode(message["config_index"], message["config"])
        sink = self._restore(snapshot)
        staged = sink.staged()
        base = Base(snapshot.index, snapshot.term, config)
        self._taking = Taking(snapshot, base, sink, staged, staged)
        return self._taking

    def _take(self, taking: Taking, message: Message) -> None:
        number, data = message["chunk"], message["data"]
        if message["total"] >= 0:
            taking.total = message["total"]
        ahead = number - taking.asked
        if data and 0 <= ahead < self._config.snapshot_window_chunks:
            taking.waiting[number] = bytes(data)
        fresh = taking.asked
        while (chunk := taking.waiting.pop(taking.asked, None)) is not None:
            number, taking.asked = taking.asked, taking.asked + 1
            taking.sink.stage(number, chunk, self._staged_later(taking, number))
        if taking.asked == fresh:
            self._progress(taking)

    def _staged_later(self, taking: Taking, number: int) -> Callable[[], None]:
        return lambda: self._enter(self._staged, taking, number)

    def _staged(self, taking: Taking, number: int) -> None:
        if taking is self._taking:
            taking.staged = number + 1
            self._progress(taking)

    def _progress(self, taking: Taking) -> None:
        """Answer, and go on to the next step once all is there."""
        self._answer(taking.id, taking.staged, taking.asked, taking.at_s, refused=False)
        if taking.staged == taking.total and not taking.announced:
            taking.announced = True
            self._core.journal.announce(taking.base)
            self._barrier(lambda: self._enter(self._install, taking))

    def _install(self, taking: Taking) -> None:
        if taking is not self._taking:
            return  # another snapshot has begun meanwhile
        if self._known(taking.id):
            self._forget()
            self._core.vouch(taking.id.index)
            return
        self.installing = True
        try:
            taking.sink.install(lambda: self._enter(self._installed, taking))
        except SnapshotUnavailable:
            self.installing = False
            self._refuse(taking.id, taking.at_s)

    def _installed(self, taking: Taking) -> None:
        self._taking, self.installing = None, False
        self._counters.snapshots_installed += 1
        self._follower.restart_at(taking.base)
        self._core.vouch(taking.id.index)

    def outrun(self, applied_index: int) -> None:
        """The log has brought us there; what is being taken may be of no use any more."""
        taking = self._taking
        if taking is not None and not self.installing and applied_index >= taking.id.index:
            self._forget()

    def _refuse(self, snapshot: SnapshotId, at_s: float) -> None:
        self._counters.snapshots_failed += 1
        self._forget()
        self._answer(snapshot, 0, 0, at_s, refused=True)

    def _answer(
        self, snapshot: SnapshotId, staged: int, wants: int, at_s: float, *, refused: bool
    ) -> None:
        message: Message = {
            "type": "snapshot_ack",
            "term": self._core.term,
            "number": snapshot.number,
            "next": staged,
            "wants": wants,
            "refused": refused,
            "at": at_s,
        }
        self._core.post(snapshot.sender, message)

    def _forget(self) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.sink.discard()


@dataclass(slots=True, eq=False)
class Taking:
    """One snapshot that is being taken."""

    id: SnapshotId
    base: Base
    sink: SnapshotSink
    staged: int
    """Chunks that are durable."""
    asked: int
    """Chunks that were given to the sink."""
    waiting: dict[int, bytes] = field(default_factory=dict)
    """Chunks that overtook others."""
    total: int = -1
    announced: bool = False
    at_s: float = _LONG_AGO
