"""kv.base.fair_turns: who floods has one share of the loop, and nobody waits long behind it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pytest

from kv.base.accounts import Account
from kv.base.fair_turns import (
    CONTEST_S,
    LITTLE_US,
    PASS_S,
    REQUEST_US,
    ROWS,
    SENT,
    STANDS_S,
    FairTurns,
)
from kv.base.limits import DRAIN_ROWS_MAX, TURN_MS

EMPTY_PASS_S: Final = 0.000_02


def account(name: str) -> Account:
    return Account("user", name, lambda: 0, shown=True)


@dataclass
class Loop:
    """A loop in virtual time, on which work costs what it costs. Sockets are read at the beginning
    of each pass: what came meanwhile is taken then, or waits for a turn.
    """

    now: float = 10.0
    soon: deque[Callable[[], None]] = field(default_factory=deque)
    done: dict[str, int] = field(default_factory=dict)
    worked_s: dict[str, float] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.turns = FairTurns(lambda: self.now, self.soon.append)

    def comes(self, who: Account, cost_us: int, estimate_us: int) -> None:
        """One request, now; it costs this, and is counted as that."""
        came = self.now

        def work() -> bool:
            self.now += cost_us / 1_000_000
            who.worked_us += estimate_us
            self.done[who.name] = self.done.get(who.name, 0) + 1
            self.worked_s[who.name] = self.worked_s.get(who.name, 0.0) + cost_us / 1_000_000
            self.waits.setdefault(who.name, []).append(self.now - came)
            return False

        over = who.worked_us > who.free_us and self.turns.over(who)
        if over:
            self.turns.wait(who, work)
        else:
            work()

    def run(self, seconds: float, each_pass: Callable[[], None]) -> None:
        ends = self.now + seconds
        while self.now < ends:
            self.now += EMPTY_PASS_S
            for _ in range(len(self.soon)):
                self.soon.popleft()()
            each_pass()


class Flood:
    """So many connections, each with a request as soon as the one before is answered."""

    def __init__(
        self, loop: Loop, name: str, connections: int, cost_us: int, estimate: int
    ) -> None:
        self.loop, self.who, self.connections = loop, account(name), connections
        self.cost_us, self.estimate = cost_us, estimate
        self.sent = 0

    def __call__(self) -> None:
        while self.sent - self.loop.done.get(self.who.name, 0) < self.connections:
            self.sent += 1
            self.loop.comes(self.who, self.cost_us, self.estimate)
            if self.sent % self.connections == 0:
                break  # each of them once in a pass


class Steady:
    """One request now and then."""

    def __init__(self, loop: Loop, name: str, every_s: float, cost_us: int = 50) -> None:
        self.loop, self.who, self.every_s, self.cost_us = loop, account(name), every_s, cost_us
        self.next_s = loop.now

    def __call__(self) -> None:
        while self.next_s <= self.loop.now:
            self.next_s += self.every_s
            self.loop.comes(self.who, self.cost_us, 50)


@pytest.mark.few(5)
@pytest.mark.parametrize("cost_us", [10, 50, 200, 900])
@pytest.mark.parametrize("connections", [1, 8, 100, 1_000])
def test_g10_who_asks_little_waits_for_one_pass_whoever_floods(
    cost_us: int, connections: int
) -> None:
    """A hundred connections of one tenant would be served a hundred times before another one;
    estimates that are ten times too low would make passes long again.
    """
    loop = Loop()
    flood = Flood(loop, "flood", connections, cost_us, 50)
    quiet = Steady(loop, "quiet", 0.005)

    def both() -> None:
        flood()
        quiet()

    loop.run(1.5, both)
    warm = len(loop.waits["quiet"])
    loop.run(2.0, both)
    waits = sorted(loop.waits["quiet"][warm:])
    # A pass: at most a turn of the flood with one request too many, and as much that comes.
    most_s = 2 * (PASS_S + cost_us / 1_000_000) + 0.000_2
    assert len(waits) > 300
    assert waits[-1] <= most_s, f"{waits[-1] * 1_000:.2f} ms"
    busy = loop.worked_s["flood"] + loop.worked_s["quiet"]
    assert busy > 0.5 * 3.5 or connections == 1, "turns cost more than what is done in them"


def test_g10_tenants_that_flood_have_equal_shares_whatever_their_connections() -> None:
    """Whoever opens most connections, or sends the heaviest requests, would have most."""
    loop = Loop()
    floods = [
        Flood(loop, "many", 500, 50, 50),
        Flood(loop, "few", 5, 50, 50),
        Flood(loop, "heavy", 50, 800, 800),
    ]

    def all_() -> None:
        for flood in random.Random(len(loop.soon)).sample(floods, 3):
            flood()

    loop.run(0.5, all_)
    before = dict(loop.worked_s)
    loop.run(4.0, all_)
    shares = [loop.worked_s[name] - before[name] for name in before]
    assert max(shares) < 1.5 * min(shares), shares


def test_one_tenant_alone_never_waits() -> None:
    """Whoever has a node for himself would pay for others that are not there."""
    loop = Loop()
    flood = Flood(loop, "alone", 100, 50, 50)
    loop.run(1.0, flood)
    assert flood.who.waited == 0
    other = Steady(loop, "other", 0.001)

    def both() -> None:
        flood()
        other()

    loop.run(0.1, both)
    assert flood.who.waited > 0
    loop.run(CONTEST_S + 0.1, flood)
    waited = flood.who.waited
    loop.run(1.0, flood)
    assert flood.who.waited == waited, "the other one is gone"


def test_who_comes_late_begins_where_others_are() -> None:
    """A tenant that was quiet for an hour would have the loop for the next, or wait for one."""
    loop = Loop()
    first, second = Flood(loop, "first", 50, 50, 50), Flood(loop, "second", 50, 50, 50)
    steady = Steady(loop, "steady", 0.01)

    def begin() -> None:
        first()
        steady()

    loop.run(5.0, begin)
    before = loop.worked_s["first"]

    def both() -> None:
        first()
        second()

    loop.run(0.4, both)
    gained = loop.worked_s["first"] - before
    assert 0.5 < gained / loop.worked_s["second"] < 2


@pytest.mark.parametrize(("others", "passes"), [(True, 3), (False, 1)])
def test_g10_an_answer_that_needs_three_passes_meets_one_turn(others: bool, passes: int) -> None:
    """A get by HTTP would wait for three turns of a flood; or one alone would wait for nobody."""
    loop = Loop()
    flood = account("flood")
    if others:
        loop.turns.over(account("quiet"))
    loop.turns.over(flood)
    told: list[int] = []
    passed = [0]
    for _ in range(4):
        loop.turns.wait(flood, lambda: told.append(passed[0]) is None)
    for passed[0] in range(1, 20):
        for _ in range(len(loop.soon)):
            loop.soon.popleft()()
    assert len(told) == 4
    assert {b - a for a, b in pairwise(told)} == {passes}


def test_one_who_has_much_to_do_has_one_turn_in_a_pass() -> None:
    """Ten pipelines at once would be a pass of ten turns."""
    loop = Loop()
    assert loop.turns.claim()
    assert not loop.turns.claim()
    loop.soon.popleft()()
    assert loop.turns.claim()


def test_an_account_that_breaks_in_its_turn_is_not_the_end_of_turns() -> None:
    """One connection's bug would stop everybody who waits."""
    loop = Loop()
    broken, well = account("broken"), account("well")
    told: list[str] = []

    def breaks() -> bool:
        raise RuntimeError

    loop.turns.wait(broken, breaks)
    loop.turns.wait(broken, lambda: told.append("broken") is None)
    loop.turns.wait(well, lambda: told.append("well") is None)
    for _ in range(10):
        while loop.soon:
            call = loop.soon.popleft()
            try:
                call()
            except RuntimeError:
                told.append("raised")
    assert sorted(told) == ["broken", "raised", "well"]
    assert TURN_MS > 0


def test_g10_reads_look_at_few_rows_only_while_others_have_work() -> None:
    """One tenant alone would read in tiny pages, or a contested node in large ones."""
    loop, ann, bob = Loop(), account("ann"), account("bob")
    assert loop.turns.rows() == DRAIN_ROWS_MAX
    for who in (ann, bob):
        who.worked_us = 10_000
        loop.turns.over(who)
    assert loop.turns.rows() == ROWS
    loop.now += CONTEST_S
    assert loop.turns.rows() == DRAIN_ROWS_MAX, "nobody needs to ask for that"


def test_g10_a_flood_has_so_much_under_way_at_most() -> None:
    """A thousand writes of a flood are one entry of the log, and answered in one pass: 15 ms for
    everybody else.
    """
    loop, later = Loop(), list[tuple[float, Callable[[], None]]]()
    loop.turns = FairTurns(
        lambda: loop.now, loop.soon.append, lambda s, call: later.append((loop.now + s, call))
    )
    ann, bob = account("ann"), account("bob")
    most = 0

    def go() -> bool:
        """40 writes, which nobody answers yet."""
        nonlocal most
        bob.sent += 40
        bob.worked_us += 40 * REQUEST_US
        most = max(most, bob.sent)
        return True

    def each_pass() -> None:
        ann.worked_us += 2 * LITTLE_US  # somebody else is there
        loop.turns.over(ann)
        loop.turns.over(bob)
        while later and later[0][0] <= loop.now:
            later.pop(0)[1]()

    each_pass()
    for _ in range(1_000):
        loop.turns.wait(bob, go)
    loop.run(STANDS_S, each_pass)
    assert SENT <= most <= SENT + 40
    for n in range(1, 4):  # they are answered: it goes on at once
        bob.sent, most = 0, 0
        loop.turns.go_on()
        loop.run(STANDS_S / 4, each_pass)
        assert SENT <= most <= SENT + 40, n
    loop.run(3.5 * STANDS_S, each_pass)  # what it waits for may be what stands behind
    assert most >= SENT + 2 * 40
    passes = len(loop.soon)
    loop.run(STANDS_S / 2, each_pass)
    assert len(loop.soon) <= passes + 1, "it stands without turning"


def test_g10_who_is_alone_has_any_number_under_way() -> None:
    """A bulk load by the only user there would wait for each of its entries."""
    loop = Loop()
    bob = account("bob")

    def go() -> bool:
        bob.sent += 40
        return True

    for _ in range(50):
        loop.turns.wait(bob, go)
    loop.run(0.01, lambda: None)
    assert bob.sent == 50 * 40


def test_who_asks_seldom_is_no_contest() -> None:
    """A probe each second that asks whether the node lives made its one user take turns, so that
    his connections waited for each other.
    """
    now = 10.0
    turns = FairTurns(lambda: now, lambda _call: None)
    user, probe = account("user"), account("")
    for _ in range(100):
        now += 1.0
        user.worked_us += 500_000
        assert not turns.over(user)
        probe.worked_us += 300
        assert turns.seldom(probe)
        assert turns.rows() == DRAIN_ROWS_MAX
    at_once = 0
    while turns.seldom(probe):
        at_once += 1
        probe.worked_us += 300
    assert at_once < 10, "a flood is none"
