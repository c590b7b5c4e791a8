"""Probes: rare branches say that they ran. A long run fails on one that never did, because a fault
that is never injected, or a situation that never arises, proves nothing.
"""

from __future__ import annotations

from kvorum.testing.simulation.probes import Probes

RARE = (
    "ambush: acknowledges",
    "ambush: campaigns",
    "ambush: has installed",
    "ambush: installs",
    "ambush: leads",
    "ambush: replicates",
    "ambush: votes",
    "asleep",
    "bits flipped",
    "certainly not executed",
    "clock jumps",
    "compactions",
    "connection lost",
    "damage refused",
    "lost unsynced writes",
    "outcome unknown",
    "ProposalsFull",
    "sync failed",
    "torn tail",
    "done: add_learner",
    "done: add_witness",
    "done: demote",
    "done: promote",
    "done: remove",
    "done: transfer",
    "snapshot resumed",
    "snapshots installed",
    "Transferring",
)
"""What a long run must have seen."""

probes = Probes()
