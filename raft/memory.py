"""Consensus without a disk, a clock or a network: what tests, simulations and the example of the
README run on.

    timers = VirtualTimers()
    db = MemoryLogDB()
    host = RaftHost(node_id=1, log_db=db, syncer=MemorySyncer(db, timers), timers=timers, rng=...,
    on_fatal=...) host.create_group(7, [1]); group = host.open_group(7, machine);
    timers.run(until=lambda: group.leader)

`MemoryLogDB.crash` keeps the promise of `LogDB` and no more: what was synced, and any prefix of the
later batches. Left out: torn single batches (a write-ahead log discards them), slow or failing
reads.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from raft.api import SyncDone
from raft.host import RaftHost

_PUT, _DELETE = 0, 1


class MemoryBatch:
    """Operations in order: (put, key, value) or (delete, start, end)."""

    def __init__(self) -> None:
        self.operations: list[tuple[int, bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.operations.append((_PUT, key, value))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.operations.append((_DELETE, start, end))


class _SortedMap:
    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}

    def run(self, batch: MemoryBatch) -> None:
        for kind, first, second in batch.operations:
            if kind == _PUT:
                if first not in self.values:
                    insort(self.keys, first)
                self.values[first] = second
            else:
                low, high = bisect_left(self.keys, first), bisect_left(self.keys, second)
                for key in self.keys[low:high]:
                    del self.values[key]
                del self.keys[low:high]

    def copy(self) -> _SortedMap:
        other = _SortedMap()
        other.keys, other.values = list(self.keys), dict(self.values)
        return other


class MemoryLogDB:
    """A LogDB that knows which of its batches are durable."""

    def __init__(self) -> None:
        self._live, self._durable = _SortedMap(), _SortedMap()
        self._unsynced: list[MemoryBatch] = []
        self.writes = 0
        self.scans = 0

    def batch(self) -> MemoryBatch:
        return MemoryBatch()

    def write(self, batch: MemoryBatch) -> None:
        self.writes += 1
        self._live.run(batch)
        self._unsynced.append(batch)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.scans += 1
        keys = self._live.keys
        for key in keys[bisect_left(keys, start) : bisect_left(keys, end)]:
            yield key, self._live.values[key]

    # -- for the syncer and for tests

    @property
    def unsynced(self) -> int:
        """Batches that a crash may lose."""
        return len(self._unsynced)

    def make_durable(self, batches: int) -> None:
        for batch in self._unsynced[:batches]:
            self._durable.run(batch)
        del self._unsynced[:batches]

    def crash(self, batches_kept: int = 0) -> MemoryLogDB:
        """The database that a restarted node finds: everything synced, and the first `batches_kept`
        batches after it, which the OS still had. Those are not durable yet: a second crash may
        take them.
        """
        found = MemoryLogDB()
        found._durable, found._live = self._durable.copy(), self._durable.copy()
        for batch in self._unsynced[:batches_kept]:
            found.write(batch)
        return found

    def tamper(self, key: bytes, value: bytes | None) -> None:
        """Change (or with None remove) a stored value behind everybody's back."""
        for stored in (self._live, self._durable):
            if key not in stored.values:
                continue
            if value is not None:
                stored.values[key] = value
            else:
                del stored.values[key]
                stored.keys.remove(key)

    def items(self) -> dict[bytes, bytes]:
        return dict(self._live.values)


class MemorySyncer:
    """Syncs after a virtual delay. `fail_with` makes the next syncs report that error, and nothing
    durable.
    """

    def __init__(
        self, db: MemoryLogDB, timers: VirtualTimers, delay_s: float | Callable[[], float] = 0.001
    ) -> None:
        self._db, self._timers, self._delay_s = db, timers, delay_s
        self.fail_with: BaseException | None = None
        self.running = False

    def start(self, done: SyncDone) -> None:
        assert not self.running, "one sync at a time"
        self.running = True
        delay_s = self._delay_s() if callable(self._delay_s) else self._delay_s
        self._timers.call_later(delay_s, self._finish, self._db.unsynced, done)

    def _finish(self, batches: int, done: SyncDone) -> None:
        self.running = False
        if self.fail_with is None:
            self._db.make_durable(batches)
        done(self.fail_with)


@dataclass(slots=True)
class VirtualTimer:
    """A call that has not happened yet."""

    call: Callable[[], object] | None

    def cancel(self) -> None:
        self.call = None


@dataclass(slots=True)
class VirtualTimers:
    """Virtual time: it passes only inside `run`. Calls due at the same moment run in the order they
    were made.
    """

    now_s: float = 0.0
    _queue: list[tuple[float, int, VirtualTimer]] = field(default_factory=list)
    _sequence: Iterator[int] = field(default_factory=itertools.count)

    def monotonic(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, fn: Callable[..., object], *args: object) -> VirtualTimer:
        timer = VirtualTimer(lambda: fn(*args))
        heapq.heappush(self._queue, (self.now_s + max(0.0, delay_s), next(self._sequence), timer))
        return timer

    def call_soon(self, fn: Callable[..., object], *args: object) -> VirtualTimer:
        return self.call_later(0.0, fn, *args)

    def run(self, seconds: float = 10.0, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Run what falls due within `seconds`, or until the condition holds; returns whether it
        does.
        """
        end_s = self.now_s + seconds
        while not until():
            if not self._queue or self._queue[0][0] > end_s:
                self.now_s = end_s
                return until()
            at_s, _, timer = heapq.heappop(self._queue)
            self.now_s = max(self.now_s, at_s)
            if timer.call is not None:
                timer.call()
        return True


class MemoryNetwork:
    """Delivers messages between hosts after `delay_s()`. `lost(source, target)` decides, and
    `room(source, target)` says whether the source may send entries and chunks now.
    """

    def __init__(
        self,
        timers: VirtualTimers,
        *,
        delay_s: Callable[[], float] = lambda: 0.001,
        lost: Callable[[int, int], bool] = lambda _source, _target: False,
        room: Callable[[int, int], bool] = lambda _source, _target: True,
    ) -> None:
        self.hosts: dict[int, RaftHost] = {}
        self.room = room
        self._timers, self._delay_s, self._lost = timers, delay_s, lost

    def transport(self, node_id: int) -> MemoryTransport:
        return MemoryTransport(self, node_id)

    def carry(self, source: int, target: int, group_id: int, message: Mapping[str, object]) -> None:
        if not self._lost(source, target):
            self._timers.call_later(
                self._delay_s(), self._deliver, source, target, group_id, dict(message)
            )

    def _deliver(self, source: int, target: int, group_id: int, message: dict[str, object]) -> None:
        host = self.hosts.get(target)
        if host is not None:
            host.receive(source, group_id, message)


@dataclass(frozen=True, slots=True)
class MemoryTransport:
    """One node's end of a MemoryNetwork."""

    network: MemoryNetwork
    node_id: int

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        self.network.carry(self.node_id, peer, group_id, message)

    def room(self, peer: int) -> bool:
        return self.network.room(self.node_id, peer)


class MemoryPeers:
    """`raft.peers.Peers` in a dict: which incarnation of each node is known."""

    def __init__(self, known: Mapping[int, bytes] | None = None) -> None:
        self.known: dict[int, bytes] = dict(known or {})

    def load(self) -> dict[int, bytes]:
        return dict(self.known)

    def save(self, node: int, incarnation: bytes) -> None:
        self.known[node] = incarnation
