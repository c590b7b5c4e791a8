"""Takes one snapshot of a partition in: chunk by chunk beside the live range, then in its place
(raft.api.SnapshotSink).

    stage    kv.replica.staging: checked, written, acknowledged when the state DB was synced
    install  kv.replica.install: one step per pass of the loop, then a last sync

While it installs, the replica applies nothing and serves nothing. A disk that is nearly full
refuses the snapshot; one that is slow only slows it: chunks are acknowledged late, so that the
sender waits, and steps pause, before the database would refuse anybody's writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, KvorumError, Unavailable
from kv.base.ports import Handle, Timers
from kv.replica.chunks import Target
from kv.replica.install import After, Installer, damaged
from kv.replica.staging import Staging
from kv.replica.syncs import Syncs
from kv.storage.engine import Engine
from raft.api import SnapshotId
from raft.errors import SnapshotUnavailable

Done = Callable[[], None]
MakeRoom = Callable[
    [PartitionDescriptor], tuple[PartitionDescriptor, Sequence[PartitionDescriptor]]
]
"""What the partition is here now; and those that it has taken in elsewhere, and whose replicas here
have just been closed.
"""
RETRY_S: Final = 0.02
PAUSE_S: Final = 0.001  # between two steps: requests of other partitions come first


class RangeSink:
    """See the module. All on the loop."""

    def __init__(
        self,
        engine: Engine,
        descriptor: PartitionDescriptor,
        snapshot: SnapshotId,
        *,
        timers: Timers,
        syncs: Syncs,
        on_installed: Callable[[Installer], None],
        on_fatal: Callable[[BaseException], object],
        make_room: MakeRoom,
    ) -> None:
        """Goes on with what is staged of the same snapshot; forgets any other. `on_installed`: the
        range is the snapshot now, and durable. `make_room(what it will be)`: see MakeRoom. Raises
        SnapshotUnavailable.
        """
        self.snapshot = snapshot
        self.installing = False
        self._engine, self._timers, self._syncs = engine, timers, syncs
        self._on_installed, self._on_fatal = on_installed, on_fatal
        self._partition, self._make_room = descriptor.id, make_room
        self._staging = Staging(engine, snapshot, Target(descriptor, snapshot.index, snapshot.term))
        self._timer: Handle | None = None
        self._installer: Installer | None = None
        self._durable: deque[Done] = deque()  # chunks to be acknowledged, oldest first
        self._stopped = False
        try:
            self._staging.open()
        except (Corruption, Unavailable) as error:
            raise SnapshotUnavailable(error.message) from error

    def staged(self) -> int:
        return self._staging.progress.chunks

    def stage(self, number: int, chunk: bytes, done: Done) -> None:
        """Raises SnapshotUnavailable: the chunk is damaged or not the next one, or there is no room
        for it. Nothing changed.
        """
        full = self._no_room()
        if full is not None and not _is_slow(full):
            raise SnapshotUnavailable(full.message)
        try:
            self._staging.put(number, chunk)
        except (Corruption, Unavailable) as error:
            raise SnapshotUnavailable(error.message) from error
        self._syncs.after(lambda: self._staged(done))

    def _staged(self, done: Done) -> None:
        self._durable.append(done)
        if len(self._durable) == 1:
            self._acknowledge()

    def _acknowledge(self) -> None:
        while self._durable and not self._stopped:
            if self._no_room() is not None:
                self._timer = self._timers.call_later(RETRY_S, self._acknowledge)
                return
            self._durable.popleft()()

    def _no_room(self) -> KvorumError | None:
        """Why nothing should be written now."""
        try:
            self._engine.check_room()
        except Unavailable as error:
            return error
        return None

    def install(self, done: Done) -> None:
        """Raises SnapshotUnavailable: the end is missing, nothing changed."""
        progress = self._staging.progress
        if not progress.ended:
            raise SnapshotUnavailable(
                f"the snapshot of partition {self._partition} at index {self.snapshot.index} ends "
                f"after {progress.chunks} chunks, but it is not whole"
            )
        try:
            new = self._staging.target.descriptor
            here, absorbed = self._make_room(new)
            installer = Installer(self._engine, self._staging, progress.chunks, here, absorbed)
        except Corruption as error:
            raise SnapshotUnavailable(error.message) from error
        self.installing, self._installer = True, installer
        self._step(installer, done)

    def discard(self) -> None:
        self.stop()
        try:
            self._staging.discard()
        except Unavailable:
            return  # it goes before the next snapshot, at the latest

    def stop(self) -> None:
        """Do nothing any more. An installation that has begun is finished when the data are opened
        again.
        """
        self._stopped = True
        if self._installer is not None:
            self._installer.stop()
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ installing

    def _step(self, installer: Installer, done: Done) -> None:
        if self._stopped:
            return
        if (slow := self._no_room()) is not None and _is_slow(slow):
            self._timer = self._timers.call_later(RETRY_S, self._step, installer, done)
            return
        try:
            after, pause_s = installer.step(), PAUSE_S
        except Unavailable:
            after, pause_s = After.MORE, RETRY_S
        except Corruption as error:
            self._refuse(installer, error)
            return
        match after:
            case After.DONE:
                self._syncs.after(lambda: self._installed(installer, done))
            case After.SYNC:
                self._syncs.after(lambda: self._step(installer, done))
            case After.MORE:
                self._timer = self._timers.call_later(pause_s, self._step, installer, done)
            case _:
                assert_never(after)

    def _installed(self, installer: Installer, done: Done) -> None:
        if not self._stopped:
            self.installing = False
            self._on_installed(installer)
            done()

    def _refuse(self, installer: Installer, error: Corruption) -> None:
        """What was staged is damaged. Before the marker the old range is whole, so another snapshot
        can be tried; but consensus waits for this one, so the node must start anew.
        """
        if installer.begun:
            self.stop()
            error = damaged(self._partition, error)
        else:
            self.discard()
        self._on_fatal(error)


def _is_slow(refusal: KvorumError) -> bool:
    """Whether there will be room in a moment: the disk is late, not full."""
    return refusal.details.get("what") == "memtables"
