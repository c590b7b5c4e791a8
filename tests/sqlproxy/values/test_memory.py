"""sqlproxy.values.memory: who holds bytes is counted for its session, its tenant and the process,
each charge is given back once, and what does not fit is refused with what to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice

import pytest

from kv.base.accounts import NAMESPACE, USER, Account, Use
from kv.base.limits import TXN_SPILL_BYTES
from sqlproxy.values.errors import OUT_OF_MEMORY, SqlError
from sqlproxy.values.memory import Budget, Held, Share, now, one_by_one, spending

MIB = 1 << 20


def budget(share: Share, limit: int, user: str = "") -> Budget:
    found = Budget(share, limit)
    if user:
        place = Account(NAMESPACE, "shop", lambda: 0, shown=True)
        found.serve(Use(Account(USER, user, lambda: 0, shown=True), place))
    return found


def test_a_statement_has_its_limit_and_a_process_one_for_all() -> None:
    """One of both bounds is not looked at, or a refused charge stays in the account."""
    share = Share(100)
    first, second = budget(share, 60), budget(share, 60)
    first.take(60)
    with pytest.raises(SqlError) as found:
        first.take(1)
    assert found.value.sqlstate == OUT_OF_MEMORY
    assert "statement_memory_bytes" in found.value.detail
    with pytest.raises(SqlError) as found:
        second.take(41)
    assert "all statements here hold 60 bytes, of at most 100" in found.value.detail
    assert "sql_memory_bytes" in found.value.hint
    second.take(40)
    first.end()
    second.end()
    assert share.used == 0


@pytest.mark.parametrize(
    "charge",
    [
        lambda one, size: one.take(size),
        lambda one, size: one.fits(size),
        lambda one, size: one.made(size),
        lambda one, size: one.part().take(size),
        lambda one, size: one.write(size),
        lambda one, size: Held(one).add(size),
    ],
)
def test_g10_a_user_is_refused_what_others_must_find(
    charge: Callable[[Budget, int], object],
) -> None:
    """One way to hold bytes is open to a user who has his share: others get 53200 for his."""
    share = Share(90 * TXN_SPILL_BYTES)
    bob, ann = (budget(share, share.limit, name) for name in ("bob", "ann"))
    bob.take(59 * TXN_SPILL_BYTES)
    with pytest.raises(SqlError, match="out of memory") as found:
        charge(bob, 2 * TXN_SPILL_BYTES)
    assert "of which user bob has" in found.value.detail
    charge(ann, 2 * TXN_SPILL_BYTES)


def test_g10_a_user_has_one_share_over_all_sessions() -> None:
    """A user with many sessions has as many shares."""
    share = Share(90)
    who = Use(Account(USER, "bob", lambda: 0, shown=True))
    for _ in range(6):
        one = Budget(share, 10)
        one.serve(who)
        one.take(10)
    last = Budget(share, 10)
    last.serve(who)
    with pytest.raises(SqlError):
        last.take(1)
    assert share.used == 60


@pytest.mark.parametrize("seed", range(30))
def test_every_charge_is_given_back(seed: int) -> None:
    """Something stays held when all sessions are over, and there is less and less for SQL."""
    rng = random.Random(seed)
    share = Share(20 * MIB)
    sessions = [budget(share, 8 * MIB, user) for user in islice(cycle(("ann", "bob", "")), 6)]
    holders = [(one, Held(one)) for one in sessions for _ in range(3)]

    def step() -> None:
        one, held = rng.choice(holders)
        size = rng.randrange(4 * MIB)
        match rng.randrange(7):
            case 0 | 1:
                held.add(size)
            case 2:
                held.end()
            case 3:
                one.fresh()
                one.made(size)
            case 4:
                part = one.part()
                try:
                    part.take(size)
                finally:
                    part.end()
            case 5:
                one.write(size)
            case 6:
                with spending(one), Held() as mine:
                    assert now() is one
                    mine.rows([("x" * (size // 8), [b"y" * 100, {"z": 1}])])

    for _ in range(500):
        with suppress(SqlError):
            step()
        assert share.used == sum(one.used + one._written for one in sessions) <= share.limit
    for _, held in holders:
        held.end()
        held.end()
    assert all(one.used == 0 for one in sessions)
    for one in sessions:
        one.end()
    assert share.used == 0


def test_of_what_a_value_was_made_of_nothing_is_left() -> None:
    """An INSERT whose defaults are sums of long texts was refused at its third row."""
    share = Share(1_000 * MIB)
    one = Budget(share, 64 * MIB)

    def sums(size: int) -> str:
        one.made(20 * MIB)
        return "x" * size

    with spending(one):
        assert one_by_one(sums(32) for _ in range(50)) == ["x" * 32] * 50
        assert share.used == 0, "whoever takes them counts them"
        with pytest.raises(SqlError) as found:
            one_by_one(sums(8 * MIB) for _ in range(50))
    assert found.value.sqlstate == OUT_OF_MEMORY
    assert share.used == 0
