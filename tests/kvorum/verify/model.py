"""A correct database in memory, behind the same `Backend` protocol, with a network that refuses and
loses answers; and ways to break it.

Every operation takes effect at one moment between two random delays, so what clients see is
strictly serializable unless `broken` names a fault:

    stale-read       reads see the state of some time ago
    lags             so do reads of a moment that their client names
    forgets          now and then an acknowledged write is not done
    no-conflicts     transactions commit without looking for conflicts
    torn             a batch or a transaction takes effect in two moments
    refused-but-done now and then a refusal comes after the write was done
    twice            now and then a write is done again later
    oracle-back      now and then a timestamp is an old one
    forgets-locks    who locks is told that he has it, and nobody else is kept out
    skips-guards     serializable transactions are not checked for what they read
    own-writes-only  single reads see the state as of the last write over the same connection
    feed-drops       now and then the feed leaves a transaction out …
    feed-repeats     … or tells one twice, or a part of one
    no-keys          a queue has several of one key at work …
    no-limit         … or more than it may …
    no-rate          … or lets them begin as soon as they come …
    no-turns         … or one after the other, whatever their keys …
    last-first       … or the last of a key first …
    no-dedup         … or takes what was submitted twice for two
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kv.base.errors import ConditionFailed, Unavailable, UnknownOutcome, WriteConflict
from kvorum.api.model import (
    Item,
    Page,
    ProcedureInfo,
    Put,
    Record,
    ScanSpec,
    SnapshotInfo,
    TableKey,
    TxnState,
)
from kvorum.api.watching import Change, Event, WatchSpec
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation import loop as simloop
from kvorum.verify.catalog import workload
from kvorum.verify.counting import STEPS
from kvorum.verify.history import History
from kvorum.verify.run_workload import Run, Settings

Write = tuple[str, str | None]
TABLE = "t"


@dataclass
class Model:
    """The state, and how it answers. `faults`: the share of refusals, and that of lost answers."""

    rng: random.Random
    faults: float = 0.0
    broken: str = ""
    now: int = 0
    rows: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)
    log: list[tuple[int, dict[str, str | None]]] = field(default_factory=list)
    outcomes: dict[int, TxnState] = field(default_factory=dict)
    procedures: dict[str, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    locked: dict[str, int] = field(default_factory=dict)
    queue: ModelQueue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = ModelQueue(self)

    # ------------------------------------------------------------------------------- the state

    def tick(self) -> int:
        self.now += 1
        return self.now

    def seen(self, key: str, at: int) -> Record | None:
        for version, value in reversed(self.rows.get(key, [])):
            if version <= at:
                return None if value is None else Record(value.encode(), version)
        return None

    def newest(self, key: str) -> int:
        return self.rows[key][-1][0] if self.rows.get(key) else 0

    def apply(self, writes: Sequence[Write]) -> int:
        if self.broken == "forgets" and self.rng.random() < 0.02:
            return self.tick()
        version = self.tick()
        loop = asyncio.get_running_loop()
        at_once = 1 if self.broken == "torn" else len(writes)
        self._put(writes[:at_once], version)
        if writes[at_once:]:
            loop.call_later(0.004, lambda: self._put(writes[at_once:], self.tick()))
        if self.broken == "twice" and self.rng.random() < 0.02:
            loop.call_later(0.02, lambda: self._put(writes, self.tick()))
        return version

    def _put(self, writes: Sequence[Write], version: int) -> None:
        self.log.append((version, dict(writes)))
        for key, value in writes:
            self.rows.setdefault(key, []).append((version, value))

    def past(self, at: int) -> int:
        return max(1, at - 15) if self.broken == "lags" else at

    def read_at(self) -> int:
        return max(1, self.now - 15) if self.broken == "stale-read" else self.now

    # ----------------------------------------------------------------------------- the network

    async def read(self, call: Callable[[], Any]) -> Any:
        await self.delay()
        if self.rng.random() < self.faults:
            raise Unavailable("the model says no")
        result = call()
        await self.delay()
        return result

    async def write(self, call: Callable[[], Any]) -> Any:
        await self.delay()
        roll = self.rng.random()
        if roll < self.faults:
            if self.broken == "refused-but-done":
                call()
            raise Unavailable("the model says no")
        if roll < 2 * self.faults:
            self._lose(call)
            await self.delay()
            raise UnknownOutcome("the model lost the answer")
        result = call()
        await self.delay()
        return result

    def _lose(self, call: Callable[[], Any]) -> None:
        """Done, not done, or done later."""

        def late() -> None:
            with contextlib.suppress(WriteConflict, ConditionFailed):
                call()

        fate = self.rng.random()
        if fate < 0.4:
            late()
        elif fate < 0.7:
            asyncio.get_running_loop().call_later(self.rng.random() * 0.1, late)

    async def delay(self) -> None:
        await asyncio.sleep(self.rng.random() * 0.003)


class ModelBackend:
    """`kvorum.api.backend.Backend` over a model, as far as workloads use it."""

    def __init__(self, model: Model) -> None:
        self.m = model
        self._wrote = 1

    def _read_at(self) -> int:
        return self._wrote if self.m.broken == "own-writes-only" else self.m.read_at()

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        m = self.m
        return await m.read(lambda: m.seen(key.decode(), at or self._read_at()))

    async def multi_get(self, keys: Sequence[TableKey], at: int) -> Any:
        m = self.m

        def call() -> list[Record | None]:
            snapshot = m.past(at) if at else self._read_at()
            return [m.seen(k.key.decode(), snapshot) for k in keys]

        return await m.read(call), at

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        m = self.m
        return await m.read(lambda: scanned(m, spec, spec.at or m.read_at()))

    async def put(
        self, ns: str, table: str, key: bytes, value: bytes, cond: int | None, ttl_ms: int
    ) -> int:
        return await self._checked([(key.decode(), value.decode(), cond)])

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int:
        return await self._checked([(key.decode(), None, cond)])

    async def batch(self, ops: Sequence[Any]) -> int:
        rows: list[tuple[str, str | None, int | None]] = []
        for op in ops:
            if isinstance(op, Put):
                cond = 0 if op.if_absent else op.if_version
                rows.append((op.key.decode(), op.value.decode(), cond))
            else:
                rows.append((op.key.decode(), None, op.if_version))
        return await self._checked(rows)

    async def _checked(self, rows: Sequence[tuple[str, str | None, int | None]]) -> int:
        m = self.m

        def call() -> int:
            for key, _, cond in rows:
                there = m.seen(key, m.now)
                if cond is not None and cond != (there.version if there else 0):
                    version = str(there.version) if there else None
                    raise ConditionFailed("not so", details={"version": version})
            self._wrote = m.apply([(key, value) for key, value, _ in rows])
            return self._wrote

        return await m.write(call)

    async def begin(self, *, isolation: str, **_how: Any) -> Any:
        return await self.m.read(lambda: ModelSession(self.m, isolation))

    async def status(self, txn: int) -> TxnState:
        return await self.m.read(lambda: self.m.outcomes.get(txn, TxnState("pending")))

    async def timestamps(self, count: int, above: int = 0) -> int:
        m = self.m

        def call() -> int:
            if m.broken == "oracle-back" and m.rng.random() < 0.02 and m.now > 3:
                return m.now - 2
            return m.tick()

        return await m.read(call)

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> Any:
        return await self.m.read(lambda: ModelWatcher(self.m, spec.above or self.m.now))

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int, user: str = "") -> SnapshotInfo:
        m = self.m
        return await m.read(lambda: SnapshotInfo(m.tick(), at or m.read_at(), owner, ttl_ms))

    async def renew_snapshot(self, id: int, user: str = "") -> None:
        await self.m.delay()

    async def release_snapshot(self, id: int, user: str = "") -> bool:
        return await self.m.read(lambda: True)

    async def create_namespace(self, name: str, change: Any = None) -> None:
        await self.m.delay()

    async def create_table(self, ns: str, name: str, spec: Any) -> Any:
        await self.m.delay()

    async def submit(
        self, name: str, args: Any, nonce: str, options: dict[str, Any] | None = None
    ) -> int:
        m = self.m
        if options:
            return await m.write(lambda: m.queue.enqueue(args["ticket"], options))

        def call() -> int:
            if nonce not in m.procedures:
                m.procedures[nonce] = number = len(m.procedures) + 1
                for step in range(STEPS):
                    last = step == STEPS - 1
                    asyncio.get_running_loop().call_later(
                        0.001 * (step + 1), lambda last=last: self._step(number, args["key"], last)
                    )
            return m.procedures[nonce]

        return await m.write(call)

    def _step(self, number: int, key: str, last: bool) -> None:
        there = self.m.seen(key, self.m.now)
        self.m.apply([(key, str(int(there.value) + 1 if there else 1))])
        if last:
            self.m.ended.add(number)

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo:
        for _ in range(wait_ms):
            if procedure in self.m.ended:
                break
            await asyncio.sleep(0.001)
        ended = procedure in self.m.ended
        result = self.m.queue.tickets.get(procedure, STEPS)
        state, result = ("SUCCESS", result) if ended else ("RUNNABLE", None)
        return await self.m.read(lambda: ProcedureInfo(procedure, "count", state, result=result))

    async def control(self, what: str, request: dict[str, Any]) -> dict[str, Any]:
        assert what == "queue.set", "no workload asks for more"
        await self.m.delay()
        self.m.queue.begin(request)
        return request

    async def close(self) -> None:
        pass


class ModelQueue:
    """Tickets: one of a key at a time, keys in turn, so many at once, at a rate."""

    def __init__(self, model: Model) -> None:
        self.m = model
        self.tickets: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._waiting: list[tuple[int, str]] = []  # id and key, as they came
        self._running: list[str] = []  # keys
        self._served: dict[str, int] = {}  # key → when
        self._at_once, self._rate, self._burst = 0, 0, 0
        self._tokens, self._filled = 0.0, 0.0
        self._armed = False

    def begin(self, limit: dict[str, Any]) -> None:
        self._at_once = limit["max_concurrent"]
        self._rate, self._burst = limit["rate_per_s"], limit["burst"]

    def enqueue(self, ticket: str, options: dict[str, Any]) -> int:
        text, broken = options["dedup"], self.m.broken
        if text in self._ids and (broken != "no-dedup" or self.m.rng.random() > 0.3):
            return self._ids[text]
        id = self._ids[text] = len(self.tickets) + 10**6
        self.tickets[id] = ticket
        self._waiting.append((id, options["key"]))
        self._look()
        return id

    def _look(self) -> None:
        loop, broken = asyncio.get_running_loop(), self.m.broken
        now = loop.time()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        while self._waiting:
            if len(self._running) >= self._at_once and broken != "no-limit":
                return
            if self._tokens < 1 and broken != "no-rate":
                if not self._armed:
                    self._armed = True
                    loop.call_later((1 - self._tokens) / self._rate + 1e-6, self._again)
                return
            free = [
                one for one in self._waiting if broken == "no-keys" or one[1] not in self._running
            ]
            if not free:
                return
            if broken == "no-turns":
                id, key = free[0]
            else:
                key = min((one[1] for one in free), key=lambda key: self._served.get(key, 0))
                mine = [id for id, own in free if own == key]
                id = mine[-1 if broken == "last-first" else 0]
            self._waiting.remove((id, key))
            self._running.append(key)
            self._served[key] = self.m.tick()
            self._tokens -= 1
            loop.call_later(0.002, self._note, id, "began")
            loop.call_later(0.02, self._end, id, key)

    def _again(self) -> None:
        self._armed = False
        self._look()

    def _note(self, id: int, what: str) -> None:
        key = f"{self.tickets[id]}/{what}"
        there = self.m.seen(key, self.m.now)
        self.m.apply([(key, str(int(there.value) + 1 if there else 1))])

    def _end(self, id: int, key: str) -> None:
        self._note(id, "ended")
        self._running.remove(key)
        self.m.ended.add(id)
        self._look()


class ModelWatcher:
    """`kvorum.api.watching.Watcher`; it may lose its connection like everything else."""

    def __init__(self, model: Model, above: int) -> None:
        self.m = model
        self.position = above

    async def next(self) -> Event:
        await self.m.read(lambda: None)
        if self.m.now == self.position:
            await asyncio.sleep(0.01)
        after = [(version, changes) for version, changes in self.m.log if version > self.position]
        if not after:
            self.position = self.m.now
            return Event("resolved", self.position, [])
        version, changes = after[0]
        roll = self.m.rng.random()
        if self.m.broken == "feed-drops" and roll < 0.05 and len(after) > 1:
            version, changes = after[1]
        if not (self.m.broken == "feed-repeats" and roll < 0.05):
            self.position = version
        rows = [
            Change(key.encode(), None if value is None else value.encode())
            for key, value in changes.items()
        ]
        return Event("changes", version, rows)

    async def close(self) -> None:
        pass


class ModelSession:
    """`kvorum.api.backend.Session`."""

    def __init__(self, model: Model, isolation: str) -> None:
        self.m = model
        self.id = self.start_ts = model.tick()
        self._serializable = isolation == "serializable"
        self._renews = isolation == "read_committed"
        self._locked: dict[str, int] = {}  # the newest version of each
        self._writes: dict[str, str | None] = {}
        self._reads: set[str] = set()
        self._ranges: list[ScanSpec] = []

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        name = key.decode()
        if name in self._writes:
            value = self._writes[name]
            return None if value is None else Record(value.encode(), 0)
        self._reads.add(name)
        return await self.m.read(lambda: self.m.seen(name, self._at()))

    async def lock(
        self, ns: str, table: str, key: bytes, wait: str = "wait", strength: str = "update"
    ) -> Record | None:
        name, m = key.decode(), self.m
        assert wait == "wait", "no workload asks for less"
        while m.broken != "forgets-locks" and m.locked.setdefault(name, self.id) != self.id:
            await m.delay()
        self._locked[name] = m.newest(name)
        return await m.read(lambda: m.seen(name, m.now))

    def _at(self) -> int:
        return self.m.now if self._renews else self.start_ts

    def _unlock(self) -> None:
        for name in self._locked:
            if self.m.locked.get(name) == self.id:
                del self.m.locked[name]

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        self._ranges.append(spec)
        page = await self.m.read(lambda: scanned(self.m, spec, self._at()))
        items = {item.key.decode(): item for item in page.items}
        for name, value in self._writes.items():
            if inside(spec, name):
                items.pop(name, None)
                if value is not None:
                    items[name] = Item(name.encode(), value.encode(), 0)
        return Page([items[name] for name in sorted(items)], None, self.start_ts)

    async def put(
        self,
        ns: str,
        table: str,
        key: bytes,
        value: bytes,
        cond: int | None = None,
        ttl_ms: int = 0,
    ) -> None:
        assert cond is None, "no workload asks for conditions in a transaction"
        self._writes[key.decode()] = value.decode()

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None = None) -> None:
        assert cond is None, "no workload asks for conditions in a transaction"
        self._writes[key.decode()] = None

    async def commit(self) -> int:
        try:
            return await self.m.write(self._commit) if self._writes else self.start_ts
        finally:
            self._unlock()

    def _commit(self) -> int:
        m = self.m
        if m.broken not in ("no-conflicts", "forgets-locks") and self._conflicts():
            m.outcomes[self.id] = TxnState("aborted")
            raise WriteConflict("somebody was faster")
        version = m.apply(list(self._writes.items()))
        m.outcomes[self.id] = TxnState("committed", version)
        return version

    def _conflicts(self) -> bool:
        if self._renews:
            return any(self.m.newest(name) != at for name, at in self._locked.items())
        return any(map(self._in_the_way, self._changed()))

    def _changed(self) -> list[str]:
        return [name for name in self.m.rows if self.m.newest(name) > self.start_ts]

    def _in_the_way(self, name: str) -> bool:
        if name in self._writes:
            return True
        guards = self._serializable and self.m.broken != "skips-guards"
        return guards and (name in self._reads or any(inside(s, name) for s in self._ranges))

    async def abort(self) -> None:
        self._unlock()
        await self.m.delay()

    async def heartbeat(self) -> None:
        await self.m.delay()


def inside(spec: ScanSpec, name: str) -> bool:
    key = name.encode()
    return (
        (spec.prefix is None or key.startswith(spec.prefix))
        and (spec.start is None or key >= spec.start)
        and (spec.end is None or key < spec.end)
    )


def scanned(m: Model, spec: ScanSpec, at: int) -> Page:
    found = [
        Item(name.encode(), row.value, row.version)
        for name in sorted(m.rows, reverse=spec.reverse)
        if inside(spec, name) and (row := m.seen(name, at)) is not None
    ]
    return Page(found, None, at)


def history_of(
    name: str,
    *,
    seed: int,
    faults: float = 0.0,
    broken: str = "",
    isolation: str = "snapshot",
    clients: int = 5,
    seconds: float = 1.0,
) -> History:
    """What the clients of a workload saw of a model, in virtual time."""

    async def main(loop: simloop.SimLoop) -> History:
        model = Model(random.Random(f"model {seed}"), faults, broken)
        databases = [AsyncDatabase(ModelBackend(model), simloop.SimRng(seed)) for _ in range(2)]

        def rng(what: str) -> random.Random:
            return random.Random(f"{seed} {what}")

        settings = Settings(table=TABLE, clients=clients, seed=seed, isolation=isolation)
        run = Run(workload(name)(), settings, databases, monotonic=loop.time, rng=rng)
        await run.prepare()
        stop = asyncio.Event()
        loop.call_later(seconds, stop.set)
        await run.load(stop)
        model.faults = 0.0
        await asyncio.sleep(1.0)  # what is late is done
        await run.final()
        return run.history

    return simloop.run(main, seed)
