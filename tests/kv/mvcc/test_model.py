"""Random histories against a model that keeps every version of every key in a plain dict."""

from __future__ import annotations

import random
from typing import Any

from kv.base.errors import ConditionFailed, KeyLocked, TxnAborted, WriteConflict
from kv.base.methods import BLIND, COMMITTED
from kv.base.ops import Op, delete, put
from kv.base.timestamps import physical_ms
from tests.kit.each import each
from tests.kv.mvcc.store import NOW_MS, Store, at

KEYS = [b"", b"\x00", b"a", b"a\x00", b"a\x00\x01", b"a\x01", b"b", b"\xff", b"\xff\xff"]
Version = tuple[int, bytes | None, int]  # commit_ts, value, expire_ms (0 = never)


class Model:
    """`versions[key]` in commit order. What a snapshot holds is one line."""

    def __init__(self) -> None:
        self.versions: dict[bytes, list[Version]] = {key: [] for key in KEYS}

    def add(self, ops: list[Op], ts: int) -> None:
        for op in ops:
            gone = self.versions[op.key] and self.versions[op.key][-1][1] is None
            if op.value is None and (gone or not self.versions[op.key]):
                continue
            expire = physical_ms(ts) + op.ttl_ms if op.ttl_ms else 0
            self.versions[op.key].append((ts, op.value, expire))

    def get(self, key: bytes, ts: int) -> tuple[bytes | None, int]:
        seen = [v for v in self.versions[key] if v[0] <= ts]
        if not seen:
            return None, 0
        version, value, expire = seen[-1]
        if value is None or (expire and expire <= physical_ms(ts)):
            return None, 0
        return value, version

    def changed(self, key: bytes) -> int:
        """The last version that changed what readers see: deleting an expired record does not, and
        leaves no trace if the collector was there first.
        """
        for i in range(len(self.versions[key]) - 1, -1, -1):
            ts, value, _ = self.versions[key][i]
            before = self.versions[key][i - 1] if i else (0, None, 0)
            expired = before[2] and before[2] <= physical_ms(ts)
            if value is not None or not expired:
                return ts
        return 0

    def scan(self, start: bytes, end: bytes, ts: int, reverse: bool) -> list[Any]:
        keys = sorted((k for k in KEYS if start <= k and (not end or k < end)), reverse=reverse)
        found = [(key, *self.get(key, ts)) for key in keys]
        return [item for item in found if item[1] is not None]


class History:
    """Drives a store and a model with the same random steps."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store, self.model = Store(), Model()
        self.clock = 10
        self.open: dict[int, tuple[list[Op], bytes]] = {}  # start_ts → prewritten ops, anchor
        self.floor = 0
        self.serial = 0

    def tick(self) -> int:
        self.clock += self.rng.choice((1, 1, 2, 30))
        self.store.now_ms = NOW_MS + self.clock
        return at(self.clock)

    def ops(self) -> list[Op]:
        rng = self.rng
        keys = rng.sample(KEYS, rng.randrange(1, 4))
        return [
            delete(key)
            if rng.random() < 0.3
            else put(key, b"%d" % self.clock, ttl_ms=rng.choice((0, 0, 0, 20, 200)))
            for key in keys
        ]

    def batch(self) -> None:
        self.serial += 1  # a start timestamp is never used twice
        start = at(self.clock - self.rng.randrange(8), self.serial)
        ops, flags = self.ops(), self.rng.choice((0, BLIND))
        ts = self.tick()
        newest = max((v[0] for op in ops for v in self.model.versions[op.key]), default=0)
        changed = max(self.model.changed(op.key) for op in ops)
        locked = any(self.store.lock(op.key) for op in ops)
        try:
            self.store.write(*ops, ts=ts, start=start, flags=flags)
        except KeyLocked:
            assert locked
        except WriteConflict:
            assert not flags
            assert newest > start
        except TxnAborted:
            assert start < self.floor
        else:
            assert not locked
            assert flags or changed <= start
            self.model.add(ops, ts)

    def condition(self) -> None:
        key = self.rng.choice(KEYS)
        ts = self.tick()
        version = self.model.get(key, ts)[1]
        cond = self.rng.choice((0, version, version + 1))
        try:
            self.store.write(put(key, b"cas", cond=cond), ts=ts)
        except ConditionFailed:
            assert cond != version
        except KeyLocked:
            assert self.store.lock(key)
        else:
            assert cond == version
            self.model.add([put(key, b"cas")], ts)

    def prewrite(self) -> None:
        ops, start = self.ops(), self.tick()
        try:
            self.store.prewrite(*ops, start=start, anchor=ops[0].key, ttl=10**6)
        except KeyLocked:
            return
        self.open[start] = (ops, ops[0].key)

    def finish(self) -> None:
        if not self.open:
            return
        start = self.rng.choice(sorted(self.open))
        ops, anchor = self.open.pop(start)
        keys = [op.key for op in ops]
        if self.rng.random() < 0.3:
            self.store.rollback(anchor, start)
            self.store.resolve(*keys, start=start, ts=0)
            return
        ts = self.tick()
        assert self.store.commit(anchor, start, ts).status == COMMITTED
        self.model.add(ops, ts)
        for key in self.rng.sample(keys, len(keys)):
            assert self.store.resolve(key, start=start, ts=ts) == 1

    def collect(self) -> None:
        safepoint = at(self.clock - self.rng.randrange(10, 60))
        self.floor = max(self.floor, safepoint)
        self.store.collect(safepoint, rows_max=self.rng.choice((1, 3, 100)))

    def read(self) -> None:
        """Every kind of read at a random timestamp; intents are known to commit later than now."""
        rng = self.rng
        low = max(self.floor, at(0))
        ts = rng.choice((at(self.clock), low, rng.randrange(low, at(self.clock) + 1)))
        ts, ignore = max(ts, low), list(self.open)
        for key in KEYS:
            assert self.store.get(key, ts, ignore=ignore) == self.model.get(key, ts)
        start, end = sorted(rng.sample([*KEYS, b"a\x00\x00", b"c"], 2))
        if rng.random() < 0.2:
            end = b""
        for reverse in (False, True):
            found = self.store.scan_all(
                start,
                end,
                ts=ts,
                limit=rng.choice((1, 2, 50)),
                rows_max=rng.choice((1, 2, 1000)),
                reverse=reverse,
                ignore=ignore,
            )
            assert found == self.model.scan(start, end, ts, reverse)


@each("seed", range(60))
def test_every_read_equals_the_model(seed: int) -> None:
    """A version would be lost, invented, or shown to the wrong snapshot."""
    history = History(seed)
    steps = [
        *[history.batch] * 6,
        *[history.condition] * 2,
        *[history.prewrite] * 2,
        *[history.finish] * 2,
        history.collect,
        *[history.read] * 3,
    ]
    for _ in range(150):
        history.rng.choice(steps)()
    history.read()
