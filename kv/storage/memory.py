"""An engine in memory with the semantics of the one on disk, including what a crash leaves and how
disks fail.

Two uses: `kvorum.open(":memory:")` and tests without files, and the simulator, which crashes it.
 What a crash leaves: every batch that was synced, and of the later ones a prefix that chance
chooses. The batch after the prefix may have been half on disk: RocksDB finds the torn record by
its checksum and drops it whole, so here it is lost whole too. To be able to go back, each unsynced
batch leaves an undo record (key and what was there before); `sync` drops them. So a plain write
costs one dict lookup more, and nothing is stored twice.
 `flip_bit` damages a stored value silently, as a faulty disk controller would: the engine returns
it, and the checksums of the layers above must find it. (Bits that flip inside RocksDB's files are
found by its own block checksums.)

What was ingested is durable at once, as on disk: a crash may keep it and lose batches before it.

Deliberately missing: files. `checkpoint` is refused, `flush` and `compact` have nothing to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from threading import Lock

from sortedcontainers import SortedDict

from kv.base.errors import InvalidArgument, KvorumError, Unavailable
from kv.base.ports import Rng, Timers
from kv.base.shards import SHARDED, family_of, shards_of, unwanted
from kv.storage.engine import (
    Batch,
    Cursor,
    Engine,
    Family,
    Getter,
    MultiGetter,
    SortedRows,
    check_files,
    check_range,
    cursor_closed,
    first_rows,
)
from kv.storage.files import FileFacts, MemoryFacts
from kv.storage.shard_view import ShardView, check_shards

_PUT, _DELETE, _DELETE_RANGE = 0, 1, 2
_Undo = list[tuple[str, bytes, bytes | None]]  # family, key, what was there (None = absent)


class MemoryBatch:
    """The writes in order; see `engine.Batch`."""

    __slots__ = ("consumed", "ops")

    def __init__(self) -> None:
        self.ops: list[tuple[int, str, bytes, bytes]] = []
        self.consumed = False

    def put(self, key: bytes, value: bytes, family: Family) -> None:
        self.ops.append((_PUT, family, key, value))

    def delete(self, key: bytes, family: Family) -> None:
        self.ops.append((_DELETE, family, key, b""))

    def delete_range(self, start: bytes, end: bytes, family: Family) -> None:
        if check_range(start, end):
            self.ops.append((_DELETE_RANGE, family, start, end))


class MemoryCursor:
    """The rows of a range, copied (the pairs, not their bytes) when it is made; see
    `engine.Cursor`.
    """

    def __init__(self, rows: list[tuple[bytes, bytes]], is_closed: Callable[[], bool]) -> None:
        self._rows: list[tuple[bytes, bytes]] | None = rows
        self._at = 0
        self._engine_is_closed = is_closed

    def take(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        if self._engine_is_closed():
            raise _closed()
        if self._rows is None:
            raise cursor_closed()
        found: list[tuple[bytes, bytes]] = []
        size = 0
        while self._at < len(self._rows) and len(found) < rows_max and size < bytes_max:
            row = self._rows[self._at]
            found.append(row)
            size += len(row[0]) + len(row[1])
            self._at += 1
        return found

    def close(self) -> None:
        self._rows = None


class MemoryRows:
    """See `engine.SortedRows`."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.rows: list[tuple[bytes, bytes]] = []
        self.size = 0
        self.first = self.last = b""
        self.closed = self.taken = False

    def put(self, key: bytes, value: bytes) -> None:
        if not self.rows:
            self.first = key
        elif key <= self.last:
            raise InvalidArgument(f"key {key[:64]!r} comes after {self.last[:64]!r}")
        self.last = key
        self.rows.append((key, value))
        self.size += len(key) + len(value)

    def close(self) -> None:
        if not self.rows:
            raise InvalidArgument("a file without rows; discard it instead")
        self.closed = True

    def discard(self) -> None:
        self.rows = []


class _Ingested(list[tuple[str, bytes, bytes]]):
    """Rows in the place of an undo record: a crash that goes back beyond them keeps them."""


class MemoryEngine:
    """See the module. `families` are fixed for the engine's life but for shards, as on disk."""

    def __init__(self, families: Sequence[str]) -> None:
        self._data: dict[str, SortedDict[bytes, bytes]] = {name: SortedDict() for name in families}
        self._undo: deque[_Undo | _Ingested] = deque()  # of what is unsynced, oldest first
        self._written = 0  # batches since the start
        self._synced = 0
        self._syncing = Lock()
        self._closed = False
        self._sync_failed: KvorumError | None = None
        self._full: KvorumError | None = None
        self._write_faults: deque[KvorumError] = deque()
        self._sync_faults: deque[KvorumError] = deque()

    def shard(self, name: str) -> Engine:
        if not name:
            return self
        if name not in self.shards():
            check_shards(self.shards(), name)
            self._data.update({family_of(one, name): SortedDict() for one in SHARDED})
        return ShardView(self, name)

    def shards(self) -> Sequence[str]:
        return shards_of(self._data)

    def keep_shards(self, wanted: Collection[str]) -> None:
        for name in unwanted(self._data, wanted):
            del self._data[name]

    # -- writing

    def family(self, name: str) -> Family:
        self._rows(name)
        return name

    def batch(self) -> Batch:
        return MemoryBatch()

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, MemoryBatch), "a batch of another engine"
        if batch.consumed:
            raise InvalidArgument("this batch was written before; make a new one")
        batch.consumed = True
        if self._closed:
            raise _closed()
        if self._write_faults:
            raise self._write_faults.popleft()
        undo: _Undo = []
        for kind, family, key, value in batch.ops:
            rows = self._data[family]
            if kind == _PUT:
                undo.append((family, key, rows.get(key)))
                rows[key] = value
            elif kind == _DELETE:
                undo.append((family, key, rows.pop(key, None)))
            else:
                doomed = list(rows.irange(key, value, inclusive=(True, False)))
                undo += [(family, k, rows.pop(k)) for k in doomed]
        self._undo.append(undo)
        self._written += 1

    def sorted_rows(self, name: str) -> SortedRows:
        self._rows(name)
        return MemoryRows(name)

    def ingest(self, files: Sequence[SortedRows], *, wait: bool = False) -> bool:
        if self._closed:
            raise _closed()
        new = check_files(files, MemoryRows)
        if self._write_faults:
            raise self._write_faults.popleft()
        # They are durable, what is unsynced before them is not: a crash goes back around them.
        kept = _Ingested((file.family, key, value) for file in new for key, value in file.rows)
        for family, key, value in kept:
            self._data[family][key] = value
        for file in new:
            file.taken = True
        self._undo.append(kept)
        self._written += 1
        return True

    def is_empty(self, name: str, start: bytes, end: bytes) -> bool:
        return not self.scan(name, start, end, limit=1)

    def check_room(self, shard: str = "") -> None:
        if self._full is not None:
            raise self._full

    def sync(self) -> None:
        self.sync_to(self._written)

    def sync_to(self, mark: int) -> None:
        """Make the first `mark` batches durable (`mark()` when the sync began): what a slow disk
        completes later.
        """
        if self._closed:
            raise _closed()
        if self._sync_failed is None and self._sync_faults:
            self._sync_failed = self._sync_faults.popleft()
        if self._sync_failed is not None:
            raise self._sync_failed
        with self._syncing:  # syncs run in threads, several at once
            for _ in range(mark - self._synced):
                self._undo.popleft()
            self._synced = max(self._synced, mark)

    def mark(self) -> int:
        """How many batches were written so far."""
        return self._written

    # -- reading

    def getter(self, name: str) -> Getter:
        rows = self._rows(name)

        def get(key: bytes) -> bytes | None:
            if self._closed:
                raise _closed()
            value: bytes | None = rows.get(key)
            return value

        return get

    def multi_getter(self, name: str) -> MultiGetter:
        get = self.getter(name)
        return lambda keys: [get(key) for key in keys]

    def scan(
        self,
        name: str,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        limit: int = 0,
        bytes_max: int = 0,
    ) -> list[tuple[bytes, bytes]]:
        rows = self._rows(name)
        if self._closed:
            raise _closed()
        if end and end <= start:
            return []
        keys = rows.irange(start, end or None, inclusive=(True, False), reverse=reverse)
        return first_rows(((key, rows[key]) for key in keys), limit, bytes_max)[0]

    def cursor(self, name: str, start: bytes, end: bytes) -> Cursor:
        return MemoryCursor(self.scan(name, start, end), lambda: self._closed)

    # -- the rest of the protocol

    def flush(self) -> None:
        if self._closed:
            raise _closed()

    def flush_family(self, name: str) -> None:
        self._rows(name)
        self.flush()

    def compact(self, name: str, start: bytes, end: bytes, *, bottom: bool = False) -> None:
        self.flush_family(name)

    def files(self) -> list[FileFacts]:
        return []

    def in_memory(self) -> dict[str, MemoryFacts]:
        return {name: MemoryFacts(len(rows), 0) for name, rows in self._data.items()}

    def checkpoint(self, path: str | Path) -> None:
        raise InvalidArgument(
            f"checkpoint {path}: the memory engine has no files; use the engine 'rocks'"
        )

    def stats(self) -> dict[str, int]:
        return {
            "keys": sum(len(rows) for rows in self._data.values()),
            "unsynced_batches": len(self._undo),
        }

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        if not self._closed and self._sync_failed is None:
            self.sync()
        self._closed = True

    # -- what the simulator does to it

    def crash(self, rng: Rng) -> MemoryEngine:
        """The engine as the next process finds it after a power loss now; this one is dead.

        Survivors: what was synced and a prefix of the rest, its length drawn from `rng`.
        """
        survivors = int(rng.random() * (len(self._undo) + 1))
        kept: list[_Ingested] = []
        for undo in reversed(list(self._undo)[survivors:]):
            if isinstance(undo, _Ingested):
                kept.append(undo)
                continue
            for family, key, before in reversed(undo):
                if before is None:
                    self._data[family].pop(key, None)
                else:
                    self._data[family][key] = before
        for rows in reversed(kept):
            for family, key, value in rows:
                self._data[family][key] = value
        return self._successor()

    def reopen(self) -> MemoryEngine:
        """The engine as the next process finds it after `close` or a mere kill (the OS keeps what
        was written).
        """
        return self._successor()

    def _successor(self) -> MemoryEngine:
        self._closed = True
        heir = MemoryEngine(())
        # Copied, so that getters of the dead engine cannot see (they raise) nor keep alive the new
        # one's rows.
        heir._data = {name: SortedDict(rows) for name, rows in self._data.items()}
        return heir

    def flip_bit(self, name: str, key: bytes, bit: int) -> None:
        """Damage the stored value of `key`: bit 0 is the lowest bit of the first byte; counted
        modulo its length.
        """
        value = bytearray(self._rows(name)[key])
        value[bit // 8 % len(value)] ^= 1 << bit % 8
        self._rows(name)[key] = bytes(value)

    def fail_writes(self, error: KvorumError, count: int = 1) -> None:
        """The next `count` writes raise `error` and write nothing (a full disk: Unavailable)."""
        self._write_faults.extend([error] * count)

    def fill_disk(self, error: KvorumError | None) -> None:
        """`check_room` raises `error` from now on; None = there is room again."""
        self._full = error

    def fail_sync(self, error: KvorumError) -> None:
        """The next sync raises `error`, and then every later one: the engine never claims
        durability again.
        """
        self._sync_faults.append(error)

    def _rows(self, name: str) -> SortedDict[bytes, bytes]:
        try:
            return self._data[name]
        except KeyError:
            raise InvalidArgument(
                f"no family {name!r} in this engine; it has {', '.join(self._data)}"
            ) from None


class TimedSyncer:
    """A raft Syncer in virtual time: the sync that began now is done after `delay_s()`, without a
    thread.

    What was written after `start` is not covered by it, as with a real disk.
    """

    def __init__(self, engine: MemoryEngine, timers: Timers, delay_s: Callable[[], float]) -> None:
        self._engine = engine
        self._timers = timers
        self._delay_s = delay_s

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        self._timers.call_later(self._delay_s(), self._finish, self._engine.mark(), done)

    def _finish(self, mark: int, done: Callable[[BaseException | None], None]) -> None:
        try:
            self._engine.sync_to(mark)
        except KvorumError as error:
            done(error)
        else:
            done(None)


def _closed() -> Unavailable:
    return Unavailable("the storage engine is closed")
