"""Where clocks are hybrid, tokens go along with requests: over HTTP by a header, over SQL by a
setting. A token here is a little ahead of the node's clock, as one of another node can be.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

import kvorum
from kv.base.timestamps import MAX, compose, physical_ms
from kvorum.cli.doctor import node as looked_at
from kvorum.http.client.transport import HttpTransport
from kvorum.http.routes.openapi import DECLARED
from tests.kit.commands import command, settings
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

BATCH = b'{"ops": [{"op": "put", "ns": "default", "table": "t", "key": "a", "value": "b"}]}'
HEADER = "Kvorum-Causal-Token"
AHEAD = compose(200)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    data: Path = tmp_path_factory.mktemp("hybrid") / "data"
    with NodeProcess(data, free_port_base(), "--clock", "hybrid") as found:
        found.start()
        with kvorum.connect(found.url) as db:
            db.create_table("default", "t")
        yield found


@pytest.fixture
def http(node: NodeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{node.base + 2}", timeout=20) as client:
        yield client


@pytest.fixture
def sql(node: NodeProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(_dsn(node), autocommit=True) as connection:
        yield connection


def _dsn(node: NodeProcess) -> str:
    return f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname=postgres"


def token_of(answer: httpx.Response) -> int:
    return int(answer.headers[HEADER])


def elsewhere(node: NodeProcess) -> int:
    """A token of another node, whose clock is ahead."""
    with kvorum.connect(node.url) as db:
        return db.timestamp() + AHEAD


OPEN = [
    route.path
    for route in DECLARED
    if route.method == "GET" and "{" not in route.path and route.path.startswith("/v1/")
]


@pytest.mark.parametrize("path", [*OPEN, "/v1/kv/default/t", "/v1/kv/default/t/none"])
def test_r1_every_reply_has_a_token(http: httpx.Client, path: str) -> None:
    """A reply without one cannot be handed on: its reader's effects could come before it."""
    version = int(http.put("/v1/kv/default/t/k", content=b"v").json()["version"])
    assert token_of(http.get(path)) >= version


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/kv/default/t/k", b"v"),
        (
            "POST",
            "/v1/batch",
            BATCH,
        ),
        ("POST", "/v1/txn", b"{}"),
        ("POST", "/v1/tso", b'{"count": 1}'),
        ("GET", "/v1/kv/default/t", b""),
        ("POST", "/v1/snapshots", b"{}"),
    ],
)
def test_r1_what_comes_with_a_token_lies_above_it(
    node: NodeProcess, http: httpx.Client, method: str, path: str, body: bytes
) -> None:
    """A write that its cause has caused elsewhere would get a version below it."""
    token = elsewhere(node)
    said = {HEADER: str(token), "Content-Type": "application/json"}
    if method == "PUT":
        said["Content-Type"] = "application/octet-stream"
    answer = http.request(method, path, content=body, headers=said)
    assert answer.is_success, answer.text
    assert token_of(answer) > token
    told = answer.json()
    for name in ("version", "start_ts", "first", "at"):
        if name in told:
            assert int(told[name]) > token


@pytest.mark.parametrize("path", ["/v1/kv/default/t/k", "/v1/nodes"])
@pytest.mark.parametrize("token", ["", "x", "-1", "1.5", str(MAX), str(MAX + 1), "9" * 40])
def test_r1_what_is_no_token_is_refused(http: httpx.Client, path: str, token: str) -> None:
    """Passed over, it would promise what nobody keeps; believed, it would drive clocks apart."""
    answer = http.get(path, headers={HEADER: token})
    assert answer.status_code == 400, answer.text
    assert abs(physical_ms(token_of(http.get(path))) - time.time_ns() // 1_000_000) < 1_000


def test_r1_the_sdk_hands_its_token_on_by_itself(node: NodeProcess) -> None:
    """Behind one address may be several nodes: what one of them answered, the next one must know;
    also what a watch has delivered.
    """

    async def main() -> None:
        async with await kvorum.aconnect(f"http://127.0.0.1:{node.base + 2}") as db:
            transport: HttpTransport = db._backend._transport  # type: ignore[attr-defined]
            version = await db.table("default", "t").put("k", b"v")
            assert transport.heard.at >= version
            transport.heard.owe(told := transport.heard.at + AHEAD)  # as of another node
            assert await db.table("default", "t").put("k", b"w") > told
            transport.heard.at = 1
            async with db.watch("default", "t", from_version=0) as events:
                event = await anext(events)
            assert transport.heard.at >= event.version

    asyncio.run(main())


def test_r1_a_sql_session_goes_on_after_a_token(
    node: NodeProcess, sql: psycopg.Connection[Any]
) -> None:
    """SET, set_config() and the start of a session: what it writes and reads lies above."""
    sql.execute("CREATE TABLE IF NOT EXISTS q (id int PRIMARY KEY)")

    def seen(connection: psycopg.Connection[Any]) -> int:
        row = connection.execute("SHOW kvorum.causal_token").fetchone()
        assert row is not None
        return int(row[0])

    with kvorum.connect(node.url) as db:
        before = db.timestamp()
        assert seen(sql) >= before
        for number, how in enumerate(
            (
                "SET kvorum.causal_token = '{}'",
                "SET LOCAL kvorum.causal_token = '{}'",
                "SELECT set_config('kvorum.causal_token', '{}', false)",
            )
        ):
            token = db.timestamp() + AHEAD
            with sql.transaction():
                sql.execute(how.format(token))  # type: ignore[arg-type]
                sql.execute("INSERT INTO q VALUES (%s)", [number])
            there = "SELECT count(*) FROM q AS OF SYSTEM TIME '{}' WHERE id = {}"
            for moment, count in ((token, 0), (seen(sql), 1)):
                found = sql.execute(there.format(moment, number))  # type: ignore[arg-type]
                assert found.fetchone() == (count,)
            assert seen(sql) > token
        token = db.timestamp() + AHEAD
        options = f"-c kvorum.causal_token={token}"
        with psycopg.connect(_dsn(node), options=options, autocommit=True) as other:
            assert seen(other) > token


@pytest.mark.parametrize("token", ["x", "-1", str(MAX), str(MAX + 1)])
def test_r1_sql_refuses_what_is_no_token(sql: psycopg.Connection[Any], token: str) -> None:
    """By SET and at the start of a session, and the session is as it was."""
    with pytest.raises(psycopg.Error):
        sql.execute(f"SET kvorum.causal_token = '{token}'")  # type: ignore[arg-type]
    assert sql.execute("SELECT 1").fetchone() == (1,)


def test_r1_a_token_comes_before_the_first_query(
    node: NodeProcess, sql: psycopg.Connection[Any]
) -> None:
    """The snapshot of a transaction does not move: a token after it would promise nothing."""
    sql.execute("CREATE TABLE IF NOT EXISTS q (id int PRIMARY KEY)")
    with sql.transaction(force_rollback=True):
        sql.execute("SELECT * FROM q")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="before any query"):
            sql.execute(f"SET kvorum.causal_token = '{elsewhere(node)}'")  # type: ignore[arg-type]


def test_r1_clocks_are_shown(node: NodeProcess, http: httpx.Client) -> None:
    """A clock that drifts is seen before its node is fenced."""
    shown = {m.name: m for m in text_string_to_metric_families(http.get("/metrics").text)}
    for name, value in (("trusted", 1), ("fenced", 0), ("leaps", 0)):
        metric = shown[f"kvorum_tso_clock_{name}"]
        assert metric.samples[0].value == value
        assert metric.documentation != "Not described yet."
    assert {finding.check for finding in looked_at(node.base)} >= {"node", "clock"}


@pytest.mark.slow
def test_r1_a_proxy_hands_tokens_on(node: NodeProcess) -> None:
    """Which has no clock of its own, and has asked nobody when the first token comes."""
    base = free_port_base()
    words = command("proxy", "--connect", node.url, "--port", str(base))
    with subprocess.Popen(words, env=settings(), stdout=subprocess.DEVNULL) as proxy:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{base + 2}", timeout=20) as client:
                poll(lambda: _answers(client))
                token = elsewhere(node)
                answer = client.put(
                    "/v1/kv/default/t/k", content=b"v", headers={HEADER: str(token)}
                )
                assert answer.is_success, answer.text
                assert token_of(answer) >= int(answer.json()["version"]) > token
                refused = client.get("/v1/kv/default/t/k", headers={HEADER: str(MAX)})
                assert refused.status_code == 400, refused.text
        finally:
            proxy.terminate()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False
