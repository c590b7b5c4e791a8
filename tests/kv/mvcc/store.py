"""A partition in plain dictionaries, to run verbs on: every effect is visible at once (applied =
evaluated).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from kv.base.intents import NOBODY
from kv.base.keys import from_u64
from kv.base.ops import Op
from kv.base.timestamps import compose
from kv.mvcc.check import Checked, check
from kv.mvcc.commit import commit
from kv.mvcc.gc import Due, OldVersions, collect
from kv.mvcc.get import Found, get, multi_get
from kv.mvcc.guards import GuardTable
from kv.mvcc.heartbeat import heartbeat
from kv.mvcc.packed_rows import PackedKeys, pack_values
from kv.mvcc.prewrite import Prewritten, prewrite
from kv.mvcc.prewrite_rows import prewrite_rows
from kv.mvcc.records import (
    Lock,
    TxnRecord,
    decode_chunk,
    decode_lock,
    decode_txn,
    txn_key,
    verified,
)
from kv.mvcc.recover import recover, settle
from kv.mvcc.resolve import resolve
from kv.mvcc.rollback import rollback
from kv.mvcc.scan import Page, scan
from kv.mvcc.view import Mutations
from kv.mvcc.write import write
from kv.partition.locks import LockMirror
from kv.storage.engine import first_rows

NOW_MS = 1_000_000


def at(ms: int, logical: int = 0) -> int:
    """The timestamp `ms` milliseconds after the tests' beginning of time."""
    return compose(NOW_MS + ms, logical)


def packed(
    keys: Sequence[bytes], values: Sequence[bytes | None], prefix_bytes: int = 1
) -> tuple[PackedKeys, bytes]:
    """These rows, whose keys begin alike."""
    own = msgpack.packb([key[prefix_bytes:] for key in keys])
    return PackedKeys(keys[0], prefix_bytes, len(keys), own, keys[-1]), pack_values(values)


class Store:
    """Implements View, ReadView and GcView. Each verb's wrapper applies its mutations if it
    returns.
    """

    author = NOBODY
    packed = False  # whether chunks are laid as packed rows

    def __init__(self, start: bytes = b"", end: bytes = b"") -> None:
        self.rows: dict[str, dict[bytes, bytes]] = {
            name: {} for name in ("cur", "hist", "lock", "txn", "gcq", "guard")
        }
        self.order: dict[str, list[bytes]] = {name: [] for name in self.rows}
        self.mirror = LockMirror()
        self.table = GuardTable()
        self.safepoint = 0
        self.retention_ms = 1
        self.now_ms = NOW_MS
        self.start, self.end = start, end

    # -- views

    def cur(self, key: bytes) -> bytes | None:
        record = self.rows["cur"].get(key)
        return None if record is None else verified("cur", key, record)

    def keep(self, key: bytes, record: bytes | None) -> None:
        """Everything is in memory here."""

    def many_cur(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        assert list(keys) == sorted(set(keys)), "sorted and unique"
        return [self.cur(key) for key in keys]

    def multi_cur(self, keys: list[bytes]) -> Sequence[bytes | None]:
        assert keys == sorted(set(keys)), "sorted and unique"
        return [self.rows["cur"].get(key) for key in keys]

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
        order = self.order[family]
        low = bisect_left(order, start)
        high = bisect_left(order, end) if end else len(order)
        keys = order[low:high][::-1] if reverse else order[low:high]
        return first_rows(((key, self.rows[family][key]) for key in keys), limit, bytes_max)[0]

    def lock(self, key: bytes) -> Lock | None:
        found = self.mirror.get(key)
        if found is not None and found.chunk:
            return found
        return self.intent(key) if key in self.rows["lock"] else None

    def intent(self, key: bytes) -> Lock:
        return decode_lock(key, self.rows["lock"][key])

    def locked(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        return [key for key in keys if self.lock(key) is not None]

    def chunk_values(self, lock: Lock) -> Sequence[bytes | None]:
        return decode_chunk(lock.chunk[0], self.rows["lock"][lock.chunk[0]])[1]

    def locked_keys(self, start: bytes, end: bytes) -> Sequence[bytes]:
        keys = {key for key, _ in self.scan("lock", start, end, limit=1 << 30)}
        return sorted(keys | set(self.mirror.range(start, end)))

    def txn(self, anchor: bytes, start_ts: int) -> TxnRecord | None:
        key = txn_key(anchor, start_ts)
        record = self.rows["txn"].get(key)
        return None if record is None else decode_txn(key, record)

    @property
    def guards(self) -> GuardTable | None:
        return self.table if self.table.by_at else None

    def records_in_flight(self, start: bytes, end: bytes) -> dict[bytes, bytes]:
        return {}

    def locks_in_flight(self, start: bytes, end: bytes) -> Sequence[bytes]:
        return ()

    def look(self, rows: int) -> None: ...

    def holds(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    # -- effects

    def apply(self, m: Mutations) -> None:
        for key, record, old_key, old in m.rows:
            self._set("cur", key, record)
            if old_key is not None:
                self._set("hist", old_key, old)
        for family, key, value in m.others:
            self._set(family, key, value)
            if family == "lock":
                self.mirror.follow(key, value)
            elif family == "guard":
                self.table.follow(key, value)
        for at_, guard in m.guards.items():
            assert self.table.by_at.get(at_) == guard, "the two ways to tell differ"
        for key, lock in m.locks.items():
            assert (key in self.mirror) == (lock is not None), "the two ways to tell differ"
        for chunk in m.laid:
            assert all(key in self.mirror for key in chunk.chunk), "the two ways to tell differ"
        for chunk in m.gone.values():
            assert not any(key in self.mirror for key in chunk.chunk), "the two ways differ"
        self.safepoint = max(self.safepoint, m.safepoint)

    def _set(self, family: str, key: bytes, value: bytes | None) -> None:
        rows = self.rows[family]
        if value is None:
            if rows.pop(key, None) is not None:
                self.order[family].remove(key)
            return
        if key not in rows:
            insort(self.order[family], key)
        rows[key] = value

    def snapshot(self) -> dict[str, dict[bytes, bytes]]:
        return {family: dict(rows) for family, rows in self.rows.items()}

    def _run(self, verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
        m = Mutations(self.author)
        before = self.snapshot()
        try:
            result = verb(self, *args, m=m, **more)
        except Exception:
            assert self.snapshot() == before, "a refused verb changed something"
            raise
        self.apply(m)
        return result

    # -- verbs

    def write(self, *ops: Op, ts: int, start: int = 0, flags: int = 0) -> int:
        out: int = self._run(
            write, ops, start_ts=start, flags=flags, commit_ts=ts, now_ms=self.now_ms
        )
        return out

    def prewrite(
        self, *ops: Op, start: int, anchor: bytes, ttl: int = 1000, flags: int = 0, fresh: int = 0
    ) -> int:
        done: Prewritten = self._run(
            prewrite,
            ops,
            start_ts=start,
            anchor=anchor,
            ttl_ms=ttl,
            flags=flags,
            fresh_ts=fresh,
            now_ms=self.now_ms,
        )
        assert not done.exact, "only those of a parallel commit promise that"
        return done.min_commit_ts

    def stage(
        self,
        *ops: Op,
        start: int,
        fresh: int,
        anchor: bytes,
        parts: tuple[tuple[bytes, ...], ...] = (),
    ) -> Prewritten:
        """A prewrite of a parallel commit; `parts` with the anchor."""
        out: Prewritten = self._run(
            prewrite,
            ops,
            start_ts=start,
            anchor=anchor,
            ttl_ms=1000,
            flags=0,
            fresh_ts=fresh,
            now_ms=self.now_ms,
            fence=True,
            stage=parts,
        )
        return out

    def recover(
        self, *keys: bytes, start: int, anchor: bytes, fence: bool = True
    ) -> tuple[bool, int]:
        out: tuple[bool, int] = self._run(recover, keys, start_ts=start, anchor=anchor, fence=fence)
        return out

    def settle(self, anchor: bytes, start: int, ts: int) -> TxnRecord:
        out: TxnRecord = self._run(settle, anchor, start_ts=start, commit_ts=ts)
        return out

    def commit(
        self, anchor: bytes, start: int, ts: int, *, beside: Sequence[tuple[bytes, int]] = ()
    ) -> TxnRecord:
        out: TxnRecord = self._run(
            commit, anchor, start_ts=start, commit_ts=ts, now_ms=self.now_ms, beside=beside
        )
        return out

    def rollback(self, anchor: bytes, start: int, *, own: bool = False) -> TxnRecord:
        out: TxnRecord = self._run(rollback, anchor, start_ts=start, own=own)
        return out

    def check(self, anchor: bytes, start: int, push: int = 0, ttl: int = 1000) -> Checked:
        out: Checked = self._run(
            check, anchor, start_ts=start, push_above=push, ttl_ms=ttl, now_ms=self.now_ms
        )
        return out

    def resolve(self, *keys: bytes, start: int, ts: int) -> int:
        out: int = self.resolve_some(*keys, start=start, ts=ts)[0]
        return out

    def resolve_some(self, *keys: bytes, start: int, ts: int) -> tuple[int, int]:
        out: tuple[int, int] = self._run(resolve, keys, start_ts=start, commit_ts=ts)
        return out

    def prewrite_rows(
        self,
        rows: dict[bytes, bytes | None],
        *,
        start: int,
        anchor: bytes,
        fresh: int = 0,
        absent: bool = False,
    ) -> int:
        keys: Sequence[bytes] = sorted(rows)
        values: Sequence[bytes | None] | bytes = [rows[key] for key in keys]
        if self.packed:
            keys, values = packed(keys, values)
        out: int = self._run(
            prewrite_rows,
            keys,
            values,
            start_ts=start,
            anchor=anchor,
            ttl_ms=1000,
            fresh_ts=fresh,
            now_ms=self.now_ms,
            absent=absent,
        )
        return out

    def heartbeat(self, anchor: bytes, start: int, ttl: int = 0, *, user: str | None = None) -> int:
        out: int = self._run(
            heartbeat, anchor, start_ts=start, now_ms=self.now_ms, ttl_ms=ttl, user=user
        )
        return out

    def collect(self, safepoint: int, txn_floor: int = 1 << 63, rows_max: int = 100) -> int:
        """Raise the safepoint and run all steps; how many there were."""
        self.safepoint = max(self.safepoint, safepoint)
        steps, at = 0, b""
        while at is not None:
            at = self.step(OldVersions(at), rows_max=rows_max)
            steps += 1
        due = [row for row in sorted(self.rows["gcq"]) if from_u64(row) <= self.safepoint]
        for first in range(0, len(due), rows_max):
            self.step(Due(due[first : first + rows_max], txn_floor))
            steps += 1
        return steps

    def step(self, step: OldVersions | Due, rows_max: int = 100) -> bytes | None:
        """One step; where the walk goes on."""
        m = Mutations(self.author)
        done = collect(self, self.start, self.end, step, m=m, rows_max=rows_max)
        self.apply(m)
        return done.at

    def get(self, key: bytes, ts: int = 0, ignore: list[int] | None = None) -> Found:
        return get(self, key, read_ts=ts, ignore=ignore, now_ms=self.now_ms)

    def multi_get(self, *keys: bytes, ts: int = 0) -> list[Found]:
        return multi_get(self, list(keys), read_ts=ts, ignore=None, now_ms=self.now_ms)

    def page(self, start: bytes = b"", end: bytes = b"", **more: Any) -> Page:
        more.setdefault("limit", 1000)
        return scan(self, start, end, read_ts=more.pop("ts", 0), now_ms=self.now_ms, **more)

    def scan_all(self, start: bytes = b"", end: bytes = b"", **more: Any) -> list[Any]:
        """Every item, page by page."""
        items: list[Any] = []
        while True:
            page = self.page(start, end, **more)
            items += page.items
            if page.resume is None:
                return items
            if more.get("reverse"):
                end = page.resume
            else:
                start = page.resume
