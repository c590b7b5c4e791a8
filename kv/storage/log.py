"""What raft needs of a storage engine: its log as ordered bytes, and a sync that does not block
the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Final

from kv.base.limits import MiB
from kv.storage.engine import LOG_FAMILIES, Batch, Engine, Family

SyncDone = Callable[[BaseException | None], None]
_CHUNK_ROWS_MAX: Final = 64
_CHUNK_BYTES_TARGET: Final = 4 * MiB


class LogBatch:
    """raft.api.LogBatch over a batch of the engine: the family is understood."""

    __slots__ = ("_family", "inner")

    def __init__(self, inner: Batch, family: Family) -> None:
        self.inner = inner
        self._family = family

    def put(self, key: bytes, value: bytes) -> None:
        self.inner.put(key, value, self._family)

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.inner.delete_range(start, end, self._family)


class LogAdapter:
    """raft.api.LogDB over one family of an engine."""

    def __init__(self, engine: Engine, family: str = LOG_FAMILIES[0]) -> None:
        self._engine = engine
        self._name = family

    def batch(self) -> LogBatch:
        # Not kept: a handle of a family keeps the database open after the engine was closed.
        return LogBatch(self._engine.batch(), self._engine.family(self._name))

    def write(self, batch: LogBatch) -> None:
        self._engine.write(batch.inner)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs in key order, read in chunks that grow: the first pair costs one row, a long scan
        few calls.
        """
        rows = 1
        while True:
            chunk = self._engine.scan(self._name, start, end, limit=rows)
            yield from chunk
            if len(chunk) < rows:
                return
            start = chunk[-1][0] + b"\x00"
            # Entries may have many megabytes: the next chunk is sized by what this one weighed.
            weight = sum(len(value) for _, value in chunk) // len(chunk) + 1
            rows = max(1, min(rows * 4, _CHUNK_ROWS_MAX, _CHUNK_BYTES_TARGET // weight))


class ThreadSyncer:
    """raft.api.Syncer: `engine.sync()` in a thread of its own, the answer back on the loop.

    An own thread with a SimpleQueue rather than the loop's executor: no future per sync, and the
    thread ends with `close`.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, name: str = "sync") -> None:
        self._engine = engine
        self._loop = loop
        self._jobs: SimpleQueue[SyncDone | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, done: SyncDone) -> None:
        """Make everything written so far durable, then call `done(None)` or `done(error)` on the
        loop.
        """
        self._jobs.put(done)
        # Gives the interpreter up for a moment, so that the thread can begin now. Else it begins
        # when the loop has nothing more to do, or after sys.getswitchinterval, though
        # the rest of this pass was to be done while the disk works (docs/decisions/0530).
        time.sleep(0)  # noqa: TID251 - does not sleep

    def close(self) -> None:
        """Finish what was started, then end the thread. Its answers still arrive if the loop runs
        on.
        """
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (done := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                self._engine.sync()
            except BaseException as caught:  # noqa: BLE001 - carried to the loop, which stops the node
                error = caught
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                return  # the loop was closed: nobody is left to hear it
