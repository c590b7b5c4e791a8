"""A table under random changes of sessions that hear of its versions late, while an index is built
on it, dropped, built again, columns are added and filled, one gets another type, and nodes die: at
the end the indexes are the table, and every row has what its columns say (Q2, Q4, Q6).

    python -m tests.sqlproxy.ddl.change.model FIRST COUNT      seeds; says which one failed

Each session is a process with a catalog of its own, so two of them stand on adjacent versions most
of the time; some stop between a change and its commit for longer than any wait, alone or with all
of their process, some are killed. They use what the executor of SQL uses: `TableWriter`,
`Catalogs`, `Presence`, `Fence`, over the clients of different nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import ConditionFailed, KvorumError, Unavailable
from kv.base.keys import table_prefix, table_range
from kv.base.limits import SQL_SCHEMA_TTL_MS, SQL_SETTLE_MS
from kvorum.testing.simulation.loop import SimLoop, run
from sqlproxy.catalog import catalog
from sqlproxy.catalog.declaration_users import Presence
from sqlproxy.catalog.fence import Fence
from sqlproxy.ddl.change import slices
from sqlproxy.declared.catalogs import Catalogs
from sqlproxy.front.bound.env import Env
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import PUBLIC, Table
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.reading import Stored
from sqlproxy.values.errors import SqlError
from tests.harness.world import Place
from txn.client import TxnClient
from txn.transaction import TxnState

SPEC: Final[dict[str, Any]] = {
    "namespace": "default",
    "name": "m",
    "replicas": 3,
    "columns": [
        {"name": "id", "type": "int4", "nullable": False},
        {"name": "a", "type": "int4"},
        {"name": "b", "type": "text"},
        {"name": "c", "type": "int4"},
        {"name": "u", "type": "int4"},
    ],
    "primary_key": ["id"],
    "indexes": [{"name": "other", "columns": ["b"]}],
}
NAME: Final = {"namespace": "default", "name": "m"}
PARTIAL: Final[dict[str, Any]] = {
    "name": "part",
    "columns": ["b"],
    "where": "a > 2 OR b IS NULL",
    "where_columns": ["a", "b"],
}
UNIQUE: Final[dict[str, Any]] = {"name": "alone", "columns": ["u"], "unique": True}
DERIVED: Final[dict[str, Any]] = {
    **NAME,
    "parts": [
        [
            "AddColumn",
            {
                "column": {
                    "name": "_expr",
                    "type": "int4",
                    "generated": "a * 10",
                    "uses": ["a"],
                    "hidden": True,
                }
            },
        ],
        ["CreateIndex", {"index": {"name": "tens", "columns": ["_expr"]}}],
    ],
}
"""CREATE INDEX tens ON m ((a * 10))"""
CHANGES: Final[list[list[tuple[str, dict[str, Any]]]]] = [
    [
        ("CreateIndex", {**NAME, "index": {"name": "made", "columns": ["a"], "include": ["b"]}}),
        ("DropIndex", {"namespace": "default", "names": ["made"]}),
    ],
    [
        ("CreateIndex", {**NAME, "index": PARTIAL}),
        ("DropIndex", {"namespace": "default", "names": ["part"]}),
        ("CreateIndex", {**NAME, "index": PARTIAL}),
    ],
    [
        ("CreateIndex", {**NAME, "index": UNIQUE}),
        ("DropIndex", {"namespace": "default", "names": ["alone"]}),
        ("CreateIndex", {**NAME, "index": UNIQUE}),
    ],
    [
        ("AddParts", DERIVED),
        ("DropIndex", {"namespace": "default", "names": ["tens"]}),
        ("AddParts", DERIVED),
    ],
    [
        (
            "AddColumn",
            {**NAME, "column": {"name": "g", "type": "int4", "generated": "a + 1", "uses": ["a"]}},
        )
    ],
    [("AddColumn", {**NAME, "column": {"name": "s", "type": "int8", "sequence": {}}})],
    [
        (
            "ChangeType",
            {**NAME, "column": "c", "type": "text", "sql": "'c' || c::text", "uses": ["c"]},
        )
    ],
]
"""A run makes those of two lists: in any order, each list in its own. `made`, `part` and `alone`
come at the end.
"""
KEYS: Final = 40
VALUES: Final = 400  # of `u`: now and then two rows have the same, and an index is refused
LONG_S: Final = 1.3 * SQL_SETTLE_MS / 1000  # a process that stood still


class Gate:
    """What a process's presence goes through: nothing while the process stands still, nor when it
    was killed.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.killed = False
        self._open = asyncio.Event()
        self._open.set()
        self.shut, self.open = self._open.clear, self._open.set

    async def _pass(self) -> None:
        await self._open.wait()
        if self.killed:
            raise Unavailable("killed")

    async def multi_get(self, keys: Any) -> Any:
        await self._pass()
        return await self.client.multi_get(keys)

    async def write(self, ops: Any) -> Any:
        await self._pass()
        return await self.client.write(ops)


class World:
    """The cluster, and what happened."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.stop = False
        self.committed = self.refused = 0
        self.doubles = self.chance.random() < 0.5  # whether two rows may have the same `u`
        self.taken_back = 0  # unique indexes
        self.numbers = 1_000_000  # of rows that sessions make; those of a backfill are small
        self.writers: dict[tuple[int, int], Any] = {}
        self.versions: set[int] = set()  # that commits were bound to

    def client(self) -> Any:
        """Of some node that lives."""
        nodes = self.place.cluster.nodes
        living = [n for n in sorted(nodes) if not nodes[n].fatal.done()]
        return nodes[self.chance.choice(living)].store.txn

    async def session(self, loop: SimLoop, number: int) -> None:
        """A process with one client: it dies, and others come, under other names."""
        timers, life = LoopTimers(loop), 0
        while not self.stop:
            life += 1
            gate = Gate(self.client())
            presence = Presence(gate, timers, f"p{number}.{life}".encode())
            catalogs = Catalogs(gate.client, timers, SQL_SCHEMA_TTL_MS / 1000, presence)
            try:
                while self.chance.random() < 0.99 and not self.stop:
                    await asyncio.sleep(self.chance.random() / 2)
                    fence = Fence("default", timers, presence)
                    try:
                        await self._transaction(gate, catalogs, fence)
                    except SqlError as error:
                        if error.sqlstate not in ("40001", "23505"):
                            raise
                        self.refused += 1
                    except ConditionFailed:  # 23505, found at the commit
                        self.refused += 1
                    finally:
                        fence.forget()
            except KvorumError:
                self.refused += 1
            gate.open()
            gate.killed = self.chance.random() < 0.25  # its row stays
            await presence.close()

    async def _transaction(self, gate: Gate, catalogs: Catalogs, fence: Fence) -> None:
        client = gate.client
        declared = await catalogs.declared("default")
        table = declared.table("m")
        if table is None:
            return
        use = catalogs.use(declared)
        match self.chance.random():
            case x if x < 0.01:  # the statement stands still, its process lives
                await asyncio.sleep(LONG_S * self.chance.random())
            case x if x < 0.02:  # the process stands still
                gate.shut()
                await asyncio.sleep(LONG_S * self.chance.random())
                gate.open()
        t = await client.begin()
        writer = self.writers[table.id, table.version] = declared.writer(table)
        for _ in range(self.chance.randint(1, 3)):
            fence.bound(catalogs.looked(declared), declared.version)
            use.end()
            row = self._row(table)
            key = writer.key_of(row)
            value, version = await t.get(key)
            old = None
            if value is not None:
                old = Stored(key, codec(table).decode_row(key[4:], value), version)
            match self.chance.choice("iud"):
                case "d" if old is not None:
                    writer.delete(t, old)
                case "u" if old is not None:
                    await self._update(t, writer, old, row)
                case _ if old is None:
                    writer.insert(t, row)
                case _:
                    pass
        if self.chance.random() < 0.03:
            await asyncio.sleep(LONG_S * self.chance.random())
        try:
            await fence.hold(t)
            await t.commit()
        finally:
            fence.forget(unknown=t.state in (TxnState.COMMITTING, TxnState.UNKNOWN))
        self.committed += 1
        self.versions.add(table.version)

    async def _update(self, t: Any, writer: Any, old: Stored, row: tuple[Any, ...]) -> None:
        kept, names = list(old.values), [c.name for c in writer.table.columns]
        at, u = names.index("a"), names.index("u")
        kept[at] = row[at]
        kept[at + 1] = self.chance.choice([None, "x", "y"])
        match self.chance.randrange(4):
            case 0:
                kept[u] = row[u]
            case 1 if not self.doubles:
                kept[u] = await self._taken(t, writer, old, self._row(writer.table), u)
            case _:
                pass
        writer.update(t, old, writer.rules.finished(kept, Env()))

    async def _taken(self, t: Any, writer: Any, old: Stored, other: tuple[Any, ...], u: int) -> Any:
        """The `u` of another row, which has none any more."""
        key = writer.key_of(other)
        value, version = await t.get(key)
        if value is None or key == old.key:
            return old.values[u]
        row = codec(writer.table).decode_row(key[4:], value)
        kept = [*row[:u], None, *row[u + 1 :]]
        writer.update(t, Stored(key, row, version), writer.rules.finished(kept, Env()))
        return row[u]

    def _row(self, table: Table) -> tuple[Any, ...]:
        """A new one, with what its columns want at this version."""
        self.numbers += 1
        number = self.chance.randrange(KEYS)
        c: Any = number * 7
        values = {
            "id": number,
            "a": self.chance.randrange(6),
            "s": self.numbers,
            "c": c if table.column("c").type == "int4" else f"c{c}",
            "u": self.chance.choice(
                [None, self.chance.randrange(VALUES) if self.doubles else self.numbers]
            ),
        }
        made = [values.get(column.name) for column in table.columns]
        row: tuple[Any, ...] = self.writers[table.id, table.version].rules.finished(made, Env())
        return row

    async def master_dies(self) -> None:
        """Now and then, and comes back."""
        nodes = self.place.cluster.nodes
        while not self.stop:
            await asyncio.sleep(5 + 40 * self.chance.random())
            here = [n for n, node in nodes.items() if node.master.executor is not None]
            if not here or self.stop:
                continue
            await self.place.cluster.crash(here[0])
            await asyncio.sleep(1 + 2 * self.chance.random())
            await self.place.cluster.start(here[0])

    async def change(self, name: str, args: dict[str, Any]) -> None:
        """One of `CHANGES`. A unique index may be refused where two rows have the same, and then
        there is none to drop.
        """
        if name == "DropIndex" and args["names"] == [UNIQUE["name"]]:
            table = await catalog.lookup(self.place.txn, "default", "m")
            if table.index(UNIQUE["name"]) is None:
                return
        if args.get("index") is not UNIQUE or not self.doubles:
            await self.place.run(name, args)
            return
        for n in range(3):
            submitted = await self.place.submit(name, args, f"{name}-{n}-{self.chance.random()}")
            info = await self.place.end_of(submitted)
            if info.state == "SUCCESS":
                return
            assert "could not create unique index" in str(info.error), info.error
            self.taken_back += 1


async def compared(place: Place) -> tuple[int, Table]:
    """How many rows there are. Raises AssertionError unless every index is the table, and every row
    is what its columns say.
    """
    table = await catalog.lookup(place.txn, "default", "m")
    t = await place.txn.begin()
    found = (await t.scan(*table_range(table.id), limit=KEYS + 1)).items
    for index in table.indexes:
        assert index.state == PUBLIC
        wanted = {}
        for key, value, _ in found:
            row = codec(table).decode_row(key[4:], value)
            if not index_codec(table, index).has(row):
                continue
            at, entry = index_codec(table, index).entry(row)
            assert table_prefix(index.id) + at not in wanted, f"{index.name}: twice {row}"
            wanted[table_prefix(index.id) + at] = entry
        there = (await t.scan(*table_range(index.id), limit=10 * KEYS)).items
        assert {key: value for key, value, _ in there} == wanted, index.name
    await t.abort()
    names, numbers = [column.name for column in table.columns], set()
    assert names[:4] == ["id", "a", "b", "c"], names
    for key, value, _ in found:
        has = dict(zip(names, codec(table).decode_row(key[4:], value), strict=True))
        assert has.get("g", has["a"] + 1) == has["a"] + 1, has
        assert has.get("_expr", has["a"] * 10) == has["a"] * 10, has
        c = has["id"] * 7
        assert has["c"] == (c if table.column("c").type == "int4" else f"c{c}"), has
        if "s" in has:
            assert has["s"] is not None, has
            assert has["s"] not in numbers, has
            numbers.add(has["s"])
    return len(found), table


def play(seed: int) -> World:
    """One whole run. Raises AssertionError."""
    seen: list[World] = []

    async def main(loop: SimLoop) -> None:
        place = Place(loop, seed, 3)
        await place.start()
        await place.run("CreateTable", SPEC)
        world = World(place, seed)
        seen.append(world)
        work = [asyncio.ensure_future(world.session(loop, n)) for n in range(4)]
        work.append(asyncio.ensure_future(world.master_dies()))
        await asyncio.sleep(3)
        left = [list(one) for one in world.chance.sample(CHANGES, 2)]
        while any(left):
            one = world.chance.choice([changes for changes in left if changes])
            await world.change(*one.pop(0))
            await asyncio.sleep(world.chance.random() * LONG_S / 8)
        table = await catalog.lookup(place.txn, "default", "m")
        for name, changes in (("made", CHANGES[0]), ("part", CHANGES[1]), ("alone", CHANGES[2])):
            if table.index(name) is None:
                await world.change(*changes[0])
        await asyncio.sleep(LONG_S / 4)
        world.stop = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(120):
                await asyncio.gather(*work, return_exceptions=True)
        await asyncio.sleep(5)
        count, table = await compared(place)
        assert count
        assert world.committed > 20, world.committed
        assert table.index("made") is not None
        await place.cluster.close()

    with few_rows(random.Random(seed)), late_entries(random.Random(seed)):
        run(main, seed)
    return seen[0]


@contextlib.contextmanager
def late_entries(chance: random.Random) -> Iterator[None]:
    """Some entries come long after the snapshot that they are made of, some twice."""
    ingest = TxnClient.ingest

    async def late(client: TxnClient, *args: Any, **more: Any) -> int:
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 2)
        put = await ingest(client, *args, **more)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() / 2)
            with contextlib.suppress(ConditionFailed):
                assert await ingest(client, *args, **more) == 0
        return put

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TxnClient, "ingest", late)
        yield


@contextlib.contextmanager
def few_rows(chance: random.Random) -> Iterator[None]:
    """Slices of few rows, so that a backfill has several under way, and several steps."""
    there = vars(slices)
    before = {name: there[name] for name in ("SQL_SLICE_ROWS_MAX", "SQL_BACKFILL_ROWS")}
    there.update(SQL_SLICE_ROWS_MAX=1, SQL_BACKFILL_ROWS=chance.randint(5, KEYS))
    try:
        yield
    finally:
        there.update(before)


if __name__ == "__main__":
    first, many = (int(arg) for arg in sys.argv[1:3])
    for seed in range(first, first + many):
        try:
            world = play(seed)
        except BaseException:
            print(  # noqa: T201
                f"seed {seed} FAILED: python -m tests.sqlproxy.ddl.change.model {seed} 1",
                flush=True,
            )
            raise
        told = f"{world.committed} commits, {world.refused} refused, versions {world.versions}"
        told += f", {world.taken_back} taken back" if world.taken_back else ""
        print(f"seed {seed}: {told}", flush=True)  # noqa: T201
