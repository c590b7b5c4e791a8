"""Whoever commits beside another user's flood of commits waits for the sync under way, the next one
and one more, if a flood at the same partition has filled that: whatever else waits with it.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kv.base import methods
from kv.base.intents import Author
from kv.partition.admission import Item, by_turns
from tests.kv.partition.node import Conn, Node


class Ann(Conn):
    author = Author("ann", others=False)


@pytest.mark.few(2)
@pytest.mark.parametrize("mine", [b"a-mine", b"z-mine"])
@pytest.mark.parametrize(("flood", "size"), [(1, 10), (50, 100), (1_000, 4_000)])
def test_g10_a_put_beside_a_flood_waits_for_three_syncs_at_most(
    mine: bytes, flood: int, size: int
) -> None:
    """A tenant's many small commits stand in a queue before another's: its p99 grows with them."""
    rng = random.Random(flood * size)
    node = Node((b"m",), sync_s=lambda: rng.uniform(0.001, 0.003))
    under_way: list[int] = []
    sent = 0

    def go_on() -> None:
        """As many of the flood's puts are under way as it likes, at the same partition."""
        nonlocal sent
        under_way[:] = [rid for rid in under_way if rid not in node.conn.rows]
        while len(under_way) < flood:
            sent += 1
            key = b"a-%07d" % sent
            under_way.append(node.send(methods.PUT, key, key, b"v" * size, None, 0))

    waited = []
    for _ in range(20):
        go_on()
        node.timers.run(rng.uniform(0, 0.004))
        go_on()
        began = node.host.counters.syncs
        ann, machine = Ann(), node.machine(mine)
        d = machine.descriptor
        deadline = node.clock.monotonic() + 10.0
        put = [1, methods.PUT, deadline, d.id, d.epoch, mine, b"v", None, 0]
        machine.submit(ann, put)
        go_on()

        def answered(ann: Ann = ann) -> bool:
            go_on()
            return bool(ann.rows)

        node.settle(answered)
        waited.append(node.host.counters.syncs - began)
    assert max(waited) <= (3 if mine < b"m" else 2)
    assert sent > flood, "the flood went on"


@pytest.mark.parametrize("seed", range(20))
def test_g10_turns_keep_each_users_order(seed: int) -> None:
    """Two writes of one user change places, or one user has more turns than another."""
    rng = random.Random(seed)
    conns = []
    for user in ("", "ann", "bob")[: rng.randint(1, 3)]:
        conns.append(Conn())
        conns[-1].author = Author(user)
    sizes = rng.choices((10, 1_000, 50_000), k=300)
    items: list[Item] = [
        (rng.choice(conns), [n, methods.PUT, 0.0, 1, 1, b"k", b"v" * size, None, 0])
        for n, size in enumerate(sizes)
    ]
    found = by_turns(items)
    for conn in conns:
        mine = [r[0] for one, r in found if one is conn]
        assert mine == sorted(mine) == [r[0] for one, r in items if one is conn]
    left = Counter(conn for conn, _ in found)
    sent = dict.fromkeys(conns, 0)
    for conn, r in found:
        assert sent[conn] <= min(sent[one] for one in conns if left[one]) + 50_100
        sent[conn] += len(r[6])
        left[conn] -= 1


def test_g10_scans_take_little_of_a_pass_while_another_tenant_is_there() -> None:
    """A page of a thousand rows takes 6 ms, and eight of them stood before another's get."""
    node = Node()
    keys = [b"tab.%04d" % n for n in range(900)]
    node.call(methods.WRITE, keys[0], [[1, key, b"v", None, 0] for key in keys], 0, 0)
    node.scheduler.rows = lambda: 50
    scan = (b"tab.", b"tab.", b"tab/", 0, 900, False, None)
    scans = [node.send(methods.SCAN, *scan) for _ in range(8)]
    ann, bob, machine = Ann(), Conn(), node.machine(keys[0])
    bob.author = Author("bob", others=False)
    began, d = node.manager.partition_counters.drains, machine.descriptor

    def waits(conn: Conn, *request: object) -> int:
        """Drains until it is answered."""
        machine.submit(conn, [1, request[0], 1e9, d.id, d.epoch, *request[1:]])
        node.settle(lambda: bool(conn.rows))
        return node.manager.partition_counters.drains - began

    assert waits(ann, methods.GET, keys[5], 0, None) == 1
    assert waits(bob, methods.SCAN, *scan[1:]) <= 3
    assert sum(rid in node.conn.rows for rid in scans) < len(scans), "they wait behind"
    found, at = [], keys[0]
    while at is not None:
        rows, at = node.call(methods.SCAN, b"tab.", at, b"tab/", 0, 900, False, None)
        assert len(rows) <= 50
        found += [key for key, _, _ in rows]
    assert found == keys, "short pages go on where they ended"
