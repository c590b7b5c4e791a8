"""What is applied: one partition's part of the state DB, its intents and guards in memory, and its
counters.

Every entry is one engine batch together with the applied index, so that after a crash the log is
replayed from exactly there. Implements mvcc's ReadView and partition's AppliedState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kv.base.checksum import CRC_BYTES, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption
from kv.base.keys import u64
from kv.base.limits import GC_RETENTION_MS_DEFAULT, SHIP_OLD_BYTES_MAX, MiB
from kv.mvcc.guards import GuardTable
from kv.mvcc.records import (
    Lock,
    Row,
    TxnRecord,
    corrupt,
    decode_txn,
    txn_key,
    verified,
)
from kv.partition.collectors import Collected
from kv.partition.entry import Other
from kv.partition.locks import LockMirror
from kv.partition.sizes import Noted, SizeMap
from kv.replica.chunks import Head
from kv.replica.metakeys import (
    APPLIED,
    CLOSED,
    COLLECTED,
    COUNTERS,
    FROZEN,
    SAFEPOINT,
    SIZES,
    body,
    meta_key,
    pack_applied,
    pack_counters,
    unpack_applied,
    unpack_counters,
    unpack_frozen,
)
from kv.replica.ranges import slices
from kv.replica.source import RangeSource
from kv.storage.engine import Batch, Engine

_SLICE_ROWS = 1_000  # of intents that are loaded at once …
_SLICE_BYTES = 8 * MiB  # … and their bytes


class PartitionState:
    """See the module. Reading is always of the last written batch."""

    def __init__(
        self,
        engine: Engine,
        descriptor: PartitionDescriptor,
        retention_ms: int = GC_RETENTION_MS_DEFAULT,
        *,
        load: bool = True,
    ) -> None:
        """Reads what the last run left, if it is to `load`. Raises Corruption."""
        self.descriptor = descriptor
        self.retention_ms = retention_ms
        self.locks = LockMirror()
        self.guards = GuardTable()
        self.index = self.term = self.top_ts = self.safepoint = 0
        self.old_versions = self.live_bytes = 0
        self.frozen: tuple[int, int] | None = None  # (index, term) since which nobody is served
        kinds = (APPLIED, COLLECTED, COUNTERS, SAFEPOINT, SIZES)
        self._keys = {kind: meta_key(descriptor.id, kind) for kind in kinds}
        self._collected: Collected | None = None  # read when it is wanted
        self._seen: Sequence[object] = ()  # by the collectors, of the rows that `write` is to write
        self._sizes: SizeMap | None = None  # read when it is wanted: most partitions are idle
        self._get_txn = engine.getter("txn")
        self._bind(engine)
        if load:
            self._load()

    def _bind(self, engine: Engine) -> None:
        self.engine = engine = engine.shard(self.descriptor.shard)
        self.cur = engine.getter("cur")
        self.multi_cur = engine.multi_getter("cur")
        self.stored_lock = engine.getter("lock")
        self._families = {
            name: engine.family(name)
            for name in ("cur", "hist", "lock", "txn", "guard", "gcq", "meta")
        }

    def let_go(self) -> None:
        """Nothing is written any more: the handles of families would keep the database open."""
        self._families.clear()

    def lie_in(self, descriptor: PartitionDescriptor) -> None:
        """Its rows are in another storage shard now, which the descriptor names."""
        self.descriptor = descriptor
        self._bind(self.engine)

    # ------------------------------------------------------------------ reading

    def is_empty(self, family: str, start: bytes, end: bytes) -> bool:
        """Whether there are certainly no rows; see the engine."""
        return self.engine.is_empty(family, start, end)

    def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        limit: int,
        bytes_max: int = 0,
    ) -> list[tuple[bytes, bytes]]:
        return self.engine.scan(
            family, start, end, reverse=reverse, limit=limit, bytes_max=bytes_max
        )

    def lock(self, key: bytes) -> Lock | None:
        return self.locks.get(key)

    def locked_keys(self, start: bytes, end: bytes) -> Iterable[bytes]:
        return self.locks.range(start, end)

    def txn(self, anchor: bytes, start_ts: int) -> TxnRecord | None:
        key = txn_key(anchor, start_ts)
        record = self._get_txn(key)
        return None if record is None else decode_txn(key, record)

    # ------------------------------------------------------------------ sizes

    @property
    def sizes(self) -> SizeMap:
        """Where the bytes of the partition lie."""
        if self._sizes is None:
            key = self._keys[SIZES]
            record = self.engine.getter("meta")(key)
            known = None if record is None else body(key, record)
            self._sizes = SizeMap(self.descriptor.id) if known is None else SizeMap.of(known)
        return self._sizes

    @sizes.setter
    def sizes(self, sizes: SizeMap) -> None:
        self._sizes = sizes

    def share_below(self, key: bytes) -> float:
        """Which part of its bytes lies below a key, about."""
        return self.sizes.share_below(key)

    @property
    def collected(self) -> Collected:
        """What is counted of its rows."""
        if self._collected is None:
            key = self._keys[COLLECTED]
            record = self.engine.getter("meta")(key)
            self._collected = Collected(None if record is None else body(key, record))
        return self._collected

    @collected.setter
    def collected(self, collected: Collected) -> None:
        self._collected = collected

    def choose(self, rows: Sequence[Row], grown: int) -> Noted:
        """What `write` must know of rows that are about to be written: see SizeMap.choose."""
        self._seen = self.collected.see(rows, self.cur) if rows else ()
        sizes = self.sizes if self._sizes is None else self._sizes
        return sizes.choose(rows, grown, self.cur)

    @property
    def closed(self) -> bool:
        """Whether its log says that it takes no new writes any more."""
        key = meta_key(self.descriptor.id, CLOSED)
        record = self.engine.getter("meta")(key)
        return record is not None and body(key, record) == b""

    # ------------------------------------------------------------------ writing

    def fill(
        self, batch: Batch, rows: Iterable[Row], others: Iterable[Other], *, fresh: bool = False
    ) -> None:
        """Put the effects of an entry into a batch. Old versions that were not shipped are taken
        from where they still are. `fresh`: all rows are first versions.
        """
        put, delete, families = batch.put, batch.delete, self._families
        cur, hist = families["cur"], families["hist"]
        newest: dict[bytes, bytes] = {}  # of this entry; kept only once something was not shipped
        if fresh:
            for key, record, _, _ in rows:
                assert record is not None, "a version has a record"
                put(key, record, cur)
            rows = ()
        for key, record, old_key, old in rows:
            if record is None:
                delete(key, cur)
                continue
            put(key, record, cur)
            if old_key is not None:
                if old is None:
                    old = self._superseded(key, record, old_key, newest)
                put(old_key, old, hist)
            if len(record) >= SHIP_OLD_BYTES_MAX:
                newest[key] = record
        for family, key, value in others:
            if value is None:
                delete(key, families[family])
            else:
                put(key, value, families[family])

    def _superseded(
        self, key: bytes, record: bytes, old_key: bytes, newest: dict[bytes, bytes]
    ) -> bytes:
        """The hist record of the version that `record` replaces."""
        old = newest.get(key) or self.cur(key)
        if old is None:
            raise corrupt("cur", key)
        verified("cur", key, old)
        return seal(old_key, record[:8] + old[8:-CRC_BYTES])

    def batch(self) -> Batch:
        return self.engine.batch()

    def write(
        self,
        batch: Batch,
        *,
        index: int,
        term: int,
        top_ts: int = 0,
        safepoint: int = 0,
        old_versions: int = 0,
        live_bytes: int = 0,
        noted: Noted = (),
    ) -> None:
        """Write the batch with the applied index; only then does anything here change. Raises
        Unavailable: nothing was written.
        """
        meta, keys = self._families["meta"], self._keys
        top_ts = max(top_ts, self.top_ts)
        key = keys[APPLIED]
        batch.put(key, seal(key, pack_applied(index, term, top_ts)), meta)
        if old_versions or live_bytes:
            key = keys[COUNTERS]
            figures = pack_counters(self.old_versions + old_versions, self.live_bytes + live_bytes)
            batch.put(key, seal(key, figures), meta)
        if safepoint > self.safepoint:
            key = keys[SAFEPOINT]
            batch.put(key, seal(key, u64(safepoint)), meta)
        if noted and self.sizes.due():
            key = keys[SIZES]
            batch.put(key, seal(key, self.sizes.record()), meta)
        seen, self._seen = self._seen, ()
        if seen and self.collected.due():
            key = keys[COLLECTED]
            batch.put(key, seal(key, self.collected.record()), meta)
        self.engine.write(batch)
        if seen:
            self.collected.note(seen)
        if noted:
            self.sizes.note(noted)
        self.index, self.term, self.top_ts = index, term, top_ts
        self.old_versions += old_versions
        self.live_bytes += live_bytes
        self.safepoint = max(self.safepoint, safepoint)

    def set_locks(self, others: Iterable[Other]) -> None:
        """Follow the changes of families lock and guard in an entry that was just written."""
        for family, key, value in others:
            if family == "lock":
                self.locks.follow(key, value)
            elif family == "guard":
                self.guards.follow(key, value)

    # ------------------------------------------------------------------ snapshots

    def source(
        self,
        on_close: Callable[[RangeSource], object],
        on_damage: Callable[[Corruption], object] = lambda _error: None,
    ) -> RangeSource:
        """A view of what is applied now. `on_damage` hears of a record of it that is not what was
        written. Raises Unavailable.
        """
        d = self.descriptor
        head = Head(
            partition=d.id,
            index=self.index,
            term=self.term,
            start=d.start,
            end=d.end,
            top_ts=self.top_ts,
            safepoint=self.safepoint,
            old_versions=self.old_versions,
            live_bytes=self.live_bytes,
            epoch=d.epoch,
            frozen=self.frozen,
        )
        return RangeSource(self.engine, d, head, on_close, on_damage)

    def replaced(self, head: Head, locks: LockMirror, guards: GuardTable) -> None:
        """The stored range is that of a snapshot now: follow it in memory."""
        self.index, self.term, self.top_ts = head.index, head.term, head.top_ts
        self.safepoint = head.safepoint
        self.old_versions, self.live_bytes = head.old_versions, head.live_bytes
        self.locks, self.guards = locks, guards
        self.descriptor, self.frozen = head.of(self.descriptor), head.frozen
        self._sizes = self._collected = None

    # ------------------------------------------------------------------ opening

    def _load(self) -> None:
        get, keys = self.engine.getter("meta"), self._keys
        if (record := get(keys[APPLIED])) is not None:
            self.index, self.term, self.top_ts = unpack_applied(body(keys[APPLIED], record))
        if (record := get(keys[COUNTERS])) is not None:
            self.old_versions, self.live_bytes = unpack_counters(body(keys[COUNTERS], record))
        if (record := get(keys[SAFEPOINT])) is not None:
            self.safepoint = int.from_bytes(body(keys[SAFEPOINT], record), "big")
        key = meta_key(self.descriptor.id, FROZEN)
        if (record := get(key)) is not None:
            self.frozen = unpack_frozen(body(key, record))
        bounds = {family: (low, high) for family, low, high in slices(self.descriptor)}
        self._follow("lock", *bounds["lock"], self.locks.follow)
        self._follow("guard", *bounds["guard"], self.guards.follow)

    def _follow(
        self, family: str, at: bytes, end: bytes, follow: Callable[[bytes, bytes], None]
    ) -> None:
        while True:
            # an intent has its value with it, up to megabytes
            rows = self.engine.scan(family, at, end, limit=_SLICE_ROWS, bytes_max=_SLICE_BYTES)
            if not rows:
                return
            for key, value in rows:
                follow(key, value)
            at = rows[-1][0] + b"\x00"
