"""Definitions of what only one session has (temporary tables): the same procedures, run at once in
the session's transaction, over a catalog among its private rows (`txn.private`).

    SYSTEM   u32 0xF8000000 + key     a row of the system's tables, as the procedures know it

Nobody else reads or writes there, so nothing is waited for between two versions of a descriptor, a
partition is only a row of the map, and nothing has to be undone step by step: a definition that
fails fails its statement, and with that what was written goes. What a ROLLBACK takes back it takes
back of definitions, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kv.base import limits
from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import FIRST_PRIVATE_TABLE, NodeId, PartitionId, TableId
from kv.base.keys import PRIVATE, from_u64, u32, u64
from kv.base.ops import delete, put
from kv.base.placement import Placement
from kv.base.ports import Rng, Timers
from procedures.engine import plain_data
from procedures.engine.procedure import Again, Children, Done, Next
from procedures.engine.registry import Registry
from procedures.engine.store import Row
from procedures.master.map.partitions import Place, Reader
from sqlproxy.catalog import catalog, relations, sequences
from sqlproxy.catalog.relations import Relations
from sqlproxy.ddl import ddl, ddl_objects, emptying
from sqlproxy.ddl.change import registering
from sqlproxy.ddl.change.states import ChangeServices
from sqlproxy.ddl.change.version_waits import Progress, Settled
from sqlproxy.rows.schema import Sequence as SequenceRow
from txn.private import PrivateRows, PrivateWrites
from txn.results import ScanPage

_FIRST_ID: Final = FIRST_PRIVATE_TABLE + 1
_IDS: Final = (1 << 32) - 1 - _FIRST_ID
_NOBODY: Final = Place((NodeId(1),))


class PrivateIds:
    """Ids of what sessions of a process have for themselves: each is given out once, so that what
    is remembered by an id is never another session's.
    """

    def __init__(self) -> None:
        self._given = 0

    @property
    def following(self) -> int:
        return _FIRST_ID + self._given % _IDS

    def given(self, following: int) -> None:
        """Up to this one they are given out."""
        self._given += (following - self.following) % _IDS


def _at(key: bytes) -> bytes:
    """Where a row of the system's lies; rows of tables lie where they do."""
    return key if key >= PRIVATE else PRIVATE + key


class _Private:
    """Private rows under the keys that the procedures know."""

    def __init__(self, writes: PrivateWrites) -> None:
        self._writes = writes

    async def scan(
        self, start: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> ScanPage:
        limit = limit or limits.SCAN_ROWS_MAX
        if start >= PRIVATE:
            return await self._writes.scan(start, end, limit=limit, reverse=reverse)
        last = PRIVATE + end if end else u32(_FIRST_ID)
        page = await self._writes.scan(PRIVATE + start, last, limit=limit, reverse=reverse)
        cut = len(PRIVATE)
        page.items = [(key[cut:], value, version) for key, value, version in page.items]
        page.resume = None if page.resume is None else page.resume[cut:]
        return page

    def put(self, key: bytes, value: bytes, *, cond: int | None = None, ttl_ms: int = 0) -> None:
        self._writes.add(put(_at(key), value, cond))

    def delete(self, key: bytes, *, cond: int | None = None, tombstone: bool = False) -> None:
        self._writes.add(delete(_at(key), cond))

    def hold_range(self, start: bytes, end: bytes) -> None:
        """Nobody else changes it."""


class PrivateCatalog(_Private):
    """In the shape that `sqlproxy.catalog` wants (catalog.Writer)."""

    start_ts: Final = 0

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return self._writes.get(_at(key))

    def check(self, key: bytes, version: int) -> None:
        """Nobody else changes it."""


class _StepTxn(_Private):
    """In the shape that steps want (procedures.engine.context.StepTxn)."""

    async def get(self, key: bytes) -> Row | None:
        value, version = self._writes.get(_at(key))
        return None if value is None else Row(value, version)

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        return [await self.get(key) for key in keys]

    async def start_ts(self) -> int:
        return 0


@dataclass(slots=True)
class _Context:
    """What steps of definitions ask of procedures.engine.context.StepContext."""

    args: Any
    state: dict[str, Any]
    txn: _StepTxn
    now_ms: int
    id: int = 0
    attempt: int = 1
    round: int = 1

    def progress(self, part: float, text: str = "") -> None:
        pass


class _Ranges:
    """`procedures.master.map.partitions.Maker` of key ranges that are in one memory."""

    def __init__(self, drop: Callable[[bytes, bytes], None]) -> None:
        self._drop = drop

    async def places(self, t: Reader, ids: Sequence[PartitionId], wanted: Placement) -> list[Place]:
        return [_NOBODY for _ in ids]

    async def create(
        self, descriptors: Sequence[PartitionDescriptor], *, late: bool = False
    ) -> None:
        pass

    async def close(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        pass

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        for one in descriptors:
            self._drop(one.start, one.end)


class _AtOnce(Settled):
    """Nobody else uses what is declared."""

    async def proxies(self, database: str, progress: Progress = lambda _text: None) -> None:
        pass

    async def native_writers(self, table: TableId) -> None:
        pass


class PrivateDefinitions:
    """Runs the procedures of definitions in one session's transactions."""

    def __init__(
        self,
        ids: PrivateIds,
        timers: Timers,
        rng: Rng,
        now_ms: Callable[[], int],
        writes: Callable[[], PrivateWrites],
    ) -> None:
        """`writes`: of the transaction that is under way."""
        self._ids, self._now_ms, self._writes = ids, now_ms, writes
        self._registry = Registry()
        changed: Callable[[str, str], None] = lambda _namespace, _name: None  # noqa: E731
        ranges = _Ranges(lambda start, end: self._writes().drop(start, end))
        services = ChangeServices(ranges, changed, timers, rng=rng)
        object.__setattr__(services, "settled", _AtOnce(timers))
        ddl.register(self._registry, services.ddl)
        emptying.register(self._registry, services.ddl)
        ddl_objects.register(self._registry, changed)
        registering.register(self._registry, services)

    async def run(self, name: str, args: Mapping[str, object]) -> Any:
        """A procedure to its end; its result. Raises KvorumError: then the statement fails, and
        with it what was written.
        """
        return await self._run(self._writes(), name, args)

    async def _run(self, writes: PrivateWrites, name: str, args: object) -> Any:
        what = f"arguments of {name}"
        given = plain_data.decode(plain_data.encode(args, what, limits.PROCEDURE_ARGS_BYTES_MAX))
        declared = self._registry.get(name)
        ctx = _Context(given, {}, _StepTxn(writes), self._now_ms())
        step = declared.first
        while True:
            outcome = await self._step(writes, declared.steps[step].method(declared.make(), ctx))
            await asyncio.sleep(0)  # nothing in a step waits: it is all in memory
            match outcome:
                case Next():
                    step = outcome.step
                case Done():
                    return outcome.result
                case Children():
                    for child, wanted in outcome.calls:
                        await self._run(writes, child, wanted)
                    step = outcome.then
                case Again():
                    ctx.now_ms += outcome.delay_ms  # no cache remembers what it waits for
                case _:
                    raise AssertionError(f"{name} ends a step with {outcome!r:.100}")

    async def _step(self, writes: PrivateWrites, step: Awaitable[Any]) -> Any:
        """One step, in which nobody else has the loop, so that what it takes of ids is its own."""
        counter = catalog.counter_key(catalog.COUNTER_TABLE)
        writes.add(put(_at(counter), seal(counter, u64(self._ids.following))))
        try:
            return await step
        finally:
            value, _ = writes.get(_at(counter))
            assert value is not None
            self._ids.given(from_u64(value))


async def declare_private(writes: PrivateWrites, database: str, namespace: str, owner: str) -> None:
    """The catalog of a session that has nothing yet."""
    t = PrivateCatalog(writes)
    await catalog.create_namespace(t, database)
    await catalog.create_namespace(t, namespace, owner=owner)


async def declared_privately(writes: PrivateWrites, database: str) -> Relations:
    """What is declared there; what did not change is the same object as in `writes.derived`."""
    found = await relations.list_database(PrivateCatalog(writes), database)
    before = writes.derived
    if not isinstance(before, Relations):
        return found
    known: dict[int, Any] = {int(one.id): one for one in before}

    def kept(one: Any) -> Any:
        old = known.get(int(one.id))
        return old if old == one else one

    return Relations(
        found.namespace,
        tuple(kept(one) for one in found.tables),
        tuple(kept(one) for one in found.views),
        tuple(kept(one) for one in found.sequences),
        found.types,
        found.functions,
        found.spaces,
    )


class _Stands:
    """Where sequences stand (catalog.Writer): a rollback does not take that back, but for what the
    transaction itself has set.
    """

    start_ts: Final = 0

    def __init__(self, rows: PrivateRows, writes: Callable[[], PrivateWrites | None]) -> None:
        self._rows, self._writes = rows, writes

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        writes = self._writes()
        return (self._rows.get(_at(key)) or (None, 0)) if writes is None else writes.get(_at(key))

    def put(self, key: bytes, value: bytes) -> None:
        writes = self._writes()
        if writes is not None and writes.wrote(_at(key)):
            writes.add(put(_at(key), value))
        else:
            self._rows.put(_at(key), value, 1)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        raise NotImplementedError

    def delete(self, key: bytes) -> None:
        raise NotImplementedError

    def check(self, key: bytes, version: int) -> None:
        raise NotImplementedError


class PrivateNumbers:
    """Values of private sequences (`sqlproxy.session.shared.services.Numbers`), taken when they are
    wanted: nobody else takes any.
    """

    def __init__(self, rows: PrivateRows, writes: Callable[[], PrivateWrites | None]) -> None:
        """`writes`: of the transaction that is under way, if it has any."""
        self._stands = _Stands(rows, writes)

    async def reserve(self, sequence: SequenceRow, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            found += await self._taken(sequence, count - len(found))
        return found

    async def some(self, sequence: SequenceRow, count: int) -> tuple[list[int], int]:
        return await self._taken(sequence, count), 0

    async def _taken(self, sequence: SequenceRow, count: int) -> list[int]:
        run = await sequences.take(self._stands, sequence, count)
        return list(range(run.first, run.first + run.size * run.step, run.step))

    def give_back(self, sequence: SequenceRow, values: list[int], run: int) -> None:
        if values:
            before = values[0] - sequence.increment
            called = sequence.minimum <= before <= sequence.maximum
            stand = sequences.Stand(before if called else values[0], called)
            sequences.put_stand(self._stands, sequence, stand)

    def at_once(self, sequence: SequenceRow, count: int) -> list[int] | None:
        return None

    def take_back(self, sequence: SequenceRow, values: list[int]) -> None:
        self.give_back(sequence, values, 0)

    async def set_value(self, sequence: SequenceRow, value: int, called: bool = True) -> None:
        sequences.set_value(self._stands, sequence, value, called)

    async def stand(self, sequence: SequenceRow) -> tuple[int, int, bool]:
        at = await sequences.stand(self._stands, sequence)
        return at.last, 0, at.called

    def forget(self, sequence: int) -> None:
        """Nothing is remembered."""
