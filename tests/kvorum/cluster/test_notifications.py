"""LISTEN and NOTIFY over nodes: whole nodes in virtual time, sessions at each."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from kvorum.verify.client import NAMESPACE
from sqlproxy.session.shared.notifier import Notifier
from sqlproxy.values.errors import SqlError
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.sql_clients import Sql


def at(node: Node) -> Sql:
    """A session at a node, which listens by a feed of its own."""
    sql = Sql(cast(Any, SimpleNamespace(_backend=node.backend)), random.Random(1))
    sql.services.notifier = Notifier(node.backend.txn)
    return sql


async def does(sql: Sql, *statements: str) -> None:
    for text in statements:
        await sql.do(text, steady=True)


def heard(sql: Sql) -> list[str]:
    return [one.payload for one in sql.session.channel.notifications]


async def quiet(*listeners: Sql) -> None:
    """Until all of them have heard the same, which ends with "end"."""
    async with asyncio.timeout(60):
        while any(heard(one)[-1:] != ["end"] for one in listeners):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_p10_all_nodes_hear_what_was_committed_in_one_order(seed: int) -> None:
    """Sessions at two nodes would hear different things, in different orders, or of what was never
    committed.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed)
        await cluster.start()
        await cluster.nodes[1].backend.create_namespace(NAMESPACE)
        chance = random.Random(seed)
        listeners = [at(node) for node in cluster.nodes.values()]
        for sql in listeners:
            await does(sql, "LISTEN jobs")
        writers = [at(node) for node in cluster.nodes.values()]
        committed: list[str] = []

        async def write(number: int, sql: Sql) -> None:
            for n in range(10):
                text = f"{number}.{n}"
                await does(sql, "BEGIN", f"NOTIFY jobs, '{text}a'", "SAVEPOINT s")
                await does(sql, "SELECT pg_notify('jobs', 'never')", "ROLLBACK TO s")
                await does(sql, f"NOTIFY jobs, '{text}b'", f"NOTIFY jobs, '{text}a'")
                commits = chance.random() < 0.7
                await does(sql, "COMMIT" if commits else "ROLLBACK")
                if commits:
                    committed.extend((f"{text}a", f"{text}b"))

        await asyncio.gather(*(write(n, sql) for n, sql in enumerate(writers)))
        await does(writers[0], "NOTIFY jobs, 'end'")
        await quiet(*listeners)
        for sql in listeners:
            assert heard(sql) == heard(listeners[0])
        order = heard(listeners[0])[:-1]
        assert sorted(order) == sorted(committed)
        for number in range(len(writers)):
            of_one = [text for text in order if text.startswith(f"{number}.")]
            assert of_one == [text for text in committed if text.startswith(f"{number}.")]
        assert all(a[:-1] == b[:-1] for a, b in zip(order[::2], order[1::2], strict=True))
        for sql in (*listeners, *writers):
            await sql.session.close()
            assert sql.services.notifier is not None
            await sql.services.notifier.close()
            await sql.presence.close()
        await cluster.close()

    run(main, seed)


@pytest.mark.slow
def test_p10_a_failed_transaction_says_nothing_and_hears_nothing() -> None:
    """A LISTEN whose transaction failed would count, or a NOTIFY whose transaction met a conflict
    be heard; or one that says something and writes rows be told before they are there.
    """

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 3)
        await cluster.start()
        await cluster.nodes[1].backend.create_namespace(NAMESPACE)
        listener, one, two = (at(cluster.nodes[n]) for n in (1, 2, 3))
        await does(listener, "CREATE TABLE t (id int PRIMARY KEY, v int)", "LISTEN jobs")
        await does(one, "INSERT INTO t VALUES (1, 0)")
        await does(one, "BEGIN ISOLATION LEVEL REPEATABLE READ", "LISTEN own")
        await does(one, "UPDATE t SET v = 1", "NOTIFY jobs, 'refused'")
        await does(two, "UPDATE t SET v = 2")
        with pytest.raises(SqlError) as caught:
            await does(one, "COMMIT")
        assert caught.value.sqlstate == "40001"
        await does(two, "NOTIFY own, 'not heard'")
        await does(one, "UPDATE t SET v = 3 RETURNING pg_notify('jobs', v::text)")
        assert list(one.session._state.listening.channels) == []
        await does(one, "BEGIN", "INSERT INTO t VALUES (2, 2)", "SELECT pg_notify('jobs', 'end')")
        await does(one, "COMMIT")
        await quiet(listener)
        assert heard(listener) == ["3", "end"]
        _, rows = await listener.do("SELECT id FROM t ORDER BY id", steady=True)
        assert rows == [(1,), (2,)]
        assert heard(one) == []
        for sql in (listener, one, two):
            await sql.session.close()
            assert sql.services.notifier is not None
            await sql.services.notifier.close()
            await sql.presence.close()
        await cluster.close()

    run(main, 3)
