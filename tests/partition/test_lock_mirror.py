"""The mirror of the intents against a plain dictionary."""

from __future__ import annotations

import random

import pytest

from kv.base.methods import OP_PUT
from kv.mvcc.records import Lock, encode_chunk, encode_lock
from kv.partition import locks
from kv.partition.locks import LockMirror


def key(number: int) -> bytes:
    return b"k%06d" % number


def chunk(numbers: range) -> tuple[Lock, bytes]:
    keys = tuple(map(key, numbers))
    lock = Lock(1, OP_PUT, 1_000, b"a", 0, None, keys)
    return lock, encode_chunk(lock, [b"v"] * len(keys))


def test_d3_a_follower_of_many_loads_knows_the_first_key_of_each() -> None:
    """Nobody asks a follower for a range. When its list of new keys was full, the key that filled
    it was locked and in no range: a scan at the next leader passed a row that was committed.
    """
    for loads in range(1, 16):
        mirror = LockMirror()
        mirror.follow(key(0), encode_lock(key(0), Lock(1, OP_PUT, 1_000, b"a", 0, b"v")))
        for first in range(1, loads * 1_000, 1_000):
            lock, record = chunk(range(first, first + 1_000))
            mirror.follow(lock.chunk[0], record)
            if first < (loads - 1) * 1_000:
                mirror.follow(lock.chunk[0], None)
        assert list(mirror.range(b"", b"")) == [key(0), *lock.chunk]


@pytest.mark.parametrize("seed", range(20))
def test_d3_ranges_of_intents_are_the_intents(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent would be missing from a range, twice in it, or there when it is gone."""
    monkeypatch.setattr(locks, "_NEW_MAX", 10)
    chance, mirror, model = random.Random(seed), LockMirror(), dict[bytes, Lock]()
    single = Lock(2, OP_PUT, 1_000, b"a", 0, b"v")
    for _ in range(400):
        first = chance.randrange(2_000)
        match chance.choice(("set", "set", "gone", "chunk", "all", "range")):
            case "set":
                mirror.set(key(first), single)
                model[key(first)] = single
            case "gone":
                for one in chance.sample(sorted(model), min(len(model), chance.randrange(20))):
                    mirror.set(one, None)
                    del model[one]
            case "chunk":
                lock, record = chunk(range(first, first + chance.randrange(1, 90)))
                if model.keys().isdisjoint(lock.chunk):
                    mirror.follow(lock.chunk[0], record)
                    model.update(dict.fromkeys(lock.chunk, lock))
                    if chance.random() < 0.7:
                        mirror.follow(lock.chunk[0], None)
                        for one in lock.chunk:
                            del model[one]
            case "all":
                gone = chance.random() < 0.5
                many = {key(i): None if gone else single for i in range(first, first + 70)}
                mirror.set_all(many)
                for one, held in many.items():
                    model.pop(one, None)
                    if held is not None:
                        model[one] = held
            case _:
                low, high = sorted((key(first), key(chance.randrange(2_000))))
                wanted = [one for one in sorted(model) if low <= one < high]
                assert list(mirror.range(low, high)) == wanted
    assert list(mirror.range(b"", b"")) == sorted(model)
    assert mirror.by_key.keys() == model.keys()
