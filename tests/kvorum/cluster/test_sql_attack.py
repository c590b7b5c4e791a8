"""SQL under attack, in the simulation of whole clusters: a bounded part of `make attack-sql`."""

from __future__ import annotations

import pytest

from kvorum.verify.history import Header, History, Recorder
from tests.kvorum.cluster.sql_simulated import SQL, run_sql
from tests.kvorum.cluster.sql_workloads import all_or_nothing, each_once, index_is_table, no_orphans

SEEDS = range(1, 2 * len(SQL) + 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_p10_sql_keeps_its_promises_whatever_is_killed(seed: int) -> None:
    """A refused statement that was done, a lost row, an orphan, an index that is not its table:
    with lost messages, killed nodes and clients, cancelled statements, splits and moves.
    """
    outcome = run_sql(seed)
    assert outcome.violation is None, (
        f"{outcome.violation}; python -m tests.kvorum.cluster.sql_simulated --seeds {seed} --trace"
    )
    assert outcome.committed


def history(*told: tuple[str, object, str, object]) -> History:
    """Operations one after the other: f, arguments, outcome, result."""
    recorder = Recorder(Header("sql-loads"), lambda: 0.0)
    for f, args, outcome, result in told:
        op = recorder.invoke(1, f, args)
        match outcome:
            case "ok":
                recorder.ok(op, result)
            case "fail":
                recorder.fail(op, "40001")
            case _:
                recorder.unknown(op, "40003")
    return recorder.history


def test_p10_half_a_load_is_noticed() -> None:
    """The judge of COPY would let a part of a load, or a refused one, pass."""
    write = ("write", {"batch": 1, "count": 30})
    for outcome, found, wrong in (
        ("ok", 30, False),
        ("ok", 29, True),
        ("ok", 0, True),
        ("fail", 0, False),
        ("fail", 30, True),
        ("unknown", 30, False),
        ("unknown", 0, False),
        ("unknown", 7, True),
    ):
        told = history((*write, outcome, None), ("final read", {"batch": 1}, "ok", found))
        assert bool(all_or_nothing(told)) is wrong, (outcome, found)


def test_p10_orphans_and_indexes_that_lie_are_noticed() -> None:
    """The judges of foreign keys and of unique indexes would let them pass."""
    assert no_orphans(history(("read", None, "ok", [["late", 40, 3]])))
    assert not no_orphans(history(("read", None, "ok", [])))
    assert each_once(history(("read", None, "ok", [["n", "(1, 1, 1)", "[]"]])))
    assert not each_once(history(("read", None, "ok", [])))
    rows = ("final read", {"key": "all"}, "ok", [["a", "v1"]])
    assert not index_is_table(history(rows, ("final read", {"key": "a"}, "ok", "v1")))
    assert index_is_table(history(rows, ("final read", {"key": "a"}, "ok", None)))
    assert index_is_table(history(rows, ("final read", {"key": "b"}, "ok", "v2")))
