"""A database as a partition of a storage shard sees it: three families are the shard's own.

Everything else is the database itself: its other families, its batches (so that rows and applied
index stay all or nothing), its log and its syncs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from kv.base.errors import TooLarge
from kv.base.limits import SHARDS_HELD_MAX
from kv.base.shards import SHARDED, family_of
from kv.storage.engine import (
    Batch,
    Cursor,
    Engine,
    Family,
    Getter,
    MultiGetter,
    SortedRows,
)
from kv.storage.files import FileFacts, MemoryFacts


class ShardView:
    """See the module; `engine.Engine` for the contract."""

    def __init__(self, engine: Engine, shard: str) -> None:
        self._engine, self._shard = engine, shard
        self._own = {name: family_of(name, shard) for name in SHARDED}

    def _name(self, name: str) -> str:
        return self._own.get(name, name)

    def shard(self, name: str) -> Engine:
        return self._engine.shard(name)

    def shards(self) -> Sequence[str]:
        return self._engine.shards()

    def keep_shards(self, wanted: Collection[str]) -> None:
        self._engine.keep_shards(wanted)

    def family(self, name: str) -> Family:
        return self._engine.family(self._name(name))

    def batch(self) -> Batch:
        return self._engine.batch()

    def write(self, batch: Batch) -> None:
        self._engine.write(batch)

    def sorted_rows(self, name: str) -> SortedRows:
        return self._engine.sorted_rows(self._name(name))

    def ingest(self, files: Sequence[SortedRows], *, wait: bool = False) -> bool:
        return self._engine.ingest(files, wait=wait)

    def is_empty(self, name: str, start: bytes, end: bytes) -> bool:
        return self._engine.is_empty(self._name(name), start, end)

    def check_room(self, shard: str = "") -> None:
        if not shard:
            self._engine.check_room()  # where staging and records of its partitions are
        self._engine.check_room(shard or self._shard)

    def getter(self, name: str) -> Getter:
        return self._engine.getter(self._name(name))

    def multi_getter(self, name: str) -> MultiGetter:
        return self._engine.multi_getter(self._name(name))

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
        return self._engine.scan(
            self._name(name), start, end, reverse=reverse, limit=limit, bytes_max=bytes_max
        )

    def cursor(self, name: str, start: bytes, end: bytes) -> Cursor:
        return self._engine.cursor(self._name(name), start, end)

    def sync(self) -> None:
        self._engine.sync()

    def flush(self) -> None:
        self._engine.flush()

    def flush_family(self, name: str) -> None:
        self._engine.flush_family(self._name(name))

    def compact(self, name: str, start: bytes, end: bytes, *, bottom: bool = False) -> None:
        self._engine.compact(self._name(name), start, end, bottom=bottom)

    def files(self) -> list[FileFacts]:
        return self._engine.files()

    def in_memory(self) -> dict[str, MemoryFacts]:
        return self._engine.in_memory()

    def checkpoint(self, path: str | Path) -> None:
        self._engine.checkpoint(path)

    def stats(self) -> dict[str, int]:
        return self._engine.stats()

    def counters(self) -> dict[str, int]:
        return self._engine.counters()

    def close(self) -> None:
        self._engine.close()


def check_shards(there: Sequence[str], new: str) -> None:
    """Raises TooLarge: one more than a node may have. More than the map has: those that nobody is
    in any more are there until a start, as a batch may still be written to their families.
    """
    if len(there) >= SHARDS_HELD_MAX:
        raise TooLarge(
            f"storage shard {new!r} would be one too many: this node holds {len(there)}, the "
            "limit, those of no partition, too, until it is started again: do that, or let tables "
            f"share one of {', '.join(there)}",
            details={"what": "storage shards", "limit": SHARDS_HELD_MAX, "actual": len(there) + 1},
        )
