"""An index that is filled slice by slice while rows change: real partitions, commits and clients in
virtual time, but no cluster, no schema that changes, and so many histories in little time. At the
end the index is the table.

    python -m tests.sqlproxy.ddl.change.filling FIRST COUNT      seeds; says which one failed

Rows and entries lie in four partitions, so most changes are commits of several; some clients die
within theirs. Messages take their time, some are lost, and entries come late, or twice. Rows change
as `TableWriter` has it where the index is write-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from dataclasses import replace
from typing import Any, Final

from kv.base.adapters import LoopTimers
from kv.base.errors import (
    ConditionFailed,
    InvalidArgument,
    KvorumError,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import TableId
from kv.base.keys import table_prefix, table_range
from kv.base.methods import INGEST
from kv.base.verbs import repeatable
from kvorum.testing.simulation.loop import SimLoop, run
from sqlproxy.ddl.change import slices
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import WRITE_ONLY, Column, Index, IndexColumn, Table
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.reading import Stored
from sqlproxy.tables.rules import Rules
from sqlproxy.values.errors import SqlError
from tests.txn.real_kv import RealCluster
from tests.txn.world import Hooked, RealWorld, World, doomed_client
from txn.client import TxnClient

ROWS: Final = 24
NUMBERS: Final = 200  # of `u`: now and then two rows have the same
BARE: Final = replace(
    Table.declare(
        "default",
        "t",
        primary_key=("id",),
        columns=[Column(0, "id", "int4"), Column(0, "u", "int4"), Column(0, "b", "text")],
    ),
    id=TableId(100),
)
PLAIN: Final = Index(TableId(101), "t_u_b", (IndexColumn(2),), False, (3,), state=WRITE_ONLY)
UNIQUE: Final = Index(TableId(101), "t_u", (IndexColumn(2),), True, (), state=WRITE_ONLY)
PARTIAL: Final = replace(PLAIN, where="b = 'x' OR b IS NULL", where_columns=(3,))
INDEXES: Final = {"plain": PLAIN, "unique": UNIQUE, "partial": PARTIAL}


def writer_of(table: Table) -> TableWriter:
    return TableWriter(table, Rules(table, {}, (), (), (), (), lambda place, value: str(value)))


class Place(RealWorld):
    """Rows in two partitions, entries in two others; the oracle is at another node, or here."""

    def __init__(self, loop: SimLoop, *, late_s: float) -> None:
        World.__init__(self, loop)
        codec_ = index_codec(BARE, UNIQUE)
        borders = [
            writer_of(BARE).key_of((ROWS // 2, None, None)),
            table_prefix(UNIQUE.id),
            table_prefix(UNIQUE.id) + codec_.entry((0, NUMBERS // 2, None))[0],
        ]
        self.real = RealCluster(loop, borders, late_s=late_s)


class Careless(Hooked):
    """Messages of entries are late, and their answers lost now and then."""

    async def arrives(self, method: int) -> None:
        rng = self.loop.rng
        if method == INGEST:
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random())
        elif rng.random() < 0.05:
            await asyncio.sleep(rng.random() / 5)

    async def returns(self, method: int) -> None:
        if repeatable(method) and self.loop.rng.random() < 0.1:
            raise Unavailable("lost")


class Late(TxnClient):
    """Entries come twice now and then, the second time when more has changed."""

    rng: random.Random

    async def ingest(self, *args: Any, **more: Any) -> int:
        put = await super().ingest(*args, **more)
        if self.rng.random() < 0.2:
            await asyncio.sleep(self.rng.random() / 2)
            with contextlib.suppress(ConditionFailed):
                assert await super().ingest(*args, **more) == 0, "it was there"
        return put


class Filled:
    """A run."""

    def __init__(self, loop: SimLoop, place: Place, seed: int, index: Index) -> None:
        self.loop, self.place, self.index = loop, place, index
        self.chance = random.Random(seed)
        self.doubles = index.unique and self.chance.random() < 0.5
        self.table = replace(BARE, indexes=(index,))
        self.writer = writer_of(self.table)
        self.numbers = NUMBERS  # of rows that no other one has
        self.done = self.refused = 0
        self.stop = False
        self.made_s = 0.0
        self.dead: list[TxnClient] = []

    def number(self) -> int | None:
        """A `u`."""
        if self.chance.random() < 0.2:
            return None
        if not self.index.unique or self.doubles:
            return self.chance.randrange(NUMBERS)
        self.numbers += 1
        return self.numbers - NUMBERS

    def row(self, at: int) -> tuple[Any, ...]:
        return at, self.number(), self.chance.choice([None, "x", "y"])

    async def stored(self, t: Any, at: int) -> Stored | None:
        key = self.writer.key_of((at, None, None))
        value, version = await t.get(key)
        if value is None:
            return None
        return Stored(key, codec(self.table).decode_row(key[4:], value), version)

    async def begin(self, client: TxnClient) -> None:
        """Rows of before the index."""
        t, bare = await client.begin(), writer_of(BARE)
        for at in range(ROWS):
            if self.chance.random() < 0.7:
                bare.insert(t, self.row(at))
        await t.commit()

    async def session(self) -> None:
        """Changes of one client after the other; some die."""
        while not self.stop:
            dies = self.chance.random() < 0.3
            client = self.place.client()
            if dies:
                client, kv = doomed_client(self.place, self.chance.randrange(3, 40))
                work = asyncio.ensure_future(self.changes(client))
                died = asyncio.ensure_future(kv.died.wait())
                await asyncio.wait([work, died], return_when=asyncio.FIRST_COMPLETED)
                for task in (work, died):
                    task.cancel()
                await asyncio.gather(work, died, return_exceptions=True)
                self.dead.append(client)  # nothing of it is heard of any more
                continue
            await self.changes(client)
            await client.close()

    async def changes(self, client: TxnClient) -> None:
        while not self.stop and self.chance.random() < 0.9:
            await asyncio.sleep(self.chance.random() / 20)
            try:
                await self.change(client)
                self.done += 1
            except (KvorumError, SqlError):
                self.refused += 1

    async def change(self, client: TxnClient) -> None:
        t = await client.begin()
        async with t:
            for _ in range(self.chance.choice((1, 1, 2))):
                at = self.chance.randrange(ROWS)
                old = await self.stored(t, at)
                if old is None:
                    self.writer.insert(t, self.row(at))
                elif self.chance.random() < 0.4:
                    self.writer.delete(t, old)
                else:
                    await self.update(t, old)
            if self.chance.random() < 0.2:
                await asyncio.sleep(self.chance.random() / 2)

    async def update(self, t: Any, old: Stored) -> None:
        at, u, _ = old.values
        _, new, b = self.row(at)
        match self.chance.randrange(3):
            case 0:
                u = new
            case 1 if not self.doubles:
                other = await self.stored(t, self.chance.randrange(ROWS))
                if other is not None and other.key != old.key:
                    u = other.values[1]
                    self.writer.update(t, other, (other.values[0], None, other.values[2]))
            case _:
                pass
        self.writer.update(t, old, (at, u, b))

    def used(self) -> float:
        """Seconds that the loop used: all of them, and entries took up to half a millisecond."""
        self.made_s += self.chance.random() * 0.000_5
        return self.loop.time() + self.made_s

    async def fill(self, client: TxnClient) -> bool:
        """All steps of the backfill. False: a unique index is refused."""
        as_of, whole = 0, False
        while not whole:
            try:
                whole = await self._over_all(client, as_of)
            except InvalidArgument as error:
                if not self.doubles or "23505" not in str(error.details):
                    raise AssertionError("there are no duplicates") from error
                return False
            whole = not self.index.unique or (whole and as_of > 0)
            as_of = await client.now()
        return True

    async def _over_all(self, client: TxnClient, as_of: int) -> bool:
        """Once from the first row to the last. `as_of`: of a check; whether all had entries."""
        at: bytes | None = table_range(self.table.id)[0]
        all_whole = True
        beside = self.chance.random() < 0.5  # others use the loop: part by part, with rests
        while at is not None:
            pace = slices.Pace(LoopTimers(self.loop), self.used if beside else float, 0)
            of = (client, pace, self.table, self.index, at)
            try:
                if as_of:
                    whole, at = await slices.checked_in_slices(*of, as_of)
                    all_whole = all_whole and whole
                else:
                    _, at = await slices.in_slices(*of)
            except (Unavailable, UnknownOutcome):
                continue  # as the executor does
        return all_whole

    async def compared(self, client: TxnClient) -> None:
        t = await client.begin()
        found = (await t.scan(*table_range(self.table.id), limit=ROWS + 1)).items
        of, wanted = index_codec(self.table, self.index), dict[bytes, bytes]()
        for key, value, _ in found:
            row = codec(self.table).decode_row(key[4:], value)
            if of.has(row):
                at, entry = of.entry(row)
                key = table_prefix(self.index.id) + at
                assert key not in wanted, f"two rows are {row}"
                wanted[key] = entry
        there = (await t.scan(*table_range(self.index.id), limit=10 * ROWS)).items
        assert {key: value for key, value, _ in there} == wanted
        await t.abort()


def play(seed: int, index: Index) -> Filled:
    """One whole run. Raises AssertionError."""
    seen: list[Filled] = []

    async def main(loop: SimLoop) -> None:
        place = Place(loop, late_s=0.0 if seed % 3 else 0.001)
        await place.start()
        it = Filled(loop, place, seed, index)
        seen.append(it)
        quiet = place.client()
        await it.begin(quiet)
        work = [asyncio.ensure_future(it.session()) for _ in range(3)]
        client = place.client(Careless(loop, place.kv()))
        client.__class__, client.rng = Late, it.chance  # type: ignore[attr-defined]
        filled = await it.fill(client)
        await asyncio.sleep(0.5)
        it.stop = True
        await asyncio.gather(*work)
        await asyncio.sleep(30)  # what the dead have left is over
        if filled:
            await it.compared(quiet)
        for one in (client, quiet, *it.dead):
            await one.close()
        place.close()

    there = vars(slices)
    before = {name: there[name] for name in ("SQL_SLICE_ROWS_MAX", "SQL_BACKFILL_ROWS", "fewer")}
    rows = 1 + seed % 7
    there.update(SQL_SLICE_ROWS_MAX=1, SQL_BACKFILL_ROWS=3 * rows, fewer=lambda _r, _t: rows)
    try:
        run(main, seed)
    finally:
        there.update(before)
    return seen[0]


if __name__ == "__main__":
    first, many = (int(arg) for arg in sys.argv[1:3])
    done = refused = 0
    for seed in range(first, first + many):
        for name, index in INDEXES.items():
            try:
                told = play(seed, index)
            except BaseException:
                print(f"seed {seed} FAILED: {name}", flush=True)  # noqa: T201
                raise
            done, refused = done + told.done, refused + told.refused
    print(f"seeds {first}-{seed}: {done} commits, {refused} refused", flush=True)  # noqa: T201
