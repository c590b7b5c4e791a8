"""What a leader that was deposed answers for the entry that it had in flight."""

from __future__ import annotations

from kv.base.errors import NotLeader, UnknownOutcome
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.limits import UNSETTLED_MS
from kv.base.methods import GET, OP_PUT, PREWRITE, PUT
from tests.kv.partition.node import Node

K, L = (table_prefix(TableId(100)) + name for name in (b"k", b"l"))
SYNC_S = 5.0  # far beyond what a deposed leader waits
WAIT_S = UNSETTLED_MS / 1000


class Slow:
    """A disk whose syncs take as long as it is told."""

    def __init__(self) -> None:
        self.sync_s = 0.001

    def __call__(self) -> float:
        return self.sync_s


def deposed(sync_s: float) -> tuple[Node, Slow, dict[str, int]]:
    """A node that was deposed with a put, a prewrite, a command that saw it and a read in flight;
    the rids.
    """
    disk = Slow()
    node = Node(sync_s=disk)
    node.put(L, b"old")
    disk.sync_s = sync_s
    intent = [[OP_PUT, K, b"x", None, 0]]
    rids = {
        "put": node.send(PUT, L, L, b"new", None, 0),
        "prewrite": node.send(PREWRITE, K, node.oracle(1), K, 5_000, intent, 0),
        "saw": node.send(PUT, L, L, b"never", 0, 0),  # refused: it is there, in flight
    }
    node.timers.run(0.001)
    rids["read"] = node.send(GET, L, L, node.oracle(1), None)
    node.timers.run(0.001)
    assert node.machine().view.flying is not None
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=False, term=2)
    return node, disk, rids


def test_a8_a_deposed_leader_says_soon_that_it_does_not_know() -> None:
    """It may be cut off for minutes: a client that waits for it until its deadline does not even
    repeat what it may repeat.
    """
    node, disk, rids = deposed(SYNC_S)
    node.timers.run(0.9 * WAIT_S)
    assert rids["put"] not in node.conn.rows, "what becomes of it is often known at once"
    node.timers.run(0.2 * WAIT_S)
    for name in ("put", "prewrite"):
        assert isinstance(node.error(rids[name]), UnknownOutcome), name
    for name in ("saw", "read"):
        assert isinstance(node.error(rids[name]), NotLeader), f"{name}: it did nothing"
    # The entry was committed after all. Nobody is answered twice (Conn sees to it), nothing lost.
    node.timers.run(2 * SYNC_S)
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=True, term=3)
    disk.sync_s = 0.001
    assert node.get(L)[0] == b"new"
    assert node.put(L, b"newer") > 0


def test_a8_a_deposed_leader_answers_what_it_learns() -> None:
    """A leadership that is handed over in order must not make writes unknown."""
    node, _, rids = deposed(0.5 * WAIT_S)
    assert node.reply(rids["put"])[0] > 0
    assert node.reply(rids["prewrite"])[0] > 0
    node.timers.run(2 * WAIT_S)


def test_a8_a_leader_that_is_elected_again_gives_up_nothing_of_its_new_reign() -> None:
    """The patience of one reign must not end an entry of the next."""
    node, disk, rids = deposed(0.5 * WAIT_S)
    assert node.reply(rids["put"])[0] > 0
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=True, term=3)
    disk.sync_s = 2 * WAIT_S
    rid = node.send(PUT, L, L, b"again", None, 0)
    assert node.reply(rid)[0] > 0
