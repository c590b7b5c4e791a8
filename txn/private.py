"""Rows that one session alone has (SQL's temporary tables): in the memory of its process, under
keys from `kv.base.keys.PRIVATE` on, which no partition has.

    PrivateRows    what is committed; with the process it is gone
    PrivateWrites  what one transaction writes there: its own writes over these rows

    t.beside = PrivateWrites(rows)     reads, writes, conditions and locks of such keys go there
    t.commit()                         conditions of private rows, then the rest of the transaction,
                                       then the private rows: both or neither

Nobody else reads or writes them, so there is one version of each row, nothing is locked, and the
rows do not change while a transaction is open. Whoever loses the answer of a commit that wrote
both does not know what to do with his private part: then the rows are in doubt, and nothing is
read of them any more (`PrivateRows.doubtful`).

`derived` is what somebody has made of the rows (SQL: what is declared in them): a savepoint brings
it back with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sortedcontainers import SortedDict

from kv.base.errors import ConditionFailed, Unavailable
from kv.base.limits import (
    SCAN_PAGE_BYTES_MAX,
    SQL_LOAD_SLICE_ROWS,
    TXN_BUFFER_BYTES_MAX,
    TXN_KEYS_MAX,
)
from kv.base.methods import OP_CHECK
from kv.base.ops import Op
from txn.buffered.write_buffer import WriteBuffer, merged
from txn.results import Row, ScanPage

_OVERHEAD: Final = 200  # bytes of memory that a row takes beside its key and value
_FIRST: Final = 1  # the version of what was written without a timestamp


class PrivateMark(NamedTuple):
    """A savepoint."""

    writes: int
    ranges: int
    derived: object


class PrivateRows:
    """What one session has committed."""

    __slots__ = ("_rows", "bytes", "derived", "doubtful")

    def __init__(self) -> None:
        self._rows: SortedDict[bytes, tuple[bytes, int]] = SortedDict()
        self.bytes = 0
        self.derived: object = None
        self.doubtful = False

    def get(self, key: bytes) -> tuple[bytes, int] | None:
        found: tuple[bytes, int] | None = self._rows.get(key)
        return found

    def page(self, start: bytes, end: bytes, limit: int, reverse: bool, at: int) -> ScanPage:
        """At most `limit` rows of `[start, end)`, and not many more bytes than a page may have."""
        keys = self._rows.irange(start, end or None, (True, False), reverse=reverse)
        items: list[Row] = []
        size = 0
        for key in islice(keys, limit):
            value, version = self._rows[key]
            items.append((key, value, version))
            size += len(value)
            if size > SCAN_PAGE_BYTES_MAX:
                break
        if len(items) < limit and size <= SCAN_PAGE_BYTES_MAX:
            return ScanPage(items, None, at)
        if not items:
            return ScanPage(items, None, at)
        return ScanPage(items, items[-1][0] if reverse else items[-1][0] + b"\0", at)

    def put(self, key: bytes, value: bytes | None, version: int) -> None:
        """At once, without a transaction (`value` None: it goes): what no rollback takes back."""
        self._apply([(key, value)], version)

    def apply(self, writes: PrivateWrites, version: int) -> Iterator[None]:
        """All that a transaction has written, in slices: others may have the loop between them, but
        nobody reads the rows.
        """
        ops = writes.ops()
        for at in range(0, len(ops), SQL_LOAD_SLICE_ROWS):
            some = ops[at : at + SQL_LOAD_SLICE_ROWS]
            self._apply([(op.key, op.value) for op in some], version)
            yield
        for start, end in writes.ranges:
            while True:
                found = self._rows.irange(start, end, (True, False))
                gone = list(islice(found, SQL_LOAD_SLICE_ROWS))
                if not gone:
                    break
                self._apply([(key, None) for key in gone], version)
                yield
        self.derived = writes.derived

    def _apply(self, rows: Sequence[tuple[bytes, bytes | None]], version: int) -> None:
        new: dict[bytes, tuple[bytes, int]] = {}
        for key, value in rows:
            old = self._rows.get(key)
            if old is not None:
                self.bytes -= _size(key, old[0])
            if value is None:
                self._rows.pop(key, None)
                continue
            self.bytes += _size(key, value)
            if old is not None:
                self._rows[key] = value, version
            else:
                new[key] = value, version
        self._rows.update(new)


def _size(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + _OVERHEAD


class PrivateWrites:
    """What one transaction sees and writes. `ranges`: of keys that are gone when it commits."""

    __slots__ = ("_buffer", "_rows", "derived", "ranges", "ts")

    def __init__(self, rows: PrivateRows, *, bare: bool = False) -> None:
        """`bare`: of who only reads what was there before. Raises Unavailable."""
        if rows.doubtful and not bare:
            raise Unavailable(
                "the temporary tables of this session are in doubt: a commit that changed them "
                "was not answered; connect again, or DISCARD TEMP and make them anew"
            )
        self._rows = rows
        self._buffer = WriteBuffer(keys_max=TXN_KEYS_MAX, bytes_max=TXN_BUFFER_BYTES_MAX)
        self.ranges: list[tuple[bytes, bytes]] = []
        self.derived: object = rows.derived
        self.ts = 0  # of the transaction's snapshot

    def __bool__(self) -> bool:
        """Whether it has written anything."""
        return bool(self._buffer) or bool(self.ranges) or self.derived is not self._rows.derived

    @property
    def memory_bytes(self) -> int:
        return self._buffer.memory_bytes

    # -- reads

    def get(self, key: bytes) -> tuple[bytes | None, int]:
        """As `Transaction.get`."""
        mine = self._buffer.written(key)
        if mine is not None:
            return mine.value, 0
        return self._rows.get(key) or (None, 0)

    def find(self, key: bytes) -> tuple[bytes, int] | None:
        """The same; None: it is absent."""
        value, version = self.get(key)
        return None if value is None else (value, version)

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage:
        """As `Transaction.scan`."""

        async def read(low: bytes, high: bytes, wanted: int) -> ScanPage:
            return self._rows.page(low, high, wanted, reverse, self.ts)

        return await merged(self._buffer, read, start, end, reverse=reverse, limit=limit)

    def values(
        self, start: bytes, end: bytes, limit: int
    ) -> tuple[list[bytes], bytes | None] | None:
        """As `Transaction.scan_values`."""
        if self._buffer:
            return None
        page = self._rows.page(start, end, limit, False, self.ts)
        return [value for _, value, _ in page.items], page.resume

    def wrote(self, key: bytes) -> bool:
        return self._buffer.written(key) is not None

    def has_put(self, key: bytes) -> bool:
        op = self._buffer.written(key)
        return op is not None and op.value is not None

    def versions(self, keys: Sequence[bytes]) -> list[int]:
        """Of what is committed; 0: it is absent."""
        return [0 if (row := self._rows.get(key)) is None else row[1] for key in keys]

    def committed(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        return [self._rows.get(key) for key in keys]

    def lent(self) -> PrivateWrites:
        """What it sees now, for who reads it while more is written."""
        found = PrivateWrites(self._rows, bare=True)
        found.ts, found._buffer = self.ts, self._buffer.lend() if self._buffer else _UNWRITTEN
        return found

    def give_back(self, lent: PrivateWrites) -> None:
        """It is not read any more."""
        self._buffer.give_back(lent._buffer)

    def bare(self) -> PrivateWrites:
        """What was there before."""
        found = PrivateWrites(self._rows, bare=True)
        found.ts = self.ts
        return found

    # -- writes

    def add(self, op: Op) -> None:
        """As `WriteBuffer.add`."""
        self._buffer.add(op)

    def add_rows(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None,
        cond: int | Sequence[int | None] | None = None,
        *,
        tombstone: bool = False,
    ) -> None:
        """As `WriteBuffer.add_rows`."""
        self._buffer.add_rows(keys, values, cond, tombstone=tombstone)

    def drop(self, start: bytes, end: bytes) -> None:
        """The rows of `[start, end)` are gone when it commits; nobody reads them until then."""
        self.ranges.append((start, end))

    def ops(self) -> list[Op]:
        return [op for op in self._buffer.ops() if op.kind != OP_CHECK]

    def mark(self) -> PrivateMark:
        """A savepoint."""
        return PrivateMark(self._buffer.mark(), len(self.ranges), self.derived)

    def undo_to(self, mark: PrivateMark | None) -> None:
        """Take back what came after it; None: everything."""
        if mark is None:
            self._buffer = WriteBuffer(keys_max=TXN_KEYS_MAX, bytes_max=TXN_BUFFER_BYTES_MAX)
            self.ranges, self.derived = [], self._rows.derived
            return
        self._buffer.undo_to(mark.writes)
        del self.ranges[mark.ranges :]
        self.derived = mark.derived

    def forget_marks(self) -> None:
        self._buffer.forget_marks()

    # -- the end

    async def check(self) -> None:
        """The conditions of what it wrote. Raises ConditionFailed."""
        for at, op in enumerate(self._buffer.ops()):
            if at % SQL_LOAD_SLICE_ROWS == SQL_LOAD_SLICE_ROWS - 1:
                await asyncio.sleep(0)
            if op.cond is None:
                continue
            row = self._rows.get(op.key)
            version = 0 if row is None else row[1]
            if version != op.cond:
                raise ConditionFailed(
                    f"key {op.key!r:.60} has version {version}, not {op.cond}",
                    details={"key": op.key, "version": str(version) if version else None, "op": at},
                )

    async def commit(self, version: int = 0) -> None:
        """It is committed. Who is cancelled meanwhile has committed all the same."""
        if not self:
            return
        slices = self._rows.apply(self, version or _FIRST)
        try:
            for _ in slices:
                await asyncio.sleep(0)
        finally:
            for _ in slices:
                pass

    def lose(self) -> None:
        """Nobody knows whether it is."""
        if self:
            self._rows.doubtful = True


_UNWRITTEN: Final = WriteBuffer()  # never changed
