"""What one tenant may use of a node, over each surface."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import kvorum
from kv.base.accounts import Account
from kv.base.config import NodeConfig
from kv.base.errors import Busy
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from kvorum.sdk.portal import Portal
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll

MIB = 1 << 20
ROUTES = (
    ("GET", "/v1/kv/shop/orders/k"),
    ("GET", "/v1/cluster"),
    ("GET", "/v1/watch/shop/orders"),
    ("POST", "/v1/batch"),
    ("GET", "/v1/none"),
)


class Node:
    """A node with an admin and two users, of one table."""

    def __init__(self, base: int, stack: ExitStack) -> None:
        self.base, self._stack = base, stack
        self.url = f"http://127.0.0.1:{base + 2}"
        self.tokens = {"admin": str(httpx.post(f"{self.url}/v1/init").json()["token"])}
        self.admin = self.client("admin")
        with kvorum.connect(f"127.0.0.1:{base}", token=self.tokens["admin"]) as db:
            db.create_namespace("shop")
            db.create_table("shop", "orders")
            db.table("shop", "orders").put(b"k", b"v")
        for user in ("ann", "bob"):
            assert self.admin.post("/v1/users", json={"name": user}).is_success
            made = self.admin.post("/v1/tokens", json={"user": user, "name": "t"}).json()
            self.tokens[user] = made["token"]

    def client(self, user: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        return self._stack.enter_context(
            httpx.Client(base_url=self.url, headers=headers, timeout=60)
        )

    def set(self, name: str, value: int) -> None:
        assert self.admin.post("/v1/cluster", json={"settings": {name: value}}).is_success

    def native(self, user: str, timeout_ms: int = 10_000) -> Database:
        url, token = f"127.0.0.1:{self.base}", self.tokens[user]
        return self._stack.enter_context(kvorum.connect(url, token=token, timeout_ms=timeout_ms))

    def give(self, user: str) -> None:
        """All rights on the table."""
        self.native("admin").access(
            "grant.give",
            {
                "role": user,
                "actions": ["read", "write"],
                "kind": "table",
                "namespace": "shop",
                "name": "orders",
            },
        )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    base, portal = free_port_base(), Portal("shared")

    async def start() -> Any:
        config = NodeConfig(data=tmp_path / "data", port=base, sql_memory_bytes=96 * MIB)
        node = await build(config, system_ports(asyncio.get_running_loop()))
        await node.start()
        return node

    started = portal.call(start())
    with ExitStack() as stack:
        yield Node(base, stack)
    portal.call(started.stop())
    portal.close()


def test_a_user_that_floods_is_refused_and_nobody_else(node: Node) -> None:
    """One user's flood would be everybody's; or a limit would keep the operator out, too."""
    admin, ann, bob = (node.client(user) for user in ("admin", "ann", "bob"))
    node.set("user.requests_per_s", 1)
    for method, path in ROUTES[:4]:
        answers = (ann.request(method, path) for _ in range(60))
        refused = next(answer for answer in answers if answer.status_code == 429)
        error = refused.json()["error"]
        assert error["code"] == "BUSY"
        assert error["details"]["limit"] == 1
        assert error["details"]["retry_after_ms"] <= 1_001
        assert refused.headers["retry-after"] in ("1", "2")
    assert bob.get("/v1/cluster").status_code != 429
    for _ in range(10):
        assert admin.get("/v1/cluster").is_success
    assert 'kvorum_tenant_refused_total{tenant="user ann"}' in admin.get("/metrics").text
    node.set("user.requests_per_s", 0)
    assert ann.get("/v1/cluster").status_code == 403


def test_a_request_that_has_ended_counts_no_more(node: Node) -> None:
    """A share that is not given back on some way out would lock its user out for good."""
    node.set("user.requests_max", 1)
    ann = node.client("ann")
    for method, path in ROUTES * 3:
        assert ann.request(method, path).status_code in (400, 403, 404, 405)


def refused(call: Callable[[], object], tries: int = 60) -> Busy:
    """What is said when it is refused."""
    for _ in range(tries):
        try:
            call()
        except Busy as error:
            return error
    raise AssertionError("it was never refused")


def test_native_requests_count_for_their_user_and_their_namespace(node: Node) -> None:
    """The same flood by another port would have no limit."""
    for user in ("ann", "bob"):
        node.give(user)
    ann, bob, patient = (
        node.native(user, timeout_ms).table("shop", "orders")
        for user, timeout_ms in (("ann", 200), ("bob", 200), ("ann", 20_000))
    )
    for table in (ann, bob, patient):
        assert table.get(b"k")
    node.set("user.requests_per_s/ann", 1)
    error = refused(lambda: ann.get(b"k"))
    assert (error.details["user"], error.details["limit"]) == ("ann", 1)
    for _ in range(20):
        bob.get(b"k")
    assert patient.get(b"k"), "it comes again within its deadline"
    node.set("user.requests_per_s/ann", -1)
    node.set("namespace.bytes_per_s", 10)
    error = refused(lambda: bob.get(b"k"))
    assert (error.details["namespace"], error.details["what"]) == ("shop", "bytes per second")
    node.native("admin").table("shop", "orders").get(b"k")


def test_rows_of_a_scan_are_paid_before_the_next_request(node: Node) -> None:
    """Whoever reads tables whole asks seldom, and would have no limit."""
    node.give("ann")
    table = node.native("admin").table("shop", "orders")
    for n in range(50):
        table.put(b"%d" % n, b"v")
    node.set("user.rows_per_s", 5)
    ann = node.client("ann")
    assert len(ann.get("/v1/kv/shop/orders").json()["items"]) == 51
    answer = ann.get("/v1/kv/shop/orders/k")
    assert answer.status_code == 429
    assert answer.json()["error"]["details"]["what"] == "rows per second"
    assert 1_001 < answer.json()["error"]["details"]["retry_after_ms"] < 10_000
    refused(lambda: node.native("ann", 200).table("shop", "orders").get(b"k"), 1)


def sql(node: Node, user: str) -> psycopg.Connection:
    return psycopg.connect(
        f"host=127.0.0.1 port={node.base + 3} dbname=shop user={user}",
        password="a password of nobody",
        autocommit=True,
    )


def again(connection: psycopg.Connection, statement: str) -> None:
    for _ in range(60):
        connection.execute(statement)


@pytest.mark.slow
def test_g10_statements_count_and_computing_is_slowed_down(node: Node) -> None:
    """SQL would be the way around every limit; or a transaction could not end."""
    said = {"name": "ann", "password": "a password of nobody"}
    node.native("admin").access("user.password", said)
    node.give("ann")
    with sql(node, "ann") as ann:
        ann.execute("BEGIN")
        node.set("user.requests_per_s", 1)
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="user ann"):
            again(ann, "SELECT 1")
        ann.execute("ROLLBACK")
        node.set("user.requests_per_s", 0)
        node.set("user.connections_max", 1)
        with pytest.raises(psycopg.OperationalError, match="1 connections"):
            sql(node, "ann")
        node.set("user.connections_max", 0)
        heavy = "SELECT sum(length(repeat('x', 1000) || n)) FROM generate_series(1, 20000) n"
        ann.execute(heavy)
        node.set("namespace.sql_ms_per_s", 20)
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="namespace shop"):
            again(ann, heavy)
    text = node.admin.get("/metrics").text
    (used,) = re.findall(r'kvorum_tenant_sql_us_total{tenant="user ann"} (\S+)', text)
    assert float(used) > 1_000


@pytest.mark.slow
def test_g10_one_users_statements_leave_memory_to_others(node: Node) -> None:
    """Cursors of one user hold all that a node has for SQL, and others get 53200 for theirs."""
    for user in ("ann", "bob"):
        said = {"name": user, "password": "a password of nobody"}
        node.native("admin").access("user.password", said)
        node.give(user)
    held = "DECLARE c{} CURSOR WITH HOLD FOR SELECT repeat('x', 100000) FROM generate_series(1, 80)"
    with ExitStack() as stack:
        refused = None
        for _ in range(12):  # of 8 MB each
            bob = stack.enter_context(sql(node, "bob"))
            try:
                bob.execute(held.format(""))
            except psycopg.errors.OutOfMemory as error:
                refused = error
        assert refused is not None
        assert "of which user bob has" in (refused.diag.message_detail or "")
        with sql(node, "ann") as ann:
            ann.execute(held.format(1))
            ann.execute(held.format(2))
    with sql(node, "bob") as bob:
        bob.execute(held.format(""))


@pytest.mark.slow
def test_g10_what_is_answered_or_lost_is_under_way_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that a lost connection leaves behind keeps its user's turns from him for good."""
    node.give("bob")
    made: dict[str, Account] = {}
    real = Account.connect

    def connect(self: Account, *, asked: bool = True) -> None:
        made[self.name] = self
        real(self, asked=asked)

    monkeypatch.setattr(Account, "connect", connect)
    url, most = f"127.0.0.1:{node.base}", 0

    async def flood(*, cut: bool) -> None:
        nonlocal most
        async with await kvorum.aconnect(url, token=node.tokens["bob"]) as db:
            table = db.table("shop", "orders")
            puts = [asyncio.ensure_future(table.put(b"%d" % n, b"v")) for n in range(500)]
            await asyncio.wait(puts, return_when=asyncio.FIRST_COMPLETED)
            most = max(most, made["bob"].sent)
            if not cut:
                await asyncio.gather(*puts)
                assert made["bob"].sent == 0
            for one in puts:
                one.cancel()
        await asyncio.gather(*puts, return_exceptions=True)

    for cut in (False, True, True, False):
        asyncio.run(flood(cut=cut))
    assert most > 0
    poll(lambda: made["bob"].sent == 0)
