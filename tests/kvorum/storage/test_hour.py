"""The samples of a node's last hour (kvorum/storage/hour.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.local.measure import Histogram
from kvorum.storage.health import Health
from kvorum.storage.hour import HOT_MAX, SAMPLES_MAX, Hour, quantile


class Scene:
    """A node with as many replicas as it is given, and a clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cpu = 0.0
        self.late = 0.0
        self.sync = Histogram()
        self.replicas: list[Any] = []
        self.hour = Hour(
            *(lambda: self.replicas, self.sync),
            late_s=lambda: self.late,
            cpu_s=lambda: self.cpu,
            now_ms=lambda: int(self.now * 1000),
            monotonic=lambda: self.now,
            more=lambda: {"expires_seconds": 5.0},
        )

    def add(self, id: int, *, leads: bool = True, lag: int = 0) -> Any:
        traffic = SimpleNamespace(reads=0, writes=0, read_bytes=0, write_bytes=0)
        status = SimpleNamespace(followers={2: SimpleNamespace(lag=lag)})
        replica = SimpleNamespace(
            descriptor=SimpleNamespace(id=id),
            machine=SimpleNamespace(traffic=traffic),
            group=SimpleNamespace(status=lambda: status),
            leads=lambda: leads,
        )
        self.replicas.append(replica)
        return traffic

    def later(self, seconds: float = 10.0) -> list[Any]:
        self.now += seconds
        self.hour.take()
        sample: list[Any] = self.hour.samples[-1]
        return sample


def test_a_sample_has_rates_of_what_it_leads() -> None:
    """A picture of sums only rises; one of followers counts each request three times."""
    scene = Scene()
    mine, other = scene.add(1, lag=7), scene.add(2, leads=False, lag=900)
    scene.later()
    mine.reads, mine.writes, mine.read_bytes, mine.write_bytes = 100, 50, 10_000, 5_000
    other.reads = 10_000
    scene.cpu, scene.late = 2.5, 0.25
    scene.sync.add(0.002)
    scene.sync.add(0.002)
    at_ms, reads, writes, size, sync_ms, p99, late_ms, lag, cpu, hot = scene.later()
    assert (at_ms, reads, writes, size) == (20_000, 10.0, 5.0, 1_500.0)
    assert (late_ms, lag, cpu) == (250, 7, 0.25)
    assert sync_ms == 2.0
    assert 1.0 < p99 <= 2.5
    assert hot == [[1, pytest.approx(15.0, abs=8)]]
    assert scene.later()[1:6] == [0.0, 0.0, 0.0, None, None], "nothing happened, nothing was synced"


def test_what_it_has_just_got_is_no_burst() -> None:
    """A leader that moved here with a million reads in its counters is not the hottest of all; one
    that moved away takes nothing off.
    """
    scene = Scene()
    scene.later()
    moved = scene.add(9)
    moved.reads = 1_000_000
    assert scene.later()[1] == 0.0
    moved.reads += 100
    assert scene.later()[1] == 10.0
    scene.replicas.clear()
    assert scene.later()[1] == 0.0
    moved = scene.add(9)
    moved.reads = 7  # a node that started anew
    assert scene.later()[1] == 0.0


def test_it_is_bounded_and_told_from_where_one_left_off() -> None:
    """A node that runs for a year would grow; a page that is open for a day asks for all of it."""
    scene = Scene()
    many = [scene.add(id) for id in range(1, 40)]
    for _ in range(SAMPLES_MAX + 20):
        for n, traffic in enumerate(many):
            traffic.reads += 10 * (n + 1)
        scene.later()
    assert len(scene.hour.samples) == SAMPLES_MAX
    hot = scene.hour.samples[-1][9]
    assert len(hot) == HOT_MAX
    assert hot[0][0] == 39, "the busiest first"
    (told,) = scene.hour.told(None, [int(scene.now * 1000) - 25_000])
    assert len(told["samples"]) == 3
    assert told["expires_seconds"] == 5.0
    (told,) = scene.hour.told(None, [0])
    assert len(told["samples"]) == SAMPLES_MAX


def test_a_quantile_of_a_histogram_lies_in_its_bucket() -> None:
    """A sync of 2 ms must not be told as one of 10."""
    taken = Histogram()
    for _ in range(99):
        taken.add(0.0008)
    taken.add(0.2)
    assert 0.0005 < quantile(taken.counts, 0.5) <= 0.001
    assert 0.1 < quantile(taken.counts, 1.0) <= 0.25
    beyond = Histogram()
    beyond.add(1_000)
    assert quantile(beyond.counts, 0.99) == 10


def test_the_longest_delay_of_the_loop_is_told_once() -> None:
    """A second of silence would be in every sample after it, or in none."""
    now = [0.0]
    health = Health(lambda: now[0], list, lambda: None)
    for late in (0.1, 1.5, 0.2):
        now[0] += 10
        health.look(now[0] - late)
    assert health.worst_s() == pytest.approx(1.5)
    assert health.worst_s() == 0.0
