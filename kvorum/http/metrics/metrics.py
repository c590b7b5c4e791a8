"""/metrics: figures that the node keeps anyway, read when somebody asks (Prometheus text format).

Counting must cost next to nothing on the hot path, so the layers below keep plain integers and this
module translates them by the table of figures.py. Only requests are measured here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from kvorum.api.verbs import method_name
from kvorum.http.metrics.figures import FIGURES, Figure
from kvorum.local.measure import Histogram

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
Figures = Callable[[], Mapping[str, float]]


class Collector(Protocol):
    def collect(self) -> Iterable[Metric]: ...


class Requests:
    """HTTP requests by route and status, with their latencies."""

    def __init__(self) -> None:
        self.by_status: dict[tuple[str, int], int] = {}
        self.latencies: dict[str, Histogram] = {}
        self.failures = 0

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (route, status)
        self.by_status[key] = self.by_status.get(key, 0) + 1
        latency = self.latencies.get(route)
        if latency is None:
            latency = self.latencies[route] = Histogram()
        latency.add(seconds)

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
        for route, taken in sorted(self.latencies.items()):
            latency.add_metric([route], taken.cumulative(), taken.sum_s)
        yield latency
        yield CounterMetricFamily(
            "kvorum_http_internal_errors", "Requests that met a bug.", value=self.failures
        )


class Metrics:
    """The registry of one node: its requests, the figures of its layers, its process."""

    def __init__(self) -> None:
        self.requests = Requests()
        self._sources: list[tuple[str, Figures]] = []
        self._histograms: list[tuple[str, str, Histogram]] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, layer: str, figures: Figures) -> None:
        """Export a layer's plain numbers as `kvorum_<layer>_<name>`, as figures.py has them."""
        self._sources.append((layer, figures))

    def add_collector(self, collector: Collector) -> None:
        """Export what it makes at each scrape."""
        self._registry.register(collector)

    def add_histogram(self, name: str, help_: str, taken: Histogram) -> None:
        """Export durations as `kvorum_<name>`."""
        self._histograms.append((f"kvorum_{name}", help_, taken))

    def collect(self) -> Iterable[Metric]:
        """What prometheus-client asks for at every scrape."""
        yield from self.requests.collect()
        for name, help_, taken in self._histograms:
            yield HistogramMetricFamily(
                name, help_, buckets=taken.cumulative(), sum_value=taken.sum_s
            )
        for layer, figures in self._sources:
            yield from _translate(layer, figures())

    def text(self) -> bytes:
        """The whole page."""
        return generate_latest(self._registry)


def _translate(layer: str, figures: Mapping[str, float]) -> Iterable[Metric]:
    """One metric per name in front of a dot."""
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for full, value in figures.items():
        name, _, thing = full.partition(".")
        family = families.get(name)
        if family is None:
            family = families[name] = _family(f"{layer}_{name}", labelled=bool(thing))
        if (layer, name) == ("rpc", "requests"):
            thing = method_name(int(thing))
        family.add_metric([thing] if thing else [], value)
    yield from families.values()


def _family(name: str, *, labelled: bool) -> CounterMetricFamily | GaugeMetricFamily:
    unknown = Figure("Not described yet.", label="of" if labelled else "")
    figure = FIGURES.get(name, unknown)
    labels = [figure.label] if figure.label else []
    make = GaugeMetricFamily if figure.gauge else CounterMetricFamily
    return make(f"kvorum_{name}", figure.help, labels=labels)
