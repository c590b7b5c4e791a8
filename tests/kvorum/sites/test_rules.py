"""What becomes of a key that two clusters wrote: the rules alone, and a model of two clusters that
exchange their writes in every order.
"""

from __future__ import annotations

import json
from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.sites import rules
from kvorum.sites.marks import Mark
from kvorum.sites.rules import Change, Joined, Rule, Standing, asks, verdict

HERE = Standing(b"here", 10, True)


def last(here: Standing, change: Change, *, higher: bool = False) -> rules.Verdict:
    return verdict("last", here, change, higher=higher)


def test_r3_what_was_known_is_replaced() -> None:
    """A write that followed what is here would lose to it, or be told as a conflict."""
    assert last(HERE, Change(b"there", 11, 10)) == (b"there", True, False, False)
    assert last(HERE._replace(ours=False, version=12), Change(b"there", 11, 0)).write
    assert last(HERE, Change(None, 11, 10)) == (None, True, False, False)


@pytest.mark.parametrize(
    ("version", "higher", "stays"), [(9, False, True), (11, True, False), (10, True, True)]
)
def test_r3_the_last_of_two_that_knew_nothing_of_each_other(
    version: int, higher: bool, stays: bool
) -> None:
    """The clusters would keep different values, or a conflict would not be told."""
    found = last(HERE, Change(b"there", version, 5), higher=higher)
    assert (found.write, found.conflict) == (not stays, True)
    there = Standing(b"there", version, True)
    other = last(there, Change(b"here", 10, 5), higher=not higher)
    assert other.value == found.value


def test_r3_a_counter_adds_differences() -> None:
    """Increments of one of the clusters would be lost."""
    here = Standing(b"7", 10, True)
    assert verdict("counter", here, Change(b"6", 11, 5, 0, b"5"), higher=True).value == b"8"
    gone = verdict("counter", here, Change(None, 11, 5, 0, b"7"), higher=True)
    assert gone == (None, True, False, False)
    words = verdict("counter", here, Change(b"six", 11, 5, 0, b"5"), higher=True)
    assert (words.value, words.conflict) == (b"six", True)


def test_r3_sets_are_united() -> None:
    """An element that one of them added would be lost, or the two be different bytes."""
    one = Standing(b'["b", {"x": 1, "a": 2}]', 10, True)
    other = Change(b'[{"a":2,"x":1},"c"]', 11, 5)
    found = verdict("set", one, other, higher=True)
    assert found.ours
    assert found.value is not None
    assert json.loads(found.value) == ["b", "c", {"a": 2, "x": 1}]
    assert other.value is not None
    assert one.value is not None
    back = verdict("set", Standing(other.value, 11, True), Change(one.value, 10, 5), higher=False)
    assert back.value == found.value


def test_r3_a_procedure_is_asked_only_of_conflicts() -> None:
    """It would run for each write of the other cluster."""
    assert asks("procedure", HERE, Change(b"there", 11, 5))
    assert not asks("procedure", HERE, Change(b"here", 11, 5))
    assert not asks("procedure", HERE, Change(b"there", 11, 10))
    change = Change(b"there", 11, 5)
    found = verdict("procedure", HERE, change, higher=True, joined=Joined(b"both"))
    assert found == (b"both", True, True, True)


def test_r3_a_mark_is_read_as_it_was_written() -> None:
    """A position would be taken for another one."""
    mark = Mark(5, 3, 9, b"key", (b"a.b/c",))
    assert Mark.decode(mark.encode()) == mark
    assert mark.took(5, b"z")
    assert mark.took(9, b"key")
    assert not mark.took(9, b"kez")
    assert not mark.took(6, b"a")


class Sent(NamedTuple):
    """A write on its way: `seen` is how far its cluster had the other's."""

    value: bytes | None
    version: int
    seen: int
    before: bytes | None


class Model:
    """One key of one cluster, without a store."""

    def __init__(self, higher: bool) -> None:
        self.higher = higher
        self.standing = Standing(None, 0, False)
        self.position = 0
        self.sent: deque[Sent] = deque()

    def writes(self, value: bytes | None, now: int) -> None:
        before, self.standing = self.standing.value, Standing(value, now, True)
        self.sent.append(Sent(value, now, self.position, before))

    def takes(self, rule: Rule, sent: Sent, now: int) -> None:
        assert now > sent.version, "who takes over waits until its clock has passed"
        here, change = self.standing, Change(sent.value, sent.version, sent.seen, 0, sent.before)
        joined = None
        if asks(rule, here, change):
            joined = Joined(max(here.value or b"", change.value or b""))
        found = verdict(rule, here, change, higher=self.higher, joined=joined)
        self.position = sent.version
        if not found.write:
            return
        self.standing = Standing(found.value, now, found.ours)
        if found.ours:
            self.sent.append(Sent(found.value, now, self.position, here.value))


def _value(rule: Rule, number: int) -> bytes:
    return b"[%d]" % number if rule == "set" else b"%d" % number


@pytest.mark.parametrize("rule", rules.RULES)
@given(
    story=st.lists(
        st.tuples(st.booleans(), st.one_of(st.none(), st.just(-1), st.integers(0, 5))), max_size=30
    )
)
def test_r3_two_clusters_come_to_the_same(rule: Rule, story: list[tuple[bool, int | None]]) -> None:
    """Some order of writes and exchanges would leave two values, or exchanges without an end."""
    sites = Model(False), Model(True)
    now = 1
    total = 0
    for which, what in story:
        now += 1
        one, other = sites[which], sites[not which]
        if what == -1:
            if other.sent:
                one.takes(rule, other.sent.popleft(), now)
            continue
        value = None if what is None else _value(rule, what)
        if rule == "counter":
            total += (what or 0) - int(one.standing.value or 0)
        one.writes(value, now)
    for _ in range(200):
        busy = [which for which in (0, 1) if sites[1 - which].sent]
        if not busy:
            break
        now += 1
        sites[busy[0]].takes(rule, sites[1 - busy[0]].sent.popleft(), now)
    assert not sites[0].sent
    assert not sites[1].sent
    values = [site.standing.value for site in sites]
    if rule == "counter":
        assert [int(value or 0) for value in values] == [total, total]
    else:
        assert values[0] == values[1]
