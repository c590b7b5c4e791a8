"""What the log of requests says of who asked over HTTP, and of what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kv.base.adapters import SystemRng
from kv.base.config import NodeConfig
from kvorum.http.server.audited_requests import StampedHttp
from kvorum.http.wire.request import Message, Receive, Scope, Send
from kvorum.local.ports import system_ports
from kvorum.node.node import build
from kvorum.sdk.portal import Portal
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll
from tests.kvorum.surfaces.test_stamps import rows, stamp_log


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Of an audited node, and its log, which is whole once the node has stopped."""
    base, log = free_port_base(), tmp_path / "audit.log"
    portal = Portal("audited")

    async def start() -> Any:
        import asyncio

        config = NodeConfig(data=tmp_path / "data", port=base, audit_log=str(log))
        node = await build(config, system_ports(asyncio.get_running_loop()))
        await node.start()
        return node

    node = portal.call(start())
    try:
        yield f"http://127.0.0.1:{base + 2}", log
    finally:
        portal.call(node.stop())
        portal.close()


def lines(log: Path, wanted: str) -> list[dict[str, Any]]:
    """Of that request, once the log has it."""

    def found() -> list[dict[str, Any]]:
        told = [json.loads(line) for line in log.read_text().splitlines()]
        return [one for one in told if one.get("request") == wanted]

    return list(poll(found))


async def test_what_changes_something_is_a_line_whoever_asks(tmp_path: Path) -> None:
    """Before the first user nobody says who he is: what he did to the node alone left no trace."""
    log = stamp_log(tmp_path / "log")
    log.open()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def nothing(*_: Message) -> Message:
        return {}

    http = StampedHttp(app, log, lambda: 0.0, SystemRng())
    for method in ("GET", "POST", "HEAD", "DELETE"):
        scope = {"type": "http", "method": method, "path": "/v1/" + "x" * 500, "headers": []}
        await http(scope, nothing, nothing)
    await log.close()
    told = rows(tmp_path / "log")
    assert [row["method"][:12] for row in told] == ["POST /v1/xxx", "DELETE /v1/x"]


def test_every_decision_says_who_asked_and_by_what(place: tuple[str, Path]) -> None:
    """After a leak nobody could say who read what; what a client claims would be believed."""
    url, log = place
    admin = httpx.post(f"{url}/v1/init").json()["token"]
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {admin}"}) as by_admin:
        assert by_admin.post("/v1/users", json={"name": "ann"}).is_success
        made = by_admin.post("/v1/tokens", json={"user": "ann", "name": "laptop"}).json()
        claims = {"x-request-id": "mine", "x-user": "bob"}
        done = by_admin.get("/v1/cluster", headers=claims)
    (told,) = lines(log, done.headers["x-request-id"])
    assert (told["user"], told["credential"], told["allowed"]) == ("admin", "token init", True)
    assert (told["said"], told["method"]) == ("mine", "cluster")
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {made['token']}"}) as by_ann:
        for method, path in (("GET", "/v1/kv/shop/orders/k"), ("GET", "/v1/cluster")):
            refused = by_ann.request(method, path)
            assert refused.status_code == 403
            (told,) = lines(log, refused.headers["x-request-id"])
            assert (told["user"], told["credential"]) == ("ann", "token laptop")
            assert (told["allowed"], told["code"]) == (False, "FORBIDDEN")
            assert told["method"] == f"{method} {path}"
            assert "read" in told["denied"]
    failed = httpx.get(f"{url}/v1/cluster", headers={"authorization": "Bearer secret"})
    (told,) = lines(log, failed.headers["x-request-id"])
    assert (told["allowed"], told["code"]) == (False, "UNAUTHENTICATED")
    assert told["client"].startswith("127.0.0.1:")
    failed = httpx.get(f"{url}/v1/cluster", auth=("ann", "a guess"))
    (told,) = lines(log, failed.headers["x-request-id"])
    assert (told["user"], told["credential"], told["allowed"]) == ("ann", "none", False)
    failed = httpx.post(f"{url}/console/login", json={"user": "ann", "password": "a guess"})
    (told,) = lines(log, failed.headers["x-request-id"])
    assert (told["user"], told["allowed"]) == ("ann", False)
    for ask in 3 * (
        {"url": f"{url}/v1/cluster", "method": "GET", "auth": ("a" * 5_000, "a guess")},
        {
            "url": f"{url}/console/login",
            "method": "POST",
            "json": {"user": "a" * 5_000, "password": "a guess"},
        },
    ):
        failed = httpx.request(**ask)
        told = lines(log, failed.headers["x-request-id"])[0]
        assert told["user"] == "a" * 200  # a client could fill the log with one name
        assert not told["allowed"]  # too many guesses are no work of an allowed one
    text = log.read_text()
    assert admin not in text
    assert made["token"] not in text
