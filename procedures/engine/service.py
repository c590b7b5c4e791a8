"""The node methods PROC_*: what clients may ask the executor of this node (FEATURES M).

    PROC_SUBMIT  name, args (packed), owner, nonce|None  → id
    PROC_GET     id, wait_ms                       → map (view.py, packed); answers when it ends, or
                                                     in time
    PROC_LIST    {state?, owner?, name?, limit?, before?}  → [map (packed), …], the newest first
    PROC_ACK     id                                → true
    PROC_ABORT   id, reason, dry_run               → true

Packed = the msgpack bytes of a plain value (plain.py): users' data may hold lists longer than the
frames of the native protocol allow, and a frame is refused as a whole.

`before` (an id) continues a list. A list may be asked for procedures of any age that are still
kept; steps are in the answers of PROC_GET only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, Final, Protocol

from kv.base import limits, methods
from kv.base.errors import InvalidArgument
from kv.base.ports import Clock, Timers
from procedures.engine import plain
from procedures.engine.executor import Executor
from procedures.engine.procedure import State
from procedures.engine.records import Entry, Record
from procedures.engine.submission import Submission
from procedures.engine.view import info

_ANSWER_MS: Final = 500  # what a waiting reply leaves of its caller's patience
_FILTERS: Final = frozenset({"state", "owner", "name", "limit", "before"})
_STATES: Final = frozenset(s.name for s in State if s is not State.ROLLING_BACK)
_RUNNING: Final = frozenset({State.RUNNABLE.name, State.WAITING.name})


class Caller(Protocol):
    """What a handler is told about its request (kv.server.dispatcher.Context)."""

    @property
    def deadline(self) -> float: ...


Handler = Callable[[Any, list[Any]], Awaitable[list[Any]] | list[Any]]


class Methods(Protocol):
    """The dispatcher of a node."""

    def register(self, method: int, handler: Handler) -> None: ...


class ProcedureService:
    """Answers for one executor. Also usable directly, by whoever lives in the same process."""

    def __init__(self, executor: Executor, clock: Clock, timers: Timers) -> None:
        self._executor = executor
        self._clock = clock
        self._timers = timers

    def register(self, dispatcher: Methods) -> None:
        """Serve the methods from now on."""

        async def submit(_caller: Caller, args: list[Any]) -> list[Any]:
            name, packed, owner, nonce = args
            data = plain.read(packed, f"arguments of {name:.80}")
            return [await self.submit(name, data, owner=owner, nonce=nonce)]

        async def get(caller: Caller, args: list[Any]) -> list[Any]:
            left_ms = int((caller.deadline - self._timers.monotonic()) * 1000) - _ANSWER_MS
            told = await self.get(args[0], wait_ms=max(0, min(args[1], left_ms)))
            return [plain.pack(told)]

        async def listing(_caller: Caller, args: list[Any]) -> list[Any]:
            return [[plain.pack(told) for told in await self.find(args[0])]]

        async def ack(_caller: Caller, args: list[Any]) -> list[Any]:
            await self._executor.acknowledge(args[0])
            return [True]

        async def abort(_caller: Caller, args: list[Any]) -> list[Any]:
            id, reason, dry_run = args
            if dry_run:
                await self._executor.check_abort(id)
            else:
                await self._executor.abort(id, reason)
            return [True]

        dispatcher.register(methods.PROC_SUBMIT, submit)
        dispatcher.register(methods.PROC_GET, get)
        dispatcher.register(methods.PROC_LIST, listing)
        dispatcher.register(methods.PROC_ACK, ack)
        dispatcher.register(methods.PROC_ABORT, abort)

    async def submit(self, name: str, args: Any, *, owner: str, nonce: str | None = None) -> int:
        return await self._executor.submit(Submission(name, args, owner, nonce or ""))

    async def get(self, id: int, *, wait_ms: int = 0) -> dict[str, Any]:
        """The map of view.py. Raises NotFound (PROCEDURE_NOT_FOUND)."""
        record = await self._executor.wait(id, wait_ms)
        history = await self._executor.store.history(record, limits.PROCEDURE_HISTORY_SHOWN_MAX)
        return self._info(record, history)

    async def find(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """Procedures that fit every filter, the newest first. Raises InvalidArgument."""
        state, owner, name, limit, before = _filters(wanted)

        def fits(record: Record) -> bool:
            return (
                (owner is None or record.owner == owner)
                and (name is None or record.name == name)
                and (state is None or self._info(record, ())["state"] == state)
            )

        found: list[dict[str, Any]] = []
        ids = self._live_ids(before) if state in _RUNNING else None
        while len(found) < limit:
            if ids is None:
                page = await self._executor.store.newest(before, limits.PROCEDURE_PAGE_MAX)
                records = [stored.record for stored in page]
            else:
                chunk = list(islice(ids, limits.PROCEDURE_LIST_DEFAULT))
                loaded = [await self._executor.store.load(id) for id in chunk]
                records = [stored.record for stored in loaded if stored is not None]
                if not chunk:
                    break
            found += [self._info(record, ()) for record in records if fits(record)]
            if ids is None:
                if not records:
                    break
                before = records[-1].id
        return found[:limit]

    def _live_ids(self, before: int) -> Iterator[int]:
        return iter(
            [live.id for live in reversed(self._executor.live()) if not before or live.id < before]
        )

    def _info(self, record: Record, history: tuple[Entry, ...] | list[Entry]) -> dict[str, Any]:
        live = self._executor.live_one(record.id)
        now = self._clock.now_ms()
        if live is None:
            return info(record, history, now)
        return info(
            record,
            history,
            now,
            running=live.running or live.queued,
            retrying=live.retry,
            parked=live.parked,
        )


def _filters(wanted: dict[str, Any]) -> tuple[str | None, str | None, str | None, int, int]:
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
    return state, wanted.get("owner"), wanted.get("name"), limit, before
