"""raft.StateMachine of one partition over the state DB, and the log port of its machine.

Invariants
  * entries become visible in log order, each as one engine batch with its index;
  * the leader writes the batch that it built from its own entry; everybody else decodes the same
    entry: equal state at equal index;
  * an entry that cannot be read stops this replica (Corruption is raised into the consensus layer,
    which stops the group): guessing would make replicas differ;
  * a state DB that refuses a write (stall, full disk) refuses whole batches: the entry waits here,
    in order, and is tried again. Nothing that waits is acknowledged, and new writes are refused
    meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, KvorumError, NotLeader, TooLarge, Unavailable
from kv.base.ports import Handle, Timers
from kv.partition.entry import Decoded, Entry, decode
from kv.partition.machine import PartitionMachine
from kv.replica.room import Room
from kv.replica.state import PartitionState
from raft.api import Command, ConsensusGroup
from raft.errors import EntryTooLarge, ProposalsFull, RaftError

RETRY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class _Work:
    """A committed entry that must still be written. `entry` is ours, `decoded` anybody's; neither:
    no command.
    """

    index: int
    term: int
    entry: Entry | None = None
    decoded: Decoded | None = None


class Replica:
    """See the module. `machine` and `group` are set by whoever opens it, before it is called."""

    machine: PartitionMachine
    group: ConsensusGroup

    def __init__(
        self,
        state: PartitionState,
        timers: Timers,
        on_applied: Callable[[Replica], None],
        room: Room,
    ) -> None:
        """`on_applied(self)` is called after every entry: the manager cuts logs."""
        self.state = state
        self._room = room
        self.log_bytes = 0  # of entries since the manager last looked; the manager sets it back
        self._timers, self._on_applied = timers, on_applied
        self._backlog: deque[_Work] = deque()
        self._retry: Handle | None = None
        self._refused: Unavailable | None = None
        self._leading = False
        self._stopped = False

    @property
    def descriptor(self) -> PartitionDescriptor:
        return self.state.descriptor

    # ------------------------------------------------------------------ ReplicaPort

    def serving(self) -> bool:
        return self._leading and self.group.can_serve_reads()

    def leader_hint(self) -> int | None:
        group = getattr(self, "group", None)
        return None if group is None else group.leader_id

    def refusal(self) -> KvorumError | None:
        if self._refused is None:
            return None
        return Unavailable(
            f"partition {self.descriptor.id} takes no writes now: {self._refused.message}",
            details=self._refused.details,
        )

    def no_room(self) -> KvorumError | None:
        return self._room.refusal

    def propose(self, command: bytes, entry: Entry) -> None:
        self._room.wrote(len(command))
        try:
            self.group.propose(command, entry)
        except EntryTooLarge as error:
            raise TooLarge(
                str(error),
                details={
                    "what": "log entry bytes",
                    "limit": error.entry_bytes_max,
                    "actual": error.entry_bytes,
                },
            ) from error
        except ProposalsFull as error:
            raise Busy(str(error), details={"what": "proposals"}) from error
        except RaftError as error:
            raise NotLeader(str(error), details={"leader": self.leader_hint()}) from error

    def prepare(self, entry: Entry) -> None:
        if entry.batch is None:
            batch = self.state.batch()
            self.state.fill(batch, entry.rows, entry.others)
            entry.batch = batch

    # ------------------------------------------------------------------ raft.StateMachine

    def applied(self) -> tuple[int, int]:
        return self.state.index, self.state.term

    def apply(self, index: int, term: int, command: Command, token: object | None) -> None:
        """Raises Corruption: the entry is not what was proposed."""
        self.log_bytes += len(command)
        if isinstance(token, Entry):
            self._do(_Work(index, term, entry=token))
        else:
            where = f"partition {self.descriptor.id}, index {index}"
            self._do(_Work(index, term, decoded=decode(command, where)))

    def advance(self, index: int, term: int) -> None:
        self._do(_Work(index, term))

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        self.machine.dropped([t for t in tokens if isinstance(t, Entry)], unknown=unknown)

    def role(self, *, leader: bool, term: int) -> None:
        if leader and self._backlog:
            # Serves once everything below its first own entry is visible (`_catch_up`).
            self._backlog.append(_Work(0, 0))
            return
        self._set_role(leader=leader)

    # ------------------------------------------------------------------ applying

    def _do(self, work: _Work) -> None:
        self._backlog.append(work)
        if len(self._backlog) == 1:
            self._catch_up()

    def _catch_up(self) -> None:
        self._retry = None
        while self._backlog and not self._stopped:
            work = self._backlog[0]
            if not work.index:
                self._backlog.popleft()
                self._set_role(leader=self.group.leader)
                continue
            try:
                self._write(work)
            except Unavailable as error:
                self._refused = error
                self._retry = self._timers.call_later(RETRY_S, self._catch_up)
                return
            self._refused = None
            self._backlog.popleft()
            if work.entry is not None:
                self.machine.applied(work.entry)
            self._on_applied(self)

    def _write(self, work: _Work) -> None:
        state, entry, decoded = self.state, work.entry, work.decoded
        if entry is not None:
            self.prepare(entry)
            batch, entry.batch = entry.batch, None
            state.write(
                batch,
                index=work.index,
                term=work.term,
                top_ts=entry.top_ts,
                safepoint=entry.safepoint,
                old_versions=entry.old_versions,
                live_bytes=entry.live_bytes,
            )
            for key, lock in entry.locks.items():
                state.locks.set(key, lock)
            return
        batch = state.batch()
        if decoded is None:
            state.write(batch, index=work.index, term=work.term)
            return
        state.fill(batch, decoded.rows, decoded.others)
        state.write(
            batch,
            index=work.index,
            term=work.term,
            top_ts=decoded.top_ts,
            safepoint=decoded.safepoint,
            old_versions=decoded.old_versions,
            live_bytes=decoded.live_bytes,
        )
        state.set_locks(decoded.others)

    def _set_role(self, *, leader: bool) -> None:
        if leader != self._leading:
            self._leading = leader
            self.machine.role(leader=leader)

    def stop(self) -> None:
        """Refuse everything that waits here; write nothing any more. The group is stopped by its
        host.
        """
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        entries = [work.entry for work in self._backlog if work.entry is not None]
        self._backlog.clear()
        if entries:
            self.machine.dropped(entries, unknown=True)
        self._set_role(leader=False)
