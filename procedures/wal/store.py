"""A procedure store in a directory of logs, for programs without a cluster (L1).

What is true now is in memory (image.py) and changes in one synchronous step with the append to the
log; so the order of the log is the order of all decisions, and every later decision sees what is
still on its way to the disk. Nobody hears of anything before it is durable: a change returns when
its sync has ended, and a read waits for the records that it saw. A step's snapshot is taken at what
is durable, so it need not wait.

The version of a record or row is the number of the log record that wrote it: it rises for ever, so
it serves as fencing token, too. One process has the directory (its lock); a second executor over
the same store in this process is fenced by versions and by its reign, as with the other stores.

What a step may write besides: rows of this store (`ctx.txn`, raw keys and tables by name), which
are all in memory and at most WAL_ROWS_BYTES_MAX together. Refused with NOT_OFFERED: rows that
expire (`ttl_ms`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kv.base import limits, system
from kv.base.errors import (
    ConditionFailed,
    Corruption,
    InvalidArgument,
    Refused,
    TooLarge,
    Unavailable,
)
from kv.base.keys import table_prefix, u32, u64
from kv.base.methods import OP_CHECK
from kv.base.ops import Op, delete, put
from kv.base.ports import Clock, Rng, Timers
from procedures.engine import records
from procedures.engine.core import Change
from procedures.engine.grants import REIGN, deposed, drop_ops, grant_ops, held_by
from procedures.engine.memory_store import same_procedure
from procedures.engine.records import Entry, Record
from procedures.engine.resources import Locks
from procedures.engine.store import Broken, Fenced, Page, Reads, Stored, kept_rows, outdated
from procedures.pools import rows as inbox_rows
from procedures.pools.inbox import told
from procedures.wal.disk import Disk, Offload
from procedures.wal.format import LogRecord, Put
from procedures.wal.journal import Counts, Journal, Terms
from procedures.wal.logs import Logs
from procedures.wal.replay import Report, replay
from procedures.wal.rows import RowReads
from txn.results import ScanPage

_STEPS: Final = table_prefix(system.PROCEDURE_STEPS)


class WalStore:
    """A ProcedureStore over a disk. Opening it reads all logs: raises Corruption."""

    finds: bool = False

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        clock: Clock,
        timers: Timers,
        rng: Rng,
        terms: Terms | None = None,
    ) -> None:
        terms = Terms() if terms is None else terms
        if terms.roll_bytes < 1 or terms.roll_ms < 1 or terms.logs_max < 2:
            raise InvalidArgument(
                f"roll_bytes and roll_ms must be at least 1 and logs_max at least 2, got {terms}"
            )
        self._disk = disk
        self._offload = offload
        found = replay(disk)
        for number in sorted(found.remove):
            disk.remove(number)
        if found.cut is not None:
            disk.cut(*found.cut)
        self.report: Report = found.report
        self._image = found.image
        self._rows = found.image.rows
        self._snapshots: dict[int, int] = {}
        self._removed_by = 0  # the last record that took something away
        self._unused = range(0)  # ids that are reserved and not given out
        self._journal = Journal(
            disk, offload, clock, timers, rng, found, terms, durable_to=self._durable_to
        )

    @property
    def counts(self) -> Counts:
        return self._journal.counts

    @property
    def logs(self) -> Logs:
        return self._journal.logs

    async def close(self) -> None:
        """Write what is on its way, and let others have the directory."""
        try:
            await self._journal.close()
        finally:
            self._offload.close()
            self._disk.close()

    # ------------------------------------------------------------------------------ changes
    async def take_ids(self, count: int) -> int:
        if count > len(self._unused):
            self._journal.check()
            first = self._image.next_id
            end = first + max(count, limits.PROCEDURE_ID_BLOCK)
            change = LogRecord(next_id=end)
            number = self._commit(change)
            await self._journal.wait(number)
            if count > len(self._unused):  # somebody else may have reserved meanwhile
                self._unused = range(first, end)
        taken, self._unused = self._unused[:count], self._unused[count:]
        return taken.start

    async def reign(self) -> int:
        return await self._write([put(REIGN, b"")])

    async def insert(self, record: Record, reign: int = 0, ops: Sequence[Op] = ()) -> Stored | int:
        self._journal.check()
        mine = self._image.stored(record.id)
        if mine is not None:  # repeated after an unknown outcome
            await self._journal.wait(mine.version)
            return mine
        if record.nonce:
            known = self._image.by_nonce(record.owner, record.nonce)
            earlier = self._image.stored(known) if known is not None else None
            if earlier is not None:
                id = same_procedure(earlier.record.id, earlier.record.name, record)
                await self._journal.wait(earlier.version)
                return id
        self._room()
        grants = grant_ops(record, reign) if reign else []
        self._grantable(grants)
        version = await self._write([*grants, *ops], [record])
        return Stored(record.settled(version), version)

    async def start(
        self, change: Change, *, ops: Sequence[Op] = (), reads: Reads | None = None
    ) -> int:
        self._journal.check()
        record = change.record
        if self._image.stored(record.id) is not None or (
            record.nonce and self._image.by_nonce(record.owner, record.nonce) is not None
        ):
            raise Fenced
        self._room()
        self._allowed(ops)
        self._rows.refuse(ops, reads.start_ts if isinstance(reads, RowReads) else 0)
        return await self._write(ops, [record, *change.created])

    async def update(
        self,
        version: int,
        change: Change,
        *,
        ops: Sequence[Op] = (),
        reads: Reads | None = None,
        revived_version: int = 0,
    ) -> int:
        self._journal.check()
        record, revived = change.record, change.revived
        self._fence(record.id, version)
        if revived is not None:
            self._fence(revived.id, revived_version)
        self._allowed(ops)
        self._rows.refuse(ops, reads.start_ts if isinstance(reads, RowReads) else 0)
        for at, other in change.others:
            self._fence(other.record.id, at)
        granted: list[Op] = []
        for one in (change, *(other for _, other in change.others)):
            granted += grant_ops(one.record, one.reign) if one.reign else []
        self._grantable(granted)
        all_ops = [*ops, *granted]
        puts = [record, *change.created]
        if revived is not None:
            puts.append(revived)
        for one in (change, *(other for _, other in change.others)):
            if one.drops and not one.reign:
                all_ops += drop_ops(one.record)
            if self._image.stored(one.record.starter) is not None:  # else nobody forgets the row
                all_ops += told(one.record)
            if one.spill is not None:
                first, entries = one.spill
                key = _steps(one.record.id, first)
                all_ops.append(put(key, records.encode_entries(entries)))
                if (gone := outdated(first)) is not None:
                    all_ops.append(delete(_steps(one.record.id, gone)))
            if one is not change:
                puts.append(one.record)
        return await self._write(all_ops, puts)

    async def beat(self, id: int, version: int, data: bytes) -> None:
        self._journal.check()
        self._fence(id, version)
        await self._write([put(inbox_rows.heartbeat(id), data)])

    async def remove(self, stored: Sequence[Stored]) -> None:
        self._journal.check()
        for one in stored:
            self._fence(one.record.id, one.version)
        spans = [(_steps(record.id, 0), _steps(record.id, record.spilled)) for record, _ in stored]
        ops = [delete(key) for start, end in spans for key in self._rows.keys(start, end)]
        ops += [delete(key) for one in stored for key in self._left_of(one.record.id)]
        await self._write(ops, removed=[one.record.id for one in stored])

    def _left_of(self, id: int) -> list[bytes]:
        """What nobody took of a procedure that is forgotten."""
        spans = inbox_rows.left_of(id)
        return [key for start, end in spans for key in self._rows.keys(start, end)]

    async def write(self, ops: Sequence[Op]) -> int:
        """Write rows that belong to no step; their version. Raises what `refuse` raises."""
        self._journal.check()
        self._rows.refuse(ops, 0)
        return await self._write(ops)

    async def _write(
        self, ops: Sequence[Op], puts: Sequence[Record] = (), removed: Sequence[int] = ()
    ) -> int:
        """Apply a checked change, and wait until it is durable; its number."""
        version = self._journal.next
        change = LogRecord(
            tuple(Put(record.id, version, records.encode(record)) for record in puts),
            tuple(self._rows.plan(ops, version)),
            tuple(removed),
        )
        number = self._commit(change)
        assert number == version
        await self._journal.wait(number)
        return number

    def _commit(self, change: LogRecord) -> int:
        number = self._journal.append(change)
        self._image.apply(change)
        if change.removed:
            self._removed_by = number
        return number

    def _fence(self, id: int, version: int) -> None:
        held = self._image.held.get(id)
        if held is None or held.version != version:
            raise Fenced

    def _grantable(self, ops: Sequence[Op]) -> None:
        try:
            self._rows.refuse(ops, 0)
        except ConditionFailed as error:
            raise deposed() from error

    def _allowed(self, ops: Sequence[Op]) -> None:
        grows = 0
        for op in ops:
            if op.kind == OP_CHECK:
                continue
            if op.ttl_ms:
                raise _not_offered(
                    "rows that expire (ttl_ms)", "delete them in a step that waits with suspend"
                )
            if op.value is not None:
                grows += len(op.key) + len(op.value)
        if grows and self._rows.size + grows > limits.WAL_ROWS_BYTES_MAX:
            raise TooLarge(
                f"{self._rows.size + grows} bytes of rows, a store without a cluster keeps "
                f"{limits.WAL_ROWS_BYTES_MAX}, all in memory; delete some, or run a node",
                details={
                    "what": "bytes of rows",
                    "limit": limits.WAL_ROWS_BYTES_MAX,
                    "actual": self._rows.size + grows,
                },
            )

    def _room(self) -> None:
        if self._journal.free < limits.WAL_FREE_BYTES_MIN:
            raise Unavailable(
                f"{self._journal.free} bytes are free on the disk of {self._disk.where(0)}, new "
                f"procedures need {limits.WAL_FREE_BYTES_MIN}: make room; what runs goes on"
            )

    # ------------------------------------------------------------------------------ reads
    async def held_by(self, holders: Collection[int]) -> dict[int, Locks]:
        reads = RowReads(self._rows, self._journal.durable, self._snapshots)
        try:
            return await held_by(reads, holders)
        finally:
            await reads.close()

    async def load(self, id: int) -> Stored | None:
        self._journal.check()
        stored = self._image.stored(id)
        await self._journal.wait(self._removed_by if stored is None else stored.version)
        return stored

    async def load_range(self, first: int, count: int) -> list[Stored]:
        self._journal.check()
        found = [self._image.stored(id) for id in range(first, first + count)]
        there = [stored for stored in found if stored is not None]
        await self._seen(there, len(there) < count)
        return there

    async def load_many(self, ids: Sequence[int]) -> list[Stored]:
        found = [await self.load(id) for id in ids]
        return [stored for stored in found if stored is not None]

    async def reads(self) -> Reads:
        self._journal.check()
        return RowReads(self._rows, self._journal.durable, self._snapshots)

    async def keep(self, stored: Stored, retention_ms: int) -> None:
        raise AssertionError("there are no rules without a cluster")

    async def live(self, after: int, limit: int) -> Page:
        self._journal.check()
        ids = self._image.live(after, limit + 1)
        found: list[Stored] = []
        broken: list[Broken] = []
        size = 0
        more = ids[limit - 1] if len(ids) > limit else None
        for id in ids[:limit]:
            if size >= limits.SCAN_PAGE_BYTES_MAX:
                more = id - 1
                break
            size += len(self._image.held[id].data)
            try:
                stored = self._image.stored(id)
            except Corruption as error:
                broken.append(Broken(id, error.message))
            else:
                assert stored is not None
                found.append(stored)
        await self._seen(found, gone=False)
        return Page(found, broken, more)

    async def live_ids(self, after: int, limit: int) -> list[int]:
        self._journal.check()
        return self._image.live(after, limit)

    async def expired(self, now_ms: int, limit: int) -> tuple[list[int], int]:
        return self._image.expired(now_ms, limit)

    async def find_nonce(self, owner: str, nonce: str) -> int | None:
        self._journal.check()
        id = self._image.by_nonce(owner, nonce)
        held = None if id is None else self._image.held[id]
        await self._journal.wait(self._removed_by if held is None else held.version)
        return id

    async def newest(self, before: int, limit: int) -> list[Stored]:
        self._journal.check()
        found = []
        for id in self._image.newest(before, limit):
            stored = self._image.stored(id)
            assert stored is not None
            found.append(stored)
        await self._seen(found, gone=False)
        return found

    async def history(self, record: Record, limit: int) -> list[Entry]:
        chunks = -(-max(0, limit - len(record.history)) // limits.PROCEDURE_HISTORY_CHUNK)
        old: list[Entry] = []
        for first in kept_rows(record)[-chunks:] if chunks else ():
            _, value = self._rows.newest(_steps(record.id, first))
            if value is not None:  # else it is being forgotten
                old += records.decode_entries(value, f"steps of procedure {record.id}")
        return [*old, *record.history][-limit:]

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        """procedures.pools.rows.Rows, as `write`, `scan` and `now`."""
        version, value = self._rows.newest(key)
        return value, version

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        reads = await self.reads()
        try:
            return await reads.scan(start, end, limit=limit)
        finally:
            await reads.close()

    async def now(self) -> int:
        return self._journal.next

    def row(self, key: bytes) -> bytes | None:
        """What a row holds now, perhaps not durable yet."""
        return self._rows.newest(key)[1]

    def indexed(self) -> int:
        """How much is kept for procedures; 0 when all were forgotten (tests look for leaks)."""
        history = sum(key.startswith(_STEPS) for key, _, _ in self._rows.all())
        return self._image.indexed + history

    async def _seen(self, found: Sequence[Stored], gone: bool) -> None:
        last = max((stored.version for stored in found), default=0)
        await self._journal.wait(max(last, self._removed_by if gone else 0))

    def _durable_to(self, number: int) -> None:
        self._rows.prune(min(self._snapshots, default=number))


def _steps(id: int, first: int) -> bytes:
    return _STEPS + u64(id) + u32(first)


def _not_offered(what: str, instead: str) -> Refused:
    return Refused(
        f"{what}: a store without a cluster does not offer this; {instead}, or run a node "
        "(kvorum.open)",
        code="NOT_OFFERED",
    )
