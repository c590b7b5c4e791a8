"""What the executor needs of a store (L1). `kv_store.py` keeps procedures in the KV store,
`memory_store.py` in memory.

Every method is atomic and durable when it returns. `update` is the heart: the new record, the
step's own writes, the children and the history are ONE transaction, and it happens only if the
record's row still has the version that the step started from (`Fenced` otherwise). So a step
commits at most once, whoever else runs it.

`Fenced` and the store's answers are the only truth: after an unknown outcome the executor loads the
record and goes on from what is there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from kv.base import limits
from kv.base.ops import Op
from procedures.engine.core import Change
from procedures.engine.records import Entry, Record
from procedures.engine.resources import Locks
from txn.results import ScanPage

NOT_HELD: Final = "NOT_HELD"
"""Code of Forbidden: a worker asks for rows of a procedure that it has no more."""


class Fenced(Exception):
    """The record changed since it was read, or is gone: somebody else runs this procedure."""


class Stored(NamedTuple):
    """A record and the version of its row."""

    record: Record
    version: int


class Broken(NamedTuple):
    """A row that cannot be read: it is listed and left alone."""

    id: int
    reason: str


class Page(NamedTuple):
    """Live procedures in the order of their ids; `after` continues, None = that was all."""

    stored: list[Stored]
    broken: list[Broken]
    after: int | None


class Row(NamedTuple):
    """A value and the version (commit timestamp) that wrote it; 0 = by this transaction itself."""

    value: bytes
    version: int


class Reads(Protocol):
    """The snapshot of one step, once it reads something. Does not see the step's own writes."""

    @property
    def start_ts(self) -> int:
        """Its timestamp."""
        ...

    async def get(self, key: bytes) -> Row | None: ...

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]: ...

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage: ...

    async def close(self) -> None:
        """The step ended without a commit."""
        ...


def outdated(first: int) -> int | None:
    """The row of the history that goes when the one from entry `first` on is written, if there is
    one: however many steps a procedure has, its history has a bound.
    """
    return first - limits.PROCEDURE_HISTORY_KEPT if first >= limits.PROCEDURE_HISTORY_KEPT else None


def kept_rows(record: Record) -> range:
    """The first entries of the rows of its history that no later one has outdated: however many
    rounds it went, its end has few to remove.
    """
    first = max(0, record.spilled - limits.PROCEDURE_HISTORY_KEPT)
    return range(first, record.spilled, limits.PROCEDURE_HISTORY_CHUNK)


class ProcedureStore(Protocol):
    finds: bool
    """Whether it keeps rows by which procedures are found (search_rows.py, attributes.py)."""

    async def take_ids(self, count: int) -> int:
        """The first of `count` consecutive ids that were never given out before."""
        ...

    async def reign(self) -> int:
        """Begin a reign, whose number goes with every grant of locks: from now on those of earlier
        executors are refused, also if they are on their way.
        """
        ...

    async def held_by(self, holders: Collection[int]) -> dict[int, Locks]:
        """The locks that these procedures hold, whether or not their records can be read."""
        ...

    async def insert(self, record: Record, reign: int = 0, ops: Sequence[Op] = ()) -> Stored | int:
        """Store a new procedure; the id of the earlier one when its owner used the nonce before
        (J4).

        `reign` not 0: with its locks, which nobody holds. Raises Unavailable when another reign has
        begun. `ops`: what is stored with a new one, without conditions that could fail.

        May be repeated after an unknown outcome. Raises Refused (NONCE_REUSED) when the nonce
        belongs to a procedure of another name.
        """
        ...

    async def start(
        self, change: Change, *, ops: Sequence[Op] = (), reads: Reads | None = None
    ) -> int:
        """Store a new procedure as its first step left it, with what the step wrote and its
        children: one write instead of `insert` and `update`. It has no locks. The record's version.

        Raises Fenced when its id or its nonce is there already, the errors of the step's own
        writes, UnknownOutcome; then `insert` says what there is.
        """
        ...

    async def beat(self, id: int, version: int, data: bytes) -> None:
        """Keep what the step of this record says of itself (heartbeats.py). Raises Fenced: the
        record has changed.
        """
        ...

    async def load(self, id: int) -> Stored | None: ...

    async def load_range(self, first: int, count: int) -> list[Stored]:
        """The records there are with ids in `[first, first + count)`, in order. `count` ≤
        PROCEDURE_CHILDREN_MAX.
        """
        ...

    async def load_many(self, ids: Sequence[int]) -> list[Stored]:
        """Those of them that are there, in their order."""
        ...

    async def reads(self) -> Reads:
        """A snapshot for one step."""
        ...

    async def update(
        self,
        version: int,
        change: Change,
        *,
        ops: Sequence[Op] = (),
        reads: Reads | None = None,
        revived_version: int = 0,
    ) -> int:
        """Commit a change and the step's writes; the record's new version (also that of its
        children, and of `change.others`).

        Raises Fenced; Unavailable (locks are granted, and another reign has begun); the errors of
        the step's own writes (conflicts when `reads` was used, conditions, sizes); UnknownOutcome.
        """
        ...

    async def remove(self, stored: Sequence[Stored]) -> None:
        """Forget ended procedures: records, history, nonces, retention. Children go before their
        parent. Raises Fenced (and removes none).
        """
        ...

    async def keep(self, stored: Stored, retention_ms: int) -> None:
        """Keep one that has ended for so long after its end. Raises Fenced."""
        ...

    async def live(self, after: int, limit: int) -> Page:
        """Procedures that have not ended, with ids above `after`: up to `limit`, none after the one
        that fills SCAN_PAGE_BYTES_MAX.
        """
        ...

    async def live_ids(self, after: int, limit: int) -> list[int]:
        """The ids above `after` of what has not ended, in order, up to `limit`; none when there are
        no more. No record is read.
        """
        ...

    async def expired(self, now_ms: int, limit: int) -> tuple[list[int], int]:
        """Ids of ended procedures whose retention is over, and when the next one ends (0 = none
        known).
        """
        ...

    async def find_nonce(self, owner: str, nonce: str) -> int | None: ...

    async def newest(self, before: int, limit: int) -> list[Stored]:
        """Records with ids below `before` (0 = all), the newest first: some, up to `limit`; none
        when there are no more.
        """
        ...

    async def history(self, record: Record, limit: int) -> list[Entry]:
        """The newest `limit` finished executions, the oldest of them first."""
        ...
