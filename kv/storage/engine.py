"""What a storage engine is: column families of ordered bytes with atomic batches, and one durable
prefix.

Invariants that every engine keeps and every caller may lean on
  * a batch is all or nothing, in memory and after a crash;
  * after a crash the engine holds a *prefix* of the written batches, at least those written before
    the last `sync` that returned;
  * one thread writes and scans (the event loop); only `sync`, `flush`, `compact` and `close` may
    run in another one;
  * order is plain byte order; keys and values are `bytes` and nothing else;
  * what was ingested is durable at once, and so may survive what was written before it;
  * a failed `sync` is for good: the engine refuses to claim durability again until it is opened
    anew (after a failed fsync the kernel has dropped the dirty pages, so a second, successful one
    proves nothing).
 Errors: `Unavailable` (write stall, disk full, closed: nothing was written), `Corruption` (names
family and key, or file), `InvalidArgument` (a batch written twice, what cannot be opened, and why;
a range whose end lies before its start).
 Deliberately missing: transactions (kv.mvcc keeps versions) and merge operators. A view that
outlives a call is a `Cursor`: for whole ranges only, because it pins memtables and files until it
is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from kv.base.errors import InvalidArgument, Unavailable
from kv.storage.files import FileFacts, MemoryFacts

Family = Any
"""Opaque: made by `Engine.family`, used in batches, meaningless to another engine."""

Getter = Callable[[bytes], bytes | None]
MultiGetter = Callable[[list[bytes]], list[bytes | None]]

STATE_FAMILIES: Final = ("cur", "hist", "lock", "txn", "gcq", "meta", "staged", "guard")
LOG_FAMILIES: Final = ("log",)
FAMILIES_SINCE: Final = frozenset({"staged", "guard"})
"""Families that came after the first release: opening a directory without them adds them."""


def check_range(start: bytes, end: bytes) -> bool:
    """Whether `[start, end)` is not empty. Raises InvalidArgument if `end` lies before `start`."""
    if end < start:
        raise InvalidArgument(
            f"delete_range: the end {end[:64]!r} lies before the start {start[:64]!r}; "
            "give the smaller key first",
            details={"start": start, "end": end},
        )
    return start < end


def first_rows(
    rows: Iterable[tuple[bytes, bytes]], limit: int, bytes_max: int
) -> tuple[list[tuple[bytes, bytes]], bool]:
    """What `Engine.scan` takes of `rows`, and whether a bound ended it."""
    if not bytes_max:
        found = list(islice(rows, limit) if limit else rows)
        return found, len(found) == limit > 0
    found = []
    left = bytes_max
    for row in islice(rows, limit) if limit else rows:
        found.append(row)
        left -= len(row[0]) + len(row[1])
        if left <= 0:
            return found, True
    return found, len(found) == limit > 0


_Rows = TypeVar("_Rows", bound="SortedRows")


def check_files(files: Sequence[SortedRows], kind: type[_Rows]) -> list[_Rows]:
    """Those that are still to be taken in, in order of family and keys. Raises InvalidArgument."""
    new: list[_Rows] = []
    for file in files:
        assert isinstance(file, kind), "a file of another engine"
        if not file.closed:
            raise InvalidArgument(f"a file of family {file.family} is ingested before it is closed")
        if not file.taken:
            new.append(file)
    new.sort(key=lambda file: (file.family, file.first))
    for low, high in pairwise(new):
        if low.family == high.family and low.last >= high.first:
            raise InvalidArgument(
                f"files of family {low.family} overlap between {high.first[:64]!r} and "
                f"{low.last[:64]!r}; nobody could know whose row is the newer one"
            )
    return new


def cursor_closed() -> Unavailable:
    """The error of a cursor that is used after it was closed."""
    return Unavailable("the cursor is closed; open a new one for a newer view")


class Batch(Protocol):
    """Writes that become visible together; later ones win over earlier ones. Consumed by
    `Engine.write`.
    """

    def put(self, key: bytes, value: bytes, family: Family) -> None: ...

    def delete(self, key: bytes, family: Family) -> None: ...

    def delete_range(self, start: bytes, end: bytes, family: Family) -> None:
        """Forget `start <= key < end`. An empty range is nothing; `end < start` raises
        InvalidArgument.
        """
        ...


class Cursor(Protocol):
    """The rows of a range as they were when the cursor was made, whatever is written later.

    Cursors made in one synchronous step see the same moment: together they are one consistent view
    of several families and ranges. Close it: it keeps memory and files of that moment.
    """

    def take(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """The next rows in key order: at most `rows_max`, none after the one that fills
        `bytes_max` (of keys and values). Fewer only at the end; [] = the end.

        Raises Corruption; Unavailable if the cursor or its engine is closed.
        """
        ...

    def close(self) -> None:
        """Let go of the view. Closing twice is allowed; closing the engine closes its cursors."""
        ...


class SortedRows(Protocol):
    """Rows of one family on their way into the database: written to a file of their own, beside
    what is there, and taken in as a whole (`Engine.ingest`). Nobody sees them before.

    Put, close; a `sync` of the engine that began after that makes what follows quick; ingest.
    """

    family: str
    size: int
    """Bytes of keys and values so far."""
    first: bytes
    last: bytes
    closed: bool
    taken: bool

    def put(self, key: bytes, value: bytes) -> None:
        """Keys strictly rising. Raises InvalidArgument (a key that does not), Unavailable."""
        ...

    def close(self) -> None:
        """That was the last row; there must be one. Raises Unavailable. Twice is allowed."""
        ...

    def discard(self) -> None:
        """Forget the rows, if they were not taken in. Twice is allowed."""
        ...


class Engine(Protocol):
    """One database: a directory, or memory. See the module for what holds at a crash."""

    def shard(self, name: str) -> Engine:
        """The same database for a partition of this storage shard (kv.base.shards), whose families
        are made, durably, if they are not there; "" = as it is. A first call takes some tens of
        milliseconds. Raises TooLarge (SHARDS_HELD_MAX), Unavailable.
        """
        ...

    def shards(self) -> Sequence[str]:
        """Those that are there, but for the default one."""
        ...

    def keep_shards(self, wanted: Collection[str]) -> None:
        """Remove all other shards with whatever is in them. Only while nobody has taken anything of
        them yet (`shard`): what is written to a removed family poisons the database. Raises
        Unavailable.
        """
        ...

    def family(self, name: str) -> Family:
        """The handle that batches take. Raises InvalidArgument for a name that was not opened."""
        ...

    def batch(self) -> Batch: ...

    def write(self, batch: Batch) -> None:
        """Make the batch visible; NOT durable before the next `sync`. Consumes the batch, also
        when it raises.

        Never waits: a write stall or a full disk raises Unavailable, and then nothing of the batch
        is visible.
        """
        ...

    def sorted_rows(self, name: str) -> SortedRows:
        """A file for many rows of one family, to be ingested. Files that are not go with the
        engine, or with a crash. Raises Unavailable.
        """
        ...

    def ingest(self, files: Sequence[SortedRows], *, wait: bool = False) -> bool:
        """Make the rows of closed files visible, over whatever was written before, and *durable*:
        they survive a crash that loses earlier batches which were not synced. So sync first what
        must not be lost while they are there. Of one family all or nothing.

        False, and nothing of a family was taken in: rows in memory overlap its files. They are
        moved to files by the next `sync`: ask again after that. `wait`: do it now instead; it
        blocks. The call holds up every other one for as long as the list of files takes to sync.
        Raises InvalidArgument (not closed, or files of one family overlap), Unavailable.
        """
        ...

    def is_empty(self, name: str, start: bytes, end: bytes) -> bool:
        """Whether a range of a family certainly has no rows; after a bounded look, so False may
        mean that there are only marks of what was deleted. `end` b"" = no bound.
        """
        ...

    def check_room(self, shard: str = "") -> None:
        """Raise Unavailable if new work should not be admitted now: the disk is nearly full or too
        slow. Of a shard only its own memtables are looked at, of the default one those of all
        families that are no other's; asked of what `shard` gave, both.

        Ask before accepting a request (2 µs), not before `write`: what was admitted has room to
        complete, and a database that met a full disk refuses every write until it is opened anew.
        """
        ...

    def getter(self, name: str) -> Getter:
        """The bound point read of one family. Take it once and keep it."""
        ...

    def multi_getter(self, name: str) -> MultiGetter:
        """The bound read of many keys of one family: sorted and unique in, one answer per key out.

        Releases the GIL (rocks): in a thread it is the way to read what may be cold.
        """
        ...

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
        """One consistent slice of `start <= key < end`, in key order or in reverse; `end` b"" = no
        bound. At most `limit` rows, none after the one that fills `bytes_max` (of keys and values);
        0 = no bound.

        Synchronous: the caller bounds it (`limits.SCAN_STEP_ROWS_MAX`).
        """
        ...

    def cursor(self, name: str, start: bytes, end: bytes) -> Cursor:
        """A view of `start <= key < end` of one family at this moment; `end` b"" = no bound."""
        ...

    def sync(self) -> None:
        """Everything written before the call is durable when it returns. Releases the GIL: call it
        in a thread.
        """
        ...

    def flush(self) -> None:
        """Move what is in memory into files; blocks (a thread's work). Never needed for
        durability.
        """
        ...

    def flush_family(self, name: str) -> None:
        """`flush` of one family."""
        ...

    def compact(self, name: str, start: bytes, end: bytes, *, bottom: bool = False) -> None:
        """Rewrite the files of a range (`end` b"" = no bound), dropping what was deleted;
        `bottom`: those too that lie at the bottom with nothing above them. Blocks: a thread's work.
        Writes, flushes and other compactions go on meanwhile.
        """
        ...

    def files(self) -> list[FileFacts]:
        """Every file of the state families, with what was counted when it was written. No scan:
        3 µs a file.
        """
        ...

    def in_memory(self) -> dict[str, MemoryFacts]:
        """By family what is not in a file yet."""
        ...

    def checkpoint(self, path: str | Path) -> None:
        """A consistent, openable copy in the new directory `path`, sharing files by hard link
        where possible.
        """
        ...

    def stats(self) -> dict[str, int]:
        """Figures for metrics, sizes in bytes. Cheap: no scan."""
        ...

    def counters(self) -> dict[str, int]:
        """What was done since it was opened, for metrics: bytes of batches, written to files and
        read again; files taken as they are; read ahead of scans. Half a millisecond.
        """
        ...

    def close(self) -> None:
        """Sync, then let go of the directory. Later calls raise Unavailable; closing twice is
        allowed.
        """
        ...
