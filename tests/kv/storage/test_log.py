"""What raft sees of storage: the log as ordered bytes, and syncs that come back on the loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from itertools import islice

import pytest

from kv.base.errors import Unavailable
from kv.base.limits import MiB
from kv.storage.engine import LOG_FAMILIES
from kv.storage.log import LogAdapter, ThreadSyncer
from kv.storage.memory import MemoryEngine
from raft.api import LogDB, Syncer


class Counting(MemoryEngine):
    """Counts the rows that scans returned."""

    rows = 0

    def scan(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        found = super().scan(*args, **kwargs)
        self.rows += len(found)
        return found


@pytest.fixture
def engine() -> Counting:
    return Counting(LOG_FAMILIES)


def test_the_log_keeps_raft_s_contract(engine: Counting) -> None:
    """Raft finds its entries by range, in order, and forgets a prefix in the same batch as it
    writes.
    """
    log: LogDB = LogAdapter(engine)
    batch = log.batch()
    for i in range(300):
        batch.put(b"%04d" % i, b"entry %d" % i)
    log.write(batch)
    assert [k for k, _ in log.scan(b"0010", b"0290")] == [b"%04d" % i for i in range(10, 290)]
    batch = log.batch()
    batch.delete_range(b"0000", b"0250")
    batch.put(b"0300", b"next")
    log.write(batch)
    assert [k for k, _ in log.scan(b"", b"")] == [b"%04d" % i for i in range(250, 301)]
    assert list(log.scan(b"5", b"6")) == []


def test_the_first_pair_does_not_read_the_log(engine: Counting) -> None:
    """Looking for the first entry of a long log must not load all of it."""
    log = LogAdapter(engine)
    batch = log.batch()
    for i in range(1000):
        batch.put(b"%04d" % i, b"v")
    log.write(batch)
    engine.rows = 0
    assert next(iter(log.scan(b"", b""))) == (b"0000", b"v")
    assert engine.rows == 1
    assert len(list(islice(log.scan(b"", b""), 100))) == 100
    assert engine.rows < 300


def test_long_entries_are_not_gathered(engine: Counting) -> None:
    """Reading a log of large entries must not load hundreds of megabytes ahead of its reader."""
    log = LogAdapter(engine)
    batch = log.batch()
    for i in range(100):
        batch.put(b"%04d" % i, bytes(2 * MiB))
    log.write(batch)
    engine.rows = 0
    for taken, _ in enumerate(log.scan(b"", b""), 1):
        assert engine.rows <= taken + 2
    assert engine.rows == 100


async def test_a_sync_runs_in_its_thread_and_answers_on_the_loop(engine: Counting) -> None:
    """A sync on the loop would stop every heartbeat; an answer off the loop would race with
    everything.
    """
    threads: list[str] = []
    engine.sync = lambda: threads.append(threading.current_thread().name)  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[str, BaseException | None]] = loop.create_future()
    syncer: Syncer = ThreadSyncer(engine, loop, name="log-sync")
    syncer.start(lambda error: done.set_result((threading.current_thread().name, error)))
    assert await done == (threading.main_thread().name, None)
    assert threads == ["log-sync"]
    syncer.close()  # type: ignore[attr-defined]
    assert "log-sync" not in {t.name for t in threading.enumerate()}


async def test_a_failed_sync_is_reported(engine: Counting) -> None:
    """A sync error that got lost in the thread would acknowledge writes that are not on disk."""
    engine.fail_sync(Unavailable("I/O error"))
    loop = asyncio.get_running_loop()
    done: asyncio.Future[BaseException | None] = loop.create_future()
    syncer = ThreadSyncer(engine, loop)
    syncer.start(done.set_result)
    assert isinstance(await done, Unavailable)
    syncer.close()


def test_closing_after_the_loop_ends_the_thread(engine: Counting) -> None:
    """A node that is torn down must leave no thread, whatever was still under way."""
    loop = asyncio.new_event_loop()
    syncer = ThreadSyncer(engine, loop, name="orphan-sync")
    loop.close()
    syncer.start(lambda error: None)
    syncer.close()
    assert "orphan-sync" not in {t.name for t in threading.enumerate()}


async def test_a_sync_begins_while_the_loop_goes_on_computing(
    engine: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that begins when the loop has nothing more to do: the disk idles while replies are
    written, and the next entry waits for both.
    """
    loop = asyncio.get_running_loop()
    began = threading.Event()
    monkeypatch.setattr(engine, "sync", began.set)
    syncer = ThreadSyncer(engine, loop)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)  # nobody takes the interpreter from us: it must have been given
    try:
        met = 0
        for _ in range(20):
            done: asyncio.Future[None] = loop.create_future()
            began.clear()
            syncer.start(lambda _error, done=done: done.set_result(None))  # type: ignore[misc]
            until = loop.time() + 0.05
            while not began.is_set() and loop.time() < until:
                pass
            met += began.is_set()
            await done
    finally:
        sys.setswitchinterval(interval)
        syncer.close()
    assert met >= 10, f"{met} of 20 syncs began before the loop was idle"
