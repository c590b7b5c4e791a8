"""Rounds of the kill matrix for about a minute; more by command
(tests/clients/spark/kill_matrix.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.spark.kill_matrix import run

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("bulk", [False, True])
def test_o12_o13_kill_matrix(tmp_path: Path, bulk: bool) -> None:
    """Whatever is killed, a batch is lost, doubled or seen in part, or staging is left."""
    told = run(tmp_path, rounds=20, seed=20261122, quick=True, seconds=60, least=6, bulk=bulk)
    assert told["batches"] >= 4, "hardly anything was tried"
