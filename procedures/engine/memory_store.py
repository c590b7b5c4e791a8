"""A procedure store in memory: for procedures that need not outlive the process, for tests, and as
the model of L1.

`Table` is the data that steps write to: versioned, with the snapshot and conflict rules of the real
transactions (first committer wins on what was written since the snapshot). Everything happens
between two awaits, so it is atomic. Records are kept as bytes: a record that could not be stored
for real cannot be stored here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence

from msgspec import structs

from kv.base import limits
from kv.base.errors import ConditionFailed, Corruption, Refused, WriteConflict
from kv.base.methods import OP_CHECK
from kv.base.ops import Op, put
from procedures.engine import records
from procedures.engine.core import Change
from procedures.engine.grants import REIGN, deposed, drop_ops, grant_ops, held_by
from procedures.engine.read_snapshot import ReadSnapshot
from procedures.engine.records import Entry, Record
from procedures.engine.resources import Locks
from procedures.engine.store import Broken, Fenced, Page, Reads, Row, Stored, outdated
from procedures.pools.inbox import told
from procedures.pools.rows import heartbeat


class Table:
    """Keys with all their versions, oldest first; a deletion is a version without a value."""

    def __init__(self) -> None:
        self.clock = 0
        self._keys: list[bytes] = []
        self._versions: dict[bytes, list[tuple[int, bytes | None]]] = {}

    def read(self, key: bytes, at: int) -> Row | None:
        for version, value in reversed(self._versions.get(key, ())):
            if version <= at:
                return None if value is None else Row(value, version)
        return None

    def newest(self, key: bytes) -> int:
        """When the key was written last, 0 = never."""
        found = self._versions.get(key)
        return found[-1][0] if found else 0

    def keys(self, start: bytes, end: bytes) -> list[bytes]:
        stop = bisect_left(self._keys, end) if end else len(self._keys)
        return self._keys[bisect_left(self._keys, start) : stop]

    def refuse(self, ops: Sequence[Op], start_ts: int) -> None:
        """Raises ConditionFailed or WriteConflict if these writes may not happen now."""
        for i, op in enumerate(ops):
            now = self.read(op.key, self.clock)
            if op.cond is not None and (now.version if now else 0) != op.cond:
                raise ConditionFailed(
                    f"{op.key!r:.60} has version {now.version if now else None}",
                    details={
                        "key": op.key,
                        "version": str(now.version) if now else None,
                        "op": i,
                    },
                )
            if start_ts and op.kind != OP_CHECK and self.newest(op.key) > start_ts:
                raise WriteConflict(
                    f"{op.key!r:.60} was written after the snapshot",
                    details={"key": op.key, "conflict_ts": self.newest(op.key)},
                )

    def reads(self) -> ReadSnapshot:
        """The rows as they are now, whatever is written later."""
        return ReadSnapshot(self, self.clock)

    def write(self, ops: Sequence[Op]) -> int:
        """Apply checked writes; their version."""
        self.clock += 1
        for op in ops:
            if op.kind == OP_CHECK:
                continue
            if op.key not in self._versions:
                insort(self._keys, op.key)
            self._versions.setdefault(op.key, []).append((self.clock, op.value))
        return self.clock


class MemoryStore:
    """A ProcedureStore. Survives an executor, not the process."""

    finds: bool = True

    def __init__(self) -> None:
        self.table = Table()
        self._next_id = 1
        self._rows: dict[int, tuple[bytes, int]] = {}
        self._live: set[int] = set()
        self._due: list[tuple[int, int]] = []
        self._nonces: dict[tuple[str, str], int] = {}
        self._old: dict[tuple[int, int], bytes] = {}

    async def take_ids(self, count: int) -> int:
        first = self._next_id
        self._next_id += count
        return first

    async def reign(self) -> int:
        return self.table.write([put(REIGN, b"")])

    async def held_by(self, holders: Collection[int]) -> dict[int, Locks]:
        return await held_by(self.table.reads(), holders)

    async def insert(self, record: Record, reign: int = 0, ops: Sequence[Op] = ()) -> Stored | int:
        if record.id in self._rows:
            return self._stored(record.id)  # repeated after an unknown outcome
        if record.nonce:
            known = self._nonces.get((record.owner, record.nonce))
            if known is not None:
                return same_procedure(known, self._stored(known).record.name, record)
        grants = grant_ops(record, reign) if reign else []
        self._grantable(grants)
        self.table.refuse(ops, 0)
        if record.nonce:
            self._nonces[record.owner, record.nonce] = record.id
        self._put(record, self.table.write([*grants, *ops]), None)
        return self._stored(record.id)

    async def start(
        self, change: Change, *, ops: Sequence[Op] = (), reads: Reads | None = None
    ) -> int:
        record = change.record
        if record.id in self._rows or (record.owner, record.nonce) in self._nonces:
            raise Fenced
        self.table.refuse(ops, reads.start_ts if isinstance(reads, ReadSnapshot) else 0)
        if record.nonce:
            self._nonces[record.owner, record.nonce] = record.id
        now = self.table.write(ops)
        for one in (record, *change.created):
            self._put(one, now, None)
        return now

    async def beat(self, id: int, version: int, data: bytes) -> None:
        self._fence(id, version)
        self.table.write([put(heartbeat(id), data)])

    async def load(self, id: int) -> Stored | None:
        return self._stored(id) if id in self._rows else None

    async def load_range(self, first: int, count: int) -> list[Stored]:
        return [self._stored(i) for i in range(first, first + count) if i in self._rows]

    async def load_many(self, ids: Sequence[int]) -> list[Stored]:
        found = [await self.load(id) for id in ids]
        return [stored for stored in found if stored is not None]

    async def reads(self) -> Reads:
        return self.table.reads()

    async def update(
        self,
        version: int,
        change: Change,
        *,
        ops: Sequence[Op] = (),
        reads: Reads | None = None,
        revived_version: int = 0,
    ) -> int:
        record, revived = change.record, change.revived
        before = self._fence(record.id, version)
        if revived is not None:
            self._fence(revived.id, revived_version)
        others = [(self._fence(other.record.id, at), other) for at, other in change.others]
        self.table.refuse(ops, reads.start_ts if isinstance(reads, ReadSnapshot) else 0)
        granted: list[Op] = []
        dropped: list[Op] = []
        for one in (change, *(other for _, other in others)):
            granted += grant_ops(one.record, one.reign) if one.reign else []
            dropped += drop_ops(one.record) if one.drops and not one.reign else []
            dropped += told(one.record)
        self._grantable(granted)
        now = self.table.write([*ops, *granted, *dropped])
        self._put(record, now, before)
        for child in change.created:
            self._put(child, now, None)
        if revived is not None:
            self._put(revived, now, self._stored(revived.id).record)
        for other_before, other in others:
            self._put(other.record, now, other_before)
        for one in (change, *(other for _, other in others)):
            if one.spill is not None:
                key = one.record.id, one.spill[0]
                self._old[key] = records.encode_entries(one.spill[1])
                if (gone := outdated(one.spill[0])) is not None:
                    self._old.pop((one.record.id, gone), None)
        return now

    async def remove(self, stored: Sequence[Stored]) -> None:
        for one in stored:
            self._fence(one.record.id, one.version)
        gone = {one.record.id for one in stored}
        self._due = [row for row in self._due if row[1] not in gone]
        for record in (one.record for one in stored):
            del self._rows[record.id]
            if record.nonce:
                self._nonces.pop((record.owner, record.nonce), None)
            for first in range(0, record.spilled, limits.PROCEDURE_HISTORY_CHUNK):
                self._old.pop((record.id, first), None)

    async def keep(self, stored: Stored, retention_ms: int) -> None:
        record = self._fence(stored.record.id, stored.version)
        self._due.remove((record.updated_ms + record.retention_ms, record.id))
        self.table.clock += 1
        longer = structs.replace(record, retention_ms=retention_ms)
        self._put(longer, self.table.clock, None)

    async def live(self, after: int, limit: int) -> Page:
        ids = sorted(i for i in self._live if i > after)
        found: list[Stored] = []
        broken: list[Broken] = []
        size = 0
        for id in ids[:limit]:
            if size >= limits.SCAN_PAGE_BYTES_MAX:
                return Page(found, broken, id - 1)
            data, version = self._rows[id]
            size += len(data)
            try:
                found.append(
                    Stored(records.decode(data, f"procedure {id}").settled(version), version)
                )
            except Corruption as e:
                broken.append(Broken(id, e.message))
        return Page(found, broken, ids[limit - 1] if len(ids) > limit else None)

    async def live_ids(self, after: int, limit: int) -> list[int]:
        return sorted(id for id in self._live if id > after)[:limit]

    async def expired(self, now_ms: int, limit: int) -> tuple[list[int], int]:
        over = [id for due, id in self._due if due <= now_ms]
        later = [due for due, _ in self._due if due > now_ms]
        if over:
            return over[:limit], now_ms  # look again: there may be more
        return [], later[0] if later else 0

    async def find_nonce(self, owner: str, nonce: str) -> int | None:
        return self._nonces.get((owner, nonce))

    async def newest(self, before: int, limit: int) -> list[Stored]:
        ids = sorted((i for i in self._rows if not before or i < before), reverse=True)
        return [self._stored(i) for i in ids[:limit]]

    async def history(self, record: Record, limit: int) -> list[Entry]:
        chunks = range(0, record.spilled, limits.PROCEDURE_HISTORY_CHUNK)
        found = [
            e
            for first in chunks
            if (record.id, first) in self._old
            for e in records.decode_entries(self._old[record.id, first], f"steps of {record.id}")
        ]
        return [*found, *record.history][-limit:]

    def rows(self) -> int:
        """How much is kept for procedures; 0 when all were forgotten (tests look for leaks)."""
        return sum(map(len, (self._rows, self._live, self._due, self._nonces, self._old)))

    def _stored(self, id: int) -> Stored:
        data, version = self._rows[id]
        return Stored(records.decode(data, f"procedure {id}").settled(version), version)

    def _grantable(self, ops: Sequence[Op]) -> None:
        try:
            self.table.refuse(ops, 0)
        except ConditionFailed as error:
            raise deposed() from error

    def _fence(self, id: int, version: int) -> Record:
        row = self._rows.get(id)
        if row is None or row[1] != version:
            raise Fenced
        return self._stored(id).record

    def _put(self, record: Record, version: int, before: Record | None) -> None:
        self._rows[record.id] = (records.encode(record), version)
        if not record.ended:
            self._live.add(record.id)
            if before is not None and before.ended and not before.parent:
                self._due.remove((before.updated_ms + before.retention_ms, before.id))
        elif before is None or not before.ended:
            self._live.discard(record.id)
            if not record.parent:
                insort(self._due, (record.updated_ms + record.retention_ms, record.id))


def same_procedure(known: int, name: str, record: Record) -> int:
    """The id that a nonce stands for. Raises Refused when it was used for something else."""
    if name != record.name:
        raise Refused(
            f"nonce {record.nonce!r:.80} of {record.owner!r:.80} belongs to procedure {known} "
            f"({name}), not to a {record.name}; use another nonce",
            code="NONCE_REUSED",
            details={"procedure": str(known)},
        )
    return known
