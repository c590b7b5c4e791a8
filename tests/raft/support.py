"""Fakes and small drivers that the consensus tests share."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raft import RaftConfig, RaftCounters, RaftHost
from raft.memory import MemoryLogDB, MemorySyncer, VirtualTimers
from raft.replica import Replica

GROUP = 7


@dataclass
class Machine:
    """A state machine that remembers everything it was told, and a hash of it."""

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
