"""Partitions whose rows lie in a storage shard (kv.base.shards): as all others, elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kv.base.descriptors import PartitionDescriptor, is_descriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.shards import SHARDED, family_of
from kv.replica.ranges import slices
from kv.storage.engine import STATE_FAMILIES
from kv.storage.memory import MemoryEngine
from tests.kv.partition.node import Node, run
from tests.kv.partition.test_replica import busy
from tests.kv.partition.test_split import NEW, TABLE, at, done, k
from tests.kv.replica.support import Follower, dump, rows_of

SPLIT = b"tab.m"


def test_g10_a_partition_of_a_shard_leaves_nothing_elsewhere() -> None:
    """Rows of a partition of a shard lay among all others', or were not there after a crash."""
    node, plain = Node((SPLIT,), shard="a"), Node((SPLIT,))
    for each in (node, plain):
        busy(each, random.Random(5), 150)
    assert not any(dump(node.engine)[family] for family in SHARDED)
    for one, other in zip(node.wanted, plain.wanted, strict=True):
        assert rows_of(node.engine, one) == rows_of(plain.engine, other)
    run(node.manager.synced())
    wanted = [rows_of(node.engine, d) for d in node.wanted]
    again = node.crash(shard="a")
    for d, had in zip(again.wanted, wanted, strict=True):
        assert rows_of(again.engine, d) | {"meta": had["meta"]} == had
    assert [d.shard for d in again.manager.descriptors()] == ["a", "a"]
    run(again.manager.drop(again.wanted[1].id))
    view = again.engine.shard("a")
    for family, start, end in slices(again.wanted[1]):
        assert view.is_empty(family, start, end)
    assert rows_of(again.engine, again.wanted[0])["cur"] == wanted[0]["cur"]


@pytest.mark.parametrize(("there", "here"), [("", "a"), ("a", ""), ("a", "b:universal")])
def test_g10_a_snapshot_says_nothing_of_shards(there: str, here: str) -> None:
    """Rows that came from another node lay where that one keeps them."""
    node = Node((SPLIT,), shard=there)
    busy(node, random.Random(1), 150)
    node.timers.run(1.0)
    found = node.manager.replica(1)
    assert found is not None
    other = MemoryEngine(STATE_FAMILIES)
    descriptor = replace(found.descriptor, shard=here)
    follower = Follower(other, descriptor)
    follower.install(follower.take(found.snapshot(), 3_000))
    assert rows_of(other, descriptor) == rows_of(node.engine, found.descriptor)
    assert follower.replica.descriptor.shard == here
    assert [d for d in other.shards() if d] == ([here] if here else [])


def test_g10_both_halves_of_a_split_stay_in_their_shard() -> None:
    """What was split off was looked for elsewhere, or lost at the next start."""
    node = Node((TABLE,), shard="a")
    for name in "acegikm":
        node.put(k(name), name.encode())
    done(node, k("g"))
    assert [d.shard for d in node.manager.descriptors()] == ["a"] * 3
    for name in "acegikm":
        assert node.get(k(name))[0] == name.encode()
    node.put(k("m"), b"new")
    run(node.manager.synced())
    again = node.crash(shard="a")
    assert at(again, NEW).descriptor.shard == "a"
    assert again.get(k("m"))[0] == b"new"


def test_a_descriptor_without_a_shard_is_as_before() -> None:
    """Older programs could not read what a cluster without shards stores and sends."""
    plain = PartitionDescriptor(PartitionId(4), b"a", b"b", 2, (NodeId(1),))
    assert plain.to_wire() == [4, b"a", b"b", 2, [1], []]
    for d in (plain, replace(plain, shard="x:universal"), replace(plain, witnesses=(NodeId(1),))):
        assert PartitionDescriptor.from_wire(d.to_wire()) == d
        assert is_descriptor(d.to_wire())
    assert not is_descriptor([*plain.to_wire(), [], "No!"])
    assert family_of("cur", "") == "cur"
