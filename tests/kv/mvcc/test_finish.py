"""FINISH: the ends of several committed transactions in one request (docs/decisions/0305)."""

from __future__ import annotations

import pytest

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import ENDS_KEYS_MAX, ENDS_MAX
from kv.base.methods import (
    ABORTED,
    BLIND,
    CHECK,
    COMMITTED,
    FINISH,
    GET,
    OP_PUT,
    PREWRITE,
    PUT,
    RESOLVE,
    ROLLBACK,
)
from tests.kv.partition.node import Node

A, B, C = b"tab.a", b"tab.b", b"tab.c"


def staged(node: Node, *keys: bytes, anchor: bytes) -> tuple[int, int]:
    """Intents of a parallel commit, and its record if the anchor is among them: (start, bound)."""
    start = node.oracle(1)
    ops = [[OP_PUT, key, b"new", None, 0] for key in keys]
    options = {"fence": True} | ({"stage": [list(keys)]} if anchor in keys else {})
    bound, exact = node.call(PREWRITE, A, start, anchor, 5_000, ops, BLIND, options)
    assert exact
    return start, bound


def test_d13_finish_flips_and_resolves_in_one_entry() -> None:
    """In two, a crash between them would leave intents for readers to clean up."""
    node = Node()
    start, bound = staged(node, A, B, anchor=A)
    entries = node.machine().counters.entries
    assert node.call(FINISH, A, [[start, A, bound, [A, B]]]) == [[[COMMITTED, 0]]]
    assert node.machine().counters.entries == entries + 1
    assert node.call(CHECK, A, A, start, 0, 1)[:2] == [COMMITTED, bound]
    assert node.call(GET, A, A, 0, None) == node.call(GET, A, B, 0, None) == [b"new", bound]


def test_d13_finish_resolves_nothing_that_is_not_committed_at_that_moment() -> None:
    """An intent would become a version of a transaction that was rolled back, or at a wrong
    timestamp, and its neighbours in the request must not suffer for it.
    """
    node = Node()
    dead, lost = staged(node, A, anchor=A)
    node.call(ROLLBACK, A, A, dead, {"own": True})
    good, bound = staged(node, B, anchor=B)
    other, later = staged(node, C, anchor=C)
    node.call(FINISH, A, [[other, C, later, [C]]])
    never = node.oracle(2)
    told = node.call(
        FINISH,
        A,
        [
            [dead, A, lost, [A]],
            [never, C, never + 1, [C]],  # never prewritten
            [other, C, later + 1, [C]],  # committed, at another timestamp
            [good, B, bound, [B]],
        ],
    )
    assert told == [[[ABORTED, 1], [0, 1], [COMMITTED, 1], [COMMITTED, 0]]]
    node.call(RESOLVE, A, dead, 0, [A])
    assert node.call(GET, A, A, 0, None) == [None, 0]
    assert node.call(GET, A, B, 0, None) == [b"new", bound]
    assert node.call(GET, A, C, 0, None) == [b"new", later]


def test_d13_finish_twice_writes_nothing_twice() -> None:
    """Its reply may be lost; somebody else may have written the key since."""
    node = Node()
    start, bound = staged(node, A, anchor=A)
    row = [start, A, bound, [A]]
    node.call(FINISH, A, [row])
    (newer,) = node.call(PUT, A, A, b"newer", None, 0)
    assert node.call(FINISH, A, [row]) == [[[COMMITTED, 0]]]
    assert node.call(GET, A, A, 0, None) == [b"newer", newer]


def test_d13_finish_stops_at_the_bytes_of_a_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry would hold megabytes of every transaction that a client commits at once."""
    monkeypatch.setattr("kv.partition.writes.RESOLVE_BYTES", 1)
    node = Node()
    one, first = staged(node, A, anchor=A)
    two, second = staged(node, B, anchor=B)
    told = node.call(FINISH, A, [[one, A, first, [A]], [two, B, second, [B]]])
    assert told == [[[COMMITTED, 0], [0, 1]]]
    assert node.call(CHECK, A, B, two, 0, 1)[0] != COMMITTED, "not looked at"


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ([], InvalidArgument),
        ([[1, A, 2]], InvalidArgument),
        ([[1, A, 2, []]], InvalidArgument),
        ([[1, A, 1, [A]]], InvalidArgument),
        ([[1, A, 2, [A, A]]], InvalidArgument),
        ([[1, A, 2, [A]], [1, A, 3, [A]]], InvalidArgument),
        ([[1, "a", 2, [A]]], InvalidArgument),
        ([[i, None, i + 1, [A]] for i in range(1, ENDS_MAX + 2)], TooLarge),
        ([[1, None, 2, [b"tab.%d" % i for i in range(ENDS_KEYS_MAX + 1)]]], TooLarge),
    ],
)
def test_c15_finish_refuses_what_makes_no_sense(ends: object, error: type[Exception]) -> None:
    """Bad input changes nothing; the same transaction twice would have two outcomes."""
    with pytest.raises(error):
        Node().call(FINISH, A, ends)
