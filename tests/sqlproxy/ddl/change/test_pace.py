"""How a backfill gives way to those who are served by the same loop, and what is under way at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar, cast

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import ConditionFailed, Corruption, InvalidArgument
from kv.base.ids import TableId
from kv.base.keys import table_prefix, table_range
from kv.base.limits import (
    SQL_BACKFILL_ROWS,
    SQL_BACKFILL_ROWS_MIN,
    SQL_REST_MS_MAX,
    SQL_SLICE_ROWS,
    SQL_SLICE_ROWS_MAX,
    SQL_SLICES_IN_FLIGHT,
)
from kvorum.testing.simulation import loop as simloop
from sqlproxy.ddl.change.backfill import fewer
from sqlproxy.ddl.change.slices import Pace, in_slices
from sqlproxy.rows import rows
from sqlproxy.rows.schema import Column, Index, IndexColumn, Table
from sqlproxy.tables.entries import index_codec
from txn.results import ScanPage
from txn.transaction import Transaction

T = TypeVar("T")

TABLE = replace(
    Table.declare(
        "default",
        "t",
        columns=[Column(0, "id", "int8"), Column(0, "n", "int4")],
        primary_key=("id",),
    ),
    id=TableId(100),
)
PLAIN = Index(TableId(101), "t_n", (IndexColumn(2),), False, ())
UNIQUE = replace(PLAIN, unique=True)
START, END = table_range(TABLE.id)


def stored(number: int, n: int) -> tuple[bytes, bytes]:
    key, value = rows.codec(TABLE).encode_row((number, n))
    return table_prefix(TABLE.id) + key, value


class Txn:
    """A transaction of `Shelf`."""

    start_ts = 7

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.written: dict[bytes, bytes] = {}
        self.held: list[tuple[bytes, bytes]] = []

    async def scan_values(
        self, start: bytes, end: bytes, *, limit: int
    ) -> tuple[list[bytes], bytes | None]:
        page = await self.scan(start, end, limit=limit)
        return [value for _, value, _ in page.items], page.resume

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        self._shelf.parts.append(("read", asyncio.get_running_loop().time()))
        await asyncio.sleep(0)
        there = [(k, v, 1) for k, v in sorted(self._shelf.rows.items()) if start <= k < end]
        resume = there[limit - 1][0] + b"\0" if len(there) > limit else None
        self._shelf.scans.append((start, end, len(there[:limit])))
        return ScanPage(there[:limit], resume, 1)

    async def multi_get(self, keys: list[bytes]) -> list[tuple[bytes, int] | None]:
        return [(at, 1) if (at := self._shelf.entries.get(key)) else None for key in keys]

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> None:
        self.written[key] = value

    def hold_range(self, start: bytes, end: bytes) -> None:
        self.held.append((start, end))


class Shelf:
    """A store whose writes take 10 ms; `refuse` may have one run again."""

    def __init__(self, numbers: range) -> None:
        self.rows = dict(stored(n, n) for n in numbers)
        self.entries: dict[bytes, bytes] = {}
        self.scans: list[tuple[bytes, bytes, int]] = []
        self.parts: list[tuple[str, float]] = []  # what was done when
        self.ingested: list[int] = []
        self.refuse: Callable[[Txn], bool] = lambda _t: False
        self.refusing: Callable[[], object] = lambda: None  # a unique key says something else
        self.running = self.most = 0

    async def run(self, fn: Callable[[Transaction], Awaitable[T]]) -> T:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while True:
                t = Txn(self)
                found = await fn(cast(Transaction, t))
                if t.written:
                    await asyncio.sleep(0.01)
                if not self.refuse(t):
                    self.entries.update(t.written)
                    return found
        finally:
            self.running -= 1

    async def ingest(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, at: int, unique: bool
    ) -> int:
        assert at == Txn.start_ts
        assert list(keys) == sorted(keys)
        self.parts.append(("sent", asyncio.get_running_loop().time()))
        await asyncio.sleep(0.01)
        self.parts.append(("applied", asyncio.get_running_loop().time()))
        there = [self.entries.get(key) for key in keys]
        if unique and any(old not in (None, new) for old, new in zip(there, values, strict=True)):
            self.refusing()
            raise ConditionFailed("another row's", details={})
        self.ingested.append(len(keys))
        self.entries.update(zip(keys, values, strict=True))
        return there.count(None)

    def whole(self, index: Index = PLAIN) -> bool:
        codec = index_codec(TABLE, index)
        slots = [rows.codec(TABLE).decode_slots(k[4:], v) for k, v in self.rows.items()]
        return {table_prefix(index.id) + codec.entry_of(s)[0] for s in slots} == set(self.entries)


class Used:
    """The loop's seconds: each look at them finds that others took `share` of what passed, and
    that a slice's entries took `entries_s`, of which `shelf` is told.
    """

    def __init__(
        self,
        loop: simloop.SimLoop,
        share: float,
        entries_s: float = 0.0,
        shelf: Shelf | None = None,
    ) -> None:
        self._loop, self._share, self._entries_s, self._made = loop, share, entries_s, 0.0
        self._shelf = shelf

    def __call__(self) -> float:
        self._made += self._entries_s
        if self._shelf is not None and self._shelf.parts and self._shelf.parts[-1][0] == "read":
            self._shelf.parts.append(("made", self._loop.time()))
        return self._loop.time() * self._share + self._made


def test_q4_slices_are_large_while_nobody_else_is_there() -> None:
    """An index of an idle cluster would take three times as long."""

    async def main(loop: simloop.SimLoop) -> None:
        shelf, pace = Shelf(range(2_500)), Pace(LoopTimers(loop), Used(loop, 0.02), 0)
        count, at = await in_slices(shelf, pace, TABLE, PLAIN, START)
        assert (count, at) == (SQL_BACKFILL_ROWS, stored(SQL_BACKFILL_ROWS - 1, 0)[0] + b"\0")
        assert {rows for _, _, rows in shelf.scans} == {SQL_SLICE_ROWS_MAX}
        assert shelf.most == SQL_SLICES_IN_FLIGHT
        assert loop.time() < 0.04, "it does not rest"
        assert await in_slices(shelf, pace, TABLE, PLAIN, at or b"") == (500, None)
        assert shelf.whole()

    simloop.run(main)


def test_q4_slices_are_small_and_done_part_by_part_beside_others() -> None:
    """Readers beside CREATE INDEX would wait for all parts of a slice, one behind the other; or for
    one of each of several slices.
    """

    async def main(loop: simloop.SimLoop) -> None:
        shelf = Shelf(range(500))
        pace = Pace(LoopTimers(loop), Used(loop, 0.6, entries_s=0.000_1, shelf=shelf), 0)
        assert await in_slices(shelf, pace, TABLE, PLAIN, START) == (500, None)
        assert pace.busy
        assert {rows for _, _, rows in shelf.scans} == {SQL_SLICE_ROWS, 500 % SQL_SLICE_ROWS}
        slices = -(-500 // SQL_SLICE_ROWS)
        assert shelf.most == 1
        assert [what for what, _ in shelf.parts] == ["read", "made", "sent", "applied"] * slices
        rest_s = 0.000_1 * 10 / 0.1 / 3
        for (before, at), (after, then) in pairwise(shelf.parts[2:]):
            disk = before == "sent"  # what it takes is a rest, too
            assert then - at == pytest.approx(0.01 if disk else rest_s, rel=0.01), (before, after)
        assert loop.time() > (slices - 1) * 3 * rest_s, "more than its share of the loop"
        assert shelf.whole()

    simloop.run(main)


@pytest.mark.parametrize(("tail_s", "busy"), [(0.009, False), (1.0, True)])
def test_q4_what_a_step_left_behind_is_no_other(tail_s: float, busy: bool) -> None:
    """Versions that the last slices still write would be taken for others, and an index of an idle
    cluster made with rests.
    """

    async def main(loop: simloop.SimLoop) -> None:
        pace = Pace(LoopTimers(loop), lambda: 0.6 * min(loop.time(), tail_s), 0)
        await pace.look()
        assert pace.busy is busy
        assert loop.time() < 0.03, "a look is short"

    simloop.run(main)


def test_q4_a_slow_machine_lets_a_backfill_rest_but_not_stand_still() -> None:
    """Entries that took a second, for a pause of the process, would stop it for a minute."""

    async def main(loop: simloop.SimLoop) -> None:
        pace = Pace(LoopTimers(loop), Used(loop, 0.6, entries_s=1.0), 0)
        pace.begins()
        pace.made()
        for _ in range(3):
            await pace.turn()
            pace.rests()
        assert SQL_REST_MS_MAX <= loop.time() * 1000 < SQL_REST_MS_MAX + 5

    simloop.run(main)


def test_q4_a_damaged_row_is_named() -> None:
    """Rows are read without their keys; who is told that one is damaged needs its key."""

    async def main(loop: simloop.SimLoop) -> None:
        shelf = Shelf(range(300))
        damaged, _ = stored(120, 0)
        shelf.rows[damaged] = b"\x91\x07"
        pace = Pace(LoopTimers(loop), Used(loop, 0.02), 0)
        with pytest.raises(Corruption) as refused:
            await in_slices(shelf, pace, TABLE, PLAIN, START)
        assert refused.value.details["key"] == damaged[4:]
        assert shelf.running == 0

    simloop.run(main)


def test_q4_a_slice_that_runs_again_stays_in_its_range_and_leaves_nothing_out() -> None:
    """Rows that come into a slice behind its first look would have it end before the next one's
    start: what is between them would have no entry.
    """

    async def main(loop: simloop.SimLoop) -> None:
        shelf, refused = Shelf(range(0, 5_000, 10)), list[Txn]()

        def refuse(t: Txn) -> bool:
            if refused or not any(low <= stored(0, 0)[0] < high for low, high in t.held):
                return False
            assert len(shelf.entries) >= 250, "others go on meanwhile"
            shelf.rows.update(stored(n, n) for n in range(1, 1_000))  # by writers without entries
            refused.append(t)
            return True

        shelf.refuse = refuse
        other = table_prefix(UNIQUE.id) + index_codec(TABLE, UNIQUE).entry((10, 10))[0]
        shelf.entries[other] = b"gone"  # so the first slice is a transaction
        shelf.refusing = lambda: shelf.entries.pop(other)
        pace = Pace(LoopTimers(loop), Used(loop, 0.02), 0)
        count, at = await in_slices(shelf, pace, TABLE, UNIQUE, START)
        assert (count, at) == (500, None), "rows that came later are not counted"
        assert refused, "there was no transaction"
        first = [(low, high) for low, high, _ in shelf.scans if low < stored(2_490, 0)[0]][1:]
        assert {high for _, high in first} == {stored(2_490, 0)[0] + b"\0"}
        assert shelf.whole(UNIQUE)

    simloop.run(main)


def test_q4_nothing_is_under_way_when_a_step_fails() -> None:
    """Who takes the index back would meet entries that come behind the drop of its range; and the
    duplicate that users are told would be any.
    """

    async def main(loop: simloop.SimLoop) -> None:
        shelf = Shelf(range(2_000))
        shelf.rows.update([stored(300, 299), stored(600, 599)])  # one in each of two slices
        pace = Pace(LoopTimers(loop), Used(loop, 0.02), 0)
        with pytest.raises(InvalidArgument) as refused:
            await in_slices(shelf, pace, TABLE, UNIQUE, START)
        assert refused.value.details["sql_detail"] == "Key (n)=(299) is duplicated."
        assert shelf.running == 0
        begun = {low for low, _, _ in shelf.scans}
        assert len(begun) <= SQL_SLICES_IN_FLIGHT + 1, "none begins behind the first that failed"

    simloop.run(main)


def test_q4_conflicts_make_slices_small() -> None:
    """A table that changes all the time would never get its index."""
    assert [fewer(1_000, tries) for tries in (0, 1, 4, 40)] == [1_000, 500, 62, 8]

    async def main(loop: simloop.SimLoop) -> None:
        assert Pace(LoopTimers(loop), float, 4).rows == SQL_BACKFILL_ROWS_MIN

    simloop.run(main)
