"""What is written so that procedures are found that have ended.

    WORKERS 25 esc(type) [state u8][~ended ms u64][id u64]  → nothing; 01 = it has a parent (older
                                                              versions do not say that)

One row per procedure, written with its end, removed when it is forgotten, or goes on after all. So
those of a type and state lie together, the one that ended last first. What has not ended is found
in memory (roster.py); attributes have rows of their own (attributes.py).
"""

from __future__ import annotations

from typing import Final

from kv.base import system
from kv.base.keys import MAX64, escape, from_u64, table_prefix, u64
from kv.base.ops import Op, delete, put
from procedures.engine.attributes import rows_of
from procedures.engine.procedure import State
from procedures.engine.records import Record

ENDED: Final = table_prefix(system.WORKERS) + b"\x25"

CHILD: Final = b"\x01"
"""Of one that is forgotten with its parent."""


def of_type(name: str) -> bytes:
    return ENDED + escape(name.encode())


def of_state(name: str, state: State) -> bytes:
    return of_type(name) + bytes((state,))


def ended_key(record: Record) -> bytes:
    tail = u64(MAX64 - record.updated_ms) + u64(record.id)
    return of_state(record.name, record.state) + tail


def ended_ops(record: Record) -> list[Op]:
    return [put(ended_key(record), CHILD if record.parent else b"")] if record.ended else []


def goes_on_ops(before: Record | None) -> list[Op]:
    """Of one that had ended, and does so no more."""
    return [] if before is None or not before.ended else [delete(ended_key(before))]


def forget_ops(record: Record) -> list[Op]:
    keys = [ended_key(record), *rows_of(record.id, record.created_ms, record.attributes)]
    return [delete(key) for key in keys]


def tail_of(key: bytes) -> tuple[int, int]:
    """The moment and the id at the end of a row of this index, or of that of attributes."""
    return MAX64 - from_u64(key, len(key) - 16), from_u64(key, len(key) - 8)
