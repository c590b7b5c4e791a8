"""`Cycle`: one write and one sync after the other for all groups of a node, and what waits for
them. The base of `raft.host.RaftHost`.

The order of one sync's end is the speed of the hot path (and is tested):

    1  mark     every group of the sync learns what is durable now
    2  send     messages that waited for this sync leave (votes, append replies)
    3  apply    per group: commit, `StateMachine.apply`; it may propose its next entry from there
    4  hooks    `on_synced` callbacks: partitions seal what they collected meanwhile
    5  kick     everything proposed in 3 and 4 goes into one write, and the next sync begins
    6  defer    callbacks given to `defer`: writing replies, while the disk works

Invariants
  * at most one sync is in flight; what is written meanwhile waits for the next one, so syncs merge
    under load;
  * a message that claims durability leaves after a sync that began after it was made;
  * what a callback raises ends that callback and nothing else;
  * after a failed sync nothing is acknowledged, applied or sent any more (a later sync of the same
    bytes proves nothing: "Can Applications Recover from fsync Failures?", Rebello and others, ATC
    2020).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from raft.api import LogDB, PeerTransport, RaftConfig, RaftCounters, Syncer, Timers
from raft.errors import SyncFailed
from raft.journal import LogBuffer
from raft.replica import Replica
from raft.ticker import Ticker

log = logging.getLogger(__name__)

Callback = Callable[[], object]


class Cycle:
    """See the module."""

    def __init__(
        self,
        log_db: LogDB,
        syncer: Syncer,
        timers: Timers,
        on_fatal: Callable[[BaseException], object],
        transport: PeerTransport | None,
        config: RaftConfig,
        counters: RaftCounters,
    ) -> None:
        self.config, self.counters = config, counters
        self._syncer, self._timers, self._transport = syncer, timers, transport
        self._on_fatal = on_fatal
        self._buffer = LogBuffer(log_db, self._disk_failed)
        self._replicas: dict[int, Replica] = {}
        self._dirty: list[int] = []
        self._flying: list[Replica] = []
        self._held: list[tuple[int, int, Mapping[str, object]]] = []
        self._held_flying: list[tuple[int, int, Mapping[str, object]]] = []
        self._barriers: list[Callback] = []
        self._barriers_flying: list[Callback] = []
        self._hooks: list[Callback] = []
        self._deferred: list[Callback] = []
        self._syncing = False
        self._starting = False
        self._kick_scheduled = False
        self._closed: str | None = None
        self._ticker = Ticker(timers, config.tick_ms / 1000, self._tick)

    # ------------------------------------------------------------------ hooks of the hot path

    def on_synced(self, callback: Callback) -> Callback:
        """Call `callback` at the end of every sync, after applying and before the next one begins.

        Returns a function that takes it off the list again.
        """
        self._hooks.append(callback)
        return lambda: self._hooks.remove(callback) if callback in self._hooks else None

    def defer(self, callback: Callback) -> None:
        """Call `callback` once, in this step of the loop, but after the next sync was started: for
        writing replies.
        """
        self._deferred.append(callback)
        self._kick_soon()

    def barrier(self, done: Callback) -> None:
        """Call `done` when everything written so far (by any group) is durable. Never after a
        failure.
        """
        self._barriers.append(done)
        self._kick_soon()

    def kick(self) -> None:
        """Start a sync now if there is something to sync and none is in flight. Called for you at
        the end of each sync and once per pass of the loop; calling it from `apply` starts a sync
        that other groups then miss."""
        if self._syncing or self._closed is not None:
            return
        try:
            self._buffer.write()
        except SyncFailed:
            return  # the buffer told us already
        if not self._buffer.unsynced and not self._dirty:
            self._release_unneeded()
            return
        self._buffer.unsynced = False
        dirty, self._dirty = self._dirty, []
        self._flying = [
            replica for group_id in dirty if (replica := self._replicas.get(group_id)) is not None
        ]
        for replica in self._flying:
            replica.sync_begins()
        self._held_flying, self._held = self._held, []
        self._barriers_flying, self._barriers = self._barriers, []
        self._syncing = self._starting = True
        try:
            self._syncer.start(self._on_sync)
        except Exception as error:  # noqa: BLE001 - fail-stop: whatever it is, nothing was synced
            self._disk_failed(error)
        self._starting = False

    def _release_unneeded(self) -> None:
        """Nothing is unsynced, so what waits for a sync waits for nothing."""
        held, self._held = self._held, []
        barriers, self._barriers = self._barriers, []
        self._send_held(held)
        self._run(barriers)

    def _kick_soon(self) -> None:
        """At the end of this pass of the loop, so that the groups that it wakes share one sync."""
        if not self._kick_scheduled:
            self._kick_scheduled = True
            self._timers.call_soon(self._kick_now)

    def _kick_now(self) -> None:
        self._kick_scheduled = False
        self.kick()
        self._run_deferred()

    def _run_deferred(self) -> None:
        while self._deferred:
            deferred, self._deferred = self._deferred, []
            self._run(deferred)

    def _run(self, callbacks: Iterable[Callback]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                # It is its owner's, who acknowledged nothing by it; the others are waited for, too.
                self.counters.callback_errors += 1
                log.exception("a callback after a sync broke: %r", error)

    def _note_dirty(self, group_id: int) -> None:
        self._dirty.append(group_id)
        if not self._syncing:
            self._kick_soon()

    # ------------------------------------------------------------------ the end of a sync

    def _on_sync(self, error: BaseException | None) -> None:
        if self._starting:  # a syncer that is done at once must not recurse into us
            self._timers.call_soon(self._on_sync, error)
            return
        if self._closed is not None:
            return
        if error is not None:
            self._disk_failed(error)
            return
        self._syncing = False
        self.counters.syncs += 1
        self._kick_scheduled = True  # we kick at the end: what is proposed on the way need not
        try:
            flying = self._deliver_sync()
        finally:
            self._kick_scheduled = False
        self.kick()
        self._run_deferred()
        for replica in flying:
            self.schedule(replica)

    def _deliver_sync(self) -> list[Replica]:
        """Steps 1 to 4 of the module's list; the replicas whose entries the sync carried."""
        # Taken before anything runs that may kick: the next sync has a cargo of its own.
        flying, self._flying = self._flying, []
        held, self._held_flying = self._held_flying, []
        barriers, self._barriers_flying = self._barriers_flying, []
        for replica in flying:
            replica.sync_ended()
        self._send_held(held)
        for replica in flying:
            self.guard(replica, replica.after_sync)
        self._run((*barriers, *self._hooks))
        return flying

    def _disk_failed(self, error: BaseException) -> None:
        failure = SyncFailed()
        failure.__cause__ = error
        self._fail(failure)

    def guard(self, replica: Replica, door: Callable[..., object], *args: object) -> None:
        """Run a replica's door; whatever it raises stops that replica, for its state can no longer
        be trusted.
        """
        if replica.stopped:
            return
        try:
            door(*args)
        except Exception as error:  # noqa: BLE001 - fail-stop: the state machine may raise anything
            self._report(error)
            self._stop_replica(replica, str(error))

    def enter(self, replica: Replica, door: Callable[..., object], *args: object) -> None:
        """Call back into a replica from outside of its doors."""
        self.guard(replica, door, *args)
        self.schedule(replica)

    def soon(self, replica: Replica, door: Callable[[], object]) -> None:
        """`enter`, but after everything else that the loop has to do now."""
        self._timers.call_soon(self.enter, replica, door)

    def _stop_replica(self, replica: Replica, reason: str) -> None:
        try:
            replica.stop(reason)
        except Exception as error:  # noqa: BLE001 - it is broken already; the others must go on
            self._report(error)

    def _report(self, error: BaseException) -> None:
        self.counters.fatal_errors += 1
        self._on_fatal(error)

    def _fail(self, error: BaseException) -> None:
        self._shut(str(error))
        self._report(error)

    def _shut(self, reason: str) -> None:
        if self._closed is not None:
            return
        self._closed = reason
        self._hooks.clear()
        self._ticker.close()
        self._held, self._held_flying, self._barriers, self._barriers_flying = [], [], [], []
        for replica in list(self._replicas.values()):
            self._stop_replica(replica, reason)
        self._buffer.close()

    # ------------------------------------------------------------------ messages that wait

    def _post(
        self, group_id: int, peer: int, message: Mapping[str, object], *, early: bool
    ) -> None:
        if self._transport is None or self._closed is not None:
            return
        if early:
            self._transport.send(peer, group_id, message, early=True)
        else:
            self._held.append((peer, group_id, message))
            self._kick_soon()

    def _send_held(self, held: list[tuple[int, int, Mapping[str, object]]]) -> None:
        if self._transport is not None:
            for peer, group_id, message in held:
                self._transport.send(peer, group_id, message, early=False)

    # ------------------------------------------------------------------ time

    def schedule(self, replica: Replica) -> None:
        """Have the replica ticked when its next deadline is due; an idle lone voter has none."""
        deadline_s = replica.next_deadline_s()
        if deadline_s is not None:
            self._ticker.schedule(replica.group_id, deadline_s)

    def _tick(self, group_id: int) -> None:
        replica = self._replicas.get(group_id)
        if replica is None:
            return
        deadline_s = replica.next_deadline_s()
        if deadline_s is not None and deadline_s <= self._timers.monotonic():
            self.guard(replica, replica.tick)
        self.schedule(replica)
