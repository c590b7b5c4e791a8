"""The plan of faults: decided by the seed, bounded, and undone before the end."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kv.base.errors import InvalidArgument
from kvorum.verify.plan import KINDS, parse_kinds, plan
from kvorum.verify.random_choices import Chance


def chance(seed: int) -> Chance:
    return Chance(random.Random(seed))


def test_u12_the_same_seed_plans_the_same_faults() -> None:
    """A run that found something is to be run again."""
    first, again, other = (plan(chance(seed), KINDS, 60) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("seconds", [1, 5, 10, 60, 600])
def test_u12_faults_come_one_after_the_other_and_end_before_the_run(seconds: float) -> None:
    """A plan that never lets a majority live would test nothing but refusals."""
    for seed in range(50):
        faults = plan(chance(seed), KINDS, seconds)
        assert all(f.at_s > 0 and f.at_s + f.lasts_s < seconds for f in faults)
        assert all(a.at_s + a.lasts_s < b.at_s for a, b in pairwise(faults))
        assert all(0 <= f.draw < 1 for f in faults)
        assert seconds < 10 or faults
        assert not faults or faults[-1].shape != "all"


def test_u12_all_kinds_and_shapes_come() -> None:
    """A fault that is never drawn is never survived."""
    faults = plan(chance(3), KINDS, 3_600)
    shapes = {(f.kind, f.shape) for f in faults}
    assert {kind for kind, _ in shapes} == set(KINDS)
    assert {("kill", "all"), ("cut", "halves"), ("cut", "one-way"), ("pause", "leader")} <= shapes
    assert {f.kind for f in plan(chance(3), ("pause",), 600)} == {"pause"}
    assert plan(chance(3), (), 600) == []


def test_u12_wrong_faults_are_refused() -> None:
    """A typing error must not run without the fault that was meant."""
    assert parse_kinds("cut, kill", 3) == ("kill", "cut")
    assert parse_kinds("", 1) == parse_kinds("none", 1) == ()
    with pytest.raises(InvalidArgument, match="'burn' is no fault; there are kill, pause"):
        parse_kinds("kill,burn", 3)
    with pytest.raises(InvalidArgument, match="3 nodes or more, there are 2"):
        parse_kinds("cut", 2)
