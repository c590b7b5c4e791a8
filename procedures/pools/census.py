"""How many procedures there are and what they do, and those that an operator should look at first.

    {"at_ms", "live", "kinds": {kind: count}, "types": [{"name", "live", "trouble"}, …],
     "first": [{"id", "name", "kind", "step", "owner", "why", "created_ms", "since_ms"}, …]}

A procedure that has not ended is of one kind, the first that fits: parked (its code is not here),
stuck (a step runs longer than it may), paused (by an operator), retrying, rolling_back, running,
queued (for its turn, a worker, a lock), children (it waits for those), waiting (for an event or a
time).

There may be a million: they are looked at in slices between which others have their turns, at most
once in FRESH_S, however many ask, and for a twentieth of the time at most. What is found is kept by
type: who may not see all of them is told what there were if there were no others.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from procedures.engine.audit import Seen
from procedures.engine.executor import Executor
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import said
from procedures.engine.records import Record
from procedures.engine.roster import Live
from procedures.engine.view import shown_state

KINDS: Final = (
    *("parked", "stuck", "retrying", "rolling_back", "running", "queued", "paused"),
    *("children", "waiting"),
)
TROUBLE: Final = KINDS[:4]
_CALM: Final = ("queued", "paused", "children", "waiting")
FRESH_S: Final = 2.0
_REST: Final = 19
_SLICE: Final = 2_000
_FIRST: Final = 20  # of each kind of trouble
_OLDEST: Final = 10  # of those that wait
_TYPES: Final = 50


class _Of:
    """Of one type."""

    __slots__ = ("first", "kinds")

    def __init__(self) -> None:
        self.kinds = Counter[str]()
        self.first: dict[str, list[Live]] = {}

    @property
    def trouble(self) -> int:
        return sum(self.kinds[kind] for kind in TROUBLE)


class Census:
    """Of one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._last: dict[str, Any] = {}
        self._types: dict[str, _Of] = {}
        self._at_ms = 0
        self._until = float("-inf")
        self._turn = asyncio.Lock()

    async def look(self, seen: Seen = None) -> dict[str, Any]:
        """See the module."""
        now = asyncio.get_running_loop().time
        async with self._turn:
            if (began := now()) >= self._until:
                await self._look()
                self._last = await self._told(self._types)
                self._until = now() + max(FRESH_S, (now() - began) * _REST)
        if seen is None:
            return self._last
        return await self._told({name: of for name, of in self._types.items() if seen(name)})

    async def _look(self) -> None:
        at_ms, types = self._executor.now_ms(), dict[str, _Of]()
        for number, live in enumerate(self._executor.live(), 1):
            kind = self._kind(live, at_ms)
            if (of := types.get(live.name)) is None:
                of = types[live.name] = _Of()
            of.kinds[kind] += 1
            first = of.first.setdefault(kind, [])
            if len(first) < (_FIRST if kind in TROUBLE else _OLDEST):
                first.append(live)  # in the order of their ids: the oldest
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._at_ms, self._types = at_ms, types

    async def _told(self, types: Mapping[str, _Of]) -> dict[str, Any]:
        kinds = Counter[str]()
        for of in types.values():
            kinds.update(of.kinds)
        shown = [one for kind in TROUBLE for one in _oldest(types, (kind,), _FIRST)]
        shown += _oldest(types, _CALM, _OLDEST)
        order = sorted((-of.trouble, -of.kinds.total(), name) for name, of in types.items())
        return {
            "at_ms": self._at_ms,
            "live": kinds.total(),
            "kinds": {kind: kinds[kind] for kind in KINDS},
            "types": [
                {"name": name, "live": -live, "trouble": -trouble}
                for trouble, live, name in order[:_TYPES]
            ],
            "first": await self._rows(shown),
        }

    def _kind(self, live: Live, now_ms: int) -> str:
        began, limit_ms, _ = live.step_began
        if live.parked:
            return "parked"
        if live.slow_ms or (live.running and began and now_ms - began > limit_ms):
            return "stuck"
        if self._executor.pause_of(live) is not None:
            return "paused"
        if live.retry is not None or (live.record is not None and live.record.trying is not None):
            return "retrying"
        if live.rolling or live.doomed:
            return "rolling_back"
        if live.running or live.worker:
            return "running"
        if live.queued:
            return "queued"
        return "children" if live.children else "waiting"

    async def _rows(self, found: Sequence[tuple[str, Live]]) -> list[Plain]:
        rows = []
        for kind, live in found:
            stored = await self._executor.store.load(live.id)
            if stored is None or stored.record.ended:
                continue
            record = stored.record
            state, step = shown_state(record)
            rows.append(
                {
                    "id": str(live.id),
                    "name": live.name,
                    "kind": kind,
                    "state": state,
                    "step": step,
                    "owner": record.owner,
                    "why": _why(kind, live, record),
                    "created_ms": record.created_ms,
                    "since_ms": record.updated_ms,
                }
            )
        return rows


def _oldest(types: Mapping[str, _Of], kinds: Sequence[str], most: int) -> list[tuple[str, Live]]:
    found = [
        (kind, one) for of in types.values() for kind in kinds for one in of.first.get(kind, ())
    ]
    return heapq.nsmallest(most, found, key=lambda one: one[1].id)


def _why(kind: str, live: Live, record: Record) -> str:
    """In a few words."""
    trying = record.trying
    error = live.retry or (trying.error if trying is not None else None) or record.error
    if kind == "parked":
        return live.parked
    if kind in ("retrying", "rolling_back", "stuck") and error is not None:
        return f"{error.code}: {error.message}"
    if kind == "children":
        return f"for {len(live.children)} children"
    if kind == "waiting":
        return f"for {said(live.event)}" if live.event else "for a time" if record.due_ms else ""
    return ""
