"""Indexes that are filled while rows change, and whether it would be noticed if they were wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import InvalidArgument
from kv.base.keys import table_prefix, table_range
from kvorum.testing.simulation.loop import SimLoop, run
from sqlproxy.ddl.change import slices
from sqlproxy.rows.rows import codec
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.reading import Stored
from tests.sqlproxy.ddl.change import filling
from tests.sqlproxy.ddl.change.broken import RULES, seeds_until_noticed


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", filling.INDEXES)
@pytest.mark.parametrize("seed", range(4))
def test_q4_an_index_that_is_filled_beside_writers_is_the_table(seed: int, kind: str) -> None:
    """An entry too many answers with a row that is gone, one too few hides a row."""
    told = filling.play(seed, filling.INDEXES[kind])
    assert told.done > 5


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_q4_a_backfill_without_its_rules_is_noticed(rule: str) -> None:
    """Histories that pass whatever the backfill does prove nothing."""
    assert seeds_until_noticed(rule, 1, 40) is not None


class Twins:
    """Rows (id, u, b) of a table with a unique index of u, which is being filled row by row."""

    def __init__(self, loop: SimLoop, client: Any) -> None:
        self.loop, self.client = loop, client
        self.table = replace(filling.BARE, indexes=(filling.UNIQUE,))
        self.writer = filling.writer_of(self.table)

    async def insert(self, *rows: tuple[int, int], writer: Any = None) -> None:
        t = await self.client.begin()
        for number, u in rows:
            (writer or self.writer).insert(t, (number, u, None))
        await t.commit()

    async def delete(self, number: int) -> None:
        t = await self.client.begin()
        key = self.writer.key_of((number, None, None))
        value, version = await t.get(key)
        self.writer.delete(t, Stored(key, codec(self.table).decode_row(key[4:], value), version))
        await t.commit()

    async def step(self, at: bytes, as_of: int = 0) -> Any:
        """One row: whether it had its entry, if `as_of` is given; and where to go on."""
        of = (self.client, slices.Pace(LoopTimers(self.loop), float, 0))
        of = (*of, self.table, filling.UNIQUE, at)  # type: ignore[assignment]
        if as_of:
            return await slices.checked_in_slices(*of, as_of)  # type: ignore[call-arg, arg-type]
        return await slices.in_slices(*of)  # type: ignore[call-arg]

    async def rest(self, at: bytes | None, as_of: int = 0) -> bool:
        """The other rows; whether all had theirs."""
        whole = True
        while at is not None:
            one, at = await self.step(at, as_of)
            whole = whole and bool(one)
        return whole

    async def numbers(self) -> list[int]:
        """Of the rows that the index finds."""
        of = index_codec(self.table, filling.UNIQUE)
        found = (await self.client.scan(*table_range(filling.UNIQUE.id), limit=100)).items
        rows = [of.row_key(key[4:], value) for key, value, _ in found]
        return [codec(self.table).decode_key(row)[0] for row in rows]


START = table_prefix(filling.BARE.id)


def with_twins(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 2 and 4 have one key; row 4 went before it had an entry, and took that of row 2 along.
    The first time is over.
    """
    monkeypatch.setattr(slices, "SQL_BACKFILL_ROWS", 1)
    monkeypatch.setattr(slices, "fewer", lambda _rows, _tries: 1)

    async def main(loop: SimLoop) -> None:
        place = filling.Place(loop, late_s=0.0)
        await place.start()
        it = Twins(loop, place.client())
        await it.insert((2, 5), (3, 6), (4, 5), writer=filling.writer_of(filling.BARE))
        _, at = await it.step(START)
        assert await it.numbers() == [2]
        await it.delete(4)
        await it.rest(at)
        assert await it.numbers() == [3]
        await test(it)
        await it.client.close()
        place.close()

    run(main)


def test_q4_a_row_that_takes_an_entry_along_where_the_check_was_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row 0 comes with the free key, and has an entry; row 2, which has none, removes it with
    itself. Nobody would find row 0 by the index, and its key would be free.
    """

    async def test(it: Twins) -> None:
        await it.insert((1, 9))
        as_of = await it.client.now()
        whole, at = await it.step(START, as_of)
        assert whole
        await it.insert((0, 5))
        await it.delete(2)
        assert not await it.rest(at, as_of), "row 2 had no entry"
        assert await it.numbers() == [3, 1], "row 0 is lost"
        assert not await it.rest(START, await it.client.now())
        assert await it.numbers() == [0, 3, 1]
        assert await it.rest(START, await it.client.now())

    with_twins(test, monkeypatch)


def test_q4_a_check_sees_rows_and_entries_of_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 1 has the entry of both when the check begins, and is behind it when row 2 goes: neither
    would be missed by a look at what is there now.
    """

    async def test(it: Twins) -> None:
        await it.insert((1, 5))
        as_of = await it.client.now()
        whole, at = await it.step(START, as_of)
        assert whole
        await it.delete(2)
        assert await it.numbers() == [3], "row 1 is lost"
        with pytest.raises(InvalidArgument) as refused:
            await it.rest(at, as_of)
        assert refused.value.details["sql_detail"] == "Key (u)=(5) is duplicated."

    with_twins(test, monkeypatch)
