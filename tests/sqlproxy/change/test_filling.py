"""Indexes that are filled while rows change, and whether it would be noticed if they were wrong."""

from __future__ import annotations

import pytest

from tests.sqlproxy.change import filling
from tests.sqlproxy.change.broken import RULES, seeds_until_noticed


@pytest.mark.parametrize("kind", filling.INDEXES)
@pytest.mark.parametrize("seed", range(4))
def test_q4_an_index_that_is_filled_beside_writers_is_the_table(seed: int, kind: str) -> None:
    """An entry too many answers with a row that is gone, one too few hides a row."""
    told = filling.play(seed, filling.INDEXES[kind])
    assert told.done > 5


@pytest.mark.parametrize("rule", RULES)
def test_q4_a_backfill_without_its_rules_is_noticed(rule: str) -> None:
    """Histories that pass whatever the backfill does prove nothing."""
    assert seeds_until_noticed(rule, 1, 40) is not None
