"""Submissions for which an earlier one may stand: of one key within a time, or while it still
waits.

    dedup, dedup_ms     the first one of the key stands for all within so long after it
    debounce_ms         one that has not begun waits anew for so long, at most debounce_max_ms after
                        the first; it begins with the last arguments, or (`debounce` "first") with
                        the first ones

Which one stands for a key is a row, written with its record and on condition that it is as it was
read: so two masters never begin two. Keys are their owner's, as nonces are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import msgspec

from kv.base import limits
from kv.base.errors import Busy, ConditionFailed, InvalidArgument
from kv.base.ops import Op, delete, put
from procedures.engine.plain_data import Plain
from procedures.engine.registry import Registry
from procedures.engine.submission import Admitted, Submission, check, checked_text
from procedures.pools import rows
from procedures.pools.rows import Rows

DEDUPLICATED: Final = "deduplicated"
DEBOUNCED: Final = "debounced"
WORDS: Final = frozenset({"dedup", "dedup_ms", "debounce", "debounce_ms", "debounce_max_ms"})
_RACES: Final = 10


class Window(NamedTuple):
    """As it was asked for."""

    dedup: str = ""
    dedup_ms: int = 0
    debounce_ms: int = 0
    debounce_max_ms: int = 0  # 0 = no end of it
    first: bool = False  # the first arguments count


def window(given: Plain) -> Window | None:
    """What of a submission's options is said about this; it is taken out. Raises
    InvalidArgument.
    """
    said = {name: given.pop(name) for name in sorted(WORDS & set(given))}
    if not said:
        return None
    times = {}
    for name in ("dedup_ms", "debounce_ms", "debounce_max_ms"):
        ms = said.get(name, 0)
        dedups = name == "dedup_ms"  # its row outlives its procedure
        most = limits.PROCEDURE_DEDUP_MS_MAX if dedups else limits.PROCEDURE_TIMEOUT_MS_MAX
        if type(ms) is not int or not 0 <= ms <= most:
            raise InvalidArgument(f"{name} must be 0 to {most}, got {ms!r:.40}")
        times[name] = ms
    key, which = said.get("dedup", ""), said.get("debounce", "last")
    if which not in ("first", "last"):
        raise InvalidArgument(f"debounce must be first or last, got {which!r:.40}")
    if bool(key) != bool(times["dedup_ms"]):
        raise InvalidArgument("dedup and dedup_ms belong together: a key, and for how long")
    if key:
        checked_text("dedup", key, limits.NONCE_CHARS_MAX)
    if not times["debounce_ms"] and ("debounce" in said or times["debounce_max_ms"]):
        raise InvalidArgument("debounce and debounce_max_ms want debounce_ms")
    if 0 < times["debounce_max_ms"] < times["debounce_ms"]:
        raise InvalidArgument("debounce_max_ms must not be less than debounce_ms")
    if key and times["debounce_ms"]:
        raise InvalidArgument("a submission is deduplicated or debounced, not both")
    if not key and not times["debounce_ms"]:
        return None
    return Window(key, **times, first=which == "first")


class Begins(Protocol):
    """What it needs of the executor."""

    types: Registry

    def now_ms(self) -> int: ...

    async def begin(
        self, sub: Submission, beside: Callable[[int], Sequence[Op]] | None = None
    ) -> tuple[int, bool]: ...

    async def put_off(self, id: int, by_ms: int, new: Admitted | None) -> bool: ...


class Windows:
    """Of one executor."""

    def __init__(self, executor: Begins, rows: Rows, kept: Counter[str]) -> None:
        """`kept`: how many rows each owner has, as the last sweep has found, and since."""
        self._executor, self._rows, self._kept = executor, rows, kept

    async def begin(self, sub: Submission, window: Window) -> tuple[int, str]:
        """`Executor.submit`, and why an earlier one stands for it ("" = none does)."""
        if sub.name.startswith("kvorum."):
            raise InvalidArgument(f"{sub.name} is neither deduplicated nor debounced")
        if window.dedup:
            return await self._once(sub, window)
        return await self._later(sub, window)

    async def _once(self, sub: Submission, window: Window) -> tuple[int, str]:
        row = rows.window(b"d", sub.owner, sub.name, "", window.dedup)
        for _ in range(_RACES):
            now_ms = self._executor.now_ms()
            value, version = await self._rows.get(row)
            earlier, until_ms = _read(value)
            if now_ms < until_ms:
                return earlier, DEDUPLICATED
            if value is None and self._kept[sub.owner] >= limits.PROCEDURE_DEDUPS_OF_ONE_MAX:
                most = limits.PROCEDURE_DEDUPS_OF_ONE_MAX
                raise Busy(
                    f"{sub.owner!r:.80} has {most} keys for which an earlier submission stands, "
                    "the limit: wait until some have ended, or say a shorter dedup_ms",
                    details={"limit": most, "actual": self._kept[sub.owner]},
                )
            new = row, version, now_ms + window.dedup_ms
            if (id := await self._new(sub, *new)) is not None:
                self._kept[sub.owner] += value is None
                return id, ""
        raise _races(window.dedup)

    async def _later(self, sub: Submission, window: Window) -> tuple[int, str]:
        if sub.options.delay_ms or sub.options.at_ms or sub.nonce:
            raise InvalidArgument(
                "a debounced submission has no delay_ms, no at and no nonce of its own"
            )
        ok = check(sub, self._executor.types)
        key = ok.options.key or ok.type.key_of(ok.args)
        if not key:
            raise InvalidArgument("debounce_ms wants a key: key=…, or key= in the declaration")
        options = replace(
            sub.options,
            delay_ms=window.debounce_ms,
            bounce_ms=window.debounce_max_ms or limits.PROCEDURE_TIMEOUT_MS_MAX,
        )
        row = rows.window(b"b", sub.owner, sub.name, options.queue or ok.type.queue, key)
        for _ in range(_RACES):
            value, version = await self._rows.get(row)
            earlier, _ = _read(value)
            args = None if window.first else ok
            if earlier and await self._executor.put_off(earlier, window.debounce_ms, args):
                return earlier, DEBOUNCED
            if (id := await self._new(replace(sub, options=options), row, version, 0)) is not None:
                return id, ""
        raise _races(key)

    async def _new(self, sub: Submission, row: bytes, version: int, until_ms: int) -> int | None:
        """Its id; None: another one of this key was just submitted."""

        def beside(id: int) -> list[Op]:
            return [put(row, msgspec.msgpack.encode((id, until_ms)), cond=version)]

        try:
            return (await self._executor.begin(sub, beside))[0]
        except ConditionFailed as error:
            if error.details.get("key") != row:
                raise
            return None


async def sweep(rows_: Rows, now_ms: int, lives: Callable[[int], bool]) -> Counter[str]:
    """Remove rows of windows that are over. `lives(id)`: whether a procedure has not ended. How
    many of `dedup` each owner has still.
    """
    kept: Counter[str] = Counter()
    async for key, value, version in rows.every(rows_, rows.ALL_WINDOWS):
        id, until_ms = _read(value)
        if until_ms >= now_ms:
            kept[rows.owner_of_window(key)] += 1
        if until_ms < now_ms and (until_ms or not lives(id)):
            try:
                await rows_.write([delete(key, cond=version)])
            except ConditionFailed:
                continue  # it is used again
    return kept


def _read(value: bytes | None) -> tuple[int, int]:
    return (0, 0) if value is None else msgspec.msgpack.decode(value, type=tuple[int, int])


def _races(key: str) -> Busy:
    return Busy(
        f"key {key!r:.80}: others submit it all the time; submit again",
        details={"what": "attempts", "limit": _RACES, "actual": _RACES},
    )
