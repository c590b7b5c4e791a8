"""What SQL declares, through the procedures of one node: made and dropped wholly, with what depends
on it, in PostgreSQL's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.ids import NodeId, TableId
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.submission import Submission
from procedures.master.map.partitions import Partitions, partitions_of, placed_of
from sqlproxy.catalog import catalog, relations, sequences
from sqlproxy.ddl import ddl, ddl_objects, emptying, moving, switching
from sqlproxy.ddl.change.version_waits import Settled
from sqlproxy.ddl.steps import DdlServices
from sqlproxy.rows.schema import Column, Index, IndexColumn, Table
from tests.procedures.lab import Lab
from tests.procedures.test_procedures_ddl import FakeReplicas, Reader

PEOPLE: dict[str, Any] = {
    "namespace": "shop",
    "name": "people",
    "columns": [
        {"name": "id", "type": "int4", "sequence": {}},
        {"name": "email", "type": "varchar(40)", "nullable": False},
        {"name": "boss", "type": "int4"},
        {"name": "age", "type": "int4", "default": 7, "default_sql": "7"},
        {"name": "twice", "type": "int4", "generated": "age * 2", "uses": ["age"]},
    ],
    "primary_key": ["id"],
    "indexes": [
        {"columns": ["email"], "unique": True, "constraint": True},
        {"columns": [{"name": "age", "descending": True}, "email"], "include": ["boss"]},
    ],
    "checks": [
        {"sql": "age > 0", "columns": ["age"]},
        {"sql": "age < id", "columns": ["age", "id"]},
    ],
    "foreign_keys": [{"columns": ["boss"], "table": "people", "on_delete": "set null"}],
}
ORDERS: dict[str, Any] = {
    "namespace": "shop",
    "name": "orders",
    "columns": [{"name": "n", "type": "int8"}, {"name": "who", "type": "int8"}],
    "primary_key": ["n"],
    "foreign_keys": [{"columns": ["who"], "table": "people", "referenced": ["id"]}],
}
VIEW: dict[str, Any] = {
    "namespace": "shop",
    "name": "grown",
    "sql": "SELECT email FROM people WHERE age > 17",
    "columns": [["email", "varchar(40)"]],
    "uses": [["people", ["email", "age"]]],
}


class Shop:
    """A lab with the DDL procedures on it and one namespace."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        self.lab = Lab(loop, [])
        self.replicas = FakeReplicas()
        partitions = Partitions(self.replicas, NodeId(1))
        settled = Settled(LoopTimers(loop))
        services = DdlServices(partitions, lambda _ns, _name: None, settled)
        ddl.register(self.lab.types, services)
        emptying.register(self.lab.types, services)
        ddl_objects.register(self.lab.types, services.changed)
        switching.register(self.lab.types, services)
        moving.register(self.lab.types, services.changed)

    async def call(self, name: str, args: Any) -> tuple[Any, dict[str, Any]]:
        """The result, or None and the error's details."""
        async with self.lab.executor() as executor:
            nonce = f"{name}{self.lab.rng.random()}"
            number = await executor.submit(Submission(name, args, "tester", nonce))
            record = await executor.wait(number, 60_000)
            await executor.acknowledge(number)
        if record.error is not None:
            details = dict(plain_data.decode(record.error.details))
            return None, {"code": record.error.code, "message": record.error.message, **details}
        return plain_data.decode(record.result), {}

    async def do(self, name: str, args: Any) -> Any:
        result, error = await self.call(name, args)
        assert not error, error
        return result

    async def refused(self, name: str, args: Any) -> tuple[str, str]:
        _, error = await self.call(name, args)
        assert error, f"{name} was not refused"
        return error.get("sqlstate", error["code"]), error.get("sql_message", error["message"])

    @property
    def reader(self) -> Reader:
        return Reader(self.lab.store.table)

    async def table(self, name: str) -> Table:
        return await catalog.lookup(self.reader, "shop", name)

    async def names(self) -> set[str]:
        return set(await relations.taken(self.reader, "shop"))

    async def whole(self) -> None:
        """Partitions are those of the tables and indexes that are there, and no id leads astray."""
        mapped = []
        for table in await catalog.list_tables(self.reader, "shop"):
            assert table.state == "public"
            for number in table.storage_ids:
                mapped += await partitions_of(self.reader, number)
                owner = await catalog.find_owner(self.reader, number)
                assert owner == table
        assert {d.id for d in mapped} == set(self.replicas.there)
        there = await relations.list_relations(self.reader, "shop")
        ids = {one.id for one in there}
        for table in there.tables:
            assert {key.table for key in table.foreign_keys} <= ids
            assert set(table.referenced_by) <= ids
        for sequence in there.sequences:
            assert sequence.owned_by is None or sequence.owned_by[0] in ids
        for view in there.views:
            assert {number for number, _ in view.uses} <= ids


def shop(test: Callable[[Shop], Awaitable[None]]) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        world = Shop(loop)
        await world.do("CreateNamespace", {"namespace": "shop"})
        await test(world)
        await world.whole()

    simloop.run(main)


def test_p4_a_table_with_everything_is_as_declared() -> None:
    """A constraint that is lost on the way is not enforced; PostgreSQL's names are relied upon."""

    async def test(world: Shop) -> None:
        made = await world.do("CreateTable", PEOPLE)
        table = await world.table("people")
        assert len(made["partitions"]) == 3
        assert table.primary_key_name == "people_pkey"
        key, age = table.indexes
        assert (key.name, key.unique, key.constraint) == ("people_email_key", True, True)
        assert age == Index(
            age.id,
            "people_age_email_boss_idx",
            (IndexColumn(4, descending=True, nulls_first=True), IndexColumn(2)),
            include=(3,),
        )
        assert len({table.id, key.id, age.id}) == 3
        assert [(c.name, c.columns) for c in table.checks] == [
            ("people_age_check", (4,)),
            ("people_check", (4, 1)),
        ]
        (boss,) = table.foreign_keys
        assert (boss.name, boss.columns, boss.table, boss.referenced, boss.on_delete) == (
            "people_boss_fkey",
            (3,),
            table.id,
            (1,),
            "set null",
        )
        number, twice = table.column("id"), table.column("twice")
        assert (number.default_sql, number.nullable) == (
            "nextval('people_id_seq'::regclass)",
            False,
        )
        assert (twice.generated, twice.uses) == ("age * 2", (4,))
        assert (table.column("age").default, table.column("age").default_sql) == (7, "7")
        there = await relations.list_relations(world.reader, "shop")
        (sequence,) = there.sequences
        assert (sequence.name, sequence.type, sequence.maximum, sequence.owned_by) == (
            "people_id_seq",
            "int4",
            2**31 - 1,
            (table.id, 1),
        )
        assert number.sequence == sequence.id

    shop(test)


def test_p5_names_and_keys_that_clash_are_refused_in_postgresql_s_words() -> None:
    """Clients look at the SQLSTATE; a table that was refused must leave nothing."""

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        before = await world.names()

        def orders(**more: Any) -> dict[str, Any]:
            return {**ORDERS, **more}

        def refers(*columns: str, **more: Any) -> dict[str, Any]:
            return orders(foreign_keys=[{"columns": list(columns), "table": "people", **more}])

        for args, state, words in (
            (PEOPLE, "42P07", 'relation "people" already exists'),
            (orders(name="people_pkey"), "42P07", 'relation "people_pkey" already exists'),
            (
                orders(indexes=[{"name": "people_email_key", "columns": ["who"]}]),
                "42P07",
                'relation "people_email_key" already exists',
            ),
            (
                orders(foreign_keys=[{"columns": ["who"], "table": "none"}]),
                "42P01",
                'relation "none" does not exist',
            ),
            (
                refers("who", referenced=["age"]),
                "42830",
                'there is no unique constraint matching given keys for referenced table "people"',
            ),
            (
                refers("who", "n"),
                "42830",
                "number of referencing and referenced columns for foreign key disagree",
            ),
            (
                refers("who", referenced=["email"]),
                "42804",
                'foreign key constraint "orders_who_fkey" cannot be implemented',
            ),
            (refers("nobody"), "42703", 'column "nobody" named in key does not exist'),
            (
                orders(checks=[{"name": "a", "sql": "true"}, {"name": "a", "sql": "true"}]),
                "42710",
                'constraint "a" for relation "orders" already exists',
            ),
            (
                orders(
                    columns=[*ORDERS["columns"], {"name": "j", "type": "json"}],
                    indexes=[{"columns": ["j"]}],
                ),
                "42704",
                'data type json has no default operator class for access method "btree"',
            ),
        ):
            assert await world.refused("CreateTable", args) == (state, words)
            assert await world.names() == before
        again = await world.do("CreateTable", {**PEOPLE, "if_not_exists": True})
        assert again["exists"] == "table"
        second = {
            **ORDERS,
            "name": "people_email",
            "columns": [{"name": "key", "type": "int4"}],
            "primary_key": ["key"],
            "foreign_keys": [],
            "indexes": [{"columns": ["key"], "unique": True, "constraint": True}],
        }
        await world.do("CreateTable", second)
        assert (await world.table("people_email")).indexes == (), "the primary key says that"

    shop(test)


def test_p13_a_table_without_a_key_gets_hidden_numbers() -> None:
    """Rows of a table without a primary key must not be one another's."""

    async def test(world: Shop) -> None:
        args = {"namespace": "shop", "name": "log", "columns": [{"name": "a", "type": "text"}]}
        await world.do("CreateTable", {**args, "hidden_key": True})
        table = await world.table("log")
        assert [c.name for c in table.visible] == ["a"]
        assert table.hidden_key
        assert table.primary_key_name == ""
        assert sequences.rowids(table).id == table.id

    shop(test)


def test_a_drop_is_refused_while_something_depends_on_it() -> None:
    """A view of a dropped table, or a key to it, would fail on use; CASCADE takes them along."""

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        await world.do("CreateTable", ORDERS)
        await world.do("CreateView", VIEW)
        await world.do("CreateView", {**VIEW, "name": "v2", "uses": [["grown", ["email"]]]})
        people = await world.table("people")
        orders = await world.table("orders")
        assert people.referenced_by == (orders.id,)
        assert people.version == 4, "made, published, and two for the key that refers to it"
        drop = {"namespace": "shop", "name": "people"}
        _, error = await world.call("DropTable", drop)
        assert error["sqlstate"] == "2BP01"
        assert error["sql_message"] == "cannot drop table people because other objects depend on it"
        assert error["sql_detail"].splitlines() == [
            "view grown depends on table people",
            "view v2 depends on view grown",
            "constraint orders_who_fkey on table orders depends on table people",
        ]
        assert await world.refused("DropView", drop) == ("42809", '"people" is not a view')
        sequence = {"namespace": "shop", "name": "people_id_seq"}
        _, error = await world.call("DropSequence", sequence)
        assert error["sql_detail"] == (
            "default value for column id of table people depends on sequence people_id_seq"
        )
        dropped = await world.do("DropTable", {**drop, "cascade": True})
        assert dropped["cascaded"] == [
            "view grown",
            "view v2",
            "constraint orders_who_fkey on table orders",
        ]
        assert await world.names() == {"orders", "orders_pkey"}
        assert (await world.table("orders")).foreign_keys == ()
        assert await world.refused("DropTable", drop) == (
            "42P01",
            'table "people" does not exist',
        )
        gone = await world.do("DropTable", {**drop, "if_exists": True})
        assert gone["missing"] == ["people"]
        await world.do("CreateTable", PEOPLE)

    shop(test)


def test_tables_that_refer_to_each_other_are_dropped_together() -> None:
    """DROP TABLE a, b must not be refused because of what it drops itself."""

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        await world.do("CreateTable", ORDERS)
        await world.do("DropTable", {"namespace": "shop", "names": ["people", "orders"]})
        assert await world.names() == set()

    shop(test)


def test_an_index_goes_by_way_of_not_being_read() -> None:
    """Somebody who still reads an index that nobody maintains any more would miss rows."""

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        names = {"namespace": "shop", "names": ["people_age_email_boss_idx"]}
        before = world.lab.loop.time()
        told = await world.do("DropIndex", names)
        assert told["dropped"] == names["names"]
        assert world.lab.loop.time() - before >= 2 * switching.SETTLE_MS / 1000
        table = await world.table("people")
        assert [index.name for index in table.indexes] == ["people_email_key"]
        assert table.version == 4
        key = {"namespace": "shop", "name": "people_email_key"}
        assert await world.refused("DropIndex", key) == (
            "2BP01",
            "cannot drop index people_email_key because constraint people_email_key on table "
            "people requires it",
        )
        assert await world.refused("DropIndex", {**key, "name": "people"}) == (
            "42809",
            '"people" is not an index',
        )
        await world.do("DropIndex", {**names, "if_exists": True})

    shop(test)


def test_truncate_gives_new_ranges_and_changes_every_reference() -> None:
    """A row written to the old range must not come back; a key that still means the old id would
    find nothing.
    """

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        await world.do("CreateTable", ORDERS)
        await world.do("CreateView", VIEW)
        before = await world.table("people")
        names = {"namespace": "shop", "names": ["people"]}
        _, error = await world.call("TruncateTable", names)
        assert (error["sqlstate"], error["sql_detail"]) == (
            "0A000",
            'Table "orders" references "people".',
        )
        told = await world.do("TruncateTable", {**names, "cascade": True})
        people, orders = await world.table("people"), await world.table("orders")
        assert told["tables"] == {"people": people.id, "orders": orders.id}
        assert told["cascaded"] == ["orders"]
        assert not set(people.storage_ids) & set(before.storage_ids)
        assert people.version == before.version + 2
        assert orders.foreign_keys[0].table == people.id
        assert people.foreign_keys[0].table == people.id
        assert people.referenced_by == (orders.id,)
        there = await relations.list_relations(world.reader, "shop")
        assert there.views[0].uses[0][0] == people.id
        assert there.sequences[0].owned_by == (people.id, 1)
        assert await catalog.find_owner(world.reader, before.id) is None

    shop(test)


def test_a_schema_keeps_its_name_while_one_in_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cache that knows the table of a schema before meets another one under both names."""

    async def placed(*_: object) -> None:
        """Of the map, which has no members here."""

    monkeypatch.setattr(moving, "placed_anew", placed)

    async def test(world: Shop) -> None:
        sales, store = "shop:sales", "shop:store"
        for n, end in enumerate(("RenameSchema", "DropNamespace")):
            await world.do("CreateNamespace", {"namespace": sales})
            orders = {**PEOPLE, "namespace": sales, "name": f"orders{n}", "foreign_keys": []}
            await world.do("CreateTable", orders)
            await world.do("SetSchema", {"namespace": sales, "name": f"orders{n}", "to": "shop"})
            before = world.lab.loop.time()
            await world.do(end, {"namespace": sales} | ({} if n else {"to": store}))
            await world.do("CreateNamespace", {"namespace": sales})
            assert world.lab.loop.time() - before > catalog.CATALOG_TTL_S
            await world.do("DropNamespace", {"namespace": sales})
        before = world.lab.loop.time()
        await world.do("CreateNamespace", {"namespace": sales})
        assert world.lab.loop.time() - before < 1, "nothing is remembered of this one"

    shop(test)


def test_renames_keep_what_refers_by_id() -> None:
    """After a rename nothing may look for the old name; caches that know it must not meet another
    table under it.
    """

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        await world.do("CreateTable", ORDERS)
        await world.do("CreateView", VIEW)
        people = await world.table("people")
        rename = {"namespace": "shop", "name": "people", "to": "folk"}
        assert (await world.refused("RenameTable", rename))[0] == "0A000"
        assert await world.refused("RenameTable", {**rename, "to": "orders"}) == (
            "42P07",
            'relation "orders" already exists',
        )
        text = {"views": {"grown": "SELECT email FROM folk WHERE age > 17"}}
        await world.do("RenameTable", {**rename, **text})
        folk = await world.table("folk")
        assert (folk.id, folk.primary_key_name) == (people.id, "people_pkey")
        assert (await world.table("orders")).foreign_keys[0].table == folk.id
        before = world.lab.loop.time()
        await world.do("CreateTable", {**ORDERS, "name": "people", "foreign_keys": []})
        assert world.lab.loop.time() - before > catalog.CATALOG_TTL_S, "not before caches forget it"
        await world.do("RenameTable", {**rename, "name": "people_id_seq", "to": "numbers"})
        default = (await world.table("folk")).column("id").default_sql
        assert default == "nextval('numbers'::regclass)"
        await world.do("RenameTable", {**rename, "name": "people_email_key", "to": "mail"})
        assert (await world.table("folk")).index("mail") is not None
        assert "people_email_key" not in await world.names()
        column = {"namespace": "shop", "name": "folk", "column": "age", "to": "years"}
        assert (await world.refused("RenameColumn", column))[0] == "0A000"
        await world.do(
            "RenameColumn",
            {
                **column,
                "generated": {"twice": "years * 2"},
                "checks": {"people_age_check": "years > 0", "people_check": "years < id"},
                "views": {"grown": "SELECT email FROM folk WHERE years > 17"},
            },
        )
        folk = await world.table("folk")
        assert folk.column("years").id == people.column("age").id
        assert folk.column("twice").generated == "years * 2"
        assert [check.sql for check in folk.checks] == ["years > 0", "years < id"]
        key = {
            **column,
            "column": "id",
            "to": "number",
            "checks": {"people_check": "years < number"},
        }
        await world.do("RenameColumn", key)
        assert (await world.table("folk")).primary_key == ("number",)
        assert (await world.refused("RenameColumn", {**column, "to": "x"}))[0] == "42703"

    shop(test)


def test_views_are_replaced_as_postgresql_allows() -> None:
    """A column that changes under a view that reads this one would break it."""

    async def test(world: Shop) -> None:
        await world.do("CreateTable", PEOPLE)
        first = await world.do("CreateView", VIEW)
        assert (await world.refused("CreateView", VIEW))[0] == "42P07"
        for columns, words in (
            ([["mail", "varchar(40)"]], 'cannot change name of view column "email" to "mail"'),
            (
                [["email", "text"]],
                'cannot change data type of view column "email" from varchar(40) to text',
            ),
        ):
            args = {**VIEW, "replace": True, "columns": columns}
            assert await world.refused("CreateView", args) == ("42P16", words)
        more = [["email", "varchar(40)"], ["age", "int4"]]
        second = await world.do("CreateView", {**VIEW, "replace": True, "columns": more})
        assert (second["id"], second["version"]) == (first["id"], 2)
        unknown = {**VIEW, "name": "w", "uses": [["people", ["none"]]]}
        assert (await world.refused("CreateView", unknown))[0] == "42703"
        told = await world.do(
            "DropView", {"namespace": "shop", "names": ["grown", "no"], "if_exists": True}
        )
        assert (told["dropped"], told["missing"]) == (["grown"], ["no"])

    shop(test)


def test_sequences_are_checked_and_altered() -> None:
    """A sequence beyond its bounds would give out values that its type cannot hold."""

    async def test(world: Shop) -> None:
        one = {"namespace": "shop", "name": "s"}
        for options, words in (
            ({"increment": 0}, "INCREMENT must not be zero"),
            ({"minimum": 5, "maximum": 5}, "MINVALUE (5) must be less than MAXVALUE (5)"),
            ({"start": 0}, "START value (0) cannot be less than MINVALUE (1)"),
            (
                {"type": "int2", "maximum": 40000},
                "MAXVALUE (40000) is out of range for sequence data type smallint",
            ),
            ({"type": "text"}, "sequence type must be smallint, integer, or bigint"),
            ({"cache": -1}, "CACHE (-1) must be greater than zero"),
        ):
            found = await world.refused("CreateSequence", {**one, "options": options})
            assert found == ("22023", words)
        await world.do("CreateSequence", {**one, "options": {"increment": -1, "start": -5}})
        (sequence,) = (await relations.list_relations(world.reader, "shop")).sequences
        assert (sequence.minimum, sequence.maximum) == (-(2**63), -1)
        assert await sequences.stand(world.reader, sequence) == (-5, False)
        await world.do("AlterSequence", {**one, "restart": -9, "options": {"cycle": True}})
        (sequence,) = (await relations.list_relations(world.reader, "shop")).sequences
        assert sequence.cycle
        assert await sequences.stand(world.reader, sequence) == (-9, False)
        assert (await world.refused("AlterSequence", {**one, "restart": 1}))[0] == "22023"
        await world.do("CreateTable", {**ORDERS, "foreign_keys": []})
        await world.do("AlterSequence", {**one, "owned_by": ["orders", "n"]})
        await world.do("DropTable", {"namespace": "shop", "name": "orders"})
        assert await world.names() == set()

    shop(test)


def test_p3_a_database_goes_with_everything_in_it() -> None:
    """DROP DATABASE takes its tables along; without CASCADE nothing is lost."""

    async def test(world: Shop) -> None:
        await world.do("CreateNamespace", {"namespace": "old"})
        for name in ("a", "b"):
            await world.do(
                "CreateTable", {**PEOPLE, "namespace": "old", "name": name, "foreign_keys": []}
            )
        old = {"namespace": "old"}
        await world.do("CreateView", {**VIEW, **old, "uses": [["a", ["email"]]]})
        assert (await world.refused("DropNamespace", old))[0] in ("NAMESPACE_NOT_EMPTY", "2BP01")
        await world.do("DropNamespace", {**old, "cascade": True})
        assert [n.name for n in await catalog.list_namespaces(world.reader)] == ["shop"]
        assert (await world.do("DropNamespace", {**old, "if_exists": True}))["missing"] == ["old"]
        await world.do("CreateNamespace", old)
        assert await relations.taken(world.reader, "old") == {}

    shop(test)


def test_p3_indexes_follow_their_table() -> None:
    """An index with fewer copies than its table is lost before it."""

    async def test(world: Shop) -> None:
        await world.do("CreateTable", {**PEOPLE, "replicas": 3, "tags": ["fast"]})
        table = await world.table("people")
        rows = [row for n in table.storage_ids for row in await placed_of(world.reader, n)]
        assert [(row.replicas, row.tags) for row in rows] == [(3, ("fast",))] * 3

    shop(test)


@pytest.mark.parametrize("state", ["write_only", "delete_only"])
def test_states_of_parts_are_kept(state: str) -> None:
    """The online schema change works with them; the catalog must not forget where it is."""
    table = Table(
        id=TableId(100),
        namespace="shop",
        name="t",
        primary_key=("a",),
        columns=(Column(1, "a", "int4"), Column(2, "b", "int4", state=state, initial=(5,))),
        indexes=(Index(TableId(101), "i", (IndexColumn(2),), state=state),),
    )
    from sqlproxy.rows.records import decode_table, encode_table, sealed

    found = decode_table(b"k", sealed(b"k", encode_table(table)))
    assert (found.columns, found.indexes) == (table.columns, table.indexes)
    assert [c.name for c in found.visible] == ["a"]
    assert found.by_id(2).missing == 5


def test_p11_who_knows_no_deferrable_constraint_reads_a_unique_one() -> None:
    """A node of an older version would refuse the table, or let rows share a key for ever."""
    from sqlproxy.rows.records import decode_table, encode_table, sealed

    made = Index(TableId(101), "i", (IndexColumn(2),), True, constraint=True)
    for index in (
        replace(made, deferrable=True),
        replace(made, deferrable=True, deferred=True, primary=True, since=7),
        replace(made, since=7),
        replace(made, primary=True),
        made,
    ):
        table = Table(
            id=TableId(100),
            namespace="default",
            name="t",
            columns=(Column(1, "a", "int4"), Column(2, "b", "int4")),
            primary_key=("a",),
            indexes=(index,),
        )
        row: Any = encode_table(table)
        assert decode_table(b"k", sealed(b"k", row)).indexes == (index,)
        (entry,) = row[-1]["indexes"]
        entry[9:] = []
        plain = replace(index, deferrable=False, deferred=False)
        assert decode_table(b"k", sealed(b"k", row)).indexes == (plain,)
