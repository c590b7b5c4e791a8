"""Machines that are suspended: everything on them stands still, perhaps their clock, too."""

from __future__ import annotations

import pytest

from tests.raft.fleet import Fleet


@pytest.mark.parametrize("stood", [False, True], ids=["the clock goes on", "it stands still"])
def test_a8_a_suspended_leader_has_no_lease_by_a_clock_that_goes_on(stood: bool) -> None:
    """Reads that wait in its socket come first when it wakes, before any message tells it that
    others have written. By a clock that stood still it would serve them: so what measures leases
    is CLOCK_BOOTTIME (kv/base/adapters.py).
    """
    fleet = Fleet().all((1, 2, 3))
    leader = fleet.elect_node(1)
    fleet.write(b"old")
    assert leader.serving()
    asleep_at = fleet.timers.now_s
    fleet.clocks[1].paused = True
    others = fleet.groups[2], fleet.groups[3]
    assert fleet.run(5, lambda: any(group.leader for group in others)), "nobody else was elected"
    fleet.write(b"new")
    if stood:
        fleet.clocks[1].stood_s = fleet.timers.now_s - asleep_at
    assert leader.leader, "nobody has told it"
    assert leader.serving() == stood
    fleet.clocks[1].resume()
    assert fleet.run(5, lambda: not leader.leader)
    fleet.everywhere(b"new")
