"""Links between real nodes: the procedure, the file of sites, a crash of the node that serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kv.base.config import HTTP_OFFSET, SQL_OFFSET
from kv.base.errors import Forbidden, InvalidArgument, KvorumError, NotFound
from kvorum.api.model import Column
from kvorum.api.site_links import SITE_LINK, SITE_ROLE
from kvorum.connecting import aconnect
from kvorum.sdk.database import AsyncDatabase
from kvorum.sites import site
from kvorum.sites.links import link_of
from kvorum.sites.sites_file import site_of
from tests.kit.commands import told
from tests.kvorum.cluster.three import Trio, client, trio

WAIT_S = 30.0


@asynccontextmanager
async def two(
    tmp_path: Path, *, http: bool = False
) -> AsyncIterator[tuple[list[Trio], list[AsyncDatabase]]]:
    """Two clusters of one node, each of which knows the other one as its number."""
    files = [tmp_path / f"sites-{number}.toml" for number in (0, 1)]
    async with (
        trio(1, http=http, sites_file=str(files[0])) as one,
        trio(1, http=http, sites_file=str(files[1])) as other,
        client(one) as here,
        client(other) as there,
    ):
        for number, file in enumerate(files):
            file.write_text(f'[site-{1 - number}]\nurl = "{(other, one)[number].url}"\n')
        for db in (here, there):
            await db.create_table("default", "t")
            await db.create_table("default", "hits")
        yield [one, other], [here, there]


def arguments(number: int) -> dict[str, Any]:
    tables = [{"table": ["default", "t"]}, {"table": ["default", "hits"], "rule": "counter"}]
    return {"site": f"site-{1 - number}", "tables": tables}


async def seen(db: AsyncDatabase, table: str, key: str, value: bytes | None) -> None:
    """Wait until it is there (None: gone)."""
    async with asyncio.timeout(WAIT_S):
        while True:
            row = await db.table("default", table).get(key)
            if (None if row is None else row.value) == value:
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_r3_two_clusters_take_over_from_each_other(tmp_path: Path) -> None:
    """A link would not begin, lose what was there before, or not add what both count."""
    async with two(tmp_path) as (clusters, dbs):
        await dbs[0].table("default", "t").put("old", "of 0")
        await dbs[1].table("default", "t").put("older", "of 1")
        for number, db in enumerate(dbs):
            await db.submit(SITE_LINK, arguments(number))
        await seen(dbs[1], "t", "old", b"of 0")
        await seen(dbs[0], "t", "older", b"of 1")
        await dbs[0].table("default", "t").put("new", "of 0")
        await dbs[1].table("default", "t").delete("old")
        await dbs[0].table("default", "hits").put("page", "2")
        await dbs[1].table("default", "hits").put("page", "3")
        await seen(dbs[1], "t", "new", b"of 0")
        await seen(dbs[0], "t", "old", None)
        for db in dbs:
            await seen(db, "hits", "page", b"5")
        figures = clusters[0].nodes[1].site_figures()
        assert figures["rows.site-1"] >= 3
        assert 0 <= figures["lag_ms.site-1"] < 30_000


@pytest.mark.slow
async def test_r3_a_link_outlives_its_node_and_is_made_anew(tmp_path: Path) -> None:
    """It would not go on after a crash, not end; or what both have counted would be doubled."""
    async with two(tmp_path) as (clusters, dbs):
        ids = [await db.submit(SITE_LINK, arguments(number)) for number, db in enumerate(dbs)]
        await dbs[0].table("default", "hits").put("page", "5")
        await seen(dbs[1], "hits", "page", b"5")
        await clusters[0].crash(1)
        await dbs[1].table("default", "t").put("new", "of 1, while 0 was down")
        await clusters[0].start(1)
        await seen(dbs[0], "t", "new", b"of 1, while 0 was down")
        for db, id in zip(dbs, ids, strict=True):
            await db.abort_procedure(id, "the test is over")
            with pytest.raises(KvorumError):
                await db.wait(id, timeout_ms=40_000)
            assert [row async for row in db.table("kvorum_sites", "cursors").rows()] == []
        for number, db in enumerate(dbs):
            await db.submit(SITE_LINK, arguments(number))
        await dbs[0].table("default", "t").put("new", "by a link that was made anew")
        await seen(dbs[1], "t", "new", b"by a link that was made anew")
        await dbs[1].table("default", "hits").put("page", "6")
        await seen(dbs[0], "hits", "page", b"6")
        await seen(dbs[1], "hits", "page", b"6")


@pytest.mark.slow
async def test_r3_a_link_that_lives_for_ever_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history, or the snapshots that it holds, would fill the cluster."""
    monkeypatch.setattr(site, "SITE_SPAN_MS", 100)
    async with two(tmp_path) as (_, dbs):
        id, _ = [await db.submit(SITE_LINK, arguments(number)) for number, db in enumerate(dbs)]
        sizes = []
        async with asyncio.timeout(2 * WAIT_S):
            for number in range(20):
                await dbs[1].table("default", "t").put("k", f"{number}")
                await seen(dbs[0], "t", "k", b"%d" % number)
                sizes.append(len((await dbs[0].procedure(id)).steps or ()))
        assert max(sizes) <= 3, sizes
        assert (await dbs[0].procedure(id)).extra["attempt"] > 5
        assert len(await dbs[0].snapshots()) <= 3


async def test_r3_a_link_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """It would wait for ever without a word, or take over from itself."""
    async with two(tmp_path) as (_, dbs):
        for db in dbs:
            await db.create_table("default", "c", columns=[Column("n", "int4")], primary_key=["n"])
        sql = {"table": ["default", "c"], "rule": "counter"}
        for args, code in (
            ({**arguments(0), "site": "nowhere"}, "SITE_NOT_FOUND"),
            ({"site": "site-1", "tables": [{"table": ["default", "none"]}]}, "TABLE_NOT_FOUND"),
            ({"site": "site-1", "tables": [sql]}, "INVALID_ARGUMENT"),
        ):
            with pytest.raises(KvorumError) as failed:
                await dbs[0].wait(await dbs[0].submit(SITE_LINK, args), timeout_ms=20_000)
            assert failed.value.code == code
        with pytest.raises(InvalidArgument, match="named twice"):
            await dbs[0].submit(SITE_LINK, {"site": "s", "tables": [{"table": ["a", "b"]}] * 2})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"site": "", "tables": []}, "site must be"),
        ({"site": "s", "tables": []}, "list of 1 to"),
        ({"site": "s", "tables": [{"table": "a.b"}]}, "namespace, name"),
        ({"site": "s", "tables": [{"table": ["a", "b"], "rule": "first"}]}, "one of last"),
        ({"site": "s", "tables": [{"table": ["a", "b"], "rule": "procedure"}]}, "needs the name"),
        ({"site": "s", "tables": [{"table": ["a", "b"], "procedure": "p"}]}, "no other rule"),
        ({"site": "s", "tables": [{"table": ["kvorum_sites", "cursors"]}]}, "link itself"),
        ({"site": "s", "tables": [{"table": ["a", "b"]}], "more": 1}, "unknown argument"),
        ("s", "must be a map"),
    ],
)
def test_r3_what_a_link_is_not(args: object, says: str) -> None:
    """Bad arguments would be kept as a procedure that fails for ever."""
    with pytest.raises(InvalidArgument, match=says):
        link_of(args)


def test_r3_the_file_of_sites(tmp_path: Path) -> None:
    """A node would connect to what a client names, or show a token."""
    file, token = tmp_path / "sites.toml", tmp_path / "token"
    token.write_text("sesame\n")
    file.write_text(
        f'[good]\nurl = "kvorum://a:7600,b:7600"\ntoken_file = "{token}"\n'
        '[http]\nurl = "http://a"\n[odd]\nurl = "kvorum://a"\nuser = "root"\n[number]\nurl = 7\n'
    )
    place = site_of(str(file), "good")
    assert list(place.addresses) == [("a", 7600), ("b", 7600)]
    assert "sesame" not in repr(place)
    for name in ("http", "odd", "number"):
        with pytest.raises(InvalidArgument, match=name):
            site_of(str(file), name)
    for where in (str(file), ""):
        with pytest.raises(NotFound) as failed:
            site_of(where, "elsewhere")
        assert failed.value.code == "SITE_NOT_FOUND"
    file.write_text("[")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        site_of(str(file), "good")


@pytest.mark.slow
async def test_r3_fail_over_and_fail_back(tmp_path: Path) -> None:
    """Clients would write to a stand-by, the link would not, or nobody could after a fail-over."""
    async with two(tmp_path) as (clusters, dbs):
        for number, db in enumerate(dbs):
            await db.submit(SITE_LINK, arguments(number))
        await dbs[0].table("default", "t").put("k", "of 0")
        await seen(dbs[1], "t", "k", b"of 0")

        async def command(*words: str) -> Any:
            """Of who operates cluster 1."""
            return await asyncio.to_thread(told, "site", *words, connect=clusters[1].url)

        (link,) = (await command("list"))["items"]
        assert (link["site"], link["role"]) == ("site-0", "active")
        switched = await command("demote", "site-0")
        assert switched["switched"] == ["default.t", "default.hits"]
        with pytest.raises(KvorumError) as refused:
            await dbs[1].table("default", "t").put("k", "of 1")
        assert refused.value.code == "SITE_STANDBY"
        await dbs[0].table("default", "t").put("k", "of 0, again")
        await seen(dbs[1], "t", "k", b"of 0, again")
        await command("promote", "site-0")
        await dbs[1].table("default", "t").put("k", "of 1")
        await seen(dbs[0], "t", "k", b"of 1")
        assert (await command("promote", "site-0"))["switched"] == []
        assert (await command("conflicts"))["items"] == []
        await command("remove", "site-0")
        await begun(dbs[1], 0)
        await command("add", "site-0", "default.t", "default.hits=counter")
        await begun(dbs[1])


async def begun(db: AsyncDatabase, count: int = 1) -> None:
    """Wait until it has so many links."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if len(await db.sites()) == count:
                return
            await asyncio.sleep(0.05)


async def refused(connection: psycopg.AsyncConnection[Any], statement: str) -> str:
    """The SQLSTATE of it."""
    with pytest.raises(psycopg.Error) as failed:
        await connection.execute(statement)
    return failed.value.sqlstate or ""


@pytest.mark.slow
async def test_r3_a_linked_table_is_not_changed_behind_its_link(tmp_path: Path) -> None:
    """TRUNCATE, DROP or an index would leave the clusters different without a word; a surface that
    knows nothing of stand-bys would write to one.
    """
    async with two(tmp_path, http=True) as (clusters, dbs), httpx.AsyncClient() as asking:
        bases = [int(cluster.addresses[0].rpartition(":")[2]) for cluster in clusters]
        at = [f"http://127.0.0.1:{base + HTTP_OFFSET}" for base in bases]
        there, here = [
            f"host=127.0.0.1 port={base + SQL_OFFSET} user=u dbname=default"
            for base in reversed(bases)
        ]
        async with await psycopg.AsyncConnection.connect(there, autocommit=True) as sql:
            await sql.execute("CREATE TABLE s (id text PRIMARY KEY, n int)")
        async with await psycopg.AsyncConnection.connect(here, autocommit=True) as sql:
            await sql.execute("CREATE TABLE s (id text PRIMARY KEY, n int)")
            body = {"site": "site-1", "tables": [{"table": ["default", name]} for name in "st"]}
            answer = await asking.post(f"{at[0]}/v1/sites", json=body)
            assert answer.status_code == 202, answer.text
            await begun(dbs[0])
            (listed,) = (await asking.get(f"{at[0]}/v1/sites")).json()["items"]
            assert (listed["site"], listed["role"]) == ("site-1", "active")
            changes = {
                "TRUNCATE s": "55000",
                "DROP TABLE s": "55000",
                "ALTER TABLE s RENAME TO other": "55000",
                "CREATE INDEX ON s (n)": "55000",
                "ALTER TABLE s ADD CHECK (n > 0)": "55000",
            }
            for statement, state in changes.items():
                assert await refused(sql, statement) == state, statement
            await sql.execute("INSERT INTO s VALUES ('a', 1)")
            answer = await asking.post(f"{at[0]}/v1/sites/site-1/role", json={"role": "standby"})
            await dbs[0].wait(int(answer.json()["id"]), timeout_ms=40_000)
            more = ("INSERT INTO s VALUES ('b', 1)", "UPDATE s SET n = 2", "DELETE FROM s")
            more += ("ALTER TABLE s ADD COLUMN m int", "ALTER TABLE s RENAME COLUMN n TO m")
            for statement in (*changes, *more):
                assert await refused(sql, statement) == "25006", statement
            for name in "st":
                answer = await asking.put(f"{at[0]}/v1/kv/default/{name}/k", content=b"v")
                assert (answer.status_code, answer.json()["error"]["code"]) == (409, "SITE_STANDBY")
            for change in ("TruncateTable", "DropTable"):
                id = await dbs[0].submit(change, {"namespace": "default", "name": "t"})
                with pytest.raises(KvorumError) as failed:
                    await dbs[0].wait(id, timeout_ms=20_000)
                assert failed.value.code == "SITE_STANDBY"
            found = await sql.execute("SELECT site, role, tables FROM kvorum.site_links")
            assert [row[:2] for row in await found.fetchall()] == [("site-1", "standby")]
            metrics = (await asking.get(f"{at[0]}/metrics")).text
            assert 'kvorum_site_failures_total{site="site-1"}' in metrics
            assert (await asking.get(f"{at[0]}/v1/sites/conflicts")).json() == {"items": []}
            assert (await asking.delete(f"{at[0]}/v1/sites/none")).status_code == 404
            answer = await asking.delete(f"{at[0]}/v1/sites/site-1")
            assert answer.status_code == 202
            await begun(dbs[0], 0)
            await sql.execute("INSERT INTO s VALUES ('b', 1)")
            await sql.execute("TRUNCATE s")


@pytest.mark.slow
async def test_r3_the_other_cluster_asks_for_rights(tmp_path: Path) -> None:
    """A link would read what nobody granted, anybody could make one, or a token be shown."""
    async with two(tmp_path) as (clusters, dbs):
        for number, db in enumerate(dbs):
            await db.submit(SITE_LINK, arguments(number))
        await dbs[1].table("default", "t").put("k", "open")
        await seen(dbs[0], "t", "k", b"open")
        token = (await dbs[1].access("init"))["token"]
        async with await aconnect(clusters[1].url, token=token) as boss:
            await boss.access("user.create", {"name": "sync"})
            said = {"actions": ["read"], "role": "sync", "kind": "table", "namespace": "default"}
            for name in ("t", "hits"):
                await boss.access("grant.give", {**said, "name": name})
            said = {**said, "namespace": "kvorum_sites", "name": "cursors"}
            await boss.access("grant.give", said)
            await boss.access(
                "grant.give", {"actions": ["read"], "role": "sync", "kind": "cluster"}
            )
            secret = (await boss.access("token.create", {"user": "sync", "name": "site"}))["token"]
            await boss.table("default", "t").put("k", "secured")
            async with asyncio.timeout(2 * WAIT_S):
                while True:
                    (link,) = await dbs[0].sites()
                    if "tried again" in link["does"]:
                        break
                    await asyncio.sleep(0.1)
            (tmp_path / "token").write_text(secret)
            with (tmp_path / "sites-0.toml").open("a") as file:
                file.write(f'token_file = "{tmp_path / "token"}"\n')
            await seen(dbs[0], "t", "k", b"secured")
            (link,) = await dbs[0].sites()
            assert secret not in str(link)
            async with await aconnect(clusters[1].url, token=secret) as sync:
                for procedure, args in (
                    (SITE_LINK, arguments(1)),
                    (SITE_ROLE, {"site": "site-0", "role": "standby"}),
                ):
                    with pytest.raises(Forbidden):
                        await sync.submit(procedure, args)
