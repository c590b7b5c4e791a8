"""Tests of test_suite.py, unchanged, on a node whose settings name another storage engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kvorum
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kvorum.surfaces import test_suite as suite

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kvorum.Database]:
    """Through the SDK, a node that was started with `--engine memory`."""
    data: Path = tmp_path_factory.mktemp("memory") / "data"
    with NodeProcess(data, free_port_base(), "--engine", "memory") as node:
        node.start()
        with kvorum.connect(node.url) as db:
            yield db
        assert node.stop() == 0, node.tail()


@pytest.mark.parametrize(
    "check",
    [
        suite.test_b1_put_get_delete,
        suite.test_b1_old_versions_are_read_by_their_timestamp,
        suite.test_b2_one_of_many_racing_puts_if_absent_wins,
        suite.test_b3_racing_increments_lose_nothing,
        suite.test_b4_delete_checks_the_version,
        suite.test_b10_pages_of_a_scan_are_one_snapshot,
        suite.test_b10_bounds,
        suite.test_b11_prefix_edges,
        suite.test_b12_reverse_is_the_forward_scan_backwards,
    ],
)
def test_a9_the_engine_is_swapped_by_a_setting(
    in_memory: kvorum.Database, check: Callable[[kvorum.Table], None]
) -> None:
    """Layers above that know which engine is below them work with that one only."""
    name = check.__name__
    in_memory.create_table("default", name, split_keys=["h", "p"])
    check(in_memory.table("default", name))


@pytest.mark.slow
def test_a9_the_other_engine_keeps_transactions_apart(in_memory: kvorum.Database) -> None:
    """The same for what is above the keys: transactions."""
    in_memory.create_table("default", "apart", split_keys=["h", "p"])
    table = in_memory.table("default", "apart")
    suite.test_p11_a_lost_update_is_impossible(in_memory, table)
    suite.test_d7_a_raised_block_writes_nothing(in_memory, table)
