"""The kind of clock is a cluster's for good, and nodes judge their own clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kv.base.config import HYBRID, ORACLE, NodeConfig
from kv.base.errors import InvalidArgument
from kv.base.limits import CLOCK_FENCE_MS
from kv.storage.engine import LOG_FAMILIES, STATE_FAMILIES
from kv.storage.memory import MemoryEngine
from kvorum.cluster.clocks import Offset, verdict
from kvorum.local import identity as identities
from kvorum.testing.simulation.loop import SimRng

NODES = ("h1:7600", "h2:7600", "h3:7600")


def config(**settings: Any) -> NodeConfig:
    return NodeConfig(data=Path("x"), cluster_secret="sixteen characters", **settings)


def founder(clock: str) -> identities.Identity:
    settings = config(listen="h1", port=7600, join=NODES, insecure=True, clock=clock)
    found = identities.founding(settings, SimRng(1))
    assert found is not None
    return found


@pytest.mark.parametrize("clock", [ORACLE, HYBRID])
def test_r1_a_node_keeps_its_kind_of_clock(clock: str) -> None:
    """Said once, when the cluster is founded: another start says nothing, or the same."""
    state, log = MemoryEngine(STATE_FAMILIES), MemoryEngine(LOG_FAMILIES)
    identities.save(state, log, founder(clock))
    for found in (identities.stored(state), identities.copied(log)):
        assert found == founder(clock)
        assert found.clock == clock
        identities.check_kind(found, config())
        identities.check_kind(found, config(clock=clock))
        with pytest.raises(InvalidArgument, match="cannot be changed"):
            identities.check_kind(found, config(clock=HYBRID if clock == ORACLE else ORACLE))


def test_r1_founders_of_two_kinds_are_two_clusters() -> None:
    """Half the nodes would give out timestamps that the others take for a mistake."""
    assert founder(HYBRID).cluster != founder(ORACLE).cluster == founder("").cluster


def offset(ms: float, error_ms: float = 1.0) -> Offset:
    return Offset(ms, error_ms, 0.0, 0)


FAR = CLOCK_FENCE_MS + 2.0


@pytest.mark.parametrize(
    ("offsets", "others", "trusted"),
    [
        ([], 0, True),  # alone
        ([], 2, None),
        ([offset(0)], 2, True),
        ([offset(0)], 4, None),
        ([offset(0), offset(-FAR)], 2, True),  # that one is wrong
        ([offset(FAR), offset(FAR)], 2, False),
        ([offset(FAR)], 1, False),
        ([offset(FAR, error_ms=50)], 1, None),  # it may be the way there
        ([offset(FAR - 20, error_ms=50), offset(0)], 2, True),
        ([offset(FAR - 20, error_ms=50), offset(FAR)], 2, False),
        ([offset(-FAR), offset(-FAR), offset(0), offset(0)], 4, True),
        ([offset(-FAR), offset(-FAR), offset(0)], 4, False),
    ],
)
def test_r1_a_node_believes_most_of_the_others(
    offsets: list[Offset], others: int, trusted: bool | None
) -> None:
    """One wrong clock must not stop the nodes whose clocks are right."""
    found = verdict(offsets, others)
    assert (None if found is None else not found) is trusted
