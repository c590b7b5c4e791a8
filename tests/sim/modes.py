"""Runs for rules that a random schedule of faults hides, because a cluster without them still
recovers: who is disturbed, and who does not give way.
"""

from __future__ import annotations

from raft import RaftConfig
from tests.sim.plan import Plan
from tests.sim.world import Outcome, Trace, World

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
