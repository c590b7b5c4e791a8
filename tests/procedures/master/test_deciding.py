"""What is split and merged: the rules one by one, and that they never fight each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.limits import MiB
from procedures.master.shape.deciding import (
    END,
    LOAD,
    LOOKS,
    MIDDLE,
    Decider,
    Merge,
    Part,
    Plan,
    Policy,
    Split,
)

MAX = 64 * MiB
POLICY = Policy(bytes_max=MAX, load_min=1_000.0, rest_s=20.0, settle_s=60.0)


def _part(id_: int, size: int, **more: object) -> Part:
    given_ = {"table": b"t", "start": b"%03d" % id_, "end": b"%03d" % (id_ + 1), "epoch": 1, **more}
    return Part(id=id_, size=size, **given_)  # type: ignore[arg-type]


def _after(decider: Decider, seconds: float, parts: list[Part], nodes: int = 3) -> Plan:
    """Looks every five seconds for so long; the last one's plan."""
    now = getattr(decider, "now", 1_000.0)
    plan = decider.look(now, parts, nodes, POLICY)
    end = now + seconds
    while now < end:
        now += 5.0
        plan = decider.look(now, parts, nodes, POLICY)
    decider.now = now + 5.0  # type: ignore[attr-defined]
    return plan


def test_h1_one_above_the_limit_is_cut_in_the_middle() -> None:
    """A partition that grows for ever fits no node."""
    plan = _after(Decider(), 0, [_part(1, MAX), _part(2, MAX + 1), _part(3, MAX)])
    assert [(s.partition, s.how) for s in plan.splits] == [(2, MIDDLE)]
    assert "64.0 MiB" in plan.splits[0].reason


def test_h1_a_table_may_have_a_limit_of_its_own() -> None:
    """The cluster's limit cut its partitions too late, or merged what it had just cut."""
    small = {"table": b"s", "bytes_max": MAX // 8}
    plan = _after(Decider(), 0, [_part(1, MAX // 8 + 1, **small), _part(3, MAX // 8 + 1)])
    assert [(s.partition, s.how) for s in plan.splits] == [(1, MIDDLE)]
    assert "8.0 MiB" in plan.splits[0].reason
    halves = [_part(i, MAX // 16, **small) for i in (1, 2)]
    assert _after(Decider(), 1_000, halves).merges == (), "they would be cut again"
    rest = [_part(i, MAX // 64, **small) for i in (1, 2)]
    assert [(m.left, m.right) for m in _after(Decider(), 1_000, rest).merges] == [(1, 2)]


def test_h7_one_that_is_appended_to_is_cut_at_its_end_a_little_earlier() -> None:
    """The middle would leave a half-empty partition behind each time."""
    decider = Decider()
    plan = _after(decider, 0, [_part(1, int(0.95 * MAX), appended=1.0)])
    assert [(s.partition, s.how) for s in plan.splits] == [(1, END)]
    assert _after(Decider(), 0, [_part(1, int(0.7 * MAX), appended=1.0)]).splits == ()
    assert _after(Decider(), 0, [_part(1, int(0.95 * MAX), appended=0.3)]).splits == ()
    late = _after(Decider(), 0, [_part(1, 2 * MAX, appended=1.0)])
    assert late.splits[0].how == END, "first of all the writes move on; what is left can wait"


def test_h5_load_must_last_and_be_far_above_the_mean() -> None:
    """A burst of a second, or a load that all partitions have, is no reason to cut one."""
    hot = [_part(1, MiB, units=5_000.0), *(_part(i, MiB, units=100.0) for i in range(2, 8))]
    decider = Decider()
    for look in range(LOOKS):
        plan = decider.look(100.0 + 5 * look, hot, 3, POLICY)
        assert bool(plan.splits) == (look == LOOKS - 1)
    assert plan.splits[0].how == LOAD
    assert "times the mean" in plan.splits[0].reason
    even = [_part(i, MiB, units=5_000.0) for i in range(1, 8)]
    assert _after(Decider(), 60, even).splits == ()
    assert _after(Decider(), 60, [replace(p, units=p.units / 10) for p in hot]).splits == ()
    pauses = Decider()
    for look in range(20):
        calm = [replace(hot[0], units=0.0), *hot[1:]]
        assert not pauses.look(5.0 * look, hot if look % LOOKS else calm, 3, POLICY).splits


def test_h5_a_single_partition_is_hot_if_there_are_nodes_to_share_with() -> None:
    """Its own load is the mean of all partitions, so that nothing would ever exceed it."""
    only = [_part(1, MiB, units=5_000.0)]
    assert _after(Decider(), 60, only, nodes=3).splits
    assert not _after(Decider(), 60, only, nodes=1).splits


@pytest.mark.parametrize(
    ("more", "words"), [({"hot_share": 0.6}, "one key"), ({"appended": 1.0}, "appended")]
)
def test_h5_load_that_no_cut_divides_is_left_and_said(more: dict[str, float], words: str) -> None:
    """It would be split again and again, and nothing would get better."""
    parts = [_part(1, MiB, units=5_000.0, **more), *(_part(i, 40 * MiB) for i in range(2, 8))]
    plan = _after(Decider(), 60, parts)
    assert plan.splits == ()
    assert [r.partition for r in plan.refused] == [1]
    assert words in plan.refused[0].reason


def test_h3_small_cold_neighbours_become_one_when_they_stayed_so() -> None:
    """After data has expired, thousands of empty partitions would cost for ever."""
    parts = [_part(1, MiB), _part(2, 2 * MiB), _part(3, 50 * MiB)]
    decider = Decider()
    plan = _after(decider, POLICY.settle_s - 10, parts)
    assert plan.merges == ()
    assert "stay small" in plan.refused[0].reason
    plan = _after(decider, 10, parts)
    assert [(m.left, m.right) for m in plan.merges] == [(1, 2)]


@pytest.mark.parametrize(
    "parts",
    [
        [_part(1, MiB), _part(2, MiB, table=b"u")],
        [_part(1, MiB), _part(2, MiB, start=b"004")],
        [_part(1, MiB, units=900.0), _part(2, MiB)],
        [_part(1, MiB), _part(2, MiB, written=False)],
        [_part(1, 20 * MiB), _part(2, 20 * MiB)],
        [_part(1, 10 * MiB), _part(2, 30 * MiB)],
        [_part(1, MiB), replace(_part(2, MiB), size=None)],
    ],
)
def test_h6_what_must_stay_apart_stays_apart(parts: list[Part]) -> None:
    """Other tables, gaps, load, pieces cut on purpose, and what would soon be split again."""
    assert _after(Decider(), 600, parts).merges == ()


def test_h6_fragments_vanish_and_hot_small_ranges_are_kept() -> None:
    """A small range with much load is somebody's counter: merged, it would slow its neighbour."""
    parts = [_part(1, 30 * MiB), _part(2, MiB, units=600.0), _part(3, 25 * MiB), _part(4, MiB)]
    plan = _after(Decider(), 600, parts)
    assert [(m.left, m.right) for m in plan.merges] == [(3, 4)]


def test_h2_what_is_busy_or_has_just_changed_is_left_with_a_reason() -> None:
    """Two procedures on one partition wait for each other; averages of what it was mislead."""
    busy = _part(1, 2 * MAX, busy="it is being moved")
    plan = _after(Decider(), 60, [busy])
    assert plan.splits == ()
    assert "being moved" in plan.refused[0].reason
    others = [_part(i, 40 * MiB) for i in range(2, 8)]
    decider = Decider()
    hot = _part(1, MiB, units=5_000.0)
    _after(decider, 5 * (LOOKS - 2), [hot, *others])
    plan = _after(decider, 0, [replace(hot, epoch=2), *others])
    plan = _after(decider, 5, [replace(hot, epoch=2), *others])
    assert plan.splits == ()
    assert "rests" in plan.refused[0].reason
    assert _after(decider, POLICY.rest_s, [replace(hot, epoch=2), *others]).splits


def test_h1_only_so_many_at_once_the_largest_first() -> None:
    """A table loaded in bulk would be cut everywhere at the same moment."""
    parts = [_part(i, (i + 1) * MAX) for i in range(1, 10)]
    plan = _after(Decider(), 0, parts)
    assert [s.partition for s in plan.splits] == [9, 8, 7, 6]
    assert len(plan.refused) == 5
    decider = Decider()
    assert decider.look(0.0, parts, 3, POLICY, splitting=POLICY.splits_max).splits == ()
    small = [_part(i, 1_000) for i in range(1, 20)]
    plan = _after(Decider(), 600, small)
    assert len(plan.merges) == POLICY.merges_max
    assert not {m.left for m in plan.merges} & {m.right for m in plan.merges}


class Cluster:
    """A table's partitions by size, split and merged as the plans say."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = dict(enumerate(sizes))  # by place; ids are places of birth
        self.ids = list(range(len(sizes)))
        self.epochs = dict.fromkeys(self.ids, 1)
        self.changes: list[Split | Merge] = []
        self.cut: set[tuple[int, int]] = set()

    def parts(self) -> list[Part]:
        return [
            Part(
                id_,
                b"t",
                b"%08d" % place,
                b"%08d" % (place + 1),
                self.epochs[id_],
                size=self.sizes[id_],
            )
            for place, id_ in enumerate(self.ids)
        ]

    def do(self, plan: Plan, share: float) -> None:
        for split in plan.splits:
            new = max(self.sizes) + 1
            left = int(self.sizes[split.partition] * share)
            self.sizes[new] = self.sizes[split.partition] - left
            self.sizes[split.partition] = left
            self.cut.add((split.partition, new))
            self.ids.insert(self.ids.index(split.partition) + 1, new)
            self.epochs[new] = 1
            self.epochs[split.partition] += 1
        for merge in plan.merges:
            at = self.ids.index(merge.left)
            assert self.ids[at + 1] == merge.right
            self.sizes[merge.left] += self.sizes[merge.right]
            del self.ids[at + 1]
            self.epochs[merge.left] += 1
        self.changes += [*plan.splits, *plan.merges]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12 * MAX), min_size=1, max_size=12),
    st.sampled_from([0.4, 0.45, 0.5, 0.6]),
)
def test_h1_it_ends_every_partition_within_the_limit_and_nothing_is_undone(
    sizes: list[int], share: float
) -> None:
    """Splits that merges undo, or merges that splits undo, would go on for ever."""
    cluster, decider, now = Cluster(sizes), Decider(), 0.0
    quiet_s = 0.0
    while quiet_s < 10 * POLICY.settle_s:
        now += 5.0
        plan = decider.look(now, cluster.parts(), 3, POLICY)
        quiet_s = 0.0 if plan.splits or plan.merges else quiet_s + 5.0
        cluster.do(plan, share)
        assert now < 100_000, "it ends"
    living = [cluster.sizes[id_] for id_ in cluster.ids]
    assert all(size <= MAX for size in living)
    assert sum(living) == sum(sizes)
    halves = [
        c for c in cluster.changes if isinstance(c, Merge) and (c.left, c.right) in cluster.cut
    ]
    assert halves == [], "a split was undone"
