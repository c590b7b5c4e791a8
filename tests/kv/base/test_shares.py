"""kv.base.fair_shares: what one name uses is bounded, and is nobody else's."""

from __future__ import annotations

import pytest

from kv.base import fair_shares as module
from kv.base.errors import Busy
from kv.base.fair_shares import Shares


def taken(shares: Shares, name: str, now_ms: int, tries: int) -> int:
    """How many of so many requests, all at one moment, are let in."""
    count = 0
    for _ in range(tries):
        try:
            shares.begin(name, now_ms)
        except Busy:
            continue
        shares.end(name)
        count += 1
    return count


def test_a_flood_gets_its_rate_and_takes_nothing_from_others() -> None:
    """One tenant that asks as fast as it can would use up what another one has."""
    shares = Shares()
    shares.set_rate(100)
    flood = sum(taken(shares, "flood", now_ms, 50) for now_ms in range(0, 10_000, 10))
    assert flood == pytest.approx(100 + 100 * 10, abs=2)
    assert taken(shares, "quiet", 10_000, 50) == 50


def test_who_is_refused_is_told_when_to_come_again() -> None:
    """Clients that come again too early are refused again, and cost more than they need."""
    shares = Shares()
    shares.set_rate(4)
    assert taken(shares, "a", 0, 10) == 4
    with pytest.raises(Busy) as found:
        shares.begin("a", 0)
    wait_ms = found.value.details["retry_after_ms"]
    assert 0 < wait_ms <= 251
    shares.begin("a", wait_ms)


def test_requests_under_way_are_counted_until_they_end() -> None:
    """A tenant whose requests are slow would fill the node without asking often."""
    shares = Shares()
    shares.set_concurrent(2)
    shares.begin("a", 0)
    shares.begin("a", 0)
    shares.begin("b", 0)
    with pytest.raises(Busy):
        shares.begin("a", 0)
    shares.end("a")
    shares.begin("a", 0)
    assert shares.figures() == {"names": 2, "requests_under_way": 3, "requests_refused": 1}


def test_a_limit_that_is_taken_away_ends_at_once() -> None:
    """An operator who lifts a limit in an incident waits for nothing."""
    shares = Shares()
    shares.set_rate(1)
    assert taken(shares, "a", 0, 5) == 1
    before = shares.limited
    shares.set_rate(0)
    assert (before, shares.limited) == (True, False)
    assert taken(shares, "a", 0, 5) == 5


def test_a_flood_of_names_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names cost memory; but one with requests under way must not get its share a second time."""
    monkeypatch.setattr(module, "NAMES_MAX", 10)
    shares = Shares()
    shares.set_concurrent(1)
    shares.begin("busy", 0)
    for number in range(100):
        shares.begin(f"n{number}", 0)
        shares.end(f"n{number}")
    assert shares.figures()["names"] <= 10
    with pytest.raises(Busy):
        shares.begin("busy", 0)
