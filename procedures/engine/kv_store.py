"""Procedures in the KV store. All rows are in the meta partition, so that a step without writes of
its own is one request and one log entry (1PC); a step that writes elsewhere is a distributed
transaction.

    PROCEDURES       [id u64]                     → record (records.py)
    PROCEDURE_STEPS  [id u64][sequence u32]       → PROCEDURE_HISTORY_CHUNK entries from that one on
    NONCES           esc(owner) esc(nonce)        → [id u64]
    RUNNABLE         01 [id u64]                  → nothing     it has not ended
    RUNNABLE         02 [due ms u64][id u64]      → nothing     forget it then
    COUNTERS         esc("procedure")             → [u64]
    LOCKS            who holds which resource (grants.py)

A step writes one row, its record. RUNNABLE changes only when a procedure begins and ends: what a
waiting one waits for is in its record, and a restart reads the records of what is live.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from msgspec import structs

from kv.base import limits, system
from kv.base.errors import (
    Busy,
    ConditionFailed,
    Corruption,
    Forbidden,
    KeyLocked,
    TooLarge,
    Unavailable,
    WriteConflict,
)
from kv.base.intents import Abandoned
from kv.base.keys import escape, escape_open, from_u64, table_prefix, u32, u64, unescape
from kv.base.ops import Op, check, delete, put
from procedures.engine import records, search_rows
from procedures.engine.attributes import index_ops
from procedures.engine.core import Change
from procedures.engine.counters import Counter
from procedures.engine.grants import REIGN, deposed, drop_ops, grant_ops, held_by
from procedures.engine.memory_store import same_procedure
from procedures.engine.records import Entry, Record
from procedures.engine.resources import Locks
from procedures.engine.store import (
    NOT_HELD,
    Broken,
    Fenced,
    Page,
    Reads,
    Row,
    Stored,
    kept_rows,
    outdated,
)
from procedures.pools import rows
from procedures.pools.inbox import told
from txn.client import TxnClient
from txn.results import ScanPage
from txn.shared.deadlines import Deadline
from txn.shared.wait_terms import HIGH, Terms
from txn.transaction import Transaction

_RECORDS: Final = table_prefix(system.PROCEDURES)
_STEPS: Final = table_prefix(system.PROCEDURE_STEPS)
_NONCES: Final = table_prefix(system.NONCES)
_LIVE: Final = table_prefix(system.RUNNABLE) + b"\x01"
_DUE: Final = table_prefix(system.RUNNABLE) + b"\x02"
_ID_MAX: Final = (1 << 64) - 1
_RACES: Final = 10
_READ_CHUNK: Final = 100
_FORGET_CHUNK: Final = 1_000
_TERMS: Final = Terms(owner="procedure")
_REIGN_TERMS: Final = Terms(owner="master", priority=HIGH, lock_wait_ms=limits.WAIT_PUSH_MS)


class KvReads:
    """The snapshot of a step: a transaction that is committed with the step, or dropped."""

    __slots__ = ("transaction",)

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    @property
    def start_ts(self) -> int:
        return self.transaction.start_ts

    async def get(self, key: bytes) -> Row | None:
        value, version = await self.transaction.get(key)
        return None if value is None else Row(value, version)

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        found = await self.transaction.multi_get(keys)
        return [None if row is None else Row(*row) for row in found]

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage:
        return await self.transaction.scan(start, end, limit=limit, reverse=reverse)

    async def close(self) -> None:
        await self.transaction.abort()


class KvStore:
    """A ProcedureStore over the transaction client."""

    finds: bool = True

    def __init__(self, txn: TxnClient) -> None:
        self._txn = txn
        self._ids = Counter(txn, "procedure")

    async def take_ids(self, count: int) -> int:
        return await self._ids.take(count)

    async def reign(self) -> int:
        """Whoever holds the reign's row checks an earlier reign, so it is deposed whatever becomes
        of it: it is not waited for longer than a living one needs, but ended. What has committed by
        then is read by the new reign, what has not never will (docs/decisions/0422).
        """
        deadline = Deadline(self._txn.timers, limits.DEADLINE_MS_DEFAULT)
        while True:
            transaction = await self._txn.begin(terms=_REIGN_TERMS, budget_ms=deadline.budget_ms())
            transaction.write(put(REIGN, b""))
            try:
                return await transaction.commit()
            except WriteConflict:  # another reign began meanwhile: the last one holds
                if deadline.passed:
                    raise
            except KeyLocked as met:
                if deadline.passed:
                    raise
                await self._end_earlier(met, deadline)

    async def _end_earlier(self, met: KeyLocked, deadline: Deadline) -> None:
        """End the transaction in whose way the new reign is. One that may be committed by its
        intents alone keeps them for a moment more; then the next look ends it.
        """
        details = met.details
        keys = list(details.get("keys") or [details["key"]])
        holder = Abandoned(
            details["txn"], details["anchor"], details["ttl_ms"], keys, details.get("user", "")
        )
        with suppress(Unavailable):  # looked for again, and whoever looks after waits does, too
            await self._txn.resolver.end(holder, budget_ms=deadline.budget_ms())

    async def held_by(self, holders: Collection[int]) -> dict[int, Locks]:
        return await held_by(self._txn, holders)

    async def insert(self, record: Record, reign: int = 0, ops: Sequence[Op] = ()) -> Stored | int:
        own = [put(_record(record.id), records.encode(record), cond=0), put(_live(record.id), b"")]
        if record.nonce:
            own.append(put(_nonce(record.owner, record.nonce), u64(record.id), cond=0))
        if reign:
            own += grant_ops(record, reign)
        own += [*index_ops(record.id, record.created_ms, (), record.attributes), *ops]
        for _ in range(_RACES):
            try:
                version = await self._txn.write(own)
                return Stored(record.settled(version), version)
            except ConditionFailed as error:
                if error.details.get("key") == REIGN:
                    raise deposed() from error
                earlier = await self._earlier(record)
                if earlier is None and any(op.key == error.details.get("key") for op in ops):
                    raise
            if earlier is not None:
                return earlier
        raise Busy(
            f"nonce {record.nonce!r:.80}: its procedure comes and goes; submit again",
            details={"what": "attempts", "limit": _RACES, "actual": _RACES},
        )

    async def start(
        self, change: Change, *, ops: Sequence[Op] = (), reads: Reads | None = None
    ) -> int:
        record = change.record
        own = _ops(0, change, 0)  # version 0: its row is absent
        if not record.ended:
            own.append(put(_live(record.id), b""))
        if record.nonce:
            own.append(put(_nonce(record.owner, record.nonce), u64(record.id), cond=0))
        try:
            return await self._write([*own, *ops], record.id, reads)
        except ConditionFailed as error:
            if any(op.key == error.details.get("key") for op in own):
                raise Fenced from error
            raise

    async def _earlier(self, record: Record) -> Stored | int | None:
        """What stands in the way of an insert; None when it has just gone."""
        mine = await self.load(record.id)
        if mine is not None:
            return mine  # repeated after an unknown outcome
        known = await self.find_nonce(record.owner, record.nonce)
        stored = await self.load(known) if known is not None else None
        return same_procedure(stored.record.id, stored.record.name, record) if stored else None

    async def beat(self, id: int, version: int, data: bytes) -> None:
        try:
            await self._txn.write([check(_record(id), version), put(rows.heartbeat(id), data)])
        except ConditionFailed as error:
            raise Fenced from error
        except Forbidden as error:
            if error.code == NOT_HELD:
                raise Fenced from error
            raise

    async def load(self, id: int, at: int = 0) -> Stored | None:
        """`at`: as it was then. Raises SnapshotTooOld."""
        value, version = await self._txn.get(_record(id), at)
        return None if value is None else _stored(id, value, version)

    async def load_range(self, first: int, count: int) -> list[Stored]:
        found: list[Stored] = []
        start, end = _record(first), _record(first + count)
        while True:
            page = await self._txn.scan(start, end, limit=limits.PROCEDURE_PAGE_MAX)
            found += [_stored(_id_of(key), value, version) for key, value, version in page.items]
            if page.resume is None:
                return found
            start = page.resume

    async def _begin(self) -> Transaction:
        # its intents live only while the step commits; after a crash the same step meets them
        return await self._txn.begin(ttl_ms=limits.PROCEDURE_TXN_TTL_MS, terms=_TERMS)

    async def load_many(self, ids: Sequence[int]) -> list[Stored]:
        async with aclosing(self._many(ids)) as rows:
            return [_stored(*row) async for row in rows]

    async def reads(self) -> Reads:
        return KvReads(await self._begin())

    async def update(
        self,
        version: int,
        change: Change,
        *,
        ops: Sequence[Op] = (),
        reads: Reads | None = None,
        revived_version: int = 0,
    ) -> int:
        all_ops = [*_ops(version, change, revived_version), *ops]
        try:
            return await self._write(all_ops, change.record.id, reads, change.until_ms)
        except ConditionFailed as error:
            if error.details.get("key") == REIGN:
                raise deposed() from error
            revived = change.revived
            if await self._moved(change.record.id, version) or (
                revived is not None and await self._moved(revived.id, revived_version)
            ):
                raise Fenced from error
            for other_version, other in change.others:
                if await self._moved(other.record.id, other_version):
                    raise Fenced from error
            raise  # a condition of the step's own writes
        except Forbidden as error:
            if error.code == NOT_HELD:
                raise Fenced from error
            raise

    async def _write(
        self, ops: Sequence[Op], id: int, reads: Reads | None, until_ms: int = 0
    ) -> int:
        """All of it in one transaction, that of the snapshot if there is one; its version."""
        if not isinstance(reads, KvReads) and not until_ms and _one_batch(ops):
            return await self._txn.write(ops)
        transaction = reads.transaction if isinstance(reads, KvReads) else await self._begin()
        wait_ms = None
        if until_ms:
            wait_ms = min(max(0, until_ms - self._txn.clock.now_ms()), limits.DEADLINE_MS_MAX)
        transaction.terms = Terms(owner=waiter(id), lock_wait_ms=wait_ms)
        for op in ops:
            transaction.write(op)
        return await transaction.commit()

    async def _moved(self, id: int, version: int) -> bool:
        try:
            return (await self._txn.get(_record(id)))[1] != version
        except Forbidden as error:
            if error.code == NOT_HELD:
                return True
            raise

    async def remove(self, stored: Sequence[Stored]) -> None:
        old = [delete(key) for one in stored for key in _history_keys(one.record)]
        for one in stored:
            old += [delete(key) async for key in self._older_rows(one.record)]
        for at in range(0, len(old), _FORGET_CHUNK):
            await self._txn.write(old[at : at + _FORGET_CHUNK])
        ops = []
        for record, version in stored:
            ops.append(delete(_record(record.id), cond=version))
            if not record.parent:
                ops.append(delete(_due(record)))
            if record.nonce:
                ops.append(delete(_nonce(record.owner, record.nonce)))
            ops += search_rows.forget_ops(record)
        try:
            await self._txn.write(ops)
        except ConditionFailed as error:
            raise Fenced from error

    async def keep(self, stored: Stored, retention_ms: int) -> None:
        record, version = stored
        longer = structs.replace(record, retention_ms=retention_ms)
        ops = [
            put(_record(record.id), records.encode(longer), cond=version),
            delete(_due(record)),
            put(_due(longer), b""),
        ]
        try:
            await self._txn.write(ops)
        except ConditionFailed as error:
            raise Fenced from error

    async def _older_rows(self, record: Record) -> AsyncIterator[bytes]:
        """Those of its history that a version which kept all of it has left."""
        start: bytes | None = _steps(record.id, 0)
        end = _steps(record.id, kept_rows(record).start)
        while start is not None and start < end:
            page = await self._txn.scan(start, end, limit=_FORGET_CHUNK)
            for key, _, _ in page.items:
                yield key
            start = page.resume

    async def live(self, after: int, limit: int) -> Page:
        page = await self._txn.scan(_live(after + 1), _DUE, limit=limit)
        ids = [from_u64(key, len(_LIVE)) for key, _, _ in page.items]
        found: list[Stored] = []
        broken: list[Broken] = []
        size = 0
        async with aclosing(self._many(ids)) as rows:
            async for id, value, version in rows:
                try:
                    stored = _stored(id, value, version)
                except Corruption as error:
                    broken.append(Broken(id, error.message))
                    continue
                if not stored.record.ended:
                    found.append(stored)
                size += len(value)
                if size >= limits.SCAN_PAGE_BYTES_MAX:
                    return Page(found, broken, id)
        return Page(found, broken, ids[-1] if page.resume is not None else None)

    async def live_ids(self, after: int, limit: int) -> list[int]:
        page = await self._txn.scan(_live(after + 1), _DUE, limit=limit)
        return [from_u64(key, len(_LIVE)) for key, _, _ in page.items]

    async def _many(self, ids: Sequence[int]) -> AsyncGenerator[tuple[int, bytes, int], None]:
        """(id, record, version) of those that are there still; one by one where several do not fit
        a reply.
        """
        for at in range(0, len(ids), _READ_CHUNK):
            chunk = ids[at : at + _READ_CHUNK]
            try:
                rows, _ = await self._txn.multi_get([_record(id) for id in chunk])
            except TooLarge:
                for id in chunk:
                    value, version = await self._txn.get(_record(id))
                    if value is not None:
                        yield id, value, version
                continue
            for id, row in zip(chunk, rows, strict=True):
                if row is not None:
                    yield id, *row

    async def expired(self, now_ms: int, limit: int) -> tuple[list[int], int]:
        later = _DUE + u64(now_ms + 1)
        page = await self._txn.scan(_DUE, later, limit=limit)
        ids = [from_u64(key, len(_DUE) + 8) for key, _, _ in page.items]
        if ids:
            return ids, now_ms  # look again: there may be more
        ahead = await self._txn.scan(later, _DUE + b"\xff" * 17, limit=1)
        return [], from_u64(ahead.items[0][0], len(_DUE)) if ahead.items else 0

    async def find_nonce(self, owner: str, nonce: str) -> int | None:
        value, _ = await self._txn.get(_nonce(owner, nonce))
        return None if value is None else from_u64(value)

    async def newest(self, before: int, limit: int, at: int = 0) -> list[Stored]:
        """`at`: those that there were then. Raises SnapshotTooOld."""
        end = _record(before or _ID_MAX)
        page = await self._txn.scan(_RECORDS, end, limit=limit, reverse=True, at=at)
        return [_stored(_id_of(key), value, version) for key, value, version in page.items]

    async def kept(self, id: int, at: int) -> list[tuple[bytes, bytes, int]]:
        """Key, value and version of the signals, completions and heartbeats that it had then.
        Raises TooLarge, SnapshotTooOld.
        """
        found: list[tuple[bytes, bytes, int]] = []
        size = 0
        for start, end in rows.read_by(id):
            resume: bytes | None = start
            while resume is not None:
                page = await self._txn.scan(resume, end, limit=limits.PROCEDURE_PAGE_MAX, at=at)
                found.extend(page.items)
                size += sum(len(value) for _, value, _ in page.items)
                if size > limits.PROCEDURE_STATE_BYTES_MAX:
                    most = limits.PROCEDURE_STATE_BYTES_MAX
                    raise TooLarge(
                        f"procedure {id} had more than {most} bytes of signals then: it cannot be "
                        "replayed",
                        details={"what": "bytes of signals", "limit": most, "actual": size},
                    )
                resume = page.resume
        return found

    async def history(self, record: Record, limit: int, at: int = 0) -> list[Entry]:
        chunks = -(-max(0, limit - len(record.history)) // limits.PROCEDURE_HISTORY_CHUNK)
        keys = list(_history_keys(record))[-chunks:] if chunks else []
        old: list[Entry] = []
        for row in (await self._txn.multi_get(keys, at))[0] if keys else ():
            if row is not None:  # else it is being forgotten
                old += records.decode_entries(row[0], f"steps of procedure {record.id}")
        return [*old, *record.history][-limit:]


def waiter(id: int) -> str:
    """How a procedure's commit is called where it waits for somebody else's key."""
    return f"procedure {id}"


def _record(id: int) -> bytes:
    return _RECORDS + u64(id)


def _id_of(key: bytes) -> int:
    return from_u64(key, len(_RECORDS))


def record_key(id: int) -> bytes:
    return _record(id)


def live_key(id: int) -> bytes:
    return _live(id)


def due_key(record: Record) -> bytes:
    """When a record that has ended is forgotten."""
    return _due(record)


def forget_ops(record: Record, version: int) -> list[Op]:
    """Nothing is left of a record that has ended."""
    ops = [delete(_record(record.id), cond=version), delete(_due(record))]
    ops += [delete(key) for key in _history_keys(record)]
    ops += search_rows.forget_ops(record)
    return [*ops, delete(_nonce(record.owner, record.nonce))] if record.nonce else ops


def id_in(key: bytes) -> int:
    """The id of the procedure whose record is in this row; 0: it is no record."""
    return _id_of(key) if key.startswith(_RECORDS) else 0


def _live(id: int) -> bytes:
    return _LIVE + u64(id)


def _due(record: Record) -> bytes:
    return _DUE + u64(record.updated_ms + record.retention_ms) + u64(record.id)


def _nonce(owner: str, nonce: str) -> bytes:
    return _NONCES + escape(owner.encode()) + escape(nonce.encode())


def nonces_from(owner: str, beginning: str) -> bytes:
    """The prefix of the rows of all nonces of `owner` that begin so."""
    return _NONCES + escape(owner.encode()) + escape_open(beginning.encode())


def nonce_of(row: bytes) -> str:
    return unescape(row, unescape(row, len(_NONCES))[1])[0].decode()


def _history_keys(record: Record) -> Iterator[bytes]:
    for first in kept_rows(record):
        yield _steps(record.id, first)


def _steps(id: int, first: int) -> bytes:
    return _STEPS + u64(id) + u32(first)


def _stored(id: int, value: bytes, version: int) -> Stored:
    return Stored(records.decode(value, f"procedure {id}").settled(version), version)


def _ops(version: int, change: Change, revived_version: int) -> list[Op]:
    """The system's rows of one change; the record and its fence come first."""
    record = change.record
    ops = [put(_record(record.id), records.encode(record), cond=version)]
    if record.ended:
        ops.append(delete(_live(record.id)))
        if not record.parent:
            ops.append(put(_due(record), b""))
        ops += told(record)
        ops += search_rows.ended_ops(record)
    if change.reopened is not None:
        ops += [put(_live(record.id), b""), delete(_due(change.reopened))]
        ops += search_rows.goes_on_ops(change.reopened)
    for child in change.created:
        ops.append(put(_record(child.id), records.encode(child), cond=0))
        ops.append(put(_live(child.id), b""))
        ops += index_ops(child.id, child.created_ms, (), child.attributes)
    revived = change.revived
    if revived is not None:
        ops.append(put(_record(revived.id), records.encode(revived), cond=revived_version))
        if not revived.ended:
            ops.append(put(_live(revived.id), b""))
        ops += search_rows.goes_on_ops(change.revived_from)
        ops += search_rows.ended_ops(revived)
    if change.reign:
        ops += grant_ops(record, change.reign)
    elif change.drops:
        ops += drop_ops(record)
    if change.spill is not None:
        first, entries = change.spill
        key = _steps(record.id, first)
        ops.append(put(key, records.encode_entries(entries)))
        if (gone := outdated(first)) is not None:
            ops.append(delete(_steps(record.id, gone)))
    for other_version, other in change.others:
        ops += _ops(other_version, other, 0)
    return ops


def _one_batch(ops: Sequence[Op]) -> bool:
    """Whether `write` takes them at once; more go through a transaction."""
    if len(ops) > limits.BATCH_OPS_MAX:
        return False
    if len(ops) <= 4 and all(op.value is None or len(op.value) < limits.MiB for op in ops):
        return True
    size = sum(len(op.key) + (len(op.value) if op.value is not None else 0) for op in ops)
    return size <= limits.BATCH_BYTES_MAX
