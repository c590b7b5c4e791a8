"""kv.base.tenants: what one tenant uses is bounded, and is nobody else's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from kv.base import tenants as module
from kv.base.accounts import DEBT_S, Use
from kv.base.errors import Busy
from kv.base.fair_turns import FairTurns
from kv.base.tenants import Tenants


@dataclass
class Node:
    """Tenants, and the time."""

    now_ms: int = 0
    tenants: Tenants = field(init=False)

    def __post_init__(self) -> None:
        self.tenants = Tenants(lambda: self.now_ms, FairTurns(lambda: self.now_ms / 1_000))

    def taken(self, name: str, tries: int, *, rows: int = 0, size: int = 0, sql_us: int = 0) -> int:
        """How many of so many requests, all at one moment, are let in; each uses that."""
        count = 0
        for _ in range(tries):
            use = Use(self.tenants.user(name))
            try:
                use.begin()
            except Busy:
                continue
            use.spend(rows, size, sql_us)
            use.end()
            count += 1
        return count


def test_a_flood_gets_its_rate_and_takes_nothing_from_others() -> None:
    """One tenant that asks as fast as it can would use up what another one has."""
    node = Node()
    node.tenants.follow("user.requests_per_s", "", 100)
    flood = 0
    for node.now_ms in range(0, 5_000, 10):
        flood += node.taken("flood", 50)
    assert flood == pytest.approx(100 + 100 * 5, abs=2)
    assert node.taken("quiet", 50) == 50


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("rows_per_s", {"rows": 10}),
        ("bytes_per_s", {"size": 10}),
        ("sql_ms_per_s", {"sql_us": 10_000}),
    ],
)
def test_what_requests_cost_is_paid_before_the_next(limit: str, used: dict[str, int]) -> None:
    """A tenant with few requests that are large would have no limit at all."""
    node = Node()
    node.tenants.follow(f"user.{limit}", "", 100)
    taken = 0
    for node.now_ms in range(0, 5_000, 10):
        taken += node.taken("large", 5, **used)
    assert taken == pytest.approx((100 + 100 * 5) / 10, abs=2)
    assert node.taken("quiet", 5) == 5


def test_one_huge_request_does_not_lock_its_user_out_for_hours() -> None:
    """Rows are known when they were read: a mistaken scan of a table would end its user's day."""
    node = Node()
    node.tenants.follow("user.rows_per_s", "", 10)
    assert node.taken("a", 1, rows=1_000_000) == 1
    with pytest.raises(Busy) as found:
        Use(node.tenants.user("a")).begin()
    assert found.value.details["retry_after_ms"] <= (DEBT_S + 1) * 1_000
    node.now_ms += found.value.details["retry_after_ms"]
    assert node.taken("a", 1) == 1


def test_who_is_refused_is_told_what_and_when_to_come_again() -> None:
    """Clients that come again too early are refused again, and cost more than they need."""
    node = Node()
    node.tenants.follow("user.requests_per_s", "", 4)
    assert node.taken("a", 10) == 4
    with pytest.raises(Busy, match=r"user a .* 4 requests per second at this node") as found:
        Use(node.tenants.user("a")).begin()
    wait_ms = found.value.details["retry_after_ms"]
    assert 0 < wait_ms <= 251
    node.now_ms += wait_ms
    Use(node.tenants.user("a")).begin()


def test_requests_under_way_are_counted_until_they_end() -> None:
    """A tenant whose requests are slow would fill the node without asking often."""
    node = Node()
    node.tenants.follow("user.requests_max", "", 2)
    first, second, third, other = (Use(node.tenants.user(name)) for name in "aaab")
    for use in (first, second, other):
        use.begin()
    with pytest.raises(Busy):
        third.begin()
    first.end()
    first.end()
    third.begin()
    with pytest.raises(Busy):
        first.begin()


def test_a_request_counts_for_its_namespace_too_and_a_refusal_for_nobody() -> None:
    """Two users would have twice what their namespace may; or who is refused would pay."""
    node = Node()
    node.tenants.follow("namespace.requests_per_s", "", 3)
    uses = [Use(node.tenants.user(f"u{n}")) for n in range(5)]
    taken = 0
    for use in uses:
        use.begin()
        with suppress(Busy):
            use.join(node.tenants.namespace("shop"))
            taken += 1
        use.end()
    assert taken == 3
    with pytest.raises(Busy, match="namespace shop"):
        Use(node.tenants.namespace("shop")).begin()
    both = Use(node.tenants.user("u9"), node.tenants.namespace("shop"))
    with pytest.raises(Busy):
        both.begin()
    assert node.tenants.user("u9").requests == node.tenants.user("u9").under_way == 0


def test_one_name_has_a_limit_of_its_own_until_it_is_taken_back() -> None:
    """The batch user needs less than others, the shop more; and who is lifted again has all's."""
    node = Node()
    node.tenants.follow("user.requests_per_s", "", 10)
    node.tenants.follow("user.requests_per_s", "batch", 2)
    node.tenants.follow("user.requests_per_s", "shop", 0)
    assert [node.taken(name, 50) for name in ("batch", "shop", "ann")] == [2, 50, 10]
    node.tenants.follow("user.requests_per_s", "batch", -1)
    node.now_ms += 10_000
    assert node.taken("batch", 50) == 10


def test_an_operator_is_counted_and_never_refused() -> None:
    """Whoever has to end a flood would wait behind it."""
    node = Node()
    node.tenants.follow("user.requests_max", "", 1)
    for _ in range(5):
        Use(node.tenants.user("root"), asked=False).begin()
    assert node.tenants.user("root").under_way == 5


def test_connections_are_counted_until_they_end() -> None:
    """One user's idle connections would take every seat."""
    node = Node()
    node.tenants.follow("user.connections_max", "", 1)
    account = node.tenants.user("a")
    account.connect()
    with pytest.raises(Busy):
        account.connect()
    account.disconnect()
    account.connect()


def test_a_limit_that_is_taken_away_ends_at_once() -> None:
    """An operator who lifts a limit in an incident waits for nothing."""
    node = Node()
    node.tenants.follow("user.requests_per_s", "", 1)
    assert node.taken("a", 5) == 1
    before = node.tenants.limited
    node.tenants.follow("user.requests_per_s", "", 0)
    assert (before, node.tenants.limited) == (True, False)
    assert node.taken("a", 5) == 5


def test_a_flood_of_names_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names cost memory; but one with requests under way must not get its share a second time."""
    monkeypatch.setattr(module, "NAMES_MAX", 10)
    monkeypatch.setattr(module, "NAMES_SHOWN", 4)
    node = Node()
    node.tenants.follow("user.requests_max", "", 1)
    Use(node.tenants.user("busy")).begin()
    for number in range(100):
        assert node.taken(f"n{number}", 1) == 1
    figures = node.tenants.figures()
    told = {name for name in figures if name.startswith("requests.")}
    assert told <= {
        "requests.user busy",
        *(f"requests.user n{n}" for n in range(100)),
        "requests.other users",
    }
    assert len(told) <= 5
    assert sum(figures[name] for name in told) == 101
    with pytest.raises(Busy):
        Use(node.tenants.user("busy")).begin()
