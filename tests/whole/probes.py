"""Rare situations of whole clusters say that they arose; see tests/sim/probes.py."""

from __future__ import annotations

from tests.sim.probes import Probes

RARE: tuple[str, ...] = ()
"""What a long run must have seen."""

probes = Probes()
