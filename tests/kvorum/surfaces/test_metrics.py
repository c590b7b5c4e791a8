"""/metrics: names, help texts and labels that an operator can build on."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kvorum.http.metrics.figures import FIGURES
from kvorum.local.measure import POINTS_S, Histogram
from tests.kvorum.surfaces.conftest import Served


def test_every_figure_is_described(http: httpx.Client, served: Served) -> None:
    """A metric without a word on what it counts is guessed at, in the middle of an outage."""
    served.by_name["sdk"].table("default", "web").put("metrics", b"1")
    shown = {m.name: m for m in text_string_to_metric_families(http.get("/metrics").text)}
    ours = {name: m for name, m in shown.items() if name.startswith("kvorum_")}
    # those of clocks: test_causal_tokens.py; of links: kvorum/sites/test_links.py
    assert {n.removeprefix("kvorum_").removesuffix("_total") for n in ours} >= {
        name.removesuffix("_total")
        for name in FIGURES
        if name != "rpc_errors" and not name.startswith(("tso_clock_", "site_"))
    }
    for metric in ours.values():
        assert metric.documentation.endswith(".")
        assert metric.documentation != "Not described yet."
    called = {s.labels["method"] for s in ours["kvorum_rpc_requests"].samples}
    assert {"PUT", "LOOKUP"} <= called
    assert not [name for name in called if name.isdigit()]
    led = {s.labels["partition"]: s.value for s in ours["kvorum_partition_leader"].samples}
    assert led["1"] == 1
    assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= set(shown)


def test_histogram_counts_each_duration_once() -> None:
    """Buckets that overlap or a bound that belongs to neither side falsify every percentile."""
    taken = Histogram()
    for seconds in (0.0, POINTS_S[0], POINTS_S[0] * 1.01, POINTS_S[-1], POINTS_S[-1] + 1):
        taken.add(seconds)
    shown = dict(taken.cumulative())
    assert shown[str(POINTS_S[0])] == 2
    assert shown[str(POINTS_S[1])] == 3
    assert (shown[str(POINTS_S[-1])], shown["+Inf"]) == (4, 5)
