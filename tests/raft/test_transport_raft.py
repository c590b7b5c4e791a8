"""Consensus over the peer protocol in virtual time: the two must suit each other."""

from __future__ import annotations

import pytest

from raft import RaftConfig
from raft.limits import TransportLimits
from raft.replica import Replica
from tests.raft.support import Machine, Node
from tests.raft.wires import Net

GROUPS = (7, 8)
NODES = (1, 2, 3)
MIB = 1 << 20


class Cluster:
    """Three hosts with two groups, on the net's sockets."""

    def __init__(self, config: RaftConfig, limits: TransportLimits | None = None) -> None:
        self.net = Net(3, limits)
        self.timers = self.net.timers
        self.nodes: dict[int, Node] = {}
        self.machines: dict[tuple[int, int], Machine] = {}
        for node in NODES:
            mux = self.net.start(node)
            made = Node(node, timers=self.timers, config=config, transport=mux, seed=node)
            mux.on_message = made.host.receive
            mux.on_up, mux.on_down = made.host.peer_up, made.host.peer_down
            self.nodes[node] = made
            for group in GROUPS:
                self.machines[group, node] = Machine()
                made.host.create_group(group, NODES)
                made.host.open_group(group, self.machines[group, node])
        for mux in self.net.nodes.values():
            self.net.introduce(mux, *NODES)

    def replica(self, group: int, node: int) -> Replica:
        replica = self.nodes[node].host.group(group)
        assert replica is not None
        return replica

    def leader(self, group: int) -> int | None:
        leaders = [n for n in self.nodes if self.replica(group, n).leader]
        return leaders[0] if len(leaders) == 1 else None

    def run(self, seconds: float) -> None:
        self.timers.run(seconds)
        assert all(node.fatal == [] for node in self.nodes.values())


def at_rate(net: Net, bytes_per_s: int) -> None:
    """Every connection takes so many bytes per second, in packets."""
    packet = 16 << 10
    net.chunk = lambda: packet
    net.delay_s = lambda: packet / bytes_per_s


@pytest.mark.slow
def test_long_entries_on_a_slow_network_cost_no_leader() -> None:
    """Sixty mebibytes on a network of twenty per second: three election timeouts long nothing but
    bulk is on its way. Nobody may call an election, lose a lease or send anything twice.
    """
    cluster = Cluster(RaftConfig(), TransportLimits(queue_bytes_max=64 * MIB))
    assert cluster.timers.run(10, until=lambda: all(map(cluster.leader, GROUPS)))
    cluster.run(1)
    at_rate(cluster.net, 20 * MIB)
    leaders = {group: cluster.leader(group) for group in GROUPS}
    leader = leaders[GROUPS[0]]
    assert leader is not None
    term = cluster.replica(GROUPS[0], leader).term
    for number in range(4):
        cluster.replica(GROUPS[0], leader).propose(bytes(15 * MIB), number)
    replica, counters = cluster.replica(GROUPS[0], leader), cluster.nodes[leader].host.counters
    machines = [cluster.machines[GROUPS[0], node] for node in NODES]
    began = cluster.timers.now_s
    while not all(len(machine.commands) == 4 for machine in machines):
        cluster.run(0.05)
        assert replica.can_serve_reads(), "the lease ended behind bulk"
        assert {group: cluster.leader(group) for group in GROUPS} == leaders
        assert cluster.timers.now_s < began + 20
    assert cluster.timers.now_s - began > 2.5, "it was not slow"
    assert (replica.term, counters.bytes_resent) == (term, 0)
    assert machines[0].hash == machines[1].hash == machines[2].hash
    lost = [peer.lost for mux in cluster.net.nodes.values() for peer in mux.figures().values()]
    assert lost == [0] * 6


def test_dead_machine_is_replaced_and_comes_back() -> None:
    """The whole way of a failover: silence, election, writes, and the node's return."""
    cluster = Cluster(RaftConfig())
    group = GROUPS[0]
    assert cluster.timers.run(10, until=lambda: all(map(cluster.leader, GROUPS)))
    dead = cluster.leader(group)
    assert dead is not None
    cut = {(dead, n) for n in NODES} | {(n, dead) for n in NODES}
    cluster.net.cuts = cut
    rest = [node for node in NODES if node != dead]
    assert cluster.timers.run(
        5, until=lambda: any(cluster.replica(group, node).leader for node in rest)
    )
    (leader,) = [node for node in rest if cluster.replica(group, node).leader]
    cluster.replica(group, leader).propose(b"during the cut", "token")
    cluster.run(1)
    assert cluster.machines[group, leader].acked == ["token"]
    assert not cluster.replica(group, dead).can_serve_reads()
    cluster.net.cuts = set()
    cluster.run(5)
    assert all(cluster.machines[group, n].commands == [b"during the cut"] for n in NODES)
