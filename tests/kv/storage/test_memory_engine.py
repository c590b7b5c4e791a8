"""What the simulator relies on: crashes lose a suffix of what was not synced, and faults happen
when asked for.
"""

from __future__ import annotations

import random
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.checksum import intact, seal
from kv.base.errors import InvalidArgument, Unavailable
from kv.storage.memory import MemoryEngine, TimedSyncer
from raft.memory import VirtualTimers

operations = st.lists(
    st.one_of(
        st.just("sync"),
        st.lists(
            st.tuples(st.sampled_from(["put", "delete", "range"]), st.integers(0, 9)), max_size=4
        ),
    ),
    max_size=20,
)


class Rng:
    """kv.base.ports.Rng from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.random = self._random.random

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)


@given(operations, st.integers(0, 1000))
def test_a_crash_leaves_a_prefix_that_covers_the_last_sync(script: list[Any], seed: int) -> None:
    """A crash that lost a synced batch, or kept half of one, would blame the layers above for
    it.
    """
    engine = MemoryEngine(("a",))
    family = engine.family("a")
    states: list[list[tuple[bytes, bytes]]] = [[]]  # after each batch
    synced = 0
    for number, step in enumerate(script):
        if step == "sync":
            engine.sync()
            synced = len(states) - 1
            continue
        batch = engine.batch()
        for kind, key in step:
            if kind == "put":
                batch.put(b"%d" % key, b"%d" % number, family)
            elif kind == "delete":
                batch.delete(b"%d" % key, family)
            else:
                batch.delete_range(b"%d" % (key // 2), b"%d" % key, family)
        engine.write(batch)
        states.append(engine.scan("a", b"", b""))
    heir = engine.crash(Rng(seed))
    assert heir.scan("a", b"", b"") in states[synced:]
    with pytest.raises(Unavailable):
        engine.sync()


def test_chance_reaches_every_prefix() -> None:
    """A crash that always lost all, or nothing, would never show what half of a log does."""
    lengths = set()
    for seed in range(60):
        engine = MemoryEngine(("a",))
        for i in range(4):
            batch = engine.batch()
            batch.put(b"%d" % i, b"v", engine.family("a"))
            engine.write(batch)
            if i == 0:
                engine.sync()
        lengths.add(len(engine.crash(Rng(seed)).scan("a", b"", b"")))
    assert lengths == {1, 2, 3, 4}


def put(engine: MemoryEngine, key: bytes, value: bytes = b"v") -> None:
    batch = engine.batch()
    batch.put(key, value, engine.family("a"))
    engine.write(batch)


def test_a_flipped_bit_is_found_by_the_checksum_only() -> None:
    """Damage must be silent here: it is the checksum above that has to notice."""
    engine = MemoryEngine(("a",))
    put(engine, b"k", seal(b"k", b"body"))
    engine.flip_bit("a", b"k", 3)
    value = engine.getter("a")(b"k")
    assert value is not None
    assert value[0] == ord("b") ^ 8
    assert not intact(b"k", value)


def test_a_refused_write_leaves_nothing_and_the_next_one_works() -> None:
    """A full disk that kept half of a batch would be seen as data later."""
    engine = MemoryEngine(("a",))
    engine.fail_writes(Unavailable("the disk is full"), count=2)
    for _ in range(2):
        with pytest.raises(Unavailable, match="disk is full"):
            put(engine, b"k")
    assert engine.scan("a", b"", b"") == []
    put(engine, b"k")
    assert engine.getter("a")(b"k") == b"v"
    engine.fill_disk(Unavailable("nearly full"))
    with pytest.raises(Unavailable, match="nearly full"):
        engine.check_room()
    engine.fill_disk(None)
    engine.check_room()


def test_a_failed_sync_stays_failed() -> None:
    """Trying again after a failed fsync reports success for pages that the kernel has dropped."""
    engine = MemoryEngine(("a",))
    put(engine, b"k")
    engine.fail_sync(Unavailable("I/O error"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="I/O error"):
            engine.sync()


def test_a_slow_sync_covers_what_was_written_before_it_began() -> None:
    """If it also covered later writes, a lost acknowledged write would go unnoticed in
    simulation.
    """
    engine, timers, answers = MemoryEngine(("a",)), VirtualTimers(), []
    syncer = TimedSyncer(engine, timers, lambda: 0.5)
    put(engine, b"1")
    syncer.start(answers.append)
    put(engine, b"2")
    timers.run(0.4)
    assert answers == []
    timers.run(0.2)
    assert answers == [None]
    assert engine.stats()["unsynced_batches"] == 1
    survivors = {
        len(engine_with_two_batches().crash(Rng(seed)).scan("a", b"", b"")) for seed in range(30)
    }
    assert survivors == {1, 2}
    engine.fail_sync(Unavailable("I/O error"))
    syncer.start(answers.append)
    timers.run(1)
    assert isinstance(answers[-1], Unavailable)


def engine_with_two_batches() -> MemoryEngine:
    engine = MemoryEngine(("a",))
    put(engine, b"1")
    engine.sync_to(engine.mark())
    put(engine, b"2")
    return engine


def test_syncs_in_threads_do_not_disturb_each_other() -> None:
    """A node syncs from several threads while the loop writes; each must cover its own writes."""
    engine = MemoryEngine(("a",))
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            for _ in range(300):
                engine.sync()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [Thread(target=sync) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        put(engine, b"%d" % i)
    for thread in threads:
        thread.join()
    engine.sync()
    assert not errors
    assert engine.stats()["unsynced_batches"] == 0
    put(engine, b"last")
    assert engine.stats()["unsynced_batches"] == 1


def test_files_are_not_pretended() -> None:
    """A backup of the memory engine that silently made nothing would be missed too late."""
    with pytest.raises(InvalidArgument, match="has no files"):
        MemoryEngine(("a",)).checkpoint("copy")
