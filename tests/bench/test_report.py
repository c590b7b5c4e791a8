"""Results as Markdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report

RECORDS = [
    {
        "bench": "env",
        "date": "2026-01-01 00:00 UTC",
        "cores": 2,
        "cpu": "X",
        "memory_gb": 24.0,
        "kernel": "6.1",
        "filesystem": "ext4",
        "python": "3.11.2",
        "versions": {"msgpack": "1.0"},
    },
    {
        "bench": "kv",
        "op": "put",
        "clients": 64,
        "size": 100,
        "transport": "native",
        "client": "lean",
        "ops_s": 16_000.0,
        "p50_ms": 4.0,
        "p99_ms": 9.0,
        "server_us_op": 40.0,
        "client_us_op": 8.0,
        "runs": [16_000.0],
    },
    {
        "bench": "peer",
        "peer": "etcd",
        "op": "put",
        "clients": 64,
        "size": 100,
        "ops_s": 10_000.0,
        "p50_ms": 6.0,
        "p99_ms": 12.0,
        "server_us_op": 77.0,
        "client_us_op": 40.0,
    },
    {"bench": "memory", "op": "idle", "cpu_percent": 1.25, "rss_mb": 91.0},
]


def test_the_report_names_ratio_and_verdict() -> None:
    """The table is what the README shows: a wrong row there is a wrong promise."""
    text = report.render(RECORDS)
    assert (
        "| puts/s, 64 connections, against etcd | ≥ 1.5× | 1.6× | 16,000 | 10,000 | met |" in text
    )
    assert "| put 100 B | etcd | 64 | 10,000 | 6 | 12.0 | 77.0 | 40.0 |" in text
    assert "| idle node, % of a core | ≤ 2 | 1.25 | 1.25 |  | met |" in text
    assert "2 cores (X)" in text
    assert "- memory idle: cpu_percent 1.25, rss_mb 91.0" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1.5, "1.5"),
        (0.0417, "0.0417"),
        (45, "45"),
        (45.04, "45.0"),
        (-0.0, "0"),
        (12_345.6, "12,346"),
        (3, "3"),
    ],
)
def test_numbers_keep_about_three_digits(value: float | None, text: str) -> None:
    """More digits than the noise allows would pretend a precision that is not there."""
    assert report.number(value) == text


def test_a_bad_line_is_named() -> None:
    """A truncated file of results must not become a shorter table."""
    with pytest.raises(ValueError, match="line 3"):
        report.read([json.dumps(RECORDS[0]), "", '{"bench":'])
    assert report.read(["", json.dumps(RECORDS[1])]) == [RECORDS[1]]


def test_only_the_text_between_the_markers_changes(tmp_path: Path) -> None:
    """Regenerating the numbers must not touch what people wrote around them."""
    page = tmp_path / "page.md"
    page.write_text(f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n")
    report.insert(page, "new\n")
    assert page.read_text() == f"above\n{report.BEGIN}\nnew\n{report.END}\nbelow\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="must have the lines"):
        report.insert(page, "new\n")
    assert page.read_text() == "no markers"
