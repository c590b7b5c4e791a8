"""The mirror of the intents against a plain dictionary."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from kv.base.methods import OP_PUT
from kv.mvcc import packed_rows
from kv.mvcc.packed_rows import PackedKeys, pack_values
from kv.mvcc.records import Lock, encode_chunk, encode_lock, encode_packed
from kv.mvcc.view import Mutations
from kv.partition import locks
from kv.partition.entry import Entry
from kv.partition.evaluated_state import Evaluated
from kv.partition.locks import LockMirror

NESTED = False  # whether keys begin with one another, and are not of one length


def key(number: int) -> bytes:
    return b"k%06d" % (number // 3) + b"\0" * (number % 3) if NESTED else b"k%06d" % number


def chunk(numbers: Sequence[int], *, as_packed: bool = False) -> tuple[Lock, bytes]:
    keys = tuple(map(key, numbers))
    lock = Lock(1, OP_PUT, 1_000, b"a", 0, None, keys)
    values = [b"v", None] * len(keys)
    if as_packed:
        own = PackedKeys(keys[0], 1, len(keys), msgpack.packb([k[1:] for k in keys]), keys[-1])
        lock = lock._replace(chunk=own)
        return lock, encode_packed(lock, own, pack_values(values[: len(keys)]))
    return lock, encode_chunk(lock, values[: len(keys)])


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


class Model:
    """The intents as a plain dictionary, with the chunks that are there."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.locks: dict[bytes, Lock] = {}

    @property
    def chunks(self) -> list[Lock]:
        return list({id(lock): lock for lock in self.locks.values() if lock.chunk}.values())

    def chunk(self) -> tuple[Lock, bytes] | None:
        """One of free keys: a run, or keys from everywhere, so that some overlap others."""
        first, count = self.chance.randrange(2_000), self.chance.randrange(1, 90)
        numbers = range(first, first + count)
        if self.chance.random() < 0.3:
            numbers = sorted(self.chance.sample(range(2_000), count))
        free = [i for i in numbers if key(i) not in self.locks]
        return chunk(free, as_packed=self.chance.random() < 0.6) if free else None

    def lay(self, lock: Lock) -> None:
        assert self.locks.keys().isdisjoint(lock.chunk)
        self.locks.update(dict.fromkeys(lock.chunk, lock))

    def take(self, lock: Lock) -> None:
        for one in lock.chunk:
            del self.locks[one]

    def span(self) -> tuple[bytes, bytes]:
        low, high = sorted((key(self.chance.randrange(2_000)), key(self.chance.randrange(2_000))))
        return low, high if self.chance.random() < 0.8 else b""

    def inside(self, low: bytes, high: bytes) -> list[bytes]:
        return [one for one in sorted(self.locks) if low <= one and (not high or one < high)]


def set_many(mirror: LockMirror, model: Model, single: Lock) -> None:
    first = model.chance.randrange(2_000)
    many = [key(i) for i in range(first, first + 70)]
    many = [one for one in many if one not in model.locks or not model.locks[one].chunk]
    gone = model.chance.random() < 0.5
    mirror.set_all(dict.fromkeys(many, None if gone else single))
    for one in many:
        model.locks.pop(one, None)
        if not gone:
            model.locks[one] = single


def cut_and_join(mirror: LockMirror, model: Model) -> None:
    at = key(model.chance.randrange(2_000))
    if not any(lock.chunk[0] < at <= lock.chunk[-1] for lock in model.chunks):
        right = mirror.cut(at)
        assert sorted(right) == model.inside(at, b"")
        assert sorted(mirror) == model.inside(b"", at)
        mirror.join(right)


def compare(mirror: LockMirror, model: Model) -> None:
    low, high = model.span()
    assert list(mirror.range(low, high)) == model.inside(low, high)
    one = key(model.chance.randrange(2_000))
    assert mirror.get(one) is model.locks.get(one)
    asked = sorted(
        {key(model.chance.randrange(2_000)) for _ in range(model.chance.randrange(1, 40))}
    )
    there = not model.locks.keys().isdisjoint(asked)
    assert mirror.has_any(asked) == mirror.has_any(PackedKeys.of(asked)) == there
    assert len(mirror) == len(model.locks)
    assert bool(mirror) == bool(model.locks)
    assert {id(lock) for lock in mirror.chunks()} == set(map(id, model.chunks))


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(20))
def test_d3_the_mirror_is_a_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent would be missing, or there when it is gone, or in a range twice: of single keys, of
    chunks apart and of chunks that lie in each other.
    """
    monkeypatch.setattr(locks, "_NEW_MAX", 10)
    monkeypatch.setattr("tests.kv.partition.test_lock_mirror.NESTED", seed % 2 == 1)
    chance, mirror = random.Random(seed), LockMirror()
    model, met = Model(chance), set()
    single = Lock(2, OP_PUT, 1_000, b"a", 0, b"v")
    for _ in range(400):
        match chance.choice(("set", "set", "gone", "chunk", "chunk", "take", "all", "cut", "ask")):
            case "set":
                one = key(chance.randrange(2_000))
                if one not in model.locks:
                    mirror.set(one, single)
                    model.locks[one] = single
            case "gone":
                singles = [one for one in sorted(model.locks) if not model.locks[one].chunk]
                for one in chance.sample(singles, min(len(singles), chance.randrange(20))):
                    mirror.set(one, None)
                    del model.locks[one]
            case "chunk" if (made := model.chunk()) is not None:
                lock, record = made
                if chance.random() < 0.5:
                    mirror.lay(lock)
                else:
                    mirror.follow(lock.chunk[0], record)
                    lock = mirror.get(lock.chunk[0]) or lock
                model.lay(lock)
                met.add("apart" if lock in mirror.apart.locks else "scattered")
            case "take" if model.chunks:
                lock = chance.choice(model.chunks)
                if chance.random() < 0.5:
                    mirror.take(lock)
                else:
                    mirror.follow(lock.chunk[0], None)
                model.take(lock)
            case "all":
                set_many(mirror, model, single)
            case "cut":
                cut_and_join(mirror, model)
            case _:
                compare(mirror, model)
    assert list(mirror.range(b"", b"")) == sorted(model.locks)
    assert dict(mirror.items()) == model.locks
    assert met == {"apart", "scattered"}


def test_d3_chunks_between_two_keys_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write beside a load of a million rows takes tens of milliseconds of the loop, because
    its keys lie around the load's.
    """
    looked: list[bytes] = []
    look = packed_rows._blocks_of

    def noted(keys: bytes, rows: int) -> Any:
        looked.append(keys)
        return look(keys, rows)

    monkeypatch.setattr(packed_rows, "_blocks_of", noted)
    monkeypatch.setattr(packed_rows, "_remembered", None)  # nobody unpacks all keys
    mirror = LockMirror()
    for first in range(0, 4_000, 100):
        mirror.lay(chunk(range(first, first + 50), as_packed=True)[0])
    for _ in range(2):  # and none twice
        assert not mirror.has_any([key(20) + b"x", key(2_070), key(3_920) + b"x"])
        assert len(looked) == 2
    assert mirror.has_any([key(20) + b"x", key(2_070), key(3_920)])
    assert mirror.get(key(3_920)) is not None
    assert mirror.get(key(3_920) + b"x") is None
    assert len(looked) == 2


def test_d3_a_turn_comes_round_to_chunks_and_keys() -> None:
    """The sweeper would never look at some of the intents while others stay."""
    mirror = LockMirror()
    single = Lock(2, OP_PUT, 1_000, b"a", 0, b"v")
    for first in range(0, 1_000, 100):
        mirror.lay(chunk(range(first, first + 50))[0])
        mirror.set(key(first + 70), single)
    seen = [one for _ in range(10) for one, _ in mirror.turn(3)]
    assert set(seen) == {key(i) for n in range(0, 1_000, 100) for i in (n, n + 70)}
    assert len(mirror.turn(100)) == 20
    seen = [one for _ in range(10) for one, _ in mirror.turn(2)]  # the least that is asked for
    assert len(set(seen)) == 20


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(20))
def test_d3_evaluated_chunks_are_a_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would meet an intent that is gone, or miss one, while entries with chunks fill, fly
    and land.
    """
    monkeypatch.setattr("tests.kv.partition.test_lock_mirror.NESTED", seed % 2 == 1)
    chance, state = random.Random(seed), SimpleNamespace(locks=LockMirror())
    model = Model(chance)
    view = Evaluated.__new__(Evaluated)
    view.open, view.flying = Entry(1), None
    view._mirror, view._flying_locks, view._flying_chunks = state.locks, {}, False
    view.known, view._flying_pending, view._open_pending = {}, {}, view.open.pending
    single = Lock(2, OP_PUT, 1_000, b"a", 0, b"v")
    for _ in range(600):
        m = Mutations()
        match chance.choice(("set", "set", "gone", "chunk", "chunk", "take", "fly", "ask", "ask")):
            case "set":
                one = key(chance.randrange(2_000))
                if one not in model.locks:
                    m.set_lock(one, single)
                    model.locks[one] = single
            case "gone":
                singles = [one for one in sorted(model.locks) if not model.locks[one].chunk]
                for one in chance.sample(singles, min(len(singles), 3)):
                    m.drop_lock(one)
                    del model.locks[one]
            case "chunk" if (made := model.chunk()) is not None:
                values: list[bytes | None] = [b"v"] * len(made[0].chunk)
                if isinstance(made[0].chunk, PackedKeys):
                    m.set_packed(made[0], made[0].chunk, pack_values(values))
                else:
                    m.set_chunk(made[0], values)
                model.lay(made[0])
            case "take" if model.chunks:
                lock = chance.choice(model.chunks)
                found = view.lock(lock.chunk[-1])
                assert found is lock
                m.drop_chunk(lock)
                model.take(lock)
            case "fly":
                if view.flying is not None:
                    entry = view.flying
                    state.locks.apply(entry.gone.values(), entry.locks, entry.laid.values())
                    view.land(entry)
                view.fly()
            case _:
                low, high = model.span()
                asked = sorted({key(chance.randrange(2_000)) for _ in range(30)})
                assert [view.lock(one) for one in asked] == [model.locks.get(k) for k in asked]
                assert list(view.locked(asked)) == [k for k in asked if k in model.locks]
                seen = set(state.locks.range(low, high)) | set(view.locks_in_flight(low, high))
                assert [k for k in sorted(seen) if view.lock(k)] == model.inside(low, high)
        if not m.empty:
            view.open.add(m, 0)
