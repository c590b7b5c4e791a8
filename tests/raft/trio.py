"""Nodes of one group in memory, on a network that a test may cut, delay, thin out and read."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raft import RaftConfig
from raft.memory import MemoryLogDB, MemoryNetwork, VirtualTimers
from raft.replica import Replica
from tests.raft.support import GROUP, Machine, Node, StateDisk

Message = Mapping[str, Any]
VOTERS = (1, 2, 3)
SMALL = RaftConfig(
    snapshot_chunk_bytes=200,
    snapshot_window_chunks=4,
    log_tail_bytes=0,
    log_keep_bytes_max=0,
)
"""Chunks of a few commands, and logs that keep nothing below `compact`."""


@dataclass(frozen=True)
class Letter:
    at_s: float
    source: int
    target: int
    message: Message


class Network(MemoryNetwork):
    """Keeps every message that was sent. `passes(letter)` decides; `delay(letter)` in seconds."""

    def __init__(self, timers: VirtualTimers) -> None:
        super().__init__(timers, delay_s=lambda: self._now_s)
        self._clock, self._now_s = timers, 0.0
        self.letters: list[Letter] = []
        self.passes: Callable[[Letter], bool] = lambda _letter: True
        self.delay: Callable[[Letter], float] = lambda _letter: 0.001

    def carry(self, source: int, target: int, group_id: int, message: Message) -> None:
        letter = Letter(self._clock.now_s, source, target, message)
        self.letters.append(letter)
        if self.passes(letter):
            self._now_s = self.delay(letter)
            super().carry(source, target, group_id, message)

    def sent(self, kind: str, *, target: int | None = None, since_s: float = 0.0) -> list[Letter]:
        return [
            letter
            for letter in self.letters
            if letter.message["type"] == kind
            and letter.at_s >= since_s
            and target in (None, letter.target)
        ]


class Trio:
    """See the module. Nodes start with `start`, also after `crash`."""

    def __init__(
        self,
        *,
        config: RaftConfig = SMALL,
        voters: tuple[int, ...] = VOTERS,
        up: tuple[int, ...] = VOTERS,
        seed: int = 1,
    ) -> None:
        self.rng, self.timers, self.config, self.voters = (
            random.Random(seed),
            VirtualTimers(),
            config,
            voters,
        )
        self.network = Network(self.timers)
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, Machine] = {}
        self.groups: dict[int, Replica] = {}
        self.written: list[bytes] = []
        for node_id in up:
            self.start(node_id)

    def start(
        self,
        node_id: int,
        db: MemoryLogDB | None = None,
        disk: StateDisk | None = None,
        *,
        member: bool = True,
        snapshots: bool = True,
    ) -> Replica:
        """`member` False: an empty replica that learns its configuration from the leader."""
        node = Node(
            node_id,
            db=db,
            timers=self.timers,
            config=self.config,
            transport=self.network.transport(node_id),
            seed=self.rng.randrange(1 << 30),
        )
        disk = StateDisk() if disk is None else disk
        machine = Machine(timers=self.timers if snapshots else None, disk=disk)
        node.host.create_group(GROUP, self.voters if member else [])
        self.nodes[node_id], self.machines[node_id] = node, machine
        self.groups[node_id] = node.host.open_group(GROUP, machine)
        self.network.hosts[node_id] = node.host
        return self.groups[node_id]

    def stop(self, node_id: int, kept: int = 0) -> tuple[MemoryLogDB, StateDisk]:
        """Crash a node; what its next life finds. `kept` batches of its log DB were not synced and
        survive all the same."""
        node, machine = self.nodes.pop(node_id), self.machines.pop(node_id)
        del self.network.hosts[node_id], self.groups[node_id]
        node.host.close()
        for source in machine.sources:
            assert source.closed == 1, "a source that nobody closed"
        return node.db.crash(kept), machine.crash()

    # -- what is done

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        reached = self.timers.run(seconds, until=until)
        for node in self.nodes.values():
            assert node.fatal == []
        return reached

    def lead(self) -> int:
        """Wait for a leader whose followers have answered; its id."""
        assert self.run(20, until=lambda: self.leader is not None), "no leader"
        self.run(0.1)
        leader = self.leader
        assert leader is not None
        return leader

    @property
    def leader(self) -> int | None:
        serving = [node_id for node_id, group in self.groups.items() if group.leader]
        return max(serving, key=lambda node_id: self.groups[node_id].term, default=None)

    def write(self, count: int, size: int = 10) -> None:
        """Propose commands at the leader and wait until it has applied them."""
        leader = self.leader
        assert leader is not None
        group = self.groups[leader]
        for _ in range(count):
            command = b"%d:" % len(self.written) + b"x" * size
            group.propose(command, None)
            self.written.append(command)
        assert self.run(20, until=lambda: group.applied_index == group.last_index)

    def forget(self, node_id: int | None = None) -> None:
        """Flush the state and cut the log, of one node or of all."""
        for member in self.groups if node_id is None else [node_id]:
            self.groups[member].compact(self.machines[member].flush())

    def has_all(self, *node_ids: int) -> bool:
        return all(self.machines[node_id].commands == self.written for node_id in node_ids)

    def agree(self, *, seconds: float = 60.0) -> None:
        """Every node that is up reaches the same state, and the transfers leave nothing behind."""
        assert self.run(seconds, until=lambda: self.has_all(*self.groups)), "they do not converge"
        self.run(2.0)
        hashes = {machine.hash for machine in self.machines.values()}
        entries = [machine.entries for machine in self.machines.values()]
        assert len(hashes) == 1
        assert all(one == entries[0] for one in entries)
        for machine in self.machines.values():
            assert all(source.closed == 1 for source in machine.sources)

    def one_behind(self, count: int = 40) -> int:
        """Node 3 was down while the others wrote and forgot their logs; the leader."""
        leader = self.lead()
        self.write(count)
        self.forget()
        return leader
