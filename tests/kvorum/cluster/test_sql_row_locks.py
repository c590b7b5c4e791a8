"""Row locks of SQL blocks, over whole nodes in virtual time: what they send, and whom they exclude
(docs/decisions/1530, 1560).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from kv.base.ids import FIRST_USER_TABLE
from kv.base.verbs import VERBS
from kv.client.client import KvClient
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from kvorum.verify.client import NAMESPACE
from sqlproxy.values.errors import SqlError
from tests.kvorum.cluster.simulated import SimCluster
from tests.kvorum.cluster.sql_clients import Sql

RC: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
BESIDE: Final = {  # PostgreSQL's documentation, table 13.3
    "KEY SHARE": ("KEY SHARE", "SHARE", "NO KEY UPDATE"),
    "SHARE": ("KEY SHARE", "SHARE"),
    "NO KEY UPDATE": ("KEY SHARE",),
    "UPDATE": (),
}
CHANGES: Final = {  # what others may do to a row that is locked so, as at PostgreSQL 15
    "UPDATE p SET v = v + 1 WHERE id = 1": ("KEY SHARE",),
    "UPDATE p SET v = v + 1 WHERE v >= 0": ("KEY SHARE",),
    "UPDATE p SET u = u + 100 WHERE id = 1": (),
    "DELETE FROM p WHERE id = 1": (),
    "INSERT INTO c VALUES (50, 1)": ("KEY SHARE", "SHARE", "NO KEY UPDATE"),
}
UPDATES: Final = [f"UPDATE t SET b = b + 1 WHERE id = {number}" for number in range(1, 6)]
MESSAGES: Final[tuple[dict[str, int], ...]] = (  # the table in docs/guides/sql.md
    {
        "SELECT * FROM t WHERE id = 3": 1,
        "SELECT * FROM t WHERE id IN (3, 6)": 1,
        "UPDATE t SET b = b + 1 WHERE id = 1": 2,
        "DELETE FROM t WHERE id = 20": 2,
        "INSERT INTO t VALUES (1000, 1)": 1,
    },
    {
        RC: 0,
        **dict.fromkeys(UPDATES, 1),
        "SELECT * FROM t WHERE id = 7": 1,
        "SELECT * FROM t WHERE id = 7 FOR UPDATE": 1,
        "DELETE FROM t WHERE id = 30": 1,
        "INSERT INTO t VALUES (2000, 1)": 2,
        "COMMIT": 1,
    },
    {
        "BEGIN ISOLATION LEVEL REPEATABLE READ": 0,
        **dict.fromkeys(UPDATES, 1),
        "SELECT * FROM t WHERE id = 7": 1,
        "SELECT * FROM t WHERE id = 8 FOR UPDATE": 2,
        "DELETE FROM t WHERE id = 31": 1,
        "INSERT INTO t VALUES (2001, 1)": 1,
        "COMMIT": 1,
    },
)
"""By statement: alone, at READ COMMITTED, at REPEATABLE READ."""
Scene = Callable[[list[Sql]], Coroutine[Any, Any, None]]


def session_at(node: Node) -> Sql:
    return Sql(cast(Any, SimpleNamespace(_backend=node.backend)), random.Random(1))


async def does(sql: Sql, *statements: str) -> list[Any]:
    """The rows of the last one."""
    rows: list[Any] = []
    for text in statements:
        _, rows = await sql.do(text, steady=True)
    return rows


async def refused(sql: Sql, text: str) -> str:
    """With which SQLSTATE; "": it was not."""
    try:
        await sql.do(text, steady=True)
    except SqlError as error:
        return error.sqlstate
    return ""


def played(scene: Scene, sessions: int = 3) -> None:
    """A scene of so many sessions, over a parent and a child table."""

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1, count=1)
        await cluster.start()
        (node,) = cluster.nodes.values()
        await node.backend.create_namespace(NAMESPACE)
        found = [session_at(node) for _ in range(sessions)]
        await does(
            found[0],
            "CREATE TABLE p (id int PRIMARY KEY, u int UNIQUE, v int)",
            "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)",
            "INSERT INTO p VALUES (1, 1, 10), (2, 2, 20), (3, 3, 30), (4, 4, 40), (5, 5, 50)",
        )
        for one in found:
            await does(one, "SELECT v FROM p WHERE id = 1", "SELECT p FROM c WHERE id = 1")
        await scene(found)
        for one in found:
            await one.session.close()
            await one.presence.close()
        await cluster.close()

    run(main, 1)


class Sent:
    """The requests that were sent: the method, and the table of the key."""

    def __init__(self) -> None:
        self._all: list[tuple[str, bytes]] = []

    def add(self, method: int, key: bytes) -> None:
        self._all.append((VERBS[method].name.upper(), key[:4]))

    @property
    def of_rows(self) -> Counter[str]:
        """Those about the table that was locked first: others look at what is declared."""
        table = next((of for name, of in self._all if name == "PREWRITE"), b"")
        return Counter(name for name, of in self._all if of == table)

    @property
    def of_users(self) -> Counter[str]:
        """Those about users' tables that a statement waits for: FINISH goes out behind it."""
        return Counter(
            name
            for name, of in self._all
            if int.from_bytes(of) >= FIRST_USER_TABLE and name != "FINISH"
        )


@contextmanager
def sent() -> Iterator[Sent]:
    """What is sent meanwhile."""
    found = Sent()
    call, start, start_for = KvClient.call, KvClient.start, KvClient.start_for

    async def calling(self: Any, method: int, key: bytes, *args: Any, **more: Any) -> Any:
        found.add(method, key)
        return await call(self, method, key, *args, **more)

    def starting(self: Any, method: int, key: bytes, *args: Any) -> Any:
        begun = start(self, method, key, *args)
        if begun is not None:
            found.add(method, key)
        return begun

    def starting_for(self: Any, receiver: Any, method: int, key: bytes, *args: Any) -> Any:
        begun = start_for(self, receiver, method, key, *args)
        if begun:
            found.add(method, key)
        return begun

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KvClient, "start_for", starting_for)
        patched.setattr(KvClient, "call", calling)
        patched.setattr(KvClient, "start", starting)
        yield found


def test_d15_a_row_by_its_key_is_one_request() -> None:
    """A block would pay each row twice: to lock it, and to read it."""

    async def scene(sessions: list[Sql]) -> None:
        one, two, _ = sessions
        with sent() as found:
            await does(one, RC)
            for n in range(1, 6):
                await does(one, f"UPDATE p SET v = v + 1 WHERE id = {n}")
            assert found.of_rows == {"PREWRITE": 5}
            await does(one, "UPDATE p SET v = v + 1 WHERE id = 5")  # it is this block's own
            assert found.of_rows == {"PREWRITE": 5}
            await does(one, "COMMIT")
            assert found.of_rows["PREWRITE"] == 6, "the commit"
        rows = await does(two, "SELECT v FROM p ORDER BY id")
        assert [v for (v,) in rows] == [11, 21, 31, 41, 52]
        with sent() as found:
            await does(one, RC)
            assert await does(one, "SELECT v FROM p WHERE id = 1 FOR UPDATE") == [(11,)]
            await does(one, "DELETE FROM p WHERE id = 70")
            assert await does(one, "SELECT v FROM p WHERE id = 71 FOR UPDATE") == []
            # What is absent may be an intent that is committed: that takes another look.
            assert found.of_rows == {"PREWRITE": 3, "READ_NOW": 2}
            await does(two, "INSERT INTO p VALUES (70, 70, 0)")  # what is absent is not locked
            assert await does(one, "UPDATE p SET v = 9 WHERE id = 1 RETURNING v") == [(9,)]
            await does(one, "ROLLBACK")
        assert await does(two, "SELECT v FROM p WHERE id = 1") == [(11,)]

    played(scene)


def test_p10_statements_send_so_many_messages() -> None:
    """A block of five updates waits for more than five answers and its commit's."""

    async def scene(sessions: list[Sql]) -> None:
        (one,) = sessions
        rows = ", ".join(f"({n}, 0)" for n in range(1, 100))
        await does(
            one, "CREATE TABLE t (id int PRIMARY KEY, b int)", f"INSERT INTO t VALUES {rows}"
        )
        await does(one, "SELECT * FROM t WHERE id = 3")  # where its partition is is known then
        for wanted in MESSAGES:
            counted = {}
            for text in wanted:
                with sent() as found:
                    await does(one, text)
                    counted[text] = found.of_users.total()
                await asyncio.sleep(0.05)  # what it has left is put away
            assert counted == wanted

    played(scene, 1)


def test_d15_other_conditions_are_looked_at_first() -> None:
    """A statement that means no row would hold others up; one that locks first would compute from
    an older snapshot.
    """

    async def scene(sessions: list[Sql]) -> None:
        one, two, _ = sessions
        with sent() as found:
            await does(one, RC, "UPDATE p SET v = 1 WHERE id = 1 AND v = 5")
            assert "PREWRITE" not in found.of_rows
        await does(two, "UPDATE p SET v = 40 WHERE id = 2")
        await does(one, "UPDATE p SET v = v + 2 WHERE id = 2")
        assert await does(one, "SELECT v FROM p WHERE id = 2") == [(42,)]
        await does(two, "UPDATE p SET v = 5 WHERE id = 3")
        await does(one, "UPDATE p SET v = v + 2 WHERE id = 3 AND v = 5", "COMMIT")
        assert await does(two, "SELECT v FROM p WHERE id IN (2, 3) ORDER BY id") == [(42,), (7,)]

    played(scene)


@pytest.mark.parametrize("held", BESIDE)
def test_d17_who_may_lock_and_change_beside_whom(held: str) -> None:
    """Blocks would wait that need not, or would not that must."""

    async def scene(sessions: list[Sql]) -> None:
        one, two, _ = sessions
        await does(two, "SET lock_timeout = '300ms'")
        await does(one, RC, f"SELECT v FROM p WHERE id = 1 FOR {held}")
        for wanted in BESIDE:
            await does(two, RC)
            code = await refused(two, f"SELECT v FROM p WHERE id = 1 FOR {wanted} NOWAIT")
            assert code == ("" if wanted in BESIDE[held] else "55P03"), wanted
            await does(two, "ROLLBACK")
        for change, beside in CHANGES.items():
            await does(two, RC)
            code = await refused(two, change)
            assert code == ("" if held in beside else "55P03"), change
            await does(two, "ROLLBACK")
        assert await does(one, "SELECT v FROM p WHERE id = 1", "COMMIT") == []

    played(scene)


def test_d17_children_of_one_parent_come_side_by_side() -> None:
    """Every order of a customer would wait for the one before, until its block ends; and a parent
    that goes would not wait for them.
    """

    async def scene(sessions: list[Sql]) -> None:
        one, two, three = sessions
        await does(one, RC, "INSERT INTO c VALUES (1, 1)")
        await does(two, RC, "INSERT INTO c VALUES (2, 1)")
        await does(three, "UPDATE p SET v = 11 WHERE id = 1", RC)
        going = asyncio.create_task(refused(three, "DELETE FROM p WHERE id = 1"))
        await asyncio.sleep(1)
        await does(two, "COMMIT")
        await does(one, "UPDATE p SET v = v + 1 WHERE id = 1")
        await asyncio.sleep(1)
        assert not going.done()
        await does(one, "COMMIT")
        assert await going == "23503"
        await does(three, "ROLLBACK")
        assert await does(two, "SELECT v FROM p WHERE id = 1") == [(12,)]
        assert await does(two, "SELECT id FROM c ORDER BY 1") == [(1,), (2,)]
        await does(one, RC, "DELETE FROM p WHERE id = 2")
        await does(two, RC)
        coming = asyncio.create_task(refused(two, "INSERT INTO c VALUES (9, 2)"))
        await asyncio.sleep(1)
        assert not coming.done()
        await does(one, "COMMIT")
        assert await coming == "23503"
        await does(two, "ROLLBACK")

    played(scene)


def test_d17_two_who_share_and_then_change_are_a_deadlock() -> None:
    """Each would wait for the other for ever."""

    async def scene(sessions: list[Sql]) -> None:
        one, two, three = sessions
        for sql in (one, two):
            await does(sql, RC, "SELECT * FROM p WHERE id = 1 FOR SHARE")
        waiting = [
            asyncio.create_task(refused(sql, "UPDATE p SET v = v + 1 WHERE id = 1"))
            for sql in (one, two)
        ]
        # The one that is ended lets its locks go at once, not with its ROLLBACK.
        assert sorted(await asyncio.gather(*waiting)) == ["", "40P01"]
        for sql in (one, two):
            await refused(sql, "COMMIT")
        assert await does(three, "SELECT v FROM p WHERE id = 1") == [(11,)]

    played(scene)
