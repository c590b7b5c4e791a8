"""What is durable of pools: table WORKERS.

    01 esc(worker)                → Entry (messages.py)     it may hold procedures
    02 esc(name) [version u32]    → Description             it can be submitted
    03 esc(queue)                 → Queue                   limits that an operator set
    04 esc(schedule)              → a schedule of an older version
    05 [id u64] esc(name) [ts u64] → payload                a signal that nobody took yet
    06 [id u64] esc(key)          → name                    a signal's key: sent once
    07 [id u64] esc(token)        → [ok, value]             an outside system completed something
    08 [id u64] [ts u64] esc(key) → nothing                 the keys of 06, the oldest first
    09 [id u64]                   → [first, next]           positions of its events (emitted.py)
    09 [id u64] [position u64]    → [name, at ms, value]    one of them
    0a [id u64]                   → {token: details}        what its step said of itself last
    20 esc(schedule)              → Schedule                (schedules.py)
    21 esc(kind:name)             → Pause                   (pauses.py)
    40 esc(queue)                 → map                     what 03 does not say of its limits
    41 esc(limit) esc(key)        → [tokens, ms, full ms]   a slow rate, of a queue's key or ""
    42 kind esc(owner) esc(type) esc(queue) esc(key) → [id, until ms]   which submission stands for
                                                            the others of its key (windows.py)
    43 esc(type)                  → Deploy                  which version new ones begin with
    22 esc(type) esc(state)       → Rule                    (retention.py)
    24 …, 25 …                    what procedures are found by (engine/search_rows.py)

A worker's row is written before it is given anything and removed after what it held was fenced: so
a new master knows everybody who may still commit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from kv.base import limits, system
from kv.base.keys import escape, successor, table_prefix, u32, u64, unescape
from kv.base.ops import Op
from txn.results import ScanPage

_TABLE: Final = table_prefix(system.WORKERS)
_WORKERS: Final = _TABLE + b"\x01"
_TYPES: Final = _TABLE + b"\x02"
_QUEUES: Final = _TABLE + b"\x03"
_OLDER_SCHEDULES: Final = _TABLE + b"\x04"
_SIGNALS: Final = _TABLE + b"\x05"
_KEYS: Final = _TABLE + b"\x06"
_DONE: Final = _TABLE + b"\x07"
_KEY_TIMES: Final = _TABLE + b"\x08"
_EVENTS: Final = _TABLE + b"\x09"
_HEARTBEATS: Final = _TABLE + b"\x0a"
_SCHEDULES: Final = _TABLE + b"\x20"
_PAUSES: Final = _TABLE + b"\x21"
_SETTINGS: Final = _TABLE + b"\x40"
_RATES: Final = _TABLE + b"\x41"
_WINDOWS: Final = _TABLE + b"\x42"
_DEPLOYS: Final = _TABLE + b"\x43"
_RULES: Final = _TABLE + b"\x22"

ALL_WORKERS: Final = (_WORKERS, successor(_WORKERS))
ALL_TYPES: Final = (_TYPES, successor(_TYPES))
ALL_QUEUES: Final = (_QUEUES, successor(_QUEUES))
ALL_SCHEDULES: Final = (_SCHEDULES, successor(_SCHEDULES))
OLDER_SCHEDULES: Final = (_OLDER_SCHEDULES, successor(_OLDER_SCHEDULES))
ALL_PAUSES: Final = (_PAUSES, successor(_PAUSES))
ALL_SETTINGS: Final = (_SETTINGS, successor(_SETTINGS))
ALL_RATES: Final = (_RATES, successor(_RATES))
ALL_WINDOWS: Final = (_WINDOWS, successor(_WINDOWS))
ALL_DEPLOYS: Final = (_DEPLOYS, successor(_DEPLOYS))
ALL_RULES: Final = (_RULES, successor(_RULES))

_LEFT: Final = (_SIGNALS, _KEYS, _DONE, _KEY_TIMES, _EVENTS, _HEARTBEATS)
POSITION_MAX: Final = (1 << 64) - 1
ALL_LEFT: Final = tuple((family, successor(family)) for family in _LEFT)


class Rows(Protocol):
    """Reads and writes outside of steps (txn.client.TxnClient has them; RowsOf for tests)."""

    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...

    async def write(self, ops: Sequence[Op]) -> int:
        """One atomic write; its version. Raises ConditionFailed."""
        ...

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage: ...

    async def now(self) -> int:
        """A timestamp above all that were taken before."""
        ...


async def every(rows: Rows, span: tuple[bytes, bytes]) -> AsyncIterator[tuple[bytes, bytes, int]]:
    """(key, value, version) of a range, in order, page by page."""
    start, end = span
    while True:
        page = await rows.scan(start, end, limit=limits.PROCEDURE_PAGE_MAX)
        for item in page.items:
            yield item
        if page.resume is None:
            return
        start = page.resume


def name_in(key: bytes) -> str:
    """What a row of a worker, a queue or a schedule is called by."""
    return unescape(key, len(_WORKERS))[0].decode()


def worker(name: str) -> bytes:
    return _WORKERS + escape(name.encode())


def type_(name: str, version: int) -> bytes:
    return _TYPES + escape(name.encode()) + u32(version)


def queue(name: str) -> bytes:
    return _QUEUES + escape(name.encode())


def settings(name: str) -> bytes:
    return _SETTINGS + escape(name.encode())


def rate(name: str, key: str) -> bytes:
    return _RATES + escape(name.encode()) + escape(key.encode())


def rate_of(row: bytes) -> tuple[str, str]:
    name, at = unescape(row, len(_RATES))
    return name.decode(), unescape(row, at)[0].decode()


def window(kind: bytes, owner: str, name: str, queue: str, key: str) -> bytes:
    parts = (escape(part.encode()) for part in (owner, name, queue, key))
    return _WINDOWS + kind + b"".join(parts)


def owner_of_window(key: bytes) -> str:
    return unescape(key, len(_WINDOWS) + 1)[0].decode()


def deploy(name: str) -> bytes:
    return _DEPLOYS + escape(name.encode())


def schedule(name: str) -> bytes:
    return _SCHEDULES + escape(name.encode())


def older_schedule(name: str) -> bytes:
    return _OLDER_SCHEDULES + escape(name.encode())


def pause(what: str) -> bytes:
    return _PAUSES + escape(what.encode())


def rule(name: str, state: str) -> bytes:
    return _RULES + escape(name.encode()) + escape(state.encode())


def signals(id: int, name: str | None = None) -> tuple[bytes, bytes]:
    """The range of a procedure's signals, of one name or of all."""
    prefix = _SIGNALS + u64(id) + (b"" if name is None else escape(name.encode()))
    return prefix, successor(prefix)


def signal(id: int, name: str, ts: int) -> bytes:
    return signals(id, name)[0] + u64(ts)


def signal_key(id: int, key: str) -> bytes:
    return _KEYS + u64(id) + escape(key.encode())


def key_times(id: int) -> tuple[bytes, bytes]:
    """The range of the keys of a procedure's signals, by the time when they were sent."""
    prefix = _KEY_TIMES + u64(id)
    return prefix, successor(prefix)


def key_time(id: int, ts: int, key: str) -> bytes:
    return _KEY_TIMES + u64(id) + u64(ts) + escape(key.encode())


def key_of(key_time: bytes) -> str:
    return unescape(key_time, len(_KEY_TIMES) + 16)[0].decode()


def shelf(id: int) -> bytes:
    return _EVENTS + u64(id)


def event(id: int, position: int) -> bytes:
    return _EVENTS + u64(id) + u64(position)


def heartbeat(id: int) -> bytes:
    return _HEARTBEATS + u64(id)


def done(id: int, token: str) -> bytes:
    return _DONE + u64(id) + escape(token.encode())


def left_of(id: int) -> tuple[tuple[bytes, bytes], ...]:
    """Everything that is forgotten with a procedure."""
    return _families(id, _LEFT)


def read_by(id: int) -> tuple[tuple[bytes, bytes], ...]:
    """What its steps read of it."""
    return _families(id, (_SIGNALS, _DONE, _HEARTBEATS))


def _families(id: int, families: Sequence[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    prefixes = (family + u64(id) for family in families)
    return tuple((prefix, successor(prefix)) for prefix in prefixes)
