"""Registers that many clients write and read at once, and the proof that they were linearizable.

Every answer carries a version, and versions claim to be the one order in which things happened. So
a history is linearizable if that order agrees with real time (what began after something ended is
not before it), and if every read got what the write of its version wrote. That is a proof in one
pass over the history, sufficient for any number of writers (Herlihy and Wing 1990; a search, as
Porcupine does it, is needed only where nobody claims an order). Writes whose outcome is unknown may
have happened at any time after they began, or never.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import kvorum
from tests.processes.workload import MAYBE, PARTS, Seen

READERS = 6
WRITERS = 3


@dataclass(frozen=True, slots=True)
class Op:
    """One answer. A read of nothing has version 0 and value None."""

    key: str
    writes: bool
    value: str | None
    version: int
    began_s: float
    ended_s: float


@dataclass
class History:
    """What the clients of some registers saw."""

    ops: list[Op] = field(default_factory=list)
    unknown: dict[str, tuple[str, float]] = field(default_factory=dict)  # value → key, begun
    acknowledged_s: list[float] = field(default_factory=list)
    slowest_s: float = 0.0  # of any answer, refusals and unknown outcomes included
    unknown_s: list[float] = field(default_factory=list)  # how long the unknown ones took

    def answered(self, began_s: float, *, unknown: bool = False) -> None:
        took_s = time.monotonic() - began_s
        self.slowest_s = max(self.slowest_s, took_s)
        if unknown:
            self.unknown_s.append(took_s)


async def use(db: kvorum.AsyncDatabase, history: History, seen: Seen, stop: asyncio.Event) -> None:
    """Write and read the registers until told to stop."""
    numbers = itertools.count()
    async with asyncio.TaskGroup() as group:
        for part in PARTS:
            for _ in range(WRITERS):
                group.create_task(_write(db, f"{part}reg{seen.run}", numbers, history, seen, stop))
            for _ in range(READERS):
                group.create_task(_read(db, f"{part}reg{seen.run}", history, stop))


async def _write(
    db: kvorum.AsyncDatabase,
    key: str,
    numbers: Iterable[int],
    history: History,
    seen: Seen,
    stop: asyncio.Event,
) -> None:
    table = db.table("default", "k")
    for number in numbers:
        if stop.is_set():
            return
        value, began_s, began_at = f"{key}={number}", time.monotonic(), seen.highest
        try:
            version = await table.put(key, value)
        except kvorum.UnknownOutcome:
            history.unknown[value] = key, began_s
            history.answered(began_s, unknown=True)
            continue
        except MAYBE:
            history.answered(began_s)
            continue
        history.answered(began_s)
        ended_s = time.monotonic()
        seen.took(began_at, version)
        history.ops.append(Op(key, True, value, version, began_s, ended_s))
        history.acknowledged_s.append(ended_s)


async def _read(db: kvorum.AsyncDatabase, key: str, history: History, stop: asyncio.Event) -> None:
    table = db.table("default", "k")
    while not stop.is_set():
        began_s = time.monotonic()
        try:
            row = await table.get(key)
        except MAYBE:
            history.answered(began_s)
            continue
        history.answered(began_s)
        value, version = (None, 0) if row is None else (row.value.decode(), row.version)
        history.ops.append(Op(key, False, value, version, began_s, time.monotonic()))
        await asyncio.sleep(0.005)


def violations(history: History) -> list[str]:
    """What contradicts a linearizable register; empty: nothing does."""
    found: list[str] = []
    for key in {op.key for op in history.ops}:
        ops = [op for op in history.ops if op.key == key]
        found += _values(ops, history) + _real_time(ops)
    return found


def _values(ops: list[Op], history: History) -> list[str]:
    """Every version has one value, and somebody wrote it."""
    written = {op.version: op.value for op in ops if op.writes}
    values = {op.value for op in ops if op.writes}
    found = []
    for op in ops:
        if op.writes or op.version == 0:
            continue
        if op.version in written:
            if written[op.version] != op.value:
                found.append(f"{op} read what was not written at its version")
        elif op.value in values or op.value not in history.unknown:
            found.append(f"{op} read a value that was never written at its version")
        elif history.unknown[op.value][1] > op.ended_s:
            found.append(f"{op} read a value before its write began")
        else:
            written[op.version] = op.value
            values.add(op.value)
    return found


def _real_time(ops: list[Op]) -> list[str]:
    """What began after something had ended is not before it; a write is behind it."""
    by_end = sorted(ops, key=lambda op: op.ended_s)
    found, newest, at = [], None, 0
    for op in sorted(ops, key=lambda op: op.began_s):
        while at < len(by_end) and by_end[at].ended_s < op.began_s:
            if newest is None or by_end[at].version > newest.version:
                newest = by_end[at]
            at += 1
        if newest is not None and (
            op.version < newest.version or (op.writes and op.version == newest.version)
        ):
            found.append(f"{op} is older than {newest}, which had ended before")
    return found
