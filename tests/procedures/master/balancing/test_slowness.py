"""Which nodes are slow (I13)."""

from __future__ import annotations

from kv.base.ids import NodeId
from procedures.master.map.placement import home
from procedures.master.schedulers.balance import moves
from procedures.master.schedulers.slowness import LOOKS, Slowness
from tests.procedures.master.test_master_upkeep import view

FAST = {NodeId(n): 2.0 for n in (1, 2, 3)}


def test_i13_a_node_whose_disk_is_slow_is_found_and_forgiven() -> None:
    """It would make every write of the partitions that it leads wait."""
    slowness = Slowness()
    for _ in range(LOOKS - 1):
        slowness.look({**FAST, NodeId(3): 400.0}, FAST)
        assert not slowness.slow
    slowness.look({**FAST, NodeId(3): 400.0}, FAST)
    assert slowness.slow == {3}
    assert "a sync of its log takes 400 ms, of the others 2 ms" in slowness.why[NodeId(3)]
    for _ in range(LOOKS):
        slowness.look(FAST, FAST)
    assert not slowness.slow


def test_i13_one_pause_moves_nothing_and_a_majority_is_never_slow() -> None:
    """A compaction is no reason; if all are slow, none is."""
    slowness = Slowness()
    for look in range(40):
        figures = {**FAST, NodeId(3): 400.0} if look % LOOKS == 0 else FAST
        slowness.look(figures, {**FAST, NodeId(1): 3000.0} if look % 3 else FAST)
        assert not slowness.slow
    for _ in range(LOOKS):
        slowness.look({NodeId(n): 900.0 for n in (1, 2, 3)}, FAST)
    assert not slowness.slow


def test_i13_a_slow_node_is_nobodys_home() -> None:
    """Leaderships leave it, and come back when it is well."""
    voters = [NodeId(n) for n in (1, 2, 3)]
    for partition in range(2, 8):
        at_home = home(partition, voters)  # type: ignore[arg-type]
        assert home(partition, voters, avoid=[at_home]) != at_home  # type: ignore[arg-type]
        assert home(partition, voters, avoid=voters) == at_home  # type: ignore[arg-type]
    assert home(5, voters, NodeId(2), [NodeId(1)]) == 2  # type: ignore[arg-type]
    assert home(5, voters, NodeId(2), [NodeId(2)]) != 2  # type: ignore[arg-type]


def test_i13_leaderships_are_handed_away_from_a_slow_node() -> None:
    """The same loop that brings them home."""
    rows = {NodeId(3): [view(2, 3)], NodeId(1): [], NodeId(2): []}
    found = moves(rows, {2: NodeId(3)}, [NodeId(3)])  # type: ignore[dict-item]
    assert [(move.partition, move.source) for move in found] == [(2, 3)]
    assert moves(rows, {2: NodeId(3)}, []) == []  # type: ignore[dict-item]
