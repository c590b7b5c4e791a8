"""The native port: who somebody is, and what he may, for open connections too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kvorum
from kv.base.adapters import LoopTimers
from kv.base.config import HTTP_OFFSET
from kv.base.credentials import Credential
from kv.base.errors import (
    Busy,
    Forbidden,
    InvalidArgument,
    Moved,
    NotFound,
    Unauthenticated,
)
from kv.base.methods import (
    ABORTED,
    CHECK,
    COMMIT,
    COMMITTED,
    FIND_TXN,
    FINISH,
    GET,
    INGEST,
    PENDING,
    PREWRITE,
    RECOVER,
    RESOLVE,
    ROLLBACK,
    SETTLE,
    TSO,
    WRITE,
)
from kv.base.verbs import VERBS
from kv.client.connection import MuxConnection, open_connection
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll


@kvorum.procedure("rights.replayed")
class Replayed:
    """Code for a procedure that is not its author's."""

    @kvorum.step(first=True)
    async def only(self, ctx: object) -> object:
        return kvorum.done(None)


class Cluster:
    """A node with an administrator."""

    def __init__(self, base: int, db: Database) -> None:
        self.url = f"127.0.0.1:{base}"
        self.http = f"http://127.0.0.1:{base + HTTP_OFFSET}"
        self.embedded = db
        self.root = db.access("init")["token"]

    def as_root(self) -> Database:
        return kvorum.connect(self.url, token=self.root)

    def token(self, user: str, name: str = "t", **said: object) -> str:
        made = self.embedded.access("token.create", {"user": user, "name": name, **said})
        return str(made["token"])

    def user(self, name: str, *grants: tuple[str, str, str, str]) -> str:
        """A token of a new user who was granted these (actions, kind, namespace, name)."""
        self.embedded.access("user.create", {"name": name})
        for actions, kind, namespace, thing in grants:
            said = {"actions": actions.split(","), "kind": kind, "namespace": namespace}
            self.embedded.access("grant.give", {"role": name, "name": thing, **said})
        return self.token(name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("n") / "data", port=base) as db:
        db.create_namespace("shop")
        db.create_table("shop", "orders")
        db.create_table("shop", "secrets")
        db.table("shop", "orders").put(b"k", b"v")
        yield Cluster(base, db)


def refusal(url: str, said: dict[str, str]) -> str:
    """Why nobody gets in so, once failed logins before it slow it down no more."""

    def refused() -> str:
        try:
            kvorum.connect(url, **said)  # type: ignore[arg-type]
        except Unauthenticated as error:
            return str(error)
        except Busy:
            return ""
        raise AssertionError("it got in")

    return str(poll(refused))


def test_a_password_is_a_credential(cluster: Cluster) -> None:
    """The same verifier as SQL's; a file of the environment has it, no flag."""
    said = {"name": "pat", "password": "correct horse battery", "superuser": True}
    cluster.embedded.access("user.create", said)
    with kvorum.connect(cluster.url, user="pat", password="correct horse battery") as db:
        assert db.table("shop", "orders").get(b"k")


def test_nobody_gets_in_without_a_credential(cluster: Cluster) -> None:
    """Whoever reaches the port owns the cluster no more; what is wrong is not told."""
    for said in (
        {},
        {"token": "kvt_" + "a" * 16 + "_" + "b" * 43},
        {"token": "rubbish"},
        {"token": cluster.root[:-1] + ("x" if cluster.root[-1] != "x" else "y")},
        {"user": "admin", "password": "wrong password"},
        {"user": "no such user", "password": "wrong password"},
    ):
        assert "admin" not in refusal(cluster.url, said)
    with cluster.as_root() as db:
        assert db.table("shop", "orders").get(b"k").value == b"v"


def test_a_session_from_before_the_first_user_loses_its_rights(tmp_path: Path) -> None:
    """Whoever was connected when there was no password would go on for ever."""
    base = free_port_base()
    with (
        kvorum.open(tmp_path / "data", port=base) as own,
        kvorum.connect(f"127.0.0.1:{base}") as before,
    ):
        before.create_table("default", "t")
        before.table("default", "t").put(b"k", b"v")
        token = own.access("init")["token"]
        with pytest.raises(Unauthenticated):
            before.table("default", "t").get(b"k")
        with kvorum.connect(f"127.0.0.1:{base}", token=token) as after:
            assert after.table("default", "t").get(b"k").value == b"v"


def test_what_was_taken_away_ends_for_open_connections(cluster: Cluster) -> None:
    """A revoked token, one that expires, a dropped user: within about a second."""
    with kvorum.connect(cluster.url, token=cluster.token("admin", "revoked")) as db:
        assert db.table("shop", "orders").get(b"k")
        cluster.embedded.access("token.revoke", {"user": "admin", "name": "revoked"})
        with pytest.raises(Unauthenticated):
            db.table("shop", "orders").get(b"k")
    with kvorum.connect(cluster.url, token=cluster.token("admin", "short", ttl_ms=1_500)) as db:

        def ended() -> bool:
            try:
                db.table("shop", "orders").get(b"k")
            except Unauthenticated:
                return True
            return False

        assert poll(ended)


def test_rights_hold_by_table(cluster: Cluster) -> None:
    """Who may read one table reads no other, and writes none."""
    token = cluster.user("reader", ("read", "table", "shop", "orders"))
    with kvorum.connect(cluster.url, token=token) as db:
        assert db.table("shop", "orders").get(b"k").value == b"v"
        assert [row.key for row in db.table("shop", "orders").scan().items] == [b"k"]
        with pytest.raises(Forbidden):
            db.table("shop", "orders").put(b"k", b"w")
        with pytest.raises(NotFound):  # what he may not see looks as if it were not there
            db.table("shop", "secrets").get(b"k")
        with pytest.raises(Forbidden):
            db.access("user.list")
    assert cluster.embedded.table("shop", "orders").get(b"k").value == b"v"


def test_who_submits_and_who_operates_is_who_logged_in(cluster: Cluster) -> None:
    """Whatever a client claimed of itself was written into the audit of procedures."""
    token = cluster.user("operator")
    for actions, said in (
        (["operate", "read", "submit"], {"kind": "procedure type", "name": "kvorum.*"}),
        (["write"], {"kind": "lock", "name": "mine*"}),
        (["operate"], {"kind": "cluster"}),
    ):
        cluster.embedded.access("grant.give", {"role": "operator", "actions": actions, **said})
    http = f"http://127.0.0.1:{int(cluster.url.partition(':')[2]) + HTTP_OFFSET}"
    for url in (cluster.url, http):
        with kvorum.connect(url, token=token) as db:
            lock = {"resource": f"mine {url}", "exclusive": True, "ttl_ms": 60_000}
            id = db.submit("kvorum.lock", {**lock, "owner": "", "session": ""})
            assert id in [int(one.id) for one in cluster.embedded.procedures(owner="operator")]
            db.abort_procedure(id, "it is in the way", actor="somebody else")
        entry = cluster.embedded.audit(id)[0]
        assert (entry["actor"], entry["what"]) == ("operator", "abort")


def test_what_one_may_not_see_is_named_by_nothing(cluster: Cluster) -> None:
    """Where a page of the catalog ends, and where a key has moved to, would tell everybody names of
    users and tables, and keys of all tables one after the other.
    """
    token = cluster.user("curious", ("read", "table", "shop", "orders"))
    ids = {one.name: one.id for one in cluster.embedded.tables("shop")}
    where = {one["start"][:4]: one["id"] for one in cluster.embedded.partitions()}
    hidden = ids["secrets"].to_bytes(4, "big")
    orders = int(where[ids["orders"].to_bytes(4, "big")])

    async def ask() -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        port = int(cluster.url.rpartition(":")[2])
        said = Credential(token=token)
        link = await open_connection("127.0.0.1", port, timers=timers, credential=said)
        late = timers.monotonic() + 5
        (catalog,) = (verb.number for verb in VERBS if verb.name == "CATALOG")
        seen: list[bytes] = []
        at: bytes | None = b""
        while at is not None:
            rows, at = await link.send(catalog, 5_000, late, (at, b"\xff" * 4, 1))
            seen += [key for key, _, _ in rows]
            assert at in (None, seen[-1] + b"\0")
        assert not [
            key for key in seen if b"secrets" in key or b"curious" in key or key > b"\0\0\0d"
        ]
        assert [key for key in seen if b"orders" in key]
        with pytest.raises(Moved) as caught:
            await link.send(GET, 5_000, late, (orders, 0, hidden + b"k", 0, []))
        assert caught.value.details["descriptor"] is None
        link.close()

    asyncio.run(ask())


def test_a_snapshot_is_whose_it_is(cluster: Cluster) -> None:
    """Anybody could end the snapshot that another one's backup or report reads, on any surface."""
    http = f"http://127.0.0.1:{int(cluster.url.partition(':')[2]) + HTTP_OFFSET}"
    tokens = [cluster.user(name) for name in ("holder", "other")]
    for role in ("holder", "other"):
        said = {"role": role, "actions": ["read"], "kind": "cluster"}
        cluster.embedded.access("grant.give", said)
    surfaces = [(at, by) for at in (cluster.url, http) for by in (cluster.url, http)]
    for at, by in surfaces:
        with kvorum.connect(at, token=tokens[0]) as mine, kvorum.connect(by, token=tokens[1]) as db:
            backend = db._async._backend
            for held in (mine.snapshot(), mine.snapshot()):
                with pytest.raises(Forbidden):
                    db.release_snapshot(held.id)
                with pytest.raises(Forbidden):
                    db._call(backend.renew_snapshot(held.id))
                assert mine.release_snapshot(held.id)
    with kvorum.connect(cluster.url, token=tokens[0]) as mine, cluster.as_root() as root:
        assert root.release_snapshot(mine.snapshot().id), "an administrator may"
    own = cluster.embedded.snapshot()
    with kvorum.connect(http, token=tokens[1]) as db, pytest.raises(Forbidden):
        db.release_snapshot(own.id)


def test_no_writer_of_a_table_ends_it_for_others(cluster: Cluster) -> None:
    """One commit at a time of the far future, and nobody else wrote there any more."""
    token = cluster.user("hasty", ("read,write", "table", "shop", "orders"))
    far = 1 << 62

    async def ask(link: MuxConnection, partition: int, prefix: bytes) -> None:
        late, key = link._timers.monotonic() + 10, prefix + b"hasty"
        (start,) = await link.send(TSO, 5_000, late, (1,))
        op = [1, key, b"v", None, 0]
        where = (partition, 1)
        await link.send(PREWRITE, 5_000, late, (*where, start, key, 3_000, [op], 0))
        for method, *args in (
            (COMMIT, key, start, far),
            (FINISH, [[start, key, far, [key]]]),
            (FINISH, [[start, None, far, [key]]]),
            (RESOLVE, start, far, [key]),
            (PREWRITE, far, key, 3_000, [op], 0),
            (WRITE, [op], far, 0),
            (INGEST, [key], [b"v"], far, False),
        ):
            with pytest.raises(InvalidArgument, match="future"):
                await link.send(method, 5_000, late, (*where, *args))
        await link.send(ROLLBACK, 5_000, late, (*where, key, start))

    by_native(cluster, token, "orders", ask)
    with cluster.as_root() as db:
        version = db.table("shop", "orders").put(b"others", b"v")
        assert version < far
        assert db.table("shop", "orders").get(b"others").value == b"v"


def test_who_only_reads_holds_up_nobody(cluster: Cluster) -> None:
    """A lock of a reader would keep those out who may write."""
    reader = cluster.user("idle", ("read", "table", "shop", "orders"))
    writer = cluster.user("busy", ("read,write", "table", "shop", "orders"))

    async def lock(link: MuxConnection, partition: int, prefix: bytes) -> None:
        late, key = link._timers.monotonic() + 10, prefix + b"idle"
        (start,) = await link.send(TSO, 5_000, late, (1,))
        args = (partition, 1, start, key, 3_000, [[3, key, None, None, 0]], 1, {"lock": True})
        assert (await link.send(PREWRITE, 5_000, late, args))[1] == [0]
        await link.send(ROLLBACK, 5_000, late, (partition, 1, key, start))

    by_native(cluster, writer, "orders", lock)
    with pytest.raises(Forbidden):
        by_native(cluster, reader, "orders", lock)


def test_nobody_looks_into_transactions_of_others(cluster: Cluster) -> None:
    """By its number anybody found keys of a transaction, in tables that he may not see, and could
    have it aborted.
    """
    token = cluster.user("stranger", ("read", "table", "shop", "orders"))
    ids = {one.name: one.id for one in cluster.embedded.tables("shop")}
    key = ids["secrets"].to_bytes(4, "big") + b"hidden"

    async def begin(link: MuxConnection, partition: int, _prefix: bytes) -> None:
        late = link._timers.monotonic() + 10
        (start,) = await link.send(TSO, 5_000, late, (1,))
        options = {"fence": True, "stage": [[key], [key + b"2"]]}
        args = (start, key, 60_000, [[1, key, b"v", None, 0]], 0, options)
        await link.send(PREWRITE, 5_000, late, (partition, 1, *args))
        assert (await link.send(FIND_TXN, 5_000, late, (start,)))[0] == key
        began.append((partition, start))

    async def look(link: MuxConnection, _partition: int, _prefix: bytes) -> None:
        late = link._timers.monotonic() + 10
        ((partition, start),) = began
        where = (partition, 1)
        assert (await link.send(FIND_TXN, 5_000, late, (start,)))[0] is None
        found = await link.send(CHECK, 5_000, late, (*where, key, start, 0, 60_000))
        assert found[0] in (PENDING, ABORTED)
        assert found[4:] == [""]
        with pytest.raises(Forbidden):
            await link.send(RECOVER, 5_000, late, (*where, start, key, [key], True))
        settled = await link.send(SETTLE, 5_000, late, (*where, key, start, start + 1))
        assert settled[0] != COMMITTED

    began: list[tuple[int, int]] = []
    by_native(cluster, cluster.root, "secrets", begin)
    by_native(cluster, token, "orders", look)


def test_a_procedure_is_asked_for_by_its_type(cluster: Cluster) -> None:
    """By the id of a procedure only those got on who had a right to all types; others learned
    whether there is one.
    """
    token = cluster.user("pilot")
    for actions, said in (
        (["operate", "read", "submit"], {"kind": "procedure type", "name": "kvorum.lock"}),
        (["write"], {"kind": "lock", "name": "mine*"}),
    ):
        cluster.embedded.access("grant.give", {"role": "pilot", "actions": actions, **said})
    with kvorum.connect(cluster.url, token=token) as db:
        lock = {"exclusive": True, "ttl_ms": 60_000, "owner": "", "session": ""}
        mine = db.submit("kvorum.lock", {"resource": "mine 1", **lock})
        other = cluster.embedded.submit("kvorum.lock", {"resource": "yours", **lock})
        hidden = cluster.embedded.submit("CreateNamespace", {"namespace": "hidden"})
        assert db.procedure(mine).name == "kvorum.lock"
        call, backend = db._call, db._async._backend
        assert call(backend.beat_lock(int(mine), 5_000))[0] == "held"
        said = []
        for id in (hidden, "4000000000"):
            for doing in (
                lambda id=id: db.procedure(int(id)),
                lambda id=id: db.abort_procedure(int(id), "why", actor="me"),
                lambda id=id: db.explain_procedure(int(id)),
                lambda id=id: db.signal(int(id), "go"),
                lambda id=id: db.procedure(int(id), at="-1ms"),
                lambda id=id: db.replay_procedure(int(id), Replayed),
            ):
                with pytest.raises(Forbidden) as caught:
                    doing()
                said.append(str(caught.value))
        assert said[:6] == said[6:], "whether there is one is not told"
        with pytest.raises(Forbidden):
            call(backend.beat_lock(int(other), 0))
        own = {"token": f"ext-aa-{mine}-0", "name": "go", "key": "k", "reason": "why"}
        by_id = ("abort", "bypass", "retry", "explain", "signal", "query", "update", "events")
        for what in (*by_id, "past", "past.record"):
            with pytest.raises(Forbidden):  # the right to the one that a token names is not enough
                call(backend.control(what, {**own, "id": int(hidden)}))
        db.abort_procedure(mine, "done", actor="me")


@pytest.mark.parametrize("over", ["native", "http"])
def test_who_waits_is_told_no_more_than_he_may_see_by_then(cluster: Cluster, over: str) -> None:
    """Who waited for the end of a procedure was told its result, though his right to read that type
    had been taken away meanwhile.
    """
    user = f"waiter_{over}"
    token = cluster.user(user)
    grant = {"role": user, "actions": ["submit", "read"], "kind": "procedure type"}
    cluster.embedded.access("grant.give", {**grant, "name": "kvorum.lock"})
    locks = {"role": user, "actions": ["write"], "kind": "lock", "name": user}
    cluster.embedded.access("grant.give", locks)
    url = cluster.url if over == "native" else cluster.http
    with kvorum.connect(url, token=token) as db, ThreadPoolExecutor(1) as pool:
        lock = {"resource": user, "exclusive": True, "ttl_ms": 120_000, "owner": "", "session": ""}
        id = db.submit("kvorum.lock", lock)
        waits = pool.submit(lambda: db.wait(id, timeout_ms=50_000))
        assert db.procedure(id).name == "kvorum.lock"
        cluster.embedded.access("grant.take", {**grant, "name": "kvorum.lock"})

        def lost() -> bool:
            try:
                db.procedure(id)
            except Forbidden:
                return True
            return False

        assert poll(lost)
        cluster.embedded.abort_procedure(id, "done", actor="me")
        with pytest.raises(Forbidden):
            waits.result(60)


def test_a_token_makes_none_that_goes_beyond_it(cluster: Cluster) -> None:
    """One for an hour, or for a part of all rights, made one for ever and for all of them."""
    http = f"http://127.0.0.1:{int(cluster.url.partition(':')[2]) + HTTP_OFFSET}"
    hour, everything = 3_600_000, {"actions": ["admin", "read"], "kind": "cluster"}
    short = cluster.token("admin", "hour", ttl_ms=hour)
    limited = cluster.token("admin", "part", limits=[everything])
    shown = {one["name"]: one for one in cluster.embedded.access("token.list")}
    until_ms = shown["hour"]["expires_ms"]
    for at, surface in ((cluster.url, "native"), (http, "http")):
        with kvorum.connect(at, token=short) as db:
            said = {"user": "admin", "name": f"child {surface}"}
            made = db.access("token.create", said)
            assert 0 < made["expires_ms"] <= until_ms
            for name, ttl_ms, ends in (("brief", 1_000, True), ("long", 2 * hour, False)):
                said = {"user": "admin", "name": f"{name} {surface}", "ttl_ms": ttl_ms}
                if ends:
                    assert db.access("token.create", said)["expires_ms"] < until_ms
                else:
                    with pytest.raises(Forbidden):
                        db.access("token.create", said)
            with pytest.raises(Forbidden):
                db.access("user.password", {"name": "admin", "password": "for ever and ever"})
        with kvorum.connect(at, token=limited) as db:
            assert db.access("token.list")
            for what, said in (
                ("token.create", {"user": "admin", "name": "wide"}),
                ("user.create", {"name": "second", "superuser": True}),
                ("user.password", {"name": "admin", "password": "for ever and ever"}),
                ("grant.give", {"role": "admin", **everything}),
                ("role.grant", {"user": "admin", "role": "kvorum"}),
            ):
                with pytest.raises(Forbidden, match="limited"):
                    db.access(what, said)


def by_native(
    cluster: Cluster,
    token: str,
    name: str,
    doing: Callable[[MuxConnection, int, bytes], Awaitable[None]],
) -> None:
    """Speak the native protocol, with the partition and the prefix of a table of `shop`."""
    prefix = {one.name: one.id for one in cluster.embedded.tables("shop")}[name].to_bytes(4, "big")
    where = {one["start"][:4]: one["id"] for one in cluster.embedded.partitions()}

    async def ask() -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        port, said = int(cluster.url.rpartition(":")[2]), Credential(token=token)
        link = await open_connection("127.0.0.1", port, timers=timers, credential=said)
        try:
            await doing(link, int(where[prefix]), prefix)
        finally:
            link.close()

    asyncio.run(ask())
