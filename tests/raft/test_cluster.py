"""Three voters in memory: a bounded smoke test that the design carries to several voters.

Random delays, losses, cuts, forgotten logs (so snapshots) and crashes with lost unsynced writes.
Checked all the time: one leader per term, equal commands at equal indexes, no acknowledged command
lost. Not here: duplicates, clock faults, membership under faults (the simulation has them).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from raft.memory import MemoryLogDB, MemoryNetwork, VirtualTimers
from raft.replica import Replica
from tests.raft.support import GROUP, Machine, Node, StateDisk
from tests.raft.trio import SMALL

VOTERS = (1, 2, 3)


class Cluster:
    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.rng, self.timers, self.faults = random.Random(seed), VirtualTimers(), faults
        self.cut: set[tuple[int, int]] = set()
        self.network = MemoryNetwork(self.timers, delay_s=self.delay_s, lost=self.lost)
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, Machine] = {}
        self.groups: dict[int, Replica] = {}
        self.leaders: dict[int, int] = {}
        self.truth: dict[int, bytes] = {}
        self.acked: list[bytes] = []
        self.installed = 0
        for node_id in VOTERS:
            self.start(node_id, MemoryLogDB(), StateDisk())

    def delay_s(self) -> float:
        late = self.faults and self.rng.random() < 0.05
        return 0.001 + self.rng.random() * (1.5 if late else 0.004)

    def lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cut or (self.faults and self.rng.random() < 0.05)

    def start(self, node_id: int, db: MemoryLogDB, disk: StateDisk) -> None:
        node = Node(
            node_id,
            db=db,
            timers=self.timers,
            sync_s=lambda: self.rng.choice([0.0005, 0.002, 0.02]),
            transport=self.network.transport(node_id),
            seed=self.rng.randrange(1 << 30),
            config=SMALL,
        )
        machine = Machine(timers=self.timers, disk=disk, disk_s=self.rng.choice([0.001, 0.05]))
        machine.on_role = lambda leader: self.elected(node_id) if leader else None
        machine.on_apply = lambda index, command: self.applied(node_id, index, command)
        node.host.create_group(GROUP, VOTERS)
        self.nodes[node_id], self.machines[node_id] = node, machine
        self.groups[node_id] = node.host.open_group(GROUP, machine)
        self.network.hosts[node_id] = node.host

    def crash(self, node_id: int, *, down_s: float) -> None:
        node = self.nodes[node_id]
        self.collect()
        self.network.hosts.pop(node_id)
        node.host.close()
        assert node.fatal == []
        db = node.db.crash(self.rng.randint(0, node.db.unsynced))
        disk = self.machines[node_id].crash()
        self.installed += node.counters.snapshots_installed
        self.timers.call_later(down_s, self.start, node_id, db, disk)

    def forget(self, node_id: int) -> None:
        """Flush the state and cut the log, if it is not being replaced just now."""
        machine, group = self.machines[node_id], self.groups[node_id]
        if node_id in self.network.hosts and machine.at[0] <= group.applied_index:
            group.compact(machine.flush())

    # -- what is checked

    def elected(self, node_id: int) -> None:
        term = self.groups[node_id].term
        assert self.leaders.setdefault(term, node_id) == node_id, f"two leaders in term {term}"

    def applied(self, node_id: int, index: int, command: bytes) -> None:
        assert self.truth.setdefault(index, command) == command, (
            f"node {node_id} differs at {index}"
        )

    def collect(self) -> None:
        for machine in self.machines.values():
            self.acked += [token for token in machine.acked if isinstance(token, bytes)]
            machine.acked.clear()

    # -- what is done

    @property
    def leader(self) -> Replica | None:
        serving = [
            self.groups[node_id] for node_id in self.network.hosts if self.groups[node_id].leader
        ]
        return max(serving, key=lambda group: group.term, default=None)

    def write(self, command: bytes) -> None:
        leader = self.leader
        if leader is not None:
            leader.propose(command, command)

    def settle(self) -> None:
        """Heal, then every replica must reach the same end (liveness within a bound)."""
        self.faults = False
        self.cut.clear()
        assert self.timers.run(20, until=lambda: len(self.network.hosts) == 3)
        assert self.timers.run(20, until=lambda: self.leader is not None)
        for attempt in range(20):  # a leader of the past may take the first ones
            self.write(b"last %d" % attempt)
            if self.timers.run(1, until=lambda n=attempt: self.all_have(b"last %d" % n)):  # type: ignore[misc]
                break
        else:
            pytest.fail("no progress after healing")
        self.timers.run(3)
        assert all(node.fatal == [] for node in self.nodes.values())
        commands = [machine.commands for machine in self.machines.values()]
        assert commands[0] == commands[1] == commands[2]
        self.collect()
        assert set(self.acked) <= set(commands[0]), "an acknowledged command is lost"
        assert len(set(commands[0])) == len(commands[0]), "a command was executed twice"

    def all_have(self, command: bytes) -> bool:
        return all(command in machine.commands for machine in self.machines.values())


def test_three_voters_elect_replicate_and_survive_their_leader() -> None:
    """The path of the next issue: an election, replication, the leader's crash, no lost write."""
    cluster = Cluster(1, faults=False)
    assert cluster.timers.run(10, until=lambda: cluster.leader is not None)
    for number in range(50):
        cluster.write(b"%d" % number)
        cluster.timers.run(0.01)
    cluster.timers.run(1)
    cluster.collect()
    assert len(cluster.acked) == 50
    first = cluster.leader
    assert first is not None
    crashed = first._host.node_id
    cluster.crash(crashed, down_s=5)
    assert cluster.timers.run(10, until=lambda: cluster.leader is not None)
    cluster.write(b"after")
    cluster.timers.run(1)
    cluster.collect()
    assert b"after" in cluster.acked
    cluster.settle()


def test_f9_entries_leave_before_the_leaders_own_sync() -> None:
    """Thesis 10.2.1: waiting for the own disk first would add a sync to every write."""
    cluster = Cluster(2, faults=False)
    assert cluster.timers.run(10, until=lambda: cluster.leader is not None)
    leader = cluster.leader
    assert leader is not None
    cluster.timers.run(0.1)  # both followers have answered, so both are in step
    seen: list[tuple[bool, str]] = []
    host: Any = leader._host
    carry = host._transport.send

    class Watch:
        def send(self, peer: int, group_id: int, message: Any, *, early: bool) -> None:
            seen.append((host._syncing, message["type"]))
            carry(peer, group_id, message, early=early)

        def room(self, peer: int) -> bool:
            return True

    host._transport = Watch()
    leader.propose(b"x", b"x")
    assert seen == [(False, "append_entries")] * 2


def test_reads_of_a_cut_off_leader_fail_instead_of_being_stale() -> None:
    """A deposed leader that still answers reads shows a past that others have overwritten."""
    cluster = Cluster(3, faults=False)
    assert cluster.timers.run(10, until=lambda: cluster.leader is not None)
    old = cluster.leader
    assert old is not None
    me = old._host.node_id
    cluster.cut = {(me, other) for other in VOTERS} | {(other, me) for other in VOTERS}
    answers: list[int | None] = []
    cluster.timers.run(0.9)
    assert not old.can_serve_reads()
    old.read_barrier(answers.append)
    assert cluster.timers.run(10, until=lambda: cluster.leader not in (None, old))
    cluster.timers.run(3)
    assert answers == [None]
    cluster.settle()


@pytest.mark.few(7)
@pytest.mark.parametrize("seed", range(12))
def test_random_faults_lose_nothing(seed: int) -> None:
    """Any schedule of faults: agreement, no lost acknowledgement, and progress after healing."""
    cluster = Cluster(100 + seed)
    rng = cluster.rng
    for step in range(120):
        cluster.write(b"%d" % step)
        cluster.timers.run(rng.choice([0.005, 0.05, 0.2]))
        act = rng.random()
        if act < 0.06 and len(cluster.network.hosts) == 3:
            cluster.crash(rng.choice(VOTERS), down_s=rng.choice([0.01, 0.5, 2.0]))
        elif act < 0.12:
            cluster.cut |= {(rng.choice(VOTERS), rng.choice(VOTERS)) for _ in range(3)}
        elif act < 0.25:
            cluster.cut.clear()
        elif act < 0.4:
            cluster.forget(rng.choice(VOTERS))
    cluster.settle()
    assert len(cluster.acked) > 5, "a dull seed"
