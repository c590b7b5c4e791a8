"""What /metrics says of procedures by type, step and queue (procedures/engine/figures.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from procedures.engine.executor import Executor
from procedures.engine.figures import EDGES_MS, Times

_EDGES: Final = tuple(str(ms / 1000) for ms in EDGES_MS)


class ProcedureMetrics:
    """`current`: the executor of this node, while it has one."""

    def __init__(self, current: Callable[[], Executor | None]) -> None:
        self._current = current

    def collect(self) -> Iterable[Metric]:
        executor = self._current()
        types = {} if executor is None else executor.figures.types
        of_step = ["type", "step"]
        steps = HistogramMetricFamily(
            "kvorum_procedure_step_seconds", "Time of a finished execution.", labels=of_step
        )
        retries = CounterMetricFamily(
            "kvorum_procedure_step_retries", "Attempts that policies repeat.", labels=of_step
        )
        failures = CounterMetricFamily(
            "kvorum_procedure_step_failures", "Steps with which procedures failed.", labels=of_step
        )
        whole = HistogramMetricFamily(
            "kvorum_procedure_seconds", "Time from submission to end.", labels=["type"]
        )
        ended = CounterMetricFamily(
            "kvorum_procedure_ended", "Procedures that ended.", labels=["type", "state"]
        )
        for name, of in sorted(types.items()):
            for step, one in sorted(of.steps.items()):
                steps.add_metric([name, step], _cumulative(one.times), one.times.sum_ms / 1000)
                retries.add_metric([name, step], one.retries)
                failures.add_metric([name, step], one.failures)
            whole.add_metric([name], _cumulative(of.times), of.times.sum_ms / 1000)
            for state, count in sorted(of.ended.items()):
                ended.add_metric([name, state], count)
        yield from (steps, retries, failures, whole, ended)
        yield from _queues(executor)


def _queues(executor: Executor | None) -> Iterable[Metric]:
    waiting = GaugeMetricFamily(
        "kvorum_procedure_queue_waiting", "Procedures that could run and wait.", labels=["queue"]
    )
    oldest = GaugeMetricFamily(
        "kvorum_procedure_queue_oldest_seconds",
        "How long the next one of a queue has waited.",
        labels=["queue"],
    )
    for queue, (count, age_ms) in ({} if executor is None else executor.waiting()).items():
        waiting.add_metric([queue], count)
        oldest.add_metric([queue], age_ms / 1000)
    yield from (waiting, oldest)


def _cumulative(times: Times) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    below = 0
    for edge, n in zip((*_EDGES, "+Inf"), times.counts, strict=True):
        below += n
        found.append((edge, below))
    return found
