"""One transaction of a user: reads at start_ts, writes buffered here until the commit.

Two transactions that overlap and write the same key can not both commit (first committer wins,
checked by the participants). Under snapshot isolation two that read what the other writes can:
write skew is allowed, and a row whose reading must hold is protected by `check(key, version)`. A
serializable one remembers what it read, ranges included, and its commit checks all of it
(kv.mvcc.validate says why that is enough); one that wrote nothing needs no check.

`lock` keeps others from writing keys from now on (txn.row_locks). One that *renews* reads as of
`read_ts`, which `renew` brings to the present (READ COMMITTED); it may lock and write what is newer
than its beginning. What it writes to keys that it has not locked is then checked for nothing but
its conditions: whoever computes from what he read gives its version as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from operator import attrgetter
from types import TracebackType
from typing import Final, NamedTuple, Protocol

from kv.base.errors import (
    ConditionFailed,
    KvorumError,
    SnapshotTooOld,
    TxnAborted,
    UnknownOutcome,
)
from kv.base.ids import TxnId
from kv.base.keys import PRIVATE, u32
from kv.base.limits import TXN_LIFETIME_MS_MAX, TXN_STREAM_KEYS_MIN
from kv.base.methods import BLIND, OP_CHECK, OP_PUT
from kv.base.ops import Op, check, delete, put
from kv.base.ports import Clock, Timers
from kv.base.strengths import KEY_SHARE, UPDATE
from kv.mvcc.refusals import write_conflict
from txn.buffered.read_set import Held, ReadSet
from txn.buffered.spill_file import OpenFile
from txn.buffered.write_buffer import WriteBuffer, merged
from txn.bulk.spilled_commit import anchor_of
from txn.commit.coordinator import Coordinator
from txn.commit.sending import Request
from txn.commit.trace import CommitTrace
from txn.private import PrivateWrites
from txn.reading.reader import Reader
from txn.results import ScanPage, Tally
from txn.row_locks import RowLocks
from txn.shared.message_sizes import FEW_OPS
from txn.shared.refusals import BY_OWNER, is_committed, is_over, renumber, too_old
from txn.shared.wait_terms import Terms

STATUS_ONLY_KEY: Final = u32(0)
"""The anchor of recorded transactions that wrote nothing: in the meta range, in a table that no one
has.
"""

_key_of: Final = attrgetter("key")


class Mark(NamedTuple):
    """A savepoint: of the writes, of what was asked to hold (None: nothing was), and of locks."""

    writes: int
    holds: Held | None
    locks: int


class TxnState(Enum):
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Client(Protocol):
    """What a transaction uses of the client that began it (txn.client)."""

    clock: Clock
    timers: Timers
    reader: Reader
    coordinator: Coordinator
    open_file: OpenFile
    spill_bytes: int

    async def commit_large(
        self,
        start_ts: int,
        buffer: WriteBuffer,
        terms: Terms,
        *,
        locks: RowLocks | None,
        checked: bool,
    ) -> int: ...


class TxnReads:
    """The reads of a transaction, by itself or by a View of it: the snapshot, with the writes of
    `_buffer` over it (their version is 0).
    """

    __slots__ = ()

    start_ts: int
    read_ts: int
    renews: bool
    lock_wait_ms: int | None
    _client: Client
    _buffer: WriteBuffer
    _reads: ReadSet | None
    _budget_ms: int
    beside: PrivateWrites | None
    """Rows of its owner alone, under keys from PRIVATE on; None: it has none."""

    def hold_key(self, key: bytes) -> None:
        """Commit only if nobody wrote this key since the snapshot. Raises TooLarge."""
        raise NotImplementedError

    async def lock(
        self,
        keys: Sequence[bytes],
        *,
        wait_ms: int | None = None,
        strength: int = UPDATE,
        going: bool = False,
    ) -> list[int]:
        """Keep others from writing these keys until the end, and their newest versions; 0: there is
        none. `wait_ms`: how long it waits for others, 0 = not at all; None: as its terms say.
        `strength` (kv.base.strengths): what else others may do; a shared one is no condition of
        what is written then. `going`: what is there is about to go, so commits that have read it
        wait for the end.

        Raises KeyLocked: it would have to wait longer; TxnAborted: a deadlock; WriteConflict: a key
        is newer than the snapshot of a transaction that does not renew it; TooLarge. Then some of
        them may be locked.
        """
        raise NotImplementedError

    async def lock_present(
        self, key: bytes, *, wait_ms: int | None = None, strength: int = UPDATE
    ) -> tuple[bytes, int] | None:
        """Lock a key that is there, and what it has by now, in one request; None: it is absent, and
        not locked. For those that renew their snapshot; not for shared locks. Raises as `lock`.
        """
        raise NotImplementedError

    async def newest(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """What is committed by now of keys that are locked: value and version of each."""
        if self.beside is not None and keys and keys[0] >= PRIVATE:
            return self.beside.committed(keys)
        return (await self._client.reader.multi_get_now(keys, self._budget_ms))[0]

    async def renew(self) -> None:
        """What is read from now on is as of now, what it wrote before included."""
        raise NotImplementedError

    def wrote(self, key: bytes) -> bool:
        """Whether it has written this key itself."""
        if self.beside is not None and key >= PRIVATE:
            return self.beside.wrote(key)
        return self._buffer.written(key) is not None

    def has_put(self, key: bytes) -> bool:
        """Whether it has written this key itself, and it is there."""
        if self.beside is not None and key >= PRIVATE:
            return self.beside.has_put(key)
        op = self._buffer.written(key)
        return op is not None and op.kind == OP_PUT

    def _check_open(self) -> None:
        raise NotImplementedError

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        """The value and its version; (None, 0) if there is none or this transaction deleted it."""
        self._check_open()
        if self.beside is not None and key >= PRIVATE:
            return self.beside.get(key)
        mine = self._buffer.written(key)
        if mine is not None:
            return mine.value, 0
        if self._reads is not None:
            self._reads.add_key(key)
        with self._snapshot():
            return await self._client.reader.get(key, self.read_ts, self._budget_ms)

    async def multi_get(
        self, keys: Sequence[bytes], *, tally: Tally | None = None
    ) -> list[tuple[bytes, int] | None]:
        """Value and version of each key, None where there is none, in the order of `keys`: all of
        them private or none.
        """
        self._check_open()
        if self.beside is not None and keys and keys[0] >= PRIVATE:
            return [self.beside.find(key) for key in keys]
        if not self._buffer and self._reads is None:
            try:
                return await self._client.reader.multi_get(
                    keys, self.read_ts, self._budget_ms, tally
                )
            except SnapshotTooOld as gone:
                raise self._outlived(gone) from gone
        mine = [self._buffer.written(key) for key in keys]
        others = [key for key, op in zip(keys, mine, strict=True) if op is None]
        if self._reads is not None:
            for key in others:
                self._reads.add_key(key)
        with self._snapshot():
            stored = iter(
                await self._client.reader.multi_get(others, self.read_ts, self._budget_ms, tally)
                if others
                else ()
            )
        return [
            next(stored) if op is None else None if op.value is None else (op.value, 0)
            for op in mine
        ]

    async def scan(
        self,
        start: bytes,
        end: bytes,
        *,
        limit: int,
        reverse: bool = False,
        tally: Tally | None = None,
    ) -> ScanPage:
        """At most `limit` rows of `[start, end)`; go on with `resume` as the start (in reverse: the
        end).
        """
        self._check_open()
        if self.beside is not None and start >= PRIVATE:
            return await self.beside.scan(start, end, limit=limit, reverse=reverse)

        async def read(low: bytes, high: bytes, wanted: int) -> ScanPage:
            with self._snapshot():
                return await self._client.reader.scan(
                    low,
                    high,
                    self.read_ts,
                    limit=wanted,
                    reverse=reverse,
                    budget_ms=self._budget_ms,
                    tally=tally,
                )

        page = await merged(self._buffer, read, start, end, reverse=reverse, limit=limit)
        if self._reads is not None:
            low, high = start, end
            if page.resume is not None:
                low, high = (page.resume, end) if reverse else (start, page.resume)
            self._reads.add_range(low, high)
        return page

    async def scan_values(
        self, start: bytes, end: bytes, *, limit: int, tally: Tally | None = None
    ) -> tuple[list[bytes], bytes | None] | None:
        """The values of `scan` and its `resume`, for who reads much and needs no keys; None: it
        wrote something itself, so `scan` has to put both together.
        """
        self._check_open()
        if self.beside is not None and start >= PRIVATE:
            return self.beside.values(start, end, limit)
        if self._buffer:
            return None
        with self._snapshot():
            values, resume = await self._client.reader.scan_values(
                start, end, self.read_ts, limit=limit, budget_ms=self._budget_ms, tally=tally
            )
        if self._reads is not None:
            self._reads.add_range(start, end if resume is None else resume)
        return values, resume

    async def scan_sealed(
        self, start: bytes, end: bytes, *, limit: int
    ) -> tuple[bytes, bytes, bytes | None] | None:
        """The next records of `[start, end)` as they are stored: lengths, rows, and where to go on.
        Who asks looks at each himself whether it is intact and what this snapshot has, and reads
        the page again by `scan_values` where it is not. None: it has to be that at once, because
        an intent is in the way, or this transaction wrote something itself.
        """
        self._check_open()
        if self._buffer or (self.beside is not None and start >= PRIVATE):
            return None
        with self._snapshot():
            found = await self._client.reader.scan_sealed(
                start, end, self.read_ts, limit=limit, budget_ms=self._budget_ms
            )
        if found is not None and self._reads is not None:
            self._reads.add_range(start, end if found[2] is None else found[2])
        return found

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Who asked for a moment of the past gets an error that it is gone; a transaction may
        simply run again, on a new one.
        """
        try:
            yield
        except SnapshotTooOld as gone:
            raise self._outlived(gone) from gone

    def _outlived(self, gone: SnapshotTooOld) -> TxnAborted:
        return TxnAborted(
            f"transaction {self.start_ts} outlived what it reads: {gone.message}. Run it again",
            details={**gone.details, "txn": self.start_ts, "reason": "snapshot"},
        )


class Transaction(TxnReads):
    """Made by `TxnClient.begin`. Not for use by several tasks at once.

    As a context manager it commits at the end of the block and aborts when the block raises.
    """

    def __init__(
        self,
        client: Client,
        start_ts: int,
        *,
        ttl_ms: int,
        terms: Terms,
        recorded: bool,
        budget_ms: int,
        serializable: bool = False,
        renews: bool = False,
    ) -> None:
        assert not (serializable and renews)
        self.id = TxnId(start_ts)
        self.start_ts = self.read_ts = start_ts
        self.renews, self.lock_wait_ms = renews, terms.lock_wait_ms
        self._locks: RowLocks | None = None
        self.ttl_ms = ttl_ms
        self.terms = terms
        self.state = TxnState.OPEN
        self._client = client
        self._recorded = recorded
        self._budget_ms = budget_ms
        # a serializable one is committed with all that it read, from memory
        self._buffer = WriteBuffer(
            open_file=None if serializable else client.open_file, spill_bytes=client.spill_bytes
        )
        self._reads = ReadSet() if serializable else None  # everything it reads
        self._holds: ReadSet | None = None  # what it asked for, when not everything
        self._since = 0  # as of when the oldest range of these was read, if not at the beginning
        self._began = client.clock.monotonic()
        self._version = 0
        self._waiters: list[asyncio.Future[int]] = []  # of others who commit it at once
        self._trace: CommitTrace | None = None
        self._why = BY_OWNER
        self.beside: PrivateWrites | None = None

    # -- writes: into the buffer

    def put(self, key: bytes, value: bytes, *, cond: int | None = None, ttl_ms: int = 0) -> None:
        """`cond`: 0 = only if absent, v = only if its version is v. Raises InvalidArgument,
        TooLarge, ConditionFailed.
        """
        self.write(put(key, value, cond, ttl_ms))

    def put_rows(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, absent: bool = False
    ) -> None:
        """`put` of many; `absent`: each only if its key is. Raises what `put` does, and
        ConditionFailed may have buffered some of them.
        """
        self._check_open()
        self._of(keys).add_rows(keys, values, 0 if absent else None)

    def delete_rows(self, keys: Sequence[bytes], *, tombstone: bool = False) -> None:
        """`delete` of many. Raises what it raises, and may have buffered some of them."""
        self._check_open()
        self._of(keys).add_rows(keys, None, tombstone=tombstone)

    def change_rows(
        self, keys: Sequence[bytes], versions: Sequence[int], values: Sequence[bytes] | None
    ) -> None:
        """`computes_from` and `put` of many (None: `delete`). Raises what they raise, and may have
        buffered some of them.
        """
        self._check_open()
        conds = [version or None for version in versions] if self.renews else None
        self._of(keys).add_rows(keys, values, conds)

    def _of(self, keys: Sequence[bytes]) -> WriteBuffer | PrivateWrites:
        """Where these keys are written: all of them are private or none."""
        if self.beside is not None and keys and keys[0] >= PRIVATE:
            return self.beside
        return self._buffer

    def delete(self, key: bytes, *, cond: int | None = None, tombstone: bool = False) -> None:
        """Deleting what is not there is no error, and leaves nothing but with `tombstone`."""
        self.write(delete(key, cond, tombstone=tombstone))

    def check(self, key: bytes, version: int) -> None:
        """Commit only if the key still has `version` (0 = is absent) then."""
        self.write(check(key, version))

    def write(self, op: Op) -> None:
        """Buffer one op (`txn.buffered.write_buffer` says how several on one key combine)."""
        self._check_open()
        if self.beside is not None and op.key >= PRIVATE:
            self.beside.add(op)
        else:
            self._buffer.add(op)

    def view(self, *, bare: bool = False) -> View:
        """What it sees now, and will not see any more when it writes; `bare`: what it saw before
        its first write. To be ended.
        """
        view = View(self)
        if bare:
            view.end()
        else:
            view.part()
        return view

    def look(self) -> View:
        """What it sees, until the view parts from it. To be ended."""
        return View(self)

    # -- locks

    async def lock(
        self,
        keys: Sequence[bytes],
        *,
        wait_ms: int | None = None,
        strength: int = UPDATE,
        going: bool = False,
    ) -> list[int]:
        self._check_open()
        if not keys:
            return []
        if self.beside is not None and max(keys) >= PRIVATE:  # nobody else can change those
            others = [key for key in keys if key < PRIVATE]
            locked = iter(await self.lock(others, wait_ms=wait_ms, strength=strength, going=going))
            own = iter(self.beside.versions([key for key in keys if key >= PRIVATE]))
            return [next(own if key >= PRIVATE else locked) for key in keys]
        locks = self._row_locks()
        return await locks.lay(keys, self._patience(wait_ms), strength=strength, going=going)

    async def lock_present(
        self, key: bytes, *, wait_ms: int | None = None, strength: int = UPDATE
    ) -> tuple[bytes, int] | None:
        assert self.renews
        self._check_open()
        if self.beside is not None and key >= PRIVATE:
            return self.beside.find(key)
        locks = self._row_locks()
        if locks.holds(key, strength):
            return (await self.newest([key]))[0]
        found = await locks.lay_present(key, self._patience(wait_ms), strength=strength)
        if found is not None or (await self.newest([key]))[0] is None:
            return found
        # A version that is committed and still an intent: who locks what is present steps over it.
        values: dict[bytes, bytes | None] = {}
        (version,) = await locks.lay([key], self._patience(wait_ms), values, strength=strength)
        value = values[key]
        return None if value is None else (value, version)

    def shares(self, key: bytes) -> bool:
        """Whether a shared lock keeps what is at the key until the end."""
        return self._locks is not None and self._locks.shares(key)

    async def lock_key(
        self, key: bytes, *, wait_ms: int | None = None, strength: int = UPDATE
    ) -> tuple[bytes | None, int]:
        """Lock a key, whether it is there or not, and what it has by now, as `get` answers. Raises
        as `lock`.
        """
        self._check_open()
        if self.beside is not None and key >= PRIVATE:
            return self.beside.get(key)
        locks, values = self._row_locks(), dict[bytes, bytes | None]()
        held = locks.holds(key, strength)
        (version,) = await locks.lay([key], self._patience(wait_ms), values, strength=strength)
        if (mine := self._buffer.written(key)) is not None:
            return mine.value, 0
        if not held and strength != KEY_SHARE:
            return values[key], version
        # Who shares a key with those who write other values there passes their intents.
        value, version = (await self.newest([key]))[0] or (None, 0)
        if version > self.start_ts and not self.renews:
            raise write_conflict(key, version, self.start_ts)
        return value, version

    def _patience(self, wait_ms: int | None) -> int:
        if wait_ms is None:
            wait_ms = self.lock_wait_ms
        return self._budget_ms if wait_ms is None else wait_ms

    def _row_locks(self) -> RowLocks:
        if self._locks is None:
            self._locks = RowLocks(
                self._client.coordinator.shared,
                self.start_ts,
                ttl_ms=self.ttl_ms,
                terms=self.terms,
                blind=self.renews,
            )
        self._locks.beside = self._buffer.marked
        return self._locks

    def computes_from(self, key: bytes, version: int) -> None:
        """What is written to this key is computed from its version; the snapshot of a transaction
        that renews it does not say that. 0: from what it wrote itself.
        """
        if self.renews and version:
            self.check(key, version)

    async def renew(self) -> None:
        self._check_open()
        assert self.renews
        self.read_ts = await self._client.reader.now()

    def wait(self, terms: Terms) -> None:
        """How it waits for others from now on."""
        self.terms, self.lock_wait_ms = terms, terms.lock_wait_ms

    @property
    def locked(self) -> int:
        """How many keys it has locked."""
        return 0 if self._locks is None else self._locks.count

    def creates(self, key: bytes) -> bool:
        """Whether it writes this key on condition that it is absent; also when it is over."""
        if self._buffer.spilled:
            return False
        op = self._buffer.written(key)
        return op is not None and op.cond == 0

    # -- reads that must hold, of a transaction that is not serializable as a whole

    def hold_key(self, key: bytes) -> None:
        """Commit only if nobody wrote this key since the snapshot. Raises TooLarge."""
        if key < PRIVATE:
            self._held().add_key(key)

    def hold_range(self, start: bytes, end: bytes) -> None:
        """The same of all keys of `[start, end)`, those too that are not there. What renews its
        snapshot has read them as of the one that it has now.
        """
        if start >= PRIVATE:
            return
        self._held().add_range(start, end)
        if self.renews:
            self._since = min(self._since or self.read_ts, self.read_ts)

    def _held(self) -> ReadSet:
        self._check_open()
        if self._reads is not None:
            return self._reads
        if self._holds is None:
            self._buffer.keep_in_memory()  # as a serializable one's
            self._holds = ReadSet()
        return self._holds

    @property
    def spilled(self) -> bool:
        """Whether its commit is streamed (txn/bulk/spilled_commit), because its writes are in a
        file or many: then nothing can be held but by `check`.
        """
        if self._buffer.spilled:
            return True
        if self._recorded or self._reads is not None or self._holds is not None:
            return False
        return len(self._buffer) >= TXN_STREAM_KEYS_MIN

    @property
    def memory_bytes(self) -> int:
        """What its writes take of this process's memory."""
        beside = 0 if self.beside is None else self.beside.memory_bytes
        return self._buffer.memory_bytes + beside

    def give_back(self, lent: WriteBuffer) -> None:
        """A View's buffer is not read any more."""
        self._buffer.give_back(lent)

    def commit_within(self, ms: int) -> None:
        """The commit has this deadline, if it had a later one. One that is spilled has its own."""
        self._budget_ms = min(self._budget_ms, ms)

    # -- savepoints: of the writes, and of what was asked to hold; what a serializable one has read
    # it has read

    def mark(self) -> Mark:
        """A savepoint: `undo_to` comes back here. While there is one, writes stay in memory."""
        self._check_open()
        return Mark(
            self._buffer.mark(),
            None if self._holds is None else self._holds.mark(),
            0 if self._locks is None else self._locks.count,
        )

    def undo_to(self, mark: Mark) -> None:
        """Take back all writes and holds since `mark`; it stays valid, later ones do not."""
        self._check_open()
        self._buffer.undo_to(mark.writes)
        if mark.holds is None:
            self._holds = None
        elif self._holds is not None:
            self._holds.undo_to(mark.holds)

    async def unlock_to(self, mark: Mark) -> None:
        """End the locks since `mark`, after `undo_to` has taken back what was written under them:
        others may have those rows.
        """
        if self._locks is not None:
            await self._locks.undo_to(mark.locks, budget_ms=self._budget_ms)

    def has_locked(self, key: bytes) -> bool:
        """Whether it holds a lock of any strength there."""
        return self._locks is not None and self._locks.has(key)

    async def unlock(self, keys: Sequence[bytes]) -> None:
        """End these locks: what they kept from changing was only waited for."""
        if self._locks is not None and keys:
            await self._locks.give_up(keys, budget_ms=self._budget_ms)

    def forget_marks(self) -> None:
        self._check_open()
        self._buffer.forget_marks()

    # -- the end

    async def commit(self) -> int:
        """The version of all writes (start_ts if there are none). After an error the transaction is
        over.

        Raises WriteConflict, ConditionFailed, KeyLocked, TxnAborted, DeadlineExceeded: nothing was
        written. UnknownOutcome: ask `TxnClient.status(id)`. Committing twice answers the same
        version, and two who commit it at once get the same answer.
        """
        if self.state is TxnState.COMMITTED:
            return self._version
        if self.state is TxnState.COMMITTING:
            answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiters.append(answered)
            return await answered
        self._check_open()
        await self._check_beside()
        if not self._buffer and not self._recorded:
            self._let_go()
            self._version = self.start_ts
            await self._end(TxnState.COMMITTED)
            return self._version
        age_ms = round((self._client.clock.monotonic() - self._began) * 1000)
        if age_ms > TXN_LIFETIME_MS_MAX:
            self.state = TxnState.ABORTED
            raise too_old(self.start_ts, age_ms)
        self.state = TxnState.COMMITTING
        outcome = (
            TxnState.UNKNOWN
        )  # also when the caller is cancelled: the coordinator goes on alone
        error: KvorumError | None = None
        try:
            self._version = await self._send()
            outcome = TxnState.COMMITTED
        except UnknownOutcome as unknown:
            error = unknown
            raise
        except KvorumError as refused:
            error = refused
            self._let_go()
            self._why, outcome = f"its commit failed: {refused}", TxnState.ABORTED
            if self._recorded:  # a refused entry leaves no record by itself
                with suppress(KvorumError):
                    await self._record_abort()
            raise
        finally:
            await self._end(outcome)
            self._answer_waiters(error)
        return self._version

    async def _check_beside(self) -> None:
        """What its owner has for itself has to be as the writes want it. Raises ConditionFailed."""
        if self.beside is not None:
            try:
                await self.beside.check()
            except ConditionFailed:
                await self.abort("its commit failed")
                raise

    async def _end(self, outcome: TxnState) -> None:
        """What its owner has for itself goes the way of the rest."""
        self.state = outcome
        if self.beside is not None and outcome is TxnState.COMMITTED:
            await self.beside.commit(self._version)
        elif self.beside is not None and outcome is TxnState.UNKNOWN:
            self.beside.lose()

    async def _send(self) -> int:
        """Commit what is buffered; the version."""
        client, locks = self._client, self._locks
        if locks is not None:
            locks.stop()
            locks.check()
        if self.spilled:
            version = await client.commit_large(
                self.start_ts, self._buffer, self.terms, locks=locks, checked=not self.renews
            )
            self._sweep(version)
            return version
        given = ops = self._buffer.ops()
        if locks is not None:
            ops = locks.conditions(ops)
        elif len(ops) > FEW_OPS and ops[-1].kind != OP_CHECK and not self._recorded:
            # rows, perhaps; a recorded one's anchor is known to others
            ops = sorted(ops, key=_key_of)
        also: frozenset[bytes] = frozenset()
        held = self._reads if self._reads is not None else self._holds
        shared = [] if locks is None else locks.shared
        if shared:
            held = ReadSet() if held is None else held
            for at in shared:
                held.add_key(at)
        if ops and held is not None:
            reads, also = held.ops({op.key for op in ops})
            ops = ops + reads
        request = Request(
            self.start_ts,
            ops or [check(STATUS_ONLY_KEY, 0)],
            self.ttl_ms,
            flags=BLIND if self.renews else 0,
            terms=self.terms,
            serializable=held is not None,
            also_read=also,
            locked=locks is not None,
            shared=bool(shared) and self._reads is None,
            beaten=locks is not None and locks.beaten,
            since=self._since,
        )
        self._trace = CommitTrace(client.timers.monotonic)
        try:
            version = await client.coordinator.commit(request, self._budget_ms, self._trace)
            self._sweep(version)
            return version
        except ConditionFailed as error:
            if locks is not None and locks.implied(error, given):
                raise write_conflict(
                    error.details["key"], int(error.details["version"] or 0), self.start_ts
                ) from error
            if ops is not given:  # it is reported by its place as it was given
                key = error.details.get("key")
                renumber(error, next((i for i, op in enumerate(given) if op.key == key), None))
            raise

    def _sweep(self, version: int) -> None:
        """It is committed; what may be locked that is not known to be, goes."""
        if self._locks is not None and self._locks.unsure:
            self._in_background(self._locks.remove(version, budget_ms=self._budget_ms))

    def _answer_waiters(self, error: KvorumError | None) -> None:
        """The others who commit it, too, get the answer of the first one."""
        if self.state is TxnState.UNKNOWN and error is None:  # the first one went away
            error = self._unanswered()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(self._version)
            else:
                waiter.set_exception(error)

    def trace(self) -> CommitTrace | None:
        """What its commit cost, message by message; None before it, and if nothing was sent."""
        return self._trace

    async def abort(self, why: str = BY_OWNER) -> None:
        """Drop the writes. Nothing left this client yet, so nothing has to be undone; a `recorded`
        transaction leaves a record that says so. Once is enough, again changes nothing.
        """
        if self.state is not TxnState.OPEN:
            return
        self.state, self._why = TxnState.ABORTED, why
        anchor = self._anchor()
        self._buffer.close()
        if self._locks is not None:
            await self._locks.release(budget_ms=self._budget_ms)
        elif self._recorded:
            await self._record_abort(anchor)

    def _let_go(self) -> None:
        """It is over, and wrote nothing: its locks go."""
        if self._locks is not None:
            self._locks.stop()
            self._in_background(self._locks.release(budget_ms=self._budget_ms))

    def _in_background(self, work: Coroutine[object, None, None]) -> None:
        self._client.coordinator.shared.background.spawn(work, f"locks-{self.start_ts}")

    def _anchor(self) -> bytes:
        """Where its record lies."""
        if self._locks is not None and self._locks.anchor:
            return self._locks.anchor
        if self._buffer.spilled:
            return anchor_of(self._buffer).key
        ops = self._buffer.ops()
        return ops[0].key if ops else STATUS_ONLY_KEY

    async def _record_abort(self, anchor: bytes = b"") -> None:
        if not anchor and self._buffer.spilled:
            return  # its commit has recorded it
        await self._client.coordinator.roll_back(
            anchor or self._anchor(), self.start_ts, self._budget_ms
        )

    async def heartbeat(self) -> None:
        """Say that the owner is still there. Raises TxnAborted if the transaction is over.

        Before the commit only sessions (txn/sessions) care; during it the coordinator sends its
        own.
        """
        self._check_open()

    def _check_open(self) -> None:
        match self.state:
            case TxnState.OPEN:
                if self._locks is not None:
                    self._locks.check()
            case TxnState.COMMITTED:
                raise is_committed(self.id, self._version)
            case TxnState.COMMITTING | TxnState.UNKNOWN:
                raise self._unanswered()
            case TxnState.ABORTED:
                raise is_over(self.id, self._why)

    def _unanswered(self) -> UnknownOutcome:
        return UnknownOutcome(
            f"the commit of transaction {self.id} was not answered; ask for its status",
            details={"txn": self.id},
        )

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self.state is TxnState.OPEN:
            await self.commit()
            return
        with suppress(KvorumError):  # the block's own error is the one to see
            await self.abort()


class View(TxnReads):
    """What a transaction saw at one moment, whatever it writes later: cursors read it.

    It does not know when its transaction is over: whoever made it ends it before, or, if nothing
    was written, may go on with the snapshot.
    """

    __slots__ = (
        "_budget_ms",
        "_buffer",
        "_client",
        "_of",
        "_reads",
        "beside",
        "lock_wait_ms",
        "read_ts",
        "renews",
        "start_ts",
    )

    def __init__(self, of: Transaction) -> None:
        self._of = of
        self.start_ts, self.read_ts = of.start_ts, of.read_ts
        self.renews, self.lock_wait_ms = of.renews, of.lock_wait_ms
        self._client, self._reads, self._budget_ms = of._client, of._reads, of._budget_ms
        self._buffer = of._buffer
        self.beside = of.beside

    def hold_key(self, key: bytes) -> None:
        self._of.hold_key(key)

    async def lock(
        self,
        keys: Sequence[bytes],
        *,
        wait_ms: int | None = None,
        strength: int = UPDATE,
        going: bool = False,
    ) -> list[int]:
        return await self._of.lock(keys, wait_ms=wait_ms, strength=strength, going=going)

    async def lock_present(
        self, key: bytes, *, wait_ms: int | None = None, strength: int = UPDATE
    ) -> tuple[bytes, int] | None:
        return await self._of.lock_present(key, wait_ms=wait_ms, strength=strength)

    async def renew(self) -> None:
        await self._of.renew()
        self.read_ts = self._of.read_ts

    def _check_open(self) -> None:
        pass

    def part(self) -> None:
        """What is written from now on is not seen; fine twice."""
        if self._buffer is self._of._buffer:
            self._buffer = self._buffer.lend() if self._buffer else _UNWRITTEN
        if self.beside is not None and self.beside is self._of.beside:
            self.beside = self.beside.lent()

    def end(self) -> None:
        """It is not read any more; fine twice."""
        buffer, self._buffer = self._buffer, _UNWRITTEN
        if buffer is not _UNWRITTEN and buffer is not self._of._buffer:
            self._of.give_back(buffer)
        beside, mine = self.beside, self._of.beside
        if beside is not None and mine is not None:
            if beside is not mine:
                mine.give_back(beside)
            self.beside = mine.bare()


_UNWRITTEN: Final = WriteBuffer()  # never changed
