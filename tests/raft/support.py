"""Fakes and small drivers that the consensus tests share."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raft import RaftConfig, RaftCounters, RaftHost, SnapshotId, SnapshotUnavailable
from raft.memory import MemoryLogDB, MemorySyncer, VirtualTimers
from raft.replica import Replica

GROUP = 7


Image = tuple[tuple[int, int], list[bytes], list[tuple[int, int]]]


@dataclass
class StateDisk:
    """What of a machine's state survives a crash."""

    flushed: Image | None = None
    staged_id: SnapshotId | None = None
    staged: list[bytes] = field(default_factory=list)


@dataclass
class Machine:
    """A state machine that remembers everything it was told, and a hash of it. With `timers` it
    makes and takes snapshots; then what was flushed or installed is on its `disk`.
    """

    at: tuple[int, int] = (0, 0)
    commands: list[bytes] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)
    acked: list[object] = field(default_factory=list)
    lost: list[object] = field(default_factory=list)
    unknown: list[object] = field(default_factory=list)
    roles: list[tuple[bool, int]] = field(default_factory=list)
    hash: int = 0
    on_apply: Callable[[int, bytes], object] = lambda _index, _command: None
    on_role: Callable[[bool], object] = lambda _leader: None
    timers: VirtualTimers | None = None
    disk: StateDisk = field(default_factory=StateDisk)
    disk_s: float = 0.002
    sources: list[Source] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.disk.flushed is not None:
            self.load(self.disk.flushed)

    def load(self, image: Image) -> None:
        self.at, self.commands, self.entries = image[0], list(image[1]), list(image[2])
        self.hash = 0
        for command in self.commands:
            self.hash = zlib.crc32(command, self.hash)

    def flush(self) -> int:
        """Make the state durable; its index, up to which the log may be forgotten."""
        self.disk.flushed = (self.at, list(self.commands), list(self.entries))
        return self.at[0]

    def crash(self) -> StateDisk:
        """What the next life finds. What is on its way to the disk now never arrives."""
        disk, self.disk = self.disk, StateDisk()
        return disk

    def snapshot(self) -> Source:
        if self.timers is None:
            raise SnapshotUnavailable("this machine makes no snapshots")
        commands = [command.hex() for command in self.commands]
        data = json.dumps([self.at, commands, self.entries]).encode()
        source = Source(*self.at, data)
        self.sources.append(source)
        return source

    def restore(self, snapshot: SnapshotId) -> Sink:
        if self.timers is None:
            raise SnapshotUnavailable("this machine takes no snapshots")
        if self.disk.staged_id != snapshot:
            self.disk.staged_id, self.disk.staged = snapshot, []
        return Sink(self, snapshot)

    def applied(self) -> tuple[int, int]:
        return self.at

    def apply(
        self, index: int, term: int, command: bytes | memoryview, token: object | None
    ) -> None:
        self._step(index, term)
        data = bytes(command)
        self.commands.append(data)
        self.hash = zlib.crc32(data, self.hash)
        self.on_apply(index, data)
        if token is not None:
            self.acked.append(token)

    def advance(self, index: int, term: int) -> None:
        self._step(index, term)

    def _step(self, index: int, term: int) -> None:
        assert index == self.at[0] + 1, f"applied {index} after {self.at[0]}"
        assert term >= self.at[1]
        self.at = (index, term)
        self.entries.append(self.at)

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        (self.unknown if unknown else self.lost).extend(tokens)

    def role(self, *, leader: bool, term: int) -> None:
        self.roles.append((leader, term))
        self.on_role(leader)


@dataclass
class Source:
    """A SnapshotSource; `broken` makes the next read fail."""

    index: int
    term: int
    data: bytes
    position: int = 0
    closed: int = 0
    broken: bool = False

    def read(self, bytes_max: int) -> bytes | None:
        assert not self.closed, "read after close"
        if self.broken:
            raise SnapshotUnavailable("the view is gone")
        chunk = self.data[self.position : self.position + bytes_max]
        self.position += len(chunk)
        return chunk or None

    def close(self) -> None:
        self.closed += 1


@dataclass
class Sink:
    """A SnapshotSink on a StateDisk: every step is durable at one moment and reported at a later
    one.
    """

    machine: Machine
    id: SnapshotId
    discarded: bool = False

    def staged(self) -> int:
        return len(self.machine.disk.staged)

    def stage(self, number: int, chunk: bytes, done: Callable[[], None]) -> None:
        assert chunk, "an empty chunk"
        self._later(lambda: self._staged(number, chunk), done)

    def _staged(self, number: int, chunk: bytes) -> None:
        disk = self.machine.disk
        if disk.staged_id == self.id and not self.discarded:
            assert number == len(disk.staged), f"chunk {number} after {len(disk.staged)}"
            disk.staged.append(chunk)

    def install(self, done: Callable[[], None]) -> None:
        self._later(self._installed, done)

    def _installed(self) -> None:
        disk = self.machine.disk
        if disk.staged_id != self.id:
            return  # the machine has crashed
        at, commands, entries = json.loads(b"".join(disk.staged))
        assert tuple(at) == (self.id.index, self.id.term)
        words = [bytes.fromhex(command) for command in commands]
        disk.flushed = (at[0], at[1]), words, [(index, term) for index, term in entries]
        disk.staged_id, disk.staged = None, []
        self.machine.load(disk.flushed)

    def discard(self) -> None:
        self.discarded = True
        if self.machine.disk.staged_id == self.id:
            self.machine.disk.staged_id, self.machine.disk.staged = None, []

    def _later(self, durable: Callable[[], object], done: Callable[[], None]) -> None:
        timers = self.machine.timers
        assert timers is not None
        timers.call_later(self.machine.disk_s, durable)
        timers.call_later(2 * self.machine.disk_s, done)


@dataclass
class Sent:
    """A PeerTransport that keeps what it was given."""

    messages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        self.messages.append((peer, {**message, "early": early}))

    def room(self, peer: int) -> bool:
        return True

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [message for _, message in self.messages if message["type"] == kind]


class Node:
    """One host on fakes. `crash` gives the node that restarts from what was durable."""

    def __init__(
        self,
        node_id: int = 1,
        *,
        db: MemoryLogDB | None = None,
        timers: VirtualTimers | None = None,
        sync_s: float | Callable[[], float] = 0.001,
        config: RaftConfig | None = None,
        transport: Any = None,
        seed: int = 1,
    ) -> None:
        self.node_id = node_id
        self.db = MemoryLogDB() if db is None else db
        self.timers = VirtualTimers() if timers is None else timers
        self.syncer = MemorySyncer(self.db, self.timers, sync_s)
        self.fatal: list[BaseException] = []
        self.counters = RaftCounters()
        self.config = RaftConfig() if config is None else config
        self.host = RaftHost(
            node_id=node_id,
            log_db=self.db,
            syncer=self.syncer,
            timers=self.timers,
            rng=random.Random(seed),
            transport=transport,
            config=self.config,
            on_fatal=self.fatal.append,
            counters=self.counters,
        )

    def open(self, machine: Machine, group_id: int = GROUP) -> Replica:
        """Create the group with this node as its only voter, and open it."""
        self.host.create_group(group_id, [self.node_id])
        return self.host.open_group(group_id, machine)

    def lead(self, machine: Machine, group_id: int = GROUP) -> Replica:
        """`open`, and wait until it serves."""
        group = self.open(machine, group_id)
        assert self.timers.run(until=lambda: group.leader), "the lone voter did not take office"
        return group

    def crash(self, batches_kept: int = 0) -> Node:
        self.host.close()
        return Node(self.node_id, db=self.db.crash(batches_kept), timers=self.timers)


def lone_leader(**options: Any) -> tuple[Node, Machine, Replica]:
    """A serving lone voter."""
    node, machine = Node(**options), Machine()
    return node, machine, node.lead(machine)
