"""kv.base.held_bytes: what clients make a process hold has one bound, and who holds it longest
goes.
"""

from __future__ import annotations

import pytest

from kv.base.accounts import USER, Account
from kv.base.errors import Busy
from kv.base.held_bytes import Held
from kv.base.limits import MESSAGE_BYTES_PER_S_FULL, MESSAGE_BYTES_PER_S_MIN, MESSAGE_MS_MAX


class Reader:
    """A connection that remembers whether it was dropped."""

    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_a_message_without_room_is_refused_and_changes_nothing() -> None:
    """Refused bytes that stay counted would close the node for good."""
    held = Held(100)
    held.change(0, 60)
    with pytest.raises(Busy) as found:
        held.change(0, 41)
    assert found.value.details["retry_after_ms"] > 0
    assert held.messages == 60
    held.change(60, 0)
    held.change(0, 100)


def test_who_has_not_read_for_longest_is_dropped_first() -> None:
    """Answers that nobody reads would fill the memory, or those who just came would pay for it."""
    held = Held(100)
    first, second, third = Reader(), Reader(), Reader()
    held.stalled(first, 40)
    held.stalled(second, 40)
    held.stalled(first, 45)
    held.stalled(third, 40)
    assert (first.dropped, second.dropped, third.dropped) == (True, False, False)
    held.flows(first)
    assert held.unread == 80
    held.flows(second)
    held.flows(third)
    assert held.figures()["held_unread_bytes"] == 0


def test_unread_answers_leave_no_room_for_messages() -> None:
    """Two budgets of the same memory would be twice the memory."""
    held = Held(100)
    held.stalled(Reader(), 70)
    with pytest.raises(Busy):
        held.change(0, 31)


def test_a_message_may_take_as_long_as_there_is_room() -> None:
    """Slow lines are served, but not while everybody waits for their memory."""
    held = Held(100)
    base = MESSAGE_MS_MAX / 1_000
    assert held.patience_s(MESSAGE_BYTES_PER_S_MIN) == base + 1
    held.change(0, 51)
    assert held.patience_s(MESSAGE_BYTES_PER_S_FULL) == base + 1
    assert held.too_late().status == 408


def test_g10_one_user_does_not_take_the_room_of_others() -> None:
    """One user's half-sent messages make everybody's be refused."""
    held = Held(90)
    ann, bob = (Account(USER, name, lambda: 0, shown=True) for name in ("ann", "bob"))
    held.change(0, 60, bob)
    with pytest.raises(Busy, match=r"user bob makes this node hold 61 bytes .* limit is 58 now"):
        held.change(0, 1, bob)
    held.change(0, 20, ann)
    held.change(60, 0, bob)
    held.change(0, 40, bob)


def test_g10_who_does_not_read_costs_the_tenant_that_holds_most() -> None:
    """One user who reads nothing makes connections of others be dropped, that waited longer."""
    held = Held(90)
    ann, bob = (Account(USER, name, lambda: 0, shown=True) for name in ("ann", "bob"))
    anns, first, second = Reader(), Reader(), Reader()
    held.stalled(anns, 20, ann)
    held.stalled(first, 30, bob)
    held.stalled(second, 30, bob)
    assert (anns.dropped, first.dropped, second.dropped) == (False, True, False)
    held.change(0, 30)  # nobody's: it has no share, and makes all scarce
    held.stalled(anns, 40, ann)
    assert (anns.dropped, second.dropped) == (True, False)
