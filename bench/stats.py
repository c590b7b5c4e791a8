"""Pure arithmetic on measurements: percentiles of a run, medians over runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Record = dict[str, Any]  # one JSON line


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` of all do not exceed (nearest rank); None without values."""
    if not ordered:
        return None
    return ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1]


def summary(latencies_s: Sequence[float], window_s: float, rows_per_op: int = 1) -> Record:
    """Rate and latencies of the operations that ended inside a window of `window_s` seconds."""
    ordered = sorted(latencies_s)
    found: Record = {
        "ops_s": round(len(ordered) / window_s, 1),
        "p50_ms": _ms(percentile(ordered, 0.5)),
        "p99_ms": _ms(percentile(ordered, 0.99)),
    }
    if rows_per_op != 1:
        found["rows_s"] = round(len(ordered) * rows_per_op / window_s, 1)
    return found


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 4)


def per_op_us(cpu_s: float, ops: float) -> float | None:
    """CPU microseconds of one operation; None if there was none."""
    return round(cpu_s / ops * 1e6, 1) if ops else None


def median_of_runs(runs: Sequence[Mapping[str, Any]], rate: str = "ops_s") -> Record:
    """The median of every number, field by field; `runs` and `other_cores` keep one per run.

    Fields that are None in a run are left out of its median; `errors` are added up; of texts the
    first one stays.
    """
    merged: Record = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if run.get(name) is not None]
        if not values:
            merged[name] = None
        elif name == "other_cores":
            merged[name] = values
        elif name == "errors":
            merged[name] = sum(values)
        elif all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            middle = statistics.median(values)
            merged[name] = middle if isinstance(middle, int) else round(middle, 4)
        else:
            merged[name] = values[0]
    merged["runs"] = [run.get(rate) for run in runs]
    return merged
