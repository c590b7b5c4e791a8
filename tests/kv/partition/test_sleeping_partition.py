"""A partition whose leader has no lease: its Raft group sleeps, or a transfer failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kv.base import methods
from kv.base.errors import NotLeader
from tests.kv.partition.node import Node

K = b"\x00\x00\x00\x01key"


@dataclass
class Lease:
    """Of the partition's leader; the node's group asks nobody, so the test answers."""

    held: bool = False
    asked: list[Callable[[], object]] = field(default_factory=list)


@pytest.fixture
def node_and_lease(monkeypatch: pytest.MonkeyPatch) -> tuple[Node, Lease]:
    node, lease = Node(), Lease()
    replica = node.manager.replica(1)
    assert replica is not None
    monkeypatch.setattr(replica, "serving", lambda: lease.held)
    monkeypatch.setattr(replica, "confirm", lease.asked.append)
    return node, lease


def get(node: Node) -> int:
    rid = node.send(methods.GET, K, K, 0, None)
    node.timers.run(0.0)
    return rid


def test_f1_requests_wait_until_the_leader_is_confirmed(
    node_and_lease: tuple[Node, Lease],
) -> None:
    """Refused, each first request after a pause would cost its client a search for the leader."""
    node, lease = node_and_lease
    rids = [get(node), get(node), get(node)]
    assert node.conn.rows == {}
    assert len(lease.asked) == 1, "one question for all"
    lease.held = True
    lease.asked[0]()
    for rid in rids:
        assert node.reply(rid) == [None, 0]
    assert node.machine().waiting == 0


def test_f1_many_requests_that_wait_for_a_lease_do_not_spin(
    node_and_lease: tuple[Node, Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than one drain takes made it look again, and again, until the answer came."""
    node, lease = node_and_lease
    monkeypatch.setattr("kv.partition.machine.DRAIN_REQUESTS_MAX", 2)
    rids = [node.send(methods.GET, K, K, 0, None) for _ in range(5)]
    node.timers.run(0.0)
    drains = node.machine().counters.drains
    node.timers.run(0.0)
    assert node.machine().counters.drains == drains == 1
    lease.held = True
    lease.asked[0]()
    for rid in rids:
        assert node.reply(rid) == [None, 0]


def test_f1_a_leader_that_is_not_confirmed_refuses(node_and_lease: tuple[Node, Lease]) -> None:
    """It may have been replaced while it slept; its clients must look elsewhere, not wait."""
    node, lease = node_and_lease
    first = get(node)
    lease.asked[0]()
    assert isinstance(node.error(first), NotLeader)
    again = get(node)
    assert len(lease.asked) == 2, "it asks anew for those that come later"
    lease.held = True
    lease.asked[1]()
    assert node.reply(again) == [None, 0]


def test_f1_a_replica_that_does_not_lead_asks_nobody(node_and_lease: tuple[Node, Lease]) -> None:
    """Followers refuse at once, and name the leader."""
    node, lease = node_and_lease
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=False, term=2)
    assert isinstance(node.error(get(node)), NotLeader)
    assert lease.asked == []


def test_f1_the_loss_of_the_leadership_ends_the_wait(node_and_lease: tuple[Node, Lease]) -> None:
    """The question may never be answered here."""
    node, lease = node_and_lease
    rid = get(node)
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=False, term=2)
    lease.asked[0]()
    assert isinstance(node.error(rid), NotLeader)
    assert node.machine().waiting == 0
