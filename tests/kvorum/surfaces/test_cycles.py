"""How Python's search for reference cycles is set in processes that serve
(kvorum/local/cycles.py)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kvorum.local import cycles


@pytest.fixture
def calm() -> Iterator[None]:
    before = gc.get_threshold()
    cycles.calm()
    yield
    gc.set_threshold(*before)


class _Cycle:
    def __init__(self) -> None:
        self.me = self


def _searches() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


@pytest.mark.slow
@pytest.mark.usefixtures("calm")
def test_a_wave_of_requests_starts_no_search() -> None:
    """Fails if a few hundred requests in flight make Python search all of them for cycles."""
    before = _searches()
    waves = 0
    for _ in range(20):
        in_flight = [[n] for n in range(cycles.YOUNG_MAX // 4)]
        waves += len(in_flight)
        del in_flight
    assert waves > 700
    assert _searches() == before


@pytest.mark.slow
@pytest.mark.usefixtures("calm")
def test_what_refers_to_itself_is_found() -> None:
    """Fails if cycles are never given back: memory would grow with every error."""
    first = weakref.ref(_Cycle())
    assert first() is not None
    kept = [[n] for n in range(cycles.YOUNG_MAX + 1_000)]
    assert first() is None
    assert len(kept) > cycles.YOUNG_MAX


@pytest.mark.usefixtures("calm")
def test_what_was_there_before_is_not_searched() -> None:
    """Fails if a search of the old goes over everything that start-up made."""
    assert gc.get_freeze_count() > 10_000
