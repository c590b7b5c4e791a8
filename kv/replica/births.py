"""Partitions that come out of others at this node, and those that go into others: between the entry
that says so (kv.replica.reshape) and the group that is open, or gone.

    split    applied ─▶ coming: its keys are known to be its own, nobody serves them yet
                     ─▶ the state DB is synced ─▶ its group is open; where the old partition led,
                        it asks for the leadership at once, and keeps asking for a while. Requests
                        that come there meanwhile wait, for NEWBORN_WAIT_MS at most: asked to come
                        again they would come late, by pauses that double
    merge    applied ─▶ the partition above refuses everybody (they hear who has its keys)
                     ─▶ the state DB is synced ─▶ its log is removed ─▶ the marker, too

Why the sync before a new group opens: what it has promised or acknowledged is in the log DB. Should
the state DB lose the split after that, and the old partition come back from a snapshot that ends at
the key, there were a log without the state that it begins at. So a log of a partition that was
split off proves that its beginning is durable; and where the entry is applied again after a crash,
the group was never open before.

Why the sync before an old log goes: a state DB that forgot the merge needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, Unavailable, to_wire
from kv.base.ids import PartitionId
from kv.base.limits import NEWBORN_WAIT_MS, QUEUE_REQUESTS_MAX
from kv.base.ports import Timers
from kv.partition.answers import queue_full
from kv.partition.ports import Connection
from kv.partition.shapes import Merge, Shape, Split
from kv.replica.replica import Replica
from kv.replica.reshape import reshape
from kv.replica.state import PartitionState

_CAMPAIGN_S: Final = 0.02
_CAMPAIGNS_MAX: Final = 7


class Manager(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...

    def descriptors(self) -> list[PartitionDescriptor]: ...

    def open_made(self, state: PartitionState) -> Replica:
        """Open the group of a partition that was split off and is durable."""
        ...

    def absorbed(self, descriptor: PartitionDescriptor) -> None:
        """Its rows are another one's, durably: remove its log."""
        ...

    def close_replica(self, partition: PartitionId) -> None:
        """Let go of a replica and its group; nothing stored changes."""
        ...


class Door:
    """Where requests wait for a partition that is coming (kv.server.dispatcher.Machine)."""

    def __init__(self, descriptor: PartitionDescriptor) -> None:
        self.descriptor = descriptor
        self._waiting: list[tuple[Connection, list[object]]] = []

    def submit(self, conn: Connection, request: list[object]) -> None:
        if len(self._waiting) < QUEUE_REQUESTS_MAX:
            self._waiting.append((conn, request))
            return
        limit = QUEUE_REQUESTS_MAX
        error = queue_full(self.descriptor, "requests", limit, len(self._waiting))
        self._refuse(conn, request, error)

    def hand_over(self, made: Replica) -> None:
        """It is open: they are in its queue now."""
        waiting, self._waiting = self._waiting, []
        for conn, request in waiting:
            made.machine.submit(conn, request)

    def dismiss(self, error: KvorumError) -> None:
        waiting, self._waiting = self._waiting, []
        for conn, request in waiting:
            self._refuse(conn, request, error)

    @staticmethod
    def _refuse(conn: Connection, request: list[object], error: KvorumError) -> None:
        conn.reply([request[0], 1, *to_wire(error)])
        conn.flush()


class Births:
    """See the module. All on the loop."""

    def __init__(
        self,
        manager: Manager,
        node: int,
        timers: Timers,
        durably: Callable[[Callable[[], None]], None],
        on_fatal: Callable[[BaseException], object],
    ) -> None:
        """`durably(then)`: call `then` once all that was written to the state DB is durable."""
        self.coming: dict[PartitionId, PartitionState] = {}
        self.doors: dict[PartitionId, Door] = {}  # of those that are led here, most likely
        self._manager, self._node, self._timers = manager, node, timers
        self._durably, self._on_fatal = durably, on_fatal
        self._closed = False
        self._absorbing: dict[PartitionId, list[PartitionDescriptor]] = {}

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        """The partition that has the key and is not open yet."""
        for state in self.coming.values():
            if state.descriptor.covers(key):
                return state.descriptor
        return None

    def apply(self, replica: Replica, shape: Shape, index: int, term: int) -> None:
        """Raises Unavailable: nothing changed; Corruption."""
        taken = self._manager.replica(shape.right.id) if isinstance(shape, Merge) else None
        above = None if taken is None else taken.state
        made = reshape(replica.state, shape, index=index, term=term, node=self._node, above=above)
        if made is not None:
            self.coming[made.descriptor.id] = made

    def machine_knows(self, replica: Replica, shape: Shape) -> None:
        """The machine knows, too."""
        match shape:
            case Split() if shape.new.id in self.coming:
                self._spread(replica)
                if led := replica.leads():
                    self.doors[shape.new.id] = Door(self.coming[shape.new.id].descriptor)
                self._durably(partial(self._open, shape.new.id, led=led))
            case Merge():
                self._spread(replica)
                self._manager.close_replica(shape.right.id)
                self._durably(partial(self._absorbed, shape.right))
            case _:
                pass

    @staticmethod
    def _spread(replica: Replica) -> None:
        """Followers learn what is committed with the next message: let that be now."""
        if replica.leads():
            replica.group.read_barrier(lambda _index: None)

    def absorbs(self, replica: Replica, new: PartitionDescriptor) -> list[PartitionDescriptor]:
        """A snapshot makes the replica wider: it has taken those in whose replicas this node has
        there, and they have nothing more to say. Their logs go once that is durable.
        """
        own = replica.descriptor.id
        here = {d.id: d for d in self._manager.descriptors() if d.id != own}
        # Those of an attempt that came to nothing are closed already, and have records here still.
        closed = {d.id: d for d in self._absorbing.get(own, ()) if d.id not in here}
        gone = [
            d
            for d in (*closed.values(), *here.values())
            if (not new.end or d.start < new.end) and (not d.end or new.start < d.end)
        ]
        for d in gone:
            self._manager.close_replica(d.id)
        self._absorbing[own] = gone
        return gone

    def installed(self, partition: PartitionId) -> None:
        """A snapshot of it is in place, durably."""
        for d in self._absorbing.pop(partition, ()):
            self._absorbed(d)

    def close(self) -> None:
        """The node stops."""
        self._closed = True
        for door in self.doors.values():
            door.dismiss(Unavailable("this node stops; another one serves the partition soon"))
        self.doors.clear()

    def _open(self, id_: PartitionId, *, led: bool) -> None:
        if self._closed:
            return
        state = self.coming.pop(id_)
        try:
            made = self._manager.open_made(state)
        except KvorumError as error:
            self._on_fatal(error)
            return
        if led:
            self._wait_for_leader(made)
            self._campaign(made, 1)

    def _wait_for_leader(self, made: Replica) -> None:
        """Whoever asks is served as soon as it leads, or hears who does."""
        made.machine.wait_for_leader(waits=True)
        self.doors.pop(made.descriptor.id).hand_over(made)
        notify = made.on_role

        def role(replica: Replica, leader: bool) -> None:
            made.machine.wait_for_leader(waits=False)
            made.on_role = notify
            if notify is not None:
                notify(replica, leader)

        made.on_role = role
        wait_s = NEWBORN_WAIT_MS / 1000
        self._timers.call_later(wait_s, partial(made.machine.wait_for_leader, waits=False))

    def _campaign(self, made: Replica, times: int) -> None:
        """The others make their replicas in the same moment: some asking may be in vain."""
        if self._closed or self._manager.replica(made.descriptor.id) is not made:
            return
        if made.leader_hint() is None:
            made.group.campaign()
        elif not made.leads():
            made.machine.wait_for_leader(waits=False)
        if made.leader_hint() is None and times < _CAMPAIGNS_MAX:
            pause_s = _CAMPAIGN_S * 2 ** (times - 1)
            self._timers.call_later(pause_s, self._campaign, made, times + 1)

    def _absorbed(self, gone: PartitionDescriptor) -> None:
        if not self._closed:
            self._manager.absorbed(gone)
