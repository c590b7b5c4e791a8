"""The node methods PROC_*: what clients may ask the executor of this node.

    PROC_SUBMIT  name, args (packed), owner, nonce|None  → id; and what PROC_GET would answer, if it
                                                     is small and succeeded (early_steps.py)
    PROC_GET     id, wait_ms                       → map (view.py, packed); answers when it ends, or
                                                     in time
    PROC_LIST    {state?, owner?, name?, limit?, before?}  → [map (packed), …], the newest first;
                                                     `before` of the next page, if this one ended
                                                     before `limit`; 0: there are no more
    PROC_ACK     id                                → true
    PROC_ABORT   id, reason, dry_run               → true

Packed = the msgpack bytes of a plain value (plain_data.py): users' data may hold lists longer than
the frames of the native protocol allow, and a frame is refused as a whole.

`before` (an id) continues a list. A list may be asked for procedures of any age that are still
kept; steps are in the answers of PROC_GET only. Results are in both, so a page of a list ends with
the one that fills SCAN_PAGE_BYTES_MAX; and after PROCEDURE_LOOKED_MAX that were looked at, or
PROCEDURE_PASSED_MAX that its reader may not see, of which nothing else tells.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache
from typing import Final, NamedTuple

from kv.base import limits
from kv.base.errors import InvalidArgument
from kv.base.node_methods import Caller, Methods
from kv.base.ports import Clock, Timers
from kv.base.rights import Kind, Resource, is_named
from kv.base.wire_row import WireRow
from procedures.engine import plain_data
from procedures.engine.audit import Seen
from procedures.engine.executor import Executor
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Record
from procedures.engine.roster import Live
from procedures.engine.submission import Submission
from procedures.engine.view import info
from procedures.verbs import PROC_ABORT, PROC_ACK, PROC_GET, PROC_LIST, PROC_SUBMIT

_ANSWER_MS: Final = 500  # what a waiting reply leaves of its caller's patience
_FILTERS: Final = frozenset({"state", "owner", "name", "limit", "before"})
_STATES: Final = frozenset(s.name for s in State if s is not State.ROLLING_BACK)
_RUNNING: Final = frozenset({State.RUNNABLE.name, State.WAITING.name})


class ProcedureService:
    """Answers for one executor. Also usable directly, by whoever lives in the same process."""

    def __init__(
        self,
        executor: Executor,
        clock: Clock,
        timers: Timers,
        more: Callable[[Record], dict[str, object]] = lambda _record: {},
    ) -> None:
        """`more`: what else PROC_GET returns of a procedure, by its record."""
        self._executor = executor
        self._more = more
        self._clock = clock
        self._timers = timers

    def register(self, dispatcher: Methods) -> None:
        """Serve the methods from now on."""

        async def submit(caller: Caller, args: WireRow) -> list[object]:
            name, packed, owner, nonce = args
            data = plain_data.read(packed, f"arguments of {name:.80}")
            id = await self.submit(name, data, owner=caller.user or owner, nonce=nonce)
            ended = self._executor.succeeded(id)
            return [id] if ended is None else [id, plain_data.pack(await self._described(ended))]

        async def get(caller: Caller, args: WireRow) -> WireRow:
            left_ms = int((caller.deadline - self._timers.monotonic()) * 1000) - _ANSWER_MS
            shown = await self.get(args[0], wait_ms=max(0, min(args[1], left_ms)))
            return [plain_data.pack(shown)]

        async def listing(caller: Caller, args: WireRow) -> list[object]:
            if not caller.reads_some(Kind.PROCEDURE_TYPE):
                return [[], 0]
            wanted = dict(args[0])
            return list(await self.page(wanted, seen_by(caller, wanted)))

        async def ack(_caller: Caller, args: WireRow) -> list[object]:
            await self._executor.acknowledge(args[0])
            return [True]

        async def abort(_caller: Caller, args: WireRow) -> list[object]:
            id, reason, dry_run = args
            if dry_run:
                await self._executor.check_abort(id)
            else:
                await self._executor.abort(id, reason)
            return [True]

        dispatcher.register(PROC_SUBMIT, submit)
        dispatcher.register(PROC_GET, get)
        dispatcher.register(PROC_LIST, listing)
        dispatcher.register(PROC_ACK, ack)
        dispatcher.register(PROC_ABORT, abort)

    async def submit(self, name: str, args: object, *, owner: str, nonce: str | None = None) -> int:
        return await self._executor.submit(Submission(name, args, owner, nonce or ""))

    async def get(self, id: int, *, wait_ms: int = 0) -> Plain:
        """The map of view.py. Raises NotFound (PROCEDURE_NOT_FOUND)."""
        return await self._described(await self._executor.wait(id, wait_ms))

    async def _described(self, record: Record) -> dict[str, object]:
        history = await self._executor.store.history(record, limits.PROCEDURE_HISTORY_SHOWN_MAX)
        return self._info(record, history) | self._more(record)

    async def page(self, wanted: Plain, seen: Seen = None) -> tuple[list[bytes], int]:
        """Procedures that fit every filter and are of a type that is `seen`, packed, the newest
        first; and the id below which to ask on for more within `limit`, 0: these are all. Raises
        InvalidArgument.
        """
        filters = _filters(wanted)
        if filters.name is not None and seen is not None and not seen(filters.name):
            return [], 0
        rows: list[bytes] = []
        size = looked = passed = 0
        async with aclosing(self._newest(filters)) as records:
            async for record in records:
                if seen is not None and not seen(record.name):
                    passed += 1
                    if passed == limits.PROCEDURE_PASSED_MAX:
                        return rows, record.id
                    continue
                looked += 1
                if filters.fit(record):
                    shown = self._info(record, None)
                    if filters.state in (None, shown["state"]):
                        rows.append(plain_data.pack(shown))
                        size += len(rows[-1])
                        if len(rows) == filters.limit:
                            break
                if size >= limits.SCAN_PAGE_BYTES_MAX or looked >= limits.PROCEDURE_LOOKED_MAX:
                    return rows, record.id
        return rows, 0

    async def _newest(self, wanted: _Filters) -> AsyncGenerator[Record, None]:
        """Records in falling order of their ids: what has not ended is known, the rest is read."""
        if wanted.state in _RUNNING:
            for id in self._live_ids(wanted.before):
                stored = await self._executor.store.load(id)
                if stored is not None:
                    yield stored.record
            return
        before = wanted.before
        while page := await self._executor.store.newest(before, limits.PROCEDURE_PAGE_MAX):
            for stored in page:
                yield stored.record
            before = page[-1].record.id

    def _live_ids(self, before: int) -> list[int]:
        return [
            live.id for live in reversed(self._executor.live()) if not before or live.id < before
        ]

    def _info(self, record: Record, history: Sequence[Entry] | None) -> dict[str, object]:
        return shown(self._executor, record, history)


def seen_by(caller: Caller, said: Plain) -> Seen:
    """Which types whoever asks may see. A node that asks for a user says which of them (`seen`, as
    grants write them), which is taken out of `said`. Raises InvalidArgument.
    """
    names = said.pop("seen", None)
    if names is not None and not (
        isinstance(names, list) and all(isinstance(one, str) for one in names)
    ):
        raise InvalidArgument("seen must be a list of names of types")
    whole = caller.reads(Resource(Kind.PROCEDURE_TYPE, "*"))
    if whole and names is None:
        return None
    reads = cache(lambda name: whole or caller.reads(Resource(Kind.PROCEDURE_TYPE, name)))
    return cache(lambda name: reads(name) and (names is None or is_named(name, names)))


def shown(
    executor: Executor, record: Record, history: Sequence[Entry] | None = None
) -> dict[str, object]:
    """The map of view.py, with what this executor knows of one that lives."""
    live, now = executor.live_one(record.id), executor.now_ms()
    own = executor.types.is_own(record.name)
    if live is None:
        return info(record, history, now, own=own)
    return info(
        record,
        history,
        now,
        running=live.running or live.queued,
        retrying=live.retry,
        parked=live.parked,
        more=_alive(executor, live, now),
        own=own,
    )


def _alive(executor: Executor, live: Live, now_ms: int) -> dict[str, object]:
    """Of one that has not ended: who has it, how far it is, what keeps it."""
    found: dict[str, object] = {}
    if live.worker:
        found["worker"] = live.worker
    if live.progress is not None:
        found["progress"] = {"part": live.progress[0], "text": live.progress[1]}
    began, limit_ms, step = live.step_began
    slow_ms = live.slow_ms or (now_ms - began if began and now_ms - began > limit_ms else 0)
    if slow_ms:
        found["stuck"] = {"step": step or "", "running_ms": slow_ms}
    if (pause := executor.pause_of(live)) is not None:
        found["paused"] = pause
    crew = executor.crew
    if crew is not None and (why := crew.why_waits(live)):
        found["waits"] = why
    return found


class _Filters(NamedTuple):
    """A checked request of PROC_LIST; None and 0: whatever."""

    state: str | None
    owner: str | None
    name: str | None
    limit: int
    before: int

    def fit(self, record: Record) -> bool:
        """Owner and name; the state is that of the map shown."""
        return self.owner in (None, record.owner) and self.name in (None, record.name)


def _filters(wanted: Plain) -> _Filters:
    unknown = sorted(set(wanted) - _FILTERS)
    if unknown:
        raise InvalidArgument(
            f"unknown filter {unknown[0]!r:.60}; there are {', '.join(sorted(_FILTERS))}"
        )
    state = wanted.get("state")
    if state is not None and state not in _STATES:
        raise InvalidArgument(
            f"unknown state {state!r:.60}; there are {', '.join(sorted(_STATES))}"
        )
    for field in ("owner", "name"):
        if not isinstance(wanted.get(field), str | None):
            raise InvalidArgument(f"the filter {field} must be text")
    limit = wanted.get("limit") or limits.PROCEDURE_LIST_DEFAULT
    if type(limit) is not int or not 0 < limit <= limits.PROCEDURE_PAGE_MAX:
        raise InvalidArgument(f"limit must be 1 to {limits.PROCEDURE_PAGE_MAX}, got {limit!r:.40}")
    before = wanted.get("before") or 0
    if isinstance(before, str) and before.isascii() and before.isdigit() and len(before) <= 20:
        before = int(before)
    if type(before) is not int or not 0 <= before < 1 << 64:
        raise InvalidArgument(f"before must be the id of a procedure, got {before!r:.40}")
    return _Filters(state, wanted.get("owner"), wanted.get("name"), limit, before)
