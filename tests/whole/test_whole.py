"""Whole clusters under simulation: a bounded part of what `make sim-txn` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole.cli import replay_command
from tests.whole.world import run_seed

SEEDS = 200
CHUNK = 20


@pytest.mark.parametrize("first", range(1, SEEDS, CHUNK))
def test_d1_whole_clusters_keep_their_promises(first: int) -> None:
    """Any schedule of faults: what clients saw can be explained, and a healed cluster recovers."""
    for seed in range(first, first + CHUNK):
        outcome = run_seed(seed)
        assert outcome.violation is None, f"{outcome.violation}; {replay_command(seed)}"


def test_a_seed_replays_exactly() -> None:
    """Else a failing seed could not be looked at; sets may be in another order in each process."""
    digests = [_digest("3..6", hash_seed) for hash_seed in "12"]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == len(digests[0]) > 1


def _digest(seeds: str, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.whole", "--seeds", seeds, "--digests"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
