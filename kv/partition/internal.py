"""Commands of the node's own services. Their methods are objects, which no wire can spell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import from_wire
from kv.mvcc.gc import GcCursor, gc_step, set_safepoint
from kv.mvcc.view import GcView, Mutations
from kv.partition.ports import Done

META: Final = object()
GC: Final = object()

Then = Callable[[list[Any]], None]
Start = Callable[..., None]
"""start(method, then, *args): submit an internal command; `then` gets its reply row."""


def execute(view: GcView, d: PartitionDescriptor, r: list[Any], m: Mutations) -> list[Any]:
    """The result fields of an internal command."""
    if r[1] is META:
        m.others.append(("meta", r[5], r[6]))
        return [True]
    safepoint, txn_floor, cursor = r[5:]
    set_safepoint(view, safepoint, m)
    if m.safepoint:
        # A step of its own: nothing is collected under a safepoint that is not in the log yet.
        return [cursor]
    return [gc_step(view, d.start, d.end, cursor, txn_floor=txn_floor, m=m)]


def put_meta(start: Start, key: bytes, value: bytes, done: Done) -> None:
    """See PartitionMachine.put_meta."""

    def then(row: list[Any]) -> None:
        done(from_wire(row[2:]) if row[1] else None)

    start(META, then, key, value)


def collect(
    start: Start, safepoint: int, txn_floor: int, done: Done, *, old_versions: bool
) -> None:
    """See PartitionMachine.gc. Each step is a command; requests come in between."""

    def step(cursor: GcCursor) -> None:
        start(GC, then, safepoint, txn_floor, cursor)

    def then(row: list[Any]) -> None:
        if row[1]:
            done(from_wire(row[2:]))
        elif row[2].done:
            done(None)
        else:
            step(row[2])

    # The walk over old versions costs nothing where none were left.
    step(GcCursor(hist=b"" if old_versions else None))
