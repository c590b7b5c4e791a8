"""What a commit costs, as users see it: messages, round trips and syncs (D13)."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvorum

pytestmark = pytest.mark.slow


def test_d13_trace_of_a_commit_through_the_sdk(tmp_path: Path) -> None:
    """A figure that nobody can look at is believed, not known."""
    with kvorum.open(str(tmp_path / "data")) as db:
        db.create_table("default", "t", split_keys=["m"])
        with db.transaction() as t:
            assert t.trace() is None, "nothing was sent yet"
            t.table("default", "t").put("a", "1")
            t.table("default", "t").put("z", "1")
        trace = t.trace()
        assert trace is not None
        assert (trace.round_trips, trace.syncs) == (1, 1), str(trace)
        assert [m.name for m in trace.messages[:2]] == ["PREWRITE", "PREWRITE"]
        assert "answered: 1 round trip, 1 sync" in str(trace)
        with db.transaction() as t:
            t.table("default", "t").put("a", "2")
            t.table("default", "t").put("b", "2")
        trace = t.trace()
        assert trace is not None
        assert [(m.name, m.rows) for m in trace.messages] == [("WRITE", 2)]
        assert (trace.round_trips, trace.syncs) == (1, 1)


def test_p10_transaction_larger_than_memory_through_the_sdk(tmp_path: Path) -> None:
    """What the client holds of a transaction would be bounded by nothing."""
    with kvorum.open(str(tmp_path / "data")) as db:
        db.create_table("default", "t", split_keys=["m"])
        table = db.table("default", "t")
        value = b"v" * 4000
        with db.transaction() as t:
            rows = t.table("default", "t")
            for i in range(10_000):
                rows.put(f"{'az'[i % 2]}{i:06}", value)
            assert rows.get("a000000") == (value, 0)
        assert table.get("z009999") == (value, t.version)
        assert sum(1 for _ in table.rows(prefix="a")) == 5_000
