"""A message of consensus that is not what it says reaches no group."""

from __future__ import annotations

from typing import Any

import pytest

from raft.group import _DOORS
from raft.rules.membership import membership
from raft.shapes import FIELDS, REQUIRED, trouble
from tests.raft.test_host import Machine, Node

RIGHT: dict[str, Any] = {
    **{name: 1 for name, types in FIELDS.items() if int in types},
    **{name: True for name, types in FIELDS.items() if bool in types},
    "term": 0,  # of a leader that was
    "at": 1.0,
    "entries": [],
    "members": [1],
    "reason": "why",
    "data": b"x",
    "config": membership(1, (1, 2, 3)).encode(),
}
WRONG = (None, -1.5, "x", b"\xff", [], {}, [None], True)


def message(kind: str) -> dict[str, Any]:
    found = {"type": kind, **{name: RIGHT[name] for name in REQUIRED[kind]}}
    return found | ({"config": 1} if kind == "removed" else {})


def test_every_kind_that_a_group_takes_has_a_shape() -> None:
    """A new kind of message is checked, too."""
    assert REQUIRED.keys() == _DOORS.keys()
    assert {name for names in REQUIRED.values() for name in names} <= FIELDS.keys()
    assert all(trouble(message(kind)) is None for kind in REQUIRED)
    assert trouble({"type": "of a newer version", "term": "x"}) is None


@pytest.mark.parametrize("kind", sorted(REQUIRED))
def test_a_malformed_message_stops_no_replica(kind: str) -> None:
    """Each field is left out and made wrong, of a kind's own and of all others; the group goes on
    leading.
    """
    node = Node()
    machine = Machine()
    group = node.lead(machine, 1)
    for name in FIELDS:
        whole = message(kind)
        without = {field: value for field, value in whole.items() if field != name}
        node.host.receive(2, 1, without)
        for wrong in WRONG:
            node.host.receive(2, 1, {**whole, name: wrong})
    for odd in ({"type": kind}, {"type": kind, "term": 2**70}, {"type": kind, "prevLogIdx": 1}):
        node.host.receive(2, 1, odd)
    assert node.fatal == []
    node.timers.run(5)
    assert node.fatal == []
    assert node.host.group(1) is group
