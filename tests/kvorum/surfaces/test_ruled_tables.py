"""A table with indexes or constraints is written by SQL alone (TABLE_RULED): every way around that
is shut on every surface, reading stays open, and tables without rules notice nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest

import kvorum
from kv.base.ids import TableId
from kvorum import Delete, Put
from kvorum.api.names import Names
from sqlproxy.rows.schema import Table
from tests.kit.each import each
from tests.kvorum.surfaces.conftest import Served, error_of

NS = "default"
RULED = {
    "ruled_index": "(id text PRIMARY KEY, n int, UNIQUE (n))",
    "ruled_check": "(id text PRIMARY KEY, n int CHECK (n > 0))",
    "ruled_generated": "(id text PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)",
    "ruled_hidden": "(id text, n int)",
}
WAYS: dict[str, Callable[[kvorum.Database, str], Any]] = {
    "put": lambda db, t: db.table(NS, t).put("k", "v"),
    "put if absent": lambda db, t: db.table(NS, t).put("k", "v", if_absent=True),
    "delete": lambda db, t: db.table(NS, t).delete("k"),
    "batch": lambda db, t: db.batch([Put(NS, "free_kv", "k", "v"), Put(NS, t, "k", "v")]),
    "batch of a delete": lambda db, t: db.batch([Delete(NS, t, "k")]),
}


def sql(served: Served, *statements: str) -> list[Any]:
    """The rows of the last one."""
    with psycopg.connect(
        host="127.0.0.1", port=served.base + 3, user="u", dbname=NS, autocommit=True
    ) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module", autouse=True)
def tables(served: Served) -> Iterator[None]:
    names = [*RULED, "free_columns"]
    sql(
        served,
        *(f"CREATE TABLE {name} {columns}" for name, columns in RULED.items()),
        *(f"INSERT INTO {name} (id, n) VALUES ('a', 1)" for name in RULED),
        "CREATE TABLE free_columns (id text PRIMARY KEY, n int)",
    )
    served.by_name["embedded"].create_table(NS, "free_kv")
    yield
    sql(served, *(f"DROP TABLE {name}" for name in names))
    served.by_name["embedded"].drop_table(NS, "free_kv")


@each("way", WAYS)
@pytest.mark.parametrize("name", RULED)
def test_p8_raw_writes_of_ruled_tables_are_refused(
    served: Served, db: kvorum.Database, name: str, way: str
) -> None:
    """A record appeared without its index entry, or against a constraint, and SQL believed it."""
    before = sql(served, f"SELECT count(*) FROM {name}")
    with pytest.raises(kvorum.Refused, match="only SQL writes to it") as refused:
        WAYS[way](db, name)
    assert refused.value.code == "TABLE_RULED"
    assert refused.value.details["table"] == name
    assert refused.value.details["rules"]
    assert db.table(NS, "free_kv").get("k") is None, "a part of the batch was written"
    assert sql(served, f"SELECT count(*) FROM {name}") == before


@pytest.mark.parametrize("name", RULED)
def test_p8_transactions_do_not_write_ruled_tables(db: kvorum.Database, name: str) -> None:
    """A transaction wrote what a put may not."""

    def attempt(t: kvorum.Transaction) -> None:
        t.table(NS, "free_kv").put("t", "v")
        with pytest.raises(kvorum.Refused) as refused:
            t.table(NS, name).put("k", "v")
        assert refused.value.code == "TABLE_RULED"
        with pytest.raises(kvorum.Refused) as refused:
            t.table(NS, name).delete("k")
        assert refused.value.code == "TABLE_RULED"
        assert len(t.table(NS, name).scan().items) == 1, "it can still be read"

    db.run(attempt)  # again, if this client remembers tables that were made anew since
    assert db.table(NS, "free_kv").delete("t") > 0


@pytest.mark.parametrize("name", RULED)
def test_p8_multi_write_refuses_only_what_is_ruled(db: kvorum.Database, name: str) -> None:
    """One op for such a table refused the others, or went through beside them."""
    ops = [Put(NS, "free_kv", "m", "v"), Put(NS, name, "k", "v"), Put(NS, "free_columns", "m", "v")]
    first, second, third = db.multi_write(ops)
    assert isinstance(first, int)
    assert isinstance(third, int)
    assert isinstance(second, kvorum.Refused)
    assert second.code == "TABLE_RULED"
    db.batch([Delete(NS, "free_kv", "m"), Delete(NS, "free_columns", "m")])


@pytest.mark.parametrize("name", RULED)
def test_p8_ruled_tables_are_read(db: kvorum.Database, name: str) -> None:
    """Reading was shut together with writing."""
    table = db.table(NS, name)
    (item,) = table.scan().items
    found = table.get(item.key)
    assert found is not None
    assert found.value == item.value
    assert db.multi_get([(NS, name, item.key)]) == [found]
    with db.snapshot() as snapshot:
        assert snapshot.table(NS, name).get(item.key) == found


def test_p8_plain_http_says_409(http: httpx.Client) -> None:
    """A client without the SDK took the refusal for something that it should try again."""
    error = error_of(http.put("/v1/kv/default/ruled_index/k", content=b"v"), 409, "TABLE_RULED")
    assert error["retry"] == "no"
    assert error["details"]["rules"] == ["indexes"]
    error_of(http.delete("/v1/kv/default/ruled_index/k"), 409, "TABLE_RULED")


@pytest.mark.parametrize("first_read", [False, True])
@pytest.mark.parametrize("name", RULED)
def test_p8_steps_do_not_write_ruled_tables(served: Served, name: str, first_read: bool) -> None:
    """A procedure wrote around an index, though it had only asked for a table by its name."""
    db = served.by_name["sdk"]
    args = {"table": name, "first_read": first_read}
    with pytest.raises(kvorum.KvorumError, match="only SQL writes to it"):
        db.wait(db.submit("sample.put", args))
    assert sql(served, f"SELECT count(*) FROM {name}") == [(1,)]
    assert db.wait(db.submit("sample.put", {**args, "table": "free_kv"})) is True
    db.table(NS, "free_kv").delete("a")


@pytest.mark.slow
def test_p8_a_table_that_gets_an_index_meanwhile(served: Served) -> None:
    """An open transaction, or a client that knew the table as a plain one, wrote to it when its
    index was there already.
    """
    db = served.by_name["sdk"]
    sql(served, "CREATE TABLE becomes (id text PRIMARY KEY, n int)")
    db.table(NS, "becomes").put("raw", "v")
    db.table(NS, "becomes").delete("raw")
    t = db.transaction(ttl_ms=60_000)
    t.table(NS, "becomes").put("open", "v")
    sql(served, "CREATE INDEX becomes_n ON becomes (n)")
    with pytest.raises(kvorum.Refused) as refused:
        t.commit()
    assert refused.value.code == "TABLE_RULED"
    with pytest.raises(kvorum.Refused):
        db.table(NS, "becomes").put("late", "v")
    assert sql(served, "SELECT count(*) FROM becomes") == [(0,)]
    sql(served, "DROP TABLE becomes")


class _Catalog:
    """A memory of the catalog that counts what it is asked."""

    def __init__(self, table: Table) -> None:
        self.table, self.asked, self.looked = table, 0, 0

    def known(self, _ns: str, _table: str) -> Table:
        self.asked += 1
        return self.table

    async def lookup(self, _ns: str, _table: str) -> Table:
        self.looked += 1
        return self.table


async def test_p8_a_plain_table_is_looked_through_once() -> None:
    """Every put of a plain table paid for rules that it does not have."""
    catalog = _Catalog(Table(id=TableId(100), namespace=NS, name="free"))
    names = Names(catalog)  # type: ignore[arg-type]
    assert names.known_writable(NS, "free") is None
    prefix = await names.writable(NS, "free")
    for _ in range(3):
        assert names.known_writable(NS, "free") == prefix
    assert catalog.looked == 1
