"""A temporary table under the random changes of the model, and definitions between them, in
transactions that are committed, taken back, or taken back to a savepoint: its indexes are always
the table, its rows what the transactions that were committed have made of it, and what is declared
what they declared (Q2, Q6).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError
from kv.base.keys import table_prefix, table_range
from kvorum.testing.simulation.loop import SimLoop, SimRng, run
from sqlproxy.catalog.privileges import Place
from sqlproxy.catalog.relations import Relations
from sqlproxy.ddl.private import (
    PrivateDefinitions,
    PrivateIds,
    declare_private,
    declared_privately,
)
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound.env import Env
from sqlproxy.rows.naming import named
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import PUBLIC, Table
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.reading import Stored
from tests.sqlproxy.ddl.change.model import CHANGES, KEYS, SPEC
from tests.txn.world import World
from txn.private import PrivateRows, PrivateWrites
from txn.transaction import Transaction

SPACE: Final = "db:pg_temp_1"
BASE: Final = Declared(Relations("db", (), (), ()), 1)
Row = tuple[int, str | None, int | None]  # a, b, u


class Session:
    """One session's table, and what it should be."""

    def __init__(self, loop: SimLoop, seed: int, ids: PrivateIds | None = None) -> None:
        self.chance, self.rows = random.Random(seed), PrivateRows()
        self.doubles = self.chance.random() < 0.5  # whether two rows may have the same `u`
        self.wanted: dict[int, Row] = {}
        self.lists = [[(n, {**a, "namespace": SPACE}) for n, a in one] for one in CHANGES]
        self.done = [0] * len(self.lists)
        self.numbers = 1_000_000
        self.committed = self.taken_back = self.refused = 0
        self.writes = PrivateWrites(self.rows)
        self.definitions = PrivateDefinitions(
            *(
                ids or PrivateIds(),
                LoopTimers(loop),
                SimRng(seed),
                lambda: 1_000,
                lambda: self.writes,
            )
        )

    async def begin(self) -> None:
        await declare_private(self.writes, "db", SPACE, "")
        spec = {**SPEC, "namespace": SPACE}
        spec.pop("replicas")
        await self.define("CreateTable", spec)
        await self.writes.commit()

    async def define(self, name: str, args: dict[str, Any]) -> None:
        await self.definitions.run(name, args)
        self.writes.derived = await declared_privately(self.writes, "db")

    @property
    def declared(self) -> Declared:
        found = self.writes.derived
        assert isinstance(found, Relations)
        return BASE.under(found, "pg_temp_1", Place(SPACE))

    @property
    def table(self) -> Table:
        found = self.declared.table(named("pg_temp_1", "m"))
        assert found is not None
        return found

    async def transaction(self, t: Transaction) -> None:
        self.writes = t.beside = PrivateWrites(self.rows)
        kept = dict(self.wanted), list(self.done)
        mark: tuple[Any, dict[int, Row], list[int]] | None = None
        try:
            for _ in range(self.chance.randint(1, 7)):
                match self.chance.random():
                    case x if x < 0.2:
                        await self._define()
                    case x if x < 0.3:
                        mark = self.writes.mark(), dict(self.wanted), list(self.done)
                    case x if x < 0.4 and mark is not None:
                        self.writes.undo_to(mark[0])
                        self.wanted, self.done = dict(mark[1]), list(mark[2])
                    case _:
                        await self._change(t)
            if self.chance.random() < 0.75:
                await t.commit()
                self.committed += 1
                return
            self.taken_back += 1
        except KvorumError as error:
            if "could not create unique index" not in str(error):
                raise
            self.refused += 1
        self.wanted, self.done = kept
        await t.abort()

    async def _define(self) -> None:
        left = [at for at, one in enumerate(self.lists) if self.done[at] < len(one)]
        if left:
            at = self.chance.choice(left)
            name, args = self.lists[at][self.done[at]]
            self.done[at] += 1
            await self.define(name, args)

    async def _change(self, t: Transaction) -> None:
        table, writer = self.table, self.declared.writer(self.table)
        number = self.chance.randrange(KEYS)
        row = self._row(table, number)
        key = writer.key_of(row)
        value, version = await t.get(key)
        assert (value is not None) == (number in self.wanted)
        if value is None:
            writer.insert(t, row)
        else:
            old = Stored(key, codec(table).decode_row(key[4:], value), version)
            if self.chance.random() < 0.4:
                writer.delete(t, old)
                del self.wanted[number]
                return
            names = [column.name for column in table.columns]
            kept = [
                has if name in ("s",) else new
                for name, has, new in zip(names, old.values, row, strict=True)
            ]
            row = writer.rules.finished(kept, Env())
            writer.update(t, old, row)
        has = dict(zip([column.name for column in table.columns], row, strict=True))
        self.wanted[number] = has["a"], has["b"], has["u"]

    def _row(self, table: Table, number: int) -> tuple[Any, ...]:
        self.numbers += 1
        c: Any = number * 7
        values = {
            "id": number,
            "a": self.chance.randrange(6),
            "b": self.chance.choice([None, "x", "y"]),
            "c": c if table.column("c").type == "int4" else f"c{c}",
            "s": self.numbers,
            "u": self.chance.choice([None, self.numbers]),
        }
        if self.doubles and table.index("alone") is None:
            values["u"] = self.chance.choice([None, self.chance.randrange(300)])
        made = [values.get(column.name) for column in table.columns]
        found: tuple[Any, ...] = self.declared.writer(table).rules.finished(made, Env())
        return found

    async def compare(self, t: Transaction) -> None:
        """Raises AssertionError."""
        self.writes = t.beside = PrivateWrites(self.rows)
        table = self.table
        found = (await t.scan(*table_range(table.id), limit=KEYS + 1)).items
        names = [column.name for column in table.columns]
        there: dict[int, Row] = {}
        for key, value, _ in found:
            has = dict(zip(names, codec(table).decode_row(key[4:], value), strict=True))
            there[has["id"]] = has["a"], has["b"], has["u"]
            assert has.get("g", has["a"] + 1) == has["a"] + 1
            assert has.get("_expr", has["a"] * 10) == has["a"] * 10
            assert has["c"] == (
                has["id"] * 7 if table.column("c").type == "int4" else f"c{has['id'] * 7}"
            )
            assert "s" not in has or has["s"] is not None
        assert there == self.wanted
        ranges = [table.id]
        for index in table.indexes:
            assert index.state == PUBLIC
            ranges.append(index.id)
            wanted = {}
            for key, value, _ in found:
                row = codec(table).decode_row(key[4:], value)
                if index_codec(table, index).has(row):
                    at, entry = index_codec(table, index).entry(row)
                    wanted[table_prefix(index.id) + at] = entry
            entries = (await t.scan(*table_range(index.id), limit=10 * KEYS)).items
            assert {key: value for key, value, _ in entries} == wanted, index.name
        for at, one in enumerate(self.lists):
            made = {n for n, a in one[: self.done[at]] if n == "CreateIndex"}
            assert not made or self.done[at] == 2 or table.index(one[0][1]["index"]["name"])
        await t.abort()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(20))
def test_q2_temporary_tables_under_changes_and_definitions(seed: int) -> None:
    """What was taken back stays, an index is not its table, or a definition loses rows."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        await world.start()
        client = world.client()
        session = Session(loop, seed)
        await session.begin()
        for _ in range(60):
            await session.transaction(await client.begin(renews=session.chance.random() < 0.5))
            await session.compare(await client.begin())
        assert session.committed > 10
        assert session.taken_back > 3
        await session.compare(await client.begin())
        world.close()

    run(main, seed)


def test_q2_definitions_of_two_sessions_at_once_let_others_have_the_loop() -> None:
    """One session's definition over many rows stops the process, or two are given the same ids."""

    async def main(loop: SimLoop) -> None:
        ids, turns = PrivateIds(), 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(others())
        sessions = [Session(loop, seed, ids) for seed in (1, 2, 3)]
        await asyncio.gather(*(one.begin() for one in sessions))
        for one in sessions:
            one.writes = PrivateWrites(one.rows)
        for at in range(len(CHANGES)):
            await asyncio.gather(*(one.define(*one.lists[at][0]) for one in sessions[1:]))
            before = turns
            await sessions[0].define(*sessions[0].lists[at][0])
            assert turns > before
        ticking.cancel()
        given = [number for one in sessions for number in one.table.storage_ids]
        assert len(given) > 3 == len(sessions)
        assert len(set(given)) == len(given)

    run(main, 1)
