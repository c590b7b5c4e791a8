"""The catalog in the system tables, over a transaction with conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import Any

import pytest

from kv.base.errors import (
    AlreadyExists,
    Corruption,
    InvalidArgument,
    NotFound,
    Refused,
    TooLarge,
    WriteConflict,
)
from kv.base.ids import FIRST_USER_TABLE, TableId
from kv.base.keys import META_RANGE, table_range
from sqlproxy.catalog import catalog
from sqlproxy.rows import rows
from sqlproxy.rows.schema import DISABLED, Column, Namespace, Table, placed
from sqlproxy.values.errors import from_store


@dataclass
class Page:
    items: list[tuple[bytes, bytes, int]]
    resume: bytes | None


@dataclass
class Store:
    """Rows with their versions; `begin` gives transactions under snapshot isolation."""

    rows: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    clock: int = 0
    page: int = 3  # small, so that scans have several pages

    def begin(self) -> Txn:
        self.clock += 1
        return Txn(self, self.clock, dict(self.rows))


@dataclass
class Txn:
    store: Store
    start_ts: int
    snapshot: dict[bytes, tuple[bytes, int]]
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    checks: dict[bytes, int] = field(default_factory=dict)
    reads: int = 0

    def _merged(self) -> dict[bytes, tuple[bytes, int]]:
        merged = dict(self.snapshot)
        for key, value in self.writes.items():
            merged.pop(key, None)
            if value is not None:
                merged[key] = (value, 0)
        return merged

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        self.reads += 1
        return self._merged().get(key, (None, 0))

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page:
        merged = self._merged()
        found = sorted(k for k in merged if start <= k < end)
        size = min(limit, self.store.page)
        items = [(k, *merged[k]) for k in found[:size]]
        return Page(items, found[size] if len(found) > size else None)

    def put(self, key: bytes, value: bytes) -> None:
        self.writes[key] = value

    def delete(self, key: bytes) -> None:
        self.writes[key] = None

    def check(self, key: bytes, version: int) -> None:
        self.checks[key] = version

    def commit(self) -> None:
        for key in self.writes:
            if self.store.rows.get(key, (b"", 0))[1] != self.snapshot.get(key, (b"", 0))[1]:
                raise WriteConflict(f"{key!r} was written meanwhile")
        for key, version in self.checks.items():
            if self.store.rows.get(key, (b"", 0))[1] != version:
                raise WriteConflict(f"{key!r} was changed meanwhile")
        self.store.clock += 1
        for key, value in self.writes.items():
            if value is None:
                self.store.rows.pop(key, None)
            else:
                self.store.rows[key] = (value, self.store.clock)


SPEC = placed(
    Table.declare(
        "default",
        "flights",
        columns=[
            Column(0, "day", "date"),
            Column(0, "number", "int4"),
            Column(0, "note", "text", default="none"),
            Column(0, "since", "date", default=date(2013, 1, 1)),
        ],
        primary_key=("day", "number"),
    ),
    {"replicas": 3, "tags": ("ssd",)},
)


@pytest.fixture
async def store() -> Store:
    made = Store()
    t = made.begin()
    await catalog.bootstrap(t)
    t.commit()
    return made


async def create(store: Store, spec: Table = SPEC) -> Table:
    t = store.begin()
    table = await catalog.create_table_record(t, spec, await catalog.next_table_id(t))
    t.commit()
    t = store.begin()
    table = await catalog.publish(t, table)
    t.commit()
    return table


async def drop(store: Store, namespace: str, name: str) -> None:
    t = store.begin()
    table = await catalog.start_drop(t, namespace, name)
    await catalog.finish_drop(t, table)
    t.commit()


async def test_two_namespaces_exist_from_the_start(store: Store) -> None:
    """A first client connects to `default`, a PostgreSQL client to `postgres`."""
    assert [n.name for n in await catalog.list_namespaces(store.begin())] == ["default", "postgres"]
    before = dict(store.rows)
    t = store.begin()
    await catalog.bootstrap(t)
    t.commit()
    assert store.rows == before
    for name in ("default", "postgres"):
        with pytest.raises(Refused, match="always exists"):
            await catalog.drop_namespace(store.begin(), name)


async def test_a_table_is_found_as_it_was_declared(store: Store) -> None:
    """What comes out of the catalog decides how rows are read: every field must survive."""
    table = await create(store)
    assert table.id == FIRST_USER_TABLE
    t = store.begin()
    found = await catalog.lookup(t, "default", "flights")
    assert found == table
    assert found == replace(SPEC, id=table.id, state="public", version=2, created=table.created)
    assert table.created > 0
    assert await catalog.find_by_id(t, table.id) == table
    assert await catalog.list_tables(t, "default") == [table]
    assert all(META_RANGE[0] <= key < META_RANGE[1] for key in store.rows), "all in the meta range"


async def test_a7_one_key_in_two_tables_never_collides(store: Store) -> None:
    """Tables are told apart by id alone, so names may be reused in another namespace, and dropping
    one leaves the other.
    """
    t = store.begin()
    await catalog.create_namespace(t, "other")
    t.commit()
    tables = [
        await create(store, Table.declare(ns, name))
        for ns, name in (("default", "a"), ("default", "b"), ("other", "a"))
    ]
    data: dict[bytes, bytes] = {}
    for table in tables:
        key, value = rows.encode_row(table, (b"same key", table.path.encode()))
        data[table_range(table.id)[0] + key] = value
    assert len(data) == 3
    ranges = sorted(table_range(table.id) for table in tables)
    assert all(low[1] <= high[0] for low, high in pairwise(ranges))
    for table, (start, end) in zip(tables, (table_range(t.id) for t in tables), strict=True):
        assert [v for k, v in data.items() if start <= k < end] == [table.path.encode()]
    await drop(store, "default", "a")
    with pytest.raises(NotFound):
        await catalog.lookup(store.begin(), "default", "a")
    assert (await catalog.lookup(store.begin(), "default", "b")).id == tables[1].id
    assert (await catalog.lookup(store.begin(), "other", "a")).id == tables[2].id
    again = await create(store, Table.declare("default", "a"))
    assert again.id > max(table.id for table in tables), "an id is never given out twice"


async def test_names_that_are_prefixes_stay_apart(store: Store) -> None:
    """`list_tables` of a namespace must not show those of one whose name begins alike."""
    t = store.begin()
    for name in ("defaul", "default2"):
        await catalog.create_namespace(t, name)
    t.commit()
    for ns in ("defaul", "default", "default2"):
        for i in range(4):
            await create(store, Table.declare(ns, f"t{i}"))
    for ns in ("defaul", "default", "default2"):
        found = await catalog.list_tables(store.begin(), ns)
        assert [t.path for t in found] == [f"{ns}.t{i}" for i in range(4)]


async def test_missing_names_say_what_is_missing(store: Store) -> None:
    """A user must see whether the table or its namespace is wrong."""
    t = store.begin()
    for ns, name, code in (
        ("nope", "t", "NAMESPACE_NOT_FOUND"),
        ("default", "nope", "TABLE_NOT_FOUND"),
    ):
        with pytest.raises(NotFound) as caught:
            await catalog.lookup(t, ns, name)
        assert caught.value.code == code
        assert await catalog.find(t, ns, name) is None
    with pytest.raises(NotFound, match="no namespace 'nope'"):
        await catalog.create_table_record(t, Table.declare("nope", "t"), TableId(100))
    with pytest.raises(NotFound):
        await catalog.start_drop(t, "default", "nope")
    assert await catalog.find_by_id(t, TableId(12345)) is None
    assert t.writes == {}


async def test_sql_is_told_of_databases_schemas_and_relations(store: Store) -> None:
    """A definition that comes behind a rename would speak of a namespace, and say 3D000 of a
    schema (PostgreSQL: 3F000).
    """
    t = store.begin()
    for refused, state, words in (
        (catalog.lookup_namespace(t, "shop:s"), "3F000", 'schema "s" does not exist'),
        (catalog.hold_namespace(t, "shop:s"), "3F000", 'schema "s" does not exist'),
        (catalog.lookup_namespace(t, "shop"), "3D000", 'database "shop" does not exist'),
        (catalog.lookup(t, "default", "nope"), "42P01", 'relation "nope" does not exist'),
    ):
        with pytest.raises(NotFound) as caught:
            await refused
        told = from_store(caught.value)
        assert (told.sqlstate, told.message) == (state, words)
    with pytest.raises(Refused) as disabled:
        catalog.check_enabled(Namespace("shop:s", state=DISABLED))
    told = from_store(disabled.value)
    assert (told.sqlstate, told.message) == ("55000", 'schema "s" is disabled; enable it first')


async def test_taken_names_are_refused_in_every_state(store: Store) -> None:
    """Two tables of one name would share a record and lose one's rows."""
    t = store.begin()
    with pytest.raises(AlreadyExists, match="namespace default exists"):
        await catalog.create_namespace(t, "default")
    with pytest.raises(InvalidArgument, match="namespace name"):
        await catalog.create_namespace(t, "a/b")
    table = await catalog.create_table_record(t, SPEC, TableId(100))
    t.commit()
    for state, change in (
        ("creating", None),
        ("exists", lambda t: catalog.publish(t, table)),
        ("dropping", lambda t: catalog.start_drop(t, "default", "flights")),
    ):
        if change is not None:
            t = store.begin()
            await change(t)
            t.commit()
        with pytest.raises(AlreadyExists, match=state):
            await catalog.create_table_record(store.begin(), SPEC, TableId(101))


async def test_only_public_tables_are_found_by_users(store: Store) -> None:
    """A table whose partitions are half made or half gone must not be written to."""
    t = store.begin()
    table = await catalog.create_table_record(t, SPEC, TableId(100))
    t.commit()
    with pytest.raises(NotFound, match="state creating"):
        await catalog.lookup(store.begin(), "default", "flights")
    t = store.begin()
    public = await catalog.publish(t, table)
    assert await catalog.publish(t, table) == public, "again: no change"
    t.commit()
    t = store.begin()
    with pytest.raises(Refused, match="public, not dropping"):
        await catalog.finish_drop(t, table)
    gone = await catalog.start_drop(t, "default", "flights")
    assert await catalog.start_drop(t, "default", "flights") == gone
    t.commit()
    with pytest.raises(NotFound, match="state dropping"):
        await catalog.lookup(store.begin(), "default", "flights")
    with pytest.raises(Refused, match="being dropped"):
        await catalog.publish(store.begin(), table)
    t = store.begin()
    await catalog.finish_drop(t, table)
    await catalog.finish_drop(t, table)
    t.commit()
    assert await catalog.find(store.begin(), "default", "flights") is None
    assert await catalog.find_by_id(store.begin(), table.id) is None


async def test_a_repeated_drop_spares_a_new_table_of_the_name(store: Store) -> None:
    """A drop procedure that runs its last step twice must not take the successor with it."""
    old = await create(store)
    await drop(store, "default", "flights")
    new = await create(store)
    t = store.begin()
    await catalog.finish_drop(t, old)
    with pytest.raises(NotFound):
        await catalog.publish(t, old)
    t.commit()
    assert await catalog.lookup(store.begin(), "default", "flights") == new


async def test_creates_and_drops_at_once_conflict(store: Store) -> None:
    """Of two creations of a name, or a creation and the drop of its namespace, one must not
    commit.
    """
    first, second = store.begin(), store.begin()
    for t in (first, second):
        await catalog.create_table_record(t, SPEC, await catalog.next_table_id(t))
    first.commit()
    with pytest.raises(WriteConflict):
        second.commit()
    t = store.begin()
    await catalog.create_namespace(t, "short")
    t.commit()
    creating, dropping = store.begin(), store.begin()
    spec = Table.declare("short", "t")
    await catalog.create_table_record(creating, spec, await catalog.next_table_id(creating))
    await catalog.drop_namespace(dropping, "short")
    dropping.commit()
    with pytest.raises(WriteConflict):
        creating.commit()


async def test_a_namespace_with_tables_is_not_dropped(store: Store) -> None:
    """Dropping it would leave tables that nobody can name."""
    t = store.begin()
    await catalog.create_namespace(t, "full")
    # In the same transaction as its namespace, there is no version to check.
    table = await catalog.create_table_record(t, Table.declare("full", "t"), TableId(200))
    assert t.checks == {}
    t.commit()
    with pytest.raises(Refused, match=r"full has 1 table \(t\); drop it first"):
        await catalog.drop_namespace(store.begin(), "full")
    await drop(store, "full", table.name)
    t = store.begin()
    await catalog.drop_namespace(t, "full")
    t.commit()
    with pytest.raises(NotFound):
        await catalog.lookup_namespace(store.begin(), "full")


async def test_counts_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is read whole by listings, so it may not grow for ever."""
    monkeypatch.setattr(catalog, "NAMESPACES_MAX", 3)
    monkeypatch.setattr(catalog, "TABLES_MAX", 1)
    t = store.begin()
    await catalog.create_namespace(t, "third")
    with pytest.raises(TooLarge, match="limit is 3"):
        await catalog.create_namespace(t, "fourth")
    await catalog.create_table_record(t, Table.declare("third", "a"), TableId(100))
    with pytest.raises(TooLarge, match="limit is 1"):
        await catalog.create_table_record(t, Table.declare("third", "b"), TableId(101))


async def test_counters_never_repeat(store: Store) -> None:
    """A table id given out twice would join two tables' rows."""
    t = store.begin()
    assert await catalog.next_id(t, "x", count=10) == 1
    assert await catalog.next_id(t, "x") == 11
    assert await catalog.next_id(t, "y", first=7) == 7
    t.commit()
    assert await catalog.next_id(store.begin(), "x") == 12
    at_once = [store.begin(), store.begin()]
    for t in at_once:
        assert await catalog.next_id(t, "x") == 12
    at_once[0].commit()
    with pytest.raises(WriteConflict):
        at_once[1].commit()


async def test_damaged_records_are_corruption(store: Store) -> None:
    """A descriptor with a flipped bit would make every row of its table unreadable, or wrong."""
    table = await create(store)
    for key in list(store.rows):
        value, version = store.rows[key]
        for bad in (value[:-1], bytes([value[0] ^ 1]) + value[1:], b""):
            store.rows[key] = (bad, version)
            calls: Sequence[Any] = (
                lambda t: catalog.lookup(t, "default", "flights"),
                lambda t: catalog.find_by_id(t, table.id),
                lambda t: catalog.list_namespaces(t),
                lambda t: catalog.next_table_id(t),
                lambda t: catalog.schema_version(t, "default"),
            )
            errors = 0
            for call in calls:
                try:
                    await call(store.begin())
                except Corruption as error:
                    errors += error.details["key"] == key
            assert errors >= 1, key
        store.rows[key] = (value, version)
    assert await catalog.lookup(store.begin(), "default", "flights") == table


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def call_soon(self, fn: Any, *args: Any) -> object:
        raise AssertionError("the cache has no timers")

    call_later = call_soon


class Latest:
    """A reader whose every call sees the newest state, as TxnClient."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reads = 0

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        self.reads += 1
        return await self.store.begin().get(key)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page:
        return await self.store.begin().scan(start, end, limit=limit)


async def test_the_cache_is_stale_for_a_bounded_time_only(store: Store) -> None:
    """A dropped table may be addressed for the cache's time to live, and not longer."""
    reader, clock = Latest(store), Clock()
    cache = catalog.CatalogCache(reader, clock, ttl_s=2.0)
    with pytest.raises(NotFound):
        await cache.lookup("default", "flights")
    table = await create(store)
    assert await cache.lookup("default", "flights") == table, "absence is not remembered"
    reads = reader.reads
    clock.now += 1.9
    assert await cache.lookup("default", "flights") is not None
    assert reader.reads == reads
    await drop(store, "default", "flights")
    assert await cache.lookup("default", "flights") == table, "stale within the bound"
    clock.now += 0.2
    with pytest.raises(NotFound):
        await cache.lookup("default", "flights")


async def test_the_cache_forgets_when_told(store: Store) -> None:
    """Who changes a table invalidates it, and must see the change at once."""
    reader, clock = Latest(store), Clock()
    cache = catalog.CatalogCache(reader, clock, ttl_s=1000)
    for name in ("flights", "other"):
        await create(store, replace(SPEC, name=name))
        await cache.lookup("default", name)

    async def reads_for(name: str) -> int:
        before = reader.reads
        await cache.lookup("default", name)
        return reader.reads - before

    cache.invalidate("default", "flights")
    assert (await reads_for("other"), await reads_for("flights")) == (0, 1)
    cache.invalidate("elsewhere")
    assert await reads_for("flights") == 0
    cache.invalidate("default")
    assert (await reads_for("other"), await reads_for("flights")) == (1, 1)
    cache.invalidate()
    assert (await reads_for("other"), await reads_for("flights")) == (1, 1)


async def test_what_changed_during_the_read_does_not_live_longer(store: Store) -> None:
    """The age of an answer counts from before its read: a slow read must not extend it."""
    table, clock = await create(store), Clock()

    class Slow(Latest):
        async def get(self, key: bytes) -> tuple[bytes | None, int]:
            found = await super().get(key)
            clock.now += 5
            return found

    reader = Slow(store)
    cache = catalog.CatalogCache(reader, clock, ttl_s=6)
    assert await cache.lookup("default", "flights") == table
    clock.now += 2
    reads = reader.reads
    await cache.lookup("default", "flights")
    assert reader.reads == reads + 1
