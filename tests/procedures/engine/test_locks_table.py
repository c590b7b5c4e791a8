"""Locks of procedures in memory: who may hold what, who waits for whom, circles (K6 to K8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import LOCK_RESOURCE_CHARS_MAX
from procedures.engine.locks import LockTable, circle_text
from procedures.engine.resources import EXCLUSIVE, SHARED, Locks, checked, closure
from procedures.engine.scheduler import Entry, FairScheduler

X, S = EXCLUSIVE, SHARED


# ------------------------------------------------------------------------------ names
def test_k6_what_locks_imply() -> None:
    """A table was changed while its namespace was dropped, or a partition while its table was."""
    assert closure(((X, "table/shop/orders"),)) == (
        (S, "namespace/shop"),
        (X, "table/shop/orders"),
    )
    assert closure(((S, "table/shop/orders"),)) == (
        (S, "namespace/shop"),
        (S, "table/shop/orders"),
    )
    assert closure(((X, "partition/shop/orders/7"),)) == (
        (S, "namespace/shop"),
        (X, "partition/7"),
        (S, "table/shop/orders"),
    )
    assert closure(((X, "partition/7"),)) == ((X, "partition/7"),)
    assert closure(((X, "namespace/shop"), (S, "table/shop/orders"))) == (
        (X, "namespace/shop"),
        (S, "table/shop/orders"),
    )


def test_k8_names_are_checked() -> None:
    """A mistyped resource would lock something that nobody else means."""
    good = [
        "meta",
        "server/3",
        "peer/west",
        "namespace/a",
        "table/a/b",
        "table/a/b/c.d",
        "partition/9",
        "partition/a/b/c/9",
        "x",
        "a/b/c",
    ]
    assert checked([(S, name) for name in good], "test") == tuple((S, n) for n in sorted(good))
    for bad in (
        "meta/1",
        "server/x",
        "server/0",
        "table/a",
        "table/a/",
        "partition/a/9",
        "namespace/",
        "",
        7,
    ):
        with pytest.raises(InvalidArgument):
            checked([(S, bad)], "test")  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="shared or exclusive"):
        checked([("mine", "x")], "test")
    with pytest.raises(TooLarge, match=f"limit is {LOCK_RESOURCE_CHARS_MAX}"):
        checked([(S, "x" * (LOCK_RESOURCE_CHARS_MAX + 1))], "test")
    assert checked([(S, "x"), (X, "x"), (S, "x")], "test") == ((X, "x"),)


# ------------------------------------------------------------------------------ the matrix
CLASSES = (
    "meta",
    "server/1",
    "server/2",
    "peer/a",
    "namespace/shop",
    "namespace/bank",
    "table/shop/orders",
    "table/shop/users",
    "table/bank/orders",
    "table/shop/orders/7",
    "partition/shop/orders/7",
    "partition/shop/orders/7/9",
    "partition/7",
    "partition/8",
    "mine",
)


def covers(resource: str) -> set[tuple[str, bool]]:
    """The model: what a lock of a resource touches, and whether in its own mode."""
    kind, *path = resource.split("/")
    if kind == "table":
        return {(resource, True), (f"namespace/{path[0]}", False)}
    if kind == "partition" and len(path) >= 3:
        namespace, *name, id = path
        table = f"table/{namespace}/{'/'.join(name)}"
        return {(f"partition/{id}", True), (table, False), (f"namespace/{namespace}", False)}
    return {(resource, True)}


@pytest.mark.parametrize("first", CLASSES)
def test_k8_matrix(first: str) -> None:
    """Every pair of classes and modes: two locks that touch must exclude each other if one is
    exclusive there, others must not.
    """
    for second, a, b in product(CLASSES, (S, X), (S, X)):
        conflict = any(
            one == other and X in (a if own else S, b if its else S)
            for one, own in covers(first)
            for other, its in covers(second)
        )
        table = LockTable()
        assert table.take(1, ((a, first),))
        assert table.take(2, ((b, second),)) is not conflict, (first, a, second, b)
        table.release(1)
        assert table.take(2, ((b, second),))
        table.release(2)
        assert len(table) == 0


# ------------------------------------------------------------------------------ waiting
def waits(table: LockTable, id: int, *locks: tuple[str, str]) -> None:
    assert not table.take(id, locks)
    assert table.wait(id, locks) == ([], [])


def test_k7_first_come_first_served_but_shared_ones_together() -> None:
    """Somebody overtook one who waits, or shared ones came one by one."""
    table = LockTable()
    table.take(1, ((X, "r"),))
    for id, mode in enumerate((S, S, X, S, X), start=2):
        waits(table, id, (mode, "r"))
    assert table.release(1) == [2, 3]
    assert not table.take(5, ((S, "r"),)), "an exclusive one came earlier"
    assert table.take(2, ((S, "r"),))
    assert table.take(3, ((S, "r"),))
    assert table.release(2) == []
    assert table.release(3) == [4]
    assert table.take(4, ((X, "r"),))
    assert table.release(4) == [5]
    assert table.take(5, ((S, "r"),))
    assert table.release(5) == [6]


def test_k7_a_place_in_every_queue() -> None:
    """One that wants two resources was overtaken at the free one, again and again."""
    table = LockTable()
    table.take(1, ((X, "a"),))
    waits(table, 2, (X, "a"), (X, "b"))
    assert not table.take(3, ((X, "b"),)), "b is free, but 2 waits for it and came earlier"
    waits(table, 3, (X, "b"))
    assert table.release(1) == [2]
    assert table.take(2, ())
    assert table.release(2) == [3]


def test_k7_one_who_leaves_lets_others_in() -> None:
    """A waiter was aborted; those behind it slept on."""
    table = LockTable()
    table.take(1, ((S, "r"),))
    waits(table, 2, (X, "r"))
    waits(table, 3, (S, "r"))
    waits(table, 4, (S, "r"))
    assert table.release(2) == [3, 4]


# ------------------------------------------------------------------------------ families
def test_k6_children_have_what_their_ancestors_hold() -> None:
    """A child waited for its parent, which waited for it; or two brothers worked on one thing."""
    table = LockTable()
    table.take(1, ((X, "r"),))
    waits(table, 9, (X, "r"))
    table.introduce(2, 1)
    table.introduce(3, 1)
    table.introduce(4, 2)
    assert table.take(2, ((X, "r"),)), "not behind the stranger, who waits for the parent"
    assert table.take(4, ((S, "r"),))
    waits(table, 3, (S, "r"))
    assert table.release(4) == []
    assert table.release(2) == [3]
    assert table.take(3, ())
    assert table.release(3) == []
    assert table.release(1) == [9]


def test_k6_a_circle_through_children_is_refused() -> None:
    """Two families waited for each other for ever."""
    table = LockTable()
    table.take(1, ((X, "a"),))
    table.take(2, ((X, "b"),))
    table.introduce(11, 1)
    table.introduce(21, 2)
    waits(table, 11, (X, "b"))
    assert not table.take(21, ((X, "a"),))
    circle, freed = table.wait(21, ((X, "a"),))
    assert freed == []
    assert circle_text(circle) == (
        "21 waits for a of 1, 1 waits for its descendant 11, 11 waits for b of 2, "
        "2 waits for its descendant 21"
    )
    assert not table.waits(21)
    table.release(21)
    assert table.release(2) == [11]


def test_k6_order_alone_makes_no_circle() -> None:
    """A child queued behind a stranger at one resource, who waits for its parent at another."""
    table = LockTable()
    table.take(1, ((X, "a"),))
    table.take(5, ((S, "b"),))
    waits(table, 2, (X, "a"), (X, "b"))
    table.introduce(11, 1)
    assert not table.take(11, ((X, "b"),))
    assert table.wait(11, ((X, "b"),)) == ([], []), "it passes 2, but 5 holds b"
    assert table.release(5) == [11]
    assert table.take(11, ())
    assert table.release(11) == []
    assert table.release(1) == [2]


# ------------------------------------------------------------------------------ against a model
@dataclass
class Model:
    """Everybody's locks and family, checked by brute force."""

    scheduler: FairScheduler = field(default_factory=FairScheduler)
    locks: dict[int, Locks] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)  # pushed, not running yet
    seen: dict[int, int] = field(default_factory=dict)  # those that had to wait → since
    refused: int = 0
    clock: int = 0

    def ancestors(self, id: int) -> set[int]:
        found = set()
        while id := self.parents.get(id, 0):
            found.add(id)
        return found

    def conflict(self, one: int, other: int) -> bool:
        mine, its = dict(map(reversed, closure(self.locks[one]))), closure(self.locks[other])
        return any(name in mine and X in (mode, mine[name]) for mode, name in its)

    def submit(self, locks: Locks, parent: int = 0) -> None:
        id = len(self.locks) + 1
        self.locks[id], self.parents[id] = locks, parent
        self.scheduler.introduce(id, parent)
        self.scheduler.push(Entry(id, parent, locks))
        self.waiting.append(id)
        self.clock += 1
        if self.scheduler.blocked(id):
            self.seen[id] = self.clock

    def pop(self) -> bool:
        before = {id for id in self.waiting if self.scheduler.blocked(id)}
        id = self.scheduler.pop()
        self.clock += 1
        for one in self.waiting:
            if self.scheduler.blocked(one):
                self.seen.setdefault(one, self.clock)
        if id is None:
            self.nobody_sleeps_on()
            return bool({i for i in self.waiting if self.scheduler.blocked(i)} - before)
        self.waiting.remove(id)
        if self.scheduler.circle(id):
            self.refused += 1
            self.scheduler.release(id)
            return True
        family = self.ancestors(id)
        for other in self.running:
            if other not in family and self.locks[id] and self.locks[other]:
                assert not self.conflict(id, other), (id, other)
        if not any(self.parents.values()):
            for other in self.waiting:
                if other in self.seen and self.seen[other] < self.seen.get(id, self.clock):
                    assert not self.conflict(id, other), f"{id} overtook {other}"
        self.running.append(id)
        return True

    def nobody_sleeps_on(self) -> None:
        """Nothing is in a queue: everybody who waits must have somebody in the way."""
        for id in self.waiting:
            assert self.scheduler.blocked(id), f"{id} could run and nobody woke it"

    def finish(self, which: int) -> None:
        """End one that has no children left."""
        living = set(self.running) | set(self.waiting)
        ends = [i for i in self.running if not any(self.parents[c] == i for c in living)]
        if ends:
            id = ends[which % len(ends)]
            self.running.remove(id)
            self.scheduler.release(id)

    def drain(self) -> None:
        while self.running or self.waiting:
            while self.pop():
                pass
            before = len(self.running)
            self.finish(0)
            assert len(self.running) < before or self.pop(), "everybody waits for somebody else"


NAMES = ("a", "b", "namespace/n", "table/n/t", "table/n/u", "partition/n/t/3")
LOCKS = st.lists(st.tuples(st.sampled_from((S, X)), st.sampled_from(NAMES)), max_size=3).map(
    lambda locks: checked(locks, "test")
)
STEP = st.one_of(
    st.tuples(st.just("submit"), LOCKS),
    st.tuples(st.just("child"), LOCKS, st.integers(0, 9)),
    st.tuples(st.just("pop")),
    st.tuples(st.just("finish"), st.integers(0, 9)),
)


def play(steps: list[tuple], *, children: bool) -> Model:  # type: ignore[type-arg]
    model = Model()
    for step in steps:
        match step:
            case ("submit", locks):
                model.submit(locks)
            case ("child", locks, which):
                if children and model.running:
                    model.submit(locks, model.running[which % len(model.running)])
                else:
                    model.submit(locks)
            case ("pop",):
                model.pop()
            case ("finish", which):
                model.finish(which)
    model.drain()
    table = model.scheduler._locks
    assert len(table) == 0
    left = (table._held, table._waiting, table._below, table._passes, table._parents)
    scheduler = model.scheduler
    assert not any((*left, scheduler._wanting, scheduler._up, scheduler._circles))
    return model


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, max_size=40))
def test_k7_strangers(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """Two held what excludes each other, one was overtaken by a later one, or slept on."""
    assert play(steps, children=False).refused == 0, "declared locks make no circles"


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, max_size=40))
def test_k7_families(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """With children: the same, and nobody waits for ever: a circle is refused."""
    play(steps, children=True)
