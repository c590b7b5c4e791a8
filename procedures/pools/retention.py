"""How long ended procedures are kept: rules by type and state, over what declarations say.

    WORKERS 22 esc(type) esc(state)  → Rule     "" = of any type, in any final state

Of a procedure the most exact rule counts: type and state, type, state, neither. It says how long
(`keep_ms`), how many (`most`, the newest of a type and state), or both. Without one the record says
it itself. Children are forgotten with their parents, and count for none; the database's own types
have no rules.

What is due earlier by a rule than its record says is found in the index of what ended
(engine/search_rows.py), from its old end on: a sweep costs what it forgets, and for `most` the keys
of those that stay. What is due later is written anew when its own time comes, with the rule's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import Busy, InvalidArgument, KvorumError, NotFound
from kv.base.keys import MAX64, successor, u64, unescape
from kv.base.ops import delete, put
from kv.base.ports import Clock
from procedures.engine import search_rows
from procedures.engine.forget import Janitor
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import TERMINAL, State
from procedures.engine.records import Record
from procedures.engine.registry import Registry
from procedures.engine.submission import checked_text
from procedures.pools import rows
from procedures.pools.rows import Rows
from procedures.pools.schedule_times import whole

log = logging.getLogger(__name__)

_SWEEP_S: Final = 30.0
_ANY: Final = ""


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """-1 = it says nothing of that."""

    keep_ms: int = -1
    most: int = -1


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Rule)


class Retention:
    """Of one executor. `run` is its life."""

    def __init__(self, store: Rows, clock: Clock, types: Registry) -> None:
        self._store, self._clock, self._types = store, clock, types
        self._rules: dict[tuple[str, str], Rule] = {}
        self._changed = asyncio.Event()

    async def load(self) -> None:
        start = len(rows.ALL_RULES[0])
        async for key, value, _ in rows.every(self._store, rows.ALL_RULES):
            name, at = unescape(key, start)
            state = unescape(key, at)[0]
            self._rules[name.decode(), state.decode()] = _decoder.decode(value)

    async def set(self, given: dict[str, object]) -> Plain:
        """Raises InvalidArgument, Busy."""
        of = _of(given)
        keep_ms, most = given.get("keep_ms"), given.get("most")
        if keep_ms is None and most is None:
            raise InvalidArgument("a rule says keep_ms, most, or both")
        rule = Rule(
            -1 if keep_ms is None else whole(given, "keep_ms", 0, limits.PROCEDURE_TIMEOUT_MS_MAX),
            -1 if most is None else whole(given, "most", 0, limits.RETENTION_MOST_MAX),
        )
        if of not in self._rules and len(self._rules) >= limits.RETENTION_RULES_MAX:
            most = limits.RETENTION_RULES_MAX
            raise Busy(
                f"there are {most} rules of retention, which is the limit",
                details={"limit": most, "actual": most},
            )
        await self._store.write([put(rows.rule(*of), _encoder.encode(rule))])
        self._rules[of] = rule
        self._changed.set()
        return _shown(of, rule)

    async def remove(self, given: dict[str, object]) -> None:
        """Raises NotFound (RULE_NOT_FOUND)."""
        of = _of(given)
        if of not in self._rules:
            raise NotFound("there is no such rule of retention", code="RULE_NOT_FOUND")
        await self._store.write([delete(rows.rule(*of))])
        del self._rules[of]

    def all(self) -> list[Plain]:
        return [_shown(of, rule) for of, rule in sorted(self._rules.items())]

    def rule(self, name: str, state: State) -> Rule | None:
        if not self._rules or self._types.is_own(name):
            return None
        found = (
            self._rules.get(of)
            for of in ((name, state.name), (name, _ANY), (_ANY, state.name), (_ANY, _ANY))
        )
        return next((rule for rule in found if rule is not None), None)

    def longer(self, record: Record, now_ms: int) -> Record | None:
        """The record with the retention of its rule, if that is not over yet."""
        rule = self.rule(record.name, record.state)
        if rule is None or rule.keep_ms <= record.retention_ms:
            return None
        if record.updated_ms + rule.keep_ms <= now_ms:
            return None
        return replace(record, retention_ms=rule.keep_ms)

    async def run(self, janitor: Janitor) -> None:
        """Forget what rules say, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_SWEEP_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            if not self._rules:
                continue
            try:
                for name in await self._types_there():
                    for state in sorted(TERMINAL):
                        await self._sweep(janitor, name, state)
            except KvorumError as error:
                log.warning("what is kept too long stays for now: %s", error)

    async def _types_there(self) -> list[str]:
        if all(name for name, _ in self._rules):
            return sorted({name for name, _ in self._rules})
        found: list[str] = []
        start, end = search_rows.ENDED, successor(search_rows.ENDED)
        while (page := await self._store.scan(start, end, limit=1)).items:
            name = unescape(page.items[0][0], len(search_rows.ENDED))[0].decode()
            found.append(name)
            start = successor(search_rows.of_type(name))
        return found

    async def _sweep(self, janitor: Janitor, name: str, state: State) -> None:
        rule = self.rule(name, state)
        if rule is None:
            return
        prefix = search_rows.of_state(name, state)
        if rule.keep_ms >= 0:
            since = self._clock.now_ms() - rule.keep_ms
            await self._forget(janitor, prefix + u64(MAX64 - max(0, since)), prefix)
        if rule.most >= 0 and (start := await self._behind(prefix, rule.most)):
            await self._forget(janitor, start, prefix)

    async def _behind(self, prefix: bytes, most: int) -> bytes:
        """Where those begin that are too many; b"": there are none."""
        start, left = prefix, most
        while True:
            limit = min(left + 1, limits.PROCEDURE_PAGE_MAX)
            page = await self._store.scan(start, successor(prefix), limit=limit)
            own = list(_own(page.items))
            if len(own) > left:
                return own[left]
            if page.resume is None:
                return b""
            left -= len(own)
            start = page.resume

    async def _forget(self, janitor: Janitor, start: bytes, prefix: bytes) -> None:
        """All from there on. Children stay, until their parents go."""
        while True:
            end = successor(prefix)
            page = await self._store.scan(start, end, limit=limits.PROCEDURE_LIST_DEFAULT)
            for key in _own(page.items):
                await janitor.drop(search_rows.tail_of(key)[1])
            if page.resume is None:
                return
            start = page.resume


def _own(items: Any) -> Iterator[bytes]:
    """Keys of those that no parent keeps."""
    for key, value, _ in items:
        if value != search_rows.CHILD:
            yield key


def _of(given: Plain) -> tuple[str, str]:
    name, state = given.get("type") or _ANY, given.get("state") or _ANY
    if name:
        checked_text("type", name, limits.NAME_CHARS_MAX)
    states = [one.name for one in sorted(TERMINAL)]
    if state and state not in states:
        raise InvalidArgument(f"state must be one of {', '.join(states)}, got {state!r:.40}")
    return name, state


def _shown(of: tuple[str, str], rule: Rule) -> Plain:
    return {
        "type": of[0] or None,
        "state": of[1] or None,
        "keep_ms": rule.keep_ms if rule.keep_ms >= 0 else None,
        "most": rule.most if rule.most >= 0 else None,
    }
