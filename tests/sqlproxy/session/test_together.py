"""Statements of two SQL sessions that come at once, in the simulated cluster: what PostgreSQL says
to one of them is said here, whoever of them was faster.
"""

from __future__ import annotations

import asyncio

import pytest

from kvorum import testing
from kvorum.native.native import NativeBackend
from kvorum.testing.sql_client import SqlClient
from sqlproxy.values.errors import SqlError

TABLES = (
    "create table p (id int primary key, v int)",
    "create table c (id int primary key, p int references p, v int)",
    "create index on c (p)",
    "create table u (id int primary key, u int unique, n int default 0)",
)
GOES = ("delete from p where id = {0}", "update p set id = id + 1000 where id = {0}")
CHILD = "insert into c values ({0}, {0}, 0)"
FIRST = "insert into u values ({0}, {0})"
SECOND = "insert into u values ({0} + 1000, {0})"
ON_CONFLICT = " on conflict (u) do update set n = u.n + 1"
TWICE = 6


class Two:
    """Two sessions, and a third for what is there before."""

    def __init__(self, cluster: testing.Cluster) -> None:
        backend = cluster.db.backend
        assert isinstance(backend, NativeBackend)
        self._sessions = [SqlClient(backend, seed) for seed in range(3)]

    async def say(self, session: int, text: str) -> str:
        """ "ok", or the SQLSTATE."""
        try:
            await self._sessions[session].run("default", text, ())
        except SqlError as error:
            return error.sqlstate
        return "ok"

    async def tables(self) -> None:
        for text in TABLES:
            assert await self.say(2, text) == "ok"

    async def both(self, first: str, second: str, place: int) -> list[str]:
        """At once, of the row `place`."""
        said = (first.format(place), second.format(place))
        return await asyncio.gather(*(self.say(n, text) for n, text in enumerate(said)))


@pytest.mark.slow
def test_p10_changes_by_themselves_end_as_in_postgresql() -> None:
    """A parent that goes while a child comes, and two of one unique key: one of them is told that,
    and nobody to try again.
    """

    async def story(cluster: testing.Cluster) -> None:
        two = Two(cluster)
        await two.tables()
        for n, goes in enumerate(GOES):
            for place in range(100 * n + 1, 100 * n + 1 + TWICE):
                await two.say(2, f"insert into p values ({place}, 0)")
                ends = await two.both(goes, CHILD, place)
                assert sorted(ends) == ["23503", "ok"], (goes, ends)
        for place in range(1, 1 + TWICE):
            assert sorted(await two.both(FIRST, SECOND, place)) == ["23505", "ok"]
        for place in range(101, 101 + TWICE):
            said = (FIRST + ON_CONFLICT, SECOND + ON_CONFLICT)
            assert await two.both(*said, place) == ["ok", "ok"]
            said = (FIRST + " on conflict do nothing", SECOND + " on conflict do nothing")
            assert await two.both(*said, place + 100) == ["ok", "ok"]
        assert await cluster.sql("select count(*), sum(n) from u where u > 100") == [
            (2 * TWICE, TWICE)
        ]

    testing.simulate(story, nodes=1)


@pytest.mark.slow
@pytest.mark.parametrize("goes", GOES)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_p10_a_child_by_itself_waits_for_the_block_that_removes_its_parent(
    goes: str, ends: str
) -> None:
    """It looked at its parent at its commit, passed the lock there, and the block was refused, with
    all that it had done (40001).
    """

    async def story(cluster: testing.Cluster) -> None:
        two = Two(cluster)
        await two.tables()
        await two.say(2, "insert into p values (1, 0)")
        for text in ("begin", goes.format(1)):
            assert await two.say(0, text) == "ok"
        child = asyncio.create_task(two.say(1, CHILD.format(1)))
        await asyncio.sleep(0.5)
        assert not child.done()
        assert await two.say(0, ends) == "ok"
        assert await child == ("23503" if ends == "commit" else "ok")

    testing.simulate(story, nodes=1)
