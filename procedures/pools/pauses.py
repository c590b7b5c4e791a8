"""What is paused, by whom and why.

    WORKERS 21 esc(kind:name)  → Pause

    procedure   by its id. Those below it go on
    type, queue, pool   whatever is of it, begun or not
    schedule    (kept in its own row, schedules.py)

No step of what is paused begins; steps under way come to their end, at workers, too, which give it
back then. What fails, or rolls back, goes on: its time may be over while it is paused, and it can
be aborted. A pause is a row before it holds anybody back, and a new master reads the rows before
anything runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from kv.base import limits
from kv.base.errors import NotFound, Refused
from kv.base.keys import unescape
from kv.base.ops import Op, delete, put
from procedures.pools import rows
from procedures.pools.rows import Rows

PROCEDURE, SCHEDULE = "procedure", "schedule"
KINDS: Final = (PROCEDURE, "type", "queue", "pool", SCHEDULE)


class Pause(msgspec.Struct, frozen=True, array_like=True):
    note: str
    by: str
    at_ms: int

    def to_plain(self) -> dict[str, object]:
        return {"note": self.note, "by": self.by, "at_ms": self.at_ms}


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Pause)


class Pauses:
    """Of one executor. Schedules have theirs themselves."""

    def __init__(self, store: Rows) -> None:
        self._store = store
        self._all: dict[str, Pause] = {}
        self._of: Counter[str] = Counter()  # by who has paused

    async def load(self) -> None:
        async for key, value, _ in rows.every(self._store, rows.ALL_PAUSES):
            name = unescape(key, len(rows.ALL_PAUSES[0]))[0].decode()
            self._all[name] = pause = _decoder.decode(value)
            self._of[pause.by] += 1

    async def set(self, key: str, pause: Pause, ops: Sequence[Op]) -> None:
        """`ops`: what is written with it. Raises Refused (PAUSES_FULL), ConditionFailed (of
        these).
        """
        if key not in self._all:
            mine = self._of[pause.by]
            for actual, limit, by in (
                (len(self._all), limits.PAUSES_MAX, ""),
                (mine, limits.PAUSES_OF_ONE_MAX, f" by {pause.by:.80}"),
            ):
                if actual >= limit:
                    raise Refused(  # nobody knows when that changes: who repeats it waits for ever
                        f"{limit} things are paused{by}, which is the limit: let some go on, or "
                        "pause what they have in common",
                        code="PAUSES_FULL",
                        details={"limit": limit, "actual": actual},
                    )
        await self._store.write([put(rows.pause(key), _encoder.encode(pause)), *ops])
        self._drop(key)
        self._all[key] = pause
        self._of[pause.by] += 1

    async def end(self, key: str, ops: Sequence[Op]) -> None:
        """Raises NotFound (NOT_PAUSED), ConditionFailed."""
        if key not in self._all:
            raise NotFound(f"{key.replace(':', ' ', 1)} is not paused", code="NOT_PAUSED")
        await self._store.write([delete(rows.pause(key)), *ops])
        self._drop(key)

    def _drop(self, key: str) -> None:
        before = self._all.pop(key, None)
        if before is not None:
            self._of[before.by] -= 1
            if not self._of[before.by]:
                del self._of[before.by]

    def over(self, id: int, keys: Sequence[str]) -> str:
        """What of these is paused: a procedure, or one of what limits count it for ("type:T"). ""
        = nothing.
        """
        if not self._all:
            return ""
        own = f"{PROCEDURE}:{id}"
        return next((key for key in (own, *keys) if key in self._all), "")

    def get(self, key: str) -> Pause | None:
        return self._all.get(key)

    def all(self) -> list[dict[str, object]]:
        found = []
        for key, pause in sorted(self._all.items()):
            kind, _, name = key.partition(":")
            found.append({"kind": kind, "name": name, **pause.to_plain()})
        return found

    def procedures(self) -> list[int]:
        """Those that are paused themselves."""
        prefix = f"{PROCEDURE}:"
        return [int(key[len(prefix) :]) for key in self._all if key.startswith(prefix)]


def words(key: str, pause: Pause) -> str:
    """Why somebody waits, for people."""
    return f"{key.replace(':', ' ', 1)} is paused by {pause.by}: {pause.note}"
