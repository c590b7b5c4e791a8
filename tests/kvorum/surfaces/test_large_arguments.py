"""Arguments and results that hold more items than a frame of the native protocol may (J3, M2)."""

from __future__ import annotations

import pytest

import kvorum
from kv.base.limits import LIST_ITEMS_MAX, PROCEDURE_ARGS_BYTES_MAX


def test_m2_long_lists_travel_both_ways(db: kvorum.Database, table: kvorum.Table) -> None:
    """A frame with such a list is refused whole: neighbours on the connection would fail, too."""
    items = list(range(LIST_ITEMS_MAX + 10))
    procedure = db.submit("sample.echo", {"items": items, "more": {"x": items[:3]}})
    assert db.wait(procedure, timeout_ms=20_000) == {"items": items, "more": {"x": [0, 1, 2]}}
    assert str(procedure) in [str(p.id) for p in db.procedures(name="sample.echo")]
    table.put("k", b"the connection still works")


def test_m2_arguments_above_the_limit_are_refused(db: kvorum.Database) -> None:
    """They would be sent whole, to be refused there."""
    with pytest.raises(kvorum.TooLarge) as refused:
        db.submit("sample.echo", {"blob": "x" * (PROCEDURE_ARGS_BYTES_MAX + 1)})
    assert refused.value.details["limit"] == PROCEDURE_ARGS_BYTES_MAX
