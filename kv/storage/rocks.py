"""RocksDB through rocksdict: the only importer, with its options in `tuning`, and the owner of its
traps.

tests/kv/storage/test_traps.py shows each trap on the bare library and that it cannot be met here:

    set_iterate_lower_bound sets the upper bound     never called; a reverse scan finds its end by a
    forward seek
    the upper bound is a pointer into Python bytes   the bytes live in the frame that iterates
    iterators of a Snapshot read live data           no snapshots: a scan is one synchronous call,
    a cursor is a live iterator (storage.cursor), closed with the engine at the latest
    writing to a dropped family poisons the database shards are added, and go only at a start
    collecting a family object flushes the family    taken once, kept until `close`
    close() leaves the lock while objects live       `close` closes them all, collects, and the
    opening says so
    Options() without raw mode reads None            one function makes options, raw
    a put without a family goes to another family    `Batch.put` has no default; mypy refuses the
    call an inverted delete_range poisons the database,
      half of its batch applied                      refused before it gets into the batch
    a scan ends silently at a corrupt block          an early end is proved by a second seek with
    its status replay ends silently at a corrupt WAL record     only a torn tail is tolerated, see
    `storage.tail` a batch is consumed, also by a failed write      said by the contract of
    `Engine.write` a write stall freezes the interpreter            no_slowdown on every write
    write(sync=True) holds the GIL                   never: `flush_wal(True)`, which releases it

rocksdict raises bare `Exception`; `_translated` makes errors of ours from the text.

`ingest` and the end of a file's writer hold the interpreter while they sync: storage.incoming.

Deliberately missing: transactions, per-partition families (they poison and cost open
time).
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Final

from rocksdict import (
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    CompactOptions,
    DbClosedError,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from kv.base.errors import Corruption, InvalidArgument, KvorumError, Unavailable
from kv.base.limits import DISK_FREE_BYTES_MIN, SHARD_CACHE_BYTES
from kv.base.shards import SHARDED, family_of, parted, shards_of, unwanted
from kv.storage.cursor import IteratorCursor
from kv.storage.damaged_log import check_logs
from kv.storage.directory import DirectoryLock, check_format, write_format
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
    first_rows,
)
from kv.storage.files import FileFacts, MemoryFacts, join, numbers_of
from kv.storage.moved_files import MovedFiles
from kv.storage.shard_view import ShardView, check_shards
from kv.storage.sorted_rows import Incoming, SortedFile
from kv.storage.torn_tail import cut_torn_tail
from kv.storage.tuning import (
    BUFFERS_WAITING_MAX,
    LOG_CACHE_BYTES,
    STATE_CACHE_BYTES,
    database_options,
    family_options,
    is_log,
    scan_options,
)

log = logging.getLogger(__name__)

_MARKS_OF_RANGE_MAX: Final = 256  # into which the deletion of a range is cut
_MARKS_LOOKED_AT_MAX: Final = 1_000  # before a range counts as not empty

_COUNTERS: Final = {
    "bytes.written": "batch_bytes",
    "flush.write.bytes": "flushed_bytes",
    "compact.read.bytes": "compaction_read_bytes",
    "compact.write.bytes": "compaction_written_bytes",
    "compaction.key.drop.new": "compaction_replaced_rows",
    "compaction.key.drop.obsolete": "compaction_marks",
    "compaction.key.drop.range_del": "compaction_ranged_rows",
    "prefetch.bytes": "scan_ahead_bytes",
    "prefetch.bytes.useful": "scan_ahead_used_bytes",
    "prefetch.hits": "scan_ahead_hits",
}
"""RocksDB's names, and those of `Engine.counters`."""
_COUNTED: Final = re.compile(
    rf"^rocksdb\.({'|'.join(map(re.escape, _COUNTERS))}) COUNT : (\d+)$", re.MULTILINE
)
_FILE_IN_ERROR = re.compile(r"\bin (\S+\.\w+)|(\S+\.(?:sst|log|blob))")
_DISK_FULL = ("No space left", "File too large", "quota exceeded")


class RocksBatch:
    """`put` and `delete` are the library's own methods: nothing of ours runs on the hot path.

    RocksDB bounds a compaction by what lies under its files, but a mark over a range is one thing:
    a file with a wide one is compacted with everything under it at once. So a range is deleted in
    one mark per file (`borders`), in the same batch.
    """

    __slots__ = ("_borders", "delete", "put", "raw")

    def __init__(self, borders: Callable[[Family, bytes, bytes], list[bytes]]) -> None:
        self._borders = borders
        self.raw = WriteBatch(raw_mode=True)
        self.put = self.raw.put
        self.delete = self.raw.delete

    def delete_range(self, start: bytes, end: bytes, family: Family) -> None:
        if check_range(start, end):
            for border in self._borders(family, start, end):
                self.raw.delete_range(start, border, family)
                start = border
            self.raw.delete_range(start, end, family)


class RocksEngine:
    """One RocksDB in one directory; see `engine.Engine` for the contract."""

    def __init__(self, path: str | Path, families: Sequence[str]) -> None:
        self._path = Path(path)
        self._closed = False
        self._sync_failed: KvorumError | None = None
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True
        self._lock = DirectoryLock(self._path)
        try:
            families = [*families, *check_format(self._path, families)]
            check_logs(self._path)
            # by shard; "" = the default one, and the rest of the database
            self._caches = {"": Cache(LOG_CACHE_BYTES if is_log(families) else STATE_CACHE_BYTES)}
            self._db = self._open(families)
        except KvorumError:
            self._lock.release()
            raise
        self._incoming = Incoming(self._path)
        self._moved = MovedFiles(self._path)
        self._ingested_files = self._ingested_bytes = self._linked_files = 0
        self._cursors: set[IteratorCursor] = set()
        self._families = {name: self._db.get_column_family(name) for name in families}
        self._handles: dict[str, Family] = {
            name: self._db.get_column_family_handle(name) for name in families
        }

    def _open(self, families: Sequence[str]) -> Rdict:
        tail = None
        try:
            return self._attempt(families)
        except Corruption:
            tail = cut_torn_tail(self._path)
        except InvalidArgument:
            # We hold the directory's lock; so if RocksDB's is held too, an engine of this process
            # was closed while handles of it live on, perhaps in a reference cycle; one that was
            # frozen (kvorum/local/cycles.py) when it served is searched as well.
            gc.unfreeze()
            gc.collect()
        try:
            database = self._attempt(families)
        except KvorumError:
            if tail is not None:
                tail.restore()
            raise
        if tail is not None:
            log.warning("%s: dropped a record that a power loss tore", tail)
        return database

    def _attempt(self, families: Sequence[str]) -> Rdict:
        by_family = {name: self._options(name) for name in families}
        self._database_options = database_options(self._caches[""], log=is_log(families))
        try:
            return Rdict(str(self._path), self._database_options, column_families=by_family)
        except Exception as error:
            raise _translated(error, f"opening {self._path}") from error

    def _options(self, family: str) -> Options:
        shard = parted(family)[1]
        if shard not in self._caches:
            self._caches[shard] = Cache(SHARD_CACHE_BYTES)
        return family_options(family, self._caches[shard])

    # -- shards

    def shard(self, name: str) -> Engine:
        if not name:
            return self
        if name not in self._caches:
            check_shards(self.shards(), name)
        new = [one for one in (family_of(f, name) for f in SHARDED) if one not in self._families]
        if new:
            self._add_families(new)
        return ShardView(self, name)

    def shards(self) -> Sequence[str]:
        return shards_of(self._families)

    def keep_shards(self, wanted: Collection[str]) -> None:
        gone = unwanted(self._families, wanted)
        for name in gone:
            self._handles.pop(name)
            rows = self._families.pop(name)
            try:
                rows.close()
                self._db.drop_column_family(name)
            except Exception as error:
                raise _translated(error, f"removing from {self._path}", name) from error
        if gone:
            write_format(self._path, list(self._families))
            self._caches = {shard: self._caches[shard] for shard in ("", *self.shards())}

    def _add_families(self, names: Sequence[str]) -> None:
        """Named in the format file first: what a crash leaves out is made at the next opening."""
        if self._closed:
            raise _closed()
        write_format(self._path, [*self._families, *names])
        for name in names:
            try:
                made = self._db.create_column_family(name, self._options(name))
                handle = self._db.get_column_family_handle(name)
            except Exception as error:
                raise _translated(error, f"adding to {self._path}", name) from error
            # other threads may be reading the old ones
            self._handles = {**self._handles, name: handle}
            self._families = {**self._families, name: made}

    # -- writing

    def family(self, name: str) -> Family:
        self._rows(name)
        return self._handles[name]

    def batch(self) -> Batch:
        return RocksBatch(self._borders)

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RocksBatch), "a batch of another engine"
        try:
            self._db.write(batch.raw, self._write_options)
        except Exception as error:
            raise _translated(error, f"writing to {self._path}") from error

    def sorted_rows(self, name: str) -> SortedRows:
        self._rows(name)
        path = self._incoming.next_path()
        writer = SstFileWriter(self._options(name))
        try:
            writer.open(str(path))
            file = SortedFile(
                name, path, writer, translated=_translated, on_discard=self._incoming.forget
            )
        except Exception as error:
            raise _translated(error, f"making {path}") from error
        self._incoming.add(file)
        return file

    def ingest(self, files: Sequence[SortedRows], *, wait: bool = False) -> bool:
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        options.set_allow_blocking_flush(wait)
        for name, group in groupby(check_files(files, SortedFile), lambda file: file.family):
            these = list(group)
            try:
                self._rows(name).ingest_external_file([str(one.path) for one in these], options)
            except KvorumError:
                raise
            except Exception as error:
                if "requires flush" in str(error):
                    self._incoming.in_the_way[name] = None
                    return False
                raise _translated(error, f"taking files into {self._path}", name) from error
            for file in these:
                file.taken = True
                self._ingested_files += 1
                self._ingested_bytes += file.size
                file.discard()
        return True

    def is_empty(self, name: str, start: bytes, end: bytes) -> bool:
        rows = self._rows(name)
        options = ReadOptions()
        options.set_max_skippable_internal_keys(_MARKS_LOOKED_AT_MAX)
        if end:
            options.set_iterate_upper_bound(end)
        cursor = rows.iter(options)
        cursor.seek(min(start, end) if end else start)
        if cursor.valid():
            return False
        try:
            cursor.status()
        except Exception as error:
            if "incomplete" in str(error):
                return False
            raise _translated(error, f"looking into {self._path}", name, start) from error
        return True

    def check_room(self, shard: str = "") -> None:
        stat = os.statvfs(self._path)
        free = stat.f_bavail * stat.f_frsize
        if free < DISK_FREE_BYTES_MIN:
            raise Unavailable(
                f"the disk of {self._path} has {free >> 20} MiB left and writes need at least "
                f"{DISK_FREE_BYTES_MIN >> 20} MiB; make room, then writes go on by themselves",
                details={"what": "disk_free_bytes", "limit": DISK_FREE_BYTES_MIN, "actual": free},
            )
        for name, rows in self._families.items():
            if parted(name)[1] != shard:
                continue
            waiting = rows.property_int_value("rocksdb.num-immutable-mem-table") or 0
            if waiting >= BUFFERS_WAITING_MAX:
                raise Unavailable(
                    f"the disk of {self._path} is slower than the writes: {waiting} memtables of "
                    f"family {name} wait to be written; try again shortly",
                    details={"what": "memtables", "limit": BUFFERS_WAITING_MAX, "actual": waiting},
                )

    def sync(self) -> None:
        if self._sync_failed is not None:
            raise self._sync_failed
        try:
            self._db.flush_wal(True)
            if self._incoming.files:
                self._sync_incoming()
        except Exception as error:
            failure = _translated(error, f"syncing {self._path}")
            if not self._closed:
                self._sync_failed = failure
            raise failure from error

    def _sync_incoming(self) -> None:
        """In the thread of a sync: the work that `ingest` would hold everybody up for."""
        ways, self._incoming.in_the_way = self._incoming.in_the_way, {}
        for name in ways:
            self._rows(name).flush()
        for file in list(self._incoming.files):
            file.sync()

    # -- reading

    def getter(self, name: str) -> Getter:
        raw = self._rows(name).get

        def get(key: bytes) -> bytes | None:
            try:
                return raw(key)
            except Exception as error:
                raise _translated(error, f"reading {self._path}", name, key) from error

        return get

    def multi_getter(self, name: str) -> MultiGetter:
        raw = self._rows(name).get

        def get(keys: list[bytes]) -> list[bytes | None]:
            try:
                values: list[bytes | None] = raw(keys)  # type: ignore[arg-type, assignment]
            except Exception as error:
                raise _translated(error, f"reading {self._path}", name) from error
            return values

        return get

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
        if end and end <= start:
            return []
        # RocksDB reads ahead in one direction only
        options = scan_options(end, 1 if reverse else limit)
        try:
            if reverse:
                return self._scan_back(rows, start, end, options, limit, bytes_max)
            return self._scan_on(rows, start, options, limit, bytes_max)
        except KvorumError:
            raise
        except Exception as error:
            raise _translated(error, f"scanning {self._path}", name, start) from error

    @staticmethod
    def _scan_on(
        rows: Rdict, start: bytes, options: ReadOptions, limit: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        items = rows.items(from_key=start, read_opt=options)
        found, bounded = first_rows(items, limit, bytes_max)  # type: ignore[arg-type]
        if not bounded:
            # `items` ends at a corrupt block as at the end of the range: only status() says it.
            _first_key(rows, found[-1][0] + b"\x00" if found else start, options)
        return found

    @staticmethod
    def _scan_back(
        rows: Rdict, start: bytes, end: bytes, options: ReadOptions, limit: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        # The library has no lower bound, and one step below `start` may cross any number of
        # tombstones: so find the last row that is wanted first, and stop on it. Not with `items`,
        # which has taken the next step already when it hands out a row.
        last = _first_key(rows, start, options)
        found: list[tuple[bytes, bytes]] = []
        if last is None:
            return found
        cursor = rows.iter(options)
        if end:
            cursor.seek_for_prev(end)
        else:
            cursor.seek_to_last()
        size = 0
        while cursor.valid():
            key, value = cursor.key(), cursor.value()
            found.append((key, value))
            size += len(key) + len(value)
            if key == last or len(found) == limit or 0 < bytes_max <= size:
                return found
            cursor.prev()
        cursor.status()
        raise Corruption(f"a reverse scan did not meet {last[:64]!r}, a key that exists")

    def cursor(self, name: str, start: bytes, end: bytes) -> Cursor:
        rows = self._rows(name)
        options = scan_options(end, 0)
        try:
            iterator = rows.iter(options)
            # With nothing between the bounds the library would seek beyond the upper one.
            iterator.seek(min(start, end) if end else start)
        except Exception as error:
            raise _translated(error, f"scanning {self._path}", name, start) from error

        def translated(error: Exception, key: bytes) -> KvorumError:
            return _translated(error, f"scanning {self._path}", name, key)

        pinned = (options, end)
        cursor = IteratorCursor(
            iterator, pinned, translated=translated, on_close=self._cursors.discard
        )
        self._cursors.add(cursor)
        return cursor

    # -- the rest of the protocol

    def flush(self) -> None:
        try:
            for rows in self._families.values():
                rows.flush()
        except Exception as error:
            raise _translated(error, f"flushing {self._path}") from error

    def flush_family(self, name: str) -> None:
        try:
            self._rows(name).flush()
        except KvorumError:
            raise
        except Exception as error:
            raise _translated(error, f"flushing {self._path}", name) from error

    def compact(self, name: str, start: bytes, end: bytes, *, bottom: bool = False) -> None:
        options = CompactOptions()
        # an exclusive one lets no automatic compaction run beside it, and files pile up in level 0
        options.set_exclusive_manual_compaction(False)
        if bottom:
            options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
        try:
            self._rows(name).compact_range(start, end or None, options)
        except KvorumError:
            raise
        except Exception as error:
            raise _translated(error, f"compacting {self._path}", name) from error

    def files(self) -> list[FileFacts]:
        listings = {
            name: rows.property_value("rocksdb.sstables") or ""
            for name, rows in self._families.items()
        }
        try:
            files = self._db.live_files()
        except Exception as error:
            raise _translated(error, f"listing the files of {self._path}") from error
        return join(files, {name: numbers_of(text) for name, text in listings.items()})

    def _borders(self, family: Family, start: bytes, end: bytes) -> list[bytes]:
        """Where the files of a family begin, between two keys; _MARKS_OF_RANGE_MAX at most."""
        name = next(name for name, handle in self._handles.items() if handle is family)
        numbers = {name: numbers_of(self._rows(name).property_value("rocksdb.sstables") or "")}
        firsts = {f.first for f in join(self._db.live_files(), numbers)}
        inside = sorted(key for key in firsts if start < key < end)
        return inside[:: 1 + len(inside) // _MARKS_OF_RANGE_MAX]

    def in_memory(self) -> dict[str, MemoryFacts]:
        def total(rows: Rdict, what: str) -> int:
            return sum(
                rows.property_int_value(f"rocksdb.num-{what}-{kind}") or 0
                for kind in ("active-mem-table", "imm-mem-tables")
            )

        return {
            name: MemoryFacts(total(rows, "entries"), total(rows, "deletes"))
            for name, rows in self._families.items()
        }

    def checkpoint(self, path: str | Path) -> None:
        if Path(path).exists():
            raise InvalidArgument(f"checkpoint {path}: it exists; give the name of a new directory")
        try:
            Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:
            raise _translated(error, f"copying {self._path} to {path}") from error
        write_format(Path(path), list(self._families))
        self._linked_files += sum(one.stat().st_nlink > 1 for one in Path(path).glob("*.sst"))

    def stats(self) -> dict[str, int]:
        def total(name: str) -> int:
            return sum(rows.property_int_value(name) or 0 for rows in self._families.values())

        stat = os.statvfs(self._path)
        return {
            "memtable_bytes": total("rocksdb.size-all-mem-tables"),
            "file_bytes": total("rocksdb.live-sst-files-size"),
            "cache_bytes": sum(cache.get_usage() for cache in self._caches.values()),
            "keys_estimated": total("rocksdb.estimate-num-keys"),
            "compaction_pending_bytes": total("rocksdb.estimate-pending-compaction-bytes"),
            "disk_free_bytes": stat.f_bavail * stat.f_frsize,
        }

    def counters(self) -> dict[str, int]:
        if self._closed:
            raise _closed()
        with suppress(OSError):  # somebody removed the log, which nothing else needs
            self._moved.look()
        counted = dict(_COUNTED.findall(self._database_options.get_statistics() or ""))
        return {
            **{ours: int(counted.get(theirs, 0)) for theirs, ours in _COUNTERS.items()},
            "ingested_files": self._ingested_files,
            "ingested_bytes": self._ingested_bytes,
            "moved_files": self._moved.files,
            "moved_bytes": self._moved.bytes,
            "linked_files": self._linked_files,
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.sync()
        finally:
            self._moved.close()
            for cursor in list(self._cursors):
                cursor.close()
            self._incoming.discard()
            self._handles.clear()
            try:
                for rows in self._families.values():
                    rows.close()
                self._db.close()
            except Exception as error:  # noqa: BLE001 - it is damaged, and said so when it was met
                log.error("closing %s: %s", self._path, error)
            # Handles in reference cycles of whoever used us keep RocksDB's own lock: no other
            # process could open the directory until this one happened to collect them.
            gc.collect()
            self._lock.release()

    def _rows(self, name: str) -> Rdict:
        if self._closed:
            raise _closed()
        try:
            return self._families[name]
        except KeyError:
            raise InvalidArgument(
                f"no family {name!r} in {self._path}; it has {', '.join(self._families)}"
            ) from None


def _first_key(rows: Rdict, start: bytes, options: ReadOptions) -> bytes | None:
    """The first key from `start` within the bound of `options`; raises what the iterator met."""
    cursor = rows.iter(options)
    cursor.seek(start)
    if cursor.valid():
        key: bytes = cursor.key()
        return key
    cursor.status()
    return None


def _translated(error: Exception, doing: str, family: str = "", key: bytes = b"") -> KvorumError:
    """The error of ours for an exception of rocksdict, which says everything in its text."""
    text = str(error)
    where = f"{doing}, family {family}, at key {key[:64]!r}" if family else doing
    if isinstance(error, DbClosedError):
        return _closed()
    if "already consumed" in text:
        return InvalidArgument("this batch was written before; make a new one")
    if isinstance(error, (ValueError, KeyError, TypeError)):
        return InvalidArgument(f"{where}: keys and values are bytes ({text})")
    if "Corruption" in text:
        found = _FILE_IN_ERROR.search(text)
        file = (found[1] or found[2]) if found else ""
        return Corruption(
            f"{where}: {text}; the stored data is damaged: restore this node from a copy or, in a "
            "cluster, decommission it and start a new one on an empty directory with --join",
            details={"key": key, "family": family, "file": file},
        )
    if "Write stall" in text:
        return Unavailable(f"{where}: the disk is slower than the writes; nothing was written")
    if any(sign in text for sign in _DISK_FULL):
        return Unavailable(
            f"{where}: the disk is full; nothing was written; make room and start the node again "
            f"({text})",
            details={"what": "disk"},
        )
    if "lock hold by current process" in text:
        return InvalidArgument(
            f"{where}: this process closed the engine but still holds a family or a batch of it; "
            "drop those first"
        )
    if text.startswith("Invalid argument"):
        return InvalidArgument(f"{where}: {text}")
    return Unavailable(f"{where}: {text}")


def _closed() -> Unavailable:
    return Unavailable("the storage engine is closed")
