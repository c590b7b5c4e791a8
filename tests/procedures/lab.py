"""A place to run procedures in virtual time: a store that can crash, an executor, a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError, NotFound
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kvorum.testing.simulation.loop import SimClock, SimLoop, SimRng
from procedures.engine.executor import Executor
from procedures.engine.memory_store import MemoryStore
from procedures.engine.records import Record
from procedures.engine.registry import Registry
from procedures.engine.store import ProcedureStore
from procedures.engine.submission import Submission

TABLE = TableId(100)


class Crash(BaseException):
    """The process died here. Nothing in the engine may survive it, whatever it catches."""


class OneTable:
    """Every name is the same table, but `nowhere`."""

    async def resolve(self, namespace: str, table: str) -> TableId:
        if table == "nowhere":
            raise NotFound(f"no table {table}", code="TABLE_NOT_FOUND")
        return TABLE

    writable = resolve


class CrashingStore:
    """Passes everything on; dies at the `at`-th write, before it or just after it.

    Dead is dead: every later call fails, too, until somebody opens the inner store again.
    """

    WRITES = frozenset({"insert", "start", "update", "remove"})

    def __init__(self, inner: Any, at: int = 0, *, after: bool = False) -> None:
        self.inner = inner
        self.at = at
        self.after = after
        self.writes = 0
        self.dead = False

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kw: Any) -> Any:
            if self.dead:
                raise Crash
            if name not in self.WRITES:
                return await method(*args, **kw)
            self.writes += 1
            if self.writes != self.at:
                return await method(*args, **kw)
            if self.after:
                await method(*args, **kw)
            self.dead = True
            raise Crash

        return call


class LaggingStore:
    """Passes everything on; writes take their time, so that steps overlap."""

    def __init__(self, inner: Any, rng: SimRng) -> None:
        self.inner = inner
        self.rng = rng

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kw: Any) -> Any:
            if name in CrashingStore.WRITES:
                await asyncio.sleep(self.rng.random() / 100)
            return await method(*args, **kw)

        return call


class Lab:
    """One store, and executors over it one after the other (or two at once)."""

    def __init__(self, loop: SimLoop, types: list[type], *, seed: int = 0, store: Any = None):
        self.loop = loop
        self.clock = SimClock(loop)
        self.rng = SimRng(seed)
        self.store: Any = store if store is not None else MemoryStore()
        self.calls: dict[str, int] = {}  # how often code ran, by whatever name it gives
        self.outside: dict[str, int] = {}  # an outside system: what it did, by idempotency token
        self.running: set[int] = set()
        self.opened = asyncio.Event()
        self.types = Registry()
        for cls in types:
            self.types.add(cls, make=self._maker(cls) if isinstance(cls, type) else None)

    def _maker(self, cls: type) -> Callable[[], object]:
        def make() -> object:
            thing = cls()
            thing.lab = self
            return thing

        return make

    def executor(self, store: ProcedureStore | None = None, **kw: Any) -> Executor:
        return Executor(
            store or self.store,
            self.types,
            OneTable(),
            self.clock,
            LoopTimers(self.loop),
            self.rng,
            **kw,
        )

    def count(self, what: str) -> int:
        """How often `what` was counted, this time included."""
        self.calls[what] = self.calls.get(what, 0) + 1
        return self.calls[what]

    def row(self, key: str) -> bytes | None:
        """What the test table holds (memory store)."""
        table = self.store.table
        found = table.read(table_prefix(TABLE) + key.encode(), table.clock)
        return None if found is None else found.value

    def number(self, key: str) -> int:
        return int(self.row(key) or b"0")


async def run(
    executor: Executor, name: str, args: Any = None, *, nonce: str = "", wait_ms: int = 60_000
) -> Record:
    """Submit and wait for the end."""
    id = await executor.submit(Submission(name, args, "tester", nonce))
    record = await executor.wait(id, wait_ms)
    assert record.ended, record
    return record


async def refusal(work: Awaitable[Any]) -> KvorumError:
    """The error that `work` ends with."""
    try:
        result = await work
    except KvorumError as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def crashed(error: BaseException) -> bool:
    """Whether a Crash is all that happened."""
    if isinstance(error, BaseExceptionGroup):
        return all(crashed(e) for e in error.exceptions)
    return isinstance(error, Crash)
