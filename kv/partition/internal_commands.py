"""Commands of the node's own services. Their methods are objects, which no wire can spell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, from_wire
from kv.base.wire_row import WireRow
from kv.mvcc.gc import Collected, Due, OldVersions, collect, set_safepoint
from kv.mvcc.view import GcView, Mutations
from kv.partition.ports import Done

META: Final = object()
SAFEPOINT: Final = object()
GC: Final = object()

Then = Callable[[list[object]], None]
Reported = Callable[[Collected | KvorumError], None]
Start = Callable[..., None]
"""start(method, then, *args): submit an internal command; `then` gets its reply row."""


def execute(view: GcView, d: PartitionDescriptor, r: WireRow, m: Mutations) -> list[object]:
    """The result fields of an internal command."""
    if r[1] is META:
        m.others.append(("meta", r[5], r[6]))
        return [True]
    if r[1] is SAFEPOINT:
        return [set_safepoint(view, r[5], m)]
    return [collect(view, d.start, d.end, r[5], m=m)]


def put_meta(start: Start, key: bytes, value: bytes, done: Done) -> None:
    """See PartitionMachine.put_meta."""

    def then(row: list[object]) -> None:
        done(from_wire(row[2:]) if row[1] else None)

    start(META, then, key, value)


def raise_safepoint(start: Start, safepoint: int, done: Done) -> None:
    """See PartitionMachine.raise_safepoint."""

    def then(row: list[object]) -> None:
        done(from_wire(row[2:]) if row[1] else None)

    start(SAFEPOINT, then, safepoint)


def collect_step(start: Start, step: OldVersions | Due, done: Reported) -> None:
    """See PartitionMachine.collect."""

    def then(row: WireRow) -> None:
        done(from_wire(row[2:]) if row[1] else row[2])

    start(GC, then, step)
