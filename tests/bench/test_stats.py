"""The arithmetic on measurements."""

from __future__ import annotations

import pytest

from bench.stats import median_of_runs, per_op_us, percentile, summary


def test_percentile_is_the_nearest_rank() -> None:
    """An off-by-one would report the wrong tail latency."""
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1.0) == 100
    assert percentile([7.0], 0.01) == percentile([7.0], 0.99) == 7
    assert percentile([], 0.5) is None


def test_summary_counts_only_what_the_window_holds() -> None:
    """Rates are per second of the window, latencies in ms; an operation may have many rows."""
    found = summary([0.004, 0.001, 0.002, 0.003], 2.0, 100)
    assert found == {"ops_s": 2.0, "p50_ms": 2.0, "p99_ms": 4.0, "rows_s": 200.0}
    assert summary([], 1.0) == {"ops_s": 0.0, "p50_ms": None, "p99_ms": None}


def test_median_of_runs_is_field_by_field() -> None:
    """A mean, or the fields of one chosen run, would let one noisy run decide."""
    runs = [
        {"ops_s": 10.0, "p50_ms": 3.0, "errors": 1, "other_cores": 0.1, "first_error": "a"},
        {"ops_s": 30.0, "p50_ms": None, "errors": 0, "other_cores": 0.9},
        {"ops_s": 20.0, "p50_ms": 5.0, "errors": 2, "other_cores": 0.2},
    ]
    assert median_of_runs(runs) == {
        "ops_s": 20.0,
        "p50_ms": 4.0,
        "errors": 3,
        "other_cores": [0.1, 0.9, 0.2],
        "first_error": "a",
        "runs": [10.0, 30.0, 20.0],
    }


@pytest.mark.parametrize(("cpu_s", "ops", "want"), [(0.5, 10_000, 50.0), (1.0, 0, None)])
def test_cpu_per_operation(cpu_s: float, ops: float, want: float | None) -> None:
    """Nothing done must not become a division by zero."""
    assert per_op_us(cpu_s, ops) == want
