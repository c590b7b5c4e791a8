"""Tokens and the throttle of failed logins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base import throttle
from kv.base.adapters import SystemRng
from kv.base.throttle import Throttle
from sqlproxy.catalog import tokens


def test_a_token_is_known_by_its_secret_alone() -> None:
    """The text logs its user in; another secret, an expired one, and the stored row do not."""
    token, text = tokens.make(SystemRng(), "ci", "ann", 1_000, ttl_ms=500)
    parsed = tokens.parse(text)
    assert parsed is not None
    id_, secret = parsed
    assert id_ == token.id
    found = token.identity(secret, 1_499)
    assert found is not None
    assert (found.name, found.credential) == ("ann", "token ci")
    assert token.identity(secret, 1_500) is None
    other, _ = tokens.make(SystemRng(), "ci", "ann", 1_000)
    assert other.identity(secret, 1_000) is None
    assert secret not in repr(token)


@pytest.mark.parametrize("text", ["", "kvt_", "kvt_a_b", "Bearer x", "kvt_" + "a" * 60, "\0" * 64])
def test_what_is_no_token(text: str) -> None:
    """Anything else is refused without a look at the store."""
    assert tokens.parse(text) is None


def test_failures_slow_down_and_are_forgotten() -> None:
    """Three failures are free, then the wait doubles up to its bound; success and time forget."""
    slow = Throttle()
    waits = []
    for _ in range(12):
        waits.append(slow.wait_ms("a", "ann", 0))
        slow.failed("a", "ann", 0)
    assert waits[:6] == [0, 0, 0, 250, 500, 1_000]
    assert slow.wait_ms("a", "bob", 0) == throttle.LONGEST_MS[throttle.ADDRESS]
    assert slow.wait_ms("b", "ann", 0) == 0
    slow.succeeded("a", "ann")
    assert slow.wait_ms("a", "ann", 0) == 0


def test_a_name_that_is_guessed_from_everywhere_slows_down_a_little() -> None:
    """Many addresses do not make guessing free, nor keep the owner of the name out."""
    slow = Throttle()
    for number in range(1_000):
        slow.failed(str(number), "ann", 0)
    assert slow.wait_ms("home", "ann", 0) == throttle.LONGEST_MS[throttle.NAME]
    assert slow.wait_ms("home", "bob", 0) == 0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3)), max_size=30))
def test_the_wait_is_bounded(failures: list[tuple[str, str]]) -> None:
    """Whoever fails, nobody waits longer than the bound, and not after it has passed."""
    slow, longest = Throttle(), throttle.LONGEST_MS[throttle.ADDRESS]
    for address, name in failures:
        slow.failed(address, name, 0)
        assert 0 <= slow.wait_ms(address, name, 0) <= longest
        assert slow.wait_ms(address, name, longest) == 0


def test_a_flood_of_names_is_bounded() -> None:
    """Names that somebody makes up do not fill the memory."""
    slow = Throttle()
    for number in range(throttle.ENTRIES_MAX * 2):
        slow.failed("a", str(number), 0)
    assert len(slow._of) == throttle.ENTRIES_MAX
    assert slow.wait_ms("a", "new", 0) == throttle.LONGEST_MS[throttle.ADDRESS]
