"""/metrics: figures that the node keeps anyway, read when somebody asks (Prometheus text format).

Counting must cost next to nothing on the hot path, so the layers below keep plain integers and this
module translates. Only requests are measured here, in histograms on coarse points. Names and units
follow the Prometheus conventions.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

log = logging.getLogger(__name__)

POINTS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
Figures = Callable[[], Mapping[str, float]]


class Requests:
    """HTTP requests by route and status, with their latencies."""

    def __init__(self) -> None:
        self.by_status: dict[tuple[str, int], int] = {}
        self.buckets: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}
        self.failures = 0

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (route, status)
        self.by_status[key] = self.by_status.get(key, 0) + 1
        counts = self.buckets.get(route)
        if counts is None:
            counts = self.buckets[route] = [0] * (len(POINTS_S) + 1)
            self.sums[route] = 0.0
        counts[bisect_left(POINTS_S, seconds)] += 1
        self.sums[route] += seconds

    def failed(self, route: str, error: BaseException) -> None:
        """Log a bug of ours that a request met."""
        self.failures += 1
        log.error("internal error at %s", route, exc_info=error)

    def collect(self) -> Iterable[Metric]:
        total = CounterMetricFamily(
            "kvorum_http_requests", "HTTP requests answered.", labels=["route", "status"]
        )
        for (route, status), n in sorted(self.by_status.items()):
            total.add_metric([route, str(status)], n)
        yield total
        latency = HistogramMetricFamily(
            "kvorum_http_request_seconds", "Time from request to reply.", labels=["route"]
        )
        for route, counts in sorted(self.buckets.items()):
            below, points = 0, []
            for edge, n in zip((*map(str, POINTS_S), "+Inf"), counts, strict=True):
                below += n
                points.append((edge, below))
            latency.add_metric([route], points, self.sums[route])
        yield latency
        yield CounterMetricFamily(
            "kvorum_http_internal_errors", "Requests that met a bug.", value=self.failures
        )


class Metrics:
    """The registry of one node: its requests, the figures of its layers, its process."""

    def __init__(self) -> None:
        self.requests = Requests()
        self._sources: list[tuple[str, Figures, frozenset[str]]] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, layer: str, figures: Figures, gauges: Iterable[str] = ()) -> None:
        """Export a layer's plain numbers as `kvorum_<layer>_<name>`; those in `gauges`
        may fall, others only rise.
        """
        self._sources.append((layer, figures, frozenset(gauges)))

    def collect(self) -> Iterable[Metric]:
        """What prometheus-client asks for at every scrape."""
        yield from self.requests.collect()
        for layer, figures, gauges in self._sources:
            yield from _translate(layer, figures(), gauges)

    def text(self) -> bytes:
        """The whole page."""
        return generate_latest(self._registry)


def _translate(
    layer: str, figures: Mapping[str, float], gauges: frozenset[str]
) -> Iterable[Metric]:
    """Names like `requests.3` are one metric `requests` with the label `kind="3"`."""
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for full, value in figures.items():
        name, _, kind = full.partition(".")
        family = families.get(name)
        if family is None:
            family = families[name] = _family(layer, name, name in gauges, labelled=bool(kind))
        family.add_metric([kind] if kind else [], value)
    yield from families.values()


def _family(
    layer: str, name: str, gauge: bool, *, labelled: bool
) -> CounterMetricFamily | GaugeMetricFamily:
    words = name.replace("_", " ")
    full = f"kvorum_{layer}_{name}"
    labels = ["kind"] if labelled else []
    if gauge:
        return GaugeMetricFamily(full, f"{layer}: {words} now.", labels=labels)
    return CounterMetricFamily(full, f"{layer}: {words} since the start.", labels=labels)
