"""An empty replica decides nothing: neither alone, nor with others that are empty, too."""

from __future__ import annotations

import pytest

from tests.raft.fleet import Fleet
from tests.raft.support import GROUP

LONG_S = 20.0


def nobody_leads(fleet: Fleet) -> bool:
    return not fleet.run(LONG_S, lambda: fleet.leader is not None)


def test_a2_two_emptied_founders_do_not_elect_an_empty_leader() -> None:
    """Two of three that lost their disks founded the group anew over what the third one has."""
    fleet = Fleet(founded_by_all=True).all((1, 2, 3))
    fleet.write(b"acknowledged")
    survivor = fleet.kill(1)
    for lost in (2, 3):
        fleet.kill(lost)
    for emptied in (2, 3):
        fleet.add(emptied, (1, 2, 3))
    assert nobody_leads(fleet)
    fleet.restart(1, survivor)
    leader = fleet.elect()
    assert fleet.id_of(leader) == 1, "who has something never votes for who has nothing"
    fleet.everywhere(b"acknowledged")


def test_a2_a_group_is_founded_by_all_of_its_founders() -> None:
    """One that is not there yet may be the one that has everything; once founded, a majority is
    enough.
    """
    fleet = Fleet(founded_by_all=True)
    for node in (1, 2):
        fleet.add(node, (1, 2, 3))
    assert nobody_leads(fleet)
    fleet.add(3, (1, 2, 3))
    fleet.write(b"first")
    fleet.kill(3)
    fleet.write(b"second")


@pytest.mark.parametrize("voters", [(), (1, 2, 3)], ids=["made again", "from the log"])
def test_a2_an_emptied_replica_that_is_no_founder_gives_no_vote(voters: tuple[int, ...]) -> None:
    """It may have acknowledged what the candidate lacks: entry and all would be lost."""
    fleet = Fleet().all((1, 2, 3))
    fleet.elect_node(1)
    fleet.cut([3], [1, 2])
    fleet.write(b"at 1 and 2")
    first = fleet.kill(1)
    second = fleet.kill(2)
    fleet.heal()
    if voters:  # what is well comes back, and wins
        fleet.restart(2, second)
        assert fleet.id_of(fleet.elect()) == 2
        fleet.everywhere(b"at 1 and 2")
        return
    fleet.add(2)  # its log is gone, and the map made it anew
    assert nobody_leads(fleet), "3 lacks what 1 and 2 have acknowledged"
    fleet.restart(1, first)
    assert fleet.id_of(fleet.elect()) == 1
    fleet.everywhere(b"at 1 and 2")
    assert GROUP in fleet.nodes[2].host.stored_groups()
