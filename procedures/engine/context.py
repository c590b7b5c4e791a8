"""What a step gets: its arguments, its state, and a transaction that commits with the step.

`ctx.txn` collects writes and takes a snapshot only when something is read, so that a step that
just writes costs one request. Writes cannot fail half-way: they are stored with the step's new
record or not at all. `put` and `delete` take effect when the step ends; in an async step they may
be awaited or not, both do the same. In a plain (not async) step the reads block its thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from kv.base import limits, ops
from kv.base.errors import InvalidArgument, KvorumError, Refused, TooLarge
from kv.base.ids import TableId
from kv.base.keys import show_user_key, successor, table_prefix, u32
from kv.base.methods import OP_CHECK
from kv.base.ops import Op
from procedures.engine import attributes, plain_data
from procedures.engine.attributes import Attributes
from procedures.engine.grants import fence_ops
from procedures.engine.heartbeats import NO_HEART, key_of
from procedures.engine.outside_events import Outside
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import procedure_name
from procedures.engine.records import Record
from procedures.engine.registry import Declared
from procedures.engine.store import ProcedureStore, Reads, Row
from procedures.engine.submission import Options, Start, checked_name, checked_text
from procedures.engine.typed_values import Shape, plain_of
from procedures.pools.emitted import Emitted
from txn.buffered.write_buffer import WriteBuffer, merged
from txn.results import ScanPage
from txn.shared.refusals import renumber

T = TypeVar("T")
TakeIds = Callable[[int], Awaitable[int]]  # the first of so many
Bytes = bytes | str  # text is taken as UTF-8


class Watch(Protocol):
    """Whoever wants to know which functions a workflow carries out (kvorum/testing)."""

    def __call__(self, ctx: StepContext, fn: Callable[..., object]) -> Callable[..., Any]:
        """What is called in its place, async if `fn` is."""
        ...


class Tables(Protocol):
    """Finds a table by name; kept in memory by whoever owns the catalog."""

    async def resolve(self, namespace: str, table: str) -> TableId:
        """Raises NotFound (NAMESPACE_NOT_FOUND, TABLE_NOT_FOUND)."""
        ...

    async def writable(self, namespace: str, table: str) -> TableId:
        """The same of a table that a step writes to. Raises also Refused (TABLE_RULED)."""
        ...


class Item(NamedTuple):
    """A record of a scan, with its user key."""

    key: bytes
    value: bytes
    version: int


class _Nothing:
    """An awaitable that is done: `put` and `delete` may be awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_NOTHING: Final = _Nothing()


class StepTxn:
    """The transaction of an async step. Keys are storage keys; `table` gives user keys."""

    def __init__(self, store: ProcedureStore, tables: Tables) -> None:
        self._store = store
        self._tables = tables
        self._known: dict[tuple[str, str], TableId] = {}
        self._writable: set[tuple[str, str]] = set()
        # Writes whose tables are not looked up yet, in the order of the step, and these tables
        # (True: written to, False: only checked). One that cannot be taken over stays: a step that
        # goes on after the error must not commit without it.
        self._later: list[tuple[tuple[str, str] | None, Op]] = []
        self._unknown: dict[tuple[str, str], bool] = {}
        self._buffer = WriteBuffer()
        self._reads: Reads | None = None
        self._ended = False
        self._fences: list[tuple[str, int]] = []
        self.held: set[bytes] = set()

    def table(self, namespace: str, name: str) -> StepTable:
        """A table by name. It is looked up when it is used, an unknown one then fails the step."""
        return StepTable(self, namespace, name)

    async def get(self, key: bytes) -> Row | None:
        """The value and its version (0: written by this step itself), None = absent."""
        reads = await self._snapshot()
        own = self._buffer.written(key)
        if own is not None:
            return None if own.value is None else Row(own.value, 0)
        return await reads.get(key)

    async def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        if len(keys) > limits.MULTI_KEYS_MAX:
            raise _too_large("keys of one multi_get", limits.MULTI_KEYS_MAX, len(keys))
        reads = await self._snapshot()
        found = await reads.multi_get(keys)
        for i, key in enumerate(keys):
            own = self._buffer.written(key)
            if own is not None:
                found[i] = None if own.value is None else Row(own.value, 0)
        return found

    async def scan(
        self, start: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> ScanPage:
        """A page of `[start, end)`; its `resume` is the next start (in reverse: the next end)."""
        limit = _page_limit(limit)
        reads = await self._snapshot()

        def read(low: bytes, high: bytes, wanted: int) -> Awaitable[ScanPage]:
            return reads.scan(low, high, limit=wanted, reverse=reverse)

        return await merged(self._buffer, read, start, end, reverse=reverse, limit=limit)

    def put(
        self, key: bytes, value: bytes, *, cond: int | None = None, ttl_ms: int = 0
    ) -> _Nothing:
        """Write when the step commits; `cond` as in kv.base.ops (0 = must be absent)."""
        return self.add(None, ops.put(key, value, cond, ttl_ms))

    def delete(self, key: bytes, *, cond: int | None = None, tombstone: bool = False) -> _Nothing:
        return self.add(None, ops.delete(key, cond, tombstone=tombstone))

    def check(self, key: bytes, cond: int) -> _Nothing:
        """The step commits only if the key has this version then (0 = is absent)."""
        return self.add(None, ops.check(key, cond))

    def hold(self, key: bytes, version: int) -> _Nothing:
        """The same of a row that this step has read at this version: if it is changed or removed
        before the step commits, the step runs again and finds what there is then.
        """
        self.held.add(key)
        return self.check(key, version)

    def fence(self, resource: str, token: int) -> _Nothing:
        """The step commits only while the lock that `token` was given for stands. Not needed for
        the procedure's own locks: a step of one that lost them cannot commit anyway.
        """
        self._open()
        self._fences.append((resource, token))
        return _NOTHING

    async def start_ts(self) -> int:
        """The timestamp of this step's snapshot; taken now if nothing was read yet."""
        return (await self._snapshot()).start_ts

    # -- for StepTable, the executor, and who runs the step elsewhere (kvorum/steps/step_channel.py)
    async def snapshot(self) -> Reads:
        return await self._snapshot()

    @property
    def tables(self) -> Tables:
        return self._tables

    @property
    def known(self) -> dict[tuple[str, str], TableId]:
        """Tables that were looked up."""
        return self._known

    def add(self, table: tuple[str, str] | None, op: Op) -> _Nothing:
        self._open()
        if len(self._later) >= limits.TXN_MEMORY_KEYS_MAX:
            raise _too_large("writes of one step", limits.TXN_MEMORY_KEYS_MAX, len(self._later) + 1)
        self._later.append((table, op))
        if table is not None and table not in self._writable:
            writes = op.kind != OP_CHECK
            if writes or table not in self._known:
                self._unknown[table] = self._unknown.get(table, False) or writes
        return _NOTHING

    async def table_id(self, table: tuple[str, str]) -> TableId:
        found = self._known.get(table)
        if found is None:
            found = self._known[table] = await self._tables.resolve(*table)
        return found

    async def writes(self) -> list[Op]:
        """Everything written, with storage keys. Raises what a write is refused for."""
        while self._unknown:
            table, written = next(iter(self._unknown.items()))
            lookup = self._tables.writable if written else self._tables.resolve
            self._known[table] = await lookup(*table)
            if written:
                self._writable.add(table)
            if self._unknown.get(table) == written:  # else it is written to by now
                del self._unknown[table]
        taken = 0  # nothing is awaited here: reads of other tasks see all of it, in its order
        try:
            for name, op in self._later:
                prefix = b"" if name is None else table_prefix(self._known[name])
                self._buffer.add(op._replace(key=prefix + op.key) if prefix else op)
                taken += 1
        finally:
            del self._later[:taken]
        fences = tuple(self._fences)
        for op in await fence_ops(self, fences) if fences else ():
            self._buffer.add(op)
        self._fences = [fence for fence in self._fences if fence not in fences]
        return self._buffer.ops()

    def in_users_words(self, error: KvorumError) -> KvorumError:
        """An error of this transaction with the user's key and table instead of the storage key,
        and with the place of the write among the step's own: the record and its like go first.
        """
        key = error.details.get("key")
        if isinstance(key, bytes) and "op" in error.details:
            place = next((i for i, op in enumerate(self._buffer.ops()) if op.key == key), None)
            renumber(error, place)
        for (namespace, table), table_id in self._known.items():
            show_user_key(error, table_prefix(table_id), namespace, table)
        return error

    @property
    def reads(self) -> Reads | None:
        """The snapshot, if the step read anything."""
        return self._reads

    @property
    def read_ts(self) -> int:
        """Of that snapshot; 0 = nothing was read."""
        return 0 if self._reads is None else self._reads.start_ts

    def forget(self) -> None:
        """Drop all that was written; what was read stays read."""
        self._later.clear()
        self._unknown.clear()
        self._fences.clear()
        self.held.clear()
        self._buffer = WriteBuffer()

    async def end(self) -> None:
        """No more use: the step committed, failed or was given up."""
        self._ended = True
        reads, self._reads = self._reads, None
        if reads is not None:
            await reads.close()

    async def _snapshot(self) -> Reads:
        self._open()
        if self._later:
            await self.writes()
        if self._reads is None:
            self._reads = await self._store.reads()
        return self._reads

    def _open(self) -> None:
        if self._ended:
            raise Refused(
                "ctx.txn was used after its step had ended: it commits with the step; "
                "keep what a later step needs in ctx.state",
                code="STEP_ENDED",
            )


class StepTable:
    """A table in the transaction of an async step. Keys and values are bytes, or text as UTF-8."""

    __slots__ = ("_name", "_txn")

    def __init__(self, txn: StepTxn, namespace: str, name: str) -> None:
        self._txn = txn
        self._name = (namespace, name)

    async def get(self, key: Bytes) -> Row | None:
        return await self._txn.get(await self._prefix() + _user_key(key))

    async def multi_get(self, keys: Sequence[Bytes]) -> list[Row | None]:
        prefix = await self._prefix()
        return await self._txn.multi_get([prefix + _user_key(key) for key in keys])

    async def scan(
        self,
        *,
        prefix: Bytes = b"",
        start: Bytes = b"",
        end: Bytes = b"",
        limit: int = 0,
        reverse: bool = False,
    ) -> list[Item]:
        """At most `limit` rows of `[start, end)` and `prefix`; as many as asked for unless there
        are no more. 0 = SCAN_ROWS_MAX.
        """
        limit = _page_limit(limit)
        table = await self._txn.table_id(self._name)
        base = table_prefix(table)
        low, high = base + _bytes("start", start), u32(table + 1)
        if end:
            high = min(high, base + _bytes("end", end))
        if prefix:
            within = base + _bytes("prefix", prefix)
            low, high = max(low, within), min(high, successor(within))
        items: list[Item] = []
        while low < high:
            page = await self._txn.scan(low, high, limit=limit - len(items), reverse=reverse)
            items += [Item(k[len(base) :], value, version) for k, value, version in page.items]
            if page.resume is None or len(items) >= limit:
                break
            low, high = (low, page.resume) if reverse else (page.resume, high)
        return items

    def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl_ms: int = 0,
    ) -> _Nothing:
        """Write when the step commits; a condition that does not hold then fails the step."""
        if if_absent and if_version is not None:
            raise InvalidArgument("if_absent and if_version contradict each other: give one")
        data = _bytes("value", value)
        if len(data) > limits.VALUE_BYTES_MAX:
            raise _too_large("bytes of a value", limits.VALUE_BYTES_MAX, len(data))
        cond = 0 if if_absent else if_version
        return self._txn.add(self._name, ops.put(_user_key(key), data, cond, ttl_ms))

    def delete(self, key: Bytes, *, if_version: int | None = None) -> _Nothing:
        return self._txn.add(self._name, ops.delete(_user_key(key), if_version))

    async def _prefix(self) -> bytes:
        return table_prefix(await self._txn.table_id(self._name))


class SyncStepTxn:
    """The transaction of a plain step: the same, its reads block the step's thread."""

    def __init__(self, txn: StepTxn, loop: asyncio.AbstractEventLoop) -> None:
        self._txn = self.inner = txn
        self._loop = loop
        self.put = txn.put
        self.delete = txn.delete
        self.check = txn.check
        self.fence = txn.fence

    def table(self, namespace: str, name: str) -> SyncStepTable:
        return SyncStepTable(self, self._txn.table(namespace, name))

    def get(self, key: bytes) -> Row | None:
        return self.wait(self._txn.get(key))

    def multi_get(self, keys: Sequence[bytes]) -> list[Row | None]:
        return self.wait(self._txn.multi_get(keys))

    def scan(self, start: bytes, end: bytes, *, limit: int = 0, reverse: bool = False) -> ScanPage:
        return self.wait(self._txn.scan(start, end, limit=limit, reverse=reverse))

    def wait(self, coro: Coroutine[object, None, T]) -> T:
        """Run on the loop, wait in this thread."""
        # A simulated loop stands still while its threads run.
        if (wait := getattr(self._loop, "wait_in_thread", None)) is not None:
            return cast("T", wait(coro))
        return asyncio.run_coroutine_threadsafe(coro, self._loop).result()


class SyncStepTable:
    """A table in the transaction of a plain step."""

    def __init__(self, txn: SyncStepTxn, table: StepTable) -> None:
        self._txn = txn
        self._table = table
        self.put = table.put
        self.delete = table.delete

    def get(self, key: Bytes) -> Row | None:
        return self._txn.wait(self._table.get(key))

    def multi_get(self, keys: Sequence[Bytes]) -> list[Row | None]:
        return self._txn.wait(self._table.multi_get(keys))

    def scan(
        self,
        *,
        prefix: Bytes = b"",
        start: Bytes = b"",
        end: Bytes = b"",
        limit: int = 0,
        reverse: bool = False,
    ) -> list[Item]:
        return self._txn.wait(
            self._table.scan(prefix=prefix, start=start, end=end, limit=limit, reverse=reverse)
        )


@dataclass(frozen=True, slots=True)
class Child:
    """How a child of the last round ended."""

    id: int
    name: str
    state: str
    result: Any
    error: Plain | None


class StepContext(Outside):
    """One execution of a step or an undo.

    id, name, owner, parent   of the procedure (`parent` 0 = none)
    step                      of this execution
    failure                   why the attempt before failed, by the retry policy; None = first one
    round                     1, and one more after every `again`: what the step's own logic may use
    attempt                   counts retries, too, so it differs from run to run: for logs
    token                     the same for every attempt of this execution, different for any other:
                              hand it to systems outside as their idempotency key. Raises Refused
                              (TOO_EARLY) in an early run (early_steps.py), which is then dropped
    txn                       commits with the step
    args                      what was submitted
    state                     a dict kept between steps; changes are stored with the step
    wake                      why a waiting step runs: event, timeout, restart, children; else ""
    children                  how the children of the round that led here ended, in order
    now_ms                    the engine's clock when the step began
    trace                     the span that it belongs to (W3C traceparent), "" = none: for spans
                              of your own, and for systems outside
    scheduled_ms              the time for which a schedule started it, however late; 0 = none did
    """

    __slots__ = (
        "_args",
        "_attributes",
        "_early",
        "_emits",
        "_progress",
        "_record",
        "_shape",
        "_signals",
        "_starts",
        "_state",
        "_take_ids",
        "_token",
        "attempt",
        "children",
        "heart",
        "id",
        "kinds",
        "left_ms",
        "missing",
        "name",
        "now_ms",
        "one_attempt",
        "owner",
        "parent",
        "round",
        "step",
        "threads",
        "too_early",
        "trace",
        "txn",
        "wake",
        "watch",
    )

    def __init__(
        self,
        record: Record,
        *,
        step: str,
        token: str,
        attempt: int,
        wake: str,
        now_ms: int,
        children: tuple[Child, ...],
        txn: object,
        shape: Shape | None = None,
        progress: Callable[[int, float, str], None] = lambda _id, _part, _text: None,
        early: bool = False,
        left_ms: int = 0,
        one_attempt: bool = False,
        take_ids: TakeIds | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        self.threads: Executor | None = None  # for parts of it
        self.watch: Watch | None = None
        self._early = early
        self._take_ids = take_ids  # for procedures that it starts
        self._starts: list[Start] = []
        self._emits: list[Emitted] = []
        self.heart = NO_HEART
        self.trace = record.trace
        self.kinds = kinds or {}  # of its attributes, as declared
        self._attributes: list[Attributes] = []  # the last counts; copies of a context share it
        self.left_ms = left_ms  # of its deadline, or …
        self.one_attempt = one_attempt  # … of this attempt; 0 = it has none
        self.too_early = False  # this run has asked for what an early one must not have
        self._record = record
        self._shape = shape
        self._progress = progress
        self._args: object = _UNSET
        self._state: Any = _UNSET
        self._signals: list[str] = []
        self.missing = set()
        self.id = record.id
        self.name = record.name
        self.owner = record.owner
        self.parent = record.parent
        self.step = step
        self._token = token
        self.round = record.attempt + 1
        self.attempt = attempt
        self.wake = wake
        self.now_ms = now_ms
        self.children = children
        self.txn = txn

    @property
    def token(self) -> str:
        if self._early:
            self.too_early = True
            raise Refused(
                f"step {self.name}.{self.step} runs before its submission is durable "
                "(early=True): nothing outside may hear of it yet; it is run again",
                code="TOO_EARLY",
            )
        return self._token

    @property
    def args(self) -> Any:
        if self._args is _UNSET:
            self._args = plain_data.decode(self._record.args)
            if self._shape is not None:
                self._args = self._shape.read(self._args, f"arguments of {self.name}")
        return self._args

    @property
    def state(self) -> Plain:
        if self._state is _UNSET:
            self._state = plain_data.decode(self._record.data)
        state: dict[str, object] = self._state
        return state

    @property
    def scheduled_ms(self) -> int:
        return self._record.scheduled_ms

    @property
    def scheduled_for(self) -> datetime | None:
        """`scheduled_ms` as a moment (UTC); None: no schedule started it."""
        ms = self._record.scheduled_ms
        return datetime.fromtimestamp(ms / 1000, UTC) if ms else None

    @property
    def failure(self) -> Plain | None:
        """Why the attempt before this one failed (`code`, `message`, `type`, …), where the step's
        retry policy has it run again; None: this is the first that counts.
        """
        trying = self._record.trying
        return None if trying is None else trying.error.to_plain(traced=False)

    def fence(self, resource: str) -> int:
        """The fencing token of a lock that this procedure declares and has: larger than that of
        every earlier holder, over all failovers, and the same until the procedure ends. Hand it to
        systems outside that refuse smaller ones, or to writers: their writes with
        `fence=(resource, token)` are refused once the lock has ended. Raises Refused (NOT_LOCKED).
        """
        if self._record.grant and any(resource == name for _, name in self._record.locks):
            return self._record.grant
        declared = ", ".join(name for _, name in self._record.locks) or "none"
        raise Refused(
            f"{self.name} has no lock of {resource!r:.80} (locks: {declared}): declare it with "
            "locks=",
            code="NOT_LOCKED",
        )

    def attributes(self, **values: object) -> Plain:
        """Say by what this procedure can be found, from when this step is committed: of those that
        its declaration names; None takes one away. All that it has then. Raises InvalidArgument
        (ATTRIBUTE_UNKNOWN, BAD_ATTRIBUTE), TooLarge.
        """
        if values:
            self._attributes.append(attributes.changed(self.name, self.kinds, self._said(), values))
        return attributes.shown(self._said())

    def _said(self) -> Attributes:
        return self._attributes[-1] if self._attributes else self._record.attributes

    def signal(self, event: str) -> None:
        """Wake, once this step has committed, every procedure that is suspended on `event`.
        Raises InvalidArgument.
        """
        self._signals.append(checked_text("event", event, limits.NONCE_CHARS_MAX))

    def submit(
        self,
        which: str | Declared,
        args: object = None,
        *,
        queue: str = "",
        key: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
        token: str = "",
        cancel: bool = False,
    ) -> Any:
        """Start a procedure of its own, in this step's transaction; its id (to be awaited in an
        async step). It is no child: it needs nobody's locks, nobody waits for it, and a failure
        of either is not the other's.

        token   one of `external()`: its end completes it, with its result or its error
        cancel  it is cancelled when this procedure ends; else it goes on
        Raises InvalidArgument, TooLarge; an unknown type, and arguments that it does not take, fail
        the step when that has ended.
        """
        name = checked_text("procedure name", procedure_name(which), limits.NAME_CHARS_MAX)
        if token:
            self._own(token)
        options = Options(queue, priority, delay_ms, key=key)
        return self._run(self.start([(name, args, options, token, cancel)], first=True))

    def heartbeat(self, details: object = None) -> None:
        """Say that this run lives, and how far it has come: the next attempt has `details`, plain
        data, as `last_heartbeat`. As often as you like: it is stored once a second. For steps that
        declare `heartbeat_ms`. Raises InvalidArgument, TooLarge.
        """
        self.heart.beat(key_of(self._token, self.round), details, f"step {self.name}.{self.step}")

    @property
    def last_heartbeat(self) -> Any:
        """The details that this execution said last, in this run or an earlier one; None: none."""
        return self.heart.last(key_of(self._token, self.round))

    def emit(self, name: str, value: object = None) -> None:
        """Tell those who read the events of this procedure (`db.events(id)`) something, once this
        step has committed. Raises InvalidArgument, TooLarge.
        """
        checked_name("event", name)
        what, most = f"the event {name:.80}", limits.PROCEDURE_EVENTS_EMITTED_MAX
        if len(self._emits) >= most:
            raise _too_large("events of one step", most, len(self._emits) + 1)
        data = plain_data.encode(plain_of(value, what), what, limits.PROCEDURE_EVENT_BYTES_MAX)
        self._emits.append(Emitted(name, data))

    def watched(self, fn: Callable[..., object]) -> Callable[..., Any]:
        """What is called for `fn`."""
        return fn if self.watch is None else self.watch(self, fn)

    # -- for the executor, and for who runs it elsewhere (kvorum/steps/step_channel.py)
    async def in_thread(self, fn: Callable[..., T], *args: object) -> T:
        """A call of users' plain code, beside the loop."""
        call = functools.partial(contextvars.copy_context().run, fn, *args)
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)

    async def start(
        self, some: Sequence[tuple[str, object, Options, str, bool]], *, first: bool = False
    ) -> Any:
        """Start these: their ids (the first one)."""
        most = limits.PROCEDURE_CHILDREN_MAX
        if len(self._starts) + len(some) > most:
            raise _too_large("procedures started by one step", most, len(self._starts) + len(some))
        assert self._take_ids is not None, "who only looks starts nothing"
        given = []
        for name, args, options, token, cancel in some:
            what = f"arguments of {name}"
            data = plain_data.encode(plain_of(args, what), what, limits.PROCEDURE_ARGS_BYTES_MAX)
            given.append((name, data, options, token, cancel))
        id = await self._take_ids(len(given))
        self._starts += [Start(id + i, *one) for i, one in enumerate(given)]
        return id if first else list(range(id, id + len(given)))

    def rehearsed(self) -> StepContext:
        """The same, of which nothing counts: to find out whether something can be said."""
        other = copy.copy(self)
        other._signals, other._emits = [], []
        inner = self.txn if isinstance(self.txn, StepTxn) else None
        other.txn = StepTxn(inner._store, inner._tables) if inner is not None else None
        return other

    def forget(self) -> None:
        """Drop all that was written, signalled, started and emitted."""
        getattr(self.txn, "inner", self.txn).forget()
        self._signals.clear()
        self._starts.clear()
        self._emits.clear()
        self._attributes.clear()

    @property
    def starts(self) -> list[Start]:
        return self._starts

    @property
    def found_by(self) -> Attributes | None:
        """Its attributes from now on; None: as they were."""
        return self._attributes[-1] if self._attributes else None

    async def take_ids(self, count: int) -> int:
        """For a run of it elsewhere."""
        assert self._take_ids is not None, "who only looks starts nothing"
        return await self._take_ids(count)

    @property
    def record(self) -> Record:
        return self._record

    @property
    def given(self) -> tuple[str, bool]:
        """Its token, and whether it is early."""
        return self._token, self._early

    @property
    def renewed(self) -> bool:
        """Whether each of its runs has `left_ms` for itself."""
        return self.one_attempt or self._record.final

    def said(self, part: float, text: str) -> None:
        """What it says of its progress, elsewhere."""
        self._progress(self.id, part, text)

    @property
    def emits(self) -> list[Emitted]:
        return self._emits

    def did(
        self,
        signals: Sequence[str],
        starts: Sequence[Start],
        emits: Sequence[Emitted],
        found_by: Attributes | None,
        *,
        too_early: bool,
    ) -> None:
        """What it did elsewhere."""
        self._signals += signals
        self._starts += starts
        self._emits += emits
        if found_by is not None:
            self._attributes.append(found_by)
        self.too_early = too_early

    def signals(self) -> list[str]:
        return self._signals

    def state_bytes(self) -> bytes:
        """The state to store. Raises InvalidArgument or TooLarge."""
        if self._state is _UNSET:
            return self._record.data
        what = f"ctx.state of {self.name}"
        return plain_data.encode(self._state, what, limits.PROCEDURE_STATE_BYTES_MAX)


class _Unset:
    pass


_UNSET: Final = _Unset()


def _page_limit(limit: int) -> int:
    if type(limit) is not int or not 0 <= limit <= limits.SCAN_ROWS_MAX:
        raise InvalidArgument(f"limit must be 0 to {limits.SCAN_ROWS_MAX}, got {limit!r:.40}")
    return limit or limits.SCAN_ROWS_MAX


def _bytes(what: str, data: Bytes) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise InvalidArgument(f"{what} must be bytes or text, not {type(data).__name__}")


def _user_key(key: Bytes) -> bytes:
    data = _bytes("key", key)
    if not data:
        raise InvalidArgument(f"key is empty; a key has 1 to {limits.KEY_BYTES_MAX} bytes")
    if len(data) > limits.KEY_BYTES_MAX:
        raise _too_large("bytes of a key", limits.KEY_BYTES_MAX, len(data))
    return data


def _too_large(what: str, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"{actual} {what}, the limit is {limit}; use less in one step",
        details={"what": what, "limit": limit, "actual": actual},
    )
