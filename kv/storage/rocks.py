"""RocksDB through rocksdict: the only module that imports it, and the owner of every trap of that
library.

Raw mode everywhere: bytes only, nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import MiB
from kv.storage.engine import Batch, Family, Getter, MultiGetter, check_range


class RocksBatch:
    """`put` and `delete` are the library's own methods: nothing of ours runs on the hot path."""

    __slots__ = ("delete", "put", "raw")

    def __init__(self) -> None:
        self.raw = WriteBatch(raw_mode=True)
        self.put = self.raw.put
        self.delete = self.raw.delete

    def delete_range(self, start: bytes, end: bytes, family: Family) -> None:
        if check_range(start, end):
            self.raw.delete_range(start, end, family)


def _options(cache: Cache) -> Options:
    o = Options(raw_mode=True)
    o.create_if_missing(True)
    o.create_missing_column_families(True)
    o.set_write_buffer_size(32 * MiB)
    o.set_max_write_buffer_number(4)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(cache)
    o.set_block_based_table_factory(table)
    return o


class RocksEngine:
    """See `engine.Engine`."""

    def __init__(self, path: str | Path, families: Sequence[str]) -> None:
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)
        cache = Cache(128 * MiB)
        self._db = Rdict(
            str(path), _options(cache), column_families={f: _options(cache) for f in families}
        )
        # Taken once and kept: collecting such an object flushes its family.
        self._families = {name: self._db.get_column_family(name) for name in families}
        self._handles = {name: self._db.get_column_family_handle(name) for name in families}
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True

    def family(self, name: str) -> Family:
        return self._handles[name]

    def batch(self) -> Batch:
        return RocksBatch()

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RocksBatch)
        self._db.write(batch.raw, self._write_options)

    def getter(self, name: str) -> Getter:
        return self._rows(name).get

    def multi_getter(self, name: str) -> MultiGetter:
        return self._rows(name).get  # type: ignore[return-value]

    def scan(
        self, name: str, start: bytes, end: bytes, *, reverse: bool = False, limit: int = 0
    ) -> list[tuple[bytes, bytes]]:
        if end and end <= start:
            return []
        rows = self._rows(name)
        options = ReadOptions()
        if end:
            options.set_iterate_upper_bound(end)
        if not reverse:
            found = rows.items(from_key=start, read_opt=options)
            return list(islice(found, limit) if limit else found)  # type: ignore[arg-type]
        first = next(iter(rows.keys(from_key=start, read_opt=options)), None)
        out: list[tuple[bytes, bytes]] = []
        if first is None:
            return out
        for pair in rows.items(backwards=True, from_key=end or None, read_opt=options):
            out.append(pair)  # type: ignore[arg-type]
            if pair[0] == first or len(out) == limit:
                break
        return out

    def sync(self) -> None:
        self._db.flush_wal(True)

    def flush(self) -> None:
        for rows in self._families.values():
            rows.flush()

    def compact(self, name: str, start: bytes, end: bytes) -> None:
        self._rows(name).compact_range(start, end or None)

    def checkpoint(self, path: str | Path) -> None:
        Checkpoint(self._db).create_checkpoint(str(path))

    def stats(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        if self._handles:
            self.sync()
            self._handles.clear()
            for rows in self._families.values():
                rows.close()
            self._db.close()

    def _rows(self, name: str) -> Rdict:
        try:
            return self._families[name]
        except KeyError:
            raise InvalidArgument(
                f"no family {name!r} in {self._path}; it has {', '.join(self._families)}"
            ) from None


def _closed() -> Unavailable:
    return Unavailable("the storage engine is closed")
