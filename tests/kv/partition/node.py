"""A node of one process for tests: real RaftHost and engine in memory, virtual time, a counting
oracle.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kv.base import methods
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, Unavailable, from_wire
from kv.base.ids import NodeId, PartitionId
from kv.base.intents import NOBODY
from kv.base.limits import ENTRY_BYTES_MAX, LOG_KEEP_BYTES
from kv.base.timestamps import compose
from kv.mvcc.gc import Collected, Due, OldVersions
from kv.mvcc.records import Lock
from kv.partition.machine import PartitionMachine
from kv.partition.ports import Timestamps
from kv.partition.scheduler import Scheduler
from kv.partition.timestamps import AtOnce
from kv.replica.disk_room import Room
from kv.replica.due_garbage import due_rows
from kv.replica.manager import ReplicaManager
from kv.storage.engine import STATE_FAMILIES, Engine
from kv.storage.memory import MemoryEngine
from raft.api import RaftConfig
from raft.host import RaftHost
from raft.memory import MemoryLogDB, MemorySyncer, VirtualTimers

START_MS = 1_700_000_000_000


class VirtualClock:
    """Wall clock and monotonic time of the virtual timers; `skew_ms` makes the wall clock jump."""

    def __init__(self, timers: VirtualTimers) -> None:
        self._timers = timers
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + int(self._timers.now_s * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._timers.now_s


class Oracle:
    """Rising timestamps near the clock. `stuck` makes it refuse."""

    def __init__(self, clock: VirtualClock, last: int = 0) -> None:
        self._clock = clock
        self.last = last
        self.stuck = False
        self.takes = 0

    def __call__(self, n: int) -> int:
        if self.stuck:
            raise Unavailable("the durable bound of the oracle is not raised yet")
        self.takes += 1
        first = max(self.last + 1, compose(self._clock.now_ms()))
        self.last = first + n - 1
        return first


class Conn:
    """Collects replies; `rows[rid]` is the reply, kept apart until it is flushed."""

    author = NOBODY

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.flushes = 0
        self.full = False  # takes no large replies …
        self.wakes: list[Callable[[], None]] = []  # … and whom to tell once it does
        self._queued: list[list[Any]] = []

    def reply(self, row: list[Any]) -> None:
        assert row[0] not in self.rows, f"request {row[0]} was answered twice"
        self._queued.append(row)

    def flush(self) -> None:
        self.flushes += 1
        for row in self._queued:
            assert row[0] not in self.rows, f"request {row[0]} was answered twice"
            self.rows[row[0]] = row
        self._queued.clear()

    def ready(self, wake: Callable[[], None]) -> bool:
        if self.full:
            self.wakes.append(wake)
        return not self.full


class Node:
    """One node with partitions split at `splits`. `crash()` gives the node that restarts after a
    power loss.
    """

    def __init__(
        self,
        splits: tuple[bytes, ...] | None = (),
        *,
        engine: Engine | None = None,
        log: MemoryLogDB | None = None,
        oracle_last: int = 0,
        sync_s: float | Callable[[], float] = 0.001,
        keep: int = 1000,
        keep_bytes: int = LOG_KEEP_BYTES,
        timestamps: Timestamps | None = None,
        shard: str = "",
    ) -> None:
        self.timers = VirtualTimers()
        self.clock = VirtualClock(self.timers)
        self.oracle = Oracle(self.clock, oracle_last)
        self.engine = MemoryEngine(STATE_FAMILIES) if engine is None else engine
        self.log = MemoryLogDB() if log is None else log
        self.syncer = MemorySyncer(self.log, self.timers, sync_s)
        self.fatal: list[BaseException] = []
        self.host = RaftHost(
            node_id=1,
            log_db=self.log,
            syncer=self.syncer,
            timers=self.timers,
            rng=random.Random(1),
            on_fatal=self.fatal.append,
            config=RaftConfig(
                entry_bytes_max=ENTRY_BYTES_MAX, append_bytes_max=2 * ENTRY_BYTES_MAX
            ),
        )
        self.scheduler = Scheduler(self.timers.call_soon, self.clock, self.host.defer)
        self.room = Room([self.engine])
        self.manager = ReplicaManager(
            self.engine,
            self.host,
            timestamps=timestamps or AtOnce(self.oracle),
            scheduler=self.scheduler,
            timers=self.timers,
            in_thread=self._in_thread,
            on_fatal=self.fatal.append,
            log_keep_entries=keep,
            room=self.room,
            log_keep_bytes=keep_bytes,
        )
        """`splits` None: only what is stored."""
        bounds = (b"",) if splits is None else (b"", *splits, b"")
        self.wanted = [
            PartitionDescriptor(
                *(PartitionId(i + 1), bounds[i], bounds[i + 1], 1, (NodeId(1),)), shard=shard
            )
            for i in range(len(bounds) - 1)
        ]
        self.conn = Conn()
        self._rid = 0
        run(self.manager.open_all())
        for descriptor in self.wanted:
            run(self.manager.create(descriptor))
        self.settle(lambda: all(r.serving() for r in self.manager.replicas()))

    @staticmethod
    async def _in_thread(fn: Callable[[], None]) -> None:
        fn()

    def settle(self, until: Callable[[], bool], seconds: float = 15.0) -> None:
        assert self.timers.run(seconds, until=until), "it never happened"

    def machine(self, key: bytes = b"") -> PartitionMachine:
        descriptor = self.manager.covering(key)
        assert descriptor is not None
        machine = self.manager.by_id(descriptor.id)
        assert machine is not None
        return machine

    def locks(self, key: bytes = b"") -> dict[bytes, Lock]:
        """The intents that commands at the key's partition would meet."""
        machine = self.machine(key)
        replica = self.manager.replica(machine.descriptor.id)
        assert replica is not None
        flying = [e for e in (machine.view.flying, machine.view.open) if e is not None]
        keys = set(replica.state.locks).union(*(e.locks for e in flying))
        keys.update(*(lock.chunk for e in flying for lock in e.laid.values()))
        found = {k: machine.view.lock(k) for k in sorted(keys)}
        return {k: lock for k, lock in found.items() if lock is not None}

    # -- requests

    def send(self, method: int, key: bytes, *args: Any, budget_s: float = 10.0) -> int:
        """Submit at the key's partition; the rid."""
        machine = self.machine(key)
        d = machine.descriptor
        self._rid += 1
        deadline = self.clock.monotonic() + budget_s
        machine.submit(self.conn, [self._rid, method, deadline, d.id, d.epoch, *args])
        return self._rid

    def reply(self, rid: int) -> list[Any]:
        """Run until the reply is there; its result, or its error raised."""
        self.settle(lambda: rid in self.conn.rows)
        row = self.conn.rows[rid]
        if row[1]:
            raise from_wire(row[2:])
        return row[2:]

    def error(self, rid: int) -> KvorumError:
        self.settle(lambda: rid in self.conn.rows)
        row = self.conn.rows[rid]
        assert row[1] == 1, f"an error was expected, got {row}"
        return from_wire(row[2:])

    def call(self, method: int, key: bytes, *args: Any) -> list[Any]:
        return self.reply(self.send(method, key, *args))

    def put(self, key: bytes, value: bytes, cond: int | None = None, ttl_ms: int = 0) -> int:
        version: int = self.call(methods.PUT, key, key, value, cond, ttl_ms)[0]
        return version

    def delete(self, key: bytes, cond: int | None = None) -> int:
        version: int = self.call(methods.DELETE, key, key, cond)[0]
        return version

    def get(self, key: bytes, at: int = 0, ignore: list[int] | None = None) -> tuple[Any, int]:
        value, version = self.call(methods.GET, key, key, at, ignore)
        return value, version

    # -- accidents

    def collect(self, key: bytes, safepoint: int, floor: int = 1 << 63) -> KvorumError | None:
        """Raise the safepoint of the partition of `key` and collect all that is due in it; why it
        did not work.
        """
        machine = self.machine(key)
        told: list[Any] = []
        machine.raise_safepoint(safepoint, told.append)
        self.settle(lambda: bool(told))
        at: bytes | None = b"" if told == [None] else None
        while at is not None:
            machine.collect(OldVersions(at), told.append)
            self.settle(lambda: isinstance(told[-1], Collected | KvorumError))
            at = told.pop().at if isinstance(told[-1], Collected) else None
        at = b"" if told[-1] is None else None
        while at is not None:
            found = due_rows(self.engine, self.manager.covering, at, safepoint, 500)
            rows, at = found.of.get(machine.descriptor.id, []), found.at
            machine.collect(Due(rows, floor), told.append)
            self.settle(lambda: isinstance(told[-1], Collected | KvorumError))
            if isinstance(told[-1], Collected):
                told.pop()
        return None if told[-1] is None else told[-1]

    def crash(self, seed: int = 0, **options: Any) -> Node:
        """The node after a power loss: both databases lose what was not synced, but for a random
        prefix.
        """
        rng = random.Random(seed)
        assert isinstance(self.engine, MemoryEngine)
        kept = int(rng.random() * (self.log.unsynced + 1))
        return Node(
            tuple(d.start for d in self.wanted[1:]),
            engine=self.engine.crash(rng),
            log=self.log.crash(kept),
            oracle_last=self.oracle.last + 1000,
            **options,
        )


def run(coroutine: Any) -> None:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine waited for something")
