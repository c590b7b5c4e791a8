"""Runs for rules that a random schedule of faults hides, because a cluster without them still
recovers: who is disturbed, and who does not give way.
"""

from __future__ import annotations

from raft import BadConfig, RaftConfig
from tests.sim.raft import plan as plans
from tests.sim.raft.node import SimNode
from tests.sim.raft.plan import Plan
from tests.sim.raft.world import Outcome, Trace, World

_CONFIG = RaftConfig(heartbeat_ms=100, election_min_ms=400, election_max_ms=800, lease_ms=300)


def _calm_world(seed: int, trace: Trace | None) -> World:
    world = World(seed, Plan(config=_CONFIG), trace)
    world.start()
    world.run_for(3.0)
    return world


def flap(seed: int, trace: Trace | None) -> Outcome:
    """A node that comes and goes must not depose a healthy leader: needs pre-vote."""
    world = _calm_world(seed, trace)
    found = world.serving(1)
    if found is None:
        world.fail("no leader after 3 s without faults")
        return world.outcome()
    leader, replica = found
    term = replica.term
    for _ in range(3):
        others = [node_id for node_id in world.nodes if node_id != leader.id]
        world.network.isolate(world.rng.choice(others))
        world.run_for(1.0 + world.random() * 2)
        world.network.heal()
        world.run_for(1.0)
    if replica.term != term or not replica.leader:
        world.fail(f"a healthy leader of term {term} was deposed: term {replica.term} now")
    return world.outcome()


def deaf(seed: int, trace: Trace | None) -> Outcome:
    """A leader that sends but hears nothing must give way: needs check-quorum."""
    world = _calm_world(seed, trace)
    found = world.serving(1)
    if found is None:
        world.fail("no leader after 3 s without faults")
        return world.outcome()
    leader = found[0]
    world.network.cut = {(other, leader.id) for other in world.nodes if other != leader.id}
    world.run_for(2.0)
    world.check_progress(everybody=False)
    return world.outcome()


def forced(seed: int, trace: Trace | None) -> Outcome:
    """A majority is gone for good; an operator makes the others the only members. They go on with
    everything that was acknowledged, and stop the old side as soon as it comes back.
    """
    world = World(seed, plans.draw_forced, trace)
    world.be_hurt()
    if not world.failed():
        world.heal()
        world.check_progress()
    if world.failed():
        return world.outcome()
    ids = list(world.nodes)
    world.given_up = set(world.rng.sample(ids, len(ids) // 2 + 1))
    survivors = [node_id for node_id in ids if node_id not in world.given_up]
    world.resting = True  # what only the lost ones have would be lost, too
    patience_s = 3 * world.config.election_max_ms / 1000
    world.run_for(patience_s)
    for node_id in sorted(world.given_up):
        world.nodes[node_id].crash()
        world.nodes[node_id].away = True
    world.run_for(patience_s)
    for group_id in world.truths:
        _force(world, group_id, survivors, patience_s)
    world.resting = False
    world.check_progress()
    for node_id in sorted(world.given_up):
        world.nodes[node_id].away = False
        world.nodes[node_id].restart()
    world.run_for(patience_s)
    for node_id in sorted(world.given_up):
        for group_id, replica in world.nodes[node_id].replicas.items():
            if not replica.stopped and node_id in replica.voters:
                world.fail(f"group {group_id} node {node_id}: given up, but not fenced")
    world.check_progress()
    return world.outcome()


def _force(world: World, group_id: int, survivors: list[int], patience_s: float) -> None:
    """As an operator would: on the most complete survivor, again if told to wait."""
    for _ in range(3):
        candidates = [world.nodes[node_id] for node_id in survivors]
        _, node_id = max(_completeness(node, group_id) for node in candidates)
        host = world.nodes[node_id].host
        assert host is not None
        world.note("force", group_id, node_id, survivors)
        try:
            world.nodes[node_id].enter(host.force_members, (group_id, survivors, "simulated"))
        except BadConfig as error:
            world.note("refused", str(error))
            world.run_for(patience_s)
        else:
            return
    world.fail(f"group {group_id}: the members could not be forced on node {node_id}")


def _completeness(node: SimNode, group_id: int) -> tuple[tuple[int, int], int]:
    status = node.replicas[group_id].status()
    return (status.last_term, status.last_index), node.id
