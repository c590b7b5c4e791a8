"""What a seed decides before anything happens: the size of the cluster, its settings, its luck."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from raft import RaftConfig

CLOCK_RATE_SPREAD = 0.024
"""Two clocks at both ends of it differ by less than RaftConfig.drift_percent_max (5)."""
NO_LEASE_MS = 1
"""Shorter than any round trip here, so it never holds: for clocks that jump, where none is safe."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """Made by `draw`, or by hand in a directed scenario (the defaults are calm)."""

    nodes: int = 3
    voters: tuple[int, ...] = (1, 2, 3)
    witnesses: tuple[int, ...] = ()
    """Nodes without data, in every group that they are members of."""
    groups: int = 1
    config: RaftConfig = field(default_factory=RaftConfig)
    latency_s: float = 0.003
    faults_s: float = 6.0
    faults_per_s: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    bare: float = 0.0
    """Share of heartbeats that overtake what waits for the socket, and so tell no position."""
    late: float = 0.0
    late_s: float = 1.0
    slow_syncs: float = 0.0
    """Share of syncs that take up to half a second."""
    weights: dict[str, int] = field(default_factory=dict)
    """Of the nemesis' acts, where they differ from its own."""
    jumping_clocks: bool = False
    clock_rates: bool = False
    unavailable: float = 0.0
    """Share of the state machine's snapshot calls that are refused."""
    snapshot_copies: int = 1
    filler_max: int = 60
    """Longest filler of a command, in bytes."""
    fresh: bool = False
    """Groups know that they are new, and elect without waiting."""
    ops_per_s: float = 40.0
    clients: int = 2


def draw(rng: random.Random) -> Plan:
    """Everything that may go wrong, at random; a majority is never lost for good."""
    nodes = rng.choice([3, 3, 4, 5])
    voters = tuple(range(1, 1 + rng.choice([1, 3, 3, nodes])))
    witnesses: tuple[int, ...] = ()
    if rng.random() < 0.25:  # one node, from the beginning or to be added
        witnesses = (rng.choice([3, nodes]),)
    jumping = rng.random() < 0.2
    config = draw_config(rng, lease=not jumping)
    return Plan(
        nodes=nodes,
        voters=voters,
        witnesses=witnesses,
        groups=rng.choice([1, 1, 2]),
        config=config,
        faults_s=config.election_max_ms / 1000 * rng.uniform(10, 24),
        faults_per_s=rng.choice([4, 8, 16]),
        drop=rng.choice([0, 0.02, 0.1, 0.2]),
        duplicate=rng.choice([0, 0.1, 0.5]),
        bare=rng.choice([0, 0.1, 0.5]),
        late=rng.choice([0, 0.05, 0.2, 0.5]),
        late_s=config.election_max_ms / 1000 * rng.choice([1, 2, 4]),
        slow_syncs=rng.choice([0.02, 0.04, 0.2]),
        jumping_clocks=jumping,
        clock_rates=rng.random() < 0.5,
        unavailable=rng.choice([0, 0.1]),
        snapshot_copies=rng.choice([1, 5, 20]),
        filler_max=config.entry_bytes_max - 8,
        fresh=rng.random() < 0.5,
        ops_per_s=rng.choice([1, 10, 20, 40]),
    )


def draw_churn(rng: random.Random) -> Plan:
    """Many elections of few nodes, that come back without what they had not synced, while old
    answers are still on their way.
    """
    plan = draw(rng)
    nodes = rng.choice([3, 3, 5])
    plan.nodes, plan.voters, plan.witnesses = nodes, tuple(range(1, nodes + 1)), ()
    plan.drop, plan.duplicate = 0.02, 0.5
    plan.late, plan.late_s = 0.3, plan.config.election_max_ms / 1000 * 4
    plan.slow_syncs, plan.faults_per_s = 0.2, 10
    plan.weights = {**_NONE, "crash": 2, "lie in wait": 10, "mend": 8, "isolate": 3, "split": 2}
    return plan


def draw_members(rng: random.Random) -> Plan:
    """Members that change all the time in a network that falls apart."""
    plan = draw(rng)
    plan.nodes, plan.voters, plan.witnesses = 5, rng.choice([(1, 2), (1, 2, 3)]), ()
    plan.slow_syncs, plan.late, plan.drop = 0.02, 0.05, 0.0
    plan.faults_per_s = 16
    plan.weights = {**_NONE, "members": 20, "split": 4, "isolate": 2, "mend": 6, "crash": 1}
    plan.weights["lie in wait"] = 2
    return plan


def draw_forced(rng: random.Random) -> Plan:
    """Voters that a majority of may be lost for good at the end of the faults."""
    plan = draw(rng)
    plan.nodes = rng.choice([3, 5])
    plan.voters, plan.witnesses = tuple(range(1, plan.nodes + 1)), ()
    plan.faults_s /= 3
    plan.weights = {"members": 0, "flip": 0}
    return plan


def draw_small(rng: random.Random) -> Plan:
    """One or two voters that join and leave: whoever is alone decides alone."""
    plan = draw(rng)
    plan.nodes, plan.voters, plan.witnesses = rng.choice([2, 3]), rng.choice([(1,), (1, 2)]), ()
    plan.slow_syncs, plan.faults_per_s = 0.5, 10
    plan.weights = {**_NONE, "crash": 4, "lie in wait": 6, "mend": 6, "members": 12, "transfer": 3}
    plan.weights["isolate"] = plan.weights["disconnect"] = 2
    return plan


_NONE = dict.fromkeys(
    [
        *("pause", "cut one way", "clog", "fill", "disconnect", "flush", "compact", "members"),
        *("transfer", "flip", "fail syncs", "jump", "isolate", "split", "campaign"),
    ],
    0,
)


def draw_config(rng: random.Random, *, lease: bool) -> RaftConfig:
    """Limits so small that every one of them is met."""
    heartbeat_ms = rng.choice([40, 60, 100])
    election_min_ms = int(heartbeat_ms * rng.choice([3.2, 4, 6]))
    lease_max_ms = election_min_ms - election_min_ms * 5 // 100
    entry_bytes_max = rng.choice([40, 150])
    message_bytes_max = rng.choice([1, 100, 1000])
    log_tail_bytes = rng.choice([0, 0, 200])
    resend_ms = heartbeat_ms * rng.choice([1, 4])
    return RaftConfig(
        heartbeat_ms=heartbeat_ms,
        election_min_ms=election_min_ms,
        election_max_ms=int(election_min_ms * rng.choice([1.3, 2])),
        lease_ms=rng.choice([lease_max_ms, lease_max_ms * 4 // 5]) if lease else NO_LEASE_MS,
        tick_ms=rng.choice([1, heartbeat_ms // 4, heartbeat_ms // 2]),
        entry_bytes_max=entry_bytes_max,
        append_bytes_max=entry_bytes_max + 2,
        message_bytes_max=message_bytes_max,
        window_bytes_max=message_bytes_max * rng.choice([1, 4, 100]),
        window_messages_max=rng.choice([1, 4, 100]),
        reorder_ms=rng.choice([1, 30]),
        log_tail_bytes=log_tail_bytes,
        log_keep_bytes_max=log_tail_bytes + rng.choice([0, 500]),
        snapshot_chunk_bytes=rng.choice([7, 50]),
        snapshot_window_chunks=rng.choice([1, 3]),
        snapshots_max=rng.choice([1, 4]),
        snapshot_bytes_per_s=rng.choice([2000, 1_000_000]),
        snapshot_resend_ms=resend_ms,
        snapshot_retry_ms=heartbeat_ms * rng.choice([1, 5]),
        snapshot_abandon_ms=resend_ms * rng.choice([2, 20]),
        promote_lag_max=rng.choice([0, 10]),
        hibernate_after_ms=rng.choice([0, 3 * heartbeat_ms, 10 * heartbeat_ms]),
        memory_entries_max=rng.choice([2, 8, 64]),
        memory_bytes_max=rng.choice([300, 10_000]),
        replay_entries_max=rng.choice([1, 3, 50]),
        proposals_max=rng.choice([6, 50]),
    )
