"""kv.base.shared_bytes: one tenant never has all, and nothing is lost in the count."""

from __future__ import annotations

import random
import threading

import pytest

from kv.base.accounts import USER, Account
from kv.base.shared_bytes import OF_FREE, SharedBytes, Who


def account(name: str) -> Account:
    return Account(USER, name, lambda: 0, shown=True)


def test_g10_one_tenant_leaves_a_third_for_others() -> None:
    """Who comes first takes everything, and all others are refused until it ends."""
    shared = SharedBytes(900)
    ann, bob = account("ann"), account("bob")
    assert shared.fits(bob, 600)
    assert not shared.fits(bob, 601)
    shared.take(bob, 600)
    assert not shared.fits(bob, 1)
    assert shared.fits(ann, 200)
    assert not shared.fits(ann, 201)
    shared.give(bob, 300)
    assert shared.fits(ann, 400)
    assert shared.used == shared.of(bob) == 300


def test_what_is_nobodys_has_no_share_but_the_limit() -> None:
    """A node's own frames are refused because they are many."""
    shared = SharedBytes(900)
    assert shared.fits(None, 900)
    assert not shared.fits(None, 901)


@pytest.mark.few(15)
@pytest.mark.parametrize("seed", range(20))
def test_g10_whoever_comes_finds_its_part(seed: int) -> None:
    """A crowd of greedy tenants leaves nothing for one that has nothing yet."""
    rng = random.Random(seed)
    shared = SharedBytes(100_000)
    crowd: list[Who] = [account(str(n)) for n in range(rng.randint(1, 8))]
    held: list[tuple[Who, int]] = []
    for _ in range(2_000):
        if held and rng.random() < 0.3:
            who, size = held.pop(rng.randrange(len(held)))
            shared.give(who, size)
        who, size = rng.choice(crowd), rng.randint(1, 3_000)
        if shared.take(who, size):
            held.append((who, size))
        assert shared.used == sum(size for _, size in held) <= shared.limit
        part = OF_FREE * shared.limit // (OF_FREE + 1) ** (len(crowd) + 1)
        assert shared.fits(account("new"), part)
    for who, size in held:
        shared.give(who, size)
    assert shared.used == 0
    assert not shared._of, "who holds nothing is forgotten"


def test_threads_lose_nothing() -> None:
    """Two threads that count at once make bytes held that nobody holds."""
    shared, who = SharedBytes(1 << 40, threading.Lock()), account("ann")

    def work() -> None:
        for _ in range(20_000):
            shared.take(who, 3)
            shared.give(who, 3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.used == shared.of(who) == 0
