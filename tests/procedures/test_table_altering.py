"""Tables that are disabled, enabled and modified, over three nodes in virtual time (J19)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kvorum
from kv.base.errors import KvorumError
from kvorum.testing.simulation.loop import SimLoop, run
from sqlproxy.catalog import catalog
from sqlproxy.ddl.switching import SETTLE_MS
from tests.harness.world import ROWS, TABLE, Place

NAME = {"namespace": "default", "name": "t"}
SQL: dict[str, Any] = {
    "columns": [kvorum.Column("id", "bigint"), kvorum.Column("note", "text")],
    "primary_key": ["id"],
}


def placed(scenario: Callable[[Place], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        place = Place(loop, 3, 3)
        await place.start()
        await scenario(place)
        await place.cluster.close()

    run(main, 3)


async def code(work: Awaitable[Any]) -> str:
    try:
        await work
    except KvorumError as error:
        return error.code
    return ""


def test_j19_a_disabled_table_keeps_its_rows_and_lets_nobody_in() -> None:
    """Some node, or some kind of operation, still read or wrote it; or its rows were gone."""

    async def scenario(place: Place) -> None:
        await place.table()
        for n in (1, 2, 3):  # so that every node remembers it as open
            await place.at(n).table(*TABLE).get("a0")
        assert (await place.db.disable_table(*TABLE)).state == "disabled"
        for n in (1, 2, 3):
            db = place.at(n)
            table = db.table(*TABLE)
            works: list[Awaitable[Any]] = [
                table.get("a0"),
                table.put("a0", "x"),
                table.delete("a0"),
                table.scan(),
                db.batch([kvorum.Put("default", "t", "a0", "x")]),
                table.multi_get(["a0", "a1"]),
            ]
            assert [await code(work) for work in works] == ["TABLE_DISABLED"] * len(works)
            async with db.transaction() as t:
                assert await code(t.table(*TABLE).put("a0", "x")) == "TABLE_DISABLED"
        assert [t.state for t in await place.db.tables("default")] == ["disabled"]
        assert (await place.db.enable_table(*TABLE)).state == "public"
        assert await place.rows() == ROWS

    placed(scenario)


def test_j19_what_was_written_before_cannot_be_committed_after() -> None:
    """A transaction that was open all the while wrote to a table that nobody writes to."""

    async def scenario(place: Place) -> None:
        await place.table()
        await place.db.create_table("default", "other", replicas=3)

        async def late() -> None:
            async with place.at(2).transaction() as t:
                await t.table(*TABLE).put("a0", "late")
                await t.table("default", "other").put("k", "late")
                await place.at(1).disable_table(*TABLE)

        assert await code(late()) == "TABLE_DISABLED"
        assert await place.db.table("default", "other").get("k") is None, "all or nothing"
        await place.db.enable_table(*TABLE)
        assert await place.rows() == ROWS
        await place.settled(set())

    placed(scenario)


def test_j19_a_disabled_table_can_be_dropped_and_its_name_taken_again() -> None:
    """Its name was lost for ever, or the new table was disabled, too."""

    async def scenario(place: Place) -> None:
        await place.table()
        await place.db.disable_table(*TABLE)
        assert await code(place.db.create_table(*TABLE)) == "ALREADY_EXISTS"
        await place.db.drop_table(*TABLE)
        await place.table()
        assert await place.rows() == ROWS
        await place.settled(set())

    placed(scenario)


def test_j19_a_disabling_that_is_given_up_opens_the_table_again() -> None:
    """Somebody aborts it while it waits for what others remember: half of it stayed."""

    async def scenario(place: Place) -> None:
        await place.table()
        id_ = await place.db.submit("DisableTable", NAME)
        await asyncio.sleep(SETTLE_MS / 3000)
        assert [t.state for t in await place.db.tables("default")] == ["disabled"]
        await place.db.abort_procedure(id_, "changed my mind")
        assert (await place.end_of(id_)).state == "ROLLED_BACK"
        assert [t.state for t in await place.db.tables("default")] == ["public"]
        assert await place.rows() == ROWS
        # and one that had nothing to do leaves it as it was
        await place.db.disable_table(*TABLE)
        again = await place.db.submit("DisableTable", NAME)
        await asyncio.sleep(SETTLE_MS / 3000)
        await place.db.abort_procedure(again, "never mind")
        assert (await place.end_of(again)).state == "ROLLED_BACK"
        assert [t.state for t in await place.db.tables("default")] == ["disabled"]

    placed(scenario)


def test_j19_columns_are_added_with_replicas_and_tags_or_not_at_all() -> None:
    """A refused change left a part of it; or ids of columns were given out twice."""

    async def scenario(place: Place) -> None:
        await place.db.create_table("default", "sql", replicas=3, **SQL)
        changed = await place.db.modify_table(
            "default", "sql", replicas=2, add_columns=[kvorum.Column("price", "bigint")]
        )
        assert [c.name for c in changed.columns] == ["id", "note", "price"]
        assert changed.replicas == 2
        stored = await catalog.lookup(place.txn, "default", "sql")
        assert [c.id for c in stored.columns] == [1, 2, 3]
        more = [kvorum.Column("x", "text")]
        for change, wanted in (
            ({"add_columns": [kvorum.Column("note", "text")], "replicas": 3}, "ALREADY_EXISTS"),
            ({"add_columns": [kvorum.Column("y", "bigint", False)]}, "INVALID_ARGUMENT"),
            ({"add_columns": [kvorum.Column("y", "nonsense")]}, "INVALID_ARGUMENT"),
            ({"add_columns": more, "tags": ["tape"]}, "NO_NODE_WITH_TAGS"),
            ({"add_columns": more, "replicas": 10_000}, "INVALID_ARGUMENT"),
            ({}, "INVALID_ARGUMENT"),
        ):
            assert await code(place.db.modify_table("default", "sql", **change)) == wanted, change
            assert await catalog.lookup(place.txn, "default", "sql") == stored, change
        await place.table()
        plain = place.db.modify_table(*TABLE, add_columns=more)
        assert await code(plain) == "INVALID_ARGUMENT"
        assert await code(place.db.modify_table("default", "no", replicas=1)) == "TABLE_NOT_FOUND"

    placed(scenario)


def test_j19_a_namespace_is_disabled_with_all_its_tables() -> None:
    """One of them stayed open, or a single refusal left some of them shut."""

    async def scenario(place: Place) -> None:
        await place.table()
        await place.db.create_table("default", "u", replicas=3)
        await place.db.disable_table("default", "u")
        told = await place.run("DisableNamespace", {"namespace": "default"})
        assert told == {"namespace": "default", "changed": 1}
        assert {t.state for t in await place.db.tables("default")} == {"disabled"}
        told = await place.run("EnableNamespace", {"namespace": "default"})
        assert told == {"namespace": "default", "changed": 2}
        assert {t.state for t in await place.db.tables("default")} == {"public"}
        with pytest.raises(AssertionError, match="NAMESPACE_NOT_FOUND"):
            await place.run("DisableNamespace", {"namespace": "nowhere"})

    placed(scenario)


def test_n10_operations_of_a_table_and_ddl_exclude_each_other() -> None:
    """A table was dropped or disabled under an operation that was rewriting its files."""

    async def scenario(place: Place) -> None:
        await place.table()
        of_table = {"namespace": "default", "table": "t"}
        generic = {"kind": "flush", "targets": {"table": NAME}}
        calls = [
            ("kvorum.flush_table", of_table),
            ("kvorum.compact_table", of_table),
            ("kvorum.bus_one_phase", generic),
        ]
        async with place.db.lock("table/default/t"):  # as DDL has it
            ids = [await place.submit(name, args, name) for name, args in calls]
            await asyncio.sleep(5)
            for id_ in ids:
                assert not (await place.db.procedure(id_)).finished
        for id_ in ids:
            assert (await place.end_of(id_)).state == "SUCCESS"
        async with place.db.lock("table/default/t", exclusive=False):  # as these have it
            for name, args in calls:
                await place.run(name, args)
            shut = await place.submit("DisableTable", NAME, "shut")
            await asyncio.sleep(2 * SETTLE_MS / 1000)
            assert not (await place.db.procedure(shut)).finished
        assert (await place.end_of(shut)).state == "SUCCESS"

    placed(scenario)


def test_j19_tables_follow_their_namespace() -> None:
    """A change of a namespace missed a table, or overruled what the table says itself."""

    async def scenario(place: Place) -> None:
        async def replicas() -> dict[str, int]:
            tables = {t.id: t.name for t in await place.db.tables("shop")}
            rows = (await place.map()).values()
            found = {int.from_bytes(row.descriptor.start[:4]): row.replicas for row in rows}
            return {name: found[id_] for id_, name in tables.items()}

        await place.db.create_namespace("shop", replicas=2)
        await place.db.create_table("shop", "heir")
        await place.db.create_table("shop", "own", replicas=3)
        assert await replicas() == {"heir": 2, "own": 3}
        await place.db.modify_namespace("shop", replicas=1)
        assert await replicas() == {"heir": 1, "own": 3}
        await place.db.modify_table("shop", "own", replicas=0)
        await place.db.modify_table("shop", "heir", replicas=2)
        assert await replicas() == {"heir": 2, "own": 1}
        await place.db.modify_namespace("shop", replicas=0)
        assert await replicas() == {"heir": 2, "own": 0}
        assert await code(place.db.modify_namespace("shop", tags=["tape"])) == "NO_NODE_WITH_TAGS"
        assert (await place.db.namespace("shop")).tags == ()
        assert await code(place.db.modify_namespace("shop")) == "INVALID_ARGUMENT"
        await place.settled(set())

    placed(scenario)


def test_h1_a_table_may_have_smaller_partitions() -> None:
    """`partition_bytes` did not reach the map, was lost by a split, or changed other tables."""

    async def scenario(place: Place) -> None:
        await place.table(partition_bytes=1 << 20)
        await place.db.create_table("default", "usual", replicas=3)
        sizes = sorted(row.bytes_max for row in (await place.map()).values())
        assert sizes == [0, 1 << 20]
        first = next(id_ for id_, row in (await place.map()).items() if row.bytes_max)
        halves = await place.db.split(first, at="m")
        rows = await place.map()
        assert {rows[halves[name]].bytes_max for name in ("partition", "new")} == {1 << 20}
        changed = await place.db.modify_table(*TABLE, partition_bytes=0)
        assert changed.partition_bytes is None
        assert {row.bytes_max for row in (await place.map()).values()} == {0}

    placed(scenario)
