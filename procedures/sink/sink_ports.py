"""What the sink needs of others: transactions, the executor, the tables. And what its modes share.

`Tables` is a port, because indexes, constraints and conditions are known two floors up
(`sqlproxy.sinking`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kv.base.errors import Refused
from kv.base.ops import Op
from procedures.engine.submission import Submission
from procedures.sink.format.sink_parts import Part
from procedures.sink.format.sink_records import Attempt, Marker, attempt_key

if TYPE_CHECKING:
    from procedures.engine.context import StepContext
    from txn.bulk.bulk_transactions import BulkTransactions
    from txn.results import Row, ScanPage
    from txn.transaction import Transaction

Get: TypeAlias = Callable[[bytes], Awaitable[tuple[bytes | None, int]]]
Pieces: TypeAlias = Callable[[], AsyncIterator[tuple[list[bytes], list[bytes | None]]]]
Show: TypeAlias = Callable[[bytes], Awaitable[str]]
"""A user key as people read it."""
Submit: TypeAlias = Callable[[Submission], Awaitable[int]]


class SinkRefused(Refused):
    """The batch must not be committed: its code and message become the procedure's error."""


class Scanned(Protocol):
    """What can be scanned."""

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage: ...


class Transactions(Scanned, Protocol):
    """What the sink needs of txn.TxnClient."""

    @property
    def bulk(self) -> BulkTransactions: ...
    async def get(self, key: bytes, at: int = 0) -> tuple[bytes | None, int]: ...
    async def write(self, ops: Sequence[Op]) -> int: ...
    async def begin(self, *, ttl_ms: int = ...) -> Transaction: ...


class Writes(Protocol):
    """What rows are put into: a transaction (txn.Transaction), or that of a step."""

    def put(self, key: bytes, value: bytes) -> object: ...
    def delete(self, key: bytes) -> object: ...


def _nothing(part: Part) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Facts:
    """A table as a commit finds it. While `key` has `version`, this is so. `check` raises
    SinkRefused if the part's rows were encoded for columns that it has no more.
    """

    path: str
    ruled: bool
    key: bytes
    version: int
    check: Callable[[Part], None] = _nothing


class Tables(Protocol):
    """What the sink asks about tables."""

    async def facts(self, get: Get, table: int, path: str = "") -> Facts | None:
        """By `get`, a snapshot or a step's transaction; `path` for errors, if it is gone. None:
        nothing is declared under this id (rows without a catalog). Raises SinkRefused (TABLE_GONE).
        """
        ...

    async def write(self, t: Transaction, part: Part, pieces: Pieces) -> int:
        """Put a part's rows into the transaction with all that belongs to them, under the condition
        that the table stays what it is. `pieces` gives (user keys that rise, values; None deletes)
        from the first task to the last, and again when called again; no key twice. Returns how
        many rows that were there are gone or replaced. Raises SinkRefused, WriteConflict.
        """
        ...

    async def shown(self, get: Get, table: int, key: bytes) -> str:
        """A user key as people read it."""
        ...


async def pages(txn: Scanned, start: bytes, end: bytes, limit: int) -> AsyncIterator[Sequence[Row]]:
    """The rows of `[start, end)`, page by page."""
    resume: bytes | None = start
    while resume is not None and resume < end:
        page = await txn.scan(resume, end, limit=limit)
        yield page.items
        resume = page.resume


def getter(ctx: StepContext) -> Get:
    """The step's snapshot, as a function."""

    async def get(key: bytes) -> tuple[bytes | None, int]:
        row = await ctx.txn.get(key)
        return (None, 0) if row is None else (row.value, row.version)

    return get


async def attempt_by(get: Get, name: str) -> tuple[Attempt | None, int]:
    """The attempt and the version of its row."""
    row, version = await get(attempt_key(name))
    return (None if row is None else Attempt.unpack(row)), version


async def marker_by(get: Get, key: bytes) -> tuple[Marker | None, int]:
    """The marker and its version."""
    row, version = await get(key)
    return (None if row is None else Marker.unpack(row)), version


def counter(ctx: StepContext, rows: int) -> Callable[[int], None]:
    """To be called with each number of rows that is written: the procedure's progress."""
    written = 0

    def add(more: int) -> None:
        nonlocal written
        written += more
        ctx.progress(min(1.0, written / max(1, rows)), f"{written} of {rows} rows")

    return add
