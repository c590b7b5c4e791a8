"""Partitions whose rows lie in a storage shard (kv.base.shards): as all others, elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from kv.base import methods
from kv.base.descriptors import PartitionDescriptor, is_descriptor
from kv.base.errors import Unavailable
from kv.base.ids import NodeId, PartitionId
from kv.base.shards import SHARDED, family_of
from kv.replica import shard_move
from kv.replica.metakeys import MOVING
from kv.replica.ranges import slices
from kv.replica.shard_move import ShardMove
from kv.replica.state import PartitionState
from kv.storage.engine import STATE_FAMILIES, Batch
from kv.storage.memory import MemoryEngine
from raft.memory import VirtualTimers
from tests.kv.partition.node import Node, run
from tests.kv.partition.test_replica import busy
from tests.kv.partition.test_split import NEW, TABLE, at, done, k
from tests.kv.replica.support import Follower, dump, rows_of
from tests.kv.replica.test_snapshots import Crash, Draws, Dying
from tests.kv.replica.test_snapshots import _filled as filled

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


# ------------------------------------------------------------------ moving


def settled(node: Node, shard: str) -> None:
    """Order the move of all, and wait for it."""
    for replica in node.manager.replicas():
        run(node.manager.create(replace(replica.descriptor, shard=shard)))
    node.settle(
        lambda: all(r.descriptor.shard == shard and not r.moving for r in node.manager.replicas())
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_g10_a_partition_moves_while_it_is_written_to(seed: int, monkeypatch: Any) -> None:
    """A row that was changed behind the place that the copy had reached kept its old version, or
    one that was deleted came back.
    """
    monkeypatch.setattr(shard_move, "_SLICE_ROWS", 3)
    rng = random.Random(seed)
    node = Node((SPLIT,))
    busy(node, rng, 60)
    plain = Node((SPLIT,))
    busy(plain, random.Random(seed), 60)
    shards = ["a", "b:universal", ""]
    rng, other = random.Random(seed + 100), random.Random(seed + 100)
    for shard in shards:
        for replica in node.manager.replicas():
            run(node.manager.create(replace(replica.descriptor, shard=shard)))
        assert any(replica.moving for replica in node.manager.replicas())
        busy(node, rng, 30)
        busy(plain, other, 30)
        settled(node, shard)
        for mine, its in zip(node.manager.replicas(), plain.manager.replicas(), strict=True):
            found = rows_of(node.engine, mine.descriptor)
            wanted = rows_of(plain.engine, its.descriptor)
            assert {f: found[f] for f in SHARDED} == {f: wanted[f] for f in SHARDED}
        for left in ("", *node.engine.shards()):
            if left != shard:
                view = node.engine.shard(left)
                assert not any(view.scan(family, b"", b"") for family in SHARDED), left
    assert not [key for key, _ in node.engine.scan("meta", b"r", b"s") if key[9:] == MOVING]
    assert node.manager.counters.shards_changed == 2 * len(shards)


def test_g10_a_move_is_done_or_was_never_begun_over_every_crash() -> None:
    """A crash in the middle left rows in two shards, of which some were found in neither."""
    whole = Node((SPLIT,))
    busy(whole, random.Random(3), 30)
    run(whole.manager.synced())
    stored = dump(whole.engine)
    wanted = [rows_of(whole.engine, d) for d in whole.wanted]
    outcomes = set()
    at = 0
    while True:
        at += 1
        engine = Dying(())
        engine._data = filled(stored)._data
        states = [PartitionState(engine, d) for d in whole.wanted]
        timers = VirtualTimers()
        ended: list[ShardMove] = []
        engine.at = at
        try:
            for state in states:
                ShardMove(state, "a", timers, ended.append)
            timers.run(60, until=lambda: len(ended) == len(states))  # noqa: B023
            break
        except Crash:
            pass
        for share in (0.0, 0.5, 0.999):
            copy = Dying(())
            copy._data = {name: rows.copy() for name, rows in engine._data.items()}
            copy._undo = engine._undo.copy()
            left = copy.crash(Draws(share))
            again = Node(None, engine=left, log=whole.log)
            for d, had in zip(whole.wanted, wanted, strict=True):
                replica = again.manager.replica(d.id)
                assert replica is not None
                found = rows_of(left, replica.descriptor)
                assert {f: found[f] for f in SHARDED} == {f: had[f] for f in SHARDED}, (at, share)
                outcomes.add(replica.descriptor.shard)
                other = replace(d, shard="" if replica.descriptor.shard else "a")
                assert not any(rows_of(left, other)[f] for f in SHARDED), (at, share)
    assert at > 8
    assert outcomes == {"", "a"}


def test_g10_a_move_gives_way_to_whatever_changes_the_partition(monkeypatch: Any) -> None:
    """A split took half of a copy along, a drop left it behind, or a frozen one moved away."""
    monkeypatch.setattr(shard_move, "_SLICE_ROWS", 1)
    monkeypatch.setattr(shard_move, "SHARD_MOVE_BYTES_PER_S", 50)
    node = Node((TABLE,))
    for name in "acegikm":
        node.put(k(name), name.encode())
    run(node.manager.create(replace(at(node, 2).descriptor, shard="a")))
    node.settle(lambda: bool(dump(node.engine.shard("a"))["cur"]))
    done(node, k("g"))
    assert not at(node, 2).moving
    assert not at(node, NEW).moving
    assert not dump(node.engine.shard("a"))["cur"]
    settled(node, "b")
    for name in "acegikm":
        assert node.get(k(name))[0] == name.encode()
    run(node.manager.create(replace(at(node, NEW).descriptor, shard="a")))
    node.settle(lambda: bool(dump(node.engine.shard("a"))["cur"]))
    assert not node.manager.alike(NEW), "one of them is moving"
    run(node.manager.drop(PartitionId(NEW)))
    for shard in ("a", "b", ""):
        assert not [key for key, _ in dump(node.engine.shard(shard))["cur"] if key >= k("g")]


def test_g10_what_is_in_flight_at_the_switch_is_written_where_the_rows_are(
    monkeypatch: Any,
) -> None:
    """An entry that was prepared before the switch was applied to where nobody reads."""
    node = Node(sync_s=0.5)
    node.put(k("a"), b"1")
    replica = at(node, 1)
    run(node.manager.create(replace(replica.descriptor, shard="a")))
    rid = node.send(methods.PUT, k("a"), k("a"), b"2", None, 0)
    node.settle(lambda: replica.descriptor.shard == "a")
    assert rid not in node.conn.rows, "still on its way"
    node.reply(rid)
    assert node.get(k("a"))[0] == b"2"
    assert not dump(node.engine)["cur"]


@pytest.mark.parametrize("refused", range(1, 4))
def test_g10_a_move_goes_on_after_every_write_that_was_refused(refused: int) -> None:
    """A switch that the database refused for a moment was never tried again: it moved for ever."""
    whole = Node((TABLE,))
    whole.put(k("a"), b"1")
    state, timers = at(whole, 2).state, VirtualTimers()
    ended: list[ShardMove] = []
    move = ShardMove(state, "a", timers, ended.append)
    write, writes = state.engine.write, 0

    def refusing(batch: Batch) -> None:
        nonlocal writes
        writes += 1
        if writes == refused:
            raise Unavailable("a moment's stall")
        write(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.engine, "write", refusing)
        assert timers.run(60, until=lambda: bool(ended))
    assert ended == [move]
    assert state.descriptor.shard == "a"
    assert [key for key, _ in dump(whole.engine.shard("a"))["cur"]] == [k("a")]
    assert not dump(whole.engine)["cur"]


@pytest.mark.parametrize("stalls", [1, 3])
def test_g10_a_move_that_was_given_up_leaves_nothing_for_a_split(
    stalls: int, monkeypatch: Any
) -> None:
    """Rows of the upper half stayed in the shard that they had been copied to: the marker was the
    lower half's.
    """
    monkeypatch.setattr(shard_move, "_SLICE_ROWS", 1)
    monkeypatch.setattr(shard_move, "SHARD_MOVE_BYTES_PER_S", 50)
    node = Node((TABLE,))
    for name in "acegikm":
        node.put(k(name), name.encode())
    replica = at(node, 2)
    run(node.manager.create(replace(replica.descriptor, shard="a")))
    node.settle(lambda: any(key > k("g") for key, _ in dump(node.engine.shard("a"))["cur"]))
    move = replica._move
    assert move is not None
    assert isinstance(node.engine, MemoryEngine)
    node.engine.fail_writes(Unavailable("a moment's stall"), stalls)
    move.follow((), ())
    if stalls == 1:
        done(node, k("g"))
    else:
        node.settle(lambda: not replica.moving)
    assert not replica.moving
    assert not any(dump(node.engine.shard("a"))[family] for family in SHARDED)
    assert not [key for key, _ in node.engine.scan("meta", b"r", b"s") if key[9:] == MOVING]
    settled(node, "b")
    for name in "acegikm":
        assert node.get(k(name))[0] == name.encode()
