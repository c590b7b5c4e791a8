"""Participants, oracle and client in one small model: the verbs of kv/base/methods with simple data
structures.

Every message takes a random virtual time to arrive and another to be answered, and is executed in
one step in between. Nothing of kv/mvcc is used: where both agree, the contract is what we think it
is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KeyLocked,
    Moved,
    SnapshotTooOld,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
    WriteConflict,
)
from kv.base.ids import NodeId, PartitionId
from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.methods import (
    ABORTED,
    BLIND,
    CHECK,
    COMMIT,
    COMMITTED,
    DELETE,
    FIND_TXN,
    FINISH,
    GET,
    HEARTBEAT,
    MGET,
    OP_CHECK,
    OP_PUT,
    PENDING,
    PREWRITE,
    PUT,
    RECOVER,
    RESOLVE,
    ROLLBACK,
    SCAN,
    SETTLE,
    STAGING,
    WRITE,
)
from kv.base.ops import Op, put
from kv.base.timestamps import compose, physical_ms
from kv.base.verbs import repeatable
from kvorum.testing.simulation.loop import SimClock, SimLoop


@dataclass(frozen=True)
class Lock:
    start_ts: int
    op: Op
    anchor: bytes
    ttl_ms: int
    bound: int = 0  # of a parallel commit


@dataclass(frozen=True)
class Guard:
    """`end` None: the one key; b"": no bound."""

    start: bytes
    end: bytes | None
    start_ts: int
    anchor: bytes = b""
    ttl_ms: int = 0

    def covers(self, key: bytes) -> bool:
        if self.end is None:
            return key == self.start
        return self.start <= key and (not self.end or key < self.end)


@dataclass(frozen=True)
class Record:
    status: int = PENDING
    commit_ts: int = 0
    min_commit_ts: int = 0
    heartbeat_ms: int = 0
    ttl_ms: int = 0
    parts: tuple[tuple[bytes, ...], ...] = ()


@dataclass(frozen=True)
class Sent:
    """One message, as tests see it."""

    method: int
    key: bytes
    args: tuple[Any, ...]


@dataclass
class Cluster:
    """All partitions and the oracle. `borders` cut the key space."""

    loop: SimLoop
    borders: list[bytes]
    clock: SimClock = field(init=False)
    locks: dict[bytes, Lock] = field(default_factory=dict)
    guards: dict[tuple[bytes, int], Guard] = field(default_factory=dict)
    records: dict[tuple[bytes, int], Record] = field(default_factory=dict)
    versions: dict[bytes, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    fences: set[tuple[bytes, int]] = field(default_factory=set)
    down: set[int] = field(default_factory=set)
    safepoint: int = 0
    last_ts: int = 0
    waits_for: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """By transaction and first key of its prewrite: whose intent it met last; nobody waits in a
    queue here."""

    def __post_init__(self) -> None:
        self.clock = SimClock(self.loop)
        starts = [b"", *self.borders]
        ends = [*self.borders, b""]
        self.partitions = [
            PartitionDescriptor(PartitionId(i + 1), start, end, 1, (NodeId(1),))
            for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]

    # -- oracle and map

    def take(self) -> int:
        self.last_ts = max(self.last_ts + 1, compose(self.clock.now_ms()))
        return self.last_ts

    def covering(self, key: bytes) -> PartitionDescriptor:
        return next(p for p in self.partitions if p.covers(key))

    def split(self, at: bytes) -> None:
        old = self.covering(at)
        i = self.partitions.index(old)
        new_id = PartitionId(1 + max(p.id for p in self.partitions))
        self.partitions[i : i + 1] = [
            replace(old, end=at, epoch=old.epoch + 1),
            PartitionDescriptor(new_id, at, old.end, 1, old.voters),
        ]

    # -- what the store shows without any protocol

    def newest(self, key: bytes) -> bytes | None:
        """The last committed value, intents not looked at."""
        found = self.versions.get(key)
        return found[-1][1] if found else None

    def status_of(self, start_ts: int) -> Record | None:
        return next((r for (_, ts), r in self.records.items() if ts == start_ts), None)

    # -- execution of one message

    def execute(self, method: int, args: tuple[Any, ...]) -> list[Any]:
        verbs: dict[int, Callable[..., list[Any]]] = {
            GET: self._get,
            MGET: self._mget,
            SCAN: self._scan,
            PUT: lambda key, value, cond, ttl: self._write([Op(1, key, value, cond, ttl)], 0, 0),
            DELETE: lambda key, cond: self._write([Op(2, key, None, cond, 0)], 0, 0),
            WRITE: self._write,
            PREWRITE: self._prewrite,
            COMMIT: self._commit,
            ROLLBACK: self._rollback,
            CHECK: self._check,
            RESOLVE: self._resolve,
            HEARTBEAT: self._heartbeat,
            RECOVER: self._recover,
            SETTLE: self._settle,
            FINISH: self._finish,
        }
        return verbs[method](*args)

    def _visible(self, key: bytes, read_ts: int, ignore: list[int] | None) -> tuple[Any, int]:
        if read_ts and read_ts < self.safepoint:
            raise SnapshotTooOld("too old", details={"at": read_ts, "safepoint": self.safepoint})
        lock = self.locks.get(key)
        if lock and lock.op.kind != OP_CHECK:
            mine = not read_ts or max(lock.start_ts, lock.bound) <= read_ts
            if mine and lock.start_ts not in (ignore or ()):
                raise self._locked(key, lock)
        for ts, value in reversed(self.versions.get(key, [])):
            if not read_ts or ts <= read_ts:
                return (None, 0) if value is None else (value, ts)
        return None, 0

    def _locked(self, key: bytes, lock: Lock) -> KeyLocked:
        details = {
            "key": key,
            "txn": lock.start_ts,
            "anchor": lock.anchor,
            "age_ms": self.clock.now_ms() - physical_ms(lock.start_ts),
            "ttl_ms": lock.ttl_ms,
        }
        return KeyLocked("locked", details=details)

    def _get(self, key: bytes, read_ts: int, ignore: list[int] | None) -> list[Any]:
        return list(self._visible(key, read_ts, ignore))

    def _mget(self, keys: list[bytes], read_ts: int, ignore: list[int] | None) -> list[Any]:
        found = []
        for key in keys:
            try:
                found.append(self._visible(key, read_ts, ignore))
            except KeyLocked as met:
                mine = self._laid(met.details["txn"])
                met.details["keys"] = [k for k in keys if (k, met.details["txn"]) in mine]
                raise
        return [[None if value is None else [value, version] for value, version in found]]

    def _scan(
        self,
        start: bytes,
        end: bytes,
        read_ts: int,
        limit: int,
        reverse: bool,
        ignore: list[int] | None,
    ) -> list[Any]:
        keys = sorted({*self.versions, *self.locks}, reverse=reverse)
        keys = [k for k in keys if k >= start and (not end or k < end)]
        rows = []
        for key in keys:
            value, version = self._visible(key, read_ts, ignore)
            if value is not None:
                rows.append([key, value, version])
                if len(rows) >= min(limit, 7):  # a short page must not look like the end
                    return [rows, key if reverse else key + b"\x00"]
        return [rows, None]

    def _admit(self, i: int, op: Op, start_ts: int, blind: bool) -> None:
        lock = self.locks.get(op.key)
        if lock and lock.start_ts != start_ts:
            raise self._locked(op.key, lock)
        if op.kind != OP_CHECK:
            for guard in self.guards.values():
                if guard.start_ts != start_ts and guard.covers(op.key):
                    raise self._guarded(op.key, guard)
        if lock:
            return
        newest, value = self.versions.get(op.key, [(0, None)])[-1]
        if not blind and op.kind != OP_CHECK and newest > start_ts:
            raise WriteConflict(
                "conflict",
                details={"key": op.key, "conflict_ts": newest, "start_ts": start_ts},
            )
        version = newest if value is not None else 0
        if op.cond is not None and op.cond != version:
            details = {"key": op.key, "version": str(version) if version else None, "op": i}
            raise ConditionFailed("condition", details=details)

    def _age(self, start_ts: int) -> None:
        if self.clock.now_ms() - physical_ms(start_ts) > TXN_LIFETIME_MS_MAX:
            raise TxnAborted("too old", details={"txn": start_ts, "reason": "lifetime"})

    def _guarded(self, key: bytes, guard: Guard) -> KeyLocked:
        met = self._locked(key, Lock(guard.start_ts, put(key, b""), guard.anchor, guard.ttl_ms))
        met.details |= {"keys": [guard.start], "kind": "guard"}
        return met

    def _validate(self, start_ts: int, options: dict[str, Any] | None) -> list[Guard]:
        """What was read has no version above start_ts and no intent of another; as guards."""
        said = options or {}
        reads = [Guard(key, None, start_ts) for key in said.get("reads", ())]
        reads += [Guard(start, end, start_ts) for start, end in said.get("ranges", ())]
        for read in reads:
            for key, found in self.versions.items():
                if read.covers(key) and found[-1][0] > start_ts:
                    details = {"key": key, "conflict_ts": found[-1][0], "start_ts": start_ts}
                    raise WriteConflict("read", details=details)
            for key, lock in self.locks.items():
                if read.covers(key) and lock.start_ts != start_ts and lock.op.kind != OP_CHECK:
                    raise self._locked(key, lock)
        return reads

    def _write(
        self, ops: list[Op], start_ts: int, flags: int, options: dict[str, Any] | None = None
    ) -> list[Any]:
        record = self.records.get((ops[0].key, start_ts)) if start_ts else None
        if record and record.status == COMMITTED:
            return [record.commit_ts]
        if record and record.status == ABORTED:
            raise TxnAborted("rolled back", details={"txn": start_ts, "reason": "record"})
        for i, op in enumerate(ops):
            self._admit(i, op, start_ts, blind=not start_ts or bool(flags & BLIND))
        self._validate(start_ts, options)
        commit_ts = self.take()
        for op in ops:
            self._apply(op, commit_ts)
        if start_ts:
            self._age(start_ts)
            self.records[ops[0].key, start_ts] = Record(COMMITTED, commit_ts)
        return [commit_ts]

    def _apply(self, op: Op, commit_ts: int) -> None:
        if op.kind != OP_CHECK:
            value = op.value if op.kind == OP_PUT else None
            self.versions.setdefault(op.key, []).append((commit_ts, value))
            self.versions[op.key].sort(key=lambda v: v[0])

    def _prewrite(
        self,
        start_ts: int,
        anchor: bytes,
        ttl_ms: int,
        ops: list[Op],
        flags: int,
        options: dict[str, Any] | None = None,
    ) -> list[Any]:
        fence = bool(options and options.get("fence"))
        said = options or {}
        first = min([op.key for op in ops], default=b"") or min(reads_of(said))
        here = self.covering(first).covers(anchor)
        record = self.records.get((anchor, start_ts)) if here else None
        if record and record.status == COMMITTED:
            return [record.commit_ts, False, 0, 0] if reads_of(said) else [record.commit_ts]
        if record and record.status == ABORTED:
            raise TxnAborted("rolled back", details={"txn": start_ts, "reason": "record"})
        self._age(start_ts)
        self.waits_for.pop((start_ts, first), None)
        try:
            for i, op in enumerate(ops):
                self._admit(i, op, start_ts, blind=bool(flags & BLIND))
            reads = self._validate(start_ts, options)
        except KeyLocked as met:
            self._wait(start_ts, first, met.details["txn"])
            raise
        if fence and any((op.key, start_ts) in self.fences - self._laid(start_ts) for op in ops):
            raise TxnAborted("fenced", details={"txn": start_ts, "reason": "fence"})
        again = anchor in self.locks and self.locks[anchor].start_ts == start_ts
        now = self.clock.now_ms()
        lived = max(0, now - physical_ms(start_ts))
        fresh = self.take()
        for op in ops:
            new = Lock(start_ts, op, anchor, ttl_ms + lived, fresh if fence else 0)
            self.locks.setdefault(op.key, new)
        for read in reads:
            held = replace(read, anchor=anchor, ttl_ms=ttl_ms + lived)
            self.guards[read.start, start_ts] = held
        bound = max((self.locks[op.key].bound for op in ops), default=0) or fresh
        exact = fence and all(self.locks[op.key].bound for op in ops)
        if any(op.key == anchor for op in ops):
            known = record.min_commit_ts if record else 0
            stage = tuple(tuple(part) for part in (options or {}).get("stage", ()))
            staging = bool(record and record.status == STAGING)
            if stage and not again and known <= bound:
                staging = True
                self.records[anchor, start_ts] = Record(STAGING, 0, known, now, ttl_ms, stage)
            elif not staging:
                self.records[anchor, start_ts] = Record(PENDING, 0, known, now, ttl_ms)
            exact = exact and staging
            bound = max(bound, known)
        if reads:
            return [max(bound, fresh), False, 0, 0]
        return [bound, True] if exact else [max(bound, fresh)]

    def _laid(self, start_ts: int) -> set[tuple[bytes, int]]:
        return {(key, start_ts) for key, lock in self.locks.items() if lock.start_ts == start_ts}

    def _recover(self, start_ts: int, anchor: bytes, keys: list[bytes], fence: bool) -> list[Any]:
        laid = [self.locks[key].bound for key, _ in self._laid(start_ts) if key in keys]
        whole = len(laid) == len(keys) and all(laid)
        if whole or fence:
            self.fences |= {(key, start_ts) for key in keys if key != anchor}
        return [whole, max(laid) if whole else 0]

    def _settle(self, anchor: bytes, start_ts: int, commit_ts: int) -> list[Any]:
        record = self.records.get((anchor, start_ts), Record())
        if record.status == STAGING:
            record = Record(COMMITTED if commit_ts else ABORTED, commit_ts)
            self.records[anchor, start_ts] = record
        return [record.status, record.commit_ts]

    def _wait(self, start_ts: int, first: bytes, holder: int) -> None:
        """Raises TxnAborted for the youngest of a circle."""
        self.waits_for[start_ts, first] = holder
        behind: dict[int, int | None] = {start_ts: None}  # how each was reached
        todo = [start_ts]
        while todo:
            at = todo.pop()
            for (waiter, _), blocker in self.waits_for.items():
                if waiter != at or (blocker in behind and blocker != start_ts):
                    continue
                if blocker == start_ts:
                    circle = [at]
                    while (before := behind[circle[-1]]) is not None:
                        circle.append(before)
                    if start_ts == max(circle):
                        self._end_waits(start_ts)
                        details = {"txn": start_ts, "reason": "deadlock"}
                        raise TxnAborted("deadlock", code="DEADLOCK", details=details)
                    continue
                behind[blocker] = at
                todo.append(blocker)

    def _end_waits(self, start_ts: int) -> None:
        for waiting in [w for w in self.waits_for if w[0] == start_ts]:
            del self.waits_for[waiting]

    def _commit(self, anchor: bytes, start_ts: int, commit_ts: int) -> list[Any]:
        record = self.records.get((anchor, start_ts))
        going = record is not None and record.status in (PENDING, STAGING)
        if record is None or (going and anchor not in self.locks):
            raise TxnAborted("never prewritten", details={"txn": start_ts, "reason": "record"})
        if going and commit_ts >= record.min_commit_ts:
            record = self.records[anchor, start_ts] = Record(COMMITTED, commit_ts)
        return [record.status, record.commit_ts, record.min_commit_ts]

    def _rollback(
        self, anchor: bytes, start_ts: int, options: dict[str, Any] | None = None
    ) -> list[Any]:
        self._end_waits(start_ts)
        record = self.records.get((anchor, start_ts))
        own = bool(options and options.get("own"))
        if record is None or record.status == PENDING or (own and record.status == STAGING):
            record = self.records[anchor, start_ts] = Record(ABORTED)
        return [record.status, record.commit_ts]

    def _check(
        self, anchor: bytes, start_ts: int, push_above: int, ttl_ms: int, *_met: object
    ) -> list[Any]:
        record = self.records.get((anchor, start_ts))
        if record and record.status == STAGING:
            age = self.clock.now_ms() - record.heartbeat_ms
            return [STAGING, 0, record.min_commit_ts, age, "", record.parts]
        if record and record.status != PENDING:
            return [record.status, record.commit_ts, 0, 0, ""]
        seen = record or Record(heartbeat_ms=physical_ms(start_ts), ttl_ms=ttl_ms)
        age = self.clock.now_ms() - seen.heartbeat_ms
        if age > seen.ttl_ms:
            return [*self._rollback(anchor, start_ts), 0, age, ""]
        if push_above and seen.min_commit_ts <= push_above:
            seen = replace(seen, min_commit_ts=push_above + 1)
            self.records[anchor, start_ts] = seen
        return [PENDING, 0, seen.min_commit_ts, age, ""]

    def _resolve(
        self,
        start_ts: int,
        commit_ts: int,
        keys: list[bytes],
        anchor: bytes | None = None,
        user: str | None = None,
    ) -> list[Any]:
        count = 0
        for key in keys:
            count += self.guards.pop((key, start_ts), None) is not None
            lock = self.locks.get(key)
            if lock is None or lock.start_ts != start_ts:
                continue
            del self.locks[key]
            count += 1
            newest = self.versions.get(key, [(0, None)])[-1][0]
            if commit_ts and newest < commit_ts:
                self._apply(lock.op, commit_ts)
        return [count, 0]

    def _finish(self, ends: list[list[Any]]) -> list[Any]:
        told = []
        for start_ts, anchor, commit_ts, keys in ends:
            if anchor is not None:
                try:
                    status, at, _ = self._commit(anchor, start_ts, commit_ts)
                except TxnAborted:
                    status, at = 0, 0
                if (status, at) != (COMMITTED, commit_ts):
                    told.append([status, len(keys)])
                    continue
            self._resolve(start_ts, commit_ts, keys)
            told.append([COMMITTED, 0])
        return [told]

    def _heartbeat(
        self, anchor: bytes, start_ts: int, options: dict[str, Any] | None = None
    ) -> list[Any]:
        record = self.records.get((anchor, start_ts))
        if record is None and options:
            record = Record(PENDING, ttl_ms=options["ttl_ms"])
        if record and record.status in (PENDING, STAGING):
            now = self.clock.now_ms()
            record = replace(record, status=PENDING, heartbeat_ms=now, parts=())
            self.records[anchor, start_ts] = record
        return [record.status if record else PENDING]


def reads_of(options: dict[str, Any] | None) -> list[bytes]:
    """The keys that a transaction read, the first of its ranges, and the last below their ends."""
    said = options or {}
    ranges = said.get("ranges", ())
    ends = [end[:-1] + bytes([end[-1] - 1]) + b"\xff" * 9 for _, end in ranges if end]
    ends += [b"\xff" * 9 for _, end in ranges if not end]
    return [*said.get("reads", ()), *(start for start, _ in ranges), *ends]


def keys_of(method: int, args: tuple[Any, ...]) -> list[bytes]:
    """Every key that a message needs its partition to serve."""
    if method in (WRITE, PREWRITE):
        ops, said = (args[0], args[3:]) if method == WRITE else (args[3], args[5:])
        return [op.key for op in ops] + (reads_of(said[0]) if said else [])
    if method == MGET:
        return list(args[0])
    if method in (RESOLVE, RECOVER):
        return list(args[2])
    if method == FINISH:
        return [key for _, anchor, _, keys in args[0] for key in (anchor or keys[0], *keys)]
    return [args[0]]


class FakeKv:
    """One client's view: its own location cache, its own network.

    `before(sent)` and `after(sent)` are awaited around the execution of each message; a test that
    wants a message lost, late or its sender dead does it there. `latency_ms` is the most that one
    way takes.
    """

    def __init__(self, cluster: Cluster, *, latency_ms: float = 2.0) -> None:
        self.cluster = cluster
        self.latency_ms = latency_ms
        self.cache = list(cluster.partitions)
        self.log: list[Sent] = []
        self.before: Callable[[Sent], Any] | None = None
        self.after: Callable[[Sent], Any] | None = None

    async def locate(self, key: bytes) -> PartitionDescriptor:
        return next(p for p in self.cache if p.covers(key))

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        assert budget_ms > 0, "every remote call has a deadline"
        sent = Sent(method, key, args)
        cached = await self.locate(key)
        delivered = False
        try:
            async with asyncio.timeout(budget_ms / 1000):
                await self._travel(self.before, sent)
                delivered = True
                reply = self._execute(method, key, args, cached)
                await self._travel(self.after, sent)
                return reply
        except TimeoutError:
            if repeatable(method) or not delivered:
                raise Unavailable("no answer") from None
            raise UnknownOutcome("no answer") from None

    def _execute(
        self, method: int, key: bytes, args: tuple[Any, ...], cached: PartitionDescriptor
    ) -> list[Any]:
        here = self.cluster.covering(key)
        if here != cached:
            self.cache = list(self.cluster.partitions)
        whole = all(here.covers(k) for k in keys_of(method, args))
        if method == SCAN:
            whole = args[0] >= here.start and (not here.end or b"" < args[1] <= here.end)
        if not whole:
            raise Moved("moved", details={"descriptor": here.to_wire()})
        if here.id in self.cluster.down:
            raise Unavailable(f"partition {here.id} has no leader")
        self.log.append(Sent(method, key, args))
        return self.cluster.execute(method, args)

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> Any:
        raise InvalidArgument(f"method {method}")

    async def find_txn(self, start_ts: int, *, budget_ms: int = 0) -> bytes | None:
        await self._travel(None, Sent(FIND_TXN, b"", (start_ts,)))
        found = [a for (a, ts) in self.cluster.records if ts == start_ts]
        return found[0] if found else None

    async def _travel(self, hook: Callable[[Sent], Any] | None, sent: Sent) -> None:
        await asyncio.sleep(self.cluster.loop.rng.random() * self.latency_ms / 1000)
        if hook is not None:
            await hook(sent)


class Source(Protocol):
    """What hands out timestamps."""

    loop: SimLoop

    def take(self) -> int: ...


class FakeTso:
    def __init__(self, cluster: Source) -> None:
        self.cluster = cluster

    hybrid = False
    causal_token = 0

    async def now(self) -> int:
        await asyncio.sleep(self.cluster.loop.rng.random() * 0.001)
        ts = self.cluster.take()
        await asyncio.sleep(self.cluster.loop.rng.random() * 0.001)
        return ts
